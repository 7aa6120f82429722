//! Bodies of requests: a client must send them at a lowest rate.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::config::NetworkLimits;

/// The body of a client's request.
///
/// The time that the gateway waits for the client is divided into windows of `client_read`. In each
/// of them the client must send `body_rate` bytes a second. The time that an upstream takes to accept
/// a body does not count.
#[derive(Debug)]
pub(crate) struct Upload<B = Incoming> {
    body: B,
    rate: u64,
    window: Duration,
    /// Bytes of this window.
    received: u64,
    /// Time waited in this window, before the present wait.
    waited: Duration,
    /// Start of the present wait.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Reason why a body did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    /// The client sends it too slowly.
    #[error("the client sends the body of its request too slowly")]
    TooSlow,
    /// The connection or the framing broke.
    #[error("the body of the request could not be read")]
    Broken(#[source] hyper::Error),
}

impl<B> Upload<B> {
    /// A body with these limits.
    pub(crate) fn new(body: B, limits: &NetworkLimits) -> Self {
        Self {
            body,
            rate: limits.body_rate,
            window: limits.client_read,
            received: 0,
            waited: Duration::ZERO,
            since: None,
            timer: None,
        }
    }

    /// Waits for the client until the window is over, and longer if enough came in it.
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<UploadError> {
        loop {
            let since = *self.since.get_or_insert_with(Instant::now);
            let due = since + self.window.saturating_sub(self.waited);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
            self.waited = self.window;
            self.since = Some(Instant::now());
            if self.is_slow() {
                return Poll::Ready(UploadError::TooSlow);
            }
        }
    }

    /// Counts what came.
    fn arrived(&mut self, bytes: usize) {
        self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.received += bytes as u64;
    }

    /// Reports whether too little came in a window, and begins the next one if it is over.
    fn is_slow(&mut self) -> bool {
        if self.waited < self.window {
            return false;
        }
        let due = u128::from(self.rate) * self.waited.as_millis() / 1000;
        let slow = u128::from(self.received) < due.max(1);
        (self.received, self.waited) = (0, Duration::ZERO);
        slow
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for Upload<B> {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            return this.poll_slow(cx).map(|slow| Some(Err(slow)));
        };
        Poll::Ready(match frame {
            None => None,
            Some(Err(error)) => Some(Err(UploadError::Broken(error))),
            Some(Ok(frame)) => match frame.data_ref().map(bytes::Buf::remaining) {
                // Trailers could repeat headers that were checked. No provider wants any.
                None => None,
                Some(bytes) => {
                    this.arrived(bytes);
                    Some(if this.is_slow() { Err(UploadError::TooSlow) } else { Ok(frame) })
                }
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;

    use super::*;

    /// Sends pieces of a size, each after a wait.
    struct Slow {
        pieces: VecDeque<(Duration, usize)>,
        wait: Option<Pin<Box<Sleep>>>,
    }

    impl Slow {
        fn new(pieces: impl IntoIterator<Item = (u64, usize)>) -> Self {
            let pieces = pieces.into_iter().map(|(ms, size)| (Duration::from_millis(ms), size));
            Self { pieces: pieces.collect(), wait: None }
        }
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = hyper::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
            let Some((wait, size)) = self.pieces.front().copied() else { return Poll::Ready(None) };
            let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
            self.pieces.pop_front();
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; size])))))
        }
    }

    async fn arrives(pieces: impl IntoIterator<Item = (u64, usize)>) -> bool {
        let limits = NetworkLimits::default();
        Upload::new(Slow::new(pieces), &limits).collect().await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_must_come_at_the_lowest_rate() {
        assert!(arrives([]).await);
        assert!(arrives([(9_000, 1), (500, 1)]).await, "a short body need not be fast");
        assert!(!arrives([(10_001, 1)]).await, "silence");
        assert!(!arrives((0..100).map(|_| (1_000, 1))).await, "a byte a second");
        assert!(!arrives((0..100).map(|_| (1_000, 1_000))).await, "a little less than the rate");
        assert!(arrives((0..100).map(|_| (1_000, 1_030))).await, "a little more than the rate");
        assert!(arrives((0..100).map(|_| (9_000, 20_000))).await, "bursts");
        let fast = (0..10).map(|_| (0, 1 << 20));
        let late = (0..100).map(|_| (1_000, 1));
        assert!(!arrives(fast.chain(late)).await, "what came early does not buy time for long");
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_nobody_waits_for_the_client_does_not_count() {
        let mut upload =
            Upload::new(Slow::new((0..5).map(|_| (1_000, 1))), &NetworkLimits::default());
        while let Some(frame) = upload.frame().await {
            frame.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}
