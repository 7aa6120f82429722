//! Remedies: what an ending calls for, before any policy or limit is asked.
//!
//! This is the one table from endings to actions. `check` prints its advice, [`super::decide`] holds
//! its action to a policy and to limits, and a gateway derives from it what may pass.

use std::borrow::Cow;

use serde::Serialize;

use super::{Action, Cause};
use endstop::ending::{Closed, Ending, Reason, Timer, Unreachable};
use endstop::fault::FaultKind;
use endstop::tool_call::{Allow, Refusal, allow_by_ending};

/// The remedy for one ending: the usual action, and the facts that it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// The usual action.
    pub action: Action,
    /// The cause that the ending comes down to.
    pub cause: Cause,
    /// The same request again is expected to end the same way, so that a client should not retry.
    pub repeats: bool,
    /// Whether all came that the provider meant to send.
    pub delivery: Delivery,
    /// Whether the tool calls of the response may run.
    pub tools: Allow,
    /// The event in a clause, such as "the answer stopped at the output limit".
    pub happened: String,
    /// The advice for people: an imperative without a full stop.
    pub advice: Cow<'static, str>,
}

/// Whether all came that the provider meant to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The provider sent all that it meant to send, and said how it ended.
    Whole,
    /// The answer is still being made.
    Pending,
    /// The provider's word is missing or not known, and nothing else tells.
    Unclear,
    /// Something is missing that the provider meant to send.
    Broken,
}

/// Returns what this ending calls for.
///
/// ```
/// use endstop_turn::policy::{Action, Cause, Delivery, remedy};
/// use endstop::{RequestInfo, TransportEnd, Head, Reader, provider};
///
/// let body = br#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#;
/// let mut reader = Reader::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// reader.watch(body);
/// let remedy = remedy(&reader.finish(TransportEnd::Eof));
/// assert_eq!((remedy.action, remedy.cause), (Action::Retry, Cause::NothingCame));
/// assert_eq!((remedy.delivery, remedy.repeats), (Delivery::Whole, false));
/// assert_eq!(remedy.advice, "send the request again: there is no answer to use");
/// ```
#[must_use]
pub fn remedy(ending: &Ending) -> Remedy {
    remedy_given(ending, allow_by_ending(ending))
}

/// The same for a response whose tool calls were put together and are allowed this.
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
            "the provider waits for an approval before it runs a tool of its own",
            "approve or decline the tool call, and send that with the next request",
        ),
        Reason::Paused => of(
            (Action::Resume, Cause::Paused),
            tools,
            "the provider paused the turn",
            "resume by the provider's protocol: send back the response as it is, or its token",
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
            "change the request or the model; the same request is declined again",
        ),
        Reason::Filtered | Reason::Safety | Reason::Recitation => of(
            (Action::ChangePrompt, Cause::Blocked),
            tools,
            format!("the answer was withheld ({})", ending.reason.name()),
            "change the prompt; the same request is withheld again",
        ),
        Reason::MalformedToolCall => Remedy {
            delivery: Delivery::Broken,
            ..of(
                (Action::RepairToolCall, Cause::BrokenToolCall),
                tools,
                "the tool call cannot be read",
                "run no tool call of this response; ask for the call again, or change the prompt or the tool",
            )
        },
        Reason::Unknown => Remedy {
            delivery: Delivery::Unclear,
            ..of(
                (Action::Stop, Cause::Unknown),
                tools,
                format!("how the answer ended is not known ({})", ending.sentence),
                "do not treat the answer as complete; look at the provider's own word",
            )
        },
        Reason::Cancelled if ending.closed == Closed::Interrupted => broken(
            (Action::Retry, Cause::CutStream),
            tools,
            "our own process ended before the response did",
            "discard what came and send the request again; never run its tool calls",
        ),
        Reason::Cancelled => broken(
            (Action::Stop, Cause::Cancelled),
            tools,
            "the request was cancelled",
            "discard what came; send the request again if you did not cancel it",
        ),
        Reason::TimedOut => after_timeout(ending, tools),
        Reason::Failed => after_failure(ending, tools),
        Reason::Cut => broken(
            (Action::Retry, Cause::CutStream),
            tools,
            "the response stopped before it was complete",
            "discard it and send the request again, or resume it; never run its tool calls",
        ),
    }
}

/// A remedy for a response that came whole and would end the same way again.
fn of(
    (action, cause): (Action, Cause),
    tools: Allow,
    happened: impl Into<String>,
    advice: impl Into<Cow<'static, str>>,
) -> Remedy {
    let (happened, advice) = (happened.into(), advice.into());
    Remedy { action, cause, repeats: true, delivery: Delivery::Whole, tools, happened, advice }
}

