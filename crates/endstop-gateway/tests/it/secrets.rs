//! Security: keys and tokens, addresses, headers, and what operators alone may see.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use endstop_gateway::config::{Mode, UpstreamConfig};
use endstop_gateway::{Config, Gateway};
use endstop_sim::{Options, Reply, ReplyEnd, Sim};

use crate::client::{self, Client, End};
use crate::ledger::{Ask, CANARY, Field, begin, config};
use crate::record;

/// A file with a secret, which is gone after the test.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("endstop-key-{}-{name}", std::process::id()));
        std::fs::write(&path, format!("{text}\n")).unwrap();
        Self(path)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const OWN_KEY: &str = "sk-canary-of-the-gateway";
const TOKEN: &str = "token-canary-0123456789";

fn owned(config: &mut Config, key: &Secret, token: &Secret) {
    config.access_token_file = Some(token.0.clone());
    for upstream in config.upstreams.values_mut() {
        upstream.key_file = Some(key.0.clone());
    }
}

/// The headers of a caller that shows this.
fn shows(path: &str, tag: &str, headers: &[(&str, &str)]) -> String {
    let fixed = [("x-sim-tag", tag), ("x-sim-scenario", "complete")];
    let all = fixed.iter().chain(headers);
    let all: Vec<_> = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    client::request(path, &all, r#"{"model":"m","stream":false,"messages":[]}"#)
}

#[tokio::test]
async fn own_keys_are_for_those_who_show_the_token() {
    let (key, token) = (Secret::new("a", OWN_KEY), Secret::new("b", TOKEN));
    let field = Field::with(|config| owned(config, &key, &token)).await;
    let bearer = |token: &str| format!("Bearer {token}");
    let (chat, messages) = ("/openai/v1/chat/completions", "/anthropic/v1/messages");
    let gemini = "/gemini/v1beta/models/m:generateContent";
    let models = "/openai/v1/models";
    for path in
        [chat, messages, gemini, models, "/ollama/api/chat", "/bedrock/us-east-1/model/m/converse"]
    {
        for wrong in [
            String::new(),
            TOKEN.trim_end_matches('9').to_owned(),
            format!("{TOKEN}x"),
            TOKEN.to_uppercase(),
            "'; DROP TABLE keys; --".to_owned(),
            "x".repeat(30_000),
            OWN_KEY.to_owned(),
        ] {
            for name in ["authorization", "x-api-key", "x-goog-api-key", "x-endstop-token"] {
                let shown = if name == "authorization" { bearer(&wrong) } else { wrong.clone() };
                let request = shows(path, "denied", &[(name, &shown)]);
                let response = client::ask(field.address, request).await;
                assert_eq!(response.status, 401, "{path} {name}");
                assert!(!response.text().contains(CANARY), "{path}");
            }
        }
    }
    assert!(field.sim.ledger().is_empty());
    let query = format!("{gemini}?key={TOKEN}&alt=json");
    for (tag, path, name, shown, sent_as) in [
        ("1", chat, "authorization", bearer(TOKEN), "authorization"),
        ("2", chat, "x-endstop-token", TOKEN.to_owned(), "authorization"),
        ("3", messages, "x-api-key", TOKEN.to_owned(), "x-api-key"),
        ("4", messages, "authorization", bearer(TOKEN), "x-api-key"),
        ("5", gemini, "x-goog-api-key", TOKEN.to_owned(), "x-goog-api-key"),
        ("6", &query, "x-nothing", String::new(), "x-goog-api-key"),
        // A server that needs no key takes one that it is given.
        ("7", "/ollama/api/chat", "authorization", bearer(TOKEN), "authorization"),
    ] {
        field.admit(1);
        let request = shows(path, tag, &[(name, &shown)]);
        let response = client::ask(field.address, request).await;
        assert_eq!(response.status, 200, "{tag} {response:?}");
        let sent = field.sent(tag).await;
        let key = sent.header(sent_as).unwrap().trim_start_matches("Bearer ");
        assert_eq!(key, OWN_KEY, "{tag}");
        let all = format!("{:?} {}", sent.headers, sent.path);
        assert!(!all.contains(TOKEN), "{tag}: the token went on: {all}");
        let keys = sent.headers.iter().filter(|(_, value)| value.contains(OWN_KEY)).count();
        assert_eq!(keys, 1, "{tag}: {all}");
        assert!(!response.headers.iter().any(|(_, value)| value.contains(CANARY)));
    }
    field.finish().await;
}

#[tokio::test]
async fn a_callers_own_key_passes_and_is_told_nowhere() {
    let field = Field::start().await;
    let one = field.ask(Ask::new("openai-chat", "complete", Mode::Guard)).await;
    assert_eq!(one.sent.header("authorization"), Some("Bearer sk-canary-authorization"));
    // In an error of the provider's that repeats it, the key is its owner's to see, and no more.
    let error = format!(
        r#"{{"error":{{"message":"Incorrect API key provided: sk-{CANARY}-abc123DEF456ghi789. See https://x?key=sk-{CANARY}-AIza567890abc1","type":"invalid_request_error","code":"invalid_api_key"}}}}"#
    );
    for (status, name) in [(401, "rejected"), (200, "quiet")] {
        field.sim.replay(
            name,
            Reply {
                status,
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: vec![error.clone().into_bytes()],
                sized: true,
                end: ReplyEnd::Whole,
            },
        );
        for mode in [Mode::Observe, Mode::Guard] {
            let ask = Ask::new("openai-chat", "complete", mode).replay(name, false);
            field.ask(ask).await;
        }
    }
    let event = format!(
        "data: {{\"error\":{{\"message\":\"key sk-{CANARY}-abc123DEF456ghi789 is wrong\"}}}}\n\n"
    );
    field.sim.replay(
        "stream",
        Reply {
            status: 200,
            headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
            body: vec![event.into_bytes()],
            sized: false,
            end: ReplyEnd::Whole,
        },
    );
    for mode in [Mode::Observe, Mode::Guard] {
        field.ask(Ask::new("openai-chat", "complete", mode).replay("stream", false)).await;
    }
    field.finish().await;
}

/// However a provider quotes it: in headers, in a plain body or a stream, as the finish reason.
#[tokio::test]
async fn the_gateways_key_never_reaches_a_caller() {
    let (key, token) = (Secret::new("quoted", OWN_KEY), Secret::new("asked", TOKEN));
    let field = Field::with(|config| owned(config, &key, &token)).await;
    let choice = |word: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"message":{{"content":"{OWN_KEY}"}},"finish_reason":"{word}"}}]}}"#
        )
    };
    let escaped = OWN_KEY.replace('-', "\\u002d");
    let event = |name: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"{name}\":\"{OWN_KEY}\"}}}}]}}\n\n"
        )
    };
    let large = format!("{{\"x\":\"{}{OWN_KEY}\"}}", "y".repeat(17 << 20));
    let (json, events) = ("application/json", "text/event-stream");
    for (name, path, kind, body) in [
        ("plain", "/openai/v1/chat/completions", json, choice("stop")),
        ("word", "/openai/v1/chat/completions", json, choice(&escaped)),
        ("stream", "/openai/v1/chat/completions", events, event("content").repeat(3)),
        ("large", "/openai/v1/chat/completions", json, large),
        ("unread", "/openai/v1/embeddings", json, choice("stop")),
    ] {
        let headers = [("content-type", kind), ("x-echo", OWN_KEY)];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = body.into_bytes().chunks(1 << 16).map(<[u8]>::to_vec).collect();
        let end = ReplyEnd::Whole;
        field.sim.replay(
            name,
            Reply { status: 200, headers: headers.to_vec(), body, sized: false, end },
        );
        for mode in ["observe", "guard"] {
            field.admit(usize::from(name != "unread"));
            let token = ("x-endstop-token", TOKEN);
            let asked = [token, ("x-sim-replay", name), ("x-endstop-mode", mode)];
            let response = client::ask(field.address, shows(path, name, &asked)).await;
            let told = format!("{:?} {}", response.headers, response.text());
            assert!(told.contains("************************"), "{name} {mode}");
            assert!(!told.contains(OWN_KEY), "{name} {mode}");
        }
    }
    field.finish().await;
}

