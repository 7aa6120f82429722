//! Writer: OpenAI's wire on its own path.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::openai_chat;

/// Writer.
pub static WRITER: Provider = Provider {
    id: "writer",
    aliases: &["palmyra"],
    title: "Writer",
    route: "writer",
    hosts: &["api.writer.com"],
    base_url: "https://api.writer.com/v1",
    auth: Auth::Bearer,
    key_variables: &["WRITER_API_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[SdkUrl::variable("WRITER_BASE_URL", "", &["writer-sdk", "writer-sdk (npm)"])],
    main: Profile {
        provider: "writer",
        paths: &["/v1/chat", "/chat/completions"],
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "writer-sdk; recorded, traceloop/openllmetry",
};
