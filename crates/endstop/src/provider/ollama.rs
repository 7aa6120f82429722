//! Ollama: its own wire and OpenAI's wires. Responses report `completed` at the token limit.

use super::{Auth, NO_QUIRKS, Profile, Provider, Quirks, Resume, ResumeRule, SdkUrl, TRAILING};
use crate::dialect::{ollama, openai_chat, openai_completions, openai_responses};

/// Ollama, local or in its cloud.
pub static OLLAMA: Provider = Provider {
    id: "ollama",
    aliases: &["ollama-cloud"],
    title: "Ollama",
    route: "ollama",
    hosts: &["ollama.com", "localhost:11434", "127.0.0.1:11434"],
    base_url: "http://127.0.0.1:11434",
    auth: Auth::Open,
    key_variables: &["OLLAMA_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::variable("OLLAMA_HOST", "", &["ollama"]),
        SdkUrl::argument("host", "", &["ollama (npm)"]),
    ],
    main: Profile {
        provider: "ollama",
        // Undocumented. The model's template must allow it.
        resume: &[ResumeRule::always(Resume::Prefill(TRAILING))],
        ..ollama::PROFILE
    },
    others: &[
        Profile { provider: "ollama", caps: openai_chat::OLD_CAP, ..openai_chat::PROFILE },
        Profile { provider: "ollama", ..openai_completions::PROFILE },
        Profile {
            provider: "ollama",
            // The status is always `completed` (ollama @fb30760 openai/responses.go).
            quirks: Quirks { lies_at_cap: true, ..NO_QUIRKS },
            ..openai_responses::PROFILE
        },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "ollama @fb30760; ollama 0.6.3",
};
