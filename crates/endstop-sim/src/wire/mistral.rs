//! Mistral: OpenAI chat with tool calls and usage on the last chunk.

use super::{Fault, Framing, Part, SimWire, WireEvent, Words, ends, openai_chat};
use crate::answer::{Answer, Call, Choice, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::SimRequest;

pub(super) static WIRE: SimWire = SimWire {
    id: "mistral",
    route: "mistral",
    bare: false,
    path: "/v1/chat/completions",
    plain_path: "/v1/chat/completions",
    provider: &endstop::provider::MISTRAL,
    streams: true,
    tools: true,
    whole_calls: false,
    marker: true,
    reasons: false,
    rejects: &[(
        "",
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got \
         assistant",
    )],
    remembers: None,
    refers: None,
    framing: Framing::Sse,
    words: Words {
        stop: "stop",
        stop_sequence: "stop",
        length: "length",
        tool_call: "tool_calls",
        filter: "content_filter",
        refusal: "stop",
        context: "model_length",
        failed: "error",
    },
    takes: |path| ends(path, "/chat/completions"),
    read: openai_chat::read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::new(Part::Error, error(fault)),
    headers: |ask| {
        vec![
            ("mistral-correlation-id", ask.id("")),
            ("x-kong-request-id", ask.id("")),
            ("x-ratelimit-limit-req-minute", "60".to_owned()),
        ]
    },
    models,
};

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let mut events: Vec<WireEvent> = Vec::new();
    let choices = answer.choices.iter().enumerate();
    let all: Vec<Vec<WireEvent>> =
        choices.map(|(index, choice)| deltas(ask, answer, index, choice)).collect();
    for (index, _) in answer.choices.iter().enumerate() {
        let delta = obj! { "role": "assistant", "content": "" };
        events.push(WireEvent::new(Part::Start, chunk(ask, index, delta, Json::Null)));
    }
    events.extend(openai_chat::in_turn(all));
    // The last chunk with a finish reason has the usage.
    let last = events.iter_mut().rev().find(|event| event.part == Part::Word);
    if let (Some(last), Some(usage)) = (last, answer.usage) {
        last.data.set("usage", usage_of(usage));
    }
    events.push(WireEvent::new(Part::Mark, Json::Raw("[DONE]".to_owned())));
    events
}

fn deltas(ask: &SimRequest, answer: &Answer, index: usize, choice: &Choice) -> Vec<WireEvent> {
    let mut events = Vec::new();
    for token in &choice.text {
        let delta = obj! { "content": token };
        events.push(WireEvent::new(Part::Text, chunk(ask, index, delta, Json::Null)));
    }
    let mut last = obj! { "content": "" };
    if answer.split {
        for (at, call) in choice.calls.iter().enumerate() {
            events.extend(split_call(ask, index, at, call));
        }
    } else if !choice.calls.is_empty() {
        let calls = choice
            .calls
            .iter()
            .enumerate()
            .map(|(at, call)| call_of(ask, at, Some(&call.name), &call.arguments()));
        last.set("tool_calls", calls.collect::<Vec<_>>());
    }
    events.push(WireEvent::new(Part::Word, chunk(ask, index, last, WIRE.words.of(&choice.end))));
    events
}

/// Returns a call in pieces, for scenarios that end between them.
fn split_call(ask: &SimRequest, index: usize, at: usize, call: &Call) -> Vec<WireEvent> {
    let mut name = Some(call.name.as_str());
    let mut piece = |part, piece: &str| {
        let delta = obj! { "tool_calls": list![call_of(ask, at, name.take(), piece)] };
        WireEvent::new(part, chunk(ask, index, delta, Json::Null))
    };
    let mut events = vec![piece(Part::CallStart, "")];
    events.extend(call.pieces.iter().map(|text| piece(Part::Arguments, text)));
    events
}

fn call_of(ask: &SimRequest, at: usize, name: Option<&str>, arguments: &str) -> Json {
    let function = obj! { "name": name.unwrap_or_default(), "arguments": arguments };
    // Mistral's call ids have nine characters.
    let id = format!("s{:06}{at:02}", ask.number % 1_000_000);
    obj! { "id": id, "function": function, "index": at }
}

fn chunk(ask: &SimRequest, index: usize, delta: Json, word: Json) -> Json {
    obj! {
        "id": ask.id(""), "object": "chat.completion.chunk", "created": openai_chat::CREATED,
        "model": &ask.model,
        "choices": list![obj! { "index": index, "delta": delta, "finish_reason": word }],
    }
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = |(index, choice): (usize, &Choice)| {
        let calls = choice.calls.iter().enumerate();
        let calls: Vec<Json> =
            calls.map(|(at, call)| call_of(ask, at, Some(&call.name), &call.arguments())).collect();
        let calls = if calls.is_empty() { Json::Null } else { Json::List(calls) };
        obj! {
            "index": index, "finish_reason": WIRE.words.of(&choice.end),
            "message": obj! {
                "role": "assistant", "tool_calls": calls, "content": choice.text.concat(),
            },
        }
    };
    let choices: Vec<Json> = answer.choices.iter().enumerate().map(choice).collect();
    let mut body = obj! {
        "id": ask.id(""), "created": openai_chat::CREATED, "model": &ask.model,
    };
    if let Some(usage) = answer.usage {
        body.set("usage", usage_of(usage));
    }
    body.with("object", "chat.completion").with("choices", choices)
}

fn usage_of(usage: Usage) -> Json {
    obj! {
        "prompt_tokens": usage.input, "total_tokens": usage.input + usage.output,
        "completion_tokens": usage.output,
    }
}

fn models() -> Json {
    let model = |scenario: &crate::scenario::Scenario| {
        let capabilities = obj! {
            "completion_chat": true, "function_calling": true, "completion_fim": false,
            "fine_tuning": false, "vision": false, "classification": false,
        };
        obj! {
            "id": scenario.name, "object": "model", "created": openai_chat::CREATED,
            "owned_by": "endstop-sim", "capabilities": capabilities, "type": "base",
            "max_context_length": 131_072_u64,
        }
    };
    let data: Vec<Json> = crate::scenario::ALL.iter().map(model).collect();
    obj! { "object": "list", "data": data }
}

fn error(fault: &Fault<'_>) -> Json {
    let (type_, code) = match fault.status {
        400 | 422 => ("invalid_request_error", "3051"),
        401 => return obj! { "detail": "Unauthorized" },
        404 => ("invalid_model", "1500"),
        429 => ("rate_limited", "1300"),
        _ => ("internal_server_error", "1000"),
    };
    obj! {
        "object": "error", "message": fault.message, "type": type_, "param": Json::Null,
        "code": code, "raw_status_code": fault.status,
    }
}
