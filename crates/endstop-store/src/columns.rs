//! The columns of a row: one list, from which every backend reads and writes.
//!
//! Text is made harmless on its way in: capped, and without NUL, which Postgres refuses. What an index
//! holds is capped tighter, because an index entry has a limit of its own.

use std::borrow::Cow;

use endstop::Record;
use endstop::record::Name;

use crate::sink::{Entry, Stored};

/// The most of a text that is indexed or summed by, in bytes.
pub(crate) const SHORT: usize = 256;
/// The most of any other text, in bytes.
pub(crate) const LONG: usize = 4096;

/// A value on its way to or from a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Null,
    Int(i64),
    Flag(bool),
    Text(Cow<'a, str>),
    Bytes(Vec<u8>),
}

impl Cell<'_> {
    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Int(number) => Some(number.to_string()),
            Self::Flag(flag) => Some(flag.to_string()),
            Self::Text(text) => Some(text.into_owned()),
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    pub(crate) fn into_string(self) -> String {
        self.into_text().unwrap_or_default()
    }

    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Null | Self::Bytes(_) => None,
            Self::Int(number) => Some(*number),
            Self::Flag(flag) => Some(i64::from(*flag)),
            Self::Text(text) => text.parse().ok(),
        }
    }

    pub(crate) fn as_count(&self) -> Option<u64> {
        self.as_int().map(|number| u64::try_from(number).unwrap_or(0))
    }
}

/// Kind of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The id.
    Key,
    /// Milliseconds since 1970.
    Time,
    Text,
    Int,
    Flag,
}

/// A row as it is written: borrowed, so that a batch is not copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) record: &'a Record,
    pub(crate) sequence: u32,
    pub(crate) previous_reason: Option<&'a str>,
    pub(crate) previous_finish_reason: Option<&'a str>,
    pub(crate) previous_rules: Option<u32>,
}

impl<'a> From<&'a Entry> for Row<'a> {
    fn from(entry: &'a Entry) -> Self {
        Row {
            record: &entry.record,
            sequence: entry.sequence,
            previous_reason: None,
            previous_finish_reason: None,
            previous_rules: None,
        }
    }
}

impl<'a> From<&'a Stored> for Row<'a> {
    fn from(stored: &'a Stored) -> Self {
        Row {
            record: &stored.record,
            sequence: stored.sequence,
            previous_reason: stored.previous_reason.as_deref(),
            previous_finish_reason: stored.previous_finish_reason.as_deref(),
            previous_rules: stored.previous_rules,
        }
    }
}

/// One column.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) get: for<'a> fn(&Row<'a>) -> Cell<'a>,
    pub(crate) set: fn(&mut Stored, Cell<'_>),
}

const fn column(
    name: &'static str,
    kind: Kind,
    get: for<'a> fn(&Row<'a>) -> Cell<'a>,
    set: fn(&mut Stored, Cell<'_>),
) -> Column {
    Column { name, kind, get, set }
}

