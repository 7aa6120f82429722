//! One event with a piece of text, as each wire sends it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::frame::aws;
use endstop::provider::{self, Profile, Provider};

/// Pieces of text, with the characters that JSON escapes and those of several bytes.
pub(crate) const WORDS: &[&str] =
    &[" the", " Quantität", " 模型", "ing", " answer", r#" \"so\""#, r".\n", " of", " tokens", ","];

/// The events of one wire.
pub(crate) struct Stream {
    /// The dialect, and the framing where it has two.
    pub(crate) name: &'static str,
    dialect: &'static str,
    provider: &'static Provider,
    frame: Framed,
    /// The payload; `TEXT` stands for the text.
    payload: &'static str,
}

#[derive(Clone, Copy)]
enum Framed {
    Sse(&'static str),
    Lines,
    Array,
    Aws(&'static str),
    /// Events of another wire, in base64.
    AwsChunks,
}

impl Stream {
    /// Finds a stream by its name.
    pub(crate) fn named(name: &str) -> &'static Self {
        STREAMS.iter().find(|stream| stream.name == name).unwrap_or_else(|| {
            let known: Vec<&str> = STREAMS.iter().map(|stream| stream.name).collect();
            panic!("unknown wire `{name}`: expected one of {}", known.join(", "))
        })
    }

    pub(crate) fn profile(&self) -> &'static Profile {
        self.provider.wire_of(self.dialect).unwrap()
    }

    pub(crate) fn content_type(&self) -> &'static str {
        match self.frame {
            Framed::Sse(_) => "text/event-stream",
            Framed::Lines => "application/x-ndjson",
            Framed::Array => "application/json",
            Framed::Aws(_) | Framed::AwsChunks => "application/vnd.amazon.eventstream",
        }
    }

    /// The bytes before the first event.
    pub(crate) fn opening(&self) -> &'static [u8] {
        if matches!(self.frame, Framed::Array) { b"[" } else { b"" }
    }

    pub(crate) fn event(&self, text: &str) -> Vec<u8> {
        let payload = self.payload.replace("TEXT", text);
        match self.frame {
            Framed::Sse("") => format!("data: {payload}\n\n").into_bytes(),
            Framed::Sse(name) => format!("event: {name}\ndata: {payload}\n\n").into_bytes(),
            Framed::Lines => format!("{payload}\n").into_bytes(),
            Framed::Array => format!("{payload}\n,\r\n").into_bytes(),
            Framed::Aws(name) => message(name, &payload),
            Framed::AwsChunks => {
                let payload = format!("{{\"bytes\":\"{}\"}}", STANDARD.encode(payload));
                message("chunk", &payload)
            }
        }
    }
}

fn message(event: &str, payload: &str) -> Vec<u8> {
    let headers =
        [(":event-type", event), (":content-type", "application/json"), (":message-type", "event")];
    aws::encode(&headers, payload.as_bytes())
}

const GEMINI: &str = r#"{"candidates": [{"content": {"parts": [{"text": "TEXT"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 12,"candidatesTokenCount": 34,"totalTokenCount": 46},"modelVersion": "gemini-3-flash","responseId": "abcDEF123"}"#;

