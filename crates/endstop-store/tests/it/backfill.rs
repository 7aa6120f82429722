//! Rows that others wrote gain our word; theirs is never touched.

use std::fs;

use endstop::Reason;
use endstop::registry::{self, Like, Registry};
use endstop_store::Error;
use endstop_store::backfill::{Backfill, Columns, Done};
use endstop_store::{Dimension, Period, Query, Store, Wanted};

use crate::model::{T0, entry, query};
use crate::places;

/// Provider, word, what stands there, what should.
type Given = (&'static str, Option<&'static str>, Option<&'static str>, Option<&'static str>);

const ROWS: [Given; 7] = [
    ("openai", Some("stop"), None, Some("stop")),
    ("anthropic", Some("end_turn"), Some("end_turn"), Some("stop")),
    ("google", Some("MAX_TOKENS"), Some("length"), Some("length")),
    ("openai", Some("frobnicated"), None, Some("other")),
    ("openai", None, None, None),
    ("openai", None, Some("kept"), Some("kept")),
    ("acme'; --", Some("it's 100%"), None, Some("other")),
];

fn backfill(from: &str) -> Backfill {
    let columns = Columns { native: "na\"tive".to_owned(), ..Columns::default() };
    Backfill {
        from: from.to_owned(),
        table: "Old".to_owned(),
        columns,
        batch: 2,
        ..Backfill::default()
    }
}

fn check(done: &Done) {
    assert_eq!((done.rows, done.changed), (7, 4));
    let changes: Vec<(&str, Option<&str>, &str, u64)> = done
        .changes
        .iter()
        .map(|(it, count)| (it.native.as_str(), it.from.as_deref(), it.to.as_str(), *count))
        .collect();
    assert_eq!(
        changes,
        [
            ("it's 100%", None, "other", 1),
            ("end_turn", Some("end_turn"), "stop", 1),
            ("frobnicated", None, "other", 1),
            ("stop", None, "stop", 1),
        ]
    );
}

fn literal(text: Option<&str>) -> String {
    text.map_or("NULL".to_owned(), |text| format!("'{}'", text.replace('\'', "''")))
}

fn made(key: &str) -> String {
    let mut sql = format!(
        "CREATE TABLE \"Old\" (id {key} PRIMARY KEY, provider text, \"na\"\"tive\" text, \
         finish_reason varchar(20));"
    );
    for (number, (provider, native, present, _)) in ROWS.iter().enumerate() {
        let [provider, native, present] = [Some(*provider), *native, *present].map(literal);
        sql.push_str(&format!(
            "INSERT INTO \"Old\" VALUES ('{}', {provider}, {native}, {present});",
            number + 8
        ));
    }
    sql
}

const READ: &str = "SELECT finish_reason, \"na\"\"tive\" FROM \"Old\" ORDER BY id";

