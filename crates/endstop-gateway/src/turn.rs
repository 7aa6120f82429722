//! One request and its response, from the first byte to the one ending that is told of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use endstop::{Asked, Close, Ending, Head, Reader, Wire};

use crate::config::Mode;
use crate::failure::Strictness;
use crate::told::{Action, Record, Told, confidence, now};

/// A request under way. However it goes, exactly one ending is told: dropping it is one too.
#[derive(Debug)]
pub struct Turn {
    told: Arc<Told>,
    id: String,
    created_at: u64,
    began: Instant,
    upstream: String,
    path: String,
    wire: Wire,
    asked: Asked,
    mode: Mode,
    strictness: Strictness,
    status: u16,
    first_byte: Option<Duration>,
    upstream_request_id: Option<String>,
    delivered: u64,
    ended: bool,
}

/// What is known of a request before it is sent.
#[derive(Debug)]
pub struct Opening {
    /// Its id.
    pub id: String,
    /// The upstream's name.
    pub upstream: String,
    /// The provider's own path.
    pub path: String,
    /// The wire.
    pub wire: Wire,
    /// What was asked.
    pub asked: Asked,
    /// The mode.
    pub mode: Mode,
    /// How strictly it is held.
    pub strictness: Strictness,
}

impl Turn {
    /// A request that has been admitted.
    #[must_use]
    pub fn new(told: Arc<Told>, opening: Opening) -> Self {
        let Opening { id, upstream, path, wire, asked, mode, strictness } = opening;
        Self {
            told,
            id,
            created_at: now(),
            began: Instant::now(),
            upstream,
            path: endstop::text::clean(&path, 256),
            wire,
            asked,
            mode,
            strictness,
            status: 0,
            first_byte: None,
            upstream_request_id: None,
            delivered: 0,
            ended: false,
        }
    }

    /// The head of the response came.
    pub fn head(&mut self, status: u16, headers: &hyper::HeaderMap) {
        self.status = status;
        self.first_byte = Some(self.began.elapsed());
        let ids = ["x-request-id", "request-id", "x-amzn-requestid", "x-goog-request-id", "cf-ray"];
        self.upstream_request_id = ids
            .iter()
            .find_map(|name| headers.get(*name)?.to_str().ok())
            .map(|id| endstop::text::clean(id, 128));
    }

    /// A reader for the response.
    pub fn reader(&self, content_type: &str, event_bytes: usize) -> Reader {
        let head = Head { status: self.status, content_type };
        let limits = endstop::Limits { event_bytes, ..endstop::Limits::default() };
        Reader::with_limits(self.wire.clone(), head, self.asked.clone(), limits)
    }

    /// What was asked.
    #[must_use]
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// The wire.
    #[must_use]
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How strictly it is held.
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        self.strictness
    }

    /// So many more bytes were handed to the client.
    pub fn delivered(&mut self, bytes: usize) {
        self.delivered += bytes as u64;
    }

    /// There was no response: ends the turn, and gives the ending.
    pub fn unanswered(&mut self, close: Close) -> Ending {
        let ending = self.reader("", 1 << 20).finish(close);
        self.end(ending.clone(), Action::Refused);
        ending
    }

    /// Ends the turn. Only the first ending is told.
    pub fn end(&mut self, ending: Ending, action: Action) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let native = ending.native().map(|(field, word)| (field, word.to_owned()));
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.told.tell(Record {
            id: self.id.clone(),
            created_at: self.created_at,
            upstream: self.upstream.clone(),
            path: self.path.clone(),
            streamed: self.asked.streamed.unwrap_or(false),
            mode: self.mode,
            status: self.status,
            action,
            finish_reason: ending.finish_reason(),
            native_field: native.as_ref().map(|(field, _)| *field),
            native_finish_reason: native.map(|(_, word)| word),
            cause: ending.cause(),
            ending,
            delivered_bytes: self.delivered,
            first_byte_us: self.first_byte.map(micros),
            total_us: micros(self.began.elapsed()),
            upstream_request_id: self.upstream_request_id.clone(),
        });
    }

    /// The ending as a comment of a stream.
    #[must_use]
    pub fn comment(&self, ending: &Ending, action: Action) -> Bytes {
        let json = serde_json::json!({
            "id": self.id,
            "reason": ending.reason.name(),
            "finish_reason": ending.finish_reason(),
            "native": ending.native().map(|(_, word)| word),
            "confidence": confidence(ending),
            "action": action.word(),
        });
        Bytes::from(format!(": endstop {json}\n\n"))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            let ending = self.reader("", 1 << 20).finish(Close::ClientGone);
            self.end(ending, Action::Refused);
        }
    }
}
