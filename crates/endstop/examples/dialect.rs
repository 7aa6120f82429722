//! Reads a wire that Endstop does not know, by a dialect that is written here.
//!
//! The wire streams one JSON object a line: `{"piece":"Hel"}`, `{"piece":"lo"}`,
//! `{"end":"done","tokens":2}`. The last line ends the stream.

use endstop::dialect::{
    CallsClose, Dialect, ERRORS, EventSink, Frame, Framing, Probe, Proof, REQUEST, Reading,
    Streams, Wins, Word, Words,
};
use endstop::{Collector, Event, Head, Profile, Reason, RequestInfo, TransportEnd, Usage};
use serde::Deserialize;

static DIALECT: Dialect = Dialect {
    id: "acme-lines",
    framing: Framing::Lines,
    read,
    read_body: read,
    words: &[Words::plain(
        "end",
        "end",
        &[("done", Reason::Complete), ("full", Reason::OutputLimit)],
    )],
    wins: Wins::Last,
    calls_close: CallsClose::ByWord,
    proof: Proof::Event,
    error_patterns: &[],
    caps: &["max"],
    streams: Streams::Flag("stream"),
    error_shape: ERRORS,
    request_shape: REQUEST,
    usage: &["tokens"],
    counts: &[],
    padding: &[],
    claims: |probe: &Probe<'_>| probe.has("piece") || probe.has("end"),
    source: "this file",
};

static PROFILE: Profile = Profile { provider: "acme", ..DIALECT.profile() };

#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    piece: Option<String>,
    end: Option<String>,
    tokens: Option<u64>,
}

fn read(frame: &Frame<'_>, sink: &mut EventSink<'_, '_>) -> Reading {
    let Ok(line) = serde_json::from_slice::<Line>(frame.data) else { return Reading::Malformed };
    if line.piece.is_none() && line.end.is_none() {
        return Reading::Strange;
    }
    if let Some(text) = &line.piece {
        sink.text(0, text);
    }
    if line.tokens.is_some() {
        sink.emit(Event::Usage(Usage { output: line.tokens, ..Usage::default() }));
    }
    if let Some(word) = &line.end {
        sink.emit(Event::Word { choice: 0, field: "end", word: Word::Text(word.into()) });
        sink.emit(Event::Proof);
    }
    Reading::Read
}

fn main() {
    let head = Head { status: 200, content_type: "application/x-ndjson" };
    let mut collector = Collector::new(PROFILE, head, RequestInfo::default());
    collector.push(b"{\"piece\":\"Hel\"}\n{\"piece\":\"lo\"}\n{\"end\":\"full\",\"tokens\":2}\n");
    let answer = collector.finish(TransportEnd::Eof);
    println!("{}: {}", answer.text, answer.ending.sentence);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(body: &str) -> (String, Reason, Option<u64>) {
        let head = Head { status: 200, content_type: "application/x-ndjson" };
        let mut collector = Collector::new(PROFILE, head, RequestInfo::default());
        body.as_bytes().chunks(3).for_each(|chunk| collector.push(chunk));
        let answer = collector.finish(TransportEnd::Eof);
        (answer.text, answer.ending.reason, answer.usage.output)
    }

    #[test]
    fn a_dialect_of_ones_own_is_judged_like_any_other() {
        let pieces = "{\"piece\":\"Hel\"}\n{\"piece\":\"lo\"}\n";
        let ended = |word: &str| format!("{pieces}{{\"end\":\"{word}\",\"tokens\":2}}\n");
        let hello = "Hello".to_owned();
        assert_eq!(reason(&ended("done")), (hello.clone(), Reason::Complete, Some(2)));
        assert_eq!(reason(&ended("full")), (hello.clone(), Reason::OutputLimit, Some(2)));
        assert_eq!(reason(&ended("odd")), (hello.clone(), Reason::Unknown, Some(2)));
        assert_eq!(reason(pieces), (hello, Reason::Cut, None));
    }
}
