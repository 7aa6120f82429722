//! The response to a client: one way for every response of an upstream.
//!
//! ```text
//! head -> form: named by the head, or shown by the first bytes
//!           stream -> stream: guard decides how much may leave, frame by frame
//!           body   -> plain: read whole, judged before its head leaves
//! ```
//!
//! The core decides on the form and gives the ending; [`crate::disposition`] decides what is done
//! about it. Plain and streamed responses only differ in how that is rendered.

#[cfg(test)]
mod bomb;
pub(crate) mod decode;
#[cfg(any(test, fuzzing))]
#[cfg_attr(test, expect(unreachable_pub, reason = "public for the fuzz target"))]
pub mod fuzzing;
pub mod guard;
pub(crate) mod live;
#[cfg(test)]
mod oracle;
mod plain;
pub(crate) mod stream;

use std::sync::Arc;

use endstop::{Form, Head, Timer, TransportEnd};
use hyper::Response;
use hyper::header;

use crate::client::body::{ClientBody, Pieces, response};
use crate::client::connection::Peer;
use crate::client::headers::{self, text};
use crate::config::NetworkLimits;
use crate::exchange::Exchange;
use crate::memory::Reserved;
use crate::upstream::{Part, ResponseBody};
use live::Live;
use stream::Stream;

/// The most bytes that are looked at to find out the form of a response.
const MOST_FIRST: usize = 4 << 10;

/// Function that recognises events that the gateway itself asked for.
pub(crate) type IsExtra = fn(&[u8]) -> bool;

/// Details of a response that depend on the request.
#[derive(Debug)]
pub(crate) struct Rendering {
    /// Whether the ending is told in the stream, as a comment.
    pub(crate) tell: bool,
    /// Recognises events that the gateway itself asked for.
    pub(crate) is_extra: Option<IsExtra>,
    /// Connection to reset on failure, if HTTP has no other way to show an incomplete response.
    pub(crate) reset: Option<Arc<Peer>>,
}

/// Returns the response to the client.
pub(crate) async fn respond(
    mut exchange: Box<Exchange>,
    answer: Response<ResponseBody>,
    rendering: Rendering,
) -> Response<ClientBody> {
    let (parts, mut body) = answer.into_parts();
    let status = parts.status;
    let headers = headers::returned(parts.headers, exchange.id());
    let settings = exchange.settings().clone();
    let limits = &settings.config.limits;
    let head =
        Head { status: status.as_u16(), content_type: text(&headers, &header::CONTENT_TYPE) };
    let mut read = Read::new(exchange.shared().memory.begin());
    let streams = status.is_success()
        && (head.names_stream()
            || begins_as_stream(&exchange, &mut body, &headers, &mut read).await);
    if !streams && let Ok(close) = read.rest(&exchange, &mut body, limits).await {
        let bytes = read.reserved.hold(read.bytes.bytes());
        return plain::respond(exchange, status, headers, bytes, close).await;
    }
    let first = read.bytes.bytes();
    exchange.answered(status);
    let live = exchange.shared().live.clone();
    let (headers, stream) = Stream::new(exchange, headers, body, first, rendering);
    response(status, headers, ClientBody::stream(Live::add(&live, stream)))
}

/// Reports whether a response that its head does not name a stream begins as one. Only a request
/// for a stream can have such a response.
async fn begins_as_stream(
    exchange: &Exchange,
    body: &mut ResponseBody,
    headers: &hyper::HeaderMap,
    read: &mut Read,
) -> bool {
    if exchange.info().streamed == Some(false) {
        return false;
    }
    let limits = &exchange.settings().config.limits;
    // Boxed, so that the futures of all responses are small.
    let content_type = text(headers, &header::CONTENT_TYPE);
    let watcher = Box::new(exchange.watcher(content_type, limits.event_bytes));
    loop {
        match watcher.form_of(&read.first) {
            Form::Stream(_) => return true,
            Form::Body => return false,
            Form::Undecided => {}
        }
        if read.close.is_some() || read.first.len() > MOST_FIRST {
            return false;
        }
        if read.bytes.len() > limits.plain_bytes {
            return false;
        }
        // White space decides nothing, and some providers send it while they work.
        if read.first.trim_ascii().is_empty() {
            read.first.clear();
        }
        read.more(exchange, body, limits).await;
    }
}

/// The part of a body that was read so far.
#[derive(Debug)]
struct Read {
    bytes: Pieces,
    reserved: Reserved,
    /// The first bytes, until the form is decided.
    first: Vec<u8>,
    close: Option<TransportEnd>,
}

/// A plain body is too large, or the memory too full, to judge it before it is passed on.
struct TooLarge;

impl Read {
    fn new(reserved: Reserved) -> Self {
        Self { bytes: Pieces::default(), reserved, first: Vec::new(), close: None }
    }

    /// Reads the next piece.
    async fn more(&mut self, exchange: &Exchange, body: &mut ResponseBody, limits: &NetworkLimits) {
        let next = tokio::time::timeout(limits.idle, body.part());
        match tokio::time::timeout_at(exchange.deadline(), next).await {
            Err(_) => self.close = Some(TransportEnd::TimedOut(Timer::Total)),
            Ok(Err(_)) => self.close = Some(TransportEnd::TimedOut(Timer::Idle)),
            Ok(Ok(Part::End(close))) => self.close = Some(close),
            Ok(Ok(Part::Trailers(_))) => {}
            Ok(Ok(Part::Data(data))) => {
                self.first.extend_from_slice(&data);
                self.bytes.push(data);
            }
        }
    }

    /// Reads a plain body to its end.
    async fn rest(
        &mut self,
        exchange: &Exchange,
        body: &mut ResponseBody,
        limits: &NetworkLimits,
    ) -> Result<TransportEnd, TooLarge> {
        let deadline = exchange.deadline();
        loop {
            if let Some(close) = self.close {
                return Ok(close);
            }
            let reserved = self.reserved.follow(self.bytes.len(), limits.request_memory);
            if self.bytes.len() > limits.plain_bytes || reserved.is_err() {
                return Err(TooLarge);
            }
            let next = tokio::time::timeout(limits.idle, body.part());
            match tokio::time::timeout_at(deadline, next).await {
                Err(_) => return Ok(TransportEnd::TimedOut(Timer::Total)),
                Ok(Err(_)) => return Ok(TransportEnd::TimedOut(Timer::Idle)),
                Ok(Ok(Part::End(close))) => return Ok(close),
                Ok(Ok(Part::Trailers(_))) => {}
                Ok(Ok(Part::Data(data))) => self.bytes.push(data),
            }
        }
    }
}
