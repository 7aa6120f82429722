//! xAI: chat and Responses. Output tokens do not include reasoning.

use super::{Auth, NO_QUIRKS, Profile, Provider, Quirks, ResumeRule, Role, SdkUrl};
use crate::dialect::{openai_chat, openai_responses};
use crate::fault::pattern::{class, message, name};
use crate::fault::{ErrorPattern, FaultKind};

/// xAI.
pub static XAI: Provider = Provider {
    id: "xai",
    aliases: &["x-ai", "grok"],
    title: "xAI",
    route: "xai",
    hosts: &["api.x.ai"],
    base_url: "https://api.x.ai/v1",
    auth: Auth::Bearer,
    key_variables: &["XAI_API_KEY"],
    key_prefixes: &["xai-"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("XAI_API_BASE", "/v1", &["langchain-xai", "litellm"])],
    main: Profile {
        provider: "xai",
        error_patterns: ERROR_PATTERNS,
        // 12 input, 1 output, 290 reasoning, 303 total tokens (vercel/ai fixture).
        quirks: Quirks { reasoning_beside_output: true, ..NO_QUIRKS },
        ..openai_chat::PROFILE
    },
    others: &[Profile {
        provider: "xai",
        error_patterns: ERROR_PATTERNS,
        // Its searches show as custom tool calls, such as `x_keyword_search` (vercel/ai fixture).
        quirks: Quirks { runs_custom_tools: true, ..NO_QUIRKS },
        resume: &[ResumeRule::always(openai_responses::previous_response(Role::User))],
        ..openai_responses::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "x_ai",
    source: "xai-proto @9700be4; vercel/ai @ed857f5 packages/xai",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("The service is currently unavailable", FaultKind::Overloaded),
    message("incorrect api key", FaultKind::Auth),
    class("Client specified an invalid argument", FaultKind::InvalidRequest),
];
