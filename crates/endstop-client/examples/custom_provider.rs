//! Adds a provider that is not built in, with a finish reason of its own.
//!
//! Start `endstop sim` first. `ENDSTOP_BASE_URL` names it, if it is not on its usual port.

use endstop::Reason;
use endstop::provider::OPENAI;
use endstop::registry::{Entry, Like, Registry};
use endstop_client::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), endstop_client::Error> {
    let mut acme =
        Entry::new("acme", Like::Wire(&OPENAI.main)).word("out_of_ink", Reason::OutputLimit);
    let sim = std::env::var("ENDSTOP_BASE_URL").unwrap_or("http://127.0.0.1:4190".to_owned());
    acme.base_url = Some(format!("{sim}/openai/v1"));
    let mut registry = Registry::default();
    registry.register(acme);
    let client = Client::builder().registry(registry).build()?;
    // `endstop sim` takes the finish reason from the name of the model.
    let reply = client.chat("acme/word=out_of_ink", "Hi").await?;
    println!("{}", reply.ending.sentence);
    Ok(())
}
