//! The functions that fuzz targets and seeded tests call.

use bytes::Bytes;
use endstop::dialect::Framing;
use endstop::provider;
use endstop::tool_call::exposed;
use endstop::{Ending, Head, Profile, RequestInfo, TransportEnd, Watcher};

use super::decode::{Decoded, Decoder, SLICE};
use super::guard::{Guard, Next};
use crate::config::{Mode, ToolCalls};
use crate::disposition::{ResponseRules, failure};

/// Events of tool calls on several wires, to be sent in any order. A word before the payload is the
/// event's name.
static CALLS: &[(&str, &str, &[&str])] = &[
    (
        "openai",
        "openai-chat",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c","function":{"name":"h","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"x"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[{"index":1,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#,
            r#"{"error":{"message":"x"}}"#,
            r#"{"error":{"message":"x"},"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"error":{"code":502},"delta":{"tool_calls":[{"index":2,"id":"d","function":{"name":"i","arguments":"{}"}}]},"finish_reason":"error"}]}"#,
            r#"{"error":{"message":"x"},"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"base_resp":{"status_code":1000},"choices":[{"index":0,"delta":{"tool_calls":[{"index":3,"id":"e","function":{"name":"j","arguments":"{}"}}]}}]}"#,
            r#"{"x":undefined,"choices":[{"index":0,"delta":{"content":"x"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"x"},"message":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"message":{"function_call":{"name":"f","arguments":"{}"}}}]}"#,
            r#"{"choices":[{"index":0,"message":{"tool_calls":[{"index":4,"id":"m","function":{"name":"k","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":{"index":5,"id":"o","function":{"name":"l","arguments":"{}"}}}}]}"#,
            r#"{"choices":{"index":0,"delta":{"tool_calls":[{"index":6,"id":"p","name":"m","arguments":"{}"}]}}}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":{"a":1}}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"function_call":{"name":"f","arguments":"{\"a\":"}}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"function_call":{"arguments":"1}"}}}]}"#,
            "[DONE]",
        ],
    ),
    (
        "mistral",
        "openai-chat",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"b","index":1,"function":{"name":"g","arguments":"{\"a\":"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"2}"}}]},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"x"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"model_length"}]}"#,
            r#"{"object":"error","message":"x","choices":[{"index":0,"delta":{"tool_calls":[{"id":"c","function":{"name":"h","arguments":"{}"}}]}}]}"#,
            "[DONE]",
        ],
    ),
    (
        "xai",
        "openai-responses",
        &[
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","id":"i","call_id":"a","name":"x_search","input":""}}"#,
            r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"{}"}"#,
            r#"{"type":"response.custom_tool_call_input.done","output_index":0,"input":"{}"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"custom_tool_call","id":"i","call_id":"a","name":"x_search","input":"{}","status":"completed"}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"j","call_id":"b","name":"f","arguments":"{}","status":"incomplete"}}"#,
            r#"{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{}"}"#,
            r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"message","id":"m","role":"assistant","content":[]}}"#,
            r#"{"type":"response.output_text.delta","output_index":2,"delta":"x"}"#,
            r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
        ],
    ),
    (
        "bedrock",
        "bedrock-converse",
        &[
            r#"contentBlockStart {"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"a","name":"f"}}}"#,
            r#"contentBlockDelta {"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"a\":"}}}"#,
            r#"contentBlockDelta {"contentBlockIndex":0,"delta":{"toolUse":{"input":"1}"}}}"#,
            r#"contentBlockStop {"contentBlockIndex":0}"#,
            r#"contentBlockStart {"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"b","name":"w","type":"server_tool_use"}}}"#,
            r#"contentBlockDelta {"contentBlockIndex":1,"delta":{"toolUse":{"input":"{}"}}}"#,
            r#"contentBlockStop {"contentBlockIndex":1}"#,
            r#"contentBlockDelta {"contentBlockIndex":2,"delta":{"text":"x"}}"#,
            r#"messageStop {"stopReason":"tool_use"}"#,
            r#"messageStop {"stopReason":"max_tokens"}"#,
            r#"metadata {"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}"#,
        ],
    ),
    (
        "cohere",
        "cohere-v2",
        &[
            r#"{"type":"message-start","id":"1"}"#,
            r#"{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"a","type":"function","function":{"name":"f","arguments":""}}}}}"#,
            r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{\"a\":"}}}}}"#,
            r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"1}"}}}}}"#,
            r#"{"type":"tool-call-end","index":0}"#,
            r#"{"type":"tool-call-start","index":1,"delta":{"message":{"tool_calls":[{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}}}"#,
            r#"{"type":"content-delta","index":2,"delta":{"message":{"content":{"text":"x"}}}}"#,
            r#"{"type":"message-end","delta":{"finish_reason":"TOOL_CALL"}}"#,
            r#"{"type":"message-end","delta":{"finish_reason":"MAX_TOKENS"}}"#,
            r#"{"type":"message-end","delta":{"finish_reason":"ERROR","error":"x"}}"#,
        ],
    ),
    (
        "ollama",
        "ollama-chat",
        &[
            r#"{"message":{"content":"x"},"done":false}"#,
            r#"{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"done":false}"#,
            r#"{"message":{"tool_calls":[{"function":{"name":"g","arguments":{}}}]},"done":true,"done_reason":"stop"}"#,
            r#"{"message":{"tool_calls":[{"function":{"name":"h","arguments":{}}}]},"error":"x"}"#,
            r#"{"error":"x"}"#,
            r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#,
            r#"{"message":{"content":""},"done":true,"done_reason":"length"}"#,
        ],
    ),
    (
        "openai",
        "openai-responses",
        &[
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a\":"}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"1}"}"#,
            r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"a\":1}"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"{\"a\":1}","status":"completed"}}"#,
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"shell_call","call_id":"b","action":{"commands":["x"]}}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"shell_call","call_id":"b","action":{"commands":["x"]}}}"#,
            r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"shell_call_output","call_id":"b"}}"#,
            r#"{"type":"response.output_text.delta","output_index":3,"delta":"x"}"#,
            r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","call_id":"a","name":"f","arguments":"{\"a\":1}","status":"completed"}]}}"#,
            r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}"#,
            r#"{"type":"error","message":"x"}"#,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"x"},"output":[]}}"#,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"x"},"output":[{"type":"function_call","call_id":"a","name":"f","arguments":"{\"a\":1}","status":"completed"}]}}"#,
            r#"{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}"#,
            r#"{"type":"response.created","response":{"id":"r","status":"in_progress","output":[{"type":"function_call","call_id":"a","name":"f","arguments":"{\"a\":1}","status":"completed"}]}}"#,
            r#"{"type":"response.queued","response":{"status":"queued","output":[{"type":"function_call","call_id":"e","name":"f","arguments":"{}","status":"in_progress"}]}}"#,
            r#"error {"type":"response.output_item.done","output_index":4,"item":{"type":"function_call","call_id":"d","name":"f","arguments":"{}"}}"#,
        ],
    ),
    (
        "anthropic",
        "anthropic-messages",
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"b","name":"web_search","input":{}}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c","name":"g","input":{"x":1}}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
            r#"error {"type":"error","error":{"type":"overloaded_error","message":"x"}}"#,
            r#"error {"type":"content_block_start","index":3,"error":{"type":"api_error"},"content_block":{"type":"tool_use","id":"d","name":"h","input":{"x":1}}}"#,
            r#"{"type":"message_stop"}"#,
        ],
    ),
    (
        "google",
        "gemini-generate",
        &[
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"g","args":{"a":1}}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"executableCode":{"code":"x"}}]}}]}"#,
            r#"{"error":{"code":500},"candidates":[{"content":{"parts":[{"functionCall":{"name":"h","args":{"a":1}}}]}}]}"#,
            r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#,
            r#"{"candidates":[{"finishReason":"STOP"}]}"#,
            r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#,
        ],
    ),
];

