//! `generateContent` and `streamGenerateContent`, on AI Studio and on Vertex.
//!
//! Each candidate has a finish reason, and only the end of the body ends a stream. A blocked prompt
//! has no candidates: its finish reason is `promptFeedback.blockReason`. Tool calls end with
//! `STOP`.
//!
//! Source: `google-genai` 3.1.0, `google-ai-generativelanguage` 0.12.1, `google-cloud-aiplatform`
//! 2.6.0, the Vertex discovery document of 2026-11-06.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::partial_args::{Piece, Value};
use super::{CallsClose, CountOf, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::chat::{
    BodyWriter, ChatMessage, ChatPart, ChatRequest, Image, ImageSource, PastCall, RequestWriter,
    Tool, ToolChoice, ToolResult, Unwritable,
};
use crate::dialect::common::{self, MESSAGES, bare_text};
use crate::ending::{Reason, SafetyRating, Usage};
use crate::event::Event;
use crate::fault::pattern::{class, message, name};
use crate::fault::{ErrorPattern, FaultKind};
use crate::frame::{Frame, FrameKind, Framing};
use crate::gateway_error::{ErrorEnd, ErrorShape, GatewayError};
use crate::next_request::{
    Blocks, ConversationShape, Effort, ForcedTool, MessageList, PauseProtocol, RequestShape, Scale,
    Temperature,
};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile, Token, TokenInput, TokenOf};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Flag, Listed, Loose, Measure, Present, Scalar, Text, is_nothing};

/// The `gemini-generate` dialect.
pub static DIALECT: Dialect = Dialect {
    id: "gemini-generate",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[
        Words {
            field: "finishReason",
            path: "candidates[].finishReason",
            rows: &[
                ("STOP", Reason::Complete),
                ("MAX_TOKENS", Reason::OutputLimit),
                ("SAFETY", Reason::Safety),
                ("RECITATION", Reason::Recitation),
                // Documented as "all other reasons": it only rules out the others.
                ("OTHER", Reason::Unknown),
                ("LANGUAGE", Reason::Filtered),
                ("BLOCKLIST", Reason::Filtered),
                ("PROHIBITED_CONTENT", Reason::Filtered),
                ("SPII", Reason::Filtered),
                ("MODEL_ARMOR", Reason::Filtered),
                ("MALFORMED_FUNCTION_CALL", Reason::MalformedToolCall),
                ("UNEXPECTED_TOOL_CALL", Reason::MalformedToolCall),
                ("TOO_MANY_TOOL_CALLS", Reason::Failed),
                ("MALFORMED_RESPONSE", Reason::Failed),
                ("MISSING_THOUGHT_SIGNATURE", Reason::Failed),
                ("IMAGE_SAFETY", Reason::Safety),
                ("IMAGE_PROHIBITED_CONTENT", Reason::Filtered),
                ("IMAGE_RECITATION", Reason::Recitation),
                ("IMAGE_OTHER", Reason::Failed),
                ("NO_IMAGE", Reason::Failed),
                ("CONTINUATION", Reason::Paused),
                // Known only from other clients, which treat it as a filter.
                ("ESCALATION", Reason::Filtered),
            ],
            vague: &["OTHER", "IMAGE_OTHER", "ESCALATION"],
            empty: &["FINISH_REASON_UNSPECIFIED"],
            numbers: &[],
            pending: &[],
        },
        Words {
            field: "blockReason",
            path: "promptFeedback.blockReason",
            rows: &[
                ("SAFETY", Reason::Safety),
                ("OTHER", Reason::Filtered),
                ("BLOCKLIST", Reason::Filtered),
                ("PROHIBITED_CONTENT", Reason::Filtered),
                ("IMAGE_SAFETY", Reason::Safety),
                ("MODEL_ARMOR", Reason::Filtered),
                ("JAILBREAK", Reason::Filtered),
            ],
            vague: &["OTHER"],
            empty: &["BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"],
            numbers: &[],
            pending: &[],
        },
    ],
    wins: Wins::Last,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Word,
    error_patterns: ERROR_PATTERNS,
    caps: &["generationConfig.maxOutputTokens"],
    streams: Streams::Path("stream"),
    error_shape: ERROR_SHAPE,
    request_shape: REQUEST_SHAPE,
    usage: &[
        "usageMetadata.promptTokenCount",
        "usageMetadata.candidatesTokenCount",
        "usageMetadata.thoughtsTokenCount",
        "usageMetadata.cachedContentTokenCount",
    ],
    counts: &[
        ("promptTokenCount", CountOf::Input),
        ("candidatesTokenCount", CountOf::Output),
        ("thoughtsTokenCount", CountOf::Reasoning),
        ("cachedContentTokenCount", CountOf::CacheRead),
    ],
    padding: &["totalTokenCount", "tokenCount"],
    claims,
    source: "google-genai 3.1.0; google-ai-generativelanguage 0.12.1; google-cloud-aiplatform 2.6.0",
};

