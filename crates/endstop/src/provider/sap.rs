//! SAP AI Core: orchestration, and the wires of the models that it hosts.

use super::{Auth, Profile, Provider};
use crate::dialect::{bedrock_converse, openai_chat, sap_orchestration};
use crate::fault::pattern::message;
use crate::fault::{ErrorPattern, FaultKind};

/// SAP AI Core.
pub static SAP: Provider = Provider {
    id: "sap",
    aliases: &["sap-ai-core", "aicore"],
    title: "SAP AI Core",
    route: "sap",
    hosts: &["api.ai.*.*.*.ml.hana.ondemand.com"],
    // Each customer has a separate address.
    base_url: "",
    auth: Auth::Bearer,
    key_variables: &["AICORE_SERVICE_KEY"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[],
    main: Profile { provider: "sap", error_patterns: ERROR_PATTERNS, ..sap_orchestration::PROFILE },
    others: &[
        Profile { provider: "sap", ..openai_chat::PROFILE },
        Profile { provider: "sap", ..bedrock_converse::PROFILE },
    ],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "SAP/ai-sdk-js @42429d1",
};

/// Messages of the filtering module.
static ERROR_PATTERNS: &[ErrorPattern] = &[
    message("prompt filtered", FaultKind::Filter),
    message("content filtered", FaultKind::Filter),
];
