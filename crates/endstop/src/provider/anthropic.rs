//! Anthropic, first party.

use super::{Profile, Provider};
use crate::dialect::anthropic;

/// Anthropic.
pub static ANTHROPIC: Provider = Provider {
    id: "anthropic",
    aliases: &["claude"],
    title: "Anthropic",
    hosts: &["api.anthropic.com"],
    main: Profile { provider: "anthropic", ..anthropic::PROFILE },
    others: &[],
    source: "anthropic 2.8.0; @anthropic-ai/sdk 1.8.0",
};
