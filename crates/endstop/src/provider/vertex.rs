//! Google Vertex AI: Gemini, and Claude through `rawPredict`.

use super::google::GEMINI;
use super::{Auth, NO_QUIRKS, Profile, Provider, Quirks, SdkUrl};
use crate::dialect::{Words, anthropic, gemini, openai_chat};

/// Google Vertex AI.
pub static VERTEX: Provider = Provider {
    id: "vertex",
    aliases: &["google-vertex", "vertexai", "vertex_ai"],
    title: "Google Vertex AI",
    route: "vertex",
    hosts: &["aiplatform.googleapis.com", "*-aiplatform.googleapis.com", "*.*.rep.googleapis.com"],
    base_url: "https://{location}-aiplatform.googleapis.com",
    auth: Auth::Bearer,
    key_variables: &["GOOGLE_APPLICATION_CREDENTIALS"],
    key_prefixes: &[],
    id_prefixes: &[],
    request_id_headers: &[],
    sdk_urls: &[
        SdkUrl::variable(
            "GOOGLE_VERTEX_BASE_URL",
            "/{location}",
            &["google-genai Vertex", "@google/genai Vertex (npm)"],
        ),
        SdkUrl::variable(
            "ANTHROPIC_VERTEX_BASE_URL",
            "/{location}/v1",
            &["anthropic.AnthropicVertex", "@anthropic-ai/vertex-sdk (npm)"],
        ),
    ],
    main: Profile {
        provider: "vertex",
        words: NUMBERS,
        quirks: Quirks { reasoning_beside_output: true, ..NO_QUIRKS },
        resume: GEMINI,
        // The longer patterns distinguish it from AI Studio if only the path is known.
        paths: &[
            ":generateContent",
            ":streamGenerateContent",
            "/projects/*/locations/*:generateContent",
            "/projects/*/locations/*:streamGenerateContent",
        ],
        notes: &["integers from 6 on: BLOCKLIST, PROHIBITED_CONTENT, SPII, \
            MALFORMED_FUNCTION_CALL, MODEL_ARMOR; AI Studio numbers them differently"],
        ..gemini::PROFILE
    },
    others: &[
        Profile {
            provider: "vertex",
            paths: &[":rawPredict", ":streamRawPredict"],
            ..anthropic::PROFILE
        },
        Profile { provider: "vertex", ..openai_chat::PROFILE },
    ],
    offered_elsewhere: false,
    opentelemetry: "gcp.vertex_ai",
    source: "google-cloud-aiplatform 2.6.0; discovery document 20261106; anthropic 2.8.0 lib/vertex",
};

/// Integer values. AI Studio assigns 6 to 10 differently.
static NUMBERS: &[Words] = &[
    Words {
        numbers: &[
            (0, "FINISH_REASON_UNSPECIFIED"),
            (1, "STOP"),
            (2, "MAX_TOKENS"),
            (3, "SAFETY"),
            (4, "RECITATION"),
            (5, "OTHER"),
            (6, "BLOCKLIST"),
            (7, "PROHIBITED_CONTENT"),
            (8, "SPII"),
            (9, "MALFORMED_FUNCTION_CALL"),
            (10, "MODEL_ARMOR"),
        ],
        ..Words::plain("finishReason", "candidates[].finishReason", &[])
    },
    Words {
        numbers: &[
            (0, "BLOCKED_REASON_UNSPECIFIED"),
            (1, "SAFETY"),
            (2, "OTHER"),
            (3, "BLOCKLIST"),
            (4, "PROHIBITED_CONTENT"),
            (5, "MODEL_ARMOR"),
            (6, "JAILBREAK"),
        ],
        ..Words::plain("blockReason", "promptFeedback.blockReason", &[])
    },
];
