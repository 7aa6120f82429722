//! The gate: costs that must not rise.
//!
//! It measures instructions (by callgrind) and allocations: per streamed event on every wire, per
//! plain body of 32 kB, and per registered provider. `benches/costs.txt` holds the accepted numbers.
//! A rise of more than 3 % fails, and so does a cost above its fixed bound.
//!
//! `cargo bench -p endstop --bench gate` compares; `-- write` writes the numbers anew. It needs
//! valgrind. With other arguments it is the workload itself.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark fails loudly"
)]

mod callgrind;
mod events;

use std::alloc::System;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;

use callgrind::instructions;
use endstop::dialect::{self, Dialect};
use endstop::provider;
use endstop::registry::{Entry, Like, Registry};
use endstop::{Head, RequestInfo, TransportEnd, Watcher};
use events::{STREAMS, Stream, WORDS};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The rise that is accepted, since compilers differ a little.
const MAX_RISE: f64 = 0.03;

/// Instructions for newline framing and one substring search of a chat event, the minimum for any
/// detector: `bound` in the table of `cargo bench -p endstop`.
const BOUND: f64 = 536.0;

/// Bounds that stay where they are when the table is written anew, in instructions. None of these
/// events allocates.
const BOUNDS: &[(&str, f64)] = &[
    ("event openai-chat", 899.0),
    ("event gemini-generate", 2.0 * BOUND),
    ("event gemini-generate (array)", 3.0 * BOUND),
    ("event bedrock-converse", 2.3 * BOUND),
];

/// Plain bodies, by their provider; `TEXT` stands for the answer.
const BODIES: &[(&str, &provider::Provider, &str)] = &[
    (
        "openai-chat",
        &provider::OPENAI,
        r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"TEXT"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9}}"#,
    ),
    (
        "anthropic-messages",
        &provider::ANTHROPIC,
        r#"{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"TEXT"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":9}}"#,
    ),
    (
        "gemini-generate",
        &provider::GOOGLE,
        r#"{"candidates":[{"content":{"parts":[{"text":"TEXT"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":9}}"#,
    ),
    (
        "bedrock-converse",
        &provider::BEDROCK,
        r#"{"output":{"message":{"role":"assistant","content":[{"text":"TEXT"}]}},"stopReason":"end_turn","usage":{"inputTokens":9,"outputTokens":9}}"#,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => compare(&measure()),
        ["write"] => {
            std::fs::write(costs_file(), table(&measure())).unwrap();
            ExitCode::SUCCESS
        }
        [workload, name, rounds] => {
            run(workload, name, rounds.parse().unwrap());
            ExitCode::SUCCESS
        }
        _ => panic!("usage: gate [write | WORKLOAD NAME ROUNDS]"),
    }
}

/// One thing that is measured.
struct Cost {
    name: String,
    instructions: f64,
    allocations: f64,
}

fn measure() -> Vec<Cost> {
    let streams = STREAMS.iter().map(|stream| ("event", stream.name));
    let bodies = BODIES.iter().map(|(name, ..)| ("body", *name));
    let all = streams.chain(bodies).chain([("register", "provider")]);
    all.map(|(workload, name)| {
        let (few, many) = (40, 240);
        let instructions = |rounds: u32| instructions(&[workload, name, &rounds.to_string()]);
        let allocations = |rounds| {
            let region = Region::new(ALLOCATOR);
            run(workload, name, rounds);
            region.change().allocations as f64
        };
        let per_round =
            |few_cost: f64, many_cost: f64| (many_cost - few_cost) / f64::from(many - few);
        Cost {
            name: format!("{workload} {name}"),
            instructions: per_round(instructions(few), instructions(many)).round(),
            allocations: per_round(allocations(few), allocations(many)),
        }
    })
    .collect()
}

