//! Cohere chat, version 2.
//!
//! `message-end` has the finish reason and ends the stream; a `[DONE]` may follow. Failures come in
//! band, with HTTP 200.
//!
//! Source: `cohere` 7.3.1, `cohere-ai` 8.1.0.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::openai_chat::arguments_text;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words, openai_chat};
use crate::chat::{BodyWriter, ChatRequest, JsonFormat, RequestWriter, ToolChoice, Unwritable};
use crate::dialect::common::{self, MESSAGES};
use crate::ending::{Reason, Usage};
use crate::event::Event;
use crate::fault::pattern::{message, name};
use crate::fault::{ErrorPattern, FaultKind};
use crate::frame::{Frame, Framing};
use crate::gateway_error::{ErrorShape, GatewayError};
use crate::next_request::{
    ConversationShape, Effort, ForcedTool, RequestShape, Scale, Temperature,
};
use crate::provider::Profile;
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Content, Count, Few, Listed, Loose, Scalar, Text};

/// The `cohere-v2` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "cohere-v2",
    framing: Framing::Sse,
    read,
    read_body,
    words: &[Words::plain(
        "finish_reason",
        "delta.finish_reason",
        &[
            ("COMPLETE", Reason::Complete),
            ("STOP_SEQUENCE", Reason::StopSequence),
            ("MAX_TOKENS", Reason::OutputLimit),
            ("TOOL_CALL", Reason::ToolCall),
            ("ERROR", Reason::Failed),
            ("TIMEOUT", Reason::TimedOut),
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
    usage: &["usage.tokens.input_tokens", "usage.tokens.output_tokens", "usage.cached_tokens"],
    counts: &[],
    padding: &[],
    claims,
    source: "cohere 7.3.1; cohere-ai 8.1.0",
};

/// Error shape. No event of this wire makes clients raise an error; only the abort after it does.
const ERROR_SHAPE: ErrorShape =
    ErrorShape { event: "message-end", in_stream: tell, body: tell_body, ..common::ERRORS };

fn tell(gateway_error: &GatewayError<'_>) -> serde_json::Value {
    serde_json::json!({
        "type": "message-end",
        "delta": { "finish_reason": "ERROR", "error": gateway_error.message },
    })
}

pub(super) fn tell_body(gateway_error: &GatewayError<'_>) -> serde_json::Value {
    serde_json::json!({ "message": gateway_error.message, "code": gateway_error.code })
}

/// Request fields of this dialect.
const REQUEST_SHAPE: RequestShape = RequestShape {
    conversation: &[ConversationShape::MessageList(MESSAGES)],
    forced_tools: &[ForcedTool {
        tools: "tools",
        field: "tool_choice",
        // Requires a call of any tool, because the wire cannot name one (cohere 7.3.1).
        value: |_| serde_json::json!("REQUIRED"),
        models: &[],
        restrictions: &[],
    }],
    temperature: Temperature { field: "temperature", refused_by: &[], only_if_sent: false },
    efforts: &[
        Effort::new("thinking.token_budget", Scale::tokens_if_said(1)),
        Effort::new("thinking.type", Scale::Switch("enabled", "disabled")),
    ],
    writer: Some(RequestWriter {
        path: "/v2/chat",
        streamed_path: "/v2/chat",
        headers: &[],
        body: write,
    }),
    ..common::REQUEST
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile { paths: &["/v2/chat"], ..DIALECT.profile() };

/// Cohere's errors, shared by both versions.
pub(crate) static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("TOO_MANY_TOKENS", FaultKind::ContextWindow),
    message("too many tokens", FaultKind::ContextWindow),
    message("invalid api token", FaultKind::Auth),
    message("trial key", FaultKind::RateLimit),
];

fn write(request: &ChatRequest, _: &Profile, body: &mut BodyWriter) -> Result<(), Unwritable> {
    body.put("model", request.model.as_str());
    body.put_some("max_tokens", request.max_output_tokens);
    body.put_some("temperature", request.temperature);
    body.put_some("p", request.top_p);
    if !request.stop.is_empty() {
        body.put("stop_sequences", request.stop.clone());
    }
    body.put("stream", request.stream);
    if !request.tools.is_empty() {
        body.put("tools", openai_chat::tools(&request.tools));
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body.put("tool_choice", "NONE"),
            // The wire cannot name a tool.
            ToolChoice::Required | ToolChoice::Named(_) => body.put("tool_choice", "REQUIRED"),
        }
    }
    if let Some(JsonFormat { schema, .. }) = &request.format {
        let format = serde_json::json!({ "type": "json_object", "json_schema": schema });
        body.put("response_format", format);
    }
    body.end("messages", openai_chat::messages(request));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    index: Count,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    delta: Loose<Delta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    message: Loose<DeltaMessage<'a>>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeltaMessage<'a> {
    #[serde(borrow)]
    content: Loose<Part<'a>>,
    #[serde(borrow)]
    tool_plan: Text<'a>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    function: Loose<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    /// Null if a part adds nothing; `None` only if the field is missing.
    #[serde(borrow, deserialize_with = "even_null")]
    arguments: Option<&'a RawValue>,
}

fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    tokens: Loose<Tokens>,
    cached_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Count,
    output_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    message: Option<Loose<Message<'a>>>,
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Content<'a, Loose<Part<'a>>>,
    #[serde(borrow)]
    tool_plan: Text<'a>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let (call, delta) = (wire.index.index(), &wire.delta);
    let name = if wire.type_.is_empty() { frame.name } else { &*wire.type_ };
    match name {
        "content-delta" | "content-start" => read_part(&delta.message.content, out),
        "tool-plan-delta" => out.reasoning(0, &delta.message.tool_plan),
        "tool-call-start" => {
            let wire = tool_call(delta.message.tool_calls);
            out.emit(Event::ToolCallStart {
                choice: 0,
                call,
                id: &wire.id,
                name: &wire.function.name,
            });
            read_arguments(call, wire.function.arguments, out);
        }
        "tool-call-delta" => {
            let wire = tool_call(delta.message.tool_calls);
            match wire.function.arguments {
                None => out.spoil_call(0, call),
                arguments => read_arguments(call, arguments, out),
            }
        }
        "tool-call-end" => {
            // Clients end the open call, whatever the number.
            if !out.is_open_call(0, call) {
                out.settle_open_calls(0);
            }
            out.emit(Event::ToolCallEnd { choice: 0, call });
        }
        "message-start" => out.emit(Event::Begin { id: &wire.id, model: "" }),
        "message-end" => {
            emit_usage(delta.usage.as_ref(), out);
            read_word(&delta.finish_reason, out);
            out.emit(Event::Proof);
            if delta.error.is_some() {
                return Reading::Error;
            }
        }
        "content-end" | "citation-start" | "citation-end" | "debug" => {}
        _ => return Reading::Strange,
    }
    Reading::Read
}

/// Returns the only call of an event. Some hosts wrap it in a list.
fn tool_call(raw: Option<&RawValue>) -> ToolCall<'_> {
    let Some(raw) = raw else { return ToolCall::default() };
    if raw.get().starts_with('[') {
        let list: Few<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
        return tool_call(list.first().copied());
    }
    serde_json::from_str::<Loose<ToolCall<'_>>>(raw.get()).unwrap_or_default().0
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if body.finish_reason.said().is_none() && (body.usage.is_none() || body.message.is_none()) {
        return Reading::Strange;
    }
    let Loose(message) = body.message.unwrap_or_default();
    out.emit(Event::Begin { id: &body.id, model: "" });
    out.reasoning(0, &message.tool_plan);
    match &message.content {
        Content::Text(text) => out.text(0, text),
        Content::Parts(parts) => parts.iter().for_each(|part| read_part(part, out)),
    }
    for (call, wire) in (0..).zip(message.tool_calls.iter()) {
        out.emit(Event::ToolCallStart { choice: 0, call, id: &wire.id, name: &wire.function.name });
        read_arguments(call, wire.function.arguments, out);
        out.emit(Event::ToolCallEnd { choice: 0, call });
    }
    emit_usage(body.usage.as_ref(), out);
    read_word(&body.finish_reason, out);
    Reading::Read
}

