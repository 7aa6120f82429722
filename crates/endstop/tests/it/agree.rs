//! Streamed and not streamed, the same content gives the same verdict, for every word of every wire.

use endstop::dialect::{self, Dialect};
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
    for dialect in dialect::ALL {
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
            other => panic!("no builder for {other}"),
        }
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
            other => panic!("no builder for {other}"),
        }
    }
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
