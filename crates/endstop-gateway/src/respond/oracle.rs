//! The gate over own cases and recordings: whatever has left when a stream is cut, no tool call in it
//! could run unless the response was complete by then.

#![allow(dead_code, reason = "these modules serve the tests of the core, too")]

#[path = "../../../endstop/tests/it/call.rs"]
mod call;
#[path = "../../../endstop/tests/it/case.rs"]
mod case;
#[path = "../../../endstop/tests/it/recorded.rs"]
mod recorded;
#[path = "../../../endstop/tests/it/sample.rs"]
mod sample;

use bytes::Bytes;
use endstop::dialect::Framing;
use endstop::tool_call::Assembly;
use endstop::{Head, Profile, Reader, RequestInfo, TransportEnd, Watcher};

use super::fuzzing::calls_of_other_wires;
use super::guard::{Guard, Next};
use crate::config::{Mode, ToolCalls};
use crate::disposition::{Disposition, ResponseRules, failure};

/// A streamed response.
struct Stream<'a> {
    label: String,
    profile: Profile,
    head: Head<'a>,
    info: RequestInfo,
    bytes: Vec<u8>,
    /// Whether a client of another wire finds calls in it.
    is_mixed: bool,
}

/// What the oracle saw.
#[derive(Default)]
struct Seen {
    cuts: usize,
    /// Cuts of streams with tool calls that failed, and that passed.
    failed: usize,
    passed: usize,
    wrong: Vec<String>,
}

impl Stream<'_> {
    fn guard(&self, tool_calls: ToolCalls) -> (Guard, ResponseRules) {
        let terms =
            ResponseRules { mode: Mode::Guard, tool_calls, proves: true, background: false };
        let capped = self.info.cap.is_some();
        (Guard::new(self.watcher(), self.profile, terms).capped(capped), terms)
    }

    fn watcher(&self) -> Watcher {
        Watcher::new(self.profile, self.head.clone(), self.info.clone())
    }

    fn client(&self) -> Client {
        let info = RequestInfo { streamed: self.info.streamed, ..RequestInfo::default() };
        Client {
            reader: Reader::new(self.profile, self.head.clone(), info),
            assembly: Assembly::default(),
        }
    }

    /// Reports whether the response is complete, and its calls may run, if it is cut here.
    fn is_whole_at(&self, cut: usize, terms: ResponseRules) -> bool {
        let mut watcher = self.watcher();
        watcher.watch(&self.bytes[..cut]);
        failure(&watcher.finish(TransportEnd::Eof), terms).is_none()
    }

    /// Reports whether the response is a success if it is cut here.
    fn is_success_at(&self, cut: usize) -> bool {
        let mut watcher = self.watcher();
        watcher.watch(&self.bytes[..cut]);
        watcher.finish(TransportEnd::Eof).reason.is_success()
    }

    /// Returns how many calls clients of other wires could run, if the response holds any.
    fn elsewhere(&self, left: &[u8]) -> usize {
        let is_mixed = self.is_mixed && matches!(self.profile.framing, Framing::Sse);
        if is_mixed { calls_of_other_wires(self.profile, left) } else { 0 }
    }

    /// Pushes one byte at a time, and checks what has left after each.
    fn check_every_byte(&self, tool_calls: ToolCalls, seen: &mut Seen) {
        let (mut guard, terms) = self.guard(tool_calls);
        let (mut client, mut shown) = (self.client(), (0, 0));
        let mut all = Vec::new();
        for (at, byte) in self.bytes.chunks(1).enumerate() {
            let mut left = Vec::new();
            let next = guard.push(&Bytes::copy_from_slice(byte), &mut |bytes| {
                left.extend_from_slice(&bytes);
            });
            seen.cuts += 1;
            all.extend_from_slice(&left);
            let now = match left.is_empty() {
                true => shown,
                false => (client.could_run(&left), self.elsewhere(&all)),
            };
            let unproven = now.0 > shown.0 && !self.is_whole_at(at + 1, terms);
            if unproven || now.1 > shown.1 && !self.is_success_at(at + 1) {
                seen.wrong.push(format!("{}: a call has left at byte {}", self.label, at + 1));
                return;
            }
            shown = now;
            if next == Next::Fail {
                return;
            }
        }
    }

    /// Ends the stream here, and checks all that a client gets.
    fn check_cut(&self, cut: usize, tool_calls: ToolCalls, seen: &mut Seen) {
        let (mut guard, _) = self.guard(tool_calls);
        let mut left = Vec::new();
        let part = Bytes::copy_from_slice(&self.bytes[..cut]);
        let next = guard.push(&part, &mut |bytes| left.extend_from_slice(&bytes));
        let end = if next == Next::Fail { guard.fail() } else { guard.finish(TransportEnd::Eof) };
        left.extend_from_slice(&end.rest);
        seen.cuts += 1;
        if let Disposition::Fail(_) = end.disposition {
            left.extend_from_slice(&end.frame.unwrap_or_default());
            seen.failed += 1;
            if self.client().could_run(&left) > 0 || self.elsewhere(&left) > 0 {
                seen.wrong
                    .push(format!("{}: a call of a failed response, cut at {cut}", self.label));
            }
        } else {
            seen.passed += 1;
            if left != part {
                seen.wrong.push(format!("{}: other bytes, cut at {cut}", self.label));
            }
        }
    }

    /// Returns the end of each frame, and a place inside of it.
    fn cuts(&self) -> Vec<usize> {
        let mut cuts = Vec::new();
        let mut last = 0;
        self.watcher().follow(&self.bytes, |mark| {
            cuts.extend([usize::midpoint(last, mark.end), mark.end]);
            last = mark.end;
        });
        cuts.push(self.bytes.len());
        cuts
    }

    /// Reports whether the response holds tool calls, of its own wire or of another, and notes the latter.
    fn has_calls(&mut self) -> bool {
        let mut watcher = self.watcher();
        let mut has_calls = false;
        watcher.follow(&self.bytes, |mark| has_calls |= mark.has_calls());
        self.is_mixed = calls_of_other_wires(self.profile, &self.bytes) > 0;
        has_calls || self.is_mixed
    }

    fn check(&self, tool_calls: ToolCalls) -> Seen {
        let mut seen = Seen::default();
        self.check_every_byte(tool_calls, &mut seen);
        for cut in self.cuts() {
            self.check_cut(cut, tool_calls, &mut seen);
        }
        seen
    }
}

