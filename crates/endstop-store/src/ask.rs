//! Answers questions from whatever a backend reads: the same for all of them.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::backend::Stored;
use crate::columns::{Cell, stored};
use crate::error::Error;
use crate::query::{Dimension, Group, Period, Query, Report, Sums, Wanted, WordSeen};
use crate::rollup::{decode, sums};
use crate::sql::{self, Flavor, MOST_GROUPS, Sql};

/// The most groups or rows that are answered.
pub(crate) const MOST: usize = 10_000;
/// The most dimensions.
const MOST_DIMENSIONS: usize = 4;
/// The fewest digits of an id that are enough to look for it.
const FEWEST_DIGITS: usize = 6;
/// The longest period: a hundred years.
const LONGEST: u64 = 100 * 366 * 86_400_000;

/// What a backend can read.
pub(crate) trait Reads {
    /// How it is asked.
    fn flavor(&mut self) -> Result<Flavor, Error>;

    /// All rows that a statement gives.
    fn read(&mut self, sql: &Sql<'_>) -> Result<Vec<Vec<Cell<'static>>>, Error>;
}

type Key = Vec<Option<String>>;

/// Answers [`crate::Backend::report`].
pub(crate) fn report(from: &mut impl Reads, query: &Query) -> Result<Report, Error> {
    check(query)?;
    let flavor = from.flavor()?;
    let now = sql::sums(&flavor, &query.by, query.period, 0, &query.filter)?;
    let now = fold(&query.by, from.read(&now)?)?;
    let before = match query.before {
        None => None,
        Some(before) => {
            // Hours and days stand beside those of the period that is asked for.
            let shift = sql::hours(query.period)?.0 - sql::hours(before)?.0;
            let before = sql::sums(&flavor, &query.by, before, shift, &query.filter)?;
            Some(fold(&query.by, from.read(&before)?)?)
        }
    };
    Ok(arrange(query, now, before))
}

fn check(query: &Query) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Query(why));
    if query.by.len() > MOST_DIMENSIONS {
        return refuse(format!("at most {MOST_DIMENSIONS} things to tell by"));
    }
    if query.by.iter().enumerate().any(|(at, by)| query.by.iter().skip(at + 1).any(|it| it == by)) {
        return refuse("the same thing to tell by stands twice".to_owned());
    }
    check_limit(query.limit)?;
    for period in [Some(query.period), query.before].into_iter().flatten() {
        check_period(period)?;
    }
    Ok(())
}

fn check_limit(limit: usize) -> Result<(), Error> {
    if (1..=MOST).contains(&limit) {
        return Ok(());
    }
    Err(Error::Query(format!("the limit is from 1 to {MOST}, not {limit}")))
}

fn check_period(period: Period) -> Result<(), Error> {
    sql::hours(period)?;
    if period.until - period.since > LONGEST {
        return Err(Error::Query("the period is longer than a hundred years".to_owned()));
    }
    Ok(())
}

/// Adds up the lines of each group: there is one for each reason.
fn fold(by: &[Dimension], rows: Vec<Vec<Cell<'static>>>) -> Result<HashMap<Key, Sums>, Error> {
    if rows.len() > MOST_GROUPS {
        let why = format!("more than {MOST_GROUPS} groups: ask for a shorter period, or for less");
        return Err(Error::Query(why));
    }
    let mut groups: HashMap<Key, Sums> = HashMap::new();
    for row in rows {
        let mut cells = row.into_iter();
        let key =
            by.iter().zip(&mut cells).map(|(dimension, cell)| part(*dimension, cell)).collect();
        let reason = cells.next().and_then(Cell::into_text).as_deref().and_then(decode);
        let numbers: Vec<i64> = cells.map(|cell| cell.as_int().unwrap_or(0)).collect();
        // What was moved elsewhere leaves a line of zeros.
        if numbers.first().is_some_and(|count| *count > 0) {
            groups.entry(key).or_default().add(&sums(&reason.unwrap_or_default(), &numbers));
        }
    }
    Ok(groups)
}

fn part(dimension: Dimension, cell: Cell<'_>) -> Option<String> {
    match dimension {
        Dimension::Hour | Dimension::Day => cell.into_text(),
        Dimension::FinishReason
        | Dimension::Reason
        | Dimension::Provider
        | Dimension::Model
        | Dimension::Team
        | Dimension::Key
        | Dimension::Upstream => cell.into_text().as_deref().and_then(decode),
    }
}

