//! Decisions: an ending's [`Remedy`], adjusted by the policy and the context, within the limits.

use std::borrow::Cow;

use super::{
    Action, AgentLimits, Budget, Cause, Counter, Decision, DecisionContext, DecisionDetails, Limit,
    Policy, Remedy, ResumeBy, Suggested, Terms, remedy, remedy_given,
};
use endstop::hash::Fnv;
use endstop::tool_call::{Allow, Refusal, allow_by_ending};
use endstop::{Confidence, Ending, Reason};

/// Decides which action to take after an ending.
#[must_use]
pub fn decide(ending: &Ending, context: &DecisionContext, policy: &Policy) -> Decision {
    let terms = policy.terms(&ending.provider, ending.reason);
    let context = &priced(ending, context, policy, &terms);
    let wish = wish(ending, context, &terms);
    settle(wish, ending, context, &terms)
}

/// Restricts the decision of a strategy. No strategy may run tool calls that may be incomplete,
/// continue without progress, or exceed a limit.
#[must_use]
pub fn hold(
    decision: Decision,
    ending: &Ending,
    context: &DecisionContext,
    policy: &Policy,
) -> Decision {
    let terms = policy.terms(&ending.provider, ending.reason);
    let context = &priced(ending, context, policy, &terms);
    let action = decision.action;
    let usual = remedy(ending);
    if action == Action::RunTools && allowed(ending, context) != Allow::Run {
        let stop = Wish {
            instead_of: Some(action),
            plan: "the tool calls may not run".to_owned(),
            ..Wish::new(Action::Stop, Cause::UncertainToolCalls, usual.happened)
        };
        return settle(stop, ending, context, &terms);
    }
    let Decision { sentence, cause, metadata, .. } = decision;
    let waits = (action == Action::Retry).then(|| backoff(ending, context, &terms.limits));
    let wish = Wish {
        cap: metadata.next_cap,
        wait_ms: metadata.wait_ms.or(waits),
        resume_by: metadata.resume_by.or_else(|| usual_resume(action, ending)),
        // A new response cannot be joined to the text of the old one.
        discard: metadata.discard
            || matches!(action, Action::Retry | Action::RaiseBudget | Action::OtherModel),
        lower_effort: metadata.lower_effort,
        stopped_by: metadata.limit,
        instead_of: metadata.instead_of,
        told: Some(sentence),
        ..Wish::new(
            action,
            if cause == Cause::Unknown { usual.cause } else { cause },
            usual.happened,
        )
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

/// Returns the context, with the policy's price for this model if the cost is limited and the context
/// has no price.
fn priced<'a>(
    ending: &Ending,
    context: &'a DecisionContext,
    policy: &Policy,
    terms: &Terms,
) -> Cow<'a, DecisionContext> {
    let price = match context.budget.price {
        Some(_) => return Cow::Borrowed(context),
        None if terms.limits.turn_max_cost.is_none() => return Cow::Borrowed(context),
        None => policy.price_of(&ending.provider, ending.model.as_deref().unwrap_or_default()),
    };
    if price.is_none() {
        return Cow::Borrowed(context);
    }
    let budget = Budget { price, ..context.budget };
    Cow::Owned(DecisionContext { budget, ..context.clone() })
}

/// A preferred action, before the limits apply.
struct Wish {
    action: Action,
    cause: Cause,
    /// A clause that says what happened.
    happened: String,
    /// A clause with the plan. It is dropped if something prevents the action.
    plan: String,
    /// A strategy's whole sentence, which replaces both clauses. It is dropped in the same case.
    told: Option<String>,
    cap: Option<u64>,
    wait_ms: Option<u64>,
    resume_by: Option<ResumeBy>,
    discard: bool,
    lower_effort: bool,
    stopped_by: Option<Limit>,
    instead_of: Option<Action>,
}

impl Wish {
    fn new(action: Action, cause: Cause, happened: String) -> Self {
        Self {
            action,
            cause,
            happened,
            plan: String::new(),
            told: None,
            cap: None,
            wait_ms: None,
            resume_by: None,
            discard: false,
            lower_effort: false,
            stopped_by: None,
            instead_of: None,
        }
    }

    fn of(remedy: Remedy) -> Self {
        Self {
            plan: remedy.advice.into_owned(),
            ..Self::new(remedy.action, remedy.cause, remedy.happened)
        }
    }

    fn plan(self, plan: impl Into<String>) -> Self {
        Self { plan: plan.into(), ..self }
    }

    /// Replaces the preferred action with this one and says why.
    fn forbidden(self, action: Action, because: &str) -> Self {
        let plan = format!("{}, because {because}", undone(self.action));
        let instead_of = self.instead_of.or(Some(self.action));
        Self { instead_of, plan, ..Self::new(action, self.cause, self.happened) }
    }

