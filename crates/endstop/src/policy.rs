//! Policies: what to do about an ending.
//!
//! A [`Policy`] is plain data: limits, a rule for each reason, overrides for each provider; it is
//! written in TOML or taken from the presets. [`decide`] is the one pure function from an ending, its
//! [`Context`] and a policy to a [`Decision`]. Whoever wants to decide otherwise brings a [`Strategy`],
//! which can be a closure.
//!
//! Nothing here sends, waits or remembers: [`crate::continuation`] is the machine that does what was
//! decided, and it holds every strategy to the limits.
//!
//! ```
//! use endstop::policy::{Action, Context, Policy, decide};
//! use endstop::{Asked, Close, Head, Reader, provider};
//!
//! let body = br#"{"choices":[{"message":{"content":"Once upon"},"finish_reason":"length"}]}"#;
//! let mut reader = Reader::new(&provider::OPENAI, Head::default(), Asked::default());
//! reader.watch(body);
//! let ending = reader.finish(Close::Eof);
//!
//! let decision = decide(&ending, &Context::default(), &Policy::default());
//! assert_eq!(decision.action, Action::Continue);
//! assert!(decision.should_continue);
//! ```

mod file;
mod limits;
mod piece;
mod report;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use file::Error;
pub use limits::{
    AgentChange, AgentLimits, Budget, Counter, Left, Limit, MIN_CAP, Money, Price, Spent,
};
pub use piece::Piece;
pub(crate) use piece::hash;
pub use report::TerminationReport;

use crate::ending::{Closed, Confidence, Ending, Reason, Timer, Unreachable};
use crate::fault::FaultKind;
use crate::tool_call::{Allow, Refusal, allow_by_ending};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing more: the turn is over.
    Stop,
    /// Run the tool calls and send their results.
    RunTools,
    /// Continue the answer where it stopped.
    Continue,
    /// Go on by the provider's own protocol, or in an answer whose stream was cut.
    Resume,
    /// Ask for the tool call again, complete and alone.
    RepairToolCall,
    /// Send the same request again.
    Retry,
    /// Send the same request again with a higher cap.
    RaiseBudget,
    /// Make the conversation shorter; whoever owns it must do that.
    Compact,
    /// Change the prompt or its settings; whoever owns it must do that.
    ChangePrompt,
}

impl Action {
    /// Every action, in order.
    pub const ALL: [Self; 9] = [
        Self::Stop,
        Self::RunTools,
        Self::Continue,
        Self::Resume,
        Self::RepairToolCall,
        Self::Retry,
        Self::RaiseBudget,
        Self::Compact,
        Self::ChangePrompt,
    ];

    /// The action's name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::RunTools => "run_tools",
            Self::Continue => "continue",
            Self::Resume => "resume",
            Self::RepairToolCall => "repair_tool_call",
            Self::Retry => "retry",
            Self::RaiseBudget => "raise_budget",
            Self::Compact => "compact",
            Self::ChangePrompt => "change_prompt",
        }
    }

    /// Whether the turn goes on by itself.
    #[must_use]
    pub fn goes_on(self) -> bool {
        match self {
            Self::RunTools
            | Self::Continue
            | Self::Resume
            | Self::RepairToolCall
            | Self::Retry
            | Self::RaiseBudget => true,
            Self::Stop | Self::Compact | Self::ChangePrompt => false,
        }
    }

    /// The action in the words that users know.
    #[must_use]
    pub fn suggested(self) -> Option<Suggested> {
        match self {
            Self::Retry | Self::Resume | Self::RepairToolCall => Some(Suggested::Retry),
            Self::Compact | Self::ChangePrompt => Some(Suggested::ModifyPrompt),
            Self::Continue | Self::RaiseBudget => Some(Suggested::IncreaseBudget),
            Self::Stop => Some(Suggested::Stop),
            Self::RunTools => None,
        }
    }
}

/// What to do, in the words that users know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suggested {
    /// Try again.
    Retry,
    /// Change what is asked.
    ModifyPrompt,
    /// Allow more.
    IncreaseBudget,
    /// Leave it.
    Stop,
}

