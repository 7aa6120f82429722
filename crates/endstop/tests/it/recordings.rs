//! Requirements on every recorded response.

use endstop::dialect::Meaning;
use endstop::dialect::Word;
use endstop::{Ending, FaultKind, Reason, TransportEnd};
use serde_json::{Value, json};

use crate::call;
use crate::oracle;
use crate::prefixes::check_cuts;
use crate::recorded::{self, Known, Record};
use crate::sample::{Dice, everything, on_two_threads, some};

/// Number of records that are cut into random chunks, and number of cuts tried per stream.
const CUT_RECORDS: usize = 1500;
const CUTS_OF_A_STREAM: usize = 24;

/// Records whose label and body disagree, judged by the body.
const DOUBTFUL: &[(&str, &str)] = &[
    (
        "3aad75995ee11f0784f6",
        "`max_tokens` is none of Llama's words; the test that it is from made it up",
    ),
    (
        "82eb07c08e20d47f7f4b",
        "one event of a stream, kept as a mock: the candidate has no finish reason",
    ),
    ("bb53fafbdb5226cdfafe", "one event of a stream, kept as a fixture: it says `done: false`"),
];

/// Returns what is wrong with this ending, if anything.
fn wrong(record: &Record, ending: &Ending) -> Option<&'static str> {
    let words = record.words();
    let native = ending.said.as_ref().map(|said| said.word.as_str());
    let overflow =
        ending.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::ContextWindow);
    if !words.is_empty() && !native.is_some_and(|native| words.iter().any(|word| word == native)) {
        return Some("the native word is not one of those in the body");
    }
    if !words.is_empty()
        && ending.over
        && ending.reason == Reason::Unknown
        && !is_vague(record, ending)
    {
        return Some("a documented word is unknown");
    }
    if record.context_overflow == Some(true) && !(overflow && ending.reason == Reason::ContextLimit)
    {
        return Some("a context overflow is missed");
    }
    if record.truncated == Some(false) && ending.reason == Reason::Cut {
        return Some("a complete response is called cut");
    }
    if record.truncated == Some(true) && ending.reason.is_success() {
        return Some("a cut response is called complete");
    }
    if record.status.is_some_and(|status| status >= 400) && ending.reason.is_success() {
        return Some("an error is called complete");
    }
    if record.is_error() && ending.fault.is_none() {
        return Some("an error is not seen");
    }
    if ending.reason == Reason::ToolCall && !has_calls(record) {
        return Some("a response without calls for the caller is called a tool call");
    }
    None
}

/// Reports whether a second reading finds calls for the caller, or cannot tell.
fn has_calls(record: &Record) -> bool {
    let body = record.bytes();
    let calls = oracle::calls::read(record.wire(&body).profile.dialect.id, &body);
    calls.is_none_or(|calls| !calls.is_empty())
}

/// Reports whether the finish reason is in the tables but vague.
fn is_vague(record: &Record, ending: &Ending) -> bool {
    let Some(said) = &ending.said else { return false };
    let wire = record.wire(&record.bytes());
    let number = said.word.parse().map(Word::Number).ok();
    let words = std::iter::once(Word::Text(said.word.as_str().into())).chain(number);
    words.into_iter().any(|word| {
        matches!(wire.meaning(&said.field, &word), Meaning::Vague(_) | Meaning::Nothing)
    })
}

#[test]
fn every_record_is_judged_and_none_wrongly() {
    let mut failures = Vec::new();
    for (folder, records) in recorded::by_folder() {
        let judged = on_two_threads(records, |_, record| {
            let ending = record.ending();
            wrong(record, &ending).map(|what| {
                format!(
                    "{} {} {}: {what}: {:?} {:?}",
                    record.api,
                    record.provider.as_deref().unwrap_or("?"),
                    record.id,
                    ending.reason,
                    ending.said
                )
            })
        });
        let wrong = judged.iter().flatten().count();
        let named = |line: &&String| DOUBTFUL.iter().any(|(id, _)| line.contains(id));
        let doubtful = judged.iter().flatten().filter(named).count();
        println!(
            "{}: {} of {} records right, {:.3} %; {doubtful} named as doubtful",
            folder.file_name().unwrap_or_default().display(),
            records.len() - wrong,
            records.len(),
            100.0 * (records.len() - wrong) as f64 / records.len() as f64,
        );
        failures.extend(judged.into_iter().flatten().filter(|line| !named(&line)));
    }
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
}

