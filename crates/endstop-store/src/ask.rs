//! Answers questions from whatever a backend reads: the same for all of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use endstop::Reason;
use endstop::vocabulary::Vocabulary;
use jiff::tz::TimeZone;

use crate::axis::{self, Axis};
use crate::columns::{Cell, Row, stored, stored_by};
use crate::delta::{self, Delta, Seen};
use crate::error::Error;
use crate::query::{Dimension, Filter, Group, Period, Query, Report, Sums, Wanted, WordSeen};
use crate::series::{self, PARTS, WORD, decode};
use crate::sink::Stored;
use crate::sql::{self, Flavor, Sql};
use crate::sums::{self, HOUR, MEASURES, Numbers};

/// The most groups or rows that are answered.
pub(crate) const MOST: usize = 10_000;
/// The most groups that are added up.
pub(crate) const MOST_GROUPS: usize = 200_000;
/// The most dimensions.
const MOST_DIMENSIONS: usize = 4;
/// The names of what a gateway does with a response.
const ACTIONS: [&str; 4] = ["passed", "warned", "failed", "refused"];
/// The fewest digits of an id that are enough to look for it.
const FEWEST_DIGITS: usize = 6;
/// The longest period: a hundred years.
const LONGEST: u64 = 100 * 366 * 86_400_000;

/// Reads of a backend.
pub(crate) trait Reads {
    /// Returns how it is asked.
    fn flavor(&mut self) -> Result<Flavor, Error>;

