//! A stand-in for Axiom that enforces its rules: the path, the headers, the encoding, the limits on events and names, and
//! the answers with which it refuses.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The token that it takes.
pub(crate) const TOKEN: &str = "xaat-0123456789";

/// The next answers, instead of taking events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Too many requests: wait a second.
    TooMany,
    /// An error of the server.
    Error,
    /// The first event of the request fails.
    Partial,
    /// The connection closes without an answer.
    Close,
}

#[derive(Default)]
struct State {
    events: Vec<Value>,
    troubles: VecDeque<Trouble>,
    requests: usize,
}

/// The stand-in.
#[derive(Clone)]
pub(crate) struct StandIn {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl StandIn {
    pub(crate) fn start(troubles: &[Trouble]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { troubles: troubles.iter().copied().collect(), ..State::default() };
        let stand_in = Self { address, state: Arc::new(Mutex::new(state)) };
        let served = stand_in.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                served.serve(connection.unwrap());
            }
        });
        stand_in
    }

    /// The address of an exporter to it.
    pub(crate) fn url(&self) -> String {
        format!("axiom:http://{}", self.address)
    }

    /// Events that were taken.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.state.lock().unwrap().events.clone()
    }

    /// The last event of each id that was taken.
    pub(crate) fn newest(&self) -> Vec<Value> {
        let mut newest: Vec<Value> = Vec::new();
        for event in self.events() {
            match newest.iter_mut().find(|known| known["id"] == event["id"]) {
                Some(known) if known["sequence"].as_u64() < event["sequence"].as_u64() => {
                    *known = event;
                }
                Some(_) => {}
                None => newest.push(event),
            }
        }
        newest
    }

    /// Requests that came.
    pub(crate) fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    fn serve(&self, connection: TcpStream) {
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_owned());
        }
        let header = |name: &str| {
            let found = head.iter().skip(1).filter_map(|line| line.split_once(": "));
            found
                .filter(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
                .next()
        };
        let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        let trouble = state.troubles.pop_front();
        let (status, more, answer) = match trouble {
            Some(Trouble::Close) => return,
            Some(Trouble::TooMany) => {
                (429, "retry-after: 1\r\n", json!({ "message": "rate limit exceeded" }))
            }
            Some(Trouble::Error) => (500, "", json!({ "message": "internal error" })),
            Some(Trouble::Partial) | None => {
                match check(&head[0], header, &body) {
                    Err((status, message)) => {
                        (status, "", json!({ "code": status, "message": message }))
                    }
                    Ok(mut events) => {
                        let mut failures = Vec::new();
                        if trouble == Some(Trouble::Partial) {
                            let failed = events.remove(0);
                            failures.push(json!({ "timestamp": failed["_time"], "error": "field type conflict" }));
                        }
                        let answer = json!({
                            "ingested": events.len(), "failed": failures.len(), "failures": failures,
                            "processedBytes": length, "blocksCreated": 0, "walLength": 1,
                        });
                        state.events.extend(events);
                        (200, "", answer)
                    }
                }
            }
        };
        let answer = answer.to_string();
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}connection: close\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        // The client may be gone.
        let _ = (&connection).write_all(text.as_bytes());
    }
}

/// Reads the events of a request by Axiom's rules.
fn check(
    line: &str,
    header: impl Fn(&str) -> Option<String>,
    body: &[u8],
) -> Result<Vec<Value>, (u16, &'static str)> {
    let mut parts = line.split(' ');
    if parts.next() != Some("POST") {
        return Err((405, "method not allowed"));
    }
    if parts.next() != Some("/v1/datasets/gateway-requests/ingest") {
        return Err((404, "dataset not found"));
    }
    match header("authorization") {
        None => return Err((401, "missing authorization header")),
        Some(shown) if shown != format!("Bearer {TOKEN}") => return Err((403, "forbidden")),
        Some(_) => {}
    }
    if header("content-type").as_deref() != Some("application/x-ndjson") {
        return Err((415, "unsupported content type"));
    }
    if header("content-encoding").as_deref() != Some("gzip") {
        return Err((400, "expected gzip"));
    }
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(body);
    decoder.read_to_string(&mut text).map_err(|_| (400, "invalid gzip"))?;
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > 10_000 {
        return Err((413, "too many events"));
    }
    let mut names = std::collections::BTreeSet::new();
    let mut events = Vec::new();
    for line in lines {
        if line.len() > 1 << 20 {
            return Err((413, "event too large"));
        }
        let event: Value = serde_json::from_str(line).map_err(|_| (400, "invalid JSON"))?;
        let fields = event.as_object().ok_or((400, "expected an object"))?;
        if fields.keys().any(|name| name.len() > 200) {
            return Err((400, "field name too long"));
        }
        if fields.values().any(|value| value.is_object() || value.is_array()) {
            return Err((400, "nested field"));
        }
        if !fields.get("_time").is_some_and(Value::is_string) {
            return Err((400, "invalid timestamp"));
        }
        names.extend(fields.keys().cloned());
        events.push(event);
    }
    if names.len() > 256 {
        return Err((400, "too many fields"));
    }
    Ok(events)
}