/// Every column, in the order of the table.
pub(crate) static COLUMNS: [Column; 42] = [
    column(
        "id",
        Kind::Key,
        |row| text(&row.record.id, SHORT),
        |row, cell| row.record.id = cell.into_string().replace('-', ""),
    ),
    column(
        "created_at",
        Kind::Time,
        |row| Cell::Int(time(row.record.created_at)),
        |row, cell| row.record.created_at = cell.as_count().unwrap_or_default(),
    ),
    column(
        "team_id",
        Kind::Text,
        |row| maybe(row.record.team_id.as_deref(), SHORT),
        |row, cell| row.record.team_id = cell.into_text(),
    ),
    column(
        "finish_reason",
        Kind::Text,
        |row| maybe(row.record.finish_reason.as_deref(), SHORT),
        |row, cell| row.record.finish_reason = cell.into_text().map(Into::into),
    ),
    column(
        "native_finish_reason",
        Kind::Text,
        |row| maybe(row.record.native_finish_reason.as_deref(), SHORT),
        |row, cell| row.record.native_finish_reason = cell.into_text(),
    ),
    column(
        "native_field",
        Kind::Text,
        |row| maybe(row.record.native_field.as_deref(), SHORT),
        |row, cell| row.record.native_field = cell.into_text().map(Into::into),
    ),
    column(
        "reason",
        Kind::Text,
        |row| text(&row.record.reason, SHORT),
        |row, cell| row.record.reason = cell.into_string().into(),
    ),
    column(
        "confidence",
        Kind::Text,
        |row| text(&row.record.confidence, SHORT),
        |row, cell| row.record.confidence = cell.into_string().into(),
    ),
    column(
        "provider",
        Kind::Text,
        |row| text(&row.record.provider, SHORT),
        |row, cell| row.record.provider = cell.into_string().into(),
    ),
    column(
        "model",
        Kind::Text,
        |row| maybe(row.record.model.as_deref(), SHORT),
        |row, cell| row.record.model = cell.into_text(),
    ),
    column(
        "dialect",
        Kind::Text,
        |row| text(&row.record.dialect, SHORT),
        |row, cell| row.record.dialect = cell.into_string().into(),
    ),
    column(
        "upstream",
        Kind::Text,
        |row| text(&row.record.upstream, SHORT),
        |row, cell| row.record.upstream = cell.into_string(),
    ),
    column(
        "key_id",
        Kind::Text,
        |row| maybe(row.record.key_id.as_deref(), SHORT),
        |row, cell| row.record.key_id = cell.into_text(),
    ),
    column(
        "turn_id",
        Kind::Text,
        |row| text(&row.record.turn_id, SHORT),
        |row, cell| row.record.turn_id = cell.into_string(),
    ),
    column(
        "attempt",
        Kind::Int,
        |row| Cell::Int(row.record.attempt.into()),
        |row, cell| row.record.attempt = small(&cell).unwrap_or_default(),
    ),
    column(
        "path",
        Kind::Text,
        |row| text(&row.record.path, LONG),
        |row, cell| row.record.path = cell.into_string(),
    ),
    column(
        "streamed",
        Kind::Flag,
        |row| Cell::Flag(row.record.streamed),
        |row, cell| row.record.streamed = cell.as_int() == Some(1),
    ),
    column(
        "mode",
        Kind::Text,
        |row| text(&row.record.mode, LONG),
        |row, cell| row.record.mode = cell.into_string().into(),
    ),
    column(
        "status",
        Kind::Int,
        |row| row.record.status.map_or(Cell::Null, |status| Cell::Int(status.into())),
        |row, cell| row.record.status = cell.as_int().and_then(|status| status.try_into().ok()),
    ),
    column(
        "closed",
        Kind::Text,
        |row| text(&row.record.closed, LONG),
        |row, cell| row.record.closed = cell.into_string().into(),
    ),
    column(
        "cause",
        Kind::Text,
        |row| text(&row.record.cause, LONG),
        |row, cell| row.record.cause = cell.into_string().into(),
    ),
    column(
        "shown",
        Kind::Text,
        |row| Cell::Text(Cow::Owned(clean(&row.record.shown.join(","), LONG).into_owned())),
        |row, cell| row.record.shown = words(&cell.into_string()),
    ),
    column(
        "decision",
        Kind::Text,
        |row| maybe(row.record.decision.as_deref(), LONG),
        |row, cell| row.record.decision = cell.into_text().map(Into::into),
    ),
    column(
        "action",
        Kind::Text,
        |row| text(&row.record.action, LONG),
        |row, cell| row.record.action = cell.into_string().into(),
    ),
    column(
        "tokens_in",
        Kind::Int,
        |row| row.record.tokens_in.map_or(Cell::Null, count),
        |row, cell| row.record.tokens_in = cell.as_count(),
    ),
    column(
        "tokens_out",
        Kind::Int,
        |row| row.record.tokens_out.map_or(Cell::Null, count),
        |row, cell| row.record.tokens_out = cell.as_count(),
    ),
    column(
        "tokens_reasoning",
        Kind::Int,
        |row| row.record.tokens_reasoning.map_or(Cell::Null, count),
        |row, cell| row.record.tokens_reasoning = cell.as_count(),
    ),
    column(
        "tokens_cached",
        Kind::Int,
        |row| row.record.tokens_cached.map_or(Cell::Null, count),
        |row, cell| row.record.tokens_cached = cell.as_count(),
    ),
    column(
        "cap",
        Kind::Int,
        |row| row.record.cap.map_or(Cell::Null, count),
        |row, cell| row.record.cap = cell.as_count(),
    ),
    column(
        "first_byte_us",
        Kind::Int,
        |row| row.record.first_byte_us.map_or(Cell::Null, count),
        |row, cell| row.record.first_byte_us = cell.as_count(),
    ),
    column(
        "total_us",
        Kind::Int,
        |row| count(row.record.total_us),
        |row, cell| row.record.total_us = cell.as_count().unwrap_or_default(),
    ),
    column(
        "bytes",
        Kind::Int,
        |row| count(row.record.bytes),
        |row, cell| row.record.bytes = cell.as_count().unwrap_or_default(),
    ),
    column(
        "delivered_bytes",
        Kind::Int,
        |row| count(row.record.delivered_bytes),
        |row, cell| row.record.delivered_bytes = cell.as_count().unwrap_or_default(),
    ),
    column(
        "events",
        Kind::Int,
        |row| count(row.record.events),
        |row, cell| row.record.events = cell.as_count().unwrap_or_default(),
    ),
    column(
        "error_type",
        Kind::Text,
        |row| maybe(row.record.error_type.as_deref(), LONG),
        |row, cell| row.record.error_type = cell.into_text(),
    ),
    column(
        "upstream_request_id",
        Kind::Text,
        |row| maybe(row.record.upstream_request_id.as_deref(), LONG),
        |row, cell| row.record.upstream_request_id = cell.into_text(),
    ),
    column(
        "rules",
        Kind::Int,
        |row| Cell::Int(row.record.rules.into()),
        |row, cell| row.record.rules = small(&cell).unwrap_or_default(),
    ),
    column(
        "sequence",
        Kind::Int,
        |row| Cell::Int(row.sequence.into()),
        |row, cell| row.sequence = small(&cell).unwrap_or_default(),
    ),
    column(
        "previous_reason",
        Kind::Text,
        |row| maybe(row.previous_reason, SHORT),
        |row, cell| row.previous_reason = cell.into_text(),
    ),
    column(
        "previous_finish_reason",
        Kind::Text,
        |row| maybe(row.previous_finish_reason, SHORT),
        |row, cell| row.previous_finish_reason = cell.into_text(),
    ),
    column(
        "previous_rules",
        Kind::Int,
        |row| row.previous_rules.map_or(Cell::Null, |rules| Cell::Int(rules.into())),
        |row, cell| row.previous_rules = small(&cell),
    ),
    column(
        "client_status",
        Kind::Int,
        |row| row.record.client_status.map_or(Cell::Null, |status| Cell::Int(status.into())),
        |row, cell| {
            row.record.client_status = cell.as_int().and_then(|status| status.try_into().ok());
        },
    ),
];

