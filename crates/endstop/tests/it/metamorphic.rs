//! Responses with changes that must not matter, and with changes that must.
//!
//! They run over all cases and a seeded sample of the recordings, or all of them with
//! `ENDSTOP_ALL=1`. A harmless change leaves the reason, the confidence, the calls and the usage
//! unchanged. After a harmful change, no response is a success.

use std::collections::BTreeMap;

use endstop::dialect::Proof;
use endstop::tool_call::{Allow, Assembly, ToolCall, allow};
use endstop::{Confidence, Ending, Head, Reader, Reason, RequestInfo, TransportEnd, Usage, Wire};
use serde_json::{Value, json};

use crate::call::{self, Call, Compare};
use crate::case;
use crate::document::{Document, Framing, Part, Style};
use crate::oracle;
use crate::recorded;
use crate::sample::{Dice, everything, on_two_threads, some};

/// Number of recordings tried, and their maximum size in bytes, unless all are tried.
const RECORDINGS: usize = 2500;
const LARGEST: usize = 60_000;

/// A response to change.
struct Subject {
    label: String,
    wire: Wire,
    status: u16,
    content_type: String,
    asked: RequestInfo,
    close: TransportEnd,
    bytes: Vec<u8>,
}

/// Compared values.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    reason: Reason,
    confidence: Confidence,
    usage: Usage,
    calls: Vec<Call>,
}

/// A changed response.
struct Changed {
    bytes: Vec<u8>,
    content_type: String,
}

fn subjects() -> Vec<Subject> {
    let cases = case::all();
    let own = cases.iter().map(|case| Subject {
        label: case.label(),
        wire: case.wire(),
        status: case.status(),
        content_type: case.content_type().to_owned(),
        asked: case.asked(),
        close: case.close(),
        bytes: case.bytes(),
    });
    let mut records = recorded::all();
    if !everything() {
        records.retain(|record| record.bytes().len() <= LARGEST);
    }
    let recorded = some(&records, RECORDINGS, 0x6a09_e667_f3bc_c908).into_iter().map(|record| {
        let bytes = record.bytes();
        Subject {
            label: record.id.clone(),
            wire: record.wire(&bytes),
            status: record.status.unwrap_or(0),
            content_type: record.content_type().to_owned(),
            asked: record.asked(),
            close: TransportEnd::Eof,
            bytes,
        }
    });
    own.chain(recorded).collect()
}

impl Subject {
    fn dialect(&self) -> &'static str {
        self.wire.profile.dialect.id
    }

    fn read(&self, pieces: &[&[u8]], content_type: &str) -> (Ending, Vec<ToolCall>) {
        let head = Head { status: self.status, content_type };
        let mut reader = Reader::new(self.wire.clone(), head, self.asked.clone());
        let mut assembly = Assembly::default();
        for piece in pieces {
            reader.read(piece, |event| assembly.observe(&event));
        }
        let ending = reader.finish(self.close, |event| assembly.observe(&event));
        let calls = assembly.finish(&ending);
        (ending, calls)
    }

    fn outcome(&self, pieces: &[&[u8]], content_type: &str) -> Outcome {
        let (ending, calls) = self.read(pieces, content_type);
        Outcome {
            reason: ending.reason,
            confidence: ending.confidence,
            usage: ending.usage,
            calls: calls.iter().map(Call::from).collect(),
        }
    }
}

/// Returns the difference, if any.
fn differ(got: &Outcome, want: &Outcome) -> Option<String> {
    let same =
        (got.reason, got.confidence, &got.usage) == (want.reason, want.confidence, &want.usage);
    match call::differ(&got.calls, &want.calls, Compare::Values) {
        None if same => None,
        None => Some(format!(
            "{:?} {:?} {:?}, not {:?} {:?} {:?}",
            got.reason, got.confidence, got.usage, want.reason, want.confidence, want.usage
        )),
        Some(what) => Some(what),
    }
}

/// A change that must not matter. It returns `None` if it does not apply.
type Harmless = fn(&Subject, &Document, &mut Dice) -> Option<Changed>;

