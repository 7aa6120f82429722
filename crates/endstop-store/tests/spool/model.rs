//! Random operations beside a model; crashes of the process and of the machine among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use endstop_store::spool::{Spool, Ticket};

use crate::{asked, copy, ended, open, said, segments, tempdir};

#[derive(Debug, Default)]
struct Model {
    next: u32,
    open: Vec<(String, Option<Ticket>)>,
    ended: Vec<(String, Option<Ticket>, u32)>,
    /// Entries that the store has.
    stored: BTreeSet<(String, u32, String)>,
    /// Entries that it should have in the end.
    written: BTreeSet<(String, u32, String)>,
}

impl Model {
    fn start(&mut self, spool: &Spool) {
        self.next += 1;
        let id = format!("r{}", self.next);
        let ticket = spool.start(&asked(&id));
        self.open.push((id, Some(ticket)));
    }

    fn end(&mut self, spool: &Spool, random: &mut fastrand::Rng) {
        if self.open.is_empty() {
            return;
        }
        let (id, mut ticket) = self.open.swap_remove(random.usize(0..self.open.len()));
        spool.end(ticket.as_mut().unwrap(), &ended(&id));
        self.written.insert((id.clone(), 1, "proven".into()));
        self.ended.push((id, ticket, 1));
    }

    fn amend(&mut self, spool: &Spool, random: &mut fastrand::Rng) {
        if self.ended.is_empty() {
            return;
        }
        let index = random.usize(0..self.ended.len());
        let (id, ticket, sequence) = &mut self.ended[index];
        spool.amend(ticket.as_mut().unwrap(), &ended(id));
        *sequence += 1;
        self.written.insert((id.clone(), *sequence, "proven".into()));
    }

    /// Loads a batch, and acknowledges it or not.
    fn load(&mut self, spool: &Spool, random: &mut fastrand::Rng) {
        let Some(batch) = spool.store().next(random.usize(1..20)) else { return };
        self.stored.extend(said(&batch.entries));
        if random.u8(0..4) > 0 {
            spool.store().ack(batch.upto);
        }
    }

    /// The process died: whatever is open is interrupted.
    fn crash(&mut self) {
        self.ended.clear();
        for (id, _) in self.open.drain(..) {
            self.written.insert((id, 1, "interrupted".into()));
        }
    }
}

#[test]
fn whatever_is_done_the_store_has_it_in_the_end() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::default();
        let mut temp = tempdir();
        let mut spool = open(temp.path()).0;
        for _ in 0..400 {
            match random.u8(0..100) {
                0..35 => model.start(&spool),
                35..65 => model.end(&spool, &mut random),
                65..75 => model.amend(&spool, &mut random),
                75..97 => model.load(&spool, &mut random),
                _ => {
                    // What is in the directory now is what a dead process leaves behind.
                    let copied = tempdir();
                    copy(temp.path(), copied.path());
                    let (again, recovery) = open(copied.path());
                    assert_eq!(recovery.orphans, model.open.len() as u64, "seed {seed}");
                    assert_eq!((recovery.missing, recovery.quarantined, recovery.torn), (0, 0, 0));
                    model.crash();
                    (spool, temp) = (again, copied);
                }
            }
            assert_eq!(spool.status().open, model.open.len() as u64, "seed {seed}");
        }
        while let Some(batch) = spool.store().next(9) {
            model.stored.extend(said(&batch.entries));
            spool.store().ack(batch.upto);
        }
        assert_eq!(model.stored, model.written, "seed {seed}");
        assert_eq!(spool.status().entries, 0);
    }
}

/// What the machine would still have, had it lost its power: all that was synced, and of the rest what
/// chance wants.
fn lose_power(from: &Path, to: &Path, synced: &BTreeMap<String, u64>, random: &mut fastrand::Rng) {
    copy(from, to);
    for path in segments(to) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let kept = synced.get(&name).copied();
        if kept.is_none() && random.bool() {
            fs::remove_file(&path).unwrap();
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        let kept = usize::try_from(kept.unwrap_or(0)).unwrap();
        match random.u8(0..3) {
            0 => bytes.truncate(random.usize(kept..=bytes.len())),
            1 => bytes.iter_mut().skip(kept).for_each(|byte| *byte = 0),
            _ => {
                let from = random.usize(kept..=bytes.len());
                bytes.iter_mut().skip(from).take(300).for_each(|byte| *byte = random.u8(..));
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    match random.u8(0..4) {
        0 => fs::remove_file(to.join("mark")).unwrap_or_default(),
        1 => fs::write(to.join("mark"), [0; 192]).unwrap(),
        _ => {}
    }
}

fn lengths(dir: &Path) -> BTreeMap<String, u64> {
    let files = segments(dir).into_iter();
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, path.metadata().unwrap().len())
        })
        .collect()
}

#[test]
fn a_loss_of_power_costs_at_most_what_was_not_synced() {
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::default();
        let mut temp = tempdir();
        let mut spool = open(temp.path()).0;
        let mut synced = BTreeMap::new();
        // Entries and open responses at the last sync.
        let mut durable = BTreeSet::new();
        let mut begun: Vec<String> = Vec::new();
        for _ in 0..300 {
            match random.u8(0..100) {
                0..35 => model.start(&spool),
                35..65 => model.end(&spool, &mut random),
                65..72 => model.amend(&spool, &mut random),
                72..85 => {
                    let before = lengths(temp.path());
                    model.load(&spool, &mut random);
                    let after = lengths(temp.path());
                    // Before anything is deleted, all is synced.
                    if after != before {
                        synced = after;
                    }
                }
                85..97 => {
                    spool.sync();
                    synced = lengths(temp.path());
                    durable.clone_from(&model.written);
                    begun = model.open.iter().map(|(id, _)| id.clone()).collect();
                }
                _ => {
                    let copied = tempdir();
                    lose_power(temp.path(), copied.path(), &synced, &mut random);
                    let (again, _) = open(copied.path());
                    (spool, temp) = (again, copied);
                    model.crash();
                    model.written.clear();
                    let mut all = model.stored.clone();
                    let batch = spool.store().next(usize::MAX);
                    all.extend(batch.into_iter().flat_map(|batch| said(&batch.entries)));
                    for (id, sequence, closed) in &durable {
                        let has =
                            |closed: &str| all.contains(&(id.clone(), *sequence, closed.into()));
                        assert!(has(closed), "seed {seed}: {id} {sequence} is lost");
                    }
                    for id in &begun {
                        let has = |closed: &str| all.contains(&(id.clone(), 1, closed.into()));
                        assert!(
                            has("proven") || has("interrupted"),
                            "seed {seed}: {id} has no end"
                        );
                    }
                    // What was read since then is what there is.
                    model.written = all;
                    spool.sync();
                    synced = lengths(temp.path());
                    durable.clone_from(&model.written);
                    begun.clear();
                }
            }
        }
    }
}
