//! The facts about a response as far as it has come: what the events so far add up to.

use std::hash::{DefaultHasher, Hasher as _};

use crate::dialect::partial_args::{PartialArgs, Piece};
use crate::dialect::{CallsClose, Proof, Wins};
use crate::ending::{Closed, Detail, Reason, SafetyRating, Said, Shown, Usage};
use crate::event::{Event, Word};
use crate::fault::Fault;
use crate::json::{JsonState, Scanner, is_space};
use crate::provider::Wire;
use crate::text::{DETAIL_CAP, WORD_CAP, clean};
use crate::verdict::Meaning;
use crate::{ChoiceMark, Limits};

/// The most details that are kept of one response.
const MAX_DETAILS: usize = 64;

/// The most items of one choice that are told apart.
const MAX_ITEMS: usize = 1024;

/// The most safety ratings that are kept of one response.
const MAX_RATINGS: usize = 64;

/// What is known so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Usage,
    pub(crate) fault: Option<Fault>,
    pub(crate) proven: bool,
    pub(crate) pending: Option<Said>,
    pub(crate) details: Vec<Detail>,
    pub(crate) ratings: Vec<SafetyRating>,
    pub(crate) model: Option<String>,
    /// The frame at hand came after the proof of the end.
    pub(crate) past_end: bool,
    pub(crate) late_event: bool,
    pub(crate) excess: u32,
    begun: bool,
}

/// What is known of one choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) index: u32,
    pub(crate) said: Option<Said>,
    pub(crate) meaning: Option<Meaning>,
    text: bool,
    reasoning: bool,
    refusal: bool,
    other_content: bool,
    /// Content came after the word, and no word since.
    pub(crate) went_on: bool,
    marks: Marks,
    calls: Vec<Call>,
    growing_text: Growing,
    growing_reasoning: Growing,
    /// The items that content came of, on wires that number theirs.
    items: Vec<u32>,
}

/// What a wire says of a choice besides its word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// The provider named the stop sequence that matched.
    pub(crate) stop_sequence: bool,
    /// A part of the answer is marked as incomplete.
    pub(crate) unfinished_content: bool,
    /// A guardrail stepped in.
    pub(crate) guardrail: bool,
    /// The host's engine broke down.
    pub(crate) breakdown: bool,
    /// The provider said two things that exclude each other.
    pub(crate) contradiction: bool,
    /// The provider waits for an approval before it runs a tool of its own.
    pub(crate) approval: bool,
}

/// What is known of one tool call.
#[derive(Clone, Debug)]
struct Call {
    number: u32,
    /// The id's hash: ids have no bound, and are only compared. None for an empty one.
    id: Option<u64>,
    arguments: Scanner,
    /// A piece of the arguments came, if of nothing but white space.
    has_arguments: bool,
    /// Of the arguments so far.
    sum: Sum,
    growing: Growing,
    /// The arguments are JSON of another kind than an object.
    odd: bool,
    /// No arguments came, and an empty object stands in for them.
    bare: bool,
    /// The arguments may be `null` so far: the bytes of it that came.
    null: Option<u8>,
    /// The provider runs the tool itself.
    by_provider: bool,
    /// The arguments come as values at paths.
    partial: Option<Box<PartialArgs>>,
    /// The tool takes free text, which has no end of its own to look for.
    takes_text: bool,
    /// The name's hash; none until one came.
    name: Option<u64>,
    /// Two names were said of it, its arguments were told in two ways, or a part of it is unreadable.
    conflict: bool,
    closed: bool,
}

/// Kinds of content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) text: bool,
    pub(crate) reasoning: bool,
    pub(crate) refusal: bool,
}

/// A sum over text that comes in pieces, by which two texts can be told apart without keeping them:
/// FNV-1a. White space is left out, since hosts write JSON anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    fn add(self, text: &str) -> Self {
        let bytes = text.bytes().filter(|byte| !is_space(*byte));
        Self(bytes.fold(self.0, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

/// A text of which every event tells all so far, or only what is new: the second event decides.
#[derive(Clone, Copy, Debug, Default)]
struct Growing {
    length: usize,
    sum: Sum,
    /// Every event tells all so far.
    whole: Option<bool>,
}

impl Growing {
    /// What an event brings that is new.
    fn news<'t>(&mut self, told: &'t str) -> &'t str {
        let known = told.get(..self.length);
        let extends = known.is_some_and(|known| Sum::default().add(known) == self.sum);
        if self.length > 0 && !told.is_empty() {
            self.whole.get_or_insert(extends);
        }
        let news = match self.whole {
            Some(true) if extends => told.get(self.length..).unwrap_or_default(),
            Some(_) | None => told,
        };
        self.length += news.len();
        self.sum = self.sum.add(news);
        news
    }
}

