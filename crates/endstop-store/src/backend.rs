//! What a store must be able to do. One file each does it: `sqlite.rs`, `postgres.rs`.

use endstop::Record;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::query::{Period, Query, Report, Wanted, WordSeen};

/// Something that was noted about a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Which note on this id it is, from 0. A row takes an entry in only if it has none of this
    /// sequence or a later one.
    pub sequence: u32,
    /// All that is known by then.
    pub record: Record,
}

/// What became of a batch.
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

/// A store. Calls block; each owner has a thread for it.
pub trait Backend: Send {
    /// Brings the tables up to date; safe to run twice, and by two processes at once. Gives the names
    /// of the migrations that were applied.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn migrate(&mut self) -> Result<Vec<String>, Error>;

    /// Checks that the store can be reached and read. Tables need not be there.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn ping(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Takes a batch in: rows, rollup and words in one transaction, so that an error leaves nothing
    /// behind. Entries that can never be taken do not hold up the others: where there is one, the batch
    /// is taken in by parts.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error>;

    /// Sums over a period, from the rollup.
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

    /// The providers' own words that were seen in a period, the newest first.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn words(&mut self, period: Period, limit: usize) -> Result<Vec<WordSeen>, Error>;

    /// Deletes rows that were made before this time, at most so many; the rollup keeps its sums.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn forget(&mut self, before: u64, most: usize) -> Result<u64, Error>;

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

    /// Writes new verdicts over rows, keeping what was said first and moving the rollup with them. Rows
    /// that have changed since, or that newer rules have judged, stay as they are.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    fn rejudge(&mut self, rows: &[Stored]) -> Result<u64, Error>;
}
