//! Stores that are down or locked, and come back.

use std::time::{Duration, Instant};

use endstop_store::{Options, Wanted, open, open_to_read, open_with};
use rusqlite::Connection;

use crate::model::{entry, query};
use crate::places::{self, Postgres};

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn postgres_stops_and_starts_again() {
    let server = Postgres::start();
    let url = server.database();
    let mut store = open(&url).unwrap();
    let mut reader = open_to_read(&url).unwrap();
    store.migrate().unwrap();
    store.load(&[entry(0)]).unwrap();
    assert_eq!(reader.report(&query(&[])).unwrap().total.now.count, 1);

    // Restarted between two batches: nobody notices.
    server.stop();
    server.run();
    assert_eq!(store.load(&[entry(0), entry(1)]).unwrap().added, 1);
    assert_eq!(reader.report(&query(&[])).unwrap().total.now.count, 2);

    server.stop();
    for _ in 0..2 {
        let error = store.load(&[entry(2)]).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert!(reader.report(&query(&[])).unwrap_err().is_retryable());
    }
    server.run();
    assert_eq!(store.load(&[entry(1), entry(2)]).unwrap().added, 1);
    assert_eq!(reader.report(&query(&[])).unwrap().total.now.count, 3);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn postgres_that_does_not_answer_is_not_waited_for() {
    let server = Postgres::start();
    let options = Options { timeout: Duration::from_millis(200), ..Options::default() };
    let mut store = open_with(&server.database(), &options).unwrap();
    store.migrate().unwrap();
    store.load(&[entry(0)]).unwrap();
    server.signal("STOP");
    let start = Instant::now();
    let error = store.load(&[entry(1)]).unwrap_err();
    server.signal("CONT");
    assert!(error.is_retryable(), "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    // Whether it was done in the end, nobody knows: it is loaded again, and is there once.
    let loaded = store.load(&[entry(0), entry(1)]).unwrap();
    assert_eq!(loaded.added + loaded.known, 2);
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 2);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_connection_that_was_ended_is_made_anew() {
    for place in [places::postgres(), places::pooled()] {
        let mut store = place.open();
        store.migrate().unwrap();
        place.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        let loaded = store.load(&[entry(0)]).or_else(|error| {
            // A pooler notices late, and says so once.
            assert!(error.is_retryable(), "{error}");
            store.load(&[entry(0)])
        });
        assert_eq!(loaded.unwrap().added, 1);
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_table_that_is_locked_is_waited_for_and_no_longer() {
    let place = places::postgres();
    place.open().migrate().unwrap();
    let options = Options { timeout: Duration::from_millis(200), ..Options::default() };
    let mut store = open_with(&place.url, &options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&place.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("BEGIN; LOCK TABLE gateway_requests").await.unwrap();
        client
    });
    let error = store.load(&[entry(0)]).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    runtime.block_on(client.batch_execute("ROLLBACK")).unwrap();
    // The same limit of time holds for what is well, which a busy machine may not meet at once.
    let loaded = (0..100).find_map(|_| store.load(&[entry(0)]).ok());
    assert_eq!(loaded.unwrap().added, 1);
}

#[test]
fn a_locked_file_is_free_later() {
    let place = places::sqlite();
    let options = Options { wait: Duration::from_millis(50), ..Options::default() };
    let mut store = open_with(&place.url, &options).unwrap();
    store.migrate().unwrap();
    let other = Connection::open(place.url.strip_prefix("sqlite:").unwrap()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..2 {
        let error = store.load(&[entry(0)]).unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
    // Reading goes on meanwhile.
    let mut reader = open_to_read(&place.url).unwrap();
    assert!(reader.endings(&Wanted::default()).unwrap().is_empty());
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.load(&[entry(0)]).unwrap().added, 1);
    assert_eq!(reader.endings(&Wanted::default()).unwrap().len(), 1);
}