/// The first event of a response on wires of events, so that a client of the wire reads no other.
static BEGINNINGS: &[(&str, &str)] = &[
    ("openai-chat", r#"{"id":"x","choices":[]}"#),
    ("openai-responses", r#"{"type":"response.created","response":{"id":"x"}}"#),
    ("anthropic-messages", r#"{"type":"message_start","message":{"id":"x"}}"#),
    ("gemini-generate", r#"{"responseId":"x","candidates":[]}"#),
    ("cohere-v2", r#"{"type":"message-start","id":"x"}"#),
];

/// Numbers from bytes.
struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn roll(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }
}

/// Encodings of a body.
static ENCODINGS: &[&str] =
    &["gzip", "deflate", "br", "zstd", "", "gzip, identity", "gzip, gzip", "br, zstd, deflate"];

/// Checks that any bytes decode without a panic, in bounded slices, and to the same for any division
/// into pieces.
///
/// # Panics
/// Panics if they do not.
pub fn decode(data: &[u8]) {
    let mut dice = Dice(data);
    let Some(encoding) = ENCODINGS.get(dice.roll() % ENCODINGS.len()) else { return };
    let size = dice.roll() + 1;
    let bytes = dice.0;
    let whole = decoded(encoding, bytes, bytes.len().max(1));
    let divided = decoded(encoding, bytes, size);
    match (whole, divided) {
        (Some((whole, Decoded::All)), Some((divided, Decoded::All))) => assert_eq!(whole, divided),
        // Decoders differ in how much they hand over before an error. That of brotli takes an error in
        // a large piece for a stream that is not complete yet.
        (Some((whole, ended)), Some((divided, other))) => {
            let is_late = encoding.contains("br") && ended == Decoded::All;
            assert!(ended == other || is_late && other == Decoded::Corrupt, "{ended:?} {other:?}");
            assert!(whole.starts_with(&divided) || divided.starts_with(&whole));
        }
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => assert!(bytes.is_empty()),
    }
}

/// Returns what bytes decode to in pieces of this size, and how that ended.
fn decoded(encoding: &str, bytes: &[u8], size: usize) -> Option<(Vec<u8>, Decoded)> {
    let mut decoder = Decoder::new(encoding, bytes)?;
    let mut out = Vec::new();
    for piece in bytes.chunks(size) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            let before = out.len();
            let ended = decoder.decode(&mut piece, |copy| out.extend_from_slice(copy));
            assert!(out.len() - before < 2 * SLICE, "{} bytes at once", out.len() - before);
            match ended {
                Decoded::Part => {}
                Decoded::All => break,
                Decoded::Corrupt | Decoded::TooMuch => return Some((out, ended)),
            }
        }
    }
    Some((out, Decoded::All))
}

/// Checks that no tool call leaves the gate before the response so far proves it, whether a client reads
/// the wire of the response or another one.
///
/// # Panics
/// Panics if one does.
pub fn gate(data: &[u8]) {
    let mut dice = Dice(data);
    let Some((provider, dialect, events)) = CALLS.get(dice.roll() % CALLS.len()) else { return };
    let profile = known(provider, dialect);
    let Some((_, foreign, others)) = CALLS.get(dice.roll() % CALLS.len()) else { return };
    let info = RequestInfo {
        streamed: Some(true),
        choices: (dice.roll() % 4 == 0).then_some(2),
        ..RequestInfo::default()
    };
    let tool_calls = if dice.roll() % 4 == 0 { ToolCalls::Hold } else { ToolCalls::Gate };
    let terms = ResponseRules { mode: Mode::Guard, tool_calls, proves: true, background: false };
    let head = Head { status: 200, content_type: content_type(profile.framing) };
    let mut guard = Guard::new(Watcher::new(profile, head.clone(), info.clone()), profile, terms);
    let mut clients = vec![Client { profile, beginning: Vec::new(), proven: 0 }];
    clients.extend(Client::foreign(foreign, profile));
    let (mut received, mut left) = (Vec::new(), Vec::new());
    while !dice.0.is_empty() && received.len() < 4096 {
        let events = if dice.roll() % 8 == 0 { others } else { events };
        let Some(event) = events.get(dice.roll() % events.len()) else { return };
        let frame = Bytes::from(encoded(profile.framing, event));
        let cut = dice.roll().min(frame.len());
        for piece in [frame.slice(..cut), frame.slice(cut..)] {
            received.extend_from_slice(&piece);
            let mut watcher = Watcher::new(profile, head.clone(), info.clone());
            watcher.watch(&received);
            let so_far = watcher.so_far().filter(|ending| failure(ending, terms).is_none());
            for (place, client) in clients.iter_mut().enumerate() {
                if so_far.as_ref().is_some_and(|ending| lets_go(ending, place)) {
                    client.prove(&head, &received);
                }
            }
            let mut pass = |bytes: Bytes| left.extend_from_slice(&bytes);
            let mut next = guard.push(&piece, &mut pass);
            if next == Next::Wait && dice.roll() % 2 == 0 {
                next = guard.waited(&mut pass);
            }
            if dice.roll() % 8 == 0 {
                left.extend_from_slice(&guard.keep_alive().unwrap_or_default());
            }
            clients.iter().for_each(|client| client.check(&head, &left));
            if next == Next::Fail {
                let end = guard.fail();
                left.extend_from_slice(&end.rest);
                left.extend_from_slice(&end.frame.unwrap_or_default());
                return clients.iter().for_each(|client| client.check(&head, &left));
            }
        }
    }
    let end = guard.finish(TransportEnd::Eof);
    let mut watcher = Watcher::new(profile, head.clone(), info);
    watcher.watch(&received);
    let ending = watcher.finish(TransportEnd::Eof);
    left.extend_from_slice(&end.rest);
    left.extend_from_slice(&end.frame.unwrap_or_default());
    for (place, client) in clients.iter().enumerate() {
        if failure(&ending, terms).is_some() || !lets_go(&ending, place) {
            client.check(&head, &left);
        }
    }
}

/// Reports whether a client may see all of a response that passes. Calls of another wire, which the
/// second client reads, leave only with a success.
fn lets_go(ending: &Ending, client: usize) -> bool {
    client == 0 || ending.reason.is_success()
}

#[expect(clippy::panic, reason = "a fuzz function panics on findings")]
fn known(provider: &str, dialect: &str) -> Profile {
    let known = provider::by_id(provider).and_then(|provider| provider.wire_of(dialect));
    let Some(profile) = known.copied() else { panic!("no wire {dialect}") };
    profile
}

fn content_type(framing: Framing) -> &'static str {
    match framing {
        Framing::Sse => "text/event-stream",
        Framing::Lines => "application/x-ndjson",
        Framing::Aws | Framing::AwsChunks => "application/vnd.amazon.eventstream",
        Framing::Array | _ => "application/json",
    }
}

/// Returns the frame of an event.
fn encoded(framing: Framing, event: &str) -> Vec<u8> {
    let (name, payload) = match event.split_once(' ') {
        Some((name, payload)) if !event.starts_with(['{', '[']) => (name, payload),
        Some(_) | None => ("", event),
    };
    match framing {
        Framing::Sse if name.is_empty() => format!("data: {payload}\n\n").into_bytes(),
        Framing::Sse => format!("event: {name}\ndata: {payload}\n\n").into_bytes(),
        Framing::Aws | Framing::AwsChunks => aws_message(name, payload),
        Framing::Lines | Framing::Array | _ => format!("{payload}\n").into_bytes(),
    }
}

/// Returns a message of an AWS event stream.
fn aws_message(name: &str, payload: &str) -> Vec<u8> {
    let mut headers = Vec::new();
    for (key, value) in [(":message-type", "event"), (":event-type", name)] {
        headers.push(key.len() as u8);
        headers.extend(key.as_bytes());
        headers.push(7);
        headers.extend((value.len() as u16).to_be_bytes());
        headers.extend(value.as_bytes());
    }
    let sum = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_be_bytes()
    };
    let length = (16 + headers.len() + payload.len()) as u32;
    let mut message = [length.to_be_bytes(), (headers.len() as u32).to_be_bytes()].concat();
    message.extend(sum(&message));
    message.extend(headers);
    message.extend(payload.as_bytes());
    message.extend(sum(&message));
    message
}

