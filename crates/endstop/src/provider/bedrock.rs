//! Amazon Bedrock: Converse for every model, `InvokeModel` for Claude's own wire.

use super::{Auth, Profile, Provider};
use crate::dialect::{anthropic, bedrock_converse, openai_chat, openai_responses};
use crate::frame::Framing;

/// Amazon Bedrock.
pub static BEDROCK: Provider = Provider {
    id: "bedrock",
    aliases: &["aws", "amazon-bedrock", "bedrock-mantle"],
    title: "Amazon Bedrock",
    hosts: &["bedrock-runtime.*.amazonaws.com", "bedrock-mantle.*.api.aws"],
    base_url: "https://bedrock-runtime.{region}.amazonaws.com",
    auth: Auth::SigV4,
    key_variables: &["AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"],
    url_variables: &["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"],
    main: Profile { provider: "bedrock", resume: anthropic::CLAUDE, ..bedrock_converse::PROFILE },
    others: &[
        Profile {
            provider: "bedrock",
            paths: &["anthropic*/invoke"],
            framing: Framing::AwsChunks,
            signs: bedrock_converse::SIGNS,
            ..anthropic::PROFILE
        },
        Profile { provider: "bedrock", ..openai_chat::PROFILE },
        Profile { provider: "bedrock", ..openai_responses::PROFILE },
    ],
    source: "botocore 1.44.0; anthropic 2.8.0 lib/bedrock",
};
