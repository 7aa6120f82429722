//! Hostile requests, as data (`tests/hostile/requests.toml`), on both listeners and both protocols. The
//! oracle is an upstream that keeps every byte: what arrives is what was allowed, and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endstop_gateway::config::UpstreamConfig;
use endstop_gateway::{Gateway, Handle};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::client::{self, Client};
use crate::ledger::{EVER, config, eventually};
use crate::secure::{self, Certificate, Stream};

const CORPUS: &str = include_str!("../hostile/requests.toml");

const BODY: &str = r#"{"model":"m","messages":[]}"#;

const HIDDEN: &str = "GET /openai/v1/hidden HTTP/1.1\r\nhost: x\r\n\r\n";

#[derive(Deserialize)]
struct Corpus {
    allowed: BTreeMap<String, String>,
    request: Vec<Http1>,
    http2: Vec<Http2>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Http1 {
    name: String,
    raw: String,
    status: Vec<u16>,
    #[serde(default)]
    upstream: Vec<String>,
    #[serde(default)]
    open: bool,
    #[serde(default = "closed")]
    after: Vec<u16>,
}

fn closed() -> Vec<u16> {
    vec![0]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Http2 {
    name: String,
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
    expect: Vec<String>,
    #[serde(default)]
    upstream: Vec<String>,
}

/// Fills in what stands for something longer.
fn expand(text: &str) -> String {
    let text = text.replace("{chunked}", "0\r\n\r\n{hidden}").replace("{hidden}", HIDDEN);
    let text = text.replace("{length}", &BODY.len().to_string()).replace("{body}", BODY);
    let Some((before, rest)) = text.split_once("<<") else { return text };
    let (repeated, rest) = rest.split_once(">>").unwrap();
    let (unit, times) = repeated.rsplit_once('*').unwrap();
    expand(&format!("{before}{}{rest}", unit.repeat(times.parse().unwrap())))
}

/// An upstream that keeps every request, byte for byte.
struct Upstream {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, kept.clone()));
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn answer(mut stream: TcpStream, seen: Arc<Mutex<Vec<String>>>) {
    let body = r#"{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut input = Vec::new();
    while stream.read_buf(&mut input).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8(input.clone()).unwrap();
        if let Some(length) = length_of(&text) {
            seen.lock().unwrap().push(joined(text.split_at(length).0));
            input.drain(..length);
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    }
    if !input.is_empty() {
        seen.lock().unwrap().push(String::from_utf8(input).unwrap());
    }
}

/// A request with its chunks as one: where they are divided is up to those who pass them on.
fn joined(text: &str) -> String {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    if !head.contains("transfer-encoding: chunked") {
        return text.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let (piece, after) = after.split_at(size);
        whole += piece;
        rest = after.strip_prefix("\r\n").unwrap();
        if size == 0 {
            let rest = if rest.is_empty() { "" } else { "trailers: " };
            return format!("{head}\r\n\r\n{:x}\r\n{whole}\r\n0\r\n{rest}\r\n", whole.len());
        }
    }
}

/// How long the first request is, once it is whole.
fn length_of(text: &str) -> Option<usize> {
    let (head, body) = text.split_at(text.find("\r\n\r\n")? + 4);
    let length = if let Some((_, length)) = head.split_once("content-length: ") {
        length.split("\r\n").next().unwrap().parse().unwrap()
    } else if head.contains("transfer-encoding: chunked") {
        body.find("0\r\n\r\n")? + 5
    } else {
        0
    };
    (body.len() >= length).then_some(head.len() + length)
}

/// A gateway before that upstream, on a plain or on a TLS listener.
struct Target {
    upstream: Upstream,
    address: SocketAddr,
    handle: Handle,
    certificate: Option<Certificate>,
    allowed: BTreeMap<String, String>,
    /// Everything that may have arrived upstream.
    wanted: Vec<String>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Target {
    async fn start(certificate: Option<Certificate>, allowed: &BTreeMap<String, String>) -> Self {
        let upstream = Upstream::start().await;
        let url = format!("http://{}", upstream.address);
        let mut config = config(&url);
        let own = UpstreamConfig { base_url: Some(url), ..UpstreamConfig::default() };
        config.upstreams = [("openai".to_owned(), own)].into();
        config.tls = certificate.as_ref().map(Certificate::tls);
        config.limits.client_write = Duration::from_secs(1);
        let gateway = Gateway::bind(config).await.unwrap();
        let (address, handle) = (gateway.address(), gateway.handle());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(gateway.run(async move {
            let _ = stopped.await;
        }));
        let fill =
            |text: &String| expand(text).replace("{upstream}", &upstream.address.to_string());
        let allowed = allowed.iter().map(|(name, text)| (name.clone(), fill(text))).collect();
        let wanted = Vec::new();
        Self { upstream, address, handle, certificate, allowed, wanted, stop, task }
    }

    /// On both listeners.
    async fn both(allowed: &BTreeMap<String, String>) -> [Self; 2] {
        let tls = Some(Certificate::new());
        [Self::start(None, allowed).await, Self::start(tls, allowed).await]
    }

    fn connector(&self, protocol: &str) -> Option<TlsConnector> {
        self.certificate.as_ref().map(|certificate| certificate.connector(protocol))
    }

    async fn connect(&self, connector: Option<&TlsConnector>) -> Box<dyn Stream> {
        match connector {
            None => Box::new(TcpStream::connect(self.address).await.unwrap()),
            Some(connector) => Box::new(secure::connect(connector, self.address).await),
        }
    }

    /// Exactly these arrived, after all those before.
    async fn assert_arrived(&mut self, names: &[String], label: &str) {
        self.wanted.extend(names.iter().map(|name| self.allowed[name].clone()));
        let count = self.wanted.len();
        let what = format!("{label}: {count} requests upstream");
        eventually(&what, || (self.upstream.seen().len() >= count).then_some(())).await;
        assert_eq!(self.upstream.seen(), self.wanted, "{label}");
    }

    async fn finish(self) {
        let Self { upstream, handle, wanted, stop, task, .. } = self;
        stop.send(()).unwrap();
        task.await.unwrap();
        assert_eq!(handle.connections(), 0);
        let seen = upstream.seen();
        assert_eq!(seen, wanted);
        assert!(!seen.concat().contains("hidden"));
    }
}

#[tokio::test]
async fn hostile_requests_of_http_1() {
    let corpus: Corpus = toml::from_str(CORPUS).unwrap();
    for mut target in Target::both(&corpus.allowed).await {
        let connector = target.connector("http/1.1");
        for request in &corpus.request {
            let raw = expand(&request.raw);
            for step in [raw.len(), 7] {
                if step == 7 && raw.len() > 10_000 {
                    continue;
                }
                let label = format!("{}, TLS: {}, step {step}", request.name, connector.is_some());
                let mut client = Client::new(target.connect(connector.as_ref()).await);
                for piece in raw.as_bytes().chunks(step) {
                    client.send(piece).await;
                    tokio::task::yield_now().await;
                }
                for status in &request.status {
                    let response = client.finish().await;
                    assert_eq!(response.status, *status, "{label}: {response:?}");
                }
                if !request.open {
                    let after = client.finish().await;
                    assert!(request.after.contains(&after.status), "{label}: {after:?}");
                    if after.status != 0 {
                        assert_eq!(client.finish().await.status, 0, "{label}");
                    }
                }
                target.assert_arrived(&request.upstream, &label).await;
            }
        }
        target.finish().await;
    }
}

/// Frames of HTTP/2, by hand.
mod frame {
    pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const CONTINUATION: u8 = 9;
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;

    pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// Headers without compression.
    pub(super) fn block(headers: &[(String, String)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in headers {
            block.push(0);
            for text in [name, value] {
                length(&mut block, text.len());
                block.extend(text.as_bytes());
            }
        }
        block
    }

    fn length(block: &mut Vec<u8>, length: usize) {
        let Some(mut rest) = length.checked_sub(127) else {
            block.push(u8::try_from(length).unwrap());
            return;
        };
        block.push(127);
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap());
    }

    /// A request as frames.
    pub(super) fn request(stream: u32, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
        let block = block(headers);
        let pieces: Vec<&[u8]> = block.chunks(16 << 10).collect();
        let mut frames = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            let end = if number + 1 == pieces.len() { END_HEADERS } else { 0 };
            let last = if number == 0 && body.is_empty() { END_STREAM } else { 0 };
            frames.extend(frame(kind, end | last, stream, piece));
        }
        if !body.is_empty() {
            frames.extend(frame(DATA, END_STREAM, stream, body));
        }
        frames
    }

    /// The status in a block of headers.
    pub(super) fn status(block: &[u8]) -> String {
        let mut block = block;
        while block.first().is_some_and(|byte| byte >> 5 == 1) {
            block = &block[1..];
        }
        let known = [(0x88, 200), (0x89, 204), (0x8c, 400), (0x8d, 404), (0x8e, 500)];
        if let Some((_, status)) = known.iter().find(|(byte, _)| *byte == block[0]) {
            return status.to_string();
        }
        let length = usize::from(block[1] & 127);
        let text = &block[2..2 + length];
        if block[1] & 128 == 0 {
            return String::from_utf8(text.to_vec()).unwrap();
        }
        let bits: Vec<u8> =
            text.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
        let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number * 2 + bit);
        let mut rest = &bits[..];
        let mut status = String::new();
        while status.len() < 3 {
            // Of the digits, 0 to 2 have five bits and the others six.
            let short = number(&rest[..5]);
            let (digit, taken) =
                if short < 3 { (short, 5) } else { (number(&rest[..6]) - 0b01_1001 + 3, 6) };
            status += &digit.to_string();
            rest = &rest[taken..];
        }
        status
    }
}

