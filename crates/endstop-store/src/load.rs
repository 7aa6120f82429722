//! A batch on its way in: what is the same for every backend.

use uuid::Uuid;

use crate::columns::Row;
use crate::sink::{Entry, Loaded, Stored};

/// The sequence of rows that others wrote and that reports count.
pub(crate) const ADOPTED: i64 = -1;

/// One row to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    /// Place in the batch.
    pub(crate) index: usize,
    pub(crate) key: Uuid,
    pub(crate) row: Row<'a>,
}

impl Item<'_> {
    /// Returns its id as a number, and its time.
    pub(crate) fn id_and_time(&self) -> (u128, u64) {
        (self.key.as_u128(), self.row.record.created_at)
    }
}

/// The rows of a batch in the order of their ids, each once and at its newest, with what is already
/// known to become of the others.
pub(crate) fn items(entries: &[Entry]) -> (Vec<Item<'_>>, Loaded) {
    let mut loaded = Loaded::default();
    let mut items = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        match Uuid::try_parse(&entry.record.id) {
            Ok(key) => items.push(Item { index, key, row: Row::from(entry) }),
            Err(_) => loaded.refused.push((index, "its id is not a UUID".to_owned())),
        }
    }
    items.sort_by_key(|item| (item.key, std::cmp::Reverse(item.row.sequence)));
    let all = items.len();
    items.dedup_by_key(|item| item.key);
    loaded.known = (all - items.len()) as u64;
    (items, loaded)
}

/// An id as it is stored in text; none where it is none.
pub(crate) fn key(id: &str) -> Option<String> {
    Uuid::try_parse(id).ok().map(|key| key.simple().to_string())
}

/// Returns the row with an entry, if the entry is newer. The values before it was judged again
/// stay.
pub(crate) fn amended<'a>(old: &'a Stored, new: &Row<'a>) -> Option<Row<'a>> {
    let Stored { record: _, sequence, previous_reason, previous_finish_reason, previous_rules } =
        old;
    (new.sequence > *sequence).then_some(Row {
        previous_reason: previous_reason.as_deref(),
        previous_finish_reason: previous_finish_reason.as_deref(),
        previous_rules: *previous_rules,
        ..*new
    })
}

/// Returns the row with a new verdict, if it is still the row that was judged. The first verdict is
/// kept, however often a row is judged.
pub(crate) fn rejudged(old: &Stored, verdict: &Stored) -> Option<Stored> {
    if old.sequence != verdict.sequence || old.record.rules == verdict.record.rules {
        return None;
    }
    let mut new = old.clone();
    let said = &verdict.record;
    new.record.reason.clone_from(&said.reason);
    new.record.finish_reason.clone_from(&said.finish_reason);
    new.record.confidence.clone_from(&said.confidence);
    new.record.cause.clone_from(&said.cause);
    new.record.rules = said.rules;
    let same = old.record.reason == said.reason && old.record.finish_reason == said.finish_reason;
    if !same && old.previous_rules.is_none() {
        new.previous_reason = Some(old.record.reason.to_string());
        new.previous_finish_reason = old.record.finish_reason.as_deref().map(str::to_owned);
        new.previous_rules = Some(old.record.rules);
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Record;

    fn entry(id: &str, sequence: u32) -> Entry {
        Entry { sequence, record: Record { id: id.to_owned(), ..Record::default() } }
    }

    #[test]
    fn a_batch_is_sorted_and_has_each_id_once() {
        let (a, b) = ("00000000000070008000000000000001", "00000000-0000-7000-8000-000000000000");
        let batch = [entry(a, 0), entry("x", 0), entry(a, 2), entry(b, 0), entry(a, 1)];
        let (items, loaded) = items(&batch);
        let order: Vec<_> = items.iter().map(|item| (item.index, item.row.sequence)).collect();
        assert_eq!(order, [(3, 0), (2, 2)]);
        assert_eq!((loaded.known, loaded.refused.len()), (2, 1));
        assert_eq!(items[0].key.hyphenated().to_string(), b);
    }
}
