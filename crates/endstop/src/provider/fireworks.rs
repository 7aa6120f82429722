//! Fireworks: `error` as a finish reason. It silently lowers the token limit if the prompt leaves
//! less room.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{openai_chat, openai_completions};

/// Fireworks AI.
pub static FIREWORKS: Provider = Provider {
    id: "fireworks",
    aliases: &["fireworks-ai"],
    title: "Fireworks AI",
    route: "fireworks",
    hosts: &["api.fireworks.ai"],
    base_url: "https://api.fireworks.ai/inference/v1",
    auth: Auth::Bearer,
    key_variables: &["FIREWORKS_API_KEY"],
    key_prefixes: &["fw_"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("FIREWORKS_BASE_URL", "/inference", &["fireworks-ai"])],
    main: Profile { provider: "fireworks", caps: openai_chat::OLD_CAP, ..openai_chat::PROFILE },
    others: &[Profile { provider: "fireworks", ..openai_completions::PROFILE }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "fireworks-ai 1.2.30",
};
