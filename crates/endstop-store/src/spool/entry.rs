//! An entry as it stands in a segment, and how to find one among damaged bytes.
//!
//! ```text
//! marker   4   bytes that no UTF-8 text holds; the last is the version
//! length   4   of what follows the checksum, little-endian like all numbers here
//! checksum 4   CRC-32 over the length and all that follows
//! kind     1   start, end, amend
//! sequence 4
//! id       4 + its bytes
//! record       JSON, so that another version can read it
//! ```
//!
//! The marker cannot stand inside a record, so that behind a damaged stretch the next marker whose
//! checksum fits begins an entry.

mod compact;

use std::ops::Range;

use endstop::Record;
use serde_json::Value;

/// `0xF5` and `0xFF` occur in no UTF-8 text.
const MARKER: [u8; 4] = [0xF5, b'e', 0xFF, 1];
/// Marker, length, checksum.
const HEAD: usize = 12;
/// The longest that what follows the checksum may be.
const MOST: usize = 1 << 20;
/// Length to which each text is cut if a record would be longer than that.
const MOST_TEXT: usize = 256;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It was asked.
    Start,
    /// It ended.
    End,
    /// More is known of its end.
    Amend,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Start => 0,
            Self::End => 1,
            Self::Amend => 2,
        }
    }

    fn read(code: u8) -> Option<Self> {
        [Self::Start, Self::End, Self::Amend].into_iter().find(|kind| kind.code() == code)
    }
}

/// An entry whose checksum fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub(super) kind: Kind,
    pub(super) sequence: u32,
    pub(super) id: &'a str,
    json: &'a [u8],
}

impl Raw<'_> {
    /// Its record; none where what was written is no record, as a later version may do.
    pub(super) fn record(&self) -> Option<Record> {
        serde_json::from_slice(self.json).ok()
    }
}

/// Writes an entry over what the buffer held. `None` where there is no such entry.
pub(super) fn encode(
    buffer: &mut Vec<u8>,
    kind: Kind,
    sequence: u32,
    record: &Record,
) -> Option<()> {
    write(buffer, kind, sequence, &record.id, |buffer| {
        compact::write(buffer, record);
        Some(())
    })?;
    if buffer.len() <= HEAD + MOST {
        return Some(());
    }
    // Texts are capped where they are read, so that this is nobody's usual case.
    let mut value = serde_json::to_value(record).ok()?;
    shorten(&mut value);
    let id = value.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    write(buffer, kind, sequence, &id, |buffer| serde_json::to_writer(buffer, &value).ok())?;
    (buffer.len() <= HEAD + MOST).then_some(())
}

fn write(
    buffer: &mut Vec<u8>,
    kind: Kind,
    sequence: u32,
    id: &str,
    write_record: impl FnOnce(&mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    buffer.clear();
    buffer.extend_from_slice(&MARKER);
    buffer.extend_from_slice(&[0; HEAD - MARKER.len()]);
    buffer.push(kind.code());
    buffer.extend_from_slice(&sequence.to_le_bytes());
    buffer.extend_from_slice(&u32::try_from(id.len()).ok()?.to_le_bytes());
    buffer.extend_from_slice(id.as_bytes());
    write_record(buffer)?;
    let length = u32::try_from(buffer.len().checked_sub(HEAD)?).ok()?.to_le_bytes();
    let checksum = checksum(length, buffer.get(HEAD..)?).to_le_bytes();
    buffer.get_mut(4..8)?.copy_from_slice(&length);
    buffer.get_mut(8..HEAD)?.copy_from_slice(&checksum);
    Some(())
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => text.truncate(text.floor_char_boundary(MOST_TEXT)),
        Value::Array(items) => {
            items.truncate(MOST_TEXT);
            items.iter_mut().for_each(shorten);
        }
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn checksum(length: [u8; 4], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(body);
    hasher.finalize()
}

/// The entry that these bytes begin with, and its length.
pub(super) fn read(bytes: &[u8]) -> Option<(Raw<'_>, usize)> {
    let rest = bytes.strip_prefix(&MARKER)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (expected, rest) = rest.split_first_chunk::<4>()?;
    let size = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|size| *size <= MOST)?;
    let body = rest.get(..size)?;
    if checksum(*length, body) != u32::from_le_bytes(*expected) {
        return None;
    }
    Some((raw(body)?, HEAD + size))
}

fn raw(body: &[u8]) -> Option<Raw<'_>> {
    let (kind, rest) = body.split_first()?;
    let (sequence, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (id, json) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    Some(Raw {
        kind: Kind::read(*kind)?,
        sequence: u32::from_le_bytes(*sequence),
        id: std::str::from_utf8(id).ok()?,
        json,
    })
}

/// Walks over bytes: entries, and stretches that are none.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for Scan<'a> {
    /// Place of an entry, and the entry; none if the stretch is damaged.
    type Item = (Range<usize>, Option<Raw<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let from = self.at;
        if let Some((raw, length)) = read(rest) {
            self.at += length;
            return Some((from..self.at, Some(raw)));
        }
        let markers = rest.windows(MARKER.len()).enumerate().skip(1);
        let next = markers
            .filter(|(_, window)| *window == MARKER)
            .map(|(at, _)| at)
            .find(|at| rest.get(*at..).and_then(read).is_some());
        self.at += next.unwrap_or(rest.len());
        Some((from..self.at, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(kind: Kind, sequence: u32, record: &Record) -> Vec<u8> {
        let mut buffer = Vec::new();
        encode(&mut buffer, kind, sequence, record).unwrap();
        buffer
    }

    #[test]
    fn what_is_written_is_read() {
        let record =
            Record { id: "7".into(), model: Some("m\u{10ffff}".into()), ..Record::default() };
        for (kind, sequence) in [(Kind::Start, 0), (Kind::End, 1), (Kind::Amend, u32::MAX)] {
            let bytes = encoded(kind, sequence, &record);
            let (raw, length) = read(&bytes).unwrap();
            assert_eq!(
                (raw.kind, raw.sequence, raw.id, length),
                (kind, sequence, "7", bytes.len())
            );
            assert_eq!(raw.record(), Some(record.clone()));
        }
    }

    #[test]
    fn a_huge_record_is_cut_to_one_that_fits() {
        let long = "\u{e9}".repeat(4 << 20);
        let record = Record { id: "7".into(), path: long, events: 5, ..Record::default() };
        let bytes = encoded(Kind::End, 1, &record);
        let read = read(&bytes).unwrap().0.record().unwrap();
        assert_eq!((read.id.as_str(), read.path.len(), read.events), ("7", MOST_TEXT, 5));
    }

    #[test]
    fn behind_damage_the_next_entry_is_found() {
        let one = encoded(Kind::End, 1, &Record { id: "1".into(), ..Record::default() });
        let two = encoded(Kind::End, 1, &Record { id: "2".into(), ..Record::default() });
        for at in 0..one.len() {
            let mut bytes = [one.clone(), two.clone()].concat();
            bytes[at] ^= 1;
            let found: Vec<_> =
                Scan::new(&bytes).map(|(at, raw)| (at, raw.map(|raw| raw.id))).collect();
            assert_eq!(found, [(0..one.len(), None), (one.len()..bytes.len(), Some("2"))]);
        }
    }
}
