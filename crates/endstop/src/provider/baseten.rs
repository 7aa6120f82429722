//! Baseten: content may follow the finish reason; errors may or may not be wrapped in `error`.

use super::vllm::WORDS;
use super::{Auth, Capabilities, Profile, Provider};
use crate::dialect::openai_chat;

/// Baseten.
pub static BASETEN: Provider = Provider {
    id: "baseten",
    aliases: &[],
    title: "Baseten",
    route: "baseten",
    hosts: &["inference.baseten.co", "*.api.baseten.co"],
    base_url: "https://inference.baseten.co/v1",
    auth: Auth::Bearer,
    key_variables: &["BASETEN_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "baseten",
        // Baseten runs vLLM.
        words: WORDS,
        // Usage is in every chunk (recorded, maruel/genai, 35 of 35).
        capabilities: Capabilities { usage_in_streams: true, ..openai_chat::PROFILE.capabilities },
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "recorded, maruel/genai; vllm @a014e35",
};
