//! AI21: OpenAI's wire for Jamba, its own wire for Jurassic-2.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{bedrock_ai21, openai_chat};
use crate::frame::Framing;

/// AI21 Labs.
pub static AI21: Provider = Provider {
    id: "ai21",
    aliases: &["ai21labs"],
    title: "AI21 Labs",
    route: "ai21",
    hosts: &["api.ai21.com"],
    base_url: "https://api.ai21.com/studio/v1",
    auth: Auth::Bearer,
    key_variables: &["AI21_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("AI21_API_HOST", "/studio/v1", &["ai21"])],
    main: Profile { provider: "ai21", caps: openai_chat::OLD_CAP, ..openai_chat::PROFILE },
    others: &[Profile {
        provider: "ai21",
        paths: &["/complete", "/j2*/chat"],
        framing: Framing::Sse,
        ..bedrock_ai21::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "ai21 4.3.0",
};
