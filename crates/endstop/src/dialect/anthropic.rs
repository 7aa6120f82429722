//! Messages, on Anthropic, Bedrock's `InvokeModel` and Vertex.
//!
//! `message_delta` has the finish reason, and `message_stop` ends the stream. A stream that stops
//! between the two is truncated. No `[DONE]` follows.
//!
//! Source: `anthropic` 2.8.0 and its test fixtures, `@anthropic-ai/sdk` 1.8.0.

mod content;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::chat::{
    BodyWriter, ChatMessage, ChatPart, ChatRequest, Image, ImageSource, JsonFormat, PastCall,
    RequestWriter, Tool, ToolChoice, ToolResult, Unwritable,
};
use crate::dialect::common::{self, EFFORT_WORDS, MESSAGES, WORDS_IF_SAID};
use crate::ending::{Reason, Usage};
use crate::event::Event;
use crate::fault::pattern::{class, name};
use crate::fault::{ErrorPattern, FaultKind};
use crate::frame::{Frame, Framing};
use crate::gateway_error::{ErrorEnd, ErrorShape, GatewayError, KeepAlive};
use crate::next_request::{
    ConversationShape, Effort, ForcedTool, PauseProtocol, RequestShape, Restriction, Scale,
    Temperature,
};
use crate::provider::{NO_QUIRKS, Prefill, Profile, Quirks, Resume, ResumeRule, Role, TRAILING};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::version::{Version, VersionAt};
use crate::wire::{Argument, Count, Listed, Loose, Scalar, Text, is_nothing};

/// The `anthropic-messages` dialect.
pub static DIALECT: Dialect = Dialect {
    id: "anthropic-messages",
    framing: Framing::Sse,
    read,
    read_body,
    words: &[Words::plain(
        "stop_reason",
        "delta.stop_reason",
        &[
            ("end_turn", Reason::Complete),
            ("stop_sequence", Reason::StopSequence),
            ("max_tokens", Reason::OutputLimit),
            ("tool_use", Reason::ToolCall),
            ("pause_turn", Reason::Paused),
            ("compaction", Reason::Paused),
            ("refusal", Reason::Refused),
            ("model_context_window_exceeded", Reason::ContextLimit),
        ],
    )],
    wins: Wins::Last,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["max_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: ERROR_SHAPE,
    request_shape: REQUEST_SHAPE,
    usage: &[
        "usage.input_tokens",
        "usage.output_tokens",
        "usage.output_tokens_details.thinking_tokens",
        "usage.cache_read_input_tokens",
        "usage.cache_creation_input_tokens",
    ],
    counts: &[],
    padding: &[],
    claims,
    source: "anthropic 2.8.0; @anthropic-ai/sdk 1.8.0",
};

/// Error shape. Clients ignore an error whose event has no name.
const ERROR_SHAPE: ErrorShape = ErrorShape {
    event: "error",
    in_stream: tell,
    last: None,
    unfinished: "",
    body: tell,
    end: ErrorEnd::Clean,
    keep_alive: KeepAlive::Event("event: ping\ndata: {\"type\": \"ping\"}\n\n"),
};

fn tell(gateway_error: &GatewayError<'_>) -> serde_json::Value {
    let kind = match gateway_error.status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        // Clients ask again after `api_error`, and give up after `invalid_request_error`.
        _ if gateway_error.repeats => "invalid_request_error",
        _ => "api_error",
    };
    serde_json::json!({
        "type": "error",
        "error": { "type": kind, "message": gateway_error.message, "code": gateway_error.code },
    })
}

/// Request fields of this dialect.
const REQUEST_SHAPE: RequestShape = RequestShape {
    conversation: &[ConversationShape::MessageList(MESSAGES)],
    prefill_restrictions: &[
        THINKS,
        // Structured output and a prefill are rejected together (anthropics/skills @9d2f1ae,
        // tool-use-concepts.md).
        Restriction {
            field: "output_config.format",
            fine: &[],
            by_default: false,
            because: FORMAT,
        },
        Restriction { field: "output_format", fine: &[], by_default: false, because: FORMAT },
    ],
    paused: PauseProtocol::Resend { is_summary: content::is_compaction },
    forced_tools: &[ForcedTool {
        tools: "tools",
        field: "tool_choice",
        value: |tool| json!({ "type": "tool", "name": tool, "disable_parallel_tool_use": true }),
        models: &[],
        // "Thinking may not be enabled when tool_choice forces tool use"
        // (langchain-ai/langchain#35544).
        restrictions: &[THINKS],
    }],
    // Version 2026-10-21 rejects it, and the version is in a header.
    temperature: Temperature { field: "temperature", refused_by: &[], only_if_sent: true },
    efforts: &[
        Effort::new("thinking.budget_tokens", Scale::tokens_if_said(1024)),
        Effort::new("output_config.effort", WORDS_IF_SAID),
        Effort::new(
            "output_config.effort",
            Scale::Words {
                words: EFFORT_WORDS,
                unsaid: Some("medium"),
                given: Some(("thinking.type", "adaptive")),
            },
        ),
    ],
    gather: Some(content::gather),
    writer: Some(RequestWriter {
        path: "/messages",
        streamed_path: "/messages",
        headers: VERSION_HEADER,
        body: write,
    }),
    ..common::REQUEST
};

