//! AI21 Jurassic-2, on Bedrock and at AI21: the finish reason is an object. It never streams.
//!
//! The body has no usage. Bedrock has it in headers, which are not simulated.

use serde_json::Value;

use super::{
    BASE, Fault, Framing, PathInfo, SimWire, Words, bedrock_converse, bedrock_invoke, openai_chat,
};
use crate::answer::{Answer, Choice, End};
use crate::json::{Json, list, obj};
use crate::request::decoded;
use crate::sim_request::{self, SimRequest};

pub(super) static BEDROCK: SimWire = SimWire {
    id: "bedrock-ai21",
    route: "bedrock",
    bare: true,
    path: "/model/ai21.j2-ultra-v1/invoke",
    plain_path: "/model/ai21.j2-ultra-v1/invoke",
    provider: &endstop::provider::BEDROCK,
    framing: Framing::AwsChunks,
    takes: |path| bedrock_invoke::family(path, "ai21.j2"),
    error: bedrock_converse::error,
    error_event: bedrock_converse::error_event,
    headers: bedrock_invoke::headers,
    models: bedrock_converse::models,
    ..JURASSIC
};

pub(super) static COMPLETE: SimWire = JURASSIC;

const JURASSIC: SimWire = SimWire {
    id: "ai21-complete",
    route: "ai21",
    path: "/j2-ultra/complete",
    plain_path: "/j2-ultra/complete",
    provider: &endstop::provider::AI21,
    streams: false,
    words: Words {
        stop: "endoftext",
        stop_sequence: "stop",
        length: "length",
        tool_call: "endoftext",
        filter: "endoftext",
        refusal: "endoftext",
        context: "length",
        failed: "error",
    },
    takes: |path| {
        let model = path.strip_suffix("/complete")?.rsplit('/').next()?;
        Some(PathInfo { model: Some(decoded(model)), streamed: Some(false) })
    },
    read,
    body,
    error: |fault: &Fault<'_>| obj! { "detail": fault.message },
    error_event: openai_chat::error_event,
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    ask.cap = sim_request::number(body, &["/maxTokens"]);
    ask.stop = sim_request::strings(body, "/stopSequences");
    ask.choices = sim_request::number(body, &["/numResults"]).unwrap_or(1);
    ask.read_prompt(body.get("prompt"));
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let completions: Vec<Json> = answer.choices.iter().map(completion).collect();
    let prompt = obj! { "text": &ask.asked, "tokens": list![] };
    obj! { "id": ask.id(""), "prompt": prompt, "completions": completions }
}

fn completion(choice: &Choice) -> Json {
    let mut reason = obj! {};
    reason.set_some("reason", JURASSIC.words.of(&choice.end));
    if choice.end == End::Length {
        reason.set("length", choice.text.len());
    } else if let End::StopSequence(sequence) = &choice.end {
        reason.set("sequence", sequence);
    }
    let data = obj! { "text": choice.text.concat(), "tokens": list![] };
    obj! { "data": data, "finishReason": reason }
}
