//! Runs one Rust client through its calls and scenarios and prints one JSON line per cell:
//! `endstop-e2e-rust-client NAME [--direct URL] [--observe URL] [--guard URL] --scenarios A,B,C`.
//! It judges nothing: `scripts/e2e` does.

use std::collections::BTreeMap;
use std::time::Duration;

use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{ChatCompletionMessageToolCalls, CreateChatCompletionRequest};
use async_openai::types::responses::{CreateResponse, OutputItem, ResponseStreamEvent, Status};
use futures::StreamExt;
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, MessageContent, StopReason, Tool,
};
use genai::resolver::{AuthData, Endpoint, ServiceTargetResolver};
use genai::{ModelIden, ServiceTarget};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Only there so that nothing hangs.
const TIMEOUT: Duration = Duration::from_secs(30);
const QUESTION: &str = "Write a haiku about the end of a stream into haiku.txt.";

/// What a caller saw of a turn: its text, the word for its end, its tool calls by their place.
#[derive(Default)]
struct Seen {
    text: String,
    word: Option<String>,
    calls: BTreeMap<u32, (String, String)>,
}

impl Seen {
    fn add_call(&mut self, at: u32, name: &str, args: &str) {
        let call = self.calls.entry(at).or_default();
        call.0.push_str(name);
        call.1.push_str(args);
    }

    fn calls(&self) -> Vec<Value> {
        self.calls.values().map(|(name, args)| json!({"name": name, "args": args})).collect()
    }
}

#[derive(Clone, Copy)]
enum Call {
    Chat,
    ChatStream,
    Responses,
    ResponsesStream,
    Genai(AdapterKind),
    GenaiStream(AdapterKind),
}

/// The calls of a client: wire, name of the call, the call.
fn calls_of(client: &str) -> Vec<(&'static str, &'static str, Call)> {
    match client {
        "async-openai" => vec![
            ("OpenAI chat", "create", Call::Chat),
            ("OpenAI chat", "create_stream", Call::ChatStream),
            ("OpenAI Responses", "create", Call::Responses),
            ("OpenAI Responses", "create_stream", Call::ResponsesStream),
        ],
        "genai" => vec![
            ("OpenAI chat", "exec_chat", Call::Genai(AdapterKind::OpenAI)),
            ("OpenAI chat", "exec_chat_stream", Call::GenaiStream(AdapterKind::OpenAI)),
            ("Anthropic Messages", "exec_chat", Call::Genai(AdapterKind::Anthropic)),
            ("Anthropic Messages", "exec_chat_stream", Call::GenaiStream(AdapterKind::Anthropic)),
            ("Gemini", "exec_chat", Call::Genai(AdapterKind::Gemini)),
            ("Gemini", "exec_chat_stream", Call::GenaiStream(AdapterKind::Gemini)),
        ],
        other => panic!("no such client: {other}"),
    }
}

fn function() -> Value {
    json!({
        "name": "write_file",
        "description": "Writes content to a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
            "additionalProperties": false,
        },
    })
}

async fn ask(call: Call, root: &str, model: &str, seen: &mut Seen) -> Result<(), Failure> {
    match call {
        Call::Chat => chat(root, model, seen).await,
        Call::ChatStream => chat_stream(root, model, seen).await,
        Call::Responses => responses(root, model, seen).await,
        Call::ResponsesStream => responses_stream(root, model, seen).await,
        Call::Genai(kind) => genai_plain(kind, root, model, seen).await,
        Call::GenaiStream(kind) => genai_stream(kind, root, model, seen).await,
    }
}

// async-openai

fn openai(root: &str) -> async_openai::Client<OpenAIConfig> {
    let config = OpenAIConfig::new().with_api_base(format!("{root}/openai/v1")).with_api_key("k");
    async_openai::Client::with_config(config)
}

