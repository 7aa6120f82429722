//! Meta Llama on Bedrock's `InvokeModel`: one text, one finish reason.
//!
//! Source: `opentelemetry-instrumentation-botocore` 0.66b2 `extensions/bedrock.py`, `litellm`
//! 1.108.4.

use serde::Deserialize;

use super::bedrock_converse::ERROR_PATTERNS;
use super::bedrock_invoke::added_to;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::{Reason, Usage};
use crate::event::Event;
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Loose, Scalar, Text};

/// The `bedrock-llama` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "bedrock-llama",
    framing: Framing::AwsChunks,
    read,
    read_body: read,
    words: &[Words::plain(
        "stop_reason",
        "stop_reason",
        &[("stop", Reason::Complete), ("length", Reason::OutputLimit)],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["max_gen_len"],
    streams: Streams::Path("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("prompt", "")],
        ..common::REQUEST
    },
    usage: &["prompt_token_count", "generation_token_count"],
    counts: &[],
    padding: &[],
    claims,
    source: "opentelemetry-instrumentation-botocore 0.66b2; litellm 1.108.4",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["meta.llama*/invoke"],
    capabilities: Capabilities { tools: false, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    generation: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    prompt_token_count: Count,
    generation_token_count: Count,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let Some(text) = &wire.generation else { return Reading::Strange };
    let added = added_to(frame.data);
    out.choice(0);
    out.text(0, text);
    out.emit(Event::Usage(Usage {
        input: wire.prompt_token_count.0,
        output: wire.generation_token_count.0,
        ..Usage::default()
    }));
    added.read(out);
    let word = wire.stop_reason.said();
    if let Some(word) = word {
        out.emit(Event::Word { choice: 0, field: "stop_reason", word: word.clone() });
    }
    if word.is_some() || added.is_last() {
        out.emit(Event::Proof);
    }
    Reading::Read
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("generation")
}
