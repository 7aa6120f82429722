//! A context overflow is detected by its message from any provider, since gateways pass on errors.

use endstop::provider::{self, Profile};
use endstop::{Ending, FaultKind, Head, Reason, RequestInfo, TransportEnd, Watcher};
use serde_json::{Value, json};

/// Messages from recordings, with numbers filled in.
const OVERFLOWS: &[&str] = &[
    "prompt is too long: 213456 tokens > 200000 maximum",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 140210 tokens (138210 of text input, 2000 in the output). Please reduce the length of either one.",
    "This model's maximum context length is 8192 tokens. However, you requested 9120 tokens (8120 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "The input token count exceeds the maximum number of tokens allowed (1048576).",
    "too many tokens: size limit exceeded by 1234 tokens. Try using shorter or fewer inputs.",
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300012 tokens. Please reduce the length of the messages.",
    "Input is too long for requested model.",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "User input tokens exceeds 128000 tokens.",
    "The total length of all messages is too long.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
    "Please reduce the length of the messages or completion.",
    "prompt too long; exceeded max context length by 512 tokens",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    // vLLM, and hosts that run it.
    "You passed 8000 input tokens and requested 1000 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 7192 tokens. Please reduce the length of the input prompt.",
    "The decoder prompt (length 9000) is too long to fit into the model (context length 8192).",
    // Vertex AI.
    "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576. Reduce the input token count and try again.",
    // GitHub Copilot.
    "prompt token count of 140000 exceeds the limit of 128000",
    // llama-cpp-python.
    "Requested tokens (5000) exceed context window of 4096",
    // Ollama with `truncate: false`.
    "the input length exceeds the context length",
    // watsonx.
    "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
    // Cloudflare, code 5021.
    "AiError: The estimated number of input and maximum output tokens (9000) exceeded this model context window limit (8192).",
    // LM Studio.
    "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input",
    // Z.AI, without its code.
    "Prompt exceeds max length",
    // Cohere.
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt.",
    "Input is too long",
    // SGLang.
    "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input or enable --allow-auto-truncate.",
    // GitHub Models, with HTTP 413.
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "context length exceeded",
    "litellm.ContextWindowExceededError: the request does not fit",
];

