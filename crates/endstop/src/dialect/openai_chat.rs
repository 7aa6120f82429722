//! Chat completions of OpenAI and compatible hosts.
//!
//! Hosts differ: the finish reason may be absent, null or empty until the end, may come twice, and
//! may be followed by content. Usage may come in a separate chunk, and `error` in any chunk.
//!
//! Source: openai-openapi spec 2.3.0, `openai` 3.49.0, and recorded responses for the differences.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::anthropic::read_guardrail;
use super::errors::is_set;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::chat::{
    BodyWriter, ChatMessage, ChatPart, ChatRequest, JsonFormat, PastCall, RequestWriter, Tool,
    ToolChoice, ToolResult, Unwritable,
};
use crate::dialect::common::{self, MESSAGES, WORDS_IF_SAID};
use crate::ending::{Reason, SafetyRating, Usage};
use crate::event::{Event, Word};
use crate::fault::pattern::{class, message, name};
use crate::fault::{ErrorPattern, FaultKind};
use crate::frame::{Frame, FrameKind, Framing};
use crate::gateway_error::{ErrorEnd, ErrorShape, KeepAlive};
use crate::mend;
use crate::next_request::{
    ConversationShape, Effort, ForcedTool, RequestShape, Restriction, Scale, Temperature,
    UsageOption,
};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::text::{WORD_CAP, clean};
use crate::wire::{
    Argument, Content, Count, Few, Flag, Listed, Loose, Place, Present, Scalar, Text, is_nothing,
};

/// The `openai-chat` dialect.
pub static DIALECT: Dialect = Dialect {
    id: "openai-chat",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[
        Words::plain(
            "finish_reason",
            "choices[].finish_reason",
            &[
                ("stop", Reason::Complete),
                ("length", Reason::OutputLimit),
                ("tool_calls", Reason::ToolCall),
                ("function_call", Reason::ToolCall),
                ("content_filter", Reason::Filtered),
                // Not from OpenAI: hosts and routers send it for a response that failed midway.
                ("error", Reason::Failed),
            ],
        ),
        // Azure's vision previews of 2023 and 2024 use this field instead (@azure/openai
        // 1.0.0-beta.13).
        Words::plain(
            "finish_details.type",
            "choices[].finish_details.type",
            &[("stop", Reason::Complete), ("max_tokens", Reason::OutputLimit)],
        ),
    ],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Marker(common::END_MARKER),
    error_patterns: ERROR_PATTERNS,
    caps: &["max_completion_tokens", "max_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: ERROR_SHAPE,
    request_shape: REQUEST_SHAPE,
    usage: &[
        "usage.prompt_tokens",
        "usage.completion_tokens",
        "usage.completion_tokens_details.reasoning_tokens",
        "usage.prompt_tokens_details.cached_tokens",
    ],
    counts: &[],
    padding: &["obfuscation"],
    claims,
    source: "openai 3.49.0; openai-openapi 2.3.0",
};

/// Error shape. Every client that was tried raises on the error and skips comments.
pub(crate) const ERROR_SHAPE: ErrorShape =
    ErrorShape { end: ErrorEnd::Clean, keep_alive: KeepAlive::Comment, ..common::ERRORS };

/// Request fields of this dialect on OpenAI and most hosts.
pub(crate) const REQUEST_SHAPE: RequestShape = RequestShape {
    conversation: &[ConversationShape::MessageList(MESSAGES)],
    forced_tools: FORCED_TOOLS,
    temperature: Temperature {
        field: "temperature",
        // These accept only 1 or no value; Kimi only its own (MoonshotAI/kimi-code#740,
        // HKUDS/nanobot#4967).
        refused_by: &["o1", "o3", "o4-", "gpt-5", "gpt-6", "kimi"],
        only_if_sent: false,
    },
    efforts: EFFORTS,
    usage: Some(USAGE),
    writer: Some(RequestWriter {
        path: "/chat/completions",
        streamed_path: "/chat/completions",
        headers: &[],
        body: write,
    }),
    ..common::REQUEST
};

/// Option without which streams have no usage. With it, the usage comes in a separate last event
/// (openai-openapi 2.3.0).
pub(crate) const USAGE: UsageOption = UsageOption {
    field: "stream_options",
    value: "{\"include_usage\":true}",
    is_extra: is_usage_alone,
};

fn is_usage_alone(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Alone<'a> {
        choices: [(); 0],
        #[serde(borrow)]
        usage: &'a RawValue,
    }
    serde_json::from_slice::<Alone<'_>>(event)
        .is_ok_and(|Alone { choices: [], usage }| usage.get().starts_with('{'))
}

