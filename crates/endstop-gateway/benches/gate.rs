//! The gate: costs of a response that must not rise.
//!
//! It measures instructions (by callgrind), allocations and system calls (by strace) of a gateway in
//! guard mode that records to its spool: per plain answer, and per event of a stream.
//! `benches/costs.txt` holds the accepted numbers. A rise of more than 3 % fails.
//!
//! The same responses are measured with exporters on, and with exporters whose endpoints are dead, on the
//! threads that serve. They may cost at most 1 % more than without.
//!
//! `cargo bench -p endstop-gateway --bench gate` compares; `-- write` writes the numbers anew, `-- export`
//! measures the exporters alone. It needs valgrind and strace. `serve UPSTREAM EXPORTERS` is the gateway that
//! is measured, until its input ends.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark fails loudly"
)]

use std::alloc::System;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use endstop_gateway::config::{Log, SinkConfig, UpstreamConfig};
use endstop_gateway::{Config, Gateway};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The rise that is accepted, since compilers differ a little.
const MAX_RISE: f64 = 0.03;
/// Goals for a plain answer: instructions and allocations.
const GOALS: (f64, f64) = (120_000.0, 60.0);
/// Requests of the shorter and of the longer run. Their difference counts.
const RUNS: (u32, u32) = (200, 800);
/// Events of a stream.
const EVENTS: u32 = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => match (compare(&measure()), compare_exporters()) {
            (ExitCode::SUCCESS, code) => code,
            (code, _) => code,
        },
        ["export"] => compare_exporters(),
        ["write"] => {
            std::fs::write(costs_file(), table(&measure())).unwrap();
            ExitCode::SUCCESS
        }
        ["serve", upstream, exporters] => serve(upstream, exporters),
        _ => panic!("usage: gate [write | export | serve UPSTREAM EXPORTERS]"),
    }
}

/// Costs of one workload.
struct Cost {
    name: &'static str,
    instructions: f64,
    allocations: f64,
    calls: f64,
}

fn measure() -> Vec<Cost> {
    let upstream = mock();
    let workloads = [("plain answer", "plain", 1), ("streamed event", "stream", EVENTS)];
    let cost = |(name, model, parts)| {
        let per_part = |count: fn(SocketAddr, &str, u32) -> f64| {
            let rise = count(upstream, model, RUNS.1) - count(upstream, model, RUNS.0);
            rise / f64::from(RUNS.1 - RUNS.0) / f64::from(parts)
        };
        Cost {
            name,
            instructions: per_part(instructions).round(),
            allocations: per_part(allocations),
            calls: per_part(system_calls),
        }
    };
    workloads.map(cost).into()
}

/// Exporters of the gateways that are compared. The first is without.
const EXPORTERS: [&str; 3] = ["off", "on", "dead"];
/// Part that exporters may add to a response.
const MAX_EXPORT: f64 = 0.01;

