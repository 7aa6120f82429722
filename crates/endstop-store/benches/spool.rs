//! What an append costs, beside a bare write of the same bytes; how long a start takes after a crash.
//!
//! `cargo bench -p endstop-store --bench spool`; times are the best of five rounds of one run.
#![expect(clippy::unwrap_used, reason = "a bench that cannot run says so")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use endstop::{Record, RequestInfo, provider};
use endstop_store::spool::{Options, Spool};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 5;
const PAIRS: u32 = 20_000;
const ENTRIES: u32 = 1_000_000;

fn main() {
    // `cargo test` runs benches too, to see that they run.
    let short = !std::env::args().any(|arg| arg == "--bench");
    let (pairs, entries) = if short { (100, 1000) } else { (PAIRS, ENTRIES) };
    let temp = tempfile::tempdir().unwrap();
    appends(temp.path(), pairs);
    recovery(temp.path(), entries);
}

fn appends(dir: &Path, pairs: u32) {
    let (start, end) = records();
    let encoded = [serde_json::to_vec(&start).unwrap(), serde_json::to_vec(&end).unwrap()];
    let size = (encoded[0].len() + encoded[1].len()) / 2 + 57;
    let (spool, _) = Spool::open(&dir.join("appends"), Options::default()).unwrap();
    let mut next = 0_u64;
    let append = best(|| {
        let records: Vec<(Record, Record)> = (0..pairs)
            .map(|_| {
                next += 1;
                let id = format!("{next:032x}");
                (Record { id: id.clone(), ..start.clone() }, Record { id, ..end.clone() })
            })
            .collect();
        time(2 * pairs, || {
            for (start, end) in &records {
                let mut ticket = spool.start(start);
                spool.end(&mut ticket, end);
            }
        })
    });
    let bytes = vec![b'x'; size];
    let open = || OpenOptions::new().append(true).create(true).open(dir.join("bare")).unwrap();
    let mut file: File = open();
    let bare = best(|| {
        time(2 * pairs, || {
            for _ in 0..2 * pairs {
                file.write_all(&bytes).unwrap();
            }
        })
    });
    let mut buffer = Vec::new();
    let encode = best(|| {
        time(2 * pairs, || {
            for index in 0..2 * pairs {
                buffer.clear();
                let record = if index % 2 == 0 { &start } else { &end };
                serde_json::to_writer(&mut buffer, record).unwrap();
                std::hint::black_box(crc32fast::hash(&buffer));
            }
        })
    });
    println!("an entry has about {size} bytes; microseconds each: CPU, wall");
    for (what, (cpu, wall)) in [("append", append), ("bare write", bare), ("encoding", encode)] {
        println!("{what:<12} {cpu:>6.2} {wall:>6.2}");
    }
    println!("append / bare write: {:.2} of CPU", append.0 / bare.0);
}

fn recovery(dir: &Path, entries: u32) {
    let (start, end) = records();
    let dir = dir.join("recovery");
    let options = Options { bytes: 8 << 30, disk_percent: 100, ..Options::default() };
    let (spool, _) = Spool::open(&dir, options.clone()).unwrap();
    for number in 0..entries / 2 {
        let id = format!("{number:032x}");
        let mut ticket = spool.start(&Record { id: id.clone(), ..start.clone() });
        // One in a hundred has no end.
        if number % 100 > 0 {
            spool.end(&mut ticket, &Record { id, ..end.clone() });
        }
    }
    drop(spool);
    let began = Instant::now();
    let (spool, recovery) = Spool::open(&dir, options).unwrap();
    let took = began.elapsed();
    println!(
        "recovery of {entries} entries, {} of them orphans: {:.2} s, {} MB",
        recovery.orphans,
        took.as_secs_f64(),
        spool.status().bytes / 1_000_000
    );
    let began = Instant::now();
    let mut read = 0;
    while let Some(batch) = spool.store().next(1000) {
        read += batch.entries.len();
        spool.store().ack(batch.upto);
    }
    println!("reading {read} of them for a store: {:.2} s", began.elapsed().as_secs_f64());
}

/// What a gateway writes.
fn records() -> (Record, Record) {
    let mut start = Record {
        id: "0".repeat(32),
        turn_id: "0".repeat(32),
        created_at: 1_750_000_000_000,
        team_id: Some("search".into()),
        key_id: Some("k_0123456789abcdef".into()),
        upstream: "openai".into(),
        path: "/v1/chat/completions".into(),
        mode: "guard".into(),
        ..Record::default()
    };
    let asked = RequestInfo {
        model: Some("gpt-4o-mini".into()),
        cap: Some(1024),
        ..RequestInfo::default()
    };
    start.ask(&provider::OPENAI, &asked);
    let end = Record {
        status: Some(200),
        native_finish_reason: Some("stop".into()),
        native_field: Some("finish_reason".into()),
        finish_reason: Some("stop".into()),
        reason: "complete".into(),
        closed: "proven".into(),
        tokens_in: Some(812),
        tokens_out: Some(377),
        first_byte_us: Some(412_345),
        total_us: 8_412_345,
        bytes: 98_765,
        delivered_bytes: 98_765,
        events: 377,
        upstream_request_id: Some("req_0123456789abcdef0123456789abcdef".into()),
        ..start.clone()
    };
    (start, end)
}

/// Microseconds of CPU and of the wall, for one of many.
fn time(count: u32, work: impl FnOnce()) -> (f64, f64) {
    let (cpu, wall) = (thread_time(), Instant::now());
    work();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count);
    (each(thread_time() - cpu), each(wall.elapsed()))
}

fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn best(mut round: impl FnMut() -> (f64, f64)) -> (f64, f64) {
    let rounds = std::iter::repeat_with(&mut round).take(ROUNDS);
    rounds.fold((f64::MAX, f64::MAX), |best, one| (best.0.min(one.0), best.1.min(one.1)))
}
