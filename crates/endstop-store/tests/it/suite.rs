//! What every backend must do, on each of them.

use std::collections::BTreeMap;

use endstop::Record;
use endstop_store::{
    Dimension, Entry, Error, Filter, Group, Loaded, Period, Query, Store, Stored, Wanted,
};

use crate::model::{ALL, DAY, Dice, HOUR, Model, ODD, T0, any, entry, id, query};
use crate::places;

type Open<'a> = &'a (dyn Fn() -> Box<dyn Store> + Sync);

/// Each function once on each place.
macro_rules! on_every_backend {
    ($($name:ident)*) => {
        mod sqlite { $(#[test] fn $name() {
            let place = super::places::sqlite();
            super::$name(&|| place.open());
        })* }
        mod postgres { $(
            #[test]
            #[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
            fn $name() {
            let place = super::places::postgres();
            super::$name(&|| place.open());
        })* }
        mod pooled { $(
            #[test]
            #[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
            fn $name() {
            let place = super::places::pooled();
            super::$name(&|| place.open());
        })* }
        mod clickhouse { $(
            #[test]
            #[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
            fn $name() {
            let place = super::places::clickhouse::clickhouse();
            super::$name(&|| place.open());
        })* }
        mod old_clickhouse { $(
            #[test]
            #[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
            fn $name() {
            let place = super::places::clickhouse::old_clickhouse();
            super::$name(&|| place.open());
        })* }
    };
}

on_every_backend! {
    migrates_from_empty_and_twice
    migrates_by_many_at_once
    a_row_is_read_as_it_was_written
    loading_again_changes_nothing
    some_of_a_batch_are_known
    later_entries_win_in_any_order
    sums_are_those_of_the_rows
    many_write_at_once
    odd_texts_are_inert
    texts_are_capped
    ids_that_are_none_are_refused_alone
    rows_are_found
    patterns_and_null
    periods_are_compared
    groups_over_the_limit_are_counted
    bad_questions_are_answered_clearly
    words_are_counted
    old_rows_are_forgotten_in_bounds
    rows_are_judged_again
}

fn ready(open: Open<'_>) -> Box<dyn Store> {
    let mut store = open();
    store.migrate().unwrap();
    store
}

fn batch(numbers: std::ops::Range<u64>) -> Vec<Entry> {
    numbers.map(entry).collect()
}

fn loaded(added: u64, amended: u64, known: u64) -> Loaded {
    Loaded { added, amended, known, refused: Vec::new() }
}

fn sorted(mut groups: Vec<Group>) -> Vec<Group> {
    groups.sort_by(|one, other| one.key.cmp(&other.key));
    groups
}

fn migrates_from_empty_and_twice(open: Open<'_>) {
    let applied = open().migrate().unwrap();
    assert_eq!(applied[0], "0001_requests");
    assert!(applied.is_sorted());
    assert!(open().migrate().unwrap().is_empty());
    assert_eq!(open().load(&batch(0..3)).unwrap(), loaded(3, 0, 0));
}

fn migrates_by_many_at_once(open: Open<'_>) {
    let mut applied: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| open().migrate().unwrap())).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    assert!(open().migrate().unwrap().is_empty());
    assert_eq!(open().load(&batch(0..3)).unwrap(), loaded(3, 0, 0));
    let all = applied.len();
    applied.sort();
    applied.dedup();
    assert_eq!(applied[0], "0001_requests");
    // ClickHouse has no locks: two may take the same step, which changes nothing.
    assert!(all == applied.len() || applied[1] == "0002_words");
}

fn a_row_is_read_as_it_was_written(open: Open<'_>) {
    let mut store = ready(open);
    let mut dice = Dice(3);
    let entries: Vec<Entry> = (0..200).map(|number| any(&mut dice, number)).collect();
    store.load(&entries).unwrap();
    for entry in &entries {
        let stored = store.ending(&entry.record.id).unwrap().unwrap();
        assert_eq!((&stored.record, stored.sequence), (&entry.record, entry.sequence));
    }
    let wide = Entry {
        sequence: u32::MAX,
        record: Record {
            created_at: u64::MAX,
            tokens_out: Some(u64::MAX),
            bytes: u64::MAX,
            attempt: u32::MAX,
            ..entry(999).record
        },
    };
    assert_eq!(store.load(&[wide]).unwrap(), loaded(1, 0, 0));
    let stored = store.ending(&id(999)).unwrap().unwrap();
    assert_eq!(stored.record.bytes, i64::MAX as u64);
    assert_eq!(stored.record.created_at, 253_402_300_799_999);
}

