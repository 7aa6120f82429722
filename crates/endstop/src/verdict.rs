//! The verdict: one pure function from what was said, how it closed and what it shows.
//!
//! The rules, in the order in which they are asked:
//!
//! 1. An error that the provider sent before the end decides.
//! 2. Without proof of the end, a response is what its close makes of it, most often `Cut`. Where
//!    the word alone is nearly proof (marker and word hosts), a word that came still counts, at
//!    medium confidence.
//! 3. Nothing said is `Unknown`, low. A word that we do not know is `Unknown`, medium. No arm
//!    below makes a success of either.
//! 4. Evidence overrules the word, and says so: unfinished arguments are `OutputLimit`, broken ones
//!    `MalformedToolCall`, text in the refusal field is `Refused`, a named stop sequence is
//!    `StopSequence`, tokens at the cap are `OutputLimit` where the word is known to lie there.
//! 5. Tool calls upgrade only a natural stop.
//! 6. High confidence needs all three facts, agreeing.

use crate::ending::{Closed, Confidence, Reason, Said, Shown};
use crate::fault::{Fault, FaultKind};

/// What a provider's word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing was said, or a word that says nothing (`FINISH_REASON_UNSPECIFIED`).
    Nothing,
    /// A word that is in no table.
    Unknown,
    /// A documented word.
    Known(Reason),
    /// A documented word that is itself vague (`OTHER`).
    Vague(Reason),
}

/// What the profile of the host says about its endings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// The word alone is nearly proof: the missing marker is a flaw, not a cut.
    pub word_suffices: bool,
    /// The host never says a word, so that its silence is no sign of a cut.
    pub silent: bool,
    /// The wire has a word of its own for tool calls, so that a natural stop with calls is odd.
    pub has_tool_word: bool,
    /// The host says a natural stop where the output cap cut the answer.
    pub lies_at_cap: bool,
    /// The dialect was found by the shape of the bytes.
    pub guessed: bool,
}

/// All that is known about the end of one choice.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The provider's word.
    pub said: Option<&'a Said>,
    /// What the word means.
    pub meaning: Meaning,
    /// How the bytes ended.
    pub closed: Closed,
    /// What the content shows.
    pub shown: &'a Shown,
    /// The provider's error, if it sent one before the end.
    pub fault: Option<&'a Fault>,
    /// How many choices the response has.
    pub choices: usize,
    /// What the profile says.
    pub habits: Habits,
}

/// Our reason, how sure it is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Why it ended.
    pub reason: Reason,
    /// How sure that is.
    pub confidence: Confidence,
    /// The same in a sentence.
    pub sentence: String,
}

/// Judges one choice.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Verdict {
    let Finding { reason, confidence, because } = find(evidence);
    let confidence =
        if evidence.habits.guessed { confidence.min(Confidence::Medium) } else { confidence };
    Verdict { reason, confidence, sentence: because }
}

/// A verdict in the making.
struct Finding {
    reason: Reason,
    confidence: Confidence,
    because: String,
}

fn finding(reason: Reason, confidence: Confidence, because: impl Into<String>) -> Finding {
    Finding { reason, confidence, because: because.into() }
}

fn find(evidence: &Evidence<'_>) -> Finding {
    if let Some(fault) = evidence.fault {
        return from_fault(fault);
    }
    let ended = match evidence.closed {
        Closed::Open | Closed::Proven => true,
        Closed::Eof
        | Closed::Reset
        | Closed::TimedOut(_)
        | Closed::ClientGone
        | Closed::Dropped
        | Closed::Error
        | Closed::Oversize
        | Closed::BrokenFrame
        | Closed::Interrupted
        | Closed::ShutDown => evidence.habits.word_suffices && evidence.meaning != Meaning::Nothing,
    };
    if !ended {
        return from_close(evidence);
    }
    let mut found = from_word(evidence);
    if found.confidence == Confidence::High && evidence.shown.missing_marker {
        found.confidence = Confidence::Medium;
        found.because.push_str("; the end marker of this host is missing");
    }
    found
}

fn from_fault(fault: &Fault) -> Finding {
    let name = fault.type_.as_ref().or(fault.code.as_ref());
    let named = name.map(|name| format!(" (`{name}`)")).unwrap_or_default();
    let status = fault.status.map(|status| format!(", HTTP {status}")).unwrap_or_default();
    // A page or a text is evidence of failure; only an error object is the provider's word on it.
    let spoken = fault.message.is_some() || name.is_some();
    let vouched = spoken && fault.kind != FaultKind::BadPayload;
    let confidence = if vouched { Confidence::High } else { Confidence::Medium };
    let because = format!("the provider sent an error{named}{status}: {}", fault.kind.words());
    finding(fault.kind.reason(), confidence, because)
}