/// Reads frames until stream 1, or the connection, has its outcome.
async fn outcome(stream: &mut Box<dyn Stream>) -> String {
    let mut status = None;
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return "closed".to_owned();
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], number) {
            (frame::GOAWAY, _) => return "goaway".to_owned(),
            (frame::RST_STREAM, 1) => return status.unwrap_or_else(|| "reset".to_owned()),
            (frame::HEADERS, 1) => status = Some(frame::status(&payload)),
            _ => {}
        }
        let ends = matches!(head[3], frame::HEADERS | frame::DATA);
        if ends && number == 1 && head[4] & frame::END_STREAM != 0 {
            return status.unwrap();
        }
    }
}

#[tokio::test]
async fn hostile_requests_of_http_2() {
    let corpus: Corpus = toml::from_str(CORPUS).unwrap();
    for mut target in Target::both(&corpus.allowed).await {
        let connector = target.connector("h2");
        for request in &corpus.http2 {
            let label = format!("{}, TLS: {}", request.name, connector.is_some());
            let headers: Vec<_> =
                request.headers.iter().map(|(name, value)| (name.clone(), expand(value))).collect();
            let mut stream = target.connect(connector.as_ref()).await;
            let mut bytes = frame::PREFACE.to_vec();
            bytes.extend(frame::frame(frame::SETTINGS, 0, 0, &[]));
            bytes.extend(frame::request(1, &headers, expand(&request.body).as_bytes()));
            stream.write_all(&bytes).await.unwrap();
            stream.flush().await.unwrap();
            let came = tokio::time::timeout(EVER, outcome(&mut stream)).await;
            let came = came.unwrap_or_else(|_| panic!("a hang: {label}"));
            assert!(request.expect.contains(&came), "{label}: {came}");
            target.assert_arrived(&request.upstream, &label).await;
        }
        target.finish().await;
    }
}

/// Sends frames until the gateway ends the connection; false if it took in all of them.
async fn flood(stream: &mut Box<dyn Stream>, frames: impl Iterator<Item = Vec<u8>>) -> bool {
    for frame in frames {
        match tokio::time::timeout(EVER, stream.write_all(&frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return true,
            Err(_) => panic!("the gateway neither reads nor ends"),
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_are_bounded() {
    let corpus: Corpus = toml::from_str(CORPUS).unwrap();
    for mut target in Target::both(&corpus.allowed).await {
        let connector = target.connector("h2");
        let get: Vec<(String, String)> =
            corpus.http2.iter().find(|case| case.name == "te: trailers").unwrap().headers.clone();
        let reset = |stream: u32| {
            let mut frames = frame::request(stream, &get, &[]);
            frames.extend(frame::frame(frame::RST_STREAM, 0, stream, &[0, 0, 0, 8]));
            frames
        };
        let open = frame::frame(frame::HEADERS, 0, 1, &frame::block(&get));
        let more = frame::frame(frame::CONTINUATION, 0, 1, &[0; 16 << 10]);
        let endless = std::iter::once(open).chain(std::iter::repeat_n(more, 8_000));
        // The client reads nothing: who answers each of them must stop reading.
        let batch = |frame: Vec<u8>| std::iter::repeat_n(frame.repeat(1_000), 20_000);
        let pings = batch(frame::frame(frame::PING, 0, 0, &[0; 8]));
        let settings = batch(frame::frame(frame::SETTINGS, 0, 0, &[]));
        type Frames<'f> = Box<dyn Iterator<Item = Vec<u8>> + Send + 'f>;
        let floods: [(&str, bool, Frames<'_>); 4] = [
            ("rapid reset", false, Box::new((0..5_000).map(|number| reset(2 * number + 1)))),
            ("CONTINUATION", true, Box::new(endless)),
            ("PING", true, Box::new(pings)),
            ("SETTINGS", true, Box::new(settings)),
        ];
        for (name, must_end, frames) in floods {
            let mut stream = target.connect(connector.as_ref()).await;
            stream.write_all(frame::PREFACE).await.unwrap();
            stream.write_all(&frame::frame(frame::SETTINGS, 0, 0, &[])).await.unwrap();
            let ended = flood(&mut stream, frames).await;
            assert!(ended || !must_end, "{name}: the gateway took in everything");
            drop(stream);
        }
        // Others are served, and what was reset may or may not have arrived.
        let before = target.upstream.seen().len();
        assert!(target.upstream.seen().iter().all(|seen| *seen == target.allowed["models"]));
        let mut client = Client::new(target.connect(target.connector("http/1.1").as_ref()).await);
        client.send(client::request("/openai/v1/chat/completions", &[], BODY)).await;
        assert_eq!(client.finish().await.status, 200);
        drop(client);
        eventually("all gone", || (target.handle.connections() == 0).then_some(())).await;
        assert!(target.upstream.seen().len() > before);
        target.wanted = target.upstream.seen();
        target.finish().await;
    }
}