fn hash(id: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write(id.as_bytes());
    (!id.is_empty()).then(|| hasher.finish())
}

impl Facts {
    /// Takes an event in. False if it tells nothing new and need not be passed on.
    pub(crate) fn observe(&mut self, event: &Event<'_>, wire: &Wire, limits: &Limits) -> bool {
        match event {
            Event::Begin { id, model } => return self.begin(id, model),
            Event::Text { choice, .. } => {
                self.content(*choice, limits, |choice| choice.text = true);
            }
            Event::Reasoning { choice, .. } => {
                self.content(*choice, limits, |choice| choice.reasoning = true);
            }
            Event::Refusal { choice, .. } => {
                self.content(*choice, limits, |choice| choice.refusal = true);
            }
            Event::OtherContent { choice, .. } => {
                self.content(*choice, limits, |choice| choice.other_content = true);
            }
            Event::ToolCallStart { choice, call, id, name } => {
                self.start_call(*choice, *call, id, name, limits);
            }
            Event::ToolCallTakesText { choice, call } => {
                if let Some(call) = self.call_mut(*choice, *call) {
                    call.takes_text = true;
                }
            }
            Event::ToolCallByProvider { choice, call } => {
                if let Some(call) = self.call_mut(*choice, *call) {
                    call.by_provider = true;
                }
            }
            Event::ToolCallDelta { choice, call, arguments } => {
                self.late_event |= self.past_end;
                // A call that was never begun is one all the same, if one without a name.
                if self.call(*choice, *call).is_none() {
                    self.start_call(*choice, *call, "", "", limits);
                }
                if let Some(call) = self.call_mut(*choice, *call) {
                    call.push(arguments);
                }
            }
            Event::ToolCallEnd { choice, call } => {
                // Hosts give one number to several calls: the newest that is open is meant.
                let of = self.choices.iter_mut().filter(|known| known.index == *choice);
                let mut calls = of.flat_map(|known| known.calls.iter_mut().rev());
                let open = calls.find(|known| known.number == *call && !known.closed);
                open.into_iter().for_each(|known| known.closed = true);
            }
            Event::Usage(usage) => self.usage.update(usage),
            Event::Word { choice, field, word } => self.word(*choice, field, word, wire, limits),
            Event::Pending { field, word } => {
                self.pending = Some(Said::new(*field, clean(word, WORD_CAP)));
            }
            Event::ResumeToken { .. } => {}
            Event::Proof => self.prove(wire),
            Event::Fault(fault) => self.fault(fault),
            Event::Safety(rating) => self.rate(rating),
            Event::Detail { choice, key, value } => self.detail(*choice, key, value),
        }
        true
    }

