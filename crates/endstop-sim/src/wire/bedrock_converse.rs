//! Bedrock Converse: AWS event-stream messages, the finish reason in `messageStop`, then usage.

use serde_json::Value;

use super::{Fault, Framing, Part, PathInfo, SimWire, WireEvent, Words};
use crate::answer::{self, Answer, Usage};
use crate::json::{Json, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = CONVERSE;

pub(super) const CONVERSE: SimWire = SimWire {
    id: "bedrock-converse",
    route: "bedrock",
    bare: true,
    path: "/model/anthropic.claude-sonnet-4-5/converse-stream",
    plain_path: "/model/anthropic.claude-sonnet-4-5/converse",
    provider: &endstop::provider::BEDROCK,
    streams: true,
    tools: true,
    whole_calls: false,
    marker: false,
    reasons: true,
    rejects: REJECTS,
    remembers: None,
    refers: None,
    framing: Framing::Aws,
    words: Words {
        stop: "end_turn",
        stop_sequence: "stop_sequence",
        length: "max_tokens",
        tool_call: "tool_use",
        filter: "content_filtered",
        refusal: "guardrail_intervened",
        context: "model_context_window_exceeded",
        failed: "malformed_model_output",
    },
    takes: |path| model_path(path, "/converse", "/converse-stream"),
    read,
    stream,
    body,
    error,
    error_event,
    headers: |ask| vec![("x-amzn-requestid", ask.id(""))],
    models,
};

/// Messages of models that do not accept a prefill.
const REJECTS: &[(&str, &str)] = &[
    (
        "claude",
        "The model returned the following errors: This model does not support assistant message \
         prefill. The conversation must end with a user message.",
    ),
    (
        "llama",
        "This model requires the last turn in the conversation to be a user message. Add a user \
         message to the conversation and try again.",
    ),
    ("mistral", "Expected last role User or Tool (or Assistant with prefix True) for serving"),
];

/// Accepts `/model/{model}{plain}` or `/model/{model}{streamed}`.
pub(super) fn model_path(path: &str, plain: &str, streamed: &str) -> Option<PathInfo> {
    let rest = path.strip_prefix("/model/")?;
    let taken = |model: &str, streamed| PathInfo {
        model: Some(crate::request::decoded(model)),
        streamed: Some(streamed),
    };
    rest.strip_suffix(streamed)
        .map(|model| taken(model, true))
        .or_else(|| rest.strip_suffix(plain).map(|model| taken(model, false)))
}

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/inferenceConfig/maxTokens"]);
    ask.stop = sim_request::strings(body, "/inferenceConfig/stopSequences");
    let tool = |tool: &Value| {
        sim_request::tool(
            sim_request::text(tool, "/toolSpec/name"),
            tool.pointer("/toolSpec/inputSchema/json"),
        )
    };
    ask.tools = sim_request::items(body, "/toolConfig/tools").iter().filter_map(tool).collect();
    let messages = sim_request::items(body, "/messages");
    let is_result = |block: &Value| block.get("toolResult").is_some();
    ask.after_tool = messages
        .last()
        .is_some_and(|last| sim_request::items(last, "/content").iter().any(is_result));
    ask.read_turns(messages, "assistant", "content");
    ask.read_tool_choice(body.pointer("/toolConfig/toolChoice"));
    ask.read_absent_tools(messages);
    ask.input = messages.iter().map(sim_request::words).sum();
}

fn block(part: Part, name: &str, index: usize, key: &str, value: Json) -> WireEvent {
    let mut data = obj! { "contentBlockIndex": index };
    data.set(key, value);
    WireEvent::named(part, name, data.with("p", "abcdefgh"))
}

