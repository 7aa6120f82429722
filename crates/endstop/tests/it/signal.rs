//! The termination signal: a table of deltas and responses of every wire, and a comparison of the
//! detectors with the reader.

use endstop::dialect;
use endstop::provider::{self, Wire};
#[cfg(feature = "toml")]
use endstop::registry::Registry;
use endstop::signal::{
    Conversation, Delta, Response, SignalContext, StreamHandler, TerminationSignal,
    detect_termination, is_terminal, validate, validate_text,
};
use endstop::vocabulary::{VOCABULARIES, Vocabulary};
use endstop::{
    Confidence, Head, Reason, Record, RequestInfo, SafetyRating, TransportEnd, Usage, Watcher,
};
use expect_test::expect_file;
use serde_json::{Value, json};

use crate::answer::{Answer, Content, one_call};
use crate::case;

/// Deltas, responses and native values with their signals. `UPDATE_EXPECT=1` rewrites the signals.
const TABLE: &str = include_str!("signal.table");

/// One line of the table.
struct Row {
    /// Provider and wire.
    names: &'static str,
    kind: &'static str,
    input: &'static str,
}

fn rows() -> Vec<Row> {
    let mut names = "";
    let mut rows = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix('[') {
            names = heading.trim_end_matches(']');
            continue;
        }
        let (kind, rest) = line.split_once(' ').unwrap();
        let (input, _) = rest.rsplit_once(" => ").unwrap();
        rows.push(Row { names, kind, input });
    }
    rows
}

/// Returns the signal of one row, from the detector for its kind.
fn detect(kind: &str, input: &str, context: &SignalContext) -> TerminationSignal {
    match kind {
        "delta" => {
            let delta: Delta = serde_json::from_str(input).unwrap();
            let signal = detect_termination(&delta, true, context);
            assert_eq!(is_terminal(&delta, context), signal.should_terminate);
            signal
        }
        "response" => {
            let response: Response = serde_json::from_str(input).unwrap();
            let signal = detect_termination(&response, false, context);
            assert_eq!(is_terminal(&response, context), signal.should_terminate);
            signal
        }
        "event" | "body" => {
            let native: Value = serde_json::from_str(input).unwrap();
            let is_streaming = kind == "event";
            let context = SignalContext { streamed: Some(is_streaming), ..context.clone() };
            let signal = detect_termination(&native, is_streaming, &context);
            assert_eq!(is_terminal(&native, &context), signal.should_terminate);
            signal
        }
        other => panic!("no such kind: {other}"),
    }
}

fn context(names: &str) -> SignalContext {
    let (provider, wire) = names.split_once(' ').unwrap_or((names, ""));
    SignalContext {
        provider: provider.to_owned(),
        wire: Some(wire.to_owned()).filter(|wire| !wire.is_empty()),
        ..SignalContext::default()
    }
}

fn told(signal: &TerminationSignal) -> String {
    let over = if signal.should_terminate { "over" } else { "open" };
    let said = &signal.provider_specific;
    let mut told = format!("{over} {} {}", signal.ending.name(), signal.confidence.name());
    if !said.original_field.is_empty() {
        told = format!("{told} {}={}", said.original_field, said.original_value);
    }
    told
}

/// Checks that a signal is valid and survives a round trip.
#[track_caller]
fn is_sound(signal: &TerminationSignal) {
    let text = serde_json::to_string(signal).unwrap();
    assert_eq!(&serde_json::from_str::<TerminationSignal>(&text).unwrap(), signal);
    assert_eq!(validate_text(&text).as_ref(), Ok(signal));
    assert_eq!(validate(&serde_json::to_value(signal).unwrap()).as_ref(), Ok(signal));
}

#[test]
fn deltas_and_responses_as_a_table() {
    let mut rows = rows().into_iter();
    let is_row = |line: &str| !(line.is_empty() || line.starts_with(['#', '[']));
    let mut table = String::new();
    for line in TABLE.lines() {
        let row = if is_row(line) { rows.next() } else { None };
        if let Some(Row { names, kind, input }) = row {
            let context = context(names);
            let signal = detect(kind, input, &context);
            is_sound(&signal);
            assert_eq!(detect(kind, input, &context), signal, "twice: {input}");
            table += &format!("{kind} {input} => {}\n", told(&signal));
        } else {
            table += &format!("{line}\n");
        }
    }
    expect_file!["signal.table"].assert_eq(&table);
}

