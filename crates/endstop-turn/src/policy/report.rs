//! The full report on how one turn ended, for people and as JSON.

use std::fmt;

use serde::Serialize;

use super::{Decision, DecisionContext, Policy, decide};
use crate::continuation::Outcome;
use endstop::Ending;
use endstop::signal::TerminationSignal;
use endstop::vocabulary::Vocabulary;

/// The full report on the end of one turn: the last response's ending, the decision and its reason,
/// and the outcome.
///
/// `Display` is for people, the serialized form for programs. It contains no text of the answer.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TerminationReport {
    /// The name of the turn, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The name of the policy.
    pub policy: String,
    /// The ending as a signal for other programs.
    pub signal: TerminationSignal,
    /// The ending of the last response.
    pub ending: Ending,
    /// The decision about that ending.
    pub decision: Decision,
    /// The facts besides the ending that the decision depends on.
    pub context: DecisionContext,
    /// The outcome of the turn, once it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

impl TerminationReport {
    /// Creates the report on a response, with the policy's decision.
    #[must_use]
    pub fn new(ending: Ending, context: DecisionContext, policy: &Policy) -> Self {
        let decision = decide(&ending, &context, policy);
        Self {
            turn: None,
            policy: policy.name.clone(),
            signal: TerminationSignal::from(&ending),
            ending,
            decision,
            context,
            outcome: None,
        }
    }

    /// Adds the outcome of the turn.
    #[must_use]
    pub fn closed(self, outcome: Outcome) -> Self {
        Self {
            turn: Some(outcome.turn.clone()),
            decision: outcome.decision.clone().unwrap_or(self.decision),
            outcome: Some(outcome),
            ..self
        }
    }
}

/// Returns the provider's finish reason and its field, or those of its error, for people.
#[must_use]
pub fn finish_reason(ending: &Ending) -> String {
    let native = ending.native().map(|(field, word)| format!("`{word}` in `{field}`"));
    native.unwrap_or_else(|| "none".to_owned())
}

impl fmt::Display for TerminationReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ending, decision, context, .. } = self;
        let confidence = ending.confidence.name();
        let reason = ending.reason.name().replace('_', " ");
        writeln!(out, "{reason} ({confidence} confidence): {}", ending.sentence)?;
        if let Some(turn) = &self.turn {
            row(out, "turn", turn)?;
        }
        let model = ending.model.as_deref().unwrap_or("unknown model");
        row(out, "from", &format!("{}, {model}, {}", ending.provider, ending.dialect))?;
        row(out, "finish reason", &finish_reason(ending))?;
        row(out, "connection", ending.closed.description())?;
        let shown = ending.shown.names().join(", ").replace('_', " ");
        row(out, "content", if shown.is_empty() { "no problems found" } else { &shown })?;
        row(out, "other names", &self.known_as())?;
        let action = decision.action.name().replace('_', " ");
        row(out, "what to do", &format!("{action}: {}", decision.sentence))?;
        row(out, "policy", &self.policy)?;
        if let Some(wait) = decision.metadata.wait_ms {
            row(out, "wait", &format!("{wait} ms"))?;
        }
        if let Some(cap) = decision.metadata.next_cap {
            row(out, "next limit", &count(cap, "token"))?;
        }
        row(out, "conversation", &conversation(context))?;
        row(out, "spent", &spent(context))?;
        row(out, "left", &self.left())?;
        if let Some(outcome) = &self.outcome {
            row(out, "turn ended", outcome.terminated.name())?;
            if let Some(notice) = &outcome.notice {
                row(out, "notice", notice)?;
            }
        }
        Ok(())
    }
}

impl TerminationReport {
    fn known_as(&self) -> String {
        let words = [Vocabulary::FinishReason, Vocabulary::Termination].map(|known| {
            let word = self.ending.spell(known);
            format!("{} {}", known.name(), word.as_deref().unwrap_or("null"))
        });
        words.join(", ")
    }

    fn left(&self) -> String {
        let left = self.decision.metadata.left;
        let tokens = left.tokens.map_or("no known limit on tokens".to_owned(), tokens);
        let money = left.cost.map(|left| format!(", {:.6} USD", left.micros() as f64 / 1e6));
        format!(
            "{}, {}, {tokens}, {}, {} s{}",
            count(left.attempts.into(), "attempt"),
            count(left.repairs.into(), "repair"),
            count(left.chars, "character"),
            left.ms / 1000,
            money.unwrap_or_default()
        )
    }
}

fn conversation(context: &DecisionContext) -> String {
    let messages = match context.conversation_messages {
        None => "an unknown number of messages".to_owned(),
        Some(some) => count(some.into(), "message"),
    };
    let tokens = context.conversation_tokens;
    let tokens =
        tokens.map_or("an unknown number of tokens".to_owned(), |some| count(some, "token"));
    format!("{messages}, {tokens}")
}

fn spent(context: &DecisionContext) -> String {
    let spent = &context.spent;
    let counts = [
        count(spent.iterations.into(), "request"),
        count(spent.continuations.into(), "continuation"),
        match spent.retries {
            1 => "1 retry".to_owned(),
            many => format!("{many} retries"),
        },
        match spent.cuts {
            1 => "1 retry after a cut stream".to_owned(),
            many => format!("{many} retries after cut streams"),
        },
        count(spent.repairs.into(), "repair"),
    ];
    format!(
        "{}; {} in, {} out; {} ms",
        counts.join(", "),
        tokens(spent.input_tokens),
        spent.output_tokens,
        spent.elapsed_ms
    )
}

fn tokens(number: u64) -> String {
    count(number, "token")
}

/// Formats a number with its noun: `1 repair`, `2 repairs`.
fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn row(out: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(out, "  {name:<13} {value}")
}
