//! The spool: a local file that makes an ending durable before the client sees it.
//!
//! ```text
//!            one write(2) each             read in batches            deleted once all
//! start ──┐                            ┌─> loader ─> Store::load    before the mark
//! end   ──┼─> segment n, n+1, n+2, … ──┘                │             is loaded
//! amend ──┘     │        │       └ in use               └─> ack: the mark moves
//!               │        └ full: synced, read only
//!               └ all loaded: starts that are still open are written again, then it is deleted
//!
//! at start-up   every segment is read; a start without an end gets one that says `interrupted`;
//!               damaged stretches are copied to quarantine/, a torn tail is cut off
//! disk refuses  entries wait in memory, in order, and `admits` refuses; over the bound they are lost
//!               and counted
//! ```
//!
//! Entries that were written survive the death of the process; those that were synced, which happens in
//! groups, also that of the machine. The same entry may be read twice, never none: a store knows it by its id and
//! its sequence. No wall clock is used.
//!
//! ```
//! use endstop::Record;
//! use endstop_store::spool::{Options, Spool};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let (spool, recovery) = Spool::open(dir.path(), Options::default()).unwrap();
//! assert_eq!(recovery.orphans, 0);
//! let record = Record { id: "0192".into(), ..Record::default() };
//! let mut ticket = spool.start(&record);
//! spool.end(&mut ticket, &record);
//! let tap = spool.store();
//! let batch = tap.next(1000).unwrap();
//! assert_eq!((batch.entries.len(), batch.entries[0].sequence), (1, 1));
//! tap.ack(batch.upto);
//! assert!(tap.next(1000).is_none());
//! ```

mod entry;
pub(crate) mod files;
mod reader;
mod recover;
mod writer;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use endstop::Record;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::refused::Line;
use crate::sink::Entry;
use entry::Kind;
use files::{Dir, Mark};
use reader::{Extent, Reader};
use writer::{Place, Writer};

/// Held entries that are written before others get their turn.
const TURN: usize = 64;

thread_local! {
    /// Buffer in which an entry is encoded, outside of the lock.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Treatment of new requests while nothing can be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// They are refused.
    #[default]
    Refuse,
    /// They are passed on unrecorded, and counted.
    Forward,
}

/// Options of a spool.
#[derive(Clone, Debug)]
pub struct Options {
    /// No new work is taken over this many bytes.
    pub bytes: u64,
    /// Nor over this share of the disk, in percent.
    pub disk_percent: u64,
    /// A segment is full at this size; at most a quarter of the bound.
    pub segment_bytes: u64,
    /// Time between two syncs.
    pub sync_every: Duration,
    /// Treatment of new work then.
    pub when_full: WhenFull,
    /// Entries that the disk does not take wait in this much memory, at least 2 MiB.
    pub memory_bytes: u64,
    /// Sinks that read beside the store.
    pub sinks: Vec<Named>,
}

/// A sink that reads beside the store, by a name of letters, digits and hyphens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name, by which its mark is found again.
    pub name: String,
    /// Start of a new one.
    pub from: Start,
}

/// Start of a new sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// With what is recorded from now on.
    #[default]
    Now,
    /// With all that is still in the spool.
    Oldest,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            disk_percent: 10,
            segment_bytes: 8 << 20,
            sync_every: Duration::from_millis(100),
            when_full: WhenFull::Refuse,
            memory_bytes: 16 << 20,
            sinks: Vec::new(),
        }
    }
}

/// Reason why no new work may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too much waits for the store.
    #[error("the spool is full: too much waits for the store to take it")]
    Full,
    /// The disk does not take what is written.
    #[error("the spool cannot be written")]
    Failing,
}

/// Findings at start-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// Responses that nobody saw the end of, closed as interrupted.
    pub orphans: u64,
    /// Damaged stretches, copied to `quarantine/`.
    pub quarantined: u64,
    /// Torn tails, likewise: an entry that was being written when the process ended.
    pub torn: u64,
    /// Segments that should be there and are not.
    pub missing: u64,
}

