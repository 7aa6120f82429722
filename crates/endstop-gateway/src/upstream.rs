//! Requests to upstreams: what is sent, with which key, over which connection.

pub(crate) mod connect;
pub(crate) mod hide;
pub(crate) mod sign;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use endstop::provider::Auth;
use endstop::{Timer, TransportEnd};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use crate::admit::Refused;
use crate::callers::{drop_query, drop_token};
use crate::client::headers::strip;
use crate::client::upload::{Upload, UploadError};
use crate::config::{Config, NetworkLimits, Secret};
use crate::error::Error;
use crate::route::{Routed, Upstream};
use connect::{Connector, Reach, Requests, client_tls, close_of, closed_when_kept};
use hide::Hiding;

/// The body of a request to an upstream.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// All of it.
    Whole(Option<Bytes>),
    /// A large one, sent piece by piece, so that it shows how far it is.
    Large(Bytes, Progress),
    /// The client's body, passed on as it arrives. In a box: most bodies are whole, and small.
    Passed(Box<Upload>, Progress),
}

/// Size of the pieces of large bodies.
const PIECE: usize = 64 << 10;

/// Time at which a body last went on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<Option<Instant>>>);

impl Progress {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestBody {
    /// Returns the body of a request that is there as a whole.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        if bytes.len() > PIECE {
            Self::Large(bytes, Progress::default())
        } else {
            Self::Whole(Some(bytes))
        }
    }

    /// Returns a client's body, to be passed on as it arrives.
    pub(crate) fn passed(body: Upload) -> Self {
        Self::Passed(Box::new(body), Progress::default())
    }

    /// Returns the bytes that are there.
    fn bytes(&self) -> Bytes {
        match self {
            Self::Whole(bytes) => bytes.clone().unwrap_or_default(),
            Self::Large(bytes, _) => bytes.clone(),
            Self::Passed(..) => Bytes::new(),
        }
    }

    fn progress(&self) -> Option<Progress> {
        match self {
            Self::Whole(_) => None,
            Self::Large(_, progress) | Self::Passed(_, progress) => Some(progress.clone()),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Large(bytes, progress) => {
                progress.note();
                let piece = bytes.split_to(bytes.len().min(PIECE));
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Self::Passed(body, progress) => {
                let frame = Pin::new(body).poll_frame(cx);
                if frame.is_ready() {
                    progress.note();
                }
                frame
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Large(bytes, _) => bytes.is_empty(),
            Self::Passed(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Large(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Self::Passed(body, _) => body.size_hint(),
        }
    }
}

/// The body of an upstream's response.
///
/// With [`Clients::ask`], this is the seam between the gateway and the library that speaks HTTP to
/// upstreams: nothing else reads a response, and nothing else knows how its connection ended.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    Http(Incoming),
    /// The same, with the gateway's own secrets hidden.
    Hiding(Box<Hiding>),
    #[cfg(test)]
    Scripted(script::Script),
}

/// The next part of a response.
#[derive(Debug)]
pub(crate) enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
    End(TransportEnd),
}

impl ResponseBody {
    /// Polls for the next part. After an end, none follows.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Part> {
        let body = match self {
            Self::Http(body) => body,
            Self::Hiding(hiding) => return hiding.poll_part(cx),
            #[cfg(test)]
            Self::Scripted(script) => return script.poll_part(cx),
        };
        Pin::new(body).poll_frame(cx).map(part_of)
    }

    /// Waits for the next part.
    pub(crate) async fn part(&mut self) -> Part {
        std::future::poll_fn(|cx| self.poll_part(cx)).await
    }

    /// Reports whether nothing follows, trailers included.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_end_stream(),
            Self::Hiding(hiding) => hiding.is_end_stream(),
            #[cfg(test)]
            Self::Scripted(_) => false,
        }
    }

    /// Returns the number of bytes that follow, as far as it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Hiding(hiding) => hiding.size_hint(),
            #[cfg(test)]
            Self::Scripted(_) => SizeHint::default(),
        }
    }
}

