//! Cloudflare's `/ai/run/`, whose own form never has a finish reason.
//!
//! A stream ends with `[DONE]`, and a body is wrapped in `result`. Both prove that the response
//! ended, but nothing shows whether the token limit truncated it. Tool calls have Cloudflare's form
//! or OpenAI's. Some models answer with a chat completion, which has one.
//!
//! Source: maruel/genai @66b63e6 `providers/cloudflare`, recordings; developers.cloudflare.com,
//! Workers AI errors.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::is_set;
use super::openai_chat::{self, WireUsage, arguments_text};
use super::{CallsClose, Dialect, Proof, Reading, Streams, Wins, Words};
use crate::dialect::common::{self, MESSAGES};
use crate::ending::Reason;
use crate::event::Event;
use crate::fault::FaultKind;
use crate::fault::pattern::name;
use crate::frame::{Frame, FrameKind, Framing};
use crate::next_request::{ConversationShape, RequestShape};
use crate::provider::Profile;
use crate::shape::Probe;
use crate::sink::EventSink;
use crate::wire::{Count, Few, Listed, Loose, Text};

/// The `cloudflare-run` dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    id: "cloudflare-run",
    framing: Framing::Sse,
    read,
    read_body,
    // Some models answer with a chat completion.
    words: &[Words::plain(
        "finish_reason",
        "result.choices[].finish_reason",
        &[
            ("stop", Reason::Complete),
            ("length", Reason::OutputLimit),
            ("tool_calls", Reason::ToolCall),
        ],
    )],
    wins: Wins::First,
    calls_close: CallsClose::ByWord,
    proof: Proof::Marker(common::END_MARKER),
    error_patterns: &[
        // A schema that the model or the mode does not support, with HTTP 403.
        name("5023", FaultKind::InvalidRequest),
        name("5025", FaultKind::InvalidRequest),
        name("3007", FaultKind::Timeout),
        name("3036", FaultKind::Quota),
        name("3040", FaultKind::Overloaded),
        name("3042", FaultKind::NotFound),
        name("5007", FaultKind::NotFound),
    ],
    caps: &["max_tokens"],
    streams: Streams::Flag("stream"),
    error_shape: common::ERRORS,
    request_shape: RequestShape {
        conversation: &[
            ConversationShape::MessageList(MESSAGES),
            ConversationShape::Templated("prompt", "raw"),
        ],
        ..common::REQUEST
    },
    usage: &["result.usage.prompt_tokens", "result.usage.completion_tokens"],
    counts: &[],
    padding: &["p"],
    claims,
    source: "maruel/genai @66b63e6 recordings; developers.cloudflare.com Workers AI errors",
};

/// Base profile for the providers of this dialect.
pub(crate) const PROFILE: Profile = Profile { paths: &["/ai/run/*"], ..DIALECT.profile() };

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer<'a> {
    #[serde(borrow)]
    response: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Listed<Loose<ToolCall<'a>>>,
    #[serde(borrow)]
    choices: Few<&'a RawValue>,
    usage: Option<Loose<WireUsage>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    index: Option<Count>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
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
struct Body<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    errors: Option<&'a RawValue>,
}

fn read(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(answer)) = serde_json::from_slice::<Loose<Answer<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if answer.choices.present {
        return openai_chat::read(frame, out);
    }
    if answer.response.is_none() && !answer.tool_calls.present && answer.usage.is_none() {
        return Reading::Strange;
    }
    read_answer(&answer, out);
    Reading::Read
}

fn read_body(frame: &Frame<'_>, out: &mut EventSink<'_, '_>) -> Reading {
    let Ok(Loose(body)) = serde_json::from_slice::<Loose<Body<'_>>>(frame.data) else {
        return Reading::Malformed;
    };
    if is_set(body.errors) {
        return Reading::Error;
    }
    match body.result {
        Some(result) => {
            let Loose(answer) = serde_json::from_str(result.get()).unwrap_or_default();
            let answer: Answer<'_> = answer;
            if answer.choices.present {
                return openai_chat::read(&Frame { data: result.get().as_bytes(), ..*frame }, out);
            }
            read_answer(&answer, out);
            if let Some(call) = out.open_call(0) {
                out.emit(Event::ToolCallEnd { choice: 0, call });
            }
        }
        // A stream of only one event, without its framing.
        None if frame.kind == FrameKind::Body => return read(frame, out),
        None => return Reading::Strange,
    }
    Reading::Read
}

fn read_answer(answer: &Answer<'_>, out: &mut EventSink<'_, '_>) {
    out.choice(0);
    if let Some(text) = &answer.response {
        out.text(0, text);
    }
    for wire in answer.tool_calls.iter() {
        read_call(wire, out);
    }
    if let Some(usage) = &answer.usage {
        out.emit(Event::Usage(usage.read()));
    }
}

fn read_call(wire: &ToolCall<'_>, out: &mut EventSink<'_, '_>) {
    let call = wire.index.map_or_else(|| out.next_call(0), Count::index);
    let name = if wire.name.is_empty() { &wire.function.name } else { &wire.name };
    if !name.is_empty() {
        out.emit(Event::ToolCallStart { choice: 0, call, id: &wire.id, name });
    }
    let arguments = wire.arguments.or(wire.function.arguments);
    let arguments = arguments.map(arguments_text).unwrap_or_default();
    if !arguments.is_empty() {
        out.emit(Event::ToolCallDelta { choice: 0, call, arguments: &arguments });
    }
}

fn claims(probe: &Probe<'_>) -> bool {
    probe.has("result") && probe.has("success") || probe.has_text("response")
}
