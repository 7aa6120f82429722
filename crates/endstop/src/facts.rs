//! Facts about a response, collected from its events so far.

use std::hash::{DefaultHasher, Hasher as _};

use crate::dialect::partial_args::{MAX_BYTES, PartialArgs, Piece};
use crate::dialect::{CallsClose, Proof, Wins};
use crate::ending::{Closed, Detail, Reason, SafetyRating, Said, Shown, Usage};
use crate::event::{Event, Word};
use crate::fault::Fault;
use crate::hash::Fnv;
use crate::json::{JsonState, Scanner, is_space};
use crate::provider::Wire;
use crate::text::{DETAIL_CAP, WORD_CAP, clean};
use crate::verdict::Meaning;
use crate::work::count;
use crate::{ChoiceMark, Limits};

/// Maximum number of details of one response.
const MAX_DETAILS: usize = 64;

/// Maximum number of items of one choice.
const MAX_ITEMS: usize = 1024;

/// Maximum number of safety ratings of one response.
const MAX_RATINGS: usize = 64;

/// Facts about one response.
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
    /// The current frame came after the end marker.
    pub(crate) past_end: bool,
    pub(crate) late_event: bool,
    /// Whether a less complete finish reason came after the end marker.
    worse_late: bool,
    /// A guardrail or a content filter intervened, in whichever choice.
    pub(crate) guardrail: bool,
    pub(crate) excess: u32,
    /// Number of changes that can matter to a gate for tool calls.
    pub(crate) changes: u64,
    /// Number of events that are about tool calls, or may be.
    pub(crate) call_changes: u64,
    /// A frame could not be read, although another reader may find a call in it.
    pub(crate) unreadable: bool,
    /// Size of the arguments that came at paths.
    partial_bytes: usize,
    /// A finish reason came, for at least one choice.
    any_said: bool,
    begun: bool,
}

/// Facts about one choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) index: u32,
    pub(crate) said: Option<Said>,
    pub(crate) meaning: Option<Meaning>,
    text: bool,
    reasoning: bool,
    refusal: bool,
    other_content: bool,
    /// Content came after the last finish reason.
    pub(crate) went_on: bool,
    /// Content came after a finish reason, so a finish reason does not show the end.
    resumed: bool,
    marks: Marks,
    calls: Vec<Call>,
    growing_text: Growing,
    growing_reasoning: Growing,
    /// Items that had content, on wires that number items.
    items: Vec<u32>,
}

/// Facts that a wire reports about a choice in addition to the finish reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// The provider named the stop sequence that matched.
    pub(crate) stop_sequence: bool,
    /// Part of the answer is marked as incomplete.
    pub(crate) unfinished_content: bool,
    /// Part of the answer ended as still in progress, and its final state has not come.
    pub(crate) open_content: bool,
    /// A safety rating reports that the answer was blocked.
    pub(crate) blocked: bool,
    /// The provider reported a failure of its engine.
    pub(crate) breakdown: bool,
    /// The provider reported two outcomes that contradict each other.
    pub(crate) contradiction: bool,
    /// The provider waits for approval before it runs a server-side tool.
    pub(crate) approval: bool,
}

/// Facts about one tool call.
#[derive(Clone, Debug)]
struct Call {
    number: u32,
    /// Hash of the id; `None` if the id is empty. Ids have no maximum length and are only compared.
    id: Option<u64>,
    arguments: Scanner,
    /// Part of the arguments came, even if it is only white space.
    has_arguments: bool,
    /// Hash of the arguments so far.
    sum: Sum,
    /// Length of the arguments so far, in bytes.
    length: usize,
    growing: Growing,
    /// The arguments are JSON but not an object.
    odd: bool,
    /// No arguments came, and an empty object replaces them.
    bare: bool,
    /// Number of bytes of `null` that came, while the arguments can still be `null`.
    null: Option<u8>,
    /// The provider runs the tool itself.
    by_provider: bool,
    /// Only callers run calls of this kind.
    for_caller: bool,
    /// The result of a call that only callers run came in the same response. It waits for nobody if it
    /// is complete, but until the end is proven a client could run it.
    answered: bool,
    /// Arguments that come as values at paths.
    partial: Option<Box<PartialArgs>>,
    /// The tool takes free text, so the arguments do not show where they end.
    takes_text: bool,
    /// Hash of the name; `None` until the name came.
    name: Option<u64>,
    /// The provider sent two names or two versions of the arguments, or part of the call is
    /// unreadable.
    conflict: bool,
    /// Hash of the id of the code that makes the call; `None` if the model makes it.
    code: Option<u64>,
    /// Nothing shows whether the caller or the provider runs the call.
    unclear: bool,
    /// The arguments have ended or came with the start, so a client could run the call before its
    /// block is closed.
    settled: bool,
    closed: bool,
    /// Whether its block was closed after the end marker.
    closed_late: bool,
}

