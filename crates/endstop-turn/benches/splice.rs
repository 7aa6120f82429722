//! The cost of a splice in instructions, by the length of the history and of the text.
//!
//! `cargo bench -p endstop-turn --bench splice` runs this program under callgrind once for each
//! number. It needs valgrind. With arguments, the program runs the workload itself.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a benchmark fails loudly"
)]

use std::hint::black_box;
use std::process::Command;

use endstop_turn::splice::{Join, Streaming, join};

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [kind, history, repeated, rest, work] => {
            run(kind, [history, repeated, rest].map(|size| size.parse().unwrap()), work);
        }
        [] => report(),
        _ => eprintln!("usage: splice [KIND HISTORY REPEATED REST WORK]"),
    }
}

/// Generates text that does not repeat itself, or text that only repeats itself.
fn text(kind: &str, size: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = String::with_capacity(size + 16);
    while text.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match kind {
            "prose" => text.push_str(&format!("{:x} ", state >> (state % 40))),
            _ => text.push_str("aaaaaaaa"),
        }
    }
    text.truncate(size);
    text
}

/// Runs one workload. All workloads generate the text, so that only the work differs.
fn run(kind: &str, [history, repeated, rest]: [usize; 3], work: &str) {
    let text = text(kind, history + rest);
    let (delivered, continuation) = (&text[..history], &text[history - repeated..]);
    match work {
        "none" => {}
        "join" => drop(black_box(join(delivered, continuation, Join::Hint))),
        "stream" => {
            let mut streaming = Streaming::new(delivered, Join::Hint);
            let mut shown = 0;
            for at in (0..continuation.len()).step_by(4) {
                shown += streaming.push(&continuation[at..continuation.len().min(at + 4)]).len();
            }
            shown += streaming.finish().0.len();
            black_box(shown);
        }
        _ => panic!("unknown workload `{work}`: expected none, join or stream"),
    }
    black_box(text);
}

fn instructions(kind: &str, sizes: [usize; 3], work: &str) -> f64 {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        // A file next to the program, because callgrind changes the mode of its output file.
        .arg(format!("--callgrind-out-file={}.callgrind", program.display()))
        .arg(&program)
        .arg(kind)
        .args(sizes.map(|size| size.to_string()))
        .arg(work)
        .output()
        .expect("valgrind is not installed: apt-get install valgrind");
    let text = String::from_utf8_lossy(&output.stderr);
    let line =
        text.lines().find(|line| line.contains("Collected")).unwrap_or_else(|| panic!("{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn cost(kind: &str, sizes: [usize; 3], work: &str) -> f64 {
    instructions(kind, sizes, work) - instructions(kind, sizes, "none")
}

fn report() {
    println!("P1  instructions per join, by length of history; 400 bytes repeated, 4 KiB new");
    println!("{:>10} {:>12} {:>12}", "history", "prose", "aaaa");
    for history in [1 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let [prose, same] = ["prose", "aaaa"].map(|kind| cost(kind, [history, 400, 4096], "join"));
        println!("{history:>10} {prose:>12.0} {same:>12.0}");
    }
    println!("\nP2  instructions per join, by bytes repeated; history 64 KiB");
    println!("{:>10} {:>12} {:>12}", "repeated", "prose", "aaaa");
    for repeated in [0, 100, 1000, 8000, 16_000] {
        let [prose, same] =
            ["prose", "aaaa"].map(|kind| cost(kind, [64 << 10, repeated, 4096], "join"));
        println!("{repeated:>10} {prose:>12.0} {same:>12.0}");
    }
    println!("\nP3  instructions per byte, streamed in 4-byte pieces; 400 bytes repeated");
    println!("{:>10} {:>12} {:>12}", "new", "prose", "aaaa");
    for rest in [16 << 10, 64 << 10, 1 << 20, 4 << 20] {
        let [prose, same] =
            ["prose", "aaaa"].map(|kind| cost(kind, [64 << 10, 400, rest], "stream") / rest as f64);
        println!("{rest:>10} {prose:>12.2} {same:>12.2}");
    }
}
