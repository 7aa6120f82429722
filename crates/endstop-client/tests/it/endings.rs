//! Every wire, plain and streamed, in every way in which a response ends.

use std::fmt::Write as _;
use std::time::Duration;

use endstop::chat::Tool;
use endstop::tool_call::Call;
use endstop_client::{ChatResponse, Client, Ended, RunEvent, Timeouts};
use serde_json::json;

use crate::{WIRES, builder, sim};

/// How a cell must end: the ending of the turn, the reason of its last response, what the policy did, the text.
#[derive(Clone, Copy)]
struct Want(&'static str, &'static str, &'static str, Text);

/// Text of an answer, or of the part that came.
#[derive(Clone, Copy, Debug)]
enum Text {
    /// The answer of the simulator.
    Whole,
    /// So many characters of it.
    First(usize),
    /// So many characters of it, and what a continuation added.
    Begins(usize),
    /// This text, or the arguments of a call.
    Is(&'static str),
}

use Text::{Begins, First, Is, Whole};

const NOTHING: Text = Is("");
const NOTE: Text = Is(r#"{"note":"alpha beta gamma delta"}"#);
const SORRY: Text = Is("I am sorry, but I cannot help with that.");
const MALFORMED: Want = Want("partial", "malformed_tool_call", "tool_call_unfinished", NOTHING);
const UNFINISHED: Want = Want("partial", "output_limit", "tool_call_unfinished", NOTHING);
const LOST: Want = Want("failed", "cut", "retry_limit", NOTHING);
const BROKEN: Want = Want("failed", "failed", "retry_limit", NOTHING);
const LATE: Want = Want("failed", "timed_out", "retry_limit", NOTHING);
/// The wire has no such ending. The simulator says so with status 400, and the cell does not count.
const NONE: Want = Want("failed", "failed", "request_refused", NOTHING);

/// Returns the reason why some wires have no such ending.
fn why_none(scenario: &str) -> &'static str {
    match scenario {
        "story-pause=90" => "only some providers pause a turn",
        "content-filter" => "no finish reason for a filter",
        "length-half-args" | "invalid-args" => "arguments are sent whole, as an object",
        "malformed-call" => "no finish reason for a malformed call; see invalid-args",
        other => panic!("{other} has no reason"),
    }
}

/// Scenarios of the simulator, and how they must end, plain and streamed.
const ROWS: &[(&str, Want, Want)] = &[
    same("complete", Want("complete", "complete", "completed", Whole)),
    same("stop-sequence", Want("complete", "complete", "completed", First(94))),
    same("tool-call", Want("tool calls", "tool_call", "tool_calls_left", NOTE)),
    same("tool-call-no-args", Want("tool calls", "tool_call", "tool_calls_left", Is("{}"))),
    same("length", Want("partial", "output_limit", "retry_limit", First(983))),
    // Most wires have one word for both limits. The answer is continued until it makes no progress.
    same("context-limit", Want("partial", "output_limit", "no_progress", Begins(143))),
    same("context-error", Want("failed", "context_limit", "context_limit", NOTHING)),
    same("refusal", Want("refused", "refused", "safety_blocked", SORRY)),
    same("content-filter", Want("refused", "filtered", "safety_blocked", First(39))),
    same("story-pause=90", NONE),
    same("length-half-args", UNFINISHED),
    same("length-whole-args", UNFINISHED),
    same("invalid-args", MALFORMED),
    same("malformed-call", NONE),
    ("cut-before-word", LOST, Want("partial", "cut", "retry_limit", Begins(60))),
    same("cut-in-tool-call", LOST),
    same("cut-after-call", LOST),
    same("unknown-word", Want("partial", "unknown", "unknown_ending", First(39))),
    same("unknown-word-tool-call", Want("failed", "unknown", "unknown_ending", NOTHING)),
    same("error-early", BROKEN),
    ("error-late", BROKEN, Want("partial", "failed", "retry_limit", Begins(60))),
    same("status=500", BROKEN),
    ("reset", LOST, Want("partial", "cut", "retry_limit", Begins(60))),
    ("stall", LATE, Want("partial", "timed_out", "retry_limit", Begins(60))),
    same("no-headers", LATE),
];

const fn same(scenario: &'static str, want: Want) -> (&'static str, Want, Want) {
    (scenario, want, want)
}

/// Cells that end otherwise: scenario, `plain`, `streamed` or both, provider, how.
const OTHERWISE: &[(&str, &str, &str, Want)] = &[
    // These wires have a word for it.
    ("stop-sequence", "", "anthropic", Want("complete", "stop_sequence", "completed", First(94))),
    ("stop-sequence", "", "bedrock", Want("complete", "stop_sequence", "completed", First(94))),
    ("stop-sequence", "", "cohere", Want("complete", "stop_sequence", "completed", First(94))),
    ("context-limit", "", "anthropic", CONTEXT),
    ("context-limit", "", "bedrock", CONTEXT),
    ("context-limit", "", "mistral", CONTEXT),
    ("story-pause=90", "", "anthropic", STORY),
    ("story-pause=90", "", "gemini", STORY),
    // The text of a refusal has its own field.
    ("refusal", "", "openai", Want("refused", "refused", "safety_blocked", NOTHING)),
    ("refusal", "", "gemini", Want("refused", "safety", "safety_blocked", SORRY)),
    ("refusal", "", "bedrock", Want("refused", "filtered", "safety_blocked", SORRY)),
    // These wires have no word for a refusal: the model's text is the answer.
    ("refusal", "", "mistral", Want("complete", "complete", "completed", SORRY)),
    ("refusal", "", "cohere", Want("complete", "complete", "completed", SORRY)),
    ("refusal", "", "ollama", Want("complete", "complete", "completed", SORRY)),
    ("content-filter", "", "anthropic", Want("refused", "refused", "safety_blocked", First(39))),
    ("content-filter", "", "cohere", NONE),
    ("content-filter", "", "ollama", NONE),
    ("length-half-args", "", "gemini", NONE),
    ("length-half-args", "", "ollama", NONE),
    ("invalid-args", "", "gemini", NONE),
    ("invalid-args", "", "ollama", NONE),
    ("malformed-call", "", "gemini", MALFORMED),
    ("malformed-call", "", "bedrock", MALFORMED),
    // Plain, the arguments are an object of the body: they cannot be invalid JSON.
    (
        "invalid-args",
        "plain",
        "anthropic",
        Want("tool calls", "tool_call", "tool_calls_left", Is("{}")),
    ),
    (
        "invalid-args",
        "plain",
        "bedrock",
        Want("tool calls", "tool_call", "tool_calls_left", Is("{}")),
    ),
    // A body that is not a response of the wire, with status 200.
    ("error-early", "plain", "bedrock", STRANGE),
    ("error-early", "plain", "cohere", STRANGE),
    ("error-late", "plain", "bedrock", STRANGE),
    ("error-late", "plain", "cohere", STRANGE),
];

const CONTEXT: Want = Want("partial", "context_limit", "context_limit", First(143));
const STORY: Want = Want("complete", "complete", "completed", Is("story"));
const STRANGE: Want = Want("failed", "unknown", "unknown_ending", NOTHING);

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
    let whole = endstop_sim_text(&usual).await;
    assert!(whole.starts_with("An endstop is a small switch") && whole.chars().count() == 1004);
    let story = endstop_sim::Story::parse("90").text();
    let (mut table, mut red, mut counted, mut none) = (String::new(), 0, 0, 0);
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
                let mut known =
                    OTHERWISE.iter().filter(|row| row.0 == *scenario && row.2 == provider);
                let other = known.find(|row| row.1.is_empty() || row.1 == how);
                let Want(ended, reason, end, text) = *other.map_or(want, |row| &row.3);
                let got =
                    (word(&reply), reply.ending.reason.name(), reply.outcome.terminated.name());
                let came = came(&reply);
                let first = |count: usize| whole.chars().take(count).collect::<String>();
                let is_text = match text {
                    Whole => came == whole,
                    First(count) => came == first(count),
                    Begins(count) => came.starts_with(&first(count)),
                    Is("story") => came == story,
                    Is(text) => came == text,
                };
                let is_red = got != (ended, reason, end) || !is_text;
                red += usize::from(is_red);
                let is_none = end == NONE.2;
                counted += usize::from(!is_none);
                none += usize::from(is_none);
                let mark = match (is_red, is_none) {
                    (true, _) => format!("RED {came:?}"),
                    (false, true) => format!("n/a: {}", why_none(scenario)),
                    (false, false) => String::new(),
                };
                let (ended, reason, end) = got;
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
    println!("{table}\n{counted} cells, {red} red; {none} that the wires do not have");
    assert_eq!(red, 0, "red cells");
}

/// Returns the text that came, or the arguments of the calls.
fn came(reply: &ChatResponse) -> String {
    match reply.ended() {
        Ended::Complete(answer) => answer.text().to_owned(),
        Ended::Partial(part) => part.text_so_far().to_owned(),
        Ended::Refused(why) | Ended::Failed(why) => why.text_so_far().to_owned(),
        Ended::ToolCalls(calls) => calls.iter().map(Call::arguments).collect(),
    }
}

/// Returns the answer of the simulator.
async fn endstop_sim_text(client: &Client) -> String {
    let reply = client.chat("openai/complete", "Hi").await.unwrap();
    reply.text().unwrap().to_owned()
}

#[test]
fn the_table_has_every_wire_that_is_written() {
    let wires = endstop::provider::ALL.iter().flat_map(|provider| provider.wires());
    for wire in wires.filter(|wire| wire.request_shape.writer.is_some()) {
        let id = wire.dialect.id;
        assert!(WIRES.iter().any(|known| known.ends_with(&format!(":{id}"))), "{id} is missing");
    }
}
