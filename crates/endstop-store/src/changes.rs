//! Changes of a batch in the sums and in the words seen.
//!
//! A row that changes takes what it said before out again, so that the sums are always those of the rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use crate::columns::{Row, SHORT, clean, time};
use crate::delta::{self, Seen, Word};
use crate::series::{self, Found, Known, Parts, encode};
use crate::sums::{self, HOUR, MEASURES, Numbers};

/// Rows that differ in numbers alone: their hour, the values of their series, field and word. Borrowed, so
/// that nothing is copied for a row that is like one before it.
#[derive(Debug, PartialEq, Eq)]
struct Like<'a> {
    hour: i64,
    texts: [Option<&'a str>; 11],
    status: Option<u16>,
    streamed: bool,
}

/// Hashes what differs most. The others have few values.
impl Hash for Like<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [team, key, _, model, _, _, reason, .., word] = self.texts;
        (self.hour, team, key, model, reason, word).hash(state);
    }
}

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The sums of rows that are alike.
#[derive(Debug)]
struct Alike<'a> {
    /// The first of them.
    row: Row<'a>,
    class: sums::Class,
    numbers: Numbers,
    first: i64,
    last: i64,
}

/// Rows that come and go, gathered.
#[derive(Debug, Default)]
pub(crate) struct Gathering<'a> {
    /// Places in the list: sums are large, and a table that grows moves what it holds.
    known: Map<Like<'a>, usize>,
    alike: Vec<Alike<'a>>,
}

impl<'a> Gathering<'a> {
    /// Counts a row that is there now.
    pub(crate) fn add(&mut self, row: &Row<'a>) {
        self.count(row, 1);
    }

    /// Takes out a row that is there no longer.
    pub(crate) fn take(&mut self, row: &Row<'a>) {
        self.count(row, -1);
    }

    fn count(&mut self, row: &Row<'a>, sign: i64) {
        let at = time(row.record.created_at);
        let Self { known, alike } = self;
        let place = *known.entry(like(row)).or_insert_with(|| {
            let class = sums::Class::of(&row.record.reason);
            alike.push(Alike { row: *row, class, numbers: [0; MEASURES], first: at, last: at });
            alike.len() - 1
        });
        let Some(alike) = alike.get_mut(place) else { return };
        // A row that is taken out again was seen all the same.
        alike.first = alike.first.min(at);
        alike.last = alike.last.max(at);
        sums::count(&mut alike.numbers, row, alike.class, sign);
    }

    /// Returns the sums of them all.
    pub(crate) fn changes(self) -> Changes<'a> {
        let mut changes = Changes::default();
        for Alike { row, numbers, first, last, .. } in self.alike {
            let Like { hour, texts, .. } = like(&row);
            let parts = parts(&row);
            let [.., field, word] = texts;
            if let (Some(word), Some(count)) = (word, numbers.first()) {
                let [_, _, provider, model, _, dialect, reason, ..] = texts;
                let word = [provider, model, dialect, field, Some(word), reason]
                    .map(|part| clean(part.unwrap_or_default(), SHORT));
                let seen = changes.words.entry(word).or_insert(Seen { count: 0, first, last });
                seen.count += count;
                seen.first = seen.first.min(first);
                seen.last = seen.last.max(last);
            }
            let line = changes.lines.entry((hour, parts)).or_insert([0; MEASURES]);
            sums::add(line, &numbers, 1);
        }
        changes.lines.retain(|_, numbers| numbers.iter().any(|number| *number != 0));
        changes.words.retain(|_, seen| seen.count != 0);
        changes
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
        Some(&*record.dialect),
        Some(&*record.reason),
        record.finish_reason.as_deref(),
        Some(&*record.action),
        record.native_field.as_deref(),
        record.native_finish_reason.as_deref(),
    ];
    Like { hour: at - at % HOUR, texts, status: record.status, streamed: record.streamed }
}

/// Returns the encoded values of the series of a row.
fn parts<'a>(row: &Row<'a>) -> Parts<'a> {
    series::values(row).map(|value| match value {
        None => encode(None),
        Some(Cow::Borrowed(text)) => encode(Some(text)),
        Some(Cow::Owned(text)) => Cow::Owned(encode(Some(&text)).into_owned()),
    })
}

/// Changes of a batch.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    lines: Map<(i64, Parts<'a>), Numbers>,
    words: Map<Word<'a>, Seen>,
}

impl<'a> Changes<'a> {
    /// Returns the series that are not known, in order.
    pub(crate) fn unknown(&self, known: &Known) -> Vec<&Parts<'a>> {
        let series = self.lines.keys().map(|(_, parts)| parts);
        let mut unknown: Vec<_> = series.filter(|parts| known.get(parts).is_none()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Returns what to note down, once all series have a number, packed; none where nothing changes.
    pub(crate) fn delta(&self, known: &Known, found: &Found) -> Option<Vec<u8>> {
        let mut lines: Vec<((i64, i64), &Numbers)> = Vec::with_capacity(self.lines.len());
        for ((hour, parts), numbers) in &self.lines {
            let number = known.get(parts).or_else(|| series::get(found, parts));
            lines.extend(number.map(|series| ((*hour, series), numbers)));
        }
        lines.sort_unstable_by_key(|(place, _)| *place);
        let words: Vec<(&Word<'_>, Seen)> =
            self.words.iter().map(|(word, seen)| (word, *seen)).collect();
        (!lines.is_empty() || !words.is_empty()).then(|| delta::pack(&lines, &words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_again_changes_nothing() {
        let record = endstop::Record {
            native_finish_reason: Some("stop".to_owned()),
            ..endstop::Record::default()
        };
        let entry = crate::Entry { sequence: 0, record };
        let unknown = |gathering: Gathering<'_>| {
            let changes = gathering.changes();
            (changes.unknown(&Known::default()).len(), changes.words.len())
        };
        let mut gathering = Gathering::default();
        gathering.add(&Row::from(&entry));
        assert_eq!(unknown(gathering), (1, 1));
        let mut gathering = Gathering::default();
        gathering.add(&Row::from(&entry));
        gathering.take(&Row::from(&entry));
        assert_eq!(unknown(gathering), (0, 0));
    }
}
