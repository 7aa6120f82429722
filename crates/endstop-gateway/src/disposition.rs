//! The disposition of a response: the treatment that its ending calls for.
//!
//! One pure function for plain and streamed responses. A response fails if part of it is missing
//! that the provider meant to send, or if it holds a tool call that the core's one rule refuses.
//! Everything else is for the provider to say and for the client to read: a token limit, a filter,
//! a refusal, an unknown finish reason. [`remedy`] tells these apart; only the status codes are
//! decided here.

use endstop::dialect::GatewayError;
use endstop::tool_call::{Allow, Refusal};
use endstop::{Closed, Ending, Fault, FaultForm, Reason};
use endstop_turn::policy::{Cause, Delivery, Remedy, remedy};

use crate::config::{Mode, ToolCalls};

/// Treatment of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It passes unchanged.
    Pass,
    /// It passes unchanged, but it may be incomplete.
    Warn,
    /// Its body passes with this status, because the body is an error that the status did not show.
    Status(u16),
    /// It is replaced, or ended, by an error of the gateway.
    Fail(Failure),
}

/// An error of the gateway in place of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status, if the head can still be sent.
    pub status: u16,
    /// Short code.
    pub code: &'static str,
    /// Message that says what happened, what it means and what to do.
    pub message: String,
    /// Reason for the end of the response.
    pub reason: Reason,
    /// Whether the same request is expected to end the same way.
    pub repeats: bool,
}

impl Failure {
    /// Returns the error in the form that wires encode.
    #[must_use]
    pub fn gateway_error(&self) -> GatewayError<'_> {
        GatewayError {
            status: self.status,
            code: self.code,
            message: &self.message,
            reason: Some(self.reason),
            repeats: self.repeats,
        }
    }
}

/// The rules that apply to a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseRules {
    /// Mode of the gateway.
    pub mode: Mode,
    /// Treatment of tool calls.
    pub tool_calls: ToolCalls,
    /// Whether the upstream is known to send end markers.
    pub proves: bool,
    /// Whether the request asked for a response in the background, or polls one.
    pub background: bool,
}

/// Returns the disposition of a response with this ending. `status` is the upstream's; a stream has
/// none that could still change.
#[must_use]
pub fn disposition(ending: &Ending, terms: ResponseRules, status: Option<u16>) -> Disposition {
    if terms.mode == Mode::Observe {
        return if is_doubtful(ending, terms) { Disposition::Warn } else { Disposition::Pass };
    }
    if let Some(status) = status {
        if let Some(failure) = bad_payload(ending, status) {
            return Disposition::Fail(failure);
        }
        // The status already says so, and the body is complete.
        if status >= 400 && is_whole(ending) {
            return Disposition::Pass;
        }
        // What could not be read may be a tool call.
        let is_unread = ending.shown.malformed_event || ending.shown.excess > 0;
        if is_unread
            && terms.tool_calls != ToolCalls::Pass
            && let Some(failure) = unread(ending)
        {
            return Disposition::Fail(failure);
        }
        // The provider says that it was cancelled, as was asked for.
        if ending.reason == Reason::Cancelled && is_told(ending) {
            return Disposition::Pass;
        }
    }
    match failure(ending, terms) {
        None if is_doubtful(ending, terms) => Disposition::Warn,
        None => Disposition::Pass,
        Some(failure) => match error_status(ending).filter(|_| status.is_some()) {
            Some(status) => Disposition::Status(status),
            None => Disposition::Fail(failure),
        },
    }
}

/// Returns why a response must fail, or `None` if it may pass.
#[must_use]
pub fn failure(ending: &Ending, terms: ResponseRules) -> Option<Failure> {
    // Most responses: a complete answer without tool calls.
    if ending.over && ending.reason.is_success() && !has_calls(ending) {
        return None;
    }
    let remedy = remedy(ending);
    match remedy.delivery {
        Delivery::Pending if terms.background || !has_calls(ending) => return None,
        // The provider sent its finish reason and then nothing more: the answer is complete.
        Delivery::Whole if remedy.cause == Cause::TimedOut => return None,
        // The provider says that its call is malformed, and there is no call that could run.
        Delivery::Broken if ending.reason == Reason::MalformedToolCall && is_told(ending) => {
            return None;
        }
        Delivery::Broken if !may_lack_proof(ending, &remedy, terms) => {
            return Some(unfinished(ending, &remedy));
        }
        Delivery::Broken | Delivery::Whole | Delivery::Unclear | Delivery::Pending => {}
    }
    match remedy.tools {
        Allow::Refuse(Refusal::NoCalls) | Allow::Run => None,
        Allow::Refuse(_) if terms.tool_calls == ToolCalls::Pass => None,
        Allow::Refuse(refusal) => Some(refused(ending, refusal, &remedy)),
    }
}

