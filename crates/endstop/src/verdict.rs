//! The verdict: one pure function from what was said, how it closed and what it shows.
//!
//! The rules, in the order in which they are asked:
//!
//! 1. An error that the provider sent before the end decides.
//! 2. Without proof of the end, a response is what its close makes of it, most often `Cut`. Where
//!    the word alone is nearly proof (marker and word hosts), a word that came still counts, at
//!    medium confidence. Where the word and the end of the bytes are the proof, calls need both.
//! 3. Nothing said is `Unknown`, low. A word that we do not know is `Unknown`, medium. No arm
//!    below makes a success of either.
//! 4. Evidence overrules the word, and says so: unfinished arguments are `OutputLimit`; broken ones,
//!    calls without a name and calls beside an event that cannot be read `MalformedToolCall`; text in
//!    the refusal field is `Refused`, a named stop sequence is
//!    `StopSequence`, tokens at the cap are `OutputLimit` where the word is known to lie there.
//! 5. Tool calls upgrade only a natural stop.
//! 6. High confidence needs all three facts, agreeing.

use crate::ending::{Closed, Confidence, Reason, Said, Shown, Unreachable};
use crate::fault::{Fault, FaultForm, FaultKind};

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

impl Meaning {
    /// The reason that the word stands for.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::Nothing | Self::Unknown => Reason::Unknown,
            Self::Known(reason) | Self::Vague(reason) => reason,
        }
    }
}

/// What the profile of the host says about its endings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Habits {
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
    /// The shape fits several dialects or none.
    pub ambiguous: bool,
}

/// All that is known about the end of one choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
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
    /// Only a piece of the response was seen, so that content may have come that does not show.
    pub partial: bool,
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
pub(crate) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let Finding { reason, mut confidence, because } = vouch(find(evidence), evidence.shown);
    // What could not be read may have said otherwise, and what contradicts itself is not sure.
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

/// Choices and calls that were not followed may have ended in any way: no success vouches for them.
fn vouch(found: Finding, shown: &Shown) -> Finding {
    if shown.excess == 0 || !found.reason.is_success() {
        return found;
    }
    let because =
        format!("{}, but more choices or tool calls came than are followed", found.because);
    finding(Reason::Unknown, Confidence::Low, because)
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
        found.because.push_str("; the end marker of this host is missing");
    }
    found
}

fn from_fault(fault: &Fault, evidence: &Evidence<'_>) -> Finding {
    let name = fault.type_.as_ref().or(fault.code.as_ref());
    let named = name.map(|name| format!(" (`{name}`)")).unwrap_or_default();
    let status = fault.status.map(|status| format!(", HTTP {status}")).unwrap_or_default();
    let because = format!("the provider sent an error{named}{status}: {}", fault.kind.words());
    let reason = match evidence.meaning {
        // The word can say more than an error that says nothing.
        Meaning::Known(reason) if fault.kind == FaultKind::Other && !reason.is_success() => reason,
        Meaning::Known(_) | Meaning::Vague(_) | Meaning::Unknown | Meaning::Nothing => {
            fault.kind.reason()
        }
    };
    // A page, a text or a bare status is evidence of failure, not the provider's word on it.
    let spoken = fault.form == FaultForm::Object && (fault.message.is_some() || name.is_some());
    let overruled = matches!(evidence.meaning, Meaning::Known(said) if said.is_success());
    let sure = spoken && !overruled && fault.kind != FaultKind::BadPayload;
    finding(reason, if sure { Confidence::High } else { Confidence::Medium }, because)
}

