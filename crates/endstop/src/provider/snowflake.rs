//! Snowflake Cortex: no finish reason, but an end marker.

use super::{Auth, Profile, Provider};
use crate::dialect::openai_chat;

/// Snowflake Cortex.
///
/// The finish reason is empty or its key is absent (recorded, pydantic/pydantic-ai, 7 of 8 plain
/// and 2 of 2 streamed). The end marker always came: a stream without it is truncated, and a stream
/// with it ended without a reason.
pub static SNOWFLAKE: Provider = Provider {
    id: "snowflake",
    aliases: &["cortex", "snowflake-cortex"],
    title: "Snowflake Cortex",
    route: "snowflake",
    // An account, or an account locator with its region and cloud.
    hosts: &[
        "*.snowflakecomputing.com",
        "*.*.snowflakecomputing.com",
        "*.*.*.snowflakecomputing.com",
    ],
    base_url: "https://{account}.snowflakecomputing.com/api/v2/cortex/v1",
    auth: Auth::Bearer,
    key_variables: &["SNOWFLAKE_PAT"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile { provider: "snowflake", ..openai_chat::PROFILE },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "recorded, pydantic/pydantic-ai; Cortex REST API documentation",
};
