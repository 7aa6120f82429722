//! Reads one response and prints its text, its ending, and the tool calls that may run.
//!
//! `cargo run --example answer -p endstop < response.json`

use std::io::Read;

use endstop::registry::{Clues, choose};
use endstop::tool_call::Allow;
use endstop::{Answer, Collector, Head, RequestInfo, TransportEnd};

fn collect(mut response: impl Read, clues: &Clues<'_>) -> std::io::Result<Answer> {
    let head = Head { status: 200, content_type: "" };
    let mut collector = Collector::new(choose(clues), head, RequestInfo::default());
    let mut chunk = [0; 4096];
    loop {
        match response.read(&mut chunk) {
            Ok(0) => return Ok(collector.finish(TransportEnd::Eof)),
            Ok(length) => collector.push(chunk.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn main() -> std::io::Result<()> {
    let clues = Clues { provider: "openai", ..Clues::default() };
    let answer = collect(std::io::stdin().lock(), &clues)?;
    println!("{}", answer.text);
    println!("{}: {}", answer.ending.reason.name(), answer.ending.sentence);
    if answer.allow() == Allow::Run {
        for call in &answer.tool_calls {
            println!("run {}({})", call.name, call.arguments);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Reason;

    #[test]
    fn a_response_is_read_to_its_end() {
        let body = br#"{"choices":[{"message":{"content":"Once"},"finish_reason":"length"}]}"#;
        let answer = collect(&body[..], &Clues { provider: "openai", ..Clues::default() });
        let answer = answer.expect("reading from memory does not fail");
        assert_eq!((&*answer.text, answer.ending.reason), ("Once", Reason::OutputLimit));
    }
}
