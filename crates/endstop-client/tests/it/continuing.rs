//! Truncated answers, continued to the character.

use endstop::chat::Tool;
use endstop::registry::{Clues, Registry};
use endstop::{Event, Head, Reader, RequestInfo, TransportEnd, Usage};
use endstop_client::{ChatResponse, Client, Ended, RunEvent};
use endstop_sim::LedgerEntry;
use endstop_turn::policy::Policy;
use serde_json::json;

use crate::{builder, quick, sim};

/// Models, and whether they continue from exactly where they stopped: by a prefill, a token or a resend.
const MODELS: &[(&str, bool)] = &[
    ("anthropic/claude-haiku-4-5", true),
    ("anthropic/claude-sonnet-5", false),
    ("gemini/gemini-2.5-flash", true),
    ("gemini/gemini-4-pro", true),
    ("gemini/gemini-3.5-pro", false),
    ("mistral/mistral-large-latest", true),
    ("bedrock/anthropic.claude-haiku-4-5", true),
    ("openai/gpt-5", false),
    ("openai:responses/gpt-5", false),
    ("cohere/command-a", false),
    ("ollama/llama3", false),
];

fn persistent() -> Policy {
    let mut policy = quick();
    policy.agent.continuation_max_attempts = 40;
    policy.agent.continuation_total_tokens_factor = 40;
    policy
}

async fn story(client: &Client, model: &str, cap: u64, streamed: bool) -> (String, usize) {
    let request = client.request(model).user("Tell a story.").max_tokens(cap);
    if !streamed {
        let reply = request.send().await.unwrap();
        let text = reply.text().unwrap_or_else(|| panic!("{model}: {:?}", reply.outcome));
        return (text.to_owned(), reply.pieces.len());
    }
    let mut stream = request.stream().unwrap();
    let mut text = String::new();
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Text(more) => text.push_str(&more),
            RunEvent::Ended(reply) => {
                assert_eq!(reply.text(), Some(text.as_str()), "{model}: {:?}", reply.outcome);
                return (text, reply.pieces.len());
            }
            _ => {}
        }
    }
    panic!("{model}: no end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_answer_is_continued_to_its_end() {
    let sim = sim().await;
    let client = builder(&sim).policy(persistent()).build().unwrap();
    for (model, _) in MODELS {
        let model = format!("{model}:story=200");
        let (whole, one) = story(&client, &model, 100_000, false).await;
        assert_eq!(one, 1, "{model}");
        for streamed in [false, true] {
            for cap in [40, 97] {
                let (text, pieces) = story(&client, &model, cap, streamed).await;
                assert!(pieces > 2, "{model}: {pieces}");
                assert_eq!(text, whole, "{model}, {cap} tokens, streamed: {streamed}");
            }
        }
    }
}

/// Returns the number of characters of `whole` that `text` lacks, in order, and of those that it has twice.
fn compared(whole: &str, text: &str) -> (usize, usize) {
    let mut rest = text.chars();
    let lost = whole.chars().filter(|wanted| {
        !rest.clone().any(|had| had == *wanted) || {
            let found = rest.by_ref().any(|had| had == *wanted);
            !found
        }
    });
    let lost = lost.count();
    let more = text.chars().count() + lost;
    (lost, more.saturating_sub(whole.chars().count()))
}

