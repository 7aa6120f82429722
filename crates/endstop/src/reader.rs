//! The reader: push bytes, get events, finish once, get the ending.

use crate::dialect::{Proof, Reading};
use crate::ending::{ChoiceEnding, Close, Closed, Ending, Reason, Shown};
use crate::event::Event;
use crate::facts::{Choice, Facts};
use crate::fault::{self, Expect, Fault, FaultKind, Told};
use crate::frame::array::Array;
use crate::frame::aws::Aws;
use crate::frame::lines::Lines;
use crate::frame::sse::Sse;
use crate::frame::{self, Broken, Frame, FrameKind, Framing, Rest};
use crate::json::{JsonState, Scanner};
use crate::provider::{Profile, Wire};
use crate::repeat::{Hit, Lesson, Repeat};
use crate::verdict::{self, Evidence, Habits, Meaning};

/// How much of a page or text is kept that came in place of an answer.
const TEXT_KEPT: usize = 4096;

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
pub struct Asked {
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
/// use endstop::{Asked, Close, Head, Reader, Reason, provider};
///
/// let head = Head { status: 200, content_type: "text/event-stream" };
/// let mut reader = Reader::new(&provider::OPENAI, head, Asked::default());
/// reader.read(
///     b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n",
///     |event| println!("{event:?}"),
/// );
/// let ending = reader.finish(Close::Eof);
/// assert_eq!(ending.reason, Reason::Cut);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a response has an ending: call `finish`"]
pub struct Reader {
    wire: Wire,
    status: u16,
    content_type: String,
    asked: Asked,
    limits: Limits,
    framer: Framer,
    facts: Facts,
    repeat: Repeat,
    broken: Option<Broken>,
    flags: Flags,
    bytes: u64,
    events: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    cut_event: bool,
    malformed_event: bool,
    invalid_utf8: bool,
    /// The streamed array was closed, or there is none.
    unclosed_array: bool,
}

/// What takes the bytes apart; undecided until their beginning has been seen.
#[derive(Clone, Debug)]
enum Framer {
    Undecided(Vec<u8>),
    Sse(Sse),
    Lines(Lines),
    Array(Array),
    Aws(Aws),
    Body(Vec<u8>),
    Text(Vec<u8>),
}

/// Where dialects put what they read.
#[derive(Debug)]
pub struct Out<'r, 's> {
    facts: &'r mut Facts,
    wire: &'r Wire,
    limits: &'r Limits,
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

impl Out<'_, '_> {
    pub(crate) fn emit(&mut self, event: Event<'_>) {
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

    pub(crate) fn detail(&mut self, choice: Option<u32>, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.emit(Event::Detail { choice, key, value });
        }
    }

    /// A choice is there, if without content so far.
    pub(crate) fn choice(&mut self, index: u32) {
        self.facts.choice_mut(index, self.limits);
    }

    /// The provider named the stop sequence that matched.
    pub(crate) fn stop_sequence(&mut self, choice: u32) {
        self.lesson.spoil();
        self.facts.stop_sequence(choice, self.limits);
    }

    pub(crate) fn has_content(&self, choice: u32) -> bool {
        self.facts.has_content(choice)
    }

    pub(crate) fn has_call(&self, choice: u32, call: u32) -> bool {
        self.facts.has_call(choice, call)
    }

    pub(crate) fn has_arguments(&self, choice: u32, call: u32) -> bool {
        self.facts.has_arguments(choice, call)
    }

    pub(crate) fn open_call(&self, choice: u32) -> Option<u32> {
        self.facts.open_call(choice)
    }

    pub(crate) fn next_call(&self, choice: u32) -> u32 {
        self.facts.next_call(choice)
    }
}

impl Reader {
    /// A reader for one response of this wire.
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, asked: Asked) -> Self {
        Self::with_limits(wire, head, asked, Limits::default())
    }

    /// The same, with other bounds.
    pub fn with_limits(
        wire: impl Into<Wire>,
        head: Head<'_>,
        asked: Asked,
        limits: Limits,
    ) -> Self {
        Self {
            wire: wire.into(),
            status: head.status,
            content_type: head.content_type.to_ascii_lowercase(),
            asked,
            limits,
            framer: Framer::Undecided(Vec::new()),
            facts: Facts::default(),
            repeat: Repeat::default(),
            broken: None,
            flags: Flags::default(),
            bytes: 0,
            events: 0,
        }
    }

