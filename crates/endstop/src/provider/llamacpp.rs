//! llama.cpp: no marker behind an error, and Responses that say `completed` at the cap.

use super::{Auth, NO_QUIRKS, Profile, Provider, Quirks, Resume, TRAILING, always};
use crate::dialect::{llamacpp, openai_chat, openai_completions, openai_responses};
use crate::fault::{ErrorPattern, FaultKind, name};

/// llama.cpp's server, and llamafile.
pub static LLAMACPP: Provider = Provider {
    id: "llamacpp",
    aliases: &["llama.cpp", "llama-cpp", "llamafile"],
    title: "llama.cpp",
    route: "llamacpp",
    // Port 8080 is everybody's.
    hosts: &[],
    base_url: "http://127.0.0.1:8080/v1",
    auth: Auth::Open,
    key_variables: &["LLAMA_API_KEY"],
    url_variables: &[],
    main: Profile {
        provider: "llamacpp",
        error_patterns: SIGNS,
        // The server's default; `--no-prefill-assistant` turns it off.
        resume: &[always(Resume::Prefill(TRAILING))],
        ..openai_chat::PROFILE
    },
    others: &[
        Profile { provider: "llamacpp", error_patterns: SIGNS, ..openai_completions::PROFILE },
        Profile { provider: "llamacpp", error_patterns: SIGNS, ..llamacpp::PROFILE },
        Profile {
            provider: "llamacpp",
            error_patterns: SIGNS,
            // The status is a constant in its code.
            quirks: Quirks { lies_at_cap: true, ..NO_QUIRKS },
            ..openai_responses::PROFILE
        },
    ],
    source: "llama.cpp @b21e4de tools/server; recorded, maruel/genai",
};

static SIGNS: &[ErrorPattern] = &[
    name("exceed_context_size_error", FaultKind::ContextWindow),
    // While generating, as HTTP 500 or inside the stream.
    // The model is still being loaded.
    name("unavailable_error", FaultKind::Overloaded),
];
