//! Entry points of the fuzz targets. The tests call them with fixed seeds.
//!
//! Each function takes any bytes, builds its input from them, and asserts an invariant.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::dialect::{
    Dialect, anthropic, bedrock_converse, bedrock_nova, gemini, openai_chat, openai_responses,
};
use crate::frame::array::Array;
use crate::frame::aws::{self, Aws};
use crate::frame::lines::Lines;
use crate::frame::sse::Sse;
use crate::frame::{Broken, Frame, FrameKind, Rest};
use crate::mend::mend;
use crate::provider::{self, Profile};
use crate::tool_call::{Allow, Assembly, allow, exposed};
use crate::{Closed, Ending, Head, Limits, Reader, RequestInfo, Timer, TransportEnd, Watcher};

/// Limit that small inputs can reach.
const LIMIT: usize = 512;

/// Takes choices from the front of the bytes; zero when they are used up.
struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn roll(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }
}

/// Splits bytes into chunks whose sizes depend on the seed.
fn cut(bytes: &[u8], seed: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let (mut rest, mut step) = (bytes, seed);
    while !rest.is_empty() {
        step = (step * 31 + 7) % 97;
        let (piece, after) = rest.split_at(rest.len().min(1 + step % 23));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

type Read = (Vec<(FrameKind, String, Vec<u8>)>, Result<Rest, Broken>);

/// Checks that frames do not depend on the chunks.
///
/// # Panics
/// Panics if they do.
pub fn frames(data: &[u8]) {
    let mut dice = Dice(data);
    let (framing, seed) = (dice.roll() % 5, dice.roll());
    let bytes = dice.0;
    let read = |chunks: &[&[u8]]| match framing {
        0 => read_sse(chunks),
        1 => read_lines(chunks),
        2 => read_array(chunks),
        3 => read_aws(chunks, Aws::new(LIMIT)),
        _ => read_aws(chunks, Aws::wrapped(LIMIT)),
    };
    let (whole, result) = read(&[bytes]);
    let (pieces, result_of_pieces) = read(&cut(bytes, seed));
    if result.is_ok() && result_of_pieces.is_ok() {
        assert_eq!((&whole, &result), (&pieces, &result_of_pieces));
    } else {
        // At a limit, the chunks may stop earlier or later, but never read anything else.
        assert!(whole.iter().zip(&pieces).all(|(whole, piece)| whole == piece));
    }
}

macro_rules! reading {
    ($chunks:expr, $framer:expr, $finish:expr) => {{
        let mut frames = Vec::new();
        let mut keep = |frame: Frame<'_>| {
            frames.push((frame.kind, frame.name.to_owned(), frame.data.to_vec()))
        };
        let mut framer = $framer;
        for chunk in $chunks {
            if let Err(broken) = framer.push(chunk, &mut keep) {
                return (frames, Err(broken));
            }
        }
        let rest = $finish(framer, &mut keep);
        (frames, Ok(rest))
    }};
}

fn read_sse(chunks: &[&[u8]]) -> Read {
    reading!(chunks, Sse::new(LIMIT), |framer: Sse, keep: &mut dyn FnMut(Frame<'_>)| framer
        .finish(keep))
}

fn read_lines(chunks: &[&[u8]]) -> Read {
    reading!(chunks, Lines::new(LIMIT), |framer: Lines, keep: &mut dyn FnMut(Frame<'_>)| framer
        .finish(keep))
}

fn read_array(chunks: &[&[u8]]) -> Read {
    read_array_with(chunks, Array::new(LIMIT))
}

fn read_array_with(chunks: &[&[u8]], array: Array) -> Read {
    reading!(chunks, array, |framer: Array, _: &mut dyn FnMut(Frame<'_>)| framer.finish())
}

fn read_aws(chunks: &[&[u8]], aws: Aws) -> Read {
    reading!(chunks, aws, |framer: Aws, _: &mut dyn FnMut(Frame<'_>)| framer.finish())
}

/// Checks that a streamed array has the elements that `serde_json` finds, that comparing elements
/// with the last one finds the same as scanning them, and that an event stream returns what was
/// written, and never anything damaged.
///
/// # Panics
/// Panics if not.
pub fn array_and_event_stream(data: &[u8]) {
    compare_elements(data);
    if let Ok(list) = serde_json::from_slice::<Vec<&serde_json::value::RawValue>>(data) {
        let (frames, rest) = read_array(&cut(data, data.len()));
        let fits = list.iter().all(|element| element.get().len() <= LIMIT);
        if fits && rest.is_ok() {
            assert_eq!(rest, Ok(Rest::Nothing));
            let found = frames.iter().map(|(_, _, data)| data.as_slice());
            assert!(found.eq(list.iter().map(|element| element.get().as_bytes())));
        }
    }
    let mut dice = Dice(data);
    let (flip, seed) = (dice.roll() * 256 + dice.roll(), dice.roll());
    let mut stream = Vec::new();
    let mut written = Vec::new();
    for payload in dice.0.chunks(40) {
        stream.extend(aws::encode(&[(":message-type", "event"), (":event-type", "e")], payload));
        written.push((FrameKind::Event, "e".to_owned(), payload.to_vec()));
    }
    assert_eq!(
        read_aws(&cut(&stream, seed), Aws::new(LIMIT)),
        (written.clone(), Ok(Rest::Nothing))
    );
    if let Some(byte) = stream.get_mut(flip / 8) {
        *byte ^= 1 << (flip % 8);
        let (read, result) = read_aws(&cut(&stream, seed), Aws::new(LIMIT));
        assert!(read.len() < written.len() && result != Ok(Rest::Nothing));
        assert!(read.iter().zip(&written).all(|(read, written)| read == written));
    }
}

/// Checks that the template of a streamed array changes nothing: on these bytes, and on an array of
/// one element that is repeated with changes.
fn compare_elements(data: &[u8]) {
    let mut dice = Dice(data);
    let mut array = vec![b'['];
    for number in 0..dice.roll() % 8 {
        let mut element = br#"{"k":"hello","n":12,"x":[1.5,{"a":"b"}],"e":-3}"#.to_vec();
        for _ in 0..dice.roll() % 4 {
            change(&mut element, &mut dice);
        }
        array.extend_from_slice(if number == 0 { b"" } else { b"," });
        array.extend_from_slice(&element);
    }
    array.push(b']');
    for bytes in [data, &array] {
        for chunks in [vec![bytes], cut(bytes, data.len())] {
            let compared = read_array_with(&chunks, Array::new(LIMIT));
            let scanned = read_array_with(&chunks, Array::new(LIMIT).without_template());
            assert_eq!(compared, scanned, "{}", String::from_utf8_lossy(bytes));
        }
    }
}

/// Returns every wire of every provider.
fn profiles() -> Vec<&'static Profile> {
    provider::ALL.iter().flat_map(|provider| provider.wires()).collect()
}

/// Checks that the ending and the events do not depend on the chunks or on listeners, and that a
/// success has a finish reason.
///
/// # Panics
/// Panics if not.
pub fn reader(data: &[u8]) {
    let mut dice = Dice(data);
    let profiles = profiles();
    let Some(profile) = profiles.get(dice.roll() % profiles.len()) else { return };
    let types = [
        "",
        "text/event-stream",
        "application/json",
        "application/x-ndjson",
        "application/vnd.amazon.eventstream",
        "text/html",
    ];
    let (options, seed) = (dice.roll(), dice.roll());
    let head = Head {
        status: if options % 8 == 7 { 500 } else { 200 },
        content_type: types.get(options / 8 % types.len()).copied().unwrap_or_default(),
    };
    let closes = [
        TransportEnd::Eof,
        TransportEnd::Reset,
        TransportEnd::TimedOut(Timer::Idle),
        TransportEnd::ClientGone,
        TransportEnd::Dropped,
    ];
    let close = closes.get(seed % closes.len()).copied().unwrap_or(TransportEnd::Eof);
    let asked = RequestInfo {
        cap: Some(seed as u64),
        choices: (seed % 3 == 0).then_some(2),
        ..RequestInfo::default()
    };
    let limits = Limits { event_bytes: 1 << 16, events: 1000, choices: 4, tool_calls: 6 };
    let new = || Reader::with_limits(*profile, head.clone(), asked.clone(), limits.clone());
    let bytes = dice.0;
    let (whole, events) = read(new(), &[bytes], close);
    let (pieces, events_of_pieces) = read(new(), &cut(bytes, seed), close);
    assert_eq!((&whole, events), (&pieces, events_of_pieces));
    let mut watched = Watcher::from(new());
    cut(bytes, seed + 1).into_iter().for_each(|piece| watched.watch(piece));
    assert_eq!(watched.finish(close), whole);
    assert!(!whole.reason.is_success() || whole.said.is_some(), "{whole:?}");
}

fn read(mut reader: Reader, chunks: &[&[u8]], close: TransportEnd) -> (Ending, Vec<String>) {
    let mut events = Vec::new();
    for chunk in chunks {
        reader.read(chunk, |event| events.push(format!("{event:?}")));
    }
    let ending = reader.finish(close, |event| events.push(format!("{event:?}")));
    (ending, events)
}

/// Events of several wires, to be repeated with changes.
static TEMPLATES: &[(usize, &str)] = &[
    (
        0,
        r#"{"id":"c","created":17,"model":"m","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}],"usage":null,"obfuscation":"aXb"}"#,
    ),
    (0, r#"{"id":"c","choices":[{"index":0,"delta":{"reasoning_content":"hmm"}}]}"#),
    (
        0,
        r#"{"id":"c","choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"abc"}}]}}]}"#,
    ),
    (
        1,
        r#"{"type":"response.output_text.delta","sequence_number":5,"output_index":0,"delta":"hello","obfuscation":"xyz"}"#,
    ),
    (
        2,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}   }"#,
    ),
    (3, r#"{"candidates":[{"content":{"parts":[{"text":"hello"}],"role":"model"}}]}"#),
    (
        3,
        r#"{"candidates": [{"content": {"parts": [{"text": "hello"}]}}],"usageMetadata": {"promptTokenCount": 12,"candidatesTokenCount": 3,"totalTokenCount": 15}}"#,
    ),
    (
        4,
        r#"{"candidates": [{"content": {"parts": [{"text": "hello"}]}}],"usageMetadata": {"promptTokenCount": 12,"candidatesTokenCount": 3,"totalTokenCount": 15}}"#,
    ),
    (5, r#"{"contentBlockIndex":0,"delta":{"text":"hello"},"p":"abcdefgh"}"#),
    (6, r#"{"contentBlockDelta":{"delta":{"text":"hello"},"contentBlockIndex":0}}"#),
];

/// Framing in which events are sent.
#[derive(Clone, Copy)]
enum Sent {
    Sse,
    Array,
    /// AWS messages with this name.
    Aws(&'static str),
    /// Events of another wire, in base64 inside AWS messages.
    AwsChunks,
}

impl Sent {
    fn content_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::Array => "application/json",
            Self::Aws(_) | Self::AwsChunks => "application/vnd.amazon.eventstream",
        }
    }

    /// Frames an event; `first` is the first one of its stream.
    fn frame(self, event: &[u8], first: bool) -> Vec<u8> {
        let message = |name, data: &[u8]| {
            aws::encode(&[(":message-type", "event"), (":event-type", name)], data)
        };
        match self {
            Self::Sse => [b"data: ", event, b"\n\n"].concat(),
            Self::Array => [if first { &b"["[..] } else { b"\n,\r\n" }, event].concat(),
            Self::Aws(name) => message(name, event),
            Self::AwsChunks => {
                let wrapped = format!("{{\"bytes\":\"{}\"}}", STANDARD.encode(event));
                message("chunk", wrapped.as_bytes())
            }
        }
    }
}

/// A wire whose events repeat: its template is repeated with changes.
struct Repeating {
    profile: &'static Profile,
    sent: Sent,
    template: &'static str,
    /// Event with a finish reason.
    last: &'static str,
}

fn repeating() -> Vec<Repeating> {
    let wire = |provider: &'static provider::Provider, dialect: &Dialect| {
        provider.wire_of(dialect.id).unwrap_or(&provider.main)
    };
    let chat = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let gemini = r#"{"candidates":[{"content":{"parts":[{"text":"!"}]},"finishReason":"STOP"}]}"#;
    let wires = [
        (wire(&provider::OPENAI, &openai_chat::DIALECT), Sent::Sse, chat),
        (
            wire(&provider::OPENAI, &openai_responses::DIALECT),
            Sent::Sse,
            r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
        ),
        (
            wire(&provider::ANTHROPIC, &anthropic::DIALECT),
            Sent::Sse,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        ),
        (wire(&provider::GOOGLE, &gemini::DIALECT), Sent::Sse, gemini),
        (wire(&provider::GOOGLE, &gemini::DIALECT), Sent::Array, gemini),
        (
            wire(&provider::BEDROCK, &bedrock_converse::DIALECT),
            Sent::Aws("contentBlockDelta"),
            r#"{"contentBlockIndex":0,"delta":{"text":"!"}}"#,
        ),
        (
            wire(&provider::BEDROCK, &bedrock_nova::DIALECT),
            Sent::AwsChunks,
            r#"{"messageStop":{"stopReason":"end_turn"}}"#,
        ),
    ];
    let all = TEMPLATES.iter().filter_map(|(wire, template)| {
        let (profile, sent, last) = *wires.get(*wire)?;
        Some(Repeating { profile, sent, template, last })
    });
    all.collect()
}

/// Checks that the fast path and the parser agree on the ending and on every event.
///
/// # Panics
/// Panics if they do not.
pub fn repeats(data: &[u8]) {
    let mut dice = Dice(data);
    let all = repeating();
    let Some(Repeating { profile, sent, template, last }) = all.get(dice.roll() % all.len()) else {
        return;
    };
    let mut stream = Vec::new();
    for number in 0..6 {
        let event = if dice.roll() % 8 == 7 { last } else { template };
        let mut event = event.as_bytes().to_vec();
        for _ in 0..dice.roll() % 4 {
            change(&mut event, &mut dice);
        }
        stream.extend(sent.frame(&event, number == 0));
    }
    let head = || Head { status: 200, content_type: sent.content_type() };
    let fast =
        read(Reader::new(*profile, head(), RequestInfo::default()), &[&stream], TransportEnd::Eof);
    let slow = Reader::new(*profile, head(), RequestInfo::default()).without_repeats();
    assert_eq!(fast, read(slow, &[&stream], TransportEnd::Eof));
    let mut watched = Watcher::new(*profile, head(), RequestInfo::default());
    watched.watch(&stream);
    assert_eq!(fast.0, watched.finish(TransportEnd::Eof));
}

/// Applies random edits to a request and checks that the result parses and that the spans which no
/// edit concerns keep their bytes.
///
/// # Panics
/// Panics if not.
pub fn documents(data: &[u8]) {
    crate::next_request::fuzz_documents(data);
}

/// Events of tool calls on several wires, to be sent in any order.
static CALLS: &[(usize, &[&str])] = &[
    (
        0,
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"null"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            "[DONE]",
        ],
    ),
    (
        1,
        &[
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"{}","status":"completed"}}"#,
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"shell_call","call_id":"b","action":{"commands":["x"]}}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"shell_call","call_id":"b","action":{"commands":["x"]}}}"#,
            r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"shell_call_output","call_id":"b"}}"#,
            r#"{"type":"response.output_item.added","output_index":3,"item":{"type":"custom_tool_call","call_id":"d","name":"h","input":""}}"#,
            r#"{"type":"response.output_item.added","output_index":4,"item":{"type":"function_call","call_id":"e","name":"f","arguments":"{\"a\":1}"}}"#,
            r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#,
            r#"{"type":"response.custom_tool_call_input.done","output_index":3,"input":"x"}"#,
            r#"{"type":"response.shell_call_command.done","output_index":1,"command":"x"}"#,
            r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"custom_tool_call","call_id":"c","name":"g","input":"x"}]}}"#,
        ],
    ),
    (
        2,
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"b","name":"web_search","input":{}}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            r#"{"type":"message_stop"}"#,
        ],
    ),
    (
        3,
        &[
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"g","args":{"a":1}}}]}}]}"#,
            r#"{"candidates":[{"finishReason":"STOP"}]}"#,
        ],
    ),
];