/// Error shape: `error` must be the first key of an unnamed event. gemini-cli overlooks the error,
/// crashes on an abort, asks again after an unfinished event, and ends with exit code 1 if that does
/// not help. google-genai fails on comments.
pub(super) const ERROR_SHAPE: ErrorShape = ErrorShape {
    in_stream: tell,
    unfinished: "data: {",
    body: tell,
    end: ErrorEnd::Clean,
    ..common::ERRORS
};

fn tell(gateway_error: &GatewayError<'_>) -> serde_json::Value {
    let status = match gateway_error.status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        400..=499 => "FAILED_PRECONDITION",
        504 => "DEADLINE_EXCEEDED",
        _ => "UNAVAILABLE",
    };
    serde_json::json!({ "error": {
        "code": gateway_error.status,
        "message": gateway_error.message,
        "status": status,
        "details": [{ "reason": gateway_error.code, "domain": "endstop" }],
    } })
}

/// Request fields of this dialect.
pub(crate) const REQUEST_SHAPE: RequestShape = RequestShape {
    conversation: &[ConversationShape::MessageList(MessageList {
        list: "contents",
        assistant: "model",
        content: "parts",
        part: bare_text,
        plain: false,
        ..MESSAGES
    })],
    paused: PauseProtocol::Token(CONTINUATION),
    forced_tools: &[ForcedTool {
        tools: "tools",
        field: "toolConfig.functionCallingConfig",
        value: |tool| serde_json::json!({ "mode": "ANY", "allowedFunctionNames": [tool] }),
        models: &[],
        restrictions: &[],
    }],
    temperature: Temperature {
        field: "generationConfig.temperature",
        refused_by: &[],
        only_if_sent: false,
    },
    // A budget up to version 2.5, a level from version 3 on.
    efforts: &[
        Effort {
            field: "generationConfig.thinkingConfig.thinkingBudget",
            models: &["gemini-2"],
            scale: Scale::Tokens { least: 512, unsaid: Some(1024) },
        },
        Effort {
            field: "generationConfig.thinkingConfig.thinkingLevel",
            models: &["gemini-3", "gemini-4", "gemini-pro-latest", "gemini-flash-latest"],
            scale: Scale::Words {
                words: &["high", "medium", "low"],
                unsaid: Some("low"),
                given: None,
            },
        },
        Effort {
            field: "generationConfig.thinkingConfig.thinkingBudget",
            models: &[],
            scale: Scale::Tokens { least: 512, unsaid: None },
        },
    ],
    either_case: true,
    gather: Some(gather),
    writer: Some(RequestWriter {
        path: "/v1beta/models/{model}:generateContent",
        streamed_path: "/v1beta/models/{model}:streamGenerateContent?alt=sse",
        headers: &[],
        body: write,
    }),
    ..common::REQUEST
};

