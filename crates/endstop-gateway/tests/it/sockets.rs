//! Connections that take and give nothing, on every listener: their slots come back. And what the TLS
//! listener has in common with the plain one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use endstop_gateway::config::Mode;
use endstop_gateway::{Config, Gateway};
use endstop_sim::{Options, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{self, Client, End};
use crate::ledger::{Ask, Field, config, eventually};
use crate::secure::{self, Certificate, Stream};

const SHORT: Duration = Duration::from_millis(300);

/// For what comes at all. It is less than the 50 s after which the HTTP library itself ends a connection
/// that does not answer its pings.
const EVER: Duration = Duration::from_secs(25);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fn hasty(config: &mut Config) {
    config.limits.client_read = SHORT;
    config.limits.keep_alive = 2 * SHORT;
    config.limits.tls = SHORT;
}

/// The peer ends the connection. Returns what it said before.
async fn assert_ended(stream: &mut (impl Stream + ?Sized), label: &str) -> Vec<u8> {
    let mut said = Vec::new();
    let reading = stream.read_to_end(&mut said);
    assert!(tokio::time::timeout(EVER, reading).await.is_ok(), "{label}: {said:?}");
    said
}

/// The kinds of these frames of HTTP/2; 7 is a goodbye.
fn kinds(frames: &[u8]) -> Vec<u8> {
    let (mut rest, mut kinds) = (frames, Vec::new());
    while let Some(head) = rest.first_chunk::<9>() {
        kinds.push(head[3]);
        rest = &rest[9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize..];
    }
    kinds
}

async fn no_connections(field: &Field) {
    eventually("all slots are back", || (field.handle.connections() == 0).then_some(())).await;
}

#[tokio::test]
async fn connections_without_a_whole_request_end() {
    let certificate = Certificate::new();
    let plain = Field::with(hasty).await;
    let tls = Field::with(|config| {
        hasty(config);
        config.tls = Some(certificate.tls());
    })
    .await;
    let hello = [PREFACE, SETTINGS].concat();
    let half = "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-half: ";
    let starts: [&[u8]; 7] = [b"", b"P", b"PRI ", &PREFACE[..20], PREFACE, &hello, half.as_bytes()];
    let mut ending = Vec::new();
    for start in starts {
        for protocol in ["", "http/1.1", "h2"] {
            let address = if protocol.is_empty() { plain.address } else { tls.address };
            let connector = certificate.connector(protocol);
            let label = format!("{:?} {protocol}", String::from_utf8_lossy(start));
            let start = start.to_vec();
            ending.push(tokio::spawn(async move {
                let mut stream: Box<dyn Stream> = match protocol {
                    "" => Box::new(TcpStream::connect(address).await.unwrap()),
                    _ => Box::new(secure::connect(&connector, address).await),
                };
                stream.write_all(&start).await.unwrap();
                stream.flush().await.unwrap();
                assert_ended(&mut *stream, &label).await;
            }));
        }
    }
    // No handshake, and half of one.
    for start in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(tls.address).await.unwrap();
        stream.write_all(start).await.unwrap();
        ending.push(tokio::spawn(async move {
            assert_ended(&mut stream, "no handshake").await;
        }));
    }
    for one in ending {
        one.await.unwrap();
    }
    no_connections(&plain).await;
    no_connections(&tls).await;
    plain.finish().await;
    tls.finish().await;
}

#[tokio::test]
async fn an_idle_connection_of_http_2_is_closed_with_a_goodbye() {
    let field = Field::with(hasty).await;
    let mut stream = TcpStream::connect(field.address).await.unwrap();
    stream.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
    // A ping now and then does not buy more time.
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
    let mut said = Vec::new();
    let reading = async {
        loop {
            tokio::select! {
                read = stream.read_buf(&mut said) => if !read.is_ok_and(|read| read > 0) { return },
                () = tokio::time::sleep(SHORT / 4) => {
                    let _ = stream.write_all(&ping).await;
                }
            }
        }
    };
    tokio::time::timeout(EVER, reading).await.unwrap();
    let kinds = kinds(&said);
    assert!(kinds.contains(&7), "no GOAWAY: {kinds:?}");
    no_connections(&field).await;
    field.finish().await;
}

