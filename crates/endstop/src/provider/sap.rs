//! SAP AI Core: orchestration, and the wires of the models that it hosts.

use super::{Auth, Profile, Provider};
use crate::dialect::{bedrock_converse, openai_chat, sap_orchestration};

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
    main: Profile { provider: "sap", ..sap_orchestration::PROFILE },
    others: &[
        Profile { provider: "sap", ..openai_chat::PROFILE },
        Profile { provider: "sap", ..bedrock_converse::PROFILE },
    ],
    offered_elsewhere: false,
    source: "SAP/ai-sdk-js @42429d1",
};
