//! The record, from a request to its row: the provider's word beside ours, whose request it was, its
//! tokens, and nothing of what was asked, answered or shown as a key.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use endstop::registry::Registry;
use endstop::{Reason, Record};
use endstop_gateway::config::{Mode, TeamConfig};
use endstop_gateway::{Config, Gateway};
use endstop_sim::{Reply, ReplyEnd};
use endstop_store::Stored;

use crate::client::{self, End, Response};
use crate::ledger::{Ask, Exchange, Field, every};

/// Keeps endings in this directory.
fn keep(config: &mut Config, dir: &Path) {
    config.store = Some(format!("sqlite:{}", dir.join("endings.db").display()));
    config.data = Some(dir.join("data"));
}

async fn field(dir: &Path, change: impl FnOnce(&mut Config)) -> Arc<Field> {
    Field::with(|config| {
        keep(config, dir);
        change(config);
    })
    .await
}

/// The row of this id, once it is loaded.
fn row(field: &Field, id: &str) -> Stored {
    let recording = field.handle.recording().unwrap();
    assert!(recording.wait_until_loaded(Duration::from_secs(15)), "{:?}", recording.status());
    recording.ask(|store| store.ending(id)).unwrap().unwrap()
}

/// What a table of endings says of a row.
fn said(record: &Record) -> [&str; 4] {
    [
        record.native_field.as_deref().unwrap_or("-"),
        record.native_finish_reason.as_deref().unwrap_or("-"),
        record.finish_reason.as_deref().unwrap_or("-"),
        &record.reason,
    ]
}

#[tokio::test]
async fn every_ending_has_the_native_word_beside_ours() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path(), |_| ()).await;
    let table = [
        ("openai-chat", "complete", ["finish_reason", "stop", "stop", "complete"]),
        ("anthropic", "complete", ["stop_reason", "end_turn", "stop", "complete"]),
        ("gemini", "length", ["finishReason", "MAX_TOKENS", "length", "output_limit"]),
        ("gemini", "complete", ["finishReason", "STOP", "stop", "complete"]),
        ("openai-chat", "length", ["finish_reason", "length", "length", "output_limit"]),
        ("anthropic", "length", ["stop_reason", "max_tokens", "length", "output_limit"]),
        ("openai-chat", "tool-call", ["finish_reason", "tool_calls", "tool_calls", "tool_call"]),
        ("anthropic", "tool-call", ["stop_reason", "tool_use", "tool_calls", "tool_call"]),
        (
            "openai-chat",
            "content-filter",
            ["finish_reason", "content_filter", "content_filter", "filtered"],
        ),
        (
            "gemini",
            "content-filter",
            ["finishReason", "PROHIBITED_CONTENT", "content_filter", "filtered"],
        ),
        ("gemini", "word=SAFETY", ["finishReason", "SAFETY", "safety", "safety"]),
        ("gemini", "word=RECITATION", ["finishReason", "RECITATION", "recitation", "recitation"]),
        ("anthropic", "refusal", ["stop_reason", "refusal", "content_filter", "refused"]),
        ("openai-chat", "cut-before-word", ["-", "-", "error", "cut"]),
        ("anthropic", "cut-before-word", ["-", "-", "error", "cut"]),
        ("openai-chat", "word=frobnicated", ["finish_reason", "frobnicated", "other", "unknown"]),
    ];
    let mut wrong = Vec::new();
    for (wire, scenario, want) in table {
        // What a client asks again after a failure is one turn, streamed or not. What
        // observe passes on is no failure.
        let mut attempts = [1, 2, 3, 1].into_iter();
        for mode in [Mode::Guard, Mode::Observe] {
            let ask = Ask::new(wire, scenario, mode).capped(4000);
            for ask in [ask.clone().plain(), ask] {
                let cut = scenario == "cut-before-word";
                let streamed = ask.streamed;
                let exchange = field.ask(ask).await;
                let stored = row(&field, exchange.response.id());
                let record = &stored.record;
                assert_eq!(*record, exchange.record.kept, "{}", exchange.label());
                if said(record) != want {
                    wrong.push((wire, scenario, streamed, said(record).map(str::to_owned)));
                }
                assert_eq!((record.streamed, record.status), (streamed, Some(200)));
                let attempt = if cut { attempts.next().unwrap() } else { 1 };
                assert_eq!((record.cap, record.attempt), (Some(4000), attempt));
                assert_eq!(record.turn_id == record.id, attempt == 1);
                assert!(record.decision.is_some());
                assert_eq!(record.provider, exchange.ask.profile().provider);
                assert_eq!(record.model.as_deref().map(str::is_empty), Some(false));
                assert_eq!(record.mode, mode.word());
                assert!(["high", "medium", "low"].contains(&&*record.confidence));
                assert_eq!(record.tokens_out.is_some(), !cut || wire == "anthropic" && streamed);
                assert!(record.first_byte_us.unwrap() <= record.total_us && record.bytes > 0);
                assert_eq!(record.delivered_bytes, exchange.record.kept.delivered_bytes);
                assert_eq!(record.rules, record.current_rules(&Registry::default()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    field.finish().await;
}

/// A client that leaves in the middle of a plain answer: the ending is the provider's, and the bytes are
/// those that were handed over.
#[tokio::test]
async fn a_plain_answer_counts_as_far_as_it_was_handed_over() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path(), |config| config.limits.plain_bytes = 16 << 20).await;
    let text = "x".repeat(14 << 20);
    let body = format!(
        r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]}}"#
    );
    let length = body.len() as u64;
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let body = vec![body.into_bytes()];
    let reply = Reply { status: 200, headers, body, sized: true, end: ReplyEnd::Whole };
    field.sim.replay("large", reply);
    for mode in [Mode::Guard, Mode::Observe] {
        for leaves in [true, false] {
            let ask = Ask::new("openai-chat", "complete", mode).plain().replay("large", true);
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            // Without this the kernel takes in megabytes for a client that reads nothing.
            socket.set_recv_buffer_size(64 << 10).unwrap();
            let mut client = client::Client::new(socket.connect(field.address).await.unwrap());
            field.admit(1);
            client.send(ask.request(&field.tag())).await;
            let got = if leaves {
                client.until(|response| response.body.len() > 1000).await
            } else {
                client.finish().await
            };
            drop(client);
            let record = field.record(got.id()).await;
            let label = format!("{mode:?} {leaves} {:?}", record.kept);
            assert_eq!(record.ending.reason, Reason::Complete, "{label}");
            assert_eq!(record.ending.shown.client_closed_early, leaves, "{label}");
            let delivered = record.kept.delivered_bytes;
            assert!(delivered >= got.body.len() as u64, "{label}");
            assert_eq!(delivered < length, leaves, "{label}");
            assert_eq!(row(&field, got.id()).record, record.kept, "{label}");
        }
    }
    field.finish().await;
}

