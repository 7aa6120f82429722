//! Replicate: predictions of any model.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::replicate;

/// Replicate.
pub static REPLICATE: Provider = Provider {
    id: "replicate",
    aliases: &[],
    title: "Replicate",
    route: "replicate",
    hosts: &["api.replicate.com", "streaming.api.replicate.com"],
    base_url: "https://api.replicate.com/v1",
    auth: Auth::Bearer,
    key_variables: &["REPLICATE_API_TOKEN"],
    key_prefixes: &["r8_"],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::variable("REPLICATE_BASE_URL", "", &["replicate"]),
        SdkUrl::argument("baseUrl", "/v1", &["replicate (npm)"]),
    ],
    main: Profile { provider: "replicate", ..replicate::PROFILE },
    others: &[],
    offered_elsewhere: false,
    opentelemetry: "",
    source: "replicate 1.0.7",
};
