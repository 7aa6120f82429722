//! Thousands of connections that take and give nothing: memory stays bounded, others are served, and
//! all slots come back.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use endstop_sim::{Options, Sim};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::child::{EVER, Listening, Process, config};
use crate::client::{self, End};
use crate::load::Ask;

/// The most memory of a gateway, in KiB.
const MEMORY: u64 = 200 << 10;

/// Connections that fit into the descriptors of this process and of the gateway. Says so if they are fewer than
/// wanted: past the capture of test output, as the test shows less then.
fn scaled(wanted: usize) -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let most = maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    // The gateway keeps half of them for upstreams; some are needed for other things.
    let fitting = wanted.min((most / 2).saturating_sub(500));
    if fitting < wanted {
        let said = "this test is smaller than it should be: raise the hard limit of open files";
        writeln!(std::io::stderr(), "{said} ({fitting} of {wanted} connections)").unwrap();
    }
    fitting
}

async fn start(dir: &Path, more: &str) -> (Sim, Process, Listening) {
    let sim = Sim::start(Options { kept_bytes: 0, ..Options::default() }).await.unwrap();
    let file = config(dir, &sim.url(), "off", &format!("log = 'off'\n{more}"));
    let process = Process::start(&file);
    let listening = process.listening();
    (sim, process, listening)
}

/// Others are served now.
async fn assert_served(to: SocketAddr) {
    for _ in 0..5 {
        let ask = Ask::plain("openai-chat", "complete");
        let response = tokio::time::timeout(EVER, ask.ask(to)).await.unwrap().unwrap();
        assert_eq!((response.status, response.end), (200, End::Clean), "{response:?}");
    }
}

/// The gateway never had more memory than it may, until now.
fn assert_memory(process: &Process, label: &str) {
    let peak = process.peak_memory();
    println!("{label}: {} MiB", peak >> 20);
    assert!(peak < MEMORY << 10, "{label}: {} MiB", peak >> 20);
}

