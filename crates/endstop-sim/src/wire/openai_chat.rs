//! OpenAI chat completions: one chunk per token, the finish reason in a separate chunk, `[DONE]`.

use serde_json::Value;

use super::{Fault, Framing, Part, SimWire, WireEvent, Words, ends};
use crate::answer::{Answer, Call, Choice, End, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest, Tool};

pub(super) static WIRE: SimWire = CHAT;

pub(super) const CHAT: SimWire = SimWire {
    id: "openai-chat",
    route: "openai",
    bare: true,
    path: "/v1/chat/completions",
    plain_path: "/v1/chat/completions",
    provider: &endstop::provider::OPENAI,
    streams: true,
    tools: true,
    whole_calls: false,
    marker: true,
    reasons: false,
    rejects: &[],
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
        context: "length",
        failed: "error",
    },
    takes: |path| ends(path, "/chat/completions"),
    read,
    stream,
    body,
    error,
    error_event,
    headers,
    models,
};

/// Creation time of models and responses: constant, so that responses are reproducible.
pub(super) const CREATED: u64 = 1_790_000_000;

pub(super) fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/max_completion_tokens", "/max_tokens"]);
    ask.stop = sim_request::strings(body, "/stop");
    ask.choices = sim_request::number(body, &["/n"]).unwrap_or(1);
    ask.include_usage =
        body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or(false);
    ask.tools = tools(body);
    ask.read_tool_choice(body.get("tool_choice"));
    read_messages(body, ask);
}

/// Returns the tools that the request offers.
pub(super) fn tools(body: &Value) -> Vec<Tool> {
    let tool = |tool: &Value| {
        sim_request::tool(
            sim_request::text(tool, "/function/name"),
            tool.pointer("/function/parameters"),
        )
    };
    sim_request::items(body, "/tools").iter().filter_map(tool).collect()
}

/// Reads the conversation.
pub(super) fn read_messages(body: &Value, ask: &mut SimRequest) {
    let messages = sim_request::items(body, "/messages");
    let role = |message: &Value| sim_request::text(message, "/role").to_owned();
    ask.after_tool =
        messages.last().is_some_and(|last| ["tool", "function"].contains(&role(last).as_str()));
    ask.read_turns(messages, "assistant", "content");
    ask.input = messages.iter().map(sim_request::words).sum();
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let mut events = Vec::new();
    for (index, _) in answer.choices.iter().enumerate() {
        let delta = obj! { "role": "assistant", "content": "", "refusal": Json::Null };
        events.push(WireEvent::new(Part::Start, chunk(ask, index, delta, Json::Null)));
    }
    let choices = answer.choices.iter().enumerate();
    let all: Vec<Vec<WireEvent>> =
        choices.map(|(index, choice)| deltas(ask, answer, index, choice)).collect();
    events.extend(in_turn(all));
    if let Some(usage) = answer.usage.filter(|_| ask.include_usage) {
        let data = obj! {
            "id": ask.id("chatcmpl-"), "object": "chat.completion.chunk", "created": CREATED,
            "model": &ask.model, "service_tier": "default", "system_fingerprint": "fp_sim",
            "choices": list![], "usage": usage_of(usage),
        };
        events.push(WireEvent::new(Part::Usage, data));
    }
    events.push(WireEvent::new(Part::Mark, Json::Raw("[DONE]".to_owned())));
    events
}

/// Returns the events of one choice after its start.
fn deltas(ask: &SimRequest, answer: &Answer, index: usize, choice: &Choice) -> Vec<WireEvent> {
    let mut events = Vec::new();
    let early = if answer.word_everywhere { CHAT.words.of(&End::Stop) } else { Json::Null };
    let mut texts = choice.text.iter();
    let last = if answer.merged { texts.next_back() } else { None };
    for token in texts {
        let delta = text_delta(choice, token);
        events.push(WireEvent::new(Part::Text, chunk(ask, index, delta, early.clone())));
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let delta = obj! { "tool_calls": list![call_start(ask, at, call)] };
        events.push(WireEvent::new(Part::CallStart, chunk(ask, index, delta, Json::Null)));
        for piece in &call.pieces {
            let delta = obj! { "tool_calls": list![
                obj! { "index": at, "function": obj! { "arguments": piece } }
            ] };
            events.push(WireEvent::new(Part::Arguments, chunk(ask, index, delta, Json::Null)));
        }
    }
    let delta = last.map_or(obj! {}, |token| text_delta(choice, token));
    events.push(WireEvent::new(Part::Word, chunk(ask, index, delta, CHAT.words.of(&choice.end))));
    events
}

fn text_delta(choice: &Choice, token: &str) -> Json {
    if choice.refuses {
        obj! { "refusal": token }
    } else {
        obj! { "content": token }
    }
}