#[tokio::test]
async fn what_is_stored_is_what_was_told() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path(), |config| {
        config.limits.idle = Duration::from_millis(500);
    })
    .await;
    let mut all: Vec<Exchange> = Vec::new();
    for scenario in [
        "complete",
        "length",
        "tool-call",
        "length-half-args",
        "refusal",
        "content-filter",
        "cut-in-tool-call",
        "reset",
        "error-late",
        "status=429",
        "html-200",
        "stall",
        "word=';drop%20table--",
        "pause",
        "gzip",
    ] {
        all.extend(field.ask_all(every(scenario)).await);
    }
    for exchange in &all {
        let stored = row(&field, exchange.response.id());
        assert_eq!(stored.record, exchange.record.kept, "{}", exchange.label());
        assert!(stored.sequence >= 1 && !stored.record.closed.contains("interrupted"));
    }
    let recording = field.handle.recording().unwrap();
    let status = recording.status().1;
    assert_eq!((&status["spool"]["open"], &status["spool"]["lost"]), (&0.into(), &0.into()));
    println!("{} rows", all.len());
    field.finish().await;
}

#[tokio::test]
async fn who_leaves_and_what_never_answered_have_rows_too() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path(), |config| {
        config.upstreams.get_mut("mistral").unwrap().base_url = Some("http://127.0.0.1:1".into());
    })
    .await;
    let ask = Ask::new("openai-chat", "stall", Mode::Guard);
    let tag = field.tag();
    let mut client = crate::ledger::begin(&field, &ask, &tag).await;
    let id = client.head().await.id().to_owned();
    drop(client);
    field.record(&id).await;
    let left = row(&field, &id).record;
    assert_eq!((&*left.reason, &*left.cause), ("cancelled", "client_cancelled"));
    assert_eq!(left.finish_reason.as_deref(), Some("cancel"));

    field.admit(1);
    let ask = Ask::new("mistral", "complete", Mode::Guard);
    let response = client::ask(field.address, ask.request("none")).await;
    assert_eq!(response.status, 502);
    field.record(response.id()).await;
    let stored = row(&field, response.id()).record;
    assert_eq!((stored.status, &*stored.action), (None, "refused"));
    assert_eq!(stored.finish_reason.as_deref(), Some("error"));
    field.finish().await;
}

/// Asks with these headers, and gives the response and its row.
async fn asked(field: &Field, path: &str, headers: &[(&str, &str)]) -> (Response, Option<Record>) {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let headers: Vec<_> = headers.iter().map(own).collect();
    let body = r#"{"model":"m","stream":false,"messages":[]}"#;
    let response = client::ask(field.address, client::request(path, &headers, body)).await;
    let record = (response.status == 200).then(|| {
        field.admit(1);
        row(field, response.id()).record
    });
    (response, record)
}

