//! Connections to upstreams: names, proxies, certificates, and what goes wrong with them.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use endstop::{Timer, TransportEnd, Unreachable};
use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::client::upload::UploadError;
use crate::config::NetworkLimits;
use crate::error::Error;
use crate::listener::is_out_of_descriptors;

/// An error of the client library.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error of a connection attempt.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NoConnection {
    /// End of the connection, as the ending reports it.
    pub close: TransportEnd,
    message: String,
}

/// Makes connections, directly or through the proxy that the environment names.
#[derive(Clone)]
pub(crate) struct Connector {
    http: HttpConnector<Resolver>,
    /// Connects to proxies, which the operator named: any address is fine.
    to_proxy: HttpConnector,
    tls: Arc<rustls::ClientConfig>,
    proxies: Arc<Matcher>,
    connect: Duration,
    handshake: Duration,
    reach: Reach,
    requests: Requests,
}

/// Addresses that the host of an upstream may have, by who named the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The operator: any address but those of metadata services.
    Operator,
    /// A built-in provider: not this machine. A name may lead into a private network, where clouds
    /// have private endpoints.
    Provider,
    /// A caller's path: public addresses only.
    Caller,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connector")
    }
}

impl Connector {
    /// A connector with these limits, for hosts within this reach.
    #[must_use]
    pub(crate) fn new(
        tls: Arc<rustls::ClientConfig>,
        proxies: Arc<Matcher>,
        limits: &NetworkLimits,
        reach: Reach,
        requests: Requests,
    ) -> Self {
        let resolver = Resolver { names: GaiResolver::new(), reach };
        Self {
            http: http(HttpConnector::new_with_resolver(resolver), limits),
            to_proxy: http(HttpConnector::new(), limits),
            tls,
            proxies,
            connect: limits.connect,
            handshake: limits.tls,
            reach,
            requests,
        }
    }
}

fn http<R>(mut http: HttpConnector<R>, limits: &NetworkLimits) -> HttpConnector<R> {
    http.set_connect_timeout(Some(limits.connect));
    http.set_nodelay(true);
    http.enforce_http(false);
    http
}

/// A connection to an upstream.
pub(crate) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

impl Service<Uri> for Connector {
    type Response = TokioIo<Conn>;
    type Error = NoConnection;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Conn>, NoConnection>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.tls.clone();
        // A connection, then a handshake: neither may take longer than both together.
        let limit = self.connect + self.handshake;
        let (http, to_proxy) = (self.http.clone(), self.to_proxy.clone());
        let proxy = self.proxies.intercept(&uri);
        let is_tls = uri.scheme_str() == Some("https");
        // An address is not looked up, so that the resolver never sees it.
        let blocked = literal(&uri).is_some_and(|ip| !is_allowed(ip, self.reach));
        let requests = self.requests.clone();
        Box::pin(async move {
            if blocked {
                return Err(no_connection(Unresolved::Blocked.into()));
            }
            let connecting = async {
                match proxy {
                    Some(proxy) if is_tls => {
                        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
                        if let Some(auth) = proxy.basic_auth() {
                            tunnel = tunnel.with_auth(auth.clone());
                        }
                        HttpsConnector::from((tunnel, tls)).call(uri).await.map_err(through_proxy)
                    }
                    Some(_) | None => {
                        HttpsConnector::from((http, tls)).call(uri).await.map_err(no_connection)
                    }
                }
            };
            match tokio::time::timeout(limit, connecting).await {
                Ok(result) => result.map(|stream| TokioIo::new(Conn::new(stream, requests))),
                Err(_) => Err(NoConnection {
                    close: TransportEnd::TimedOut(Timer::Connect),
                    message: "no connection in time".to_owned(),
                }),
            }
        })
    }
}

/// The most reads of a connection before other tasks run, and the bytes after which they do.
///
/// The client library reads as long as there is something to read, and skips informational responses: a
/// flood of them would keep a worker busy for megabytes, and 64 KiB hold two thousand of them.
const READS: u8 = 16;
const READ_BYTES: usize = 64 << 10;

/// Counts the requests to upstreams, so that each has a number and what comes over a connection can be
/// told to have come before or after a request began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    begun: AtomicU64,
}