/// What the ending comes down to: endings that look alike and need different things stay apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The answer is whole.
    Completed,
    /// The answer is whole as far as anyone said, and it holds nothing.
    NothingCame,
    /// Tool calls wait to be run.
    ToolCalls,
    /// Tool calls came that may not run, since how they ended is not sure.
    UncertainToolCalls,
    /// A tool call is cut or cannot be read.
    BrokenToolCall,
    /// The provider paused.
    Paused,
    /// The answer is still being made.
    Pending,
    /// The cap on output tokens was reached.
    OutputLimit,
    /// The context window is full: no cap helps.
    ContextFull,
    /// Reasoning used up the cap: a higher one is used up, too.
    ReasoningExhausted,
    /// The model declined, or a filter or a safety system withheld the answer.
    Blocked,
    /// The provider failed, or could not be reached.
    ProviderFailed,
    /// The request is wrong, or may not be made: the same again fails again.
    RequestRefused,
    /// A time limit passed.
    TimedOut,
    /// The stream was cut.
    CutStream,
    /// The caller or an operator cancelled.
    Cancelled,
    /// Nobody knows.
    #[default]
    Unknown,
}

/// By what an answer goes on, where the action is [`Action::Resume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeBy {
    /// By the provider's own protocol: the turn is sent back, or its token.
    Protocol,
    /// From the text that came before the stream was cut.
    Text,
    /// By asking again whether it is over.
    Poll,
}

/// What to do about one ending, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// Whether the turn goes on by itself.
    pub should_continue: bool,
    /// Why, in a sentence.
    pub sentence: String,
    /// The same in the words that users know; none where tools are to be run.
    pub suggested: Option<Suggested>,
    /// What belongs to it.
    pub metadata: Metadata,
}

/// What belongs to a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// What the ending comes down to.
    pub cause: Cause,
    /// The limit that stands in the way of what would have been done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// What would have been done, had no limit been reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Action>,
    /// The cap that the next request is to carry; none leaves it as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cap: Option<u64>,
    /// How long to wait before, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// By what the answer goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_by: Option<ResumeBy>,
    /// The text of this response is to be thrown away, since the next one begins anew.
    pub discard: bool,
    /// Less reasoning helps, a higher cap does not.
    pub lower_effort: bool,
    /// What is left of the budgets, before the action.
    pub left: Left,
}

impl Decision {
    /// A decision for this action, for strategies of one's own.
    pub fn new(action: Action, sentence: impl Into<String>) -> Self {
        Self {
            action,
            should_continue: action.goes_on(),
            sentence: sentence.into(),
            suggested: action.suggested(),
            metadata: Metadata::default(),
        }
    }
}

/// What is known besides the ending when something is to be decided.
///
/// Its default is a first response of which nothing more is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Context {
    /// Messages in the conversation.
    pub conversation_messages: u32,
    /// Tokens in the conversation, this answer included, as far as they are known.
    pub conversation_tokens: Option<u64>,
    /// The caps, the model and its price.
    pub budget: Budget,
    /// The cap that this response was asked with, where it is not the turn's first.
    pub cap: Option<u64>,
    /// What the turn has spent so far, this response included.
    pub spent: Spent,
    /// What the tool calls of this response are allowed; none where nobody put them together.
    pub tools: Option<Allow>,
    /// The text of this response, in numbers; none where nobody kept it.
    pub piece: Option<Piece>,
    /// The hashes of the turn's earlier pieces.
    pub seen: Vec<u64>,
    /// The text has reached someone and cannot be taken back.
    pub delivered: bool,
    /// How long the provider asks to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// A number that differs from turn to turn, so that not all retry at the same moment.
    pub seed: u64,
}

/// Whoever decides: a policy, or anything of one's own.
///
/// ```
/// use endstop::policy::{Action, Context, Decision, Policy, Strategy, decide};
/// use endstop::Ending;
///
/// let patient = |ending: &Ending, context: &Context| {
///     if context.spent.retries > 0 {
///         return Decision::new(Action::Stop, "one retry is enough for us");
///     }
///     decide(ending, context, &Policy::default())
/// };
/// fn takes(_: impl Strategy) {}
/// takes(patient);
/// takes(Policy::careful());
/// ```
pub trait Strategy {
    /// What to do about an ending.
    fn decide(&self, ending: &Ending, context: &Context) -> Decision;
}

