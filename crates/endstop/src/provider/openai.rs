//! OpenAI: chat, Responses, legacy completions and Assistants runs.

use super::{Auth, Profile, Provider, Resume, ResumeRule, Role, SdkUrl};
use crate::dialect::{openai_assistants, openai_chat, openai_completions, openai_responses};
use crate::next_request::RequestShape;

/// OpenAI.
pub static OPENAI: Provider = Provider {
    id: "openai",
    aliases: &["chatgpt"],
    title: "OpenAI",
    route: "openai",
    hosts: &["api.openai.com", "chatgpt.com", "us.api.openai.com", "eu.api.openai.com"],
    base_url: "https://api.openai.com/v1",
    auth: Auth::Bearer,
    key_variables: &["OPENAI_API_KEY"],
    key_prefixes: &["sk-"],
    id_prefixes: &["chatcmpl-", "cmpl-", "resp_", "rs_", "msg_", "fc_", "call_", "req_", "batch_"],
    request_id_headers: &["x-request-id"],
    sdk_urls: &[SdkUrl::variable(
        "OPENAI_BASE_URL",
        "/v1",
        &["openai", "openai (npm)", "@ai-sdk/openai (npm)", "litellm"],
    )],
    main: Profile {
        provider: "openai",
        resume: &[ResumeRule::always(Resume::Hint(Role::Developer))],
        request_shape: RequestShape {
            efforts: openai_chat::EFFORTS_UNASKED,
            ..openai_chat::REQUEST_SHAPE
        },
        ..openai_chat::PROFILE
    },
    others: &[
        Profile {
            provider: "openai",
            resume: &[ResumeRule::always(openai_responses::previous_response(Role::Developer))],
            request_shape: RequestShape {
                hint: Role::Developer,
                efforts: openai_responses::EFFORTS_UNASKED,
                ..openai_responses::REQUEST_SHAPE
            },
            ..openai_responses::PROFILE
        },
        Profile { provider: "openai", ..openai_completions::PROFILE },
        Profile { provider: "openai", ..openai_assistants::PROFILE },
    ],
    offered_elsewhere: true,
    opentelemetry: "openai",
    source: "openai 3.49.0; openai-openapi 2.3.0",
};
