//! Exporters of a gateway: what they send, and what becomes of it while an endpoint fails.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use endstop_gateway::config::{Mode, SinkConfig};
use endstop_gateway::{Config, Gateway, open_sink};

use crate::client;
use crate::ledger::{Ask, Field, eventually};
use crate::stand_in::{StandIn, TOKEN, Trouble};

/// Sends endings to this address besides keeping them in this directory.
fn export(config: &mut Config, dir: &Path, url: &str, token: &str) {
    config.store = Some(format!("sqlite:{}", dir.join("endings.db").display()));
    config.data = Some(dir.join("data"));
    let file = dir.join(format!("token-{}", token.len()));
    std::fs::write(&file, token).unwrap();
    let (url, token_file) = (Some(url.to_owned()), Some(file));
    let sink = SinkConfig { url, token_file, ..SinkConfig::default() };
    config.sinks.insert("axiom".to_owned(), sink);
}

async fn field(dir: &Path, url: &str, token: &str) -> Arc<Field> {
    Field::with(|config| export(config, dir, url, token)).await
}

/// Wires, scenarios, and the finish reasons that they stand for: the provider's and the normalised one.
const ENDINGS: [(&str, &str, Option<&str>, Option<&str>); 5] = [
    ("openai-chat", "complete", Some("stop"), Some("stop")),
    ("anthropic", "complete", Some("end_turn"), Some("stop")),
    ("gemini", "length", Some("MAX_TOKENS"), Some("length")),
    ("openai-chat", "cut-before-word", None, Some("error")),
    ("openai-chat", "word=frobnicated", Some("frobnicated"), Some("other")),
];

/// Asks for each ending, plain and streamed, and returns the ids with the finish reasons that are expected.
async fn ask_all(field: &Arc<Field>) -> Vec<(String, Option<&'static str>, Option<&'static str>)> {
    let mut asked = Vec::new();
    for (wire, scenario, native, normal) in ENDINGS {
        let ask = Ask::new(wire, scenario, Mode::Guard).capped(4000);
        for ask in [ask.clone().plain(), ask] {
            let exchange = field.ask(ask).await;
            asked.push((exchange.response.id().to_owned(), native, normal));
        }
    }
    asked
}

fn loaded(field: &Field) {
    let recording = field.handle.recording().unwrap();
    assert!(recording.wait_until_loaded(Duration::from_secs(60)), "{:?}", recording.status());
}

