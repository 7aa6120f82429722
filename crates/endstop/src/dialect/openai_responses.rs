//! Responses: a status and a list of items in place of choices.
//!
//! The finish reason is `incomplete_details.reason` if present, else `status`. It is read inside
//! the terminal event, because vLLM and SGLang send `response.completed` for everything. The
//! event's name counts only if the status is missing or the name reports a failure. Tool calls have
//! no finish reason; they show as items.
//!
//! Source: `openai` 3.49.0, openai-openapi spec 2.3.0, codex @343074d.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::errors::is_set;
use super::openai_chat::{ERROR_PATTERNS, arguments_text, rate_categories};
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words, openai_chat};
use crate::chat::{
    BodyWriter, ChatMessage, ChatPart, ChatRequest, JsonFormat, Native, PastCall, RequestWriter,
    Tool, ToolChoice, ToolResult, Unwritable,
};
use crate::dialect::common::{self, MESSAGES, WORDS_IF_SAID};
use crate::ending::{Reason, Usage};
use crate::event::{Event, Word};
use crate::facts::Kinds;
use crate::frame::{Frame, FrameKind, Framing, is_bracketed_word};
use crate::gateway_error::{ErrorEnd, ErrorShape, GatewayError, KeepAlive};
use crate::next_request::{
    Blocks, ConversationShape, Effort, ForcedTool, MessageList, RequestShape, RestOfStream,
    Restriction, Scale, Speaker, Temperature,
};
use crate::provider::{Profile, Resume, Role, Token, TokenInput, TokenOf};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Loose, Scalar, Text};

