//! IBM watsonx `text/generation`, and its predecessor at IBM's research service.
//!
//! Every event has a finish reason, which is `not_finished` until the last event. Nothing follows
//! the last event, so its finish reason ends the stream. Token counts in a stream are cumulative;
//! only the first event counts the input.
//!
//! Source: `@ibm-cloud/watsonx-ai` 1.7.16 `types/vml_v1.d.ts`, which tells clients to ignore case;
//! langchain4j's watsonx module for the error codes.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::{Reason, Usage};
use crate::event::{Event, Word};
use crate::fault::FaultKind;
use crate::fault::pattern::name;
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Loose, Scalar, Text};

/// The `watsonx` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "watsonx",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[Words {
        pending: &["not_finished", "NOT_FINISHED"],
        ..Words::plain(
            "stop_reason",
            "results[].stop_reason",
            &[
                ("eos_token", Reason::Complete),
                ("EOS_TOKEN", Reason::Complete),
                ("stop_sequence", Reason::StopSequence),
                ("STOP_SEQUENCE", Reason::StopSequence),
                ("max_tokens", Reason::OutputLimit),
                ("MAX_TOKENS", Reason::OutputLimit),
                // Not the caller's limit, but the room that is left in the context window.
                ("token_limit", Reason::ContextLimit),
                ("TOKEN_LIMIT", Reason::ContextLimit),
                ("time_limit", Reason::TimedOut),
                ("TIME_LIMIT", Reason::TimedOut),
                ("cancelled", Reason::Cancelled),
                ("CANCELLED", Reason::Cancelled),
                ("error", Reason::Failed),
                ("ERROR", Reason::Failed),
            ],
        )
    }],
    wins: Wins::Last,
    calls_close: CallsClose::ByWord,
    proof: Proof::Word,
    error_patterns: &[
        name("authentication_token_expired", FaultKind::Auth),
        name("model_not_supported", FaultKind::NotFound),
        name("token_quota_reached", FaultKind::Quota),
    ],
    caps: &["parameters.max_new_tokens"],
    streams: Streams::Path("_stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("input", "")],
        ..common::REQUEST
    },
    usage: &["results[].input_token_count", "results[].generated_token_count"],
    counts: &[],
    padding: &[],
    claims,
    source: "@ibm-cloud/watsonx-ai 1.7.16",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/text/generation", "/generation/text", "/v2/text/chat"],
    capabilities: Capabilities { tools: false, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model_id: Text<'a>,
    #[serde(borrow)]
    results: Few<Loose<Generated<'a>>>,
    #[serde(borrow)]
    errors: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Generated<'a> {
    #[serde(borrow)]
    generated_text: Text<'a>,
    generated_token_count: Count,
    input_token_count: Count,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if is_set(wire.errors) {
        return Reading::Error;
    }
    if !wire.results.present {
        return Reading::Strange;
    }
    out.emit(Event::Begin { id: &wire.id, model: &wire.model_id });
    for (choice, result) in (0..).zip(wire.results.iter()) {
        out.choice(choice);
        out.text(choice, &result.generated_text);
        out.emit(Event::Usage(Usage {
            // A stream counts the input once and sends zero after that.
            input: result.input_token_count.0.filter(|count| *count > 0),
            output: result.generated_token_count.0,
            ..Usage::default()
        }));
        let is_over = |word: &&Word<'_>| !out.is_pending("stop_reason", &word.to_text());
        if let Some(word) = result.stop_reason.said().filter(is_over) {
            out.emit(Event::Word { choice, field: "stop_reason", word: word.clone() });
        }
    }
    Reading::Read
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("results") && probe.has("model_id")
}
