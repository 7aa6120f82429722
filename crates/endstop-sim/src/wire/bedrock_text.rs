//! Bedrock `InvokeModel` for the families that only write text: Amazon Titan, Meta Llama, Mistral,
//! Cohere Command and Claude 2. The last three count tokens only in the metrics of a stream.

use serde_json::Value;

use super::{BASE, Framing, Part, SimWire, WireEvent, Words, bedrock_converse, bedrock_invoke};
use crate::answer::{Answer, End};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static TITAN: SimWire = SimWire {
    id: "bedrock-titan",
    path: "/model/amazon.titan-text-premier-v1:0/invoke-with-response-stream",
    plain_path: "/model/amazon.titan-text-premier-v1:0/invoke",
    words: Words {
        stop: "FINISH",
        stop_sequence: "STOP_CRITERIA_MET",
        length: "LENGTH",
        tool_call: "FINISH",
        filter: "CONTENT_FILTERED",
        refusal: "FINISH",
        context: "LENGTH",
        failed: "ERROR",
    },
    takes: |path| bedrock_invoke::family(path, "amazon.titan"),
    read: |body, ask| {
        ask.cap = sim_request::number(body, &["/textGenerationConfig/maxTokenCount"]);
        ask.stop = sim_request::strings(body, "/textGenerationConfig/stopSequences");
        ask.read_prompt(body.get("inputText"));
    },
    stream: |_, answer| stream(answer, titan_chunk),
    body: |_, answer| titan_body(answer),
    ..TEXT
};

pub(super) static LLAMA: SimWire = SimWire {
    id: "bedrock-llama",
    path: "/model/meta.llama4-maverick-v1:0/invoke-with-response-stream",
    plain_path: "/model/meta.llama4-maverick-v1:0/invoke",
    words: LLAMA_WORDS,
    takes: |path| bedrock_invoke::family(path, "meta.llama"),
    read: |body: &Value, ask: &mut SimRequest| {
        ask.cap = sim_request::number(body, &["/max_gen_len"]);
        ask.read_prompt(body.get("prompt"));
    },
    stream: |_, answer| stream(answer, llama_chunk),
    body: |_, answer| {
        llama_chunk(answer, &answer.first_choice().text.concat(), Some(&answer.first_choice().end))
    },
    ..TEXT
};

pub(super) static MISTRAL: SimWire = SimWire {
    id: "bedrock-mistral",
    path: "/model/mistral.mistral-large-2402-v1:0/invoke-with-response-stream",
    plain_path: "/model/mistral.mistral-large-2402-v1:0/invoke",
    words: LLAMA_WORDS,
    takes: |path| bedrock_invoke::family(path, "mistral.m"),
    read: |body: &Value, ask: &mut SimRequest| {
        ask.cap = sim_request::number(body, &["/max_tokens"]);
        ask.stop = sim_request::strings(body, "/stop");
        ask.read_prompt(body.get("prompt"));
    },
    stream: |_, answer| stream(answer, mistral_chunk),
    body: |_, answer| {
        mistral_chunk(
            answer,
            &answer.first_choice().text.concat(),
            Some(&answer.first_choice().end),
        )
    },
    ..TEXT
};

pub(super) static COMMAND: SimWire = SimWire {
    id: "bedrock-cohere",
    path: "/model/cohere.command-text-v14/invoke-with-response-stream",
    plain_path: "/model/cohere.command-text-v14/invoke",
    words: Words {
        stop: "COMPLETE",
        stop_sequence: "COMPLETE",
        length: "MAX_TOKENS",
        tool_call: "COMPLETE",
        filter: "ERROR_TOXIC",
        refusal: "COMPLETE",
        context: "MAX_TOKENS",
        failed: "ERROR",
    },
    takes: |path| bedrock_invoke::family(path, "cohere.command-text"),
    read: |body: &Value, ask: &mut SimRequest| {
        ask.cap = sim_request::number(body, &["/max_tokens"]);
        ask.stop = sim_request::strings(body, "/stop_sequences");
        ask.read_prompt(body.get("prompt"));
    },
    stream: |_, answer| stream(answer, command_chunk),
    body: |ask, answer| command_body(ask, answer),
    ..TEXT
};

