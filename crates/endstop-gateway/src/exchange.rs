//! One request and its response, from the first byte to the one ending that is told of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use endstop::{Ending, Head, Record, RequestInfo, TransportEnd, Watcher, Wire};
use endstop_store::spool::{Spool, Ticket};

use crate::config::Mode;
use crate::ending_log::{Ended, EndingLog, GuardAction, now};
use crate::failure::Strictness;

/// A request under way. However it goes, exactly one ending is told: dropping it is one too.
#[derive(Debug)]
pub struct Exchange {
    told: Arc<EndingLog>,
    noted: Option<Noted>,
    began: Instant,
    record: Record,
    wire: Wire,
    asked: RequestInfo,
    mode: Mode,
    strictness: Strictness,
    ended: bool,
}

/// What was noted of it in the spool.
#[derive(Debug)]
struct Noted {
    spool: Arc<Spool>,
    ticket: Ticket,
    /// Its end has been noted, though more may become known.
    end: bool,
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
    pub asked: RequestInfo,
    /// The mode.
    pub mode: Mode,
    /// How strictly it is held.
    pub strictness: Strictness,
    /// Whose it is.
    pub team_id: Option<String>,
    /// Which key it showed.
    pub key_id: Option<String>,
}

impl Exchange {
    /// A request that has been admitted. It is noted before anything is sent.
    #[must_use]
    pub fn new(told: Arc<EndingLog>, spool: Option<&Arc<Spool>>, opening: Opening) -> Self {
        let Opening { id, upstream, path, wire, asked, mode, strictness, team_id, key_id } =
            opening;
        let mut record = Record {
            turn_id: id.clone(),
            id,
            attempt: 1,
            created_at: now(),
            team_id,
            key_id,
            upstream,
            path: endstop::text::clean(&path, 256),
            mode: mode.word().to_owned(),
            ..Record::default()
        };
        record.ask(&wire.profile, &asked);
        wire.provider().clone_into(&mut record.provider);
        let noted = spool.map(|spool| {
            let ticket = spool.start(&record);
            Noted { spool: spool.clone(), ticket, end: false }
        });
        Self {
            told,
            noted,
            began: Instant::now(),
            record,
            wire,
            asked,
            mode,
            strictness,
            ended: false,
        }
    }

    /// The head of the response came.
    pub fn head(&mut self, status: u16, headers: &hyper::HeaderMap) {
        self.record.status = Some(status);
        self.record.first_byte_us = Some(micros(self.began.elapsed()));
        let ids = ["x-request-id", "request-id", "x-amzn-requestid", "x-goog-request-id", "cf-ray"];
        self.record.upstream_request_id = ids
            .iter()
            .find_map(|name| headers.get(*name)?.to_str().ok())
            .map(|id| endstop::text::clean(id, 128));
    }

    /// A reader for the response.
    pub fn reader(&self, content_type: &str, event_bytes: usize) -> Watcher {
        let head = Head { status: self.record.status.unwrap_or(0), content_type };
        let limits = endstop::Limits { event_bytes, ..endstop::Limits::default() };
        Watcher::with_limits(self.wire.clone(), head, self.asked.clone(), limits)
    }

    /// What was asked.
    #[must_use]
    pub fn asked(&self) -> &RequestInfo {
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
        self.record.delivered_bytes += bytes as u64;
    }

    /// There was no response: ends the turn, and gives the ending.
    pub fn unanswered(&mut self, close: TransportEnd) -> Ending {
        let ending = self.reader("", 1 << 20).finish(close);
        self.end(ending.clone(), GuardAction::Refused);
        ending
    }

    /// Whether its end is still to be noted.
    #[must_use]
    pub fn is_unnoted(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| !noted.end)
    }

    /// Notes the end as far as it is known, before a client can see it.
    pub fn note(&mut self, ending: &Ending) {
        self.write_ending(ending, GuardAction::Passed);
        self.append();
    }

    /// Ends the turn. Only the first ending is told.
    pub fn end(&mut self, ending: Ending, action: GuardAction) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.write_ending(&ending, action);
        self.append();
        let kept = std::mem::take(&mut self.record);
        self.told.tell(Ended { kept, action, ending });
    }

    fn write_ending(&mut self, ending: &Ending, action: GuardAction) {
        self.record.end(ending);
        self.record.total_us = micros(self.began.elapsed());
        action.word().clone_into(&mut self.record.action);
    }

    fn append(&mut self) {
        let Some(Noted { spool, ticket, end }) = &mut self.noted else { return };
        if std::mem::replace(end, true) {
            spool.amend(ticket, &self.record);
        } else {
            spool.end(ticket, &self.record);
        }
    }

    /// The ending as a comment of a stream.
    #[must_use]
    pub fn comment(&self, ending: &Ending, action: GuardAction) -> Bytes {
        let json = serde_json::json!({
            "id": self.record.id,
            "reason": ending.reason.name(),
            "finish_reason": ending.finish_reason(),
            "native": ending.native().map(|(_, word)| word),
            "confidence": ending.confidence.name(),
            "action": action.word(),
        });
        Bytes::from(format!(": endstop {json}\n\n"))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.ended {
            let ending = self.reader("", 1 << 20).finish(TransportEnd::ClientGone);
            self.end(ending, GuardAction::Refused);
        }
    }
}
