//! The reader: push bytes, get events, finish once, get the ending.

use std::cmp::Ordering;

use crate::dialect::errors::{self, Expect, RawError};
use crate::dialect::partial_args::{PartialArgs, Piece};
use crate::dialect::{CallsClose, Proof, Reading};
use crate::ending::{
    ChoiceEnding, Closed, Confidence, Ending, Reason, SafetyRating, Said, Shown, TransportEnd,
};
use crate::event::Event;
use crate::facts::{Choice, Facts, Kinds, Marks};
use crate::fault::{Fault, FaultForm, FaultKind};
use crate::frame::framer::{Framer, Hints};
use crate::frame::{Broken, Frame, FrameKind, Rest, is_bracketed_word};
use crate::mend::mend;
use crate::provider::{self, Profile, Wire};
use crate::repeat::{Lesson, Order, Repeat};
use crate::shape;
use crate::verdict::{self, Evidence, Habits, Meaning};

/// The longest token for going on that is passed on, in bytes.
const MAX_TOKEN: usize = 1 << 20;

/// The head of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// The HTTP status; zero where it is not known.
    pub status: u16,
    /// The content type; empty where it is not known.
    pub content_type: &'a str,
}

/// What was asked. All of it is optional, and all of it sharpens the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The model.
    pub model: Option<String>,
    /// Whether a stream was asked for.
    pub streamed: Option<bool>,
    /// The cap on output tokens.
    pub cap: Option<u64>,
    /// How many choices.
    pub choices: Option<u32>,
    /// The stop sequences.
    pub stop: Vec<String>,
    /// The names of the tools that the caller runs; none where they are not known. They matter where
    /// a host runs tools of the same kind itself.
    pub tools: Option<Vec<String>>,
}

/// Bounds on the work for one response. What goes beyond is counted or ends the reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest event, in bytes; also the largest body that is not a stream.
    pub event_bytes: usize,
    /// The most events.
    pub events: u64,
    /// The most choices that are followed.
    pub choices: usize,
    /// The most tool calls that are followed.
    pub tool_calls: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { event_bytes: 16 << 20, events: 16_000_000, choices: 128, tool_calls: 1024 }
    }
}

/// Reads one response, in any cutting of its bytes, to its ending.
///
/// ```
/// use endstop::{RequestInfo, TransportEnd, Head, Reader, Reason, provider};
///
/// let head = Head { status: 200, content_type: "text/event-stream" };
/// let mut reader = Reader::new(&provider::OPENAI, head, RequestInfo::default());
/// reader.read(
///     b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n",
///     |event| println!("{event:?}"),
/// );
/// let ending = reader.finish(TransportEnd::Eof);
/// assert_eq!(ending.reason, Reason::Cut);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a response has an ending: call `finish`"]
pub struct Reader {
    framer: Framer,
    state: State,
}

/// All but the framer, so that frames can be read while it holds them.
#[derive(Clone, Debug)]
struct State {
    wire: Wire,
    status: u16,
    asked: RequestInfo,
    limits: Limits,
    facts: Facts,
    repeat: Repeat,
    broken: Option<Broken>,
    /// The wire that was named, where the bytes turned out to be of another.
    named: Option<Box<Wire>>,
    /// The first event of another wire, until a second one agrees.
    strange: Option<Box<Strange>>,
    /// An event of the wire was read.
    understood: bool,
    flags: Flags,
    bytes: u64,
    events: u64,
}

/// An event that is of another wire than the one that was named.
#[derive(Clone, Debug)]
struct Strange {
    wire: Wire,
    name: String,
    data: Vec<u8>,
}

impl Strange {
    fn new(frame: &Frame<'_>, wire: Wire) -> Self {
        Self { wire, name: frame.name.to_owned(), data: frame.data.to_vec() }
    }

