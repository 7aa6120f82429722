//! Disks that are full, forbid, or vanish: nothing acknowledged is lost, and the error is said once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use endstop_store::spool::{Options, Refusal, Spool, WhenFull};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kill::{child, dir};
use crate::{asked, drain, ended, open, said, small, tempdir};

fn quick() -> Options {
    Options { sync_every: Duration::from_millis(50), disk_percent: 100, ..small() }
}

/// A mount that is gone after the test; none where this user may not mount.
struct Mount(PathBuf);

impl Mount {
    fn new(at: &Path, args: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount").args(args).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned()));
        }
        // `scripts/test` as root leaves nothing out.
        assert!(!(cfg!(endstop_servers) && rustix::process::geteuid().is_root()), "cannot mount");
        println!("skipped: this user may not mount");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends responses while `broken`, then after it is well again.
fn fails_and_recovers(dir: &Path, spool: &Spool, fail: impl FnOnce(), heal: impl FnOnce()) {
    let mut before = spool.start(&asked("before"));
    assert_eq!(spool.admits(), Ok(()));
    fail();
    spool.end(&mut before, &ended("before"));
    for number in 0..50 {
        let id = format!("during-{number}");
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
    }
    let status = spool.status();
    assert!(status.held > 0, "{status:?}");
    assert_eq!(spool.admits(), Err(Refusal::Failing));
    let error = status.error.unwrap();
    assert!(error.contains("cannot be written"), "{error}");
    // It is tried again and again, and said once.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!((spool.status().episodes, spool.status().lost), (1, 0));
    heal();
    // The disk would take this one at once; it must not overtake those that wait.
    let mut healed = spool.start(&asked("healed"));
    spool.end(&mut healed, &ended("healed"));
    wait_until("all held entries are written", || spool.status().held == 0);
    wait_until("it takes work again", || spool.admits().is_ok());
    assert_eq!((spool.status().error, spool.status().episodes), (None, 1));
    let copied = tempdir();
    crate::copy(dir, copied.path());
    let recovery = open(copied.path()).1;
    assert_eq!((recovery.torn, recovery.quarantined, recovery.orphans), (0, 0, 0));
    let mut after = spool.start(&asked("after"));
    spool.end(&mut after, &ended("after"));
    let ids: Vec<String> = said(&drain(spool)).into_iter().map(|entry| entry.0).collect();
    let during = (0..50).map(|number| format!("during-{number}"));
    let expected: Vec<String> = ["before".to_owned()]
        .into_iter()
        .chain(during)
        .chain(["healed".to_owned(), "after".to_owned()])
        .collect();
    assert_eq!(ids, expected);
    assert_eq!(spool.status().open, 0);
}

#[test]
fn a_full_disk_holds_nothing_up_for_good() {
    let temp = tempdir();
    let Some(_mount) = Mount::new(temp.path(), &["-t", "tmpfs", "-o", "size=256k", "none"]) else {
        return;
    };
    let filler = temp.path().join("filler");
    let (spool, _) = Spool::open(&temp.path().join("spool"), quick()).unwrap();
    fails_and_recovers(
        &temp.path().join("spool"),
        &spool,
        || assert!(fs::write(&filler, vec![1; 1 << 20]).is_err()),
        || fs::remove_file(&filler).unwrap(),
    );
}

#[test]
fn a_full_disk_is_freed_by_loading() {
    let temp = tempdir();
    let Some(_mount) = Mount::new(temp.path(), &["-t", "tmpfs", "-o", "size=256k", "none"]) else {
        return;
    };
    let (spool, _) = Spool::open(&temp.path().join("spool"), quick()).unwrap();
    for number in 0..400 {
        let id = number.to_string();
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
    }
    assert!(spool.status().held > 0);
    let mut loaded = 0;
    wait_until("all is loaded", || {
        loaded += drain(&spool).len();
        spool.status().held == 0 && spool.status().entries == 0
    });
    assert_eq!((loaded, spool.status().lost, spool.admits()), (400, 0, Ok(())));
}

#[test]
fn a_directory_that_vanishes_and_returns() {
    let temp = tempdir();
    let (here, away) = (temp.path().join("spool"), temp.path().join("away"));
    let (spool, _) = Spool::open(&here, quick()).unwrap();
    fails_and_recovers(
        &here,
        &spool,
        || fs::rename(&here, &away).unwrap(),
        || fs::rename(&away, &here).unwrap(),
    );
}

#[test]
fn child_with_a_limit_on_files() {
    let Some(dir) = dir() else { return };
    let (spool, _) = Spool::open(&dir, quick()).unwrap();
    let before = getrlimit(Resource::Fsize);
    let limit = |bytes| {
        let limit = Rlimit { current: bytes, maximum: before.maximum };
        setrlimit(Resource::Fsize, limit).unwrap();
    };
    // Now and then half an entry is written.
    fails_and_recovers(&dir, &spool, || limit(Some(700)), || limit(before.current));
}

#[test]
fn a_limit_on_the_size_of_files_is_like_a_full_disk() {
    let temp = tempdir();
    let child = child("disk::child_with_a_limit_on_files", temp.path());
    // The signal that comes with this limit ends the process unless it is ignored.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(child.get_program());
    shell.args(child.get_args()).envs(child.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let recovery = open(temp.path()).1;
    assert_eq!((recovery.torn, recovery.quarantined, recovery.orphans), (0, 0, 0));
}

#[test]
fn a_read_only_directory_is_refused_at_the_start() {
    let temp = tempdir();
    let dir = temp.path().join("spool");
    fs::create_dir(&dir).unwrap();
    let Some(_mount) = Mount::new(&dir, &["-t", "tmpfs", "-o", "ro", "none"]) else { return };
    let error = Spool::open(&dir, quick()).unwrap_err().to_string();
    assert!(error.contains("spool") && error.contains("Read-only"), "{error}");
}

#[test]
fn over_the_bound_in_memory_entries_are_lost_and_counted() {
    let temp = tempdir();
    let (here, away) = (temp.path().join("spool"), temp.path().join("away"));
    let options = Options { memory_bytes: 2 << 20, ..quick() };
    let (spool, _) = Spool::open(&here, options).unwrap();
    fs::rename(&here, &away).unwrap();
    let wide = endstop::Record { path: "p".repeat(100_000), ..ended("wide") };
    for _ in 0..50 {
        let _ = spool.start(&wide);
    }
    let status = spool.status();
    assert!(status.lost > 20 && status.held + status.lost == 50, "{status:?}");
    assert!(status.bytes < (2 << 20) + (64 << 10));
    assert_eq!(status.episodes, 1);
    fs::rename(&away, &here).unwrap();
    wait_until("it is well again", || spool.admits().is_ok());
    assert_eq!(spool.status().lost, status.lost);
}

fn full(when_full: WhenFull) -> (tempfile::TempDir, Spool) {
    let temp = tempdir();
    let options = Options { bytes: 64 << 10, when_full, ..quick() };
    let spool = Spool::open(temp.path(), options).unwrap().0;
    for number in 0..60 {
        let id = number.to_string();
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
    }
    (temp, spool)
}

#[test]
fn over_its_bound_new_work_is_refused_until_the_store_takes_some() {
    let (_temp, spool) = full(WhenFull::Refuse);
    assert_eq!(spool.admits(), Err(Refusal::Full));
    assert_eq!(spool.status().unrecorded, 0);
    assert_eq!(drain(&spool).len(), 60);
    assert_eq!(spool.admits(), Ok(()));
}

#[test]
fn over_its_bound_new_work_is_forwarded_and_counted() {
    let (_temp, spool) = full(WhenFull::Forward);
    assert_eq!(spool.admits(), Ok(()));
    let unrecorded = spool.status().unrecorded;
    assert!(unrecorded > 0);
    assert!(!spool.start(&asked("more")).is_recorded());
    assert_eq!(drain(&spool).len() as u64, 60 - unrecorded);
    let mut ticket = spool.start(&asked("more"));
    assert!(ticket.is_recorded());
    spool.end(&mut ticket, &ended("more"));
    assert_eq!((drain(&spool).len(), spool.status().unrecorded), (1, unrecorded + 1));
}

#[test]
fn only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempdir();
    let dir = temp.path().join("a/spool");
    let (spool, _) = open(&dir);
    let _ = spool.start(&asked("a"));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in fs::read_dir(&dir).unwrap().flatten() {
        let expected = if file.path().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&file.path()), expected, "{file:?}");
    }
}
