//! Mock provider on loopback for OpenAI's chat wire. The model name chooses the response.
//!
//! Proxies rewrite paths and headers, but all of them keep the model name. The mock answers on
//! every path. Its events carry the time at which they were written.
//!
//! | model | response |
//! |---|---|
//! | `bench-plain` | one JSON body of 600 bytes |
//! | `bench-flood` | 200 events, each in a separate HTTP chunk, in one write |
//! | `bench-short` | one event and the end of the stream, in one write |
//! | `bench-close` | the same, then the connection is closed |
//! | `bench-paced-MS-COUNT` | COUNT events, one every MS milliseconds |
//! | `bench-split-MS-COUNT` | the same, with half an extra event after each |
//! | `bench-hold-MS-COUNT` | two tool calls of COUNT events each, one event every MS milliseconds |
//! | `bench-idle` | one event, then silence |

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Result;
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until};

use crate::clock;
use crate::process::{self, Scheduler};

/// Prefix of the time in an event.
pub(crate) const STAMP: &str = "stamp-";

/// Number of events in a flood.
pub(crate) const FLOOD: usize = 200;

static PLAIN: LazyLock<Vec<u8>> = LazyLock::new(plain);
static FLOODED: LazyLock<Vec<u8>> = LazyLock::new(flood);

const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n";

/// Serves until the parent process ends.
pub(crate) fn run(listen: SocketAddr, control: SocketAddr) -> Result<()> {
    process::until_input_ends(Scheduler::Current, async move {
        let requests = TcpListener::bind(listen).await?;
        let watchers = TcpListener::bind(control).await?;
        let (left, _) = broadcast::channel(1 << 14);
        let mut number = 0;
        loop {
            tokio::select! {
                accepted = requests.accept() => {
                    number += 1;
                    let connection = Connection::new(accepted?.0, left.clone(), number)?;
                    tokio::spawn(connection.serve());
                }
                accepted = watchers.accept() => {
                    tokio::spawn(tell(accepted?.0, left.subscribe()));
                }
            }
        }
    })
}

/// Writes the time at which each client disconnected, as eight bytes.
async fn tell(mut watcher: TcpStream, mut left: broadcast::Receiver<u64>) -> std::io::Result<()> {
    watcher.set_nodelay(true)?;
    while let Ok(time) = left.recv().await {
        watcher.write_all(&time.to_le_bytes()).await?;
    }
    Ok(())
}

/// Response that a model name chooses.
#[derive(Debug, PartialEq)]
enum Answer {
    Plain,
    Flood,
    Short { close: bool },
    Paced { period: Duration, count: u32, split: bool },
    Hold { period: Duration, count: u32 },
    Idle,
}

impl Answer {
    /// Parses the first `bench-` name in the body.
    fn named(body: &[u8]) -> Option<Self> {
        let at = memmem::find(body, b"bench-")?;
        let name = body.get(at..)?.split(|byte| *byte == b'"').next()?;
        let mut words = std::str::from_utf8(name).ok()?.split('-').skip(1);
        Some(match words.next()? {
            "plain" => Self::Plain,
            "flood" => Self::Flood,
            "short" => Self::Short { close: false },
            "close" => Self::Short { close: true },
            "idle" => Self::Idle,
            kind @ ("paced" | "split") => Self::Paced {
                period: Duration::from_millis(words.next()?.parse().ok()?),
                count: words.next()?.parse().ok()?,
                split: kind == "split",
            },
            "hold" => Self::Hold {
                period: Duration::from_millis(words.next()?.parse().ok()?),
                count: words.next()?.parse().ok()?,
            },
            _ => return None,
        })
    }
}

