//! Gemini interactions, made of steps.
//!
//! The finish reason is `status`. `interaction.completed` ends the stream, but does not mean
//! success: the status of its interaction decides. A `[DONE]` may follow. Calls of the caller's
//! functions are steps, and a `completed` interaction may hold some.
//!
//! The first version of the API had `outputs` in place of steps, and `content` events in place of
//! those of steps. There, one event carries a call whole.
//!
//! Source: `google-genai` 3.1.0 `_gaos/types/interactions/interaction.py`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::openai_chat::arguments_text;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::{Reason, Usage};
use crate::event::{Event, Word};
use crate::fault::pattern::{class, message, name};
use crate::fault::{ErrorPattern, FaultKind};
use crate::frame::{Frame, FrameKind, Framing};
use crate::next_request::{PauseProtocol, RequestShape, Restriction};
use crate::provider::{Profile, Token, TokenInput, TokenOf};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Loose, Scalar, Text, is_nothing};

/// The `gemini-interactions` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "gemini-interactions",
    framing: Framing::Sse,
    read,
    read_body,
    words: &[Words {
        pending: &["queued", "in_progress"],
        ..Words::plain(
            "status",
            "interaction.status",
            &[
                ("completed", Reason::Complete),
                ("requires_action", Reason::ToolCall),
                // The token limit, which includes thoughts.
                ("incomplete", Reason::OutputLimit),
                ("budget_exceeded", Reason::OutputLimit),
                ("requires_continuation", Reason::Paused),
                ("failed", Reason::Failed),
                ("cancelled", Reason::Cancelled),
            ],
        )
    }],
    wins: Wins::Last,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["generation_config.max_output_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: super::gemini::ERROR_SHAPE,
    request_shape: RequestShape { paused: PauseProtocol::Token(CONTINUATION), ..common::REQUEST },
    usage: &[
        "usage.total_input_tokens",
        "usage.total_output_tokens",
        "usage.total_thought_tokens",
        "usage.total_cached_tokens",
    ],
    counts: &[],
    padding: &["event_id"],
    claims,
    source: "google-genai 3.1.0; ai.google.dev api-errors",
};

/// Id of the previous interaction, with the hint as the new input.
pub(crate) const PREVIOUS: Token = Token {
    field: "previous_interaction_id",
    of: TokenOf::Response,
    input: TokenInput::HintText("input"),
    held_by: None,
    restrictions: &[Restriction {
        field: "store",
        fine: &["true"],
        by_default: false,
        because: "the request disables storage",
    }],
    cap_counts_all: false,
};

/// The same with the continuation token and no input (`google-genai` 3.1.0).
const CONTINUATION: Token =
    Token { input: TokenInput::Token("continuation_token", "input"), ..PREVIOUS };

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile =
    Profile { paths: &["/interactions", "/interactions/{id}"], ..DIALECT.profile() };

/// Error codes of failed interactions, which mirror the finish reasons of `generateContent`.
static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("safety", FaultKind::Filter),
    name("recitation", FaultKind::Filter),
    name("prohibited_content", FaultKind::Filter),
    name("spii", FaultKind::Filter),
    name("blocklist", FaultKind::Filter),
    name("content_blocked", FaultKind::Filter),
    message("request blocked due to", FaultKind::Filter),
    name("malformed_function_call", FaultKind::ToolCall),
    name("malformed_tool_call", FaultKind::ToolCall),
    name("unexpected_tool_call", FaultKind::ToolCall),
    name("rate_limit_exceeded", FaultKind::RateLimit),
    name("quota_exceeded", FaultKind::Quota),
    name("payment_required", FaultKind::Quota),
    name("authentication", FaultKind::Auth),
    name("permission_denied", FaultKind::Auth),
    name("not_found", FaultKind::NotFound),
    name("model_not_found", FaultKind::NotFound),
    class("invalid_request", FaultKind::InvalidRequest),
    class("parameter_unknown", FaultKind::InvalidRequest),
    class("failed_precondition", FaultKind::InvalidRequest),
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    event_type: Text<'a>,
    index: Count,
    #[serde(borrow)]
    status: Scalar<'a>,
    #[serde(borrow)]
    step: Loose<Step<'a>>,
    #[serde(borrow)]
    content: Loose<Step<'a>>,
    #[serde(borrow)]
    delta: Loose<Delta<'a>>,
    #[serde(borrow)]
    interaction: Option<Loose<Interaction<'a>>>,
    #[serde(borrow)]
    continuation_token: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Step<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Few<Loose<Part<'a>>>,
    #[serde(borrow)]
    summary: Few<Loose<Part<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    content: Loose<Part<'a>>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    /// Call that a result belongs to.
    #[serde(borrow)]
    call_id: Text<'a>,
    #[serde(borrow)]
    tool_call_id: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Interaction<'a> {
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    status: Scalar<'a>,
    #[serde(borrow)]
    steps: Few<Loose<Step<'a>>>,
    #[serde(borrow)]
    outputs: Few<Loose<Step<'a>>>,
    #[serde(borrow)]
    continuation_token: Text<'a>,
    #[serde(borrow)]
    errors: Option<&'a RawValue>,
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    total_input_tokens: Count,
    total_output_tokens: Count,
    total_thought_tokens: Count,
    total_cached_tokens: Count,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let index = wire.index.index();
    let name = if wire.event_type.is_empty() { frame.name } else { &*wire.event_type };
    match name {
        "step.delta" | "content.delta" => read_delta(index, &wire.delta, out),
        "step.start" => begin_step(index, &wire.step, out),
        "content.start" => begin_step(index, &wire.content, out),
        "step.stop" | "content.stop" => end_step(index, out),
        "interaction.created" | "interaction.start" => {
            if let Some(interaction) = &wire.interaction {
                out.emit(Event::Begin { id: &interaction.id, model: &interaction.model });
            }
        }
        "interaction.status_update" => {
            out.resume_token(0, &wire.continuation_token);
            read_status(&wire.status, out);
        }
        "interaction.completed" | "interaction.complete" => {
            let nothing = Loose::default();
            let reading = read_end(wire.interaction.as_ref().unwrap_or(&nothing), out);
            out.emit(Event::Proof);
            return reading;
        }
        "error" => return Reading::Error,
        _ => return Reading::Strange,
    }
    Reading::Read
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Interaction<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if body.object.0 != "interaction" && body.status.said().is_none() {
        return Reading::Strange;
    }
    let status = body.status.to_text().unwrap_or_default();
    if frame.kind == FrameKind::Body && out.is_pending("status", &status) {
        out.emit(Event::Pending { field: "status", word: &status });
    }
    for (index, step) in (0..).zip(body.steps.iter().chain(body.outputs.iter())) {
        begin_step(index, step, out);
        if let Some(arguments) = step.arguments.filter(|_| out.is_bare_call(0, index)) {
            read_arguments(index, arguments, out);
        }
        end_step(index, out);
    }
    read_end(&body, out)
}

