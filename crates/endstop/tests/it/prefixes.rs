//! The most important requirement: a stream truncated before its end is proven is never a success.
//! Truncated after that, it keeps its ending.

use endstop::dialect::Proof;
use endstop::provider::Wire;
use endstop::registry::{Clues, choose};
use endstop::{Ending, Reason, TransportEnd, Watcher};

use crate::case;
use crate::oracle;

/// Tries these cuts of a stream, in ascending order.
pub(crate) fn check_cuts(
    label: &str,
    wire: &Wire,
    mut reader: Watcher,
    bytes: &[u8],
    close: TransportEnd,
    cuts: &[usize],
) {
    let marks = oracle::marks(&wire.profile, bytes);
    let mut whole = reader.clone();
    whole.watch(bytes);
    let whole = whole.finish(close);
    let mut read = 0;
    for cut in cuts {
        reader.watch(&bytes[read..*cut]);
        read = *cut;
        let ending = reader.clone().finish(close);
        match marks {
            Some(marks) if *cut >= marks.earliest => {
                let settled =
                    *cut >= marks.settled && ending.fault.is_none() && !whole.shown.late_event;
                let same = ending.reason == whole.reason
                    || whole.fault.is_some()
                    || whole.shown.contradiction
                    || changes_later(wire)
                    || waits_for_the_marker(wire, &ending, &whole);
                assert!(
                    !settled || same,
                    "{label}, cut at {cut}: {:?}, and whole {:?}",
                    ending.reason,
                    whole.reason
                );
                // There, a finish reason may come in every event, and only the end proves the last.
                let is_open = changes_later(wire) && oracle::is_inside(bytes, *cut);
                assert!(
                    !is_open || !ending.reason.is_success(),
                    "{label}, cut inside an event at {cut}: {:?}",
                    ending.reason
                );
            }
            Some(_) | None => {
                let silent = ending.reason == Reason::Unknown;
                let expected = ending.reason == Reason::Cut
                    || silent
                    || ending.fault.is_some()
                    || close != TransportEnd::Eof;
                assert!(
                    !ending.reason.is_success(),
                    "{label}, cut at {cut}: {} {:?}",
                    ending.sentence,
                    ending.reason
                );
                assert!(expected || marks.is_none(), "{label}, cut at {cut}: {:?}", ending.reason);
            }
        }
    }
}

/// Reports whether a finish reason is provisional until the bytes end, as with Gemini.
fn changes_later(wire: &Wire) -> bool {
    wire.profile.proof == Proof::Word
}

/// Reports whether the finish reason is not enough: for calls without arguments, and at the token
/// limit.
fn waits_for_the_marker(wire: &Wire, ending: &Ending, whole: &Ending) -> bool {
    matches!(wire.profile.proof, Proof::Marker(_))
        && whole.reason == Reason::ToolCall
        && !ending.reason.is_success()
}

#[test]
fn of_every_case() {
    let mut tried = 0;
    for case in case::all().iter().filter(|case| case.is_stream()) {
        let (wire, bytes) = (case.wire(), case.bytes());
        let cuts: Vec<usize> = (0..bytes.len()).collect();
        let reader = case.watcher(wire.clone());
        // The end is that of the wire that the events turn out to be of.
        let dialect = case.read(wire.clone(), [&*bytes]).dialect;
        let is_named = dialect == wire.profile.dialect.id;
        let found = || choose(&Clues { dialect: &dialect, ..Clues::default() });
        let wire = if is_named { wire } else { found() };
        check_cuts(&case.label(), &wire, reader, &bytes, case.close(), &cuts);
        tried += cuts.len();
    }
    println!("{tried} cuts");
}
