//! One ending as one line of JSON, for scripts.

use endstop::vocabulary::{NormalizedStopReason, Vocabulary};
use endstop::{Confidence, Ending, Fault, FaultKind, Reason, Usage, Wire};
use serde::Serialize;

/// Ending of one response as a flat object, for `replay --json` and `check --json`.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
    id: &'a str,
    provider: &'a str,
    dialect: &'a str,
    api_version: Option<&'a str>,
    model: Option<&'a str>,
    /// Null for a polled response that is not finished.
    reason: Option<Reason>,
    finish_reason: Option<&'a str>,
    confidence: Confidence,
    native_field: Option<&'a str>,
    native_value: Option<&'a str>,
    closed: &'a str,
    shown: Vec<&'static str>,
    over: bool,
    context_overflow: bool,
    termination: &'a str,
    stop_reason: NormalizedStopReason,
    sentence: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'a Fault>,
    usage: Usage,
    choices: Vec<Choice<'a>>,
    details: &'a [endstop::Detail],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ratings: &'a [endstop::SafetyRating],
    bytes: u64,
    events: u64,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    reason: Reason,
    confidence: Confidence,
    native_value: Option<&'a str>,
    shown: Vec<&'static str>,
}

impl<'a> Line<'a> {
    pub(crate) fn new(id: &'a str, ending: &'a Ending, wire: &'a Wire) -> Self {
        let overflow = |fault: &Fault| fault.kind == FaultKind::ContextWindow;
        Self {
            id,
            provider: &ending.provider,
            dialect: &ending.dialect,
            api_version: wire.api_version(),
            model: ending.model.as_deref(),
            reason: ending.over.then_some(ending.reason),
            finish_reason: ending.finish_reason(),
            confidence: ending.confidence,
            native_field: ending.native().map(|(field, _)| field),
            native_value: ending.native().map(|(_, word)| word),
            closed: ending.closed.word(),
            shown: ending.shown.names(),
            over: ending.over,
            context_overflow: ending.fault.as_ref().is_some_and(overflow),
            termination: Vocabulary::Termination.spell(ending.reason),
            stop_reason: ending.stop_reason(),
            sentence: &ending.sentence,
            fault: ending.fault.as_ref(),
            usage: ending.usage,
            choices: ending.choices.iter().map(Choice::new).collect(),
            details: &ending.details,
            ratings: &ending.ratings,
            bytes: ending.bytes,
            events: ending.events,
        }
    }
}

impl<'a> Choice<'a> {
    fn new(choice: &'a endstop::ChoiceEnding) -> Self {
        Self {
            index: choice.index,
            reason: choice.reason,
            confidence: choice.confidence,
            native_value: choice.said.as_ref().map(|said| said.word.as_str()),
            shown: choice.shown.names(),
        }
    }
}