/// Forced tools by name, in the current form and in the form of 2023.
pub(crate) static FORCED_TOOLS: &[ForcedTool] = &[
    ForcedTool {
        tools: "tools",
        field: "tool_choice",
        value: choice,
        models: &[],
        restrictions: &[],
    },
    ForcedTool {
        tools: "functions",
        field: "function_call",
        value: |tool| json!({ "name": tool }),
        models: &[],
        restrictions: &[],
    },
];

pub(crate) fn choice(tool: &str) -> Value {
    json!({ "type": "function", "function": { "name": tool } })
}

/// Forced tools of hosts whose models think by default and reject a tool choice while thinking.
pub(crate) static THINKS_UNLESS_TOLD: &[ForcedTool] = &[ForcedTool {
    tools: "tools",
    field: "tool_choice",
    value: choice,
    models: &[],
    restrictions: &[Restriction {
        field: "thinking.type",
        fine: &["disabled"],
        by_default: true,
        because: "thinking is enabled",
    }],
}];

/// Reasoning fields of hosts whose models think by default.
pub(crate) static EFFORTS_THINKING: &[Effort] = &[
    Effort::new("reasoning_effort", WORDS_IF_SAID),
    Effort::new("thinking.type", Scale::Default("enabled", "disabled")),
];

/// Token limit fields, the older one first: many hosts know only that one.
pub(crate) static OLD_CAP: &[&str] = &["max_tokens", "max_completion_tokens"];

/// Reasoning fields of OpenAI, OpenRouter, Alibaba, DeepSeek and others, and vLLM. The first one in
/// the request is used.
static EFFORTS: &[Effort] = &[
    Effort::new("reasoning_effort", WORDS_IF_SAID),
    Effort::new("reasoning.effort", WORDS_IF_SAID),
    Effort::new("reasoning.max_tokens", Scale::tokens_if_said(1024)),
    Effort::new("thinking_budget", Scale::tokens_if_said(128)),
    Effort::new("thinking.budget_tokens", Scale::tokens_if_said(1024)),
    Effort::new("thinking.type", Scale::Switch("enabled", "disabled")),
    Effort::new("enable_thinking", Scale::Flag),
    Effort::new("chat_template_kwargs.enable_thinking", Scale::Flag),
];

/// Reasoning field of hosts where every reasoning model accepts it, requested or not.
pub(crate) static EFFORTS_UNASKED: &[Effort] = &[Effort::new(
    "reasoning_effort",
    Scale::Words { words: common::EFFORT_WORDS, unsaid: Some("low"), given: None },
)];

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/chat/completions"],
    capabilities: Capabilities { choices: true, usage_in_streams: false, ..COMMON_CAPABILITIES },
    notes: &[
        "`function_call` is the deprecated form of `tool_calls`",
        "`max_tokens` is deprecated in favour of `max_completion_tokens`",
    ],
    ..DIALECT.profile()
};

/// Matched stop that SGLang reports after a numerical failure. Its finish reason is then `stop`.
const BROKE_DOWN: &str = "NaN happened";