/// The `openai-responses` dialect.
pub static DIALECT: Dialect = Dialect {
    id: "openai-responses",
    framing: Framing::Sse,
    read,
    read_body,
    words: &[
        Words {
            pending: &["queued", "in_progress"],
            // Only its details have the cause.
            vague: &["incomplete"],
            ..Words::plain(
                "status",
                "response.status",
                &[
                    ("completed", Reason::Complete),
                    ("incomplete", Reason::Unknown),
                    ("failed", Reason::Failed),
                    ("cancelled", Reason::Cancelled),
                ],
            )
        },
        // The name of the last event, if its response has no status. Some hosts send
        // `response.completed` for everything.
        Words {
            vague: &["response.completed", "response.incomplete"],
            ..Words::plain(
                "type",
                "type",
                &[
                    ("response.completed", Reason::Complete),
                    ("response.incomplete", Reason::Unknown),
                    ("response.failed", Reason::Failed),
                    ("response.cancelled", Reason::Cancelled),
                ],
            )
        },
        Words {
            field: "incomplete_details.reason",
            path: "response.incomplete_details.reason",
            rows: &[
                ("max_output_tokens", Reason::OutputLimit),
                ("content_filter", Reason::Filtered),
                // Listed only by the SDK; its cause is not documented.
                ("max_messages", Reason::OutputLimit),
                // The caller steered a WebSocket response, and another response follows.
                ("steered", Reason::Cancelled),
            ],
            vague: &["max_messages"],
            empty: &[],
            numbers: &[],
            pending: &[],
        },
    ],
    wins: Wins::Last,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["max_output_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: ERROR_SHAPE,
    request_shape: REQUEST_SHAPE,
    usage: &[
        "usage.input_tokens",
        "usage.output_tokens",
        "usage.output_tokens_details.reasoning_tokens",
        "usage.input_tokens_details.cached_tokens",
    ],
    counts: &[],
    padding: &["obfuscation", "sequence_number"],
    claims,
    source: "openai 3.49.0; openai-openapi 2.3.0; codex @343074d",
};

/// Error shape. SDKs raise only on the error object; the rest is the documented event. Codex passes
/// over it and needs the event that ends a response, followed by a clean end (openai/codex#43140).
const ERROR_SHAPE: ErrorShape = ErrorShape {
    event: "error",
    in_stream: tell,
    last: Some(tell_last),
    unfinished: "",
    body: common::openai,
    end: ErrorEnd::Clean,
    keep_alive: KeepAlive::Comment,
};

/// Returns the event that ends the response: `response.failed` if it is worth asking again, else
/// `response.incomplete`. It has no output, so that no client finds a tool call in it, and no
/// `created_at`: async-openai 0.43 raises at it, and would hand over a complete event like any other.
fn tell_last(gateway_error: &GatewayError<'_>) -> (&'static str, Value) {
    let (name, status) = match gateway_error.repeats {
        true => ("response.incomplete", "incomplete"),
        false => ("response.failed", "failed"),
    };
    let why = match gateway_error.reason {
        Some(Reason::OutputLimit) => "max_output_tokens",
        Some(Reason::Filtered | Reason::Safety | Reason::Recitation) => "content_filter",
        _ => gateway_error.code,
    };
    let error = json!({ "code": gateway_error.code, "message": gateway_error.message });
    let event = json!({
        "type": name,
        "sequence_number": 0,
        "response": {
            "id": "resp_endstop",
            "object": "response",
            "status": status,
            "error": if gateway_error.repeats { Value::Null } else { error },
            "incomplete_details": gateway_error.repeats.then(|| json!({ "reason": why })),
            "output": [],
        },
    });
    (name, event)
}

/// Returns the error event. Its error object has the code that clients do not ask again after, if asking
/// again would end the same way: `invalid_prompt` (opencode 1.18.33, codex @343074d).
fn tell(gateway_error: &GatewayError<'_>) -> Value {
    let mut event = common::openai(gateway_error);
    if let Some(error) = event.get_mut("error").filter(|_| gateway_error.repeats) {
        error["type"] = "invalid_request_error".into();
        error["code"] = "invalid_prompt".into();
    }
    if let Some(fields) = event.as_object_mut() {
        fields.insert("type".into(), "error".into());
        fields.insert("code".into(), gateway_error.code.into());
        fields.insert("message".into(), gateway_error.message.into());
        fields.insert("param".into(), Value::Null);
        fields.insert("sequence_number".into(), 0.into());
    }
    event
}

/// Request fields of this dialect.
pub(crate) const REQUEST_SHAPE: RequestShape = RequestShape {
    background: "background",
    poll: "/responses/",
    rest: Some(RestOfStream { query: "?stream=true&starting_after=", number: "sequence_number" }),
    conversation: &[ConversationShape::MessageList(MessageList {
        list: "input",
        part,
        // llama.cpp rejects an assistant's message without it.
        item_type: Some("message"),
        ..MESSAGES
    })],
    forced_tools: &[ForcedTool {
        tools: "tools",
        field: "tool_choice",
        value: |tool| json!({ "type": "function", "name": tool }),
        models: &[],
        restrictions: &[],
    }],
    temperature: Temperature { field: "temperature", ..openai_chat::REQUEST_SHAPE.temperature },
    efforts: &[Effort::new("reasoning.effort", WORDS_IF_SAID)],
    gather: Some(gather),
    writer: Some(RequestWriter {
        path: "/responses",
        streamed_path: "/responses",
        headers: &[],
        body: write,
    }),
    ..common::REQUEST
};

fn part(speaker: Speaker, text: &str) -> Value {
    let kind = if speaker == Speaker::Assistant { "output_text" } else { "input_text" };
    json!({ "type": kind, "text": text })
}

/// Reasoning field of hosts where every reasoning model accepts it, requested or not.
pub(crate) static EFFORTS_UNASKED: &[Effort] = &[Effort::new(
    "reasoning.effort",
    Scale::Words { words: common::EFFORT_WORDS, unsaid: Some("low"), given: None },
)];

/// Returns the rule that continues from the previous response's id, with only new input. The
/// provider must have stored the response. A conversation already holds the response (`openai`
/// 3.49.0).
#[must_use]
pub(crate) const fn previous_response(role: Role) -> Resume {
    Resume::Token(Token {
        field: "previous_response_id",
        of: TokenOf::Response,
        input: TokenInput::Hint("input", role),
        held_by: Some("conversation"),
        restrictions: &[Restriction {
            field: "store",
            fine: &["true"],
            by_default: false,
            because: "the request disables storage",
        }],
        cap_counts_all: false,
    })
}

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/responses", "/responses/{id}", "/responses/compact"],
    ..DIALECT.profile()
};

