//! Server: accepts connections, answers requests with scripts, keeps the ledger.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use endstop::hash::Fnv;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::answer::{self, Answer};
use crate::choose;
use crate::json::{Json, obj};
use crate::ledger::{Counted, Ledger, LedgerEntry, ResponseEnd};
use crate::memory::{Memory, Stored};
use crate::request::Request;
use crate::resume;
use crate::scenario;
use crate::scene::Scene;
use crate::script::{Chunks, Script, Step};
use crate::sim_request::{SimRequest, Way};
use crate::wire::{self, PathInfo, SimWire};
use crate::{Options, Reply, ReplyEnd, http1, http2};

/// State shared by all connections.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) ledger: Ledger,
    pub(crate) replies: Mutex<HashMap<String, Reply>>,
    /// Responses that the providers store.
    memory: Memory,
    requests: AtomicU64,
    scripted: AtomicUsize,
    /// Number of scenarios played of each list, by the tag and the model name or header with the list.
    played: Mutex<HashMap<(Option<String>, String), usize>>,
}

/// Request that is being answered.
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) script: Script,
}

impl Shared {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            ledger: Ledger::new(options.ledger_entries, options.kept_bytes),
            options,
            replies: Mutex::default(),
            memory: Memory::default(),
            requests: AtomicU64::new(0),
            scripted: AtomicUsize::new(0),
            played: Mutex::default(),
        }
    }

    /// Records that nothing more will be sent.
    pub(crate) fn stalled(&self, number: u64) {
        self.ledger.change(number, |entry| entry.stalled = true);
    }

    /// Records the end of a response and calls the log callback.
    pub(crate) fn over(&self, number: u64, ended: ResponseEnd) {
        let now = Instant::now();
        self.ledger.change(number, |entry| {
            if entry.ended == ResponseEnd::Open {
                entry.ended = ended;
                entry.finished = Some(now);
                entry.peer_closed_at = (ended == ResponseEnd::PeerClosed).then_some(now);
            }
        });
        if let (Some(log), Some(entry)) = (&self.options.log, self.ledger.get(number)) {
            log(&entry);
        }
    }

    /// Returns the script for this request and adds a ledger entry.
    pub(crate) fn answer(&self, request: Request) -> Job {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut entry = LedgerEntry {
            number,
            tag: request.header("x-sim-tag").map(str::to_owned),
            method: request.method.clone(),
            path: request.target.clone(),
            http: request.http,
            wire: "",
            model: String::new(),
            scenario: String::new(),
            streamed: false,
            headers: request.headers.clone(),
            request: Vec::new(),
            status: 0,
            body: Vec::new(),
            written: 0,
            hash: Fnv::default(),
            stalled: false,
            ended: ResponseEnd::Open,
            started: Instant::now(),
            finished: None,
            peer_closed_at: None,
        };
        let script = self.script(&request, &mut entry);
        if !script.silent {
            entry.status = script.status;
        }
        entry.request = request.body;
        entry.request.truncate(self.options.kept_bytes);
        self.ledger.add(entry);
        Job { number, script }
    }

    fn script(&self, request: &Request, entry: &mut LedgerEntry) -> Script {
        if let Some(key) = request.header("x-sim-replay") {
            entry.scenario = format!("replay {key}");
            let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
            return match replies.get(key) {
                Some(reply) => reply.script(),
                None => message(404, &format!("unknown replay key `{key}`")),
            };
        }
        if let Some(script) = self.own(request) {
            return script;
        }
        let path = request.path();
        if request.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
            return message(426, "WebSockets are not supported: use HTTP");
        }
        if let Some((wire, script)) = self.memory.answer(request) {
            entry.wire = wire;
            entry.scenario = "(stored response)".to_owned();
            entry.streamed = request.asks("stream=true") || path.ends_with("/stream");
            return self.cut(request, script);
        }
        match SimWire::for_path(path) {
            Some((wire, taken)) if request.method == "POST" => {
                entry.wire = wire.id;
                self.play(request, wire, &taken, entry)
            }
            Some((wire, _)) => {
                entry.wire = wire.id;
                message(405, &format!("{path} accepts only POST"))
            }
            None => no_such_path(path),
        }
    }

    /// Answers the simulator's own paths, token counts and lists of models.
    fn own(&self, request: &Request) -> Option<Script> {
        let path = request.path();
        if request.method == "DELETE" && path == "/sim/ledger" {
            self.ledger.clear();
            self.memory.clear();
            self.scripted.store(0, Ordering::SeqCst);
            self.played.lock().unwrap_or_else(PoisonError::into_inner).clear();
            return Some(json(200, &obj! { "cleared": true }));
        }
        if request.method == "POST" {
            return counted(request);
        }
        if request.method != "GET" && request.method != "HEAD" {
            return None;
        }
        let script = match path {
            "/" => Script::plain(200, "text/plain; charset=utf-8", WELCOME.as_bytes().to_vec()),
            "/sim/scenarios" => json(200, &scenarios()),
            "/sim/ledger" => json(200, &ledger(&self.ledger.all())),
            "/api/version" | "/ollama/api/version" => json(200, &obj! { "version": "0.13.3" }),
            _ => models(path)?,
        };
        Some(if request.method == "HEAD" { headless(script) } else { script })
    }

    fn play(
        &self,
        request: &Request,
        wire: &'static SimWire,
        taken: &PathInfo,
        entry: &mut LedgerEntry,
    ) -> Script {
        let body = request.json();
        let mut ask = SimRequest {
            number: entry.number,
            model: crate::sim_request::text(&body, "/model").to_owned(),
            streamed: body.get("stream").and_then(serde_json::Value::as_bool).unwrap_or(false),
            choices: 1,
            wanted: self.options.tools.clone(),
            command: self.options.command.clone(),
            ..SimRequest::default()
        };
        (wire.read)(&body, &mut ask);
        if let Some(model) = &taken.model {
            ask.model.clone_from(model);
        }
        if let Some(streamed) = taken.streamed {
            ask.streamed = streamed;
            ask.array = streamed && wire.has_arrays() && !request.asks("alt=sse");
        }
        if let Some(refers) = wire.refers.filter(|_| ask.streamed && !request.accepts_events()) {
            let host = request.header("host").unwrap_or_default();
            ask.stream_url = Some(format!("http://{host}{}", refers(request.path(), &ask)));
            ask.stored = true;
        }
        entry.streamed = ask.streamed;
        entry.model.clone_from(&ask.model);
        let mut scene = Scene { wire, ask, value: None };
        if !body.is_object() {
            return scene.error(400, "invalid request body: expected a JSON object");
        }
        if scene.ask.streamed && !wire.streams {
            return scene.error(400, "The model is unsupported for streaming.");
        }
        if let Err(script) = self.read_continuation(request, &body, &mut scene) {
            entry.scenario = "(rejected)".to_owned();
            return script;
        }
        if !scene.ask.is_for_tools() {
            entry.scenario = "complete (no tool to call)".to_owned();
            return self.cut(request, scene.whole(&answer::short(&scene.ask)));
        }
        let played = |list: &str| self.played(entry.tag.as_deref(), list);
        let script = || self.next_of_script();
        let chosen = match choose::choose(request, &scene.ask.model, script, played) {
            Ok(chosen) => chosen,
            Err(message) => {
                entry.scenario = "?".to_owned();
                return scene.error(404, &message);
            }
        };
        entry.scenario.clone_from(&chosen.text);
        let scenario = chosen.scenario;
        if !(scenario.on)(wire) {
            let message = format!("scenario `{}` is not available on this wire", scenario.name);
            return scene.error(400, &message);
        }
        scene.value = chosen.value.as_deref().or(scenario.value.map(|value| value.example));
        if scene.ask.after_tool && !chosen.insists {
            entry.scenario.push_str(" (tool result: complete)");
            let answer = answer::short(&scene.ask);
            let script = scene.whole(&answer);
            return self.cut(request, self.kept(&scene, answer, script));
        }
        if let Some(list) = chosen.list {
            self.played_one(entry.tag.as_deref(), list);
        }
        let mut answer = answer::natural(&scene.ask);
        (scenario.shape)(&scene, &mut answer);
        if scene.ask.way == Way::Echoed {
            answer.each(|choice| choice.text.insert(0, scene.ask.said.clone()));
        }
        let script = if scene.ask.no_tools && answer.has_calls() {
            entry.scenario.push_str(" (no tools allowed: complete)");
            answer = answer::short(&scene.ask);
            scene.whole(&answer)
        } else {
            (scenario.play)(&scene, &answer)
        };
        self.cut(request, self.kept(&scene, answer, script))
    }

    /// Finds the answer that the request continues. Fails with the provider's error if the real
    /// model would reject the request.
    fn read_continuation(
        &self,
        request: &Request,
        body: &serde_json::Value,
        scene: &mut Scene<'_>,
    ) -> Result<(), Script> {
        if let Some(id) = scene.ask.previous.clone() {
            let Some(text) = self.memory.text_of(&id) else {
                let message = format!("Previous response with id '{id}' not found.");
                return Err(scene.error(400, &message));
            };
            if scene.ask.said.is_empty() {
                scene.ask.said = text;
                scene.ask.way = Way::Remembered;
            }
        }
        let host = resume::host(scene.wire, request.path());
        let read = resume::read(scene.wire, host, body, &mut scene.ask);
        read.map_err(|message| scene.error(400, message))
    }

    /// Stores the response if its provider does, and returns the script to play now: one that is
    /// made in the background is polled later.
    fn kept(&self, scene: &Scene<'_>, answer: Answer, script: Script) -> Script {
        let Some(prefix) = scene.wire.remembers.filter(|_| scene.ask.stored) else {
            return script;
        };
        let ask = &scene.ask;
        let polled = ask.background && !ask.streamed && script.status == 200;
        let referred = ask.stream_url.is_some() && script.status == 200;
        let before = if ask.way == Way::New { "" } else { &ask.said };
        let (now, later) = if polled {
            let queued = wire::pending(ask, "queued").to_string();
            (scene.body(queued.into_bytes()), Some(script))
        } else if referred {
            (scene.plain(&answer), Some(script))
        } else {
            (script, None)
        };
        self.memory.add(Stored {
            id: ask.id(prefix),
            text: format!("{before}{}", answer.first_choice().text.concat()),
            wire: scene.wire,
            ask: SimRequest { stream_url: None, ..ask.clone() },
            answer,
            script: later,
            polls: u8::from(polled),
            cancelled: false,
        });
        now
    }

    /// Applies the pace and the chunking of the request, or else of the options.
    fn cut(&self, request: &Request, mut script: Script) -> Script {
        let pace = request.header("x-sim-pace").and_then(|value| value.parse().ok());
        script.paced(pace.map_or(self.options.pace, Duration::from_millis));
        let chunks = request.header("x-sim-chunks").and_then(Chunks::from_name);
        let seed = request.header("x-sim-seed").and_then(|value| value.parse().ok()).unwrap_or(1);
        script.recut(chunks.unwrap_or(self.options.chunks), seed);
        script
    }

    /// Returns how many scenarios of this list were played for this tag.
    fn played(&self, tag: Option<&str>, list: &str) -> usize {
        let played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        played.get(&(tag.map(str::to_owned), list.to_owned())).copied().unwrap_or_default()
    }

    fn played_one(&self, tag: Option<&str>, list: String) {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        *played.entry((tag.map(str::to_owned), list)).or_default() += 1;
    }

    /// Returns the next name of the script; the last one repeats.
    fn next_of_script(&self) -> Option<String> {
        let at = self.scripted.fetch_add(1, Ordering::SeqCst);
        let names = &self.options.scenarios;
        names.get(at).or(names.last()).cloned()
    }
}

