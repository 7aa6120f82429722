//! Hugging Face: a router and TGI endpoints. The backend's values are passed on unchanged.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{Words, openai_chat, openai_completions, tgi};
use crate::ending::Reason;
use crate::fault::pattern::{class, name};
use crate::fault::{ErrorPattern, FaultKind};

/// Hugging Face.
///
/// TGI continues a trailing assistant message, but the backend behind the router is unknown.
pub static HUGGINGFACE: Provider = Provider {
    id: "huggingface",
    aliases: &["hf", "hugging-face", "tgi"],
    title: "Hugging Face",
    route: "huggingface",
    hosts: &[
        "router.huggingface.co",
        "api-inference.huggingface.co",
        "*.*.*.endpoints.huggingface.cloud",
    ],
    base_url: "https://router.huggingface.co/v1",
    auth: Auth::Bearer,
    key_variables: &["HF_TOKEN"],
    key_prefixes: &["hf_"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::argument("base_url", "/v1", &["huggingface_hub"]),
        SdkUrl::argument("endpointUrl", "", &["@huggingface/inference (npm)"]),
    ],
    main: Profile {
        provider: "huggingface",
        words: WORDS,
        error_patterns: ERROR_PATTERNS,
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[
        Profile {
            provider: "huggingface",
            words: WORDS,
            error_patterns: ERROR_PATTERNS,
            ..openai_completions::PROFILE
        },
        Profile {
            provider: "huggingface",
            // The serverless API has only the model in its path.
            paths: &["/generate", "/generate_stream", "/models/*"],
            error_patterns: ERROR_PATTERNS,
            ..tgi::PROFILE
        },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "text-generation-inference @db931fc; huggingface_hub 2.4.0; recorded, maruel/genai",
};

static WORDS: &[Words] = &[Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        // TGI's own values, which leak into its chat wire (recorded, huggingface/huggingface_hub).
        ("eos_token", Reason::Complete),
        ("stop_sequence", Reason::StopSequence),
        // Backends: Together; vLLM and SGLang; vLLM; Z.AI.
        ("eos", Reason::Complete),
        ("abort", Reason::Cancelled),
        ("repetition", Reason::Failed),
        ("sensitive", Reason::Safety),
        ("network_error", Reason::Failed),
        ("model_context_window_exceeded", Reason::ContextLimit),
    ],
)];

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("overloaded", FaultKind::Overloaded),
    name("generation", FaultKind::Server),
    name("incomplete_generation", FaultKind::Server),
    class("validation", FaultKind::InvalidRequest),
];