fn write(
    request: &ChatRequest,
    profile: &Profile,
    body: &mut BodyWriter,
) -> Result<(), Unwritable> {
    if !request.stop.is_empty() {
        return Err(Unwritable::Part { dialect: DIALECT.id, what: "stop sequences" });
    }
    body.put("model", request.model.as_str());
    openai_chat::write_settings(request, profile, body);
    if !request.system.is_empty() {
        body.put("instructions", request.system.as_str());
    }
    if !request.tools.is_empty() {
        let tool = |Tool { name, description, schema }: &Tool| json!({ "type": "function", "name": name, "description": description, "parameters": schema, "strict": false });
        body.put("tools", request.tools.iter().map(tool).collect::<Vec<_>>());
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body.put("tool_choice", "none"),
            ToolChoice::Required => body.put("tool_choice", "required"),
            ToolChoice::Named(tool) => {
                body.put("tool_choice", json!({ "type": "function", "name": tool }));
            }
        }
    }
    if let Some(JsonFormat { name, schema }) = &request.format {
        let format =
            json!({ "type": "json_schema", "name": name, "schema": schema, "strict": true });
        body.put("text", json!({ "format": format }));
    }
    body.end("input", request.messages.iter().flat_map(items).collect());
    Ok(())
}

/// Returns the items of a message.
fn items(message: &ChatMessage) -> Vec<Value> {
    match message {
        ChatMessage::User { parts } => {
            let parts: Vec<Value> = parts.iter().map(input_part).collect();
            vec![json!({ "role": "user", "content": parts })]
        }
        ChatMessage::Assistant(assistant) => {
            if let Some(items) = assistant.native.as_ref().and_then(Native::items) {
                return items;
            }
            let mut items = Vec::new();
            if !assistant.text.is_empty() {
                let parts = [part(Speaker::Assistant, &assistant.text)];
                items.push(json!({ "type": "message", "role": "assistant", "content": parts }));
            }
            let call = |PastCall { id, name, arguments }: &PastCall| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments });
            items.extend(assistant.calls.iter().map(call));
            items
        }
        ChatMessage::Tool { results } => {
            let result = |ToolResult { id, content, .. }: &ToolResult| json!({ "type": "function_call_output", "call_id": id, "output": content });
            results.iter().map(result).collect()
        }
    }
}

/// Collects the items of an answer. The last event repeats all of them on most hosts.
fn gather(frame: &Frame<'_>, blocks: &mut Blocks) {
    let is_body = match frame.kind {
        FrameKind::Body => true,
        FrameKind::Event => false,
        FrameKind::Exception | FrameKind::Text => return,
    };
    let set = |response: &Response<'_>, blocks: &mut Blocks| {
        let items: Vec<&RawValue> = response.output.iter().copied().collect();
        if !items.is_empty() {
            blocks.set(&items);
        }
    };
    if is_body {
        match serde_json::from_slice::<Loose<Response<'_>>>(frame.data) {
            Ok(Loose(response)) => set(&response, blocks),
            Err(_) => blocks.lose(),
        }
        return;
    }
    let Ok(Loose(event)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        // An end marker has no content; an unreadable event may have some.
        if !is_bracketed_word(frame.data) {
            blocks.lose();
        }
        return;
    };
    match (&*event.type_, event.item, &event.response) {
        ("response.output_item.done", Some(item), _) => blocks.add(item),
        ("response.completed" | "response.incomplete", _, Some(response)) => set(response, blocks),
        _ => {}
    }
}

