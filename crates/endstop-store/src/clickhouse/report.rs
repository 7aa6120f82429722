//! Reports, counted from the rows themselves. Hours whose rows have been deleted come from the sums that were kept.

use std::collections::{BTreeMap, HashMap};

use endstop::Reason;
use jiff::tz::TimeZone;

use super::schema::{Dialect, Schema};
use super::{ClickHouse, Deleted};
use crate::ask::{self, Groups, MOST_GROUPS, Reads};
use crate::axis::Axis;
use crate::columns::{Cell, time};
use crate::error::Error;
use crate::query::{BOUNDS_US, Dimension, Filter, Period, Query, Report, WordSeen};
use crate::sql::{Flavor, Sql, Value};
use crate::sums::{self, COUNTERS, MEASURES, NAMES};

/// The columns of a finish reason that are counted.
const WORD: [&str; 6] =
    ["provider", "model", "dialect", "native_field", "native_finish_reason", "reason"];
/// Hours of all time zones begin with a quarter of an hour. Old servers have no quick function for other starts.
const QUARTER: i64 = 900_000;
/// The bound that stands for responses without a time.
const NO_TIME: i64 = -1;

/// Answers [`crate::Store::report`].
pub(super) fn report(from: &mut ClickHouse, query: &Query) -> Result<Report, Error> {
    ask::report_by(query, |period, zone, shift| gather(from, query, period, zone, shift))
}

fn gather(
    from: &mut ClickHouse,
    query: &Query,
    period: Period,
    zone: &TimeZone,
    shift: i64,
) -> Result<(Period, Groups), Error> {
    let Schema { dialect, .. } = from.schema()?;
    let flavor = from.counting()?;
    let Deleted { dropped, .. } = from.deleted()?;
    let axis = Axis::new(&query.by, period, zone, shift, dropped)?;
    let asked = Asked { query, axis: &axis, dialect };
    let mut groups = Groups::new();
    let mut all = 0;
    for statement in asked.statements(&flavor, dropped)? {
        let rows = from.read(&statement)?;
        all += rows.len();
        if all > MOST_GROUPS {
            return Err(ask::too_many_groups());
        }
        rows.into_iter().for_each(|row| take(&mut groups, query, &axis, row));
    }
    Ok((axis.period(), groups))
}

/// A question about one period.
struct Asked<'q> {
    query: &'q Query,
    axis: &'q Axis,
    dialect: Dialect,
}

impl Asked<'_> {
    /// Returns the statement for the rows, and the one for the sums that were kept.
    fn statements<'f>(&self, flavor: &'f Flavor, dropped: i64) -> Result<Vec<Sql<'f>>, Error> {
        let Period { since, until } = self.axis.period();
        let [since, until] = [since, until].map(time);
        let mut statements = Vec::new();
        if until > dropped {
            statements.push(self.of_rows(flavor, (since.max(dropped), until))?);
        }
        if since < dropped {
            statements.push(self.of_kept(flavor, (since, until.min(dropped)))?);
        }
        Ok(statements)
    }

    /// Returns one row for each group and reason: the start of its segment, its values, its reason, its numbers.
    fn of_rows<'f>(&self, flavor: &'f Flavor, range: (i64, i64)) -> Result<Sql<'f>, Error> {
        let (values, keys) = self.keys();
        let numbers: Vec<String> = (0..MEASURES).map(number).collect();
        let text = format!(
            "SELECT s, {keys}r, {} FROM (SELECT {} AS s, {values}reason AS r, {} FROM {} WHERE {}",
            numbers.join(", "),
            self.segment(),
            counted(self.dialect),
            flavor.table,
            flavor.known
        );
        let mut sql = Sql::new(flavor, &text);
        restrict(&mut sql, range, &self.query.filter)?;
        let limit = MOST_GROUPS + 1;
        sql.push(&format!(" GROUP BY s, {keys}r, f, u) GROUP BY s, {keys}r LIMIT {limit}"));
        Ok(sql)
    }

    /// Returns the same from the sums that were kept.
    fn of_kept<'f>(&self, flavor: &'f Flavor, range: (i64, i64)) -> Result<Sql<'f>, Error> {
        let (values, keys) = self.keys();
        let numbers: Vec<String> = NAMES.iter().map(|name| format!("sum({name})")).collect();
        let text = format!(
            "SELECT {} AS s, {values}reason AS r, {} FROM endstop_kept FINAL WHERE 1",
            self.segment(),
            numbers.join(", ")
        );
        let mut sql = Sql::new(flavor, &text);
        restrict(&mut sql, range, &self.query.filter)?;
        sql.push(&format!(" GROUP BY s, {keys}r LIMIT {}", MOST_GROUPS + 1));
        Ok(sql)
    }

    /// Returns the values of the dimensions with names that no column has, and the names, each with a comma.
    fn keys(&self) -> (String, String) {
        let by = self.query.by.iter().enumerate();
        let values = by.clone().map(|(at, by)| format!("{} AS k{at}, ", value(*by))).collect();
        (values, by.map(|(at, _)| format!("k{at}, ")).collect())
    }

    /// Returns the start of the segment of a row.
    fn segment(&self) -> String {
        match self.axis.starts() {
            [start] => format!("toInt64({start})"),
            [first, rest @ ..]
                if self.dialect == Dialect::Old
                    && rest.iter().all(|start| start % QUARTER == 0) =>
            {
                let time = self.dialect.read_time("created_at");
                format!("greatest(intDiv({time}, {QUARTER}) * {QUARTER}, toInt64({first}))")
            }
            starts => self.dialect.round_down(&self.dialect.read_time("created_at"), starts),
        }
    }
}

