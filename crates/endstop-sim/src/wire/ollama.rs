//! Ollama's own API: one line per token, finish reason and usage on the line with `done` set.

use serde_json::Value;

use super::{Fault, Framing, Part, SimWire, WireEvent, Words, ends, openai_chat};
use crate::answer::{self, Answer, Choice};
use crate::json::{Json, obj};
use crate::sim_request::{self, SimRequest, Way};

pub(super) static WIRE: SimWire = SimWire {
    id: "ollama",
    path: "/api/chat",
    plain_path: "/api/chat",
    tools: true,
    takes: |path| ends(path, "/api/chat"),
    ..GENERATE
};

pub(super) const GENERATE: SimWire = SimWire {
    id: "ollama-generate",
    route: "ollama",
    bare: true,
    path: "/api/generate",
    plain_path: "/api/generate",
    provider: &endstop::provider::OLLAMA,
    streams: true,
    tools: false,
    whole_calls: true,
    marker: false,
    reasons: true,
    rejects: &[],
    remembers: None,
    refers: None,
    framing: Framing::Lines,
    words: Words {
        stop: "stop",
        stop_sequence: "stop",
        length: "length",
        tool_call: "stop",
        filter: "stop",
        refusal: "stop",
        context: "length",
        failed: "error",
    },
    takes: |path| ends(path, "/api/generate"),
    read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::new(Part::Error, error(fault)),
    headers: |_| Vec::new(),
    models,
};

fn read(body: &Value, ask: &mut SimRequest) {
    openai_chat::read(body, ask);
    ask.read_absent_tools(sim_request::items(body, "/messages"));
    ask.cap = sim_request::number(body, &["/options/num_predict"]);
    ask.stop = sim_request::strings(body, "/options/stop");
    ask.choices = 1;
    // Ollama streams by default.
    ask.streamed = body.get("stream").and_then(Value::as_bool).unwrap_or(true);
    if let Some(prompt) = body.get("prompt") {
        ask.generates = true;
        ask.input = sim_request::words(prompt);
        ask.asked = prompt.as_str().unwrap_or_default().to_owned();
        if body.get("raw").and_then(Value::as_bool) == Some(true) {
            ask.way = Way::Exact;
        }
    }
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let mut events = Vec::new();
    for token in &choice.reasoning {
        let one = Choice { reasoning: vec![token.clone()], ..Choice::default() };
        events.push(WireEvent::new(Part::Reasoning, line(ask, &one).with("done", false)));
    }
    for token in &choice.text {
        let one = Choice { text: vec![token.clone()], ..Choice::default() };
        events.push(WireEvent::new(Part::Text, line(ask, &one).with("done", false)));
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let data =
            head(ask).with("message", with_calls(message(""), at, std::slice::from_ref(call)));
        events.push(WireEvent::new(Part::Arguments, data.with("done", false)));
    }
    let last = ending(line(ask, &Choice::default()), &choice, answer);
    events.push(WireEvent::new(Part::Word, last));
    events
}

fn head(ask: &SimRequest) -> Json {
    obj! { "model": &ask.model, "created_at": "2026-09-22T03:33:20.123456789Z" }
}

fn message(text: &str) -> Json {
    obj! { "role": "assistant", "content": text }
}

fn line(ask: &SimRequest, choice: &Choice) -> Json {
    let text = choice.text.concat();
    if ask.generates {
        let line = head(ask).with("response", text);
        return if choice.reasoning.is_empty() {
            line
        } else {
            line.with("thinking", choice.reasoning.concat())
        };
    }
    let mut message = message(&text);
    if !choice.reasoning.is_empty() {
        message.set("thinking", choice.reasoning.concat());
    }
    if !choice.calls.is_empty() {
        message = with_calls(message, 0, &choice.calls);
    }
    head(ask).with("message", message)
}

fn with_calls(message: Json, from: usize, calls: &[answer::Call]) -> Json {
    let one = |(at, call): (usize, &answer::Call)| {
        let function =
            obj! { "index": from + at, "name": &call.name, "arguments": answer::value(call) };
        obj! { "function": function }
    };
    message.with("tool_calls", calls.iter().enumerate().map(one).collect::<Vec<_>>())
}

fn ending(line: Json, choice: &Choice, answer: &Answer) -> Json {
    let mut line = line.with("done", true);
    line.set_some("done_reason", GENERATE.words.of(&choice.end));
    line.set("total_duration", 70_000_000_u64);
    line.set("load_duration", 7_000_000_u64);
    if let Some(usage) = answer.usage {
        line.set("prompt_eval_count", usage.input);
        line.set("prompt_eval_duration", 3_000_000_u64);
        line.set("eval_count", usage.output);
        line.set("eval_duration", 60_000_000_u64);
    }
    line
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    ending(line(ask, &choice), &choice, answer)
}

fn error(fault: &Fault<'_>) -> Json {
    obj! { "error": fault.message }
}

fn models() -> Json {
    let model = |scenario: &crate::scenario::Scenario| {
        obj! { "name": scenario.name, "model": scenario.name, "size": 0_u64, "digest": "sim" }
    };
    let data: Vec<Json> = crate::scenario::ALL.iter().map(model).collect();
    obj! { "models": data }
}
