//! Groq: usage in `x_groq`; failed tool calls as errors, with the model's text in
//! `failed_generation`; limits per minute as HTTP 413.

use super::{Auth, COMMON_CAPABILITIES, Profile, Provider, SdkUrl};
use crate::dialect::openai_chat;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};

/// Groq.
pub static GROQ: Provider = Provider {
    id: "groq",
    aliases: &[],
    title: "Groq",
    route: "groq",
    hosts: &["api.groq.com"],
    base_url: "https://api.groq.com/openai/v1",
    auth: Auth::Bearer,
    key_variables: &["GROQ_API_KEY"],
    key_prefixes: &["gsk_"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::variable("GROQ_BASE_URL", "", &["groq", "groq-sdk (npm)"]),
        SdkUrl::variable("GROQ_API_BASE", "/openai/v1", &["litellm"]),
    ],
    main: Profile {
        provider: "groq",
        error_patterns: ERROR_PATTERNS,
        // Usage is always in `x_groq.usage`.
        capabilities: COMMON_CAPABILITIES,
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "groq",
    source: "groq 1.7.0; recorded, pydantic/pydantic-ai and maruel/genai",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[
    // HTTP 413: tokens per minute, not the context window (continuedev/continue#10218).
    name("tokens", FaultKind::RateLimit),
];
