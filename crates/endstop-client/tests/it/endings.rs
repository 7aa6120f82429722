//! Every wire, plain and streamed, in every way in which a response ends.

use std::fmt::Write as _;
use std::time::Duration;

use endstop::chat::Tool;
use endstop_client::{ChatResponse, Client, Ended, RunEvent, Timeouts};
use serde_json::json;

use crate::{WIRES, builder, sim};

/// Scenarios of the simulator, and how the turn must end: plain, streamed.
const ROWS: &[(&str, &str, &str)] = &[
    ("complete", "complete", "complete"),
    ("stop-sequence", "complete", "complete"),
    ("tool-call", "tool calls", "tool calls"),
    ("tool-call-no-args", "tool calls", "tool calls"),
    ("length", "partial", "partial"),
    ("context-limit", "partial", "partial"),
    ("context-error", "failed", "failed"),
    ("refusal", "refused", "refused"),
    ("content-filter", "refused", "refused"),
    ("length-half-args", "partial", "partial"),
    ("length-whole-args", "partial", "partial"),
    ("invalid-args", "partial", "partial"),
    ("cut-before-word", "failed", "partial"),
    ("cut-in-tool-call", "failed", "failed"),
    ("cut-after-call", "failed", "failed"),
    ("unknown-word", "partial", "partial"),
    ("unknown-word-tool-call", "failed", "failed"),
    ("error-early", "failed", "failed"),
    ("error-late", "failed", "partial"),
    ("status=500", "failed", "failed"),
    ("reset", "failed", "partial"),
    ("stall", "failed", "partial"),
    ("no-headers", "failed", "failed"),
];

/// Cells that end otherwise, because the wire cannot say it: scenario, provider, ending.
const OTHERWISE: &[(&str, &str, &str)] = &[
    // These wires have no word for a refusal: the model's text is the answer.
    ("refusal", "mistral", "complete"),
    ("refusal", "cohere", "complete"),
    ("refusal", "ollama", "complete"),
    // The simulator has no such scenario on these wires, and says so with status 400.
    ("content-filter", "cohere", "failed"),
    ("content-filter", "ollama", "failed"),
    ("length-half-args", "gemini", "failed"),
    ("length-half-args", "ollama", "failed"),
    ("invalid-args", "gemini", "failed"),
    ("invalid-args", "ollama", "failed"),
    // Plain, the arguments are an object of the body: they cannot be invalid JSON.
    ("invalid-args plain", "anthropic", "tool calls"),
    ("invalid-args plain", "bedrock", "tool calls"),
];

fn word(reply: &ChatResponse) -> &'static str {
    match reply.ended() {
        Ended::Complete(_) => "complete",
        Ended::ToolCalls(_) => "tool calls",
        Ended::Partial(_) => "partial",
        Ended::Refused(_) => "refused",
        Ended::Failed(_) => "failed",
    }
}

async fn ask(client: &Client, wire: &str, scenario: &str, streamed: bool) -> ChatResponse {
    let tool = Tool {
        name: "save".to_owned(),
        description: "Saves a note.".to_owned(),
        schema: json!({"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}),
    };
    let request = client.request(&format!("{wire}/{scenario}")).user("Hi").tools([tool]);
    if !streamed {
        return request.send().await.unwrap();
    }
    let mut stream = request.stream().unwrap();
    let mut text = String::new();
    let mut ended = None;
    while let Some(event) = stream.next().await {
        assert!(ended.is_none(), "an event after the end");
        match event {
            RunEvent::Text(more) => text.push_str(&more),
            RunEvent::Ended(reply) => ended = Some(*reply),
            _ => {}
        }
    }
    let reply = ended.expect("an end");
    if let Some(whole) = reply.text() {
        assert_eq!(whole, text, "{wire} {scenario}: what was streamed is the answer");
    }
    reply
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wire_and_every_ending() {
    let sim = sim().await;
    // Only responses that never come wait for a timeout. It is long enough for a busy machine to send
    // what comes before the silence.
    let short = Duration::from_secs(1);
    let usual = builder(&sim).build().unwrap();
    let idle = Timeouts { idle: short, ..Timeouts::default() };
    let idle = builder(&sim).timeouts(idle).build().unwrap();
    let first_byte = Timeouts { first_byte: short, ..Timeouts::default() };
    let first_byte = builder(&sim).timeouts(first_byte).build().unwrap();
    let (mut table, mut red) = (String::new(), 0);
    for (scenario, plain, streamed) in ROWS {
        let client = match *scenario {
            "stall" => &idle,
            "no-headers" => &first_byte,
            _ => &usual,
        };
        // All cells of a row wait at the same time.
        let cells = WIRES.iter().flat_map(|wire| [(wire, false), (wire, true)]);
        let replies = cells.map(|(wire, streamed)| ask(client, wire, scenario, streamed));
        let mut replies = futures_util::future::join_all(replies).await.into_iter();
        for wire in WIRES {
            for (how, want) in [("plain", plain), ("streamed", streamed)] {
                let reply = replies.next().unwrap();
                let provider = wire.split(':').next().unwrap();
                let cell = format!("{scenario} {how}");
                let mut known = OTHERWISE.iter().filter(|row| row.1 == provider);
                let other = known.find(|row| row.0 == *scenario || row.0 == cell);
                let want = other.map_or(*want, |row| row.2);
                let is_red = word(&reply) != want;
                red += usize::from(is_red);
                let mark = if is_red { "RED" } else { "" };
                let (reason, end) = (reply.ending.reason.name(), reply.outcome.terminated.name());
                let ended = word(&reply);
                writeln!(
                    table,
                    "{scenario:24} {wire:30} {how:9} {ended:11} {reason:20} {end:22} {mark}"
                )
                .unwrap();
                // Nothing that is not proven can be taken for an answer or run.
                assert_eq!(reply.text().is_some(), ended == "complete");
                assert_eq!(
                    !reply.tool_calls().is_empty(),
                    ended == "tool calls",
                    "{scenario} {wire}"
                );
            }
        }
    }
    println!("{table}");
    assert_eq!(red, 0, "red cells");
}
