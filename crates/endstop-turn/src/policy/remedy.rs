//! Remedies: the usual action for each ending, before any policy or limit.
//!
//! This is the only table from endings to actions. `check` prints its advice. [`super::decide`]
//! applies a policy and limits to its action. The gateway uses it to decide which responses pass.

use std::borrow::Cow;

use serde::Serialize;

use super::{Action, Cause};
use endstop::FaultKind;
use endstop::tool_call::{Allow, Refusal, allow_by_ending};
use endstop::{Closed, Ending, Reason, Shown, Timer, Unreachable};

/// The remedy for one ending: the usual action and the facts behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Remedy {
    /// The usual action.
    pub action: Action,
    /// The cause behind the ending.
    pub cause: Cause,
    /// Whether the same request is expected to end the same way. If so, a client should not retry.
    pub repeats: bool,
    /// Whether the provider's whole response arrived.
    pub delivery: Delivery,
    /// Whether the tool calls of the response may run.
    pub tools: Allow,
    /// A clause that says what happened, such as "the answer stopped at the output limit".
    pub happened: String,
    /// Advice for people: an imperative without a full stop.
    pub advice: Cow<'static, str>,
}

/// Whether the provider's whole response arrived.
///
/// Closed list: code that passes a response on must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The provider sent its whole response and said how it ended.
    Whole,
    /// The provider is still generating the answer.
    Pending,
    /// The finish reason is missing or unknown, and nothing else shows how the response ended.
    Unclear,
    /// Part of the response is missing.
    Broken,
}

/// Returns the remedy for this ending.
///
/// ```
/// use endstop_turn::policy::{Action, Cause, Delivery, remedy};
/// use endstop::{RequestInfo, TransportEnd, Head, Watcher, provider};
///
/// let body = br#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#;
/// let mut reader = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// reader.watch(body);
/// let remedy = remedy(&reader.finish(TransportEnd::Eof));
/// assert_eq!((remedy.action, remedy.cause), (Action::Retry, Cause::NothingCame));
/// assert_eq!((remedy.delivery, remedy.repeats), (Delivery::Whole, false));
/// assert_eq!(remedy.advice, "retry your request; the response has no usable answer");
/// ```
#[must_use]
pub fn remedy(ending: &Ending) -> Remedy {
    remedy_given(ending, allow_by_ending(ending))
}

/// Returns the remedy for a response whose tool calls were assembled and checked.
pub(super) fn remedy_given(ending: &Ending, tools: Allow) -> Remedy {
    if !ending.over {
        return Remedy {
            repeats: false,
            delivery: Delivery::Pending,
            ..of(
                (Action::Resume, Cause::Pending),
                tools,
                "the answer is not finished yet",
                "poll again until the response is over",
            )
        };
    }
    match ending.reason {
        Reason::Complete | Reason::StopSequence => after_success(ending, tools),
        Reason::ToolCall => after_tool_call(tools),
        Reason::Paused if ending.shown.approval => of(
            (Action::Stop, Cause::Paused),
            tools,
            "the provider waits for approval before it runs a server-side tool",
            "approve or decline the tool call in the next request",
        ),
        Reason::Paused => of(
            (Action::Resume, Cause::Paused),
            tools,
            "the provider paused the turn",
            "resume with the provider's protocol: send back the unchanged response or its token",
        ),
        Reason::OutputLimit => after_output_limit(ending, tools),
        Reason::ContextLimit => of(
            (Action::Compact, Cause::ContextFull),
            tools,
            "the context window is full",
            "shorten or compact the conversation; a higher output limit does not help",
        ),
        Reason::Refused => of(
            (Action::ChangePrompt, Cause::Blocked),
            tools,
            "the model declined to answer (refused)",
            "change the request or the model; the same request will be declined again",
        ),
        Reason::Filtered | Reason::Safety | Reason::Recitation => of(
            (Action::ChangePrompt, Cause::Blocked),
            tools,
            format!("the provider blocked the answer ({})", ending.reason.name()),
            "change the prompt; the same request will be blocked again",
        ),
        Reason::MalformedToolCall => Remedy {
            delivery: Delivery::Broken,
            ..of(
                (Action::RepairToolCall, Cause::BrokenToolCall),
                tools,
                "the tool call is malformed",
                "run no tool calls; ask for the call again, or change the prompt or the tool",
            )
        },
        Reason::Cancelled if ending.closed == Closed::Interrupted => broken(
            (Action::Retry, Cause::CutStream),
            tools,
            "this process stopped before the response ended",
            "discard the partial response and retry your request; never run its tool calls",
        ),
        Reason::Cancelled => broken(
            (Action::Stop, Cause::Cancelled),
            tools,
            "the request was cancelled",
            "discard the partial response; retry your request if you did not cancel it",
        ),
        Reason::TimedOut => after_timeout(ending, tools),
        Reason::Failed => after_failure(ending, tools),
        Reason::Cut => broken(
            (Action::Retry, Cause::CutStream),
            tools,
            "the response stopped before it was complete",
            "discard the response and retry your request, or resume it; do not run its tool calls",
        ),
        // A reason that is newer than this crate is as good as unknown.
        Reason::Unknown | _ => Remedy {
            delivery: Delivery::Unclear,
            ..of(
                (Action::Stop, Cause::Unknown),
                tools,
                format!("the ending of the answer is unknown ({})", ending.sentence),
                "do not treat the answer as complete; check the provider's finish reason",
            )
        },
    }
}