impl Requests {
    /// Returns the number of a new request. The first is 1.
    pub(crate) fn begin(&self) -> u64 {
        self.0.begun.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Number of the newest request when the last byte came over a connection; 0 before the first byte.
#[derive(Clone, Debug, Default)]
struct LastByte(Arc<AtomicU64>);

impl LastByte {
    fn note(&self, requests: &Requests) {
        self.0.store(requests.0.begun.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Reports whether the upstream closed a kept connection instead of answering this request: bytes came
/// over the connection before the request began, and none since.
///
/// Upstreams may close a kept connection at any time, also while a request is on its way. On a new
/// connection, the same error comes from an upstream that fails at the request.
pub(crate) fn closed_when_kept(error: &hyper_util::client::legacy::Error, request: u64) -> bool {
    let is_closed = matches!(close_of(error), Some(TransportEnd::Truncated | TransportEnd::Reset));
    let Some(connected) = error.connect_info().filter(|_| is_closed) else { return false };
    let mut extras = hyper::http::Extensions::new();
    connected.get_extras(&mut extras);
    let last = extras.get::<LastByte>().map_or(0, |last| last.0.load(Ordering::Relaxed));
    last > 0 && last < request
}

/// A connection to an upstream.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: TokioIo<Stream>,
    /// Reads since there was nothing to read, and their bytes.
    reads: u8,
    read_bytes: usize,
    requests: Requests,
    last_byte: LastByte,
}

impl Conn {
    fn new(stream: Stream, requests: Requests) -> Self {
        let stream = TokioIo::new(stream);
        Self { stream, reads: 0, read_bytes: 0, requests, last_byte: LastByte::default() }
    }

    /// Returns the result of a write. If it failed, notes whether there is something to read: an upstream
    /// may answer, and close the connection before it has read the whole request.
    fn written(&self, polled: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        if matches!(polled, Poll::Ready(Err(_))) {
            let tcp = match self.stream.inner() {
                MaybeHttpsStream::Http(stream) => stream.inner(),
                MaybeHttpsStream::Https(stream) => stream.inner().get_ref().0.inner().inner(),
            };
            let mut space = [std::mem::MaybeUninit::uninit()];
            if socket2::SockRef::from(tcp).peek(&mut space).is_ok_and(|read| read > 0) {
                self.last_byte.note(&self.requests);
            }
        }
        polled
    }
}

impl Connection for Conn {
    /// The library copies what is added here into every response. Nobody needs the addresses that it
    /// adds itself.
    fn connected(&self) -> Connected {
        let stream = self.stream.inner().connected();
        let own = Connected::new().proxy(stream.is_proxied()).extra(self.last_byte.clone());
        if stream.is_negotiated_h2() { own.negotiated_h2() } else { own }
    }
}

impl AsyncRead for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.reads == READS || self.read_bytes >= READ_BYTES {
            (self.reads, self.read_bytes) = (0, 0);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = buffer.filled().len() - before;
        if read > 0 {
            self.last_byte.note(&self.requests);
        }
        (self.reads, self.read_bytes) = match polled {
            Poll::Ready(_) => (self.reads + 1, self.read_bytes + read),
            Poll::Pending => (0, 0),
        };
        polled
    }
}

impl AsyncWrite for Conn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.written(polled)
    }
}

/// Resolves names and leaves out addresses that are not allowed.
#[derive(Clone, Debug)]
struct Resolver {
    names: GaiResolver,
    reach: Reach,
}

#[derive(Debug, thiserror::Error)]
enum Unresolved {
    #[error("the name does not resolve")]
    Unknown,
    #[error("the address is not allowed")]
    Blocked,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Unresolved>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let looking = self.names.call(name);
        let reach = self.reach;
        Box::pin(async move {
            let all: Vec<SocketAddr> = looking.await.map_err(|_| Unresolved::Unknown)?.collect();
            let known = !all.is_empty();
            let allowed: Vec<SocketAddr> =
                all.into_iter().filter(|address| is_allowed(address.ip(), reach)).collect();
            match (allowed.is_empty(), known) {
                (false, _) => Ok(allowed.into_iter()),
                (true, true) => Err(Unresolved::Blocked),
                (true, false) => Err(Unresolved::Unknown),
            }
        })
    }
}

/// Reports whether a host within this reach may have this address. It is asked after every lookup, so
/// that a name cannot be made to lead elsewhere later.
#[must_use]
pub(crate) fn is_allowed(ip: IpAddr, reach: Reach) -> bool {
    let ip = unwrapped(ip);
    if is_metadata(ip) {
        return false;
    }
    match reach {
        Reach::Operator => true,
        Reach::Provider => !(ip.is_loopback() || ip.is_unspecified()),
        Reach::Caller => match ip {
            IpAddr::V4(ip) => is_public_v4(ip),
            IpAddr::V6(ip) => is_public_v6(ip),
        },
    }
}

