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
