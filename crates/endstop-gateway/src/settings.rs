//! State that requests share: the settings, which a reload replaces, and the watch.

use std::sync::{Arc, PoisonError, RwLock};

use crate::callers::Callers;
use crate::config::{Config, Secret, is_loopback};
use crate::error::Error;
use crate::memory::Memory;
use crate::rates::Rates;
use crate::respond::live::Live;
use crate::retries::Retries;
use crate::route::Routes;
use crate::upstream::Clients;
use crate::watch::Watch;
use crate::watch::recording::Recording;

/// State that all requests share.
#[derive(Debug)]
pub struct Shared {
    settings: RwLock<Arc<Settings>>,
    /// Reports of endings.
    pub watch: Arc<Watch>,
    /// Streams under way.
    pub live: Arc<Live>,
    /// Failed requests that a client may send again.
    pub retries: Retries,
    /// Store of endings.
    pub recording: Option<Recording>,
    /// Memory for the bodies of requests.
    pub(crate) memory: Arc<Memory>,
    /// Requests of each key.
    pub(crate) rates: Arc<Rates>,
}

impl Shared {
    /// Creates the state and opens the store.
    ///
    /// # Errors
    /// The store's address is wrong, or the data directory cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let watch = Arc::new(Watch::new(settings.config.keep, settings.config.log));
        let recording = Recording::open(&settings.config)?;
        let settings = RwLock::new(Arc::new(settings));
        let (live, retries) = (Arc::new(Live::default()), Retries::default());
        let (memory, rates) = (Arc::default(), Arc::default());
        Ok(Self { settings, watch, live, retries, recording, memory, rates })
    }

    /// Returns the current settings. A request keeps those that it began with.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings for new requests.
    pub fn replace(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

/// A checked configuration and the parts that are made from it.
#[derive(Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Config,
    /// Routes to upstreams.
    pub routes: Routes,
    /// Token that callers of the gateway's own keys must show.
    pub access_token: Option<Secret>,
    /// HTTP clients for upstreams.
    pub clients: Clients,
    /// Callers, by their keys; `None` if nothing is recorded.
    pub callers: Option<Callers>,
}

impl Settings {
    /// Checks a configuration.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn new(config: Config) -> Result<Self, Error> {
        let routes = Routes::new(&config)?;
        let access_token = config.access_token()?;
        let clients = Clients::new(&config)?;
        let callers = Callers::new(&config)?;
        Ok(Self { config, routes, access_token, clients, callers })
    }

    /// Returns a line for the operator if other machines can use the gateway without a token.
    #[must_use]
    pub fn exposure(&self) -> Option<String> {
        let listen = self.config.listen;
        let mut open = self.routes.iter().filter(|upstream| !upstream.has_own_key());
        if is_loopback(listen) || self.config.require_token || open.next().is_none() {
            return None;
        }
        let token = match self.access_token {
            Some(_) => "set require_token = true",
            None => "set access_token_env (or access_token_file) and require_token = true",
        };
        Some(format!(
            "endstop: every machine that can reach {listen} can send requests through this gateway \
             without a token: {token}, or listen on 127.0.0.1"
        ))
    }
}
