//! Xiaomi `MiMo`: a finish reason for loops; HTTP 421 for blocked requests.

use super::{Auth, Profile, Provider};
use crate::dialect::{Words, openai_chat, openai_responses};
use crate::ending::Reason;
use crate::fault::pattern::{name, status};
use crate::fault::{ErrorPattern, FaultKind};

/// Xiaomi `MiMo`.
pub static XIAOMI: Provider = Provider {
    id: "xiaomi",
    aliases: &["mimo", "xiaomi-mimo"],
    title: "Xiaomi MiMo",
    route: "xiaomi",
    hosts: &["api.xiaomimimo.com"],
    base_url: "https://api.xiaomimimo.com/v1",
    auth: Auth::Bearer,
    key_variables: &["MIMO_API_KEY", "XIAOMI_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "xiaomi",
        words: &[Words::plain(
            "finish_reason",
            "choices[].finish_reason",
            // Continuing makes a loop worse.
            &[("repetition_truncation", Reason::Failed)],
        )],
        error_patterns: ERROR_PATTERNS,
        ..openai_chat::PROFILE
    },
    others: &[Profile {
        provider: "xiaomi",
        error_patterns: ERROR_PATTERNS,
        ..openai_responses::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "maruel/genai @66b63e6 providers/mimo; MiMo error-codes page",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[
    // Its error codes are the HTTP statuses. 421 is the content filter.
    status("421", FaultKind::Filter),
    name("invalid_key", FaultKind::Auth),
];
