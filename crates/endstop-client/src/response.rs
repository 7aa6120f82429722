//! The answer of a turn, in a form in which an unfinished one cannot be mistaken for a finished one.

use endstop::signal::TerminationSignal;
use endstop::tool_call::{Call, ToolCall, Unproven, Whole};
use endstop::vocabulary::NormalizedStopReason;
use endstop::{Closed, Ending, FaultKind, Reason, Timer, Usage};
use endstop_turn::continuation::{Completeness, Outcome, TurnEnd};
use endstop_turn::policy::{Cause, Decision};
use serde::{Deserialize, Serialize};

use crate::quota::QuotaMetadata;
use crate::target::Origin;

/// The answer to a request, with all of its pieces.
///
/// [`ChatResponse::ended`] gives the answer itself, in a form that depends on how it ended.
///
/// ```no_run
/// # async fn example() -> Result<(), endstop_client::Error> {
/// use endstop_client::{Client, Ended};
///
/// let client = Client::from_env();
/// let reply = client.chat("anthropic/claude-sonnet-5", "Write a haiku.").await?;
/// match reply.ended() {
///     Ended::Complete(answer) => println!("{}", answer.text()),
///     Ended::ToolCalls(calls) => println!("{} calls", calls.len()),
///     Ended::Partial(part) => println!("{} … ({})", part.text_so_far(), part.notice()),
///     Ended::Refused(why) | Ended::Failed(why) => println!("{why}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChatResponse {
    /// Text so far. It is private, so that only a complete answer gives it away as one.
    pub(crate) text_so_far: String,
    pub(crate) calls: Vec<Call<Whole>>,
    pub(crate) unproven: Vec<Call<Unproven>>,
    /// Where the key and the base URL come from.
    pub(crate) origin: Origin,
    /// Compression of the last response; empty if there is none.
    pub(crate) encoding: String,
    /// Reasoning, as far as the provider shows it.
    pub reasoning_content: Option<String>,
    /// Token counts of all pieces together.
    pub usage: Usage,
    /// Rate limits, from the headers of the last response.
    pub quota_metadata: QuotaMetadata,
    /// Reason of the last response, normalized; `None` if nothing was said.
    pub stop_reason: Option<NormalizedStopReason>,
    /// The provider's finish reason, verbatim.
    pub raw_stop_reason: Option<String>,
    /// Ending of the last response.
    pub ending: Ending,
    /// The same, as programs exchange it.
    pub signal: TerminationSignal,
    /// The last decision of the policy.
    pub decision: Option<Decision>,
    /// Responses whose text belongs to the answer.
    pub pieces: Vec<AnswerPiece>,
    /// How the turn ended.
    pub outcome: Outcome,
}

/// One response that is part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnswerPiece {
    /// Reason why the response ended.
    pub reason: Reason,
    /// Number of characters that it added to the answer.
    pub chars: u64,
    /// Number of characters that it repeated, which were left out.
    pub trimmed_chars: u64,
    /// The way in which the response was asked for, such as `first`, `continue` or `repair`.
    pub asked_by: String,
    /// Token counts.
    pub usage: Usage,
}

/// How an answer ended, with the parts of it that may be used.
///
/// The list is closed: a program must handle each.
#[derive(Clone, Copy, Debug)]
pub enum Ended<'a> {
    /// The whole answer.
    Complete(CompleteAnswer<'a>),
    /// Complete tool calls, which wait to be run.
    ToolCalls(&'a [Call<Whole>]),
    /// A part of the answer.
    Partial(PartialAnswer<'a>),
    /// The model declined, or a filter withheld the answer.
    Refused(Why<'a>),
    /// The provider failed, rejected the request or could not be reached, and nothing usable came.
    Failed(Why<'a>),
}

/// A whole answer.
#[derive(Clone, Copy, Debug)]
pub struct CompleteAnswer<'a>(&'a ChatResponse);

/// A part of an answer.
#[derive(Clone, Copy, Debug)]
pub struct PartialAnswer<'a>(&'a ChatResponse);

/// Reason why there is no answer. Its text is a sentence for people.
#[derive(Clone, Copy, Debug)]
pub struct Why<'a>(&'a ChatResponse);

impl ChatResponse {
    /// Returns how the answer ended, with the parts of it that may be used.
    #[must_use]
    pub fn ended(&self) -> Ended<'_> {
        match (self.outcome.finish, self.outcome.terminated) {
            (_, TurnEnd::ToolCallsLeft) if !self.calls.is_empty() => Ended::ToolCalls(&self.calls),
            (Completeness::Complete, TurnEnd::Completed) => Ended::Complete(CompleteAnswer(self)),
            (_, TurnEnd::SafetyBlocked) => Ended::Refused(Why(self)),
            (Completeness::Aborted, _) if self.text_so_far.is_empty() => Ended::Failed(Why(self)),
            (Completeness::Aborted, _) if self.is_failure() => Ended::Failed(Why(self)),
            // Completeness is an open list: what is not known to be complete is a part.
            _ => Ended::Partial(PartialAnswer(self)),
        }
    }

    /// Returns the text of the answer, if it is complete.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self.ended() {
            Ended::Complete(_) => Some(&self.text_so_far),
            Ended::ToolCalls(_) | Ended::Partial(_) | Ended::Refused(_) | Ended::Failed(_) => None,
        }
    }

    /// Returns the tool calls, if all of them are complete.
    #[must_use]
    pub fn tool_calls(&self) -> &[Call<Whole>] {
        &self.calls
    }

    /// Returns tool calls that may not run, to show them.
    #[must_use]
    pub fn unproven_calls(&self) -> &[Call<Unproven>] {
        &self.unproven
    }

    fn is_failure(&self) -> bool {
        let cause = self.decision.as_ref().map(|decision| decision.cause);
        matches!(cause, Some(Cause::RequestRefused | Cause::ProviderFailed))
    }
}