pub(super) static CLAUDE_2: SimWire = SimWire {
    id: "anthropic-complete",
    path: "/model/anthropic.claude-v2:1/invoke-with-response-stream",
    plain_path: "/model/anthropic.claude-v2:1/invoke",
    words: Words {
        stop: "end_turn",
        stop_sequence: "stop_sequence",
        length: "max_tokens",
        tool_call: "end_turn",
        filter: "end_turn",
        refusal: "end_turn",
        context: "max_tokens",
        failed: "error",
    },
    takes: |path| bedrock_invoke::family(path, "anthropic.claude-v2"),
    read: |body: &Value, ask: &mut SimRequest| {
        ask.cap = sim_request::number(body, &["/max_tokens_to_sample"]);
        ask.stop = sim_request::strings(body, "/stop_sequences");
        ask.read_prompt(body.get("prompt"));
    },
    stream: |_, answer| stream(answer, claude_chunk),
    body: |_, answer| {
        claude_chunk(answer, &answer.first_choice().text.concat(), Some(&answer.first_choice().end))
    },
    ..TEXT
};

const LLAMA_WORDS: Words = Words {
    stop: "stop",
    stop_sequence: "stop",
    length: "length",
    tool_call: "stop",
    filter: "stop",
    refusal: "stop",
    context: "length",
    failed: "error",
};

const TEXT: SimWire = SimWire {
    route: "bedrock",
    bare: true,
    provider: &endstop::provider::BEDROCK,
    framing: Framing::AwsChunks,
    error: bedrock_converse::error,
    error_event: bedrock_converse::error_event,
    headers: bedrock_invoke::headers,
    models: bedrock_converse::models,
    ..BASE
};

/// Returns a chunk per token, and a last one with the end.
fn stream(answer: &Answer, chunk: fn(&Answer, &str, Option<&End>) -> Json) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let texts = choice.text.iter();
    let mut events: Vec<WireEvent> =
        texts.map(|token| WireEvent::new(Part::Text, chunk(answer, token, None))).collect();
    events.push(WireEvent::new(Part::Word, chunk(answer, "", Some(&choice.end))));
    bedrock_invoke::add_metrics(&mut events, answer);
    events
}

fn titan_chunk(answer: &Answer, text: &str, end: Option<&End>) -> Json {
    let usage = answer.usage.filter(|_| end.is_some());
    obj! {
        "outputText": text, "index": 0_u64,
        "totalOutputTextTokenCount": usage.map(|usage| usage.output),
        "completionReason": end.map(|end| TITAN.words.of(end)),
        "inputTextTokenCount": usage.map(|usage| usage.input),
    }
}

fn titan_body(answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let result = obj! {
        "tokenCount": answer.usage.map(|usage| usage.output),
        "outputText": choice.text.concat(), "completionReason": TITAN.words.of(&choice.end),
    };
    let input = answer.usage.map(|usage| usage.input);
    obj! { "inputTextTokenCount": input, "results": list![result] }
}

fn llama_chunk(answer: &Answer, text: &str, end: Option<&End>) -> Json {
    let usage = answer.usage.filter(|_| end.is_some());
    obj! {
        "generation": text, "prompt_token_count": usage.map(|usage| usage.input),
        "generation_token_count": usage.map(|usage| usage.output),
        "stop_reason": end.map(|end| LLAMA.words.of(end)),
    }
}

fn mistral_chunk(_: &Answer, text: &str, end: Option<&End>) -> Json {
    let word = end.map(|end| MISTRAL.words.of(end));
    obj! { "outputs": list![obj! { "text": text, "stop_reason": word }] }
}

fn claude_chunk(_: &Answer, text: &str, end: Option<&End>) -> Json {
    let stop = match end {
        Some(End::StopSequence(text)) => Json::from(text.as_str()),
        _ => Json::Null,
    };
    let word = end.map(|end| CLAUDE_2.words.of(end));
    obj! { "type": "completion", "completion": text, "stop_reason": word, "stop": stop }
}

fn command_chunk(_: &Answer, text: &str, end: Option<&End>) -> Json {
    let mut chunk = obj! { "is_finished": end.is_some(), "text": text, "index": 0_u64 };
    chunk.set_some("finish_reason", Json::from(end.map(|end| COMMAND.words.of(end))));
    chunk
}

fn command_body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let mut generation = obj! { "id": ask.id(""), "text": choice.text.concat() };
    generation.set_some("finish_reason", COMMAND.words.of(&choice.end));
    obj! { "id": ask.id(""), "generations": list![generation], "prompt": "" }
}