const HARMLESS: &[(&str, Harmless)] = &[
    ("keys in another order", |subject, document, dice| {
        written(subject, document, Style { shuffled: true, ..Style::default() }, dice)
    }),
    ("white space", |subject, document, dice| {
        written(subject, document, Style { spaced: true, ..Style::default() }, dice)
    }),
    ("escapes", |subject, document, dice| {
        written(subject, document, Style { escaped: true, ..Style::default() }, dice)
    }),
    ("order, white space and escapes", |subject, document, dice| {
        let style = Style { shuffled: true, spaced: true, escaped: true };
        written(subject, document, style, dice)
    }),
    ("unknown fields", unknown_fields),
    ("misleading fields", misleading_fields),
    ("nulls", nulls),
    ("comments and blank lines", comments),
    ("line ends CRLF", |subject, document, dice| line_ends(subject, document, dice, "\r\n")),
    ("line ends CR", |subject, document, dice| line_ends(subject, document, dice, "\r")),
    ("byte-order mark", byte_order_mark),
    ("no event lines", no_event_lines),
    ("no choice index", no_choice_index),
    ("another content type", another_content_type),
    ("JSON as a stream", |subject, document, dice| {
        let changed = written(subject, document, Style::default(), dice)?;
        let content_type = "text/event-stream".to_owned();
        (document.framing == Framing::Body).then_some(Changed { content_type, ..changed })
    }),
];

/// Cases with an item of an unknown kind, all of which is the arguments of the call.
const UNKNOWN_CALLS: &[&str] = &[
    "openai/responses_unknown_call_item",
    "openai/responses_unknown_call_alone",
    "openai/responses_unknown_call_after_a_message_streamed",
];

/// Changes to the fields of an item.
const OF_FIELDS: &[&str] = &["misleading fields", "nulls", "unknown fields"];

/// Exceptions in which a change may matter: the change, the label or dialect, and the reason.
const MATTERS: &[(&str, &str, &str)] = &[
    (
        "no event lines",
        "openai/responses_events_named_by_their_frames_alone",
        "the names of its events stand in these lines alone",
    ),
    (
        "no event lines",
        "openai/responses_failed_frame_with_completed_data",
        "the failure stands in one of these lines alone",
    ),
];

fn written(
    subject: &Subject,
    document: &Document,
    style: Style,
    dice: &mut Dice,
) -> Option<Changed> {
    Some(Changed { bytes: document.write(style, dice), content_type: subject.content_type.clone() })
}

fn plainly(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    written(subject, document, Style::default(), dice)
}

/// Keys whose values belong to the caller's tools, or to an error, of which every field matters.
const OF_TOOLS: &[&str] = &[
    "input",
    "args",
    "arguments",
    "parameters",
    "action",
    "actions",
    "operation",
    "content_filter_results",
    "error",
    "detail",
];

