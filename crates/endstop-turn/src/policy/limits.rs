//! Limits: the budgets of one turn, its spending, and the checks between them.
//!
//! Limits apply per turn and are never reset within a turn. No further request is sent once the
//! spending equals a limit.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Action, DecisionContext};
use endstop::{Ending, Reason};

/// The smallest output limit that is worth sending. Some wires reject smaller ones.
pub const MIN_CAP: u64 = 16;

/// The largest output limit that is sent because of the limits of a turn. Hardly a model writes more in one
/// response, and providers reject limits above the model's maximum.
pub const MAX_CAP: u64 = 131_072;

/// Declares the limits once, for [`AgentLimits`] and for [`AgentChange`].
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $(#[serde(alias = $alias:literal)])? $name:ident: $type:ty = $value:expr,)+) => {
        /// The limits of one turn, from the `agent` table of a policy file.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct AgentLimits {
            $($(#[doc = $doc])+ $(#[serde(alias = $alias)])? pub $name: $type,)+
        }

        impl AgentLimits {
            /// The limits of the preset `default`.
            pub const DEFAULT: Self = Self { $($name: $value,)+ };
        }

        /// Changes to the limits from a file or a provider's override. Fields that are `None` stay
        /// unchanged.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct AgentChange {
            $(
                $(#[doc = $doc])+
                $(#[serde(alias = $alias)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )+
        }

        impl AgentChange {
            /// Returns the limits with this change applied.
            #[must_use]
            pub fn apply(&self, limits: AgentLimits) -> AgentLimits {
                AgentLimits { $($name: self.$name.unwrap_or(limits.$name),)+ }
            }
        }
    };
}

limits! {
    /// Maximum number of continuations and of retries with a higher output limit in one turn.
    continuation_max_attempts: u32 = 3,
    /// Maximum output tokens of responses that needed recovery and of the requests that recovered
    /// them, such as `16384`. The default is [`AgentLimits::continuation_total_tokens_factor`] times
    /// the first output limit.
    continuation_max_total_completion_tokens: Option<u64> = None,
    /// Factor on the first output limit that bounds the output tokens if no number is set.
    continuation_total_tokens_factor: u64 = 4,
    /// Maximum characters of responses that needed recovery and of the responses that recovered
    /// them.
    continuation_max_output_chars: u64 = 120_000,
    /// Maximum number of times that one turn asks for a tool call again.
    continuation_tool_repair_attempts: u32 = 1,
    /// Maximum number of retries with a higher output limit in one turn. Each also counts as a
    /// continuation.
    continuation_max_raises: u32 = 1,
    /// Minimum number of new characters that a continuation must add to be continued again.
    continuation_min_progress_chars: u64 = 8,
    /// Minimum number of free tokens in the context window to continue.
    continuation_min_room_tokens: u64 = 512,
    /// Maximum number of retries after failures and timeouts in one turn.
    retry_max_attempts: u32 = 2,
    /// Maximum number of retries and continuations after cut streams in one turn.
    cut_max_attempts: u32 = 2,
    /// Maximum number of times that one turn sends back a paused answer.
    resume_max_attempts: u32 = 10,
    /// Maximum number of polls for an unfinished answer in one turn.
    poll_max_attempts: u32 = 1_000,
    /// Wait before the first retry, in milliseconds. It doubles with each retry.
    retry_backoff_ms: u64 = 500,
    /// Maximum wait before a retry, in milliseconds.
    retry_backoff_max_ms: u64 = 30_000,
    /// Maximum wait that a provider may ask for, in milliseconds. A longer one ends the turn.
    retry_after_max_ms: u64 = 60_000,
    /// Whether to retry when an answer ended normally but is empty.
    retry_empty: bool = true,
    /// Maximum number of requests in one turn, including those with tool results.
    turn_max_iterations: u32 = 200,
    /// Maximum input and output tokens of one turn, including tool iterations.
    turn_max_total_tokens: u64 = 20_000_000,
    /// Maximum output tokens of one turn, continued or not, including tool iterations, such as
    /// `50000`. Unlimited by default.
    turn_max_completion_tokens: Option<u64> = None,
    /// Maximum characters of all answers of one turn, continued or not, such as `400000`. Unlimited
    /// by default.
    turn_max_output_chars: Option<u64> = None,
    /// Maximum duration of one turn: `"30m"`, or a number of milliseconds.
    #[serde(alias = "turn_max_wall_time_ms")]
    turn_max_time: Millis = Millis(1_800_000),
    /// Maximum cost of one turn, in US dollars, such as `0.50`. The client does not ask a model whose
    /// price is not known if this is set; `decide` says so and ignores the limit.
    turn_max_cost: Option<Money> = None,
    /// Number of messages from which a conversation is not lengthened, such as `200`. Unlimited by
    /// default.
    conversation_max_messages: Option<u32> = None,
    /// Number of tokens from which a conversation is not lengthened, such as `150000`. Unlimited by
    /// default.
    conversation_max_tokens: Option<u64> = None,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A duration in milliseconds. A file may write it as `"30m"`, `"90s"` or `"1h 30m"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Millis(pub u64);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl serde::de::Visitor<'_> for Visit {
            type Value = Millis;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a duration such as \"30m\", or a number of milliseconds, 0 or more")
            }

            fn visit_u64<E>(self, ms: u64) -> Result<Millis, E> {
                Ok(Millis(ms))
            }

            fn visit_i64<E: serde::de::Error>(self, ms: i64) -> Result<Millis, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Signed(ms), &self);
                u64::try_from(ms).map(Millis).map_err(|_| wrong())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Millis, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                let duration: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
                u64::try_from(duration.as_millis()).map(Millis).map_err(|_| wrong())
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// An amount of money in millionths of a US dollar. It is serialized as a number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u64);

impl Money {
    /// The largest amount. Larger ones would lose precision when serialized as a number.
    pub const MAX: Self = Self(1 << 53);

    /// Creates an amount from millionths of a dollar.
    #[must_use]
    pub fn from_micros(micros: u64) -> Self {
        Self(micros.min(Self::MAX.0))
    }

    /// Returns the amount in millionths of a dollar.
    #[must_use]
    pub fn micros(self) -> u64 {
        self.0
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::from_micros(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or zero if the other amount is larger.
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

/// Prices per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Price of a million input tokens, such as `2.00`.
    pub input: Money,
    /// Price of a million output tokens, such as `8.00`.
    pub output: Money,
}

impl Price {
    /// Returns the cost of these numbers of tokens, rounded up.
    #[must_use]
    pub fn of(self, input: u64, output: u64) -> Money {
        let part = |tokens: u64, price: Money| {
            (u128::from(tokens) * u128::from(price.0)).div_ceil(1_000_000)
        };
        let micros = part(input, self.input) + part(output, self.output);
        Money::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// The output limits, the context window and the price, as far as known. They do not change within
/// a turn, except for the price if another model is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The output token limit of the turn's first request.
    pub cap: Option<u64>,
    /// Whether the user chose that limit. It is not raised then.
    pub cap_is_users: bool,
    /// The model's maximum output tokens, if known.
    pub model_max: Option<u64>,
    /// The model's context window in tokens, if known.
    pub window: Option<u64>,
    /// The price of tokens, if known.
    pub price: Option<Price>,
}

/// The spending of a turn so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Requests sent.
    pub iterations: u32,
    /// Continuations, including requests repeated with a higher output limit.
    pub continuations: u32,
    /// Requests repeated with a higher output limit.
    pub raises: u32,
    /// Retries after failures and timeouts.
    pub retries: u32,
    /// Retries and continuations after cut streams.
    pub cuts: u32,
    /// Requests for only a tool call.
    pub repairs: u32,
    /// Paused answers sent back.
    pub resumes: u32,
    /// Polls for an unfinished answer.
    pub polls: u32,
    /// Output tokens of responses that needed recovery and of those that recovered them.
    pub completion_tokens: u64,
    /// Characters of the same responses.
    pub output_chars: u64,
    /// All input tokens.
    pub input_tokens: u64,
    /// All output tokens.
    pub output_tokens: u64,
    /// Characters of all responses.
    #[serde(default)]
    pub all_chars: u64,
    /// Cost.
    pub cost: Money,
    /// Milliseconds since the turn started.
    pub elapsed_ms: u64,
}

/// The counter that an action increments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counter {
    /// Continuations.
    Continuations,
    /// Higher output limits, which also count as continuations.
    Raises,
    /// Retries after failures and timeouts.
    Retries,
    /// Requests after cut streams.
    Cuts,
    /// Requests for only a tool call.
    Repairs,
    /// Paused answers sent back.
    Resumes,
    /// Polls.
    Polls,
}

impl Counter {
    /// Returns the counter that an action after this ending increments, or `None` if the action
    /// recovers nothing.
    #[must_use]
    pub fn of(action: Action, ending: &Ending) -> Option<Self> {
        match action {
            Action::Continue => Some(Self::Continuations),
            Action::RaiseBudget => Some(Self::Raises),
            Action::RepairToolCall => Some(Self::Repairs),
            Action::Resume if !ending.over => Some(Self::Polls),
            Action::Resume if ending.reason == Reason::Paused => Some(Self::Resumes),
            Action::Resume | Action::Retry if ending.reason == Reason::Cut => Some(Self::Cuts),
            Action::Resume | Action::Retry | Action::OtherModel => Some(Self::Retries),
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

    /// Increments a counter.
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

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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
    /// `turn_max_completion_tokens`.
    TurnCompletionTokens,
    /// `turn_max_output_chars`.
    TurnOutputChars,
    /// `turn_max_time`.
    WallTime,
    /// `turn_max_cost`.
    Cost,
    /// `continuation_min_progress_chars`, or empty output.
    NoProgress,
    /// The output repeats itself or an earlier piece.
    Repetition,
    /// `conversation_max_messages`.
    ConversationMessages,
    /// `conversation_max_tokens`.
    ConversationTokens,
}

impl Limit {
    /// Returns the limit in words for people, as a clause that follows "because".
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Attempts => "no attempt to continue is left (continuation_max_attempts)",
            Self::Raises => {
                "the output limit cannot be raised again in this turn (continuation_max_raises)"
            }
            Self::CompletionTokens => {
                "too few output tokens are left in this turn (continuation_max_total_completion_tokens)"
            }
            Self::OutputChars => {
                "the turn has reached its character limit (continuation_max_output_chars)"
            }
            Self::Repairs => {
                "no attempt to repair a tool call is left (continuation_tool_repair_attempts)"
            }
            Self::Retries => "no retry is left (retry_max_attempts)",
            Self::Cuts => "no retry after a truncated stream is left (cut_max_attempts)",
            Self::Resumes => "the turn was paused too often (resume_max_attempts)",
            Self::Polls => "the response was polled too often (poll_max_attempts)",
            Self::RetryAfter => {
                "the provider asks for a longer wait than allowed (retry_after_max_ms)"
            }
            Self::Iterations => "the turn has reached its request limit (turn_max_iterations)",
            Self::TotalTokens => "the turn has reached its token limit (turn_max_total_tokens)",
            Self::TurnCompletionTokens => {
                "the turn has reached its output token limit (turn_max_completion_tokens)"
            }
            Self::TurnOutputChars => {
                "the turn has reached its character limit (turn_max_output_chars)"
            }
            Self::WallTime => "the turn has reached its time limit (turn_max_time)",
            Self::Cost => "the turn has reached its cost limit (turn_max_cost)",
            Self::NoProgress => "it added too little new text (continuation_min_progress_chars)",
            Self::Repetition => "the output repeats itself",
            Self::ConversationMessages => {
                "the conversation has too many messages (conversation_max_messages)"
            }
            Self::ConversationTokens => {
                "the conversation has too many tokens (conversation_max_tokens)"
            }
        }
    }

    /// Returns the action to take when this limit is reached.
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
            | Self::TurnCompletionTokens
            | Self::TurnOutputChars
            | Self::WallTime
            | Self::Cost
            | Self::NoProgress
            | Self::Repetition => Action::Stop,
        }
    }
}

/// The remaining budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Left {
    /// Continuations.
    pub attempts: u32,
    /// Repairs of a tool call.
    pub repairs: u32,
    /// Output tokens, or `None` if no limit is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Characters.
    pub chars: u64,
    /// Milliseconds.
    pub ms: u64,
    /// Cost, or `None` if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl AgentLimits {
    /// Returns the maximum output tokens of recovery in a turn, or `None` if no limit is known.
    #[must_use]
    pub fn completion_tokens(&self, budget: &Budget) -> Option<u64> {
        let first = budget.cap.or(budget.model_max);
        let times = |cap: u64| cap.saturating_mul(self.continuation_total_tokens_factor);
        self.continuation_max_total_completion_tokens.or_else(|| first.map(times))
    }

    /// Returns the remaining budgets.
    #[must_use]
    pub fn left(&self, budget: &Budget, spent: &Spent) -> Left {
        let tokens = self.completion_tokens(budget);
        Left {
            attempts: self.continuation_max_attempts.saturating_sub(spent.continuations),
            repairs: self.continuation_tool_repair_attempts.saturating_sub(spent.repairs),
            tokens: tokens.map(|most| most.saturating_sub(spent.completion_tokens)),
            chars: self.continuation_max_output_chars.saturating_sub(spent.output_chars),
            ms: self.turn_max_time.0.saturating_sub(spent.elapsed_ms),
            cost: self.turn_max_cost.map(|most| most.less(spent.cost)),
        }
    }

    /// Returns the maximum of this counter in a turn, and the limit that sets it.
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

    /// Returns the limit that forbids one more request in this turn, if any. `counter` is the
    /// counter that the request increments, or `None` if it recovers nothing. `wait_ms` is the wait
    /// before the request.
    #[must_use]
    pub fn reached(
        &self,
        counter: Option<Counter>,
        context: &DecisionContext,
        wait_ms: u64,
    ) -> Option<Limit> {
        let DecisionContext { budget, spent, .. } = context;
        let elapsed = spent.elapsed_ms.saturating_add(wait_ms);
        let left = self.left(budget, spent);
        let broke = self.turn_max_cost.is_some_and(|most| spent.cost >= most);
        let unaffordable = self.affordable(context).is_some_and(|cap| cap < MIN_CAP);
        let of_the_turn = [
            (spent.iterations >= self.turn_max_iterations, Limit::Iterations),
            (self.total_left(context) < MIN_CAP, Limit::TotalTokens),
            (
                self.output_left(spent).is_some_and(|left| left < MIN_CAP),
                Limit::TurnCompletionTokens,
            ),
            (
                self.turn_max_output_chars.is_some_and(|most| spent.all_chars >= most),
                Limit::TurnOutputChars,
            ),
            (elapsed >= self.turn_max_time.0, Limit::WallTime),
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

    /// Returns the output tokens that are left in the turn, or `None` if they are not limited.
    fn output_left(&self, spent: &Spent) -> Option<u64> {
        self.turn_max_completion_tokens.map(|most| most.saturating_sub(spent.output_tokens))
    }

    /// Returns the output tokens that the limit on all tokens leaves, after the input of the next request as
    /// far as it is known.
    fn total_left(&self, context: &DecisionContext) -> u64 {
        let DecisionContext { spent, conversation_tokens, .. } = context;
        let spent = spent.input_tokens.saturating_add(spent.output_tokens);
        let next = spent.saturating_add(conversation_tokens.unwrap_or(0));
        self.turn_max_total_tokens.saturating_sub(next)
    }

    /// Returns the limit on the conversation's length that was reached, if any.
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

    /// Returns the number of output tokens that the remaining money pays for, after the input cost
    /// of the conversation. Returns `None` without a cost limit or a price.
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

    /// Returns the output limit for the next request: `wanted`, reduced to the remaining tokens and
    /// money. Returns `None` if none of these is known, or if the turn leaves more than [`MAX_CAP`].
    #[must_use]
    pub fn next_cap(
        &self,
        wanted: Option<u64>,
        recovers: Option<Counter>,
        context: &DecisionContext,
    ) -> Option<u64> {
        let left = recovers.and_then(|_| self.left(&context.budget, &context.spent).tokens);
        let of_turn = [
            self.output_left(&context.spent),
            self.affordable(context),
            Some(self.total_left(context)),
        ];
        let of_turn = of_turn.into_iter().flatten().min().filter(|cap| *cap <= MAX_CAP);
        let cap = [wanted, left, of_turn].into_iter().flatten().min()?;
        Some(cap.min(context.budget.model_max.unwrap_or(u64::MAX)))
    }
}
