//! OpenAI Responses: items and parts that open and close, the status in the last event.

use serde_json::Value;

use super::{Framing, Part, SimWire, WireEvent, Words, ends, openai_chat};
use crate::answer::{Answer, Call, Choice, End, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest, Tool};

pub(super) static WIRE: SimWire = SimWire {
    id: "openai-responses",
    route: "openai",
    bare: true,
    path: "/v1/responses",
    plain_path: "/v1/responses",
    provider: &endstop::provider::OPENAI,
    streams: true,
    tools: true,
    whole_calls: false,
    marker: false,
    reasons: true,
    rejects: &[],
    remembers: Some("resp_"),
    refers: None,
    framing: Framing::NamedSse,
    words: Words {
        stop: "completed",
        stop_sequence: "completed",
        length: "max_output_tokens",
        tool_call: "completed",
        filter: "content_filter",
        refusal: "completed",
        context: "max_output_tokens",
        failed: "failed",
    },
    takes: |path| ends(path, "/responses"),
    read,
    stream,
    body,
    error: openai_chat::error,
    error_event: |fault| {
        let Json::Object(mut pairs) = openai_chat::error(fault) else {
            return WireEvent::new(Part::Error, Json::Null);
        };
        let mut all = vec![
            ("type".to_owned(), Json::from("error")),
            ("sequence_number".to_owned(), Json::from(9_u64)),
        ];
        all.append(&mut pairs);
        WireEvent::named(Part::Error, "error", Json::Object(all))
    },
    headers: openai_chat::headers,
    models: openai_chat::models,
};

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/max_output_tokens"]);
    ask.tools = sim_request::items(body, "/tools").iter().flat_map(tools).collect();
    let items = sim_request::items(body, "/input");
    let is_result = |item: &Value| sim_request::text(item, "/type").ends_with("_call_output");
    ask.after_tool = items.last().is_some_and(is_result);
    ask.read_turns(items, "assistant", "content");
    ask.read_tool_choice(body.get("tool_choice"));
    let previous = sim_request::text(body, "/previous_response_id");
    ask.previous = (!previous.is_empty()).then(|| previous.to_owned());
    let flag = |name: &str| body.get(name).and_then(Value::as_bool);
    ask.stored = flag("store") != Some(false);
    ask.background = flag("background") == Some(true);
    ask.choices = 1;
    ask.input = body.get("input").map_or(0, sim_request::words);
}

/// Returns the tool, or the tools of a namespace.
fn tools(listed: &Value) -> Vec<Tool> {
    let tool =
        |tool: &Value| sim_request::tool(sim_request::text(tool, "/name"), tool.get("parameters"));
    if sim_request::text(listed, "/type") != "namespace" {
        return tool(listed).into_iter().collect();
    }
    let namespace = Some(sim_request::text(listed, "/name").to_owned());
    let inner = sim_request::items(listed, "/tools").iter().filter_map(tool);
    inner.map(|tool| Tool { namespace: namespace.clone(), ..tool }).collect()
}

/// List of numbered events.
struct Events(Vec<WireEvent>);

impl Events {
    fn push(&mut self, part: Part, type_: &str, rest: Json) {
        let mut data = obj! { "type": type_, "sequence_number": self.0.len() };
        if let Json::Object(pairs) = rest {
            for (key, value) in pairs {
                data.set(&key, value);
            }
        }
        self.0.push(WireEvent::named(part, type_, data));
    }
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let mut events = Events(Vec::new());
    let open = obj! { "response": response(ask, "in_progress", Json::Null, Vec::new(), None) };
    events.push(Part::Start, "response.created", open.clone());
    events.push(Part::Start, "response.in_progress", open);
    let mut index = 0_usize;
    if !choice.reasoning.is_empty() {
        reasoning(&mut events, ask, index, &choice);
        index += 1;
    }
    if !choice.text.is_empty() {
        message(&mut events, ask, index, &choice);
        index += 1;
    }
    for (at, call) in choice.calls.iter().enumerate() {
        function_call(&mut events, ask, index, at, call);
        index += 1;
    }
    let last = body(ask, answer);
    events.push(Part::Word, last_event(&choice.end), obj! { "response": last });
    events.0
}

