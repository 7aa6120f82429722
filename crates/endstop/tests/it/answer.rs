//! One answer on any wire, streamed and plain: text, a refusal or tool calls, and a finish reason.
//!
//! Each wire has one [`Builder`] in [`BUILDERS`]. A test checks that every dialect has one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::dialect::{self, Dialect};
use endstop::frame::aws;
use serde_json::{Map, Value, json};

/// Contents of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Nothing,
    Text,
    /// Text in the wire's field for refusals.
    Refusal,
    /// Text, with the matched stop sequence beside the finish reason.
    Stopped,
    Calls(Vec<Sent>),
}

/// A tool call to send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) name: String,
    pub(crate) arguments: Arguments,
}

/// Arguments of a call to send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arguments {
    Json(Value),
    /// Free text, for tools that accept it.
    Text(String),
    /// No arguments, in each of the hosts' spellings.
    Absent,
    Blank,
    Null,
}

impl Arguments {
    /// Returns the arguments as JSON text, which most wires send. `None` if the key is left out.
    fn text(&self) -> Option<Value> {
        match self {
            Self::Json(value) => Some(json!(value.to_string())),
            Self::Text(text) => Some(json!(text)),
            Self::Absent => None,
            Self::Blank => Some(json!("")),
            Self::Null => Some(Value::Null),
        }
    }

    /// Returns the arguments as a JSON value. `None` if the key is left out.
    fn value(&self) -> Option<Value> {
        match self {
            Self::Json(value) => Some(value.clone()),
            Self::Text(text) => Some(json!(text)),
            Self::Absent | Self::Blank => None,
            Self::Null => Some(Value::Null),
        }
    }
}

/// Returns a call with one argument.
pub(crate) fn one_call() -> Content {
    Content::Calls(vec![Sent { name: "f".into(), arguments: Arguments::Json(json!({"a": 1})) }])
}

/// One answer on one wire.
#[derive(Clone, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) dialect: &'a Dialect,
    /// Field of the finish reason.
    pub(crate) field: &'a str,
    pub(crate) word: Value,
    pub(crate) content: Content,
    /// Number of characters of text arguments in one event of a stream.
    pub(crate) piece: usize,
}

/// Functions that make the bytes of one wire.
pub(crate) struct Builder {
    pub(crate) id: &'static str,
    calls: CallsAs,
    /// Returns the plain body. `None` if a plain body of this wire cannot express the answer.
    body: fn(&Answer<'_>) -> Option<Value>,
    /// Returns the stream. `None` if a stream of this wire cannot express the answer.
    stream: fn(&Answer<'_>) -> Option<Vec<u8>>,
    /// Returns an error body.
    error_body: fn(&str) -> Value,
    /// Returns a stream of text that ends with an error. `None` if the wire has no such error.
    error_frame: fn(&str) -> Option<Vec<u8>>,
}

/// Form of the tool calls of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallsAs {
    /// No tool calls.
    None,
    /// Arguments as JSON text.
    Text,
    /// Arguments as JSON text, and tools that accept free text.
    TextOrFree,
    /// Arguments as JSON values.
    Values,
}

impl Builder {
    pub(crate) fn carries_calls(&self) -> bool {
        self.calls != CallsAs::None
    }

    pub(crate) fn takes_free_text(&self) -> bool {
        self.calls == CallsAs::TextOrFree
    }

    /// Returns an error body with this message.
    pub(crate) fn error_body(&self, message: &str) -> Value {
        (self.error_body)(message)
    }

    /// Returns a stream of text, then an error with this message.
    pub(crate) fn error_frame(&self, message: &str) -> Option<Vec<u8>> {
        (self.error_frame)(message)
    }
}

/// Returns the builder of a dialect.
pub(crate) fn builder(dialect: &str) -> &'static Builder {
    BUILDERS.iter().find(|builder| builder.id == dialect).unwrap_or_else(|| {
        panic!("no builder for `{dialect}`: add one to BUILDERS in tests/it/answer.rs")
    })
}

#[test]
fn every_dialect_has_a_builder() {
    dialect::ALL.iter().for_each(|dialect| assert_eq!(builder(dialect.id).id, dialect.id));
    assert_eq!(BUILDERS.len(), dialect::ALL.len());
}

