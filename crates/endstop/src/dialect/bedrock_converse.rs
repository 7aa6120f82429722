//! Converse and `ConverseStream`.
//!
//! The framing names the events. `messageStop` has the finish reason and ends the stream; the usage
//! follows in `metadata`. Exceptions are a separate kind of frame.
//!
//! Source: `botocore` 1.44.0 `bedrock-runtime/2023-09-30/service-2.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::bedrock_invoke::added_to;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words, anthropic, bedrock_nova};
use crate::chat::{
    BodyWriter, ChatMessage, ChatPart, ChatRequest, Image, ImageSource, JsonFormat, PastCall,
    RequestWriter, Tool, ToolChoice, ToolResult, Unwritable,
};
use crate::dialect::common::{self, EFFORT_WORDS, MESSAGES, WORDS_IF_SAID, bare_text};
use crate::ending::{Reason, SafetyRating, Usage};
use crate::event::Event;
use crate::fault::pattern::{class, message, name};
use crate::fault::{ErrorPattern, FaultKind};
use crate::frame::{Frame, FrameKind, Framing};
use crate::next_request::{
    Blocks, ConversationShape, Effort, ForcedTool, MessageList, RequestShape, Restriction, Scale,
    Temperature,
};
use crate::provider::{NO_QUIRKS, Profile, Quirks};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Argument, Count, Few, Listed, Loose, Measure, Scalar, Text};

/// The `bedrock-converse` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "bedrock-converse",
    framing: Framing::Aws,
    read,
    read_body,
    words: WORDS,
    wins: Wins::First,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["inferenceConfig.maxTokens"],
    streams: Streams::Path("stream"),
    error_shape: common::ERRORS,
    request_shape: REQUEST_SHAPE,
    usage: &[
        "usage.inputTokens",
        "usage.outputTokens",
        "usage.cacheReadInputTokens",
        "usage.cacheWriteInputTokens",
    ],
    counts: &[],
    padding: &["p"],
    claims,
    source: "botocore 1.44.0",
};

/// Finish reasons of every model with this response shape.
pub(super) static WORDS: &[Words] = &[Words::plain(
    "stopReason",
    "messageStop.stopReason",
    &[
        ("end_turn", Reason::Complete),
        ("tool_use", Reason::ToolCall),
        ("max_tokens", Reason::OutputLimit),
        ("stop_sequence", Reason::StopSequence),
        ("guardrail_intervened", Reason::Filtered),
        ("content_filtered", Reason::Filtered),
        ("malformed_model_output", Reason::Failed),
        ("malformed_tool_use", Reason::MalformedToolCall),
        ("model_context_window_exceeded", Reason::ContextLimit),
    ],
)];

/// Request fields of this dialect.
pub(super) const REQUEST_SHAPE: RequestShape = RequestShape {
    // Roles must alternate.
    conversation: &[ConversationShape::MessageList(MessageList {
        part: bare_text,
        plain: false,
        ..MESSAGES
    })],
    prefill_restrictions: &[THINKS, REASONS],
    forced_tools: &[ForcedTool {
        tools: "toolConfig.tools",
        field: "toolConfig.toolChoice",
        value: |tool| serde_json::json!({ "tool": { "name": tool } }),
        // Only these families support it (botocore 1.44.0, `SpecificToolChoice`).
        models: &["claude", "nova"],
        restrictions: &[THINKS, REASONS],
    }],
    temperature: Temperature {
        field: "inferenceConfig.temperature",
        refused_by: &[],
        only_if_sent: true,
    },
    efforts: &[
        Effort::new(
            "additionalModelRequestFields.thinking.budget_tokens",
            Scale::tokens_if_said(1024),
        ),
        Effort::new(
            "additionalModelRequestFields.reasoning_config.budget_tokens",
            Scale::tokens_if_said(1024),
        ),
        Effort::new("additionalModelRequestFields.output_config.effort", WORDS_IF_SAID),
        Effort::new(
            "additionalModelRequestFields.reasoningConfig.maxReasoningEffort",
            WORDS_IF_SAID,
        ),
        Effort::new(
            "additionalModelRequestFields.output_config.effort",
            Scale::Words {
                words: EFFORT_WORDS,
                unsaid: Some("medium"),
                given: Some(("additionalModelRequestFields.thinking.type", "adaptive")),
            },
        ),
    ],
    gather: Some(gather),
    writer: Some(RequestWriter {
        path: "/model/{model}/converse",
        streamed_path: "/model/{model}/converse-stream",
        headers: &[],
        body: write,
    }),
    ..common::REQUEST
};

