//! Moonshot (Kimi): continuation from a partial message; usage inside the choice.

use super::{Auth, Capabilities, Prefill, Profile, Provider, Resume, ResumeRule, TRAILING};
use crate::dialect::openai_chat;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};
use crate::next_request::RequestShape;

/// Moonshot AI.
pub static MOONSHOT: Provider = Provider {
    id: "moonshot",
    aliases: &["moonshotai", "kimi"],
    title: "Moonshot AI",
    route: "moonshot",
    hosts: &["api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"],
    base_url: "https://api.moonshot.ai/v1",
    auth: Auth::Bearer,
    key_variables: &["MOONSHOT_API_KEY", "KIMI_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "moonshot",
        error_patterns: ERROR_PATTERNS,
        // The documented remedy for `length` (Kimi partial mode page).
        resume: &[ResumeRule::always(Resume::Prefill(Prefill {
            message_flag: Some("partial"),
            ..TRAILING
        }))],
        // Named tool choices are rejected while thinking is enabled, which is the default
        // (can1357/oh-my-pi#1077).
        request_shape: RequestShape {
            forced_tools: openai_chat::THINKS_UNLESS_TOLD,
            efforts: openai_chat::EFFORTS_THINKING,
            ..openai_chat::REQUEST_SHAPE
        },
        capabilities: Capabilities { usage_in_streams: true, ..openai_chat::PROFILE.capabilities },
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "moonshot_ai",
    source: "kimi-moonshot specification; MoonshotAI/kimi-cli @4a550ef; Kimi errors page",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("engine_overloaded_error", FaultKind::Overloaded),
    name("exceeded_current_quota_error", FaultKind::Quota),
    name("rate_limit_reached_error", FaultKind::RateLimit),
];
