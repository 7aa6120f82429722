//! LM Studio: `tool_calls` sometimes comes without calls; a full context window gives an empty
//! stream.

use super::{Auth, Profile, Provider};
use crate::dialect::{openai_chat, openai_completions};
use crate::next_request::{ForcedTool, RequestShape};

/// LM Studio.
pub static LMSTUDIO: Provider = Provider {
    id: "lmstudio",
    aliases: &["lm-studio"],
    title: "LM Studio",
    route: "lmstudio",
    hosts: &["localhost:1234", "127.0.0.1:1234"],
    base_url: "http://127.0.0.1:1234/v1",
    auth: Auth::Open,
    key_variables: &["LM_API_TOKEN"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "lmstudio",
        caps: openai_chat::OLD_CAP,
        request_shape: RequestShape { forced_tools: FORCED_TOOLS, ..openai_chat::REQUEST_SHAPE },
        ..openai_chat::PROFILE
    },
    others: &[Profile { provider: "lmstudio", ..openai_completions::PROFILE }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "lmstudio-ai/docs @c6854fb; lmstudio-bug-tracker#2339; anomalyco/opencode#5139",
};

/// Forced tools. `tool_choice` must be a string, so it cannot name a tool
/// (lmstudio-ai/lmstudio-bug-tracker#670).
static FORCED_TOOLS: &[ForcedTool] = &[ForcedTool {
    tools: "tools",
    field: "tool_choice",
    value: |_| serde_json::json!("required"),
    models: &[],
    restrictions: &[],
}];
