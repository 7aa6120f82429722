//! Cost of the detector and of other parsers, in instructions and allocations per event.
//!
//! `cargo bench -p endstop` runs this program under callgrind once for each row, at two sizes, and
//! prints the difference per event. Instruction counts do not depend on the load of the machine. It
//! needs valgrind. With arguments, the program runs the workload itself.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark fails loudly"
)]

use std::alloc::System;
use std::hint::black_box;

mod callgrind;
mod events;

use bytes::Bytes;
use callgrind::instructions;
use endstop::frame::sse::Sse;
use endstop::provider;
use endstop::{Head, Reader, RequestInfo, Watcher};
use events::{STREAMS, Stream, WORDS};
use eventsource_stream::Eventsource;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of different events. A workload repeats them.
const EVENTS: usize = 100;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [line, size, cut, _] if line == "line" => {
            one_line(size.parse().unwrap(), cut.parse().unwrap());
        }
        [contender, wire, cut, rounds] => {
            let rounds = rounds.parse().unwrap();
            let chunks = recut(&events(wire), cut.parse().unwrap());
            run(contender, wire, &chunks, rounds);
        }
        [] => report(),
        _ => eprintln!("usage: detector [CONTENDER WIRE CUT ROUNDS]"),
    }
}

/// Reads one event whose data is a line of this size, in chunks.
fn one_line(size: usize, cut: usize) {
    let text = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(size)
    );
    let head = Head { status: 200, content_type: "text/event-stream" };
    let mut reader = Watcher::new(&provider::OPENAI, head, RequestInfo::default());
    text.as_bytes().chunks(cut).for_each(|chunk| reader.watch(chunk));
    black_box(&reader);
}

/// Returns one event per chunk, in the format of the wire.
fn events(wire: &str) -> Vec<Vec<u8>> {
    let stream = Stream::named(wire);
    (0..EVENTS).map(|number| stream.event(WORDS[number % WORDS.len()])).collect()
}

/// Returns the same bytes in chunks of another size; zero keeps one event per chunk.
fn recut(events: &[Vec<u8>], size: usize) -> Vec<Vec<u8>> {
    match size {
        0 => events.to_vec(),
        size => events.concat().chunks(size).map(<[u8]>::to_vec).collect(),
    }
}

/// Fields that the reference implementation reads from a chunk.
#[derive(Deserialize)]
#[expect(dead_code, reason = "it is read to be measured")]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is read to be measured")]
struct Choice<'a> {
    index: u32,
    #[serde(borrow)]
    delta: Delta<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is read to be measured")]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<std::borrow::Cow<'a, str>>,
}

