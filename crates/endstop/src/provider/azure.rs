//! Azure OpenAI: OpenAI's wires behind content filters that annotate every choice.

use super::{Auth, Profile, Provider, ResumeRule, Role, SdkUrl};
use crate::dialect::{Words, openai_assistants, openai_chat, openai_completions, openai_responses};
use crate::ending::Reason;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};
use crate::next_request::{RequestShape, Temperature};
use crate::version::{Version, VersionAt};

/// Azure OpenAI.
pub static AZURE: Provider = Provider {
    id: "azure",
    aliases: &["azure-openai"],
    title: "Azure OpenAI",
    route: "azure",
    hosts: &["*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"],
    base_url: "https://{resource}.openai.azure.com/openai/v1",
    auth: Auth::Header("api-key"),
    key_variables: &["AZURE_OPENAI_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::variable("AZURE_OPENAI_ENDPOINT", "/{resource}", &["openai.AzureOpenAI"]),
        SdkUrl::argument("baseURL", "/{resource}/openai", &["openai.AzureOpenAI (npm)"]),
    ],
    main: Profile {
        provider: "azure",
        words: HOSTED,
        error_patterns: ERROR_PATTERNS,
        versions: CHAT_VERSIONS,
        request_shape: RequestShape {
            efforts: openai_chat::EFFORTS_UNASKED,
            temperature: ONLY_IF_SENT,
            ..openai_chat::REQUEST_SHAPE
        },
        ..openai_chat::PROFILE
    },
    others: &[
        Profile {
            provider: "azure",
            error_patterns: ERROR_PATTERNS,
            versions: VERSIONS,
            resume: &[ResumeRule::always(openai_responses::previous_response(Role::Developer))],
            request_shape: RequestShape {
                hint: Role::Developer,
                efforts: openai_responses::EFFORTS_UNASKED,
                temperature: ONLY_IF_SENT,
                ..openai_responses::REQUEST_SHAPE
            },
            ..openai_responses::PROFILE
        },
        Profile {
            provider: "azure",
            error_patterns: ERROR_PATTERNS,
            versions: VERSIONS,
            ..openai_completions::PROFILE
        },
        Profile {
            provider: "azure",
            error_patterns: ERROR_PATTERNS,
            versions: VERSIONS,
            ..openai_assistants::PROFILE
        },
    ],
    offered_elsewhere: false,
    opentelemetry: "azure.ai.openai",
    source: "MicrosoftDocs/azure-ai-docs content-filter.md; @azure/openai 1.0.0-beta.13",
};

/// Finish reasons of the vendors whose models Azure hosts. Azure passes them on unchanged.
pub(super) static HOSTED: &[Words] = &[Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        // DeepSeek R1 (recorded, req_llm).
        ("tool_call", Reason::ToolCall),
        ("insufficient_system_resource", Reason::Failed),
        // Mistral: the context window, not the caller's token limit.
        ("model_length", Reason::ContextLimit),
        // vLLM.
        ("abort", Reason::Cancelled),
    ],
)];

/// Temperature only for requests that have one: a deployment's name does not reveal its model.
const ONLY_IF_SENT: Temperature =
    Temperature { only_if_sent: true, ..openai_chat::REQUEST_SHAPE.temperature };

/// Version dates, some with `-preview`.
const DATED: VersionAt = VersionAt::Query("api-version");

/// Paths under `/openai/v1`, which need no date.
const UNDATED: Version =
    Version { at: VersionAt::Path, note: "same finish reasons in `v1`, without an `api-version`" };

static CHAT_VERSIONS: &[Version] = &[
    Version {
        at: DATED,
        note: "vision previews before 2025 send `finish_details.type` and a null `finish_reason`",
    },
    UNDATED,
];

static VERSIONS: &[Version] = &[Version { at: DATED, note: "same finish reasons" }, UNDATED];

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("ResponsibleAIPolicyViolation", FaultKind::Filter),
    name("RateLimitReached", FaultKind::RateLimit),
    name("DeploymentNotFound", FaultKind::NotFound),
];
