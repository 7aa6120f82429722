//! Questions as SQL, for every backend: what differs between them is data.
//!
//! Nothing that a caller says becomes part of the text of a statement; it is bound.

use std::borrow::Cow;

use crate::columns::{COLUMNS, Column, Kind, SHORT, clean};
use crate::error::Error;
use crate::query::{Filter, Period, Wanted};
use crate::series::{PARTS, encode};
use crate::sums::NAMES;

/// The most stars in a pattern: each one multiplies the work.
const MOST_STARS: usize = 4;

/// The name of the state that says before which time rows were deleted.
pub(crate) const DELETED: &str = "deleted_before";
/// The name of the state that says before which time sums were kept without words.
const WORDS_SINCE: &str = "words_since";
/// The columns that sums are made of beside those of a series.
const SUMMED: [&str; 8] = [
    "created_at",
    "attempt",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_cached",
    "first_byte_us",
    "total_us",
];

/// Differences between backends.
#[derive(Clone)]
pub(crate) struct Flavor {
    /// The table of the rows, called `t`.
    pub(crate) table: &'static str,
    /// The condition for rows that can be asked for.
    pub(crate) known: Cow<'static, str>,
    /// Prefix of the names of the other tables.
    pub(crate) schema: &'static str,
    /// The column of our id.
    pub(crate) key: &'static str,
    /// Whether an index gives the rows in the order of their times. Where none does, there is one that
    /// finds the rows of a period.
    pub(crate) has_time_index: bool,
    /// Prefix of the number of a parameter.
    pub(crate) place: char,
    /// The operator for patterns, with what follows it.
    pub(crate) like: (&'static str, &'static str),
    /// A text with stars as its pattern.
    pub(crate) pattern: fn(&str) -> String,
    /// A column as text, number or flag.
    pub(crate) read: fn(&Self, &Column) -> String,
    /// A parameter as a value of a column.
    pub(crate) write: fn(&Self, &Column, &str) -> String,
    /// The types of a table's columns that are not as we make them.
    pub(crate) types: Vec<(&'static str, String)>,
}

impl Flavor {
    /// The type of this column, where it is not as we make it.
    pub(crate) fn other_type(&self, column: &Column) -> Option<&str> {
        self.types.iter().find(|(name, _)| *name == column.name).map(|(_, kind)| kind.as_str())
    }

    /// All columns, as they are read.
    pub(crate) fn columns(&self) -> String {
        let columns: Vec<String> = COLUMNS.iter().map(|column| (self.read)(self, column)).collect();
        columns.join(", ")
    }
}

/// A value to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Int(i64),
    Text(String),
}

/// A statement with its values.
pub(crate) struct Sql<'f> {
    flavor: &'f Flavor,
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

impl<'f> Sql<'f> {
    pub(crate) fn new(flavor: &'f Flavor, text: &str) -> Self {
        Self { flavor, text: text.to_owned(), values: Vec::new() }
    }

