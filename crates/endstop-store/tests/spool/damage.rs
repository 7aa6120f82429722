//! Torn, flipped, missing, random bytes: all other entries load, and no record is ever a wrong one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use endstop_store::spool::{Options, Spool};

use crate::{asked, copy, drain, ended, open, peek, said, segments, small, tempdir};

/// All in one segment.
fn one() -> Options {
    Options { segment_bytes: 1 << 20, ..small() }
}

/// Three responses that ended, each after its start.
fn three(dir: &Path) {
    let (spool, _) = Spool::open(dir, one()).unwrap();
    for id in ["a", "b", "c"] {
        let mut ticket = spool.start(&asked(id));
        spool.end(&mut ticket, &ended(id));
    }
}

fn closed(spool: &Spool) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (id, sequence, closed) in said(&peek(spool)) {
        assert_eq!(sequence, 1);
        assert!(all.insert(id, closed).is_none());
    }
    all
}

#[test]
fn a_tail_that_is_torn_anywhere_is_cut_off() {
    let temp = tempdir();
    three(temp.path());
    let path = segments(temp.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        let temp = tempdir();
        let path = temp.path().join(path.file_name().unwrap());
        fs::write(&path, &whole[..length]).unwrap();
        let (spool, recovery) = Spool::open(temp.path(), one()).unwrap();
        // Six entries of which the starts are of one length, and the ends.
        let pair = whole.len() / 3;
        let pairs = length / pair;
        let start = start_length(&whole);
        let orphan = length % pair >= start;
        let boundary = [0, start].contains(&(length % pair));
        assert_eq!(recovery.torn, u64::from(!boundary), "{length}");
        assert_eq!(recovery.orphans, u64::from(orphan), "{length}");
        assert_eq!(spool.status().quarantined, recovery.torn);
        let closed = closed(&spool);
        assert_eq!(closed.len(), pairs + usize::from(orphan));
        assert_eq!(closed.values().filter(|closed| *closed == "proven").count(), pairs);
        let mut ticket = spool.start(&asked("new"));
        spool.end(&mut ticket, &ended("new"));
        drop(spool);
        let (spool, recovery) = Spool::open(temp.path(), one()).unwrap();
        assert_eq!((recovery.torn, recovery.orphans), (0, 0));
        assert_eq!(self::closed(&spool).len(), closed.len() + 1);
    }
}

/// The length of the first entry.
fn start_length(bytes: &[u8]) -> usize {
    12 + usize::try_from(u32::from_le_bytes(bytes[4..8].try_into().unwrap())).unwrap()
}

