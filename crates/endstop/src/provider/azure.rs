//! Azure OpenAI: OpenAI's wires behind content filters that annotate every choice.

use super::{Auth, Profile, Provider};
use crate::dialect::{openai_assistants, openai_chat, openai_completions, openai_responses};
use crate::fault::{FaultKind, Sign, name};

/// Azure OpenAI.
pub static AZURE: Provider = Provider {
    id: "azure",
    aliases: &["azure-openai"],
    title: "Azure OpenAI",
    route: "azure",
    hosts: &[".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"],
    base_url: "https://{resource}.openai.azure.com/openai/v1",
    auth: Auth::Header("api-key"),
    key_variables: &["AZURE_OPENAI_API_KEY"],
    url_variables: &["AZURE_OPENAI_ENDPOINT"],
    main: Profile { provider: "azure", signs: SIGNS, ..openai_chat::PROFILE },
    others: &[
        Profile { provider: "azure", signs: SIGNS, ..openai_responses::PROFILE },
        Profile { provider: "azure", signs: SIGNS, ..openai_completions::PROFILE },
        Profile { provider: "azure", signs: SIGNS, ..openai_assistants::PROFILE },
    ],
    source: "MicrosoftDocs/azure-ai-docs content-filter.md; @azure/openai 1.0.0-beta.13",
};

static SIGNS: &[Sign] = &[
    name("ResponsibleAIPolicyViolation", FaultKind::Filter),
    name("RateLimitReached", FaultKind::RateLimit),
    name("DeploymentNotFound", FaultKind::NotFound),
    name("tokens_limit_reached", FaultKind::ContextWindow),
];
