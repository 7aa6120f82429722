//! Cerebras: no `finish_reason` key before the last chunk. Errors are flat in bodies and wrapped in
//! `error` in streams.

use super::{Auth, COMMON_CAPABILITIES, Profile, Provider, SdkUrl};
use crate::dialect::{openai_chat, openai_completions};
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};

/// Cerebras.
pub static CEREBRAS: Provider = Provider {
    id: "cerebras",
    aliases: &[],
    title: "Cerebras",
    route: "cerebras",
    hosts: &["api.cerebras.ai"],
    base_url: "https://api.cerebras.ai/v1",
    auth: Auth::Bearer,
    key_variables: &["CEREBRAS_API_KEY"],
    key_prefixes: &["csk-"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable(
        "CEREBRAS_BASE_URL",
        "",
        &["cerebras-cloud-sdk", "@cerebras/cerebras_cloud_sdk (npm)"],
    )],
    main: Profile {
        provider: "cerebras",
        error_patterns: ERROR_PATTERNS,
        // Usage is in the chunk with the finish reason (recorded, maruel/genai, 28 of 28).
        capabilities: COMMON_CAPABILITIES,
        ..openai_chat::PROFILE
    },
    others: &[Profile {
        provider: "cerebras",
        error_patterns: ERROR_PATTERNS,
        ..openai_completions::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "cerebras-cloud-sdk 1.91.0; recorded, maruel/genai",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[name("wrong_api_key", FaultKind::Auth)];
