//! `endstop serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
        // What the check refuses, `serve` refuses.
        fails(&endstop(&["serve", "--config", &file], b""), 1, says);
    };
    check(
        "listen = \"127.0.0.1:1\"\nmode = \"gard\"\n",
        "1.toml:2: `mode`: unknown value `gard`: expected `observe` or `guard`; did you mean `guard`?",
    );
    check("mode = \"guard\n", ":1: ");
    check(
        "[limits]\n\nidle = \"soon\"\n",
        ":3: `limits.idle`: invalid duration `soon`: expected a number and ms",
    );
    check("[limits]\nidel = \"1s\"\n", ":2: `limits.idel`: unknown field `idel`: expected");
    check(
        "[limits]\nidle = \"0s\"\n",
        ":2: `limits.idle`: invalid duration `0s`: it must be greater",
    );
    check(
        "[upstreams.mine]\nbase_url = \"http://x\"\nlike = \"vlm\"\n",
        ":3: upstream `mine`: unknown provider `vlm` in `like`: expected one of openai,",
    );
    check("[upstreams.mine]\nlike = \"vlm\"\nbase_url = \"http://x\"\n", "; did you mean `vllm`?");
    check(
        "[upstreams.opnai]\nbase_url = \"http://x\"\n",
        "unknown provider `opnai` as the name of an upstream: add `like",
    );
    check("[upstreams.mine]\nlike = \"openai\"\nbase_url = \"x\"\n", "invalid base_url `x`");
    check(
        "[upstreams.openai]\nkey_env = \"ENDSTOP_TEST_NO_KEY\"\n",
        "ENDSTOP_TEST_NO_KEY is not set",
    );
    check("[upstreams.openai]\nkey_file = \"/nowhere\"\n", "cannot read /nowhere");
    check("admin = \"nowhere\"\n", "invalid address `nowhere`");
    let key = folder.write("key", "sk-canary");
    let open = format!("listen = \"0.0.0.0:0\"\n[upstreams.openai]\nkey_file = \"{key}\"\n");
    check(&open, "set access_token_env or access_token_file");
    check("extra_ca = \"/nowhere.pem\"\n", "cannot read /nowhere.pem");
    check("admin = \"0.0.0.0:0\"\n", "the admin listener 0.0.0.0:0 is open to other machines");
    check("admin_token_file = \"/nowhere\"\n", "admin_token: cannot read /nowhere");
    check("tls = { cert = \"/no.pem\", key = \"/no.pem\" }\n", "cannot read /no.pem");
    check("store = \"sqlite:/nowhere/x.db\"\n", "cannot open sqlite:/nowhere/x.db: ");
    check("store = \"mysql://x\"\n", "mysql://x");
    // Permitted to root, and impossible nevertheless.
    if cfg!(target_os = "linux") {
        check("data = \"/proc/nope\"\nstore = \"sqlite::memory:\"\n", "/proc/nope");
        check("data = \"/sys/x\"\nstore = \"sqlite::memory:\"\n", "/sys");
        check("store = \"sqlite:/proc/x.db\"\n", "sqlite:/proc/x.db");
    }
    let page = folder
        .write("page.db", "<html>not a database, but a page of some length</html>".repeat(99));
    check(&format!("store = \"sqlite:{page}\"\n"), "not a SQLite database");
    check(&format!("data = \"{page}/data\"\nstore = \"sqlite::memory:\"\n"), "page.db");
    check("[sinks.a]\nurl = \"mysql://u:sk-canary@h/d\"\n", "invalid store `mysql://u@h/d`");
    check("[sinks.a]\n", "sinks.a: set either `url` or `url_env`");
    check("[sinks.a]\nurl = \"jsonl:\"\n", "it does not name a file");
    check("[sinks.a]\nurl = \"jsonl:/x\"\nfrom = \"later\"\n", "unknown value `later`");
    check("[sinks.\"a/b\"]\nurl = \"jsonl:/x\"\n", "invalid name of a sink `a/b`");
    check("store = \"off\"\n[sinks.a]\nurl = \"jsonl:/x\"\n", "sinks.a: sinks read");
    check("providers_file = \"/nowhere.toml\"\n", "cannot read /nowhere.toml");
    check("[agent]\nnonsense = 1\n", "nonsense");
    fails(&endstop(&["serve", "--config", "/nowhere.toml"], b""), 1, "cannot read /nowhere.toml");
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (name, free, other) in [("listen", "admin", "off"), ("admin", "listen", "127.0.0.1:0")] {
        let (name, free) = (format!("--{name}"), format!("--{free}"));
        let output = endstop(&["serve", &name, &address, &free, other, "--store", "off"], b"");
        fails(&output, 1, &format!("cannot listen on {address}: the port is taken"));
        fails(&output, 1, &format!("(`{name}`)"));
    }
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

