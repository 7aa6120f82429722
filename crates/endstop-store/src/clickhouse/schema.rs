//! The tables, in the dialect of the server: the only place that knows which types a server has.
//!
//! ```text
//! gateway_requests    rows, of which the one with the highest version counts; on a cluster, all shards together
//! endstop_words       first and last time of each finish reason, kept by a view on the rows
//! endstop_kept        hourly sums of the rows that have been deleted
//! endstop_state       times before which rows were deleted
//! endstop_migrations  the steps that were taken
//! ```
//!
//! Rows are ordered by time, because reports ask for periods, and then by id. Both stay the same whatever is noted on a
//! response later, which the provider and the model do not: a part of the order that changed would leave two rows.

use super::text::{literal, nullable, quoted};
use crate::columns::{COLUMNS, Column, Kind};
use crate::series::PARTS;
use crate::sums::{HOUR, NAMES};

/// Steps in their order. Each statement can run twice.
pub(super) const STEPS: [&str; 3] = ["0001_requests", "0002_words", "0003_kept"];

/// Texts that differ from row to row. The others have few values.
const MANY_VALUES: [&str; 4] = ["turn_id", "path", "error_type", "upstream_request_id"];

/// The first version with all types and settings of [`Dialect::Current`].
const CURRENT: (u32, u32) = (22, 3);

/// Types and settings that a server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// 22.3 and later.
    Current,
    /// Without `DateTime64`, codecs, indexes, tokens of inserts: times are milliseconds.
    Old,
}

impl Dialect {
    /// Returns the dialect of a server by what `version()` says.
    pub(super) fn of(version: &str) -> Option<Self> {
        let mut numbers = version.split('.').map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            return None;
        };
        Some(if (major, minor) >= CURRENT { Self::Current } else { Self::Old })
    }

    /// Returns a time as milliseconds.
    pub(super) fn read_time(self, column: &str) -> String {
        match self {
            Self::Current => format!("toUnixTimestamp64Milli({column})"),
            Self::Old => column.to_owned(),
        }
    }

    /// Returns milliseconds as a time.
    pub(super) fn write_time(self, ms: &str) -> String {
        match self {
            Self::Current => format!("fromUnixTimestamp64Milli(toInt64({ms}), 'UTC')"),
            Self::Old => ms.to_owned(),
        }
    }

    /// Returns the highest number of a list in rising order that is not above a value, or the first.
    pub(super) fn round_down(self, value: &str, list: &[i64]) -> String {
        match self {
            Self::Current => {
                let list: Vec<String> = list.iter().map(i64::to_string).collect();
                format!("roundDown({value}, [{}])", list.join(", "))
            }
            Self::Old => {
                let above = list.iter().zip(list.iter().skip(1));
                let cases: String = above
                    .map(|(low, high)| format!("{value} < {high}, toInt64({low}), "))
                    .collect();
                format!("multiIf({cases}toInt64({}))", list.last().copied().unwrap_or(0))
            }
        }
    }

    /// Returns the settings of all requests.
    pub(super) fn settings(self) -> &'static str {
        match self {
            // Rows of one id have one time, and so one partition.
            Self::Current => {
                "&do_not_merge_across_partitions_select_final=1&async_insert=0\
                 &join_use_nulls=0&date_time_output_format=simple"
            }
            Self::Old => "",
        }
    }

    fn time_type(self) -> &'static str {
        match self {
            Self::Current => "DateTime64(3, 'UTC')",
            Self::Old => "Int64",
        }
    }

    fn month(self) -> &'static str {
        match self {
            Self::Current => "toYYYYMM(created_at)",
            Self::Old => "toYYYYMM(toDateTime(intDiv(created_at, 1000)))",
        }
    }

    fn column_type(self, column: &Column, nullable: bool) -> String {
        let (plain, codec) = match column.kind {
            Kind::Key => ("FixedString(16)", "ZSTD"),
            Kind::Time => (self.time_type(), "Delta, ZSTD"),
            Kind::Int => ("Int64", "T64, ZSTD"),
            Kind::Flag => ("UInt8", "ZSTD"),
            Kind::Text => ("String", "ZSTD"),
        };
        let plain = if nullable { format!("Nullable({plain})") } else { plain.to_owned() };
        let few = column.kind == Kind::Text && !MANY_VALUES.contains(&column.name);
        match self {
            Self::Old => plain,
            Self::Current if few => format!("LowCardinality({plain})"),
            Self::Current => format!("{plain} CODEC({codec})"),
        }
    }

    /// Returns the settings of a table of rows: how many inserts are remembered where no replica does.
    fn table_settings(self, is_cluster: bool) -> &'static str {
        match self {
            Self::Current if is_cluster => "",
            Self::Current => " SETTINGS non_replicated_deduplication_window = 1000",
            Self::Old => "",
        }
    }

    fn indexes(self) -> &'static str {
        match self {
            Self::Current => {
                ",\n    INDEX by_id id TYPE minmax GRANULARITY 1,\n    \
                 INDEX by_turn turn_id TYPE bloom_filter GRANULARITY 4"
            }
            Self::Old => "",
        }
    }
}

