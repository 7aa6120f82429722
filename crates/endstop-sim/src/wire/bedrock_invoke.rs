//! Bedrock `InvokeModel` for Anthropic models: Anthropic's JSON, each event wrapped in a chunk.

use super::{Framing, Part, PathInfo, SimWire, WireEvent, anthropic, bedrock_converse};
use crate::answer::Answer;
use crate::json::obj;
use crate::sim_request::SimRequest;

pub(super) static WIRE: SimWire = SimWire {
    id: "bedrock-invoke",
    route: "bedrock",
    bare: true,
    path: "/model/anthropic.claude-sonnet-4-5/invoke-with-response-stream",
    plain_path: "/model/anthropic.claude-sonnet-4-5/invoke",
    provider: &endstop::provider::BEDROCK,
    tools: true,
    whole_calls: false,
    marker: true,
    reasons: true,
    framing: Framing::AwsChunks,
    words: anthropic::WORDS,
    takes,
    read: anthropic::read,
    stream,
    body: anthropic::body,
    error: bedrock_converse::error,
    error_event: bedrock_converse::error_event,
    headers: |ask| {
        let mut headers = vec![("x-amzn-requestid", ask.id(""))];
        if ask.streamed {
            headers.push(("x-amzn-bedrock-content-type", "application/json".to_owned()));
        }
        headers
    },
    models: bedrock_converse::models,
};

fn takes(path: &str) -> Option<PathInfo> {
    bedrock_converse::model_path(path, "/invoke", "/invoke-with-response-stream")
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let mut events = anthropic::stream(ask, answer);
    // Only Anthropic's own API sends pings.
    events.retain(|event| event.name != "ping");
    let last = events.iter_mut().rev().find(|event| event.part == Part::Mark);
    if let (Some(last), Some(usage)) = (last, answer.usage) {
        let metrics = obj! {
            "inputTokenCount": usage.input, "outputTokenCount": usage.output,
            "invocationLatency": 70_u64, "firstByteLatency": 7_u64,
        };
        last.data.set("amazon-bedrock-invocationMetrics", metrics);
    }
    events
}