fn input_part(part: &ChatPart) -> Value {
    match part {
        ChatPart::Text { text } => json!({ "type": "input_text", "text": text }),
        ChatPart::Image(image) => json!({ "type": "input_image", "image_url": image.url() }),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    output_index: Count,
    #[serde(borrow)]
    delta: Text<'a>,
    /// Complete arguments of a call.
    #[serde(borrow)]
    arguments: Text<'a>,
    /// Complete input of a custom tool.
    #[serde(borrow)]
    input: Text<'a>,
    /// Complete text, and complete refusal.
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    refusal: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<Loose<Response<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response<'a> {
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    status: Scalar<'a>,
    #[serde(borrow)]
    incomplete_details: IncompleteDetails<'a>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Few<&'a RawValue>,
    usage: Option<Loose<WireUsage>>,
    /// Results of Azure's content filters.
    #[serde(borrow)]
    content_filters: Few<Loose<ContentFilter<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContentFilter<'a> {
    #[serde(borrow)]
    source_type: Text<'a>,
    #[serde(borrow)]
    content_filter_results: Option<&'a RawValue>,
}

/// Cause of an incomplete response. Some hosts send the bare reason instead of an object.
#[derive(Default)]
struct IncompleteDetails<'a> {
    reason: Scalar<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for IncompleteDetails<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Object<'a> {
            #[serde(borrow)]
            reason: Scalar<'a>,
        }
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let reason = if raw.starts_with('{') {
            serde_json::from_str::<Object<'_>>(raw).map(|object| object.reason)
        } else {
            serde_json::from_str(raw)
        };
        Ok(Self { reason: reason.map_err(D::Error::custom)? })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    call_id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    /// Arguments of calls that run commands or use a computer.
    #[serde(borrow)]
    action: Option<&'a RawValue>,
    #[serde(borrow)]
    actions: Option<&'a RawValue>,
    /// Arguments of calls that patch files.
    #[serde(borrow)]
    operation: Option<&'a RawValue>,
    /// Side that searches for tools: `client` or `server`.
    #[serde(borrow)]
    execution: Text<'a>,
    /// Program that calls the tool, if any.
    #[serde(borrow)]
    caller: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Few<Loose<Part<'a>>>,
    #[serde(borrow)]
    summary: Few<Loose<Part<'a>>>,
    /// JSON of the whole item.
    #[serde(skip)]
    json: &'a str,
}

impl<'a> Item<'a> {
    fn read(raw: &'a RawValue) -> Self {
        let json = raw.get();
        let Loose(item) = serde_json::from_str(json).unwrap_or_default();
        Self { json, ..item }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    refusal: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
    output_tokens_details: Loose<OutputDetails>,
    input_tokens_details: Loose<InputDetails>,
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

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let index = wire.output_index.index();
    // If the frame and the data name different events, a failure wins.
    let failed = matches!(
        frame.name,
        "error" | "response.failed" | "response.incomplete" | "response.cancelled"
    );
    let name = if wire.type_.is_empty() || failed { frame.name } else { &*wire.type_ };
    // Clients go by either name, so that an item counts in any event.
    if !matches!(name, "response.output_item.added" | "response.output_item.done") {
        wire.item.into_iter().for_each(|item| read_early_call(index, &Item::read(item), out));
    }
    match name {
        "response.output_text.delta" => {
            out.text(0, &wire.delta);
            note_text(index, out);
        }
        "response.refusal.delta" => {
            out.refusal(0, &wire.delta);
            note_text(index, out);
        }
        // Repeats the whole text, which may not have come before.
        "response.output_text.done" if !out.has_item(0, index) => {
            out.text(0, &wire.text);
            note_text(index, out);
        }
        "response.refusal.done" if !out.kinds(0).refusal => out.refusal(0, &wire.refusal),
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            out.reasoning(0, &wire.delta);
            note_text(index, out);
        }
        // The provider's own tools stream their input too.
        "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta"
            if is_other_item(index, out) && !out.has_call(0, index) => {}
        "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta"
            if !wire.delta.is_empty() =>
        {
            out.emit(Event::ToolCallDelta { choice: 0, call: index, arguments: &wire.delta });
        }
        "response.function_call_arguments.done" => end_arguments(&wire, &wire.arguments, out),
        "response.custom_tool_call_input.done" => end_arguments(&wire, &wire.input, out),
        "response.output_item.added" => {
            wire.item.into_iter().for_each(|item| add_item(index, &Item::read(item), out));
        }
        "response.output_item.done" => {
            wire.item.into_iter().for_each(|item| end_item(index, &Item::read(item), out));
        }
        end if BUILT_IN_ENDS.contains(&end) => return read_terminal(name, &wire, out),
        "error" => return Reading::Error,
        "response.created" | "response.queued" | "response.in_progress" => {
            if let Some(response) = &wire.response {
                out.emit(Event::Begin { id: &response.id, model: &response.model });
            }
            read_early_calls(&wire, out);
        }
        // An event that ends the response, by the words of the user.
        other if out.is_taught("type", other) => return read_terminal(name, &wire, out),
        // The commands of a shell or the diff of a patch.
        other if other.ends_with(".done") && other.contains("_call_") => out.settle_call(0, index),
        other if other.starts_with("response.") => read_early_calls(&wire, out),
        _ => return Reading::Strange,
    }
    Reading::Read
}

