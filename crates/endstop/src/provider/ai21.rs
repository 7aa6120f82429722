//! AI21: Jamba on OpenAI's wire.

use super::{Auth, Profile, Provider};
use crate::dialect::openai_chat;

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
    url_variables: &["AI21_API_HOST"],
    main: Profile { provider: "ai21", caps: openai_chat::OLD_CAP, ..openai_chat::PROFILE },
    others: &[],
    source: "ai21 4.3.0",
};