fn chat_request(model: &str, streamed: bool) -> Result<CreateChatCompletionRequest, Failure> {
    Ok(serde_json::from_value(json!({
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": function()}],
        "stream": streamed,
    }))?)
}

async fn chat(root: &str, model: &str, seen: &mut Seen) -> Result<(), Failure> {
    let answer = openai(root).chat().create(chat_request(model, false)?).await?;
    for choice in answer.choices {
        seen.text.push_str(choice.message.content.as_deref().unwrap_or_default());
        seen.word = choice.finish_reason.map(|word| format!("{word:?}"));
        for (at, call) in (0..).zip(choice.message.tool_calls.unwrap_or_default()) {
            if let ChatCompletionMessageToolCalls::Function(call) = call {
                seen.add_call(at, &call.function.name, &call.function.arguments);
            }
        }
    }
    Ok(())
}

async fn chat_stream(root: &str, model: &str, seen: &mut Seen) -> Result<(), Failure> {
    let mut stream = openai(root).chat().create_stream(chat_request(model, true)?).await?;
    while let Some(chunk) = stream.next().await {
        for choice in chunk?.choices {
            seen.text.push_str(choice.delta.content.as_deref().unwrap_or_default());
            seen.word = choice.finish_reason.map(|word| format!("{word:?}")).or(seen.word.take());
            for call in choice.delta.tool_calls.unwrap_or_default() {
                let function = call.function.unwrap_or_default();
                let (name, args) =
                    (function.name.unwrap_or_default(), function.arguments.unwrap_or_default());
                seen.add_call(call.index, &name, &args);
            }
        }
    }
    Ok(())
}

fn responses_request(model: &str, streamed: bool) -> Result<CreateResponse, Failure> {
    let mut tool = function();
    tool["type"] = json!("function");
    Ok(serde_json::from_value(json!({
        "model": model, "input": QUESTION, "tools": [tool], "stream": streamed,
    }))?)
}

async fn responses(root: &str, model: &str, seen: &mut Seen) -> Result<(), Failure> {
    let answer = openai(root).responses().create(responses_request(model, false)?).await?;
    seen.text.push_str(&answer.output_text().unwrap_or_default());
    seen.word = Some(status_word(&answer.status));
    for (at, item) in (0..).zip(answer.output) {
        if let OutputItem::FunctionCall(call) = item {
            seen.add_call(at, &call.name, &call.arguments);
        }
    }
    Ok(())
}

async fn responses_stream(root: &str, model: &str, seen: &mut Seen) -> Result<(), Failure> {
    use ResponseStreamEvent as Event;
    let mut stream =
        openai(root).responses().create_stream(responses_request(model, true)?).await?;
    while let Some(event) = stream.next().await {
        match event? {
            Event::ResponseOutputTextDelta(event) => seen.text.push_str(&event.delta),
            Event::ResponseOutputItemAdded(event) => {
                if let OutputItem::FunctionCall(call) = event.item {
                    seen.add_call(event.output_index, &call.name, "");
                }
            }
            Event::ResponseFunctionCallArgumentsDelta(event) => {
                seen.add_call(event.output_index, "", &event.delta);
            }
            Event::ResponseCompleted(event) => {
                seen.word = Some(status_word(&event.response.status))
            }
            Event::ResponseIncomplete(event) => {
                seen.word = Some(status_word(&event.response.status))
            }
            Event::ResponseFailed(event) => seen.word = Some(status_word(&event.response.status)),
            _ => {}
        }
    }
    Ok(())
}

fn status_word(status: &Status) -> String {
    format!("{status:?}")
}

// genai

fn genai_client(kind: AdapterKind, root: &str) -> Result<genai::Client, Failure> {
    let base = match kind {
        AdapterKind::Anthropic => format!("{root}/anthropic/v1/"),
        AdapterKind::Gemini => format!("{root}/gemini/v1beta/"),
        _ => format!("{root}/openai/v1/"),
    };
    let resolver = ServiceTargetResolver::from_resolver_fn(
        move |target: ServiceTarget| -> Result<ServiceTarget, genai::resolver::Error> {
            let endpoint = Endpoint::from_owned(base.clone());
            let model = ModelIden::new(kind, target.model.model_name);
            Ok(ServiceTarget { endpoint, auth: AuthData::from_single("k"), model })
        },
    );
    Ok(genai::Client::builder().with_service_target_resolver(resolver).build()?)
}