#[tokio::test(flavor = "multi_thread")]
async fn axiom_receives_both_finish_reasons() {
    let temp = tempfile::tempdir().unwrap();
    let axiom = StandIn::start(&[]);
    let field = field(temp.path(), &axiom.url(), TOKEN).await;
    let asked = ask_all(&field).await;
    loaded(&field);
    let events = axiom.newest();
    assert_eq!(events.len(), asked.len());
    for (id, native, normal) in asked {
        let event = events.iter().find(|event| event["id"] == *id).unwrap();
        let fields = event.as_object().unwrap();
        assert!(
            fields.contains_key("native_finish_reason") && fields.contains_key("finish_reason")
        );
        let found = (event["native_finish_reason"].as_str(), event["finish_reason"].as_str());
        assert_eq!(found, (native, normal), "{event}");
    }
    field.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_at_axiom_loses_nothing_and_is_counted() {
    let temp = tempfile::tempdir().unwrap();
    let axiom =
        StandIn::start(&[Trouble::TooMany, Trouble::Error, Trouble::Close, Trouble::Partial]);
    let field = field(temp.path(), &axiom.url(), TOKEN).await;
    let asked = ask_all(&field).await;
    loaded(&field);
    assert!(axiom.requests() >= 4, "{}", axiom.requests());
    let taken = |axiom: &StandIn| -> BTreeSet<String> {
        axiom.events().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(taken(&axiom).len(), asked.len() - 1, "the event that failed is not taken");
    let text = client::get(field.admin, "/metrics", "").await.text();
    assert!(text.contains("endstop_sink_refused_total{sink=\"axiom\"} 1\n"), "{text}");
    assert!(!text.contains("endstop_sink_failures_total{sink=\"axiom\"} 0\n"), "{text}");
    field.finish().await;
    // It is kept, and can be sent again.
    let mut config = Config::default();
    export(&mut config, temp.path(), &axiom.url(), TOKEN);
    let url = config.sinks().unwrap()["axiom"].clone();
    let spool = temp.path().join("data/spool");
    tokio::task::spawn_blocking(move || {
        let mut sink = open_sink(&config, "axiom", &url).unwrap();
        assert_eq!(endstop_store::load_refused(&spool, "axiom", &mut *sink).unwrap().loaded, 1);
    })
    .await
    .unwrap();
    assert_eq!(taken(&axiom), asked.into_iter().map(|(id, _, _)| id).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn endings_wait_for_a_right_token() {
    let temp = tempfile::tempdir().unwrap();
    let axiom = StandIn::start(&[]);
    let first = field(temp.path(), &axiom.url(), "xaat-wrong").await;
    let asked = ask_all(&first).await;
    let recording = first.handle.recording().unwrap();
    let sink = || recording.status().1["sinks"]["axiom"].clone();
    let error = eventually("refused", || sink()["last_error"].as_str().map(str::to_owned)).await;
    assert!(error.contains("HTTP 403 (forbidden); check the token"), "{error}");
    assert!(!error.contains("xaat"), "{error}");
    assert_eq!(client::get(first.admin, "/readyz", "").await.status, 200);
    first.finish().await;
    assert!(axiom.events().is_empty());
    let second = field(temp.path(), &axiom.url(), TOKEN).await;
    loaded(&second);
    assert_eq!(axiom.newest().len(), asked.len());
    second.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_an_endpoint_that_does_not_answer() {
    let temp = tempfile::tempdir().unwrap();
    // It accepts connections and reads nothing.
    let stalled = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("axiom:http://{}", stalled.local_addr().unwrap());
    let field = field(temp.path(), &url, TOKEN).await;
    let asked = ask_all(&field).await;
    let recording = field.handle.recording().unwrap();
    let (trouble, status) = recording.status();
    assert_eq!(trouble, None);
    // An ending and what became known after it may be two entries.
    let waiting = status["sinks"]["axiom"]["lag_entries"].as_u64().unwrap();
    assert!(waiting >= asked.len() as u64, "{status}");
    drop(stalled);
    field.finish().await;
}

#[test]
fn mistakes_in_exporters_are_named_at_the_start() {
    let temp = tempfile::tempdir().unwrap();
    let wrong = |url: &str, token: &str| {
        let mut config = Config::default();
        export(&mut config, temp.path(), url, token);
        Gateway::check(config).unwrap_err().to_string()
    };
    for (url, token, want) in [
        (
            "axiom:http://api.axiom.co",
            TOKEN,
            "sinks.axiom: url: `http://api.axiom.co` would show the token",
        ),
        ("axiom:a/b", TOKEN, "sinks.axiom: url: invalid dataset"),
        ("axiom:nonsense://x", TOKEN, "sinks.axiom: url: unsupported scheme `nonsense`"),
        ("axiom:", "xapt-personal-token", "sinks.axiom: token: a personal token (xapt-) needs"),
        ("otlp:nonsense", TOKEN, "sinks.axiom: url: invalid address `nonsense/v1/traces`"),
        ("otlp:ftp://127.0.0.1", TOKEN, "sinks.axiom: url: unsupported scheme `ftp`"),
    ] {
        let error = wrong(url, token);
        assert!(error.starts_with(want), "{url}: {error}");
        assert!(!error.contains(TOKEN) && !error.contains("personal-token"), "{error}");
    }
    let mut config = Config::default();
    export(&mut config, temp.path(), "axiom:", TOKEN);
    let sink = config.sinks.get_mut("axiom").unwrap();
    sink.token_file = Some(temp.path().join("missing"));
    let error = Gateway::check(config).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
}