/// Errors shared by the hosts of this wire.
pub(crate) static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("context_length_exceeded", FaultKind::ContextWindow),
    name("insufficient_quota", FaultKind::Quota),
    name("usage_limit_reached", FaultKind::Quota),
    name("usage_not_included", FaultKind::Quota),
    name("rate_limit_exceeded", FaultKind::RateLimit),
    name("server_is_overloaded", FaultKind::Overloaded),
    name("slow_down", FaultKind::Overloaded),
    name("invalid_api_key", FaultKind::Auth),
    name("model_not_found", FaultKind::NotFound),
    name("content_filter", FaultKind::Filter),
    name("content_policy_violation", FaultKind::Filter),
    name("tool_use_failed", FaultKind::ToolCall),
    name("cyber_policy", FaultKind::Filter),
    name("bio_policy", FaultKind::Filter),
    name("misalignment_policy_violation", FaultKind::Filter),
    class("invalid_request_error", FaultKind::InvalidRequest),
    class("BadRequestError", FaultKind::InvalidRequest),
    class("model_error", FaultKind::Server),
    class("api_error", FaultKind::Server),
    class("rate_limit_error", FaultKind::RateLimit),
    class("overloaded_error", FaultKind::Overloaded),
    class("authentication_error", FaultKind::Auth),
    class("server_error", FaultKind::Server),
    class("internal_server_error", FaultKind::Server),
    class("InternalServerError", FaultKind::Server),
    // gpt-audio reports its token limit as an error, in bodies and streams (recorded,
    // maruel/genai).
    message("max_tokens or model output limit was reached", FaultKind::OutputLimit),
];

fn write(
    request: &ChatRequest,
    profile: &Profile,
    body: &mut BodyWriter,
) -> Result<(), Unwritable> {
    body.put("model", request.model.as_str());
    write_settings(request, profile, body);
    if let (true, Some(usage)) = (request.stream, profile.request_shape.usage) {
        body.put(usage.field, serde_json::from_str(usage.value).unwrap_or(Value::Null));
    }
    if !request.tools.is_empty() {
        body.put("tools", tools(&request.tools));
        let named = |tool: &String| choice(tool);
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body.put("tool_choice", "none"),
            ToolChoice::Required => body.put("tool_choice", "required"),
            ToolChoice::Named(tool) => body.put("tool_choice", named(tool)),
        }
    }
    if let Some(JsonFormat { name, schema }) = &request.format {
        let format = json!({ "name": name, "schema": schema, "strict": true });
        body.put("response_format", json!({ "type": "json_schema", "json_schema": format }));
    }
    body.end("messages", messages(request));
    Ok(())
}

/// Writes the settings that most wires name alike: limit, temperature, stop sequences, stream.
pub(super) fn write_settings(request: &ChatRequest, profile: &Profile, body: &mut BodyWriter) {
    if let (Some(cap), Some(field)) = (request.max_output_tokens, profile.caps.first()) {
        body.put(field, cap);
    }
    body.put_some("temperature", request.temperature);
    body.put_some("top_p", request.top_p);
    if let (false, Some(field)) = (request.stop.is_empty(), profile.request_shape.stop.first()) {
        body.put(field, request.stop.clone());
    }
    if request.stream {
        body.put("stream", true);
    }
}

pub(super) fn tools(tools: &[Tool]) -> Vec<Value> {
    let function = |Tool { name, description, schema }: &Tool| json!({ "type": "function", "function": { "name": name, "description": description, "parameters": schema } });
    tools.iter().map(function).collect()
}

/// Returns the messages, the instructions first.
pub(super) fn messages(request: &ChatRequest) -> Vec<Value> {
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    for message in &request.messages {
        match message {
            ChatMessage::User { parts } => {
                messages.push(json!({ "role": "user", "content": write_parts(parts) }));
            }
            ChatMessage::Assistant(assistant) => {
                let mut message = json!({ "role": "assistant", "content": assistant.text });
                if !assistant.calls.is_empty() {
                    let call = |PastCall { id, name, arguments }: &PastCall| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
                    let calls: Vec<Value> = assistant.calls.iter().map(call).collect();
                    common::insert(&mut message, "tool_calls", calls);
                    if assistant.text.is_empty() {
                        common::insert(&mut message, "content", Value::Null);
                    }
                }
                messages.push(message);
            }
            ChatMessage::Tool { results } => {
                let result = |ToolResult { id, content, .. }: &ToolResult| json!({ "role": "tool", "tool_call_id": id, "content": content });
                messages.extend(results.iter().map(result));
            }
        }
    }
    messages
}

