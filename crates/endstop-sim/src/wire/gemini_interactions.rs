//! Gemini interactions: steps that open and close, the status in the last event.

use serde_json::Value;

use super::{BASE, Fault, Framing, Part, SimWire, WireEvent, Words, ends, gemini};
use crate::answer::{self, Answer, Call, Choice, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest, Way};

pub(super) static WIRE: SimWire = SimWire {
    id: "gemini-interactions",
    route: "gemini",
    bare: true,
    path: "/v1beta/interactions",
    plain_path: "/v1beta/interactions",
    provider: &endstop::provider::GOOGLE,
    tools: true,
    reasons: true,
    remembers: Some("interaction_"),
    framing: Framing::NamedSse,
    words: Words {
        stop: "completed",
        stop_sequence: "completed",
        length: "incomplete",
        tool_call: "requires_action",
        filter: "failed",
        refusal: "completed",
        context: "incomplete",
        failed: "failed",
    },
    takes: |path| ends(path, "/interactions"),
    read,
    stream,
    body,
    error: gemini::error,
    error_event,
    headers: gemini::headers,
    models: gemini::models,
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    let config = body.get("generation_config").unwrap_or(&Value::Null);
    ask.cap = sim_request::number(config, &["/max_output_tokens"]);
    ask.stop = sim_request::strings(config, "/stop_sequences");
    let tool =
        |tool: &Value| sim_request::tool(sim_request::text(tool, "/name"), tool.get("parameters"));
    ask.tools = sim_request::items(body, "/tools").iter().filter_map(tool).collect();
    ask.read_tool_choice(config.get("tool_choice"));
    let items = sim_request::items(body, "/input");
    let is_result = |item: &Value| sim_request::text(item, "/type") == "function_result";
    ask.after_tool = items.last().is_some_and(is_result);
    ask.read_turns(items, "model", "content");
    ask.input = body.get("input").map_or(0, sim_request::words);
    ask.stored = body.get("store").and_then(Value::as_bool) != Some(false);
    let previous = sim_request::text(body, "/previous_interaction_id");
    ask.previous = (!previous.is_empty()).then(|| previous.to_owned());
    if let Some((place, _)) = gemini::token_parts(sim_request::text(body, "/continuation_token")) {
        ask.way = Way::At(place);
    }
}

fn event(part: Part, type_: &str, rest: Json) -> WireEvent {
    let mut data = obj! { "event_type": type_ };
    if let Json::Object(pairs) = rest {
        pairs.into_iter().for_each(|(key, value)| data.set(&key, value));
    }
    WireEvent::named(part, type_, data)
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let open = interaction(ask).with("status", "in_progress");
    let mut events = vec![event(Part::Start, "interaction.created", obj! { "interaction": open })];
    let mut index = 0_usize;
    let mut step = |parts: (Part, Part), step: Json, deltas: Vec<Json>, whole: bool| {
        let start = obj! { "index": index, "step": step };
        events.push(event(parts.0, "step.start", start));
        for delta in deltas {
            let data = obj! { "index": index, "delta": delta };
            events.push(event(parts.1, "step.delta", data));
        }
        if whole {
            let end = if parts.1 == Part::Arguments { Part::CallEnd } else { Part::BlockEnd };
            events.push(event(end, "step.stop", obj! { "index": index }));
        }
        index += 1;
    };
    if !choice.reasoning.is_empty() {
        let delta = |text: &String| {
            let content = obj! { "type": "text", "text": text };
            obj! { "type": "thought_summary", "content": content }
        };
        let deltas = choice.reasoning.iter().map(delta).collect();
        step((Part::Reasoning, Part::Reasoning), obj! { "type": "thought" }, deltas, true);
    }
    if !choice.text.is_empty() {
        let delta = |text: &String| obj! { "type": "text", "text": text };
        let deltas = choice.text.iter().map(delta).collect();
        step((Part::Start, Part::Text), obj! { "type": "model_output" }, deltas, true);
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let delta = |text: &String| obj! { "type": "arguments_delta", "arguments": text };
        let deltas = call.pieces.iter().map(delta).collect();
        let start = call_step(ask, at, call).with("arguments", obj! {});
        step((Part::CallStart, Part::Arguments), start, deltas, call.whole);
    }
    let mut last = ended(ask, answer, &choice);
    last.set("steps", list![]);
    events.push(event(Part::Word, "interaction.completed", obj! { "interaction": last }));
    events
}

fn interaction(ask: &SimRequest) -> Json {
    obj! { "id": ask.id("interaction_"), "object": "interaction", "model": &ask.model }
}

fn call_step(ask: &SimRequest, at: usize, call: &Call) -> Json {
    let id = format!("{}_{at}", ask.id("call_"));
    obj! { "type": "function_call", "id": id, "name": &call.name }
}

/// Returns the interaction with its status and usage.
fn ended(ask: &SimRequest, answer: &Answer, choice: &Choice) -> Json {
    let mut ended = interaction(ask);
    ended.set_some("status", WIRE.words.of(&choice.end));
    ended.set_some("continuation_token", Json::from(choice.token.clone()));
    if let Some(usage) = answer.usage {
        ended.set("usage", usage_of(usage));
    }
    ended
}

fn usage_of(usage: Usage) -> Json {
    obj! {
        "total_input_tokens": usage.input,
        "total_output_tokens": usage.output.saturating_sub(usage.reasoning),
        "total_thought_tokens": usage.reasoning, "total_tokens": usage.input + usage.output,
    }
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut steps = Vec::new();
    let text = |text: String| obj! { "type": "text", "text": text };
    if !choice.reasoning.is_empty() {
        let summary = list![text(choice.reasoning.concat())];
        steps.push(obj! { "type": "thought", "summary": summary });
    }
    if !choice.text.is_empty() {
        let content = list![text(choice.text.concat())];
        steps.push(obj! { "type": "model_output", "content": content });
    }
    for (at, call) in choice.calls.iter().enumerate() {
        steps.push(call_step(ask, at, call).with("arguments", answer::value(call)));
    }
    ended(ask, answer, &choice).with("steps", steps)
}

fn error_event(fault: &Fault<'_>) -> WireEvent {
    event(Part::Error, "error", gemini::error(fault))
}
