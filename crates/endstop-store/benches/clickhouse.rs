//! Cost of ClickHouse: inserts beside bare HTTP, and the standard report on many rows.
//!
//! `cargo bench -p endstop-store --bench clickhouse` needs `scripts/clickhouse`. Inserts are batches of 20,000 rows, in
//! turns: `load`, which looks for the ids, encodes the rows and inserts them; and the same rows, encoded before, sent by
//! bare HTTP into a table of the same kind in another database. Then 10^7 rows of seven days are made, and the last
//! seven days are reported by provider and reason. `-- --report` makes the report
//! alone, and `-- --rows N` another number of rows.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails loudly"
)]

use std::time::{Duration, Instant};

use endstop_store::{Dimension, Entry, Filter, Period, Query, Wanted};

#[path = "../tests/it/places.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod places;
#[path = "shared/traffic.rs"]
mod traffic;

use places::Place;
use places::clickhouse::{ask, ask_bytes, clickhouse, old_clickhouse, query};
use traffic::{T0, entry};

const BATCH: u64 = 20_000;
const BATCHES: u64 = 30;
/// The rows are those of seven days, however many there are.
const DAYS_MS: u64 = 7 * 86_400_000;
/// Rows that are loaded by the store; the others are made of them by the server.
const LOADED: u64 = 200_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let rows = arguments.iter().position(|argument| argument == "--rows");
    let rows = rows.map_or(10_000_000, |at| arguments[at + 1].parse().unwrap());
    if arguments.iter().any(|argument| argument == "--report") {
        return report(rows);
    }
    compare("18.16.1, a server", &[old_clickhouse(), old_clickhouse()], BATCH);
    compare("the same beside another gateway", &[old_clickhouse(), old_clickhouse()], BATCH / 2);
    compare("current engine, through its Python front", &[clickhouse(), clickhouse()], BATCH);
    compare("the same beside another gateway", &[clickhouse(), clickhouse()], BATCH / 2);
    report(rows);
}

/// Prints the speed of both contenders, and the median of their ratios. If `step` is less than a batch, batches overlap in
/// time, as those of several gateways do, and their ids have to be looked for.
fn compare(name: &str, [ours, bare]: &[Place; 2], step: u64) {
    for place in [ours, bare] {
        place.open().migrate().unwrap();
    }
    let mut store = ours.open();
    let (mut our_times, mut bare_times, mut sent) = (Vec::new(), Vec::new(), 0);
    for number in 0..BATCHES {
        let entries: Vec<Entry> =
            (number * BATCH..(number + 1) * BATCH).map(|row| made(number, row, step)).collect();
        let start = Instant::now();
        assert_eq!(store.load(&entries).unwrap().added, BATCH);
        our_times.push(start.elapsed());
        let bytes = encoded(ours, &entries);
        sent = bytes.len();
        let start = Instant::now();
        ask(&bare.url, "&query=INSERT%20INTO%20gateway_requests%20FORMAT%20RowBinary", &bytes)
            .unwrap();
        bare_times.push(start.elapsed());
    }
    let [our_rows, bare_rows] =
        [ours, bare].map(|place| query(&place.url, "SELECT count() FROM gateway_requests FINAL"));
    assert_eq!(our_rows, bare_rows);
    let mut ratios: Vec<f64> = our_times
        .iter()
        .zip(&bare_times)
        .map(|(our, bare)| bare.as_secs_f64() / our.as_secs_f64())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let rate = |times: Vec<Duration>| BATCH as f64 / median(times).as_secs_f64();
    println!(
        "{name}: {:.0} rows/s, bare HTTP {:.0} rows/s, median of the ratios {:.2}x; {:.0} bytes a row \
         are sent",
        rate(our_times),
        rate(bare_times),
        ratios[ratios.len() / 2],
        sent as f64 / BATCH as f64
    );
}

/// A row of a batch; a batch begins `step` rows after the one before it.
fn made(batch: u64, row: u64, step: u64) -> Entry {
    let mut entry = entry(row, 4);
    entry.record.created_at = T0 + (row - batch * (BATCH - step)) * 4;
    entry
}

/// Returns the rows of a batch in the format `RowBinary`, as the server writes them.
fn encoded(place: &Place, entries: &[Entry]) -> Vec<u8> {
    let ids = [entries.first(), entries.last()].map(|entry| entry.unwrap().record.id.clone());
    let [first, last] = ids.map(|id| format!("unhex('{id}')"));
    let rows = format!(
        "SELECT * FROM gateway_requests WHERE id >= {first} AND id <= {last} ORDER BY id FORMAT RowBinary"
    );
    ask_bytes(&place.url, "", rows.as_bytes()).unwrap()
}

/// Prints the time of the standard report, and the size of the rows.
fn report(rows: u64) {
    let place = clickhouse();
    let mut store = place.open();
    store.migrate().unwrap();
    let every_ms = DAYS_MS / rows.max(1);
    for number in 0..LOADED / BATCH {
        let entries: Vec<Entry> = (number * BATCH..(number + 1) * BATCH)
            .map(|number| entry(number, every_ms.max(1)))
            .collect();
        store.load(&entries).unwrap();
    }
    let step = LOADED * every_ms.max(1);
    for copy in 1..rows / LOADED {
        let time = format!("toUnixTimestamp64Milli(created_at) + {}", copy * step);
        query(
            &place.url,
            &format!(
                "INSERT INTO gateway_requests SELECT * REPLACE(fromUnixTimestamp64Milli({time}, 'UTC') AS \
                 created_at, toFixedString(unhex(concat(leftPad(hex({time}), 12, '0'), \
                 substring(hex(id), 13))), 16) AS id) FROM (SELECT * FROM gateway_requests WHERE \
                 created_at < fromUnixTimestamp64Milli({}, 'UTC'))",
                T0 + step
            ),
        );
    }
    let count = query(&place.url, "SELECT count() FROM gateway_requests FINAL");
    let size = query(
        &place.url,
        "SELECT sum(data_compressed_bytes), count(), sum(rows) FROM system.parts WHERE active AND database = \
         currentDatabase() AND table = 'gateway_requests'",
    );
    let (bytes, all): (f64, f64) = (size[0][0].parse().unwrap(), size[0][2].parse().unwrap());
    println!("{} rows in {} parts, {:.1} bytes a row", count[0][0], size[0][1], bytes / all);
    let until = T0 + rows / LOADED * step;
    let asked = Query {
        by: vec![Dimension::Provider, Dimension::Reason],
        period: Period { since: until - DAYS_MS, until },
        before: None,
        zone: None,
        filter: Filter::default(),
        limit: 100,
    };
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let times = (0..7).map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        });
        println!("{what}: {:.2?}", median(times.collect()));
    };
    timed("report of seven days by provider and reason", &mut || {
        assert!(store.report(&asked).unwrap().total.now.count > 0);
    });
    let hours = Query { by: vec![Dimension::Hour, Dimension::Provider], ..asked.clone() };
    timed("the same by hour and provider", &mut || drop(store.report(&hours).unwrap()));
    let day = Query { period: Period { since: until - DAYS_MS / 7, until }, ..asked };
    timed("report of one day by provider and reason", &mut || drop(store.report(&day).unwrap()));
    timed("the newest 100 endings", &mut || {
        assert_eq!(store.endings(&Wanted::default()).unwrap().len(), 100);
    });
    let id = entry(77, every_ms.max(1)).record.id;
    timed("one ending by its id", &mut || assert!(store.ending(&id).unwrap().is_some()));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
