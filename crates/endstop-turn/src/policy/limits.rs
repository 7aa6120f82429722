//! Limits: what one turn may spend on recovering, what it has spent, and whether there is room.
//!
//! Limits are per turn and are never reset inside one. A limit is reached, not passed: nothing more
//! is sent once what was spent is equal to it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Action, DecisionContext};
use endstop::ending::{Ending, Reason};

/// The least cap that is worth asking with; some wires refuse a smaller one.
pub const MIN_CAP: u64 = 16;

/// Declares the limits once: as they hold, and as a file or a provider's override changes them.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr,)+) => {
        /// The limits of one turn, written under `agent` in a policy's file.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct AgentLimits {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl AgentLimits {
            /// The limits of the preset `default`.
            pub const DEFAULT: Self = Self { $($name: $value,)+ };
        }

        /// A change of the limits by a file or a provider's override; the rest stays as it is.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct AgentChange {
            $(
                $(#[doc = $doc])+
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )+
        }

        impl AgentChange {
            /// The limits with this change.
            #[must_use]
            pub fn apply(&self, limits: AgentLimits) -> AgentLimits {
                AgentLimits { $($name: self.$name.unwrap_or(limits.$name),)+ }
            }
        }
    };
}

limits! {
    /// The most times that one turn continues an answer or asks again with a higher cap.
    continuation_max_attempts: u32 = 3,
    /// The most output tokens of answers that needed recovering and of what recovered them; where it
    /// is not given, [`AgentLimits::continuation_total_tokens_factor`] times the first cap.
    continuation_max_total_completion_tokens: Option<u64> = None,
    /// The factor on the first cap that limits the output tokens, where no number is given.
    continuation_total_tokens_factor: u64 = 4,
    /// The most characters of answers that needed recovering and of what recovered them.
    continuation_max_output_chars: u64 = 120_000,
    /// The most times that one turn asks for a tool call again, complete and alone.
    continuation_tool_repair_attempts: u32 = 1,
    /// The most times that one turn asks again with a higher cap; each is an attempt to continue,
    /// too.
    continuation_max_raises: u32 = 1,
    /// The fewest new characters that a continuation must bring to be continued itself.
    continuation_min_progress_chars: u64 = 8,
    /// The fewest tokens that must be left of the context window to continue in it.
    continuation_min_room_tokens: u64 = 512,
    /// The most times that one turn tries again after a failure or a time limit.
    retry_max_attempts: u32 = 2,
    /// The most times that one turn tries again or goes on after a cut stream.
    cut_max_attempts: u32 = 2,
    /// The most times that one turn sends a paused answer back.
    resume_max_attempts: u32 = 10,
    /// The most times that one turn polls an answer that is not over.
    poll_max_attempts: u32 = 1_000,
    /// The wait before the first retry, in milliseconds; it doubles with each.
    retry_backoff_ms: u64 = 500,
    /// The longest wait before a retry, in milliseconds.
    retry_backoff_max_ms: u64 = 30_000,
    /// The longest wait that a provider may ask for, in milliseconds; a longer one ends the turn.
    retry_after_max_ms: u64 = 60_000,
    /// Whether an answer that ended well and holds nothing is asked for again.
    retry_empty: bool = true,
    /// The most requests of one turn, those after tools included.
    turn_max_iterations: u32 = 200,
    /// The most tokens of one turn, in and out, those of tool iterations included.
    turn_max_total_tokens: u64 = 20_000_000,
    /// The longest that one turn may take, in milliseconds.
    turn_max_wall_time_ms: u64 = 1_800_000,
    /// The most that one turn may cost, in US dollars, where prices are known.
    turn_max_cost: Option<Money> = None,
    /// The most messages of a conversation that is made longer; off where it is not given.
    conversation_max_messages: Option<u32> = None,
    /// The most tokens of a conversation that is made longer; off where it is not given.
    conversation_max_tokens: Option<u64> = None,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An amount of money, in millionths of a US dollar; written as a number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u64);

impl Money {
    /// The largest amount: larger ones do not survive being written as a number.
    pub const MAX: Self = Self(1 << 53);

    /// This many millionths.
    #[must_use]
    pub fn from_micros(micros: u64) -> Self {
        Self(micros.min(Self::MAX.0))
    }

    /// The amount in millionths.
    #[must_use]
    pub fn micros(self) -> u64 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::from_micros(self.0.saturating_add(other.0))
    }

    /// Returns the difference; zero where the other is more.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e6)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let units = f64::deserialize(deserializer)?;
        if !units.is_finite() || units < 0.0 {
            return Err(serde::de::Error::custom("expected an amount of money, 0 or more"));
        }
        // `as` saturates.
        Ok(Self::from_micros((units * 1e6).round() as u64))
    }
}