#[tokio::test(flavor = "multi_thread")]
async fn models_that_repeat_or_drop_a_space_lose_nothing() {
    let sim = sim().await;
    let client = builder(&sim).policy(persistent()).build().unwrap();
    let (mut repeated, mut left) = (0, 0);
    for (model, exact) in MODELS {
        if *exact {
            continue;
        }
        let (whole, _) = story(&client, &format!("{model}:story=200"), 100_000, false).await;
        for streamed in [false, true] {
            let model_name = format!("{model}:story-repeat=200");
            let reply = client.request(&model_name).user("Tell a story.").max_tokens(50);
            let reply = if streamed {
                reply.stream().unwrap().response().await.unwrap()
            } else {
                reply.send().await.unwrap()
            };
            let text = reply.text().unwrap_or_else(|| panic!("{model_name}: {:?}", reply.outcome));
            let (lost, twice) = compared(&whole, text);
            assert_eq!(lost, 0, "{model_name}, streamed: {streamed}");
            let trimmed: u64 = reply.pieces.iter().map(|piece| piece.trimmed_chars).sum();
            repeated += trimmed as usize + twice;
            left += twice;
            let model_name = format!("{model}:story-drop-space=200");
            let (text, _) = story(&client, &model_name, 50, streamed).await;
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&text), bare(&whole), "{model_name}, streamed: {streamed}");
        }
    }
    println!("duplicates left: {left} of {repeated} repeated characters");
    assert!(left * 5 < repeated, "{left} of {repeated}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_stays_ends_in_a_partial_answer() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for (model, _) in MODELS {
        let model = format!("{model}:story=2000");
        let reply = client.request(&model).user("Tell.").max_tokens(40).send().await.unwrap();
        let Ended::Partial(part) = reply.ended() else { panic!("{model}: {:?}", reply.outcome) };
        assert!(part.notice().contains("continuation_max_attempts"), "{model}: {}", part.notice());
        assert_eq!(reply.pieces.len(), 4, "{model}: the first request and three continuations");
        assert_eq!(reply.usage.output, Some(160), "{model}");
    }
    for (model, exact) in MODELS {
        if *exact {
            continue;
        }
        let model = format!("{model}:story-loop=200");
        let request = client.request(&model).user("Tell.").max_tokens(200).policy(persistent());
        let reply = request.send().await.unwrap();
        assert!(matches!(reply.ended(), Ended::Partial(_)), "{model}: {:?}", reply.outcome);
        assert!(reply.pieces.len() < 10, "{model}: a loop is noticed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_turns_are_resumed() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for model in ["anthropic/claude-sonnet-5", "gemini/gemini-4-pro"] {
        let (whole, _) = story(&client, &format!("{model}:story=200"), 100_000, false).await;
        for streamed in [false, true] {
            let model = format!("{model}:story-pause=200");
            let (text, pieces) = story(&client, &model, 100_000, streamed).await;
            assert_eq!(text, whole, "{model}, streamed: {streamed}");
            assert!(pieces >= 3, "{model}, streamed: {streamed}: {pieces}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stream_is_resumed_or_retried() {
    let sim = sim().await;
    let client = builder(&sim).policy(persistent()).build().unwrap();
    let ways = MODELS.iter().flat_map(|(model, _)| [(model, false), (model, true)]);
    for (seed, (model, streamed)) in ways.enumerate() {
        let (whole, _) = story(&client, &format!("{model}:story=200-{seed}"), 100_000, false).await;
        // The first response is cut, the next one is not. Each list is counted by its name.
        let model = format!("{model}:story-cut=200-{seed},story=200-{seed}");
        let (text, pieces) = story(&client, &model, 100_000, streamed).await;
        assert_eq!(text, whole, "{model}, streamed: {streamed}");
        // Text that nobody has seen is discarded, and the request is sent again.
        assert_eq!(pieces, if streamed { 2 } else { 1 }, "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_truncated_is_asked_once() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let tool = Tool {
        name: "save".to_owned(),
        description: String::new(),
        schema: json!({"type": "object", "properties": {}}),
    };
    for (model, _) in MODELS {
        let before = sim.ledger().len();
        let model = format!("{model}:complete");
        let mut stream = client.request(&model).user("Hi").tools([tool.clone()]).stream().unwrap();
        let mut turn_events = Vec::new();
        let mut reply = None;
        while let Some(event) = stream.next().await {
            match event {
                RunEvent::Turn(event) => turn_events.push(event.name()),
                RunEvent::Ended(ended) => reply = Some(ended),
                _ => {}
            }
        }
        let reply = reply.unwrap();
        assert_eq!(turn_events, ["stop_reason_observed", "turn_ended"], "{model}");
        let asked = sim.ledger().split_off(before);
        assert_eq!(asked.len(), 1, "{model}: one request");
        let (text, usage) = sent(&model, &asked[0]);
        assert!(text.len() > 500 && usage.output.is_some(), "{model}: {text}");
        assert_eq!(reply.text(), Some(text.as_str()), "{model}");
        assert_eq!(reply.usage, usage, "{model}");
    }
}

/// Reads the text and the token counts out of the bytes that the simulator sent.
fn sent(model: &str, entry: &LedgerEntry) -> (String, Usage) {
    assert_eq!(entry.body.len() as u64, entry.written, "{model}: the whole body is kept");
    let provider = model.split(['/', ':']).next().unwrap();
    let clues = Clues { provider, dialect: entry.wire, ..Clues::default() };
    let wire = Registry::default().choose(&clues);
    let info = RequestInfo::from_request(&wire.profile, &entry.path, &entry.request);
    let mut text = String::new();
    let mut hear = |event: Event<'_>| {
        if let Event::Text { text: more, .. } = event {
            text.push_str(more);
        }
    };
    let mut reader = Reader::new(wire, Head { status: 200, content_type: "" }, info);
    reader.read(&entry.body, &mut hear);
    let ending = reader.finish(TransportEnd::Eof, &mut hear);
    (text, ending.usage)
}

/// Streams an answer in the background, and returns its text, the events of the turn and the response.
async fn background(client: &Client, model: &str) -> (String, Vec<&'static str>, ChatResponse) {
    let request = client.request(model).user("Tell a story.").configure(|request| {
        request.extra.insert("background".to_owned(), json!(true));
    });
    let mut stream = request.stream().unwrap();
    let (mut text, mut events) = (String::new(), Vec::new());
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Text(more) => text.push_str(&more),
            RunEvent::Turn(event) => events.push(event.name()),
            RunEvent::Ended(reply) => return (text, events, *reply),
            _ => {}
        }
    }
    panic!("{model}: no end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_stream_goes_on_where_it_was_cut() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for (seed, scenario) in
        ["story-cut", "cut-before-word", "reset", "fin-in-chunk", "cut-in-tool-call"]
            .into_iter()
            .enumerate()
    {
        let before = sim.ledger().len();
        let value = if scenario == "story-cut" { format!("=200-{seed}") } else { String::new() };
        let model = format!("openai:responses/{scenario}{value}");
        let (text, events, reply) = background(&client, &model).await;
        let asked = sim.ledger().split_off(before);
        if scenario == "story-cut" {
            let whole = format!("openai:responses/story=200-{seed}");
            let (whole, ..) = story(&client, &whole, 100_000, false).await;
            assert_eq!(text, whole);
        }
        if scenario == "cut-in-tool-call" {
            assert!(!reply.tool_calls().is_empty(), "the call is whole: {:?}", reply.outcome);
        } else {
            assert_eq!(reply.text(), Some(text.as_str()), "{scenario}: {events:?}");
            assert!(!text.is_empty() && reply.usage.output.is_some(), "{scenario}");
        }
        assert_eq!(reply.pieces.len(), 1, "{scenario}");
        let methods: Vec<&str> = asked.iter().map(|entry| &*entry.method).collect();
        assert_eq!(methods, ["POST", "GET"], "{scenario}: no request is asked twice");
        assert!(asked[1].path.contains("stream=true&starting_after="), "{}", asked[1].path);
        assert_eq!(events, ["resume_attempt", "stop_reason_observed", "turn_ended"], "{scenario}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_may_forbid_to_go_on_with_a_stored_stream() {
    let sim = sim().await;
    let mut policy = quick();
    policy.agent.cut_max_attempts = 0;
    let client = builder(&sim).policy(policy).build().unwrap();
    let before = sim.ledger().len();
    let (text, events, reply) = background(&client, "openai:responses/story-cut=200").await;
    assert!(reply.text().is_none() && !text.is_empty());
    assert_eq!(sim.ledger().len() - before, 1, "{events:?}");
}
