//! IBM watsonx: text generation, OpenAI-style chat, and IBM's older research service.

use super::{Auth, Profile, Provider};
use crate::dialect::{Proof, Words, openai_chat, watsonx};
use crate::ending::Reason;

/// IBM watsonx.
pub static WATSONX: Provider = Provider {
    id: "watsonx",
    aliases: &["ibm", "ibm-bam"],
    title: "IBM watsonx",
    route: "watsonx",
    hosts: &["*.ml.cloud.ibm.com", "bam-api.res.ibm.com"],
    base_url: "https://{region}.ml.cloud.ibm.com",
    auth: Auth::Bearer,
    key_variables: &["WATSONX_APIKEY", "WATSONX_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile { provider: "watsonx", ..watsonx::PROFILE },
    others: &[Profile {
        provider: "watsonx",
        paths: &["/ml/v1/text/chat", "/chat/completions"],
        words: CHAT,
        // No end marker is documented.
        proof: Proof::Word,
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "ibm.watsonx.ai",
    source: "@ibm-cloud/watsonx-ai 1.7.16",
};

static CHAT: &[Words] = &[Words::plain(
    "finish_reason",
    "choices[].finish_reason",
    &[
        ("time_limit", Reason::TimedOut),
        ("cancelled", Reason::Cancelled),
        ("error", Reason::Failed),
    ],
)];
