//! SQLite: a file of our own, written by one process at a time and read by any.
//!
//! The journal is a write-ahead log, synced at checkpoints (`synchronous = NORMAL`): a commit survives the
//! death of the process, and the last ones may be undone by a loss of power. The spool keeps what it
//! loaded until it has synced, so that they come again.

pub(crate) mod adopt;
mod checkpoint;
mod write;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior};

use crate::ask::{self, Reads};
use crate::columns::{Cell, Kind, time};
use crate::error::Error;
use crate::load::items;
use crate::migrations;
use crate::open::{Options, refuse};
use crate::query::{Filter, Period, Query, Report, Wanted, WordSeen};
use crate::series::Known;
use crate::sink::{Entry, Loaded, Sink, Store, Stored};
use crate::sql::{DELETED, Flavor, Sql, Value, glob_pattern};
use checkpoint::Checkpointer;
use write::Text;

/// Pages of the log, of 4 KiB, over which a writer writes them back itself.
const BEHIND_PAGES: i64 = 16_384;

/// Returns the file of a SQLite store; `None` for one in memory, and for other stores.
pub(crate) fn file(url: &str) -> Option<&Path> {
    let file = url.strip_prefix("sqlite:")?;
    let file = file.strip_prefix("//").unwrap_or(file);
    (!file.is_empty() && !file.contains(['?', '\0']) && file != ":memory:").then(|| Path::new(file))
}