/// Places of a request that hold a secret.
const SHOWN: &[(&str, &str)] = &[
    ("authorization", "Bearer sk-canary-bearer"),
    ("authorization", "Basic c2stY2FuYXJ5LWJhc2ljOnNrLWNhbmFyeQ=="),
    ("authorization", "AWS4-HMAC-SHA256 Credential=AKIDcanary/20261117/us-east-1/bedrock/x"),
    ("proxy-authorization", "Basic canary-proxy"),
    ("x-api-key", "sk-canary-x-api-key"),
    ("x-goog-api-key", "canary-goog"),
    ("api-key", "canary-api-key"),
    ("cookie", "session=canary-cookie; other=canary-2"),
    ("x-endstop-token", "canary-token"),
    ("x-endstop-team", "canary team!"),
    ("x-amz-security-token", "canary-session"),
    ("referer", "https://x/?key=canary-referer"),
];

const QUERY: &str = "key=canary-key&token=canary-token&api_key=canary%2Dkey&sig=canary-sig";

/// Requests that are refused, and requests that fail, for every reason there is.
fn failing() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        ("POST", "/nobody/v1/chat/completions", ""),
        ("POST", "/openai/v1/../x", ""),
        ("POST", "/openai/v1/chat%2fcompletions", ""),
        ("POST", "/azure/a.b/openai/v1/chat/completions", ""),
        ("PUT", "/openai/v1/chat/completions", ""),
        ("CONNECT", "/openai/v1/chat/completions", ""),
        ("POST", "/openai/v1/chat/completions", "x-endstop-mode: nonsense-canary\r\n"),
        ("POST", "/openai/v1/chat/completions", "x-endstop-tell: canary\r\n"),
        ("POST", "/openai/v1/chat/completions", "upgrade: websocket\r\n"),
        ("POST", "/openai/v1/chat/completions", "x-endstop-team: canary\r\n"),
        ("POST", "/anthropic/v1/messages", "content-length: 99999999999\r\n"),
        ("POST", "/bedrock/us-east-1/model/m/converse", ""),
        ("POST", "/gemini/v1beta/models/m:generateContent", ""),
        ("POST", "/nowhere/v1/chat/completions", ""),
        ("POST", "/nowhere/v1/files", ""),
    ]
}