/// Where the tables are.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    pub(super) dialect: Dialect,
    pub(super) database: String,
    pub(super) cluster: Option<String>,
}

impl Schema {
    /// Returns the table that notes the steps.
    pub(super) fn notes(&self) -> String {
        let columns = "name String, applied_at DateTime DEFAULT now()";
        self.everywhere("endstop_migrations", columns, "", "name")
    }

    /// Returns the statements of a step.
    pub(super) fn step(&self, name: &str) -> Vec<String> {
        match name {
            "0001_requests" => self.requests(),
            "0002_words" => self.words(),
            _ => self.kept(),
        }
    }

    /// Returns the table that a step makes on each server.
    pub(super) fn table_of(&self, step: &str) -> String {
        match step {
            "0001_requests" => self.own("gateway_requests"),
            "0002_words" => self.own("endstop_words"),
            _ => "endstop_kept".to_owned(),
        }
    }

    fn requests(&self) -> Vec<String> {
        let types = COLUMNS.iter().zip(nullable());
        let columns: Vec<String> = types
            .map(|(column, nullable)| {
                format!("{} {}", column.name, self.dialect.column_type(column, nullable))
            })
            .collect();
        let columns = columns.join(",\n    ");
        let indexes = self.dialect.indexes();
        let settings = self.dialect.table_settings(self.cluster.is_some());
        let partition = self.dialect.month();
        self.sharded(
            "gateway_requests",
            &format!("{columns},\n    version UInt64{indexes}"),
            "Replacing",
            "version",
            &format!("PARTITION BY {partition} ORDER BY (created_at, id){settings}"),
            "cityHash64(id)",
        )
    }

    fn words(&self) -> Vec<String> {
        let parts = "provider, model, dialect, field, word, reason";
        let columns: Vec<String> = parts.split(", ").map(|part| format!("{part} String")).collect();
        let columns = format!(
            "{}, first_seen AggregateFunction(min, Int64), last_seen AggregateFunction(max, Int64)",
            columns.join(", ")
        );
        let order = format!("ORDER BY ({parts})");
        let sharding = "cityHash64(word)";
        let mut statements =
            self.sharded("endstop_words", &columns, "Aggregating", "", &order, sharding);
        let time = self.dialect.read_time("created_at");
        statements.push(format!(
            "CREATE MATERIALIZED VIEW IF NOT EXISTS {} TO {} AS SELECT toString(t.provider) AS provider, \
             ifNull(toString(t.model), '') AS model, toString(t.dialect) AS dialect, \
             ifNull(toString(t.native_field), '') AS field, \
             ifNull(toString(t.native_finish_reason), '') AS word, toString(t.reason) AS reason, \
             minState({time}) AS first_seen, maxState({time}) AS last_seen FROM {} AS t \
             WHERE t.native_finish_reason IS NOT NULL GROUP BY provider, model, dialect, field, word, reason",
            self.at("endstop_words_view"),
            self.name(&self.own("endstop_words")),
            self.name(&self.own("gateway_requests")),
        ));
        statements
    }

    fn kept(&self) -> Vec<String> {
        let types = COLUMNS.iter().zip(nullable());
        let parts: Vec<String> = types
            .filter(|(column, _)| PARTS.contains(&column.name))
            .map(|(column, nullable)| {
                let kind = match column.kind {
                    Kind::Key | Kind::Text => "String",
                    Kind::Time | Kind::Int => "Int64",
                    Kind::Flag => "UInt8",
                };
                let kind = if nullable { format!("Nullable({kind})") } else { kind.to_owned() };
                format!("{} {kind}", column.name)
            })
            .collect();
        let numbers: Vec<String> = NAMES.iter().map(|name| format!("{name} Int64")).collect();
        let columns = format!(
            "created_at {}, series UInt64, {}, {}, version UInt64",
            self.dialect.time_type(),
            parts.join(", "),
            numbers.join(", ")
        );
        // What more rows were counted for stays: whoever counts while rows are being deleted counts less.
        let kept = self.everywhere("endstop_kept", &columns, "version", "created_at, series");
        vec![kept, self.everywhere("endstop_state", "name String, value Int64", "", "name, value")]
    }

    /// Returns a table that all servers have alike.
    fn everywhere(&self, name: &str, columns: &str, version: &str, order: &str) -> String {
        let engine = match &self.cluster {
            None => format!("ReplacingMergeTree({version})"),
            Some(_) => {
                let path = literal(&format!("/clickhouse/tables/all/{}/{name}", self.database));
                let version =
                    if version.is_empty() { String::new() } else { format!(", {version}") };
                format!("ReplicatedReplacingMergeTree({path}, '{{shard}}-{{replica}}'{version})")
            }
        };
        let at = self.at(name);
        format!("CREATE TABLE IF NOT EXISTS {at} ({columns}) ENGINE = {engine} ORDER BY ({order})")
    }