/// The price of a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// A million input tokens.
    pub input: Money,
    /// A million output tokens.
    pub output: Money,
}

impl Price {
    /// Returns the cost of so many tokens, rounded up.
    #[must_use]
    pub fn of(self, input: u64, output: u64) -> Money {
        let part = |tokens: u64, price: Money| {
            (u128::from(tokens) * u128::from(price.0)).div_ceil(1_000_000)
        };
        let micros = part(input, self.input) + part(output, self.output);
        Money::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// The caps, the model and its price, as far as they are known; they do not change in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The cap on output tokens that the turn's first request carries.
    pub cap: Option<u64>,
    /// The user chose that cap, so that it is not to be raised.
    pub cap_is_users: bool,
    /// The most output tokens that the model gives, where it is known.
    pub model_max: Option<u64>,
    /// The model's context window in tokens, where it is known.
    pub window: Option<u64>,
    /// The price of tokens, where it is known.
    pub price: Option<Price>,
}

/// The spending of a turn so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Requests.
    pub iterations: u32,
    /// Continuations, and requests repeated with a higher cap.
    pub continuations: u32,
    /// Of those, requests repeated with a higher cap.
    pub raises: u32,
    /// Retries after failures and time limits.
    pub retries: u32,
    /// Retries after cut streams, and answers that went on after one.
    pub cuts: u32,
    /// Requests for a tool call alone.
    pub repairs: u32,
    /// Paused answers that were sent back.
    pub resumes: u32,
    /// Polls of an answer that was not over.
    pub polls: u32,
    /// Output tokens of answers that needed recovering and of what recovered them.
    pub completion_tokens: u64,
    /// Characters of the same.
    pub output_chars: u64,
    /// All input tokens.
    pub input_tokens: u64,
    /// All output tokens.
    pub output_tokens: u64,
    /// Money.
    pub cost: Money,
    /// Milliseconds since the turn began.
    pub elapsed_ms: u64,
}

/// A counter that an action counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Continuations.
    Continuations,
    /// Higher caps, and continuations.
    Raises,
    /// Retries after failures and time limits.
    Retries,
    /// Requests that follow cut streams.
    Cuts,
    /// Requests for a tool call alone.
    Repairs,
    /// Paused answers that are sent back.
    Resumes,
    /// Polls.
    Polls,
}

impl Counter {
    /// The counter that an action after this ending counts against; none for those that recover
    /// nothing.
    #[must_use]
    pub fn of(action: Action, ending: &Ending) -> Option<Self> {
        match action {
            Action::Continue => Some(Self::Continuations),
            Action::RaiseBudget => Some(Self::Raises),
            Action::RepairToolCall => Some(Self::Repairs),
            Action::Resume if !ending.over => Some(Self::Polls),
            Action::Resume if ending.reason == Reason::Paused => Some(Self::Resumes),
            Action::Resume | Action::Retry if ending.reason == Reason::Cut => Some(Self::Cuts),
            Action::Resume | Action::Retry => Some(Self::Retries),
            Action::Stop | Action::RunTools | Action::Compact | Action::ChangePrompt => None,
        }
    }
}

impl Spent {
    /// Returns the count of this counter.
    #[must_use]
    pub fn count(&self, counter: Counter) -> u32 {
        match counter {
            Counter::Continuations => self.continuations,
            Counter::Raises => self.raises,
            Counter::Retries => self.retries,
            Counter::Cuts => self.cuts,
            Counter::Repairs => self.repairs,
            Counter::Resumes => self.resumes,
            Counter::Polls => self.polls,
        }
    }

