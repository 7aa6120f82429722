//! Bedrock `InvokeModel` for Anthropic models: Anthropic's JSON, each event wrapped in a chunk.

use super::{Framing, PathInfo, SimWire, WireEvent, anthropic, bedrock_converse};
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
    streams: true,
    tools: true,
    whole_calls: false,
    marker: true,
    reasons: true,
    rejects: &[("claude", anthropic::NO_PREFILL)],
    remembers: None,
    refers: None,
    framing: Framing::AwsChunks,
    words: anthropic::WORDS,
    takes,
    read: anthropic::read,
    stream,
    body: anthropic::body,
    error: bedrock_converse::error,
    error_event: bedrock_converse::error_event,
    headers,
    models: bedrock_converse::models,
};

pub(super) fn headers(ask: &SimRequest) -> Vec<(&'static str, String)> {
    let mut headers = vec![("x-amzn-requestid", ask.id(""))];
    if ask.streamed {
        headers.push(("x-amzn-bedrock-content-type", "application/json".to_owned()));
    }
    headers
}

fn takes(path: &str) -> Option<PathInfo> {
    bedrock_converse::model_path(path, "/invoke", "/invoke-with-response-stream")
}

/// Accepts the paths of the models whose names contain this.
pub(super) fn family(path: &str, name: &str) -> Option<PathInfo> {
    let is_family =
        |taken: &PathInfo| taken.model.as_ref().is_some_and(|model| model.contains(name));
    takes(path).filter(is_family)
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let mut events = anthropic::stream(ask, answer);
    // Only Anthropic's own API sends pings.
    events.retain(|event| event.name != "ping");
    add_metrics(&mut events, answer);
    events
}

/// Adds the service's metrics to the last event.
pub(super) fn add_metrics(events: &mut [WireEvent], answer: &Answer) {
    if let (Some(last), Some(usage)) = (events.last_mut(), answer.usage) {
        let metrics = obj! {
            "inputTokenCount": usage.input, "outputTokenCount": usage.output,
            "invocationLatency": 70_u64, "firstByteLatency": 7_u64,
        };
        last.data.set("amazon-bedrock-invocationMetrics", metrics);
    }
}
