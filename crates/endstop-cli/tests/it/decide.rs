//! `endstop decide` and `endstop explain`.

use endstop_turn::policy::Decision;
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
        "next limit 100 tokens",
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
    // Of two calls, the one that is cut off is asked for.
    let call = |name: &str, arguments: &str| json!({"id": name, "type": "function", "function": {"name": name, "arguments": arguments}});
    let calls = [call("read", r#"{"a":1}"#), call("save", r#"{"a":"#)];
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "length"}]});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let both = json!({"model": "gpt-4.1", "messages": [], "tools": [tool("read"), tool("save")]});
    let both = folder.write("both.json", both.to_string());
    let repair = decided(&["--request", &both], &body.to_string());
    assert_eq!(repair["next"]["request"]["tool_choice"]["function"]["name"], "save", "{repair}");
    let output =
        endstop(&["decide", "--provider", "openai", "--request", &file], CUT_OFF.as_bytes());
    assert!(stdout(&output).contains("\"messages\":["), "{output:?}");
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
        "what to do    repair tool call: the output limit cut off a tool call; the call is not run",
        "left          3 attempts, 1 repair, no known limit on tokens",
        "conversation  an unknown number of messages",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let output = endstop(&["explain", "--provider", "openai", "--json"], CUT_CALL.as_bytes());
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["decision"]["suggested_action"], "retry");
    assert_eq!(report["signal"]["reason"], "token_limit_reached");
    let shown = json!({"tool_calls": 1, "unfinished_tool_calls": 1});
    assert_eq!(report["ending"]["shown"], shown);
}

#[test]
fn a_decision_in_json_has_the_keys_that_were_asked_for_and_reads_back() {
    let json = decided(&["--cap", "100"], CUT_OFF);
    assert_eq!(json["should_continue"], true);
    assert_eq!(
        json["reason"],
        "the answer stopped at the output limit; continue it (attempt 1 of 3)"
    );
    assert_eq!(json["suggested_action"], "increase_budget");
    assert_eq!(
        (&json["action"], &json["cause"], &json["ending"]),
        (&json!("continue"), &json!("output_limit"), &json!("output_limit"))
    );
    let read: Decision = serde_json::from_value(json.clone()).unwrap();
    let again = serde_json::to_value(read).unwrap();
    for (key, value) in again.as_object().unwrap() {
        assert_eq!(&json[key], value, "{key}");
    }
    let calls = r#"{"choices":[{"index":0,"message":{"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let json = decided(&[], calls);
    assert_eq!((&json["action"], &json["suggested_action"]), (&json!("run_tools"), &Value::Null));
    let stop = decided(&["--attempts", "3"], CUT_OFF);
    let reason = stop["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "the answer stopped at the output limit; it is not continued, because no attempt to \
         continue is left (continuation_max_attempts)"
    );
}

