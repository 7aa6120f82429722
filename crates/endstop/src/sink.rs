//! The sink that dialects put events into.

use crate::dialect::CallsClose;
use crate::dialect::partial_args::{PartialArgs, Piece};
use crate::ending::SafetyRating;
use crate::event::Event;
use crate::facts::{Facts, Kinds, Marks};
use crate::provider::Wire;
use crate::reader::Limits;
use crate::repeat::Lesson;
use crate::request::RequestInfo;

/// The longest token for going on that is passed on, in bytes.
const MAX_TOKEN: usize = 1 << 20;

/// The sink that a dialect puts events into.
///
/// It follows what they add up to, and hands them on to whoever reads the response.
#[derive(Debug)]
pub struct EventSink<'r, 's> {
    pub(crate) facts: &'r mut Facts,
    pub(crate) wire: &'r Wire,
    pub(crate) limits: &'r Limits,
    pub(crate) asked: &'r RequestInfo,
    pub(crate) lesson: Lesson,
    pub(crate) data: &'r [u8],
    pub(crate) sink: Option<Sink<'r, 's>>,
}

/// The caller's function for events.
pub(crate) struct Sink<'r, 's>(pub(crate) &'r mut (dyn FnMut(Event<'_>) + 's));

impl std::fmt::Debug for Sink<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Sink")
    }
}

impl EventSink<'_, '_> {
    /// Passes an event on.
    pub fn emit(&mut self, event: Event<'_>) {
        self.close_calls(&event);
        self.tell(event);
    }

