//! `endstop sim`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::{endstop, fails, stdout};

#[test]
fn the_list_names_every_scenario_and_what_it_stands_for() {
    let text = stdout(&endstop(&["sim", "--list"], b""));
    for part in [
        "cut-in-tool-call\n",
        "word=WORD\n",
        "story-repeat=WORDS\n",
        "    on bedrock-converse, bedrock-invoke",
        "    Text with this finish reason.\n    not on cloudflare-run\n",
        "based on vercel/ai#19035",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let list: Value =
        serde_json::from_str(&stdout(&endstop(&["sim", "--list", "--json"], b""))).unwrap();
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .any(|row| row["name"] == "status" && row["value"] == "CODE")
    );
}

#[test]
fn mistakes_are_told_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(&endstop(&["sim", "--listen", &address], b""), 1, "is in use");
    let output = endstop(&["sim", "--listen", "127.0.0.1:0", "--scenario", "lenght"], b"");
    let unknown =
        "unknown scenario `lenght`: `endstop sim --list` lists all; did you mean `length`?";
    fails(&output, 2, unknown);
    let output = endstop(&["sim", "--listen", "127.0.0.1:0", "--scenario", "foo"], b"");
    fails(&output, 2, "unknown scenario `foo`: `endstop sim --list` lists all\n");
    let output = endstop(&["sim", "--listen", "nowhere"], b"");
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected an IP address and a port"));
    fails(&endstop(&["sim", "--script", "/nowhere.txt"], b""), 1, "cannot read /nowhere.txt");
}

/// Simulator that stops at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_serves_and_logs_without_secrets() {
    let child = Command::new(env!("CARGO_BIN_EXE_endstop"))
        .args(["sim", "--listen", "127.0.0.1:0", "--scenario", "length"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let address = first.split("http://").nth(1).unwrap().to_owned();
    let urls: Vec<String> = lines.by_ref().take(7).collect();
    assert!(urls.iter().any(|line| line.contains("OPENAI_BASE_URL=http://")), "{urls:?}");
    let mut stream = TcpStream::connect(address).unwrap();
    let body = r#"{"messages":[]}"#;
    let text = format!(
        "POST /v1/messages?key=sk-secret HTTP/1.1\r\nx-api-key: sk-secret\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.contains(r#""stop_reason":"max_tokens""#), "{response}");
    let line = lines.next().unwrap();
    assert!(
        line.contains("anthropic") && line.contains("length") && line.contains("plain"),
        "{line}"
    );
    assert!(line.contains("played to the end") && !line.contains("secret"), "{line}");
}
