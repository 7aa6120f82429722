//! Tests of every scenario on every wire, streamed and plain, with Endstop's reader.

use std::net::SocketAddr;

use endstop::{Ending, Head, Reason, RequestInfo, Timer, TransportEnd, Watcher};
use endstop_sim::scenario::{self, Delivery, Want};
use endstop_sim::{Options, Scenario, Sim, SimWire, wire};

use tokio::task::JoinSet;

use crate::client::{How, Response, SHORT, post, post_within};

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
            "textGenerationConfig":{{"maxTokenCount":{cap}}},"maximum_tokens":{cap},"config":{{"modules":
            {{"prompt_templating":{{"model":{{"params":{{"max_tokens":{cap}}}}}}}}}}}"#
        )
    });
    let usage = r#","stream_options":{"include_usage":true}"#;
    format!(r#"{{"model":"some-model","stream":{streamed},"messages":[]{prompt}{cap}{usage}}}"#)
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
    let sim = Sim::start(Options::default()).await.unwrap();
    let addr = sim.addr();
    let mut checks = JoinSet::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for wire in wire::every() {
        for scenario in scenario::ALL.iter().filter(|scenario| (scenario.on)(wire)) {
            for mode in [Delivery::Streamed, Delivery::Plain] {
                for path in paths(wire, mode) {
                    count += 1;
                    checks.spawn(check(addr, wire, scenario, mode, path));
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
    addr: SocketAddr,
    wire: &'static SimWire,
    scenario: &'static Scenario,
    mode: Delivery,
    path: String,
) -> Option<String> {
    let Want { reason, closed } = (scenario.want)(wire, mode)?;
    let cap = (scenario.name == "tool-call-at-cap").then_some(6);
    let headers = [("x-sim-scenario", scenario.name)];
    let body = body(wire, mode, cap);
    let response = if scenario.name.starts_with("stall") {
        post_within(addr, &path, &headers, &body, SHORT).await
    } else {
        post(addr, &path, &headers, &body).await
    };
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
const FIELDS: [&str; 7] = [
    "finish_reason",
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
    for wire in wire::every() {
        let profile = profile(wire);
        let tables = profile.words.iter().chain(profile.dialect.words);
        for table in tables.filter(|table| FIELDS.contains(&table.field)) {
            for (word, reason) in table.rows {
                let call = *reason == Reason::ToolCall;
                if call && !wire.tools {
                    continue;
                }
                let name = if call { "word-tool-call" } else { "word" };
                for mode in [Delivery::Streamed, Delivery::Plain] {
                    let path = paths(wire, mode).remove(0);
                    let headers = [("x-sim-scenario", &*format!("{name}={word}"))];
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
const UNCOUNTED: [&str; 3] = ["bedrock-mistral", "bedrock-cohere", "anthropic-complete"];

#[tokio::test]
async fn a_cap_cuts_and_is_what_was_used() {
    let sim = Sim::start(Options::default()).await.unwrap();
    for wire in wire::every() {
        for mode in [Delivery::Streamed, Delivery::Plain] {
            for path in paths(wire, mode) {
                let response = post(sim.addr(), &path, &[], &body(wire, mode, Some(7))).await;
                let ending = judge(wire, mode, Some(7), &response);
                assert_eq!(ending.reason, Reason::OutputLimit, "{} {path}", wire.id);
                if UNCOUNTED.contains(&wire.id) && mode == Delivery::Plain {
                    continue;
                }
                assert_eq!(ending.usage.output, Some(7), "{} {path}", wire.id);
                assert!(ending.shown.at_cap, "{} {path}", wire.id);
            }
        }
    }
}
