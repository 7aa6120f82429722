//! OpenRouter: every model behind OpenAI's wires, with the upstream's finish reason beside the
//! normalised one.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{Words, openai_chat, openai_completions, openai_responses};
use crate::fault::pattern::{class, message, name};
use crate::fault::{ErrorPattern, FaultKind};

/// OpenRouter.
pub static OPENROUTER: Provider = Provider {
    id: "openrouter",
    aliases: &[],
    title: "OpenRouter",
    route: "openrouter",
    hosts: &["openrouter.ai"],
    base_url: "https://openrouter.ai/api/v1",
    auth: Auth::Bearer,
    key_variables: &["OPENROUTER_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &["gen-"],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::variable("OPENROUTER_BASE_URL", "/api/v1", &["@openrouter/sdk (npm)"]),
        SdkUrl::argument("server_url", "/api/v1", &["openrouter"]),
        SdkUrl::variable("OPENROUTER_API_BASE", "/api/v1", &["litellm"]),
    ],
    main: Profile {
        provider: "openrouter",
        words: WORDS,
        error_patterns: ERROR_PATTERNS,
        ..openai_chat::PROFILE
    },
    others: &[
        Profile {
            provider: "openrouter",
            error_patterns: ERROR_PATTERNS,
            ..openai_responses::PROFILE
        },
        Profile {
            provider: "openrouter",
            error_patterns: ERROR_PATTERNS,
            ..openai_completions::PROFILE
        },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "OpenRouterTeam/docs @c26125a; openrouter 1.3.84",
};

static WORDS: &[Words] = &[openai_chat::NATIVE_WORDS];

static ERROR_PATTERNS: &[ErrorPattern] = &[
    message("was flagged", FaultKind::Filter),
    message("requires moderation", FaultKind::Filter),
    name("max_tokens_exceeded", FaultKind::OutputLimit),
    name("token_limit_exceeded", FaultKind::OutputLimit),
    message("token limit reached", FaultKind::OutputLimit),
    name("content_policy_violation", FaultKind::Filter),
    name("refusal", FaultKind::Filter),
    name("authentication", FaultKind::Auth),
    name("permission_denied", FaultKind::Auth),
    name("payment_required", FaultKind::Quota),
    name("provider_overloaded", FaultKind::Overloaded),
    name("provider_unavailable", FaultKind::Overloaded),
    name("not_found", FaultKind::NotFound),
    name("timeout", FaultKind::Timeout),
    name("server", FaultKind::Server),
    class("invalid_request", FaultKind::InvalidRequest),
];
