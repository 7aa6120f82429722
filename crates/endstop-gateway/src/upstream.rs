//! Requests to upstreams: what is sent, with which key, over which connection.

pub(crate) mod connect;
pub(crate) mod sign;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use endstop::provider::Auth;
use endstop::{Timer, TransportEnd};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::admit::Refused;
use crate::client::headers::strip;
use crate::config::{Config, Limits};
use crate::error::Error;
use crate::route::{Routed, Upstream};
use connect::{Connector, client_tls, close_of};

/// The body of a request to an upstream.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// All of it.
    Whole(Option<Bytes>),
    /// The client's body, passed on as it arrives.
    Passed(Incoming),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Passed(body) => body.size_hint(),
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
            #[cfg(test)]
            Self::Scripted(script) => return script.poll_part(cx),
        };
        Pin::new(body).poll_frame(cx).map(|next| match next {
            None => Part::End(TransportEnd::Eof),
            Some(Err(error)) => Part::End(close_of(&error).unwrap_or(TransportEnd::Reset)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Part::Data(bytes),
                Err(frame) => Part::Trailers(frame.into_trailers().unwrap_or_default()),
            },
        })
    }

    /// Waits for the next part.
    pub(crate) async fn part(&mut self) -> Part {
        std::future::poll_fn(|cx| self.poll_part(cx)).await
    }

    /// Returns the body as hyper has it, to be passed on unread.
    pub(crate) fn into_http(self) -> Option<Incoming> {
        match self {
            Self::Http(body) => Some(body),
            #[cfg(test)]
            Self::Scripted(_) => None,
        }
    }
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
        pub(crate) fn new(parts: impl IntoIterator<Item = (Duration, String)>) -> Self {
            let parts = parts.into_iter().map(|(wait, text)| (wait, Bytes::from(text))).collect();
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
    built_in: HttpClient,
    own: HttpClient,
    h2c: HttpClient,
    first_byte: Duration,
}

impl Clients {
    /// Creates the clients of a configuration.
    ///
    /// # Errors
    /// [`Error::Certificate`] if the extra certificates cannot be read.
    pub fn new(config: &Config) -> Result<Self, Error> {
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

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// The end of the connection, if no response began.
    pub(crate) async fn ask(
        &self,
        upstream: &Upstream,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, TransportEnd> {
        let client = match (upstream.h2c, upstream.own || upstream.is_local()) {
            (true, _) => &self.h2c,
            (false, true) => &self.own,
            (false, false) => &self.built_in,
        };
        match tokio::time::timeout(self.first_byte, client.request(request)).await {
            Ok(Ok(response)) => Ok(response.map(ResponseBody::Http)),
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
        // Many clients share a connection, and one that reads slowly must not stop the others: there
        // is room for a full window of each. h2 also closes a connection on which too many small
        // frames wait, and derives the limit from this.
        .http2_initial_connection_window_size(16 << 20);
    builder
}

/// Returns the request to an upstream: the caller's, without the headers of its connection, with the
/// gateway's own key if there is one, and signed anew if it was signed.
pub(crate) fn outgoing(
    routed: &Routed<'_>,
    method: Method,
    mut headers: HeaderMap,
    body: RequestBody,
) -> Result<Request<RequestBody>, Refused> {
    strip(&mut headers);
    headers.remove(header::HOST);
    headers.remove(header::EXPECT);
    if matches!(body, RequestBody::Whole(_)) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let upstream = routed.upstream;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = routed.uri.clone();
    *request.headers_mut() = headers;
    if let Some(key) = &upstream.key {
        show_key(&mut request, upstream.provider.auth, key.expose())?;
    }
    if upstream.provider.auth == Auth::SigV4 {
        let shown = request.headers().get(header::AUTHORIZATION);
        let signed = shown.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"));
        if signed || shown.is_none() && upstream.credentials.is_some() {
            return sign(routed, request);
        }
    }
    Ok(request)
}

/// Signs a request for the upstream's host. A caller's signature is for the gateway's host.
fn sign(
    routed: &Routed<'_>,
    mut request: Request<RequestBody>,
) -> Result<Request<RequestBody>, Refused> {
    let Some(credentials) = &routed.upstream.credentials else {
        let message = "endstop: a signed request cannot be passed on: give the gateway AWS \
                       credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or use a bearer key \
                       (AWS_BEARER_TOKEN_BEDROCK)";
        return Err(Refused::new(StatusCode::UNAUTHORIZED, "endstop_cannot_sign", message));
    };
    for name in ["authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"] {
        request.headers_mut().remove(name);
    }
    let body = match request.body() {
        RequestBody::Whole(Some(bytes)) => bytes.clone(),
        RequestBody::Whole(None) | RequestBody::Passed(_) => Bytes::new(),
    };
    let region = if routed.customer.is_empty() { "us-east-1" } else { &routed.customer };
    credentials.sign(&mut request, &body, region).map_err(|error| {
        let message = format!("endstop: the request cannot be signed: {error}");
        Refused::new(StatusCode::BAD_REQUEST, "endstop_cannot_sign", message)
    })?;
    Ok(request)
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
        Auth::Bearer | Auth::SigV4 => {
            headers.insert(header::AUTHORIZATION, value(&format!("Bearer {key}"))?);
        }
        Auth::Header(name) => {
            headers.insert(HeaderName::from_static(name), value(key)?);
        }
        Auth::HeaderOrQuery(name, parameter) => {
            headers.insert(HeaderName::from_static(name), value(key)?);
            drop_query(request, parameter);
        }
        Auth::Open => {}
    }
    Ok(())
}

fn drop_query(request: &mut Request<RequestBody>, parameter: &str) {
    let uri = request.uri();
    let Some(query) = uri.query() else { return };
    let kept: Vec<&str> =
        query.split('&').filter(|pair| pair.split('=').next() != Some(parameter)).collect();
    let path = if kept.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{}", uri.path(), kept.join("&"))
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = path.parse().ok();
    if let Ok(uri) = hyper::Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}
