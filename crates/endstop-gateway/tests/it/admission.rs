//! Admission: paths in every spelling, methods, tokens, customers, and limits of memory and of keys.

use std::time::Duration;

use endstop_gateway::Config;
use endstop_gateway::config::Mode;
use endstop_sim::{Reply, ReplyEnd};

use crate::client::{self, Client, Response};
use crate::ledger::{Ask, CANARY, Field, begin, eventually};

/// A key or a token in a file.
pub(crate) fn secret(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

const TOKEN: &str = "token-canary-0123456789";

/// A request with these headers, whose answer is the one that was registered as `answer`.
fn asks(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let body = r#"{"model":"m","stream":false,"messages":[]}"#;
    let tag = path.split('?').next().unwrap();
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nhost: gateway\r\nx-sim-replay: answer\r\nx-sim-tag: {tag}\r\n\
         content-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n" + body
}

/// A field whose upstreams answer with a truncated body, which guard turns into an error.
async fn truncating(change: impl FnOnce(&mut Config)) -> std::sync::Arc<Field> {
    let field = Field::with(change).await;
    let body = br#"{"choices":[{"index":0,"message":{"content":"x"},"finish_re"#.to_vec();
    field.sim.replay(
        "answer",
        Reply {
            status: 200,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: vec![body],
            sized: true,
            end: ReplyEnd::Whole,
        },
    );
    field
}

fn assert_refused(response: &Response, status: u16, label: &str) {
    assert_eq!(response.status, status, "{label}: {response:?}");
    let text = response.text();
    assert!(text.contains("endstop: "), "{label}: {text}");
    assert!(!text.contains(CANARY), "{label}: {text}");
}

#[tokio::test]
async fn every_spelling_of_a_models_path_is_guarded_or_refused() {
    let field = truncating(|_| ()).await;
    let arn = "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.anthropic.claude-x";
    let arn = format!("/bedrock/us-east-1/model/{arn}/converse");
    for path in [
        "/openai/v1/chat/completions",
        "/openai/v1/chat/%63ompletions",
        "/openai/v1/%63%68%61%74/completions",
        "/openai/v1/chat/%2563ompletions",
        "/openai/v1/Chat/Completions",
        "/openai/V1/CHAT/COMPLETIONS",
        "/openai//v1//chat///completions",
        "/openai/v1/chat/completions/",
        "//openai/v1/chat/completions",
        "/anthropic/v1/%6dessages",
        "/gemini/v1beta/models/x%3AgenerateContent",
        "/gemini/v1beta/models/x:GENERATECONTENT",
        "/gemini/v1beta/models/x%253AgenerateContent",
        "/ollama/api/ch%61t",
        &arn,
    ] {
        field.admit(1);
        let response = client::ask(field.address, asks("POST", path, &[])).await;
        assert_eq!(response.status, 502, "{path}: {response:?}");
        let sent = field.sent(path).await;
        // The bytes go on as they came, after the route.
        let end = path.rsplit('/').find(|part| !part.is_empty()).unwrap();
        assert!(sent.path.contains(end), "{path}: {}", sent.path);
        let record = field.record(response.id()).await;
        assert_eq!(record.kept.mode, "guard", "{path}");
    }
    let seen = field.sim.ledger().len();
    for path in [
        "/openai/v1/chat%2fcompletions",
        "/openai/v1/chat%2Fcompletions",
        "/openai/v1/chat%252fcompletions",
        "/openai/v1/chat%5ccompletions",
        "/openai/v1/chat\\completions",
        "/openai/v1/chat;x/completions",
        "/openai/v1/chat/completions;x=y",
        "/openai/v1%2fchat/completions",
        "/bedrock/us-east-1/model/m%2Fconverse",
        "/openai/v1/x/../chat/completions",
        "/openai/v1/./chat/completions",
        "/openai/v1/%2e%2e/v1/chat/completions",
        "/openai/v1/%252e%252e/v1/chat/completions",
        "/openai/v1/files/%2e%2e%2fchat%2fcompletions",
        "/openai/v1/..;/chat/completions",
        "/openai/v1/chat/completions%00",
        "/openai/v1/chat/%25252525252563ompletions",
    ] {
        let response = client::ask(field.address, asks("POST", path, &[])).await;
        assert_refused(&response, 400, path);
    }
    assert_eq!(field.sim.ledger().len(), seen, "something was passed on");
    // An encoded slash where no model is asked is the provider's to read.
    let response = client::ask(field.address, asks("POST", "/openai/v1/files/a%2Fb", &[])).await;
    assert_eq!(response.status, 200);
    field.finish().await;
}

#[tokio::test]
async fn only_the_methods_of_a_wire_reach_its_paths() {
    let field = truncating(|_| ()).await;
    let paths = [
        "/openai/v1/chat/completions",
        "/anthropic/v1/messages",
        "/gemini/v1beta/models/m:generateContent",
        "/bedrock/us-east-1/model/m/converse",
        "/openai/v1/responses/resp_1",
    ];
    for path in paths {
        for method in ["post", "Post", "PUT", "PATCH", "PROPFIND", "QUERY", "TRACE"] {
            let response = client::ask(field.address, asks(method, path, &[])).await;
            assert_refused(&response, 405, &format!("{method} {path}"));
            let allow = match method {
                "PUT" | "PATCH" => "POST, GET, HEAD, DELETE, OPTIONS",
                _ => "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
            };
            assert_eq!(response.header("allow"), allow);
        }
        let override_it = [("x-http-method-override", "POST")];
        let response = client::ask(field.address, asks("GET", path, &override_it)).await;
        let polls = path.ends_with("resp_1");
        field.admit(usize::from(polls));
        assert_eq!(response.status, if polls { 502 } else { 405 }, "{path}: {response:?}");
    }
    // In the format of each wire.
    let refused = |path| client::ask(field.address, asks("PUT", path, &[]));
    let message: serde_json::Value = serde_json::from_str(&refused(paths[1]).await.text()).unwrap();
    assert_eq!(message["type"], "error");
    assert!(message["error"]["message"].is_string());
    let bedrock: serde_json::Value = serde_json::from_str(&refused(paths[3]).await.text()).unwrap();
    assert!(bedrock["message"].is_string());
    // Lists and deletions ask no model, and other paths are the provider's own.
    for (method, path) in [
        ("GET", "/openai/v1/chat/completions"),
        ("DELETE", "/openai/v1/responses/resp_1"),
        ("PUT", "/openai/v1/files/f"),
    ] {
        let response = client::ask(field.address, asks(method, path, &[])).await;
        assert_eq!(response.status, 200, "{method} {path}: {response:?}");
    }
    let request = "CONNECT openai:443 HTTP/1.1\r\nhost: openai:443\r\n\r\n";
    assert_refused(&client::ask(field.address, request).await, 405, "CONNECT");
    field.finish().await;
}

#[tokio::test]
async fn the_access_token_is_sent_to_no_provider() {
    use base64::Engine as _;
    let (token, key) = (secret(TOKEN), secret("sk-canary-of-the-gateway"));
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("me:{TOKEN}"));
    let signed =
        format!("AWS4-HMAC-SHA256 Credential={TOKEN}/20261117/us-east-1/bedrock/aws4_request");
    let shown = [
        ("authorization", format!("Bearer {TOKEN}")),
        ("authorization", format!("bearer {TOKEN}")),
        ("authorization", TOKEN.to_owned()),
        ("authorization", format!("Basic {basic}")),
        ("authorization", signed),
        ("x-api-key", TOKEN.to_owned()),
        ("x-goog-api-key", TOKEN.to_owned()),
        ("api-key", TOKEN.to_owned()),
        ("x-endstop-token", TOKEN.to_owned()),
        ("cookie", format!("a=b; token={TOKEN}")),
        ("proxy-authorization", format!("Bearer {TOKEN}")),
        ("x-custom", TOKEN.to_owned()),
    ];
    let paths = [
        "/openai/v1/chat/completions",
        "/openai/v1/models",
        "/anthropic/v1/messages",
        "/gemini/v1beta/models/m:generateContent",
        "/ollama/api/chat",
        "/bedrock/us-east-1/model/m/converse",
        "/bedrock/us-east-1/model/m/converse?key=token%2Dcanary-0123456789&x=1",
        "/openai/v1/chat/completions?token=token-canary-0123456789",
    ];
    for with_key in [false, true] {
        let field = truncating(|config| {
            config.access_token_file = Some(token.path().to_owned());
            let own = with_key.then(|| key.path().to_owned());
            config.upstreams.values_mut().for_each(|upstream| upstream.key_file = own.clone());
        })
        .await;
        let mut sent = 0;
        for path in paths {
            for (name, value) in &shown {
                let mut headers = vec![(*name, value.as_str())];
                if with_key && *name != "x-endstop-token" {
                    headers.push(("x-endstop-token", TOKEN));
                }
                let request = asks("POST", path, &headers);
                let response = client::ask(field.address, request).await;
                // A signature cannot be passed on without the gateway's own credentials.
                assert!([200, 502].contains(&response.status), "{path} {name}: {response:?}");
                field.admit(usize::from(response.status == 502));
                sent += 1;
            }
        }
        let ledger = field.sim.ledger();
        assert_eq!(ledger.len(), sent);
        for entry in ledger {
            let all = format!("{:?} {}", entry.headers, entry.path);
            assert!(!all.contains("canary-0123456789"), "the token went on: {all}");
            assert!(!all.contains(&basic), "the token went on: {all}");
        }
        field.finish().await;
    }
}

