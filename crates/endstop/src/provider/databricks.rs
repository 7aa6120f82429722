//! Databricks: serving endpoints, on OpenAI's path or on the endpoint's own path.

use super::{Auth, Profile, Provider};
use crate::dialect::openai_chat;
use crate::fault::pattern::name;
use crate::fault::{ErrorPattern, FaultKind};

/// Databricks.
pub static DATABRICKS: Provider = Provider {
    id: "databricks",
    aliases: &["mosaic"],
    title: "Databricks",
    route: "databricks",
    hosts: &[
        "*.cloud.databricks.com",
        "*.*.gcp.databricks.com",
        "*.azuredatabricks.net",
        // Workspace address: `adb-<workspace>.<number>.azuredatabricks.net`.
        "*.*.azuredatabricks.net",
    ],
    base_url: "https://{workspace}/serving-endpoints",
    auth: Auth::Bearer,
    key_variables: &["DATABRICKS_TOKEN"],
    key_prefixes: &["dapi"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile {
        provider: "databricks",
        paths: &["/chat/completions", "/serving-endpoints/*/invocations"],
        error_patterns: ERROR_PATTERNS,
        caps: openai_chat::OLD_CAP,
        ..openai_chat::PROFILE
    },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "databricks-sdk 0.162.0",
};

static ERROR_PATTERNS: &[ErrorPattern] = &[
    name("REQUEST_LIMIT_EXCEEDED", FaultKind::RateLimit),
    name("TEMPORARILY_UNAVAILABLE", FaultKind::Overloaded),
    name("RESOURCE_DOES_NOT_EXIST", FaultKind::NotFound),
];