const THINKS: Restriction =
    Restriction { field: "additionalModelRequestFields.thinking.type", ..anthropic::THINKS };

/// The same restriction under its older name.
const REASONS: Restriction = Restriction {
    field: "additionalModelRequestFields.reasoning_config.type",
    ..anthropic::THINKS
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/converse"],
    quirks: Quirks { cache_beside_input: true, ..NO_QUIRKS },
    ..DIALECT.profile()
};

/// Bedrock's exceptions, by their names in HTTP and in streams.
pub(crate) static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("throttlingException", FaultKind::RateLimit),
    name("ThrottlingException", FaultKind::RateLimit),
    name("ModelNotReadyException", FaultKind::Overloaded),
    name("serviceUnavailableException", FaultKind::Overloaded),
    name("ServiceUnavailableException", FaultKind::Overloaded),
    name("ServiceQuotaExceededException", FaultKind::Quota),
    name("AccessDeniedException", FaultKind::Auth),
    name("UnrecognizedClientException", FaultKind::Auth),
    name("ResourceNotFoundException", FaultKind::NotFound),
    name("ModelTimeoutException", FaultKind::Timeout),
    name("modelTimeoutException", FaultKind::Timeout),
    name("modelStreamErrorException", FaultKind::Server),
    name("ModelStreamErrorException", FaultKind::Server),
    name("ModelErrorException", FaultKind::Server),
    name("internalServerException", FaultKind::Server),
    name("InternalServerException", FaultKind::Server),
    class("validationException", FaultKind::InvalidRequest),
    class("ValidationException", FaultKind::InvalidRequest),
    message("please wait before trying again", FaultKind::RateLimit),
    message("too many tokens", FaultKind::ContextWindow),
    message("expected maxlength:", FaultKind::ContextWindow),
];

/// Payload of any event.
fn write(request: &ChatRequest, _: &Profile, body: &mut BodyWriter) -> Result<(), Unwritable> {
    let config = common::object([
        ("maxTokens", request.max_output_tokens.map(Into::into)),
        ("temperature", request.temperature.map(Into::into)),
        ("topP", request.top_p.map(Into::into)),
        ("stopSequences", (!request.stop.is_empty()).then(|| json!(request.stop))),
    ]);
    body.put_some("inferenceConfig", config);
    if !request.system.is_empty() {
        body.put("system", json!([{ "text": request.system }]));
    }
    // The wire cannot forbid calls, and rejects a conversation with calls without its tools. So calls and results
    // become text.
    let forbids_calls = request.tool_choice == ToolChoice::None;
    if !request.tools.is_empty() && !forbids_calls {
        let tool = |Tool { name, description, schema }: &Tool| json!({ "toolSpec": { "name": name, "description": description, "inputSchema": { "json": schema } } });
        let mut tools = json!({ "tools": request.tools.iter().map(tool).collect::<Vec<_>>() });
        let choice = match &request.tool_choice {
            ToolChoice::Auto | ToolChoice::None => None,
            ToolChoice::Required => Some(json!({ "any": {} })),
            ToolChoice::Named(tool) => Some(json!({ "tool": { "name": tool } })),
        };
        if let Some(choice) = choice {
            common::insert(&mut tools, "toolChoice", choice);
        }
        body.put("toolConfig", tools);
    }
    if let Some(JsonFormat { name, schema }) = &request.format {
        let schema = json!({ "name": name, "schema": schema.to_string() });
        let format = json!({ "type": "json_schema", "structure": { "jsonSchema": schema } });
        body.put("outputConfig", json!({ "textFormat": format }));
    }
    let write = if forbids_calls { write_as_text } else { write_message };
    let messages: Result<Vec<_>, _> = request.messages.iter().map(write).collect();
    body.end("messages", messages?);
    Ok(())
}