/// Restriction while thinking is enabled: a trailing assistant turn would have to begin with
/// thinking (Aider-AI/aider#3820).
pub(super) const THINKS: Restriction = Restriction {
    field: "thinking.type",
    fine: &["disabled"],
    by_default: false,
    because: "thinking is enabled",
};

const FORMAT: &str = "the request asks for structured output";

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/messages"],
    resume: CLAUDE,
    versions: VERSIONS,
    quirks: Quirks { cache_beside_input: true, ..NO_QUIRKS },
    notes: &["`model_context_window_exceeded` needed a beta header until Claude 4.5"],
    ..DIALECT.profile()
};

/// API versions. Both have the finish reasons and fields of the first one.
static VERSIONS: &[Version] = &[Version {
    at: VersionAt::Header("anthropic-version"),
    note: "same finish reasons in 2023-06-01 and 2026-10-21; the latter rejects `temperature`, `top_p` \
           and `top_k` with HTTP 400",
}];

/// Resume rules. Claude accepts a prefill up to version 4.5, but not from 4.6 on (litellm 1.108.4,
/// model table).
pub(crate) static CLAUDE: &[ResumeRule] = &[
    ResumeRule::for_models(
        &["claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-3", "claude-2"],
        Resume::Prefill(Prefill { trims: true, ..TRAILING }),
    ),
    ResumeRule::always(Resume::Hint(Role::User)),
];

pub(super) static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("enforced_spend_limit_reached", FaultKind::Quota),
    name("ramp_limit_exceeded", FaultKind::RateLimit),
    name("billing_error", FaultKind::Quota),
    name("overloaded_error", FaultKind::Overloaded),
    name("rate_limit_error", FaultKind::RateLimit),
    name("authentication_error", FaultKind::Auth),
    name("permission_error", FaultKind::Auth),
    name("not_found_error", FaultKind::NotFound),
    name("timeout_error", FaultKind::Timeout),
    class("invalid_request_error", FaultKind::InvalidRequest),
    class("api_error", FaultKind::Server),
];

/// Header that every request needs. This version is the one that SDKs send.
const VERSION_HEADER: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

/// Limit of requests without one. The wire requires it, and every model accepts this one.
const REQUIRED_CAP: u64 = 4096;

fn write(request: &ChatRequest, _: &Profile, body: &mut BodyWriter) -> Result<(), Unwritable> {
    body.put("model", request.model.as_str());
    body.put("max_tokens", request.max_output_tokens.unwrap_or(REQUIRED_CAP));
    body.put_some("temperature", request.temperature);
    body.put_some("top_p", request.top_p);
    if !request.stop.is_empty() {
        body.put("stop_sequences", request.stop.clone());
    }
    if request.stream {
        body.put("stream", true);
    }
    if !request.system.is_empty() {
        body.put("system", request.system.as_str());
    }
    if !request.tools.is_empty() {
        let tool = |Tool { name, description, schema }: &Tool| json!({ "name": name, "description": description, "input_schema": schema });
        body.put("tools", request.tools.iter().map(tool).collect::<Vec<_>>());
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body.put("tool_choice", json!({ "type": "none" })),
            ToolChoice::Required => body.put("tool_choice", json!({ "type": "any" })),
            ToolChoice::Named(tool) => {
                body.put("tool_choice", json!({ "type": "tool", "name": tool }));
            }
        }
    }
    if let Some(JsonFormat { schema, .. }) = &request.format {
        let format = json!({ "type": "json_schema", "schema": schema });
        body.put("output_config", json!({ "format": format }));
    }
    let messages: Result<Vec<_>, _> = request.messages.iter().map(write_message).collect();
    body.end("messages", messages?);
    Ok(())
}

