//! The spool and its loader: killed, torn, flipped, out of room, without a store.
//!
//! Each test of a crash works on a real directory. What was acknowledged to a caller is noted apart, and
//! compared with what can be loaded afterwards.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod damage;
mod disk;
mod fake;
mod kill;
mod loading;
mod model;
mod old;
mod sinks;

use std::path::Path;
use std::time::Duration;

use endstop::Record;
use endstop_store::Entry;
use endstop_store::spool::{Options, Recovery, Spool, Tap};
use tempfile::TempDir;

/// Small segments, so that every test rotates; nothing is synced behind a test's back.
fn small() -> Options {
    Options {
        bytes: 64 << 20,
        segment_bytes: 4 << 10,
        sync_every: Duration::from_secs(3600),
        ..Options::default()
    }
}

/// A directory in memory where there is one, as nothing here depends on the disk but its speed.
fn tempdir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn open(dir: &Path) -> (Spool, Recovery) {
    Spool::open(dir, small()).unwrap()
}

fn asked(id: &str) -> Record {
    // Long enough for a few of them to fill a segment.
    let path = "p".repeat(700);
    Record { id: id.to_owned(), turn_id: id.to_owned(), attempt: 1, path, ..Record::default() }
}

fn ended(id: &str) -> Record {
    let bytes = id.bytes().map(u64::from).sum();
    Record { closed: "proven".into(), reason: "complete".into(), bytes, ..asked(id) }
}

/// Reads all that is not loaded, and acknowledges it.
fn drain(spool: &Spool) -> Vec<Entry> {
    let all = drain_tap(&spool.store());
    assert_eq!(spool.status().entries, 0);
    all
}

/// Reads all that a sink has not taken, and acknowledges it.
fn drain_tap(tap: &Tap) -> Vec<Entry> {
    let mut all = Vec::new();
    while let Some(batch) = tap.next(7) {
        all.extend(batch.entries);
        tap.ack(batch.upto);
    }
    all
}

/// Reads all of it, acknowledging nothing.
fn peek(spool: &Spool) -> Vec<Entry> {
    spool.store().next(usize::MAX).map(|batch| batch.entries).unwrap_or_default()
}

/// Id, sequence and how it closed: what entries are compared by.
fn said(entries: &[Entry]) -> Vec<(String, u32, String)> {
    let said =
        |entry: &Entry| (entry.record.id.clone(), entry.sequence, entry.record.closed.to_string());
    entries.iter().map(said).collect()
}

fn copy(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(file.file_name());
        if file.path().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&file.path(), &target);
        } else {
            std::fs::copy(file.path(), target).unwrap();
        }
    }
}

/// The files of the segments, in order.
fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().flatten().map(|file| file.path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == "spool")).collect();
    files.sort();
    files
}
