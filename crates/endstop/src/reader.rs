//! Reads the bytes of a response into events and one ending.

mod faults;
mod state;

use crate::ending::{Closed, Confidence, Ending, Reason, Said, TransportEnd};
use crate::event::Event;
use crate::facts::Facts;
use crate::frame::framer::{Form, Framer, Hints, Label, Strings, without_mark};
use crate::frame::{Broken, Frame, Rest};
use crate::mark::Mark;
use crate::provider::Wire;
use crate::repeat::Repeat;
use crate::request::RequestInfo;
use crate::sink::Sink;
use crate::verdict::Meaning;
use state::Flags;
pub(crate) use state::State;

/// Head of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// HTTP status; zero if not known.
    pub status: u16,
    /// Content type; empty if not known.
    pub content_type: &'a str,
}

/// Limits on the work for one response. Excess is counted or stops the reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of an event, in bytes, and of a body that is not a stream.
    pub event_bytes: usize,
    /// Maximum number of events.
    pub events: u64,
    /// Maximum number of choices that are tracked.
    pub choices: usize,
    /// Maximum number of tool calls that are tracked.
    pub tool_calls: usize,
}

impl Head<'_> {
    /// Reports whether the content type names a stream. The bytes may still be a body.
    #[must_use]
    pub fn names_stream(&self) -> bool {
        Label::of(self.content_type).is_stream()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { event_bytes: 16 << 20, events: 16_000_000, choices: 128, tool_calls: 1024 }
    }
}

/// Reads one response to its ending, for any division of its bytes into chunks.
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
/// let ending = reader.finish(TransportEnd::Eof, |event| println!("{event:?}"));
/// assert_eq!(ending.reason, Reason::Cut);
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `finish` to get the ending"]
pub struct Reader {
    framer: Framer,
    state: State,
}

