//! Aleph Alpha's native completion: a summary with the finish reason, then one with the usage.

use serde_json::Value;

use super::{BASE, Fault, Part, SimWire, WireEvent, Words, ends};
use crate::answer::Answer;
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "aleph-alpha-complete",
    route: "aleph-alpha",
    path: "/complete",
    plain_path: "/complete",
    provider: &endstop::provider::ALEPH_ALPHA,
    words: Words {
        stop: "end_of_text",
        stop_sequence: "stop_sequence_reached",
        length: "maximum_tokens",
        tool_call: "end_of_text",
        filter: "end_of_text",
        refusal: "end_of_text",
        context: "maximum_tokens",
        failed: "error",
    },
    marker: true,
    takes: |path| ends(path, "/complete"),
    read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::new(Part::Error, error(fault)),
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/maximum_tokens"]);
    ask.stop = sim_request::strings(body, "/stop_sequences");
    ask.read_prompt(body.get("prompt"));
}

fn stream(_: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let piece =
        |token: &String| obj! { "type": "stream_chunk", "index": 0_u64, "completion": token };
    let mut events: Vec<WireEvent> =
        choice.text.iter().map(|token| WireEvent::new(Part::Text, piece(token))).collect();
    let mut summary = obj! { "type": "stream_summary", "index": 0_u64, "model_version": "sim" };
    summary.set_some("finish_reason", WIRE.words.of(&choice.end));
    events.push(WireEvent::new(Part::Word, summary));
    let last = counted(obj! { "type": "completion_summary" }, answer);
    events.push(WireEvent::new(Part::Mark, last));
    events
}

fn counted(mut data: Json, answer: &Answer) -> Json {
    if let Some(usage) = answer.usage {
        data.set("num_tokens_prompt_total", usage.input);
        data.set("num_tokens_generated", usage.output);
    }
    data
}

fn body(_: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut completion = obj! { "completion": choice.text.concat() };
    completion.set_some("finish_reason", WIRE.words.of(&choice.end));
    counted(obj! { "completions": list![completion], "model_version": "sim" }, answer)
}

fn error(fault: &Fault<'_>) -> Json {
    let code = match fault.status {
        400 | 422 => "INVALID_REQUEST",
        401 => "UNAUTHENTICATED",
        429 => "TOO_MANY_REQUESTS",
        503 | 529 => "QUEUE_FULL",
        _ => "UNKNOWN_ERROR",
    };
    obj! { "error": fault.message, "code": code }
}