const CHAT: &str = "/openai/v1/chat/completions";
const MESSAGES: &str = "/anthropic/v1/messages";

#[tokio::test]
async fn whose_request_it_was_is_known_by_upstream_by_key_and_by_header() {
    let temp = tempfile::tempdir().unwrap();
    let key = temp.path().join("key");
    fs::write(&key, "sk-canary-beta\n").unwrap();
    for team_header in [false, true] {
        let field = field(temp.path(), |config| {
            config.upstreams.get_mut("openai").unwrap().team = Some("alpha".into());
            let team = TeamConfig { key_files: vec![key.clone()], ..TeamConfig::default() };
            config.teams.insert("beta".into(), team);
            config.record.team_header = team_header;
        })
        .await;
        let beta = ("x-api-key", "sk-canary-beta");
        let other = ("x-api-key", "sk-canary-other");
        let bearer = ("authorization", "Bearer sk-canary-beta");
        let team = |record: Option<Record>| record.unwrap().team_id;

        // By the upstream, whatever key is shown.
        let (_, row) = asked(&field, CHAT, &[bearer]).await;
        let of_bearer = row.as_ref().unwrap().key_id.clone().unwrap();
        assert_eq!(team(row).as_deref(), Some("alpha"));
        // By the key.
        let (_, row) = asked(&field, MESSAGES, &[beta]).await;
        let of_beta = row.as_ref().unwrap().key_id.clone().unwrap();
        assert_eq!(team(row).as_deref(), Some("beta"));
        // By nothing.
        let (_, row) = asked(&field, MESSAGES, &[other]).await;
        let of_other = row.as_ref().unwrap().key_id.clone().unwrap();
        assert_eq!(team(row), None);
        let (_, row) = asked(&field, MESSAGES, &[]).await;
        assert_eq!(row.map(|row| (row.team_id, row.key_id)), Some((None, None)));
        assert_eq!(of_bearer, of_beta);
        assert_ne!(of_beta, of_other);
        assert!(of_beta.starts_with("k_") && !of_beta.contains("canary"));

        // By the header, where that is allowed.
        let says = |name| ("x-endstop-team", name);
        let (response, row) = asked(&field, MESSAGES, &[other, says("gamma.1")]).await;
        if team_header {
            assert_eq!(team(row).as_deref(), Some("gamma.1"));
            let (_, row) = asked(&field, MESSAGES, &[beta, says("gamma")]).await;
            assert_eq!(team(row).as_deref(), Some("beta"), "what is known counts");
            for wrong in ["", "two words", "a'; DROP TABLE x--", &"x".repeat(65)] {
                let (response, _) = asked(&field, MESSAGES, &[other, says(wrong)]).await;
                assert_eq!(response.status, 400, "{wrong}: {}", response.text());
                assert!(response.text().contains("x-endstop-team"));
            }
        } else {
            assert_eq!((response.status, row), (403, None));
            assert!(response.text().contains("endstop_team_header"));
        }
        let shown = field.sim.ledger().iter().any(|sent| {
            sent.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("x-endstop-team"))
        });
        assert!(!shown, "the header is the gateway's");
        field.finish().await;
    }
    // The same secret, and so the same ids, after a restart; the file is its owner's.
    use std::os::unix::fs::PermissionsExt as _;
    let secret = fs::metadata(temp.path().join("data/key.secret")).unwrap();
    assert_eq!(secret.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn two_teams_with_one_key_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let key = temp.path().join("key");
    fs::write(&key, "sk-canary-beta").unwrap();
    let mut config = crate::ledger::config("http://127.0.0.1:1");
    keep(&mut config, temp.path());
    for name in ["one", "two"] {
        let team = TeamConfig { key_files: vec![key.clone()], ..TeamConfig::default() };
        config.teams.insert(name.into(), team);
    }
    let error = Gateway::bind(config).await.unwrap_err().to_string();
    assert!(error.contains("`one`") && !error.contains("canary"), "{error}");
}

/// All bytes below a directory, with the names of their files.
pub(crate) fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    all
}

