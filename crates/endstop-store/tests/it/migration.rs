//! Stores of earlier versions, brought up to date.

use std::collections::BTreeMap;

use endstop_store::{Dimension, Entry};

use crate::model::{ALL, HOUR, T0, entry, query};
use crate::places;

/// The steps that were there before sums became plain columns.
fn old_steps(backend: &str) -> Vec<(&'static str, String)> {
    let file = |name: &str| {
        let path = format!("{}/migrations/{backend}/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    ["0001_requests", "0002_hourly", "0003_client_status"]
        .into_iter()
        .map(|name| (name, file(name)))
        .collect()
}

/// Packed lines as they were: five responses of the series at 7, and two at 8.
fn chunk() -> Vec<u8> {
    let mut packed = vec![1];
    for (at, count) in [(7_u8, 5_u8), (8, 2)] {
        packed.push(at);
        packed.extend(1_u64.to_le_bytes());
        packed.push(count << 1);
    }
    packed
}

fn check(store: &mut dyn endstop_store::Store, rows: usize) {
    // Before and after the old sums are folded, and with rows of today.
    for folded in [false, true] {
        let report = store.report(&query(&[Dimension::Reason])).unwrap();
        let counts: BTreeMap<String, u64> = report
            .groups
            .into_iter()
            .map(|group| (group.key[0].clone().unwrap(), group.now.count))
            .collect();
        let wanted = BTreeMap::from([("complete".to_owned(), 5 + 3), ("cut".to_owned(), 2)]);
        assert_eq!(counts, wanted, "folded: {folded}");
        store.tend().unwrap();
    }
    let all = store.endings(&endstop_store::Wanted::default()).unwrap();
    assert_eq!(all.len(), rows);
    assert!(store.migrate().unwrap().is_empty());
}

fn new_rows() -> Vec<Entry> {
    (10..13).map(entry).collect()
}

#[test]
fn of_sqlite() {
    let place = places::sqlite();
    let file = place.url.strip_prefix("sqlite:").unwrap();
    let old = rusqlite::Connection::open(file).unwrap();
    old.execute_batch("CREATE TABLE endstop_migrations (name text PRIMARY KEY, applied_at text)")
        .unwrap();
    for (name, sql) in old_steps("sqlite") {
        old.execute_batch(&sql).unwrap();
        old.execute("INSERT INTO endstop_migrations VALUES (?, '')", [name]).unwrap();
    }
    let columns = "id, created_at, provider, reason, turn_id, attempt, sequence, rules, \
                   native_finish_reason";
    let id = crate::model::id(1);
    old.execute(
        &format!(
            "INSERT INTO gateway_requests ({columns}) \
             VALUES (?, ?, 'openai', 'cut', ?, 1, 1, 1, 'stop')"
        ),
        (&id, T0 as i64, &id),
    )
    .unwrap();
    for (number, reason) in [(7, "complete"), (8, "cut")] {
        let series =
            "INSERT INTO endstop_series VALUES (?, 't', '', 'openai', 'm', 'u', ?, 'stop')";
        old.execute(series, (number, reason)).unwrap();
    }
    let hour = (T0 / HOUR * HOUR) as i64;
    old.execute("INSERT INTO endstop_hourly VALUES (?, 0, ?)", (hour, chunk())).unwrap();
    let words =
        "INSERT INTO endstop_words VALUES ('openai', 'd', 'f', 'stop', 'complete', 1, 2, 3)";
    old.execute(words, []).unwrap();
    drop(old);

    let mut store = place.open();
    assert_eq!(store.migrate().unwrap(), ["0004_sums", "0005_words"]);
    store.load(&new_rows()).unwrap();
    check(&mut *store, 4);
    assert_eq!(store.ending(&id).unwrap().unwrap().record.reason, "cut");
    assert_eq!(store.turn(&id).unwrap().len(), 1);
    // The old sums have no words: those of old hours are counted from the rows.
    let words = store.words(&endstop_store::Filter::default(), ALL, 10).unwrap();
    let mut counts: Vec<_> =
        words.iter().map(|word| (word.model.as_str(), word.word.as_str(), word.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [("", "stop", 1), ("gpt-5", "stop", 3)]);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn of_postgres() {
    let place = places::postgres();
    place.sql(
        "CREATE TABLE endstop_migrations (name text PRIMARY KEY, \
               applied_at timestamptz NOT NULL DEFAULT now())",
    );
    for (name, sql) in old_steps("postgres") {
        place.sql(&sql);
        place.sql(&format!("INSERT INTO endstop_migrations (name) VALUES ('{name}')"));
    }
    let id = crate::model::id(1);
    place.sql(&format!(
        "INSERT INTO gateway_requests (id, created_at, provider, reason, turn_id, attempt, sequence, \
         rules) VALUES ('{id}', timestamptz 'epoch' + interval '1 ms' * {T0}, 'openai', 'cut', '{id}', \
         1, 1, 1)"
    ));
    for (number, reason) in [(7, "complete"), (8, "cut")] {
        place.sql(&format!(
            "INSERT INTO endstop_series OVERRIDING SYSTEM VALUE VALUES \
             ({number}, 't', '', 'openai', 'm', 'u', '{reason}', 'stop')"
        ));
    }
    place.sql("SELECT setval(pg_get_serial_sequence('endstop_series', 'id'), 100)");
    let hex: String = chunk().iter().map(|byte| format!("{byte:02x}")).collect();
    let hour = T0 / HOUR * HOUR;
    place.sql(&format!("INSERT INTO endstop_hourly VALUES ({hour}, 0, '\\x{hex}')"));

    let mut store = place.open();
    assert_eq!(store.migrate().unwrap(), ["0004_sums", "0005_words"]);
    store.load(&new_rows()).unwrap();
    check(&mut *store, 4);
    let seen =
        place.sql("SELECT reason, sum(count)::text FROM endstop_hours GROUP BY 1 ORDER BY 1");
    let cell = |text: &str| Some(text.to_owned());
    assert_eq!(seen, [[cell("complete"), cell("8")], [cell("cut"), cell("2")]]);
}
