//! Tests of continued answers: the next requests of the core, and the text to the character.

use std::net::SocketAddr;

use endstop::next_request::{
    Content, NextRequest, RequestChange, SoFar, Wording, continue_answer, resume_paused, set_cap,
};
use endstop::{Event, Head, Profile, Reader, Reason, RequestInfo, TransportEnd, provider};
use endstop_sim::{Options, Sim, Story};
use serde_json::{Value, json};

use crate::client::{How, Response, get, post};

/// Token limit of every request.
const CAP: u64 = 37;

/// One host and model.
struct Case {
    provider: &'static str,
    path: &'static str,
    model: &'static str,
    body: Value,
}

/// Reply to one request.
#[derive(Debug, Default)]
struct Reply {
    text: String,
    id: String,
    token: String,
    reason: Option<Reason>,
    output: u64,
    content: Option<Box<serde_json::value::RawValue>>,
}

fn case(provider: &'static str, path: &'static str, model: &'static str, body: Value) -> Case {
    Case { provider, path, model, body }
}

fn messages() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Tell me." }], "max_tokens": CAP })
}

fn contents() -> Value {
    let contents = json!([{ "role": "user", "parts": [{ "text": "Tell me." }] }]);
    json!({ "contents": contents, "generationConfig": { "maxOutputTokens": CAP } })
}

fn converse() -> Value {
    let messages = json!([{ "role": "user", "content": [{ "text": "Tell me." }] }]);
    json!({ "messages": messages, "inferenceConfig": { "maxTokens": CAP } })
}

fn input(store: bool) -> Value {
    json!({ "input": "Tell me.", "max_output_tokens": CAP, "store": store })
}

fn ollama() -> Value {
    let messages = json!([{ "role": "user", "content": "Tell me." }]);
    json!({ "messages": messages, "options": { "num_predict": CAP } })
}

const CHAT: &str = "/v1/chat/completions";
const DASHSCOPE: &str = "/alibaba/api/v1/services/aigc/text-generation/generation";

/// Hosts and models that continue exactly.
fn exact() -> Vec<Case> {
    vec![
        case("anthropic", "/anthropic/v1/messages", "claude-haiku-4-5", messages()),
        case("vertex", "/vertex/v1/models/claude-sonnet-4-5:MODE", "", messages()),
        case("google", "/gemini/v1beta/models/gemini-2.5-flash:MODE", "", contents()),
        case("google", "/gemini/v1beta/models/gemini-3-pro:MODE", "", contents()),
        case("google", "/gemini/v1beta/models/gemini-4-argon:MODE", "", contents()),
        case("bedrock", "/bedrock/model/anthropic.claude-haiku-4-5:MODE", "", converse()),
        case("mistral", "/mistral/v1/chat/completions", "mistral-large", messages()),
        case("deepseek", "/deepseek/beta/chat/completions", "deepseek-v4", messages()),
        case("moonshot", "/moonshot/v1/chat/completions", "kimi-k3", messages()),
        case("vllm", "/vllm/v1/chat/completions", "llama-4", messages()),
        case("sglang", "/sglang/v1/chat/completions", "llama-4", messages()),
        case("llamacpp", "/llamacpp/v1/chat/completions", "llama-4", messages()),
        case("ollama", "/ollama/api/chat", "llama3.2", ollama()),
        case("openai", "/openai/v1/responses", "gpt-5.5", input(true)),
        case("openai", "/openai/v1/completions", "babbage", completion()),
        case("google", "/gemini/v1beta/interactions", "gemini-3.6-flash", interaction()),
        case("llamacpp", "/llamacpp/completion", "llama-4", prompt("prompt", "n_predict")),
        case("aleph-alpha", "/aleph-alpha/complete", "pharia", prompt("prompt", "maximum_tokens")),
        case("bedrock", "/bedrock/model/amazon.titan-text:INVOKE", "", titan()),
        case("bedrock", "/bedrock/model/meta.llama4:INVOKE", "", prompt("prompt", "max_gen_len")),
        case("bedrock", "/bedrock/model/mistral.mistral-7b:INVOKE", "", completion()),
        case("bedrock", "/bedrock/model/cohere.command-text-v14:INVOKE", "", completion()),
        case("watsonx", "/watsonx/ml/v1/text/generation_stream", "granite", parameters("input")),
        case("huggingface", "/huggingface/generate_stream", "", parameters("inputs")),
    ]
}

