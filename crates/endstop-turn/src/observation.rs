//! Events: what happens to responses and turns, for logs, metrics and exporters.
//!
//! The client and the gateway tell the same events to their [`Subscriber`]s. An event has names, numbers and the
//! provider's finish reason, and never a prompt, an answer or a key.

use std::time::Duration;

use endstop::registry::UnknownWord;
use endstop::text::{WORD_CAP, clean};
use endstop::{Closed, Confidence, Ending, Reason, Record, Shown};
use serde::{Serialize, Serializer};

use crate::continuation::TurnEvent;

/// Receives events as they happen.
///
/// It is called on the path of a response: an implementation that waits delays the answer.
///
/// ```
/// use std::sync::Mutex;
/// use endstop_turn::observation::{Observation, Subscriber};
///
/// #[derive(Default)]
/// struct Names(Mutex<Vec<&'static str>>);
///
/// impl Subscriber for Names {
///     fn event(&self, event: &Observation<'_>) {
///         self.0.lock().unwrap().push(event.name());
///     }
/// }
/// ```
pub trait Subscriber: Send + Sync {
    /// Receives an event.
    fn event(&self, event: &Observation<'_>);
}

/// Something that happened to a response or in a turn.
///
/// It serialises to an object with the field `event`, in which every text is shortened and without keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Observation<'a> {
    /// The finish reason of a response is known.
    StopReasonObserved(StopReasonObserved<'a>),
    /// A response is over, and all about it is known.
    TerminationDetected(TerminationDetected<'a>),
    /// A provider sent a finish reason that Endstop does not know. It is told once per provider, model and
    /// finish reason, for a bounded number of them.
    UnknownReasonFirstSeen(UnknownReasonFirstSeen<'a>),
    /// A part of a response could not be read.
    DetectionFault(DetectionFault<'a>),
    /// A response is not in the record.
    RecordDropped(RecordDropped<'a>),
    /// Another step of a turn: a continuation, a retry, a repair, the end.
    #[serde(untagged)]
    Turn(TurnStep<'a>),
}

/// The finish reason of a response is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StopReasonObserved<'a> {
    /// Provider.
    #[serde(serialize_with = "short")]
    pub provider: &'a str,
    /// Model; empty if it is not known.
    #[serde(serialize_with = "short")]
    pub model: &'a str,
    /// Turn.
    #[serde(serialize_with = "short")]
    pub turn: &'a str,
    /// Number of the request in its turn, starting at one.
    pub iteration: u32,
    /// Our reason.
    pub reason: Reason,
    /// Confidence in the reason.
    pub confidence: Confidence,
    /// The provider's finish reason.
    #[serde(serialize_with = "short_or_none")]
    pub raw: Option<&'a str>,
}

impl<'a> StopReasonObserved<'a> {
    /// Returns the event of a response whose record is complete.
    #[must_use]
    pub fn new(record: &'a Record, ending: &Ending) -> Self {
        Self {
            provider: &record.provider,
            model: record.model.as_deref().unwrap_or_default(),
            turn: &record.turn_id,
            iteration: record.attempt,
            reason: ending.reason,
            confidence: ending.confidence,
            raw: record.native_finish_reason.as_deref(),
        }
    }
}

/// A response is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TerminationDetected<'a> {
    /// The record of the response.
    #[serde(flatten)]
    pub record: &'a Record,
    /// Our reason.
    #[serde(skip)]
    pub reason: Reason,
    /// Time that reading the response took. It is measured for a sample of the responses only.
    pub detection: Option<&'a DetectionTimes>,
}

impl<'a> TerminationDetected<'a> {
    /// Returns the event of a response whose record is complete.
    #[must_use]
    pub fn new(record: &'a Record, reason: Reason, detection: Option<&'a DetectionTimes>) -> Self {
        Self { record, reason, detection }
    }
}

/// Time that reading a response took, without the waits between its chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DetectionTimes {
    /// All chunks together, in nanoseconds.
    pub response_ns: u64,
    /// The first chunks, in nanoseconds each.
    pub chunk_ns: Vec<u64>,
}

impl DetectionTimes {
    /// Chunks of one response whose times are kept.
    const MOST: usize = 256;

    /// Adds the time of one chunk.
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.response_ns = self.response_ns.saturating_add(ns);
        if self.chunk_ns.len() < Self::MOST {
            self.chunk_ns.push(ns);
        }
    }
}

/// A finish reason that Endstop does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnknownReasonFirstSeen<'a> {
    /// Provider.
    #[serde(serialize_with = "short")]
    pub provider: &'a str,
    /// Model; empty if it is not known.
    #[serde(serialize_with = "short")]
    pub model: &'a str,
    /// Field that carried it.
    #[serde(serialize_with = "short")]
    pub field: &'a str,
    /// The finish reason.
    #[serde(serialize_with = "short")]
    pub word: &'a str,
}

impl<'a> From<&'a UnknownWord> for UnknownReasonFirstSeen<'a> {
    fn from(unknown: &'a UnknownWord) -> Self {
        let UnknownWord { provider, model, field, word, .. } = unknown;
        Self { provider, model, field, word }
    }
}

