//! Callbacks, strategies, subscribers, prices, and what an agent sends and reports.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endstop::chat::{self, ChatMessage};
use endstop::tool_call::{Call, Whole};
use endstop::vocabulary::NormalizedStopReason;
use endstop::{Ending, Reason};
use endstop_client::{
    Client, Ended, Limits, LoopState, Observation, RunEvent, Subscriber, Tool, ToolFuture,
    ToolRunEnd, tools, usd,
};
use endstop_turn::continuation::TurnEnd;
use endstop_turn::policy::{
    Action, AgentLimits, Decision, DecisionContext, MIN_CAP, Money, Price, RuleChange,
};
use serde_json::json;

use crate::{WIRES, builder, quick, sim};

const STORY: &str = "anthropic/claude-haiku-4-5:story=2000";

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_sees_the_history_and_may_stop_early() {
    let sim = sim().await;
    let seen: Arc<Mutex<Vec<(usize, u32, String)>>> = Arc::default();
    let told = Arc::clone(&seen);
    let client = builder(&sim).on_response(move |state: &LoopState<'_>| {
        assert_eq!(state.signals.last(), Some(state.current));
        assert_eq!(state.current.ending, state.ending.reason);
        assert_eq!(state.proposed.action, Action::Continue);
        let provider = state.current.provider_specific.metadata.context.provider.clone();
        let entry = (state.signals.len(), state.context.spent.iterations, provider);
        told.lock().unwrap().push(entry);
        (state.signals.len() == 2).then(|| Decision::new(Action::Stop, "two are enough"))
    });
    let client = client.build().unwrap();
    let reply = client.request(STORY).user("Tell.").max_tokens(40).send().await.unwrap();
    assert!(matches!(reply.ended(), Ended::Partial(_)), "{:?}", reply.outcome);
    assert_eq!(reply.pieces.len(), 2);
    let anthropic = || "anthropic".to_owned();
    assert_eq!(*seen.lock().unwrap(), [(1, 1, anthropic()), (2, 2, anthropic())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_callback_and_no_strategy_exceeds_a_limit() {
    let sim = sim().await;
    let go_on = |_: &Ending, _: &DecisionContext| Decision::new(Action::Continue, "for ever");
    let by_strategy = builder(&sim).strategy(go_on).build().unwrap();
    let go_on = |_: &LoopState<'_>| Some(Decision::new(Action::Continue, "for ever"));
    let by_callback = builder(&sim).on_response(go_on).build().unwrap();
    for client in [by_strategy, by_callback] {
        let before = sim.ledger().len();
        let reply = client.request(STORY).user("Tell.").max_tokens(40).send().await.unwrap();
        assert_eq!(reply.outcome.terminated, TurnEnd::RetryLimit);
        assert_eq!(sim.ledger().len() - before, 4, "the first request and three continuations");
    }
}

/// Name of an event, provider, model, turn and iteration.
type Entry = (&'static str, String, String, String, u32);

/// Keeps the names of events, with the facts about their turn.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Entry>>>);

impl Subscriber for Kept {
    fn event(&self, event: &Observation<'_>) {
        let (turn, iteration) = match event {
            Observation::StopReasonObserved(event) => (event.turn, event.iteration),
            Observation::TerminationDetected(event) => {
                (&*event.record.turn_id, event.record.attempt)
            }
            Observation::Turn(step) => (step.event.turn(), 0),
            other => panic!("{other:?}"),
        };
        let (provider, model) = (event.provider().to_owned(), event.model().to_owned());
        let entry = (event.name(), provider, model, turn.to_owned(), iteration);
        self.0.lock().unwrap().push(entry);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_gets_the_events_with_their_turn() {
    let sim = sim().await;
    let kept = Kept::default();
    let client = builder(&sim).subscriber(kept.clone()).build().unwrap();
    client.request(STORY).user("Tell.").max_tokens(40).send().await.unwrap();
    let events = std::mem::take(&mut *kept.0.lock().unwrap());
    let names: Vec<&str> = events.iter().map(|event| event.0).collect();
    let step = ["termination_detected", "stop_reason_observed", "continuation_attempt"];
    let mut want = step.repeat(4);
    want.splice(11.., ["continuation_terminated", "turn_ended"]);
    assert_eq!(names, want);
    let model = STORY.split_once('/').unwrap().1;
    assert!(events.iter().all(|event| event.1 == "anthropic" && event.2 == model), "{events:?}");
    assert!(events.iter().all(|event| !event.3.is_empty() && event.3 == events[0].3));
    assert_eq!((events[0].4, events[9].4), (1, 4));
    let save = chat::Tool {
        name: "save".to_owned(),
        description: String::new(),
        schema: json!({"type": "object"}),
    };
    let request = client.request("openai/length-half-args").user("Save.").tools([save]);
    request.send().await.unwrap();
    let events = std::mem::take(&mut *kept.0.lock().unwrap());
    assert!(events.iter().any(|event| event.0 == "tool_payload_repair"), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_delta_says_whether_it_ends_the_response() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in WIRES {
        let mut stream = client.stream(&format!("{wire}/complete"), "Hi").unwrap();
        let (mut deltas, mut ends) = (0, Vec::new());
        while let Some(event) = stream.next().await {
            if let RunEvent::Text(_) = &event {
                assert!(!event.is_terminal() && event.signal().is_none(), "{wire}");
                deltas += 1;
            } else if event.is_terminal() {
                ends.push(event.signal().unwrap().ending);
            }
            if let RunEvent::Ended(reply) = &event {
                assert_eq!(reply.stop_reason, Some(NormalizedStopReason::EndTurn), "{wire}");
                assert!(reply.raw_stop_reason.is_some(), "{wire}");
                assert_eq!(reply.signal.ending, Reason::Complete, "{wire}");
                assert_eq!(reply.decision.as_ref().unwrap().action, Action::Stop, "{wire}");
            }
        }
        assert!(deltas > 5, "{wire}");
        assert!(!ends.is_empty() && ends.iter().all(|end| *end == Reason::Complete), "{wire}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_does_not_belong_to_the_answer_is_said_to_be_discarded() {
    let sim = sim().await;
    let mut policy = quick();
    let rule = RuleChange { action: Some(Action::OtherModel), ..RuleChange::default() };
    policy.rules.insert(Reason::Filtered, rule);
    policy.fallback_models = vec!["gemini/complete".to_owned()];
    let client = builder(&sim).policy(policy).build().unwrap();
    let mut stream = client.stream("openai/content-filter", "Hi").unwrap();
    let (mut text, mut discarded) = (String::new(), 0);
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Text(more) => text.push_str(&more),
            RunEvent::TextDiscarded { kept } => {
                assert!(kept == 0 && !text.is_empty());
                text.clear();
                discarded += 1;
            }
            RunEvent::Ended(reply) => assert_eq!(reply.text(), Some(text.as_str())),
            _ => {}
        }
    }
    assert_eq!(discarded, 1);
}

/// Notes when it runs, and sleeps longer the earlier it was called.
#[derive(Clone, Default)]
struct Slow {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    started: Arc<AtomicUsize>,
}

impl Tool for Slow {
    fn definition(&self) -> chat::Tool {
        let schema = json!({"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]});
        chat::Tool { name: "save".to_owned(), description: String::new(), schema }
    }

    fn run<'a>(&'a self, _: &'a Call<Whole>) -> ToolFuture<'a> {
        Box::pin(async move {
            let number = self.started.fetch_add(1, Ordering::SeqCst);
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(running, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(if number == 0 { 50 } else { 1 })).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(format!("result {number}"))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_at_the_same_time_within_a_limit_and_results_keep_their_order() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for (parallel_tools, most) in [(8, 2), (1, 1)] {
        let slow = Slow::default();
        let limits = Limits { parallel_tools, ..Limits::default() };
        let agent = client.agent("openai/tool-call-parallel").tools(tools![slow.clone()]);
        let report = agent.limits(limits).run("Save.").unwrap().report().await.unwrap();
        assert_eq!(slow.most.load(Ordering::SeqCst), most);
        let results = report.conversation.iter().find_map(|message| match message {
            ChatMessage::Tool { results } => Some(results),
            _ => None,
        });
        let results: Vec<&str> = results.unwrap().iter().map(|result| &*result.content).collect();
        // The first call ends last.
        assert_eq!(results, ["result 0", "result 1"]);
        let ends: Vec<Reason> = report.signals.iter().map(|signal| signal.ending).collect();
        assert_eq!(ends, [Reason::ToolCall, Reason::Complete], "how each response ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_answer_is_asked_for_without_tools() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in WIRES {
        let none = |bytes: &[u8]| {
            let body: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            match wire.split(':').nth(1).unwrap() {
                "anthropic-messages" => body["tool_choice"]["type"] == "none",
                "gemini-generate" => body["toolConfig"]["functionCallingConfig"]["mode"] == "NONE",
                // These wires cannot forbid calls: the tools are left out.
                "bedrock-converse" => !body.to_string().contains("\"tool"),
                "ollama-chat" => body["tools"].is_null(),
                "cohere-v2" => body["tool_choice"] == "NONE",
                _ => body["tool_choice"] == "none",
            }
        };
        let before = sim.ledger().len();
        let limits = Limits { turns: 3, same_calls: 100, ..Limits::default() };
        let agent = client.agent(&format!("{wire}/tool-call!")).tools(tools![Slow::default()]);
        let report = agent.limits(limits).run("Save.").unwrap().report().await.unwrap();
        let asked = sim.ledger().split_off(before);
        let without: Vec<bool> = asked.iter().map(|entry| none(&entry.request)).collect();
        assert_eq!(without, [false, false, true], "{wire}");
        let last = String::from_utf8_lossy(&asked[2].request);
        assert!(last.contains("result 0") && last.contains("result 1"), "{wire}: {last}");
        assert!(report.response.text().is_some(), "{wire}: {:?}", report.response.outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_limit_that_is_foreseen_leaves_room_for_the_last_answer() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let model = "openai/tool-call!";
    let request = client.request(model).user("Save.").tools([Slow::default().definition()]);
    let output = request.send().await.unwrap().usage.output.unwrap();
    // A US dollar for a token of output.
    let price = Price { input: Money::default(), output: Money::from_micros(1_000_000_000_000) };
    type Change = fn(&mut AgentLimits, u64);
    let limits: [(&str, Change); 2] = [
        ("output tokens", |agent, output| {
            agent.turn_max_completion_tokens = Some(4 * output.max(MIN_CAP));
        }),
        ("money", |agent, output| {
            agent.turn_max_cost = Some(Money::from_micros(4_000_000 * output.max(MIN_CAP)));
        }),
    ];
    for (name, change) in limits {
        let mut policy = quick();
        change(&mut policy.agent, output);
        policy.prices.insert(model.to_owned(), price);
        let before = sim.ledger().len();
        let limits = Limits { same_calls: 100, ..Limits::default() };
        let agent = client.agent(model).tools(tools![Slow::default()]).limits(limits);
        // The answer is one word, so that its length does not matter.
        let agent = agent.configure(|request| request.stop = vec![" ".to_owned()]);
        let report = agent.policy(policy).run("Save.").unwrap().report().await.unwrap();
        let asked = sim.ledger().split_off(before);
        let without: Vec<bool> = asked
            .iter()
            .map(|entry| serde_json::from_slice(&entry.request).unwrap())
            .map(|body: serde_json::Value| body["tool_choice"] == "none")
            .collect();
        assert!(without.len() > 2 && without.len() < 50, "{name}: {without:?}");
        assert!(without.iter().rposition(|none| !none) == Some(without.len() - 2), "{without:?}");
        assert!(report.response.text().is_some(), "{name}: {:?}", report.response.outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_the_time_cuts_off_are_in_the_report() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    // Long enough for a busy machine to come to the calls.
    let time = Some(Duration::from_secs(8));
    let limits = Limits { time, parallel_tools: 1, ..Limits::default() };
    let endless = Endless::default();
    let agent = client.agent("openai/tool-call-parallel").tools(tools![endless.clone()]);
    let report = agent.limits(limits).run("Save.").unwrap().report().await.unwrap();
    assert_eq!(endless.0.load(Ordering::SeqCst), 1);
    let ends: Vec<ToolRunEnd> = report.tool_runs.iter().map(|run| run.end).collect();
    assert_eq!(ends, [ToolRunEnd::Interrupted, ToolRunEnd::NotStarted]);
    let [.., ChatMessage::Assistant(asked), ChatMessage::Tool { results }] =
        report.conversation.as_slice()
    else {
        panic!("{:?}", report.conversation)
    };
    assert_eq!((asked.calls.len(), results.len()), (2, 2));
    assert!(results.iter().all(|result| result.is_error && result.content.contains("time")));
    assert_eq!(report.response.outcome.terminated, TurnEnd::BudgetExhausted);
}

/// Never returns. Counts how often it started.
#[derive(Clone, Default)]
struct Endless(Arc<AtomicUsize>);

impl Tool for Endless {
    fn definition(&self) -> chat::Tool {
        Slow::default().definition()
    }

    fn run<'a>(&'a self, _: &'a Call<Whole>) -> ToolFuture<'a> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_limited_by_the_prices_and_never_counted_as_nothing() {
    let sim = sim().await;
    let limits = |dollars| Limits { cost: usd(dollars), same_calls: 100, ..Limits::default() };
    let agent = |client: &Client, model: &str, limits: Limits| {
        client.agent(model).tools(tools![Slow::default()]).limits(limits)
    };
    // The simulated model has no price: the limit cannot be kept.
    let client = builder(&sim).build().unwrap();
    let before = sim.ledger().len();
    let error = agent(&client, "openai/tool-call!", limits(0.5)).run("Save.").unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("no price for `openai/tool-call!`: the cost limit"), "{error}");
    let mut policy = quick();
    policy.agent.turn_max_cost = usd(0.5);
    let error = client.request("openai/complete").user("Hi").policy(policy.clone()).send().await;
    assert!(error.unwrap_err().to_string().contains("`[prices]`"));
    assert_eq!(sim.ledger().len(), before, "nothing was asked");
    // A built-in price, and one of the policy.
    let reply = client.request("openai/gpt-5").user("Hi").policy(policy.clone()).send().await;
    assert!(reply.unwrap().outcome.spent.cost > Money::default());
    let price = Price { input: Money::default(), output: Money::from_micros(1_000_000_000) };
    policy.prices.insert("openai/tool-call!".to_owned(), price);
    let client = builder(&sim).policy(policy).build().unwrap();
    let mut costs = Vec::new();
    for dollars in [0.2, 0.5] {
        let run = agent(&client, "openai/tool-call!", limits(dollars)).run("Save.").unwrap();
        let report = run.report().await.unwrap();
        let spent = report.response.outcome.spent;
        assert!(spent.cost.micros() as f64 <= dollars * 1e6, "{spent:?}");
        costs.push((spent.iterations, spent.cost));
    }
    assert!(costs[0] < costs[1], "more money, more requests: {costs:?}");
    // A fallback model without a price is not asked.
    let mut policy = quick();
    let rule = RuleChange { action: Some(Action::OtherModel), ..RuleChange::default() };
    policy.rules.insert(Reason::Refused, rule);
    policy.fallback_models = vec!["gemini/complete".to_owned()];
    policy.agent.turn_max_cost = usd(0.5);
    policy.prices.insert("refusal".to_owned(), price);
    let client = builder(&sim).policy(policy).build().unwrap();
    let reply = client.chat("anthropic/refusal", "Hi").await.unwrap();
    assert!(matches!(reply.ended(), Ended::Refused(_)), "{:?}", reply.outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_and_signatures_are_sent_to_no_other_provider() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let mut conversation: Vec<ChatMessage> = Vec::new();
    for wire in WIRES {
        let before = sim.ledger().len();
        let mut foreign: Vec<String> = Vec::new();
        for message in &conversation {
            if let ChatMessage::Assistant(message) = message {
                foreign.extend(message.calls.iter().map(|call| call.id.clone()));
            }
        }
        let agent = client.agent(&format!("{wire}/tool-call")).tools(tools![Slow::default()]);
        let agent = agent.conversation(conversation);
        let report = agent.run("Save.").unwrap().report().await.unwrap();
        let sent = &sim.ledger()[before].request;
        let sent = String::from_utf8_lossy(sent);
        for id in foreign.iter().filter(|id| !id.is_empty()) {
            assert!(!sent.contains(id.as_str()), "{wire}: {id}");
        }
        // Only the conversation of this provider goes on.
        conversation = report.conversation;
    }
    let native = conversation.iter().any(|message| match message {
        ChatMessage::Assistant(message) => message.native.is_some(),
        _ => false,
    });
    assert!(native, "the conversation keeps what only its provider may see");
}

#[cfg(feature = "toml")]
#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_the_policy_the_prices_and_the_providers() {
    let sim = sim().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    let text = format!(
        "[agent]\ncontinuation_max_attempts = 1\nturn_max_time = \"5m\"\n\
         [wording]\nhint = \"canary hint\"\n\
         [provider.acme]\nlike = \"openai\"\nbase_url = \"{}/openai/v1\"\n",
        sim.url()
    );
    std::fs::write(&path, text).unwrap();
    let client = Client::builder().config(&path).unwrap().build().unwrap();
    let reply = client.request("acme/length").user("Hi").send().await.unwrap();
    assert_eq!(reply.pieces.len(), 2, "{:?}", reply.outcome);
    assert_eq!(reply.ending.provider, "acme");
    let last = sim.ledger().pop().unwrap();
    assert!(String::from_utf8_lossy(&last.request).contains("canary hint"));
    std::fs::write(&path, "[agent]\nfrob = 1\n").unwrap();
    let error = Client::builder().config(&path).unwrap_err().to_string();
    assert!(error.contains("agent.toml:2: `agent.frob`"), "{error}");
    let error = Client::builder().config(folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(error.contains("none.toml"), "{error}");
}