fn item_event(index: usize, item: Json) -> Json {
    obj! { "output_index": index, "item": item }
}

fn reasoning(events: &mut Events, ask: &SimRequest, index: usize, choice: &Choice) {
    let id = ask.id("rs_");
    let item = obj! { "id": &id, "type": "reasoning", "summary": list![] };
    events.push(Part::Reasoning, "response.output_item.added", item_event(index, item));
    for token in &choice.reasoning {
        let data = obj! {
            "item_id": &id, "output_index": index, "summary_index": 0_u64, "delta": token,
        };
        events.push(Part::Reasoning, "response.reasoning_summary_text.delta", data);
    }
    events.push(
        Part::BlockEnd,
        "response.output_item.done",
        item_event(index, reasoning_item(ask, choice)),
    );
}

fn reasoning_item(ask: &SimRequest, choice: &Choice) -> Json {
    let summary = obj! { "type": "summary_text", "text": choice.reasoning.concat() };
    obj! { "id": ask.id("rs_"), "type": "reasoning", "summary": list![summary] }
}

fn message(events: &mut Events, ask: &SimRequest, index: usize, choice: &Choice) {
    let id = ask.id("msg_");
    let item = obj! {
        "id": &id, "type": "message", "status": "in_progress", "content": list![],
        "role": "assistant",
    };
    events.push(Part::Start, "response.output_item.added", item_event(index, item));
    let at = |rest: Json| {
        let mut data = obj! { "item_id": &id, "output_index": index, "content_index": 0_u64 };
        if let Json::Object(pairs) = rest {
            pairs.into_iter().for_each(|(key, value)| data.set(&key, value));
        }
        data
    };
    let (key, kind) = if choice.refuses { ("refusal", "refusal") } else { ("text", "output_text") };
    let empty = Choice { refuses: choice.refuses, ..Choice::default() };
    events.push(Part::Start, "response.content_part.added", at(obj! { "part": part_of(&empty) }));
    for token in &choice.text {
        let data = at(obj! { "delta": token });
        let data = if choice.refuses { data } else { data.with("logprobs", list![]) };
        events.push(Part::Text, &format!("response.{kind}.delta"), data);
    }
    let done = at(obj! {}).with(key, choice.text.concat());
    events.push(Part::BlockEnd, &format!("response.{kind}.done"), done);
    events.push(Part::BlockEnd, "response.content_part.done", at(obj! { "part": part_of(choice) }));
    events.push(
        Part::BlockEnd,
        "response.output_item.done",
        item_event(index, message_item(ask, choice)),
    );
}

fn part_of(choice: &Choice) -> Json {
    let text = choice.text.concat();
    if choice.refuses {
        obj! { "type": "refusal", "refusal": text }
    } else {
        obj! { "type": "output_text", "annotations": list![], "logprobs": list![], "text": text }
    }
}

fn message_item(ask: &SimRequest, choice: &Choice) -> Json {
    let cut = choice.end == End::Length && choice.calls.is_empty();
    obj! {
        "id": ask.id("msg_"), "type": "message",
        "status": if cut { "incomplete" } else { "completed" },
        "content": list![part_of(choice)], "role": "assistant",
    }
}

