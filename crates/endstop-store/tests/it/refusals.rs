//! What cannot work says why, and what to do; never a password.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use endstop_store::{Error, Options, open, open_to_read, open_with};

use crate::model::{entry, query};
use crate::places::{self, free_port};

#[test]
fn addresses_that_are_none() {
    let cases = [
        ("", "unknown scheme"),
        ("mysql://u:hunter2@h/d", "unknown scheme"),
        ("sqlite", "unknown scheme"),
        ("sqlite:", "names no file"),
        ("sqlite://", "names no file"),
        ("sqlite:a?mode=memory", "no parameters"),
        ("postgres:", ""),
        ("postgres://", "names no host"),
        ("postgres://u:hunter2@/d", "names no host"),
        ("postgres://u:hunter2@h:port/d", ""),
        ("postgres://u:hunter2@h/d?sslmode=maybe", "sslmode"),
        ("postgres://u:hunter2@h/d?frobnicate=1", "frobnicate"),
        ("postgres://u:hunter2@h/d?sslmode=verify-full&sslrootcert=/nowhere", "sslrootcert"),
        ("postgres://h/d?user=u&password=hunter2&x=y", "unknown option"),
    ];
    for (url, wanted) in cases {
        let Err(error) = open(url) else { panic!("{url}") };
        assert!(matches!(error, Error::Url { .. }), "{url}: {error}");
        let error = error.to_string();
        assert!(error.contains(wanted) && !error.contains("hunter2"), "{error}");
    }
    for url in ["sqlite:/nowhere/at/all.db", "sqlite:/"] {
        let Err(error) = open(url) else { panic!("{url}") };
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    assert!(open_to_read("sqlite:/nowhere/at/all.db").is_err());
    assert!(open_to_read("sqlite::memory:").is_err());
}

#[test]
fn a_server_that_is_not_there() {
    let url = format!("postgres://u:hunter2@127.0.0.1:{}/d", free_port());
    let error = open(&url).unwrap().migrate().unwrap_err();
    assert!(error.is_retryable());
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

/// Nothing is lost while the password is wrong, and it is never shown.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn nothing_is_lost_while_a_password_is_wrong() {
    use endstop_store::loader::{Loader, Options as LoaderOptions};
    use endstop_store::open_sink;
    use endstop_store::spool::{Options as SpoolOptions, Spool};

    let server = places::Postgres::start();
    let url = server.database();
    places::sql(
        &url,
        "CREATE ROLE app LOGIN PASSWORD 'hunter2'; GRANT ALL ON SCHEMA public TO app",
    );
    let hba = server.directory.join("data/pg_hba.conf");
    std::fs::write(&hba, "host all all 127.0.0.1/32 scram-sha-256\n").unwrap();
    server.signal("HUP");
    let of = |password: &str| url.replace("postgres@", &format!("app:{password}@"));

    let temp = tempfile::tempdir().unwrap();
    let (spool, _) = Spool::open(temp.path(), SpoolOptions::default()).unwrap();
    for number in 0..5 {
        let mut ticket = spool.start(&entry(number).record);
        spool.end(&mut ticket, &entry(number).record);
    }
    let load = |url: String| {
        Loader::spawn(spool.store(), move || open_sink(&url), LoaderOptions::default()).unwrap()
    };
    let end = Instant::now() + Duration::from_secs(60);
    let loader = load(of("hunter3"));
    let error = loop {
        if let Some(error) = loader.status().last_error {
            break error;
        }
        assert!(Instant::now() < end, "it is not told");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(error.contains("check the user and the password"), "{error}");
    assert!(!error.contains("hunter3"), "{error}");
    assert!(!loader.stop(Duration::ZERO), "it waits in the spool");
    assert_eq!(spool.status().entries, 5);
    let loader = load(of("hunter2"));
    assert!(loader.wait_until_loaded(Duration::from_secs(60)), "{:?}", loader.status());
    assert!(loader.stop(Duration::from_secs(60)));
    let report = open_to_read(&of("hunter2")).unwrap().report(&query(&[])).unwrap();
    assert_eq!(report.total.now.count, 5);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_server_that_refuses() {
    let place = places::postgres();
    place.sql("CREATE ROLE stranger LOGIN");
    let refused = |url: &str, wanted: &str| {
        let error = open(url).unwrap().load(&[entry(0)]).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    };
    refused(&place.url, "run `endstop migrate`");
    let report = open(&place.url).unwrap().report(&query(&[])).unwrap_err();
    assert!(report.to_string().contains("run `endstop migrate`"), "{report}");
    place.open().migrate().unwrap();
    refused(&place.url.replace("postgres@", "nobody@"), "check the user");
    refused(&format!("{}_missing", place.url), "create the database");
    refused(&place.url.replace("postgres@", "stranger@"), "grant this user");
    refused(&format!("{}?sslmode=require", place.url), "TLS");
    place.sql("ALTER TABLE gateway_requests DROP COLUMN cause");
    refused(&place.url, "`cause`");
    place.sql("DROP ROLE stranger");
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn a_wrong_password() {
    let server = places::Postgres::start();
    let url = server.database();
    places::sql(&url, "CREATE ROLE careful LOGIN PASSWORD 'right'");
    let rules = server.directory.join("data/pg_hba.conf");
    std::fs::write(&rules, "host all careful 127.0.0.1/32 scram-sha-256\nhost all all all trust\n")
        .unwrap();
    places::sql(&url, "SELECT pg_reload_conf()");
    places::sql(&url, "GRANT ALL ON SCHEMA public TO careful");
    let as_careful = |password: &str| url.replace("postgres@", &format!("careful:{password}@"));
    let mut right = open(&as_careful("right")).unwrap();
    // The server reads its new rules in its own time.
    let end = Instant::now() + Duration::from_secs(10);
    let error = loop {
        match open(&as_careful("hunter2")).unwrap().migrate() {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < end),
        }
    };
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("check the user and the password"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    right.migrate().unwrap();
    assert_eq!(right.load(&[entry(0)]).unwrap().added, 1);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn who_reads_cannot_write_nor_take_long() {
    for place in [places::sqlite(), places::postgres()] {
        place.open().migrate().unwrap();
        let mut reader = open_to_read(&place.url).unwrap();
        assert!(reader.migrate().is_err());
        assert!(reader.load(&[entry(0)]).is_err());
        assert!(reader.forget(u64::MAX, 9).is_err());
        assert!(reader.rejudge(&[]).is_err());
        let mut store = place.open();
        let rows: Vec<_> = (0..20_000)
            .map(|number| {
                let mut entry = entry(number);
                entry.record.model = Some(format!("model {number}"));
                entry
            })
            .collect();
        store.load(&rows).unwrap();
        assert_eq!(reader.report(&query(&[])).unwrap().total.now.count, 20_000);
        let options =
            Options { read_only: true, timeout: Duration::from_millis(1), ..Options::default() };
        let error = open_with(&place.url, &options).unwrap().report(&query(&[])).unwrap_err();
        assert!(matches!(&error, Error::Query(why) if why.contains("too long")), "{error}");
    }
}

#[test]
fn a_file_is_for_its_owner_alone() {
    let place = places::sqlite();
    let path = place.url.strip_prefix("sqlite:").unwrap().to_owned();
    let mut store = place.open();
    store.migrate().unwrap();
    store.load(&[entry(0)]).unwrap();
    for path in [path.clone(), format!("{path}-wal"), format!("{path}-shm")] {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
}

#[test]
fn files_that_are_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    std::fs::write(
        &text,
        "no database at all, but a text that is long enough to be looked at ".repeat(99),
    )
    .unwrap();
    let outcome = open(&format!("sqlite:{}", text.display())).and_then(|mut store| store.migrate());
    assert!(outcome.unwrap_err().to_string().contains("not a SQLite database"));

    let foreign = directory.path().join("foreign.db");
    let other = rusqlite::Connection::open(&foreign).unwrap();
    other.execute_batch("CREATE TABLE gateway_requests (id, model)").unwrap();
    let mut store = open(&format!("sqlite:{}", foreign.display())).unwrap();
    assert!(store.migrate().unwrap_err().to_string().contains("name another file"));

    let fresh = format!("sqlite:{}", directory.path().join("fresh.db").display());
    let error = open(&fresh).unwrap().load(&[entry(0)]).unwrap_err();
    assert!(error.to_string().contains("run `endstop migrate`"), "{error}");
}

/// What a store refused is kept beside the spool, counted over restarts, and loaded once it can be.
#[test]
fn refused_entries_are_kept_and_loaded_later() {
    use endstop_store::spool::{Options as SpoolOptions, Spool};
    use endstop_store::{Reloaded, load_refused, refused};

    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let (spool, _) = Spool::open(dir, SpoolOptions::default()).unwrap();
    let mut bad = entry(1);
    bad.record.id = "not an id".to_owned();
    spool.store().refuse(&bad, "its id is not a UUID").unwrap();
    for number in 2..5 {
        spool.store().refuse(&entry(number), "value too long").unwrap();
    }
    assert_eq!(spool.status().refused, 4);
    drop(spool);
    let (spool, _) = Spool::open(dir, SpoolOptions::default()).unwrap();
    assert_eq!(spool.status().refused, 4, "they are counted over restarts");
    std::fs::OpenOptions::new()
        .append(true)
        .open(dir.join("quarantine/refused.jsonl"))
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"half a li\n"))
        .unwrap();

    let place = places::sqlite();
    let mut store = place.open();
    store.migrate().unwrap();
    // A gateway that runs has the spool open meanwhile.
    let done = load_refused(dir, endstop_store::STORE, &mut *store).unwrap();
    assert_eq!(done, Reloaded { loaded: 3, refused: 1, unread: 1 });
    assert_eq!(store.report(&query(&[])).unwrap().total.now.count, 3);
    let left = refused(dir).unwrap();
    assert_eq!(left.values().sum::<u64>(), 2);
    assert_eq!(left[&("store".to_owned(), "its id is not a UUID".to_owned())], 1);
    assert_eq!(
        load_refused(dir, endstop_store::STORE, &mut *store).unwrap(),
        Reloaded { loaded: 0, refused: 1, unread: 1 }
    );
    let found = Spool::inspect(dir).unwrap();
    assert_eq!((found.damaged, found.waiting.len()), (0, 1));
    drop(spool);
}
