//! Anthropic's own API.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{anthropic, anthropic_complete};

/// Anthropic.
pub static ANTHROPIC: Provider = Provider {
    id: "anthropic",
    aliases: &["claude"],
    title: "Anthropic",
    route: "anthropic",
    hosts: &["api.anthropic.com"],
    base_url: "https://api.anthropic.com/v1",
    auth: Auth::Header("x-api-key"),
    key_variables: &["ANTHROPIC_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &["msg_", "toolu_", "req_"],
    request_id_headers: &["request-id"],
    sdk_urls: &[SdkUrl::variable(
        "ANTHROPIC_BASE_URL",
        "",
        &["anthropic", "@anthropic-ai/sdk (npm)", "@ai-sdk/anthropic (npm)", "litellm"],
    )],
    main: Profile { provider: "anthropic", ..anthropic::PROFILE },
    others: &[Profile { provider: "anthropic", ..anthropic_complete::PROFILE }],
    offered_elsewhere: true,
    opentelemetry: "anthropic",
    source: "anthropic 2.8.0; @anthropic-ai/sdk 1.8.0",
};
