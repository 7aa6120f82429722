//! A real model on a real server: llama.cpp with `SmolLM2`, over its three wires, plain and streamed, directly and
//! through the gateway.
//!
//! `scripts/e2e --model` installs and starts the servers, names them in variables and runs this file. Without them
//! the test is ignored.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use endstop::chat::JsonFormat;
use endstop::provider::LLAMACPP;
use endstop::registry::{Entry, Like, Registry};
use endstop::{FaultKind, Reason};
use endstop_client::{AnswerPiece, ChatResponse, Client, Ended, Request, RunEvent, TypedError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The wires, and whether the server obeys a schema there.
const WIRES: &[(&str, bool)] =
    &[("openai-chat", true), ("openai-responses", false), ("anthropic-messages", false)];

const SHORT: &str = "What is the capital of France? Answer in one word.";
const SENTENCE: &str = "Explain in one sentence what rain is.";

/// A value that a schema bounds, so that the model cannot go on for ever.
#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Weather {
    sky: Sky,
    rain: bool,
    wind: bool,
    snow: bool,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
enum Sky {
    #[serde(rename = "the sky is blue and clear today")]
    Blue,
    #[serde(rename = "the sky is grey and full of clouds")]
    Grey,
}

struct Way {
    name: &'static str,
    client: Client,
    /// Base URL of the gateway's admin API, and the ids of the endings that were looked at.
    admin: Option<String>,
    seen: BTreeSet<String>,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("set `{name}`, or run `scripts/e2e --model`"))
}

fn context() -> u64 {
    variable("ENDSTOP_MODEL_CONTEXT").parse().expect("a number")
}

impl Way {
    fn new(name: &'static str, url: &str, admin: Option<String>) -> Self {
        let mut entry = Entry::new("llamacpp", Like::Provider(&LLAMACPP));
        entry.context_tokens = Some(context());
        let mut registry = Registry::default();
        registry.register(entry);
        let mut policy = endstop_turn::policy::Policy::default();
        policy.agent.retry_backoff_ms = 1;
        policy.agent.continuation_max_attempts = 10;
        policy.agent.continuation_total_tokens_factor = 20;
        let builder = Client::builder().registry(registry).policy(policy);
        let builder = match admin {
            Some(_) => builder.gateway(url),
            None => builder.base_url("llamacpp", url),
        };
        Self { name, client: builder.build().unwrap(), admin, seen: BTreeSet::new() }
    }

    fn ask(&self, wire: &str, prompt: &str, cap: u64) -> Request {
        let request = self.client.request(&format!("llamacpp:{wire}/m"));
        request.user(prompt).temperature(0.0).max_tokens(cap)
    }

    /// Returns the reasons that the gateway has found since the last look, oldest first, if there is a gateway.
    async fn new_reasons(&mut self, wanted: usize) -> Option<Vec<String>> {
        let admin = self.admin.clone()?;
        let mut found: Vec<(String, String)> = Vec::new();
        // The ending of a stream is recorded after its last byte.
        for _ in 0..500 {
            let url = format!("{admin}/endstop/v1/endings?limit=20");
            let body = reqwest::get(url).await.unwrap().bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
            let rows = body["endings"].as_array().unwrap_or_else(|| panic!("{body}"));
            let new = rows.iter().map(|row| (text(row, "id"), text(row, "reason")));
            found = new.filter(|(id, _)| !self.seen.contains(id)).collect();
            if found.len() >= wanted {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.seen.extend(found.iter().map(|(id, _)| id.clone()));
        Some(found.into_iter().rev().map(|(_, reason)| reason).collect())
    }
}

async fn answer(request: Request, streamed: bool) -> ChatResponse {
    if !streamed {
        return request.send().await.unwrap();
    }
    let mut stream = request.stream().unwrap();
    let (mut text, mut ended) = (String::new(), None);
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Text(more) => text.push_str(&more),
            RunEvent::Ended(reply) => ended = Some(*reply),
            _ => {}
        }
    }
    let reply = ended.expect("an end");
    if let Some(whole) = reply.text() {
        assert_eq!(whole, text, "what was streamed is the answer");
    }
    reply
}

fn word(reply: &ChatResponse) -> &'static str {
    match reply.ended() {
        Ended::Complete(_) => "complete",
        Ended::ToolCalls(_) => "tool calls",
        Ended::Partial(_) => "partial",
        Ended::Refused(_) => "refused",
        Ended::Failed(_) => "failed",
    }
}

/// The result of a cell, and what it must be.
struct Cell {
    ended: &'static str,
    reasons: Vec<Reason>,
    /// What is wrong; empty if nothing is.
    wrong: String,
}

