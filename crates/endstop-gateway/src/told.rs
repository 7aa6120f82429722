//! What is told of each response: kept in memory, sent to whoever listens, logged.
//!
//! No prompt, no answer, no key: a record holds what a provider said about its end, and counts.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use endstop::{Ending, Reason};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::config::{Log, Mode};

/// What was done about a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Passed on as it came.
    Passed,
    /// Passed on, and it may be unfinished.
    Warned,
    /// Failed, so that no client takes it for a finished one.
    Failed,
    /// Never answered by an upstream.
    Refused,
}

impl Action {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Warned => "warned",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// What is told of one response.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Sorts by time and cannot be guessed.
    pub id: String,
    /// When the request came, in milliseconds since 1970.
    pub created_at: u64,
    /// The upstream.
    pub upstream: String,
    /// The provider's own path.
    pub path: String,
    /// A stream was asked for.
    pub streamed: bool,
    /// The mode.
    #[serde(serialize_with = "mode_word")]
    pub mode: Mode,
    /// The upstream's status; zero where there was none.
    pub status: u16,
    /// What was done.
    pub action: Action,
    /// Our one word, as analytics know it.
    pub finish_reason: Option<&'static str>,
    /// The provider's own word.
    pub native_finish_reason: Option<String>,
    /// The field that it stood in.
    pub native_field: Option<&'static str>,
    /// What it is to be told apart by: see [`endstop::Ending::cause`].
    pub cause: &'static str,
    /// The ending in full.
    pub ending: Ending,
    /// Bytes handed to the client.
    pub delivered_bytes: u64,
    /// Until the head of the response came, in microseconds.
    pub first_byte_us: Option<u64>,
    /// Until the end, in microseconds.
    pub total_us: u64,
    /// The provider's id for the request.
    pub upstream_request_id: Option<String>,
}

fn mode_word<S: serde::Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match mode {
        Mode::Observe => "observe",
        Mode::Guard => "guard",
    })
}

/// Keeps the newest records, and tells them.
#[derive(Debug)]
pub struct Told {
    newest: Mutex<VecDeque<Arc<Record>>>,
    keep: usize,
    log: Log,
    listeners: broadcast::Sender<Arc<Record>>,
}

/// Which records are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of this provider.
    pub provider: Option<String>,
    /// Of this upstream.
    pub upstream: Option<String>,
    /// Of this model.
    pub model: Option<String>,
    /// With this reason of ours.
    pub reason: Option<Reason>,
    /// With this finish reason.
    pub finish_reason: Option<String>,
    /// With this action.
    pub action: Option<String>,
    /// Not before this time, in milliseconds since 1970.
    pub since: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

impl Wanted {
    /// Whether this record is wanted.
    #[must_use]
    pub fn fits(&self, record: &Record) -> bool {
        let is = |want: &Option<String>, have: Option<&str>| {
            want.as_deref().is_none_or(|want| have == Some(want))
        };
        is(&self.provider, Some(&record.ending.provider))
            && is(&self.upstream, Some(&record.upstream))
            && is(&self.model, record.ending.model.as_deref())
            && is(&self.finish_reason, Some(record.finish_reason.unwrap_or("null")))
            && is(&self.action, Some(record.action.word()))
            && self.reason.is_none_or(|want| want == record.ending.reason)
            && self.since.is_none_or(|since| record.created_at >= since)
    }
}

impl Told {
    /// Keeps so many.
    #[must_use]
    pub fn new(keep: usize, log: Log) -> Self {
        let (listeners, _) = broadcast::channel(1024);
        Self { newest: Mutex::new(VecDeque::new()), keep, log, listeners }
    }

    /// Takes a record in.
    pub fn tell(&self, record: Record) {
        self.write(&record);
        let record = Arc::new(record);
        let mut newest = self.lock();
        if newest.len() >= self.keep {
            newest.pop_front();
        }
        if self.keep > 0 {
            newest.push_back(record.clone());
        }
        drop(newest);
        // Nobody may be listening.
        let _ = self.listeners.send(record);
    }

    /// The record of this id, while it is kept.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Record>> {
        self.lock().iter().rev().find(|record| record.id == id).cloned()
    }

    /// The newest records that are wanted, the newest first.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Vec<Arc<Record>> {
        let newest = self.lock();
        newest
            .iter()
            .rev()
            .filter(|record| wanted.fits(record))
            .take(wanted.limit)
            .cloned()
            .collect()
    }

    /// Every record from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Arc<Record>> {
        self.listeners.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Record>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, record: &Record) {
        let line = match self.log {
            Log::Off => return,
            Log::Human => line(record),
            Log::Json => match serde_json::to_string(record) {
                Ok(json) => json + "\n",
                Err(_) => return,
            },
        };
        // A log that cannot be written must not stop what it logs.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// One line for people.
fn line(record: &Record) -> String {
    let Record { ending, .. } = record;
    let native = record.native_finish_reason.as_deref().unwrap_or("-");
    let model = ending.model.as_deref().unwrap_or("-");
    format!(
        "{} {} {}/{} {} {} said={} closed={} {} {}ms {}B {}: {}\n",
        clock(record.created_at),
        record.id,
        record.upstream,
        model,
        record.status,
        ending.reason.name(),
        native,
        ending.closed.word(),
        record.action.word(),
        record.total_us / 1000,
        record.delivered_bytes,
        confidence(ending),
        ending.sentence,
    )
}

/// The word for the confidence of an ending.
pub(crate) fn confidence(ending: &Ending) -> &'static str {
    match ending.confidence {
        endstop::Confidence::Low => "low",
        endstop::Confidence::Medium => "medium",
        endstop::Confidence::High => "high",
    }
}

/// The time of day, in UTC.
fn clock(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}Z", seconds % 60, milliseconds % 1000)
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
