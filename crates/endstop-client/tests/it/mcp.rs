//! Tools of an MCP server.

use std::time::Duration;

use endstop_client::ToolRunEnd;
use endstop_client::mcp::mcp_tools;
use rmcp::ServiceExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

use crate::{builder, sim};

/// Answers requests. Calls with the note `silent` get no answer.
async fn serve(stream: DuplexStream, is_silent: bool) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let at = |path: &str| message.pointer(path).cloned().unwrap_or_default();
        let result = match at("/method").as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": at("/params/protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"},
            }),
            "tools/list" => json!({"tools": [{
                "name": "save",
                "description": "Saves a note.",
                "inputSchema": {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]},
                "annotations": {"idempotentHint": true},
            }]}),
            "tools/call" if !is_silent => {
                let text = format!("saved: {}", at("/params/arguments/note"));
                json!({"content": [{"type": "text", "text": text}]})
            }
            _ => continue,
        };
        let answer = json!({"jsonrpc": "2.0", "id": at("/id"), "result": result});
        write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_server_run_and_a_silent_one_times_out() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for (is_silent, timeout, end, says) in [
        (false, Duration::from_secs(60), ToolRunEnd::Done, "saved: "),
        (
            true,
            Duration::from_millis(200),
            ToolRunEnd::Failed,
            "the MCP tool did not answer within 200ms",
        ),
    ] {
        let (near, far) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(serve(far, is_silent));
        let service = ().serve(near).await.unwrap();
        let tools = mcp_tools(service.peer(), timeout).await.unwrap();
        assert_eq!(tools.len(), 1);
        assert!(tools[0].is_idempotent());
        let run = client.agent("openai/tool-call").tools(tools).run("Save a note.").unwrap();
        let report = run.report().await.unwrap();
        assert_eq!(report.tool_runs[0].end, end);
        let told = format!("{:?}", report.conversation);
        assert!(told.contains(says), "{told}");
        assert!(report.response.text().is_some(), "the model gets the result or the failure");
        drop(service);
        server.abort();
    }
}
