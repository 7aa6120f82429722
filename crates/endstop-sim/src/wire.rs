//! Wires, one file each: parse requests and encode responses.

mod ai21;
mod aleph_alpha;
mod anthropic;
mod bedrock_converse;
mod bedrock_invoke;
mod bedrock_nova;
mod bedrock_text;
mod cloudflare;
mod cohere;
mod cohere_v1;
mod dashscope;
mod gemini;
mod gemini_interactions;
mod llamacpp;
mod mistral;
mod ollama;
mod openai_assistants;
mod openai_chat;
mod openai_completions;
mod openai_responses;
mod replicate;
mod sap;
mod tgi;
mod watsonx;

use endstop::frame::aws;
use endstop::provider::Provider;
use serde_json::Value;

use crate::answer::{Answer, End, Usage};
use crate::json::Json;
use crate::sim_request::SimRequest;

/// Common wires.
pub static ALL: &[&SimWire] = &[
    &openai_chat::WIRE,
    &openai_responses::WIRE,
    &openai_completions::WIRE,
    &anthropic::WIRE,
    &gemini::WIRE,
    &bedrock_converse::WIRE,
    &bedrock_invoke::WIRE,
    &mistral::WIRE,
    &cohere::WIRE,
    &ollama::WIRE,
    &ollama::GENERATE,
];

/// Older and less common wires.
pub static MORE: &[&SimWire] = &[
    &gemini_interactions::WIRE,
    &cohere_v1::WIRE,
    &dashscope::WIRE,
    &bedrock_nova::WIRE,
    &bedrock_text::TITAN,
    &bedrock_text::LLAMA,
    &bedrock_text::MISTRAL,
    &bedrock_text::COMMAND,
    &bedrock_text::CLAUDE_2,
    &tgi::WIRE,
    &llamacpp::WIRE,
    &watsonx::WIRE,
    &aleph_alpha::WIRE,
    &sap::WIRE,
    &ai21::BEDROCK,
    &ai21::COMPLETE,
    &cloudflare::CHAT,
    &cloudflare::WIRE,
    &replicate::WIRE,
    &openai_assistants::WIRE,
];

/// Returns every wire.
pub fn every() -> impl Iterator<Item = &'static SimWire> + Clone {
    ALL.iter().chain(MORE).copied()
}

/// Base of the wires with text alone: they list only their differences from it.
const BASE: SimWire = SimWire {
    id: "",
    route: "",
    bare: false,
    path: "",
    plain_path: "",
    provider: &endstop::provider::OPENAI,
    streams: true,
    tools: false,
    whole_calls: false,
    marker: false,
    reasons: false,
    rejects: &[],
    remembers: None,
    refers: None,
    framing: Framing::Sse,
    words: anthropic::WORDS,
    takes: |_| None,
    read: |_, _| {},
    stream: |_, _| Vec::new(),
    body: |_, _| Json::Null,
    error: openai_chat::error,
    error_event: openai_chat::error_event,
    headers: |_| Vec::new(),
    models: openai_chat::models,
};

