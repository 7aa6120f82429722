//! The guard of one stream: how much of it can be passed on, and when it must fail.
//!
//! No IO and no clock: bytes are pushed, and what may leave comes back. It forwards whole frames, so
//! that an error can be put in at a boundary; only the tail of a frame that is very large is passed
//! on unfinished. Where tool calls were seen, the frame with the word and all after it wait for the
//! proof of the end, for the end itself, or until the caller has waited long enough.
//!
//! ```text
//!            push                 push: word after calls
//! Flowing ---------> Flowing ---------------------------> Waiting --- proof, allowed ---> Flowing
//!    |                  hold: first call -> Waiting          |------- waited enough ----> Flowing
//!    |                                                       |------- refused ----------> Failed
//!    +-- finish: a failure ------------------------------------------------------------> Failed
//! ```

use bytes::{Bytes, BytesMut};
use endstop::frame::Framing;
use endstop::{Close, Ending, Profile, Reader};

use crate::config::{Mode, ToolCalls};
use crate::failure::{Failure, Strictness, failure};

/// The most of an unfinished frame that is held back.
pub const TAIL: usize = 64 << 10;
/// The most that is held back while a tool call waits for its proof.
pub const HELD: usize = 16 << 20;

/// Decides how much of a stream can be passed on.
#[derive(Debug)]
pub struct Guard {
    reader: Reader,
    profile: Profile,
    framing: Framing,
    mode: Mode,
    strictness: Strictness,
    /// A cap was asked for, so that the tokens used can tell that a call was cut.
    capped: bool,
    /// The bytes cannot be looked into as they are: no error can be put in between.
    opaque: bool,
    /// What has come and not been passed on.
    held: BytesMut,
    received: u64,
    /// Where the last whole frame ended.
    boundary: u64,
    /// Where what waits begins.
    gate: Gate,
    framed: bool,
    faulted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// Nothing waits.
    Open,
    /// From here on: calls whose word has not come.
    Calls(u64),
    /// From here on: calls whose word has come.
    Word(u64),
    /// What waited has been let go.
    Released,
}

/// What is to be done after bytes were pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    Go,
    /// Something waits for its proof: go on, but not for ever.
    Wait,
    /// The response has failed: tell it, and abort.
    Fail,
}

/// How a stream ended, and what is left to do.
#[derive(Debug)]
pub struct Finish {
    /// What is left to pass on.
    pub rest: Bytes,
    /// The ending.
    pub ending: Ending,
    /// It is a failure: no clean end may follow.
    pub failure: Option<Failure>,
    /// The frame that tells the failure, where one can be put in.
    pub frame: Option<Vec<u8>>,
    /// The mode that it was passed on in.
    pub mode: Mode,
    /// How it was framed.
    pub framing: Framing,
}

impl Guard {
    /// A guard over what this reader reads.
    pub fn new(reader: Reader, profile: Profile, mode: Mode, strictness: Strictness) -> Self {
        Self {
            reader,
            framing: profile.framing,
            profile,
            mode,
            strictness,
            capped: false,
            opaque: false,
            held: BytesMut::new(),
            received: 0,
            boundary: 0,
            gate: Gate::Open,
            framed: false,
            faulted: false,
        }
    }

    /// The request capped the output.
    #[must_use]
    pub fn capped(self, capped: bool) -> Self {
        Self { capped, ..self }
    }

    /// The stream turned out to be framed like this.
    #[must_use]
    pub fn framed_as(self, framing: Framing) -> Self {
        Self { framing, ..self }
    }

    /// The bytes come compressed: what is read is a copy, and nothing can be put in between.
    pub fn set_opaque(&mut self) {
        self.opaque = true;
    }