    /// Without the fast path: what it is held against.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn without_repeats(mut self) -> Self {
        self.repeat = Repeat::disabled();
        self
    }

    /// Reads a chunk and hands its events over.
    pub fn read(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        self.push(chunk, Some(Sink(&mut on_event)));
    }

    /// Reads a chunk for the sake of the ending alone, which is cheaper.
    pub fn watch(&mut self, chunk: &[u8]) {
        self.push(chunk, None);
    }

    /// Ends the response. There is exactly one ending.
    #[must_use]
    pub fn finish(mut self, close: Close) -> Ending {
        self.end_frames(None);
        self.ending(close)
    }

    /// The same, with the events that only the end of the bytes brings, as all of a plain body's.
    #[must_use]
    pub fn finish_with(mut self, close: Close, mut on_event: impl FnMut(Event<'_>)) -> Ending {
        self.end_frames(Some(Sink(&mut on_event)));
        self.ending(close)
    }

    fn push(&mut self, chunk: &[u8], sink: Option<Sink<'_, '_>>) {
        self.bytes += chunk.len() as u64;
        if self.broken.is_some() {
            return;
        }
        let mut framer = std::mem::replace(&mut self.framer, Framer::Undecided(Vec::new()));
        let result = self.push_framer(&mut framer, chunk, sink);
        self.framer = framer;
        self.broken = result.err();
    }

    fn push_framer(
        &mut self,
        framer: &mut Framer,
        chunk: &[u8],
        mut sink: Option<Sink<'_, '_>>,
    ) -> Result<(), Broken> {
        let mut over = false;
        let limit = self.limits.event_bytes;
        let mut on_frame = |frame: Frame<'_>| over |= !self.read_frame(&frame, sink.as_mut());
        let result = match framer {
            Framer::Undecided(held) => {
                held.extend_from_slice(chunk);
                let Some(decided) = decide(
                    &self.wire.profile,
                    &self.content_type,
                    self.asked.streamed,
                    held,
                    false,
                    limit,
                ) else {
                    return Ok(());
                };
                let held = std::mem::take(held);
                *framer = decided;
                return self.push_framer(framer, &held, sink);
            }
            Framer::Sse(sse) => sse.push(chunk, on_frame),
            Framer::Lines(lines) => lines.push(chunk, on_frame),
            Framer::Array(array) => array.push(chunk, on_frame),
            Framer::Aws(aws) => aws.push(chunk, &mut on_frame),
            Framer::Body(body) if body.len() + chunk.len() > limit => Err(Broken::Oversize),
            Framer::Body(body) => {
                body.extend_from_slice(chunk);
                Ok(())
            }
            Framer::Text(text) => {
                let room = TEXT_KEPT.saturating_sub(text.len());
                text.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
                Ok(())
            }
        };
        if over { Err(Broken::Oversize) } else { result }
    }

    /// Hands over what the end of the bytes makes whole, and notes what it leaves unfinished.
    fn end_frames(&mut self, mut sink: Option<Sink<'_, '_>>) {
        if self.broken.is_some() {
            return;
        }
        let mut framer = std::mem::replace(&mut self.framer, Framer::Undecided(Vec::new()));
        if let Framer::Undecided(held) = &mut framer {
            let held = std::mem::take(held);
            let limit = self.limits.event_bytes;
            let decided = decide(
                &self.wire.profile,
                &self.content_type,
                self.asked.streamed,
                &held,
                true,
                limit,
            );
            framer = decided.unwrap_or(Framer::Undecided(Vec::new()));
            let pushed =
                self.push_framer(&mut framer, &held, sink.as_mut().map(|Sink(sink)| Sink(*sink)));
            self.broken = pushed.err();
        }
        let mut on_frame = |frame: Frame<'_>| {
            self.read_frame(&frame, sink.as_mut());
        };
        let rest = match framer {
            Framer::Undecided(_) => Rest::Nothing,
            Framer::Sse(sse) => sse.finish(on_frame),
            Framer::Lines(lines) => lines.finish(on_frame),
            Framer::Array(array) => {
                self.flags.unclosed_array = !array.is_closed();
                array.finish()
            }
            Framer::Aws(aws) => aws.finish(),
            Framer::Body(body) => end_body(&body, &mut on_frame),
            Framer::Text(text) => {
                self.read_text(&text, sink.as_mut());
                Rest::Nothing
            }
        };
        self.flags.cut_event |= rest == Rest::CutFrame;
    }

