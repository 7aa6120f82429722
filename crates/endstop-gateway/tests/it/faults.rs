//! Rows 1 to 30: what goes wrong at the upstream, or between it and the gateway.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use endstop::{Closed, Confidence, FaultKind, Reason};
use endstop_gateway::config::Mode;
use endstop_gateway::guard::{Guard, Next};
use endstop_gateway::watch::GuardAction;
use endstop_sim::{Options, Reply, ReplyEnd, Sim, wire};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::{self, End};
use crate::ledger::{Ask, Exchange, Field, STRICT, begin, config, eventually, every, paths};

const SHORT: Duration = Duration::from_millis(300);
const BOTH: [Mode; 2] = [Mode::Observe, Mode::Guard];

/// What never reached a provider: an error in the wire's own shape, and what was told of it.
async fn unanswered(field: &Arc<Field>, status: u16, cause: &str) {
    let mut asked = 0;
    for wire in wire::ALL.iter().copied() {
        for streamed in [true, false] {
            let path = paths(wire, streamed).remove(0);
            let ask = Ask::new(wire.id, "complete", Mode::Guard);
            let ask = Ask { path, streamed, ..ask };
            field.admit(1);
            asked += 1;
            let response = client::ask(field.address, ask.request("none")).await;
            let label = format!("{} {response:?}", wire.id);
            assert_eq!((response.status, response.end), (status, End::Clean), "{label}");
            let record = field.record(response.id()).await;
            assert_eq!(
                (&*record.kept.cause, record.action),
                (cause, GuardAction::Refused),
                "{label}"
            );
            assert_eq!(response.header("x-endstop-action"), "refused");
            assert_in_dialect(&ask, &response.body);
        }
    }
    assert_eq!(field.told().len(), asked);
}

/// The body is an error of this wire: it has the keys that our own errors have there.
fn assert_in_dialect(ask: &Ask, body: &[u8]) {
    let gateway_error = endstop::dialect::GatewayError {
        status: 502,
        code: "x",
        message: "x",
        ..Default::default()
    };
    let keys = |body: &[u8]| -> Vec<String> {
        let value: serde_json::Value = serde_json::from_slice(body).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(body), keys(&ask.profile().error_body(&gateway_error)), "{}", ask.wire.id);
    assert!(String::from_utf8_lossy(body).contains("endstop: "));
}

/// A row whose response is made loud in guard and left alone in observe.
fn assert_made_loud(all: &[Exchange], end: impl Fn(&Exchange) -> End) {
    for one in all {
        if one.is_guarded() {
            one.assert_told();
        } else {
            one.assert_untouched(end(one));
        }
    }
}

/// A row that is left alone in both modes.
fn assert_left_alone(all: &[Exchange]) {
    for one in all {
        one.assert_untouched(End::Clean);
    }
}

/// Rows of the simulator say what is told.
fn assert_as_wanted(all: &[Exchange]) {
    for one in all {
        let Some(want) = one.ask.want() else { continue };
        assert_eq!(one.record.ending.reason, want.reason, "{}", one.label());
    }
}

#[tokio::test]
async fn row_01_connection_refused() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let upstreams = config(&format!("http://{address}")).upstreams;
    let field = Field::with(|config| config.upstreams = upstreams).await;
    unanswered(&field, 502, "upstream_unreachable").await;
    assert!(field.told().iter().all(|told| told.ending.closed.word() == "unreachable_refused"));
    field.finish().await;
}

#[tokio::test]
async fn row_02_connection_never_accepted() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(1).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut filling = Vec::new();
    loop {
        let connecting = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_secs(2), connecting).await {
            Ok(connected) => filling.push(connected.unwrap()),
            Err(_) => break,
        }
        assert!(filling.len() < 100, "the backlog does not fill");
    }
    let upstreams = config(&format!("http://{address}")).upstreams;
    let field = Field::with(|config| {
        config.upstreams = upstreams;
        config.limits.connect = Duration::from_millis(100);
        config.limits.tls = Duration::from_millis(100);
    })
    .await;
    unanswered(&field, 504, "connect_timeout").await;
    field.finish().await;
}

#[tokio::test]
async fn row_03_a_name_that_does_not_resolve() {
    // Too long a label for any name: no server needs to be asked.
    let upstreams = config(&format!("http://{}.invalid", "a".repeat(64))).upstreams;
    let field = Field::with(|config| config.upstreams = upstreams).await;
    unanswered(&field, 502, "dns_error").await;
    field.finish().await;
}

