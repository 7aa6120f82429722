//! Cost of the store beside a bare driver, in one run and in turns: the same rows, the same table with the same
//! indexes and settings, batches of 1,000, one transaction each. The bare driver only inserts: in SQLite by a
//! prepared statement for each row, in Postgres by one statement with `UNNEST`. It does not look whether a row is
//! there and keeps no sums. The store does both, and the time to fold its sums is counted in.
//!
//! `cargo bench -p endstop-store --bench store` fills up to 10^6 rows, and with `-- --large` up to 5x10^6.
//! `-- --sqlite`, `-- --postgres` and `-- --sinks` run that part only, and `-- --short` fills nothing.
//! `-- --count` prints the instructions of both SQLite contenders, which the load of the machine does not change;
//! it needs valgrind. Postgres is started in a temporary directory, with `fsync` off, so that its own work is
//! measured and not the disk.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails loudly"
)]

use std::time::{Duration, Instant};

use endstop::Record;
use endstop_store::loader::{self, Loader};
use endstop_store::spool::{self, Named, Spool, Start};
use endstop_store::{Dimension, Entry, Filter, Period, Query, Store, open};

#[path = "../tests/it/places.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod places;

#[path = "shared/traffic.rs"]
mod traffic;
use traffic::{T0, entry};

const BATCH: u64 = 1000;
/// The rows are those of seven days, however many there are.
const DAYS_MS: u64 = 7 * 86_400_000;
/// Batches of a round, in which the bare driver also writes its log back.
const ROUND: u64 = 10;
/// Rounds between two folds of the sums: at full speed, about as often as a loader folds them.
const ROUNDS: u64 = 12;
/// Parts of the comparison, of so many rounds each.
const PARTS: u64 = 5;
/// Rounds that are measured at each size.
const LAST: u64 = 9;
/// Endings for several sinks at once.
const SINK_ROWS: u64 = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--program") {
        return program(&arguments[at + 1], arguments[at + 2].parse().unwrap());
    }
    if arguments.iter().any(|argument| argument == "--count") {
        return count();
    }
    let large = std::env::args().any(|argument| argument == "--large");
    let sizes: &[u64] =
        if large { &[100_000, 1_000_000, 5_000_000] } else { &[100_000, 1_000_000] };
    let only = |name: &str| {
        let parts = ["--sqlite", "--postgres", "--sinks"];
        std::env::args().all(|it| !parts.contains(&it.as_str()) || it == name)
    };
    let short = std::env::args().any(|argument| argument == "--short");
    if only("--sqlite") {
        let nothing = || Duration::ZERO;
        let others: [&dyn Fn() -> Duration; 2] = [&checkpoint_cpu, &nothing];
        compare("sqlite", &places::sqlite(), &mut BareSqlite::new(), others);
        if !short {
            grow("sqlite", places::sqlite, sizes, |_| Duration::ZERO);
        }
    }
    if only("--postgres") {
        let (place, mut bare) = (places::postgres(), BarePostgres::new());
        let (our_url, their_url) = (place.url.clone(), bare.2.clone());
        let (our, their) = (|| server_cpu(&our_url), || server_cpu(&their_url));
        compare("postgres", &place, &mut bare, [&our, &their]);
        if !short {
            grow("postgres", places::postgres, sizes, server_cpu);
        }
    }
    if only("--sinks") {
        several_sinks();
    }
}

fn batch(number: u64, every_ms: u64) -> Vec<Entry> {
    (number * BATCH..(number + 1) * BATCH).map(|number| entry(number, every_ms)).collect()
}

/// The bare driver: one insert of the same columns.
trait Bare {
    fn load(&mut self, entries: &[Entry]);
}

/// Time and CPU time of a contender.
#[derive(Default)]
struct Spent {
    rounds: Vec<Duration>,
    cpu: Duration,
}

impl Spent {
    fn spend(&mut self, work: &mut dyn FnMut()) {
        let (start, before) = (Instant::now(), cpu_time());
        work();
        self.cpu += cpu_time() - before;
        self.rounds.push(start.elapsed());
    }

