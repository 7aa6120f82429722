//! The outcome of a turn, and the cause of its end.

use serde::{Deserialize, Serialize};

use super::account::TurnData;
use super::{State, StateName, Todo, Trace, TurnEvent};
use crate::policy::{Cause, Decision, Limit, Spent};
use endstop::{Confidence, Reason};

/// The outcome of a turn, kept by the closed states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The turn.
    pub turn: String,
    /// The completeness of the answer.
    pub finish: Completeness,
    /// The cause of the end.
    pub terminated: TurnEnd,
    /// The reason that the last response ended, or `None` if there was no response.
    pub reason: Option<Reason>,
    /// The confidence in the reason.
    pub confidence: Option<Confidence>,
    /// A notice for the reader, if the answer is or may be incomplete.
    pub notice: Option<String>,
    /// The last decision.
    pub decision: Option<Decision>,
    /// Responses whose text belongs to the answer.
    pub pieces: u32,
    /// The characters of the answer.
    pub kept_chars: u64,
    /// The spending of the turn.
    pub spent: Spent,
}

/// The completeness of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Completeness {
    /// The whole answer.
    Complete,
    /// A partial answer with a notice.
    Partial,
    /// No usable answer.
    Aborted,
}

/// The cause of a turn's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEnd {
    /// The answer is complete.
    Completed,
    /// The attempts are used up.
    RetryLimit,
    /// Tokens, characters, requests, time or money are used up.
    BudgetExhausted,
    /// The answer was refused, filtered or blocked.
    SafetyBlocked,
    /// The last response added nothing new or was empty.
    NoProgress,
    /// The context window is full.
    ContextLimit,
    /// The conversation reached the policy's length limit.
    ConversationLimit,
    /// Reasoning used up the output limit.
    ReasoningExhausted,
    /// A tool call stayed incomplete.
    ToolCallUnfinished,
    /// The response has tool calls that may be incomplete.
    ToolCallUncertain,
    /// The tool calls are left to the caller.
    ToolCallsLeft,
    /// It is unknown how far the tools ran.
    ToolsLost,
    /// The provider failed.
    ProviderFailed,
    /// The provider rejected the request.
    RequestRefused,
    /// A timeout expired.
    TimedOut,
    /// The stream was cut.
    CutStream,
    /// The caller or an operator cancelled the turn.
    Cancelled,
    /// It is unknown how the answer ended.
    UnknownEnding,
    /// The policy or the strategy stopped here.
    StoppedByPolicy,
    /// A request that continues the answer cannot be built.
    Unavailable,
}