    /// Every choice that came has its word.
    pub(crate) fn all_said(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.said.is_some())
    }

    pub(crate) fn any_said(&self) -> bool {
        self.choices.iter().any(|choice| choice.said.is_some())
    }

    /// Something came that tells of an answer.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun || !self.choices.is_empty() || self.proven || self.pending.is_some()
    }

    /// A call that the caller is to run has begun.
    pub(crate) fn has_calls(&self) -> bool {
        self.choices.iter().any(|choice| choice.own_calls().next().is_some())
    }

    /// A choice is there, if without content so far.
    pub(crate) fn choice_mut(&mut self, index: u32, limits: &Limits) -> Option<&mut Choice> {
        let position = match self.choices.get(index as usize) {
            Some(choice) if choice.index == index => index as usize,
            _ => match self.choices.iter().position(|choice| choice.index == index) {
                Some(position) => position,
                None if self.choices.len() >= limits.choices => {
                    self.excess = self.excess.saturating_add(1);
                    return None;
                }
                None => {
                    self.choices.push(Choice { index, ..Choice::default() });
                    self.choices.len() - 1
                }
            },
        };
        self.choices.get_mut(position)
    }

    /// The marks of a choice, to set one.
    pub(crate) fn marks_mut(&mut self, index: u32, limits: &Limits) -> Option<&mut Marks> {
        self.choice_mut(index, limits).map(|choice| &mut choice.marks)
    }

    pub(crate) fn has_content(&self, index: u32) -> bool {
        self.choice(index).is_some_and(|choice| {
            choice.text
                || choice.reasoning
                || choice.refusal
                || choice.other_content
                || !choice.calls.is_empty()
        })
    }

    pub(crate) fn has_any_content(&self) -> bool {
        self.choices.iter().any(|choice| self.has_content(choice.index))
    }

    pub(crate) fn has_call(&self, index: u32, number: u32) -> bool {
        self.call(index, number).is_some()
    }

    pub(crate) fn has_arguments(&self, index: u32, number: u32) -> bool {
        self.call(index, number).is_some_and(|call| call.has_arguments)
    }

    /// Content came after the word of a choice, and no word since.
    pub(crate) fn any_went_on(&self) -> bool {
        self.choices.iter().any(|choice| choice.went_on)
    }

    /// The caller would take a call without arguments for one with an empty object.
    pub(crate) fn note_bare(&mut self, index: u32, number: u32) {
        if let Some(call) = self.call_mut(index, number) {
            call.bare = true;
        }
    }

    /// What is new in a text, where events may tell all of it so far.
    pub(crate) fn new_text<'t>(&mut self, index: u32, told: &'t str, limits: &Limits) -> &'t str {
        self.choice_mut(index, limits).map_or(told, |choice| choice.growing_text.news(told))
    }

    /// The same for reasoning.
    pub(crate) fn new_reasoning<'t>(
        &mut self,
        index: u32,
        told: &'t str,
        limits: &Limits,
    ) -> &'t str {
        self.choice_mut(index, limits).map_or(told, |choice| choice.growing_reasoning.news(told))
    }

    /// The same for the arguments of a call.
    pub(crate) fn new_arguments<'t>(&mut self, index: u32, call: u32, told: &'t str) -> &'t str {
        self.call_mut(index, call).map_or(told, |call| call.growing.news(told))
    }

    /// The kinds of content that a choice has.
    pub(crate) fn kinds(&self, index: u32) -> Kinds {
        self.choice(index).map_or_else(Kinds::default, |choice| Kinds {
            text: choice.text,
            reasoning: choice.reasoning,
            refusal: choice.refusal,
        })
    }

    /// Content of this item of the choice came.
    pub(crate) fn note_item(&mut self, index: u32, item: u32, limits: &Limits) {
        let Some(choice) = self.choice_mut(index, limits) else { return };
        if choice.items.last() != Some(&item)
            && choice.items.len() < MAX_ITEMS
            && !choice.items.contains(&item)
        {
            choice.items.push(item);
        }
    }

    pub(crate) fn has_item(&self, index: u32, item: u32) -> bool {
        self.choice(index).is_some_and(|choice| choice.items.contains(&item))
    }

    /// Holds arguments that are told once more against those that came.
    pub(crate) fn compare_arguments(&mut self, index: u32, number: u32, told: &str) {
        if let Some(call) = self.call_mut(index, number) {
            call.conflict |= call.sum != Sum::default().add(told);
        }
    }

    pub(crate) fn reopen_call(&mut self, index: u32, number: u32) {
        if let Some(call) = self.call_mut(index, number) {
            call.closed = false;
        }
    }

    /// Something of this call came that nobody can read.
    pub(crate) fn spoil_call(&mut self, index: u32, number: u32, limits: &Limits) {
        if self.call(index, number).is_none() {
            self.start_call(index, number, "", "", limits);
        }
        if let Some(call) = self.call_mut(index, number) {
            call.conflict = true;
        }
    }

    /// The calls that are still open: in this choice, or in all of them.
    pub(crate) fn open_calls(&self, index: Option<u32>) -> Vec<(u32, u32)> {
        let choices =
            self.choices.iter().filter(|choice| index.is_none_or(|index| choice.index == index));
        choices
            .flat_map(|choice| choice.calls.iter().map(move |call| (choice.index, call)))
            .filter(|(_, call)| !call.closed)
            .map(|(choice, call)| (choice, call.number))
            .collect()
    }

    /// The newest call, if it is still open.
    pub(crate) fn open_call(&self, index: u32) -> Option<u32> {
        self.choice(index)?.calls.last().filter(|call| !call.closed).map(|call| call.number)
    }

    pub(crate) fn is_open_call(&self, index: u32, number: u32) -> bool {
        self.call(index, number).is_some_and(|call| !call.closed)
    }

    /// Takes pieces of arguments in that come at paths.
    pub(crate) fn push_partial(&mut self, index: u32, number: u32, pieces: &[Piece<'_>]) {
        if let Some(call) = self.call_mut(index, number) {
            let partial = call.partial.get_or_insert_default();
            pieces.iter().for_each(|piece| partial.push(piece));
        }
    }

    pub(crate) fn partial(&self, index: u32, number: u32) -> Option<&PartialArgs> {
        self.call(index, number)?.partial.as_deref()
    }

    /// The calls before this one that take free text.
    pub(crate) fn text_calls(&self, index: u32) -> Vec<u32> {
        let calls = self.choice(index).map(|choice| choice.calls.as_slice()).unwrap_or_default();
        calls.iter().filter(|call| call.takes_text).map(|call| call.number).collect()
    }

    /// The number of the call with this id.
    pub(crate) fn call_of_id(&self, index: u32, id: &str) -> Option<u32> {
        let (id, calls) = (hash(id)?, &self.choice(index)?.calls);
        calls.iter().rev().find(|call| call.id == Some(id)).map(|call| call.number)
    }

    /// The number of the next call, on wires that do not number theirs.
    pub(crate) fn next_call(&self, index: u32) -> u32 {
        let count = self.choice(index).map_or(0, |choice| choice.calls.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn choice(&self, index: u32) -> Option<&Choice> {
        match self.choices.get(index as usize) {
            Some(choice) if choice.index == index => Some(choice),
            _ => self.choices.iter().find(|choice| choice.index == index),
        }
    }

    fn call(&self, index: u32, number: u32) -> Option<&Call> {
        self.choice(index)?.calls.iter().rev().find(|call| call.number == number)
    }

    fn call_mut(&mut self, index: u32, number: u32) -> Option<&mut Call> {
        let position = self.choices.iter().position(|choice| choice.index == index)?;
        let choice = self.choices.get_mut(position)?;
        choice.calls.iter_mut().rev().find(|call| call.number == number)
    }

    fn begin(&mut self, id: &str, model: &str) -> bool {
        if self.begun || id.is_empty() && model.is_empty() {
            return false;
        }
        self.begun = true;
        if !id.is_empty() {
            self.detail(None, "id", id);
        }
        self.model = (!model.is_empty()).then(|| clean(model, WORD_CAP));
        true
    }

    fn content(&mut self, index: u32, limits: &Limits, set: impl FnOnce(&mut Choice)) {
        self.late_event |= self.past_end;
        if let Some(choice) = self.choice_mut(index, limits) {
            choice.went_on = choice.said.is_some();
            set(choice);
        }
    }

    fn start_call(&mut self, index: u32, number: u32, id: &str, name: &str, limits: &Limits) {
        self.late_event |= self.past_end;
        let calls: usize = self.choices.iter().map(|choice| choice.calls.len()).sum();
        let Some(choice) = self.choice_mut(index, limits) else { return };
        choice.went_on = choice.said.is_some();
        let (id, name) = (hash(id), hash(name));
        // The same call again, as hosts send that repeat its head in every piece.
        let known = choice.calls.iter_mut().rev().find(|call| call.number == number);
        if let Some(call) = known
            && call.takes_head(id, name)
        {
            return;
        }
        if calls >= limits.tool_calls {
            self.excess = self.excess.saturating_add(1);
            return;
        }
        choice.calls.push(Call {
            number,
            id,
            arguments: Scanner::default(),
            has_arguments: false,
            sum: Sum::default(),
            growing: Growing::default(),
            odd: false,
            bare: false,
            null: Some(0),
            by_provider: false,
            partial: None,
            takes_text: false,
            name,
            conflict: false,
            closed: false,
        });
    }

    fn word(
        &mut self,
        index: u32,
        field: &'static str,
        word: &Word<'_>,
        wire: &Wire,
        limits: &Limits,
    ) {
        if self.past_end {
            self.late_event = true;
            return;
        }
        let Some(choice) = self.choice_mut(index, limits) else { return };
        choice.went_on = false;
        if wire.profile.dialect.calls_close == CallsClose::ByWord {
            choice.calls.iter_mut().for_each(|call| call.closed = true);
        }
        choice.say(
            Said::new(field, clean(&word.to_text(), WORD_CAP)),
            wire.meaning(field, word),
            wire.profile.dialect.wins,
        );
    }

    /// Takes in a word that was handed over beside the frames. Where a frame said one too, the less
    /// complete of the two counts; a word that is in no table says nothing against one that is.
    pub(crate) fn say(&mut self, index: u32, said: Said, meaning: Meaning, limits: &Limits) {
        let Some(choice) = self.choice_mut(index, limits) else { return };
        // The same word again, which its own field has given its meaning.
        if choice.said.as_ref().is_some_and(|known| known.word == said.word) {
            return;
        }
        let says = |meaning: &Meaning| meaning.reason() != Reason::Unknown;
        let counts = match choice.meaning {
            None => true,
            Some(_) if !says(&meaning) => choice.said.is_none(),
            Some(known) if !says(&known) => true,
            Some(known) => {
                let (old, new) = (known.reason(), meaning.reason());
                choice.marks.contradiction |= old.is_success() != new.is_success();
                new > old || new == old && known == Meaning::Vague(old)
            }
        };
        if counts {
            choice.said = Some(said);
            choice.meaning = Some(meaning);
        }
    }

    /// Nothing in this rating is new; one that blocked is not taken back.
    pub(crate) fn is_rated(&self, rating: &SafetyRating) -> bool {
        match self.ratings.iter().find(|known| known.is_of(rating)) {
            Some(known) => known == rating || known.blocked && !rating.blocked,
            None => self.ratings.len() >= MAX_RATINGS,
        }
    }

    fn rate(&mut self, rating: &SafetyRating) {
        if self.is_rated(rating) {
            return;
        }
        match self.ratings.iter_mut().find(|known| known.is_of(rating)) {
            Some(known) => known.clone_from(rating),
            None => self.ratings.push(rating.clone()),
        }
    }

    fn prove(&mut self, wire: &Wire) {
        self.proven = true;
        // Where no event closes a call, the end of the response does.
        if wire.profile.dialect.calls_close == CallsClose::ByWord {
            let calls = self.choices.iter_mut().flat_map(|choice| &mut choice.calls);
            calls.for_each(|call| call.closed = true);
        }
    }

    fn fault(&mut self, fault: &Fault) {
        if self.past_end {
            self.late_event = true;
        } else if self.fault.is_none() {
            self.fault = Some(fault.clone());
        }
    }

    fn detail(&mut self, choice: Option<u32>, key: &'static str, value: &str) {
        if value.is_empty() {
            return;
        }
        let value = clean(value, DETAIL_CAP);
        let full = self.details.len() >= MAX_DETAILS;
        let known =
            self.details.iter_mut().find(|known| known.choice == choice && known.key == key);
        match known {
            Some(known) => known.value = value,
            None if full => {}
            None => self.details.push(Detail { choice, key: key.into(), value }),
        }
    }
}

impl Choice {
    /// Takes a word in. Of two different things that are said, the least complete counts, but for
    /// fields that only tell more.
    fn say(&mut self, said: Said, meaning: Meaning, wins: Wins) {
        let (Some(known), Some(known_meaning)) = (&self.said, self.meaning) else {
            (self.said, self.meaning) = (Some(said), Some(meaning));
            return;
        };
        if known.field != said.field
            && let (Meaning::Known(old), Meaning::Known(new)) = (known_meaning, meaning)
            && old.is_success() != new.is_success()
        {
            self.marks.contradiction = true;
            if new > old {
                (self.said, self.meaning) = (Some(said), Some(meaning));
            }
            return;
        }
        if known.field != said.field {
            if wins == Wins::Last {
                (self.said, self.meaning) = (Some(said), Some(meaning));
            }
            return;
        }
        if known.word == said.word || meaning == Meaning::Nothing {
            return;
        }
        self.marks.contradiction |= known_meaning != Meaning::Nothing;
        if known_meaning == Meaning::Nothing || meaning.reason() > known_meaning.reason() {
            (self.said, self.meaning) = (Some(said), Some(meaning));
        }
    }

    /// Whether the word says that all went well.
    pub(crate) fn says_success(&self) -> bool {
        self.meaning.is_some_and(|meaning| meaning.reason().is_success())
    }

    /// Whether the word makes up for proof that did not come, where the bytes ended like this.
    pub(crate) fn word_suffices(&self, proof: Proof, closed: Closed, cut_event: bool) -> bool {
        match proof {
            Proof::Event => false,
            Proof::Marker(_) | Proof::Silent => true,
            // Here the end of the bytes is a part of the proof: without it no call may run.
            Proof::Word => {
                let ended = matches!(closed, Closed::Open | Closed::Proven | Closed::Eof);
                let whole = ended && !cut_event && !self.went_on;
                let calls = self.own_calls().next().is_some();
                whole || !calls || !self.says_success()
            }
        }
    }

    /// The calls that the caller is to run.
    fn own_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| !call.by_provider)
    }
}