    /// Whether a comment could be put in now.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        !self.opaque
            && self.framing == Framing::Sse
            && self.held.is_empty()
            && self.boundary == self.received
    }

    /// Takes bytes in, with the copy to read where they come compressed, and hands over what may
    /// leave.
    pub fn push(
        &mut self,
        chunk: &Bytes,
        copy: Option<&[u8]>,
        pass: &mut impl FnMut(Bytes),
    ) -> Next {
        let proven = self.read(copy.unwrap_or(chunk));
        let start = self.received;
        self.received += chunk.len() as u64;
        if self.mode == Mode::Observe {
            pass(chunk.clone());
            return Next::Go;
        }
        if self.opaque {
            self.boundary = self.received;
            self.gate = self.gate.at_or_before(start);
        }
        let next = self.judge(proven);
        let upto = match self.gate {
            Gate::Calls(at) | Gate::Word(at) => at,
            Gate::Open | Gate::Released => self.passable(),
        };
        self.release(start, chunk, upto, pass);
        if self.held.len() > HELD { Next::Fail } else { next }
    }

    /// What waited has waited long enough: true if it may go now, and has been handed over.
    pub fn waited(&mut self, pass: &mut impl FnMut(Bytes)) -> Next {
        let Gate::Word(_) = self.gate else { return Next::Go };
        match self.reader.so_far() {
            Some(ending) if failure(&ending, self.strictness).is_some() => return Next::Fail,
            // Other choices go on: with `hold` nothing leaves before all is known.
            None if self.strictness.tool_calls == ToolCalls::Hold => return Next::Wait,
            Some(_) | None => {}
        }
        self.gate = Gate::Released;
        let upto = self.passable();
        self.release(self.received, &Bytes::new(), upto, pass);
        Next::Go
    }

    /// Ends the stream.
    #[must_use]
    pub fn finish(self, close: Close) -> Finish {
        self.finish_as(|reader| reader.finish(close))
    }

    /// Ends a stream that has failed, whatever might follow.
    #[must_use]
    pub fn fail(self) -> Finish {
        let broken = self.reader.is_broken();
        self.finish_as(|reader| match reader.so_far() {
            Some(ending) if !broken => ending,
            Some(_) | None => reader.finish(Close::Eof),
        })
    }

    fn finish_as(mut self, finish: impl FnOnce(Reader) -> Ending) -> Finish {
        let (mode, framing) = (self.mode, self.framing);
        let ending = finish(self.reader);
        let failure = failure(&ending, self.strictness).filter(|_| mode == Mode::Guard);
        if failure.is_none() {
            let rest = self.held.freeze();
            return Finish { rest, ending, failure, frame: None, mode, framing };
        }
        let waits = matches!(self.gate, Gate::Calls(_) | Gate::Word(_));
        let passed = self.received - self.held.len() as u64;
        let whole = usize::try_from(self.boundary.saturating_sub(passed)).unwrap_or(0);
        let rest = if waits || self.opaque {
            Bytes::new()
        } else {
            self.held.split_to(whole.min(self.held.len())).freeze()
        };
        // In the middle of a frame nothing can be said, and what the provider said is enough.
        let torn = self.opaque || passed > self.boundary;
        let told = self.faulted && !waits;
        let frame = failure.as_ref().filter(|_| !torn && !told).map(|failure| {
            let first = !self.framed || passed + rest.len() as u64 == 0;
            self.profile.error_frame(framing, first, &failure.trouble())
        });
        Finish { rest, ending, failure, frame, mode, framing }
    }

    /// Reads the bytes and notes what they bring; true if the end is proven.
    fn read(&mut self, bytes: &[u8]) -> bool {
        if self.mode == Mode::Observe {
            self.reader.watch(bytes);
            return false;
        }
        let Self { reader, boundary, gate, framed, faulted, strictness, received, .. } = self;
        let base = *received;
        let mut proven = false;
        reader.follow(bytes, |mark| {
            *framed = true;
            *gate = gate.after(*boundary, strictness.tool_calls, mark.has_calls(), mark.has_word());
            *boundary = base + mark.end as u64;
            proven |= mark.is_proven();
            *faulted |= mark.has_fault();
        });
        let whole = reader.whole();
        if whole > 0 {
            *boundary = (*boundary).max(base + whole as u64);
        }
        proven
    }

    fn judge(&mut self, proven: bool) -> Next {
        if self.reader.is_broken() {
            return Next::Fail;
        }
        let waits = matches!(self.gate, Gate::Calls(_) | Gate::Word(_));
        if !waits {
            return Next::Go;
        }
        // On some wires the tokens come after the proof, and they can tell that a call was cut.
        let told = !self.capped || self.reader.has_output_count();
        if self.faulted {
            return Next::Fail;
        }
        if !(proven && told) {
            return if matches!(self.gate, Gate::Word(_)) { Next::Wait } else { Next::Go };
        }
        match self.reader.so_far() {
            Some(ending) if failure(&ending, self.strictness).is_some() => Next::Fail,
            Some(_) | None => {
                self.gate = Gate::Released;
                Next::Go
            }
        }
    }

    /// How far the stream can be passed on where nothing waits.
    fn passable(&self) -> u64 {
        let tail = self.received - self.boundary;
        if tail > TAIL as u64 { self.received } else { self.boundary }
    }

    /// Passes on what lies before `upto`, and holds the rest.
    fn release(&mut self, start: u64, chunk: &Bytes, upto: u64, pass: &mut impl FnMut(Bytes)) {
        let passed = start - self.held.len() as u64;
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

impl Gate {
    /// The gate after a frame that began at `start`.
    fn after(self, start: u64, tool_calls: ToolCalls, calls: bool, word: bool) -> Self {
        match self {
            _ if tool_calls == ToolCalls::Pass || !calls => self,
            Self::Open if word => Self::Word(start),
            Self::Open if tool_calls == ToolCalls::Hold => Self::Calls(start),
            Self::Calls(at) if word => Self::Word(at),
            Self::Open | Self::Calls(_) | Self::Word(_) | Self::Released => self,
        }
    }

    /// The gate, no later than here: what is read and what is passed on are not the same bytes.
    fn at_or_before(self, start: u64) -> Self {
        match self {
            Self::Calls(at) => Self::Calls(at.min(start)),
            Self::Word(at) => Self::Word(at.min(start)),
            Self::Open | Self::Released => self,
        }
    }
}
