//! The record: the spool that every response is written to, and the store and the sinks that it is loaded
//! into.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use endstop_export::Metrics;
use endstop_store::loader::{self, Loader};
use endstop_store::spool::{self, Named, Recovery, Refusal, Spool, Tap, WhenFull};
use endstop_store::{Found, Store};
use serde_json::{Value, json};

use crate::config::{Config, SinkConfig};
use crate::error::Error;
use crate::watch::exporting;

/// Longest time that a batch for an exporter may gather.
const EXPORT_LINGER: Duration = Duration::from_secs(1);

/// The spool and the store of endings.
#[derive(Debug)]
pub struct Recorder {
    spool: Arc<Spool>,
    /// None after the stop.
    loaders: Mutex<Option<Loaders>>,
    store: String,
    reader: Mutex<Reading>,
    /// New requests are taken even if nothing can be recorded.
    forwards: bool,
    /// Leftovers of the last run.
    pub recovery: Recovery,
}

/// The loader of the store, and those of the sinks by their names.
#[derive(Debug)]
struct Loaders {
    store: Loader,
    sinks: BTreeMap<String, Loader>,
}

impl Loaders {
    fn all(&self) -> impl Iterator<Item = &Loader> {
        std::iter::once(&self.store).chain(self.sinks.values())
    }
}

/// A connection for questions; opened when the first is asked.
#[derive(Default)]
struct Reading(Option<Box<dyn Store>>);

impl std::fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.is_some() { "Reading" } else { "Closed" })
    }
}

impl Recorder {
    /// Opens the spool, closes responses that the last run left open, and starts to load. Returns
    /// `None` if nothing is to be recorded.
    ///
    /// # Errors
    /// The store's address is wrong, or the data directory cannot be used.
    pub fn open(config: &Config, metrics: Option<Arc<Metrics>>) -> Result<Option<Self>, Error> {
        let sinks = config.sinks()?;
        let Some(store) = config.store()? else { return Ok(None) };
        let data = config.data_dir()?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&data);
        made.map_err(|source| Error::Data { dir: data.display().to_string(), source })?;
        // A wrong address is said now, not when the first response is loaded. A store that is down or
        // busy is tried again later, and so is one that is damaged: the gateway is not ready then, and
        // endings wait in the spool.
        match endstop_store::open(&store) {
            Ok(_) | Err(endstop_store::Error::Damaged { .. }) => {}
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
        let mut openers = BTreeMap::new();
        for (name, url) in sinks {
            let mut open = exporting::opener(config, &name, &url, metrics.clone())?;
            // A sink may be down or refuse for now; only an address that is wrong stays so.
            if let Err(error @ endstop_store::Error::Url { .. }) = open() {
                return Err(error.into());
            }
            openers.insert(name, (open, endstop_export::is_exporter(&url)));
        }
        let options = spool::Options {
            bytes: config.record.spool_bytes,
            when_full: config.record.when_full,
            sinks: named(config),
            ..spool::Options::default()
        };
        let (spool, recovery) = Spool::open(&data.join("spool"), options)?;
        let spool = Arc::new(spool);
        let start = |tap: Tap, open: exporting::Open, options: loader::Options| {
            Loader::spawn(tap, open, options)
        };
        let url = store.clone();
        let options = loader::Options { keep: config.record.keep, ..loader::Options::default() };
        let open: exporting::Open = Box::new(move || endstop_store::open_sink(&url));
        let mut loaders =
            Loaders { store: start(spool.store(), open, options)?, sinks: BTreeMap::new() };
        for (name, (open, exports)) in openers {
            let keep = config.sinks.get(&name).and_then(|sink| sink.keep);
            let options = loader::Options { keep, ..loader::Options::default() };
            // What becomes known soon after an end is sent with it, not once more.
            let linger = if exports { EXPORT_LINGER } else { options.linger };
            let Some(tap) = spool.sink(&name) else { continue };
            loaders.sinks.insert(name, start(tap, open, loader::Options { linger, ..options })?);
        }
        Ok(Some(Self {
            spool,
            loaders: Mutex::new(Some(loaders)),
            reader: Mutex::default(),
            forwards: config.record.when_full == WhenFull::Forward,
            store,
            recovery,
        }))
    }

    /// Returns the address of the store, without its password.
    #[must_use]
    pub fn store(&self) -> String {
        endstop_store::shown(&self.store)
    }

    /// Returns a notice about the leftovers of the last run, if there are any.
    pub(crate) fn found(&self) -> Option<String> {
        let Recovery { orphans, quarantined, torn, missing } = self.recovery;
        (self.recovery != Recovery::default()).then(|| {
            format!(
                "the last run crashed: {orphans} open responses were closed as interrupted, {torn} torn \
                 and {quarantined} damaged parts of the spool were moved to quarantine, {missing} files \
                 are missing"
            )
        })
    }