#[tokio::test]
async fn every_caller_shows_the_token_if_it_is_required() {
    let token = secret(TOKEN);
    let field = Field::with(|config| {
        config.access_token_file = Some(token.path().to_owned());
        config.require_token = true;
    })
    .await;
    let path = "/openai/v1/chat/completions";
    let own = ("authorization", "Bearer sk-canary-mine");
    let wrong = ("x-endstop-token", "token-canary-0123456788");
    for (path, headers) in [
        (path, vec![own]),
        (path, vec![]),
        (path, vec![own, wrong]),
        ("/openai/v1/models", vec![own]),
        ("/nobody/v1", vec![own]),
        ("/openai/v1/../x", vec![own]),
    ] {
        let response = client::ask(field.address, asks("POST", path, &headers)).await;
        assert_refused(&response, 401, path);
        assert!(response.text().contains("x-endstop-token"));
        assert_eq!(response.text().contains("is wrong"), headers.contains(&wrong), "{path}");
        assert!(!response.text().contains("anthropic"), "the routes are told");
    }
    assert!(field.sim.ledger().is_empty());
    let ask = Ask::new("openai-chat", "complete", Mode::Guard).header("x-endstop-token", TOKEN);
    let one = field.ask(ask).await;
    assert_eq!(one.sent.header("authorization"), Some("Bearer sk-canary-authorization"));
    let all = format!("{:?}", one.sent.headers);
    assert!(!all.contains(TOKEN), "the token went on: {all}");
    field.finish().await;
}