/// Creates a remedy for a response that arrived whole and would end the same way again.
fn of(
    (action, cause): (Action, Cause),
    tools: Allow,
    happened: impl Into<String>,
    advice: impl Into<Cow<'static, str>>,
) -> Remedy {
    let (happened, advice) = (happened.into(), advice.into());
    Remedy { action, cause, repeats: true, delivery: Delivery::Whole, tools, happened, advice }
}

/// Creates a remedy for a response with a missing part that may end differently next time.
fn broken(
    calls_for: (Action, Cause),
    tools: Allow,
    happened: impl Into<String>,
    advice: impl Into<Cow<'static, str>>,
) -> Remedy {
    let remedy = of(calls_for, tools, happened, advice);
    Remedy { repeats: false, delivery: Delivery::Broken, ..remedy }
}

fn after_success(ending: &Ending, tools: Allow) -> Remedy {
    // A tool call written as text ends like text. Only the code that assembled it can tell.
    if tools == Allow::Run {
        return of(
            (Action::RunTools, Cause::ToolCalls),
            tools,
            "the tool calls in the text are complete",
            "run them and send their results",
        );
    }
    if has_calls(ending) {
        return of(
            (Action::Stop, Cause::UncertainToolCalls),
            tools,
            "the answer ended normally but contains tool calls that may be incomplete",
            "use the text and do not run the tool calls",
        );
    }
    let empty = if ending.shown.is_reasoning_only() {
        "the answer ended normally but contains only reasoning"
    } else if ending.shown.is_empty() {
        "the answer ended normally but is empty"
    } else {
        let happened = format!("the answer is complete ({})", ending.sentence);
        return of((Action::Stop, Cause::Completed), tools, happened, "use the answer");
    };
    let advice = "retry your request; the response has no usable answer";
    Remedy { repeats: false, ..of((Action::Retry, Cause::NothingCame), tools, empty, advice) }
}

fn after_tool_call(tools: Allow) -> Remedy {
    match tools {
        Allow::Run => of(
            (Action::RunTools, Cause::ToolCalls),
            tools,
            "the tool calls are complete",
            "run them and send their results",
        ),
        Allow::Refuse(refusal @ (Refusal::Call(_) | Refusal::TooMany | Refusal::Schema)) => of(
            (Action::RepairToolCall, Cause::BrokenToolCall),
            tools,
            refusal.sentence(),
            "run no tool calls; ask for one complete call",
        ),
        Allow::Refuse(Refusal::NoCalls) => of(
            (Action::Stop, Cause::UncertainToolCalls),
            tools,
            "the provider announced tool calls but sent none",
            "do not treat the answer as complete; check how the response ended",
        ),
        Allow::Refuse(refusal @ (Refusal::Unsure | Refusal::Ending(_) | _)) => of(
            (Action::Stop, Cause::UncertainToolCalls),
            tools,
            refusal.sentence(),
            "run no tool calls; check how the response ended",
        ),
    }
}

fn after_output_limit(ending: &Ending, tools: Allow) -> Remedy {
    // Only the calls of the choice that reached the limit are in doubt.
    let Shown { tool_calls, unfinished_tool_calls, malformed_tool_calls, .. } = ending.shown;
    if tool_calls > 0 {
        let happened = match unfinished_tool_calls + malformed_tool_calls {
            0 => "the output limit was reached after a tool call, and more may be missing",
            _ => "the output limit cut off a tool call",
        };
        return of(
            (Action::RepairToolCall, Cause::BrokenToolCall),
            tools,
            happened,
            "never run the tool call; raise the output limit, or ask for only that call",
        );
    }
    if reasoning_used_it_up(ending) {
        return of(
            (Action::ChangePrompt, Cause::ReasoningExhausted),
            tools,
            "reasoning used up the output limit",
            "lower the reasoning effort; reasoning would use up a slightly higher limit too",
        );
    }
    if ending.shown.is_empty() {
        return of(
            (Action::RaiseBudget, Cause::OutputLimit),
            tools,
            "the output limit was reached before any output",
            "raise the output limit and send the request again",
        );
    }
    of(
        (Action::Continue, Cause::OutputLimit),
        tools,
        "the answer stopped at the output limit",
        "continue the answer, or raise the output limit and send the request again",
    )
}

