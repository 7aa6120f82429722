//! Google AI Studio: Gemini through `generateContent` and through interactions.

use super::{
    Auth, NO_QUIRKS, Profile, Provider, Quirks, Resume, ResumeRule, Role, SdkUrl, TRAILING,
};
use crate::dialect::{Words, gemini, gemini_interactions};

/// Google AI Studio.
pub static GOOGLE: Provider = Provider {
    id: "google",
    aliases: &["gemini", "google-ai-studio"],
    title: "Google AI Studio",
    route: "gemini",
    hosts: &["generativelanguage.googleapis.com"],
    base_url: "https://generativelanguage.googleapis.com",
    auth: Auth::HeaderOrQuery("x-goog-api-key", "key"),
    key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    key_prefixes: &["AIza", "ya29."],
    id_prefixes: &[],
    request_id_headers: &["x-goog-request-id"],
    sdk_urls: &[
        SdkUrl::variable("GOOGLE_GEMINI_BASE_URL", "", &["google-genai", "@google/genai (npm)"]),
        SdkUrl::argument("baseURL", "/v1beta", &["@ai-sdk/google (npm)"]),
        SdkUrl::variable("GEMINI_API_BASE", "/v1beta", &["litellm"]),
    ],
    main: Profile {
        provider: "google",
        words: NUMBERS,
        quirks: Quirks { reasoning_beside_output: true, ..NO_QUIRKS },
        resume: GEMINI,
        notes: &["integers from 6 on: LANGUAGE, BLOCKLIST, PROHIBITED_CONTENT, SPII, \
            MALFORMED_FUNCTION_CALL; Vertex numbers them differently"],
        ..gemini::PROFILE
    },
    others: &[Profile {
        provider: "google",
        quirks: Quirks { reasoning_beside_output: true, ..NO_QUIRKS },
        resume: &[ResumeRule::always(Resume::Token(gemini_interactions::PREVIOUS))],
        ..gemini_interactions::PROFILE
    }],
    offered_elsewhere: false,
    opentelemetry: "gcp.gemini",
    source: "google-ai-generativelanguage 0.12.1; google-genai 3.1.0",
};

/// Integer values, as protocol buffer clients and raw dumps show them. Vertex assigns 6 to 10
/// differently.
static NUMBERS: &[Words] = &[
    Words {
        numbers: &[
            (0, "FINISH_REASON_UNSPECIFIED"),
            (1, "STOP"),
            (2, "MAX_TOKENS"),
            (3, "SAFETY"),
            (4, "RECITATION"),
            (5, "OTHER"),
            (6, "LANGUAGE"),
            (7, "BLOCKLIST"),
            (8, "PROHIBITED_CONTENT"),
            (9, "SPII"),
            (10, "MALFORMED_FUNCTION_CALL"),
            (11, "IMAGE_SAFETY"),
            (12, "UNEXPECTED_TOOL_CALL"),
            (13, "TOO_MANY_TOOL_CALLS"),
            (14, "IMAGE_PROHIBITED_CONTENT"),
            (15, "IMAGE_OTHER"),
            (16, "NO_IMAGE"),
            (17, "IMAGE_RECITATION"),
        ],
        ..Words::plain("finishReason", "candidates[].finishReason", &[])
    },
    Words {
        numbers: &[
            (0, "BLOCK_REASON_UNSPECIFIED"),
            (1, "SAFETY"),
            (2, "OTHER"),
            (3, "BLOCKLIST"),
            (4, "PROHIBITED_CONTENT"),
            (5, "IMAGE_SAFETY"),
        ],
        ..Words::plain("blockReason", "promptFeedback.blockReason", &[])
    },
];

/// Resume rules. Gemini 4 returns a token. Versions 2 and 3 to 3.1 continue a trailing turn of the
/// model; newer versions reject it (pipecat-ai/pipecat#5821, the more careful of two tables).
pub(super) static GEMINI: &[ResumeRule] = &[
    ResumeRule::for_models(&["gemini-4"], Resume::Token(gemini::CONTINUATION)),
    ResumeRule::for_models(
        &["gemini-2.", "gemini-3-", "gemini-3.1-", "gemini-pro-latest"],
        Resume::Prefill(TRAILING),
    ),
    ResumeRule::always(Resume::Hint(Role::User)),
];
