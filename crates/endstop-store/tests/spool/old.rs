//! A spool that an earlier version left, byte for byte: `tests/spool/old` was written by the version before entries
//! became compact (JSON with every field, as serde writes it, and without `client_status`).

use std::path::Path;

use endstop::Record;

use crate::{copy, drain, open, tempdir};

fn id(number: u32) -> String {
    format!("018bcfe568007000800000000000000{number}")
}

fn asked(number: u32) -> Record {
    Record {
        id: id(number),
        turn_id: id(number),
        attempt: 1,
        created_at: 1_700_000_000_000 + u64::from(number),
        team_id: Some("team \"é\"\n".to_owned()),
        upstream: "openai".to_owned(),
        path: "/v1/chat/completions".to_owned(),
        provider: "openai".into(),
        model: Some("gpt-5".to_owned()),
        dialect: "openai-chat".into(),
        streamed: true,
        mode: "guard".into(),
        closed: "interrupted".into(),
        ..Record::default()
    }
}

fn ended(number: u32) -> Record {
    Record {
        status: Some(200),
        native_finish_reason: Some("length".to_owned()),
        native_field: Some("finish_reason".into()),
        finish_reason: Some("length".into()),
        reason: "output_limit".into(),
        confidence: "high".into(),
        closed: "proven".into(),
        cause: "output_limit".into(),
        shown: vec!["at_cap".into()],
        action: "passed".into(),
        tokens_in: Some(7),
        tokens_out: Some(16),
        cap: Some(16),
        first_byte_us: Some(900),
        total_us: 12_345,
        bytes: 2048,
        delivered_bytes: 2048,
        events: 9,
        rules: 1_234_567,
        ..asked(number)
    }
}

/// The first response was loaded, the second has an end and an amendment, and the third was under way.
#[test]
fn a_spool_of_an_earlier_version_is_loaded() {
    let temp = tempdir();
    copy(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/spool/old")), temp.path());
    let (spool, recovery) = open(temp.path());
    assert_eq!((recovery.orphans, recovery.missing, recovery.quarantined), (1, 0, 0));
    let mut entries = drain(&spool).into_iter();
    let mut next = || entries.next().map(|entry| (entry.sequence, entry.record));
    assert_eq!(next(), Some((1, ended(2))));
    assert_eq!(next(), Some((2, Record { delivered_bytes: 1024, ..ended(2) })));
    let (sequence, closed) = next().unwrap();
    assert_eq!((sequence, &*closed.closed, closed.id.as_str()), (1, "interrupted", &*id(3)));
    assert_eq!((closed.team_id, closed.path), (asked(3).team_id, asked(3).path));
    assert_eq!(next(), None);
    drop(spool);
    let (again, recovery) = open(temp.path());
    assert_eq!((recovery.orphans, drain(&again).len()), (0, 0));
}
