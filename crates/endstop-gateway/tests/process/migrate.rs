//! A store and a spool of the version before sums became plain columns, taken over by gateways that are
//! killed meanwhile.

use std::path::Path;
use std::time::Duration;

use endstop::Record;
use endstop_store::spool::{Options, Spool};
use fastrand::Rng;

use crate::child::{Process, config};
use crate::load::{Rows, postgres_rows, sqlite_rows};
use crate::places;

/// Rows of the earlier version, all of one hour and one series.
const ROWS: u64 = 30_000;
/// Endings that it left in the spool, and one response that it left open.
const WAITING: u64 = 50;
const HOUR: u64 = 3_600_000;
/// The first millisecond of an hour.
const AT: u64 = 1_700_000_000_000 / HOUR * HOUR + HOUR;
const KILLS: u64 = 12;

fn id(number: u64) -> String {
    format!("018bcfe5680070008{number:015x}")
}

/// The steps that there were.
fn steps(backend: &str) -> Vec<(&'static str, String)> {
    let names = ["0001_requests", "0002_hourly", "0003_client_status"];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../endstop-store/migrations");
    let read = |name| std::fs::read_to_string(format!("{folder}/{backend}/{name}.sql")).unwrap();
    names.into_iter().map(|name| (name, read(name))).collect()
}

/// The sums of the rows as they were kept: the count alone, of the series at 7.
fn chunk() -> Vec<u8> {
    let mut packed = vec![1, 7];
    packed.extend(1_u64.to_le_bytes());
    let mut number = ROWS << 1;
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
    packed
}

/// A record that the earlier version wrote.
fn record(number: u64) -> Record {
    Record {
        id: id(number),
        turn_id: id(number),
        attempt: 1,
        created_at: AT + number,
        provider: "openai".into(),
        upstream: "openai".to_owned(),
        dialect: "openai_chat".into(),
        reason: "complete".into(),
        confidence: "high".into(),
        closed: "proven".into(),
        cause: "complete".into(),
        action: "passed".into(),
        rules: 1,
        ..Record::default()
    }
}

/// Writes what a gateway left that had loaded some of its spool and was killed before it noted that.
fn leave_spool(data: &Path) {
    let (spool, _) = Spool::open(&data.join("spool"), Options::default()).unwrap();
    for number in ROWS - 10..ROWS + WAITING {
        let mut ticket = spool.start(&record(number));
        spool.end(&mut ticket, &record(number));
    }
    let _open = spool.start(&record(ROWS + WAITING));
}

fn check(rows: &Rows) {
    assert_eq!(rows.by_id.len() as u64, ROWS + WAITING + 1);
    assert_eq!(rows.summed, ROWS + WAITING + 1);
    assert_eq!(rows.interrupted(), 1);
    assert!((0..=ROWS + WAITING).all(|number| rows.by_id.contains_key(&id(number))));
}

async fn is_taken_over(store: &str, rows: impl Fn() -> Rows, seed: u64) {
    let temp = tempfile::tempdir().unwrap();
    leave_spool(&temp.path().join("data"));
    let config = config(temp.path(), "http://127.0.0.1:1", store, "log = 'off'");
    let killed = config.clone();
    tokio::task::spawn_blocking(move || {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..KILLS {
            let process = Process::start(&killed);
            process.listening();
            std::thread::sleep(Duration::from_micros(rng.u64(..60_000)));
            process.kill();
        }
    })
    .await
    .unwrap();
    // Twice is harmless.
    for _ in 0..2 {
        let process = Process::start(&config);
        process.listening().loaded().await;
        process.stop();
        check(&rows());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_sqlite_file_is_taken_over_by_gateways_that_are_killed() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("e.db");
    let old = rusqlite::Connection::open(&file).unwrap();
    old.execute_batch("CREATE TABLE endstop_migrations (name text PRIMARY KEY, applied_at text)")
        .unwrap();
    for (name, sql) in steps("sqlite") {
        old.execute_batch(&sql).unwrap();
        old.execute("INSERT INTO endstop_migrations VALUES (?, '')", [name]).unwrap();
    }
    old.execute_batch(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {ROWS}) \
         INSERT INTO gateway_requests (id, created_at, provider, upstream, dialect, reason, closed, \
         cause, action, turn_id, attempt, sequence, rules) SELECT '018bcfe5680070008' || \
         printf('%015x', i), {AT} + i, 'openai', 'openai', 'openai_chat', 'complete', 'proven', \
         'complete', 'passed', '018bcfe5680070008' || printf('%015x', i), 1, 1, 1 FROM n; \
         INSERT INTO endstop_series VALUES (7, '', '', 'openai', '', 'openai', 'complete', '')"
    ))
    .unwrap();
    let hourly = "INSERT INTO endstop_hourly VALUES (?, 0, ?)";
    old.execute(hourly, (AT as i64, chunk())).unwrap();
    drop(old);
    is_taken_over(&format!("sqlite:{}", file.display()), || sqlite_rows(&file), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
async fn an_earlier_postgres_database_is_taken_over_by_gateways_that_are_killed() {
    let made = std::thread::spawn(|| {
        let place = places::postgres();
        place.sql(
            "CREATE TABLE endstop_migrations (name text PRIMARY KEY, \
             applied_at timestamptz NOT NULL DEFAULT now())",
        );
        for (name, sql) in steps("postgres") {
            place.sql(&sql);
            place.sql(&format!("INSERT INTO endstop_migrations (name) VALUES ('{name}')"));
        }
        let hex: String = chunk().iter().map(|byte| format!("{byte:02x}")).collect();
        place.sql(&format!(
            "INSERT INTO gateway_requests (id, created_at, provider, upstream, dialect, reason, \
             closed, cause, action, turn_id, attempt, sequence, rules) \
             SELECT ('018bcfe5680070008' || lpad(to_hex(i), 15, '0'))::uuid, \
             timestamptz 'epoch' + interval '1 ms' * ({AT} + i), 'openai', 'openai', 'openai_chat', \
             'complete', 'proven', 'complete', 'passed', \
             '018bcfe5680070008' || lpad(to_hex(i), 15, '0'), 1, 1, 1 \
             FROM generate_series(0, {ROWS} - 1) AS i; \
             INSERT INTO endstop_series OVERRIDING SYSTEM VALUE VALUES \
             (7, '', '', 'openai', '', 'openai', 'complete', ''); \
             SELECT setval(pg_get_serial_sequence('endstop_series', 'id'), 7); \
             INSERT INTO endstop_hourly VALUES ({AT}, 0, '\\x{hex}')"
        ));
        place
    });
    let place = made.join().unwrap();
    let url = place.url.clone();
    let rows = || {
        let url = url.clone();
        std::thread::spawn(move || postgres_rows(&url)).join().unwrap()
    };
    is_taken_over(&place.url, rows, 2).await;
}
