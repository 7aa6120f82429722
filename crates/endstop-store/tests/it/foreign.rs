//! A `gateway_requests` that is somebody else's: it gains columns, and its rows stay as they are.

use endstop::Record;
use endstop_store::{Dimension, Entry, Filter, Query, Wanted, export_migrations};

use crate::model::{Dice, Model, any, entry, id, query};
use crate::places::{self, Place};

const TEAM: &str = "6b1f2c3d-0000-4000-8000-00000000000a";

/// A table that stands there with a row in it.
fn place(table: &str) -> Place {
    let place = places::pooled();
    place.sql(table);
    place
}

fn of_team(number: u64, team: &str) -> Entry {
    let team_id = Some(team.to_owned());
    Entry { sequence: 0, record: Record { team_id, ..entry(number).record } }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn an_id_of_another_kind_stays_and_ours_stands_beside_it() {
    let place = place(
        "CREATE TABLE gateway_requests (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
         team_id varchar(36), created_at timestamp DEFAULT now(), model varchar(40), status text, \
         streamed text, tokens_out integer, cost numeric NOT NULL DEFAULT 0); \
         INSERT INTO gateway_requests (model, status, cost) VALUES ('theirs', 'ok', 7)",
    );
    let before =
        place.sql("SELECT id, team_id, created_at, model, status, cost FROM gateway_requests");
    let mut store = place.open();
    store.migrate().unwrap();
    assert!(place.open().migrate().unwrap().is_empty());

    let batch: Vec<Entry> = (0..20).map(|number| of_team(number, TEAM)).collect();
    assert_eq!(store.load(&batch).unwrap().added, 20);
    assert_eq!(store.load(&batch).unwrap().known, 20);
    let row = store.ending(&id(3)).unwrap().unwrap();
    let team_id = Some(TEAM.to_owned());
    assert_eq!(row.record, Record { team_id, ..batch[3].record.clone() });

    // Sums stand under what the column holds, and move with it.
    let amended: Vec<Entry> =
        batch.iter().map(|entry| Entry { sequence: 1, ..entry.clone() }).collect();
    assert_eq!(store.load(&amended).unwrap().amended, 20);
    let report = store.report(&query(&[Dimension::Team])).unwrap();
    assert_eq!(report.groups.len(), 1);
    assert_eq!(report.groups[0].key, [Some(TEAM.to_owned())]);
    assert_eq!(report.total.now.count, 20);
    let filter = Filter { team: Some(TEAM.to_owned()), ..Filter::default() };
    let found = store.endings(&Wanted { filter, ..Wanted::default() }).unwrap();
    assert_eq!(found.len(), 20);
    let filter = Filter { team: Some("another".to_owned()), ..Filter::default() };
    assert!(store.endings(&Wanted { filter, ..Wanted::default() }).unwrap().is_empty());
    assert_eq!(store.report(&Query { ..query(&[]) }).unwrap().total.now.count, 20);

    assert_eq!(store.forget(u64::MAX, 1000).unwrap(), 20);
    let after =
        place.sql("SELECT id, team_id, created_at, model, status, cost FROM gateway_requests");
    assert_eq!(before, after);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn one_bad_row_does_not_hold_up_the_others() {
    let place = place(
        "CREATE TABLE gateway_requests (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), \
         team_id varchar(36) NOT NULL, created_at timestamptz(0), provider varchar(12), \
         CHECK (provider <> 'forbidden'))",
    );
    let mut store = place.open();
    store.migrate().unwrap();
    let mut batch: Vec<Entry> = (0..100).map(|number| of_team(number, TEAM)).collect();
    batch[3].record.team_id = Some("longer than thirty-six characters, by far".to_owned());
    batch[50].record.team_id = None;
    batch[51].record.provider = "forbidden".into();
    batch[98].record.provider = "longer than twelve".into();
    batch[99].record.id = "x".to_owned();
    let loaded = store.load(&batch).unwrap();
    let refused: Vec<usize> = loaded.refused.iter().map(|(index, _)| *index).collect();
    assert_eq!((loaded.added, refused), (95, vec![3, 50, 51, 98, 99]));
    assert!(loaded.refused[0].1.contains("too long"), "{:?}", loaded.refused);
    assert_eq!(store.load(&batch).unwrap().known, 95);
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 95);
    let columns = place.sql("SELECT 1 FROM pg_attribute WHERE attname = 'endstop_id'");
    assert!(columns.is_empty(), "their uuid key serves");
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_row_of_theirs_with_our_id_is_never_changed() {
    let place = place(
        "CREATE TABLE gateway_requests (id uuid PRIMARY KEY, model text, \
         created_at timestamptz DEFAULT '2001-01-01')",
    );
    place.sql(&format!("INSERT INTO gateway_requests VALUES ('{}', 'theirs')", id(1)));
    let mut store = place.open();
    store.migrate().unwrap();
    let loaded = store.load(&[entry(0), Entry { sequence: 9, ..entry(1) }]).unwrap();
    assert_eq!((loaded.added, loaded.refused.len()), (1, 1));
    assert!(store.ending(&id(1)).unwrap().is_none());
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 1);
    // However old it is, it is not ours to forget.
    assert_eq!(store.forget(u64::MAX, 10).unwrap(), 1);
    let model = place.sql("SELECT model FROM gateway_requests");
    assert_eq!(model, [[Some("theirs".to_owned())]]);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn what_must_have_a_value_is_named() {
    let place =
        place("CREATE TABLE gateway_requests (id serial PRIMARY KEY, \"user\" text NOT NULL)");
    for outcome in [place.open().migrate().map(drop), place.open().load(&[entry(0)]).map(drop)] {
        let error = outcome.unwrap_err();
        assert!(!error.is_retryable());
        let error = error.to_string();
        assert!(error.contains("`user`") && error.contains("SET DEFAULT"), "{error}");
    }
    place.sql("ALTER TABLE gateway_requests ALTER COLUMN \"user\" SET DEFAULT 'nobody'");
    let mut store = place.open();
    store.migrate().unwrap();
    assert_eq!(store.load(&[entry(0)]).unwrap().added, 1);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_column_that_cannot_hold_our_values_is_refused_before_anything_changes() {
    let place = place(
        "CREATE TABLE gateway_requests (id uuid PRIMARY KEY, team_id uuid, model jsonb); \
         INSERT INTO gateway_requests VALUES (gen_random_uuid())",
    );
    let error = place.open().migrate().unwrap_err();
    assert!(!error.is_retryable());
    let error = error.to_string();
    assert!(error.contains("`team_id` of type uuid") && error.contains("`model` of type jsonb"));
    assert!(error.contains("ALTER COLUMN team_id TYPE text"), "{error}");
    assert!(place.open().load(&[entry(0)]).is_err(), "nothing is refused row by row");
    let columns = place.sql(
        "SELECT count(*) FROM pg_attribute WHERE attnum > 0 AND \
                             attrelid = 'gateway_requests'::regclass",
    );
    assert_eq!(columns, [[Some("3".to_owned())]]);
    // Once it is mended, everything goes on.
    place.sql(
        "ALTER TABLE gateway_requests ALTER COLUMN team_id TYPE text, \
               ALTER COLUMN model TYPE text",
    );
    let mut store = place.open();
    store.migrate().unwrap();
    assert_eq!(store.load(&[entry(0)]).unwrap().added, 1);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_time_that_is_a_number_is_not_guessed_at() {
    let place = place("CREATE TABLE gateway_requests (id uuid PRIMARY KEY, created_at bigint)");
    let error = place.open().migrate().unwrap_err().to_string();
    assert!(error.contains("`created_at`") && error.contains("bigint"), "{error}");
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn sums_are_those_of_the_rows_there_too() {
    let place = place(
        "CREATE TABLE gateway_requests (id text, team_id varchar(64), created_at timestamp, \
         tokens_out numeric, attempt smallint)",
    );
    let mut store = place.open();
    store.migrate().unwrap();
    let mut dice = Dice(99);
    let mut model = Model::default();
    for _ in 0..10 {
        let batch: Vec<Entry> = (0..40)
            .map(|_| {
                let number = dice.roll(100);
                any(&mut dice, number)
            })
            .collect();
        assert!(store.load(&batch).unwrap().refused.is_empty());
        model.load(&batch);
    }
    let mut rows = store.endings(&Wanted { limit: 1000, ..Wanted::default() }).unwrap();
    rows.sort_by(|one, other| one.record.id.cmp(&other.record.id));
    assert_eq!(rows, model.stored());
    for by in [Dimension::Team, Dimension::Hour] {
        let by = query(&[by]);
        let mut groups = store.report(&by).unwrap().groups;
        groups.sort_by(|one, other| one.key.cmp(&other.key));
        assert_eq!(groups, model.groups(&by, |_| true));
    }
}

/// Supabase serves `public` to the role `anon`, and grants it everything by default.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn what_supabase_serves_to_the_world_is_not_served() {
    let server = places::Postgres::start();
    let (ours, theirs) = (server.database(), server.database());
    places::sql(&ours, "CREATE ROLE anon; CREATE ROLE app LOGIN");
    for url in [&ours, &theirs] {
        places::sql(
            url,
            "GRANT ALL ON SCHEMA public TO app; GRANT USAGE ON SCHEMA public TO anon; \
             ALTER DEFAULT PRIVILEGES FOR ROLE app GRANT ALL ON TABLES TO anon",
        );
    }
    let as_app = |url: &str| url.replace("postgres@", "app@");
    let mut store = endstop_store::open(&as_app(&ours)).unwrap();
    store.migrate().unwrap();
    assert!(store.migrate().unwrap().is_empty());
    store.load(&[entry(0)]).unwrap();
    store.tend().unwrap();
    store.load(&[entry(1)]).unwrap();
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 2);
    assert!(store.ending(&id(0)).unwrap().is_some());
    let view = "SELECT count(*) FROM endstop_hours";
    assert_eq!(places::sql(&as_app(&ours), view), [[Some("1".to_owned())]]);
    let granted = "SELECT has_table_privilege('anon', 'endstop_hours', 'SELECT')::text";
    assert_eq!(places::sql(&ours, granted), [[Some("false".to_owned())]]);
    let tables =
        ["gateway_requests", "endstop_series", "endstop_sums", "endstop_deltas", "endstop_words"];
    for table in tables.into_iter().chain(["endstop_migrations"]) {
        let all = format!("SELECT 1 FROM {table}");
        assert!(!places::sql(&as_app(&ours), &all).is_empty(), "{table}");
        assert!(places::sql(&ours, &format!("SET ROLE anon; {all}")).is_empty(), "{table}");
    }

    // A table that was there before is as open as its owner left it.
    let made = "CREATE TABLE gateway_requests (id uuid PRIMARY KEY, model text); \
                INSERT INTO gateway_requests VALUES (gen_random_uuid(), 'theirs')";
    places::sql(&as_app(&theirs), made);
    endstop_store::open(&as_app(&theirs)).unwrap().migrate().unwrap();
    let read = places::sql(&theirs, "SET ROLE anon; SELECT model FROM gateway_requests");
    assert_eq!(read, [[Some("theirs".to_owned())]]);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn exported_files_do_the_same_alone_and_twice() {
    let directory = tempfile::tempdir().unwrap();
    let files = export_migrations(directory.path(), "20261116093000").unwrap();
    let names: Vec<_> =
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "20261116093000_endstop_0001_requests.sql",
            "20261116093001_endstop_0002_hourly.sql",
            "20261116093002_endstop_0003_client_status.sql",
            "20261116093003_endstop_0004_sums.sql",
            "20261116093004_endstop_0005_words.sql",
        ]
    );
    let place = places::postgres();
    for _ in 0..2 {
        files.iter().for_each(|file| drop(place.sql(&std::fs::read_to_string(file).unwrap())));
    }
    let mut store = place.open();
    assert_eq!(store.load(&[entry(0)]).unwrap().added, 1);
    assert!(store.migrate().unwrap().is_empty());
    assert!(export_migrations(directory.path(), "today").is_err());
}

/// The question that people ask, as it is, on many rows.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn the_index_answers_the_question() {
    let place = places::postgres();
    let mut store = place.open();
    store.migrate().unwrap();
    store.load(&[entry(0)]).unwrap();
    place.sql(
        "INSERT INTO gateway_requests (id, created_at, team_id, finish_reason, path) \
         SELECT gen_random_uuid(), now() - i * interval '1 minute', 't' || i % 40, \
         (ARRAY['stop', 'length', 'tool_calls', NULL])[1 + i % 4], repeat('x', 300) \
         FROM generate_series(1, 60000) i",
    );
    place.sql("VACUUM ANALYZE gateway_requests");
    let asked = "SELECT finish_reason, COUNT(*) FROM gateway_requests WHERE team_id = 't7' AND \
                 created_at > NOW() - INTERVAL '7 days' GROUP BY finish_reason \
                 ORDER BY COUNT(*) DESC";
    let plan = format!("{:?}", place.sql(&format!("EXPLAIN {asked}")));
    assert!(plan.contains("idx_gateway_requests_finish_reason"), "{plan}");
    assert_eq!(place.sql(asked).len(), 1);
}