/// The end is not proven, and no word makes up for it.
fn from_close(evidence: &Evidence<'_>) -> Finding {
    let (reason, how) = match evidence.closed {
        Closed::Eof if evidence.habits.silent => {
            return finding(Reason::Unknown, Confidence::Low, "this host never says how it ended");
        }
        Closed::Eof if evidence.shown.unrecognised => {
            let because = "no event of the stream is known, so that nobody knows how it ended";
            return finding(Reason::Unknown, Confidence::Low, because);
        }
        Closed::TimedOut(_) => {
            (Reason::TimedOut, "a time limit passed before the response was over")
        }
        Closed::ClientGone => (Reason::Cancelled, "the client left before the response was over"),
        Closed::Dropped => (Reason::Cancelled, "reading was given up before the response was over"),
        Closed::ShutDown => (Reason::Cancelled, "we shut down before the response was over"),
        // Ours, and not the provider's: it is never counted as a cut of theirs.
        Closed::Interrupted => (Reason::Cancelled, "our own process ended before the response did"),
        Closed::Reset => (Reason::Cut, "the connection broke before the response was over"),
        Closed::Truncated => {
            (Reason::Cut, "the body ended inside a chunk or short of its promised length")
        }
        Closed::Unreachable(why) => (Reason::Failed, unreachable_words(why)),
        Closed::Oversize => {
            (Reason::Cut, "an event was larger than the limit, and reading stopped there")
        }
        Closed::BrokenFrame => (Reason::Cut, "a frame was corrupt, and reading stopped there"),
        Closed::Eof | Closed::Error | Closed::Open | Closed::Proven => {
            (Reason::Cut, "the bytes ended before the response was over")
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
        Unreachable::Dns => "the provider could not be reached: its name does not resolve",
        Unreachable::Blocked => {
            "the provider could not be reached: its name resolves to an address that is not allowed"
        }
        Unreachable::Tls => {
            "the provider could not be reached: its certificate or handshake is wrong"
        }
        Unreachable::Proxy => "the provider could not be reached: the proxy on the way refused",
        Unreachable::Other => "the provider could not be reached",
    }
}

fn from_word(evidence: &Evidence<'_>) -> Finding {
    let word = evidence.said.map_or("", |said| said.word.as_str());
    match evidence.meaning {
        Meaning::Nothing if is_at_cap(evidence) && evidence.shown.text => finding(
            Reason::OutputLimit,
            Confidence::Low,
            "nothing was said about why, and all the output tokens allowed were used",
        ),
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
        Meaning::Vague(Reason::Complete) if is_at_cap(evidence) && evidence.shown.text => finding(
            Reason::OutputLimit,
            Confidence::Low,
            format!("{}, which is vague, and all the output tokens allowed were used", said(word)),
        ),
        Meaning::Vague(reason) if reason.is_success() && evidence.shown.tool_calls > 0 => finding(
            Reason::Unknown,
            Confidence::Medium,
            format!("{}, which is too vague to vouch for its tool calls", said(word)),
        ),
        Meaning::Vague(reason) => {
            let Finding { reason, confidence, because } = from_reason(reason, word, evidence);
            finding(reason, confidence.min(Confidence::Medium), format!("{because} (a vague word)"))
        }
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
    if shown.approval {
        let because = format!("{}, and waits for an approval", said(word));
        return finding(Reason::Paused, Confidence::High, because);
    }
    if shown.refusal {
        return finding(
            Reason::Refused,
            Confidence::High,
            format!("{}, and the answer is a refusal", said(word)),
        );
    }
    if shown.breakdown {
        let because = format!("{}, but its engine broke down", said(word));
        return finding(Reason::Failed, Confidence::Medium, because);
    }
    if shown.guardrail {
        let because = format!("{}, but a guardrail stepped in", said(word));
        return finding(Reason::Filtered, Confidence::Medium, because);
    }
    if shown.unfinished_content {
        let because = format!("{}, but a part of the answer is marked incomplete", said(word));
        return finding(Reason::OutputLimit, Confidence::Medium, because);
    }
    if (reason == Reason::StopSequence || shown.stop_sequence) && shown.tool_calls > 0 {
        // A caller's stop sequence cuts whatever it stands in.
        let because =
            format!("{}, at a stop sequence that may have cut its tool calls", said(word));
        return finding(Reason::StopSequence, Confidence::Medium, because);
    }
    let calls = shown.tool_calls > 0;
    if is_at_cap(evidence) && habits.lies_at_cap && !calls {
        let because = format!(
            "{}, but all the output tokens allowed were used, and this host says that of cut answers too",
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
        let because = format!("{}, though all the output tokens allowed were used", said(word));
        return finding(reason, Confidence::Medium, because);
    }
    if shown.is_reasoning_only() && !evidence.partial {
        let because = format!("{}, though nothing but reasoning came", said(word));
        return finding(reason, Confidence::Medium, because);
    }
    if shown.is_empty() && !evidence.partial {
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
    if shown.tool_calls == 0 && evidence.partial {
        return finding(Reason::ToolCall, Confidence::High, said(word));
    }
    if shown.tool_calls == 0 {
        return finding(
            Reason::MalformedToolCall,
            Confidence::Medium,
            format!("{}, but no tool call came", said(word)),
        );
    }
    from_calls(word, evidence, Confidence::High)
}

/// All the output tokens allowed were used, by the one choice there is.
fn is_at_cap(evidence: &Evidence<'_>) -> bool {
    (evidence.shown.at_cap || evidence.shown.over_cap) && evidence.choices <= 1
}

/// Nothing but the word says that a call without arguments is whole: that is enough where the end is
/// proven, or still to come, and the output was not cut by the cap.
fn from_bare_calls(word: &str, evidence: &Evidence<'_>) -> Option<Finding> {
    let (reason, why) = if evidence.shown.at_cap || evidence.shown.over_cap {
        (Reason::OutputLimit, "all the output tokens allowed were used")
    } else if !matches!(evidence.closed, Closed::Proven | Closed::Open) {
        (Reason::Cut, "the end marker of this host is missing")
    } else {
        return None;
    };
    let because = format!("{}, but a tool call has no arguments and {why}", said(word));
    Some(finding(reason, Confidence::Medium, because))
}

/// Calls after a word that lets them stand.
fn from_calls(word: &str, evidence: &Evidence<'_>, confidence: Confidence) -> Finding {
    let shown = evidence.shown;
    // The rest of the arguments came before.
    if evidence.partial {
        return finding(Reason::ToolCall, confidence, said(word));
    }
    if shown.malformed_event {
        let because =
            format!("{}, but an event that cannot be read may hold a part of it", said(word));
        return finding(Reason::MalformedToolCall, Confidence::Medium, because);
    }
    if shown.nameless_tool_calls > 0 {
        let because = format!("{}, but a tool call has no name", said(word));
        return finding(Reason::MalformedToolCall, Confidence::Medium, because);
    }
    if shown.malformed_tool_calls > 0 {
        return finding(
            Reason::MalformedToolCall,
            Confidence::Medium,
            format!("{}, but the arguments of a tool call are not a JSON object", said(word)),
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
    // More tokens than the cap are no evidence: some hosts count reasoning apart.
    if shown.at_cap {
        let because = format!(
            "{}, with whole tool calls, though all the output tokens allowed were used",
            said(word)
        );
        return finding(Reason::ToolCall, Confidence::Medium, because);
    }
    finding(Reason::ToolCall, confidence, format!("{}, and the tool calls are whole", said(word)))
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
        nameless_tool_calls: 0,
        bare_tool_calls: 0,
        approval: false,
        stop_sequence: false,
        unfinished_content: false,
        guardrail: false,
        breakdown: false,
        contradiction: false,
        at_cap: false,
        over_cap: false,
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
    const STRICT: Habits = Habits {
        word_suffices: false,
        silent: false,
        has_tool_word: true,
        lies_at_cap: false,
        guessed: false,
        ambiguous: false,
    };
    const LENIENT: Habits = Habits { word_suffices: true, ..STRICT };

    /// One judgement, told in one line.
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
            // An event wire that said its word and did not prove its end is cut all the same.
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
        // Not by a stop sequence, which cuts whatever it stands in.
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
            // More than the cap is no evidence: some hosts count reasoning apart.
            Trial { shown: over(call), meaning: tool_word, habits, ..Trial::default() }
                .is(Reason::ToolCall, High);
            let cut = Shown { unfinished_tool_calls: 1, ..call };
            Trial { shown: cut, meaning: tool_word, habits, ..Trial::default() }
                .is(Reason::OutputLimit, Medium);
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
        // It vouches for no call.
        Trial { meaning: vague, shown: WITH_CALL, ..Trial::default() }.is(Reason::Unknown, Medium);
        Trial { meaning: vague, ..at(Shown { at_cap: true, ..WITH_TEXT }) }
            .is(Reason::OutputLimit, Low);
        // Several choices share the count.
        Trial { choices: 2, ..at(Shown { at_cap: true, ..WITH_TEXT }) }.is(Reason::Unknown, Low);
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
        // Hosts whose word nearly proves the end: not for this.
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
        // A caller's stop sequence cuts whatever it stands in.
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
        // What shows in it still counts.
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
        // It overrules a word that says otherwise, and is less sure for it.
        Trial { meaning: Meaning::Known(Reason::Complete), ..trial(server.clone()) }
            .is(Reason::Failed, Medium);
        Trial { meaning: Meaning::Known(Reason::Failed), ..trial(server.clone()) }
            .is(Reason::Failed, High);
        // A word says more than an error of no kind, unless it says that all is well.
        let vague = fault(FaultKind::Other, None, Some("oops"));
        Trial { meaning: Meaning::Known(Reason::TimedOut), ..trial(vague.clone()) }
            .is(Reason::TimedOut, High);
        Trial { meaning: Meaning::Known(Reason::Complete), ..trial(vague) }
            .is(Reason::Failed, Medium);
        // A text or a bare status is evidence, not the provider's word.
        for form in [FaultForm::Text, FaultForm::Status] {
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
            "the response is over, and nothing was said about why"
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
            "the provider said `UNSPECIFIED`, which says nothing"
        );
        let shown = Shown { missing_marker: true, ..WITH_TEXT };
        let marker = Trial { closed: Closed::Eof, shown, habits: LENIENT, ..Trial::default() };
        assert_eq!(
            sentence(marker),
            "the provider said `word`; the end marker of this host is missing"
        );
        let fault = Fault {
            kind: FaultKind::Quota,
            type_: Some("t".into()),
            status: Some(429),
            ..Fault::default()
        };
        assert_eq!(
            sentence(Trial { fault: Some(fault), ..Trial::default() }),
            "the provider sent an error (`t`), HTTP 429: the quota or balance is used up"
        );
    }
}