fn part_of(next: Option<Result<Frame<Bytes>, hyper::Error>>) -> Part {
    match next {
        None => Part::End(TransportEnd::Eof),
        Some(Err(error)) => Part::End(close_of(&error).unwrap_or(TransportEnd::Reset)),
        Some(Ok(frame)) => match frame.into_data() {
            Ok(bytes) => Part::Data(bytes),
            Err(frame) => Part::Trailers(frame.into_trailers().unwrap_or_default()),
        },
    }
}

/// Returns a response as the rest of the gateway sees it: without the gateway's own secrets.
fn received(response: Response<Incoming>, upstream: &Upstream) -> Response<ResponseBody> {
    let Some(hider) = upstream.secrets.hider() else {
        return response.map(ResponseBody::Http);
    };
    let (mut parts, body) = response.into_parts();
    let body = Hiding::new(body, hider, &mut parts.headers);
    Response::from_parts(parts, ResponseBody::Hiding(Box::new(body)))
}

/// Responses that come at given times, for tests in virtual time.
#[cfg(test)]
pub(crate) mod script {
    use std::collections::VecDeque;
    use std::future::Future as _;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use bytes::Bytes;
    use endstop::TransportEnd;
    use tokio::time::Sleep;

    use super::Part;

    #[derive(Debug)]
    pub(crate) struct Script {
        parts: VecDeque<(Duration, Bytes)>,
        wait: Option<Pin<Box<Sleep>>>,
    }

    impl Script {
        /// Sends each text after a wait, and then ends.
        pub(crate) fn new(parts: impl IntoIterator<Item = (Duration, impl Into<Bytes>)>) -> Self {
            let parts = parts.into_iter().map(|(wait, bytes)| (wait, bytes.into())).collect();
            Self { parts, wait: None }
        }

        pub(super) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Part> {
            let Some((wait, _)) = self.parts.front() else {
                return Poll::Ready(Part::End(TransportEnd::Eof));
            };
            let wait = *wait;
            let sleep = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
            ready!(sleep.as_mut().poll(cx));
            self.wait = None;
            let (_, bytes) = self.parts.pop_front().unwrap();
            Poll::Ready(Part::Data(bytes))
        }
    }
}

type HttpClient = Client<Connector, RequestBody>;

/// HTTP clients with pools of connections to upstreams.
#[derive(Clone, Debug)]
pub struct Clients {
    kept: Pools,
    /// The same without pools: each request has a new connection.
    fresh: Pools,
    requests: Requests,
    first_byte: Duration,
    total: Duration,
}

#[derive(Clone, Debug)]
struct Pools {
    provider: HttpClient,
    caller: HttpClient,
    operator: HttpClient,
    h2c: HttpClient,
}

impl Pools {
    fn of(&self, upstream: &Upstream) -> &HttpClient {
        match (upstream.h2c, upstream.reach()) {
            (true, Reach::Operator) => &self.h2c,
            (false, Reach::Operator) => &self.operator,
            (_, Reach::Provider) => &self.provider,
            (_, Reach::Caller) => &self.caller,
        }
    }
}

/// Connection for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// One that was kept, or else a new one.
    Kept,
    /// A new one.
    New,
}

/// Why no response began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    /// End of the connection.
    pub(crate) close: TransportEnd,
    /// Whether the upstream closed a kept connection and sent nothing: the request may be sent once more,
    /// on a new connection.
    pub(crate) closed_when_kept: bool,
}

impl From<TransportEnd> for Unanswered {
    fn from(close: TransportEnd) -> Self {
        Self { close, closed_when_kept: false }
    }
}

impl Clients {
    /// Creates the clients of a configuration, with the proxies that the environment names.
    ///
    /// # Errors
    /// [`Error::Certificate`] if the extra certificates cannot be read.
    pub fn new(config: &Config) -> Result<Self, Error> {
        Self::with_proxies(config, Matcher::from_env())
    }