fn function_call(events: &mut Events, ask: &SimRequest, index: usize, at: usize, call: &Call) {
    let id = format!("{}_{at}", ask.id("fc_"));
    let mut item = obj! {
        "id": &id, "type": "function_call", "status": "in_progress", "arguments": "",
        "call_id": openai_chat::call_id(ask, at), "name": &call.name,
    };
    item.set_some("namespace", Json::from(call.namespace.clone()));
    events.push(Part::CallStart, "response.output_item.added", item_event(index, item));
    for piece in &call.pieces {
        let data = obj! { "item_id": &id, "output_index": index, "delta": piece };
        events.push(Part::Arguments, "response.function_call_arguments.delta", data);
    }
    if call.whole {
        let data = obj! { "item_id": &id, "output_index": index, "arguments": call.arguments() };
        events.push(Part::CallEnd, "response.function_call_arguments.done", data);
        events.push(
            Part::CallEnd,
            "response.output_item.done",
            item_event(index, call_item(ask, at, call)),
        );
    }
}

fn call_item(ask: &SimRequest, at: usize, call: &Call) -> Json {
    let mut item = obj! {
        "id": format!("{}_{at}", ask.id("fc_")), "type": "function_call",
        "status": if call.whole { "completed" } else { "incomplete" },
        "arguments": call.arguments(), "call_id": openai_chat::call_id(ask, at), "name": &call.name,
    };
    item.set_some("namespace", Json::from(call.namespace.clone()));
    item
}

/// Returns the status, and the reason if the status is `incomplete`.
fn status(end: &End) -> (Json, Json) {
    let word = WIRE.words.of(end);
    let Json::Text(text) = &word else {
        return if word == Json::Null {
            (word, Json::Null)
        } else {
            (Json::from("incomplete"), word)
        };
    };
    match text.as_str() {
        "completed" | "failed" | "cancelled" | "in_progress" | "queued" | "incomplete" => {
            (word, Json::Null)
        }
        _ => (Json::from("incomplete"), word),
    }
}

fn last_event(end: &End) -> &'static str {
    let (status, _) = status(end);
    match status.to_string().as_str() {
        "\"failed\"" => "response.failed",
        "\"incomplete\"" => "response.incomplete",
        _ => "response.completed",
    }
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut output = Vec::new();
    if !choice.reasoning.is_empty() {
        output.push(reasoning_item(ask, &choice));
    }
    if !choice.text.is_empty() {
        output.push(message_item(ask, &choice));
    }
    let calls = choice.calls.iter().enumerate();
    output.extend(calls.map(|(at, call)| call_item(ask, at, call)));
    let (status, reason) = status(&choice.end);
    let failed = status == Json::from("failed");
    let mut body = response(ask, "", reason, output, answer.usage.filter(|_| !failed));
    body.set("status", status);
    if failed {
        let error = obj! { "code": "server_error", "message": "The simulated model failed." };
        body.set("error", error);
    }
    body
}

/// Returns the body of a response in the background that is not over, with this status.
pub(crate) fn pending(ask: &SimRequest, status: &str) -> Json {
    response(ask, status, Json::Null, Vec::new(), None)
}

fn response(
    ask: &SimRequest,
    status: &str,
    reason: Json,
    output: Vec<Json>,
    usage: Option<Usage>,
) -> Json {
    let details = if reason == Json::Null {
        reason
    } else {
        obj! { "reason": reason }
    };
    let usage = usage.map(|usage| {
        obj! {
            "input_tokens": usage.input, "input_tokens_details": obj! { "cached_tokens": 0_u64 },
            "output_tokens": usage.output,
            "output_tokens_details": obj! { "reasoning_tokens": usage.reasoning },
            "total_tokens": usage.input + usage.output,
        }
    });
    obj! {
        "id": ask.id("resp_"), "object": "response", "created_at": openai_chat::CREATED,
        "status": status, "background": ask.background, "error": Json::Null, "incomplete_details": details,
        "instructions": Json::Null, "max_output_tokens": ask.cap, "model": &ask.model,
        "output": output, "parallel_tool_calls": true, "previous_response_id": ask.previous.clone(),
        "store": ask.background, "temperature": 1.0, "tool_choice": "auto", "tools": list![], "top_p": 1.0,
        "truncation": "disabled", "usage": usage, "metadata": obj! {},
    }
}