/// Wires without a row for an event of their own, with the reason.
const NO_EVENT: &[(&str, &str)] = &[
    ("replicate", "its events are named outside of their data: only a delta has the name"),
    ("bedrock-ai21", "it does not stream"),
];

/// A framework's object, the wire's own event and its body, on every wire.
#[test]
fn every_wire_is_in_the_table() {
    for dialect in dialect::ALL {
        let kinds: Vec<&str> = rows()
            .iter()
            .filter(|row| row.names.ends_with(&format!(" {}", dialect.id)))
            .map(|row| row.kind)
            .collect();
        let frameworks = kinds.contains(&"delta") || kinds.contains(&"response");
        assert!(frameworks && kinds.contains(&"body"), "{}: {kinds:?}", dialect.id);
        let has_none = NO_EVENT.iter().any(|(wire, _)| *wire == dialect.id);
        assert_ne!(kinds.contains(&"event"), has_none, "{}: {kinds:?}", dialect.id);
    }
}

/// For every finish reason of every wire, the detector and the reader agree on a body exactly.
#[test]
fn a_body_is_judged_as_its_bytes_are() {
    let mut compared = 0;
    for (answer, profile) in answers() {
        let Some(bytes) = answer.body() else { continue };
        let mut reader = Watcher::new(
            profile,
            Head { status: 200, content_type: "application/json" },
            RequestInfo { streamed: Some(false), ..RequestInfo::default() },
        );
        reader.watch(&bytes);
        let want = TerminationSignal::from(&reader.finish(TransportEnd::Eof));
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let context = context(&format!("{} {}", profile.provider, answer.dialect.id));
        assert_eq!(detect_termination(&body, false, &context), want, "{body}");
        // A framework that passes only the finish reason may have left the content out.
        if answer.content != Content::Nothing {
            let response = Response { metadata: Some(body.clone()), ..Response::default() };
            assert_eq!(detect_termination(&response, false, &context), want, "{body}");
        }
        is_sound(&want);
        compared += 1;
    }
    assert!(compared > 500, "{compared}");
}

/// For every finish reason of every wire, one delta of the stream is terminal. It has the same
/// signal as the whole stream, unless earlier content decides.
#[test]
fn the_deltas_of_a_stream_end_where_the_stream_does() {
    let mut compared = 0;
    for (answer, profile) in answers() {
        let Some(bytes) = answer.stream() else { continue };
        let context = context(&format!("{} {}", profile.provider, answer.dialect.id));
        let mut handler = StreamHandler::new(profile, RequestInfo::default());
        let deltas = handler.deltas(&bytes);
        let ends: Vec<_> = deltas.iter().filter(|delta| is_terminal(*delta, &context)).collect();
        let so_far = handler.termination().cloned();
        assert_eq!(!ends.is_empty(), so_far.is_some(), "{deltas:?}");
        let (Some(first), Some(so_far)) = (ends.first(), so_far) else { continue };
        let signal = detect_termination(*first, true, &context);
        is_sound(&signal);
        // The content decides if the finish reason for tool calls and the calls do not match.
        let by_call = matches!(answer.content, Content::Calls(_));
        if by_call == (signal.ending == Reason::ToolCall) && answer.content != Content::Nothing {
            assert_eq!(told(&signal), told(&so_far), "{first:?}");
            compared += 1;
        }
    }
    assert!(compared > 150, "{compared}");
}

fn answers() -> Vec<(Answer<'static>, &'static endstop::Profile)> {
    let mut answers = Vec::new();
    for dialect in dialect::ALL {
        let profile = provider::ALL.iter().find_map(|known| known.wire_of(dialect.id)).unwrap();
        for words in dialect.words {
            let rows = words.rows.iter().map(|(word, _)| *word).chain(words.empty.iter().copied());
            let odd = [json!("frobnicated"), json!(77), Value::Null];
            for word in rows.map(Value::from).chain(odd) {
                for content in [Content::Text, Content::Nothing, one_call()] {
                    let word = word.clone();
                    let answer = Answer { dialect, field: words.field, word, content, piece: 3 };
                    answers.push((answer, profile));
                }
            }
        }
    }
    answers
}

