//! Deciding: first what would be done about an ending, one reason an arm; then what the limits
//! leave of it.

use super::{
    Action, AgentLimits, Budget, Cause, Context, Counter, Decision, Limit, Metadata, Policy,
    ResumeBy, Terms, hash,
};
use crate::ending::{Closed, Confidence, Ending, Reason, Timer, Unreachable};
use crate::fault::FaultKind;
use crate::tool_call::{Allow, Refusal, allow_by_ending};

/// What to do about an ending.
#[must_use]
pub fn decide(ending: &Ending, context: &Context, policy: &Policy) -> Decision {
    let terms = policy.terms(&ending.provider, ending.reason);
    let wish = wish(ending, context, &terms);
    settle(wish, ending, context, &terms)
}

/// Holds a decision that came from elsewhere to what no strategy may do: run tools that are not
/// sure to be whole, go on without progress, or pass a limit.
#[must_use]
pub fn hold(decision: Decision, ending: &Ending, context: &Context, policy: &Policy) -> Decision {
    let terms = policy.terms(&ending.provider, ending.reason);
    let action = decision.action;
    if action == Action::RunTools && allowed(ending, context) != Allow::Run {
        let stop = Wish::new(Action::Stop, Cause::UncertainToolCalls, "its tool calls may not run");
        return settle(stop, ending, context, &terms);
    }
    let Decision { sentence, metadata, .. } = decision;
    let told = (metadata.cause != Cause::Unknown).then_some(metadata.cause);
    let waits = match action {
        Action::Retry => Some(backoff(ending, context, &terms.limits)),
        Action::Stop
        | Action::RunTools
        | Action::Continue
        | Action::Resume
        | Action::RepairToolCall
        | Action::RaiseBudget
        | Action::Compact
        | Action::ChangePrompt => None,
    };
    let wish = Wish {
        action,
        cause: told.unwrap_or_else(|| cause_of(ending)),
        sentence,
        cap: metadata.next_cap,
        wait_ms: metadata.wait_ms.or(waits),
        resume_by: metadata.resume_by.or_else(|| usual_resume(action, ending)),
        // What begins anew cannot be joined to what came before.
        discard: metadata.discard || matches!(action, Action::Retry | Action::RaiseBudget),
        lower_effort: metadata.lower_effort,
        stopped_by: metadata.limit,
        instead_of: metadata.instead_of,
    };
    settle(wish, ending, context, &terms)
}

fn usual_resume(action: Action, ending: &Ending) -> Option<ResumeBy> {
    let how = match (ending.over, ending.reason == Reason::Paused) {
        (false, _) => ResumeBy::Poll,
        (true, true) => ResumeBy::Protocol,
        (true, false) => ResumeBy::Text,
    };
    (action == Action::Resume).then_some(how)
}

/// What would be done if no limit were reached.
struct Wish {
    action: Action,
    cause: Cause,
    sentence: String,
    cap: Option<u64>,
    wait_ms: Option<u64>,
    resume_by: Option<ResumeBy>,
    discard: bool,
    lower_effort: bool,
    stopped_by: Option<Limit>,
    instead_of: Option<Action>,
}

impl Wish {
    fn new(action: Action, cause: Cause, sentence: impl Into<String>) -> Self {
        Self {
            action,
            cause,
            sentence: sentence.into(),
            cap: None,
            wait_ms: None,
            resume_by: None,
            discard: false,
            lower_effort: false,
            stopped_by: None,
            instead_of: None,
        }
    }

    /// A stop because of a limit, in place of an action.
    fn stopped(instead_of: Action, limit: Limit, cause: Cause, sentence: &str) -> Self {
        Self {
            stopped_by: Some(limit),
            instead_of: Some(instead_of),
            ..Self::new(Action::Stop, cause, format!("{sentence}, and {}", limit.words()))
        }
    }
}

