//! Text Generation Inference: the last event has the whole text and the details.

use serde_json::Value;

use super::{BASE, Fault, Part, PathInfo, SimWire, WireEvent, Words};
use crate::answer::Answer;
use crate::json::{Json, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "hf-tgi",
    route: "huggingface",
    path: "/generate_stream",
    plain_path: "/generate",
    provider: &endstop::provider::HUGGINGFACE,
    words: Words {
        stop: "eos_token",
        stop_sequence: "stop_sequence",
        length: "length",
        tool_call: "eos_token",
        filter: "eos_token",
        refusal: "eos_token",
        context: "length",
        failed: "error",
    },
    takes: |path| {
        let streamed = path.ends_with("/generate_stream");
        let taken = PathInfo { model: None, streamed: Some(streamed) };
        (streamed || path.ends_with("/generate") && !path.ends_with("/api/generate"))
            .then_some(taken)
    },
    read,
    stream,
    body: |_, answer| whole(answer),
    error,
    error_event: |fault| WireEvent::new(Part::Error, error(fault)),
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/parameters/max_new_tokens"]);
    ask.stop = sim_request::strings(body, "/parameters/stop");
    ask.read_prompt(body.get("inputs"));
}

fn token(at: usize, text: &str, special: bool) -> Json {
    let token = obj! { "id": at, "text": text, "logprob": 0.0, "special": special };
    obj! { "index": at + 1, "token": token }
}

fn stream(_: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let text = answer.first_choice().text;
    let mut events = Vec::new();
    for (at, piece) in text.iter().enumerate() {
        let data = token(at, piece, false);
        let data = data.with("generated_text", Json::Null).with("details", Json::Null);
        events.push(WireEvent::new(Part::Text, data));
    }
    let last = token(text.len(), "</s>", true).with("generated_text", text.concat());
    events.push(WireEvent::new(Part::Word, last.with("details", details(answer))));
    events
}

fn details(answer: &Answer) -> Json {
    let mut details = obj! {};
    details.set_some("finish_reason", WIRE.words.of(&answer.first_choice().end));
    if let Some(usage) = answer.usage {
        details.set("generated_tokens", usage.output);
        details.set("input_length", usage.input);
    }
    details.with("seed", Json::Null)
}

fn whole(answer: &Answer) -> Json {
    obj! { "generated_text": answer.first_choice().text.concat(), "details": details(answer) }
}

fn error(fault: &Fault<'_>) -> Json {
    let type_ = match fault.status {
        400 | 422 => "validation",
        429 | 503 | 529 => "overloaded",
        _ => "generation",
    };
    obj! { "error": fault.message, "error_type": type_ }
}
