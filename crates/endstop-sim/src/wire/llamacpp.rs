//! llama.cpp's native completion: the last event has `stop` set, the finish reason and the usage.

use serde_json::Value;

use super::{BASE, Part, SimWire, WireEvent, Words, ends};
use crate::answer::Answer;
use crate::json::{Json, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "llamacpp-completion",
    route: "llamacpp",
    path: "/completion",
    plain_path: "/completion",
    provider: &endstop::provider::LLAMACPP,
    words: Words {
        stop: "eos",
        stop_sequence: "word",
        length: "limit",
        tool_call: "eos",
        filter: "eos",
        refusal: "eos",
        context: "limit",
        failed: "error",
    },
    takes: |path| ends(path, "/completion"),
    read,
    stream,
    body,
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/n_predict"]);
    ask.stop = sim_request::strings(body, "/stop");
    ask.read_prompt(body.get("prompt"));
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let text = answer.first_choice().text;
    let piece = |token: &String| obj! { "index": 0_u64, "content": token, "stop": false };
    let mut events: Vec<WireEvent> =
        text.iter().map(|token| WireEvent::new(Part::Text, piece(token))).collect();
    events.push(WireEvent::new(Part::Word, last(ask, answer, "")));
    events
}

fn last(ask: &SimRequest, answer: &Answer, text: &str) -> Json {
    let mut last = obj! {
        "index": 0_u64, "content": text, "id_slot": 0_u64, "stop": true, "model": &ask.model,
        "stopping_word": "", "truncated": false,
    };
    last.set_some("stop_type", WIRE.words.of(&answer.first_choice().end));
    if let Some(usage) = answer.usage {
        last.set("tokens_predicted", usage.output);
        last.set("tokens_evaluated", usage.input);
    }
    last
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    last(ask, answer, &answer.first_choice().text.concat())
}
