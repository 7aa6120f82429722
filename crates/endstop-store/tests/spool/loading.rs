//! The loader: a store that is down, refuses, dies after its commit; age; the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use endstop_store::loader::{Loader, Options};
use endstop_store::spool::Spool;

use crate::fake::{Fake, Mood};
use crate::{asked, ended, open, tempdir};

const LONG: Duration = Duration::from_secs(60);

fn quick() -> Options {
    Options {
        batch: 10,
        linger: Duration::from_millis(2),
        pause: Duration::from_millis(2),
        longest_pause: Duration::from_millis(20),
        refused_pause: Duration::from_millis(30),
        ..Options::default()
    }
}

struct Setup {
    temp: tempfile::TempDir,
    spool: Arc<Spool>,
    fake: Fake,
    loader: Loader,
}

fn setup(mood: Mood, options: Options) -> Setup {
    let temp = tempdir();
    let spool = Arc::new(open(temp.path()).0);
    let fake = Fake::default();
    fake.set(mood);
    let opening = fake.clone();
    let loader = Loader::spawn(spool.store(), move || opening.open(), options).unwrap();
    Setup { temp, spool, fake, loader }
}

fn write(spool: &Spool, ids: std::ops::Range<u32>) {
    for id in ids.map(|id| id.to_string()) {
        let mut ticket = spool.start(&asked(&id));
        spool.end(&mut ticket, &ended(&id));
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_written_is_loaded_once() {
    let Setup { spool, fake, loader, temp: _temp } = setup(Mood::Well, quick());
    write(&spool, 0..95);
    assert!(loader.wait_until_loaded(LONG));
    let status = loader.status();
    assert_eq!((status.loaded, status.lag_entries, status.lag_bytes), (95, 0, 0));
    assert!(status.connected && status.last_error.is_none());
    assert_eq!(fake.rows().seen.len(), 95);
    assert!(fake.rows().seen.values().all(|count| *count == 1));
    assert_eq!(fake.rows().opened, 1);
    assert_eq!(fake.rows().migrated, 1);
    assert!(loader.stop(LONG));
}

#[test]
fn a_store_that_is_down_is_waited_for() {
    for mood in [Mood::Down, Mood::Refusing, Mood::Panicking] {
        let Setup { spool, fake, loader, temp: _temp } = setup(mood, quick());
        write(&spool, 0..30);
        wait_until("it is tried again", || fake.rows().opened > 3);
        let status = loader.status();
        assert_eq!((status.loaded, status.lag_entries, status.connected), (0, 30, false));
        assert_eq!(status.episodes, 1, "said once: {status:?}");
        assert!(status.last_error.is_some());
        assert!(!loader.wait_until_loaded(Duration::from_millis(10)));
        fake.set(Mood::Well);
        assert!(loader.wait_until_loaded(LONG));
        wait_until("it is well", || loader.status().last_error.is_none());
        assert_eq!((fake.rows().seen.len(), loader.status().loaded), (30, 30));
    }
}

#[test]
fn a_store_that_goes_down_between_batches() {
    let Setup { spool, fake, loader, temp: _temp } = setup(Mood::Well, quick());
    for round in 0..10 {
        fake.set(if round % 2 == 0 { Mood::Down } else { Mood::Well });
        write(&spool, round * 20..round * 20 + 20);
        std::thread::sleep(Duration::from_millis(3));
    }
    fake.set(Mood::Well);
    assert!(loader.wait_until_loaded(LONG));
    assert_eq!(fake.rows().seen.len(), 200);
}

#[test]
fn a_batch_whose_acknowledgement_was_lost_comes_again() {
    let Setup { spool, fake, loader, temp } = setup(Mood::CommitsAndDies, quick());
    write(&spool, 0..10);
    wait_until("it is committed", || fake.rows().calls > 2);
    assert_eq!(loader.status().lag_entries, 10);
    // And after a restart.
    assert!(!loader.stop(Duration::from_millis(5)));
    drop(spool);
    wait_until("the loader is gone", || Spool::open(temp.path(), crate::small()).is_ok());
    fake.set(Mood::Well);
    let spool = Arc::new(open(temp.path()).0);
    let opening = fake.clone();
    let loader = Loader::spawn(spool.store(), move || opening.open(), quick()).unwrap();
    assert!(loader.wait_until_loaded(LONG));
    assert_eq!(fake.rows().seen.len(), 10);
    assert!(fake.rows().seen.values().all(|count| *count > 2));
}

#[test]
fn what_the_store_refuses_one_by_one_is_kept_apart() {
    let Setup { spool, fake, loader, temp } = setup(Mood::Down, quick());
    fake.rows().poison.insert("7".into());
    fake.set(Mood::Well);
    write(&spool, 0..20);
    assert!(loader.wait_until_loaded(LONG));
    let status = loader.status();
    assert_eq!((status.loaded, status.refused, spool.status().quarantined), (19, 1, 1));
    let kept = std::fs::read_to_string(temp.path().join("quarantine/refused.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 1);
    assert!(kept.contains(r#""id":"7""#) && kept.contains(r#""why":"poison""#), "{kept}");
}

#[test]
fn old_rows_are_deleted_in_bounded_batches() {
    let keep = Duration::from_secs(86_400);
    let options = Options { keep: Some(keep), ..quick() };
    let temp = tempdir();
    let spool = Arc::new(open(temp.path()).0);
    let fake = Fake::default();
    fake.rows().old = 2500;
    let opening = fake.clone();
    let loader = Loader::spawn(spool.store(), move || opening.open(), options).unwrap();
    wait_until("old rows are gone", || loader.status().forgotten == 2500);
    std::thread::sleep(Duration::from_millis(20));
    let rows = fake.rows();
    assert_eq!(rows.forgets.len(), 3, "once an hour: {:?}", rows.forgets);
    assert!(rows.forgets.iter().all(|(before, most)| *before > 1_600_000_000_000 && *most <= 1000));
}

#[test]
fn at_the_end_what_waits_is_loaded() {
    let options = Options { linger: 10 * LONG, batch: 1000, ..quick() };
    let Setup { spool, fake, loader, temp: _temp } = setup(Mood::Well, options);
    std::thread::sleep(Duration::from_millis(20));
    write(&spool, 0..100);
    assert!(loader.stop(LONG), "it waited for more entries");
    assert_eq!(fake.rows().seen.len(), 100);
}

#[test]
fn the_end_does_not_wait_longer_than_it_was_told() {
    let Setup { spool, loader, temp: _temp, fake: _ } = setup(Mood::Down, quick());
    write(&spool, 0..10);
    let began = Instant::now();
    assert!(!loader.stop(Duration::from_millis(50)));
    assert!(began.elapsed() < LONG);
    assert_eq!(spool.status().entries, 10);
}