fn run(workload: &str, name: &str, rounds: u32) {
    match workload {
        "event" => watch(Stream::named(name), rounds),
        "body" => {
            let (_, provider, template) = BODIES.iter().find(|(known, ..)| *known == name).unwrap();
            let text = WORDS.concat().repeat(32_000 / WORDS.concat().len());
            let body = template.replace("TEXT", &text);
            for _ in 0..rounds {
                let head = Head { status: 200, content_type: "application/json" };
                let mut watcher = Watcher::new(*provider, head, RequestInfo::default());
                watcher.watch(body.as_bytes());
                black_box(watcher.finish(TransportEnd::Eof));
            }
        }
        "register" => {
            let mut registry = Registry::default();
            for round in 0..rounds {
                let like = Like::Provider(&provider::OPENAI_COMPATIBLE);
                let mut entry = Entry::new(&format!("acme-{round}"), like);
                entry.hosts = vec!["api.acme.example".to_owned()];
                assert!(black_box(registry.register(entry)).is_none(), "registered twice");
            }
        }
        _ => panic!("unknown workload `{workload}`: expected event, body or register"),
    }
}

fn watch(stream: &Stream, rounds: u32) {
    let chunks: Vec<Vec<u8>> = WORDS.iter().map(|word| stream.event(word)).collect();
    let head = Head { status: 200, content_type: stream.content_type() };
    let mut watcher = Watcher::new(stream.profile(), head, RequestInfo::default());
    watcher.watch(stream.opening());
    (0..rounds as usize).for_each(|round| watcher.watch(&chunks[round % chunks.len()]));
    black_box(&watcher);
}

/// Returns a line for each dialect that streams at some provider and has no event here.
fn unmeasured() -> Vec<String> {
    let streams = |dialect: &&&Dialect| {
        let mut wires = provider::ALL.iter().flat_map(|provider| provider.wires());
        wires.any(|wire| wire.dialect.id == dialect.id && wire.capabilities.streams)
    };
    let measured = |id: &str| STREAMS.iter().any(|stream| stream.profile().dialect.id == id);
    let missing = dialect::ALL.iter().filter(streams).filter(|dialect| !measured(dialect.id));
    missing.map(|dialect| format!("{}: no event in benches/events.rs", dialect.id)).collect()
}

/// Returns what is wrong if a cost exceeds its fixed bound.
fn over_bound(cost: &Cost) -> Option<String> {
    let (_, bound) = BOUNDS.iter().find(|(name, _)| *name == cost.name)?;
    (cost.instructions > *bound || cost.allocations > 0.005).then(|| {
        format!(
            "{}: {} instructions and {:.2} allocations, the bounds are {bound:.0} and 0",
            cost.name, cost.instructions, cost.allocations
        )
    })
}

fn costs_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/costs.txt")
}

fn table(costs: &[Cost]) -> String {
    let mut table = String::from(
        "# Instructions and allocations per round; `cargo bench -p endstop --bench gate -- write`.\n",
    );
    for Cost { name, instructions, allocations } in costs {
        writeln!(table, "{name:<36} {instructions:>9} {allocations:>7.2}").unwrap();
    }
    table
}

fn compare(costs: &[Cost]) -> ExitCode {
    let file = costs_file();
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let known: BTreeMap<String, (f64, f64)> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (rest, allocations) = line.rsplit_once(char::is_whitespace).unwrap();
            let (name, instructions) = rest.trim_end().rsplit_once(char::is_whitespace).unwrap();
            let allocations = allocations.parse().unwrap();
            (name.trim_end().to_owned(), (instructions.parse().unwrap(), allocations))
        })
        .collect();
    let mut failed = unmeasured();
    let measured = |name: &String| costs.iter().any(|cost| cost.name == *name);
    for stale in known.keys().filter(|name| !measured(name)) {
        failed.push(format!("{stale}: in {}, and not measured", file.display()));
    }
    failed.extend(costs.iter().filter_map(over_bound));
    for Cost { name, instructions, allocations } in costs {
        let Some((accepted, accepted_allocations)) = known.get(name) else {
            failed.push(format!("{name}: not in {}", file.display()));
            continue;
        };
        let rise = (instructions - accepted) / accepted;
        println!("{name:<36} {instructions:>9} {allocations:>7.2} {:>+7.1} %", rise * 100.0);
        if rise > MAX_RISE {
            failed.push(format!("{name}: {instructions} instructions, accepted are {accepted}"));
        }
        if *allocations > accepted_allocations + 0.005 {
            failed.push(format!(
                "{name}: {allocations:.2} allocations, accepted are {accepted_allocations}"
            ));
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("the cost rose:");
    failed.iter().for_each(|failure| eprintln!("  {failure}"));
    eprintln!("find out why; if it must be, accept it with `-- write`");
    ExitCode::FAILURE
}
