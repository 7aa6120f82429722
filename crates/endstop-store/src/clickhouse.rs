//! ClickHouse, one server or a cluster, by plain HTTP.
//!
//! A row is never changed: a later entry, or a newer verdict, is another row with the same time and id and a higher
//! version, and questions take the highest (`FINAL`). So rows may come twice, late, and in any order. Reports count
//! the rows; sums are kept only of rows that are deleted.

mod address;
mod forget;
mod http;
mod report;
mod schema;
mod text;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use bytes::Bytes;

use crate::ask::{self, Reads};
use crate::columns::{COLUMNS, Cell, Column, Kind, Row, time};
use crate::error::Error;
use crate::load::{Item, amended, items, rejudged};
use crate::open::{Options, refuse, shown};
use crate::query::{Filter, Period, Query, Report, Wanted, WordSeen};
use crate::sink::{Entry, Loaded, Pace, Sink, Store, Stored};
use crate::sql::{self, DELETED, Flavor, Sql, like_pattern};
use address::Address;
use http::{Failure, Http, Reply};
use schema::{Dialect, STEPS, Schema};

/// Entries of a batch: an insert costs the server about as much as thousands of rows.
const BATCH: usize = 20_000;
/// The time that a client waits beyond the server's own timeout.
const GRACE: Duration = Duration::from_secs(5);
/// The longest that a change of tables may take, which other servers may have to take part in.
const CHANGE: Duration = Duration::from_secs(200);
/// The longest statement, in bytes: a batch is asked for by its ids.
const LONGEST: usize = 16 << 20;
/// The longest message of a server that is repeated.
const MESSAGE: usize = 300;
/// Time around the one in an id, within which its row is looked for first.
const AROUND: i64 = 3_600_000;
/// The longest that a turn is taken to last, when it is looked for first.
const TURN: i64 = 24 * 3_600_000;
/// The name of the state that says before which time rows are gone, and sums are kept.
const DROPPED: &str = "dropped_before";

/// Opens `clickhouse://…`; it is reached when it is first used.
pub(crate) fn open(url: &str, options: &Options) -> Result<Box<dyn Store>, Error> {
    let address = Address::read(url).map_err(|why| refuse(url, why))?;
    let http = Http::new(&address).map_err(|why| refuse(url, why))?;
    let store = shown(url);
    Ok(Box::new(ClickHouse { address, http, store, options: *options, schema: None }))
}

/// A server, or a cluster.
struct ClickHouse {
    address: Address,
    http: Http,
    store: String,
    options: Options,
    /// Known once it was reached.
    schema: Option<Schema>,
}

/// Times before which rows are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Deleted {
    /// Rows cannot be asked for.
    hidden: i64,
    /// Rows are gone, and their sums are kept.
    dropped: i64,
}

impl ClickHouse {
    /// Returns the tables in the dialect of the server.
    fn schema(&mut self) -> Result<Schema, Error> {
        if let Some(schema) = &self.schema {
            return Ok(schema.clone());
        }
        let timeout = self.options.timeout + GRACE;
        let version = self.send("", "SELECT version()".into(), timeout)?;
        let version = String::from_utf8_lossy(&version).trim().to_owned();
        let dialect = Dialect::of(&version)
            .ok_or_else(|| self.refused("it does not answer as ClickHouse does; check the port"))?;
        let Address { database, cluster, .. } = self.address.clone();
        let schema = Schema { dialect, database, cluster };
        self.schema = Some(schema.clone());
        Ok(schema)
    }