fn write_message(message: &ChatMessage) -> Result<serde_json::Value, Unwritable> {
    Ok(match message {
        ChatMessage::User { parts } => {
            let content = match parts.as_slice() {
                [ChatPart::Text { text }] => json!(text),
                parts => parts.iter().map(write_part).collect(),
            };
            json!({ "role": "user", "content": content })
        }
        ChatMessage::Assistant(assistant) => {
            let blocks = assistant.blocks(
                |text| json!({ "type": "text", "text": text }),
                |PastCall { id, name, .. }, input| json!({ "type": "tool_use", "id": id, "name": name, "input": input }),
            )?;
            json!({ "role": "assistant", "content": blocks })
        }
        ChatMessage::Tool { results } => {
            let result = |result: &ToolResult| json!({ "type": "tool_result", "tool_use_id": result.id, "content": result.content, "is_error": result.is_error });
            json!({ "role": "user", "content": results.iter().map(result).collect::<Vec<_>>() })
        }
    })
}

fn write_part(part: &ChatPart) -> serde_json::Value {
    match part {
        ChatPart::Text { text } => json!({ "type": "text", "text": text }),
        ChatPart::Image(Image { media_type, source }) => {
            let source = match source {
                ImageSource::Url(url) => json!({ "type": "url", "url": url }),
                ImageSource::Base64(data) => {
                    json!({ "type": "base64", "media_type": media_type, "data": data })
                }
            };
            json!({ "type": "image", "source": source })
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    index: Count,
    #[serde(borrow)]
    delta: Loose<Delta<'a>>,
    #[serde(borrow)]
    content_block: Loose<Block<'a>>,
    #[serde(borrow)]
    message: Loose<Message<'a>>,
    usage: Option<Loose<WireUsage>>,
    #[serde(borrow, rename = "amazon-bedrock-guardrailAction")]
    guardrail_action: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    partial_json: Argument<'a>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    #[serde(borrow)]
    stop_sequence: Text<'a>,
    #[serde(borrow)]
    stop_details: Loose<StopDetails<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StopDetails<'a> {
    #[serde(borrow, rename = "type")]
    type_: Scalar<'a>,
    #[serde(borrow)]
    category: Scalar<'a>,
    #[serde(borrow)]
    explanation: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    content: Listed<Loose<Block<'a>>>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    #[serde(borrow)]
    stop_sequence: Text<'a>,
    #[serde(borrow)]
    stop_details: Loose<StopDetails<'a>>,
    usage: Option<Loose<WireUsage>>,
    #[serde(borrow, rename = "amazon-bedrock-guardrailAction")]
    guardrail_action: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    /// Code that makes this call, if the model does not make it itself.
    #[serde(borrow)]
    caller: Loose<Caller<'a>>,
    /// Id of the call that this is the result of.
    #[serde(borrow)]
    tool_use_id: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Caller<'a> {
    #[serde(borrow)]
    tool_id: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    output_tokens_details: Loose<OutputDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Count,
}

pub(super) fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let index = wire.index.index();
    let name = if wire.type_.is_empty() { frame.name } else { &*wire.type_ };
    read_guardrail(&wire.guardrail_action, out);
    match name {
        "content_block_delta" => read_delta(index, &wire.delta, out),
        "content_block_start" => begin_block(index, &wire.content_block, out),
        "content_block_stop" => end_block(index, out),
        "message_start" => read_start(&wire.message, out),
        "message_delta" => {
            emit_usage(wire.usage.as_ref(), out);
            let delta = &wire.delta;
            read_word(&delta.stop_reason, &delta.stop_sequence, &delta.stop_details, out);
        }
        "message_stop" => out.emit(Event::Proof),
        "error" => return Reading::Error,
        "ping" => {}
        _ => return Reading::Strange,
    }
    Reading::Read
}

/// Reads `message_start`. Its finish reason should be null and its content empty, but deferred
/// calls set both.
fn read_start(message: &Message<'_>, out: &mut EventSink<'_, '_>) {
    out.emit(Event::Begin { id: &message.id, model: &message.model });
    emit_usage(message.usage.as_ref(), out);
    read_content(message, out);
    read_word(&message.stop_reason, &message.stop_sequence, &message.stop_details, out);
}

pub(super) fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(message)) = serde_json::from_slice::<Loose<Message<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if &*message.type_ == "error" {
        return Reading::Error;
    }
    if &*message.type_ != "message" && message.stop_reason.said().is_none() {
        return Reading::Strange;
    }
    read_guardrail(&message.guardrail_action, out);
    read_start(&message, out);
    Reading::Read
}

