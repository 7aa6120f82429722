//! SGLang: all finish reasons come after all content, with the matched stop.

use super::vllm::CONTINUE;
use super::{Auth, Profile, Provider};
use crate::dialect::{Words, openai_chat, openai_completions, openai_responses};
use crate::ending::Reason;

/// SGLang.
pub static SGLANG: Provider = Provider {
    id: "sglang",
    aliases: &[],
    title: "SGLang",
    route: "sglang",
    hosts: &["localhost:30000", "127.0.0.1:30000"],
    base_url: "http://127.0.0.1:30000/v1",
    auth: Auth::Open,
    key_variables: &[],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "sglang",
        words: WORDS,
        // Without these flags, a trailing assistant message is read as the user's.
        resume: CONTINUE,
        ..openai_chat::PROFILE
    },
    others: &[
        Profile { provider: "sglang", words: WORDS, ..openai_completions::PROFILE },
        // The event is always `response.completed`, but its status is right at the token limit.
        Profile { provider: "sglang", ..openai_responses::PROFILE },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "sglang @cce0a12",
};

static WORDS: &[Words] =
    &[Words::plain("finish_reason", "choices[].finish_reason", &[("abort", Reason::Cancelled)])];