    /// Replaces the preferred action because of a limit.
    fn limited(self, limit: Limit) -> Self {
        let action = limit.calls_for();
        let wish = Self { stopped_by: Some(limit), ..self.forbidden(action, limit.description()) };
        if action != Action::Compact {
            return wish;
        }
        Self { plan: format!("{}; shorten or compact the conversation", wish.plan), ..wish }
    }

    fn sentence(&self) -> String {
        match (&self.told, self.plan.as_str()) {
            (Some(told), _) => told.clone(),
            (None, "") => self.happened.clone(),
            (None, plan) => format!("{}; {plan}", self.happened),
        }
    }
}

/// Returns a clause that says that an action is not taken.
fn undone(action: Action) -> &'static str {
    match action {
        Action::RunTools => "they are not run",
        Action::Continue => "it is not continued",
        Action::Resume => "it is not resumed",
        Action::RepairToolCall => "the tool call is not requested again",
        Action::Retry => "it is not retried",
        Action::RaiseBudget => "it is not requested again with a higher limit",
        Action::OtherModel => "no other model is asked",
        Action::Stop | Action::Compact | Action::ChangePrompt => "the turn ends",
    }
}

/// Applies the limits to a wish and turns it into a decision.
fn settle(wish: Wish, ending: &Ending, context: &DecisionContext, terms: &Terms) -> Decision {
    let Terms { limits, rule } = terms;
    let left = limits.left(&context.budget, &context.spent);
    let wish = match obstacle(&wish, ending, context, terms) {
        Some(Obstacle::Limit(limit)) => wish.limited(limit),
        Some(Obstacle::Unsure) => {
            let least = rule.min_confidence.name();
            let because = format!("this policy requires at least {least} confidence for that");
            wish.forbidden(Action::Stop, &because)
        }
        None => wish,
    };
    let recovers = Counter::of(wish.action, ending);
    let next_cap = match wish.action.continues_turn() {
        true => limits.next_cap(wish.cap.or(context.cap_asked()), recovers, context),
        false => None,
    };
    Decision {
        should_continue: wish.action.continues_turn(),
        sentence: wish.sentence(),
        suggested: suggested(wish.action, context),
        metadata: DecisionDetails {
            limit: wish.stopped_by,
            instead_of: wish.instead_of,
            next_cap,
            wait_ms: wish.wait_ms,
            resume_by: wish.resume_by,
            discard: wish.discard,
            lower_effort: wish.lower_effort,
            conversation_messages: context.conversation_messages,
            conversation_tokens: context.conversation_tokens,
            left,
        },
        action: wish.action,
        cause: wish.cause,
        ending: Some(ending.reason),
    }
}

/// Returns the suggestion to the user. A limit that the user set or that the model does not allow is
/// not to be raised: the continuation is all there is.
fn suggested(action: Action, context: &DecisionContext) -> Option<Suggested> {
    let Budget { cap_is_users, model_max, .. } = context.budget;
    let is_highest = context.cap_asked().zip(model_max).is_some_and(|(cap, most)| cap >= most);
    if action == Action::Continue && (cap_is_users || is_highest) {
        return Some(Suggested::Retry);
    }
    action.suggested()
}

/// A reason not to take the preferred action.
enum Obstacle {
    Limit(Limit),
    Unsure,
}

fn obstacle(
    wish: &Wish,
    ending: &Ending,
    context: &DecisionContext,
    terms: &Terms,
) -> Option<Obstacle> {
    if !wish.action.continues_turn() {
        return None;
    }
    if ending.over && ending.confidence < terms.rule.min_confidence {
        return Some(Obstacle::Unsure);
    }
    let counter = Counter::of(wish.action, ending);
    let wait_ms = wish.wait_ms.unwrap_or(0);
    let limit = too_long(wish, context, &terms.limits)
        .or_else(|| stuck(wish, ending, context, &terms.limits))
        .or_else(|| terms.limits.reached(counter, context, wait_ms));
    limit.map(Obstacle::Limit)
}

/// Returns the limit on the conversation's length that this action would exceed.
fn too_long(wish: &Wish, context: &DecisionContext, limits: &AgentLimits) -> Option<Limit> {
    let lengthens = match wish.action {
        Action::RunTools | Action::Continue | Action::RepairToolCall | Action::RaiseBudget => true,
        Action::Resume => wish.resume_by != Some(ResumeBy::Poll),
        // Sending the same request again does not lengthen the conversation.
        Action::Retry
        | Action::OtherModel
        | Action::Stop
        | Action::Compact
        | Action::ChangePrompt => false,
    };
    limits.too_long(context).filter(|_| lengthens)
}

