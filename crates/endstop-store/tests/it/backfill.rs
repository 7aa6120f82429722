//! Rows that others wrote gain our word; theirs is never touched.

use std::fs;

use endstop_store::Error;
use endstop_store::backfill::{Backfill, Columns, Done};

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
        assert!(error(&missing).contains("no table"));
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