/// A remedy for a response of which something is missing, and which may end otherwise next time.
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
    // A call that the model wrote as text ends as text does; whoever put it together says so.
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
            "the answer ended normally and holds tool calls that may be incomplete",
            "use the text, and run none of the tool calls",
        );
    }
    let empty = if ending.shown.is_reasoning_only() {
        "the answer ended normally and holds reasoning only"
    } else if ending.shown.is_empty() {
        "the answer ended normally and is empty"
    } else {
        let happened = format!("the answer is complete ({})", ending.sentence);
        return of((Action::Stop, Cause::Completed), tools, happened, "use the answer");
    };
    let advice = "send the request again: there is no answer to use";
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
            "run no tool call of this response; ask for one complete call alone",
        ),
        Allow::Refuse(Refusal::NoCalls) => of(
            (Action::Stop, Cause::UncertainToolCalls),
            tools,
            "the provider announced tool calls and sent none",
            "do not treat the answer as complete; look at how it ended",
        ),
        Allow::Refuse(refusal @ (Refusal::Unsure | Refusal::Ending(_))) => of(
            (Action::Stop, Cause::UncertainToolCalls),
            tools,
            refusal.sentence(),
            "run no tool call of this response; look at how it ended",
        ),
    }
}

fn after_output_limit(ending: &Ending, tools: Allow) -> Remedy {
    if has_calls(ending) {
        return of(
            (Action::RepairToolCall, Cause::BrokenToolCall),
            tools,
            "the output limit cut a tool call off",
            "never run the tool call; raise the output limit, or ask for the call alone",
        );
    }
    if reasoning_used_it_up(ending) {
        return of(
            (Action::ChangePrompt, Cause::ReasoningExhausted),
            tools,
            "reasoning used up the output limit",
            "lower the reasoning effort; a slightly higher limit is used up as well",
        );
    }
    if ending.shown.is_empty() {
        return of(
            (Action::RaiseBudget, Cause::OutputLimit),
            tools,
            "the output limit was reached before anything came",
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
            "check the client: nobody would read another answer",
        );
    }
    // A provider that falls silent after its last word has sent the whole answer.
    let silent = ending.closed == Closed::TimedOut(Timer::Idle)
        && !ending.choices.is_empty()
        && ending.choices.iter().all(|choice| choice.said.is_some());
    let calls_for = (Action::Retry, Cause::TimedOut);
    if silent {
        let happened = "the provider fell silent after its finish reason, without its end marker";
        let advice = "send the request again, or use what came with care";
        let remedy = broken(calls_for, tools, happened, advice);
        return Remedy { delivery: Delivery::Whole, ..remedy };
    }
    broken(
        calls_for,
        tools,
        "a time limit passed before the answer was complete",
        "discard it and send the request again, or allow more time",
    )
}

fn after_failure(ending: &Ending, tools: Allow) -> Remedy {
    let kind = ending.fault.as_ref().map(|fault| fault.kind);
    let happened = match kind {
        Some(FaultKind::Other) | None => ending.sentence.clone(),
        Some(kind) => kind.words().to_owned(),
    };
    if let Some(advice) = advice_if_refused(kind, ending.closed) {
        let remedy = broken((Action::Stop, Cause::RequestRefused), tools, happened, advice);
        return Remedy { repeats: true, ..remedy };
    }
    let advice = match kind {
        Some(FaultKind::RateLimit | FaultKind::Overloaded) => "wait, then send the request again",
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
        | None => "send the request again; if it keeps failing, contact the provider",
    };
    broken((Action::Retry, Cause::ProviderFailed), tools, happened, advice)
}

/// Returns the advice for a request that fails again if it is sent again; none for the others.
fn advice_if_refused(kind: Option<FaultKind>, closed: Closed) -> Option<&'static str> {
    if closed == Closed::Unreachable(Unreachable::Tls) {
        return Some("check the provider's certificate and the clock of this machine");
    }
    if closed == Closed::Unreachable(Unreachable::Blocked) {
        return Some("allow the address, or correct the base URL");
    }
    match kind? {
        FaultKind::Auth => Some("check the API key and its permissions"),
        FaultKind::Quota => Some("top up the quota or balance"),
        FaultKind::NotFound => Some("correct the model's name or the path"),
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

/// Whether the output limit was spent on reasoning alone. Some wires show the reasoning, others
/// only count it.
fn reasoning_used_it_up(ending: &Ending) -> bool {
    let shown = &ending.shown;
    let counted = ending.usage.reasoning.is_some_and(|tokens| tokens > 0);
    shown.is_reasoning_only() || shown.is_empty() && counted
}