#[tokio::test]
async fn row_03_an_address_that_is_blocked() {
    // As a literal, as one of IPv6, and as a number, which is a name until it is resolved.
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]", "2852039166"] {
        let upstreams = config(&format!("http://{host}")).upstreams;
        let field = Field::with(|config| {
            config.upstreams = upstreams;
            config.limits.connect = Duration::from_secs(1);
            config.limits.tls = Duration::from_secs(1);
        })
        .await;
        unanswered(&field, 502, "blocked_target").await;
        field.finish().await;
    }
}

/// A server with this certificate; it counts the bytes that it was sent after the handshake.
async fn tls_server(
    certificate: &rcgen::Certificate,
    key: &rcgen::KeyPair,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let chain = vec![certificate.der().clone()];
    let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, counted) = (acceptor.clone(), counted.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = vec![0; 64 << 10];
                let Ok(size) = stream.read(&mut buffer).await else { return };
                counted.fetch_add(size, Ordering::SeqCst);
                let body = r#"{"error":{"message":"taken"}}"#;
                let head = "HTTP/1.1 429 No\r\nconnection: close\r\ncontent-type: application/json";
                let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (address, seen)
}

fn certificate(name: &str, expired: bool) -> (rcgen::Certificate, rcgen::KeyPair) {
    let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    if expired {
        parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2002, 1, 1);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    (parameters.self_signed(&key).unwrap(), key)
}

/// A file for a test, which is gone after it.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("endstop-it-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn row_04_a_wrong_certificate() {
    for (case, name, expired, trusted) in [
        ("unknown", "localhost", false, false),
        ("expired", "localhost", true, true),
        ("other-name", "elsewhere.example", false, true),
    ] {
        let (certificate, key) = certificate(name, expired);
        let (address, seen) = tls_server(&certificate, &key).await;
        let file = File::new(case, &certificate.pem());
        let upstreams = config(&format!("https://localhost:{}", address.port())).upstreams;
        let field = Field::with(|config| {
            config.upstreams = upstreams;
            config.extra_ca = trusted.then(|| file.0.clone());
        })
        .await;
        unanswered(&field, 502, "tls_error").await;
        assert_eq!(seen.load(Ordering::SeqCst), 0, "{case}: the request was sent all the same");
        field.finish().await;
    }
}