/// The handler gives every case the ending of the reader. One of its deltas is terminal exactly if
/// the stream ended.
#[test]
fn the_handler_ends_every_case_as_the_reader_does() {
    for case in case::all() {
        let (bytes, head) = (case.bytes(), case.head());
        let mut handler = StreamHandler::new(case.wire(), case.asked()).with_head(head);
        for chunk in bytes.chunks(7) {
            handler.process_chunk(chunk);
        }
        let ending = case.read(case.wire(), [&*bytes]);
        let signal = handler.finalize(case.close());
        assert_eq!(signal, TerminationSignal::from(&ending), "{}", case.label());
        is_sound(&signal);
        says_what_the_record_says(&case, &signal);
        if !case.is_stream() || ending.choices.len() > 1 {
            continue;
        }
        let wire = case.wire();
        let context = context(&format!("{} {}", wire.provider(), wire.profile.dialect.id));
        let deltas = handler.deltas(&bytes);
        assert_eq!(
            deltas.iter().any(|delta| is_terminal(delta, &context)),
            handler.termination().is_some(),
            "{}: {deltas:?}",
            case.label()
        );
    }
}

fn says_what_the_record_says(case: &case::Case, signal: &TerminationSignal) {
    let ending = case.read(case.wire(), [&*case.bytes()]);
    let mut record = Record::default();
    record.end(&ending);
    let words = |known: Vocabulary| signal.vocabularies[known.name()].as_deref();
    assert_eq!(words(Vocabulary::FinishReason), record.finish_reason.as_deref());
    assert_eq!(words(Vocabulary::Endstop), Some(&*record.reason));
    assert_eq!(words(Vocabulary::StopReason), Some(&*ending.stop_reason().to_string()));
    assert_eq!(words(Vocabulary::Termination), Some(signal.reason.as_str()));
    assert_eq!(signal.vocabularies.len(), VOCABULARIES.len());
    let native = record.native_finish_reason.as_deref().unwrap_or_default();
    assert_eq!(signal.provider_specific.original_value, native);
    let field = record.native_field.as_deref().unwrap_or_default();
    assert_eq!(signal.provider_specific.original_field, field);
    assert_eq!(signal.confidence.name(), record.confidence);
}

#[test]
fn metadata_is_kept_per_candidate() {
    let chunk = json!({
        "candidates": [
            {"index": 0, "finishReason": "STOP", "safetyRatings": [
                {"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "NEGLIGIBLE",
                 "probabilityScore": 0.1, "severity": "HARM_SEVERITY_LOW", "severityScore": 0.2},
            ]},
            {"index": 1, "finishReason": "SAFETY", "safetyRatings": [
                {"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "HIGH", "blocked": true},
            ]},
        ],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7},
        "prompt": "never kept",
    });
    let context = context("google");
    let delta = Delta { metadata: Some(chunk), ..Delta::default() };
    let signal = detect_termination(&delta, true, &context);
    let metadata = serde_json::to_value(&signal.provider_specific.metadata).unwrap();
    assert_eq!(
        metadata,
        json!({
            "provider": "google",
            "wire": "gemini-generate",
            "choice": 1,
            "streamed": true,
            "usage": {"input": 5, "output": 7, "reasoning": null, "cache_read": null, "cache_write": null},
            "path": "candidates[].finishReason",
            "closed": "open",
            "shown": ["empty", "blocked"],
            "safety_ratings": [
                {"choice": 0, "category": "HARM_CATEGORY_HATE_SPEECH", "probability": "NEGLIGIBLE",
                 "score": 0.1, "severity": "HARM_SEVERITY_LOW", "severity_score": 0.2, "blocked": false},
                {"choice": 1, "category": "HARM_CATEGORY_HATE_SPEECH", "probability": "HIGH", "blocked": true},
            ],
            "choices": [
                {"choice": 0, "ending": "complete", "confidence": "high", "original_value": "STOP"},
                {"choice": 1, "ending": "safety", "confidence": "high", "original_value": "SAFETY"},
            ],
        })
    );
    // A delta that does not end the response keeps its ratings and tokens too.
    let under_way = json!({
        "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "safetyRatings": [{"category": "X"}]}],
        "usageMetadata": {"candidatesTokenCount": 3},
    });
    let signal = detect_termination(&under_way, true, &context);
    assert_eq!(told(&signal), "open unknown low");
    let metadata = &signal.provider_specific.metadata;
    let rating = SafetyRating { choice: Some(0), category: "X".into(), ..SafetyRating::default() };
    assert_eq!(
        (&*metadata.safety_ratings, signal.context().usage.output),
        (&[rating][..], Some(3))
    );
    assert_eq!(signal.vocabularies["finish_reason"], None);
}