impl Call {
    /// Takes in the head of a call of the same number. False if it is that of another call: hosts
    /// number several calls alike.
    fn takes_head(&mut self, id: Option<u64>, name: Option<u64>) -> bool {
        if id.is_some() && self.id.is_some() && id != self.id {
            return false;
        }
        let renamed = name.is_some() && self.name.is_some() && name != self.name;
        let same = id.is_some() && id == self.id;
        if renamed && !same && self.arguments.state() == JsonState::Whole {
            return false;
        }
        self.conflict |= renamed;
        self.id = self.id.or(id);
        self.name = self.name.or(name);
        true
    }

    fn push(&mut self, arguments: &str) {
        self.has_arguments |= !arguments.is_empty();
        self.bare = false;
        self.sum = self.sum.add(arguments);
        for byte in arguments.bytes().filter(|byte| !is_space(*byte)) {
            let Some(length) = self.null else { break };
            let matches = b"null".get(usize::from(length)) == Some(&byte);
            self.null = matches.then_some(length + 1);
        }
        if self.arguments.state() == JsonState::Empty {
            let first = arguments.trim_start().chars().next();
            self.odd |= first.is_some_and(|first| first != '{');
        }
        self.arguments.push(arguments.as_bytes());
    }

    /// The arguments are absent, blank or null.
    fn is_bare(&self) -> bool {
        (self.bare || matches!(self.null, Some(0 | 4))) && !self.takes_text
    }