/// Kinds of content in a choice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) text: bool,
    pub(crate) reasoning: bool,
    pub(crate) refusal: bool,
}

/// Hash of text that comes in parts, to compare texts without storing them.
///
/// It ignores white space, because some providers reformat JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum(Fnv);

impl Sum {
    fn add(self, text: &str) -> Self {
        let bytes = text.bytes().filter(|byte| !is_space(*byte));
        Self(bytes.fold(self.0, |sum, byte| sum.mix(u64::from(byte))))
    }
}

/// Text whose events repeat the whole text so far or carry only the new part. The second event
/// decides which.
#[derive(Clone, Copy, Debug, Default)]
struct Growing {
    length: usize,
    sum: Sum,
    /// Every event repeats the whole text so far.
    whole: Option<bool>,
}

impl Growing {
    /// Returns the new part of an event's text.
    fn news<'t>(&mut self, told: &'t str) -> &'t str {
        count(self.length.min(told.len()));
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
    /// Records an event. Returns false if the event has no new information.
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
                    call.by_provider |= !call.for_caller;
                    call.answered |= call.for_caller;
                }
            }
            Event::ToolCallDelta { choice, call, arguments } => {
                self.late_event |= self.past_end;
                // Arguments without a start belong to a call without a name.
                if self.call(*choice, *call).is_none() {
                    self.start_call(*choice, *call, "", "", limits);
                }
                if let Some(call) = self.call_mut(*choice, *call) {
                    call.push(arguments);
                }
            }
            Event::ToolCallEnd { choice, call } => {
                self.changes += 1;
                // Elsewhere, the finish reason or the end marker closes a call.
                let is_own = wire.profile.dialect.calls_close == CallsClose::ByEvent;
                self.call_changes += u64::from(is_own);
                // Some providers reuse a number. The event means the newest open call.
                let of = self.choices.iter_mut().filter(|known| known.index == *choice);
                let mut calls = of.flat_map(|known| known.calls.iter_mut().rev());
                let open = calls.find(|known| known.number == *call && !known.closed);
                // After the end marker, a call is complete only with another one.
                self.late_event |= self.past_end && open.is_some();
                let past_end = self.past_end;
                open.into_iter().for_each(|known| {
                    known.closed = !past_end;
                    known.closed_late = past_end;
                });
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

    /// Records that something is said about a call.
    fn change_calls(&mut self) {
        self.changes += 1;
        self.call_changes += 1;
    }

    /// Records a frame that could not be read, although another reader may find a call in it.
    pub(crate) fn note_unreadable(&mut self) {
        self.change_calls();
        self.unreadable = true;
    }

    /// Reports whether a call for the caller has no arguments so far.
    pub(crate) fn has_bare_call(&self) -> bool {
        let mut calls = self.choices.iter().flat_map(Choice::own_calls);
        calls.any(|call| !call.has_arguments && call.partial.is_none())
    }

    /// Reports whether every choice has a finish reason.
    pub(crate) fn all_said(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.said.is_some())
    }

    pub(crate) fn any_said(&self) -> bool {
        self.any_said
    }

    /// Reports whether any part of an answer came.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun || !self.choices.is_empty() || self.proven || self.pending.is_some()
    }

    /// Reports whether a tool call for the caller has begun.
    pub(crate) fn has_calls(&self) -> bool {
        self.choices.iter().any(|choice| choice.calls.iter().any(|call| !call.by_provider))
    }

    /// Returns a choice and adds it if it is new; `None` if there are too many choices.
    pub(crate) fn choice_mut(&mut self, index: u32, limits: &Limits) -> Option<&mut Choice> {
        let position = match self.choices.get(index as usize) {
            Some(choice) if choice.index == index => index as usize,
            _ => match self.position(index) {
                Some(position) => position,
                None if self.choices.len() >= limits.choices => {
                    self.excess = self.excess.saturating_add(1);
                    return None;
                }
                None => {
                    self.changes += 1;
                    self.choices.push(Choice { index, ..Choice::default() });
                    self.choices.len() - 1
                }
            },
        };
        self.choices.get_mut(position)
    }

    /// Returns the marks of a choice.
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

    /// Reports whether content came after the last finish reason of a choice.
    pub(crate) fn any_went_on(&self) -> bool {
        self.choices.iter().any(|choice| choice.went_on)
    }

    /// Records that an empty object replaces the missing arguments of a call.
    pub(crate) fn note_bare(&mut self, index: u32, number: u32) {
        if let Some(call) = self.call_mut(index, number) {
            call.bare = true;
        }
    }

    /// Returns the new part of a text, on wires where an event may repeat the whole text so far.
    pub(crate) fn new_text<'t>(&mut self, index: u32, told: &'t str, limits: &Limits) -> &'t str {
        self.choice_mut(index, limits).map_or(told, |choice| choice.growing_text.news(told))
    }

    /// Returns the new part of the reasoning.
    pub(crate) fn new_reasoning<'t>(
        &mut self,
        index: u32,
        told: &'t str,
        limits: &Limits,
    ) -> &'t str {
        self.choice_mut(index, limits).map_or(told, |choice| choice.growing_reasoning.news(told))
    }

    /// Returns the new part of the arguments of a call.
    pub(crate) fn new_arguments<'t>(&mut self, index: u32, call: u32, told: &'t str) -> &'t str {
        self.call_mut(index, call).map_or(told, |call| call.growing.news(told))
    }

    /// Returns the kinds of content in a choice.
    pub(crate) fn kinds(&self, index: u32) -> Kinds {
        self.choice(index).map_or_else(Kinds::default, |choice| Kinds {
            text: choice.text,
            reasoning: choice.reasoning,
            refusal: choice.refusal,
        })
    }

    /// Records that this item of the choice has content.
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

    /// Compares repeated arguments with the ones that came before.
    pub(crate) fn compare_arguments(&mut self, index: u32, number: u32, told: &str) {
        if let Some(call) = self.call_mut(index, number) {
            call.conflict |= call.sum != Sum::default().add(told);
        }
    }

    /// Returns the part of complete arguments that has not come yet. If they contradict what came,
    /// records that and returns nothing.
    pub(crate) fn missing_arguments<'t>(
        &mut self,
        index: u32,
        number: u32,
        told: &'t str,
    ) -> &'t str {
        let Some(call) = self.call_mut(index, number) else { return "" };
        let known = told.get(..call.length);
        if known.is_some_and(|known| Sum::default().add(known) == call.sum) {
            return told.get(call.length..).unwrap_or_default();
        }
        call.conflict |= call.sum != Sum::default().add(told);
        ""
    }

    /// Records the id of the code that makes a call.
    pub(crate) fn note_code(&mut self, index: u32, number: u32, code: &str) {
        if let Some(call) = self.call_mut(index, number) {
            call.code = hash(code);
        }
    }

    /// Returns the calls that the code with this id made.
    pub(crate) fn calls_of_code(&self, index: u32, code: &str) -> Vec<u32> {
        let calls = self.choice(index).map(|choice| choice.calls.as_slice()).unwrap_or_default();
        let Some(code) = hash(code) else { return Vec::new() };
        calls.iter().filter(|call| call.code == Some(code)).map(|call| call.number).collect()
    }

    /// Records that nothing shows who runs a call.
    pub(crate) fn note_unclear(&mut self, index: u32, number: u32) {
        if let Some(call) = self.call_mut(index, number) {
            call.unclear = true;
        }
    }

    /// Returns the calls before this number of which nothing shows who runs them.
    pub(crate) fn unclear_calls(&self, index: u32, before: u32, name: Option<&str>) -> Vec<u32> {
        let calls = self.choice(index).map(|choice| choice.calls.as_slice()).unwrap_or_default();
        let fits = |call: &&Call| name.is_none_or(|name| call.name == hash(name));
        let unclear = calls.iter().filter(|call| call.unclear && call.number < before);
        unclear.filter(fits).map(|call| call.number).collect()
    }

    /// Records that only callers run calls of this kind.
    pub(crate) fn note_for_caller(&mut self, index: u32, number: u32) {
        if let Some(call) = self.call_mut(index, number) {
            call.for_caller = true;
        }
    }

    /// Reports whether the call of this number is the provider's own and has another id.
    pub(crate) fn is_other_call(&self, index: u32, number: u32, id: &str) -> bool {
        self.call(index, number).is_some_and(|call| call.by_provider && call.id != hash(id))
    }

    /// Reports whether a call takes free text.
    pub(crate) fn takes_text(&self, index: u32, number: u32) -> bool {
        self.call(index, number).is_some_and(|call| call.takes_text)
    }

    /// Records that a client could run a call although its block is open.
    pub(crate) fn settle_call(&mut self, index: u32, number: u32) {
        if let Some(call) = self.call_mut(index, number) {
            call.settled = true;
        }
    }

    pub(crate) fn reopen_call(&mut self, index: u32, number: u32) {
        if let Some(call) = self.call_mut(index, number) {
            call.closed = false;
        }
    }

    /// Records that part of a call is unreadable.
    pub(crate) fn spoil_call(&mut self, index: u32, number: u32, limits: &Limits) {
        if self.call(index, number).is_none() {
            self.start_call(index, number, "", "", limits);
        }
        if let Some(call) = self.call_mut(index, number) {
            call.conflict = true;
        }
    }

    /// Returns the open calls of one choice, or of all choices.
    pub(crate) fn open_calls(&self, index: Option<u32>) -> Vec<(u32, u32)> {
        let choices =
            self.choices.iter().filter(|choice| index.is_none_or(|index| choice.index == index));
        choices
            .flat_map(|choice| choice.calls.iter().map(move |call| (choice.index, call)))
            .filter(|(_, call)| !call.closed)
            .map(|(choice, call)| (choice, call.number))
            .collect()
    }

    /// Returns the newest call if it is open.
    pub(crate) fn open_call(&self, index: u32) -> Option<u32> {
        self.choice(index)?.calls.last().filter(|call| !call.closed).map(|call| call.number)
    }

    pub(crate) fn is_open_call(&self, index: u32, number: u32) -> bool {
        self.call(index, number).is_some_and(|call| !call.closed)
    }

    pub(crate) fn is_nameless_call(&self, index: u32, number: u32) -> bool {
        self.call(index, number).is_some_and(|call| call.name.is_none() && call.id.is_none())
    }

    /// Adds parts of arguments that come at paths.
    pub(crate) fn push_partial(&mut self, index: u32, number: u32, pieces: &[Piece<'_>]) {
        self.partial_bytes += pieces.iter().map(Piece::size).sum::<usize>();
        let fits = self.partial_bytes <= MAX_BYTES;
        if let Some(call) = self.call_mut(index, number) {
            let partial = call.partial.get_or_insert_default();
            if fits {
                pieces.iter().for_each(|piece| partial.push(piece));
            } else {
                partial.spoil();
            }
        }
    }

    pub(crate) fn partial(&self, index: u32, number: u32) -> Option<&PartialArgs> {
        self.call(index, number)?.partial.as_deref()
    }

    /// Returns the calls for the caller that take free text.
    pub(crate) fn text_calls(&self, index: u32) -> Vec<u32> {
        let calls = self.choice(index).map(|choice| choice.calls.as_slice()).unwrap_or_default();
        let own = calls.iter().filter(|call| call.takes_text && !call.by_provider);
        own.map(|call| call.number).collect()
    }

    /// Returns the number of the call with this id.
    pub(crate) fn call_of_id(&self, index: u32, id: &str) -> Option<u32> {
        let (id, calls) = (hash(id)?, &self.choice(index)?.calls);
        calls.iter().rev().find(|call| call.id == Some(id)).map(|call| call.number)
    }

    /// Returns the number of the next call, on wires that do not number calls.
    pub(crate) fn next_call(&self, index: u32) -> u32 {
        let count = self.choice(index).map_or(0, |choice| choice.calls.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Reports whether two readings of one frame agree on finish reasons, tool calls and the end.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.proven == other.proven
            && self.choices.len() == other.choices.len()
            && self.choices.iter().zip(&other.choices).all(|(one, other)| one.agrees_with(other))
    }

    /// Records that a parser can read a frame in another way: no tool call of either reading may run,
    /// and the less complete of two finish reasons counts.
    pub(crate) fn doubt(&mut self, readings: [&Self; 2], wire: &Wire, limits: &Limits) {
        self.changes += 1;
        for choice in readings.iter().flat_map(|facts| &facts.choices) {
            for call in choice.own_calls() {
                self.spoil_call(choice.index, call.number, limits);
                // A call of the provider's own may have the same number.
                if let Some(spoiled) = self.call_mut(choice.index, call.number) {
                    spoiled.by_provider = false;
                }
            }
            let Some(known) = self.choice_mut(choice.index, limits) else { continue };
            if let (Some(_), Some(said), Some(meaning)) =
                (&known.said, &choice.said, choice.meaning)
            {
                known.say(said.clone(), meaning, wire.profile.dialect.wins);
            }
        }
    }

    fn choice(&self, index: u32) -> Option<&Choice> {
        match self.choices.get(index as usize) {
            Some(choice) if choice.index == index => Some(choice),
            _ => self.choices.iter().find(|choice| choice.index == index),
        }
    }

    /// Searches for a choice whose place is not its number.
    fn position(&self, index: u32) -> Option<usize> {
        count(self.choices.len());
        self.choices.iter().position(|choice| choice.index == index)
    }

    fn call(&self, index: u32, number: u32) -> Option<&Call> {
        let calls = &self.choice(index)?.calls;
        count(calls.len());
        calls.iter().rev().find(|call| call.number == number)
    }

    fn call_mut(&mut self, index: u32, number: u32) -> Option<&mut Call> {
        self.change_calls();
        let position = self.position(index)?;
        let choice = self.choices.get_mut(position)?;
        count(choice.calls.len());
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
            choice.go_on();
            set(choice);
        }
    }

    fn start_call(&mut self, index: u32, number: u32, id: &str, name: &str, limits: &Limits) {
        self.late_event |= self.past_end;
        self.change_calls();
        let calls: usize = self.choices.iter().map(|choice| choice.calls.len()).sum();
        let Some(choice) = self.choice_mut(index, limits) else { return };
        choice.go_on();
        let (id, name) = (hash(id), hash(name));
        count(choice.calls.len());
        // Some providers repeat the start of a call in every part.
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
            length: 0,
            growing: Growing::default(),
            odd: false,
            bare: false,
            null: Some(0),
            by_provider: false,
            for_caller: false,
            answered: false,
            partial: None,
            takes_text: false,
            name,
            conflict: false,
            code: None,
            unclear: false,
            settled: false,
            closed: false,
            closed_late: false,
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
        let meaning = wire.meaning(field, word);
        if self.past_end {
            self.late_event = true;
            let known = self.choice(index).and_then(|choice| choice.meaning);
            self.worse_late |= known.is_none_or(|known| meaning.reason() > known.reason());
            return;
        }
        self.changes += 1;
        let Some(choice) = self.choice_mut(index, limits) else { return };
        choice.went_on = false;
        if wire.profile.dialect.calls_close == CallsClose::ByWord {
            choice.calls.iter_mut().for_each(|call| call.closed = true);
        }
        choice.say(
            Said::new(field, clean(&word.to_text(), WORD_CAP)),
            meaning,
            wire.profile.dialect.wins,
        );
        self.any_said = true;
    }

    /// Records a finish reason that did not come in a frame. If a frame has one too, the less
    /// complete of the two counts. An unknown finish reason does not replace a known one.
    pub(crate) fn say(&mut self, index: u32, said: Said, meaning: Meaning, limits: &Limits) {
        let Some(choice) = self.choice_mut(index, limits) else { return };
        // The frame's field already gave this finish reason its meaning.
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
            self.any_said = true;
        }
    }

    /// Reports whether a rating has no new information. A rating that blocked is not withdrawn.
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
        self.changes += u64::from(!self.proven);
        self.proven = true;
        let calls = self.choices.iter_mut().flat_map(|choice| &mut choice.calls);
        calls.for_each(|call| call.closed |= call.closed_late && !self.worse_late);
        // On wires where no event closes a call, the end of the response does.
        if wire.profile.dialect.calls_close == CallsClose::ByWord && !self.past_end {
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
    /// Records that content comes.
    fn go_on(&mut self) {
        self.went_on = self.said.is_some();
        self.resumed |= self.went_on;
    }

    /// Records a finish reason. Of two different ones, the less complete counts, except for fields
    /// that only add detail.
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

    /// Reports whether the finish reason is a success.
    pub(crate) fn says_success(&self) -> bool {
        self.meaning.is_some_and(|meaning| meaning.reason().is_success())
    }

    /// Reports whether the finish reason makes up for a missing end marker.
    pub(crate) fn word_suffices(&self, proof: Proof, closed: Closed, cut_event: bool) -> bool {
        match proof {
            Proof::Event => false,
            Proof::Marker(_) | Proof::Silent => {
                let calls = self.says_success() && self.own_calls().next().is_some();
                !calls || closed.settles_calls()
            }
            // The end of the body is part of the proof. Without it, no tool call may run. Nor does
            // the finish reason show the end if the body ended inside an event, or if the
            // connection broke after the provider had gone on once.
            Proof::Word => {
                let ended = closed.is_clean();
                let calls = self.own_calls().next().is_some();
                let whole = match calls {
                    true => ended && !self.went_on,
                    false => ended || !self.resumed,
                };
                whole && !cut_event || !self.says_success()
            }
        }
    }

    fn agrees_with(&self, other: &Self) -> bool {
        let same = |(one, other): (&Call, &Call)| {
            (one.number, one.id, one.name, one.sum, one.closed, one.by_provider)
                == (other.number, other.id, other.name, other.sum, other.closed, other.by_provider)
        };
        self.index == other.index
            && self.said == other.said
            && self.calls.len() == other.calls.len()
            && self.calls.iter().zip(&other.calls).all(same)
    }

    /// Returns the tool calls for the caller.
    fn own_calls(&self) -> impl Iterator<Item = &Call> {
        let complete = self.says_success();
        self.calls.iter().filter(move |call| !(call.by_provider || complete && call.is_done()))
    }
}

