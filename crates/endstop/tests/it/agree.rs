//! Streamed and not streamed, the same content gives the same verdict, for every word of every wire.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::dialect::Dialect;
use endstop::frame::aws;
use endstop::provider::{self, Profile};
use endstop::{Asked, Close, Ending, Head, Reader};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Content {
    Text,
    Call,
    Nothing,
}

/// One answer on one wire.
pub(crate) struct Answer<'a> {
    pub(crate) dialect: &'a Dialect,
    pub(crate) field: &'a str,
    pub(crate) word: Value,
    pub(crate) content: Content,
}

#[test]
fn for_every_word_of_every_wire() {
    let mut compared = 0;
    for dialect in endstop::dialect::ALL {
        for words in dialect.words {
            let names = words.rows.iter().map(|(word, _)| *word).chain(words.empty.iter().copied());
            for word in names.map(Value::from).chain([json!("frobnicated"), json!(77), Value::Null])
            {
                for content in [Content::Text, Content::Call, Content::Nothing] {
                    let answer =
                        Answer { dialect, field: words.field, word: word.clone(), content };
                    if answer.exists() {
                        answer.check();
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

impl Answer<'_> {
    /// Legacy completions have no tools; a blocked prompt has no content.
    pub(crate) fn exists(&self) -> bool {
        match self.dialect.id {
            "openai-completions" => self.content != Content::Call,
            "gemini-generate" if self.field == "blockReason" => self.content == Content::Nothing,
            // Without a status a body says nothing, and without its event a stream is cut.
            "openai-responses" => !self.word.is_null(),
            // A run that is polled has no text.
            "openai-assistants" => self.content != Content::Text,
            // No tools, and nothing but the word to end a stream.
            "anthropic-complete" | "watsonx" => {
                self.content != Content::Call && !self.word.is_null()
            }
            "dashscope" => !self.word.is_null(),
            "bedrock-titan"
            | "bedrock-llama"
            | "bedrock-cohere"
            | "hf-tgi"
            | "llamacpp-completion" => self.content != Content::Call,
            // The one never streams, and the other has words of their own for streams.
            "bedrock-ai21" | "replicate" => false,
            _ => true,
        }
    }

    #[track_caller]
    fn check(&self) {
        let profile =
            provider::ALL.iter().find_map(|known| known.wire_of(self.dialect.id)).unwrap();
        let streamed = read(profile, "", &self.stream());
        let plain = read(profile, "application/json", self.body().to_string().as_bytes());
        let facts = |ending: &Ending| {
            (
                ending.reason,
                ending.confidence,
                ending.said.clone(),
                ending.shown,
                ending.closed,
                ending.sentence.clone(),
            )
        };
        assert_eq!(
            facts(&streamed),
            facts(&plain),
            "{} {} {} {:?}",
            self.dialect.id,
            self.field,
            self.word,
            self.content
        );
    }

    pub(crate) fn body(&self) -> Value {
        let word = &self.word;
        let (text, call) = (self.content == Content::Text, self.content == Content::Call);
        match self.dialect.id {
            "openai-chat" => {
                let calls = call.then(|| json!([{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}]));
                let message = json!({"content": text.then_some("Hi"), "tool_calls": calls});
                json!({"choices": [self.chat_choice("message", message)]})
            }
            "openai-completions" => {
                json!({"choices": [{"index": 0, "text": if text { "Hi" } else { "" }, "finish_reason": word}]})
            }
            "openai-responses" => self.response(),
            "anthropic-messages" => {
                let mut content = Vec::new();
                content.extend(text.then(|| json!({"type": "text", "text": "Hi"})));
                content.extend(call.then(
                    || json!({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}),
                ));
                json!({"type": "message", "content": content, "stop_reason": word})
            }
            "gemini-generate" => self.gemini(),
            "bedrock-converse" => {
                let mut content = Vec::new();
                content.extend(text.then(|| json!({"text": "Hi"})));
                content.extend(call.then(
                    || json!({"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}}),
                ));
                json!({"output": {"message": {"content": content}}, "stopReason": word})
            }
            "cohere-v2" => {
                let calls = call.then(
                    || json!([{"id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}]),
                );
                let content = text.then(|| json!([{"type": "text", "text": "Hi"}]));
                json!({"id": "1", "finish_reason": word, "message": {"content": content, "tool_calls": calls}, "usage": {}})
            }
            "ollama-chat" => {
                let calls =
                    call.then(|| json!([{"function": {"name": "f", "arguments": {"a": 1}}}]));
                json!({"model": "m", "message": {"content": if text { "Hi" } else { "" }, "tool_calls": calls}, "done": true, "done_reason": word})
            }
            "openai-assistants" => self.run(),
            "anthropic-complete" => {
                json!({"type": "completion", "completion": self.text(), "stop_reason": word})
            }
            "gemini-interactions" => {
                let mut steps = Vec::new();
                steps.extend(text.then(
                    || json!({"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}),
                ));
                steps.extend(call.then(|| json!({"type": "function_call", "id": "c", "name": "f", "arguments": {"a": 1}})));
                json!({"object": "interaction", "status": word, "steps": steps})
            }
            "bedrock-nova" => {
                let mut content = Vec::new();
                content.extend(text.then(|| json!({"text": "Hi"})));
                content.extend(call.then(
                    || json!({"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}}),
                ));
                json!({"output": {"message": {"content": content}}, "stopReason": word})
            }
            "bedrock-titan" if self.field == "completionReason" => {
                json!({"results": [{"outputText": self.text(), "completionReason": word}]})
            }
            "bedrock-titan" => {
                json!({"results": [{"outputText": self.text()}], "amazon-bedrock-guardrailAction": word})
            }
            "bedrock-llama" => json!({"generation": self.text(), "stop_reason": word}),
            "bedrock-mistral" if call => {
                json!({"choices": [{"message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}, "stop_reason": word}]})
            }
            "bedrock-mistral" => json!({"outputs": [{"text": self.text(), "stop_reason": word}]}),
            "bedrock-cohere" => {
                json!({"generations": [{"text": self.text(), "finish_reason": word}]})
            }
            "cohere-v1" => {
                let calls = call.then(|| json!([{"name": "f", "parameters": {"a": 1}}]));
                json!({"response_id": "1", "text": self.text(), "tool_calls": calls, "finish_reason": word})
            }
            "watsonx" => {
                json!({"model_id": "m", "results": [{"generated_text": self.text(), "stop_reason": word}]})
            }
            "dashscope" => self.dashscope(word),
            "hf-tgi" => json!({"generated_text": self.text(), "details": {"finish_reason": word}}),
            "llamacpp-completion" => {
                json!({"content": self.text(), "stop": true, "stop_type": word})
            }
            other => panic!("no builder for {other}"),
        }
    }

    fn text(&self) -> &'static str {
        if self.content == Content::Text { "Hi" } else { "" }
    }

    fn run(&self) -> Value {
        let calls = (self.content == Content::Call).then(|| json!({"submit_tool_outputs": {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}));
        match self.field {
            "status" => {
                json!({"object": "thread.run", "status": self.word, "required_action": calls})
            }
            _ => {
                json!({"object": "thread.run", "status": "incomplete", "incomplete_details": {"reason": self.word}, "required_action": calls})
            }
        }
    }

    fn dashscope(&self, word: &Value) -> Value {
        let calls = (self.content == Content::Call).then(|| json!([{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}]));
        json!({"request_id": "r", "output": {"choices": [{"message": {"content": self.text(), "tool_calls": calls}, "finish_reason": word}]}})
    }

    fn chat_choice(&self, key: &str, message: Value) -> Value {
        match self.field {
            "finish_details.type" => {
                json!({"index": 0, key: message, "finish_details": {"type": self.word}})
            }
            _ => json!({"index": 0, key: message, "finish_reason": self.word}),
        }
    }

    fn response(&self) -> Value {
        let mut output = Vec::new();
        output.extend((self.content == Content::Text).then(|| json!({"type": "message", "status": "completed", "content": [{"type": "output_text", "text": "Hi"}]})));
        output.extend((self.content == Content::Call).then(|| json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}", "status": "completed"})));
        match self.field {
            "status" => json!({"object": "response", "status": self.word, "output": output}),
            _ => {
                json!({"object": "response", "status": "incomplete", "incomplete_details": {"reason": self.word}, "output": output})
            }
        }
    }

    fn gemini(&self) -> Value {
        if self.field == "blockReason" {
            return json!({"promptFeedback": {"blockReason": self.word}});
        }
        let mut parts = Vec::new();
        parts.extend((self.content == Content::Text).then(|| json!({"text": "Hi"})));
        parts.extend(
            (self.content == Content::Call)
                .then(|| json!({"functionCall": {"name": "f", "args": {"a": 1}}})),
        );
        json!({"candidates": [{"index": 0, "content": {"parts": parts}, "finishReason": self.word}]})
    }

    pub(crate) fn stream(&self) -> Vec<u8> {
        let word = &self.word;
        let (text, call) = (self.content == Content::Text, self.content == Content::Call);
        match self.dialect.id {
            "openai-chat" => {
                let mut events =
                    vec![json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})];
                events.extend(
                    text.then(|| json!({"choices": [{"index": 0, "delta": {"content": "Hi"}}]})),
                );
                if call {
                    events.push(json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}}]}));
                    events.push(json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":"}}]}}]}));
                    events.push(json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}}]}));
                }
                events.push(json!({"choices": [self.chat_choice("delta", json!({}))]}));
                sse(&events, "data: [DONE]\n\n")
            }
            "openai-completions" => sse(
                &[
                    json!({"choices": [{"index": 0, "text": if text { "Hi" } else { "" }, "finish_reason": null}]}),
                    json!({"choices": [{"index": 0, "text": "", "finish_reason": word}]}),
                ],
                "data: [DONE]\n\n",
            ),
            "openai-responses" => {
                let mut events = vec![
                    json!({"type": "response.created", "response": {"status": "in_progress"}}),
                ];
                events.extend(text.then(|| json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"})));
                if call {
                    events.push(json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}}));
                    events.push(json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"a\":1}"}));
                    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}", "status": "completed"}}));
                }
                events.push(json!({"type": "response.completed", "response": self.response()}));
                sse(&events, "")
            }
            "anthropic-messages" => {
                let mut events = vec![
                    json!({"type": "message_start", "message": {"id": "m", "content": [], "stop_reason": null}}),
                ];
                if text {
                    events.push(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}));
                    events.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}));
                    events.push(json!({"type": "content_block_stop", "index": 0}));
                }
                if call {
                    events.push(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}));
                    events.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":1}"}}));
                    events.push(json!({"type": "content_block_stop", "index": 0}));
                }
                events.push(json!({"type": "message_delta", "delta": {"stop_reason": word}}));
                events.push(json!({"type": "message_stop"}));
                sse(&events, "")
            }
            // Without a word a stream of this wire is cut, and a body is not: the one is told by the
            // end of the bytes alone. A null is left out of both.
            "gemini-generate" if word.is_null() => self.gemini().to_string().into_bytes(),
            "gemini-generate" => sse(&[self.gemini()], ""),
            "bedrock-converse" => {
                let mut events = vec![("messageStart", json!({"role": "assistant"}))];
                events.extend(text.then(|| {
                    ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "Hi"}}))
                }));
                if call {
                    events.push(("contentBlockStart", json!({"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}})));
                    events.push(("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{\"a\":1}"}}})));
                    events.push(("contentBlockStop", json!({"contentBlockIndex": 0})));
                }
                events.push(("messageStop", json!({"stopReason": word})));
                let encode = |(name, data): &(&str, Value)| {
                    aws::encode(
                        &[(":event-type", name), (":message-type", "event")],
                        data.to_string().as_bytes(),
                    )
                };
                events.iter().flat_map(encode).collect()
            }
            "cohere-v2" => {
                let mut events = vec![json!({"type": "message-start", "id": "1"})];
                events.extend(text.then(|| json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}})));
                if call {
                    events.push(json!({"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"id": "c", "function": {"name": "f", "arguments": ""}}}}}));
                    events.push(json!({"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {"arguments": "{\"a\":1}"}}}}}));
                    events.push(json!({"type": "tool-call-end", "index": 0}));
                }
                events.push(
                    json!({"type": "message-end", "delta": {"finish_reason": word, "usage": {}}}),
                );
                sse(&events, "data: [DONE]\n\n")
            }
            "ollama-chat" => {
                let calls =
                    call.then(|| json!([{"function": {"name": "f", "arguments": {"a": 1}}}]));
                let first = json!({"model": "m", "message": {"content": if text { "Hi" } else { "" }, "tool_calls": calls}, "done": false});
                let last = json!({"model": "m", "message": {"content": ""}, "done": true, "done_reason": word});
                format!("{first}\n{last}\n").into_bytes()
            }
            "openai-assistants" => {
                let mut events = vec![json!({"object": "thread.run", "status": "in_progress"})];
                events.extend(call.then(|| json!({"object": "thread.run.step.delta", "delta": {"step_details": {"type": "tool_calls", "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}})));
                events.push(self.run());
                sse(&events, "event: done\ndata: [DONE]\n\n")
            }
            "anthropic-complete" => sse(
                &[
                    json!({"type": "completion", "completion": self.text(), "stop_reason": null}),
                    json!({"type": "completion", "completion": "", "stop_reason": word}),
                ],
                "",
            ),
            "gemini-interactions" => {
                let mut events = vec![
                    json!({"event_type": "interaction.created", "interaction": {"status": "in_progress"}}),
                ];
                if text {
                    events.push(json!({"event_type": "step.start", "index": 0, "step": {"type": "model_output"}}));
                    events.push(json!({"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}}));
                }
                if call {
                    events.push(json!({"event_type": "step.start", "index": 0, "step": {"type": "function_call", "id": "c", "name": "f", "arguments": {}}}));
                    events.push(json!({"event_type": "step.delta", "index": 0, "delta": {"type": "arguments_delta", "arguments": "{\"a\":1}"}}));
                }
                events.push(json!({"event_type": "step.stop", "index": 0}));
                events.push(json!({"event_type": "interaction.completed", "interaction": {"object": "interaction", "status": word}}));
                sse(&events, "event: done\ndata: [DONE]\n\n")
            }
            "bedrock-nova" => {
                let mut events = vec![json!({"messageStart": {"role": "assistant"}})];
                events.extend(text.then(|| json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}})));
                if call {
                    events.push(json!({"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "f"}}}}));
                    events.push(json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{\"a\":1}"}}}}));
                    events.push(json!({"contentBlockStop": {"contentBlockIndex": 0}}));
                }
                events.push(json!({"messageStop": {"stopReason": word}}));
                chunks(&events)
            }
            "bedrock-titan" => {
                let last = match self.field {
                    "completionReason" => {
                        json!({"outputText": "", "totalOutputTextTokenCount": 1, "completionReason": word})
                    }
                    _ => {
                        json!({"outputText": "", "totalOutputTextTokenCount": 1, "amazon-bedrock-guardrailAction": word})
                    }
                };
                chunks(&[json!({"outputText": self.text(), "completionReason": null}), last])
            }
            "bedrock-llama" => chunks(&[
                json!({"generation": self.text(), "stop_reason": null}),
                json!({"generation": "", "stop_reason": word, "amazon-bedrock-invocationMetrics": {}}),
            ]),
            "bedrock-mistral" if call => {
                let mut last = self.body();
                last["amazon-bedrock-invocationMetrics"] = json!({});
                chunks(&[last])
            }
            "bedrock-mistral" => chunks(&[
                json!({"outputs": [{"text": self.text(), "stop_reason": null}]}),
                json!({"outputs": [{"text": "", "stop_reason": word}], "amazon-bedrock-invocationMetrics": {}}),
            ]),
            "bedrock-cohere" => chunks(&[
                json!({"is_finished": false, "text": self.text()}),
                json!({"is_finished": true, "finish_reason": word}),
            ]),
            "cohere-v1" => {
                let mut events = vec![json!({"event_type": "stream-start", "generation_id": "1"})];
                events.extend(text.then(|| json!({"event_type": "text-generation", "text": "Hi"})));
                events.extend(call.then(|| json!({"event_type": "tool-calls-generation", "tool_calls": [{"name": "f", "parameters": {"a": 1}}]})));
                events.push(json!({"event_type": "stream-end", "finish_reason": word, "response": self.body()}));
                events.iter().flat_map(|event| format!("{event}\n").into_bytes()).collect()
            }
            "watsonx" => sse(
                &[
                    json!({"model_id": "m", "results": [{"generated_text": self.text(), "stop_reason": "not_finished"}]}),
                    json!({"model_id": "m", "results": [{"generated_text": "", "stop_reason": word}]}),
                ],
                "event: close\n\n",
            ),
            "dashscope" => {
                let last = json!({"request_id": "r", "output": {"choices": [{"message": {"content": ""}, "finish_reason": word}]}});
                sse(&[self.dashscope(&json!("null")), last], "")
            }
            "hf-tgi" => sse(
                &[
                    json!({"token": {"text": self.text()}, "generated_text": null, "details": null}),
                    json!({"token": {"text": "</s>", "special": true}, "generated_text": self.text(), "details": {"finish_reason": word}}),
                ],
                "",
            ),
            "llamacpp-completion" => sse(
                &[
                    json!({"content": self.text(), "stop": false}),
                    json!({"content": "", "stop": true, "stop_type": word}),
                ],
                "",
            ),
            other => panic!("no builder for {other}"),
        }
    }
}

/// Events that are wrapped in base64 inside AWS event-stream messages.
fn chunks(events: &[Value]) -> Vec<u8> {
    let encode = |event: &Value| {
        let payload = json!({"bytes": STANDARD.encode(event.to_string())}).to_string();
        aws::encode(&[(":event-type", "chunk"), (":message-type", "event")], payload.as_bytes())
    };
    events.iter().flat_map(encode).collect()
}

fn sse(events: &[Value], end: &str) -> Vec<u8> {
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    text.push_str(end);
    text.into_bytes()
}

fn read(profile: &Profile, content_type: &str, bytes: &[u8]) -> Ending {
    let mut reader = Reader::new(profile, Head { status: 200, content_type }, Asked::default());
    reader.watch(bytes);
    reader.finish(Close::Eof)
}
