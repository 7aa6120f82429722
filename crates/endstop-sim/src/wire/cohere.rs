//! Cohere chat, version 2: named events, finish reason and usage in `message-end`.

use serde_json::Value;

use super::{Fault, Framing, Part, SimWire, WireEvent, Words, ends, openai_chat};
use crate::answer::{Answer, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "cohere",
    route: "cohere",
    bare: true,
    path: "/v2/chat",
    plain_path: "/v2/chat",
    provider: &endstop::provider::COHERE,
    streams: true,
    tools: true,
    whole_calls: false,
    marker: false,
    reasons: true,
    rejects: &[],
    remembers: None,
    refers: None,
    framing: Framing::NamedSse,
    words: Words {
        stop: "COMPLETE",
        stop_sequence: "STOP_SEQUENCE",
        length: "MAX_TOKENS",
        tool_call: "TOOL_CALL",
        filter: "ERROR",
        refusal: "COMPLETE",
        context: "MAX_TOKENS",
        failed: "ERROR",
    },
    takes: |path| ends(path, "/v2/chat"),
    read,
    stream,
    body,
    error,
    error_event: |fault| {
        let delta = obj! { "finish_reason": "ERROR", "error": fault.message };
        let data = obj! { "type": "message-end", "delta": delta };
        WireEvent::named(Part::Error, "message-end", data)
    },
    headers,
    models,
};

pub(super) fn headers(ask: &SimRequest) -> Vec<(&'static str, String)> {
    vec![("x-debug-trace-id", ask.id("")), ("x-endpoint-monthly-call-limit", "1000".to_owned())]
}

fn read(body: &Value, ask: &mut SimRequest) {
    openai_chat::read(body, ask);
    ask.cap = sim_request::number(body, &["/max_tokens"]);
    ask.stop = sim_request::strings(body, "/stop_sequences");
    ask.choices = 1;
}

fn event(part: Part, type_: &str, index: Option<usize>, message: Option<Json>) -> WireEvent {
    let mut data = obj! { "type": type_ };
    if let Some(index) = index {
        data.set("index", index);
    }
    if let Some(message) = message {
        data.set("delta", obj! { "message": message });
    }
    WireEvent::named(part, type_, data)
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let message = obj! {
        "role": "assistant", "content": list![], "tool_plan": "", "tool_calls": list![],
        "citations": list![],
    };
    let start =
        obj! { "id": ask.id(""), "type": "message-start", "delta": obj! { "message": message } };
    let mut events = vec![WireEvent::named(Part::Start, "message-start", start)];
    let mut index = 0_usize;
    for (part, tokens, type_, key) in [
        (Part::Reasoning, &choice.reasoning, "thinking", "thinking"),
        (Part::Text, &choice.text, "text", "text"),
    ] {
        if tokens.is_empty() {
            continue;
        }
        let block = obj! { "type": type_ };
        let block = block.with(key, "");
        events.push(event(
            Part::Start,
            "content-start",
            Some(index),
            Some(obj! { "content": block }),
        ));
        for token in tokens {
            let content = obj! {}.with(key, token);
            events.push(event(
                part,
                "content-delta",
                Some(index),
                Some(obj! { "content": content }),
            ));
        }
        events.push(event(Part::BlockEnd, "content-end", Some(index), None));
        index += 1;
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let function = obj! { "name": &call.name, "arguments": "" };
        let calls =
            obj! { "id": call_id(ask, at, &call.name), "type": "function", "function": function };
        events.push(event(
            Part::CallStart,
            "tool-call-start",
            Some(at),
            Some(obj! { "tool_calls": calls }),
        ));
        for piece in &call.pieces {
            let calls = obj! { "function": obj! { "arguments": piece } };
            events.push(event(
                Part::Arguments,
                "tool-call-delta",
                Some(at),
                Some(obj! { "tool_calls": calls }),
            ));
        }
        if call.whole {
            events.push(event(Part::CallEnd, "tool-call-end", Some(at), None));
        }
    }
    let mut delta = obj! {};
    delta.set_some("finish_reason", WIRE.words.of(&choice.end));
    if let Some(usage) = answer.usage {
        delta.set("usage", usage_of(usage));
    }
    let end = obj! { "type": "message-end", "delta": delta };
    events.push(WireEvent::named(Part::Word, "message-end", end));
    events
}

fn call_id(ask: &SimRequest, at: usize, name: &str) -> String {
    format!("{name}_{}", ask.id(&format!("{at}")))
}

pub(super) fn usage_of(usage: Usage) -> Json {
    let counts = |input: f64, output: f64| obj! { "input_tokens": input, "output_tokens": output };
    // The counts are small enough to be exact as floats.
    let (input, output) = (usage.input as f64, usage.output as f64);
    obj! { "billed_units": counts(input, output), "tokens": counts(input, output) }
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut content = Vec::new();
    if !choice.reasoning.is_empty() {
        content.push(obj! { "type": "thinking", "thinking": choice.reasoning.concat() });
    }
    if !choice.text.is_empty() {
        content.push(obj! { "type": "text", "text": choice.text.concat() });
    }
    let mut message = obj! { "role": "assistant" };
    if !content.is_empty() {
        message.set("content", content);
    }
    if !choice.calls.is_empty() {
        message.set("tool_calls", openai_chat::calls(ask, &choice));
    }
    let mut body = obj! { "id": ask.id("") };
    body.set_some("finish_reason", WIRE.words.of(&choice.end));
    body.set("message", message);
    if let Some(usage) = answer.usage {
        body.set("usage", usage_of(usage));
    }
    body
}

pub(super) fn error(fault: &Fault<'_>) -> Json {
    obj! { "id": "sim", "message": fault.message }
}

pub(super) fn models() -> Json {
    let model = |scenario: &crate::scenario::Scenario| {
        obj! { "name": scenario.name, "endpoints": list!["chat"], "context_length": 128_000_u64 }
    };
    let data: Vec<Json> = crate::scenario::ALL.iter().map(model).collect();
    obj! { "models": data }
}