impl Call {
    /// Records a repeated start of this call. Returns false if the start belongs to another call,
    /// because some providers reuse a number.
    fn takes_head(&mut self, id: Option<u64>, name: Option<u64>) -> bool {
        if self.by_provider && id.is_some() && id != self.id {
            return false;
        }
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
        self.length += arguments.len();
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

    /// Reports whether the arguments are absent, blank or null.
    fn is_bare(&self) -> bool {
        // `nul l` has the letters of null, and is not JSON.
        let null = self.null == Some(4) && self.arguments.state() == JsonState::Whole;
        (self.bare || null || self.null == Some(0)) && !self.takes_text
    }

    /// Reports whether the arguments are complete JSON, even if the call is still open. Free text
    /// is never complete.
    fn is_whole(&self) -> bool {
        self.arguments.state() == JsonState::Whole && !self.takes_text
    }

    fn is_unfinished(&self) -> bool {
        let unread = self.arguments.state() == JsonState::Open;
        !self.closed || unread && !self.takes_text
    }

    /// Reports whether the call is complete and its result is known.
    fn is_done(&self) -> bool {
        self.answered && !self.is_unfinished() && !self.is_malformed()
    }

    fn is_malformed(&self) -> bool {
        let broken = self.odd || self.arguments.state() == JsonState::Broken;
        self.conflict || broken && !self.is_bare() && !self.takes_text
    }
}

impl Choice {
    /// Returns the progress of the tool calls in this choice.
    pub(crate) fn mark(&self) -> ChoiceMark {
        count(4 * self.calls.len());
        let count = |of: fn(&Call) -> bool| {
            let calls = self.calls.iter().filter(|call| of(call)).count();
            u32::try_from(calls).unwrap_or(u32::MAX)
        };
        let by_provider = count(|call| call.by_provider);
        ChoiceMark {
            index: self.index,
            begun: count(|_| true) - by_provider,
            // Another reader may see a complete call where this one sees a contradiction, a value that
            // is too deep or something that is not JSON, such as `NaN`.
            whole: count(|call| !call.by_provider && (call.is_whole() || call.is_malformed())),
            closed: count(|call| {
                !call.by_provider && (call.closed || call.closed_late || call.settled)
            }),
            by_provider,
            said: self.said.is_some(),
        }
    }

