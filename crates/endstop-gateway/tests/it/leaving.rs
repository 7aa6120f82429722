//! Rows 31 to 35: clients that leave, read slowly, or close one side.

use std::time::{Duration, Instant};

use endstop::{Closed, Reason};
use endstop_gateway::config::Mode;
use endstop_gateway::watch::GuardAction;
use endstop_sim::{Options, ResponseEnd};
use tokio::io::AsyncWriteExt as _;

use crate::client::{self, End};
use crate::ledger::{Ask, Field, SOON, assert_left_soon, begin, eventually};

const BOTH: [Mode; 2] = [Mode::Observe, Mode::Guard];

/// One wire of each framing.
const WIRES: [&str; 8] = [
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "bedrock-converse",
    "ollama",
    "mistral",
    "cohere",
];

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// By closing its side with everything read.
    Closed,
    /// By a reset.
    Reset,
}

const WAYS: [Leaves; 2] = [Leaves::Closed, Leaves::Reset];

fn leave(client: client::Client, how: Leaves) -> Instant {
    if matches!(how, Leaves::Reset) {
        socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop(client);
    Instant::now()
}

#[tokio::test]
async fn row_31_the_client_leaves_before_the_head() {
    let field = Field::start().await;
    let mut count = 0;
    for wire in WIRES {
        for (mode, how) in BOTH.into_iter().flat_map(|mode| WAYS.map(|how| (mode, how))) {
            let ask = Ask::new(wire, "no-headers", mode);
            let tag = field.tag();
            let client = begin(&field, &ask, &tag).await;
            field.begun(&tag).await;
            let left = leave(client, how);
            assert_left_soon(&field.sent(&tag).await, left);
            count += 1;
            let told = field.told_all(count).await;
            assert_eq!(told[0].kept.cause, "client_cancelled", "{wire} {mode:?} {how:?}");
            assert_eq!(told[0].ending.reason, Reason::Cancelled, "{wire} {mode:?} {how:?}");
            assert_eq!(told[0].kept.delivered_bytes, 0);
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_31_the_client_leaves_while_it_waits_for_the_first_token() {
    let field = Field::start().await;
    let head = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    field.sim.replay(
        "silent",
        endstop_sim::Reply {
            status: 200,
            headers: head,
            body: Vec::new(),
            sized: false,
            end: endstop_sim::ReplyEnd::Stall,
        },
    );
    let mut count = 0;
    for wire in ["openai-chat", "openai-responses", "anthropic", "gemini", "mistral", "cohere"] {
        for (mode, how) in BOTH.into_iter().flat_map(|mode| WAYS.map(|how| (mode, how))) {
            let ask = Ask::new(wire, "complete", mode).replay("silent", false);
            let tag = field.tag();
            let mut client = begin(&field, &ask, &tag).await;
            let head = client.head().await;
            assert_eq!(head.status, 200);
            let left = leave(client, how);
            assert_left_soon(&field.sent(&tag).await, left);
            count += 1;
            let told = field.told_all(count).await;
            assert_eq!(told[0].kept.cause, "client_cancelled", "{wire} {mode:?} {how:?}");
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_31_the_client_leaves_while_a_plain_answer_is_made() {
    let field = Field::start().await;
    for (number, how) in WAYS.into_iter().enumerate() {
        let ask = Ask::new("openai-chat", "stall", Mode::Guard);
        let body = ask.body.replace("true", "false");
        let ask = Ask { body, streamed: false, ..ask };
        let tag = field.tag();
        let client = begin(&field, &ask, &tag).await;
        let begun = || field.sim.tagged(&tag).filter(|sent| sent.written > 0);
        eventually("half of the body is sent", begun).await;
        let left = leave(client, how);
        assert_left_soon(&field.sent(&tag).await, left);
        let told = field.told_all(number + 1).await;
        assert_eq!(told[0].kept.cause, "client_cancelled", "{how:?}");
    }
    field.finish().await;
}

#[tokio::test]
async fn row_32_the_client_leaves_in_the_middle() {
    let field = Field::start().await;
    let mut count = 0;
    // A stream that goes on, and one that has fallen silent: nothing is written that could fail.
    for scenario in ["slow=10", "stall"] {
        for wire in WIRES {
            for (mode, how) in BOTH.into_iter().flat_map(|mode| WAYS.map(|how| (mode, how))) {
                let ask = Ask::new(wire, scenario, mode);
                let tag = field.tag();
                let mut client = begin(&field, &ask, &tag).await;
                let got = client.until(|response| response.body.len() > 400).await;
                assert!(got.body.len() > 400, "{wire} {scenario}");
                let left = leave(client, how);
                let sent = field.sent(&tag).await;
                assert_left_soon(&sent, left);
                count += 1;
                let told = field.told_all(count).await;
                let record = told.iter().find(|told| told.kept.id == got.id()).unwrap();
                let label = format!("{wire} {scenario} {mode:?} {how:?}: {record:?}");
                assert_eq!(record.kept.cause, "client_cancelled", "{label}");
                assert_eq!(record.ending.closed, Closed::ClientGone, "{label}");
                assert!(record.kept.delivered_bytes >= got.body.len() as u64, "{label}");
                assert!(record.kept.delivered_bytes <= sent.written, "{label}");
                assert!(record.ending.events > 0, "{label}");
                assert!(sent.body.starts_with(&got.body), "{label}");
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_32_what_was_used_so_far_is_told() {
    let field = Field::start().await;
    let ask = Ask::new("anthropic", "stall", Mode::Guard);
    let mut client = begin(&field, &ask, &field.tag()).await;
    let got = client.until(|response| response.body.len() > 400).await;
    drop(client);
    let record = field.record(got.id()).await;
    assert_eq!(record.kept.cause, "client_cancelled");
    assert!(record.ending.usage.input.is_some(), "{:?}", record.ending.usage);
    field.finish().await;
}

#[tokio::test]
async fn row_32_a_client_of_http2_leaves() {
    let field = Field::start().await;
    let mut sender = client::connect_http2(field.address).await;
    for (number, scenario) in ["no-headers", "stall"].into_iter().enumerate() {
        let ask = Ask::new("openai-chat", scenario, Mode::Guard);
        let tag = field.tag();
        field.admit(1);
        let mut request = hyper::Request::post(format!("http://{}{}", field.address, ask.path));
        for (name, value) in ask.all_headers(&tag) {
            request = request.header(name, value);
        }
        let body = http_body_util::Full::from(ask.body.clone());
        let sending = sender.send_request(request.body(body).unwrap());
        let sending = tokio::spawn(sending);
        field.begun(&tag).await;
        if scenario == "stall" {
            drop(sending.await.unwrap().unwrap());
        } else {
            sending.abort();
        }
        let left = Instant::now();
        assert_left_soon(&field.sent(&tag).await, left);
        let told = field.told_all(number + 1).await;
        assert_eq!(told[0].kept.cause, "client_cancelled", "{scenario}");
    }
    drop(sender);
    field.finish().await;
}

#[tokio::test]
async fn row_33_the_client_leaves_after_the_terminal() {
    let field = Field::start().await;
    // Terminal events, and then no end of the body.
    for wire in WIRES {
        let whole = field.ask(Ask::new(wire, "complete", Mode::Observe)).await;
        let kind = whole.response.header("content-type").to_owned();
        field.sim.replay(
            wire,
            endstop_sim::Reply {
                status: 200,
                headers: vec![("content-type".to_owned(), kind)],
                body: vec![whole.sent.body.clone()],
                sized: false,
                end: endstop_sim::ReplyEnd::Stall,
            },
        );
        let proven = whole.record.ending.closed == Closed::Proven;
        for mode in BOTH {
            let ask = Ask::new(wire, "complete", mode).replay(wire, true);
            let tag = field.tag();
            let mut client = begin(&field, &ask, &tag).await;
            let length = whole.sent.body.len();
            let got = client.until(|response| response.body.len() == length).await;
            assert_eq!(got.body, whole.sent.body);
            drop(client);
            let left = Instant::now();
            assert_left_soon(&field.sent(&tag).await, left);
            let record = field.record(got.id()).await;
            let label = format!("{wire} {mode:?} {record:?}");
            assert!(proven, "{label}");
            if wire == "gemini" {
                // Only the end of the bytes would have proven it.
                assert_eq!(record.ending.closed, Closed::ClientGone, "{label}");
                continue;
            }
            assert_eq!(record.ending.reason, Reason::Complete, "{label}");
            assert!(record.ending.shown.client_closed_early, "{label}");
            assert_eq!(record.action, GuardAction::Passed, "{label}");
        }
    }
    field.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_34_a_client_that_reads_nothing() {
    let field = Field::with(|config| {
        config.limits.client_write = Duration::from_millis(700);
        config.limits.event_bytes = 128 << 20;
    })
    .await;
    for mode in BOTH {
        let ask = Ask::new("openai-chat", "no-newline=67108864", mode);
        let tag = field.tag();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        // Without this the kernel takes in megabytes for a client that reads nothing.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let mut client = client::Client::new(socket.connect(field.address).await.unwrap());
        field.admit(1);
        client.send(ask.request(&tag)).await;
        let sent = field.sent(&tag).await;
        assert_eq!(sent.ended, ResponseEnd::PeerClosed, "{mode:?}");
        let told = field.told_all(1).await;
        assert_eq!(told[0].kept.cause, "client_stalled", "{mode:?}");
        let got = client.finish().await;
        assert_ne!(got.end, End::Clean, "{mode:?}");
        // Megabytes wait in the kernel, whose buffers grow as it likes; reading has paused all the
        // same, and the gateway itself holds next to nothing.
        let read = told[0].ending.bytes;
        assert!(read < 16 << 20 && sent.written < 48 << 20, "{mode:?}: {read} {}", sent.written);
        let held = read.saturating_sub(got.body.len() as u64);
        // A reset drops what the kernel has taken in and not sent.
        let most = (2 << 20) + send_buffer();
        assert!(held < most, "{mode:?}: {held} bytes are held");
    }
    field.finish().await;
}

/// Returns the largest send buffer of a socket, in bytes.
fn send_buffer() -> u64 {
    let sizes = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
    sizes.split_whitespace().last().and_then(|most| most.parse().ok()).unwrap_or(4 << 20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_34_a_client_that_reads_slowly() {
    let field = Field::with(|config| config.limits.client_write = Duration::from_secs(5)).await;
    let ask = Ask::new("openai-chat", "huge-event=2000000", Mode::Guard);
    let tag = field.tag();
    let mut client = begin(&field, &ask, &tag).await;
    for wanted in (0..20).map(|step| step * 100_000) {
        client.until(|response| response.body.len() > wanted).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let response = client.finish().await;
    let one = field.join(ask, &tag, response).await;
    one.assert_untouched(End::Clean);
    assert_eq!(one.record.ending.reason, Reason::Complete);
    field.finish().await;
}

#[tokio::test]
async fn row_35_a_half_closed_client_gets_its_answer() {
    let field = Field::start().await;
    for scenario in ["slow=10", "complete", "keepalive", "cut-before-word", "length"] {
        for wire in WIRES {
            let (row, _) = endstop_sim::scenario::parse(scenario).unwrap();
            if !(row.on)(endstop_sim::SimWire::by_id(wire).unwrap()) {
                continue;
            }
            for mode in BOTH {
                let ask = Ask::new(wire, scenario, mode);
                let tag = field.tag();
                let mut client = begin(&field, &ask, &tag).await;
                client.stream.shutdown().await.unwrap();
                let response = client.finish().await;
                let one = field.join(ask, &tag, response).await;
                let failed = mode == Mode::Guard && scenario == "cut-before-word";
                if failed { one.assert_told() } else { one.assert_untouched(End::Clean) }
            }
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn row_35_a_half_closed_client_waits_with_the_gateway() {
    let options = Options { pace: Duration::from_millis(150), ..Options::default() };
    let field = Field::on(options, |_| ()).await;
    // Long pauses before the head and between events: probes are sent, and change nothing.
    for (wire, streamed) in [("openai-chat", true), ("ollama", true), ("anthropic", false)] {
        let ask = Ask::new(wire, "empty", Mode::Guard);
        let body = if streamed { ask.body.clone() } else { ask.body.replace("true", "false") };
        let ask = Ask { body, streamed, ..ask };
        let tag = field.tag();
        let mut client = begin(&field, &ask, &tag).await;
        client.stream.shutdown().await.unwrap();
        let response = client.finish().await;
        assert!(response.interim.iter().all(|status| *status == 102), "{:?}", response.interim);
        let one = field.join(ask, &tag, response).await;
        one.assert_untouched(End::Clean);
    }
    field.finish().await;
}

#[tokio::test]
async fn row_35_a_half_closed_client_that_leaves_a_silent_upstream() {
    let limit = Duration::from_secs(1);
    let field = Field::with(|config| {
        config.limits.first_byte = limit;
        config.limits.idle = limit;
    })
    .await;
    for (number, scenario) in ["no-headers", "stall"].into_iter().enumerate() {
        let ask = Ask::new("openai-chat", scenario, Mode::Guard);
        let tag = field.tag();
        let asked = Instant::now();
        let mut client = begin(&field, &ask, &tag).await;
        field.begun(&tag).await;
        client.stream.shutdown().await.unwrap();
        if scenario == "stall" {
            client.until(|response| response.body.len() > 400).await;
        }
        // It is still there, and so is its request, unless a busy machine took as long as the limit.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let ended = field.sim.tagged(&tag).unwrap().ended;
        assert!(ended == ResponseEnd::Open || asked.elapsed() >= limit, "{scenario}: {ended:?}");
        drop(client);
        let left = Instant::now();
        let sent = field.sent(&tag).await;
        // Nothing tells that a client is gone whose sending side had been closed before and to
        // whom nothing is sent: the time limits do.
        let took = sent.peer_closed_at.unwrap().saturating_duration_since(left);
        assert!(took < limit + SOON, "{scenario}: {took:?}");
        let told = field.told_all(number + 1).await;
        assert!(!told[0].ending.reason.is_success(), "{scenario}");
    }
    field.finish().await;
}