/// State of a spool's directory before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It would be made.
    Missing,
    /// It can be opened.
    Free,
    /// Another process has it open.
    InUse,
}

/// A spool, as it looks from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Files that entries are written to.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes that each sink has not taken, by its name; the store is called `store`.
    pub waiting: Vec<(String, u64)>,
    /// Bytes in quarantine, without refused entries.
    pub damaged: u64,
}

/// State of a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Bytes in it, in memory too.
    pub bytes: u64,
    /// Ends and amends that are not loaded.
    pub entries: u64,
    /// Bytes that are not loaded.
    pub lag_bytes: u64,
    /// Starts without an end.
    pub open: u64,
    /// Entries in memory, since the disk does not take them.
    pub held: u64,
    /// Entries that neither disk nor memory took, since the start of the process.
    pub lost: u64,
    /// Responses that were let through unrecorded, likewise.
    pub unrecorded: u64,
    /// Damaged stretches and entries that the store refused for good, likewise.
    pub quarantined: u64,
    /// Entries that the store refused and that are kept, those of earlier processes too.
    pub refused: u64,
    /// Present error.
    pub error: Option<String>,
    /// Number of times that something began to fail.
    pub episodes: u64,
}

/// A response that was noted: hand it back with what becomes of it.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    /// None where it goes unrecorded.
    sequence: Option<u32>,
}

impl Ticket {
    /// Whether what becomes of it will be kept.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.sequence.is_some()
    }
}

/// A place in the spool; all before it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    segment: u64,
    offset: u64,
    /// Entries before it, since the spool was opened.
    count: u64,
}

/// Entries to load, in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Ends and amends.
    pub entries: Vec<Entry>,
    /// To acknowledge when all of them are loaded.
    pub upto: Position,
}

/// Values that are read without the lock.
#[derive(Debug, Default)]
struct Shown {
    bytes: AtomicU64,
    failing: AtomicBool,
    unrecorded: AtomicU64,
    quarantined: AtomicU64,
    refused: AtomicU64,
}

