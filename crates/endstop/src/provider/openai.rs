//! OpenAI: chat, Responses and legacy completions.

use super::{Profile, Provider};
use crate::dialect::{openai_chat, openai_completions, openai_responses};

/// OpenAI.
pub static OPENAI: Provider = Provider {
    id: "openai",
    aliases: &["chatgpt"],
    title: "OpenAI",
    hosts: &["api.openai.com", "chatgpt.com", "us.api.openai.com", "eu.api.openai.com"],
    main: Profile { provider: "openai", ..openai_chat::PROFILE },
    others: &[
        Profile { provider: "openai", ..openai_responses::PROFILE },
        Profile { provider: "openai", ..openai_completions::PROFILE },
    ],
    source: "openai 3.49.0; openai-openapi 2.3.0",
};
