//! `kill -9` at any time: what a caller was told is there, once; what has no end gets one, once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use endstop_store::loader::{self, Loader};
use endstop_store::spool::{Named, Options, Spool, Start, Ticket};
use endstop_store::{Entry, Error, Loaded, Sink};

use crate::{asked, drain, drain_tap, ended, open, peek, said, small, tempdir};

const DIR: &str = "ENDSTOP_TEST_SPOOL";
const CYCLE: &str = "ENDSTOP_TEST_CYCLE";

fn kills() -> u64 {
    std::env::var("ENDSTOP_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(1000)
}

/// This binary, as a process that does one thing in a directory.
pub(crate) fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(DIR, dir);
    command
}

pub(crate) fn dir() -> Option<PathBuf> {
    std::env::var_os(DIR).map(PathBuf::from)
}

/// Lets it run for this long. Gives the whole lines that it said.
fn kill_after(mut child: Child, time: Duration) -> Vec<String> {
    let mut out = child.stdout.take().unwrap();
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        out.read_to_end(&mut said).unwrap();
        String::from_utf8(said).unwrap()
    });
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said.join().unwrap();
    let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(str::to_owned).collect()
}

/// A sink that is a file: a line for each entry, a write for each batch. It does not know what it has, so that
/// entries whose mark was not written before a kill come twice.
struct Lines(File);

/// The line that begins what a process wrote.
const OPENED: &str = "opened";
/// The most entries that a sink takes at once.
const BATCH: usize = 50;

impl Sink for Lines {
    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error> {
        let lines: Vec<String> = said(entries)
            .into_iter()
            .map(|(id, sequence, closed)| format!("\n{id} {sequence} {closed} ."))
            .collect();
        self.0.write_all(lines.concat().as_bytes()).unwrap();
        Ok(Loaded::default())
    }
}

/// Who reads beside the store: one that is as fast, one that never takes anything, and one that comes later.
fn sinks(late: bool) -> Vec<Named> {
    let names = ["other", "stalled"].into_iter().chain(late.then_some("late"));
    names.map(|name| Named { name: name.to_owned(), from: Start::Oldest }).collect()
}

fn tell(word: &str, id: &str) {
    let line = format!("{word} {id}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Writes as fast as it can from several threads, and loads beside it, until it is killed.
#[test]
fn child_that_writes() {
    let (Some(dir), Ok(cycle)) = (dir(), std::env::var(CYCLE)) else { return };
    let late = cycle.parse::<u64>().unwrap() >= kills() / 2;
    let sinks = sinks(late);
    let options = Options { sync_every: Duration::from_millis(5), sinks: sinks.clone(), ..small() };
    let (spool, _) = Spool::open(&dir.join("spool"), options).unwrap();
    let spool = Arc::new(spool);
    let options = loader::Options {
        batch: BATCH,
        linger: Duration::from_millis(1),
        ..loader::Options::default()
    };
    let mut loaders = Vec::new();
    for name in ["store"].into_iter().chain(sinks.iter().map(|sink| sink.name.as_str())) {
        let log = dir.join(name);
        let stalled = name == "stalled";
        let open = move || {
            if stalled {
                std::thread::sleep(Duration::from_secs(3600));
            }
            let mut file = OpenOptions::new().append(true).create(true).open(&log).unwrap();
            file.write_all(format!("\n{OPENED}\n").as_bytes()).unwrap();
            Ok(Box::new(Lines(file)) as Box<dyn Sink>)
        };
        let tap = spool.sink(name).unwrap_or_else(|| spool.store());
        loaders.push(Loader::spawn(tap, open, options.clone()).unwrap());
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (spool, cycle) = (&spool, &cycle);
            scope.spawn(move || write_for_ever(spool, &format!("{cycle}-{thread}")));
        }
    });
}

