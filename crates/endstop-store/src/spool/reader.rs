//! The end that is read: batches of what is not loaded yet.

use std::io;

use crate::sink::Entry;
use crate::spool::entry::{Kind, Scan};
use crate::spool::files::Dir;
use crate::spool::{Batch, Position};

/// The most bytes of entries in one batch, but for its last entry.
const MOST: usize = 4 << 20;

/// End of what can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The end of the segment.
    pub(super) end: u64,
    /// The segment after it; none where more may be written to this one.
    pub(super) next: Option<u64>,
    /// Ends and amends that were written by then.
    pub(super) appended: u64,
}

/// Result of a look at the spool.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) batch: Option<Batch>,
    /// Stretches that were damaged since they were written.
    pub(super) damaged: u64,
    pub(super) error: Option<io::Error>,
}

#[derive(Debug)]
pub(super) struct Reader {
    /// All before this is loaded, or need not be.
    pub(super) acked: Position,
    /// Part of a segment, read once for several batches.
    window: Window,
}

impl From<Position> for Reader {
    fn from(acked: Position) -> Self {
        Self { acked, window: Window::default() }
    }
}

#[derive(Debug, Default)]
struct Window {
    segment: u64,
    from: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn at(&mut self, dir: &Dir, at: Position, end: u64) -> io::Result<&[u8]> {
        let until = self.from + self.bytes.len() as u64;
        let inside = self.segment == at.segment && (self.from..until).contains(&at.offset);
        if !inside && at.offset < end {
            self.bytes = dir.read(at.segment, at.offset, end - at.offset)?;
            (self.segment, self.from) = (at.segment, at.offset);
        } else if !inside {
            return Ok(&[]);
        }
        let skip = usize::try_from(at.offset - self.from).unwrap_or(usize::MAX);
        Ok(self.bytes.get(skip..).unwrap_or_default())
    }
}

impl Reader {
    /// The next entries to load. The same again, until they are acknowledged.
    pub(super) fn look(
        &mut self,
        dir: &Dir,
        most: usize,
        mut extent_of: impl FnMut(u64) -> Extent,
    ) -> Look {
        let mut look = Look::default();
        let mut entries = Vec::new();
        let mut size = 0;
        let mut at = self.acked;
        loop {
            let extent = extent_of(at.segment);
            let base = at;
            let bytes = match self.window.at(dir, at, extent.end) {
                Ok(bytes) => bytes,
                // A segment that was taken away is told at the next start.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    look.error = Some(error);
                    &[]
                }
                Err(error) => {
                    look.error = Some(error);
                    break;
                }
            };
            let mut full = false;
            for (range, raw) in Scan::new(bytes) {
                full = entries.len() >= most || size >= MOST;
                if full {
                    break;
                }
                size += range.len();
                let offset = base.offset + range.start as u64;
                at.offset = base.offset + range.end as u64;
                let wanted = raw.filter(|raw| raw.kind != Kind::Start);
                let entry = wanted
                    .and_then(|raw| Some(Entry { sequence: raw.sequence, record: raw.record()? }));
                at.count += u64::from(wanted.is_some());
                if entry.is_none() && (raw.is_none() || wanted.is_some()) {
                    let damaged = bytes.get(range).unwrap_or_default();
                    let new = dir.quarantine(at.segment, offset, damaged);
                    look.damaged += u64::from(new.unwrap_or(true));
                }
                entries.extend(entry);
                if entries.is_empty() {
                    self.acked = at;
                    size = 0;
                }
            }
            // More was written to the segment since it was read.
            let more = !bytes.is_empty() && at.offset < extent.end;
            match extent.next {
                _ if full => break,
                _ if more => {}
                Some(segment) => at = Position { segment, offset: 0, count: at.count },
                None if entries.is_empty() => {
                    self.acked = Position { count: extent.appended, ..at };
                    break;
                }
                None => break,
            }
        }
        if !entries.is_empty() {
            look.batch = Some(Batch { entries, upto: at });
        }
        look
    }
}