impl<F: Fn(&Ending, &Context) -> Decision> Strategy for F {
    fn decide(&self, ending: &Ending, context: &Context) -> Decision {
        self(ending, context)
    }
}

impl Strategy for Policy {
    fn decide(&self, ending: &Ending, context: &Context) -> Decision {
        decide(ending, context, self)
    }
}

/// Limits, rules and overrides: what [`decide`] goes by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The limits of a turn.
    pub agent: AgentLimits,
    /// Rules for reasons; those that have none follow [`Rule::natural`].
    #[serde(default)]
    pub rules: BTreeMap<Reason, RuleChange>,
    /// What holds for one provider only.
    #[serde(default)]
    pub providers: BTreeMap<String, Override>,
}

/// What is done about one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is done, where the limits allow it.
    pub action: Action,
    /// How sure the ending must be for it.
    pub min_confidence: Confidence,
    /// How often in a turn; none leaves that to the limits.
    pub max_attempts: Option<u32>,
}

/// What a file or an override says of a rule; the rest stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleChange {
    /// What is done, where the limits allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// How sure the ending must be for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<Confidence>,
    /// How often in a turn; none leaves that to the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

/// What holds for one provider only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    /// Limits.
    pub agent: AgentChange,
    /// Rules for reasons.
    pub rules: BTreeMap<Reason, RuleChange>,
}

impl RuleChange {
    fn apply(&self, rule: Rule) -> Rule {
        Rule {
            action: self.action.unwrap_or(rule.action),
            min_confidence: self.min_confidence.unwrap_or(rule.min_confidence),
            max_attempts: self.max_attempts.or(rule.max_attempts),
        }
    }
}

impl Rule {
    /// The rule for a reason that has none of its own: its first permitted action.
    #[must_use]
    pub fn natural(reason: Reason) -> Self {
        let action = Self::permitted(reason).first().copied().unwrap_or(Action::Stop);
        Self { action, min_confidence: Confidence::Low, max_attempts: None }
    }

    /// The actions that a rule for this reason may name, the usual one first. What is not here
    /// cannot help or is not safe.
    #[must_use]
    pub fn permitted(reason: Reason) -> &'static [Action] {
        match reason {
            Reason::Complete | Reason::StopSequence | Reason::Cancelled => &[Action::Stop],
            Reason::ToolCall => &[Action::RunTools, Action::Stop],
            Reason::Paused => &[Action::Resume, Action::Stop],
            Reason::OutputLimit => &[Action::Continue, Action::RaiseBudget, Action::Stop],
            Reason::ContextLimit => &[Action::Compact, Action::Stop],
            Reason::Refused | Reason::Filtered | Reason::Safety | Reason::Recitation => {
                &[Action::ChangePrompt, Action::Stop]
            }
            Reason::MalformedToolCall => &[Action::RepairToolCall, Action::Retry, Action::Stop],
            Reason::Unknown => &[Action::Stop, Action::Retry],
            Reason::TimedOut | Reason::Failed | Reason::Cut => &[Action::Retry, Action::Stop],
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            agent: AgentLimits::DEFAULT,
            rules: BTreeMap::new(),
            providers: BTreeMap::new(),
        }
    }
}