    /// Binds a value; gives its place.
    fn bind(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("{}{}", self.flavor.place, self.values.len())
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds `AND column operator value`.
    pub(crate) fn compare(&mut self, name: &str, operator: &str, value: Value) {
        self.push(" AND ");
        self.condition(name, operator, value);
    }

    /// Adds `column operator value`.
    fn condition(&mut self, name: &str, operator: &str, value: Value) {
        let place = self.bind(value);
        let flavor = self.flavor;
        let Some(column) = COLUMNS.iter().find(|column| column.name == name) else { return };
        let own = if column.kind == Kind::Key { flavor.key } else { column.name };
        self.push(&format!("{own} {operator} {}", (flavor.write)(flavor, column, &place)));
    }

    /// Adds what a text asked of a column of the rows.
    fn fit(&mut self, name: &str, wanted: Option<&str>) -> Result<(), Error> {
        let Some(column) = COLUMNS.iter().find(|column| column.name == name) else { return Ok(()) };
        match Fit::read(name, wanted)? {
            Fit::Any => {}
            Fit::None => self.push(&format!(" AND {name} IS NULL")),
            Fit::Text(text) => self.compare(name, "=", Value::Text(text)),
            Fit::Pattern(text) => {
                let read = (self.flavor.read)(self.flavor, column);
                self.like(&read, &text);
            }
        }
        Ok(())
    }

    /// Adds what a text asked of a part of the rollup's key.
    fn fit_part(&mut self, name: &str, wanted: Option<&str>) -> Result<(), Error> {
        match Fit::read(name, wanted)? {
            Fit::Any => {}
            Fit::None => self.push(&format!(" AND {name} = ''")),
            Fit::Text(text) => {
                let place = self.bind(Value::Text(encode(Some(&text)).into_owned()));
                self.push(&format!(" AND {name} = {place}"));
            }
            Fit::Pattern(text) => {
                self.push(&format!(" AND {name} <> ''"));
                let plain = format!(
                    "(CASE WHEN substr({name}, 1, 1) = '\"' THEN substr({name}, 2) ELSE {name} END)"
                );
                self.like(&plain, &text);
            }
        }
        Ok(())
    }

    /// Adds what a filter asks of rows.
    pub(crate) fn fit_rows(&mut self, filter: &Filter) -> Result<(), Error> {
        for (name, wanted) in parts(filter) {
            self.fit(name, wanted)?;
        }
        Ok(())
    }

    /// Adds what a filter asks of series.
    fn fit_series(&mut self, filter: &Filter) -> Result<(), Error> {
        for (name, wanted) in parts(filter) {
            self.fit_part(name, wanted)?;
        }
        Ok(())
    }

    fn within_hours(&mut self, (since, until): (i64, i64)) {
        for (operator, hour) in [(">=", since), ("<", until)] {
            let place = self.bind(Value::Int(hour));
            self.push(&format!(" AND hour {operator} {place}"));
        }
    }

    fn like(&mut self, read: &str, text: &str) {
        let (operator, escape) = self.flavor.like;
        let place = self.bind(Value::Text((self.flavor.pattern)(text)));
        self.push(&format!(" AND {read} {operator} {place}{escape}"));
    }
}

/// Meaning of a text of a filter.
enum Fit {
    Any,
    None,
    Text(String),
    Pattern(String),
}

impl Fit {
    fn read(name: &str, wanted: Option<&str>) -> Result<Self, Error> {
        let Some(wanted) = wanted else { return Ok(Self::Any) };
        if wanted == "null" {
            return Ok(Self::None);
        }
        if wanted.contains('*') && wanted.len() > SHORT {
            return Err(Error::Query(format!("the pattern for {name} is too long")));
        }
        let mut pieces: Vec<&str> = wanted.split('*').collect();
        if pieces.len() == 1 {
            return Ok(Self::Text(clean(wanted, SHORT).into_owned()));
        }
        let (first, last) = (wanted.starts_with('*'), wanted.ends_with('*'));
        pieces.retain(|piece| !piece.is_empty());
        let ends = |end: bool| if end { "*" } else { "" };
        let text = if pieces.is_empty() {
            "*".to_owned()
        } else {
            format!("{}{}{}", ends(first), pieces.join("*"), ends(last))
        };
        if text.matches('*').count() > MOST_STARS {
            let most = format!("the pattern for {name} has more than {MOST_STARS} stars");
            return Err(Error::Query(most));
        }
        Ok(Self::Pattern(text.replace('\0', "")))
    }
}

/// A pattern for `LIKE … ESCAPE '\'`.
pub(crate) fn like_pattern(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    escaped.replace('*', "%")
}

/// A pattern for `GLOB`, which minds upper and lower case where SQLite's `LIKE` does not.
pub(crate) fn glob_pattern(text: &str) -> String {
    text.replace('[', "[[]").replace('?', "[?]")
}

/// Returns what a filter asks of each column.
fn parts(filter: &Filter) -> [(&'static str, Option<&str>); 7] {
    [
        ("team_id", filter.team.as_deref()),
        ("key_id", filter.key.as_deref()),
        ("provider", filter.provider.as_deref()),
        ("model", filter.model.as_deref()),
        ("upstream", filter.upstream.as_deref()),
        ("reason", filter.reason.as_deref()),
        ("finish_reason", filter.finish_reason.as_deref()),
    ]
}

/// The time before which rows may have been deleted.
pub(crate) fn deleted(flavor: &Flavor) -> Sql<'_> {
    state(flavor, DELETED)
}

/// The series that fit: their numbers, then their parts.
pub(crate) fn series<'f>(flavor: &'f Flavor, filter: &Filter) -> Result<Sql<'f>, Error> {
    let (parts, schema) = (PARTS.join(", "), flavor.schema);
    let text = format!("SELECT id, {parts} FROM {schema}endstop_series WHERE true");
    let mut sql = Sql::new(flavor, &text);
    sql.fit_series(filter)?;
    Ok(sql)
}

