//! The verdict: a pure function from said, closed and shown to a reason and a confidence.
//!
//! The rules apply in this order:
//!
//! 1. An error that the provider sent before the end decides.
//! 2. Without an end marker, the way the bytes ended decides, most often as `Cut`. On providers
//!    whose finish reason is almost proof of the end, a finish reason still counts, with medium
//!    confidence. Tool calls need a clean end of the body, too.
//! 3. A missing finish reason gives `Unknown` with low confidence. An undocumented one gives
//!    `Unknown` with medium confidence. No later rule turns either into a success.
//! 4. Evidence overrules the finish reason, and the sentence says so. Unfinished arguments give
//!    `OutputLimit`. Broken arguments, tool calls without a name, and tool calls in a response
//!    with an unreadable event give `MalformedToolCall`. Text in the refusal field gives
//!    `Refused`, a guardrail that intervened `Filtered`, and a rating that blocked `Safety`, with
//!    or without tool calls. A named stop sequence gives `StopSequence`. Output tokens at the limit give
//!    `OutputLimit` on providers that are known to report a natural stop there, and so does a full
//!    context `ContextLimit`. A call of which nothing shows who runs it gives `Unknown`.
//! 5. Tool calls upgrade only a natural stop.
//! 6. High confidence requires that said, closed and shown agree.

use crate::ending::{Closed, Confidence, Reason, Said, Shown, Unreachable};
use crate::fault::{Fault, FaultForm, FaultKind};

/// Meaning of a provider's finish reason.
///
/// Closed list: code that reads a finish reason must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// No finish reason, or one without a meaning (`FINISH_REASON_UNSPECIFIED`).
    Nothing,
    /// Finish reason that is in no table.
    Unknown,
    /// Documented finish reason.
    Known(Reason),
    /// Documented finish reason that is vague (`OTHER`).
    Vague(Reason),
}

impl Meaning {
    /// Returns the reason that the finish reason stands for.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::Nothing | Self::Unknown => Reason::Unknown,
            Self::Known(reason) | Self::Vague(reason) => reason,
        }
    }
}

/// Facts from the provider's profile that affect the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Habits {
    /// The finish reason alone is almost proof of the end. A missing end marker lowers the
    /// confidence and does not make the response `Cut`.
    pub word_suffices: bool,
    /// The provider never sends a finish reason, so a missing one does not indicate a cut.
    pub silent: bool,
    /// The wire has a finish reason for tool calls, so a natural stop with tool calls is unusual.
    pub has_tool_word: bool,
    /// The end of each tool call is an event of its own, which confirms the call.
    pub confirms_calls: bool,
    /// The provider reports a natural stop when the output limit truncated the answer.
    pub lies_at_cap: bool,
    /// The dialect was detected from the shape of the bytes.
    pub guessed: bool,
    /// The shape fits several dialects or none.
    pub ambiguous: bool,
}

impl Habits {
    /// Habits of a provider that sends end markers and finish reasons, one of them for tool calls.
    pub(crate) const STRICT: Self = Self {
        word_suffices: false,
        silent: false,
        has_tool_word: true,
        confirms_calls: false,
        lies_at_cap: false,
        guessed: false,
        ambiguous: false,
    };
}

/// Facts about the end of one choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    /// The provider's finish reason.
    pub said: Option<&'a Said>,
    /// Meaning of the finish reason.
    pub meaning: Meaning,
    /// The way the bytes ended.
    pub closed: Closed,
    /// Findings about the content.
    pub shown: &'a Shown,
    /// The provider's error, if it sent one before the end.
    pub fault: Option<&'a Fault>,
    /// Number of choices in the response.
    pub choices: usize,
    /// Facts from the provider's profile.
    pub habits: Habits,
    /// Only part of the response was read, so `shown` may lack earlier content.
    pub partial: bool,
}

/// Reason, confidence and explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Reason for the end.
    pub reason: Reason,
    /// Confidence in the reason.
    pub confidence: Confidence,
    /// Explanation for people, in one sentence.
    pub sentence: String,
}

/// Returns the verdict on one choice.
#[must_use]
pub(crate) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let Finding { reason, mut confidence, because } = vouch(find(evidence), evidence.shown);
    // An unreadable event may have contradicted the rest, and a contradiction is not certain.
    if evidence.shown.malformed_event || evidence.shown.contradiction {
        confidence = confidence.min(Confidence::Medium);
    }
    let most = match evidence.habits {
        Habits { ambiguous: true, .. } => Confidence::Low,
        Habits { guessed: true, .. } => Confidence::Medium,
        Habits { guessed: false, ambiguous: false, .. } => Confidence::High,
    };
    let confidence = confidence.min(most);
    Verdict { reason, confidence, sentence: because }
}

/// Lowers a success to `Unknown` if choices or tool calls over the limit were not read.
fn vouch(found: Finding, shown: &Shown) -> Finding {
    if shown.excess == 0 || !found.reason.is_success() {
        return found;
    }
    let because = format!(
        "{}, but the response has more choices or tool calls than the limits allow",
        found.because
    );
    finding(Reason::Unknown, Confidence::Low, because)
}

/// Verdict before the confidence is capped.
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
        return from_fault(fault, evidence);
    }
    let ended = match evidence.closed {
        Closed::Open | Closed::Proven => true,
        Closed::Eof
        | Closed::Reset
        | Closed::Truncated
        | Closed::Unreachable(_)
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
        found.because.push_str("; the provider's end marker is missing");
    }
    found
}

fn from_fault(fault: &Fault, evidence: &Evidence<'_>) -> Finding {
    let name = fault.type_.as_ref().or(fault.code.as_ref());
    let reason = match evidence.meaning {
        // A finish reason can be more specific than an error of unknown kind.
        Meaning::Known(reason) if fault.kind == FaultKind::Other && !reason.is_success() => reason,
        Meaning::Known(_) | Meaning::Vague(_) | Meaning::Unknown | Meaning::Nothing => {
            fault.kind.reason()
        }
    };
    // A page, plain text or a bare status indicates failure. It is not the provider's own error.
    let spoken = fault.form == FaultForm::Object && (fault.message.is_some() || name.is_some());
    let overruled = matches!(evidence.meaning, Meaning::Known(said) if said.is_success());
    let sure = spoken && !overruled && fault.kind != FaultKind::BadPayload;
    let confidence = if sure { Confidence::High } else { Confidence::Medium };
    finding(reason, confidence, fault_in_words(fault))
}

