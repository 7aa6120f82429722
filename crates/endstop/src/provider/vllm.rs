//! vLLM: `tool_calls` hides a truncated call, and Responses always end with `response.completed`.

use super::{Auth, NO_QUIRKS, Prefill, Profile, Provider, Quirks, Resume, ResumeRule, TRAILING};
use crate::dialect::{Words, openai_chat, openai_completions, openai_responses};
use crate::ending::Reason;

/// vLLM.
pub static VLLM: Provider = Provider {
    id: "vllm",
    aliases: &[],
    title: "vLLM",
    route: "vllm",
    // Many other servers use port 8000.
    hosts: &[],
    base_url: "http://127.0.0.1:8000/v1",
    auth: Auth::Open,
    key_variables: &["VLLM_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile { provider: "vllm", words: WORDS, resume: CONTINUE, ..openai_chat::PROFILE },
    others: &[
        Profile { provider: "vllm", words: WORDS, ..openai_completions::PROFILE },
        Profile {
            provider: "vllm",
            // The event is always `response.completed`, and its status is not always right.
            quirks: Quirks { lies_at_cap: true, ..NO_QUIRKS },
            ..openai_responses::PROFILE
        },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "vllm @a014e35",
};

/// Finish reasons of the engine besides `stop` and `length`. Its `error` never reaches the wire.
pub(super) static WORDS: &[Words] = &[Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        ("abort", Reason::Cancelled),
        // The loop detector. Continuing makes a loop worse.
        ("repetition", Reason::Failed),
    ],
)];

/// Prefill that continues the last message. Both flags as true are an error, so the second must be
/// sent as false.
pub(super) static CONTINUE: &[ResumeRule] = &[ResumeRule::always(Resume::Prefill(Prefill {
    request_flags: &[("continue_final_message", true), ("add_generation_prompt", false)],
    ..TRAILING
}))];
