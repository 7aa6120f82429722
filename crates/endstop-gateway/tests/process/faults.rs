//! Rows 39 and 44 to 48: a disk that is full, a directory that cannot be written, a file that is locked,
//! a database that is down, and a gateway that is told to end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endstop_sim::{Options, Sim};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::child::{EVER, Listening, Process, config};
use crate::client::End;
use crate::load::{Ask, Seen, all, postgres_rows, sqlite_rows};
use crate::places::Postgres;

/// A gateway, its upstream, and a SQLite file.
struct Field {
    temp: tempfile::TempDir,
    sim: Sim,
    config: PathBuf,
    database: PathBuf,
}

impl Field {
    async fn new(more: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let pace = Duration::from_millis(5);
        let sim = Sim::start(Options { pace, ..Options::default() }).await.unwrap();
        let database = temp.path().join("e.db");
        let store = format!("sqlite:{}", database.display());
        let config = config(temp.path(), &sim.url(), &store, more);
        Self { temp, sim, config, database }
    }
}

/// Asks this, so many at once.
fn ask(to: &Listening, ask: &Ask, count: usize) -> Vec<JoinHandle<(Ask, crate::client::Response)>> {
    let to = to.address;
    let one = || {
        let ask = ask.clone();
        tokio::spawn(async move {
            let response = ask.ask(to).await.unwrap();
            (ask, response)
        })
    };
    (0..count).map(|_| one()).collect()
}

/// Asks one after the other, and notes what comes, until it is told to end.
fn keep_asking(to: &Listening, seen: &Arc<Mutex<Seen>>, over: &Arc<Mutex<bool>>) -> JoinHandle<()> {
    let (to, seen, over) = (to.address, seen.clone(), over.clone());
    tokio::spawn(async move {
        for ask in all().into_iter().cycle() {
            if *over.lock().unwrap() {
                return;
            }
            let response = ask.ask(to).await.unwrap();
            seen.lock().unwrap().note(ask, &response);
        }
    })
}

