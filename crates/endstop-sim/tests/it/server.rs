//! Tests of the server: choice of scenarios, ledger, chunking.

use std::time::{Duration, Instant};

use endstop_sim::{Chunks, LedgerEntry, Options, Reply, ReplyEnd, ResponseEnd, Sim};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{How, LONG, Response, eventually, get, post, post_stalled, read, request};

const CHAT: &str = "/v1/chat/completions";

async fn start() -> Sim {
    Sim::start(Options::default()).await.unwrap()
}

async fn chat(sim: &Sim, body: &Value) -> Value {
    let response = post(sim.addr(), CHAT, &[], &body.to_string()).await;
    serde_json::from_slice(&response.body).unwrap()
}

fn word(body: &Value) -> &str {
    body.pointer("/choices/0/finish_reason").and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test]
async fn the_model_chooses_the_scenario() {
    let sim = start().await;
    for model in
        ["length", "openai/length", "gpt-sim:length", "my-sim-length-v1:0", "models/length"]
    {
        let body = chat(&sim, &json!({ "model": model, "messages": [] })).await;
        assert_eq!(word(&body), "length", "{model}");
    }
    let body = chat(&sim, &json!({ "model": "word=frob", "messages": [] })).await;
    assert_eq!(word(&body), "frob");
    let body = chat(&sim, &json!({ "model": "gpt-5", "messages": [] })).await;
    assert_eq!(word(&body), "stop");
}

#[tokio::test]
async fn an_unknown_scenario_is_told_with_names_near_it() {
    let sim = start().await;
    let headers = [("x-sim-scenario", "lenght")];
    let response = post(sim.addr(), "/v1/messages", &headers, r#"{"messages":[]}"#).await;
    assert_eq!(response.status, 404);
    let body = String::from_utf8(response.body).unwrap();
    assert!(body.contains("not_found_error") && body.contains("did you mean `length`?"), "{body}");
}

#[tokio::test]
async fn a_typing_error_after_the_models_name_is_told() {
    let sim = start().await;
    for (model, says) in [
        ("gpt-5:cut-befor-word", "did you mean `cut-before-word`?"),
        ("gpt-5:nonsense", "unknown scenario `nonsense`"),
        ("gpt-5:length,complet", "did you mean `complete`?"),
        ("ft:gpt-4o:acme:lenght", "did you mean `length`?"),
    ] {
        let body = json!({ "model": model, "messages": [] }).to_string();
        let response = post(sim.addr(), CHAT, &[], &body).await;
        let text = String::from_utf8(response.body).unwrap();
        assert!(response.status == 404 && text.contains(says), "{model}: {text}");
    }
    // Tags of real models.
    for model in [
        "llama3:latest",
        "gpt-oss:120b-cloud",
        "anthropic.claude-v2:1",
        "qwen/qwen3:free",
        "meta-llama/llama-4:groq",
        "ft:gpt-4o-mini:acme::A1b2",
    ] {
        let body = chat(&sim, &json!({ "model": model, "messages": [] })).await;
        assert_eq!(word(&body), "stop", "{model}");
    }
}

#[tokio::test]
async fn a_script_gives_the_nth_request_the_nth_scenario() {
    let names = endstop_sim::read_script("# two of them\nlength\ncontent-filter\n").unwrap();
    assert_eq!(
        endstop_sim::read_script("scenarios = ['length', 'content-filter']").unwrap(),
        names
    );
    assert!(endstop_sim::read_script("lenght").unwrap_err().contains("did you mean `length`?"));
    let sim = Sim::start(Options { scenarios: names, ..Options::default() }).await.unwrap();
    for want in ["length", "content_filter", "content_filter"] {
        assert_eq!(word(&chat(&sim, &json!({ "messages": [] })).await), want);
    }
}

#[tokio::test]
async fn after_the_result_of_a_tool_the_answer_is_short_and_complete() {
    let sim = start().await;
    let messages = json!([{ "role": "tool", "tool_call_id": "x", "content": "ok" }]);
    let body = chat(&sim, &json!({ "model": "tool-call", "messages": messages })).await;
    assert_eq!(word(&body), "stop");
    let body = chat(&sim, &json!({ "model": "tool-call!", "messages": messages })).await;
    assert_eq!(word(&body), "tool_calls");
    for (path, body) in [
        (
            "/v1/messages",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "tool_result" }] }] }),
        ),
        ("/v1/responses", json!({ "input": [{ "type": "function_call_output", "output": "ok" }] })),
        (
            "/v1beta/models/x:generateContent",
            json!({ "contents": [{ "parts": [{ "functionResponse": {} }] }] }),
        ),
        ("/model/x/converse", json!({ "messages": [{ "content": [{ "toolResult": {} }] }] })),
        ("/v2/chat", json!({ "messages": [{ "role": "tool", "content": "ok" }] })),
        (
            "/api/chat",
            json!({ "stream": false, "messages": [{ "role": "tool", "content": "ok" }] }),
        ),
    ] {
        let headers = [("x-sim-scenario", "tool-call")];
        let response = post(sim.addr(), path, &headers, &body.to_string()).await;
        let text = String::from_utf8(response.body).unwrap();
        assert!(text.contains("Done: the tool has run"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_tool_is_called_by_its_own_name_with_arguments_that_fit() {
    let sim = start().await;
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "mode": { "enum": ["append", "replace"] },
            "times": { "type": "integer" },
            "sure": { "type": ["boolean", "null"] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "deep": { "type": "object", "properties": { "content": { "type": "string" } } },
        },
    });
    let tools =
        json!([{ "type": "function", "function": { "name": "note", "parameters": parameters } }]);
    let body = chat(&sim, &json!({ "model": "tool-call", "messages": [], "tools": tools })).await;
    let call = body.pointer("/choices/0/message/tool_calls/0/function").unwrap();
    assert_eq!(call["name"], "note");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["path"], "note.txt");
    assert_eq!(arguments["mode"], "append");
    assert_eq!(arguments["times"], 42);
    assert_eq!(arguments["sure"], true);
    assert_eq!(arguments["tags"], json!(["alpha beta gamma delta"]));
    assert!(arguments["deep"]["content"].is_string());
}

