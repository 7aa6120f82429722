//! A gateway in operation: signals, the log, and what is told about an ending.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serve::Running;
use crate::{Folder, endstop, stdout};

/// For whatever is to come, on a busy machine.
const EVER: Duration = Duration::from_secs(60);

fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + EVER;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A free port of this machine.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl").args(["-s", "--max-time", "60"]).args(arguments).output().unwrap()
}

fn body(model: &str, stream: bool) -> String {
    format!(r#"{{"model":"{model}","stream":{stream},"messages":[]}}"#)
}

/// Simulator that stops at the end of the test.
struct Simulated {
    child: Child,
    url: String,
}

impl Simulated {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
            .args(["sim", "--quiet", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        let url = first.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, url }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs curl: set ENDSTOP_SERVERS=1")]
fn the_second_signal_ends_the_drain() {
    let folder = Folder::new("drain");
    let store = format!("sqlite:{}", folder.0.join("e.db").display());
    let file = folder.write(
        "endstop.toml",
        format!("listen = '127.0.0.1:0'\nadmin = 'off'\nstore = '{store}'\n"),
    );
    let mut running = Running::start_with(&file, &["--upstream", "sim"]);
    let url = format!("http://{}/openai/v1/chat/completions", running.address);
    let mut client = Command::new("curl")
        .args(["-sN", "--max-time", "60", &url, "-d", &body("stall", true)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The stream is under way once something of it has come.
    client.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    running.signal("INT");
    let line = running.until("draining");
    assert!(line.contains(" INFO "), "{line}");
    assert!(line.contains("1 open stream may finish until 20"), "{line}");
    assert!(running.child.try_wait().unwrap().is_none());
    running.signal("INT");
    let line = running.until("ending 1 open stream now");
    assert!(line.contains(" WARN "), "{line}");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    let _ = client.wait();
    let rows = stdout(&endstop(&["endings", "--json", "--store", &store], b""));
    let row: Value = serde_json::from_str(rows.trim()).unwrap();
    assert_eq!((&row["closed"], &row["cause"]), (&"shut_down".into(), &"gateway_shutdown".into()));
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs curl: set ENDSTOP_SERVERS=1")]
fn an_ending_is_told_alike_wherever_it_is_told() {
    let folder = Folder::new("alike");
    let store = format!("sqlite:{}", folder.0.join("e.db").display());
    let admin = free();
    let config =
        format!("listen = '127.0.0.1:0'\nadmin = '{admin}'\nlog = 'json'\nstore = '{store}'\n");
    let file = folder.write("endstop.toml", config);
    let mut running = Running::start_with(&file, &["--upstream", "sim"]);
    let api = format!("http://{admin}/endstop/v1");
    let mut tail = Command::new("curl")
        .args(["-sN", "--max-time", "600", &format!("{api}/tail")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (tell, told) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        lines.filter(|line| line.starts_with("data: ")).for_each(|line| tell.send(line).unwrap());
    });
    let url = format!("http://{}/openai/v1/chat/completions", running.address);
    for model in
        ["length", "cut-before-word", "error-late", "status=429", "unknown-word", "html-200"]
    {
        // A listener hears what ends after it has begun to listen.
        let event = eventually("the tail tells it", || {
            curl(&[&url, "-d", &body(model, true)]);
            let wanted = format!("\"model\":\"{model}\"");
            std::iter::from_fn(|| told.recv_timeout(Duration::from_secs(1)).ok())
                .find(|line| line.contains(&wanted))
        });
        let from_tail: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        let id = from_tail["id"].as_str().unwrap();
        let mut from_log: Value = serde_json::from_str(&running.until(id)).unwrap();
        let fields = from_log.as_object_mut().unwrap();
        for own in ["timestamp", "level", "message"] {
            assert!(fields.remove(own).unwrap().is_string(), "{own}");
        }
        let read = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).ok();
        let from_memory = read(&curl(&[&format!("{api}/endings/{id}")])).unwrap();
        let from_store = eventually("the store has it", || {
            let all = read(&curl(&[&format!("{api}/endings")]))?;
            all["endings"].as_array()?.iter().find(|row| row["id"] == *id).cloned()
        });
        let shown = endstop(&["show", id, "--json", "--store", &store], b"");
        let from_command = read(&shown).unwrap()["ending"].clone();
        for other in [from_memory, from_store, from_log, from_command] {
            assert_eq!(other, from_tail, "{model}");
        }
        let schema = read(&curl(&[&format!("{api}/openapi.json")])).unwrap();
        let schema = &schema["components"]["schemas"]["Ending"]["properties"];
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(schema), names(&from_tail));
    }
    let _ = tail.kill();
    let _ = tail.wait();
    reading.join().unwrap();
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs curl: set ENDSTOP_SERVERS=1")]
fn an_unknown_finish_reason_is_logged_once_per_model() {
    let folder = Folder::new("unknown");
    let file =
        folder.write("endstop.toml", "listen = '127.0.0.1:0'\nadmin = 'off'\nstore = 'off'\n");
    let mut running = Running::start_with(&file, &["--upstream", "sim"]);
    let url = format!("http://{}/openai/v1/chat/completions", running.address);
    for model in ["unknown-word", "unknown-word", "x-sim:unknown-word", "unknown-word", "length"] {
        assert!(curl(&[&url, "-d", &body(model, false)]).status.success());
    }
    let mut lines = String::new();
    while !lines.contains("openai/length") {
        lines += &(running.until("openai/") + "\n");
    }
    let notices: Vec<&str> =
        lines.lines().filter(|line| line.contains("the unknown finish reason")).collect();
    assert_eq!(notices.len(), 2, "{lines}");
    assert!(notices[0].contains(" WARN  openai/unknown-word sent"), "{lines}");
    assert!(notices[0].contains("[provider.openai.words]"), "{lines}");
}

/// An upstream that quotes the request in the message of an error.
fn quoting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap_or(0);
            let seen = String::from_utf8_lossy(&bytes[..read]).replace(['\r', '\n', '"'], " ");
            let code = "plain-canary-key";
            let body = format!(
                r#"{{"error":{{"message":"bad request: {seen} prompt-canary","type":"auth_error","code":"{code}"}}}}"#
            );
            let head = format!(
                "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 x-request-id: plain-canary-key\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    address
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs curl: set ENDSTOP_SERVERS=1")]
fn messages_of_errors_are_not_told_unless_wanted_and_secrets_never() {
    let upstream = quoting();
    for wanted in [false, true] {
        let folder = Folder::new(&format!("messages-{wanted}"));
        let database = folder.0.join("e.db");
        let admin = free();
        let file = folder.write(
            "endstop.toml",
            format!(
                "listen = '127.0.0.1:0'\nadmin = '{admin}'\nlog = 'json'\nlog_error_messages = {wanted}\n\
                 store = 'sqlite:{}'\n[upstreams.mine]\nlike = 'openai'\nbase_url = 'http://{upstream}'\n",
                database.display()
            ),
        );
        let mut running = Running::start(&file);
        let url = format!("http://{}/mine/chat/completions?key=query-canary", running.address);
        let answer = curl(&[
            &url,
            "-H",
            "authorization: Bearer plain-canary-key",
            "-H",
            "cookie: session=cookie-canary",
            "-d",
            &body("m", false),
        ]);
        // The client gets what the provider sent.
        assert!(stdout(&answer).contains("prompt-canary"), "{}", stdout(&answer));
        let line = running.until("\"error_type\"");
        let row: Value = serde_json::from_str(&line).unwrap();
        let id = row["id"].as_str().unwrap();
        assert_eq!(row["native_finish_reason"], "auth_error", "{line}");
        assert_eq!(line.contains("prompt-canary"), wanted, "{line}");
        let memory = stdout(&curl(&[&format!("http://{admin}/endstop/v1/endings/{id}")]));
        assert!(memory.contains("auth_error") && !memory.contains("prompt-canary"), "{memory}");
        running.signal("TERM");
        running.child.wait().unwrap();
        let stored = std::fs::read(&database).unwrap();
        let stored = String::from_utf8_lossy(&stored);
        assert!(stored.contains("auth_error") && !stored.contains("prompt-canary"));
        for secret in ["plain-canary", "query-canary", "cookie-canary"] {
            assert!(!line.contains(secret), "{secret}: {line}");
            assert!(!memory.contains(secret), "{secret}: {memory}");
            assert!(!stored.contains(secret), "{secret}");
        }
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs curl: set ENDSTOP_SERVERS=1")]
fn a_damaged_store_is_not_ready_and_says_why() {
    let folder = Folder::new("damaged");
    let database = folder.0.join("e.db");
    let admin = free();
    let config = format!(
        "listen = '127.0.0.1:0'\nadmin = '{admin}'\nstore = 'sqlite:{}'\n",
        database.display()
    );
    let file = folder.write("endstop.toml", config);
    let ready = || {
        let answer = stdout(&curl(&["-w", "\n%{http_code}", &format!("http://{admin}/readyz")]));
        let (body, status) = answer.rsplit_once('\n').unwrap();
        (status.to_owned(), serde_json::from_str::<Value>(body).unwrap_or_default())
    };
    let ask = |running: &Running| {
        let url = format!("http://{}/openai/v1/chat/completions", running.address);
        curl(&[&url, "-d", &body("length", false)])
    };
    let mut running = Running::start_with(&file, &["--upstream", "sim"]);
    ask(&running);
    running.until("output_limit");
    assert_eq!(ready().0, "200");
    running.signal("TERM");
    running.child.wait().unwrap();
    // The first page stays, so that the file still looks like a database.
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(&database, bytes).unwrap();
    let running = Running::start_with(&file, &["--upstream", "sim"]);
    let (_, body) =
        eventually("it is not ready", || Some(ready()).filter(|(status, _)| status == "503"));
    let why = body["why"].as_str().unwrap();
    assert!(why.contains("e.db is damaged: ") && why.contains("move the file away"), "{why}");
    // Endings go on to be kept in the spool.
    assert!(stdout(&ask(&running)).contains("finish_reason"));
}

struct Certificate {
    cert: String,
    key: String,
}

impl Certificate {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        Self { cert: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    fn install(&self, folder: &Folder) {
        folder.write("cert.pem", &self.cert);
        folder.write("key.pem", &self.key);
    }
}

/// Everything changes at once, under load.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs curl: set ENDSTOP_SERVERS=1")]
fn a_reload_under_load_changes_what_is_new_and_loses_nothing() {
    let folder = Folder::new("reload");
    let sim = Simulated::start();
    let (before, after) = (Certificate::new(), Certificate::new());
    let trusted = |name: &str, certificate: &Certificate| folder.write(name, &certificate.cert);
    let (trust_before, trust_after) =
        (trusted("before.pem", &before), trusted("after.pem", &after));
    before.install(&folder);
    folder.write("access", "access-token-before");
    folder.write("admin", "admin-token-before");
    folder.write("own.key", "sk-own-key");
    let store = format!("sqlite:{}", folder.0.join("e.db").display());
    let admin = free();
    let at = |name: &str| folder.0.join(name).display().to_string();
    let toml = |log: &str, upstream: &str, more: &str| {
        format!(
            "listen = '127.0.0.1:0'\nadmin = '{admin}'\nlog = '{log}'\nstore = '{store}'\n{more}\n\
             tls = {{ cert = '{}', key = '{}' }}\naccess_token_file = '{}'\nadmin_token_file = '{}'\n\
             [upstreams.keyed]\nlike = 'openai'\nbase_url = '{url}/openai/v1'\nkey_file = '{}'\n\
             [upstreams.steady]\nlike = 'openai'\nbase_url = '{url}/openai/v1'\n\
             [upstreams.{upstream}]\nlike = 'openai'\nbase_url = '{url}/openai/v1'\n",
            at("cert.pem"),
            at("key.pem"),
            at("access"),
            at("admin"),
            at("own.key"),
            url = sim.url,
        )
    };
    let file = folder.write("endstop.toml", toml("human", "removed", ""));
    let mut running = Running::start(&file);
    let port = running.address.rsplit(':').next().unwrap().to_owned();
    let url = move |route: &str| format!("https://localhost:{port}/{route}/chat/completions");
    let asked = Arc::new(AtomicUsize::new(0));

    // Streams that are under way before, during and after.
    let pace = ["-H", "x-sim-pace: 100", "-N", "--insecure"];
    let streams: Vec<Child> = (0..4)
        .map(|_| {
            asked.fetch_add(1, Ordering::Relaxed);
            let mut curl = Command::new("curl");
            curl.args(["-s", "--max-time", "60", &url("removed"), "-d", &body("complete", true)]);
            curl.args(pace).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let streams: Vec<_> = streams
        .into_iter()
        .map(|mut child| {
            child.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
            child
        })
        .collect();
    // Others ask all the time.
    let over = Arc::new(AtomicBool::new(false));
    let wrong = Arc::new(Mutex::new(Vec::new()));
    let load: Vec<_> = (0..2)
        .map(|_| {
            let (over, wrong, asked) = (over.clone(), wrong.clone(), asked.clone());
            let url = url("steady");
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let answer = curl(&["--insecure", &url, "-d", &body("complete", false)]);
                    let text = stdout(&answer);
                    if !text.contains("\"finish_reason\":\"stop\"") {
                        wrong.lock().unwrap().push(format!("{:?} {text}", answer.status));
                    }
                }
            })
        })
        .collect();

    let status = |arguments: &[&str]| {
        let answer = curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], arguments].concat());
        stdout(&answer)
    };
    let keyed = |trust: &str, token: &str| {
        let header = format!("authorization: Bearer {token}");
        let code = status(&[
            "--cacert",
            trust,
            &url("keyed"),
            "-H",
            &header,
            "-d",
            &body("length", false),
        ]);
        asked.fetch_add(usize::from(code == "200"), Ordering::Relaxed);
        code
    };
    let operator = |token: &str| {
        let header = format!("authorization: Bearer {token}");
        status(&[&format!("http://{admin}/endstop/v1/upstreams"), "-H", &header])
    };
    assert_eq!(keyed(&trust_before, "access-token-before"), "200");
    assert_eq!(keyed(&trust_before, "access-token-after"), "401");
    assert_eq!(operator("admin-token-before"), "200");

    // A broken file changes nothing, although the files that it names have changed.
    folder.write("endstop.toml", "log = 'nonsense'\n");
    running.signal("HUP");
    let line = running.until("configuration not reloaded");
    assert!(line.contains("endstop.toml:1") && line.contains("nonsense"), "{line}");
    assert_eq!(keyed(&trust_before, "access-token-before"), "200");

    after.install(&folder);
    folder.write("access", "access-token-after");
    folder.write("admin", "admin-token-after");
    folder.write("endstop.toml", toml("json", "added", "data = '/elsewhere'"));
    running.signal("HUP");
    let line: Value = serde_json::from_str(&running.until("configuration reloaded")).unwrap();
    let says = "endstop.toml: changed access_token, admin_token, log, tls, upstreams";
    assert!(line["message"].as_str().unwrap().ends_with(says), "{line}");
    let line: Value = serde_json::from_str(&running.until("restart needed")).unwrap();
    assert!(line["message"].as_str().unwrap().contains("restart needed for data:"), "{line}");
    assert_eq!(keyed(&trust_after, "access-token-after"), "200");
    assert_eq!(keyed(&trust_after, "access-token-before"), "401");
    assert_eq!(keyed(&trust_before, "access-token-after"), "000", "the old certificate is gone");
    assert_eq!((&*operator("admin-token-after"), &*operator("admin-token-before")), ("200", "401"));
    let code = |route: &str| status(&["--insecure", &url(route), "-d", &body("length", false)]);
    assert_eq!(code("removed"), "404");
    assert_eq!(code("added"), "200");
    asked.fetch_add(1, Ordering::Relaxed);
    let line: Value = serde_json::from_str(&running.until("\"added\"")).unwrap();
    assert_eq!(line["reason"], "output_limit");

    for stream in streams {
        let output = stream.wait_with_output().unwrap();
        assert!(output.status.success() && stdout(&output).contains("data: [DONE]"));
    }
    over.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*wrong.lock().unwrap(), Vec::<String>::new());
    running.signal("TERM");
    running.until("draining");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    let rows = stdout(&endstop(&["endings", "--json", "--limit", "10000", "--store", &store], b""));
    assert_eq!(rows.lines().count(), asked.load(Ordering::Relaxed));
    assert!(!Path::new("/elsewhere").exists());
}
