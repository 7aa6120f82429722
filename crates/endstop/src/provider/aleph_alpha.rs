//! Aleph Alpha: its own completions wire and OpenAI's chat wire.

use super::{Auth, Profile, Provider};
use crate::dialect::{aleph_alpha, openai_chat};

/// Aleph Alpha.
pub static ALEPH_ALPHA: Provider = Provider {
    id: "aleph-alpha",
    aliases: &["alephalpha"],
    title: "Aleph Alpha",
    route: "aleph-alpha",
    hosts: &["api.aleph-alpha.com", "inference-api.*.aleph-alpha.com"],
    base_url: "https://api.aleph-alpha.com",
    auth: Auth::Bearer,
    key_variables: &["AA_TOKEN"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile { provider: "aleph-alpha", ..aleph_alpha::PROFILE },
    others: &[Profile {
        provider: "aleph-alpha",
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "aleph-alpha-client 11.5.1",
};
