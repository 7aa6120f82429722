//! Text completions, Claude's wire before Messages.
//!
//! The last chunk has the finish reason and ends the stream. A natural end is a stop sequence too:
//! the next `Human:`. On Bedrock the same paths also serve Messages, so payloads of that wire are
//! read as Messages.
//!
//! Source: `anthropic` 2.8.0 `MIGRATION.md`, `lib/bedrock/_stream_decoder.py`.

use serde::Deserialize;

use super::anthropic::{self, ERROR_PATTERNS};
use super::bedrock_invoke::added_to;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::Reason;
use crate::event::Event;
use crate::frame::{Frame, FrameKind, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Loose, Scalar, Text};

/// The `anthropic-complete` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "anthropic-complete",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[Words::plain(
        "stop_reason",
        "stop_reason",
        &[("stop_sequence", Reason::StopSequence), ("max_tokens", Reason::OutputLimit)],
    )],
    wins: Wins::Last,
    calls_close: CallsClose::ByEvent,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["max_tokens_to_sample"],
    streams: Streams::Flag("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("prompt", "")],
        ..common::REQUEST
    },
    usage: &[],
    counts: &[],
    padding: &[],
    claims,
    source: "anthropic 2.8.0 MIGRATION.md, lib/bedrock",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/v1/complete"],
    capabilities: Capabilities { tools: false, usage_in_streams: false, ..COMMON_CAPABILITIES },
    notes: &["removed from the SDKs at version 1; replaced by Messages"],
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    completion: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    #[serde(borrow)]
    stop: Text<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let Some(text) = &wire.completion else { return read_message(frame, out) };
    out.emit(Event::Begin { id: &wire.id, model: &wire.model });
    out.choice(0);
    out.text(0, text);
    let added = added_to(frame.data);
    added.read(out);
    out.detail(Some(0), "stop", &wire.stop);
    let word = wire.stop_reason.said();
    if let Some(word) = word {
        out.emit(Event::Word { choice: 0, field: "stop_reason", word: word.clone() });
    }
    if word.is_some() || added.is_last() {
        out.emit(Event::Proof);
    }
    Reading::Read
}

fn read_message(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    match frame.kind {
        FrameKind::Body => anthropic::read_body(frame, out),
        FrameKind::Event | FrameKind::Exception | FrameKind::Text => anthropic::read(frame, out),
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.text("type") == "completion" || probe.has("completion")
}
