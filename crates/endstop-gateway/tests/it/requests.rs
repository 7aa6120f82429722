//! Rows 36 to 38, and the two old ways to abort: requests that are slow, too large, ambiguous or
//! hostile.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use endstop_gateway::config::Mode;
use endstop_sim::{Reply, ReplyEnd};

use crate::client::{self, Client, End, Response};
use crate::ledger::{Ask, EVER, Field};

const SHORT: Duration = Duration::from_millis(300);

fn assert_refused(response: &Response, status: u16, label: &str) {
    assert_eq!(response.status, status, "{label}: {response:?}");
    let text = response.text();
    assert!(text.is_empty() || text.contains("endstop"), "{label}: {text}");
}

/// Nothing of this reached the upstream, and nothing was told.
fn assert_unseen(field: &Field, label: &str) {
    let seen = field.sim.ledger();
    assert!(seen.is_empty(), "{label}: {seen:?}");
    assert!(field.told().is_empty(), "{label}: {:?}", field.told());
}

/// After an answer the connection is closed.
async fn assert_closed(client: &mut Client, label: &str) {
    let after = client.finish().await;
    assert_eq!(after.status, 0, "{label}: a second answer {after:?}");
    assert!([End::Short, End::Reset].contains(&after.end), "{label}: {after:?}");
}