    /// Returns all rows of a statement.
    fn read(&mut self, sql: &Sql<'_>) -> Result<Vec<Vec<Cell<'static>>>, Error>;

    /// Adds each row of several statements, with the number of its statement, to what `start` makes. All
    /// are read as of one moment.
    fn read_each<T>(
        &mut self,
        statements: &[Sql<'_>],
        start: impl Fn() -> T,
        add: impl Fn(&mut T, usize, Vec<Cell<'static>>),
    ) -> Result<T, Error>;
}

type Key = Vec<Option<String>>;

/// The sums of each group.
pub(crate) type Groups = HashMap<Key, Sums>;

/// Answers [`crate::Store::report`].
pub(crate) fn report(from: &mut impl Reads, query: &Query) -> Result<Report, Error> {
    report_by(query, |period, zone, shift| {
        let flavor = from.flavor()?;
        gather(from, &flavor, query, period, zone, shift)
    })
}

/// Answers [`crate::Store::report`] from the groups of each period. What gathers them returns the period that was
/// counted, and names times as if they were so much later.
pub(crate) fn report_by(
    query: &Query,
    mut gather: impl FnMut(Period, &TimeZone, i64) -> Result<(Period, Groups), Error>,
) -> Result<Report, Error> {
    check(query)?;
    let zone = axis::zone(query.zone.as_deref())?;
    let now = gather(query.period, &zone, 0)?;
    let Some(wanted) = query.before else { return Ok(arrange(query, now, None)) };
    // Hours and days stand beside those of the period that is asked for.
    let [now_since, since] = [query.period.since, wanted.since].map(crate::columns::time);
    let shift = (now_since - since + HOUR / 2).div_euclid(HOUR) * HOUR;
    let before = gather(wanted, &zone, shift)?;
    Ok(arrange(query, now, Some(before)))
}

/// Checks a question about many responses.
pub(crate) fn check(query: &Query) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Query(why));
    if query.by.len() > MOST_DIMENSIONS {
        return refuse(format!("a report groups by at most {MOST_DIMENSIONS} names"));
    }
    if query.by.iter().enumerate().any(|(at, by)| query.by.iter().skip(at + 1).any(|it| it == by)) {
        return refuse("a report cannot group by the same name twice".to_owned());
    }
    check_limit(query.limit)?;
    check_filter(&query.filter)?;
    for period in [Some(query.period), query.before].into_iter().flatten() {
        check_period(period)?;
    }
    axis::zone(query.zone.as_deref()).map(drop)
}

/// Checks a question for rows.
pub(crate) fn check_wanted(wanted: &Wanted) -> Result<(), Error> {
    check_limit(wanted.limit)?;
    check_filter(&wanted.filter)?;
    check_name("action", wanted.action.as_deref(), ACTIONS.into_iter())?;
    wanted.period.map_or(Ok(()), check_period)
}

/// Checks the names that only we give, so that a slip of the pen is not answered with nothing.
fn check_filter(filter: &Filter) -> Result<(), Error> {
    let reasons = Reason::ALL.into_iter().map(Reason::name);
    check_name("reason", filter.reason.as_deref(), reasons)?;
    let words = Reason::ALL.into_iter().map(|reason| Vocabulary::FinishReason.spell(reason));
    check_name("finish reason", filter.finish_reason.as_deref(), words)
}

fn check_name(
    what: &str,
    wanted: Option<&str>,
    known: impl Iterator<Item = &'static str>,
) -> Result<(), Error> {
    let Some(wanted) = wanted else { return Ok(()) };
    let mut known: Vec<&str> = known.collect();
    if wanted == "null" || wanted.contains('*') || known.contains(&wanted) {
        return Ok(());
    }
    let near = endstop::nearest(wanted, known.iter().copied());
    let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    known.sort_unstable();
    known.dedup();
    let known = known.join(", ");
    Err(Error::Query(format!("unknown {what} `{wanted}`: {near}expected one of {known}")))
}

fn check_limit(limit: usize) -> Result<(), Error> {
    if (1..=MOST).contains(&limit) {
        return Ok(());
    }
    Err(Error::Query(format!("the limit is from 1 to {MOST}, not {limit}")))
}

fn check_period(period: Period) -> Result<(), Error> {
    if period.since >= period.until {
        return Err(Error::Query("the period ends before it begins".to_owned()));
    }
    if period.until - period.since > LONGEST {
        return Err(Error::Query("the period is longer than a hundred years".to_owned()));
    }
    Ok(())
}

/// Returns the period that was counted, and the sums of each of its groups; times are named as if they
/// were `shift` later.
fn gather(
    from: &mut impl Reads,
    flavor: &Flavor,
    query: &Query,
    period: Period,
    zone: &TimeZone,
    shift: i64,
) -> Result<(Period, Groups), Error> {
    let Query { by, filter, .. } = query;
    // Rows are deleted now and then, and hardly ever twice while a report is made.
    for _ in 0..3 {
        let deleted = state(from, &sql::deleted(flavor))?;
        let axis = Axis::new(by, period, zone, shift, deleted)?;
        let statements = statements(flavor, &axis, filter)?;
        let columns: Vec<_> = by.iter().map(|by| by.column()).collect();
        let start = || Gathered::new(by, &columns, &axis);
        let gathered = from.read_each(&statements, start, Gathered::take)?;
        if gathered.deleted == deleted {
            return Ok((axis.period(), gathered.groups()?));
        }
    }
    Err(being_deleted())
}

fn state(from: &mut impl Reads, sql: &Sql<'_>) -> Result<i64, Error> {
    let rows = from.read(sql)?;
    Ok(rows.first().and_then(|row| row.first()?.as_int()).unwrap_or(0))
}

fn being_deleted() -> Error {
    Error::Query("rows are being deleted: ask again in a moment".to_owned())
}

/// Returns the statements that [`Gathered`] takes the rows of.
fn statements<'f>(flavor: &'f Flavor, axis: &Axis, filter: &Filter) -> Result<[Sql<'f>; 6], Error> {
    Ok([
        sql::deleted(flavor),
        sql::series(flavor, filter)?,
        sql::sums(flavor, axis.hours(), filter)?,
        sql::chunks(flavor, axis.hours()),
        sql::deltas(flavor),
        sql::summed(flavor, &axis.cut(), filter)?,
    ])
}

/// Sums, added up while they are read.
struct Gathered<'q> {
    by: &'q [Dimension],
    /// Columns of the values that groups are told apart by; none of a time.
    columns: &'q [Option<&'static str>],
    axis: &'q Axis,
    deleted: i64,
    /// Series that fit, and which of `kinds` each is of.
    series: HashMap<i64, usize>,
    /// The values that are asked for, and the reason, each combination once.
    kinds: Vec<(Key, String)>,
    known: HashMap<(Key, String), usize>,
    sums: HashMap<(usize, usize), Numbers>,
    /// Where words are asked for: the first and the last time of each, and the first time of any.
    seen: HashMap<[String; 6], (i64, i64)>,
    oldest: Option<i64>,
    damaged: bool,
}