    fn with_proxies(config: &Config, proxies: Matcher) -> Result<Self, Error> {
        let tls = client_tls(config.extra_ca.as_deref())?;
        let limits = &config.limits;
        let proxies = Arc::new(proxies);
        let requests = Requests::default();
        let pools = |most_idle: usize| {
            let connector = |reach| {
                Connector::new(tls.clone(), proxies.clone(), limits, reach, requests.clone())
            };
            let mut builder = builder(limits);
            builder.pool_max_idle_per_host(most_idle);
            Pools {
                provider: builder.build(connector(Reach::Provider)),
                caller: builder.build(connector(Reach::Caller)),
                operator: builder.build(connector(Reach::Operator)),
                h2c: builder.http2_only(true).build(connector(Reach::Operator)),
            }
        };
        Ok(Self {
            kept: pools(usize::MAX),
            fresh: pools(0),
            requests,
            first_byte: limits.first_byte,
            total: limits.total,
        })
    }

    /// Sends a request and waits for the head of the response. The time for it counts from the last
    /// piece of the request that was sent.
    ///
    /// # Errors
    /// The end of the connection, if no response began.
    pub(crate) async fn ask(
        &self,
        upstream: &Upstream,
        request: Request<RequestBody>,
        over: Over,
    ) -> Result<Response<ResponseBody>, Unanswered> {
        let client = match over {
            Over::Kept => self.kept.of(upstream),
            Over::New => self.fresh.of(upstream),
        };
        let number = self.requests.begin();
        let progress = request.body().progress();
        let began = Instant::now();
        let due = || {
            let sent = progress.as_ref().and_then(Progress::last).unwrap_or(began);
            let (first_byte, total) = (sent + self.first_byte, began + self.total);
            if total < first_byte { (total, Timer::Total) } else { (first_byte, Timer::FirstByte) }
        };
        let mut asking = std::pin::pin!(client.request(request));
        let (mut until, mut timer) = due();
        loop {
            match tokio::time::timeout_at(until, asking.as_mut()).await {
                // Nobody asked for another protocol.
                Ok(Ok(response)) if response.status().is_informational() => {
                    return Err(TransportEnd::Reset.into());
                }
                Ok(Ok(response)) => return Ok(received(response, upstream)),
                Ok(Err(error)) => {
                    return Err(Unanswered {
                        close: close_of(&error).unwrap_or(TransportEnd::Reset),
                        closed_when_kept: closed_when_kept(&error, number),
                    });
                }
                Err(_) if due().0 <= until => return Err(TransportEnd::TimedOut(timer).into()),
                // The upload went on meanwhile.
                Err(_) => (until, timer) = due(),
            }
        }
    }
}

/// Time after which a silent HTTP/2 connection is asked whether it is alive, and the time for its
/// answer. They are shorter where the first byte of a response must come sooner.
const PING: Duration = Duration::from_secs(15);
const PING_LEAST: Duration = Duration::from_millis(500);
const PONG: Duration = Duration::from_secs(20);
const PONG_LEAST: Duration = Duration::from_secs(1);

fn builder(limits: &NetworkLimits) -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .http1_max_buf_size(limits.head_bytes.max(64 << 10))
        .http2_initial_stream_window_size(64 << 10)
        // Otherwise every request would wait on a connection whose other side is gone.
        .http2_keep_alive_interval((limits.first_byte / 4).clamp(PING_LEAST, PING))
        .http2_keep_alive_timeout((limits.first_byte / 4).clamp(PONG_LEAST, PONG))
        .http2_keep_alive_while_idle(true)
        // Many clients share a connection, and one that reads slowly must not stop the others: there
        // is room for a full window of each. h2 also closes a connection on which too many small
        // frames wait, and derives the limit from this.
        .http2_initial_connection_window_size(16 << 20);
    builder
}

/// The head of a request to an upstream: the caller's, without the headers of its connection and the
/// access token.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    head: Request<()>,
    /// Whether it can be sent again. A copy of the headers costs allocations.
    is_kept: bool,
    /// The customer's part of the host, such as the region.
    customer: String,
}