/// Returns for each column, in the order of [`COLUMNS`], whether two rows surely have the same value.
pub(crate) fn same(a: &Row<'_>, b: &Row<'_>) -> [bool; COLUMNS.len()] {
    let (x, y) = (a.record, b.record);
    [
        x.id == y.id,
        x.created_at == y.created_at,
        x.team_id == y.team_id,
        x.finish_reason == y.finish_reason,
        x.native_finish_reason == y.native_finish_reason,
        x.native_field == y.native_field,
        x.reason == y.reason,
        x.confidence == y.confidence,
        x.provider == y.provider,
        x.model == y.model,
        x.dialect == y.dialect,
        x.upstream == y.upstream,
        x.key_id == y.key_id,
        x.turn_id == y.turn_id,
        x.attempt == y.attempt,
        x.path == y.path,
        x.streamed == y.streamed,
        x.mode == y.mode,
        x.status == y.status,
        x.closed == y.closed,
        x.cause == y.cause,
        x.shown == y.shown,
        x.decision == y.decision,
        x.action == y.action,
        x.tokens_in == y.tokens_in,
        x.tokens_out == y.tokens_out,
        x.tokens_reasoning == y.tokens_reasoning,
        x.tokens_cached == y.tokens_cached,
        x.cap == y.cap,
        x.first_byte_us == y.first_byte_us,
        x.total_us == y.total_us,
        x.bytes == y.bytes,
        x.delivered_bytes == y.delivered_bytes,
        x.events == y.events,
        x.error_type == y.error_type,
        x.upstream_request_id == y.upstream_request_id,
        x.rules == y.rules,
        a.sequence == b.sequence,
        a.previous_reason == b.previous_reason,
        a.previous_finish_reason == b.previous_finish_reason,
        a.previous_rules == b.previous_rules,
        x.client_status == y.client_status,
    ]
}