/// Returns why a response that may pass must fail if its tool calls have not left yet: nothing proves
/// them.
#[must_use]
pub fn unproven(ending: &Ending) -> Option<Failure> {
    let remedy = remedy(ending);
    match remedy.tools {
        Allow::Refuse(Refusal::NoCalls) | Allow::Run => None,
        Allow::Refuse(_) => ending.over.then(|| unfinished(ending, &remedy)),
    }
}

/// Returns why a response must fail of which a part could not be read that has not left yet: it may hold a
/// tool call.
#[must_use]
pub fn unread(ending: &Ending) -> Option<Failure> {
    (!ending.reason.is_success()).then(|| unfinished(ending, &remedy(ending)))
}

/// Reports whether the response passes although it may be incomplete: the upstream is not known to
/// send end markers.
fn is_doubtful(ending: &Ending, terms: ResponseRules) -> bool {
    lacks_proof(ending, terms) && !ending.reason.is_success()
}

fn lacks_proof(ending: &Ending, terms: ResponseRules) -> bool {
    !terms.proves && ending.closed == Closed::Eof && !has_calls(ending)
}

fn may_lack_proof(ending: &Ending, remedy: &Remedy, terms: ResponseRules) -> bool {
    remedy.cause == Cause::CutStream && lacks_proof(ending, terms)
}

fn has_calls(ending: &Ending) -> bool {
    ending.choices.iter().any(|choice| choice.shown.tool_calls > 0)
}

fn is_whole(ending: &Ending) -> bool {
    matches!(ending.closed, Closed::Proven | Closed::Eof | Closed::Error)
}

/// Reports whether the provider's finish reason says it all: no call can run, and nothing is missing.
/// A stream that is still open is judged as if it ended here: a call that follows is judged then.
fn is_told(ending: &Ending) -> bool {
    let is_whole = is_whole(ending) || ending.closed == Closed::Open;
    ending.said.is_some() && !has_calls(ending) && is_whole
}

/// Returns the status of an error that came with the status of a success and without any content.
fn error_status(ending: &Ending) -> Option<u16> {
    let fault = ending.fault.as_ref()?;
    let named = fault.status.filter(|status| (400..=599).contains(status));
    let whole = is_whole(ending) && ending.shown.is_empty();
    whole.then(|| named.unwrap_or_else(|| fault.kind.status()))
}

/// Returns the failure for a page or a redirect in place of a response.
fn bad_payload(ending: &Ending, status: u16) -> Option<Failure> {
    // No client takes a text with such a status for a success, and it says what is wrong.
    let rejects = |fault: &Fault| fault.form == FaultForm::Text && (400..=499).contains(&status);
    let is_page = |fault: &Fault| fault.form.is_foreign() && !rejects(fault);
    let is_page = ending.fault.as_ref().is_some_and(is_page);
    let redirects = (300..=399).contains(&status);
    let what = match (is_page, redirects) {
        (true, _) => "an HTML page or plain text came back instead of a response",
        (false, true) => "the upstream answered with a redirect, which the gateway does not follow",
        (false, false) => return None,
    };
    Some(Failure {
        status: if (400..=499).contains(&status) { status } else { 502 },
        code: "endstop_bad_payload",
        message: format!(
            "endstop: {what} (HTTP {status}). Check the base URL of the upstream and any proxy in \
             front of it."
        ),
        reason: ending.reason,
        repeats: false,
    })
}

fn unfinished(ending: &Ending, remedy: &Remedy) -> Failure {
    let fault = ending.fault.as_ref();
    let failed = fault.map_or(502, |fault| fault.status.unwrap_or(fault.kind.status()));
    let (status, code) = match ending.reason {
        Reason::Cut => (502, "endstop_cut"),
        Reason::TimedOut => (504, "endstop_timed_out"),
        // The kind that the provider named decides whether clients ask again.
        Reason::Failed => (if failed < 400 { 502 } else { failed }, "endstop_failed"),
        Reason::Cancelled => (502, "endstop_cancelled"),
        Reason::MalformedToolCall => (400, "endstop_malformed_tool_call"),
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
    };
    let name = ending.reason.name();
    let advice = if ending.closed == Closed::ShutDown {
        // Nobody cancelled it.
        "Discard the response and retry your request.".to_owned()
    } else {
        sentence(&remedy.advice)
    };
    let message = format!("endstop: {} ({name}). {advice}", ending.sentence);
    Failure { status, code, message, reason: ending.reason, repeats: remedy.repeats }
}

