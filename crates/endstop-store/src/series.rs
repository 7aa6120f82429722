//! Values that sums are told apart by besides the hour. Each combination is a series, which has a number.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::columns::{Row, SHORT, clean};

/// The columns of a series, in their order. Names are those of the columns of a row.
pub(crate) const PARTS: [&str; 13] = [
    "team_id",
    "key_id",
    "provider",
    "model",
    "upstream",
    "dialect",
    "reason",
    "finish_reason",
    "action",
    "status",
    "streamed",
    "native_field",
    "native_finish_reason",
];
/// The columns of a word, in the order of [`crate::delta::Word`].
pub(crate) const WORD: [Option<&str>; 6] = [
    Some("provider"),
    Some("model"),
    Some("dialect"),
    Some("native_field"),
    Some("native_finish_reason"),
    Some("reason"),
];
/// The most of a field's name that series are told apart by, in bytes: all parts are in one index, whose entries
/// have a limit.
const FIELD: usize = 64;
/// The most series that are kept in mind.
const MOST_KNOWN: usize = 100_000;

/// The values of a series, encoded, in the order of [`PARTS`].
pub(crate) type Parts<'a> = [Cow<'a, str>; PARTS.len()];

/// Returns the values of the series of a row, in the order of [`PARTS`].
pub(crate) fn values<'a>(row: &Row<'a>) -> [Option<Cow<'a, str>>; PARTS.len()] {
    let record = row.record;
    let borrowed = |value: Option<&'a str>| value.map(Cow::Borrowed);
    [
        borrowed(record.team_id.as_deref()),
        borrowed(record.key_id.as_deref()),
        borrowed(Some(&record.provider)),
        borrowed(record.model.as_deref()),
        borrowed(Some(&record.upstream)),
        borrowed(Some(&record.dialect)),
        borrowed(Some(&record.reason)),
        borrowed(record.finish_reason.as_deref()),
        borrowed(Some(&record.action)),
        record.status.map(|status| Cow::Owned(status.to_string())),
        borrowed(Some(if record.streamed { "true" } else { "false" })),
        borrowed(record.native_field.as_deref().map(short_field)),
        borrowed(record.native_finish_reason.as_deref()),
    ]
}

/// Returns a field's name as series have it.
pub(crate) fn short_field(field: &str) -> &str {
    field.get(..field.floor_char_boundary(FIELD)).unwrap_or(field)
}

/// The numbers of series that are known to be in the store, so that they are not asked for again.
#[derive(Debug, Default)]
pub(crate) struct Known(Found);

/// The numbers of series that a transaction found or made.
pub(crate) type Found = Numbered<'static>;

/// Series with their numbers.
pub(crate) type Numbered<'a> = HashMap<Parts<'a>, i64, foldhash::fast::RandomState>;

impl Known {
    /// Returns the number of a series.
    pub(crate) fn get<'a>(&'a self, parts: &Parts<'a>) -> Option<i64> {
        get(&self.0, parts)
    }

    /// Takes in what a transaction found, once it is committed.
    pub(crate) fn learn(&mut self, found: Found) {
        if self.0.len() + found.len() > MOST_KNOWN {
            self.0.clear();
        }
        self.0.extend(found);
    }
}

/// Returns the number of a series.
pub(crate) fn get<'a>(known: &'a Numbered<'a>, parts: &Parts<'a>) -> Option<i64> {
    known.get(parts).copied()
}

/// Encodes a value of a series. A null would not be equal to itself, so the empty text stands for none,
/// and a quote stands before a text that is empty or begins with one.
pub(crate) fn encode(value: Option<&str>) -> Cow<'_, str> {
    let Some(value) = value else { return Cow::Borrowed("") };
    let value = clean(value, SHORT);
    if value.is_empty() || value.starts_with('"') {
        Cow::Owned(format!("\"{value}"))
    } else {
        value
    }
}

/// Decodes a value of a series.
pub(crate) fn decode(part: &str) -> Option<String> {
    if part.is_empty() {
        return None;
    }
    Some(part.strip_prefix('"').unwrap_or(part).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_and_empty_are_told_apart() {
        for value in [None, Some(""), Some("\""), Some("\"\""), Some("a"), Some("null")] {
            assert_eq!(decode(&encode(value)).as_deref(), value);
        }
    }
}