#[test]
fn the_length_of_the_conversation_is_heeded() {
    let folder = Folder::new("decide-conversation");
    let policy = folder.write(
        "p.toml",
        "[agent]\nconversation_max_messages = 4\nconversation_max_tokens = 2000\n",
    );
    let turn = |number: usize| json!({"role": "user", "content": format!("{number}")});
    let request = |messages: usize| {
        let messages: Vec<Value> = (0..messages).map(turn).collect();
        folder.write("request.json", json!({"messages": messages}).to_string())
    };
    let of = |arguments: &[&str]| {
        let json = decided(&[&["--policy", &policy], arguments].concat(), CUT_OFF);
        let metadata = &json["metadata"];
        (
            json["action"].clone(),
            json["suggested_action"].clone(),
            metadata["limit"].clone(),
            metadata["conversation_messages"].clone(),
            metadata["conversation_tokens"].clone(),
        )
    };
    let goes_on = |messages: Option<u32>, tokens: u64| {
        let (messages, tokens) = (json!(messages), json!(tokens));
        (json!("continue"), json!("increase_budget"), Value::Null, messages, tokens)
    };
    let too_long = |limit: &str, messages: Option<u32>, tokens: u64| {
        let (messages, tokens) = (json!(messages), json!(tokens));
        (json!("compact"), json!("modify_prompt"), json!(limit), messages, tokens)
    };
    assert_eq!(of(&[]), goes_on(None, 109));
    assert_eq!(of(&["--request", &request(3)]), goes_on(Some(3), 109));
    assert_eq!(of(&["--request", &request(4)]), too_long("conversation_messages", Some(4), 109));
    assert_eq!(of(&["--messages", "3"]), goes_on(Some(3), 109));
    assert_eq!(of(&["--messages", "5"]), too_long("conversation_messages", Some(5), 109));
    // `--messages` has priority over the count from `--request`.
    assert_eq!(of(&["--messages", "1", "--request", &request(9)]), goes_on(Some(1), 109));
    let tokens = of(&["--conversation-tokens", "2000"]);
    assert_eq!(tokens, too_long("conversation_tokens", None, 2000));
    // Off by default.
    assert_eq!(decided(&["--messages", "100000"], CUT_OFF)["action"], "continue");
    let json = decided(&["--policy", &policy, "--messages", "9"], CUT_OFF);
    assert_eq!((&json["should_continue"], &json["policy"]), (&json!(false), &json!("p.toml")));
}

#[test]
fn hint_and_prices_are_configuration() {
    let folder = Folder::new("decide-words");
    let request = folder.write("request.json", REQUEST);
    let policy = folder.write(
        "p.toml",
        "[agent]\nturn_max_cost = 0.01\n\
         [wording]\nhint = \"Weiter, bitte.\"\nrepair = \"Noch einmal `{tool}`.\"\n\
         [prices]\n\"openai/gpt-4.1\" = { input = 10, output = 10 }\n",
    );
    let with = |arguments: &[&str], body| {
        decided(&[&["--policy", &policy, "--request", &request], arguments].concat(), body)
    };
    let next = with(&[], CUT_OFF)["next"]["request"]["messages"].to_string();
    assert!(next.contains("Weiter, bitte.") && !next.contains("truncated"), "{next}");
    let next = with(&[], CUT_CALL)["next"]["request"]["messages"].to_string();
    assert!(next.contains("Noch einmal `save`."), "{next}");
    // 109 tokens at 10 USD per million cost 0.00109 USD. Of the remaining 0.00891, the input costs
    // 0.00109, and the rest pays for 782 tokens.
    let first = with(&["--max-tokens", "5000"], CUT_OFF);
    assert_eq!(
        (&first["action"], &first["metadata"]["next_cap"]),
        (&json!("continue"), &json!(782))
    );
    let rich = with(&["--max-tokens", "5000", "--tokens", "0"], CUT_OFF);
    assert_eq!(rich["metadata"]["left"]["cost"], 0.00891);
    let poor = with(&["--cost", "0.008"], CUT_OFF);
    assert_eq!((&poor["action"], &poor["metadata"]["limit"]), (&json!("stop"), &json!("cost")));
    // A model without a price has no known cost.
    let other = CUT_OFF.replace("gpt-4.1", "gpt-x");
    assert_eq!(with(&["--cost", "0.008"], &other)["action"], "continue");
}

#[test]
fn a_raise_that_is_not_possible_is_told() {
    let text = ["--policy", "persistent", "--cap", "100"];
    let json = decided(&text, CUT_OFF);
    assert_eq!(json["action"], "continue");
    assert_eq!(json["metadata"]["instead_of"], "raise_budget");
    assert_eq!(
        json["reason"],
        "the answer stopped at the output limit; the limit is not raised, because the model's \
         maximum is not known; continue it (attempt 1 of 8)"
    );
    let all = [&["decide", "--provider", "openai"][..], &text].concat();
    let output = stdout(&endstop(&all, CUT_OFF.as_bytes()));
    assert!(output.contains("instead of raise budget"), "{output}");
}

