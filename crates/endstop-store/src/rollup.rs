//! The hourly sums and the words seen: what a row adds to them, gathered for a batch.
//!
//! A row that changes takes what it said before out again, so that the sums are always those of the rows.
//! A batch touches each sum once, and in a fixed order, so that writers never wait for each other in a
//! circle.

use std::borrow::Cow;
use std::collections::HashMap;

use endstop::Reason;

use crate::columns::{Row, SHORT, clean, time};
use crate::query::{Buckets, Sums};

/// How many buckets of times there are.
pub(crate) const BUCKETS: usize = 24;
/// How many numbers each hour has.
pub(crate) const MEASURES: usize = NAMED.len() + 2 * BUCKETS;
/// One hour in milliseconds.
pub(crate) const HOUR: i64 = 3_600_000;

/// What an hour is told apart by, after the hour itself.
pub(crate) const PARTS: [&str; 7] =
    ["team_id", "key_id", "provider", "model", "upstream", "reason", "finish_reason"];

const NAMED: [&str; 9] = [
    "responses",
    "continued",
    "continued_well",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_cached",
    "tokens_of_cut",
    "counted",
];

/// The names of the columns of [`Numbers`].
pub(crate) fn measure_names() -> Vec<String> {
    let buckets = |name: &'static str| (0..BUCKETS).map(move |index| format!("{name}_{index}"));
    let named = NAMED.into_iter().map(str::to_owned);
    named.chain(buckets("first_byte")).chain(buckets("total")).collect()
}

/// The numbers of an hour, or what to add to them.
pub(crate) type Numbers = [i64; MEASURES];

/// One line of the rollup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hour<'a> {
    pub(crate) hour: i64,
    pub(crate) parts: [Cow<'a, str>; 7],
}

/// A word of a provider's: provider, dialect, field, word, our reason.
pub(crate) type WordKey<'a> = [Cow<'a, str>; 5];

/// How often it was seen, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) count: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// What a batch changes.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    hours: HashMap<Hour<'a>, Numbers>,
    words: HashMap<WordKey<'a>, Seen>,
}

impl<'a> Changes<'a> {
    /// A row that is there now.
    pub(crate) fn add(&mut self, row: &Row<'a>) {
        self.count(row, 1);
    }

    /// A row that is there no longer.
    pub(crate) fn take(&mut self, row: &Row<'a>) {
        self.count(row, -1);
    }

    fn count(&mut self, row: &Row<'a>, sign: i64) {
        let numbers = self.hours.entry(hour(row)).or_insert([0; MEASURES]);
        for (mine, added) in numbers.iter_mut().zip(numbers_of(row)) {
            *mine += sign * added;
        }
        let Some(word) = word(row) else { return };
        let at = time(row.record.created_at);
        let seen = self.words.entry(word).or_insert(Seen { count: 0, first: at, last: at });
        seen.count += sign;
        // What is taken out again was seen all the same.
        seen.first = seen.first.min(at);
        seen.last = seen.last.max(at);
    }

    /// What changes, in order.
    pub(crate) fn hours(&self) -> Vec<(&Hour<'a>, &Numbers)> {
        let changed = self.hours.iter().filter(|(_, numbers)| numbers.iter().any(|by| *by != 0));
        let mut hours: Vec<_> = changed.collect();
        hours.sort_unstable_by_key(|(hour, _)| *hour);
        hours
    }

    /// What changes, in order.
    pub(crate) fn words(&self) -> Vec<(&WordKey<'a>, &Seen)> {
        let mut words: Vec<_> = self.words.iter().filter(|(_, seen)| seen.count != 0).collect();
        words.sort_unstable_by_key(|(word, _)| *word);
        words
    }
}

/// The line that a row counts in.
fn hour<'a>(row: &Row<'a>) -> Hour<'a> {
    let record = row.record;
    let parts = [
        record.team_id.as_deref(),
        record.key_id.as_deref(),
        Some(&*record.provider),
        record.model.as_deref(),
        Some(&*record.upstream),
        Some(&*record.reason),
        record.finish_reason.as_deref(),
    ];
    let at = time(record.created_at);
    Hour { hour: at - at % HOUR, parts: parts.map(encode) }
}