/// Reads every file of the folder: the database, and the spool in its own folder.
fn assert_no_canary_in(data: &Path) {
    let files = record::files(data);
    let bytes_of = |part: &str| -> usize {
        files.iter().filter(|(name, _)| name.contains(part)).map(|(_, bytes)| bytes.len()).sum()
    };
    assert!(bytes_of("/spool/") > 0, "the spool is empty or missing");
    assert!(bytes_of("endings.db") > 0, "the database is empty or missing");
    for (name, bytes) in &files {
        assert_eq!(memchr::memmem::find(bytes, CANARY.as_bytes()), None, "{name}");
    }
}

#[tokio::test]
async fn nothing_that_a_request_shows_is_told() {
    let data = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", data.path().join("endings.db").display());
    let field = Field::with(|config| {
        config.store = Some(store);
        config.data = Some(data.path().to_owned());
        let base_url = Some("http://127.0.0.1:1/v1".to_owned());
        let like = Some("openai".to_owned());
        let nowhere = UpstreamConfig { base_url, like, ..UpstreamConfig::default() };
        config.upstreams.insert("nowhere".to_owned(), nowhere);
    })
    .await;
    let body =
        r#"{"model":"m","stream":false,"messages":[{"role":"user","content":"canary prompt"}]}"#;
    let mut refused = 0;
    for (method, path, more) in failing() {
        for (name, value) in SHOWN {
            let length = if more.contains("content-length") { 0 } else { body.len() };
            let length = format!("content-length: {length}\r\n");
            let length = if more.contains("content-length") { "" } else { &length };
            let request = format!(
                "{method} {path}?{QUERY} HTTP/1.1\r\nhost: gateway\r\n{name}: {value}\r\n\
                 x-sim-scenario: cut-before-word\r\nconnection: close\r\n{length}{more}\r\n{body}"
            );
            let response = client::ask(field.address, request).await;
            refused += usize::from(response.status >= 400);
            let told = format!("{:?} {}", response.headers, response.text());
            assert!(!told.contains(CANARY), "{method} {path} {name}: {told}");
            assert!(!told.contains("AKID") && !told.contains("c2stY2"), "{path} {name}: {told}");
        }
    }
    assert!(refused > 100, "{refused} were refused");
    // What was told of those that were admitted: three paths, without the header for teams.
    for ended in field.told_all(33).await {
        field.admit(1);
        assert!(!ended.kept.path.contains('?'), "{}", ended.kept.path);
        let told = serde_json::to_string(&*ended).unwrap();
        for secret in [CANARY, "AKID", "c2stY2"] {
            assert!(!told.contains(secret), "{told}");
        }
    }
    field.finish().await;
    assert_no_canary_in(data.path());
}

