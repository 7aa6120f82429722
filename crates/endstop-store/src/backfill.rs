//! Normalises finish reasons that others wrote: a table of Postgres or SQLite, a CSV, JSONL or
//! Parquet file.
//!
//! The provider's own word is read and never written. A table is gone through in the order of its ids; how
//! far is noted in the same transaction as what was written. A file is copied beside itself, and takes
//! its new name when it is whole. A run that was interrupted goes on where it stopped.
//!
//! Rows of others in our own table are adopted: from then on, reports count them. Retention leaves them
//! alone.

mod files;
#[cfg(feature = "parquet")]
mod parquet;
mod postgres;
mod sqlite;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use endstop::dialect::Meaning;
use endstop::record::{Name, all_rules};
use endstop::registry::Registry;
use endstop::vocabulary::Vocabulary;
use endstop::{Reason, Record};
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// The most names of unknown providers that are kept.
const MOST_UNKNOWN_PROVIDERS: usize = 100;

/// Names of the columns, or fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Unique column that identifies a row. Files need none.
    pub id: String,
    /// Provider.
    pub provider: String,
    /// The provider's own word.
    pub native: String,
    /// Column for our word.
    pub finish_reason: String,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            id: "id".to_owned(),
            provider: "provider".to_owned(),
            native: "native_finish_reason".to_owned(),
            finish_reason: "finish_reason".to_owned(),
        }
    }
}

/// Options of a backfill.
#[derive(Clone, Debug)]
pub struct Backfill {
    /// `postgres://…`, `sqlite:FILE`, or the path of a file that ends in `.csv`, `.tsv`, `.jsonl`,
    /// `.ndjson`, or `.parquet` with the feature `parquet`. Of `clickhouse://…` rows of our own are judged again.
    pub from: String,
    /// The table, where it is a database; `schema.table` also.
    pub table: String,
    /// Names of its columns.
    pub columns: Columns,
    /// Provider of rows that name none, or of all rows if there is no such column.
    pub provider: Option<String>,
    /// The providers and words that are known.
    pub registry: Registry,
    /// Path of a file's copy; beside it by default.
    pub to: Option<PathBuf>,
    /// Rows at a time.
    pub batch: usize,
    /// Count only.
    pub dry_run: bool,
}

impl Default for Backfill {
    fn default() -> Self {
        Self {
            from: String::new(),
            table: "gateway_requests".to_owned(),
            columns: Columns::default(),
            provider: None,
            registry: Registry::default(),
            to: None,
            batch: 1000,
            dry_run: false,
        }
    }
}

/// Progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows read in this run, or bytes of a file.
    pub done: u64,
    /// Of how many, as far as is known.
    pub of: Option<u64>,
}

/// A kind of change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Change {
    /// Provider.
    pub provider: String,
    /// The provider's own word.
    pub native: String,
    /// Value before.
    pub from: Option<String>,
    /// Value now.
    pub to: String,
}

/// Result, also of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows read.
    pub rows: u64,
    /// Rows that say something else now.
    pub changed: u64,
    /// Lines of a file that could not be read, and were copied as they are.
    pub unread: u64,
    /// Rows of our own that newer rules judged otherwise.
    pub rejudged: u64,
    /// Rows of others in our own table that reports count from now on.
    pub adopted: u64,
    /// The reason why reports cannot count the rows of others in our own table.
    pub not_adopted: Option<String>,
    /// Number of times that each change was made.
    pub changes: BTreeMap<Change, u64>,
    /// Names of providers that are not known, and how many rows have them: their words were read as
    /// those of OpenAI's compatible hosts. The first hundred.
    pub unknown_providers: BTreeMap<String, u64>,
    /// Path of a file's copy.
    pub file: Option<PathBuf>,
}

