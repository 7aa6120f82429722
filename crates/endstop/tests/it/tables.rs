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
                let path = path.replace('*', "/x");
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
