//! A context overflow is detected by its message from any provider, since gateways pass on errors.

use endstop::provider::{self, Profile};
use endstop::{Ending, FaultKind, Head, Reason, RequestInfo, TransportEnd, Watcher};
use serde_json::{Value, json};

/// Messages from recordings, with numbers filled in, and from public issues, which are named.
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
    // OpenRouter and Baseten.
    "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "Input length (265330) exceeds model's maximum context length (262144).",
    // Volcengine Ark (agentscope-ai/QwenPaw#272).
    "Total tokens of image and text exceed max message tokens. Request id: 0217",
    "Prompt has 256468 tokens, but the configured context size is 256000 tokens",
    // vLLM (vllm-project/vllm#33425).
    "This model's maximum context length is 2048 tokens. However, your request has 8 input tokens plus 2045 'max_tokens'. Please reduce one or the other. (parameter=input_tokens, max_tokens, value=(8, 2045))",
    "This model's maximum context length is 3 tokens. However, your request has 8 input tokens. Please reduce the length of the input messages. (parameter=input_tokens, value=8)",
    // vLLM (vllm-project/vllm#10440, #12165, #4667).
    "Input prompt (36893 tokens) is too long and exceeds limit of 1000",
    "The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
    "The decoder prompt (length 10127) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens. For image inputs, the number of image tokens depends on the number of images, and possibly their aspect ratios as well.",
    "max_tokens must be at least 1, got -186.",
    // SGLang (sgl-project/sglang#8096, #4048).
    "The input (85050 tokens) is longer than the model's context length (32768 tokens).",
    "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
    // Transformers (sgl-project/sglang#7515).
    "Token indices sequence length is longer than the specified maximum sequence length for this model (16769 > 16384)",
    // TensorRT-LLM (triton-inference-server/tensorrtllm_backend#565, #141).
    "Prompt length (200) exceeds maximum input length (1)",
    "Cannot process new request: Prompt length (5056) exceeds maximum sequence length (2048)",
    "This model's maximum context length is 8191 tokens, however you requested 10346 tokens (10346 in your prompt; 5 for the completion). Please reduce your prompt; or completion length.",
    // SambaNova (OpenHands/OpenHands#9252).
    "The maximum context length of DeepSeek-V3-0324 is 32768. However, answering your request will take 39732 tokens. Please reduce the length of the messages or the specified max_completion_tokens value.",
    // Cerebras (cline/cline#5140).
    "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
    // Anthropic (stackblitz/bolt.new#7414).
    "input length and max_tokens exceed context limit: 90402 + 116650 > 204648, decrease input length or max_tokens and try again",
    // WasmEdge (second-state/WasmEdge-WASINN-examples#50).
    "Error: prompt too long (570 tokens, max 508)",
    // LiteLLM.
    "The input exceeds the model's maximum context limit of 8192 tokens.",
    "exceeds model context window",
    // SiliconFlow (langgenius/dify#19394).
    "length of prompt_tokens (57535) must be less than max_seq_len (32768).",
    // Moonshot (MoonshotAI/kimi-cli#2011, MoonshotAI/MoonshotAI-Cookbook#18).
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
    "model max length exceeded, max length:8192",
    // llama.cpp (ggml-org/llama.cpp#9544, #10030, #15780; gpustack/gpustack#1359).
    "Input is too large to process. Either disable context shift or increase context length.",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "input is larger than the max context size. skipping",
    "input is too large to process. increase the physical batch size",
    "decoding exceeds the available context size. try increasing the context size.",
    // Snowflake Cortex (posit-dev/positron#11737).
    "max tokens of 200000 exceeded",
    // Mistral (aurelio-labs/semantic-router#297).
    "Too many tokens in batch. Max is 16384 got 17555",
    // ERNIE (PaddlePaddle/ERNIE-SDK#336).
    "prompt tokens too long",
    // Alibaba (QwenLM/qwen-code#98).
    "InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
    // LMDeploy (InternLM/lmdeploy#1204).
    "exceed session max length. Please restart the session by reset button.",
    // MLX servers (ddalcu/mlx-serve#66, jundot/omlx#278, ValueCell-ai/ClawX#658).
    "Prompt exceeds maximum context length",
    "Context overflow: prompt too large for the model. Try /reset (or /new) to start a fresh session, or use a larger-context model.",
    "Prompt too long: 41911 tokens exceeds max context window of 32768 tokens",
    // MLC-LLM (mlc-ai/mlc-llm#2692).
    "Request prompt has 38726 tokens in total, larger than the model input length limit 8192.",
    // SambaNova (cline/cline#294).
    "Requested generation length 1 is not possible! The provided prompt is 4309 tokens long, so generating 1 tokens requires a sequence length of 4310, but the maximum supported sequence length is just 4096!",
    // GitHub Copilot (microsoft/vscode-copilot-release#1456, microsoft/copilot-intellij-feedback#1289).
    "Message exceeds token limit.",
    "Oops, the token limit exceeded. Try to shorten your prompt or start a new conversation.",
    // NVIDIA NIM (run-llama/llama_index#15180).
    "Input length exceeds maximum allowed token size 512",
    // vLLM (AIDotNet/OpenCowork#82).
    "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your prompt contains at least 134145 input tokens, for a total of at least 262145 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=134145)",
    // NovelAI (wAIfu-DEV/w-AI-fu#51).
    "ModelMaxLength: model 'euterpe-v2' has 2048 tokens maximum, 2584 tokens context requested",
    // ctransformers (AIAnytime/Zephyr-7B-beta-RAG-Demo#3).
    "Number of tokens (2662) exceeded maximum context length (512).",
    // ds4 (antirez/ds4#150).
    "Prompt tokens (9000) exceeds context size (8192)",
    // Bedrock (daisuke-awaji/moca#254).
    "The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum",
    "The input token count exceeds the maximum number of tokens allowed 1048576.",
    // Gateways (zimmra/openclaw).
    "Model context window is 128k tokens, you requested 256k tokens",
    "Context window exceeded: requested 12000 tokens",
    "Prompt too large for this model",
    "This model's maximum context length is 4096 tokens. However, you requested 4833 tokens (4433 in the messages, 400 in the completion). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.",
    // Transformers (yeyupiaoling/Chinese-LLM-Chat#3).
    "Input length of input_ids is 2400, but `max_length` is set to 2048.",
    "500 input length too long",
    // Baichuan (baichuan-inc/Baichuan-13B#38).
    "输入长度超过最大长度",
    // GPT4All (nomic-ai/gpt4all#664).
    "ERROR: The prompt size exceeds the context window size and cannot be processed.",
    // Cohere (cohere-ai/sandbox-topically#4).
    "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354. Try using a shorter prompt or a smaller max_tokens value.",
    // AI21 (stanford-crfm/helm#349).
    "Request too many tokens: 1999 + 50 > 2048",
    // ONNX Runtime (microsoft/onnxruntime-genai#1558).
    "input_ids size (3216) + current sequence length (0) exceeds max length (2048)",
    // Ollama (n8n-io/n8n#11144).
    "input length exceeds maximum context length",
    "Request prompt has 2354 tokens in total, larger than the model input length limit -80.",
    "Prompt is too long, max tokens supported is 226 or less, got 303",
    "The input tokens exceed the maximum length",
    "This model maximum context length is 4096 tokens.",
    "Requested tokens exceed context window of 512",
    "This model's maximum context length is 16384 tokens. However, your request has 18225 input tokens. Please reduce the length of the input messages. None",
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
    // Novita (NousResearch/hermes-agent#72375).
    (400, "max_tokens (98304) exceeds model's maximum output tokens (65536)"),
    // DeepInfra (HeyPuter/puter#3564).
    (
        400,
        "Upstream error from DeepInfra: max_tokens=131072 cannot be greater than max_model_len=max_total_tokens=28672. Please request fewer output tokens. (parameter=max_tokens, value=131072)",
    ),
    // Volcengine (langgenius/dify#14376).
    (
        400,
        "The parameter `max_tokens` specified in the request are not valid: integer above maximum value, expected a value <= 4096, but got 8192 instead.",
    ),
    (
        400,
        "The parameter max_tokens specified in the request are not valid: max_tokens and max_completion_tokens cannot be set at the same time. Request id: xxx",
    ),
    (400, "Range of max_tokens should be [1, 8192]"),
    (
        400,
        "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for claude-3-7-sonnet-20250219",
    ),
    (
        400,
        "Validation Error: string too long. expected a string with maximum length 10485760, but got a string with length 20000000 instead.",
    ),
    (400, "context deadline exceeded"),
    (
        400,
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 9012345 bytes > 5242880 bytes",
    ),
    (400, "Request exceeds the maximum size"),
    (
        400,
        "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation",
    ),
    (400, "request entity too large"),
    // Groq (RooCodeInc/Roo-Code#5729).
    (
        400,
        "max_tokens must be less than or equal to 16384, the maximum value for max_tokens is less than the context_window for this model",
    ),
    (
        400,
        "413 Request too large for model moonshotai/kimi-k2-instruct in organization org_x service tier on_demand on tokens per minute (TPM): Limit 10000, Requested 21247, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
    ),
    // Databricks (databricks/databricks-sdk-go#1183).
    (
        400,
        "Bad request: rpc error: code = InvalidArgument desc = max_tokens (10000) cannot exceed 8192. Please reduce the length of max output tokens generated.",
    ),
    // Bedrock (aws-samples/bedrock-access-gateway#41, charmbracelet/crush#946).
    (
        400,
        "The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens value that is lower than 2048.",
    ),
    (400, "The maximum tokens you requested exceeds the model limit of 32768"),
    // Cloudflare (anomalyco/models.dev#5824).
    (
        400,
        "AiError 400 max_completion_tokens is too large: 1298829. This model supports at most 1048576",
    ),
    // Azure (vanderschaarlab/climb#1).
    (
        400,
        "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-08-01-preview have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 86400 seconds.",
    ),
    (400, "request reached organization TPD rate limit, current: 1506556, limit: 1500000"),
    (400, "This request would exceed your account's rate limit"),
    (400, "response exceeded output token maximum"),
    (400, "Model context window too small (minimum is 128k tokens)"),
    (
        400,
        "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.",
    ),
    (
        400,
        "messages.1.content.0.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels",
    ),
    (400, "Request exceeds the maximum size of 32 MB"),
    (
        400,
        "Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1234567 instead.",
    ),
    (400, "Invalid 'input': maximum array length exceeded"),
    (400, "Too many tools: 200 exceeds the maximum of 128"),
    (400, "The model is overloaded. Too many requests in queue"),
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
