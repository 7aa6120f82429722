//! The streams under way, so that all of them can be ended.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::Notify;

use super::stream::{Abort, Stream, StreamBody};

/// All streams under way.
#[derive(Debug, Default)]
pub struct Live {
    streams: Mutex<Streams>,
    /// Requests that wait for their response.
    waiting: AtomicUsize,
    is_closing: AtomicBool,
    closing: Notify,
}

/// A request that waits for its response.
#[derive(Debug)]
pub(crate) struct Waiting<'l>(&'l Live);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
struct Streams {
    next: u64,
    by_number: HashMap<u64, Weak<Stream>>,
}

impl Live {
    /// Adds a stream, for as long as its body lives.
    #[must_use]
    pub fn add(live: &Arc<Self>, stream: Stream) -> LiveStream {
        let (body, handle) = StreamBody::new(stream);
        let mut streams = live.lock();
        let number = streams.next;
        streams.next += 1;
        streams.by_number.insert(number, handle);
        drop(streams);
        LiveStream { body, number, live: live.clone() }
    }

    /// Returns the number of streams.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().by_number.len()
    }

    /// Ends streams whose clients do not read.
    pub fn check_clients(&self, limit: Duration) {
        self.each(|stream| stream.check_client(limit));
    }

    /// Counts a request that waits for its response.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    /// Returns the number of requests that wait for their response.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Waits until all responses must end.
    pub(crate) async fn closing(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        // The first poll registers the wait, so that no end between it and the look is missed.
        std::future::poll_fn(|cx| {
            let is_over = closing.as_mut().poll(cx).is_ready();
            if is_over || self.is_closing.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    /// Ends all streams, and the waits for responses.
    pub fn shut_down(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.closing.notify_waiters();
        self.each(Stream::shut_down);
    }

    fn each(&self, act: impl Fn(&Stream)) {
        let streams: Vec<Weak<Stream>> = self.lock().by_number.values().cloned().collect();
        streams.iter().filter_map(Weak::upgrade).for_each(|stream| act(&stream));
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a stream under way.
#[derive(Debug)]
pub struct LiveStream {
    body: StreamBody,
    number: u64,
    live: Arc<Live>,
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        self.live.lock().by_number.remove(&self.number);
    }
}

impl Body for LiveStream {
    type Data = Bytes;
    type Error = Abort;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
}