struct Connection {
    stream: TcpStream,
    left: broadcast::Sender<u64>,
    /// Connection number, which spreads the streams over their period.
    number: u32,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, left: broadcast::Sender<u64>, number: u32) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, left, number, buffer: Vec::new() })
    }

    async fn serve(mut self) -> std::io::Result<()> {
        while self.read_request().await? {
            match Answer::named(&self.buffer) {
                Some(Answer::Plain) => self.stream.write_all(&PLAIN).await?,
                Some(Answer::Flood) => self.stream.write_all(&FLOODED).await?,
                Some(Answer::Short { close }) => {
                    self.stream.write_all(&short(close)).await?;
                    if close {
                        return self.stream.shutdown().await;
                    }
                }
                Some(Answer::Paced { period, count, split }) => {
                    if !self.pace(period, count, split).await? {
                        return Ok(());
                    }
                }
                Some(Answer::Hold { period, count }) => self.hold(period, count).await?,
                Some(Answer::Idle) => {
                    let head = format!("{STREAM}\r\n").into_bytes();
                    self.stream.write_all(&[head, chunk(&event(clock::now()))].concat()).await?;
                    self.wait_until(None).await;
                    return Ok(());
                }
                None => {
                    let refusal = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
                    self.stream.write_all(refusal.as_bytes()).await?;
                }
            }
        }
        Ok(())
    }

    /// Reads one request into the buffer; returns `false` if the connection ended instead.
    async fn read_request(&mut self) -> std::io::Result<bool> {
        self.buffer.clear();
        loop {
            if is_whole(&self.buffer) {
                return Ok(true);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        }
    }

    /// Streams paced events and the end; returns `false` if the client disconnected first.
    async fn pace(&mut self, period: Duration, count: u32, split: bool) -> std::io::Result<bool> {
        let begin = format!("{STREAM}\r\n").into_bytes();
        self.stream.write_all(&[begin, chunk(&event(clock::now()))].concat()).await?;
        let (former, latter) = halves();
        let period_us = u32::try_from(period.as_micros()).unwrap_or(u32::MAX).max(1);
        let phase = self.number.wrapping_mul(0x9E37_79B1) % period_us;
        let mut next = Instant::now() + Duration::from_micros(phase.into());
        for number in 1..count {
            if self.wait_until(Some(next)).await {
                return Ok(false);
            }
            next += period;
            let whole = event(clock::now());
            let bytes = match (split, number) {
                (false, _) => chunk(&whole),
                (true, 1) => chunk(&[whole, former.clone()].concat()),
                (true, _) => chunk(&[latter.clone(), whole, former.clone()].concat()),
            };
            if self.stream.write_all(&bytes).await.is_err() {
                self.say_left();
                return Ok(false);
            }
        }
        let rest = if split && count > 1 { chunk(&latter) } else { Vec::new() };
        self.stream.write_all(&[rest, end("stop")].concat()).await?;
        Ok(true)
    }

    /// Streams two tool calls and the end.
    async fn hold(&mut self, period: Duration, count: u32) -> std::io::Result<()> {
        self.stream.write_all(format!("{STREAM}\r\n").as_bytes()).await?;
        let mut next = Instant::now();
        for call in 0..2 {
            for number in 1..=count {
                next += period;
                sleep_until(next).await;
                let piece = piece(call, number == 1, number == count, clock::now());
                self.stream.write_all(&chunk(&piece)).await?;
            }
        }
        self.stream.write_all(&end("tool_calls")).await
    }

    /// Waits for the time, if any, or for a disconnect; returns `true` if the client disconnected.
    async fn wait_until(&mut self, time: Option<Instant>) -> bool {
        let mut some = [0; 64];
        let sleep = async {
            match time {
                Some(time) => sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // A waiting client sends nothing, so any result of the read means that it disconnected.
            _ = self.stream.read(&mut some) => self.say_left(),
            () = sleep => return false,
        }
        true
    }

    fn say_left(&self) {
        // Fails if no watcher is connected.
        drop(self.left.send(clock::now()));
    }
}

/// Reports whether a request is complete, by its length or by its last chunk.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return false };
    let head = bytes.get(..end).unwrap_or_default().to_ascii_lowercase();
    let body = bytes.get(end + 4..).unwrap_or_default();
    match length(&head) {
        Some(length) => body.len() >= length,
        None if memmem::find(&head, b"transfer-encoding: chunked").is_some() => {
            body.ends_with(b"0\r\n\r\n")
        }
        None => true,
    }
}

/// Returns the `Content-Length` of a head in lower case.
pub(crate) fn length(head: &[u8]) -> Option<usize> {
    let at = memmem::find(head, b"\r\ncontent-length:")? + 17;
    let line = head.get(at..)?.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let size = format!("{:x}\r\n", bytes.len()).into_bytes();
    [&size, bytes, b"\r\n"].concat()
}

const HEAD: &str = r#""object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1-2025-04-14","service_tier":"default","system_fingerprint":"fp_f5bdcc3276""#;