fn read_part(part: &Part<'_>, out: &mut EventSink<'_, '_>) {
    out.reasoning(0, &part.thinking);
    out.text(0, &part.text);
}

fn read_arguments(call: u32, arguments: Option<&RawValue>, out: &mut EventSink<'_, '_>) {
    let arguments = arguments.map(arguments_text).unwrap_or_default();
    if !arguments.is_empty() {
        out.emit(Event::ToolCallDelta { choice: 0, call, arguments: &arguments });
    }
}

fn read_word(word: &Scalar<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(word) = word.said() {
        out.emit(Event::Word { choice: 0, field: "finish_reason", word: word.clone() });
    }
}

fn emit_usage(usage: Option<&Loose<WireUsage>>, out: &mut EventSink<'_, '_>) {
    let Some(usage) = usage else { return };
    out.emit(Event::Usage(Usage {
        input: usage.tokens.input_tokens.0,
        output: usage.tokens.output_tokens.0,
        reasoning: None,
        cache_read: usage.cached_tokens.0,
        cache_write: None,
    }));
}

fn claims(probe: &Probe<'_>) -> bool {
    let event = probe.event("type");
    matches!(&*event, "message-start" | "content-start" | "content-delta" | "message-end")
        || probe.has("finish_reason") && probe.has("message")
}
