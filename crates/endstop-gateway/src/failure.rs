//! Which endings a guard makes loud, and what it says of them.
//!
//! Two things are failures: a turn that is not finished and was not said to be so, and a turn that
//! holds a tool call which the core's one rule refuses. Everything else is the provider's to say and
//! the client's to read: a length, a filter, a refusal, a word that nobody knows.

use endstop::tool_call::{Allow, Refusal, allow_by_ending};
use endstop::trouble::Trouble;
use endstop::{Closed, Ending, Reason, Timer};

use crate::config::ToolCalls;

/// Why a response is not passed on as a finished one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status, where it can still be told.
    pub status: u16,
    /// A short word for it.
    pub code: &'static str,
    /// What happened, what it means and what to do.
    pub message: String,
    /// Asking the same again would end the same.
    pub repeats: bool,
}

impl Failure {
    /// The same for the wire to tell.
    #[must_use]
    pub fn trouble(&self) -> Trouble<'_> {
        Trouble { status: self.status, code: self.code, message: &self.message }
    }
}

/// How strictly a response is held.
#[derive(Clone, Copy, Debug)]
pub struct Strictness {
    /// What is done about tool calls.
    pub tool_calls: ToolCalls,
    /// The host is known to prove the end of its responses.
    pub proves: bool,
}

/// The failure that this ending is; none if it is to be passed on.
#[must_use]
pub fn failure(ending: &Ending, strictness: Strictness) -> Option<Failure> {
    // Whoever falls silent after the word has given the whole answer.
    if !ending.over || is_silence_after_word(ending) {
        return None;
    }
    let unfinished = unfinished(ending, strictness);
    if unfinished.is_some() || strictness.tool_calls == ToolCalls::Pass {
        return unfinished;
    }
    match allow_by_ending(ending) {
        Allow::Run | Allow::Refuse(Refusal::NoCalls) => None,
        Allow::Refuse(refusal) => Some(refused(ending, refusal)),
    }
}

/// Whether a host that is not known to prove its ends may have ended a whole answer like this.
#[must_use]
pub fn is_doubtful(ending: &Ending, strictness: Strictness) -> bool {
    !strictness.proves && ending.closed == Closed::Eof && !has_calls(ending)
}

fn is_silence_after_word(ending: &Ending) -> bool {
    ending.closed == Closed::TimedOut(Timer::Idle)
        && ending.choices.iter().all(|choice| choice.said.is_some())
}

fn has_calls(ending: &Ending) -> bool {
    ending.choices.iter().any(|choice| choice.shown.tool_calls > 0)
}

fn unfinished(ending: &Ending, strictness: Strictness) -> Option<Failure> {
    let (status, code, advice, repeats) = match ending.reason {
        Reason::Cut if is_doubtful(ending, strictness) => return None,
        Reason::Cut => {
            (502, "endstop_cut", "What came is not a finished answer; ask again.", false)
        }
        Reason::TimedOut => {
            (504, "endstop_timed_out", "What came is not a finished answer; ask again.", false)
        }
        Reason::Failed => {
            (502, "endstop_failed", "What came is not a finished answer; ask again.", false)
        }
        Reason::Cancelled => {
            (502, "endstop_cancelled", "What came is not a finished answer; ask again.", false)
        }
        Reason::MalformedToolCall => (
            422,
            "endstop_malformed_tool_call",
            "No tool call of this turn may run; ask again, or change the prompt or the tool.",
            true,
        ),
        Reason::Complete
        | Reason::StopSequence
        | Reason::ToolCall
        | Reason::Paused
        | Reason::OutputLimit
        | Reason::ContextLimit
        | Reason::Refused
        | Reason::Filtered
        | Reason::Safety
        | Reason::Recitation
        | Reason::Unknown => return None,
    };
    let message = format!("endstop: {} ({}). {advice}", ending.sentence, ending.reason.name());
    Some(Failure { status, code, message, repeats })
}

fn refused(ending: &Ending, refusal: Refusal) -> Failure {
    let advice = match ending.reason {
        Reason::OutputLimit => "Raise the output cap, or ask for a shorter call.",
        Reason::ContextLimit => "The context window is full: shorten the conversation.",
        Reason::Complete
        | Reason::StopSequence
        | Reason::ToolCall
        | Reason::Paused
        | Reason::Refused
        | Reason::Filtered
        | Reason::Safety
        | Reason::Recitation
        | Reason::MalformedToolCall
        | Reason::Unknown
        | Reason::Cancelled
        | Reason::TimedOut
        | Reason::Failed
        | Reason::Cut => "Ask again.",
    };
    Failure {
        status: 422,
        code: "endstop_tool_call_refused",
        message: format!(
            "endstop: {}: {}. The turn holds a tool call that may be incomplete. {advice}",
            refusal.sentence(),
            ending.sentence
        ),
        repeats: true,
    }
}