static BUILDERS: &[Builder] = &[
    Builder {
        id: "openai-chat",
        calls: CallsAs::TextOrFree,
        body: chat_body,
        stream: chat_stream,
        error_body: openai_error,
        error_frame: |message| {
            let text = json!({"choices": [{"index": 0, "delta": {"content": "Hi"}}]});
            Some(sse(&[text, openai_error(message)], ""))
        },
    },
    Builder {
        id: "openai-completions",
        calls: CallsAs::None,
        body: completions_body,
        stream: completions_stream,
        error_body: openai_error,
        error_frame: |message| {
            let text = json!({"choices": [{"index": 0, "text": "Hi"}]});
            Some(sse(&[text, openai_error(message)], ""))
        },
    },
    Builder {
        id: "openai-responses",
        calls: CallsAs::TextOrFree,
        body: responses_body,
        stream: responses_stream,
        error_body: openai_error,
        error_frame: |message| {
            let text =
                json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"});
            let error = json!({"type": "error", "code": "server_error", "message": message, "param": null, "sequence_number": 3});
            Some(sse(&[text, error], ""))
        },
    },
    Builder {
        id: "anthropic-messages",
        calls: CallsAs::Text,
        body: messages_body,
        stream: messages_stream,
        error_body: anthropic_error,
        error_frame: |message| {
            let start = json!({"type": "message_start", "message": {"id": "m", "content": []}});
            let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}});
            Some(sse(&[start, text, anthropic_error(message)], ""))
        },
    },
    Builder {
        id: "gemini-generate",
        calls: CallsAs::Values,
        body: |answer| fits_gemini(answer).then(|| gemini_value(answer)),
        stream: gemini_stream,
        error_body: google_error,
        error_frame: |message| {
            let text =
                json!({"candidates": [{"index": 0, "content": {"parts": [{"text": "Hi"}]}}]});
            Some(sse(&[text, google_error(message)], ""))
        },
    },
    Builder {
        id: "bedrock-converse",
        calls: CallsAs::Text,
        body: converse_body,
        stream: converse_stream,
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            let text = json!({"contentBlockIndex": 0, "delta": {"text": "Hi"}});
            let mut bytes = message_frames(&[("contentBlockDelta", text)]);
            bytes.extend(exception(message));
            Some(bytes)
        },
    },
    Builder {
        id: "cohere-v2",
        calls: CallsAs::Text,
        body: cohere_body,
        stream: cohere_stream,
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            let text = json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}});
            let end = json!({"type": "message-end", "delta": {"finish_reason": "ERROR", "error": message}});
            Some(sse(&[text, end], ""))
        },
    },
    Builder {
        id: "ollama-chat",
        calls: CallsAs::Values,
        body: ollama_body,
        stream: ollama_stream,
        error_body: |message| json!({"error": message}),
        error_frame: |message| {
            let text = json!({"model": "m", "message": {"content": "Hi"}, "done": false});
            Some(lines(&[text, json!({"error": message})]))
        },
    },
    Builder {
        id: "openai-assistants",
        calls: CallsAs::Text,
        body: run_body,
        stream: run_stream,
        error_body: openai_error,
        error_frame: |message| {
            let run = json!({"object": "thread.run", "status": "in_progress"});
            let error = json!({"message": message, "type": "server_error", "code": null});
            let mut bytes = sse(&[run], "");
            bytes.extend(format!("event: error\ndata: {error}\n\n").into_bytes());
            Some(bytes)
        },
    },
    Builder {
        id: "anthropic-complete",
        calls: CallsAs::None,
        body: |answer| {
            Some(
                json!({"type": "completion", "completion": text(answer)?, "stop_reason": answer.word}),
            )
        },
        stream: |answer| {
            let first =
                json!({"type": "completion", "completion": text(answer)?, "stop_reason": null});
            let last = json!({"type": "completion", "completion": "", "stop_reason": answer.word});
            said(answer).then(|| sse(&[first, last], ""))
        },
        error_body: anthropic_error,
        error_frame: |message| {
            let first = json!({"type": "completion", "completion": "Hi", "stop_reason": null});
            Some(sse(&[first, anthropic_error(message)], ""))
        },
    },
    Builder {
        id: "gemini-interactions",
        calls: CallsAs::Text,
        body: interaction_body,
        stream: interaction_stream,
        error_body: google_error,
        error_frame: |message| {
            let error =
                json!({"event_type": "error", "error": {"code": "internal", "message": message}});
            let start =
                json!({"event_type": "step.start", "index": 0, "step": {"type": "model_output"}});
            let text = json!({"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}});
            Some(sse(&[start, text, error], ""))
        },
    },
    Builder {
        id: "bedrock-nova",
        calls: CallsAs::Text,
        body: converse_body,
        stream: nova_stream,
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            let text =
                json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}});
            chunks_and_exception(&[text], message)
        },
    },
    Builder {
        id: "bedrock-titan",
        calls: CallsAs::None,
        body: titan_body,
        stream: titan_stream,
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            chunks_and_exception(&[json!({"outputText": "Hi", "completionReason": null})], message)
        },
    },
    Builder {
        id: "bedrock-llama",
        calls: CallsAs::None,
        body: |answer| Some(json!({"generation": text(answer)?, "stop_reason": answer.word})),
        stream: |answer| {
            Some(chunks(&[
                json!({"generation": text(answer)?, "stop_reason": null}),
                json!({"generation": "", "stop_reason": answer.word, "amazon-bedrock-invocationMetrics": {}}),
            ]))
        },
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            chunks_and_exception(&[json!({"generation": "Hi", "stop_reason": null})], message)
        },
    },
    Builder {
        id: "bedrock-mistral",
        calls: CallsAs::Text,
        body: bedrock_mistral_body,
        stream: bedrock_mistral_stream,
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            let text = json!({"outputs": [{"text": "Hi", "stop_reason": null}]});
            chunks_and_exception(&[text], message)
        },
    },
    Builder {
        id: "bedrock-cohere",
        calls: CallsAs::None,
        body: |answer| {
            Some(json!({"generations": [{"text": text(answer)?, "finish_reason": answer.word}]}))
        },
        stream: |answer| {
            Some(chunks(&[
                json!({"is_finished": false, "text": text(answer)?}),
                json!({"is_finished": true, "finish_reason": answer.word}),
            ]))
        },
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            chunks_and_exception(&[json!({"is_finished": false, "text": "Hi"})], message)
        },
    },
    Builder {
        id: "bedrock-ai21",
        calls: CallsAs::None,
        body: |answer| {
            Some(
                json!({"id": 1, "completions": [{"data": {"text": text(answer)?}, "finishReason": {"reason": answer.word}}]}),
            )
        },
        // This model family has no streams.
        stream: |_| None,
        error_body: |message| json!({"message": message}),
        error_frame: |_| None,
    },
    Builder {
        id: "cohere-v1",
        calls: CallsAs::Values,
        body: cohere_v1_body,
        stream: cohere_v1_stream,
        error_body: |message| json!({"message": message}),
        error_frame: |message| {
            let text = json!({"event_type": "text-generation", "text": "Hi"});
            let error = json!({"event_type": "stream-error", "is_finished": true, "finish_reason": "ERROR", "err": message});
            Some(lines(&[text, error]))
        },
    },
    Builder {
        id: "watsonx",
        calls: CallsAs::None,
        body: |answer| {
            Some(
                json!({"model_id": "m", "results": [{"generated_text": text(answer)?, "stop_reason": answer.word}]}),
            )
        },
        stream: |answer| {
            let first = json!({"model_id": "m", "results": [{"generated_text": text(answer)?, "stop_reason": "not_finished"}]});
            let last = json!({"model_id": "m", "results": [{"generated_text": "", "stop_reason": answer.word}]});
            said(answer).then(|| sse(&[first, last], "event: close\n\n"))
        },
        error_body: watsonx_error,
        error_frame: |message| {
            let text = json!({"model_id": "m", "results": [{"generated_text": "Hi", "stop_reason": "not_finished"}]});
            let mut bytes = sse(&[text], "");
            bytes
                .extend(format!("event: error\ndata: {}\n\n", watsonx_error(message)).into_bytes());
            Some(bytes)
        },
    },
    Builder {
        id: "dashscope",
        calls: CallsAs::Text,
        body: |answer| dashscope_value(answer, &answer.word, calls_as_text(answer, "tool_calls")),
        stream: dashscope_stream,
        error_body: |message| json!({"request_id": "r", "code": "InternalError", "message": message}),
        error_frame: |message| {
            let text = json!({"request_id": "r", "output": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "null"}]}});
            let error = json!({"request_id": "r", "code": "InternalError", "message": message});
            let mut bytes = sse(&[text], "");
            bytes.extend(format!("event: error\ndata: {error}\n\n").into_bytes());
            Some(bytes)
        },
    },
    Builder {
        id: "replicate",
        calls: CallsAs::None,
        body: |answer| {
            let error = if answer.word == "failed" { json!("it broke") } else { Value::Null };
            (answer.field == "status").then(|| {
                json!({"id": "p", "status": answer.word, "output": text(answer), "error": error, "urls": {}})
            })
        },
        stream: replicate_stream,
        error_body: |message| json!({"detail": message, "status": 500}),
        error_frame: |message| {
            Some(
                format!(
                    "event: output\ndata: Hi\n\nevent: error\ndata: {}\n\n",
                    json!({"detail": message})
                )
                .into_bytes(),
            )
        },
    },
    Builder {
        id: "hf-tgi",
        calls: CallsAs::None,
        body: |answer| {
            Some(
                json!({"generated_text": text(answer)?, "details": {"finish_reason": answer.word}}),
            )
        },
        stream: |answer| {
            let first =
                json!({"token": {"text": text(answer)?}, "generated_text": null, "details": null});
            let last = json!({"token": {"text": "</s>", "special": true}, "generated_text": text(answer)?, "details": {"finish_reason": answer.word}});
            Some(sse(&[first, last], ""))
        },
        error_body: |message| json!({"error": message, "error_type": "generation"}),
        error_frame: |message| {
            let text = json!({"token": {"text": "Hi"}, "generated_text": null, "details": null});
            Some(sse(&[text, json!({"error": message, "error_type": "generation"})], ""))
        },
    },
    Builder {
        id: "llamacpp-completion",
        calls: CallsAs::None,
        body: |answer| {
            Some(json!({"content": text(answer)?, "stop": true, "stop_type": answer.word}))
        },
        stream: |answer| {
            let first = json!({"content": text(answer)?, "stop": false});
            let last = json!({"content": "", "stop": true, "stop_type": answer.word});
            Some(sse(&[first, last], ""))
        },
        error_body: llamacpp_error,
        error_frame: |message| {
            Some(sse(&[json!({"content": "Hi", "stop": false}), llamacpp_error(message)], ""))
        },
    },
    Builder {
        id: "aleph-alpha-complete",
        calls: CallsAs::None,
        body: |answer| {
            Some(
                json!({"model_version": "2022-04", "completions": [{"completion": text(answer)?, "finish_reason": answer.word}]}),
            )
        },
        stream: |answer| {
            let text = json!({"type": "stream_chunk", "index": 0, "completion": text(answer)?});
            let word = json!({"type": "stream_summary", "index": 0, "model_version": "2022-04", "finish_reason": answer.word});
            let end = json!({"type": "completion_summary", "num_tokens_prompt_total": 1, "num_tokens_generated": 1});
            Some(sse(&[text, word, end], ""))
        },
        error_body: |message| json!({"error": message, "code": "INTERNAL_ERROR"}),
        error_frame: |message| {
            let text = json!({"type": "stream_chunk", "index": 0, "completion": "Hi"});
            Some(sse(&[text, json!({"error": message, "code": "INTERNAL_ERROR"})], ""))
        },
    },
    Builder {
        id: "sap-orchestration",
        calls: CallsAs::TextOrFree,
        body: |answer| Some(json!({"request_id": "r", "final_result": chat_body(answer)?})),
        stream: |answer| {
            let wrap = |event: Value| json!({"request_id": "r", "intermediate_results": {}, "final_result": event});
            let events: Vec<Value> = chat_events(answer).into_iter().map(wrap).collect();
            Some(sse(&events, "data: [DONE]\n\n"))
        },
        error_body: sap_error,
        error_frame: |message| {
            let text = json!({"request_id": "r", "final_result": {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}});
            Some(sse(&[text, sap_error(message)], ""))
        },
    },
    Builder {
        id: "cloudflare-run",
        calls: CallsAs::Values,
        body: |answer| {
            if answer.field == "finish_reason" {
                return Some(json!({"result": chat_body(answer)?, "success": true, "errors": []}));
            }
            let calls = calls_as_values(answer, "arguments");
            let result = json!({"response": plain_text(answer), "tool_calls": calls});
            Some(json!({"result": result, "success": true, "errors": [], "messages": []}))
        },
        stream: |answer| {
            if answer.field == "finish_reason" {
                return chat_stream(answer);
            }
            let mut events = Vec::new();
            if let Content::Text = answer.content {
                events.push(json!({"response": "Hi"}));
            }
            events.extend(
                calls_as_values(answer, "arguments")
                    .map(|calls| json!({"response": "", "tool_calls": calls})),
            );
            events.push(
                json!({"response": "", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
            );
            Some(sse(&events, "data: [DONE]\n\n"))
        },
        error_body: cloudflare_error,
        error_frame: |message| {
            Some(sse(&[json!({"response": "Hi"}), cloudflare_error(message)], ""))
        },
    },
];

impl Answer<'_> {
    /// Returns the plain body. `None` if the wire cannot express the answer in one.
    pub(crate) fn body(&self) -> Option<Vec<u8>> {
        let body = self.exists().then(|| (builder(self.dialect.id).body)(self))??;
        Some(body.to_string().into_bytes())
    }

    /// Returns the stream. `None` if the wire cannot express the answer in one.
    pub(crate) fn stream(&self) -> Option<Vec<u8>> {
        self.exists().then(|| (builder(self.dialect.id).stream)(self))?
    }

    /// Returns the stream in the other form of wires that have two.
    fn second_stream(&self) -> Option<Vec<u8>> {
        let (_, stream) = SECOND_STREAMS.iter().find(|(id, _)| *id == self.dialect.id)?;
        (self.exists() && !self.calls().is_empty() && said(self)).then(|| stream(self))?
    }

    /// Returns each form with its name.
    pub(crate) fn forms(&self) -> Vec<(&'static str, Vec<u8>)> {
        let second = ("streamed", self.second_stream());
        let forms = [("streamed", self.stream()), second, ("plain", self.body())];
        forms.into_iter().filter_map(|(form, bytes)| Some((form, bytes?))).collect()
    }

    fn exists(&self) -> bool {
        let builder = builder(self.dialect.id);
        match &self.content {
            Content::Calls(calls) => {
                let free = |call: &Sent| matches!(call.arguments, Arguments::Text(_));
                builder.carries_calls() && (builder.takes_free_text() || !calls.iter().any(free))
            }
            Content::Refusal => {
                let keep_a_field =
                    ["openai-chat", "openai-responses", "openai-assistants", "sap-orchestration"];
                keep_a_field.contains(&self.dialect.id)
            }
            Content::Stopped => ["openai-chat", "openai-completions", "sap-orchestration"]
                .contains(&self.dialect.id),
            Content::Text | Content::Nothing => true,
        }
    }

    fn calls(&self) -> &[Sent] {
        match &self.content {
            Content::Calls(calls) => calls,
            Content::Nothing | Content::Text | Content::Refusal | Content::Stopped => &[],
        }
    }
}

