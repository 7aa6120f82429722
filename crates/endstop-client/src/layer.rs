//! For users of other clients: a stream of bytes that ends with an error in place of a quiet end.
//!
//! Wrap the body of a response in a [`Watch`]. Healthy responses pass unchanged. If a response stops
//! before it is complete, or if it contains a tool call that may not run, the stream ends with
//! [`QuietEnd`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use endstop::tool_call::{Allow, Refusal, allow_by_ending};
use endstop::{Ending, Head, Reason, RequestInfo, TransportEnd, Watcher, Wire};
use futures_util::Stream;
use reqwest::ResponseBuilderExt as _;

/// A body that is watched for its end.
///
/// ```
/// use bytes::Bytes;
/// use endstop::{Head, RequestInfo, provider};
/// use endstop_client::layer::{LayerError, Watch};
/// use futures_util::{StreamExt, stream};
///
/// # futures_executor_block_on(async {
/// let cut = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
/// let body = stream::iter([Ok::<_, std::io::Error>(Bytes::from(cut))]);
/// let head = Head { status: 200, content_type: "text/event-stream" };
/// let mut watched = Watch::new(body, &provider::OPENAI, head, RequestInfo::default());
/// assert!(watched.next().await.unwrap().is_ok());
/// assert!(matches!(watched.next().await, Some(Err(LayerError::Ended(_)))));
/// # });
/// # fn futures_executor_block_on<F: Future>(future: F) -> F::Output {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
/// # }
/// ```
#[derive(Debug)]
pub struct Watch<S> {
    body: S,
    watcher: Option<Watcher>,
}

/// Error of a watched body.
#[derive(Debug)]
#[non_exhaustive]
pub enum LayerError<E> {
    /// Error of the body itself.
    Body(E),
    /// The response ended badly without an error.
    Ended(QuietEnd),
}

/// The ending of a response that is not complete.
#[derive(Clone, Debug, PartialEq)]
pub struct QuietEnd(pub Box<Ending>);

impl fmt::Display for QuietEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the response is not complete: {}", self.0.sentence)
    }
}

impl std::error::Error for QuietEnd {}

impl<E: fmt::Display> fmt::Display for LayerError<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(error) => error.fmt(out),
            Self::Ended(end) => end.fmt(out),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for LayerError<E> {}

impl<S> Watch<S> {
    /// Watches a body of this wire.
    pub fn new(body: S, wire: impl Into<Wire>, head: Head<'_>, request: RequestInfo) -> Self {
        Self { body, watcher: Some(Watcher::new(wire, head, request)) }
    }
}

/// Returns the ending if it must not be taken for a complete answer.
///
/// A token limit, a filter or a refusal is said aloud by the provider: it passes, unless the response has
/// a tool call.
fn quiet(ending: Ending) -> Option<QuietEnd> {
    let unfinished_call = match allow_by_ending(&ending) {
        Allow::Run | Allow::Refuse(Refusal::NoCalls) => false,
        Allow::Refuse(_) => true,
    };
    let is_broken = matches!(
        ending.reason,
        Reason::Cut | Reason::TimedOut | Reason::Failed | Reason::MalformedToolCall
    );
    (unfinished_call || is_broken).then(|| QuietEnd(Box::new(ending)))
}

impl<S, E> Stream for Watch<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    type Item = Result<Bytes, LayerError<E>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.watcher.is_none() {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.body).poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(bytes))) => {
                if let Some(watcher) = &mut this.watcher {
                    watcher.watch(&bytes);
                }
                Poll::Ready(Some(Ok(bytes)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.watcher = None;
                Poll::Ready(Some(Err(LayerError::Body(error))))
            }
            Poll::Ready(None) => {
                let ending = this.watcher.take().map(|watcher| watcher.finish(TransportEnd::Eof));
                Poll::Ready(ending.and_then(quiet).map(|end| Err(LayerError::Ended(end))))
            }
        }
    }
}

/// Body of a response of `reqwest`, as a stream.
pub type ResponseBody = Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>;

/// Returns the response with a body that ends with an error in place of a quiet end, for clients that
/// take the responses of a service of one's own. The provider is found by the host and the path.
///
/// ```no_run
/// # async fn example(client: reqwest::Client, request: reqwest::Request) -> Result<(), reqwest::Error> {
/// use endstop::RequestInfo;
/// use endstop_client::layer;
///
/// let response = layer::watched(client.execute(request).await?, RequestInfo::default());
/// let whole = response.text().await?; // fails if the response is not complete
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn watched(response: reqwest::Response, request: RequestInfo) -> reqwest::Response {
    let (url, status) = (response.url().clone(), response.status());
    let (version, headers) = (response.version(), response.headers().clone());
    let body = reqwest::Body::wrap_stream(watch_response(response, request));
    let mut built = http::Response::new(body);
    *built.status_mut() = status;
    *built.version_mut() = version;
    *built.headers_mut() = headers;
    let (mut parts, body) = built.into_parts();
    if let Ok(named) = http::Response::builder().url(url).body(()) {
        parts.extensions = named.into_parts().0.extensions;
    }
    http::Response::from_parts(parts, body).into()
}

/// Watches the body of a response of `reqwest`. The provider is found by the host and the path.
pub fn watch_response(response: reqwest::Response, request: RequestInfo) -> Watch<ResponseBody> {
    let url = response.url().clone();
    let clues = endstop::registry::Clues {
        host: url.host_str().unwrap_or_default(),
        path: url.path(),
        ..endstop::registry::Clues::default()
    };
    let wire = endstop::registry::choose(&clues);
    let content_type = response.headers().get(reqwest::header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.to_owned();
    let head = Head { status: response.status().as_u16(), content_type: &content_type };
    let watcher = Watcher::new(wire, head, request);
    let body = futures_util::stream::unfold(response, |mut response| async move {
        match response.chunk().await {
            Ok(Some(bytes)) => Some((Ok(bytes), response)),
            Ok(None) => None,
            Err(error) => Some((Err(error), response)),
        }
    });
    Watch { body: Box::pin(body), watcher: Some(watcher) }
}