fn restrict(sql: &mut Sql<'_>, (since, until): (i64, i64), filter: &Filter) -> Result<(), Error> {
    sql.compare("created_at", ">=", Value::Int(since));
    sql.compare("created_at", "<", Value::Int(until));
    sql.fit_rows(filter)
}

/// Returns the value of a dimension; that of a time is its segment.
fn value(by: Dimension) -> &'static str {
    match by {
        Dimension::Streamed => "if(streamed = 1, 'true', 'false')",
        Dimension::Hour | Dimension::Day => "''",
        Dimension::FinishReason
        | Dimension::Reason
        | Dimension::Provider
        | Dimension::Model
        | Dimension::Team
        | Dimension::Key
        | Dimension::Upstream
        | Dimension::Action
        | Dimension::Status
        | Dimension::Dialect => by.column().unwrap_or("''"),
    }
}

/// Returns what is counted of rows that have the same times: the bounds of the times as `f` and `u`, and the counters as
/// `c0` and so on.
pub(super) fn counted(dialect: Dialect) -> String {
    let bounds = BOUNDS_US.iter().map(|bound| bound.cast_signed());
    let bounds: Vec<i64> = [NO_TIME, 0].into_iter().chain(bounds).collect();
    let of = |fits: fn(Reason) -> bool| {
        let names = Reason::ALL.into_iter().filter(|reason| fits(*reason));
        let names: Vec<String> = names.map(|reason| format!("'{}'", reason.name())).collect();
        format!("reason IN ({})", names.join(", "))
    };
    let tokens = |name: &str| format!("least(ifNull({name}, 0), {})", 1_i64 << 40);
    let (success, short) = (of(Reason::is_success), of(sums::is_short));
    let first_byte = format!("ifNull(first_byte_us, {NO_TIME})");
    let total = format!("if(total_us > 0, total_us, {NO_TIME})");
    let mut counted = format!(
        "{} AS f, {} AS u",
        dialect.round_down(&first_byte, &bounds),
        dialect.round_down(&total, &bounds)
    );
    let counters = [
        "count()".to_owned(),
        "countIf(attempt > 1)".to_owned(),
        format!("countIf(attempt > 1 AND {success})"),
        format!("sum({})", tokens("tokens_in")),
        format!("sum({})", tokens("tokens_out")),
        format!("sum({})", tokens("tokens_reasoning")),
        format!("sum({})", tokens("tokens_cached")),
        format!("sumIf({}, {short})", tokens("tokens_out")),
        "countIf(tokens_out IS NOT NULL)".to_owned(),
    ];
    for (at, counter) in counters.iter().enumerate() {
        counted.push_str(&format!(", {counter} AS c{at}"));
    }
    counted
}

/// Returns a sum, by its place, from what [`counted`] gives.
pub(super) fn number(at: usize) -> String {
    let Some(bucket) = at.checked_sub(COUNTERS.len()) else { return format!("sum(c{at})") };
    let buckets = BOUNDS_US.len() + 1;
    let (times, bucket) = if bucket < buckets { ("f", bucket) } else { ("u", bucket - buckets) };
    let bound = bucket.checked_sub(1).and_then(|at| BOUNDS_US.get(at)).copied().unwrap_or(0);
    format!("sumIf(c0, {times} = {bound})")
}