fn write_parts(parts: &[ChatPart]) -> Value {
    if let [ChatPart::Text { text }] = parts {
        return text.as_str().into();
    }
    let part = |part: &ChatPart| match part {
        ChatPart::Text { text } => json!({ "type": "text", "text": text }),
        ChatPart::Image(image) => {
            json!({ "type": "image_url", "image_url": { "url": image.url() } })
        }
    };
    parts.iter().map(part).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    choices: Listed<Loose<Choice<'a>>>,
    usage: Option<Loose<WireUsage>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_filter_results: Few<Loose<PromptFilter<'a>>>,
    /// Older name of `prompt_filter_results`.
    #[serde(borrow)]
    prompt_annotations: Few<Loose<PromptFilter<'a>>>,
    x_groq: Loose<XGroq>,
    base_resp: Loose<BaseResp>,
    /// MiniMax's filter of the answer.
    output_sensitive: Flag,
    /// Bedrock's guardrail, on `InvokeModel`.
    #[serde(borrow, rename = "amazon-bedrock-guardrailAction")]
    guardrail_action: Scalar<'a>,
}

/// Errors of MiniMax, which come with HTTP 200.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BaseResp {
    status_code: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptFilter<'a> {
    #[serde(borrow)]
    content_filter_results: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct XGroq {
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Count,
    #[serde(borrow)]
    delta: Option<Loose<Message<'a>>>,
    #[serde(borrow)]
    message: Option<Loose<Message<'a>>>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow, rename = "finishReason")]
    finish_reason_camel: Scalar<'a>,
    #[serde(borrow)]
    finish_details: Loose<FinishDetails<'a>>,
    #[serde(borrow)]
    native_finish_reason: Scalar<'a>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    #[serde(borrow)]
    matched_stop: Scalar<'a>,
    #[serde(borrow)]
    content_filter_results: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FinishDetails<'a> {
    #[serde(borrow, rename = "type")]
    type_: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Content<'a, Loose<Part<'a>>>,
    #[serde(borrow)]
    reasoning_content: Text<'a>,
    #[serde(borrow)]
    reasoning: Text<'a>,
    #[serde(borrow)]
    refusal: Text<'a>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
    #[serde(borrow)]
    function_call: Option<Loose<Function<'a>>>,
    #[serde(borrow)]
    audio: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Few<Loose<Thought<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Thought<'a> {
    #[serde(borrow)]
    text: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    index: Place,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(rename = "type")]
    type_: Present,
    #[serde(borrow)]
    function: Loose<Function<'a>>,
    #[serde(borrow)]
    custom: Loose<Custom<'a>>,
    /// Name and arguments of a call without `function`.
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Number of the call in the form of 2023, which has none.
const OLD_CALL: u32 = u32::MAX;

impl<'a> ToolCall<'a> {
    /// Returns the number of the call, or else its place.
    fn number(&self, position: usize) -> u32 {
        let number = match self.index.count.0 {
            Some(_) => self.index.count.index(),
            None => u32::try_from(position).unwrap_or(u32::MAX),
        };
        number.min(OLD_CALL - 1)
    }

    /// Returns the name and the arguments of the function.
    fn function(&self) -> (&str, Option<&'a RawValue>) {
        let Self { function, name, arguments, .. } = self;
        if function.name.is_empty() && function.arguments.is_none() {
            return (name, *arguments);
        }
        (&function.name, function.arguments)
    }

    /// Reports whether clients read this call differently: its number is not one, or it calls a function
    /// and a custom tool at once.
    fn is_ambiguous(&self) -> bool {
        let (name, arguments) = self.function();
        let function = !name.is_empty() || arguments.is_some_and(|raw| !is_nothing(raw));
        self.index.odd || function && !self.custom.is_empty()
    }

    /// Reports whether this is not an object or has none of the fields of a call. A part of a streamed
    /// call has at least its number.
    fn is_unreadable(&self) -> bool {
        let Self { index, id, type_, custom, .. } = self;
        let (name, arguments) = self.function();
        let custom = custom.is_empty();
        let function = name.is_empty() && arguments.is_none();
        index.count.0.is_none() && id.is_empty() && !type_.0 && function && custom
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Custom<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    input: Argument<'a>,
}

impl Custom<'_> {
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.input.text.is_empty() && !self.input.odd
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: Count,
    completion_tokens: Count,
    completion_tokens_details: Loose<OutputDetails>,
    prompt_tokens_details: Loose<InputDetails>,
    /// Reasoning tokens of Together and of DeepSeek on Azure.
    reasoning_tokens: Count,
    /// DeepSeek's name for cached input tokens.
    prompt_cache_hit_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
}

