//! Tests of the next request, on every wire.

use super::*;
use crate::provider;
use crate::provider::{ANTHROPIC, BEDROCK, COHERE, GOOGLE, OLLAMA, OPENAI};
use made::{
    continue_answer, continue_by, lower_effort, messages, repair_tool_call, resume_paused, set_cap,
};

const TEXT: SoFar<'_> = SoFar { text: "Once upon a ", id: None, token: None, content: None };

/// Wrappers of the functions under test that take requests as values.
mod made {
    use super::super::*;

    /// A request that a function returned.
    #[derive(Debug, PartialEq)]
    pub(super) struct Made {
        pub(super) request: Value,
        pub(super) how: RequestChange,
        pub(super) sentence: String,
        pub(super) echoes: bool,
        pub(super) trimmed: usize,
        pub(super) cap_counts_all: bool,
        pub(super) base_url: Option<&'static str>,
    }

    type Tried = Result<Made, Impossible>;

    fn tried(next: Result<NextRequest, Impossible>) -> Tried {
        let NextRequest {
            request, how, sentence, echoes, trimmed, cap_counts_all, base_url, ..
        } = next?;
        let request = serde_json::from_str(request.get()).unwrap();
        Ok(Made { request, how, sentence, echoes, trimmed, cap_counts_all, base_url })
    }

    pub(super) fn set_cap(profile: &Profile, request: &Value, cap: u64) -> Tried {
        tried(super::super::set_cap(profile, &request.to_string(), cap))
    }

    pub(super) fn continue_answer(
        profile: &Profile,
        model: &str,
        request: &Value,
        so_far: &SoFar<'_>,
        wording: &Wording,
    ) -> Tried {
        let request = request.to_string();
        tried(super::super::continue_answer(profile, model, &request, so_far, wording))
    }

    pub(super) fn continue_by(
        way: Way,
        profile: &Profile,
        model: &str,
        request: &Value,
        so_far: &SoFar<'_>,
        wording: &Wording,
    ) -> Tried {
        let request = request.to_string();
        tried(super::super::continue_by(way, profile, model, &request, so_far, wording))
    }

    pub(super) fn messages(profile: &Profile, request: &Value) -> Option<u32> {
        super::super::messages(profile, &request.to_string())
    }

    pub(super) fn resume_paused(profile: &Profile, request: &Value, so_far: &SoFar<'_>) -> Tried {
        tried(super::super::resume_paused(profile, &request.to_string(), so_far))
    }

    pub(super) fn repair_tool_call(
        profile: &Profile,
        model: &str,
        request: &Value,
        so_far: &SoFar<'_>,
        tool: &str,
        wording: &Wording,
    ) -> Tried {
        let request = request.to_string();
        tried(super::super::repair_tool_call(profile, model, &request, so_far, tool, wording))
    }

    pub(super) fn lower_effort(profile: &Profile, model: &str, request: &Value) -> Tried {
        tried(super::super::lower_effort(profile, model, &request.to_string()))
    }
}

/// Returns a short wording, to keep expectations readable.
fn wording() -> Wording {
    Wording { hint: "Go on.".into(), repair: "Call `{tool}`.".into(), tail: 4 }
}

/// The hint with the last four characters of the text quoted.
const QUOTED: &str = "Go on.\n\nThe previous response ended with:\n\
    <previous_response_end>\nn a \n</previous_response_end>";