/// Writes a message with its calls or results as text.
fn write_as_text(message: &ChatMessage) -> Result<serde_json::Value, Unwritable> {
    Ok(match message {
        ChatMessage::Assistant(assistant) if !assistant.calls.is_empty() => {
            let text = (!assistant.text.is_empty()).then(|| assistant.text.clone());
            let call = |PastCall { name, arguments, .. }: &PastCall| {
                format!("I called the tool `{name}` with the arguments {arguments}.")
            };
            let blocks = text.into_iter().chain(assistant.calls.iter().map(call));
            let blocks: Vec<_> = blocks.map(|text| json!({ "text": text })).collect();
            json!({ "role": "assistant", "content": blocks })
        }
        ChatMessage::Tool { results } => {
            let result = |ToolResult { name, content, is_error, .. }: &ToolResult| {
                let what = if *is_error { "Error" } else { "Result" };
                json!({ "text": format!("{what} of the tool `{name}`:\n{content}") })
            };
            json!({ "role": "user", "content": results.iter().map(result).collect::<Vec<_>>() })
        }
        ChatMessage::User { .. } | ChatMessage::Assistant(_) => write_message(message)?,
    })
}

fn write_message(message: &ChatMessage) -> Result<serde_json::Value, Unwritable> {
    Ok(match message {
        ChatMessage::User { parts } => {
            let content: Result<Vec<_>, _> = parts.iter().map(write_part).collect();
            json!({ "role": "user", "content": content? })
        }
        ChatMessage::Assistant(assistant) => {
            let blocks = assistant.blocks(
                |text| json!({ "text": text }),
                |PastCall { id, name, .. }, input| json!({ "toolUse": { "toolUseId": id, "name": name, "input": input } }),
            )?;
            json!({ "role": "assistant", "content": blocks })
        }
        ChatMessage::Tool { results } => {
            let result = |ToolResult { id, content, is_error, .. }: &ToolResult| {
                let status = if *is_error { "error" } else { "success" };
                json!({ "toolResult": { "toolUseId": id, "content": [{ "text": content }], "status": status } })
            };
            json!({ "role": "user", "content": results.iter().map(result).collect::<Vec<_>>() })
        }
    })
}

/// Collects the blocks of an answer, with the signatures of its reasoning.
fn gather(frame: &Frame<'_>, blocks: &mut Blocks) {
    match frame.kind {
        FrameKind::Body => match serde_json::from_slice::<RawBody<'_>>(frame.data) {
            Ok(body) => blocks.set(&body.output.message.content),
            Err(_) => blocks.lose(),
        },
        FrameKind::Event => match serde_json::from_slice::<Payload<'_>>(frame.data) {
            Ok(event) => gather_event(frame.name, &event, blocks),
            Err(_) => blocks.lose(),
        },
        FrameKind::Exception | FrameKind::Text => {}
    }
}

// The structs for reading parse each block as it comes. Keeping its JSON there would cost more (`cargo bench`, gate).
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawBody<'a> {
    #[serde(borrow)]
    output: RawOutput<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawOutput<'a> {
    #[serde(borrow)]
    message: RawMessage<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawMessage<'a> {
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
}

fn gather_event(name: &str, event: &Payload<'_>, blocks: &mut Blocks) {
    let index = event.content_block_index.index() as usize;
    match (name, &event.start.tool_use) {
        ("contentBlockStart", Some(call)) => {
            let (id, name) = (&*call.tool_use_id, &*call.name);
            let call = json!({ "toolUse": { "toolUseId": id, "name": name, "input": {} } });
            begin(index, &call, blocks);
        }
        ("contentBlockStart", None) => blocks.lose(),
        ("contentBlockDelta", _) => gather_delta(index, &event.delta, blocks),
        ("contentBlockStop", _) if blocks.count() > index => blocks.stop(index),
        _ => {}
    }
}

