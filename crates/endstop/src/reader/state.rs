//! Reads frames: by the dialect, by the fast path, or by another dialect if the named one is wrong.

use memchr::memmem;

use super::Limits;
use super::faults::{bare_text, emit_fault, emit_text, exception};
use crate::conclude::judge_fault;
use crate::dialect::errors::{self, Expect, RawError};
use crate::dialect::{self, Proof, Reading};
use crate::event::Event;
use crate::facts::Facts;
use crate::fault::FaultKind;
use crate::frame::{Broken, Frame, FrameKind, Rest, framer, is_bracketed_word, trim};
use crate::mend::{is_closed, mend};
use crate::provider::{self, Profile, Wire};
use crate::repeat::{Lesson, Order, Repeat};
use crate::request::RequestInfo;
use crate::shape;
use crate::sink::{EventSink, Sink};

/// All state of a reader but the framer, so that frames can be read while the framer holds them.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) wire: Wire,
    pub(crate) status: u16,
    pub(crate) request: RequestInfo,
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

impl State {
    pub(super) fn read_frame(&mut self, frame: &Frame<'_>, mut sink: Option<&mut Sink<'_, '_>>) {
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
    pub(super) fn read_body(&mut self, body: &[u8], mut sink: Option<&mut Sink<'_, '_>>) -> Rest {
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
            self.note_malformed(frame);
            // Nothing is missing from a body that is closed, although it cannot be read.
            self.facts.proven |= frame.kind == FrameKind::Body && is_closed(frame.data);
            let is_page = frame.data.trim_ascii_start().starts_with(b"<");
            if frame.kind == FrameKind::Event && (frame.name == errors::EVENT || is_page) {
                let status = self.status;
                emit_text(frame.data, status, &mut self.out(frame, sink));
            }
            return;
        };
        self.flags.invalid_utf8 |= std::str::from_utf8(frame.data).is_err();
        let last = Frame { data: &mended.last, ..*frame };
        if self.read_once(&last, sink.as_deref_mut()) == Reading::Malformed {
            self.note_malformed(frame);
            self.facts.proven |= frame.kind == FrameKind::Body;
        }
        if let Some(first) = &mended.first {
            self.compare(&last, &Frame { data: first, ..*frame }, sink);
        }
    }

    /// Records a frame that cannot be parsed. A more lenient parser may find an object in it.
    fn note_malformed(&mut self, frame: &Frame<'_>) {
        self.flags.malformed_event = true;
        if frame.data.contains(&b'{') {
            self.facts.note_unreadable();
        }
    }

    /// Compares what parsers see that take the last of equal keys, as nearly all do, or the first. An
    /// error in either reading counts.
    fn compare(&mut self, last: &Frame<'_>, first: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) {
        let ((last, _), (other, reading)) = (self.facts_of(last), self.facts_of(first));
        if !last.agrees_with(&other) {
            self.facts.doubt([&last, &other], &self.wire, &self.limits);
        }
        if matches!(reading, Reading::Error | Reading::Strange) && self.facts.fault.is_none() {
            self.read_fault(first, reading, sink);
        }
    }

    /// Returns the facts of one frame alone.
    fn facts_of(&self, frame: &Frame<'_>) -> (Facts, Reading) {
        self.facts_by(&self.wire, frame)
    }

    /// Returns the facts of one frame alone, on this wire.
    fn facts_by(&self, wire: &Wire, frame: &Frame<'_>) -> (Facts, Reading) {
        crate::work::count(frame.data.len());
        let mut facts = Facts::default();
        let mut out = EventSink {
            facts: &mut facts,
            wire,
            limits: &self.limits,
            request: &self.request,
            lesson: Lesson::default(),
            data: frame.data,
            sink: None,
        };
        let dialect = wire.profile.dialect;
        let is_event = frame.kind == FrameKind::Event;
        let read = if is_event { dialect.read } else { dialect.read_body };
        let mut reading = read(frame, &mut out);
        if reading == Reading::Strange && is_event {
            reading = (dialect.read_body)(frame, &mut out);
        }
        (facts, reading)
    }

    /// Reads a frame, unless it is malformed.
    fn read_once(&mut self, frame: &Frame<'_>, mut sink: Option<&mut Sink<'_, '_>>) -> Reading {
        if self.read_outside(frame, sink.as_deref_mut()) {
            return Reading::Read;
        }
        let changes = self.facts.call_changes;
        let mut reading = self.read_event(frame, sink.as_deref_mut());
        if reading == Reading::Strange
            && let Some(other) = self.other_wire(frame)
        {
            if !self.is_second(frame, &other) {
                self.strange = Some(Box::new(Strange::new(frame, other)));
                self.look_elsewhere(frame);
                return reading;
            }
            reading = self.read_by(other, frame, sink.as_deref_mut());
        }
        if self.facts.has_begun() {
            self.strange = None;
        }
        self.flags.read = reading == Reading::Read;
        // An event of this name is an error, whatever its payload.
        if reading == Reading::Read && frame.kind == FrameKind::Event && frame.name == errors::EVENT
        {
            reading = Reading::Error;
        }
        match reading {
            Reading::Malformed => return reading,
            Reading::Read | Reading::Unfinished => self.understood = true,
            Reading::Strange | Reading::Error => {
                self.understood |= reading == Reading::Error;
                if reading == Reading::Error && self.facts.call_changes == changes {
                    self.look_beside_error(frame);
                }
                self.read_fault(frame, reading, sink);
                if self.facts.call_changes == changes {
                    self.look_elsewhere(frame);
                }
            }
        }
        let whole = matches!(reading, Reading::Read | Reading::Strange | Reading::Error);
        if frame.kind == FrameKind::Body && whole {
            self.facts.proven = true;
        }
        self.ask_shape(frame);
        reading
    }