#[tokio::test]
async fn no_key_no_prompt_and_no_answer_is_on_the_disk() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path(), |config| config.record.team_header = true).await;
    let word = "data: {\"choices\":[{\"delta\":{\"content\":\"canary-answer\"},\"finish_reason\":\"stop\"}]}\n\n";
    let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"canary-tool\",\"arguments\":\"{\\\"canary-argument\\\":1}\"}}]}}]}\n\n";
    let error = "data: {\"error\":{\"message\":\"unkept-message\",\"type\":\"server_error\"}}\n\n";
    let done = "data: [DONE]\n\n";
    for (key, pieces) in
        [("well", vec![word, done]), ("call", vec![call, done]), ("error", vec![word, error])]
    {
        let head = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let body = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
        let reply = Reply { status: 200, headers: head, body, sized: false, end: ReplyEnd::Whole };
        field.sim.replay(key, reply);
        for mode in [Mode::Guard, Mode::Observe] {
            let ask = Ask::new("openai-chat", "complete", mode).replay(key, key == "well");
            let body = ask.body.replace("[]", r#"[{"role":"user","content":"canary-prompt"}]"#);
            let exchange = field.ask(Ask { body, ..ask }).await;
            let stored = row(&field, exchange.response.id());
            let text = serde_json::to_string(&stored).unwrap();
            assert!(!text.contains("canary") && !text.contains("unkept"), "{text}");
        }
    }
    let request_shape = ["complete", "tool-call", "status=401", "html-200", "error-late"];
    for exchange in field.ask_all(request_shape.iter().flat_map(|name| every(name)).collect()).await
    {
        row(&field, exchange.response.id());
    }
    // While it runs, with the log of the database and the spool as they are, and after.
    let look = || {
        let files = files(temp.path());
        let names: Vec<&str> = files.iter().map(|(name, _)| &**name).collect();
        assert!(names.iter().any(|name| name.ends_with("endings.db")), "{names:?}");
        assert!(names.iter().any(|name| name.contains("/spool/")), "{names:?}");
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes > 100_000, "{bytes}");
        for (name, bytes) in &files {
            let has = |text: &str| memchr::memmem::find(bytes, text.as_bytes()).is_some();
            assert!(!has("canary"), "{name} has a key, a prompt or an answer");
            assert!(!has("unkept"), "{name} has the text of an error");
        }
    };
    look();
    field.finish().await;
    look();
}

/// OpenAI's stream of this body, guarded or not.
async fn stream(field: &Field, mode: &str, body: &str) -> (Response, Record, Vec<u8>, Vec<u8>) {
    let tag = field.tag();
    let headers = [("x-sim-scenario", "complete"), ("x-sim-tag", &tag), ("x-endstop-mode", mode)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    field.admit(1);
    let response = client::ask(field.address, client::request(CHAT, &headers, body)).await;
    assert_eq!((response.status, response.end), (200, End::Clean));
    field.record(response.id()).await;
    let sent = field.sent(&tag).await;
    let record = row(field, response.id()).record;
    assert_eq!((&*record.reason, record.finish_reason.as_deref()), ("complete", Some("stop")));
    (response, record, sent.request, sent.body)
}

#[tokio::test]
async fn tokens_are_asked_for_only_where_that_is_wanted() {
    const BARE: &str = r#"{"model":"m","stream":true,"messages":[]}"#;
    const OWN: &str =
        r#"{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}"#;
    let has_chunk = |bytes: &[u8]| memchr::memmem::find(bytes, br#""choices":[]"#).is_some();
    for (everywhere, here) in
        [(false, None), (true, None), (false, Some(true)), (true, Some(false))]
    {
        let temp = tempfile::tempdir().unwrap();
        let field = field(temp.path(), |config| {
            config.record.ask_usage = everywhere;
            config.upstreams.get_mut("openai").unwrap().ask_usage = here;
        })
        .await;
        let request_shape = here.unwrap_or(everywhere);
        let (response, record, request, body) = stream(&field, "guard", BARE).await;
        if request_shape {
            let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
            assert_eq!(request["stream_options"]["include_usage"], true);
            assert!(has_chunk(&body) && !has_chunk(&response.body), "{}", response.text());
            assert!(response.text().ends_with("data: [DONE]\n\n"));
            assert!(record.tokens_out.unwrap() > 0);
        } else {
            assert_eq!(request, BARE.as_bytes());
            assert!(response.body == body);
            assert_eq!((record.tokens_in, record.tokens_out), (None, None));
        }
        // Who asks for them gets them, and what is only observed is not touched.
        let (response, record, request, body) = stream(&field, "guard", OWN).await;
        assert!(request == OWN.as_bytes() && response.body == body && has_chunk(&body));
        assert!(record.tokens_out.unwrap() > 0);
        let (response, record, request, body) = stream(&field, "observe", BARE).await;
        assert!(request == BARE.as_bytes() && response.body == body);
        assert_eq!(record.tokens_out, None);
        field.finish().await;
    }
}

#[tokio::test]
async fn a_second_gateway_may_not_write_to_the_same_spool() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path(), |_| ()).await;
    let mut config = crate::ledger::config("http://127.0.0.1:1");
    keep(&mut config, temp.path());
    let error = Gateway::bind(config).await.unwrap_err().to_string();
    assert!(error.contains("spool"), "{error}");
    let exchange = field.ask(Ask::new("openai-chat", "complete", Mode::Guard)).await;
    assert_eq!(exchange.record.ending.reason, Reason::Complete);
    row(&field, exchange.response.id());
    field.finish().await;
}
