//! Memory of long agent runs: it grows with the conversation, and with nothing else.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::alloc::System;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use endstop_client::{Client, Limits, SharedTool, Tool, ToolFuture};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// A tool that notes how much memory is in use when it runs.
struct Measure(Arc<AtomicUsize>);

impl Tool for Measure {
    fn definition(&self) -> endstop::chat::Tool {
        endstop::chat::Tool {
            name: "save".to_owned(),
            description: "Saves a note.".to_owned(),
            schema: json!({"type": "object", "properties": {"note": {"type": "string"}}}),
        }
    }

    fn run<'a>(
        &'a self,
        _: &'a endstop::tool_call::Call<endstop::tool_call::Whole>,
    ) -> ToolFuture<'a> {
        Box::pin(async {
            self.0.fetch_max(live(), Ordering::Relaxed);
            Ok("saved".to_owned())
        })
    }
}

/// Answers every request with a tool call, or with text if it forbids tools. Keeps nothing of a request.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            std::thread::spawn(move || answer(socket.unwrap()));
        }
    });
    format!("http://{address}")
}

fn answer(mut socket: TcpStream) {
    let event = |data: &str| format!("data: {data}\n\n");
    let call = event(
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"save","arguments":"{\"note\":\"alpha beta gamma delta\"}"}}]},"finish_reason":null}]}"#,
    ) + &event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#)
        + &event("[DONE]");
    let text =
        event(r#"{"choices":[{"index":0,"delta":{"content":"Done."},"finish_reason":null}]}"#)
            + &event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#)
            + &event("[DONE]");
    let response = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let (call, text) = (response(&call), response(&text));
    let mut buffer = vec![0; 4 << 20];
    loop {
        let mut length = 0;
        loop {
            let Ok(read @ 1..) = socket.read(buffer.get_mut(length..).unwrap()) else { return };
            length += read;
            if whole(buffer.get(..length).unwrap()) {
                break;
            }
        }
        let request = String::from_utf8_lossy(buffer.get(..length).unwrap());
        let forbids = request.contains(r#""tool_choice":"none""#);
        let response = if forbids { &text } else { &call };
        socket.write_all(response.as_bytes()).unwrap();
    }
}

/// Reports whether the request is complete.
fn whole(request: &[u8]) -> bool {
    let Some(head) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return false;
    };
    let text = String::from_utf8_lossy(request.get(..head).unwrap()).to_lowercase();
    let length = text.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
    request.len() == head + 4 + length.parse::<usize>().unwrap()
}

/// Returns the most memory that a run of this many turns used while a tool ran, and the tools that ran.
async fn most(client: &Client, turns: u32) -> (usize, usize) {
    let before = live();
    let most = Arc::new(AtomicUsize::new(0));
    let limits = Limits { turns, same_calls: u32::MAX, ..Limits::default() };
    let tools: Vec<SharedTool> = vec![Arc::new(Measure(Arc::clone(&most)))];
    let run = client.agent("openai/m").tools(tools).limits(limits).run("Save notes.").unwrap();
    let report = run.report().await.unwrap();
    assert!(report.response.text().is_some(), "{:?}", report.response.outcome);
    (most.load(Ordering::Relaxed).saturating_sub(before), report.tool_runs.len())
}

#[tokio::test]
async fn memory_grows_linearly_with_the_turns() {
    let mut policy = endstop_turn::policy::Policy::default();
    policy.agent.turn_max_iterations = 2_000;
    policy.agent.turn_max_total_tokens = u64::MAX;
    let client = Client::builder().gateway(serve()).policy(policy).build().unwrap();
    most(&client, 3).await;
    let mut sizes = Vec::new();
    for turns in [10, 100, 1_000] {
        let (bytes, runs) = most(&client, turns).await;
        assert_eq!(runs, turns as usize - 1, "the last turn is the answer");
        sizes.push(bytes as f64);
        println!("{turns} turns: {bytes} bytes");
    }
    let early = (sizes[1] - sizes[0]) / 90.0;
    let late = (sizes[2] - sizes[1]) / 900.0;
    println!("{early:.0} bytes per turn up to 100 turns, {late:.0} up to 1,000");
    // Lists double, so that they are up to twice as long as needed.
    assert!(late < early * 2.0 && late < 8_192.0, "{early} and {late} bytes per turn");
}