impl WireUsage {
    /// Reports whether the usage has the field names of this wire.
    pub(super) fn is_own(&self) -> bool {
        self.prompt_tokens.0.is_some() || self.completion_tokens.0.is_some()
    }

    pub(super) fn read(&self) -> Usage {
        Usage {
            input: self.prompt_tokens.0,
            output: self.completion_tokens.0,
            reasoning: self
                .completion_tokens_details
                .reasoning_tokens
                .0
                .or(self.reasoning_tokens.0),
            cache_read: self
                .prompt_tokens_details
                .cached_tokens
                .0
                .or(self.prompt_cache_hit_tokens.0),
            cache_write: None,
        }
    }
}

pub(super) fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(chunk)) = serde_json::from_slice::<Loose<Chunk<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    // Other wires have other names for token counts.
    let counts = chunk.usage.as_ref().is_some_and(|usage| usage.is_own());
    let is_own = chunk.object.starts_with("chat.completion") || counts;
    if !chunk.choices.present && !is_own && chunk.error.is_none() {
        return Reading::Strange;
    }
    out.emit(Event::Begin { id: &chunk.id, model: &chunk.model });
    for prompt in chunk.prompt_filter_results.iter().chain(chunk.prompt_annotations.iter()) {
        rate_categories(None, prompt.content_filter_results, out);
    }
    for (index, choice) in chunk.choices.numbered(|choice| choice.index) {
        read_choice(index, choice, frame.kind, out);
    }
    let usages = [chunk.usage.as_ref(), chunk.x_groq.usage.as_ref()];
    for usage in usages.into_iter().flatten() {
        out.emit(Event::Usage(usage.read()));
    }
    read_guardrail(&chunk.guardrail_action, out);
    if chunk.output_sensitive.0 {
        out.guardrail();
    }
    let failed = chunk.choices.iter().any(|choice| is_set(choice.error)) || is_set(chunk.error);
    let failed = failed || chunk.base_resp.status_code.0.is_some_and(|code| code != 0);
    if failed || chunk.object.0 == "error" { Reading::Error } else { Reading::Read }
}

/// Field of routers with the upstream's own finish reason.
const NATIVE: &str = "native_finish_reason";

/// The upstream's finish reason beside the router's. It has no meaning of its own, but users can
/// give it one.
pub(crate) const NATIVE_WORDS: Words = Words::plain(NATIVE, "choices[].native_finish_reason", &[]);

fn read_choice(index: u32, choice: &Choice<'_>, kind: FrameKind, out: &mut EventSink<'_, '_>) {
    out.choice(index);
    // Perplexity sends the whole message with each delta.
    let (message, beside) = match (kind, &choice.delta, &choice.message) {
        (FrameKind::Body, delta, Some(message)) => (Some(message), delta.as_ref()),
        (_, Some(delta), message) => (Some(delta), message.as_ref()),
        (_, None, message) => (message.as_ref(), None),
    };
    if let Some(message) = message {
        read_message(index, message, kind, out);
    }
    if let Some(beside) = beside {
        read_calls_beside(index, beside, out);
    }
    if let Some(usage) = &choice.usage {
        out.emit(Event::Usage(usage.read()));
    }
    read_details(index, choice, out);
    // The upstream's word beside the router's own counts only if the user gave it a meaning.
    if let Some(word) = choice.native_finish_reason.said()
        && out.is_taught(NATIVE, &word.to_text())
    {
        out.emit(Event::Word { choice: index, field: NATIVE, word: word.clone() });
    }
    let words = [
        ("finish_reason", &choice.finish_reason),
        ("finish_reason", &choice.finish_reason_camel),
        ("finish_details.type", &choice.finish_details.type_),
    ];
    for (field, scalar) in words {
        if let Some(word) = scalar.said() {
            out.emit(Event::Word { choice: index, field, word: word.clone() });
        }
    }
}

