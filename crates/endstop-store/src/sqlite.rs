//! SQLite: a file of our own, written by one process at a time and read by any.
//!
//! The journal is a write-ahead log, synced at checkpoints (`synchronous = NORMAL`): a commit survives the
//! death of the process, and the last ones may be undone by a loss of power. The spool keeps what it
//! loaded until it has synced, so that they come again.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use rusqlite::types::{ToSqlOutput, Type, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior};

use uuid::Uuid;

use crate::ask::{self, Reads};
use crate::backend::{Backend, Entry, Loaded, Stored};
use crate::columns::{COLUMNS, Cell, Kind, Row, stored, time};
use crate::error::Error;
use crate::lines::{DAMAGED, Lines};
use crate::load::{Item, amended, items, key, rejudged};
use crate::migrations;
use crate::open::{Options, refuse};
use crate::query::{Period, Query, Report, Wanted, WordSeen};
use crate::rollup::{Changes, Found, Gathering, Known, PARTS};
use crate::sql::{Flavor, Sql, Value, glob_pattern};

/// Returns the file of a SQLite store; `None` for one in memory, and for other stores.
pub(crate) fn file(url: &str) -> Option<&Path> {
    let file = url.strip_prefix("sqlite:")?;
    let file = file.strip_prefix("//").unwrap_or(file);
    (!file.is_empty() && !file.contains(['?', '\0']) && file != ":memory:").then(|| Path::new(file))
}

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
    Ok(Box::new(Sqlite {
        connection,
        store,
        options: *options,
        text: Text::new(),
        known: Known::default(),
    }))
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

const SELECT_CHUNK: &str = "SELECT lines FROM endstop_hourly WHERE hour = ? AND chunk = ?";
const WRITE_CHUNK: &str = "INSERT INTO endstop_hourly (hour, chunk, lines) VALUES (?, ?, ?) \
    ON CONFLICT DO UPDATE SET lines = excluded.lines";

/// Statements, made once.
struct Text {
    insert: String,
    select: String,
    update: String,
    series: String,
    new_series: String,
    word: String,
}

