//! Ollama's native `/api/chat` and `/api/generate`: one JSON line per chunk, the last one `done`.
//!
//! Tool calls end with `stop`. The last line may have no reason.
//!
//! Source: ollama @fb30760 `server/routes.go`, `llm/server.go`; `ollama` 0.6.3.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
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
use crate::wire::{Count, Few, Flag, Loose, Scalar, Text};

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
    ..common::REQUEST
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile =
    Profile { paths: &["/api/chat", "/api/generate"], ..DIALECT.profile() };

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
    tool_calls: Few<Loose<ToolCall<'a>>>,
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
        out.emit(Event::Word { choice: 0, field: "done_reason", word: word.clone() });
    } else {
        out.emit(Event::Word { choice: 0, field: "done", word: Word::Text("true".into()) });
    }
    out.emit(Event::Proof);
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("done") && (probe.has("message") || probe.has("response"))
}
