//! Accepts connections: those of clients and those of operators, within their limits.
//!
//! Nobody waits for a slot: who comes when all are taken, or when the process is out of file
//! descriptors, is answered with status 503.

use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::client::connection::{ClientIo, Peer, Transport};
use crate::client::sending::Requests;
use crate::config::NetworkLimits;
use crate::error::Error;
use crate::memory::Memory;

/// Clients that are told at once that there is no slot for them.
const AWAY: usize = 64;

/// Time to tell a client that there is no slot for it.
const TELL: Duration = Duration::from_secs(1);

/// The same, if no file descriptor is left: nobody else can be told meanwhile.
const TELL_LAST: Duration = Duration::from_millis(250);

/// Descriptors that may be opened for other uses than connections: files, the store, clients that are
/// sent away.
const RESERVED: usize = 192;

const NO_SLOT: &str = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
                       content-type: application/json\r\ncontent-length: 76\r\n\r\n\
                       {\"error\":{\"message\":\"endstop: too many connections; try again in a second\"}}";

/// Services for the connections of a listener.
pub(crate) trait Services: Send + Sync + 'static {
    /// The bodies of their responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static;

    /// Returns the service for a connection.
    fn service(
        &self,
        peer: Arc<Peer>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<Self::Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Send
    + 'static;

    /// Returns the limits for a new connection, and the most connections at once.
    fn limits(&self) -> (NetworkLimits, usize);

    /// Returns the protocols that are spoken.
    fn protocols(&self) -> Protocols;

    /// Returns the certificate of new connections; `None` for plain HTTP.
    fn tls(&self) -> Option<TlsAcceptor>;
}

/// Protocols of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocols {
    /// HTTP/1.1 and HTTP/2.
    All,
    /// HTTP/1.1.
    Http1,
}

/// Behaviour of open connections when the listener stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtStop {
    /// Requests under way may finish.
    Finish,
    /// Everything ends.
    End,
}

/// Accepts connections and serves them.
pub(crate) struct Acceptor<S> {
    pub(crate) services: S,
    /// Number of open connections.
    pub(crate) open: Arc<AtomicUsize>,
    /// Changes when the gateway stops. It is closed once all connections are.
    pub(crate) stop: watch::Receiver<()>,
    pub(crate) at_stop: AtStop,
    /// Bytes of unfinished heads.
    pub(crate) heads: Arc<Memory>,
}

impl<S: Services> Acceptor<S> {
    /// Accepts connections for ever.
    pub(crate) async fn run(self, listener: TcpListener) {
        let mut spare = spare();
        let away = Arc::new(Semaphore::new(AWAY));
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.open(stream, &away),
                Err(error) if is_out_of_descriptors(&error) && spare.take().is_some() => {
                    spare = self.accept_last(&listener, &away).await;
                }
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    spare = spare.or_else(self::spare);
                }
            }
        }
    }

    fn open(&self, stream: TcpStream, away: &Arc<Semaphore>) {
        let (limits, most) = self.services.limits();
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        let open = Open(self.open.clone());
        if before >= most {
            drop(open);
            return self.send_away(stream, away);
        }
        // Small frames must leave at once.
        let _ = stream.set_nodelay(true);
        let peer = Arc::new(Peer::of(&stream));
        let service = self.services.service(peer.clone());
        let driving = Driving {
            protocols: self.services.protocols(),
            limits,
            peer,
            stop: self.stop.clone(),
            at_stop: self.at_stop,
            heads: self.heads.clone(),
            _open: open,
        };
        match self.services.tls() {
            None => {
                tokio::spawn(driving.serve(stream, service));
            }
            Some(tls) => {
                tokio::spawn(async move {
                    let accepting = tls.accept(stream);
                    let accepted = tokio::time::timeout(driving.limits.tls, accepting).await;
                    if let Ok(Ok(stream)) = accepted {
                        driving.serve(stream, service).await;
                    }
                });
            }
        }
    }

    /// Tells a client that there is no slot for it.
    fn send_away(&self, stream: TcpStream, away: &Arc<Semaphore>) {
        let Ok(permit) = away.clone().try_acquire_owned() else {
            // They are too many to wait for. Over TLS, they are only closed.
            if self.services.tls().is_none() {
                let _ = stream.try_write(NO_SLOT.as_bytes());
            }
            return;
        };
        let telling = tell(stream, self.services.tls());
        tokio::spawn(async move {
            let _permit = permit;
            // A client that does not listen is closed all the same.
            let _ = tokio::time::timeout(TELL, telling).await;
        });
    }

    /// Accepts a client with the descriptor that the spare one has left, and tells it that there is no
    /// slot for it, unless another descriptor has become free. Returns the spare one.
    async fn accept_last(&self, listener: &TcpListener, away: &Arc<Semaphore>) -> Option<File> {
        if let Ok(Ok((stream, _))) = tokio::time::timeout(TELL_LAST, listener.accept()).await {
            if let Some(spare) = spare() {
                self.open(stream, away);
                return Some(spare);
            }
            // A client that does not listen is closed all the same.
            let _ = tokio::time::timeout(TELL_LAST, tell(stream, self.services.tls())).await;
        }
        spare()
    }
}