/// A client that runs calls as soon as it can.
struct Client {
    profile: Profile,
    /// The beginning of a response on its wire.
    beginning: Vec<u8>,
    /// Number of calls that it may see.
    proven: usize,
}

impl Client {
    /// Returns a client of another wire than that of the response.
    fn foreign(dialect: &str, of: Profile) -> Option<Self> {
        let (_, beginning) = BEGINNINGS.iter().find(|(known, _)| *known == dialect)?;
        let (provider, ..) = CALLS.iter().find(|(_, known, _)| *known == dialect)?;
        let profile = known(provider, dialect);
        let is_other = dialect != of.dialect.id && profile.framing == of.framing;
        let beginning = encoded(profile.framing, beginning);
        is_other.then_some(Self { profile, beginning, proven: 0 })
    }

    fn sees(&self, head: &Head<'_>, bytes: &[u8]) -> Vec<endstop::tool_call::ToolCall> {
        exposed(self.profile, head.clone(), &[&self.beginning, bytes].concat())
    }

    fn prove(&mut self, head: &Head<'_>, received: &[u8]) {
        self.proven = self.proven.max(self.sees(head, received).len());
    }

    fn check(&self, head: &Head<'_>, left: &[u8]) {
        let (shown, id) = (self.sees(head, left), self.profile.dialect.id);
        assert!(shown.len() <= self.proven, "{id}: {shown:?} of {}", String::from_utf8_lossy(left));
    }
}

