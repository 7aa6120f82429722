//! The guard of one stream: how much of it may leave, and when it must fail.
//!
//! No IO and no clock: bytes are pushed, and the part that may leave comes back. The guard forwards
//! whole frames, so that an error can be put in at a boundary. Only the unfinished end of a very
//! large frame is passed on.
//!
//! ```text
//!            frame                 frame after which a call could run
//! Flowing ---------> Flowing ------------------------------------------> Held
//!    |                                                                    |
//!    |   <---- proven and allowed, waited long enough, or the provider's own call ----+
//!    |                                                                    |
//!    +---- end of the stream: a failure ----> Failed <---- refused -------+
//! ```

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use endstop::dialect::{CallsClose, ErrorEnd, Framing, KeepAlive, Proof};
use endstop::frame::Broken;
use endstop::{Ending, Form, Mark, Profile, TransportEnd, Watcher};

use crate::config::{Mode, ToolCalls};
use crate::disposition::{Disposition, ResponseRules, disposition, failure, unproven, unread};

/// The most of an unfinished frame that is held back, in bytes.
pub const TAIL: usize = 64 << 10;
/// The most that is held back while a tool call waits to be proven, in bytes.
pub const HELD: usize = 16 << 20;

/// Decides how much of a stream may leave.
#[derive(Debug)]
pub struct Guard {
    watcher: Watcher,
    profile: Profile,
    terms: ResponseRules,
    /// Whether the request limits the output, so that the token count can show that a call was cut.
    capped: bool,
    /// Whether the bytes are compressed: nothing can be put in between them.
    opaque: bool,
    /// Whether the decoded copy of compressed bytes is inside of a frame.
    in_frame: bool,
    /// Bytes of an unfinished event that the reader keeps.
    unfinished: usize,
    /// Bytes that have not been passed on.
    held: BytesMut,
    /// More is held than can be.
    overflow: Option<Overflow>,
    received: u64,
    /// End of the last whole frame.
    boundary: u64,
    gate: Gate,
    /// Whether the end was proven since the last push.
    proven: bool,
    /// Whether a whole frame has come.
    framed: bool,
    /// Frame with the provider's first error.
    fault: Option<FaultFrame>,
    /// Whether frames of a tool call have left.
    calls_left: bool,
    /// Whether the beginning of a tool call has left, and nothing of its arguments.
    bare_left: bool,
    /// Whether a frame came that cannot be read, and may hold a tool call.
    unreadable: bool,
    /// Choices with a finish reason.
    said: usize,
    /// Frame with the newest finish reason, as `(start, end)`, until it is judged.
    word: Option<(u64, u64)>,
    extra: Option<Extra>,
}

/// A frame with an error of the provider.
#[derive(Clone, Copy, Debug)]
struct FaultFrame {
    start: u64,
    end: u64,
    /// Whether no client could run a tool call because of this frame.
    is_bare: bool,
}

/// The gate for tool calls: closed from the first frame after which a client could run a call.
#[derive(Debug, Default)]
struct Gate {
    /// The first held frame: its start and end.
    closed: Option<(u64, u64)>,
    /// Number of changes after the last frame that was followed.
    seen: Option<u64>,
    has_calls: bool,
    /// Number of events about calls, after the last frame that was followed.
    seen_calls: u64,
    /// Calls that the provider ran itself, when the gate closed.
    by_provider: u32,
    /// Calls that were closed, or had complete arguments, or are the provider's own.
    settled: (u32, u32),
    /// Whether a call was settled and is not any more: a client could have run it.
    unsettled: bool,
    /// Calls of each choice, as `(choice, calls)`.
    calls: Vec<(u32, u32)>,
    /// Calls of each choice that were let go.
    released: Vec<(u32, u32)>,
}

/// Events that the gateway asked for and that are not the client's.
#[derive(Debug)]
struct Extra {
    is_extra: fn(&[u8]) -> bool,
    /// Frames that are taken out, as `(start, end)`, in order.
    out: VecDeque<(u64, u64)>,
}

/// Bound that held bytes have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// That of one response.
    Held,
    /// That of the gateway.
    Memory,
}

/// The next step after bytes were pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    Go,
    /// Go on; call [`Guard::waited`] if nothing comes for a while.
    Wait,
    /// The response has failed.
    Fail,
}

