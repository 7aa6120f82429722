//! Builds the ending of a response from the facts that were read.

use std::cmp::Ordering;

use crate::dialect::errors::RawError;
use crate::dialect::{CallsClose, Proof};
use crate::ending::{ChoiceEnding, Closed, Confidence, Ending, Reason, Said, Shown, TransportEnd};
use crate::facts::Choice;
use crate::fault::{Fault, FaultForm};
use crate::frame::Broken;
use crate::provider::Profile;
use crate::reader::State;
use crate::repeat::Repeat;
use crate::verdict::{self, Evidence, Habits, Meaning};

impl State {
    /// Copies the state without the template of the fast path, which can be as large as an event.
    pub(crate) fn snapshot(&self) -> Self {
        Self {
            wire: self.wire.clone(),
            request: self.request.clone(),
            limits: self.limits.clone(),
            facts: self.facts.clone(),
            repeat: Repeat::default(),
            named: None,
            strange: None,
            ..*self
        }
    }

    pub(crate) fn ending(self, close: TransportEnd) -> Ending {
        self.ending_as(None, close)
    }

    /// Returns the ending. `closed` overrides the value that follows from the transport.
    pub(crate) fn ending_as(mut self, closed: Option<Closed>, close: TransportEnd) -> Ending {
        if self.is_error_status() && self.facts.fault.is_none() {
            let fault = judge_fault(RawError::default(), self.status, &self.wire.profile);
            self.facts.fault = Some(Fault { form: FaultForm::Status, ..fault });
        }
        let closed = closed.unwrap_or_else(|| self.closed(close));
        self.add_missing_choices(closed);
        let shown = |choice: &Choice| self.shown(choice, closed, close);
        let mut choices: Vec<ChoiceEnding> = self
            .facts
            .choices
            .iter()
            .map(|choice| self.judge(choice, shown(choice), closed))
            .collect();
        let worst = choices.iter().enumerate().max_by_key(|(index, choice)| {
            (choice.reason, std::cmp::Reverse(choice.confidence), std::cmp::Reverse(*index))
        });
        let worst = worst.map(|(_, choice)| choice.clone());
        let worst = worst.unwrap_or_else(|| {
            let nothing = Choice::default();
            let judged = self.judge(&nothing, shown(&nothing), closed);
            choices.push(judged.clone());
            judged
        });
        let ChoiceEnding { said, shown, reason, confidence, sentence, .. } = worst;
        let mut ending = Ending {
            provider: self.wire.provider().to_owned(),
            dialect: self.wire.profile.dialect.id.into(),
            model: self.facts.model.take().or(self.request.model.take()),
            said,
            closed,
            shown,
            reason,
            confidence,
            sentence,
            over: true,
            fault: self.facts.fault.take(),
            usage: self.facts.usage,
            choices,
            details: std::mem::take(&mut self.facts.details),
            ratings: std::mem::take(&mut self.facts.ratings),
            streamed: self.request.streamed,
            api_version: self.wire.api_version().map(str::to_owned),
            cap: self.request.cap,
            bytes: self.bytes,
            events: self.events,
        };
        if let Some(pending) = self.facts.pending.take() {
            not_over(&mut ending, pending);
        }
        ending
    }

    /// Returns the way the bytes ended. Earlier checks take precedence.
    fn closed(&self, close: TransportEnd) -> Closed {
        if self.facts.fault.is_some() {
            return Closed::Error;
        }
        if self.facts.proven {
            return Closed::Proven;
        }
        match self.broken {
            Some(Broken::Oversize) => return Closed::Oversize,
            Some(Broken::Corrupt) => return Closed::BrokenFrame,
            None => {}
        }
        match self.wire.profile.proof {
            Proof::Word
                if close == TransportEnd::Eof
                    && self.facts.all_said()
                    && !self.flags.cut_event
                    && !self.facts.any_went_on()
                    && self.has_all_choices() =>
            {
                Closed::Proven
            }
            Proof::Word | Proof::Marker(_) | Proof::Event | Proof::Silent => Closed::from(close),
        }
    }

    /// Reports whether all requested choices came.
    fn has_all_choices(&self) -> bool {
        let asked = self.request.choices.map_or(0, |asked| asked as usize);
        self.facts.choices.len() >= asked.min(self.limits.choices)
    }

    /// Adds requested choices that never came, unless an end marker or an error ended the response.
    fn add_missing_choices(&mut self, closed: Closed) {
        let Some(asked) = self.request.choices else { return };
        if matches!(closed, Closed::Proven | Closed::Error | Closed::Open) {
            return;
        }
        for index in 0..asked.min(u32::try_from(self.limits.choices).unwrap_or(u32::MAX)) {
            self.facts.choice_mut(index, &self.limits);
        }
    }

