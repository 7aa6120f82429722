//! Cohere chat and generate, version 1: one JSON line per event, or server-sent events if the
//! caller asks for them.
//!
//! `stream-end` has the finish reason, repeats the whole response and ends the stream. Tool calls
//! end with `COMPLETE`, because they have no separate finish reason. Bedrock serves Command R on
//! this wire.
//!
//! Source: `cohere` 7.3.1 `types/{finish_reason,chat_stream_end_event_finish_reason}.py`,
//! `cohere-ai` 8.1.0.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::anthropic::read_guardrail;
use super::bedrock_invoke::added_to;
use super::cohere::ERROR_PATTERNS;
use super::errors::is_set;
use super::openai_chat::arguments_text;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common::{self, MESSAGES};
use crate::ending::{Reason, Usage};
use crate::event::Event;
use crate::frame::{Frame, FrameKind, Framing};
use crate::gateway_error::{ErrorShape, GatewayError};
use crate::next_request::{ConversationShape, MessageList, RequestShape, Temperature};
use crate::provider::Profile;
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Flag, Listed, Loose, Scalar, Text};

/// The `cohere-v1` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "cohere-v1",
    framing: Framing::Lines,
    read,
    read_body,
    words: &[Words::plain(
        "finish_reason",
        "finish_reason",
        &[
            ("COMPLETE", Reason::Complete),
            ("STOP_SEQUENCE", Reason::StopSequence),
            ("MAX_TOKENS", Reason::OutputLimit),
            ("ERROR", Reason::Failed),
            ("TIMEOUT", Reason::TimedOut),
            ("ERROR_TOXIC", Reason::Filtered),
            ("ERROR_LIMIT", Reason::ContextLimit),
            ("USER_CANCEL", Reason::Cancelled),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["max_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: ERROR_SHAPE,
    request_shape: REQUEST_SHAPE,
    usage: &["meta.tokens.input_tokens", "meta.tokens.output_tokens", "meta.cached_tokens"],
    counts: &[],
    padding: &[],
    claims,
    source: "cohere 7.3.1; cohere-ai 8.1.0",
};

/// Error shape: the last event of a stream in which the provider failed.
const ERROR_SHAPE: ErrorShape =
    ErrorShape { in_stream: tell, body: super::cohere::tell_body, ..common::ERRORS };

fn tell(gateway_error: &GatewayError<'_>) -> serde_json::Value {
    serde_json::json!({
        "event_type": "stream-end",
        "is_finished": true,
        "finish_reason": "ERROR",
        "response": { "error": gateway_error.message },
    })
}

/// Request fields of chat and of the old `generate`.
const REQUEST_SHAPE: RequestShape = RequestShape {
    conversation: &[
        ConversationShape::Apart(
            "message",
            MessageList {
                list: "chat_history",
                assistant: "CHATBOT",
                user: "USER",
                content: "message",
                ..MESSAGES
            },
        ),
        ConversationShape::Prompt("prompt", ""),
    ],
    temperature: Temperature { field: "temperature", refused_by: &[], only_if_sent: false },
    ..common::REQUEST
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile =
    Profile { paths: &["/v1/chat", "/v1/generate"], ..DIALECT.profile() };

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    event_type: Text<'a>,
    #[serde(borrow)]
    generation_id: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
    #[serde(borrow)]
    tool_call_delta: Loose<ToolCall<'a>>,
    #[serde(borrow)]
    response: Loose<Body<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Whether a line without a name is the last one, in streams of `generate`.
    is_finished: Option<Flag>,
    /// Bedrock's guardrail, on `InvokeModel`.
    #[serde(borrow, rename = "amazon-bedrock-guardrailAction")]
    guardrail_action: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    index: Count,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    event_type: Text<'a>,
    is_finished: Option<Flag>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    response_id: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
    #[serde(borrow)]
    generations: Few<Loose<Generation<'a>>>,
    meta: Option<Loose<Meta>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Generation<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    tokens: Loose<Tokens>,
    cached_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Count,
    output_tokens: Count,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let name = match wire.is_finished {
        _ if !wire.event_type.is_empty() => &*wire.event_type,
        _ if !frame.name.is_empty() => frame.name,
        Some(Flag(true)) => "stream-end",
        Some(Flag(false)) => "text-generation",
        None => "",
    };
    read_guardrail(&wire.guardrail_action, out);
    match name {
        "text-generation" => out.text(0, &wire.text),
        "stream-start" => out.emit(Event::Begin { id: &wire.generation_id, model: "" }),
        "tool-calls-chunk" => read_piece(&wire, out),
        "tool-calls-generation" => read_calls(&wire.tool_calls, out),
        "stream-end" => {
            added_to(frame.data).read(out);
            return read_end(&wire, out);
        }
        "stream-error" => {
            read_word(0, &wire.finish_reason, out);
            return Reading::Error;
        }
        "search-queries-generation" | "search-results" | "citation-generation" | "debug" => {}
        _ => return Reading::Strange,
    }
    Reading::Read
}

/// Reads a chunk of a tool call, or of the plan before it.
fn read_piece(wire: &Payload<'_>, out: &mut EventSink<'_, '_>) {
    out.reasoning(0, &wire.text);
    let (piece, call) = (&wire.tool_call_delta, wire.tool_call_delta.index.index());
    if !piece.name.is_empty() {
        out.emit(Event::ToolCallStart { choice: 0, call, id: "", name: &piece.name });
    }
    let arguments = piece.parameters.map(arguments_text).unwrap_or_default();
    if !arguments.is_empty() {
        out.emit(Event::ToolCallDelta { choice: 0, call, arguments: &arguments });
    }
}

/// Reads whole calls, which close the calls that came in chunks.
fn read_calls(calls: &Listed<Loose<ToolCall<'_>>>, out: &mut EventSink<'_, '_>) {
    for (call, wire) in (0..).zip(calls.iter()) {
        if !out.has_call(0, call) {
            out.emit(Event::ToolCallStart { choice: 0, call, id: "", name: &wire.name });
        }
        if !out.has_arguments(0, call) {
            let arguments = wire.parameters.map(arguments_text).unwrap_or_default();
            out.emit(Event::ToolCallDelta { choice: 0, call, arguments: &arguments });
        }
        out.emit(Event::ToolCallEnd { choice: 0, call });
    }
}

fn read_end(wire: &Payload<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let response = &wire.response;
    if !out.has_content(0)
        && let Some(text) = &response.text
    {
        out.text(0, text);
    }
    if !out.has_content(0) {
        for (choice, generation) in (0..).zip(response.generations.iter()) {
            out.text(choice, &generation.text);
        }
    }
    read_calls(&response.tool_calls, out);
    emit_usage(response.meta.as_ref(), out);
    read_word(0, &wire.finish_reason, out);
    if wire.finish_reason.said().is_none() {
        for (choice, generation) in (0..).zip(response.generations.iter()) {
            read_word(choice, &generation.finish_reason, out);
        }
    }
    out.emit(Event::Proof);
    if is_set(wire.error) { Reading::Error } else { Reading::Read }
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    // A stream of only one line.
    let is_line = !body.event_type.is_empty() || body.is_finished.is_some();
    if is_line && frame.kind == FrameKind::Body {
        let reading = read(frame, out);
        return if reading == Reading::Read { Reading::Unfinished } else { reading };
    }
    if body.text.is_none() && !body.generations.present && body.finish_reason.said().is_none() {
        return Reading::Strange;
    }
    let id = if body.response_id.is_empty() { &body.id } else { &body.response_id };
    out.emit(Event::Begin { id, model: "" });
    out.choice(0);
    if let Some(text) = &body.text {
        out.text(0, text);
    }
    read_calls(&body.tool_calls, out);
    emit_usage(body.meta.as_ref(), out);
    added_to(frame.data).read(out);
    read_word(0, &body.finish_reason, out);
    for (choice, generation) in (0..).zip(body.generations.iter()) {
        out.choice(choice);
        out.text(choice, &generation.text);
        read_word(choice, &generation.finish_reason, out);
    }
    Reading::Read
}

fn read_word(choice: u32, word: &Scalar<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(word) = word.said() {
        out.emit(Event::Word { choice, field: "finish_reason", word: word.clone() });
    }
}

fn emit_usage(meta: Option<&Loose<Meta>>, out: &mut EventSink<'_, '_>) {
    let Some(meta) = meta else { return };
    out.emit(Event::Usage(Usage {
        input: meta.tokens.input_tokens.0,
        output: meta.tokens.output_tokens.0,
        cache_read: meta.cached_tokens.0,
        ..Usage::default()
    }));
}

fn claims(probe: &Probe<'_>) -> bool {
    matches!(&*probe.event("event_type"), "stream-start" | "text-generation" | "stream-end")
        || probe.has("generation_id")
        || probe.has("generations") && probe.has("meta")
}