    fn batch(&self) -> Duration {
        median(self.rounds.clone()) / ROUND as u32
    }
}

/// Times of both contenders. `others` is what a contender's other threads or processes have used.
fn compare(
    name: &str,
    place: &places::Place,
    bare: &mut dyn Bare,
    others: [&dyn Fn() -> Duration; 2],
) {
    let mut store = place.open();
    store.migrate().unwrap();
    let (mut ours, mut theirs, mut folds) = (Spent::default(), Spent::default(), Spent::default());
    let before = others.map(|other| other());
    for part in 0..PARTS {
        for round in part * ROUNDS..(part + 1) * ROUNDS {
            // A thousand responses in four seconds.
            let batches: Vec<_> =
                (round * ROUND..(round + 1) * ROUND).map(|number| batch(number, 4)).collect();
            let mut our = || {
                for entries in &batches {
                    assert_eq!(store.load(entries).unwrap().added, BATCH);
                }
            };
            let mut their = || batches.iter().for_each(|entries| bare.load(entries));
            // Each is first in half of the rounds: the second finds the entries in the cache.
            if round % 2 == 0 {
                ours.spend(&mut our);
                theirs.spend(&mut their);
            } else {
                theirs.spend(&mut their);
                ours.spend(&mut our);
            }
        }
        folds.spend(&mut || while store.tend().unwrap() {});
    }
    let [our_others, their_others] =
        [0, 1].map(|at: usize| (others[at]() - before[at]) / (PARTS * ROUNDS * ROUND) as u32);
    let fold = median(folds.rounds) / (ROUNDS * ROUND) as u32;
    let (our, their) = (ours.batch() + fold, theirs.batch());
    let cpu = |cpu: Duration| cpu / (PARTS * ROUNDS * ROUND) as u32;
    let (our_cpu, their_cpu) = (cpu(ours.cpu + folds.cpu), cpu(theirs.cpu));
    let over = |ours: Duration, theirs: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
    println!(
        "{name}: {:.0} rows/s, bare {:.0} rows/s, {:.2}x; folding {fold:.1?} a batch; CPU of the caller \
         {our_cpu:.2?} a batch, bare {their_cpu:.2?}, {:.2}x; with all threads and processes {:.2?}, bare \
         {:.2?}, {:.2}x",
        rate(BATCH, our),
        rate(BATCH, their),
        over(our, their),
        over(our_cpu, their_cpu),
        our_cpu + our_others,
        their_cpu + their_others,
        over(our_cpu + our_others, their_cpu + their_others),
    );
}

/// What this thread has used, in the kernel too.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a thread or process has used.
fn used(directory: &std::path::Path) -> Duration {
    let read = std::fs::read_to_string(directory.join("schedstat")).unwrap_or_default();
    let nanos = read.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// What the thread has used that writes SQLite's log back.
fn checkpoint_cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let threads = threads.flatten().map(|thread| thread.path()).filter(|thread| {
        let name = std::fs::read_to_string(thread.join("comm")).unwrap_or_default();
        name.trim_end() == "checkpoint"
    });
    threads.map(|thread| used(&thread)).sum()
}

/// What the server's process for the connection to a database has used.
fn server_cpu(url: &str) -> Duration {
    let processes = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND \
                     backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let processes = places::sql(url, processes).into_iter().flatten().flatten();
    processes.map(|process| used(&std::path::Path::new("/proc").join(process))).sum()
}

/// Runs one contender on SQLite and folds at the end, for [`count`].
fn program(contender: &str, batches: u64) {
    let (place, mut bare) = (places::sqlite(), BareSqlite::new());
    let mut store = place.open();
    store.migrate().unwrap();
    for number in 0..batches {
        let entries = batch(number, 4);
        match contender {
            "ours" => assert_eq!(store.load(&entries).unwrap().added, BATCH),
            "bare" => bare.load(&entries),
            _ => drop(entries),
        }
    }
    while store.tend().unwrap() {}
}

