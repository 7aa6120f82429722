//! IBM watsonx text generation: every event has a finish reason, which is `not_finished` until the
//! last one.

use serde_json::Value;

use super::{BASE, Fault, Framing, Part, PathInfo, SimWire, WireEvent, Words};
use crate::answer::{Answer, End};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "watsonx",
    route: "watsonx",
    path: "/ml/v1/text/generation_stream?version=2026-10-01",
    plain_path: "/ml/v1/text/generation?version=2026-10-01",
    provider: &endstop::provider::WATSONX,
    framing: Framing::NamedSse,
    words: Words {
        stop: "eos_token",
        stop_sequence: "stop_sequence",
        length: "max_tokens",
        tool_call: "eos_token",
        filter: "eos_token",
        refusal: "eos_token",
        context: "token_limit",
        failed: "error",
    },
    takes: |path| {
        let streamed = path.ends_with("/text/generation_stream");
        let taken = PathInfo { model: None, streamed: Some(streamed) };
        (streamed || path.ends_with("/text/generation")).then_some(taken)
    },
    read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::named(Part::Error, "error", error(fault)),
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    if let Some(model) = body.get("model_id").and_then(Value::as_str) {
        ask.model = model.to_owned();
    }
    ask.cap = sim_request::number(body, &["/parameters/max_new_tokens"]);
    ask.stop = sim_request::strings(body, "/parameters/stop_sequences");
    ask.read_prompt(body.get("input"));
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let mut events = Vec::new();
    for (at, token) in choice.text.iter().enumerate() {
        let counts =
            answer.usage.map(|usage| (at as u64 + 1, if at == 0 { usage.input } else { 0 }));
        let data = generated(ask, token, counts, &End::Said("not_finished".into()));
        events.push(WireEvent::named(Part::Text, "message", data));
    }
    let counts = answer
        .usage
        .map(|usage| (usage.output, if choice.text.is_empty() { usage.input } else { 0 }));
    let last = generated(ask, "", counts, &choice.end);
    events.push(WireEvent::named(Part::Word, "message", last));
    events
}

fn generated(ask: &SimRequest, text: &str, counts: Option<(u64, u64)>, end: &End) -> Json {
    let mut result = obj! { "generated_text": text };
    if let Some((output, input)) = counts {
        result.set("generated_token_count", output);
        result.set("input_token_count", input);
    }
    result.set_some("stop_reason", WIRE.words.of(end));
    obj! {
        "model_id": &ask.model, "created_at": "2026-09-22T03:33:20.123Z",
        "results": list![result],
    }
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let counts = answer.usage.map(|usage| (usage.output, usage.input));
    generated(ask, &choice.text.concat(), counts, &choice.end)
}

fn error(fault: &Fault<'_>) -> Json {
    let code = match fault.status {
        401 => "authentication_token_expired",
        404 => "model_not_supported",
        429 => "token_quota_reached",
        400 | 422 => "invalid_request_entity",
        _ => "internal_server_error",
    };
    let error = obj! { "code": code, "message": fault.message };
    obj! { "errors": list![error], "trace": "sim", "status_code": fault.status }
}
