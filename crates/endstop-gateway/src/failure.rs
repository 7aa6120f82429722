//! Which endings a guard makes loud, and what it says of them.
//!
//! Two things are failures: a response of which something is missing that the provider meant to send,
//! and a response that holds a tool call which the core's one rule refuses. Everything else is the
//! provider's to say and the client's to read: a length, a filter, a refusal, a word that nobody knows.
//! The core's [`remedy`] says which is which; only the status codes are ours.

use endstop::dialect::GatewayError;
use endstop::tool_call::{Allow, Refusal};
use endstop::{Closed, Ending, Reason};
use endstop_turn::policy::{Cause, Delivery, Remedy, remedy};

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
    pub fn gateway_error(&self) -> GatewayError<'_> {
        GatewayError { status: self.status, code: self.code, message: &self.message }
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

/// Returns why the response must fail, or `None` if it may pass.
#[must_use]
pub fn failure(ending: &Ending, strictness: Strictness) -> Option<Failure> {
    let remedy = remedy(ending);
    match remedy.delivery {
        Delivery::Pending => return None,
        // A provider that falls silent after its word has given the whole answer.
        Delivery::Whole if remedy.cause == Cause::TimedOut => return None,
        Delivery::Broken if !passes_unproven(ending, &remedy, strictness) => {
            return Some(unfinished(ending, &remedy));
        }
        Delivery::Broken | Delivery::Whole | Delivery::Unclear => {}
    }
    match remedy.tools {
        Allow::Refuse(Refusal::NoCalls) | Allow::Run => None,
        Allow::Refuse(_) if strictness.tool_calls == ToolCalls::Pass => None,
        Allow::Refuse(refusal) => Some(refused(ending, refusal, &remedy)),
    }
}

/// Whether a host that is not known to prove its ends may have ended a whole answer like this.
#[must_use]
pub fn is_doubtful(ending: &Ending, strictness: Strictness) -> bool {
    !strictness.proves && ending.closed == Closed::Eof && !has_calls(ending)
}

fn passes_unproven(ending: &Ending, remedy: &Remedy, strictness: Strictness) -> bool {
    remedy.cause == Cause::CutStream && is_doubtful(ending, strictness)
}

fn has_calls(ending: &Ending) -> bool {
    ending.choices.iter().any(|choice| choice.shown.tool_calls > 0)
}

fn unfinished(ending: &Ending, remedy: &Remedy) -> Failure {
    let (status, code) = status(ending.reason);
    let name = ending.reason.name();
    let advice = sentence(&remedy.advice);
    let message = format!("endstop: {} ({name}). {advice}", ending.sentence);
    Failure { status, code, message, repeats: remedy.repeats }
}

/// The HTTP status and the code that an unfinished response is told with.
fn status(reason: Reason) -> (u16, &'static str) {
    match reason {
        Reason::Cut => (502, "endstop_cut"),
        Reason::TimedOut => (504, "endstop_timed_out"),
        Reason::Failed => (502, "endstop_failed"),
        Reason::Cancelled => (502, "endstop_cancelled"),
        Reason::MalformedToolCall => (422, "endstop_malformed_tool_call"),
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
        | Reason::Unknown
        | _ => (502, "endstop_unfinished"),
    }
}

fn refused(ending: &Ending, refusal: Refusal, remedy: &Remedy) -> Failure {
    Failure {
        status: 422,
        code: "endstop_tool_call_refused",
        message: format!(
            "endstop: {}: {}. The turn holds a tool call that may be incomplete. {}",
            refusal.sentence(),
            ending.sentence,
            sentence(&remedy.advice)
        ),
        repeats: remedy.repeats,
    }
}