fn wire(provider: &'static provider::Provider, dialect: &str) -> &'static Profile {
    provider.wire_of(dialect).unwrap()
}

#[test]
fn the_default_hint_is_the_one_that_was_agreed_on() {
    assert_eq!(
        Wording::default().hint,
        "Previous response was truncated by token limit. Continue exactly from where you left \
         off. If you intended a tool call, emit one complete tool call payload only. Do not \
         repeat already-sent text."
    );
    let read: Wording = serde_json::from_str(r#"{"tail": 7}"#).unwrap();
    assert_eq!(read, Wording { tail: 7, ..Wording::default() });
}

/// Each row has a wire, a model, a request, and the request that continues it.
#[test]
fn each_wire_continues_in_its_own_shape() {
    let chat = "openai-chat";
    let table = [
        (
            "developer",
            &OPENAI.main,
            "gpt-5",
            json!({"model": "gpt-5", "seed": 1, "messages": [{"role": "user", "content": "?"}]}),
            json!({"model": "gpt-5", "seed": 1, "messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "Once upon a "},
                {"role": "developer", "content": "Go on."},
            ]}),
        ),
        (
            "user",
            &provider::GROQ.main,
            "llama-4",
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}]}]}),
            json!({"messages": [
                {"role": "user", "content": [{"type": "text", "text": "?"}]},
                {"role": "assistant", "content": "Once upon a "},
                {"role": "user", "content": QUOTED},
            ]}),
        ),
        (
            "prefix",
            &provider::MISTRAL.main,
            "mistral-large",
            json!({"messages": [{"role": "user", "content": "?"}]}),
            json!({"messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "Once upon a ", "prefix": true},
            ]}),
        ),
        (
            "partial",
            &provider::MOONSHOT.main,
            "kimi-k2",
            json!({"messages": []}),
            json!({"messages": [
                {"role": "assistant", "content": "Once upon a ", "partial": true},
            ]}),
        ),
        // The host closes an appended message unless both flags are set.
        (
            "flags",
            &provider::VLLM.main,
            "qwen3",
            json!({"messages": [{"role": "user", "content": "?"}], "add_generation_prompt": true}),
            json!({
                "messages": [
                    {"role": "user", "content": "?"},
                    {"role": "assistant", "content": "Once upon a "},
                ],
                "continue_final_message": true,
                "add_generation_prompt": false,
            }),
        ),
        (
            "two in a row",
            &provider::LLAMACPP.main,
            "any",
            json!({"messages": [{"role": "assistant", "content": "So. "}]}),
            json!({"messages": [{"role": "assistant", "content": "So. Once upon a "}]}),
        ),
        (
            "a caller's own prefix, repeated in the reply",
            &provider::MISTRAL.main,
            "mistral-large",
            json!({"messages": [{"role": "assistant", "content": "Once ", "prefix": true}]}),
            json!({"messages": [
                {"role": "assistant", "content": "Once upon a ", "prefix": true},
            ]}),
        ),
        (
            "trimmed",
            &ANTHROPIC.main,
            "claude-sonnet-4-5-20250929",
            json!({"max_tokens": 5, "system": "s", "messages": [{"role": "user", "content": "?"}]}),
            json!({"max_tokens": 5, "system": "s", "messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "Once upon a"},
            ]}),
        ),
        // It answers 400 to a trailing assistant message (anthropics/claude-code#52433).
        (
            "rejecting Claude",
            &ANTHROPIC.main,
            "claude-opus-4-6",
            json!({"messages": [{"role": "user", "content": "?"}]}),
            json!({"messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "Once upon a "},
                {"role": "user", "content": QUOTED},
            ]}),
        ),
        // A prefill is refused while it thinks.
        (
            "thinking Claude",
            &ANTHROPIC.main,
            "claude-sonnet-4-5",
            json!({
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "messages": [{"role": "user", "content": "?"}],
            }),
            json!({
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "messages": [
                    {"role": "user", "content": "?"},
                    {"role": "assistant", "content": "Once upon a "},
                    {"role": "user", "content": QUOTED},
                ],
            }),
        ),
        (
            "Gemini's prefill",
            &GOOGLE.main,
            "gemini-2.5-flash",
            json!({"contents": [{"role": "user", "parts": [{"text": "?"}]}]}),
            json!({"contents": [
                {"role": "user", "parts": [{"text": "?"}]},
                {"role": "model", "parts": [{"text": "Once upon a "}]},
            ]}),
        ),
        (
            "rejecting Gemini",
            &GOOGLE.main,
            "gemini-3.6-flash",
            json!({"contents": [{"role": "user", "parts": [{"text": "?"}]}]}),
            json!({"contents": [
                {"role": "user", "parts": [{"text": "?"}]},
                {"role": "model", "parts": [{"text": "Once upon a "}]},
                {"role": "user", "parts": [{"text": QUOTED}]},
            ]}),
        ),
        (
            "Converse",
            &BEDROCK.main,
            "anthropic.claude-haiku-4-5-20251001-v1:0",
            json!({"messages": [{"role": "user", "content": [{"text": "?"}]}]}),
            json!({"messages": [
                {"role": "user", "content": [{"text": "?"}]},
                {"role": "assistant", "content": [{"text": "Once upon a"}]},
            ]}),
        ),
        (
            "Converse of another family",
            &BEDROCK.main,
            "meta.llama4",
            json!({"messages": [{"role": "user", "content": [{"text": "?"}]}]}),
            json!({"messages": [
                {"role": "user", "content": [{"text": "?"}]},
                {"role": "assistant", "content": [{"text": "Once upon a "}]},
                {"role": "user", "content": [{"text": QUOTED}]},
            ]}),
        ),
        (
            "Claude by InvokeModel",
            wire(&BEDROCK, "anthropic-messages"),
            "anthropic.claude-3-5-haiku",
            json!({"anthropic_version": "bedrock-2023-05-31", "messages": []}),
            json!({"anthropic_version": "bedrock-2023-05-31", "messages": [
                {"role": "assistant", "content": "Once upon a"},
            ]}),
        ),
        (
            "Cohere",
            &COHERE.main,
            "command-a",
            json!({"messages": [{"role": "user", "content": "?"}]}),
            json!({"messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "Once upon a "},
                {"role": "user", "content": QUOTED},
            ]}),
        ),
        (
            "Cohere's first version",
            wire(&COHERE, "cohere-v1"),
            "command-r",
            json!({"message": "?", "chat_history": [{"role": "CHATBOT", "message": "Hello."}]}),
            json!({"message": QUOTED, "chat_history": [
                {"role": "CHATBOT", "message": "Hello."},
                {"role": "USER", "message": "?"},
                {"role": "CHATBOT", "message": "Once upon a "},
            ]}),
        ),
        (
            "the old generate",
            wire(&COHERE, "cohere-v1"),
            "command",
            json!({"prompt": "Tell: "}),
            json!({"prompt": "Tell: Once upon a "}),
        ),
        (
            "completions",
            wire(&OPENAI, "openai-completions"),
            "gpt-3.5-turbo-instruct",
            json!({"prompt": ["Tell: "], "max_tokens": 16}),
            json!({"prompt": ["Tell: Once upon a "], "max_tokens": 16}),
        ),
        (
            "Ollama's chat",
            &OLLAMA.main,
            "llama3.2",
            json!({"messages": [{"role": "user", "content": "?"}]}),
            json!({"messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "Once upon a "},
            ]}),
        ),
        (
            "Ollama's generate, raw",
            &OLLAMA.main,
            "llama3.2",
            json!({"prompt": "[INST] ? [/INST]", "raw": true}),
            json!({"prompt": "[INST] ? [/INST]Once upon a ", "raw": true}),
        ),
        (
            "Ollama's generate",
            &OLLAMA.main,
            "llama3.2",
            json!({"prompt": "?"}),
            json!({"prompt": "?\n\nGo on.\n\nThe previous response ended with:\n\
                <previous_response_end>\nOnce upon a \n</previous_response_end>"}),
        ),
        (
            "Responses that are not stored",
            wire(&OPENAI, "openai-responses"),
            "gpt-5",
            json!({"input": "?", "store": false, "instructions": "i"}),
            json!({"input": [
                {"type": "message", "role": "user", "content": "?"},
                {"type": "message", "role": "assistant", "content": "Once upon a "},
                {"type": "message", "role": "developer", "content": "Go on."},
            ], "store": false, "instructions": "i"}),
        ),
        (
            "the native wire of Qwen",
            wire(&provider::ALIBABA, "dashscope"),
            "qwen-max",
            json!({"input": {"messages": [{"role": "user", "content": "?"}]}}),
            json!({"input": {"messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "Once upon a "},
                {"role": "user", "content": QUOTED},
            ]}}),
        ),
        (
            "Qwen, thinking",
            wire(&provider::ALIBABA, chat),
            "qwen-max",
            json!({"messages": [], "enable_thinking": true}),
            json!({"messages": [
                {"role": "assistant", "content": "Once upon a "},
                {"role": "user", "content": QUOTED},
            ], "enable_thinking": true}),
        ),
        (
            "Qwen",
            wire(&provider::ALIBABA, chat),
            "qwen-max",
            json!({"messages": [], "enable_thinking": false}),
            json!({"messages": [
                {"role": "assistant", "content": "Once upon a ", "partial": true},
            ], "enable_thinking": false}),
        ),
    ];
    for (name, profile, model, before, after) in table {
        let kept = before.clone();
        let next = continue_answer(profile, model, &before, &TEXT, &wording()).unwrap();
        assert_eq!(next.request, after, "{name}");
        assert_eq!(before, kept, "{name}");
        assert!(!next.sentence.is_empty(), "{name}");
    }
}