    /// Asks a question.
    fn ask(&mut self, statement: &str) -> Result<Vec<Vec<Cell<'static>>>, Error> {
        let Schema { dialect, .. } = self.schema()?;
        let timeout = self.options.timeout;
        let parameters = format!(
            "&max_execution_time={}&max_query_size={LONGEST}{}",
            timeout.as_secs().max(1),
            dialect.settings()
        );
        let body = self.send(&parameters, statement.to_owned().into(), timeout + GRACE)?;
        Ok(text::rows(&body))
    }

    /// Changes tables.
    fn change(&mut self, statement: &str) -> Result<(), Error> {
        self.send("", statement.to_owned().into(), CHANGE).map(drop)
    }

    fn send(&mut self, parameters: &str, body: Bytes, timeout: Duration) -> Result<Bytes, Error> {
        let database = encoded(&self.address.database);
        let target = format!("/?database={database}&wait_end_of_query=1{parameters}");
        match self.http.post(&target, &body, timeout) {
            Ok(Reply { status: 200, code: None, body }) => Ok(body),
            Ok(reply) => Err(self.failed(&reply)),
            Err(Failure::Passing(why)) => Err(self.unavailable(why)),
            Err(Failure::Lasting(why)) => Err(self.refused(why)),
        }
    }

    fn refused(&self, why: impl Into<String>) -> Error {
        Error::Refused { store: self.store.clone(), why: why.into() }
    }

    fn unavailable(&self, why: impl Into<String>) -> Error {
        Error::Unavailable { store: self.store.clone(), why: why.into() }
    }

    fn must_write(&self) -> Result<(), Error> {
        if self.options.read_only { Err(self.refused("it was opened to be read")) } else { Ok(()) }
    }

    /// Explains an error, with advice.
    fn failed(&mut self, reply: &Reply) -> Error {
        let said = String::from_utf8_lossy(&reply.body);
        let said = said.lines().next().unwrap_or_default();
        let said = said.get(..said.floor_char_boundary(MESSAGE)).unwrap_or(said).trim();
        let code = reply.code.or_else(|| code_of(said));
        let Some(code) = code else {
            let why = format!("HTTP status {}", reply.status);
            return match reply.status {
                // A proxy whose server is not there, or too many requests.
                429 | 500.. => self.unavailable(why),
                _ => self.refused(format!("{why}; does ClickHouse's HTTP interface listen there?")),
            };
        };
        let advice = match code {
            192 | 193 | 194 | 516 => "check the user and the password",
            81 => "create the database",
            16 | 47 | 60 => "run `endstop migrate`",
            164 | 497 => "grant this user the right",
            170 | 701 => "check the parameter `cluster`",
            159 | 160 if self.options.read_only => {
                let why = "it took too long: ask for a shorter period, or for less";
                return Error::Query(why.to_owned());
            }
            _ => "",
        };
        if !advice.is_empty() {
            return self.refused(format!("{said}; {advice}"));
        }
        if is_passing(code) {
            self.http.turn_away();
            return self.unavailable(said);
        }
        self.refused(said)
    }

    /// Returns how rows are asked for of which these can be asked for.
    fn asking(&mut self, known: String) -> Result<Flavor, Error> {
        Ok(flavor(self.schema()?.dialect, known))
    }

    /// Returns how all rows are counted, also those that can no longer be asked for.
    fn counting(&mut self) -> Result<Flavor, Error> {
        self.asking("1".to_owned())
    }

    /// Returns the times before which rows are not there.
    fn deleted(&mut self) -> Result<Deleted, Error> {
        let rows = self.ask("SELECT name, max(value) FROM endstop_state GROUP BY name")?;
        let mut deleted = Deleted::default();
        for row in rows {
            if let [Cell::Text(name), value] = row.as_slice() {
                let value = value.as_int().unwrap_or(0);
                match name.as_ref() {
                    DELETED => deleted.hidden = value,
                    DROPPED => deleted.dropped = value,
                    _ => {}
                }
            }
        }
        Ok(deleted)
    }

    /// Returns the rows of these times and ids, as far as they are there: these columns, first the id.
    fn find(
        &mut self,
        keys: &[(u128, u64)],
        columns: &str,
    ) -> Result<HashMap<u128, Vec<Cell<'static>>>, Error> {
        let Schema { dialect, .. } = self.schema()?;
        let times = || keys.iter().map(|(_, at)| time(*at));
        let (Some(first), Some(last)) = (times().min(), times().max()) else {
            return Ok(HashMap::new());
        };
        let [first, last] = [first, last].map(|at| dialect.write_time(&at.to_string()));
        let within = format!("created_at >= {first} AND created_at <= {last}");
        // Of one gateway, all rows are new: there are none of their time, and counting is much quicker than looking.
        let count = self.ask(&format!("SELECT count() FROM gateway_requests WHERE {within}"))?;
        if count.first().and_then(|row| row.first()?.as_int()) == Some(0) {
            return Ok(HashMap::new());
        }
        // One text is read many times faster than as many literals.
        let ids: Vec<String> = keys.iter().map(|(id, _)| format!("{id:032x}")).collect();
        let statement = format!(
            "SELECT lower(hex(id)), {columns} FROM gateway_requests FINAL WHERE {within} AND id IN \
             (SELECT toFixedString(unhex(arrayJoin(splitByChar(',', '{}'))), 16))",
            ids.join(",")
        );
        let mut found = HashMap::new();
        for mut row in self.ask(&statement)? {
            if row.is_empty() {
                continue;
            }
            let id = u128::from_str_radix(&row.remove(0).into_string(), 16).unwrap_or_default();
            found.insert(id, row);
        }
        Ok(found)
    }

    /// Inserts rows in binary form, as one block that is known by its bytes.
    fn insert(&mut self, rows: Vec<u8>) -> Result<(), Error> {
        let schema = self.schema()?;
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let statement = format!(
            "INSERT INTO gateway_requests ({}, version) FORMAT RowBinary",
            names.join(", ")
        );
        let mut parameters = format!("&query={}{}", encoded(&statement), schema.dialect.settings());
        if schema.cluster.is_some() {
            // Only then has a shard taken it when the reply comes.
            parameters.push_str("&insert_distributed_sync=1");
        }
        if schema.dialect == Dialect::Current {
            let mut hash = DefaultHasher::new();
            rows.hash(&mut hash);
            let token = format!("{:016x}-{}", hash.finish(), rows.len());
            parameters.push_str(&format!("&insert_deduplication_token={token}"));
        }
        let timeout = self.options.timeout + GRACE;
        self.send(&parameters, rows.into(), timeout).map(drop)
    }

    /// Returns the rows that fit one of two periods: a likely one, and all times if there are none in that.
    fn first_near(
        &mut self,
        near: Option<(i64, i64)>,
        sql: impl Fn(&Flavor) -> Sql<'_>,
    ) -> Result<Vec<Vec<Cell<'static>>>, Error> {
        let Schema { dialect, .. } = self.schema()?;
        let Deleted { hidden, .. } = self.deleted()?;
        if let Some((since, until)) = near {
            let [since, until] =
                [since.max(hidden), until].map(|at| dialect.write_time(&at.to_string()));
            let known = format!("created_at >= {since} AND created_at <= {until}");
            let flavor = flavor(dialect, known);
            let rows = self.read(&sql(&flavor))?;
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        let flavor = flavor(dialect, not_hidden(dialect, hidden));
        self.read(&sql(&flavor))
    }
}

