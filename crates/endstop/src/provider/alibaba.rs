//! Alibaba (Qwen) in OpenAI-compatible mode. Errors with HTTP 200 come without an end marker.

use super::{Auth, Prefill, Profile, Provider, Resume, ResumeRule, Role, SdkUrl, TRAILING};
use crate::dialect::{dashscope, openai_chat, openai_completions, openai_responses};
use crate::fault::pattern::{message, name};
use crate::fault::{ErrorPattern, FaultKind};
use crate::next_request::{ForcedTool, RequestShape, Restriction};

/// Alibaba Cloud Model Studio.
pub static ALIBABA: Provider = Provider {
    id: "alibaba",
    aliases: &["qwen", "dashscope"],
    title: "Alibaba Cloud Model Studio",
    route: "alibaba",
    hosts: &[
        "dashscope.aliyuncs.com",
        "dashscope-intl.aliyuncs.com",
        "dashscope-us.aliyuncs.com",
        "*.dashscope.aliyuncs.com",
    ],
    base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    auth: Auth::Bearer,
    key_variables: &["DASHSCOPE_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("DASHSCOPE_HTTP_BASE_URL", "/api/v1", &["dashscope"])],
    main: Profile {
        provider: "alibaba",
        error_patterns: ERROR_PATTERNS,
        // Only its own models, and only if thinking is disabled (partial mode page).
        resume: &[
            ResumeRule::for_models(&["thinking", "qwq", "qvq"], Resume::Hint(Role::User)),
            ResumeRule::for_models(
                &["qwen"],
                Resume::Prefill(Prefill { message_flag: Some("partial"), ..TRAILING }),
            ),
        ],
        caps: openai_chat::OLD_CAP,
        request_shape: RequestShape {
            prefill_restrictions: &[THINKS],
            forced_tools: FORCED_TOOLS,
            ..openai_chat::REQUEST_SHAPE
        },
        ..openai_chat::PROFILE
    },
    others: &[
        Profile {
            provider: "alibaba",
            error_patterns: ERROR_PATTERNS,
            ..openai_responses::PROFILE
        },
        Profile {
            provider: "alibaba",
            error_patterns: ERROR_PATTERNS,
            ..openai_completions::PROFILE
        },
        Profile { provider: "alibaba", error_patterns: ERROR_PATTERNS, ..dashscope::PROFILE },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "dashscope 2.0.2; QwenLM/qwen-code#98, #3145; recorded, maruel/genai",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("DataInspectionFailed", FaultKind::Filter),
    name("data_inspection_failed", FaultKind::Filter),
    // Follows a status and a namespace: `<400> InternalError.Algo.DataInspectionFailed: …`.
    message("datainspectionfailed", FaultKind::Filter),
    name("Arrearage", FaultKind::Quota),
];

const THINKS: Restriction = Restriction {
    field: "enable_thinking",
    fine: &[],
    by_default: false,
    because: "thinking is enabled",
};

/// Forced tools, which are rejected while thinking is enabled (duolahypercho/codex-router#106).
static FORCED_TOOLS: &[ForcedTool] = &[ForcedTool {
    tools: "tools",
    field: "tool_choice",
    value: openai_chat::choice,
    models: &[],
    restrictions: &[THINKS],
}];
