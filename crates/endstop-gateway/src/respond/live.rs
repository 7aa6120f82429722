//! The streams under way, so that all of them can be ended.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};

use super::stream::{Abort, Stream, StreamBody};

/// All streams under way.
#[derive(Debug, Default)]
pub struct Live(Mutex<Streams>);

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

    /// Ends all streams.
    pub fn shut_down(&self) {
        self.each(Stream::shut_down);
    }

    fn each(&self, act: impl Fn(&Stream)) {
        let streams: Vec<Weak<Stream>> = self.lock().by_number.values().cloned().collect();
        streams.iter().filter_map(Weak::upgrade).for_each(|stream| act(&stream));
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
