//! Replicate predictions: a status, but no token usage.
//!
//! A model that reached its token limit also has `succeeded`, so that status is vague. The output
//! of a stream is plain text. The event `done` ends the stream, with a reason if something went
//! wrong.
//!
//! Source: `replicate` 1.0.7 `prediction.py`, `stream.py`; replicate.com/docs, streaming output.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::Reason;
use crate::event::{Event, Word};
use crate::frame::{Frame, Framing};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Content, Loose, Scalar, Text};

/// The `replicate` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "replicate",
    framing: Framing::Sse,
    read,
    read_body,
    words: &[
        Words {
            vague: &["succeeded"],
            pending: &["starting", "processing"],
            ..Words::plain(
                "status",
                "status",
                &[
                    ("succeeded", Reason::Complete),
                    ("failed", Reason::Failed),
                    ("canceled", Reason::Cancelled),
                ],
            )
        },
        Words { vague: &["done"], ..Words::plain("event", "event", &[("done", Reason::Complete)]) },
        Words::plain(
            "reason",
            "reason",
            &[("canceled", Reason::Cancelled), ("error", Reason::Failed)],
        ),
    ],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    // Errors are free text from the model's code, so there are no common patterns.
    error_patterns: &[],
    caps: &["input.max_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: common::ERRORS,
    request_shape: common::REQUEST,
    usage: &[],
    counts: &[],
    padding: &[],
    claims,
    source: "replicate 1.0.7",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/predictions", "/predictions/{id}"],
    capabilities: Capabilities { tools: false, usage_in_streams: false, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    status: Scalar<'a>,
    #[serde(borrow)]
    output: Content<'a, Text<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Done<'a> {
    #[serde(borrow)]
    reason: Scalar<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    match frame.name {
        "output" => match std::str::from_utf8(frame.data) {
            Ok(text) => out.text(0, text),
            Err(_) => return Reading::Malformed,
        },
        "logs" => {}
        "error" => return Reading::Error,
        "done" => return read_done("done", frame.data, out),
        name if out.is_taught("event", name) => return read_done(name, frame.data, out),
        _ => return Reading::Strange,
    }
    Reading::Read
}

fn read_done(name: &str, data: &[u8], out: &mut EventSink<'_, '_>) -> Reading {
    let data = if data.is_empty() { b"{}" } else { data };
    let Ok(Loose(done)) = serde_json::from_slice::<Loose<Done<'_>>>(data) else {
        return Reading::Malformed;
    };
    let (field, word) = match done.reason.said() {
        Some(reason) => ("reason", reason.clone()),
        None => ("event", Word::Text(name.into())),
    };
    out.emit(Event::Word { choice: 0, field, word });
    out.emit(Event::Proof);
    Reading::Read
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let Some(status) = body.status.said() else { return Reading::Strange };
    out.emit(Event::Begin { id: &body.id, model: &body.model });
    match &body.output {
        Content::Text(text) => out.text(0, text),
        Content::Parts(parts) => parts.iter().for_each(|text| out.text(0, text)),
    }
    let word = status.to_text();
    if out.is_pending("status", &word) {
        out.emit(Event::Pending { field: "status", word: &word });
    } else {
        out.emit(Event::Word { choice: 0, field: "status", word: status.clone() });
    }
    if is_set(body.error) { Reading::Error } else { Reading::Read }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("urls") && probe.has("status")
}
