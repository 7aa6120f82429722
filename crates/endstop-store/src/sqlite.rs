//! SQLite: a file of our own, written by one process at a time and read by any.
//!
//! The journal is a write-ahead log, synced at checkpoints (`synchronous = NORMAL`): a commit survives the
//! death of the process, and the last ones may be undone by a loss of power. The spool keeps what it
//! loaded until it has synced, so that they come again.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior};

use crate::ask::{self, Reads};
use crate::backend::{Backend, Entry, Loaded, Stored};
use crate::columns::{COLUMNS, Cell, Kind, Row, stored, time};
use crate::error::Error;
use crate::load::{Item, amended, items, key, rejudged};
use crate::migrations;
use crate::open::{Options, refuse};
use crate::query::{Period, Query, Report, Wanted, WordSeen};
use crate::rollup::{Changes, PARTS, measure_names};
use crate::sql::{Flavor, Sql, Value, glob_pattern};

/// Opens `sqlite:FILE` or `sqlite::memory:`.
pub(crate) fn open(url: &str, options: &Options) -> Result<Box<dyn Backend>, Error> {
    let file = url.strip_prefix("sqlite:").unwrap_or_default();
    let file = file.strip_prefix("//").unwrap_or(file);
    if file.is_empty() {
        return Err(refuse(url, "it names no file"));
    }
    if file.contains(['?', '\0']) {
        return Err(refuse(url, "a file takes no parameters"));
    }
    let memory = file == ":memory:";
    if memory && options.read_only {
        return Err(refuse(url, "what is in memory can be read by its owner only"));
    }
    let store = format!("sqlite:{file}");
    if !memory {
        prepare(Path::new(file), &store, options)?;
    }
    let access = if options.read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).and_then(|connection| {
        set_up(&connection, options)?;
        Ok(connection)
    });
    let connection = connection.map_err(|error| failure(&store, error))?;
    Ok(Box::new(Sqlite { connection, store, options: *options, text: Text::new() }))
}

/// Makes the file, readable by its owner alone; its log gets the same rights.
fn prepare(file: &Path, store: &str, options: &Options) -> Result<(), Error> {
    let io = |source| Error::Io { what: format!("cannot open {store}"), source };
    if options.read_only {
        return file.metadata().map(drop).map_err(io);
    }
    let made = OpenOptions::new().create(true).append(true).mode(0o600).open(file);
    made.map(drop).map_err(io)
}

fn set_up(connection: &Connection, options: &Options) -> rusqlite::Result<()> {
    connection.busy_timeout(options.wait)?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "cache_size", -32_000)?;
    if options.read_only {
        return Ok(());
    }
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "normal")
}

/// Statements, made once.
struct Text {
    insert: String,
    select: String,
    update: String,
    hour: String,
    word: String,
}

impl Text {
    fn new() -> Self {
        let flavor = flavor();
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
        let sets: Vec<String> =
            names.iter().zip(&places).map(|(n, p)| format!("{n} = {p}")).collect();
        let measures = measure_names();
        let sums: Vec<String> =
            measures.iter().map(|name| format!("{name} = {name} + excluded.{name}")).collect();
        let hour = vec!["?"; 1 + PARTS.len() + measures.len()].join(", ");
        Self {
            insert: format!(
                "INSERT INTO gateway_requests ({}) VALUES ({}) ON CONFLICT DO NOTHING",
                names.join(", "),
                places.join(", ")
            ),
            select: format!("SELECT {} FROM gateway_requests WHERE id = ?1", flavor.columns()),
            update: format!("UPDATE gateway_requests SET {} WHERE id = ?1", sets.join(", ")),
            hour: format!(
                "INSERT INTO endstop_hourly (hour, {}, {}) VALUES ({hour}) ON CONFLICT DO UPDATE SET {}",
                PARTS.join(", "),
                measures.join(", "),
                sums.join(", ")
            ),
            word: "INSERT INTO endstop_words \
                   (provider, dialect, field, word, reason, first_seen, last_seen, seen) \
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET \
                   first_seen = min(first_seen, excluded.first_seen), \
                   last_seen = max(last_seen, excluded.last_seen), seen = seen + excluded.seen"
                .to_owned(),
        }
    }
}

fn flavor() -> Flavor {
    Flavor {
        table: "gateway_requests",
        hourly: "endstop_hourly",
        words: "endstop_words",
        key: "id",
        place: '?',
        like: ("GLOB", ""),
        pattern: glob_pattern,
        read: |_, column| column.name.to_owned(),
        write: |_, _, place| place.to_owned(),
        types: Vec::new(),
    }
}

struct Sqlite {
    connection: Connection,
    store: String,
    options: Options,
    text: Text,
}