#[test]
fn what_the_seam_needs_to_know_is_told() {
    let ask = |profile, model, request: Value| {
        continue_answer(profile, model, &request, &TEXT, &wording()).unwrap()
    };
    let request = json!({"messages": [{"role": "user", "content": "?"}]});
    let claude = ask(&ANTHROPIC.main, "claude-haiku-4-5", request.clone());
    assert_eq!((claude.trimmed, claude.echoes, &claude.how), (1, false, &RequestChange::Prefill));
    let mistral = ask(&provider::MISTRAL.main, "m", request.clone());
    assert_eq!((mistral.trimmed, mistral.echoes), (0, true));
    let deepseek = ask(&provider::DEEPSEEK.main, "deepseek-v4", request);
    assert_eq!(deepseek.base_url, Some("https://api.deepseek.com/beta"));
    // A completion that echoes its prompt has it in the answer so far.
    let completions = wire(&OPENAI, "openai-completions");
    let echo = ask(completions, "m", json!({"prompt": "Once", "echo": true}));
    assert_eq!(echo.request["prompt"], "Once upon a ");
    assert!(echo.echoes);
}

#[test]
fn a_provider_that_knows_the_answer_is_told_which() {
    let so_far = SoFar { id: Some("resp_1"), token: Some("tok"), ..TEXT };
    let responses = wire(&OPENAI, "openai-responses");
    let ask = |profile, model, request| {
        continue_answer(profile, model, &request, &so_far, &wording()).unwrap()
    };
    let next = ask(
        responses,
        "gpt-5",
        json!({"input": [1, 2], "instructions": "i", "previous_response_id": "resp_0"}),
    );
    assert_eq!(
        next.request,
        json!({
            "input": [{"type": "message", "role": "developer", "content": "Go on."}],
            "instructions": "i",
            "previous_response_id": "resp_1",
        })
    );
    assert_eq!(next.how, RequestChange::Token { field: "previous_response_id".into() });
    // The response is in the conversation, which excludes the other field.
    let next = ask(responses, "gpt-5", json!({"input": "?", "conversation": "conv_1"}));
    assert_eq!(
        next.request,
        json!({
            "input": [{"type": "message", "role": "developer", "content": "Go on."}],
            "conversation": "conv_1",
        })
    );
    // The first request is unchanged, and the limit covers all parts.
    let gemini = json!({"contents": [], "generationConfig": {"maxOutputTokens": 9}});
    let next = ask(&GOOGLE.main, "gemini-4-argon", gemini.clone());
    let mut after = gemini.clone();
    after["continuationToken"] = json!("tok");
    assert_eq!((next.request, next.cap_counts_all), (after.clone(), true));
    let paused = resume_paused(&GOOGLE.main, &gemini, &so_far).unwrap();
    assert_eq!((paused.request, paused.cap_counts_all), (after, false));
    let interactions = wire(&GOOGLE, "gemini-interactions");
    let next = ask(interactions, "gemini-4-argon", json!({"input": "?"}));
    assert_eq!(next.request, json!({"input": "Go on.", "previous_interaction_id": "resp_1"}));
    let paused = resume_paused(interactions, &json!({"input": "?", "tools": []}), &so_far);
    assert_eq!(
        paused.unwrap().request,
        json!({"tools": [], "previous_interaction_id": "resp_1", "continuation_token": "tok"})
    );
}

