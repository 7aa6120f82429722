//! Mistral: OpenAI's wire with words and errors of its own.

use super::{Profile, Provider};
use crate::dialect::{Words, openai_chat};
use crate::ending::Reason;
use crate::fault::{FaultKind, Sign, message, name};

/// Mistral AI.
pub static MISTRAL: Provider = Provider {
    id: "mistral",
    aliases: &["mistralai"],
    title: "Mistral AI",
    hosts: &["api.mistral.ai", "codestral.mistral.ai"],
    main: Profile {
        provider: "mistral",
        words: &[Words::plain(
            "finish_reason",
            "choices[].finish_reason",
            &[
                // The model's window rather than the caller's cap.
                ("model_length", Reason::ContextLimit),
                ("error", Reason::Failed),
            ],
        )],
        signs: SIGNS,
        ..openai_chat::PROFILE
    },
    others: &[],
    source: "mistralai 3.7.0; platform-docs-public @222f4ba",
};

static SIGNS: &[Sign] = &[
    message("too large for model with", FaultKind::ContextWindow),
    name("rate_limited", FaultKind::RateLimit),
    name("1300", FaultKind::RateLimit),
    name("1500", FaultKind::NotFound),
    name("invalid_model", FaultKind::NotFound),
    name("1000", FaultKind::Overloaded),
];
