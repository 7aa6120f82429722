//! Entries that a sink refused: they are kept beside the spool, and can be loaded again.

use std::borrow::Cow;
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

/// The name of the store among the sinks.
pub const STORE: &str = "store";

/// A line of the file of refused entries.
#[derive(Serialize, Deserialize)]
pub(crate) struct Line<'a> {
    /// The sink that refused it.
    #[serde(default = "store")]
    pub(crate) sink: Cow<'a, str>,
    /// Message of the sink.
    pub(crate) why: Cow<'a, str>,
    pub(crate) entry: Cow<'a, Entry>,
}

fn store() -> Cow<'static, str> {
    STORE.into()
}

impl Line<'_> {
    pub(crate) fn text(&self) -> io::Result<String> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        Ok(text)
    }
}

/// Result of loading refused entries again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// The sink has them now.
    pub loaded: u64,
    /// The sink refused them again. They are kept.
    pub refused: u64,
    /// Lines that cannot be read. They are kept.
    pub unread: u64,
}

/// Returns how many entries are kept in the directory of a spool because a sink refused them, by the name of
/// the sink and what it said. The store is called [`STORE`].
///
/// # Errors
/// The file cannot be read.
pub fn refused(spool: &Path) -> Result<BTreeMap<(String, String), u64>, Error> {
    let mut counts = BTreeMap::new();
    for file in [waiting(spool), being_loaded(spool)] {
        each_line(&file, |line| {
            let (sink, why) = match line {
                Ok(line) => (line.sink.into_owned(), line.why.into_owned()),
                Err(_) => (STORE.to_owned(), "a line that cannot be read".to_owned()),
            };
            *counts.entry((sink, why)).or_default() += 1;
            Ok(())
        })?;
    }
    Ok(counts)
}

/// Loads the entries that are kept in the directory of a spool because the sink of this name refused them. A
/// gateway may run beside it. What is interrupted goes on when it is asked for again.
///
/// # Errors
/// A file cannot be read or written, or the sink cannot be reached. Nothing is lost then.
pub fn load_refused(spool: &Path, name: &str, sink: &mut dyn Sink) -> Result<Reloaded, Error> {
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
        let others = reload(&loading, &waiting, (name, sink), &mut done)?;
        fs::remove_file(&loading).map_err(failed("delete", &loading))?;
        if done.refused + done.unread + others > 0 {
            break;
        }
    }
    Ok(done)
}

/// Loads a file. Entries that are refused again, and those of other sinks, go to the other file. Returns how
/// many entries of other sinks there are.
fn reload(
    from: &Path,
    to: &Path,
    (name, sink): (&str, &mut dyn Sink),
    done: &mut Reloaded,
) -> Result<u64, Error> {
    let mut others = 0;
    let mut batch: Vec<Entry> = Vec::new();
    let mut load = |batch: &mut Vec<Entry>, done: &mut Reloaded| {
        let loaded = sink.load(batch)?;
        for (index, why) in &loaded.refused {
            let Some(entry) = batch.get(*index) else { continue };
            let (sink, why) = (name.into(), why.into());
            let line = Line { sink, why, entry: Cow::Borrowed(entry) };
            keep(to, &line.text().map_err(failed("write to", to))?)?;
        }
        done.refused += loaded.refused.len() as u64;
        done.loaded += (batch.len() - loaded.refused.len()) as u64;
        batch.clear();
        Ok::<(), Error>(())
    };
    each_line(from, |line| {
        match line {
            Ok(line) if line.sink == name => batch.push(line.entry.into_owned()),
            Ok(line) => {
                others += 1;
                keep(to, &line.text().map_err(failed("write to", to))?)?;
            }
            Err(text) => {
                done.unread += 1;
                keep(to, &format!("{text}\n"))?;
            }
        }
        if batch.len() >= BATCH { load(&mut batch, done) } else { Ok(()) }
    })?;
    if !batch.is_empty() {
        load(&mut batch, done)?;
    }
    Ok(others)
}

/// Hands over each line of a file, read or as it is. A file that is not there has none.
fn each_line(
    file: &Path,
    mut each: impl FnMut(Result<Line<'_>, String>) -> Result<(), Error>,
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
