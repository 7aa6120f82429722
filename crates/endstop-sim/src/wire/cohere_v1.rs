//! Cohere chat, version 1: one line per event, the finish reason and the whole answer in the last.

use serde_json::Value;

use super::{BASE, Framing, Part, SimWire, WireEvent, Words, cohere, ends};
use crate::answer::{self, Answer, Call, Choice, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "cohere-v1",
    route: "cohere",
    bare: true,
    path: "/v1/chat",
    plain_path: "/v1/chat",
    provider: &endstop::provider::COHERE,
    tools: true,
    framing: Framing::Lines,
    words: Words {
        stop: "COMPLETE",
        stop_sequence: "STOP_SEQUENCE",
        length: "MAX_TOKENS",
        tool_call: "COMPLETE",
        filter: "ERROR_TOXIC",
        refusal: "COMPLETE",
        context: "ERROR_LIMIT",
        failed: "ERROR",
    },
    takes: |path| ends(path, "/v1/chat"),
    read,
    stream,
    body,
    error: cohere::error,
    error_event: |fault| {
        let response = obj! { "error": fault.message };
        let end = event("stream-end", true).with("finish_reason", "ERROR");
        let end = end.with("error", fault.message).with("response", response);
        WireEvent::new(Part::Error, end)
    },
    headers: cohere::headers,
    models: cohere::models,
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/max_tokens"]);
    ask.stop = sim_request::strings(body, "/stop_sequences");
    ask.tools = sim_request::items(body, "/tools").iter().filter_map(tool).collect();
    ask.after_tool = !sim_request::items(body, "/tool_results").is_empty();
    ask.read_turns(sim_request::items(body, "/chat_history"), "CHATBOT", "message");
    // The user's last message has a field of its own.
    ask.trailing = false;
    ask.asked = sim_request::text(body, "/message").to_owned();
    ask.input = sim_request::words(body);
}

/// Returns a tool; its schema lists the parameters.
fn tool(tool: &Value) -> Option<sim_request::Tool> {
    let definitions = tool.get("parameter_definitions").and_then(Value::as_object);
    let pairs = definitions.into_iter().flatten();
    let text = serde_json::json!({ "type": "string" });
    let properties: serde_json::Map<String, Value> =
        pairs.map(|(name, _)| (name.clone(), text.clone())).collect();
    let schema = serde_json::json!({ "type": "object", "properties": properties });
    sim_request::tool(sim_request::text(tool, "/name"), Some(&schema))
}

fn event(type_: &str, finished: bool) -> Json {
    obj! { "is_finished": finished, "event_type": type_ }
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let start = event("stream-start", false).with("generation_id", ask.id(""));
    let mut events = vec![WireEvent::new(Part::Start, start)];
    for token in &choice.text {
        let data = event("text-generation", false).with("text", token);
        events.push(WireEvent::new(Part::Text, data));
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let piece = |delta: Json| event("tool-calls-chunk", false).with("tool_call_delta", delta);
        let start = piece(obj! { "index": at, "name": &call.name });
        events.push(WireEvent::new(Part::CallStart, start));
        for text in &call.pieces {
            let data = piece(obj! { "index": at, "parameters": text });
            events.push(WireEvent::new(Part::Arguments, data));
        }
    }
    if is_whole(&choice) {
        let data = event("tool-calls-generation", false).with("tool_calls", calls(&choice));
        events.push(WireEvent::new(Part::CallEnd, data));
    }
    let mut end = event("stream-end", true);
    end.set_some("finish_reason", WIRE.words.of(&choice.end));
    end.set("response", response(ask, answer, &choice));
    events.push(WireEvent::new(Part::Word, end));
    events
}

/// Reports whether the choice has calls, and all are complete.
fn is_whole(choice: &Choice) -> bool {
    !choice.calls.is_empty() && choice.calls.iter().all(|call| call.whole)
}

fn calls(choice: &Choice) -> Vec<Json> {
    choice.calls.iter().map(call).collect()
}

/// Returns a call. Arguments that do not parse are written as text.
fn call(call: &Call) -> Json {
    let text = call.arguments();
    let broken = call.whole && serde_json::from_str::<Value>(&text).is_err() && !text.is_empty();
    let parameters = if broken { Json::from(text) } else { answer::value(call) };
    obj! { "name": &call.name, "parameters": parameters }
}

/// Returns the answer without its finish reason.
fn response(ask: &SimRequest, answer: &Answer, choice: &Choice) -> Json {
    let mut response = obj! {
        "response_id": ask.id("resp_"), "generation_id": ask.id(""),
        "text": choice.text.concat(), "chat_history": list![],
    };
    if is_whole(choice) {
        response.set("tool_calls", calls(choice));
    }
    if let Some(usage) = answer.usage {
        response.set("meta", meta(usage));
    }
    response
}

fn meta(usage: Usage) -> Json {
    cohere::usage_of(usage).with("api_version", obj! { "version": "1" })
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut body = response(ask, answer, &choice);
    if !choice.calls.is_empty() {
        body.set("tool_calls", calls(&choice));
    }
    body.set_some("finish_reason", WIRE.words.of(&choice.end));
    body
}