/// Adds a delta. Only calls have an event that begins their block.
fn gather_delta(index: usize, delta: &Delta<'_>, blocks: &mut Blocks) {
    match delta {
        Delta { tool_use: Some(call), .. } if call.input.odd => blocks.lose(),
        Delta { tool_use: Some(call), .. } => {
            blocks.append_json(index, "toolUse.input", &call.input.text);
        }
        Delta { reasoning_content: Some(reasoning), .. } => {
            let Reasoning { text, signature, redacted_content, .. } = &**reasoning;
            if !redacted_content.is_empty() {
                let redacted = json!({ "redactedContent": &**redacted_content });
                return begin(index, &json!({ "reasoningContent": redacted }), blocks);
            }
            if blocks.count() <= index {
                let empty = json!({ "reasoningText": { "text": "" } });
                begin(index, &json!({ "reasoningContent": empty }), blocks);
            }
            blocks.append(index, "reasoningContent.reasoningText.text", text);
            if !signature.is_empty() {
                blocks.append(index, "reasoningContent.reasoningText.signature", signature);
            }
        }
        Delta { text: Some(text), .. } => {
            if blocks.count() <= index {
                begin(index, &json!({ "text": "" }), blocks);
            }
            blocks.append(index, "text", text);
        }
        // An unknown delta cannot be sent back unchanged.
        Delta { text: None, tool_use: None, reasoning_content: None } => blocks.lose(),
    }
}

fn begin(index: usize, block: &serde_json::Value, blocks: &mut Blocks) {
    match to_raw_value(block) {
        Ok(block) => blocks.start(index, &block),
        Err(_) => blocks.lose(),
    }
}

fn write_part(part: &ChatPart) -> Result<serde_json::Value, Unwritable> {
    match part {
        ChatPart::Text { text } => Ok(json!({ "text": text })),
        ChatPart::Image(Image { media_type, source }) => match source {
            ImageSource::Url(_) => {
                Err(Unwritable::Part { dialect: DIALECT.id, what: "image URLs" })
            }
            ImageSource::Base64(data) => {
                let format = media_type.strip_prefix("image/").unwrap_or(media_type);
                Ok(json!({ "image": { "format": format, "source": { "bytes": data } } }))
            }
        },
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Payload<'a> {
    content_block_index: Count,
    #[serde(borrow)]
    start: Loose<Start<'a>>,
    #[serde(borrow)]
    delta: Loose<Delta<'a>>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    #[serde(borrow)]
    additional_model_response_fields: Option<&'a RawValue>,
    usage: Option<Loose<WireUsage>>,
    #[serde(borrow)]
    trace: Loose<Trace<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Start<'a> {
    #[serde(borrow)]
    tool_use: Option<Loose<ToolUse<'a>>>,
    #[serde(borrow)]
    tool_result: Loose<ToolUse<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Delta<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    tool_use: Option<Loose<ToolInput<'a>>>,
    #[serde(borrow)]
    reasoning_content: Option<Loose<Reasoning<'a>>>,
}

/// A call, or the result of one that the provider ran.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ToolUse<'a> {
    #[serde(borrow)]
    tool_use_id: Text<'a>,
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolInput<'a> {
    #[serde(borrow)]
    input: Argument<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reasoning<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    signature: Text<'a>,
    #[serde(borrow)]
    reasoning_text: Loose<Thought<'a>>,
    #[serde(borrow)]
    redacted_content: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Thought<'a> {
    #[serde(borrow)]
    text: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Trace<'a> {
    #[serde(borrow)]
    guardrail: Loose<Guardrail<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Guardrail<'a> {
    #[serde(borrow)]
    action_reason: Text<'a>,
    #[serde(borrow)]
    input_assessment: Loose<BTreeMap<Text<'a>, Loose<Assessment<'a>>>>,
    #[serde(borrow)]
    output_assessments: Loose<BTreeMap<Text<'a>, Few<Loose<Assessment<'a>>>>>,
}

/// Findings of one guardrail in a text. The matches are left out, because they quote the text.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Assessment<'a> {
    #[serde(borrow)]
    content_policy: Loose<Policy<'a>>,
    #[serde(borrow)]
    topic_policy: Loose<Policy<'a>>,
    #[serde(borrow)]
    word_policy: Loose<Policy<'a>>,
    #[serde(borrow)]
    sensitive_information_policy: Loose<Policy<'a>>,
    #[serde(borrow)]
    contextual_grounding_policy: Loose<Policy<'a>>,
}

