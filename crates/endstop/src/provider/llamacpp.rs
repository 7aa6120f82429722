//! llama.cpp: no end marker after an error; Responses report `completed` at the token limit, and Messages
//! `end_turn` at a stop sequence.

use super::{
    Auth, Echo, NO_QUIRKS, Prefill, Profile, Provider, Quirks, Resume, ResumeRule, TRAILING,
};
use crate::dialect::{anthropic, llamacpp, openai_chat, openai_completions, openai_responses};
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};

/// The llama.cpp server, and llamafile.
pub static LLAMACPP: Provider = Provider {
    id: "llamacpp",
    aliases: &["llama.cpp", "llama-cpp", "llamafile"],
    title: "llama.cpp",
    route: "llamacpp",
    // Many other servers use port 8080.
    hosts: &[],
    base_url: "http://127.0.0.1:8080/v1",
    auth: Auth::Open,
    key_variables: &["LLAMA_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "llamacpp",
        error_patterns: ERROR_PATTERNS,
        resume: RESUME,
        ..openai_chat::PROFILE
    },
    others: &[
        Profile {
            provider: "llamacpp",
            error_patterns: ERROR_PATTERNS,
            ..openai_completions::PROFILE
        },
        Profile { provider: "llamacpp", error_patterns: ERROR_PATTERNS, ..llamacpp::PROFILE },
        Profile {
            provider: "llamacpp",
            error_patterns: ERROR_PATTERNS,
            // The status is hard-coded.
            quirks: Quirks { lies_at_cap: true, ..NO_QUIRKS },
            // It stores nothing.
            resume: RESUME,
            ..openai_responses::PROFILE
        },
        Profile {
            provider: "llamacpp",
            error_patterns: ERROR_PATTERNS,
            resume: RESUME,
            ..anthropic::PROFILE
        },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "llama.cpp @b21e4de tools/server; recorded, maruel/genai; xllamacpp 2026.10.11549, run",
};

/// The server's default; `--no-prefill-assistant` turns it off.
static RESUME: &[ResumeRule] =
    &[ResumeRule::always(Resume::Prefill(Prefill { echoes: Echo::Plain, ..TRAILING }))];

static ERROR_PATTERNS: &[ErrorPattern] = &[
    // The model is still being loaded.
    name("unavailable_error", FaultKind::Overloaded),
];