#[test]
fn a_check_creates_nothing_and_disturbs_no_gateway() {
    let folder = Folder::new("serve-check");
    let data = folder.0.join("data");
    let config = format!("listen = '127.0.0.1:0'\nadmin = 'off'\ndata = '{}'\n", data.display());
    let file = folder.write("endstop.toml", config);
    let check = || stdout(&endstop(&["serve", "--config", &file, "--check"], b""));
    let text = check();
    assert!(text.contains("data does not exist yet and would be created"), "{text}");
    assert!(text.contains("endstop.db does not exist yet and would be created"), "{text}");
    assert!(!data.exists());
    let mut running = Running::start(&file);
    let line = running.until("endings are stored");
    let command = line.split('`').nth(1).unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    // Its tables are made meanwhile.
    let until = Instant::now() + Duration::from_secs(60);
    while !stdout(&endstop(&words, b"")).starts_with("responses: 0 ") {
        assert!(Instant::now() < until, "{command}");
    }
    let text = check();
    assert!(text.contains("data is in use by a gateway that runs"), "{text}");
    assert!(text.ends_with("the configuration is valid\n"), "{text}");
    assert!(running.ask("/openai/v1/nothing").starts_with("HTTP/1.1 "));
    running.signal("TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    let text = check();
    assert!(!text.contains("note:"), "{text}");
}

/// Gateway that stops at the end of the test.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    pub(crate) address: String,
}

impl Running {
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, &[])
    }

    pub(crate) fn start_with(config: &str, more: &[&str]) -> Self {
        let serve = ["serve", "--config", config];
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_endstop")).args(serve).args(more), config)
    }

    /// Starts a gateway by a command that has its variables, and gets its arguments.
    pub(crate) fn start_in(command: &mut Command, config: &str) -> Self {
        Self::spawn(command.args(["serve", "--config", config]), config)
    }

    fn spawn(command: &mut Command, config: &str) -> Self {
        let mut child = command
            .env("ENDSTOP_DATA", format!("{config}.data"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Read at once: lines that wait in a full pipe make the gateway drop the next ones.
        let (sender, lines) = std::sync::mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map(Result::unwrap).try_for_each(|line| sender.send(line))
        });
        let first = lines.recv().unwrap();
        let address = first.split("://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Self { child, lines, address }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("sh")
                .args(["-c", &format!("kill -s {name} {id}")])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Reads the log up to a line that contains this text.
    pub(crate) fn until(&mut self, says: &str) -> String {
        self.lines.iter().find(|line| line.contains(says)).unwrap()
    }

    /// Returns the response of an admin listener.
    pub(crate) fn get(admin: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(admin).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
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
    let line = running.until("anthropic/");
    assert!(line.contains(" WARN  failed ") && line.contains(" refused "), "{line}");
    assert!(!line.contains("canary"), "{line}");
    folder.write("endstop.toml", "mode = \"nonsense\"\n");
    running.signal("HUP");
    let line = running.until("configuration not reloaded");
    assert!(line.contains("endstop.toml:1") && line.contains("nonsense"), "{line}");
    assert!(running.ask("/anthropic/v1/messages").contains("502"));
    folder.write("endstop.toml", toml("observe"));
    running.signal("HUP");
    let line = running.until("configuration reloaded");
    assert!(line.ends_with("endstop.toml: changed mode"), "{line}");
    running.ask("/anthropic/v1/messages");
    running.signal("TERM");
    let line = running.until("draining");
    assert!(line.contains(": new requests are refused; no stream is open"), "{line}");
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
    let pause = Duration::from_millis(100);
    let mut asked = (0..600).map(|_| ask().ok_or_else(|| std::thread::sleep(pause)));
    let answer = asked.find_map(Result::ok).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let pid = child.id().to_string();
    let signal = |name: &str| {
        assert!(
            Command::new("sh")
                .args(["-c", &format!("kill {name} {pid}")])
                .status()
                .unwrap()
                .success()
        );
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

/// glibc reads its setting at the start of the process alone.
#[cfg(all(target_os = "linux", target_env = "gnu", not(feature = "jemalloc")))]
#[test]
fn the_allocator_returns_large_buffers() {
    let folder = Folder::new("serve-allocator");
    let config =
        folder.write("endstop.toml", "listen = '127.0.0.1:0'\nadmin = 'off'\nstore = 'off'");
    let running = Running::start(&config);
    let process = format!("/proc/{}", running.child.id());
    let variables = std::fs::read(format!("{process}/environ")).unwrap();
    let mut variables = variables.split(|byte| *byte == 0);
    assert!(variables.any(|variable| variable == b"MALLOC_MMAP_THRESHOLD_=262144"));
    // It was started with the same arguments.
    let arguments = std::fs::read(format!("{process}/cmdline")).unwrap();
    let arguments: Vec<&[u8]> = arguments.split(|byte| *byte == 0).skip(1).collect();
    assert_eq!(arguments, [&b"serve"[..], b"--config", config.as_bytes(), b""]);
}

/// Memory of a process, in bytes.
#[cfg(feature = "jemalloc")]
fn memory_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Most of the memory of connections is returned after they have left.
#[cfg(feature = "jemalloc")]
#[test]
fn connections_that_left_return_their_memory() {
    let folder = Folder::new("serve-memory");
    let config =
        folder.write("endstop.toml", "listen = '127.0.0.1:0'\nadmin = 'off'\nstore = 'off'");
    let running = Running::start(&config);
    let memory = || memory_of(running.child.id());
    let before = memory();
    let connections: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(&running.address).unwrap();
            stream.write_all(b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            assert!(stream.read(&mut [0; 100]).unwrap() > 0);
            stream
        })
        .collect();
    let during = memory();
    assert!(during > before + (2 << 20), "{before} {during}");
    drop(connections);
    let until = Instant::now() + Duration::from_secs(120);
    while memory() - before.min(memory()) > (during - before) / 2 {
        assert!(Instant::now() < until, "{before}, {during}, then {}", memory());
        std::thread::sleep(Duration::from_millis(200));
    }
}
