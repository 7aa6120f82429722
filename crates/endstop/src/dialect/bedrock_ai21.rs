//! AI21 Jurassic-2 on Bedrock's `InvokeModel`: the finish reason is an object. It never streams.
//!
//! Source: Portkey's adapter, `ai21` 4.3.0.

use serde::Deserialize;

use super::bedrock_converse::ERROR_PATTERNS;
use super::bedrock_invoke::added_to;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::Reason;
use crate::event::Event;
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Few, Loose, Scalar, Text};

/// The `bedrock-ai21` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "bedrock-ai21",
    framing: Framing::AwsChunks,
    read: read_body,
    read_body,
    words: &[Words::plain(
        "finishReason.reason",
        "completions[].finishReason.reason",
        &[
            ("endoftext", Reason::Complete),
            ("length", Reason::OutputLimit),
            ("stop", Reason::StopSequence),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["maxTokens"],
    streams: Streams::Path("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("prompt", "")],
        ..common::REQUEST
    },
    // Only the headers have the usage.
    usage: &[],
    counts: &[],
    padding: &[],
    claims,
    source: "ai21 4.3.0; Portkey's Bedrock adapter",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["ai21.j2*/invoke"],
    capabilities: Capabilities {
        streams: false,
        tools: false,
        choices: true,
        ..COMMON_CAPABILITIES
    },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    completions: Few<Loose<Completion<'a>>>,
    /// Answers of the chat endpoint.
    #[serde(borrow)]
    outputs: Few<Loose<Completion<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Completion<'a> {
    #[serde(borrow)]
    data: Loose<Data<'a>>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    finish_reason: Loose<FinishReason<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data<'a> {
    #[serde(borrow)]
    text: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FinishReason<'a> {
    #[serde(borrow)]
    reason: Scalar<'a>,
    #[serde(borrow)]
    sequence: Text<'a>,
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if !body.completions.present && !body.outputs.present {
        return Reading::Strange;
    }
    for (choice, completion) in (0..).zip(body.completions.iter().chain(body.outputs.iter())) {
        out.choice(choice);
        out.text(choice, &completion.data.text);
        out.text(choice, &completion.text);
        out.detail(Some(choice), "finishReason.sequence", &completion.finish_reason.sequence);
        if let Some(word) = completion.finish_reason.reason.said() {
            out.emit(Event::Word { choice, field: "finishReason.reason", word: word.clone() });
        }
    }
    added_to(frame.data).read(out);
    out.emit(Event::Proof);
    Reading::Read
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("completions") && !probe.has("model_version")
}
