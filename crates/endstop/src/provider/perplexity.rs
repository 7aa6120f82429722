//! Perplexity: only a finish reason and no end marker; the whole message comes with each delta.

use super::{Auth, COMMON_CAPABILITIES, Capabilities, Profile, Provider, SdkUrl};
use crate::dialect::{Proof, openai_chat};
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};

/// Perplexity.
pub static PERPLEXITY: Provider = Provider {
    id: "perplexity",
    aliases: &["pplx"],
    title: "Perplexity",
    route: "perplexity",
    hosts: &["api.perplexity.ai"],
    base_url: "https://api.perplexity.ai",
    auth: Auth::Bearer,
    key_variables: &["PERPLEXITY_API_KEY", "PPLX_API_KEY"],
    key_prefixes: &["pplx-"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable(
        "PERPLEXITY_BASE_URL",
        "",
        &["perplexityai", "@perplexity-ai/perplexity_ai (npm)"],
    )],
    main: Profile {
        provider: "perplexity",
        // No `[DONE]` (recorded, maruel/genai, 64 of 64).
        proof: Proof::Word,
        error_patterns: ERROR_PATTERNS,
        // Usage is in every chunk. Perplexity searches, but does not call the caller's tools.
        capabilities: Capabilities { tools: false, ..COMMON_CAPABILITIES },
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "perplexity",
    source: "perplexityai 0.46.1; recorded, maruel/genai and crmne/ruby_llm",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[name("invalid_model", FaultKind::NotFound)];