/// Returns the text, possibly empty. `None` if the wire cannot express the content.
fn text(answer: &Answer<'_>) -> Option<&'static str> {
    match answer.content {
        Content::Text | Content::Stopped => Some("Hi"),
        Content::Nothing => Some(""),
        Content::Refusal | Content::Calls(_) => None,
    }
}

/// Returns the text, possibly empty, on wires that have tool calls too.
fn plain_text(answer: &Answer<'_>) -> &'static str {
    text(answer).unwrap_or_default()
}

fn has_text(answer: &Answer<'_>) -> bool {
    matches!(answer.content, Content::Text | Content::Stopped)
}

/// Reports whether the answer has a finish reason. Streams of some wires do not end without one.
fn said(answer: &Answer<'_>) -> bool {
    !answer.word.is_null()
}

/// Returns an object of these fields, without those that have no value.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Returns JSON text in pieces, empty if there are no arguments.
fn pieces(answer: &Answer<'_>, arguments: &Arguments) -> Vec<String> {
    let text = match arguments {
        Arguments::Json(value) => value.to_string(),
        Arguments::Text(text) => text.clone(),
        Arguments::Absent | Arguments::Blank | Arguments::Null => return Vec::new(),
    };
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(answer.piece.max(1)).map(|piece| piece.iter().collect()).collect()
}

/// Returns the initial value of the arguments in a stream, before their pieces.
fn opening(arguments: &Arguments) -> Option<Value> {
    match arguments {
        Arguments::Json(_) | Arguments::Text(_) | Arguments::Blank => Some(json!("")),
        Arguments::Absent => None,
        Arguments::Null => Some(Value::Null),
    }
}

fn openai_error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "server_error", "param": null, "code": null}})
}

