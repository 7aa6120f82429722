//! Adopts rows that others wrote into our table, so that reports count them.

use rusqlite::Connection;
use rusqlite::types::Value;

use super::write::{Text, note};
use super::{cells, flavor};
use crate::backfill::Judged;
use crate::changes::Gathering;
use crate::columns::{Row, stored};
use crate::load::ADOPTED;
use crate::series::Known;
use crate::sink::Stored;

/// A row that was found, with the word that it should have.
pub(crate) struct Found<'a> {
    pub(crate) key: Value,
    /// The provider's finish reason by which it was judged.
    pub(crate) native: Option<&'a str>,
    pub(crate) judged: &'a Judged,
}

/// The statements, made once.
pub(crate) struct Adopting {
    text: Text,
    select: String,
    update: String,
}

impl Adopting {
    /// Prepares to adopt rows that are told apart by this column, quoted.
    pub(crate) fn new(id: &str) -> Self {
        let fits = format!("{id} = ?1 AND native_finish_reason IS ?2 AND rules IS NULL");
        Self {
            text: Text::new(),
            select: format!(
                "SELECT {}, sequence IS NULL FROM gateway_requests WHERE {fits} AND \
                 (sequence IS NULL OR finish_reason IS NOT ?3 OR reason IS NOT ?4)",
                flavor().columns()
            ),
            update: format!(
                "UPDATE gateway_requests SET finish_reason = ?3, reason = ?4, \
                 provider = coalesce(provider, ?5), upstream = coalesce(upstream, ''), \
                 sequence = {ADOPTED} WHERE {fits} RETURNING {}",
                flavor().columns()
            ),
        }
    }

    /// Writes words over rows that still say what was read, and counts the rows in the sums. Returns how
    /// many were not counted before.
    pub(crate) fn adopt<'a>(
        &self,
        connection: &Connection,
        rows: impl Iterator<Item = Found<'a>>,
    ) -> rusqlite::Result<u64> {
        let (mut olds, mut news): (Vec<Stored>, Vec<Stored>) = Default::default();
        let mut adopted = 0;
        for Found { key, native, judged } in rows {
            let reason = judged.reason.name();
            let mut select = connection.prepare_cached(&self.select)?;
            let mut found = select.query((&key, native, judged.to, reason))?;
            let Some(mut old) = found.next()?.map(cells).transpose()? else { continue };
            let is_new = old.pop().and_then(|is_new| is_new.as_int()) == Some(1);
            adopted += u64::from(is_new);
            olds.extend((!is_new).then(|| stored(old)));
            let mut update = connection.prepare_cached(&self.update)?;
            let mut written = update.query((&key, native, judged.to, reason, &judged.provider))?;
            while let Some(row) = written.next()? {
                news.push(stored(cells(row)?));
            }
        }
        let mut changes = Gathering::default();
        olds.iter().for_each(|old| changes.take(&Row::from(old)));
        news.iter().for_each(|new| changes.add(&Row::from(new)));
        note(connection, &self.text, &Known::default(), &changes.changes())?;
        Ok(adopted)
    }
}
