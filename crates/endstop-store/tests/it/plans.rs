//! Questions on many rows: indexes answer them, and the rows that are read are few. The plans of SQLite are tested
//! beside its statements, in `sqlite.rs`.

use std::time::{Duration, Instant};

use endstop_store::{Dimension, Filter, Period, Query, Store, Wanted};

use crate::model::{HOUR, query};
use crate::places::{self, Place};

const ROWS: u64 = 200_000;
/// Ten rows a minute, over fourteen days.
const EVERY_MS: u64 = 6_000;
const START: u64 = 1_700_000_000_000 / HOUR * HOUR;
const END: u64 = START + ROWS * EVERY_MS;

/// The most rows that all questions read together. One that reads the whole table reads many more.
const FEW: u64 = 40_000;

fn ask(store: &mut dyn Store) -> Vec<(&'static str, u64)> {
    let period = Period { since: START + HOUR / 2, until: END - HOUR / 2 };
    let filter = Filter { team: Some("t7".to_owned()), ..Filter::default() };
    let counted = |asked: Query, store: &mut dyn Store| {
        let total = store.report(&asked).unwrap().total;
        total.now.count
    };
    let by = query(&[Dimension::Provider, Dimension::Reason]);
    let of_team = Query { filter: filter.clone(), period, ..by.clone() };
    let zone = Some("Asia/Kolkata".to_owned());
    let days = Query { zone, period, ..query(&[Dimension::Day]) };
    let whole = counted(Query { period, ..by }, store);
    let of_team = counted(of_team, store);
    let days = counted(days, store);
    let words = store.words(&filter, period, 10).unwrap();
    let newest = store.endings(&Wanted { limit: 50, ..Wanted::default() }).unwrap();
    let wanted = Wanted { limit: 50, period: Some(period), ..Wanted::default() };
    let within = store.endings(&wanted).unwrap();
    let id = newest[0].record.id.clone();
    let one = store.ending(&id).unwrap();
    let turn = store.turn(&id).unwrap();
    vec![
        ("report", whole),
        ("report of a team", of_team),
        ("report of days", days),
        ("words of a team", words[0].count),
        ("newest", newest.len() as u64),
        ("within", within.len() as u64),
        ("one", u64::from(one.is_some())),
        ("turn", turn.len() as u64),
    ]
}

fn check(answers: &[(&str, u64)]) {
    let within = ROWS - HOUR / EVERY_MS;
    let wanted = [
        ("report", within),
        ("report of a team", within / 40),
        ("report of days", within),
        ("words of a team", within / 40),
        ("newest", 50),
        ("within", 50),
        ("one", 1),
        ("turn", 1),
    ];
    assert_eq!(answers, wanted);
}

/// Sums as they would be: one line for each hour and team.
const SUMS: &str = "INSERT INTO endstop_sums (hour, series, count) \
    SELECT h.hour, s.id, h.count FROM (SELECT created / 3600000 * 3600000 AS hour, team, \
    count(*) AS count FROM rows_made GROUP BY 1, 2) h \
    JOIN endstop_series s ON s.team_id = h.team";

const SERIES: &str = "INSERT INTO endstop_series (team_id, key_id, provider, model, upstream, dialect, \
    reason, finish_reason, action, status, streamed, native_finish_reason) SELECT DISTINCT team, '', \
    'openai', '', 'openai', 'openai_chat', 'complete', 'stop', 'passed', '', 'true', 'stop' FROM rows_made";

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn of_postgres() {
    let place = places::postgres();
    place.open().migrate().unwrap();
    place.sql(&format!(
        "CREATE TABLE rows_made AS SELECT i, {START} + i * {EVERY_MS} AS created, 't' || i % 40 AS team \
         FROM generate_series(0::bigint, {ROWS} - 1) AS i; \
         INSERT INTO gateway_requests (id, created_at, team_id, finish_reason, native_finish_reason, \
         provider, upstream, \
         dialect, reason, action, streamed, turn_id, attempt, sequence, rules, path, total_us) \
         SELECT (lpad(to_hex(created), 12, '0') || '7000800' || lpad(to_hex(i), 13, '0'))::uuid, \
         timestamptz 'epoch' + interval '1 ms' * created, team, 'stop', 'stop', 'openai', 'openai', \
         'openai_chat', 'complete', 'passed', true, 'turn', 1, 0, 1, repeat('x', 200), 0 \
         FROM rows_made ORDER BY i; {SERIES}; {SUMS}; DROP TABLE rows_made; \
         SELECT brin_summarize_new_values('idx_gateway_requests_time')"
    ));
    place.sql("VACUUM ANALYZE");
    let [scans, fetched] = read(&place);
    let mut store = place.open();
    let answers = ask(&mut *store);
    drop(store);
    check(&answers);
    let [scans_after, fetched_after] = read(&place);
    assert_eq!(scans_after, scans, "the table was read from its beginning to its end");
    let fetched = fetched_after - fetched;
    assert!(fetched > 0 && fetched < FEW, "{fetched} rows were read");
    // The statement of docs/record.md.
    let plan = place.sql(
        "EXPLAIN SELECT finish_reason, COUNT(*) FROM gateway_requests WHERE team_id = 't7' AND \
         created_at > timestamptz 'epoch' GROUP BY finish_reason ORDER BY COUNT(*) DESC",
    );
    let plan: Vec<String> = plan.into_iter().flatten().flatten().collect();
    let plan = plan.join("\n");
    assert!(plan.contains("idx_gateway_requests_finish_reason"), "{plan}");
}

/// How often the table was read from its beginning, and how many rows were found by indexes.
fn read(place: &Place) -> [u64; 2] {
    let end = Instant::now() + Duration::from_secs(60);
    let others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                  AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    // A session tells what it did when it ends.
    while !place.sql(others).is_empty() {
        assert!(Instant::now() < end, "a session does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let stats = "SELECT seq_scan, idx_tup_fetch FROM pg_stat_user_tables \
                 WHERE relname = 'gateway_requests'";
    let row = &place.sql(stats)[0];
    std::array::from_fn(|at| row[at].as_ref().unwrap().parse().unwrap())
}
