//! HTTP. This is the only file that knows the HTTP library.

use std::collections::VecDeque;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use endstop::{Timer, TransportEnd, Unreachable};
use hyper::http::Extensions;
use hyper_util::client::legacy::connect::HttpInfo;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;
use crate::quota::QuotaMetadata;
use crate::target::{Target, TargetKey};

/// Time limits of a request.
///
/// ```
/// use std::time::Duration;
/// use endstop_client::Timeouts;
///
/// let patient = Timeouts { first_byte: Duration::from_secs(300), ..Timeouts::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time to open a connection. Default: 10 s.
    pub connect: Duration,
    /// Maximum time from the request to the head of its response. Default: 120 s.
    pub first_byte: Duration,
    /// Maximum time between two chunks. Default: 120 s.
    pub idle: Duration,
    /// Maximum time of a whole response. Default: 30 min.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(30 * 60),
        }
    }
}

/// Sends requests.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    timeouts: Timeouts,
    kept: KeptConnections,
}

/// Addresses of both ends of a connection.
type Ends = (SocketAddr, SocketAddr);

/// Connections over which a response has come: a request that is sent over one of them may find it closed.
#[derive(Clone, Debug, Default)]
struct KeptConnections(Arc<Mutex<VecDeque<Ends>>>);

/// Maximum number of connections that are remembered.
const MAX_KEPT: usize = 256;

impl KeptConnections {
    fn note(&self, info: &HttpInfo) {
        let ends = (info.local_addr(), info.remote_addr());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.contains(&ends) {
            return;
        }
        if kept.len() >= MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back(ends);
    }

    /// Reports whether the connection of an error had been used before, and forgets it.
    fn take(&self, error: &reqwest::Error) -> bool {
        let Some(info) = info_of(error) else { return false };
        let ends = (info.local_addr(), info.remote_addr());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|known| *known == ends);
        at.and_then(|at| kept.remove(at)).is_some()
    }
}

/// Returns the connection on which an error occurred.
fn info_of(error: &reqwest::Error) -> Option<HttpInfo> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            let mut extras = Extensions::new();
            error.connect_info()?.get_extras(&mut extras);
            return extras.get::<HttpInfo>().cloned();
        }
        cause = error.source();
    }
    None
}

/// The end of a connection on which no response began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoResponse {
    pub(crate) end: TransportEnd,
    /// Whether the server closed a connection that had been used before: it may not have seen the request.
    pub(crate) was_kept: bool,
}

impl From<TransportEnd> for NoResponse {
    fn from(end: TransportEnd) -> Self {
        Self { end, was_kept: false }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) target: &'a Target,
    /// Body, or `None` for a request that reads a stored response.
    pub(crate) body: Option<&'a str>,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(&'static str, &'static str)],
    /// Headers of the caller.
    pub(crate) own_headers: &'a [(String, String)],
    /// End of the turn's time.
    pub(crate) until: Instant,
}

/// A response whose head has arrived.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    /// Compression of the body, although the request asks for none; empty if there is none.
    pub(crate) encoding: String,
    pub(crate) quota: QuotaMetadata,
    body: reqwest::Response,
    idle: Duration,
    until: Instant,
    timer: Timer,
}

/// The next part of a body.
#[derive(Debug)]
pub(crate) enum Chunk {
    Data(Bytes),
    End(TransportEnd),
}