/// Returns the IPv4 address within an IPv6 address that leads to one.
fn unwrapped(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        // This machine and no address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => ip,
        // Mapped, compatible and translated addresses, and those of NAT64 and 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        _ => ip,
    }
}

/// Link-local addresses are never a provider's: the metadata services of clouds are there.
fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local()
                || ip.is_multicast()
                || ip.segments().starts_with(&[0xfd00, 0xec2])
        }
    }
}

/// Reports whether an address is none of those that the IANA reserves for special purposes.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    let reserved = match ip.octets() {
        // This network, shared addresses of carriers, protocols, benchmarks, and what is not in use.
        [0, ..] | [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18 | 19, ..] | [240..=255, ..] => {
            true
        }
        _ => false,
    };
    !(reserved
        || ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_documentation()
        || ip.is_multicast())
}

/// Reports whether an address is among those that are assigned to the internet, and none of the
/// reserved ones among them.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // Teredo and other protocols, and documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Returns the IP address of a URI that has one instead of a name.
fn literal(uri: &Uri) -> Option<IpAddr> {
    uri.host()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn through_proxy(cause: Cause) -> NoConnection {
    let found = no_connection(cause);
    if found.close == TransportEnd::Unreachable(Unreachable::Other) {
        return NoConnection { close: TransportEnd::Unreachable(Unreachable::Proxy), ..found };
    }
    found
}

fn no_connection(cause: Cause) -> NoConnection {
    let close = close_of(cause.as_ref()).unwrap_or(TransportEnd::Unreachable(Unreachable::Other));
    NoConnection { close, message: cause.to_string() }
}

/// Returns the end of the connection that the causes of an error name.
#[must_use]
pub(crate) fn close_of(error: &(dyn std::error::Error + 'static)) -> Option<TransportEnd> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(known) = known_close(error) {
            return Some(known);
        }
        // An error of IO hides its own cause.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(inner) = inner
            && let Some(known) = close_of(inner)
        {
            return Some(known);
        }
        cause = error.source();
    }
    None
}

