//! The client against simulated providers, over every wire.

#![expect(clippy::wildcard_enum_match_arm, reason = "tests follow some events of many")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::string_slice,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod agents;
mod continuing;
mod endings;
mod examples;
mod kills;
mod loops;
#[cfg(feature = "mcp")]
mod mcp;
mod mended;
mod requests;
mod typed;

use endstop_client::{Client, ClientBuilder};
use endstop_sim::{Options, Sim};
use endstop_turn::policy::Policy;

/// Models of the wires whose requests are written, as `provider:wire`.
pub(crate) const WIRES: &[&str] = &[
    "openai:openai-chat",
    "openai:openai-responses",
    "anthropic:anthropic-messages",
    "gemini:gemini-generate",
    "bedrock:bedrock-converse",
    "mistral:openai-chat",
    "cohere:cohere-v2",
    "ollama:ollama-chat",
];

/// Starts simulated providers.
pub(crate) async fn sim() -> Sim {
    Sim::start(Options::default()).await.expect("a free port")
}

/// Returns the settings of a client of these providers, with short waits.
pub(crate) fn builder(sim: &Sim) -> ClientBuilder {
    builder_at(&sim.url())
}

/// Returns the same for providers at this URL.
pub(crate) fn builder_at(url: &str) -> ClientBuilder {
    WIRES
        .iter()
        .map(|wire| wire.split_once(':').map_or(*wire, |(provider, _)| provider))
        .fold(Client::builder(), |builder, provider| builder.key(provider, "canary-key"))
        .gateway(url)
        .policy(quick())
}

/// Returns a policy that does not wait long between retries.
pub(crate) fn quick() -> Policy {
    let mut policy = Policy::default();
    policy.agent.retry_backoff_ms = 1;
    policy.agent.retry_backoff_max_ms = 5;
    policy
}
