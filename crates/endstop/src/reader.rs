//! The reader: push bytes, get events, finish once, get the ending.

use crate::conclude::judge_fault;
use crate::dialect::errors::{self, Expect, RawError};
use crate::dialect::{Proof, Reading};
use crate::ending::{Closed, Confidence, Ending, Reason, Said, TransportEnd};
use crate::event::Event;
use crate::facts::Facts;
use crate::fault::{FaultForm, FaultKind};
use crate::frame::framer::{Framer, Hints};
use crate::frame::{Broken, Frame, FrameKind, Rest, is_bracketed_word};
use crate::mark::Mark;
use crate::mend::mend;
use crate::provider::{self, Profile, Wire};
use crate::repeat::{Lesson, Order, Repeat};
use crate::request::RequestInfo;
use crate::shape;
use crate::sink::{EventSink, Sink};
use crate::verdict::Meaning;

/// The head of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// The HTTP status; zero where it is not known.
    pub status: u16,
    /// The content type; empty where it is not known.
    pub content_type: &'a str,
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
/// let ending = reader.finish(TransportEnd::Eof, |event| println!("{event:?}"));
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
pub(crate) struct State {
    pub(crate) wire: Wire,
    pub(crate) status: u16,
    pub(crate) asked: RequestInfo,
    pub(crate) limits: Limits,
    pub(crate) facts: Facts,
    pub(crate) repeat: Repeat,
    pub(crate) broken: Option<Broken>,
    /// The wire that was named, where the bytes turned out to be of another.
    pub(crate) named: Option<Box<Wire>>,
    /// The first event of another wire, until a second one agrees.
    pub(crate) strange: Option<Box<Strange>>,
    /// An event of the wire was read.
    pub(crate) understood: bool,
    pub(crate) flags: Flags,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
}

/// An event that is of another wire than the one that was named.
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
    /// Only a piece of the response is read.
    pub(crate) partial: bool,
    /// The dialect read the last frame as one of its own.
    pub(crate) read: bool,
    pub(crate) cut_event: bool,
    /// The bytes ended inside a list of events.
    pub(crate) unclosed_list: bool,
    pub(crate) malformed_event: bool,
    pub(crate) invalid_utf8: bool,
    pub(crate) shape_asked: bool,
}

/// What reading a chunk frame by frame gives.
pub(crate) enum Step<'a> {
    /// An event of the frame that follows.
    Event(Event<'a>),
    /// The frame whose events came.
    Frame(Frame<'a>),
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

    /// Reports whether no further frame can be read: one was too large, or corrupt.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state.broken.is_some()
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

    /// Ends the response and hands over the events that only its end brings: all of them, if the body
    /// is not a stream. There is exactly one ending.
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

/// Reads one response for the sake of its ending alone, which is cheaper than a [`Reader`].
///
/// ```
/// use endstop::{Head, Reason, RequestInfo, TransportEnd, Watcher, provider};
///
/// let mut watcher = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// watcher.watch(br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}"#);
/// assert_eq!(watcher.finish(TransportEnd::Eof).reason, Reason::OutputLimit);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a response has an ending: call `finish`"]
pub struct Watcher(Reader);

impl Watcher {
    /// Watches one response of this wire.
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, asked: RequestInfo) -> Self {
        Self(Reader::new(wire, head, asked))
    }

    /// Watches one response of this wire within other bounds.
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

    /// Reads a chunk and reports each frame as it is whole: what is needed to decide how much of a
    /// response can be passed on.
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

    /// Returns how many bytes of the last chunk lie before anything that is unfinished.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.0.framer.whole()
    }

    /// Reports whether no further frame can be read: one was too large, or corrupt.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// Reports whether the provider has sent its count of output tokens.
    #[must_use]
    pub fn has_output_count(&self) -> bool {
        self.0.state.facts.usage.output.is_some()
    }

    /// Returns the ending as far as it is known; see [`Reader::so_far`].
    #[must_use]
    pub fn so_far(&self) -> Option<Ending> {
        self.0.so_far()
    }

    /// Ends the response. There is exactly one ending.
    #[must_use]
    pub fn finish(self, end: TransportEnd) -> Ending {
        self.0.end(end, None)
    }
}

/// Gives up the events of a reader that has read nothing yet.
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

/// An error that is nothing but its message, and not even that where an event has only its name.
fn bare_text(data: &[u8]) -> RawError {
    let message = (data != b"{}").then(|| String::from_utf8_lossy(data).into_owned());
    RawError { message, ..RawError::default() }
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