    /// Reads one frame. False if there were too many.
    fn read_frame(&mut self, frame: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) -> bool {
        self.events += 1;
        if self.events > self.limits.events {
            return false;
        }
        self.facts.past_end = self.facts.proven;
        let mut sink = sink;
        if !self.read_repeat(frame, &mut sink) {
            self.read_new(frame, sink);
        }
        true
    }

    /// The fast path: true if the frame repeats an earlier one but for its text.
    fn read_repeat(&mut self, frame: &Frame<'_>, sink: &mut Option<&mut Sink<'_, '_>>) -> bool {
        let Some((piece, hit)) = self.repeat.hit(frame) else { return false };
        let unescaped;
        let text = match hit {
            Hit::Plain(text) => text,
            Hit::Escaped(quoted) => match serde_json::from_slice::<String>(quoted) {
                Ok(text) => {
                    unescaped = text;
                    &unescaped
                }
                Err(_) => return false,
            },
        };
        let event = piece.event(text);
        self.facts.observe(&event, &self.wire, &self.limits);
        if let Some(Sink(sink)) = sink {
            sink(event);
        }
        true
    }

    fn read_new(&mut self, frame: &Frame<'_>, sink: Option<&mut Sink<'_, '_>>) {
        let (proof, dialect) = (self.wire.profile.proof, self.wire.profile.dialect);
        let failed = self.is_error_status();
        let mut out = Out {
            facts: &mut self.facts,
            wire: &self.wire,
            limits: &self.limits,
            lesson: Lesson::default(),
            data: frame.data,
            sink: sink.map(|Sink(sink)| Sink(*sink)),
        };
        if frame.kind == FrameKind::Exception {
            return emit_fault(exception(frame), self.status, &mut out);
        }
        if frame.data.starts_with(b"[DONE]") || is_marker(proof, frame.data) {
            if is_marker(proof, frame.data) {
                out.emit(Event::Proof);
            }
            return;
        }
        if failed {
            if let Some(told) = fault::read(frame.data, Expect::Error) {
                emit_fault(told, self.status, &mut out);
            }
            return;
        }
        let read = if frame.kind == FrameKind::Body { dialect.read_body } else { dialect.read };
        let mut reading = read(frame, &mut out);
        if reading == Reading::Malformed && std::str::from_utf8(frame.data).is_err() {
            self.flags.invalid_utf8 = true;
            let text = String::from_utf8_lossy(frame.data);
            let frame = Frame { data: text.as_bytes(), ..*frame };
            out.lesson.spoil();
            reading = read(&frame, &mut out);
        }
        match reading {
            Reading::Read if frame.kind == FrameKind::Event => {
                let lesson = std::mem::take(&mut out.lesson);
                self.repeat.learn(frame, &lesson, dialect.padding);
            }
            Reading::Read => {}
            Reading::Malformed => self.flags.malformed_event = true,
            Reading::Strange | Reading::Error => {
                let expect = if frame.name == "error" { Expect::Error } else { Expect::Anything };
                if let Some(told) = fault::read(frame.data, expect) {
                    emit_fault(told, self.status, &mut out);
                }
            }
        }
        if frame.kind == FrameKind::Body && reading != Reading::Malformed {
            self.facts.proven = true;
        }
    }

    /// What came in place of an answer: a page, a text, compressed bytes.
    fn read_text(&mut self, text: &[u8], sink: Option<&mut Sink<'_, '_>>) {
        let text = String::from_utf8_lossy(text);
        let is_page = text.trim_start().starts_with('<');
        let is_binary = text.contains('\u{fffd}') || text.contains('\0');
        let message = (!is_page && !is_binary).then(|| text.trim().to_owned());
        let mut out = Out {
            facts: &mut self.facts,
            wire: &self.wire,
            limits: &self.limits,
            lesson: Lesson::default(),
            data: &[],
            sink: sink.map(|Sink(sink)| Sink(*sink)),
        };
        let told = Told { message: message.filter(|text| !text.is_empty()), ..Told::default() };
        let mut fault = judge_fault(told, self.status, &out.wire.profile);
        if fault.kind == FaultKind::Other {
            fault.kind = FaultKind::BadPayload;
        }
        out.emit(Event::Fault(&fault));
    }

