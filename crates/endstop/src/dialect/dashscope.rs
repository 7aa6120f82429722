//! Alibaba's native `DashScope` wire.
//!
//! Until the last event, the finish reason is the string `null`. Nothing follows the last event, so
//! its finish reason ends the stream. Each event has either new text and arguments or all of them
//! so far, as the caller asked (`incremental_output`); the second event shows which. Errors are
//! flat, and the event's name marks them in a stream.
//!
//! Source: `dashscope` 2.0.2 `common/utils.py`, `v2/resources/_sse.py`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::openai_chat::arguments_text;
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words, openai_chat};
use crate::dialect::common::{self, MESSAGES};
use crate::ending::{Reason, Usage};
use crate::event::Event;
use crate::fault::FaultKind;
use crate::fault::pattern::{class, name};
use crate::frame::{Frame, Framing};
use crate::next_request::{
    ConversationShape, Effort, ForcedTool, MessageList, RequestShape, Restriction, Scale,
    Temperature,
};
use crate::provider::{COMMON_CAPABILITIES, Capabilities, Profile};
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Content, Count, Listed, Loose, Scalar, Text};

/// The `dashscope` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "dashscope",
    framing: Framing::Sse,
    read,
    read_body: read,
    words: &[Words::plain(
        "finish_reason",
        "output.choices[].finish_reason",
        &[
            ("stop", Reason::Complete),
            ("length", Reason::OutputLimit),
            ("tool_calls", Reason::ToolCall),
        ],
    )],
    wins: Wins::Last,
    calls_close: CallsClose::ByWord,
    proof: Proof::Word,
    error_patterns: &[
        name("DataInspectionFailed", FaultKind::Filter),
        name("data_inspection_failed", FaultKind::Filter),
        name("InvalidApiKey", FaultKind::Auth),
        name("Arrearage", FaultKind::Quota),
        name("ModelNotFound", FaultKind::NotFound),
        name("Throttling", FaultKind::RateLimit),
        name("Throttling.RateQuota", FaultKind::RateLimit),
        name("Throttling.AllocationQuota", FaultKind::RateLimit),
        class("InvalidParameter", FaultKind::InvalidRequest),
    ],
    caps: &["parameters.max_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: common::ERRORS,
    request_shape: REQUEST_SHAPE,
    usage: &["usage.input_tokens", "usage.output_tokens"],
    counts: &[],
    padding: &[],
    claims,
    source: "dashscope 2.0.2",
};

/// Request fields of this dialect.
const REQUEST_SHAPE: RequestShape = RequestShape {
    conversation: &[
        ConversationShape::MessageList(MessageList { list: "input.messages", ..MESSAGES }),
        ConversationShape::Templated("input.prompt", "raw"),
    ],
    forced_tools: &[ForcedTool {
        tools: "parameters.tools",
        field: "parameters.tool_choice",
        value: openai_chat::choice,
        models: &[],
        restrictions: &[THINKS],
    }],
    temperature: Temperature {
        field: "parameters.temperature",
        refused_by: &[],
        only_if_sent: false,
    },
    efforts: &[
        Effort::new("parameters.thinking_budget", Scale::tokens_if_said(128)),
        Effort::new("parameters.enable_thinking", Scale::Flag),
    ],
    ..common::REQUEST
};

/// Restriction on forced tools while thinking is enabled (duolahypercho/codex-router#106).
const THINKS: Restriction = Restriction {
    field: "parameters.enable_thinking",
    fine: &[],
    by_default: false,
    because: "thinking is enabled",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile {
    paths: &["/services/aigc/*/generation"],
    capabilities: Capabilities { choices: true, ..COMMON_CAPABILITIES },
    ..DIALECT.profile()
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    request_id: Text<'a>,
    #[serde(borrow)]
    output: Option<Loose<Output<'a>>>,
    #[serde(borrow)]
    code: Text<'a>,
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Output<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
    #[serde(borrow)]
    choices: Listed<Loose<Choice<'a>>>,
    /// Only message of deep research, which misspells the key of its finish reason (recorded,
    /// cnblogs/dashscope-sdk).
    #[serde(borrow)]
    message: Option<Loose<Message<'a>>>,
    #[serde(borrow)]
    fininshed_reason: Scalar<'a>,
    #[serde(borrow)]
    finished_reason: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    #[serde(borrow)]
    message: Loose<Message<'a>>,
    #[serde(borrow)]
    finish_reason: Scalar<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Content<'a, Loose<Part<'a>>>,
    #[serde(borrow)]
    reasoning_content: Text<'a>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow)]
    text: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    index: Count,
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(wire)) = serde_json::from_slice::<Loose<Payload<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    let Some(output) = &wire.output else {
        let failed = !wire.code.is_empty() || frame.name == "error";
        return if failed { Reading::Error } else { Reading::Strange };
    };
    out.emit(Event::Begin { id: &wire.request_id, model: "" });
    out.choice(0);
    out.growing_text(0, &output.text);
    for (choice, wire) in (0..).zip(output.choices.iter()) {
        read_message(choice, &wire.message, out);
        read_word(choice, &wire.finish_reason, out);
    }
    if let Some(usage) = &wire.usage {
        out.emit(Event::Usage(Usage {
            input: usage.input_tokens.0,
            output: usage.output_tokens.0,
            ..Usage::default()
        }));
    }
    if let Some(message) = &output.message {
        read_message(0, message, out);
    }
    for word in [&output.finish_reason, &output.fininshed_reason, &output.finished_reason] {
        read_word(0, word, out);
    }
    if wire.code.is_empty() { Reading::Read } else { Reading::Error }
}

fn read_message(choice: u32, message: &Message<'_>, out: &mut EventSink<'_, '_>) {
    out.choice(choice);
    out.growing_reasoning(choice, &message.reasoning_content);
    match &message.content {
        Content::Text(text) => out.growing_text(choice, text),
        Content::Parts(parts) => {
            let text: String = parts.iter().map(|part| &*part.text).collect();
            out.growing_text(choice, &text);
        }
    }
    for wire in message.tool_calls.iter() {
        let call = wire.index.index();
        let (id, name) = (&wire.id, &wire.function.name);
        if !id.is_empty() || !name.is_empty() {
            out.emit(Event::ToolCallStart { choice, call, id, name });
        }
        let arguments = wire.function.arguments.map(arguments_text).unwrap_or_default();
        out.growing_arguments(choice, call, &arguments);
    }
}

fn read_word(choice: u32, word: &Scalar<'_>, out: &mut EventSink<'_, '_>) {
    if let Some(word) = word.said() {
        out.emit(Event::Word { choice, field: "finish_reason", word: word.clone() });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has_object("output") && probe.has("request_id")
}
