//! `decide` and `explain`, as their users meet them.

use serde_json::{Value, json};

use crate::{Folder, endstop, fails, stdout};

const CUT_OFF: &str = r#"{"id":"r1","model":"gpt-4.1","choices":[{"index":0,"message":{"role":"assistant","content":"Once upon a time there was a machine that stopped in the middle of"},"finish_reason":"length"}],"usage":{"prompt_tokens":9,"completion_tokens":100}}"#;
const CUT_CALL: &str = r#"{"model":"gpt-4.1","choices":[{"index":0,"message":{"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"save","arguments":"{\"path\":\"/t"}}]},"finish_reason":"length"}]}"#;
const REQUEST: &str = r#"{"model":"gpt-4.1","max_tokens":100,"messages":[{"role":"user","content":"Tell."}],"tools":[{"type":"function","function":{"name":"save"}}]}"#;

#[test]
fn a_cut_off_answer_is_continued() {
    let output = endstop(&["decide", "--provider", "openai", "--cap", "100"], CUT_OFF.as_bytes());
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    for says in [
        "continue: the answer stopped at the output limit; continue it (attempt 1 of 3)",
        "because    output_limit: the provider said `length`",
        "suggested  increase_budget",
        "next cap   100 tokens",
        "policy     default",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
}

fn decided(arguments: &[&str], body: &str) -> Value {
    let all = [&["decide", "--provider", "openai", "--json"], arguments].concat();
    let output = endstop(&all, body.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn limits_and_policies_are_heard() {
    let limit = |arguments: &[&str]| {
        let decision = decided(arguments, CUT_OFF);
        (decision["action"].clone(), decision["metadata"]["limit"].clone())
    };
    assert_eq!(limit(&[]), (json!("continue"), Value::Null));
    assert_eq!(limit(&["--attempts", "2"]).0, "continue");
    assert_eq!(limit(&["--attempts", "3"]), (json!("stop"), json!("attempts")));
    assert_eq!(
        limit(&["--attempts", "1", "--policy", "careful"]),
        (json!("stop"), json!("attempts"))
    );
    let tokens = limit(&["--cap", "100", "--tokens", "300"]);
    assert_eq!(tokens, (json!("stop"), json!("completion_tokens")));
    assert_eq!(limit(&["--chars", "120000"]), (json!("stop"), json!("output_chars")));
    assert_eq!(limit(&["--elapsed-ms", "1800000"]), (json!("stop"), json!("wall_time")));
    let raised =
        decided(&["--cap", "100", "--model-max", "9000", "--policy", "persistent"], CUT_OFF);
    assert_eq!(
        (&raised["action"], &raised["metadata"]["next_cap"]),
        (&json!("raise_budget"), &json!(200))
    );
    let folder = Folder::new("decide-policy");
    let file = folder.write("p.toml", "name = \"ours\"\n[agent]\ncontinuation_max_attempts = 0\n");
    let ours = decided(&["--policy", &file], CUT_OFF);
    assert_eq!((&ours["policy"], &ours["action"]), (&json!("ours"), &json!("stop")));
}

#[test]
fn the_next_request_is_shown() {
    let folder = Folder::new("decide-request");
    let file = folder.write("request.json", REQUEST);
    let next = decided(&["--request", &file], CUT_OFF);
    let messages = next["next"]["request"]["messages"].as_array().unwrap();
    assert!(messages.len() > 1, "{next}");
    assert_eq!(next["next"]["request"]["max_tokens"], 100, "{next}");
    let repair = decided(&["--request", &file], CUT_CALL);
    assert_eq!(repair["action"], "repair_tool_call");
    assert!(repair["next"]["request"]["tool_choice"].to_string().contains("save"), "{repair}");
    let output =
        endstop(&["decide", "--provider", "openai", "--request", &file], CUT_OFF.as_bytes());
    assert!(stdout(&output).contains("\"messages\": ["), "{output:?}");
    let failed = r#"{"error":{"message":"busy","type":"server_error"}}"#;
    let retry = decided(&["--request", &file, "--status", "503"], failed);
    assert_eq!(retry["action"], "retry");
    assert_eq!(retry["next"]["request"], serde_json::from_str::<Value>(REQUEST).unwrap());
}

#[test]
fn explain_tells_everything() {
    let output = endstop(&["explain", "--provider", "openai"], CUT_CALL.as_bytes());
    let text = stdout(&output);
    for says in [
        "output limit (high confidence)",
        "do         repair_tool_call: the output limit cut a tool call, which is never run",
        "left       3 attempts, 1 repairs",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let output = endstop(&["explain", "--provider", "openai", "--json"], CUT_CALL.as_bytes());
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["decision"]["suggested"], "retry");
    assert_eq!(report["signal"]["reason"], "token_limit_reached");
    assert_eq!(report["ending"]["shown"], json!(["tool_calls", "unfinished_tool_call"]));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let body = CUT_OFF.as_bytes();
    fails(&endstop(&["decide", "--policy", "bold"], body), 1, "careful, default, persistent");
    let folder = Folder::new("decide-wrong");
    let file = folder.write("p.toml", "[agent]\nattempts = 3\n");
    fails(&endstop(&["decide", "--policy", &file], body), 1, "p.toml:2: `agent.attempts`");
    let file = folder.write("r.json", "{");
    fails(&endstop(&["explain", "--request", &file], body), 1, "is no JSON");
}
