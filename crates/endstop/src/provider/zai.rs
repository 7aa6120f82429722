//! Z.AI (Zhipu, GLM): failures during generation are finish reasons; error codes are numbers.

use super::{Auth, COMMON_CAPABILITIES, Profile, Provider, SdkUrl};
use crate::dialect::{Words, openai_chat, openai_responses};
use crate::ending::Reason;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};
use crate::next_request::RequestShape;

/// Z.AI.
pub static ZAI: Provider = Provider {
    id: "zai",
    aliases: &["zhipu", "zhipuai", "z.ai", "z-ai", "bigmodel"],
    title: "Z.AI",
    route: "zai",
    hosts: &["api.z.ai", "open.bigmodel.cn"],
    base_url: "https://api.z.ai/api/paas/v4",
    auth: Auth::Bearer,
    key_variables: &["ZAI_API_KEY", "ZHIPUAI_API_KEY", "ZHIPU_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("ZAI_BASE_URL", "/api/paas/v4", &["zai-sdk"])],
    main: Profile {
        provider: "zai",
        words: WORDS,
        error_patterns: ERROR_PATTERNS,
        // Usage is in the chunk with the finish reason, without being requested.
        capabilities: COMMON_CAPABILITIES,
        caps: openai_chat::OLD_CAP,
        // `auto` is the only tool choice, and thinking is on by default (agentscope, GLM page).
        request_shape: RequestShape {
            forced_tools: &[],
            efforts: openai_chat::EFFORTS_THINKING,
            ..openai_chat::REQUEST_SHAPE
        },
        ..openai_chat::PROFILE
    },
    others: &[Profile {
        provider: "zai",
        error_patterns: ERROR_PATTERNS,
        ..openai_responses::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "Zhipu specification @2b70661; Zhipu error codes, second-hand",
};

static WORDS: &[Words] = &[Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        // Text that was already streamed may have to be withdrawn.
        ("sensitive", Reason::Safety),
        ("network_error", Reason::Failed),
        // A prompt that is too long may be accepted silently and end with this.
        ("model_context_window_exceeded", Reason::ContextLimit),
    ],
)];

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("1261", FaultKind::ContextWindow),
    name("1301", FaultKind::Filter),
    name("1302", FaultKind::RateLimit),
    name("1305", FaultKind::Overloaded),
    // Plan limits: five hours, a week, a month.
    name("1308", FaultKind::Quota),
    name("1310", FaultKind::Quota),
    // No balance, or a key of another plan.
    name("1113", FaultKind::Quota),
    name("1200", FaultKind::Server),
    name("1230", FaultKind::Server),
    name("1234", FaultKind::Server),
];