/// Describes an error: its form, its type or code, the HTTP status, and its kind if that adds
/// anything.
fn fault_in_words(fault: &Fault) -> String {
    let mut words = if fault.form == FaultForm::Page {
        "an HTML page came back instead of a response".to_owned()
    } else if let (FaultForm::Text, Some(text)) = (fault.form, &fault.message) {
        match is_json_word(text) {
            true => format!("`{text}` came back instead of a response"),
            false => "plain text came back instead of JSON".to_owned(),
        }
    } else if fault.form == FaultForm::Text {
        "binary data came back instead of a response".to_owned()
    } else if let Some(type_) = &fault.type_ {
        format!("the provider returned an error of type `{type_}`")
    } else if let Some(code) = &fault.code {
        format!("the provider returned an error with code `{code}`")
    } else {
        "the provider returned an error".to_owned()
    };
    let status = fault.status.map(|status| format!("HTTP {status}"));
    let is_page = fault.form == FaultForm::Page;
    let title = fault.message.as_ref().filter(|_| is_page).map(|title| format!("\"{title}\""));
    let more: Vec<String> = status.into_iter().chain(title).collect();
    if !more.is_empty() {
        words.push_str(&format!(" ({})", more.join(", ")));
    }
    if !matches!(fault.kind, FaultKind::Other | FaultKind::BadPayload) {
        words.push_str(&format!(": {}", fault.kind.description()));
    }
    words
}

/// Reports whether a text is a JSON value of one word.
fn is_json_word(text: &str) -> bool {
    matches!(text, "null" | "true" | "false") || text.parse::<f64>().is_ok()
}

