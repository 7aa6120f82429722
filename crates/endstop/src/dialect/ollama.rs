//! Ollama's native `/api/chat` and `/api/generate`: one JSON line per chunk, the last one `done`.
//!
//! Tool calls end with `stop`. The last line may have no reason.
//!
//! Source: ollama @fb30760 `server/routes.go`, `llm/server.go`; `ollama` 0.6.3.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::errors::is_set;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words, openai_chat};
use crate::chat::{
    BodyWriter, ChatMessage, ChatPart, ChatRequest, Image, ImageSource, JsonFormat, RequestWriter,
    ToolChoice, ToolResult, Unwritable,
};
use crate::dialect::common::{self, MESSAGES, WORDS_IF_SAID};
use crate::ending::{Reason, Usage};
use crate::event::{Event, Word};
use crate::fault::FaultKind;
use crate::fault::pattern::message;
use crate::frame::{Frame, FrameKind, Framing};
use crate::gateway_error::{ErrorEnd, ErrorShape};
use crate::next_request::{ConversationShape, Effort, RequestShape, Scale, Temperature};
use crate::provider::Profile;
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Flag, Listed, Loose, Scalar, Text};

/// The `ollama-chat` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "ollama-chat",
    framing: Framing::Lines,
    read,
    read_body: read,
    words: &[
        Words::plain(
            "done_reason",
            "done_reason",
            &[
                ("stop", Reason::Complete),
                ("length", Reason::OutputLimit),
                // The request had no prompt: the model was only loaded or unloaded.
                ("load", Reason::Complete),
                ("unload", Reason::Complete),
            ],
        ),
        // Servers of early 2024 sent no reason (recorded, langchainrb and others).
        Words { vague: &["true"], ..Words::plain("done", "done", &[("true", Reason::Complete)]) },
    ],
    wins: Wins::First,
    // Calls come whole; no event of their own ends them.
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: &[
        message("not found", FaultKind::NotFound),
        message("server busy", FaultKind::Overloaded),
    ],
    caps: &["options.num_predict"],
    streams: Streams::UnlessFalse("stream"),
    error_shape: ErrorShape { end: ErrorEnd::Clean, ..common::TEXT_ERRORS },
    request_shape: REQUEST_SHAPE,
    usage: &["prompt_eval_count", "eval_count"],
    counts: &[],
    padding: &["created_at"],
    claims,
    source: "ollama @fb30760; ollama 0.6.3",
};

/// Request fields of this dialect. They cannot force a tool.
const REQUEST_SHAPE: RequestShape = RequestShape {
    conversation: &[
        ConversationShape::MessageList(MESSAGES),
        ConversationShape::Templated("prompt", "raw"),
    ],
    temperature: Temperature { field: "options.temperature", refused_by: &[], only_if_sent: false },
    efforts: &[Effort::new("think", WORDS_IF_SAID), Effort::new("think", Scale::Flag)],
    writer: Some(RequestWriter {
        path: "/api/chat",
        streamed_path: "/api/chat",
        headers: &[],
        body: write,
    }),
    ..common::REQUEST
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile =
    Profile { paths: &["/api/chat", "/api/generate"], ..DIALECT.profile() };

fn write(request: &ChatRequest, _: &Profile, body: &mut BodyWriter) -> Result<(), Unwritable> {
    if matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_)) {
        return Err(Unwritable::Part { dialect: DIALECT.id, what: "a forced tool" });
    }
    body.put("model", request.model.as_str());
    let options = common::object([
        ("num_predict", request.max_output_tokens.map(Into::into)),
        ("temperature", request.temperature.map(Into::into)),
        ("top_p", request.top_p.map(Into::into)),
        ("stop", (!request.stop.is_empty()).then(|| json!(request.stop))),
    ]);
    body.put_some("options", options);
    body.put("stream", request.stream);
    // The wire cannot forbid calls, but needs no tools in a conversation with calls.
    if !request.tools.is_empty() && request.tool_choice != ToolChoice::None {
        body.put("tools", openai_chat::tools(&request.tools));
    }
    if let Some(JsonFormat { schema, .. }) = &request.format {
        body.put("format", schema.clone());
    }
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    for message in &request.messages {
        write_message(message, &mut messages)?;
    }
    body.end("messages", messages);
    Ok(())
}

