//! End-to-end tests of the command: arguments in, text and exit code out.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::type_complexity,
    reason = "tests fail loudly"
)]

mod chat;
mod decide;
mod demo;
mod deploy;
mod env;
mod notify;
mod odd;
mod operate;
mod record;
mod serve;
mod sim;
mod words;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const CUT: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n";
const WHOLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn endstop(arguments: &[&str], input: &[u8]) -> Output {
    endstop_with(arguments, input, &[])
}

/// Runs the command with more variables. The width of its output does not depend on the terminal.
fn endstop_with(arguments: &[&str], input: &[u8], variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
        .args(arguments)
        .env("ENDSTOP_DATA", data())
        .env("COLUMNS", "160")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command may stop before it has read all input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Data directory of the command, instead of the user's.
fn data() -> PathBuf {
    std::env::temp_dir().join(format!("endstop-data-{}", std::process::id()))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks for this exit code, and for exactly one line on standard error that contains `says`.
#[track_caller]
fn fails(output: &Output, code: i32, says: &str) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    assert!(text.contains(says), "{text}");
}

/// Temporary directory that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("endstop-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn check_tells_in_words_how_it_ended_and_what_to_do() {
    let output = endstop(&["check", "--provider", "openai"], CUT.as_bytes());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(19));
    let first = "cut (high confidence): the stream stopped before the provider's end marker\n";
    assert!(text.starts_with(first), "{text}");
    for part in [
        "finish reason none",
        "connection    closed without the provider's end marker",
        "what to do    discard the response and retry",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains('\x1b'), "no colour in a pipe");
}

#[test]
fn check_reads_the_example_of_the_readme() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/example.sse");
    let output = endstop(&["check", "--json", example.to_str().unwrap()], b"");
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&line["reason"], &line["shown"]),
        (&json!("cut"), &json!(["tool_calls", "unfinished_tool_call"]))
    );
}

#[test]
fn check_json_has_every_promised_field() {
    let output = endstop(&["check", "--provider", "openai", "--json", "-"], WHOLE.as_bytes());
    assert_eq!(output.status.code(), Some(0));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let want = [
        ("id", json!("-")),
        ("provider", json!("openai")),
        ("dialect", json!("openai-chat")),
        ("reason", json!("complete")),
        ("finish_reason", json!("stop")),
        ("confidence", json!("high")),
        ("native_field", json!("finish_reason")),
        ("native_value", json!("stop")),
        ("closed", json!("proven")),
        ("context_overflow", json!(false)),
    ];
    for (key, value) in want {
        assert_eq!(line[key], value, "{key}");
    }
}

#[test]
fn a_shape_is_enough_for_medium_confidence() {
    let output = endstop(&["check", "--json"], WHOLE.as_bytes());
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["reason"], &line["confidence"]), (&json!("complete"), &json!("medium")));
}

#[test]
fn exit_codes_tell_the_kind_of_ending() {
    let body = |word: &str| {
        format!(
            "{{\"choices\":[{{\"index\":0,\"message\":{{\"content\":\"x\"}},\"finish_reason\":{word}}}]}}"
        )
    };
    for (word, code) in [
        ("\"stop\"", 0),
        ("\"length\"", 11),
        ("\"content_filter\"", 13),
        ("\"frobnicated\"", 15),
        ("null", 15),
    ] {
        let output = endstop(&["check", "--provider", "openai"], body(word).as_bytes());
        assert_eq!(output.status.code(), Some(code), "{word}");
    }
    let status = endstop(&["check", "--provider", "openai", "--status", "429"], b"{}");
    assert_eq!(status.status.code(), Some(18));
    let polled = b"{\"object\":\"response\",\"status\":\"queued\",\"output\":[]}";
    assert_eq!(endstop(&["check", "--provider", "openai"], polled).status.code(), Some(20));
}

#[test]
fn fail_on_narrows_what_counts() {
    let check =
        |fail_on| endstop(&["check", "--provider", "openai", "--fail-on", fail_on], CUT.as_bytes());
    assert_eq!(check("output_limit").status.code(), Some(0));
    assert_eq!(check("output_limit,cut").status.code(), Some(19));
    let unknown = check("frobnicated");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&unknown.stderr)
            .contains("expected one of complete, stop_sequence")
    );
}