/// Judges a response without an end marker whose finish reason does not make up for that.
fn from_close(evidence: &Evidence<'_>) -> Finding {
    let (reason, how) = match evidence.closed {
        Closed::Eof if evidence.habits.silent => {
            let because = "this provider never sends a finish reason";
            return finding(Reason::Unknown, Confidence::Low, because);
        }
        Closed::Eof if evidence.shown.unrecognised => {
            let because = "no event in the stream has a known format";
            return finding(Reason::Unknown, Confidence::Low, because);
        }
        Closed::TimedOut(_) => {
            (Reason::TimedOut, "a timeout expired before the response was complete")
        }
        Closed::ClientGone => {
            (Reason::Cancelled, "the client disconnected before the response was complete")
        }
        Closed::Dropped => (Reason::Cancelled, "reading stopped before the response was complete"),
        Closed::ShutDown => {
            (Reason::Cancelled, "Endstop shut down before the response was complete")
        }
        // The provider did not cause this, so it is not a cut.
        Closed::Interrupted => {
            (Reason::Cancelled, "the Endstop process ended before the response was complete")
        }
        Closed::Reset => (Reason::Cut, "the connection broke before the response was complete"),
        Closed::Truncated => {
            (Reason::Cut, "the body ended inside an HTTP chunk or before its declared length")
        }
        Closed::Unreachable(why) => (Reason::Failed, unreachable_words(why)),
        Closed::Oversize => (
            Reason::Cut,
            "reading stopped, because an event was too large or there were too many events",
        ),
        Closed::BrokenFrame => (Reason::Cut, "a frame was corrupt, so reading stopped"),
        // A truncated or empty body need not be a stream.
        Closed::Eof if evidence.shown.cut_event => (Reason::Cut, "the response was truncated"),
        Closed::Eof if evidence.said.is_none() && evidence.shown.is_empty() => {
            (Reason::Cut, "the response ended without content and without a finish reason")
        }
        Closed::Eof | Closed::Error | Closed::Open | Closed::Proven => {
            (Reason::Cut, "the stream stopped before the provider's end marker")
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

fn unreachable_words(why: Unreachable) -> &'static str {
    match why {
        Unreachable::Refused => "the provider could not be reached: the connection was refused",
        Unreachable::Dns => "the provider could not be reached: its host name does not resolve",
        Unreachable::Blocked => {
            "the provider could not be reached: its host name resolves to a forbidden address"
        }
        Unreachable::Tls => {
            "the provider could not be reached: its TLS certificate or handshake is invalid"
        }
        Unreachable::Proxy => "the provider could not be reached: the proxy refused the connection",
        Unreachable::Exhausted => {
            "the provider was not asked: this process had no free file descriptor"
        }
        Unreachable::Other => "the provider could not be reached",
    }
}

fn from_word(evidence: &Evidence<'_>) -> Finding {
    let word = evidence.said.map_or("", |said| said.word.as_str());
    match evidence.meaning {
        Meaning::Nothing if is_at_cap(evidence) && evidence.shown.text => finding(
            Reason::OutputLimit,
            Confidence::Low,
            "the provider gave no finish reason, and all allowed output tokens were used",
        ),
        Meaning::Nothing if word.is_empty() && evidence.shown.malformed_event => finding(
            Reason::Unknown,
            Confidence::Low,
            "the response ended, but part of it is unreadable, so that its finish reason is unknown",
        ),
        Meaning::Nothing if word.is_empty() => finding(
            Reason::Unknown,
            Confidence::Low,
            "the response ended, but the provider gave no finish reason",
        ),
        Meaning::Nothing => finding(
            Reason::Unknown,
            Confidence::Low,
            format!("the provider said `{word}`, which does not give a reason"),
        ),
        Meaning::Unknown => finding(
            Reason::Unknown,
            Confidence::Medium,
            format!("the provider said `{word}`, which is not a documented finish reason"),
        ),
        Meaning::Vague(Reason::Complete) if is_at_cap(evidence) && evidence.shown.text => finding(
            Reason::OutputLimit,
            Confidence::Low,
            format!("{}, which is vague, and all allowed output tokens were used", said(word)),
        ),
        Meaning::Vague(reason) if reason.is_success() && has_unconfirmed_calls(evidence) => {
            finding(
                Reason::Unknown,
                Confidence::Medium,
                format!("{}, which is too vague to confirm its tool calls", said(word)),
            )
        }
        Meaning::Vague(reason) => {
            let Finding { reason, confidence, because } = from_reason(reason, word, evidence);
            let because = format!("{because} (a vague finish reason)");
            finding(reason, confidence.min(Confidence::Medium), because)
        }
        Meaning::Known(reason) => from_reason(reason, word, evidence),
    }
}

/// Reports whether only the finish reason could say that the tool calls are whole.
fn has_unconfirmed_calls(evidence: &Evidence<'_>) -> bool {
    let Evidence { shown, habits, closed, .. } = evidence;
    let ended = matches!(closed, Closed::Proven | Closed::Open);
    let confirmed = habits.confirms_calls && ended && shown.unfinished_tool_calls == 0;
    shown.tool_calls > 0 && !confirmed
}

/// Compares a known finish reason with the content.
fn from_reason(reason: Reason, word: &str, evidence: &Evidence<'_>) -> Finding {
    if reason.is_success()
        && let Some(found) = from_content(word, evidence.shown)
    {
        return found;
    }
    if reason.is_success() && evidence.shown.unclear_tool_calls > 0 {
        let because = format!(
            "{}, but it is unclear whether the client or the provider runs a tool call",
            said(word)
        );
        return finding(Reason::Unknown, Confidence::Medium, because);
    }
    match reason {
        Reason::Complete | Reason::StopSequence => from_natural_stop(reason, word, evidence),
        Reason::ToolCall => from_tool_word(word, evidence),
        // Many wires have one word for both limits.
        Reason::OutputLimit if evidence.shown.context_full => {
            let because = format!("{}, and prompt and answer fill the context", said(word));
            finding(Reason::ContextLimit, Confidence::High, because)
        }
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

/// Judges an answer whose content contradicts a success, with or without tool calls.
fn from_content(word: &str, shown: &Shown) -> Option<Finding> {
    let (reason, confidence, what) = if shown.approval {
        (Reason::Paused, Confidence::High, "and waits for approval")
    } else if shown.refusal {
        (Reason::Refused, Confidence::High, "and the answer is a refusal")
    } else if shown.breakdown {
        (Reason::Failed, Confidence::Medium, "but reported a failure of its engine")
    } else if shown.guardrail {
        (Reason::Filtered, Confidence::Medium, "but a guardrail or content filter intervened")
    } else if shown.blocked {
        let what = "but a safety rating reports that the answer was blocked";
        (Reason::Safety, Confidence::Medium, what)
    } else if shown.unfinished_content {
        let what = "but part of the answer is marked as incomplete";
        (Reason::OutputLimit, Confidence::Medium, what)
    } else {
        return None;
    };
    Some(finding(reason, confidence, format!("{}, {what}", said(word))))
}

fn from_natural_stop(reason: Reason, word: &str, evidence: &Evidence<'_>) -> Finding {
    let Evidence { shown, habits, .. } = evidence;
    if (reason == Reason::StopSequence || shown.stop_sequence) && shown.tool_calls > 0 {
        // A stop sequence can match inside the arguments of a tool call.
        let because =
            format!("{}, at a stop sequence that may have truncated a tool call", said(word));
        return finding(Reason::StopSequence, Confidence::Medium, because);
    }
    let calls = shown.tool_calls > 0;
    if shown.context_full && habits.lies_at_cap && !calls {
        let because = format!(
            "{}, but prompt and answer fill the context, and this provider reports a natural stop \
             for truncated answers too",
            said(word)
        );
        return finding(Reason::ContextLimit, Confidence::Medium, because);
    }
    if is_at_cap(evidence) && habits.lies_at_cap && !calls {
        let because = format!(
            "{}, but all allowed output tokens were used, and this provider reports a natural stop \
             for truncated answers too",
            said(word)
        );
        return finding(Reason::OutputLimit, Confidence::Medium, because);
    }
    if calls {
        return from_calls(
            word,
            evidence,
            if habits.has_tool_word { Confidence::Medium } else { Confidence::High },
        );
    }
    if shown.at_cap || shown.over_cap {
        let because = format!("{}, although all allowed output tokens were used", said(word));
        return finding(reason, Confidence::Medium, because);
    }
    if shown.is_reasoning_only() && !evidence.partial {
        let because = format!("{}, although the answer contains only reasoning", said(word));
        return finding(reason, Confidence::Medium, because);
    }
    if shown.is_empty() && !evidence.partial {
        let because = format!("{}, although the answer is empty", said(word));
        return finding(reason, Confidence::Medium, because);
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
    if shown.tool_calls == 0 && evidence.partial {
        return finding(Reason::ToolCall, Confidence::High, said(word));
    }
    if shown.tool_calls == 0 {
        return finding(
            Reason::MalformedToolCall,
            Confidence::Medium,
            format!("{}, but sent no tool call", said(word)),
        );
    }
    from_calls(word, evidence, Confidence::High)
}

/// Reports whether the only choice used all allowed output tokens.
fn is_at_cap(evidence: &Evidence<'_>) -> bool {
    (evidence.shown.at_cap || evidence.shown.over_cap) && evidence.choices <= 1
}

/// Judges tool calls without arguments. Only the finish reason says that they are complete. That
/// suffices if the end is proven or still to come and the output limit was not reached.
fn from_bare_calls(word: &str, evidence: &Evidence<'_>) -> Option<Finding> {
    let (reason, why) = if evidence.shown.at_cap || evidence.shown.over_cap {
        (Reason::OutputLimit, "all allowed output tokens were used")
    } else if !matches!(evidence.closed, Closed::Proven | Closed::Open) {
        (Reason::Cut, "the provider's end marker is missing")
    } else {
        return None;
    };
    let because = format!("{}, but a tool call has no arguments and {why}", said(word));
    Some(finding(reason, Confidence::Medium, because))
}

/// Judges the tool calls of a response whose finish reason allows them.
fn from_calls(word: &str, evidence: &Evidence<'_>, confidence: Confidence) -> Finding {
    let shown = evidence.shown;
    // Earlier parts hold the rest of the arguments.
    if evidence.partial {
        return finding(Reason::ToolCall, confidence, said(word));
    }
    if shown.malformed_event {
        let because =
            format!("{}, but an unreadable event may hold part of a tool call", said(word));
        return finding(Reason::MalformedToolCall, Confidence::Medium, because);
    }
    if shown.nameless_tool_calls > 0 {
        let because = format!("{}, but a tool call has no name", said(word));
        return finding(Reason::MalformedToolCall, Confidence::Medium, because);
    }
    if shown.conflicting_tool_calls > 0 {
        let because = format!(
            "{}, but a tool call came in two versions, or part of it is unreadable",
            said(word)
        );
        return finding(Reason::MalformedToolCall, Confidence::Medium, because);
    }
    if shown.malformed_tool_calls > 0 {
        return finding(
            Reason::MalformedToolCall,
            Confidence::Medium,
            format!("{}, but the arguments of a tool call are not one JSON object", said(word)),
        );
    }
    if shown.unfinished_tool_calls > 0 {
        return finding(
            Reason::OutputLimit,
            Confidence::Medium,
            format!("{}, but a tool call is unfinished", said(word)),
        );
    }
    if shown.bare_tool_calls > 0
        && let Some(unfinished) = from_bare_calls(word, evidence)
    {
        return unfinished;
    }
    // A count over the limit is not evidence: some providers count reasoning separately.
    if shown.at_cap {
        let because = format!(
            "{}, with complete tool calls, although all allowed output tokens were used",
            said(word)
        );
        return finding(Reason::ToolCall, Confidence::Medium, because);
    }
    let because = format!("{}, and the tool calls are complete", said(word));
    finding(Reason::ToolCall, confidence, because)
}

fn said(word: &str) -> String {
    format!("the provider said `{word}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::{Closed, Timer};
    use Confidence::{High, Low, Medium};

    const WITH_TEXT: Shown = Shown {
        text: true,
        reasoning: false,
        refusal: false,
        other_content: false,
        tool_calls: 0,
        unfinished_tool_calls: 0,
        malformed_tool_calls: 0,
        conflicting_tool_calls: 0,
        nameless_tool_calls: 0,
        bare_tool_calls: 0,
        unclear_tool_calls: 0,
        approval: false,
        stop_sequence: false,
        unfinished_content: false,
        guardrail: false,
        blocked: false,
        breakdown: false,
        contradiction: false,
        at_cap: false,
        over_cap: false,
        context_full: false,
        missing_marker: false,
        cut_event: false,
        malformed_event: false,
        unrecognised: false,
        invalid_utf8: false,
        late_event: false,
        client_closed_early: false,
        excess: 0,
    };
    const WITH_CALL: Shown = Shown { tool_calls: 1, ..WITH_TEXT };
    const STRICT: Habits = Habits::STRICT;
    const LENIENT: Habits = Habits { word_suffices: true, ..STRICT };

    /// Facts for one verdict, with defaults.
    struct Trial {
        meaning: Meaning,
        closed: Closed,
        shown: Shown,
        habits: Habits,
        choices: usize,
        fault: Option<Fault>,
        partial: bool,
    }

    impl Default for Trial {
        fn default() -> Self {
            Self {
                meaning: Meaning::Known(Reason::Complete),
                closed: Closed::Proven,
                shown: WITH_TEXT,
                habits: STRICT,
                choices: 1,
                fault: None,
                partial: false,
            }
        }
    }

    impl Trial {
        fn verdict(&self) -> Verdict {
            let said = Said::new("finish_reason", "word");
            judge(&Evidence {
                said: (self.meaning != Meaning::Nothing).then_some(&said),
                meaning: self.meaning,
                closed: self.closed,
                shown: &self.shown,
                fault: self.fault.as_ref(),
                choices: self.choices,
                habits: self.habits,
                partial: self.partial,
            })
        }

        #[track_caller]
        fn is(&self, reason: Reason, confidence: Confidence) {
            let verdict = self.verdict();
            assert_eq!(
                (verdict.reason, verdict.confidence),
                (reason, confidence),
                "{}",
                verdict.sentence
            );
        }
    }

    const EVERY_CLOSE: [Closed; 12] = [
        Closed::Proven,
        Closed::Open,
        Closed::Eof,
        Closed::Reset,
        Closed::TimedOut(Timer::Idle),
        Closed::ClientGone,
        Closed::Dropped,
        Closed::Error,
        Closed::Oversize,
        Closed::BrokenFrame,
        Closed::Interrupted,
        Closed::ShutDown,
    ];

    #[test]
    fn said_closed_and_shown_agree() {
        Trial::default().is(Reason::Complete, High);
        Trial { meaning: Meaning::Known(Reason::OutputLimit), ..Trial::default() }
            .is(Reason::OutputLimit, High);
    }

    #[test]
    fn rule_1_an_unknown_word_is_never_a_success() {
        for meaning in [Meaning::Unknown, Meaning::Nothing] {
            for closed in EVERY_CLOSE {
                for shown in [WITH_TEXT, WITH_CALL, Shown::default()] {
                    for habits in [STRICT, LENIENT, Habits { silent: true, ..LENIENT }] {
                        let verdict =
                            Trial { meaning, closed, shown, habits, ..Trial::default() }.verdict();
                        assert!(!verdict.reason.is_success(), "{meaning:?} {closed:?}");
                    }
                }
            }
        }
        Trial { meaning: Meaning::Unknown, ..Trial::default() }.is(Reason::Unknown, Medium);
        Trial { meaning: Meaning::Nothing, ..Trial::default() }.is(Reason::Unknown, Low);
    }

    #[test]
    fn rule_2_a_cut_response_is_cut_whatever_text_it_holds() {
        let closes = [
            (Closed::Eof, Reason::Cut),
            (Closed::Reset, Reason::Cut),
            (Closed::Oversize, Reason::Cut),
            (Closed::BrokenFrame, Reason::Cut),
            (Closed::Interrupted, Reason::Cancelled),
            (Closed::Truncated, Reason::Cut),
            (Closed::Unreachable(Unreachable::Refused), Reason::Failed),
            (Closed::TimedOut(Timer::Idle), Reason::TimedOut),
            (Closed::ClientGone, Reason::Cancelled),
            (Closed::Dropped, Reason::Cancelled),
            (Closed::ShutDown, Reason::Cancelled),
        ];
        for (closed, reason) in closes {
            for habits in [STRICT, LENIENT] {
                Trial { meaning: Meaning::Nothing, closed, habits, ..Trial::default() }
                    .is(reason, High);
            }
            // With a finish reason but without the end event, the response is still cut.
            Trial { closed, ..Trial::default() }.is(reason, Medium);
        }
    }

    #[test]
    fn rule_2_a_word_without_its_marker_is_complete_at_medium() {
        let shown = Shown { missing_marker: true, ..WITH_TEXT };
        for closed in
            [Closed::Eof, Closed::Reset, Closed::TimedOut(Timer::Idle), Closed::ClientGone]
        {
            Trial { closed, shown, habits: LENIENT, ..Trial::default() }
                .is(Reason::Complete, Medium);
        }
        let length = Meaning::Known(Reason::OutputLimit);
        Trial { meaning: length, closed: Closed::Eof, shown, habits: LENIENT, ..Trial::default() }
            .is(Reason::OutputLimit, Medium);
        Trial {
            meaning: Meaning::Unknown,
            closed: Closed::Eof,
            shown,
            habits: LENIENT,
            ..Trial::default()
        }
        .is(Reason::Unknown, Medium);
    }

    #[test]
    fn rule_4_content_overrules_every_success_with_and_without_calls() {
        type Set = fn(&mut Shown);
        let overruled: [(Set, Reason, Confidence); 6] = [
            (|shown| shown.approval = true, Reason::Paused, High),
            (|shown| shown.refusal = true, Reason::Refused, High),
            (|shown| shown.breakdown = true, Reason::Failed, Medium),
            (|shown| shown.guardrail = true, Reason::Filtered, Medium),
            (|shown| shown.blocked = true, Reason::Safety, Medium),
            (|shown| shown.unfinished_content = true, Reason::OutputLimit, Medium),
        ];
        for (set, reason, confidence) in overruled {
            for said in [Reason::Complete, Reason::StopSequence, Reason::ToolCall] {
                for mut shown in [WITH_TEXT, WITH_CALL] {
                    set(&mut shown);
                    let meaning = Meaning::Known(said);
                    Trial { meaning, shown, ..Trial::default() }.is(reason, confidence);
                }
            }
            // Another finish reason stands.
            let mut shown = WITH_TEXT;
            set(&mut shown);
            let meaning = Meaning::Known(Reason::ContextLimit);
            Trial { meaning, shown, ..Trial::default() }.is(Reason::ContextLimit, High);
        }
    }

    #[test]
    fn rule_4_conflicting_and_broken_calls_are_malformed_and_say_why() {
        let meaning = Meaning::Known(Reason::ToolCall);
        let sentence = |shown| {
            let trial = Trial { meaning, shown, ..Trial::default() };
            trial.is(Reason::MalformedToolCall, Medium);
            trial.verdict().sentence
        };
        let broken = Shown { malformed_tool_calls: 1, ..WITH_CALL };
        assert!(sentence(broken).ends_with("the arguments of a tool call are not one JSON object"));
        let conflict = Shown { conflicting_tool_calls: 1, ..broken };
        assert!(sentence(conflict).contains("a tool call came in two versions"));
        Trial { meaning, shown: WITH_CALL, ..Trial::default() }.is(Reason::ToolCall, High);
    }

    #[test]
    fn rule_4_a_vague_word_confirms_no_call_that_has_no_end_of_its_own() {
        let meaning = Meaning::Vague(Reason::Complete);
        let confirms = Habits { confirms_calls: true, ..STRICT };
        let trial =
            |habits, shown, closed| Trial { meaning, habits, shown, closed, ..Trial::default() };
        trial(confirms, WITH_CALL, Closed::Proven).is(Reason::ToolCall, Medium);
        trial(STRICT, WITH_CALL, Closed::Proven).is(Reason::Unknown, Medium);
        let open = Shown { unfinished_tool_calls: 1, ..WITH_CALL };
        trial(confirms, open, Closed::Proven).is(Reason::Unknown, Medium);
        let lenient = Habits { word_suffices: true, ..confirms };
        trial(lenient, WITH_CALL, Closed::Eof).is(Reason::Unknown, Medium);
        trial(confirms, WITH_TEXT, Closed::Proven).is(Reason::Complete, Medium);
    }

    #[test]
    fn an_unreadable_response_has_no_known_finish_reason() {
        let shown = Shown { malformed_event: true, ..WITH_TEXT };
        let trial = Trial { meaning: Meaning::Nothing, shown, ..Trial::default() };
        trial.is(Reason::Unknown, Low);
        assert!(trial.verdict().sentence.contains("part of it is unreadable"));
    }

    #[test]
    fn rule_2_a_silent_host_is_unknown_rather_than_cut() {
        let habits = Habits { silent: true, ..LENIENT };
        Trial { meaning: Meaning::Nothing, closed: Closed::Eof, habits, ..Trial::default() }
            .is(Reason::Unknown, Low);
        Trial { meaning: Meaning::Nothing, closed: Closed::Reset, habits, ..Trial::default() }
            .is(Reason::Cut, High);
    }

    #[test]
    fn rule_3_tool_calls_upgrade_only_a_natural_stop() {
        let upgraded = |reason, habits| Trial {
            meaning: Meaning::Known(reason),
            shown: WITH_CALL,
            habits,
            ..Trial::default()
        };
        upgraded(Reason::Complete, Habits { has_tool_word: false, ..STRICT })
            .is(Reason::ToolCall, High);
        upgraded(Reason::Complete, STRICT).is(Reason::ToolCall, Medium);
        // A stop sequence may have matched inside the tool call.
        upgraded(Reason::StopSequence, STRICT).is(Reason::StopSequence, Medium);
        for reason in Reason::ALL {
            if !reason.is_success() {
                upgraded(reason, STRICT).is(reason, High);
            }
        }
    }

    #[test]
    fn rule_4_unfinished_arguments_overrule_the_word() {
        let shown = Shown { unfinished_tool_calls: 1, ..WITH_CALL };
        for reason in [Reason::ToolCall, Reason::Complete] {
            Trial { meaning: Meaning::Known(reason), shown, ..Trial::default() }
                .is(Reason::OutputLimit, Medium);
        }
        let shown = Shown { malformed_tool_calls: 1, ..WITH_CALL };
        Trial { meaning: Meaning::Known(Reason::ToolCall), shown, ..Trial::default() }
            .is(Reason::MalformedToolCall, Medium);
    }

    #[test]
    fn rule_4_the_cap_overrules_known_liars_and_never_whole_calls() {
        let text = Shown { at_cap: true, ..WITH_TEXT };
        let call = Shown { at_cap: true, ..WITH_CALL };
        let liar = Habits { lies_at_cap: true, ..STRICT };
        let tool_word = Meaning::Known(Reason::ToolCall);
        let over = |shown: Shown| Shown { at_cap: false, over_cap: true, ..shown };
        for shown in [text, over(text)] {
            Trial { shown, ..Trial::default() }.is(Reason::Complete, Medium);
            Trial { shown, habits: liar, ..Trial::default() }.is(Reason::OutputLimit, Medium);
            Trial { shown, habits: liar, choices: 2, ..Trial::default() }
                .is(Reason::Complete, Medium);
        }
        for habits in [STRICT, liar] {
            for meaning in [tool_word, Meaning::Known(Reason::Complete)] {
                Trial { shown: call, meaning, habits, ..Trial::default() }
                    .is(Reason::ToolCall, Medium);
            }
            // A count over the limit is not evidence: some providers count reasoning separately.
            Trial { shown: over(call), meaning: tool_word, habits, ..Trial::default() }
                .is(Reason::ToolCall, High);
            let cut = Shown { unfinished_tool_calls: 1, ..call };
            Trial { shown: cut, meaning: tool_word, habits, ..Trial::default() }
                .is(Reason::OutputLimit, Medium);
        }
    }

    #[test]
    fn rule_4_a_full_context_overrules_known_liars_and_never_whole_calls() {
        let text = Shown { context_full: true, ..WITH_TEXT };
        let call = Shown { context_full: true, ..WITH_CALL };
        let liar = Habits { lies_at_cap: true, ..STRICT };
        Trial { shown: text, ..Trial::default() }.is(Reason::Complete, High);
        Trial { shown: text, habits: liar, ..Trial::default() }.is(Reason::ContextLimit, Medium);
        Trial { shown: call, habits: liar, ..Trial::default() }.is(Reason::ToolCall, Medium);
        let limit = Meaning::Known(Reason::OutputLimit);
        for habits in [STRICT, liar] {
            Trial { shown: text, meaning: limit, habits, ..Trial::default() }
                .is(Reason::ContextLimit, High);
            Trial { meaning: limit, habits, ..Trial::default() }.is(Reason::OutputLimit, High);
        }
    }

    #[test]
    fn rule_4_nothing_said_at_the_cap_is_the_limit() {
        let silent = Trial { meaning: Meaning::Nothing, ..Trial::default() };
        let at = |shown: Shown| Trial {
            shown,
            ..Trial { meaning: Meaning::Nothing, ..Trial::default() }
        };
        at(Shown { at_cap: true, ..WITH_TEXT }).is(Reason::OutputLimit, Low);
        at(Shown { over_cap: true, ..WITH_TEXT }).is(Reason::OutputLimit, Low);
        at(Shown { at_cap: true, ..Shown::default() }).is(Reason::Unknown, Low);
        silent.is(Reason::Unknown, Low);
        let vague = Meaning::Vague(Reason::Complete);
        Trial { meaning: vague, ..Trial::default() }.is(Reason::Complete, Medium);
        // A vague finish reason does not confirm tool calls.
        Trial { meaning: vague, shown: WITH_CALL, ..Trial::default() }.is(Reason::Unknown, Medium);
        Trial { meaning: vague, ..at(Shown { at_cap: true, ..WITH_TEXT }) }
            .is(Reason::OutputLimit, Low);
        // Several choices share one token count.
        Trial { choices: 2, ..at(Shown { at_cap: true, ..WITH_TEXT }) }.is(Reason::Unknown, Low);
    }

    #[test]
    fn rule_4_a_call_that_nobody_claims_is_unknown() {
        let shown = Shown { unclear_tool_calls: 1, ..WITH_CALL };
        for reason in [Reason::Complete, Reason::StopSequence, Reason::ToolCall] {
            Trial { meaning: Meaning::Known(reason), shown, ..Trial::default() }
                .is(Reason::Unknown, Medium);
        }
        Trial { meaning: Meaning::Known(Reason::OutputLimit), shown, ..Trial::default() }
            .is(Reason::OutputLimit, High);
    }

    #[test]
    fn rule_5_a_call_without_arguments_is_whole_only_where_the_end_vouches_for_it() {
        let bare = Shown { bare_tool_calls: 1, ..WITH_CALL };
        let tool_word = Meaning::Known(Reason::ToolCall);
        let call = |closed, shown, habits| Trial {
            meaning: tool_word,
            closed,
            shown,
            habits,
            ..Trial::default()
        };
        call(Closed::Proven, bare, STRICT).is(Reason::ToolCall, High);
        call(Closed::Open, bare, STRICT).is(Reason::ToolCall, High);
        Trial { shown: bare, ..Trial::default() }.is(Reason::ToolCall, Medium);
        for shown in [Shown { at_cap: true, ..bare }, Shown { over_cap: true, ..bare }] {
            call(Closed::Proven, shown, STRICT).is(Reason::OutputLimit, Medium);
        }
        // A finish reason without the end marker does not confirm such a call.
        call(Closed::Eof, bare, LENIENT).is(Reason::Cut, Medium);
        Trial { shown: bare, meaning: Meaning::Known(Reason::OutputLimit), ..Trial::default() }
            .is(Reason::OutputLimit, High);
    }

    #[test]
    fn an_approval_that_is_waited_for_is_a_pause() {
        let shown = Shown { approval: true, other_content: true, ..WITH_TEXT };
        Trial { shown, ..Trial::default() }.is(Reason::Paused, High);
        let meaning = Meaning::Known(Reason::OutputLimit);
        Trial { shown, meaning, ..Trial::default() }.is(Reason::OutputLimit, High);
    }

    #[test]
    fn a_stream_that_nobody_knows_is_unknown_rather_than_cut() {
        let shown = Shown { unrecognised: true, ..Shown::default() };
        let unsaid = Trial { meaning: Meaning::Nothing, shown, ..Trial::default() };
        Trial { closed: Closed::Eof, ..unsaid }.is(Reason::Unknown, Low);
        let reset =
            Trial { meaning: Meaning::Nothing, shown, closed: Closed::Reset, ..Trial::default() };
        reset.is(Reason::Cut, High);
    }

    #[test]
    fn rule_4_a_tool_word_without_a_call_is_malformed() {
        Trial { meaning: Meaning::Known(Reason::ToolCall), ..Trial::default() }
            .is(Reason::MalformedToolCall, Medium);
        Trial { meaning: Meaning::Known(Reason::ToolCall), shown: WITH_CALL, ..Trial::default() }
            .is(Reason::ToolCall, High);
    }

    #[test]
    fn rule_4_a_refusal_field_and_a_named_stop_sequence_speak_for_themselves() {
        Trial { shown: Shown { refusal: true, ..WITH_TEXT }, ..Trial::default() }
            .is(Reason::Refused, High);
        Trial { shown: Shown { refusal: true, ..WITH_CALL }, ..Trial::default() }
            .is(Reason::Refused, High);
        Trial { shown: Shown { stop_sequence: true, ..WITH_TEXT }, ..Trial::default() }
            .is(Reason::StopSequence, High);
        // The stop sequence may have matched inside the tool call.
        Trial { shown: Shown { stop_sequence: true, ..WITH_CALL }, ..Trial::default() }
            .is(Reason::StopSequence, Medium);
    }

    #[test]
    fn rule_4_calls_without_a_name_or_beside_a_lost_event_never_run() {
        let meaning = Meaning::Known(Reason::ToolCall);
        let nameless = Shown { nameless_tool_calls: 1, ..WITH_CALL };
        let lost = Shown { malformed_event: true, ..WITH_CALL };
        for shown in [nameless, lost] {
            Trial { meaning, shown, ..Trial::default() }.is(Reason::MalformedToolCall, Medium);
            Trial { shown, ..Trial::default() }.is(Reason::MalformedToolCall, Medium);
        }
    }

    #[test]
    fn rule_4_marks_of_the_wire_overrule_a_natural_stop() {
        Trial { shown: Shown { breakdown: true, ..WITH_TEXT }, ..Trial::default() }
            .is(Reason::Failed, Medium);
        Trial { shown: Shown { guardrail: true, ..WITH_TEXT }, ..Trial::default() }
            .is(Reason::Filtered, Medium);
        Trial { shown: Shown { unfinished_content: true, ..WITH_TEXT }, ..Trial::default() }
            .is(Reason::OutputLimit, Medium);
        let shown = Shown { contradiction: true, ..WITH_TEXT };
        let meaning = Meaning::Known(Reason::OutputLimit);
        Trial { meaning, shown, ..Trial::default() }.is(Reason::OutputLimit, Medium);
    }

    #[test]
    fn rule_5_what_cannot_be_followed_is_not_vouched_for() {
        for (shown, meaning) in [
            (WITH_CALL, Reason::ToolCall),
            (WITH_TEXT, Reason::Complete),
            (WITH_TEXT, Reason::StopSequence),
        ] {
            let shown = Shown { excess: 1, ..shown };
            Trial { meaning: Meaning::Known(meaning), shown, ..Trial::default() }
                .is(Reason::Unknown, Low);
        }
        let shown = Shown { excess: 1, ..WITH_TEXT };
        let meaning = Meaning::Known(Reason::OutputLimit);
        Trial { meaning, shown, ..Trial::default() }.is(Reason::OutputLimit, High);
    }

    #[test]
    fn rule_6_vague_empty_and_guessed_are_medium_at_most() {
        Trial { meaning: Meaning::Vague(Reason::Failed), ..Trial::default() }
            .is(Reason::Failed, Medium);
        Trial { shown: Shown::default(), ..Trial::default() }.is(Reason::Complete, Medium);
        let thought = Shown { reasoning: true, ..Shown::default() };
        Trial { shown: thought, ..Trial::default() }.is(Reason::Complete, Medium);
        Trial { shown: Shown { malformed_event: true, ..WITH_TEXT }, ..Trial::default() }
            .is(Reason::Complete, Medium);
        let guessed = Habits { guessed: true, ..STRICT };
        Trial { habits: guessed, ..Trial::default() }.is(Reason::Complete, Medium);
        let ambiguous = Habits { ambiguous: true, ..guessed };
        Trial { habits: ambiguous, ..Trial::default() }.is(Reason::Complete, Low);
        Trial { habits: guessed, meaning: Meaning::Nothing, ..Trial::default() }
            .is(Reason::Unknown, Low);
    }

    #[test]
    fn rule_6_a_close_that_is_still_to_come_is_not_missing() {
        Trial { closed: Closed::Open, ..Trial::default() }.is(Reason::Complete, High);
        Trial { closed: Closed::Open, habits: LENIENT, ..Trial::default() }
            .is(Reason::Complete, High);
    }

    #[test]
    fn rule_6_a_piece_is_not_held_to_content_that_came_before_it() {
        let piece =
            |shown| Trial { shown, partial: true, closed: Closed::Open, ..Trial::default() };
        let tool_word = |shown| Trial { meaning: Meaning::Known(Reason::ToolCall), ..piece(shown) };
        let fragment = Shown {
            tool_calls: 1,
            unfinished_tool_calls: 1,
            malformed_tool_calls: 1,
            ..Shown::default()
        };
        let thought = Shown { reasoning: true, ..Shown::default() };
        piece(Shown::default()).is(Reason::Complete, High);
        piece(thought).is(Reason::Complete, High);
        tool_word(Shown::default()).is(Reason::ToolCall, High);
        tool_word(fragment).is(Reason::ToolCall, High);
        piece(fragment).is(Reason::ToolCall, Medium);
        // The content of the part still counts.
        piece(Shown { refusal: true, ..WITH_TEXT }).is(Reason::Refused, High);
        piece(Shown { at_cap: true, ..WITH_TEXT }).is(Reason::Complete, Medium);
    }

    #[test]
    fn an_error_decides_before_all_else() {
        let fault = |kind, type_: Option<&str>, message: Option<&str>| Fault {
            kind,
            type_: type_.map(str::to_owned),
            message: message.map(str::to_owned),
            ..Fault::default()
        };
        let trial = |fault| Trial {
            meaning: Meaning::Nothing,
            closed: Closed::Error,
            fault: Some(fault),
            ..Trial::default()
        };
        let server = fault(FaultKind::Server, None, Some("oops"));
        // The error overrules a finish reason of success and lowers the confidence.
        Trial { meaning: Meaning::Known(Reason::Complete), ..trial(server.clone()) }
            .is(Reason::Failed, Medium);
        Trial { meaning: Meaning::Known(Reason::Failed), ..trial(server.clone()) }
            .is(Reason::Failed, High);
        // A finish reason is more specific than an error of unknown kind, except a success.
        let vague = fault(FaultKind::Other, None, Some("oops"));
        Trial { meaning: Meaning::Known(Reason::TimedOut), ..trial(vague.clone()) }
            .is(Reason::TimedOut, High);
        Trial { meaning: Meaning::Known(Reason::Complete), ..trial(vague) }
            .is(Reason::Failed, Medium);
        // Plain text or a bare status is not the provider's own error.
        for form in [FaultForm::Text, FaultForm::Page, FaultForm::Status] {
            trial(Fault { form, ..server.clone() }).is(Reason::Failed, Medium);
        }
        trial(fault(FaultKind::Overloaded, Some("overloaded_error"), None))
            .is(Reason::Failed, High);
        trial(fault(FaultKind::Server, None, Some("oops"))).is(Reason::Failed, High);
        trial(fault(FaultKind::Server, None, None)).is(Reason::Failed, Medium);
        trial(fault(FaultKind::BadPayload, None, Some("<html>"))).is(Reason::Failed, Medium);
        let kinds = [
            (FaultKind::ContextWindow, Reason::ContextLimit),
            (FaultKind::OutputLimit, Reason::OutputLimit),
            (FaultKind::Filter, Reason::Filtered),
            (FaultKind::ToolCall, Reason::MalformedToolCall),
            (FaultKind::Timeout, Reason::TimedOut),
            (FaultKind::Cancelled, Reason::Cancelled),
            (FaultKind::Auth, Reason::Failed),
        ];
        for (kind, reason) in kinds {
            trial(fault(kind, None, Some("m"))).is(reason, High);
        }
    }

    #[test]
    fn sentences_name_what_decided() {
        let sentence = |trial: Trial| trial.verdict().sentence;
        assert_eq!(sentence(Trial::default()), "the provider said `word`");
        assert_eq!(
            sentence(Trial { meaning: Meaning::Nothing, ..Trial::default() }),
            "the response ended, but the provider gave no finish reason"
        );
        let unspecified = Said::new("finishReason", "UNSPECIFIED");
        let evidence = Evidence {
            said: Some(&unspecified),
            meaning: Meaning::Nothing,
            closed: Closed::Proven,
            shown: &WITH_TEXT,
            fault: None,
            choices: 1,
            habits: STRICT,
            partial: false,
        };
        assert_eq!(
            judge(&evidence).sentence,
            "the provider said `UNSPECIFIED`, which does not give a reason"
        );
        let shown = Shown { missing_marker: true, ..WITH_TEXT };
        let marker = Trial { closed: Closed::Eof, shown, habits: LENIENT, ..Trial::default() };
        assert_eq!(
            sentence(marker),
            "the provider said `word`; the provider's end marker is missing"
        );
        let fault = Fault {
            kind: FaultKind::Quota,
            type_: Some("t".into()),
            status: Some(429),
            ..Fault::default()
        };
        let failed = |fault| sentence(Trial { fault: Some(fault), ..Trial::default() });
        assert_eq!(
            failed(fault),
            "the provider returned an error of type `t` (HTTP 429): the quota or balance is used up"
        );
        let code = Fault { code: Some("c".into()), ..Fault::default() };
        assert_eq!(failed(code), "the provider returned an error with code `c`");
        let page = Fault {
            kind: FaultKind::BadPayload,
            form: FaultForm::Page,
            status: Some(502),
            message: Some("Bad Gateway".into()),
            ..Fault::default()
        };
        let binary = Fault { form: FaultForm::Text, message: None, ..page.clone() };
        assert_eq!(
            failed(page),
            "an HTML page came back instead of a response (HTTP 502, \"Bad Gateway\")"
        );
        assert_eq!(failed(binary), "binary data came back instead of a response (HTTP 502)");
        let cut = |shown| {
            let meaning = Meaning::Nothing;
            sentence(Trial { meaning, closed: Closed::Eof, shown, ..Trial::default() })
        };
        assert_eq!(cut(WITH_TEXT), "the stream stopped before the provider's end marker");
        assert_eq!(cut(Shown { cut_event: true, ..WITH_TEXT }), "the response was truncated");
        assert_eq!(
            cut(Shown::default()),
            "the response ended without content and without a finish reason"
        );
    }
}
