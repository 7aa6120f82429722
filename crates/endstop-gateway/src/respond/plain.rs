//! A plain response: read whole, and judged before its head leaves.

use bytes::Bytes;
use endstop::frame::Broken;
use endstop::{Ending, TransportEnd, Watcher};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

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
    let ending = judge(&exchange, &headers, &bytes, close).await;
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
    exchange: &Exchange,
    headers: &HeaderMap,
    bytes: &Bytes,
    close: TransportEnd,
) -> Ending {
    let limit = exchange.settings().config.limits.event_bytes.max(bytes.len());
    let watcher = exchange.watcher(text(headers, &header::CONTENT_TYPE), limit);
    match Decoder::new(&encodings(headers), bytes) {
        None if bytes.len() > LARGE => Box::pin(judge_large(watcher, bytes.clone(), close)).await,
        None => watcher.finish_with(bytes, close),
        // Boxed, so that the futures of all responses are small.
        Some(decoder) => {
            let memory = exchange.shared().memory.begin();
            let limit = exchange.settings().config.limits.request_memory;
            let memory = (memory, limit);
            Box::pin(judge_copy(watcher, decoder, memory, bytes.clone(), close)).await
        }
    }
}

/// Judges a large body on another thread: other responses do not wait for it.
async fn judge_large(watcher: Watcher, bytes: Bytes, close: TransportEnd) -> Ending {
    let judged = tokio::task::spawn_blocking(move || watcher.finish_with(&bytes, close)).await;
    match judged.map_err(tokio::task::JoinError::into_panic) {
        Ok(ending) => ending,
        // It ends this response, as a panic here would.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Judges a compressed body by a decoded copy. Other tasks run between the slices.
async fn judge_copy(
    mut watcher: Watcher,
    mut decoder: Decoder,
    (mut memory, limit): (Reserved, usize),
    mut bytes: Bytes,
    close: TransportEnd,
) -> Ending {
    while !watcher.is_broken() {
        if memory.follow(decoder.memory(), limit).is_err() {
            watcher.stop(Broken::Oversize);
            break;
        }
        match decoder.decode(&mut bytes, |copy| watcher.watch(copy)) {
            Decoded::Part => tokio::task::yield_now().await,
            Decoded::All => break,
            Decoded::Corrupt => watcher.stop(Broken::Corrupt),
            Decoded::TooMuch => watcher.stop(Broken::Oversize),
        }
    }
    watcher.finish(close)
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