fn read_content(message: &Message<'_>, out: &mut EventSink<'_, '_>) {
    for (index, block) in (0..).zip(message.content.iter()) {
        begin_block(index, block, out);
        if let Some(input) = block.input.filter(|_| out.is_bare_call(0, index)) {
            out.emit(Event::ToolCallDelta { choice: 0, call: index, arguments: input.get() });
        }
        end_block(index, out);
    }
}

/// Blocks of tools that the provider runs itself.
const BY_PROVIDER: &[&str] = &["server_tool_use", "mcp_tool_use"];

fn begin_block(index: u32, block: &Block<'_>, out: &mut EventSink<'_, '_>) {
    match &*block.type_ {
        "text" => {
            out.unclear_calls_were_its_own(0, index, None);
            out.text(0, &block.text);
        }
        // Redacted thinking has no text, but still counts as reasoning.
        "thinking" | "redacted_thinking" => {
            out.emit(Event::Reasoning { choice: 0, text: &block.thinking });
        }
        kind if kind.ends_with("tool_use") && !BY_PROVIDER.contains(&kind) => {
            out.emit(Event::ToolCallStart {
                choice: 0,
                call: index,
                id: &block.id,
                name: &block.name,
            });
            if kind == "tool_use" {
                // The caller runs it even if code makes the call.
                out.call_for_caller(0, index);
            } else {
                out.unclear_call(0, index);
            }
            out.call_of_code(0, index, &block.caller.tool_id);
            // A streamed call begins with an empty object and sends its input in chunks.
            if let Some(input) = block.input.filter(|input| !is_nothing(input)) {
                out.emit(Event::ToolCallDelta { choice: 0, call: index, arguments: input.get() });
            }
        }
        _ => {
            out.code_ended(0, &block.tool_use_id);
            if !block.tool_use_id.is_empty() {
                out.unclear_calls_were_its_own(0, index, None);
            }
            out.emit(Event::OtherContent { choice: 0, kind: "block" });
            out.note_item(0, index);
        }
    }
}

fn read_delta(index: u32, delta: &Delta<'_>, out: &mut EventSink<'_, '_>) {
    out.text(0, &delta.text);
    out.reasoning(0, &delta.thinking);
    // Server-side tools stream their input too.
    let input = &delta.partial_json;
    if out.has_item(0, index) && !out.is_open_call(0, index) {
        return;
    }
    if input.odd {
        out.spoil_call(0, index);
    } else if !input.text.is_empty() {
        out.emit(Event::ToolCallDelta { choice: 0, call: index, arguments: &input.text });
    }
}

fn end_block(index: u32, out: &mut EventSink<'_, '_>) {
    if !out.is_open_call(0, index) {
        out.settle_open_calls(0);
    }
    if out.has_call(0, index) {
        out.end_bare_call(0, index);
        out.emit(Event::ToolCallEnd { choice: 0, call: index });
    }
}

fn read_word(
    reason: &Scalar<'_>,
    sequence: &Text<'_>,
    details: &StopDetails<'_>,
    out: &mut EventSink<'_, '_>,
) {
    if !sequence.is_empty() {
        out.detail(Some(0), "stop_sequence", sequence);
        out.stop_sequence(0);
    }
    let details = [
        ("stop_details.type", &details.type_),
        ("stop_details.category", &details.category),
        ("stop_details.explanation", &details.explanation),
    ];
    for (key, value) in details {
        if let Some(value) = value.to_text() {
            out.detail(Some(0), key, &value);
        }
    }
    if let Some(word) = reason.said() {
        out.emit(Event::Word { choice: 0, field: "stop_reason", word: word.clone() });
    }
}

pub(super) fn read_guardrail(action: &Scalar<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(action) = action.to_text() {
        out.detail(None, "amazon-bedrock-guardrailAction", &action);
        if action == "INTERVENED" {
            out.guardrail();
        }
    }
}

fn emit_usage(usage: Option<&Loose<WireUsage>>, out: &mut EventSink<'_, '_>) {
    let Some(usage) = usage else { return };
    out.emit(Event::Usage(Usage {
        input: usage.input_tokens.0,
        output: usage.output_tokens.0,
        reasoning: usage.output_tokens_details.thinking_tokens.0,
        cache_read: usage.cache_read_input_tokens.0,
        cache_write: usage.cache_creation_input_tokens.0,
    }));
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.text("type") == "error" && probe.has_object("error")
        || matches!(
            &*probe.event("type"),
            "message"
                | "message_start"
                | "content_block_start"
                | "content_block_delta"
                | "content_block_stop"
                | "message_delta"
                | "message_stop"
                | "ping"
        )
}
