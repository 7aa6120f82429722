//! The guard of one stream: how much of it can be passed on, and when it must fail.
//!
//! No IO and no clock: bytes are pushed, and what may leave comes back. It forwards whole frames, so
//! that an error can be put in at a boundary; only the tail of a frame that is very large is passed
//! on unfinished. Where tool calls were seen, the frame with the word or the proof and all after it
//! wait for the proof of the end, for the end itself, or until the caller has waited long enough.
//!
//! ```text
//!            push                 push: word after calls
//! Flowing ---------> Flowing ---------------------------> Waiting --- proof, allowed ---> Flowing
//!    |                  hold: first call -> Waiting          |------- waited enough ----> Flowing
//!    |                                                       |------- refused ----------> Failed
//!    +-- finish: a failure ------------------------------------------------------------> Failed
//! ```

use bytes::{Bytes, BytesMut};
use endstop::dialect::Framing;
use endstop::{Ending, Profile, TransportEnd, Watcher};

use crate::config::{Mode, ToolCalls};
use crate::failure::{Failure, Strictness, failure};

/// The most of an unfinished frame that is held back.
pub const TAIL: usize = 64 << 10;
/// The most that is held back while a tool call waits for its proof.
pub const HELD: usize = 16 << 20;

/// Decides how much of a stream can be passed on.
#[derive(Debug)]
pub struct Guard {
    reader: Watcher,
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
    /// Frames that we asked for ourselves are taken out again.
    extra: Option<Extra>,
}

/// What was asked for and is not the client's.
#[derive(Debug)]
struct Extra {
    is_extra: fn(&[u8]) -> bool,
    /// Whole frames that have not been looked at: from where to where.
    frames: Vec<(u64, u64)>,
    /// Those that are taken out, as far as they have not been passed.
    out: Vec<(u64, u64)>,
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
pub struct GuardEnd {
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
    pub fn new(reader: Watcher, profile: Profile, mode: Mode, strictness: Strictness) -> Self {
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
            extra: None,
        }
    }