fn stop(part: Part, index: usize) -> WireEvent {
    let data = obj! { "contentBlockIndex": index, "p": "abcd" };
    WireEvent::named(part, "contentBlockStop", data)
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let start = obj! { "p": "abcdef", "role": "assistant" };
    let mut events = vec![WireEvent::named(Part::Start, "messageStart", start)];
    let mut index = 0_usize;
    if !choice.reasoning.is_empty() {
        for token in &choice.reasoning {
            let delta = obj! { "reasoningContent": obj! { "text": token } };
            events.push(block(Part::Reasoning, "contentBlockDelta", index, "delta", delta));
        }
        events.push(stop(Part::BlockEnd, index));
        index += 1;
    }
    if !choice.text.is_empty() {
        for token in &choice.text {
            let delta = obj! { "text": token };
            events.push(block(Part::Text, "contentBlockDelta", index, "delta", delta));
        }
        events.push(stop(Part::BlockEnd, index));
        index += 1;
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let tool = obj! { "toolUse": obj! { "name": &call.name, "toolUseId": tool_id(ask, at) } };
        events.push(block(Part::CallStart, "contentBlockStart", index, "start", tool));
        for piece in &call.pieces {
            let delta = obj! { "toolUse": obj! { "input": piece } };
            events.push(block(Part::Arguments, "contentBlockDelta", index, "delta", delta));
        }
        if call.whole {
            events.push(stop(Part::CallEnd, index));
        }
        index += 1;
    }
    let mut end = obj! { "p": "abcdefghij" };
    end.set_some("stopReason", CONVERSE.words.of(&choice.end));
    events.push(WireEvent::named(Part::Word, "messageStop", end));
    if let Some(usage) = answer.usage {
        let data = obj! { "metrics": obj! { "latencyMs": 7_u64 }, "usage": usage_of(usage) };
        events.push(WireEvent::named(Part::Usage, "metadata", data));
    }
    events
}

fn tool_id(ask: &SimRequest, at: usize) -> String {
    format!("{}_{at}", ask.id("tooluse_"))
}

fn usage_of(usage: Usage) -> Json {
    obj! {
        "inputTokens": usage.input, "outputTokens": usage.output,
        "totalTokens": usage.input + usage.output,
    }
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut content = Vec::new();
    if !choice.reasoning.is_empty() {
        let text = obj! { "text": choice.reasoning.concat(), "signature": "c2lt" };
        content.push(obj! { "reasoningContent": obj! { "reasoningText": text } });
    }
    if !choice.text.is_empty() {
        content.push(obj! { "text": choice.text.concat() });
    }
    for (at, call) in choice.calls.iter().enumerate() {
        content.push(obj! { "toolUse": obj! {
            "input": answer::value(call), "name": &call.name, "toolUseId": tool_id(ask, at),
        } });
    }
    let mut body = obj! {
        "metrics": obj! { "latencyMs": 7_u64 },
        "output": obj! { "message": obj! { "content": content, "role": "assistant" } },
    };
    body.set_some("stopReason", CONVERSE.words.of(&choice.end));
    if let Some(usage) = answer.usage {
        body.set("usage", usage_of(usage));
    }
    body
}

pub(super) fn error(fault: &Fault<'_>) -> Json {
    obj! { "message": fault.message }
}

/// Returns the value of `x-amzn-errortype` for a status.
pub(crate) fn error_type(status: u16) -> &'static str {
    match status {
        400 | 422 => "ValidationException",
        401 => "UnrecognizedClientException",
        403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        408 => "ModelTimeoutException",
        424 => "ModelErrorException",
        429 => "ThrottlingException",
        503 | 529 => "ServiceUnavailableException",
        _ => "InternalServerException",
    }
}

pub(super) fn error_event(fault: &Fault<'_>) -> WireEvent {
    let name = match fault.status {
        429 => "throttlingException",
        503 | 529 => "serviceUnavailableException",
        400 => "validationException",
        424 => "modelStreamErrorException",
        _ => "internalServerException",
    };
    WireEvent { exception: true, ..WireEvent::named(Part::Error, name, error(fault)) }
}

pub(super) fn models() -> Json {
    let model = |scenario: &crate::scenario::Scenario| {
        obj! {
            "modelId": scenario.name, "modelName": scenario.name, "providerName": "endstop-sim",
            "responseStreamingSupported": true,
        }
    };
    let data: Vec<Json> = crate::scenario::ALL.iter().map(model).collect();
    obj! { "modelSummaries": data }
}