    /// Looks for tool calls in a frame that was read as an error and no further. Clients that overlook
    /// the error could run them, so they are spoiled.
    fn look_beside_error(&mut self, frame: &Frame<'_>) {
        let data = without_errors(frame.data);
        let (beside, _) = self.facts_of(&Frame { name: "", data: &data, ..*frame });
        if beside.has_calls() {
            self.facts.doubt([&beside, &beside], &self.wire, &self.limits);
        }
    }

    /// Looks for tool calls of other wires in a frame that this one does not know. A client that reads
    /// several wires could run them. In an event they wait for the end of the response, as in an event
    /// that cannot be read. In a body they are spoiled.
    fn look_elsewhere(&mut self, frame: &Frame<'_>) {
        if !may_hold_call(frame.data) {
            return;
        }
        if self.facts.unreadable {
            return self.facts.note_unreadable();
        }
        let data = without_errors(frame.data);
        let name = if frame.name == errors::EVENT { "" } else { frame.name };
        let frame = Frame { name, data: &data, ..*frame };
        let own = self.wire.profile.dialect.id;
        for dialect in dialect::ALL.iter().filter(|other| other.id != own) {
            let Some(profile) = shape::profile_of(dialect) else { continue };
            let (found, _) = self.facts_by(&profile.into(), &frame);
            if !found.has_calls() {
                continue;
            }
            if frame.kind == FrameKind::Body {
                self.facts.doubt([&found, &found], &self.wire, &self.limits);
            } else {
                self.facts.note_unreadable();
            }
            return;
        }
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
    pub(super) fn read_strange(&mut self, sink: Option<&mut Sink<'_, '_>>) {
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
                let mended = || errors::read(&mend(frame.data)?.last, Expect::Error);
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
        crate::work::count(frame.data.len());
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
        let is_error = reading == Reading::Error || frame.name == errors::EVENT;
        let expect = if is_error { Expect::Error } else { Expect::Anything };
        let mended = || errors::read(&mend(frame.data)?.last, expect);
        let told = match errors::read(frame.data, expect).or_else(mended) {
            None if reading == Reading::Error => Some(bare_text(frame.data)),
            None => self.bare_message(frame),
            told => told,
        };
        let status = self.status;
        if let Some(told) = told {
            emit_fault(told, status, &mut self.out(frame, sink));
        }
    }

    /// Reads a body with a message of a known kind of error. If the HTTP status is not known, a message
    /// of any kind counts, if it is alone.
    fn bare_message(&self, frame: &Frame<'_>) -> Option<RawError> {
        if frame.kind != FrameKind::Body {
            return None;
        }
        let told = errors::read(frame.data, Expect::Message)?;
        let kind = judge_fault(told.clone(), self.status, &self.wire.profile).kind;
        let is_alone = || self.status == 0 && errors::is_message(frame.data);
        (kind != FaultKind::Other || is_alone()).then_some(told)
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
            request: &self.request,
            lesson: Lesson::default(),
            data: frame.data,
            sink: sink.map(|Sink(sink)| Sink(*sink)),
        }
    }

    /// Returns the wire of another dialect that recognises this frame, if the current one has found
    /// no content yet. A named host or path can be wrong; the body then takes precedence.
    fn other_wire(&self, frame: &Frame<'_>) -> Option<Wire> {
        if self.facts.has_begun()
            || errors::read(frame.data, Expect::Anything).is_some()
            || self.bare_message(frame).is_some()
        {
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

/// Returns a frame without errors, of which some dialects read nothing else.
fn without_errors(frame: &[u8]) -> Vec<u8> {
    let mut data = frame.to_vec();
    for start in memmem::find_iter(frame, b"\"error") {
        if let Some(first) = data.get_mut(start + 1) {
            *first = b'_';
        }
    }
    data
}

/// Reports whether a frame can hold a tool call of any wire: all of them say so, perhaps in escapes.
fn may_hold_call(data: &[u8]) -> bool {
    memchr::memchr(b'\\', data).is_some()
        || [&b"call"[..], b"Call", b"tool"].iter().any(|word| memmem::find(data, word).is_some())
}

fn is_marker(proof: Proof, data: &[u8]) -> bool {
    matches!(proof, Proof::Marker(marker) if data.starts_with(marker.as_bytes()))
}