/// Changes every object that does not belong to a tool, starting with the outermost.
fn each_object(value: &mut Value, depth: usize, change: &mut impl FnMut(&mut Value, usize)) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if !OF_TOOLS.contains(&key.as_str()) {
                    each_object(inner, depth + 1, change);
                }
            }
            change(value, depth);
        }
        Value::Array(list) => {
            list.iter_mut().for_each(|inner| each_object(inner, depth + 1, change));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unknown_fields(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    let mut extra = dice.clone();
    let changed = document.map(|value| {
        each_object(value, 0, &mut |object, _| {
            let odd = [json!(null), json!(7), json!("x"), json!([1, {"y": "z"}]), json!({"y": {}})];
            object["x_unknown"] = extra.pick(&odd).clone();
        });
    });
    plainly(subject, &changed, dice)
}

/// Returns fields that other wires would read as the end.
fn misleading() -> Vec<(&'static str, Value)> {
    vec![
        ("finish_reason", json!("length")),
        ("finishReason", json!("MAX_TOKENS")),
        ("stop_reason", json!("max_tokens")),
        ("stopReason", json!("max_tokens")),
        ("done_reason", json!("length")),
        ("completionReason", json!("LENGTH")),
        ("blockReason", json!("SAFETY")),
        ("stop_type", json!("limit")),
        ("incomplete_details", json!({"reason": "max_output_tokens"})),
        ("is_finished", json!(true)),
        ("done", json!(true)),
    ]
}

/// Keys among them that a wire reads itself.
const READS: &[(&str, &[&str])] = &[
    ("openai-chat", &["finish_reason", "finishReason", "stop_reason"]),
    ("openai-completions", &["finish_reason", "stop_reason"]),
    ("openai-responses", &["incomplete_details"]),
    ("anthropic-messages", &["stop_reason"]),
    ("gemini-generate", &["finishReason", "blockReason"]),
    ("bedrock-converse", &["stopReason"]),
    ("bedrock-nova", &["stopReason"]),
    ("cohere-v2", &["finish_reason"]),
    ("ollama-chat", &["done_reason", "done"]),
    ("openai-assistants", &["incomplete_details"]),
    ("anthropic-complete", &["stop_reason"]),
    ("gemini-interactions", &[]),
    ("bedrock-titan", &["completionReason"]),
    ("bedrock-llama", &["stop_reason"]),
    ("bedrock-mistral", &["stop_reason", "finish_reason", "finishReason"]),
    ("bedrock-cohere", &["finish_reason", "is_finished"]),
    ("bedrock-ai21", &["finishReason"]),
    ("cohere-v1", &["finish_reason", "is_finished"]),
    ("watsonx", &["stop_reason"]),
    ("dashscope", &["finish_reason"]),
    ("replicate", &[]),
    ("hf-tgi", &["finish_reason"]),
    ("llamacpp-completion", &["stop_type"]),
    ("cloudflare-run", &["finish_reason", "finishReason", "stop_reason"]),
    ("aleph-alpha-complete", &["finish_reason"]),
    ("sap-orchestration", &["finish_reason", "finishReason", "stop_reason"]),
];

/// Adds finish reasons of other wires to every object, except under keys that this wire reads.
fn misleading_fields(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    let row = READS.iter().find(|(id, _)| *id == subject.dialect());
    let (_, reads) = row.unwrap_or_else(|| panic!("READS has no row for {}", subject.dialect()));
    let nested = json!({
        "finish_reason": "content_filter",
        "finishReason": "SAFETY",
        "stop_reason": "refusal",
        "status": "failed",
        "type": "error",
        "error": {"message": "maximum context length is 1 tokens", "code": "context_length_exceeded"},
        "choices": [{"index": 0, "finish_reason": "length"}],
        "candidates": [{"index": 0, "finishReason": "MAX_TOKENS"}],
    });
    let changed = document.map(|value| {
        each_object(value, 0, &mut |object, depth| {
            for (key, word) in misleading() {
                if !reads.contains(&key) && object.get(key).is_none() {
                    object[key] = word;
                }
            }
            if object.get("error").is_none() {
                object["error"] = Value::Null;
            }
            if depth <= 2 {
                object["x_trace"] = nested.clone();
            }
        });
    });
    plainly(subject, &changed, dice)
}

/// Optional fields of the wires that have no meaning if null.
const OPTIONAL: &[&str] = &[
    "error",
    "errors",
    "last_error",
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
    "stop_sequence",
    "stop_details",
    "promptFeedback",
    "incomplete_details",
    "required_action",
    "logprobs",
    "content_filter_results",
    "finish_details",
    "native_finish_reason",
    "matched_stop",
    "reasoning_content",
    "thinking",
    "usageMetadata",
    "additionalModelResponseFields",
    "trace",
    "x_groq",
    "base_resp",
    "detail",
    "finish_reason",
    "finishReason",
    "stop_reason",
    "stopReason",
    "done_reason",
];

fn nulls(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    let changed = document.map(|value| {
        each_object(value, 0, &mut |object, _| {
            for key in OPTIONAL {
                if object.get(*key).is_none() {
                    object[*key] = Value::Null;
                }
            }
        });
    });
    plainly(subject, &changed, dice)
}

fn comments(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    let mut changed = document.clone();
    changed.parts.clear();
    for part in &document.parts {
        let fill = [": a comment", ":", ": data: {\"error\":{\"message\":\"no\"}}", ": [DONE]"];
        if dice.roll(2) == 0 && is_field(part) {
            changed.parts.push(Part::Line((*dice.pick(&fill)).to_owned()));
        }
        changed.parts.push(part.clone());
        // Adds a blank line after the one that ends an event.
        if matches!(part, Part::Line(line) if line.is_empty()) {
            (0..dice.roll(3)).for_each(|_| changed.parts.push(Part::Line(String::new())));
        }
    }
    (document.framing == Framing::Sse).then(|| plainly(subject, &changed, dice))?
}

/// Reports whether the part is a line of server-sent events, not bare JSON between them.
fn is_field(part: &Part) -> bool {
    let fields = ["data:", "event:", "id:", "retry:", ":"];
    match part {
        Part::Line(line) => fields.iter().any(|field| line.starts_with(field)),
        Part::Json { .. } | Part::Message { .. } | Part::Bytes(_) => true,
    }
}

fn line_ends(
    subject: &Subject,
    document: &Document,
    dice: &mut Dice,
    end: &str,
) -> Option<Changed> {
    let bytes = document.write_lines(Style::default(), dice, end);
    let content_type = subject.content_type.clone();
    // JSON lines end with a line feed.
    let fits =
        document.framing == Framing::Sse || document.framing == Framing::Lines && end != "\r";
    fits.then_some(Changed { bytes, content_type })
}

fn byte_order_mark(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    let changed = plainly(subject, document, dice)?;
    let bytes = [b"\xef\xbb\xbf".as_slice(), &changed.bytes].concat();
    (document.framing != Framing::Aws).then_some(Changed { bytes, ..changed })
}

/// Wires that repeat the name of an event in its data.
const NAMED_IN_DATA: &[&str] = &[
    "openai-chat",
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "anthropic-complete",
    "gemini-generate",
    "gemini-interactions",
    "cohere-v2",
    "cohere-v1",
];

fn no_event_lines(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    let mut changed = document.clone();
    changed.parts.retain(|part| !matches!(part, Part::Line(line) if line.starts_with("event:")));
    // An event named `error` is an error by this line alone.
    let error = |part: &Part| matches!(part, Part::Line(line) if line.starts_with("event: error"));
    let fits = NAMED_IN_DATA.contains(&subject.dialect())
        && document.framing == Framing::Sse
        && !document.parts.iter().any(error);
    fits.then(|| plainly(subject, &changed, dice))?
}

fn no_choice_index(subject: &Subject, document: &Document, dice: &mut Dice) -> Option<Changed> {
    let lists = ["choices", "candidates"];
    let of = |value: &Value| {
        let lists = lists.iter().filter_map(|key| value[*key].as_array());
        lists.flatten().any(|choice| choice["index"].as_u64().unwrap_or(0) != 0)
    };
    if document.parts.iter().filter_map(Part::value).any(of) {
        return None;
    }
    let changed = document.map(|value| {
        for key in lists {
            let list = value.get_mut(key).and_then(Value::as_array_mut);
            for choice in list.into_iter().flatten() {
                choice.as_object_mut().map(|choice| choice.remove("index"));
            }
        }
    });
    plainly(subject, &changed, dice)
}

fn another_content_type(
    subject: &Subject,
    document: &Document,
    dice: &mut Dice,
) -> Option<Changed> {
    let types: &[&str] = match document.framing {
        Framing::Sse => &[
            "",
            "application/json",
            "text/plain",
            "application/octet-stream",
            "text/html",
            "application/vnd.amazon.eventstream",
        ],
        Framing::Array | Framing::Lines => &[
            "",
            "application/json",
            "text/plain",
            "application/octet-stream",
            "text/html",
            "text/event-stream",
            "application/vnd.amazon.eventstream",
        ],
        Framing::Body => &[
            "",
            "text/plain",
            "application/octet-stream",
            "text/html",
            "application/x-ndjson",
            "application/vnd.amazon.eventstream",
        ],
        Framing::Aws => &["", "application/json", "application/octet-stream"],
    };
    let changed = plainly(subject, document, dice)?;
    Some(Changed { content_type: (*dice.pick(types)).to_owned(), ..changed })
}

#[test]
fn what_must_not_matter_does_not() {
    let subjects = subjects();
    let found = on_two_threads(&subjects, |at, subject| {
        let whole = subject.outcome(&[&subject.bytes], &subject.content_type);
        let read_as = subject.read(&[&subject.bytes], &subject.content_type).0.dialect;
        let mut dice = Dice::of(0xbb67_ae85_84ca_a73b, at);
        let mut wrong = Vec::new();
        let mut tried = 1;
        let pieces = dice.cut(&subject.bytes, 50);
        let cut = subject.outcome(&pieces, &subject.content_type);
        wrong.extend(
            differ(&cut, &whole).map(|what| violation(subject, "cut into chunks", &what, b"")),
        );
        let Some(document) = Document::parse(&subject.bytes) else { return (tried, wrong) };
        for (name, change) in HARMLESS {
            let Some(changed) = change(subject, &document, &mut dice) else { continue };
            tried += 1;
            let pieces = dice.cut(&changed.bytes, 400);
            let got = subject.outcome(&pieces, &changed.content_type);
            // If the body contradicts its URL, its shape decides, and these fields mislead it.
            let guessed = read_as != subject.dialect() && *name == "misleading fields";
            if let Some(what) = differ(&got, &whole)
                && !matters(name, subject)
                && !guessed
            {
                let what = format!("{what} ({})", changed.content_type);
                wrong.push(violation(subject, name, &what, &changed.bytes));
            }
        }
        (tried, wrong)
    });
    tell(&found, "changes that must not matter");
}

fn matters(change: &str, subject: &Subject) -> bool {
    if OF_FIELDS.contains(&change) && UNKNOWN_CALLS.contains(&subject.label.as_str()) {
        return true;
    }
    MATTERS
        .iter()
        .any(|(name, of, _)| *name == change && (*of == subject.dialect() || *of == subject.label))
}

/// A wrong result.
struct Violation {
    dialect: &'static str,
    change: &'static str,
    report: String,
}

fn violation(subject: &Subject, change: &'static str, what: &str, bytes: &[u8]) -> Violation {
    let shown = String::from_utf8_lossy(bytes.get(..1500).unwrap_or(bytes)).replace('\n', "\n    ");
    let report = format!("{}: {what}\n    {shown}", subject.label);
    Violation { dialect: subject.dialect(), change, report }
}

/// Fails with a few violations per change and wire.
#[track_caller]
fn tell(found: &[(usize, Vec<Violation>)], what: &str) {
    let tried: usize = found.iter().map(|(tried, _)| tried).sum();
    let wrong: Vec<&Violation> = found.iter().flat_map(|(_, wrong)| wrong).collect();
    println!("{tried} {what}, {} violations", wrong.len());
    let mut groups = BTreeMap::<(&str, &str), Vec<&str>>::new();
    for violation in &wrong {
        groups.entry((violation.dialect, violation.change)).or_default().push(&violation.report);
    }
    let shown = groups.iter().map(|((dialect, change), reports)| {
        let few: Vec<&str> = reports.iter().take(2).copied().collect();
        format!("== {dialect}, {change}: {}\n{}", reports.len(), few.join("\n"))
    });
    let shown: Vec<String> = shown.collect();
    assert!(wrong.is_empty(), "{} of {tried} violations:\n{}", wrong.len(), shown.join("\n"));
}

/// A change after which no response may be a success. It returns `None` if it does not apply, and
/// the expected reason, if there is one.
type Harmful = fn(&Subject, &Document, &Ending, &mut Dice) -> Option<(Vec<u8>, Option<Reason>)>;

const HARMFUL: &[(&str, Harmful)] = &[
    ("the word is null", |subject, document, _, dice| {
        let changed =
            document.map(|value| set_words(subject, value, &mut |word| *word = Value::Null));
        let bytes = changed.write(Style::default(), dice);
        Some((bytes, None))
    }),
    ("the word is dropped", |subject, document, _, dice| {
        let mark = json!({"dropped": true});
        let mut changed =
            document.map(|value| set_words(subject, value, &mut |word| *word = mark.clone()));
        changed = changed.map(|value| drop_marked(value, &mark));
        Some((changed.write(Style::default(), dice), None))
    }),
    ("the proof is dropped", proof_dropped),
    (MARKER, marker_dropped),
    ("the ends of calls are dropped", ends_dropped),
    ("the head of a call is dropped", head_dropped),
    ("arguments are cut", arguments_cut),
    ("the last byte is missing", |_, document, _, dice| {
        let mut bytes = document.write(Style::default(), dice);
        bytes.pop();
        matches!(document.framing, Framing::Body | Framing::Array).then_some((bytes, None))
    }),
    ("a plain body is cut", |_, document, _, dice| {
        let mut bytes = document.write(Style::default(), dice);
        bytes.truncate(dice.roll(bytes.trim_ascii_end().len()));
        (document.framing == Framing::Body).then_some((bytes, None))
    }),
    ("another word", another_word),
];

/// Change after which a response may be a success, but not a sure one: many hosts send no marker.
const MARKER: &str = "the end marker is dropped";

/// Exceptions in which a harmful change may not matter: the change, the dialect or label, and the
/// reason. Without its word, a response still is not a success of high confidence.
const STAYS: &[(&str, &str, &str)] = &[
    ("the word is null", "openai-responses", "the name of the last event says it too"),
    ("the word is dropped", "openai-responses", "the name of the last event says it too"),
    ("the word is null", "ollama-chat", "old servers send `done` alone"),
    ("the word is dropped", "ollama-chat", "old servers send `done` alone"),
    ("the word is null", "replicate", "the name of the last event is the word"),
    ("the word is dropped", "replicate", "the name of the last event is the word"),
    ("arguments are cut", "9669424bb455938afdd7", "fifteen streams one after the other"),
];

/// Changes the values of the fields that carry this wire's finish reasons.
fn set_words(subject: &Subject, value: &mut Value, set: &mut impl FnMut(&mut Value)) {
    let tables = subject.wire.profile.words.iter().chain(subject.wire.profile.dialect.words);
    let keys: Vec<&str> =
        tables.map(|words| words.path.rsplit('.').next().unwrap_or(words.path)).collect();
    set_keys(value, &keys, set);
}

fn set_keys(value: &mut Value, keys: &[&str], set: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if OF_TOOLS.contains(&key.as_str()) {
                    continue;
                }
                // Flags of old servers, each of which is a finish reason.
                let is_flag = key.starts_with("stopped_") && *inner == json!(true);
                let is_word = inner.is_string() || inner.is_number() || is_flag;
                if keys.contains(&key.as_str()) && is_word {
                    set(inner);
                } else {
                    set_keys(inner, keys, set);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| set_keys(inner, keys, set)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn drop_marked(value: &mut Value, mark: &Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, inner| inner != mark);
            map.values_mut().for_each(|inner| drop_marked(inner, mark));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| drop_marked(inner, mark)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes the frame that proves the end, and keeps those after it.
fn proof_dropped(
    subject: &Subject,
    document: &Document,
    _: &Ending,
    dice: &mut Dice,
) -> Option<(Vec<u8>, Option<Reason>)> {
    let streamed = !matches!(document.framing, Framing::Body | Framing::Array);
    let needs = matches!(subject.wire.profile.proof, Proof::Event | Proof::Word);
    if !streamed || !needs {
        return None;
    }
    if subject.wire.profile.proof == Proof::Word {
        let mut dropped = document.clone();
        dropped.parts.retain(|part| {
            let mut says = false;
            if let Some(mut value) = part.value().cloned() {
                set_words(subject, &mut value, &mut |_| says = true);
            }
            !says
        });
        return Some((dropped.write(Style::default(), dice), None));
    }
    let marks = oracle::marks(&subject.wire.profile, &document.write(Style::default(), dice))?;
    let mut dropped = Document { parts: Vec::new(), ..*document };
    let mut end = 0;
    let mut found = false;
    for part in &document.parts {
        let alone = Document { parts: vec![part.clone()], ..*document };
        let start = end;
        end += alone.write(Style::default(), dice).len();
        let proves = !found && part.value().is_some() && start < marks.earliest;
        if proves && marks.earliest <= end {
            found = true;
        } else {
            dropped.parts.push(part.clone());
        }
    }
    let bytes = dropped.write(Style::default(), dice);
    // Some fixtures contain several responses in a row, so that another end marker follows.
    let proven = oracle::marks(&subject.wire.profile, &bytes).is_some();
    (found && !proven).then_some((bytes, None))
}

/// Removes the end marker.
fn marker_dropped(
    subject: &Subject,
    document: &Document,
    _: &Ending,
    dice: &mut Dice,
) -> Option<(Vec<u8>, Option<Reason>)> {
    let Proof::Marker(marker) = subject.wire.profile.proof else { return None };
    let mut dropped = document.clone();
    dropped.parts.retain(|part| !matches!(part, Part::Line(line) if line.contains(marker)));
    let found = dropped.parts.len() < document.parts.len();
    found.then(|| (dropped.write(Style::default(), dice), None))
}

/// Removes the events of Responses that end calls, and the calls that the last event repeats.
fn ends_dropped(
    subject: &Subject,
    document: &Document,
    ending: &Ending,
    dice: &mut Dice,
) -> Option<(Vec<u8>, Option<Reason>)> {
    if ending.reason != Reason::ToolCall
        || subject.dialect() != "openai-responses"
        || document.framing == Framing::Body
    {
        return None;
    }
    let kind = |part: &Part| {
        let kind = part.value().and_then(|value| value["type"].as_str());
        kind.unwrap_or_default().to_owned()
    };
    let begins = |part: &Part| {
        let item = part.value().map(|value| value["item"]["type"] == "function_call");
        kind(part) == "response.output_item.added" && item == Some(true)
    };
    if !document.parts.iter().any(begins) {
        return None;
    }
    let mut dropped = document.clone();
    dropped.parts.retain(|part| {
        let kind = kind(part);
        kind != "response.output_item.done" && kind != "response.function_call_arguments.done"
    });
    for part in &mut dropped.parts {
        if let Some(value) = part.value_mut()
            && value["response"]["output"].is_array()
        {
            value["response"]["output"] = json!([]);
        }
    }
    Some((dropped.write(Style::default(), dice), None))
}

/// Removes the event that starts the first call, if the arguments come after it.
fn head_dropped(
    subject: &Subject,
    document: &Document,
    ending: &Ending,
    dice: &mut Dice,
) -> Option<(Vec<u8>, Option<Reason>)> {
    // Responses sends each call three times.
    if ending.reason != Reason::ToolCall || subject.dialect() == "openai-responses" {
        return None;
    }
    let head = (0..document.parts.len()).find_map(|at| {
        let so_far = Document { parts: document.parts.get(..=at)?.to_vec(), ..*document };
        let calls = oracle::calls::read(subject.dialect(), &so_far.write(Style::default(), dice))?;
        calls.first().map(|call| (at, call.arguments.clone()))
    });
    let (at, arguments) = head?;
    let whole = oracle::calls::read(subject.dialect(), &subject.bytes)?;
    let bare = |arguments: &str| matches!(arguments.trim(), "" | "{}");
    let alone =
        whole.first().is_none_or(|call| call.arguments == arguments || bare(&call.arguments));
    if alone || serde_json::from_str::<Value>(&arguments).is_ok() {
        return None;
    }
    let mut dropped = document.clone();
    dropped.parts.remove(at);
    Some((dropped.write(Style::default(), dice), None))
}

/// Removes the last character of the arguments, wherever they are.
fn arguments_cut(
    _: &Subject,
    document: &Document,
    ending: &Ending,
    dice: &mut Dice,
) -> Option<(Vec<u8>, Option<Reason>)> {
    if ending.reason != Reason::ToolCall {
        return None;
    }
    let is_whole =
        |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object());
    let mut pieces = 0;
    let mut custom = false;
    drop(document.map(|value| {
        let text = value.to_string();
        // Calls that run at the provider do not count, and free text has no end.
        custom |= text.contains("\"custom") || text.contains("\"server_tool_use\"");
        each_argument(value, &mut |text| pieces += usize::from(!is_whole(text)));
    }));
    let mut seen = 0;
    let mut cut = 0;
    let changed = document.map(|value| {
        each_argument(value, &mut |text| {
            let whole = is_whole(text);
            seen += usize::from(!whole);
            if whole || seen == pieces {
                let shorter = text.trim_end();
                *text = shorter.chars().take(shorter.chars().count().saturating_sub(1)).collect();
                cut += 1;
            }
        });
    });
    (cut > 0 && !custom).then(|| (changed.write(Style::default(), dice), None))
}

/// Changes text that is arguments, complete or a piece.
fn each_argument(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    let is_delta = value["type"].as_str().is_some_and(|name| name.ends_with("arguments.delta"));
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                let named = ["arguments", "partial_json", "input"].contains(&key.as_str());
                // Arguments that are a value end with it.
                if inner.is_object() && OF_TOOLS.contains(&key.as_str()) {
                    continue;
                }
                if let Value::String(text) = inner
                    && (named || is_delta && key == "delta")
                {
                    if !text.trim().is_empty() {
                        change(text);
                    }
                } else {
                    each_argument(inner, change);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| each_argument(inner, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces the finish reason with another one that is not a success. The reason must follow.
fn another_word(
    subject: &Subject,
    document: &Document,
    ending: &Ending,
    dice: &mut Dice,
) -> Option<(Vec<u8>, Option<Reason>)> {
    let said = ending.said.as_ref()?;
    let profile = &subject.wire.profile;
    let tables = profile.words.iter().chain(profile.dialect.words);
    let rows: Vec<(&str, Reason)> = tables
        .filter(|words| words.field == said.field)
        .flat_map(|words| words.rows.iter().filter(|(word, _)| !words.vague.contains(word)))
        .filter(|(_, reason)| !reason.is_success())
        .copied()
        .collect();
    if rows.is_empty() || ending.choices.len() > 1 {
        return None;
    }
    let (word, reason) = *dice.pick(&rows);
    let old = json!(said.word);
    let mut swapped = false;
    let changed = document.map(|value| {
        set_words(subject, value, &mut |found| {
            if *found == old {
                *found = json!(word);
                swapped = true;
            }
        });
    });
    swapped.then(|| (changed.write(Style::default(), dice), Some(reason)))
}

#[test]
fn what_must_matter_does() {
    let subjects = subjects();
    let found = on_two_threads(&subjects, |at, subject| {
        let mut dice = Dice::of(0x3c6e_f372_fe94_f82b, at);
        let (ending, _) = subject.read(&[&subject.bytes], &subject.content_type);
        let mut wrong = Vec::new();
        let mut tried = 0;
        // The changes are those of the named wire.
        let is_named = ending.dialect == subject.dialect();
        if !ending.reason.is_success() || subject.close != TransportEnd::Eof || !is_named {
            return (0, wrong);
        }
        let Some(document) = Document::parse(&subject.bytes) else { return (0, wrong) };
        for (name, change) in HARMFUL {
            let Some((bytes, reason)) = change(subject, &document, &ending, &mut dice) else {
                continue;
            };
            let stays = STAYS.iter().any(|(known, of, _)| {
                known == name && (*of == subject.dialect() || *of == subject.label)
            });
            tried += 1;
            let (got, calls) = subject.read(&[&bytes], &subject.content_type);
            let follows = reason.is_none_or(|reason| got.reason == reason);
            let success = got.reason.is_success() || allow(&got, &calls) == Allow::Run;
            let sure = success && got.confidence == Confidence::High;
            let allowed = stays && !(sure && name.starts_with("the word"));
            let allowed = allowed || *name == MARKER && !sure;
            if !allowed && (success || !follows) {
                let what = format!("{:?}, wanted {reason:?}: {}", got.reason, got.sentence);
                wrong.push(violation(subject, name, &what, &bytes));
            }
        }
        (tried, wrong)
    });
    tell(&found, "changes that must matter");
}
