//! Policies: the decision about an ending.
//!
//! [`remedy`] says what an ending calls for, whoever asks. A [`Policy`] is plain data: limits, rules
//! for reasons, overrides for providers, wording and prices; it is written in TOML or taken from the
//! presets. [`decide`] is the one pure function from an ending, its [`DecisionContext`] and a policy to a
//! [`Decision`]. Whoever wants to decide otherwise brings a [`Strategy`], which can be a closure.
//!
//! Nothing here sends, waits or remembers: [`crate::continuation`] is the machine that does what was
//! decided, and it holds every strategy to the limits.
//!
//! ```
//! use endstop_turn::policy::{Action, DecisionContext, Policy, decide};
//! use endstop::{RequestInfo, TransportEnd, Head, Reader, provider};
//!
//! let body = br#"{"choices":[{"message":{"content":"Once upon"},"finish_reason":"length"}]}"#;
//! let mut reader = Reader::new(&provider::OPENAI, Head::default(), RequestInfo::default());
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
pub use file::Error;
pub use limits::{
    AgentChange, AgentLimits, Budget, Counter, Left, Limit, MIN_CAP, Money, Price, Spent,
};
pub use piece::Piece;
pub(crate) use piece::hash;
use remedy::remedy_given;
pub use remedy::{Delivery, Remedy, remedy};
pub use report::TerminationReport;

use endstop::ending::{Confidence, Ending, Reason};
use endstop::next_request::Wording;
use endstop::tool_call::Allow;

/// An action.
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

/// An action in the words that users know.
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

/// The cause that an ending comes down to: endings that look alike and need different things stay
/// apart.
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

/// The means by which an answer goes on, where the action is [`Action::Resume`].
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

/// A decision about one ending, and why.
///
/// Its JSON has `should_continue`, `reason` (the sentence), `suggested_action` and `metadata`, and
/// beside them our own `action`, `cause` and `ending`. It reads back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The turn goes on by itself.
    pub should_continue: bool,
    /// The reason for the decision, in a sentence without a full stop.
    #[serde(rename = "reason")]
    pub sentence: String,
    /// The action in the words that users know; none where tools are to be run.
    #[serde(rename = "suggested_action")]
    pub suggested: Option<Suggested>,
    /// Numbers and details.
    #[serde(default)]
    pub metadata: Metadata,
    /// The action.
    pub action: Action,
    /// The cause that the ending comes down to.
    #[serde(default)]
    pub cause: Cause,
    /// The reason that the response ended for; none in a decision that is about no response.
    #[serde(default)]
    pub ending: Option<Reason>,
}

/// Numbers and details of a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The limit that forbids what would have been done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The action that was preferred, where something forbids it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Action>,
    /// The output cap of the next request; none leaves it as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cap: Option<u64>,
    /// The wait before the next request, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// The means by which the answer goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_by: Option<ResumeBy>,
    /// The text of this response is to be thrown away, since the next one begins anew.
    pub discard: bool,
    /// Less reasoning helps, a higher cap does not.
    pub lower_effort: bool,
    /// Messages in the conversation; none where nobody counted.
    pub conversation_messages: Option<u32>,
    /// Tokens in the conversation, this answer included; null where they are not known.
    pub conversation_tokens: Option<u64>,
    /// The rest of the budgets, before the action.
    pub left: Left,
}

impl Decision {
    /// Makes a decision for this action, for strategies of one's own.
    pub fn new(action: Action, sentence: impl Into<String>) -> Self {
        Self {
            should_continue: action.goes_on(),
            sentence: sentence.into(),
            suggested: action.suggested(),
            metadata: Metadata::default(),
            action,
            cause: Cause::Unknown,
            ending: None,
        }
    }
}

/// The facts besides the ending that a decision rests on.
///
/// Its default is a first response of which nothing more is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecisionContext {
    /// Messages in the conversation; none where nobody counted.
    pub conversation_messages: Option<u32>,
    /// Tokens in the conversation, this answer included, as far as they are known.
    pub conversation_tokens: Option<u64>,
    /// The caps, the model and its price.
    pub budget: Budget,
    /// The cap that this response was asked with, where it is not the turn's first.
    pub cap: Option<u64>,
    /// The turn's spending so far, this response included.
    pub spent: Spent,
    /// Whether the tool calls of this response may run; none where nobody put them together.
    pub tools: Option<Allow>,
    /// The text of this response, in numbers; none where nobody kept it.
    pub piece: Option<Piece>,
    /// The hashes of the turn's earlier pieces.
    pub seen: Vec<u64>,
    /// The text has reached someone and cannot be taken back.
    pub delivered: bool,
    /// The wait that the provider asks for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// A number that differs from turn to turn, so that not all retry at the same moment.
    pub seed: u64,
}

/// A strategy: a policy, or anything of one's own.
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

/// Limits, rules and overrides: what [`decide`] goes by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The limits of a turn.
    pub agent: AgentLimits,
    /// Rules for reasons; those that have none follow [`Rule::NATURAL`].
    #[serde(default)]
    pub rules: BTreeMap<Reason, RuleChange>,
    /// Overrides for one provider only.
    #[serde(default)]
    pub providers: BTreeMap<String, Override>,
    /// The words of next requests.
    #[serde(default)]
    pub wording: Wording,
    /// Prices by `model` or `provider/model`, in US dollars for a million tokens.
    #[serde(default)]
    pub prices: BTreeMap<String, Price>,
}

/// A rule for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The preferred action, where the limits allow it; none takes the ending's [`remedy`].
    pub action: Option<Action>,
    /// The least confidence of the ending for it.
    pub min_confidence: Confidence,
    /// The most attempts in a turn; none leaves that to the limits.
    pub max_attempts: Option<u32>,
}

/// A change of a rule by a file or an override; the rest stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleChange {
    /// The preferred action, where the limits allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The least confidence of the ending for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<Confidence>,
    /// The most attempts in a turn; none leaves that to the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

/// Overrides for one provider only.
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
            action: self.action.or(rule.action),
            min_confidence: self.min_confidence.unwrap_or(rule.min_confidence),
            max_attempts: self.max_attempts.or(rule.max_attempts),
        }
    }
}

impl Rule {
    /// The rule for a reason that has none of its own: the ending's [`remedy`].
    pub const NATURAL: Self =
        Self { action: None, min_confidence: Confidence::Low, max_attempts: None };

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
            wording: Wording::default(),
            prices: BTreeMap::new(),
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

    /// Recovers once from each kind of ending; continues and repairs only with medium confidence or more.
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
            ..Self::default()
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
            ..Self::default()
        }
    }

    /// Returns the terms for an ending of this reason at this provider.
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

/// The terms for one ending: the limits and the rule, overrides applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The limits.
    pub limits: AgentLimits,
    /// The rule.
    pub rule: Rule,
}

impl DecisionContext {
    /// The cap that this response was asked with.
    pub(crate) fn cap_asked(&self) -> Option<u64> {
        self.cap.or(self.budget.cap)
    }
}
