//! Shape of the table of the rows: ours, or somebody else's with columns of ours.
//!
//! Columns that were there before keep their types: values are cast on their way in and out.

use tokio_postgres::Client;

use crate::columns::{COLUMNS, Column, Kind};
use crate::sql::{Flavor, like_pattern};

/// The name of the column that our id has where `id` is somebody else's.
const OWN_KEY: &str = "endstop_id";

const CATALOG: &str = "SELECT a.attname::text, format_type(a.atttypid, NULL)::text, \
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '' \
    FROM pg_attribute a WHERE a.attrelid = to_regclass('public.gateway_requests') \
    AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// The table, as the catalog describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    own_key: bool,
    has_time_index: bool,
    /// Columns whose types are not as we make them.
    types: Vec<(&'static str, String)>,
}

impl Shape {
    /// Reads the catalog; an error in words is one for people to mend.
    pub(crate) async fn read(
        client: &Client,
    ) -> Result<Result<Self, String>, tokio_postgres::Error> {
        let found = columns(client).await?;
        let index = "SELECT to_regclass('public.idx_gateway_requests_time') IS NULL";
        let has_time_index = client.query_typed(index, &[]).await?;
        let has_time_index = has_time_index.first().is_none_or(|row| row.get(0));
        Ok(Self::of(&found).map(|shape| Self { has_time_index, ..shape }))
    }

    /// Checks the columns of a table that is there before anything is changed.
    pub(crate) async fn check(
        client: &Client,
    ) -> Result<Result<(), String>, tokio_postgres::Error> {
        let found = columns(client).await?;
        let ours = COLUMNS.iter().filter(|column| column.kind != Kind::Key);
        let wrong = ours.filter_map(|column| {
            let found = found.iter().find(|found| found.name == column.name)?;
            check(column, &found.kind).err()
        });
        Ok(wrong.reduce(|all, next| format!("{all}; {next}")).map_or(Ok(()), Err))
    }

    fn of(found: &[Found]) -> Result<Self, String> {
        if found.is_empty() {
            return Err(
                "the table public.gateway_requests does not exist; run `endstop migrate`".into()
            );
        }
        let own_key = found.iter().any(|found| found.name == OWN_KEY);
        let mut types = Vec::new();
        for column in &COLUMNS {
            let name = if own_key { own(column) } else { column.name };
            let Some(found) = found.iter().find(|found| found.name == name) else {
                return Err(format!(
                    "public.gateway_requests has no column `{name}`; run `endstop migrate`"
                ));
            };
            if found.kind != made(column.kind) {
                check(column, &found.kind)?;
                types.push((column.name, found.kind.clone()));
            }
        }
        let known = |name: &str| {
            COLUMNS.iter().any(|column| name == if own_key { own(column) } else { column.name })
        };
        if let Some(found) = found.iter().find(|found| found.must && !known(&found.name)) {
            return Err(format!(
                "public.gateway_requests has a column `{0}` that must have a value and has no \
                 default; give it one: ALTER TABLE public.gateway_requests ALTER COLUMN \"{0}\" \
                 DROP NOT NULL, or SET DEFAULT",
                found.name.replace('"', "\"\"")
            ));
        }
        Ok(Self { own_key, types, has_time_index: true })
    }

    /// Whether what is written is what will be read.
    pub(crate) fn is_plain(&self) -> bool {
        self.types.is_empty()
    }

    /// Returns the SQL that it needs.
    pub(crate) fn flavor(&self) -> Flavor {
        Flavor {
            table: "public.gateway_requests AS t",
            known: "sequence IS NOT NULL".into(),
            schema: "public.",
            has_time_index: self.has_time_index,
            key: if self.own_key { OWN_KEY } else { "id" },
            place: '$',
            like: ("LIKE", " ESCAPE '\\'"),
            pattern: like_pattern,
            read,
            write,
            types: self.types.clone(),
        }
    }
}

struct Found {
    name: String,
    kind: String,
    must: bool,
}

async fn columns(client: &Client) -> Result<Vec<Found>, tokio_postgres::Error> {
    let mut found = Vec::new();
    for row in client.query_typed(CATALOG, &[]).await? {
        found.push(Found { name: row.try_get(0)?, kind: row.try_get(1)?, must: row.try_get(2)? });
    }
    Ok(found)
}

fn own(column: &Column) -> &'static str {
    if column.kind == Kind::Key { OWN_KEY } else { column.name }
}

/// The type of a column as we make it.
fn made(kind: Kind) -> &'static str {
    match kind {
        Kind::Key => "uuid",
        Kind::Time => "timestamp with time zone",
        Kind::Text => "text",
        Kind::Int => "bigint",
        Kind::Flag => "boolean",
    }
}

/// Checks that a column can hold whatever comes. Times are not guessed: a number may be of seconds or of
/// milliseconds. A `uuid` would take some names of teams and refuse the others.
fn check(column: &Column, kind: &str) -> Result<(), String> {
    let known: &[&str] = match column.kind {
        Kind::Key => &["uuid"],
        Kind::Time => &["timestamp with time zone", "timestamp without time zone"],
        Kind::Text => &["text", "character varying", "character", "citext"],
        Kind::Int => &["bigint", "integer", "smallint", "numeric", "text", "character varying"],
        Kind::Flag => &["boolean", "text", "character varying"],
    };
    if known.contains(&kind) {
        return Ok(());
    }
    let (name, made) = (column.name, made(column.kind));
    Err(format!(
        "public.gateway_requests has a column `{name}` of type {kind}, which cannot hold what endstop \
         records; run `ALTER TABLE public.gateway_requests ALTER COLUMN {name} TYPE {made}`, rename the \
         column, or give endstop a database of its own"
    ))
}

fn read(flavor: &Flavor, column: &Column) -> String {
    let name = column.name;
    let other = flavor.other_type(column).is_some();
    match column.kind {
        Kind::Key => format!("{}::text", flavor.key),
        Kind::Time => format!("round(extract(epoch FROM {name}) * 1000)::bigint"),
        Kind::Text if other => format!("{name}::text"),
        Kind::Int if other => format!("{name}::bigint"),
        Kind::Flag if other => format!("{name}::text::boolean"),
        Kind::Text | Kind::Int | Kind::Flag => name.to_owned(),
    }
}

fn write(flavor: &Flavor, column: &Column, place: &str) -> String {
    match (column.kind, flavor.other_type(column)) {
        (Kind::Key, _) => format!("{place}::uuid"),
        (Kind::Time, other) => {
            cast(column, other, &format!("to_timestamp({place}::float8 / 1000)"))
        }
        (Kind::Text | Kind::Int | Kind::Flag, other) => cast(column, other, place),
    }
}

/// A value of ours as one of a column.
pub(crate) fn cast(column: &Column, other: Option<&str>, value: &str) -> String {
    match other {
        None => value.to_owned(),
        // Times without a zone are taken to be in UTC, whatever the session's zone is.
        Some(_) if column.kind == Kind::Time => format!("({value} AT TIME ZONE 'UTC')"),
        Some(kind) if column.kind == Kind::Flag => format!("{value}::text::{kind}"),
        Some(kind) => format!("{value}::{kind}"),
    }
}