/// Reads the calls in an event that should have none. They are settled by the events of their own, but a
/// client could run them now.
fn read_early_calls(wire: &Payload<'_>, out: &mut EventSink<'_, '_>) {
    let items = wire.response.iter().flat_map(|response| (0..).zip(response.output.iter()));
    items.for_each(|(index, raw)| read_early_call(index, &Item::read(raw), out));
}

fn read_early_call(index: u32, item: &Item<'_>, out: &mut EventSink<'_, '_>) {
    if is_call(item, out) {
        let index = out.call_of_id(0, item.id()).unwrap_or(index);
        begin_item(index, item, out);
        out.settle_call(0, index);
    }
}

/// Reads the end of a call's arguments, which repeats all of them.
fn end_arguments(wire: &Payload<'_>, told: &str, out: &mut EventSink<'_, '_>) {
    let call = wire.output_index.index();
    if !out.is_open_call(0, call) {
        // A client may find the call by the item's id.
        out.settle_open_calls(0);
    }
    if !out.has_call(0, call) && is_other_item(call, out) {
        return;
    }
    if !(out.has_call(0, call) || wire.name.is_empty() && told.is_empty()) {
        out.emit(Event::ToolCallStart { choice: 0, call, id: "", name: &wire.name });
    }
    if !out.has_call(0, call) {
        return;
    }
    if !told.is_empty() {
        out.whole_arguments(0, call, told);
    }
    if out.is_open_call(0, call) {
        out.emit(Event::ToolCallEnd { choice: 0, call });
    }
}

/// Events that end a response.
static BUILT_IN_ENDS: &[&str] = &[
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
];

