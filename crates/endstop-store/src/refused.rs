//! Entries that a store refused: they are kept beside the spool, and can be loaded again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::sink::{Entry, Sink};

/// Entries that are loaded at once.
const BATCH: usize = 500;

/// A line of the file of refused entries.
#[derive(Serialize, Deserialize)]
struct Line {
    /// What the store said.
    why: String,
    entry: Entry,
}

/// What became of entries that were refused before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// The store has them now.
    pub loaded: u64,
    /// The store refused them again. They are kept.
    pub refused: u64,
    /// Lines that cannot be read. They are kept.
    pub unread: u64,
}

/// Returns how many entries are kept in the directory of a spool because the store refused them, by what
/// the store said.
///
/// # Errors
/// The file cannot be read.
pub fn refused(spool: &Path) -> Result<BTreeMap<String, u64>, Error> {
    let mut counts = BTreeMap::new();
    for file in [waiting(spool), being_loaded(spool)] {
        each_line(&file, |line| {
            let why = line.map_or("a line that cannot be read".to_owned(), |line| line.why);
            *counts.entry(why).or_default() += 1;
            Ok(())
        })?;
    }
    Ok(counts)
}

/// Loads the entries that are kept in the directory of a spool because the store refused them. A gateway may
/// run beside it. What is interrupted goes on when it is asked for again.
///
/// # Errors
/// A file cannot be read or written, or the store cannot be reached. Nothing is lost then.
pub fn load_refused(spool: &Path, store: &mut dyn Sink) -> Result<Reloaded, Error> {
    let (waiting, loading) = (waiting(spool), being_loaded(spool));
    let mut done = Reloaded::default();
    // What an earlier run left is loaded first.
    for _ in 0..2 {
        if !loading.exists() {
            match fs::rename(&waiting, &loading) {
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                moved => moved.map_err(failed("move", &waiting))?,
            }
        }
        reload(&loading, &waiting, store, &mut done)?;
        fs::remove_file(&loading).map_err(failed("delete", &loading))?;
        if done.refused + done.unread > 0 {
            break;
        }
    }
    Ok(done)
}

/// Loads a file. Entries that are refused again go to the other.
fn reload(from: &Path, to: &Path, store: &mut dyn Sink, done: &mut Reloaded) -> Result<(), Error> {
    let mut batch: Vec<Entry> = Vec::new();
    let mut load = |batch: &mut Vec<Entry>, done: &mut Reloaded| {
        let loaded = store.load(batch)?;
        for (index, why) in &loaded.refused {
            let Some(entry) = batch.get(*index) else { continue };
            let line = serde_json::json!({ "why": why, "entry": entry });
            keep(to, &format!("{line}\n"))?;
        }
        done.refused += loaded.refused.len() as u64;
        done.loaded += (batch.len() - loaded.refused.len()) as u64;
        batch.clear();
        Ok::<(), Error>(())
    };
    each_line(from, |line| {
        match line {
            Ok(line) => batch.push(line.entry),
            Err(text) => {
                done.unread += 1;
                keep(to, &format!("{text}\n"))?;
            }
        }
        if batch.len() >= BATCH { load(&mut batch, done) } else { Ok(()) }
    })?;
    if batch.is_empty() { Ok(()) } else { load(&mut batch, done) }
}

/// Hands over each line of a file, read or as it is. A file that is not there has none.
fn each_line(
    file: &Path,
    mut each: impl FnMut(Result<Line, String>) -> Result<(), Error>,
) -> Result<(), Error> {
    let opened = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(failed("read", file))?,
    };
    for text in BufReader::new(opened).split(b'\n') {
        let text = text.map_err(failed("read", file))?;
        if !text.is_empty() {
            let line = serde_json::from_slice(&text);
            each(line.map_err(|_| String::from_utf8_lossy(&text).into_owned()))?;
        }
    }
    Ok(())
}

fn keep(file: &Path, line: &str) -> Result<(), Error> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    opened.and_then(|mut file| file.write_all(line.as_bytes())).map_err(failed("write to", file))
}

fn failed(what: &str, file: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = format!("cannot {what} `{}`", file.display());
    move |source| Error::Io { what, source }
}

fn waiting(spool: &Path) -> PathBuf {
    spool.join("quarantine").join("refused.jsonl")
}

fn being_loaded(spool: &Path) -> PathBuf {
    spool.join("quarantine").join("refused.loading.jsonl")
}
