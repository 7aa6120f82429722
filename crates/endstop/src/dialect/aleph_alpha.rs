//! Aleph Alpha's native `/complete`: chunks, a summary with the finish reason of each completion,
//! and a last event with the usage.
//!
//! Source: `aleph-alpha-client` 11.5.1, crate `aleph-alpha-client` 0.30.0 and its tests.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::openai_chat::ERROR_PATTERNS;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::{Reason, Usage};
use crate::event::Event;
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Loose, Scalar, Text};

/// The `aleph-alpha-complete` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "aleph-alpha-complete",
    framing: Framing::Sse,
    read,
    read_body,
    words: &[Words::plain(
        "finish_reason",
        "completions[].finish_reason",
        &[
            ("end_of_text", Reason::Complete),
            ("stop_sequence_reached", Reason::StopSequence),
            ("maximum_tokens", Reason::OutputLimit),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["maximum_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("prompt", "")],
        ..common::REQUEST
    },
    usage: &["num_tokens_prompt_total", "num_tokens_generated"],
    counts: &[],
    padding: &[],
    claims,
    source: "aleph-alpha-client 11.5.1; crate aleph-alpha-client 0.30.0",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/complete"],
    capabilities: Capabilities { tools: false, choices: true, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    index: Count,
    #[serde(borrow)]
    completion: Text<'a>,
    #[serde(borrow)]
    completions: Few<Loose<Completion<'a>>>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    num_tokens_prompt_total: Count,
    num_tokens_generated: Count,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Completion<'a> {
    #[serde(borrow)]
    completion: Text<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let choice = wire.index.index();
    match &*wire.type_ {
        _ if is_set(wire.error) => return Reading::Error,
        "stream_chunk" => {
            out.choice(choice);
            out.text(choice, &wire.completion);
        }
        "stream_summary" => {
            out.choice(choice);
            say(choice, &wire.finish_reason, out);
        }
        "completion_summary" => {
            count(&wire, out);
            out.emit(Event::Proof);
        }
        _ => return Reading::Strange,
    }
    Reading::Read
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if is_set(wire.error) {
        return Reading::Error;
    }
    if !wire.completions.present {
        return Reading::Strange;
    }
    for (choice, completion) in (0..).zip(wire.completions.iter()) {
        out.choice(choice);
        out.text(choice, &completion.completion);
        say(choice, &completion.finish_reason, out);
    }
    count(&wire, out);
    Reading::Read
}

fn say(choice: u32, word: &Scalar<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(word) = word.said() {
        out.emit(Event::Word { choice, field: "finish_reason", word: word.clone() });
    }
}

fn count(wire: &Payload<'_>, out: &mut EventSink<'_, '_>) {
    out.emit(Event::Usage(Usage {
        input: wire.num_tokens_prompt_total.0,
        output: wire.num_tokens_generated.0,
        ..Usage::default()
    }));
}

fn claims(probe: &Probe<'_>) -> bool {
    matches!(&*probe.text("type"), "stream_chunk" | "stream_summary" | "completion_summary")
        || probe.has("completions") && probe.has("model_version")
}