fn anthropic_error(message: &str) -> Value {
    json!({"type": "error", "error": {"type": "api_error", "message": message}})
}

fn google_error(message: &str) -> Value {
    json!({"error": {"code": 500, "message": message, "status": "INTERNAL"}})
}

fn watsonx_error(message: &str) -> Value {
    json!({"errors": [{"code": "downstream_request_failed", "message": message}], "trace": "t", "status_code": 500})
}

fn llamacpp_error(message: &str) -> Value {
    json!({"error": {"code": 500, "message": message, "type": "server_error"}})
}

fn cloudflare_error(message: &str) -> Value {
    json!({"success": false, "errors": [{"code": 5000, "message": message}], "result": null, "messages": []})
}

fn sap_error(message: &str) -> Value {
    json!({"error": {"request_id": "r", "code": 500, "message": message, "location": "LLM Module"}})
}

fn chat_call(number: usize, call: &Sent) -> Value {
    let (index, id) = (json!(number), json!(format!("c{number}")));
    let arguments = &call.arguments;
    match arguments {
        Arguments::Text(text) => {
            json!({"index": index, "id": id, "type": "custom", "custom": {"name": call.name, "input": text}})
        }
        Arguments::Json(_) | Arguments::Absent | Arguments::Blank | Arguments::Null => {
            let function =
                object([("name", Some(json!(call.name))), ("arguments", arguments.text())]);
            json!({"index": index, "id": id, "type": "function", "function": function})
        }
    }
}

/// Returns the calls in the format of chat completions, if there are any.
fn calls_as_text(answer: &Answer<'_>, _: &str) -> Option<Value> {
    let calls = answer.calls().iter().enumerate().map(|(number, call)| chat_call(number, call));
    let calls: Vec<Value> = calls.collect();
    (!calls.is_empty()).then(|| json!(calls))
}

/// Returns the calls with their arguments as values under this key, if there are any.
fn calls_as_values(answer: &Answer<'_>, key: &str) -> Option<Value> {
    let one =
        |call: &Sent| object([("name", Some(json!(call.name))), (key, call.arguments.value())]);
    let calls: Vec<Value> = answer.calls().iter().map(one).collect();
    (!calls.is_empty()).then(|| json!(calls))
}

fn chat_choice(answer: &Answer<'_>, key: &str, message: Value) -> Value {
    let stop = (answer.content == Content::Stopped).then(|| json!("END"));
    let details = answer.field == "finish_details.type";
    object([
        ("index", Some(json!(0))),
        (key, Some(message)),
        ("stop_reason", stop),
        ("finish_reason", (!details).then(|| answer.word.clone())),
        ("finish_details", details.then(|| json!({"type": answer.word}))),
    ])
}

fn chat_body(answer: &Answer<'_>) -> Option<Value> {
    let message = json!({
        "role": "assistant",
        "content": has_text(answer).then_some("Hi"),
        "refusal": (answer.content == Content::Refusal).then_some("No."),
        "tool_calls": calls_as_text(answer, ""),
    });
    Some(json!({"choices": [chat_choice(answer, "message", message)]}))
}

fn chat_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    Some(sse(&chat_events(answer), "data: [DONE]\n\n"))
}

