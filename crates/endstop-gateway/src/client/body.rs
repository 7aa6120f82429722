//! Bodies of responses to clients.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use endstop::TransportEnd;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{HeaderMap, Response, StatusCode};

use super::connection::Busy;
use crate::exchange::Exchange;
use crate::rates::Slot;
use crate::respond::live::LiveStream;
use crate::respond::stream::{Abort, LEAVE};
use crate::upstream::{Part, ResponseBody};

/// Size of the pieces of a whole body.
const PIECE: usize = 64 << 10;

/// The body of a response to a client.
#[derive(Debug)]
pub(crate) struct ClientBody {
    kind: Kind,
    /// Marks the connection as busy while the response is under way.
    pub(crate) busy: Option<Busy>,
    /// Counts the request while its response is under way.
    pub(crate) slot: Option<Slot>,
    /// The exchange of a whole response, which reports how much of it was handed over.
    pub(crate) exchange: Option<Box<Exchange>>,
}

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    Passed(Box<Passed>),
    /// These bytes, and then an abort.
    Broken(Option<Bytes>, Pin<Box<tokio::time::Sleep>>),
    Stream(LiveStream),
}

impl ClientBody {
    fn new(kind: Kind) -> Self {
        Self { kind, busy: None, slot: None, exchange: None }
    }

    /// Returns a complete body.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(Kind::Whole(Some(bytes.into())))
    }

    /// Returns an upstream's body, passed on without reading it. It is aborted if nothing comes for this
    /// time.
    pub(crate) fn passed(body: ResponseBody, idle: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(idle));
        Self::new(Kind::Passed(Box::new(Passed { body, idle, timer })))
    }

    /// Returns a body that ends with an abort.
    pub(crate) fn broken(bytes: Bytes) -> Self {
        Self::new(Kind::Broken(Some(bytes), Box::pin(tokio::time::sleep(LEAVE))))
    }

    /// Returns the length of a body that is there as a whole, and was not handed over.
    pub(crate) fn whole_len(&self) -> usize {
        match &self.kind {
            Kind::Whole(bytes) | Kind::Broken(bytes, _) => bytes.as_ref().map_or(0, Bytes::len),
            Kind::Passed(_) | Kind::Stream(_) => 0,
        }
    }

    /// Returns a streamed body.
    pub(crate) fn stream(stream: LiveStream) -> Self {
        Self::new(Kind::Stream(stream))
    }
}

/// Returns a response with these parts.
pub(crate) fn response(
    status: StatusCode,
    headers: HeaderMap,
    body: ClientBody,
) -> Response<ClientBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// An upstream's body that nobody reads.
#[derive(Debug)]
struct Passed {
    body: ResponseBody,
    idle: Duration,
    timer: Pin<Box<tokio::time::Sleep>>,
}

impl Passed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        if let Poll::Ready(part) = self.body.poll_part(cx) {
            self.timer.as_mut().reset(tokio::time::Instant::now() + self.idle);
            return Poll::Ready(match part {
                Part::Data(bytes) => Some(Ok(Frame::data(bytes))),
                Part::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                Part::End(TransportEnd::Eof) => None,
                Part::End(_) => Some(Err(Abort)),
            });
        }
        self.timer.as_mut().poll(cx).map(|()| Some(Err(Abort)))
    }
}

/// Takes a piece from a whole body, so that a large one is under way until its client has taken in nearly
/// all of it.
fn next_piece(whole: &mut Option<Bytes>) -> Option<Bytes> {
    match whole {
        Some(bytes) if bytes.len() > PIECE => Some(bytes.split_to(PIECE)),
        Some(_) | None => whole.take(),
    }
}

impl Kind {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        match self {
            Self::Whole(bytes) => {
                Poll::Ready(next_piece(bytes).map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Passed(passed) => passed.poll_frame(cx),
            Self::Broken(bytes, leaving) => {
                if let Some(bytes) = bytes.take() {
                    // The time counts from now: nothing has left before, however long ago the
                    // response was judged.
                    leaving.as_mut().reset(tokio::time::Instant::now() + LEAVE);
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                }
                leaving.as_mut().poll(cx).map(|()| Some(Err(Abort)))
            }
            Self::Stream(stream) => Pin::new(stream).poll_frame(cx),
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = Abort;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        let this = self.get_mut();
        let Some(busy) = this.busy.as_mut().filter(|busy| busy.is_http2()) else {
            return this.kind.poll_frame(cx);
        };
        busy.asked();
        let polled = this.kind.poll_frame(cx);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            busy.handed_over();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Passed(passed) => passed.body.is_end_stream(),
            Kind::Broken(..) | Kind::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Passed(passed) => passed.body.size_hint(),
            Kind::Broken(..) | Kind::Stream(_) => SizeHint::default(),
        }
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            exchange.left(self.whole_len());
        }
    }
}

/// Size of the blocks of long bytes.
const BLOCK: usize = 256 << 10;

/// Pieces of bytes, joined only if there are several.
///
/// Long ones are kept in blocks until they are complete: a buffer that grows is moved again and again, and
/// takes several times the memory of its bytes.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    first: Bytes,
    all: bytes::BytesMut,
    /// The blocks before `all`.
    #[expect(clippy::box_collection, reason = "pieces are moved often, and few have blocks")]
    blocks: Option<Box<Vec<bytes::BytesMut>>>,
    length: usize,
}

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.length += bytes.len();
        if self.length == bytes.len() {
            self.first = bytes;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(self.length.clamp(4096, BLOCK));
            let first = std::mem::take(&mut self.first);
            self.extend(&first);
        }
        self.extend(&bytes);
    }

    fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.all.len() == BLOCK {
                let next = bytes::BytesMut::with_capacity(BLOCK);
                let full = std::mem::replace(&mut self.all, next);
                self.blocks.get_or_insert_default().push(full);
            }
            let room = BLOCK - self.all.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.all.extend_from_slice(now);
            bytes = later;
        }
    }

    pub(crate) fn bytes(self) -> Bytes {
        if self.all.is_empty() {
            return self.first;
        }
        let Some(blocks) = self.blocks else { return self.all.freeze() };
        let mut joined = Vec::with_capacity(self.length);
        // Each is given back as soon as it is copied.
        for block in blocks.into_iter().chain([self.all]) {
            joined.extend_from_slice(&block);
        }
        joined.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_in_order_and_never_moved_while_they_grow() {
        for size in [1, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            let bytes: Vec<u8> = (0..size).map(|number| (number % 251) as u8).collect();
            for piece in [size, BLOCK, 65_521, 7000] {
                let mut pieces = Pieces::default();
                for piece in bytes.chunks(piece) {
                    pieces.push(Bytes::copy_from_slice(piece));
                    // The first block grows by doubling.
                    assert!(pieces.all.capacity() < 2 * BLOCK, "{}", pieces.all.capacity());
                }
                assert_eq!(pieces.len(), size);
                assert!(pieces.bytes() == bytes, "{size} in pieces of {piece}");
            }
        }
    }
}