/// Findings of one policy. Each kind of policy has its own list.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Policy<'a> {
    #[serde(borrow)]
    filters: Few<Loose<Finding<'a>>>,
    #[serde(borrow)]
    topics: Few<Loose<Finding<'a>>>,
    #[serde(borrow)]
    managed_word_lists: Few<Loose<Finding<'a>>>,
    #[serde(borrow)]
    pii_entities: Few<Loose<Finding<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Finding<'a> {
    #[serde(borrow)]
    name: Scalar<'a>,
    #[serde(borrow, rename = "type")]
    type_: Scalar<'a>,
    #[serde(borrow)]
    confidence: Scalar<'a>,
    score: Measure,
    #[serde(borrow)]
    action: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_write_input_tokens: Count,
    /// Nova's names for the cache counts.
    cache_read_input_token_count: Count,
    cache_write_input_token_count: Count,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    output: Option<Loose<Output<'a>>>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    #[serde(borrow)]
    additional_model_response_fields: Option<&'a RawValue>,
    usage: Option<Loose<WireUsage>>,
    #[serde(borrow)]
    trace: Loose<Trace<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Output<'a> {
    #[serde(borrow)]
    message: Loose<Message<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Listed<Loose<Block<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Block<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    tool_use: Option<Loose<ToolUse<'a>>>,
    #[serde(borrow)]
    tool_result: Loose<ToolUse<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Loose<Reasoning<'a>>>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    // Clients pass events on as objects with the event name as their only key, as Nova sends them.
    if frame.name.is_empty() {
        return bedrock_nova::read(frame, out);
    }
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    read_event(frame.name, &wire, out)
}

/// Reads the event with this name.
pub(super) fn read_event(name: &str, wire: &Payload<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let index = wire.content_block_index.index();
    match name {
        "contentBlockDelta" => read_delta(index, &wire.delta, out),
        "contentBlockStart" => begin_block(index, &wire.start, out),
        "contentBlockStop" => end_block(index, out),
        "messageStop" => {
            read_word(&wire.stop_reason, wire.additional_model_response_fields, out);
            out.emit(Event::Proof);
        }
        "metadata" => {
            emit_usage(wire.usage.as_ref(), out);
            read_guardrail(&wire.trace.guardrail, out);
        }
        "messageStart" => out.choice(0),
        _ => return Reading::Strange,
    }
    Reading::Read
}

pub(super) fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if body.output.is_none() && body.stop_reason.said().is_none() {
        return Reading::Strange;
    }
    let content = body.output.as_ref().map(|output| &output.message.content);
    for (index, block) in (0..).zip(content.into_iter().flat_map(|content| content.iter())) {
        read_block(index, block, out);
    }
    emit_usage(body.usage.as_ref(), out);
    read_guardrail(&body.trace.guardrail, out);
    read_word(&body.stop_reason, body.additional_model_response_fields, out);
    // `InvokeModel` sends the same body with extra fields.
    added_to(frame.data).read(out);
    Reading::Read
}

fn read_block(index: u32, block: &Block<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(text) = &block.text {
        out.text(0, text);
    }
    if let Some(call) = &block.tool_use {
        begin_call(index, call, out);
        end_block(index, out);
    }
    if let Some(reasoning) = &block.reasoning_content {
        // Redacted reasoning has no text, but still counts as reasoning.
        out.emit(Event::Reasoning { choice: 0, text: &reasoning.reasoning_text.text });
    }
    if block.text.is_none() && block.tool_use.is_none() && block.reasoning_content.is_none() {
        other_block(&block.tool_result, out);
    }
}

fn begin_block(index: u32, start: &Start<'_>, out: &mut EventSink<'_, '_>) {
    match &start.tool_use {
        Some(call) => begin_call(index, call, out),
        None => other_block(&start.tool_result, out),
    }
}