/// A part of a response that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DetectionFault<'a> {
    /// Provider.
    #[serde(serialize_with = "short")]
    pub provider: &'a str,
    /// Model; empty if it is not known.
    #[serde(serialize_with = "short")]
    pub model: &'a str,
    /// Wire.
    pub dialect: &'a str,
    /// Field in which the finish reason was found; empty if none was found.
    pub field: &'a str,
    /// Kind of the fault.
    pub kind: &'static str,
    /// Bytes of the response that had been read when it ended.
    pub offset: u64,
}

impl<'a> DetectionFault<'a> {
    /// Returns the fault in the reading of a response, if there was one.
    #[must_use]
    pub fn of(record: &'a Record, ending: &Ending) -> Option<Self> {
        let Shown { malformed_event, cut_event, unrecognised, invalid_utf8, excess, .. } =
            ending.shown;
        let kinds = [
            (ending.closed == Closed::BrokenFrame, "broken_frame"),
            (ending.closed == Closed::Oversize, "oversize"),
            (malformed_event, "malformed_event"),
            (cut_event, "cut_event"),
            (invalid_utf8, "invalid_utf8"),
            (unrecognised, "unrecognised"),
            (excess > 0, "excess"),
        ];
        let (_, kind) = kinds.into_iter().find(|(is_so, _)| *is_so)?;
        Some(Self {
            provider: &record.provider,
            model: record.model.as_deref().unwrap_or_default(),
            dialect: &record.dialect,
            field: record.native_field.as_deref().unwrap_or_default(),
            kind,
            offset: ending.bytes,
        })
    }
}

/// A response that is not in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordDropped<'a> {
    /// Provider.
    #[serde(serialize_with = "short")]
    pub provider: &'a str,
    /// Model; empty if it is not known.
    #[serde(serialize_with = "short")]
    pub model: &'a str,
    /// Id of the response.
    #[serde(serialize_with = "short")]
    pub id: &'a str,
    /// Cause: `spool_full`, or of an exporter without a spool: `queue_full`, `refused` or `unsent`.
    pub cause: &'static str,
}

impl<'a> RecordDropped<'a> {
    /// Returns the event about a record that was not kept.
    #[must_use]
    pub fn new(record: &'a Record, cause: &'static str) -> Self {
        let model = record.model.as_deref().unwrap_or_default();
        Self { provider: &record.provider, model, id: &record.id, cause }
    }
}

/// A step of a turn, with the provider and the model that are asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnStep<'a> {
    /// Provider.
    #[serde(serialize_with = "short")]
    pub provider: &'a str,
    /// Model, as it was asked for.
    #[serde(serialize_with = "short")]
    pub model: &'a str,
    /// The step.
    #[serde(flatten)]
    pub event: &'a TurnEvent,
}