    fn shown(&self, choice: &Choice, closed: Closed, close: TransportEnd) -> Shown {
        let proven = closed == Closed::Proven;
        let said = choice.said.is_some();
        let gone = matches!(close, TransportEnd::ClientGone | TransportEnd::Dropped);
        Shown {
            at_cap: self.used_of_cap() == Some(Ordering::Equal),
            over_cap: self.used_of_cap() == Some(Ordering::Greater),
            context_full: self.is_context_full(),
            unrecognised: self.is_unrecognised(),
            missing_marker: !matches!(closed, Closed::Proven | Closed::Error | Closed::Open)
                && said
                && self.word_suffices(choice, closed),
            cut_event: self.flags.cut_event,
            malformed_event: self.flags.malformed_event,
            invalid_utf8: self.flags.invalid_utf8,
            guardrail: self.facts.guardrail,
            late_event: self.facts.late_event,
            client_closed_early: gone && (proven || said && self.word_suffices(choice, closed)),
            excess: self.facts.excess,
            ..choice.shown()
        }
    }

    fn judge(&self, choice: &Choice, shown: Shown, closed: Closed) -> ChoiceEnding {
        let verdict = verdict::judge(&Evidence {
            said: choice.said.as_ref(),
            meaning: choice.meaning.unwrap_or(Meaning::Nothing),
            closed,
            shown: &shown,
            fault: self.facts.fault.as_ref(),
            choices: self.facts.choices.len(),
            habits: Habits::of(&self.wire.profile, self.word_suffices(choice, closed)),
            partial: self.flags.partial,
        });
        ChoiceEnding {
            index: choice.index,
            said: choice.said.clone(),
            shown,
            reason: verdict.reason,
            confidence: verdict.confidence,
            sentence: verdict.sentence,
        }
    }

    /// Reports whether the finish reason of a choice makes up for a missing end marker. A success
    /// does not if the list of events was never closed, or if reading stopped before the end: the part
    /// that was not read can hold anything.
    fn word_suffices(&self, choice: &Choice, closed: Closed) -> bool {
        let proof = self.wire.profile.proof;
        let unread = self.flags.unclosed_list || self.broken.is_some();
        let whole = !(unread && choice.says_success());
        whole && choice.word_suffices(proof, closed, self.flags.cut_event)
    }

    /// Reports whether the response has complete events, and none belongs to a known wire.
    fn is_unrecognised(&self) -> bool {
        let read = self.understood || self.facts.fault.is_some() || self.facts.proven;
        self.events > 0 && !read && !self.flags.malformed_event
    }

    /// Reports whether prompt and answer fill the context, if its size is known.
    fn is_context_full(&self) -> bool {
        let profile = &self.wire.profile;
        let Some(context) = profile.quirks.context_tokens else { return false };
        let input = profile.input_tokens(&self.facts.usage);
        let output = profile.output_tokens(&self.facts.usage);
        input.zip(output).is_some_and(|(input, output)| input.saturating_add(output) >= context)
    }

    /// Compares the output token count with the limit of the request.
    fn used_of_cap(&self) -> Option<Ordering> {
        let usage = &self.facts.usage;
        let beside = usage.reasoning.filter(|_| self.wire.profile.quirks.reasoning_beside_output);
        let used = match (usage.output, beside) {
            (None, None) => return None,
            (output, beside) => output.unwrap_or(0).saturating_add(beside.unwrap_or(0)),
        };
        self.request.cap.filter(|cap| *cap > 0).map(|cap| used.cmp(&cap))
    }
}

impl Habits {
    /// Returns the habits of a profile. `word_suffices` depends on the response too.
    pub(crate) fn of(profile: &Profile, word_suffices: bool) -> Self {
        Self {
            word_suffices,
            silent: profile.proof == Proof::Silent,
            has_tool_word: profile.has_tool_word(),
            confirms_calls: profile.dialect.calls_close == CallsClose::ByEvent,
            lies_at_cap: profile.quirks.lies_at_cap,
            guessed: profile.guessed,
            ambiguous: profile.ambiguous,
        }
    }
}

/// Turns the ending of a pending polled body into its current state.
fn not_over(ending: &mut Ending, pending: Said) {
    ending.over = false;
    ending.reason = Reason::Unknown;
    ending.confidence = Confidence::High;
    ending.sentence =
        format!("the response is not finished: `{}` is `{}`", pending.field, pending.word);
    ending.said = Some(pending);
}

pub(crate) fn judge_fault(mut told: RawError, status: u16, profile: &Profile) -> Fault {
    let rejected = status >= 300;
    if rejected {
        told.status = Some(status);
    }
    Fault { rejected, ..told.judge(&[profile.error_patterns, profile.dialect.error_patterns]) }
}
