//! Tests of every scenario on every wire, streamed and plain, with Endstop's reader.

use std::sync::Arc;

use endstop::tool_call::Allow;
use endstop::{Answer, Collector, Ending, Head, Reason, RequestInfo, Timer, TransportEnd, Watcher};
use endstop_sim::scenario::{self, Delivery, Want};
use endstop_sim::{Options, Scenario, Sim, SimWire, Story, wire};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::{How, Response, post, post_stalled};

/// Returns the paths of a wire for this mode; Gemini streams also have the path for JSON arrays.
pub(crate) fn paths(wire: &SimWire, mode: Delivery) -> Vec<String> {
    let path = match mode {
        Delivery::Streamed => wire.path,
        Delivery::Plain => wire.plain_path,
    };
    let path = format!("/{}{path}", wire.route);
    let array = path.strip_suffix("?alt=sse").map(str::to_owned);
    std::iter::once(path).chain(array).collect()
}

/// Returns the modes of a wire.
fn modes(wire: &SimWire) -> impl Iterator<Item = Delivery> {
    [Delivery::Streamed, Delivery::Plain]
        .into_iter()
        .filter(|mode| wire.streams || *mode == Delivery::Plain)
}

/// Returns a request body without tools; a token limit goes into every wire's field for it.
pub(crate) fn body(wire: &SimWire, mode: Delivery, cap: Option<u64>) -> String {
    let streamed = mode == Delivery::Streamed;
    let prompt = if wire.id.ends_with("generate") { r#","prompt":"Hi""# } else { "" };
    let cap = cap.map_or(String::new(), |cap| {
        format!(
            r#","max_tokens":{cap},"max_output_tokens":{cap},"options":{{"num_predict":{cap}}},
            "inferenceConfig":{{"maxTokens":{cap}}},"generationConfig":{{"maxOutputTokens":{cap}}},
            "generation_config":{{"max_output_tokens":{cap}}},"n_predict":{cap},
            "parameters":{{"max_tokens":{cap},"max_new_tokens":{cap}}},"max_gen_len":{cap},"max_tokens_to_sample":{cap},
            "maxTokens":{cap},"max_completion_tokens":{cap},"input":{{"max_tokens":{cap}}},
            "textGenerationConfig":{{"maxTokenCount":{cap}}},"maximum_tokens":{cap},"config":{{"modules":
            {{"prompt_templating":{{"model":{{"params":{{"max_tokens":{cap}}}}}}}}}}}"#
        )
    });
    let usage = r#","stream_options":{"include_usage":true}"#;
    format!(r#"{{"model":"some-model","stream":{streamed},"messages":[]{prompt}{cap}{usage}}}"#)
}

/// Returns the header that asks Replicate for a stream instead of its URL. Others ignore it.
pub(crate) fn accept(mode: Delivery) -> (&'static str, &'static str) {
    match mode {
        Delivery::Streamed => ("accept", "text/event-stream"),
        Delivery::Plain => ("accept", "application/json"),
    }
}

pub(crate) fn profile(wire: &SimWire) -> &'static endstop::Profile {
    let path = wire.path.split('?').next().unwrap();
    wire.provider.wire_for_path(path).unwrap_or(&wire.provider.main)
}

pub(crate) fn judge(
    wire: &SimWire,
    mode: Delivery,
    cap: Option<u64>,
    response: &Response,
) -> Ending {
    let head = Head { status: response.status, content_type: response.header("content-type") };
    let asked =
        RequestInfo { streamed: Some(mode == Delivery::Streamed), cap, ..RequestInfo::default() };
    let mut reader = Watcher::new(profile(wire), head, asked);
    reader.watch(&response.decoded());
    reader.finish(match response.close {
        How::Whole => TransportEnd::Eof,
        How::Short | How::Reset => TransportEnd::Reset,
        How::Silent => TransportEnd::TimedOut(Timer::Idle),
    })
}

/// Known differences between the reader's verdict and the scenario's row.
const KNOWN: &[(&str, &str, &str)] = &[
    // The reader stops at invalid JSON in an array, because nothing else separates the elements.
    ("gemini", "malformed-json", "streamGenerateContent"),
    ("gemini", "deep-json", "streamGenerateContent"),
    // An array that was never closed is incomplete.
    ("gemini", "stall-after-word", "streamGenerateContent"),
    // On every other wire, an error after a proven end is a late event.
    ("bedrock-invoke", "error-after-end", "invoke-with-response-stream"),
];

#[tokio::test]
async fn the_reader_says_of_every_scenario_what_its_row_says() {
    let sim = Arc::new(Sim::start(Options::default()).await.unwrap());
    let mut checks = JoinSet::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for wire in wire::every() {
        for scenario in scenario::ALL.iter().filter(|scenario| (scenario.on)(wire)) {
            for mode in modes(wire) {
                for path in paths(wire, mode) {
                    count += 1;
                    checks.spawn(check(Arc::clone(&sim), wire, scenario, mode, path));
                    if checks.len() > 40 {
                        wrong.extend(checks.join_next().await.unwrap().unwrap());
                    }
                }
            }
        }
    }
    assert!(count > 1200, "{count}");
    wrong.extend(checks.join_all().await.into_iter().flatten());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

async fn check(
    sim: Arc<Sim>,
    wire: &'static SimWire,
    scenario: &'static Scenario,
    mode: Delivery,
    path: String,
) -> Option<String> {
    let Want { reason, closed } = (scenario.want)(wire, mode)?;
    let cap = (scenario.name == "tool-call-at-cap").then_some(6);
    let headers = [("x-sim-scenario", scenario.name), accept(mode)];
    let body = body(wire, mode, cap);
    let tag = format!("{} {mode:?} {path}", scenario.name);
    let response = post_stalled(&sim, &path, &tag, &headers, &body).await;
    let ending = judge(wire, mode, cap, &response);
    let is_known = |(id, name, tail): &&(&str, &str, &str)| {
        *id == wire.id && *name == scenario.name && path.ends_with(tail)
    };
    if (ending.reason, ending.closed) == (reason, closed)
        || KNOWN.iter().any(|known| is_known(&known))
    {
        return None;
    }
    let body = String::from_utf8_lossy(&response.body).into_owned();
    let tail: String = body.chars().skip(body.chars().count().saturating_sub(160)).collect();
    Some(format!(
        "{} {} {path}: {:?} {:?}, should be {reason:?} {closed:?} ({}) {tail:?}",
        wire.id, scenario.name, ending.reason, ending.closed, ending.sentence
    ))
}

/// Fields that hold a scenario's finish reason.
const FIELDS: [&str; 9] = [
    "finish_reason",
    "finishReason.reason",
    "incomplete_details.reason",
    "stop_reason",
    "finishReason",
    "stopReason",
    "done_reason",
    "status",
    "reason",
];

#[tokio::test]
async fn every_documented_word_means_what_the_tables_say() {
    let sim = Sim::start(Options::default()).await.unwrap();
    let mut seen = 0;
    // The words of `cloudflare-run` are those of the models that answer with a chat completion.
    for wire in wire::every().filter(|wire| wire.has_finish_reasons()) {
        let profile = profile(wire);
        let tables = profile.words.iter().chain(profile.dialect.words);
        for table in tables.filter(|table| FIELDS.contains(&table.field)) {
            for (word, reason) in table.rows {
                let call = *reason == Reason::ToolCall;
                if call && !wire.tools {
                    continue;
                }
                let name = if call { "word-tool-call" } else { "word" };
                for mode in modes(wire) {
                    let path = paths(wire, mode).remove(0);
                    let headers = [("x-sim-scenario", &*format!("{name}={word}")), accept(mode)];
                    let response = post(sim.addr(), &path, &headers, &body(wire, mode, None)).await;
                    let ending = judge(wire, mode, None, &response);
                    assert_eq!(
                        ending.reason, *reason,
                        "{} {mode:?} {word}: {}",
                        wire.id, ending.sentence
                    );
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

/// Wires whose plain bodies have no usage.
const UNCOUNTED: [&str; 6] = [
    "bedrock-mistral",
    "bedrock-cohere",
    "anthropic-complete",
    "bedrock-ai21",
    "ai21-complete",
    "replicate",
];

/// Wires whose streams have no usage.
const UNCOUNTED_STREAMS: [&str; 1] = ["replicate"];

/// Wires that call a truncated response complete, and do not count tokens. On `cloudflare-run`, which
/// has no finish reasons, the usage alone shows the truncation.
const UNTOLD: [&str; 1] = ["replicate"];

#[tokio::test]
async fn a_cap_cuts_and_is_what_was_used() {
    let sim = Sim::start(Options::default()).await.unwrap();
    for wire in wire::every() {
        for mode in modes(wire) {
            for path in paths(wire, mode) {
                let asked = body(wire, mode, Some(7));
                let response = post(sim.addr(), &path, &[accept(mode)], &asked).await;
                let ending = judge(wire, mode, Some(7), &response);
                let untold = UNTOLD.contains(&wire.id);
                let reason = if untold { Reason::Complete } else { Reason::OutputLimit };
                assert_eq!(ending.reason, reason, "{} {path}", wire.id);
                let uncounted = match mode {
                    Delivery::Streamed => UNCOUNTED_STREAMS.contains(&wire.id),
                    Delivery::Plain => UNCOUNTED.contains(&wire.id),
                };
                let used = (!uncounted).then_some(7);
                assert_eq!(ending.usage.output, used, "{} {path}", wire.id);
                assert_eq!(ending.shown.at_cap, !uncounted, "{} {path}", wire.id);
            }
        }
    }
}

/// Returns the answer to a request for this scenario.
async fn collected(sim: &Sim, wire: &SimWire, mode: Delivery, scenario: &str) -> Answer {
    let path = paths(wire, mode).remove(0);
    let headers = [("x-sim-scenario", scenario), accept(mode)];
    let response = post(sim.addr(), &path, &headers, &body(wire, mode, None)).await;
    let head = Head { status: response.status, content_type: response.header("content-type") };
    let mut collector = Collector::new(profile(wire), head, RequestInfo::default());
    collector.push(&response.body);
    collector.finish(TransportEnd::Eof)
}

#[tokio::test]
async fn a_text_arrives_to_the_character() {
    let sim = Sim::start(Options::default()).await.unwrap();
    let story = Story::parse("300").text();
    for wire in wire::every() {
        for mode in modes(wire) {
            let answer = collected(&sim, wire, mode, "story=300").await;
            // A run that is not streamed has no text.
            let silent = wire.id == "openai-assistants" && mode == Delivery::Plain;
            let text = if silent { "" } else { &story };
            assert_eq!(answer.text, text, "{} {mode:?}", wire.id);
        }
    }
}

#[tokio::test]
async fn a_tool_call_may_run_if_there_is_a_finish_reason() {
    let sim = Sim::start(Options::default()).await.unwrap();
    for wire in wire::every().filter(|wire| wire.tools) {
        for mode in modes(wire) {
            let answer = collected(&sim, wire, mode, "tool-call").await;
            let [call] = &answer.tool_calls[..] else { panic!("{} {mode:?}", wire.id) };
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            assert_eq!(arguments["path"], "note.txt", "{} {mode:?}", wire.id);
            let may_run = answer.allow() == Allow::Run;
            assert_eq!(may_run, wire.has_finish_reasons(), "{} {mode:?}", wire.id);
        }
    }
}
