//! Postgres, directly or through a pooler in transaction mode.
//!
//! Nothing is left on a connection between transactions: no prepared statement has a name, settings are
//! those of a transaction, and so are locks. A connection that failed is dropped; the next call makes a
//! new one.

pub(crate) mod adopt;
mod arrays;
mod copy;
mod fold;
mod read;
mod shape;
mod tls;
mod write;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;
use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config};

use crate::ask::{self, Reads};
use crate::columns::{COLUMNS, Kind, time};
use crate::error::Error;
use crate::load::{Item, items};
use crate::migrations::{self, POSTGRES_NOTES};
use crate::open::{Options, refuse, shown};
use crate::query::{Filter, Period, Query, Report, Wanted, WordSeen};
use crate::series::{Found, Known};
use crate::sink::{Entry, Loaded, Sink, Store, Stored};
use crate::sql::DELETED;
use shape::Shape;
use tls::Tls;
use write::Table;

/// Any number that no other program takes a lock by.
const LOCK: i64 = 0x656e_6473_746f_7031;
/// The longest that a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Time that a client waits beyond the server's own timeout.
const GRACE: Duration = Duration::from_secs(5);

/// Opens `postgres://…`; it is reached when it is first used.
pub(crate) fn open(url: &str, options: &Options) -> Result<Box<dyn Store>, Error> {
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

/// Cause of a failure.
pub(crate) enum Failure {
    Driver(tokio_postgres::Error),
    Refused(String),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

/// Beginning, end and longest time of a transaction.
struct Begin {
    sql: String,
    /// Follows `COMMIT` or `ROLLBACK`.
    end: &'static str,
    timeout: Duration,
    /// The first thing that is done within it changes nothing, and is sent without waiting for the answer.
    at_once: bool,
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
        Begin { sql, end: "", timeout: timeout + GRACE, at_once: false }
    }

    /// Begins a transaction that first prepares a statement with a name. Behind a pooler the server's connection is
    /// another one each time, and a statement that stayed on one would be in the way of the next.
    fn begin_with_names(&self) -> Begin {
        let Begin { sql, timeout, .. } = self.begin("");
        let sql = format!("{sql}; DEALLOCATE ALL");
        Begin { sql, end: "; DEALLOCATE ALL", timeout, at_once: true }
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
            let begun = async { client.batch_execute(&begin.sql).await.map_err(Failure::from) };
            let done = if begin.at_once {
                try_join(begun, work(&client)).await.map(|((), done)| done)
            } else {
                begun.await?;
                work(&client).await
            };
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            let ended = client.batch_execute(&format!("{end}{}", begin.end)).await;
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

    /// Explains an error, with advice.
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

    /// Does something in a transaction that notes changes of sums. On a connection that is made anew nothing is
    /// known: the server may be another one that has not heard of the last things.
    fn write_noted<T>(
        &mut self,
        begin: &Begin,
        work: impl AsyncFn(&Client, &Known) -> Result<(T, Found), Failure>,
    ) -> Result<T, Failed> {
        let used = self.client.is_some();
        let mut known = std::mem::take(&mut self.known);
        let mut done = self.attempt(begin, &async |client: &Client| work(client, &known).await);
        if used && matches!(done, Err(Failed { ended: true, .. })) {
            known = Known::default();
            done = self.attempt(begin, &async |client: &Client| work(client, &known).await);
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
            let begin = self.begin_with_names();
            let work = async |client: &Client, known: &Known| {
                write::add(client, table, known, items).await
            };
            match self.write_noted(&begin, work) {
                Ok(()) => {
                    loaded.added += items.len() as u64;
                    return Ok(());
                }
                Err(Failed { data: Some(_), .. }) => self.repeats = true,
                Err(Failed { error, .. }) => return Err(error),
            }
        }
        let begin = self.begin("");
        let done = self.write_noted(&begin, async |client, known| {
            write::load(client, table, known, items).await
        });
        match done {
            Ok(write::Done { added, amended, refused }) => {
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
    /// Message of the server about the data.
    data: Option<String>,
    /// The connection has ended.
    ended: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, data: None, ended: false }
    }
}

impl Sink for Postgres {
    fn migrate(&mut self) -> Result<Vec<String>, Error> {
        self.must_write()?;
        // An index on a large table takes its time, but nobody waits long behind a lock.
        let sql =
            "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'".to_owned();
        let timeout = Duration::from_secs(6 * 3600);
        let begin = Begin { sql, end: "", timeout, at_once: false };
        self.read_only(async |client: &Client| {
            Shape::check(client).await?.map_err(Failure::Refused)
        })?;
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

    fn tend(&mut self) -> Result<bool, Error> {
        self.must_write()?;
        self.read_write(async |client: &Client| fold::fold(client).await)
    }

    fn forget(&mut self, before: u64, most: usize) -> Result<u64, Error> {
        self.must_write()?;
        let flavor = self.flavor()?;
        let key = flavor.key;
        let column = COLUMNS.iter().find(|column| column.kind == Kind::Time);
        let at = column.map(|column| (flavor.write)(&flavor, column, "$1")).unwrap_or_default();
        // Without an index on times, the order of ids is that of times.
        let order = if flavor.has_time_index { "created_at" } else { key };
        let sql = format!(
            "DELETE FROM public.gateway_requests WHERE {key} IN (SELECT {key} FROM \
             public.gateway_requests WHERE created_at < {at} AND sequence >= 0 \
             ORDER BY {order} LIMIT $2 FOR UPDATE SKIP LOCKED)"
        );
        let note = format!(
            "INSERT INTO public.endstop_state AS s VALUES ('{DELETED}', $1) ON CONFLICT (name) \
             DO UPDATE SET value = GREATEST(s.value, excluded.value)"
        );
        let (before, most) = (time(before), i64::try_from(most).unwrap_or(i64::MAX));
        self.read_write(async |client: &Client| {
            let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                [(&before, Type::INT8), (&most, Type::INT8)];
            let deleted = client.execute_typed(&sql, &parameters).await?;
            if deleted > 0 {
                client.execute_typed(&note, &[(&before, Type::INT8)]).await?;
            }
            Ok(deleted)
        })
    }
}

impl Store for Postgres {
    fn ping(&mut self) -> Result<(), Error> {
        let begin = self.begin(" READ ONLY");
        let ping = async |client: &Client| {
            client.query_typed("SELECT 1", &[]).await?;
            Ok(())
        };
        self.transact(&begin, ping).map_err(|failed| failed.error)
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
        self.must_write()?;
        let table = self.table()?;
        let begin = self.begin("");
        self.write_noted(&begin, async |client, known| {
            write::rejudge(client, &table, known, verdicts).await
        })
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