/// Returns an event of 330 bytes with the time in its text.
fn event(time: u64) -> Vec<u8> {
    let text = format!(
        "data: {{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",{HEAD},\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\"{STAMP}{time:018} \"}},\"logprobs\":null,\"finish_reason\":null}}],\
         \"obfuscation\":\"aB3x\"}}\n\n"
    );
    text.into_bytes()
}

/// Returns an event without a time, in two parts.
fn halves() -> (Vec<u8>, Vec<u8>) {
    let text = String::from_utf8(event(0)).unwrap_or_default();
    let mut former = text.replace(STAMP, "......").into_bytes();
    let latter = former.split_off(former.len() / 2);
    (former, latter)
}

/// Returns an event with a part of a tool call.
fn piece(call: u32, first: bool, last: bool, time: u64) -> Vec<u8> {
    let name = if first { "\"id\":\"call_1\",\"type\":\"function\"," } else { "" };
    let function = if first { "\"name\":\"search\"," } else { "" };
    let arguments = match (first, last) {
        (true, _) => "{\\\"query\\\":\\\"",
        (false, true) => "\\\"}",
        (false, false) => "word ",
    };
    let text = format!(
        "data: {{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",{HEAD},\"choices\":[{{\"index\":0,\
         \"delta\":{{\"tool_calls\":[{{\"index\":{call},{name}\"function\":{{{function}\
         \"arguments\":\"{arguments}\"}}}}]}},\"logprobs\":null,\"finish_reason\":null}}],\
         \"obfuscation\":\"{STAMP}{time:018}\"}}\n\n"
    );
    text.into_bytes()
}

/// Returns the finish reason, the end marker and the end of the body.
fn end(word: &str) -> Vec<u8> {
    let word = format!(
        "data: {{\"id\":\"{STAMP}{:018}\",{HEAD},\"choices\":[{{\"index\":0,\"delta\":{{}},\
         \"logprobs\":null,\"finish_reason\":\"{word}\"}}]}}\n\n",
        clock::now()
    );
    let done = "data: [DONE]\n\n";
    [chunk(word.as_bytes()), chunk(done.as_bytes()), b"0\r\n\r\n".to_vec()].concat()
}

fn short(close: bool) -> Vec<u8> {
    let close = if close { "connection: close\r\n" } else { "" };
    let head = format!("{STREAM}{close}\r\n").into_bytes();
    [head, chunk(&event(clock::now())), end("stop")].concat()
}

fn flood() -> Vec<u8> {
    let head = format!("{STREAM}\r\n").into_bytes();
    // All events differ, because some proxies take repeated events for a stuck model.
    let events: Vec<u8> = (0..FLOOD).flat_map(|number| chunk(&event(number as u64))).collect();
    [head, events, end("stop")].concat()
}

/// Returns a response with a body of 600 bytes.
fn plain() -> Vec<u8> {
    let body = |text: &str| {
        format!(
            "{{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\"object\":\"chat.completion\",\
             \"created\":1741569952,\"model\":\"gpt-4.1-2025-04-14\",\"choices\":[{{\"index\":0,\
             \"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\"refusal\":null}},\
             \"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":12,\
             \"completion_tokens\":34,\"total_tokens\":46}},\"service_tier\":\"default\"}}"
        )
    };
    let text = "word ".repeat(200);
    let text = text.get(..600 - body("").len()).unwrap_or_default();
    let body = body(text);
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_to_answer() {
        let named = |name: &str| Answer::named(format!("{{\"model\": \"{name}\"}}").as_bytes());
        assert_eq!(named("bench-plain"), Some(Answer::Plain));
        assert_eq!(named("other"), None);
        let period = Duration::from_millis(20);
        let split = Answer::Paced { period, count: 150, split: true };
        assert_eq!(named("bench-split-20-150"), Some(split));
    }

    #[test]
    fn a_request_is_whole_by_length_or_last_chunk() {
        assert!(!is_whole(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"));
        assert!(is_whole(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"));
        assert!(!is_whole(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"));
        assert!(is_whole(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
        ));
    }

    #[test]
    fn the_sizes_are_those_that_are_promised() {
        assert!(plain().ends_with(b"}") && plain().len() > 600);
        assert_eq!(length(&plain()), Some(600));
        assert_eq!(event(1).len(), 330);
    }
}