/// A second reader of the events that carry a call's arguments whole. It knows only what clients
/// see in one event: a call that begins with arguments, or whose arguments have ended.
#[derive(Default)]
struct Payloads {
    begun: Vec<u64>,
    ran: Vec<String>,
}

impl Payloads {
    /// Reports whether a client could run a call after this event.
    fn exposes(&mut self, event: &[u8]) -> bool {
        let event: serde_json::Value = serde_json::from_slice(event).unwrap_or_default();
        let text = |pointer: &str| event.pointer(pointer).and_then(|value| value.as_str());
        let (kind, of) = (text("/type").unwrap_or(""), text("/item/type").unwrap_or(""));
        let id = text("/item/call_id").unwrap_or("").to_owned();
        let index = event.pointer("/output_index").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if of.ends_with("_output") {
            self.ran.push(id);
            self.begun.retain(|known| *known != index - 1);
        } else if kind.ends_with("item.added") && !self.ran.contains(&id) {
            self.begun.push(index);
            let given = ["/item/arguments", "/item/input", "/item/action/commands/0"];
            return given.into_iter().filter_map(text).any(|given| !given.is_empty());
        }
        kind.ends_with(".done") && !kind.ends_with("item.done") && self.begun.contains(&index)
    }
}

/// Checks tool calls in any order, truncated and changed. If the marks report no complete call, no
/// client can run one. No call may run before the end is proven.
///
/// # Panics
/// Panics if a call could run too early.
pub fn marks(data: &[u8]) {
    let mut dice = Dice(data);
    let wires = [
        &provider::OPENAI.main,
        provider::OPENAI.others.first().unwrap_or(&provider::OPENAI.main),
        &provider::ANTHROPIC.main,
        &provider::GOOGLE.main,
    ];
    let Some((wire, events)) = CALLS.get(dice.roll() % CALLS.len()) else { return };
    let Some(profile) = wires.get(*wire) else { return };
    let head = || Head { status: 200, content_type: "text/event-stream" };
    let mut reader = Watcher::new(*profile, head(), RequestInfo::default());
    let mut sent = Vec::new();
    let mut payloads = Some(Payloads::default());
    while !dice.0.is_empty() && sent.len() < 4096 {
        let Some(event) = events.get(dice.roll() % events.len()) else { return };
        let mut event = event.as_bytes().to_vec();
        if dice.roll() % 4 == 0 {
            change(&mut event, &mut dice);
            // The second reader knows only unchanged events.
            payloads = None;
        }
        let exposes = payloads.as_mut().is_some_and(|payloads| payloads.exposes(&event));
        let frame = [b"data: ", event.as_slice(), b"\n\n"].concat();
        sent.extend_from_slice(&frame);
        let mut silent = true;
        reader.follow(&frame, |mark| {
            silent = mark.choices().all(|choice| choice.whole == 0 && choice.closed == 0);
        });
        assert!(!silent || !exposes, "{}", String::from_utf8_lossy(&sent));
        let exposed = exposed(*profile, head(), &sent);
        assert!(!silent || exposed.is_empty(), "{exposed:?} {}", String::from_utf8_lossy(&sent));
    }
    let proven = reader.so_far().is_some_and(|ending| ending.closed != Closed::Open);
    let mut calls = Assembly::default();
    let mut whole = Reader::new(*profile, head(), RequestInfo::default());
    whole.read(&sent, |event| calls.observe(&event));
    let ending = whole.finish(TransportEnd::Reset, |event| calls.observe(&event));
    let said = ending.choices.iter().all(|choice| choice.said.is_some());
    let may = allow(&ending, &calls.finish(&ending)) == Allow::Run;
    assert!(!may || proven || said, "{ending:?}");
}

