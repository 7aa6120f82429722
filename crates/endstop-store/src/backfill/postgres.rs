//! A table of Postgres.

use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::{
    Backfill, NOTES, Said, TableRow, Write, are_ours, check, is_own, name_of, quoted, quoted_path,
};
use crate::error::Error;
use crate::open::Options;
use crate::postgres::adopt::Adopting;
use crate::postgres::{Failure, Postgres};

const CATALOG: &str = "SELECT a.attname::text, format_type(a.atttypid, NULL)::text, EXISTS (\
    SELECT 1 FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid \
    AND i.indnkeyatts = 1 AND i.indpred IS NULL AND i.indkey[0] = a.attnum) \
    FROM pg_attribute a WHERE a.attrelid = to_regclass($1) \
    AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

pub(super) struct Table {
    store: Postgres,
    name: String,
    select: String,
    update: String,
    table: String,
    is_own: bool,
    /// For our own table: how rows of others are adopted, or why they cannot be.
    adopting: Option<Result<Adopting, String>>,
}

impl Table {
    pub(super) fn open(backfill: &Backfill) -> Result<Self, Error> {
        let mut store = Postgres::new(&backfill.from, &Options::default())?;
        let table = quoted_path(&backfill.table);
        let found = store.read_only(async |client: &Client| {
            let mut found = Vec::new();
            for row in client.query_typed(CATALOG, &[(&table, Type::TEXT)]).await? {
                let column: (String, String, bool) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                found.push(column);
            }
            Ok(found)
        })?;
        let names: Vec<String> = found.iter().map(|(name, _, _)| name.clone()).collect();
        let has_provider = check(backfill, &names)?;
        let columns = &backfill.columns;
        let of = |name: &String| found.iter().find(|(known, _, _)| known == name);
        let kind = |name: &String| of(name).map(|(_, kind, _)| kind.as_str()).unwrap_or_default();
        if !of(&columns.id).is_some_and(|(_, _, unique)| *unique) {
            let why = format!("`{}` of `{}` is not unique", columns.id, backfill.table);
            return Err(Error::Query(format!("{why}: name a column that is")));
        }
        let [id, native, finish] =
            [&columns.id, &columns.native, &columns.finish_reason].map(|name| quoted(name));
        let provider = if has_provider { quoted(&columns.provider) } else { "NULL".to_owned() };
        let is_own = is_own(backfill, &names);
        let others = if is_own { "rules IS NULL" } else { "true" };
        let (id_kind, finish_kind) = (kind(&columns.id), kind(&columns.finish_reason));
        let adopting = match is_own.then(|| are_ours(columns)) {
            None => None,
            Some(Err(why)) => Some(Err(why)),
            Some(Ok(())) => Some(store.adopting(&id, id_kind)?),
        };
        Ok(Self {
            adopting,
            select: format!(
                "SELECT {id}::text, {provider}::text, {native}::text, {finish}::text FROM {table} AS t \
                 WHERE ($1::text IS NULL OR {id} > $1::{id_kind}) AND {others} ORDER BY t.{id} LIMIT $2"
            ),
            update: format!(
                "UPDATE {table} t SET {finish} = u.word::{finish_kind} \
                 FROM UNNEST($1, $2, $3) AS u(key, word, native) WHERE t.{id} = u.key::{id_kind} \
                 AND t.{finish}::text IS DISTINCT FROM u.word \
                 AND t.{native}::text IS NOT DISTINCT FROM u.native AND {others}"
            ),
            name: name_of(backfill),
            store,
            table,
            is_own,
        })
    }

    /// Whether rows of ours stand in it.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }
}

impl super::Table for Table {
    fn position(&mut self) -> Result<Option<Value>, Error> {
        let name = &self.name;
        let noted = self.store.read_write(async |client: &Client| {
            client.batch_execute(&NOTES.replace("endstop_b", "public.endstop_b")).await?;
            let select = "SELECT position FROM public.endstop_backfill WHERE name = $1";
            let noted = client.query_typed(select, &[(name, Type::TEXT)]).await?;
            Ok(noted.first().map(|row| row.try_get::<_, String>(0)).transpose()?)
        })?;
        Ok(noted.and_then(|noted| serde_json::from_str(&noted).ok()))
    }

    fn count(&mut self, after: Option<&Value>) -> Result<Option<u64>, Error> {
        if after.is_some() {
            return Ok(None);
        }
        // What the planner takes the table's size to be.
        let sql = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass($1)";
        let table = &self.table;
        let count = self.store.read_only(async |client: &Client| {
            let rows = client.query_typed(sql, &[(table, Type::TEXT)]).await?;
            Ok(rows.first().map(|row| row.try_get::<_, i64>(0)).transpose()?)
        })?;
        Ok(count.and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0))
    }

    fn read(&mut self, after: Option<&Value>, most: usize) -> Result<Vec<TableRow>, Error> {
        let sql = &self.select;
        let after = after.and_then(Value::as_str);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.store.read_only(async |client: &Client| {
            let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                [(&after, Type::TEXT), (&most, Type::INT8)];
            let mut rows = Vec::new();
            for row in client.query_typed(sql, &parameters).await? {
                let said = Said {
                    provider: row.try_get(1)?,
                    native: row.try_get(2)?,
                    finish_reason: row.try_get(3)?,
                };
                rows.push(TableRow { key: row.try_get::<_, String>(0)?.into(), said });
            }
            Ok(rows)
        })
    }

    fn adopts(&self) -> Option<Result<(), String>> {
        self.adopting.as_ref().map(|adopting| adopting.as_ref().map(drop).map_err(Clone::clone))
    }

    fn write(&mut self, writes: &[Write], position: &Value) -> Result<u64, Error> {
        let (sql, name, position) = (&self.update, &self.name, position.to_string());
        let keys: Vec<Option<&str>> = writes.iter().map(|write| write.key.as_str()).collect();
        let words: Vec<&str> = writes.iter().map(|write| write.judged.to).collect();
        let natives: Vec<Option<&str>> =
            writes.iter().map(|write| write.native.as_deref()).collect();
        let note = async |client: &Client| {
            let note = "INSERT INTO public.endstop_backfill VALUES ($1, $2) \
                        ON CONFLICT (name) DO UPDATE SET position = excluded.position";
            client.execute_typed(note, &[(name, Type::TEXT), (&position, Type::TEXT)]).await?;
            Ok::<(), Failure>(())
        };
        if let Some(Ok(adopting)) = &self.adopting {
            let judged: Vec<_> = writes.iter().map(|write| &write.judged).collect();
            return self.store.adopt(adopting, &keys, &natives, &judged, note);
        }
        self.store.read_write(async |client: &Client| {
            let arrays: [(&(dyn ToSql + Sync), Type); 3] = [
                (&keys, Type::TEXT_ARRAY),
                (&words, Type::TEXT_ARRAY),
                (&natives, Type::TEXT_ARRAY),
            ];
            client.execute_typed(sql, &arrays).await?;
            note(client).await?;
            Ok(0)
        })
    }

    fn finish(&mut self) -> Result<(), Error> {
        let name = &self.name;
        self.store.read_write(async |client: &Client| {
            let delete = "DELETE FROM public.endstop_backfill WHERE name = $1";
            client.execute_typed(delete, &[(name, Type::TEXT)]).await?;
            Ok(())
        })
    }
}
