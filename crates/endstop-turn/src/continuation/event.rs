//! The events of a turn, as data for callers to emit.

use serde::{Deserialize, Serialize};

use super::account::TurnData;
use super::{Completeness, EndedResponse, PlannedRequest, RequestKind, StateName, TurnEnd};
use crate::policy::{Counter, Left, Limit};
use endstop::tool_call::{Allow, CallState, Refusal, allow_by_ending};
use endstop::{Confidence, Ending, Reason, Shown};

/// An event of a turn, as data for callers to emit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEvent {
    /// A response is over.
    StopReasonObserved {
        /// The turn.
        turn: String,
        /// The number of the request, starting at one.
        iteration: u32,
        /// The provider.
        provider: String,
        /// The model.
        model: Option<String>,
        /// The reason that it ended.
        reason: Reason,
        /// The confidence in the reason.
        confidence: Confidence,
        /// The provider's finish reason, verbatim.
        raw: Option<String>,
    },
    /// An answer is continued, requested again with a higher output limit, or continued after a
    /// cut.
    ContinuationAttempt {
        /// The turn.
        turn: String,
        /// The number of the request, starting at one.
        iteration: u32,
        /// The number of the attempt, starting at one.
        index: u32,
        /// The counter that the attempt increments.
        counter: Counter,
        /// Output tokens so far.
        cumulative_tokens: u64,
        /// Characters so far.
        cumulative_chars: u64,
        /// The remaining budgets after this attempt.
        budget_left: Left,
    },
    /// The same request is sent again after a wait.
    RetryAttempt {
        /// The turn.
        turn: String,
        /// The number of the request, starting at one.
        iteration: u32,
        /// The number of the attempt, starting at one.
        index: u32,
        /// The counter that the attempt increments.
        counter: Counter,
        /// The remaining budgets after this attempt.
        budget_left: Left,
    },
    /// A paused answer is sent back, or an unfinished one is polled.
    ResumeAttempt {
        /// The turn.
        turn: String,
        /// The number of the request, starting at one.
        iteration: u32,
        /// The number of the attempt, starting at one.
        index: u32,
        /// The counter that the attempt increments.
        counter: Counter,
    },
    /// The provider closed a kept connection and sent nothing. The request is sent once more, on another
    /// connection.
    RequestResent {
        /// The turn.
        turn: String,
        /// The number of the request, starting at one.
        iteration: u32,
        /// The number of such requests in the turn, starting at one.
        index: u32,
    },
    /// A tool call is cut off or malformed.
    ToolPayloadRepair {
        /// The turn.
        turn: String,
        /// The number of the request, starting at one.
        iteration: u32,
        /// The kind of problem.
        issue: Issue,
        /// The problem in a sentence.
        detail: String,
        /// Whether the call is or was requested again.
        attempted: bool,
        /// Whether the repair returned a call that may run, or `None` if not known yet.
        succeeded: Option<bool>,
    },
    /// A turn that was continued is over. [`TurnEvent::TurnEnded`] follows.
    ContinuationTerminated {
        /// The turn.
        turn: String,
        /// The cause of the end.
        terminated: TurnEnd,
        /// The completeness of the answer.
        finish: Completeness,
        /// The reason that the last response ended.
        reason: Option<Reason>,
        /// The limit that was reached.
        limit: Option<Limit>,
        /// Requests sent.
        iterations: u32,
        /// Responses whose text belongs to the answer.
        pieces: u32,
        /// All output tokens.
        cumulative_tokens: u64,
        /// Characters of the answer.
        cumulative_chars: u64,
        /// Time since the turn began, in milliseconds.
        #[serde(default)]
        elapsed_ms: u64,
    },
    /// The turn is over. This is the last event and occurs once in every turn.
    TurnEnded {
        /// The turn.
        turn: String,
        /// The cause of the end.
        terminated: TurnEnd,
        /// The completeness of the answer.
        finish: Completeness,
        /// The reason that the last response ended.
        reason: Option<Reason>,
        /// The limit that was reached.
        limit: Option<Limit>,
        /// Whether the answer was continued or requested again with a higher output limit.
        continued: bool,
        /// Requests sent.
        iterations: u32,
    },
    /// An input does not apply to the state.
    InputIgnored {
        /// The turn.
        turn: String,
        /// The state.
        state: StateName,
        /// The input.
        input: String,
    },
}

impl TurnEvent {
    /// Returns the name used in JSON and in logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::StopReasonObserved { .. } => "stop_reason_observed",
            Self::ContinuationAttempt { .. } => "continuation_attempt",
            Self::RetryAttempt { .. } => "retry_attempt",
            Self::ResumeAttempt { .. } => "resume_attempt",
            Self::RequestResent { .. } => "request_resent",
            Self::ToolPayloadRepair { .. } => "tool_payload_repair",
            Self::ContinuationTerminated { .. } => "continuation_terminated",
            Self::TurnEnded { .. } => "turn_ended",
            Self::InputIgnored { .. } => "input_ignored",
        }
    }

    /// Returns the name of its turn.
    #[must_use]
    pub fn turn(&self) -> &str {
        match self {
            Self::StopReasonObserved { turn, .. }
            | Self::ContinuationAttempt { turn, .. }
            | Self::RetryAttempt { turn, .. }
            | Self::ResumeAttempt { turn, .. }
            | Self::RequestResent { turn, .. }
            | Self::ToolPayloadRepair { turn, .. }
            | Self::ContinuationTerminated { turn, .. }
            | Self::TurnEnded { turn, .. }
            | Self::InputIgnored { turn, .. } => turn,
        }
    }
}