#[test]
fn without_a_token_the_model_is_asked() {
    let responses = wire(&OPENAI, "openai-responses");
    let request = json!({"input": "?"});
    let next = continue_answer(responses, "gpt-5", &request, &TEXT, &wording()).unwrap();
    assert_eq!(next.how, RequestChange::Hint { role: Role::Developer });
    assert_eq!(
        next.sentence,
        "a developer message asks the model to continue; the provider returned no \
         `previous_response_id`"
    );
    let only = continue_by(Way::Token, responses, "gpt-5", &request, &TEXT, &wording());
    assert!(matches!(only, Err(Impossible::NoToken { .. })));
}

/// Keys keep their order, and numbers and strings their spelling: schemas depend on them.
#[test]
fn every_byte_that_need_not_change_stays() {
    let request = "{ \"tools\": [{\"z\": 1.0, \"a\": \"\\u0041\"}],\n  \"messages\": [ {\"role\": \
                   \"user\", \"content\": \"?\", \"name\": \"n\"} ],\n  \"max_tokens\": 5, \"seed\": 1e2 }";
    let capped = super::set_cap(&ANTHROPIC.main, request, 90).unwrap();
    assert_eq!(capped.request.get(), request.replace("5,", "90,"));
    let next = super::continue_answer(&OPENAI.main, "gpt-5", request, &TEXT, &wording());
    let added = "\"n\"},{\"role\":\"assistant\",\"content\":\"Once upon a \"},\
                 {\"role\":\"developer\",\"content\":\"Go on.\"}";
    assert_eq!(next.unwrap().request.get(), request.replace("\"n\"}", added));
}