/// Opens `sqlite:FILE` or `sqlite::memory:`.
pub(crate) fn open(url: &str, options: &Options) -> Result<Box<dyn Store>, Error> {
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
    let own = memory || options.read_only;
    let checkpointer = if own { None } else { Checkpointer::start(Path::new(file)) };
    if checkpointer.is_some() {
        // The log is written back by the other connection. This one does it where that falls behind. A file
        // that is damaged says so when it is used.
        let _ = connection.pragma_update(None, "wal_autocheckpoint", BEHIND_PAGES);
    }
    Ok(Box::new(Sqlite {
        connection,
        store,
        options: *options,
        text: Text::new(),
        known: Known::default(),
        _checkpointer: checkpointer,
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

fn flavor() -> Flavor {
    Flavor {
        table: "gateway_requests AS t",
        known: "sequence IS NOT NULL".into(),
        schema: "",
        key: "id",
        has_time_index: true,
        place: '?',
        like: ("GLOB", ""),
        pattern: glob_pattern,
        read: |_, column| match column.kind {
            Kind::Key => "lower(hex(id))".to_owned(),
            Kind::Time | Kind::Text | Kind::Int | Kind::Flag => column.name.to_owned(),
        },
        write: |_, column, place| match column.kind {
            Kind::Key => format!("unhex({place})"),
            Kind::Time | Kind::Text | Kind::Int | Kind::Flag => place.to_owned(),
        },
        types: Vec::new(),
    }
}

struct Sqlite {
    connection: Connection,
    store: String,
    options: Options,
    text: Text,
    known: Known,
    _checkpointer: Option<Checkpointer>,
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

    fn read_each<T>(
        &mut self,
        statements: &[Sql<'_>],
        start: impl Fn() -> T,
        add: impl Fn(&mut T, usize, Vec<Cell<'static>>),
    ) -> Result<T, Error> {
        let end = Instant::now() + self.options.timeout;
        self.connection.progress_handler(10_000, Some(move || Instant::now() >= end));
        let done = self.connection.transaction().and_then(|transaction| {
            let mut sums = start();
            for (index, statement) in statements.iter().enumerate() {
                each_row(&transaction, statement, |row| add(&mut sums, index, row))?;
            }
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

impl Sink for Sqlite {
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
            self.write(|connection, text, known| write::load(connection, text, known, &items))?;
        self.known.learn(found);
        loaded.added = added;
        loaded.amended = amended;
        loaded.known += items.len() as u64 - added - amended;
        Ok(loaded)
    }

    fn tend(&mut self) -> Result<bool, Error> {
        self.write(|connection, text, _| write::fold(connection, text))
    }

    fn forget(&mut self, before: u64, most: usize) -> Result<u64, Error> {
        self.write(|connection, _, _| {
            let before = time(before);
            let deleted = connection
                .prepare_cached(
                    "DELETE FROM gateway_requests WHERE rowid IN (SELECT rowid FROM \
                     gateway_requests WHERE created_at < ? ORDER BY created_at LIMIT ?)",
                )?
                .execute((before, i64::try_from(most).unwrap_or(i64::MAX)))?;
            if deleted > 0 {
                let note = format!(
                    "INSERT INTO endstop_state VALUES ('{DELETED}', ?) ON CONFLICT DO UPDATE \
                     SET value = max(value, excluded.value)"
                );
                connection.prepare_cached(&note)?.execute([before])?;
            }
            Ok(deleted as u64)
        })
    }
}

impl Store for Sqlite {
    fn ping(&mut self) -> Result<(), Error> {
        self.read(&Sql::new(&flavor(), "SELECT count(*) FROM sqlite_master")).map(drop)
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

    fn words(
        &mut self,
        filter: &Filter,
        period: Period,
        limit: usize,
    ) -> Result<Vec<WordSeen>, Error> {
        ask::words(self, filter, period, limit)
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
        let (judged, found) = self
            .write(|connection, text, known| write::rejudge(connection, text, known, verdicts))?;
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

/// Explains an error, with advice.
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
            Error::Foreign { store, why: why.to_owned() }
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

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::query::{Filter, Wanted};
    use crate::sql;

    const HOUR: i64 = 3_600_000;
    const ROWS: i64 = 200_000;
    const START: i64 = 1_700_000_000_000 / HOUR * HOUR;

    /// Many rows, ten a minute, of 40 teams.
    fn connection(folder: &Path) -> Connection {
        let file = folder.join("e.db");
        open(&format!("sqlite:{}", file.display()), &Options::default())
            .unwrap()
            .migrate()
            .unwrap();
        let connection = Connection::open(file).unwrap();
        connection
            .execute_batch(&format!(
                "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {ROWS}) \
                 INSERT INTO gateway_requests (id, created_at, team_id, finish_reason, reason, turn_id, \
                 attempt, sequence) SELECT unhex(printf('%012x70008%015x', {START} + i * 6000, i)), \
                 {START} + i * 6000, 't' || (i % 40), 'stop', 'complete', 'turn', 1, 0 FROM n"
            ))
            .unwrap();
        connection
    }

    /// Questions use indexes, read rows of a few hours at most, and never the whole table.
    #[test]
    fn questions_read_few_of_many_rows() {
        let folder = tempfile::tempdir().unwrap();
        let connection = connection(folder.path());
        let flavor = flavor();
        let end = START + ROWS * 6000;
        let team = Filter { team: Some("t7".to_owned()), ..Filter::default() };
        let period = Some(Period { since: START.cast_unsigned(), until: end.cast_unsigned() });
        let edges = [(START + HOUR / 2, START + HOUR), (end - HOUR, end - HOUR / 2)];
        let id = format!("{:012x}70008{:015x}", START, 0);
        let newest = Wanted { limit: 50, ..Wanted::default() };
        let of_team = Wanted { filter: team.clone(), period, ..newest.clone() };
        let hours = (START, end);
        let statements = [
            ("edges", sql::summed(&flavor, &edges, &Filter::default()).unwrap(), 600),
            ("edges of a team", sql::summed(&flavor, &edges, &team).unwrap(), 15),
            ("newest", sql::endings(&flavor, &newest).unwrap(), 50),
            ("newest of a team", sql::endings(&flavor, &of_team).unwrap(), 50),
            ("one", sql::between(&flavor, &id, &id), 1),
            ("turn", sql::turn(&flavor, &id, 100), 1),
            ("sums", sql::sums(&flavor, hours, &Filter::default()).unwrap(), 0),
            ("sums of a team", sql::sums(&flavor, hours, &team).unwrap(), 0),
        ];
        for (name, sql, wanted) in statements {
            let text = sql.text.clone();
            let mut explain = sql;
            explain.text = format!("EXPLAIN QUERY PLAN {text}");
            let plan = format!("{:?}", rows(&connection, &explain).unwrap());
            assert!(!plan.contains("SCAN t\"") && plan.contains("USING"), "{name}: {plan}");
            let mut statement = connection.prepare(&text).unwrap();
            let mut found = statement.query(rusqlite::params_from_iter(&explain.values)).unwrap();
            let mut count = 0;
            while found.next().unwrap().is_some() {
                count += 1;
            }
            drop(found);
            assert_eq!(count, wanted, "{name}");
            // The newest rows are the first of an index.
            let scanned = statement.get_status(StatementStatus::FullscanStep);
            assert!(scanned <= count, "{name}: {scanned} rows were scanned: {plan}");
            let steps = statement.get_status(StatementStatus::VmStep);
            // A row that is read takes about a hundred steps; there are 200,000.
            assert!(steps < 200_000, "{name}: {steps} steps: {plan}");
        }
    }
}