/// A problem in a tool call that prevents running it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Issue {
    /// The call or its arguments are incomplete.
    Unfinished,
    /// The arguments are not JSON, or the provider says that the call is malformed.
    Malformed,
    /// The call has no name or no start.
    NoName,
    /// The arguments do not match the tool's schema.
    Schema,
}

impl Issue {
    /// Returns the name used in events and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Malformed => "malformed",
            Self::NoName => "no_name",
            Self::Schema => "schema",
        }
    }
}

/// The detail of a repair that succeeded.
const REPAIRED: &str = "the repeated tool call is complete";

/// Returns the problem in the tool calls of a response, and a sentence about it. `known` is the
/// problem being repaired, for a response that shows no problem itself.
pub(super) fn issue(ended: &EndedResponse, known: Option<Issue>) -> (Issue, String) {
    let EndedResponse { ending, tools, .. } = ended;
    let calls = |of: fn(&Shown) -> u32| ending.choices.iter().any(|choice| of(&choice.shown) > 0);
    let told = match tools {
        Some(Allow::Refuse(refusal @ (Refusal::Call(_) | Refusal::Schema | Refusal::TooMany))) => {
            Some(*refusal)
        }
        Some(
            Allow::Run | Allow::Refuse(Refusal::NoCalls | Refusal::Ending(_) | Refusal::Unsure | _),
        )
        | None => None,
    };
    let refusal = match (told, allow_by_ending(ending)) {
        (Some(told), _) => told,
        (None, Allow::Refuse(refusal)) => refusal,
        (None, Allow::Run) => return (known.unwrap_or(Issue::Unfinished), REPAIRED.to_owned()),
    };
    let issue = match refusal {
        Refusal::Schema => Issue::Schema,
        Refusal::Call(CallState::Malformed) => Issue::Malformed,
        Refusal::Call(CallState::Orphaned) => Issue::NoName,
        Refusal::Call(
            CallState::Open | CallState::Parsable | CallState::Closed | CallState::Complete | _,
        )
        | Refusal::TooMany => Issue::Unfinished,
        Refusal::NoCalls if known.is_some() => known.unwrap_or(Issue::Unfinished),
        // The ending forbids the calls. The shown facts tell the kind of problem.
        Refusal::Ending(_) | Refusal::NoCalls | Refusal::Unsure | _ => {
            if calls(|shown| shown.nameless_tool_calls) {
                Issue::NoName
            } else if calls(|shown| shown.malformed_tool_calls)
                || ending.reason == Reason::MalformedToolCall
            {
                Issue::Malformed
            } else {
                Issue::Unfinished
            }
        }
    };
    let detail = match (refusal, &ending.sentence) {
        // Without a call, the ending's sentence explains the problem.
        (Refusal::NoCalls, sentence) => sentence.clone(),
        (refusal, _) => refusal.sentence(),
    };
    (issue, detail)
}

impl TurnData {
    pub(super) fn observed(&self, ending: &Ending) -> TurnEvent {
        TurnEvent::StopReasonObserved {
            turn: self.begin.turn.clone(),
            iteration: self.spent.iterations,
            provider: ending.provider.clone(),
            model: ending.model.clone(),
            reason: ending.reason,
            confidence: ending.confidence,
            raw: ending.native().map(|(_, word)| word.to_owned()),
        }
    }

    pub(super) fn repair_event(
        &self,
        ended: &EndedResponse,
        attempted: bool,
        succeeded: Option<bool>,
    ) -> TurnEvent {
        let (issue, detail) = issue(ended, self.issue);
        self.payload_repair(issue, detail, attempted, succeeded)
    }

    /// Returns the event about the call that is to be repaired.
    pub(super) fn known_repair_event(&self, attempted: bool, succeeded: Option<bool>) -> TurnEvent {
        let issue = self.issue.unwrap_or(Issue::Unfinished);
        self.payload_repair(issue, self.detail.clone(), attempted, succeeded)
    }

    fn payload_repair(
        &self,
        issue: Issue,
        detail: String,
        attempted: bool,
        succeeded: Option<bool>,
    ) -> TurnEvent {
        TurnEvent::ToolPayloadRepair {
            turn: self.begin.turn.clone(),
            iteration: self.spent.iterations,
            issue,
            detail,
            attempted,
            succeeded,
        }
    }

    /// Returns the event for an attempt that was just counted.
    pub(super) fn attempt(
        &self,
        next: &PlannedRequest,
        counter: Counter,
        budget_left: Left,
    ) -> TurnEvent {
        let turn = self.begin.turn.clone();
        let iteration = self.spent.iterations;
        let index = self.spent.count(counter);
        let continues = match counter {
            Counter::Continuations | Counter::Raises => true,
            Counter::Resumes | Counter::Polls => {
                return TurnEvent::ResumeAttempt { turn, iteration, index, counter };
            }
            Counter::Retries | Counter::Cuts => next.how == RequestKind::ResumeText && !next.again,
            Counter::Repairs => false,
        };
        if !continues {
            return TurnEvent::RetryAttempt { turn, iteration, index, counter, budget_left };
        }
        TurnEvent::ContinuationAttempt {
            turn,
            iteration,
            index,
            counter,
            cumulative_tokens: self.spent.completion_tokens,
            cumulative_chars: self.spent.output_chars,
            budget_left,
        }
    }
}