#[tokio::test]
async fn a_body_that_drips_ends() {
    let field = Field::with(|config| config.limits.client_read = 2 * SHORT).await;
    // Judged, and passed on unread.
    for path in ["/openai/v1/chat/completions", "/openai/v1/files"] {
        for framing in ["content-length: 1000000", "transfer-encoding: chunked"] {
            let mut client = Client::connect(field.address).await;
            let label = format!("{path} {framing}");
            client.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n")).await;
            let piece = if framing.contains("chunked") { "1\r\nx\r\n" } else { "x" };
            let response = tokio::time::timeout(EVER, async {
                loop {
                    client.send(piece).await;
                    tokio::select! {
                        response = client.head() => return response,
                        () = tokio::time::sleep(SHORT / 10) => {}
                    }
                }
            });
            let response = response.await.unwrap_or_else(|_| panic!("{label}: it goes on"));
            assert_eq!(response.status, 408, "{label}: {response:?}");
            assert!(response.text().contains("endstop") || response.body.is_empty(), "{label}");
        }
    }
    no_connections(&field).await;
    field.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_loses_its_connection() {
    let certificate = Certificate::new();
    for tls in [false, true] {
        let field = Field::with(|config| {
            config.limits.client_write = 2 * SHORT;
            config.limits.event_bytes = 128 << 20;
            config.limits.plain_bytes = 64 << 20;
            config.tls = tls.then(|| certificate.tls());
        })
        .await;
        let mut unread: Vec<Box<dyn Stream>> = Vec::new();
        for (scenario, streamed) in [("no-newline=67108864", true), ("huge-event=16000000", false)]
        {
            let ask = Ask::new("openai-chat", scenario, Mode::Observe);
            let body = if streamed { ask.body.clone() } else { ask.body.replace("true", "false") };
            let ask = Ask { body, streamed, ..ask };
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(64 << 10).unwrap();
            let stream = socket.connect(field.address).await.unwrap();
            let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
            let mut stream: Box<dyn Stream> = match tls {
                false => Box::new(stream),
                true => {
                    let connector = certificate.connector("http/1.1");
                    Box::new(connector.connect(name, stream).await.unwrap())
                }
            };
            field.admit(1);
            stream.write_all(ask.request(&field.tag()).as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            unread.push(stream);
        }
        let told = field.told_all(2).await;
        assert!(told.iter().any(|told| told.kept.cause == "client_stalled"), "{told:?}");
        // They are still there, and the gateway has closed.
        no_connections(&field).await;
        drop(unread);
        field.finish().await;
    }
}

#[tokio::test]
async fn a_client_of_http_2_that_opens_no_window_loses_its_connection() {
    let field = Field::with(|config| {
        config.limits.client_write = SHORT;
        config.limits.client_read = SHORT;
    })
    .await;
    let mut stream = TcpStream::connect(field.address).await.unwrap();
    // The initial window is 0: no byte of any body may be sent.
    let closed = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    let mut block = Vec::new();
    for (name, value) in
        [(":method", "GET"), (":scheme", "http"), (":path", "/nowhere"), (":authority", "x")]
    {
        block.extend([0, u8::try_from(name.len()).unwrap()]);
        block.extend(name.bytes());
        block.push(u8::try_from(value.len()).unwrap());
        block.extend(value.bytes());
    }
    let headers = [0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1];
    stream.write_all(&[PREFACE, &closed, &headers, &block].concat()).await.unwrap();
    let said = assert_ended(&mut stream, "no window").await;
    let kinds = kinds(&said);
    assert!(kinds.contains(&7), "no GOAWAY: {kinds:?}");
    no_connections(&field).await;
    field.finish().await;
}

#[tokio::test]
async fn operators_have_slots_of_their_own() {
    let field = Field::with(|config| {
        config.limits.client_read = EVER;
        config.limits.admin_connections = 3;
    })
    .await;
    let mut half = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(field.admin).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
        half.push(stream);
    }
    let health = |to: SocketAddr| async move { client::get(to, "/healthz", "").await.status };
    let refused = health(field.admin).await;
    assert_eq!(refused, 503);
    // Clients have theirs.
    field.ask(Ask::new("openai-chat", "complete", Mode::Guard)).await.assert_untouched(End::Clean);
    drop(half);
    // They are noticed a moment after they have left.
    let until = tokio::time::Instant::now() + EVER;
    while health(field.admin).await != 200 {
        assert!(tokio::time::Instant::now() < until, "the slots do not come back");
        tokio::time::sleep(SHORT / 10).await;
    }
    field.finish().await;
}

#[tokio::test]
async fn half_a_head_of_an_operator_is_not_waited_for() {
    let field = Field::with(|config| config.limits.client_read = SHORT).await;
    let mut stream = TcpStream::connect(field.admin).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    assert_ended(&mut stream, "half a head").await;
    field.finish().await;
}

#[tokio::test]
async fn readers_of_the_tail_leave_slots_for_other_operators() {
    let field = Field::start().await;
    let tail = format!("GET /endstop/v1/tail HTTP/1.1\r\nhost: {}\r\n\r\n", field.admin);
    let read = || async {
        let mut client = Client::connect(field.admin).await;
        client.send(&tail).await;
        let status = client.head().await.status;
        (client, status)
    };
    let mut readers = Vec::new();
    for _ in 0..64 {
        let (client, status) = read().await;
        assert_eq!(status, 200);
        readers.push(client);
    }
    let refused = client::get(field.admin, "/endstop/v1/tail", "").await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("64 others read the tail"), "{}", refused.text());
    assert_eq!(client::get(field.admin, "/healthz", "").await.status, 200);
    // A reader that has left is noticed when something is written to it.
    drop(readers.pop());
    let until = tokio::time::Instant::now() + EVER;
    while read().await.1 != 200 {
        assert!(tokio::time::Instant::now() < until, "the place does not come back");
        field.ask(Ask::new("openai-chat", "complete", Mode::Guard)).await;
    }
    drop(readers);
    field.finish().await;
}