#[tokio::test]
async fn row_04_a_certificate_of_ones_own() {
    let (certificate, key) = certificate("localhost", false);
    let (address, seen) = tls_server(&certificate, &key).await;
    let file = File::new("own", &certificate.pem());
    let upstreams = config(&format!("https://localhost:{}", address.port())).upstreams;
    let field = Field::with(|config| {
        config.upstreams = upstreams;
        config.extra_ca = Some(file.0.clone());
    })
    .await;
    field.admit(1);
    let ask = Ask::new("openai-chat", "complete", Mode::Guard);
    let response = client::ask(field.address, ask.request("none")).await;
    assert_eq!((response.status, &*response.text()), (429, r#"{"error":{"message":"taken"}}"#));
    assert!(seen.load(Ordering::SeqCst) > 0);
    field.finish().await;
}

#[tokio::test]
async fn row_05_no_head_in_time() {
    let field = Field::with(|config| config.limits.first_byte = SHORT).await;
    for one in field.row("no-headers").await {
        assert_eq!((one.response.status, one.response.end), (504, End::Clean), "{}", one.label());
        assert_eq!(one.record.kept.cause, "first_byte_timeout", "{}", one.label());
        assert!(one.response.interim.is_empty(), "{}", one.label());
        assert_in_dialect(&one.ask, &one.response.body);
    }
    field.finish().await;
}

#[tokio::test]
async fn row_06_silence_before_any_word() {
    let field = Field::with(|config| config.limits.idle = SHORT).await;
    for scenario in ["stall", "stall-in-tool-call"] {
        let all = field.row(scenario).await;
        assert_made_loud(&all, |_| End::Short);
        assert_as_wanted(&all);
        for one in &all {
            assert_eq!(one.record.kept.cause, "stalled", "{}", one.label());
            assert!(!one.response.text().contains(": endstop\n"), "no heartbeat was asked for");
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_06_silence_from_the_head_on() {
    let field = Field::with(|config| config.limits.idle = SHORT).await;
    let head = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    field.sim.replay(
        "silent",
        Reply { status: 200, headers: head, body: Vec::new(), sized: false, end: ReplyEnd::Stall },
    );
    for mode in BOTH {
        let ask = Ask::new("openai-chat", "stall", mode).replay("silent", false);
        let one = field.ask(ask).await;
        assert_eq!(one.record.kept.cause, "stalled");
        match mode {
            Mode::Guard => one.assert_told(),
            Mode::Observe => one.assert_untouched(End::Short),
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_06_silence_after_the_word_is_a_whole_answer() {
    // Time enough for the word to arrive on a machine that is busy.
    let field = Field::with(|config| config.limits.idle = Duration::from_secs(5)).await;
    let all = field.row("stall-after-word").await;
    let (arrays, others): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.ask.is_array());
    for one in others {
        assert_as_wanted(std::slice::from_ref(one));
    }
    for one in arrays {
        // A list that was never closed is not whole, but its answer is.
        assert_eq!(one.record.ending.reason, Reason::TimedOut, "{}", one.label());
    }
    for one in all.iter().filter(|one| one.ask.streamed) {
        assert_eq!(one.record.action, GuardAction::Passed, "{}", one.label());
        assert!(one.record.kept.native_finish_reason.is_some(), "{}", one.label());
        let end = if one.is_guarded() { End::Clean } else { End::Short };
        one.assert_untouched(end);
    }
    field.finish().await;
}

#[tokio::test]
async fn row_06_heartbeats_stand_between_events() {
    let field = Field::with(|config| {
        config.limits.idle = Duration::from_millis(600);
        config.heartbeat = Some(Duration::from_millis(50));
    })
    .await;
    for (wire, mode, beats) in [
        ("openai-chat", Mode::Guard, true),
        ("anthropic", Mode::Guard, true),
        ("openai-chat", Mode::Observe, false),
        ("ollama", Mode::Guard, false),
        ("bedrock-converse", Mode::Guard, false),
    ] {
        let ask = Ask::new(wire, "stall", mode);
        let tag = field.tag();
        field.admit(1);
        let response = client::ask(field.address, ask.request(&tag)).await;
        let text = response.text();
        let found = text.matches(": endstop\n\n").count();
        assert_eq!(found > 0, beats, "{wire} {mode:?}: {found}");
        let sent = field.sent(&tag).await;
        if beats {
            let without = text.replace(": endstop\n\n", "");
            assert!(without.starts_with(&*String::from_utf8_lossy(&sent.body)), "{without}");
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_07_a_byte_now_and_then_for_ever() {
    let options = Options { drip: Duration::from_millis(20), ..Options::default() };
    let field = Field::on(options, |config| config.limits.total = Duration::from_secs(3)).await;
    let all = field.row("drip").await;
    for one in &all {
        assert_eq!(one.record.kept.cause, "total_timeout", "{}", one.label());
        assert!(one.sent.written > 3, "{}", one.label());
        if one.is_guarded() {
            one.assert_told();
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_08_reset_in_the_middle_of_an_event() {
    let field = Field::start().await;
    for scenario in ["reset", "reset-before-word", "reset-in-tool-call"] {
        let all = field.row(scenario).await;
        assert_made_loud(&all, |_| End::Short);
        for one in &all {
            let ending = &one.record.ending;
            assert_eq!(one.record.kept.cause, "upstream_reset", "{}", one.label());
            assert_eq!(ending.closed, Closed::Reset, "{}", one.label());
            assert_eq!(ending.bytes, one.sent.written, "{}", one.label());
            if one.ask.streamed && scenario != "reset-in-tool-call" {
                assert!(ending.events > 0, "{}", one.label());
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_09_a_body_that_is_shorter_than_its_framing() {
    let field = Field::start().await;
    for scenario in ["fin-in-chunk", "short-length"] {
        let all = field.row(scenario).await;
        assert_made_loud(&all, |_| End::Short);
        for one in &all {
            assert_eq!(one.record.kept.cause, "upstream_truncated_transport", "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_10_a_clean_end_without_a_terminal() {
    let field = Field::start().await;
    for scenario in ["cut-before-word", "cut-in-tool-call", "cut-after-args", "empty-body"] {
        let all = field.row(scenario).await;
        let plain = |one: &Exchange| scenario != "empty-body" && !one.ask.streamed;
        assert_made_loud(&all, |one| if plain(one) { End::Short } else { End::Clean });
        for one in &all {
            let streamed = one.ask.streamed || scenario == "empty-body";
            let cause =
                if streamed { "ended_without_terminal" } else { "upstream_truncated_transport" };
            assert_eq!(one.record.kept.cause, cause, "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_11_the_word_without_the_marker() {
    let field = Field::start().await;
    let all = field.row("no-marker").await;
    assert_as_wanted(&all);
    for one in &all {
        let ending = &one.record.ending;
        if one.is_guarded() && ending.reason == Reason::Cut {
            one.assert_told();
        } else {
            one.assert_untouched(End::Clean);
        }
        let missing = ending.closed == Closed::Eof && ending.reason == Reason::Complete;
        assert_eq!(ending.shown.missing_marker, missing, "{}", one.label());
    }
    field.finish().await;
}

#[tokio::test]
async fn row_12_the_marker_without_a_word() {
    let field = Field::start().await;
    let all = field.row("done-without-word").await;
    assert_as_wanted(&all);
    for one in &all {
        // A last event that calls itself done or completed is a word of a kind, and never a sure one.
        let ending = &one.record.ending;
        let sure = ending.reason.is_success() && ending.confidence == Confidence::High;
        assert!(!sure, "{}", one.label());
        let cut = one.record.ending.reason == Reason::Cut;
        if cut && one.is_guarded() { one.assert_told() } else { one.assert_untouched(End::Clean) }
    }
    let all = field.row("done-without-word-tool-call").await;
    assert_as_wanted(&all);
    assert_made_loud(&all, |_| End::Clean);
    field.finish().await;
}

#[tokio::test]
async fn row_12_a_call_with_a_word_that_nobody_knows() {
    let field = Field::start().await;
    for scenario in ["unknown-word-tool-call", "word-tool-call=weird", "length-half-args"] {
        let all = field.row(scenario).await;
        assert_as_wanted(&all);
        assert_made_loud(&all, |_| End::Clean);
        for one in all.iter().filter(|one| one.is_guarded() && !one.ask.streamed) {
            assert_eq!(one.response.status, 400, "{}", one.label());
            assert_eq!(one.response.header("x-should-retry"), "false", "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_13_something_after_the_terminal() {
    let field = Field::start().await;
    for scenario in ["error-after-end", "text-after-word", "word-twice", "null-after-word"] {
        let all = field.row(scenario).await;
        for one in &all {
            if one.record.ending.reason == Reason::Failed {
                // Only the end of the bytes proves the end here, and it had not come.
                assert!(["gemini", "bedrock-invoke"].contains(&one.ask.wire.id), "{}", one.label());
                continue;
            }
            one.assert_untouched(End::Clean);
            let late = scenario == "error-after-end" && one.ask.streamed;
            assert_eq!(one.record.ending.shown.late_event, late, "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_14_an_error_for_a_body_with_status_200() {
    let field = Field::start().await;
    let all = field.row("json-error-200").await;
    for one in &all {
        if one.ask.want().unwrap().reason == Reason::Failed {
            assert_eq!(one.record.kept.cause, "upstream_error", "{}", one.label());
        }
        let failed = one.record.ending.reason == Reason::Failed;
        if failed && one.is_guarded() {
            one.assert_loud();
            // An array or a line may be the stream that was asked for, so that its head leaves.
            let fault = one.record.ending.fault.as_ref().unwrap();
            let named = fault.status.filter(|status| *status >= 400);
            let kind = named.unwrap_or_else(|| fault.kind.status());
            let status = if one.is_streamed() { 200 } else { kind };
            assert_eq!(one.response.status, status, "{}", one.label());
        } else {
            one.assert_untouched(End::Clean);
        }
        assert!(one.response.body == one.sent.body, "{}", one.label());
        let type_ = one.response.header("content-type");
        assert!(type_.starts_with("application/json"), "{}", one.label());
    }
    field.finish().await;
}

#[tokio::test]
async fn row_15_an_error_in_the_stream() {
    let field = Field::start().await;
    for scenario in ["error-early", "error-late", "error-then-done", "error-bare"] {
        let all = field.row(scenario).await;
        for one in all.iter().filter(|one| one.ask.streamed) {
            let ending = &one.record.ending;
            assert_eq!(ending.reason, Reason::Failed, "{}", one.label());
            assert_eq!(one.record.kept.cause, "upstream_error", "{}", one.label());
            // The provider said it; saying it again would be two errors. Only Responses have an event that
            // ends a failed response, and clients overlook the error without it.
            let lacks_end = one.ask.wire.id == "openai-responses" && ending.said.is_none();
            if lacks_end && one.is_guarded() {
                assert!(one.error_frame().is_some(), "{}", one.label());
                assert!(one.response.body.starts_with(&one.sent.body), "{}", one.label());
                assert!(one.tail().contains("response.failed"), "{}", one.tail());
            } else {
                assert!(one.error_frame().is_none(), "{}", one.label());
                assert!(one.response.body == one.sent.body, "{}: {}", one.label(), one.tail());
            }
            if one.is_guarded() {
                one.assert_loud();
            } else {
                one.assert_untouched(End::Clean);
            }
            let kind = ending.fault.as_ref().unwrap().kind;
            if scenario == "error-early" && ["anthropic", "gemini"].contains(&one.ask.wire.id) {
                assert_eq!(kind, FaultKind::Overloaded, "{}", one.label());
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_16_a_rejection_before_the_stream() {
    let field = Field::start().await;
    for status in [400, 401, 404, 429, 500, 503, 529] {
        for one in field.row(&format!("status={status}")).await {
            one.assert_untouched(End::Clean);
            assert_eq!(one.response.status, status, "{}", one.label());
            assert_eq!(one.response.header("retry-after"), "1", "{}", one.label());
            assert_eq!(one.record.kept.cause, "upstream_rejected", "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_17_a_page_in_place_of_an_answer() {
    let field = Field::start().await;
    for scenario in ["html-200", "html-503"] {
        for one in field.row(scenario).await {
            assert_eq!(one.record.kept.cause, "upstream_bad_payload", "{}", one.label());
            if one.is_guarded() {
                one.assert_told();
                assert_eq!(one.response.status, 502, "{}", one.label());
                assert!(!one.response.text().contains('<'), "{}", one.label());
                assert_in_dialect(&one.ask, &one.response.body);
            } else {
                one.assert_untouched(End::Clean);
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_18_compressed_bodies() {
    let field = Field::start().await;
    for scenario in ["gzip", "deflate", "gzip-unlabelled"] {
        let all = field.row(scenario).await;
        assert_left_alone(&all);
        assert_as_wanted(&all);
        for one in &all {
            let label = one.response.header("content-encoding");
            let want = if scenario == "gzip-unlabelled" { "" } else { scenario };
            assert_eq!(label, want, "{}", one.label());
        }
    }
    // A guarded stream asks for none; everything else asks for what its client asked for.
    for (mode, want) in [(Mode::Guard, "identity"), (Mode::Observe, "gzip, br")] {
        let ask = Ask::new("openai-chat", "complete", mode).header("accept-encoding", "gzip, br");
        let one = field.ask(ask).await;
        assert_eq!(one.sent.header("accept-encoding"), Some(want));
    }
    field.finish().await;
}

#[tokio::test]
async fn row_18_compressed_and_cut() {
    let field = Field::start().await;
    for wire in ["openai-chat", "anthropic", "gemini", "ollama"] {
        let part = field.ask(Ask::new(wire, "cut-before-word", Mode::Observe)).await;
        let kind = part.response.header("content-type").to_owned();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&part.sent.body).unwrap();
        let headers = vec![
            ("content-type".to_owned(), kind),
            ("content-encoding".to_owned(), "gzip".to_owned()),
        ];
        let body = vec![encoder.finish().unwrap()];
        let reply = Reply { status: 200, headers, body, sized: false, end: ReplyEnd::Whole };
        field.sim.replay(wire, reply);
        for mode in BOTH {
            let ask = Ask::new(wire, "complete", mode).replay(wire, false);
            let one = field.ask(ask).await;
            assert_eq!(one.record.kept.cause, "ended_without_terminal", "{}", one.label());
            match mode {
                // No error can be put into what is compressed: the abort alone tells.
                Mode::Guard => {
                    one.assert_loud();
                    assert!(one.error_frame().is_none(), "{}", one.label());
                }
                Mode::Observe => one.assert_untouched(End::Clean),
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_19_a_redirect_is_not_followed() {
    let elsewhere = Sim::start(Options::default()).await.unwrap();
    let field = Field::start().await;
    let location = format!("{}/openai/v1/chat/completions", elsewhere.url());
    for status in [301, 302, 303, 307, 308] {
        field.sim.replay(
            "redirect",
            Reply {
                status,
                headers: vec![("location".to_owned(), location.clone())],
                body: Vec::new(),
                sized: true,
                end: ReplyEnd::Whole,
            },
        );
        for mode in BOTH {
            let ask = Ask::new("openai-chat", "redirect", mode).replay("redirect", false);
            let one = field.ask(ask).await;
            assert_eq!(one.record.kept.cause, "blocked_redirect", "{}", one.label());
            match mode {
                Mode::Guard => {
                    one.assert_told();
                    assert_eq!(one.response.status, 502);
                    assert_eq!(one.response.header("location"), "");
                }
                Mode::Observe => one.assert_untouched(End::Clean),
            }
        }
    }
    for one in field.row("redirect").await {
        assert_eq!(one.record.kept.cause, "blocked_redirect", "{}", one.label());
    }
    assert!(elsewhere.ledger().is_empty(), "the redirect was followed, with the key");
    field.finish().await;
}

#[tokio::test]
async fn row_19_early_hints_are_skipped() {
    let field = Field::start().await;
    let all = field.row("early-hints").await;
    assert_left_alone(&all);
    assert_as_wanted(&all);
    field.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_20_every_cut_of_every_event() {
    let field = Field::start().await;
    for (chunks, scenario) in [("byte", "stop-sequence"), ("joined", "complete")] {
        let request_shape = every(scenario).into_iter();
        let request_shape =
            request_shape.filter(|ask| ask.streamed).map(|ask| ask.header("x-sim-chunks", chunks));
        let all = field.ask_all(request_shape.collect()).await;
        assert_left_alone(&all);
        assert_as_wanted(&all);
    }
    let seeds: Vec<String> = (1..=4).map(|seed| seed.to_string()).collect();
    for scenario in ["tool-call", "cut-in-tool-call", "length", "error-late"] {
        let request_shape = seeds.iter().flat_map(|seed| {
            let request_shape = every(scenario).into_iter().filter(|ask| ask.streamed);
            request_shape.map(|ask| ask.header("x-sim-chunks", "random").header("x-sim-seed", seed))
        });
        let mut lengths = std::collections::HashMap::new();
        for one in field.ask_all(request_shape.collect()).await {
            let reason = one.record.ending.reason;
            assert_eq!(reason, one.ask.want().unwrap().reason, "{}", one.label());
            // However it is cut, the same events leave.
            let length = one.relayed().len();
            let first = *lengths.entry((one.ask.path.clone(), one.is_guarded())).or_insert(length);
            assert_eq!(length, first, "{}", one.label());
        }
    }
    field.finish().await;
}

/// What a guard lets go of a stream that comes in these pieces, and the ending.
fn guarded(ask: &Ask, kind: &str, pieces: [&[u8]; 3]) -> (Vec<u8>, Reason, Option<Vec<u8>>) {
    let profile = ask.profile();
    let head = endstop::Head { status: 200, content_type: kind };
    let asked = endstop::RequestInfo { streamed: Some(true), ..endstop::RequestInfo::default() };
    let reader = endstop::Watcher::new(profile, head, asked);
    let mut guard = Guard::new(reader, *profile, STRICT);
    let mut out = Vec::new();
    for piece in pieces {
        let piece = bytes::Bytes::copy_from_slice(piece);
        let next = guard.push(&piece, &mut |bytes| out.extend_from_slice(&bytes));
        if next == Next::Fail {
            let finish = guard.fail();
            out.extend_from_slice(&finish.rest);
            return (out, finish.ending.reason, finish.frame);
        }
    }
    let finish = guard.finish(endstop::TransportEnd::Eof);
    out.extend_from_slice(&finish.rest);
    (out, finish.ending.reason, finish.frame)
}

#[tokio::test]
async fn row_20_every_pair_of_cuts() {
    let field = Field::start().await;
    for wire in ["openai-chat", "anthropic", "gemini", "bedrock-converse", "ollama", "cohere"] {
        for scenario in ["empty", "done-without-word-tool-call"] {
            let one = field.ask(Ask::new(wire, scenario, Mode::Observe)).await;
            let kind = one.response.header("content-type");
            let all = &one.sent.body;
            let whole = guarded(&one.ask, kind, [all, b"", b""]);
            // Every cut, and as many of the pairs as there is time for.
            let step = (all.len() * all.len() / 500) | 1;
            for first in 0..=all.len() {
                let seconds = (first..=all.len()).step_by(step).chain([all.len()]);
                for second in seconds {
                    let (head, rest) = all.split_at(first);
                    let (middle, tail) = rest.split_at(second - first);
                    let cut = guarded(&one.ask, kind, [head, middle, tail]);
                    assert!(cut == whole, "{wire} {scenario} {first} {second}");
                }
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_21_bytes_that_are_no_text() {
    let field = Field::start().await;
    for scenario in ["utf8-cut", "invalid-utf8"] {
        let all = field.row(scenario).await;
        assert_left_alone(&all);
        assert_as_wanted(&all);
        for one in &all {
            let invalid = scenario == "invalid-utf8";
            assert_eq!(one.record.ending.shown.invalid_utf8, invalid, "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_22_line_ends_marks_and_comments() {
    let field = Field::start().await;
    for scenario in ["crlf", "cr", "bom", "comments", "pings", "keepalive"] {
        let all = field.row(scenario).await;
        assert_left_alone(&all);
        assert_as_wanted(&all);
    }
    field.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_23_an_event_without_an_end() {
    let field = Field::with(|config| {
        config.limits.event_bytes = 1 << 20;
        config.limits.plain_bytes = 1 << 20;
    })
    .await;
    let request_shape = every("no-newline=67108864").into_iter();
    let request_shape: Vec<Ask> =
        request_shape.filter(|ask| ask.streamed && ask.mode == Mode::Guard).collect();
    for ask in request_shape {
        let one = field.ask(ask).await;
        assert_eq!(one.record.kept.cause, "oversize_event", "{}", one.label());
        one.assert_loud();
        assert!(one.sent.written < 16 << 20, "{}: {}", one.label(), one.sent.written);
    }
    field.finish().await;
}

#[tokio::test]
async fn row_23_an_event_that_is_large_and_whole() {
    let field = Field::start().await;
    let all = field.row("huge-event=300000").await;
    assert_left_alone(&all);
    assert_as_wanted(&all);
    field.finish().await;
}

#[tokio::test]
async fn row_24_json_that_is_none() {
    let field = Field::start().await;
    for scenario in ["malformed-json", "deep-json"] {
        let all = field.row(scenario).await;
        for one in all.iter().filter(|one| one.ask.streamed && !one.ask.is_array()) {
            one.assert_untouched(End::Clean);
            assert_eq!(one.record.ending.reason, Reason::Complete, "{}", one.label());
            let malformed = one.record.ending.shown.malformed_event;
            assert!(malformed || scenario == "deep-json", "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_25_words_that_are_none() {
    let field = Field::start().await;
    for scenario in ["empty-word", "unknown-word", "long-word", "array-word", "word=StOp-It"] {
        let all = field.row(scenario).await;
        assert_as_wanted(&all);
        for one in &all {
            let cut = one.record.ending.reason == Reason::Cut && one.is_guarded();
            if cut {
                one.assert_told();
            } else {
                one.assert_untouched(End::Clean);
            }
            let word = one.record.kept.native_finish_reason.as_deref().unwrap_or_default();
            assert!(word.len() < 1000, "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_26_choices_that_end_differently() {
    let field = Field::start().await;
    let all = field.row("choices").await;
    assert_left_alone(&all);
    assert_as_wanted(&all);
    for one in &all {
        let mut reasons: Vec<Reason> =
            one.record.ending.choices.iter().map(|choice| choice.reason).collect();
        reasons.sort_unstable();
        assert_eq!(reasons, [Reason::Complete, Reason::OutputLimit], "{}", one.label());
    }
    field.finish().await;
}

#[tokio::test]
async fn row_27_frames_of_bedrock() {
    let field = Field::start().await;
    for (scenario, cause, ours) in [
        ("bad-crc", "frame_error", true),
        ("truncated-frame", "ended_without_terminal", true),
        ("exception", "upstream_error", false),
        ("huge-prefix", "oversize_event", true),
    ] {
        for one in field.row(scenario).await.into_iter().filter(|one| one.ask.streamed) {
            assert_eq!(one.record.kept.cause, cause, "{}", one.label());
            if !one.is_guarded() {
                one.assert_untouched(End::Clean);
            } else if ours {
                one.assert_told();
            } else {
                one.assert_loud();
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_28_an_array_that_is_cut_and_lines_without_done() {
    let field = Field::start().await;
    for scenario in ["array-cut", "no-done"] {
        let all = field.row(scenario).await;
        for one in all.iter().filter(|one| one.ask.streamed) {
            assert_eq!(one.record.kept.cause, "ended_without_terminal", "{}", one.label());
            if one.is_guarded() { one.assert_told() } else { one.assert_untouched(End::Clean) }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_29_a_natural_word_at_the_cap() {
    let field = Field::start().await;
    let request_shape = every("stop-at-cap").into_iter().map(|ask| ask.capped(7));
    let all = field.ask_all(request_shape.collect()).await;
    assert_left_alone(&all);
    for one in &all {
        assert!(one.record.ending.shown.at_cap, "{}", one.label());
    }
    field.finish().await;
}

#[tokio::test]
async fn row_30_usage_late_missing_or_less() {
    let field = Field::start().await;
    for scenario in ["usage-after", "usage-missing", "usage-decreasing"] {
        let all = field.row(scenario).await;
        assert_left_alone(&all);
        assert_as_wanted(&all);
        for one in &all {
            let reported = one.record.ending.usage.output.is_some();
            assert_eq!(reported, scenario != "usage-missing", "{}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn a_guard_holds_no_whole_frame() {
    let field = Field::start().await;
    for wire in wire::ALL {
        let ask = Ask::new(wire.id, "stall", Mode::Guard);
        let tag = field.tag();
        let mut client = begin(&field, &ask, &tag).await;
        let all = eventually("all was sent", || {
            let sent = field.sim.tagged(&tag)?;
            tail_of_text(&sent.body).then_some(sent.body)
        })
        .await;
        // The upstream is silent and nothing has ended: whatever is whole has left all the same.
        let got = client.until(|response| response.body.len() == all.len()).await;
        assert_eq!(got.end, End::Open, "{}", wire.id);
    }
    field.finish().await;
}

/// Whether the twelfth token has come, after which the simulator falls silent.
fn tail_of_text(body: &[u8]) -> bool {
    body.len() > 1000
}

#[tokio::test]
async fn calls_that_are_held_leave_only_when_they_are_proven() {
    let field = Field::start().await;
    for scenario in ["tool-call", "cut-in-tool-call", "cut-after-args", "length-whole-args"] {
        let request_shape = every(scenario).into_iter().filter(|ask| ask.streamed);
        let request_shape = request_shape.filter(|ask| ask.mode == Mode::Guard);
        let request_shape = request_shape.map(|ask| ask.header("x-endstop-tool-calls", "hold"));
        for one in field.ask_all(request_shape.collect()).await {
            if scenario == "tool-call" {
                one.assert_untouched(End::Clean);
                continue;
            }
            one.assert_told();
            let text = String::from_utf8_lossy(one.relayed()).into_owned();
            assert!(!text.contains("write_file"), "{}: {text}", one.label());
        }
    }
    field.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_on_every_wire_keeps_the_invariants() {
    let names = endstop_sim::scenario::ALL.iter().map(|scenario| scenario.name);
    let request_shape = names.filter(|name| !["drip", "no-headers"].contains(name)).flat_map(every);
    // Only the cap tells that the arguments were cut.
    let at_cap = |ask: &Ask| ask.scenario == "tool-call-at-cap";
    let request_shape = request_shape.map(|ask| if at_cap(&ask) { ask.capped(6) } else { ask });
    let (stalling, others): (Vec<Ask>, Vec<Ask>) =
        request_shape.partition(|ask| ask.scenario.starts_with("stall"));
    assert!(others.len() > 2000, "{}", others.len());
    for (request_shape, idle) in [(stalling, SHORT), (others, Duration::from_secs(30))] {
        let field = Field::with(|config| config.limits.idle = idle).await;
        for one in field.ask_all(request_shape).await {
            let want = one.ask.want().unwrap();
            let known = one.ask.is_array() || one.ask.wire.id == "bedrock-invoke";
            assert!(one.record.ending.reason == want.reason || known, "{}", one.label());
        }
        field.finish().await;
    }
}