    /// Events like these were asked for by us, and are taken out.
    #[must_use]
    pub fn without(self, is_extra: Option<fn(&[u8]) -> bool>) -> Self {
        let sse = self.framing == Framing::Sse && self.mode == Mode::Guard;
        let extra = is_extra.filter(|_| sse);
        let extra = extra.map(|is_extra| Extra { is_extra, frames: Vec::new(), out: Vec::new() });
        Self { extra, ..self }
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

    /// The ending as far as it has been said.
    #[must_use]
    pub fn so_far(&self) -> Option<Ending> {
        self.reader.so_far()
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
        self.find_extra(start, chunk);
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
    pub fn finish(self, close: TransportEnd) -> GuardEnd {
        self.finish_as(|reader| reader.finish(close))
    }

    /// Ends a stream that has failed, whatever might follow.
    #[must_use]
    pub fn fail(self) -> GuardEnd {
        let broken = self.reader.is_broken();
        self.finish_as(|reader| match reader.so_far() {
            Some(ending) if !broken => ending,
            Some(_) | None => reader.finish(TransportEnd::Eof),
        })
    }

    fn finish_as(mut self, finish: impl FnOnce(Watcher) -> Ending) -> GuardEnd {
        let (mode, framing) = (self.mode, self.framing);
        let ending = finish(self.reader);
        let failure = failure(&ending, self.strictness).filter(|_| mode == Mode::Guard);
        if failure.is_none() {
            let mut rest = BytesMut::new();
            let start = self.received - self.held.len() as u64;
            let held = self.held.freeze();
            match &self.extra {
                None => rest = held.into(),
                Some(extra) => extra.pass(start, held, &mut |bytes| rest.extend_from_slice(&bytes)),
            }
            let rest = rest.freeze();
            return GuardEnd { rest, ending, failure, frame: None, mode, framing };
        }
        let waits = matches!(self.gate, Gate::Calls(_) | Gate::Word(_));
        let passed = self.received - self.held.len() as u64;
        let whole = usize::try_from(self.boundary.saturating_sub(passed)).unwrap_or(0);
        // An error of the provider's that the end of the bytes made whole: no frame ended after it.
        let last_word = !self.faulted && ending.fault.is_some() && !waits && !self.opaque;
        let rest = if waits || self.opaque {
            Bytes::new()
        } else if last_word {
            self.held.split().freeze()
        } else {
            self.held.split_to(whole.min(self.held.len())).freeze()
        };
        // In the middle of a frame nothing can be said, and what the provider said is enough.
        let torn = self.opaque || passed > self.boundary;
        let told = (self.faulted || last_word) && !waits;
        let frame = failure.as_ref().filter(|_| !torn && !told).map(|failure| {
            let first = !self.framed || passed + rest.len() as u64 == 0;
            self.profile.error_frame(framing, first, &failure.gateway_error())
        });
        GuardEnd { rest, ending, failure, frame, mode, framing }
    }

    /// Reads the bytes and notes what they bring; true if the end is proven.
    fn read(&mut self, bytes: &[u8]) -> bool {
        if self.mode == Mode::Observe {
            self.reader.watch(bytes);
            return false;
        }
        let Self { reader, boundary, gate, framed, faulted, strictness, received, extra, .. } =
            self;
        let base = *received;
        let mut proven = false;
        reader.follow(bytes, |mark| {
            *framed = true;
            // Some clients stop reading at the proof: what is to be refused must not come after it.
            let said = mark.has_word() || mark.is_proven();
            *gate = gate.after(*boundary, strictness.tool_calls, mark.has_calls(), said);
            let start = std::mem::replace(boundary, base + mark.end as u64);
            if let Some(extra) = extra.as_mut().filter(|_| mark.has_word()) {
                extra.frames.push((start, *boundary));
            }
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

    /// Looks at the frames that have become whole.
    fn find_extra(&mut self, start: u64, chunk: &Bytes) {
        let Some(extra) = &mut self.extra else { return };
        let passed = start - self.held.len() as u64;
        for (from, to) in std::mem::take(&mut extra.frames) {
            let at = |place: u64| usize::try_from(place.saturating_sub(passed)).unwrap_or(0);
            let held = self.held.iter().chain(chunk.iter()).skip(at(from)).take(at(to) - at(from));
            let frame: Vec<u8> = held.copied().collect();
            let event = frame.trim_ascii().strip_prefix(b"data:").unwrap_or_default();
            if (extra.is_extra)(event.trim_ascii()) {
                extra.out.push((from, to));
            }
        }
    }

    /// Passes on what lies before `upto`, and holds the rest.
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

impl Extra {
    /// Passes on what is not taken out of these bytes, which begin at `start`.
    fn pass(&self, start: u64, bytes: Bytes, pass: &mut impl FnMut(Bytes)) {
        let mut rest = bytes;
        let mut at = start;
        for (from, to) in &self.out {
            let before = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX);
            let until = usize::try_from(to.saturating_sub(at)).unwrap_or(usize::MAX);
            if until == 0 || before >= rest.len() {
                continue;
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

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::provider::{self, Provider};
    use endstop::{Head, Reason, RequestInfo};

    /// What we asked for is taken out, however the stream is cut, and nothing else is.
    #[test]
    fn what_was_asked_for_the_record_is_taken_out() {
        let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n\n";
        let other = "data: {\"choices\":[],\"usage\":null}\n\n";
        for before in [TEXT, CALL] {
            let said = word(if before == TEXT { "stop" } else { "tool_calls" });
            let stream = format!("{before}{said}{other}{usage}{DONE}");
            let without = format!("{before}{said}{other}{DONE}");
            let run = |pieces: &[&[u8]]| {
                let is_extra =
                    provider::OPENAI.main.request_shape.usage.map(|usage| usage.is_extra);
                run(guard(&provider::OPENAI, ToolCalls::Fail, Some(99)).without(is_extra), pieces)
            };
            for cut in 0..=stream.len() {
                let (head, tail) = stream.as_bytes().split_at(cut);
                assert_eq!(run(&[head, tail]).0, without, "{cut}");
            }
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(run(&bytes).0, without);
        }
    }

    /// A guard over one provider's streams.
    fn guard(provider: &Provider, tool_calls: ToolCalls, cap: Option<u64>) -> Guard {
        let head = Head { status: 200, content_type: "text/event-stream" };
        let asked = RequestInfo { streamed: Some(true), cap, ..RequestInfo::default() };
        let reader = Watcher::new(provider, head, asked);
        let strictness = Strictness { tool_calls, proves: true };
        Guard::new(reader, provider.main, Mode::Guard, strictness).capped(cap.is_some())
    }

    /// What a client gets of these pieces, and how it ends.
    fn run(mut guard: Guard, pieces: &[&[u8]]) -> (String, Option<Failure>, Reason) {
        let mut out = Vec::new();
        for piece in pieces {
            let next = guard.push(&Bytes::copy_from_slice(piece), None, &mut |bytes| {
                out.extend_from_slice(&bytes);
            });
            if next == Next::Fail {
                return end(guard.fail(), out);
            }
        }
        end(guard.finish(TransportEnd::Eof), out)
    }

    fn end(finish: GuardEnd, mut out: Vec<u8>) -> (String, Option<Failure>, Reason) {
        out.extend_from_slice(&finish.rest);
        out.extend_from_slice(&finish.frame.unwrap_or_default());
        (String::from_utf8(out).unwrap(), finish.failure, finish.ending.reason)
    }

    const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n";
    const CALL: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\
        \"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":null}]}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn word(word: &str) -> String {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{word}\"}}]}}\n\n"
        )
    }

    /// Every way to cut a stream in two gives a client the same, and what is well is untouched.
    #[test]
    fn every_cut_gives_the_same() {
        let whole: &[(String, bool)] = &[
            (format!("{TEXT}{}{DONE}", word("stop")), true),
            (format!("{CALL}{}{DONE}", word("tool_calls")), true),
            (format!(": hi\r\n\r\n{TEXT}{}", word("stop")), true),
            (format!("{TEXT}{DONE}"), true),
            (format!("{TEXT}data: {{\"choi"), false),
            (format!("{CALL}{}{DONE}", word("length")), false),
            (format!("{CALL}{DONE}"), false),
            (format!("{TEXT}{CALL}"), false),
            (format!("{CALL}{}{DONE}", word("frobnicated")), false),
        ];
        for tool_calls in [ToolCalls::Fail, ToolCalls::Hold] {
            for (stream, well) in whole {
                let run =
                    |pieces: &[&[u8]]| run(guard(&provider::OPENAI, tool_calls, None), pieces);
                let want = run(&[stream.as_bytes()]);
                assert_eq!(want.1.is_none(), *well, "{stream}: {want:?}");
                if *well {
                    assert_eq!(&want.0, stream);
                }
                for cut in 0..=stream.len() {
                    let (head, tail) = stream.as_bytes().split_at(cut);
                    assert_eq!(run(&[head, tail]), want, "{stream} at {cut}");
                }
                let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
                assert_eq!(run(&bytes), want, "{stream} byte by byte");
            }
        }
    }

    #[test]
    fn what_is_refused_never_shows_its_word_or_its_proof() {
        for refused in [format!("{CALL}{}{DONE}", word("length")), format!("{CALL}{DONE}")] {
            let (out, failure, _) =
                run(guard(&provider::OPENAI, ToolCalls::Fail, None), &[refused.as_bytes()]);
            assert!(out.starts_with(CALL), "{out}");
            assert!(!out.contains("[DONE]") && !out.contains("\"length\"}"), "{out}");
            assert_eq!(failure.map(|failure| failure.status), Some(422));
            let (out, ..) =
                run(guard(&provider::OPENAI, ToolCalls::Hold, None), &[refused.as_bytes()]);
            assert!(out.starts_with("data: {\"error\":"), "held calls leave: {out}");
            let (out, failure, _) =
                run(guard(&provider::OPENAI, ToolCalls::Pass, None), &[refused.as_bytes()]);
            assert_eq!((out.as_str(), failure), (refused.as_str(), None));
        }
    }

    #[test]
    fn only_what_must_wait_waits() {
        let mut out = Vec::new();
        let mut push = |guard: &mut Guard, text: &str| {
            out.clear();
            let next = guard.push(&Bytes::copy_from_slice(text.as_bytes()), None, &mut |bytes| {
                out.extend_from_slice(&bytes);
            });
            (next, String::from_utf8(out.clone()).unwrap())
        };
        let stop = word("stop");
        let calls = word("tool_calls");
        // Text and its word go at once, and so do comments.
        let mut text = guard(&provider::OPENAI, ToolCalls::Fail, None);
        for frame in [TEXT, ": ping\n\n", stop.as_str(), DONE] {
            assert_eq!(push(&mut text, frame), (Next::Go, frame.to_owned()));
        }
        // Calls go at once, their word waits for the proof.
        let mut call = guard(&provider::OPENAI, ToolCalls::Fail, None);
        assert_eq!(push(&mut call, CALL), (Next::Go, CALL.to_owned()));
        assert_eq!(push(&mut call, &calls), (Next::Wait, String::new()));
        assert_eq!(push(&mut call, DONE), (Next::Go, format!("{calls}{DONE}")));
        // Unless they are held: then they wait too.
        let mut held = guard(&provider::OPENAI, ToolCalls::Hold, None);
        assert_eq!(push(&mut held, CALL), (Next::Go, String::new()));
        assert_eq!(push(&mut held, &calls), (Next::Wait, String::new()));
        assert_eq!(push(&mut held, DONE), (Next::Go, format!("{CALL}{calls}{DONE}")));
    }

    #[test]
    fn what_has_waited_long_enough_goes_if_it_may() {
        let run = |said: &str| {
            let mut guard = guard(&provider::OPENAI, ToolCalls::Fail, None);
            let mut out = Vec::new();
            for text in [CALL, said] {
                guard.push(&Bytes::copy_from_slice(text.as_bytes()), None, &mut |bytes| {
                    out.extend_from_slice(&bytes);
                });
            }
            let next = guard.waited(&mut |bytes| out.extend_from_slice(&bytes));
            (next, String::from_utf8(out).unwrap())
        };
        let calls = word("tool_calls");
        assert_eq!(run(&calls), (Next::Go, format!("{CALL}{calls}")));
        assert_eq!(run(&word("length")), (Next::Fail, CALL.to_owned()));
    }

    #[test]
    fn tokens_that_come_late_are_waited_for() {
        // At the cap, a call without arguments is a cut one; the tokens come after the word.
        let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n\n";
        let call = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\
                    \"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n";
        let stream = format!("{call}{}{usage}{DONE}", word("tool_calls"));
        let with_cap = |cap| {
            run(guard(&provider::OPENAI, ToolCalls::Fail, Some(cap)), &[stream.as_bytes()])
                .1
                .is_some()
        };
        assert!(with_cap(9));
        assert!(!with_cap(10));
    }

    #[test]
    fn a_large_frame_is_passed_on_unfinished_and_then_only_an_abort_tells() {
        let long = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}", "x".repeat(TAIL));
        let pieces = [TEXT.as_bytes(), long.as_bytes()];
        let (out, failure, reason) = run(guard(&provider::OPENAI, ToolCalls::Fail, None), &pieces);
        assert_eq!(out, format!("{TEXT}{long}"));
        assert_eq!((failure.is_some(), reason), (true, Reason::Cut));
        let short = format!("data: {{\"x\":\"{}", "x".repeat(TAIL - 20));
        let pieces = [TEXT.as_bytes(), short.as_bytes()];
        let (out, ..) = run(guard(&provider::OPENAI, ToolCalls::Fail, None), &pieces);
        assert!(out.starts_with(&format!("{TEXT}data: {{\"error\":")), "{out}");
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut guard = guard(&provider::OPENAI, ToolCalls::Hold, None);
        let mut pass = |_| {};
        guard.push(&Bytes::from_static(CALL.as_bytes()), None, &mut pass);
        let more = Bytes::from(CALL.repeat(1000));
        let mut pushes = 0;
        while guard.push(&more, None, &mut pass) != Next::Fail {
            pushes += 1;
            assert!(pushes < 1000);
        }
        assert!(guard.held.len() <= HELD + more.len());
    }
}