#[tokio::test]
async fn a_stream_of_http_2_finishes_after_the_goodbye() {
    let sim = Sim::start(Options::default()).await.unwrap();
    let mut config = config(&sim.url());
    config.limits.drain = EVER;
    let gateway = Gateway::bind(config).await.unwrap();
    let (address, handle) = (gateway.address(), gateway.handle());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(gateway.run(async move {
        let _ = stopped.await;
    }));
    let mut sender = client::connect_http2(address).await;
    let ask = Ask::new("openai-chat", "slow=50", Mode::Guard);
    let headers = ask.all_headers("slow");
    let asked = client::ask_http2(&mut sender, address, &ask.path, &headers, &ask.body);
    let stopping = async {
        eventually("it streams", || (handle.streams() == 1).then_some(())).await;
        stop.send(()).unwrap();
    };
    let ((response, error), ()) = tokio::join!(asked, stopping);
    assert_eq!((response.status, response.end, error), (200, End::Clean, None));
    assert!(response.text().ends_with("data: [DONE]\n\n"), "{}", response.text());
    task.await.unwrap();
    assert!(sender.ready().await.is_err(), "the connection is closed");
    sim.stop().await;
}

#[tokio::test]
async fn a_request_that_waits_at_shutdown_is_told_so() {
    let sim = Sim::start(Options::default()).await.unwrap();
    let mut config = config(&sim.url());
    config.limits.drain = Duration::from_millis(50);
    let gateway = Gateway::bind(config).await.unwrap();
    let (address, handle) = (gateway.address(), gateway.handle());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(gateway.run(async move {
        let _ = stopped.await;
    }));
    let ask = Ask::new("openai-chat", "no-headers", Mode::Guard);
    let asking = client::ask(address, ask.request("waits"));
    let stopping = async {
        eventually("it waits", || (handle.waiting() == 1).then_some(())).await;
        stop.send(()).unwrap();
    };
    let (response, ()) = tokio::join!(asking, stopping);
    assert_eq!((response.status, response.header("retry-after")), (503, "1"));
    assert!(response.text().contains("endstop_shutting_down"), "{}", response.text());
    task.await.unwrap();
    let told = handle.watch().get(response.id()).unwrap();
    assert_eq!(told.kept.cause, "gateway_shutdown");
    sim.stop().await;
}

