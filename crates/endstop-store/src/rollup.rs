//! The hourly sums and the words seen: what a row adds to them, gathered for a batch.
//!
//! A row that changes takes what it said before out again, so that the sums are always those of the rows.
//! A batch touches each sum once, and in a fixed order, so that writers never wait for each other in a
//! circle.
//!
//! What sums are told apart by beside the hour is a series, which has a number. The lines of an hour stand
//! together in chunks of [`CHUNK`] series, packed as `lines.rs` says.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use endstop::Reason;

use crate::columns::{Row, SHORT, clean, time};
use crate::lines::Lines;
use crate::query::{Buckets, Sums};

/// How many buckets of times there are.
pub(crate) const BUCKETS: usize = 24;
/// How many numbers each hour has.
pub(crate) const MEASURES: usize = NAMED + 2 * BUCKETS;
/// One hour in milliseconds.
pub(crate) const HOUR: i64 = 3_600_000;

/// What an hour is told apart by, after the hour itself.
pub(crate) const PARTS: [&str; 7] =
    ["team_id", "key_id", "provider", "model", "upstream", "reason", "finish_reason"];

/// How many numbers stand before the buckets, in the order of [`Sums`].
const NAMED: usize = 9;
/// How many series a chunk has.
pub(crate) const CHUNK: i64 = 32;
/// The most series, and the most chunks, that are kept in mind.
const MOST_KNOWN: usize = 100_000;

/// The numbers of an hour, or what to add to them.
pub(crate) type Numbers = [i64; MEASURES];

/// What tells sums apart beside the hour, in the order of [`PARTS`].
pub(crate) type Parts<'a> = [Cow<'a, str>; 7];

/// What is known to be in the store, so that it is not asked for again.
#[derive(Debug, Default)]
pub(crate) struct Known {
    series: HashMap<Parts<'static>, i64>,
    chunks: HashSet<Place>,
}

/// What a transaction found or made; known once it is committed.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) series: HashMap<Parts<'static>, i64>,
    pub(crate) chunks: Vec<Place>,
}

impl Known {
    /// The number of a series.
    pub(crate) fn series<'a>(&'a self, parts: &Parts<'a>) -> Option<i64> {
        number(&self.series, parts)
    }

    /// Whether a chunk is there.
    pub(crate) fn has(&self, chunk: &Place) -> bool {
        self.chunks.contains(chunk)
    }

    /// Takes in what a transaction found, once it is committed.
    pub(crate) fn learn(&mut self, found: Found) {
        // Neither has an end, and both can be asked for again.
        if self.series.len() + found.series.len() > MOST_KNOWN {
            self.series.clear();
        }
        if self.chunks.len() + found.chunks.len() > MOST_KNOWN {
            self.chunks.clear();
        }
        self.series.extend(found.series);
        self.chunks.extend(found.chunks);
    }
}

impl Found {
    /// The number of a series.
    pub(crate) fn series<'a>(&'a self, parts: &Parts<'a>) -> Option<i64> {
        number(&self.series, parts)
    }
}

fn number<'a>(known: &'a HashMap<Parts<'a>, i64>, parts: &Parts<'a>) -> Option<i64> {
    known.get(parts).copied()
}

/// A chunk of an hour: the hour, and which.
pub(crate) type Place = (i64, i64);

/// A word of a provider's: provider, dialect, field, word, our reason.
pub(crate) type WordKey<'a> = [Cow<'a, str>; 5];

/// How often it was seen, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) count: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// What tells rows apart: the hour, the texts of [`PARTS`], then dialect, field and word. As they came, so
/// that nothing is copied for a row that is like one before it.
type Like<'a> = (i64, [Option<&'a str>; 10]);

/// Rows that are alike, added up.
#[derive(Debug)]
struct Alike {
    numbers: Numbers,
    reason: Option<Reason>,
    first: i64,
    last: i64,
}

/// What a batch changes.
#[derive(Debug, Default)]
pub(crate) struct Gathering<'a>(HashMap<Like<'a>, Alike>);

impl<'a> Gathering<'a> {
    /// A row that is there now.
    pub(crate) fn add(&mut self, row: &Row<'a>) {
        self.count(row, 1);
    }

    /// A row that is there no longer.
    pub(crate) fn take(&mut self, row: &Row<'a>) {
        self.count(row, -1);
    }

    fn count(&mut self, row: &Row<'a>, sign: i64) {
        let at = time(row.record.created_at);
        let alike = self.0.entry(like(row)).or_insert_with(|| Alike {
            numbers: [0; MEASURES],
            reason: Reason::from_name(&row.record.reason),
            first: at,
            last: at,
        });
        // What is taken out again was seen all the same.
        alike.first = alike.first.min(at);
        alike.last = alike.last.max(at);
        count_into(alike, row, sign);
    }