    /// Counts one more.
    pub(crate) fn add(&mut self, counter: Counter) {
        let count = match counter {
            Counter::Continuations => &mut self.continuations,
            Counter::Raises => {
                self.continuations = self.continuations.saturating_add(1);
                &mut self.raises
            }
            Counter::Retries => &mut self.retries,
            Counter::Cuts => &mut self.cuts,
            Counter::Repairs => &mut self.repairs,
            Counter::Resumes => &mut self.resumes,
            Counter::Polls => &mut self.polls,
        };
        *count = count.saturating_add(1);
    }
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// `continuation_max_attempts`.
    Attempts,
    /// `continuation_max_raises`.
    Raises,
    /// `continuation_max_total_completion_tokens`.
    CompletionTokens,
    /// `continuation_max_output_chars`.
    OutputChars,
    /// `continuation_tool_repair_attempts`.
    Repairs,
    /// `retry_max_attempts`.
    Retries,
    /// `cut_max_attempts`.
    Cuts,
    /// `resume_max_attempts`.
    Resumes,
    /// `poll_max_attempts`.
    Polls,
    /// `retry_after_max_ms`.
    RetryAfter,
    /// `turn_max_iterations`.
    Iterations,
    /// `turn_max_total_tokens`.
    TotalTokens,
    /// `turn_max_wall_time_ms`.
    WallTime,
    /// `turn_max_cost`.
    Cost,
    /// `continuation_min_progress_chars`, and output that is empty.
    NoProgress,
    /// The output repeats itself or an earlier piece.
    Repetition,
    /// `conversation_max_messages`.
    ConversationMessages,
    /// `conversation_max_tokens`.
    ConversationTokens,
}

impl Limit {
    /// The limit in words for people: a clause that follows "because".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Attempts => "no attempt to continue is left (continuation_max_attempts)",
            Self::Raises => "it may not be raised again in this turn (continuation_max_raises)",
            Self::CompletionTokens => {
                "too few of the turn's output tokens are left to go on with (continuation_max_total_completion_tokens)"
            }
            Self::OutputChars => {
                "the turn's output characters are used up (continuation_max_output_chars)"
            }
            Self::Repairs => {
                "no attempt to repair a tool call is left (continuation_tool_repair_attempts)"
            }
            Self::Retries => "no retry is left (retry_max_attempts)",
            Self::Cuts => "no retry after a truncated stream is left (cut_max_attempts)",
            Self::Resumes => "the turn was paused too often (resume_max_attempts)",
            Self::Polls => "the response was polled too often (poll_max_attempts)",
            Self::RetryAfter => "the provider asks for too long a wait (retry_after_max_ms)",
            Self::Iterations => "the turn's requests are used up (turn_max_iterations)",
            Self::TotalTokens => "the turn's tokens are used up (turn_max_total_tokens)",
            Self::WallTime => "the turn's time is used up (turn_max_wall_time_ms)",
            Self::Cost => "the turn's money is used up (turn_max_cost)",
            Self::NoProgress => {
                "it brought too little that is new (continuation_min_progress_chars)"
            }
            Self::Repetition => "the output repeats itself",
            Self::ConversationMessages => {
                "the conversation has too many messages (conversation_max_messages)"
            }
            Self::ConversationTokens => {
                "the conversation has too many tokens (conversation_max_tokens)"
            }
        }
    }

    /// Returns the action that reaching the limit calls for.
    #[must_use]
    pub fn calls_for(self) -> Action {
        match self {
            Self::ConversationMessages | Self::ConversationTokens => Action::Compact,
            Self::Attempts
            | Self::Raises
            | Self::CompletionTokens
            | Self::OutputChars
            | Self::Repairs
            | Self::Retries
            | Self::Cuts
            | Self::Resumes
            | Self::Polls
            | Self::RetryAfter
            | Self::Iterations
            | Self::TotalTokens
            | Self::WallTime
            | Self::Cost
            | Self::NoProgress
            | Self::Repetition => Action::Stop,
        }
    }
}