impl Backfill {
    /// Goes through all rows, from where an earlier run stopped.
    ///
    /// # Errors
    /// The source cannot be read or written, or has no such columns.
    pub fn run(&self, mut progress: impl FnMut(Progress)) -> Result<Done, Error> {
        let columns = &self.columns;
        if [&columns.id, &columns.provider, &columns.native].contains(&&columns.finish_reason) {
            let why = format!("`{}` would be written over itself", columns.finish_reason);
            return Err(Error::Query(format!("{why}: name another column for our word")));
        }
        if let Some(name) = self.provider.as_deref().filter(|name| !self.registry.knows(name)) {
            let near = endstop::nearest(name, self.registry.ids());
            let near = near.map(|near| format!("did you mean `{near}`? "));
            return Err(Error::Query(format!(
                "unknown provider `{name}`: {}`endstop dialects` lists them all",
                near.unwrap_or_default()
            )));
        }
        if self.batch == 0 {
            return Err(Error::Query("a batch has at least one row".to_owned()));
        }
        let progress: &mut dyn FnMut(Progress) = &mut progress;
        if self.from.starts_with("sqlite:") {
            let mut table = sqlite::Table::open(self)?;
            let done = self.go_through(&mut table, progress)?;
            return self.judge_own(table.is_own(), done);
        }
        if self.from.starts_with("postgres:") || self.from.starts_with("postgresql:") {
            let mut table = postgres::Table::open(self)?;
            let done = self.go_through(&mut table, progress)?;
            return self.judge_own(table.is_own(), done);
        }
        if self.from.starts_with("clickhouse") && self.from.contains("://") {
            if self.table != "gateway_requests" {
                let why = "tables of others in ClickHouse are not changed; export them as files";
                return Err(Error::Query(why.to_owned()));
            }
            return self.judge_own(true, Done::default());
        }
        if self.from.contains("://") {
            return Err(crate::open::refuse(&self.from, "unknown scheme"));
        }
        files::copy(self, Path::new(&self.from), progress)
    }

    fn go_through(
        &self,
        table: &mut impl Table,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Done, Error> {
        let adopts = table.adopts();
        let not_adopted = adopts.as_ref().and_then(|adopts| adopts.clone().err());
        let adopts = matches!(adopts, Some(Ok(())));
        let mut done = Done { not_adopted, ..Done::default() };
        let mut position = if self.dry_run { None } else { table.position()? };
        let of = table.count(position.as_ref())?;
        loop {
            let rows = table.read(position.as_ref(), self.batch)?;
            let Some(last) = rows.last() else { break };
            let last = last.key.clone();
            let mut writes = Vec::new();
            for row in rows {
                done.rows += 1;
                let Some(judged) = self.judge(&row.said, &mut done) else { continue };
                // A row that has its word already may still have to be adopted.
                if judged.differs || adopts {
                    writes.push(Write { key: row.key, native: row.said.native, judged });
                }
            }
            if !self.dry_run {
                done.adopted += table.write(&writes, &last)?;
            }
            progress(Progress { done: done.rows, of });
            position = Some(last);
        }
        if !self.dry_run {
            table.finish()?;
        }
        Ok(done)
    }

    /// Judges rows of our own again that older rules judged; what was said before is kept beside.
    fn judge_own(&self, own: bool, mut done: Done) -> Result<Done, Error> {
        if !own {
            return Ok(done);
        }
        let mut store = crate::open(&self.from)?;
        let mut after = String::new();
        let current = all_rules(&self.registry);
        loop {
            let mut rows = store.judged_otherwise(&current, &after, self.batch)?;
            let Some(last) = rows.last() else { return Ok(done) };
            after.clone_from(&last.record.id);
            let otherwise =
                rows.iter_mut().filter_map(|row| self.judge_again(&mut row.record).then_some(()));
            let otherwise = otherwise.count() as u64;
            done.rows += rows.len() as u64;
            done.rejudged += otherwise;
            if !self.dry_run {
                store.rejudge(&rows)?;
            }
        }
    }

    /// Returns the word that a row should have, and counts it if it has another one.
    fn judge(&self, said: &Said, done: &mut Done) -> Option<Judged> {
        let native = said.native.as_deref()?;
        let named = said.provider.as_deref().filter(|provider| !provider.is_empty());
        let provider = named.or(self.provider.as_deref()).unwrap_or_default();
        let to = self.registry.normalize_finish_reason(Some(native), provider)?;
        if !provider.is_empty()
            && !self.registry.knows(provider)
            && done.unknown_providers.len() < MOST_UNKNOWN_PROVIDERS
        {
            let name = crate::columns::clean(provider, 256).into_owned();
            *done.unknown_providers.entry(name).or_default() += 1;
        }
        let reason = match self.registry.meaning(provider, native) {
            Meaning::Known(reason) | Meaning::Vague(reason) => reason,
            Meaning::Nothing | Meaning::Unknown => Reason::Unknown,
        };
        let differs = said.finish_reason.as_deref() != Some(to);
        let judged = Judged { to, reason, provider: provider.to_owned(), differs };
        if !differs {
            return Some(judged);
        }
        done.changed += 1;
        let change = Change {
            provider: crate::columns::clean(provider, 256).into_owned(),
            native: crate::columns::clean(native, 256).into_owned(),
            from: said.finish_reason.clone(),
            to: to.to_owned(),
        };
        *done.changes.entry(change).or_default() += 1;
        Some(judged)
    }

    /// Judges a row of ours by the rules of today; says whether that makes a difference.
    fn judge_again(&self, record: &mut Record) -> bool {
        // A provider that only another configuration knows was judged by rules that are not known here.
        if !self.registry.knows(&record.provider) {
            return false;
        }
        record.rules = record.current_rules(&self.registry);
        let Some(verdict) = record.judge_again(&self.registry) else { return false };
        let said = record.native_finish_reason.is_some();
        let finish_reason = (verdict.reason != Reason::Unknown || said)
            .then(|| Name::from(Vocabulary::FinishReason.spell(verdict.reason)));
        let differs =
            record.reason != verdict.reason.name() || record.finish_reason != finish_reason;
        if differs {
            record.reason = verdict.reason.name().into();
            record.cause = verdict.reason.name().into();
            record.confidence = verdict.confidence.name().into();
            record.finish_reason = finish_reason;
        }
        differs
    }
}

/// Whether a table is the one that we write to, with rows of ours; those are judged by more than a word.
fn is_own(backfill: &Backfill, columns: &[String]) -> bool {
    let name = backfill.table.strip_prefix("public.").unwrap_or(&backfill.table);
    name == "gateway_requests"
        && ["rules", "sequence"].iter().all(|own| columns.iter().any(|name| name == own))
}

/// Checks that the columns are those that reports read.
fn are_ours(columns: &Columns) -> Result<(), String> {
    let ours = Columns { id: columns.id.clone(), ..Columns::default() };
    if *columns == ours {
        return Ok(());
    }
    Err("they read the columns `provider`, `native_finish_reason` and `finish_reason`".to_owned())
}

/// Values of a row.
struct Said {
    provider: Option<String>,
    native: Option<String>,
    finish_reason: Option<String>,
}

/// One row of a table.
struct TableRow {
    key: Value,
    said: Said,
}

/// A row's word in our vocabulary.
pub(crate) struct Judged {
    pub(crate) to: &'static str,
    pub(crate) reason: Reason,
    /// The provider that it was judged by.
    pub(crate) provider: String,
    /// The row has another word.
    differs: bool,
}

impl Judged {
    /// Returns the word to write, if the row has another one.
    fn new_word(&self) -> Option<&'static str> {
        self.differs.then_some(self.to)
    }
}

