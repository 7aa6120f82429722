//! Runs of Assistants threads.
//!
//! A run is polled or streamed. Its finish reason is `incomplete_details.reason` if present, else
//! `status`. A run that waits for the caller's tools lists the calls in `required_action`. A stream
//! ends with the event `done`.
//!
//! Source: openai-openapi spec 2.3.0, `openai` 3.49.0 `types/beta/threads/run.py`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::openai_chat::{ERROR_PATTERNS, WireUsage, arguments_text};
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::Reason;
use crate::event::Event;
use crate::frame::{Frame, FrameKind, Framing};
use crate::provider::Profile;
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Listed, Loose, Scalar, Text};

/// The `openai-assistants` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "openai-assistants",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[
        Words {
            // `incomplete_details` has the cause, if present.
            vague: &["incomplete"],
            pending: &["queued", "in_progress", "cancelling"],
            ..Words::plain(
                "status",
                "status",
                &[
                    ("completed", Reason::Complete),
                    ("requires_action", Reason::ToolCall),
                    ("incomplete", Reason::OutputLimit),
                    ("failed", Reason::Failed),
                    ("cancelled", Reason::Cancelled),
                    ("expired", Reason::TimedOut),
                ],
            )
        },
        Words::plain(
            "incomplete_details.reason",
            "incomplete_details.reason",
            &[
                ("max_completion_tokens", Reason::OutputLimit),
                ("max_prompt_tokens", Reason::ContextLimit),
            ],
        ),
    ],
    wins: Wins::Last,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Marker(common::END_MARKER),
    error_patterns: ERROR_PATTERNS,
    caps: &["max_completion_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: common::ERRORS,
    request_shape: common::REQUEST,
    usage: &["usage.prompt_tokens", "usage.completion_tokens"],
    counts: &[],
    padding: &[],
    claims,
    source: "openai-openapi 2.3.0; openai 3.49.0",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/threads*/runs", "/threads*/runs/{id}", "/threads*/runs/{id}/submit_tool_outputs"],
    notes: &["deprecated in favour of Responses"],
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    status: Scalar<'a>,
    #[serde(borrow)]
    incomplete_details: Loose<IncompleteDetails<'a>>,
    #[serde(borrow)]
    required_action: Loose<RequiredAction<'a>>,
    #[serde(borrow)]
    last_error: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Loose<Delta<'a>>,
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IncompleteDetails<'a> {
    #[serde(borrow)]
    reason: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequiredAction<'a> {
    #[serde(borrow)]
    submit_tool_outputs: Loose<ToolCalls<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCalls<'a> {
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    index: Count,
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Few<Loose<Part<'a>>>,
    #[serde(borrow)]
    step_details: Loose<ToolCalls<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow)]
    text: Loose<PartText<'a>>,
    #[serde(borrow)]
    refusal: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartText<'a> {
    #[serde(borrow)]
    value: Text<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    match &*wire.object {
        "thread.message.delta" => {
            for part in wire.delta.content.iter() {
                out.text(0, &part.text.value);
                out.refusal(0, &part.refusal);
            }
        }
        "thread.run.step.delta" => read_pieces(&wire.delta.step_details, out),
        "thread.run" => return read_run(&wire, frame.kind, out),
        object if object.starts_with("thread") => {}
        _ if is_set(wire.error) || frame.name == "error" => return Reading::Error,
        _ => return Reading::Strange,
    }
    Reading::Read
}

/// Reads chunks of calls of the caller's tools. All other tools run on the server side.
fn read_pieces(details: &ToolCalls<'_>, out: &mut EventSink<'_, '_>) {
    for wire in details.tool_calls.iter().filter(|call| &*call.type_ == "function") {
        let call = wire.index.index();
        if !wire.id.is_empty() {
            let name = &wire.function.name;
            out.emit(Event::ToolCallStart { choice: 0, call, id: &wire.id, name });
        }
        let arguments = wire.function.arguments.map(arguments_text).unwrap_or_default();
        if !arguments.is_empty() {
            out.emit(Event::ToolCallDelta { choice: 0, call, arguments: &arguments });
        }
    }
}

fn read_run(wire: &Payload<'_>, kind: FrameKind, out: &mut EventSink<'_, '_>) -> Reading {
    out.emit(Event::Begin { id: &wire.id, model: &wire.model });
    if let Some(usage) = &wire.usage {
        out.emit(Event::Usage(usage.read()));
    }
    read_calls(&wire.required_action.submit_tool_outputs, out);
    let status = wire.status.to_text().unwrap_or_default();
    if !out.is_pending("status", &status) {
        read_words(&status, wire, out);
    } else if kind == FrameKind::Body {
        out.emit(Event::Pending { field: "status", word: &status });
    }
    if is_set(wire.last_error) { Reading::Error } else { Reading::Read }
}

/// Reads the calls that the run waits for. They come whole.
fn read_calls(calls: &ToolCalls<'_>, out: &mut EventSink<'_, '_>) {
    for (call, wire) in (0..).zip(calls.tool_calls.iter()) {
        let (id, name) = (&wire.id, &wire.function.name);
        if !out.has_call(0, call) {
            out.emit(Event::ToolCallStart { choice: 0, call, id, name });
        }
        let arguments = wire.function.arguments.map(arguments_text).unwrap_or_default();
        if out.has_arguments(0, call) {
            out.compare_arguments(0, call, &arguments);
        } else {
            out.emit(Event::ToolCallDelta { choice: 0, call, arguments: &arguments });
        }
        out.emit(Event::ToolCallEnd { choice: 0, call });
    }
}

fn read_words(status: &str, wire: &Payload<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(word) = wire.status.said() {
        out.emit(Event::Word { choice: 0, field: "status", word: word.clone() });
    }
    if let Some(reason) = wire.incomplete_details.reason.said() {
        out.detail(Some(0), "status", status);
        let field = "incomplete_details.reason";
        out.emit(Event::Word { choice: 0, field, word: reason.clone() });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.text("object").starts_with("thread.")
}