/// A provider may put a part of the request where a name is expected.
#[tokio::test]
async fn nothing_that_an_upstream_quotes_is_told() {
    const QUOTED: &str = "canary my secret prompt";
    let data = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", data.path().join("endings.db").display());
    let field = Field::with(|config| {
        config.store = Some(store);
        config.data = Some(data.path().to_owned());
    })
    .await;
    let choice = |fields: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"message":{{"content":"QUOTED"}},"finish_reason":"stop"}}]{fields}}}"#
        )
    };
    let bodies = [
        r#"{"error":{"type":"QUOTED","message":"QUOTED"}}"#.to_owned(),
        r#"{"error":{"code":"QUOTED"}}"#.to_owned(),
        r#"{"error":{"status":"QUOTED","code":400}}"#.to_owned(),
        r#"{"errors":[{"code":"QUOTED","message":"QUOTED"}]}"#.to_owned(),
        r#"{"type":"error","error":{"type":"QUOTED"}}"#.to_owned(),
        r#"{"__type":"QUOTED","message":"QUOTED"}"#.to_owned(),
        r#"{"detail":[{"loc":["QUOTED"],"msg":"QUOTED","type":"QUOTED"}]}"#.to_owned(),
        choice(r#","model":"QUOTED""#),
        choice("").replace("\"stop\"", "\"QUOTED\""),
        r#"{"type":"message","model":"QUOTED","content":[],"stop_reason":"QUOTED"}"#.to_owned(),
        r#"{"candidates":[{"finishReason":"QUOTED"}],"modelVersion":"QUOTED"}"#.to_owned(),
        r#"{"model":"QUOTED","message":{},"done":true,"done_reason":"QUOTED"}"#.to_owned(),
        r#"{"status":"QUOTED","model":"QUOTED","output":[]}"#.to_owned(),
    ];
    let paths = [
        "/openai/v1/chat/completions",
        "/openai/v1/responses",
        "/anthropic/v1/messages",
        "/gemini/v1beta/models/m:generateContent",
        "/ollama/api/chat",
        "/bedrock/us-east-1/model/m/converse",
    ];
    let mut asked = 0;
    for (number, body) in bodies.iter().enumerate() {
        for status in [200, 400, 500] {
            let name = format!("quoted-{number}-{status}");
            let headers = [("content-type", "application/json"), ("x-request-id", QUOTED)];
            field.sim.replay(
                &name,
                Reply {
                    status,
                    headers: headers
                        .map(|(name, value)| (name.to_owned(), value.to_owned()))
                        .to_vec(),
                    body: vec![body.replace("QUOTED", QUOTED).into_bytes()],
                    sized: true,
                    end: ReplyEnd::Whole,
                },
            );
            for path in paths {
                field.admit(1);
                asked += 1;
                let replayed = [("x-sim-replay", &*name), ("authorization", "Bearer sk-1")];
                let request = shows(path, &name, &replayed);
                let named = format!(r#""model":"{QUOTED}""#);
                let longer = request.replace(r#""model":"m""#, &named);
                let length = |request: &str| request.split_once("\r\n\r\n").unwrap().1.len();
                let from = format!("content-length: {}", length(&request));
                let to = format!("content-length: {}", length(&longer));
                assert!(longer.contains(&from), "{longer}");
                client::ask(field.address, longer.replace(&from, &to)).await;
            }
        }
    }
    let mut withheld = 0;
    for ended in field.told_all(asked).await {
        let told = serde_json::to_string(&*ended).unwrap();
        assert!(!told.contains(CANARY), "{told}");
        assert!(!format!("{:?}", ended.ending).contains(CANARY), "{:?}", ended.ending);
        withheld += usize::from(told.contains("[withheld]"));
    }
    assert!(withheld > asked / 2, "{withheld} of {asked}");
    field.finish().await;
    assert_no_canary_in(data.path());
}

#[tokio::test]
async fn nobody_but_the_operator_says_where_requests_go() {
    let elsewhere = Sim::start(Options::default()).await.unwrap();
    let field = Field::start().await;
    let url = elsewhere.url();
    let host = url.trim_start_matches("http://");
    let body = format!(
        r#"{{"model":"m","stream":false,"messages":[],"api_base":"{url}","base_url":"{url}","endpoint":"{url}"}}"#
    );
    let headers: Vec<(String, String)> = [
        ("x-endstop-base-url", &*url),
        ("x-endstop-upstream", &url),
        ("x-forwarded-host", host),
        ("x-original-url", &url),
        ("x-rewrite-url", &url),
        ("x-portkey-custom-host", &url),
        ("forwarded", &format!("host={host}")),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    let path = "/openai/v1/chat/completions";
    let request = client::request(path, &headers, &body);
    for request in [
        request.clone(),
        request.replace("host: gateway", &format!("host: {host}")),
        request.replacen(path, &format!("{url}{path}"), 1),
        request.replacen(path, &format!("{path}?api_base={url}"), 1),
    ] {
        field.admit(1);
        let response = client::ask(field.address, request).await;
        assert_eq!(response.status, 200);
    }
    for path in [
        format!("/{url}/v1/chat/completions"),
        format!("//{host}/v1/chat/completions"),
        format!("/openai@{host}/v1/chat/completions"),
        "/openai%2f..%2f..%2fadmin".to_owned(),
    ] {
        let response = client::ask(field.address, client::request(&path, &headers, &body)).await;
        assert!([400, 404].contains(&response.status), "{path}: {response:?}");
    }
    assert!(elsewhere.ledger().is_empty(), "a caller chose the upstream");
    field.finish().await;
}

#[tokio::test]
async fn headers_of_one_connection_and_of_the_gateway_stop_there() {
    let field = Field::start().await;
    field.sim.replay(
        "headers",
        Reply {
            status: 200,
            headers: [
                ("content-type", "application/json"),
                ("x-endstop-id", "forged"),
                ("x-endstop-reason", "forged"),
                ("x-endstop-other", "forged"),
                ("keep-alive", "timeout=1"),
                ("proxy-authenticate", "Basic"),
                ("upgrade", "h2c"),
                ("trailer", "x-trailer"),
                ("x-kept", "yes"),
            ]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
            body: vec![br#"{"object":"list","data":[]}"#.to_vec()],
            sized: true,
            end: ReplyEnd::Whole,
        },
    );
    for (path, admitted) in [("/openai/v1/chat/completions", 1), ("/openai/v1/files", 0)] {
        field.admit(admitted);
        let request = shows(
            path,
            path,
            &[
                ("x-sim-replay", "headers"),
                ("x-endstop-mode", "observe"),
                ("x-endstop-unknown", "1"),
                ("x-endstop-token", "t"),
                ("connection", "close, x-listed"),
                ("x-listed", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-authorization", "Basic canary"),
                ("proxy-connection", "keep-alive"),
                ("te", "trailers"),
                ("trailer", "x-t"),
                ("x-kept", "yes"),
            ],
        );
        let response = client::ask(field.address, request).await;
        assert_eq!(response.status, 200, "{path}");
        let sent = field.sent(path).await;
        for (name, _) in &sent.headers {
            let name = name.to_ascii_lowercase();
            let stopped = [
                "connection",
                "x-listed",
                "keep-alive",
                "proxy-authorization",
                "proxy-connection",
                "te",
                "trailer",
                "upgrade",
            ];
            assert!(!stopped.contains(&&*name), "{path}: {name} went on");
            assert!(!name.starts_with("x-endstop-"), "{path}: {name} went on");
        }
        assert_eq!(sent.header("x-kept"), Some("yes"));
        assert_eq!(sent.header("host"), Some(&*field.sim.addr().to_string()));
        assert_eq!(response.header("x-kept"), "yes");
        for name in ["keep-alive", "proxy-authenticate", "upgrade", "trailer", "x-endstop-other"] {
            assert_eq!(response.header(name), "", "{path}: {name} came back");
        }
        let ours = response.headers.iter().filter(|(name, _)| name.starts_with("x-endstop-"));
        assert!(ours.clone().count() >= 1);
        assert!(ours.clone().all(|(_, value)| value != "forged"), "{path}: {response:?}");
    }
    field.finish().await;
}

#[tokio::test]
async fn own_keys_are_not_open_to_other_machines() {
    let (key, token) = (Secret::new("c", OWN_KEY), Secret::new("d", TOKEN));
    let bound = |listen: &str, admin: Option<&str>, keyed: bool, tokens: bool| {
        let mut config = config("http://127.0.0.1:9");
        config.listen = listen.parse().unwrap();
        config.admin = admin.map(|admin| admin.parse().unwrap());
        if keyed {
            let own = config.upstreams.get_mut("openai").unwrap();
            own.key_file = Some(key.0.clone());
        }
        if tokens {
            config.access_token_file = Some(token.0.clone());
            config.admin_token_file = Some(token.0.clone());
        }
        Gateway::bind(config)
    };
    let refused = bound("0.0.0.0:0", None, true, false).await.unwrap_err().to_string();
    assert!(refused.contains("access_token"), "{refused}");
    assert!(!refused.contains(CANARY), "{refused}");
    let refused = bound("[::]:0", None, true, false).await;
    assert!(refused.is_err());
    let refused = bound("127.0.0.1:0", Some("0.0.0.0:0"), false, false).await.unwrap_err();
    assert!(refused.to_string().contains("admin_token"), "{refused}");
    assert!(bound("0.0.0.0:0", None, false, false).await.is_ok());
    assert!(bound("127.0.0.1:0", Some("127.0.0.1:0"), true, false).await.is_ok());
    assert!(bound("0.0.0.0:0", Some("0.0.0.0:0"), true, true).await.is_ok());
}

#[tokio::test]
async fn secrets_that_are_empty_or_split_headers_are_refused() {
    for (name, text) in [("e", ""), ("f", "   "), ("g", "a\r\nx-evil: 1"), ("h", "a\0b")] {
        let secret = Secret::new(name, text);
        for set in [
            |config: &mut Config, path: PathBuf| config.access_token_file = Some(path),
            |config: &mut Config, path: PathBuf| config.admin_token_file = Some(path),
            |config: &mut Config, path: PathBuf| {
                let own = UpstreamConfig { key_file: Some(path), ..UpstreamConfig::default() };
                config.upstreams.insert("openai".to_owned(), own);
            },
        ] {
            let mut config = config("http://127.0.0.1:9");
            // On this machine alone: the token would matter only to others.
            set(&mut config, secret.0.clone());
            config.admin = Some(SocketAddr::from(([0, 0, 0, 0], 0)));
            assert!(Gateway::bind(config).await.is_err(), "{text:?}");
        }
    }
}

#[tokio::test]
async fn an_admin_token_that_is_empty_is_refused_on_loopback_too() {
    let secret = Secret::new("i", "");
    let mut config = config("http://127.0.0.1:9");
    config.admin_token_file = Some(secret.0.clone());
    assert!(Gateway::bind(config).await.is_err(), "it would be open to everybody");
}

#[tokio::test]
async fn tokens_that_can_be_guessed_are_refused() {
    let (short, long) = (Secret::new("k", "canary-15-chars"), Secret::new("l", "canary-16-chars!"));
    for set in [
        |config: &mut Config, path: PathBuf| config.access_token_file = Some(path),
        |config: &mut Config, path: PathBuf| config.admin_token_file = Some(path),
    ] {
        let bound = |secret: &Secret| {
            let mut config = config("http://127.0.0.1:9");
            set(&mut config, secret.0.clone());
            Gateway::bind(config)
        };
        let refused = bound(&short).await.unwrap_err().to_string();
        assert!(refused.contains("16") && !refused.contains(CANARY), "{refused}");
        assert!(bound(&long).await.is_ok());
    }
}

#[tokio::test]
async fn callers_of_the_gateways_key_share_its_limits() {
    let (key, token) = (Secret::new("m", OWN_KEY), Secret::new("n", TOKEN));
    let field = Field::with(|config| {
        owned(config, &key, &token);
        config.limits.key_requests_per_minute = 3;
    })
    .await;
    let mut statuses = Vec::new();
    for number in 0..5 {
        let invented = format!("Bearer sk-{number}");
        let headers = [("x-endstop-token", TOKEN), ("authorization", invented.as_str())];
        let tag = format!("shared-{number}");
        let request = shows("/openai/v1/chat/completions", &tag, &headers);
        statuses.push(client::ask(field.address, request).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    field.admit(3);
    field.finish().await;
}

#[tokio::test]
async fn operators_show_their_token() {
    let token = Secret::new("j", TOKEN);
    let field = Field::with(|config| config.admin_token_file = Some(token.0.clone())).await;
    let one = field.ask(Ask::new("openai-chat", "complete", Mode::Guard)).await;
    let closed = [
        "/endstop/v1/endings".to_owned(),
        format!("/endstop/v1/endings/{}", one.record.kept.id),
        "/endstop/v1/tail".to_owned(),
        "/endstop/v1/upstreams".to_owned(),
    ];
    for path in &closed {
        for shown in [
            String::new(),
            "authorization: Bearer \r\n".to_owned(),
            format!("authorization: Bearer {}\r\n", TOKEN.trim_end_matches('9')),
            format!("authorization: Bearer {TOKEN}x\r\n"),
            format!("authorization: {TOKEN}\r\n"),
            format!("x-endstop-token: {TOKEN}\r\n"),
        ] {
            let headers = format!("{shown}connection: close\r\n");
            let response = client::get(field.admin, path, &headers).await;
            assert_eq!(response.status, 401, "{path} {shown}");
            assert!(!response.text().contains(CANARY));
        }
        if path.ends_with("tail") {
            continue;
        }
        let headers = format!("authorization: Bearer {TOKEN}\r\nconnection: close\r\n");
        let response = client::get(field.admin, path, &headers).await;
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
        assert!(response.header("content-security-policy").contains("default-src 'none'"));
    }
    for path in ["/healthz", "/readyz"] {
        let response = client::get(field.admin, path, "connection: close\r\n").await;
        assert_eq!(response.status, 200, "{path}");
    }
    for path in ["/endstop/v1/endings/", "/endstop/v1/../v1/endings", "/%65ndstop/v1/endings"] {
        let response = client::get(field.admin, path, "connection: close\r\n").await;
        assert!([401, 404].contains(&response.status), "{path}: {response:?}");
    }
    field.finish().await;
}

#[tokio::test]
async fn operators_paths_are_not_among_those_of_clients() {
    let field = Field::start().await;
    let admin = field.admin;
    for (target, host) in [
        ("/endstop/v1/endings".to_owned(), "gateway".to_owned()),
        ("/endstop/v1/endings".to_owned(), admin.to_string()),
        (format!("http://{admin}/endstop/v1/endings"), admin.to_string()),
        (format!("http://{admin}/endstop/v1/endings"), "gateway".to_owned()),
        ("/%65ndstop/v1/endings".to_owned(), "gateway".to_owned()),
        ("/healthz".to_owned(), admin.to_string()),
        ("/readyz".to_owned(), admin.to_string()),
        ("//endstop/v1/endings".to_owned(), "gateway".to_owned()),
        ("/%6fpenai/v1/models".to_owned(), "gateway".to_owned()),
        ("/OPENAI/v1/models".to_owned(), "gateway".to_owned()),
        ("/".to_owned(), "gateway".to_owned()),
        ("*".to_owned(), "gateway".to_owned()),
    ] {
        for method in ["GET", "POST"] {
            let request = format!(
                "{method} {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\
                 connection: close\r\n\r\n"
            );
            let response = client::ask(field.address, request).await;
            assert_eq!(response.status, 404, "{method} {target} {host}: {response:?}");
        }
    }
    // Dots lead out of no route.
    for target in ["/openai/../endstop/v1/endings", "/openai/%2e%2e/endstop/v1/endings"] {
        let response = client::get(field.address, target, "connection: close\r\n").await;
        assert_eq!(response.status, 400, "{target}: {response:?}");
    }
    field.finish().await;
}

#[tokio::test]
async fn callers_ask_for_less_only_where_they_may() {
    let field = Field::with(|config| config.allow_looser = false).await;
    let ask = Ask::new("openai-chat", "complete", Mode::Observe);
    let response = client::ask(field.address, ask.request("looser")).await;
    assert_eq!(response.status, 403);
    let guarded = Ask::new("openai-chat", "complete", Mode::Guard);
    for (header, status) in
        [("pass", 403), ("fail", 200), ("gate", 200), ("hold", 200), ("nonsense", 400)]
    {
        let ask = guarded.clone().header("x-endstop-tool-calls", header);
        field.admit(usize::from(status == 200));
        let response = client::ask(field.address, ask.request(header)).await;
        assert_eq!(response.status, status, "{header}");
    }
    field.finish().await;
}

#[tokio::test]
async fn several_requests_on_one_connection_are_told_apart() {
    let field = Field::start().await;
    let ask = Ask::new("openai-chat", "complete", Mode::Guard);
    let first = field.tag();
    let mut client: Client = begin(&field, &ask, &first).await;
    let response = client.finish().await;
    field.join(ask.clone(), &first, response).await;
    // Two at once, answered in their order.
    let (second, third) = (field.tag(), field.tag());
    field.admit(2);
    client.send(ask.request(&second) + &ask.request(&third)).await;
    for tag in [second, third] {
        let response = client.finish().await;
        let one = field.join(ask.clone(), &tag, response).await;
        one.assert_untouched(End::Clean);
    }
    drop(client);
    field.finish().await;
}