/// Request and response format of a provider.
#[derive(Debug)]
pub struct SimWire {
    /// Short name, such as `openai-chat`.
    pub id: &'static str,
    /// First segment of its paths, as at a gateway.
    pub route: &'static str,
    /// Whether its paths are also served without that segment.
    pub bare: bool,
    /// Path without that segment; the one for streams where they have their own.
    pub path: &'static str,
    /// Path of a plain request.
    pub plain_path: &'static str,
    /// Provider.
    pub provider: &'static Provider,
    /// Whether responses can be streamed.
    pub streams: bool,
    /// Whether it supports tool calls.
    pub tools: bool,
    /// Whether the arguments of a tool call are always sent whole, as one JSON value.
    pub whole_calls: bool,
    /// Whether an end marker follows the finish reason.
    pub marker: bool,
    /// Whether responses contain reasoning.
    pub reasons: bool,
    /// Parts of the names of models that reject a conversation whose last message is the
    /// assistant's, unless the provider's rules say that they continue it, and their messages.
    pub(crate) rejects: &'static [(&'static str, &'static str)],
    /// Beginning of the ids of its responses, if the provider stores responses.
    pub(crate) remembers: Option<&'static str>,
    /// Returns the path of the stream from the path of its request, if a request for a stream gets
    /// a URL unless it accepts events itself.
    pub(crate) refers: Option<fn(&str, &SimRequest) -> String>,
    pub(crate) framing: Framing,
    pub(crate) words: Words,
    pub(crate) takes: fn(&str) -> Option<PathInfo>,
    pub(crate) read: fn(&Value, &mut SimRequest),
    pub(crate) stream: fn(&SimRequest, &Answer) -> Vec<WireEvent>,
    pub(crate) body: fn(&SimRequest, &Answer) -> Json,
    pub(crate) error: fn(&Fault<'_>) -> Json,
    pub(crate) error_event: fn(&Fault<'_>) -> WireEvent,
    pub(crate) headers: fn(&SimRequest) -> Vec<(&'static str, String)>,
    pub(crate) models: fn() -> Json,
}

/// Information about a request in its path.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathInfo {
    pub(crate) model: Option<String>,
    pub(crate) streamed: Option<bool>,
}

/// Framing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events without names.
    Sse,
    /// Server-sent events whose names are their types.
    NamedSse,
    /// Server-sent events with CRLF, or one JSON array, as requested.
    SseOrArray,
    /// JSON lines.
    Lines,
    /// AWS event stream.
    Aws,
    /// AWS event stream whose payloads are base64 chunks.
    AwsChunks,
}

/// Finish reasons of a wire. Ends that it does not tell apart have the same one. All are empty if it
/// has none.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) stop: &'static str,
    pub(crate) stop_sequence: &'static str,
    pub(crate) length: &'static str,
    pub(crate) tool_call: &'static str,
    pub(crate) filter: &'static str,
    pub(crate) refusal: &'static str,
    pub(crate) context: &'static str,
    pub(crate) failed: &'static str,
}

impl Words {
    /// Words of a wire without finish reasons.
    pub(crate) const NONE: Self = Self {
        stop: "",
        stop_sequence: "",
        length: "",
        tool_call: "",
        filter: "",
        refusal: "",
        context: "",
        failed: "",
    };

    /// Returns the finish reason for an end.
    pub(crate) fn of(&self, end: &End) -> Json {
        Json::from(match end {
            End::Stop => self.stop,
            End::StopSequence(_) => self.stop_sequence,
            End::Length => self.length,
            End::ToolCall => self.tool_call,
            End::Filter => self.filter,
            End::Refusal => self.refusal,
            End::Context => self.context,
            End::Failed => self.failed,
            End::Said(word) => return word.clone(),
            End::Nothing => return Json::Null,
        })
    }
}

/// Event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct WireEvent {
    pub(crate) part: Part,
    /// Name, on wires with named events.
    pub(crate) name: String,
    pub(crate) data: Json,
    /// Whether it is an exception, on an AWS event stream.
    pub(crate) exception: bool,
}

/// Part of a response that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Events before any content.
    Start,
    Reasoning,
    Text,
    /// End of a block, and other events between blocks.
    BlockEnd,
    CallStart,
    Arguments,
    CallEnd,
    Word,
    Usage,
    /// End marker, if the finish reason does not end the stream itself.
    Mark,
    Error,
}

impl WireEvent {
    pub(crate) fn new(part: Part, data: Json) -> Self {
        Self { part, name: String::new(), data, exception: false }
    }

    pub(crate) fn named(part: Part, name: &str, data: Json) -> Self {
        Self { part, name: name.to_owned(), data, exception: false }
    }
}

/// Failure to report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault<'a> {
    /// HTTP status that it has, or would have.
    pub(crate) status: u16,
    pub(crate) message: &'a str,
}