/// A complete response with a natural stop is a success, unless the body shows otherwise.
#[test]
fn no_whole_response_is_overruled_without_evidence() {
    let records = recorded::all();
    let overruled = on_two_threads(&records, |_, record| {
        let ending = record.ending();
        let whole = record.truncated == Some(false) && ending.fault.is_none() && ending.over;
        let wire = record.wire(&record.bytes());
        let natural = !record.words().is_empty()
            && record.words().iter().all(|word| {
                let meaning = ending
                    .said
                    .as_ref()
                    .map(|said| wire.meaning(&said.field, &Word::Text(word.as_str().into())));
                matches!(meaning, Some(Meaning::Known(reason)) if reason.is_success())
            });
        let overruled = whole && natural && !ending.reason.is_success();
        (overruled && !shows_otherwise(record)).then(|| {
            format!(
                "{} {}: {:?} {:?}: {}",
                record.api, record.id, ending.reason, ending.said, ending.sentence
            )
        })
    });
    let overruled: Vec<String> = overruled.into_iter().flatten().collect();
    assert!(overruled.is_empty(), "{} overruled:\n{}", overruled.len(), overruled.join("\n"));
}

/// Reports whether the body contradicts a natural stop: a refusal, a guardrail, a pending approval,
/// an open item, or arguments that are not a JSON object.
fn shows_otherwise(record: &Record) -> bool {
    let body = record.bytes();
    let broken = |call: &call::Call| {
        let value: Value = serde_json::from_str(&call.arguments).unwrap_or(json!(1));
        !call.arguments.trim().is_empty() && !value.is_object() && !value.is_null()
    };
    let calls = oracle::calls::read(record.wire(&body).profile.dialect.id, &body);
    oracle::values(&body).iter().any(says_otherwise) || calls.iter().flatten().any(broken)
}

/// Reports whether the final state of a Responses call is unfinished.
fn is_open_item(item: &Value) -> bool {
    item["type"].as_str().is_some_and(|kind| kind.ends_with("_call"))
        && (item["status"] == "in_progress" || item["status"] == "incomplete")
}

fn says_otherwise(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, inner)| {
            key == "refusal" && inner.as_str().is_some_and(|text| !text.is_empty())
                || key == "amazon-bedrock-guardrailAction" && inner == "INTERVENED"
                || key == "type" && (inner == "mcp_approval_request" || is_open_item(value))
                || says_otherwise(inner)
        }),
        Value::Array(list) => list.iter().any(says_otherwise),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Records whose address or body does not tell the wire, with the reason.
const UNDETECTED: &[(Known, &str, &str)] = &[(
    Known::Body,
    "df206ffa224349f48e54",
    "only at this host does an error with `length` before it mean the output limit",
)];

/// Without the label of the recording, the wire is found from the address or from the body alone,
/// and the response ends for the same reason.
#[test]
fn the_wire_of_every_record_is_detected() {
    let records = recorded::all();
    let mut failures = Vec::new();
    for known in [Known::Address, Known::Body] {
        let named =
            |record: &Record| UNDETECTED.iter().any(|(of, id, _)| *of == known && *id == record.id);
        let judged = on_two_threads(&records, |_, record| {
            let (want, got) = (record.ending(), record.ending_by(known));
            (want.reason != got.reason).then(|| {
                format!(
                    "{known:?} {} {} {}: {:?} as {}, {:?} as {}",
                    record.api,
                    record.provider.as_deref().unwrap_or("?"),
                    record.id,
                    want.reason,
                    want.dialect,
                    got.reason,
                    got.dialect
                )
            })
        });
        let differ = judged.iter().flatten().count();
        println!(
            "{known:?}: {} of {} records end as with their label, {:.3} %",
            records.len() - differ,
            records.len(),
            100.0 * (records.len() - differ) as f64 / records.len().max(1) as f64,
        );
        let found = records.iter().zip(judged);
        for (record, line) in found {
            match line {
                Some(line) if !named(record) => failures.push(line),
                None if named(record) => failures.push(format!("{} is detected", record.id)),
                Some(_) | None => {}
            }
        }
    }
    assert!(failures.is_empty(), "{} not detected:\n{}", failures.len(), failures.join("\n"));
}

/// A record that reads correctly again must be removed from the list.
#[test]
fn every_doubtful_record_is_still_one() {
    for record in recorded::all() {
        let named = DOUBTFUL.iter().any(|(id, _)| *id == record.id);
        assert!(!named || wrong(record, &record.ending()).is_some(), "{} is right", record.id);
    }
}

#[test]
fn any_cutting_of_a_record_gives_the_same_ending() {
    let all = recorded::all();
    let records = some(&all, CUT_RECORDS, 0x2545_f491_4f6c_dd1d);
    on_two_threads(&records, |at, record| {
        let body = record.bytes();
        let whole = record.ending();
        for largest in [16, 1400] {
            let mut dice = Dice::of(0x1cdd_6c4f_91f4_4525, at);
            let mut reader = record.watcher(&body);
            dice.cut(&body, largest).into_iter().for_each(|piece| reader.watch(piece));
            assert_eq!(reader.finish(TransportEnd::Eof), whole, "{}", record.id);
        }
    });
}