/// Compares the instructions per response on the threads that serve, with and without exporters.
fn compare_exporters() -> ExitCode {
    let upstream = mock();
    let mut code = ExitCode::SUCCESS;
    for (name, model) in [("plain answer", "plain"), ("stream", "stream")] {
        let cost = |exporters: &str| {
            let count = |runs| serving_instructions(upstream, model, runs, exporters);
            (count(RUNS.1) - count(RUNS.0)) / f64::from(RUNS.1 - RUNS.0)
        };
        let [off, on, dead] = EXPORTERS.map(cost);
        let share = |cost: f64| 100.0 * (cost / off - 1.0);
        println!(
            "{name:<16} {off:>9.0} without exporters, {on:>9.0} with ({:+.2} %), {dead:>9.0} with dead ones \
             ({:+.2} %)",
            share(on),
            share(dead)
        );
        if on.max(dead) > off * (1.0 + MAX_EXPORT) {
            eprintln!("{name}: exporters add more than {} %", 100.0 * MAX_EXPORT);
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Returns the instructions of the threads that serve requests.
fn serving_instructions(upstream: SocketAddr, model: &str, runs: u32, exporters: &str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--separate-threads=yes"]);
    command.arg(format!("--callgrind-out-file={}", folder.path().join("out").display()));
    Served::start(&mut command, upstream, exporters).run(model, runs);
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let texts = files.map(|file| std::fs::read_to_string(file).unwrap());
    // Only these threads know the functions of a response.
    let serving = texts.filter(|text| text.contains("endstop_gateway::serve::"));
    let total = |text: String| {
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
        total.trim().parse::<f64>().unwrap()
    };
    let all: Vec<f64> = serving.map(total).collect();
    assert!(!all.is_empty(), "no thread has served");
    all.into_iter().sum()
}

fn allocations(upstream: SocketAddr, model: &str, runs: u32) -> f64 {
    Served::start(&mut Command::new("env"), upstream, "off").run(model, runs)
}

fn instructions(upstream: SocketAddr, model: &str, runs: u32) -> f64 {
    let out = beside("callgrind");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet"]);
    command.arg(format!("--callgrind-out-file={}", out.display()));
    Served::start(&mut command, upstream, "off").run(model, runs);
    let text = std::fs::read_to_string(out).unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
    total.trim().parse().unwrap()
}

fn system_calls(upstream: SocketAddr, model: &str, runs: u32) -> f64 {
    let out = beside("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&out);
    Served::start(&mut command, upstream, "off").run(model, runs);
    let text = std::fs::read_to_string(out).unwrap();
    let total = text.lines().find(|line| line.ends_with(" total")).unwrap();
    total.split_whitespace().nth(3).unwrap().parse().unwrap()
}

fn beside(ending: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_extension(ending)
}

/// A gateway in a child process.
struct Served {
    child: Child,
    address: SocketAddr,
    output: BufReader<ChildStdout>,
}

impl Served {
    /// Starts a gateway as an argument of this command.
    fn start(command: &mut Command, upstream: SocketAddr, exporters: &str) -> Self {
        command
            .arg(std::env::current_exe().unwrap())
            .arg("serve")
            .arg(format!("http://{upstream}"))
            .arg(exporters);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("apt-get install valgrind strace");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().parse().unwrap_or_else(|_| panic!("no gateway: {line}"));
        Self { child, address, output }
    }

    /// Sends this many requests, ends the gateway, and returns the number of its allocations.
    fn run(mut self, model: &str, runs: u32) -> f64 {
        ask(self.address, model, runs);
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest.trim().parse().unwrap()
    }
}

/// Serves until the input ends; then prints the number of allocations.
fn serve(upstream: &str, exporters: &str) -> ExitCode {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        admin: None,
        log: Log::Off,
        // Port 1 refuses connections, so the spool is never loaded.
        store: Some("postgres://nobody@127.0.0.1:1/none".to_owned()),
        data: Some(data.path().to_owned()),
        ..Config::default()
    };
    if exporters != "off" {
        config.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    }
    if exporters == "dead" {
        let token = data.path().join("token");
        std::fs::write(&token, "xaat-none").unwrap();
        for (name, url) in
            [("axiom", "axiom:http://127.0.0.1:1"), ("otlp", "otlp:http://127.0.0.1:1")]
        {
            let (url, token_file) = (Some(url.to_owned()), Some(token.clone()));
            let sink = SinkConfig { url, token_file, ..SinkConfig::default() };
            config.sinks.insert(name.to_owned(), sink);
        }
    }
    let base_url = Some(format!("{upstream}/v1"));
    let openai = UpstreamConfig { base_url, ..UpstreamConfig::default() };
    config.upstreams.insert("openai".to_owned(), openai);
    runtime.spawn(async move {
        let gateway = Gateway::bind(config).await.unwrap();
        println!("{}", gateway.address());
        gateway.run(std::future::pending()).await;
    });
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    println!("{}", ALLOCATOR.stats().allocations);
    drop(data);
    // Only requests count, not the end of the runtime.
    std::process::exit(0);
}

/// Sends this many requests, one after the other, over one connection.
fn ask(address: SocketAddr, model: &str, runs: u32) {
    let streams = model == "stream";
    let stream = if streams { ",\"stream\":true" } else { "" };
    let body = format!(
        "{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Say it in two \
         hundred words.\"}}]{stream}}}"
    );
    let request = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer \
         sk-bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..runs {
        connection.write_all(request.as_bytes()).unwrap();
        let mut length = 0;
        while !is_whole(&buffer[..length], streams) {
            let read = connection.read(&mut buffer[length..]).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&buffer[..length]));
            length += read;
        }
        let text = String::from_utf8_lossy(&buffer[..length]);
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
}

fn is_whole(response: &[u8], streams: bool) -> bool {
    let Some(end) = memchr::memmem::find(response, b"\r\n\r\n") else { return false };
    if streams {
        return response.ends_with(b"\r\n0\r\n\r\n");
    }
    let head = String::from_utf8_lossy(&response[..end]);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    response.len() == end + 4 + length.parse::<usize>().unwrap()
}

/// An upstream that answers every request at once: a plain body, or a stream in one write.
fn mock() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || answer(connection.unwrap()));
        }
    });
    address
}