#[tokio::test]
async fn stop_sequences_stop_and_a_broken_off_answer_goes_on() {
    let sim = start().await;
    let body = chat(&sim, &json!({ "messages": [], "stop": ["switch"] })).await;
    let text = body.pointer("/choices/0/message/content").unwrap().as_str().unwrap();
    assert_eq!(text.trim_end(), "An endstop is a small");
    let before = json!([{ "role": "assistant", "content": text }]);
    let body = chat(&sim, &json!({ "messages": before, "max_tokens": 3 })).await;
    assert_eq!(body.pointer("/choices/0/message/content").unwrap(), " switch at the");
}

#[tokio::test]
async fn the_ledger_keeps_what_left() {
    let sim = start().await;
    let headers = [("x-sim-tag", "one"), ("authorization", "Bearer sk-secret")];
    let body = r#"{"model":"cut-before-word","stream":true,"messages":[]}"#;
    let response = post(sim.addr(), CHAT, &headers, body).await;
    let entry = over(&sim, "one").await;
    assert_eq!(entry.body, response.body);
    assert_eq!(entry.written, response.body.len() as u64);
    assert_eq!((entry.wire, &*entry.scenario), ("openai-chat", "cut-before-word"));
    assert!(entry.streamed && entry.ended == ResponseEnd::Itself && entry.peer_closed_at.is_none());
    assert_eq!(entry.request, body.as_bytes());
    assert_eq!(entry.header("Authorization"), Some("Bearer sk-secret"));
    let shown = String::from_utf8(get(sim.addr(), "/sim/ledger").await.body).unwrap();
    assert!(shown.contains("cut-before-word") && !shown.contains("secret"), "{shown}");
}

/// Waits until the response with this tag ends, and returns its entry.
async fn over(sim: &Sim, tag: &str) -> LedgerEntry {
    let ended = || sim.tagged(tag).filter(|entry| entry.ended != ResponseEnd::Open);
    eventually(&format!("the response {tag} ends"), ended).await
}

#[tokio::test]
async fn a_peer_that_leaves_is_seen() {
    let sim = start().await;
    // Each of these responses would go on for minutes or for ever.
    for scenario in
        ["stall", "no-headers", "stall-in-tool-call", "drip", "slow=10000", "no-newline=900000000"]
    {
        for reset in [false, true] {
            leave(&sim, scenario, &format!("{scenario} {reset}"), reset).await;
        }
    }
    let closed = || (sim.open_connections() == 0).then_some(());
    eventually("every connection is closed", closed).await;
}