fn wanted() -> Vec<Vec<Option<String>>> {
    let own = |text: &Option<&str>| text.map(str::to_owned);
    ROWS.iter().map(|(_, native, _, wanted)| vec![own(wanted), own(native)]).collect()
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_table_of_postgres() {
    let place = places::pooled();
    place.sql(&made("bigint"));
    let before = place.sql(READ);
    let work = backfill(&place.url);
    let dry = Backfill { dry_run: true, ..work.clone() }.run(|_| {}).unwrap();
    check(&dry);
    assert_eq!(place.sql(READ), before);
    let mut steps = Vec::new();
    check(&work.run(|progress| steps.push(progress.done)).unwrap());
    assert_eq!(steps, [2, 4, 6, 7]);
    assert_eq!(place.sql(READ), wanted());
    assert_eq!(work.run(|_| {}).unwrap().changed, 0);

    // Where a run was interrupted, the next goes on.
    place.sql("UPDATE \"Old\" SET finish_reason = NULL");
    let name = "\"Old\" \"id\" \"provider\" \"na\"\"tive\" \"finish_reason\"";
    place.sql(&format!("INSERT INTO endstop_backfill VALUES ('{name}', '\"10\"')"));
    assert_eq!(work.run(|_| {}).unwrap().rows, 4);
    assert!(place.sql("SELECT * FROM endstop_backfill").is_empty());
    let touched = place.sql("SELECT count(finish_reason) FROM \"Old\" WHERE id <= 10");
    assert_eq!(touched, [[Some("0".to_owned())]]);
}

#[test]
fn a_table_of_sqlite() {
    for key in ["integer", "text"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(&made(key)).unwrap();
        let work = backfill(&format!("sqlite:{}", path.display()));
        let read = || -> Vec<Vec<Option<String>>> {
            let read = READ.replace("ORDER BY id", "ORDER BY CAST(id AS integer)");
            let mut select = connection.prepare(&read).unwrap();
            let rows = select.query_map([], |row| Ok(vec![row.get(0)?, row.get(1)?]));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let before = read();
        check(&Backfill { dry_run: true, ..work.clone() }.run(|_| {}).unwrap());
        assert_eq!(read(), before);
        check(&work.run(|_| {}).unwrap());
        assert_eq!(read(), wanted());
        assert_eq!(work.run(|_| {}).unwrap().changed, 0);
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn names_that_are_not_there() {
    let place = places::postgres();
    place.sql(&made("bigint"));
    place.sql(
        "CREATE TABLE twice (id int, provider text, native_finish_reason text, finish_reason text)",
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch(&made("text")).unwrap();
    for from in [place.url.clone(), format!("sqlite:{}", path.display())] {
        let good = backfill(&from);
        let error = |work: &Backfill| match work.run(|_| {}) {
            Err(Error::Query(why)) => why,
            other => panic!("{other:?}"),
        };
        let missing = Backfill { columns: Columns::default(), ..good.clone() };
        let why = error(&missing);
        assert!(why.contains("`native_finish_reason`") && why.contains("na\"tive"), "{why}");
        let missing = Backfill { table: "x\"; DROP TABLE \"Old\"; --".to_owned(), ..good.clone() };
        assert!(error(&missing).contains("not found"));
        let finish_reason = good.columns.native.clone();
        let columns = Columns { finish_reason, ..good.columns.clone() };
        assert!(error(&Backfill { columns, ..good.clone() }).contains("over itself"));
    }
    let twice = Backfill {
        from: place.url.clone(),
        table: "public.twice".to_owned(),
        ..Backfill::default()
    };
    assert!(matches!(twice.run(|_| {}), Err(Error::Query(why)) if why.contains("not unique")));
    assert!(
        Backfill { from: "mysql://u:hunter2@h/d".to_owned(), ..twice.clone() }.run(|_| {}).is_err()
    );
    assert!(Backfill { from: "rows.parquet".to_owned(), ..twice }.run(|_| {}).is_err());
}

/// What reports say of each reason in a period.
fn reasons(store: &mut dyn Store, period: Period) -> Vec<(String, u64)> {
    let asked = Query { period, ..query(&[Dimension::Reason]) };
    let groups = store.report(&asked).unwrap().groups;
    let mut reasons: Vec<_> =
        groups.into_iter().map(|it| (it.key[0].clone().unwrap(), it.now.count)).collect();
    reasons.sort();
    reasons
}

/// Rows of others are in no report before, and in every report after, whether their hours are counted from
/// sums or from rows.
fn rows_of_others_are_adopted(from: &str, store: &mut dyn Store) {
    let (all, part) = (query(&[]).period, Period { since: T0 - 30_000, until: T0 + 30_000 });
    let is = |reasons: &[(String, u64)], wanted: &[(&str, u64)]| {
        let reasons: Vec<_> = reasons.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(reasons, wanted);
    };
    for period in [all, part] {
        is(&reasons(store, period), &[("complete", 1)]);
    }
    let work = Backfill { from: from.to_owned(), batch: 2, ..Backfill::default() };
    let done = work.run(|_| {}).unwrap();
    assert_eq!((done.adopted, &done.not_adopted), (4, &None));
    let wanted = [("complete", 2), ("output_limit", 2), ("unknown", 1)];
    for folded in [false, true] {
        for period in [all, part] {
            is(&reasons(store, period), &wanted);
        }
        if !folded {
            store.tend().unwrap();
        }
    }
    let rows = store.endings(&Wanted { limit: 100, ..Wanted::default() }).unwrap();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row.record.id.len() == 32), "{rows:?}");
    let words = store.words(&endstop_store::Filter::default(), all, 10).unwrap();
    assert!(words.iter().any(|word| word.word == "frobnicated" && word.reason == "unknown"));

    // The same again changes nothing.
    let again = work.run(|_| {}).unwrap();
    assert_eq!((again.adopted, again.changed), (0, 0));
    for period in [all, part] {
        is(&reasons(store, period), &wanted);
    }
    // A word that has a meaning now moves the sums.
    let mut registry = Registry::default();
    let openai = Like::Provider(&endstop::provider::OPENAI);
    let word = registry::Entry::new("openai", openai).word("frobnicated", Reason::OutputLimit);
    registry.register(word);
    let taught = Backfill { registry, ..work }.run(|_| {}).unwrap();
    assert_eq!((taught.adopted, taught.changed), (0, 1));
    for period in [all, part] {
        is(&reasons(store, period), &[("complete", 2), ("output_limit", 3)]);
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn rows_of_others_in_postgres_are_in_the_reports() {
    for (table, key) in [
        ("id uuid PRIMARY KEY DEFAULT gen_random_uuid()", "id"),
        ("id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "endstop_id"),
    ] {
        let place = places::pooled();
        place.sql(&format!(
            "CREATE TABLE gateway_requests ({table}, created_at timestamptz, provider varchar(20), \
             native_finish_reason text, status integer, cost numeric)"
        ));
        let mut store = place.open();
        store.migrate().unwrap();
        store.load(&[entry(0)]).unwrap();
        place.sql(&format!(
            "INSERT INTO gateway_requests (created_at, provider, native_finish_reason, cost) \
             SELECT timestamptz 'epoch' + interval '1 ms' * {T0}, p, w, 7 FROM (VALUES \
             ('openai', 'stop'), ('anthropic', 'max_tokens'), ('google', 'MAX_TOKENS'), \
             ('openai', 'frobnicated'), ('openai', NULL)) AS rows(p, w)"
        ));
        place.sql("INSERT INTO gateway_requests (provider, native_finish_reason) VALUES ('openai', 'stop')");
        rows_of_others_are_adopted(&place.url, &mut *store);
        let kept = format!(
            "SELECT count(cost), count({key}), count(*) FROM gateway_requests WHERE rules IS NULL \
             AND created_at IS NOT NULL AND finish_reason IS NOT NULL"
        );
        let four = Some("4".to_owned());
        assert_eq!(place.sql(&kept), [[four.clone(), four.clone(), four.clone()]]);
        // They are not ours to forget.
        assert_eq!(store.forget(u64::MAX, 100).unwrap(), 1);
        assert_eq!(place.sql(&kept), [[four.clone(), four.clone(), four]]);
    }
}

#[test]
fn rows_of_others_in_sqlite_are_in_the_reports() {
    let place = places::sqlite();
    let mut store = place.open();
    store.migrate().unwrap();
    store.load(&[entry(0)]).unwrap();
    let file = place.url.strip_prefix("sqlite:").unwrap();
    let connection = rusqlite::Connection::open(file).unwrap();
    for (provider, word) in [
        ("openai", Some("stop")),
        ("anthropic", Some("max_tokens")),
        ("google", Some("MAX_TOKENS")),
        ("openai", Some("frobnicated")),
        ("openai", None),
    ] {
        let insert = "INSERT INTO gateway_requests (id, created_at, provider, native_finish_reason) \
                      VALUES (randomblob(16), ?, ?, ?)";
        connection.execute(insert, (T0 as i64, provider, word)).unwrap();
    }
    rows_of_others_are_adopted(&place.url, &mut *store);
}

/// A number that is kept as text may be anything, and would break reports.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn rows_that_reports_cannot_read_are_not_adopted() {
    let place = places::postgres();
    place.sql(
        "CREATE TABLE gateway_requests (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), \
         created_at timestamptz DEFAULT now(), provider text, native_finish_reason text, status text); \
         INSERT INTO gateway_requests (provider, native_finish_reason, status) \
         VALUES ('openai', 'stop', 'fine')",
    );
    let mut store = place.open();
    store.migrate().unwrap();
    let work = Backfill { from: place.url.clone(), ..Backfill::default() };
    let done = work.run(|_| {}).unwrap();
    assert_eq!((done.changed, done.adopted), (1, 0));
    assert!(done.not_adopted.unwrap().contains("`status` is of type text"));
    let now = Query { period: Period { since: 0, until: 3_000_000_000_000 }, ..query(&[]) };
    assert_eq!(store.report(&now).unwrap().total.now.count, 0);
}

#[test]
fn lines_of_json() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.jsonl");
    let source = concat!(
        "{\"z\": 1.50, \"provider\":\"anthropic\", \"native_finish_reason\":\"max_tokens\", \"a\":{}}\n",
        "{\"provider\":\"openai\",  \"native_finish_reason\":\"stop\",\"finish_reason\":\"stop\"}\n",
        "\n",
        "not json\n",
        "{\"provider\":\"openai\"}\n",
        "{\"native_finish_reason\":\"length\"}",
    );
    fs::write(&path, source).unwrap();
    let work = Backfill {
        from: path.display().to_string(),
        provider: Some("openai".to_owned()),
        batch: 1,
        ..Backfill::default()
    };
    let dry = Backfill { dry_run: true, ..work.clone() }.run(|_| {}).unwrap();
    assert_eq!((dry.rows, dry.changed, dry.unread, dry.file), (5, 2, 1, None));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let done = work.run(|_| {}).unwrap();
    let lines: Vec<&str> = source.split_inclusive('\n').collect();
    let wanted = format!(
        "{}\n{}{}\n",
        "{\"z\":1.50,\"provider\":\"anthropic\",\"native_finish_reason\":\"max_tokens\",\"a\":{},\
         \"finish_reason\":\"length\"}",
        lines[1..5].concat(),
        "{\"native_finish_reason\":\"length\",\"finish_reason\":\"length\"}"
    );
    let copy = done.file.unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), wanted);
    assert_eq!(fs::read_to_string(&path).unwrap(), source);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);

    // A run that stopped after the first line, in the middle of writing the second.
    fs::remove_file(&copy).unwrap();
    let first = wanted.split_inclusive('\n').next().unwrap();
    fs::write(format!("{}.part", copy.display()), format!("{first}{{\"prov")).unwrap();
    let noted = format!("[{},{},{}]", lines[0].len(), first.len(), source.len());
    fs::write(format!("{}.position", copy.display()), noted).unwrap();
    let rest = work.run(|_| {}).unwrap();
    assert_eq!(rest.rows, 4);
    assert_eq!(fs::read_to_string(&copy).unwrap(), wanted);
}

#[test]
fn a_table_as_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.csv");
    let source = "provider,note,native_finish_reason\n\
                  google,\"a, \"\"b\"\"\nc\",SAFETY\n\
                  openai,,stop\n\
                  openai,short\n";
    fs::write(&path, source).unwrap();
    let work = Backfill { from: path.display().to_string(), batch: 1, ..Backfill::default() };
    let done = work.run(|_| {}).unwrap();
    assert_eq!((done.rows, done.changed), (3, 2));
    let wanted = "provider,note,native_finish_reason,finish_reason\n\
                  google,\"a, \"\"b\"\"\nc\",SAFETY,safety\n\
                  openai,,stop,stop\n\
                  openai,short,,\n";
    let copy = done.file.unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), wanted);

    let read = source.find("openai").unwrap();
    let wrote = wanted.find("openai").unwrap();
    fs::write(format!("{}.part", copy.display()), &wanted[..wrote + 3]).unwrap();
    let noted = format!("[{read},{wrote},{}]", source.len());
    fs::write(format!("{}.position", copy.display()), noted).unwrap();
    assert_eq!(work.run(|_| {}).unwrap().rows, 2);
    assert_eq!(fs::read_to_string(&copy).unwrap(), wanted);

    fs::write(&path, "a,b\n1,2\n").unwrap();
    let Err(Error::Query(why)) = work.run(|_| {}) else { panic!() };
    assert!(why.contains("`provider`") && why.contains("a, b"), "{why}");
}

