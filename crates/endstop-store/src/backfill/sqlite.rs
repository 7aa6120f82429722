//! A table of SQLite.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use serde_json::Value;

use super::{
    Backfill, NOTES, Said, TableRow, Write, are_ours, check, is_own, name_of, quoted, quoted_path,
};
use crate::error::Error;
use crate::sqlite::adopt::Adopting;

pub(super) struct Table {
    connection: Connection,
    store: String,
    name: String,
    /// Reads rows after a position.
    select: String,
    update: String,
    count: String,
    is_own: bool,
    /// For our own table: how rows of others are adopted, or why they cannot be.
    adopting: Option<Result<Adopting, String>>,
}

impl Table {
    pub(super) fn open(backfill: &Backfill) -> Result<Self, Error> {
        let file = backfill.from.strip_prefix("sqlite:").unwrap_or_default();
        let file = file.strip_prefix("//").unwrap_or(file);
        if !Path::new(file).is_file() {
            return Err(Error::Query(format!("the file `{file}` does not exist")));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let store = backfill.from.clone();
        let failed = |error| crate::sqlite::failure(&store, error);
        let connection = Connection::open_with_flags(file, flags).map_err(failed)?;
        connection.busy_timeout(Duration::from_secs(30)).map_err(failed)?;
        let found = columns(&connection, &backfill.table).map_err(failed)?;
        let has_provider = check(backfill, &found)?;
        if !is_unique(&connection, backfill).map_err(failed)? {
            let Backfill { columns, table, .. } = backfill;
            let why = format!("`{}` of `{table}` is not unique: name a column that is", columns.id);
            return Err(Error::Query(why));
        }
        let table = quoted_path(&backfill.table);
        let names = &backfill.columns;
        let [id, native, finish] =
            [&names.id, &names.native, &names.finish_reason].map(|it| quoted(it));
        let provider = if has_provider { quoted(&names.provider) } else { "NULL".to_owned() };
        let is_own = is_own(backfill, &found);
        let others = if is_own { "rules IS NULL" } else { "1" };
        Ok(Self {
            select: format!(
                "SELECT {id}, CAST({provider} AS TEXT), CAST({native} AS TEXT), \
                 CAST({finish} AS TEXT) FROM {table} WHERE (?1 IS NULL OR {id} > ?1) \
                 AND {id} IS NOT NULL AND {others} ORDER BY {id} LIMIT ?2"
            ),
            update: format!(
                "UPDATE {table} SET {finish} = ?1 WHERE {id} = ?2 AND {finish} IS NOT ?1 \
                 AND CAST({native} AS TEXT) IS ?3 AND {others}"
            ),
            count: format!(
                "SELECT count(*) FROM {table} WHERE (?1 IS NULL OR {id} > ?1) AND {others}"
            ),
            adopting: is_own.then(|| are_ours(names).map(|()| Adopting::new(&id))),
            is_own,
            name: name_of(backfill),
            connection,
            store,
        })
    }

    /// Whether rows of ours stand in it.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        work(&mut self.connection).map_err(|error| crate::sqlite::failure(&self.store, error))
    }
}

impl super::Table for Table {
    fn position(&mut self) -> Result<Option<Value>, Error> {
        let name = self.name.clone();
        let noted: Option<String> = self.with(|connection| {
            connection.execute_batch(NOTES)?;
            let select = "SELECT position FROM endstop_backfill WHERE name = ?";
            connection.query_row(select, [name], |row| row.get(0)).optional()
        })?;
        Ok(noted.and_then(|noted| serde_json::from_str(&noted).ok()))
    }

    fn count(&mut self, after: Option<&Value>) -> Result<Option<u64>, Error> {
        let (sql, after) = (self.count.clone(), cell(after));
        let count: i64 = self.with(|it| it.query_row(&sql, [after], |row| row.get(0)))?;
        Ok(u64::try_from(count).ok())
    }

