//! Text Generation Inference's native `/generate` and `/generate_stream`.
//!
//! The last event has the whole text, which is null before, and ends the stream. The finish reason
//! is in `details`, which come only on request. A body may be a list.
//!
//! Source: text-generation-inference @db931fc `router/src/{lib,server}.rs`; `huggingface_hub`
//! 2.4.0.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::{Reason, Usage};
use crate::event::Event;
use crate::fault::FaultKind;
use crate::fault::pattern::{class, name};
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Flag, Loose, Scalar, Text};

/// The `hf-tgi` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "hf-tgi",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[Words::plain(
        "finish_reason",
        "details.finish_reason",
        &[
            ("eos_token", Reason::Complete),
            ("length", Reason::OutputLimit),
            ("stop_sequence", Reason::StopSequence),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: &[
        name("overloaded", FaultKind::Overloaded),
        class("validation", FaultKind::InvalidRequest),
        class("generation", FaultKind::Server),
        class("incomplete_generation", FaultKind::Server),
    ],
    caps: &["parameters.max_new_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: common::TEXT_ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("inputs", "parameters.return_full_text")],
        ..common::REQUEST
    },
    usage: &["details.generated_tokens"],
    counts: &[],
    padding: &[],
    claims,
    source: "text-generation-inference @db931fc; huggingface_hub 2.4.0",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/generate", "/generate_stream"],
    capabilities: Capabilities { tools: false, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    token: Option<Loose<Token<'a>>>,
    #[serde(borrow)]
    generated_text: Option<Text<'a>>,
    #[serde(borrow)]
    details: Loose<Details<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Token<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    special: Flag,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    generated_tokens: Count,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if is_set(wire.error) {
        return Reading::Error;
    }
    if wire.generated_text.is_some() {
        out.another_result();
    }
    match (&wire.token, &wire.generated_text) {
        (None, None) => return Reading::Strange,
        // Special tokens of the model, such as the end-of-text token.
        (Some(token), _) if token.special.0 => out.choice(0),
        (Some(token), _) => out.text(0, &token.text),
        (None, Some(text)) => out.text(0, text),
    }
    if wire.generated_text.is_some() {
        read_end(&wire.details, out);
    }
    Reading::Read
}

fn read_end(details: &Details<'_>, out: &mut EventSink<'_, '_>) {
    out.choice(0);
    if let Some(count) = details.generated_tokens.0 {
        out.emit(Event::Usage(Usage { output: Some(count), ..Usage::default() }));
    }
    if let Some(word) = details.finish_reason.said() {
        out.emit(Event::Word { choice: 0, field: "finish_reason", word: word.clone() });
    }
    out.emit(Event::Proof);
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("generated_text") || probe.has_object("token")
}
