//! Policies: the decision about an ending.
//!
//! [`remedy`] returns the usual action for an ending, before any policy. A [`Policy`] is plain
//! data: limits, rules for reasons, overrides for providers, wording and prices. It comes from a
//! TOML file or a preset. [`decide`] is a pure function from an ending, its [`DecisionContext`] and
//! a policy to a [`Decision`]. Custom logic implements [`Strategy`], for example with a closure.
//!
//! This module does not send requests, wait or keep state. [`crate::continuation`] applies the
//! decisions and enforces the limits on every strategy.
//!
//! ```
//! use endstop_turn::policy::{Action, DecisionContext, Policy, decide};
//! use endstop::{RequestInfo, TransportEnd, Head, Watcher, provider};
//!
//! let body = br#"{"choices":[{"message":{"content":"Once upon"},"finish_reason":"length"}]}"#;
//! let mut reader = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
//! reader.watch(body);
//! let ending = reader.finish(TransportEnd::Eof);
//!
//! let decision = decide(&ending, &DecisionContext::default(), &Policy::default());
//! assert_eq!(decision.action, Action::Continue);
//! assert!(decision.should_continue);
//! ```

mod decide;
#[cfg(feature = "toml")]
mod file;
mod limits;
mod piece;
mod prices;
mod remedy;
mod report;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use decide::{decide, hold};
#[cfg(feature = "toml")]
pub use file::PolicyFileError;
pub use limits::{
    AgentChange, AgentLimits, Budget, Counter, Left, Limit, MAX_CAP, MIN_CAP, Millis, Money, Price,
    Spent,
};
pub use piece::Piece;
use remedy::remedy_given;
pub use remedy::{Delivery, Remedy, remedy};
pub use report::{TerminationReport, finish_reason};

use endstop::next_request::Wording;
use endstop::signal::TerminationSignal;
use endstop::tool_call::Allow;
use endstop::{Confidence, Ending, Reason};

/// An action to take after a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// End the turn.
    Stop,
    /// Run the tool calls and send their results.
    RunTools,
    /// Continue the answer from where it stopped.
    Continue,
    /// Resume with the provider's protocol, or continue an answer whose stream was cut.
    Resume,
    /// Ask for the tool call again, as a single complete call.
    RepairToolCall,
    /// Send the same request again.
    Retry,
    /// Send the same request again with a higher output limit.
    RaiseBudget,
    /// Send the same conversation to another model, of `fallback_models`.
    OtherModel,
    /// Shorten the conversation. The caller must do this.
    Compact,
    /// Change the prompt or its settings. The caller must do this.
    ChangePrompt,
}

impl Action {
    /// All actions, in order.
    pub const ALL: [Self; 10] = [
        Self::Stop,
        Self::RunTools,
        Self::Continue,
        Self::Resume,
        Self::RepairToolCall,
        Self::Retry,
        Self::RaiseBudget,
        Self::OtherModel,
        Self::Compact,
        Self::ChangePrompt,
    ];

    /// Returns the name used in files and reports.
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
            Self::OtherModel => "other_model",
            Self::Compact => "compact",
            Self::ChangePrompt => "change_prompt",
        }
    }

    /// Reports whether the turn continues without the caller.
    #[must_use]
    pub fn continues_turn(self) -> bool {
        match self {
            Self::RunTools
            | Self::Continue
            | Self::Resume
            | Self::RepairToolCall
            | Self::Retry
            | Self::RaiseBudget
            | Self::OtherModel => true,
            Self::Stop | Self::Compact | Self::ChangePrompt => false,
        }
    }

    /// Returns the matching user-facing suggestion, or `None` for [`Action::RunTools`].
    #[must_use]
    pub fn suggested(self) -> Option<Suggested> {
        match self {
            Self::Retry | Self::Resume | Self::RepairToolCall | Self::OtherModel => {
                Some(Suggested::Retry)
            }
            Self::Compact | Self::ChangePrompt => Some(Suggested::ModifyPrompt),
            Self::Continue | Self::RaiseBudget => Some(Suggested::IncreaseBudget),
            Self::Stop => Some(Suggested::Stop),
            Self::RunTools => None,
        }
    }
}