fn write_for_ever(spool: &Spool, name: &str) {
    let mut random = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum());
    let mut streams: Vec<(String, Ticket)> = Vec::new();
    for number in 0.. {
        let id = format!("{name}-{number}");
        let ticket = spool.start(&asked(&id));
        tell("start", &id);
        streams.push((id, ticket));
        while streams.len() > random.usize(0..12) {
            let (id, mut ticket) = streams.swap_remove(random.usize(0..streams.len()));
            spool.end(&mut ticket, &ended(&id));
            tell("end", &id);
            if random.u8(0..4) == 0 {
                spool.amend(&mut ticket, &ended(&id));
                tell("amend", &id);
            }
        }
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_by_kill_9() {
    let temp = tempdir();
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(9);
    for cycle in 0..kills() {
        let mut command = child("kill::child_that_writes", temp.path());
        let child = command.env(CYCLE, cycle.to_string()).stdout(Stdio::piped()).spawn().unwrap();
        for line in kill_after(child, Duration::from_micros(random.u64(0..30_000))) {
            if let Some((word @ ("start" | "end" | "amend"), id)) = line.split_once(' ') {
                told.entry(word.to_owned()).or_default().insert(id.to_owned());
            }
        }
    }
    let options = Options { sinks: sinks(true), ..small() };
    let (spool, recovery) = Spool::open(&temp.path().join("spool"), options).unwrap();
    assert_eq!(recovery.missing, 0);
    let lists = lists(temp.path(), "store", &drain(&spool));
    let doubled = check_doubles(&lists);
    let loaded = by_id(&lists);
    let status = spool.status();
    assert_eq!((status.open, status.lost, status.error), (0, 0, None));
    check(&told, &loaded);
    // Those that were there from the beginning have all, the stalled one too. The one that came later
    // started with what was still in the spool, which the stalled one kept.
    for Named { name, .. } in sinks(true) {
        let rest = drain_tap(&spool.sink(&name).unwrap());
        let lists = self::lists(temp.path(), &name, &rest);
        check_doubles(&lists);
        check(&told, &by_id(&lists));
    }
    drain(&spool);
    assert!(crate::segments(&temp.path().join("spool")).len() <= 2, "nothing is kept for nobody");
    let interrupted = loaded.values().filter(|rows| rows[&1].contains("interrupted")).count();
    assert!(interrupted > 0 && told["end"].len() > 100, "the test tests nothing");
    println!(
        "{} kills, {} starts and {} ends told, {} loaded, {interrupted} interrupted, {doubled} came twice",
        kills(),
        told["start"].len(),
        told["end"].len(),
        loaded.len()
    );
}

/// How each id closed, by sequence.
type LoadedRows = BTreeMap<String, BTreeMap<u32, BTreeSet<String>>>;

/// Id, sequence and how it closed.
type Line = (String, u32, String);

/// Returns what each process gave to a sink, in order, and at the end the rest.
fn lists(dir: &Path, sink: &str, rest: &[Entry]) -> Vec<Vec<Line>> {
    let log = std::fs::read_to_string(dir.join(sink)).unwrap_or_default();
    let mut lists = vec![Vec::new()];
    for line in log.lines() {
        // A line that was cut by the kill was not acknowledged.
        if let [id, sequence, closed, "."] = line.split(' ').collect::<Vec<_>>()[..] {
            let line = (id.to_owned(), sequence.parse().unwrap(), closed.to_owned());
            lists.last_mut().unwrap().push(line);
        } else if line == OPENED {
            lists.push(Vec::new());
        }
    }
    lists.push(said(rest));
    lists
}

/// Only the last batch before a kill comes twice: after it, nothing that is known comes from a process, and nothing
/// comes twice from the same one. Returns how many came twice.
fn check_doubles(lists: &[Vec<Line>]) -> usize {
    let mut known: BTreeSet<(&str, u32)> = BTreeSet::new();
    let mut doubled = 0;
    for list in lists {
        let keys = || list.iter().map(|(id, sequence, _)| (id.as_str(), *sequence));
        let again = keys().take_while(|key| known.contains(key)).count();
        assert!(again <= BATCH, "{again} came again");
        doubled += again;
        for key in keys().skip(again) {
            assert!(known.insert(key), "{key:?} came twice");
        }
    }
    doubled
}

fn by_id(lists: &[Vec<Line>]) -> LoadedRows {
    let mut rows = LoadedRows::new();
    for (id, sequence, closed) in lists.iter().flatten() {
        let row = rows.entry(id.clone()).or_default();
        row.entry(*sequence).or_default().insert(closed.clone());
    }
    rows
}

fn check(told: &BTreeMap<String, BTreeSet<String>>, loaded: &LoadedRows) {
    let only = |word: &str| BTreeSet::from([word.to_owned()]);
    for id in &told["end"] {
        assert_eq!(loaded.get(id).and_then(|rows| rows.get(&1)), Some(&only("proven")), "{id}");
    }
    for id in &told["amend"] {
        assert_eq!(loaded.get(id).and_then(|rows| rows.get(&2)), Some(&only("proven")), "{id}");
    }
    for id in &told["start"] {
        assert!(loaded.get(id).is_some_and(|rows| rows.contains_key(&1)), "{id} has no end");
    }
    for (id, rows) in loaded {
        assert_eq!(rows.get(&1).map(BTreeSet::len), Some(1), "{id} ended in two ways: {rows:?}");
    }
}

#[test]
fn child_that_opens() {
    let Some(dir) = dir() else { return };
    open(&dir);
}

#[test]
fn orphans_are_closed_once_however_often_that_is_interrupted() {
    let temp = tempdir();
    let (spool, _) = open(temp.path());
    let ids: BTreeSet<String> = (0..3000).map(|number| format!("{number}")).collect();
    for id in &ids {
        let _ = spool.start(&asked(id));
    }
    drop(spool);
    let mut random = fastrand::Rng::with_seed(5);
    let mut between = 0;
    for _ in 0..60 {
        let child = child("kill::child_that_opens", temp.path()).stdout(Stdio::piped()).spawn();
        kill_after(child.unwrap(), Duration::from_micros(random.u64(1000..20_000)));
        let bytes: u64 =
            crate::segments(temp.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
        between = between.max(bytes);
    }
    assert!(between > 0);
    let (spool, recovery) = open(temp.path());
    println!("left for the last start: {} of {}", recovery.orphans, ids.len());
    let entries = peek_all(&spool);
    assert_eq!(entries.len(), ids.len());
    assert!(entries.iter().all(|entry| entry.2 == "interrupted" && entry.1 == 1));
    assert_eq!(entries.into_iter().map(|entry| entry.0).collect::<BTreeSet<_>>(), ids);
    drop(spool);
    assert_eq!(open(temp.path()).1.orphans, 0);
}

fn peek_all(spool: &Spool) -> Vec<(String, u32, String)> {
    said(&peek(spool))
}

#[test]
fn a_long_stream_is_carried_along_and_closed_once() {
    let temp = tempdir();
    let (spool, _) = open(temp.path());
    let _long = spool.start(&asked("long"));
    for number in 0..500 {
        let id = format!("short-{number}");
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
        if number % 3 == 0 {
            drain(&spool);
        }
    }
    assert!(crate::segments(temp.path()).len() <= 3, "the long stream pins the spool");
    assert_eq!(spool.status().open, 1);
    let copied = tempdir();
    crate::copy(temp.path(), copied.path());
    let (again, recovery) = open(copied.path());
    assert_eq!((recovery.orphans, recovery.missing, recovery.quarantined), (1, 0, 0));
    let entries = drain(&again);
    let long: Vec<_> = entries.iter().filter(|entry| entry.record.id == "long").collect();
    assert_eq!((long.len(), long[0].record.closed.as_ref()), (1, "interrupted"));
}

#[test]
fn many_open_streams_are_not_written_over_and_over() {
    let temp = tempdir();
    let (spool, _) = open(temp.path());
    let _open: Vec<Ticket> =
        (0..200).map(|number| spool.start(&asked(&format!("open-{number}")))).collect();
    let before = spool.status().bytes;
    for number in 0..300 {
        let id = format!("short-{number}");
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
        drain(&spool);
    }
    let newest = crate::segments(temp.path()).pop().unwrap();
    let newest: u64 = newest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    // 600 entries and 200 starts, at about four a segment; carrying may at most double them.
    assert!(newest < 2 * 800 / 3, "{newest} segments were written");
    assert!(spool.status().bytes < 3 * before);
    assert_eq!(spool.status().open, 200);
}

#[test]
fn a_second_process_is_told_that_the_spool_is_taken() {
    let temp = tempdir();
    let (_spool, _) = open(temp.path());
    let error = Spool::open(temp.path(), small()).unwrap_err().to_string();
    assert!(error.contains("another process has it open"), "{error}");
}