impl Outgoing {
    /// Returns the head of a caller's request, for the address that it was routed to.
    pub(crate) fn new(
        routed: Routed<'_>,
        token: Option<&Secret>,
        method: Method,
        mut headers: HeaderMap,
    ) -> Self {
        strip(&mut headers);
        headers.remove(header::HOST);
        headers.remove(header::EXPECT);
        join_cookies(&mut headers);
        let mut head = Request::new(());
        *head.method_mut() = method;
        *head.uri_mut() = routed.uri;
        *head.headers_mut() = headers;
        if let Some(token) = token {
            drop_token(&mut head, token);
        }
        Self { head, is_kept: false, customer: routed.customer }
    }

    /// Says whether it must be possible to send it again.
    #[must_use]
    pub(crate) fn kept(self, is_kept: bool) -> Self {
        Self { is_kept, ..self }
    }

    /// Reports whether it can be sent again.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns the path at the upstream.
    pub(crate) fn path(&self) -> &str {
        self.head.uri().path()
    }

    /// Returns the request: with the gateway's own key if there is one, and signed anew if it was signed.
    pub(crate) fn request(
        &mut self,
        upstream: &Upstream,
        body: RequestBody,
    ) -> Result<Request<RequestBody>, Refused> {
        let head = if self.is_kept { self.head.clone() } else { std::mem::take(&mut self.head) };
        let mut request = head.map(|()| body);
        match request.body() {
            RequestBody::Whole(_) | RequestBody::Large(..) => {
                request.headers_mut().remove(header::CONTENT_LENGTH);
            }
            RequestBody::Passed(..) => {}
        }
        if let Some(key) = &upstream.key {
            show_key(&mut request, upstream.provider.auth, key.expose())?;
        }
        if !upstream.secrets.is_empty() {
            // A secret cannot be hidden in a compressed body.
            let identity = HeaderValue::from_static("identity");
            request.headers_mut().insert(header::ACCEPT_ENCODING, identity);
        }
        if matches!(upstream.provider.auth, Auth::SigV4 { .. }) {
            let shown = request.headers().get(header::AUTHORIZATION);
            let signed = shown.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"));
            if signed || shown.is_none() && upstream.credentials.is_some() {
                return self.sign(upstream, request);
            }
        }
        Ok(request)
    }

    /// Signs a request for the upstream's host. A caller's signature is for the gateway's host.
    fn sign(
        &self,
        upstream: &Upstream,
        mut request: Request<RequestBody>,
    ) -> Result<Request<RequestBody>, Refused> {
        let Some(credentials) = &upstream.credentials else {
            let message = "endstop: a signed request cannot be passed on: give the gateway AWS \
                           credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or use a bearer key \
                           (AWS_BEARER_TOKEN_BEDROCK)";
            return Err(Refused::new(StatusCode::UNAUTHORIZED, "endstop_cannot_sign", message));
        };
        for name in ["authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"]
        {
            request.headers_mut().remove(name);
        }
        let body = request.body().bytes();
        let region = if self.customer.is_empty() { "us-east-1" } else { &self.customer };
        sign::sign(credentials, &mut request, &body, region).map_err(|_| {
            // The signer's message could hold a part of the request.
            let message = "endstop: the request cannot be signed: check its path and its headers";
            Refused::new(StatusCode::BAD_REQUEST, "endstop_cannot_sign", message)
        })?;
        Ok(request)
    }
}

/// Joins the cookies that HTTP/2 sends as several headers: over HTTP/1.1 there is one (RFC 9113, section
/// 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let several = headers.get_all(header::COOKIE);
    if several.iter().nth(1).is_none() {
        return;
    }
    let cookies: Vec<&[u8]> = several.iter().map(HeaderValue::as_bytes).collect();
    if let Ok(mut joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..])) {
        joined.set_sensitive(true);
        headers.insert(header::COOKIE, joined);
    }
}