fn interaction() -> Value {
    json!({ "input": "Tell me.", "generation_config": { "max_output_tokens": CAP } })
}

fn prompt(field: &str, cap: &str) -> Value {
    json!({ field: "Tell me: ", cap: CAP })
}

fn parameters(field: &str) -> Value {
    let parameters = json!({ "max_new_tokens": CAP, "details": true });
    json!({ field: "Tell me: ", "parameters": parameters })
}

fn titan() -> Value {
    json!({ "inputText": "Tell me: ", "textGenerationConfig": { "maxTokenCount": CAP } })
}

fn dashscope() -> Value {
    let messages = json!([{ "role": "user", "content": "Tell me." }]);
    json!({ "input": { "messages": messages }, "parameters": { "max_tokens": CAP } })
}

fn completion() -> Value {
    json!({ "prompt": "Tell me: ", "max_tokens": CAP })
}

/// Hosts and models that continue only if a message asks them to.
fn hinted() -> Vec<Case> {
    vec![
        case("openai", CHAT, "gpt-5.5", messages()),
        case("openai", "/openai/v1/responses", "gpt-5.5", input(false)),
        case("anthropic", "/anthropic/v1/messages", "claude-sonnet-5", messages()),
        case("google", "/gemini/v1beta/models/gemini-3.6-flash:MODE", "", contents()),
        case("bedrock", "/bedrock/model/anthropic.claude-opus-4-6:MODE", "", converse()),
        case("cohere", "/cohere/v2/chat", "command-a", messages()),
        case("groq", "/groq/v1/chat/completions", "llama-4", messages()),
        case(
            "cohere",
            "/cohere/v1/chat",
            "command-r",
            json!({ "message": "Hi", "max_tokens": CAP }),
        ),
        case("alibaba", DASHSCOPE, "qwen-max", dashscope()),
        case("bedrock", "/bedrock/model/amazon.nova-pro:INVOKE", "", converse()),
    ]
}

impl Case {
    fn profile(&self) -> &'static Profile {
        let path = self.path_of("story", true);
        provider::by_id(self.provider).unwrap().wire_for_path(&path).unwrap()
    }

    /// Returns the path, with the scenario after the model if the path has the model.
    fn path_of(&self, scenario: &str, streamed: bool) -> String {
        let method = match (self.provider, streamed) {
            ("google", true) => "streamGenerateContent?alt=sse",
            ("google", false) => "generateContent",
            ("vertex", true) => "streamRawPredict",
            ("vertex", false) => "rawPredict",
            (_, true) => "converse-stream",
            (_, false) => "converse",
        };
        let between = if self.provider == "bedrock" { "/" } else { ":" };
        let invoke = if streamed { "invoke-with-response-stream" } else { "invoke" };
        let path = self.path.replace(":MODE", &format!(":{scenario}{between}{method}"));
        let path = path.replace(":INVOKE", &format!(":{scenario}/{invoke}"));
        let plain = |path: String| {
            let path = path.replace("generation_stream", "generation");
            path.replace("generate_stream", "generate")
        };
        if streamed { path } else { plain(path) }
    }

    fn model(&self, scenario: &str) -> String {
        let in_path = self.path.split("model").nth(1).unwrap_or_default();
        let name = if self.model.is_empty() { in_path } else { self.model };
        format!("{name}:{scenario}")
    }

    fn first(&self, scenario: &str, streamed: bool) -> String {
        let mut body = self.body.clone();
        if !self.model.is_empty() {
            body["model"] = self.model(scenario).into();
            body["model_id"] = self.model(scenario).into();
            body["stream"] = streamed.into();
            if streamed && self.path.ends_with("completions") {
                body["stream_options"] = json!({ "include_usage": true });
            }
        }
        body.to_string()
    }
}

