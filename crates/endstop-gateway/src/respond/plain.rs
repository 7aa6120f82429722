//! A plain response: read whole, and judged before its head leaves.

use std::num::NonZero;
use std::sync::LazyLock;

use bytes::Bytes;
use endstop::frame::Broken;
use endstop::{Ending, TransportEnd, Watcher};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::Semaphore;

use super::decode::{Decoded, Decoder};
use crate::client::body::{ClientBody, response};
use crate::client::headers::{self, encodings, fit_length, own, text};
use crate::config::Mode;
use crate::disposition::{Disposition, Failure, disposition};
use crate::exchange::Exchange;
use crate::memory::Reserved;
use crate::watch::GuardAction;

/// Size from which a body is judged on another thread.
const LARGE: usize = 256 << 10;

/// Returns the response for a body that was read to its end.
pub(super) async fn respond(
    mut exchange: Box<Exchange>,
    status: StatusCode,
    mut headers: HeaderMap,
    bytes: Bytes,
    close: TransportEnd,
) -> Response<ClientBody> {
    let ending = judge(&mut exchange, &headers, &bytes, close).await;
    let terms = exchange.terms();
    let disposition = disposition(&ending, terms, Some(status.as_u16()));
    let action = match &disposition {
        Disposition::Pass => GuardAction::Passed,
        Disposition::Warn => GuardAction::Warned,
        Disposition::Status(_) | Disposition::Fail(_) => GuardAction::Failed,
    };
    headers::describe(&mut headers, &ending, action, exchange.decision(&ending));
    let bytes = exchange.hide_own(&mut headers, bytes);
    let answer = match disposition {
        Disposition::Pass | Disposition::Warn => {
            // Observe passes on a broken connection as one. A guard ends a complete response cleanly.
            let clean = close == TransportEnd::Eof || terms.mode == Mode::Guard;
            if clean {
                fit_length(&mut headers, bytes.len());
            }
            let body = if clean { ClientBody::whole(bytes) } else { ClientBody::broken(bytes) };
            response(status, headers, body)
        }
        Disposition::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            fit_length(&mut headers, bytes.len());
            response(status, headers, ClientBody::whole(bytes))
        }
        Disposition::Fail(failure) => fail(&mut exchange, &failure, &ending, &headers),
    };
    exchange.answer(ending, action, answer)
}

async fn judge(
    exchange: &mut Exchange,
    headers: &HeaderMap,
    bytes: &Bytes,
    close: TransportEnd,
) -> Ending {
    let limit = exchange.settings().config.limits.event_bytes.max(bytes.len());
    let watcher = exchange.watcher(text(headers, &header::CONTENT_TYPE), limit);
    match Decoder::new(&encodings(headers), bytes) {
        None if bytes.len() > LARGE => Box::pin(judge_large(watcher, bytes.clone(), close)).await,
        None => exchange.timed(|| watcher.finish_with(bytes, close)),
        // Boxed, so that the futures of all responses are small.
        Some(decoder) => {
            let memory = exchange.shared().memory.begin();
            let limit = exchange.settings().config.limits.request_memory;
            let copy = DecodedCopy { watcher, decoder, memory, limit, bytes: bytes.clone() };
            Box::pin(judge_copy(copy, close)).await
        }
    }
}

/// Judges a large body on another thread: other responses do not wait for it.
async fn judge_large(watcher: Watcher, bytes: Bytes, close: TransportEnd) -> Ending {
    on_another_thread(move || watcher.finish_with(&bytes, close)).await
}

async fn on_another_thread(judge: impl FnOnce() -> Ending + Send + 'static) -> Ending {
    let judged = tokio::task::spawn_blocking(judge).await;
    match judged.map_err(tokio::task::JoinError::into_panic) {
        Ok(ending) => ending,
        // It ends this response, as a panic here would.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Judges a compressed body by a decoded copy. Other tasks run between the slices, and on other threads
/// than a decoder that takes long.
async fn judge_copy(mut copy: DecodedCopy, close: TransportEnd) -> Ending {
    if copy.decoder.takes_long() {
        let permit = LONG_DECODES.acquire().await;
        return on_another_thread(move || {
            while copy.read_slice() {}
            drop(permit);
            copy.watcher.finish(close)
        })
        .await;
    }
    while copy.read_slice() {
        tokio::task::yield_now().await;
    }
    copy.watcher.finish(close)
}

/// Permits for bodies that take long to decode, as many as half of the processors: the others are left
/// to the threads that serve everybody.
static LONG_DECODES: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    Semaphore::new((processors / 2).max(1))
});

/// A compressed body that is being read.
struct DecodedCopy {
    watcher: Watcher,
    decoder: Decoder,
    memory: Reserved,
    limit: usize,
    bytes: Bytes,
}

impl DecodedCopy {
    /// Reads a slice, and reports whether there is more.
    fn read_slice(&mut self) -> bool {
        if self.memory.follow(self.decoder.memory(), self.limit).is_err() {
            self.watcher.stop(Broken::Oversize);
            return false;
        }
        match self.decoder.decode(&mut self.bytes, |copy| self.watcher.watch(copy)) {
            Decoded::Part => return !self.watcher.is_broken(),
            Decoded::All => {}
            Decoded::Corrupt => self.watcher.stop(Broken::Corrupt),
            Decoded::TooMuch => self.watcher.stop(Broken::Oversize),
        }
        false
    }
}

fn fail(
    exchange: &mut Exchange,
    failure: &Failure,
    ending: &Ending,
    upstream: &HeaderMap,
) -> Response<ClientBody> {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut headers = headers::of_error(exchange.id());
    headers::describe(&mut headers, ending, GuardAction::Failed, exchange.decision(ending));
    if failure.repeats {
        headers.insert(own::SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(after) = upstream.get(header::RETRY_AFTER) {
        headers.insert(header::RETRY_AFTER, after.clone());
    }
    let body = exchange.wire().profile.error_body(&failure.gateway_error()).into();
    let body = exchange.hide_own(&mut headers, body);
    response(status, headers, ClientBody::whole(body))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use endstop::{Closed, Head, RequestInfo, provider};

    use super::*;
    use crate::memory::Memory;

    fn copy(encoding: &str, bytes: Vec<u8>) -> DecodedCopy {
        let head = Head { status: 200, content_type: "application/json" };
        let watcher = Watcher::new(&provider::OPENAI, head, RequestInfo::default());
        let bytes = Bytes::from(bytes);
        let decoder = Decoder::new(encoding, &bytes).unwrap();
        let memory = Arc::new(Memory::default()).begin();
        DecodedCopy { watcher, decoder, memory, limit: 1 << 30, bytes }
    }

    /// They wait for their turn, and other tasks run meanwhile.
    #[tokio::test]
    async fn brotli_bombs_leave_the_worker_free() {
        let all = u32::try_from(LONG_DECODES.available_permits()).unwrap();
        let permits = LONG_DECODES.acquire_many(all).await.unwrap();
        let bomb = copy("br", crate::respond::bomb::bomb(br#"{"x":""#));
        let judging = tokio::spawn(judge_copy(bomb, TransportEnd::Eof));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!judging.is_finished(), "it was decoded at once");
        drop(permits);
        assert_eq!(judging.await.unwrap().closed, Closed::Oversize);
        assert_eq!(LONG_DECODES.available_permits(), all as usize);
    }
}