fn after_timeout(ending: &Ending, tools: Allow) -> Remedy {
    if ending.closed == Closed::TimedOut(Timer::ClientWrite) {
        return broken(
            (Action::Stop, Cause::TimedOut),
            tools,
            "the client did not read the answer in time",
            "check why the client stopped reading; a retry would fail too",
        );
    }
    // A provider that goes silent after its finish reason has sent the whole answer.
    let silent = ending.closed == Closed::TimedOut(Timer::Idle)
        && !ending.choices.is_empty()
        && ending.choices.iter().all(|choice| choice.said.is_some());
    let calls_for = (Action::Retry, Cause::TimedOut);
    if silent {
        let happened = "the provider went silent after its finish reason, before its end marker";
        let advice = "retry your request; if you use this response, check that it is complete";
        let remedy = broken(calls_for, tools, happened, advice);
        return Remedy { delivery: Delivery::Whole, ..remedy };
    }
    broken(
        calls_for,
        tools,
        "the request timed out before the answer was complete",
        "discard it and retry your request, or raise the timeout",
    )
}

fn after_failure(ending: &Ending, tools: Allow) -> Remedy {
    let kind = ending.fault.as_ref().map(|fault| fault.kind);
    let happened = match kind {
        Some(FaultKind::Other) | None => ending.sentence.clone(),
        Some(kind) => kind.description().to_owned(),
    };
    if let Some(advice) = advice_if_refused(ending) {
        let remedy = broken((Action::Stop, Cause::RequestRefused), tools, happened, advice);
        return Remedy { repeats: true, ..remedy };
    }
    let advice = match kind {
        Some(FaultKind::RateLimit | FaultKind::Overloaded) => "wait, then retry your request",
        Some(
            FaultKind::Other
            | FaultKind::ContextWindow
            | FaultKind::OutputLimit
            | FaultKind::Quota
            | FaultKind::Auth
            | FaultKind::Filter
            | FaultKind::ToolCall
            | FaultKind::Timeout
            | FaultKind::Cancelled
            | FaultKind::NotFound
            | FaultKind::InvalidRequest
            | FaultKind::Server
            | FaultKind::BadPayload
            | _,
        )
        | None => "retry your request; if it keeps failing, contact the provider",
    };
    broken((Action::Retry, Cause::ProviderFailed), tools, happened, advice)
}

/// Returns the advice for a request that would fail again, or `None` if a retry may help.
fn advice_if_refused(ending: &Ending) -> Option<&'static str> {
    if ending.closed == Closed::Unreachable(Unreachable::Tls) {
        return Some("check the provider's certificate and this machine's clock");
    }
    if ending.closed == Closed::Unreachable(Unreachable::Blocked) {
        return Some("allow the address, or correct the base URL");
    }
    let fault = ending.fault.as_ref()?;
    if fault.rejected && matches!(fault.status, Some(300..=399)) {
        return Some("correct the base URL: redirects are not followed");
    }
    match fault.kind {
        FaultKind::Auth => Some("check the API key and its permissions"),
        FaultKind::Quota => Some("top up the quota or balance"),
        FaultKind::NotFound => Some("correct the model name or the path"),
        FaultKind::InvalidRequest => Some("correct the request"),
        FaultKind::Other
        | FaultKind::ContextWindow
        | FaultKind::OutputLimit
        | FaultKind::Overloaded
        | FaultKind::RateLimit
        | FaultKind::Filter
        | FaultKind::ToolCall
        | FaultKind::Timeout
        | FaultKind::Cancelled
        | FaultKind::Server
        | FaultKind::BadPayload
        | _ => None,
    }
}

fn has_calls(ending: &Ending) -> bool {
    ending.shown.tool_calls > 0 || ending.choices.iter().any(|choice| choice.shown.tool_calls > 0)
}

/// Reports whether reasoning alone used up the output limit. Some wires show the reasoning, others
/// only count its tokens.
fn reasoning_used_it_up(ending: &Ending) -> bool {
    let shown = &ending.shown;
    let counted = ending.usage.reasoning.is_some_and(|tokens| tokens > 0);
    shown.is_reasoning_only() || shown.is_empty() && counted
}
