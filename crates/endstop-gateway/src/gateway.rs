//! The listeners, and how they start, reload and stop.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::admin::{self, Admin, TAILS};
use crate::client::body::ClientBody;
use crate::client::connection::{Busy, Peer};
use crate::config::{Config, NetworkLimits, is_loopback};
use crate::error::Error;
use crate::listener::{self, Acceptor, AtStop, Protocols, Services};
use crate::reload::{self, Reloaded};
use crate::serve;
use crate::settings::{Settings, Shared};
use crate::watch::Watch;
use crate::watch::recording::{self, Recorder, Trouble, check_record};

/// Time for streams to end after the drain time.
const LAST: Duration = Duration::from_secs(2);

/// Time between two checks of the recording.
const WATCH: Duration = Duration::from_secs(1);

/// A gateway with open listeners.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    listener: TcpListener,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
    ready: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
    /// The most connections for which there are file descriptors.
    most: usize,
}

/// Controls a running gateway.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    connections: Arc<AtomicUsize>,
}

impl Handle {
    /// Replaces the configuration for new requests and connections. Settings that need a restart stay
    /// as they are, and are named.
    ///
    /// # Errors
    /// The mistake in it. The old configuration stays as a whole.
    pub fn reload(&self, config: Config) -> Result<Reloaded, Error> {
        reload::reload(&self.shared, config)
    }

    /// Returns the reports of endings.
    #[must_use]
    pub fn watch(&self) -> Arc<Watch> {
        self.shared.watch.clone()
    }

    /// Returns the store of endings, if there is one.
    #[must_use]
    pub fn recording(&self) -> Option<&Recorder> {
        self.shared.recording.as_ref()
    }

    /// Returns the number of open streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.shared.live.count()
    }

    /// Returns the number of requests that wait for their response.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.live.waiting()
    }

    /// Returns the time that open streams have after a signal to stop.
    #[must_use]
    pub fn drain(&self) -> Duration {
        self.shared.settings().config.limits.drain
    }

    /// Returns the number of connected clients.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

impl Gateway {
    /// Checks the configuration and listens. The process is allowed as many open files as the system
    /// permits.
    ///
    /// # Errors
    /// The mistake in the configuration, or the reason why an address cannot be listened on.
    pub async fn bind(config: Config) -> Result<Self, Error> {
        let (listen, admin) = (config.listen, config.admin);
        check_addresses(&config)?;
        check_record(&config)?;
        let descriptors = listener::raise_descriptors();
        listener::check_descriptors(descriptors)?;
        let admin_connections = config.limits.admin_connections;
        let shared = Arc::new(Shared::new(Settings::new(config)?)?);
        let (listener, address) = bind("listen", listen).await?;
        let admin = match admin {
            Some(admin) => Some(bind("admin", admin).await?),
            None => None,
        };
        let open = listener::open_descriptors();
        let most = listener::affordable(descriptors, open, admin_connections);
        Ok(Self {
            shared,
            listener,
            address,
            admin,
            ready: Arc::new(AtomicBool::new(true)),
            connections: Arc::new(AtomicUsize::new(0)),
            most,
        })
    }

    /// Checks a configuration as [`Gateway::bind`] does, but listens on nothing and creates nothing.
    ///
    /// # Errors
    /// The reason why [`Gateway::bind`] would fail.
    pub fn check(config: Config) -> Result<Checked, Error> {
        check_addresses(&config)?;
        listener::check_descriptors(listener::most_descriptors())?;
        let mut notes = check_record(&config)?;
        let settings = Settings::check(config)?;
        notes.extend(recording::check_store(&settings.config)?);
        notes.extend(settings.warnings());
        Ok(Checked { settings, notes })
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for operators.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// Returns the current settings.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.shared.settings()
    }

    /// Returns the controls of the gateway.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shared: self.shared.clone(), connections: self.connections.clone() }
    }

    /// Serves until `stop` is ready, then drains: open streams may finish within the drain time.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.run_until(stop, std::future::pending()).await;
    }

    /// The same; the drain also ends when `now` is ready.
    pub async fn run_until(self, stop: impl Future<Output = ()>, now: impl Future<Output = ()>) {
        let Self { shared, listener, admin, ready, connections, most, .. } = self;
        let limits = shared.settings().config.limits.clone();
        let (stop_operators, operators_stop) = watch::channel(());
        let operators = admin.map(|(listener, address)| {
            let (local, ready) = (is_loopback(address), ready.clone());
            let tails = Arc::new(Semaphore::new(TAILS));
            let admin = Admin { shared: shared.clone(), ready, local, tails };
            let acceptor = Acceptor {
                services: Operators { shared: shared.clone(), router: admin::router(admin) },
                open: Arc::default(),
                stop: operators_stop,
                at_stop: AtStop::End,
                heads: Arc::default(),
            };
            // A listener that fails leaves the data path alone.
            tokio::spawn(acceptor.run(listener))
        });
        let looking = tokio::spawn(look_after(shared.clone()));
        let watching = tokio::spawn(look_at_recording(shared.clone()));
        // By default, it is what the descriptors allow.
        if most < limits.connections && limits.connections != NetworkLimits::default().connections {
            shared.watch.warn(format!(
                "at most {most} connections at once, not {}: the limit of open files \
                 (ulimit -n) allows no more. Raise it, or set limits.connections",
                limits.connections
            ));
        }
        let (stop_clients, clients_stop) = watch::channel(());
        let acceptor = Acceptor {
            services: Clients { shared: shared.clone(), most },
            open: connections,
            stop: clients_stop,
            at_stop: AtStop::Finish,
            heads: Arc::default(),
        };
        tokio::select! {
            biased;
            () = stop => {}
            () = acceptor.run(listener) => {}
        }
        ready.store(false, Ordering::Release);
        // Nobody listens to it if nobody is connected.
        let _ = stop_clients.send(());
        let drained = stop_clients.closed();
        tokio::pin!(drained);
        let ended = tokio::select! {
            biased;
            () = &mut drained => true,
            () = now => false,
            () = tokio::time::sleep(shared.settings().config.limits.drain) => false,
        };
        if !ended {
            shared.live.shut_down();
            // Whoever has not ended by then is ended with the process.
            let _ = tokio::time::timeout(LAST, &mut drained).await;
        }
        looking.abort();
        watching.abort();
        if let Some(operators) = operators {
            operators.abort();
        }
        drop(stop_operators);
        // What is not loaded by then is at the next start.
        let _ = tokio::task::spawn_blocking(move || {
            let loaded = shared.recording.as_ref().is_none_or(|recording| recording.stop(LAST));
            if !loaded {
                shared.watch.warn("some endings stay in the spool until the next start");
            }
            shared.watch.flush(LAST);
        })
        .await;
    }
}

