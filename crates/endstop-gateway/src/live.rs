//! The streams under way, for whoever must be able to look after all of them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};

use crate::relay::{Abort, Relay, Stream};

/// Every stream under way.
#[derive(Debug, Default)]
pub struct Live(Mutex<Streams>);

#[derive(Debug, Default)]
struct Streams {
    next: u64,
    by_number: HashMap<u64, Weak<Stream>>,
}

impl Live {
    /// Takes a stream in for as long as its body lives.
    #[must_use]
    pub fn add(live: &Arc<Self>, stream: Stream) -> LiveRelay {
        let (relay, handle) = Relay::new(stream);
        let mut streams = live.lock();
        let number = streams.next;
        streams.next += 1;
        streams.by_number.insert(number, handle);
        drop(streams);
        LiveRelay { relay, number, live: live.clone() }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().by_number.len()
    }

    /// Ends those whose clients do not take anything in.
    pub fn check_clients(&self, limit: Duration) {
        self.each(|stream| stream.check_client(limit));
    }

    /// Ends all of them.
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

/// A body among the streams under way.
#[derive(Debug)]
pub struct LiveRelay {
    relay: Relay,
    number: u64,
    live: Arc<Live>,
}

impl Drop for LiveRelay {
    fn drop(&mut self) {
        self.live.lock().by_number.remove(&self.number);
    }
}

impl Body for LiveRelay {
    type Data = Bytes;
    type Error = Abort;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        Pin::new(&mut self.relay).poll_frame(cx)
    }
}