/// The rest of the budgets that people watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Attempts to continue.
    pub attempts: u32,
    /// Attempts to repair a tool call.
    pub repairs: u32,
    /// Output tokens; none where no limit is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Characters.
    pub chars: u64,
    /// Milliseconds.
    pub ms: u64,
    /// Money; none where there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl AgentLimits {
    /// The most output tokens that recovering may come to in a turn; none where nothing says.
    #[must_use]
    pub fn completion_tokens(&self, budget: &Budget) -> Option<u64> {
        let first = budget.cap.or(budget.model_max);
        let times = |cap: u64| cap.saturating_mul(self.continuation_total_tokens_factor);
        self.continuation_max_total_completion_tokens.or_else(|| first.map(times))
    }

    /// Returns the rest of the budgets.
    #[must_use]
    pub fn left(&self, budget: &Budget, spent: &Spent) -> Left {
        let tokens = self.completion_tokens(budget);
        Left {
            attempts: self.continuation_max_attempts.saturating_sub(spent.continuations),
            repairs: self.continuation_tool_repair_attempts.saturating_sub(spent.repairs),
            tokens: tokens.map(|most| most.saturating_sub(spent.completion_tokens)),
            chars: self.continuation_max_output_chars.saturating_sub(spent.output_chars),
            ms: self.turn_max_wall_time_ms.saturating_sub(spent.elapsed_ms),
            cost: self.turn_max_cost.map(|most| most.less(spent.cost)),
        }
    }

    /// Returns the most that this counter may reach in a turn, and the limit that says so.
    #[must_use]
    pub fn most(&self, counter: Counter) -> (u32, Limit) {
        match counter {
            Counter::Continuations => (self.continuation_max_attempts, Limit::Attempts),
            Counter::Raises => (self.continuation_max_raises, Limit::Raises),
            Counter::Retries => (self.retry_max_attempts, Limit::Retries),
            Counter::Cuts => (self.cut_max_attempts, Limit::Cuts),
            Counter::Repairs => (self.continuation_tool_repair_attempts, Limit::Repairs),
            Counter::Resumes => (self.resume_max_attempts, Limit::Resumes),
            Counter::Polls => (self.poll_max_attempts, Limit::Polls),
        }
    }

    /// The limit that forbids one more request of this turn, if one does. `counter` is what the
    /// request recovers by, none for a plain one; `wait_ms` is how long it would wait before.
    #[must_use]
    pub fn reached(
        &self,
        counter: Option<Counter>,
        context: &DecisionContext,
        wait_ms: u64,
    ) -> Option<Limit> {
        let DecisionContext { budget, spent, .. } = context;
        let tokens = spent.input_tokens.saturating_add(spent.output_tokens);
        let elapsed = spent.elapsed_ms.saturating_add(wait_ms);
        let left = self.left(budget, spent);
        let broke = self.turn_max_cost.is_some_and(|most| spent.cost >= most);
        let unaffordable = self.affordable(context).is_some_and(|cap| cap < MIN_CAP);
        let of_the_turn = [
            (spent.iterations >= self.turn_max_iterations, Limit::Iterations),
            (tokens >= self.turn_max_total_tokens, Limit::TotalTokens),
            (elapsed >= self.turn_max_wall_time_ms, Limit::WallTime),
            (broke || unaffordable, Limit::Cost),
        ];
        let mut reached = of_the_turn.into_iter();
        if let Some((_, limit)) = reached.find(|(reached, _)| *reached) {
            return Some(limit);
        }
        let counter = counter?;
        let (most, limit) = self.most(counter);
        let raised_out = counter == Counter::Raises && left.attempts == 0;
        let of_recovering = [
            (spent.count(counter) >= most, limit),
            (raised_out, Limit::Attempts),
            (left.tokens.is_some_and(|left| left < MIN_CAP), Limit::CompletionTokens),
            (left.chars == 0, Limit::OutputChars),
        ];
        of_recovering.into_iter().find_map(|(reached, limit)| reached.then_some(limit))
    }

    /// Returns the limit on the conversation's length that has been reached, if one has.
    #[must_use]
    pub fn too_long(&self, context: &DecisionContext) -> Option<Limit> {
        let messages = context.conversation_messages.unwrap_or(0);
        let tokens = context.conversation_tokens.unwrap_or(0);
        if self.conversation_max_messages.is_some_and(|most| messages >= most) {
            return Some(Limit::ConversationMessages);
        }
        let full = self.conversation_max_tokens.is_some_and(|most| tokens >= most);
        full.then_some(Limit::ConversationTokens)
    }

    /// The most output tokens that the money left pays for, after the conversation is read once
    /// more; none where there is no limit or no price.
    #[must_use]
    pub fn affordable(&self, context: &DecisionContext) -> Option<u64> {
        let price = context.budget.price?;
        let left = self.turn_max_cost?.less(context.spent.cost);
        let reading = price.of(context.conversation_tokens.unwrap_or(0), 0);
        if reading >= left {
            return Some(0);
        }
        let micros = u128::from(left.less(reading).micros()) * 1_000_000;
        let tokens = micros.checked_div(u128::from(price.output.micros()))?;
        Some(u64::try_from(tokens).unwrap_or(u64::MAX))
    }

    /// The cap for a next request that would like to have `wanted`: what is left of tokens and
    /// money. None where nothing is to be said about it.
    #[must_use]
    pub fn next_cap(
        &self,
        wanted: Option<u64>,
        recovers: Option<Counter>,
        context: &DecisionContext,
    ) -> Option<u64> {
        let left = recovers.and_then(|_| self.left(&context.budget, &context.spent).tokens);
        let bounds = [wanted, left, self.affordable(context)];
        let cap = bounds.into_iter().flatten().min()?;
        Some(cap.min(context.budget.model_max.unwrap_or(u64::MAX)))
    }
}
