//! Keeps the record: the spool that every response is noted in, the store that it is loaded into, and
//! whose request it was.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use endstop_store::Backend;
use endstop_store::loader::{self, Loader};
use endstop_store::spool::{self, Recovery, Refusal, Spool};
use ring::hmac;
use serde_json::{Value, json};

use crate::config::{Config, Secret, WhenFull, secret};
use crate::error::Error;

/// The file in the data directory that holds the secret of key ids, unless one is configured.
const SECRET_FILE: &str = "key.secret";

/// Where endings are kept.
#[derive(Debug)]
pub struct Recording {
    spool: Arc<Spool>,
    loader: Mutex<Option<Loader>>,
    store: String,
    reader: Mutex<Reading>,
    /// New requests are taken even if nothing can be recorded.
    forwards: bool,
    /// What was found at start-up.
    pub recovery: Recovery,
}

/// A connection for questions; opened when the first is asked.
#[derive(Default)]
struct Reading(Option<Box<dyn Backend>>);

impl std::fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.is_some() { "Reading" } else { "Closed" })
    }
}

impl Recording {
    /// Opens the spool, closes what a process before left open, and begins to load; none where nothing
    /// is to be kept.
    ///
    /// # Errors
    /// The store's address is wrong, or the data directory cannot be used.
    pub fn open(config: &Config) -> Result<Option<Self>, Error> {
        let Some(store) = config.store()? else { return Ok(None) };
        let data = config.data_dir()?;
        // A wrong address is said now, not when the first response is loaded. A store that is down or
        // busy is tried again later.
        match endstop_store::open(&store) {
            Err(error) if !error.is_retryable() => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
        let options = spool::Options {
            bytes: config.record.spool_bytes,
            when_full: config.record.when_full.into(),
            ..spool::Options::default()
        };
        let (spool, recovery) = Spool::open(&data.join("spool"), options)?;
        let spool = Arc::new(spool);
        let options = loader::Options { keep: config.record.keep, ..loader::Options::default() };
        let address = store.clone();
        let loader = Loader::spawn(spool.clone(), move || endstop_store::open(&address), options)?;
        Ok(Some(Self {
            spool,
            loader: Mutex::new(Some(loader)),
            reader: Mutex::default(),
            forwards: config.record.when_full == WhenFull::Forward,
            store,
            recovery,
        }))
    }

    /// The store's address, without its password.
    #[must_use]
    pub fn store(&self) -> String {
        endstop_store::shown(&self.store)
    }

    /// What there is to say of what the process before left behind.
    pub(crate) fn found(&self) -> Option<String> {
        let Recovery { orphans, quarantined, torn, missing } = self.recovery;
        (self.recovery != Recovery::default()).then(|| {
            format!(
                "the process before did not end by itself: {orphans} responses under way closed as \
                 interrupted, {torn} torn and {quarantined} damaged stretches of the spool put in \
                 quarantine, {missing} files missing"
            )
        })
    }

    /// The spool.
    #[must_use]
    pub fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// Whether new work may be taken.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self) -> Result<(), Refusal> {
        self.spool.admits()
    }

    /// How recording goes, and whether it goes well enough for new requests.
    #[must_use]
    pub fn status(&self) -> (bool, Value) {
        let loader = self.loader.lock().unwrap_or_else(PoisonError::into_inner);
        let loading = loader.as_ref().map(Loader::status);
        let spool = self.spool.status();
        let well = self.forwards || (spool.error.is_none() && self.spool.admits().is_ok());
        let status = json!({
            "store": self.store(),
            "spool": spool,
            "loader": loading,
            "recovered": self.recovery,
        });
        (well, status)
    }

    /// Asks the store; blocks.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    pub fn ask<T>(
        &self,
        question: impl FnOnce(&mut dyn Backend) -> Result<T, endstop_store::Error>,
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
        let loader = self.loader.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.spool.sync();
        loader.is_none_or(|loader| loader.stop(wait))
    }

    /// Waits until what was noted is loaded, at most so long; blocks.
    pub fn wait_until_loaded(&self, wait: Duration) -> bool {
        let loader = self.loader.lock().unwrap_or_else(PoisonError::into_inner);
        loader.as_ref().is_none_or(|loader| loader.wait_until_loaded(wait))
    }
}

/// Watches how recording goes, and says what changes: once when something begins to fail, once when it
/// is well again.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    spool: Side,
    store: Side,
    lost: u64,
    unrecorded: u64,
}

/// Something that may fail.
#[derive(Debug, Default)]
struct Side {
    failing: bool,
    episodes: u64,
}

/// What became of it since the last look.
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