fn read(profile: &'static Profile, response: &Response) -> Reply {
    let content_type = response.header("content-type");
    let head = Head { status: response.status, content_type };
    let mut reply = Reply::default();
    let mut observe = |event: Event<'_>| {
        if let Event::Text { choice: 0, text } = event {
            reply.text.push_str(text);
        } else if let Event::Begin { id, .. } = event
            && !id.is_empty()
        {
            reply.id = id.to_owned();
        } else if let Event::ResumeToken { token, .. } = event {
            reply.token = token.to_owned();
        }
    };
    let mut reader = Reader::new(profile, head, RequestInfo::default());
    reader.read(&response.body, &mut observe);
    let ending = reader.finish(TransportEnd::Eof, &mut observe);
    let mut content = Content::new(profile, content_type);
    content.push(&response.body);
    Reply {
        reason: Some(ending.reason),
        output: ending.usage.output.unwrap_or_default(),
        content: content.finish(),
        ..reply
    }
}

/// Continued answer, with its parts as they came.
struct Told {
    text: String,
    parts: Vec<Reply>,
    how: Option<RequestChange>,
}

/// Asks, and continues as the core says until the answer is complete or `most` parts have come.
async fn tell(addr: SocketAddr, case: &Case, scenario: &str, streamed: bool, most: usize) -> Told {
    let profile = case.profile();
    let first = case.first(scenario, streamed);
    let path = case.path_of(scenario, streamed);
    // A list of scenarios is counted by tag and model.
    let tag = format!("{path} {}", case.body);
    let mut request = first.clone();
    let mut told = Told { text: String::new(), parts: Vec::new(), how: None };
    let mut next: Option<NextRequest> = None;
    loop {
        let mut headers = vec![("x-sim-tag", tag.as_str())];
        // This wire has no model.
        if case.provider == "huggingface" {
            headers.push(("x-sim-scenario", scenario));
        }
        let response = post(addr, &path, &headers, &request).await;
        let label = format!("{path} {request} {}", String::from_utf8_lossy(&response.body));
        assert_eq!(response.status, 200, "{label}");
        let reply = read(profile, &response);
        told.text = joined(&told.text, &reply.text, next.as_ref());
        let reason = reply.reason.unwrap();
        told.parts.push(reply);
        if reason == Reason::Complete || told.parts.len() >= most {
            return told;
        }
        let last = told.parts.last().unwrap();
        let so_far = SoFar {
            text: &told.text,
            id: Some(&last.id).filter(|id| !id.is_empty()).map(String::as_str),
            token: Some(&last.token).filter(|token| !token.is_empty()).map(String::as_str),
            content: None,
        };
        assert!(matches!(reason, Reason::OutputLimit | Reason::Cut), "{label}");
        let model = case.model(scenario);
        let made = continue_answer(profile, &model, &first, &so_far, &Wording::default()).unwrap();
        request = made.request.get().to_owned();
        if made.cap_counts_all {
            let cap = CAP * (told.parts.len() as u64 + 1);
            request = set_cap(profile, &request, cap).unwrap().request.get().to_owned();
        }
        told.how = Some(made.how.clone());
        next = Some(made);
    }
}

/// Joins a part to the text so far, as the core documents it, without looking for an overlap.
fn joined(so_far: &str, reply: &str, next: Option<&NextRequest>) -> String {
    let Some(next) = next else { return reply.to_owned() };
    let sent = so_far.get(..so_far.len() - next.trimmed).unwrap();
    let new = if next.echoes { reply.strip_prefix(sent).unwrap() } else { reply };
    format!("{sent}{new}")
}