fn read_message(choice: u32, message: &Message<'_>, kind: FrameKind, out: &mut EventSink<'_, '_>) {
    for text in [&message.reasoning_content, &message.reasoning] {
        out.reasoning(choice, text);
    }
    match &message.content {
        Content::Text(text) => out.text(choice, text),
        Content::Parts(parts) => parts.iter().for_each(|part| read_part(choice, part, out)),
    }
    out.refusal(choice, &message.refusal);
    for (position, call) in message.tool_calls.iter().enumerate() {
        let number = call.number(position);
        if call.is_unreadable() || out.has_call(choice, OLD_CALL) {
            out.spoil_call(choice, number);
            continue;
        }
        if call.is_ambiguous() {
            out.spoil_call(choice, number);
        }
        let custom = &call.custom;
        if custom.is_empty() {
            let (name, arguments) = call.function();
            read_call(choice, number, &call.id, name, arguments, out);
        } else {
            read_custom_call(choice, number, &call.id, custom, out);
        }
        if kind == FrameKind::Body {
            out.emit(Event::ToolCallEnd { choice, call: number });
        }
    }
    if message.tool_calls.odd {
        out.spoil_call(choice, 0);
    }
    if let Some(function) = &message.function_call {
        read_old_call(choice, function, out);
    }
    if message.audio.is_some() {
        out.emit(Event::OtherContent { choice, kind: "audio" });
    }
}

/// Reads a call in the form of 2023. Beside calls in the current form it contradicts them: clients
/// read the one or the other.
fn read_old_call(choice: u32, function: &Function<'_>, out: &mut EventSink<'_, '_>) {
    let is_second = !out.has_call(choice, OLD_CALL) && out.next_call(choice) > 0;
    read_call(choice, OLD_CALL, "", &function.name, function.arguments, out);
    if is_second && out.has_call(choice, OLD_CALL) {
        out.spoil_call(choice, OLD_CALL);
    }
}

/// Reads the calls of a whole message beside a delta, or of a delta beside a whole message. A client
/// may read either. They repeat what is known, or are calls of their own.
fn read_calls_beside(choice: u32, message: &Message<'_>, out: &mut EventSink<'_, '_>) {
    if message.tool_calls.odd {
        out.spoil_call(choice, 0);
    }
    for (position, call) in message.tool_calls.iter().enumerate() {
        let number = call.number(position);
        if call.is_unreadable() || out.has_call(choice, OLD_CALL) {
            out.spoil_call(choice, number);
            continue;
        }
        if call.is_ambiguous() {
            out.spoil_call(choice, number);
        }
        let custom = &call.custom;
        let (name, arguments) = call.function();
        let name = if custom.name.is_empty() { name } else { &custom.name };
        out.emit(Event::ToolCallStart { choice, call: number, id: &call.id, name });
        if !custom.name.is_empty() {
            out.emit(Event::ToolCallTakesText { choice, call: number });
        }
        if custom.input.odd {
            out.spoil_call(choice, number);
        }
        let input = Cow::Borrowed(&*custom.input.text);
        read_repeated(choice, number, &arguments.map_or(input, arguments_text), out);
    }
    if let Some(function) = &message.function_call {
        let (name, arguments) = (&*function.name, function.arguments);
        if out.has_call(choice, OLD_CALL) {
            out.emit(Event::ToolCallStart { choice, call: OLD_CALL, id: "", name });
            let arguments = arguments.map_or(Cow::Borrowed(""), arguments_text);
            read_repeated(choice, OLD_CALL, &arguments, out);
        } else {
            read_old_call(choice, function, out);
        }
    }
}

/// Reads all arguments of a call so far, which may be known.
fn read_repeated(choice: u32, call: u32, arguments: &str, out: &mut EventSink<'_, '_>) {
    if out.has_arguments(choice, call) && !arguments.is_empty() {
        out.compare_arguments(choice, call, arguments);
    } else if !arguments.is_empty() {
        out.emit(Event::ToolCallDelta { choice, call, arguments });
    }
}

fn read_part(choice: u32, part: &Part<'_>, out: &mut EventSink<'_, '_>) {
    for thought in part.thinking.iter() {
        out.reasoning(choice, &thought.text);
    }
    match &*part.type_ {
        "text" | "output_text" => out.text(choice, &part.text),
        "thinking" | "reasoning" => out.reasoning(choice, &part.text),
        _ => out.emit(Event::OtherContent { choice, kind: "part" }),
    }
}

