//! Anthropic Messages: blocks that open and close, the finish reason in `message_delta`, then
//! `message_stop`.

use serde_json::Value;

use super::{Fault, Framing, Part, PathInfo, SimWire, WireEvent, Words, ends};
use crate::answer::{self, Answer, Choice, End, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "anthropic",
    route: "anthropic",
    bare: true,
    path: "/v1/messages",
    plain_path: "/v1/messages",
    provider: &endstop::provider::ANTHROPIC,
    streams: true,
    tools: true,
    whole_calls: false,
    marker: true,
    reasons: true,
    rejects: &[("claude", NO_PREFILL)],
    remembers: None,
    refers: None,
    framing: Framing::NamedSse,
    words: WORDS,
    takes,
    read,
    stream,
    body,
    error,
    error_event,
    headers: |ask| {
        vec![
            ("request-id", ask.id("req_")),
            ("anthropic-organization-id", "endstop-sim".to_owned()),
            ("anthropic-ratelimit-requests-limit", "1000".to_owned()),
            ("anthropic-ratelimit-requests-remaining", "999".to_owned()),
        ]
    },
    models,
};

/// Message of models that do not accept a prefill.
pub(super) const NO_PREFILL: &str = "This model does not support assistant message prefill. The \
conversation must end with a user message.";

pub(super) const WORDS: Words = Words {
    stop: "end_turn",
    stop_sequence: "stop_sequence",
    length: "max_tokens",
    tool_call: "tool_use",
    filter: "refusal",
    refusal: "refusal",
    context: "model_context_window_exceeded",
    failed: "error",
};

/// Accepts `/messages`; on Vertex `…/models/{model}:rawPredict` or `:streamRawPredict`.
fn takes(path: &str) -> Option<PathInfo> {
    let Some((before, method)) = path.rsplit_once(':') else { return ends(path, "/messages") };
    let (_, model) = before.rsplit_once("/models/")?;
    let streamed = match method {
        "rawPredict" => false,
        "streamRawPredict" => true,
        _ => return None,
    };
    Some(PathInfo { model: Some(crate::request::decoded(model)), streamed: Some(streamed) })
}

pub(super) fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/max_tokens"]);
    ask.stop = sim_request::strings(body, "/stop_sequences");
    let tool = |tool: &Value| {
        sim_request::tool(sim_request::text(tool, "/name"), tool.get("input_schema"))
    };
    ask.tools = sim_request::items(body, "/tools").iter().filter_map(tool).collect();
    let messages = sim_request::items(body, "/messages");
    let is_result = |block: &Value| sim_request::text(block, "/type") == "tool_result";
    ask.after_tool = messages
        .last()
        .is_some_and(|last| sim_request::items(last, "/content").iter().any(is_result));
    ask.read_turns(messages, "assistant", "content");
    let last = messages.last().map_or(&[][..], |last| sim_request::items(last, "/content"));
    let is_server_tool = |block: &Value| sim_request::text(block, "/type") == "server_tool_use";
    ask.paused = ask.trailing && last.last().is_some_and(is_server_tool);
    ask.read_tool_choice(body.get("tool_choice"));
    ask.input = messages.iter().map(sim_request::words).sum();
}

/// Returns an event with its type both as name and in the data.
fn event(part: Part, type_: &str, rest: Json) -> WireEvent {
    let mut data = obj! { "type": type_ };
    if let Json::Object(pairs) = rest {
        for (key, value) in pairs {
            data.set(&key, value);
        }
    }
    WireEvent::named(part, type_, data)
}

pub(super) fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let mut message = obj! {
        "model": &ask.model, "id": ask.id("msg_"), "type": "message", "role": "assistant",
        "content": list![], "stop_reason": Json::Null, "stop_sequence": Json::Null,
    };
    if let Some(usage) = answer.usage {
        message.set("usage", usage_of(usage, 1));
    }
    let mut events = vec![event(Part::Start, "message_start", obj! { "message": message })];
    events.extend(blocks(ask, &choice));
    let ping = event(Part::BlockEnd, "ping", obj! {});
    events.insert(events.len().min(2), ping);
    let mut last = obj! { "delta": delta_of(&choice) };
    if let Some(usage) = answer.usage {
        last.set("usage", obj! { "output_tokens": usage.output });
    }
    if choice.end != End::Nothing {
        events.push(event(Part::Word, "message_delta", last));
    }
    events.push(event(Part::Mark, "message_stop", obj! {}));
    events
}

fn delta_of(choice: &Choice) -> Json {
    let mut delta = obj! {
        "stop_reason": WORDS.of(&choice.end), "stop_sequence": matched(&choice.end),
    };
    if let Some(details) = details(&choice.end) {
        delta.set("stop_details", details);
    }
    delta
}

fn matched(end: &End) -> Json {
    if let End::StopSequence(sequence) = end { Json::from(sequence) } else { Json::Null }
}

fn details(end: &End) -> Option<Json> {
    (*end == End::Refusal).then(|| {
        obj! { "type": "refusal", "category": "general_harms", "explanation": "A simulated refusal." }
    })
}