#[test]
fn bad_input_gets_one_line_that_says_what_to_do() {
    let folder = Folder::new("bad");
    let path = folder.0.to_str().unwrap();
    fails(&endstop(&["check", "/no/such/file"], b""), 1, "cannot open /no/such/file");
    fails(&endstop(&["check", path], b""), 1, "use `endstop replay`");
    fails(&endstop(&["check", "--provider", "acme"], b"{}"), 2, "expected one of openai, azure");
    fails(&endstop(&["check"], b""), 1, "is empty");
    let noise: Vec<u8> =
        (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fails(&endstop(&["check"], &noise), 1, "does not look like a response");
    fails(&endstop(&["replay", "/no/such/file"], b""), 1, "/no/such/file: cannot open it");
    fails(&endstop(&["replay", path], b""), 1, "no recordings found");
    let replays = |name: &str, text: &str, says: &str| {
        fails(&endstop(&["replay", &folder.write(name, text)], b""), 1, says);
    };
    replays("x.txt", "x", "not a recording: expected .jsonl");
    replays("x.json", "{", "x.json: not JSON");
    replays("y.json", "{}", "y.json: not a cassette");
    replays("x.yaml", "a: [", "x.yaml: not YAML");
    replays("x.jsonl", "nonsense\n[]\n", "x.jsonl:1: not JSON");
    replays("x.jsonl", "nonsense\n[]\n", "(and 1 more that could not be read)");
    replays("x.jsonl.gz", "no gzip", "the gzip data is truncated or corrupt");
}

#[test]
fn a_line_without_end_is_refused_and_not_gathered() {
    // 64 MiB is four times the maximum size of an event.
    let long = "x".repeat(64 << 20);
    fails(&endstop(&["check"], long.as_bytes()), 1, "does not look like a response");
    let event = format!("data: {long}");
    fails(&endstop(&["check"], event.as_bytes()), 1, "more than 16 MiB");
    // A plain body may be of any size, because its text is not kept.
    let body = format!("{{\"a\":\"{long}");
    fails(&endstop(&["decide"], body.as_bytes()), 1, "more than 16 MiB");
    assert_eq!(endstop(&["check"], body.as_bytes()).status.code(), Some(19));
    let folder = Folder::new("long");
    let line = folder.write("x.jsonl", format!("{{\"body\":\"{long}"));
    fails(&endstop(&["replay", &line], b""), 1, "longer than 64 MiB");
}

/// Returns one record as a line of JSON.
fn record(id: &str, body: &str) -> String {
    json!({ "id": id, "provider": "openai", "api": "openai-chat", "status": 200, "content_type": "text/event-stream", "body": body }).to_string()
}

fn reasons(output: &Output) -> Vec<(String, String)> {
    stdout(output)
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| line[key].as_str().unwrap_or("null").to_owned();
            (text("provider"), text("reason"))
        })
        .collect()
}

#[test]
fn replay_reads_json_lines_plain_and_gzipped() {
    let folder = Folder::new("jsonl");
    let lines = format!("{}\n\n{}\n", record("a", WHOLE), record("b", CUT));
    let plain = folder.write("r.jsonl", &lines);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(lines.as_bytes()).unwrap();
    let gzipped = folder.write("r2.jsonl.gz", gzip.finish().unwrap());
    for file in [plain, gzipped] {
        let output = endstop(&["replay", "--json", &file], b"");
        let want =
            [("openai".to_owned(), "complete".to_owned()), ("openai".to_owned(), "cut".to_owned())];
        assert_eq!(reasons(&output), want);
        assert_eq!(output.status.code(), Some(0));
    }
    let folder_path = folder.0.to_str().unwrap();
    let output = endstop(&["replay", "--fail-on", "cut", folder_path], b"");
    assert_eq!(output.status.code(), Some(19));
    let text = stdout(&output);
    assert!(
        text.contains("openai") && text.contains("complete") && text.contains("50.0 %"),
        "{text}"
    );
}