    /// Returns the spool.
    #[must_use]
    pub fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// Checks whether new requests can be recorded.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn admits(&self) -> Result<(), Refusal> {
        self.spool.admits()
    }

    /// Returns why new requests should go elsewhere, if there is a reason, and the status of the spool
    /// and the store.
    #[must_use]
    pub fn status(&self) -> (Option<String>, Value) {
        let loading = self.loading();
        let (loading, sinks) = loading.unzip();
        let spool = self.spool.status();
        let records = spool.error.is_none() && self.spool.admits().is_ok();
        let damaged = loading.as_ref().filter(|loading| loading.damaged);
        let trouble = match damaged {
            Some(loading) => loading.last_error.clone(),
            None if records => None,
            None => Some("endings cannot be recorded".to_owned()),
        };
        let trouble = trouble.filter(|_| !self.forwards);
        let status = json!({
            "store": self.store(),
            "spool": spool,
            "loader": loading,
            "sinks": sinks,
            "recovered": self.recovery,
        });
        (trouble, status)
    }

    /// Returns how loading goes into the store, and into each sink by its name; `None` after the stop.
    fn loading(&self) -> Option<(loader::Status, BTreeMap<String, loader::Status>)> {
        let loaders = self.loaders.lock().unwrap_or_else(PoisonError::into_inner);
        let Loaders { store, sinks } = loaders.as_ref()?;
        let sinks = sinks.iter().map(|(name, loader)| (name.clone(), loader.status()));
        Some((store.status(), sinks.collect()))
    }

    /// Returns the state of the spool, of the store and of the sinks, by their names.
    pub(crate) fn health(&self) -> (spool::Status, BTreeMap<String, loader::Status>) {
        let (store, mut sinks) = self.loading().unwrap_or_default();
        sinks.insert(endstop_store::STORE.to_owned(), store);
        (self.spool.status(), sinks)
    }

    /// Queries the store. Blocks.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    pub fn ask<T>(
        &self,
        question: impl FnOnce(&mut dyn Store) -> Result<T, endstop_store::Error>,
    ) -> Result<T, endstop_store::Error> {
        let mut reading = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut backend = match reading.0.take() {
            Some(backend) => backend,
            None => endstop_store::open_to_read(&self.store)?,
        };
        let answer = question(&mut *backend);
        // One that cannot be reached is opened anew.
        if !answer.as_ref().is_err_and(endstop_store::Error::is_retryable) {
            reading.0 = Some(backend);
        }
        answer
    }

    /// Waits until what was noted is loaded, at most so long, and stops; blocks. What is left is loaded at
    /// the next start.
    pub fn stop(&self, wait: Duration) -> bool {
        let loaders = self.loaders.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.spool.sync();
        let Some(Loaders { store, sinks }) = loaders else { return true };
        std::thread::scope(|scope| {
            let all = std::iter::once(store).chain(sinks.into_values());
            let stopping: Vec<_> =
                all.map(|loader| scope.spawn(move || loader.stop(wait))).collect();
            // A thread that panicked has not loaded everything.
            let ended: Vec<bool> =
                stopping.into_iter().map(|it| it.join().unwrap_or(false)).collect();
            ended.into_iter().all(|loaded| loaded)
        })
    }

    /// Waits until what was noted is loaded, at most so long; blocks.
    pub fn wait_until_loaded(&self, wait: Duration) -> bool {
        let loaders = self.loaders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = loaders.iter().flat_map(Loaders::all);
        all.all(|loader| loader.wait_until_loaded(wait))
    }
}

/// Returns the sinks as the spool knows them.
fn named(config: &Config) -> Vec<Named> {
    let named =
        |(name, sink): (&String, &SinkConfig)| Named { name: name.clone(), from: sink.from };
    config.sinks.iter().map(named).collect()
}

/// Checks that endings could be recorded, without creating anything and without disturbing a gateway
/// that runs. Returns remarks.
///
/// # Errors
/// The data directory cannot be used.
pub(crate) fn check_record(config: &Config) -> Result<Vec<String>, Error> {
    if config.store()?.is_none() {
        return Ok(Vec::new());
    }
    let data = config.data_dir()?;
    let note = match Spool::check(&data.join("spool"))? {
        spool::State::Free => return Ok(Vec::new()),
        spool::State::Missing if data.is_dir() => return Ok(Vec::new()),
        spool::State::Missing => "does not exist yet and would be created",
        spool::State::InUse => "is in use by a gateway that runs; a second one needs its own",
    };
    Ok(vec![format!("the data directory {} {note}", data.display())])
}