#[test]
fn a_paused_turn_goes_back_as_it_came() {
    let request = json!({
        "messages": [{"role": "user", "content": "?"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    });
    let content = json!([
        {"type": "thinking", "thinking": "…", "signature": "s"},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
    ]);
    let raw = RawValue::from_string(content.to_string()).unwrap();
    let so_far = SoFar { content: Some(&raw), ..SoFar::default() };
    for profile in [&ANTHROPIC.main, wire(&BEDROCK, "anthropic-messages")] {
        let next = resume_paused(profile, &request, &so_far).unwrap();
        let mut after = request.clone();
        let turn = json!({"role": "assistant", "content": content});
        after["messages"].as_array_mut().unwrap().push(turn);
        assert_eq!((next.request, next.how), (after, RequestChange::Resend));
    }
    let nothing = resume_paused(&ANTHROPIC.main, &request, &SoFar::default());
    assert_eq!(nothing, Err(Impossible::NoContent));
    let chat = resume_paused(&OPENAI.main, &request, &so_far);
    assert!(matches!(chat, Err(Impossible::Unsupported { .. })));
}

#[test]
fn the_cap_is_set_where_the_request_has_it_or_the_host_wants_it() {
    let table = [
        (&OPENAI.main, json!({"max_tokens": 5}), json!({"max_tokens": 90})),
        (
            &OPENAI.main,
            json!({"max_tokens": null}),
            json!({"max_tokens": null, "max_completion_tokens": 90}),
        ),
        (&OPENAI.main, json!({}), json!({"max_completion_tokens": 90})),
        (&provider::DEEPSEEK.main, json!({}), json!({"max_tokens": 90})),
        (wire(&OLLAMA, "openai-chat"), json!({}), json!({"max_tokens": 90})),
        (wire(&OPENAI, "openai-responses"), json!({}), json!({"max_output_tokens": 90})),
        (&ANTHROPIC.main, json!({"max_tokens": 5}), json!({"max_tokens": 90})),
        (
            &GOOGLE.main,
            json!({"generationConfig": null}),
            json!({"generationConfig": {"maxOutputTokens": 90}}),
        ),
        (
            &GOOGLE.main,
            json!({"generation_config": {"max_output_tokens": 5, "topK": 1}}),
            json!({"generation_config": {"max_output_tokens": 90, "topK": 1}}),
        ),
        (
            &BEDROCK.main,
            json!({"inferenceConfig": {"topP": 0.5}}),
            json!({"inferenceConfig": {"topP": 0.5, "maxTokens": 90}}),
        ),
        (
            &OLLAMA.main,
            json!({"options": {"num_predict": -1, "seed": 1}}),
            json!({"options": {"num_predict": 90, "seed": 1}}),
        ),
        (
            wire(&provider::ALIBABA, "dashscope"),
            json!({}),
            json!({"parameters": {"max_tokens": 90}}),
        ),
    ];
    for (profile, before, after) in table {
        assert_eq!(set_cap(profile, &before, 90).unwrap().request, after, "{before}");
    }
    let how = set_cap(&OPENAI.main, &json!({"max_tokens": 5}), 90).unwrap().how;
    assert_eq!(how, RequestChange::Cap { field: "max_tokens".into(), from: Some(5), to: 90 });
    let strange = set_cap(&GOOGLE.main, &json!({"generationConfig": 3}), 90);
    assert_eq!(strange, Err(Impossible::Strange { field: "generationConfig.maxOutputTokens" }));
    let list = set_cap(&OPENAI.main, &json!([]), 90).unwrap_err();
    assert_eq!(list.to_string(), "the request is not a JSON object");
}

#[test]
fn a_broken_call_is_asked_for_again_and_forced() {
    let chat_tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let tools = json!([{"name": "f", "input_schema": {}}]);
    let table = [
        (
            "OpenAI, a model with any temperature",
            &OPENAI.main,
            "gpt-4.1",
            json!({"messages": [], "tools": chat_tools}),
            json!({
                "messages": [{"role": "developer", "content": "Call `f`."}],
                "tools": chat_tools,
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "temperature": 0,
            }),
        ),
        (
            "OpenAI, a model with its own",
            &OPENAI.main,
            "gpt-5",
            json!({"messages": [], "tools": chat_tools, "tool_choice": "auto"}),
            json!({
                "messages": [{"role": "developer", "content": "Call `f`."}],
                "tools": chat_tools,
                "tool_choice": {"type": "function", "function": {"name": "f"}},
            }),
        ),
        (
            "the form of 2023",
            &OPENAI.main,
            "gpt-5",
            json!({"messages": [], "functions": [{"name": "f"}]}),
            json!({
                "messages": [{"role": "developer", "content": "Call `f`."}],
                "functions": [{"name": "f"}],
                "function_call": {"name": "f"},
            }),
        ),
        (
            "Responses",
            wire(&OPENAI, "openai-responses"),
            "gpt-5",
            json!({"input": "?", "tools": [{"type": "function", "name": "f"}]}),
            json!({
                "input": [
                    {"type": "message", "role": "user", "content": "?"},
                    {"type": "message", "role": "developer", "content": "Call `f`."},
                ],
                "tools": [{"type": "function", "name": "f"}],
                "tool_choice": {"type": "function", "name": "f"},
            }),
        ),
        (
            "Anthropic, behind a tool's result",
            &ANTHROPIC.main,
            "claude-opus-5",
            json!({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}], "tools": tools, "temperature": 0.7}),
            json!({
                "messages": [{"role": "user", "content": [
                    {"type": "tool_result"},
                    {"type": "text", "text": "Call `f`."},
                ]}],
                "tools": tools,
                "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
                "temperature": 0,
            }),
        ),
        (
            "Anthropic, thinking",
            &ANTHROPIC.main,
            "claude-opus-5",
            json!({"messages": [{"role": "user", "content": "?"}], "tools": tools, "thinking": {"type": "adaptive"}}),
            json!({
                "messages": [{"role": "user", "content": "?\n\nCall `f`."}],
                "tools": tools,
                "thinking": {"type": "adaptive"},
            }),
        ),
        (
            "Gemini",
            &GOOGLE.main,
            "gemini-3.6-flash",
            json!({
                "contents": [{"role": "user", "parts": [{"text": "?"}]}],
                "tools": [{"functionDeclarations": [{"name": "f"}]}],
                "toolConfig": {"retrievalConfig": {}},
            }),
            json!({
                "contents": [{"role": "user", "parts": [{"text": "?"}, {"text": "Call `f`."}]}],
                "tools": [{"functionDeclarations": [{"name": "f"}]}],
                "toolConfig": {
                    "retrievalConfig": {},
                    "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]},
                },
                "generationConfig": {"temperature": 0},
            }),
        ),
        (
            "Converse",
            &BEDROCK.main,
            "us.anthropic.claude-sonnet-4-6",
            json!({
                "messages": [{"role": "user", "content": [{"text": "?"}]}],
                "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]},
            }),
            json!({
                "messages": [{"role": "user", "content": [{"text": "?"}, {"text": "Call `f`."}]}],
                "toolConfig": {
                    "tools": [{"toolSpec": {"name": "f"}}],
                    "toolChoice": {"tool": {"name": "f"}},
                },
            }),
        ),
        (
            "Cohere",
            &COHERE.main,
            "command-a",
            json!({"messages": [], "tools": chat_tools}),
            json!({
                "messages": [{"role": "user", "content": "Call `f`."}],
                "tools": chat_tools,
                "tool_choice": "REQUIRED",
                "temperature": 0,
            }),
        ),
        (
            "Ollama, which takes no choice",
            &OLLAMA.main,
            "llama3.2",
            json!({"messages": [], "tools": chat_tools}),
            json!({
                "messages": [{"role": "user", "content": "Call `f`."}],
                "tools": chat_tools,
                "options": {"temperature": 0},
            }),
        ),
        (
            "LM Studio, which takes a word",
            &provider::LMSTUDIO.main,
            "qwen3",
            json!({"messages": [], "tools": chat_tools}),
            json!({
                "messages": [{"role": "user", "content": "Call `f`."}],
                "tools": chat_tools,
                "tool_choice": "required",
                "temperature": 0,
            }),
        ),
        (
            "DeepSeek, thinking by default",
            &provider::DEEPSEEK.main,
            "deepseek-v4",
            json!({"messages": [], "tools": chat_tools}),
            json!({"messages": [{"role": "user", "content": "Call `f`."}], "tools": chat_tools}),
        ),
    ];
    for (name, profile, model, before, after) in table {
        let nothing = SoFar::default();
        let next = repair_tool_call(profile, model, &before, &nothing, "f", &wording());
        assert_eq!(next.unwrap().request, after, "{name}");
    }
}