#[test]
fn replay_reads_cassettes_of_every_family() {
    let folder = Folder::new("vcr");
    let request = "{\"model\":\"gpt-4o\",\"stream\":true,\"max_tokens\":5}";
    let answer = "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"length\"}]}";
    let vcrpy = format!(
        "interactions:\n- request:\n    body: '{request}'\n    method: POST\n    uri: https://api.openai.com/v1/chat/completions\n  response:\n    body:\n      string: '{answer}'\n    headers:\n      Content-Type: [application/json]\n    status: {{code: 200, message: OK}}\nversion: 1\n"
    );
    let binary = "interactions:\n- request: {uri: 'https://api.mistral.ai/v1/chat/completions'}\n  response:\n    body:\n      string: !!binary |\n        eyJjaG9pY2VzIjpbeyJpbmRleCI6MCwibWVzc2FnZSI6eyJjb250ZW50IjoiSGkifSwiZmluaXNo\n        X3JlYXNvbiI6InN0b3AifV19\n    status: {code: 200}\n";
    let ruby = format!(
        "http_interactions:\n- request:\n    method: post\n    uri: https://openrouter.ai/api/v1/chat/completions\n    body: {{encoding: UTF-8, string: '{request}'}}\n  response:\n    status: {{code: 200, message: OK}}\n    headers: {{Content-Type: [application/json]}}\n    body: {{encoding: UTF-8, string: '{answer}'}}\n"
    );
    let go = format!(
        "version: 2\ninteractions:\n- id: 0\n  request:\n    url: https://api.x.ai/v1/chat/completions\n    body: '{request}'\n  response:\n    code: 200\n    headers: {{Content-Type: [application/json]}}\n    body: '{answer}'\n"
    );
    let httpmock = format!(
        "when:\n  path: /v1/chat/completions\nthen:\n  status: 200\n  header:\n  - {{name: content-type, value: application/json}}\n  body: '{answer}'\n---\nwhen:\n  path: /v1/chat/completions\nthen:\n  status: 500\n  body: oops\n"
    );
    let json = json!({ "interactions": [{ "request": { "uri": "https://api.openai.com/v1/chat/completions" }, "response": { "status": { "code": 200 }, "body": { "string": WHOLE } } }] });
    let cases: [(&str, String, &[(&str, &str)]); 6] = [
        ("a.yaml", vcrpy, &[("openai", "output_limit")]),
        ("b.yaml", binary.to_owned(), &[("mistral", "complete")]),
        ("c.yml", ruby, &[("openrouter", "output_limit")]),
        ("d.yaml", go, &[("xai", "output_limit")]),
        (
            "e.yaml",
            httpmock,
            &[("openai-compatible", "output_limit"), ("openai-compatible", "failed")],
        ),
        ("f.json", json.to_string(), &[("openai", "complete")]),
    ];
    for (name, text, want) in cases {
        let output = endstop(&["replay", "--json", &folder.write(name, text)], b"");
        let want: Vec<_> = want.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(reasons(&output), want, "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn replay_reads_har() {
    let folder = Folder::new("har");
    let har = json!({ "log": { "entries": [{
        "request": { "url": "https://api.anthropic.com/v1/messages", "postData": { "text": "{\"max_tokens\":3}" } },
        "response": { "status": 200, "content": { "mimeType": "application/json", "encoding": "base64", "text": "eyJ0eXBlIjoibWVzc2FnZSIsInJvbGUiOiJhc3Npc3RhbnQiLCJjb250ZW50IjpbeyJ0eXBlIjoidGV4dCIsInRleHQiOiJIaSJ9XSwic3RvcF9yZWFzb24iOiJlbmRfdHVybiJ9" } }
    }] } });
    let output = endstop(&["replay", "--json", &folder.write("x.har", har.to_string())], b"");
    assert_eq!(reasons(&output), [("anthropic".to_owned(), "complete".to_owned())]);
}

/// The request is read by its wire, as `explain --request` reads it.
#[test]
fn replay_reads_requests_by_their_wire() {
    let folder = Folder::new("har-requests");
    let entry = |url: &str, request: &Value, response: &str| {
        json!({
            "request": { "url": url, "postData": { "text": request.to_string() } },
            "response": { "status": 200, "content": { "text": response } },
        })
    };
    let call = json!({ "object": "response", "status": "completed", "output": [
        { "type": "custom_tool_call", "call_id": "c", "name": "x_search", "input": "a",
          "status": "completed" },
        { "type": "message", "content": [{ "type": "output_text", "text": "Hi" }] },
    ] })
    .to_string();
    let xai = "https://api.x.ai/v1/responses";
    let gemini = "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
    let candidate = json!({ "candidates": [
        { "content": { "parts": [{ "text": "Hi" }] }, "finishReason": "STOP" } ] });
    let candidate = format!("data: {candidate}\n\n");
    let two = json!({ "generationConfig": { "candidateCount": 2 } });
    let own = json!({ "tools": [{ "type": "custom", "name": "x_search" }] });
    let har = json!({ "log": { "entries": [
        entry(xai, &json!({ "model": "grok-4" }), &call),
        entry(xai, &own, &call),
        entry(gemini, &two, &candidate),
        entry(gemini, &json!({}), &candidate),
    ] } });
    let output = endstop(&["replay", "--json", &folder.write("x.har", har.to_string())], b"");
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| (line["reason"].as_str().unwrap(), line["model"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(
        found,
        [
            ("complete", "grok-4"),
            ("tool_call", ""),
            ("cut", "gemini-3-pro"),
            ("complete", "gemini-3-pro"),
        ]
    );
}

#[test]
fn help_shows_examples_and_exit_codes() {
    for arguments in [&["--help"][..], &["check", "--help"], &["replay", "--help"]] {
        let output = endstop(arguments, b"");
        assert_eq!(output.status.code(), Some(0));
        let text = stdout(&output);
        assert!(text.contains("Examples:") || text.contains("Exit codes:"), "{text}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_told_from_an_ending() {
    let folder = Folder::new("pipe");
    let lines: String = (0..5000).map(|n| record(&n.to_string(), CUT) + "\n").collect();
    let file = folder.write("r.jsonl", lines);
    let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
        .args(["replay", "--json", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}

#[test]
fn the_pages_on_providers_are_what_the_code_says() {
    let folder = Folder::new("pages");
    let path = folder.0.to_str().unwrap();
    assert_eq!(endstop(&["dialects", "--markdown", "--out", path], b"").status.code(), Some(0));
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers");
    let names = |folder: &Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(
        names(&folder.0),
        names(&kept),
        "run `endstop dialects --markdown --out docs/providers`"
    );
    for name in names(&kept) {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(&name)).unwrap();
        assert_eq!(
            read(&folder.0),
            read(&kept),
            "{name:?}: run `endstop dialects --markdown --out docs/providers`"
        );
    }
}

#[test]
fn dialects_lists_every_provider() {
    let output = endstop(&["dialects", "--json"], b"");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(all.as_array().unwrap().len() >= 12);
    assert!(stdout(&endstop(&["dialects"], b"")).contains("end_turn"));
}

#[test]
fn completions_and_manual_are_made() {
    for shell in ["bash", "fish", "zsh", "powershell"] {
        assert!(stdout(&endstop(&["completions", shell], b"")).contains("replay"), "{shell}");
    }
    assert!(stdout(&endstop(&["man"], b"")).contains(".TH endstop"));
}

#[test]
fn own_words_come_from_toml() {
    let folder = Folder::new("config");
    let config = folder.write("mine.toml", "[provider.acme]\nlike = \"openai-chat\"\n[provider.acme.words]\nfrobnicated = \"output_limit\"\n");
    let body = b"{\"choices\":[{\"index\":0,\"message\":{\"content\":\"x\"},\"finish_reason\":\"frobnicated\"}]}";
    assert_eq!(
        endstop(&["check", "--config", &config, "--provider", "acme"], body).status.code(),
        Some(11)
    );
    let broken = folder.write("broken.toml", "[provider.acme]\nlike = \"nobody\"\n");
    fails(
        &endstop(&["check", "--config", &broken], body),
        1,
        "broken.toml:2: unknown provider or wire `nobody`",
    );
}