#[tokio::test]
async fn other_customers_are_refused() {
    let field = Field::with(|config| {
        let azure = config.upstreams.entry("azure".to_owned()).or_default();
        azure.base_url = None;
        azure.customers = vec!["mine".to_owned()];
        config.limits.connect = Duration::from_millis(1);
    })
    .await;
    let path = "/azure/theirs/openai/v1/chat/completions";
    let response = client::ask(field.address, asks("POST", path, &[])).await;
    assert_refused(&response, 403, path);
    assert!(!response.text().contains("mine"), "{}", response.text());
    field.finish().await;
}

#[tokio::test]
async fn requests_at_once_are_limited_per_key() {
    let field = Field::with(|config| config.limits.key_requests = 2).await;
    let stall = Ask::new("anthropic", "stall", Mode::Guard);
    let mut held = Vec::new();
    for _ in 0..2 {
        let tag = field.tag();
        let mut client: Client = begin(&field, &stall, &tag).await;
        client.until(|response| !response.body.is_empty()).await;
        held.push(client);
    }
    let response = client::ask(field.address, stall.request("third")).await;
    assert_refused(&response, 429, "third");
    assert_eq!(response.header("retry-after"), "1");
    assert_eq!(response.header("x-should-retry"), "");
    let error: serde_json::Value = serde_json::from_str(&response.text()).unwrap();
    assert_eq!(error["error"]["code"], "endstop_key_limit");
    // Other keys, and callers without one, are not affected.
    let other = "/anthropic/v1/messages";
    for headers in [vec![("x-api-key", "sk-canary-other")], vec![]] {
        let request = asks("POST", other, &headers).replace("x-sim-replay: answer\r\n", "");
        field.admit(1);
        assert_eq!(client::ask(field.address, request).await.status, 200);
    }
    // A place is free when a response has ended, also by the client.
    drop(held);
    eventually("the streams are gone", || {
        (field.handle.streams() + field.handle.waiting() == 0).then_some(())
    })
    .await;
    let complete = Ask::new("anthropic", "complete", Mode::Guard);
    for _ in 0..5 {
        field.ask(complete.clone()).await;
    }
    field.finish().await;
}

