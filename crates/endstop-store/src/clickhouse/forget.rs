//! Deletes old rows, in two steps.
//!
//! A row that is forgotten can no longer be asked for at once. Once a whole day is, its hourly sums are kept, and its
//! rows are deleted (`ALTER TABLE … DELETE`): at most one such change a day, because the server writes the parts
//! anew that it concerns. Until then reports count the rows themselves.

use super::schema::Schema;
use super::text::literal;
use super::{ClickHouse, DROPPED, Deleted};
use crate::columns::Cell;
use crate::error::Error;
use crate::sql::DELETED;

/// A day, in milliseconds.
const DAY: i64 = 86_400_000;

/// Answers [`crate::Sink::forget`].
pub(super) fn forget(from: &mut ClickHouse, before: i64, most: usize) -> Result<u64, Error> {
    let deleted = from.deleted()?;
    if before <= deleted.hidden {
        return Ok(0);
    }
    let (end, count) = end(from, (deleted.hidden, before), most)?;
    note(from, DELETED, end)?;
    drop_days(from, deleted, end)?;
    Ok(count)
}

/// Returns the time before which there are at most so many rows, and how many.
fn end(
    from: &mut ClickHouse,
    (since, before): (i64, i64),
    most: usize,
) -> Result<(i64, u64), Error> {
    let count = count(from, since, before)?;
    if count <= most as u64 {
        return Ok((before, count));
    }
    let Schema { dialect, .. } = from.schema()?;
    let within = within(from, since, before)?;
    let rows = from.ask(&format!(
        "SELECT {} FROM gateway_requests FINAL WHERE {within} ORDER BY created_at LIMIT {most}, 1",
        dialect.read_time("created_at"),
    ))?;
    let at = rows.first().and_then(|row| row.first()?.as_int()).unwrap_or(before);
    // Rows of one millisecond go together: at least those of the first.
    let at = if at <= first(from, since, before)? { at + 1 } else { at };
    Ok((at, self::count(from, since, at)?))
}

fn first(from: &mut ClickHouse, since: i64, before: i64) -> Result<i64, Error> {
    let Schema { dialect, .. } = from.schema()?;
    let time = dialect.read_time("min(created_at)");
    number(from, &time, since, before)
}

fn count(from: &mut ClickHouse, since: i64, before: i64) -> Result<u64, Error> {
    number(from, "count()", since, before).map(|count| u64::try_from(count).unwrap_or(0))
}

fn number(from: &mut ClickHouse, what: &str, since: i64, before: i64) -> Result<i64, Error> {
    let within = within(from, since, before)?;
    let rows = from.ask(&format!("SELECT {what} FROM gateway_requests FINAL WHERE {within}"))?;
    Ok(rows.first().and_then(|row| row.first().and_then(Cell::as_int)).unwrap_or(0))
}

fn within(from: &mut ClickHouse, since: i64, before: i64) -> Result<String, Error> {
    let Schema { dialect, .. } = from.schema()?;
    let [since, before] = [since, before].map(|at| dialect.write_time(&at.to_string()));
    Ok(format!("created_at >= {since} AND created_at < {before}"))
}

fn note(from: &mut ClickHouse, name: &str, value: i64) -> Result<(), Error> {
    let name = literal(name);
    from.change(&format!("INSERT INTO endstop_state (name, value) VALUES ({name}, {value})"))
}

/// Keeps the sums of the days before a time, and deletes their rows.
fn drop_days(from: &mut ClickHouse, deleted: Deleted, end: i64) -> Result<(), Error> {
    let end = end - end.rem_euclid(DAY);
    if end <= deleted.dropped {
        return Ok(());
    }
    let schema = from.schema()?;
    from.change(&schema.keep(deleted.dropped, end))?;
    // From now on reports take the sums: whatever becomes of the rows, nothing is counted twice.
    note(from, DROPPED, end)?;
    let own = schema.at(&schema.own("gateway_requests"));
    let before = schema.dialect.write_time(&end.to_string());
    let delete = format!("ALTER TABLE {own} DELETE WHERE created_at < {before}");
    // A server that is down deletes them when it is back.
    let parameters = if schema.cluster.is_some() { "&distributed_ddl_task_timeout=0" } else { "" };
    from.send(parameters, delete.into(), super::CHANGE).map(drop)
}

impl ClickHouse {
    /// Sets the time after which the server itself deletes rows, if the address names one.
    pub(super) fn set_ttl(&mut self, schema: &Schema) -> Result<(), Error> {
        let Some(days) = self.address.ttl_days else { return Ok(()) };
        let Some(ttl) = schema.ttl(days) else {
            return Err(self.refused("this version has no `ttl`; leave it out of the address"));
        };
        let own = schema.own("gateway_requests");
        let made = self.ask(&format!(
            "SELECT create_table_query FROM system.tables WHERE database = {} AND name = {}",
            literal(&schema.database),
            literal(&own)
        ))?;
        let made = made.into_iter().flatten().next().map(Cell::into_string).unwrap_or_default();
        if made.contains(&format!("TTL {ttl}")) {
            return Ok(());
        }
        self.change(&format!("ALTER TABLE {} MODIFY TTL {ttl}", schema.at(&own)))
    }
}
