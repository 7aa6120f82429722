//! Legacy completions: one text, one finish reason, no tools.
//!
//! `max_tokens` defaults to 16, so `length` is common here.
//!
//! Source: openai-openapi spec 2.3.0.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::anthropic::read_guardrail;
use super::errors::is_set;
use super::openai_chat::{ERROR_PATTERNS, USAGE, WireUsage};
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::Reason;
use crate::event::Event;
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Loose, Scalar, Text};

/// The `openai-completions` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "openai-completions",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[Words::plain(
        "finish_reason",
        "choices[].finish_reason",
        &[
            ("stop", Reason::Complete),
            ("length", Reason::OutputLimit),
            ("content_filter", Reason::Filtered),
            ("error", Reason::Failed),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Marker(common::END_MARKER),
    error_patterns: ERROR_PATTERNS,
    caps: &["max_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: super::openai_chat::ERROR_SHAPE,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("prompt", "echo")],
        usage: Some(USAGE),
        ..common::REQUEST
    },
    usage: &["usage.prompt_tokens", "usage.completion_tokens"],
    counts: &[],
    padding: &[],
    claims,
    source: "openai-openapi 2.3.0",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/completions"],
    capabilities: Capabilities {
        tools: false,
        choices: true,
        usage_in_streams: false,
        ..COMMON_CAPABILITIES
    },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    choices: Few<Loose<Choice<'a>>>,
    usage: Option<Loose<WireUsage>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Bedrock's guardrail, on `InvokeModel`.
    #[serde(borrow, rename = "amazon-bedrock-guardrailAction")]
    guardrail_action: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Count,
    #[serde(borrow)]
    text: Text<'a>,
    /// Field of chat in place of `text`.
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(chunk)) = serde_json::from_slice::<Loose<Chunk<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let counts = chunk.usage.as_ref().is_some_and(|usage| usage.is_own());
    let of_chat = |choice: &Loose<Choice<'_>>| is_set(choice.message) || is_set(choice.delta);
    if !chunk.choices.present && !counts && chunk.error.is_none()
        || chunk.choices.iter().any(of_chat)
    {
        return Reading::Strange;
    }
    out.emit(Event::Begin { id: &chunk.id, model: &chunk.model });
    for (index, choice) in chunk.choices.numbered(|choice| choice.index) {
        out.choice(index);
        out.text(index, &choice.text);
        if let Some(crate::event::Word::Text(stop)) = choice.stop_reason.said() {
            out.detail(Some(index), "stop_reason", stop);
            out.stop_sequence(index);
        }
        if let Some(word) = choice.finish_reason.said() {
            out.emit(Event::Word { choice: index, field: "finish_reason", word: word.clone() });
        }
    }
    if let Some(usage) = &chunk.usage {
        out.emit(Event::Usage(usage.read()));
    }
    read_guardrail(&chunk.guardrail_action, out);
    if is_set(chunk.error) { Reading::Error } else { Reading::Read }
}

fn claims(probe: &Probe<'_>) -> bool {
    let chat = probe.lists("choices", &["message", "delta"]);
    probe.lists("choices", &["text"]) || probe.text("object") == "text_completion" && !chat
}