/// Accepts connections until its task is aborted.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
                // Most likely out of file descriptors: wait for others to close.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _counted = Counted::new(&shared.ledger);
    let _nodelay = stream.set_nodelay(true);
    match is_http2(&stream).await {
        Ok(true) => http2::serve(stream, Arc::clone(&shared)).await,
        Ok(false) => http1::serve(stream, &shared).await,
        Err(_) => {}
    }
}

/// Reports whether the connection begins with the HTTP/2 preface.
async fn is_http2(stream: &TcpStream) -> std::io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut start = [0; PREFACE.len()];
    loop {
        let size = stream.peek(&mut start).await?;
        let seen = start.get(..size).unwrap_or_default();
        if size == 0 || !PREFACE.starts_with(seen) {
            return Ok(false);
        }
        if size == PREFACE.len() {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

impl Reply {
    fn script(&self) -> Script {
        let steps = self.body.iter().cloned().map(Step::Bytes).collect();
        let headers = self.headers.clone();
        let plain = Script::plain(self.status, "", Vec::new());
        let mut script = Script { headers, steps, length: None, ..plain };
        if self.sized {
            script.length = Some(script.bytes().len() as u64);
        }
        match self.end {
            ReplyEnd::Whole => script,
            ReplyEnd::Fin => script.ending(crate::script::ScriptEnd::Fin),
            ReplyEnd::Reset => script.ending(crate::script::ScriptEnd::Reset),
            ReplyEnd::Stall => script.then(Step::Stall),
        }
    }
}

const WELCOME: &str = "\
endstop sim: simulated LLM providers for testing how responses end.

GET /sim/scenarios   all scenarios
GET /sim/ledger      received requests and sent responses
Choose a scenario with the header `x-sim-scenario` or the model name, such as `length` or
`claude-haiku-4-5:length`.
";

fn json(status: u16, value: &Json) -> Script {
    Script::plain(status, "application/json", value.to_string().into_bytes())
}

fn message(status: u16, text: &str) -> Script {
    json(status, &obj! { "error": obj! { "message": text, "type": "endstop_sim", "code": status } })
}

fn headless(script: Script) -> Script {
    let length = script.length;
    Script { length, steps: Vec::new(), ..script }
}

fn no_such_path(path: &str) -> Script {
    let paths: Vec<String> =
        wire::every().map(|wire| format!("/{}{}", wire.route, wire.path)).collect();
    message(404, &format!("unknown path {path}; try one of {}", paths.join(", ")))
}

/// Answers the token count requests of SDKs.
fn counted(request: &Request) -> Option<Script> {
    let path = request.path();
    let words = crate::sim_request::words(&request.json());
    if path.ends_with("/messages/count_tokens") {
        return Some(json(200, &obj! { "input_tokens": words }));
    }
    path.ends_with(":countTokens").then(|| json(200, &obj! { "totalTokens": words }))
}

/// Answers requests for models; the scenario names are the models.
fn models(path: &str) -> Option<Script> {
    let (first, rest) = wire::split_first(path);
    let (wire, rest) = match wire::ALL.iter().find(|wire| wire.route == first) {
        Some(wire) => (*wire, rest),
        None if first == "api" => (SimWire::by_id("ollama")?, path),
        None if first == "v1beta" => (SimWire::by_id("gemini")?, path),
        None => (SimWire::by_id("openai-chat")?, path),
    };
    if rest.ends_with("/models") || rest.ends_with("/api/tags") || rest == "/foundation-models" {
        return Some(json(200, &(wire.models)()));
    }
    let (_, name) = rest.split_once("/models/")?;
    Some(json(200, &obj! { "id": name, "name": name, "object": "model", "type": "model" }))
}

fn scenarios() -> Json {
    let one = |scenario: &scenario::Scenario| {
        let wires = wire::every().filter(|wire| (scenario.on)(wire));
        let wires: Vec<Json> = wires.map(|wire| Json::from(wire.id)).collect();
        obj! {
            "name": scenario.name, "value": scenario.value.map(|value| value.name),
            "about": scenario.about, "source": scenario.source, "wires": wires,
        }
    };
    let all: Vec<Json> = scenario::ALL.iter().map(one).collect();
    obj! { "scenarios": all }
}

fn ledger(entries: &[LedgerEntry]) -> Json {
    let one = |entry: &LedgerEntry| {
        let names: Vec<Json> = entry.headers.iter().map(|(name, _)| Json::from(name)).collect();
        obj! {
            "number": entry.number, "tag": entry.tag.clone(), "method": &entry.method,
            "path": public_path(&entry.path), "http": usize::from(entry.http), "wire": entry.wire,
            "model": &entry.model, "scenario": &entry.scenario, "streamed": entry.streamed, "status": entry.status,
            "headers": names, "bytes": entry.written, "hash": format!("{:016x}", entry.hash.value()),
            "ended": ended_word(entry.ended), "milliseconds": entry.took().as_millis() as f64,
        }
    };
    obj! { "entries": entries.iter().map(one).collect::<Vec<_>>() }
}

/// Returns the path without its query, which may hold API keys.
fn public_path(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

fn ended_word(ended: ResponseEnd) -> &'static str {
    match ended {
        ResponseEnd::Open => "open",
        ResponseEnd::Itself => "itself",
        ResponseEnd::PeerClosed => "peer_closed",
        ResponseEnd::Stopped => "stopped",
    }
}