/// Returns the limit that continuing this text would hit for lack of progress.
fn stuck(
    wish: &Wish,
    ending: &Ending,
    context: &DecisionContext,
    limits: &AgentLimits,
) -> Option<Limit> {
    let builds_on_text = match wish.action {
        Action::Continue => true,
        Action::Resume => wish.resume_by == Some(ResumeBy::Text),
        Action::Stop
        | Action::RunTools
        | Action::RepairToolCall
        | Action::Retry
        | Action::RaiseBudget
        | Action::OtherModel
        | Action::Compact
        | Action::ChangePrompt => false,
    };
    if !builds_on_text {
        return None;
    }
    let Some(piece) = context.piece else {
        // The text was not kept, so only its presence is known.
        return (!ending.shown.text).then_some(Limit::NoProgress);
    };
    let went_on = context.spent.continuations > 0 || context.spent.cuts > 0;
    let least = if went_on { limits.continuation_min_progress_chars.max(1) } else { 1 };
    if piece.new_chars < least {
        return Some(Limit::NoProgress);
    }
    (piece.repetitive || context.seen.contains(&piece.hash)).then_some(Limit::Repetition)
}

/// Returns whether the tool calls may run, by the ending and the context together.
fn allowed(ending: &Ending, context: &DecisionContext) -> Allow {
    let by_ending = allow_by_ending(ending);
    // Tool calls written as text end like text. Only the code that assembled them can see them.
    let in_text = by_ending == Allow::Refuse(Refusal::NoCalls) && ending.reason == Reason::Complete;
    let sure = ending.over && ending.confidence >= Confidence::Medium;
    match context.tools {
        Some(told) if sure && in_text => told,
        Some(Allow::Run) | None => by_ending,
        Some(refused @ Allow::Refuse(_)) => refused,
    }
}

/// Returns the ending's remedy, adjusted by the policy's rule and the context.
fn wish(ending: &Ending, context: &DecisionContext, terms: &Terms) -> Wish {
    let remedy = remedy_given(ending, allowed(ending, context));
    let wish = Wish::of(remedy);
    match (terms.rule.action, wish.action) {
        (Some(Action::Stop), action) if action != Action::Stop && ending.over => {
            let name = ending.reason.name();
            return wish.forbidden(Action::Stop, &format!("this policy stops here (rules.{name})"));
        }
        (Some(Action::Retry), _)
            if matches!(wish.cause, Cause::Unknown | Cause::BrokenToolCall) =>
        {
            return retry(wish, ending, context, terms);
        }
        (Some(Action::OtherModel), Action::ChangePrompt) if wish.cause == Cause::Blocked => {
            let wish = Wish { action: Action::OtherModel, discard: true, ..wish };
            return wish.plan("ask another model");
        }
        (_, _) => {}
    }
    match wish.action {
        Action::Stop | Action::RunTools | Action::Compact | Action::OtherModel => wish,
        Action::ChangePrompt => {
            let lower_effort = wish.cause == Cause::ReasoningExhausted;
            Wish { lower_effort, ..wish }
        }
        Action::Resume if ending.over => Wish { resume_by: Some(ResumeBy::Protocol), ..wish },
        Action::Resume => Wish {
            resume_by: Some(ResumeBy::Poll),
            wait_ms: Some(terms.limits.retry_backoff_max_ms.min(2_000)),
            ..wish
        },
        Action::RepairToolCall => repair(wish, context),
        Action::Continue | Action::RaiseBudget => after_output_limit(wish, ending, context, terms),
        Action::Retry if wish.cause == Cause::NothingCame && !terms.limits.retry_empty => {
            wish.forbidden(Action::Stop, "this policy does not retry empty answers (retry_empty)")
        }
        Action::Retry => retry(wish, ending, context, terms),
    }
}

fn after_output_limit(
    wish: Wish,
    ending: &Ending,
    context: &DecisionContext,
    terms: &Terms,
) -> Wish {
    let several = ending.choices.len() > 1;
    let empty = context.piece.is_some_and(|piece| piece.chars == 0);
    let nothing = wish.action == Action::RaiseBudget || empty;
    let prefers_raise = terms.rule.action == Some(Action::RaiseBudget);
    if !(prefers_raise || several || nothing) {
        return go_on(wish, context, terms);
    }
    let because = match raised_cap(ending, context, terms) {
        Ok(cap) => {
            return Wish {
                action: Action::RaiseBudget,
                cap: Some(cap),
                discard: true,
                ..wish.plan(format!("send the request again with a limit of {cap} tokens"))
            };
        }
        Err(because) => because,
    };
    if nothing {
        let raise = Wish { action: Action::RaiseBudget, ..wish };
        let stopped = raise.forbidden(Action::Stop, because);
        return Wish { stopped_by: Some(Limit::NoProgress), ..stopped };
    }
    if several {
        let plan = format!(
            "several choices cannot be continued; the limit is not raised, because {because}"
        );
        let instead_of = Some(Action::RaiseBudget);
        return Wish { action: Action::Stop, instead_of, ..wish.plan(plan) };
    }
    let wish = go_on(wish, context, terms);
    let plan = format!("the limit is not raised, because {because}; {}", wish.plan);
    Wish { instead_of: Some(Action::RaiseBudget), ..wish.plan(plan) }
}

