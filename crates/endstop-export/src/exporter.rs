//! The seam for exporters that send records: batches in, refusals out.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use endstop::Record;
use zeroize::Zeroizing;

use crate::axiom::Axiom;
use crate::error::{Error, wrong};
use crate::otlp::Otlp;
use crate::{Metrics, otlp};
use std::sync::Arc;

/// What is known about a response, and the number of times that it was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted<'r> {
    /// The record.
    pub record: &'r Record,
    /// Number of the note. A later one replaces an earlier one of the same id.
    pub sequence: u32,
}

/// Sends records. Calls block.
pub trait Exporter: Send {
    /// Sends records, all or none of them, and returns those that will never be taken: where each stood, and why.
    ///
    /// # Errors
    /// The endpoint cannot be reached or refuses. The same records may be sent again.
    fn send(&mut self, records: &[Noted<'_>]) -> Result<Vec<(usize, String)>, Error>;

    /// Sends what is not a record. It is called about once a second.
    ///
    /// # Errors
    /// The endpoint cannot be reached or refuses.
    fn tend(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Kinds of exporters: how their addresses begin.
const KINDS: [&str; 2] = ["axiom:", "otlp:"];

/// Reports whether an address is one of an exporter.
#[must_use]
pub fn is_exporter(address: &str) -> bool {
    KINDS.iter().any(|kind| address.starts_with(kind))
}

/// Opens an exporter: `axiom:DATASET`, `axiom:https://HOST/DATASET`, `otlp:` or `otlp:https://HOST`. Nothing is sent
/// yet. Settings that the address does not have come from the environment.
///
/// # Errors
/// The address or a setting is wrong.
pub fn open(
    address: &str,
    token: Option<Zeroizing<String>>,
    metrics: Option<Arc<Metrics>>,
) -> Result<Box<dyn Exporter>, Error> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    if let Some(place) = address.strip_prefix("axiom:") {
        return Ok(Box::new(Axiom::new(place, token, &variable)?));
    }
    if let Some(place) = address.strip_prefix("otlp:") {
        return Ok(Box::new(Otlp::new(otlp::Options::read(place, token, &variable)?, metrics)?));
    }
    Err(wrong("url", "unsupported exporter: expected `axiom:` or `otlp:`"))
}

/// Waits that an endpoint asked for.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<(Instant, String)>);

impl Patience {
    /// Refuses to send while the endpoint asked to wait.
    pub(crate) fn check(&self, exporter: &str) -> Result<(), Error> {
        match &self.0 {
            Some((until, why)) if Instant::now() < *until => {
                let wait = Some(until.saturating_duration_since(Instant::now()));
                Err(Error::Unavailable { exporter: exporter.to_owned(), why: why.clone(), wait })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Remembers for how long an endpoint asked to wait.
    pub(crate) fn note(&mut self, error: &Error) {
        if let Error::Unavailable { why, wait: Some(wait), .. } = error {
            self.0 = Some((Instant::now() + *wait, why.clone()));
        }
    }
}

/// Returns the newest note of each id, with the place where it stood, in order.
pub(crate) fn newest<'n, 'r>(records: &'n [Noted<'r>]) -> Vec<(usize, &'n Noted<'r>)> {
    let mut last: HashMap<&str, u32> = HashMap::new();
    for noted in records {
        let sequence = last.entry(&noted.record.id).or_default();
        *sequence = noted.sequence.max(*sequence);
    }
    // An entry that comes twice is sent once.
    let mut is_newest = |noted: &Noted<'_>| {
        last.get(&*noted.record.id) == Some(&noted.sequence)
            && last.remove(&*noted.record.id).is_some()
    };
    records.iter().enumerate().filter(|(_, noted)| is_newest(noted)).collect()
}

/// Reads a secret from a file.
///
/// # Errors
/// The file cannot be read, or is empty.
pub fn secret_from_file(name: &str, file: &Path) -> Result<Zeroizing<String>, Error> {
    let text = std::fs::read_to_string(file).map(Zeroizing::new);
    let text =
        text.map_err(|error| wrong(name, format!("cannot read {}: {error}", file.display())))?;
    if text.trim().is_empty() {
        return Err(wrong(name, format!("{} is empty", file.display())));
    }
    Ok(Zeroizing::new(text.trim().to_owned()))
}

/// The longest that one request may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_note_of_an_id_is_sent_and_once() {
        let record = |id: &str| Record { id: id.to_owned(), ..Record::default() };
        let (a, b) = (record("a"), record("b"));
        let noted = |record, sequence| Noted { record, sequence };
        let all = [noted(&a, 1), noted(&b, 1), noted(&a, 3), noted(&a, 2), noted(&a, 3)];
        let places: Vec<usize> = newest(&all).into_iter().map(|(place, _)| place).collect();
        assert_eq!(places, [1, 2]);
    }

    #[test]
    fn a_wait_is_kept() {
        let mut patience = Patience::default();
        patience.check("x").unwrap();
        let wait = Some(Duration::from_secs(60));
        let error = Error::Unavailable { exporter: "x".into(), why: "slow down".into(), wait };
        patience.note(&error);
        assert!(patience.check("x").unwrap_err().to_string().contains("slow down"));
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        assert!(is_exporter("axiom:") && is_exporter("otlp:http://x") && !is_exporter("sqlite:x"));
        assert!(open("sqlite:x", None, None).is_err());
    }
}
