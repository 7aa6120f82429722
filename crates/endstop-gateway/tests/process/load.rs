//! Clients that ask, and what they saw: of which responses the end, of which only the head.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use endstop_sim::SimWire;
use endstop_sim::scenario::{self, Delivery};
use endstop_store::{Filter, Period, Query, open_to_read};
use tokio::net::TcpStream;

use crate::client::{self, Client, End, Response};

/// One question.
#[derive(Clone)]
pub(crate) struct Ask {
    wire: &'static SimWire,
    scenario: &'static str,
    streamed: bool,
    mode: &'static str,
    /// Our reason for how it ends.
    pub(crate) reason: &'static str,
}

/// How frames with the word begin, by the wire, and how they end.
const WORDS: [(&str, &str, &str); 5] = [
    ("openai-chat", "\"finish_reason\":\"", "\n\n"),
    ("openai-responses", "data: {\"type\":\"response.completed\"", "\n\n"),
    ("anthropic", "\"stop_reason\":\"", "\n\n"),
    ("gemini", "\"finishReason\":\"", "\r\n\r\n"),
    ("ollama", "\"done\":true", "\n"),
];

const SCENARIOS: [&str; 8] = [
    "complete",
    "length",
    "tool-call",
    "content-filter",
    "refusal",
    "cut-before-word",
    "reset",
    "error-late",
];

/// Every question there is.
pub(crate) fn all() -> Vec<Ask> {
    let mut request_shape = Vec::new();
    for (wire, ..) in WORDS {
        let wire = SimWire::by_id(wire).unwrap();
        for name in SCENARIOS {
            let (row, _) = scenario::parse(name).unwrap();
            if !(row.on)(wire) {
                continue;
            }
            for (streamed, mode) in
                [(true, "guard"), (true, "observe"), (true, "guard"), (false, "guard")]
            {
                let as_streamed = if streamed { Delivery::Streamed } else { Delivery::Plain };
                let Some(want) = (row.want)(wire, as_streamed) else { continue };
                let reason = want.reason.name();
                request_shape.push(Ask { wire, scenario: name, streamed, mode, reason });
            }
        }
    }
    request_shape
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { wire, scenario, streamed, mode, reason } = self;
        write!(formatter, "{} {scenario} streamed={streamed} {mode}: {reason}", wire.id)
    }
}

impl Ask {
    /// A stream of this wire that ends like this.
    pub(crate) fn new(wire: &str, scenario: &'static str) -> Self {
        let wire = SimWire::by_id(wire).unwrap();
        let (row, _) = scenario::parse(scenario).unwrap();
        let reason = (row.want)(wire, Delivery::Streamed).unwrap().reason.name();
        Self { wire, scenario, streamed: true, mode: "guard", reason }
    }

    /// A plain response of this wire that ends like this.
    pub(crate) fn plain(wire: &str, scenario: &'static str) -> Self {
        Self { streamed: false, ..Self::new(wire, scenario) }
    }

    /// The same, with another end.
    pub(crate) fn ending(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }

    pub(crate) fn request(&self) -> String {
        let Self { wire, scenario, streamed, mode, .. } = self;
        let path = if *streamed { wire.path } else { wire.plain_path };
        let headers = [("x-endstop-mode", *mode), ("x-sim-scenario", scenario)];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = format!(r#"{{"model":"some-model","stream":{streamed},"messages":[]}}"#);
        client::request(&format!("/{}{path}", wire.route), &headers, &body)
    }

    /// Sends it; none where nobody listens.
    pub(crate) async fn send(&self, to: SocketAddr) -> Option<Client> {
        let mut client = Client::new(TcpStream::connect(to).await.ok()?);
        client.send(self.request()).await;
        Some(client)
    }

    /// Asks, and reads to the end; none where nobody listens.
    pub(crate) async fn ask(&self, to: SocketAddr) -> Option<Response> {
        Some(self.send(to).await?.finish().await)
    }

    /// Whether a client that got this has seen how the response ends.
    pub(crate) fn is_seen(&self, response: &Response) -> bool {
        if response.end == End::Clean {
            return true;
        }
        if !self.streamed {
            return false;
        }
        let body = response.text();
        let frame = WORDS.iter().find(|(wire, ..)| *wire == self.wire.id);
        let word = frame.is_some_and(|(_, word, end)| {
            body.split_once(word).is_some_and(|(_, rest)| rest.contains(end))
        });
        word || body.contains("endstop: ")
    }
}

/// What clients saw, by the id of the response.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Requests that were sent.
    pub(crate) asked: u64,
    /// Responses whose head came: what was asked, and whether the end came too.
    pub(crate) heads: BTreeMap<String, (Ask, bool)>,
    /// Responses of the gateway itself, by their status.
    pub(crate) refused: BTreeMap<u16, u64>,
}

