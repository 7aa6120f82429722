//! Amazon Bedrock: Converse for every model, `InvokeModel` for Claude's own wire.

use super::{Profile, Provider};
use crate::dialect::{anthropic, bedrock_converse, openai_chat, openai_responses};
use crate::frame::Framing;

/// Amazon Bedrock.
pub static BEDROCK: Provider = Provider {
    id: "bedrock",
    aliases: &["aws", "amazon-bedrock", "bedrock-mantle"],
    title: "Amazon Bedrock",
    hosts: &["bedrock-runtime.*.amazonaws.com", "bedrock-mantle.*.api.aws"],
    main: Profile { provider: "bedrock", ..bedrock_converse::PROFILE },
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