    fn frame(&self) -> Frame<'_> {
        Frame { name: &self.name, ..Frame::event(&self.data) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    /// Only a piece of the response is read.
    partial: bool,
    /// The dialect read the last frame as one of its own.
    read: bool,
    cut_event: bool,
    /// The bytes ended inside a list of events.
    unclosed_list: bool,
    malformed_event: bool,
    invalid_utf8: bool,
    shape_asked: bool,
}

/// How far a response has come when one of its frames is whole.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// How many bytes of the chunk at hand belong to this frame and to those before it.
    pub end: usize,
    facts: &'a Facts,
}

impl Mark<'_> {
    /// A tool call has begun.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.facts.has_calls()
    }

    /// How far the calls of each choice have come.
    pub fn choices(&self) -> impl Iterator<Item = ChoiceMark> {
        self.facts.choices.iter().map(Choice::mark)
    }

    /// A word has come, for one choice at least.
    #[must_use]
    pub fn has_word(&self) -> bool {
        self.facts.any_said()
    }

    /// The proof of the end has come.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.facts.proven
    }

    /// The provider sent an error.
    #[must_use]
    pub fn has_fault(&self) -> bool {
        self.facts.fault.is_some()
    }
}

/// What reading a chunk frame by frame gives.
pub(crate) enum Step<'a> {
    /// An event of the frame that follows.
    Event(Event<'a>),
    /// The frame whose events came.
    Frame(Frame<'a>),
}

/// How far the calls of one choice have come: what a gate in front of clients that do not wait for the
/// end goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChoiceMark {
    /// The choice's own number on the wire.
    pub index: u32,
    /// Calls that were begun and that the caller is to run.
    pub begun: u32,
    /// Of those, calls whose arguments are whole.
    pub whole: u32,
    /// Of those, calls whose block is closed.
    pub closed: u32,
    /// Calls that the provider runs itself.
    pub by_provider: u32,
    /// The word for the end of this choice has come.
    pub said: bool,
}

/// Where dialects put what they read.
#[derive(Debug)]
pub struct EventSink<'r, 's> {
    facts: &'r mut Facts,
    wire: &'r Wire,
    limits: &'r Limits,
    asked: &'r RequestInfo,
    lesson: Lesson,
    data: &'r [u8],
    sink: Option<Sink<'r, 's>>,
}

/// The caller's function for events.
struct Sink<'r, 's>(&'r mut (dyn FnMut(Event<'_>) + 's));

impl std::fmt::Debug for Sink<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Sink")
    }
}

