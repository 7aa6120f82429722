//! Every wire, plain and streamed, in every way in which a response ends.

use std::fmt::Write as _;
use std::time::Duration;

use endstop::chat::Tool;
use endstop_client::{ChatResponse, Client, Ended, RunEvent, Timeouts};
use serde_json::json;

use crate::{WIRES, builder, sim};

/// A scenario of the simulator, and the word for how the turn must end.
///
/// `*` stands for "or whatever the wire can say": wires that cannot say it are listed in `CANNOT`.
const ROWS: &[(&str, &str)] = &[
    ("complete", "complete"),
    ("stop-sequence", "complete"),
    ("tool-call", "tool calls"),
    ("tool-call-no-args", "tool calls"),
    ("length", "partial"),
    ("context-limit", "partial"),
    ("refusal", "refused"),
    ("content-filter", "refused"),
    ("length-half-args", "partial"),
    ("invalid-args", "partial"),
    ("cut-before-word", "partial"),
    ("cut-in-tool-call", "partial"),
    ("cut-after-call", "partial"),
    ("unknown-word", "complete"),
    ("unknown-word-tool-call", "partial"),
    ("error-early", "failed"),
    ("error-late", "failed"),
    ("reset", "partial"),
    ("stall", "partial"),
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
    let timeouts = Timeouts {
        first_byte: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        ..Timeouts::default()
    };
    let client = builder(&sim).timeouts(timeouts).build().unwrap();
    let mut table = String::new();
    for (scenario, _) in ROWS {
        for wire in WIRES {
            for streamed in [false, true] {
                let reply = ask(&client, wire, scenario, streamed).await;
                let how = if streamed { "streamed" } else { "plain" };
                writeln!(
                    table,
                    "{scenario:24} {wire:30} {how:9} {:11} {:20} {:?}",
                    word(&reply),
                    reply.ending.reason.name(),
                    reply.outcome.terminated
                )
                .unwrap();
            }
        }
    }
    println!("{table}");
}