/// Messages about tokens, lengths and limits that are not overflows, with their HTTP status.
const OTHERS: &[(u16, &str)] = &[
    (
        429,
        "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2500. Please try again in 3s.",
    ),
    (
        429,
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 31000. The input or output tokens must be reduced in order to run successfully.",
    ),
    (
        413,
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_x` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 15000, please reduce your message size and try again.",
    ),
    (
        429,
        "This request would exceed your organization's rate limit of 40,000 input tokens per minute.",
    ),
    (429, "Number of request tokens has exceeded your per-minute rate limit"),
    (429, "Too many tokens per day, please wait before trying again."),
    (429, "Tokens per minute limit exceeded - too many tokens processed."),
    (
        400,
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
    ),
    (
        400,
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4",
    ),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 200000. This model's maximum context length is 131072 tokens and your request has 9 input tokens (200000 > 131072 - 9).",
    ),
    (
        400,
        "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
    ),
    (429, "Too many tokens, please wait before trying again."),
    (
        400,
        "`max_completion_tokens` must be less than or equal to `32768`, the maximum value for this model",
    ),
    (
        400,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
    ),
    (
        402,
        "This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can only afford 1234.",
    ),
    (429, "You exceeded your current quota, please check your plan and billing details."),
    (
        400,
        "Invalid 'messages[0].name': string too long. Expected a string with maximum length 64, but got a string with length 80 instead.",
    ),
    (
        400,
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 2000 instead.",
    ),
    (400, "messages: array too long. Expected an array with maximum length 2048."),
    (400, "The audio input is too long. Maximum 1500 seconds"),
];

/// Returns the OpenAI-compatible wires of every provider.
fn openai_shaped() -> Vec<&'static Profile> {
    let shaped = ["openai-chat", "openai-completions", "openai-responses"];
    let wires = provider::ALL.iter().flat_map(|provider| provider.wires());
    wires.filter(|wire| shaped.contains(&wire.dialect.id)).collect()
}

/// Returns the error without a code, as a body and as a frame, with and without a status.
fn forms(
    wire: &Profile,
    status: u16,
    message: &str,
) -> Vec<(&'static str, u16, &'static str, Vec<u8>)> {
    let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
    let bare = json!({"error": {"message": message}});
    let body = |error: &Value| error.to_string().into_bytes();
    let sse = "text/event-stream";
    let mut forms = vec![
        ("body", status, "application/json", body(&error)),
        ("bare body", status, "application/json", body(&bare)),
        ("body with status 200", 200, "application/json", body(&error)),
        ("body without a status", 0, "application/json", body(&error)),
    ];
    if wire.framing == endstop::dialect::Framing::Sse {
        let frame = |error: &Value| format!("{}data: {error}\n\n", first(wire)).into_bytes();
        forms.push(("frame", 200, sse, frame(&error)));
        forms.push(("bare frame", 200, sse, frame(&bare)));
        if wire.dialect.id == "openai-responses" {
            let event = json!({"type": "error", "code": null, "message": message, "param": null});
            forms.push(("error event", 200, sse, frame(&event)));
            let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": null, "message": message}}});
            forms.push(("failed response", 200, sse, frame(&failed)));
        }
    }
    forms
}

/// Returns an event of the wire that precedes the error.
fn first(wire: &Profile) -> String {
    let event = match wire.dialect.id {
        "openai-chat" => json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}),
        "openai-completions" => json!({"choices": [{"index": 0, "text": ""}]}),
        _ => json!({"type": "response.created", "response": {"status": "in_progress"}}),
    };
    format!("data: {event}\n\n")
}

fn read(wire: &Profile, status: u16, content_type: &str, bytes: &[u8]) -> Ending {
    let mut reader = Watcher::new(wire, Head { status, content_type }, RequestInfo::default());
    reader.watch(bytes);
    reader.finish(TransportEnd::Eof)
}

fn is_overflow(ending: &Ending) -> bool {
    let kind = ending.fault.as_ref().map(|fault| fault.kind);
    ending.reason == Reason::ContextLimit && kind == Some(FaultKind::ContextWindow)
}

#[test]
fn every_overflow_is_one_at_every_host() {
    let mut missed = Vec::new();
    let mut tried = 0;
    for wire in openai_shaped() {
        for message in OVERFLOWS {
            for (form, status, content_type, bytes) in forms(wire, 400, message) {
                let ending = read(wire, status, content_type, &bytes);
                tried += 1;
                if !is_overflow(&ending) {
                    missed.push(format!(
                        "{} {} {form}: {message}: {:?}",
                        wire.provider, wire.dialect.id, ending.fault
                    ));
                }
            }
        }
    }
    println!("{} of {tried} overflows recognised", tried - missed.len());
    let shown: Vec<&str> = missed.iter().take(20).map(String::as_str).collect();
    assert!(missed.is_empty(), "{} of {tried} missed:\n{}", missed.len(), shown.join("\n"));
}

#[test]
fn what_only_looks_like_an_overflow_is_none() {
    let mut wrong = Vec::new();
    for wire in openai_shaped() {
        for (status, message) in OTHERS {
            for (form, status, content_type, bytes) in forms(wire, *status, message) {
                let ending = read(wire, status, content_type, &bytes);
                if is_overflow(&ending) || ending.reason.is_success() {
                    wrong.push(format!(
                        "{} {} {form} {status}: {message}: {:?}",
                        wire.provider, wire.dialect.id, ending.fault
                    ));
                }
            }
        }
    }
    let shown: Vec<&str> = wrong.iter().take(20).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), shown.join("\n"));
}

/// "credit balance is too low" has the same kind from any provider.
#[test]
fn a_low_balance_is_a_matter_of_quota() {
    let message = "Your credit balance is too low to access the Anthropic API.";
    let everyone = provider::ALL.iter().flat_map(|provider| provider.wires());
    for wire in everyone {
        let error = json!({"error": {"type": "invalid_request_error", "message": message}});
        let ending = read(wire, 400, "application/json", error.to_string().as_bytes());
        let kind = ending.fault.as_ref().map(|fault| fault.kind);
        assert_eq!(kind, Some(FaultKind::Quota), "{} {}", wire.provider, wire.dialect.id);
    }
}

/// A message alone is an error if the HTTP status is not known.
#[test]
fn a_bare_message_is_an_error_unless_the_status_says_otherwise() {
    let reason = |status, body: &str| {
        let head = Head { status, content_type: "application/json" };
        let mut watcher = Watcher::new(&provider::COHERE, head, RequestInfo::default());
        watcher.watch(body.as_bytes());
        watcher.finish(TransportEnd::Eof).reason
    };
    let (bare, beside) = (r#"{"id":"x","message":"odd"}"#, r#"{"message":"odd","answer":"a"}"#);
    assert_eq!((reason(0, bare), reason(400, bare)), (Reason::Failed, Reason::Failed));
    assert_eq!((reason(200, bare), reason(0, beside)), (Reason::Unknown, Reason::Unknown));
}