/// A suggestion to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Suggested {
    /// Send the request again.
    Retry,
    /// Change the prompt.
    ModifyPrompt,
    /// Raise the token limit.
    IncreaseBudget,
    /// Stop here.
    Stop,
}

/// The cause behind an ending. Endings that look alike but need different actions have different
/// causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The answer is complete.
    Completed,
    /// The provider reported a normal end, but the answer is empty.
    NothingCame,
    /// Tool calls are ready to run.
    ToolCalls,
    /// The response has tool calls that may not run, because its ending is uncertain.
    UncertainToolCalls,
    /// A tool call is cut off or malformed.
    BrokenToolCall,
    /// The provider paused the turn.
    Paused,
    /// The provider is still generating the answer.
    Pending,
    /// The output token limit was reached.
    OutputLimit,
    /// The context window is full. A higher output limit does not help.
    ContextFull,
    /// Reasoning used up the output limit and would use up a higher one too.
    ReasoningExhausted,
    /// The model declined, or a filter or safety system blocked the answer.
    Blocked,
    /// The provider failed or could not be reached.
    ProviderFailed,
    /// The request is invalid or not permitted. The same request would fail again.
    RequestRefused,
    /// A timeout expired.
    TimedOut,
    /// The stream was cut.
    CutStream,
    /// The caller or an operator cancelled the request.
    Cancelled,
    /// The cause is unknown.
    #[default]
    Unknown,
}

/// The way to resume an answer, for [`Action::Resume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResumeBy {
    /// The provider's protocol: send back the turn or its token.
    Protocol,
    /// A continuation of the text that arrived before the stream was cut.
    Text,
    /// Polling until the response is over.
    Poll,
}

/// A decision about one ending, with its reason.
///
/// The JSON form has `should_continue`, `reason` (the sentence), `suggested_action` and `metadata`,
/// plus Endstop's `action`, `cause` and `ending`. It can be deserialized.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether the turn continues without the caller.
    pub should_continue: bool,
    /// The reason for the decision, as a sentence without a full stop.
    #[serde(rename = "reason")]
    pub sentence: String,
    /// The suggestion to the user, or `None` if tools are to be run.
    #[serde(rename = "suggested_action")]
    pub suggested: Option<Suggested>,
    /// Numbers and details.
    #[serde(default)]
    pub metadata: DecisionDetails,
    /// The action.
    pub action: Action,
    /// The cause behind the ending.
    #[serde(default)]
    pub cause: Cause,
    /// The reason that the response ended, or `None` if the decision is not about a response.
    #[serde(default)]
    pub ending: Option<Reason>,
}

/// Numbers and details of a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionDetails {
    /// The limit that prevents the preferred action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The preferred action, if something prevents it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Action>,
    /// The output limit of the next request, or `None` to leave it unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cap: Option<u64>,
    /// The wait before the next request, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// The way to resume the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_by: Option<ResumeBy>,
    /// Whether to discard the text of this response, because the next one starts over.
    pub discard: bool,
    /// Whether to lower the reasoning effort. A higher output limit does not help.
    pub lower_effort: bool,
    /// Messages in the conversation, or `None` if unknown.
    pub conversation_messages: Option<u32>,
    /// Tokens in the conversation, including this answer, or `None` if unknown.
    pub conversation_tokens: Option<u64>,
    /// The remaining budgets before the action.
    pub left: Left,
}

impl Decision {
    /// Creates a decision for this action, for use in a custom [`Strategy`].
    pub fn new(action: Action, sentence: impl Into<String>) -> Self {
        Self {
            should_continue: action.continues_turn(),
            sentence: sentence.into(),
            suggested: action.suggested(),
            metadata: DecisionDetails::default(),
            action,
            cause: Cause::Unknown,
            ending: None,
        }
    }
}