/// Holds a wish against the limits and makes a decision of it.
fn settle(wish: Wish, ending: &Ending, context: &Context, terms: &Terms) -> Decision {
    let Terms { limits, rule } = terms;
    let left = limits.left(&context.budget, &context.spent);
    let wish = match obstacle(&wish, ending, context, terms) {
        Some(Obstacle::Limit(limit)) => {
            Wish::stopped(wish.action, limit, wish.cause, &wish.sentence)
        }
        Some(Obstacle::Unsure) => Wish {
            instead_of: Some(wish.action),
            ..Wish::new(
                Action::Stop,
                wish.cause,
                format!(
                    "{}, but this policy wants at least {} confidence for that",
                    wish.sentence,
                    rule.min_confidence.name()
                ),
            )
        },
        None => wish,
    };
    let recovers = Counter::of(wish.action, ending);
    let next_cap = match wish.action.goes_on() {
        true => limits.next_cap(wish.cap.or(context.cap_asked()), recovers, context),
        false => None,
    };
    Decision {
        action: wish.action,
        should_continue: wish.action.goes_on(),
        suggested: wish.action.suggested(),
        sentence: wish.sentence,
        metadata: Metadata {
            cause: wish.cause,
            limit: wish.stopped_by,
            instead_of: wish.instead_of,
            next_cap,
            wait_ms: wish.wait_ms,
            resume_by: wish.resume_by,
            discard: wish.discard,
            lower_effort: wish.lower_effort,
            left,
        },
    }
}

/// What stands in the way of a wish.
enum Obstacle {
    Limit(Limit),
    Unsure,
}

fn obstacle(wish: &Wish, ending: &Ending, context: &Context, terms: &Terms) -> Option<Obstacle> {
    if !wish.action.goes_on() {
        return None;
    }
    if ending.over && ending.confidence < terms.rule.min_confidence {
        return Some(Obstacle::Unsure);
    }
    let counter = Counter::of(wish.action, ending);
    let wait_ms = wish.wait_ms.unwrap_or(0);
    let limit = stuck(wish, ending, context, &terms.limits)
        .or_else(|| terms.limits.reached(counter, context, wait_ms));
    limit.map(Obstacle::Limit)
}

/// Whether going on in this text leads nowhere.
fn stuck(wish: &Wish, ending: &Ending, context: &Context, limits: &AgentLimits) -> Option<Limit> {
    let builds_on_text = match wish.action {
        Action::Continue => true,
        Action::Resume => wish.resume_by == Some(ResumeBy::Text),
        Action::Stop
        | Action::RunTools
        | Action::RepairToolCall
        | Action::Retry
        | Action::RaiseBudget
        | Action::Compact
        | Action::ChangePrompt => false,
    };
    if !builds_on_text {
        return None;
    }
    let Some(piece) = context.piece else {
        // Nobody kept the text: all there is to see is whether there was any.
        return (!ending.shown.text).then_some(Limit::NoProgress);
    };
    let went_on = context.spent.continuations > 0 || context.spent.cuts > 0;
    let least = if went_on { limits.continuation_min_progress_chars.max(1) } else { 1 };
    if piece.new_chars < least {
        return Some(Limit::NoProgress);
    }
    (piece.repetitive || context.seen.contains(&piece.hash)).then_some(Limit::Repetition)
}

/// What the tool calls are allowed, by whatever is known of them.
fn allowed(ending: &Ending, context: &Context) -> Allow {
    let by_ending = allow_by_ending(ending);
    // Calls that a model wrote into its text end as text does, and are seen only by whoever put
    // them together.
    let in_text = by_ending == Allow::Refuse(Refusal::NoCalls) && ending.reason == Reason::Complete;
    let sure = ending.over && ending.confidence >= Confidence::Medium;
    match context.tools {
        Some(told) if sure && in_text => told,
        Some(Allow::Run) | None => by_ending,
        Some(refused @ Allow::Refuse(_)) => refused,
    }
}

