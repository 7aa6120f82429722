//! Postgres, directly or through a pooler in transaction mode.
//!
//! Nothing is left on a connection between transactions: no prepared statement has a name, settings are
//! those of a transaction, and so are locks. A connection that failed is dropped; the next call makes a
//! new one.

mod shape;
mod tls;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::TryStreamExt;
use futures_util::future::try_join;
use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config};
use uuid::Uuid;

use crate::ask::{self, Reads};
use crate::backend::{Backend, Entry, Loaded, Stored};
use crate::columns::{COLUMNS, Cell, Kind, Row, stored, time};
use crate::error::Error;
use crate::lines::{DAMAGED, Lines};
use crate::load::{Item, amended, items, rejudged};
use crate::migrations::{self, POSTGRES_NOTES};
use crate::open::{Options, refuse, shown};
use crate::query::{Period, Query, Report, Wanted, WordSeen};
use crate::rollup::{Changes, Found, Gathering, Known, PARTS, Parts, Place};
use crate::sql::{Flavor, Sql, Value};
use shape::Shape;
use tls::Tls;

/// Any number that no other program takes a lock by.
const LOCK: i64 = 0x656e_6473_746f_7031;
/// The longest that a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How much longer than the server a client waits for the server's own timeout.
const GRACE: Duration = Duration::from_secs(5);

/// Opens `postgres://…`; it is reached when it is first used.
pub(crate) fn open(url: &str, options: &Options) -> Result<Box<dyn Backend>, Error> {
    Ok(Box::new(Postgres::new(url, options)?))
}

fn new(url: &str, options: &Options) -> Result<Postgres, Error> {
    let (plain, wanted) = without_tls(url);
    let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
        let why = std::error::Error::source(&error).map(ToString::to_string);
        refuse(url, why.unwrap_or_else(|| error.to_string()))
    })?;
    if config.get_hosts().is_empty() {
        return Err(refuse(url, "it names no host"));
    }
    let (mode, tls) = Tls::new(&wanted).map_err(|why| refuse(url, why))?;
    config.ssl_mode(mode).keepalives_idle(Duration::from_secs(30));
    if config.get_application_name().is_none() {
        config.application_name("endstop");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT / 2);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|source| Error::Io { what: "cannot start a runtime".to_owned(), source })?;
    let store = shown(url);
    Ok(Postgres {
        runtime: Some(runtime),
        config,
        tls,
        store,
        options: *options,
        client: None,
        known: Known::default(),
        repeats: false,
    })
}

/// An address without what the driver does not know, and what that says.
fn without_tls(url: &str) -> (String, tls::Wanted) {
    let mut wanted = tls::Wanted::default();
    let Some((place, parameters)) = url.rsplit_once('?').filter(|(place, _)| place.contains("://"))
    else {
        return (url.to_owned(), wanted);
    };
    let mut others = Vec::new();
    for parameter in parameters.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", mode)) => wanted.mode = Some(mode.to_owned()),
            Some(("sslrootcert", file)) => wanted.roots = Some(file.replace("%2F", "/")),
            // A hint for other clients: nothing here is ever prepared by name.
            Some(("pgbouncer", _)) => {}
            Some(_) | None => others.push(parameter),
        }
    }
    (format!("{place}?{}", others.join("&")), wanted)
}

/// A connection, or none yet.
pub(crate) struct Postgres {
    /// None only when it is dropped.
    runtime: Option<Runtime>,
    config: Config,
    tls: Tls,
    store: String,
    options: Options,
    client: Option<(Client, Option<Arc<Table>>)>,
    known: Known,
    /// The last batch had rows that were there already.
    repeats: bool,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Whoever drops it may be in the midst of another runtime, where nothing may be waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why something did not work.
pub(crate) enum Failure {
    Driver(tokio_postgres::Error),
    Refused(String),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

/// How a transaction begins, and how long it may take.
struct Begin {
    sql: String,
    timeout: Duration,
}

impl Postgres {
    pub(crate) fn new(url: &str, options: &Options) -> Result<Self, Error> {
        new(url, options)
    }

