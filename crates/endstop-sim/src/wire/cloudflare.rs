//! Cloudflare's `/ai/run/`. In its own form a response never has a finish reason: `[DONE]` or the
//! closed body is all. Some models answer with a chat completion instead, which has one.

use serde_json::Value;

use super::{BASE, Fault, Part, PathInfo, SimWire, WireEvent, Words, openai_chat};
use crate::answer::{self, Answer, Call};
use crate::json::{Json, list, obj};
use crate::request::decoded;
use crate::sim_request::{self, SimRequest, Tool};

pub(super) static WIRE: SimWire = RUN;

/// Cloudflare's own form.
const RUN: SimWire = SimWire {
    id: "cloudflare-run",
    route: "cloudflare",
    path: "/ai/run/@cf/meta/llama-3.1-8b-instruct",
    plain_path: "/ai/run/@cf/meta/llama-3.1-8b-instruct",
    provider: &endstop::provider::CLOUDFLARE,
    tools: true,
    marker: true,
    words: Words::NONE,
    takes: model_path,
    read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::new(Part::Error, error(fault)),
    headers,
    ..BASE
};

/// Models that answer with a chat completion, in the same envelope.
pub(super) static CHAT: SimWire = SimWire {
    id: "cloudflare-run-chat",
    path: "/ai/run/@cf/qwen/qwen3-30b-a3b-fp8",
    plain_path: "/ai/run/@cf/qwen/qwen3-30b-a3b-fp8",
    words: Words { filter: "stop", ..openai_chat::CHAT.words },
    takes: |path| {
        let is_chat = |model: &str| ["gpt-oss", "qwen3"].iter().any(|name| model.contains(name));
        model_path(path).filter(|taken| taken.model.as_deref().is_some_and(is_chat))
    },
    read: openai_chat::read,
    stream: openai_chat::CHAT.stream,
    body: |ask, answer| enclosed((openai_chat::CHAT.body)(ask, answer)),
    ..RUN
};

fn model_path(path: &str) -> Option<PathInfo> {
    let (_, model) = path.split_once("/ai/run/")?;
    Some(PathInfo { model: Some(decoded(model)), streamed: None })
}

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/max_tokens"]);
    ask.tools = tools(body);
    openai_chat::read_messages(body, ask);
    if body.get("messages").is_none() {
        ask.read_prompt(body.get("prompt"));
    }
}

/// Returns the tools of the request, in OpenAI's form or Cloudflare's.
fn tools(body: &Value) -> Vec<Tool> {
    let tool =
        |tool: &Value| sim_request::tool(sim_request::text(tool, "/name"), tool.get("parameters"));
    let mut tools = openai_chat::tools(body);
    tools.extend(sim_request::items(body, "/tools").iter().filter_map(tool));
    tools
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let mut events = Vec::new();
    for token in &choice.text {
        events.push(WireEvent::new(Part::Text, obj! { "response": token, "p": "abcdefgh" }));
    }
    for (at, call) in choice.calls.iter().enumerate() {
        let start = openai_chat::call_start(ask, at, call);
        events.push(WireEvent::new(Part::CallStart, calls(vec![start])));
        for piece in &call.pieces {
            let piece = obj! { "index": at, "function": obj! { "arguments": piece } };
            events.push(WireEvent::new(Part::Arguments, calls(vec![piece])));
        }
    }
    if !choice.calls.is_empty() {
        events.push(WireEvent::new(Part::CallEnd, calls(Vec::new())));
    }
    // The last event before the end marker, where other wires have the finish reason.
    events.push(WireEvent::new(Part::Word, counted(obj! { "response": "" }, answer)));
    events.push(WireEvent::new(Part::Mark, Json::Raw("[DONE]".to_owned())));
    events
}

fn calls(calls: Vec<Json>) -> Json {
    obj! { "tool_calls": calls, "p": "abcdefgh" }
}

fn counted(mut data: Json, answer: &Answer) -> Json {
    if let Some(usage) = answer.usage {
        let usage = obj! {
            "prompt_tokens": usage.input, "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
        };
        data.set("usage", usage);
    }
    data
}

fn body(_: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let call = |call: &Call| obj! { "name": &call.name, "arguments": answer::value(call) };
    let result = if choice.calls.is_empty() {
        obj! { "response": choice.text.concat() }
    } else {
        let calls: Vec<Json> = choice.calls.iter().map(call).collect();
        obj! { "response": Json::Null, "tool_calls": calls }
    };
    enclosed(counted(result, answer))
}

fn enclosed(result: Json) -> Json {
    obj! { "result": result, "success": true, "errors": list![], "messages": list![] }
}

fn error(fault: &Fault<'_>) -> Json {
    let code = match fault.status {
        400 | 422 => 5006_u64,
        401 | 403 => 10_000,
        404 => 5007,
        408 => 3007,
        429 | 503 | 529 => 3040,
        _ => 3043,
    };
    let error = obj! { "code": code, "message": fault.message };
    obj! { "result": Json::Null, "success": false, "errors": list![error], "messages": list![] }
}

fn headers(ask: &SimRequest) -> Vec<(&'static str, String)> {
    vec![("cf-ray", ask.id(""))]
}