/// Result of reading a chunk frame by frame.
pub(crate) enum Step<'a> {
    /// An event of the frame that follows.
    Event(Event<'a>),
    /// The frame of the preceding events.
    Frame(Frame<'a>),
}

impl Reader {
    /// Creates a reader for one response on this wire.
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, request: RequestInfo) -> Self {
        Self::with_limits(wire, head, request, Limits::default())
    }

    /// Creates a reader with other limits.
    pub fn with_limits(
        wire: impl Into<Wire>,
        head: Head<'_>,
        request: RequestInfo,
        limits: Limits,
    ) -> Self {
        let wire = wire.into();
        let hints = Hints {
            framing: wire.profile.framing,
            label: Label::of(head.content_type),
            streamed: request.streamed,
            limit: limits.event_bytes,
            strings: Strings::Kept,
        };
        Self {
            framer: Framer::new(hints),
            state: State {
                wire,
                status: head.status,
                request,
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

    /// Keeps only the beginnings of long strings in a body, since nobody receives the events.
    fn without_text(mut self) -> Self {
        self.framer.shorten_strings();
        self
    }

    /// Disables the fast path, to compare against it.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn without_repeats(mut self) -> Self {
        self.state.repeat = Repeat::disabled();
        self
    }

    /// Reads a chunk and passes its events to `on_event`.
    pub fn read(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        self.push(chunk, Some(&mut Sink(&mut on_event)));
    }

    /// Reports whether reading stopped because a frame was too large or corrupt.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state.broken.is_some()
    }

    /// Returns the ending as far as it is known. Returns `None` until every choice so far has its
    /// finish reason, or until an error or the end of the stream is seen. The close may still come,
    /// so `finish` may lower the confidence.
    #[must_use]
    pub fn so_far(&self) -> Option<Ending> {
        let facts = &self.state.facts;
        if !(facts.all_said() || facts.proven || facts.fault.is_some()) {
            return None;
        }
        let closed = if facts.proven || facts.fault.is_some() { None } else { Some(Closed::Open) };
        Some(self.state.snapshot().ending_as(closed, TransportEnd::Eof))
    }

    /// Returns the ending of a response that is not over yet.
    pub(crate) fn under_way(&self) -> Ending {
        let ending = self.state.snapshot().ending_as(Some(Closed::Open), TransportEnd::Eof);
        Ending {
            over: false,
            reason: Reason::Unknown,
            confidence: Confidence::Low,
            sentence: "the response has not ended yet".to_owned(),
            ..ending
        }
    }

    /// Creates a reader for parts that come without bytes.
    pub(crate) fn of_pieces(wire: Wire, request: RequestInfo) -> Self {
        let mut reader = Self::new(wire, Head::default(), request);
        // Data beside a finish reason need not have the format of the wire.
        reader.state.understood = true;
        reader
    }

    /// Marks the response as incomplete input, so that content may exist that was not seen.
    pub(crate) fn set_partial(&mut self) {
        self.state.flags.partial = true;
    }

    /// Reads a frame that did not come from the framer. Reports whether the dialect recognised it.
    pub(crate) fn take_frame(&mut self, frame: &Frame<'_>) -> bool {
        self.state.flags.read = false;
        self.state.read_frame(frame, None);
        self.state.flags.read
    }

    /// Adds an event that comes from no frame.
    pub(crate) fn take(&mut self, event: &Event<'_>) {
        let State { facts, wire, limits, .. } = &mut self.state;
        facts.observe(event, wire, limits);
    }

    /// Adds a finish reason that was given separately from the frames.
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

    /// Reads a chunk and passes on the events of each frame, then the frame.
    pub(crate) fn read_frames(&mut self, chunk: &[u8], mut on_step: impl FnMut(Step<'_>)) {
        self.each_frame(chunk, |state, frame| {
            state.read_frame(&frame, Some(&mut Sink(&mut |event| on_step(Step::Event(event)))));
            on_step(Step::Frame(frame));
        });
    }

    /// Ends the response and passes on the last events: all of them, if the body is not a stream.
    /// There is exactly one ending.
    #[must_use]
    pub fn finish(self, end: TransportEnd, mut on_event: impl FnMut(Event<'_>)) -> Ending {
        self.end(end, Some(&mut Sink(&mut on_event)))
    }

    fn push(&mut self, chunk: &[u8], mut sink: Option<&mut Sink<'_, '_>>) {
        self.each_frame(chunk, |state, frame| state.read_frame(&frame, sink.as_deref_mut()));
    }

    /// Splits a chunk into frames, until reading stops.
    fn each_frame(&mut self, chunk: &[u8], mut on_frame: impl FnMut(&mut State, Frame<'_>)) {
        let Self { framer, state } = self;
        state.bytes += chunk.len() as u64;
        if state.broken.is_none()
            && let Err(broken) = framer.push(chunk, |frame| on_frame(state, frame))
        {
            state.broken = Some(broken);
        }
    }

    /// Reads all bytes of a response, and ends it.
    fn end_with(mut self, all: &[u8], close: TransportEnd) -> Ending {
        if !self.framer.is_body(all) || all.len() > self.state.limits.event_bytes {
            self.push(all, None);
            return self.end(close, None);
        }
        self.state.bytes += all.len() as u64;
        let body = without_mark(all);
        self.state.flags.cut_event = self.state.read_body(body, None) == Rest::CutFrame;
        self.state.read_strange(None);
        self.state.ending(close)
    }

    fn end(self, close: TransportEnd, mut sink: Option<&mut Sink<'_, '_>>) -> Ending {
        let Self { mut framer, mut state } = self;
        if state.broken.is_none() {
            let is_array = framer.is_array();
            let rest = match framer.take_body() {
                Some(body) => state.read_body(&body, sink.as_deref_mut()),
                None => framer.finish(|frame| state.read_frame(&frame, sink.as_deref_mut())),
            };
            state.flags.cut_event = rest == Rest::CutFrame;
            state.read_strange(sink);
            // Nothing is missing from an empty list that is closed.
            state.facts.proven |= is_array && state.events == 0 && rest == Rest::Nothing;
            // A list that was never closed is incomplete, whatever its last element contains.
            state.flags.unclosed_list = is_array && state.flags.cut_event;
            state.facts.proven &= !state.flags.unclosed_list;
        }
        state.ending(close)
    }
}

/// Reads one response for its ending only, which is cheaper than a [`Reader`].
///
/// ```
/// use endstop::{Head, Reason, RequestInfo, TransportEnd, Watcher, provider};
///
/// let mut watcher = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// watcher.watch(br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}"#);
/// assert_eq!(watcher.finish(TransportEnd::Eof).reason, Reason::OutputLimit);
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `finish` to get the ending"]
pub struct Watcher(Reader);

impl Watcher {
    /// Creates a watcher for one response on this wire.
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, request: RequestInfo) -> Self {
        Self(Reader::new(wire, head, request).without_text())
    }

    /// Creates a watcher with other limits.
    pub fn with_limits(
        wire: impl Into<Wire>,
        head: Head<'_>,
        request: RequestInfo,
        limits: Limits,
    ) -> Self {
        Self(Reader::with_limits(wire, head, request, limits).without_text())
    }

    /// Reads a chunk.
    pub fn watch(&mut self, chunk: &[u8]) {
        self.0.push(chunk, None);
    }

    /// Reads a chunk and reports each complete frame. A gateway needs this to decide how much of a
    /// response to pass on.
    pub fn follow(&mut self, chunk: &[u8], mut on_frame: impl FnMut(Mark<'_>)) {
        self.0.each_frame(chunk, |state, frame| {
            state.read_frame(&frame, None);
            on_frame(Mark { end: frame.end, data: frame.data, facts: &state.facts });
        });
    }

    /// Returns the number of bytes of the last chunk that precede any unfinished frame.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.0.framer.whole()
    }

    /// Returns how much of an unfinished frame no client can act on, in bytes. Its bytes, as far as
    /// they are not passed on yet, are `held` and then `chunk`; `is_start` says that none is.
    #[must_use]
    pub fn inert(&self, is_start: bool, held: &[u8], chunk: &[u8]) -> usize {
        self.0.framer.inert(is_start, held, chunk)
    }

    /// Reports whether reading stopped because a frame was too large or corrupt.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// Stops reading for good, because the bytes are too many or corrupt outside of any frame, such as
    /// in a content encoding. No success follows from a response that was not read to its end.
    pub fn stop(&mut self, why: Broken) {
        self.0.state.broken.get_or_insert(why);
    }

    /// Reports whether the response is a body of which no line is one of a stream: no client can act on a part
    /// of it.
    #[must_use]
    pub fn is_mere_body(&self) -> bool {
        self.0.framer.is_mere_body()
    }

    /// Returns the form of the response, as far as the bytes show it.
    #[must_use]
    pub fn form(&self) -> Form {
        self.0.framer.form()
    }

    /// Returns the form of a response that begins with these bytes. Nothing is read.
    #[must_use]
    pub fn form_of(&self, first: &[u8]) -> Form {
        self.0.framer.form_of(first)
    }

    /// Reports whether every choice that was asked for has its finish reason.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let State { facts, request, .. } = &self.0.state;
        let due = usize::try_from(request.choices.unwrap_or(1)).unwrap_or(usize::MAX);
        facts.all_said() && facts.choices.len() >= due
    }

    /// Reports whether the provider has sent its count of output tokens.
    #[must_use]
    pub fn has_output_count(&self) -> bool {
        self.0.state.facts.usage.output.is_some()
    }

    /// Returns the ending as far as it is known. See [`Reader::so_far`].
    #[must_use]
    pub fn so_far(&self) -> Option<Ending> {
        self.0.so_far()
    }

    /// Ends the response. There is exactly one ending.
    #[must_use]
    pub fn finish(self, end: TransportEnd) -> Ending {
        self.0.end(end, None)
    }

    /// Reads all bytes of a response at once, and ends it. A body is not copied.
    #[must_use]
    pub fn finish_with(self, all: &[u8], end: TransportEnd) -> Ending {
        self.0.end_with(all, end)
    }
}

/// Drops the events of a reader that has not read anything yet.
impl From<Reader> for Watcher {
    fn from(reader: Reader) -> Self {
        Self(reader.without_text())
    }
}