/// Puts groups in order and leaves out those over the limit.
fn arrange(query: &Query, now: HashMap<Key, Sums>, before: Option<HashMap<Key, Sums>>) -> Report {
    let mut total = Group {
        key: Vec::new(),
        now: Sums::default(),
        before: before.as_ref().map(|_| Sums::default()),
    };
    let mut groups: HashMap<Key, Group> = HashMap::new();
    for (key, sums) in now {
        total.now.add(&sums);
        let before = total.before.as_ref().map(|_| Sums::default());
        groups.insert(key.clone(), Group { key, now: sums, before });
    }
    for (key, sums) in before.into_iter().flatten() {
        if let Some(total) = &mut total.before {
            total.add(&sums);
        }
        let group = groups.entry(key.clone()).or_insert_with(|| Group {
            key,
            now: Sums::default(),
            before: None,
        });
        group.before = Some(sums);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    let before = |group: &Group| group.before.as_ref().map_or(0, |sums| sums.count);
    groups.sort_by_cached_key(|group| {
        (Reverse(group.now.count), Reverse(before(group)), group.key.clone())
    });
    let left_out = groups.len().saturating_sub(query.limit);
    groups.truncate(query.limit);
    let time = |by: &Dimension| matches!(by, Dimension::Hour | Dimension::Day);
    if let Some(at) = query.by.iter().position(time) {
        groups.sort_by_cached_key(|group| {
            group.key.get(at).and_then(|time| time.as_ref()?.parse::<i64>().ok())
        });
    }
    Report { groups, total, left_out }
}

/// Answers [`crate::Backend::endings`].
pub(crate) fn endings(from: &mut impl Reads, wanted: &Wanted) -> Result<Vec<Stored>, Error> {
    check_limit(wanted.limit)?;
    if let Some(period) = wanted.period {
        check_period(period)?;
    }
    let flavor = from.flavor()?;
    let rows = from.read(&sql::endings(&flavor, wanted)?)?;
    Ok(rows.into_iter().map(stored).collect())
}

/// Answers [`crate::Backend::ending`].
pub(crate) fn ending(from: &mut impl Reads, id: &str) -> Result<Option<Stored>, Error> {
    let digits = id.replace('-', "").to_ascii_lowercase();
    let known = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !known || !(FEWEST_DIGITS..=32).contains(&digits.len()) {
        let why = format!("an id has 32 hexadecimal digits; {FEWEST_DIGITS} of them are enough");
        return Err(Error::Query(why));
    }
    let flavor = from.flavor()?;
    let (low, high) = (format!("{digits:0<32}"), format!("{digits:f<32}"));
    let mut rows = from.read(&sql::between(&flavor, &low, &high))?.into_iter();
    match (rows.next(), rows.next()) {
        (None, _) => Ok(None),
        (Some(row), None) => Ok(Some(stored(row))),
        (Some(_), Some(_)) => {
            Err(Error::Query(format!("several ids begin with {digits}: write more of it")))
        }
    }
}

/// Answers [`crate::Backend::turn`].
pub(crate) fn turn(from: &mut impl Reads, turn_id: &str) -> Result<Vec<Stored>, Error> {
    let flavor = from.flavor()?;
    let rows = from.read(&sql::turn(&flavor, turn_id, MOST))?;
    Ok(rows.into_iter().map(stored).collect())
}

/// Answers [`crate::Backend::judged_before`].
pub(crate) fn judged_before(
    from: &mut impl Reads,
    rules: u32,
    after: &str,
    most: usize,
) -> Result<Vec<Stored>, Error> {
    check_limit(most)?;
    let after = match after {
        "" => None,
        id => Some(crate::load::key(id).ok_or_else(|| Error::Query(format!("`{id}` is no id")))?),
    };
    let flavor = from.flavor()?;
    let rows = from.read(&sql::judged_before(&flavor, rules, after.as_deref(), most))?;
    Ok(rows.into_iter().map(stored).collect())
}

/// Answers [`crate::Backend::words`].
pub(crate) fn words(
    from: &mut impl Reads,
    period: Period,
    limit: usize,
) -> Result<Vec<WordSeen>, Error> {
    check_limit(limit)?;
    check_period(period)?;
    let flavor = from.flavor()?;
    let rows = from.read(&sql::words(&flavor, period, limit))?;
    Ok(rows.into_iter().map(word).collect())
}

fn word(row: Vec<Cell<'_>>) -> WordSeen {
    let mut cells = row.into_iter();
    let mut next = || cells.next().unwrap_or(Cell::Null);
    WordSeen {
        provider: next().into_string(),
        dialect: next().into_string(),
        field: next().into_string(),
        word: next().into_string(),
        reason: next().into_string(),
        first_seen: next().as_count().unwrap_or_default(),
        last_seen: next().as_count().unwrap_or_default(),
        count: next().as_count().unwrap_or_default(),
    }
}
