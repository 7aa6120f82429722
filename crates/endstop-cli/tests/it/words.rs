//! One file of custom providers and finish reasons, in every command that reads responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::{Folder, endstop, fails, stdout};

const FILE: &str = r#"
[provider.openai]
base_url = "http://UPSTREAM/v1"
[provider.openai.words]
frobnicated = "output_limit"
shrugged = { reason = "unknown", vague = true }
waned = { reason = "output_limit", vague = true }
[provider.openai.words."incomplete_details.reason"]
budget = "context_limit"
[provider.openai.versions."v2".words]
frobnicated = "paused"

[provider.acme]
like = "anthropic-messages"
base_url = "http://UPSTREAM"
[provider.acme.words]
weary = "paused"
[provider.acme.versions."2099-01-01".words]
weary = "safety"

[provider.google.words.blockReason]
MOOD = "safety"
"#;

fn chat(word: &str) -> String {
    json!({ "model": "m", "choices": [{ "index": 0, "message": { "content": "x" }, "finish_reason": word }] })
        .to_string()
}

fn response(status: &str, reason: &str) -> String {
    json!({ "object": "response", "id": "r", "status": status, "incomplete_details": { "reason": reason },
            "output": [{ "type": "message", "content": [{ "type": "output_text", "text": "x" }] }] })
    .to_string()
}

/// Returns a streamed body with the expected reason, confidence and field.
fn streamed() -> (&'static str, &'static str, String, [&'static str; 3]) {
    let text = json!({ "choices": [{ "index": 0, "delta": { "content": "x" } }] });
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "frobnicated" }] });
    let body = format!("data: {text}\n\ndata: {last}\n\ndata: [DONE]\n\n");
    ("openai", "/v1/chat/completions", body, ["output_limit", "high", "finish_reason"])
}

/// Returns provider, path and body, with the expected reason, confidence and field.
fn cases() -> Vec<(&'static str, &'static str, String, [&'static str; 3])> {
    let (chats, responses) = ("/v1/chat/completions", "/v1/responses");
    let text = json!({ "object": "text_completion",
                       "choices": [{ "index": 0, "text": "x", "finish_reason": "frobnicated" }] });
    let run = json!({ "object": "thread.run", "id": "run_1", "status": "frobnicated" });
    let message = json!({ "type": "message", "role": "assistant", "stop_reason": "weary",
                          "content": [{ "type": "text", "text": "x" }] });
    vec![
        ("openai", chats, chat("frobnicated"), ["output_limit", "high", "finish_reason"]),
        ("openai", chats, chat("stop"), ["complete", "high", "finish_reason"]),
        ("openai", chats, chat("shrugged"), ["unknown", "medium", "finish_reason"]),
        ("openai", chats, chat("waned"), ["output_limit", "medium", "finish_reason"]),
        ("openai", "/v1/completions", text.to_string(), ["output_limit", "high", "finish_reason"]),
        (
            "openai",
            "/v1/threads/thread_1/runs",
            run.to_string(),
            ["output_limit", "high", "status"],
        ),
        (
            "openai",
            "/v2/chat/completions",
            chat("frobnicated"),
            ["paused", "high", "finish_reason"],
        ),
        ("openai", responses, response("frobnicated", ""), ["output_limit", "high", "status"]),
        (
            "openai",
            responses,
            response("incomplete", "budget"),
            ["context_limit", "high", "incomplete_details.reason"],
        ),
        ("acme", "/v1/messages", message.to_string(), ["paused", "high", "stop_reason"]),
    ]
}

#[track_caller]
fn is_so(line: &Value, want: [&str; 3]) {
    let found = ["reason", "confidence", "native_field"].map(|key| line[key].as_str().unwrap());
    assert_eq!(found, want, "{line}");
}

#[test]
fn one_file_is_heard_by_check_decide_and_explain() {
    let folder = Folder::new("words-check");
    let file = folder.write("words.toml", FILE.replace("UPSTREAM", "127.0.0.1:9"));
    for (provider, path, body, want) in cases().into_iter().chain([streamed()]) {
        let url = format!("https://x.example{path}");
        let read = |command: &str| {
            let arguments =
                [command, "--config", &file, "--provider", provider, "--url", &url, "--json"];
            let output = endstop(&arguments, body.as_bytes());
            serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
        };
        is_so(&read("check"), want);
        assert_eq!(read("decide")["ending"], want[0]);
        let explained = read("explain");
        assert_eq!(explained["ending"]["reason"], want[0], "{explained}");
    }
    let feedback = r#"{"promptFeedback":{"blockReason":"MOOD"}}"#;
    let output = endstop(
        &["check", "--config", &file, "--provider", "gemini", "--json"],
        feedback.as_bytes(),
    );
    is_so(&serde_json::from_slice(&output.stdout).unwrap(), ["safety", "high", "blockReason"]);
}

#[test]
fn one_file_is_heard_by_replay() {
    let folder = Folder::new("words-replay");
    let file = folder.write("words.toml", FILE.replace("UPSTREAM", "127.0.0.1:9"));
    let record = |(provider, path, body, _): &(&str, &str, String, [&str; 3])| {
        json!({ "provider": provider, "url_path": path, "status": 200, "body": body }).to_string()
    };
    let all: Vec<_> = cases().into_iter().chain([streamed()]).collect();
    let lines: Vec<String> = all.iter().map(record).collect();
    let recordings = folder.write("r.jsonl", lines.join("\n"));
    let output = endstop(&["replay", "--config", &file, "--json", &recordings], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = stdout(&output);
    assert_eq!(text.lines().count(), all.len());
    for (line, (_, _, _, want)) in text.lines().zip(all) {
        is_so(&serde_json::from_str(line).unwrap(), want);
    }
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("unknown finish reason"), "{told}");
}

/// Starts a provider that answers each model with one body.
fn upstream(answers: Vec<(String, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let asked = String::from_utf8(body).unwrap();
            let (_, answer) =
                answers.iter().find(|(key, _)| asked.contains(&format!("\"{key}\""))).unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n",
                answer.len()
            );
            let _ = stream.write_all(format!("{head}{answer}").as_bytes());
        }
    });
    address
}

