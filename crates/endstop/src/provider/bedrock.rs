//! Amazon Bedrock: Converse for every model, `InvokeModel` for each family's own wire.

use super::{Auth, Profile, Provider, SdkUrl};
use crate::dialect::{
    Proof, Words, anthropic, anthropic_complete, bedrock_ai21, bedrock_cohere, bedrock_converse,
    bedrock_llama, bedrock_mistral, bedrock_nova, bedrock_titan, cohere_v1, openai_chat,
    openai_completions, openai_responses, tgi,
};
use crate::ending::Reason;
use crate::frame::Framing;

/// Amazon Bedrock.
pub static BEDROCK: Provider = Provider {
    id: "bedrock",
    aliases: &["aws", "amazon-bedrock", "bedrock-mantle"],
    title: "Amazon Bedrock",
    route: "bedrock",
    hosts: &[
        "bedrock-runtime.*.amazonaws.com",
        "bedrock-runtime-fips.*.amazonaws.com",
        "bedrock-runtime.*.amazonaws.com.cn",
        "bedrock-mantle.*.api.aws",
    ],
    base_url: "https://bedrock-runtime.{region}.amazonaws.com",
    auth: Auth::SigV4 { region_variables: &["AWS_REGION", "AWS_DEFAULT_REGION"] },
    key_variables: &["AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"],
    key_prefixes: &["AKIA", "ASIA", "bedrock-api-key-", "ABSK"],
    id_prefixes: &[],
    request_id_headers: &["x-amzn-requestid"],
    sdk_urls: &[
        SdkUrl::variable(
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
            "/{region}",
            &["boto3", "@aws-sdk/client-bedrock-runtime (npm)"],
        ),
        SdkUrl::variable(
            "ANTHROPIC_BEDROCK_BASE_URL",
            "/{region}",
            &["anthropic.AnthropicBedrock", "@anthropic-ai/bedrock-sdk (npm)"],
        ),
    ],
    main: Profile { provider: "bedrock", resume: anthropic::CLAUDE, ..bedrock_converse::PROFILE },
    others: &[
        Profile {
            provider: "bedrock",
            paths: &["anthropic*/invoke"],
            framing: Framing::AwsChunks,
            error_patterns: bedrock_converse::ERROR_PATTERNS,
            ..anthropic::PROFILE
        },
        Profile {
            provider: "bedrock",
            paths: &["anthropic.claude-v2*/invoke", "anthropic.claude-instant*/invoke"],
            framing: Framing::AwsChunks,
            words: CLAUDE_2,
            error_patterns: bedrock_converse::ERROR_PATTERNS,
            ..anthropic_complete::PROFILE
        },
        Profile { provider: "bedrock", ..bedrock_nova::PROFILE },
        Profile { provider: "bedrock", ..bedrock_titan::PROFILE },
        Profile { provider: "bedrock", ..bedrock_llama::PROFILE },
        Profile { provider: "bedrock", ..bedrock_mistral::PROFILE },
        Profile { provider: "bedrock", ..bedrock_cohere::PROFILE },
        Profile {
            provider: "bedrock",
            paths: &["cohere.command-r*/invoke"],
            framing: Framing::AwsChunks,
            error_patterns: bedrock_converse::ERROR_PATTERNS,
            ..cohere_v1::PROFILE
        },
        Profile { provider: "bedrock", ..bedrock_ai21::PROFILE },
        Profile { provider: "bedrock", ..openai_chat::PROFILE },
        // These streams have no end marker. They end with a chunk of metrics or with nothing.
        Profile {
            provider: "bedrock",
            // Every newer family sends chat completions, so any other model does too.
            paths: &["ai21.jamba*/invoke", "openai.gpt*/invoke", "qwen*/invoke", "*/invoke"],
            framing: Framing::AwsChunks,
            proof: Proof::Word,
            error_patterns: bedrock_converse::ERROR_PATTERNS,
            ..openai_chat::PROFILE
        },
        // Marketplace models behind a SageMaker endpoint.
        Profile {
            provider: "bedrock",
            paths: &["sagemaker*/invoke"],
            framing: Framing::AwsChunks,
            proof: Proof::Word,
            error_patterns: bedrock_converse::ERROR_PATTERNS,
            ..openai_completions::PROFILE
        },
        Profile { provider: "bedrock", ..openai_responses::PROFILE },
        // SageMaker itself, which passes on the wire of the model's server.
        Profile { provider: "bedrock", paths: &["/invocations"], ..tgi::PROFILE },
    ],
    offered_elsewhere: false,
    opentelemetry: "aws.bedrock",
    source: "botocore 1.44.0; anthropic 2.8.0 lib/bedrock; opentelemetry-instrumentation-botocore 0.66b2",
};

/// Finish reason that Claude 2 sends only on the newer of its two wires. One path serves both.
static CLAUDE_2: &[Words] =
    &[Words::plain("stop_reason", "delta.stop_reason", &[("end_turn", Reason::Complete)])];