impl Text {
    fn new() -> Self {
        let flavor = flavor();
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
        let sets: Vec<String> =
            names.iter().zip(&places).map(|(n, p)| format!("{n} = {p}")).collect();
        let is: Vec<String> = PARTS.iter().map(|name| format!("{name} = ?")).collect();
        Self {
            insert: format!(
                "INSERT INTO gateway_requests ({}) VALUES ({}) ON CONFLICT DO NOTHING",
                names.join(", "),
                places.join(", ")
            ),
            select: format!("SELECT {} FROM gateway_requests WHERE id = ?1", flavor.columns()),
            update: format!("UPDATE gateway_requests SET {} WHERE id = ?1", sets.join(", ")),
            series: format!("SELECT id FROM endstop_series WHERE {}", is.join(" AND ")),
            new_series: format!(
                "INSERT INTO endstop_series ({}) VALUES ({})",
                PARTS.join(", "),
                vec!["?"; PARTS.len()].join(", ")
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
        series: "endstop_series",
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
    known: Known,
}

impl Sqlite {
    /// Does something as the only writer, whole or not at all.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection, &Text, &Known) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        if self.options.read_only {
            let why = "it was opened to be read".to_owned();
            return Err(Error::Refused { store: self.store.clone(), why });
        }
        let Self { connection, store, text, known, .. } = self;
        let behavior = TransactionBehavior::Immediate;
        let done = connection.transaction_with_behavior(behavior).and_then(|transaction| {
            let done = work(&transaction, text, known)?;
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

    fn read_both<T>(
        &mut self,
        first: &Sql<'_>,
        second: &Sql<'_>,
        start: impl Fn(Vec<Vec<Cell<'static>>>) -> T,
        add: impl Fn(&mut T, Vec<Cell<'static>>),
    ) -> Result<T, Error> {
        let end = Instant::now() + self.options.timeout;
        self.connection.progress_handler(10_000, Some(move || Instant::now() >= end));
        let done = self.connection.transaction().and_then(|transaction| {
            let mut sums = start(rows(&transaction, first)?);
            each_row(&transaction, second, |row| add(&mut sums, row))?;
            Ok(sums)
        });
        self.connection.progress_handler(0, None::<fn() -> bool>);
        done.map_err(|error| failure(&self.store, error))
    }
}

fn rows(connection: &Connection, sql: &Sql<'_>) -> rusqlite::Result<Vec<Vec<Cell<'static>>>> {
    let mut all = Vec::new();
    each_row(connection, sql, |row| all.push(row))?;
    Ok(all)
}

fn each_row(
    connection: &Connection,
    sql: &Sql<'_>,
    mut each: impl FnMut(Vec<Cell<'static>>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&sql.text)?;
    let mut rows = statement.query(rusqlite::params_from_iter(&sql.values))?;
    while let Some(row) = rows.next()? {
        each(cells(row)?);
    }
    Ok(())
}

fn cells(row: &rusqlite::Row<'_>) -> rusqlite::Result<Vec<Cell<'static>>> {
    (0..row.as_ref().column_count()).map(|index| Ok(cell(row.get_ref(index)?))).collect()
}

fn cell(value: ValueRef<'_>) -> Cell<'static> {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        ValueRef::Real(number) => Cell::Text(number.to_string().into()),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned().into()),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
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
            Self::Bytes(bytes) => bytes.to_sql(),
        }
    }
}

impl Backend for Sqlite {
    fn ping(&mut self) -> Result<(), Error> {
        self.read(&Sql::new(&flavor(), "SELECT count(*) FROM sqlite_master")).map(drop)
    }

    fn migrate(&mut self) -> Result<Vec<String>, Error> {
        let store = self.store.clone();
        let foreign = self.write(|connection, _, _| {
            let has = |name: &str| connection.table_exists(None, name);
            Ok(has("gateway_requests")? && !has("endstop_migrations")?)
        })?;
        if foreign {
            let why = "it has a table `gateway_requests` that is not ours; name another file";
            return Err(Error::Refused { store, why: why.to_owned() });
        }
        let mut applied = Vec::new();
        for migration in &migrations::SQLITE {
            if self.write(|connection, _, _| apply(connection, migration))? {
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
        let ((added, amended), found) =
            self.write(|connection, text, known| load(connection, text, known, &items))?;
        self.known.learn(found);
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
        self.write(|connection, _, _| {
            let deleted = connection
                .prepare_cached(
                    "DELETE FROM gateway_requests WHERE rowid IN (SELECT rowid FROM \
                     gateway_requests WHERE created_at < ? ORDER BY created_at LIMIT ?)",
                )?
                .execute((time(before), i64::try_from(most).unwrap_or(i64::MAX)))?;
            Ok(deleted as u64)
        })
    }

    fn judged_otherwise(
        &mut self,
        rules: &[u32],
        after: &str,
        most: usize,
    ) -> Result<Vec<Stored>, Error> {
        ask::judged_otherwise(self, rules, after, most)
    }

    fn rejudge(&mut self, verdicts: &[Stored]) -> Result<u64, Error> {
        let (judged, found) =
            self.write(|connection, text, known| rejudge(connection, text, known, verdicts))?;
        self.known.learn(found);
        Ok(judged)
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
fn load(
    connection: &Connection,
    text: &Text,
    known_series: &Known,
    items: &[Item<'_>],
) -> rusqlite::Result<((u64, u64), Found)> {
    let mut new = Vec::with_capacity(items.len());
    let mut known = Vec::new();
    let mut insert = connection.prepare_cached(&text.insert)?;
    let mut id = Uuid::encode_buffer();
    for item in items {
        let id = item.key.simple().encode_lower(&mut id);
        if write_row(&mut insert, id, &item.row)? == 1 { &mut new } else { &mut known }.push(item);
    }
    let mut olds = Vec::with_capacity(known.len());
    for item in known {
        olds.push((find(connection, text, &item.id())?, item));
    }
    let mut changes = Gathering::default();
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
    let found = write_changes(connection, text, known_series, &changes.changes())?;
    Ok(((new.len() as u64, count), found))
}

fn rejudge(
    connection: &Connection,
    text: &Text,
    known: &Known,
    verdicts: &[Stored],
) -> rusqlite::Result<(u64, Found)> {
    let mut pairs = Vec::new();
    for verdict in verdicts {
        let Some(id) = key(&verdict.record.id) else { continue };
        let old = find(connection, text, &id)?;
        pairs.extend(old.and_then(|old| rejudged(&old, verdict).map(|new| (old, new))));
    }
    let mut changes = Gathering::default();
    let mut update = connection.prepare_cached(&text.update)?;
    for (old, new) in &pairs {
        write_row(&mut update, &old.record.id, &Row::from(new))?;
        changes.take(&Row::from(old));
        changes.add(&Row::from(new));
    }
    let found = write_changes(connection, text, known, &changes.changes())?;
    Ok((pairs.len() as u64, found))
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
    known: &Known,
    changes: &Changes<'_>,
) -> rusqlite::Result<Found> {
    let found = find_series(connection, text, known, changes)?;
    let mut select = connection.prepare_cached(SELECT_CHUNK)?;
    let mut write = connection.prepare_cached(WRITE_CHUNK)?;
    for (place, mut lines) in changes.chunks(known, &found) {
        let mut rows = select.query(place)?;
        if let Some(row) = rows.next()? {
            let before = Lines::read(row.get_ref(0)?.as_blob()?).ok_or_else(damaged)?;
            lines.merge(&before);
        }
        write.execute((place.0, place.1, lines.pack()))?;
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
        found.series.insert(parts, id);
    }
    Ok(found)
}

fn damaged() -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, DAMAGED.into())
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
            let why = "the file is not a SQLite database; name another file, or move it away";
            Error::Damaged { store, why: why.to_owned() }
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            let why = format!("{said}; move the file away, and a restart makes a new one");
            Error::Damaged { store, why }
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
