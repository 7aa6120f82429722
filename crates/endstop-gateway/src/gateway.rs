//! The listeners, and how they start, reload and stop.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::admin::{self, Admin};
use crate::client::body::Answer;
use crate::client::connection::{ClientIo, Peer, Phase};
use crate::config::{Config, Limits, Secret, Tls, is_loopback};
use crate::error::Error;
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
    /// Checks the configuration and listens.
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
        let Self { shared, listener, tls, admin, admin_token, ready, connections, .. } = self;
        let settings = shared.settings();
        let limits = settings.config.limits.clone();
        let operators = admin.map(|(listener, _)| {
            let token = admin_token;
            let admin = Admin { shared: shared.clone(), token, ready: ready.clone() };
            // A listener that fails leaves the data path alone.
            tokio::spawn(async move {
                let _ = axum::serve(listener, admin::router(admin)).await;
            })
        });
        drop(settings);
        let looking = tokio::spawn(look_after(shared.clone(), limits.client_write));
        let watching = tokio::spawn(watch(shared.clone()));
        let graceful = GracefulShutdown::new();
        let door = Acceptor { shared: shared.clone(), tls, connections, limits: limits.clone() };
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => door.open(stream, &graceful),
                    // Out of descriptors, most likely: those under way free some.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                },
            }
        }
        ready.store(false, Ordering::Release);
        drop(listener);
        let drained = graceful.shutdown();
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
async fn watch(shared: Arc<Shared>) {
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

/// Accepts connections of clients.
struct Acceptor {
    shared: Arc<Shared>,
    tls: Option<TlsAcceptorBox>,
    connections: Arc<AtomicUsize>,
    limits: Limits,
}

/// Counts a connected client while it lives.
struct Connected(Arc<AtomicUsize>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Acceptor {
    fn open(&self, stream: TcpStream, graceful: &GracefulShutdown) {
        let count = self.connections.fetch_add(1, Ordering::AcqRel);
        let connected = Connected(self.connections.clone());
        if count >= self.limits.connections {
            let body =
                "{\"error\":{\"message\":\"endstop: too many connections; try again later\"}}";
            let response = format!(
                "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            // Nobody is owed more than a try.
            let _ = stream.try_write(response.as_bytes());
            return;
        }
        // Small frames must leave at once.
        let _ = stream.set_nodelay(true);
        let peer = Arc::new(Peer::default());
        match &self.tls {
            None => {
                let io = ClientIo::new(stream, peer.clone(), &self.limits);
                self.serve(io, peer, graceful, connected);
            }
            Some(TlsAcceptorBox(acceptor)) => {
                let accepting = acceptor.accept(stream);
                let limit = self.limits.tls;
                let watcher = graceful.watcher();
                let (shared, limits) = (self.shared.clone(), self.limits.clone());
                tokio::spawn(async move {
                    let _connected = connected;
                    if let Ok(Ok(io)) = tokio::time::timeout(limit, accepting).await {
                        let builder = builder(&limits);
                        let service = service(shared, peer);
                        let connection = builder.serve_connection(TokioIo::new(io), service);
                        // How the connection ended is told of each request on it.
                        let _ = watcher.watch(connection.into_owned()).await;
                    }
                });
            }
        }
    }

    fn serve<I>(&self, io: I, peer: Arc<Peer>, graceful: &GracefulShutdown, connected: Connected)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let builder = builder(&self.limits);
        let service = service(self.shared.clone(), peer);
        let connection = builder.serve_connection(TokioIo::new(io), service).into_owned();
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            let _connected = connected;
            // How the connection ended is told of each request on it.
            let _ = watched.await;
        });
    }
}

fn service(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
) -> impl hyper::service::Service<
    hyper::Request<hyper::body::Incoming>,
    Response = hyper::Response<Answer>,
    Error = std::convert::Infallible,
    Future: Send + 'static,
> {
    service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        // At once: what is read before the first poll belongs to a request that is under way.
        if request.version() <= hyper::Version::HTTP_11 {
            peer.set(Phase::Waiting);
        }
        let serving = serve::serve(shared.clone(), peer.clone(), request);
        // A fault of ours ends one request, and no other.
        AssertUnwindSafe(serving)
            .catch_unwind()
            .map(|served| Ok(served.unwrap_or_else(|_| serve::broke())))
    })
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.client_read.max(limits.keep_alive))
        .max_headers(limits.head_fields)
        .max_buf_size(limits.head_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(64 << 10)
        .initial_connection_window_size(1 << 20)
        .keep_alive_interval(Duration::from_secs(30));
    builder
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