impl Transport {
    pub(crate) fn new(timeouts: Timeouts) -> Result<Self, Error> {
        let wrong = |error: &dyn std::fmt::Display| Error::Tls { message: error.to_string() };
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(timeouts.connect)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("endstop-client/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| wrong(&error))?;
        Ok(Self { http, timeouts, kept: KeptConnections::default() })
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// The end of the connection, if no response began.
    pub(crate) async fn send(&self, outgoing: &Outgoing<'_>) -> Result<Incoming, NoResponse> {
        let now = Instant::now();
        let total = now + self.timeouts.total;
        let (until, timer) = earlier((total, Timer::Total), (outgoing.until, Timer::Total));
        let request =
            self.request(outgoing).ok_or(TransportEnd::Unreachable(Unreachable::Other))?;
        let (head_until, head_timer) =
            earlier((now + self.timeouts.first_byte, Timer::FirstByte), (until, timer));
        match timeout_at(head_until, self.http.execute(request)).await {
            Err(_) => Err(TransportEnd::TimedOut(head_timer).into()),
            Ok(Err(error)) => {
                let end = end_of(&error);
                Err(NoResponse { end, was_kept: is_closed(&end) && self.kept.take(&error) })
            }
            Ok(Ok(body)) => {
                body.extensions()
                    .get::<HttpInfo>()
                    .into_iter()
                    .for_each(|info| self.kept.note(info));
                Ok(Incoming {
                    status: body.status().as_u16(),
                    content_type: header(body.headers(), &CONTENT_TYPE).to_owned(),
                    encoding: header(body.headers(), &CONTENT_ENCODING).to_owned(),
                    quota: quota(body.headers()),
                    body,
                    idle: self.timeouts.idle,
                    until,
                    timer,
                })
            }
        }
    }

    fn request(&self, outgoing: &Outgoing<'_>) -> Option<reqwest::Request> {
        let mut request = match outgoing.body {
            Some(body) => {
                let request = self.http.post(outgoing.url).body(body.to_owned());
                request.header(CONTENT_TYPE, "application/json")
            }
            None => self.http.get(outgoing.url),
        };
        // The body is read as it comes: a compressed one could not be.
        request = request.header(ACCEPT, "*/*").header(ACCEPT_ENCODING, "identity");
        for (name, value) in outgoing.headers {
            request = request.header(*name, *value);
        }
        for (name, value) in outgoing.own_headers {
            request = request.header(name, value);
        }
        let mut request = request.build().ok()?;
        match &outgoing.target.key {
            TargetKey::None => {}
            TargetKey::Header { name, prefix, key } => {
                let name = HeaderName::from_static(name);
                let text = zeroize::Zeroizing::new(format!("{prefix}{}", key.expose()));
                let mut value = HeaderValue::from_str(&text).ok()?;
                value.set_sensitive(true);
                request.headers_mut().insert(name, value);
            }
            TargetKey::Signed { credentials, region } => {
                let (method, uri) = (request.method().as_str(), request.url().as_str());
                let headers = std::iter::once((CONTENT_TYPE.as_str(), "application/json"));
                let body = outgoing.body.unwrap_or_default().as_bytes();
                let signed = credentials.sign(method, uri, headers, body, region).ok()?;
                for (name, value) in signed {
                    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                    request.headers_mut().insert(name, HeaderValue::from_str(&value).ok()?);
                }
            }
        }
        Some(request)
    }
}

impl Incoming {
    /// Waits for the next chunk. After an end, none follows.
    pub(crate) async fn chunk(&mut self) -> Chunk {
        let idle = (Instant::now() + self.idle, Timer::Idle);
        let (until, timer) = earlier(idle, (self.until, self.timer));
        match timeout_at(until, self.body.chunk()).await {
            Err(_) => Chunk::End(TransportEnd::TimedOut(timer)),
            Ok(Err(error)) => Chunk::End(end_of(&error)),
            Ok(Ok(Some(bytes))) => Chunk::Data(bytes),
            Ok(Ok(None)) => Chunk::End(TransportEnd::Eof),
        }
    }
}

/// Reports whether the server closed the connection.
fn is_closed(end: &TransportEnd) -> bool {
    matches!(end, TransportEnd::Reset | TransportEnd::Truncated)
}

fn earlier(one: (Instant, Timer), other: (Instant, Timer)) -> (Instant, Timer) {
    if other.0 < one.0 { other } else { one }
}

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn quota(headers: &HeaderMap) -> QuotaMetadata {
    let text = |(name, value): (&'_ HeaderName, &'_ HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    QuotaMetadata::from_headers(headers.iter().filter_map(text))
}

/// Returns the end of the connection that an error stands for.
fn end_of(error: &reqwest::Error) -> TransportEnd {
    let mut cause = error.source();
    let mut end = None;
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && error.is_incomplete_message()
        {
            end = Some(TransportEnd::Truncated);
        } else if error.downcast_ref::<rustls::Error>().is_some() {
            end = Some(TransportEnd::Unreachable(Unreachable::Tls));
        } else if let Some(error) = error.downcast_ref::<std::io::Error>() {
            end = of_io(error).or(end);
        } else if error.to_string().starts_with("dns error") {
            end = Some(TransportEnd::Unreachable(Unreachable::Dns));
        }
        cause = error.source();
    }
    match end {
        _ if error.is_connect() && error.is_timeout() => TransportEnd::TimedOut(Timer::Connect),
        Some(end @ TransportEnd::Unreachable(_)) if error.is_connect() => end,
        _ if error.is_connect() => TransportEnd::Unreachable(Unreachable::Other),
        Some(end) => end,
        None => TransportEnd::Reset,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the kinds of IO errors are an open list")]
fn of_io(error: &std::io::Error) -> Option<TransportEnd> {
    // The error that another one wraps is not its source.
    if let Some(inner) = error.get_ref() {
        if inner.is::<rustls::Error>() {
            return Some(TransportEnd::Unreachable(Unreachable::Tls));
        }
        if let Some(end) = inner.downcast_ref().and_then(of_io) {
            return Some(end);
        }
    }
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            Some(TransportEnd::Unreachable(Unreachable::Refused))
        }
        std::io::ErrorKind::UnexpectedEof => Some(TransportEnd::Truncated),
        std::io::ErrorKind::InvalidData => Some(TransportEnd::Unreachable(Unreachable::Tls)),
        _ => None,
    }
}