#[test]
fn a_flipped_bit_costs_one_entry() {
    let temp = tempdir();
    three(temp.path());
    let path = segments(temp.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let (pair, start) = (whole.len() / 3, start_length(&whole));
    for at in 0..whole.len() {
        let temp = tempdir();
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(temp.path().join(path.file_name().unwrap()), &bytes).unwrap();
        let (spool, recovery) = Spool::open(temp.path(), one()).unwrap();
        assert_eq!(recovery.torn + recovery.quarantined, 1, "{at}");
        assert_eq!(fs::read_dir(temp.path().join("quarantine")).unwrap().count(), 1);
        let hit = ["a", "b", "c"][at / pair];
        let was_start = at % pair < start;
        for id in ["a", "b", "c"] {
            // Without its end it is an orphan; without its start it has its end all the same.
            let expected = if id == hit && !was_start { "interrupted" } else { "proven" };
            assert_eq!(closed(&spool).get(id).map(String::as_str), Some(expected), "{at}");
        }
        for entry in peek(&spool) {
            let mut expected = ended(&entry.record.id);
            if entry.record.closed == "interrupted" {
                expected = asked(&entry.record.id);
                expected.interrupt();
            }
            assert_eq!(entry.record, expected);
        }
        drop(spool);
        let again = Spool::open(temp.path(), one()).unwrap().1;
        assert_eq!((again.quarantined, again.torn, again.orphans), (0, 0, 0), "counted twice");
    }
}

#[test]
fn a_missing_segment_is_told_and_the_others_load() {
    let temp = tempdir();
    let (spool, _) = open(temp.path());
    for number in 0..30 {
        let id = number.to_string();
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
    }
    drop(spool);
    let files = segments(temp.path());
    assert!(files.len() > 6);
    for gone in [0, 3] {
        let copied = tempdir();
        copy(temp.path(), copied.path());
        fs::remove_file(copied.path().join(files[gone].file_name().unwrap())).unwrap();
        let (spool, recovery) = open(copied.path());
        assert_eq!(recovery.missing, 1);
        assert!(drain(&spool).len() >= 25);
    }
}

#[test]
fn without_its_mark_all_that_is_there_comes_again() {
    let temp = tempdir();
    three(temp.path());
    let (spool, _) = Spool::open(temp.path(), one()).unwrap();
    let batch = spool.store().next(2).unwrap();
    spool.store().ack(batch.upto);
    assert_eq!(spool.status().entries, 1);
    drop(spool);
    for (mark, left) in [(None, 3), (Some(&b"rubbish"[..]), 3)] {
        let copied = tempdir();
        copy(temp.path(), copied.path());
        match mark {
            None => fs::remove_file(copied.path().join("mark")).unwrap(),
            Some(bytes) => fs::write(copied.path().join("mark"), bytes).unwrap(),
        }
        let (spool, recovery) = Spool::open(copied.path(), one()).unwrap();
        assert_eq!((recovery, peek(&spool).len()), (Default::default(), left));
    }
    let (spool, _) = Spool::open(temp.path(), one()).unwrap();
    assert_eq!((peek(&spool).len(), spool.status().entries), (1, 1));
}

#[test]
fn damage_while_it_runs_is_counted_when_it_is_read() {
    let temp = tempdir();
    let (spool, _) = Spool::open(temp.path(), one()).unwrap();
    for id in ["a", "b", "c"] {
        let mut ticket = spool.start(&asked(id));
        spool.end(&mut ticket, &ended(id));
    }
    let path = segments(temp.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(drain(&spool).len() >= 2);
    assert_eq!(spool.status().quarantined, 1);
}

#[test]
fn random_bytes_are_never_read_as_a_record() {
    let mut random = fastrand::Rng::with_seed(3);
    let temp = tempdir();
    three(temp.path());
    let real = fs::read(segments(temp.path()).pop().unwrap()).unwrap();
    for round in 0..300 {
        let temp = tempdir();
        let mut bytes = Vec::new();
        for _ in 0..random.usize(1..20) {
            match random.u8(0..4) {
                0 => {
                    let length = random.usize(0..300);
                    bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length));
                }
                1 => bytes.extend(real.iter().skip(random.usize(0..real.len())).take(200)),
                2 => bytes.extend([0xF5, b'e', 0xFF, 1, random.u8(..), random.u8(0..4), 0, 0]),
                _ => bytes.extend(&real),
            }
        }
        fs::write(temp.path().join("00000000000000000001.spool"), &bytes).unwrap();
        let mark: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(200).collect();
        fs::write(temp.path().join("mark"), mark).unwrap();
        let (spool, _) = open(temp.path());
        for entry in drain(&spool) {
            let id = &entry.record.id;
            let mut interrupted = asked(id);
            interrupted.interrupt();
            assert!(entry.record == ended(id) || entry.record == interrupted, "round {round}");
        }
    }
}

#[test]
fn a_segment_full_of_markers_is_read_in_time() {
    let temp = tempdir();
    let marker = [0xF5, b'e', 0xFF, 1, 0, 0, 1, 0, 0, 0, 0, 0];
    fs::create_dir_all(temp.path()).unwrap();
    fs::write(temp.path().join("00000000000000000001.spool"), marker.repeat(20_000)).unwrap();
    let (spool, recovery) = open(temp.path());
    assert_eq!((recovery.torn, drain(&spool).len()), (1, 0));
}
