//! Overhead of the client per streamed event, beside a bare loop of reqwest and serde over the same responses.
//!
//! `cargo bench -p endstop-client --bench stream` prints the instructions per event (by callgrind, which the load of
//! the machine does not change) and their ratio, and fails if it is above the goal. It needs valgrind.
//! `bare URL STREAMS` and `client URL STREAMS` are the programs that are measured; each HTTP chunk is one event.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark fails loudly"
)]

use std::borrow::Cow;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, ExitCode};

use endstop_client::{Client, RunEvent};
use serde::Deserialize;

/// The highest ratio that is accepted.
const GOAL: f64 = 1.2;
/// Streams of the shorter and of the longer run. Their difference counts.
const RUNS: (u32, u32) = (10, 40);
/// Events of a stream.
const EVENTS: u32 = 400;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => compare(),
        ["bare", url, streams] => run(bare(url, streams.parse().unwrap())),
        ["client", url, streams] => run(client(url, streams.parse().unwrap())),
        _ => panic!("usage: stream [bare URL STREAMS | client URL STREAMS]"),
    }
}

fn compare() -> ExitCode {
    let url = serve();
    let per_event = |program: &str| {
        let [short, long] = [RUNS.0, RUNS.1].map(|runs| instructions(program, &url, runs));
        (long - short) / f64::from(RUNS.1 - RUNS.0) / f64::from(EVENTS)
    };
    let (bare, client) = (per_event("bare"), per_event("client"));
    let ratio = client / bare;
    println!(
        "instructions per streamed event: bare loop {bare:.0}, client {client:.0}, ratio {ratio:.2}"
    );
    if ratio > GOAL {
        println!("the ratio is above the goal of {GOAL}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn instructions(program: &str, url: &str, streams: u32) -> f64 {
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}.{program}.callgrind", exe.display()))
        .arg(&exe)
        .args([program, url, &streams.to_string()])
        .output()
        .expect("valgrind is not installed: apt-get install valgrind");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("Collected"));
    line.unwrap_or_else(|| panic!("{text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

fn run(program: impl Future<Output = ()>) -> ExitCode {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(program);
    ExitCode::SUCCESS
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}

/// Reads streams as lean as it can be done by hand.
async fn bare(url: &str, streams: u32) {
    let http = reqwest::Client::new();
    for _ in 0..streams {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}"#;
        let request = http.post(format!("{url}/openai/v1/chat/completions")).body(body);
        let mut response = request.send().await.unwrap();
        let (mut buffer, mut text, mut finished) = (Vec::new(), String::new(), false);
        while let Some(chunk) = response.chunk().await.unwrap() {
            buffer.extend_from_slice(&chunk);
            let mut rest = std::str::from_utf8(&buffer).unwrap();
            while let Some((line, after)) = rest.split_once('\n') {
                if let Some(data) = line.strip_prefix("data: ")
                    && data != "[DONE]"
                {
                    let payload: Payload<'_> = serde_json::from_str(data).unwrap();
                    for choice in payload.choices {
                        text.push_str(choice.delta.content.as_deref().unwrap_or_default());
                        finished |= choice.finish_reason.is_some();
                    }
                }
                rest = after;
            }
            let read = buffer.len() - rest.len();
            buffer.drain(..read);
        }
        assert!(finished && text.len() > EVENTS as usize);
    }
}

async fn client(url: &str, streams: u32) {
    let client = Client::builder().gateway(url).build().unwrap();
    for _ in 0..streams {
        let mut stream = client.stream("openai/m", "Hi").unwrap();
        let (mut text, mut finished) = (String::new(), false);
        while let Some(event) = stream.next().await {
            if let RunEvent::Text(more) = event {
                text.push_str(&more);
            } else if let RunEvent::Ended(reply) = event {
                finished = reply.text().is_some();
            }
        }
        assert!(finished && text.len() > EVENTS as usize);
    }
}

/// Serves the same stream to every request, with one HTTP chunk per event.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            std::thread::spawn(move || answer(socket.unwrap()));
        }
    });
    format!("http://{address}")
}

fn answer(mut socket: TcpStream) {
    let mut response =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    let mut event = |data: &str| {
        let event = format!("data: {data}\n\n");
        response.extend(format!("{:x}\r\n{event}\r\n", event.len()).bytes());
    };
    for number in 0..EVENTS {
        event(&payload(&format!(r#"{{"content":" word{number}"}}"#), "null"));
    }
    event(&payload("{}", r#""stop""#));
    event("[DONE]");
    response.extend(b"0\r\n\r\n");
    let mut request = [0; 1 << 16];
    // A request comes whole: it is short.
    while socket.read(&mut request).is_ok_and(|read| read > 0) {
        socket.write_all(&response).unwrap();
    }
}

fn payload(delta: &str, finish_reason: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion.chunk","created":1741570283,"model":"gpt-5","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish_reason}}}],"usage":null}}"#
    )
}