/// Replaces the caller's key by the gateway's own.
fn show_key(request: &mut Request<RequestBody>, auth: Auth, key: &str) -> Result<(), Refused> {
    let value = |text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            let message = "endstop: the gateway's key for this upstream cannot be sent as a header";
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "endstop_bad_key", message)
        })?;
        value.set_sensitive(true);
        Ok(value)
    };
    let headers = request.headers_mut();
    headers.remove(header::AUTHORIZATION);
    match auth {
        // Servers without keys of their own may stand behind a proxy that wants one.
        Auth::Bearer | Auth::SigV4 { .. } | Auth::Open => {
            headers.insert(header::AUTHORIZATION, value(&format!("Bearer {key}"))?);
        }
        Auth::Header(name) => {
            headers.insert(HeaderName::from_static(name), value(key)?);
        }
        Auth::HeaderOrQuery(name, parameter) => {
            headers.insert(HeaderName::from_static(name), value(key)?);
            drop_query(request, |pair| pair.split('=').next() == Some(parameter));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::route::Routes;

    /// Listens on this machine.
    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Answers one request over TLS.
    async fn tls_server(names: &[&str]) -> (SocketAddr, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let private = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let (listener, address) = listen().await;
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
            let stream = listener.accept().await.unwrap().0;
            let mut stream = BufReader::new(acceptor.accept(stream).await.unwrap());
            read_head(&mut stream).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
            read_head(&mut stream).await;
        });
        (address, certificate.pem())
    }

    async fn read_head(stream: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                break;
            }
        }
        head
    }

    /// Connects whoever asks to this address; returns the head of the request.
    async fn connect_proxy(to: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let (listener, address) = listen().await;
        let asked = tokio::spawn(async move {
            let mut client = BufReader::new(listener.accept().await.unwrap().0);
            let head = read_head(&mut client).await;
            let mut server = TcpStream::connect(to).await.unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            tokio::spawn(
                async move { tokio::io::copy_bidirectional(&mut client, &mut server).await },
            );
            head
        });
        (address, asked)
    }

    fn config(text: &str) -> Config {
        Config::from_toml("t", &format!("store = 'off'\n{text}")).unwrap()
    }

    fn get(routes: &Routes, path: &str) -> Request<RequestBody> {
        let routed = routes.find(&path.parse().unwrap()).unwrap();
        let upstream = routed.upstream;
        let mut outgoing = Outgoing::new(routed, None, Method::GET, HeaderMap::new());
        outgoing.request(upstream, RequestBody::Whole(None)).unwrap()
    }

    #[tokio::test]
    async fn a_proxy_may_be_on_this_machine() {
        let (server, pem) = tls_server(&["api.openai.com"]).await;
        let (proxy, asked) = connect_proxy(server).await;
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), pem).unwrap();
        let config = config(&format!("extra_ca = '{}'", ca.path().display()));
        let routes = Routes::new(&config).unwrap();
        // By its name: an address would not be looked up.
        let url = format!("http://localhost:{}", proxy.port());
        let proxies = Matcher::builder().https(url).build();
        let clients = Clients::with_proxies(&config, proxies).unwrap();
        let upstream = routes.find(&"/openai/v1/models".parse().unwrap()).unwrap().upstream;
        let answer =
            clients.ask(upstream, get(&routes, "/openai/v1/models"), Over::Kept).await.unwrap();
        let mut body = answer.into_body();
        let Part::Data(body) = body.part().await else { panic!("no body") };
        assert_eq!(body, "hi");
        let head = asked.await.unwrap();
        assert!(head.starts_with("CONNECT api.openai.com:443 "), "{head}");
    }

    /// Asks twice, and returns the statuses.
    async fn ask_twice(clients: &Clients, routes: &Routes) -> [Result<StatusCode, Unanswered>; 2] {
        let upstream = routes.upstream("near").unwrap();
        let ask = || async {
            let asked = clients.ask(upstream, get(routes, "/near/v1/models"), Over::Kept).await;
            asked.map(|response| response.status())
        };
        [ask().await, ask().await]
    }

    #[tokio::test]
    async fn a_dead_http2_connection_is_not_used_again() {
        let (listener, address) = listen().await;
        let server = tokio::spawn(async move {
            // Its settings come, and then nothing.
            let mut dead = listener.accept().await.unwrap().0;
            dead.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            let stream = listener.accept().await.unwrap().0;
            let service = hyper::service::service_fn(|_| async {
                Ok::<_, hyper::Error>(Response::new(http_body_util::Empty::<Bytes>::new()))
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = http.serve_connection(io, service).await;
            drop(dead);
        });
        let text = "[limits]\nfirst_byte='2s'\n[upstreams.near]\nlike='openai'\nh2c=true\n\
                    base_url='http://127.0.0.1:PORT/v1'";
        let config = config(&text.replace("PORT", &address.port().to_string()));
        let routes = Routes::new(&config).unwrap();
        let clients = Clients::with_proxies(&config, Matcher::builder().build()).unwrap();
        let [first, second] = ask_twice(&clients, &routes).await;
        assert!(first.is_err(), "{first:?}");
        assert_eq!(second, Ok(StatusCode::OK));
        server.abort();
    }

    #[tokio::test]
    async fn the_own_key_never_comes_back() {
        const KEY: &str = "sk-canary-of-the-gateway";
        let (listener, address) = listen().await;
        tokio::spawn(async move {
            use std::io::Write as _;
            loop {
                let mut stream = BufReader::new(listener.accept().await.unwrap().0);
                let head = read_head(&mut stream).await;
                assert!(head.contains("accept-encoding: identity"), "{head}");
                let text = format!("wrong key {KEY}, {KEY}");
                let gzipped = head.contains("/gzip");
                let body = if gzipped {
                    let mut gzip =
                        flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    gzip.write_all(text.as_bytes()).unwrap();
                    gzip.finish().unwrap()
                } else {
                    text.into_bytes()
                };
                let encoding = if gzipped { "content-encoding: gzip\r\n" } else { "" };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nx-echo: of {KEY}\r\n{encoding}connection: close\r\n\
                     content-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                for piece in body.chunks(7) {
                    stream.write_all(piece).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key.path(), KEY).unwrap();
        let text = "[upstreams.near]\nlike='openai'\nkey_file='KEY'\n\
                    base_url='http://127.0.0.1:PORT/v1'";
        let text = text.replace("PORT", &address.port().to_string());
        let config = config(&text.replace("KEY", &key.path().display().to_string()));
        let routes = Routes::new(&config).unwrap();
        let clients = Clients::with_proxies(&config, Matcher::builder().build()).unwrap();
        let upstream = routes.upstream("near").unwrap();
        for path in ["/near/v1/embeddings", "/near/v1/gzip"] {
            let answer = clients.ask(upstream, get(&routes, path), Over::Kept).await.unwrap();
            assert_eq!(answer.headers()["x-echo"], "of ************************");
            assert!(!answer.headers().contains_key("content-encoding"));
            let (mut body, mut text) = (answer.into_body(), Vec::new());
            while let Part::Data(bytes) = body.part().await {
                text.extend_from_slice(&bytes);
            }
            let want = "wrong key ************************, ************************";
            assert_eq!(String::from_utf8(text).unwrap(), want, "{path}");
        }
    }

    #[test]
    fn cookies_become_one_header() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", HeaderValue::from_static("a=1"));
        headers.append("cookie", HeaderValue::from_static("b=2; c=3"));
        join_cookies(&mut headers);
        let cookies: Vec<_> = headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }

    #[tokio::test]
    async fn names_that_lead_to_this_machine_are_not_asked() {
        let (listener, address) = listen().await;
        let text = "[upstreams.near]\nlike='openai'\nbase_url='http://localhost:PORT/v1'";
        let config = config(&text.replace("PORT", &address.port().to_string()));
        let routes = Routes::new(&config).unwrap();
        let clients = Clients::with_proxies(&config, Matcher::builder().build()).unwrap();
        // The same name, as a built-in provider's and as a caller's.
        let request = || {
            let mut request = get(&routes, "/near/v1/models");
            assert_eq!(request.uri().host(), Some("localhost"));
            *request.method_mut() = Method::GET;
            request
        };
        for client in [&clients.kept.provider, &clients.kept.caller] {
            let asking = client.request(request());
            let asked = tokio::time::timeout(Duration::from_secs(60), asking).await;
            let error = asked.expect("it is asked").unwrap_err();
            let blocked = TransportEnd::Unreachable(endstop::Unreachable::Blocked);
            assert_eq!(close_of(&error), Some(blocked));
        }
        let upstream = routes.find(&"/near/v1/models".parse().unwrap()).unwrap().upstream;
        tokio::select! {
            accepted = listener.accept() => assert!(accepted.is_ok()),
            answer = clients.ask(upstream, request(), Over::Kept) => panic!("nobody answers: {answer:?}"),
        }
    }

    /// A server that takes so many bytes a second, and answers when all have come.
    async fn slow_reader(listener: TcpListener, size: usize, pause: Duration) {
        let mut stream = BufReader::with_capacity(1024, listener.accept().await.unwrap().0);
        read_head(&mut stream).await;
        let mut left = size;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            tokio::time::sleep(pause).await;
            let read = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await.unwrap();
            assert!(read > 0, "the upload was given up");
            left = left.saturating_sub(read);
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        stream.flush().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }

    #[tokio::test]
    async fn the_time_for_the_first_byte_begins_after_the_upload() {
        let (listener, address) = listen().await;
        let text = format!(
            "[limits]\nfirst_byte='1500ms'\ntotal='60s'\n\
             [upstreams.near]\nlike='openai'\nbase_url='http://{address}/v1'"
        );
        let config = config(&text);
        let routes = Routes::new(&config).unwrap();
        let clients = Clients::with_proxies(&config, Matcher::builder().build()).unwrap();
        let size = 24 << 20;
        // It takes several times as long as the limit, since the socket's buffers are smaller.
        let server = tokio::spawn(slow_reader(listener, size, Duration::from_millis(120)));
        let routed = routes.find(&"/near/v1/chat/completions".parse().unwrap()).unwrap();
        let body = RequestBody::whole(Bytes::from(vec![b' '; size]));
        let upstream = routed.upstream;
        let mut outgoing = Outgoing::new(routed, None, Method::POST, HeaderMap::new());
        let began = Instant::now();
        let answer =
            clients.ask(upstream, outgoing.request(upstream, body).unwrap(), Over::Kept).await;
        assert_eq!(answer.map(|answer| answer.status()), Ok(StatusCode::OK));
        assert!(began.elapsed() > clients.first_byte, "the upload was too quick to show anything");
        server.abort();
    }

    #[tokio::test]
    async fn an_upload_that_stands_still_ends() {
        let (listener, address) = listen().await;
        let text = format!(
            "[limits]\nfirst_byte='300ms'\n\
             [upstreams.near]\nlike='openai'\nbase_url='http://{address}/v1'"
        );
        let routes = Routes::new(&config(&text)).unwrap();
        let clients = Clients::with_proxies(&config(&text), Matcher::builder().build()).unwrap();
        let routed = routes.find(&"/near/v1/chat/completions".parse().unwrap()).unwrap();
        let upstream = routed.upstream;
        let mut outgoing = Outgoing::new(routed, None, Method::POST, HeaderMap::new());
        outgoing = outgoing.kept(true);
        for size in [0, 32 << 20] {
            let body = RequestBody::whole(Bytes::from(vec![b' '; size]));
            let answer =
                clients.ask(upstream, outgoing.request(upstream, body).unwrap(), Over::Kept).await;
            let timed_out = TransportEnd::TimedOut(Timer::FirstByte);
            assert_eq!(answer.err(), Some(timed_out.into()), "{size}");
        }
        drop(listener);
    }
}
