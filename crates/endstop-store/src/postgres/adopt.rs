//! Adopts rows that others wrote into our table, so that reports count them.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::read::cells;
use super::write::{find_series, note};
use super::{Failure, Postgres};
use crate::backfill::Judged;
use crate::changes::Gathering;
use crate::columns::{Cell, Kind, Row, stored};
use crate::error::Error;
use crate::load::ADOPTED;
use crate::series::Known;
use crate::sink::Stored;

/// The statements, made once.
pub(crate) struct Adopting {
    /// Reads the rows that are adopted already, and keeps others from changing them.
    lock: String,
    update: String,
}

impl Postgres {
    /// Prepares to adopt rows that are told apart by this column, quoted, of this type; an error in words
    /// is why that cannot be.
    pub(crate) fn adopting(
        &mut self,
        id: &str,
        id_kind: &str,
    ) -> Result<Result<Adopting, String>, Error> {
        let flavor = &self.table()?.flavor;
        let is_number = |kind: &str| ["integer", "smallint", "boolean"].contains(&kind);
        let unsure = crate::columns::COLUMNS.iter().find_map(|column| {
            let kind = flavor.other_type(column)?;
            let unsure = matches!(column.kind, Kind::Int | Kind::Flag) && !is_number(kind);
            unsure.then(|| format!("the column `{}` is of type {kind}", column.name))
        });
        if let Some(why) = unsure {
            return Ok(Err(why));
        }
        let type_of = |name: &str| {
            let other = flavor.types.iter().find(|(known, _)| *known == name);
            other.map_or("text", |(_, kind)| kind.as_str())
        };
        let [word, reason, provider] = ["finish_reason", "reason", "provider"].map(type_of);
        let (columns, key) = (flavor.columns(), flavor.key);
        let new_key = match key {
            "id" => String::new(),
            key => format!(", {key} = COALESCE(t.{key}, gen_random_uuid())"),
        };
        let from = "UNNEST($1, $2, $3, $4, $5) AS u(u_key, u_native, u_word, u_reason, u_provider)";
        let fits = format!(
            "t.{id} = u.u_key::{id_kind} AND t.native_finish_reason::text IS NOT DISTINCT FROM \
             u.u_native AND t.rules IS NULL AND (t.sequence IS NULL OR t.finish_reason::text IS \
             DISTINCT FROM u.u_word OR t.reason::text IS DISTINCT FROM u.u_reason)"
        );
        Ok(Ok(Adopting {
            lock: format!(
                "SELECT {columns} FROM public.gateway_requests AS t, {from} WHERE {fits} AND \
                 t.sequence IS NOT NULL ORDER BY t.{id} FOR UPDATE OF t"
            ),
            // A row without a time is in no period.
            update: format!(
                "UPDATE public.gateway_requests AS t SET finish_reason = u.u_word::{word}, \
                 reason = u.u_reason::{reason}, \
                 provider = COALESCE(t.provider, u.u_provider::{provider}), \
                 upstream = COALESCE(t.upstream, ''), \
                 sequence = CASE WHEN t.created_at IS NULL THEN NULL ELSE {ADOPTED} END{new_key} \
                 FROM {from} WHERE {fits} RETURNING {columns}, t.sequence IS NOT NULL"
            ),
        }))
    }

    /// Writes words over rows that still say what was read, counts the rows in the sums, and does something
    /// more in the same transaction. Returns how many were not counted before.
    pub(crate) fn adopt(
        &mut self,
        adopting: &Adopting,
        keys: &[Option<&str>],
        natives: &[Option<&str>],
        judged: &[&Judged],
        more: impl AsyncFn(&Client) -> Result<(), Failure>,
    ) -> Result<u64, Error> {
        let words: Vec<&str> = judged.iter().map(|judged| judged.to).collect();
        let reasons: Vec<&str> = judged.iter().map(|judged| judged.reason.name()).collect();
        let providers: Vec<&str> = judged.iter().map(|judged| judged.provider.as_str()).collect();
        let arrays: [(&(dyn ToSql + Sync), Type); 5] = [
            (&keys, Type::TEXT_ARRAY),
            (&natives, Type::TEXT_ARRAY),
            (&words, Type::TEXT_ARRAY),
            (&reasons, Type::TEXT_ARRAY),
            (&providers, Type::TEXT_ARRAY),
        ];
        let begin = self.begin("");
        let work = async |client: &Client, known: &Known| {
            let mut olds: Vec<Stored> = Vec::new();
            for row in client.query_typed(&adopting.lock, &arrays).await? {
                olds.push(stored(cells(&row)?));
            }
            let mut news: Vec<Stored> = Vec::new();
            for row in client.query_typed(&adopting.update, &arrays).await? {
                let mut row = cells(&row)?;
                if row.pop() == Some(Cell::Flag(true)) {
                    news.push(stored(row));
                }
            }
            let mut changes = Gathering::default();
            olds.iter().for_each(|old| changes.take(&Row::from(old)));
            news.iter().for_each(|new| changes.add(&Row::from(new)));
            let changes = changes.changes();
            let found = find_series(client, known, &changes).await?;
            note(client, known, &found, &changes).await?;
            more(client).await?;
            Ok((news.len().saturating_sub(olds.len()) as u64, found))
        };
        self.write_noted(&begin, work).map_err(|failed| failed.error)
    }
}
