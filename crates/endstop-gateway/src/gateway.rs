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
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::admin::{self, Admin};
use crate::client::body::Answer;
use crate::client::connection::{Busy, Peer};
use crate::config::{Config, Limits, Secret, Tls, is_loopback};
use crate::error::Error;
use crate::listener::{self, Acceptor, AtStop, Protocols, Services};
use crate::serve;
use crate::settings::{Settings, Shared};
use crate::upstream::connect::certificates;
use crate::watch::Watch;
use crate::watch::recording::{Recording, Trouble};

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
    tls: Option<TlsAcceptorBox>,
    admin: Option<(TcpListener, SocketAddr)>,
    admin_token: Option<Secret>,
    ready: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
    /// The most connections for which there are file descriptors.
    most: usize,
}

#[derive(Clone)]
struct TlsAcceptorBox(TlsAcceptor);

impl std::fmt::Debug for TlsAcceptorBox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsAcceptor")
    }
}

/// Controls a running gateway.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    connections: Arc<AtomicUsize>,
}

impl Handle {
    /// Replaces the configuration for new requests. The listeners stay as they are.
    ///
    /// # Errors
    /// The mistake in it. The old configuration stays.
    pub fn reload(&self, config: Config) -> Result<(), Error> {
        let old = self.shared.settings();
        let moved = old.config.listen != config.listen || old.config.admin != config.admin;
        let kept = |config: &Config| Ok::<_, Error>((config.store()?, config.data.clone()));
        let elsewhere = kept(&old.config)? != kept(&config)?;
        let settings = Settings::new(config)?;
        if moved && old.config.listen.port() != 0 {
            return Err(Error::Exposed(
                "listen and admin cannot change while the gateway runs: restart it".to_owned(),
            ));
        }
        if elsewhere {
            return Err(Error::Exposed(
                "store and data cannot change while the gateway runs: restart it".to_owned(),
            ));
        }
        self.shared.replace(settings);
        Ok(())
    }

    /// Returns the reports of endings.
    #[must_use]
    pub fn watch(&self) -> Arc<Watch> {
        self.shared.watch.clone()
    }

    /// Returns the store of endings, if there is one.
    #[must_use]
    pub fn recording(&self) -> Option<&Recording> {
        self.shared.recording.as_ref()
    }

    /// Returns the number of open streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.shared.live.count()
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
        let admin = config.admin;
        // One that is named and cannot be read must not leave the listener open.
        let token = config.admin_token()?;
        if let Some(address) = admin
            && !is_loopback(address)
            && token.is_none()
        {
            return Err(Error::Exposed(format!(
                "the admin listener {address} is open to other machines: set admin_token_env or \
                 admin_token_file, or listen on 127.0.0.1"
            )));
        }
        let tls = config.tls.as_ref().map(server_tls).transpose()?;
        let listen = config.listen;
        let descriptors = listener::raise_descriptors();
        let most = listener::affordable(descriptors, config.limits.admin_connections);
        let shared = Arc::new(Shared::new(Settings::new(config)?)?);
        let (listener, address) = bind(listen).await?;
        let admin = match admin {
            Some(admin) => Some(bind(admin).await?),
            None => None,
        };
        Ok(Self {
            shared,
            listener,
            address,
            tls,
            admin,
            admin_token: token,
            ready: Arc::new(AtomicBool::new(true)),
            connections: Arc::new(AtomicUsize::new(0)),
            most,
        })
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
        let Self { shared, listener, tls, admin, admin_token, ready, connections, most, .. } = self;
        let limits = shared.settings().config.limits.clone();
        let (stop_operators, operators_stop) = watch::channel(());
        let operators = admin.map(|(listener, address)| {
            let (local, ready) = (is_loopback(address), ready.clone());
            let admin = Admin { shared: shared.clone(), token: admin_token, ready, local };
            let acceptor = Acceptor {
                services: Operators { shared: shared.clone(), router: admin::router(admin) },
                tls: None,
                open: Arc::default(),
                stop: operators_stop,
                at_stop: AtStop::End,
            };
            // A listener that fails leaves the data path alone.
            tokio::spawn(acceptor.run(listener))
        });
        let looking = tokio::spawn(look_after(shared.clone(), limits.client_write));
        let watching = tokio::spawn(look_at_recording(shared.clone()));
        // By default, it is what the descriptors allow.
        if most < limits.connections && limits.connections != Limits::default().connections {
            shared.watch.notice(&format!(
                "endstop: at most {most} connections at once, not {}: the limit of open files \
                 (ulimit -n) allows no more. Raise it, or set limits.connections",
                limits.connections
            ));
        }
        let (stop_clients, clients_stop) = watch::channel(());
        let acceptor = Acceptor {
            services: Clients { shared: shared.clone(), most },
            tls: tls.map(|TlsAcceptorBox(tls)| tls),
            open: connections,
            stop: clients_stop,
            at_stop: AtStop::Finish,
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
        if tokio::time::timeout(limits.drain, &mut drained).await.is_err() {
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
                shared.watch.notice("endstop: some endings stay in the spool until the next start");
            }
            shared.watch.flush(LAST);
        })
        .await;
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Ends streams whose clients do not read.
async fn look_after(shared: Arc<Shared>, limit: Duration) {
    let mut ticks = tokio::time::interval((limit / 10).max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        shared.live.check_clients(limit);
    }
}

/// Logs when recording begins to fail, and when it works again.
async fn look_at_recording(shared: Arc<Shared>) {
    let Some(recording) = &shared.recording else { return };
    if let Some(found) = recording.found() {
        shared.watch.notice(&format!("endstop: {found}"));
    }
    let mut trouble = Trouble::default();
    let mut ticks = tokio::time::interval(WATCH);
    loop {
        ticks.tick().await;
        for what in trouble.look(recording) {
            shared.watch.notice(&format!("endstop: {what}"));
        }
    }
}

/// Serves clients.
struct Clients {
    shared: Arc<Shared>,
    /// The most connections for which there are file descriptors.
    most: usize,
}

impl Services for Clients {
    type Body = Answer;

    fn service(
        &self,
        peer: Arc<Peer>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<Answer>,
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

    fn limits(&self) -> (Limits, usize) {
        let limits = self.shared.settings().config.limits.clone();
        let most = limits.connections.min(self.most);
        (limits, most)
    }

    fn protocols(&self) -> Protocols {
        Protocols::All
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

    fn limits(&self) -> (Limits, usize) {
        let limits = self.shared.settings().config.limits.clone();
        let most = limits.admin_connections;
        (limits, most)
    }

    fn protocols(&self) -> Protocols {
        Protocols::Http1
    }
}

fn server_tls(tls: &Tls) -> Result<TlsAcceptorBox, Error> {
    use rustls_pki_types::pem::PemObject as _;
    let wrong = |file: &std::path::Path, message: String| Error::Certificate {
        file: file.display().to_string(),
        message,
    };
    let chain = certificates(&tls.cert)?;
    let key = rustls_pki_types::PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| wrong(&tls.key, format!("cannot be read: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(&tls.cert, error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptorBox(TlsAcceptor::from(Arc::new(config))))
}
