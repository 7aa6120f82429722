//! Cohere: chat, version 2.

use super::{Profile, Provider};
use crate::dialect::{cohere, openai_chat};

/// Cohere.
pub static COHERE: Provider = Provider {
    id: "cohere",
    aliases: &[],
    title: "Cohere",
    hosts: &["api.cohere.com", "api.cohere.ai"],
    main: Profile { provider: "cohere", ..cohere::PROFILE },
    others: &[Profile { provider: "cohere", ..openai_chat::PROFILE }],
    source: "cohere 7.3.1; cohere-ai 8.1.0",
};