/// Gateway that stops at the end of the test.
struct Gateway {
    child: Child,
    address: String,
    // Kept open, so that the gateway can write its log.
    _lines: Box<dyn Iterator<Item = std::io::Result<String>>>,
}

impl Gateway {
    fn start(config: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
            .args(["serve", "--config", config, "--listen", "127.0.0.1:0"])
            .args(["--admin", "127.0.0.1:0", "--store", "off", "--log", "off"])
            .env("ENDSTOP_DATA", format!("{config}.data"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Self { child, address, _lines: Box::new(lines) }
    }

    /// Sends a request, and returns the reason, confidence and finish reason from the headers.
    fn ask(&self, path: &str, key: &str) -> [String; 3] {
        self.ask_with(path, key, "")
    }

    /// Sends a request with a header.
    fn ask_with(&self, path: &str, key: &str, header: &str) -> [String; 3] {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let body = format!("{{\"model\":\"{key}\"}}");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{header}content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        ["reason", "confidence", "native"].map(|name| {
            let name = format!("x-endstop-{name}: ");
            let line = response.lines().find_map(|line| line.strip_prefix(&name));
            assert!(line.is_some(), "{name}{response}");
            line.unwrap().to_owned()
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Uses the file alone, named by the gateway's configuration, and contained in it.
#[test]
fn one_file_is_heard_by_serve() {
    let folder = Folder::new("words-serve");
    let answers = cases().into_iter().enumerate();
    let answers = answers.map(|(index, (_, _, body, _))| (format!("case-{index}"), body)).collect();
    let words = FILE.replace("UPSTREAM", &upstream(answers));
    folder.write("words.toml", &words);
    let named = "mode = \"observe\"\nproviders_file = \"words.toml\"\n".to_owned();
    for (name, text) in [
        ("words.toml", words.clone()),
        ("named.toml", named),
        ("held.toml", format!("mode = \"observe\"\n{words}")),
    ] {
        let gateway = Gateway::start(&folder.write(name, text));
        for (index, (provider, path, _, want)) in cases().into_iter().enumerate() {
            let told = gateway.ask(&format!("/{provider}{path}"), &format!("case-{index}"));
            assert_eq!([told[0].as_str(), told[1].as_str()], [want[0], want[1]], "{name} {path}");
        }
        let last = format!("case-{}", cases().len() - 1);
        let version = "Anthropic-Version: 2099-01-01\r\n";
        let told = gateway.ask_with("/acme/v1/messages", &last, version);
        assert_eq!(told[0], "safety", "{name}");
    }
    // The other commands accept the gateway's configuration too.
    for name in ["named.toml", "held.toml"] {
        let file = folder.0.join(name);
        let arguments = ["check", "--config", file.to_str().unwrap(), "--provider", "openai"];
        assert_eq!(endstop(&arguments, chat("frobnicated").as_bytes()).status.code(), Some(11));
    }
}

#[test]
fn a_bad_file_gets_one_line_from_every_command() {
    let folder = Folder::new("words-bad");
    let body = folder.write("body.json", chat("stop"));
    let recordings = folder.write("r.jsonl", json!({ "body": chat("stop") }).to_string());
    let named =
        folder.write("named.toml", "listen = \"127.0.0.1:0\"\n\nproviders_file = \"w.toml\"\n");
    let mut number = 0;
    let mut bad = |text: &[u8], says: &str| {
        number += 1;
        let file = folder.write(&format!("{number}.toml"), text);
        folder.write("w.toml", text);
        for arguments in [
            &["check", "--config", &file, &body][..],
            &["decide", "--config", &file, &body],
            &["explain", "--config", &file, &body],
            &["replay", "--config", &file, &recordings],
            &["serve", "--config", &file, "--check"],
            &["check", "--config", &named, &body],
            &["serve", "--config", &named, "--check"],
        ] {
            let output = endstop(arguments, b"");
            fails(&output, 1, says);
            assert!(output.stdout.is_empty(), "no output before the file is valid");
        }
    };
    bad(
        b"[provider.acme]\nlike = \"nobody\"\n",
        ".toml:2: unknown provider or wire `nobody`: expected",
    );
    bad(
        b"[provider.openai.words]\n\n\nx = \"success\"\n",
        ".toml:4: invalid meaning `success` for `x`: expected one of complete, stop_sequence,",
    );
    bad(
        b"[provider.openai.words.\"incomplete.reason\"]\nx = \"failed\"\n",
        ".toml:1: unknown field `incomplete.reason`: expected one of finish_reason, finish_details.type,",
    );
    bad(b"[provider.acme]\n", ".toml:1: unknown provider `acme`: add `like");
    bad(b"[provider.acme\n", ".toml:1: ");
    bad(b"# fine\n[provider.opena\xff]\n", ".toml:2: invalid UTF-8");
    bad(b"[providr.acme]\nlike = \"openai\"\n", ".toml:1: `providr.acme`: unknown field `providr`");
    bad(b"[provider.openai.words]\nx = \"failed\"\nx = \"failed\"\n", "duplicate key");
    for command in ["check", "decide", "explain"] {
        let output = endstop(&[command, "--config", "/no/such.toml", &body], b"");
        fails(&output, 1, "cannot read /no/such.toml: No such file");
    }
    let lost = folder.write("lost.toml", "providers_file = \"nowhere.toml\"\n");
    fails(&endstop(&["serve", "--config", &lost, "--check"], b""), 1, "nowhere.toml: No such file");
    let both = folder.write("both.toml", "providers_file = \"ok.toml\"\n[provider.openai]\n");
    folder.write("ok.toml", "[provider.openai.words]\nx = \"failed\"\n");
    fails(
        &endstop(&["serve", "--config", &both, "--check"], b""),
        1,
        "both.toml:2: provider `openai` is already registered",
    );
}

#[test]
fn api_versions_are_read_from_headers_and_urls() {
    let version = |arguments: &[&str]| {
        let all = [&["check", "--json"], arguments].concat();
        let output = endstop(&all, chat("stop").as_bytes());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["api_version"].clone()
    };
    let azure =
        "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21";
    assert_eq!(version(&["--url", azure]), "2024-10-21");
    assert_eq!(version(&["--provider", "openai"]), Value::Null);
    let header = "Anthropic-Version: 2026-10-21";
    assert_eq!(version(&["--provider", "anthropic", "--header", header]), "2026-10-21");
    let bad = endstop(&["check", "--header", "authorization sk-secret"], b"{}");
    assert_eq!(bad.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&bad.stderr).contains("sk-secret"));
    let folder = Folder::new("words-versions");
    let interaction = |headers: Value| {
        json!({ "request": { "uri": "https://api.anthropic.com/v1/messages", "headers": headers },
                "response": { "status": 200, "body": "{}" } })
    };
    let vcr =
        json!({ "interactions": [interaction(json!({ "anthropic-version": ["2023-06-01"] }))] });
    let har = json!({ "log": { "entries": [{
        "request": { "url": "https://api.anthropic.com/v1/messages",
                     "headers": [{ "name": "Anthropic-Version", "value": "2026-10-21" }] },
        "response": { "status": 200, "content": { "text": "{}" } } }] } });
    for (name, text, want) in
        [("v.json", vcr.to_string(), "2023-06-01"), ("h.har", har.to_string(), "2026-10-21")]
    {
        let output = endstop(&["replay", "--json", &folder.write(name, text)], b"");
        let line: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
        assert_eq!(line["api_version"], want, "{name}");
    }
}