/// The facts besides the ending that a decision depends on.
///
/// The default describes the first response of a turn, with everything else unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecisionContext {
    /// Messages in the conversation, or `None` if unknown.
    pub conversation_messages: Option<u32>,
    /// Tokens in the conversation, including this answer, or `None` if unknown.
    pub conversation_tokens: Option<u64>,
    /// The output limits, the context window and the price.
    pub budget: Budget,
    /// The output limit of this request, if it differs from that of the turn's first request.
    pub cap: Option<u64>,
    /// The turn's spending so far, including this response.
    pub spent: Spent,
    /// Whether the tool calls of this response may run, or `None` if they were not assembled.
    pub tools: Option<Allow>,
    /// The measurements of this response's text, or `None` if the text was not kept.
    pub piece: Option<Piece>,
    /// The hashes of the turn's earlier pieces.
    pub seen: Vec<u64>,
    /// Whether the text was delivered and cannot be taken back.
    pub delivered: bool,
    /// The wait that the provider asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// A number that differs between turns, so that turns do not all retry at the same moment.
    pub seed: u64,
}

/// A way to decide: a policy, or custom logic such as a closure.
///
/// ```
/// use endstop_turn::policy::{Action, DecisionContext, Decision, Policy, Strategy, decide};
/// use endstop::Ending;
///
/// let patient = |ending: &Ending, context: &DecisionContext| {
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
    /// Decides about an ending.
    fn decide(&self, ending: &Ending, context: &DecisionContext) -> Decision;

    /// Decides about an ending, given the signals of the turn's responses so far. The last one is the signal
    /// of this ending. By default they are not considered.
    fn decide_with(
        &self,
        ending: &Ending,
        context: &DecisionContext,
        signals: &[TerminationSignal],
    ) -> Decision {
        let _ = signals;
        self.decide(ending, context)
    }
}

impl<F: Fn(&Ending, &DecisionContext) -> Decision> Strategy for F {
    fn decide(&self, ending: &Ending, context: &DecisionContext) -> Decision {
        self(ending, context)
    }
}

impl Strategy for Policy {
    fn decide(&self, ending: &Ending, context: &DecisionContext) -> Decision {
        decide(ending, context, self)
    }
}

/// The limits, rules and overrides that [`decide`] applies.
///
/// ```
/// use endstop_turn::policy::Policy;
///
/// let mut policy = Policy::careful();
/// policy.name = "mine".to_owned();
/// policy.agent.continuation_max_attempts = 1;
/// assert_ne!(policy.agent, Policy::default().agent);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The name of the policy.
    pub name: String,
    /// The limits of a turn.
    pub agent: AgentLimits,
    /// Rules for reasons. A reason without a rule follows [`Rule::NATURAL`].
    #[serde(default)]
    pub rules: BTreeMap<Reason, RuleChange>,
    /// Overrides for a single provider.
    #[serde(default)]
    pub providers: BTreeMap<String, Override>,
    /// The wording of next requests.
    #[serde(default)]
    pub wording: Wording,
    /// Prices by `model` or `provider/model`, in US dollars per million tokens. They take precedence
    /// over the built-in ones.
    #[serde(default)]
    pub prices: BTreeMap<String, Price>,
    /// Models for [`Action::OtherModel`], as `provider/model`, in the order in which they are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_models: Vec<String>,
}

/// A rule for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The preferred action, if the limits allow it. `None` takes the ending's [`remedy`].
    pub action: Option<Action>,
    /// The minimum confidence of the ending for this action.
    pub min_confidence: Confidence,
    /// The maximum attempts in a turn. `None` leaves this to the limits.
    pub max_attempts: Option<u32>,
}

/// Changes to a rule from a file or an override. Fields that are `None` stay unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleChange {
    /// The preferred action, if the limits allow it, such as `stop`. Each reason permits some of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The minimum confidence of the ending for this action, such as `medium`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<Confidence>,
    /// The maximum attempts in a turn, such as `2`. The limits decide without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

