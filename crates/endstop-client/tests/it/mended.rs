//! Repairs, fallback models, limits and connections, to the last request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endstop::chat::Tool;
use endstop::signal::TerminationSignal;
use endstop::{Closed, Ending, Reason, Timer};
use endstop_client::{ChatResponse, Client, Ended, RunEvent, Timeouts, usd};
use endstop_sim::{Reply, ReplyEnd, Sim};
use endstop_turn::continuation::{TurnEnd, TurnEvent};
use endstop_turn::policy::{
    Action, Decision, DecisionContext, Millis, Money, Policy, Price, RuleChange, Strategy,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::{WIRES, builder, builder_at, quick, sim};

/// What a consumer of a stream has in the end.
struct Followed {
    text: String,
    discarded: Vec<usize>,
    events: Vec<TurnEvent>,
    reply: ChatResponse,
}

async fn follow(request: endstop_client::Request) -> Followed {
    let mut stream = request.stream().unwrap();
    let (mut text, mut discarded, mut events) = (String::new(), Vec::new(), Vec::new());
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Text(more) => text.push_str(&more),
            RunEvent::TextDiscarded { kept } => {
                text.truncate(kept);
                discarded.push(kept);
            }
            RunEvent::Turn(event) => events.push(*event),
            RunEvent::Ended(reply) => return Followed { text, discarded, events, reply: *reply },
            _ => {}
        }
    }
    panic!("no end");
}

fn names(events: &[TurnEvent]) -> Vec<&'static str> {
    events.iter().map(TurnEvent::name).collect()
}

fn tool(name: &str) -> Tool {
    let schema = json!({"type": "object", "properties": {"note": {"type": "string"}}});
    Tool { name: name.to_owned(), description: String::new(), schema }
}

fn other_model(reason: Reason, models: &[&str]) -> Policy {
    let mut policy = quick();
    let rule = RuleChange { action: Some(Action::OtherModel), ..RuleChange::default() };
    policy.rules.insert(reason, rule);
    policy.fallback_models = models.iter().map(|&name| name.to_owned()).collect();
    policy
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_streamed_and_not_discarded_is_the_answer() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    // A continuation that fails and is repeated takes nothing back.
    let followed = follow(client.request("openai/d1:length,status=500,complete").user("Hi")).await;
    assert_eq!(followed.reply.text(), Some(followed.text.as_str()), "{:?}", followed.discarded);
    assert!(followed.discarded.is_empty(), "{:?}", followed.discarded);
    assert_eq!(followed.reply.outcome.spent.iterations, 3);
    // Another model begins anew, also after a continuation.
    let policy = other_model(Reason::Filtered, &["gemini/complete"]);
    let client = builder(&sim).policy(policy).build().unwrap();
    let followed = follow(client.request("openai/d2:length,content-filter").user("Hi")).await;
    assert_eq!(followed.reply.text(), Some(followed.text.as_str()));
    assert_eq!(followed.discarded, [0]);
}