/// Continuation token, sent with the unchanged first request. The token limit counts all parts of
/// the response (`google-genai` 3.1.0 `models.py`).
pub(crate) const CONTINUATION: Token = Token {
    field: "continuationToken",
    of: TokenOf::Answer,
    input: TokenInput::Same,
    held_by: None,
    restrictions: &[],
    cap_counts_all: true,
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &[":generateContent", ":streamGenerateContent"],
    capabilities: Capabilities { choices: true, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("RESOURCE_EXHAUSTED", FaultKind::RateLimit),
    name("UNAVAILABLE", FaultKind::Overloaded),
    name("DEADLINE_EXCEEDED", FaultKind::Timeout),
    name("CANCELLED", FaultKind::Cancelled),
    class("INTERNAL", FaultKind::Server),
    name("UNAUTHENTICATED", FaultKind::Auth),
    name("PERMISSION_DENIED", FaultKind::Auth),
    name("NOT_FOUND", FaultKind::NotFound),
    message("api key not valid", FaultKind::Auth),
    class("FAILED_PRECONDITION", FaultKind::InvalidRequest),
    class("INVALID_ARGUMENT", FaultKind::InvalidRequest),
];

fn write(request: &ChatRequest, _: &Profile, body: &mut BodyWriter) -> Result<(), Unwritable> {
    let schema = request.format.as_ref().map(|format| &format.schema);
    let config = common::object([
        ("maxOutputTokens", request.max_output_tokens.map(Into::into)),
        ("temperature", request.temperature.map(Into::into)),
        ("topP", request.top_p.map(Into::into)),
        ("stopSequences", (!request.stop.is_empty()).then(|| json!(request.stop))),
        ("responseMimeType", schema.map(|_| "application/json".into())),
        ("responseJsonSchema", schema.cloned()),
    ]);
    if !request.system.is_empty() {
        body.put("systemInstruction", json!({ "parts": [{ "text": request.system }] }));
    }
    body.put_some("generationConfig", config);
    if !request.tools.is_empty() {
        let tool = |Tool { name, description, schema }: &Tool| json!({ "name": name, "description": description, "parametersJsonSchema": schema });
        let tools: Vec<_> = request.tools.iter().map(tool).collect();
        body.put("tools", json!([{ "functionDeclarations": tools }]));
        let calling = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(json!({ "mode": "NONE" })),
            ToolChoice::Required => Some(json!({ "mode": "ANY" })),
            ToolChoice::Named(tool) => {
                Some(json!({ "mode": "ANY", "allowedFunctionNames": [tool] }))
            }
        };
        if let Some(calling) = calling {
            body.put("toolConfig", json!({ "functionCallingConfig": calling }));
        }
    }
    let contents: Result<Vec<_>, _> = request.messages.iter().map(write_content).collect();
    body.end("contents", contents?);
    Ok(())
}