/// Turn that paused during a search, with text, thinking, citations and the search.
const PAUSED: &str = r#"event: message_start
data: {"type":"message_start","message":{"type":"message","id":"msg_1","role":"assistant","model":"claude-sonnet-5","content":[],"stop_reason":null}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Look "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"it up."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":"","citations":null}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"As \u00fcber"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location","url":"u"}}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"x\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"pause_turn"},"usage":{"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

"#;

fn resumed(provider: &str, request: &str, body: &str) -> Value {
    let all =
        ["decide", "--provider", provider, "--json", "--request", request, "--max-tokens", "50"];
    let output = endstop(&all, body.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn a_paused_turn_goes_back_as_it_came() {
    let folder = Folder::new("decide-pause");
    let sent = json!({"model": "claude-sonnet-5", "max_tokens": 50, "tools": [{"type": "web_search"}],
        "messages": [{"role": "user", "content": "?"}]});
    let request = folder.write("request.json", sent.to_string());
    let content = json!([
        {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"},
        {"type": "text", "text": "As über",
            "citations": [{"type": "web_search_result_location", "url": "u"}]},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
            "input": {"query": "x"}},
    ]);
    let mut want = sent.clone();
    want["messages"] =
        json!([{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]);
    let streamed = resumed("anthropic", &request, PAUSED);
    assert_eq!((&streamed["action"], &streamed["ending"]), (&json!("resume"), &json!("paused")));
    assert_eq!(streamed["next"]["request"], want);
    assert_eq!(streamed["next"]["how"], json!({"way": "resend"}));
    let plain = json!({"type": "message", "id": "msg_1", "role": "assistant",
        "model": "claude-sonnet-5", "content": content, "stop_reason": "pause_turn"});
    assert_eq!(resumed("anthropic", &request, &plain.to_string())["next"]["request"], want);
    // Content with an unknown delta type cannot be sent back.
    let odd = PAUSED.replace("citations_delta", "odour_delta");
    let why = resumed("anthropic", &request, &odd)["next"]["impossible"].clone();
    assert_eq!(why, "the original content of the response is missing, so it cannot be sent back");
    // A compaction starts a new conversation.
    let summary = json!({"type": "message", "content": [{"type": "compaction", "content": "So far"}],
        "stop_reason": "compaction"});
    let why = resumed("anthropic", &request, &summary.to_string())["next"]["impossible"].clone();
    assert!(why.as_str().unwrap().contains("summarised the conversation"), "{why}");
}

#[test]
fn a_continuation_token_goes_into_the_next_request_and_nowhere_else() {
    let folder = Folder::new("decide-token");
    let sent = json!({"contents": [{"role": "user", "parts": [{"text": "?"}]}],
        "generationConfig": {"maxOutputTokens": 50}});
    let request = folder.write("request.json", sent.to_string());
    // The last token is used; earlier chunks may also have one.
    let chunk = |rest: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"role\":\"model\",\"parts\":[{{\"text\":\"Hi\"}}]}}{rest}}}]}}\n\n"
        )
    };
    let body = chunk(",\"continuationToken\":\"Zmlyc3Q\"")
        + &chunk(",\"finishReason\":\"CONTINUATION\",\"continuationToken\":\"c2Vjb25k\"");
    let json = resumed("google", &request, &body);
    let mut want = sent.clone();
    want["continuationToken"] = json!("c2Vjb25k");
    assert_eq!((&json["action"], &json["next"]["request"]), (&json!("resume"), &want));
    // The token is nowhere else in the output.
    let mut elsewhere = json.clone();
    elsewhere["next"]["request"] = Value::Null;
    assert!(!elsewhere.to_string().contains("c2Vjb25k"), "{elsewhere}");
    for command in [&["check", "--json"][..], &["check"], &["explain", "--json"], &["explain"]] {
        let all = [command, &["--provider", "google"]].concat();
        let output = stdout(&endstop(&all, body.as_bytes()));
        assert!(!output.contains("c2Vjb25k") && !output.contains("Zmlyc3Q"), "{output}");
    }
    // Without a token, the request cannot be built.
    let none = resumed("google", &request, &chunk(",\"finishReason\":\"CONTINUATION\""));
    assert_eq!(none["next"]["impossible"], "the provider returned no `continuationToken`");
}

/// A request that would go out without the limit that was decided is not built.
#[test]
fn a_limit_that_cannot_be_set_is_said() {
    let folder = Folder::new("decide-cap");
    let body = json!({"candidates": [{"content": {"parts": [{"text": "Once"}]},
        "finishReason": "MAX_TOKENS"}], "usageMetadata": {"candidatesTokenCount": 9}});
    let next = |config: Value| {
        let request = json!({"contents": [{"role": "user", "parts": [{"text": "?"}]}],
            "generationConfig": config});
        let file = folder.write("r.json", request.to_string());
        let arguments = ["decide", "--provider", "google", "--json", "--max-tokens", "9"];
        let arguments = [&arguments[..], &["--window", "99", "--request", &file]].concat();
        let output = endstop(&arguments, body.to_string().as_bytes());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let decided: Value = serde_json::from_str(&stdout(&output)).unwrap();
        decided["next"].clone()
    };
    assert!(next(json!({}))["request"]["generationConfig"]["maxOutputTokens"].is_u64());
    assert_eq!(
        next(json!(5))["impossible"],
        "the request's `generationConfig.maxOutputTokens` is missing or not of the expected type"
    );
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let body = CUT_OFF.as_bytes();
    let folder = Folder::new("decide-wrong");
    for command in ["decide", "explain"] {
        let told = |arguments: &[&str], says: &str| {
            let output = endstop(&[&[command], arguments].concat(), body);
            fails(&output, 1, says);
            assert!(output.stdout.is_empty(), "{output:?}");
        };
        told(
            &["--policy", "bold"],
            "unknown policy `bold`: expected careful, default, persistent or a TOML file",
        );
        let file = folder.write("p.toml", "[agent]\nattempts = 3\n");
        told(&["--policy", &file], "p.toml:2: `agent.attempts`");
        let file = folder.write("p.toml", "\nbased_on = \"bold\"\n");
        told(
            &["--policy", &file],
            "p.toml:2: `based_on`: unknown preset `bold`: expected careful, default or persistent",
        );
        let file = folder.write("p.toml", "[rules.safety]\naction = \"retry\"\n");
        told(
            &["--policy", &file],
            "p.toml:2: `rules.safety.action`: invalid action `retry` for safety: expected change_prompt, other_model or stop",
        );
        let file = folder.write("p.toml", "[prices]\nm = { input = -1, output = 1 }\n");
        told(&["--policy", &file], "p.toml:2: `prices.m`: expected an amount of money, 0 or more");
        let file = folder.write("p.toml", b"\xff\xfe");
        told(&["--policy", &file], "unknown policy");
        let file = folder.write("r.json", "{");
        told(&["--request", &file], "invalid JSON in request");
        let file = folder.write("r.json", "[1]");
        told(&["--request", &file], "expected a JSON object");
        let missing = folder.write("gone", "");
        std::fs::remove_file(&missing).unwrap();
        told(&["--request", &missing], "cannot read");
    }
    // A request of another wire is not an error, but there is no next request.
    let file = folder.write("r.json", "{\"contents\":[]}");
    let json = decided(&["--request", &file], CUT_OFF);
    assert_eq!(
        (&json["action"], &json["metadata"]["instead_of"]),
        (&"stop".into(), &"continue".into())
    );
    assert_eq!(
        json["next"]["impossible"],
        "the request's `messages` is missing or not of the expected type"
    );
    let output = endstop(&["decide", "--cost", "-1"], body);
    assert_eq!(output.status.code(), Some(2));
}

/// One grammar: a policy stands alone, or in the gateway's configuration.
#[test]
fn a_policy_in_the_gateways_configuration_is_heard() {
    let folder = Folder::new("decide-gateway");
    let file = folder.write("gateway.toml", "keep = 9\n[agent]\ncontinuation_max_attempts = 0\n");
    for option in ["--config", "--policy"] {
        let json = decided(&[option, &file], CUT_OFF);
        assert_eq!((&json["action"], &json["policy"]), (&json!("stop"), &json!("gateway.toml")));
    }
    let both = decided(&["--config", &file, "--policy", "default"], CUT_OFF);
    assert_eq!((&both["action"], &both["policy"]), (&json!("continue"), &json!("default")));
    let words = folder.write("words.toml", "[provider.openai.words]\nlength = \"output_limit\"\n");
    assert_eq!(decided(&["--config", &words], CUT_OFF)["policy"], "default");
    let typo = folder.write("p.toml", "[agnet]\ncontinuation_max_attempts = 0\n");
    fails(&endstop(&["decide", "--policy", &typo], CUT_OFF.as_bytes()), 1, "unknown field `agnet`");
    let one_letter = folder.write("p.toml", "[provider.acme.rules.cut]\naction = \"stop\"\n");
    let output = endstop(&["decide", "--policy", &one_letter], CUT_OFF.as_bytes());
    fails(&output, 1, "`[providers.NAME]`");
}

#[test]
fn a_retry_sends_the_same_request() {
    let folder = Folder::new("decide-retry");
    let request =
        json!({"model": "m", "max_tokens": 48, "messages": [{"role": "user", "content": "?"}]});
    let file = folder.write("r.json", request.to_string());
    let error = r#"{"error":{"message":"overloaded","type":"server_error"}}"#;
    let arguments = ["decide", "--provider", "openai", "--status", "503", "--request", &file];
    let text = stdout(&endstop(&arguments, error.as_bytes()));
    assert!(text.contains("request    the same request again"), "{text}");
    let explained = [&["explain"], &arguments[1..]].concat();
    let text = stdout(&endstop(&explained, error.as_bytes()));
    assert!(text.contains("\n  request       the same request again"), "{text}");
}

/// Neither the user's limit nor the model's own is to be raised.
#[test]
fn no_limit_is_suggested_that_cannot_be_raised() {
    let suggested = |arguments: &[&str]| decided(arguments, CUT_OFF)["suggested_action"].clone();
    assert_eq!(suggested(&["--max-tokens", "100"]), "increase_budget");
    assert_eq!(suggested(&["--max-tokens", "100", "--cap-is-users"]), "retry");
    assert_eq!(suggested(&["--max-tokens", "100", "--model-max", "100"]), "retry");
    assert_eq!(suggested(&["--max-tokens", "100", "--model-max", "101"]), "increase_budget");
}

/// Without a price, the note says what the limit counts, and the decision agrees with it.
#[test]
fn a_cost_that_is_given_counts_without_a_price() {
    let folder = Folder::new("decide-cost");
    let policy = folder.write("policy.toml", "[agent]\nturn_max_cost = 0.5\n");
    let body = CUT_OFF.replace("gpt-4.1", "unpriced");
    for (cost, action, note) in [
        ("0", "continue", "turn_max_cost is ignored"),
        ("0.1", "continue", "only `--cost` counts against turn_max_cost"),
        ("1", "stop", "only `--cost` counts against turn_max_cost"),
    ] {
        let arguments = ["decide", "--provider", "openai", "--json", "--policy", &policy];
        let output = endstop(&[&arguments[..], &["--cost", cost]].concat(), body.as_bytes());
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.trim_end(), format!("endstop: no price for unpriced: {note}"));
        let decision: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(decision["action"], action, "{cost}");
    }
}

/// A limit of one choice does not cut off the whole call of another.
#[test]
fn the_call_of_another_choice_is_not_called_cut_off() {
    let body = json!({"choices": [
        {"index": 0, "message": {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
         "finish_reason": "tool_calls"},
        {"index": 1, "message": {"content": "a"}, "finish_reason": "length"}]});
    let json = decided(&[], &body.to_string());
    let sentence = json["reason"].as_str().unwrap();
    assert!(sentence.starts_with("the answer stopped at the output limit"), "{sentence}");
    assert_eq!(json["action"], "stop");
}

/// A provider that counts the answer so far against the limit gets a higher one, and that is printed.
#[test]
fn the_printed_limit_is_the_one_that_is_sent() {
    let folder = Folder::new("decide-sent");
    let request = r#"{"contents":[{"role":"user","parts":[{"text":"Tell."}]}],"generationConfig":{"maxOutputTokens":9}}"#;
    let body = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Once upon a time"}]},"finishReason":"MAX_TOKENS"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":9},"modelVersion":"gemini-4-pro"}"#;
    let file = folder.write("request.json", request);
    let arguments = ["--provider", "gemini", "--model", "gemini-4-pro", "--request", &file];
    let shown = stdout(&endstop(&[&["decide"], &arguments[..]].concat(), body.as_bytes()));
    let next = shown.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let next: Value = serde_json::from_str(next).unwrap_or_default();
    let cap = next["generationConfig"]["maxOutputTokens"].as_u64().unwrap();
    assert!(shown.contains(&format!("next limit {cap} tokens")), "{shown}");
    let json = endstop(&[&["decide", "--json"], &arguments[..]].concat(), body.as_bytes());
    let json: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["metadata"]["next_cap"], cap, "{json}");
}

