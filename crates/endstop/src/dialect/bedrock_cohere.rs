//! Cohere Command on Bedrock's `InvokeModel`: the old `generate`.
//!
//! The last chunk of a stream has `is_finished` and may repeat the whole text. If the request body
//! does not ask for a stream too, the only chunk is the whole body.
//!
//! Source: `opentelemetry-instrumentation-botocore` 0.66b2 `extensions/bedrock.py`, `langchain-aws`
//! 1.9.1.

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
use crate::wire::{Count, Few, Flag, Loose, Scalar, Text};

/// The `bedrock-cohere` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "bedrock-cohere",
    framing: Framing::AwsChunks,
    read,
    read_body,
    words: &[Words::plain(
        "finish_reason",
        "generations[].finish_reason",
        &[
            ("COMPLETE", Reason::Complete),
            ("MAX_TOKENS", Reason::OutputLimit),
            ("ERROR", Reason::Failed),
            ("ERROR_TOXIC", Reason::Filtered),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["max_tokens"],
    streams: Streams::Path("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("prompt", "")],
        ..common::REQUEST
    },
    // Only the headers and the metrics at the end of a stream have the usage.
    usage: &[],
    counts: &[],
    padding: &[],
    claims,
    source: "opentelemetry-instrumentation-botocore 0.66b2; langchain-aws 1.9.1",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["cohere.command*/invoke"],
    capabilities: Capabilities { tools: false, choices: true, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    is_finished: Option<Flag>,
    index: Count,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    generations: Few<Loose<Generation<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Generation<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(chunk)) = serde_json::from_slice::<Loose<Chunk<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let Some(Flag(finished)) = chunk.is_finished else { return Reading::Strange };
    let choice = chunk.index.index();
    out.choice(choice);
    // The last chunk only repeats text that came before.
    if !finished || !out.has_content(choice) {
        out.text(choice, &chunk.text);
    }
    let added = added_to(frame.data);
    added.read(out);
    read_word(choice, &chunk.finish_reason, out);
    if finished || added.is_last() {
        out.emit(Event::Proof);
    }
    Reading::Read
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if !body.generations.present {
        return Reading::Strange;
    }
    out.emit(Event::Begin { id: &body.id, model: "" });
    added_to(frame.data).read(out);
    for (choice, generation) in (0..).zip(body.generations.iter()) {
        out.choice(choice);
        out.text(choice, &generation.text);
        read_word(choice, &generation.finish_reason, out);
    }
    Reading::Read
}

fn read_word(choice: u32, word: &Scalar<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(word) = word.said() {
        out.emit(Event::Word { choice, field: "finish_reason", word: word.clone() });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    let bare = !probe.has("event_type") && !probe.has("meta");
    bare && (probe.has("is_finished") || probe.has("generations"))
}
