//! Counters and histograms of observations, as Prometheus reads them.

pub mod histogram;
mod models;
pub mod names;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use endstop::text::{WORD_CAP, clean};
use endstop::{Reason, Record};
use endstop_turn::continuation::{Completeness, TurnEvent};
use endstop_turn::observation::{
    DetectionFault, Observation, RecordDropped, Subscriber, TerminationDetected, TurnStep,
};

use histogram::{ATTEMPTS, Counts, Histogram, NANOSECONDS, SECONDS};
pub(crate) use models::Ends;
use models::{Model, Models};

pub use models::{MODELS, OTHER};
pub use names::METRICS;
pub use text::{CONTENT_TYPE, Kind, MetricInfo, Samples, Text};

/// The counters of one model at one time.
#[derive(Debug)]
pub(crate) struct ModelCounts {
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) durations: Vec<(Ends, Counts)>,
    pub(crate) input: Counts,
    pub(crate) output: Counts,
    pub(crate) reasoning: u64,
    pub(crate) cached: u64,
}

/// Label sets that one of the rarer counters may have.
const RARE: usize = 500;

/// Counts observations.
///
/// Counting a response of a model that is known takes no lock for long and allocates nothing. The text is made when
/// it is asked for.
#[derive(Debug)]
pub struct Metrics {
    models: Models,
    attempts: Histogram,
    continued: Histogram,
    responses_read: Histogram,
    chunks_read: Histogram,
    responses: AtomicU64,
    rare: Mutex<BTreeMap<(&'static str, Vec<String>), u64>>,
    started: SystemTime,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            models: Models::default(),
            attempts: Histogram::new(&ATTEMPTS),
            continued: Histogram::new(&SECONDS),
            responses_read: Histogram::new(&NANOSECONDS),
            chunks_read: Histogram::new(&NANOSECONDS),
            responses: AtomicU64::new(0),
            rare: Mutex::default(),
            started: SystemTime::now(),
        }
    }
}

impl Subscriber for Metrics {
    fn event(&self, event: &Observation<'_>) {
        match event {
            Observation::TerminationDetected(ended) => self.ended(ended),
            Observation::StopReasonObserved(_) => {}
            Observation::UnknownReasonFirstSeen(seen) => {
                self.count(&names::UNKNOWN_REASONS, &[seen.provider]);
            }
            Observation::DetectionFault(DetectionFault { provider, kind, .. }) => {
                self.count(&names::DETECTION_FAULTS, &[provider, kind]);
            }
            Observation::RecordDropped(RecordDropped { cause, .. }) => {
                self.count(&names::RECORDS_DROPPED, &[cause]);
            }
            Observation::Turn(step) => self.step(step),
            _ => {}
        }
    }
}