fn loading_again_changes_nothing(open: Open<'_>) {
    let mut store = ready(open);
    assert_eq!(store.load(&batch(0..500)).unwrap(), loaded(500, 0, 0));
    let report = store.report(&query(&[Dimension::Hour])).unwrap();
    for _ in 0..2 {
        assert_eq!(open().load(&batch(0..500)).unwrap(), loaded(0, 0, 500));
    }
    assert_eq!(store.load(&batch(250..750)).unwrap(), loaded(250, 0, 250));
    assert_eq!(store.load(&[]).unwrap(), loaded(0, 0, 0));
    assert_eq!(report.total.now.count, 500);
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 750);
}

fn some_of_a_batch_are_known(open: Open<'_>) {
    let mut store = ready(open);
    let mut dice = Dice(11);
    let all: Vec<Entry> = (0..1000).map(|number| any(&mut dice, number)).collect();
    // Some here and there, then many in a row, then none.
    let is_early = |number: usize| number < 200 && number % 7 == 3 || (200..350).contains(&number);
    let early: Vec<Entry> =
        (0..).zip(&all).filter(|(number, _)| is_early(*number)).map(|(_, it)| it.clone()).collect();
    let known = early.len() as u64;
    assert_eq!(store.load(&early).unwrap(), loaded(known, 0, 0));
    assert_eq!(store.load(&all).unwrap(), loaded(1000 - known, 0, known));
    assert_eq!(store.load(&all).unwrap(), loaded(0, 0, 1000));
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 1000);
    for entry in &all {
        let stored = store.ending(&entry.record.id).unwrap().unwrap();
        assert_eq!((&stored.record, stored.sequence), (&entry.record, entry.sequence));
    }
}

fn later_entries_win_in_any_order(open: Open<'_>) {
    let mut store = ready(open);
    let at = |sequence: u32, reason: &str| {
        let record = Record {
            reason: reason.to_owned().into(),
            tokens_out: Some(sequence.into()),
            ..entry(1).record
        };
        Entry { sequence, record }
    };
    assert_eq!(store.load(&[at(1, "cut")]).unwrap(), loaded(1, 0, 0));
    assert_eq!(store.load(&[at(0, "failed")]).unwrap(), loaded(0, 0, 1));
    assert_eq!(store.load(&[at(1, "failed")]).unwrap(), loaded(0, 0, 1));
    let mixed = [at(2, "failed"), at(5, "complete"), at(3, "cut"), at(5, "complete")];
    assert_eq!(store.load(&mixed).unwrap(), loaded(0, 1, 3));
    let stored = store.ending(&id(1)).unwrap().unwrap();
    assert_eq!((stored.sequence, stored.record.reason.as_ref()), (5, "complete"));
    let total = store.report(&query(&[])).unwrap().total.now;
    assert_eq!((total.count, total.tokens_out, total.tokens_of_cut), (1, 5, 0));
    assert_eq!(total.reasons, BTreeMap::from([("complete".to_owned(), 1)]));
}

