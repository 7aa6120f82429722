//! Mistral and `DeepSeek` on Bedrock's `InvokeModel`: a list of texts or messages, each with a
//! finish reason.
//!
//! This is not Mistral's own wire: the list is `outputs` for prompts and `choices` for chats, and
//! the finish reason is `stop_reason` in both. Newer models send chat completions instead.
//!
//! Source: `opentelemetry-instrumentation-botocore` 0.66b2 `extensions/bedrock.py`; `langchain-aws`
//! 1.9.1 `llms/bedrock.py`; AWS, "Mistral AI chat completion", which has tools. Their finish reason
//! is inferred from Mistral's own wire.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::bedrock_converse::ERROR_PATTERNS;
use super::bedrock_invoke::added_to;
use super::openai_chat::{self, arguments_text};
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common;
use crate::ending::Reason;
use crate::event::Event;
use crate::frame::{Frame, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::Profile;
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Listed, Loose, Scalar, Text};

/// The `bedrock-mistral` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "bedrock-mistral",
    framing: Framing::AwsChunks,
    read,
    read_body: read,
    words: &[
        Words::plain(
            "stop_reason",
            "outputs[].stop_reason",
            &[
                ("stop", Reason::Complete),
                ("length", Reason::OutputLimit),
                ("tool_calls", Reason::ToolCall),
            ],
        ),
        // Newer models send chat completions.
        Words::plain(
            "finish_reason",
            "choices[].finish_reason",
            &[
                ("stop", Reason::Complete),
                ("length", Reason::OutputLimit),
                ("tool_calls", Reason::ToolCall),
            ],
        ),
    ],
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
    paths: &["mistral.m*/invoke", "mistral.pixtral*/invoke", "deepseek*/invoke"],
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    outputs: Listed<Loose<Output<'a>>>,
    #[serde(borrow)]
    choices: Listed<Loose<Output<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Output<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    message: Loose<Message<'a>>,
    #[serde(borrow)]
    stop_reason: Scalar<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
}

impl Output<'_> {
    /// Reports whether this is a choice of a chat completion.
    fn is_chat(&self) -> bool {
        self.delta.is_some() || self.finish_reason.said().is_some()
    }

    fn is_said(&self) -> bool {
        self.stop_reason.said().is_some() || self.finish_reason.said().is_some()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    function: Loose<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let added = added_to(frame.data);
    if !wire.outputs.present && !wire.choices.present && !added.is_last() {
        return Reading::Strange;
    }
    let outputs = || wire.outputs.iter().chain(wire.choices.iter());
    let mut reading = Reading::Read;
    if wire.choices.iter().any(|choice| choice.is_chat()) {
        reading = openai_chat::read(frame, out);
    } else {
        for (choice, output) in (0..).zip(outputs()) {
            read_output(choice, output, out);
        }
    }
    added.read(out);
    if added.is_last() || outputs().next().is_some() && outputs().all(|output| output.is_said()) {
        out.emit(Event::Proof);
    }
    reading
}

fn read_output(choice: u32, output: &Output<'_>, out: &mut EventSink<'_, '_>) {
    out.choice(choice);
    out.text(choice, &output.text);
    out.text(choice, &output.message.content);
    for wire in output.message.tool_calls.iter() {
        let call = out.next_call(choice);
        let arguments = wire.function.arguments.map(arguments_text).unwrap_or_default();
        out.emit(Event::ToolCallStart { choice, call, id: &wire.id, name: &wire.function.name });
        out.emit(Event::ToolCallDelta { choice, call, arguments: &arguments });
        out.emit(Event::ToolCallEnd { choice, call });
    }
    if let Some(word) = output.stop_reason.said() {
        out.emit(Event::Word { choice, field: "stop_reason", word: word.clone() });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("outputs")
}