/// Instructions of both contenders on SQLite, without those that make the rows.
fn count() {
    let [ours, bare, none] = ["ours", "bare", "none"].map(|contender| {
        let exe = std::env::current_exe().unwrap();
        let output = std::process::Command::new("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}.{contender}.callgrind", exe.display()))
            .arg(&exe)
            .args(["--program", contender, &(ROUNDS * ROUND).to_string()])
            .output()
            .expect("valgrind is not installed: apt-get install valgrind");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        let line = text.lines().find(|line| line.contains("Collected"));
        let number = line.unwrap_or_else(|| panic!("{text}")).rsplit(' ').next().unwrap();
        number.parse::<u64>().unwrap()
    });
    let row = |count: u64| (count - none) / (ROUNDS * ROUND * BATCH);
    let (ours, bare) = (row(ours), row(bare));
    println!("sqlite: {ours} instructions a row, bare {bare}, {:.2}x", bare as f64 / ours as f64);
}

/// CPU time of a contender's other threads or processes, by the address of its store.
type Others = fn(&str) -> Duration;

/// A store that is filled.
struct Filled {
    place: places::Place,
    store: Box<dyn Store>,
    batches: u64,
}

impl Filled {
    fn new(place: fn() -> places::Place) -> Self {
        let place = place();
        let mut store = place.open();
        store.migrate().unwrap();
        Self { place, store, batches: 0 }
    }

    /// Loads and folds the batches of a round.
    fn round(&mut self, every_ms: u64, spent: Option<(&mut Spent, Others)>) {
        let batches: Vec<_> =
            (self.batches..self.batches + ROUND).map(|it| batch(it, every_ms)).collect();
        self.batches += ROUND;
        let mut load = || {
            for entries in &batches {
                assert_eq!(self.store.load(entries).unwrap().added, BATCH);
            }
            while self.store.tend().unwrap() {}
        };
        if let Some((spent, others)) = spent {
            let before = others(&self.place.url);
            spent.spend(&mut load);
            spent.cpu += others(&self.place.url) - before;
        } else {
            load();
        }
    }
}

/// Fills a store, and prints its speed at some sizes beside that of a store with 10^4 rows, in turns: what else
/// the machine does slows down both.
fn grow(name: &str, place: fn() -> places::Place, sizes: &[u64], others: Others) {
    let every_ms = DAYS_MS / sizes.iter().max().unwrap();
    let mut large = Filled::new(place);
    for size in sizes {
        while large.batches + LAST * ROUND < size / BATCH {
            large.round(every_ms, None);
        }
        let (mut at_size, mut at_first) = (Spent::default(), Spent::default());
        for _ in 0..LAST {
            let mut small = Filled::new(place);
            small.round(every_ms, None);
            small.round(every_ms, Some((&mut at_first, others)));
            large.round(every_ms, Some((&mut at_size, others)));
        }
        let rows = large.batches * BATCH;
        let [speed, first_speed] = [&at_size, &at_first].map(|spent| rate(BATCH, spent.batch()));
        let [cpu, first_cpu] = [&at_size, &at_first].map(|spent| spent.cpu / (LAST * ROUND) as u32);
        let report = report(&mut large.store, T0 + rows * every_ms);
        println!(
            "{name}: at {rows} rows {speed:.0} rows/s, at 10^4 {first_speed:.0} ({:+.0} %); CPU of the caller \
             and of a server {cpu:.2?} a batch, at 10^4 {first_cpu:.2?} ({:+.0} %); report {report:.1?}",
            100.0 * (speed / first_speed - 1.0),
            100.0 * (cpu.as_secs_f64() / first_cpu.as_secs_f64() - 1.0),
        );
    }
}

