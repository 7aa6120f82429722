//! From an address to a store: one line for each kind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::sink::{Sink, Store};
use crate::spool::files::create_and_remove;
use crate::{clickhouse, jsonl, postgres, sqlite};

/// Options of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only questions: nothing can be written.
    pub read_only: bool,
    /// The longest that one question or one batch may take.
    pub timeout: Duration,
    /// The longest to wait until a SQLite file that another has locked is free.
    pub wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { read_only: false, timeout: Duration::from_secs(30), wait: Duration::from_secs(5) }
    }
}

type Open = fn(&str, &Options) -> Result<Box<dyn Store>, Error>;

/// Every kind of store: how its addresses begin, and what opens it.
static KINDS: [(&str, Open); 5] = [
    ("sqlite:", sqlite::open),
    ("postgres:", postgres::open),
    ("postgresql:", postgres::open),
    ("clickhouse:", clickhouse::open),
    ("clickhouses:", clickhouse::open),
];

/// Opens a store to write to it and to read from it: `sqlite:FILE`, `sqlite::memory:`,
/// `postgres://USER:PASSWORD@HOST/DATABASE`, `clickhouse://USER:PASSWORD@HOST:PORT/DATABASE`. Servers are reached when
/// they are first used.
///
/// ```
/// let mut store = endstop_store::open("sqlite::memory:")?;
/// assert!(!store.migrate()?.is_empty());
/// assert!(store.migrate()?.is_empty());
/// # Ok::<(), endstop_store::Error>(())
/// ```
///
/// # Errors
/// The address is not one of a store, or the file cannot be opened.
pub fn open(url: &str) -> Result<Box<dyn Store>, Error> {
    open_with(url, &Options::default())
}

/// Opens a store to ask it: nothing can be written, and no question takes longer than ten seconds.
///
/// # Errors
/// As for [`open`]; also where there is no such file.
pub fn open_to_read(url: &str) -> Result<Box<dyn Store>, Error> {
    let timeout = Duration::from_secs(10);
    open_with(url, &Options { read_only: true, timeout, ..Options::default() })
}

/// Opens a store.
///
/// # Errors
/// As for [`open`].
pub fn open_with(url: &str, options: &Options) -> Result<Box<dyn Store>, Error> {
    let kind = KINDS.iter().find(|(prefix, _)| url.starts_with(prefix));
    let (_, open) = kind.ok_or_else(|| refuse(url, "unknown scheme"))?;
    open(url, options)
}

/// Opens a sink that reads beside the store: any store, or `jsonl:FILE`.
///
/// # Errors
/// The address is not one of a sink, or the file cannot be opened.
pub fn open_sink(url: &str) -> Result<Box<dyn Sink>, Error> {
    if url.starts_with(jsonl::SCHEME) {
        return jsonl::open(url);
    }
    Ok(open(url)?)
}

/// Checks a sink without creating or changing anything.
///
/// # Errors
/// The address is not one of a sink, or the sink cannot be reached, or it is damaged.
pub fn check_sink(url: &str) -> Result<(), Error> {
    if url.starts_with(jsonl::SCHEME) {
        return jsonl::check(url);
    }
    check(url).map(drop)
}

/// State of a store before it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It can be reached.
    Reached,
    /// It is a file that is not there yet.
    Missing(PathBuf),
}

/// Checks a store without changing it. Beside a file that is missing, an entry is created for a moment;
/// nothing is left behind.
///
/// # Errors
/// The address is not one of a store, or the store cannot be reached, or it is damaged.
pub fn check(url: &str) -> Result<Found, Error> {
    if let Some(file) = sqlite::file(url) {
        if !file.exists() {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            if folder.is_dir() {
                create_and_remove(folder).map_err(|source| Error::Io {
                    what: format!("cannot open {}", shown(url)),
                    source,
                })?;
            }
            return Ok(Found::Missing(file.to_owned()));
        }
        rustix::fs::access(file, rustix::fs::Access::WRITE_OK).map_err(|error| Error::Io {
            what: format!("cannot write to {}", shown(url)),
            source: error.into(),
        })?;
    }
    // What is in memory cannot be opened to be read alone.
    let read_only = url != "sqlite::memory:";
    open_with(url, &Options { read_only, timeout: Duration::from_secs(10), ..Options::default() })?
        .ping()?;
    Ok(Found::Reached)
}

/// Says that an address is none.
pub(crate) fn refuse(url: &str, why: impl Into<String>) -> Error {
    Error::Url { url: shown(url), why: why.into() }
}

/// An address as it may be shown: without a password, and without parameters, which may hold one too.
#[must_use]
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A password may hold any character; the last `@` ends it.
    let (user, place) = match rest.rsplit_once('@') {
        Some((secret, place)) => {
            let user = secret.split([':', '@', '/', '?']).next().unwrap_or_default();
            (format!("{user}@"), place)
        }
        None => (String::new(), rest),
    };
    let place = place.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{user}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let cases = [
            ("postgres://u:secret@h/d", "postgres://u@h/d"),
            ("postgres://u:se/cr@et?@h:1/d?x=1", "postgres://u@h:1/d"),
            ("postgres://h/d?password=secret", "postgres://h/d"),
            ("postgres://u@h/d?user=x&password=se@cret", "postgres://u@cret"),
            ("mysql://u:secret@h/d", "mysql://u@h/d"),
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
        ];
        for (url, wanted) in cases {
            assert_eq!(shown(url), wanted);
            assert!(!shown(url).contains("secret"));
        }
    }
}