impl Sqlite {
    /// Does something as the only writer, whole or not at all.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection, &Text) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        if self.options.read_only {
            let why = "it was opened to be read".to_owned();
            return Err(Error::Refused { store: self.store.clone(), why });
        }
        let Self { connection, store, text, .. } = self;
        let behavior = TransactionBehavior::Immediate;
        let done = connection.transaction_with_behavior(behavior).and_then(|transaction| {
            let done = work(&transaction, text)?;
            transaction.commit()?;
            Ok(done)
        });
        done.map_err(|error| failure(store, error))
    }
}

impl Reads for Sqlite {
    fn flavor(&mut self) -> Result<Flavor, Error> {
        Ok(flavor())
    }

    fn read(&mut self, sql: &Sql<'_>) -> Result<Vec<Vec<Cell<'static>>>, Error> {
        let end = Instant::now() + self.options.timeout;
        self.connection.progress_handler(10_000, Some(move || Instant::now() >= end));
        let rows = rows(&self.connection, sql);
        self.connection.progress_handler(0, None::<fn() -> bool>);
        rows.map_err(|error| failure(&self.store, error))
    }
}

fn rows(connection: &Connection, sql: &Sql<'_>) -> rusqlite::Result<Vec<Vec<Cell<'static>>>> {
    let mut statement = connection.prepare_cached(&sql.text)?;
    let mut rows = statement.query(rusqlite::params_from_iter(&sql.values))?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(cells(row)?);
    }
    Ok(all)
}

fn cells(row: &rusqlite::Row<'_>) -> rusqlite::Result<Vec<Cell<'static>>> {
    (0..row.as_ref().column_count()).map(|index| Ok(cell(row.get_ref(index)?))).collect()
}

fn cell(value: ValueRef<'_>) -> Cell<'static> {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        ValueRef::Real(number) => Cell::Text(number.to_string().into()),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Cell::Text(String::from_utf8_lossy(text).into_owned().into())
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Int(number) => number.to_sql(),
            Self::Text(text) => text.to_sql(),
        }
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => Ok(ToSqlOutput::Borrowed(ValueRef::Null)),
            Self::Int(number) => number.to_sql(),
            Self::Flag(flag) => flag.to_sql(),
            Self::Text(text) => Ok(ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))),
        }
    }
}

impl Backend for Sqlite {
    fn migrate(&mut self) -> Result<Vec<String>, Error> {
        let store = self.store.clone();
        let foreign = self.write(|connection, _| {
            let has = |name: &str| connection.table_exists(None, name);
            Ok(has("gateway_requests")? && !has("endstop_migrations")?)
        })?;
        if foreign {
            let why = "it has a table `gateway_requests` that is not ours; name another file";
            return Err(Error::Refused { store, why: why.to_owned() });
        }
        let mut applied = Vec::new();
        for migration in &migrations::SQLITE {
            if self.write(|connection, _| apply(connection, migration))? {
                applied.push(migration.name.to_owned());
            }
        }
        Ok(applied)
    }

    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error> {
        let (items, mut loaded) = items(entries);
        if items.is_empty() {
            return Ok(loaded);
        }
        let (added, amended) = self.write(|connection, text| load(connection, text, &items))?;
        loaded.added = added;
        loaded.amended = amended;
        loaded.known += items.len() as u64 - added - amended;
        Ok(loaded)
    }

    fn report(&mut self, query: &Query) -> Result<Report, Error> {
        ask::report(self, query)
    }

    fn endings(&mut self, wanted: &Wanted) -> Result<Vec<Stored>, Error> {
        ask::endings(self, wanted)
    }

    fn ending(&mut self, id: &str) -> Result<Option<Stored>, Error> {
        ask::ending(self, id)
    }

    fn turn(&mut self, turn_id: &str) -> Result<Vec<Stored>, Error> {
        ask::turn(self, turn_id)
    }

    fn words(&mut self, period: Period, limit: usize) -> Result<Vec<WordSeen>, Error> {
        ask::words(self, period, limit)
    }

    fn forget(&mut self, before: u64, most: usize) -> Result<u64, Error> {
        self.write(|connection, _| {
            let deleted = connection
                .prepare_cached(
                    "DELETE FROM gateway_requests WHERE rowid IN (SELECT rowid FROM \
                     gateway_requests WHERE created_at < ? ORDER BY created_at LIMIT ?)",
                )?
                .execute((time(before), i64::try_from(most).unwrap_or(i64::MAX)))?;
            Ok(deleted as u64)
        })
    }

    fn judged_before(
        &mut self,
        rules: u32,
        after: &str,
        most: usize,
    ) -> Result<Vec<Stored>, Error> {
        ask::judged_before(self, rules, after, most)
    }

    fn rejudge(&mut self, verdicts: &[Stored]) -> Result<u64, Error> {
        self.write(|connection, text| rejudge(connection, text, verdicts))
    }
}