impl EventSink<'_, '_> {
    pub(crate) fn emit(&mut self, event: Event<'_>) {
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

    pub(crate) fn text(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Text { choice, text });
        }
    }

    pub(crate) fn reasoning(&mut self, choice: u32, text: &str) {
        if !text.is_empty() {
            self.emit(Event::Reasoning { choice, text });
        }
    }

    pub(crate) fn refusal(&mut self, choice: u32, text: &str) {
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

    pub(crate) fn detail(&mut self, choice: Option<u32>, key: &'static str, value: &str) {
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

    /// A choice is there, if without content so far.
    pub(crate) fn choice(&mut self, index: u32) {
        self.facts.choice_mut(index, self.limits);
    }

    /// Notes what the wire says of a choice besides its word.
    pub(crate) fn mark(&mut self, choice: u32, set: impl FnOnce(&mut Marks)) {
        self.lesson.spoil();
        if let Some(marks) = self.facts.marks_mut(choice, self.limits) {
            set(marks);
        }
    }

    /// The provider named the stop sequence that matched.
    pub(crate) fn stop_sequence(&mut self, choice: u32) {
        self.mark(choice, |marks| marks.stop_sequence = true);
    }

    pub(crate) fn has_content(&self, choice: u32) -> bool {
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

    pub(crate) fn has_call(&self, choice: u32, call: u32) -> bool {
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

    pub(crate) fn next_call(&self, choice: u32) -> u32 {
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

impl Reader {
    /// A reader for one response of this wire.
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, asked: RequestInfo) -> Self {
        Self::with_limits(wire, head, asked, Limits::default())
    }

    /// The same, with other bounds.
    pub fn with_limits(
        wire: impl Into<Wire>,
        head: Head<'_>,
        asked: RequestInfo,
        limits: Limits,
    ) -> Self {
        let wire = wire.into();
        let hints = Hints {
            framing: wire.profile.framing,
            content_type: head.content_type.to_ascii_lowercase(),
            streamed: asked.streamed,
            limit: limits.event_bytes,
        };
        Self {
            framer: Framer::new(hints),
            state: State {
                wire,
                status: head.status,
                asked,
                limits,
                facts: Facts::default(),
                repeat: Repeat::default(),
                broken: None,
                named: None,
                strange: None,
                understood: false,
                flags: Flags::default(),
                bytes: 0,
                events: 0,
            },
        }
    }

    /// Without the fast path: what it is held against.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn without_repeats(mut self) -> Self {
        self.state.repeat = Repeat::disabled();
        self
    }

    /// Reads a chunk and hands its events over.
    pub fn read(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        self.push(chunk, Some(&mut Sink(&mut on_event)));
    }

    /// Reads a chunk for the sake of the ending alone, which is cheaper.
    pub fn watch(&mut self, chunk: &[u8]) {
        self.push(chunk, None);
    }

    /// Reads a chunk for the sake of the ending alone and tells of each frame as it is whole: what is
    /// needed to decide how far a response can be passed on.
    pub fn follow(&mut self, chunk: &[u8], mut on_frame: impl FnMut(Mark<'_>)) {
        let Self { framer, state } = self;
        state.bytes += chunk.len() as u64;
        if state.broken.is_none()
            && let Err(broken) = framer.push(chunk, |frame| {
                state.read_frame(&frame, None);
                on_frame(Mark { end: frame.end, facts: &state.facts });
            })
        {
            state.broken = Some(broken);
        }
    }

    /// How much of the last chunk lies before anything that is unfinished.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.framer.whole()
    }

    /// No further frame can be read: one was too large, or corrupt.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state.broken.is_some()
    }

    /// The provider told how many output tokens it used.
    #[must_use]
    pub fn has_output_count(&self) -> bool {
        self.state.facts.usage.output.is_some()
    }

    /// The ending as far as it has been said: none before every choice that came has its word, or an
    /// error or the proof of the end has come. A close that is still to come is not missing, so that
    /// finishing may lower the confidence.
    #[must_use]
    pub fn so_far(&self) -> Option<Ending> {
        let facts = &self.state.facts;
        if !(facts.all_said() || facts.proven || facts.fault.is_some()) {
            return None;
        }
        let closed = if facts.proven || facts.fault.is_some() { None } else { Some(Closed::Open) };
        Some(self.state.snapshot().ending_as(closed, TransportEnd::Eof))
    }

    /// The ending as far as it is known where nothing ends the response: it is not over.
    pub(crate) fn under_way(&self) -> Ending {
        let ending = self.state.snapshot().ending_as(Some(Closed::Open), TransportEnd::Eof);
        Ending {
            over: false,
            reason: Reason::Unknown,
            confidence: Confidence::Low,
            sentence: "nothing in it ends the response".to_owned(),
            ..ending
        }
    }

    /// A reader of pieces that no bytes were given for.
    pub(crate) fn of_pieces(wire: Wire, asked: RequestInfo) -> Self {
        let mut reader = Self::new(wire, Head::default(), asked);
        // What is handed over beside a word need not be of the wire.
        reader.state.understood = true;
        reader
    }

    /// Only a piece of the response is read, so that content may have come that does not show.
    pub(crate) fn set_partial(&mut self) {
        self.state.flags.partial = true;
    }

    /// Takes in a frame that was made, not framed. True if the dialect read it as one of its own.
    pub(crate) fn take_frame(&mut self, frame: &Frame<'_>) -> bool {
        self.state.flags.read = false;
        self.state.read_frame(frame, None);
        self.state.flags.read
    }

    /// Takes in an event that no frame gives.
    pub(crate) fn take(&mut self, event: &Event<'_>) {
        let State { facts, wire, limits, .. } = &mut self.state;
        facts.observe(event, wire, limits);
    }

    /// Takes in a word that was handed over beside the frames.
    pub(crate) fn say(&mut self, choice: u32, said: Said, meaning: Meaning) {
        let State { facts, limits, .. } = &mut self.state;
        facts.say(choice, said, meaning, limits);
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.state.facts
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.state.wire
    }

    /// Reads a chunk and hands over the events of each frame, and then the frame.
    pub(crate) fn read_frames(&mut self, chunk: &[u8], mut on_step: impl FnMut(Step<'_>)) {
        let Self { framer, state } = self;
        state.bytes += chunk.len() as u64;
        if state.broken.is_none()
            && let Err(broken) = framer.push(chunk, |frame| {
                state.read_frame(&frame, Some(&mut Sink(&mut |event| on_step(Step::Event(event)))));
                on_step(Step::Frame(frame));
            })
        {
            state.broken = Some(broken);
        }
    }

    /// Ends the response. There is exactly one ending.
    #[must_use]
    pub fn finish(self, close: TransportEnd) -> Ending {
        self.end(close, None)
    }

    /// The same, with the events that only the end of the bytes brings, as all of a plain body's.
    #[must_use]
    pub fn finish_with(self, close: TransportEnd, mut on_event: impl FnMut(Event<'_>)) -> Ending {
        self.end(close, Some(&mut Sink(&mut on_event)))
    }

    fn push(&mut self, chunk: &[u8], mut sink: Option<&mut Sink<'_, '_>>) {
        let Self { framer, state } = self;
        state.bytes += chunk.len() as u64;
        if state.broken.is_none()
            && let Err(broken) =
                framer.push(chunk, |frame| state.read_frame(&frame, sink.as_deref_mut()))
        {
            state.broken = Some(broken);
        }
    }

    fn end(self, close: TransportEnd, mut sink: Option<&mut Sink<'_, '_>>) -> Ending {
        let Self { framer, mut state } = self;
        if state.broken.is_none() {
            let is_array = framer.is_array();
            let rest = framer.finish(|frame| state.read_frame(&frame, sink.as_deref_mut()));
            state.flags.cut_event = rest == Rest::CutFrame;
            state.read_strange(sink);
            // A list that was never closed is not whole, whatever its last element says.
            state.flags.unclosed_list = is_array && state.flags.cut_event;
            state.facts.proven &= !state.flags.unclosed_list;
        }
        state.ending(close)
    }
}

impl State {
    fn read_frame(&mut self, frame: &Frame<'_>, mut sink: Option<&mut Sink<'_, '_>>) {
        self.events += 1;
        if self.events > self.limits.events {
            self.broken = Some(Broken::Oversize);
            return;
        }
        self.facts.past_end = self.facts.proven;
        if !self.read_repeat(frame, sink.as_deref_mut()) {
            self.read_new(frame, sink);
        }
    }

    /// The fast path: true if the frame repeats an earlier one but for its text.
    fn read_repeat(&mut self, frame: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) -> bool {
        let Some((piece, hit)) = self.repeat.hit(frame) else { return false };
        // That text came is all that matters where nobody listens, and the first time told it;
        // arguments are followed.
        let quiet = sink.is_none() && !piece.is_followed();
        let text = if quiet { None } else { hit.text() };
        if text.is_none() && !quiet {
            return false;
        }
        let counts = self.repeat.counts();
        if let Some((_, usage)) = &counts {
            self.facts.usage.update(usage);
        }
        self.facts.late_event |= self.facts.past_end;
        let Some(text) = text else { return true };
        let event = piece.event(&text);
        self.facts.observe(&event, &self.wire, &self.limits);
        let Some(Sink(sink)) = sink else { return true };
        match counts {
            Some((Order::Before, usage)) => {
                sink(Event::Usage(usage));
                sink(event);
            }
            Some((Order::After, usage)) => {
                sink(event);
                sink(Event::Usage(usage));
            }
            None => sink(event),
        }
        true
    }

    fn read_new(&mut self, frame: &Frame<'_>, mut sink: Option<&mut Sink<'_, '_>>) {
        if self.read_once(frame, sink.as_deref_mut()) != Reading::Malformed {
            return;
        }
        let Some(mended) = mend(frame.data) else {
            self.flags.malformed_event = true;
            let is_page = frame.data.trim_ascii_start().starts_with(b"<");
            if frame.kind == FrameKind::Event && (frame.name == "error" || is_page) {
                let status = self.status;
                emit_text(frame.data, status, &mut self.out(frame, sink));
            }
            return;
        };
        self.flags.invalid_utf8 |= std::str::from_utf8(frame.data).is_err();
        let again = Frame { data: &mended, ..*frame };
        self.flags.malformed_event |= self.read_once(&again, sink) == Reading::Malformed;
    }

    /// Reads a frame, unless it is malformed.
    fn read_once(&mut self, frame: &Frame<'_>, mut sink: Option<&mut Sink<'_, '_>>) -> Reading {
        if self.read_outside(frame, sink.as_deref_mut()) {
            return Reading::Read;
        }
        let mut reading = self.read_event(frame, sink.as_deref_mut());
        if reading == Reading::Strange
            && let Some(other) = self.other_wire(frame)
        {
            if !self.is_second(frame, &other) {
                self.strange = Some(Box::new(Strange::new(frame, other)));
                return reading;
            }
            reading = self.read_by(other, frame, sink.as_deref_mut());
        }
        if self.facts.has_begun() {
            self.strange = None;
        }
        self.flags.read = reading == Reading::Read;
        // What is called an error is one, whatever it says.
        if reading == Reading::Read && frame.kind == FrameKind::Event && frame.name == "error" {
            reading = Reading::Error;
        }
        match reading {
            Reading::Malformed => return reading,
            Reading::Read | Reading::Unfinished => self.understood = true,
            Reading::Strange | Reading::Error => {
                self.understood |= reading == Reading::Error;
                self.read_fault(frame, reading, sink);
            }
        }
        let whole = matches!(reading, Reading::Read | Reading::Strange | Reading::Error);
        if frame.kind == FrameKind::Body && whole {
            self.facts.proven = true;
        }
        self.ask_shape(frame);
        reading
    }

    /// Whether two events agree that the wire is another: one alone can be odd. A body stands alone.
    fn is_second(&self, frame: &Frame<'_>, other: &Wire) -> bool {
        let dialect = other.profile.dialect.id;
        let agrees = |first: &Strange| first.wire.profile.dialect.id == dialect;
        frame.kind == FrameKind::Body || self.strange.as_deref().is_some_and(agrees)
    }

    /// Reads on by another wire, from the event on that was held.
    fn read_by(
        &mut self,
        wire: Wire,
        frame: &Frame<'_>,
        mut sink: Option<&mut Sink<'_, '_>>,
    ) -> Reading {
        self.named.get_or_insert_with(|| Box::new(self.wire.clone()));
        self.wire = wire;
        self.repeat = Repeat::default();
        if let Some(first) = self.strange.take() {
            self.read_event(&first.frame(), sink.as_deref_mut());
        }
        self.read_event(frame, sink)
    }

    /// Reads the one event that nobody knew, by the wire that it seems to be of.
    fn read_strange(&mut self, sink: Option<&mut Sink<'_, '_>>) {
        let Some(first) = self.strange.take().filter(|_| !self.facts.has_begun()) else { return };
        self.named.get_or_insert_with(|| Box::new(self.wire.clone()));
        self.wire = first.wire.clone();
        self.understood |= self.read_event(&first.frame(), sink) == Reading::Read;
    }

    /// Reads what no dialect reads: exceptions, pages, markers, bodies of errors. False if it is
    /// nothing of these.
    fn read_outside(&mut self, frame: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) -> bool {
        let (status, proof, failed) =
            (self.status, self.wire.profile.proof, self.is_error_status());
        let mut out = self.out(frame, sink);
        match frame.kind {
            FrameKind::Exception => emit_fault(exception(frame), status, &mut out),
            FrameKind::Text => emit_text(frame.data, status, &mut out),
            FrameKind::Event | FrameKind::Body if is_marker(proof, frame.data) => {
                out.emit(Event::Proof);
            }
            FrameKind::Event | FrameKind::Body if is_bracketed_word(frame.data) => {}
            FrameKind::Event | FrameKind::Body if failed => {
                let mended = || errors::read(&mend(frame.data)?, Expect::Error);
                if let Some(told) = errors::read(frame.data, Expect::Error).or_else(mended) {
                    emit_fault(told, status, &mut out);
                }
            }
            FrameKind::Event | FrameKind::Body => return false,
        }
        true
    }

    /// Reads a frame by the dialect at hand.
    fn read_event(&mut self, frame: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) -> Reading {
        let dialect = self.wire.profile.dialect;
        let is_event = frame.kind == FrameKind::Event;
        let read = if is_event { dialect.read } else { dialect.read_body };
        let mut out = self.out(frame, sink);
        let mut reading = read(frame, &mut out);
        // A whole body, labelled as a stream.
        if reading == Reading::Strange
            && is_event
            && (dialect.read_body)(frame, &mut out) == Reading::Read
        {
            out.emit(Event::Proof);
            out.lesson.spoil();
            reading = Reading::Read;
        }
        let lesson = std::mem::take(&mut out.lesson);
        self.repeat.heed(&lesson);
        if reading == Reading::Read && is_event {
            self.repeat.learn(frame, &lesson, dialect);
        }
        reading
    }

    fn read_fault(&mut self, frame: &Frame<'_>, reading: Reading, sink: Option<&mut Sink<'_, '_>>) {
        let is_error = reading == Reading::Error || frame.name == "error";
        let expect = if is_error { Expect::Error } else { Expect::Anything };
        let mended = || errors::read(&mend(frame.data)?, expect);
        let told = match errors::read(frame.data, expect).or_else(mended) {
            None if reading == Reading::Error => Some(bare_text(frame.data)),
            told => told,
        };
        let status = self.status;
        if let Some(told) = told {
            emit_fault(told, status, &mut self.out(frame, sink));
        }
    }

    fn out<'r, 's>(
        &'r mut self,
        frame: &Frame<'r>,
        sink: Option<&'r mut Sink<'_, 's>>,
    ) -> EventSink<'r, 's> {
        EventSink {
            facts: &mut self.facts,
            wire: &self.wire,
            limits: &self.limits,
            asked: &self.asked,
            lesson: Lesson::default(),
            data: frame.data,
            sink: sink.map(|Sink(sink)| Sink(*sink)),
        }
    }

    /// The wire of a dialect that knows this frame, where the one at hand has understood nothing that
    /// tells of an answer: hosts and paths can be wrong, and the body outranks them then.
    fn other_wire(&self, frame: &Frame<'_>) -> Option<Wire> {
        if self.facts.has_begun() || errors::read(frame.data, Expect::Anything).is_some() {
            return None;
        }
        let claim = shape::claim(frame)?;
        let named = self.named.as_deref().unwrap_or(&self.wire);
        if claim.dialect.id == self.wire.profile.dialect.id {
            return None;
        }
        if claim.dialect.id == named.profile.dialect.id {
            return Some(named.clone());
        }
        let own = provider::by_id(named.profile.provider);
        let own = own.and_then(|provider| provider.wire_of(claim.dialect.id)).copied();
        let profile = own.or_else(|| claim.profile())?;
        let profile = Profile {
            provider: named.profile.provider,
            guessed: true,
            ambiguous: claim.ambiguous,
            ..profile
        };
        Some(Wire { profile, ..named.clone() })
    }

    /// Where the shape of the beginning told nothing, that of a whole frame may.
    fn ask_shape(&mut self, frame: &Frame<'_>) {
        if !self.wire.profile.ambiguous || !self.facts.has_begun() || self.flags.shape_asked {
            return;
        }
        self.flags.shape_asked = true;
        if let Some(claim) = shape::claim(frame)
            && claim.dialect.id == self.wire.profile.dialect.id
        {
            self.wire.profile.ambiguous = claim.ambiguous;
        }
    }

    fn is_error_status(&self) -> bool {
        self.status >= 300
    }

    /// A copy for judging: without the fast path's template, which can be as large as an event.
    fn snapshot(&self) -> Self {
        Self {
            wire: self.wire.clone(),
            asked: self.asked.clone(),
            limits: self.limits.clone(),
            facts: self.facts.clone(),
            repeat: Repeat::default(),
            named: None,
            strange: None,
            ..*self
        }
    }

    fn ending(self, close: TransportEnd) -> Ending {
        self.ending_as(None, close)
    }

    /// The ending, closed like this where it is not for the close to say.
    fn ending_as(mut self, closed: Option<Closed>, close: TransportEnd) -> Ending {
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
        if choices.is_empty() {
            let nothing = Choice::default();
            choices.push(self.judge(&nothing, shown(&nothing), closed));
        }
        let worst = choices.iter().enumerate().max_by_key(|(index, choice)| {
            (choice.reason, std::cmp::Reverse(choice.confidence), std::cmp::Reverse(*index))
        });
        let Some(ChoiceEnding { said, shown, reason, confidence, sentence, .. }) =
            worst.map(|(_, choice)| choice.clone())
        else {
            unreachable!("there is always a choice")
        };
        let mut ending = Ending {
            provider: self.wire.provider().to_owned(),
            dialect: self.wire.profile.dialect.id,
            model: self.facts.model.take().or(self.asked.model.take()),
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
            streamed: self.asked.streamed,
            api_version: self.wire.api_version().map(str::to_owned),
            cap: self.asked.cap,
            bytes: self.bytes,
            events: self.events,
        };
        if let Some(pending) = self.facts.pending.take() {
            not_over(&mut ending, pending);
        }
        ending
    }

    /// How the bytes ended, in the order in which the causes count.
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

    /// As many choices came as were asked for.
    fn has_all_choices(&self) -> bool {
        let asked = self.asked.choices.map_or(0, |asked| asked as usize);
        self.facts.choices.len() >= asked.min(self.limits.choices)
    }

    /// Choices that were asked for and never came, where nothing proves that the response is over.
    fn add_missing_choices(&mut self, closed: Closed) {
        let Some(asked) = self.asked.choices else { return };
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
            unrecognised: self.is_unrecognised(),
            missing_marker: !matches!(closed, Closed::Proven | Closed::Error | Closed::Open)
                && said
                && self.word_suffices(choice, closed),
            cut_event: self.flags.cut_event,
            malformed_event: self.flags.malformed_event,
            invalid_utf8: self.flags.invalid_utf8,
            late_event: self.facts.late_event,
            client_closed_early: gone && (proven || said && self.word_suffices(choice, closed)),
            excess: self.facts.excess,
            ..choice.shown()
        }
    }

    fn judge(&self, choice: &Choice, shown: Shown, closed: Closed) -> ChoiceEnding {
        let quirks = &self.wire.profile.quirks;
        let verdict = verdict::judge(&Evidence {
            said: choice.said.as_ref(),
            meaning: choice.meaning.unwrap_or(Meaning::Nothing),
            closed,
            shown: &shown,
            fault: self.facts.fault.as_ref(),
            choices: self.facts.choices.len(),
            habits: Habits {
                word_suffices: self.word_suffices(choice, closed),
                silent: self.wire.profile.proof == Proof::Silent,
                has_tool_word: self.wire.profile.has_tool_word(),
                lies_at_cap: quirks.lies_at_cap,
                guessed: self.wire.profile.guessed,
                ambiguous: self.wire.profile.ambiguous,
            },
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

    /// Whether the word of a choice makes up for the missing proof. A word of success does not where
    /// something was to follow.
    fn word_suffices(&self, choice: &Choice, closed: Closed) -> bool {
        let proof = self.wire.profile.proof;
        let whole = !(self.flags.unclosed_list && choice.says_success());
        whole && choice.word_suffices(proof, closed, self.flags.cut_event)
    }

    /// Whole events came, and none of them is of a wire that is known.
    fn is_unrecognised(&self) -> bool {
        let read = self.understood || self.facts.fault.is_some() || self.facts.proven;
        self.events > 0 && !read && !self.flags.malformed_event
    }

    /// The output tokens that were used, held against those that were allowed.
    fn used_of_cap(&self) -> Option<Ordering> {
        let usage = &self.facts.usage;
        let beside = usage.reasoning.filter(|_| self.wire.profile.quirks.reasoning_beside_output);
        let used = match (usage.output, beside) {
            (None, None) => return None,
            (output, beside) => output.unwrap_or(0).saturating_add(beside.unwrap_or(0)),
        };
        self.asked.cap.filter(|cap| *cap > 0).map(|cap| used.cmp(&cap))
    }
}

/// A polled body that is still under way has a state, not an ending.
fn not_over(ending: &mut Ending, pending: Said) {
    ending.over = false;
    ending.reason = Reason::Unknown;
    ending.confidence = Confidence::High;
    ending.sentence =
        format!("the response is not over: its `{}` is `{}`", pending.field, pending.word);
    ending.said = Some(pending);
}

fn is_marker(proof: Proof, data: &[u8]) -> bool {
    matches!(proof, Proof::Marker(marker) if data.starts_with(marker.as_bytes()))
}

fn exception(frame: &Frame<'_>) -> RawError {
    let mut told = errors::read(frame.data, Expect::Error).unwrap_or_else(|| bare_text(frame.data));
    told.names.push(frame.name.to_owned());
    told.type_ = Some(frame.name.to_owned());
    told
}

/// An error that is nothing but its message, and not even that where an event has only its name.
fn bare_text(data: &[u8]) -> RawError {
    let message = (data != b"{}").then(|| String::from_utf8_lossy(data).into_owned());
    RawError { message, ..RawError::default() }
}

fn judge_fault(mut told: RawError, status: u16, profile: &Profile) -> Fault {
    let rejected = status >= 300;
    if rejected {
        told.status = Some(status);
    }
    Fault { rejected, ..told.judge(&[profile.error_patterns, profile.dialect.error_patterns]) }
}

fn emit_fault(told: RawError, status: u16, out: &mut EventSink<'_, '_>) {
    let fault = judge_fault(told, status, &out.wire.profile);
    out.emit(Event::Fault(&fault));
}

/// What came in place of an answer.
fn emit_text(text: &[u8], status: u16, out: &mut EventSink<'_, '_>) {
    let text = String::from_utf8_lossy(text);
    let is_page = text.trim_start().starts_with('<');
    let is_binary = text.contains(['\u{fffd}', '\0']);
    let message = (!is_page && !is_binary).then(|| text.trim().to_owned());
    let told = RawError { message: message.filter(|text| !text.is_empty()), ..RawError::default() };
    let mut fault = judge_fault(told, status, &out.wire.profile);
    fault.form = FaultForm::Text;
    if fault.kind == FaultKind::Other {
        fault.kind = FaultKind::BadPayload;
    }
    out.emit(Event::Fault(&fault));
}
