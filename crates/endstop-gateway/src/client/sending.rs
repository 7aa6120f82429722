//! Responses over HTTP/2 that their clients do not take in: each has a deadline of its own, since the
//! others on its connection may be read well.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::Instant;

/// Time at which a response was handed over that its client has not taken in.
#[derive(Debug, Default)]
struct Unsent(Mutex<Option<Instant>>);

impl Unsent {
    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

tokio::task_local! {
    /// Of the request that the task serves.
    static UNSENT: Arc<Unsent>;
}

/// Notes whether the client has to take in what the task at hand has handed over.
pub(super) fn note(is_unsent: bool) {
    // Outside of a request over HTTP/2, there is nothing to note it for.
    let _ = UNSENT.try_with(|unsent| unsent.set(is_unsent.then(Instant::now)));
}

/// Runs the requests of an HTTP/2 connection. One whose client takes in nothing for this time is
/// dropped, which resets its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    pub(crate) client_write: Duration,
}

impl<F> Executor<F> for Requests
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, request: F) {
        tokio::spawn(run(request, self.client_write));
    }
}

async fn run(request: impl Future, limit: Duration) {
    let unsent = Arc::new(Unsent::default());
    let mut request = pin!(UNSENT.scope(unsent.clone(), request));
    let mut timer = pin!(tokio::time::sleep(limit));
    let poll = |cx: &mut std::task::Context<'_>| {
        if request.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        while let Some(since) = unsent.get() {
            let due = since + limit;
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Pending
    };
    std::future::poll_fn(poll).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_response_that_nobody_takes_in_is_dropped() {
        const LIMIT: Duration = Duration::from_secs(30);
        let began = Instant::now();
        let stuck = async {
            note(true);
            std::future::pending::<()>().await;
        };
        run(stuck, LIMIT).await;
        assert_eq!(began.elapsed(), LIMIT);
        let began = Instant::now();
        let read = async {
            for _ in 0..5 {
                note(true);
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                note(false);
                tokio::time::sleep(2 * LIMIT).await;
            }
        };
        run(read, LIMIT).await;
        assert!(began.elapsed() > 14 * LIMIT, "it waited for the gateway, not for the client");
    }
}