    fn read(&mut self, after: Option<&Value>, most: usize) -> Result<Vec<TableRow>, Error> {
        let (sql, after) = (self.select.clone(), cell(after));
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.with(|connection| {
            let mut select = connection.prepare_cached(&sql)?;
            let rows = select.query_map((after, most), |row| {
                let said =
                    Said { provider: row.get(1)?, native: row.get(2)?, finish_reason: row.get(3)? };
                Ok(TableRow { key: value(row.get(0)?), said })
            })?;
            rows.collect()
        })
    }

    fn adopts(&self) -> Option<Result<(), String>> {
        self.adopting.as_ref().map(|adopting| adopting.as_ref().map(drop).map_err(Clone::clone))
    }

    fn write(&mut self, writes: &[Write], position: &Value) -> Result<u64, Error> {
        let Self { connection, store, name, update, adopting, .. } = self;
        let mut write = || {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let adopted = match adopting {
                Some(Ok(adopting)) => {
                    let rows = writes.iter().map(|Write { key, native, judged }| {
                        let native = native.as_deref();
                        crate::sqlite::adopt::Found { key: cell(Some(key)), native, judged }
                    });
                    adopting.adopt(&transaction, rows)?
                }
                Some(Err(_)) | None => {
                    let mut update = transaction.prepare_cached(update)?;
                    for Write { key, native, judged } in writes {
                        update.execute((judged.to, cell(Some(key)), native))?;
                    }
                    0
                }
            };
            let note = "INSERT OR REPLACE INTO endstop_backfill VALUES (?, ?)";
            transaction.execute(note, (name.as_str(), position.to_string()))?;
            transaction.commit()?;
            Ok(adopted)
        };
        write().map_err(|error| crate::sqlite::failure(store, error))
    }

    fn finish(&mut self) -> Result<(), Error> {
        let name = self.name.clone();
        let delete = "DELETE FROM endstop_backfill WHERE name = ?";
        self.with(|connection| connection.execute(delete, [name])).map(drop)
    }
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let (schema, table) = table.split_once('.').unwrap_or(("main", table));
    let mut select = connection.prepare("SELECT name FROM pragma_table_info(?, ?)")?;
    select.query_map([table, schema], |row| row.get(0))?.collect()
}

/// Whether the id is a key, or has a unique index, by itself.
fn is_unique(connection: &Connection, backfill: &Backfill) -> rusqlite::Result<bool> {
    let (schema, table) = backfill.table.split_once('.').unwrap_or(("main", &backfill.table));
    let sql = "SELECT EXISTS (SELECT 1 FROM pragma_table_info(?1, ?2) WHERE name = ?3 AND pk = 1 \
               AND (SELECT count(*) FROM pragma_table_info(?1, ?2) WHERE pk > 0) = 1) \
               OR EXISTS (SELECT 1 FROM pragma_index_list(?1, ?2) AS i \
               WHERE i.\"unique\" AND NOT i.partial AND (SELECT count(*) = 1 AND max(name) = ?3 \
               FROM pragma_index_info(i.name, ?2)))";
    connection.query_row(sql, [table, schema, &backfill.columns.id], |row| row.get(0))
}

fn cell(value: Option<&Value>) -> Cell {
    match value {
        Some(Value::Object(blob)) => {
            let bytes = blob.get("bytes").and_then(Value::as_array).into_iter().flatten();
            Cell::Blob(bytes.filter_map(|byte| byte.as_u64()?.try_into().ok()).collect())
        }
        None | Some(Value::Null | Value::Array(_)) => Cell::Null,
        Some(Value::Bool(flag)) => Cell::Integer((*flag).into()),
        Some(Value::String(text)) => Cell::Text(text.clone()),
        Some(Value::Number(number)) => number
            .as_i64()
            .map_or_else(|| Cell::Real(number.as_f64().unwrap_or_default()), Cell::Integer),
    }
}

fn value(cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => number.into(),
        Cell::Real(number) => number.into(),
        Cell::Text(text) => text.into(),
        Cell::Blob(bytes) => serde_json::json!({ "bytes": bytes }),
    }
}