/// Reads the terminal event. It repeats the whole response, so its items only add content that was
/// not streamed.
fn read_terminal(name: &str, wire: &Payload<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let nothing = Loose::default();
    let response = wire.response.as_ref().unwrap_or(&nothing);
    let streamed = out.kinds(0);
    // The state that the terminal event gives a message is the final one.
    let messages = || response.output.iter().map(|raw| Item::read(raw)).filter(is_message);
    if messages().next().is_some() && messages().all(|item| &*item.status == "completed") {
        out.mark(0, |marks| marks.open_content = false);
    }
    for (index, raw) in (0..).zip(response.output.iter()) {
        let item = Item::read(raw);
        if is_call(&item, out) {
            // Some hosts number the items differently in the stream and at its end.
            let index = out.call_of_id(0, item.id()).unwrap_or(index);
            end_item(index, &item, out);
        } else {
            begin_item(index, &item, out);
            read_parts(&item, streamed, out);
        }
    }
    let status = response.status.to_text().unwrap_or_default();
    let failed = matches!(name, "response.incomplete" | "response.failed" | "response.cancelled");
    let contradicts = failed && status == "completed";
    // An event that the user added says more than the status, which is one of the built-in ones.
    let is_added = !BUILT_IN_ENDS.contains(&name);
    let silent = response.status.said().is_none();
    let no_details = response.incomplete_details.reason.said().is_none();
    if silent && no_details || contradicts || is_added {
        let word = Word::Text(name.into());
        out.emit(Event::Word { choice: 0, field: "type", word });
    }
    if contradicts {
        out.mark(0, |marks| marks.contradiction = true);
    }
    let reading = read_end(response, !contradicts && !is_added, out);
    out.emit(Event::Proof);
    reading
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(response)) = serde_json::from_slice::<Loose<Response<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if response.object.0 != "response" && !response.output.present {
        return Reading::Strange;
    }
    for (index, raw) in (0..).zip(response.output.iter()) {
        let item = Item::read(raw);
        begin_item(index, &item, out);
        end_item(index, &item, out);
    }
    let status = response.status.to_text().unwrap_or_default();
    if out.is_pending("status", &status) {
        out.emit(Event::Pending { field: "status", word: &status });
    }
    read_end(&response, true, out)
}

/// Reads a response object. `heed_status` is false if the event's name contradicts its status.
fn read_end(response: &Response<'_>, heed_status: bool, out: &mut EventSink<'_, '_>) -> Reading {
    out.emit(Event::Begin { id: &response.id, model: &response.model });
    if let Some(usage) = &response.usage {
        out.emit(Event::Usage(Usage {
            input: usage.input_tokens.0,
            output: usage.output_tokens.0,
            reasoning: usage.output_tokens_details.reasoning_tokens.0,
            cache_read: usage.input_tokens_details.cached_tokens.0,
            cache_write: None,
        }));
    }
    for filter in response.content_filters.iter() {
        let choice = (&*filter.source_type == "completion").then_some(0);
        rate_categories(choice, filter.content_filter_results, out);
    }
    if let Some(status) = response.status.said().filter(|_| heed_status) {
        out.emit(Event::Word { choice: 0, field: "status", word: status.clone() });
    }
    if let Some(reason) = response.incomplete_details.reason.said() {
        let status = response.status.to_text().unwrap_or_default();
        out.detail(Some(0), "status", &status);
        let field = "incomplete_details.reason";
        out.emit(Event::Word { choice: 0, field, word: reason.clone() });
    }
    if is_set(response.error) { Reading::Error } else { Reading::Read }
}

/// Items that the provider runs itself. xAI's are from vercel/ai @ed857f5 `packages/xai`.
static BY_PROVIDER: &[&str] = &[
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "x_search_call",
    "code_execution_call",
    "view_image_call",
    "view_x_video_call",
    "collections_search_call",
    // A program that calls tools. Its calls are separate items.
    "program",
];

/// Calls that the caller runs, and whether they may have no arguments.
static BY_CALLER: &[(&str, bool)] = &[
    ("function_call", true),
    ("custom_tool_call", true),
    ("tool_search_call", true),
    ("local_shell_call", false),
    ("shell_call", false),
    ("apply_patch_call", false),
    ("computer_call", false),
];

impl Item<'_> {
    fn id(&self) -> &str {
        if self.call_id.is_empty() { &self.id } else { &self.call_id }
    }

    /// Returns the arguments of a call, if they have arrived. For an unknown kind of call, returns
    /// the whole item.
    fn arguments(&self) -> Option<Cow<'_, str>> {
        let written = [self.arguments, self.input, self.action, self.operation];
        if let Some(raw) = written.into_iter().flatten().next() {
            return Some(arguments_text(raw));
        }
        if let Some(actions) = self.actions {
            return Some(format!("{{\"actions\":{}}}", actions.get()).into());
        }
        match BY_CALLER.iter().find(|(kind, _)| *kind == &*self.type_) {
            Some((_, bare)) => bare.then_some(Cow::Borrowed("")),
            None => Some(Cow::Borrowed(self.json)),
        }
    }
}