/// Every wire that streams text.
pub(crate) static STREAMS: &[Stream] = &[
    Stream {
        name: "openai-chat",
        dialect: "openai-chat",
        provider: &provider::OPENAI,
        frame: Framed::Sse(""),
        payload: r#"{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1-2025-04-14","service_tier":"default","system_fingerprint":"fp_f5bdcc3276","choices":[{"index":0,"delta":{"content":"TEXT"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB3xY9z"}"#,
    },
    Stream {
        name: "openai-completions",
        dialect: "openai-completions",
        provider: &provider::OPENAI,
        frame: Framed::Sse(""),
        payload: r#"{"id":"cmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"text_completion","created":1741569952,"choices":[{"text":"TEXT","index":0,"logprobs":null,"finish_reason":null}],"model":"gpt-3.5-turbo-instruct"}"#,
    },
    Stream {
        name: "openai-responses",
        dialect: "openai-responses",
        provider: &provider::OPENAI,
        frame: Framed::Sse("response.output_text.delta"),
        payload: r#"{"type":"response.output_text.delta","sequence_number":42,"item_id":"msg_68a1f0c2e4b88191a1b2c3d4e5f60718","output_index":0,"content_index":0,"delta":"TEXT","logprobs":[],"obfuscation":"aB3xY9zQ"}"#,
    },
    Stream {
        name: "openai-assistants",
        dialect: "openai-assistants",
        provider: &provider::OPENAI,
        frame: Framed::Sse("thread.message.delta"),
        payload: r#"{"id":"msg_123","object":"thread.message.delta","delta":{"content":[{"index":0,"type":"text","text":{"value":"TEXT","annotations":[]}}]}}"#,
    },
    Stream {
        name: "anthropic-messages",
        dialect: "anthropic-messages",
        provider: &provider::ANTHROPIC,
        frame: Framed::Sse("content_block_delta"),
        payload: r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"TEXT"}           }"#,
    },
    Stream {
        name: "anthropic-complete",
        dialect: "anthropic-complete",
        provider: &provider::ANTHROPIC,
        frame: Framed::Sse("completion"),
        payload: r#"{"type":"completion","id":"compl_01CtvorJWMstkmATFkR7qVYM","completion":"TEXT","stop_reason":null,"model":"claude-2.1","stop":null,"log_id":"compl_01CtvorJWMstkmATFkR7qVYM"}"#,
    },
    Stream {
        name: "gemini-generate",
        dialect: "gemini-generate",
        provider: &provider::GOOGLE,
        frame: Framed::Sse(""),
        payload: GEMINI,
    },
    Stream {
        name: "gemini-generate (array)",
        dialect: "gemini-generate",
        provider: &provider::GOOGLE,
        frame: Framed::Array,
        payload: GEMINI,
    },
    Stream {
        name: "gemini-interactions",
        dialect: "gemini-interactions",
        provider: &provider::GOOGLE,
        frame: Framed::Sse("step.delta"),
        payload: r#"{"event_type":"step.delta","index":0,"delta":{"type":"text","text":"TEXT"},"event_id":"e1"}"#,
    },
    Stream {
        name: "bedrock-converse",
        dialect: "bedrock-converse",
        provider: &provider::BEDROCK,
        frame: Framed::Aws("contentBlockDelta"),
        payload: r#"{"contentBlockIndex":0,"delta":{"text":"TEXT"},"p":"abcdefghijklmnopqrstuvwxyzABCDEFGH"}"#,
    },
    Stream {
        name: "cohere-v2",
        dialect: "cohere-v2",
        provider: &provider::COHERE,
        frame: Framed::Sse("content-delta"),
        payload: r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"TEXT"}}}}"#,
    },
    Stream {
        name: "cohere-v1",
        dialect: "cohere-v1",
        provider: &provider::COHERE,
        frame: Framed::Lines,
        payload: r#"{"is_finished":false,"event_type":"text-generation","text":"TEXT"}"#,
    },
    Stream {
        name: "ollama-chat",
        dialect: "ollama-chat",
        provider: &provider::OLLAMA,
        frame: Framed::Lines,
        payload: r#"{"model":"llama3.3","created_at":"2026-11-15T10:20:30.123456789Z","message":{"role":"assistant","content":"TEXT"},"done":false}"#,
    },
    Stream {
        name: "dashscope",
        dialect: "dashscope",
        provider: &provider::ALIBABA,
        frame: Framed::Sse("result"),
        payload: r#"{"output":{"choices":[{"message":{"content":"TEXT","role":"assistant"},"finish_reason":"null"}]},"usage":{"total_tokens":46,"input_tokens":12,"output_tokens":34},"request_id":"3c5cb3fc-91e4-9a6d-bc2a-000000000000"}"#,
    },
    Stream {
        name: "watsonx",
        dialect: "watsonx",
        provider: &provider::WATSONX,
        frame: Framed::Sse("message"),
        payload: r#"{"model_id":"ibm/granite-13b","created_at":"2026-01-01T00:00:00.000Z","results":[{"generated_text":"TEXT","generated_token_count":2,"input_token_count":0,"stop_reason":"not_finished"}]}"#,
    },
    Stream {
        name: "hf-tgi",
        dialect: "hf-tgi",
        provider: &provider::HUGGINGFACE,
        frame: Framed::Sse(""),
        payload: r#"{"index":1,"token":{"id":4911,"text":"TEXT","logprob":-0.5,"special":false},"generated_text":null,"details":null}"#,
    },
    Stream {
        name: "llamacpp-completion",
        dialect: "llamacpp-completion",
        provider: &provider::LLAMACPP,
        frame: Framed::Sse(""),
        payload: r#"{"index":0,"content":"TEXT","tokens":[4911],"stop":false,"id_slot":-1,"tokens_predicted":34,"tokens_evaluated":12}"#,
    },
    Stream {
        name: "cloudflare-run",
        dialect: "cloudflare-run",
        provider: &provider::CLOUDFLARE,
        frame: Framed::Sse(""),
        payload: r#"{"response":"TEXT","p":"abdefghijklmnop"}"#,
    },
    Stream {
        name: "aleph-alpha-complete",
        dialect: "aleph-alpha-complete",
        provider: &provider::ALEPH_ALPHA,
        frame: Framed::Sse(""),
        payload: r#"{"type":"stream_chunk","index":0,"completion":"TEXT"}"#,
    },
    Stream {
        name: "sap-orchestration",
        dialect: "sap-orchestration",
        provider: &provider::SAP,
        frame: Framed::Sse(""),
        payload: r#"{"request_id":"r","intermediate_results":{},"final_result":{"id":"c","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4o","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":""}]}}"#,
    },
    Stream {
        name: "bedrock-nova",
        dialect: "bedrock-nova",
        provider: &provider::BEDROCK,
        frame: Framed::AwsChunks,
        payload: r#"{"contentBlockDelta":{"delta":{"text":"TEXT"},"contentBlockIndex":0}}"#,
    },
    Stream {
        name: "bedrock-titan",
        dialect: "bedrock-titan",
        provider: &provider::BEDROCK,
        frame: Framed::AwsChunks,
        payload: r#"{"outputText":"TEXT","index":0,"totalOutputTextTokenCount":null,"completionReason":null,"inputTextTokenCount":12}"#,
    },
    Stream {
        name: "bedrock-llama",
        dialect: "bedrock-llama",
        provider: &provider::BEDROCK,
        frame: Framed::AwsChunks,
        payload: r#"{"generation":"TEXT","prompt_token_count":null,"generation_token_count":2,"stop_reason":null}"#,
    },
    Stream {
        name: "bedrock-mistral",
        dialect: "bedrock-mistral",
        provider: &provider::BEDROCK,
        frame: Framed::AwsChunks,
        payload: r#"{"outputs":[{"text":"TEXT","stop_reason":null}]}"#,
    },
    Stream {
        name: "bedrock-cohere",
        dialect: "bedrock-cohere",
        provider: &provider::BEDROCK,
        frame: Framed::AwsChunks,
        payload: r#"{"is_finished":false,"text":"TEXT","index":0}"#,
    },
    Stream {
        name: "replicate",
        dialect: "replicate",
        provider: &provider::REPLICATE,
        frame: Framed::Sse("output"),
        payload: "TEXT",
    },
];