/// Returns the time in an id, if it has one: its first twelve digits.
fn time_of(id: &str) -> Option<i64> {
    id.get(..12).and_then(|digits| i64::from_str_radix(digits, 16).ok())
}

fn not_hidden(dialect: Dialect, hidden: i64) -> String {
    format!("created_at >= {}", dialect.write_time(&hidden.to_string()))
}

fn flavor(dialect: Dialect, known: String) -> Flavor {
    Flavor {
        table: "gateway_requests AS t FINAL",
        known: known.into(),
        schema: "",
        key: "id",
        has_time_index: false,
        place: '$',
        like: ("LIKE", ""),
        pattern: like_pattern,
        read: match dialect {
            Dialect::Current => |_, column| read(Dialect::Current, column),
            Dialect::Old => |_, column| read(Dialect::Old, column),
        },
        write: match dialect {
            Dialect::Current => |_, column, place| write(Dialect::Current, column, place),
            Dialect::Old => |_, column, place| write(Dialect::Old, column, place),
        },
        types: Vec::new(),
    }
}

fn read(dialect: Dialect, column: &Column) -> String {
    match column.kind {
        Kind::Key => "lower(hex(id))".to_owned(),
        Kind::Time => dialect.read_time(column.name),
        Kind::Text | Kind::Int | Kind::Flag => column.name.to_owned(),
    }
}

