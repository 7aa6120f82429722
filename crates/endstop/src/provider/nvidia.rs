//! NVIDIA NIM: vLLM or SGLang containers, and NVIDIA's cloud that runs them.

use super::vllm::WORDS;
use super::{Auth, NO_QUIRKS, Profile, Provider, Quirks, SdkUrl};
use crate::dialect::{openai_chat, openai_completions, openai_responses};

/// NVIDIA NIM.
pub static NVIDIA: Provider = Provider {
    id: "nvidia",
    aliases: &["nim", "nvidia-nim"],
    title: "NVIDIA NIM",
    route: "nvidia",
    hosts: &["integrate.api.nvidia.com"],
    base_url: "https://integrate.api.nvidia.com/v1",
    auth: Auth::Bearer,
    key_variables: &["NVIDIA_API_KEY"],
    key_prefixes: &["nvapi-"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("NVIDIA_BASE_URL", "/v1", &["langchain-nvidia-ai-endpoints"])],
    main: Profile { provider: "nvidia", words: WORDS, ..openai_chat::PROFILE },
    others: &[
        Profile { provider: "nvidia", words: WORDS, ..openai_completions::PROFILE },
        Profile {
            provider: "nvidia",
            // The container may run vLLM, which has this quirk.
            quirks: Quirks { lies_at_cap: true, ..NO_QUIRKS },
            ..openai_responses::PROFILE
        },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "NIM API reference; vllm @a014e35",
};
