//! Typed answers, bad input, cancelling, and the bytes of requests.

use std::time::Duration;

use endstop_client::{Client, Ended, RunEvent, Timeouts, TypedError};
use endstop_sim::{Options, Reply, ReplyEnd, ResponseEnd, Sim};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{WIRES, builder, quick, sim};

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Plan {
    title: String,
    steps: Vec<String>,
}

/// Registers a plain answer with this text and finish reason.
fn answer(sim: &Sim, key: &str, text: &str, word: &str) {
    let body = serde_json::json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": word}],
    });
    let reply = Reply {
        status: 200,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: vec![body.to_string().into_bytes()],
        sized: true,
        end: ReplyEnd::Whole,
    };
    sim.replay(key, reply);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_value_is_not_an_invalid_one() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let typed = |model: &str| {
        let request = client.request("openai/m").user("Plan.").header("x-sim-replay", model);
        request.typed::<Plan>()
    };
    let whole = r#"{"title":"a","steps":["b"]}"#;
    answer(&sim, "whole", whole, "stop");
    assert_eq!(typed("whole").await.unwrap().title, "a");
    answer(&sim, "fenced", &format!("```json\n{whole}\n```"), "stop");
    assert_eq!(typed("fenced").await.unwrap().steps, ["b"]);
    for cut in 1..whole.len() {
        let name = format!("cut-{cut}");
        answer(&sim, &name, &whole[..cut], "length");
        let before = sim.ledger().len();
        assert!(matches!(typed(&name).await, Err(TypedError::Truncated(_))), "{cut}");
        let asked = sim.ledger().split_off(before);
        let fixes = asked.iter().filter(|entry| {
            String::from_utf8_lossy(&entry.request).contains("does not match the JSON schema")
        });
        assert_eq!(fixes.count(), 0, "a truncated object is never sent back to be fixed");
    }
    answer(&sim, "odd", r#"{"title":1}"#, "stop");
    let before = sim.ledger().len();
    assert!(matches!(typed("odd").await, Err(TypedError::Invalid { .. })));
    assert_eq!(sim.ledger().len() - before, 2, "asked once more, with the mistake");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_told_in_one_clear_sentence() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let why = |reply: endstop_client::ChatResponse| match reply.ended() {
        Ended::Failed(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    for wire in WIRES {
        let reply = client.chat(&format!("{wire}/status=401"), "Hi").await.unwrap();
        let told = why(reply);
        assert!(
            told.ends_with("check the key (from the setting `key`) and what it may do"),
            "{wire}: {told}"
        );
        assert!(!told.contains("canary"), "{wire}: {told}");
        let reply = client.chat(&format!("{wire}/status=404"), "Hi").await.unwrap();
        let told = why(reply);
        assert!(told.contains("; check the name of the model and the base URL `http"), "{told}");
        assert!(told.ends_with(" (from the setting `gateway`)"), "{wire}: {told}");
    }
    let unreachable = Client::builder().base_url("openai", "http://127.0.0.1:1/v1");
    let unreachable = unreachable.policy(quick()).build().unwrap();
    let told = why(unreachable.chat("openai/m", "Hi").await.unwrap());
    let from = "`http://127.0.0.1:1/v1` (from the setting `base_url`)";
    assert!(told.ends_with(&format!("; check the base URL {from} and the network")), "{told}");
    let tls = Client::builder().base_url("openai", sim.url().replace("http:", "https:"));
    let told = why(tls.policy(quick()).build().unwrap().chat("openai/m", "Hi").await.unwrap());
    assert!(told.contains("TLS") && told.contains("check the base URL `https:"), "{told}");
    let html = client.chat("openai/html-200", "Hi").await.unwrap();
    assert!(why(html).contains("; check the base URL `http"));
    for wire in WIRES {
        let before = sim.ledger().len();
        let told = why(client.chat(&format!("{wire}/redirect"), "Hi").await.unwrap());
        assert!(told.contains("HTTP 302"), "{wire}: {told}");
        assert!(told.contains("; redirects are not followed: check the base URL `http"), "{told}");
        assert!(told.ends_with(" (from the setting `gateway`)"), "{wire}: {told}");
        assert_eq!(sim.ledger().len() - before, 1, "{wire}: asked once");
    }
    assert!(client.chat("openai/m", "").await.is_ok());
    let error = client.request("openai/m").send().await.unwrap_err();
    assert_eq!(error.to_string(), "the conversation has no message");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_dropped_closes_its_connection() {
    let sim = Sim::start(Options { pace: Duration::from_millis(5), ..Options::default() }).await;
    let sim = sim.unwrap();
    let client = builder(&sim).build().unwrap();
    // The runtime is the test's own: it has the tasks of the client and of the simulator.
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let cancel = |number: usize| {
        let wire = WIRES[number % WIRES.len()];
        let mut stream = client.stream(&format!("{wire}/complete"), "Hi").unwrap();
        async move {
            while let Some(event) = stream.next().await {
                if matches!(event, RunEvent::Text(_)) {
                    return 1;
                }
            }
            0
        }
    };
    let mut cancelled = 0;
    for batch in 0..20 {
        let streams = (0..50).map(|number| cancel(batch * 50 + number));
        cancelled += futures_util::future::join_all(streams).await.into_iter().sum::<usize>();
    }
    assert_eq!(cancelled, 1000);
    let open = || {
        let responses =
            sim.ledger().iter().filter(|entry| entry.ended == ResponseEnd::Open).count();
        let tasks = metrics.num_alive_tasks().saturating_sub(before);
        (responses, sim.open_connections(), tasks)
    };
    for _ in 0..500 {
        if open() == (0, 0, 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("responses, connections and tasks that are left: {:?}", open());
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_that_the_provider_asks_for_are_kept() {
    let sim = sim().await;
    let mut policy = quick();
    policy.agent.retry_after_max_ms = 10;
    let client = builder(&sim).policy(policy).build().unwrap();
    let before = sim.ledger().len();
    let reply = client.chat("openai/status=429", "Hi").await.unwrap();
    assert!(matches!(reply.ended(), Ended::Failed(_)));
    assert!(reply.quota_metadata.retry_after_ms.is_some());
    assert_eq!(sim.ledger().len() - before, 1, "a wait that is too long is not waited for");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_request_is_the_first_one_and_a_suffix() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for (number, wire) in WIRES.iter().enumerate() {
        let before = sim.ledger().len();
        // Without a limit of its own, a request leaves it to the model.
        let model = format!("{wire}/m{number}:length,complete");
        let reply = client.request(&model).user("Hi").send().await.unwrap();
        let sent = sim.ledger().split_off(before);
        assert!(sent.len() >= 2, "{wire}: {:?}", reply.outcome);
        let (first, next) = (&sent[0].request, &sent[1].request);
        let same = first.iter().zip(next).take_while(|(one, other)| one == other).count();
        println!("{wire}: {same} of {} bytes", first.len());
        let token = String::from_utf8_lossy(next).contains("previous_response_id");
        assert!(token || same + 2 >= first.len(), "{wire}: {same} of {}", first.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_limits_end_a_request() {
    let sim = sim().await;
    let timeouts = Timeouts { first_byte: Duration::from_millis(50), ..Timeouts::default() };
    let client = builder(&sim).timeouts(timeouts).build().unwrap();
    let reply = client.chat("openai/no-headers", "Hi").await.unwrap();
    assert_eq!(reply.ending.reason, endstop::Reason::TimedOut);
    let mut policy = quick();
    policy.agent.turn_max_time = endstop_turn::policy::Millis(100);
    let client = builder(&sim).policy(policy).build().unwrap();
    let reply = client.chat("openai/stall", "Hi").await.unwrap();
    assert!(!matches!(reply.ended(), Ended::Complete(_)));
}