fn write(dialect: Dialect, column: &Column, place: &str) -> String {
    match column.kind {
        Kind::Key => format!("unhex({place})"),
        Kind::Time => dialect.write_time(place),
        Kind::Text | Kind::Int | Kind::Flag => place.to_owned(),
    }
}

/// Reads the number in `Code: 60. DB::Exception: …`.
fn code_of(said: &str) -> Option<u32> {
    let rest = said.split_once("Code: ")?.1;
    rest.split([',', '.', ' ']).next()?.parse().ok()
}

/// Returns whether an error of this number may pass by itself: connections, other servers, `ZooKeeper`, load, disks.
fn is_passing(code: u32) -> bool {
    const PASSING: [u32; 22] = [
        3, 32, 95, 159, 160, 198, 202, 203, 209, 210, 225, 236, 241, 242, 243, 252, 254, 279, 285,
        319, 425, 999,
    ];
    PASSING.contains(&code)
}

/// Encodes a value of a URL.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut to, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            to.push(byte.into());
        } else {
            to.push_str(&format!("%{byte:02X}"));
        }
        to
    })
}

impl Reads for ClickHouse {
    fn flavor(&mut self) -> Result<Flavor, Error> {
        let Schema { dialect, .. } = self.schema()?;
        let Deleted { hidden, .. } = self.deleted()?;
        self.asking(not_hidden(dialect, hidden))
    }

