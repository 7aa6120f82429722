//! What is told of each response: kept in memory, sent to whoever listens, logged.
//!
//! No prompt, no answer, no key: a record holds what a provider said about its end, and counts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use endstop::{Ending, Reason, Record};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::config::Log;
use crate::log::LogWriter;

/// What was done about a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardAction {
    /// Passed on as it came.
    Passed,
    /// Passed on, and it may be unfinished.
    Warned,
    /// Failed, so that no client takes it for a finished one.
    Failed,
    /// Never answered by an upstream.
    Refused,
}

impl GuardAction {
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
pub struct Ended {
    /// What is kept of it.
    #[serde(flatten)]
    pub kept: Record,
    /// What was done; the record has the word for it.
    #[serde(skip)]
    pub action: GuardAction,
    /// The ending in full.
    pub ending: Ending,
}

/// Keeps the newest records, and tells them.
#[derive(Debug)]
pub struct EndingLog {
    newest: Mutex<VecDeque<Arc<Ended>>>,
    keep: usize,
    log: Log,
    writer: LogWriter,
    listeners: broadcast::Sender<Arc<Ended>>,
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
    pub fn fits(&self, told: &Ended) -> bool {
        let is = |want: &Option<String>, have: Option<&str>| {
            want.as_deref().is_none_or(|want| have == Some(want))
        };
        let kept = &told.kept;
        is(&self.provider, Some(&kept.provider))
            && is(&self.upstream, Some(&kept.upstream))
            && is(&self.model, kept.model.as_deref())
            && is(&self.finish_reason, Some(kept.finish_reason.as_deref().unwrap_or("null")))
            && is(&self.action, Some(told.action.word()))
            && self.reason.is_none_or(|want| want == told.ending.reason)
            && self.since.is_none_or(|since| kept.created_at >= since)
    }
}

impl EndingLog {
    /// Keeps so many.
    #[must_use]
    pub fn new(keep: usize, log: Log) -> Self {
        let (listeners, _) = broadcast::channel(1024);
        let writer = LogWriter::stderr(match log {
            Log::Human | Log::Off => |lost| human_notice(&dropped(lost)),
            Log::Json => |lost| json_notice(&dropped(lost)),
        });
        Self { newest: Mutex::new(VecDeque::new()), keep, log, writer, listeners }
    }

    /// Writes a line for people to the log, whatever its form, and never waits for whoever reads it.
    pub fn write_line(&self, line: &str) {
        self.writer.write(format!("{line}\n"));
    }

    /// Takes a record in.
    pub fn tell(&self, told: Ended) {
        self.write(&told);
        let told = Arc::new(told);
        let mut newest = self.lock();
        if newest.len() >= self.keep {
            newest.pop_front();
        }
        if self.keep > 0 {
            newest.push_back(told.clone());
        }
        drop(newest);
        // Nobody may be listening.
        let _ = self.listeners.send(told);
    }

    /// The record of this id, while it is kept.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Ended>> {
        self.lock().iter().rev().find(|told| told.kept.id == id).cloned()
    }

    /// The newest records that are wanted, the newest first.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Vec<Arc<Ended>> {
        let newest = self.lock();
        newest.iter().rev().filter(|told| wanted.fits(told)).take(wanted.limit).cloned().collect()
    }

    /// Every record from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Arc<Ended>> {
        self.listeners.subscribe()
    }

    /// Says something of the gateway itself.
    pub(crate) fn say(&self, what: &str) {
        let line = match self.log {
            Log::Off => return,
            Log::Human => human_notice(what),
            Log::Json => json_notice(what),
        };
        self.writer.write(line);
    }

    /// Waits until the log is written, but no longer than `most`.
    pub(crate) fn flush(&self, most: Duration) {
        self.writer.flush(most);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Ended>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, told: &Ended) {
        let line = match self.log {
            Log::Off => return,
            Log::Human => line(told),
            Log::Json => match serde_json::to_string(told) {
                Ok(json) => json + "\n",
                Err(_) => return,
            },
        };
        self.writer.write(line);
    }
}

fn human_notice(what: &str) -> String {
    format!("{} {what}\n", clock(now()))
}

fn json_notice(what: &str) -> String {
    format!("{}\n", serde_json::json!({ "at": now(), "notice": what }))
}

fn dropped(lines: u64) -> String {
    let lines =
        if lines == 1 { "1 log line was".to_owned() } else { format!("{lines} log lines were") };
    format!("endstop: {lines} dropped: standard error is not read fast enough")
}

/// One line for people.
fn line(told: &Ended) -> String {
    let Ended { kept, ending, action } = told;
    let native = kept.native_finish_reason.as_deref().unwrap_or("-");
    let model = ending.model.as_deref().unwrap_or("-");
    format!(
        "{} {} {}/{} {} {} said={} closed={} {} {}ms {}B {}: {}\n",
        clock(kept.created_at),
        kept.id,
        kept.upstream,
        model,
        kept.status.unwrap_or(0),
        ending.reason.name(),
        native,
        ending.closed.word(),
        action.word(),
        kept.total_us / 1000,
        kept.delivered_bytes,
        ending.confidence.name(),
        ending.sentence,
    )
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
