//! Bedrock `InvokeModel` for Amazon Nova: Converse's events, each wrapped in a chunk.

use super::{Framing, PathInfo, SimWire, WireEvent, bedrock_converse, bedrock_invoke};
use crate::answer::Answer;
use crate::json::Json;
use crate::sim_request::SimRequest;

pub(super) static WIRE: SimWire = SimWire {
    id: "bedrock-nova",
    path: "/model/amazon.nova-pro-v1:0/invoke-with-response-stream",
    plain_path: "/model/amazon.nova-pro-v1:0/invoke",
    framing: Framing::AwsChunks,
    takes,
    stream,
    rejects: &[],
    headers: bedrock_invoke::headers,
    ..bedrock_converse::CONVERSE
};

fn takes(path: &str) -> Option<PathInfo> {
    bedrock_invoke::family(path, "amazon.nova")
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let wrap = |event: WireEvent| {
        let data = Json::Object(vec![(event.name.clone(), event.data)]);
        WireEvent { data, name: String::new(), ..event }
    };
    let mut events: Vec<WireEvent> =
        (bedrock_converse::WIRE.stream)(ask, answer).into_iter().map(wrap).collect();
    bedrock_invoke::add_metrics(&mut events, answer);
    events
}