#[test]
fn errors_and_other_details_are_kept_and_everything_is_bounded() {
    let long = "x".repeat(5000);
    let delta = Delta {
        metadata: Some(json!({
            "eventType": "error",
            "error": {"type": "overloaded_error", "code": long, "message": format!("{long} sk-abcdefghijklmnop")},
        })),
        ..Delta::default()
    };
    let signal = detect_termination(&delta, true, &context("anthropic"));
    let error = signal.provider_specific.metadata.error.clone().unwrap();
    assert_eq!((error.type_.as_deref(), error.status), (Some("overloaded_error"), None));
    assert_eq!(error.code.map(|code| code.len()), Some(256));
    assert_eq!(error.message.map(|message| message.len()), Some(1024));
    let ratings: Vec<Value> =
        (0..500).map(|number| json!({"category": format!("{number}{long}")})).collect();
    let chunk = json!({"candidates": [{"finishReason": "STOP", "safetyRatings": ratings}]});
    let signal = detect_termination(&chunk, true, &context("google"));
    let kept = &signal.provider_specific.metadata.safety_ratings;
    assert!(kept.len() == 64 && kept.iter().all(|rating| rating.category.len() <= 256));
    is_sound(&signal);
    let word = Delta { finish_reason: Some(long.clone()), ..Delta::default() };
    let many =
        SignalContext { model: Some(long.clone()), api_version: Some(long), ..context("openai") };
    let signal = detect_termination(&word, true, &many);
    assert!(serde_json::to_string(&signal).unwrap().len() < 4000);
    is_sound(&signal);
}

#[test]
fn a_signal_gives_its_context_back() {
    let given = SignalContext {
        provider: "anthropic".to_owned(),
        model: Some("claude".to_owned()),
        wire: Some("anthropic-messages".to_owned()),
        api_version: Some("2023-06-01".to_owned()),
        choice: Some(0),
        streamed: Some(true),
        usage: Usage { input: Some(3), output: Some(9), ..Usage::default() },
        cap: Some(9),
        conversation: Some(Conversation {
            messages: 12,
            tokens: Some(900),
            max_messages: Some(12),
            max_tokens: None,
        }),
    };
    let delta = Delta { finish_reason: Some("max_tokens".to_owned()), ..Delta::default() };
    let signal = detect_termination(&delta, true, &given);
    assert_eq!(
        (signal.context(), told(&signal).as_str()),
        (&given, "over output_limit high stop_reason=max_tokens")
    );
    assert_eq!(signal.provider_specific.metadata.path.as_deref(), Some("delta.stop_reason"));
    is_sound(&signal);
    // A full conversation does not end a response.
    let full = given.conversation.unwrap();
    assert!(full.is_full());
    assert!(!is_terminal(&Delta::default(), &given));
    let room = Conversation { max_messages: Some(13), ..full };
    assert!(!room.is_full());
    for (most, is_full) in [(899, true), (900, true), (901, false)] {
        assert_eq!(Conversation { max_tokens: Some(most), ..room }.is_full(), is_full, "{most}");
    }
    // The token limit and the tokens so far are evidence: a natural stop at the limit is less
    // certain.
    let natural = Delta { finish_reason: Some("end_turn".to_owned()), ..Delta::default() };
    let at_cap = detect_termination(&natural, true, &given);
    assert_eq!((at_cap.ending, at_cap.confidence), (Reason::Complete, Confidence::Medium));
    let below = SignalContext { cap: Some(10), ..given };
    assert_eq!(detect_termination(&natural, true, &below).confidence, Confidence::High);
}

