//! SAP AI Core's orchestration: chat completions inside an envelope.

use serde_json::Value;

use super::{Fault, Part, SimWire, WireEvent, ends, openai_chat};
use crate::answer::Answer;
use crate::json::{Json, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "sap-orchestration",
    route: "sap",
    bare: false,
    path: "/v2/completion",
    plain_path: "/v2/completion",
    provider: &endstop::provider::SAP,
    takes: |path| {
        let end = if path.contains("/deployments/") { "/completion" } else { "/v2/completion" };
        ends(path, end)
    },
    read,
    stream,
    body: |ask, answer| enclosed(ask, (openai_chat::WIRE.body)(ask, answer)),
    error,
    error_event: |fault| WireEvent::new(Part::Error, error(fault)),
    headers: |ask| vec![("x-request-id", ask.id(""))],
    ..openai_chat::CHAT
};

fn read(body: &Value, ask: &mut SimRequest) {
    let config = body.get("config").unwrap_or(&Value::Null);
    let templating = config.pointer("/modules/prompt_templating").unwrap_or(&Value::Null);
    if let Some(name) = templating.pointer("/model/name").and_then(Value::as_str) {
        ask.model = name.to_owned();
    }
    if let Some(enabled) = config.pointer("/stream/enabled").and_then(Value::as_bool) {
        ask.streamed = enabled;
    }
    let params = templating.pointer("/model/params").unwrap_or(&Value::Null);
    ask.cap = sim_request::number(params, &["/max_completion_tokens", "/max_tokens"]);
    ask.stop = sim_request::strings(params, "/stop");
    ask.include_usage = true;
    let prompt = templating.get("prompt").unwrap_or(&Value::Null);
    ask.tools = openai_chat::tools(prompt);
    ask.read_turns(sim_request::items(body, "/messages_history"), "assistant", "content");
    let template = sim_request::items(prompt, "/template");
    let is_tool = |message: &Value| sim_request::text(message, "/role") == "tool";
    ask.after_tool = template.last().is_some_and(is_tool);
    if !template.is_empty() {
        ask.read_turns(template, "assistant", "content");
    }
    ask.input = template.iter().map(sim_request::words).sum();
}

fn enclosed(ask: &SimRequest, result: Json) -> Json {
    obj! { "request_id": ask.id(""), "intermediate_results": obj! {}, "final_result": result }
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let enclose = |event: WireEvent| {
        if event.part == Part::Mark {
            return event;
        }
        WireEvent { data: enclosed(ask, event.data.clone()), ..event }
    };
    (openai_chat::WIRE.stream)(ask, answer).into_iter().map(enclose).collect()
}

fn error(fault: &Fault<'_>) -> Json {
    let error = obj! {
        "request_id": "sim", "code": fault.status, "message": fault.message,
        "location": "LLM Module",
    };
    obj! { "error": error }
}