fn chat_events(answer: &Answer<'_>) -> Vec<Value> {
    let event = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let mut events = vec![event(json!({"role": "assistant"}))];
    if has_text(answer) {
        events.push(event(json!({"content": "Hi"})));
    }
    if answer.content == Content::Refusal {
        events.push(event(json!({"refusal": "No."})));
    }
    for (number, call) in answer.calls().iter().enumerate() {
        let free = matches!(call.arguments, Arguments::Text(_));
        let (kind, key) = if free { ("custom", "input") } else { ("function", "arguments") };
        let head = object([("name", Some(json!(call.name))), (key, opening(&call.arguments))]);
        events.push(event(json!({"tool_calls": [{"index": number, "id": format!("c{number}"), "type": kind, kind: head}]})));
        for piece in pieces(answer, &call.arguments) {
            // Pieces of free text repeat the name.
            let piece =
                if free { json!({"name": call.name, key: piece}) } else { json!({key: piece}) };
            events.push(event(json!({"tool_calls": [{"index": number, kind: piece}]})));
        }
    }
    events.push(json!({"choices": [chat_choice(answer, "delta", json!({}))]}));
    events
}

fn completions_body(answer: &Answer<'_>) -> Option<Value> {
    let stop = (answer.content == Content::Stopped).then(|| json!("END"));
    let choice = object([
        ("index", Some(json!(0))),
        ("text", Some(json!(text(answer)?))),
        ("finish_reason", Some(answer.word.clone())),
        ("stop_reason", stop),
    ]);
    Some(json!({"choices": [choice]}))
}

fn completions_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let first = json!({"choices": [{"index": 0, "text": text(answer)?, "finish_reason": null}]});
    let mut last = completions_body(answer)?;
    last["choices"][0]["text"] = json!("");
    Some(sse(&[first, last], "data: [DONE]\n\n"))
}

fn response_items(answer: &Answer<'_>) -> Vec<Value> {
    let part = match answer.content {
        Content::Text => Some(json!({"type": "output_text", "text": "Hi"})),
        Content::Refusal => Some(json!({"type": "refusal", "refusal": "No."})),
        Content::Nothing | Content::Stopped | Content::Calls(_) => None,
    };
    let message =
        part.map(|part| json!({"type": "message", "status": "completed", "content": [part]}));
    let item = |(number, call): (usize, &Sent)| {
        let free = matches!(call.arguments, Arguments::Text(_));
        let (kind, key) =
            if free { ("custom_tool_call", "input") } else { ("function_call", "arguments") };
        object([
            ("type", Some(json!(kind))),
            ("id", Some(json!(format!("i{number}")))),
            ("call_id", Some(json!(format!("c{number}")))),
            ("name", Some(json!(call.name))),
            (key, call.arguments.text()),
            ("status", Some(json!("completed"))),
        ])
    };
    message.into_iter().chain(answer.calls().iter().enumerate().map(item)).collect()
}

fn response_value(answer: &Answer<'_>, items: &[Value]) -> Value {
    match answer.field {
        "status" => json!({"object": "response", "status": answer.word, "output": items}),
        _ => {
            json!({"object": "response", "status": "incomplete", "incomplete_details": {"reason": answer.word}, "output": items})
        }
    }
}

fn responses_body(answer: &Answer<'_>) -> Option<Value> {
    said(answer).then(|| response_value(answer, &response_items(answer)))
}

fn responses_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let items = response_items(answer);
    let mut events =
        vec![json!({"type": "response.created", "response": {"status": "in_progress"}})];
    match answer.content {
        Content::Text => events
            .push(json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"})),
        Content::Refusal => events
            .push(json!({"type": "response.refusal.delta", "output_index": 0, "delta": "No."})),
        Content::Nothing | Content::Stopped | Content::Calls(_) => {}
    }
    for (number, (call, item)) in answer.calls().iter().zip(&items).enumerate() {
        let free = matches!(call.arguments, Arguments::Text(_));
        let (name, key) = if free {
            ("response.custom_tool_call_input.delta", "input")
        } else {
            ("response.function_call_arguments.delta", "arguments")
        };
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        match opening(&call.arguments) {
            Some(opening) => begun[key] = opening,
            None => drop(begun.as_object_mut().unwrap().remove(key)),
        }
        events.push(
            json!({"type": "response.output_item.added", "output_index": number, "item": begun}),
        );
        for piece in pieces(answer, &call.arguments) {
            events.push(json!({"type": name, "output_index": number, "delta": piece}));
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": number, "item": item}),
        );
    }
    let response = response_value(answer, &items);
    events.push(json!({"type": "response.completed", "response": response}));
    said(answer).then(|| sse(&events, ""))
}

fn messages_body(answer: &Answer<'_>) -> Option<Value> {
    let mut content = Vec::new();
    content.extend(has_text(answer).then(|| json!({"type": "text", "text": "Hi"})));
    for (number, call) in answer.calls().iter().enumerate() {
        content.push(object([
            ("type", Some(json!("tool_use"))),
            ("id", Some(json!(format!("t{number}")))),
            ("name", Some(json!(call.name))),
            ("input", call.arguments.value()),
        ]));
    }
    Some(json!({"type": "message", "content": content, "stop_reason": answer.word}))
}