/// Reads a block that is neither text nor a call. A call whose result is in the answer has already
/// run.
fn other_block(result: &ToolUse<'_>, out: &mut EventSink<'_, '_>) {
    out.by_provider(0, &result.tool_use_id);
    out.emit(Event::OtherContent { choice: 0, kind: "block" });
}

fn begin_call(index: u32, call: &ToolUse<'_>, out: &mut EventSink<'_, '_>) {
    let (id, name) = (&call.tool_use_id, &call.name);
    out.emit(Event::ToolCallStart { choice: 0, call: index, id, name });
    // Nova's own tools, `nova_grounding` and `nova_code_interpreter`.
    if &*call.type_ == "server_tool_use" {
        out.emit(Event::ToolCallByProvider { choice: 0, call: index });
    }
    if let Some(input) = call.input {
        out.emit(Event::ToolCallDelta { choice: 0, call: index, arguments: input.get() });
    }
}

fn read_delta(index: u32, delta: &Delta<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(text) = &delta.text {
        out.text(0, text);
    }
    if let Some(Loose(reasoning)) = &delta.reasoning_content
        && !(reasoning.text.is_empty() && reasoning.redacted_content.is_empty())
    {
        out.emit(Event::Reasoning { choice: 0, text: &reasoning.text });
    }
    let Some(Loose(ToolInput { input })) = &delta.tool_use else { return };
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Additional<'a> {
    #[serde(borrow)]
    stop_sequence: Text<'a>,
    #[serde(borrow)]
    delta: Loose<AdditionalDelta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AdditionalDelta<'a> {
    #[serde(borrow)]
    stop_sequence: Text<'a>,
}

fn read_word(word: &Scalar<'_>, additional: Option<&RawValue>, out: &mut EventSink<'_, '_>) {
    let additional: Loose<Additional<'_>> =
        additional.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    for sequence in [&additional.stop_sequence, &additional.delta.stop_sequence] {
        if !sequence.is_empty() {
            out.detail(Some(0), "stop_sequence", sequence);
            out.stop_sequence(0);
        }
    }
    if let Some(word) = word.said() {
        out.emit(Event::Word { choice: 0, field: "stopReason", word: word.clone() });
    }
}

fn read_guardrail(guardrail: &Guardrail<'_>, out: &mut EventSink<'_, '_>) {
    out.detail(None, "guardrail.actionReason", &guardrail.action_reason);
    for assessment in guardrail.input_assessment.values() {
        assessment.read(None, out);
    }
    for assessment in guardrail.output_assessments.values().flat_map(Few::iter) {
        assessment.read(Some(0), out);
    }
}

impl Assessment<'_> {
    fn read(&self, choice: Option<u32>, out: &mut EventSink<'_, '_>) {
        let policies = [
            &self.content_policy,
            &self.topic_policy,
            &self.word_policy,
            &self.sensitive_information_policy,
            &self.contextual_grounding_policy,
        ];
        for policy in policies {
            let lists =
                [&policy.filters, &policy.topics, &policy.managed_word_lists, &policy.pii_entities];
            for finding in lists.into_iter().flat_map(Few::iter) {
                // All topics have the same type, so the name comes first.
                let category = finding.name.kept().or_else(|| finding.type_.kept());
                out.rate(&SafetyRating {
                    choice,
                    category: category.unwrap_or_default(),
                    probability: finding.confidence.kept(),
                    score: finding.score.0.clone(),
                    blocked: finding.action.to_text().is_some_and(|action| action == "BLOCKED"),
                    ..SafetyRating::default()
                });
            }
        }
    }
}

fn emit_usage(usage: Option<&Loose<WireUsage>>, out: &mut EventSink<'_, '_>) {
    let Some(usage) = usage else { return };
    out.emit(Event::Usage(Usage {
        input: usage.input_tokens.0,
        output: usage.output_tokens.0,
        reasoning: None,
        cache_read: usage.cache_read_input_tokens.0.or(usage.cache_read_input_token_count.0),
        cache_write: usage.cache_write_input_tokens.0.or(usage.cache_write_input_token_count.0),
    }));
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("stopReason") && probe.has("output")
        || matches!(
            probe.name(),
            "messageStart" | "contentBlockStart" | "contentBlockDelta" | "messageStop"
        )
}