fn word<'a>(row: &Row<'a>) -> Option<WordKey<'a>> {
    let record = row.record;
    let word = record.native_finish_reason.as_deref()?;
    let field = record.native_field.as_deref().unwrap_or_default();
    let parts = [&*record.provider, &*record.dialect, field, word, &*record.reason];
    Some(parts.map(|part| clean(part, SHORT)))
}

fn numbers_of(row: &Row<'_>) -> Numbers {
    let record = row.record;
    let reason = Reason::from_name(&record.reason);
    let continued = record.attempt > 1;
    let well = continued && reason.is_some_and(Reason::is_success);
    let out = tokens(record.tokens_out);
    let mut numbers = [0; MEASURES];
    let named = [
        1,
        i64::from(continued),
        i64::from(well),
        tokens(record.tokens_in),
        out,
        tokens(record.tokens_reasoning),
        tokens(record.tokens_cached),
        if reason.is_some_and(is_short) { out } else { 0 },
        i64::from(record.tokens_out.is_some()),
    ];
    let first = record.first_byte_us.map(|us| NAMED.len() + Buckets::of(us));
    // A response that nobody saw end has no time.
    let total = (record.total_us > 0).then(|| NAMED.len() + BUCKETS + Buckets::of(record.total_us));
    numbers.iter_mut().zip(named).for_each(|(mine, named)| *mine = named);
    for bucket in [first, total].into_iter().flatten() {
        if let Some(number) = numbers.get_mut(bucket) {
            *number = 1;
        }
    }
    numbers
}

/// Whether the tokens of such an answer were spent on something that is not whole.
fn is_short(reason: Reason) -> bool {
    [Reason::OutputLimit, Reason::ContextLimit, Reason::Cut, Reason::TimedOut].contains(&reason)
}

/// A number of tokens, bounded so that no sum can overflow.
fn tokens(count: Option<u64>) -> i64 {
    count.unwrap_or(0).min(1 << 40).cast_signed()
}

/// A value as part of a key, where a null would not be equal to itself: the empty text is none, and a
/// quote stands before a text that is empty or begins with one.
pub(crate) fn encode(value: Option<&str>) -> Cow<'_, str> {
    let Some(value) = value else { return Cow::Borrowed("") };
    let value = clean(value, SHORT);
    if value.is_empty() || value.starts_with('"') {
        Cow::Owned(format!("\"{value}"))
    } else {
        value
    }
}

/// The value that was encoded.
pub(crate) fn decode(part: &str) -> Option<String> {
    if part.is_empty() {
        return None;
    }
    Some(part.strip_prefix('"').unwrap_or(part).to_owned())
}

/// Sums from numbers in the order of [`measure_names`]; all of this reason.
pub(crate) fn sums(reason: &str, numbers: &[i64]) -> Sums {
    let mut numbers = numbers.iter().map(|number| u64::try_from(*number).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let count = next();
    Sums {
        count,
        reasons: [(reason.to_owned(), count)].into(),
        continued: next(),
        continued_well: next(),
        tokens_in: next(),
        tokens_out: next(),
        tokens_reasoning: next(),
        tokens_cached: next(),
        tokens_of_cut: next(),
        counted: next(),
        first_byte: Buckets(std::array::from_fn(|_| next())),
        total: Buckets(std::array::from_fn(|_| next())),
    }
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

    #[test]
    fn what_is_taken_out_again_changes_nothing() {
        let record = endstop::Record {
            native_finish_reason: Some("stop".to_owned()),
            ..endstop::Record::default()
        };
        let entry = crate::Entry { sequence: 0, record };
        let mut changes = Changes::default();
        changes.add(&Row::from(&entry));
        assert_eq!((changes.hours().len(), changes.words().len()), (1, 1));
        changes.take(&Row::from(&entry));
        assert_eq!((changes.hours().len(), changes.words().len()), (0, 0));
    }
}
