//! The tables agree with the code: usage fields, token limits, paths, sources.

use std::collections::BTreeSet;

use endstop::dialect;
use endstop::provider::{self, Setting};
use endstop::registry::{Clues, choose};
use endstop::{Head, RequestInfo, TransportEnd, Watcher};
use serde_json::{Map, Value, json};

#[test]
fn every_dialect_is_served_by_someone() {
    for dialect in dialect::ALL {
        assert!(
            provider::ALL.iter().any(|known| known.wire_of(dialect.id).is_some()),
            "{}",
            dialect.id
        );
    }
}

/// Returns a body with only the finish reason and this field.
fn body_with(dialect: &str, path: &str, number: u64) -> Value {
    let mut body = match dialect {
        "openai-chat" => {
            json!({"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]})
        }
        "openai-completions" => {
            json!({"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]})
        }
        "openai-responses" => json!({"object": "response", "status": "completed", "output": []}),
        "anthropic-messages" => {
            json!({"type": "message", "content": [], "stop_reason": "end_turn"})
        }
        "gemini-generate" => json!({"candidates": [{"finishReason": "STOP"}]}),
        "bedrock-converse" => json!({"output": {}, "stopReason": "end_turn"}),
        "cohere-v2" => json!({"finish_reason": "COMPLETE", "message": {}}),
        "ollama-chat" => json!({"message": {}, "done": true, "done_reason": "stop"}),
        "openai-assistants" => json!({"object": "thread.run", "status": "completed"}),
        "gemini-interactions" => json!({"object": "interaction", "status": "completed"}),
        "bedrock-nova" => json!({"output": {}, "stopReason": "end_turn"}),
        "bedrock-titan" => json!({"results": [{"completionReason": "FINISH"}]}),
        "bedrock-llama" => json!({"generation": "x", "stop_reason": "stop"}),
        "cohere-v1" => json!({"text": "x", "finish_reason": "COMPLETE"}),
        "watsonx" => json!({"results": [{"stop_reason": "eos_token"}]}),
        "dashscope" => json!({"output": {"text": "x", "finish_reason": "stop"}}),

        "hf-tgi" => json!({"generated_text": "x", "details": {"finish_reason": "length"}}),
        "llamacpp-completion" => json!({"content": "x", "stop": true, "stop_type": "eos"}),
        "aleph-alpha-complete" => {
            json!({"completions": [{"completion": "x", "finish_reason": "end_of_text"}]})
        }
        "sap-orchestration" => {
            json!({"final_result": {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}})
        }
        "cloudflare-run" => json!({"result": {"response": "x"}, "success": true}),
        other => panic!("no body for {other}"),
    };
    let mut at = &mut body;
    let keys: Vec<&str> = path.split('.').collect();
    for key in &keys[..keys.len() - 1] {
        at = match key.strip_suffix("[]") {
            Some(list) => &mut at[list][0],
            None => {
                let map = at.as_object_mut().unwrap();
                map.entry(*key).or_insert_with(|| Value::Object(Map::new()))
            }
        };
    }
    at[keys[keys.len() - 1]] = json!(number);
    body
}

#[test]
fn every_named_usage_field_is_read() {
    for dialect in dialect::ALL {
        let profile = provider::ALL.iter().find_map(|known| known.wire_of(dialect.id)).unwrap();
        for path in dialect.usage {
            let head = Head { status: 200, content_type: "application/json" };
            let mut reader = Watcher::new(profile, head, RequestInfo::default());
            reader.watch(body_with(dialect.id, path, 4711).to_string().as_bytes());
            let usage = reader.finish(TransportEnd::Eof).usage;
            let counts =
                [usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write];
            assert!(counts.contains(&Some(4711)), "{} {path}", dialect.id);
        }
    }
}

#[test]
fn every_wire_is_found_by_its_path_and_every_provider_by_its_host() {
    for provider in provider::ALL {
        for wire in provider.wires() {
            assert!(!wire.paths.is_empty() && !wire.dialect.caps.is_empty());
            assert_eq!(wire.provider, provider.id);
            for path in wire.paths {
                let path = path.replace("{id}", "id_1").replace('*', "/x");
                let found =
                    choose(&Clues { provider: provider.id, path: &path, ..Clues::default() });
                assert_eq!(found.profile.dialect.id, wire.dialect.id, "{} {path}", provider.id);
            }
        }
        for host in provider.hosts {
            let host = host.replace('*', "us-east-1");
            assert_eq!(provider::by_host(&host).map(|found| found.id), Some(provider.id), "{host}");
        }
        assert!(!provider.source.is_empty() && !provider.title.is_empty());
    }
}

/// Paths, the providers that serve them, and the dialect that reads them; none if they do not ask a
/// model.
const PATHS: &[(&str, &str, &str)] = &[
    ("openai", "/v1/chat/completions", "openai-chat"),
    ("openai", "/v1/chat/completions/", "openai-chat"),
    ("openai", "/v1/completions", "openai-completions"),
    ("openai", "/v1/responses", "openai-responses"),
    ("openai", "/v1/responses?stream=true", "openai-responses"),
    ("openai", "/v1/responses/resp_68a1", "openai-responses"),
    ("openai", "/v1/responses/compact", "openai-responses"),
    ("openai", "/v1/responses/resp_68a1/cancel", ""),
    ("openai", "/v1/responses/resp_68a1/input_items", ""),
    ("openai", "/v1/responses/input_tokens", ""),
    ("openai", "/v1/chat/completions/chatcmpl_1/messages", ""),
    ("openai", "/v1/threads/runs", "openai-assistants"),
    ("openai", "/v1/threads/thread_1/runs", "openai-assistants"),
    ("openai", "/v1/threads/thread_1/runs/run_1", "openai-assistants"),
    ("openai", "/v1/threads/thread_1/runs/run_1/submit_tool_outputs", "openai-assistants"),
    ("openai", "/v1/threads/thread_1/runs/run_1/cancel", ""),
    ("openai", "/v1/threads/thread_1/runs/run_1/steps", ""),
    ("openai", "/v1/embeddings", ""),
    ("openai", "/v1/models", ""),
    ("azure", "/openai/deployments/d/chat/completions?api-version=1", "openai-chat"),
    ("azure", "/openai/v1/responses", "openai-responses"),
    ("azure", "/openai/v1/responses/resp_1/cancel", ""),
    ("anthropic", "/v1/messages", "anthropic-messages"),
    ("anthropic", "/v1/messages?beta=true", "anthropic-messages"),
    ("anthropic", "/v1/complete", "anthropic-complete"),
    ("anthropic", "/v1/messages/count_tokens", ""),
    ("anthropic", "/v1/messages/batches", ""),
    ("anthropic", "/v1/messages/batches/msgbatch_1/results", ""),
    ("google", "/v1beta/models/gemini-x:generateContent", "gemini-generate"),
    ("google", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", "gemini-generate"),
    ("google", "/v1beta/models/gemini-x:countTokens", ""),
    ("google", "/v1beta/models/gemini-x:batchGenerateContent", ""),
    ("google", "/v1beta/interactions", "gemini-interactions"),
    ("google", "/v1beta/interactions/v1_abc", "gemini-interactions"),
    ("google", "/v1beta/interactions/v1_abc/cancel", ""),
    (
        "vertex",
        "/v1/projects/p/locations/l/publishers/google/models/g:generateContent",
        "gemini-generate",
    ),
    (
        "vertex",
        "/v1/projects/p/locations/l/publishers/anthropic/models/c:streamRawPredict",
        "anthropic-messages",
    ),
    ("mistral", "/v1/chat/completions", "openai-chat"),
    ("mistral", "/v1/fim/completions", "openai-chat"),
    ("mistral", "/v1/agents/completions", "openai-chat"),
    ("cohere", "/v2/chat", "cohere-v2"),
    ("cohere", "/v1/chat", "cohere-v1"),
    ("cohere", "/v1/generate", "cohere-v1"),
    ("cohere", "/v2/embed", ""),
    ("ollama", "/api/chat", "ollama-chat"),
    ("ollama", "/api/generate", "ollama-chat"),
    ("ollama", "/api/embed", ""),
    ("bedrock", "/model/us.anthropic.claude-x/converse", "bedrock-converse"),
    ("bedrock", "/model/us.anthropic.claude-x/converse-stream", "bedrock-converse"),
    ("bedrock", "/model/us.anthropic.claude-x/invoke-with-response-stream", "anthropic-messages"),
    ("bedrock", "/model/amazon.nova-pro-v1:0/invoke", "bedrock-nova"),
    ("bedrock", "/model/zai.glm-4/invoke", "openai-chat"),
    ("bedrock", "/model/us.anthropic.claude-x/count-tokens", ""),
    ("bedrock", "/async-invoke", ""),
    ("huggingface", "/models/org/name", "hf-tgi"),
    ("huggingface", "/generate_stream", "hf-tgi"),
    ("cloudflare", "/client/v4/accounts/a/ai/run/@cf/meta/llama", "cloudflare-run"),
    ("replicate", "/v1/predictions", "replicate"),
    ("replicate", "/v1/predictions/vdcbnszbj37q", "replicate"),
    ("replicate", "/v1/predictions/vdcbnszbj37q/cancel", ""),
    ("alibaba", "/api/v1/services/aigc/text-generation/generation", "dashscope"),
    ("alibaba", "/api/v1/services/aigc/text2image/image-synthesis", ""),
    ("watsonx", "/ml/v1/text/chat_stream", "openai-chat"),
    ("watsonx", "/ml/v1/text/generation_stream", "watsonx"),
    ("watsonx", "/ml/v1/text/tokenization", ""),
    ("llamacpp", "/completion", "llamacpp-completion"),
    ("llamacpp", "/tokenize", ""),
];

#[test]
fn only_paths_that_ask_a_model_are_served() {
    for (id, path, dialect) in PATHS {
        let served = provider::by_id(id).unwrap().wire_for_path(path);
        assert_eq!(served.map_or("", |wire| wire.dialect.id), *dialect, "{id} {path}");
    }
    // Below a model path there is another resource, on every wire.
    for provider in provider::ALL {
        for wire in provider.wires() {
            for path in wire.paths.iter().filter(|path| !path.ends_with('*')) {
                let path = path.replace("{id}", "id_1").replace('*', "/x") + "/id_1/cancel";
                let served = provider.wire_for_path(&path);
                assert!(served.is_none(), "{} {path}", provider.id);
            }
        }
    }
}

/// `endstop env` prints these for a shell to run.
#[test]
fn base_urls_of_sdks_fit_their_provider() {
    let mut variables = BTreeSet::new();
    for provider in provider::ALL {
        for sdk_url in provider.sdk_urls {
            let (path, id) = (sdk_url.path, provider.id);
            assert!(
                path.is_empty() || path.starts_with('/') && !path.ends_with('/'),
                "{id} {path}"
            );
            let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.{}".contains(c);
            assert!(path.chars().all(plain) && !sdk_url.sdks.is_empty(), "{id} {path}");
            assert_eq!(holes(path), holes(provider.base_url), "{id} {path}");
            if let Setting::Variable(name) = sdk_url.setting {
                assert!(
                    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
                );
                assert!(!provider.base_url.is_empty(), "{name} leads to no upstream");
                assert!(variables.insert(name), "{name} has two values");
            }
        }
    }
    assert!(variables.len() > 10, "{variables:?}");
}

/// Returns the names of the parts that differ by customer.
fn holes(text: &str) -> Vec<&str> {
    text.split('{').skip(1).filter_map(|part| part.split('}').next()).collect()
}
