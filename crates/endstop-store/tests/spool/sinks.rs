//! Several sinks at one spool, each with a mark of its own.

use endstop_store::Error;
use endstop_store::spool::{Named, Options, Spool, Start, Tap};

use crate::{asked, drain, drain_tap, ended, segments, small, tempdir};

fn named(names: &[(&str, Start)]) -> Options {
    let named = |(name, from): &(&str, Start)| Named { name: (*name).to_owned(), from: *from };
    Options { sinks: names.iter().map(named).collect(), ..small() }
}

fn write(spool: &Spool, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let id = format!("{number:04}");
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
    }
}

fn ids(tap: &Tap) -> Vec<u32> {
    drain_tap(tap).iter().map(|entry| entry.record.id.parse().unwrap()).collect()
}

#[test]
fn a_slow_sink_holds_back_nobody_and_gets_everything() {
    let temp = tempdir();
    let (spool, _) = Spool::open(temp.path(), named(&[("slow", Start::Now)])).unwrap();
    write(&spool, 0..50);
    assert_eq!(drain(&spool).len(), 50);
    assert_eq!(spool.status().entries, 0);
    let kept = segments(temp.path()).len();
    assert!(kept > 5, "{kept} segments are kept for the slow one");
    let slow = spool.sink("slow").unwrap();
    assert_eq!((slow.lag().entries, slow.lag().dropped), (50, 0));
    assert_eq!(ids(&slow), (0..50).collect::<Vec<_>>());
    assert!(segments(temp.path()).len() <= 1);
    assert_eq!(slow.lag().entries, 0);
}

#[test]
fn marks_outlive_the_process_and_a_removed_sink_keeps_nothing() {
    let temp = tempdir();
    let both = named(&[("one", Start::Now), ("two", Start::Now)]);
    let (spool, _) = Spool::open(temp.path(), both.clone()).unwrap();
    write(&spool, 0..20);
    drain(&spool);
    let one = spool.sink("one").unwrap();
    let batch = one.next(5).unwrap();
    one.ack(batch.upto);
    drop((one, spool));

    let (spool, recovery) = Spool::open(temp.path(), both).unwrap();
    assert_eq!((recovery.orphans, recovery.missing), (0, 0));
    assert_eq!(spool.status().entries, 0, "the store has all");
    let (one, two) = (spool.sink("one").unwrap(), spool.sink("two").unwrap());
    assert_eq!((one.lag().entries, two.lag().entries), (15, 20));
    assert_eq!(ids(&one), (5..20).collect::<Vec<_>>());
    drop((one, two, spool));

    let (spool, _) = Spool::open(temp.path(), named(&[("one", Start::Now)])).unwrap();
    assert!(spool.sink("two").is_none());
    write(&spool, 20..30);
    drain(&spool);
    assert_eq!(ids(&spool.sink("one").unwrap()), (20..30).collect::<Vec<_>>());
    assert!(segments(temp.path()).len() <= 1, "nothing is kept for a sink that is gone");
}

#[test]
fn a_new_sink_starts_where_it_is_told() {
    let temp = tempdir();
    let (spool, _) = Spool::open(temp.path(), small()).unwrap();
    write(&spool, 0..10);
    drop(spool);
    let sinks = named(&[("all", Start::Oldest), ("new", Start::Now)]);
    let (spool, _) = Spool::open(temp.path(), sinks.clone()).unwrap();
    write(&spool, 10..15);
    assert_eq!(drain(&spool).len(), 15);
    assert_eq!(ids(&spool.sink("all").unwrap()), (0..15).collect::<Vec<_>>());
    assert_eq!(ids(&spool.sink("new").unwrap()), (10..15).collect::<Vec<_>>());
    drop(spool);
    // It is new once.
    let (spool, _) = Spool::open(temp.path(), sinks).unwrap();
    write(&spool, 15..17);
    assert_eq!(ids(&spool.sink("new").unwrap()), [15, 16]);
}

#[test]
fn a_full_spool_lets_slow_sinks_go_and_never_the_store() {
    let temp = tempdir();
    let options = Options { bytes: 64 << 10, ..named(&[("dead", Start::Now)]) };
    let (spool, _) = Spool::open(temp.path(), options).unwrap();
    let dead = spool.sink("dead").unwrap();
    let mut stored = 0;
    for round in 0..40 {
        write(&spool, round * 10..round * 10 + 10);
        stored += drain(&spool).len();
        assert!(spool.has_room().is_ok(), "round {round}");
    }
    assert_eq!(stored, 400);
    let lag = dead.lag();
    assert!(lag.dropped > 300 && lag.dropped + lag.entries == 400, "{lag:?}");
    let rest = ids(&dead);
    assert_eq!(rest.len() as u64, lag.entries);
    assert_eq!(rest.last(), Some(&399));

    // What the store has not taken stays, also where it is too much.
    write(&spool, 400..460);
    assert!(spool.has_room().is_err());
    assert_eq!(drain(&spool).len(), 60);
}

#[test]
fn names_are_checked() {
    let temp = tempdir();
    for name in ["", "a/b", "..", "a b", "store"] {
        let error = Spool::open(temp.path(), named(&[(name, Start::Now)])).unwrap_err();
        assert!(matches!(error, Error::Query(_)), "{name}");
    }
}
