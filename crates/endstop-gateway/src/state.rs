//! What requests share: the settings, which can be replaced, and what is told.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use endstop::{Timer, TransportEnd};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::config::{Config, Limits, Secret};
use crate::connect::{Connector, client_tls, close_of};
use crate::ending_log::EndingLog;
use crate::error::Error;
use crate::live::Live;
use crate::recording::{Callers, Recording};
use crate::route::{Routes, Upstream};
use crate::serve::Sent;

/// What all requests share.
#[derive(Debug)]
pub struct Shared {
    settings: RwLock<Arc<Settings>>,
    /// What is told.
    pub told: Arc<EndingLog>,
    /// The streams under way.
    pub live: Arc<Live>,
    /// Where endings are kept.
    pub recording: Option<Recording>,
}

impl Shared {
    /// With these settings; opens where endings are kept.
    ///
    /// # Errors
    /// The store's address is wrong, or the data directory cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let told = Arc::new(EndingLog::new(settings.config.keep, settings.config.log));
        let recording = Recording::open(&settings.config)?;
        let settings = RwLock::new(Arc::new(settings));
        Ok(Self { settings, told, live: Arc::new(Live::default()), recording })
    }

    /// The settings as they are now. A request keeps those that it began with.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings for requests to come.
    pub fn replace(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

/// A configuration that has been checked, and what it takes to act on it.
#[derive(Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Config,
    /// Where requests go.
    pub routes: Routes,
    /// What callers of the gateway's own keys must show.
    pub access_token: Option<Secret>,
    /// How upstreams are asked.
    pub clients: Clients,
    /// Who asks; none where nothing is kept.
    pub callers: Option<Callers>,
}

impl Settings {
    /// Checks a configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(config: Config) -> Result<Self, Error> {
        let routes = Routes::new(&config)?;
        let access_token = config.access_token()?;
        let clients = Clients::new(&config)?;
        let callers = Callers::new(&config)?;
        Ok(Self { config, routes, access_token, clients, callers })
    }
}

type HttpClient = Client<Connector, Sent>;

/// Connections to upstreams, kept and shared.
#[derive(Clone, Debug)]
pub struct Clients {
    built_in: HttpClient,
    own: HttpClient,
    h2c: HttpClient,
    first_byte: Duration,
}

impl Clients {
    fn new(config: &Config) -> Result<Self, Error> {
        let tls = client_tls(config.extra_ca.as_deref())?;
        let limits = &config.limits;
        let connector = |own| Connector::new(tls.clone(), limits, own);
        Ok(Self {
            built_in: builder(limits).build(connector(false)),
            own: builder(limits).build(connector(true)),
            h2c: builder(limits).http2_only(true).build(connector(true)),
            first_byte: limits.first_byte,
        })
    }

    /// Asks an upstream, and waits for the head of its response.
    ///
    /// # Errors
    /// How the response, which never began, is closed.
    pub async fn ask(
        &self,
        upstream: &Upstream,
        request: Request<Sent>,
    ) -> Result<Response<Incoming>, TransportEnd> {
        let client = match (upstream.h2c, upstream.own || upstream.is_local()) {
            (true, _) => &self.h2c,
            (false, true) => &self.own,
            (false, false) => &self.built_in,
        };
        match tokio::time::timeout(self.first_byte, client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(close_of(&error).unwrap_or(TransportEnd::Reset)),
            Err(_) => Err(TransportEnd::TimedOut(Timer::FirstByte)),
        }
    }
}

fn builder(limits: &Limits) -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .http1_max_buf_size(limits.head_bytes.max(64 << 10))
        .http2_initial_stream_window_size(64 << 10)
        // Many clients share a connection, and one of them that reads slowly must not stop the
        // others: there is room for a full window of each. h2 also ends a connection on which too
        // many small frames wait, and derives how many from this.
        .http2_initial_connection_window_size(16 << 20);
    builder
}
