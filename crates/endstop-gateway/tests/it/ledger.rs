//! The field of a test, a simulator and a gateway, and the three ledgers joined: what the upstream
//! sent, what the client received, what was told.
//!
//! - I1: exactly one ending is told of each request that was admitted.
//! - I2: no success is told, and no success is sent, that was not the upstream's.
//! - I3: what the client got is the beginning of what the upstream sent, and at most one error of
//!   ours after it.
//! - I4: the upstream is left soon after the client has left.
//! - I5: at the end no stream, no connection and no descriptor is left.
//! - I6: no secret is told anywhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use endstop::Profile;
use endstop::dialect::{ErrorEnd, Framing};
use endstop_gateway::config::{Log, Mode, NetworkLimits, ToolCalls, UpstreamConfig};
use endstop_gateway::disposition::{ResponseRules, failure};
use endstop_gateway::watch::recent::Wanted;
use endstop_gateway::watch::{self, GuardAction};
use endstop_gateway::{Config, Gateway, Handle};
use endstop_sim::scenario::{self, Delivery as Streamed};
use endstop_sim::{LedgerEntry, Options, ResponseEnd, Sim, SimWire, wire};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{self, Client, End, Response};

/// What stands in every secret of these tests, and nowhere else.
pub(crate) const CANARY: &str = "canary";

/// For what should be soon, on a machine that is busy: far below any limit of [`patient`].
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// For what comes at all.
pub(crate) const EVER: Duration = Duration::from_secs(60);

/// Limits that nothing reaches unless a test shortens one.
pub(crate) fn patient() -> NetworkLimits {
    let long = Duration::from_secs(300);
    NetworkLimits {
        connect: long,
        tls: long,
        first_byte: long,
        idle: long,
        total: long,
        client_write: long,
        client_read: long,
        keep_alive: long,
        proof: Duration::from_secs(2),
        drain: Duration::from_millis(200),
        ..NetworkLimits::default()
    }
}

/// A configuration on loopback with every wire's upstream at this address.
pub(crate) fn config(upstream: &str) -> Config {
    let mut config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        log: Log::Off,
        allow_looser: true,
        limits: patient(),
        ..Config::default()
    };
    for wire in wire::ALL {
        let base_url = Some(format!("{upstream}/{}", wire.route));
        let own = UpstreamConfig { base_url, ..UpstreamConfig::default() };
        config.upstreams.insert(wire.route.to_owned(), own);
    }
    config
}

/// Waits until this is so.
pub(crate) async fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(began.elapsed() < EVER, "never: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// A simulator, a gateway before it, and what was asked.
pub(crate) struct Field {
    pub(crate) sim: Sim,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) handle: Handle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    asked: AtomicUsize,
    admitted: AtomicUsize,
}

impl Field {
    pub(crate) async fn start() -> Arc<Self> {
        Self::with(|_| ()).await
    }