/// Checks that mended JSON is the same value, that it parses, and that mending it again changes
/// nothing.
///
/// # Panics
/// Panics if not.
pub fn mends(data: &[u8]) {
    let Some(mended) = mend(data).map(|mended| mended.last) else { return };
    let text = std::str::from_utf8(&mended);
    assert!(text.is_ok());
    assert_eq!(mend(&mended).map(|again| again.last).as_ref(), Some(&mended));
    // JSON that parses has the same value after mending.
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(data) {
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&mended).ok(), Some(value));
    }
}

/// Replaces, inserts or removes a byte, except for line ends.
fn change(event: &mut Vec<u8>, dice: &mut Dice<'_>) {
    let (how, at) = (dice.roll() % 4, dice.roll() % event.len().max(1));
    let byte = u8::try_from(dice.roll()).unwrap_or(b'x');
    let byte = if matches!(byte, b'\n' | b'\r') { b'n' } else { byte };
    match how {
        0 => event.insert(at, byte),
        1 if at < event.len() => drop(event.remove(at)),
        2 => event.splice(at..at, [b'\\', byte]).for_each(drop),
        _ => {
            if let Some(old) = event.get_mut(at) {
                *old = byte;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    /// Runs a fuzz function on the same inputs every time.
    fn seeds(runs: u32, alphabet: &[u8], fuzz: fn(&[u8])) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut roll = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % (1 << 32)).unwrap()
        };
        for _ in 0..runs {
            let length = roll() % 200;
            let mut data: Vec<u8> = (0..4).map(|_| u8::try_from(roll() % 256).unwrap()).collect();
            data.extend((0..length).map(|_| match alphabet {
                [] => u8::try_from(roll() % 256).unwrap(),
                alphabet => alphabet[roll() % alphabet.len()],
            }));
            fuzz(&data);
        }
    }

    /// Inputs that the fuzzer found.
    #[test]
    fn findings() {
        // A number at the end of a chunk may still grow.
        super::frames(&[2, 9, 91, 55, 55, 91, 55, 10]);
        super::reader(&[255, 7, 2, 32, 91, 52, 52, 52, 52]);
        // Binary frames have no byte-order mark.
        super::reader(&[10, 36, 246, 239, 187, 191]);
        // White space inside of `null` is not null.
        super::marks(b"4\tdninex");
    }

    const TEXT: &[u8] = b"data: event:{}[]\",:\\\n\n\r\n0123true[DONE]\"choices\"\"delta\"";

    #[test]
    fn frames() {
        seeds(20_000, TEXT, super::frames);
        seeds(5_000, &[], super::frames);
    }

    #[test]
    fn array_and_event_stream() {
        seeds(5_000, b"[]{},\"a1 ", super::array_and_event_stream);
        seeds(5_000, &[], super::array_and_event_stream);
    }

    #[test]
    fn reader() {
        seeds(20_000, TEXT, super::reader);
        seeds(5_000, &[], super::reader);
    }

    #[test]
    fn repeats() {
        seeds(50_000, &[], super::repeats);
    }

    #[test]
    fn documents() {
        seeds(50_000, b"{}[]\",:ab 1", super::documents);
        seeds(5_000, &[], super::documents);
    }

    #[test]
    fn marks() {
        seeds(5_000, &[], super::marks);
    }

    #[test]
    fn mends() {
        seeds(50_000, b"{}[]\",:\\ud83dDE00 a1", super::mends);
        seeds(5_000, &[], super::mends);
    }
}