/// The end is not proven, and no word makes up for it.
fn from_close(evidence: &Evidence<'_>) -> Finding {
    let (reason, how) = match evidence.closed {
        Closed::Eof if evidence.habits.silent => {
            return finding(Reason::Unknown, Confidence::Low, "this host never says how it ended");
        }
        Closed::TimedOut(_) => {
            (Reason::TimedOut, "a time limit passed before the response was over")
        }
        Closed::ClientGone => (Reason::Cancelled, "the client left before the response was over"),
        Closed::Dropped => (Reason::Cancelled, "reading was given up before the response was over"),
        Closed::ShutDown => (Reason::Cancelled, "we shut down before the response was over"),
        Closed::Interrupted => (Reason::Cut, "our own process ended before the response did"),
        Closed::Reset => (Reason::Cut, "the connection broke before the response was over"),
        Closed::Oversize => {
            (Reason::Cut, "an event was larger than the limit, and reading stopped there")
        }
        Closed::BrokenFrame => (Reason::Cut, "a frame was corrupt, and reading stopped there"),
        Closed::Eof | Closed::Error | Closed::Open | Closed::Proven => {
            (Reason::Cut, "the stream ended without the proof of its end")
        }
    };
    match evidence.said {
        Some(said) => finding(
            reason,
            Confidence::Medium,
            format!("the provider said `{}`, but {how}", said.word),
        ),
        None => finding(reason, Confidence::High, how),
    }
}

fn from_word(evidence: &Evidence<'_>) -> Finding {
    let word = evidence.said.map_or("", |said| said.word.as_str());
    match evidence.meaning {
        Meaning::Nothing if word.is_empty() => finding(
            Reason::Unknown,
            Confidence::Low,
            "the response is over, and nothing was said about why",
        ),
        Meaning::Nothing => finding(
            Reason::Unknown,
            Confidence::Low,
            format!("the provider said `{word}`, which says nothing"),
        ),
        Meaning::Unknown => finding(
            Reason::Unknown,
            Confidence::Medium,
            format!("the provider said `{word}`, a word that is not in its documentation"),
        ),
        Meaning::Vague(reason) => finding(
            reason,
            Confidence::Medium,
            format!("the provider said `{word}`, which is vague"),
        ),
        Meaning::Known(reason) => from_reason(reason, word, evidence),
    }
}

/// A known word, held against what the content shows.
fn from_reason(reason: Reason, word: &str, evidence: &Evidence<'_>) -> Finding {
    match reason {
        Reason::Complete | Reason::StopSequence => from_natural_stop(reason, word, evidence),
        Reason::ToolCall => from_tool_word(word, evidence),
        Reason::Paused
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
        | Reason::Cut => finding(reason, Confidence::High, said(word)),
    }
}

fn from_natural_stop(reason: Reason, word: &str, evidence: &Evidence<'_>) -> Finding {
    let Evidence { shown, habits, .. } = evidence;
    if shown.refusal {
        return finding(
            Reason::Refused,
            Confidence::High,
            format!("{}, and the answer is a refusal", said(word)),
        );
    }
    if shown.at_cap && habits.lies_at_cap && evidence.choices <= 1 {
        let because = format!(
            "{}, but all the output tokens allowed were used, where this host says so too",
            said(word)
        );
        return finding(Reason::OutputLimit, Confidence::Medium, because);
    }
    if shown.tool_calls > 0 {
        return from_calls(
            word,
            evidence,
            if habits.has_tool_word { Confidence::Medium } else { Confidence::High },
        );
    }
    if shown.at_cap {
        let because = format!("{}, though all the output tokens allowed were used", said(word));
        return finding(reason, Confidence::Medium, because);
    }
    if shown.is_empty() {
        return finding(reason, Confidence::Medium, format!("{}, though nothing came", said(word)));
    }
    if shown.stop_sequence {
        return finding(
            Reason::StopSequence,
            Confidence::High,
            format!("{}, at a stop sequence", said(word)),
        );
    }
    finding(reason, Confidence::High, said(word))
}

fn from_tool_word(word: &str, evidence: &Evidence<'_>) -> Finding {
    let shown = evidence.shown;
    if shown.tool_calls == 0 {
        return finding(
            Reason::MalformedToolCall,
            Confidence::Medium,
            format!("{}, but no tool call came", said(word)),
        );
    }
    if shown.at_cap && evidence.choices <= 1 {
        let because = format!(
            "{}, but all the output tokens allowed were used: the call may be cut",
            said(word)
        );
        return finding(Reason::OutputLimit, Confidence::Medium, because);
    }
    from_calls(word, evidence, Confidence::High)
}

/// Calls after a word that lets them stand.
fn from_calls(word: &str, evidence: &Evidence<'_>, confidence: Confidence) -> Finding {
    let shown = evidence.shown;
    if shown.malformed_tool_calls > 0 {
        return finding(
            Reason::MalformedToolCall,
            Confidence::Medium,
            format!("{}, but the arguments of a tool call are no JSON", said(word)),
        );
    }
    if shown.unfinished_tool_calls > 0 {
        return finding(
            Reason::OutputLimit,
            Confidence::Medium,
            format!("{}, but a tool call is unfinished", said(word)),
        );
    }
    if shown.at_cap || shown.excess > 0 {
        let because =
            format!("{}, with tool calls, and they cannot all be vouched for", said(word));
        return finding(Reason::ToolCall, Confidence::Medium, because);
    }
    finding(Reason::ToolCall, confidence, format!("{}, and the tool calls are whole", said(word)))
}

fn said(word: &str) -> String {
    format!("the provider said `{word}`")
}