/// Collects the parts of the first candidate. Text that arrives in pieces becomes one part.
fn gather(frame: &Frame<'_>, blocks: &mut Blocks) {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Payload<'a> {
        #[serde(borrow)]
        candidates: Few<Candidate<'a>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Candidate<'a> {
        index: Count,
        #[serde(borrow)]
        content: Content<'a>,
        #[serde(borrow)]
        finish_reason: Scalar<'a>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Content<'a> {
        #[serde(borrow)]
        parts: Few<&'a RawValue>,
    }
    if matches!(frame.kind, FrameKind::Exception | FrameKind::Text) {
        return;
    }
    let Ok(payload) = serde_json::from_slice::<Payload<'_>>(frame.data) else {
        return blocks.lose();
    };
    for candidate in payload.candidates.iter().filter(|candidate| candidate.index.index() == 0) {
        candidate.content.parts.iter().for_each(|part| gather_part(part, blocks));
        let ends = frame.kind == FrameKind::Body || candidate.finish_reason.said().is_some();
        if let Some(open) = blocks.last_open().filter(|_| ends) {
            blocks.stop(open);
        }
    }
}

fn gather_part(part: &RawValue, blocks: &mut Blocks) {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OnlyText<'a> {
        #[serde(borrow)]
        text: Text<'a>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct CallPart<'a> {
        #[serde(borrow)]
        function_call: Partial<'a>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Partial<'a> {
        #[serde(borrow)]
        partial_args: Option<&'a RawValue>,
        #[serde(borrow)]
        will_continue: Option<&'a RawValue>,
    }
    let text = serde_json::from_str::<OnlyText<'_>>(part.get()).ok();
    match (text, blocks.last_open()) {
        (Some(OnlyText { text }), Some(open)) => return blocks.append(open, "text", &text),
        (Some(_), None) => return blocks.start(blocks.count(), part),
        (None, Some(open)) => blocks.stop(open),
        (None, None) => {}
    }
    // A call whose arguments arrive in pieces cannot be sent back as it came.
    let call: CallPart<'_> = serde_json::from_str(part.get()).unwrap_or_default();
    if call.function_call.partial_args.is_some() || call.function_call.will_continue.is_some() {
        return blocks.lose();
    }
    blocks.add(part);
}

fn write_content(message: &ChatMessage) -> Result<serde_json::Value, Unwritable> {
    Ok(match message {
        ChatMessage::User { parts } => {
            json!({ "role": "user", "parts": parts.iter().map(write_part).collect::<Vec<_>>() })
        }
        ChatMessage::Assistant(assistant) => {
            let parts = assistant.blocks(
                |text| json!({ "text": text }),
                |PastCall { name, .. }, args| json!({ "functionCall": { "name": name, "args": args } }),
            )?;
            json!({ "role": "model", "parts": parts })
        }
        ChatMessage::Tool { results } => {
            let result = |ToolResult { name, content, is_error, .. }: &ToolResult| {
                let key = if *is_error { "error" } else { "result" };
                json!({ "functionResponse": { "name": name, "response": { key: content } } })
            };
            json!({ "role": "user", "parts": results.iter().map(result).collect::<Vec<_>>() })
        }
    })
}

fn write_part(part: &ChatPart) -> serde_json::Value {
    match part {
        ChatPart::Text { text } => json!({ "text": text }),
        ChatPart::Image(Image { media_type, source }) => match source {
            ImageSource::Url(url) => {
                json!({ "fileData": { "mimeType": media_type, "fileUri": url } })
            }
            ImageSource::Base64(data) => {
                json!({ "inlineData": { "mimeType": media_type, "data": data } })
            }
        },
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Payload<'a> {
    #[serde(borrow)]
    candidates: Listed<Loose<Candidate<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<Loose<PromptFeedback<'a>>>,
    usage_metadata: Option<Loose<WireUsage>>,
    #[serde(borrow)]
    model_version: Text<'a>,
    #[serde(borrow)]
    response_id: Text<'a>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Code Assist and results of batches put the whole payload here.
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Candidate<'a> {
    index: Count,
    #[serde(borrow)]
    content: Loose<Content<'a>>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    finish_message: Text<'a>,
    #[serde(borrow)]
    safety_ratings: Few<Loose<Rating<'a>>>,
    #[serde(borrow)]
    continuation_token: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Listed<Loose<Part<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    thought: Flag,
    #[serde(borrow)]
    function_call: Option<Loose<FunctionCall<'a>>>,
    /// Another spelling, which clients read too.
    #[serde(borrow, rename = "function_call")]
    snake_call: Option<Loose<FunctionCall<'a>>>,
    #[serde(borrow)]
    thought_signature: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FunctionCall<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow, alias = "partial_args")]
    partial_args: Option<&'a RawValue>,
    #[serde(borrow, alias = "will_continue")]
    will_continue: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PartialArg<'a> {
    #[serde(borrow)]
    json_path: Text<'a>,
    #[serde(borrow)]
    string_value: Option<Text<'a>>,
    #[serde(borrow)]
    number_value: Option<&'a RawValue>,
    #[serde(borrow)]
    bool_value: Option<&'a RawValue>,
    /// The name of the enum's only member, or a JSON null.
    null_value: Present,
    #[serde(borrow)]
    will_continue: Scalar<'a>,
}

impl PartialArg<'_> {
    fn piece(&self) -> Piece<'_> {
        let value = match (&self.string_value, self.number_value.or(self.bool_value)) {
            (Some(text), None) => Value::Text(text),
            (None, Some(raw)) => Value::Raw(raw),
            (None, None) if self.null_value.0 => Value::Null,
            (Some(_), Some(_)) | (None, None) => Value::Missing,
        };
        Piece { path: &self.json_path, value, continues: self.will_continue.0.is_some() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow)]
    block_reason: Scalar<'a>,
    #[serde(borrow)]
    block_reason_message: Text<'a>,
    #[serde(borrow)]
    safety_ratings: Few<Loose<Rating<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rating<'a> {
    #[serde(borrow)]
    category: Scalar<'a>,
    #[serde(borrow)]
    probability: Scalar<'a>,
    probability_score: Measure,
    #[serde(borrow)]
    severity: Scalar<'a>,
    severity_score: Measure,
    blocked: Flag,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireUsage {
    prompt_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
    cached_content_token_count: Count,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if is_set(wire.error) {
        return Reading::Error;
    }
    if wire.says_something() {
        return read_payload(&wire, out);
    }
    let inner = wire.response.and_then(|inner| serde_json::from_str(inner.get()).ok());
    match inner {
        Some(Loose(inner)) if Payload::says_something(&inner) => read_payload(&inner, out),
        _ => Reading::Strange,
    }
}

impl Payload<'_> {
    fn says_something(&self) -> bool {
        let feedback = self.prompt_feedback.is_some() || self.usage_metadata.is_some();
        self.candidates.present || feedback
    }
}

fn read_payload(wire: &Payload<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    out.emit(Event::Begin { id: &wire.response_id, model: &wire.model_version });
    if let Some(usage) = &wire.usage_metadata {
        out.emit(Event::Usage(Usage {
            input: usage.prompt_token_count.0,
            output: usage.candidates_token_count.0,
            reasoning: usage.thoughts_token_count.0,
            cache_read: usage.cached_content_token_count.0,
            cache_write: None,
        }));
    }
    if let Some(feedback) = &wire.prompt_feedback {
        read_feedback(feedback, out);
    }
    for (choice, candidate) in wire.candidates.numbered(|candidate| candidate.index) {
        read_candidate(choice, candidate, out);
    }
    Reading::Read
}

