//! Together: `eos` for a natural end, `error` for a failure. The text of a call sometimes comes as
//! reasoning.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{Words, openai_chat, openai_completions};
use crate::ending::Reason;

/// Together AI.
pub static TOGETHER: Provider = Provider {
    id: "together",
    aliases: &["togetherai", "together-ai"],
    title: "Together AI",
    route: "together",
    hosts: &["api.together.xyz", "api.together.ai"],
    base_url: "https://api.together.xyz/v1",
    auth: Auth::Bearer,
    key_variables: &["TOGETHER_API_KEY"],
    key_prefixes: &["tgp_"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("TOGETHER_BASE_URL", "", &["together", "together-ai (npm)"])],
    main: Profile {
        provider: "together",
        words: WORDS,
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[Profile { provider: "together", words: WORDS, ..openai_completions::PROFILE }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "together 3.0.0; togethercomputer/openapi @090263a; recorded, maruel/genai",
};

static WORDS: &[Words] =
    &[Words::plain("finish_reason", "choices[].finish_reason", &[("eos", Reason::Complete)])];