    fn read(&mut self, sql: &Sql<'_>) -> Result<Vec<Vec<Cell<'static>>>, Error> {
        self.ask(&text::bound(&sql.text, &sql.values))
    }

    fn read_each<T>(
        &mut self,
        statements: &[Sql<'_>],
        start: impl Fn() -> T,
        add: impl Fn(&mut T, usize, Vec<Cell<'static>>),
    ) -> Result<T, Error> {
        let mut sums = start();
        for (index, statement) in statements.iter().enumerate() {
            self.read(statement)?.into_iter().for_each(|row| add(&mut sums, index, row));
        }
        Ok(sums)
    }
}

impl Sink for ClickHouse {
    fn migrate(&mut self) -> Result<Vec<String>, Error> {
        self.must_write()?;
        let schema = self.schema()?;
        let database = text::literal(&schema.database);
        let tables =
            self.ask(&format!("SELECT name FROM system.tables WHERE database = {database}"))?;
        let has = |name: &str| tables.iter().any(|row| *row == [Cell::Text(name.into())]);
        if has("gateway_requests") && !has("endstop_migrations") {
            let why = "it has a table `gateway_requests` that is not ours; name another database";
            return Err(self.refused(why));
        }
        if !has("endstop_migrations") {
            self.change(&schema.notes())?;
        }
        let noted = self.ask("SELECT name FROM endstop_migrations")?;
        let noted: HashSet<String> = noted.into_iter().flatten().map(Cell::into_string).collect();
        let mut applied = Vec::new();
        for name in STEPS {
            // A server that was added to a cluster knows the notes, and has no tables.
            let is_here = schema.cluster.is_none() || has(&schema.table_of(name));
            if noted.contains(name) && is_here {
                continue;
            }
            for statement in schema.step(name) {
                self.change(&statement)?;
            }
            self.change(&format!("INSERT INTO endstop_migrations (name) VALUES ('{name}')"))?;
            applied.push(name.to_owned());
        }
        self.set_ttl(&schema)?;
        Ok(applied)
    }

    fn pace(&self) -> Pace {
        Pace { batch: BATCH, linger: self.address.linger, forget: usize::MAX }
    }

    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error> {
        self.must_write()?;
        let (items, mut loaded) = items(entries);
        if items.is_empty() {
            return Ok(loaded);
        }
        let keys: Vec<(u128, u64)> = items.iter().map(Item::id_and_time).collect();
        let columns = "sequence, previous_reason, previous_finish_reason, previous_rules";
        let known = self.find(&keys, columns)?;
        let nullable = text::nullable();
        let mut rows = Vec::with_capacity(items.len() * 512);
        for item in &items {
            let id = item.key.as_u128();
            let old = known.get(&id).cloned().map(noted);
            let row = match &old {
                None => Some(item.row),
                Some(old) => amended(old, &item.row),
            };
            match (row, &old) {
                (None, _) => loaded.known += 1,
                (Some(_), None) => loaded.added += 1,
                (Some(_), Some(_)) => loaded.amended += 1,
            }
            if let Some(row) = row {
                text::push_row(&mut rows, id, &row, &nullable, version(row.sequence));
            }
        }
        if !rows.is_empty() {
            self.insert(rows)?;
        }
        Ok(loaded)
    }

    fn forget(&mut self, before: u64, most: usize) -> Result<u64, Error> {
        self.must_write()?;
        forget::forget(self, time(before), most)
    }
}

/// Returns the version of a row that was judged once. Each time that it is judged again adds one.
fn version(sequence: u32) -> u64 {
    u64::from(sequence) << 32
}

/// Reads the columns that a later entry leaves as they are.
fn noted(cells: Vec<Cell<'static>>) -> Stored {
    let names = ["sequence", "previous_reason", "previous_finish_reason", "previous_rules"];
    let columns =
        names.iter().filter_map(|name| COLUMNS.iter().find(|column| column.name == *name));
    crate::columns::stored_by(columns, cells)
}

impl Store for ClickHouse {
    fn ping(&mut self) -> Result<(), Error> {
        self.schema().map(drop)
    }

    fn report(&mut self, query: &Query) -> Result<Report, Error> {
        report::report(self, query)
    }

    fn endings(&mut self, wanted: &Wanted) -> Result<Vec<Stored>, Error> {
        ask::endings_by(self, wanted, |from, _| {
            let Schema { dialect, .. } = from.schema()?;
            let time = dialect.read_time("max(created_at)");
            let rows = from.ask(&format!("SELECT {time} FROM gateway_requests"))?;
            Ok(rows.first().and_then(|row| row.first()?.as_count()))
        })
    }

    fn ending(&mut self, id: &str) -> Result<Option<Stored>, Error> {
        let digits = ask::digits(id)?;
        let (low, high) = ask::ids(&digits);
        let near = time_of(&low).zip(time_of(&high));
        let near = near.map(|(low, high)| (low - AROUND, high + AROUND));
        let rows = self.first_near(near, |flavor| sql::between(flavor, &low, &high))?;
        ask::only(rows, &digits)
    }

    fn turn(&mut self, turn_id: &str) -> Result<Vec<Stored>, Error> {
        let near = crate::load::key(turn_id).and_then(|id| time_of(&id));
        let near = near.map(|at| (at - AROUND, at + TURN));
        let rows = self.first_near(near, |flavor| sql::turn(flavor, turn_id, ask::MOST))?;
        Ok(rows.into_iter().map(crate::columns::stored).collect())
    }

    fn words(
        &mut self,
        filter: &Filter,
        period: Period,
        limit: usize,
    ) -> Result<Vec<WordSeen>, Error> {
        report::words(self, filter, period, limit)
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
        let key = |verdict: &Stored| {
            let id = uuid::Uuid::try_parse(&verdict.record.id).ok()?;
            Some((id.as_u128(), verdict.record.created_at))
        };
        let keys: Vec<(u128, u64)> = verdicts.iter().filter_map(key).collect();
        let flavor = self.counting()?;
        let mut found = self.find(&keys, &format!("version, {}", flavor.columns()))?;
        let nullable = text::nullable();
        let (mut rows, mut judged) = (Vec::new(), 0);
        for verdict in verdicts {
            let Some((id, _)) = key(verdict) else { continue };
            let Some(mut cells) = found.remove(&id).filter(|cells| !cells.is_empty()) else {
                continue;
            };
            let version = cells.remove(0).as_count().unwrap_or_default();
            let old = crate::columns::stored(cells);
            if let Some(new) = rejudged(&old, verdict) {
                text::push_row(&mut rows, id, &Row::from(&new), &nullable, version + 1);
                judged += 1;
            }
        }
        if !rows.is_empty() {
            self.insert(rows)?;
        }
        Ok(judged)
    }
}