/// The sums of the hours from one to before another: hour, series, numbers.
pub(crate) fn sums<'f>(
    flavor: &'f Flavor,
    hours: (i64, i64),
    filter: &Filter,
) -> Result<Sql<'f>, Error> {
    let (names, schema) = (NAMES.join(", "), flavor.schema);
    let text = format!("SELECT hour, series, {names} FROM {schema}endstop_sums WHERE true");
    let mut sql = Sql::new(flavor, &text);
    sql.within_hours(hours);
    if *filter != Filter::default() {
        sql.push(&format!(" AND series IN (SELECT id FROM {schema}endstop_series WHERE true"));
        sql.fit_series(filter)?;
        sql.push(")");
    }
    Ok(sql)
}

/// Sums of an earlier version that are not folded yet: hour, number, lines.
pub(crate) fn chunks(flavor: &Flavor, hours: (i64, i64)) -> Sql<'_> {
    let schema = flavor.schema;
    let text = format!("SELECT hour, chunk, lines FROM {schema}endstop_chunks WHERE true");
    let mut sql = Sql::new(flavor, &text);
    sql.within_hours(hours);
    sql
}

/// The deltas that are not folded yet.
pub(crate) fn deltas(flavor: &Flavor) -> Sql<'_> {
    Sql::new(flavor, &format!("SELECT packed FROM {}endstop_deltas", flavor.schema))
}

/// The rows of some ranges of time that fit, with the columns of [`SUMMED`].
pub(crate) fn summed<'f>(
    flavor: &'f Flavor,
    ranges: &[(i64, i64)],
    filter: &Filter,
) -> Result<Sql<'f>, Error> {
    let columns: Vec<String> =
        summed_columns().map(|column| (flavor.read)(flavor, column)).collect();
    let mut sql = select(flavor, &columns.join(", "));
    for (index, (since, until)) in ranges.iter().enumerate() {
        sql.push(if index == 0 { " AND ((" } else { " OR (" });
        sql.condition("created_at", ">=", Value::Int(*since));
        sql.compare("created_at", "<", Value::Int(*until));
        sql.push(")");
    }
    sql.push(if ranges.is_empty() { " AND false" } else { ")" });
    sql.fit_rows(filter)?;
    Ok(sql)
}

/// The columns that sums are made of, in the order of the table.
pub(crate) fn summed_columns() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| PARTS.contains(&column.name) || SUMMED.contains(&column.name))
}

/// Our own rows, and those that were adopted: any other row has no sequence. Orders name the table, because a column that
/// is read as text would otherwise be ordered as text, and by no index.
pub(crate) fn rows(flavor: &Flavor) -> Sql<'_> {
    select(flavor, &flavor.columns())
}

/// These columns of the rows that can be asked for.
pub(crate) fn select<'f>(flavor: &'f Flavor, columns: &str) -> Sql<'f> {
    let Flavor { table, known, .. } = flavor;
    Sql::new(flavor, &format!("SELECT {columns} FROM {table} WHERE {known}"))
}

/// The rows that are wanted, the newest first.
pub(crate) fn endings<'f>(flavor: &'f Flavor, wanted: &Wanted) -> Result<Sql<'f>, Error> {
    let mut sql = rows(flavor);
    let others =
        [("native_finish_reason", wanted.native.as_deref()), ("action", wanted.action.as_deref())];
    for (name, text) in parts(&wanted.filter).into_iter().chain(others) {
        sql.fit(name, text)?;
    }
    if let Some(period) = wanted.period {
        sql.compare("created_at", ">=", Value::Int(crate::columns::time(period.since)));
        sql.compare("created_at", "<", Value::Int(crate::columns::time(period.until)));
    }
    sql.push(&format!(" ORDER BY t.created_at DESC, t.{} DESC LIMIT {}", flavor.key, wanted.limit));
    Ok(sql)
}

/// The time of the row with the highest id.
pub(crate) fn newest(flavor: &Flavor) -> Sql<'_> {
    let time = COLUMNS.iter().find(|column| column.kind == Kind::Time);
    let time = time.map(|column| (flavor.read)(flavor, column)).unwrap_or_default();
    let mut sql = select(flavor, &time);
    sql.push(&format!(" ORDER BY t.{} DESC LIMIT 1", flavor.key));
    sql
}