    /// Where no event of the wire closes a call, the word and the proof do: the same events for all.
    fn close_calls(&mut self, event: &Event<'_>) {
        if self.wire.profile.dialect.calls_close != CallsClose::ByWord || self.facts.past_end {
            return;
        }
        let open = if let Event::Word { choice, .. } = event {
            self.facts.open_calls(Some(*choice))
        } else if matches!(event, Event::Proof) {
            self.facts.open_calls(None)
        } else {
            return;
        };
        for (choice, call) in open {
            self.tell(Event::ToolCallEnd { choice, call });
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.lesson.note(&event, self.data);
        let news = self.facts.observe(&event, self.wire, self.limits);
        if let Some(Sink(sink)) = &mut self.sink
            && news
        {
            sink(event);
        }
    }

    /// Passes text of the answer on, unless it is empty.
    pub fn text(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Text { choice, text });
        }
    }

    /// Passes reasoning on, unless it is empty.
    pub fn reasoning(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Reasoning { choice, text });
        }
    }

    /// Passes the text of a refusal on, unless it is empty.
    pub fn refusal(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Refusal { choice, text });
        }
    }

    /// Notes a rating of the provider's safety system, unless it is known.
    pub(crate) fn rate(&mut self, rating: &SafetyRating) {
        if !rating.category.is_empty() && !self.facts.is_rated(rating) {
            self.emit(Event::Safety(rating));
        }
    }

    /// The word says that the response is still to come.
    pub(crate) fn is_pending(&self, field: &str, word: &str) -> bool {
        self.wire.is_pending(field, word)
    }

    /// Keeps a fact of the wire beside the verdict, unless its value is empty.
    pub fn detail(&mut self, choice: Option<u32>, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.emit(Event::Detail { choice, key, value });
        }
    }

    /// Passes the provider's token for going on to whoever listens. One that is longer than any known
    /// is left out, since a part of it is worth nothing.
    pub(crate) fn resume_token(&mut self, choice: u32, token: &str) {
        if !token.is_empty() && token.len() <= MAX_TOKEN {
            self.emit(Event::ResumeToken { choice, token });
        }
    }

    /// Notes that a choice is there, if without content so far.
    pub fn choice(&mut self, index: u32) {
        self.facts.choice_mut(index, self.limits);
    }

    /// Notes what the wire says of a choice besides its word.
    pub(crate) fn mark(&mut self, choice: u32, set: impl FnOnce(&mut Marks)) {
        self.lesson.spoil();
        if let Some(marks) = self.facts.marks_mut(choice, self.limits) {
            set(marks);
        }
    }

    /// Notes that the provider named the stop sequence that matched.
    pub fn stop_sequence(&mut self, choice: u32) {
        self.mark(choice, |marks| marks.stop_sequence = true);
    }

    /// Reports whether content of this choice has come.
    #[must_use]
    pub fn has_content(&self, choice: u32) -> bool {
        self.facts.has_content(choice)
    }

    /// Text of an event that may tell all of it so far.
    pub(crate) fn growing_text(&mut self, choice: u32, told: &str) {
        self.lesson.spoil();
        let news = self.facts.new_text(choice, told, self.limits);
        self.text(choice, news);
    }

    /// The same for reasoning.
    pub(crate) fn growing_reasoning(&mut self, choice: u32, told: &str) {
        self.lesson.spoil();
        let news = self.facts.new_reasoning(choice, told, self.limits);
        self.reasoning(choice, news);
    }

    /// The same for the arguments of a call.
    pub(crate) fn growing_arguments(&mut self, choice: u32, call: u32, told: &str) {
        self.lesson.spoil();
        let news = self.facts.new_arguments(choice, call, told);
        if !news.is_empty() {
            self.emit(Event::ToolCallDelta { choice, call, arguments: news });
        }
    }

    /// Another result of the same response begins, as in lists of them.
    pub(crate) fn another_result(&mut self) {
        self.facts.past_end = false;
    }

    /// The kinds of content that a choice has.
    pub(crate) fn kinds(&self, choice: u32) -> Kinds {
        self.facts.kinds(choice)
    }

    /// Content of this item of the choice came.
    pub(crate) fn note_item(&mut self, choice: u32, item: u32) {
        self.facts.note_item(choice, item, self.limits);
    }

    pub(crate) fn has_item(&self, choice: u32, item: u32) -> bool {
        self.facts.has_item(choice, item)
    }

    /// Holds arguments that are told once more against those that came.
    pub(crate) fn compare_arguments(&mut self, choice: u32, call: u32, told: &str) {
        self.lesson.spoil();
        self.facts.compare_arguments(choice, call, told);
    }

    /// Something of this call came that nobody can read: it is never whole.
    pub(crate) fn spoil_call(&mut self, choice: u32, call: u32) {
        self.lesson.spoil();
        self.facts.spoil_call(choice, call, self.limits);
    }

    pub(crate) fn call_of_id(&self, choice: u32, id: &str) -> Option<u32> {
        self.facts.call_of_id(choice, id)
    }

    /// Reports whether a tool call of this number has begun.
    #[must_use]
    pub fn has_call(&self, choice: u32, call: u32) -> bool {
        self.facts.has_call(choice, call)
    }

    pub(crate) fn has_arguments(&self, choice: u32, call: u32) -> bool {
        self.facts.has_arguments(choice, call)
    }

    pub(crate) fn is_open_call(&self, choice: u32, call: u32) -> bool {
        self.facts.is_open_call(choice, call)
    }

    pub(crate) fn open_call(&self, choice: u32) -> Option<u32> {
        self.facts.open_call(choice)
    }

    /// Returns a number for the next tool call, on wires that do not number them.
    #[must_use]
    pub fn next_call(&self, choice: u32) -> u32 {
        self.facts.next_call(choice)
    }

    /// Takes pieces of arguments in that come at paths; with none, more of them are announced.
    pub(crate) fn push_partial(&mut self, choice: u32, call: u32, pieces: &[Piece<'_>]) {
        self.lesson.spoil();
        self.facts.push_partial(choice, call, pieces);
    }

    /// The arguments that came at paths: none if none did, and none within that if they are unfinished.
    pub(crate) fn partial(&self, choice: u32, call: u32) -> Option<Option<String>> {
        self.facts.partial(choice, call).map(PartialArgs::finish)
    }

    /// A streamed call without arguments begins with an empty object, which stands in for them.
    pub(crate) fn end_bare_call(&mut self, choice: u32, call: u32) {
        if self.is_bare_call(choice, call) {
            self.emit(Event::ToolCallDelta { choice, call, arguments: "{}" });
            self.facts.note_bare(choice, call);
        }
    }

    /// A call without arguments so far.
    pub(crate) fn is_bare_call(&self, choice: u32, call: u32) -> bool {
        self.has_call(choice, call) && !self.has_arguments(choice, call)
    }

    /// The provider takes back that a call is whole.
    pub(crate) fn reopen_call(&mut self, choice: u32, call: u32) {
        self.facts.reopen_call(choice, call);
    }

    /// The provider ran the call of this id itself.
    pub(crate) fn by_provider(&mut self, choice: u32, id: &str) {
        if let Some(call) = self.facts.call_of_id(choice, id) {
            self.emit(Event::ToolCallByProvider { choice, call });
        }
    }

    /// Whether this host runs a custom tool of this name itself: one that the caller did not offer.
    pub(crate) fn runs_itself(&self, name: &str) -> bool {
        let offered = |tools: &Vec<String>| tools.iter().any(|tool| tool == name);
        self.wire.profile.quirks.runs_custom_tools
            && self.asked.tools.as_ref().is_some_and(|tools| !offered(tools))
    }

    /// An answer follows calls: where hosts run custom tools themselves, those were theirs.
    pub(crate) fn text_calls_were_its_own(&mut self, choice: u32) {
        if self.wire.profile.quirks.runs_custom_tools && self.asked.tools.is_none() {
            for call in self.facts.text_calls(choice) {
                self.emit(Event::ToolCallByProvider { choice, call });
            }
        }
    }
}