/// Whatever is done to its disk: streams under way end well, new requests are refused and it is said why,
/// and when it is well again all is recorded.
async fn disk_fails_and_heals(
    field: Field,
    process: Process,
    listening: Listening,
    fail: impl FnOnce(&Process),
    heal: impl FnOnce(&Process),
) {
    let mut seen = Seen::default();
    let complete = Ask::new("openai-chat", "complete");
    let first = complete.ask(listening.address).await.unwrap();
    seen.note(complete.clone(), &first);
    let live = ask(&listening, &complete, 8);
    let begun = || field.sim.ledger().len() == 9;
    wait_until("all are under way", begun).await;
    assert_eq!(listening.ready().await.0, 200);
    fail(&process);
    for one in live {
        let (asked, response) = one.await.unwrap();
        assert_eq!((response.status, response.end), (200, End::Clean), "live streams end well");
        seen.note(asked, &response);
    }
    let ready = listening.until("it is not ready", |status, _| status == 503).await;
    assert_eq!(ready["ready"], false);
    assert_eq!(ready["why"], "endings cannot be recorded");
    assert!(ready["recording"]["spool"]["error"].is_string(), "{ready}");
    for _ in 0..5 {
        let refused = complete.ask(listening.address).await.unwrap();
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.text().contains("endstop_cannot_record"), "{}", refused.text());
        seen.note(complete.clone(), &refused);
    }
    assert_eq!(seen.refused[&503], 5);
    wait_until("it is said", || process.said_times("endings cannot be recorded: ") > 0).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(process.said_times("endings cannot be recorded: "), 1, "{}", process.said());
    heal(&process);
    let ready = listening.until("it is ready again", |status, _| status == 200).await;
    assert_eq!(ready["recording"]["spool"]["lost"], 0);
    wait_until("it is said", || process.said_times("endings are recorded again") == 1).await;
    let after = complete.ask(listening.address).await.unwrap();
    assert_eq!((after.status, after.end), (200, End::Clean));
    seen.note(complete, &after);
    listening.loaded().await;
    assert_eq!(process.said_times("endings cannot be recorded: "), 1, "{}", process.said());
    process.stop();
    let rows = sqlite_rows(&field.database);
    rows.check(&seen);
    assert_eq!((rows.by_id.len(), rows.interrupted()), (10, 0));
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + EVER;
    while !is_so() {
        assert!(tokio::time::Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn row_45_files_cannot_be_written() {
    // It is said on standard error even if endings are not logged.
    let field = Field::new("log = 'off'").await;
    let process = Process::start(&field.config);
    let listening = process.listening();
    let (fail, heal) = (
        |process: &Process| process.limit_files(Some(0)),
        |process: &Process| process.limit_files(None),
    );
    disk_fails_and_heals(field, process, listening, fail, heal).await;
}

/// A small disk that is gone after the test; none where this user may not mount.
struct Disk(PathBuf);

impl Disk {
    fn new(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let args = ["-t", "tmpfs", "-o", "size=16m", "none"];
        let mounted = Command::new("mount").args(args).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned()));
        }
        // `scripts/test` as root leaves nothing out.
        assert!(!(cfg!(endstop_servers) && rustix::process::geteuid().is_root()), "cannot mount");
        println!("skipped: this user may not mount");
        None
    }

    fn fill(&self) {
        let filler = fs::File::create(self.0.join("filler")).unwrap();
        let mut size = 1 << 20;
        while size > 0 {
            use std::io::Write as _;
            if (&filler).write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn row_44_the_disk_is_full() {
    let field = Field::new("log = 'off'").await;
    let Some(disk) = Disk::new(&field.temp.path().join("data")) else { return };
    let process = Process::start(&field.config);
    let listening = process.listening();
    disk_fails_and_heals(field, process, listening, |_| disk.fill(), |_| disk.empty()).await;
}

#[tokio::test]
async fn row_44_what_cannot_be_recorded_passes_where_that_is_wanted() {
    let field = Field::new("[record]\nwhen_full = 'forward'").await;
    let process = Process::start(&field.config);
    let listening = process.listening();
    let mut seen = Seen::default();
    let complete = Ask::new("openai-chat", "complete");
    let live = ask(&listening, &complete, 2);
    wait_until("both are under way", || field.sim.ledger().len() == 2).await;
    process.limit_files(Some(0));
    for one in live {
        let (asked, response) = one.await.unwrap();
        assert_eq!((response.status, response.end), (200, End::Clean));
        seen.note(asked, &response);
    }
    let failing = |ready: &Value| ready["recording"]["spool"]["error"].is_string();
    listening.until("it is shown", |_, ready| failing(ready)).await;
    for one in ask(&listening, &complete, 5) {
        let (_, response) = one.await.unwrap();
        assert_eq!((response.status, response.end), (200, End::Clean));
    }
    let (status, ready) = listening.ready().await;
    assert_eq!(status, 200, "requests are taken: {ready}");
    assert_eq!(ready["recording"]["spool"]["unrecorded"], 5, "{ready}");
    wait_until("it is said", || process.said_times("endings cannot be recorded: ") == 1).await;
    process.limit_files(None);
    wait_until("it is said", || process.said_times("5 went unrecorded") == 1).await;
    let (asked, after) = ask(&listening, &complete, 1).remove(0).await.unwrap();
    seen.note(asked, &after);
    listening.loaded().await;
    process.stop();
    let rows = sqlite_rows(&field.database);
    rows.check(&seen);
    assert_eq!((rows.by_id.len(), rows.interrupted()), (3, 0));
}

#[tokio::test]
async fn row_45_a_directory_that_cannot_be_used_is_said_at_the_start() {
    let field = Field::new("").await;
    // Root may write anywhere but not below a file.
    fs::write(field.temp.path().join("data"), "").unwrap();
    let mut process = Process::start(&field.config);
    assert_eq!(process.ended().code(), Some(1));
    wait_until("it is said", || process.said().contains("data")).await;

    let field = Field::new("").await;
    let data = field.temp.path().join("data");
    let Some(_disk) = Disk::new(&data) else { return };
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&data).status();
    assert!(remount.unwrap().success());
    let mut process = Process::start(&field.config);
    assert_eq!(process.ended().code(), Some(1));
    let path = data.display().to_string();
    wait_until("it is said", || process.said().contains(&path)).await;
    assert!(process.said().contains("Read-only file system"), "{}", process.said());
}

#[tokio::test]
async fn row_47_a_locked_file_is_waited_for() {
    let field = Field::new("").await;
    let process = Process::start(&field.config);
    let listening = process.listening();
    let (seen, over) = <(Arc<Mutex<Seen>>, Arc<Mutex<bool>>)>::default();
    let asking: Vec<_> = (0..4).map(|_| keep_asking(&listening, &seen, &over)).collect();
    let asked = || seen.lock().unwrap().asked;
    wait_until("they ask", || asked() > 20).await;
    let lock = || {
        let other = rusqlite::Connection::open(&field.database).unwrap();
        other.busy_timeout(EVER).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        other
    };
    let other = lock();
    let before = asked();
    let said = || process.said_times("; endings wait in the spool") == 1;
    wait_until("the loader gives up for now", said).await;
    let (status, ready) = listening.ready().await;
    assert_eq!(status, 200);
    assert!(ready["recording"]["loader"]["last_error"].is_string(), "{ready}");
    wait_until("clients go on", || asked() > before + 20).await;
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    *over.lock().unwrap() = true;
    for one in asking {
        one.await.unwrap();
    }
    listening.loaded().await;
    wait_until("it is said", || process.said_times("the store takes endings again") == 1).await;
    assert_eq!(process.said_times("; endings wait in the spool"), 1, "{}", process.said());
    process.stop();

    // One that is locked at the start is no reason not to.
    let other = lock();
    let process = Process::start(&field.config);
    let listening = process.listening();
    let complete = Ask::new("anthropic", "complete");
    let response = complete.ask(listening.address).await.unwrap();
    seen.lock().unwrap().note(complete, &response);
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    listening.loaded().await;
    process.stop();
    let rows = sqlite_rows(&field.database);
    rows.check(&seen.lock().unwrap());
    assert_eq!(rows.interrupted(), 0);
}

/// Two gateways, each with its own directory, and one database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
async fn row_48_postgres_stops_and_starts_again() {
    let server = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
    let server = Arc::new(server);
    let of = server.clone();
    let url = tokio::task::spawn_blocking(move || of.database()).await.unwrap();
    let sim = Sim::start(Options::default()).await.unwrap();
    let temps = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let files = temps.each_ref().map(|temp| config(temp.path(), &sim.url(), &url, "log = 'human'"));
    let processes = files.each_ref().map(|file| Process::start(file));
    let listening = processes.each_ref().map(Process::listening);
    let (seen, over) = <(Arc<Mutex<Seen>>, Arc<Mutex<bool>>)>::default();
    let asking: Vec<_> = listening
        .iter()
        .flat_map(|to| [keep_asking(to, &seen, &over), keep_asking(to, &seen, &over)])
        .collect();
    let asked = || seen.lock().unwrap().asked;
    for round in 0..3 {
        let before = asked();
        wait_until("they ask", || asked() > before + 100).await;
        let of = server.clone();
        tokio::task::spawn_blocking(move || of.stop()).await.unwrap();
        let before = asked();
        wait_until("clients do not notice", || asked() > before + 100).await;
        if round == 2 {
            for to in &listening {
                let down = |ready: &Value| ready["recording"]["loader"]["last_error"].is_string();
                to.until("it is shown", |status, ready| status == 200 && down(ready)).await;
            }
            let told = || processes.iter().all(|p| p.said_times("; endings wait in the spool") > 0);
            wait_until("it is said", told).await;
        }
        let of = server.clone();
        tokio::task::spawn_blocking(move || of.run()).await.unwrap();
    }
    let before = asked();
    wait_until("they ask", || asked() > before + 100).await;
    *over.lock().unwrap() = true;
    for one in asking {
        one.await.unwrap();
    }
    for to in &listening {
        let ready = to.loaded().await;
        assert_eq!(ready["recording"]["spool"]["lost"], 0);
        assert_eq!(ready["recording"]["loader"]["refused"], 0);
    }
    for process in processes {
        assert!(process.said_times("; endings wait in the spool") <= 3, "{}", process.said());
        process.stop();
    }
    let rows = tokio::task::spawn_blocking(move || postgres_rows(&url)).await.unwrap();
    let seen = seen.lock().unwrap();
    rows.check(&seen);
    assert_eq!((rows.by_id.len() as u64, rows.interrupted()), (seen.asked, 0));
    println!("{} rows of two gateways through three outages", rows.by_id.len());
}

#[tokio::test]
async fn row_39_what_drains_is_in_the_store_when_the_process_has_ended() {
    let field = Field::new("[limits]\ndrain = '4s'").await;
    let mut process = Process::start(&field.config);
    let listening = process.listening();
    let mut seen = Seen::default();
    let complete = Ask::new("openai-chat", "complete");
    let stalled = Ask::new("anthropic", "stall").ending("cancelled");
    let (live, stuck) = (ask(&listening, &complete, 20), ask(&listening, &stalled, 5));
    wait_until("all are under way", || field.sim.ledger().len() == 25).await;
    process.terminate();
    for one in live.into_iter().chain(stuck) {
        let (asked, response) = one.await.unwrap();
        // Clients of this wire raise on its error, so that a clean end may follow it.
        let error = response.text().contains("event: error");
        let well = response.end == End::Clean && !error;
        assert_eq!(well, asked.reason == "complete", "{asked:?} {response:?}");
        assert!(asked.is_seen(&response), "{asked:?} {response:?}");
        seen.note(asked, &response);
    }
    assert!(process.ended().success(), "{}", process.said());
    let rows = sqlite_rows(&field.database);
    assert_eq!(rows.by_id.len(), 25);
    rows.check(&seen);
    let shut = rows.by_id.values().filter(|row| row.cause == "gateway_shutdown").count();
    assert_eq!((shut, rows.interrupted()), (5, 0), "{:?}", rows.by_id.values());
}

/// A pipe holds 64 KiB: with a log that is written while a response waits, the gateway stops here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_stops_nothing() {
    let field = Field::new("log = 'json'").await;
    let process = Process::start_unread(&field.config);
    let listening = process.listening();
    let ask = Ask::plain("openai-chat", "complete");
    for _ in 0..600 {
        let answer = tokio::time::timeout(EVER, ask.ask(listening.address)).await;
        let response = answer.unwrap_or_else(|_| panic!("the gateway stopped answering")).unwrap();
        assert_eq!((response.status, response.end), (200, End::Clean));
    }
    assert_eq!(listening.ready().await.0, 200);
    process.kill();
}
