//! For every finish reason of every wire, the same content gives the same verdict, streamed or not.

use endstop::provider::{self, Profile};
use endstop::{Ending, Head, RequestInfo, TransportEnd, Watcher};
use serde_json::{Value, json};

use crate::answer::{Answer, Content, one_call};

#[test]
fn for_every_word_of_every_wire() {
    let mut compared = 0;
    for dialect in endstop::dialect::ALL {
        for words in dialect.words {
            let names = words.rows.iter().map(|(word, _)| *word).chain(words.empty.iter().copied());
            for word in names.map(Value::from).chain([json!("frobnicated"), json!(77), Value::Null])
            {
                for content in [Content::Text, Content::Nothing, Content::Refusal, one_call()] {
                    let word = word.clone();
                    let answer = Answer { dialect, field: words.field, word, content, piece: 3 };
                    compared += usize::from(check(&answer));
                }
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

/// Checks an answer. Reports whether it has both forms to compare.
#[track_caller]
fn check(answer: &Answer<'_>) -> bool {
    let profile = provider::ALL.iter().find_map(|known| known.wire_of(answer.dialect.id)).unwrap();
    let (Some(stream), Some(body)) = (answer.stream(), answer.body()) else { return false };
    let streamed = read(profile, "", &stream);
    let plain = read(profile, "application/json", &body);
    let facts = |ending: &Ending| {
        (
            ending.reason,
            ending.confidence,
            ending.said.clone(),
            ending.shown,
            ending.closed,
            ending.sentence.clone(),
        )
    };
    assert_eq!(facts(&streamed), facts(&plain), "{answer:?}");
    true
}

fn read(profile: &Profile, content_type: &str, bytes: &[u8]) -> Ending {
    let mut reader =
        Watcher::new(profile, Head { status: 200, content_type }, RequestInfo::default());
    reader.watch(bytes);
    reader.finish(TransportEnd::Eof)
}