impl Watch {
    /// What there is to say now.
    pub(crate) fn look(&mut self, recording: &Recording) -> Vec<String> {
        let spool = recording.spool.status();
        let full = recording.spool.has_room().err().map(|why| why.to_string());
        let loader = {
            let loader = recording.loader.lock().unwrap_or_else(PoisonError::into_inner);
            loader.as_ref().map(Loader::status).unwrap_or_default()
        };
        let refuses = recording.spool.admits().is_err();
        self.compare(&spool, full, refuses, &loader)
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
        let waiting = spool.entries;
        match self.store.look(loader.last_error.is_some(), loader.episodes) {
            None => {}
            Some(Change::Began) => {
                let why = loader.last_error.as_deref().unwrap_or_default();
                said.push(format!("{why}; endings wait in the spool"));
            }
            Some(Change::Ended) => {
                said.push(format!("the store takes endings again; {waiting} wait"));
            }
            Some(Change::Passed) => said.push("the store failed for a moment".to_owned()),
        }
        said
    }
}

/// Tells whose request it is, by the key that it shows.
#[derive(Debug)]
pub struct Callers {
    secret: hmac::Key,
    teams: HashMap<String, String>,
}

impl Callers {
    /// The teams of a configuration; none where nothing is kept.
    ///
    /// # Errors
    /// A key or the secret cannot be read, or two teams have the same key.
    pub fn new(config: &Config) -> Result<Option<Self>, Error> {
        if config.store()?.is_none() {
            return Ok(None);
        }
        let record = &config.record;
        let (env, file) = (record.key_secret_env.as_deref(), record.key_secret_file.as_deref());
        let secret = match secret("record.key_secret", env, file)? {
            Some(secret) => secret,
            None => own_secret(&config.data_dir()?)?,
        };
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
        let mut callers = Self { secret, teams: HashMap::new() };
        for (team, own) in &config.teams {
            for variable in &own.key_envs {
                callers.add(team, crate::config::secret(team, Some(variable), None)?)?;
            }
            for file in &own.key_files {
                callers.add(team, crate::config::secret(team, None, Some(file))?)?;
            }
            for id in &own.key_ids {
                callers.add_id(team, id.clone())?;
            }
        }
        Ok(Some(callers))
    }

    fn add(&mut self, team: &str, key: Option<Secret>) -> Result<(), Error> {
        key.map_or(Ok(()), |key| self.add_id(team, self.key_id(key.expose())))
    }

    fn add_id(&mut self, team: &str, id: String) -> Result<(), Error> {
        match self.teams.insert(id, team.to_owned()) {
            Some(other) if other != team => Err(Error::Secret {
                what: format!("teams.{team}"),
                message: format!(
                    "one of its keys is also one of `{other}`: give it to one of them"
                ),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The id of a key: from it the key cannot be found, and the same key has the same id wherever the
    /// secret is the same.
    #[must_use]
    pub fn key_id(&self, key: &str) -> String {
        let tag = hmac::sign(&self.secret, key.as_bytes());
        let hex: String = tag.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("k_{hex}")
    }

    /// The team of a key.
    #[must_use]
    pub fn team(&self, key_id: &str) -> Option<&str> {
        self.teams.get(key_id).map(String::as_str)
    }
}

/// The secret that is made once for a data directory.
fn own_secret(data: &Path) -> Result<Secret, Error> {
    let file = data.join(SECRET_FILE);
    if !file.exists() {
        make_secret(data, &file)?;
    }
    let found = secret("record.key_secret", None, Some(&file))?;
    found.ok_or_else(|| Error::Secret {
        what: "record.key_secret".to_owned(),
        message: format!("{} is empty: delete it and start again", file.display()),
    })
}

/// Makes it whole or not at all: a process that ends halfway must not leave an empty one.
fn make_secret(data: &Path, file: &Path) -> Result<(), Error> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |source: std::io::Error| Error::Data { dir: data.display().to_string(), source };
    let text: String = (0..2).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
    std::fs::create_dir_all(data).map_err(failed)?;
    let half = data.join(format!("{SECRET_FILE}.{}", uuid::Uuid::new_v4().simple()));
    let mut options = std::fs::OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(&half);
    let written = made.and_then(|mut made| {
        made.write_all(text.as_bytes())?;
        made.sync_all()?;
        std::fs::hard_link(&half, file)
    });
    // It may not be there.
    let _ = std::fs::remove_file(&half);
    match written {
        // Another process was first.
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_said_once_and_so_is_its_end() {
        let mut watch = Watch::default();
        let (well, loads) = (spool::Status::default(), loader::Status::default());
        let mut look = |spool: &spool::Status, full: Option<&str>, loader: &loader::Status| {
            watch.compare(spool, full.map(str::to_owned), true, loader)
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
        let up = loader::Status { episodes: 1, ..loads };
        assert_eq!(look(&again, None, &up), ["the store takes endings again; 0 wait"]);
        assert!(look(&again, None, &up).is_empty());
    }
}