/// A client that runs a call as soon as it could.
struct Client {
    reader: Reader,
    assembly: Assembly,
}

impl Client {
    /// Reads on. Returns how many calls could run now.
    fn could_run(&mut self, bytes: &[u8]) -> usize {
        let Self { reader, assembly } = self;
        reader.read(bytes, |event| assembly.observe(&event));
        assembly.so_far().iter().filter(|call| call.state.could_run()).count()
    }
}

fn check(streams: &[&Stream<'_>], tool_calls: ToolCalls) {
    let seen = sample::on_two_threads(streams, |_, stream| stream.check(tool_calls));
    let wrong: Vec<&str> = seen.iter().flat_map(|seen| &seen.wrong).map(String::as_str).collect();
    let sum = |of: fn(&Seen) -> usize| seen.iter().map(of).sum::<usize>();
    let (cuts, failed, passed) =
        (sum(|seen| seen.cuts), sum(|seen| seen.failed), sum(|seen| seen.passed));
    println!(
        "{} streams with tool calls, {cuts} cuts: {failed} failed, {passed} passed, {} wrong",
        streams.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(streams.is_empty() || (failed > 0 && passed > 0));
}

#[test]
fn no_call_of_a_case_leaves_unproven() {
    let cases = case::all();
    let streams: Vec<Stream<'_>> = cases
        .iter()
        .filter(|case| case.is_stream())
        .map(|case| Stream {
            label: case.label(),
            profile: case.wire().profile,
            head: case.head(),
            info: RequestInfo { streamed: Some(true), ..case.asked() },
            bytes: case.bytes(),
            is_mixed: false,
        })
        .filter_map(|mut stream| stream.has_calls().then_some(stream))
        .collect();
    assert!(streams.len() > 50 && streams.iter().any(|stream| stream.is_mixed));
    let streams: Vec<&Stream<'_>> = streams.iter().collect();
    for tool_calls in [ToolCalls::Gate, ToolCalls::Hold] {
        check(&streams, tool_calls);
    }
}

#[test]
fn no_call_of_a_recording_leaves_unproven() {
    let records = recorded::all();
    let mut streams: Vec<Stream<'_>> = Vec::new();
    for record in records {
        let bytes = record.bytes();
        let status = record.status.unwrap_or(200);
        if !record.stream || status != 200 {
            continue;
        }
        let mut stream = Stream {
            label: record.id.clone(),
            profile: record.wire(&bytes).profile,
            head: Head { status, content_type: record.content_type() },
            info: record.asked(),
            bytes,
            is_mixed: false,
        };
        if stream.has_calls() {
            streams.push(stream);
        }
    }
    check(&streams.iter().collect::<Vec<_>>(), ToolCalls::Gate);
}