#[test]
fn what_cannot_be_repaired_says_why() {
    let repair = |profile: &Profile, request: Value, tool| {
        repair_tool_call(profile, "m", &request, &TEXT, tool, &wording())
    };
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let none = repair(&OPENAI.main, json!({"messages": []}), "f");
    assert_eq!(none, Err(Impossible::NoTools));
    let perplexity = repair(&provider::PERPLEXITY.main, json!({"tools": tools}), "f");
    assert!(matches!(perplexity, Err(Impossible::Unsupported { .. })));
    // An undeclared name cannot be forced. The text before the call stays.
    let next = repair(&OPENAI.main, json!({"messages": [], "tools": tools}), "g").unwrap();
    assert_eq!(
        next.how,
        RequestChange::Repair { role: Role::Developer, forced_by: None, cold: true }
    );
    assert_eq!(
        next.request["messages"],
        json!([
            {"role": "assistant", "content": "Once upon a "},
            {"role": "developer", "content": "Call `g`."},
        ])
    );
}

#[test]
fn a_call_without_a_name_is_asked_for_without_one() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let request = json!({"messages": [], "tools": tools});
    let said = |wording: &Wording| {
        let next = repair_tool_call(&OPENAI.main, "m", &request, &SoFar::default(), "", wording);
        let next = next.unwrap();
        assert!(!next.sentence.contains("``"), "{}", next.sentence);
        next.request["messages"][0]["content"].as_str().unwrap().to_owned()
    };
    assert!(said(&Wording::default()).starts_with("The tool call in the previous response was"));
    let own = Wording { repair: "Again.".into(), ..Wording::default() };
    assert_eq!(said(&own), "Again.");
}