async fn start() -> Sim {
    Sim::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn an_exact_continuation_gives_the_whole_text() {
    let sim = start().await;
    for seed in [1, 2] {
        let story = Story { words: 300, seed };
        for case in exact() {
            for streamed in [true, false] {
                let scenario = format!("story=300-{seed}");
                let told = tell(sim.addr(), &case, &scenario, streamed, 40).await;
                assert_eq!(told.text, story.text(), "{} {}", case.path, case.model);
                assert!(!matches!(told.how, Some(RequestChange::Hint { .. })), "{}", case.path);
                let tokens: u64 = told.parts.iter().map(|part| part.output).sum();
                let first = told.parts.first().unwrap().output;
                // Some plain bodies have no usage.
                let counted = first == CAP && tokens >= story.tokens().len() as u64;
                assert!(counted || !streamed && tokens == 0, "{}", case.path);
            }
        }
    }
}

#[tokio::test]
async fn a_cut_story_is_continued_too() {
    let sim = start().await;
    for case in exact().into_iter().chain(hinted()) {
        // These refer to a response that ended.
        if ["openai", "google"].contains(&case.provider) && !case.path.contains("MODE") {
            continue;
        }
        if case.path.contains("gemini-4") || case.provider == "huggingface" {
            continue;
        }
        let scenario = "story-cut=80,story=80";
        let told = tell(sim.addr(), &case, scenario, true, 40).await;
        assert_eq!(told.text, Story::parse("80").text(), "{} {}", case.path, case.model);
        assert_eq!(told.parts[0].reason, Some(Reason::Cut), "{}", case.path);
    }
}

#[tokio::test]
async fn every_scenario_continues_a_truncated_answer() {
    let sim = start().await;
    for case in exact().into_iter().chain(hinted()) {
        if case.path.contains("gemini-4") || case.provider == "huggingface" {
            continue;
        }
        let whole = Case { body: uncapped(&case.body), ..case };
        let want = tell(sim.addr(), &whole, "complete", true, 1).await.text;
        let told = tell(sim.addr(), &whole, "length,complete", true, 2).await;
        assert_eq!(told.text, want, "{} {}", whole.path, whole.model);
        assert_eq!(told.parts[0].reason, Some(Reason::OutputLimit), "{}", whole.path);
    }
}

/// Returns the request with a token limit that is not reached.
fn uncapped(body: &Value) -> Value {
    let text = body.to_string().replace(&format!(":{CAP}"), ":100000");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn habits_show_only_after_a_hint() {
    let sim = start().await;
    for scenario in ["story-repeat=200", "story-drop-space=200"] {
        for case in exact() {
            let told = tell(sim.addr(), &case, scenario, true, 40).await;
            assert_eq!(told.text, Story::parse("200").text(), "{} {scenario}", case.path);
        }
    }
}

#[tokio::test]
async fn a_hinted_model_goes_on_where_it_stopped() {
    let sim = start().await;
    for case in hinted() {
        for streamed in [true, false] {
            let told = tell(sim.addr(), &case, "story", streamed, 40).await;
            assert_eq!(told.text, Story::parse("300").text(), "{} {}", case.path, case.model);
            assert!(matches!(told.how, Some(RequestChange::Hint { .. })), "{}", case.path);
        }
    }
}

#[tokio::test]
async fn a_hinted_model_repeats_up_to_40_characters() {
    let sim = start().await;
    for case in hinted() {
        let told = tell(sim.addr(), &case, "story-repeat", true, 2).await;
        let [first, second] = &told.parts[..] else { panic!("{}", told.parts.len()) };
        let text = Story::parse("300").text();
        let back = first.text.char_indices().rev().map(|(at, _)| at).take(40);
        let begins = |at: &usize| text.get(*at..).unwrap().starts_with(&second.text);
        let repeated =
            back.filter(begins).map(|at| first.text.get(at..).unwrap().chars().count()).next();
        assert!(repeated.is_some_and(|count| (1..=40).contains(&count)), "{}", case.path);
    }
}

#[tokio::test]
async fn a_hinted_model_drops_a_space() {
    let sim = start().await;
    for case in hinted() {
        let told = tell(sim.addr(), &case, "story-drop-space=300-3", true, 2).await;
        let text = Story::parse("300-3").text();
        let rest = text.strip_prefix(&told.parts[0].text).unwrap();
        let second = &told.parts[1].text;
        let after = rest.strip_prefix(' ').unwrap();
        assert!(after.starts_with(second), "{}: {second:?}", case.path);
    }
}

#[tokio::test]
async fn a_looping_model_never_ends() {
    let sim = start().await;
    for case in hinted().into_iter().chain(exact()) {
        let told = tell(sim.addr(), &case, "story-loop", true, 6).await;
        assert_eq!(told.parts.len(), 6);
        assert!(told.text.contains(&" and then it began again,".repeat(8)), "{}", case.path);
    }
}

#[tokio::test]
async fn a_paused_answer_is_resumed() {
    let sim = start().await;
    let cases = [
        case("anthropic", "/anthropic/v1/messages", "claude-sonnet-5", messages()),
        case("google", "/gemini/v1beta/models/gemini-4-argon:MODE", "", contents()),
        case("google", "/gemini/v1beta/interactions", "gemini-4-argon", interaction()),
    ];
    for (case, streamed) in cases.iter().flat_map(|case| [(case, true), (case, false)]) {
        let profile = case.profile();
        let first = case.first("story-pause=60", streamed);
        let first = set_cap(profile, &first, 1000).unwrap().request.get().to_owned();
        let path = case.path_of("story-pause=60", streamed);
        let (mut text, mut parts, mut request) = (String::new(), 0, first.clone());
        loop {
            let reply = read(profile, &post(sim.addr(), &path, &[], &request).await);
            text += &reply.text;
            parts += 1;
            if reply.reason == Some(Reason::Complete) {
                break;
            }
            assert_eq!(reply.reason, Some(Reason::Paused), "{path}");
            let token = Some(reply.token.as_str()).filter(|token| !token.is_empty());
            let (id, content) = (Some(reply.id.as_str()), reply.content.as_deref());
            let so_far = SoFar { text: "", id, token, content };
            let made = resume_paused(profile, &first, &so_far).unwrap();
            // Only the newest part is sent back: its end tells the place.
            request = made.request.get().to_owned();
        }
        assert!(parts >= 3, "{path}: {parts}");
        assert_eq!(text, Story::parse("60").text(), "{path}");
    }
}

fn with_prefill(text: &str) -> Value {
    let mut body = messages();
    let prefill = json!({ "role": "assistant", "content": text });
    body["messages"].as_array_mut().unwrap().push(prefill);
    body
}

fn with(mut body: Value, field: &str, value: impl Into<Value>) -> Value {
    body[field] = value.into();
    body
}

#[tokio::test]
async fn prefill_is_rejected_where_the_model_does() {
    let sim = start().await;
    let model = |body: Value, model: &str| with(body, "model", model);
    let anthropic = "/anthropic/v1/messages";
    let gemini = |model: &str| format!("/gemini/v1beta/models/{model}:generateContent");
    let turns = json!({ "contents": [{ "role": "model", "parts": [{ "text": "Once" }] }] });
    let block = json!([{ "role": "assistant", "content": [{ "text": "Once" }] }]);
    let blocks = json!({ "messages": block });
    let thinking = with(with_prefill("Once"), "thinking", json!({ "type": "enabled" }));
    let no_prefill = "does not support assistant message prefill";
    let rejected = [
        (anthropic.to_owned(), model(with_prefill("Once"), "claude-sonnet-5"), no_prefill),
        (anthropic.to_owned(), model(with_prefill("Once"), "claude-opus-4-6:length"), no_prefill),
        (anthropic.to_owned(), model(with_prefill("Once "), "claude-haiku-4-5"), "whitespace"),
        (anthropic.to_owned(), model(thinking, "claude-haiku-4-5"), "Expected `thinking`"),
        (gemini("gemini-3.6-flash"), turns.clone(), "INVALID_ARGUMENT"),
        ("/model/anthropic.claude-opus-4-6/converse".to_owned(), blocks.clone(), no_prefill),
        ("/model/meta.llama4/converse".to_owned(), blocks.clone(), "a user message"),
        ("/model/anthropic.claude-opus-4-6/invoke".to_owned(), with_prefill("Once"), no_prefill),
        ("/mistral/v1/chat/completions".to_owned(), with_prefill("Once"), "prefix True"),
        (
            "/vllm/v1/chat/completions".to_owned(),
            with(with_prefill("Once"), "continue_final_message", true),
            "Cannot set both",
        ),
    ];
    for (path, body, message) in rejected {
        let response = post(sim.addr(), &path, &[], &body.to_string()).await;
        let text = String::from_utf8(response.body).unwrap();
        assert!(response.status == 400 && text.contains(message), "{path} {body}: {text}");
    }
    for (path, body) in [
        (anthropic.to_owned(), model(with_prefill("Once"), "claude-haiku-4-5")),
        // The name of a scenario says nothing about the model.
        (anthropic.to_owned(), model(with_prefill("Once"), "complete")),
        (gemini("gemini-2.5-flash"), turns),
        ("/model/anthropic.claude-haiku-4-5/converse".to_owned(), blocks),
        (CHAT.to_owned(), with_prefill("Once")),
    ] {
        let response = post(sim.addr(), &path, &[], &body.to_string()).await;
        assert_eq!(response.status, 200, "{path} {body}");
    }
}

async fn chat_text(sim: &Sim, path: &str, body: &Value) -> String {
    let response = post(sim.addr(), path, &[], &body.to_string()).await;
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    body.pointer("/choices/0/message/content").unwrap().as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_trailing_turn_without_its_flags_is_a_finished_one() {
    let sim = start().await;
    let text = Story::parse("300").text();
    let begun = with(with_prefill(text.get(..20).unwrap()), "model", "story");
    for path in [CHAT, "/vllm/v1/chat/completions", "/deepseek/beta/chat/completions"] {
        assert!(text.starts_with(&chat_text(&sim, path, &begun).await), "{path}");
    }
    // A whole story is not continued, either: the next question gets a new one.
    let mut next = with(with_prefill(&text), "model", "story");
    next["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "Another." }));
    assert!(text.starts_with(&chat_text(&sim, CHAT, &next).await));
}

#[tokio::test]
async fn a_response_that_was_not_stored_cannot_be_referred_to() {
    let sim = start().await;
    for body in [input(true), input(false)] {
        let stored = body["store"] == true;
        let response = post(sim.addr(), "/v1/responses", &[], &body.to_string()).await;
        let first: Value = serde_json::from_slice(&response.body).unwrap();
        let next = with(body, "previous_response_id", first["id"].clone());
        let response = post(sim.addr(), "/v1/responses", &[], &next.to_string()).await;
        assert_eq!(response.status, if stored { 200 } else { 400 });
    }
}

#[tokio::test]
async fn a_response_in_the_background_is_polled() {
    let sim = start().await;
    let body = json!({ "model": "story=50", "input": "Hi", "background": true });
    let response = post(sim.addr(), "/v1/responses", &[], &body.to_string()).await;
    let first: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((&first["status"], &first["background"]), (&json!("queued"), &json!(true)));
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    for status in ["in_progress", "completed", "completed"] {
        let body: Value = serde_json::from_slice(&get(sim.addr(), &path).await.body).unwrap();
        assert_eq!(body["status"], status);
        if status == "completed" {
            let text = body.pointer("/output/0/content/0/text").unwrap();
            assert_eq!(text, &Story::parse("50").text());
        }
    }
    assert_eq!(get(sim.addr(), "/v1/responses/resp_none").await.status, 404);
}

#[tokio::test]
async fn a_response_in_the_background_can_be_cancelled() {
    let sim = start().await;
    let body = json!({ "input": "Hi", "background": true });
    let response = post(sim.addr(), "/v1/responses", &[], &body.to_string()).await;
    let first: Value = serde_json::from_slice(&response.body).unwrap();
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    let response = post(sim.addr(), &format!("{path}/cancel"), &[], "").await;
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(body["status"], "cancelled");
    let body: Value = serde_json::from_slice(&get(sim.addr(), &path).await.body).unwrap();
    assert_eq!(body["status"], "cancelled");
}

#[tokio::test]
async fn a_cut_stream_is_resumed_after_the_last_event() {
    let sim = start().await;
    for scenario in ["cut-before-word", "reset-before-word", "cut-in-tool-call"] {
        let body = json!({ "model": scenario, "input": "Hi", "background": true, "stream": true });
        let response = post(sim.addr(), "/v1/responses", &[], &body.to_string()).await;
        assert!(scenario.starts_with("cut") || response.close == How::Reset);
        let events = numbered(&response.body);
        let (last, created) = (events.len() - 1, &events[0]);
        let id = created.pointer("/response/id").unwrap().as_str().unwrap();
        let path = format!("/v1/responses/{id}?stream=true&starting_after={last}");
        let rest = get(sim.addr(), &path).await;
        let numbers: Vec<u64> =
            numbered(&rest.body).iter().map(|e| e["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers[0], last as u64 + 1, "{scenario}");
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        let whole = Response { body: [response.body, rest.body].concat(), ..rest };
        let profile = case("openai", "/openai/v1/responses", "", Value::Null).profile();
        let reason = read(profile, &whole).reason.unwrap();
        let tool = scenario == "cut-in-tool-call";
        assert_eq!(reason, if tool { Reason::ToolCall } else { Reason::Complete }, "{scenario}");
    }
    let body = json!({ "input": "Hi" });
    let response = post(sim.addr(), "/v1/responses", &[], &body.to_string()).await;
    let first: Value = serde_json::from_slice(&response.body).unwrap();
    let path = format!("/v1/responses/{}?stream=true", first["id"].as_str().unwrap());
    assert_eq!(get(sim.addr(), &path).await.status, 400);
}

/// Returns the data of the events of a stream.
fn numbered(body: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(body).into_owned();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn note() -> Value {
    let parameters = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let tool = |name: &str| json!({ "name": name, "parameters": parameters });
    let function = |name: &str| json!({ "type": "function", "function": tool(name) });
    json!([function("first"), function("second")])
}

#[tokio::test]
async fn a_partial_call_then_a_repaired_one_then_the_answer() {
    let sim = start().await;
    let choice = json!({ "type": "function", "function": { "name": "second" } });
    let ask = with(messages(), "model", "gpt-5.5:length-half-args,tool-call");
    let ask = with(with(ask, "tools", note()), "max_tokens", 1000);
    let repair = with(ask.clone(), "tool_choice", choice);
    let mut after = ask.clone();
    let result = json!({ "role": "tool", "tool_call_id": "x", "content": "ok" });
    after["messages"].as_array_mut().unwrap().push(result);
    for (body, word, tool) in [
        (&ask, "length", Some("first")),
        (&repair, "tool_calls", Some("second")),
        (&after, "stop", None),
    ] {
        let response = post(sim.addr(), CHAT, &[], &body.to_string()).await;
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        let choice = &body["choices"][0];
        assert_eq!(choice["finish_reason"], word);
        let name = choice.pointer("/message/tool_calls/0/function/name").and_then(Value::as_str);
        assert_eq!(name, tool);
    }
}

#[tokio::test]
async fn a_request_that_forbids_tools_gets_a_text() {
    let sim = start().await;
    let none = |kind: Value| with(messages(), "tool_choice", kind);
    let config = json!({ "functionCallingConfig": { "mode": "NONE" } });
    for (path, body) in [
        (CHAT, none("none".into())),
        ("/v1/messages", none(json!({ "type": "none" }))),
        ("/v1/responses", with(input(true), "tool_choice", "none")),
        ("/v2/chat", none("NONE".into())),
        ("/v1beta/models/x:generateContent", with(contents(), "toolConfig", config)),
    ] {
        let headers = [("x-sim-scenario", "tool-call!")];
        let response = post(sim.addr(), path, &headers, &body.to_string()).await;
        let text = String::from_utf8(response.body).unwrap();
        assert!(text.contains("Done: the tool has run"), "{path}: {text}");
    }
}
