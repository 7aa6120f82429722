//! `SambaNova`: OpenAI's wire, unchanged.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::openai_chat;

/// `SambaNova`.
pub static SAMBANOVA: Provider = Provider {
    id: "sambanova",
    aliases: &["samba-nova"],
    title: "SambaNova",
    route: "sambanova",
    hosts: &["api.sambanova.ai"],
    base_url: "https://api.sambanova.ai/v1",
    auth: Auth::Bearer,
    key_variables: &["SAMBANOVA_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("SAMBA_NOVA_BASE_URL", "/v1", &["sambanova"])],
    main: Profile { provider: "sambanova", caps: openai_chat::OLD_CAP, ..openai_chat::PROFILE },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "sambanova 1.13.0",
};