/// The same endings into several sinks at once, each on a thread and at a mark of its own.
fn several_sinks() {
    let folder = tempfile::tempdir().unwrap();
    let (postgres, sqlite) = (places::postgres(), places::sqlite());
    let jsonl = format!("jsonl:{}", folder.path().join("endings.jsonl").display());
    let named = |name: &str| Named { name: name.to_owned(), from: Start::Oldest };
    let options = spool::Options {
        sinks: vec![named("sqlite"), named("jsonl")],
        disk_percent: 50,
        ..spool::Options::default()
    };
    let (spool, _) = Spool::open(&folder.path().join("spool"), options).unwrap();
    for number in 0..SINK_ROWS {
        let record = entry(number, 4).record;
        let mut ticket = spool.start(&record);
        spool.end(&mut ticket, &record);
    }
    let start = Instant::now();
    let sinks = [
        ("postgres", spool.store(), postgres.url.clone()),
        ("sqlite", spool.sink("sqlite").unwrap(), sqlite.url.clone()),
        ("jsonl", spool.sink("jsonl").unwrap(), jsonl),
    ];
    let loaders = sinks.map(|(name, tap, url)| {
        let open = move || endstop_store::open_sink(&url);
        (name, Loader::spawn(tap, open, loader::Options::default()).unwrap())
    });
    std::thread::scope(|scope| {
        for (name, loader) in &loaders {
            scope.spawn(move || {
                assert!(
                    loader.wait_until_loaded(Duration::from_secs(600)),
                    "{:?}",
                    loader.status()
                );
                let speed = rate(SINK_ROWS, start.elapsed());
                println!(
                    "three sinks at once, {SINK_ROWS} rows from the spool: {name} {speed:.0} rows/s"
                );
            });
        }
    });
    for (name, loader) in loaders {
        let status = loader.status();
        assert_eq!((status.loaded, status.dropped), (SINK_ROWS, 0), "{name}");
        assert!(loader.stop(Duration::from_secs(10)));
    }
}

