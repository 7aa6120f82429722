//! Snowflake Cortex: says nothing of why it ended, but sends the marker.

use super::{Auth, Profile, Provider};
use crate::dialect::openai_chat;

/// Snowflake Cortex.
///
/// The word is empty, or its key is absent (recorded, pydantic/pydantic-ai, 7 of 8 plain and 2 of 2
/// streamed). The marker always came, so that its absence is a cut and its presence an end without
/// a reason.
pub static SNOWFLAKE: Provider = Provider {
    id: "snowflake",
    aliases: &["cortex", "snowflake-cortex"],
    title: "Snowflake Cortex",
    route: "snowflake",
    // An account, or an account's locator with its region and cloud.
    hosts: &[
        "*.snowflakecomputing.com",
        "*.*.snowflakecomputing.com",
        "*.*.*.snowflakecomputing.com",
    ],
    base_url: "https://{account}.snowflakecomputing.com/api/v2/cortex/v1",
    auth: Auth::Bearer,
    key_variables: &["SNOWFLAKE_PAT"],
    url_variables: &[],
    main: Profile { provider: "snowflake", ..openai_chat::PROFILE },
    others: &[],
    source: "recorded, pydantic/pydantic-ai; Cortex REST API documentation",
};