impl Policy {
    /// The names of the presets.
    pub const PRESETS: [&'static str; 3] = ["careful", "default", "persistent"];

    /// The preset of this name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "careful" => Some(Self::careful()),
            "default" => Some(Self::default()),
            "persistent" => Some(Self::persistent()),
            _ => None,
        }
    }

    /// Recovers once, and only from what is sure.
    #[must_use]
    pub fn careful() -> Self {
        let sure = RuleChange { min_confidence: Some(Confidence::Medium), ..RuleChange::default() };
        Self {
            name: "careful".to_owned(),
            agent: AgentLimits {
                continuation_max_attempts: 1,
                continuation_total_tokens_factor: 2,
                continuation_max_output_chars: 40_000,
                continuation_max_raises: 0,
                continuation_min_progress_chars: 50,
                retry_max_attempts: 1,
                cut_max_attempts: 1,
                resume_max_attempts: 3,
                retry_empty: false,
                turn_max_iterations: 50,
                turn_max_total_tokens: 2_000_000,
                turn_max_wall_time_ms: 300_000,
                ..AgentLimits::DEFAULT
            },
            rules: [Reason::OutputLimit, Reason::Paused, Reason::MalformedToolCall]
                .map(|reason| (reason, sure))
                .into(),
            providers: BTreeMap::new(),
        }
    }

    /// Goes on for as long as there is progress: asks with a higher cap first, then continues.
    #[must_use]
    pub fn persistent() -> Self {
        let raise = RuleChange { action: Some(Action::RaiseBudget), ..RuleChange::default() };
        Self {
            name: "persistent".to_owned(),
            agent: AgentLimits {
                continuation_max_attempts: 8,
                continuation_total_tokens_factor: 10,
                continuation_max_output_chars: 500_000,
                continuation_tool_repair_attempts: 2,
                continuation_min_progress_chars: 1,
                retry_max_attempts: 5,
                cut_max_attempts: 5,
                resume_max_attempts: 25,
                turn_max_iterations: 1_000,
                turn_max_total_tokens: 100_000_000,
                turn_max_wall_time_ms: 7_200_000,
                ..AgentLimits::DEFAULT
            },
            rules: [(Reason::OutputLimit, raise)].into(),
            providers: BTreeMap::new(),
        }
    }

    /// What holds for an ending of this reason at this provider.
    #[must_use]
    pub fn terms(&self, provider: &str, reason: Reason) -> Terms {
        let own = self.providers.get(provider);
        let changes = [self.rules.get(&reason), own.and_then(|own| own.rules.get(&reason))];
        let rule = changes
            .into_iter()
            .flatten()
            .fold(Rule::natural(reason), |rule, change| change.apply(rule));
        let limits = own.map_or(self.agent, |own| own.agent.apply(self.agent));
        Terms { limits: rule.bounds(limits), rule }
    }
}

impl Rule {
    /// The limits, with the rule's own number of attempts for whatever its action counts against.
    fn bounds(&self, limits: AgentLimits) -> AgentLimits {
        match self.max_attempts {
            Some(most) => AgentLimits {
                continuation_max_attempts: most,
                continuation_tool_repair_attempts: most,
                retry_max_attempts: most,
                cut_max_attempts: most,
                resume_max_attempts: most,
                ..limits
            },
            None => limits,
        }
    }
}

/// What holds for one ending: the limits and the rule, overrides applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The limits.
    pub limits: AgentLimits,
    /// The rule.
    pub rule: Rule,
}

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
    let cause = match metadata.cause {
        Cause::Unknown => cause_of(ending),
        told => told,
    };
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
        cause,
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
    let how = match ending.reason {
        _ if !ending.over => ResumeBy::Poll,
        Reason::Paused => ResumeBy::Protocol,
        Reason::Complete
        | Reason::StopSequence
        | Reason::ToolCall
        | Reason::OutputLimit
        | Reason::ContextLimit
        | Reason::Refused
        | Reason::Filtered
        | Reason::Safety
        | Reason::Recitation
        | Reason::MalformedToolCall
        | Reason::Unknown
        | Reason::Cancelled
        | Reason::TimedOut
        | Reason::Failed
        | Reason::Cut => ResumeBy::Text,
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
                    confidence_word(rule.min_confidence)
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

impl Context {
    /// The cap that this response was asked with.
    fn cap_asked(&self) -> Option<u64> {
        self.cap.or(self.budget.cap)
    }
}

/// What the tool calls are allowed, by whatever is known of them.
fn allowed(ending: &Ending, context: &Context) -> Allow {
    let by_ending = allow_by_ending(ending);
    // Calls that a model wrote into its text are seen only by whoever put them together.
    let in_text = by_ending == Allow::Refuse(Refusal::NoCalls);
    let sure = ending.over && ending.confidence >= Confidence::Medium;
    match context.tools {
        Some(told) if sure && in_text => told,
        Some(Allow::Run) | None => by_ending,
        Some(refused @ Allow::Refuse(_)) => refused,
    }
}

fn confidence_word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
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