/// The last seven days by provider and reason.
fn report(store: &mut Box<dyn Store>, until: u64) -> Duration {
    let query = Query {
        by: vec![Dimension::Provider, Dimension::Reason],
        period: Period { since: until - DAYS_MS, until },
        before: None,
        zone: None,
        filter: Filter::default(),
        limit: 100,
    };
    let times = (0..15).map(|_| {
        let start = Instant::now();
        assert!(store.report(&query).unwrap().total.now.count > 0);
        start.elapsed()
    });
    median(times.collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn rate(rows: u64, took: Duration) -> f64 {
    rows as f64 / took.as_secs_f64()
}

fn texts(record: &Record) -> [Option<&str>; 21] {
    [
        record.team_id.as_deref(),
        record.finish_reason.as_deref(),
        record.native_finish_reason.as_deref(),
        record.native_field.as_deref(),
        Some(&record.reason),
        Some(&record.confidence),
        Some(&record.provider),
        record.model.as_deref(),
        Some(&record.dialect),
        Some(&record.upstream),
        record.key_id.as_deref(),
        Some(&record.turn_id),
        Some(&record.path),
        Some(&record.mode),
        Some(&record.closed),
        Some(&record.cause),
        Some(""),
        record.decision.as_deref(),
        Some(&record.action),
        record.error_type.as_deref(),
        record.upstream_request_id.as_deref(),
    ]
}

const TEXTS: &str = "team_id, finish_reason, native_finish_reason, native_field, reason, confidence, \
    provider, model, dialect, upstream, key_id, turn_id, path, mode, closed, cause, shown, decision, \
    action, error_type, upstream_request_id";

fn numbers(record: &Record) -> [Option<i64>; 15] {
    let number = |number: u64| Some(number as i64);
    [
        Some(record.attempt.into()),
        record.status.map(Into::into),
        record.tokens_in.and_then(number),
        record.tokens_out.and_then(number),
        record.tokens_reasoning.and_then(number),
        record.tokens_cached.and_then(number),
        record.cap.and_then(number),
        record.first_byte_us.and_then(number),
        number(record.total_us),
        number(record.bytes),
        number(record.delivered_bytes),
        number(record.events),
        Some(record.rules.into()),
        Some(0),
        record.client_status.map(Into::into),
    ]
}

const NUMBERS: &str = "attempt, status, tokens_in, tokens_out, tokens_reasoning, tokens_cached, cap, \
    first_byte_us, total_us, bytes, delivered_bytes, events, rules, sequence, client_status";

struct BareSqlite(rusqlite::Connection, places::Place);

impl BareSqlite {
    fn new() -> Self {
        let place = places::sqlite();
        place.open().migrate().unwrap();
        let connection =
            rusqlite::Connection::open(place.url.strip_prefix("sqlite:").unwrap()).unwrap();
        connection.pragma_update(None, "synchronous", "normal").unwrap();
        connection.pragma_update(None, "cache_size", -32_000).unwrap();
        Self(connection, place)
    }
}

impl Bare for BareSqlite {
    fn load(&mut self, entries: &[Entry]) {
        assert!(self.1.direct.is_none());
        let places = vec!["?"; 39].join(", ");
        let sql = format!(
            "INSERT INTO gateway_requests (id, created_at, streamed, {TEXTS}, {NUMBERS}) VALUES ({places})"
        );
        let transaction = self.0.transaction().unwrap();
        let mut insert = transaction.prepare_cached(&sql).unwrap();
        for Entry { record, .. } in entries {
            let id: uuid::Uuid = record.id.parse().unwrap();
            insert.raw_bind_parameter(1, id.as_bytes().as_slice()).unwrap();
            insert.raw_bind_parameter(2, record.created_at as i64).unwrap();
            insert.raw_bind_parameter(3, record.streamed).unwrap();
            for (index, text) in (4..).zip(texts(record)) {
                insert.raw_bind_parameter(index, text).unwrap();
            }
            for (index, number) in (25..).zip(numbers(record)) {
                insert.raw_bind_parameter(index, number).unwrap();
            }
            insert.raw_execute().unwrap();
        }
        drop(insert);
        transaction.commit().unwrap();
    }
}

struct BarePostgres(tokio::runtime::Runtime, tokio_postgres::Client, String);

impl BarePostgres {
    fn new() -> Self {
        let place = places::postgres();
        open(&place.url).unwrap().migrate().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&place.url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Self(runtime, client, place.url)
    }
}

impl Bare for BarePostgres {
    fn load(&mut self, entries: &[Entry]) {
        use tokio_postgres::types::{ToSql, Type};
        let places: Vec<String> = (1..=39).map(|place| format!("${place}")).collect();
        let sql = format!(
            "INSERT INTO gateway_requests (id, created_at, streamed, {TEXTS}, {NUMBERS}) \
             SELECT * FROM UNNEST({})",
            places.join(", ")
        );
        let records: Vec<&Record> = entries.iter().map(|entry| &entry.record).collect();
        let ids: Vec<uuid::Uuid> =
            records.iter().map(|record| record.id.parse().unwrap()).collect();
        let times: Vec<std::time::SystemTime> = records
            .iter()
            .map(|record| std::time::UNIX_EPOCH + Duration::from_millis(record.created_at))
            .collect();
        let flags: Vec<bool> = records.iter().map(|record| record.streamed).collect();
        let mut text_columns: Vec<Vec<Option<&str>>> = vec![Vec::new(); 21];
        let mut number_columns: Vec<Vec<Option<i64>>> = vec![Vec::new(); 15];
        for record in records {
            for (column, text) in text_columns.iter_mut().zip(texts(record)) {
                column.push(text);
            }
            for (column, number) in number_columns.iter_mut().zip(numbers(record)) {
                column.push(number);
            }
        }
        let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&ids, Type::UUID_ARRAY),
            (&times, Type::TIMESTAMPTZ_ARRAY),
            (&flags, Type::BOOL_ARRAY),
        ];
        for column in &text_columns {
            parameters.push((column, Type::TEXT_ARRAY));
        }
        for column in &number_columns {
            parameters.push((column, Type::INT8_ARRAY));
        }
        let client = &self.1;
        self.0.block_on(async {
            client.batch_execute("BEGIN").await.unwrap();
            assert_eq!(client.execute_typed(&sql, &parameters).await.unwrap(), BATCH);
            client.batch_execute("COMMIT").await.unwrap();
        });
    }
}