/// The text of a response is evidence, too: a vague finish reason at the token limit is not a success.
#[test]
fn text_at_the_token_limit_overrules_a_vague_finish_reason() {
    let usage = Usage { output: Some(9), ..Usage::default() };
    let at_cap = SignalContext { usage, cap: Some(9), ..context("replicate") };
    let response = |text: &str| Response {
        status: Some("succeeded".to_owned()),
        text: text.to_owned(),
        ..Response::default()
    };
    let signal = detect_termination(&response("x"), false, &at_cap);
    assert_eq!((signal.ending, signal.confidence), (Reason::OutputLimit, Confidence::Low));
    assert_eq!(detect_termination(&response(""), false, &at_cap).ending, Reason::Complete);
}

/// Two choices with one finish reason end differently, and the signal names the choice that counts.
#[test]
fn the_choice_that_gives_the_ending_is_named() {
    let body = json!({"choices": [
        {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"},
        {"index": 1, "message": {"refusal": "x"}, "finish_reason": "stop"},
    ]});
    let signal = detect_termination(&body, false, &context("openai"));
    assert_eq!((signal.ending, signal.context().choice), (Reason::Refused, Some(1)));
    // A single choice is not listed, and tokens that were not counted are not named.
    let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]});
    let signal = detect_termination(&body, false, &context("openai"));
    let metadata = serde_json::to_value(signal.provider_specific.metadata).unwrap();
    assert_eq!((metadata.get("choices"), metadata.get("usage")), (None, None));
}

#[cfg(feature = "toml")]
#[test]
fn a_provider_registered_at_run_time_counts() {
    let mut registry = Registry::default();
    registry
        .add_toml(
            "mine.toml",
            "[provider.acme]\nlike = \"openai-chat\"\n[provider.acme.words]\n\
             frobnicated = \"output_limit\"\nstop = \"refused\"\n\
             [provider.acme.versions.\"v2\".words]\nlength = \"refused\"\n",
        )
        .unwrap();
    let check = |input: Value, is_streaming: bool, want: &str| {
        let signal = registry.detect_termination("acme", &input, is_streaming);
        assert_eq!(told(&signal), want, "{input}");
        assert_eq!(signal.context().provider, "acme");
        is_sound(&signal);
    };
    let chunk = |word: &str| json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]});
    check(chunk("frobnicated"), true, "over output_limit high finish_reason=frobnicated");
    check(chunk("stop"), true, "over refused high finish_reason=stop");
    check(chunk("length"), true, "over output_limit high finish_reason=length");
    check(json!({"choices": [{"index": 0, "delta": {"content": "x"}}]}), true, "open unknown low");
    let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "frobnicated"}]});
    check(body, false, "over output_limit high finish_reason=frobnicated");
    let delta = Delta { finish_reason: Some("frobnicated".to_owned()), ..Delta::default() };
    assert!(registry.is_terminal(&delta, &context("acme")));
    let signal = registry.detect_termination("acme", &delta, true);
    assert_eq!(told(&signal), "over output_limit high finish_reason=frobnicated");
    // The API version selects the finish reasons.
    let v2 = SignalContext { api_version: Some("v2".to_owned()), ..context("acme") };
    let signal = registry.detect_termination_in(&chunk("length"), true, &v2);
    assert_eq!(told(&signal), "over refused high finish_reason=length");
    // The built-in providers are included, and no other one knows the finish reason.
    let signal = registry.detect_termination("google", &delta, true);
    assert_eq!(told(&signal), "over unknown medium finishReason=frobnicated");
}

/// A finish reason of the provider's main wire is corrected on its other wires, too.
#[cfg(feature = "toml")]
#[test]
fn a_corrected_finish_reason_of_the_main_wire_counts_on_others() {
    let mut registry = Registry::default();
    let taught = "[provider.openai.words.finish_reason]\nstop = \"refused\"\n";
    registry.add_toml("mine.toml", taught).unwrap();
    let stop = Delta { finish_reason: Some("stop".to_owned()), ..Delta::default() };
    let context = context("openai openai-responses");
    let signal = registry.detect_termination_in(&stop, true, &context);
    assert_eq!(told(&signal), "over refused high finish_reason=stop");
}

#[test]
fn a_wire_that_is_corrected_names_its_provider() {
    let wire = Wire::from(&provider::OPENAI);
    let handler = StreamHandler::new(wire, RequestInfo { cap: Some(4), ..RequestInfo::default() });
    let signal = handler.clone().finalize(TransportEnd::Reset);
    assert_eq!((signal.context().cap, signal.context().provider.as_str()), (Some(4), "openai"));
    assert_eq!(told(&signal), "over cut high");
}
