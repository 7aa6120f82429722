//! Writes rows, deltas and sums into a SQLite file, within a transaction of the caller.

use std::borrow::Cow;

use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection};
use uuid::Uuid;

use super::{cells, flavor};
use crate::changes::{Changes, Gathering};
use crate::columns::{COLUMNS, Kind, Row, same, stored};
use crate::delta::{DAMAGED, Delta};
use crate::load::{Item, amended, rejudged};
use crate::series::{Found, Known, PARTS};
use crate::sink::Stored;
use crate::sums::NAMES;

/// The most deltas, or old chunks, that are folded at once.
const FOLD: usize = 500;
/// Rows of one insert. SQLite opens the table and its indexes once for all of them.
const ROWS: usize = 10;

/// Statements, made once.
pub(crate) struct Text {
    /// One row that may be there.
    insert: String,
    /// [`ROWS`] rows that may be there.
    insert_many: String,
    /// The newest ids, by the order in which they were written.
    newest: &'static str,
    select: String,
    update: String,
    series: String,
    new_series: String,
    sums: String,
}

const WORD: &str = "INSERT INTO endstop_words \
    (provider, model, dialect, field, word, reason, seen, first_seen, last_seen) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET \
    first_seen = min(first_seen, excluded.first_seen), \
    last_seen = max(last_seen, excluded.last_seen), seen = seen + excluded.seen";

impl Text {
    pub(crate) fn new() -> Self {
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
        let sets: Vec<String> =
            names.iter().zip(&places).map(|(n, p)| format!("{n} = {p}")).collect();
        let is: Vec<String> = PARTS.iter().map(|name| format!("{name} = ?")).collect();
        let added: Vec<String> =
            NAMES.iter().map(|name| format!("{name} = {name} + excluded.{name}")).collect();
        let row = format!("({})", vec!["?"; names.len()].join(", "));
        // `ON CONFLICT DO NOTHING` would do the same, but could fail in the midst of many rows, for which SQLite
        // would keep a journal.
        let insert = |rows: usize| {
            let (columns, rows) = (names.join(", "), vec![row.as_str(); rows].join(", "));
            format!("INSERT OR IGNORE INTO gateway_requests ({columns}) VALUES {rows}")
        };
        Self {
            insert: insert(1),
            insert_many: insert(ROWS),
            newest: "SELECT id FROM gateway_requests WHERE rowid > ?",
            select: format!(
                "SELECT {} FROM gateway_requests WHERE id = ?1 AND sequence >= 0",
                flavor().columns()
            ),
            update: format!("UPDATE gateway_requests SET {} WHERE id = ?1", sets.join(", ")),
            series: format!("SELECT id FROM endstop_series WHERE {}", is.join(" AND ")),
            new_series: format!(
                "INSERT INTO endstop_series ({}) VALUES ({})",
                PARTS.join(", "),
                vec!["?"; PARTS.len()].join(", ")
            ),
            sums: format!(
                "INSERT INTO endstop_sums (hour, series, {}) VALUES ({}) ON CONFLICT DO UPDATE SET {}",
                NAMES.join(", "),
                vec!["?"; 2 + NAMES.len()].join(", "),
                added.join(", ")
            ),
        }
    }
}

/// Writes a batch. Returns how many rows are new, and how many say more now.
pub(crate) fn load(
    connection: &Connection,
    text: &Text,
    known_series: &Known,
    items: &[Item<'_>],
) -> rusqlite::Result<((u64, u64), Found)> {
    let (new, known) = insert(connection, text, items)?;
    let mut olds = Vec::with_capacity(known.len());
    for item in known {
        olds.push((find(connection, text, &item.key)?, item));
    }
    let mut changes = Gathering::default();
    new.iter().for_each(|item| changes.add(&item.row));
    let mut count = 0;
    let mut update = connection.prepare_cached(&text.update)?;
    for (old, item) in &olds {
        let Some(old) = old else { continue };
        let Some(row) = amended(old, &item.row) else { continue };
        write_row(&mut update, &item.key, &row)?;
        changes.take(&Row::from(old));
        changes.add(&row);
        count += 1;
    }
    let found = note(connection, text, known_series, &changes.changes())?;
    Ok(((new.len() as u64, count), found))
}

/// Inserts the rows that are not there. Returns those, and the others.
fn insert<'i, 'a>(
    connection: &Connection,
    text: &Text,
    items: &'i [Item<'a>],
) -> rusqlite::Result<(Vec<&'i Item<'a>>, Vec<&'i Item<'a>>)> {
    let mut new = Vec::with_capacity(items.len());
    let mut known = Vec::new();
    let mut many = Insert::new(connection, &text.insert_many)?;
    let mut one = Insert::new(connection, &text.insert)?;
    let (groups, rest) = items.as_chunks::<ROWS>();
    for group in groups {
        let added = many.run(group)?;
        if added == ROWS {
            new.extend(group);
            continue;
        }
        let added = newest(connection, text, added)?;
        let is_new = |item: &&Item<'_>| added.contains(&item.key);
        new.extend(group.iter().filter(is_new));
        known.extend(group.iter().filter(|item| !is_new(item)));
    }
    for item in rest {
        let added = one.run(std::slice::from_ref(item))? == 1;
        if added { &mut new } else { &mut known }.push(item);
    }
    Ok((new, known))
}