/// Reports whether the gateway has not closed this connection.
fn is_open(stream: &TcpStream) -> bool {
    loop {
        match stream.try_read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// The attack goes on: whoever was served did not wait for its end. The first connections may have ended,
/// if this machine took long to open the last ones.
fn assert_goes_on<'a>(attack: impl IntoIterator<Item = &'a TcpStream>, label: &str) {
    let open: Vec<bool> = attack.into_iter().map(is_open).collect();
    let (count, all) = (open.iter().filter(|open| **open).count(), open.len());
    assert!(count > all / 2, "{label}: the attack has ended: {count} of {all} are open");
}

/// The gateway ends all of them.
async fn assert_all_end(streams: Vec<TcpStream>, label: &str) {
    let until = tokio::time::Instant::now() + EVER;
    for (number, mut stream) in streams.into_iter().enumerate() {
        let ended = tokio::time::timeout_at(until, async {
            let mut space = [0; 64 << 10];
            while stream.read(&mut space).await.is_ok_and(|read| read > 0) {}
        });
        assert!(ended.await.is_ok(), "{label}: number {number} is still open");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_connections_on_the_plain_listener() {
    let count = scaled(8_000);
    let temp = tempfile::tempdir().unwrap();
    let limits =
        format!("[limits]\nclient_read = '20s'\nkeep_alive = '20s'\nconnections = {}", count + 50);
    let (sim, process, listening) = start(temp.path(), &limits).await;
    let starts: [&[u8]; 4] = [
        b"PRI ",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"",
        b"POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-half: ",
    ];
    let mut half = Vec::new();
    for number in 0..count {
        let mut stream = TcpStream::connect(listening.address).await.unwrap();
        stream.write_all(starts[number % starts.len()]).await.unwrap();
        half.push(stream);
    }
    assert_served(listening.address).await;
    assert_goes_on(&half, "plain");
    assert_memory(&process, &format!("{count} half connections"));
    assert_all_end(half, "plain").await;
    assert_served(listening.address).await;
    assert_memory(&process, "afterwards");
    process.stop();
    sim.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_connections_on_the_tls_listener() {
    let count = scaled(2_000);
    let temp = tempfile::tempdir().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let (cert_file, key_file) = (temp.path().join("cert.pem"), temp.path().join("key.pem"));
    fs::write(&cert_file, certificate.pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let more = format!(
        "tls = {{ cert = '{}', key = '{}' }}\n[limits]\ntls = '20s'\nclient_read = '20s'\n\
         keep_alive = '20s'\nconnections = {}",
        cert_file.display(),
        key_file.display(),
        count + 50
    );
    let (sim, process, listening) = start(temp.path(), &more).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trusting = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting));
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let (mut half, mut silent) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut stream = TcpStream::connect(listening.address).await.unwrap();
        if number % 4 == 0 {
            // A whole handshake, and then silence.
            let connected = connector.connect(name.clone(), stream).await;
            silent.push(connected.unwrap());
        } else {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await.unwrap();
            half.push(stream);
        }
    }
    let serve_another = async || {
        let stream = TcpStream::connect(listening.address).await.unwrap();
        let mut stream = connector.connect(name.clone(), stream).await.unwrap();
        let mut asking = client::Client::new(&mut stream);
        let request = client::request("/openai/v1/chat/completions", &[], r#"{"messages":[]}"#);
        asking.send(request).await;
        assert_eq!(asking.finish().await.status, 200);
    };
    serve_another().await;
    assert_goes_on(&half, "TLS");
    assert_goes_on(silent.iter().map(|stream| stream.get_ref().0), "silent after the handshake");
    assert_memory(&process, &format!("{count} half connections over TLS"));
    assert_all_end(half, "TLS").await;
    let ended: Vec<TcpStream> = silent.into_iter().map(|stream| stream.into_inner().0).collect();
    assert_all_end(ended, "silent after the handshake").await;
    serve_another().await;
    assert_memory(&process, "afterwards");
    process.stop();
    sim.stop().await;
}

/// An upstream whose streams never end.
async fn endless() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Large ones: the buffers of the kernel are filled soon.
    let pad = "x".repeat(16 << 10);
    let events = format!("event: ping\ndata: {{\"type\": \"ping\", \"pad\": \"{pad}\"}}\n\n");
    let chunk = format!("{:x}\r\n{events}\r\n", events.len());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let chunk = chunk.clone();
            tokio::spawn(async move {
                // A response before its request would be an error.
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(chunk.as_bytes()).await.is_ok() {}
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read() {
    let temp = tempfile::tempdir().unwrap();
    let sim = Sim::start(Options { kept_bytes: 0, ..Options::default() }).await.unwrap();
    let more = "log = 'off'\n[limits]\nclient_write = '20s'\nclient_read = '60s'";
    let file = config(temp.path(), &sim.url(), "off", more);
    let text = fs::read_to_string(&file).unwrap();
    let upstream = format!("http://{}", endless().await);
    fs::write(&file, text.replace(&format!("{}/anthropic", sim.url()), &upstream)).unwrap();
    let process = Process::start(&file);
    let listening = process.listening();
    let ask = Ask::new("anthropic", "complete");
    let mut unread = Vec::new();
    for _ in 0..200 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let mut stream = socket.connect(listening.address).await.unwrap();
        stream.write_all(ask.request().as_bytes()).await.unwrap();
        unread.push(stream);
    }
    assert_served(listening.address).await;
    // Nobody waited for their end. To read from one would end its attack.
    assert!(process.sockets() > 200, "{} sockets are open", process.sockets());
    assert_memory(&process, "200 clients that do not read");
    // They hold no descriptor of the gateway for long, although they never read and never leave.
    let until = Instant::now() + EVER;
    let few = |process: &Process| process.sockets() < 50;
    while !few(&process) {
        assert!(Instant::now() < until, "{} sockets are open", process.sockets());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_served(listening.address).await;
    assert_memory(&process, "afterwards");
    drop(unread);
    process.stop();
    sim.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_descriptors() {
    let temp = tempfile::tempdir().unwrap();
    let more = "[limits]\nclient_read = '60s'\nkeep_alive = '60s'";
    let (sim, process, listening) = start(temp.path(), more).await;
    let mut connected = Vec::new();
    for _ in 0..16 {
        let mut client =
            Ask::plain("openai-chat", "complete").send(listening.address).await.unwrap();
        assert_eq!(client.finish().await.status, 200);
        connected.push(client);
    }
    process.exhaust_descriptors();
    // Nobody waits: who is not accepted is answered.
    let mut accepted = Vec::new();
    let refused = loop {
        let mut client = client::Client::connect(listening.address).await;
        match tokio::time::timeout(Duration::from_millis(500), client.head()).await {
            Ok(response) => break response,
            Err(_) => accepted.push(client),
        }
        assert!(accepted.len() < 100, "descriptors do not run out");
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.header("retry-after"), "1");
    // Those that are connected are told that the upstream cannot be asked. Some find a connection to it
    // that is open, and wait.
    let mut asking = tokio::task::JoinSet::new();
    for mut client in connected {
        asking.spawn(async move {
            client.send(Ask::new("openai-chat", "stall").request()).await;
            client.head().await
        });
    }
    let told = async {
        loop {
            let response = asking.join_next().await.unwrap().unwrap();
            if response.status != 200 {
                return response;
            }
        }
    };
    let told = tokio::time::timeout(EVER, told).await.unwrap();
    assert_eq!(told.status, 503, "{told:?}");
    assert_eq!(told.header("retry-after"), "1");
    drop((asking, accepted));
    process.free_descriptors();
    assert_served(listening.address).await;
    process.stop();
    sim.stop().await;
}

/// Descriptors that are open at the start, such as inherited ones, are not promised to clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_descriptors_are_not_promised() {
    let temp = tempfile::tempdir().unwrap();
    let sim = Sim::start(Options { kept_bytes: 0, ..Options::default() }).await.unwrap();
    let more = "log = 'off'\n[limits]\nidle = '60s'\nclient_read = '60s'";
    let file = config(temp.path(), &sim.url(), "off", more);
    let process = Process::start_with_descriptors(&file, 400, 250);
    let listening = process.listening();
    let ask = Ask::new("openai-chat", "stall");
    let mut served = Vec::new();
    let refused = loop {
        let mut client = ask.send(listening.address).await.unwrap();
        let response = tokio::time::timeout(EVER, client.head()).await.unwrap();
        if response.status != 200 {
            // The head may have come with all of the body.
            let rest = client.finish().await;
            break if rest.status == 0 { response } else { rest };
        }
        served.push(client);
        assert!(served.len() < 200, "descriptors do not run out");
    };
    // Whoever was let in could be connected to an upstream.
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.text().contains("too many connections"), "{}", refused.text());
    assert!(served.len() > 10, "{} were served", served.len());
    drop(served);
    process.stop();
    sim.stop().await;
}

/// An upstream that answers with informational heads for ever: over HTTP/1.1, or over HTTP/2.
async fn informational(http2: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Until the gateway leaves.
            tokio::spawn(async move { flood(stream, http2).await.is_err() });
        }
    });
    address
}

async fn flood(mut stream: TcpStream, http2: bool) -> std::io::Result<()> {
    if !http2 {
        let _ = stream.read(&mut [0; 4096]).await?;
        let heads = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(400);
        loop {
            stream.write_all(&heads).await?;
        }
    }
    // Settings.
    stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await?;
    stream.read_exact(&mut [0; 24]).await?;
    let id = loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await?;
        // The head of a request.
        if head[3] == 1 {
            break [head[5], head[6], head[7], head[8]];
        }
    };
    // A head with the status 103.
    let frame = [&b"\0\0\x05\x01\x04"[..], &id, b"\x08\x03103"].concat();
    let frames = frame.repeat(1000);
    loop {
        stream.write_all(&frames).await?;
    }
}