/// A decision whose request cannot be made is a stop.
#[test]
fn a_request_that_cannot_be_made_stops() {
    let folder = Folder::new("decide-impossible");
    let request = r#"{"model":"gpt-4.1","messages":[{"role":"user","content":"Tell."}]}"#;
    let file = folder.write("request.json", request);
    let decision = decided(&["--request", &file], CUT_CALL);
    assert_eq!(
        (&decision["action"], &decision["should_continue"]),
        (&json!("stop"), &json!(false))
    );
    assert_eq!(decision["suggested_action"], "stop");
    assert_eq!(decision["metadata"]["instead_of"], "repair_tool_call");
    let reason = decision["reason"].as_str().unwrap();
    assert!(
        reason.contains("no further request can be made: the request declares no tools"),
        "{reason}"
    );
}

#[test]
fn a_request_with_odd_fields_is_rejected() {
    let folder = Folder::new("decide-odd");
    for (request, says) in [
        (r#"{"messages":[1,2]}"#, "expected objects in `messages`"),
        (
            r#"{"messages":[],"max_tokens":"x"}"#,
            "expected a whole number, 0 or more, in `max_tokens`",
        ),
        (r#"{"messages":[],"max_tokens":-4}"#, "in `max_tokens`"),
    ] {
        let file = folder.write("request.json", request);
        let arguments = ["decide", "--provider", "openai", "--request", &file];
        fails(&endstop(&arguments, CUT_OFF.as_bytes()), 1, says);
    }
}

/// `check`, `explain` and `check --json` name the same finish reason.
#[test]
fn every_command_names_the_same_finish_reason() {
    let body = r#"{"error":{"message":"slow down","type":"rate_limit_error"}}"#;
    let given = ["--provider", "openai", "--status", "429"];
    let run = |command: &[&str]| stdout(&endstop(&[command, &given].concat(), body.as_bytes()));
    let said = "finish reason `rate_limit_error` in `error.type`";
    for text in [run(&["check"]), run(&["explain"])] {
        assert!(text.contains(said), "{text}");
    }
    let line: Value = serde_json::from_str(&run(&["check", "--json"])).unwrap();
    assert_eq!(
        (&line["native_field"], &line["native_value"]),
        (&json!("error.type"), &json!("rate_limit_error"))
    );
}