/// A spool in a directory. Shared by all who write. The store and each other sink read it with marks of their
/// own.
#[derive(Debug)]
pub struct Spool {
    inner: Arc<Inner>,
    syncer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    dir: Arc<Dir>,
    bound: u64,
    when_full: WhenFull,
    shown: Arc<Shown>,
    writer: Mutex<Writer>,
    /// The names of the sinks beside the store.
    names: Vec<String>,
    /// One of each sink, the store first.
    readers: Vec<Mutex<Reader>>,
    /// Entries that each sink was too slow for.
    dropped: Vec<AtomicU64>,
    /// Segments are deleted by one at a time.
    cleaning: Mutex<()>,
    /// One sync at a time; how a file is synced.
    sync: Mutex<fn(&File) -> io::Result<()>>,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// A thread that panicked while it held a lock left nothing half done that matters here.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spool {
    /// Opens the spool in this directory, makes it where there is none, and brings what an earlier
    /// process left behind into order.
    ///
    /// # Errors
    /// The directory cannot be made, read or written, or another process has it open. Damage is no
    /// error; it is told in [`Recovery`].
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Recovery), Error> {
        let names: Vec<String> = options.sinks.iter().map(|sink| sink.name.clone()).collect();
        names.iter().try_for_each(|name| check_name(name))?;
        let dir = Arc::new(Dir::open(dir, &names)?);
        let share = dir.disk().map(|disk| disk / 100 * options.disk_percent.min(100));
        let bound = options.bytes.min(share.unwrap_or(u64::MAX));
        let segment_bytes = options.segment_bytes.min(bound / 4).clamp(4 << 10, 64 << 20);
        let shown = Arc::new(Shown::default());
        let memory = options.memory_bytes.max(2 << 20);
        let count = 1 + names.len();
        let mut writer =
            Writer::new(Arc::clone(&dir), Arc::clone(&shown), segment_bytes, memory, count);
        let recovery = recover::recover(&mut writer, &options.sinks)?;
        shown.quarantined.store(recovery.quarantined + recovery.torn, Ordering::Relaxed);
        let refused = crate::refused::refused(dir.path())?.values().sum();
        shown.refused.store(refused, Ordering::Relaxed);
        let readers = writer.acked.iter().map(|acked| Mutex::new(Reader::from(*acked))).collect();
        let inner = Arc::new(Inner {
            dir,
            bound,
            when_full: options.when_full,
            shown,
            writer: Mutex::new(writer),
            names,
            readers,
            dropped: (0..count).map(|_| AtomicU64::new(0)).collect(),
            cleaning: Mutex::new(()),
            sync: Mutex::new(File::sync_data),
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        });
        // What the mark said of bytes that are gone must not be said of those that come in their place.
        (0..count).for_each(|sink| inner.mark(sink));
        inner.sync();
        let syncing = Arc::clone(&inner);
        let syncer = std::thread::Builder::new()
            .name("spool-sync".into())
            .spawn(move || syncing.keep_synced(options.sync_every))
            .map_err(|source| Error::Io {
                what: "cannot start the spool's thread".into(),
                source,
            })?;
        Ok((Self { inner, syncer: Some(syncer) }, recovery))
    }

    /// Checks the directory of a spool. If it is missing, an entry is created beside it for a moment; nothing
    /// is left behind.
    ///
    /// # Errors
    /// The directory, or the one that it would be made in, cannot be written.
    pub fn check(dir: &Path) -> Result<State, Error> {
        files::check(dir)
    }

    /// Looks at the directory of a spool from outside, also while a gateway has it open.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn inspect(dir: &Path) -> Result<Inspection, Error> {
        files::inspect(dir).map_err(|source| {
            let what = format!("cannot read the spool in `{}`", dir.display());
            Error::Io { what, source }
        })
    }

    /// Whether new work may be taken.
    ///
    /// # Errors
    /// It may not, and why.
    pub fn admits(&self) -> Result<(), Refusal> {
        match self.inner.when_full {
            WhenFull::Refuse => self.inner.has_room(),
            WhenFull::Forward => Ok(()),
        }
    }

    /// Whether there is room for more, whatever is done with new work when there is none.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn has_room(&self) -> Result<(), Refusal> {
        self.inner.has_room()
    }

    /// Notes a response that begins. Should nothing follow, it is closed as interrupted at the next
    /// start.
    pub fn start(&self, record: &Record) -> Ticket {
        if self.inner.when_full == WhenFull::Forward && self.inner.has_room().is_err() {
            self.inner.shown.unrecorded.fetch_add(1, Ordering::Relaxed);
            return Ticket { sequence: None };
        }
        self.inner.append(Kind::Start, 0, record);
        Ticket { sequence: Some(0) }
    }

    /// Notes how a response ended. It is written when this returns, or held, or counted as lost.
    pub fn end(&self, ticket: &mut Ticket, record: &Record) {
        self.amend(ticket, record);
    }

    /// Notes what became known after the end. The first of either is the end.
    pub fn amend(&self, ticket: &mut Ticket, record: &Record) {
        let Some(sequence) = &mut ticket.sequence else { return };
        *sequence += 1;
        let kind = if *sequence == 1 { Kind::End } else { Kind::Amend };
        self.inner.append(kind, *sequence, record);
    }

    /// Returns what the store reads.
    #[must_use]
    pub fn store(&self) -> Tap {
        Tap { inner: Arc::clone(&self.inner), sink: 0 }
    }

    /// Returns what a sink beside the store reads; none if [`Options::sinks`] does not name it.
    #[must_use]
    pub fn sink(&self, name: &str) -> Option<Tap> {
        let at = self.inner.names.iter().position(|known| known == name)?;
        Some(Tap { inner: Arc::clone(&self.inner), sink: 1 + at })
    }

    /// Returns its state.
    #[must_use]
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// Makes all that was written durable, now. What goes wrong is told in [`Status::error`].
    pub fn sync(&self) {
        self.inner.sync();
    }
}

