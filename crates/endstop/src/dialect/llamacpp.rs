//! llama.cpp's native `/completion`.
//!
//! The last event has `stop` set and the finish reason, and ends the stream. `limit` means the
//! caller's token limit, the end of the context or a time limit; `truncated` is kept with it.
//!
//! Source: llama.cpp @b21e4de `tools/server/server-task.cpp`, `tools/server/README.md`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::{Reason, Usage};
use crate::event::{Event, Word};
use crate::fault::FaultKind;
use crate::fault::pattern::class;
use crate::frame::{Frame, FrameKind, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Flag, Loose, Scalar, Text};

/// The `llamacpp-completion` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "llamacpp-completion",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[
        Words {
            empty: &["none"],
            ..Words::plain(
                "stop_type",
                "stop_type",
                &[
                    ("eos", Reason::Complete),
                    ("word", Reason::StopSequence),
                    ("limit", Reason::OutputLimit),
                ],
            )
        },
        // Servers before the end of 2024 sent a flag for each.
        Words::plain("stopped_limit", "stopped_limit", &[("true", Reason::OutputLimit)]),
        Words::plain("stopped_word", "stopped_word", &[("true", Reason::StopSequence)]),
        Words::plain("stopped_eos", "stopped_eos", &[("true", Reason::Complete)]),
    ],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: &[class("server_error", FaultKind::Server)],
    caps: &["n_predict"],
    streams: Streams::Flag("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("prompt", "")],
        ..common::REQUEST
    },
    usage: &["tokens_evaluated", "tokens_predicted"],
    counts: &[],
    padding: &[],
    claims,
    source: "llama.cpp @b21e4de",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/completion"],
    capabilities: Capabilities { tools: false, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    index: Count,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    content: Option<Text<'a>>,
    stop: Flag,
    #[serde(borrow)]
    stop_type: Scalar<'a>,
    stopped_limit: Flag,
    stopped_word: Flag,
    stopped_eos: Flag,
    #[serde(borrow)]
    stopping_word: Text<'a>,
    truncated: Flag,
    tokens_evaluated: Count,
    tokens_predicted: Count,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if is_set(wire.error) {
        return Reading::Error;
    }
    let Some(text) = &wire.content else { return Reading::Strange };
    let choice = wire.index.index();
    out.choice(choice);
    out.text(choice, text);
    if wire.stop.0 {
        read_end(choice, &wire, out);
        return Reading::Read;
    }
    if frame.kind == FrameKind::Body { Reading::Unfinished } else { Reading::Read }
}

fn read_end(choice: u32, wire: &Payload<'_>, out: &mut EventSink<'_, '_>) {
    out.emit(Event::Begin { id: "", model: &wire.model });
    out.emit(Event::Usage(Usage {
        input: wire.tokens_evaluated.0,
        output: wire.tokens_predicted.0,
        ..Usage::default()
    }));
    out.detail(Some(choice), "stopping_word", &wire.stopping_word);
    if wire.truncated.0 {
        out.detail(Some(choice), "truncated", "true");
    }
    let flags = [
        ("stopped_limit", wire.stopped_limit),
        ("stopped_word", wire.stopped_word),
        ("stopped_eos", wire.stopped_eos),
    ];
    if let Some(word) = wire.stop_type.said() {
        out.emit(Event::Word { choice, field: "stop_type", word: word.clone() });
    } else if let Some((field, _)) = flags.into_iter().find(|(_, flag)| flag.0) {
        out.emit(Event::Word { choice, field, word: Word::Text("true".into()) });
    }
    out.emit(Event::Proof);
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("content") && probe.has("stop")
}