/// What would be done about this ending, one reason an arm.
fn wish(ending: &Ending, context: &Context, terms: &Terms) -> Wish {
    if !ending.over {
        return Wish {
            resume_by: Some(ResumeBy::Poll),
            wait_ms: Some(terms.limits.retry_backoff_max_ms.min(2_000)),
            ..Wish::new(Action::Resume, Cause::Pending, "the answer is still being made; poll it")
        };
    }
    let stop_by_rule = terms.rule.action == Action::Stop;
    match ending.reason {
        Reason::Complete | Reason::StopSequence => after_success(ending, context, terms),
        Reason::ToolCall => after_tool_call(ending, context, stop_by_rule),
        Reason::Unknown if terms.rule.action == Action::Retry => retry(
            Cause::Unknown,
            "nobody knows how the answer ended; ask again",
            ending,
            context,
            terms,
        ),
        Reason::Unknown => Wish::new(
            Action::Stop,
            Cause::Unknown,
            format!(
                "nobody knows how the answer ended ({}): do not take it for whole",
                ending.sentence
            ),
        ),
        Reason::Cancelled => Wish::new(Action::Stop, Cause::Cancelled, "the request was cancelled"),
        Reason::Paused
        | Reason::OutputLimit
        | Reason::ContextLimit
        | Reason::Refused
        | Reason::Filtered
        | Reason::Safety
        | Reason::Recitation
        | Reason::MalformedToolCall
        | Reason::TimedOut
        | Reason::Failed
        | Reason::Cut
            if stop_by_rule =>
        {
            let sentence = format!(
                "the answer ended as {}, and this policy stops there",
                ending.reason.name().replace('_', " ")
            );
            Wish::new(Action::Stop, cause_of(ending), sentence)
        }
        Reason::Paused => Wish {
            resume_by: Some(ResumeBy::Protocol),
            ..Wish::new(
                Action::Resume,
                Cause::Paused,
                "the provider paused the turn; send it back as it is",
            )
        },
        Reason::OutputLimit => after_output_limit(ending, context, terms),
        Reason::ContextLimit => Wish::new(
            Action::Compact,
            Cause::ContextFull,
            "the context window is full: make the conversation shorter, a higher cap cannot help",
        ),
        Reason::Refused | Reason::Filtered | Reason::Safety | Reason::Recitation => Wish::new(
            Action::ChangePrompt,
            Cause::Blocked,
            format!(
                "the answer was withheld ({}): the same again is withheld again",
                ending.reason.name()
            ),
        ),
        Reason::MalformedToolCall if terms.rule.action == Action::Retry => retry(
            Cause::BrokenToolCall,
            "the tool call cannot be read; ask again",
            ending,
            context,
            terms,
        ),
        Reason::MalformedToolCall => {
            repair(context, "the tool call cannot be read; ask for it once more, alone")
        }
        Reason::TimedOut => after_timeout(ending, context, terms),
        Reason::Failed => after_failure(ending, context, terms),
        Reason::Cut => retry(
            Cause::CutStream,
            "the stream was cut before the answer was over",
            ending,
            context,
            terms,
        ),
    }
}

fn after_success(ending: &Ending, context: &Context, terms: &Terms) -> Wish {
    let nothing = ending.shown.is_empty() || ending.shown.is_reasoning_only();
    // A call that the model wrote as text ends as text does; whoever put it together says so.
    if context.tools == Some(Allow::Run) && allowed(ending, context) == Allow::Run {
        return Wish::new(
            Action::RunTools,
            Cause::ToolCalls,
            "the tool calls in the text are whole; run them",
        );
    }
    if nothing && terms.limits.retry_empty {
        let sentence = "the answer ended well and holds nothing; ask again";
        return retry(Cause::NothingCame, sentence, ending, context, terms);
    }
    if nothing {
        let sentence = "the answer ended well and holds nothing";
        return Wish::new(Action::Stop, Cause::NothingCame, sentence);
    }
    let sentence = format!("the answer is whole: {}", ending.sentence);
    Wish::new(Action::Stop, Cause::Completed, sentence)
}

fn after_tool_call(ending: &Ending, context: &Context, stop_by_rule: bool) -> Wish {
    match allowed(ending, context) {
        Allow::Run if stop_by_rule => Wish::new(
            Action::Stop,
            Cause::ToolCalls,
            "tool calls wait to be run, and this policy leaves them to the caller",
        ),
        Allow::Run => Wish::new(
            Action::RunTools,
            Cause::ToolCalls,
            "the tool calls are whole; run them and send their results",
        ),
        Allow::Refuse(refusal @ (Refusal::Call(_) | Refusal::TooMany)) => {
            repair(context, &format!("{}; ask for one complete call alone", refusal.sentence()))
        }
        Allow::Refuse(refusal @ (Refusal::Unsure | Refusal::NoCalls | Refusal::Ending(_))) => {
            Wish::new(Action::Stop, Cause::UncertainToolCalls, refusal.sentence())
        }
    }
}

