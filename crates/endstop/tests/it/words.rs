//! Every row of every table of finish reasons has a case that fails if the row changes.

use endstop::Reason;
use endstop::dialect::Meaning;
use endstop::provider::{self, Corrections, Taught, Wire};

use crate::case::{self, Case};

#[test]
fn a_flipped_word_fails_a_case() {
    let cases = case::all();
    let mut unheld = Vec::new();
    for provider in provider::ALL {
        for profile in provider.wires() {
            for words in profile.words {
                unheld.extend(words.rows.iter().filter_map(|(word, reason)| {
                    let held = is_held(&cases, words.field, word, *reason, |case| {
                        case.provider == profile.provider
                            && case.wire().profile.dialect.id == profile.dialect.id
                    });
                    (!held).then(|| format!("{} {} {word}", profile.provider, words.field))
                }));
            }
        }
    }
    for dialect in endstop::dialect::ALL {
        for words in dialect.words {
            unheld.extend(words.rows.iter().filter_map(|(word, reason)| {
                let held = is_held(&cases, words.field, word, *reason, |case| {
                    case.wire().profile.dialect.id == dialect.id
                });
                (!held).then(|| format!("{} {} {word}", dialect.id, words.field))
            }));
        }
    }
    assert!(unheld.is_empty(), "no case covers:\n{}", unheld.join("\n"));
}

/// Reports whether a case fails if the finish reason has another meaning.
fn is_held(
    cases: &[Case],
    field: &str,
    word: &str,
    reason: Reason,
    of: impl Fn(&Case) -> bool,
) -> bool {
    let other = if reason == Reason::Recitation { Reason::Paused } else { Reason::Recitation };
    let taught = Taught {
        field: Some(field.to_owned()),
        word: word.to_owned(),
        meaning: Meaning::Known(other),
    };
    let flipped = Corrections { provider: None, words: vec![taught] };
    cases.iter().filter(|case| of(case)).any(|case| {
        let wire: Wire = case.wire().corrected(flipped.clone());
        case.differs(&case.read(wire, [&*case.bytes()])).is_some()
    })
}

#[test]
fn a_flipped_number_fails_a_case() {
    let cases = case::all();
    let mut unheld = Vec::new();
    for provider in provider::ALL {
        for profile in provider.wires() {
            for words in profile.words {
                for (number, word) in words.numbers {
                    let held = cases.iter().any(|case| {
                        case.provider == profile.provider
                            && case.want_native() == number.to_string()
                            && case.want_field() == words.field
                    });
                    if !held {
                        unheld
                            .push(format!("{} {} {number} {word}", profile.provider, words.field));
                    }
                }
            }
        }
    }
    assert!(unheld.is_empty(), "no case for:\n{}", unheld.join("\n"));
}

#[test]
fn no_table_says_a_word_twice() {
    let tables = provider::ALL
        .iter()
        .flat_map(|provider| provider.wires())
        .flat_map(|profile| profile.words);
    let tables = tables.chain(endstop::dialect::ALL.iter().flat_map(|dialect| dialect.words));
    for words in tables {
        for (index, (word, _)) in words.rows.iter().enumerate() {
            assert!(!words.rows[..index].iter().any(|(earlier, _)| earlier == word), "{word}");
        }
        for vague in words.vague {
            assert!(words.rows.iter().any(|(word, _)| word == vague), "{vague}");
        }
    }
}

/// Fields that carry finish reasons in which a new one cannot be taught, with the reason.
const UNTAUGHT: &[(&str, &str, &str)] = &[
    ("ollama-chat", "done", "a flag of old servers, which is true or false"),
    ("bedrock-titan", "amazon-bedrock-guardrailAction", "one value says that a guardrail acted"),
    ("llamacpp-completion", "stopped_limit", "a flag of old servers, which is true or false"),
    ("llamacpp-completion", "stopped_word", "a flag of old servers, which is true or false"),
    ("llamacpp-completion", "stopped_eos", "a flag of old servers, which is true or false"),
];

/// Replaces a finish reason with another wherever it is a value or the name of an event.
fn with_word(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let quoted = text.replace(&format!("\"{old}\""), &format!("\"{new}\""));
    let named = ["event: ", "event:"].iter().fold(quoted, |text, event| {
        text.replace(&format!("{event}{old}\n"), &format!("{event}{new}\n"))
    });
    named.into_bytes()
}

/// A finish reason that nobody has seen can be taught in every field, and is read streamed and plain.
#[test]
fn every_field_can_be_taught() {
    const NEW: &str = "frobnicated";
    let cases = case::all();
    let reads = |streamed: bool, dialect: &str, field: &str| {
        let said = |case: &Case| {
            let said = case.read(case.wire(), [&*case.bytes()]).said?;
            (said.field == field).then_some(said.word)
        };
        let mut tried = false;
        let is_read = cases
            .iter()
            .filter(|case| {
                case.is_stream() == streamed && case.wire().profile.dialect.id == dialect
            })
            .filter(|case| std::str::from_utf8(&case.bytes()).is_ok())
            .filter_map(|case| Some((case, said(case)?)))
            .any(|(case, word)| {
                tried = true;
                let taught = Taught {
                    field: Some(field.to_owned()),
                    word: NEW.to_owned(),
                    meaning: Meaning::Known(Reason::Paused),
                };
                let corrections = Corrections { provider: None, words: vec![taught] };
                let bytes = with_word(&case.bytes(), &word, NEW);
                let ending = case.read(case.wire().corrected(corrections), [&*bytes]);
                ending.reason == Reason::Paused && ending.said.is_some_and(|said| said.word == NEW)
            });
        (tried, is_read)
    };
    let mut wrong = Vec::new();
    for dialect in endstop::dialect::ALL {
        for words in dialect.words {
            let known = UNTAUGHT.iter().any(|row| (row.0, row.1) == (dialect.id, words.field));
            let (streams, plain) =
                (reads(true, dialect.id, words.field), reads(false, dialect.id, words.field));
            let fine = (streams.0 || plain.0)
                && [streams, plain].iter().all(|(tried, is_read)| !tried || *is_read);
            if fine == known {
                wrong.push(format!("{} {}: {streams:?} {plain:?}", dialect.id, words.field));
            }
        }
    }
    assert!(wrong.is_empty(), "(tried, read) streamed and plain:\n{}", wrong.join("\n"));
}

/// The upstream's finish reason beside the router's own counts once it has a meaning.
#[test]
fn the_word_of_an_upstream_can_be_taught() {
    let wire = Wire::from(&provider::OPENROUTER);
    let read = |wire: &Wire, bytes: &[u8], content_type| {
        let head = endstop::Head { status: 200, content_type };
        let mut watcher = endstop::Watcher::new(wire, head, endstop::RequestInfo::default());
        watcher.watch(bytes);
        watcher.finish(endstop::TransportEnd::Eof).reason
    };
    let plain = br#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop","native_finish_reason":"frob"}]}"#;
    let streamed = b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\",\"native_finish_reason\":\"frob\"}]}\n\ndata: [DONE]\n\n";
    let taught = Taught {
        field: Some("native_finish_reason".to_owned()),
        word: "frob".to_owned(),
        meaning: Meaning::Known(Reason::Paused),
    };
    let corrected = wire.clone().corrected(Corrections { provider: None, words: vec![taught] });
    for (bytes, content_type) in
        [(&plain[..], "application/json"), (&streamed[..], "text/event-stream")]
    {
        assert_eq!(read(&wire, bytes, content_type), Reason::Complete);
        assert_eq!(read(&corrected, bytes, content_type), Reason::Paused);
    }
}