/// The row that these cells say, in the order of [`COLUMNS`].
pub(crate) fn stored(cells: Vec<Cell<'_>>) -> Stored {
    stored_by(COLUMNS.iter(), cells)
}

/// The row that some columns give; the others are empty.
pub(crate) fn stored_by<'c>(
    columns: impl Iterator<Item = &'c Column>,
    cells: Vec<Cell<'_>>,
) -> Stored {
    let mut stored = Stored::default();
    for (column, cell) in columns.zip(cells) {
        (column.set)(&mut stored, cell);
    }
    stored
}

/// A text without NUL, and of at most so many bytes, cut between characters.
pub(crate) fn clean(text: &str, most: usize) -> Cow<'_, str> {
    let capped = text.get(..text.floor_char_boundary(most)).unwrap_or(text);
    match memchr::memchr(0, capped.as_bytes()) {
        None => Cow::Borrowed(capped),
        Some(_) => Cow::Owned(capped.replace('\0', "")),
    }
}

fn text(text: &str, most: usize) -> Cell<'_> {
    Cell::Text(clean(text, most))
}

fn maybe(text: Option<&str>, most: usize) -> Cell<'_> {
    text.map_or(Cell::Null, |text| Cell::Text(clean(text, most)))
}

fn count(number: u64) -> Cell<'static> {
    Cell::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Milliseconds since 1970, at the latest at the end of the year 9999, which is what databases know.
pub(crate) fn time(ms: u64) -> i64 {
    ms.min(253_402_300_799_999).cast_signed()
}

fn small(cell: &Cell<'_>) -> Option<u32> {
    cell.as_int().and_then(|number| number.try_into().ok())
}

fn words(list: &str) -> Vec<Name> {
    list.split(',').filter(|word| !word.is_empty()).map(|word| word.to_owned().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_capped_between_characters_and_has_no_nul() {
        assert_eq!(clean("añb", 2), "a");
        assert_eq!(clean("a\0b\0", 9), "ab");
        assert!(matches!(clean("as it is", 9), Cow::Borrowed("as it is")));
    }

    #[test]
    fn same_knows_the_place_of_each_column() {
        let before = Stored::default();
        for (at, column) in COLUMNS.iter().enumerate() {
            let mut after = before.clone();
            let other = match column.kind {
                Kind::Key | Kind::Text => Cell::Text("other".into()),
                Kind::Time | Kind::Int => Cell::Int(77),
                Kind::Flag => Cell::Int(1),
            };
            (column.set)(&mut after, other);
            for (place, same) in same(&Row::from(&before), &Row::from(&after)).iter().enumerate() {
                assert_eq!(*same, place != at, "{} of {}", COLUMNS[place].name, column.name);
            }
        }
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let record = Record {
            id: "0190aaaa0000700080000000000000ff".to_owned(),
            shown: vec!["at_cap".into(), "empty".into()],
            team_id: Some(String::new()),
            tokens_out: Some(7),
            streamed: true,
            status: Some(200),
            client_status: Some(502),
            ..Record::default()
        };
        let before = Stored { record, sequence: 3, previous_rules: Some(1), ..Stored::default() };
        let row = Row::from(&before);
        assert_eq!(stored(COLUMNS.iter().map(|column| (column.get)(&row)).collect()), before);
    }
}