/// Returns the ids of the rows that were just added, which is so many.
fn newest(connection: &Connection, text: &Text, added: usize) -> rusqlite::Result<Vec<Uuid>> {
    if added == 0 {
        return Ok(Vec::new());
    }
    // A new row has the highest number.
    let before = connection.last_insert_rowid() - added as i64;
    let mut select = connection.prepare_cached(text.newest)?;
    let ids = select.query_map([before], |row| row.get::<_, [u8; 16]>(0))?;
    ids.map(|id| id.map(Uuid::from_bytes)).collect()
}

/// A statement that inserts rows. Values stay bound, and most are those of a row before: only others are
/// bound again.
struct Insert<'c, 'a> {
    statement: CachedStatement<'c>,
    /// The rows that are bound.
    bound: Vec<Row<'a>>,
}

impl<'c, 'a> Insert<'c, 'a> {
    fn new(connection: &'c Connection, sql: &str) -> rusqlite::Result<Self> {
        Ok(Self { statement: connection.prepare_cached(sql)?, bound: Vec::new() })
    }

    /// Inserts as many rows as the statement has. Returns how many were not there.
    fn run(&mut self, items: &[Item<'a>]) -> rusqlite::Result<usize> {
        for (index, item) in items.iter().enumerate() {
            let same = self.bound.get(index).map(|bound| same(bound, &item.row));
            let same = same.unwrap_or([false; COLUMNS.len()]);
            for ((place, column), same) in (1 + index * COLUMNS.len()..).zip(&COLUMNS).zip(same) {
                if column.kind == Kind::Key {
                    self.statement.raw_bind_parameter(place, item.key.as_bytes().as_slice())?;
                } else if !same {
                    self.statement.raw_bind_parameter(place, (column.get)(&item.row))?;
                }
            }
        }
        self.bound.clear();
        self.bound.extend(items.iter().map(|item| item.row));
        self.statement.raw_execute()
    }
}

/// Writes new verdicts over rows. Returns how many were written.
pub(crate) fn rejudge(
    connection: &Connection,
    text: &Text,
    known: &Known,
    verdicts: &[Stored],
) -> rusqlite::Result<(u64, Found)> {
    let mut pairs = Vec::new();
    for verdict in verdicts {
        let Ok(key) = Uuid::try_parse(&verdict.record.id) else { continue };
        let old = find(connection, text, &key)?;
        pairs.extend(old.and_then(|old| rejudged(&old, verdict).map(|new| (key, old, new))));
    }
    let mut changes = Gathering::default();
    let mut update = connection.prepare_cached(&text.update)?;
    for (key, old, new) in &pairs {
        write_row(&mut update, key, &Row::from(new))?;
        changes.take(&Row::from(old));
        changes.add(&Row::from(new));
    }
    let found = note(connection, text, known, &changes.changes())?;
    Ok((pairs.len() as u64, found))
}

/// Folds deltas, and sums of an earlier version, into the sums and words. Returns whether there are more.
pub(crate) fn fold(connection: &Connection, text: &Text) -> rusqlite::Result<bool> {
    let mut delta = Delta::default();
    let mut last = 0;
    let mut count = 0;
    let mut select =
        connection.prepare_cached("SELECT id, packed FROM endstop_deltas ORDER BY id LIMIT ?")?;
    let mut rows = select.query([FOLD as i64])?;
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        delta.unpack(row.get_ref(1)?.as_blob()?).ok_or_else(damaged)?;
        count += 1;
    }
    let mut select = connection.prepare_cached(
        "SELECT hour, chunk, lines FROM endstop_chunks ORDER BY hour, chunk LIMIT ?",
    )?;
    let mut rows = select.query([FOLD as i64])?;
    let mut chunks: Vec<(i64, i64)> = Vec::new();
    while let Some(row) = rows.next()? {
        let place = (row.get(0)?, row.get(1)?);
        delta.unpack_chunk(place.0, place.1, row.get_ref(2)?.as_blob()?).ok_or_else(damaged)?;
        chunks.push(place);
    }
    if delta.is_empty() && count == 0 && chunks.is_empty() {
        return Ok(false);
    }
    add(connection, text, &delta)?;
    connection.prepare_cached("DELETE FROM endstop_deltas WHERE id <= ?")?.execute([last])?;
    for place in &chunks {
        connection
            .prepare_cached("DELETE FROM endstop_chunks WHERE hour = ? AND chunk = ?")?
            .execute(*place)?;
    }
    Ok(count == FOLD || chunks.len() == FOLD)
}