fn apply(connection: &Connection, migration: &migrations::Migration) -> rusqlite::Result<bool> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS endstop_migrations (name text PRIMARY KEY, applied_at text)",
    )?;
    let note = "INSERT INTO endstop_migrations VALUES (?, datetime('now')) ON CONFLICT DO NOTHING";
    if connection.execute(note, [migration.name])? == 0 {
        return Ok(false);
    }
    connection.execute_batch(migration.sql)?;
    Ok(true)
}

/// Gives how many rows are new, and how many say more now.
fn load(connection: &Connection, text: &Text, items: &[Item<'_>]) -> rusqlite::Result<(u64, u64)> {
    let mut new = Vec::with_capacity(items.len());
    let mut known = Vec::new();
    let mut insert = connection.prepare_cached(&text.insert)?;
    for item in items {
        if write_row(&mut insert, &item.id(), &item.row)? == 1 { &mut new } else { &mut known }
            .push(item);
    }
    let mut olds = Vec::with_capacity(known.len());
    for item in known {
        olds.push((find(connection, text, &item.id())?, item));
    }
    let mut changes = Changes::default();
    for item in &new {
        changes.add(&item.row);
    }
    let mut count = 0;
    let mut update = connection.prepare_cached(&text.update)?;
    for (old, item) in &olds {
        let Some(old) = old else { continue };
        let Some(row) = amended(old, &item.row) else { continue };
        write_row(&mut update, &item.id(), &row)?;
        changes.take(&Row::from(old));
        changes.add(&row);
        count += 1;
    }
    write_changes(connection, text, &changes)?;
    Ok((new.len() as u64, count))
}

fn rejudge(connection: &Connection, text: &Text, verdicts: &[Stored]) -> rusqlite::Result<u64> {
    let mut pairs = Vec::new();
    for verdict in verdicts {
        let Some(id) = key(&verdict.record.id) else { continue };
        let old = find(connection, text, &id)?;
        pairs.extend(old.and_then(|old| rejudged(&old, verdict).map(|new| (old, new))));
    }
    let mut changes = Changes::default();
    let mut update = connection.prepare_cached(&text.update)?;
    for (old, new) in &pairs {
        write_row(&mut update, &old.record.id, &Row::from(new))?;
        changes.take(&Row::from(old));
        changes.add(&Row::from(new));
    }
    write_changes(connection, text, &changes)?;
    Ok(pairs.len() as u64)
}

fn find(connection: &Connection, text: &Text, id: &str) -> rusqlite::Result<Option<Stored>> {
    let mut select = connection.prepare_cached(&text.select)?;
    let mut rows = select.query([id])?;
    rows.next()?.map(cells).transpose().map(|row| row.map(stored))
}

fn write_row(
    statement: &mut CachedStatement<'_>,
    id: &str,
    row: &Row<'_>,
) -> rusqlite::Result<usize> {
    for (index, column) in COLUMNS.iter().enumerate() {
        match column.kind {
            Kind::Key => statement.raw_bind_parameter(index + 1, id)?,
            Kind::Time | Kind::Text | Kind::Int | Kind::Flag => {
                statement.raw_bind_parameter(index + 1, (column.get)(row))?;
            }
        }
    }
    statement.raw_execute()
}

fn write_changes(
    connection: &Connection,
    text: &Text,
    changes: &Changes<'_>,
) -> rusqlite::Result<()> {
    let mut add = connection.prepare_cached(&text.hour)?;
    for (hour, numbers) in changes.hours() {
        add.raw_bind_parameter(1, hour.hour)?;
        for (index, part) in (2..).zip(&hour.parts) {
            add.raw_bind_parameter(index, part.as_ref())?;
        }
        for (index, number) in (2 + PARTS.len()..).zip(numbers) {
            add.raw_bind_parameter(index, number)?;
        }
        add.raw_execute()?;
    }
    let mut add = connection.prepare_cached(&text.word)?;
    for (word, seen) in changes.words() {
        for (index, part) in (1..).zip(word) {
            add.raw_bind_parameter(index, part.as_ref())?;
        }
        for (index, number) in (1 + word.len()..).zip([seen.first, seen.last, seen.count]) {
            add.raw_bind_parameter(index, number)?;
        }
        add.raw_execute()?;
    }
    Ok(())
}

/// What an error means, and what to do.
pub(crate) fn failure(store: &str, error: rusqlite::Error) -> Error {
    let store = store.to_owned();
    let said = error.to_string();
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OutOfMemory,
        ) => Error::Unavailable { store, why: said },
        Some(ErrorCode::OperationInterrupted) => {
            Error::Query("it took too long: ask for a shorter period, or for less".to_owned())
        }
        Some(ErrorCode::NotADatabase) => {
            Error::Refused { store, why: "the file is no SQLite database".to_owned() }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            let why = format!("{said}; is its directory there, and may this user write to it?");
            Error::Refused { store, why }
        }
        _ if said.contains("no such table") || said.contains("no such column") => {
            Error::Refused { store, why: format!("{said}; run `endstop migrate`") }
        }
        _ => Error::Refused { store, why: said },
    }
}
