//! Asks one question: `cargo run -p endstop-client --example ask -- openai/gpt-5 "Why?"`.
//!
//! Without a key: start `endstop sim`, and set `ENDSTOP_BASE_URL=http://127.0.0.1:4190`.

use endstop_client::{Client, Ended};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), endstop_client::Error> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().unwrap_or_else(|| "openai/complete".to_owned());
    let prompt = arguments.next().unwrap_or_else(|| "What is an endstop?".to_owned());
    let client = Client::from_env();
    let reply = client.chat(&model, prompt).await?;
    match reply.ended() {
        Ended::Complete(answer) => println!("{}", answer.text()),
        Ended::ToolCalls(calls) => println!("{} tool calls", calls.len()),
        Ended::Partial(part) => println!("{} … ({})", part.text_so_far(), part.notice()),
        Ended::Refused(why) | Ended::Failed(why) => println!("no answer: {why}"),
    }
    Ok(())
}