    /// With another configuration.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Arc<Self> {
        Self::on(Options { kept_bytes: 8 << 20, ..Options::default() }, change).await
    }

    /// With another simulator besides.
    pub(crate) async fn on(options: Options, change: impl FnOnce(&mut Config)) -> Arc<Self> {
        let sim = Sim::start(options).await.unwrap();
        let mut config = config(&sim.url());
        change(&mut config);
        let gateway = Gateway::bind(config).await.unwrap();
        let (address, admin) = (gateway.address(), gateway.admin_address().unwrap());
        let handle = gateway.handle();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(gateway.run(async move {
            let _ = stopped.await;
        }));
        Arc::new(Self {
            sim,
            address,
            admin,
            handle,
            stop,
            task,
            asked: AtomicUsize::new(0),
            admitted: AtomicUsize::new(0),
        })
    }

    /// A request that is admitted was sent by other means.
    pub(crate) fn admit(&self, count: usize) {
        self.admitted.fetch_add(count, Ordering::SeqCst);
    }

    pub(crate) fn tag(&self) -> String {
        format!("tag-{}", self.asked.fetch_add(1, Ordering::SeqCst))
    }

    /// Everything told so far, the newest first.
    pub(crate) fn told(&self) -> Vec<Arc<watch::EndingReport>> {
        self.handle.watch().find(&Wanted { limit: usize::MAX, ..Wanted::default() })
    }

    /// What is told of this id.
    pub(crate) async fn record(&self, id: &str) -> Arc<watch::EndingReport> {
        eventually(&format!("told of {id}"), || self.handle.watch().get(id)).await
    }

    /// So many were told.
    pub(crate) async fn told_all(&self, count: usize) -> Vec<Arc<watch::EndingReport>> {
        let what = format!("{count} told");
        eventually(&what, || Some(self.told()).filter(|told| told.len() >= count)).await
    }

    /// The upstream's side of a request, once it is over.
    pub(crate) async fn sent(&self, tag: &str) -> LedgerEntry {
        let over = |entry: &LedgerEntry| entry.ended != ResponseEnd::Open;
        eventually(&format!("{tag} over"), || self.sim.tagged(tag).filter(over)).await
    }

    /// The upstream's side of a request, once it has begun.
    pub(crate) async fn begun(&self, tag: &str) -> LedgerEntry {
        eventually(&format!("{tag} begun"), || self.sim.tagged(tag)).await
    }

    /// Asks, reads to the end and joins the ledgers.
    pub(crate) async fn ask(&self, ask: Ask) -> Exchange {
        let tag = self.tag();
        self.admit(1);
        let response = client::ask(self.address, ask.request(&tag)).await;
        self.join(ask, &tag, response).await
    }

    /// Joins the ledgers of a request.
    pub(crate) async fn join(&self, ask: Ask, tag: &str, response: Response) -> Exchange {
        let record = self.record(response.id()).await;
        let sent = self.sent(tag).await;
        let exchange = Exchange { ask, response, sent, record };
        exchange.check();
        exchange
    }

    /// Asks all of them at once.
    pub(crate) async fn ask_all(self: &Arc<Self>, request_shape: Vec<Ask>) -> Vec<Exchange> {
        let mut asking = tokio::task::JoinSet::new();
        let mut all = Vec::new();
        for ask in request_shape {
            let field = self.clone();
            asking.spawn(async move { field.ask(ask).await });
            if asking.len() >= 32 {
                all.push(asking.join_next().await.unwrap().unwrap());
            }
        }
        while let Some(one) = asking.join_next().await {
            all.push(one.unwrap());
        }
        all
    }

    /// A scenario on every wire that has it, streamed and plain, observed and guarded.
    pub(crate) async fn row(self: &Arc<Self>, scenario: &str) -> Vec<Exchange> {
        let all = self.ask_all(every(scenario)).await;
        assert!(!all.is_empty(), "{scenario}");
        all
    }

    /// Stops everything and looks for what is left of it.
    pub(crate) async fn finish(self: Arc<Self>) {
        let field = Self::alone(self).await;
        let Self { sim, handle, stop, task, admitted, admin, .. } = field;
        eventually("all streams gone", || (handle.streams() + handle.waiting() == 0).then_some(()))
            .await;
        let admitted = admitted.into_inner();
        let told = handle.watch();
        let all = Wanted { limit: usize::MAX, ..Wanted::default() };
        eventually("one told of each", || (told.find(&all).len() >= admitted).then_some(())).await;
        let mut pages = String::new();
        for path in ["/endstop/v1/endings?limit=1000", "/endstop/v1/upstreams"] {
            pages += &client::get(admin, path, "connection: close\r\n").await.text();
        }
        stop.send(()).unwrap();
        task.await.unwrap();
        let records = told.find(&all);
        assert_eq!(records.len(), admitted, "I1: one ending each");
        let mut ids: Vec<&str> = records.iter().map(|record| &*record.kept.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), admitted, "I1: ids are unique");
        let text = serde_json::to_string(&records.iter().map(|r| &**r).collect::<Vec<_>>());
        assert!(!text.unwrap().contains(CANARY), "I6: a secret was told");
        assert!(!pages.contains(CANARY), "I6: a secret is shown to operators");
        let left = || {
            (handle.streams() + handle.waiting() == 0 && handle.connections() == 0).then_some(())
        };
        eventually("all clients gone", left).await;
        drop((told, handle));
        eventually("all upstreams left", || (sim.open_connections() == 0).then_some(())).await;
        sim.stop().await;
    }

    /// Other tasks of the test may still hold it for a moment.
    async fn alone(mut field: Arc<Self>) -> Self {
        loop {
            match Arc::try_unwrap(field) {
                Ok(field) => return field,
                Err(shared) => field = shared,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// One question.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) wire: &'static SimWire,
    pub(crate) path: String,
    pub(crate) scenario: String,
    pub(crate) streamed: bool,
    pub(crate) mode: Mode,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The upstream ends it well; none where the scenario's own row says it.
    pub(crate) well: Option<bool>,
}

impl Ask {
    pub(crate) fn new(wire: &str, scenario: &str, mode: Mode) -> Self {
        let wire = SimWire::by_id(wire).unwrap();
        Self::at(wire, paths(wire, true).remove(0), scenario, true, mode)
    }

    fn at(
        wire: &'static SimWire,
        path: String,
        scenario: &str,
        streamed: bool,
        mode: Mode,
    ) -> Self {
        let prompt = if wire.id.ends_with("generate") { r#","prompt":"Hi""# } else { "" };
        let usage = r#","stream_options":{"include_usage":true}"#;
        let body =
            format!(r#"{{"model":"some-model","stream":{streamed},"messages":[]{prompt}{usage}}}"#);
        let scenario = scenario.to_owned();
        Self { wire, path, scenario, streamed, mode, headers: Vec::new(), body, well: None }
    }

    /// With another header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same request for a plain response.
    pub(crate) fn plain(self) -> Self {
        let path = format!("/{}{}", self.wire.route, self.wire.plain_path);
        let body = self.body.replace("\"stream\":true", "\"stream\":false");
        Self { streamed: false, path, body, ..self }
    }

    /// With a cap on its output, in every wire's field for it.
    pub(crate) fn capped(mut self, cap: u64) -> Self {
        let cap = format!(
            r#","max_tokens":{cap},"max_output_tokens":{cap},"options":{{"num_predict":{cap}}},"inferenceConfig":{{"maxTokens":{cap}}},"generationConfig":{{"maxOutputTokens":{cap}}}}}"#
        );
        self.body.pop();
        self.body += &cap;
        self
    }

    /// Answered by what was registered under this key.
    pub(crate) fn replay(self, key: &str, well: bool) -> Self {
        Self { well: Some(well), ..self.header("x-sim-replay", key) }
    }

    pub(crate) fn all_headers(&self, tag: &str) -> Vec<(String, String)> {
        let mode = match self.mode {
            Mode::Observe => "observe",
            Mode::Guard => "guard",
        };
        let fixed = [
            ("x-endstop-mode", mode),
            ("x-sim-scenario", &self.scenario),
            ("x-sim-tag", tag),
            ("authorization", "Bearer sk-canary-authorization"),
            ("x-api-key", "sk-canary-x-api-key"),
            ("x-goog-api-key", "sk-canary-goog"),
            ("cookie", "session=sk-canary-cookie"),
        ];
        let fixed = fixed.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        fixed.chain(self.headers.clone()).collect()
    }

    pub(crate) fn request(&self, tag: &str) -> String {
        client::request(&self.path, &self.all_headers(tag), &self.body)
    }

    pub(crate) fn profile(&self) -> &'static Profile {
        let path = self.wire.path.split('?').next().unwrap();
        self.wire.provider.wire_for_path(path).unwrap_or(&self.wire.provider.main)
    }

    fn streamed_mode(&self) -> Streamed {
        if self.streamed { Streamed::Streamed } else { Streamed::Plain }
    }

    /// What the scenario's row says of it.
    pub(crate) fn want(&self) -> Option<scenario::Want> {
        let (scenario, _) = scenario::parse(&self.scenario).unwrap();
        (scenario.want)(self.wire, self.streamed_mode())
    }

    fn ends_well(&self) -> bool {
        self.well.unwrap_or_else(|| self.want().is_some_and(|want| want.reason.is_success()))
    }

    /// Whether it is Gemini's array.
    pub(crate) fn is_array(&self) -> bool {
        self.streamed && self.wire.id == "gemini" && !self.path.contains("alt=sse")
    }
}

/// The paths of a wire at the gateway: streamed, and Gemini's array besides.
pub(crate) fn paths(wire: &SimWire, streamed: bool) -> Vec<String> {
    let path = if streamed { wire.path } else { wire.plain_path };
    let region = if wire.route == "bedrock" { "/us-east-1" } else { "" };
    let path = format!("/{}{region}{path}", wire.route);
    let array = path.strip_suffix("?alt=sse").map(|path| format!("{path}?key=sk-canary-query"));
    let keyed = if array.is_some() { path + "&key=sk-canary-query" } else { path };
    std::iter::once(keyed).chain(array).collect()
}

/// A scenario on every wire that has it, streamed and plain, observed and guarded.
pub(crate) fn every(scenario: &str) -> Vec<Ask> {
    let (row, _) = scenario::parse(scenario).unwrap();
    let mut request_shape = Vec::new();
    for wire in wire::ALL.iter().copied().filter(|wire| (row.on)(wire)) {
        for streamed in [true, false] {
            for path in paths(wire, streamed) {
                for mode in [Mode::Observe, Mode::Guard] {
                    request_shape.push(Ask::at(wire, path.clone(), scenario, streamed, mode));
                }
            }
        }
    }
    request_shape
}

/// A request and what the three sides know of it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) ask: Ask,
    pub(crate) response: Response,
    pub(crate) sent: LedgerEntry,
    pub(crate) record: Arc<watch::EndingReport>,
}

/// The rules of the default guard.
pub(crate) const STRICT: ResponseRules = ResponseRules {
    mode: Mode::Guard,
    tool_calls: ToolCalls::Gate,
    proves: true,
    background: false,
};

/// What clients take for a good end.
const TERMINALS: [&str; 8] = [
    "[DONE]",
    "message_stop",
    "response.completed",
    "\"done\":true",
    "messageStop",
    "\"COMPLETE\"",
    "\"finish_reason\":\"stop\"",
    "\"finishReason\":\"STOP\"",
];

fn count(bytes: &[u8], text: &str) -> usize {
    memchr::memmem::find_iter(bytes, text).count()
}

impl Exchange {
    pub(crate) fn is_guarded(&self) -> bool {
        self.ask.mode == Mode::Guard
    }

    pub(crate) fn label(&self) -> String {
        let Self { ask, record, response, .. } = self;
        format!(
            "{} {} {} streamed={} {:?}: HTTP {} {:?}, {:?}, {} ({})",
            ask.wire.id,
            ask.scenario,
            ask.path,
            ask.streamed,
            ask.mode,
            response.status,
            response.end,
            record.action,
            record.kept.cause,
            record.ending.sentence
        )
    }

    /// Whether the response was passed on as a stream, rather than judged before its head left.
    pub(crate) fn is_streamed(&self) -> bool {
        self.response.header("x-endstop-action").is_empty()
    }

    /// The error frame that the body ends with, if it does.
    pub(crate) fn error_frame(&self) -> Option<Vec<u8>> {
        let failure = failure(&self.record.ending, STRICT)?;
        let profile = self.ask.profile();
        let framings =
            [Framing::Sse, Framing::Lines, Framing::Array, Framing::Aws, Framing::AwsChunks];
        let frames = framings.into_iter().flat_map(|framing| {
            [true, false].map(|first| profile.error_frame(framing, first, &failure.gateway_error()))
        });
        frames.into_iter().find(|frame| self.response.body.ends_with(frame))
    }

    /// The body without an error at its end that is ours, or that stands in the place of a held call.
    pub(crate) fn relayed(&self) -> &[u8] {
        let error = match self.record.action {
            GuardAction::Failed => {
                self.error_frame().map_or_else(|| self.moved_error(), |frame| frame.len())
            }
            GuardAction::Passed | GuardAction::Warned | GuardAction::Refused => 0,
        };
        &self.response.body[..self.response.body.len() - error]
    }

    /// The length of the provider's own error, if a call that was held before it has not left.
    fn moved_error(&self) -> usize {
        let (got, sent) = (&self.response.body, &self.sent.body);
        if self.record.ending.fault.is_none() || sent.starts_with(got) {
            return 0;
        }
        let same = got.iter().zip(sent).take_while(|(a, b)| a == b).count();
        let is_error = |at: &usize| {
            self.is_whole(&got[..*at]) && memchr::memmem::find(&sent[*at..], &got[*at..]).is_some()
        };
        (0..=same).rev().find(is_error).map_or(0, |at| got.len() - at)
    }

    /// Reports whether a streamed failure is one that clients raise on: an aborted transport, the
    /// wire's error where that suffices, or the provider's own error.
    fn is_loud(&self) -> bool {
        let suffices = |framing| self.ask.profile().error_end(framing) == ErrorEnd::Clean;
        let told = self.error_frame().is_some() && suffices(self.ask.profile().framing);
        self.response.end != End::Clean || told || self.record.ending.fault.is_some()
    }

    /// A failure that the client must see: an error in the stream, or a transport that was aborted;
    /// an error's status where the head had not left.
    pub(crate) fn assert_loud(&self) {
        assert_eq!(self.record.action, GuardAction::Failed, "{}", self.label());
        if self.is_streamed() {
            assert!(self.is_loud(), "{}: {:?}", self.label(), self.tail());
        } else {
            assert!(self.response.status >= 400, "{}", self.label());
            assert_eq!(self.response.end, End::Clean, "{}", self.label());
        }
    }

    /// The same, and the error of ours is there.
    pub(crate) fn assert_told(&self) {
        self.assert_loud();
        if self.is_streamed() {
            assert!(self.error_frame().is_some(), "{}: {:?}", self.label(), self.tail());
        } else {
            assert!(self.response.text().contains("endstop"), "{}", self.label());
        }
    }

    /// Nothing was done about it: every byte as it came, and the end as it came.
    pub(crate) fn assert_untouched(&self, end: End) {
        assert_ne!(self.record.action, GuardAction::Failed, "{}", self.label());
        assert_eq!(self.response.status, self.sent.status, "{}", self.label());
        assert_eq!(self.response.end, end, "{}", self.label());
        assert!(self.response.body == self.sent.body, "{}: {:?}", self.label(), self.tail());
    }

    pub(crate) fn tail(&self) -> String {
        let body = &self.response.body;
        String::from_utf8_lossy(&body[body.len().saturating_sub(300)..]).into_owned()
    }

    /// I2 and I3.
    fn check(&self) {
        let Self { ask, response, sent, record } = self;
        let label = self.label();
        if record.ending.reason.is_success() {
            assert!(ask.ends_well(), "I2: a success was told: {label}");
        }
        for terminal in TERMINALS {
            let (got, had) = (count(&response.body, terminal), count(&sent.body, terminal));
            assert!(got <= had, "I2: {terminal} was made up: {label}");
        }
        assert_eq!(record.kept.mode, ask.mode.word(), "{label}");
        if !self.is_streamed() {
            return self.check_plain();
        }
        let relayed = self.relayed();
        assert!(sent.body.starts_with(relayed), "I3: {label}: {:?}", self.tail());
        if relayed.len() < response.body.len() {
            assert!(self.is_guarded(), "I3: an error in what is only observed: {label}");
            self.check_boundary(relayed);
        }
        match ask.mode {
            Mode::Observe => {
                let timed_out = matches!(record.ending.closed, endstop::Closed::TimedOut(_));
                if !timed_out {
                    assert!(sent.body == relayed, "I3: {label}: {:?}", self.tail());
                }
            }
            Mode::Guard => {
                let failed = record.action == GuardAction::Failed;
                let clean = response.end == End::Clean;
                assert!(clean || failed, "a good end is a clean one: {label}");
                assert!(!failed || self.is_loud(), "a failure is loud: {label}: {:?}", self.tail());
                if !failed {
                    assert!(sent.body == relayed, "I3: {label}: {:?}", self.tail());
                }
            }
        }
        assert_eq!(record.kept.delivered_bytes, response.body.len() as u64, "{label}");
    }

    fn check_plain(&self) {
        let Self { response, sent, record, .. } = self;
        let label = self.label();
        let same = response.body == sent.body;
        // More may have left the upstream before it saw that nobody waits any longer.
        let late = matches!(record.ending.closed, endstop::Closed::TimedOut(_));
        let same = same || late && sent.body.starts_with(&response.body);
        match response.header("x-endstop-action") {
            "passed" | "warned" => {
                assert_eq!(response.status, sent.status, "{label}");
                assert!(same, "I3: {label}: {:?}", self.tail());
                let clean = response.end == End::Clean;
                assert!(clean || !self.is_guarded(), "a good end is a clean one: {label}");
            }
            "failed" => {
                assert!(self.is_guarded() && response.status >= 400, "{label}");
                assert!(same || response.text().contains("endstop: "), "I3: {label}");
            }
            "refused" => assert!(response.text().contains("endstop: "), "{label}"),
            other => panic!("{other}: {label}"),
        }
        assert_eq!(response.header("x-endstop-action"), record.action.word(), "{label}");
        assert_eq!(response.header("x-endstop-reason"), record.ending.reason.name(), "{label}");
    }

    /// An error was put in only where a frame had ended.
    fn check_boundary(&self, relayed: &[u8]) {
        let label = self.label();
        assert!(self.is_whole(relayed), "an error inside of a frame: {label}: {:?}", self.tail());
    }

    /// Reports whether these are whole frames.
    fn is_whole(&self, relayed: &[u8]) -> bool {
        if relayed.is_empty() {
            return true;
        }
        match (self.ask.wire.id, self.ask.is_array()) {
            ("bedrock-converse" | "bedrock-invoke", _) => {
                let mut rest = relayed;
                while let Some(prefix) = rest.first_chunk::<4>() {
                    let size = u32::from_be_bytes(*prefix) as usize;
                    rest = rest.get(size..).unwrap_or(b"!");
                }
                rest.is_empty()
            }
            ("ollama" | "ollama-generate", _) => relayed.ends_with(b"\n"),
            (_, true) => {
                // Behind the closing bracket too: it is the abort that tells.
                let is_array =
                    |bytes: &[u8]| serde_json::from_slice::<Vec<serde_json::Value>>(bytes).is_ok();
                is_array(relayed) || is_array(&[relayed, b"]"].concat())
            }
            _ => [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"].iter().any(|end| relayed.ends_with(end)),
        }
    }
}

/// I4: the upstream is left soon after this time.
pub(crate) fn assert_left_soon(sent: &LedgerEntry, since: Instant) {
    assert_eq!(sent.ended, ResponseEnd::PeerClosed, "I4: {sent:?}");
    let took = sent.peer_closed_at.unwrap().saturating_duration_since(since);
    assert!(took < SOON, "I4: the upstream was left after {took:?}");
}

/// A client that has sent this request.
pub(crate) async fn begin(field: &Field, ask: &Ask, tag: &str) -> Client {
    field.admit(1);
    let mut client = Client::connect(field.address).await;
    client.send(ask.request(tag)).await;
    client
}
