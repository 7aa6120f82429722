//! MiniMax: errors come with HTTP 200, in `base_resp`.

use super::{Auth, COMMON_CAPABILITIES, Capabilities, Profile, Provider};
use crate::dialect::{openai_chat, openai_responses};
use crate::fault::pattern::{class, name};
use crate::fault::{ErrorPattern, FaultKind};

/// `MiniMax`.
pub static MINIMAX: Provider = Provider {
    id: "minimax",
    aliases: &["minimaxi"],
    title: "MiniMax",
    route: "minimax",
    hosts: &["api.minimax.io", "api.minimaxi.com", "api.minimax.chat"],
    base_url: "https://api.minimax.io/v1",
    auth: Auth::Bearer,
    key_variables: &["MINIMAX_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "minimax",
        paths: &["/chat/completions", "/text/chatcompletion_v2"],
        error_patterns: ERROR_PATTERNS,
        capabilities: Capabilities { usage_in_streams: false, ..COMMON_CAPABILITIES },
        ..openai_chat::PROFILE
    },
    others: &[Profile {
        provider: "minimax",
        error_patterns: ERROR_PATTERNS,
        ..openai_responses::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "MiniMax errorcode page; MiniMax-AI/MiniMax-M2#119; MiniMax-AI/cli",
};

/// Error codes. 1039 is left out: two gateways read it as a limit, the vendor's CLI as a filter.
static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("1000", FaultKind::Server),
    name("1001", FaultKind::Timeout),
    name("1002", FaultKind::RateLimit),
    name("1004", FaultKind::Auth),
    name("1008", FaultKind::Quota),
    name("1024", FaultKind::Server),
    name("1026", FaultKind::Filter),
    name("1027", FaultKind::Filter),
    // Invalid parameters, including a full context window. The message says which.
    class("2013", FaultKind::InvalidRequest),
];
