//! The end that is written: the segment in use, what waits for the disk, which starts are open.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::spool::entry::Kind;
use crate::spool::files::Dir;
use crate::spool::{Position, Shown};

/// Memory of an entry beyond its bytes.
const OVERHEAD: u64 = 128;

/// Place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// State of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    /// Its whole entries.
    pub(super) bytes: u64,
    /// The starts among them that have no end.
    pub(super) open: u64,
}

/// An entry that the disk would not take.
#[derive(Debug)]
struct Held {
    kind: Kind,
    id: String,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) dir: Arc<Dir>,
    pub(super) segment_bytes: u64,
    pub(super) memory_bytes: u64,
    /// The segment in use; none until there is something to write.
    pub(super) active: Option<(u64, Arc<File>)>,
    pub(super) segments: BTreeMap<u64, Segment>,
    /// The number of the next segment.
    pub(super) next: u64,
    /// Starts without an end, and where they stand; none where they are held.
    pub(super) open: HashMap<String, Option<Place>>,
    held: VecDeque<Held>,
    held_bytes: u64,
    /// Bytes of all segments.
    segments_bytes: u64,
    /// Segments that were filled since the last sync.
    filled: Vec<Arc<File>>,
    /// Something was written since the last sync.
    dirty: bool,
    /// A file was made since.
    made: bool,
    /// Ends and amends that were written.
    pub(super) appended: u64,
    /// Progress of each sink, the store first.
    pub(super) acked: Vec<Position>,
    pub(super) sync_failed: bool,
    pub(super) error: Option<String>,
    /// Error of the last read by a loader.
    pub(super) unreadable: Option<String>,
    /// Error of the last write of a mark.
    pub(super) unmarked: Option<String>,
    /// Error of the last deletion.
    pub(super) undeleted: Option<String>,
    pub(super) episodes: u64,
    pub(super) lost: u64,
    pub(super) shown: Arc<Shown>,
}

impl Writer {
    /// `sinks` counts those that read, the store included.
    pub(super) fn new(
        dir: Arc<Dir>,
        shown: Arc<Shown>,
        segment_bytes: u64,
        memory: u64,
        sinks: usize,
    ) -> Self {
        Self {
            dir,
            segment_bytes,
            memory_bytes: memory,
            active: None,
            segments: BTreeMap::new(),
            next: 1,
            open: HashMap::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            segments_bytes: 0,
            filled: Vec::new(),
            dirty: false,
            made: false,
            appended: 0,
            acked: vec![Position::default(); sinks],
            sync_failed: false,
            error: None,
            unreadable: None,
            unmarked: None,
            undeleted: None,
            episodes: 0,
            lost: 0,
            shown,
        }
    }

    /// Takes an entry: to the disk, else into memory, behind those that wait there.
    pub(super) fn put(&mut self, kind: Kind, id: &str, bytes: &[u8]) {
        if self.held.is_empty() {
            match self.write(kind, id, bytes) {
                Ok(()) => return,
                Err(error) => self.fail("written", &error),
            }
        }
        self.hold(kind, id, bytes);
    }

    fn hold(&mut self, kind: Kind, id: &str, bytes: &[u8]) {
        let size = bytes.len() as u64 + OVERHEAD;
        if self.held_bytes + size > self.memory_bytes {
            self.lose();
            return;
        }
        if kind == Kind::Start {
            self.open.insert(id.to_owned(), None);
        }
        self.held_bytes += size;
        self.held.push_back(Held { kind, id: id.to_owned(), bytes: bytes.to_owned() });
        self.count();
    }

    pub(super) fn lose(&mut self) {
        self.lost += 1;
    }

    /// Tries what waits again, at most so many. Says whether some still waits for its turn.
    pub(super) fn write_held(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(held) = self.held.pop_front() else { break };
            if let Err(error) = self.write(held.kind, &held.id, &held.bytes) {
                self.fail("written", &error);
                self.held.push_front(held);
                return false;
            }
            self.held_bytes -= held.bytes.len() as u64 + OVERHEAD;
        }
        self.count();
        self.settle();
        !self.held.is_empty()
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Writes an entry whole or not at all.
    pub(super) fn write(&mut self, kind: Kind, id: &str, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let (number, file) = self.room_for(length)?;
        let segment = self.segments.entry(number).or_default();
        let offset = segment.bytes;
        if let Err(error) = (&*file).write_all(bytes) {
            // What was written of it must not stand before the next.
            let stuck = file.set_len(offset).is_err();
            if stuck || (error.kind() == ErrorKind::FileTooLarge && offset > 0) {
                self.retire();
            }
            return Err(error);
        }
        segment.bytes += length;
        self.segments_bytes += length;
        self.dirty = true;
        self.note(kind, id, Place { segment: number, offset, length });
        self.count();
        Ok(())
    }