/// The time for the first byte bounds them. They take no memory, and others are served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informational_responses_without_end() {
    for http2 in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        let sim = Sim::start(Options { kept_bytes: 0, ..Options::default() }).await.unwrap();
        let more = "log = 'off'\n[limits]\nfirst_byte = '15s'\nclient_read = '60s'";
        let file = config(temp.path(), &sim.url(), "off", more);
        let text = fs::read_to_string(&file).unwrap();
        let upstream = format!("http://{}'\nh2c = {http2}", informational(http2).await);
        fs::write(&file, text.replace(&format!("{}/anthropic'", sim.url()), &upstream)).unwrap();
        let process = Process::start(&file);
        let listening = process.listening();
        let ask = Ask::new("anthropic", "complete");
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (ask, to) = (ask.clone(), listening.address);
            asking.spawn(async move { ask.ask(to).await });
        }
        assert_served(listening.address).await;
        assert!(asking.try_join_next().is_none(), "HTTP/2 {http2}: the attack has ended");
        while let Some(response) = asking.join_next().await {
            let response = response.unwrap().unwrap();
            // Over HTTP/2, a ping that is not answered ends the connection before.
            let status = if http2 { 502 } else { 504 };
            assert_eq!(response.status, status, "{response:?}");
        }
        assert_memory(&process, &format!("informational heads, HTTP/2 {http2}"));
        assert_served(listening.address).await;
        process.stop();
        sim.stop().await;
    }
}

