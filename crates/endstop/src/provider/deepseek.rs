//! DeepSeek: a finish reason for lack of capacity; continuation from a prefix on its beta path.

use super::{
    Auth, COMMON_CAPABILITIES, Prefill, Profile, Provider, Resume, ResumeRule, SdkUrl, TRAILING,
};
use crate::dialect::{Words, openai_chat, openai_completions, openai_responses};
use crate::ending::Reason;
use crate::next_request::RequestShape;

/// DeepSeek.
pub static DEEPSEEK: Provider = Provider {
    id: "deepseek",
    aliases: &["deep-seek"],
    title: "DeepSeek",
    route: "deepseek",
    hosts: &["api.deepseek.com"],
    base_url: "https://api.deepseek.com",
    auth: Auth::Bearer,
    key_variables: &["DEEPSEEK_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("DEEPSEEK_API_BASE", "/beta", &["litellm"])],
    main: Profile {
        provider: "deepseek",
        words: WORDS,
        resume: &[ResumeRule::always(Resume::Prefill(Prefill {
            message_flag: Some("prefix"),
            base_url: Some("https://api.deepseek.com/beta"),
            ..TRAILING
        }))],
        // Usage is in the chunk with the finish reason, requested or not (recorded, maruel/genai,
        // 44 of 44).
        capabilities: COMMON_CAPABILITIES,
        notes: &["`deepseek-chat` and `deepseek-reasoner` were retired on 2026-07-24"],
        caps: openai_chat::OLD_CAP,
        // Named tool choices are rejected while thinking is enabled, which is the default
        // (deepseek-ai/DeepSeek-V3#1376).
        request_shape: RequestShape {
            forced_tools: openai_chat::THINKS_UNLESS_TOLD,
            efforts: openai_chat::EFFORTS_THINKING,
            ..openai_chat::REQUEST_SHAPE
        },
        ..openai_chat::PROFILE
    },
    others: &[
        Profile { provider: "deepseek", ..openai_responses::PROFILE },
        // Fill in the middle (beta).
        Profile { provider: "deepseek", words: WORDS, ..openai_completions::PROFILE },
    ],
    offered_elsewhere: false,
    opentelemetry: "deepseek",
    source: "DeepSeek asyncapi @4b91671; maruel/genai @66b63e6 providers/deepseek",
};

static WORDS: &[Words] = &[Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        // Out of capacity: retry.
        ("insufficient_system_resource", Reason::Failed),
        // Only in recent documentation, according to two second-hand reports.
        ("aborted", Reason::Cancelled),
    ],
)];
