//! Questions as SQL, for every backend: what differs between them is data.
//!
//! Nothing that a caller says becomes part of the text of a statement; it is bound.

use crate::columns::{COLUMNS, Column, Kind, SHORT, clean};
use crate::error::Error;
use crate::query::{Filter, Period, Wanted};
use crate::rollup::{CHUNK, HOUR, PARTS, encode};

/// The most stars in a pattern: each one multiplies the work.
const MOST_STARS: usize = 4;

/// What a backend does in its own way.
#[derive(Clone)]
pub(crate) struct Flavor {
    /// The rows.
    pub(crate) table: &'static str,
    /// The sums.
    pub(crate) hourly: &'static str,
    /// What they are of.
    pub(crate) series: &'static str,
    /// The words.
    pub(crate) words: &'static str,
    /// The column of our id.
    pub(crate) key: &'static str,
    /// What stands before the number of a parameter.
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

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds `column operator value`.
    pub(crate) fn compare(&mut self, name: &str, operator: &str, value: Value) {
        let place = self.bind(value);
        let flavor = self.flavor;
        let Some(column) = COLUMNS.iter().find(|column| column.name == name) else { return };
        let own = if column.kind == Kind::Key { flavor.key } else { column.name };
        self.push(&format!(" AND {own} {operator} {}", (flavor.write)(flavor, column, &place)));
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

    /// Adds what a filter asks of series.
    fn fit_series(&mut self, filter: &Filter) -> Result<(), Error> {
        let wanted = [
            &filter.team,
            &filter.key,
            &filter.provider,
            &filter.model,
            &filter.upstream,
            &filter.reason,
            &filter.finish_reason,
        ];
        for (name, wanted) in PARTS.into_iter().zip(wanted) {
            self.fit_part(name, wanted.as_deref())?;
        }
        Ok(())
    }

    fn like(&mut self, read: &str, text: &str) {
        let (operator, escape) = self.flavor.like;
        let place = self.bind(Value::Text((self.flavor.pattern)(text)));
        self.push(&format!(" AND {read} {operator} {place}{escape}"));
    }
}

/// What a text of a filter asks for.
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

/// The hours that a period touches.
pub(crate) fn hours(period: Period) -> Result<(i64, i64), Error> {
    let [since, until] = [period.since, period.until].map(crate::columns::time);
    if since >= until {
        return Err(Error::Query("the period ends before it begins".to_owned()));
    }
    Ok((since - since % HOUR, until + (HOUR - until % HOUR) % HOUR))
}

/// The series that fit: their numbers, then their parts.
pub(crate) fn series<'f>(flavor: &'f Flavor, filter: &Filter) -> Result<Sql<'f>, Error> {
    let text = format!("SELECT id, {} FROM {} WHERE true", PARTS.join(", "), flavor.series);
    let mut sql = Sql::new(flavor, &text);
    sql.fit_series(filter)?;
    Ok(sql)
}

/// The chunks of a period that have series that fit: hour, number, lines.
pub(crate) fn chunks<'f>(
    flavor: &'f Flavor,
    period: Period,
    filter: &Filter,
) -> Result<Sql<'f>, Error> {
    let (since, until) = hours(period)?;
    let text = format!("SELECT hour, chunk, lines FROM {} WHERE true", flavor.hourly);
    let mut sql = Sql::new(flavor, &text);
    for (operator, hour) in [(">=", since), ("<", until)] {
        let place = sql.bind(Value::Int(hour));
        sql.push(&format!(" AND hour {operator} {place}"));
    }
    if *filter != Filter::default() {
        let series = flavor.series;
        sql.push(&format!(" AND chunk IN (SELECT id / {CHUNK} FROM {series} WHERE true"));
        sql.fit_series(filter)?;
        sql.push(")");
    }
    Ok(sql)
}

/// Our own rows: a row of somebody else's has no sequence. Orders name the table, because a column that
/// is read as text would otherwise be ordered as text, and by no index.
pub(crate) fn rows(flavor: &Flavor) -> Sql<'_> {
    let columns = flavor.columns();
    Sql::new(
        flavor,
        &format!("SELECT {columns} FROM {} AS t WHERE sequence IS NOT NULL", flavor.table),
    )
}

/// The rows that are wanted, the newest first.
pub(crate) fn endings<'f>(flavor: &'f Flavor, wanted: &Wanted) -> Result<Sql<'f>, Error> {
    let mut sql = rows(flavor);
    let filter = &wanted.filter;
    let texts = [
        ("team_id", &filter.team),
        ("key_id", &filter.key),
        ("provider", &filter.provider),
        ("model", &filter.model),
        ("upstream", &filter.upstream),
        ("reason", &filter.reason),
        ("finish_reason", &filter.finish_reason),
        ("native_finish_reason", &wanted.native),
        ("action", &wanted.action),
    ];
    for (name, text) in texts {
        sql.fit(name, text.as_deref())?;
    }
    if let Some(period) = wanted.period {
        sql.compare("created_at", ">=", Value::Int(crate::columns::time(period.since)));
        sql.compare("created_at", "<", Value::Int(crate::columns::time(period.until)));
    }
    sql.push(&format!(" ORDER BY t.created_at DESC, t.{} DESC LIMIT {}", flavor.key, wanted.limit));
    Ok(sql)
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
    sql.compare("turn_id", "=", Value::Text(clean(turn_id, SHORT).into_owned()));
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

/// The words of a period, those that were first seen last before the others.
pub(crate) fn words(flavor: &Flavor, period: Period, most: usize) -> Sql<'_> {
    let columns = "provider, dialect, field, word, reason, first_seen, last_seen, seen";
    let text = format!("SELECT {columns} FROM {} WHERE seen > 0", flavor.words);
    let mut sql = Sql::new(flavor, &text);
    for (name, operator, at) in
        [("last_seen", ">=", period.since), ("first_seen", "<", period.until)]
    {
        let place = sql.bind(Value::Int(crate::columns::time(at)));
        sql.push(&format!(" AND {name} {operator} {place}"));
    }
    sql.push(&format!(
        " ORDER BY first_seen DESC, provider, dialect, field, word, reason LIMIT {most}"
    ));
    sql
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

    #[test]
    fn periods_are_widened_to_hours() {
        let hour = HOUR.cast_unsigned();
        let period = |since, until| hours(Period { since, until }).ok();
        assert_eq!(period(1, 2), Some((0, HOUR)));
        assert_eq!(period(hour, 2 * hour), Some((HOUR, 2 * HOUR)));
        assert_eq!(period(5, 5), None);
    }
}
