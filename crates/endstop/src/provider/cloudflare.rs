//! Cloudflare Workers AI: OpenAI's wire under a path with the account id.

use super::{Auth, Profile, Provider};
use crate::dialect::{cloudflare, openai_chat};

/// Cloudflare Workers AI.
pub static CLOUDFLARE: Provider = Provider {
    id: "cloudflare",
    aliases: &["workers-ai", "cloudflare-workers-ai"],
    title: "Cloudflare Workers AI",
    route: "cloudflare",
    hosts: &["api.cloudflare.com"],
    base_url: "https://api.cloudflare.com/client/v4/accounts/{account_id}/ai/v1",
    auth: Auth::Bearer,
    key_variables: &["CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &["cf-ray"],
    sdk_urls: &[],
    main: Profile { provider: "cloudflare", caps: openai_chat::OLD_CAP, ..openai_chat::PROFILE },
    others: &[Profile { provider: "cloudflare", ..cloudflare::PROFILE }],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "recorded, maruel/genai and others",
};
