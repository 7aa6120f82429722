//! Reports of endings: kept in memory, sent to listeners, logged, recorded.
//!
//! A report contains no prompt, no answer and no key: it has the provider's finish reason and counts.
//! Nothing here waits: the log has a bounded queue and a thread of its own, and listeners that fall
//! behind miss endings and are told how many.

mod log;
pub mod recent;
pub mod recording;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use endstop::{Ending, Record};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::config::Log;
use log::LogWriter;
use recent::{Recent, Wanted};

/// Action of the gateway on a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardAction {
    /// Passed on unchanged.
    Passed,
    /// Passed on, although it may be incomplete.
    Warned,
    /// Failed, so that no client takes it for a complete response.
    Failed,
    /// Never answered by an upstream.
    Refused,
}

impl GuardAction {
    /// Returns the name that records and headers have.
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

/// Report about one response.
#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    /// The record.
    #[serde(flatten)]
    pub kept: Record,
    /// Action of the gateway; the record has its name.
    #[serde(skip)]
    pub action: GuardAction,
    /// The ending in full.
    pub ending: Ending,
}

/// Keeps the newest endings, and passes each on to listeners and to the log.
#[derive(Debug)]
pub struct Watch {
    recent: Recent,
    format: Log,
    log: LogWriter,
    listeners: broadcast::Sender<Arc<Ended>>,
}

impl Watch {
    /// Creates a watch that keeps this many endings.
    #[must_use]
    pub fn new(keep: usize, format: Log) -> Self {
        let (listeners, _) = broadcast::channel(1024);
        Self { recent: Recent::new(keep), format, log: LogWriter::stderr(format), listeners }
    }

    /// Reports an ending.
    pub(crate) fn ended(&self, ended: Ended) {
        let ended = Arc::new(ended);
        if self.format != Log::Off {
            self.log.ending(ended.clone());
        }
        if self.listeners.receiver_count() > 0 {
            // The last listener may have left just now.
            let _ = self.listeners.send(ended.clone());
        }
        self.recent.push(ended);
    }

    /// Returns the ending of this id, while it is kept.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Ended>> {
        self.recent.get(id)
    }

    /// Returns the endings that match, the newest first.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Vec<Arc<Ended>> {
        self.recent.find(wanted)
    }

    /// Returns every ending from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Arc<Ended>> {
        self.listeners.subscribe()
    }

    /// Logs a line as it is, and never waits for whoever reads it.
    pub fn write_line(&self, line: &str) {
        self.log.line(format!("{line}\n"));
    }

    /// Logs a notice about the gateway itself.
    pub(crate) fn notice(&self, what: &str) {
        if self.format != Log::Off {
            self.log.line(log::notice(self.format, what));
        }
    }

    /// Waits until the log is written, but no longer than `most`.
    pub(crate) fn flush(&self, most: Duration) {
        self.log.flush(most);
    }
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