fn known_close(error: &(dyn std::error::Error + 'static)) -> Option<TransportEnd> {
    if let Some(found) = error.downcast_ref::<NoConnection>() {
        return Some(found.close);
    }
    if let Some(unresolved) = error.downcast_ref::<Unresolved>() {
        return Some(TransportEnd::Unreachable(match unresolved {
            Unresolved::Unknown => Unreachable::Dns,
            Unresolved::Blocked => Unreachable::Blocked,
        }));
    }
    if error.is::<UploadError>() {
        return Some(TransportEnd::ClientGone);
    }
    if error.is::<rustls::Error>() {
        return Some(TransportEnd::Unreachable(Unreachable::Tls));
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>()
        && error.is_incomplete_message()
    {
        return Some(TransportEnd::Truncated);
    }
    use std::io::ErrorKind;
    let error = error.downcast_ref::<std::io::Error>()?;
    if is_out_of_descriptors(error) {
        return Some(TransportEnd::Unreachable(Unreachable::Exhausted));
    }
    let kind = error.kind();
    let known = [
        (ErrorKind::ConnectionRefused, TransportEnd::Unreachable(Unreachable::Refused)),
        (ErrorKind::TimedOut, TransportEnd::TimedOut(Timer::Connect)),
        (ErrorKind::ConnectionReset, TransportEnd::Reset),
        (ErrorKind::BrokenPipe, TransportEnd::Reset),
        (ErrorKind::UnexpectedEof, TransportEnd::Truncated),
    ];
    known.into_iter().find(|(known, _)| *known == kind).map(|(_, close)| close)
}

/// Returns the TLS settings for upstreams, with the system's root certificates and those of the file.
///
/// # Errors
/// [`Error::Certificate`] if the file cannot be read or holds none.
pub(crate) fn client_tls(extra_ca: Option<&Path>) -> Result<Arc<rustls::ClientConfig>, Error> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that cannot be read is not trusted; the others are.
        let _ = roots.add(certificate);
    }
    if let Some(file) = extra_ca {
        let added = roots.add_parsable_certificates(certificates(file)?).0;
        if added == 0 {
            return Err(Error::Certificate {
                file: file.display().to_string(),
                message: "it holds no certificate in PEM form".to_owned(),
            });
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Certificate { file: "TLS".to_owned(), message: error.to_string() })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the error about a PEM file.
pub(crate) fn unreadable(file: &Path, error: &rustls_pki_types::pem::Error) -> Error {
    use rustls_pki_types::pem::Error as Pem;
    let message = match error {
        Pem::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "the file does not exist".to_owned()
        }
        Pem::Io(error) => error.to_string(),
        Pem::NoItemsFound => "it has no private key in PEM format".to_owned(),
        Pem::MissingSectionEnd { .. }
        | Pem::IllegalSectionStart { .. }
        | Pem::Base64Decode(_)
        | Pem::SectionTooLarge
        | _ => "it is not a valid PEM file".to_owned(),
    };
    Error::Unreadable { file: file.display().to_string(), message }
}

/// The certificates in a PEM file.
pub(crate) fn certificates(
    file: &Path,
) -> Result<Vec<rustls_pki_types::CertificateDer<'static>>, Error> {
    use rustls_pki_types::pem::PemObject as _;
    let wrong = |error| unreadable(file, &error);
    rustls_pki_types::CertificateDer::pem_file_iter(file)
        .map_err(wrong)?
        .collect::<Result<_, _>>()
        .map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_read_in_turn_with_other_tasks() {
        // Small reads are counted, and so are the bytes of large ones.
        assert_eq!(most_at_once(1000, 10).await, 10 * usize::from(READS));
        let each = READ_BYTES / 2;
        assert!(most_at_once(8 * READ_BYTES, each).await < READ_BYTES + each);
    }

    /// Returns the most bytes of a flood of this size that are read before other tasks run.
    async fn most_at_once(size: usize, each: usize) -> usize {
        use tokio::io::AsyncWriteExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        tokio::spawn(async move { server.write_all(&vec![b'x'; size]).await.unwrap() });
        // All that the socket takes is there.
        client.readable().await.unwrap();
        let stream = MaybeHttpsStream::Http(TokioIo::new(client));
        let mut conn = Conn::new(stream, Requests::default());
        let (mut read, mut most, mut in_turn) = (0, 0, 0);
        std::future::poll_fn(|cx| {
            in_turn = 0;
            while read < size {
                let mut space = vec![0; each];
                let mut buffer = ReadBuf::new(&mut space);
                std::task::ready!(Pin::new(&mut conn).poll_read(cx, &mut buffer)).unwrap();
                read += buffer.filled().len();
                in_turn += buffer.filled().len();
                most = most.max(in_turn);
            }
            Poll::Ready(())
        })
        .await;
        assert_eq!(read, size);
        most
    }

    /// An upstream answers, and closes the connection while the request is still being written.
    #[tokio::test]
    async fn a_byte_that_was_not_read_before_a_failed_write_is_noted() {
        use tokio::io::AsyncWriteExt as _;
        for answer in [&b""[..], b"H"] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let requests = Requests::default();
            requests.begin();
            let mut conn =
                Conn::new(MaybeHttpsStream::Http(TokioIo::new(client)), requests.clone());
            conn.write_all(b"x").await.unwrap();
            server.readable().await.unwrap();
            server.write_all(answer).await.unwrap();
            // What was not read resets the connection.
            drop(server);
            while conn.write_all(b"x").await.is_ok() {
                tokio::task::yield_now().await;
            }
            let noted = conn.last_byte.0.load(Ordering::Relaxed);
            assert_eq!(noted, u64::from(!answer.is_empty()));
        }
    }

    #[test]
    fn addresses_that_no_provider_has_are_blocked() {
        let allowed = |ip: &str, reach| is_allowed(ip.parse().unwrap(), reach);
        let check = |ips: &[&str], operator, provider, caller| {
            for ip in ips {
                assert_eq!(allowed(ip, Reach::Operator), operator, "{ip}");
                assert_eq!(allowed(ip, Reach::Provider), provider, "{ip}");
                assert_eq!(allowed(ip, Reach::Caller), caller, "{ip}");
            }
        };
        let metadata = [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "fe80::1",
            "fd00:ec2::254",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ];
        check(&metadata, false, false, false);
        check(
            &["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"],
            true,
            false,
            false,
        );
        check(&["::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"], true, false, false);
        let private = [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:c0a8:101::",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "0.1.2.3",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "240.0.0.1",
            "fc00::1",
            "fd12:3456::1",
            "fec0::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
            "64:ff9b:1::1",
            "5f00::1",
        ];
        check(&private, true, true, false);
        let public = [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ];
        check(&public, true, true, true);
    }
}