fn run(contender: &str, wire: &str, chunks: &[Vec<u8>], rounds: usize) {
    let all = || (0..rounds).flat_map(|_| chunks);
    match contender {
        "watch" => {
            let stream = Stream::named(wire);
            let head = Head { status: 200, content_type: stream.content_type() };
            let mut watcher = Watcher::new(stream.profile(), head, RequestInfo::default());
            watcher.watch(stream.opening());
            all().for_each(|chunk| watcher.watch(chunk));
            black_box(&watcher);
        }
        "read" => {
            let stream = Stream::named(wire);
            let head = Head { status: 200, content_type: stream.content_type() };
            let mut reader = Reader::new(stream.profile(), head, RequestInfo::default());
            reader.read(stream.opening(), |_| {});
            for chunk in all() {
                reader.read(chunk, |event| {
                    black_box(event);
                });
            }
            black_box(&reader);
        }
        "bound" => {
            let needle = memchr::memmem::Finder::new(b"\"finish_reason\":\"");
            let mut carry: Vec<u8> = Vec::new();
            for chunk in all() {
                let mut rest = chunk.as_slice();
                while let Some(end) = memchr::memchr(b'\n', rest) {
                    let line = &rest[..end];
                    if carry.is_empty() {
                        black_box(needle.find(line));
                    } else {
                        carry.extend_from_slice(line);
                        black_box(needle.find(&carry));
                        carry.clear();
                    }
                    rest = &rest[end + 1..];
                }
                carry.extend_from_slice(rest);
            }
        }
        "framing+serde" => {
            let mut sse = Sse::new(16 << 20);
            for chunk in all() {
                sse.push(chunk, |frame| {
                    black_box(serde_json::from_slice::<Chunk<'_>>(frame.data).unwrap());
                })
                .unwrap();
            }
        }
        "framing" => {
            let mut sse = Sse::new(16 << 20);
            for chunk in all() {
                sse.push(chunk, |frame| {
                    black_box(frame);
                })
                .unwrap();
            }
        }
        "sse-stream" => {
            let new = || sse_stream::SseByteStream::new(stream::iter(chunk_bytes(chunks)));
            drain(rounds, new, |event| drop(black_box(event)));
        }
        "sseer" => drain(
            rounds,
            || sseer::event_stream::EventStream::new(stream::iter(chunk_bytes(chunks))),
            |event| drop(black_box(event)),
        ),
        "eventsource-stream" => drain(
            rounds,
            || stream::iter(chunk_bytes(chunks)).eventsource(),
            |event| drop(black_box(event)),
        ),
        "eventsource-stream+Value" => drain(
            rounds,
            || stream::iter(chunk_bytes(chunks)).eventsource(),
            |event| {
                black_box(serde_json::from_str::<serde_json::Value>(&event.unwrap().data).unwrap());
            },
        ),
        "register" => {
            use endstop::registry::{Entry, Like, Registry};
            let mut registry = Registry::default();
            for _ in all() {
                let like = Like::Provider(&provider::OPENAI_COMPATIBLE);
                let entry = Entry {
                    hosts: vec!["api.acme.example".to_owned()],
                    ..Entry::new("acme", like)
                };
                black_box(registry.register(entry));
            }
        }
        "nothing" => all().for_each(|chunk| {
            black_box(chunk);
        }),
        "bytes" => {
            drain(rounds, || stream::iter(chunk_bytes(chunks)), |chunk| drop(black_box(chunk)));
        }
        _ => panic!("no such contender: {contender}"),
    }
}

fn chunk_bytes(chunks: &[Vec<u8>]) -> Vec<Result<Bytes, std::io::Error>> {
    chunks.iter().map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect()
}

/// Polls a stream that is always ready to its end, once per round.
fn drain<S: futures_util::Stream>(rounds: usize, new: impl Fn() -> S, mut on: impl FnMut(S::Item)) {
    for _ in 0..rounds {
        let mut stream = std::pin::pin!(new());
        futures_executor::block_on(async {
            while let Some(item) = stream.next().await {
                on(item);
            }
        });
    }
}

/// Returns the instructions per event, from two runs, so that the fixed cost cancels out.
fn per_event(contender: &str, wire: &str, cut: usize) -> f64 {
    let cut = cut.to_string();
    let few = instructions(&[contender, wire, &cut, "4"]);
    let many = instructions(&[contender, wire, &cut, "24"]);
    (many - few) / (20.0 * EVENTS as f64)
}

fn allocations_per_event(contender: &str, wire: &str) -> f64 {
    let chunks = recut(&events(wire), 0);
    run(contender, wire, &chunks, 2);
    let count = |rounds| {
        let region = Region::new(ALLOCATOR);
        run(contender, wire, &chunks, rounds);
        region.change().allocations
    };
    let (few, many) = (count(10), count(110));
    (many as f64 - few as f64) / (100.0 * EVENTS as f64)
}

fn report() {
    println!("S1  instructions and allocations per event, one event a chunk");
    println!(
        "{:<26} {:>24} {:>9} {:>9} {:>8}",
        "contender", "wire", "Ir/event", "x bound", "allocs"
    );
    let bound = per_event("bound", "openai-chat", 0);
    let supply = per_event("bytes", "openai-chat", 0);
    let row = |contender: &str, wire: &str| {
        let mut cost = per_event(contender, wire, 0);
        let mut allocations = allocations_per_event(contender, wire);
        // The crates take owned chunks from a stream; creating those is not their cost.
        if ["sse-stream", "sseer", "eventsource-stream", "eventsource-stream+Value"]
            .contains(&contender)
        {
            cost -= supply;
            allocations -= allocations_per_event("bytes", wire);
        }
        println!("{contender:<26} {wire:>24} {cost:>9.0} {:>9.2} {allocations:>8.2}", cost / bound);
        cost
    };
    let size = Stream::named("openai-chat").event(WORDS[0]).len();
    println!("(a plain chat event here has {size} bytes)");
    row("bound", "openai-chat");
    for stream in STREAMS {
        row("watch", stream.name);
    }
    let read = row("read", "openai-chat");
    row("framing", "openai-chat");
    let reference = row("framing+serde", "openai-chat");
    println!("{:<26} {:>24} {:>9.2}x", "read / framing+serde", "openai-chat", read / reference);
    for contender in ["sse-stream", "sseer", "eventsource-stream", "eventsource-stream+Value"] {
        row(contender, "openai-chat");
    }

    println!(
        "\nR1  registering a provider: {:.0} instructions",
        per_event("register", "openai-chat", 0)
    );

    println!("\nS2  instructions per byte, the same bytes cut otherwise (chat)");
    println!("{:>8} {:>10} {:>10}", "cut", "watch", "bound");
    let bytes = events("openai-chat").concat().len() as f64 / EVENTS as f64;
    for cut in [1, 2, 7, 64, 128, 1400, 16384] {
        let (ours, theirs) = (
            per_event("watch", "openai-chat", cut) / bytes,
            per_event("bound", "openai-chat", cut) / bytes,
        );
        println!("{cut:>8} {ours:>10.2} {theirs:>10.2}");
    }

    println!("\nS3  one line in 64-byte pieces: instructions per byte");
    println!("{:>10} {:>10}", "line", "watch");
    for size in [4 << 10, 64 << 10, 1 << 20, 4 << 20] {
        let cost = instructions(&["line", &size.to_string(), "64", "1"])
            - instructions(&["line", "0", "64", "1"]);
        println!("{size:>10} {:>10.2}", cost / f64::from(size));
    }

    println!("\nS4  many events: instructions per event (chat)");
    println!("{:>10} {:>10}", "events", "watch");
    let start = instructions(&["watch", "openai-chat", "0", "0"]);
    for rounds in [10, 100, 1000, 10_000] {
        let cost = instructions(&["watch", "openai-chat", "0", &rounds.to_string()]) - start;
        println!("{:>10} {:>10.1}", rounds * EVENTS, cost / (rounds * EVENTS) as f64);
    }
}
