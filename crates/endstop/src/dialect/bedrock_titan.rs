//! Amazon Titan Text on Bedrock's `InvokeModel`.
//!
//! The last chunk has the finish reason, which is null before, and ends the stream. If a guardrail
//! blocks the input, the guardrail action takes the place of the finish reason.
//!
//! Source: `opentelemetry-instrumentation-botocore` 0.66b2 `extensions/bedrock.py`; Portkey's
//! adapter has `FINISHED` where AWS sends `FINISH`.

use serde::Deserialize;

use super::bedrock_converse::ERROR_PATTERNS;
use super::bedrock_invoke::added_to;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::{Reason, Usage};
use crate::event::{Event, Word};
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Loose, Scalar, Text};

/// The `bedrock-titan` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "bedrock-titan",
    framing: Framing::AwsChunks,
    read,
    read_body,
    words: &[
        Words::plain(
            "completionReason",
            "results[].completionReason",
            &[
                ("FINISH", Reason::Complete),
                ("FINISHED", Reason::Complete),
                ("LENGTH", Reason::OutputLimit),
                ("STOP_CRITERIA_MET", Reason::StopSequence),
                ("CONTENT_FILTERED", Reason::Filtered),
                ("RAG_QUERY_WHEN_RAG_DISABLED", Reason::Failed),
            ],
        ),
        Words::plain(
            "amazon-bedrock-guardrailAction",
            "amazon-bedrock-guardrailAction",
            &[("INTERVENED", Reason::Filtered)],
        ),
    ],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: ERROR_PATTERNS,
    caps: &["textGenerationConfig.maxTokenCount"],
    streams: Streams::Path("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[ConversationShape::Prompt("inputText", "")],
        ..common::REQUEST
    },
    usage: &["inputTextTokenCount", "results[].tokenCount"],
    counts: &[],
    padding: &[],
    claims,
    source: "opentelemetry-instrumentation-botocore 0.66b2; langchain-aws 1.9.1",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["amazon.titan*/invoke"],
    capabilities: Capabilities { tools: false, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    output_text: Option<Text<'a>>,
    #[serde(borrow)]
    completion_reason: Scalar<'a>,
    input_text_token_count: Count,
    total_output_text_token_count: Count,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    results: Few<Loose<TitanResult<'a>>>,
    input_text_token_count: Count,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TitanResult<'a> {
    token_count: Count,
    #[serde(borrow)]
    output_text: Text<'a>,
    #[serde(borrow)]
    completion_reason: Scalar<'a>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(chunk)) = serde_json::from_slice::<Loose<Chunk<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let Some(text) = &chunk.output_text else { return Reading::Strange };
    let added = added_to(frame.data);
    out.text(0, text);
    emit_usage(chunk.input_text_token_count, chunk.total_output_text_token_count, out);
    added.read(out);
    // The total is null until the last chunk.
    let last = added.is_last() || chunk.total_output_text_token_count.0.is_some();
    read_word(0, &chunk.completion_reason, last && added.intervened(), out);
    if last || chunk.completion_reason.said().is_some() {
        out.emit(Event::Proof);
    }
    Reading::Read
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if !body.results.present {
        return Reading::Strange;
    }
    let added = added_to(frame.data);
    for (index, result) in (0..).zip(body.results.iter()) {
        out.choice(index);
        out.text(index, &result.output_text);
        emit_usage(body.input_text_token_count, result.token_count, out);
    }
    added.read(out);
    for (index, result) in (0..).zip(body.results.iter()) {
        read_word(index, &result.completion_reason, added.intervened(), out);
    }
    Reading::Read
}

fn read_word(choice: u32, word: &Scalar<'_>, intervened: bool, out: &mut EventSink<'_, '_>) {
    if let Some(word) = word.said() {
        out.emit(Event::Word { choice, field: "completionReason", word: word.clone() });
    } else if intervened {
        let word = Word::Text("INTERVENED".into());
        out.emit(Event::Word { choice, field: "amazon-bedrock-guardrailAction", word });
    }
}

fn emit_usage(input: Count, output: Count, out: &mut EventSink<'_, '_>) {
    if input.0.is_some() || output.0.is_some() {
        out.emit(Event::Usage(Usage { input: input.0, output: output.0, ..Usage::default() }));
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("outputText") || probe.has("inputTextTokenCount") && probe.has("results")
}