/// Sends a request, closes the connection and waits until the server noticed.
async fn leave(sim: &Sim, scenario: &str, tag: &str, reset: bool) {
    let headers = [("x-sim-scenario", scenario), ("x-sim-tag", tag)];
    let text = request("POST", CHAT, &headers, r#"{"stream":true,"messages":[]}"#);
    let mut stream = TcpStream::connect(sim.addr()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    eventually("the request arrives", || sim.tagged(tag)).await;
    assert!(sim.open_connections() >= 1, "{tag}");
    if reset {
        stream.set_zero_linger().unwrap();
    }
    let left = Instant::now();
    drop(stream);
    let entry = over(sim, tag).await;
    assert_eq!(entry.ended, ResponseEnd::PeerClosed, "{tag}");
    assert!(entry.peer_closed_at.unwrap() >= left, "{tag}");
}

#[tokio::test]
async fn chunks_are_cut_as_asked_and_hold_the_same_bytes() {
    let sim = start().await;
    let body = r#"{"stream":true,"messages":[],"max_tokens":9}"#;
    let mut bodies = Vec::new();
    for chunks in Chunks::ALL {
        let headers = [("x-sim-chunks", chunks.name()), ("x-sim-seed", "7")];
        let response = post(sim.addr(), CHAT, &headers, body).await;
        match chunks {
            Chunks::Event => assert_eq!(response.chunks.len(), 12),
            Chunks::Joined => assert_eq!(response.chunks.len(), 1),
            Chunks::Byte => assert_eq!(response.chunks.len(), response.body.len()),
            Chunks::Random => assert!(response.chunks.len() > 20),
        }
        let text = String::from_utf8(response.body).unwrap();
        // Removes the request number, which differs.
        bodies.push(
            text.split("sim0000000")
                .map(|part| part.get(1..).unwrap().to_owned())
                .collect::<Vec<_>>(),
        );
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn a_pace_is_kept() {
    let sim = start().await;
    let body = r#"{"stream":true,"messages":[],"max_tokens":5}"#;
    let began = Instant::now();
    post(sim.addr(), CHAT, &[("x-sim-pace", "10")], body).await;
    assert!(began.elapsed() >= Duration::from_millis(70));
}

#[tokio::test]
async fn connections_are_kept_and_requests_may_come_chunked() {
    let sim = start().await;
    let mut stream = TcpStream::connect(sim.addr()).await.unwrap();
    for _ in 0..2 {
        let text = request("POST", CHAT, &[], r#"{"messages":[]}"#);
        stream.write_all(text.as_bytes()).await.unwrap();
        let response = read(&mut stream).await;
        assert_eq!((response.status, response.close), (200, How::Whole));
    }
    let body = r#"{"model":"length","messages":[]}"#;
    let text = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: sim\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let response = read(&mut stream).await;
    assert_eq!(word(&serde_json::from_slice(&response.body).unwrap()), "length");
}

#[tokio::test]
async fn what_is_no_request_is_refused_kindly() {
    let sim = start().await;
    let mut stream = TcpStream::connect(sim.addr()).await.unwrap();
    stream.write_all(b"hello there\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(
        text.starts_with("HTTP/1.1 400") && text.contains("invalid HTTP/1.1 request"),
        "{text}"
    );
    let response = post(sim.addr(), CHAT, &[], "not json").await;
    assert!(
        response.status == 400
            && String::from_utf8_lossy(&response.body).contains("expected a JSON object")
    );
    let response = get(sim.addr(), "/nowhere").await;
    assert!(
        response.status == 404 && String::from_utf8_lossy(&response.body).contains("/openai/v1/")
    );
}

#[tokio::test]
async fn lists_are_served() {
    let sim = start().await;
    for path in [
        "/v1/models",
        "/openai/v1/models",
        "/anthropic/v1/models",
        "/v1beta/models",
        "/api/tags",
        "/cohere/v1/models",
    ] {
        let response = get(sim.addr(), path).await;
        assert!(String::from_utf8_lossy(&response.body).contains("cut-in-tool-call"), "{path}");
    }
    let response = get(sim.addr(), "/sim/scenarios").await;
    let all: Value = serde_json::from_slice(&response.body).unwrap();
    assert!(all["scenarios"].as_array().unwrap().len() > 60);
}

#[tokio::test]
async fn a_registered_reply_is_replayed() {
    let sim = start().await;
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    let body = vec![b"data: one\n\n".to_vec(), b"data: tw".to_vec()];
    for (end, how) in [
        (ReplyEnd::Whole, How::Whole),
        (ReplyEnd::Fin, How::Short),
        (ReplyEnd::Reset, How::Reset),
        (ReplyEnd::Stall, How::Silent),
    ] {
        let reply =
            Reply { status: 200, headers: headers.clone(), body: body.clone(), sized: false, end };
        sim.replay("mine", reply);
        let headers = [("x-sim-replay", "mine")];
        let tag = format!("{end:?}");
        let response = post_stalled(&sim, "/any/path", &tag, &headers, "").await;
        assert_eq!((response.close, &*response.body), (how, &*body.concat()), "{end:?}");
    }
}

#[tokio::test]
async fn early_hints_come_first_and_characters_are_cut() {
    let sim = start().await;
    let body = r#"{"model":"early-hints","stream":true,"messages":[]}"#;
    let response: Response = post(sim.addr(), CHAT, &[], body).await;
    assert_eq!((response.interim, response.status), (103, 200));
    let body = r#"{"model":"utf8-cut","stream":true,"messages":[]}"#;
    let response = post(sim.addr(), CHAT, &[], body).await;
    let mut rest = &response.body[..];
    let cut = response.chunks.iter().filter(|size| {
        let (chunk, after) = rest.split_at(**size);
        rest = after;
        std::str::from_utf8(chunk).is_err()
    });
    assert!(cut.count() > 20);
    assert!(String::from_utf8(response.body.clone()).unwrap().contains("日本語"));
}

#[tokio::test]
async fn stopping_closes_every_connection() {
    let sim = start().await;
    let mut stream = TcpStream::connect(sim.addr()).await.unwrap();
    let text = request("POST", CHAT, &[("x-sim-scenario", "no-headers")], r#"{"messages":[]}"#);
    stream.write_all(text.as_bytes()).await.unwrap();
    eventually("the request arrives", || sim.ledger().pop()).await;
    sim.stop().await;
    let mut rest = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok());
}

fn function(name: &str, parameters: &Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
}

fn shell() -> Value {
    let command = json!({ "type": "string" });
    json!({ "type": "object", "properties": { "command": command }, "required": ["command"] })
}

#[tokio::test]
async fn the_wanted_tool_is_called_with_the_given_command() {
    let tools = vec!["Bash".to_owned(), "ran".to_owned()];
    let command = Some("echo ran >> ran.txt".to_owned());
    let sim = Sim::start(Options { tools, command, ..Options::default() }).await.unwrap();
    let bare = json!({ "type": "object", "properties": {} });
    let tools =
        json!([function("Read", &shell()), function("Bash", &shell()), function("ran", &bare)]);
    let body = chat(&sim, &json!({ "model": "tool-call", "messages": [], "tools": tools })).await;
    let call = body.pointer("/choices/0/message/tool_calls/0/function").unwrap();
    assert_eq!(call["name"], "Bash");
    assert_eq!(call["arguments"], r#"{"command":"echo ran >> ran.txt"}"#);
    let asked = json!({ "model": "tool-call-no-args", "messages": [], "tools": tools });
    let body = chat(&sim, &asked).await;
    let call = body.pointer("/choices/0/message/tool_calls/0/function").unwrap();
    assert_eq!((&call["name"], &call["arguments"]), (&json!("ran"), &json!("")));
}

#[tokio::test]
async fn a_request_without_a_wanted_tool_gets_a_short_complete_answer() {
    let tools = vec!["Bash".to_owned()];
    let sim = Sim::start(Options { tools, ..Options::default() }).await.unwrap();
    let other = json!([function("Read", &shell())]);
    for asked in [
        json!({ "model": "cut-after-call", "messages": [] }),
        json!({ "model": "cut-after-call", "messages": [], "tools": other }),
    ] {
        assert_eq!(word(&chat(&sim, &asked).await), "stop");
    }
}

#[tokio::test]
async fn a_list_gives_the_nth_request_of_a_tag_the_nth_scenario() {
    let sim = start().await;
    let result = json!([{ "role": "tool", "tool_call_id": "x", "content": "ok" }]);
    for (tag, messages, want) in [
        ("one", json!([]), "length"),
        ("two", json!([]), "length"),
        ("one", result, "stop"),
        ("one", json!([]), "content_filter"),
        ("one", json!([]), "content_filter"),
    ] {
        let body = json!({ "model": "sim-length,content-filter", "messages": messages });
        let headers = [("x-sim-tag", tag)];
        let response = post(sim.addr(), CHAT, &headers, &body.to_string()).await;
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(word(&body), want, "{tag}");
    }
}

#[tokio::test]
async fn a_websocket_is_refused_in_a_way_that_clients_understand() {
    let sim = start().await;
    let mut stream = TcpStream::connect(sim.addr()).await.unwrap();
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket")];
    stream.write_all(request("GET", "/v1/responses", &headers, "").as_bytes()).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 426);
}

#[tokio::test]
async fn a_failure_has_the_parts_that_its_value_names() {
    let sim = start().await;
    for (path, parts, want, close) in [
        (CHAT, "frame", vec!["endstop_cut"], How::Whole),
        (CHAT, "refused-mark", vec!["endstop_tool_call_refused", "[DONE]"], How::Whole),
        ("/v1/messages", "frame-abort", vec!["event: error"], How::Short),
        ("/v1/messages", "abort", vec![], How::Short),
        ("/v1/responses", "frame-failed", vec!["event: error", "response.failed"], How::Whole),
        ("/v1/responses", "incomplete", vec!["response.incomplete", r#""output":[]"#], How::Whole),
    ] {
        let scenario = format!("fails-in-call={parts}");
        let headers = [("x-sim-scenario", scenario.as_str())];
        let body = r#"{"stream":true,"messages":[]}"#;
        let response = post(sim.addr(), path, &headers, body).await;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.close, close, "{path} {parts}");
        let mut rest = text.as_str();
        for part in want {
            rest = rest.split_once(part).unwrap_or_else(|| panic!("{path} {parts}: {text}")).1;
        }
    }
}

#[tokio::test]
async fn a_tool_in_a_namespace_is_called_with_it() {
    let tools = vec!["ran".to_owned()];
    let sim = Sim::start(Options { tools, ..Options::default() }).await.unwrap();
    let ran = json!({ "type": "function", "name": "ran", "parameters": { "type": "object" } });
    let tools = json!([{ "type": "namespace", "name": "mcp__mark", "tools": [ran] }]);
    let body = json!({ "model": "tool-call-no-args", "input": "Hi", "tools": tools });
    let response = post(sim.addr(), "/v1/responses", &[], &body.to_string()).await;
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    let call = body.pointer("/output/0").unwrap();
    assert_eq!((&call["name"], &call["namespace"]), (&json!("ran"), &json!("mcp__mark")));
}

#[tokio::test]
async fn a_model_that_never_streams_says_so() {
    let sim = start().await;
    let path = "/bedrock/model/ai21.j2-ultra-v1/invoke-with-response-stream";
    let response = post(sim.addr(), path, &[], r#"{"prompt":"Hi"}"#).await;
    let body = String::from_utf8(response.body).unwrap();
    assert!(response.status == 400 && body.contains("unsupported for streaming"), "{body}");
    let path = "/ai21/studio/v1/length/complete";
    let response = post(sim.addr(), path, &[], r#"{"prompt":"Hi","stream":true}"#).await;
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(body.pointer("/completions/0/finishReason/reason").unwrap(), "length");
}

#[tokio::test]
async fn a_prediction_names_the_url_of_its_stream() {
    let sim = start().await;
    for (scenario, end) in [("complete", true), ("cut-before-word", false)] {
        let path = format!("/replicate/v1/models/meta/{scenario}/predictions");
        let asked = r#"{"stream":true,"input":{"prompt":"Hi"}}"#;
        let response = post(sim.addr(), &path, &[], asked).await;
        let first: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((&first["status"], &first["output"]), (&json!("starting"), &Value::Null));
        let url = |name: &str| {
            let url = first["urls"][name].as_str().unwrap();
            url.strip_prefix("http://sim").unwrap().to_owned()
        };
        let stream = get(sim.addr(), &url("stream")).await;
        assert_eq!(stream.header("content-type"), "text/event-stream; charset=utf-8");
        assert_eq!(stream.body.ends_with(b"event: done\ndata: {}\n\n"), end, "{scenario}");
        let over: Value = serde_json::from_slice(&get(sim.addr(), &url("get")).await.body).unwrap();
        assert_eq!((&over["status"], &over["id"]), (&json!("succeeded"), &first["id"]));
        assert!(sim.ledger().iter().all(|entry| entry.wire == "replicate"));
    }
}

#[tokio::test]
async fn a_run_with_tool_outputs_is_completed() {
    let sim = start().await;
    let run = "/v1/threads/thread_1/runs";
    let asked = r#"{"assistant_id":"tool-call"}"#;
    let response = post(sim.addr(), run, &[], asked).await;
    let first: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(
        (&first["status"], &first["usage"]["prompt_tokens"]),
        (&json!("requires_action"), &json!(1))
    );
    let path = format!("{run}/{}/submit_tool_outputs", first["id"].as_str().unwrap());
    let asked = r#"{"tool_outputs":[{"tool_call_id":"x","output":"ok"}]}"#;
    let headers = [("x-sim-scenario", "tool-call")];
    let response = post(sim.addr(), &path, &headers, asked).await;
    let over: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((&over["status"], &over["required_action"]), (&json!("completed"), &Value::Null));
}