/// Reports whether the item is a call that the caller must run, judging by the item alone. Unknown
/// kinds of calls count, because nothing shows that they run elsewhere.
fn is_call(item: &Item<'_>, out: &EventSink<'_, '_>) -> bool {
    let kind = &*item.type_;
    let calls = kind.ends_with("_call") || !item.call_id.is_empty() && !kind.ends_with("_output");
    let is_call = calls && !BY_PROVIDER.contains(&kind);
    // Only a search for tools says where it runs.
    let searches = kind == "tool_search_call" && &*item.execution == "server";
    is_call && !searches && !(takes_text(item) && out.runs_itself(&item.name))
}

/// Reports whether nothing shows who runs a call: its kind is unknown, and the caller could not
/// refer to it in an answer.
fn is_unclear(item: &Item<'_>) -> bool {
    let known = BY_CALLER.iter().any(|(kind, _)| *kind == &*item.type_);
    !known && item.call_id.is_empty() && &*item.execution != "client"
}

/// Reports whether the item calls a custom tool, which takes free text.
fn takes_text(item: &Item<'_>) -> bool {
    &*item.type_ == "custom_tool_call"
}

fn is_message(item: &Item<'_>) -> bool {
    &*item.type_ == "message"
}

/// Reports whether a call has a state in which nobody may run it, such as `failed`.
fn is_failed(item: &Item<'_>) -> bool {
    !matches!(&*item.status, "" | "completed" | "in_progress" | "incomplete")
}

/// Reports whether the item is unfinished. A program's call stays `in_progress` until its result
/// arrives, which does not make the call itself unfinished (recorded, vercel/ai and
/// braintrustdata/lingua).
fn is_unfinished(item: &Item<'_>) -> bool {
    match &*item.status {
        "incomplete" => true,
        "in_progress" => !is_set(item.caller),
        _ => false,
    }
}

/// Reads the start of an item. If it already has arguments, a client could run the call.
fn add_item(index: u32, item: &Item<'_>, out: &mut EventSink<'_, '_>) {
    begin_item(index, item, out);
    let written = [item.arguments, item.input, item.action, item.actions, item.operation];
    let arrived = |raw: &RawValue| {
        serde_json::from_str(raw.get()).is_ok_and(|value: Value| !is_placeholder(&value))
    };
    if is_call(item, out) && written.into_iter().flatten().any(arrived) {
        out.settle_call(0, index);
    }
}

/// Fields without which a call does nothing: the commands of a shell, and the diff of a patch that
/// creates or updates a file. They stream after the item begins.
static STREAMED: &[(&str, &[&str])] =
    &[("commands", &[]), ("command", &[]), ("diff", &["create_file", "update_file"])];

/// Reports whether a value of an item that begins stands for arguments that follow: it is empty, or
/// its streamed field is. Other fields may be empty for good, such as a working directory.
fn is_placeholder(value: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Null => true,
        Value::Object(_) | Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "{}" | "null"),
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
            let follows = |(field, kinds): &(&str, &[&str])| {
                let of_kind = kinds.is_empty() || kinds.contains(&kind);
                of_kind && fields.get(*field).is_some_and(is_empty)
            };
            fields.is_empty() || STREAMED.iter().any(follows)
        }
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn begin_item(index: u32, item: &Item<'_>, out: &mut EventSink<'_, '_>) {
    match &*item.type_ {
        _ if is_call(item, out) => {
            let of_type = item.type_.strip_suffix("_call").unwrap_or_default();
            let name = if item.name.is_empty() { of_type } else { &item.name };
            out.emit(Event::ToolCallStart { choice: 0, call: index, id: item.id(), name });
            if &*item.type_ == "function_call" {
                out.call_for_caller(0, index);
            }
            if takes_text(item) {
                out.emit(Event::ToolCallTakesText { choice: 0, call: index });
            }
            if is_unclear(item) {
                out.unclear_call(0, index);
            }
        }
        "message" => {
            out.text_calls_were_its_own(0);
            out.unclear_calls_were_its_own(0, index, None);
        }
        "reasoning" => {}
        "mcp_approval_request" => {
            out.mark(0, |marks| marks.approval = true);
            other_item(index, out);
        }
        kind => {
            // A call whose output is an item has already run.
            if let Some(of) = kind.strip_suffix("_output") {
                let name = of.strip_suffix("_call").unwrap_or(of);
                out.unclear_calls_were_its_own(0, index, Some(name));
                if !item.call_id.is_empty() {
                    out.by_provider(0, &item.call_id);
                }
            }
            other_item(index, out);
        }
    }
}

fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

fn other_item(index: u32, out: &mut EventSink<'_, '_>) {
    if !out.has_item(0, index) {
        out.emit(Event::OtherContent { choice: 0, kind: "item" });
        out.note_item(0, index);
    }
    out.note_item(0, index | OTHER_ITEM);
}

/// Marks the numbers of items that are neither text nor calls. No response has so many items.
const OTHER_ITEM: u32 = 1 << 31;

/// Reports whether the item is one of the provider's tools, which stream their input too.
fn is_other_item(index: u32, out: &EventSink<'_, '_>) -> bool {
    out.has_item(0, index | OTHER_ITEM)
}

/// Notes an item with text.
fn note_text(index: u32, out: &mut EventSink<'_, '_>) {
    if index < OTHER_ITEM {
        out.note_item(0, index);
    }
}

fn end_item(index: u32, item: &Item<'_>, out: &mut EventSink<'_, '_>) {
    if is_call(item, out) {
        let is_other = !is_unclear(item) && out.is_other_call(0, index, item.id());
        if !out.has_call(0, index) || is_other {
            begin_item(index, item, out);
        }
        let arguments = item.arguments();
        let told = arguments.as_deref().unwrap_or_default();
        if out.has_arguments(0, index) {
            // A JSON value may be serialized differently each time; a string must be the same.
            if [item.arguments, item.input].into_iter().flatten().any(is_string) {
                out.compare_arguments(0, index, told);
            }
        } else if !told.is_empty() {
            out.emit(Event::ToolCallDelta { choice: 0, call: index, arguments: told });
        }
        if is_failed(item) {
            out.spoil_call(0, index);
        }
        if is_unfinished(item) {
            out.reopen_call(0, index);
        } else if arguments.is_some() && out.is_open_call(0, index) {
            out.emit(Event::ToolCallEnd { choice: 0, call: index });
        }
        return;
    }
    // The event that begins an item can be missing, so that only its end shows who runs it.
    if item.type_.ends_with("_call") && out.is_nameless_call(0, index) {
        out.emit(Event::ToolCallByProvider { choice: 0, call: index });
    }
    let known = out.has_item(0, index);
    begin_item(index, item, out);
    read_parts(item, Kinds { text: known, reasoning: known, refusal: known }, out);
}

/// Reads the content of an item, except the kinds that are already known.
fn read_parts(item: &Item<'_>, known: Kinds, out: &mut EventSink<'_, '_>) {
    if is_unfinished(item) && is_message(item) {
        let is_open = &*item.status == "in_progress";
        out.mark(0, |marks| {
            marks.open_content |= is_open;
            marks.unfinished_content |= !is_open;
        });
    }
    let thoughts = |part: &&Loose<Part<'_>>| &*part.type_ == "reasoning_text";
    if !known.reasoning {
        let written = item.content.iter().filter(thoughts);
        item.summary.iter().chain(written).for_each(|part| out.reasoning(0, &part.text));
    }
    for part in item.content.iter().filter(|part| !thoughts(part)) {
        if !known.text {
            out.text(0, &part.text);
        }
        if !known.refusal {
            out.refusal(0, &part.refusal);
        }
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.text("object") == "response" || probe.event("type").starts_with("response.")
}