/// The end of a stream.
#[derive(Debug)]
pub struct GuardEnd {
    /// Bytes that are left to pass on.
    pub rest: Bytes,
    /// The ending.
    pub ending: Ending,
    /// Treatment of the response.
    pub disposition: Disposition,
    /// Frame of the error, if one can be put in.
    pub frame: Option<Vec<u8>>,
    /// Whether the connection ends cleanly; otherwise it is aborted.
    pub clean: bool,
    /// Whether a comment may be put in.
    pub takes_comments: bool,
}

impl Guard {
    /// Creates a guard for a response that this watcher reads.
    pub fn new(watcher: Watcher, profile: Profile, terms: ResponseRules) -> Self {
        Self {
            watcher,
            profile,
            terms,
            capped: false,
            opaque: false,
            in_frame: false,
            unfinished: 0,
            held: BytesMut::new(),
            overflow: None,
            received: 0,
            boundary: 0,
            gate: Gate::default(),
            proven: false,
            framed: false,
            fault: None,
            calls_left: false,
            bare_left: false,
            unreadable: false,
            said: 0,
            word: None,
            extra: None,
        }
    }

    /// Takes out events like these, which the gateway asked for.
    #[must_use]
    pub fn without(self, is_extra: Option<fn(&[u8]) -> bool>) -> Self {
        let is_extra = is_extra.filter(|_| self.terms.mode == Mode::Guard);
        let extra = is_extra.map(|is_extra| Extra { is_extra, out: VecDeque::new() });
        Self { extra, ..self }
    }

    /// Says whether the request limits the output.
    #[must_use]
    pub fn capped(self, capped: bool) -> Self {
        Self { capped, ..self }
    }

    /// Says that the bytes are compressed, and that a decoded copy is read.
    pub fn set_opaque(&mut self) {
        self.opaque = true;
    }

    /// Reports whether a comment could be put in now.
    #[must_use]
    pub fn takes_comment_now(&self) -> bool {
        self.takes_comments() && self.held.is_empty() && self.boundary == self.received
    }

