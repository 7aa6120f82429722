//! The ending does not depend on the division of the bytes into chunks.

use endstop::Ending;

use crate::case::{self, Case};
use crate::sample::{Dice, everything, on_two_threads};

/// Maximum length of cases for which `ENDSTOP_ALL=1` tries all pairs of cuts.
const ALL_PAIRS: usize = 600;
/// Number of pairs of cuts tried per case.
const PAIRS: usize = 60;

#[track_caller]
fn check(case: &Case, whole: &Ending, chunks: Vec<&[u8]>) {
    let cut = case.read(case.wire(), chunks.iter().copied());
    assert_eq!(
        &cut,
        whole,
        "{} cut into {:?}",
        case.label(),
        chunks.iter().map(|chunk| chunk.len()).collect::<Vec<_>>()
    );
}

#[test]
fn single_cuts_and_byte_by_byte() {
    on_two_threads(&case::all(), |_, case| {
        let bytes = case.bytes();
        let whole = case.read(case.wire(), [&*bytes]);
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            check(case, &whole, vec![head, tail]);
        }
        check(case, &whole, bytes.chunks(1).collect());
    });
}

/// Tries every pair of cuts. The bytes before the first are read once, and the reader is cloned.
fn check_all_pairs(case: &Case) {
    let bytes = case.bytes();
    let whole = case.read(case.wire(), [&*bytes]);
    for first in 0..=bytes.len() {
        let mut head = case.watcher(case.wire());
        head.watch(&bytes[..first]);
        for second in first..=bytes.len() {
            let mut reader = head.clone();
            reader.watch(&bytes[first..second]);
            reader.watch(&bytes[second..]);
            assert_eq!(
                reader.finish(case.close()),
                whole,
                "{} cut at {first} and {second}",
                case.label()
            );
        }
    }
}

/// A seeded sample; with `ENDSTOP_ALL=1`, every pair of every short case, a hundred million.
#[test]
fn double_cuts() {
    on_two_threads(&case::all(), |at, case| {
        let bytes = case.bytes();
        if everything() && bytes.len() <= ALL_PAIRS {
            return check_all_pairs(case);
        }
        let whole = case.read(case.wire(), [&*bytes]);
        let mut dice = Dice::of(0x9e37_79b9_7f4a_7c15, at);
        for _ in 0..PAIRS {
            let (a, b) = (dice.roll(bytes.len() + 1), dice.roll(bytes.len() + 1));
            let (first, second) = (a.min(b), a.max(b));
            check(case, &whole, vec![&bytes[..first], &bytes[first..second], &bytes[second..]]);
        }
    });
}

#[test]
fn events_and_ending_are_the_same_with_and_without_a_consumer() {
    for case in case::all() {
        let bytes = case.bytes();
        let watched = case.read(case.wire(), [&*bytes]);
        let mut reader = case.reader(case.wire());
        let mut whole = Vec::new();
        reader.read(&bytes, |event| whole.push(format!("{event:?}")));
        let ending = reader.finish(case.close(), |event| whole.push(format!("{event:?}")));
        assert_eq!(ending, watched, "{}", case.label());
        let mut reader = case.reader(case.wire());
        let mut pieces = Vec::new();
        for byte in bytes.chunks(1) {
            reader.read(byte, |event| pieces.push(format!("{event:?}")));
        }
        drop(reader.finish(case.close(), |event| pieces.push(format!("{event:?}"))));
        assert_eq!(pieces, whole, "{}", case.label());
    }
}