pub(super) fn call_start(ask: &SimRequest, at: usize, call: &Call) -> Json {
    obj! {
        "index": at, "id": call_id(ask, at), "type": "function",
        "function": obj! { "name": &call.name, "arguments": "" },
    }
}

pub(super) fn call_id(ask: &SimRequest, at: usize) -> String {
    format!("{}_{at}", ask.id("call_"))
}

/// Interleaves the choices: one event of each, then the next of each.
pub(super) fn in_turn(all: Vec<Vec<WireEvent>>) -> Vec<WireEvent> {
    let mut queues: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
    let mut events = Vec::new();
    loop {
        let before = events.len();
        events.extend(queues.iter_mut().filter_map(Iterator::next));
        if events.len() == before {
            return events;
        }
    }
}

fn chunk(ask: &SimRequest, index: usize, delta: Json, word: Json) -> Json {
    let mut chunk = obj! {
        "id": ask.id("chatcmpl-"), "object": "chat.completion.chunk", "created": CREATED,
        "model": &ask.model, "service_tier": "default", "system_fingerprint": "fp_sim",
        "choices": list![obj! {
            "index": index, "delta": delta, "logprobs": Json::Null, "finish_reason": word,
        }],
    };
    if ask.include_usage {
        chunk.set("usage", Json::Null);
    }
    chunk.with("obfuscation", "sim")
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = |(index, choice): (usize, &Choice)| {
        obj! {
            "index": index, "message": message(ask, choice), "logprobs": Json::Null,
            "finish_reason": CHAT.words.of(&choice.end),
        }
    };
    let choices: Vec<Json> = answer.choices.iter().enumerate().map(choice).collect();
    let mut body = obj! {
        "id": ask.id("chatcmpl-"), "object": "chat.completion", "created": CREATED,
        "model": &ask.model, "choices": choices,
    };
    if let Some(usage) = answer.usage {
        body.set("usage", usage_of(usage));
    }
    body.with("service_tier", "default").with("system_fingerprint", "fp_sim")
}

fn message(ask: &SimRequest, choice: &Choice) -> Json {
    let text = choice.text.concat();
    let absent = choice.refuses || text.is_empty() && !choice.calls.is_empty();
    let content = if absent { Json::Null } else { Json::from(&text) };
    let refusal = if choice.refuses { Json::from(&text) } else { Json::Null };
    let mut message = obj! { "role": "assistant", "content": content };
    if !choice.calls.is_empty() {
        message.set("tool_calls", calls(ask, choice));
    }
    message.with("refusal", refusal).with("annotations", list![])
}

pub(super) fn calls(ask: &SimRequest, choice: &Choice) -> Vec<Json> {
    let call = |(at, call): (usize, &Call)| {
        obj! {
            "id": call_id(ask, at), "type": "function",
            "function": obj! { "name": &call.name, "arguments": call.arguments() },
        }
    };
    choice.calls.iter().enumerate().map(call).collect()
}

pub(super) fn usage_of(usage: Usage) -> Json {
    obj! {
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": obj! { "cached_tokens": 0_u64, "audio_tokens": 0_u64 },
        "completion_tokens_details": obj! {
            "reasoning_tokens": usage.reasoning, "audio_tokens": 0_u64,
            "accepted_prediction_tokens": 0_u64, "rejected_prediction_tokens": 0_u64,
        },
    }
}

pub(super) fn error(fault: &Fault<'_>) -> Json {
    let (type_, code): (&str, Option<&str>) = match fault.status {
        400 => ("invalid_request_error", None),
        401 => ("invalid_request_error", Some("invalid_api_key")),
        403 => ("permission_error", None),
        404 => ("invalid_request_error", Some("model_not_found")),
        429 => ("requests", Some("rate_limit_exceeded")),
        503 | 529 => ("server_error", Some("server_is_overloaded")),
        _ => ("server_error", None),
    };
    obj! { "error": obj! {
        "message": fault.message, "type": type_, "param": Json::Null, "code": code,
    } }
}

pub(super) fn error_event(fault: &Fault<'_>) -> WireEvent {
    WireEvent::new(Part::Error, error(fault))
}

pub(super) fn headers(ask: &SimRequest) -> Vec<(&'static str, String)> {
    vec![
        ("openai-organization", "endstop-sim".to_owned()),
        ("openai-processing-ms", "7".to_owned()),
        ("openai-version", "2020-10-01".to_owned()),
        ("x-request-id", ask.id("req_")),
        ("x-ratelimit-limit-requests", "10000".to_owned()),
        ("x-ratelimit-remaining-requests", "9999".to_owned()),
    ]
}

pub(super) fn models() -> Json {
    let model = |scenario: &crate::scenario::Scenario| {
        obj! { "id": scenario.name, "object": "model", "created": CREATED, "owned_by": "endstop-sim" }
    };
    let data: Vec<Json> = crate::scenario::ALL.iter().map(model).collect();
    obj! { "object": "list", "data": data }
}