    /// Reports whether frames wait behind the gate.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.gate.closed.is_some()
    }

    /// Returns the ending as far as it is known.
    #[must_use]
    pub fn so_far(&self) -> Option<Ending> {
        self.watcher.so_far()
    }

    /// Reads a part of the decoded copy of bytes that are pushed next.
    pub fn read_copy(&mut self, copy: &[u8]) {
        self.read(copy);
        self.count_unfinished(copy);
        if !copy.is_empty() {
            let in_frame = self.watcher.whole() < copy.len();
            self.in_frame = in_frame && !self.watcher.is_mere_body();
        }
    }

    /// Stops reading for good: the copy cannot be decoded, or is too large.
    pub fn stop_reading(&mut self, why: Broken) {
        self.watcher.stop(why);
    }

    /// Reports whether nothing more is read.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.watcher.is_broken()
    }

    /// Takes bytes, reads them unless they are compressed, and passes on what may leave.
    pub fn push(&mut self, chunk: &Bytes, pass: &mut impl FnMut(Bytes)) -> Next {
        let start = self.received;
        if !self.opaque {
            self.read(chunk);
            self.count_unfinished(chunk);
        }
        let proven = std::mem::take(&mut self.proven);
        self.received += chunk.len() as u64;
        if self.terms.mode == Mode::Observe {
            pass(chunk.clone());
            return Next::Go;
        }
        if self.opaque {
            // The bytes that were read are not the bytes that leave. Those of an unfinished frame stay,
            // and so do those that could not be decoded.
            if !self.in_frame && !self.watcher.is_broken() {
                self.boundary = self.received;
            }
            if let Some((from, _)) = &mut self.gate.closed {
                *from = (*from).min(start);
            }
        }
        let next = self.judge(proven);
        let upto = self.passable(chunk);
        self.release(start, chunk, upto, pass);
        if self.held.len() > HELD {
            self.overflow = Some(Overflow::Held);
        }
        if self.overflow.is_some() { Next::Fail } else { next }
    }

    /// Returns the number of bytes of an unfinished event that the reader keeps.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.unfinished
    }

    /// Returns the number of bytes that are read at the end.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        match self.watcher.form() {
            Form::Body => usize::try_from(self.received).unwrap_or(usize::MAX),
            Form::Stream(_) | Form::Undecided => self.unfinished,
        }
    }

    /// Returns the number of bytes that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Tells that the gateway has no memory left for what is held.
    pub fn set_out_of_memory(&mut self) {
        self.overflow = Some(Overflow::Memory);
    }

    /// Judges what has waited long enough for its end marker, and passes it on if it may leave.
    pub fn waited(&mut self, pass: &mut impl FnMut(Bytes)) -> Next {
        if !self.is_holding() {
            return Next::Go;
        }
        match self.watcher.so_far() {
            Some(ending) if self.fails(&ending) => return Next::Fail,
            Some(_) => self.open_gate(),
            None => return Next::Go,
        }
        let upto = self.passable(&[]);
        self.release(self.received, &Bytes::new(), upto, pass);
        Next::Go
    }

    /// Returns bytes that keep the client waiting while frames are held.
    pub fn keep_alive(&mut self) -> Option<Bytes> {
        let (from, to) = self.gate.closed.filter(|_| !self.opaque)?;
        let passed = self.received - self.held.len() as u64;
        match self.profile.keep_alive(self.framing()) {
            KeepAlive::Comment => (passed == from).then(|| Bytes::from_static(b": keep-alive\n\n")),
            KeepAlive::Event(event) => {
                (passed == from).then(|| Bytes::from_static(event.as_bytes()))
            }
            // At most half of the frame leaves like this: no client can read it.
            KeepAlive::Trickle => {
                let half = from + to.saturating_sub(from) / 2;
                (passed >= from && passed < half).then(|| self.held.split_to(1).freeze())
            }
        }
    }

    /// Ends the stream.
    #[must_use]
    pub fn finish(mut self, close: TransportEnd) -> GuardEnd {
        self.look_at_tail();
        self.finish_as(close, |watcher| watcher.finish(close))
    }

    /// Ends a stream that has failed, whatever might follow.
    #[must_use]
    pub fn fail(mut self) -> GuardEnd {
        if self.overflow.is_some() {
            self.watcher.stop(Broken::Oversize);
        }
        let broken = self.watcher.is_broken();
        self.finish_as(TransportEnd::Eof, |watcher| match watcher.so_far() {
            Some(ending) if !broken => ending,
            Some(_) | None => watcher.finish(TransportEnd::Eof),
        })
    }

    /// Holds a last frame that only the end of the bytes completes, if it may hold a call that cannot be
    /// read.
    fn look_at_tail(&mut self) {
        if self.unfinished == 0 || self.terms.mode == Mode::Observe {
            return;
        }
        let mut unreadable = false;
        // Nothing else ends a frame of these framings.
        self.watcher.clone().follow(b"\n\n", |mark| unreadable |= mark.has_unreadable());
        if unreadable && !self.unreadable && self.terms.tool_calls != ToolCalls::Pass {
            self.unreadable = true;
            self.gate.closed.get_or_insert((self.boundary, self.received));
        }
    }

    fn finish_as(
        mut self,
        close: TransportEnd,
        finish: impl FnOnce(Watcher) -> Ending,
    ) -> GuardEnd {
        let framing = self.framing();
        let takes_comments = self.takes_comments();
        let overflow = self.overflow;
        let waits = self.gate.closed.is_some();
        let ending = finish(self.watcher);
        let mut disposition = disposition(&ending, self.terms, None);
        if let Some(overflow) = overflow {
            disposition = Disposition::Fail(too_much_held(&ending, overflow));
        } else if waits && !matches!(disposition, Disposition::Fail(_)) {
            // A finish reason and then silence is a complete answer, but it proves no tool call.
            let hidden = unread(&ending).filter(|_| self.unreadable);
            disposition = unproven(&ending).or(hidden).map_or(disposition, Disposition::Fail);
        }
        let passed = self.received - self.held.len() as u64;
        let Disposition::Fail(failure) = &disposition else {
            let held = self.held.freeze();
            let rest = match &self.extra {
                None => held,
                Some(extra) => extra.without(passed, held),
            };
            // Observe passes on a broken connection as one. A guard ends a complete response cleanly.
            let clean = close == TransportEnd::Eof || self.terms.mode == Mode::Guard;
            return GuardEnd { rest, ending, disposition, frame: None, clean, takes_comments };
        };
        let is_torn = self.gate.closed.is_some_and(|(from, _)| passed > from);
        // The end of the bytes completed the provider's own error.
        let own_error = ending.fault.as_ref().is_some_and(|fault| !fault.form.is_foreign());
        // It may hold a tool call, too.
        let names_call = ending.choices.iter().any(|choice| choice.shown.tool_calls > 0);
        let last_word = self.fault.is_none() && own_error && !waits && !self.opaque && !names_call;
        let whole = usize::try_from(self.boundary.saturating_sub(passed)).unwrap_or(0);
        let rest = if waits || self.opaque {
            Bytes::new()
        } else if last_word {
            self.held.split().freeze()
        } else {
            self.held.split_to(whole.min(self.held.len())).freeze()
        };
        // Nothing can be put in inside of a frame, and the provider's own error needs no other.
        let torn = self.opaque || passed > self.boundary || is_torn;
        // Some wires end a failed response by an event of its own, without which clients overlook it.
        let lacks_end = self.profile.error_shape.last.is_some() && ending.said.is_none();
        // Behind a held call, the provider's error passes in place of the call, where it suffices.
        let is_clean = self.profile.error_end(framing) == ErrorEnd::Clean;
        let takes_place = waits && is_clean && !torn && !lacks_end && overflow.is_none();
        let instead = self.fault.filter(|fault| takes_place && fault.is_bare);
        let rest = instead.map_or(rest, |FaultFrame { start, end, .. }| {
            let at = |place: u64| usize::try_from(place.saturating_sub(passed)).unwrap_or(0);
            let mut error = self.held.split_off(at(start).min(self.held.len()));
            error.truncate(at(end).saturating_sub(at(start)));
            error.freeze()
        });
        let told = (self.fault.is_some() || last_word) && !waits && !lacks_end || instead.is_some();
        let frame = (!torn && !told).then(|| {
            let first = !self.framed || passed + rest.len() as u64 == 0;
            self.profile.error_frame(framing, first, &failure.gateway_error())
        });
        let clean = match told {
            _ if torn => false,
            // It ends as the provider ended it, with or without the gateway: after an abort, opencode
            // asks again where it would have failed. But where nothing closes a call, clients complete
            // one without arguments at a clean end (AI SDK 5).
            true if instead.is_some() => {
                let ends_calls = self.profile.dialect.calls_close == CallsClose::ByWord;
                close == TransportEnd::Eof && !(self.bare_left && ends_calls)
            }
            _ if self.calls_left => false,
            true => close == TransportEnd::Eof,
            false => is_clean,
        };
        GuardEnd { rest, ending, disposition, frame, clean, takes_comments }
    }

    fn framing(&self) -> Framing {
        match self.watcher.form() {
            Form::Stream(framing) => framing,
            Form::Undecided | Form::Body => self.profile.framing,
        }
    }

    fn takes_comments(&self) -> bool {
        let streams = self.watcher.form() == Form::Stream(Framing::Sse);
        let skips = self.profile.keep_alive(Framing::Sse) != KeepAlive::Trickle;
        streams && skips && !self.opaque
    }

    /// Counts the bytes of an unfinished event, after these were read.
    fn count_unfinished(&mut self, bytes: &[u8]) {
        let is_kept = matches!(self.watcher.form(), Form::Stream(_)) && !self.watcher.is_broken();
        self.unfinished = match self.watcher.whole() {
            _ if !is_kept => 0,
            0 => self.unfinished + bytes.len(),
            whole => bytes.len().saturating_sub(whole),
        };
    }

    /// Reads the bytes and notes each frame.
    fn read(&mut self, bytes: &[u8]) {
        if self.terms.mode == Mode::Observe {
            self.watcher.watch(bytes);
            return;
        }
        let Self { watcher, boundary, gate, framed, fault, calls_left, opaque, proven, .. } = self;
        let Self { terms, received, said, word, extra, bare_left, unreadable, .. } = self;
        let (base, opaque) = (*received, *opaque);
        watcher.follow(bytes, |mark| {
            *framed = true;
            // The places of decoded frames say nothing about the bytes that leave.
            let end = if opaque { base } else { base + mark.end as u64 };
            let start = std::mem::replace(boundary, end);
            let (mut names_call, mut says_failure) = (false, false);
            // Most frames change nothing, and there may be many calls.
            let is_change = gate.seen.replace(mark.changes()) != Some(mark.changes());
            if is_change {
                let closed = gate.closed;
                gate.has_calls = mark.has_calls();
                let calls = mark.call_changes();
                names_call = std::mem::replace(&mut gate.seen_calls, calls) != calls;
                if gate.has_calls {
                    gate.follow(&mark, (start, *boundary), terms.tool_calls);
                } else {
                    gate.closed = None;
                }
                // There may be calls among what is not followed, or cannot be read.
                let unknown = mark.has_excess() || mark.has_unreadable();
                if unknown && terms.tool_calls != ToolCalls::Pass {
                    gate.closed = closed.or(gate.closed).or(Some((start, *boundary)));
                }
                let choices = mark.said();
                let is_new = std::mem::replace(said, choices) != choices;
                if is_new {
                    *word = Some((start, *boundary));
                }
                says_failure = is_new && mark.says_failure();
                *unreadable = mark.has_unreadable();
                if gate.closed.is_none() {
                    *bare_left = gate.has_calls && mark.has_bare_call();
                }
            }
            if mark.has_fault() && fault.is_none() {
                // After pieces of a call, a finish reason or the end marker may complete it.
                let completes = *calls_left && is_change && !says_failure;
                let is_bare = !names_call && !completes;
                *fault = Some(FaultFrame { start, end: *boundary, is_bare });
            }
            *calls_left |= gate.has_calls && gate.closed.is_none();
            if let Some(extra) = extra.as_mut().filter(|_| mark.has_word() && !opaque)
                && (extra.is_extra)(mark.data)
            {
                extra.out.push_back((start, *boundary));
            }
            *proven |= mark.is_proven();
        });
        let whole = watcher.whole();
        if whole > 0 && !opaque {
            *boundary = (*boundary).max(base + whole as u64);
        }
    }

    /// Lets held calls leave.
    fn open_gate(&mut self) {
        self.calls_left |= self.gate.has_calls;
        self.gate.release();
    }

    fn judge(&mut self, proven: bool) -> Next {
        if self.watcher.is_broken() {
            return Next::Fail;
        }
        if !self.is_holding() {
            return self.judge_word();
        }
        if self.fault.is_some() {
            return Next::Fail;
        }
        // On some wires the token count follows the end marker, and it can show that a call was cut.
        let counted = !self.capped || self.watcher.has_output_count();
        if proven && counted {
            return match self.watcher.so_far() {
                Some(ending) if self.fails(&ending) => Next::Fail,
                Some(_) | None => {
                    self.open_gate();
                    Next::Go
                }
            };
        }
        let due = self.profile.capabilities.usage_in_streams || self.extra.is_some();
        let settled = match self.profile.proof {
            // The end of the body is the proof, and it may still break off.
            Proof::Event | Proof::Word | Proof::Silent => false,
            Proof::Marker(_) => self.watcher.is_settled() && (counted || !due),
        };
        if proven || settled { Next::Wait } else { Next::Go }
    }

    /// Reports whether what waits must not leave with this ending.
    fn fails(&self, ending: &Ending) -> bool {
        failure(ending, self.terms).is_some() || self.unreadable && unread(ending).is_some()
    }

    /// Judges a finish reason that no tool call waits for. One that says that the provider failed does
    /// not leave: clients stop reading after it and would not see an error.
    fn judge_word(&mut self) -> Next {
        let Some(frame) = self.word.take().filter(|_| self.fault.is_none()) else {
            return Next::Go;
        };
        match self.watcher.so_far() {
            Some(ending) if failure(&ending, self.terms).is_some() => {
                self.gate.closed = Some(frame);
                Next::Fail
            }
            Some(_) | None => Next::Go,
        }
    }

    /// Returns how far the stream may leave, with this chunk, which is not held yet.
    fn passable(&self, chunk: &[u8]) -> u64 {
        if let Some((from, _)) = self.gate.closed {
            return from;
        }
        let tail = self.received - self.boundary;
        if tail <= TAIL as u64 || self.opaque || self.watcher.is_broken() {
            return self.boundary;
        }
        let passed = self.received - chunk.len() as u64 - self.held.len() as u64;
        // The tail begins in what is held, or has begun to leave.
        let skipped = usize::try_from(self.boundary.saturating_sub(passed)).unwrap_or(0);
        let held = self.held.get(skipped..).unwrap_or_default();
        let chunk = chunk.get(skipped.saturating_sub(self.held.len())..).unwrap_or_default();
        let is_start = passed <= self.boundary;
        passed.max(self.boundary) + self.watcher.inert(is_start, held, chunk) as u64
    }

    /// Passes on the bytes before `upto`, and holds the rest.
    fn release(&mut self, start: u64, chunk: &Bytes, upto: u64, pass: &mut impl FnMut(Bytes)) {
        let passed = start - self.held.len() as u64;
        let extra = self.extra.take();
        let mut at = passed;
        let mut pass = |bytes: Bytes| {
            let length = bytes.len() as u64;
            match &extra {
                None => pass(bytes),
                Some(extra) => extra.pass(at, bytes, pass),
            }
            at += length;
        };
        self.hand_over(passed, chunk, upto, &mut pass);
        self.extra = extra;
        let passed = self.received - self.held.len() as u64;
        if let Some(extra) = &mut self.extra {
            // What has left is not looked for again.
            while extra.out.front().is_some_and(|(_, to)| *to <= passed) {
                extra.out.pop_front();
            }
        }
    }

    fn hand_over(&mut self, passed: u64, chunk: &Bytes, upto: u64, pass: &mut impl FnMut(Bytes)) {
        let count = usize::try_from(upto.saturating_sub(passed)).unwrap_or(0);
        if count <= self.held.len() {
            if count > 0 {
                pass(self.held.split_to(count).freeze());
            }
            self.held.extend_from_slice(chunk);
            return;
        }
        let of_chunk = (count - self.held.len()).min(chunk.len());
        if !self.held.is_empty() {
            pass(self.held.split().freeze());
        }
        pass(chunk.slice(..of_chunk));
        self.held.extend_from_slice(&chunk.slice(of_chunk..));
    }
}

