//! What is well passes byte for byte: every scenario and every recorded stream, in any cutting, by
//! HTTP/1.1 and HTTP/2.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use endstop::provider;
use endstop::registry::{Clues, choose};
use endstop_gateway::config::{Log, Mode, UpstreamConfig};
use endstop_gateway::watch::{self, GuardAction, Watch};
use endstop_gateway::{Config, Gateway, Handle};
use endstop_sim::scenario::{self, Delivery as Asking};
use endstop_sim::{LedgerEntry, Options, Reply, ReplyEnd, ResponseEnd, Sim, wire};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use tokio::task::JoinSet;

type Http = Client<HttpConnector, Full<Bytes>>;

/// A gateway in front of the simulator, for every provider.
struct Front {
    url: String,
    told: Arc<Watch>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Front {
    async fn start(sim: &Sim, mode: Mode, h2c: bool) -> Self {
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            admin: None,
            mode,
            log: Log::Off,
            keep: 100_000,
            ..Config::default()
        };
        for provider in provider::ALL {
            let simulated = wire::ALL.iter().any(|wire| wire.route == provider.route);
            let prefix = if simulated { format!("/{}", provider.route) } else { String::new() };
            let upstream = UpstreamConfig {
                base_url: Some(format!("{}{prefix}", sim.url())),
                h2c,
                proves_end: Some(true),
                ..UpstreamConfig::default()
            };
            config.upstreams.insert(provider.route.to_owned(), upstream);
        }
        let gateway = Gateway::bind(config).await.unwrap();
        let url = format!("http://{}", gateway.address());
        let handle: Handle = gateway.handle();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        tokio::spawn(gateway.run(async {
            let _ = stopped.await;
        }));
        Self { url, told: handle.watch(), _stop: stop }
    }
}

/// What a client got.
#[derive(Debug)]
struct Got {
    bytes: Vec<u8>,
    clean: bool,
    id: String,
}

async fn get(http: &Http, url: String, headers: &[(&str, &str)], body: &str) -> Got {
    let mut request = Request::post(url).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::from(body.to_owned())).unwrap();
    let response = match http.request(request).await {
        Ok(response) => response,
        // No ending has this id: only a reset, which can overtake the head, may end like this.
        Err(error) => {
            let id = format!("no response to {headers:?}: {error:?}");
            return Got { bytes: Vec::new(), clean: false, id };
        }
    };
    let id = response.headers().get("x-endstop-id").map(|id| id.to_str().unwrap().to_owned());
    let mut body = response.into_body();
    let (mut bytes, mut clean) = (Vec::new(), true);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Err(_) => {
                clean = false;
                break;
            }
        }
    }
    Got { bytes, clean, id: id.unwrap_or_default() }
}

