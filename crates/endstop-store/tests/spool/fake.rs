//! A store that fails when it is told to. What stores do when all is well is tested on real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use endstop_store::{Entry, Error, Loaded, Sink};

/// How it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Cannot be reached.
    Down,
    /// Will not take anything.
    Refusing,
    /// Commits, and the answer is lost.
    CommitsAndDies,
    Panicking,
}

#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) mood: Mood,
    /// How often each entry came.
    pub(crate) seen: BTreeMap<(String, u32), u32>,
    /// How each ended, by its newest entry.
    pub(crate) closed: BTreeMap<String, String>,
    /// Ids that are never taken.
    pub(crate) poison: BTreeSet<String>,
    pub(crate) opened: u32,
    pub(crate) migrated: u32,
    pub(crate) calls: u32,
    pub(crate) forgets: Vec<(u64, usize)>,
    /// Rows that are old.
    pub(crate) old: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Fake(Arc<Mutex<Rows>>);

impl Fake {
    pub(crate) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.rows().mood = mood;
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Sink>, Error> {
        let mut rows = self.rows();
        rows.opened += 1;
        match rows.mood {
            Mood::Down => Err(down()),
            Mood::Well | Mood::Refusing | Mood::CommitsAndDies | Mood::Panicking => {
                Ok(Box::new(self.clone()))
            }
        }
    }
}

fn down() -> Error {
    Error::Unavailable { store: "fake".into(), why: "told to".into() }
}

impl Sink for Fake {
    fn migrate(&mut self) -> Result<Vec<String>, Error> {
        self.rows().migrated += 1;
        Ok(Vec::new())
    }

    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error> {
        let mut rows = self.rows();
        rows.calls += 1;
        match rows.mood {
            Mood::Down => return Err(down()),
            Mood::Refusing => {
                return Err(Error::Refused { store: "fake".into(), why: "told to".into() });
            }
            Mood::Panicking => panic!("told to"),
            Mood::Well | Mood::CommitsAndDies => {}
        }
        let mut loaded = Loaded::default();
        for (index, entry) in entries.iter().enumerate() {
            let id = &entry.record.id;
            if rows.poison.contains(id) {
                loaded.refused.push((index, "poison".into()));
                continue;
            }
            *rows.seen.entry((id.clone(), entry.sequence)).or_default() += 1;
            rows.closed.insert(id.clone(), entry.record.closed.clone().into());
            loaded.added += 1;
        }
        if rows.mood == Mood::CommitsAndDies { Err(down()) } else { Ok(loaded) }
    }

    fn forget(&mut self, before: u64, most: usize) -> Result<u64, Error> {
        let mut rows = self.rows();
        rows.forgets.push((before, most));
        let gone = rows.old.min(most as u64);
        rows.old -= gone;
        Ok(gone)
    }
}