fn too_much_held(ending: &Ending, overflow: Overflow) -> crate::disposition::Failure {
    let (status, code, message, repeats) = match overflow {
        Overflow::Held => (
            400,
            "endstop_too_much_held",
            format!(
                "endstop: more than {} MiB arrived before the tool call was complete. The tool call was \
                 not passed on. Ask for smaller arguments.",
                HELD >> 20
            ),
            true,
        ),
        Overflow::Memory => (
            503,
            "endstop_no_memory",
            "endstop: the gateway has no memory left to hold the tool call until it is complete \
             (request_memory). The tool call was not passed on. Try again in a few seconds."
                .to_owned(),
            false,
        ),
    };
    crate::disposition::Failure { status, code, message, reason: ending.reason, repeats }
}

impl Gate {
    /// Follows a frame of a response with tool calls.
    fn follow(&mut self, mark: &Mark<'_>, frame: (u64, u64), tool_calls: ToolCalls) {
        if tool_calls == ToolCalls::Pass {
            return;
        }
        let proven = mark.is_proven();
        let (mut unreleased, mut could_run, mut by_provider) = (false, false, 0);
        let mut settled = (0, 0);
        self.calls.clear();
        for choice in mark.choices() {
            self.calls.push((choice.index, choice.begun));
            by_provider += choice.by_provider;
            settled.0 += choice.closed + choice.by_provider;
            settled.1 += choice.whole + choice.by_provider;
            let released = self.released.iter().find(|(index, _)| *index == choice.index);
            if choice.begun <= released.map_or(0, |(_, calls)| *calls) {
                continue;
            }
            unreleased = true;
            could_run |= tool_calls == ToolCalls::Hold || choice.could_run(proven);
        }
        let before = std::mem::replace(&mut self.settled, settled);
        self.unsettled |= settled.0 < before.0 || settled.1 < before.1;
        let is_providers = by_provider > self.by_provider && !could_run && !self.unsettled;
        match self.closed {
            None if could_run => {
                self.closed = Some(frame);
                self.by_provider = by_provider;
            }
            // What waited was the provider's own call, which nobody else can run.
            Some(_) if !unreleased || is_providers => self.closed = None,
            Some(_) | None => {}
        }
    }