/// Whether the output limit was spent on reasoning alone. Some wires show the reasoning, others
/// only count it.
fn reasoning_ate_it(ending: &Ending) -> bool {
    let shown = &ending.shown;
    let counted = ending.usage.reasoning.is_some_and(|tokens| tokens > 0);
    shown.is_reasoning_only() || shown.is_empty() && counted
}

fn after_output_limit(ending: &Ending, context: &Context, terms: &Terms) -> Wish {
    let calls = ending.shown.tool_calls > 0
        || ending.choices.iter().any(|choice| choice.shown.tool_calls > 0);
    if calls {
        return repair(
            context,
            "the output limit cut a tool call, which is never run; ask for it once more, alone",
        );
    }
    if reasoning_ate_it(ending) {
        return Wish {
            lower_effort: true,
            ..Wish::new(
                Action::ChangePrompt,
                Cause::ReasoningExhausted,
                "reasoning used up the output limit: lower the effort, a higher cap is used up too",
            )
        };
    }
    let chars = context.piece.map(|piece| piece.chars);
    if ending.shown.is_empty() || chars == Some(0) {
        return Wish::stopped(
            Action::Continue,
            Limit::NoProgress,
            Cause::OutputLimit,
            "the output limit was reached and nothing came",
        );
    }
    let raised = raised_cap(context, terms);
    let prefers_raise = terms.rule.action == Action::RaiseBudget && !context.delivered;
    if let Some(cap) = raised.filter(|_| prefers_raise || ending.choices.len() > 1) {
        return Wish {
            cap: Some(cap),
            discard: true,
            ..Wish::new(
                Action::RaiseBudget,
                Cause::OutputLimit,
                format!("the answer stopped at the output limit; ask again with a cap of {cap}"),
            )
        };
    }
    if ending.choices.len() > 1 {
        let sentence = "the answer stopped at the output limit, and one of several choices cannot be continued";
        return Wish::new(Action::Stop, Cause::OutputLimit, sentence);
    }
    if is_window_full(context, &terms.limits) {
        return Wish::new(
            Action::Compact,
            Cause::ContextFull,
            "the answer stopped at the output limit and hardly any context window is left: make the conversation shorter",
        );
    }
    let attempt = context.spent.continuations.saturating_add(1);
    let most = terms.limits.continuation_max_attempts;
    Wish::new(
        Action::Continue,
        Cause::OutputLimit,
        format!(
            "the answer stopped at the output limit; continue it (attempt {attempt} of {most})"
        ),
    )
}

/// The cap to ask again with, if raising it is allowed and can help.
fn raised_cap(context: &Context, terms: &Terms) -> Option<u64> {
    let Budget { cap_is_users, model_max, .. } = context.budget;
    let cap = context.cap_asked().filter(|_| !cap_is_users)?;
    let raised = cap.saturating_mul(2).min(model_max?);
    let counter = Some(Counter::Raises);
    let given = terms.limits.next_cap(Some(raised), counter, context)?;
    let helps = given > cap && terms.limits.reached(counter, context, 0).is_none();
    helps.then_some(given)
}

fn is_window_full(context: &Context, limits: &AgentLimits) -> bool {
    let used = context.conversation_tokens;
    let full = |(window, used): (u64, u64)| {
        used.saturating_add(limits.continuation_min_room_tokens) > window
    };
    context.budget.window.zip(used).is_some_and(full)
}

/// A request for the call alone, with twice the cap where it may be raised.
fn repair(context: &Context, sentence: &str) -> Wish {
    let Budget { cap_is_users, model_max, .. } = context.budget;
    let cap = context.cap_asked();
    let raised = cap.zip(model_max).map(|(cap, most)| cap.saturating_mul(2).min(most).max(cap));
    Wish {
        cap: raised.filter(|_| !cap_is_users).or(cap),
        ..Wish::new(Action::RepairToolCall, Cause::BrokenToolCall, sentence)
    }
}

