//! The cost of a decision and of a step, in nanoseconds and in instructions.
//!
//! `cargo bench -p endstop-turn --bench turn` prints both. Instructions need valgrind and are
//! omitted without it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark fails loudly")]

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use endstop::{Ending, Head, RequestInfo, TransportEnd, Watcher, provider};
use endstop_turn::continuation::{EndedResponse, Machine, TurnInput, TurnStart};
use endstop_turn::policy::{Budget, DecisionContext, Piece, Policy, decide};

const SUBJECTS: [&str; 5] = ["nothing", "decide stop", "decide continue", "step", "turn"];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [subject, rounds] => run(subject, rounds.parse().unwrap()),
        _ => report(),
    }
}

fn ending(word: &str) -> Ending {
    let body = format!(
        r#"{{"model":"m","choices":[{{"message":{{"content":"x"}},"finish_reason":"{word}"}}],"usage":{{"prompt_tokens":9,"completion_tokens":9}}}}"#
    );
    let mut reader = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
    reader.watch(body.as_bytes());
    reader.finish(TransportEnd::Eof)
}

fn run(subject: &str, rounds: u64) {
    let policy = Policy::default();
    let budget = Budget { cap: Some(1_000), ..Budget::default() };
    let piece = Piece::of("a text that is long enough to be progress");
    let context = DecisionContext { budget, piece: Some(piece), ..DecisionContext::default() };
    let (stop, length) = (ending("stop"), ending("length"));
    let begin = TurnStart { budget, ..TurnStart::new("turn") };
    let machine = Machine::begin(begin.clone(), 0).0;
    let first = EndedResponse::new(length.clone(), piece);
    let last = EndedResponse::new(stop.clone(), piece);
    for _ in 0..rounds {
        match subject {
            "nothing" => {
                black_box(&context);
            }
            "decide stop" => drop(black_box(decide(black_box(&stop), &context, &policy))),
            "decide continue" => drop(black_box(decide(black_box(&length), &context, &policy))),
            // A step consumes the machine, so each round makes a copy.
            "step" => drop(black_box(machine.clone().step(TurnInput::Ended(&first), 1))),
            // Cut off, continued, complete: four steps with their events.
            "turn" => {
                let machine = Machine::begin(begin.clone(), 0).0;
                let machine = machine.step(TurnInput::Ended(&first), 1).0;
                let machine = machine.step(TurnInput::Prepared, 2).0;
                drop(black_box(machine.step(TurnInput::Ended(&last), 3)));
            }
            _ => panic!("unknown subject `{subject}`: expected one of {}", SUBJECTS.join(", ")),
        }
    }
}

/// Returns the instructions of one run of this program, or `None` without valgrind.
fn instructions(subject: &str, rounds: u64) -> Option<f64> {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        // A file next to the program, because callgrind changes the mode of its output file.
        .arg(format!("--callgrind-out-file={}.callgrind", program.display()))
        .arg(&program)
        .args([subject, &rounds.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("Collected"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn report() {
    println!("{:<18} {:>10} {:>14}", "subject", "ns", "instructions");
    for subject in SUBJECTS {
        let rounds = 200_000;
        let start = Instant::now();
        run(subject, rounds);
        let ns = start.elapsed().as_nanos() as f64 / rounds as f64;
        let cost = instructions(subject, 1_000)
            .zip(instructions(subject, 11_000))
            .map_or("-".to_owned(), |(few, many)| format!("{:.0}", (many - few) / 10_000.0));
        println!("{subject:<18} {ns:>10.0} {cost:>14}");
    }
}