#[tokio::test]
async fn row_36_a_head_that_never_ends() {
    let field = Field::with(|config| config.limits.client_read = SHORT).await;
    for start in ["P", "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        let mut client = Client::connect(field.address).await;
        client.send(start).await;
        let response = client.finish().await;
        assert_refused(&response, 408, start);
        assert_closed(&mut client, start).await;
    }
    // A byte now and then does not buy more time.
    let mut client = Client::connect(field.address).await;
    let drip = async {
        loop {
            client.send("x").await;
            tokio::select! {
                response = client.head() => break response,
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    };
    let response = tokio::time::timeout(EVER, drip).await.expect("a byte now and then buys time");
    assert_refused(&response, 408, "dripping");
    assert_unseen(&field, "slow heads");
    field.finish().await;
}

#[tokio::test]
async fn row_36_a_connection_that_asks_nothing() {
    let field = Field::with(|config| config.limits.keep_alive = SHORT).await;
    let mut client = Client::connect(field.address).await;
    let response = client.finish().await;
    assert_eq!((response.status, response.end), (0, End::Short));
    // The same after an answer.
    let ask = Ask::new("openai-chat", "complete", Mode::Guard);
    let tag = field.tag();
    let mut client = crate::ledger::begin(&field, &ask, &tag).await;
    let first = client.finish().await;
    assert_eq!(first.status, 200);
    let response = client.finish().await;
    assert_eq!((response.status, response.end), (0, End::Short));
    field.finish().await;
}

#[tokio::test]
async fn row_36_heads_that_are_too_large() {
    let field = Field::start().await;
    let start = "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
    let long = format!("{start}x-long: {}\r\n\r\n", "x".repeat(80 << 10));
    let endless = format!("{start}x-long: {}", "x".repeat(1 << 20));
    let many: String = (0..101).map(|n| format!("x-{n}: 1\r\n")).collect();
    let many = format!("{start}{many}\r\n");
    let target = format!("POST /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(1 << 20));
    for (label, head) in [("long", long), ("endless", endless), ("many", many), ("path", target)] {
        let mut client = Client::connect(field.address).await;
        client.send(head).await;
        let response = client.finish().await;
        // A reset may overtake the answer when not everything was read.
        if response.end != End::Reset {
            assert!([414, 431].contains(&response.status), "{label}: {response:?}");
        }
    }
    let fits: String = (0..60).map(|n| format!("x-{n}: 1\r\n")).collect();
    let fits = format!("{start}{fits}x-endstop-mode: nonsense\r\ncontent-length: 0\r\n\r\n");
    assert_refused(&client::ask(field.address, fits).await, 400, "fits");
    assert_unseen(&field, "large heads");
    field.finish().await;
}

#[tokio::test]
async fn row_36_heads_of_http_2_with_too_many_fields() {
    let field = Field::start().await;
    let mut sender = client::connect_http2(field.address).await;
    let fields = |count: usize| -> Vec<(String, String)> {
        (0..count).map(|n| (format!("x-{n}"), "1".to_owned())).collect()
    };
    let path = "/openai/v1/chat/completions";
    let (many, _) = client::ask_http2(&mut sender, field.address, path, &fields(101), "{}").await;
    assert_refused(&many, 431, "many");
    assert!(many.text().contains("head_fields"), "{}", many.text());
    let mut fits = fields(60);
    fits.push(("x-endstop-mode".to_owned(), "nonsense".to_owned()));
    let (fits, _) = client::ask_http2(&mut sender, field.address, path, &fits, "{}").await;
    assert_refused(&fits, 400, "fits");
    assert_unseen(&field, "many fields");
    drop(sender);
    field.finish().await;
}

#[tokio::test]
async fn row_36_bodies_that_are_too_large_or_too_slow() {
    let field = Field::with(|config| config.limits.body_bytes = 100_000).await;
    let head = "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
    // Said to be too large.
    let mut client = Client::connect(field.address).await;
    client.send(format!("{head}content-length: 100001\r\n\r\n")).await;
    assert_refused(&client.finish().await, 413, "length");
    // Found to be too large.
    let mut client = Client::connect(field.address).await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    client.send(format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}{chunk}{chunk}")).await;
    let response = client.finish().await;
    if response.end != End::Reset {
        assert_refused(&response, 413, "chunks");
    }
    assert_unseen(&field, "bodies");
    field.finish().await;
    // Too slow.
    let field = Field::with(|config| config.limits.client_read = SHORT).await;
    for framing in ["content-length: 100", "transfer-encoding: chunked"] {
        let mut client = Client::connect(field.address).await;
        client.send(format!("{head}{framing}\r\n\r\n1")).await;
        assert_refused(&client.finish().await, 408, framing);
    }
    // Given up.
    let mut client = Client::connect(field.address).await;
    client.send(format!("{head}content-length: 100\r\n\r\n{{")).await;
    drop(client);
    assert_unseen(&field, "bodies");
    field.finish().await;
}

#[tokio::test]
async fn row_36_too_many_connections() {
    let field = Field::with(|config| config.limits.connections = 3).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(Client::connect(field.address).await);
    }
    let what = "three are connected";
    let three = || (field.handle.connections() == 3).then_some(());
    crate::ledger::eventually(what, three).await;
    let mut client = Client::connect(field.address).await;
    let response = client.finish().await;
    assert_refused(&response, 503, "one more");
    assert_eq!(response.header("retry-after"), "1");
    drop(waiting);
    field.finish().await;
}

/// Requests that two readers could read in two ways. Each hides another request, `/openai/hidden`.
fn smuggling() -> Vec<(&'static str, String)> {
    let start = "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
    let hidden = "GET /openai/v1/hidden HTTP/1.1\r\nhost: x\r\n\r\n";
    let chunked = format!("0\r\n\r\n{hidden}");
    let sized = |headers: &str| format!("{start}{headers}\r\n\r\n{chunked}");
    let length = chunked.len();
    vec![
        ("CL.TE", sized(&format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"))),
        ("TE.CL", sized("Transfer-Encoding: chunked\r\nContent-Length: 4")),
        ("TE.CL in capitals", sized("TRANSFER-ENCODING: chunked\r\nCONTENT-LENGTH: 4")),
        ("two lengths", sized(&format!("Content-Length: 0\r\nContent-Length: {length}"))),
        ("the same length twice", sized("Content-Length: 5\r\nContent-Length: 5")),
        ("a list of lengths", sized("Content-Length: 5, 5")),
        ("two different lengths in a list", sized("Content-Length: 0, 5")),
        ("a length with a sign", sized("Content-Length: +5")),
        ("a length in hex", sized("Content-Length: 0x5")),
        ("a negative length", sized("Content-Length: -5")),
        ("an empty length", sized("Content-Length: ")),
        ("two codings", sized("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity")),
        ("chunked twice", sized("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked")),
        ("not chunked last", sized("Transfer-Encoding: chunked, identity")),
        ("xchunked", sized("Transfer-Encoding: xchunked")),
        ("chunked with a tab", sized("Transfer-Encoding: \u{b}chunked")),
        ("gzip", sized("Transfer-Encoding: gzip")),
        ("space before the colon", sized("Transfer-Encoding : chunked")),
        ("tab before the colon", sized("Content-Length\t: 5")),
        ("a folded line", sized("X-Folded: 1\r\n Transfer-Encoding: chunked")),
        ("a folded coding", sized("Transfer-Encoding:\r\n chunked")),
        ("a bare CR", sized("X-Bare: 1\rTransfer-Encoding: chunked")),
        ("NUL in a value", sized("X-Nul: a\0b")),
        ("a line without a colon", sized("Transfer-Encoding chunked")),
        ("a space before a name", sized("X: 1\r\n\u{20}Content-Length: 5")),
        ("a name in quotes", sized("\"Transfer-Encoding\": chunked")),
        (
            "HTTP/1.0 with a coding",
            format!(
                "POST /openai/v1/chat/completions HTTP/1.0\r\nhost: x\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{chunked}"
            ),
        ),
        (
            "HTTP/1.0 with a coding, kept",
            format!(
                "POST /openai/v1/chat/completions HTTP/1.0\r\nhost: x\r\nConnection: keep-alive\r\n\
                 Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n{chunked}"
            ),
        ),
        (
            "a chunk's size too large",
            format!("{start}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{hidden}"),
        ),
        (
            "a chunk's size that is none",
            format!("{start}Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n{hidden}"),
        ),
        (
            "a chunk longer than its size",
            format!("{start}Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "bare LF after a chunk's size",
            format!("{start}Transfer-Encoding: chunked\r\n\r\n0\n\n{hidden}"),
        ),
        (
            "bare line feeds",
            format!(
                "POST /openai/v1/chat/completions HTTP/1.1\nhost: x\nTransfer-Encoding: chunked\n\
                 Content-Length: 4\n\n{chunked}"
            ),
        ),
        ("a bare line feed", sized("X: 1\nTransfer-Encoding: chunked")),
        ("another version", format!("POST / HTTP/9.9\r\nhost: x\r\n\r\n{hidden}")),
        ("no version", format!("POST /openai/v1/chat/completions\r\n\r\n{hidden}")),
    ]
}

#[tokio::test]
async fn row_37_requests_that_can_be_read_in_two_ways() {
    for (label, request) in smuggling() {
        let field = Field::start().await;
        // At once, and byte for byte.
        for step in [request.len(), 7] {
            let mut client = Client::connect(field.address).await;
            for piece in request.as_bytes().chunks(step) {
                client.send(piece).await;
                if step < request.len() {
                    tokio::task::yield_now().await;
                }
            }
            let response = client.finish().await;
            assert_eq!(response.status, 400, "{label}: {response:?}");
            assert_closed(&mut client, label).await;
            assert_unseen(&field, label);
        }
        field.finish().await;
    }
}

#[tokio::test]
async fn row_37_nothing_is_hidden_behind_a_request_that_is_well() {
    // What follows a chunked request on its connection is not read, or refused.
    let field = Field::start().await;
    let hidden = "GET /openai/v1/hidden HTTP/1.1\r\nhost: x\r\n\r\n";
    let body = Ask::new("openai-chat", "complete", Mode::Guard).body;
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let head = "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-sim-scenario: empty\r\n";
    field.admit(1);
    let mut client = Client::connect(field.address).await;
    client.send(format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}{hidden}")).await;
    let response = client.finish().await;
    assert_eq!((response.status, response.end), (200, End::Clean));
    let after = client.finish().await;
    assert!([0, 400].contains(&after.status), "{after:?}");
    let seen = field.sim.ledger();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].header("transfer-encoding"), None);
    assert_eq!(seen[0].request, body.as_bytes());
    field.finish().await;
}

#[tokio::test]
async fn row_37_an_ambiguous_request_behind_another_one() {
    // The first is well; the second, on the same connection, is not.
    for (label, request) in smuggling().into_iter().filter(|(label, _)| label.contains("TE")) {
        for apart in [false, true] {
            let field = Field::start().await;
            let ask = Ask::new("openai-chat", "empty", Mode::Guard);
            let tag = field.tag();
            field.admit(1);
            let mut client = Client::connect(field.address).await;
            let first = ask.request(&tag);
            let response = if apart {
                client.send(&first).await;
                let response = client.finish().await;
                client.send(&request).await;
                response
            } else {
                client.send(format!("{first}{request}")).await;
                client.finish().await
            };
            assert_eq!((response.status, response.end), (200, End::Clean), "{label}");
            let second = client.finish().await;
            assert!([0, 400].contains(&second.status), "{label} {apart}: {second:?}");
            if second.status == 400 {
                assert_closed(&mut client, label).await;
            }
            assert_eq!(field.sim.ledger().len(), 1, "{label}: {:?}", field.sim.ledger());
            field.finish().await;
        }
    }
}

#[tokio::test]
async fn row_37_upgrades_are_not_passed_on() {
    let field = Field::start().await;
    let hidden = "GET /openai/v1/hidden HTTP/1.1\r\nhost: x\r\n\r\n";
    for upgrade in ["websocket", "h2c, websocket", "TLS/1.0"] {
        let request = format!(
            "GET /openai/v1/realtime HTTP/1.1\r\nhost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n{hidden}"
        );
        let mut client = Client::connect(field.address).await;
        client.send(request).await;
        let response = client.finish().await;
        assert_refused(&response, 426, upgrade);
        assert_eq!(response.header("upgrade"), "HTTP/1.1", "{response:?}");
        assert_closed(&mut client, upgrade).await;
        assert_unseen(&field, upgrade);
    }
    let request = "CONNECT openai:443 HTTP/1.1\r\nhost: openai:443\r\n\r\n";
    let response = client::ask(field.address, request).await;
    assert_refused(&response, 405, "CONNECT");
    assert!(response.header("allow").contains("POST"), "{response:?}");
    let response = client::ask(field.admin, request).await;
    assert_eq!(response.status, 405, "{response:?}");
    field.finish().await;
}

/// A response is not over when the protocol has all of it, but when it has left.
#[tokio::test]
async fn a_large_response_to_a_chunked_request_reaches_a_slow_client_whole() {
    let field = Field::start().await;
    let text = "x".repeat(7 << 20);
    let body = format!(
        "{{\"choices\":[{{\"message\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}]}}"
    );
    let size = body.len();
    field.sim.replay(
        "large",
        Reply {
            status: 200,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: vec![body.into_bytes()],
            sized: true,
            end: ReplyEnd::Whole,
        },
    );
    let asked = r#"{"model":"large","messages":[]}"#;
    let request = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-sim-replay: large\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{asked}\r\n0\r\n\r\n",
        asked.len()
    );
    field.admit(1);
    // The kernel must not take in all of it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(field.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut received, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while let read @ 1.. = stream.read(&mut buffer).await.unwrap_or(0) {
        received.extend_from_slice(&buffer[..read]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let head = memchr::memmem::find(&received, b"\r\n\r\n").unwrap() + 4;
    assert_eq!(received.len() - head, size);
    field.finish().await;
}

/// Java's client offers HTTP/2 on every new connection without TLS.
#[tokio::test]
async fn an_offer_of_http_2_is_ignored() {
    let field = Field::start().await;
    let body = r#"{"model":"complete","messages":[]}"#;
    let request = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    field.admit(1);
    let response = client::ask(field.address, &request).await;
    assert_eq!((response.status, response.header("upgrade")), (200, ""), "{response:?}");
    let ledger = field.sim.ledger();
    let names: Vec<&str> = ledger[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert!(!names.contains(&"upgrade") && !names.contains(&"http2-settings"), "{names:?}");
    field.finish().await;
}

#[tokio::test]
async fn row_38_line_ends_in_words_split_no_header() {
    let field = Field::start().await;
    let evil = "stop\\r\\nset-cookie: evil=1\\r\\n\\r\\n<script>\\u0000\\u001b[31m";
    for (wire, body) in [
        (
            "openai-chat",
            format!(
                r#"{{"id":"{evil}","object":"chat.completion","model":"{evil}","choices":[{{"index":0,"message":{{"role":"assistant","content":"x"}},"finish_reason":"{evil}"}}]}}"#
            ),
        ),
        (
            "anthropic",
            format!(
                r#"{{"id":"{evil}","type":"message","model":"{evil}","content":[{{"type":"text","text":"x"}}],"stop_reason":"{evil}"}}"#
            ),
        ),
    ] {
        let kind = "application/json".to_owned();
        field.sim.replay(
            wire,
            Reply {
                status: 200,
                headers: vec![("content-type".to_owned(), kind)],
                body: vec![body.into_bytes()],
                sized: true,
                end: ReplyEnd::Whole,
            },
        );
        for mode in [Mode::Observe, Mode::Guard] {
            let ask = Ask::new(wire, "complete", mode).replay(wire, false);
            let plain = ask.body.replace("true", "false");
            let one = field.ask(Ask { streamed: false, body: plain, ..ask }).await;
            one.assert_untouched(End::Clean);
            let native = one.response.header("x-endstop-native");
            assert!(native.starts_with("stop"), "{native:?}");
            assert!(!native.contains(|c: char| c.is_control()), "{native:?}");
            assert_eq!(one.response.header("set-cookie"), "");
            let told = serde_json::to_string(&*one.record).unwrap();
            assert!(!told.contains('\r') && !told.contains('\u{1b}'), "{told}");
            let model = one.record.ending.model.as_deref().unwrap();
            assert!(!model.contains(|c: char| c.is_control()), "{model:?}");
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_38_line_ends_in_what_is_asked() {
    let field = Field::start().await;
    let evil = "gpt\\r\\nset-cookie: evil=1\\r\\n\\u0000\\u001b[31m";
    let ask = Ask::new("openai-chat", "cut-before-word", Mode::Guard);
    let body = ask.body.replace("some-model", evil);
    let one = field.ask(Ask { body, ..ask }).await;
    one.assert_told();
    let model = one.record.ending.model.as_deref().unwrap();
    assert!(!model.contains(|c: char| c.is_control()), "{model:?}");
    assert_eq!(one.response.header("set-cookie"), "");
    // In the path of a model, encoded.
    for path in [
        "/gemini/v1beta/models/a%0d%0aset-cookie:%20evil=1:generateContent",
        "/bedrock/us-east-1/model/a%0d%0ab%00/converse",
        "/openai/v1/%0d%0aset-cookie:%20evil=1",
        "/%0d%0aset-cookie:%20evil=1/v1",
    ] {
        let ask = Ask::new("gemini", "complete", Mode::Guard);
        let request = client::request(path, &ask.all_headers("path"), "{}");
        let response = client::ask(field.address, request).await;
        assert_eq!(response.header("set-cookie"), "", "{path}: {response:?}");
        assert_refused(&response, 400, path);
    }
    for record in field.told() {
        assert!(!record.kept.path.contains(|c: char| c.is_control()), "{:?}", record.kept.path);
    }
    field.finish().await;
}

#[tokio::test]
async fn a_guarded_failure_of_http_1_0_ends_with_a_reset() {
    let field = Field::start().await;
    // The pieces of a call have left, so that an abort must follow the error.
    for scenario in ["cut-in-tool-call", "complete"] {
        let ask = Ask::new("openai-chat", scenario, Mode::Guard);
        let tag = field.tag();
        field.admit(1);
        let request = ask.request(&tag).replacen("HTTP/1.1", "HTTP/1.0", 1);
        let response = client::ask(field.address, request).await;
        assert_eq!(response.header("transfer-encoding"), "");
        let one = field.join(ask, &tag, response).await;
        if scenario == "complete" {
            one.assert_untouched(End::Clean);
        } else {
            one.assert_told();
            assert_eq!(one.response.end, End::Reset);
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn a_guarded_failure_of_http_2_ends_with_a_reset_of_its_stream() {
    let field = Field::start().await;
    let mut sender = client::connect_http2(field.address).await;
    for wire in ["openai-chat", "openai-responses", "anthropic", "cohere"] {
        for scenario in ["cut-in-tool-call", "reset-in-tool-call", "complete"] {
            let ask = Ask::new(wire, scenario, Mode::Guard);
            let tag = field.tag();
            field.admit(1);
            let headers = ask.all_headers(&tag);
            let (response, error) =
                client::ask_http2(&mut sender, field.address, &ask.path, &headers, &ask.body).await;
            let one = field.join(ask, &tag, response).await;
            if scenario == "complete" {
                one.assert_untouched(End::Clean);
            } else {
                one.assert_told();
                let error = error.unwrap();
                assert!(error.contains("INTERNAL_ERROR"), "{error}");
            }
        }
    }
    drop(sender);
    field.finish().await;
}

#[tokio::test]
async fn a_client_of_http_2_may_wait_longer_than_a_head_may_take() {
    let field = Field::with(|config| {
        config.limits.client_read = Duration::from_millis(200);
        config.limits.keep_alive = Duration::from_millis(200);
    })
    .await;
    let mut sender = client::connect_http2(field.address).await;
    for scenario in ["slow=100", "complete"] {
        let ask = Ask::new("openai-chat", scenario, Mode::Guard);
        let tag = field.tag();
        field.admit(1);
        let headers = ask.all_headers(&tag);
        let (response, error) =
            client::ask_http2(&mut sender, field.address, &ask.path, &headers, &ask.body).await;
        assert_eq!(error, None, "{scenario}");
        let one = field.join(ask, &tag, response).await;
        one.assert_untouched(End::Clean);
    }
    drop(sender);
    field.finish().await;
}

#[tokio::test]
async fn upstreams_of_http_2_keep_the_invariants() {
    let field = Field::with(|config| {
        config.limits.idle = Duration::from_secs(5);
        for upstream in config.upstreams.values_mut() {
            upstream.h2c = true;
        }
    })
    .await;
    for scenario in ["complete", "cut-before-word", "reset-before-word", "stall", "error-late"] {
        let all = field.row(scenario).await;
        for one in all.iter().filter(|one| one.ask.streamed) {
            assert_eq!(one.sent.http, 2);
            let want = one.ask.want().unwrap();
            assert_eq!(one.record.ending.reason, want.reason, "{}", one.label());
            let loud = one.is_guarded() && scenario != "complete";
            if loud {
                one.assert_loud();
            }
        }
    }
    field.finish().await;
}