impl<'a> Observation<'a> {
    /// Returns the event for a step of a turn that asks this provider and model.
    #[must_use]
    pub fn of_turn(event: &'a TurnEvent, provider: &'a str, model: &'a str) -> Self {
        let TurnEvent::StopReasonObserved { turn, iteration, reason, confidence, raw, .. } = event
        else {
            return Self::Turn(TurnStep { provider, model, event });
        };
        Self::StopReasonObserved(StopReasonObserved {
            provider,
            model,
            turn,
            iteration: *iteration,
            reason: *reason,
            confidence: *confidence,
            raw: raw.as_deref(),
        })
    }

    /// Returns the name used in JSON and in logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::StopReasonObserved(_) => "stop_reason_observed",
            Self::TerminationDetected(_) => "termination_detected",
            Self::UnknownReasonFirstSeen(_) => "unknown_reason_first_seen",
            Self::DetectionFault(_) => "detection_fault",
            Self::RecordDropped(_) => "record_dropped",
            Self::Turn(step) => step.event.name(),
        }
    }

    /// Returns the provider.
    #[must_use]
    pub fn provider(&self) -> &'a str {
        match self {
            Self::StopReasonObserved(event) => event.provider,
            Self::TerminationDetected(event) => &event.record.provider,
            Self::UnknownReasonFirstSeen(event) => event.provider,
            Self::DetectionFault(event) => event.provider,
            Self::RecordDropped(event) => event.provider,
            Self::Turn(step) => step.provider,
        }
    }

    /// Returns the model; empty if it is not known.
    #[must_use]
    pub fn model(&self) -> &'a str {
        match self {
            Self::StopReasonObserved(event) => event.model,
            Self::TerminationDetected(event) => event.record.model.as_deref().unwrap_or_default(),
            Self::UnknownReasonFirstSeen(event) => event.model,
            Self::DetectionFault(event) => event.model,
            Self::RecordDropped(event) => event.model,
            Self::Turn(step) => step.model,
        }
    }
}

fn short<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&clean(text, WORD_CAP))
}

fn short_or_none<S: Serializer>(text: &Option<&str>, serializer: S) -> Result<S::Ok, S::Error> {
    match text {
        Some(text) => short(text, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_name_themselves_and_hide_keys() {
        let record =
            Record { provider: "openai".into(), model: Some("m".to_owned()), ..Record::default() };
        let ending = Ending::new(Reason::Unknown, Confidence::Medium, Closed::BrokenFrame);
        let key = format!("sk-{}", "a1".repeat(20));
        let unknown =
            UnknownReasonFirstSeen { provider: "openai", model: "m", field: "f", word: &key };
        let turn = TurnEvent::InputIgnored {
            turn: "t".to_owned(),
            state: crate::continuation::StateName::Request,
            input: "tick".to_owned(),
        };
        let events = [
            Observation::StopReasonObserved(StopReasonObserved::new(&record, &ending)),
            Observation::TerminationDetected(TerminationDetected::new(
                &record,
                Reason::Unknown,
                None,
            )),
            Observation::UnknownReasonFirstSeen(unknown),
            Observation::DetectionFault(DetectionFault::of(&record, &ending).unwrap()),
            Observation::RecordDropped(RecordDropped::new(&record, "spool_full")),
            Observation::of_turn(&turn, "openai", "m"),
        ];
        for event in events {
            let json = serde_json::to_value(event).unwrap();
            assert_eq!(json["event"], event.name(), "{json}");
            assert_eq!((event.provider(), event.model()), ("openai", "m"), "{json}");
            assert_eq!((&json["provider"], &json["model"]), (&json!("openai"), &json!("m")));
            assert!(!json.to_string().contains("a1a1"), "{json}");
        }
    }

    #[test]
    fn a_response_that_was_read_has_no_fault() {
        let record = Record::default();
        let ending = Ending::new(Reason::Complete, Confidence::High, Closed::Proven);
        assert_eq!(DetectionFault::of(&record, &ending), None);
    }
}