    /// The arguments are whole, whether or not the call is closed. Free text has no end of its own.
    fn is_whole(&self) -> bool {
        self.arguments.state() == JsonState::Whole && !self.takes_text
    }

    fn is_unfinished(&self) -> bool {
        let unread = self.arguments.state() == JsonState::Open;
        !self.closed || unread && !self.takes_text
    }

    fn is_malformed(&self) -> bool {
        let broken = self.odd || self.arguments.state() == JsonState::Broken;
        self.conflict || broken && !self.is_bare() && !self.takes_text
    }
}

impl Choice {
    /// How far the calls of this choice have come.
    pub(crate) fn mark(&self) -> ChoiceMark {
        let count = |of: fn(&Call) -> bool| {
            let calls = self.calls.iter().filter(|call| of(call)).count();
            u32::try_from(calls).unwrap_or(u32::MAX)
        };
        let by_provider = count(|call| call.by_provider);
        ChoiceMark {
            index: self.index,
            begun: count(|_| true) - by_provider,
            whole: count(|call| !call.by_provider && call.is_whole()),
            closed: count(|call| !call.by_provider && call.closed),
            by_provider,
            said: self.said.is_some(),
        }
    }

    /// What the content of this choice shows.
    pub(crate) fn shown(&self) -> Shown {
        let count = |of: fn(&Call) -> bool| {
            u32::try_from(self.own_calls().filter(|call| of(call)).count()).unwrap_or(u32::MAX)
        };
        let served = self.calls.iter().any(|call| call.by_provider);
        Shown {
            text: self.text,
            reasoning: self.reasoning,
            refusal: self.refusal,
            other_content: self.other_content || served,
            stop_sequence: self.marks.stop_sequence,
            unfinished_content: self.marks.unfinished_content,
            guardrail: self.marks.guardrail,
            breakdown: self.marks.breakdown,
            contradiction: self.marks.contradiction,
            approval: self.marks.approval,
            tool_calls: count(|_| true),
            unfinished_tool_calls: count(Call::is_unfinished),
            malformed_tool_calls: count(Call::is_malformed),
            nameless_tool_calls: count(|call| call.name.is_none()),
            bare_tool_calls: count(|call| call.closed && call.is_bare()),
            ..Shown::default()
        }
    }
}