    /// Lets go what waits. A call that begins later closes the gate again.
    fn release(&mut self) {
        self.closed = None;
        self.seen = None;
        self.unsettled = false;
        self.released.clone_from(&self.calls);
    }
}

impl Extra {
    /// Returns these bytes, which begin at `start`, without the frames that are taken out.
    fn without(&self, start: u64, bytes: Bytes) -> Bytes {
        let mut rest = BytesMut::new();
        self.pass(start, bytes, &mut |bytes| rest.extend_from_slice(&bytes));
        rest.freeze()
    }

    /// Passes on the part of these bytes, which begin at `start`, that is not taken out.
    fn pass(&self, start: u64, bytes: Bytes, pass: &mut impl FnMut(Bytes)) {
        let mut rest = bytes;
        let mut at = start;
        for (from, to) in &self.out {
            let before = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX);
            let until = usize::try_from(to.saturating_sub(at)).unwrap_or(usize::MAX);
            if until == 0 {
                continue;
            }
            if before >= rest.len() {
                break;
            }
            let kept = rest.split_to(before);
            if !kept.is_empty() {
                pass(kept);
            }
            let dropped = rest.split_to((until - before).min(rest.len()));
            at += (before + dropped.len()) as u64;
        }
        if !rest.is_empty() {
            pass(rest);
        }
    }
}

#[cfg(test)]
mod tests;