fn sums_are_those_of_the_rows(open: Open<'_>) {
    let mut store = ready(open);
    let mut dice = Dice(0x00e4_d570);
    let mut model = Model::default();
    for _ in 0..40 {
        let size = dice.roll(60);
        let entries: Vec<Entry> = (0..size)
            .map(|_| {
                let number = dice.roll(300);
                any(&mut dice, number)
            })
            .collect();
        // Within a batch, the first of the highest sequence is taken, as over batches.
        store.load(&entries).unwrap();
        // Sums are the same before and after they are folded.
        while dice.roll(3) == 0 {
            assert!(!store.tend().unwrap());
        }
        model.load(&entries);
    }
    let mut rows = store.endings(&Wanted { limit: 10_000, ..Wanted::default() }).unwrap();
    rows.sort_by(|one, other| one.record.id.cmp(&other.record.id));
    assert_eq!(rows, model.stored());

    let all = Dimension::ALL;
    for one in all {
        let by = query(&[one]);
        assert_eq!(sorted(store.report(&by).unwrap().groups), model.groups(&by, |_| true));
        for other in all.into_iter().filter(|other| *other != one) {
            let by = Query {
                by: vec![one, other],
                period: Period { since: T0 + 5 * HOUR + 1, until: T0 + 40 * HOUR },
                filter: Filter { provider: Some("acme".to_owned()), ..Filter::default() },
                ..query(&[])
            };
            let wanted = model.groups(&by, |record| record.provider == "acme");
            assert_eq!(sorted(store.report(&by).unwrap().groups), wanted, "{one:?} {other:?}");
        }
    }
}

fn many_write_at_once(open: Open<'_>) {
    let mut store = ready(open);
    let mut model = Model::default();
    // The same ids by all, in different orders, and rising sequences: the last word is the same.
    let batches: Vec<Vec<Entry>> = (0..4_u32)
        .map(|sequence| {
            let mut dice = Dice(u64::from(sequence) + 77);
            (0..200).map(|number| Entry { sequence, ..any(&mut dice, number) }).collect()
        })
        .collect();
    batches.iter().for_each(|entries| model.load(entries));
    std::thread::scope(|scope| {
        for start in 0..4 {
            let batches = &batches;
            scope.spawn(move || {
                let mut store = open();
                let mut dice = Dice(start + 1);
                for round in 0..4 {
                    let mut entries = batches[(start as usize + round) % 4].clone();
                    entries.sort_by_cached_key(|_| dice.roll(1000));
                    for part in entries.chunks(37) {
                        until_free(|| store.load(part));
                    }
                }
            });
        }
    });
    let mut rows = store.endings(&Wanted { limit: 10_000, ..Wanted::default() }).unwrap();
    rows.sort_by(|one, other| one.record.id.cmp(&other.record.id));
    assert_eq!(rows, model.stored());
    for by in [Dimension::Reason, Dimension::Model, Dimension::Team] {
        let by = query(&[by]);
        assert_eq!(sorted(store.report(&by).unwrap().groups), model.groups(&by, |_| true));
    }
}