/// The clause as a sentence of its own.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use endstop::{Confidence, Said, Shown, Timer};

    use super::*;

    const STRICT: Strictness = Strictness { tool_calls: ToolCalls::Fail, proves: true };

    fn ending(reason: Reason, shown: Shown) -> Ending {
        let mut ending = Ending::new(reason, Confidence::High, Closed::Eof);
        ending.shown = shown;
        ending.sentence = "the stream stopped".to_owned();
        for choice in &mut ending.choices {
            choice.shown = shown;
            choice.said = Some(Said::new("finish_reason", "x"));
        }
        ending
    }

    fn text() -> Shown {
        Shown { text: true, ..Shown::default() }
    }

    fn call() -> Shown {
        Shown { tool_calls: 1, ..text() }
    }

    #[test]
    fn only_what_is_missing_something_fails_without_calls() {
        for reason in Reason::ALL {
            let want = match reason {
                Reason::Cut => Some((502, "endstop_cut", false)),
                Reason::TimedOut => Some((504, "endstop_timed_out", false)),
                Reason::Failed => Some((502, "endstop_failed", false)),
                Reason::Cancelled => Some((502, "endstop_cancelled", false)),
                Reason::MalformedToolCall => Some((422, "endstop_malformed_tool_call", true)),
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
                | Reason::Unknown
                | _ => None,
            };
            let of = |strictness| {
                let failure = failure(&ending(reason, text()), strictness);
                failure.map(|failure| (failure.status, failure.code, failure.repeats))
            };
            assert_eq!(of(STRICT), want, "{reason:?}");
            let pass = Strictness { tool_calls: ToolCalls::Pass, ..STRICT };
            assert_eq!(of(pass), want, "{reason:?}");
            // A host that is not known to prove its ends may end so.
            let lenient = Strictness { proves: false, ..STRICT };
            let want = want.filter(|_| reason != Reason::Cut);
            assert_eq!(of(lenient), want, "{reason:?}");
        }
    }

    #[test]
    fn a_call_that_the_rule_refuses_fails_whatever_was_said() {
        for reason in Reason::ALL {
            let failure = failure(&ending(reason, call()), STRICT);
            assert_eq!(failure.is_none(), reason == Reason::ToolCall, "{reason:?}");
            let pass = Strictness { tool_calls: ToolCalls::Pass, ..STRICT };
            let Some(failure) = failure else { continue };
            if failure.code == "endstop_tool_call_refused" {
                assert_eq!((failure.status, failure.repeats), (422, true), "{reason:?}");
                assert_eq!(super::failure(&ending(reason, call()), pass), None, "{reason:?}");
            }
        }
        let mut low = ending(Reason::ToolCall, call());
        low.confidence = Confidence::Low;
        assert!(failure(&low, STRICT).is_some_and(|failure| failure.repeats));
    }

    #[test]
    fn messages_say_what_happened_and_what_to_do() {
        let message = |ending: &Ending| failure(ending, STRICT).map(|failure| failure.message);
        assert_eq!(
            message(&ending(Reason::Cut, text())).as_deref(),
            Some(
                "endstop: the stream stopped (cut). Discard it and send the request again, or resume \
                 it; never run its tool calls."
            )
        );
        assert_eq!(
            message(&ending(Reason::OutputLimit, call())).as_deref(),
            Some(
                "endstop: the response ended as output_limit, so none of its tool calls may run: \
                 the stream stopped. The turn holds a tool call that may be incomplete. Never run \
                 the tool call; raise the output limit, or ask for only that call."
            )
        );
    }

    #[test]
    fn what_is_not_over_and_what_fell_silent_after_its_word_pass() {
        let mut pending = ending(Reason::Unknown, call());
        pending.over = false;
        assert_eq!(failure(&pending, STRICT), None);
        let closed = Closed::TimedOut(Timer::Idle);
        let mut silent = ending(Reason::TimedOut, call());
        silent.closed = closed;
        assert_eq!(failure(&silent, STRICT), None);
        let mut wordless = silent;
        wordless.choices.iter_mut().for_each(|choice| choice.said = None);
        assert!(failure(&wordless, STRICT).is_some());
    }
}
