//! Reka: a finish reason for a full context window.

use super::{Auth, Profile, Provider};
use crate::dialect::{Words, openai_chat};
use crate::ending::Reason;

/// Reka.
pub static REKA: Provider = Provider {
    id: "reka",
    aliases: &["reka-ai"],
    title: "Reka",
    route: "reka",
    hosts: &["api.reka.ai"],
    base_url: "https://api.reka.ai/v1",
    auth: Auth::Bearer,
    key_variables: &["REKA_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "reka",
        words: &[Words::plain(
            "finish_reason",
            "choices[].finish_reason",
            &[("context", Reason::ContextLimit)],
        )],
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "reka-api; docs.reka.ai",
};