    /// Does something in a transaction that only reads.
    pub(crate) fn read_only<T>(
        &mut self,
        work: impl AsyncFn(&Client) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let begin = self.begin(" READ ONLY");
        self.transact(&begin, work).map_err(|failed| failed.error)
    }

    /// Does something in a transaction, whole or not at all.
    pub(crate) fn read_write<T>(
        &mut self,
        work: impl AsyncFn(&Client) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let begin = self.begin("");
        self.transact(&begin, work).map_err(|failed| failed.error)
    }

    fn begin(&self, kind: &str) -> Begin {
        let timeout = self.options.timeout;
        let ms = timeout.as_millis();
        let sql = format!("BEGIN{kind}; SET LOCAL statement_timeout = {ms}");
        Begin { sql, timeout: timeout + GRACE }
    }

    fn refused(&self, why: impl Into<String>) -> Error {
        Error::Refused { store: self.store.clone(), why: why.into() }
    }

    fn must_write(&self) -> Result<(), Error> {
        if self.options.read_only { Err(self.refused("it was opened to be read")) } else { Ok(()) }
    }

    /// Does something in a transaction of its own, whole or not at all. A connection that turns out to
    /// have ended since it was last used is made anew, once.
    fn transact<T>(
        &mut self,
        begin: &Begin,
        work: impl AsyncFn(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failed> {
        let used = self.client.is_some();
        match self.attempt(begin, &work) {
            Err(Failed { ended: true, .. }) if used => self.attempt(begin, &work),
            done => done,
        }
    }

    fn attempt<T>(
        &mut self,
        begin: &Begin,
        work: &impl AsyncFn(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failed> {
        let (client, table) = match self.client.take() {
            Some((client, table)) if !client.is_closed() => (client, table),
            Some(_) | None => (self.connect()?, None),
        };
        let whole = async {
            client.batch_execute(&begin.sql).await?;
            let done = work(&client).await;
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            let ended = client.batch_execute(end).await;
            let done = done?;
            ended?;
            Ok(done)
        };
        let runtime = self.runtime()?;
        let done = runtime.block_on(async { tokio::time::timeout(begin.timeout, whole).await });
        match done {
            // Whether it was done is not known; the connection would answer the wrong question next.
            Err(_) => Err(self.unavailable("it does not answer").into()),
            Ok(Ok(done)) => {
                self.client = Some((client, table));
                Ok(done)
            }
            Ok(Err(failure)) => {
                let failed = self.failed(failure);
                if !failed.error.is_retryable() {
                    // The table may have been changed meanwhile: it is looked at again.
                    self.client = Some((client, None));
                }
                Err(failed)
            }
        }
    }

    fn runtime(&self) -> Result<&Runtime, Error> {
        self.runtime.as_ref().ok_or_else(|| self.unavailable("it is closed"))
    }

    fn connect(&self) -> Result<Client, Failed> {
        let connecting = self.config.connect(self.tls.clone());
        let runtime = self.runtime()?;
        let connected = runtime.block_on(async { tokio::time::timeout(CONNECT, connecting).await });
        match connected {
            Err(_) => Err(self.unavailable("it does not answer").into()),
            Ok(Err(error)) => Err(self.failed(Failure::Driver(error))),
            Ok(Ok((client, connection))) => {
                runtime.spawn(connection);
                Ok(client)
            }
        }
    }

    fn table(&mut self) -> Result<Arc<Table>, Error> {
        if let Some((client, Some(table))) = &self.client
            && !client.is_closed()
        {
            return Ok(Arc::clone(table));
        }
        // What is known of another server, or of tables that were made anew, is forgotten.
        self.known = Known::default();
        let read = async |client: &Client| Shape::read(client).await?.map_err(Failure::Refused);
        let table = Arc::new(Table::new(&self.read_only(read)?));
        if let Some((_, known)) = &mut self.client {
            *known = Some(Arc::clone(&table));
        }
        Ok(table)
    }

    fn unavailable(&self, why: impl Into<String>) -> Error {
        Error::Unavailable { store: self.store.clone(), why: why.into() }
    }

    /// What an error means, and what to do.
    fn failed(&self, failure: Failure) -> Failed {
        let error = match failure {
            Failure::Refused(why) => return self.refused(why).into(),
            Failure::Driver(error) => error,
        };
        let Some(said) = error.as_db_error() else {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let why = format!("{error}{}", cause.unwrap_or_default());
            // What is wrong with a certificate stays wrong.
            let lasting = why.contains("certificate") || why.contains("TLS");
            let error = if lasting { self.refused(why) } else { self.unavailable(why) };
            return Failed { error, data: None, ended: !lasting };
        };
        let (code, why) = (said.code().code(), said.message().to_owned());
        let data = ["22", "23", "54", "P0001"].iter().any(|class| code.starts_with(class));
        let advice = match code {
            "28P01" | "28000" => "check the user and the password",
            "3D000" => "create the database",
            "42P01" | "42703" | "42P10" => "run `endstop migrate`",
            "42501" => "grant this user the right",
            "57014" if self.options.read_only => {
                let why = "it took too long: ask for a shorter period, or for less";
                return Error::Query(why.to_owned()).into();
            }
            _ => "",
        };
        // 08 connection, 25006 a standby, 40 deadlock and the like, 53 resources, 55P03 a lock,
        // 57 shut down or cancelled, 58 the system, XX a bug.
        let passing = ["08", "25006", "40", "53", "55P03", "57", "58"];
        let error = if !advice.is_empty() {
            self.refused(format!("{why}; {advice}"))
        } else if passing.iter().any(|class| code.starts_with(class)) {
            self.unavailable(why)
        } else {
            self.refused(format!("{why} ({code})"))
        };
        let ended = code.starts_with("57P") || code.starts_with("08");
        Failed { error, data: data.then(|| said.message().to_owned()), ended }
    }

    /// Does something in a transaction that changes sums. On a connection that is made anew nothing is
    /// known: the server may be another one that has not heard of the last things.
    fn write_sums<T>(
        &mut self,
        work: impl AsyncFn(&Client, &Known) -> Result<(T, Found), Failure>,
    ) -> Result<T, Failed> {
        let begin = self.begin("");
        let used = self.client.is_some();
        let mut known = std::mem::take(&mut self.known);
        let mut done = self.attempt(&begin, &async |client: &Client| work(client, &known).await);
        if used && matches!(done, Err(Failed { ended: true, .. })) {
            known = Known::default();
            done = self.attempt(&begin, &async |client: &Client| work(client, &known).await);
        }
        self.known = known;
        let (done, found) = done?;
        self.known.learn(found);
        Ok(done)
    }

    /// Loads rows; where one of them can never be taken, the halves, so that only that one is left.
    fn load_some(
        &mut self,
        items: &[Item<'_>],
        table: &Table,
        loaded: &mut Loaded,
    ) -> Result<(), Error> {
        if !self.repeats && table.plain {
            let work =
                async |client: &Client, known: &Known| add(client, table, known, items).await;
            match self.write_sums(work) {
                Ok(()) => {
                    loaded.added += items.len() as u64;
                    return Ok(());
                }
                Err(Failed { data: Some(_), .. }) => self.repeats = true,
                Err(Failed { error, .. }) => return Err(error),
            }
        }
        let done = self.write_sums(async |client, known| load(client, table, known, items).await);
        match done {
            Ok(Done { added, amended, refused }) => {
                self.repeats = added < items.len() as u64;
                loaded.added += added;
                loaded.amended += amended;
                loaded.known += items.len() as u64 - added - amended - refused.len() as u64;
                loaded.refused.extend(refused);
                Ok(())
            }
            Err(Failed { data: Some(why), .. }) => {
                if let [item] = items {
                    loaded.refused.push((item.index, why));
                    return Ok(());
                }
                let (first, second) = items.split_at(items.len() / 2);
                self.load_some(first, table, loaded)?;
                self.load_some(second, table, loaded)
            }
            Err(Failed { error, data: None, .. }) => Err(error),
        }
    }
}

/// An error, and what is to blame.
struct Failed {
    error: Error,
    /// What the server says of the data.
    data: Option<String>,
    /// The connection has ended.
    ended: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, data: None, ended: false }
    }
}

impl Reads for Postgres {
    fn flavor(&mut self) -> Result<Flavor, Error> {
        Ok(self.table()?.flavor.clone())
    }

    fn read(&mut self, sql: &Sql<'_>) -> Result<Vec<Vec<Cell<'static>>>, Error> {
        let begin = self.begin(" READ ONLY");
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
            sql.values.iter().map(parameter).collect();
        let read = async |client: &Client| {
            let rows = client.query_typed(&sql.text, &parameters).await?;
            let cells: Result<Vec<_>, tokio_postgres::Error> = rows.iter().map(cells).collect();
            Ok(cells?)
        };
        self.transact(&begin, read).map_err(|Failed { error, data, .. }| match data {
            // A value that the column cannot hold, such as a team that is no UUID.
            Some(why) => Error::Query(why),
            None => error,
        })
    }

    fn read_both<T>(
        &mut self,
        first: &Sql<'_>,
        second: &Sql<'_>,
        start: impl Fn(Vec<Vec<Cell<'static>>>) -> T,
        add: impl Fn(&mut T, Vec<Cell<'static>>),
    ) -> Result<T, Error> {
        let begin = self.begin(" ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let read = async |client: &Client| {
            let mut rows = Vec::new();
            each_row(client, first, |row| rows.push(row)).await?;
            let mut sums = start(rows);
            each_row(client, second, |row| add(&mut sums, row)).await?;
            Ok(sums)
        };
        self.transact(&begin, read).map_err(|failed| failed.error)
    }
}

/// Hands over each row that a statement gives, as it comes.
async fn each_row(
    client: &Client,
    sql: &Sql<'_>,
    mut each: impl FnMut(Vec<Cell<'static>>),
) -> Result<(), Failure> {
    let values = sql.values.iter().map(parameter);
    let mut rows = pin!(client.query_typed_raw(&sql.text, values).await?);
    while let Some(row) = rows.try_next().await? {
        each(cells(&row)?);
    }
    Ok(())
}

fn parameter(value: &Value) -> (&(dyn ToSql + Sync), Type) {
    match value {
        Value::Int(number) => (number, Type::INT8),
        Value::Text(text) => (text, Type::TEXT),
    }
}

/// The cells of a row that has only numbers, flags and texts.
fn cells(row: &tokio_postgres::Row) -> Result<Vec<Cell<'static>>, tokio_postgres::Error> {
    let cell = |(index, column): (usize, &tokio_postgres::Column)| {
        Ok(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map_or(Cell::Null, Cell::Int),
            Type::BYTEA => {
                row.try_get::<_, Option<Vec<u8>>>(index)?.map_or(Cell::Null, Cell::Bytes)
            }
            Type::BOOL => row.try_get::<_, Option<bool>>(index)?.map_or(Cell::Null, Cell::Flag),
            _ => {
                let text = row.try_get::<_, Option<String>>(index)?;
                text.map_or(Cell::Null, |text| Cell::Text(text.into()))
            }
        })
    };
    row.columns().iter().enumerate().map(cell).collect()
}

impl Backend for Postgres {
    fn ping(&mut self) -> Result<(), Error> {
        let begin = self.begin(" READ ONLY");
        let ping = async |client: &Client| {
            client.query_typed("SELECT 1", &[]).await?;
            Ok(())
        };
        self.transact(&begin, ping).map_err(|failed| failed.error)
    }

    fn migrate(&mut self) -> Result<Vec<String>, Error> {
        self.must_write()?;
        // An index on a large table takes its time, but nobody waits long behind a lock.
        let sql =
            "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'".to_owned();
        let begin = Begin { sql, timeout: Duration::from_secs(6 * 3600) };
        let mut applied = Vec::new();
        for migration in &migrations::POSTGRES {
            let work = async |client: &Client| apply(client, migration).await;
            if self.transact(&begin, work).map_err(|failed| failed.error)? {
                applied.push(migration.name.to_owned());
            }
        }
        if let Some((_, table)) = &mut self.client {
            *table = None;
        }
        self.table()?;
        Ok(applied)
    }

    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error> {
        self.must_write()?;
        let (items, mut loaded) = items(entries);
        if !items.is_empty() {
            let table = self.table()?;
            self.load_some(&items, &table, &mut loaded)?;
        }
        loaded.refused.sort_unstable();
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
        self.must_write()?;
        let flavor = self.flavor()?;
        let key = flavor.key;
        let column = COLUMNS.iter().find(|column| column.kind == Kind::Time);
        let at = column.map(|column| (flavor.write)(&flavor, column, "$1")).unwrap_or_default();
        let sql = format!(
            "DELETE FROM public.gateway_requests WHERE {key} IN (SELECT {key} FROM \
             public.gateway_requests WHERE created_at < {at} AND sequence IS NOT NULL \
             ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)"
        );
        let (before, most) = (time(before), i64::try_from(most).unwrap_or(i64::MAX));
        self.read_write(async |client: &Client| {
            let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                [(&before, Type::INT8), (&most, Type::INT8)];
            Ok(client.execute_typed(&sql, &parameters).await?)
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
        self.must_write()?;
        let table = self.table()?;
        self.write_sums(async |client, known| rejudge(client, &table, known, verdicts).await)
            .map_err(|failed| failed.error)
    }
}

async fn apply(client: &Client, migration: &migrations::Migration) -> Result<bool, Failure> {
    let lock = "SELECT pg_advisory_xact_lock($1)::text";
    client.query_typed(lock, &[(&LOCK, Type::INT8)]).await?;
    client.batch_execute(POSTGRES_NOTES).await?;
    let note = "INSERT INTO public.endstop_migrations (name) VALUES ($1) ON CONFLICT DO NOTHING";
    if client.execute_typed(note, &[(&migration.name, Type::TEXT)]).await? == 0 {
        return Ok(false);
    }
    client.batch_execute(migration.sql).await?;
    Ok(true)
}

/// The table of the rows, and what is said to it, made once.
struct Table {
    flavor: Flavor,
    /// What is written is what will be read.
    plain: bool,
    /// Rows that are not there.
    add: String,
    /// Rows that may be there.
    insert: String,
    lock: String,
    update: String,
}

impl Table {
    fn new(shape: &Shape) -> Self {
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
            add,
            lock: format!(
                "SELECT {} FROM public.gateway_requests AS t WHERE {key} = ANY($1) AND \
                 sequence IS NOT NULL ORDER BY t.{key} FOR UPDATE",
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

/// How many rows are new, how many say more now, and which cannot be taken.
struct Done {
    added: u64,
    amended: u64,
    refused: Vec<(usize, String)>,
}

/// Adds rows of which none is there: one that is there fails them all. To look whether a row is there
/// while it is inserted costs Postgres half as much again. The sums are sent behind the rows, without
/// waiting for an answer.
async fn add(
    client: &Client,
    table: &Table,
    known: &Known,
    items: &[Item<'_>],
) -> Result<((), Found), Failure> {
    let rows: Vec<(Uuid, Row<'_>)> = items.iter().map(|item| (item.key, item.row)).collect();
    let arrays = arrays(&rows);
    let insert = async {
        client.execute_typed(&table.add, &parameters(&arrays)).await?;
        Ok(())
    };
    let sums = async {
        // The rows are on their way first.
        tokio::task::yield_now().await;
        let mut changes = Gathering::default();
        items.iter().for_each(|item| changes.add(&item.row));
        write_changes(client, known, &changes.changes()).await
    };
    try_join(insert, sums).await
}

async fn load(
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
    let found = write_changes(client, known_series, &changes.changes()).await?;
    let (added, amended) = (new.len() as u64, updates.len() as u64);
    Ok((Done { added, amended, refused }, found))
}

async fn rejudge(
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
    let found = write_changes(client, known, &changes.changes()).await?;
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

/// The values of one column.
enum Array<'a> {
    Keys(Vec<Uuid>),
    Times(Vec<SystemTime>),
    Texts(Vec<Option<Cow<'a, str>>>),
    Ints(Vec<Option<i64>>),
    Flags(Vec<Option<bool>>),
    Bytes(Vec<Vec<u8>>),
}

fn arrays<'a>(rows: &[(Uuid, Row<'a>)]) -> Vec<Array<'a>> {
    let array = |column: &crate::columns::Column| {
        let cells = rows.iter().map(|(_, row)| (column.get)(row));
        match column.kind {
            Kind::Key => Array::Keys(rows.iter().map(|(key, _)| *key).collect()),
            Kind::Time => Array::Times(cells.map(|cell| system_time(&cell)).collect()),
            Kind::Text => Array::Texts(cells.map(as_text).collect()),
            Kind::Int => Array::Ints(cells.map(|cell| cell.as_int()).collect()),
            Kind::Flag => {
                Array::Flags(cells.map(|cell| cell.as_int().map(|flag| flag == 1)).collect())
            }
        }
    };
    COLUMNS.iter().map(array).collect()
}

fn system_time(cell: &Cell<'_>) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(cell.as_count().unwrap_or_default())
}

fn as_text(cell: Cell<'_>) -> Option<Cow<'_, str>> {
    match cell {
        Cell::Text(text) => Some(text),
        Cell::Null | Cell::Int(_) | Cell::Flag(_) | Cell::Bytes(_) => None,
    }
}

fn parameters<'b>(arrays: &'b [Array<'_>]) -> Vec<(&'b (dyn ToSql + Sync), Type)> {
    let parameter = |array: &'b Array<'_>| -> (&'b (dyn ToSql + Sync), Type) {
        match array {
            Array::Keys(keys) => (keys, Type::UUID_ARRAY),
            Array::Times(times) => (times, Type::TIMESTAMPTZ_ARRAY),
            Array::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Array::Ints(ints) => (ints, Type::INT8_ARRAY),
            Array::Flags(flags) => (flags, Type::BOOL_ARRAY),
            Array::Bytes(bytes) => (bytes, Type::BYTEA_ARRAY),
        }
    };
    arrays.iter().map(parameter).collect()
}

const LOCK_CHUNKS: &str = "SELECT h.hour, h.chunk, h.lines FROM UNNEST($1, $2) AS u(hour, chunk) \
    JOIN public.endstop_hourly AS h ON h.hour = u.hour AND h.chunk = u.chunk \
    ORDER BY h.hour, h.chunk FOR UPDATE OF h";
/// Empty chunks, so that there is something to lock: none is locked before all are there, because what
/// others have just made can be waited for, and not be seen.
const NEW_CHUNKS: &str = "INSERT INTO public.endstop_hourly (hour, chunk, lines) \
    SELECT hour, chunk, '\\x01' FROM UNNEST($1, $2) AS u(hour, chunk) ON CONFLICT DO NOTHING";
const WRITE_CHUNKS: &str = "UPDATE public.endstop_hourly AS h SET lines = u.lines \
    FROM UNNEST($1, $2, $3) AS u(hour, chunk, lines) WHERE h.hour = u.hour AND h.chunk = u.chunk";
const WORDS: &str = "INSERT INTO public.endstop_words AS w \
    (provider, dialect, field, word, reason, first_seen, last_seen, seen) \
    SELECT * FROM UNNEST($1, $2, $3, $4, $5, $6, $7, $8) \
    ON CONFLICT (provider, dialect, field, word, reason) \
    DO UPDATE SET first_seen = LEAST(w.first_seen, excluded.first_seen), \
    last_seen = GREATEST(w.last_seen, excluded.last_seen), seen = w.seen + excluded.seen";

/// What changes is sent without waiting in between, where nothing depends on the answers.
async fn write_changes(
    client: &Client,
    known: &Known,
    changes: &Changes<'_>,
) -> Result<Found, Failure> {
    let mut found = find_series(client, known, changes).await?;
    let mut chunks = changes.chunks(known, &found);
    found.chunks = chunks.keys().filter(|place| !known.has(place)).copied().collect();
    let new = make_chunks(client, &found.chunks);
    try_join(new, add_chunks(client, &mut chunks)).await?;
    try_join(write_chunks(client, &chunks), write_words(client, changes)).await?;
    Ok(found)
}

/// Gives numbers to the series that have none, and finds those that are not known here yet.
async fn find_series(
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
    wanted.retain(|parts| found.series(parts).is_none());
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
        found.series.insert(parts, row.try_get(0)?);
    }
    Ok(())
}

fn part_arrays<'a>(series: &[&Parts<'a>]) -> Vec<Array<'a>> {
    let texts = |part: usize| series.iter().map(|parts| parts.get(part).cloned()).collect();
    (0..PARTS.len()).map(|part| Array::Texts(texts(part))).collect()
}

async fn make_chunks(client: &Client, new: &[Place]) -> Result<(), Failure> {
    if !new.is_empty() {
        client.execute_typed(NEW_CHUNKS, &parameters(&place_arrays(new.iter()))).await?;
    }
    Ok(())
}

/// Locks chunks, in their order, and adds to what changes what stands there.
async fn add_chunks(client: &Client, chunks: &mut BTreeMap<Place, Lines>) -> Result<(), Failure> {
    if chunks.is_empty() {
        return Ok(());
    }
    let arrays = place_arrays(chunks.keys());
    for row in client.query_typed(LOCK_CHUNKS, &parameters(&arrays)).await? {
        let place: Place = (row.try_get(0)?, row.try_get(1)?);
        let before = Lines::read(row.try_get(2)?);
        let before = before.ok_or_else(|| Failure::Refused(DAMAGED.to_owned()))?;
        chunks.entry(place).or_default().merge(&before);
    }
    Ok(())
}

fn place_arrays<'a>(places: impl Iterator<Item = &'a Place>) -> Vec<Array<'static>> {
    let (hours, numbers) = places.map(|(hour, chunk)| (Some(*hour), Some(*chunk))).unzip();
    vec![Array::Ints(hours), Array::Ints(numbers)]
}

async fn write_chunks(client: &Client, chunks: &BTreeMap<Place, Lines>) -> Result<(), Failure> {
    if !chunks.is_empty() {
        let mut arrays = place_arrays(chunks.keys());
        arrays.push(Array::Bytes(chunks.values().map(Lines::pack).collect()));
        let written = client.execute_typed(WRITE_CHUNKS, &parameters(&arrays)).await?;
        if written != chunks.len() as u64 {
            let why = "lines of public.endstop_hourly were deleted meanwhile";
            return Err(Failure::Refused(why.to_owned()));
        }
    }
    Ok(())
}

async fn write_words(client: &Client, changes: &Changes<'_>) -> Result<(), Failure> {
    let words = changes.words();
    if !words.is_empty() {
        let texts = |part: usize| words.iter().map(|(word, _)| word.get(part).cloned()).collect();
        let mut arrays: Vec<Array<'_>> = (0..5).map(|part| Array::Texts(texts(part))).collect();
        arrays.push(Array::Ints(words.iter().map(|(_, seen)| Some(seen.first)).collect()));
        arrays.push(Array::Ints(words.iter().map(|(_, seen)| Some(seen.last)).collect()));
        arrays.push(Array::Ints(words.iter().map(|(_, seen)| Some(seen.count)).collect()));
        client.execute_typed(WORDS, &parameters(&arrays)).await?;
    }
    Ok(())
}

fn places(count: usize) -> String {
    let places: Vec<String> = (1..=count).map(|place| format!("${place}")).collect();
    places.join(", ")
}
