//! Writes rows and deltas into Postgres, within a transaction of the caller.

use std::borrow::Cow;

use futures_util::future::try_join;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::arrays::{Array, arrays, parameters, places};
use super::read::cells;
use super::shape::{self, Shape};
use super::{Failure, copy};
use crate::changes::{Changes, Gathering};
use crate::columns::{COLUMNS, Kind, Row, stored};
use crate::load::{Item, amended, rejudged};
use crate::series::{self, Found, Known, PARTS, Parts};
use crate::sink::Stored;
use crate::sql::Flavor;

/// The table of the rows, and what is said to it, made once.
pub(super) struct Table {
    pub(super) flavor: Flavor,
    /// Values are read as they are written.
    pub(super) plain: bool,
    /// Rows that are not there.
    copy: String,
    /// Rows that may be there.
    insert: String,
    lock: String,
    update: String,
}

impl Table {
    pub(super) fn new(shape: &Shape) -> Self {
        let flavor = shape.flavor();
        let key = flavor.key;
        let (names, values) = lists(&flavor);
        let (columns, from) = (names.join(", "), places(names.len()));
        let sets: Vec<String> = names
            .iter()
            .zip(&values)
            .skip(1)
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let add = format!(
            "INSERT INTO public.gateway_requests ({columns}) SELECT {} FROM UNNEST({from}) \
             AS u({columns})",
            values.join(", "),
        );
        Self {
            insert: format!("{add} ON CONFLICT ({key}) DO NOTHING RETURNING {key}"),
            copy: format!("COPY public.gateway_requests ({columns}) FROM STDIN BINARY"),
            lock: format!(
                "SELECT {} FROM public.gateway_requests AS t WHERE {key} = ANY($1) AND \
                 sequence >= 0 ORDER BY t.{key} FOR UPDATE",
                flavor.columns()
            ),
            update: format!(
                "UPDATE public.gateway_requests t SET {} FROM UNNEST({from}) AS u({columns}) \
                 WHERE t.{key} = u.{key}",
                sets.join(", "),
            ),
            plain: shape.is_plain(),
            flavor,
        }
    }
}

/// The names of the columns, and their values as they are written.
fn lists(flavor: &Flavor) -> (Vec<&'static str>, Vec<String>) {
    let name = |column: &crate::columns::Column| match column.kind {
        Kind::Key => flavor.key,
        Kind::Time | Kind::Text | Kind::Int | Kind::Flag => column.name,
    };
    let value =
        |column| shape::cast(column, flavor.other_type(column), &format!("u.{}", name(column)));
    (COLUMNS.iter().map(name).collect(), COLUMNS.iter().map(value).collect())
}

/// Numbers of new and of amended rows, and the rows that cannot be taken.
pub(super) struct Done {
    pub(super) added: u64,
    pub(super) amended: u64,
    pub(super) refused: Vec<(usize, String)>,
}

