//! Reports of endings: kept in memory, sent to listeners, logged, recorded.
//!
//! A report contains no prompt, no answer and no key: it has the provider's finish reason and counts.
//! Nothing here waits: the log has a bounded queue and a thread of its own, and listeners that fall
//! behind miss endings and are told how many.

pub(crate) mod exporting;
pub(crate) mod health;
mod log;
pub(crate) mod mask;
pub mod recent;
pub mod recording;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use endstop::registry::Registry;
use endstop::{Ending, Reason, Record, Wire};
use endstop_export::Metrics;
use endstop_store::view::EndingView;
use endstop_turn::observation::{
    DetectionFault, DetectionTimes, Observation, RecordDropped, StopReasonObserved,
    Subscriber as _, TerminationDetected, UnknownReasonFirstSeen,
};
use serde::Serialize;
use tokio::sync::broadcast;
use tracing::Level;

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
#[derive(Clone, Debug)]
pub struct EndingReport {
    /// The record.
    pub kept: Record,
    /// Action of the gateway; the record has its name.
    pub action: GuardAction,
    /// The ending in full. It has no message of a provider's error, unless the operator wants them
    /// (`log_error_messages`).
    pub ending: Ending,
    /// Time that reading took, for a sample of the responses.
    pub detection: Option<Box<DetectionTimes>>,
}

/// Only the record is told: as an [`EndingView`].
impl Serialize for EndingReport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EndingView::from(&self.kept).serialize(serializer)
    }
}

/// Keeps the newest endings, and passes each on to listeners and to the log.
#[derive(Debug)]
pub struct Watch {
    recent: Recent,
    log: LogWriter,
    listeners: broadcast::Sender<Arc<EndingReport>>,
    /// Unknown finish reasons that were logged; a bounded set.
    unknown: Mutex<Registry>,
    metrics: Option<Arc<Metrics>>,
}

impl Watch {
    /// Creates a watch that keeps this many endings.
    #[must_use]
    pub fn new(keep: usize, format: Log) -> Self {
        let (listeners, _) = broadcast::channel(1024);
        Self {
            recent: Recent::new(keep),
            log: LogWriter::stderr(format),
            listeners,
            unknown: Mutex::default(),
            metrics: None,
        }
    }

    /// Counts endings, too.
    #[must_use]
    pub fn counting(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Returns the counters, if endings are counted.
    #[must_use]
    pub fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.metrics.as_ref()
    }

    /// Returns whether the next response is to be timed.
    pub(crate) fn samples(&self) -> bool {
        self.metrics.as_ref().is_some_and(|metrics| metrics.samples())
    }

    /// Changes the number of endings to keep, and the format of the log.
    pub(crate) fn configure(&self, keep: usize, format: Log) {
        self.recent.set_keep(keep);
        self.log.set_format(format);
    }

    /// Reports an ending.
    pub(crate) fn ended(&self, ended: Arc<EndingReport>) {
        self.observe(&ended);
        self.log.ending(&ended);
        if self.listeners.receiver_count() > 0 {
            // The last listener may have left just now.
            let _ = self.listeners.send(ended.clone());
        }
        self.recent.push(ended);
    }

    /// Logs an unknown finish reason, once per provider and model, unless the log is off.
    pub(crate) fn look_for_unknown_word(&self, wire: &Wire, ending: &Ending) {
        if ending.reason != Reason::Unknown || self.log.is_off() && self.metrics.is_none() {
            return;
        }
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(new) = unknown.report_unknown(wire, ending) else { return };
        drop(unknown);
        self.tell(&Observation::UnknownReasonFirstSeen((&new).into()));
    }

    /// Reports a response that is not in the record.
    pub(crate) fn dropped(&self, record: &Record) {
        self.tell(&Observation::RecordDropped(RecordDropped::new(record, "spool_full")));
    }

    /// Tells the observations about an ending to whoever counts them.
    fn observe(&self, ended: &EndingReport) {
        let EndingReport { kept, ending, detection, .. } = ended;
        if let Some(fault) = DetectionFault::of(kept, ending) {
            self.tell(&Observation::DetectionFault(fault));
        }
        let Some(metrics) = &self.metrics else { return };
        metrics.event(&Observation::StopReasonObserved(StopReasonObserved::new(kept, ending)));
        let ended = TerminationDetected::new(kept, ending.reason, detection.as_deref());
        metrics.event(&Observation::TerminationDetected(ended));
    }

    /// Logs and counts an observation that does not concern every response.
    fn tell(&self, event: &Observation<'_>) {
        if let Some(metrics) = &self.metrics {
            metrics.event(event);
        }
        if let Some(line) = line(event).filter(|_| !self.log.is_off()) {
            self.warn(line);
        }
    }

    /// Returns the ending of this id, while it is kept.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<EndingReport>> {
        self.recent.get(id)
    }

    /// Returns the endings that match, the newest first.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Vec<Arc<EndingReport>> {
        self.recent.find(wanted)
    }

    /// Returns every ending from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Arc<EndingReport>> {
        self.listeners.subscribe()
    }

    /// Logs a line about the gateway, also if the log of endings is off. Never waits for the reader.
    pub fn info(&self, message: impl Into<String>) {
        self.log.notice(Level::INFO, message.into());
    }

    /// Logs a warning about the gateway, likewise.
    pub fn warn(&self, message: impl Into<String>) {
        self.log.notice(Level::WARN, message.into());
    }

    /// Waits until the log is written, but no longer than `most`.
    pub fn flush(&self, most: Duration) {
        self.log.flush(most);
    }
}

/// Returns the log line of an observation. Endings have lines of their own, and records that are dropped are
/// logged when that begins and ends.
fn line(event: &Observation<'_>) -> Option<String> {
    let (provider, model) = (event.provider(), event.model());
    let of = if model.is_empty() { provider.to_owned() } else { format!("{provider}/{model}") };
    match event {
        Observation::UnknownReasonFirstSeen(UnknownReasonFirstSeen { field, word, .. }) => {
            Some(format!(
                "{of} sent the unknown finish reason `{word}` in `{field}`; to give it a meaning, add it to \
                 [provider.{provider}.words]. It is logged once per model"
            ))
        }
        Observation::DetectionFault(DetectionFault { dialect, kind, offset, .. }) => Some(format!(
            "a part of a response of {of} could not be read as {dialect}: {kind} within {offset} bytes"
        )),
        Observation::StopReasonObserved(_)
        | Observation::TerminationDetected(_)
        | Observation::RecordDropped(_)
        | Observation::Turn(_)
        | _ => None,
    }
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