#[test]
fn reasoning_is_lowered_a_step() {
    let table = [
        (
            &OPENAI.main,
            "gpt-5",
            json!({"reasoning_effort": "high"}),
            json!({"reasoning_effort": "medium"}),
        ),
        (&OPENAI.main, "gpt-5", json!({}), json!({"reasoning_effort": "low"})),
        (
            wire(&OPENAI, "openai-responses"),
            "gpt-5",
            json!({"reasoning": {"summary": "auto"}}),
            json!({"reasoning": {"summary": "auto", "effort": "low"}}),
        ),
        (
            &ANTHROPIC.main,
            "claude-opus-4-5",
            json!({"thinking": {"type": "enabled", "budget_tokens": 1500}}),
            json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ),
        (
            &ANTHROPIC.main,
            "claude-opus-5",
            json!({"thinking": {"type": "adaptive"}}),
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}),
        ),
        (
            &GOOGLE.main,
            "gemini-2.5-pro",
            json!({"generationConfig": {"thinkingConfig": {"thinkingBudget": -1}}}),
            json!({"generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}}}),
        ),
        (
            &GOOGLE.main,
            "gemini-3-pro",
            json!({"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}}),
            json!({"generationConfig": {"thinkingConfig": {"thinkingLevel": "MEDIUM"}}}),
        ),
        (&OLLAMA.main, "gpt-oss", json!({"think": "high"}), json!({"think": "medium"})),
        (&OLLAMA.main, "qwen3", json!({"think": true}), json!({"think": false})),
        (
            &COHERE.main,
            "command-a-reasoning",
            json!({"thinking": {"type": "enabled", "token_budget": 400}}),
            json!({"thinking": {"type": "enabled", "token_budget": 200}}),
        ),
        (
            &provider::OPENROUTER.main,
            "anthropic/claude-opus-5",
            json!({"reasoning": {"max_tokens": 9000}}),
            json!({"reasoning": {"max_tokens": 4500}}),
        ),
        (
            &provider::DEEPSEEK.main,
            "deepseek-v4",
            json!({}),
            json!({"thinking": {"type": "disabled"}}),
        ),
    ];
    for (profile, model, before, after) in table {
        let next = lower_effort(profile, model, &before).unwrap();
        assert_eq!(next.request, after, "{before}");
    }
    let low = lower_effort(&OPENAI.main, "gpt-5", &json!({"reasoning_effort": "low"}));
    assert_eq!(low, Err(Impossible::LowestEffort { field: "reasoning_effort" }));
    // The field is not added for a host whose models are not known to accept it.
    let unknown = lower_effort(&provider::GROQ.main, "llama-4", &json!({}));
    assert!(matches!(unknown, Err(Impossible::Unsupported { .. })));
}

/// Returns a request of this wire, with every kind of field that must stay.
fn request_of(profile: &Profile) -> Value {
    let mut request = json!({
        "model": "m", "unknown": {"deep": [1, null, "x", 1.5]}, "metadata": null,
        "max_tokens": 7, "stream": true, "response_format": {"z": 1, "a": 2},
    });
    for conversation in profile.request_shape.conversation.iter().take(1) {
        let (path, value) = match conversation {
            ConversationShape::MessageList(turns) => {
                let mut turn = json!({"role": turns.user});
                turn[turns.content] = json!([(turns.part)(Speaker::Asker(Role::User), "?")]);
                (turns.list, json!([turn]))
            }
            ConversationShape::Apart(field, _)
            | ConversationShape::Prompt(field, _)
            | ConversationShape::Templated(field, _) => (*field, json!("?")),
        };
        let path = path.split('.');
        *path.fold(&mut request, |at, name| &mut at[name]) = value;
    }
    request
}

const MODELS: &[&str] = &[
    "",
    "gpt-5",
    "gpt-4o",
    "o3",
    "claude-haiku-4-5",
    "claude-opus-4-5",
    "claude-opus-4-6",
    "claude-sonnet-5",
    "anthropic.claude-3-5-sonnet-20241022-v2:0",
    "claude-fable-5",
    "gemini-2.5-flash",
    "gemini-3-pro",
    "gemini-3.5-flash-lite",
    "gemini-3.6-flash",
    "gemini-4-argon",
    "qwen-max",
    "qwen3-thinking",
    "kimi-k2.6",
    "deepseek-v4",
    "mistral-large",
    "llama3.2",
    "command-a",
    "amazon.nova-pro",
    "grok-4",
];

/// Returns the top-level fields that differ.
fn changed(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (before.as_object().unwrap(), after.as_object().unwrap());
    let names = before.keys().chain(after.keys());
    let mut changed: Vec<String> =
        names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
    changed.dedup();
    changed
}

#[test]
fn nothing_but_the_conversation_and_the_flags_changes_anywhere() {
    let so_far = SoFar { id: Some("id"), token: Some("token"), ..TEXT };
    let mut tried = 0;
    for (profile, model) in provider::ALL
        .iter()
        .flat_map(|known| known.wires())
        .flat_map(|profile| MODELS.iter().map(move |model| (profile, *model)))
    {
        let name = format!("{} {} {model}", profile.provider, profile.dialect.id);
        let request = request_of(profile);
        let next = continue_answer(profile, model, &request, &so_far, &Wording::default());
        let Ok(next) = next else {
            assert!(matches!(next, Err(Impossible::Unsupported { .. })), "{name}: {next:?}");
            assert!(profile.request_shape.conversation.is_empty(), "{name}");
            continue;
        };
        tried += 1;
        let mut may: Vec<&str> =
            vec!["continuationToken", "previous_response_id", "previous_interaction_id", "input"];
        may.extend(["continue_final_message", "add_generation_prompt", "chat_history"]);
        let fields = profile.request_shape.conversation.iter().map(ConversationShape::field);
        may.extend(fields.map(|field| field.split('.').next().unwrap()));
        let touched = changed(&request, &next.request);
        assert!(!touched.is_empty(), "{name}");
        for field in touched {
            assert!(may.contains(&field.as_str()), "{name}: {field}");
        }
        // Earlier messages are unchanged.
        for conversation in profile.request_shape.conversation {
            let (
                ConversationShape::MessageList(turns),
                RequestChange::Prefill | RequestChange::Hint { .. },
            ) = (conversation, &next.how)
            else {
                continue;
            };
            let pointer = format!("/{}", turns.list.replace('.', "/"));
            if let Some(list) = next.request.pointer(&pointer).and_then(Value::as_array) {
                let first = request.pointer(&pointer).unwrap();
                assert_eq!(Some(&list[0]), first.get(0), "{name}");
            }
        }
        let sentence = &next.sentence;
        assert!(!sentence.is_empty() && !sentence.ends_with('.'), "{name}: {sentence}");
        let how = serde_json::to_string(&next.how).unwrap();
        assert_eq!(serde_json::from_str::<RequestChange>(&how).unwrap(), next.how);
        // Raising the limit changes nothing but the limit.
        let raised = set_cap(profile, &request, 99).unwrap();
        let caps: Vec<&str> =
            profile.caps.iter().map(|cap| cap.split('.').next().unwrap()).collect();
        for field in changed(&request, &raised.request) {
            assert!(caps.contains(&field.as_str()), "{name}: {field}");
        }
    }
    assert!(tried > 1000, "{tried}");
}

/// Newer Claude models answer 400 to a trailing assistant message (anthropics/claude-code#52433); so do
/// Gemini and Bedrock's other model families.
#[test]
fn no_model_that_refuses_a_prefill_is_given_one() {
    let refuse = [
        "claude-opus-4-6",
        "claude-opus-4-7",
        "claude-opus-4-8",
        "claude-sonnet-4-6",
        "claude-sonnet-5",
        "claude-sonnet-5-5",
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-haiku-5-5",
        "claude-fable-5-2",
        "claude-mythos-5",
        "us.anthropic.claude-opus-4-6-v1",
        "claude-opus-4-6@20260201",
        "gemini-3.5-flash-lite",
        "gemini-3.6-flash",
        "gemini-4-argon",
        "meta.llama3-3-70b-instruct-v1:0",
        "mistral.mistral-large-2402-v1:0",
    ];
    for (provider, model) in [&ANTHROPIC, &BEDROCK, &GOOGLE, &provider::VERTEX]
        .into_iter()
        .flat_map(|provider| refuse.iter().map(move |model| (provider, *model)))
    {
        for profile in provider.wires() {
            let request = request_of(profile);
            let next = continue_answer(profile, model, &request, &TEXT, &wording());
            let Ok(next) = next else { continue };
            for conversation in profile.request_shape.conversation {
                let ConversationShape::MessageList(turns) = conversation else { continue };
                let last = next.request[turns.list].as_array().and_then(|list| list.last());
                let role = last.map(|turn| turn["role"].clone());
                assert_ne!(role, Some(json!(turns.assistant)), "{model}: {next:?}");
            }
            if profile
                .request_shape
                .conversation
                .iter()
                .any(|conversation| matches!(conversation, ConversationShape::MessageList(_)))
            {
                let by = continue_by(Way::Prefill, profile, model, &request, &TEXT, &wording());
                assert!(matches!(by, Err(Impossible::NoPrefill { .. })), "{model}: {by:?}");
            }
        }
    }
}

/// Every wire has its conversation counted.
#[test]
fn messages_are_counted_where_each_wire_keeps_them() {
    let turns = |count: usize| vec![json!({"role": "user", "content": "?"}); count];
    for (profile, request, want) in [
        (&OPENAI.main, json!({"messages": turns(3)}), Some(3)),
        (wire(&OPENAI, "openai-responses"), json!({"input": turns(2)}), Some(2)),
        (wire(&OPENAI, "openai-responses"), json!({"input": "?"}), Some(1)),
        (&ANTHROPIC.main, json!({"system": "s", "messages": turns(4)}), Some(4)),
        (&GOOGLE.main, json!({"contents": turns(5)}), Some(5)),
        (&OLLAMA.main, json!({"messages": []}), Some(0)),
        (wire(&COHERE, "cohere-v1"), json!({"message": "?", "chat_history": turns(2)}), Some(3)),
        (&OPENAI.main, json!({"contents": turns(5)}), None),
        (&OPENAI.main, json!([1]), None),
        (&provider::REPLICATE.main, json!({"input": {}}), None),
    ] {
        assert_eq!(messages(profile, &request), want, "{request}");
    }
    for profile in provider::ALL.iter().flat_map(|known| known.wires()) {
        let counted = messages(profile, &request_of(profile));
        assert_eq!(
            counted.is_some(),
            !profile.request_shape.conversation.is_empty(),
            "{}",
            profile.provider
        );
        assert!(counted.is_none_or(|count| count == 1), "{}: {counted:?}", profile.provider);
    }
}

#[test]
fn there_must_be_something_to_go_on_with() {
    let request = json!({"messages": [{"role": "user", "content": "?"}]});
    for text in ["", " \n"] {
        let so_far = SoFar { text, ..SoFar::default() };
        for profile in [&OPENAI.main, &ANTHROPIC.main, &provider::MISTRAL.main] {
            let next = continue_answer(profile, "claude-haiku-4-5", &request, &so_far, &wording());
            assert_eq!(next, Err(Impossible::NothingSoFar));
        }
    }
    let replicate =
        continue_answer(&provider::REPLICATE.main, "m", &json!({"input": {}}), &TEXT, &wording());
    assert_eq!(
        replicate.unwrap_err().to_string(),
        "`replicate` requests do not support adding messages"
    );
}

#[test]
fn the_tail_is_cut_between_characters() {
    let ask = |tail, text| {
        let wording = Wording { tail, ..wording() };
        let request = json!({"messages": []});
        let so_far = SoFar { text, ..SoFar::default() };
        let next = continue_answer(&COHERE.main, "m", &request, &so_far, &wording).unwrap();
        next.request["messages"][1]["content"].as_str().unwrap().to_owned()
    };
    assert!(ask(2, "日本語").contains("end>\n本語\n</"));
    assert!(ask(0, "日本語").contains("end>\n\n</"));
    assert!(ask(9, "日本語").contains("end>\n日本語\n</"));
}

/// The option is looked for as a member of the request, not anywhere in its text.
#[test]
fn the_usage_option_is_added_unless_the_request_has_it() {
    let option = OPENAI.main.request_shape.usage.unwrap();
    let added = |request: &str| {
        option.added_to(request.as_bytes()).map(|request| String::from_utf8(request).unwrap())
    };
    let want = r#"{ "a": 1.0,"stream_options":{"include_usage":true} }"#;
    assert_eq!(added(r#"{ "a": 1.0 }"#).as_deref(), Some(want));
    let said = r#"{"messages":[{"content":"set \"stream_options\""}]}"#;
    assert!(added(said).is_some_and(|request| request.starts_with(said.trim_end_matches('}'))));
    assert_eq!(added("{}").as_deref(), Some(r#"{"stream_options":{"include_usage":true}}"#));
    assert_eq!(added(r#"{"stream_options":null}"#), None);
    assert_eq!(added(r#"{"stream_options":{"include_usage":false}}"#), None);
    assert_eq!(added("[1]"), None);
    assert_eq!(added("not json"), None);
}
