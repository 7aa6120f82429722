//! Recovery at start-up: all segments are read, damage is set aside, open responses are closed.

use std::io;
use std::sync::Arc;

use crate::error::Error;
use crate::spool::entry::{self, Kind, Scan};
use crate::spool::files::{Dir, Mark};
use crate::spool::writer::{Place, Writer};
use crate::spool::{Named, Position, Recovery, Start};

/// Reads all that is there. Damage never stops it.
pub(super) fn recover(writer: &mut Writer, sinks: &[Named]) -> Result<Recovery, Error> {
    let dir = Arc::clone(&writer.dir);
    let said =
        |source| Error::Io { what: format!("cannot read `{}`", dir.path().display()), source };
    let mark = dir.read_mark(0);
    let mut recovery = Recovery::default();
    let numbers = present(&dir, mark, &mut recovery).map_err(said)?;
    let last = numbers.last().copied().unwrap_or(0);
    let known = mark.map_or(0, |mark| mark.segment);
    writer.next = last.max(known) + 1;
    let marks: Vec<Option<Mark>> =
        (0..writer.acked.len()).map(|sink| dir.read_mark(sink)).collect();
    let from: Vec<(u64, u64)> =
        marks.iter().map(|mark| mark.map_or((0, 0), |mark| (mark.segment, mark.offset))).collect();
    for number in numbers {
        read_segment(writer, number, number == last, &from, &mut recovery);
    }
    writer.recount();
    for (sink, from) in from.into_iter().enumerate() {
        let acked = clamp(writer, writer.acked(sink).count, from);
        if (acked.segment, acked.offset) < from {
            // The mark speaks of bytes that are gone. Should it outlive this process, it must not be true
            // of others that came in their place.
            writer.retire();
        }
        writer.acked.get_mut(sink).into_iter().for_each(|it| *it = acked);
    }
    // A sink without a mark is new. The store takes all that is there.
    let end = clamp(writer, writer.appended, (u64::MAX, 0));
    let new = marks.iter().zip(&mut writer.acked).skip(1).zip(sinks);
    for ((mark, acked), sink) in new {
        if mark.is_none() && sink.from == Start::Now {
            *acked = end;
        }
    }
    let least = writer.acked.iter().map(|acked| acked.count).min().unwrap_or(0);
    writer.appended -= least;
    writer.acked.iter_mut().for_each(|acked| acked.count -= least);
    close_orphans(writer, &mut recovery);
    Ok(recovery)
}

/// The segments that are there; those that were loaded and not yet deleted are deleted.
fn present(dir: &Dir, mark: Option<Mark>, recovery: &mut Recovery) -> io::Result<Vec<u64>> {
    let mut numbers = dir.segments()?;
    let Some(mark) = mark else {
        recovery.missing = numbers.windows(2).map(gap).sum();
        return Ok(numbers);
    };
    for number in numbers.extract_if(.., |number| *number < mark.first) {
        // One that stays is read by nobody and tried again at the next start.
        let _ = dir.delete(number);
    }
    let last = numbers.last().copied().unwrap_or(0);
    let should = if mark.offset > 0 { last.max(mark.segment) } else { last };
    if should >= mark.first {
        recovery.missing = (should - mark.first + 1).saturating_sub(numbers.len() as u64);
    }
    Ok(numbers)
}

fn gap(pair: &[u64]) -> u64 {
    match pair {
        [one, other] => other.saturating_sub(*one).saturating_sub(1),
        _ => 0,
    }
}

fn read_segment(
    writer: &mut Writer,
    number: u64,
    last: bool,
    from: &[(u64, u64)],
    recovery: &mut Recovery,
) {
    let dir = Arc::clone(&writer.dir);
    let bytes = match dir.read(number, 0, u64::MAX) {
        Ok(bytes) => bytes,
        Err(error) => {
            writer.unreadable = Some(error.to_string());
            recovery.quarantined += 1;
            // One that cannot be moved is tried again at the next start.
            let _ = dir.set_aside(number);
            return;
        }
    };
    writer.segments.entry(number).or_default().bytes = bytes.len() as u64;
    let mut whole = bytes.len();
    for (at, raw) in Scan::new(&bytes) {
        let offset = at.start as u64;
        if let Some(raw) = raw {
            writer.note(
                raw.kind,
                raw.id,
                Place { segment: number, offset, length: at.len() as u64 },
            );
            // A sink has what stands before its mark.
            for (from, acked) in from.iter().zip(&mut writer.acked) {
                acked.count += u64::from((number, offset) < *from && raw.kind != Kind::Start);
            }
            continue;
        }
        let torn = last && at.end == bytes.len();
        let damaged = bytes.get(at.clone()).unwrap_or_default();
        match dir.quarantine(number, offset, damaged) {
            Ok(false) => {}
            Ok(true) if torn => recovery.torn += 1,
            Ok(true) => recovery.quarantined += 1,
            Err(error) => {
                writer.unreadable = Some(error.to_string());
                recovery.quarantined += 1;
                continue;
            }
        }
        if torn {
            whole = at.start;
        }
    }
    if last {
        reuse(writer, number, whole, bytes.len());
    }
}

/// Goes on writing where the last whole entry ends.
fn reuse(writer: &mut Writer, number: u64, whole: usize, length: usize) {
    let Ok(file) = writer.dir.reopen(number) else { return };
    if whole < length && file.set_len(whole as u64).is_err() {
        return;
    }
    writer.segments.entry(number).or_default().bytes = whole as u64;
    writer.active = Some((number, Arc::new(file)));
}

/// Returns the position to load from: the mark, unless its segment is gone.
fn clamp(writer: &Writer, count: u64, (segment, offset): (u64, u64)) -> Position {
    if let Some(known) = writer.segments.get(&segment) {
        return Position { segment, offset: offset.min(known.bytes), count };
    }
    let next = writer.segments.range(segment..).next().map(|(number, _)| *number);
    if let Some(segment) = next {
        return Position { segment, offset: 0, count };
    }
    let last = writer.segments.last_key_value();
    last.map_or(Position { segment: writer.next, offset: 0, count }, |(number, known)| Position {
        segment: *number,
        offset: known.bytes,
        count,
    })
}

/// Nobody saw the end of these: an end that says so is written for each. One that is written is no
/// orphan at the next start, so that it does not matter where this is interrupted.
fn close_orphans(writer: &mut Writer, recovery: &mut Recovery) {
    let mut orphans: Vec<(Place, String)> =
        writer.open.iter().filter_map(|(id, place)| Some(((*place)?, id.clone()))).collect();
    orphans.sort_unstable();
    let mut buffer = Vec::new();
    for (place, id) in orphans {
        let bytes = writer.dir.read(place.segment, place.offset, place.length).unwrap_or_default();
        let Some(mut record) = entry::read(&bytes).and_then(|(raw, _)| raw.record()) else {
            // It stays where it is should the copy fail.
            let _ = writer.dir.quarantine(place.segment, place.offset, &bytes);
            recovery.quarantined += 1;
            writer.open.remove(&id);
            continue;
        };
        record.interrupt();
        if entry::encode(&mut buffer, Kind::End, 1, &record).is_some() {
            writer.put(Kind::End, &id, &buffer);
            recovery.orphans += 1;
        }
    }
}
