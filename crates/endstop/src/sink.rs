//! The sink that receives events from dialects.

use crate::dialect::CallsClose;
use crate::dialect::partial_args::{PartialArgs, Piece};
use crate::ending::SafetyRating;
use crate::event::Event;
use crate::facts::{Facts, Kinds, Marks};
use crate::provider::Wire;
use crate::reader::Limits;
use crate::repeat::Lesson;
use crate::request::RequestInfo;

/// Maximum length of a resume token, in bytes.
const MAX_TOKEN: usize = 1 << 20;

/// Sink that receives events from a dialect.
///
/// It collects facts from the events and passes the events to the caller.
#[derive(Debug)]
pub struct EventSink<'r, 's> {
    pub(crate) facts: &'r mut Facts,
    pub(crate) wire: &'r Wire,
    pub(crate) limits: &'r Limits,
    pub(crate) request: &'r RequestInfo,
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

    /// Emits the end of open calls on wires without such an event. There, the finish reason or the
    /// end marker closes a call.
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

    /// Emits text of the answer, unless it is empty.
    pub fn text(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Text { choice, text });
        }
    }

    /// Emits reasoning, unless it is empty.
    pub fn reasoning(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Reasoning { choice, text });
        }
    }

    /// Emits the text of a refusal, unless it is empty.
    pub fn refusal(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Refusal { choice, text });
        }
    }

    /// Emits a rating of the provider's safety system, unless it is known.
    pub(crate) fn rate(&mut self, rating: &SafetyRating) {
        if !rating.category.is_empty() && !self.facts.is_rated(rating) {
            self.emit(Event::Safety(rating));
        }
    }

    /// Reports whether the value means that the response is pending.
    pub(crate) fn is_pending(&self, field: &str, word: &str) -> bool {
        self.wire.is_pending(field, word)
    }

    /// Reports whether the user gave this finish reason in this field a meaning.
    pub(crate) fn is_taught(&self, field: &str, word: &str) -> bool {
        self.wire.is_taught(field, word)
    }

    /// Emits a fact of the wire, unless its value is empty.
    pub fn detail(&mut self, choice: Option<u32>, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.emit(Event::Detail { choice, key, value });
        }
    }

    /// Emits the provider's resume token. A token over the maximum length is dropped, because part
    /// of a token is useless.
    pub(crate) fn resume_token(&mut self, choice: u32, token: &str) {
        if !token.is_empty() && token.len() <= MAX_TOKEN {
            self.emit(Event::ResumeToken { choice, token });
        }
    }

    /// Records that a choice exists, even without content.
    pub fn choice(&mut self, index: u32) {
        self.facts.choice_mut(index, self.limits);
    }

    /// Records facts that the wire reports about a choice in addition to the finish reason.
    pub(crate) fn mark(&mut self, choice: u32, set: impl FnOnce(&mut Marks)) {
        self.lesson.spoil();
        if let Some(marks) = self.facts.marks_mut(choice, self.limits) {
            set(marks);
        }
    }

    /// Records that a guardrail or a content filter intervened. It concerns every choice.
    pub(crate) fn guardrail(&mut self) {
        self.lesson.spoil();
        self.facts.guardrail = true;
    }

    /// Records that the provider named the stop sequence that matched.
    pub fn stop_sequence(&mut self, choice: u32) {
        self.mark(choice, |marks| marks.stop_sequence = true);
    }

    /// Reports whether content of this choice has come.
    #[must_use]
    pub fn has_content(&self, choice: u32) -> bool {
        self.facts.has_content(choice)
    }

    /// Emits the new part of a text, on wires where an event may repeat the whole text so far.
    pub(crate) fn growing_text(&mut self, choice: u32, told: &str) {
        self.lesson.spoil();
        let news = self.facts.new_text(choice, told, self.limits);
        self.text(choice, news);
    }

    /// Emits the new part of the reasoning.
    pub(crate) fn growing_reasoning(&mut self, choice: u32, told: &str) {
        self.lesson.spoil();
        let news = self.facts.new_reasoning(choice, told, self.limits);
        self.reasoning(choice, news);
    }

    /// Emits the new part of the arguments of a call.
    pub(crate) fn growing_arguments(&mut self, choice: u32, call: u32, told: &str) {
        self.lesson.spoil();
        let news = self.facts.new_arguments(choice, call, told);
        if !news.is_empty() {
            self.emit(Event::ToolCallDelta { choice, call, arguments: news });
        }
    }

    /// Records that another result of the same response begins, on wires that send lists of
    /// results.
    pub(crate) fn another_result(&mut self) {
        self.facts.past_end = false;
    }

    /// Returns the kinds of content in a choice.
    pub(crate) fn kinds(&self, choice: u32) -> Kinds {
        self.facts.kinds(choice)
    }

    /// Records that this item of the choice has content.
    pub(crate) fn note_item(&mut self, choice: u32, item: u32) {
        self.facts.note_item(choice, item, self.limits);
    }

    pub(crate) fn has_item(&self, choice: u32, item: u32) -> bool {
        self.facts.has_item(choice, item)
    }

    /// Compares repeated arguments with the ones that came before.
    pub(crate) fn compare_arguments(&mut self, choice: u32, call: u32, told: &str) {
        self.lesson.spoil();
        self.facts.compare_arguments(choice, call, told);
    }

    /// Emits the part of complete arguments that has not come yet.
    pub(crate) fn whole_arguments(&mut self, choice: u32, call: u32, told: &str) {
        self.lesson.spoil();
        let arguments = self.facts.missing_arguments(choice, call, told);
        if !arguments.is_empty() {
            self.emit(Event::ToolCallDelta { choice, call, arguments });
        }
    }

    /// Records that nothing shows whether the caller or the provider runs a call.
    pub(crate) fn unclear_call(&mut self, choice: u32, call: u32) {
        self.lesson.spoil();
        self.facts.note_unclear(choice, call);
    }

    /// Marks unclear calls before this number as run by the provider, because an answer or their
    /// output follows them. With a name, only the calls of that tool.
    pub(crate) fn unclear_calls_were_its_own(
        &mut self,
        choice: u32,
        before: u32,
        name: Option<&str>,
    ) {
        for call in self.facts.unclear_calls(choice, before, name) {
            self.emit(Event::ToolCallByProvider { choice, call });
        }
    }

    /// Records that a client could run a call although its block is open.
    pub(crate) fn settle_call(&mut self, choice: u32, call: u32) {
        self.lesson.spoil();
        self.facts.settle_call(choice, call);
    }

    /// Records that only callers run calls of this kind, even if a result follows.
    pub(crate) fn call_for_caller(&mut self, choice: u32, call: u32) {
        self.lesson.spoil();
        self.facts.note_for_caller(choice, call);
    }

    /// Reports whether the call of this number is the provider's own and has another id.
    pub(crate) fn is_other_call(&self, choice: u32, call: u32, id: &str) -> bool {
        self.facts.is_other_call(choice, call, id)
    }

    /// Reports whether a call takes free text.
    pub(crate) fn takes_text(&self, choice: u32, call: u32) -> bool {
        self.facts.takes_text(choice, call)
    }

    /// Records the end of a block that is not an open call. Some clients end the open call by it,
    /// whatever its number.
    pub(crate) fn settle_open_calls(&mut self, choice: u32) {
        for (choice, call) in self.facts.open_calls(Some(choice)) {
            self.settle_call(choice, call);
        }
    }

    /// Records that part of a call is unreadable, so the call is never complete.
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

    /// Reports whether only arguments of a call have come.
    pub(crate) fn is_nameless_call(&self, choice: u32, call: u32) -> bool {
        self.facts.is_nameless_call(choice, call)
    }

    pub(crate) fn open_call(&self, choice: u32) -> Option<u32> {
        self.facts.open_call(choice)
    }

    /// Returns the number of the next tool call, on wires that do not number calls.
    #[must_use]
    pub fn next_call(&self, choice: u32) -> u32 {
        self.facts.next_call(choice)
    }

    /// Adds parts of arguments that come at paths. An empty list announces more parts.
    pub(crate) fn push_partial(&mut self, choice: u32, call: u32, pieces: &[Piece<'_>]) {
        self.lesson.spoil();
        self.facts.push_partial(choice, call, pieces);
    }

    /// Reports whether arguments came at paths.
    pub(crate) fn has_partial(&self, choice: u32, call: u32) -> bool {
        self.facts.partial(choice, call).is_some()
    }

    /// Returns the arguments that came at paths; `None` if they are unfinished. This writes all of
    /// them, so it must not be asked again and again.
    pub(crate) fn partial(&self, choice: u32, call: u32) -> Option<String> {
        self.facts.partial(choice, call).and_then(PartialArgs::finish)
    }

    /// Emits an empty object as the arguments of a call without arguments.
    pub(crate) fn end_bare_call(&mut self, choice: u32, call: u32) {
        if self.is_bare_call(choice, call) {
            self.emit(Event::ToolCallDelta { choice, call, arguments: "{}" });
            self.facts.note_bare(choice, call);
        }
    }

    /// Reports whether a call has no arguments so far.
    pub(crate) fn is_bare_call(&self, choice: u32, call: u32) -> bool {
        self.has_call(choice, call) && !self.has_arguments(choice, call)
    }

    /// Reopens a closed call.
    pub(crate) fn reopen_call(&mut self, choice: u32, call: u32) {
        self.facts.reopen_call(choice, call);
    }

    /// Records that the provider ran the call with this id itself.
    pub(crate) fn by_provider(&mut self, choice: u32, id: &str) {
        if let Some(call) = self.facts.call_of_id(choice, id)
            && !self.facts.past_end
        {
            self.emit(Event::ToolCallByProvider { choice, call });
        }
    }

    /// Records the id of the code that makes a call, if the id is not empty.
    pub(crate) fn call_of_code(&mut self, choice: u32, call: u32, code: &str) {
        self.facts.note_code(choice, call, code);
    }

    /// Records that the code with this id has ended. It got the results of its calls, so that nobody
    /// is to run them any more. After the end marker, another response may have them.
    pub(crate) fn code_ended(&mut self, choice: u32, code: &str) {
        if self.facts.past_end {
            return;
        }
        for call in self.facts.calls_of_code(choice, code) {
            self.emit(Event::ToolCallByProvider { choice, call });
        }
    }

    /// Reports whether the provider runs this custom tool itself, because the caller did not offer
    /// it.
    pub(crate) fn runs_itself(&self, name: &str) -> bool {
        let offered = |tools: &Vec<String>| tools.iter().any(|tool| tool == name);
        self.wire.profile.quirks.runs_custom_tools
            && self.request.tools.as_ref().is_some_and(|tools| !offered(tools))
    }

    /// Marks earlier free-text calls as run by the provider, because an answer follows them. This
    /// applies only to providers that run custom tools themselves.
    pub(crate) fn text_calls_were_its_own(&mut self, choice: u32) {
        if self.wire.profile.quirks.runs_custom_tools && self.request.tools.is_none() {
            for call in self.facts.text_calls(choice) {
                self.emit(Event::ToolCallByProvider { choice, call });
            }
        }
    }
}