#[cfg(feature = "parquet")]
mod parquet {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use parquet::basic::{Compression, ZstdLevel};
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::{ROWS, backfill, check};

    /// Writes the rows as others would, in two row groups.
    fn write(path: &Path, compression: Compression) {
        let schema = "message rows { required int64 id; required binary provider (UTF8); \
                      optional binary na\"tive (UTF8); optional binary finish_reason (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = WriterProperties::builder().set_compression(compression).build();
        let file = fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        for rows in ROWS.chunks(4) {
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let ids: Vec<i64> = (0..rows.len() as i64).collect();
            column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let providers: Vec<ByteArray> = rows.iter().map(|row| ByteArray::from(row.0)).collect();
            column.typed::<ByteArrayType>().write_batch(&providers, None, None).unwrap();
            column.close().unwrap();
            for of in [|row: &super::Given| row.1, |row: &super::Given| row.2] {
                let values: Vec<ByteArray> =
                    rows.iter().filter_map(of).map(ByteArray::from).collect();
                let levels: Vec<i16> = rows.iter().map(|row| of(row).is_some().into()).collect();
                let mut column = group.next_column().unwrap().unwrap();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
                column.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    #[test]
    fn a_file_is_copied_as_json_lines() {
        let temp = tempfile::tempdir().unwrap();
        let zstd = Compression::ZSTD(ZstdLevel::default());
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd] {
            let path = temp.path().join("calls.parquet");
            write(&path, compression);
            let done = backfill(path.to_str().unwrap()).run(|_| ()).unwrap();
            check(&done);
            let copy = fs::read_to_string(done.file.unwrap()).unwrap();
            let lines: Vec<serde_json::Value> =
                copy.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(lines.len(), ROWS.len());
            for (line, (provider, native, _, wanted)) in lines.iter().zip(ROWS) {
                assert_eq!(line["provider"].as_str(), Some(provider));
                assert_eq!(line["na\"tive"].as_str(), native);
                assert_eq!(line["finish_reason"].as_str(), wanted);
            }
        }
    }

    #[test]
    fn files_that_are_none_are_told() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("calls.parquet");
        fs::write(&path, "id,provider\n").unwrap();
        let error = backfill(path.to_str().unwrap()).run(|_| ()).unwrap_err().to_string();
        assert!(error.contains("as Parquet"), "{error}");
        write(&path, Compression::SNAPPY);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(bytes.len() / 2);
        fs::write(&path, bytes).unwrap();
        let error = backfill(path.to_str().unwrap()).run(|_| ()).unwrap_err().to_string();
        assert!(error.contains("as Parquet"), "{error}");
        write(&path, Compression::SNAPPY);
        let mut work = backfill(path.to_str().unwrap());
        work.columns.native = "word".to_owned();
        let error = work.run(|_| ()).unwrap_err().to_string();
        assert!(error.contains("has no column `word`; it has: id, provider"), "{error}");
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_so() {
    let error = backfill("calls.parquet").run(|_| ()).unwrap_err().to_string();
    assert!(error.contains("--features parquet"), "{error}");
}
