//! A turn as a sequence of events: the future that runs it, and the events that it has put out.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Events that a turn has put out and nobody has taken.
#[derive(Debug)]
pub(crate) struct Queue<E>(Arc<Mutex<VecDeque<E>>>);

impl<E> Clone for Queue<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(VecDeque::new())))
    }
}

impl<E> Queue<E> {
    pub(crate) fn push(&self, event: E) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
    }

    fn pop(&self) -> Option<E> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Waits until all events are taken, so that a slow consumer slows the turn down.
    ///
    /// Whoever takes the events polls the turn, so nobody has to be woken.
    pub(crate) async fn taken(&self) {
        poll_fn(|_| if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// A turn under way. Dropping it ends the turn: its connection is closed, and its tools are dropped.
pub(crate) struct Running<E> {
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    queue: Queue<E>,
}

impl<E> Running<E> {
    pub(crate) fn new(queue: Queue<E>, turn: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { turn: Some(Box::pin(turn)), queue }
    }

    /// Waits for the next event. Returns `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<E> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<E>> {
        loop {
            if let Some(event) = self.queue.pop() {
                return Poll::Ready(Some(event));
            }
            let Some(turn) = &mut self.turn else { return Poll::Ready(None) };
            match turn.as_mut().poll(cx) {
                Poll::Ready(()) => self.turn = None,
                Poll::Pending if self.queue.is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }
}

impl<E> std::fmt::Debug for Running<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_over = self.turn.is_none();
        out.debug_struct("Running").field("is_over", &is_over).finish_non_exhaustive()
    }
}
