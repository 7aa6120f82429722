//! Runs an agent with two tools: `cargo run -p endstop-client --example agent -- openai/gpt-5`.
//!
//! Without a key: start `endstop sim`, and set `ENDSTOP_BASE_URL=http://127.0.0.1:4190`.

use endstop_client::{Client, Limits, RunEvent, tool, tools, usd};
use endstop_turn::policy::{Policy, Price};

/// Reads a file.
#[tool(idempotent)]
async fn read_file(
    /// Path of the file.
    path: String,
) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

/// Returns the names of the files in a folder.
#[tool(idempotent)]
async fn list_files(
    /// Path of the folder.
    folder: String,
) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), endstop_client::Error> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "openai/tool-call".to_owned());
    let client = Client::from_env();
    let limits = Limits { turns: 10, cost: usd(0.50), ..Limits::default() };
    // If the cost is limited, the price of the model must be known. The simulated one costs nothing.
    let mut policy = Policy::default();
    policy.prices.insert("openai/tool-call".to_owned(), Price::default());
    let agent = client.agent(&model).tools(tools![list_files, read_file]);
    let mut run = agent.limits(limits).policy(policy).run("What is in this folder?")?;
    while let Some(event) = run.next().await {
        if let RunEvent::Text(text) = &event {
            print!("{text}");
        } else if let RunEvent::ToolFinished { name, is_error, .. } = &event {
            println!("[{name}{}]", if *is_error { " failed" } else { "" });
        } else if let RunEvent::Report(report) = &event {
            println!(
                "\n({}, {} tool calls)",
                report.response.ending.sentence,
                report.tool_runs.len()
            );
        }
    }
    Ok(())
}