    /// The sums of them all.
    pub(crate) fn changes(&self) -> Changes<'a> {
        let mut changes = Changes::default();
        for ((hour, texts), Alike { numbers, first, last, .. }) in &self.0 {
            let [team, key, provider, model, upstream, reason, finish, dialect, field, word] =
                *texts;
            let parts = [team, key, provider, model, upstream, reason, finish].map(encode);
            let line = changes.hours.entry((*hour, parts)).or_insert([0; MEASURES]);
            line.iter_mut().zip(numbers).for_each(|(mine, by)| *mine += by);
            let (Some(word), Some(count)) = (word, numbers.first()) else { continue };
            let word = [provider, dialect, field, Some(word), reason]
                .map(|part| clean(part.unwrap_or_default(), SHORT));
            let new = Seen { count: 0, first: *first, last: *last };
            let seen = changes.words.entry(word).or_insert(new);
            seen.count += count;
            seen.first = seen.first.min(*first);
            seen.last = seen.last.max(*last);
        }
        changes
    }
}

/// What a batch changes, by line and by word.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    hours: HashMap<(i64, Parts<'a>), Numbers>,
    words: HashMap<WordKey<'a>, Seen>,
}

impl<'a> Changes<'a> {
    /// The series whose sums change and that are not known, in order.
    pub(crate) fn unknown(&self, known: &Known) -> Vec<&Parts<'a>> {
        let series = self.lines().map(|((_, parts), _)| parts);
        let mut unknown: Vec<_> = series.filter(|parts| known.series(parts).is_none()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// What changes, in order, once all series have a number.
    pub(crate) fn chunks(&self, known: &Known, found: &Found) -> BTreeMap<Place, Lines> {
        let mut chunks: BTreeMap<Place, Lines> = BTreeMap::new();
        for ((hour, parts), numbers) in self.lines() {
            let number = known.series(parts).or_else(|| found.series(parts));
            let Some(series) = number else { continue };
            chunks.entry((*hour, series.div_euclid(CHUNK))).or_default().add(series, numbers);
        }
        chunks
    }

    fn lines(&self) -> impl Iterator<Item = (&(i64, Parts<'a>), &Numbers)> {
        self.hours.iter().filter(|(_, numbers)| numbers.iter().any(|by| *by != 0))
    }

    /// What changes, in order.
    pub(crate) fn words(&self) -> Vec<(&WordKey<'a>, &Seen)> {
        let mut words: Vec<_> = self.words.iter().filter(|(_, seen)| seen.count != 0).collect();
        words.sort_unstable_by_key(|(word, _)| *word);
        words
    }
}

fn like<'a>(row: &Row<'a>) -> Like<'a> {
    let record = row.record;
    let at = time(record.created_at);
    let texts = [
        record.team_id.as_deref(),
        record.key_id.as_deref(),
        Some(&*record.provider),
        record.model.as_deref(),
        Some(&*record.upstream),
        Some(&*record.reason),
        record.finish_reason.as_deref(),
        Some(&*record.dialect),
        record.native_field.as_deref(),
        record.native_finish_reason.as_deref(),
    ];
    (at - at % HOUR, texts)
}

fn count_into(alike: &mut Alike, row: &Row<'_>, sign: i64) {
    let record = row.record;
    let Alike { numbers, reason, .. } = alike;
    let repeated = record.attempt > 1;
    let well = repeated && reason.is_some_and(Reason::is_success);
    let out = tokens(record.tokens_out);
    let named: [i64; NAMED] = [
        1,
        i64::from(repeated),
        i64::from(well),
        tokens(record.tokens_in),
        out,
        tokens(record.tokens_reasoning),
        tokens(record.tokens_cached),
        if reason.is_some_and(is_short) { out } else { 0 },
        i64::from(record.tokens_out.is_some()),
    ];
    numbers.iter_mut().zip(named).for_each(|(mine, named)| *mine += sign * named);
    let first = record.first_byte_us.map(|us| NAMED + Buckets::of(us));
    // A response that nobody saw end has no time.
    let total = (record.total_us > 0).then(|| NAMED + BUCKETS + Buckets::of(record.total_us));
    for bucket in [first, total].into_iter().flatten() {
        if let Some(number) = numbers.get_mut(bucket) {
            *number += sign;
        }
    }
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

/// Sums from numbers in the order of [`Numbers`]; all of this reason.
pub(crate) fn sums(reason: &str, numbers: &Numbers) -> Sums {
    let mut numbers = numbers.iter().map(|number| u64::try_from(*number).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let count = next();
    Sums {
        count,
        reasons: [(reason.to_owned(), count)].into(),
        repeated: next(),
        repeated_well: next(),
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
        let mut gathering = Gathering::default();
        let counts = |gathering: &Gathering<'_>| {
            let changes = gathering.changes();
            (changes.unknown(&Known::default()).len(), changes.words().len())
        };
        gathering.add(&Row::from(&entry));
        assert_eq!(counts(&gathering), (1, 1));
        gathering.take(&Row::from(&entry));
        assert_eq!(counts(&gathering), (0, 0));
    }
}