fn after_timeout(ending: &Ending, context: &Context, terms: &Terms) -> Wish {
    if ending.closed == Closed::TimedOut(Timer::ClientWrite) {
        let sentence = "the client did not take the answer in; nobody would read another";
        return Wish::new(Action::Stop, Cause::TimedOut, sentence);
    }
    let sentence = "a time limit passed before the answer was over";
    retry(Cause::TimedOut, sentence, ending, context, terms)
}

fn after_failure(ending: &Ending, context: &Context, terms: &Terms) -> Wish {
    let kind = ending.fault.as_ref().map(|fault| fault.kind);
    if is_request_refused(kind, ending.closed) {
        let what = kind.map_or("it cannot be reached this way", FaultKind::words);
        let sentence = format!("the provider refused ({what}): the same again fails again");
        return Wish::new(Action::Stop, Cause::RequestRefused, sentence);
    }
    let sentence = match kind {
        Some(kind) => format!("the provider failed ({})", kind.words()),
        None => ending.sentence.clone(),
    };
    retry(Cause::ProviderFailed, &sentence, ending, context, terms)
}

fn is_request_refused(kind: Option<FaultKind>, closed: Closed) -> bool {
    let unreachable =
        matches!(closed, Closed::Unreachable(Unreachable::Blocked | Unreachable::Tls));
    let refused = match kind {
        Some(
            FaultKind::Quota | FaultKind::Auth | FaultKind::NotFound | FaultKind::InvalidRequest,
        ) => true,
        Some(
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
            | FaultKind::BadPayload,
        )
        | None => false,
    };
    unreachable || refused
}

fn cause_of(ending: &Ending) -> Cause {
    match ending.reason {
        Reason::Complete | Reason::StopSequence => Cause::Completed,
        Reason::ToolCall => Cause::ToolCalls,
        Reason::Paused => Cause::Paused,
        Reason::OutputLimit if reasoning_ate_it(ending) => Cause::ReasoningExhausted,
        Reason::OutputLimit => Cause::OutputLimit,
        Reason::ContextLimit => Cause::ContextFull,
        Reason::Refused | Reason::Filtered | Reason::Safety | Reason::Recitation => Cause::Blocked,
        Reason::MalformedToolCall => Cause::BrokenToolCall,
        Reason::Unknown => Cause::Unknown,
        Reason::Cancelled => Cause::Cancelled,
        Reason::TimedOut => Cause::TimedOut,
        Reason::Failed => Cause::ProviderFailed,
        Reason::Cut => Cause::CutStream,
    }
}

/// The same again, or where the text has reached someone, on from there.
fn retry(cause: Cause, sentence: &str, ending: &Ending, context: &Context, terms: &Terms) -> Wish {
    let wait = match context.retry_after_ms {
        Some(asked) if asked > terms.limits.retry_after_max_ms => {
            return Wish::stopped(Action::Retry, Limit::RetryAfter, cause, sentence);
        }
        asked => backoff(ending, context, &terms.limits).max(asked.unwrap_or(0)),
    };
    if !context.delivered || !ending.shown.text {
        return Wish {
            wait_ms: Some(wait),
            discard: true,
            ..Wish::new(Action::Retry, cause, format!("{sentence}; try again in {wait} ms"))
        };
    }
    if ending.shown.tool_calls > 0 {
        let sentence = format!("{sentence}, inside a tool call; ask for it once more, alone");
        return repair(context, &sentence);
    }
    Wish {
        wait_ms: Some(wait),
        resume_by: Some(ResumeBy::Text),
        ..Wish::new(
            Action::Resume,
            cause,
            format!("{sentence}; go on from the text that has come in {wait} ms"),
        )
    }
}

/// The wait before a retry: doubled each time, up to a quarter shorter by chance.
fn backoff(ending: &Ending, context: &Context, limits: &AgentLimits) -> u64 {
    let count =
        Counter::of(Action::Retry, ending).map_or(0, |counter| context.spent.count(counter));
    let doubled = 1_u64.checked_shl(count).unwrap_or(u64::MAX);
    let longest = limits.retry_backoff_max_ms;
    let wait = limits.retry_backoff_ms.saturating_mul(doubled).min(longest);
    let chance = hash(&(context.seed ^ u64::from(count)).to_le_bytes());
    wait - chance % (wait / 4 + 1)
}