/// Behind TLS, too: no second reading, no clean end of a failure, no client lost.
#[tokio::test]
async fn the_tls_listener_protects_like_the_plain_one() {
    let certificate = Certificate::new();
    let field = Field::with(|config| {
        hasty(config);
        config.limits.tls = EVER;
        config.limits.keep_alive = EVER;
        config.tls = Some(certificate.tls());
    })
    .await;
    let connector = certificate.connector("http/1.1");
    let connect = || async { Client::new(secure::connect(&connector, field.address).await) };
    // A head that never ends.
    let mut client = connect().await;
    client.send("POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\n").await;
    assert_eq!(client.finish().await.status, 408);
    assert_eq!(client.finish().await.status, 0);
    // A failure of HTTP/1.0 is no clean end.
    let ask = Ask::new("openai-chat", "cut-in-tool-call", Mode::Guard);
    let tag = field.tag();
    field.admit(1);
    let mut client = connect().await;
    client.send(ask.request(&tag).replacen("HTTP/1.1", "HTTP/1.0", 1)).await;
    let response = client.finish().await;
    assert!([End::Reset, End::Cut].contains(&response.end), "{:?}", response.end);
    field.join(ask, &tag, response).await.assert_told();
    // A client that has closed its sending side gets its answer.
    for scenario in ["slow=10", "complete"] {
        let ask = Ask::new("openai-chat", scenario, Mode::Guard);
        let tag = field.tag();
        field.admit(1);
        let mut client = connect().await;
        client.send(ask.request(&tag)).await;
        client.stream.shutdown().await.unwrap();
        let response = client.finish().await;
        field.join(ask, &tag, response).await.assert_untouched(End::Clean);
    }
    // One that has gone is noticed while the upstream is silent.
    let ask = Ask::new("openai-chat", "stall", Mode::Guard);
    let tag = field.tag();
    field.admit(1);
    let mut client = connect().await;
    client.send(ask.request(&tag)).await;
    client.until(|response| response.body.len() > 400).await;
    client.stream.shutdown().await.unwrap();
    drop(client);
    field.sent(&tag).await;
    assert_eq!(field.told_all(4).await[0].kept.cause, "client_cancelled");
    field.finish().await;
}

/// A key of the gateway's own in a file.
fn own_key(dir: &tempfile::TempDir) -> impl Fn(&mut Config) + use<> {
    let file = dir.path().join("key");
    std::fs::write(&file, "sk-canary-of-the-gateway").unwrap();
    move |config| config.upstreams.get_mut("openai").unwrap().key_file = Some(file.clone())
}

async fn status(field: &Arc<Field>, path: &str, host: &str, more: &str) -> u16 {
    let body = r#"{"model":"m","stream":false,"messages":[]}"#;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\n{more}content-type: text/plain\r\n\
         x-api-key: sk-of-the-caller\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = client::ask(field.address, request).await;
    field.admit(usize::from(response.status == 200));
    response.status
}

#[tokio::test]
async fn web_pages_do_not_spend_the_gateways_key() {
    let dir = tempfile::tempdir().unwrap();
    let with_key = own_key(&dir);
    let field = Field::with(|config| {
        with_key(config);
        config.hosts = vec!["gateway.example".to_owned()];
    })
    .await;
    let own = "/openai/v1/chat/completions";
    let callers = "/anthropic/v1/messages";
    let port = field.address.port();
    for host in ["localhost", "127.0.0.1", &format!("[::1]:{port}"), "gateway.example"] {
        assert_eq!(status(&field, own, host, "").await, 200, "{host}");
    }
    for host in ["evil.example", "host.docker.internal:4100", "127.0.0.1.evil.example", ""] {
        assert_eq!(status(&field, own, host, "").await, 403, "{host}");
        assert_eq!(status(&field, callers, host, "").await, 200, "{host}");
    }
    for page in [
        "origin: https://evil.example\r\n",
        "origin: null\r\n",
        "origin: file://\r\n",
        "sec-fetch-site: cross-site\r\n",
        "origin: http://localhost\r\norigin: https://evil.example\r\n",
    ] {
        assert_eq!(status(&field, own, "127.0.0.1", page).await, 403, "{page}");
        assert_eq!(status(&field, callers, "127.0.0.1", page).await, 200, "{page}");
    }
    for page in ["origin: http://localhost:3000\r\n", "sec-fetch-site: same-origin\r\n"] {
        assert_eq!(status(&field, own, "127.0.0.1", page).await, 200, "{page}");
    }
    field.finish().await;
}

#[tokio::test]
async fn web_pages_do_not_read_what_operators_see() {
    let field = Field::start().await;
    let get = |host: &str, more: &str| {
        let request = format!("GET /endstop/v1/endings HTTP/1.1\r\nhost: {host}\r\n{more}\r\n");
        let to = field.admin;
        async move { client::ask(to, request).await.status }
    };
    assert_eq!(get("localhost:4101", "").await, 200);
    assert_eq!(get("[::1]", "origin: http://127.0.0.1:4101\r\n").await, 200);
    for host in ["evil.example", "gateway", "127.0.0.1.evil.example:4101"] {
        assert_eq!(get(host, "").await, 403, "{host}");
    }
    for page in
        ["origin: https://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n"]
    {
        assert_eq!(get("127.0.0.1", page).await, 403, "{page}");
    }
    field.finish().await;
}