async fn told(told: &Watch, id: &str) -> Arc<watch::EndingReport> {
    for _ in 0..12_000 {
        if let Some(record) = told.get(id) {
            return record;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no ending was told of {id}");
}

/// What the simulator sent, once it has sent it all.
async fn sent(sim: &Sim, tag: &str, got: &Got) -> LedgerEntry {
    for _ in 0..12_000 {
        if let Some(entry) = sim.tagged(tag).filter(|entry| entry.ended != ResponseEnd::Open) {
            return entry;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{tag}: never came, or never ended: {}", String::from_utf8_lossy(&got.bytes));
}

fn clients() -> [(&'static str, Http); 2] {
    let plain = Client::builder(TokioExecutor::new()).build_http();
    let h2 = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    [("HTTP/1.1", plain), ("HTTP/2", h2)]
}

/// A stall never ends by itself, and these answer with more than a test should move.
const LONG: &[&str] = &["drip", "no-headers", "no-newline", "huge-event", "deep-json"];

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario() {
    let sim = Arc::new(Sim::start(Options::default()).await.unwrap());
    let mut fronts = Vec::new();
    for mode in [Mode::Observe, Mode::Guard] {
        for h2c in [false, true] {
            fronts.push((mode, h2c, Arc::new(Front::start(&sim, mode, h2c).await)));
        }
    }
    let mut checks = JoinSet::new();
    let mut count = 0;
    for (mode, h2c, front) in &fronts {
        for (by, http) in clients() {
            // Both sides by HTTP/1.1, both by HTTP/2.
            if (by == "HTTP/2") != *h2c {
                continue;
            }
            for wire in wire::ALL.iter().copied() {
                for scenario in scenario::ALL.iter().filter(|scenario| (scenario.on)(wire)) {
                    if LONG.contains(&scenario.name) || scenario.name.starts_with("stall") {
                        continue;
                    }
                    for asking in [Asking::Streamed, Asking::Plain] {
                        count += 1;
                        let (sim, front, http, mode) =
                            (sim.clone(), front.clone(), http.clone(), *mode);
                        let tag = format!("{mode:?} {by} {} {} {asking:?}", wire.id, scenario.name);
                        checks.spawn(async move {
                            check_scenario(&sim, &front, &http, mode, wire, scenario, asking, &tag)
                                .await;
                        });
                        if checks.len() > 24 {
                            checks.join_next().await.unwrap().unwrap();
                        }
                    }
                }
            }
        }
    }
    while let Some(check) = checks.join_next().await {
        check.unwrap();
    }
    println!("{count} scenarios");
    assert!(count > 1500, "{count}");
}

#[expect(clippy::too_many_arguments, reason = "one case of a matrix")]
async fn check_scenario(
    sim: &Sim,
    front: &Front,
    http: &Http,
    mode: Mode,
    wire: &endstop_sim::SimWire,
    scenario: &endstop_sim::Scenario,
    asking: Asking,
    tag: &str,
) {
    let path = match asking {
        Asking::Streamed => wire.path,
        Asking::Plain => wire.plain_path,
    };
    let example = scenario.value.map(|value| format!("={}", value.example)).unwrap_or_default();
    let name = format!("{}{example}", scenario.name);
    let headers =
        [("x-sim-scenario", name.as_str()), ("x-sim-tag", tag), ("x-sim-chunks", "random")];
    let streamed = asking == Asking::Streamed;
    let body = format!(r#"{{"model":"m","stream":{streamed},"messages":[],"prompt":"Hi"}}"#);
    let region = if wire.route == "bedrock" { "/us-east-1" } else { "" };
    let url = format!("{}/{}{region}{path}", front.url, wire.route);
    let got = get(http, url, &headers, &body).await;
    let sent = sent(sim, tag, &got).await;
    let text = String::from_utf8_lossy;
    // A reset drops what is on its way: the rest of the bytes may never arrive, nor the head. HTTP/2 has
    // no other way to end a body before its end.
    let want = (scenario.want)(wire, asking);
    let is_whole = want.as_ref().is_some_and(|want| want.reason.is_success());
    let resets = scenario.name.starts_with("reset") || tag.contains("HTTP/2") && !is_whole;
    if resets && text(&got.bytes).contains("endstop_no_answer") {
        // It overtook the head on its way to the gateway.
        return;
    }
    if mode == Mode::Observe && resets && !got.clean {
        assert!(sent.body.starts_with(&got.bytes), "{tag}");
        return;
    }
    assert!(!(mode == Mode::Observe && scenario.name.starts_with("reset")), "{tag}: a clean end");
    let record = told(&front.told, &got.id).await;
    if mode == Mode::Observe {
        assert_eq!(text(&got.bytes), text(&sent.body), "{tag}");
        assert_eq!(record.action, GuardAction::Passed, "{tag}");
    }
    if is_whole && record.ending.reason.is_success() {
        assert_eq!((record.action, got.clean), (GuardAction::Passed, true), "{tag}: {record:?}");
        assert_eq!(text(&got.bytes), text(&sent.body), "{tag}");
    }
    if record.action == GuardAction::Passed && record.kept.status < Some(400) {
        assert_eq!(text(&got.bytes), text(&sent.body), "{tag}: {record:?}");
    }
    if record.action == GuardAction::Failed && streamed && record.kept.status == Some(200) {
        let same = got.bytes.iter().zip(&sent.body).take_while(|(one, other)| one == other).count();
        let told = String::from_utf8_lossy(&got.bytes[same.min(got.bytes.len())..]).into_owned();
        assert!(told.len() < 2000, "{tag}: {told}");
    }
}

#[derive(Deserialize)]
struct Recording {
    id: String,
    provider: Option<String>,
    api: String,
    host: Option<String>,
    url_path: Option<String>,
    stream: bool,
    status: Option<u16>,
    content_type: Option<String>,
    encoding: String,
    body: String,
}

/// How many recorded streams are passed, unless `ENDSTOP_ALL=1` asks for all of them.
const STREAMS: usize = 1500;

/// The streamed recordings of the folders that `ENDSTOP_RECORDINGS` names, separated by `:`; none where
/// it is not set. One in so many, always the same ones, that there are not too many for every run.
fn recordings() -> Vec<Recording> {
    let named = std::env::var_os("ENDSTOP_RECORDINGS").unwrap_or_default();
    let folders = std::env::split_paths(&named).filter(|folder| !folder.as_os_str().is_empty());
    let all: Vec<Recording> = folders.flat_map(|folder| streams_of(&folder)).collect();
    let everything = std::env::var_os("ENDSTOP_ALL").is_some_and(|value| value == "1");
    let step = if everything { 1 } else { all.len().div_ceil(STREAMS).max(1) };
    all.into_iter().step_by(step).collect()
}

fn streams_of(folder: &Path) -> Vec<Recording> {
    assert!(
        folder.is_dir(),
        "ENDSTOP_RECORDINGS names `{}`, which is not a folder",
        folder.display()
    );
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".jsonl.gz"));
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let reader = flate2::read::MultiGzDecoder::new(std::fs::File::open(file).unwrap());
        for line in BufReader::new(reader).lines() {
            let recording: Recording = serde_json::from_str(&line.unwrap()).unwrap();
            if recording.stream {
                all.push(recording);
            }
        }
    }
    all
}

impl Recording {
    fn bytes(&self) -> Vec<u8> {
        match self.encoding.as_str() {
            "base64" => base64::engine::general_purpose::STANDARD.decode(&self.body).unwrap(),
            _ => self.body.clone().into_bytes(),
        }
    }

    /// The path at the gateway that is read by the wire which this came on.
    fn path(&self, bytes: &[u8]) -> (String, bool) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let wire = choose(&Clues {
            provider: &text(&self.provider),
            dialect: if self.api == "mistral-chat" { "openai-chat" } else { &self.api },
            host: &text(&self.host),
            path: &text(&self.url_path),
            body: bytes,
            ..Clues::default()
        });
        let provider = provider::by_id(wire.provider()).unwrap_or(provider::GENERIC);
        let pattern = wire.profile.paths.first().copied().unwrap_or("/chat/completions");
        let path = pattern.replace('*', "x/stream");
        let slash = if path.starts_with('/') { "" } else { "/" };
        let region = if provider.route == "bedrock" { "/us-east-1" } else { "" };
        let read = provider.wire_for_path(&path).is_some();
        (format!("/{}{region}{slash}{path}", provider.route), read)
    }
}

/// A number that looks random and is the same each time.
fn dice(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    usize::try_from(*seed % 1_000_003).unwrap()
}

fn random_pieces(bytes: &[u8], seed: &mut u64) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    let most = [3, 40, 700, 5000, 100_000][dice(seed) % 5].max(bytes.len() / 200);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + dice(seed) % most).min(rest.len()));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_stream() {
    let recordings = recordings();
    let options = Options { kept_bytes: 0, ledger_entries: 10, ..Options::default() };
    let sim = Arc::new(Sim::start(options).await.unwrap());
    let mut fronts = Vec::new();
    for mode in [Mode::Observe, Mode::Guard] {
        for h2c in [false, true] {
            fronts.push((h2c, mode, Arc::new(Front::start(&sim, mode, h2c).await)));
        }
    }
    let [(_, http1), (_, http2)] = clients();
    let mut checks = JoinSet::new();
    let mut seed = 0x2545_f491_4f6c_dd1d;
    let (mut count, mut unread) = (0_usize, 0_usize);
    for (number, recording) in recordings.iter().enumerate() {
        let bytes = recording.bytes();
        let (path, read) = recording.path(&bytes);
        unread += usize::from(!read);
        let status = recording.status.filter(|status| *status >= 100).unwrap_or(200);
        let content_type = recording.content_type.clone().unwrap_or("text/event-stream".to_owned());
        let reply = Reply {
            status,
            headers: vec![("content-type".to_owned(), content_type)],
            body: random_pieces(&bytes, &mut seed),
            sized: false,
            end: ReplyEnd::Whole,
        };
        sim.replay(recording.id.clone(), reply);
        for (h2c, mode, front) in &fronts {
            // HTTP/2 costs more and differs less: one in four.
            if *h2c && number % 4 != 0 {
                continue;
            }
            let http = if *h2c { http2.clone() } else { http1.clone() };
            count += 1;
            let (front, bytes, id, mode) =
                (front.clone(), bytes.clone(), recording.id.clone(), *mode);
            let url = format!("{}{path}", front.url);
            checks.spawn(async move {
                let headers = [("x-sim-replay", id.as_str())];
                let got = get(&http, url, &headers, r#"{"stream":true,"model":"m"}"#).await;
                check_recording(&front, mode, &got, &bytes, &id, read).await;
            });
            if checks.len() > 16 {
                checks.join_next().await.unwrap().unwrap();
            }
        }
    }
    while let Some(check) = checks.join_next().await {
        check.unwrap();
    }
    println!("{count} passes of {} recorded streams", recordings.len());
    assert!(unread * 100 <= recordings.len(), "{unread} streams were passed on unread");
}

async fn check_recording(front: &Front, mode: Mode, got: &Got, bytes: &[u8], id: &str, read: bool) {
    let same = got.bytes == bytes && got.clean;
    if mode == Mode::Observe {
        let at = got.bytes.iter().zip(bytes).take_while(|(one, other)| one == other).count();
        let (length, clean) = (got.bytes.len(), got.clean);
        assert!(same, "{id}: changed in observe at {at}: {length} of {}, {clean}", bytes.len());
        return;
    }
    if !read {
        assert!(same, "{id}: changed, though nobody reads it");
        return;
    }
    let record = told(&front.told, &got.id).await;
    if record.ending.reason.is_success() {
        assert_eq!(record.action, GuardAction::Passed, "{id}: {record:?}");
    }
    match record.action {
        GuardAction::Passed => assert!(same, "{id}: changed in guard: {record:?}"),
        GuardAction::Warned | GuardAction::Failed | GuardAction::Refused => {
            let why = record.ending.reason;
            assert!(!why.is_success(), "{id}: {record:?}");
        }
    }
}
