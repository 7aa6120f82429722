//! Shows an answer as it arrives: `cargo run -p endstop-client --example stream -- openai/gpt-5`.

use std::io::Write as _;

use endstop_client::{Client, RunEvent};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), endstop_client::Error> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "openai/complete".to_owned());
    let client = Client::from_env();
    let mut stream = client.stream(&model, "Tell a story.")?;
    while let Some(event) = stream.next().await {
        if let RunEvent::Text(text) = &event {
            print!("{text}");
            let _ = std::io::stdout().flush();
        } else if let RunEvent::Ended(reply) = &event {
            println!("\n({}, {} pieces)", reply.ending.sentence, reply.pieces.len());
        }
    }
    Ok(())
}