/// Returns the responses that were read.
///
/// This server announces that it keeps a connection after a stream, and closes it. The client sends its request
/// again then. The gateway answers with status 502, which the client retries: such a response is left out.
fn read(reply: &ChatResponse) -> impl Iterator<Item = &AnswerPiece> {
    let is_lost = |piece: &AnswerPiece| {
        piece.reason == Reason::Failed && piece.chars == 0 && piece.usage.input.is_none()
    };
    reply.pieces.iter().filter(move |piece| !is_lost(piece))
}

impl Cell {
    fn of(reply: &ChatResponse) -> Self {
        let reasons = read(reply).map(|piece| piece.reason).collect();
        Self { ended: word(reply), reasons, wrong: String::new() }
    }

    /// Notes that this must hold.
    fn must(mut self, holds: bool, what: &str) -> Self {
        if !holds {
            let _ = write!(self.wrong, "{what}; ");
        }
        self
    }

    fn must_end(self, ended: &str, last: Reason) -> Self {
        let holds = self.ended == ended && self.reasons.last() == Some(&last);
        self.must(holds, &format!("expected {ended}, {}", last.name()))
    }
}

async fn natural_end(way: &Way, wire: &str, streamed: bool) -> Cell {
    let reply = answer(way.ask(wire, SHORT, 100), streamed).await;
    let text = reply.text().unwrap_or_default().to_owned();
    Cell::of(&reply)
        .must_end("complete", Reason::Complete)
        .must(reply.pieces.len() == 1, "one request")
        .must(text.contains("Paris"), &text)
}

async fn limit_continued(way: &Way, wire: &str, streamed: bool) -> Cell {
    let reply = answer(way.ask(wire, SENTENCE, 16), streamed).await;
    let text = reply.text().unwrap_or_default().to_owned();
    let before = read(&reply).count() - 1;
    let limits = read(&reply).take(before).all(|piece| piece.reason == Reason::OutputLimit);
    let tokens = reply.pieces.iter().filter_map(|piece| piece.usage.output).sum::<u64>();
    let chars: u64 = reply.pieces.iter().map(|piece| piece.chars).sum();
    // A reply that repeats the prefill is not joined with it: no passage of twelve words occurs twice.
    let words: Vec<&str> = text.split_whitespace().collect();
    let passages: Vec<&[&str]> = words.windows(12).collect();
    let twice = passages.iter().collect::<BTreeSet<_>>().len() < passages.len();
    Cell::of(&reply)
        .must_end("complete", Reason::Complete)
        .must(
            before >= 1 && limits,
            &format!("cut by the limit, and continued: {:?}", reply.pieces),
        )
        .must(text.trim_end().ends_with('.'), &text)
        .must(!twice, &format!("a passage occurs twice: {text}"))
        .must(chars == text.chars().count() as u64, "the pieces are the text")
        .must(reply.usage.output == Some(tokens), "usage is summed")
}

async fn stop_sequence(way: &Way, wire: &str, streamed: bool) -> Cell {
    let request = way.ask(wire, SHORT, 100);
    let request = match wire {
        // OpenAI's Responses have no stop sequences; llama.cpp takes the field of chat completions.
        "openai-responses" => request.configure(|request| {
            request.extra.insert("stop".to_owned(), json!(["Paris"]));
        }),
        _ => request.stop("Paris"),
    };
    let reply = answer(request, streamed).await;
    // Only Messages tell a stop sequence from a natural end.
    let reason = match wire {
        "anthropic-messages" => Reason::StopSequence,
        _ => Reason::Complete,
    };
    let text = reply.text().unwrap_or_default().to_owned();
    Cell::of(&reply)
        .must_end("complete", reason)
        .must(reply.pieces.len() == 1, "one request")
        .must(text.contains("France") && !text.contains("Paris"), &text)
}

/// Returns a prompt of about this many tokens.
fn long_prompt(tokens: u64) -> String {
    let each = "Tell me about the sea. ";
    // Six tokens each, and 24 of the template.
    let times = usize::try_from(tokens.saturating_sub(30) / 6).unwrap();
    format!("{}Write a long story.", each.repeat(times))
}

async fn prompt_beyond_context(way: &Way, wire: &str, streamed: bool) -> Cell {
    let prompt = long_prompt(context() * 2);
    let reply = answer(way.ask(wire, &prompt, 100), streamed).await;
    let kind = reply.ending.fault.as_ref().map(|fault| fault.kind);
    Cell::of(&reply)
        .must_end("failed", reply.ending.reason)
        .must(reply.pieces.len() == 1, "one request")
        .must(kind == Some(FaultKind::ContextWindow), &format!("{kind:?}"))
}

