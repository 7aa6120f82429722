//! vLLM: `tool_calls` hides a cut call, and Responses complete whatever happened.

use super::{Auth, NO_QUIRKS, Prefill, Profile, Provider, Quirks, Resume, TRAILING, always};
use crate::dialect::{Words, openai_chat, openai_completions, openai_responses};
use crate::ending::Reason;

/// vLLM.
pub static VLLM: Provider = Provider {
    id: "vllm",
    aliases: &[],
    title: "vLLM",
    route: "vllm",
    // Port 8000 is everybody's.
    hosts: &[],
    base_url: "http://127.0.0.1:8000/v1",
    auth: Auth::Open,
    key_variables: &["VLLM_API_KEY"],
    url_variables: &[],
    main: Profile { provider: "vllm", words: WORDS, resume: CONTINUE, ..openai_chat::PROFILE },
    others: &[
        Profile { provider: "vllm", words: WORDS, ..openai_completions::PROFILE },
        Profile {
            provider: "vllm",
            // `response.completed` for everything; the status inside is not always right.
            quirks: Quirks { lies_at_cap: true, ..NO_QUIRKS },
            ..openai_responses::PROFILE
        },
    ],
    source: "vllm @a014e35",
};

/// What the engine says besides `stop` and `length`; its `error` never reaches the wire.
pub(super) static WORDS: &[Words] = &[Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        ("abort", Reason::Cancelled),
        // The detector of loops; going on makes one worse.
        ("repetition", Reason::Failed),
    ],
)];

/// Both at once is an error, so that the second must be said too.
pub(super) static CONTINUE: &[super::ResumeRule] = &[always(Resume::Prefill(Prefill {
    request_flags: &[("continue_final_message", true), ("add_generation_prompt", false)],
    ..TRAILING
}))];
