//! Amazon Nova on Bedrock's `InvokeModel`: Converse, with each event under a key of its name.
//!
//! Source: `opentelemetry-instrumentation-botocore` 0.66b2 `extensions/bedrock.py`, `litellm`
//! 1.108.4.

use serde::Deserialize;

use super::bedrock_converse::{self, ERROR_PATTERNS, Payload, REQUEST_SHAPE, WORDS};
use super::bedrock_invoke::added_to;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins};
use crate::dialect::common;
use crate::frame::{Frame, Framing};
use crate::next_request::RequestShape;
use crate::provider::{NO_QUIRKS, Profile, Quirks};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::Loose;

/// The `bedrock-nova` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "bedrock-nova",
    framing: Framing::AwsChunks,
    read,
    read_body: bedrock_converse::read_body,
    words: WORDS,
    wins: Wins::First,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["inferenceConfig.maxTokens"],
    streams: Streams::Path("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape { efforts: &[], writer: None, ..REQUEST_SHAPE },
    usage: &[
        "usage.inputTokens",
        "usage.outputTokens",
        "usage.cacheReadInputTokenCount",
        "usage.cacheWriteInputTokenCount",
    ],
    counts: &[],
    padding: &[],
    claims,
    source: "opentelemetry-instrumentation-botocore 0.66b2; litellm 1.108.4",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["amazon.nova*/invoke"],
    quirks: Quirks { cache_beside_input: true, ..NO_QUIRKS },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    message_start: Option<Loose<Payload<'a>>>,
    #[serde(borrow)]
    content_block_start: Option<Loose<Payload<'a>>>,
    #[serde(borrow)]
    content_block_delta: Option<Loose<Payload<'a>>>,
    #[serde(borrow)]
    content_block_stop: Option<Loose<Payload<'a>>>,
    #[serde(borrow)]
    message_stop: Option<Loose<Payload<'a>>>,
    #[serde(borrow)]
    metadata: Option<Loose<Payload<'a>>>,
}

pub(super) fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(chunk)) = serde_json::from_slice::<Loose<Chunk<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    added_to(frame.data).read(out);
    let events = [
        ("messageStart", &chunk.message_start),
        ("contentBlockStart", &chunk.content_block_start),
        ("contentBlockDelta", &chunk.content_block_delta),
        ("contentBlockStop", &chunk.content_block_stop),
        ("messageStop", &chunk.message_stop),
        ("metadata", &chunk.metadata),
    ];
    let mut reading = Reading::Strange;
    for (name, event) in events {
        if let Some(event) = event {
            reading = bedrock_converse::read_event(name, event, out);
        }
    }
    reading
}

fn claims(probe: &Probe<'_>) -> bool {
    ["contentBlockDelta", "messageStart", "messageStop"].iter().any(|event| probe.has(event))
}