/// Tries random cuts and cuts around the end marker; every cut with `ENDSTOP_ALL=1`.
#[test]
fn no_prefix_of_a_recorded_stream_is_a_success() {
    let streams: Vec<&Record> =
        recorded::all().into_iter().filter(|record| record.stream).collect();
    let cuts = on_two_threads(&streams, |at, record| {
        let body = record.bytes();
        let wire = record.wire(&body);
        let marks = oracle::marks(&wire.profile, &body);
        let cuts = cuts_of(&body, marks, &mut Dice::of(0x5851_f42d_4c95_7f2d, at));
        check_cuts(&record.id, &wire, record.watcher(&body), &body, TransportEnd::Eof, &cuts);
        cuts.len()
    });
    println!("{} cuts of {} streams", cuts.iter().sum::<usize>(), streams.len());
}

/// Returns the positions at which a stream is cut, in order.
fn cuts_of(body: &[u8], marks: Option<oracle::Marks>, dice: &mut Dice) -> Vec<usize> {
    if everything() {
        return (0..body.len()).collect();
    }
    let mut cuts: Vec<usize> = (0..CUTS_OF_A_STREAM).map(|_| dice.roll(body.len())).collect();
    if let Some(marks) = marks {
        cuts.extend(marks.earliest.saturating_sub(6)..marks.settled + 2);
    }
    cuts.extend(body.len().saturating_sub(4)..body.len());
    cuts.retain(|cut| *cut < body.len());
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// No wire may return `{}` for arguments that were sent.
#[test]
fn the_calls_of_every_record_are_those_of_a_second_reading() {
    let records = recorded::all();
    let compared = on_two_threads(&records, |_, record| {
        let body = record.bytes();
        let wire = record.wire(&body);
        let (ending, got) = record.read(&body);
        let failed = record.status.is_some_and(|status| status >= 300);
        let want = oracle::calls::read(wire.profile.dialect.id, &body).filter(|_| !failed);
        let Some(want) = want else { return Ok(0) };
        let got: Vec<call::Call> = got.iter().map(call::Call::from).collect();
        match call::differ(&got, &want, call::Compare::of(wire.profile.dialect.id, &body)) {
            Some(what) => Err(format!("{} {}: {what}: {:?}", record.api, record.id, ending.reason)),
            None => Ok(want.len()),
        }
    });
    let wrong: Vec<&String> = compared.iter().filter_map(|found| found.as_ref().err()).collect();
    let count: usize = compared.iter().flatten().sum();
    println!("{count} calls of {} records", records.len());
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.iter().map(|line| line.as_str()).collect::<Vec<_>>().join("\n")
    );
}

/// Finds the text of a plain body by the documented paths, without code of the product.
fn has_text(dialect: &str, body: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    match dialect {
        "openai-chat" => list(&body["choices"]).iter().any(|choice| {
            let content = &choice["message"]["content"];
            is_text(content) || content.is_object()
        }),
        "openai-responses" => list(&body["output"]).iter().any(|item| {
            let parts = list(&item["content"]);
            item["type"] == "message" && parts.iter().any(|part| is_text(&part["text"]))
        }),
        "anthropic-messages" => list(&body["content"])
            .iter()
            .any(|block| block["type"] == "text" && is_text(&block["text"])),
        "gemini-generate" => list(&body["candidates"]).iter().any(|candidate| {
            let parts = list(&candidate["content"]["parts"]);
            parts.iter().any(|part| is_text(&part["text"]) && part["thought"] != true)
        }),
        _ => false,
    }
}

/// A response with text is never judged empty.
#[test]
fn the_text_of_every_plain_record_is_seen() {
    let records = recorded::all();
    let found = on_two_threads(&records, |_, record| {
        let body = record.bytes();
        let Ok(value) = serde_json::from_slice::<Value>(&body) else { return Ok(0) };
        let (ending, _) = record.read(&body);
        let seen = ending.choices.iter().any(|choice| choice.shown.text);
        if has_text(&ending.dialect, &value) && !seen {
            return Err(format!("{} {}: {}", record.api, record.id, ending.sentence));
        }
        Ok(usize::from(seen))
    });
    let wrong: Vec<&String> = found.iter().filter_map(|found| found.as_ref().err()).collect();
    println!("{} plain records with text", found.iter().flatten().sum::<usize>());
    assert!(wrong.is_empty(), "{} judged without text: {wrong:#?}", wrong.len());
}