/// Sends all but the end of a large body, and then a byte a second.
async fn drip(mut into: tokio::net::tcp::OwnedWriteHalf, head: String) -> std::io::Result<()> {
    into.write_all(head.as_bytes()).await?;
    into.write_all(&vec![b' '; BODY - 1000]).await?;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        into.write_all(b" ").await?;
    }
}

/// Length of a large body.
const BODY: usize = 31 << 20;

/// 40 bodies that are large and slow: those that find no memory are refused, and small requests go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_that_drip() {
    let temp = tempfile::tempdir().unwrap();
    let limits = "[limits]\nrequest_memory = '128 MiB'\nclient_read = '20s'";
    let (sim, process, listening) = start(temp.path(), limits).await;
    let head = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY}\r\n\r\n"
    );
    let (refused, mut refusals) = tokio::sync::mpsc::unbounded_channel();
    let mut attack = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (head, refused, to) = (head.clone(), refused.clone(), listening.address);
        attack.spawn(async move {
            let (mut from, into) = TcpStream::connect(to).await.unwrap().into_split();
            let answered = async {
                let mut answer = vec![0; 4096];
                let read = from.read(&mut answer).await.unwrap_or(0);
                answer.truncate(read);
                String::from_utf8(answer).unwrap()
            };
            tokio::select! {
                answer = answered => drop(refused.send(answer)),
                // The gateway has closed the connection.
                Err(_) = drip(into, head) => {}
            }
        });
    }
    let first = tokio::time::timeout(EVER, refusals.recv()).await.unwrap().unwrap();
    assert!(
        first.starts_with("HTTP/1.1 503 ") && first.contains("\r\nretry-after: 5\r\n"),
        "{first}"
    );
    // Others may find the last bytes taken, for a moment.
    let served = async {
        let ask = Ask::plain("openai-chat", "complete");
        let mut count = 0;
        while count < 5 {
            let response = ask.ask(listening.address).await.unwrap();
            assert!([200, 503].contains(&response.status), "{response:?}");
            count += usize::from(response.status == 200);
        }
    };
    tokio::time::timeout(EVER, served).await.unwrap();
    // The bodies that found memory still drip.
    while attack.try_join_next().is_some() {}
    assert!(!attack.is_empty(), "the attack has ended");
    assert_memory(&process, "40 large bodies");
    attack.shutdown().await;
    assert_served(listening.address).await;
    assert_memory(&process, "afterwards");
    process.stop();
    sim.stop().await;
}
