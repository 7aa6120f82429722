//! Other OpenAI-compatible hosts, with every finish reason and error that they are known to send.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{Words, openai_chat, openai_completions, openai_responses};
use crate::ending::Reason;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};

/// Any OpenAI-compatible host without a provider file.
pub static OPENAI_COMPATIBLE: Provider = Provider {
    id: "openai-compatible",
    aliases: &["local", "compatible"],
    title: "OpenAI-compatible",
    route: "openai-compatible",
    hosts: &[],
    base_url: "",
    auth: Auth::Bearer,
    key_variables: &["OPENAI_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::argument("baseURL", "/v1", &["@ai-sdk/openai-compatible (npm)"])],
    main: Profile {
        provider: "openai-compatible",
        words: CHAT_WORDS,
        error_patterns: ERROR_PATTERNS,
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[
        Profile {
            provider: "openai-compatible",
            words: WORDS,
            error_patterns: ERROR_PATTERNS,
            ..openai_completions::PROFILE
        },
        Profile {
            provider: "openai-compatible",
            error_patterns: ERROR_PATTERNS,
            ..openai_responses::PROFILE
        },
    ],
    offered_elsewhere: true,
    opentelemetry: "",
    source: "observed at the compatible hosts that each row names",
};

static WORDS: &[Words] = &[SHARED];

static CHAT_WORDS: &[Words] = &[
    SHARED,
    Words::plain(
        "finish_reason",
        "choices[].finish_reason",
        &[
            // DeepSeek on Azure.
            ("tool_call", Reason::ToolCall),
            // Anthropic and Gemini, behind proxies that keep their finish reasons.
            ("end_turn", Reason::Complete),
            ("tool_use", Reason::ToolCall),
            ("max_tokens", Reason::OutputLimit),
            ("STOP", Reason::Complete),
            ("MAX_TOKENS", Reason::OutputLimit),
        ],
    ),
];

const SHARED: Words = Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        // Together, SiliconFlow; TGI.
        ("eos", Reason::Complete),
        ("eos_token", Reason::Complete),
        ("stop_sequence", Reason::StopSequence),
        // vLLM and SGLang, aborted by the client or the server.
        ("abort", Reason::Cancelled),
        ("aborted", Reason::Cancelled),
        // Loop detectors: vLLM; Xiaomi and Tencent.
        ("repetition", Reason::Failed),
        ("repetition_truncation", Reason::Failed),
        // DeepSeek: out of capacity.
        ("insufficient_system_resource", Reason::Failed),
        // Zhipu.
        ("sensitive", Reason::Safety),
        ("network_error", Reason::Failed),
        ("model_context_window_exceeded", Reason::ContextLimit),
        // Mistral, Fireworks and routers.
        ("model_length", Reason::ContextLimit),
        // IBM.
        ("time_limit", Reason::TimedOut),
        ("cancelled", Reason::Cancelled),
        // Reka.
        ("context", Reason::ContextLimit),
    ],
);

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("1261", FaultKind::ContextWindow),
    name("overloaded", FaultKind::Overloaded),
    name("1002", FaultKind::RateLimit),
    name("1004", FaultKind::Auth),
    name("1008", FaultKind::Quota),
    name("1026", FaultKind::Filter),
    name("1027", FaultKind::Filter),
    name("DataInspectionFailed", FaultKind::Filter),
    name("data_inspection_failed", FaultKind::Filter),
    name("1301", FaultKind::Filter),
    name("1302", FaultKind::RateLimit),
    name("1305", FaultKind::Overloaded),
    name("1113", FaultKind::Quota),
];