/// One row to be written.
struct Write {
    key: Value,
    native: Option<String>,
    judged: Judged,
}

/// A table that can be gone through.
trait Table {
    /// Returns the position at which an earlier run stopped.
    fn position(&mut self) -> Result<Option<Value>, Error>;

    /// Returns the number of rows after a position.
    fn count(&mut self, after: Option<&Value>) -> Result<Option<u64>, Error>;

    /// The next rows after a position.
    fn read(&mut self, after: Option<&Value>, most: usize) -> Result<Vec<TableRow>, Error>;

    /// Returns whether rows are adopted, or why they cannot be; `None` for a table that is not ours.
    fn adopts(&self) -> Option<Result<(), String>>;

    /// Writes words over rows that still say what was read, and how far that is. Returns how many rows were
    /// adopted.
    fn write(&mut self, writes: &[Write], position: &Value) -> Result<u64, Error>;

    /// Forgets how far it was: all is done.
    fn finish(&mut self) -> Result<(), Error>;
}

/// A name in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\"").replace('\0', ""))
}

/// A name with its schema.
fn quoted_path(name: &str) -> String {
    let parts: Vec<String> = name.split('.').map(quoted).collect();
    parts.join(".")
}

/// Checks that columns are there; the provider's may be missing where one is named.
fn check(backfill: &Backfill, found: &[String]) -> Result<bool, Error> {
    let Columns { id, provider, native, finish_reason } = &backfill.columns;
    let has = |name: &String| found.contains(name);
    let table = &backfill.table;
    if found.is_empty() {
        return Err(Error::Query(format!("table `{table}` not found")));
    }
    let has_provider = has(provider);
    let mut wanted = vec![id, native, finish_reason];
    if backfill.provider.is_none() {
        wanted.push(provider);
    }
    match wanted.into_iter().find(|name| !has(name)) {
        None => Ok(has_provider),
        Some(name) => Err(Error::Query(format!(
            "`{table}` has no column `{name}`; it has: {}",
            found.join(", ")
        ))),
    }
}

/// Returns the name under which a position is noted: one for each kind of work.
fn name_of(backfill: &Backfill) -> String {
    let Columns { id, provider, native, finish_reason } = &backfill.columns;
    [&backfill.table, id, provider, native, finish_reason].map(|name| quoted(name)).join(" ")
}

/// Notes of positions.
const NOTES: &str =
    "CREATE TABLE IF NOT EXISTS endstop_backfill (name text PRIMARY KEY, position text NOT NULL)";