fn messages_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "m", "content": [], "stop_reason": null}}),
    ];
    if has_text(answer) {
        events.push(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}));
        events.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}));
        events.push(json!({"type": "content_block_stop", "index": 0}));
    }
    for (number, call) in answer.calls().iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": number, "content_block": {"type": "tool_use", "id": format!("t{number}"), "name": call.name, "input": {}}}));
        for piece in pieces(answer, &call.arguments) {
            events.push(json!({"type": "content_block_delta", "index": number, "delta": {"type": "input_json_delta", "partial_json": piece}}));
        }
        events.push(json!({"type": "content_block_stop", "index": number}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": answer.word}}));
    events.push(json!({"type": "message_stop"}));
    Some(sse(&events, ""))
}

/// Reports whether the answer fits: a blocked prompt has no content.
fn fits_gemini(answer: &Answer<'_>) -> bool {
    answer.field != "blockReason" || answer.content == Content::Nothing
}

fn gemini_value(answer: &Answer<'_>) -> Value {
    if answer.field == "blockReason" {
        return json!({"promptFeedback": {"blockReason": answer.word}});
    }
    let mut parts = Vec::new();
    parts.extend(has_text(answer).then(|| json!({"text": "Hi"})));
    for call in answer.calls() {
        let call = object([("name", Some(json!(call.name))), ("args", call.arguments.value())]);
        parts.push(json!({"functionCall": call}));
    }
    json!({"candidates": [{"index": 0, "content": {"parts": parts}, "finishReason": answer.word}]})
}

/// Returns a stream with one event per call and the finish reason in the last.
fn gemini_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    if !said(answer) || !fits_gemini(answer) {
        return None;
    }
    if answer.field == "blockReason" {
        return Some(sse(&[gemini_value(answer)], ""));
    }
    let whole = gemini_value(answer);
    let parts = whole["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default();
    let mut events: Vec<Value> = parts
        .into_iter()
        .map(|part| json!({"candidates": [{"index": 0, "content": {"parts": [part]}}]}))
        .collect();
    events.push(json!({"candidates": [{"index": 0, "content": {"parts": []}, "finishReason": answer.word}]}));
    Some(sse(&events, ""))
}

fn converse_body(answer: &Answer<'_>) -> Option<Value> {
    let mut content = Vec::new();
    content.extend(has_text(answer).then(|| json!({"text": "Hi"})));
    for (number, call) in answer.calls().iter().enumerate() {
        let call = object([
            ("toolUseId", Some(json!(format!("t{number}")))),
            ("name", Some(json!(call.name))),
            ("input", call.arguments.value()),
        ]);
        content.push(json!({"toolUse": call}));
    }
    Some(json!({"output": {"message": {"content": content}}, "stopReason": answer.word}))
}

fn converse_events(answer: &Answer<'_>) -> Vec<(&'static str, Value)> {
    let mut events = vec![("messageStart", json!({"role": "assistant"}))];
    if has_text(answer) {
        events
            .push(("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "Hi"}})));
    }
    for (number, call) in answer.calls().iter().enumerate() {
        let start = json!({"toolUse": {"toolUseId": format!("t{number}"), "name": call.name}});
        events.push(("contentBlockStart", json!({"contentBlockIndex": number, "start": start})));
        for piece in pieces(answer, &call.arguments) {
            let delta = json!({"toolUse": {"input": piece}});
            events
                .push(("contentBlockDelta", json!({"contentBlockIndex": number, "delta": delta})));
        }
        events.push(("contentBlockStop", json!({"contentBlockIndex": number})));
    }
    events.push(("messageStop", json!({"stopReason": answer.word})));
    events
}

fn converse_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    Some(message_frames(&converse_events(answer)))
}

fn nova_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let events: Vec<Value> =
        converse_events(answer).into_iter().map(|(name, data)| json!({name: data})).collect();
    Some(chunks(&events))
}

fn cohere_body(answer: &Answer<'_>) -> Option<Value> {
    let content = has_text(answer).then(|| json!([{"type": "text", "text": "Hi"}]));
    let calls = calls_as_text(answer, "");
    Some(
        json!({"id": "1", "finish_reason": answer.word, "message": {"content": content, "tool_calls": calls}, "usage": {}}),
    )
}

fn cohere_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let mut events = vec![json!({"type": "message-start", "id": "1"})];
    if has_text(answer) {
        events.push(json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}}));
    }
    for (number, call) in answer.calls().iter().enumerate() {
        let head =
            object([("name", Some(json!(call.name))), ("arguments", opening(&call.arguments))]);
        events.push(json!({"type": "tool-call-start", "index": number, "delta": {"message": {"tool_calls": {"id": format!("c{number}"), "function": head}}}}));
        for piece in pieces(answer, &call.arguments) {
            events.push(json!({"type": "tool-call-delta", "index": number, "delta": {"message": {"tool_calls": {"function": {"arguments": piece}}}}}));
        }
        events.push(json!({"type": "tool-call-end", "index": number}));
    }
    events
        .push(json!({"type": "message-end", "delta": {"finish_reason": answer.word, "usage": {}}}));
    Some(sse(&events, "data: [DONE]\n\n"))
}

fn ollama_calls(answer: &Answer<'_>) -> Option<Value> {
    let calls = calls_as_values(answer, "arguments")?;
    Some(calls.as_array()?.iter().map(|call| json!({"function": call})).collect())
}

fn ollama_body(answer: &Answer<'_>) -> Option<Value> {
    let message = json!({"content": plain_text(answer), "tool_calls": ollama_calls(answer)});
    Some(json!({"model": "m", "message": message, "done": true, "done_reason": answer.word}))
}

fn ollama_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let message = json!({"content": plain_text(answer), "tool_calls": ollama_calls(answer)});
    let first = json!({"model": "m", "message": message, "done": false});
    let last =
        json!({"model": "m", "message": {"content": ""}, "done": true, "done_reason": answer.word});
    Some(lines(&[first, last]))
}

fn run_value(answer: &Answer<'_>) -> Value {
    let calls = calls_as_text(answer, "")
        .map(|calls| json!({"submit_tool_outputs": {"tool_calls": calls}}));
    match answer.field {
        "status" => {
            json!({"object": "thread.run", "status": answer.word, "required_action": calls})
        }
        _ => {
            json!({"object": "thread.run", "status": "incomplete", "incomplete_details": {"reason": answer.word}, "required_action": calls})
        }
    }
}

/// Returns the body of a polled run, which has no text.
fn run_body(answer: &Answer<'_>) -> Option<Value> {
    let holds = matches!(answer.content, Content::Nothing | Content::Calls(_));
    holds.then(|| run_value(answer))
}

fn run_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let mut events = vec![json!({"object": "thread.run", "status": "in_progress"})];
    let part = match answer.content {
        Content::Text => Some(json!({"type": "text", "text": {"value": "Hi"}})),
        Content::Refusal => Some(json!({"type": "refusal", "refusal": "No."})),
        Content::Nothing | Content::Stopped | Content::Calls(_) => None,
    };
    events.extend(
        part.map(|part| json!({"object": "thread.message.delta", "delta": {"content": [part]}})),
    );
    let step = |call: Value| json!({"object": "thread.run.step.delta", "delta": {"step_details": {"type": "tool_calls", "tool_calls": [call]}}});
    for (number, call) in answer.calls().iter().enumerate() {
        let head =
            object([("name", Some(json!(call.name))), ("arguments", opening(&call.arguments))]);
        events.push(step(json!({"index": number, "id": format!("c{number}"), "type": "function", "function": head})));
        for piece in pieces(answer, &call.arguments) {
            events.push(step(
                json!({"index": number, "type": "function", "function": {"arguments": piece}}),
            ));
        }
    }
    events.push(run_value(answer));
    Some(sse(&events, "event: done\ndata: [DONE]\n\n"))
}

