//! OpenAI legacy completions: text without tools.

use serde_json::Value;

use super::{Framing, Part, PathInfo, SimWire, WireEvent, Words, openai_chat};
use crate::answer::{Answer, Choice};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "openai-completions",
    route: "openai",
    bare: true,
    path: "/v1/completions",
    plain_path: "/v1/completions",
    provider: &endstop::provider::OPENAI,
    streams: true,
    tools: false,
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
        tool_call: "stop",
        filter: "content_filter",
        refusal: "stop",
        context: "length",
        failed: "error",
    },
    takes: |path| {
        (path.ends_with("/completions") && !path.ends_with("/chat/completions"))
            .then(PathInfo::default)
    },
    read,
    stream,
    body,
    error: openai_chat::error,
    error_event: openai_chat::error_event,
    headers: openai_chat::headers,
    models: openai_chat::models,
};

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/max_tokens"]);
    ask.stop = sim_request::strings(body, "/stop");
    ask.choices = sim_request::number(body, &["/n"]).unwrap_or(1);
    ask.include_usage =
        body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or(false);
    ask.read_prompt(body.get("prompt"));
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let deltas = |(index, choice): (usize, &Choice)| {
        let mut events: Vec<WireEvent> = choice
            .text
            .iter()
            .map(|token| WireEvent::new(Part::Text, chunk(ask, index, token, Json::Null)))
            .collect();
        events.push(WireEvent::new(Part::Word, chunk(ask, index, "", WIRE.words.of(&choice.end))));
        events
    };
    let mut events = openai_chat::in_turn(answer.choices.iter().enumerate().map(deltas).collect());
    if let Some(usage) = answer.usage.filter(|_| ask.include_usage) {
        let data = head(ask).with("choices", list![]).with("usage", openai_chat::usage_of(usage));
        events.push(WireEvent::new(Part::Usage, data));
    }
    events.push(WireEvent::new(Part::Mark, Json::Raw("[DONE]".to_owned())));
    events
}

fn head(ask: &SimRequest) -> Json {
    obj! {
        "id": ask.id("cmpl-"), "object": "text_completion", "created": openai_chat::CREATED,
        "model": &ask.model,
    }
}

fn choice_of(index: usize, text: &str, word: Json) -> Json {
    obj! { "text": text, "index": index, "logprobs": Json::Null, "finish_reason": word }
}

fn chunk(ask: &SimRequest, index: usize, text: &str, word: Json) -> Json {
    head(ask).with("choices", list![choice_of(index, text, word)])
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = |(index, choice): (usize, &Choice)| {
        choice_of(index, &choice.text.concat(), WIRE.words.of(&choice.end))
    };
    let choices: Vec<Json> = answer.choices.iter().enumerate().map(choice).collect();
    let mut body = head(ask).with("choices", choices);
    if let Some(usage) = answer.usage {
        body.set("usage", openai_chat::usage_of(usage));
    }
    body
}