async fn context_filled(way: &Way, wire: &str, streamed: bool) -> Cell {
    let prompt = long_prompt(context() - 12);
    let reply = answer(way.ask(wire, &prompt, 200), streamed).await;
    let usage = reply.usage;
    Cell::of(&reply)
        .must_end("partial", Reason::ContextLimit)
        .must(reply.pieces.len() == 1, "one request: nothing can be continued")
        .must(usage.output.is_some_and(|output| output < 200), &format!("{usage:?}"))
}

fn weather() -> JsonFormat {
    let schema = serde_json::to_value(schemars::schema_for!(Weather)).unwrap();
    JsonFormat { name: "Weather".to_owned(), schema }
}

/// A schema, cut by the limit, with no attempt to continue.
async fn schema_cut(way: &Way, wire: &str, streamed: bool) -> Cell {
    let prompt = "How is the weather? Explain in three sentences.";
    let mut policy = way.client.policy().clone();
    policy.agent.continuation_max_attempts = 0;
    let request = way.ask(wire, prompt, 16).policy(policy);
    if streamed {
        let request = request.configure(|request| request.format = Some(weather()));
        let reply = answer(request, true).await;
        return Cell::of(&reply)
            .must_end("partial", Reason::OutputLimit)
            .must(reply.pieces.len() == 1, "one request");
    }
    match request.typed::<Weather>().await {
        Err(TypedError::Truncated(reply)) => Cell::of(&reply)
            .must_end("partial", Reason::OutputLimit)
            .must(reply.pieces.len() == 1, "one request"),
        other => panic!("{wire}: a truncated object must be told as truncated: {other:?}"),
    }
}

/// A schema, cut by the limit, and continued to the end of the object.
async fn schema_continued(way: &Way, wire: &str, streamed: bool) -> Cell {
    let request = way.ask(wire, "How is the weather?", 16);
    let request = request.configure(|request| request.format = Some(weather()));
    let reply = answer(request, streamed).await;
    let value = serde_json::from_str::<Weather>(reply.text().unwrap_or_default());
    Cell::of(&reply)
        .must_end("complete", Reason::Complete)
        .must(reply.pieces.len() > 1, "cut by the limit, and continued")
        .must(value.is_ok(), &format!("{:?}", reply.text()))
}

const SCENARIOS: &[&str] = &[
    "natural end",
    "limit, continued",
    "stop sequence",
    "prompt beyond the context",
    "context filled",
    "schema cut",
    "schema continued",
];

async fn cell(way: &Way, scenario: &str, wire: &str, streamed: bool) -> Cell {
    match scenario {
        "natural end" => natural_end(way, wire, streamed).await,
        "limit, continued" => limit_continued(way, wire, streamed).await,
        "stop sequence" => stop_sequence(way, wire, streamed).await,
        "prompt beyond the context" => prompt_beyond_context(way, wire, streamed).await,
        "context filled" => context_filled(way, wire, streamed).await,
        "schema cut" => schema_cut(way, wire, streamed).await,
        "schema continued" => schema_continued(way, wire, streamed).await,
        other => panic!("unknown scenario: {other}"),
    }
}

#[tokio::test]
#[ignore = "needs the servers that `scripts/e2e --model` starts"]
async fn a_real_model_on_a_real_server() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let gateway = variable("ENDSTOP_MODEL_GATEWAY");
    let mut ways = [
        Way::new("client", &variable("ENDSTOP_MODEL_URL"), None),
        Way::new("gateway", &gateway, Some(variable("ENDSTOP_MODEL_ADMIN"))),
    ];
    let (mut table, mut cells, mut red) = (String::new(), 0, 0);
    // One scenario after the other: the server keeps the prompt that it has read.
    for scenario in SCENARIOS {
        for (wire, obeys) in WIRES {
            if *scenario == "schema continued" && !obeys {
                continue;
            }
            for streamed in [false, true] {
                for way in &mut ways {
                    let cell = cell(way, scenario, wire, streamed).await;
                    let names: Vec<&str> =
                        cell.reasons.iter().map(|reason| reason.name()).collect();
                    let found = way.new_reasons(names.len()).await;
                    let same = found.as_deref().is_none_or(|found| found == names);
                    let cell = cell.must(same, &format!("the gateway found {found:?}"));
                    let how = if streamed { "streamed" } else { "plain" };
                    let mark = if cell.wrong.is_empty() { "ok" } else { "RED" };
                    cells += 1;
                    red += usize::from(!cell.wrong.is_empty());
                    writeln!(
                        table,
                        "{scenario:26} {wire:19} {how:9} {:8} {:9} {} {mark} {}",
                        way.name,
                        cell.ended,
                        names.join(","),
                        cell.wrong
                    )
                    .unwrap();
                }
            }
        }
    }
    println!("{table}{cells} cells, {red} red");
    assert_eq!(red, 0, "red cells");
}