/// Plans to continue the answer if the context window has room, or to compact if it has not.
fn go_on(wish: Wish, context: &DecisionContext, terms: &Terms) -> Wish {
    if is_window_full(context, &terms.limits) {
        return Wish {
            action: Action::Compact,
            cause: Cause::ContextFull,
            ..wish.plan("the context window is nearly full; shorten or compact the conversation")
        };
    }
    let attempt = context.spent.continuations.saturating_add(1);
    let most = terms.limits.continuation_max_attempts;
    wish.plan(format!("continue it (attempt {attempt} of {most})"))
}

/// Returns the higher output limit, or the reason not to raise it.
fn raised_cap(
    ending: &Ending,
    context: &DecisionContext,
    terms: &Terms,
) -> Result<u64, &'static str> {
    let Budget { cap_is_users, model_max, .. } = context.budget;
    if context.delivered && ending.shown.text {
        return Err("the text has been delivered and cannot be taken back");
    }
    if cap_is_users {
        return Err("the user set it");
    }
    let cap = context.cap_asked().ok_or("the request's limit is not known")?;
    let most = model_max.ok_or("the model's maximum is not known")?;
    let counter = Some(Counter::Raises);
    if let Some(limit) = terms.limits.reached(counter, context, 0) {
        return Err(limit.description());
    }
    let raised = cap.saturating_mul(2).min(most);
    let given = terms.limits.next_cap(Some(raised), counter, context).unwrap_or(raised);
    if given > cap { Ok(given) } else { Err("the model or the budget allows no more tokens") }
}

fn is_window_full(context: &DecisionContext, limits: &AgentLimits) -> bool {
    let used = context.conversation_tokens;
    let full = |(window, used): (u64, u64)| {
        used.saturating_add(limits.continuation_min_room_tokens) > window
    };
    context.budget.window.zip(used).is_some_and(full)
}

/// Plans a request for only the tool call, with twice the output limit if it may be raised.
fn repair(wish: Wish, context: &DecisionContext) -> Wish {
    let Budget { cap_is_users, model_max, .. } = context.budget;
    let cap = context.cap_asked();
    let raised = cap.zip(model_max).map(|(cap, most)| cap.saturating_mul(2).min(most).max(cap));
    Wish {
        action: Action::RepairToolCall,
        cause: Cause::BrokenToolCall,
        cap: raised.filter(|_| !cap_is_users).or(cap),
        ..wish.plan("the call is not run; ask for it again, as a single complete call")
    }
}

/// Plans to send the same request again, or to continue after text that was already delivered.
fn retry(wish: Wish, ending: &Ending, context: &DecisionContext, terms: &Terms) -> Wish {
    let wish = Wish { action: Action::Retry, ..wish };
    let wait = match context.retry_after_ms {
        Some(asked) if asked > terms.limits.retry_after_max_ms => {
            return wish.limited(Limit::RetryAfter);
        }
        asked => backoff(ending, context, &terms.limits).max(asked.unwrap_or(0)),
    };
    if !context.delivered || !ending.shown.text {
        return Wish {
            wait_ms: Some(wait),
            discard: true,
            ..wish.plan(format!("send the request again in {wait} ms"))
        };
    }
    if ending.shown.tool_calls > 0 {
        let happened = format!("{}, inside a tool call", wish.happened);
        return repair(Wish { happened, ..wish }, context);
    }
    Wish {
        action: Action::Resume,
        wait_ms: Some(wait),
        resume_by: Some(ResumeBy::Text),
        ..wish.plan(format!("continue after the delivered text in {wait} ms"))
    }
}

/// Returns the wait before a retry. It doubles each time and is shortened at random by up to a
/// quarter.
fn backoff(ending: &Ending, context: &DecisionContext, limits: &AgentLimits) -> u64 {
    let count =
        Counter::of(Action::Retry, ending).map_or(0, |counter| context.spent.count(counter));
    let doubled = 1_u64.checked_shl(count).unwrap_or(u64::MAX);
    let longest = limits.retry_backoff_max_ms;
    let wait = limits.retry_backoff_ms.saturating_mul(doubled).min(longest);
    let chance = Fnv::default().mix_bytes(&(context.seed ^ u64::from(count)).to_le_bytes()).value();
    wait - chance % (wait / 4 + 1)
}
