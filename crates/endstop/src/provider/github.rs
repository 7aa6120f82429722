//! GitHub Models: Azure's inference service with the limits of a plan.

use super::{Auth, Profile, Provider, azure};
use crate::dialect::openai_chat;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};

/// GitHub Models.
pub static GITHUB: Provider = Provider {
    id: "github",
    aliases: &["github-models"],
    title: "GitHub Models",
    route: "github",
    hosts: &["models.github.ai", "models.inference.ai.azure.com"],
    base_url: "https://models.github.ai/inference",
    auth: Auth::Bearer,
    key_variables: &["GITHUB_TOKEN"],
    key_prefixes: &["ghp_", "gho_", "github_pat_"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "github",
        // The models are those of Azure.
        words: azure::HOSTED,
        error_patterns: ERROR_PATTERNS,
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "azure-ai-inference 1.0.0b9; eslint/tsc-meetings#593",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[name("RateLimitReached", FaultKind::RateLimit)];