fn blocks(ask: &SimRequest, choice: &Choice) -> Vec<WireEvent> {
    let mut events = Vec::new();
    let mut index = 0_usize;
    if !choice.reasoning.is_empty() {
        let block = obj! { "type": "thinking", "thinking": "", "signature": "" };
        events.push(start(Part::Reasoning, index, block));
        for token in &choice.reasoning {
            let delta = obj! { "type": "thinking_delta", "thinking": token };
            events.push(delta_event(Part::Reasoning, index, delta));
        }
        let delta = obj! { "type": "signature_delta", "signature": SIGNATURE };
        events.push(delta_event(Part::Reasoning, index, delta));
        events.push(stop(Part::BlockEnd, index));
        index += 1;
    }
    if !choice.text.is_empty() {
        events.push(start(Part::Start, index, obj! { "type": "text", "text": "" }));
        for token in &choice.text {
            let delta = obj! { "type": "text_delta", "text": token };
            events.push(delta_event(Part::Text, index, delta));
        }
        events.push(stop(Part::BlockEnd, index));
        index += 1;
    }
    if choice.server_tool {
        let block = obj! {
            "type": "server_tool_use", "id": ask.id("srvtoolu_"), "name": "web_search",
            "input": obj! {},
        };
        events.push(start(Part::BlockEnd, index, block));
        let delta = obj! { "type": "input_json_delta", "partial_json": "{\"query\": \"endstop\"}" };
        events.push(delta_event(Part::BlockEnd, index, delta));
        events.push(stop(Part::BlockEnd, index));
        index += 1;
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let block = obj! {
            "type": "tool_use", "id": tool_id(ask, at), "name": &call.name, "input": obj! {},
        };
        events.push(start(Part::CallStart, index, block));
        for piece in &call.pieces {
            let delta = obj! { "type": "input_json_delta", "partial_json": piece };
            events.push(delta_event(Part::Arguments, index, delta));
        }
        // A call that the token limit truncated is never closed.
        if call.whole {
            events.push(stop(Part::CallEnd, index));
        }
        index += 1;
    }
    events
}

const SIGNATURE: &str = "c2ltdWxhdGVk";

fn start(part: Part, index: usize, block: Json) -> WireEvent {
    event(part, "content_block_start", obj! { "index": index, "content_block": block })
}

fn delta_event(part: Part, index: usize, delta: Json) -> WireEvent {
    event(part, "content_block_delta", obj! { "index": index, "delta": delta })
}

fn stop(part: Part, index: usize) -> WireEvent {
    event(part, "content_block_stop", obj! { "index": index })
}

fn tool_id(ask: &SimRequest, at: usize) -> String {
    format!("{}_{at}", ask.id("toolu_"))
}

pub(super) fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut content = Vec::new();
    if !choice.reasoning.is_empty() {
        content.push(obj! {
            "type": "thinking", "thinking": choice.reasoning.concat(), "signature": SIGNATURE,
        });
    }
    if !choice.text.is_empty() {
        content.push(obj! { "type": "text", "text": choice.text.concat() });
    }
    if choice.server_tool {
        content.push(obj! {
            "type": "server_tool_use", "id": ask.id("srvtoolu_"), "name": "web_search",
            "input": obj! { "query": "endstop" },
        });
    }
    for (at, call) in choice.calls.iter().enumerate() {
        content.push(obj! {
            "type": "tool_use", "id": tool_id(ask, at), "name": &call.name,
            "input": answer::value(call),
        });
    }
    let mut body = obj! {
        "model": &ask.model, "id": ask.id("msg_"), "type": "message", "role": "assistant",
        "content": content, "stop_reason": WORDS.of(&choice.end), "stop_sequence": matched(&choice.end),
    };
    if let Some(details) = details(&choice.end) {
        body.set("stop_details", details);
    }
    if let Some(usage) = answer.usage {
        body.set("usage", usage_of(usage, usage.output));
    }
    body
}

fn usage_of(usage: Usage, output: u64) -> Json {
    obj! {
        "input_tokens": usage.input, "cache_creation_input_tokens": 0_u64,
        "cache_read_input_tokens": 0_u64, "output_tokens": output, "service_tier": "standard",
    }
}

pub(super) fn error(fault: &Fault<'_>) -> Json {
    let type_ = match fault.status {
        400 | 422 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 | 503 => "overloaded_error",
        _ => "api_error",
    };
    obj! {
        "type": "error",
        "error": obj! { "details": Json::Null, "type": type_, "message": fault.message },
        "request_id": "req_sim",
    }
}

fn error_event(fault: &Fault<'_>) -> WireEvent {
    WireEvent::named(Part::Error, "error", error(fault))
}

fn models() -> Json {
    let model = |scenario: &crate::scenario::Scenario| {
        obj! {
            "type": "model", "id": scenario.name, "display_name": scenario.name,
            "created_at": "2026-01-01T00:00:00Z",
        }
    };
    let data: Vec<Json> = crate::scenario::ALL.iter().map(model).collect();
    obj! { "data": data, "has_more": false, "first_id": "complete", "last_id": Json::Null }
}