/// The end of a spool that one sink reads.
#[derive(Debug)]
pub struct Tap {
    inner: Arc<Inner>,
    sink: usize,
}

/// Progress of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lag {
    /// Ends and amends that it has not taken.
    pub entries: u64,
    /// Bytes that it has not taken, with those that are not for it.
    pub bytes: u64,
    /// Entries that it was too slow for, since the start of the process.
    pub dropped: u64,
}

impl Tap {
    /// Returns the next entries, at most so many. The same come again until they are acknowledged.
    #[must_use]
    pub fn next(&self, most: usize) -> Option<Batch> {
        self.inner.next(self.sink, most)
    }

    /// Remembers that the sink has all before this place, and deletes what nobody needs any more.
    pub fn ack(&self, upto: Position) {
        self.inner.ack(self.sink, upto);
    }

    /// Keeps an entry that the store will never take in `quarantine/refused.jsonl`.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn refuse(&self, entry: &Entry, why: &str) -> Result<(), Error> {
        self.inner.refuse(self.sink, entry, why)
    }

    /// Returns how far the sink is.
    #[must_use]
    pub fn lag(&self) -> Lag {
        let writer = locked(&self.inner.writer);
        let dropped = self.inner.dropped.get(self.sink);
        Lag {
            entries: writer.appended.saturating_sub(writer.acked(self.sink).count)
                + writer.held() as u64,
            bytes: writer.lag(self.sink),
            dropped: dropped.map_or(0, |dropped| dropped.load(Ordering::Relaxed)),
        }
    }
}

/// Checks the name of a sink.
///
/// # Errors
/// It is empty, too long, `store`, or has other characters than letters, digits and hyphens.
pub fn check_name(name: &str) -> Result<(), Error> {
    let known = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(known) && name != crate::STORE {
        return Ok(());
    }
    Err(Error::Query(format!(
        "invalid name of a sink `{name}`: expected letters, digits and hyphens, and not `store`"
    )))
}

impl Drop for Spool {
    fn drop(&mut self) {
        *locked(&self.inner.stopped) = true;
        self.inner.stop.notify_all();
        if let Some(syncer) = self.syncer.take() {
            // It ends by itself; a panic of its own was told there.
            let _ = syncer.join();
        }
    }
}