impl TurnEnd {
    /// Returns the name used in events and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::RetryLimit => "retry_limit",
            Self::BudgetExhausted => "budget_exhausted",
            Self::SafetyBlocked => "safety_blocked",
            Self::NoProgress => "no_progress",
            Self::ContextLimit => "context_limit",
            Self::ConversationLimit => "conversation_limit",
            Self::ReasoningExhausted => "reasoning_exhausted",
            Self::ToolCallUnfinished => "tool_call_unfinished",
            Self::ToolCallUncertain => "tool_call_uncertain",
            Self::ToolCallsLeft => "tool_calls_left",
            Self::ToolsLost => "tools_lost",
            Self::ProviderFailed => "provider_failed",
            Self::RequestRefused => "request_refused",
            Self::TimedOut => "timed_out",
            Self::CutStream => "cut_stream",
            Self::Cancelled => "cancelled",
            Self::UnknownEnding => "unknown_ending",
            Self::StoppedByPolicy => "stopped_by_policy",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Returns the cause of the turn's end, from the decision that ended it.
pub(super) fn terminated(decision: &Decision) -> TurnEnd {
    if let Some(limit) = decision.metadata.limit {
        return terminated_by(limit);
    }
    match decision.cause {
        Cause::Completed => TurnEnd::Completed,
        Cause::NothingCame => TurnEnd::NoProgress,
        Cause::ToolCalls => TurnEnd::ToolCallsLeft,
        Cause::UncertainToolCalls => TurnEnd::ToolCallUncertain,
        Cause::BrokenToolCall => TurnEnd::ToolCallUnfinished,
        Cause::Paused | Cause::Pending | Cause::OutputLimit => TurnEnd::StoppedByPolicy,
        Cause::ContextFull => TurnEnd::ContextLimit,
        Cause::ReasoningExhausted => TurnEnd::ReasoningExhausted,
        Cause::Blocked => TurnEnd::SafetyBlocked,
        Cause::ProviderFailed => TurnEnd::ProviderFailed,
        Cause::RequestRefused => TurnEnd::RequestRefused,
        Cause::TimedOut => TurnEnd::TimedOut,
        Cause::CutStream => TurnEnd::CutStream,
        Cause::Cancelled => TurnEnd::Cancelled,
        Cause::Unknown => TurnEnd::UnknownEnding,
    }
}

pub(super) fn terminated_by(limit: Limit) -> TurnEnd {
    match limit {
        Limit::NoProgress | Limit::Repetition => TurnEnd::NoProgress,
        Limit::Repairs => TurnEnd::ToolCallUnfinished,
        Limit::ConversationMessages | Limit::ConversationTokens => TurnEnd::ConversationLimit,
        Limit::Attempts
        | Limit::Raises
        | Limit::Retries
        | Limit::Cuts
        | Limit::Resumes
        | Limit::Polls => TurnEnd::RetryLimit,
        Limit::CompletionTokens
        | Limit::OutputChars
        | Limit::RetryAfter
        | Limit::Iterations
        | Limit::TotalTokens
        | Limit::TurnCompletionTokens
        | Limit::TurnOutputChars
        | Limit::WallTime
        | Limit::Cost => TurnEnd::BudgetExhausted,
    }
}

impl TurnData {
    /// Ends the turn because of a limit, without a decision about a response.
    pub(super) fn out_of(&mut self, limit: Limit, trace: &mut Trace) -> (State, Todo) {
        let finish = self.partial_if_kept();
        let mut decision = Decision::new(limit.calls_for(), limit.description());
        decision.ending = self.reason;
        decision.metadata.conversation_messages = self.messages();
        decision.metadata.conversation_tokens = self.conversation_tokens;
        decision.metadata.limit = Some(limit);
        decision.metadata.left = self.limits().left(&self.begin.budget, &self.spent);
        self.close(terminated_by(limit), finish, limit.description(), Some(decision), trace)
    }

    /// Ends the turn.
    pub(super) fn close(
        &mut self,
        terminated: TurnEnd,
        finish: Completeness,
        sentence: &str,
        decision: Option<Decision>,
        trace: &mut Trace,
    ) -> (State, Todo) {
        let unsure = self.confidence == Some(Confidence::Low);
        let notice = match finish {
            Completeness::Complete if terminated == TurnEnd::UnknownEnding || unsure => {
                Some(format!("The answer may be incomplete: {sentence}."))
            }
            Completeness::Complete => None,
            Completeness::Partial => Some(format!("The answer is incomplete: {sentence}.")),
            Completeness::Aborted => Some(format!("The turn ended without an answer: {sentence}.")),
        };
        let limit = decision.as_ref().and_then(|decision| decision.metadata.limit);
        let (turn, reason) = (&self.begin.turn, self.reason);
        let iterations = self.spent.iterations;
        if self.continued {
            trace.events.push(TurnEvent::ContinuationTerminated {
                turn: turn.clone(),
                terminated,
                finish,
                reason,
                limit,
                iterations,
                pieces: self.pieces,
                cumulative_tokens: self.spent.output_tokens,
                cumulative_chars: self.kept_chars,
                elapsed_ms: self.spent.elapsed_ms,
            });
        }
        trace.events.push(TurnEvent::TurnEnded {
            turn: turn.clone(),
            terminated,
            finish,
            reason,
            limit,
            continued: self.continued,
            iterations,
        });
        let outcome = Box::new(Outcome {
            turn: self.begin.turn.clone(),
            finish,
            terminated,
            reason: self.reason,
            confidence: self.confidence,
            notice,
            decision,
            pieces: self.pieces,
            kept_chars: self.kept_chars,
            spent: self.spent,
        });
        let todo = Todo::Finish(outcome.clone());
        match finish {
            Completeness::Complete => (State::Complete(outcome), todo),
            Completeness::Partial => {
                trace.passed.push(StateName::AbortPartial);
                (State::Complete(outcome), todo)
            }
            Completeness::Aborted => (State::Abort(outcome), todo),
        }
    }
}