    fn room_for(&mut self, length: u64) -> io::Result<(u64, Arc<File>)> {
        if let Some((number, file)) = &self.active {
            let filled = self.segments.get(number).map_or(0, |segment| segment.bytes);
            if filled == 0 || filled + length <= self.segment_bytes {
                return Ok((*number, Arc::clone(file)));
            }
        }
        self.rotate()
    }

    pub(super) fn rotate(&mut self) -> io::Result<(u64, Arc<File>)> {
        let file = Arc::new(self.dir.create(self.next)?);
        let number = self.next;
        self.next += 1;
        self.retire();
        self.segments.insert(number, Segment::default());
        self.active = Some((number, Arc::clone(&file)));
        self.made = true;
        Ok((number, file))
    }

    /// Takes the segment in use out of use.
    pub(super) fn retire(&mut self) {
        self.filled.extend(self.active.take().map(|(_, file)| file));
    }

    /// Remembers which responses have no end, when an entry was written or found.
    pub(super) fn note(&mut self, kind: Kind, id: &str, place: Place) {
        let before = match kind {
            Kind::Start => {
                self.of(place).open += place.length;
                self.open.insert(id.to_owned(), Some(place))
            }
            Kind::End => {
                self.appended += 1;
                self.open.remove(id)
            }
            Kind::Amend => {
                self.appended += 1;
                None
            }
        };
        if let Some(before) = before.flatten() {
            self.of(before).open -= before.length;
        }
    }

    fn of(&mut self, place: Place) -> &mut Segment {
        self.segments.entry(place.segment).or_default()
    }

    /// Returns the files to sync, and whether the directory must be synced too.
    pub(super) fn unsynced(&mut self) -> (Vec<Arc<File>>, bool) {
        let mut files = std::mem::take(&mut self.filled);
        if std::mem::take(&mut self.dirty) || self.sync_failed {
            files.extend(self.active.as_ref().map(|(_, file)| Arc::clone(file)));
        }
        (files, std::mem::take(&mut self.made))
    }

    /// Notes how a sync went. After a failure the system may have dropped what was to be synced, and
    /// would not say so again: a new file shows whether the disk is well.
    pub(super) fn synced(&mut self, result: io::Result<()>) -> bool {
        self.sync_failed = result.is_err();
        match result {
            Ok(()) => self.settle(),
            Err(error) => {
                self.fail("synced", &error);
                self.made = true;
                let filled = self.active.as_ref().and_then(|(number, _)| self.segments.get(number));
                if filled.is_some_and(|segment| segment.bytes > 0) {
                    self.retire();
                    self.filled.pop();
                }
            }
        }
        !self.sync_failed
    }

    /// Says an error, once until all is well again.
    pub(super) fn fail(&mut self, what: &str, error: &io::Error) {
        self.shown.failing.store(true, Ordering::Release);
        if self.error.is_none() {
            self.episodes += 1;
            let path = self.dir.path().display();
            self.error = Some(format!("the spool in `{path}` cannot be {what}: {error}"));
        }
    }

    /// Ends the episode where nothing is wrong any more.
    pub(super) fn settle(&mut self) {
        if self.held.is_empty() && !self.sync_failed && self.error.take().is_some() {
            self.shown.failing.store(false, Ordering::Release);
        }
    }

    /// The oldest segments that all is loaded of, as many as are worth it: what must be written again
    /// is at most what is freed, so that many open responses do not keep the disk busy.
    pub(super) fn spent(&self, acked: u64) -> Vec<u64> {
        let failing = self.error.is_some();
        let active = self.active.as_ref().map_or(self.next, |(number, _)| *number);
        let (mut bytes, mut open, mut worth) = (0, 0, 0);
        let spent = self.segments.range(..acked.min(active));
        for (index, (_, segment)) in spent.clone().enumerate() {
            bytes += segment.bytes;
            open += segment.open;
            if open == 0 || (!failing && open * 2 <= bytes) {
                worth = index + 1;
            }
        }
        spent.take(worth).map(|(number, _)| *number).collect()
    }

    pub(super) fn forget(&mut self, number: u64) {
        let gone = self.segments.remove(&number);
        self.segments_bytes -= gone.map_or(0, |segment| segment.bytes);
        self.count();
    }

    /// Returns how far a sink is.
    pub(super) fn acked(&self, sink: usize) -> Position {
        self.acked.get(sink).copied().unwrap_or_default()
    }

    /// Returns the bytes that a sink has not taken.
    pub(super) fn lag(&self, sink: usize) -> u64 {
        let acked = self.acked(sink);
        let after: u64 = self.segments.range(acked.segment..).map(|(_, one)| one.bytes).sum();
        after.saturating_sub(acked.offset)
    }

    /// Adds up the segments that were found.
    pub(super) fn recount(&mut self) {
        self.segments_bytes = self.segments.values().map(|segment| segment.bytes).sum();
        self.count();
    }

    fn count(&self) {
        self.shown.bytes.store(self.segments_bytes + self.held_bytes, Ordering::Release);
    }
}
