//! Alibaba's `DashScope`: the finish reason is the string `null` until the last event.

use serde_json::Value;

use super::{BASE, Fault, Framing, Part, SimWire, WireEvent, Words, ends, openai_chat};
use crate::answer::{Answer, Call, End};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "dashscope",
    route: "alibaba",
    path: "/api/v1/services/aigc/text-generation/generation",
    plain_path: "/api/v1/services/aigc/text-generation/generation",
    provider: &endstop::provider::ALIBABA,
    tools: true,
    framing: Framing::NamedSse,
    words: Words {
        stop: "stop",
        stop_sequence: "stop",
        length: "length",
        tool_call: "tool_calls",
        filter: "stop",
        refusal: "stop",
        context: "length",
        failed: "error",
    },
    takes: |path| ends(path, "/generation").filter(|_| path.contains("/services/aigc/")),
    read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::named(Part::Error, "error", error(fault)),
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    let (input, parameters) = (body.get("input"), body.get("parameters"));
    let (input, parameters) = (input.unwrap_or(&Value::Null), parameters.unwrap_or(&Value::Null));
    openai_chat::read_messages(input, ask);
    ask.cap = sim_request::number(parameters, &["/max_tokens"]);
    ask.stop = sim_request::strings(parameters, "/stop");
    ask.tools = openai_chat::tools(parameters);
    ask.read_tool_choice(parameters.get("tool_choice"));
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let open = End::Said("null".into());
    let mut events = Vec::new();
    let mut push = |part: Part, message: Json, end: &End| {
        let usage = (part == Part::Word).then_some(answer);
        events.push(WireEvent::named(part, "result", output(ask, message, end, usage)));
    };
    for token in &choice.text {
        push(Part::Text, message(token), &open);
    }
    for (at, call) in choice.calls.iter().enumerate() {
        push(Part::CallStart, with_call(at, &openai_chat::call_id(ask, at), &call.name, ""), &open);
        for piece in &call.pieces {
            push(Part::Arguments, with_call(at, "", "", piece), &open);
        }
    }
    push(Part::Word, message(""), &choice.end);
    events
}

fn message(text: &str) -> Json {
    obj! { "role": "assistant", "content": text }
}

fn with_call(at: usize, id: &str, name: &str, arguments: &str) -> Json {
    let function = obj! { "name": name, "arguments": arguments };
    let call = obj! { "index": at, "id": id, "type": "function", "function": function };
    message("").with("tool_calls", list![call])
}

fn output(ask: &SimRequest, message: Json, end: &End, counted: Option<&Answer>) -> Json {
    let mut choice = obj! { "message": message };
    choice.set_some("finish_reason", WIRE.words.of(end));
    let mut body = obj! { "output": obj! { "choices": list![choice] } };
    if let Some(usage) = counted.and_then(|answer| answer.usage) {
        body.set(
            "usage",
            obj! {
                "input_tokens": usage.input, "output_tokens": usage.output,
                "total_tokens": usage.input + usage.output,
            },
        );
    }
    body.with("request_id", ask.id(""))
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let call = |(at, call): (usize, &Call)| {
        let function = obj! { "name": &call.name, "arguments": call.arguments() };
        let id = openai_chat::call_id(ask, at);
        obj! { "index": at, "id": id, "type": "function", "function": function }
    };
    let calls: Vec<Json> = choice.calls.iter().enumerate().map(call).collect();
    let mut message = message(&choice.text.concat());
    if !calls.is_empty() {
        message.set("tool_calls", calls);
    }
    output(ask, message, &choice.end, Some(answer))
}

fn error(fault: &Fault<'_>) -> Json {
    let code = match fault.status {
        400 | 422 => "InvalidParameter",
        401 => "InvalidApiKey",
        404 => "ModelNotFound",
        429 => "Throttling.RateQuota",
        _ => "InternalError",
    };
    obj! { "request_id": "sim", "code": code, "message": fault.message }
}