/// Overrides for a single provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    /// Changed limits.
    pub agent: AgentChange,
    /// Changed rules, by the reason of an ending, such as `cut`.
    pub rules: BTreeMap<Reason, RuleChange>,
}

impl RuleChange {
    fn apply(&self, rule: Rule) -> Rule {
        Rule {
            action: self.action.or(rule.action),
            min_confidence: self.min_confidence.unwrap_or(rule.min_confidence),
            max_attempts: self.max_attempts.or(rule.max_attempts),
        }
    }
}

impl Rule {
    /// The rule for a reason without a configured rule: the ending's [`remedy`].
    pub const NATURAL: Self =
        Self { action: None, min_confidence: Confidence::Low, max_attempts: None };

    /// Returns the actions that a rule for this reason may name, the usual one first. Other actions
    /// are unsafe or cannot help.
    #[must_use]
    pub fn permitted(reason: Reason) -> &'static [Action] {
        match reason {
            Reason::Complete | Reason::StopSequence | Reason::Cancelled => &[Action::Stop],
            Reason::ToolCall => &[Action::RunTools, Action::Stop],
            Reason::Paused => &[Action::Resume, Action::Stop],
            Reason::OutputLimit => &[Action::Continue, Action::RaiseBudget, Action::Stop],
            Reason::ContextLimit => &[Action::Compact, Action::Stop],
            Reason::Refused | Reason::Filtered | Reason::Safety | Reason::Recitation => {
                &[Action::ChangePrompt, Action::OtherModel, Action::Stop]
            }
            Reason::MalformedToolCall => &[Action::RepairToolCall, Action::Retry, Action::Stop],
            Reason::TimedOut | Reason::Failed | Reason::Cut => &[Action::Retry, Action::Stop],
            // A reason that is newer than this crate is as good as unknown.
            Reason::Unknown | _ => &[Action::Stop, Action::Retry],
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
            wording: Wording::default(),
            prices: BTreeMap::new(),
            fallback_models: Vec::new(),
        }
    }
}

impl Policy {
    /// The names of the presets.
    pub const PRESETS: [&'static str; 3] = ["careful", "default", "persistent"];

    /// Returns the preset with this name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "careful" => Some(Self::careful()),
            "default" => Some(Self::default()),
            "persistent" => Some(Self::persistent()),
            _ => None,
        }
    }

    /// Returns the preset that recovers once from each kind of ending. It continues and repairs
    /// only with medium confidence or more.
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
                turn_max_time: Millis(300_000),
                ..AgentLimits::DEFAULT
            },
            rules: [Reason::OutputLimit, Reason::Paused, Reason::MalformedToolCall]
                .map(|reason| (reason, sure))
                .into(),
            ..Self::default()
        }
    }

    /// Returns the preset that keeps going as long as there is progress. It first raises the output
    /// limit, then continues.
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
                turn_max_time: Millis(7_200_000),
                ..AgentLimits::DEFAULT
            },
            rules: [(Reason::OutputLimit, raise)].into(),
            ..Self::default()
        }
    }

    /// Returns the terms for an ending with this reason at this provider.
    #[must_use]
    pub fn terms(&self, provider: &str, reason: Reason) -> Terms {
        let own = self.providers.get(provider);
        let changes = [self.rules.get(&reason), own.and_then(|own| own.rules.get(&reason))];
        let rule =
            changes.into_iter().flatten().fold(Rule::NATURAL, |rule, change| change.apply(rule));
        let limits = own.map_or(self.agent, |own| own.agent.apply(self.agent));
        Terms { limits: rule.bounds(limits), rule }
    }
}

impl Rule {
    /// Returns the limits with the rule's `max_attempts` for continuing, repairing, retrying and
    /// resuming.
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

/// The limits and the rule for one ending, with overrides applied.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Terms {
    /// The limits.
    pub limits: AgentLimits,
    /// The rule.
    pub rule: Rule,
}

impl DecisionContext {
    /// Returns the output limit of the request for this response.
    pub(crate) fn cap_asked(&self) -> Option<u64> {
        self.cap.or(self.budget.cap)
    }
}
