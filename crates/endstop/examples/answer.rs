//! Reads one response and prints its text, its ending, and the tool calls that may run.
//!
//! `cargo run --example answer -p endstop < response.json`

use std::io::Read;

use endstop::registry::{Clues, choose};
use endstop::tool_call::Allow;
use endstop::{Answer, Collector, Head, RequestInfo, TransportEnd};

/// Reads to the end. A response whose connection breaks has an ending too.
fn collect(mut response: impl Read, clues: &Clues<'_>) -> Answer {
    let head = Head { status: 200, content_type: "" };
    let mut collector = Collector::new(choose(clues), head, RequestInfo::default());
    let mut chunk = [0; 4096];
    loop {
        match response.read(&mut chunk) {
            Ok(0) => return collector.finish(TransportEnd::Eof),
            Ok(length) => collector.push(chunk.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return collector.finish(TransportEnd::Reset),
        }
    }
}

fn main() {
    let clues = Clues { provider: "openai", ..Clues::default() };
    let answer = collect(std::io::stdin().lock(), &clues);
    println!("{}", answer.text);
    println!("{}: {}", answer.ending.reason.name(), answer.ending.sentence);
    if answer.allow() == Allow::Run {
        for call in &answer.tool_calls {
            println!("run {}({})", call.name, call.object());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Reason;

    #[test]
    fn a_response_is_read_to_its_end() {
        let body = br#"{"choices":[{"message":{"content":"Once"},"finish_reason":"length"}]}"#;
        let answer = collect(&body[..], &Clues { provider: "openai", ..Clues::default() });
        assert_eq!((&*answer.text, answer.ending.reason), ("Once", Reason::OutputLimit));
    }

    /// A reader that fails after its text.
    struct Breaks(&'static [u8]);

    impl Read for Breaks {
        fn read(&mut self, chunk: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(chunk)? {
                0 => Err(std::io::ErrorKind::ConnectionReset.into()),
                length => Ok(length),
            }
        }
    }

    #[test]
    fn a_response_that_breaks_off_is_cut() {
        let body = b"data: {\"choices\":[{\"delta\":{\"content\":\"Once\"}}]}\n\n";
        let answer = collect(Breaks(body), &Clues { provider: "openai", ..Clues::default() });
        assert_eq!((&*answer.text, answer.ending.reason), ("Once", Reason::Cut));
    }
}