impl Inner {
    fn has_room(&self) -> Result<(), Refusal> {
        if self.shown.failing.load(Ordering::Acquire) {
            return Err(Refusal::Failing);
        }
        if self.shown.bytes.load(Ordering::Acquire) >= self.bound {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    fn append(&self, kind: Kind, sequence: u32, record: &Record) {
        BUFFER.with_borrow_mut(|buffer| {
            let encoded = entry::encode(buffer, kind, sequence, record);
            let mut writer = locked(&self.writer);
            match encoded {
                Some(()) => writer.put(kind, &record.id, buffer),
                None => writer.lose(),
            }
        });
    }

    fn next(&self, sink: usize, most: usize) -> Option<Batch> {
        let mut reader = locked(self.readers.get(sink)?);
        let look = reader.look(&self.dir, most.max(1), |segment| self.extent(segment));
        let mut writer = locked(&self.writer);
        writer.acked.get_mut(sink).into_iter().for_each(|acked| *acked = reader.acked);
        self.shown.quarantined.fetch_add(look.damaged, Ordering::Relaxed);
        writer.unreadable = look.error.map(|error| error.to_string());
        look.batch
    }

    fn extent(&self, segment: u64) -> Extent {
        let writer = locked(&self.writer);
        let next = writer.segments.range(segment.saturating_add(1)..).next();
        Extent {
            end: writer.segments.get(&segment).map_or(0, |known| known.bytes),
            next: next.map(|(number, _)| *number),
            appended: writer.appended,
        }
    }

    fn ack(&self, sink: usize, upto: Position) {
        let Some(reader) = self.readers.get(sink) else { return };
        let mut reader = locked(reader);
        if upto <= reader.acked {
            return;
        }
        reader.acked = upto;
        locked(&self.writer).acked.get_mut(sink).into_iter().for_each(|acked| *acked = upto);
        drop(reader);
        self.let_go();
        let cleaned = self.clean();
        locked(&self.writer).undeleted = cleaned.err().map(|error| error.to_string());
        self.mark(sink);
    }

    /// Lets entries go that only slow sinks have not taken, where the spool fills up for them. The store is
    /// never let go.
    fn let_go(&self) {
        if self.shown.bytes.load(Ordering::Acquire) < self.bound / 2 {
            return;
        }
        let store = locked(&self.writer).acked(0);
        for sink in 1..self.readers.len() {
            let (Some(reader), Some(dropped)) = (self.readers.get(sink), self.dropped.get(sink))
            else {
                continue;
            };
            // One that is reading now is asked again after the next batch.
            let Ok(mut reader) = reader.try_lock() else { continue };
            if reader.acked < store {
                dropped.fetch_add(store.count - reader.acked.count, Ordering::Relaxed);
                reader.acked = store;
                let mut writer = locked(&self.writer);
                writer.acked.get_mut(sink).into_iter().for_each(|acked| *acked = store);
                drop(writer);
                self.mark(sink);
            }
        }
    }

    /// Writes the mark of a sink. Where that fails, what it has comes again after a restart.
    fn mark(&self, sink: usize) {
        let mut writer = locked(&self.writer);
        let Position { segment, offset, .. } = writer.acked(sink);
        let first = writer.segments.first_key_value().map_or(writer.next, |(first, _)| *first);
        let written = self.dir.write_mark(sink, Mark { first, segment, offset });
        writer.unmarked = written.err().map(|error| error.to_string());
    }

    /// Deletes the oldest segments that all is loaded of. Starts in them that have no end are written
    /// again first, and all is synced.
    fn clean(&self) -> io::Result<()> {
        // One at a time: sinks acknowledge on threads of their own.
        let _cleaning = locked(&self.cleaning);
        let (spent, carried) = self.spent();
        let Some(last) = spent.last() else { return Ok(()) };
        for (place, id) in &carried {
            self.carry(*place, id)?;
        }
        // Also of a response that is no longer open: its start must not go before its end is durable.
        if !self.sync() {
            return Err(io::Error::other("what follows cannot be synced"));
        }
        let Position { segment, offset, .. } = locked(&self.writer).acked(0);
        let marked = self.dir.write_mark(0, Mark { first: last + 1, segment, offset });
        // On a full disk this may fail, and what is deleted be missed at the next start. It is deleted
        // all the same, or the disk would stay full.
        let marked = marked.and_then(|()| self.dir.sync_marks());
        for number in spent {
            self.dir.delete(number)?;
            locked(&self.writer).forget(number);
        }
        marked
    }

    /// Segments to delete, and the starts in them that have no end.
    fn spent(&self) -> (Vec<u64>, Vec<(Place, String)>) {
        let writer = locked(&self.writer);
        let slowest = writer.acked.iter().map(|acked| acked.segment).min().unwrap_or(0);
        let spent = writer.spent(slowest);
        let last = spent.last().copied().unwrap_or(0);
        let places = writer.open.iter().filter_map(|(id, place)| Some(((*place)?, id)));
        let within = places.filter(|(place, _)| place.segment <= last);
        let mut carried: Vec<_> = within.map(|(place, id)| (place, id.clone())).collect();
        carried.sort_unstable();
        (spent, carried)
    }

    /// Writes a start that is still open to the segment in use.
    fn carry(&self, place: Place, id: &str) -> io::Result<()> {
        let bytes = self.dir.read(place.segment, place.offset, place.length)?;
        let mut writer = locked(&self.writer);
        if writer.open.get(id) != Some(&Some(place)) {
            return Ok(());
        }
        if entry::read(&bytes).is_some() {
            return writer.write(Kind::Start, id, &bytes);
        }
        self.dir.quarantine(place.segment, place.offset, &bytes)?;
        self.shown.quarantined.fetch_add(1, Ordering::Relaxed);
        writer.open.remove(id);
        Ok(())
    }

    fn refuse(&self, sink: usize, entry: &Entry, why: &str) -> Result<(), Error> {
        let name = sink.checked_sub(1).and_then(|at| self.names.get(at));
        let name = name.map_or(crate::STORE, String::as_str);
        let line = Line { sink: name.into(), why: why.into(), entry: Cow::Borrowed(entry) };
        line.text().and_then(|line| self.dir.refuse(&line)).map_err(|source| {
            let path = self.dir.path().display();
            Error::Io { what: format!("cannot write to quarantine in `{path}`"), source }
        })?;
        self.shown.quarantined.fetch_add(1, Ordering::Relaxed);
        self.shown.refused.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn status(&self) -> Status {
        let writer = locked(&self.writer);
        let error = writer.error.clone().or_else(|| {
            let why = [&writer.unreadable, &writer.unmarked, &writer.undeleted];
            let why = why.into_iter().flatten().next()?;
            Some(format!("the spool in `{}`: {why}", self.dir.path().display()))
        });
        Status {
            bytes: self.shown.bytes.load(Ordering::Acquire),
            entries: writer.appended.saturating_sub(writer.acked(0).count),
            lag_bytes: writer.lag(0),
            open: writer.open.len() as u64,
            held: writer.held() as u64,
            lost: writer.lost,
            unrecorded: self.shown.unrecorded.load(Ordering::Relaxed),
            quarantined: self.shown.quarantined.load(Ordering::Relaxed),
            refused: self.shown.refused.load(Ordering::Relaxed),
            error,
            episodes: writer.episodes,
        }
    }

    fn keep_synced(&self, every: Duration) {
        loop {
            let stopped = locked(&self.stopped);
            let waited = self.stop.wait_timeout_while(stopped, every, |stopped| !*stopped);
            let stopped = *waited.unwrap_or_else(PoisonError::into_inner).0;
            while locked(&self.writer).write_held(TURN) {}
            self.sync();
            if stopped {
                return;
            }
        }
    }

    /// Syncs what was written, without the lock that writers need. Says whether it is durable.
    fn sync(&self) -> bool {
        let sync = locked(&self.sync);
        let (files, made) = {
            let mut writer = locked(&self.writer);
            if writer.sync_failed && writer.active.is_none() && writer.rotate().is_err() {
                return false;
            }
            writer.unsynced()
        };
        if files.is_empty() && !made {
            return true;
        }
        let synced = files.iter().map(|file| sync(file)).fold(Ok(()), Result::and);
        let synced = synced.and_then(|()| if made { self.dir.sync() } else { Ok(()) });
        let mut writer = locked(&self.writer);
        writer.synced(synced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_fails_is_told_once_and_work_is_refused_until_a_new_file_can_be_synced() {
        let temp = tempfile::tempdir().unwrap();
        let options = Options { sync_every: Duration::from_secs(3600), ..Options::default() };
        let (spool, _) = Spool::open(temp.path(), options).unwrap();
        let record = Record { id: "1".into(), ..Record::default() };
        let mut ticket = spool.start(&record);
        spool.sync();
        assert_eq!(spool.admits(), Ok(()));
        spool.end(&mut ticket, &record);
        *locked(&spool.inner.sync) = |_| Err(io::Error::from_raw_os_error(5));
        spool.sync();
        spool.sync();
        assert_eq!(spool.admits(), Err(Refusal::Failing));
        let status = spool.status();
        assert!(status.error.unwrap().contains("cannot be synced"));
        assert_eq!((status.episodes, status.held, status.lost), (1, 0, 0));
        *locked(&spool.inner.sync) = File::sync_data;
        spool.sync();
        assert_eq!((spool.admits(), spool.status().error), (Ok(()), None));
        assert_eq!(spool.inner.dir.segments().unwrap(), [1, 2]);
        assert_eq!(spool.store().next(9).unwrap().entries.len(), 1);
    }
}
