//! ClickHouse as a cluster: two shards of two replicas, with ZooKeeper, on Debian's old server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use endstop_store::loader::{Loader, Options as LoaderOptions};
use endstop_store::spool::{Options as SpoolOptions, Spool};
use endstop_store::{Dimension, Filter, Query, Store, Wanted, open, open_sink};

use crate::model::{ALL, entry, query};
use crate::places::clickhouse::{Cluster, Server, query as sql, until};

/// Gateways.
const GATEWAYS: u64 = 4;
/// Endings of each.
const EACH: u64 = 6_000;

/// Four gateways write at once while a replica is killed and comes back: nothing is lost or doubled, on any server.
#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
fn a_killed_replica_loses_and_doubles_nothing() {
    let cluster = Cluster::start();
    create_database(&cluster);
    open(&cluster.url(0, "audit")).unwrap().migrate().unwrap();

    let temp = tempfile::tempdir().unwrap();
    let (written, killed) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for gateway in 0..GATEWAYS {
            let url = cluster.url(gateway as usize, "audit");
            let folder = temp.path().join(format!("spool{gateway}"));
            let (written, killed) = (&written, &killed);
            scope.spawn(move || {
                let (spool, _) = Spool::open(&folder, SpoolOptions::default()).unwrap();
                let options = LoaderOptions {
                    batch: 100,
                    longest_pause: Duration::from_millis(200),
                    ..LoaderOptions::default()
                };
                let loader =
                    Loader::spawn(spool.store(), move || open_sink(&url), options).unwrap();
                for number in 0..EACH {
                    // The last endings come after the replica was killed.
                    if number == EACH / 2 {
                        until(|| killed.load(Ordering::Relaxed), "the replica is killed");
                    }
                    note(&spool, gateway * EACH + number);
                    written.fetch_add(1, Ordering::Relaxed);
                    if number % 100 == 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
                assert!(loader.stop(Duration::from_secs(240)), "the spool is not empty");
            });
        }
        until(|| written.load(Ordering::Relaxed) > EACH, "endings are written");
        until(|| rows(&cluster, 1) > 0, "inserts are under way");
        cluster.servers[0].kill();
        killed.store(true, Ordering::Relaxed);
        // The other replica of its shard takes more rows while it is down.
        let before = rows(&cluster, 1);
        until(|| rows(&cluster, 1) > before, "inserts go on without it");
        cluster.servers[0].run();
    });

    let all = GATEWAYS * EACH;
    let local = "SELECT count(), uniqExact(id) FROM gateway_requests_local FINAL";
    let of = |server: &Server| -> u64 { sql(&server.url("audit"), local)[0][0].parse().unwrap() };
    for pair in cluster.servers.chunks(2) {
        until(|| of(&pair[0]) == of(&pair[1]), "replicas are alike");
    }
    let counts: Vec<u64> = cluster.servers.iter().map(of).collect();
    assert_eq!(counts[0] + counts[2], all);
    assert!(counts[0] > all / 3 && counts[2] > all / 3, "{counts:?}");
    for first in 0..4 {
        let mut store = open(&cluster.url(first, "audit")).unwrap();
        let total = store.report(&query(&[])).unwrap().total.now;
        assert_eq!((total.count, total.tokens_out), (all, all * 10), "server {first}");
    }
    // What is loaded again is known, whichever server is asked.
    let batch: Vec<_> = (0..1000).map(entry).collect();
    let loaded = open(&cluster.url(3, "audit")).unwrap().load(&batch).unwrap();
    assert_eq!((loaded.added, loaded.amended, loaded.known), (0, 0, 1000));

    // A server that is new, or has lost its tables, gets them, and the rows of its shard.
    let new = cluster.servers[3].url("audit");
    for table in ["endstop_words_view", "endstop_words_local", "gateway_requests_local"] {
        sql(&new, &format!("DROP TABLE {table}"));
    }
    let applied = open(&cluster.url(3, "audit")).unwrap().migrate().unwrap();
    assert_eq!(applied, ["0001_requests", "0002_words"]);
    until(|| of(&cluster.servers[3]) == counts[2], "the new replica has all rows");
    assert!(open(&cluster.url(3, "audit")).unwrap().migrate().unwrap().is_empty());

    questions(&cluster);
}

fn note(spool: &Spool, number: u64) {
    let record = entry(number).record;
    let mut ticket = spool.start(&record);
    spool.end(&mut ticket, &record);
}

/// Rows that a server has itself, with versions and duplicates.
fn rows(cluster: &Cluster, server: usize) -> u64 {
    let count = "SELECT count() FROM gateway_requests_local";
    sql(&cluster.servers[server].url("audit"), count)[0][0].parse().unwrap()
}

fn create_database(cluster: &Cluster) {
    for server in &cluster.servers {
        sql(&server.url("default"), "CREATE DATABASE audit");
    }
}

/// All questions work on a cluster of old servers.
fn questions(cluster: &Cluster) {
    let mut store = open(&cluster.url(2, "audit")).unwrap();
    let all = GATEWAYS * EACH;
    let by = [Dimension::Hour, Dimension::Model];
    let hours =
        store.report(&Query { zone: Some("Asia/Kolkata".to_owned()), ..query(&by) }).unwrap();
    assert_eq!(hours.groups.iter().map(|group| group.now.count).sum::<u64>(), all);
    let model = Filter { model: Some("gpt*".to_owned()), ..Filter::default() };
    let words = store.words(&model, ALL, 10).unwrap();
    assert_eq!((words.len(), words[0].count), (1, all));
    let newest = store.endings(&Wanted { filter: model, ..Wanted::default() }).unwrap();
    assert_eq!(newest[0].record, entry(all - 1).record);
    assert_eq!(store.ending(&entry(7).record.id).unwrap().unwrap().record, entry(7).record);
    assert_eq!(store.turn(&entry(8).record.id).unwrap().len(), 1);
    // Newer rules judge a row again, on its shard.
    let mut old = store.judged_otherwise(&[2], "", 10).unwrap();
    assert_eq!(old.len(), 10);
    for row in &mut old {
        row.record.rules = 2;
        row.record.reason = "cut".into();
    }
    assert_eq!(store.rejudge(&old).unwrap(), 10);
    assert_eq!(store.report(&query(&[])).unwrap().total.now.reasons["cut"], 10);
    forgotten(&mut *store, cluster);
}

/// Rows are forgotten, and their sums stay.
fn forgotten(store: &mut dyn Store, cluster: &Cluster) {
    let all = GATEWAYS * EACH;
    let end = ALL.until;
    assert_eq!(store.forget(end, usize::MAX).unwrap(), all);
    assert!(store.endings(&Wanted::default()).unwrap().is_empty());
    let total = store.report(&query(&[])).unwrap().total.now;
    assert_eq!((total.count, total.reasons["cut"]), (all, 10));
    until(|| (0..4).all(|server| rows(cluster, server) == 0), "rows are deleted");
    let total = store.report(&query(&[])).unwrap().total.now;
    assert_eq!((total.count, total.tokens_out), (all, all * 10));
}