    /// Returns a table of which each shard has a part, and on a cluster the one that asks all shards.
    fn sharded(
        &self,
        name: &str,
        columns: &str,
        kind: &str,
        version: &str,
        rest: &str,
        sharding: &str,
    ) -> Vec<String> {
        let own = self.own(name);
        let at = self.at(&own);
        let make = |engine: String| {
            format!("CREATE TABLE IF NOT EXISTS {at} (\n    {columns}\n) ENGINE = {engine} {rest}")
        };
        let Some(cluster) = &self.cluster else {
            return vec![make(format!("{kind}MergeTree({version})"))];
        };
        let path = literal(&format!("/clickhouse/tables/{{shard}}/{}/{name}", self.database));
        let version = if version.is_empty() { String::new() } else { format!(", {version}") };
        let (database, local) = (self.name(""), self.name(&own));
        let database = database.trim_end_matches(".``");
        let spread = format!(
            "CREATE TABLE IF NOT EXISTS {} AS {local} ENGINE = Distributed({}, {database}, {}, {sharding})",
            self.at(name),
            quoted(cluster),
            quoted(&own),
        );
        vec![make(format!("Replicated{kind}MergeTree({path}, '{{replica}}'{version})")), spread]
    }

    /// Returns the name of the part of a table that a server has itself.
    pub(super) fn own(&self, name: &str) -> String {
        if self.cluster.is_some() { format!("{name}_local") } else { name.to_owned() }
    }

    fn name(&self, name: &str) -> String {
        format!("{}.{}", quoted(&self.database), quoted(name))
    }

    /// Returns a table with the servers that a statement about it is for.
    pub(super) fn at(&self, name: &str) -> String {
        let on = self.cluster.as_ref().map(|name| format!(" ON CLUSTER {}", quoted(name)));
        format!("{}{}", self.name(name), on.unwrap_or_default())
    }

    /// Returns the expression of the time at which the server itself deletes a row.
    pub(super) fn ttl(&self, days: u32) -> Option<String> {
        match self.dialect {
            Dialect::Current => Some(format!("toDateTime(created_at) + toIntervalDay({days})")),
            Dialect::Old => None,
        }
    }

    /// Returns the statement that sums up the rows of a range of hours.
    pub(super) fn keep(&self, since: i64, until: i64) -> String {
        let parts: Vec<&str> = PARTS.to_vec();
        let hash: Vec<String> = parts
            .iter()
            .map(|part| format!("ifNull(toString({part}), ''), isNull({part})"))
            .collect();
        let hour = format!("intDiv({}, {HOUR}) * {HOUR}", self.dialect.read_time("created_at"));
        let parts = parts.join(", ");
        let [since, until] = [since, until].map(|at| self.dialect.write_time(&at.to_string()));
        let names = NAMES.join(", ");
        let numbers: Vec<String> = (0..NAMES.len()).map(super::report::number).collect();
        format!(
            "INSERT INTO {} (created_at, series, {parts}, {names}, version) SELECT {}, h, {parts}, {}, \
             toUInt64(sum(c0)) FROM (SELECT {hour} AS s, cityHash64({}) AS h, {parts}, {} \
             FROM {} AS t FINAL WHERE created_at >= {since} AND created_at < {until} \
             GROUP BY s, h, {parts}, f, u) GROUP BY s, h, {parts}",
            self.name("endstop_kept"),
            self.dialect.write_time("s"),
            numbers.join(", "),
            hash.join(", "),
            super::report::counted(self.dialect),
            self.name("gateway_requests"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(dialect: Dialect, cluster: Option<&str>) -> Schema {
        let cluster = cluster.map(str::to_owned);
        Schema { dialect, database: "d".to_owned(), cluster }
    }

    #[test]
    fn the_version_chooses_the_dialect() {
        assert_eq!(Dialect::of("26.9.2.1"), Some(Dialect::Current));
        assert_eq!(Dialect::of("22.3.1"), Some(Dialect::Current));
        assert_eq!(Dialect::of("22.2.9"), Some(Dialect::Old));
        assert_eq!(Dialect::of("18.16.1"), Some(Dialect::Old));
        assert_eq!(Dialect::of("PostgreSQL 15"), None);
    }

    #[test]
    fn old_servers_get_types_that_they_know() {
        for cluster in [None, Some("c")] {
            for step in STEPS {
                for statement in schema(Dialect::Old, cluster).step(step) {
                    for new in ["DateTime64", "LowCardinality", "CODEC", "INDEX", "64Milli"] {
                        assert!(!statement.contains(new), "{statement}");
                    }
                    assert_eq!(
                        statement.contains("ON CLUSTER `c`"),
                        cluster.is_some(),
                        "{statement}"
                    );
                }
            }
        }
        let current = schema(Dialect::Current, None).step("0001_requests").concat();
        for wanted in [
            "created_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD)",
            "model LowCardinality(Nullable(String)),",
            "turn_id String CODEC(ZSTD)",
            "ReplacingMergeTree(version) PARTITION BY toYYYYMM(created_at) ORDER BY (created_at, id)",
        ] {
            assert!(current.contains(wanted), "{wanted}: {current}");
        }
    }
}