impl<'q> Gathered<'q> {
    fn new(by: &'q [Dimension], columns: &'q [Option<&'static str>], axis: &'q Axis) -> Self {
        Self {
            by,
            columns,
            axis,
            deleted: 0,
            series: HashMap::new(),
            kinds: Vec::new(),
            known: HashMap::new(),
            sums: HashMap::new(),
            seen: HashMap::new(),
            oldest: None,
            damaged: false,
        }
    }

    /// Takes a row of one of the statements, in the order of [`statements`].
    fn take(&mut self, statement: usize, row: Vec<Cell<'static>>) {
        if self.sums.len() > MOST_GROUPS {
            return;
        }
        let mut delta = Delta::default();
        match (statement, row.as_slice()) {
            (0, [value]) => self.deleted = value.as_int().unwrap_or(0),
            (1, [id, ..]) => {
                let id = id.as_int().unwrap_or_default();
                let parts: Vec<Option<String>> =
                    row.into_iter().skip(1).map(|part| decode(&part.into_string())).collect();
                let kind = self.kind(&parts);
                self.series.insert(id, kind);
            }
            (2, [hour, series, numbers @ ..]) => {
                let mut all = [0; MEASURES];
                all.iter_mut().zip(numbers).for_each(|(to, by)| *to = by.as_int().unwrap_or(0));
                let [hour, series] = [hour, series].map(|it| it.as_int().unwrap_or_default());
                self.add(hour, series, &all);
            }
            (3, [Cell::Int(hour), Cell::Int(chunk), Cell::Bytes(packed)]) => {
                self.damaged |= delta.unpack_chunk(*hour, *chunk, packed).is_none();
            }
            (4, [Cell::Bytes(packed)]) => self.damaged |= delta.unpack(packed).is_none(),
            (5, _) => self.add_row(&stored_by(sql::summed_columns(), row)),
            (6, [oldest]) => self.is_as_old_as(oldest.as_int()),
            (7, _) => {
                let mut cells = row.into_iter();
                let mut next = || cells.next().unwrap_or(Cell::Null);
                let word = std::array::from_fn(|_| next().into_string());
                let [count, first, last] =
                    std::array::from_fn(|_| next().as_int().unwrap_or_default());
                self.see(word, Seen { count, first, last });
            }
            _ => self.damaged = true,
        }
        for (word, seen) in delta.words() {
            self.see(word, seen);
        }
        for ((hour, series), numbers) in &delta.lines {
            self.add(*hour, *series, numbers);
        }
    }

    /// Returns the number of a combination of values, from all values of a series.
    fn kind(&mut self, parts: &[Option<String>]) -> usize {
        let part = |name: &str| {
            let at = PARTS.iter().position(|known| *known == name);
            at.and_then(|at| parts.get(at)).cloned().flatten()
        };
        let key: Key = self.columns.iter().map(|column| column.and_then(part)).collect();
        let kind = (key, part("reason").unwrap_or_default());
        let Self { known, kinds, .. } = self;
        *known.entry(kind).or_insert_with_key(|kind| {
            kinds.push(kind.clone());
            kinds.len() - 1
        })
    }

    fn add(&mut self, hour: i64, series: i64, numbers: &Numbers) {
        let segment = self.axis.of_hour(hour);
        let (Some(segment), Some(kind)) = (segment, self.series.get(&series)) else { return };
        let sums = self.sums.entry((segment, *kind)).or_insert([0; MEASURES]);
        sums::add(sums, numbers, 1);
    }

    fn add_row(&mut self, stored: &Stored) {
        let row = Row::from(stored);
        let at = crate::columns::time(stored.record.created_at);
        let Some(segment) = self.axis.of_time(at) else { return };
        let parts = series::values(&row).map(|value| value.map(std::borrow::Cow::into_owned));
        let kind = self.kind(&parts);
        let sums = self.sums.entry((segment, kind)).or_insert([0; MEASURES]);
        sums::count(sums, &row, sums::Class::of(&stored.record.reason), 1);
    }

    fn see(&mut self, mut word: [String; 6], seen: Seen) {
        if self.columns != WORD {
            return;
        }
        let [_, _, _, field, ..] = &mut word;
        field.truncate(series::short_field(field).len());
        self.is_as_old_as((seen.count > 0).then_some(seen.first));
        let (first, last) = self.seen.entry(word).or_insert((seen.first, seen.last));
        *first = seen.first.min(*first);
        *last = seen.last.max(*last);
    }

    /// Notes the time of a word, if it is the first so far.
    fn is_as_old_as(&mut self, first: Option<i64>) {
        self.oldest = [self.oldest, first].into_iter().flatten().min();
    }

    /// Returns the words with their counts, and when each was seen.
    fn words(self) -> Result<Vec<WordSeen>, Error> {
        self.check()?;
        let mut counts: BTreeMap<[String; 6], i64> = BTreeMap::new();
        for ((_, kind), numbers) in &self.sums {
            let Some((key, _)) = self.kinds.get(*kind) else { continue };
            let word: Result<[Option<String>; 6], _> = key.clone().try_into();
            // A response without a word is in no list of words.
            let Ok(word @ [_, _, _, _, Some(_), _]) = word else { continue };
            let count = numbers.first().copied().unwrap_or_default();
            *counts.entry(word.map(Option::unwrap_or_default)).or_default() += count;
        }
        let Period { since, until } = self.axis.period();
        let time = crate::columns::time;
        let unseen = (time(since), time(until) - 1);
        let is_older = self.oldest.is_some_and(|oldest| oldest < time(since));
        let word = |(word, count): ([String; 6], i64)| {
            let (first, last) = self.seen.get(&word).copied().unwrap_or(unseen);
            let [provider, model, dialect, field, word, reason] = word;
            let [first_seen, last_seen, count] =
                [first, last, count].map(|number| u64::try_from(number).unwrap_or(0));
            let is_new = is_older && first_seen >= since;
            WordSeen {
                provider,
                model,
                dialect,
                field,
                word,
                reason,
                count,
                first_seen,
                last_seen,
                is_new,
            }
        };
        let mut words: Vec<WordSeen> =
            counts.into_iter().filter(|(_, count)| *count > 0).map(word).collect();
        words.sort_by_key(|word| Reverse(word.first_seen));
        Ok(words)
    }

    fn check(&self) -> Result<(), Error> {
        if self.sums.len() > MOST_GROUPS {
            return Err(too_many_groups());
        }
        if self.damaged {
            return Err(Error::Query(delta::DAMAGED.to_owned()));
        }
        Ok(())
    }

    fn groups(self) -> Result<Groups, Error> {
        self.check()?;
        let mut groups = Groups::new();
        for ((segment, kind), numbers) in &self.sums {
            let Some((parts, reason)) = self.kinds.get(*kind) else { continue };
            if numbers.first().is_none_or(|count| *count <= 0) {
                continue;
            }
            let key = self.by.iter().zip(parts).map(|(by, part)| {
                self.axis
                    .label(*segment, *by)
                    .map_or_else(|| part.clone(), |at| Some(at.to_string()))
            });
            groups.entry(key.collect()).or_default().add(&sums::sums(reason, numbers));
        }
        Ok(groups)
    }
}

pub(crate) fn too_many_groups() -> Error {
    Error::Query(format!("more than {MOST_GROUPS} groups: ask for a shorter period, or for less"))
}

/// Puts groups in order and leaves out those over the limit.
fn arrange(
    query: &Query,
    (period, now): (Period, Groups),
    before: Option<(Period, Groups)>,
) -> Report {
    let (before_period, before) = before.unzip();
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
    Report { period, before: before_period, groups, total, left_out }
}

/// Answers [`crate::Store::endings`].
pub(crate) fn endings(from: &mut impl Reads, wanted: &Wanted) -> Result<Vec<Stored>, Error> {
    endings_by(
        from,
        wanted,
        |from, flavor| {
            if flavor.has_time_index { Ok(None) } else { newest(from, flavor) }
        },
    )
}

/// Answers [`crate::Store::endings`]. `newest` finds about the time of the newest row, where a short period before it
/// is to be tried first.
pub(crate) fn endings_by<R: Reads>(
    from: &mut R,
    wanted: &Wanted,
    newest: impl FnOnce(&mut R, &Flavor) -> Result<Option<u64>, Error>,
) -> Result<Vec<Stored>, Error> {
    check_wanted(wanted)?;
    let flavor = from.flavor()?;
    let newest = newest(from, &flavor)?;
    let mut rows = Vec::new();
    for period in windows(newest, wanted.period) {
        rows = from.read(&sql::endings(&flavor, &Wanted { period, ..wanted.clone() })?)?;
        if rows.len() >= wanted.limit {
            break;
        }
    }
    Ok(rows.into_iter().map(stored).collect())
}

/// Returns the time of the row with the highest id, which is about that of the newest one.
fn newest(from: &mut impl Reads, flavor: &Flavor) -> Result<Option<u64>, Error> {
    let rows = from.read(&sql::newest(flavor))?;
    Ok(rows.first().and_then(|row| row.first()?.as_count()))
}

/// Returns the periods to look for the newest rows in, until there are enough. Where no index has the rows
/// in the order of their times, all rows of a period are sorted, so that a short one before the newest row
/// is tried first.
fn windows(newest: Option<u64>, wanted: Option<Period>) -> Vec<Option<Period>> {
    let mut windows = Vec::new();
    if let Some(newest) = newest {
        let (since, until) = wanted.map_or((0, u64::MAX), |it| (it.since, it.until));
        for minutes in [1, 60, 24 * 60, 30 * 24 * 60] {
            let from = newest.min(until).saturating_sub(minutes * 60_000);
            if from > since {
                windows.push(Some(Period { since: from, until }));
            }
        }
    }
    windows.push(wanted);
    windows
}

/// Answers [`crate::Store::ending`].
pub(crate) fn ending(from: &mut impl Reads, id: &str) -> Result<Option<Stored>, Error> {
    let digits = digits(id)?;
    let flavor = from.flavor()?;
    let (low, high) = ids(&digits);
    let rows = from.read(&sql::between(&flavor, &low, &high))?;
    only(rows, &digits)
}

/// Returns the digits of an id, or of its beginning.
pub(crate) fn digits(id: &str) -> Result<String, Error> {
    let digits = id.replace('-', "").to_ascii_lowercase();
    let known = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !known || !(FEWEST_DIGITS..=32).contains(&digits.len()) {
        let why = format!(
            "an id has 32 hexadecimal digits; its beginning is enough if no other id has it, from \
             {FEWEST_DIGITS} digits on"
        );
        return Err(Error::Query(why));
    }
    Ok(digits)
}

/// Returns the lowest and the highest id that begin with these digits.
pub(crate) fn ids(digits: &str) -> (String, String) {
    (format!("{digits:0<32}"), format!("{digits:f<32}"))
}

/// Returns the row, if it is the only one.
pub(crate) fn only(rows: Vec<Vec<Cell<'_>>>, digits: &str) -> Result<Option<Stored>, Error> {
    let mut rows = rows.into_iter();
    match (rows.next(), rows.next()) {
        (None, _) => Ok(None),
        (Some(row), None) => Ok(Some(stored(row))),
        (Some(_), Some(_)) => {
            Err(Error::Query(format!("several ids begin with {digits}: write more of it")))
        }
    }
}

/// Answers [`crate::Store::turn`].
pub(crate) fn turn(from: &mut impl Reads, turn_id: &str) -> Result<Vec<Stored>, Error> {
    let flavor = from.flavor()?;
    let rows = from.read(&sql::turn(&flavor, turn_id, MOST))?;
    Ok(rows.into_iter().map(stored).collect())
}

/// Checks a question for rows after an id, and returns the id; none for all rows.
pub(crate) fn after_id(after: &str, most: usize) -> Result<Option<String>, Error> {
    check_limit(most)?;
    match after {
        "" => Ok(None),
        id => {
            crate::load::key(id).map(Some).ok_or_else(|| Error::Query(format!("invalid id `{id}`")))
        }
    }
}

/// Answers [`crate::Store::judged_otherwise`].
pub(crate) fn judged_otherwise(
    from: &mut impl Reads,
    rules: &[u32],
    after: &str,
    most: usize,
) -> Result<Vec<Stored>, Error> {
    let after = after_id(after, most)?;
    let flavor = from.flavor()?;
    let rows = from.read(&sql::judged_otherwise(&flavor, rules, after.as_deref(), most))?;
    Ok(rows.into_iter().map(stored).collect())
}

/// Checks a question for words.
pub(crate) fn check_words(filter: &Filter, period: Period, limit: usize) -> Result<(), Error> {
    check_limit(limit)?;
    check_period(period)?;
    check_filter(filter)
}

/// Answers [`crate::Store::words`].
pub(crate) fn words(
    from: &mut impl Reads,
    filter: &Filter,
    period: Period,
    limit: usize,
) -> Result<Vec<WordSeen>, Error> {
    check_words(filter, period, limit)?;
    let flavor = from.flavor()?;
    let since = state(from, &sql::words_since(&flavor))?;
    for _ in 0..3 {
        let deleted = state(from, &sql::deleted(&flavor))?;
        let axis = Axis::new(&[], period, &TimeZone::UTC, 0, deleted)?.with_rows_before(since);
        let words = [sql::oldest_word(&flavor), sql::words(&flavor, axis.period())];
        let statements: Vec<Sql<'_>> =
            statements(&flavor, &axis, filter)?.into_iter().chain(words).collect();
        let start = || Gathered::new(&[], &WORD, &axis);
        let gathered = from.read_each(&statements, start, Gathered::take)?;
        if gathered.deleted == deleted {
            let mut words = gathered.words()?;
            words.truncate(limit);
            return Ok(words);
        }
    }
    Err(being_deleted())
}