fn interaction_body(answer: &Answer<'_>) -> Option<Value> {
    let mut steps = Vec::new();
    steps.extend(
        has_text(answer)
            .then(|| json!({"type": "model_output", "content": [{"type": "text", "text": "Hi"}]})),
    );
    for (number, call) in answer.calls().iter().enumerate() {
        steps.push(object([
            ("type", Some(json!("function_call"))),
            ("id", Some(json!(format!("c{number}")))),
            ("name", Some(json!(call.name))),
            ("arguments", call.arguments.value()),
        ]));
    }
    Some(json!({"object": "interaction", "status": answer.word, "steps": steps}))
}

fn interaction_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let mut events = vec![
        json!({"event_type": "interaction.created", "interaction": {"status": "in_progress"}}),
    ];
    if has_text(answer) {
        events.push(
            json!({"event_type": "step.start", "index": 0, "step": {"type": "model_output"}}),
        );
        events.push(json!({"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}}));
        events.push(json!({"event_type": "step.stop", "index": 0}));
    }
    for (number, call) in answer.calls().iter().enumerate() {
        events.push(json!({"event_type": "step.start", "index": number, "step": {"type": "function_call", "id": format!("c{number}"), "name": call.name, "arguments": {}}}));
        for piece in pieces(answer, &call.arguments) {
            events.push(json!({"event_type": "step.delta", "index": number, "delta": {"type": "arguments_delta", "arguments": piece}}));
        }
        events.push(json!({"event_type": "step.stop", "index": number}));
    }
    events.push(json!({"event_type": "interaction.completed", "interaction": {"object": "interaction", "status": answer.word}}));
    Some(sse(&events, "event: done\ndata: [DONE]\n\n"))
}

fn titan_body(answer: &Answer<'_>) -> Option<Value> {
    Some(match answer.field {
        "completionReason" => {
            json!({"results": [{"outputText": text(answer)?, "completionReason": answer.word}]})
        }
        _ => {
            json!({"results": [{"outputText": text(answer)?}], "amazon-bedrock-guardrailAction": answer.word})
        }
    })
}

fn titan_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let mut last = json!({"outputText": "", "totalOutputTextTokenCount": 1});
    last[answer.field] = answer.word.clone();
    Some(chunks(&[json!({"outputText": text(answer)?, "completionReason": null}), last]))
}

fn bedrock_mistral_body(answer: &Answer<'_>) -> Option<Value> {
    Some(match calls_as_text(answer, "") {
        Some(calls) => {
            json!({"choices": [{"message": {"tool_calls": calls}, "stop_reason": answer.word}]})
        }
        None => json!({"outputs": [{"text": text(answer)?, "stop_reason": answer.word}]}),
    })
}

fn bedrock_mistral_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    if answer.calls().is_empty() {
        return Some(chunks(&[
            json!({"outputs": [{"text": text(answer)?, "stop_reason": null}]}),
            json!({"outputs": [{"text": "", "stop_reason": answer.word}], "amazon-bedrock-invocationMetrics": {}}),
        ]));
    }
    let mut last = bedrock_mistral_body(answer)?;
    last["amazon-bedrock-invocationMetrics"] = json!({});
    Some(chunks(&[last]))
}

fn cohere_v1_body(answer: &Answer<'_>) -> Option<Value> {
    let calls = calls_as_values(answer, "parameters");
    Some(
        json!({"response_id": "1", "text": plain_text(answer), "tool_calls": calls, "finish_reason": answer.word}),
    )
}

fn cohere_v1_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let mut events = vec![json!({"event_type": "stream-start", "generation_id": "1"})];
    if has_text(answer) {
        events.push(json!({"event_type": "text-generation", "text": "Hi"}));
    }
    let calls = calls_as_values(answer, "parameters");
    events.extend(
        calls.map(|calls| json!({"event_type": "tool-calls-generation", "tool_calls": calls})),
    );
    events.push(json!({"event_type": "stream-end", "finish_reason": answer.word, "response": cohere_v1_body(answer)?}));
    Some(lines(&events))
}

fn dashscope_value(answer: &Answer<'_>, word: &Value, calls: Option<Value>) -> Option<Value> {
    let message = json!({"content": plain_text(answer), "tool_calls": calls});
    Some(
        json!({"request_id": "r", "output": {"choices": [{"message": message, "finish_reason": word}]}}),
    )
}

fn dashscope_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let event = |message: Value, word: &Value| json!({"request_id": "r", "output": {"choices": [{"message": message, "finish_reason": word}]}});
    let open = json!("null");
    let mut events = vec![event(json!({"content": plain_text(answer)}), &open)];
    for (number, call) in answer.calls().iter().enumerate() {
        let head =
            object([("name", Some(json!(call.name))), ("arguments", opening(&call.arguments))]);
        let head = json!({"index": number, "id": format!("c{number}"), "type": "function", "function": head});
        events.push(event(json!({"content": "", "tool_calls": [head]}), &open));
        for piece in pieces(answer, &call.arguments) {
            let piece = json!({"index": number, "id": "", "type": "function", "function": {"arguments": piece}});
            events.push(event(json!({"content": "", "tool_calls": [piece]}), &open));
        }
    }
    events.push(event(json!({"content": ""}), &answer.word));
    said(answer).then(|| sse(&events, ""))
}

fn replicate_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let text = text(answer)?;
    let output =
        if text.is_empty() { String::new() } else { format!("event: output\ndata: {text}\n\n") };
    let done = match answer.field {
        "event" if answer.word == "done" => json!({}),
        "reason" => json!({"reason": answer.word}),
        _ => return None,
    };
    Some(format!("{output}event: done\ndata: {done}\n\n").into_bytes())
}