/// Adds rows of which none is there: one that is there fails them all. `COPY` takes half of the time that an
/// insert takes which looks whether a row is there. The sums are made while the server takes the rows in, and
/// the delta is sent behind them, without waiting for an answer.
pub(super) async fn add(
    client: &Client,
    table: &Table,
    known: &Known,
    items: &[Item<'_>],
) -> Result<((), Found), Failure> {
    let mut rows = copy::send(client, &table.copy, items).await?;
    let mut changes = Gathering::default();
    items.iter().for_each(|item| changes.add(&item.row));
    let changes = changes.changes();
    if !changes.unknown(known).is_empty() {
        rows.as_mut().finish().await?;
        let found = find_series(client, known, &changes).await?;
        note(client, known, &found, &changes).await?;
        return Ok(((), found));
    }
    let found = Found::default();
    let finish = async { rows.as_mut().finish().await.map_err(Failure::from) };
    let note = async {
        // The end of the rows is on its way first.
        tokio::task::yield_now().await;
        note(client, known, &found, &changes).await
    };
    try_join(finish, note).await?;
    Ok(((), found))
}

pub(super) async fn load(
    client: &Client,
    table: &Table,
    known_series: &Known,
    items: &[Item<'_>],
) -> Result<(Done, Found), Failure> {
    let rows: Vec<(Uuid, Row<'_>)> = items.iter().map(|item| (item.key, item.row)).collect();
    let mut new = insert(client, table, &rows).await?;
    new.sort_unstable();
    let is_new = |item: &&Item<'_>| new.binary_search(&item.key).is_ok();
    let known: Vec<&Item<'_>> = items.iter().filter(|item| !is_new(item)).collect();
    let olds = lock(client, table, known.iter().map(|item| item.key)).await?;
    // A column of another type may hold something else than what was written.
    let read_back =
        if table.plain { Vec::new() } else { lock(client, table, new.iter().copied()).await? };

    let mut changes = Gathering::default();
    if table.plain {
        items.iter().filter(is_new).for_each(|item| changes.add(&item.row));
    } else {
        read_back.iter().for_each(|(_, row)| changes.add(&Row::from(row)));
    }
    let mut refused = Vec::new();
    let mut updates = Vec::new();
    for item in known {
        let Ok(at) = olds.binary_search_by_key(&item.key, |(key, _)| *key) else {
            refused.push((item.index, "its id is that of a row that is not ours".to_owned()));
            continue;
        };
        let Some((key, old)) = olds.get(at) else { continue };
        if let Some(row) = amended(old, &item.row) {
            updates.push((*key, row));
            changes.take(&Row::from(old));
        }
    }
    update(client, table, &updates).await?;
    let keys = updates.iter().map(|(key, _)| *key);
    let read_back = if table.plain { Vec::new() } else { lock(client, table, keys).await? };
    if table.plain {
        updates.iter().for_each(|(_, row)| changes.add(row));
    } else {
        read_back.iter().for_each(|(_, row)| changes.add(&Row::from(row)));
    }
    let changes = changes.changes();
    let found = find_series(client, known_series, &changes).await?;
    note(client, known_series, &found, &changes).await?;
    let (added, amended) = (new.len() as u64, updates.len() as u64);
    Ok((Done { added, amended, refused }, found))
}

pub(super) async fn rejudge(
    client: &Client,
    table: &Table,
    known: &Known,
    verdicts: &[Stored],
) -> Result<(u64, Found), Failure> {
    let mut wanted: Vec<(Uuid, &Stored)> = verdicts
        .iter()
        .filter_map(|verdict| Some((Uuid::try_parse(&verdict.record.id).ok()?, verdict)))
        .collect();
    wanted.sort_unstable_by_key(|(key, _)| *key);
    wanted.dedup_by_key(|(key, _)| *key);
    let olds = lock(client, table, wanted.iter().map(|(key, _)| *key)).await?;
    let mut news = Vec::new();
    for (key, old) in &olds {
        let at = wanted.binary_search_by_key(key, |(key, _)| *key).ok();
        let verdict = at.and_then(|at| wanted.get(at));
        let new = verdict.and_then(|(_, verdict)| rejudged(old, verdict));
        news.extend(new.map(|new| (*key, old, new)));
    }
    let rows: Vec<(Uuid, Row<'_>)> =
        news.iter().map(|(key, _, new)| (*key, Row::from(new))).collect();
    update(client, table, &rows).await?;
    let mut changes = Gathering::default();
    for (_, old, new) in &news {
        changes.take(&Row::from(*old));
        changes.add(&Row::from(new));
    }
    let changes = changes.changes();
    let found = find_series(client, known, &changes).await?;
    note(client, known, &found, &changes).await?;
    Ok((news.len() as u64, found))
}

/// Writes new rows; gives the ids of those that were not there.
async fn insert(
    client: &Client,
    table: &Table,
    rows: &[(Uuid, Row<'_>)],
) -> Result<Vec<Uuid>, Failure> {
    let new = client.query_typed(&table.insert, &parameters(&arrays(rows))).await?;
    let keys: Result<Vec<Uuid>, tokio_postgres::Error> =
        new.iter().map(|row| row.try_get(0)).collect();
    Ok(keys?)
}

/// Reads rows of ours, in the order of their ids, and keeps others from changing them.
async fn lock(
    client: &Client,
    table: &Table,
    keys: impl Iterator<Item = Uuid>,
) -> Result<Vec<(Uuid, Stored)>, Failure> {
    let keys: Vec<Uuid> = keys.collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for row in client.query_typed(&table.lock, &[(&keys, Type::UUID_ARRAY)]).await? {
        let stored = stored(cells(&row)?);
        found.push((Uuid::try_parse(&stored.record.id).unwrap_or_default(), stored));
    }
    Ok(found)
}

async fn update(client: &Client, table: &Table, rows: &[(Uuid, Row<'_>)]) -> Result<(), Failure> {
    if !rows.is_empty() {
        client.execute_typed(&table.update, &parameters(&arrays(rows))).await?;
    }
    Ok(())
}

/// Notes what changes as one delta.
pub(super) async fn note(
    client: &Client,
    known: &Known,
    found: &Found,
    changes: &Changes<'_>,
) -> Result<(), Failure> {
    if let Some(delta) = changes.delta(known, found) {
        let insert = "INSERT INTO public.endstop_deltas (packed) VALUES ($1)";
        client.execute_typed(insert, &[(&delta, Type::BYTEA)]).await?;
    }
    Ok(())
}

/// Gives numbers to the series that have none, and finds those that are not known here yet.
pub(super) async fn find_series(
    client: &Client,
    known: &Known,
    changes: &Changes<'_>,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut wanted = changes.unknown(known);
    if wanted.is_empty() {
        return Ok(found);
    }
    let (names, from) = (PARTS.join(", "), places(PARTS.len()));
    let select = format!(
        "SELECT id, {names} FROM UNNEST({from}) AS u({names}) \
         JOIN public.endstop_series USING ({names})"
    );
    read_series(client, &select, &wanted, &mut found).await?;
    wanted.retain(|parts| series::get(&found, parts).is_none());
    if !wanted.is_empty() {
        let insert = format!(
            "INSERT INTO public.endstop_series ({names}) SELECT * FROM UNNEST({from}) \
             ON CONFLICT DO NOTHING"
        );
        client.execute_typed(&insert, &parameters(&part_arrays(&wanted))).await?;
        read_series(client, &select, &wanted, &mut found).await?;
    }
    Ok(found)
}

async fn read_series(
    client: &Client,
    select: &str,
    wanted: &[&Parts<'_>],
    found: &mut Found,
) -> Result<(), Failure> {
    for row in client.query_typed(select, &parameters(&part_arrays(wanted))).await? {
        let mut parts: Parts<'static> = Default::default();
        for (at, part) in (1..).zip(&mut parts) {
            *part = Cow::Owned(row.try_get(at)?);
        }
        found.insert(parts, row.try_get(0)?);
    }
    Ok(())
}

fn part_arrays<'a>(series: &[&Parts<'a>]) -> Vec<Array<'a>> {
    let texts = |part: usize| series.iter().map(|parts| parts.get(part).cloned()).collect();
    (0..PARTS.len()).map(|part| Array::Texts(texts(part))).collect()
}