#[tokio::test]
async fn a_limit_of_one_is_told_as_one() {
    let field = Field::with(|config| config.limits.key_requests_per_minute = 1).await;
    let request =
        asks("POST", "/openai/v1/chat/completions", &[("authorization", "Bearer sk-one")]);
    let request = request.replace("x-sim-replay: answer\r\n", "");
    field.admit(1);
    assert_eq!(client::ask(field.address, request.clone()).await.status, 200);
    let response = client::ask(field.address, request).await;
    assert!(response.text().contains("allows 1 request within a minute"), "{response:?}");
    field.finish().await;
}

#[tokio::test]
async fn requests_of_a_minute_are_limited_per_key() {
    let field = Field::with(|config| config.limits.key_requests_per_minute = 3).await;
    let path = "/openai/v1/chat/completions";
    let ask = |key: &str| {
        let shown = format!("Bearer {key}");
        let request = asks("POST", path, &[("authorization", &shown)]);
        client::ask(field.address, request.replace("x-sim-replay: answer\r\n", ""))
    };
    for _ in 0..3 {
        field.admit(1);
        assert_eq!(ask("sk-canary-one").await.status, 200);
    }
    let response = ask("sk-canary-one").await;
    assert_refused(&response, 429, "fourth");
    let wait: u64 = response.header("retry-after").parse().unwrap();
    assert!((1..=120).contains(&wait), "{wait}");
    field.admit(1);
    assert_eq!(ask("sk-canary-two").await.status, 200);
    field.finish().await;
}

#[tokio::test]
async fn bodies_that_find_no_memory_are_refused() {
    let field = Field::with(|config| config.limits.request_memory = 8 << 20).await;
    let head = |length: usize| {
        format!(
            "POST /anthropic/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    // What is announced takes nothing.
    let mut announced = Vec::new();
    for _ in 0..8 {
        let mut client = Client::connect(field.address).await;
        client.send(head(30 << 20)).await;
        announced.push(client);
    }
    let mut large = Client::connect(field.address).await;
    large.send(head(30 << 20) + &" ".repeat(6 << 20)).await;
    // A second one of this size does not fit, sooner or later.
    let response = loop {
        let mut second = Client::connect(field.address).await;
        second.send(head(5 << 20) + &" ".repeat(5 << 20)).await;
        let response = second.finish().await;
        if response.status != 0 {
            break response;
        }
    };
    assert_refused(&response, 503, "no memory");
    assert_eq!(response.header("retry-after"), "5");
    let error: serde_json::Value = serde_json::from_str(&response.text()).unwrap();
    assert_eq!((&error["type"], &error["error"]["type"]), (&"error".into(), &"api_error".into()));
    // Small ones go on, and so does the first.
    field.ask(Ask::new("anthropic", "complete", Mode::Guard)).await;
    drop(announced);
    large.send(" ").await;
    drop(large);
    // Memory is given back.
    let body = format!("{{\"stream\":true,\"messages\":[],\"x\":\"{}\"}}", "x".repeat(6 << 20));
    let ask = Ask { body, ..Ask::new("anthropic", "complete", Mode::Guard) };
    eventually("all clients gone", || (field.handle.connections() == 0).then_some(())).await;
    for _ in 0..3 {
        field.ask(ask.clone()).await;
    }
    field.finish().await;
}

#[tokio::test]
async fn a_stream_that_was_asked_for_twice_is_guarded() {
    let field = Field::start().await;
    let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    for content_type in ["text/event-stream", "text/plain", "application/octet-stream"] {
        field.sim.replay(
            content_type,
            Reply {
                status: 200,
                headers: vec![("content-type".to_owned(), content_type.to_owned())],
                body: vec![stream.as_bytes().to_vec()],
                sized: false,
                end: ReplyEnd::Whole,
            },
        );
        for body in [
            r#"{"stream":true,"stream":false,"messages":[]}"#,
            r#"{"stream":false,"stream":true,"messages":[]}"#,
            r#"{"stream":"true","messages":[]}"#,
        ] {
            let ask = Ask::new("openai-chat", "complete", Mode::Guard).replay(content_type, false);
            let ask = Ask { body: body.to_owned(), ..ask };
            field.admit(1);
            let response = client::ask(field.address, ask.request(&field.tag())).await;
            let text = response.text();
            assert!(text.starts_with("data: ") && text.contains("endstop"), "{body}: {text}");
            let record = field.record(response.id()).await;
            assert!(!record.ending.reason.is_success(), "{body}: {:?}", record.ending);
        }
    }
    field.finish().await;
}