/// Checks the store, without creating or changing anything. Returns remarks.
///
/// # Errors
/// The store's address is wrong, or the store refuses, or it is damaged.
pub(crate) fn check_store(config: &Config) -> Result<Vec<String>, Error> {
    let sinks = config.sinks()?;
    let Some(store) = config.store()? else { return Ok(Vec::new()) };
    check_file(&store)?;
    let mut notes = check_main(config, &store)?;
    for (name, url) in &sinks {
        drop(exporting::opener(config, name, url, None)?);
        if endstop_export::is_exporter(url) {
            continue;
        }
        let sink = config.sinks.get(name);
        if sink.is_some_and(|sink| sink.token_env.is_some() || sink.token_file.is_some()) {
            notes.push(format!(
                "sink `{name}`: its token is not used: only `axiom:` and `otlp:` take one"
            ));
        }
        match endstop_store::check_sink(url) {
            Ok(()) => {}
            Err(error @ endstop_store::Error::Url { .. }) => return Err(error.into()),
            Err(error) => {
                notes.push(format!("sink `{name}`: {error}; endings would wait in the spool"));
            }
        }
    }
    Ok(notes)
}

fn check_main(config: &Config, store: &str) -> Result<Vec<String>, Error> {
    let shown = endstop_store::shown(store);
    match endstop_store::check(store) {
        Ok(Found::Reached) => Ok(Vec::new()),
        Ok(Found::Missing(file)) => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let data = config.data_dir()?;
            let is_made = |folder: &Path| folder.is_dir() || data.starts_with(folder);
            match folder.filter(|folder| !is_made(folder)) {
                None => Ok(vec![format!("{shown} does not exist yet and would be created")]),
                Some(folder) => {
                    let why = format!("the directory {} does not exist", folder.display());
                    Err(Error::Store(endstop_store::Error::Io {
                        what: format!("cannot open {shown}"),
                        source: std::io::Error::new(std::io::ErrorKind::NotFound, why),
                    }))
                }
            }
        }
        Err(error) if error.is_retryable() => {
            Ok(vec![format!("{error}; endings would wait in the spool")])
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that the file of a store can be written.
fn check_file(store: &str) -> Result<(), Error> {
    use rustix::fs::{Access, access};
    let wrong = |message: String| Err(Error::Setting { name: "store".to_owned(), message });
    let file = store.strip_prefix("sqlite:").filter(|file| *file != ":memory:");
    let Some(file) = file.map(Path::new) else { return Ok(()) };
    if file.is_dir() {
        return wrong(format!("{} is a directory: name a file in it", file.display()));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // A log of changes stands beside the file.
    for path in [folder, file].into_iter().filter(|path| path.exists()) {
        if access(path, Access::WRITE_OK).is_err() {
            return wrong(format!("{} cannot be written: check its permissions", path.display()));
        }
    }
    Ok(())
}

/// Reports trouble with recording: once when something begins to fail, and once when it works again.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    spool: Side,
    store: Loading,
    sinks: BTreeMap<String, Loading>,
    lost: u64,
    unrecorded: u64,
}

/// Trouble with the store or with a sink.
#[derive(Debug, Default)]
struct Loading {
    side: Side,
    /// It was told that endings are refused.
    refused: bool,
    /// It was told that endings are dropped.
    dropped: bool,
}

/// One part of recording that may fail.
#[derive(Debug, Default)]
struct Side {
    failing: bool,
    episodes: u64,
}

/// A change since the last look.
enum Change {
    Began,
    Ended,
    /// It began and ended.
    Passed,
}

impl Side {
    fn look(&mut self, failing: bool, episodes: u64) -> Option<Change> {
        let more = std::mem::replace(&mut self.episodes, episodes) < episodes;
        match (std::mem::replace(&mut self.failing, failing), failing) {
            (false, true) => Some(Change::Began),
            (true, false) => Some(Change::Ended),
            (false, false) if more => Some(Change::Passed),
            (false, false) | (true, true) => None,
        }
    }
}

impl Trouble {
    /// Returns the notices that are due.
    pub(crate) fn look(&mut self, recording: &Recorder) -> Vec<String> {
        let spool = recording.spool.status();
        let full = recording.spool.has_room().err().map(|why| why.to_string());
        let (store, sinks) = recording.loading().unwrap_or_default();
        let refuses = recording.spool.admits().is_err();
        let mut said = self.compare(&spool, full, refuses, &store);
        for (name, status) in sinks {
            let name = format!("sink `{name}`");
            said.extend(self.sinks.entry(name.clone()).or_default().compare(&name, &status));
        }
        said
    }

    fn compare(
        &mut self,
        spool: &spool::Status,
        full: Option<String>,
        refuses: bool,
        loader: &loader::Status,
    ) -> Vec<String> {
        let mut said = Vec::new();
        let error = spool.error.clone().or(full);
        match self.spool.look(error.is_some(), spool.episodes) {
            None => {}
            Some(Change::Began) => {
                let then = if refuses { "new requests are refused" } else { "requests go on" };
                let why = error.unwrap_or_default();
                said.push(format!("endings cannot be recorded: {why}; {then}"));
            }
            Some(Change::Ended) => said.push(format!(
                "endings are recorded again; meanwhile {} went unrecorded and {} notes were lost",
                spool.unrecorded - self.unrecorded,
                spool.lost - self.lost
            )),
            Some(Change::Passed) => {
                said.push("endings could not be recorded for a moment".to_owned());
            }
        }
        if !self.spool.failing {
            (self.unrecorded, self.lost) = (spool.unrecorded, spool.lost);
        }
        said.extend(self.store.compare("the store", loader));
        said
    }
}

impl Loading {
    fn compare(&mut self, name: &str, loader: &loader::Status) -> Vec<String> {
        let mut said = Vec::new();
        match self.side.look(loader.last_error.is_some(), loader.episodes) {
            None => {}
            Some(Change::Began) => {
                let why = loader.last_error.as_deref().unwrap_or_default();
                let of = if name == "the store" { String::new() } else { format!("{name}: ") };
                said.push(format!("{of}{why}; endings wait in the spool"));
            }
            Some(Change::Ended) => {
                said.push(format!("{name} takes endings again; {} wait", loader.lag_entries));
            }
            Some(Change::Passed) => said.push(format!("{name} failed for a moment")),
        }
        if let Some(why) = loader.first_refusal.as_ref().filter(|_| !self.refused) {
            self.refused = true;
            said.push(format!(
                "{name} refused an ending: {why}; it is kept with those that follow, and \
                 `endstop spool status` counts them"
            ));
        }
        if loader.dropped > 0 && !self.dropped {
            self.dropped = true;
            said.push(format!(
                "{name} is too slow: the spool fills up, and endings are dropped for it"
            ));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_said_once_and_so_is_its_end() {
        let mut trouble = Trouble::default();
        let (well, loads) = (spool::Status::default(), loader::Status::default());
        let mut look = |spool: &spool::Status, full: Option<&str>, loader: &loader::Status| {
            trouble.compare(spool, full.map(str::to_owned), true, loader)
        };
        assert!(look(&well, None, &loads).is_empty());

        let error = Some("no space left".to_owned());
        let broken = spool::Status { error, episodes: 1, unrecorded: 3, ..well.clone() };
        let said = look(&broken, None, &loads);
        assert_eq!(said, ["endings cannot be recorded: no space left; new requests are refused"]);
        assert!(look(&broken, Some("full"), &loads).is_empty());
        let healed = spool::Status { error: None, unrecorded: 7, ..broken };
        let said = look(&healed, None, &loads);
        assert!(said[0].contains("again; meanwhile 7 went unrecorded"), "{said:?}");
        assert!(look(&healed, None, &loads).is_empty());

        assert_eq!(look(&healed, Some("full"), &loads).len(), 1);
        assert!(look(&healed, Some("full"), &loads).is_empty());
        let said = look(&healed, None, &loads);
        assert!(said[0].contains("meanwhile 0 went unrecorded"), "{said:?}");
        let again = spool::Status { episodes: 2, ..healed };
        assert_eq!(look(&again, None, &loads), ["endings could not be recorded for a moment"]);

        let last_error = Some("the store is down".to_owned());
        let down = loader::Status { last_error, episodes: 1, ..loads.clone() };
        let said = look(&again, None, &down);
        assert_eq!(said, ["the store is down; endings wait in the spool"]);
        assert!(look(&again, None, &down).is_empty());
        let first_refusal = Some("value too long".to_owned());
        let refusing = loader::Status { first_refusal, refused: 1, ..down.clone() };
        let said = look(&again, None, &refusing);
        assert!(said.len() == 1 && said[0].contains("value too long"), "{said:?}");
        assert!(look(&again, None, &refusing).is_empty());
        let up = loader::Status { episodes: 1, ..loads };
        assert_eq!(look(&again, None, &up), ["the store takes endings again; 0 wait"]);
        assert!(look(&again, None, &up).is_empty());
    }
}