/// A configuration that was checked.
#[derive(Debug)]
pub struct Checked {
    /// The settings that would be served.
    pub settings: Settings,
    /// Remarks: what would be created, and what cannot be reached now.
    pub notes: Vec<String>,
}

/// Checks that the listeners have addresses of their own.
pub(crate) fn check_addresses(config: &Config) -> Result<(), Error> {
    let listen = config.listen;
    if listen.port() == 0 || config.admin != Some(listen) {
        return Ok(());
    }
    let message = format!("{listen} is also the address of `listen`: choose another port");
    Err(Error::Setting { name: "admin".to_owned(), message })
}

async fn bind(
    setting: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Listen { address, setting, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Ends streams whose clients do not read.
async fn look_after(shared: Arc<Shared>) {
    loop {
        let limit = shared.settings().config.limits.client_write;
        tokio::time::sleep((limit / 10).max(Duration::from_millis(10))).await;
        shared.live.check_clients(limit);
    }
}

/// Logs when recording begins to fail, and when it works again.
async fn look_at_recording(shared: Arc<Shared>) {
    let Some(recording) = &shared.recording else { return };
    if let Some(found) = recording.found() {
        shared.watch.warn(found);
    }
    let mut trouble = Trouble::default();
    let mut ticks = tokio::time::interval(WATCH);
    loop {
        ticks.tick().await;
        trouble.look(recording).into_iter().for_each(|what| shared.watch.warn(what));
    }
}

/// Serves clients.
struct Clients {
    shared: Arc<Shared>,
    /// The most connections for which there are file descriptors.
    most: usize,
}

impl Services for Clients {
    type Body = ClientBody;

    fn service(
        &self,
        peer: Arc<Peer>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<ClientBody>,
        Error = Infallible,
        Future: Send + 'static,
    > + Send
    + 'static {
        let shared = self.shared.clone();
        service_fn(move |request: Request<Incoming>| {
            // At once: what is read before the first poll belongs to a request that is under way.
            let busy = Busy::new(peer.clone(), request.version());
            let serving = serve::serve(shared.clone(), peer.clone(), busy, request);
            // A fault of ours ends one request, and no other.
            AssertUnwindSafe(serving)
                .catch_unwind()
                .map(|served| Ok(served.unwrap_or_else(|_| serve::broke())))
        })
    }

    fn limits(&self) -> (NetworkLimits, usize) {
        let limits = self.shared.settings().config.limits.clone();
        let most = limits.connections.min(self.most);
        (limits, most)
    }

    fn protocols(&self) -> Protocols {
        Protocols::All
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        self.shared.settings().tls.as_ref().map(|tls| tls.acceptor.clone())
    }
}

/// Serves operators.
struct Operators {
    shared: Arc<Shared>,
    router: axum::Router,
}

impl Services for Operators {
    type Body = admin::Page;

    fn service(
        &self,
        peer: Arc<Peer>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<admin::Page>,
        Error = Infallible,
        Future: Send + 'static,
    > + Send
    + 'static {
        let router = self.router.clone();
        service_fn(move |request: Request<Incoming>| {
            let busy = Busy::new(peer.clone(), request.version());
            admin::serve(router.clone(), busy, request)
        })
    }

    fn limits(&self) -> (NetworkLimits, usize) {
        let limits = self.shared.settings().config.limits.clone();
        let most = limits.admin_connections;
        (limits, most)
    }

    fn protocols(&self) -> Protocols {
        Protocols::Http1
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> String {
        let config = Config::from_toml("t", text).unwrap();
        Gateway::check(config).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn a_check_fails_where_serving_would() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().display();
        let text = format!("data = '{dir}'\n");
        assert_eq!(checked(&text), "");
        let error = checked("store = 'off'\nlisten = '127.0.0.1:4000'\nadmin = '127.0.0.1:4000'");
        assert_eq!(
            error,
            "admin: 127.0.0.1:4000 is also the address of `listen`: choose another port"
        );
        let error = checked(&format!("{text}store = 'sqlite:{dir}'"));
        assert_eq!(error, format!("store: {dir} is a directory: name a file in it"));
    }
}