fn write_message(message: &ChatMessage, messages: &mut Vec<Value>) -> Result<(), Unwritable> {
    match message {
        ChatMessage::User { parts } => {
            let (mut text, mut images) = (Vec::new(), Vec::new());
            for part in parts {
                match part {
                    ChatPart::Text { text: part } => text.push(part.as_str()),
                    ChatPart::Image(Image { source: ImageSource::Base64(data), .. }) => {
                        images.push(data.as_str());
                    }
                    ChatPart::Image(Image { source: ImageSource::Url(_), .. }) => {
                        let what = "image URLs";
                        return Err(Unwritable::Part { dialect: DIALECT.id, what });
                    }
                }
            }
            let mut message = json!({ "role": "user", "content": text.join("\n") });
            if !images.is_empty() {
                common::insert(&mut message, "images", images);
            }
            messages.push(message);
        }
        ChatMessage::Assistant(assistant) => {
            let mut message = json!({ "role": "assistant", "content": assistant.text });
            let mut calls = Vec::new();
            for call in &assistant.calls {
                let arguments = call.object()?;
                calls.push(json!({ "function": { "name": call.name, "arguments": arguments } }));
            }
            if !calls.is_empty() {
                common::insert(&mut message, "tool_calls", calls);
            }
            messages.push(message);
        }
        ChatMessage::Tool { results } => {
            let result = |ToolResult { name, content, .. }: &ToolResult| json!({ "role": "tool", "tool_name": name, "content": content });
            messages.extend(results.iter().map(result));
        }
    }
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    message: Option<Loose<Message<'a>>>,
    #[serde(borrow)]
    response: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Text<'a>,
    done: Flag,
    #[serde(borrow)]
    done_reason: Scalar<'a>,
    prompt_eval_count: Count,
    eval_count: Count,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
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
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if is_set(wire.error) {
        return Reading::Error;
    }
    if wire.message.is_none() && wire.response.is_none() && !wire.done.0 {
        return Reading::Strange;
    }
    out.emit(Event::Begin { id: "", model: &wire.model });
    if let Some(message) = &wire.message {
        read_message(message, out);
    }
    out.reasoning(0, &wire.thinking);
    if let Some(text) = &wire.response {
        out.text(0, text);
    }
    if wire.done.0 {
        read_end(&wire, out);
        return Reading::Read;
    }
    if frame.kind == FrameKind::Body { Reading::Unfinished } else { Reading::Read }
}

fn read_message(message: &Message<'_>, out: &mut EventSink<'_, '_>) {
    out.reasoning(0, &message.thinking);
    out.text(0, &message.content);
    for wire in message.tool_calls.iter() {
        let call = out.next_call(0);
        out.emit(Event::ToolCallStart { choice: 0, call, id: &wire.id, name: &wire.function.name });
        if let Some(arguments) = wire.function.arguments {
            out.emit(Event::ToolCallDelta { choice: 0, call, arguments: arguments.get() });
        }
        out.emit(Event::ToolCallEnd { choice: 0, call });
    }
}

fn read_end(wire: &Payload<'_>, out: &mut EventSink<'_, '_>) {
    out.emit(Event::Usage(Usage {
        input: wire.prompt_eval_count.0,
        output: wire.eval_count.0,
        ..Usage::default()
    }));
    if let Some(word) = wire.done_reason.said() {
        // A request without a prompt gets no answer.
        if matches!(&*word.to_text(), "load" | "unload") && !out.has_content(0) {
            out.emit(Event::OtherContent { choice: 0, kind: "model" });
        }
        out.emit(Event::Word { choice: 0, field: "done_reason", word: word.clone() });
    } else {
        out.emit(Event::Word { choice: 0, field: "done", word: Word::Text("true".into()) });
    }
    out.emit(Event::Proof);
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("done") && (probe.has("message") || probe.has("response"))
}
