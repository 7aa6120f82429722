//! Row 40: `kill -9` under load. No end that a client saw is lost, none is there twice, and what nobody
//! saw the end of is closed once. The same holds for each sink.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use endstop_sim::{Log, Options, Sim};
use fastrand::Rng;

use crate::child::{EVER, Process, config};
use crate::load::{Row, Rows, Seen, all, sqlite_rows};

/// How often it is killed, unless `ENDSTOP_KILLS` says otherwise.
const KILLS: u64 = 1000;

/// Clients at once.
const CLIENTS: u64 = 8;

/// What the clients share.
#[derive(Default)]
struct World {
    gateway: Mutex<Option<SocketAddr>>,
    over: AtomicBool,
    seen: Mutex<Seen>,
}

async fn client(world: Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let request_shape = all();
    while !world.over.load(Ordering::Acquire) {
        let to = *world.gateway.lock().unwrap();
        let ask = request_shape[rng.usize(..request_shape.len())].clone();
        let response = match to {
            None => None,
            Some(to) => ask.ask(to).await,
        };
        match response {
            None => tokio::time::sleep(Duration::from_millis(1)).await,
            Some(response) => world.seen.lock().unwrap().note(ask, &response),
        }
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Starts gateways and kills them, while clients ask. Returns how many orphans were told.
async fn kill_often(world: Arc<World>, config: PathBuf, kills: u64, seed: u64) -> u64 {
    let told = tokio::task::spawn_blocking(move || {
        let mut rng = Rng::with_seed(seed);
        let mut orphans = 0;
        for _ in 0..kills {
            let process = Process::start(&config);
            // Now and then while it starts.
            let early = rng.u32(..8) == 0;
            let starting = Duration::from_micros(rng.u64(..30_000));
            let listening =
                if early { process.listening_within(starting) } else { Some(process.listening()) };
            if let Some(listening) = listening {
                orphans += listening.recovery["orphans"].as_u64().unwrap();
                assert_eq!(listening.recovery["quarantined"], 0);
                assert_eq!(listening.recovery["missing"], 0);
                *world.gateway.lock().unwrap() = Some(listening.address);
                std::thread::sleep(Duration::from_micros(rng.u64(..80_000)));
            }
            process.kill();
            *world.gateway.lock().unwrap() = None;
        }
        orphans
    });
    told.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_40_killed_at_random_nothing_that_was_seen_is_lost() {
    let kills = number("ENDSTOP_KILLS", KILLS);
    let seed = number("ENDSTOP_SEED", 40);
    let temp = tempfile::tempdir().unwrap();
    let pace = Duration::from_micros(200);
    let reached = Arc::new(AtomicU64::new(0));
    let counted = reached.clone();
    let log: Log = Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let options = Options { pace, kept_bytes: 0, log: Some(log), ..Options::default() };
    let sim = Sim::start(options).await.unwrap();
    let database = temp.path().join("e.db");
    let store = format!("sqlite:{}", database.display());
    // Small, so that its files are filled and deleted meanwhile.
    let small = "log = 'off'\n[record]\nspool_bytes = 1048576";
    let config = config(temp.path(), &sim.url(), &store, small);
    let world = Arc::new(World::default());
    let clients: Vec<_> =
        (0..CLIENTS).map(|n| tokio::spawn(client(world.clone(), seed * 1000 + n))).collect();

    let began = Instant::now();
    let told = kill_often(world.clone(), config.clone(), kills, seed);
    let told = told.await;
    let took = began.elapsed();
    world.over.store(true, Ordering::Release);
    for client in clients {
        client.await.unwrap();
    }

    let last = Process::start(&config);
    let listening = last.listening();
    let told = told + listening.recovery["orphans"].as_u64().unwrap();
    listening.loaded().await;
    last.stop();
    let rows = sqlite_rows(&database);
    let seen = std::mem::take(&mut *world.seen.lock().unwrap());
    let reached = reached.load(Ordering::Relaxed);
    println!(
        "{kills} kills in {took:.1?}: {} requests, {reached} at the upstream, {} heads and {} ends \
         seen; {} rows, {} of them interrupted",
        seen.asked,
        seen.heads.len(),
        seen.ends(),
        rows.by_id.len(),
        rows.interrupted()
    );
    rows.check(&seen);
    assert!(reached <= rows.by_id.len() as u64, "whatever reached the upstream has a row");
    assert!(seen.ends() as u64 > kills, "there was load");
    assert_eq!(seen.refused, Default::default());
    // Those that were closed by a process that was killed at its start were not told.
    assert!(rows.interrupted() as u64 >= told && told > 0, "{told} orphans were told");

    // Once is enough.
    let again = Process::start(&config);
    let listening = again.listening();
    assert_eq!(listening.recovery["orphans"], 0);
    listening.loaded().await;
    again.stop();
    let now = sqlite_rows(&database);
    assert_eq!((now.by_id, now.summed), (rows.by_id, rows.summed));
}

/// Checks a file of lines. It may have a line twice, because it does not know what it has: then both are equal, and
/// they come first from a process that was started after a kill. Returns how many lines are there twice.
fn check_lines(lines: &str, before: usize, rows: &Rows) -> usize {
    let mut known: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let (mut doubled, mut at, mut is_new) = (0, 0, false);
    for line in lines.lines() {
        let is_of_last = at >= before;
        at += line.len() + 1;
        // A line that a dying process wrote half of comes again.
        let Ok(parsed) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let of_id = known.entry(parsed["id"].as_str().unwrap().replace('-', "")).or_default();
        if of_id.contains(&line) {
            doubled += 1;
            assert!(!is_new, "came twice without a kill: {line}");
        }
        is_new |= is_of_last && !of_id.contains(&line);
        of_id.push(line);
    }
    assert!(known.keys().eq(rows.by_id.keys()), "{} of {}", known.len(), rows.by_id.len());
    for (id, lines) in known {
        // The last line of an id counts.
        let last: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        let text = |name: &str| last[name].as_str().unwrap().to_owned();
        let [reason, closed, cause, action] = ["reason", "closed", "cause", "action"].map(text);
        assert_eq!(rows.by_id[&id], Row { reason, closed, cause, action }, "{id}");
    }
    doubled
}

/// A second store, a file of lines, a store that is dead, and one that is added later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_no_sink_loses_or_doubles() {
    let kills = number("ENDSTOP_SINK_KILLS", 25);
    let temp = tempfile::tempdir().unwrap();
    let options = Options { pace: Duration::from_micros(200), kept_bytes: 0, ..Options::default() };
    let sim = Sim::start(options).await.unwrap();
    let file = |name: &str| temp.path().join(name);
    let store = format!("sqlite:{}", file("e.db").display());
    let sinks = format!(
        "log = 'off'\n[sinks.copy]\nurl = 'sqlite:{}'\n[sinks.lines]\nurl = 'jsonl:{}'\n\
         [sinks.dead]\nurl = 'postgres://nobody@127.0.0.1:1/none'\n",
        file("copy.db").display(),
        file("lines.jsonl").display()
    );
    let file_of_config = config(temp.path(), &sim.url(), &store, &sinks);
    let world = Arc::new(World::default());
    let clients: Vec<_> =
        (0..CLIENTS).map(|n| tokio::spawn(client(world.clone(), 7000 + n))).collect();
    kill_often(world.clone(), file_of_config, kills, 7).await;
    let before: BTreeSet<String> = world.seen.lock().unwrap().heads.keys().cloned().collect();

    let lines = || std::fs::read_to_string(file("lines.jsonl")).unwrap();
    let lines_before = lines();
    let late = format!("{sinks}[sinks.late]\nurl = 'sqlite:{}'\n", file("late.db").display());
    let last = Process::start(&config(temp.path(), &sim.url(), &store, &late));
    let listening = last.listening();
    let ends = world.seen.lock().unwrap().ends();
    *world.gateway.lock().unwrap() = Some(listening.address);
    let until = Instant::now() + EVER;
    while world.seen.lock().unwrap().ends() < ends + 50 {
        assert!(Instant::now() < until, "no client sees an end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.over.store(true, Ordering::Release);
    for client in clients {
        client.await.unwrap();
    }
    let is_loaded = |ready: &serde_json::Value, name: &str| {
        ready["recording"]["sinks"][name]["lag_entries"] == 0
    };
    let all = ["copy", "lines", "late"];
    listening.loaded().await;
    let ready = listening
        .until("all sinks have all", |_, ready| all.iter().all(|name| is_loaded(ready, name)))
        .await;
    assert_eq!(ready["ready"], true, "a dead sink stops nothing: {ready}");
    let dead = &ready["recording"]["sinks"]["dead"];
    assert!(dead["lag_entries"].as_u64().unwrap() > 50 && dead["last_error"].is_string(), "{dead}");
    last.stop();

    let rows = sqlite_rows(&file("e.db"));
    let seen = std::mem::take(&mut *world.seen.lock().unwrap());
    rows.check(&seen);
    let copy = sqlite_rows(&file("copy.db"));
    assert_eq!((&copy.by_id, copy.summed), (&rows.by_id, rows.summed));
    let doubled = check_lines(&lines(), lines_before.len(), &rows);
    println!("{kills} kills, {} rows, {doubled} lines came twice", rows.by_id.len());
    let late = sqlite_rows(&file("late.db"));
    assert_eq!(late.summed, late.by_id.len() as u64);
    let after: Vec<&String> = seen.heads.keys().filter(|id| !before.contains(*id)).collect();
    assert!(after.len() >= 50 && after.iter().all(|id| late.by_id.contains_key(*id)));
    assert!(late.by_id.len() < rows.by_id.len());
    assert!(late.by_id.iter().all(|(id, row)| rows.by_id.get(id) == Some(row)));
}