fn add(connection: &Connection, text: &Text, delta: &Delta) -> rusqlite::Result<()> {
    let mut sums = connection.prepare_cached(&text.sums)?;
    for ((hour, series), numbers) in &delta.lines {
        let all = [hour, series].into_iter().chain(numbers);
        sums.execute(rusqlite::params_from_iter(all))?;
    }
    let mut words = connection.prepare_cached(WORD)?;
    for (word, seen) in &delta.words() {
        for (index, part) in (1..).zip(word) {
            words.raw_bind_parameter(index, part)?;
        }
        for (index, number) in (1 + word.len()..).zip([seen.count, seen.first, seen.last]) {
            words.raw_bind_parameter(index, number)?;
        }
        words.raw_execute()?;
    }
    Ok(())
}

fn find(connection: &Connection, text: &Text, key: &Uuid) -> rusqlite::Result<Option<Stored>> {
    let mut select = connection.prepare_cached(&text.select)?;
    let mut rows = select.query([key.as_bytes().as_slice()])?;
    rows.next()?.map(cells).transpose().map(|row| row.map(stored))
}

fn write_row(
    statement: &mut CachedStatement<'_>,
    key: &Uuid,
    row: &Row<'_>,
) -> rusqlite::Result<usize> {
    for (index, column) in COLUMNS.iter().enumerate() {
        match column.kind {
            Kind::Key => statement.raw_bind_parameter(index + 1, key.as_bytes().as_slice())?,
            Kind::Time | Kind::Text | Kind::Int | Kind::Flag => {
                statement.raw_bind_parameter(index + 1, (column.get)(row))?;
            }
        }
    }
    statement.raw_execute()
}

/// Notes what changes as one delta.
pub(super) fn note(
    connection: &Connection,
    text: &Text,
    known: &Known,
    changes: &Changes<'_>,
) -> rusqlite::Result<Found> {
    let found = find_series(connection, text, known, changes)?;
    if let Some(delta) = changes.delta(known, &found) {
        connection
            .prepare_cached("INSERT INTO endstop_deltas (packed) VALUES (?)")?
            .execute([delta])?;
    }
    Ok(found)
}

/// Gives numbers to the series that have none, and finds those that are not known here yet.
fn find_series(
    connection: &Connection,
    text: &Text,
    known: &Known,
    changes: &Changes<'_>,
) -> rusqlite::Result<Found> {
    let mut found = Found::default();
    for parts in changes.unknown(known) {
        let texts = || rusqlite::params_from_iter(parts.iter().map(AsRef::<str>::as_ref));
        let mut select = connection.prepare_cached(&text.series)?;
        let mut rows = select.query(texts())?;
        let id = if let Some(row) = rows.next()? {
            row.get(0)?
        } else {
            connection.prepare_cached(&text.new_series)?.insert(texts())?
        };
        let parts = parts.clone().map(|part| Cow::Owned(part.into_owned()));
        found.insert(parts, id);
    }
    Ok(found)
}

fn damaged() -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, DAMAGED.into())
}
