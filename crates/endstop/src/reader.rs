//! Reads the bytes of a response into events and one ending.

use crate::conclude::judge_fault;
use crate::dialect::errors::{self, Expect, RawError};
use crate::dialect::{Proof, Reading};
use crate::ending::{Closed, Confidence, Ending, Reason, Said, TransportEnd};
use crate::event::Event;
use crate::facts::Facts;
use crate::fault::{FaultForm, FaultKind};
use crate::frame::framer::{self, Form, Framer, Hints};
use crate::frame::{Broken, Frame, FrameKind, Rest, is_bracketed_word, trim};
use crate::mark::Mark;
use crate::mend::mend;
use crate::provider::{self, Profile, Wire};
use crate::repeat::{Lesson, Order, Repeat};
use crate::request::RequestInfo;
use crate::shape;
use crate::sink::{EventSink, Sink};
use crate::verdict::Meaning;

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
        framer::names_stream(self.content_type)
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

/// All state but the framer, so that frames can be read while the framer holds them.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) wire: Wire,
    pub(crate) status: u16,
    pub(crate) asked: RequestInfo,
    pub(crate) limits: Limits,
    pub(crate) facts: Facts,
    pub(crate) repeat: Repeat,
    pub(crate) broken: Option<Broken>,
    /// Wire that the caller named, if the bytes turned out to be of another.
    pub(crate) named: Option<Box<Wire>>,
    /// First event of another wire, until a second one confirms it.
    pub(crate) strange: Option<Box<Strange>>,
    /// Whether an event of the wire was read.
    pub(crate) understood: bool,
    pub(crate) flags: Flags,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
}

/// An event of another wire than the named one.
#[derive(Clone, Debug)]
pub(crate) struct Strange {
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
pub(crate) struct Flags {
    /// Whether only a part of the response is read.
    pub(crate) partial: bool,
    /// Whether the dialect recognised the last frame.
    pub(crate) read: bool,
    pub(crate) cut_event: bool,
    /// Whether the bytes ended inside a list of events.
    pub(crate) unclosed_list: bool,
    pub(crate) malformed_event: bool,
    pub(crate) invalid_utf8: bool,
    pub(crate) shape_asked: bool,
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
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, asked: RequestInfo) -> Self {
        Self::with_limits(wire, head, asked, Limits::default())
    }