/// Counts an open connection while it lives.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a connection is served by.
struct Driving {
    protocols: Protocols,
    limits: NetworkLimits,
    peer: Arc<Peer>,
    stop: watch::Receiver<()>,
    at_stop: AtStop,
    heads: Arc<Memory>,
    _open: Open,
}

impl Driving {
    async fn serve<T, S, B>(mut self, stream: T, service: S)
    where
        T: Transport,
        S: Service<
                Request<Incoming>,
                Response = Response<B>,
                Error = Infallible,
                Future: Send + 'static,
            >,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
            + Send
            + 'static,
    {
        let builder = builder(&self.limits, self.protocols);
        let io = ClientIo::new(stream, self.peer.clone(), &self.limits, self.heads.begin());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        let mut expired = false;
        let connected = std::future::poll_fn(|cx| {
            loop {
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                if expired || !self.peer.is_expired() {
                    return Poll::Pending;
                }
                expired = true;
                connection.as_mut().graceful_shutdown();
            }
        });
        // How the connection ended is told of each request on it.
        tokio::select! {
            biased;
            () = connected => return,
            _ = self.stop.changed() => {}
        }
        if self.at_stop == AtStop::Finish {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

fn builder(limits: &NetworkLimits, protocols: Protocols) -> Builder<Requests> {
    // If no other is under way, the connection is closed before.
    let client_write = limits.client_write.saturating_mul(3) / 2;
    let mut builder = Builder::new(Requests { client_write });
    if protocols == Protocols::Http1 {
        builder = builder.http1_only();
    }
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

/// Answers a client for which there is no slot.
async fn tell(stream: TcpStream, tls: Option<TlsAcceptor>) {
    let Some(tls) = tls else { return say_no_slot(stream).await };
    let mut config = rustls::ServerConfig::clone(tls.config());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if let Ok(stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
        say_no_slot(stream).await;
    }
}

async fn say_no_slot(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    // Nobody is owed more than a try.
    let _ = stream.write_all(NO_SLOT.as_bytes()).await;
    let _ = stream.shutdown().await;
    // A connection that is closed before everything is read is reset, and the answer with it.
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
}

/// Opens a descriptor that is given up to answer a client when no other is left.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Reports whether the process, or the machine, has no free file descriptor.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

/// Allows the process as many file descriptors as the system lets it have, and returns their number.
pub(crate) fn raise_descriptors() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    // Where that is not permitted, it stays as it is.
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// The fewest descriptors with which the gateway starts: its own files, and some connections.
const LEAST: u64 = 128;

/// Checks that the process may open enough files.
///
/// # Errors
/// It may not.
pub(crate) fn check_descriptors(descriptors: Option<u64>) -> Result<(), Error> {
    let Some(all) = descriptors.filter(|all| *all < LEAST) else { return Ok(()) };
    let name = "ulimit -n".to_owned();
    let message = format!("the process may open {all} files at once, and needs at least {LEAST}");
    Err(Error::Setting { name, message })
}

/// Returns the most descriptors that the process may be allowed.
pub(crate) fn most_descriptors() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum
}

/// Returns the number of descriptors that the process has open: those of its own files, and those that it
/// inherited. Where the system does not tell, it is 0.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/dev/fd").map_or(0, Iterator::count)
}

/// Returns the most connections of clients for which there are descriptors beside those that are open:
/// each may need another one, for its upstream.
pub(crate) fn affordable(descriptors: Option<u64>, open: usize, admin: usize) -> usize {
    let Some(all) = descriptors.and_then(|all| usize::try_from(all).ok()) else {
        return usize::MAX;
    };
    let free = all.saturating_sub(open);
    let reserved = (RESERVED + admin).min(free / 2);
    (free - reserved) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_without_a_slot_is_whole() {
        let (head, body) = NO_SLOT.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }

    #[test]
    fn too_few_descriptors_are_refused() {
        assert!(check_descriptors(None).is_ok() && check_descriptors(Some(128)).is_ok());
        let error = check_descriptors(Some(16)).unwrap_err().to_string();
        assert!(error.starts_with("ulimit -n: the process may open 16 files"), "{error}");
    }

    #[test]
    fn connections_fit_into_the_descriptors() {
        assert_eq!(affordable(None, 30, 100), usize::MAX);
        assert_eq!(affordable(Some(20_292), 0, 100), 10_000);
        assert_eq!(affordable(Some(20_322), 30, 100), 10_000);
        assert_eq!(affordable(Some(256), 0, 100), 64);
        assert_eq!(affordable(Some(256), 56, 100), 50);
        assert_eq!(affordable(Some(256), 300, 100), 0);
        assert_eq!(affordable(Some(0), 0, 100), 0);
    }

    #[test]
    fn open_descriptors_are_counted() {
        let held: Vec<File> = (0..50).filter_map(|_| spare()).collect();
        assert!(open_descriptors() >= held.len());
    }
}
