//! Mistral: OpenAI's wire with its own finish reasons and errors.

use super::{
    Auth, COMMON_CAPABILITIES, Capabilities, Echo, Prefill, Profile, Provider, Resume, ResumeRule,
    SdkUrl, TRAILING,
};
use crate::dialect::{Words, openai_chat};
use crate::ending::Reason;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};
use crate::gateway_error::{ErrorShape, GatewayError};

/// Mistral AI.
pub static MISTRAL: Provider = Provider {
    id: "mistral",
    aliases: &["mistralai"],
    title: "Mistral AI",
    route: "mistral",
    hosts: &["api.mistral.ai", "codestral.mistral.ai"],
    base_url: "https://api.mistral.ai/v1",
    auth: Auth::Bearer,
    key_variables: &["MISTRAL_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::argument("server_url", "", &["mistralai"]),
        SdkUrl::argument("serverURL", "", &["@mistralai/mistralai (npm)"]),
    ],
    main: Profile {
        provider: "mistral",
        paths: &["/chat/completions", "/fim/completions", "/agents/completions"],
        words: &[Words::plain(
            "finish_reason",
            "choices[].finish_reason",
            &[
                // The context window, not the caller's token limit.
                ("model_length", Reason::ContextLimit),
            ],
        )],
        error_patterns: ERROR_PATTERNS,
        error_shape: ERROR_SHAPE,
        // The reply repeats the prefix (platform-docs-public, prefix guide).
        resume: &[ResumeRule::always(Resume::Prefill(Prefill {
            message_flag: Some("prefix"),
            echoes: Echo::Always,
            ..TRAILING
        }))],
        capabilities: Capabilities { choices: true, ..COMMON_CAPABILITIES },
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "mistral_ai",
    source: "mistralai 3.7.0; platform-docs-public @222f4ba",
};

const ERROR_SHAPE: ErrorShape =
    ErrorShape { in_stream: tell, body: tell, ..openai_chat::ERROR_SHAPE };

fn tell(gateway_error: &GatewayError<'_>) -> serde_json::Value {
    serde_json::json!({
        "object": "error",
        "message": gateway_error.message,
        "type": "endstop_error",
        "param": null,
        "code": gateway_error.code,
    })
}

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("rate_limited", FaultKind::RateLimit),
    name("1300", FaultKind::RateLimit),
    name("1500", FaultKind::NotFound),
    name("invalid_model", FaultKind::NotFound),
    name("1000", FaultKind::Overloaded),
];
