//! The memory of a turn: its spending, and the text it has kept.

use serde::{Deserialize, Serialize};

use super::{Completeness, EndedResponse, Issue, PlannedRequest, RequestKind, TurnStart};
use crate::policy::{self, Budget, Decision, DecisionContext, Price, Spent};
use endstop::hash::Fnv;
use endstop::{Confidence, Reason};

/// Maximum number of hashes of earlier pieces that are kept.
const MAX_SEEN: usize = 64;

/// The machine's memory of its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TurnData {
    pub(super) begin: TurnStart,
    pub(super) started_ms: u64,
    pub(super) spent: Spent,
    pub(super) conversation_tokens: Option<u64>,
    /// Messages that the turn added to the conversation, as far as the machine can count them.
    #[serde(default)]
    pub(super) added_messages: u32,
    /// The price of the model that answered last or is asked next, if known.
    #[serde(default)]
    pub(super) price: Option<Price>,
    /// Whether the answer was continued or requested again with a higher output limit.
    #[serde(default)]
    pub(super) continued: bool,
    /// The mistake in a tool call that is being repaired.
    #[serde(default)]
    pub(super) issue: Option<Issue>,
    /// The same in a sentence.
    #[serde(default)]
    pub(super) detail: String,
    /// Hashes of the pieces that belong to the answer.
    pub(super) seen: Vec<u64>,
    pub(super) pieces: u32,
    pub(super) kept_chars: u64,
    /// The provider of the last response, or of the model that is asked first or next. Its overrides apply to the
    /// next request.
    pub(super) provider: String,
    pub(super) reason: Option<Reason>,
    pub(super) confidence: Option<Confidence>,
}

impl TurnData {
    pub(super) fn clock(&mut self, now_ms: u64) {
        let elapsed = now_ms.saturating_sub(self.started_ms);
        self.spent.elapsed_ms = self.spent.elapsed_ms.max(elapsed);
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.started_ms.saturating_add(self.spent.elapsed_ms)
    }

    pub(super) fn limits(&self) -> policy::AgentLimits {
        let reason = self.reason.unwrap_or(Reason::Complete);
        self.begin.policy.terms(&self.provider, reason).limits
    }

    pub(super) fn deadline_ms(&self) -> u64 {
        self.started_ms.saturating_add(self.limits().turn_max_time.0)
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        self.spent.elapsed_ms >= self.limits().turn_max_time.0
    }

    /// Plans a request that recovers nothing.
    pub(super) fn plain(&self, how: RequestKind, cap: Option<u64>) -> PlannedRequest {
        let affordable = self.limits().next_cap(self.begin.budget.cap, None, &self.bare_context());
        PlannedRequest {
            how,
            again: false,
            cap: cap.or(affordable),
            discard: false,
            other_model: false,
            counter: None,
            deadline_ms: self.deadline_ms(),
        }
    }

    pub(super) fn bare_context(&self) -> DecisionContext {
        DecisionContext {
            conversation_messages: self.messages(),
            conversation_tokens: self.conversation_tokens,
            budget: Budget { price: self.price, ..self.begin.budget },
            spent: self.spent,
            delivered: self.begin.delivers,
            ..DecisionContext::default()
        }
    }

    /// Returns the number of messages in the conversation, or `None` if the number before the turn
    /// is unknown.
    pub(super) fn messages(&self) -> Option<u32> {
        let before = self.begin.conversation_messages?;
        Some(before.saturating_add(self.added_messages))
    }

    pub(super) fn context(&self, ended: &EndedResponse, cap: Option<u64>) -> DecisionContext {
        DecisionContext {
            cap,
            tools: ended.tools,
            piece: ended.piece,
            seen: self.seen.clone(),
            retry_after_ms: ended.retry_after_ms,
            seed: Fnv::default().mix_bytes(self.begin.turn.as_bytes()).value(),
            ..self.bare_context()
        }
    }

    /// Adds the response to the spending and returns the context for the decision.
    pub(super) fn account(
        &mut self,
        next: &PlannedRequest,
        ended: &EndedResponse,
    ) -> DecisionContext {
        let EndedResponse { ending, piece, .. } = ended;
        let cap = next.cap.or(self.begin.budget.cap);
        let estimate = piece.map_or(0, |piece| piece.tokens());
        // A provider that reports the output limit but no token counts has used the whole limit.
        let limited = ending.reason == Reason::OutputLimit;
        let least = if limited { cap.unwrap_or(0).max(estimate) } else { estimate };
        let output = ending.output_tokens().unwrap_or(least);
        // A request that failed without a token costs nothing.
        let is_free = ending.reason == Reason::Failed && ending.shown.is_empty();
        let estimate = self.conversation_tokens.filter(|_| !is_free).unwrap_or(0);
        let input = ending.input_tokens().unwrap_or(estimate);
        let spent = &mut self.spent;
        spent.input_tokens = spent.input_tokens.saturating_add(input);
        spent.output_tokens = spent.output_tokens.saturating_add(output);
        spent.all_chars = spent.all_chars.saturating_add(piece.map_or(0, |piece| piece.chars));
        let TurnStart { budget, policy, .. } = &self.begin;
        let model = ending.model.as_deref().unwrap_or_default();
        let known = ended.price.or(budget.price);
        self.price = known.or_else(|| policy.price_of(&ending.provider, model));
        spent.cost = spent.cost.plus(self.price.unwrap_or_default().of(input, output));
        let recovering = next.counter.is_some() || !ending.reason.is_success() || !ending.over;
        if recovering {
            let chars = piece.map_or(0, |piece| piece.chars);
            spent.completion_tokens = spent.completion_tokens.saturating_add(output);
            spent.output_chars = spent.output_chars.saturating_add(chars);
        }
        let tokens = input.saturating_add(output);
        if tokens > 0 || self.conversation_tokens.is_none() {
            self.conversation_tokens = Some(tokens);
        }
        self.context(ended, next.cap)
    }

    /// Returns the completeness of an answer that was given up.
    pub(super) fn partial_if_kept(&self) -> Completeness {
        if self.kept_chars > 0 { Completeness::Partial } else { Completeness::Aborted }
    }

    /// Forgets the text so far, because another model answers anew.
    pub(super) fn forget_answer(&mut self) {
        self.seen.clear();
        self.pieces = 0;
        self.kept_chars = 0;
    }

    /// Adds the text of a response to the answer, unless it is discarded.
    pub(super) fn keep(&mut self, ended: &EndedResponse, decision: &Decision) {
        let Some(piece) = ended.piece.filter(|piece| piece.chars > 0) else { return };
        if decision.metadata.discard || !ended.ending.over {
            return;
        }
        self.pieces = self.pieces.saturating_add(1);
        self.kept_chars = self.kept_chars.saturating_add(piece.new_chars);
        if self.seen.len() >= MAX_SEEN {
            self.seen.remove(0);
        }
        self.seen.push(piece.hash);
    }
}