    /// Returns the findings about the content of this choice.
    pub(crate) fn shown(&self) -> Shown {
        let count = |of: fn(&Call) -> bool| {
            u32::try_from(self.own_calls().filter(|call| of(call)).count()).unwrap_or(u32::MAX)
        };
        let served = self.calls.iter().any(|call| call.by_provider || call.is_done());
        Shown {
            text: self.text,
            reasoning: self.reasoning,
            refusal: self.refusal,
            other_content: self.other_content || served,
            stop_sequence: self.marks.stop_sequence,
            unfinished_content: self.marks.unfinished_content || self.marks.open_content,
            blocked: self.marks.blocked,
            breakdown: self.marks.breakdown,
            contradiction: self.marks.contradiction,
            approval: self.marks.approval,
            tool_calls: count(|_| true),
            unfinished_tool_calls: count(Call::is_unfinished),
            malformed_tool_calls: count(Call::is_malformed),
            conflicting_tool_calls: count(|call| call.conflict),
            nameless_tool_calls: count(|call| call.name.is_none()),
            bare_tool_calls: count(|call| call.closed && call.is_bare()),
            unclear_tool_calls: count(|call| call.unclear),
            ..Shown::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::partial_args::Value;

    /// Returns what each event brings that is new.
    fn news(told: &[&str]) -> Vec<String> {
        let mut growing = Growing::default();
        told.iter().map(|told| growing.news(told).to_owned()).collect()
    }

    #[test]
    fn the_second_event_says_whether_events_repeat_all() {
        assert_eq!(news(&["He", "Hello", "Hello!"]), ["He", "llo", "!"]);
        assert_eq!(news(&["He", "llo", "llo"]), ["He", "llo", "llo"]);
        assert_eq!(news(&["", "He", "Hello"]), ["", "He", "llo"]);
        assert_eq!(news(&["He", "", "Hello"]), ["He", "", "llo"]);
        // A later part may begin like all that came, which decides nothing.
        assert_eq!(news(&["a", "b", "abc"]), ["a", "b", "abc"]);
        // Another text than the one so far is all new.
        assert_eq!(news(&["He", "Hello", "Bye"]), ["He", "llo", "Bye"]);
    }

    /// The arguments of all calls of a response have one bound.
    #[test]
    fn arguments_at_paths_are_bounded_together() {
        let text = "x".repeat(MAX_BYTES / 2);
        let value = Value::Text(&text);
        let piece = Piece { path: "$.a", value, continues: false };
        let mut facts = Facts::default();
        for call in [0, 1] {
            facts.start_call(0, call, "", "f", &Limits::default());
            facts.push_partial(0, call, std::slice::from_ref(&piece));
        }
        let finished = |call| facts.partial(0, call).and_then(PartialArgs::finish).is_some();
        assert_eq!([finished(0), finished(1)], [true, false]);
    }

    #[test]
    fn sums_tell_texts_apart_but_for_white_space() {
        let sum = |text: &str| Sum::default().add(text);
        assert_eq!(sum("{\"a\": 1}"), sum("{\"a\":1}"));
        assert_eq!(sum("a").add("b"), sum("ab"));
        let texts: Vec<String> = (0..2000).map(|number| format!("{{\"a\":{number}}}")).collect();
        let sums: std::collections::BTreeSet<u64> =
            texts.iter().map(|text| sum(text).0.value()).collect();
        assert_eq!(sums.len(), texts.len());
    }
}