impl SimWire {
    /// Returns the content type of a stream.
    pub(crate) fn stream_type(&self, ask: &SimRequest) -> &'static str {
        match self.framing {
            Framing::Sse | Framing::NamedSse => "text/event-stream; charset=utf-8",
            Framing::SseOrArray if ask.array => "application/json; charset=UTF-8",
            Framing::SseOrArray => "text/event-stream",
            Framing::Lines => "application/x-ndjson",
            Framing::Aws | Framing::AwsChunks => "application/vnd.amazon.eventstream",
        }
    }

    /// Reports whether streams may be one JSON array.
    pub(crate) fn has_arrays(&self) -> bool {
        self.framing == Framing::SseOrArray
    }

    /// Reports whether the stream of this request consists of server-sent events.
    pub(crate) fn is_sse(&self, ask: &SimRequest) -> bool {
        match self.framing {
            Framing::Sse | Framing::NamedSse => true,
            Framing::SseOrArray => !ask.array,
            Framing::Lines | Framing::Aws | Framing::AwsChunks => false,
        }
    }

    /// Encodes one event, the `at`-th of its stream.
    pub(crate) fn encode(&self, ask: &SimRequest, at: usize, event: &WireEvent) -> Vec<u8> {
        let data = &event.data;
        match self.framing {
            Framing::Sse => format!("data: {data}\n\n").into_bytes(),
            Framing::NamedSse if event.name.is_empty() => format!("data: {data}\n\n").into_bytes(),
            Framing::NamedSse => format!("event: {}\ndata: {data}\n\n", event.name).into_bytes(),
            Framing::SseOrArray if ask.array && event.part == Part::Mark => b"\n]\n".to_vec(),
            Framing::SseOrArray if ask.array => {
                format!("{}{data}", if at == 0 { "[" } else { ",\r\n" }).into_bytes()
            }
            Framing::SseOrArray => format!("data: {data}\r\n\r\n").into_bytes(),
            Framing::Lines => format!("{data}\n").into_bytes(),
            Framing::Aws => aws_message(event, data.to_string().as_bytes()),
            Framing::AwsChunks if event.exception => {
                aws_message(event, data.to_string().as_bytes())
            }
            Framing::AwsChunks => {
                use base64::Engine;
                let bytes = base64::engine::general_purpose::STANDARD.encode(data.to_string());
                let wrapped = format!("{{\"bytes\":\"{bytes}\",\"p\":\"abcdefgh\"}}");
                let chunk = WireEvent::named(event.part, "chunk", Json::Null);
                aws_message(&chunk, wrapped.as_bytes())
            }
        }
    }

    /// Returns the wire that serves this path, and the information in the path.
    pub(crate) fn for_path(path: &str) -> Option<(&'static Self, PathInfo)> {
        let (first, rest) = split_first(path);
        // The common wires take more paths, so the others come first.
        let all = MORE.iter().chain(ALL).copied();
        let routed = all.clone().filter(|wire| wire.route == first);
        let routed = routed.filter_map(|wire| Some((wire, (wire.takes)(rest)?)));
        let bare = all.filter(|wire| wire.bare);
        let bare = bare.filter_map(|wire| Some((wire, (wire.takes)(path)?)));
        routed.chain(bare).next()
    }

    /// Reports whether its responses have finish reasons.
    #[must_use]
    pub fn has_finish_reasons(&self) -> bool {
        !self.words.stop.is_empty()
    }

    /// Returns the wire with this id.
    #[must_use]
    pub fn by_id(id: &str) -> Option<&'static Self> {
        every().find(|wire| wire.id == id)
    }
}

/// Returns Gemini's response to a blocked prompt.
pub(crate) fn gemini_blocked(ask: &SimRequest) -> Json {
    gemini::blocked(ask)
}

/// Returns a Gemini response with a finish reason and no content.
pub(crate) fn gemini_bare_word(ask: &SimRequest, word: &str, usage: Option<Usage>) -> Json {
    gemini::bare_word(ask, word, usage)
}

/// Returns Gemini's token to continue an answer after this many bytes and tokens.
pub(crate) fn continuation_token(bytes: usize, tokens: u64) -> String {
    gemini::continuation_token(bytes, tokens)
}

/// Returns the body of a response in the background that is not over, with this status.
pub(crate) fn pending(ask: &SimRequest, status: &str) -> Json {
    openai_responses::pending(ask, status)
}

/// Returns the value of AWS's error type header.
pub(crate) fn aws_error_type(status: u16) -> &'static str {
    bedrock_converse::error_type(status)
}

fn aws_message(event: &WireEvent, payload: &[u8]) -> Vec<u8> {
    let (type_, kind) =
        if event.exception { (":exception-type", "exception") } else { (":event-type", "event") };
    let headers = [
        (type_, event.name.as_str()),
        (":content-type", "application/json"),
        (":message-type", kind),
    ];
    aws::encode(&headers, payload)
}

/// Splits a path after its first segment.
pub(crate) fn split_first(path: &str) -> (&str, &str) {
    let path_without = path.strip_prefix('/').unwrap_or(path);
    match path_without.find('/') {
        Some(at) => {
            (path_without.get(..at).unwrap_or_default(), path_without.get(at..).unwrap_or_default())
        }
        None => (path_without, ""),
    }
}

/// Accepts a path with this end; versions and other segments may come before it.
fn ends(path: &str, end: &str) -> Option<PathInfo> {
    path.ends_with(end).then(PathInfo::default)
}