impl Metrics {
    /// Returns all metrics as Prometheus reads them.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = Text::default();
        self.write(&mut text);
        text.finish()
    }

    /// Writes all metrics, and then gives counters of their own to the models that are used most.
    pub fn write(&self, text: &mut Text) {
        text.family(&names::RESPONSES, |samples| {
            self.each_ending(|provider, model, ends, count| {
                let Ends { reason, finish_reason, closed, action } = ends;
                let labels = [provider, model, reason.name(), finish_reason, closed, action];
                samples.number(&labels, count);
            });
        });
        self.write_times(text);
        self.write_tokens(text);
        text.family(&names::CONTINUATIONS, |samples| {
            self.models.each(|provider, model, counters| {
                let count = counters.continuations.load(Ordering::Relaxed);
                if count > 0 {
                    samples.number(&[provider, model], count);
                }
            });
        });
        for (metric, histogram) in [
            (&names::TURN_ATTEMPTS, &self.attempts),
            (&names::CONTINUED_TURNS, &self.continued),
            (&names::RESPONSE_READ, &self.responses_read),
            (&names::CHUNK_READ, &self.chunks_read),
        ] {
            text.family(metric, |samples| {
                samples.histogram(&[], histogram.scale(), &histogram.counts());
            });
        }
        self.write_rare(text);
        self.models.settle();
    }

    /// Returns whether the next response is to be timed: one of 64 is.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.responses.fetch_add(1, Ordering::Relaxed).is_multiple_of(64)
    }

    /// Returns the time since which it counts.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns the counters of all models.
    pub(crate) fn models(&self) -> Vec<ModelCounts> {
        let mut all = Vec::new();
        self.models.each(|provider, model, counters| {
            all.push(ModelCounts {
                provider: provider.to_owned(),
                model: model.to_owned(),
                durations: counters.durations(),
                input: counters.input.counts(),
                output: counters.output.counts(),
                reasoning: counters.reasoning.load(Ordering::Relaxed),
                cached: counters.cached.load(Ordering::Relaxed),
            });
        });
        all
    }

    /// Counts entries that an exporter could not send and does not keep.
    pub fn dropped(&self, cause: &'static str) {
        self.count(&names::RECORDS_DROPPED, &[cause]);
    }

    fn write_times(&self, text: &mut Text) {
        text.family(&names::RESPONSE_DURATION, |samples| {
            self.models.each(|provider, model, counters| {
                let mut durations = counters.durations().into_iter().map(|(_, counts)| counts);
                let Some(mut all) = durations.next() else { return };
                durations.for_each(|more| all.add(&more));
                samples.histogram(&[provider, model], &SECONDS, &all);
            });
        });
        text.family(&names::FIRST_BYTE, |samples| {
            self.models.each(|provider, model, counters| {
                let counts = counters.first_byte.counts();
                if counts.count() > 0 {
                    samples.histogram(&[provider, model], &SECONDS, &counts);
                }
            });
        });
    }

    fn write_tokens(&self, text: &mut Text) {
        text.family(&names::TOKENS, |samples| {
            self.models.each(|provider, model, counters| {
                let tokens = [
                    ("input", counters.input.counts().sum),
                    ("output", counters.output.counts().sum),
                    ("reasoning", counters.reasoning.load(Ordering::Relaxed)),
                    ("cached", counters.cached.load(Ordering::Relaxed)),
                ];
                for (kind, count) in tokens.into_iter().filter(|(_, count)| *count > 0) {
                    samples.number(&[provider, model, kind], count);
                }
            });
        });
    }

    fn write_rare(&self, text: &mut Text) {
        let rare = self.rare.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for metric in names::RARE {
            text.family(metric, |samples| {
                let own = rare.iter().filter(|((name, _), _)| *name == metric.name);
                for ((_, labels), count) in own {
                    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                    samples.number(&labels, *count);
                }
            });
        }
    }

    fn each_ending(&self, mut each: impl FnMut(&str, &str, &Ends, u64)) {
        self.models.each(|provider, model, counters| {
            for (ends, counts) in counters.durations() {
                each(provider, model, &ends, counts.count());
            }
        });
    }

    fn ended(&self, ended: &TerminationDetected<'_>) {
        let TerminationDetected { record, reason, detection, .. } = ended;
        let model = record.model.as_deref().unwrap_or_default();
        self.models.with(&record.provider, model, |model| model.count(record, *reason));
        if let Some(times) = detection {
            self.responses_read.add(times.response_ns);
            times.chunk_ns.iter().for_each(|time| self.chunks_read.add(*time));
        }
        // Whoever sends requests through a gateway continues answers; a gateway sees that a failed request comes
        // again. A client says it itself.
        if record.mode.is_empty() {
            return;
        }
        if reason.is_success() {
            self.attempts.add(u64::from(record.attempt));
            if record.attempt > 1
                && let Some(time) = turn_time(record)
            {
                self.continued.add(time);
            }
        } else if is_truncated(*reason) {
            self.count(&names::TRUNCATION_EXITS, &[&record.provider, &record.cause]);
        }
    }

    fn step(&self, step: &TurnStep<'_>) {
        let TurnStep { provider, model, event, .. } = step;
        match event {
            TurnEvent::ContinuationAttempt { .. } => {
                let count = |model: &Model| {
                    model.continuations.fetch_add(1, Ordering::Relaxed);
                };
                self.models.with(provider, model, count);
            }
            TurnEvent::ContinuationTerminated { elapsed_ms, .. } => {
                self.continued.add(elapsed_ms.saturating_mul(1000));
            }
            TurnEvent::TurnEnded { iterations, continued, finish, terminated, reason, .. } => {
                self.attempts.add(u64::from(*iterations));
                let truncated = reason.is_some_and(is_truncated);
                if truncated && !continued && *finish != Completeness::Complete {
                    self.count(&names::TRUNCATION_EXITS, &[provider, terminated.name()]);
                }
            }
            TurnEvent::ToolPayloadRepair { issue, succeeded, attempted, .. } => {
                let result = match (attempted, succeeded) {
                    (false, _) => "not_attempted",
                    (true, None) => "requested",
                    (true, Some(true)) => "succeeded",
                    (true, Some(false)) => "failed",
                };
                self.count(&names::TOOL_REPAIRS, &[provider, issue.name(), result]);
            }
            TurnEvent::StopReasonObserved { .. }
            | TurnEvent::RetryAttempt { .. }
            | TurnEvent::ResumeAttempt { .. }
            | TurnEvent::RequestResent { .. }
            | TurnEvent::InputIgnored { .. }
            | _ => {}
        }
    }

    /// Counts something that does not happen to healthy responses.
    fn count(&self, metric: &'static MetricInfo, labels: &[&str]) {
        let labels: Vec<String> = labels.iter().map(|label| clean(label, WORD_CAP)).collect();
        let others = || labels.iter().map(|_| OTHER.to_owned()).collect();
        let mut rare = self.rare.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (metric.name, labels.clone());
        let is_full = rare.len() >= RARE && !rare.contains_key(&key);
        let key = if is_full { (metric.name, others()) } else { key };
        *rare.entry(key).or_default() += 1;
    }
}

/// Reports whether an answer is incomplete although its provider did not refuse it.
fn is_truncated(reason: Reason) -> bool {
    matches!(reason, Reason::OutputLimit | Reason::ContextLimit | Reason::Cut | Reason::TimedOut)
}

/// Returns the time from the first request of a turn to the end of this response, in microseconds. The id of the
/// first request, which is that of the turn, begins with its time.
fn turn_time(record: &Record) -> Option<u64> {
    let began = u64::from_str_radix(record.turn_id.get(..12)?, 16).ok()?;
    let before = record.created_at.checked_sub(began)?;
    Some(before.saturating_mul(1000).saturating_add(record.total_us))
}