fn read_call(
    choice: u32,
    call: u32,
    id: &str,
    name: &str,
    arguments: Option<&RawValue>,
    out: &mut EventSink<'_, '_>,
) {
    if !id.is_empty() || !name.is_empty() {
        out.emit(Event::ToolCallStart { choice, call, id, name });
    }
    // Plain JSON is all of the arguments, whatever came before it.
    if out.has_arguments(choice, call) && arguments.is_some_and(is_plain_json) {
        return out.spoil_call(choice, call);
    }
    let arguments = arguments.map_or(Cow::Borrowed(""), arguments_text);
    if !arguments.is_empty() {
        if out.takes_text(choice, call) {
            out.spoil_call(choice, call);
        }
        out.emit(Event::ToolCallDelta { choice, call, arguments: &arguments });
    }
}

fn is_plain_json(raw: &RawValue) -> bool {
    !raw.get().starts_with('"') && raw.get() != "null"
}

/// Reads a call of a custom tool, which takes free text.
fn read_custom_call(
    choice: u32,
    call: u32,
    id: &str,
    custom: &Custom<'_>,
    out: &mut EventSink<'_, '_>,
) {
    // Clients that know only one form do not see the other part of the call.
    if out.has_arguments(choice, call) && !out.takes_text(choice, call) {
        out.spoil_call(choice, call);
    }
    if !id.is_empty() || !custom.name.is_empty() {
        out.emit(Event::ToolCallStart { choice, call, id, name: &custom.name });
        out.emit(Event::ToolCallTakesText { choice, call });
    }
    if custom.input.odd {
        out.spoil_call(choice, call);
    } else if !custom.input.text.is_empty() {
        out.emit(Event::ToolCallDelta { choice, call, arguments: &custom.input.text });
    }
}

/// Returns the arguments of a call as text. They should be JSON in a string, but some hosts send
/// plain JSON.
pub(super) fn arguments_text(raw: &RawValue) -> Cow<'_, str> {
    match raw.get() {
        "null" => Cow::Borrowed(""),
        text if text.starts_with('"') => mend::string(text).unwrap_or(Cow::Borrowed(text)),
        json => Cow::Borrowed(json),
    }
}

fn read_details(choice: u32, wire: &Choice<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(word) = wire.native_finish_reason.said() {
        out.detail(Some(choice), NATIVE, &word.to_text());
    }
    // vLLM and SGLang send the matched stop string or a token id.
    for (key, scalar) in [("stop_reason", &wire.stop_reason), ("matched_stop", &wire.matched_stop)]
    {
        if let Some(word) = scalar.said() {
            out.detail(Some(choice), key, &word.to_text());
            match word {
                Word::Text(text) if text == BROKE_DOWN => {
                    out.mark(choice, |marks| marks.breakdown = true);
                }
                Word::Text(_) => out.stop_sequence(choice),
                Word::Number(_) | Word::Odd(_) => {}
            }
        }
    }
    rate_categories(Some(choice), wire.content_filter_results, out);
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Category<'a> {
    filtered: Flag,
    detected: Flag,
    #[serde(borrow)]
    severity: Scalar<'a>,
    #[serde(borrow)]
    code: Text<'a>,
}

/// Emits the result of Azure's filter for each category, or its `error` if the filter did not run.
pub(super) fn rate_categories(
    choice: Option<u32>,
    results: Option<&RawValue>,
    out: &mut EventSink<'_, '_>,
) {
    let Some(Ok(results)) = results.map(|results| {
        serde_json::from_str::<BTreeMap<Text<'_>, Loose<Category<'_>>>>(results.get())
    }) else {
        return;
    };
    for (name, category) in &results {
        if &**name == "error" {
            out.detail(choice, "content_filter_results.error", &category.code);
            continue;
        }
        out.rate(&SafetyRating {
            choice,
            category: clean(name, WORD_CAP),
            // Some categories have a severity; the others are only detected or not.
            probability: category.detected.0.then(|| "detected".to_owned()),
            severity: category.severity.kept(),
            blocked: category.filtered.0,
            ..SafetyRating::default()
        });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.lists("choices", &["message", "delta"])
        || probe.text("object").starts_with("chat.completion")
}
