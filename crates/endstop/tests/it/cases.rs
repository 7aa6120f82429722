//! Every case ends as expected, and has a source and a unique name.

use std::collections::BTreeSet;

use endstop::registry::{Clues, choose};
use endstop::{Ending, Head, Reason, Record, RequestInfo, TransportEnd, Watcher};
use serde_json::json;

use crate::case;

#[test]
fn every_case_ends_as_it_says() {
    let wrong: Vec<String> = case::all()
        .iter()
        .filter_map(|case| case.differs(&case.read(case.wire(), [&*case.bytes()])))
        .collect();
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn cases_have_a_source_and_a_name_of_their_own() {
    let mut names = BTreeSet::new();
    for case in case::all() {
        assert!(case.source.len() > 3, "{} has no source", case.label());
        assert!(names.insert(case.label()), "{} is not unique", case.label());
    }
}

/// Failures of other projects that concern reading on these wires. `corpus/README.md` says what the
/// numbers are.
const FIELD: &[&str] = &[
    "T-01", "T-02", "T-03", "T-04", "T-05", "T-06", "T-07", "T-08", "T-09", "T-10", "T-11", "T-12",
    "T-13", "T-14", "T-15", "T-20", "T-21", "T-22", "T-23", "T-24", "T-25", "T-26", "T-27", "T-28",
    "T-29", "T-30", "T-31", "T-32", "T-33", "T-34", "T-35", "T-36", "T-38", "T-39", "T-40", "T-41",
    "T-42", "T-44", "T-50", "T-51", "T-52", "T-53", "T-54", "T-55", "T-56", "T-57", "T-58", "T-59",
    "T-60", "T-61", "T-62", "T-63", "T-64", "T-65", "T-66", "T-67", "T-68", "T-69", "T-70", "T-71",
    "T-72", "T-73", "T-74", "T-75", "T-76", "T-77", "T-81", "T-82", "T-83", "T-84", "T-94",
];

#[test]
fn every_case_of_the_field_notes_is_here() {
    let sources: Vec<String> = case::all().into_iter().map(|case| case.source).collect();
    let missing: Vec<&&str> = FIELD
        .iter()
        .filter(|number| !sources.iter().any(|source| source.contains(**number)))
        .collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// Former defects of Endstop, each of which failed before it was a case.
const FINDINGS: &[&str] =
    &["T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10", "T12", "T13"];

/// Tests of defects that no single response shows, with their files.
const FINDINGS_ELSEWHERE: &[(&str, &str)] =
    &[("crates/endstop-cli/tests/it/odd.rs", "one_odd_field_never_stops_a_run")];

#[test]
fn every_finding_has_a_case() {
    let sources: Vec<String> = case::all().into_iter().map(|case| case.source).collect();
    let names = |source: &str, number: &str| {
        let rest = source.split_once("finding ").map_or("", |(_, rest)| rest);
        rest.split(|letter: char| !letter.is_ascii_alphanumeric()).next() == Some(number)
    };
    let has_case = |number: &&&str| sources.iter().any(|source| names(source, number));
    let missing: Vec<&&str> = FINDINGS.iter().filter(|number| !has_case(number)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
    for (file, test) in FINDINGS_ELSEWHERE {
        let path = case::folder().join("..").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("fn {test}()")), "{file} has no test {test}");
    }
}

/// The shape of a body is detected even if its beginning is ambiguous.
#[test]
fn bodies_of_any_size_are_known_by_their_shape() {
    let long = "x".repeat(300 * 1024);
    let bodies = [
        (
            "anthropic-messages",
            json!({"content": [{"type": "text", "text": long}], "type": "message",
                   "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 2}}),
        ),
        (
            "openai-responses",
            json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": long}]}],
                   "object": "response", "status": "completed", "usage": {"input_tokens": 1}}),
        ),
        (
            "bedrock-converse",
            json!({"output": {"message": {"content": [{"text": long}]}}, "stopReason": "end_turn",
                   "usage": {"inputTokens": 1}, "metrics": {"latencyMs": 5}}),
        ),
        (
            "gemini-generate",
            json!({"candidates": [{"content": {"parts": [{"text": long}]}, "finishReason": "STOP"}]}),
        ),
    ];
    for (dialect, body) in bodies {
        let body = body.to_string();
        let wire = choose(&Clues { body: &body.as_bytes()[..64 * 1024], ..Clues::default() });
        let mut reader = Watcher::new(wire, Head::default(), RequestInfo::default());
        reader.watch(body.as_bytes());
        let ending = reader.finish(TransportEnd::Eof);
        assert_eq!((&*ending.dialect, ending.reason), (dialect, Reason::Complete), "{dialect}");
    }
}

/// Every ending and its record survive a round trip through JSON.
#[test]
fn endings_and_records_read_back() {
    for case in case::all() {
        let ending = case.read(case.wire(), [&*case.bytes()]);
        let json = serde_json::to_string(&ending).unwrap();
        let back: Ending =
            serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
        assert_eq!(back, ending, "{}", case.label());
        let mut record = Record::default();
        record.end(&ending);
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record, "{}", case.label());
    }
}
