//! The seam for everything that wants endings: a [`Sink`] takes batches, a [`Store`] can also be asked.

use std::time::Duration;

use endstop::Record;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::query::{Filter, Period, Query, Report, Wanted, WordSeen};

/// Something that was noted about a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Number of the note on this id, from 0. A row takes an entry in only if it has none of this
    /// sequence or a later one.
    pub sequence: u32,
    /// All that is known by then.
    pub record: Record,
}

/// Result of loading a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// New rows.
    pub added: u64,
    /// Rows that say more now.
    pub amended: u64,
    /// Entries that were known already.
    pub known: u64,
    /// Entries that the store will never take: where each stood in the batch, and why. The others are
    /// in.
    pub refused: Vec<(usize, String)>,
}

/// A row as it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The record.
    #[serde(flatten)]
    pub record: Record,
    /// The sequence of its newest entry.
    pub sequence: u32,
    /// The reason that was said of it before it was judged again.
    pub previous_reason: Option<String>,
    /// The finish reason that was said of it by then.
    pub previous_finish_reason: Option<String>,
    /// The version of the rules that said so.
    pub previous_rules: Option<u32>,
}

/// Sizes and times that suit a sink. A loader that is told less takes these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Entries in a batch, at most.
    pub batch: usize,
    /// Longest time that a batch may gather.
    pub linger: Duration,
    /// Rows that are deleted at once, at most.
    pub forget: usize,
}

/// Takes endings. Calls block; each sink has a thread of its own.
///
/// A batch comes again until it is taken, and may come again after that: a sink knows an [`Entry`] by its
/// id and sequence, or hands both on to whoever does.
pub trait Sink: Send {
    /// Brings the sink up to date; safe to run twice, and by two processes at once. Returns the names of
    /// the migrations that were applied.
    ///
    /// # Errors
    /// The sink cannot be reached or refuses.
    fn migrate(&mut self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Returns the sizes and times that suit it.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// Takes a batch in, whole or not at all. Entries that can never be taken do not hold up the others.
    ///
    /// # Errors
    /// The sink cannot be reached or refuses. Nothing of the batch is taken then, or all of it may come
    /// again.
    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error>;

    /// Does what need not be done with each batch. It is called about once a second. Returns whether there
    /// is more to do.
    ///
    /// # Errors
    /// The sink cannot be reached or refuses.
    fn tend(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Deletes rows that were made before this time, at most so many, and returns how many. Sums stay.
    ///
    /// # Errors
    /// The sink cannot be reached or refuses.
    fn forget(&mut self, before: u64, most: usize) -> Result<u64, Error> {
        let _ = (before, most);
        Ok(0)
    }
}

/// A sink that can be asked about the endings that it took.
pub trait Store: Sink {
    /// Checks that the store can be reached and read. Tables need not be there.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn ping(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Sums over a period.
    ///
    /// # Errors
    /// The store cannot be reached or refuses, or this cannot be asked.
    fn report(&mut self, query: &Query) -> Result<Report, Error>;

    /// Rows, the newest first.
    ///
    /// # Errors
    /// The store cannot be reached or refuses, or this cannot be asked.
    fn endings(&mut self, wanted: &Wanted) -> Result<Vec<Stored>, Error>;

    /// The row of this id, or of the one id that begins like this.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn ending(&mut self, id: &str) -> Result<Option<Stored>, Error>;

    /// The responses of one turn, in order.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn turn(&mut self, turn_id: &str) -> Result<Vec<Stored>, Error>;

    /// The providers' own words of the responses of a period, counted like a report; those that were first seen
    /// last come first.
    ///
    /// # Errors
    /// The store cannot be reached or refuses, or this cannot be asked.
    fn words(
        &mut self,
        filter: &Filter,
        period: Period,
        limit: usize,
    ) -> Result<Vec<WordSeen>, Error>;

    /// Own rows that older rules judged, after this id, in the order of ids, for judging them again.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn judged_otherwise(
        &mut self,
        rules: &[u32],
        after: &str,
        most: usize,
    ) -> Result<Vec<Stored>, Error>;

    /// Writes new verdicts over rows, keeping what was said first and moving the sums with them. Rows
    /// that have changed since, or that newer rules have judged, stay as they are.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn rejudge(&mut self, rows: &[Stored]) -> Result<u64, Error>;
}
