//! State that requests share: the settings, which a reload replaces, and the watch.

use std::sync::{Arc, PoisonError, RwLock};

use crate::callers::Callers;
use crate::config::{Config, Secret};
use crate::error::Error;
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
        Ok(Self { settings, watch, live, retries, recording })
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
}
