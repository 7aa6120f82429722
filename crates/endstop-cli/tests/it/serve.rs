//! `endstop serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::{Folder, endstop, fails, stdout};

#[test]
fn mistakes_are_told_in_one_line() {
    let folder = Folder::new("serve-mistakes");
    let mut number = 0;
    let mut check = |toml: &str, says: &str| {
        number += 1;
        let file = folder.write(&format!("{number}.toml"), toml);
        let output = endstop(&["serve", "--config", &file, "--check"], b"");
        fails(&output, 1, says);
    };
    check(
        "listen = \"127.0.0.1:1\"\nmode = \"gard\"\n",
        "1.toml:2: `mode`: unknown variant `gard`",
    );
    check("mode = \"guard\n", ":1: ");
    check(
        "[limits]\n\nidle = \"soon\"\n",
        ":3: `idle`: invalid duration `soon`: expected a number and ms",
    );
    check("[limits]\nidel = \"1s\"\n", ":2: `idel`: unknown field `idel`");
    check(
        "[upstreams.mine]\nlike = \"opnai\"\nbase_url = \"http://x\"\n",
        "unknown provider `opnai`: add `like",
    );
    check("[upstreams.mine]\nlike = \"openai\"\nbase_url = \"x\"\n", "invalid base_url `x`");
    check(
        "[upstreams.openai]\nkey_env = \"ENDSTOP_TEST_NO_KEY\"\n",
        "ENDSTOP_TEST_NO_KEY is not set",
    );
    check("[upstreams.openai]\nkey_file = \"/nowhere\"\n", "/nowhere cannot be read");
    check("admin = \"nowhere\"\n", "invalid address `nowhere`");
    let key = folder.write("key", "sk-canary");
    let open = format!("listen = \"0.0.0.0:0\"\n[upstreams.openai]\nkey_file = \"{key}\"\n");
    check(&open, "set access_token_env or access_token_file");
    check("extra_ca = \"/nowhere.pem\"\n", "/nowhere.pem: cannot be read");
    fails(
        &endstop(&["serve", "--config", "/nowhere.toml"], b""),
        1,
        "/nowhere.toml: cannot be read",
    );
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = endstop(&["serve", "--listen", &address], b"");
    fails(&output, 1, &format!("cannot listen on {address}: the port is taken"));
}

#[test]
fn a_check_says_what_would_be_served() {
    let text = stdout(&endstop(&["serve", "--check"], b""));
    for part in [
        "listen  127.0.0.1:4100",
        "/bedrock/{region}",
        "https://api.openai.com/v1",
        "the caller's key",
        "the configuration is valid",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Gateway that stops at the end of the test.
struct Running {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    address: String,
}

impl Running {
    fn start(config: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
            .args(["serve", "--config", config])
            .env("ENDSTOP_DATA", format!("{config}.data"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = Box::new(lines.map(Result::unwrap));
        let first = lines.next().unwrap();
        let address = first.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Self { child, lines, address }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Reads the log up to a line that contains this text.
    fn until(&mut self, says: &str) -> String {
        self.lines.find(|line| line.contains(says)).unwrap()
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "POST {path}?key=sk-canary-1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-canary-2\r\n\
             connection: close\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_serves_reloads_and_stops() {
    let folder = Folder::new("serve-runs");
    // The upstream refuses connections: each answer is an error in the wire's own shape.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toml = |mode: &str| {
        format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"off\"\nmode = \"{mode}\"\n\
             [upstreams.anthropic]\nbase_url = \"http://{closed}\"\n"
        )
    };
    let file = folder.write("endstop.toml", toml("guard"));
    let mut running = Running::start(&file);
    let response = running.ask("/anthropic/v1/messages");
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
    assert!(response.contains("x-endstop-id: "), "{response}");
    assert!(response.contains("\"type\":\"error\""), "{response}");
    assert!(response.contains("upstream_unreachable"), "{response}");
    let line = running.until("said=");
    assert!(line.contains("failed") && line.contains("unreachable_refused"), "{line}");
    assert!(!line.contains("canary"), "{line}");
    folder.write("endstop.toml", "mode = \"nonsense\"\n");
    running.signal("HUP");
    let line = running.until("configuration not reloaded");
    assert!(line.contains("endstop.toml:1") && line.contains("nonsense"), "{line}");
    assert!(running.ask("/anthropic/v1/messages").contains("502"));
    folder.write("endstop.toml", toml("observe"));
    running.signal("HUP");
    running.until("configuration reloaded");
    running.ask("/anthropic/v1/messages");
    running.signal("TERM");
    running.until("draining");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}

/// Blocks stderr: the gateway still serves, reloads its configuration and stops.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let folder = Folder::new("serve-blocked");
    let config = folder.write("endstop.toml", "");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    // A pipe that is full from the start.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    let filling = std::thread::spawn(move || filler.write_all(&[b' '; 1 << 20]));
    let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
        .args(["serve", "--config", &config, "--listen", &address, "--admin", "127.0.0.1:0"])
        .args(["--store", "off", "--log", "json"])
        .env("ENDSTOP_DATA", format!("{config}.data"))
        .stderr(writer)
        .spawn()
        .unwrap();
    let ask = || {
        let mut stream = TcpStream::connect(&address).ok()?;
        let head = format!("GET /nowhere HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let pause = std::time::Duration::from_millis(100);
    let mut asked = (0..600).map(|_| ask().ok_or_else(|| std::thread::sleep(pause)));
    let answer = asked.find_map(Result::ok).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let pid = child.id().to_string();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-HUP");
    for _ in 0..10 {
        assert!(ask().unwrap().starts_with("HTTP/1.1 404"));
    }
    signal("-TERM");
    let ended = (0..600).find_map(|_| {
        std::thread::sleep(pause);
        child.try_wait().unwrap()
    });
    if ended.is_none() {
        child.kill().unwrap();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    drop(reader);
    assert!(filling.join().unwrap().is_err());
}