/// Returns the failure for a tool call that may not run. Fewer clients send a request again after status
/// 400 than after 422 (docs/compatibility.md).
fn refused(ending: &Ending, refusal: Refusal, remedy: &Remedy) -> Failure {
    let repeats = remedy.repeats;
    Failure {
        status: if repeats { 400 } else { 502 },
        code: "endstop_tool_call_refused",
        message: format!(
            "endstop: {}: {}. The response contains a tool call that may be incomplete. {}",
            refusal.sentence(),
            ending.sentence,
            sentence(&remedy.advice)
        ),
        reason: ending.reason,
        repeats,
    }
}

/// Returns the clause as a sentence.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use endstop::{Confidence, Said, Shown, Timer};

    use super::*;

    /// A body of which a part cannot be read may hold a tool call: it does not pass with the word of a limit.
    #[test]
    fn a_body_that_is_not_read_whole_does_not_pass() {
        let call = r#"{"index":0,"message":{"content":null,"tool_calls":[{"id":"1","type":"function",
            "function":{"name":"f","arguments":"{}"}}]},"finish_reason":"length"}"#;
        let text = r#"{"index":0,"message":{"content":"a"},"finish_reason":"stop"}"#;
        let body = format!(r#"{{"choices":[{call}]}}"#);
        let wide: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let marked = [b"\xef\xbb\xbf", body.as_bytes()].concat();
        let long =
            format!(r#"{{"prompt_filter_results":[{}0],"choices":[{call}]}}"#, "0,".repeat(20_000));
        let many = format!(r#"{{"choices":[{}{call}]}}"#, format!("{text},").repeat(129));
        for body in [body.clone().into_bytes(), wide, marked, long.into_bytes(), many.into_bytes()]
        {
            let info = endstop::RequestInfo::default();
            let head = endstop::Head { status: 200, content_type: "application/json" };
            let watcher = endstop::Watcher::new(&endstop::provider::OPENAI, head, info);
            let ending = watcher.finish_with(&body, endstop::TransportEnd::Eof);
            let disposition = disposition(&ending, STRICT, Some(200));
            assert!(matches!(disposition, Disposition::Fail(_)), "{disposition:?}: {ending:?}");
        }
    }

    const STRICT: ResponseRules = ResponseRules {
        mode: Mode::Guard,
        tool_calls: ToolCalls::Gate,
        proves: true,
        background: false,
    };

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
        let mut shown = Shown::default();
        shown.text = true;
        shown
    }

    fn call() -> Shown {
        let mut shown = text();
        shown.tool_calls = 1;
        shown
    }

    #[test]
    fn only_incomplete_responses_fail_without_calls() {
        for reason in Reason::ALL {
            let want = match reason {
                Reason::Cut => Some((502, "endstop_cut", false)),
                Reason::TimedOut => Some((504, "endstop_timed_out", false)),
                Reason::Failed => Some((502, "endstop_failed", false)),
                Reason::Cancelled => Some((502, "endstop_cancelled", false)),
                Reason::MalformedToolCall => Some((400, "endstop_malformed_tool_call", true)),
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
            let of = |terms| {
                let failure = failure(&ending(reason, text()), terms);
                failure.map(|failure| (failure.status, failure.code, failure.repeats))
            };
            assert_eq!(of(STRICT), want, "{reason:?}");
            let pass = ResponseRules { tool_calls: ToolCalls::Pass, ..STRICT };
            assert_eq!(of(pass), want, "{reason:?}");
            // A host that is not known to send end markers may end like this.
            let lenient = ResponseRules { proves: false, ..STRICT };
            let want = want.filter(|_| reason != Reason::Cut);
            assert_eq!(of(lenient), want, "{reason:?}");
            let shown = disposition(&ending(reason, text()), lenient, None);
            assert_eq!(shown == Disposition::Warn, want.is_none() && !reason.is_success());
        }
    }

    #[test]
    fn a_whole_body_that_says_cancelled_passes() {
        let mut told = ending(Reason::Cancelled, text());
        assert!(matches!(disposition(&told, STRICT, Some(200)), Disposition::Fail(_)));
        told.said = Some(Said::new("status", "cancelled"));
        assert_eq!(disposition(&told, STRICT, Some(200)), Disposition::Pass);
        assert!(matches!(disposition(&told, STRICT, None), Disposition::Fail(_)));
        let mut with_call = ending(Reason::Cancelled, call());
        with_call.said.clone_from(&told.said);
        assert!(matches!(disposition(&with_call, STRICT, Some(200)), Disposition::Fail(_)));
    }

    #[test]
    fn a_call_that_the_rule_refuses_fails_whatever_was_said() {
        for reason in Reason::ALL {
            let failure = failure(&ending(reason, call()), STRICT);
            assert_eq!(failure.is_none(), reason == Reason::ToolCall, "{reason:?}");
            let pass = ResponseRules { tool_calls: ToolCalls::Pass, ..STRICT };
            let Some(failure) = failure else { continue };
            if failure.code == "endstop_tool_call_refused" {
                assert_eq!((failure.status, failure.repeats), (400, true), "{reason:?}");
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
                "endstop: the stream stopped (cut). Discard the response and retry your request, or resume it; \
                 do not run its tool calls."
            )
        );
        assert_eq!(
            message(&ending(Reason::OutputLimit, call())).as_deref(),
            Some(
                "endstop: the response ended as output_limit, so none of its tool calls may run: \
                 the stream stopped. The response contains a tool call that may be incomplete. Never \
                 run the tool call; raise the output limit, or ask for only that call."
            )
        );
    }

    /// Its words say what is wrong, and the status that it is no success.
    #[test]
    fn a_text_with_the_status_of_a_rejection_passes() {
        let judge = |status: u16, content_type: &str, body: &str| {
            let head = endstop::Head { status, content_type };
            let wire = &endstop::provider::OPENAI;
            let watcher = endstop::Watcher::new(wire, head, endstop::RequestInfo::default());
            let ending = watcher.finish_with(body.as_bytes(), endstop::TransportEnd::Eof);
            disposition(&ending, STRICT, Some(status))
        };
        let text = "invalid model name";
        for status in [400, 404, 422, 429] {
            assert_eq!(judge(status, "text/plain", text), Disposition::Pass, "{status}");
        }
        for status in [200, 302, 502] {
            let judged = judge(status, "text/plain", text);
            assert!(matches!(judged, Disposition::Fail(_)), "{status}: {judged:?}");
        }
        let page = judge(404, "text/html", "<html><title>Not Found</title></html>");
        assert!(matches!(page, Disposition::Fail(_)), "{page:?}");
    }

    #[test]
    fn a_shutdown_is_not_told_as_a_cancellation_by_the_client() {
        let mut ended = ending(Reason::Cancelled, text());
        ended.closed = Closed::ShutDown;
        ended.sentence = "Endstop shut down before the response was complete".to_owned();
        let message = failure(&ended, STRICT).unwrap().message;
        assert_eq!(
            message,
            "endstop: Endstop shut down before the response was complete (cancelled). Discard the \
             response and retry your request."
        );
    }

    #[test]
    fn responses_under_way_and_silence_after_the_finish_reason_pass() {
        let mut pending = ending(Reason::Unknown, text());
        pending.over = false;
        assert_eq!(failure(&pending, STRICT), None);
        // A call is only expected in a response that was asked for in the background.
        let mut with_call = ending(Reason::Unknown, call());
        with_call.over = false;
        assert!(failure(&with_call, STRICT).is_some());
        assert_eq!(failure(&with_call, ResponseRules { background: true, ..STRICT }), None);
        let closed = Closed::TimedOut(Timer::Idle);
        let mut silent = ending(Reason::TimedOut, call());
        silent.closed = closed;
        assert_eq!(failure(&silent, STRICT), None);
        let mut wordless = silent;
        wordless.choices.iter_mut().for_each(|choice| choice.said = None);
        assert!(failure(&wordless, STRICT).is_some());
    }

    #[test]
    fn a_malformed_call_that_only_the_provider_names_passes() {
        let mut malformed = ending(Reason::MalformedToolCall, text());
        assert!(failure(&malformed, STRICT).is_some(), "nobody said so");
        malformed.said = Some(Said::new("finishReason", "MALFORMED_FUNCTION_CALL"));
        assert_eq!(failure(&malformed, STRICT), None);
        malformed.choices.iter_mut().for_each(|choice| choice.shown = call());
        assert!(failure(&malformed, STRICT).is_some());
    }
}