/// Returns how many calls the client of another wire could run that finds the most.
#[cfg(test)]
pub(super) fn calls_of_other_wires(of: Profile, bytes: &[u8]) -> usize {
    let head = Head { status: 200, content_type: content_type(of.framing) };
    let clients = BEGINNINGS.iter().filter_map(|(dialect, _)| Client::foreign(dialect, of));
    clients.map(|client| client.sees(&head, bytes).len()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    /// Valid bytes with some of them changed.
    #[test]
    fn any_bytes_decode_alike_in_any_pieces() {
        use std::io::Write as _;
        let text = "data: {\"choices\":[]}\n\n".repeat(200);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(text.as_bytes()).unwrap();
        let zlib = zlib.finish().unwrap();
        let zstd = zstd::stream::encode_all(text.as_bytes(), 1).unwrap();
        let brotli = crate::respond::bomb::bomb(text.as_bytes());
        let encoded = [gzip.clone(), zlib, brotli, zstd, gzip.clone(), gzip];
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..3_000 {
            let kind = round % encoded.len();
            let mut data = vec![u8::try_from(kind).unwrap(), random.u8(..)];
            data.extend(&encoded[kind]);
            data.truncate(random.usize(2..=data.len()));
            for _ in 0..random.usize(0..4) {
                let at = random.usize(0..data.len());
                if at > 1 {
                    data[at] = random.u8(..);
                }
            }
            super::decode(&data);
        }
    }

    #[test]
    fn no_call_leaves_unproven() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut roll = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        for _ in 0..5_000 {
            let data: Vec<u8> = (0..60).map(|_| roll()).collect();
            super::gate(&data);
        }
    }
}