fn read_feedback(feedback: &PromptFeedback<'_>, out: &mut EventSink<'_, '_>) {
    read_ratings(None, &feedback.safety_ratings, out);
    let Some(word) = feedback.block_reason.said() else { return };
    out.detail(None, "promptFeedback.blockReason", &word.to_text());
    out.detail(None, "promptFeedback.blockReasonMessage", &feedback.block_reason_message);
    out.emit(Event::Word { choice: 0, field: "blockReason", word: word.clone() });
}

fn read_candidate(choice: u32, candidate: &Candidate<'_>, out: &mut EventSink<'_, '_>) {
    out.choice(choice);
    for part in candidate.content.parts.iter() {
        read_part(choice, part, out);
    }
    out.resume_token(choice, &candidate.continuation_token);
    read_ratings(Some(choice), &candidate.safety_ratings, out);
    if let Some(word) = candidate.finish_reason.said() {
        out.detail(Some(choice), "finishMessage", &candidate.finish_message);
        if !candidate.continuation_token.is_empty() {
            out.detail(Some(choice), "continuationToken", "present");
        }
        out.emit(Event::Word { choice, field: "finishReason", word: word.clone() });
    }
}

fn read_part(choice: u32, part: &Part<'_>, out: &mut EventSink<'_, '_>) {
    for call in part.function_call.iter().chain(&part.snake_call) {
        read_call(choice, call, out);
    }
    match &part.text {
        Some(text) if part.thought.0 => out.reasoning(choice, text),
        Some(text) => out.text(choice, text),
        None if part.function_call.is_none()
            && part.snake_call.is_none()
            && part.thought_signature.is_empty() =>
        {
            out.emit(Event::OtherContent { choice, kind: "part" });
        }
        None => {}
    }
}

/// Reads a call. Calls come whole, except those with streamed arguments, which say that they
/// continue.
fn read_call(choice: u32, wire: &FunctionCall<'_>, out: &mut EventSink<'_, '_>) {
    // A name begins a new call. A call that is still open stays open.
    let continues = out.open_call(choice).filter(|_| wire.name.is_empty());
    let call = continues.unwrap_or_else(|| out.next_call(choice));
    if continues.is_none() {
        out.emit(Event::ToolCallStart { choice, call, id: &wire.id, name: &wire.name });
    }
    let partial = wire.partial_args.map(|raw| serde_json::from_str(raw.get()).unwrap_or_default());
    let partial: Few<Loose<PartialArg<'_>>> = partial.unwrap_or_default();
    let pieces: Vec<Piece<'_>> = partial.iter().map(|partial| partial.piece()).collect();
    // Arguments in an unknown form count as missing.
    let continues = wire.will_continue.0.is_some() || is_set(wire.partial_args) && !partial.present;
    if continues || !pieces.is_empty() {
        out.push_partial(choice, call, &pieces);
    }
    // Some clients run a call with arguments, whatever else it says.
    if wire.args.is_some_and(|args| !is_nothing(args))
        && (continues || out.has_partial(choice, call))
    {
        out.settle_call(choice, call);
    }
    if continues {
        return;
    }
    match (out.has_partial(choice, call), wire.args) {
        (false, None) => {}
        (false, Some(args)) => {
            out.emit(Event::ToolCallDelta { choice, call, arguments: args.get() });
        }
        (true, None) => {
            // More arguments were announced: without them the call is unfinished, not empty.
            let Some(arguments) = out.partial(choice, call) else { return };
            out.emit(Event::ToolCallDelta { choice, call, arguments: &arguments });
        }
        (true, Some(_)) => return,
    }
    out.emit(Event::ToolCallEnd { choice, call });
}

fn read_ratings(
    choice: Option<u32>,
    ratings: &Few<Loose<Rating<'_>>>,
    out: &mut EventSink<'_, '_>,
) {
    for rating in ratings.iter() {
        if let (true, Some(choice)) = (rating.blocked.0, choice) {
            out.mark(choice, |marks| marks.blocked = true);
        }
        out.rate(&SafetyRating {
            choice,
            category: rating.category.kept().unwrap_or_default(),
            probability: rating.probability.kept(),
            score: rating.probability_score.0.clone(),
            severity: rating.severity.kept(),
            severity_score: rating.severity_score.0.clone(),
            blocked: rating.blocked.0,
        });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    ["candidates", "promptFeedback", "usageMetadata"].iter().any(|key| probe.has(key))
}