fn until_free(mut load: impl FnMut() -> Result<Loaded, Error>) {
    for _ in 0..100 {
        match load() {
            Ok(_) => return,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    panic!("never free");
}

fn odd_texts_are_inert(open: Open<'_>) {
    let mut store = ready(open);
    let entries: Vec<Entry> = (0..)
        .zip(ODD)
        .map(|(number, text)| {
            let text = text.to_owned();
            let record = Record {
                model: Some(text.clone()),
                team_id: Some(text.clone()),
                upstream: text.clone(),
                reason: text.clone().into(),
                native_finish_reason: Some(text),
                ..entry(number).record
            };
            Entry { sequence: 0, record }
        })
        .collect();
    assert_eq!(store.load(&entries).unwrap().added, ODD.len() as u64);
    for odd in ODD {
        let filter = Filter { model: Some(odd.to_owned()), ..Filter::default() };
        let rows = store.endings(&Wanted { filter: filter.clone(), ..Wanted::default() }).unwrap();
        assert_eq!(rows.len(), 1, "{odd}");
        let asked = Query { filter, ..query(&[Dimension::Upstream, Dimension::Reason]) };
        let report = store.report(&asked).unwrap();
        assert_eq!(report.groups.len(), 1, "{odd}");
        assert_eq!(report.groups[0].key, vec![Some(odd.to_owned()); 2]);
    }
}

fn texts_are_capped(open: Open<'_>) {
    let mut store = ready(open);
    let long = |start: &str| format!("{start}\0{}", "é\0x".repeat(1 << 20));
    let record = Record {
        native_finish_reason: Some(long("w")),
        model: Some(long("m")),
        team_id: Some(long("t")),
        key_id: Some(long("k")),
        upstream: long("u"),
        provider: long("p").into(),
        dialect: long("d").into(),
        reason: long("r").into(),
        finish_reason: Some(long("f").into()),
        turn_id: long("t"),
        path: long("/"),
        shown: vec![long("s").into()],
        error_type: Some(long("e")),
        ..entry(0).record
    };
    let long = Entry { sequence: 0, record };
    assert_eq!(store.load(&[long.clone(), entry(1)]).unwrap(), loaded(2, 0, 0));
    // Taken out of the sums again under the same capped names.
    assert_eq!(store.load(&[Entry { sequence: 1, ..entry(0) }]).unwrap(), loaded(0, 1, 0));
    assert_eq!(store.report(&query(&[Dimension::Model])).unwrap().groups.len(), 1);
    assert_eq!(store.load(&[Entry { sequence: 2, ..long }]).unwrap(), loaded(0, 1, 0));
    let stored = store.ending(&id(0)).unwrap().unwrap().record;
    // The first 256 and 4,096 bytes, without NUL.
    let capped = |start: &str, pairs: usize| format!("{start}{}é", "éx".repeat(pairs));
    assert_eq!(stored.native_finish_reason, Some(capped("w", 63)));
    assert_eq!(stored.team_id, Some(capped("t", 63)));
    assert_eq!(stored.path, capped("/", 1023));
    assert_eq!(stored.error_type, Some(capped("e", 1023)));
}

fn ids_that_are_none_are_refused_alone(open: Open<'_>) {
    let mut store = ready(open);
    let mut entries = batch(0..5);
    entries[1].record.id = "not an id".to_owned();
    entries[3].record.id = String::new();
    let loaded = store.load(&entries).unwrap();
    assert_eq!(loaded.added, 3);
    let refused: Vec<usize> = loaded.refused.iter().map(|(index, _)| *index).collect();
    assert_eq!(refused, [1, 3]);
}

fn rows_are_found(open: Open<'_>) {
    let mut store = ready(open);
    let mut entries = batch(0..50);
    for (attempt, entry) in (1..).zip(entries.iter_mut().skip(10).take(3)) {
        // The first request of a turn gives it its id.
        entry.record.turn_id = id(12);
        entry.record.attempt = 4 - attempt;
        entry.record.action = "passed".into();
    }
    store.load(&entries).unwrap();
    let turn = store.turn(&id(12)).unwrap();
    let attempts: Vec<u32> = turn.iter().map(|row| row.record.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(store.turn("no turn").unwrap().is_empty());
    assert_eq!(store.turn(&id(20)).unwrap().len(), 1);

    let full = id(7);
    let hyphens = uuid::Uuid::try_parse(&full).unwrap().to_string().to_uppercase();
    for name in [full.as_str(), &hyphens, &full[..31]] {
        let found = store.ending(name);
        match name.len() {
            31 => assert!(matches!(found, Err(Error::Query(why)) if why.contains("several"))),
            _ => assert_eq!(found.unwrap().unwrap().record.id, full),
        }
    }
    let alone = Entry {
        record: Record { id: "ffffffff00007000800000000000abcd".to_owned(), ..entry(90).record },
        sequence: 0,
    };
    store.load(&[alone]).unwrap();
    assert_eq!(store.ending("ffffff").unwrap().unwrap().record.created_at, T0 + 90);
    assert!(store.ending("eeeeee").unwrap().is_none());
    for bad in ["fffff", "", "zzzzzzzz", "' OR 1=1 --", &"f".repeat(33)] {
        assert!(matches!(store.ending(bad), Err(Error::Query(_))), "{bad}");
    }

    let newest = store.endings(&Wanted { limit: 2, ..Wanted::default() }).unwrap();
    let times: Vec<u64> = newest.iter().map(|row| row.record.created_at).collect();
    assert_eq!(times, [T0 + 90, T0 + 49]);
    let period = Some(Period { since: T0 + 11, until: T0 + 14 });
    let wanted = Wanted { period, action: Some("passed".to_owned()), ..Wanted::default() };
    assert_eq!(store.endings(&wanted).unwrap().len(), 2);
    let wanted = Wanted { native: Some("st*".to_owned()), ..Wanted::default() };
    assert_eq!(store.endings(&wanted).unwrap().len(), 51);
    let wanted = Wanted { native: Some("null".to_owned()), ..Wanted::default() };
    assert!(store.endings(&wanted).unwrap().is_empty());
}

fn patterns_and_null(open: Open<'_>) {
    let mut store = ready(open);
    let mut entries: Vec<Entry> = (0..)
        .zip(ODD)
        .map(|(number, text)| {
            let record = Record { model: Some(text.to_owned()), ..entry(number).record };
            Entry { sequence: 0, record }
        })
        .collect();
    let none = Record { model: None, ..entry(99).record };
    entries.push(Entry { sequence: 0, record: none });
    store.load(&entries).unwrap();
    let cases = [
        ("*", ODD.len()),
        ("***", ODD.len()),
        ("null", 1),
        ("gpt*", 1),
        ("GPT*", 1),
        ("*-5", 2),
        ("a*b", 2),
        ("a_b", 1),
        ("a_*", 1),
        ("1%*", 0),
        ("100%*", 1),
        ("*%*", 1),
        ("[x]*", 1),
        ("*?", 1),
        ("\"*", 2),
        ("*\"", 0),
        ("*\\*", 1),
        ("*😀", 1),
        ("", 1),
    ];
    for (pattern, wanted) in cases {
        let filter = Filter { model: Some(pattern.to_owned()), ..Filter::default() };
        let rows = store.endings(&Wanted { filter: filter.clone(), ..Wanted::default() }).unwrap();
        assert_eq!(rows.len(), wanted, "rows: {pattern}");
        let report = store.report(&Query { filter, ..query(&[]) }).unwrap();
        assert_eq!(report.total.now.count, wanted as u64, "sums: {pattern}");
    }
}

fn periods_are_compared(open: Open<'_>) {
    let mut store = ready(open);
    let at = |number: u64, created_at: u64, model: &str| {
        let model = Some(model.to_owned());
        Entry { sequence: 0, record: Record { created_at, model, ..entry(number).record } }
    };
    let day = T0 / DAY * DAY;
    store
        .load(&[
            at(0, day, "a"),
            at(1, day + HOUR, "a"),
            at(2, day + DAY, "a"),
            at(3, day + DAY + HOUR, "b"),
            at(4, day - DAY, "gone before"),
        ])
        .unwrap();
    let now = Period { since: day + DAY, until: day + 2 * DAY };
    let before = Some(Period { since: day, until: day + DAY });
    let asked = Query { period: now, before, ..query(&[Dimension::Model]) };
    let counts = |groups: &[Group]| -> Vec<(Option<String>, u64, u64)> {
        let before = |group: &Group| group.before.as_ref().unwrap().count;
        groups.iter().map(|it| (it.key[0].clone(), it.now.count, before(it))).collect()
    };
    let report = store.report(&asked).unwrap();
    let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
    assert_eq!(counts(&report.groups), [(a, 1, 2), (b, 1, 0)]);
    assert_eq!((report.total.now.count, report.total.before.unwrap().count), (2, 2));
    // Hours stand beside the same hours of the period before.
    let hours = store.report(&Query { by: vec![Dimension::Hour], ..asked.clone() }).unwrap();
    let hour = |at: u64| Some((day + DAY + at * HOUR).to_string());
    assert_eq!(counts(&hours.groups), [(hour(0), 1, 1), (hour(1), 1, 1)]);
    let days = store.report(&Query { by: vec![Dimension::Day], ..asked }).unwrap();
    assert_eq!(counts(&days.groups), [(hour(0), 2, 2)]);
}

fn groups_over_the_limit_are_counted(open: Open<'_>) {
    let mut store = ready(open);
    let mut entries = batch(0..10);
    for (number, entry) in entries.iter_mut().enumerate() {
        entry.record.model = Some(format!("m{}", number.min(6)));
        entry.record.created_at = T0 + (10 - number as u64) * HOUR;
    }
    store.load(&entries).unwrap();
    let report = store.report(&Query { limit: 2, ..query(&[Dimension::Model]) }).unwrap();
    assert_eq!((report.groups.len(), report.left_out, report.total.now.count), (2, 5, 10));
    assert_eq!(report.groups[0].key, [Some("m6".to_owned())]);
    let hours = store.report(&query(&[Dimension::Hour])).unwrap().groups;
    assert!(hours.is_sorted_by_key(|group| group.key.clone()));
    let empty = Query { period: Period { since: 0, until: 1 }, ..query(&[Dimension::Model]) };
    let empty = store.report(&empty).unwrap();
    assert_eq!((empty.groups.len(), empty.total.now.count), (0, 0));
}

fn bad_questions_are_answered_clearly(open: Open<'_>) {
    let mut store = ready(open);
    let model = |text: &str| Filter { model: Some(text.to_owned()), ..Filter::default() };
    let bad = [
        Query { by: Dimension::ALL[..5].to_vec(), ..query(&[]) },
        Query { limit: 0, ..query(&[]) },
        Query { limit: 10_001, ..query(&[]) },
        Query { period: Period { since: 2, until: 1 }, ..query(&[]) },
        Query { period: Period { since: 0, until: u64::MAX }, ..query(&[]) },
        Query { before: Some(Period { since: 2, until: 2 }), ..query(&[]) },
        Query { by: vec![Dimension::Model; 2], ..query(&[]) },
        Query { filter: model(&"*a".repeat(5)), ..query(&[]) },
        Query { filter: model(&format!("*{}", "a".repeat(4096))), ..query(&[]) },
    ];
    for bad in bad {
        assert!(matches!(store.report(&bad), Err(Error::Query(_))), "{bad:?}");
    }
    for limit in [0, 10_001] {
        let wanted = Wanted { limit, ..Wanted::default() };
        assert!(matches!(store.endings(&wanted), Err(Error::Query(_))));
        assert!(matches!(store.words(&Filter::default(), ALL, limit), Err(Error::Query(_))));
        assert!(matches!(store.judged_otherwise(&[2], "", limit), Err(Error::Query(_))));
    }
    assert!(matches!(store.judged_otherwise(&[2], "nonsense", 1), Err(Error::Query(_))));
    // The connection still works.
    assert_eq!(store.load(&batch(0..1)).unwrap(), loaded(1, 0, 0));
}

fn words_are_counted(open: Open<'_>) {
    let mut store = ready(open);
    let said = |number: u64, sequence: u32, word: Option<&str>, reason: &str| {
        let native_finish_reason = word.map(str::to_owned);
        let reason = reason.to_owned();
        let record = Record { native_finish_reason, reason: reason.into(), ..entry(number).record };
        Entry { sequence, record }
    };
    store.load(&[said(1, 0, None, "cut"), said(2, 0, Some("stop"), "complete")]).unwrap();
    store.load(&[said(1, 1, Some("stop"), "complete")]).unwrap();
    store.load(&[said(3, 0, Some("frobnicated"), "unknown")]).unwrap();
    store.load(&[said(4, 0, Some("moved"), "unknown")]).unwrap();
    store.load(&[said(4, 1, Some("stop"), "complete")]).unwrap();
    store.load(&[said(2, 0, Some("stop"), "complete")]).unwrap();
    let whole = Filter::default();
    for folded in [false, true] {
        let words = store.words(&whole, ALL, 10).unwrap();
        let seen: Vec<_> = words
            .iter()
            .map(|word| (word.word.as_str(), word.count, word.first_seen - T0, word.last_seen - T0))
            .collect();
        assert_eq!(seen, [("frobnicated", 1, 3, 3), ("stop", 3, 1, 4)], "folded: {folded}");
        let first = &words[0];
        assert_eq!((first.reason.as_str(), first.field.as_str()), ("unknown", "finish_reason"));
        // All words of a store that is as old as the period are new, and none of them is told so.
        assert!(words.iter().all(|word| !word.is_new));
        // Words are counted in the period alone, and by the filter.
        let counted = |store: &mut dyn Store, filter: &Filter, since: u64, until: u64| {
            let period = Period { since: T0 + since, until: T0 + until };
            let words = store.words(filter, period, 10).unwrap();
            let counts = words.into_iter().map(|word| (word.word, word.count, word.is_new));
            counts.collect::<Vec<_>>()
        };
        let stop = |count: u64| ("stop".to_owned(), count, false);
        let frobnicated = ("frobnicated".to_owned(), 1, true);
        assert_eq!(counted(&mut *store, &whole, 4, 5), [stop(1)]);
        assert_eq!(counted(&mut *store, &whole, 2, 4), [frobnicated, stop(1)]);
        assert_eq!(counted(&mut *store, &whole, 5, 9), []);
        let other = Filter { provider: Some("anthropic".to_owned()), ..Filter::default() };
        assert_eq!(counted(&mut *store, &other, 0, 9), []);
        let team = Filter { team: Some("team".to_owned()), ..Filter::default() };
        assert_eq!(counted(&mut *store, &team, 4, 5), [stop(1)]);
        store.tend().unwrap();
    }
    assert_eq!(store.words(&whole, ALL, 1).unwrap().len(), 1);
}

fn old_rows_are_forgotten_in_bounds(open: Open<'_>) {
    let mut store = ready(open);
    store.load(&batch(0..100)).unwrap();
    assert_eq!(store.forget(T0 + 60, 25).unwrap(), 25);
    let oldest = |store: &mut Box<dyn Store>| {
        let rows = store.endings(&Wanted { limit: 1000, ..Wanted::default() }).unwrap();
        rows.last().unwrap().record.created_at - T0
    };
    assert_eq!(oldest(&mut store), 25);
    assert_eq!(store.forget(T0 + 60, 1000).unwrap(), 35);
    assert_eq!(store.forget(T0 + 60, 1000).unwrap(), 0);
    assert_eq!(oldest(&mut store), 60);
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 100);
}

fn rows_are_judged_again(open: Open<'_>) {
    let mut store = ready(open);
    store.load(&batch(0..30)).unwrap();
    let first = store.judged_otherwise(&[2], "", 20).unwrap();
    let second = store.judged_otherwise(&[2], &first[19].record.id, 20).unwrap();
    assert_eq!((first.len(), second.len()), (20, 10));
    assert!(store.judged_otherwise(&[1], "", 20).unwrap().is_empty());
    let judge = |rows: &[Stored], rules: u32, reason: &str, finish: &str| -> Vec<Stored> {
        let mut rows = rows.to_vec();
        for row in &mut rows {
            row.record.rules = rules;
            row.record.reason = reason.to_owned().into();
            row.record.finish_reason = Some(finish.to_owned().into());
            // Nothing but the verdict is written.
            row.record.model = Some("other".to_owned());
        }
        rows
    };
    let verdicts = judge(&first, 2, "output_limit", "length");
    assert_eq!(store.rejudge(&verdicts).unwrap(), 20);
    assert_eq!(store.rejudge(&verdicts).unwrap(), 0);
    assert_eq!(store.judged_otherwise(&[2], "", 20).unwrap().len(), 10);
    let row = store.ending(&first[0].record.id).unwrap().unwrap();
    assert_eq!((row.record.reason.as_ref(), row.record.rules), ("output_limit", 2));
    assert_eq!(row.previous_reason.as_deref(), Some("complete"));
    assert_eq!(row.previous_finish_reason.as_deref(), Some("stop"));
    assert_eq!((row.previous_rules, row.record.model.as_deref()), (Some(1), Some("gpt-5")));
    let total = store.report(&query(&[])).unwrap().total.now;
    assert_eq!((total.count, total.tokens_of_cut), (30, 200));
    assert_eq!(total.reasons["output_limit"], 20);
    // What was said first stays, and a row that changed meanwhile is left alone.
    let amend = Entry { sequence: 1, record: Record { rules: 2, ..entry(0).record } };
    store.load(&[amend]).unwrap();
    let again = judge(&first, 3, "cut", "error");
    assert_eq!(store.rejudge(&again).unwrap(), 19);
    let row = store.ending(&first[1].record.id).unwrap().unwrap();
    assert_eq!((row.previous_reason.as_deref(), row.previous_rules), (Some("complete"), Some(1)));
    // The same verdict leaves nothing to keep.
    let same = judge(&second, 3, "complete", "stop");
    assert_eq!(store.rejudge(&same).unwrap(), 10);
    assert!(store.ending(&second[0].record.id).unwrap().unwrap().previous_rules.is_none());
}
