//! Asks for a value of a Rust type: `cargo run -p endstop-client --example typed -- openai/gpt-5`.

use endstop_client::{Client, TypedError};
use schemars::JsonSchema;
use serde::Deserialize;

/// A plan.
#[derive(Debug, Deserialize, JsonSchema)]
struct Plan {
    /// A few words.
    title: String,
    /// One sentence each.
    steps: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), TypedError> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "openai/gpt-5".to_owned());
    let client = Client::from_env();
    match client.request(&model).user("Plan a picnic.").typed::<Plan>().await {
        Ok(Plan { title, steps }) => println!("{title}: {}", steps.join(" ")),
        Err(TypedError::Truncated(reply)) => {
            println!("truncated after {} pieces", reply.pieces.len());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
