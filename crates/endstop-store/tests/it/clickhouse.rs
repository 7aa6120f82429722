//! ClickHouse where it differs from other stores: addresses, servers that refuse, deletion by days, the server's own TTL.

use std::time::Duration;

use endstop_store::loader::{Loader, Options as LoaderOptions};
use endstop_store::spool::{Options as SpoolOptions, Spool};
use endstop_store::{
    Dimension, Entry, Error, Filter, Period, Query, Wanted, open, open_sink, open_to_read,
};

use crate::model::{ALL, DAY, HOUR, T0, entry, query};
use crate::places::clickhouse::{Server, clickhouse, old_clickhouse, query as sql, until};
use crate::places::free_port;

#[test]
fn addresses_that_are_none() {
    let cases = [
        ("clickhouse:", "names no host"),
        ("clickhouse://u:hunter2@/d", "names no host"),
        ("clickhouse://u:hunter2@h:port/d", "invalid port"),
        ("clickhouse://u:hunter2@h/d?frobnicate=1", "unknown parameter `frobnicate`"),
        ("clickhouse://u:hunter2@h/d?ttl=long", "invalid `ttl`"),
        ("clickhouse://u:hunter2%@h/d", "%25"),
        ("clickhouses://u:hunter2@h/d?sslrootcert=/nowhere", "sslrootcert"),
        ("clickhouse://u:hunter2\n@h/d", "cannot send"),
    ];
    for (url, wanted) in cases {
        let Err(error) = open(url) else { panic!("{url}") };
        assert!(matches!(error, Error::Url { .. }), "{url}: {error}");
        let error = error.to_string();
        assert!(error.contains(wanted) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_server_that_is_not_there() {
    let url = format!("clickhouse://u:hunter2@127.0.0.1:{}/d", free_port());
    let error = open(&url).unwrap().migrate().unwrap_err();
    assert!(error.is_retryable());
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

/// A port where something else answers.
#[test]
fn a_server_of_another_kind() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (stream, reply) in
            listener.incoming().zip(["200 OK", "404 Not Found", "502 Bad Gateway"])
        {
            use std::io::{Read as _, Write as _};
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let text =
                format!("HTTP/1.1 {reply}\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
            stream.write_all(text.as_bytes()).unwrap();
        }
    });
    let url = format!("clickhouse://127.0.0.1:{port}/d");
    let failed = || open(&url).unwrap().migrate().unwrap_err();
    for (wanted, later) in [("check the port", false), ("404", false), ("502", true)] {
        let error = failed();
        assert_eq!(error.is_retryable(), later, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

/// Both kinds of servers refuse in words that say what to do.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
fn a_server_that_refuses() {
    for place in [clickhouse(), old_clickhouse()] {
        let refused = |url: &str, wanted: &str| {
            let error = open(url).unwrap().load(&[entry(0)]).unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error}");
            let error = error.to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        };
        refused(&place.url, "run `endstop migrate`");
        refused(&place.url.replace("secret", "hunter2"), "check the user and the password");
        refused(
            &place.url.replace("default:secret", "nobody:hunter2"),
            "check the user and the password",
        );
        let (server, _) = place.url.rsplit_once('/').unwrap();
        refused(&format!("{server}/nowhere"), "create the database");
        let report = open(&place.url).unwrap().report(&query(&[])).unwrap_err();
        assert!(report.to_string().contains("run `endstop migrate`"), "{report}");
        let error = open(&format!("{}?cluster=nowhere", place.url)).unwrap().migrate().unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(open_to_read(&place.url).unwrap().migrate().is_err());

        // A table that is not ours stays as it is.
        sql(&place.url, "DROP TABLE IF EXISTS endstop_migrations");
        sql(&place.url, "CREATE TABLE gateway_requests (id String) ENGINE = Log");
        let error = open(&place.url).unwrap().migrate().unwrap_err();
        assert!(error.to_string().contains("name another database"), "{error}");
        assert!(sql(&place.url, "SELECT * FROM gateway_requests").is_empty());
    }
}

/// Nothing is lost while the server is down, the password is wrong or a table is missing.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
fn nothing_is_lost_while_it_refuses() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::alone(temp.path());
    let url = server.url("default");
    let (spool, _) = Spool::open(&temp.path().join("spool"), SpoolOptions::default()).unwrap();
    let note = |number: u64| {
        let mut ticket = spool.start(&entry(number).record);
        spool.end(&mut ticket, &entry(number).record);
    };
    let options =
        || LoaderOptions { refused_pause: Duration::from_millis(50), ..LoaderOptions::default() };
    let load =
        |url: String| Loader::spawn(spool.store(), move || open_sink(&url), options()).unwrap();

    (0..5).for_each(note);
    let loader = load(url.replace("secret", "hunter2"));
    until(|| loader.status().last_error.is_some(), "the password is refused");
    assert!(!loader.stop(Duration::ZERO), "it waits in the spool");
    assert_eq!(spool.status().entries, 5);

    let loader = load(url.clone());
    assert!(loader.wait_until_loaded(Duration::from_secs(60)), "{:?}", loader.status());
    // The server dies, and the endings wait.
    server.kill();
    (5..10).for_each(note);
    until(|| loader.status().last_error.is_some(), "the server is missed");
    server.run();
    assert!(loader.wait_until_loaded(Duration::from_secs(60)), "{:?}", loader.status());
    // A table is gone, and comes back.
    sql(&url, "RENAME TABLE gateway_requests TO elsewhere");
    (10..15).for_each(note);
    let missing = |error: &str| error.contains("run `endstop migrate`");
    until(|| loader.status().last_error.as_deref().is_some_and(missing), "the table is missed");
    sql(&url, "RENAME TABLE elsewhere TO gateway_requests");
    assert!(loader.wait_until_loaded(Duration::from_secs(60)), "{:?}", loader.status());
    assert!(loader.stop(Duration::from_secs(60)));
    assert_eq!(open(&url).unwrap().report(&query(&[])).unwrap().total.now.count, 15);
}

/// Rows of whole days are deleted and their hourly sums stay; rows of the last day can still be counted by the minute.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
fn days_are_deleted_and_their_sums_stay() {
    for place in [clickhouse(), old_clickhouse()] {
        let mut store = place.open();
        store.migrate().unwrap();
        let start = T0 / DAY * DAY;
        let query = |by: &[Dimension]| Query {
            period: Period { since: start - DAY, until: start + 10 * DAY },
            ..query(by)
        };
        let at = |number: u64| {
            let mut entry = entry(number);
            entry.record.created_at = start + number * HOUR / 2;
            entry.record.first_byte_us = Some(number * 1000);
            entry.record.model = (!number.is_multiple_of(3)).then(|| format!("m{}", number % 3));
            entry
        };
        let entries: Vec<Entry> = (0..144).map(at).collect();
        store.load(&entries).unwrap();
        let asked = [
            Query { by: vec![Dimension::Model], ..query(&[]) },
            Query { by: vec![Dimension::Day, Dimension::Reason], ..query(&[]) },
            Query { by: vec![Dimension::Hour], ..query(&[]) },
            Query {
                filter: Filter { model: Some("null".to_owned()), ..Filter::default() },
                ..query(&[])
            },
            Query {
                filter: Filter { model: Some("m*".to_owned()), ..Filter::default() },
                ..query(&[])
            },
        ];
        let before: Vec<_> = asked.iter().map(|query| store.report(query).unwrap()).collect();
        let words = store.words(&Filter::default(), ALL, 100).unwrap();
        assert_eq!(store.forget(start + 2 * DAY + 90 * 60_000, usize::MAX).unwrap(), 99);
        for again in 0..2 {
            for (query, before) in asked.iter().zip(&before) {
                assert_eq!(store.report(query).unwrap(), *before, "{again}: {query:?}");
            }
            assert_eq!(store.words(&Filter::default(), ALL, 100).unwrap(), words);
            let rows = store.endings(&Wanted { limit: 1000, ..Wanted::default() }).unwrap();
            assert_eq!(rows.len(), 45);
            let count = "SELECT count() FROM gateway_requests";
            until(|| sql(&place.url, count) == [["48"]], "rows are deleted");
        }
        // The rows of an hour that is gone cannot be counted by the minute; those of the last day can.
        let part = |since: u64| Query {
            period: Period { since: start + since, until: start + since + 60_000 },
            ..query(&[])
        };
        assert_eq!(store.report(&part(2 * DAY)).unwrap().total.now.count, 1);
        let error = store.report(&part(DAY)).unwrap_err().to_string();
        assert!(error.contains("whole hours"), "{error}");
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
fn the_server_deletes_rows_by_itself() {
    let place = clickhouse();
    let days = |days: u32| open(&format!("{}?ttl={days}d", place.url)).unwrap().migrate().unwrap();
    let made = || sql(&place.url, "SHOW CREATE TABLE gateway_requests")[0][0].clone();
    days(400);
    assert!(made().contains("toIntervalDay(400)"), "{}", made());
    days(30);
    days(30);
    assert!(made().contains("toIntervalDay(30)"), "{}", made());
    // Rows of 2023 are older than that.
    open(&place.url).unwrap().load(&[entry(0)]).unwrap();
    sql(&place.url, "OPTIMIZE TABLE gateway_requests FINAL");
    assert!(sql(&place.url, "SELECT id FROM gateway_requests").is_empty());
    let error = open(&format!("{}?ttl=30d", old_clickhouse().url)).unwrap().migrate().unwrap_err();
    assert!(error.to_string().contains("has no `ttl`"), "{error}");
}