    fn is_error_status(&self) -> bool {
        self.status >= 300
    }

    fn ending(mut self, close: Close) -> Ending {
        if self.is_error_status() && self.facts.fault.is_none() {
            self.facts.fault = Some(judge_fault(Told::default(), self.status, &self.wire.profile));
        }
        let closed = self.closed(close);
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
            bytes: self.bytes,
            events: self.events,
        };
        if let Some(pending) = self.facts.pending.take() {
            not_over(&mut ending, pending);
        }
        ending
    }

    /// How the bytes ended, in the order in which the causes count.
    fn closed(&self, close: Close) -> Closed {
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
        let choices = &self.facts.choices;
        let all_said = !choices.is_empty() && choices.iter().all(|choice| choice.said.is_some());
        let whole = !self.flags.cut_event && !self.flags.unclosed_array;
        match self.wire.profile.proof {
            Proof::Word if close == Close::Eof && all_said && whole => Closed::Proven,
            Proof::Word | Proof::Marker(_) | Proof::Event | Proof::Silent => Closed::from(close),
        }
    }

    /// Choices that were asked for and never came, where nothing proves that the response is over.
    fn add_missing_choices(&mut self, closed: Closed) {
        let Some(asked) = self.asked.choices else { return };
        if closed == Closed::Proven || closed == Closed::Error {
            return;
        }
        for index in 0..asked.min(u32::try_from(self.limits.choices).unwrap_or(u32::MAX)) {
            self.facts.choice_mut(index, &self.limits);
        }
    }

    fn shown(&self, choice: &Choice, closed: Closed, close: Close) -> Shown {
        let proven = closed == Closed::Proven;
        let said = choice.said.is_some();
        let gone = matches!(close, Close::ClientGone | Close::Dropped);
        Shown {
            at_cap: self.at_cap(),
            missing_marker: !proven && said && self.word_suffices() && closed != Closed::Error,
            cut_event: self.flags.cut_event,
            malformed_event: self.flags.malformed_event,
            invalid_utf8: self.flags.invalid_utf8,
            late_event: self.facts.late_event,
            client_closed_early: gone && (proven || said && self.word_suffices()),
            excess: self.facts.excess,
            ..choice.shown()
        }
    }

    fn judge(&self, choice: &Choice, shown: Shown, closed: Closed) -> ChoiceEnding {
        let model = self.facts.model.as_deref().or(self.asked.model.as_deref()).unwrap_or("");
        let quirks = &self.wire.profile.quirks;
        let silent = quirks.silent_models.iter().any(|known| model.starts_with(known));
        let verdict = verdict::judge(&Evidence {
            said: choice.said.as_ref(),
            meaning: choice.meaning.unwrap_or(Meaning::Nothing),
            closed,
            shown: &shown,
            fault: self.facts.fault.as_ref(),
            choices: self.facts.choices.len(),
            habits: Habits {
                word_suffices: self.word_suffices(),
                silent: silent || self.wire.profile.proof == Proof::Silent,
                has_tool_word: self.wire.profile.has_tool_word(),
                lies_at_cap: quirks.lies_at_cap,
                guessed: self.wire.profile.guessed,
            },
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

    fn word_suffices(&self) -> bool {
        match self.wire.profile.proof {
            Proof::Marker(_) | Proof::Word | Proof::Silent => true,
            Proof::Event => false,
        }
    }

    fn at_cap(&self) -> bool {
        let usage = &self.facts.usage;
        let beside =
            if self.wire.profile.quirks.reasoning_beside_output { usage.reasoning } else { None };
        match (self.asked.cap, usage.output) {
            (Some(cap), Some(output)) => {
                cap > 0 && output.saturating_add(beside.unwrap_or(0)) >= cap
            }
            _ => false,
        }
    }
}

/// A polled body that is still under way has a state, not an ending.
fn not_over(ending: &mut Ending, pending: crate::ending::Said) {
    ending.over = false;
    ending.reason = Reason::Unknown;
    ending.confidence = crate::Confidence::High;
    ending.sentence =
        format!("the response is not over: its `{}` is `{}`", pending.field, pending.word);
    ending.said = Some(pending);
}

fn is_marker(proof: Proof, data: &[u8]) -> bool {
    matches!(proof, Proof::Marker(marker) if data.starts_with(marker.as_bytes()))
}

fn exception(frame: &Frame<'_>) -> Told {
    let mut told = fault::read(frame.data, Expect::Error).unwrap_or_else(|| Told {
        message: Some(String::from_utf8_lossy(frame.data).into_owned()),
        ..Told::default()
    });
    told.names.push(frame.name.to_owned());
    told.type_ = Some(frame.name.to_owned());
    told
}

fn judge_fault(mut told: Told, status: u16, profile: &Profile) -> Fault {
    if status >= 300 {
        told.status = Some(status);
    }
    told.judge(&[profile.signs, profile.dialect.signs])
}

fn emit_fault(told: Told, status: u16, out: &mut Out<'_, '_>) {
    let fault = judge_fault(told, status, &out.wire.profile);
    out.emit(Event::Fault(&fault));
}

/// A whole body, or several values that nobody announced as a stream.
fn end_body(body: &[u8], on_frame: &mut impl FnMut(Frame<'_>)) -> Rest {
    let mut scanner = Scanner::default();
    let read = scanner.push_until_end(body);
    let (first, after) = body.split_at_checked(read).unwrap_or((body, &[]));
    match scanner.state() {
        JsonState::Whole if frame::trim(after).is_empty() => {
            on_frame(Frame { kind: FrameKind::Body, name: "", data: frame::trim(first) });
            Rest::Nothing
        }
        JsonState::Whole => {
            let mut lines = Lines::new(body.len());
            match lines.push(body, &mut *on_frame) {
                Ok(()) => lines.finish(on_frame),
                Err(_) => Rest::CutFrame,
            }
        }
        JsonState::Open | JsonState::Empty => Rest::CutFrame,
        JsonState::Broken => {
            on_frame(Frame { kind: FrameKind::Body, name: "", data: body });
            Rest::Nothing
        }
    }
}

/// Decides by the content type and the first bytes how to take the rest apart; none if more bytes
/// are needed to tell.
fn decide(
    profile: &Profile,
    content_type: &str,
    streamed: Option<bool>,
    held: &[u8],
    ended: bool,
    limit: usize,
) -> Option<Framer> {
    let aws = || match profile.framing {
        Framing::AwsChunks => Framer::Aws(Aws::wrapped(limit)),
        Framing::Sse | Framing::Lines | Framing::Array | Framing::Aws => {
            Framer::Aws(Aws::new(limit))
        }
    };
    if content_type.contains("vnd.amazon.eventstream") {
        return Some(aws());
    }
    let held = held.strip_prefix(b"\xef\xbb\xbf").unwrap_or(held);
    let start = frame::trim(held);
    let is_sse = content_type.contains("event-stream");
    let is_lines =
        ["ndjson", "jsonl", "stream+json"].iter().any(|kind| content_type.contains(kind));
    match start.first()? {
        b'{' if is_sse => Some(Framer::Sse(Sse::new(limit))),
        b'{' if is_lines || profile.framing == Framing::Lines && streamed == Some(true) => {
            Some(Framer::Lines(Lines::new(limit)))
        }
        b'{' => Some(Framer::Body(Vec::new())),
        b'[' => Some(Framer::Array(Array::new(limit))),
        b'<' | 0x1f => Some(Framer::Text(Vec::new())),
        0 if matches!(profile.framing, Framing::Aws | Framing::AwsChunks) => Some(aws()),
        _ if is_sse => Some(Framer::Sse(Sse::new(limit))),
        _ => {
            let fields: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
            if fields.iter().any(|field| start.starts_with(field)) {
                return Some(Framer::Sse(Sse::new(limit)));
            }
            if !ended && fields.iter().any(|field| field.starts_with(start)) {
                return None;
            }
            Some(Framer::Text(Vec::new()))
        }
    }
}