/// Rows whose ids lie between two, these included.
pub(crate) fn between<'f>(flavor: &'f Flavor, low: &str, high: &str) -> Sql<'f> {
    let mut sql = rows(flavor);
    sql.compare("id", ">=", Value::Text(low.to_owned()));
    sql.compare("id", "<=", Value::Text(high.to_owned()));
    sql.push(&format!(" ORDER BY t.{} LIMIT 2", flavor.key));
    sql
}

/// The rows of a turn, in order.
pub(crate) fn turn<'f>(flavor: &'f Flavor, turn_id: &str, most: usize) -> Sql<'f> {
    let mut sql = rows(flavor);
    // The index has repeated requests alone; the first one of a turn gave it its id.
    sql.push(" AND (attempt > 1");
    sql.compare("turn_id", "=", Value::Text(clean(turn_id, SHORT).into_owned()));
    if let Some(id) = crate::load::key(turn_id) {
        sql.push(" OR ");
        sql.condition("id", "=", Value::Text(id));
    }
    sql.push(")");
    sql.push(&format!(" ORDER BY t.attempt, t.created_at, t.{} LIMIT {most}", flavor.key));
    sql
}

/// Rows that other rules than these judged, after an id.
pub(crate) fn judged_otherwise<'f>(
    flavor: &'f Flavor,
    rules: &[u32],
    after: Option<&str>,
    most: usize,
) -> Sql<'f> {
    let mut sql = rows(flavor);
    sql.push(" AND rules IS NOT NULL");
    if !rules.is_empty() {
        // One list: hundreds of comparisons would be an expression deeper than SQLite allows.
        let rules: Vec<String> = rules.iter().map(u32::to_string).collect();
        sql.push(&format!(" AND rules NOT IN ({})", rules.join(", ")));
    }
    if let Some(after) = after {
        sql.compare("id", ">", Value::Text(after.to_owned()));
    }
    sql.push(&format!(" ORDER BY t.{} LIMIT {most}", flavor.key));
    sql
}

/// The words that may have been seen in a period: their parts, how often, first and last.
pub(crate) fn words(flavor: &Flavor, period: Period) -> Sql<'_> {
    let columns = "provider, model, dialect, field, word, reason, seen, first_seen, last_seen";
    let schema = flavor.schema;
    let text = format!("SELECT {columns} FROM {schema}endstop_words WHERE seen > 0");
    let mut sql = Sql::new(flavor, &text);
    for (name, operator, at) in
        [("last_seen", ">=", period.since), ("first_seen", "<", period.until)]
    {
        let place = sql.bind(Value::Int(crate::columns::time(at)));
        sql.push(&format!(" AND {name} {operator} {place}"));
    }
    sql
}

/// The first time that a word was seen.
pub(crate) fn oldest_word(flavor: &Flavor) -> Sql<'_> {
    let schema = flavor.schema;
    Sql::new(flavor, &format!("SELECT min(first_seen) FROM {schema}endstop_words WHERE seen > 0"))
}

/// The time before which sums have no words.
pub(crate) fn words_since(flavor: &Flavor) -> Sql<'_> {
    state(flavor, WORDS_SINCE)
}

fn state<'f>(flavor: &'f Flavor, name: &str) -> Sql<'f> {
    let text = format!("SELECT value FROM {}endstop_state WHERE name = '{name}'", flavor.schema);
    Sql::new(flavor, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Option<String> {
        match Fit::read("model", Some(text)).ok()? {
            Fit::Any | Fit::None => None,
            Fit::Text(text) => Some(format!("={text}")),
            Fit::Pattern(text) => Some(like_pattern(&text)),
        }
    }

    #[test]
    fn stars_are_the_only_wildcards() {
        assert_eq!(pattern("gpt*").as_deref(), Some("gpt%"));
        assert_eq!(pattern("*").as_deref(), Some("%"));
        assert_eq!(pattern("****").as_deref(), Some("%"));
        assert_eq!(pattern("**a***b").as_deref(), Some("%a%b"));
        assert_eq!(pattern("100%_\\*").as_deref(), Some("100\\%\\_\\\\%"));
        assert_eq!(pattern("100%").as_deref(), Some("=100%"));
        assert_eq!(pattern("null"), None);
        assert_eq!(pattern("*a*b*c*d*e*"), None);
        assert_eq!(glob_pattern("[a?]*"), "[[]a[?]]*");
    }
}