type Stream = fn(&Answer<'_>) -> Option<Vec<u8>>;

/// Streams of calls in another form than that of the builder.
static SECOND_STREAMS: &[(&str, Stream)] = &[
    ("openai-chat", legacy_function_stream),
    ("gemini-generate", gemini_partial_stream),
    ("cohere-v1", cohere_v1_piece_stream),
    ("dashscope", dashscope_growing_stream),
];

/// Returns a stream with one call in the deprecated field.
fn legacy_function_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let [call] = answer.calls() else { return None };
    if matches!(call.arguments, Arguments::Text(_)) || answer.field != "finish_reason" {
        return None;
    }
    let event = |call: Value| json!({"choices": [{"index": 0, "delta": {"function_call": call}}]});
    let head = object([("name", Some(json!(call.name))), ("arguments", opening(&call.arguments))]);
    let pieces = pieces(answer, &call.arguments);
    let mut events = vec![event(head)];
    events.extend(pieces.into_iter().map(|piece| event(json!({"arguments": piece}))));
    events.push(json!({"choices": [chat_choice(answer, "delta", json!({}))]}));
    Some(sse(&events, "data: [DONE]\n\n"))
}

/// Returns a stream with the values of the arguments at their paths.
fn gemini_partial_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    if !fits_gemini(answer) {
        return None;
    }
    let event = |call: Value| json!({"candidates": [{"index": 0, "content": {"parts": [{"functionCall": call}]}}]});
    let mut events = Vec::new();
    for call in answer.calls() {
        let Arguments::Json(value) = &call.arguments else { return None };
        let mut leaves = Vec::new();
        partial_args("$", value, answer.piece, &mut leaves)?;
        events.push(event(json!({"name": call.name, "willContinue": true})));
        for leaf in leaves {
            events.push(event(json!({"partialArgs": [leaf], "willContinue": true})));
        }
        events.push(event(json!({})));
    }
    events.push(json!({"candidates": [{"index": 0, "content": {"parts": []}, "finishReason": answer.word}]}));
    Some(sse(&events, ""))
}

/// Adds the values at their paths; `None` if one of them cannot be sent so.
fn partial_args(path: &str, value: &Value, piece: usize, leaves: &mut Vec<Value>) -> Option<()> {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, inner) in fields {
                if key.is_empty() {
                    return None;
                }
                let key = key.replace('\\', "\\\\").replace('\'', "\\'");
                partial_args(&format!("{path}['{key}']"), inner, piece, leaves)?;
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (index, inner) in list.iter().enumerate() {
                partial_args(&format!("{path}[{index}]"), inner, piece, leaves)?;
            }
        }
        Value::Object(_) | Value::Array(_) => return None,
        Value::String(text) => {
            let letters: Vec<char> = text.chars().collect();
            for part in letters.chunks(piece.max(1)) {
                let part: String = part.iter().collect();
                leaves.push(json!({"jsonPath": path, "stringValue": part, "willContinue": true}));
            }
            leaves.push(json!({"jsonPath": path, "stringValue": ""}));
        }
        Value::Number(_) => leaves.push(json!({"jsonPath": path, "numberValue": value})),
        Value::Bool(_) => leaves.push(json!({"jsonPath": path, "boolValue": value})),
        Value::Null => leaves.push(json!({"jsonPath": path, "nullValue": "NULL_VALUE"})),
    }
    Some(())
}

/// Returns a stream with pieces of the calls before the whole ones.
fn cohere_v1_piece_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let event = |delta: Value| json!({"event_type": "tool-calls-chunk", "tool_call_delta": delta});
    let mut events = vec![json!({"event_type": "stream-start", "generation_id": "1"})];
    for (number, call) in answer.calls().iter().enumerate() {
        events.push(event(json!({"index": number, "name": call.name})));
        for piece in pieces(answer, &call.arguments) {
            events.push(event(json!({"index": number, "parameters": piece})));
        }
    }
    let calls = calls_as_values(answer, "parameters");
    events.push(json!({"event_type": "tool-calls-generation", "tool_calls": calls}));
    events.push(json!({"event_type": "stream-end", "finish_reason": answer.word, "response": cohere_v1_body(answer)?}));
    Some(lines(&events))
}

/// Returns a stream whose events repeat all arguments so far.
fn dashscope_growing_stream(answer: &Answer<'_>) -> Option<Vec<u8>> {
    let event = |call: Value, word: &Value| {
        let message = json!({"content": "", "tool_calls": [call]});
        json!({"request_id": "r", "output": {"choices": [{"message": message, "finish_reason": word}]}})
    };
    let mut events = Vec::new();
    for (number, call) in answer.calls().iter().enumerate() {
        let mut so_far = String::new();
        let head = |so_far: &str| json!({"index": number, "id": format!("c{number}"), "type": "function", "function": {"name": call.name, "arguments": so_far}});
        events.push(event(head(""), &json!("null")));
        for piece in pieces(answer, &call.arguments) {
            so_far.push_str(&piece);
            events.push(event(head(&so_far), &json!("null")));
        }
    }
    events.push(json!({"request_id": "r", "output": {"choices": [{"message": {"content": ""}, "finish_reason": answer.word}]}}));
    Some(sse(&events, ""))
}

/// Returns messages of an AWS event stream, each with its name.
fn message_frames(events: &[(&str, Value)]) -> Vec<u8> {
    let encode = |(name, data): &(&str, Value)| {
        aws::encode(
            &[(":event-type", name), (":message-type", "event")],
            data.to_string().as_bytes(),
        )
    };
    events.iter().flat_map(encode).collect()
}

/// Returns events wrapped in base64 inside AWS event-stream messages.
fn chunks(events: &[Value]) -> Vec<u8> {
    let wrap = |event: &Value| ("chunk", json!({"bytes": STANDARD.encode(event.to_string())}));
    message_frames(&events.iter().map(wrap).collect::<Vec<_>>())
}

/// Returns an exception: invalid input for a context overflow, else a service error.
fn exception(message: &str) -> Vec<u8> {
    let is_overflow = message.contains("context length");
    let name = if is_overflow { "validationException" } else { "internalServerException" };
    aws::encode(
        &[(":exception-type", name), (":message-type", "exception")],
        json!({"message": message}).to_string().as_bytes(),
    )
}

fn chunks_and_exception(events: &[Value], message: &str) -> Option<Vec<u8>> {
    let mut bytes = chunks(events);
    bytes.extend(exception(message));
    Some(bytes)
}

fn sse(events: &[Value], end: &str) -> Vec<u8> {
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    text.push_str(end);
    text.into_bytes()
}

fn lines(events: &[Value]) -> Vec<u8> {
    events.iter().flat_map(|event| format!("{event}\n").into_bytes()).collect()
}
