//! SAP AI Core's orchestration: chat completions inside an envelope with the result of each module.
//!
//! The result of the last module counts: `final_result`, or `orchestration_result` in version 1.
//! The model's own response is in `intermediate_results` and can differ from it.
//!
//! Source: SAP/ai-sdk-js @42429d1 `packages/orchestration`; SAP/ai-sdk-java @6e1783e.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::openai_chat::{self, ERROR_PATTERNS};
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::Reason;
use crate::frame::{Frame, Framing};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Loose, Scalar, Text};

/// The `sap-orchestration` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "sap-orchestration",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[Words::plain(
        "finish_reason",
        "final_result.choices[].finish_reason",
        &[
            ("stop", Reason::Complete),
            ("length", Reason::OutputLimit),
            ("tool_calls", Reason::ToolCall),
            ("content_filter", Reason::Filtered),
            ("error", Reason::Failed),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Marker(common::END_MARKER),
    error_patterns: ERROR_PATTERNS,
    caps: &["config.modules.prompt_templating.model.params.max_tokens"],
    streams: Streams::Flag("config.stream.enabled"),
    error_shape: common::ERRORS,
    request_shape: common::REQUEST,
    usage: &["final_result.usage.prompt_tokens", "final_result.usage.completion_tokens"],
    counts: &[],
    padding: &["request_id"],
    claims,
    source: "SAP/ai-sdk-js @42429d1; SAP/ai-sdk-java @6e1783e",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/v2/completion", "/deployments/*/completion"],
    capabilities: Capabilities { choices: true, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope<'a> {
    #[serde(borrow)]
    final_result: Option<&'a RawValue>,
    #[serde(borrow)]
    orchestration_result: Option<&'a RawValue>,
    #[serde(borrow)]
    intermediate_results: Option<&'a RawValue>,
    #[serde(borrow)]
    module_results: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Fields of an error in version 1, which has no object around them.
    #[serde(borrow)]
    code: Scalar<'a>,
    #[serde(borrow)]
    message: Text<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(envelope)) = serde_json::from_slice::<Loose<Envelope<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let Envelope { final_result, orchestration_result, .. } = envelope;
    match final_result.or(orchestration_result).filter(|result| result.get() != "null") {
        _ if is_set(envelope.error) => Reading::Error,
        None if envelope.code.said().is_some() && !envelope.message.is_empty() => Reading::Error,
        Some(result) => {
            let inner = Frame { data: result.get().as_bytes(), ..*frame };
            openai_chat::read(&inner, out)
        }
        None if envelope.intermediate_results.or(envelope.module_results).is_some() => {
            Reading::Read
        }
        None => Reading::Strange,
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("final_result") || probe.has("orchestration_result")
}