fn answer(mut connection: TcpStream) {
    connection.set_nodelay(true).unwrap();
    let (plain, stream) = (plain(), stream());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut length = 0;
        // Every request ends like this.
        while !(buffer[..length].ends_with(b"}]}") || buffer[..length].ends_with(b":true}")) {
            let Ok(read @ 1..) = connection.read(&mut buffer[length..]) else { return };
            length += read;
        }
        let streams = buffer[..length].ends_with(b":true}");
        let response = if streams { &stream } else { &plain };
        if connection.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn plain() -> String {
    let body = format!(
        "{{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\"object\":\"chat.completion\",\
         \"created\":1741569952,\"model\":\"gpt-4.1-2025-04-14\",\"choices\":[{{\"index\":0,\
         \"message\":{{\"role\":\"assistant\",\"content\":\"{}\",\"refusal\":null}},\
         \"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":12,\
         \"completion_tokens\":34,\"total_tokens\":46}},\"service_tier\":\"default\"}}",
        "word ".repeat(49)
    );
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn stream() -> String {
    let chunk = |data: &str| format!("{:x}\r\n{data}\r\n", data.len());
    let event = |delta: &str, word: &str| {
        chunk(&format!(
            "data: {{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\
             \"object\":\"chat.completion.chunk\",\"created\":1741569952,\
             \"model\":\"gpt-4.1-2025-04-14\",\"choices\":[{{\"index\":0,\"delta\":{delta},\
             \"logprobs\":null,\"finish_reason\":{word}}}]}}\n\n"
        ))
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
    let text = |number| event(&format!("{{\"content\":\" token{number:04}\"}}"), "null");
    let events: String = (2..EVENTS).map(text).collect();
    let last = event("{}", "\"stop\"");
    format!("{head}\r\n\r\n{events}{last}{}0\r\n\r\n", chunk("data: [DONE]\n\n"))
}

fn costs_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/costs.txt")
}

fn table(costs: &[Cost]) -> String {
    let mut text = String::from(
        "# Instructions, allocations and system calls, in guard with the spool.\n\
         # Written by `cargo bench -p endstop-gateway --bench gate -- write`.\n",
    );
    for Cost { name, instructions, allocations, calls } in costs {
        let _ = writeln!(text, "{name:<16} {instructions:>8} {allocations:>7.1} {calls:>6.2}");
    }
    text
}

fn compare(costs: &[Cost]) -> ExitCode {
    let known = std::fs::read_to_string(costs_file()).unwrap();
    let known: BTreeMap<&str, Vec<f64>> = known
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, numbers) = line.split_at(16);
            let numbers = numbers.split_whitespace().map(|number| number.parse().unwrap());
            (name.trim(), numbers.collect())
        })
        .collect();
    print!("{}", table(costs));
    let mut code = ExitCode::SUCCESS;
    for Cost { name, instructions, allocations, calls } in costs {
        let known = known.get(name).unwrap_or_else(|| panic!("{name} is not in costs.txt"));
        // Part of an allocation or of a call depends on timing.
        let found = [
            ("instructions", instructions, 0.0),
            ("allocations", allocations, 0.5),
            ("system calls", calls, 0.5),
        ];
        for ((what, found, slack), known) in found.into_iter().zip(known) {
            if *found > known * (1.0 + MAX_RISE) + slack {
                eprintln!("{name}: {found} {what}, at most {known} expected");
                code = ExitCode::FAILURE;
            }
        }
        if *name == "plain answer" && (*instructions > GOALS.0 || *allocations > GOALS.1) {
            eprintln!("{name}: the goal is {} instructions and {} allocations", GOALS.0, GOALS.1);
            code = ExitCode::FAILURE;
        }
    }
    code
}