    /// Creates a reader with other limits.
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
    pub(crate) fn of_pieces(wire: Wire, asked: RequestInfo) -> Self {
        let mut reader = Self::new(wire, Head::default(), asked);
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

    /// Ends the response and passes on the last events: all of them, if the body is not a stream.
    /// There is exactly one ending.
    #[must_use]
    pub fn finish(self, end: TransportEnd, mut on_event: impl FnMut(Event<'_>)) -> Ending {
        self.end(end, Some(&mut Sink(&mut on_event)))
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

    /// Reads all bytes of a response, and ends it.
    fn end_with(mut self, all: &[u8], close: TransportEnd) -> Ending {
        if !self.framer.is_body(all) || all.len() > self.state.limits.event_bytes {
            self.push(all, None);
            return self.end(close, None);
        }
        self.state.bytes += all.len() as u64;
        self.state.flags.cut_event = self.state.read_body(all, None) == Rest::CutFrame;
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
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, asked: RequestInfo) -> Self {
        Self(Reader::new(wire, head, asked))
    }

    /// Creates a watcher with other limits.
    pub fn with_limits(
        wire: impl Into<Wire>,
        head: Head<'_>,
        asked: RequestInfo,
        limits: Limits,
    ) -> Self {
        Self(Reader::with_limits(wire, head, asked, limits))
    }

    /// Reads a chunk.
    pub fn watch(&mut self, chunk: &[u8]) {
        self.0.push(chunk, None);
    }

    /// Reads a chunk and reports each complete frame. A gateway needs this to decide how much of a
    /// response to pass on.
    pub fn follow(&mut self, chunk: &[u8], mut on_frame: impl FnMut(Mark<'_>)) {
        let Reader { framer, state } = &mut self.0;
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

    /// Returns the number of bytes of the last chunk that precede any unfinished frame.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.0.framer.whole()
    }

    /// Reports whether reading stopped because a frame was too large or corrupt.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.is_broken()
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
        let State { facts, asked, .. } = &self.0.state;
        let due = usize::try_from(asked.choices.unwrap_or(1)).unwrap_or(usize::MAX);
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
        Self(reader)
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

    /// Reads a frame that differs from an earlier one only in its text. Returns false if it does
    /// not.
    fn read_repeat(&mut self, frame: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) -> bool {
        let Some((piece, hit)) = self.repeat.hit(frame) else { return false };
        // Without a listener, later text changes nothing, unless it comes after the finish reason.
        // Arguments are always followed.
        let quiet = sink.is_none() && !piece.is_followed() && !self.facts.any_said();
        let text = if quiet { None } else { hit.text() };
        if text.is_none() && !quiet {
            return false;
        }
        if let Some((_, usage)) = self.repeat.counts() {
            self.facts.usage.update(usage);
        }
        self.facts.late_event |= self.facts.past_end;
        let Some(text) = text else { return true };
        let event = piece.event(&text);
        self.facts.observe(&event, &self.wire, &self.limits);
        let Some(Sink(sink)) = sink else { return true };
        match self.repeat.counts().map(|(order, usage)| (order, *usage)) {
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

    /// Reads a whole body. Most parse, and need no scan for their end first.
    fn read_body(&mut self, body: &[u8], mut sink: Option<&mut Sink<'_, '_>>) -> Rest {
        let whole = Frame { kind: FrameKind::Body, ..Frame::event(trim(body)) };
        // With the status of an error, any object is one, and only a scan shows whether it is whole.
        if !self.is_error_status()
            && self.read_once(&whole, sink.as_deref_mut()) != Reading::Malformed
        {
            self.events += 1;
            return Rest::Nothing;
        }
        framer::finish_body(body, |frame| self.read_frame(&frame, sink.as_deref_mut()))
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
        // An event named `error` is an error, whatever its payload.
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

    /// Reports whether two events agree on another wire, since one alone may be an exception. A
    /// body needs no second.
    fn is_second(&self, frame: &Frame<'_>, other: &Wire) -> bool {
        let dialect = other.profile.dialect.id;
        let agrees = |first: &Strange| first.wire.profile.dialect.id == dialect;
        frame.kind == FrameKind::Body || self.strange.as_deref().is_some_and(agrees)
    }

    /// Switches to another wire, and reads the held event and this one.
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

    /// Reads a single unrecognised event by the wire that it seems to belong to.
    fn read_strange(&mut self, sink: Option<&mut Sink<'_, '_>>) {
        let Some(first) = self.strange.take().filter(|_| !self.facts.has_begun()) else { return };
        self.named.get_or_insert_with(|| Box::new(self.wire.clone()));
        self.wire = first.wire.clone();
        self.understood |= self.read_event(&first.frame(), sink) == Reading::Read;
    }

    /// Reads frames outside the dialects: exceptions, pages, end markers and error bodies. Returns
    /// false for any other frame.
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

    /// Reads a frame by the current dialect.
    fn read_event(&mut self, frame: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) -> Reading {
        let dialect = self.wire.profile.dialect;
        let is_event = frame.kind == FrameKind::Event;
        let read = if is_event { dialect.read } else { dialect.read_body };
        let mut out = self.out(frame, sink);
        let mut reading = read(frame, &mut out);
        // The frame may be a whole body labelled as a stream.
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

    /// Returns the wire of another dialect that recognises this frame, if the current one has found
    /// no content yet. A named host or path can be wrong; the body then takes precedence.
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

    /// Decides from a whole frame if the beginning of the body was ambiguous.
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

    pub(crate) fn is_error_status(&self) -> bool {
        self.status >= 300
    }
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

/// Returns an error that has only a message, or nothing if the event has only a name.
fn bare_text(data: &[u8]) -> RawError {
    let message = (data != b"{}").then(|| String::from_utf8_lossy(data).into_owned());
    RawError { message, ..RawError::default() }
}

fn emit_fault(told: RawError, status: u16, out: &mut EventSink<'_, '_>) {
    let fault = judge_fault(told, status, &out.wire.profile);
    out.emit(Event::Fault(&fault));
}

/// Reports a text that came instead of a response.
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