impl<'a> CompleteAnswer<'a> {
    /// Returns the text.
    #[must_use]
    pub fn text(self) -> &'a str {
        &self.0.text_so_far
    }

    /// Returns a warning, if it is not certain that the answer is complete.
    #[must_use]
    pub fn notice(self) -> Option<&'a str> {
        self.0.outcome.notice.as_deref()
    }
}

impl<'a> PartialAnswer<'a> {
    /// Returns the text that arrived.
    #[must_use]
    pub fn text_so_far(self) -> &'a str {
        &self.0.text_so_far
    }

    /// Returns a sentence for the reader that says why the answer is incomplete.
    #[must_use]
    pub fn notice(self) -> &'a str {
        self.0.outcome.notice.as_deref().unwrap_or("The answer is incomplete.")
    }

    /// Returns tool calls that may not run, to show them.
    #[must_use]
    pub fn unproven_calls(self) -> &'a [Call<Unproven>] {
        &self.0.unproven
    }

    /// Returns the reason why the last response ended.
    #[must_use]
    pub fn reason(self) -> Reason {
        self.0.ending.reason
    }
}

impl<'a> Why<'a> {
    /// Returns the reason why the last response ended.
    #[must_use]
    pub fn reason(self) -> Reason {
        self.0.ending.reason
    }

    /// Returns the kind of the provider's error, if it sent one.
    #[must_use]
    pub fn kind(self) -> Option<FaultKind> {
        self.0.ending.fault.as_ref().map(|fault| fault.kind)
    }

    /// Returns a sentence that says what happened.
    #[must_use]
    pub fn sentence(self) -> &'a str {
        let ChatResponse { ending, outcome, .. } = self.0;
        // Nothing was asked, or the response ended well: a limit is the reason.
        let by_limit = outcome.reason.is_none_or(Reason::is_success);
        let notice = outcome.notice.as_deref().filter(|_| by_limit);
        notice.unwrap_or(&ending.sentence)
    }

    /// Returns the text that arrived before. It is not an answer.
    #[must_use]
    pub fn text_so_far(self) -> &'a str {
        &self.0.text_so_far
    }
}

impl std::fmt::Display for Why<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.sentence())?;
        let Origin { base_url, key } = &self.0.origin;
        let encoding = self.0.encoding.as_str();
        let fault = self.0.ending.fault.as_ref();
        let redirects = fault.is_some_and(|fault| matches!(fault.status, Some(300..=399)));
        let advice = match self.kind() {
            _ if redirects => format!("redirects are not followed: check the base URL {base_url}"),
            Some(FaultKind::Auth) => key.clone(),
            Some(FaultKind::NotFound) => {
                format!("check the name of the model and the base URL {base_url}")
            }
            Some(FaultKind::Quota) => "check the account's plan and billing".to_owned(),
            Some(FaultKind::BadPayload) if is_compressed(encoding) => format!(
                "the body is compressed (`content-encoding: {encoding}`), although the request asks for \
                 `identity`: check the base URL {base_url} and any proxy in front of it"
            ),
            Some(FaultKind::BadPayload) => format!("check the base URL {base_url}"),
            _ if matches!(
                self.0.ending.closed,
                Closed::Unreachable(_) | Closed::TimedOut(Timer::Connect)
            ) =>
            {
                format!("check the base URL {base_url} and the network")
            }
            _ => return Ok(()),
        };
        write!(out, "; {advice}")
    }
}

/// Reports whether a body with this `content-encoding` is compressed.
fn is_compressed(encoding: &str) -> bool {
    !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")
}

/// Returns the calls for display.
pub(crate) fn unproven(calls: &[ToolCall]) -> Vec<Call<Unproven>> {
    calls.iter().cloned().map(Call::from).collect()
}

/// Adds token counts.
pub(crate) fn add(sum: &mut Usage, more: &Usage) {
    let plus = |sum: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0).saturating_add(more));
        }
    };
    plus(&mut sum.input, more.input);
    plus(&mut sum.output, more.output);
    plus(&mut sum.reasoning, more.reasoning);
    plus(&mut sum.cache_read, more.cache_read);
    plus(&mut sum.cache_write, more.cache_write);
}
