//! Cohere: versions 1 and 2 of chat, and the old `generate`.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{cohere, cohere_v1, openai_chat};

/// Cohere.
pub static COHERE: Provider = Provider {
    id: "cohere",
    aliases: &[],
    title: "Cohere",
    route: "cohere",
    hosts: &["api.cohere.com", "api.cohere.ai"],
    base_url: "https://api.cohere.com",
    auth: Auth::Bearer,
    key_variables: &["CO_API_KEY", "COHERE_API_KEY"],
    key_prefixes: &["co-"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::variable("CO_API_URL", "", &["cohere"]),
        SdkUrl::argument("environment", "", &["cohere-ai (npm)"]),
    ],
    main: Profile { provider: "cohere", ..cohere::PROFILE },
    others: &[
        Profile { provider: "cohere", ..cohere_v1::PROFILE },
        Profile { provider: "cohere", caps: openai_chat::OLD_CAP, ..openai_chat::PROFILE },
    ],
    offered_elsewhere: false,
    opentelemetry: "cohere",
    source: "cohere 7.3.1; cohere-ai 8.1.0",
};