fn genai_request() -> ChatRequest {
    let function = function();
    let tool = Tool::new("write_file")
        .with_description("Writes content to a file.")
        .with_schema(function["parameters"].clone());
    ChatRequest::new(vec![ChatMessage::user(QUESTION)]).with_tools(vec![tool])
}

async fn genai_plain(
    kind: AdapterKind,
    root: &str,
    model: &str,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let client = genai_client(kind, root)?;
    let answer = client.exec_chat(model, genai_request(), None).await?;
    seen.word = answer.stop_reason.as_ref().map(StopReason::raw).map(str::to_owned);
    see_content(&answer.content, seen);
    Ok(())
}

async fn genai_stream(
    kind: AdapterKind,
    root: &str,
    model: &str,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let options = ChatOptions::default().with_capture_tool_calls(true).with_capture_content(true);
    let client = genai_client(kind, root)?;
    let mut stream = client.exec_chat_stream(model, genai_request(), Some(&options)).await?.stream;
    while let Some(event) = stream.next().await {
        if let ChatStreamEvent::End(end) = event? {
            seen.word = end.captured_stop_reason.as_ref().map(StopReason::raw).map(str::to_owned);
            if let Some(content) = end.captured_content {
                see_content(&content, seen);
            }
        }
    }
    Ok(())
}

fn see_content(content: &MessageContent, seen: &mut Seen) {
    seen.text.push_str(&content.texts().concat());
    for (at, call) in (0..).zip(content.tool_calls()) {
        seen.add_call(at, &call.fn_name, &call.fn_arguments.to_string());
    }
}

// The cells

async fn run(client: &str, call: (&str, &str, Call), scenario: &str, way: &(String, String)) {
    let (wire, name, call) = call;
    let (via, root) = way;
    let model = match call {
        Call::Genai(AdapterKind::Gemini) | Call::GenaiStream(AdapterKind::Gemini) => {
            format!("gemini-sim-{scenario}")
        }
        _ => format!("sim-{scenario}"),
    };
    let mut seen = Seen::default();
    let outcome = tokio::time::timeout(TIMEOUT, ask(call, root, &model, &mut seen)).await;
    let raised = match &outcome {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(one_line(failure.as_ref())),
        Err(late) => Some(late.to_string()),
    };
    let facts = json!({
        "client": format!("Rust {client}"), "wire": wire, "call": name, "scenario": scenario, "via": via,
        "raised": raised, "hung": outcome.is_err(),
        "text": seen.text, "word": seen.word, "calls": seen.calls(),
    });
    println!("{facts}");
}

fn one_line(failure: &dyn std::error::Error) -> String {
    let words = failure.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("Error: {words}").chars().take(400).collect()
}

/// The values of the flags: `--guard URL` is `("guard", "URL")`.
fn flags(args: &[String]) -> Vec<(String, String)> {
    args.chunks(2)
        .filter_map(|pair| match pair {
            [flag, value] => Some((flag.trim_start_matches("--").to_owned(), value.clone())),
            _ => None,
        })
        .collect()
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (client, rest) = args.split_first().expect("the client's name comes first");
    let (scenarios, ways): (Vec<_>, Vec<_>) =
        flags(rest).into_iter().partition(|(flag, _)| flag == "scenarios");
    for call in calls_of(client) {
        for scenario in scenarios.iter().flat_map(|(_, names)| names.split(',')) {
            let cells = ways.iter().map(|way| run(client, call, scenario, way));
            futures::future::join_all(cells).await;
        }
    }
}