/// Registers a plain response.
fn replay(sim: &Sim, key: &str, body: &Value) {
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
async fn no_compression_is_asked_for_and_one_that_comes_is_named() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let reply = Reply {
        status: 200,
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        body: vec![vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xab, 0x56, 0x4a, 0xce, 0xc8, 0xcf]],
        sized: true,
        end: ReplyEnd::Whole,
    };
    sim.replay("compressed", reply);
    let request = client.request("openai/m").user("Hi").header("x-sim-replay", "compressed");
    let reply = request.send().await.unwrap();
    let Ended::Failed(why) = reply.ended() else { panic!("{:?}", reply.outcome) };
    let told = why.to_string();
    assert!(told.contains("compressed (`content-encoding: gzip`)"), "{told}");
    assert!(told.contains("check the base URL `http"), "{told}");
    let asked = sim.ledger().pop().unwrap();
    let named = asked.headers.iter().filter(|(name, _)| name == "accept-encoding");
    let values: Vec<&str> = named.map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["identity"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_call_that_is_not_whole_is_asked_for() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let call = |name: &str, arguments: &str| json!({"id": name, "type": "function", "function": {"name": name, "arguments": arguments}});
    let calls = [call("read_file", r#"{"note":"a"}"#), call("write_file", r#"{"note":"b"#)];
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "length"}]});
    replay(&sim, "second-cut", &body);
    let before = sim.ledger().len();
    let request = client.request("openai/m").user("Hi").header("x-sim-replay", "second-cut");
    request.tools([tool("read_file"), tool("write_file")]).send().await.unwrap();
    let asked = sim.ledger().split_off(before);
    let repair: Value = serde_json::from_slice(&asked[1].request).unwrap();
    assert_eq!(repair["tool_choice"]["function"]["name"], "write_file", "{repair}");
    // The name is not known: none is written.
    let before = sim.ledger().len();
    let request = client.request("gemini/malformed-call").user("Hi").tools([tool("save")]);
    let reply = request.send().await.unwrap();
    assert!(matches!(reply.ended(), Ended::Partial(_)), "{:?}", reply.outcome);
    let asked = sim.ledger().split_off(before);
    assert_eq!(asked.len(), 2);
    let repair = String::from_utf8_lossy(&asked[1].request).into_owned();
    assert!(repair.contains("The tool call in the previous response was incomplete"), "{repair}");
    assert!(!repair.contains("``"), "{repair}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_cannot_be_asked_for_is_not_counted() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for provider in ["gemini", "bedrock"] {
        let before = sim.ledger().len();
        // The request has no tools, so that no call can be asked for.
        let followed =
            follow(client.request(&format!("{provider}/malformed-call")).user("Hi")).await;
        assert_eq!(sim.ledger().len() - before, 1, "{provider}");
        assert_eq!(
            names(&followed.events),
            ["stop_reason_observed", "tool_payload_repair", "turn_ended"],
            "{provider}"
        );
        let outcome = &followed.reply.outcome;
        assert_eq!((outcome.spent.iterations, outcome.spent.repairs), (1, 0), "{provider}");
        let Ended::Partial(part) = followed.reply.ended() else {
            panic!("{provider}: {outcome:?}")
        };
        assert!(part.notice().contains("a tool call is incomplete"), "{}", part.notice());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tokens_and_characters_are_limits_of_the_first_response_too() {
    let sim = sim().await;
    let mut policy = quick();
    policy.agent.turn_max_total_tokens = 50;
    let client = builder(&sim).policy(policy).build().unwrap();
    for wire in WIRES {
        let reply = client.chat(&format!("{wire}/gpt-5:story=200"), "Hi").await.unwrap();
        let spent = reply.outcome.spent;
        assert!(spent.input_tokens + spent.output_tokens <= 50, "{wire}: {spent:?}");
        assert!(!matches!(reply.ended(), Ended::Complete(_)), "{wire}: {:?}", reply.outcome);
    }
    let mut policy = quick();
    policy.agent.turn_max_output_chars = Some(100);
    let client = builder(&sim).policy(policy).build().unwrap();
    for wire in WIRES {
        for scenario in ["complete", "length"] {
            let request = || client.request(&format!("{wire}/{scenario}")).user("Hi");
            let plain = request().send().await.unwrap();
            let followed = follow(request()).await;
            for reply in [&plain, &followed.reply] {
                let Ended::Partial(part) = reply.ended() else { panic!("{wire}: {reply:?}") };
                assert_eq!(part.text_so_far().chars().count(), 100, "{wire} {scenario}");
                assert!(part.notice().contains("(turn_max_output_chars)"), "{}", part.notice());
                assert_eq!(reply.outcome.terminated, TurnEnd::BudgetExhausted);
            }
            let Ended::Partial(part) = followed.reply.ended() else { unreachable!() };
            assert_eq!(part.text_so_far(), followed.text);
        }
    }
    // An answer of exactly that length is complete.
    let mut policy = quick();
    policy.agent.turn_max_output_chars = Some(1004);
    let client = builder(&sim).policy(policy).build().unwrap();
    assert!(client.chat("openai/complete", "Hi").await.unwrap().text().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_forbid_the_first_request_are_named() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let before = sim.ledger().len();
    type Change = fn(&mut Policy);
    let forbid: [(&str, Change); 4] = [
        ("turn_max_iterations", |policy| policy.agent.turn_max_iterations = 0),
        ("turn_max_time", |policy| policy.agent.turn_max_time = Millis(0)),
        ("turn_max_cost", |policy| policy.agent.turn_max_cost = usd(0.000_001)),
        ("turn_max_cost", |policy| policy.agent.turn_max_cost = usd(f64::NAN)),
    ];
    for (name, change) in forbid {
        let mut policy = quick();
        change(&mut policy);
        let reply = client.request("openai/gpt-5").user("Hi").policy(policy).send().await.unwrap();
        let Ended::Failed(why) = reply.ended() else { panic!("{name}: {:?}", reply.outcome) };
        assert!(why.to_string().contains(&format!("({name})")), "{why}");
    }
    assert_eq!(sim.ledger().len(), before, "nothing was asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_fallback_model_that_can_be_asked_is_asked() {
    let sim = sim().await;
    let wrong = other_model(Reason::Refused, &["opnai/complete"]);
    let error = builder(&sim).policy(wrong.clone()).build().unwrap_err().to_string();
    assert_eq!(error, "unknown provider `opnai`: did you mean `openai`?");
    let client = builder(&sim).build().unwrap();
    let request = client.request("anthropic/refusal").user("Hi").policy(wrong);
    assert_eq!(request.send().await.unwrap_err().to_string(), error);
    // The first fallback model has no price, so that the cost limit could not be kept.
    let mut policy = other_model(Reason::Refused, &["openai/complete", "gemini/complete"]);
    policy.agent.turn_max_cost = usd(0.5);
    let price = Price { input: Money::from_micros(1), output: Money::from_micros(1) };
    policy.prices.insert("anthropic/refusal".to_owned(), price);
    let ask = |policy: Policy| client.request("anthropic/refusal").user("Hi").policy(policy);
    let before = sim.ledger().len();
    let followed = follow(ask(policy.clone())).await;
    assert!(matches!(followed.reply.ended(), Ended::Refused(_)), "{:?}", followed.reply.outcome);
    assert!(!names(&followed.events).contains(&"retry_attempt"), "{:?}", followed.events);
    assert_eq!(sim.ledger().len() - before, 1);
    let decision = followed.reply.decision.unwrap().sentence;
    assert!(decision.contains("no price for `google/complete`"), "{decision}");
    policy.prices.insert("google/complete".to_owned(), price);
    let reply = ask(policy).send().await.unwrap();
    assert_eq!(reply.ending.provider, "google", "{:?}", reply.outcome);
    assert!(reply.text().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_model_is_asked_within_the_cost_limit_at_its_own_price() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let price = |dollars: u64| Price {
        input: Money::from_micros(0),
        output: Money::from_micros(dollars * 1_000_000),
    };
    let mut policy = other_model(Reason::Refused, &["openai/complete"]);
    policy.agent.turn_max_cost = usd(0.01);
    policy.prices.insert("anthropic/refusal".to_owned(), price(0));
    policy.prices.insert("openai/complete".to_owned(), price(1_000));
    let ask = |policy: Policy| client.request("anthropic/refusal").user("Hi").policy(policy);
    let before = sim.ledger().len();
    let reply = ask(policy.clone()).send().await.unwrap();
    assert_eq!(sim.ledger().len() - before, 1, "{:?}", reply.outcome);
    assert_eq!(reply.outcome.terminated, TurnEnd::BudgetExhausted);
    assert!(reply.outcome.notice.unwrap().contains("(turn_max_cost)"));
    policy.agent.turn_max_cost = usd(0.05);
    let before = sim.ledger().len();
    let reply = ask(policy).send().await.unwrap();
    assert!(reply.outcome.spent.cost <= usd(0.05).unwrap(), "{:?}", reply.outcome);
    let asked = sim.ledger().split_off(before);
    let body: Value = serde_json::from_slice(&asked[1].request).unwrap();
    assert_eq!((&body["model"], &body["max_completion_tokens"]), (&json!("complete"), &json!(50)));
}

/// Reads one request, and returns false at the end of the connection.
async fn read_request(socket: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text.split("content-length: ").nth(1).unwrap_or("0");
            let length: usize = length.split('\r').next().unwrap().parse().unwrap();
            if request.len() >= head + 4 + length {
                return true;
            }
        }
        if socket.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return false;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_sent_once_more_only_if_a_kept_connection_was_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    // Answers the first request, and closes the connection at every other one.
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                while read_request(&mut socket).await {
                    if counted.fetch_add(1, Ordering::SeqCst) > 0 {
                        return;
                    }
                    let body =
                        r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
                    let head =
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
                    let answer = format!("{head}{}\r\n\r\n{body}", body.len());
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    let mut policy = quick();
    policy.agent.cut_max_attempts = 0;
    policy.agent.retry_max_attempts = 0;
    let client = builder_at(&url).policy(policy).build().unwrap();
    assert_eq!(client.chat("openai/m", "Hi").await.unwrap().text(), Some("Hi"));
    let resent = |followed: &Followed| {
        names(&followed.events).iter().filter(|name| **name == "request_resent").count()
    };
    let second = follow(client.request("openai/m").user("Hi")).await;
    assert_eq!(requests.load(Ordering::SeqCst), 3, "once over the kept connection, once more");
    assert_eq!(resent(&second), 1, "{:?}", second.events);
    assert!(matches!(second.reply.ended(), Ended::Failed(_)));
    // No connection is kept any more.
    let third = follow(client.request("openai/m").user("Hi")).await;
    assert_eq!((requests.load(Ordering::SeqCst), resent(&third)), (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_timeout_ends_a_request() {
    let sim = sim().await;
    let mut policy = quick();
    policy.agent.retry_max_attempts = 0;
    let total = Timeouts { total: Duration::from_millis(300), ..Timeouts::default() };
    let client = builder(&sim).timeouts(total).policy(policy.clone()).build().unwrap();
    let reply = client.chat("openai/stall", "Hi").await.unwrap();
    assert_eq!(reply.ending.reason, Reason::TimedOut, "{:?}", reply.ending);
    assert_eq!(reply.ending.closed, Closed::TimedOut(Timer::Total));

    // A server whose queue of connections is full takes no other.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..16 {
        let connecting =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address));
        match connecting.await {
            Ok(connected) => waiting.push(connected.unwrap()),
            Err(_) => break,
        }
    }
    if waiting.len() == 16 {
        println!("this system takes connections without end");
        return;
    }
    let connect = Timeouts { connect: Duration::from_millis(200), ..Timeouts::default() };
    let client = builder_at(&format!("http://{address}")).timeouts(connect).policy(policy);
    let reply = client.build().unwrap().chat("openai/m", "Hi").await.unwrap();
    assert_eq!(reply.ending.reason, Reason::TimedOut, "{:?}", reply.ending);
    assert_eq!(reply.ending.closed, Closed::TimedOut(Timer::Connect));
    let Ended::Failed(why) = reply.ended() else { panic!("{:?}", reply.outcome) };
    let told = why.to_string();
    assert!(told.contains(&format!("; check the base URL `http://{address}")), "{told}");
    assert!(told.ends_with("(from the setting `gateway`) and the network"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_the_provider_asks_for_is_waited() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let began = std::time::Instant::now();
    let reply = client.chat("openai/w1:status=429,complete", "Hi").await.unwrap();
    assert!(reply.text().is_some(), "{:?}", reply.outcome);
    assert_eq!(reply.outcome.spent.iterations, 2);
    // The policy's own wait is at most 5 ms. A slow machine waits longer, never shorter.
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

/// Keeps the signals that it sees, and stops at the second.
#[derive(Clone, Default)]
struct Seeing(Arc<Mutex<Vec<Vec<Reason>>>>);

impl Strategy for Seeing {
    fn decide(&self, _: &Ending, _: &DecisionContext) -> Decision {
        Decision::new(Action::Stop, "without the history")
    }

    fn decide_with(
        &self,
        ending: &Ending,
        context: &DecisionContext,
        signals: &[TerminationSignal],
    ) -> Decision {
        self.0.lock().unwrap().push(signals.iter().map(|signal| signal.ending).collect());
        match signals.len() {
            1 => Policy::default().decide(ending, context),
            _ => Decision::new(Action::Stop, "two are enough"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strategy_sees_the_history() {
    let sim = sim().await;
    let seeing = Seeing::default();
    let client = builder(&sim).strategy(seeing.clone()).build().unwrap();
    let reply = client.chat("openai/s1:length,length,complete", "Hi").await.unwrap();
    assert_eq!(reply.decision.unwrap().sentence, "two are enough");
    let limit = Reason::OutputLimit;
    assert_eq!(*seeing.0.lock().unwrap(), [vec![limit], vec![limit, limit]]);
}

#[test]
fn an_amount_of_money_always_limits() {
    assert_eq!(usd(-1.0), Some(Money::default()));
    assert_eq!(usd(f64::NAN), Some(Money::default()));
    assert_eq!(usd(0.5), Some(Money::from_micros(500_000)));
}

#[tokio::test]
async fn a_client_of_the_environment_needs_no_error() {
    // A mistake shows at the first request.
    let client: Client = Client::from_env();
    let error = client.chat("nonsense", "Hi").await.unwrap_err().to_string();
    assert!(error.starts_with("invalid model `nonsense`"), "{error}");
}