fn take(groups: &mut Groups, query: &Query, axis: &Axis, row: Vec<Cell<'static>>) {
    let mut cells = row.into_iter();
    let mut next = || cells.next().unwrap_or(Cell::Null);
    let Some(segment) = next().as_int().and_then(|start| axis.of_time(start)) else { return };
    let key: Vec<Option<String>> = query
        .by
        .iter()
        .map(|by| {
            let value = next().into_text();
            axis.label(segment, *by).map_or(value, |at| Some(at.to_string()))
        })
        .collect();
    let reason = next().into_string();
    let numbers = std::array::from_fn(|_| next().as_int().unwrap_or(0));
    groups.entry(key).or_default().add(&sums::sums(&reason, &numbers));
}

/// Answers [`crate::Store::words`].
pub(super) fn words(
    from: &mut ClickHouse,
    filter: &Filter,
    period: Period,
    limit: usize,
) -> Result<Vec<WordSeen>, Error> {
    ask::check_words(filter, period, limit)?;
    let flavor = from.counting()?;
    let Deleted { dropped, .. } = from.deleted()?;
    let axis = Axis::new(&[], period, &TimeZone::UTC, 0, dropped)?;
    let Period { since, until } = axis.period();
    let [since, until] = [since, until].map(time);
    let mut counts: BTreeMap<[String; 6], u64> = BTreeMap::new();
    let columns = WORD.map(|name| format!("ifNull({name}, '')")).join(", ");
    let group = WORD.join(", ");
    let sources = [
        (flavor.table, "count()", (since.max(dropped), until)),
        ("endstop_kept FINAL", "sum(count)", (since, until.min(dropped))),
    ];
    for (table, count, range) in sources.into_iter().filter(|(_, _, range)| range.0 < range.1) {
        let text = format!(
            "SELECT {columns}, {count} FROM {table} WHERE native_finish_reason IS NOT NULL"
        );
        let mut sql = Sql::new(&flavor, &text);
        restrict(&mut sql, range, filter)?;
        sql.push(&format!(" GROUP BY {group}"));
        for row in from.read(&sql)? {
            let (word, rest) = parts(row);
            let count = rest.first().and_then(Cell::as_count).unwrap_or(0);
            *counts.entry(word).or_default() += count;
        }
    }
    let (seen, oldest) = seen(from, &flavor)?;
    let is_older = oldest.is_some_and(|oldest| oldest < since);
    let mut words: Vec<WordSeen> = counts
        .into_iter()
        .map(|(word, count)| {
            let (first, last) = seen.get(&word).copied().unwrap_or((since, until - 1));
            let [provider, model, dialect, field, word, reason] = word;
            let [first_seen, last_seen] = [first, last].map(|at| u64::try_from(at).unwrap_or(0));
            let is_new = is_older && first >= since;
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
        })
        .collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.first_seen));
    words.truncate(limit);
    Ok(words)
}

type Seen = HashMap<[String; 6], (i64, i64)>;

/// Returns the first and the last time of each word, and the first of any.
fn seen(from: &mut ClickHouse, flavor: &Flavor) -> Result<(Seen, Option<i64>), Error> {
    let parts_of = "provider, model, dialect, field, word, reason";
    let text = format!(
        "SELECT {parts_of}, minMerge(first_seen), maxMerge(last_seen) FROM endstop_words GROUP BY {parts_of}"
    );
    let mut seen = Seen::new();
    for row in from.read(&Sql::new(flavor, &text))? {
        let (word, rest) = parts(row);
        if let [first, last] = rest.as_slice() {
            let [first, last] = [first, last].map(|at| at.as_int().unwrap_or_default());
            seen.insert(word, (first, last));
        }
    }
    let oldest = seen.values().map(|(first, _)| *first).min();
    Ok((seen, oldest))
}

fn parts(row: Vec<Cell<'static>>) -> ([String; 6], Vec<Cell<'static>>) {
    let mut cells = row.into_iter();
    let word = std::array::from_fn(|_| cells.next().unwrap_or(Cell::Null).into_string());
    (word, cells.collect())
}