fn read_end(interaction: &Interaction<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    out.emit(Event::Begin { id: &interaction.id, model: &interaction.model });
    if let Some(usage) = &interaction.usage {
        out.emit(Event::Usage(Usage {
            input: usage.total_input_tokens.0,
            output: usage.total_output_tokens.0,
            reasoning: usage.total_thought_tokens.0,
            cache_read: usage.total_cached_tokens.0,
            cache_write: None,
        }));
    }
    out.resume_token(0, &interaction.continuation_token);
    read_status(&interaction.status, out);
    if is_set(interaction.errors) { Reading::Error } else { Reading::Read }
}

fn read_status(status: &Scalar<'_>, out: &mut EventSink<'_, '_>) {
    let is_over = |word: &&Word<'_>| !out.is_pending("status", &word.to_text());
    if let Some(word) = status.said().filter(is_over) {
        out.emit(Event::Word { choice: 0, field: "status", word: word.clone() });
    }
}

fn begin_step(index: u32, step: &Step<'_>, out: &mut EventSink<'_, '_>) {
    match &*step.type_ {
        "text" => out.text(0, &step.text),
        "model_output" => step.content.iter().for_each(|part| read_part(part, out)),
        // A thought may have no text, but still counts as reasoning.
        "thought" => {
            out.emit(Event::Reasoning { choice: 0, text: "" });
            step.summary.iter().for_each(|part| out.reasoning(0, &part.text));
        }
        "function_call" => {
            let (id, name) = (&step.id, &step.name);
            out.emit(Event::ToolCallStart { choice: 0, call: index, id, name });
            // A streamed call begins with an empty object and sends its arguments in chunks.
            if let Some(arguments) = step.arguments.filter(|arguments| !is_nothing(arguments)) {
                read_arguments(index, arguments, out);
            }
        }
        // Server-side tools.
        _ => {
            out.emit(Event::OtherContent { choice: 0, kind: "step" });
            out.note_item(0, index);
        }
    }
}

fn read_part(part: &Part<'_>, out: &mut EventSink<'_, '_>) {
    match &*part.type_ {
        "text" => out.text(0, &part.text),
        _ => out.emit(Event::OtherContent { choice: 0, kind: "part" }),
    }
}

fn read_delta(index: u32, delta: &Delta<'_>, out: &mut EventSink<'_, '_>) {
    match &*delta.type_ {
        "text" => out.text(0, &delta.text),
        "thought_summary" => {
            out.reasoning(0, &delta.content.text);
            out.reasoning(0, &delta.text);
        }
        "function_call" => read_call(index, delta, out),
        "function_result" => {
            for id in [&delta.call_id, &delta.tool_call_id] {
                out.by_provider(0, id);
            }
        }
        // Server-side tools stream their arguments too.
        "arguments_delta" if out.has_item(0, index) && !out.is_open_call(0, index) => {}
        "arguments_delta" => {
            if let Some(arguments) = delta.arguments {
                read_arguments(index, arguments, out);
            }
        }
        "thought_signature" | "text_annotation_delta" => {}
        // An unknown delta of an open call may belong to its arguments.
        _ if out.is_open_call(0, index) => out.spoil_call(0, index),
        _ => out.emit(Event::OtherContent { choice: 0, kind: "step" }),
    }
}

/// Reads a call that one event carries whole.
fn read_call(call: u32, delta: &Delta<'_>, out: &mut EventSink<'_, '_>) {
    out.emit(Event::ToolCallStart { choice: 0, call, id: &delta.id, name: &delta.name });
    let Some(arguments) = delta.arguments else { return };
    if out.has_arguments(0, call) {
        out.compare_arguments(0, call, &arguments_text(arguments));
    } else {
        read_arguments(call, arguments, out);
    }
    if out.is_open_call(0, call) {
        out.emit(Event::ToolCallEnd { choice: 0, call });
    }
}

fn read_arguments(call: u32, arguments: &RawValue, out: &mut EventSink<'_, '_>) {
    let arguments = arguments_text(arguments);
    if !arguments.is_empty() {
        out.emit(Event::ToolCallDelta { choice: 0, call, arguments: &arguments });
    }
}

fn end_step(index: u32, out: &mut EventSink<'_, '_>) {
    if out.has_call(0, index) {
        out.end_bare_call(0, index);
        out.emit(Event::ToolCallEnd { choice: 0, call: index });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    let event = probe.event("event_type");
    probe.text("object") == "interaction"
        || event.starts_with("interaction.")
        || event.starts_with("step.")
        || event.starts_with("content.")
}