impl Seen {
    pub(crate) fn note(&mut self, ask: Ask, response: &Response) {
        self.asked += 1;
        if response.status == 0 {
            return;
        }
        if response.status == 503 && response.text().contains("endstop_cannot_record") {
            *self.refused.entry(503).or_default() += 1;
            return;
        }
        let seen = ask.is_seen(response);
        let before = self.heads.insert(response.id().to_owned(), (ask, seen));
        assert!(before.is_none(), "two responses have the same id");
    }

    /// How many ends were seen.
    pub(crate) fn ends(&self) -> usize {
        self.heads.values().filter(|(_, seen)| *seen).count()
    }
}

/// What a row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) reason: String,
    pub(crate) closed: String,
    pub(crate) cause: String,
    pub(crate) action: String,
}

impl Row {
    pub(crate) fn is_interrupted(&self) -> bool {
        self.closed == "interrupted"
    }
}

/// What a store has.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) by_id: BTreeMap<String, Row>,
    /// How many rows the rollup counts.
    pub(crate) summed: u64,
}

const ROWS: &str = "SELECT id, reason, closed, cause, action FROM gateway_requests";

/// How many rows the rollup counts. On a thread of its own: a store blocks.
fn summed(url: &str) -> u64 {
    let url = url.to_owned();
    let asking = std::thread::spawn(move || {
        let query = Query {
            by: Vec::new(),
            period: Period { since: 1_700_000_000_000, until: 4_000_000_000_000 },
            before: None,
            zone: None,
            filter: Filter::default(),
            limit: 1,
        };
        open_to_read(&url).unwrap().report(&query).unwrap().total.now.count
    });
    asking.join().unwrap()
}

/// All rows of a SQLite file.
pub(crate) fn sqlite_rows(file: &Path) -> Rows {
    let connection = rusqlite::Connection::open(file).unwrap();
    let select = ROWS.replace("SELECT id", "SELECT lower(hex(id))");
    let mut statement = connection.prepare(&select).unwrap();
    let rows = statement
        .query_map((), |row| Ok((0..5).map(|at| row.get(at).unwrap()).collect::<Vec<String>>()));
    let rows: Vec<Vec<String>> = rows.unwrap().map(Result::unwrap).collect();
    Rows::new(rows, summed(&format!("sqlite:{}", file.display())))
}

/// All rows of a Postgres database.
pub(crate) fn postgres_rows(url: &str) -> Rows {
    let text = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap).collect();
    let rows = crate::places::sql(url, ROWS).into_iter().map(text).collect();
    Rows::new(rows, summed(url))
}

impl Rows {
    fn new(rows: Vec<Vec<String>>, summed: u64) -> Self {
        let mut by_id = BTreeMap::new();
        for row in rows {
            let [id, reason, closed, cause, action] = row.try_into().unwrap();
            let row = Row { reason, closed, cause, action };
            let before = by_id.insert(id.replace('-', ""), row);
            assert!(before.is_none(), "{id} is there twice");
        }
        Self { by_id, summed }
    }

    pub(crate) fn interrupted(&self) -> usize {
        self.by_id.values().filter(|row| row.is_interrupted()).count()
    }

    /// Every response whose head a client saw is there, and every end that it saw is the one that is
    /// there. Nothing is summed twice.
    pub(crate) fn check(&self, seen: &Seen) {
        assert_eq!(self.summed, self.by_id.len() as u64, "the rollup counts each row once");
        let (mut lost, mut wrong) = (Vec::new(), Vec::new());
        for (id, (ask, end)) in &seen.heads {
            match self.by_id.get(id) {
                None => lost.push((id, ask, end)),
                Some(row) if *end && (row.is_interrupted() || row.reason != ask.reason) => {
                    wrong.push((id, ask, row));
                }
                Some(_) => {}
            }
        }
        assert!(lost.is_empty(), "{} responses are lost: {lost:#?}", lost.len());
        assert!(wrong.is_empty(), "{} ends that were seen are not there: {wrong:#?}", wrong.len());
        assert!(self.by_id.len() as u64 <= seen.asked, "there are rows that nobody asked for");
        for row in self.by_id.values().filter(|row| row.is_interrupted()) {
            let Row { reason, cause, action, .. } = row;
            assert_eq!([&**reason, &**cause, &**action], ["cancelled", "interrupted", "none"]);
        }
    }
}
