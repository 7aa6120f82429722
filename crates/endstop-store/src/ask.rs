//! Answers questions from whatever a backend reads: the same for all of them.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::backend::Stored;
use crate::columns::{Cell, stored};
use crate::error::Error;
use crate::lines;
use crate::query::{Dimension, Group, Period, Query, Report, Sums, Wanted, WordSeen};
use crate::rollup::{CHUNK, HOUR, MEASURES, Numbers, PARTS, decode, sums};
use crate::sql::{self, Flavor, Sql};

/// The most groups or rows that are answered.
pub(crate) const MOST: usize = 10_000;
/// The most groups that are added up.
const MOST_GROUPS: usize = 200_000;
/// One day in milliseconds.
const DAY: i64 = 24 * HOUR;
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

    /// All rows that one statement gives, made into something to which each row of a second one is added,
    /// both as of one moment.
    fn read_both<T>(
        &mut self,
        first: &Sql<'_>,
        second: &Sql<'_>,
        start: impl Fn(Vec<Vec<Cell<'static>>>) -> T,
        add: impl Fn(&mut T, Vec<Cell<'static>>),
    ) -> Result<T, Error>;
}

type Key = Vec<Option<String>>;

/// Answers [`crate::Backend::report`].
pub(crate) fn report(from: &mut impl Reads, query: &Query) -> Result<Report, Error> {
    check(query)?;
    let flavor = from.flavor()?;
    let now = gather(from, &flavor, query, query.period, 0)?;
    let before = match query.before {
        None => None,
        Some(before) => {
            // Hours and days stand beside those of the period that is asked for.
            let shift = sql::hours(query.period)?.0 - sql::hours(before)?.0;
            Some(gather(from, &flavor, query, before, shift)?)
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

/// The sums of each group of a period; times are moved by `shift`.
fn gather(
    from: &mut impl Reads,
    flavor: &Flavor,
    query: &Query,
    period: Period,
    shift: i64,
) -> Result<HashMap<Key, Sums>, Error> {
    let series = sql::series(flavor, &query.filter)?;
    let chunks = sql::chunks(flavor, period, &query.filter)?;
    let start = |rows| Gathered::new(&query.by, shift, rows);
    let gathered = from.read_both(&series, &chunks, start, Gathered::add)?;
    if gathered.sums.len() > MOST_GROUPS {
        let why = format!("more than {MOST_GROUPS} groups: ask for a shorter period, or for less");
        return Err(Error::Query(why));
    }
    if gathered.damaged {
        return Err(Error::Query(lines::DAMAGED.to_owned()));
    }
    Ok(gathered.groups())
}

/// Lines of the rollup, added up.
struct Gathered<'q> {
    by: &'q [Dimension],
    shift: i64,
    /// Series that fit, and which of `kinds` each is of.
    series: HashMap<i64, usize>,
    /// What is told apart beside the time: the parts that are asked for, and the reason.
    kinds: Vec<(Key, String)>,
    sums: HashMap<(i64, usize), Numbers>,
    damaged: bool,
}

impl<'q> Gathered<'q> {
    fn new(by: &'q [Dimension], shift: i64, rows: Vec<Vec<Cell<'static>>>) -> Self {
        let mut known = HashMap::new();
        let mut kinds = Vec::new();
        let mut series = HashMap::new();
        for row in rows {
            let mut cells = row.into_iter();
            let number = cells.next().and_then(|cell| cell.as_int()).unwrap_or_default();
            let parts: Vec<String> = cells.map(Cell::into_string).collect();
            let part = |name: &str| {
                let at = PARTS.iter().position(|known| *known == name);
                at.and_then(|at| parts.get(at)).and_then(|part| decode(part))
            };
            let key: Key = by.iter().map(|by| column(*by).and_then(part)).collect();
            let kind = (key, part("reason").unwrap_or_default());
            let at = *known.entry(kind).or_insert_with_key(|kind| {
                kinds.push(kind.clone());
                kinds.len() - 1
            });
            series.insert(number, at);
        }
        Self { by, shift, series, kinds, sums: HashMap::new(), damaged: false }
    }

    fn add(&mut self, row: Vec<Cell<'static>>) {
        let [Cell::Int(hour), Cell::Int(chunk), Cell::Bytes(packed)] = row.as_slice() else {
            self.damaged = true;
            return;
        };
        if self.sums.len() > MOST_GROUPS {
            return;
        }
        let time = self.time(*hour);
        let Self { series, sums, .. } = self;
        let read = lines::each(packed, |at, numbers| {
            let Some(kind) = series.get(&(chunk * CHUNK + i64::from(at))) else { return };
            let sums = sums.entry((time, *kind)).or_insert([0; MEASURES]);
            sums.iter_mut().zip(numbers).for_each(|(mine, by)| *mine = mine.saturating_add(*by));
        });
        self.damaged |= read.is_none();
    }

    /// The time that an hour is counted under.
    fn time(&self, hour: i64) -> i64 {
        let moved = hour + self.shift;
        if self.by.contains(&Dimension::Hour) {
            moved
        } else if self.by.contains(&Dimension::Day) {
            moved - moved % DAY
        } else {
            0
        }
    }

    fn groups(self) -> HashMap<Key, Sums> {
        let mut groups: HashMap<Key, Sums> = HashMap::new();
        for ((time, kind), numbers) in &self.sums {
            let Some((parts, reason)) = self.kinds.get(*kind) else { continue };
            let part = |(by, part): (&Dimension, &Option<String>)| match by {
                Dimension::Hour => Some(time.to_string()),
                Dimension::Day => Some((time - time % DAY).to_string()),
                Dimension::FinishReason
                | Dimension::Reason
                | Dimension::Provider
                | Dimension::Model
                | Dimension::Team
                | Dimension::Key
                | Dimension::Upstream => part.clone(),
            };
            if numbers.first().is_some_and(|count| *count > 0) {
                let key = self.by.iter().zip(parts).map(part).collect();
                groups.entry(key).or_default().add(&sums(reason, numbers));
            }
        }
        groups
    }
}

/// The part of a series that a dimension is; times are none.
fn column(dimension: Dimension) -> Option<&'static str> {
    match dimension {
        Dimension::Team => Some("team_id"),
        Dimension::Key => Some("key_id"),
        Dimension::FinishReason
        | Dimension::Reason
        | Dimension::Provider
        | Dimension::Model
        | Dimension::Upstream => Some(dimension.name()),
        Dimension::Hour | Dimension::Day => None,
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
        let why = format!(
            "an id has 32 hexadecimal digits; its beginning is enough if no other id has it, from \
             {FEWEST_DIGITS} digits on"
        );
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

/// Answers [`crate::Backend::judged_otherwise`].
pub(crate) fn judged_otherwise(
    from: &mut impl Reads,
    rules: &[u32],
    after: &str,
    most: usize,
) -> Result<Vec<Stored>, Error> {
    check_limit(most)?;
    let after = match after {
        "" => None,
        id => Some(crate::load::key(id).ok_or_else(|| Error::Query(format!("invalid id `{id}`")))?),
    };
    let flavor = from.flavor()?;
    let rows = from.read(&sql::judged_otherwise(&flavor, rules, after.as_deref(), most))?;
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
