//! A plain response: read whole, and judged before its head leaves.

use bytes::Bytes;
use endstop::{Ending, TransportEnd};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

use super::decode::Decoder;
use crate::client::body::{Answer, response};
use crate::client::headers::{self, own, text};
use crate::config::Mode;
use crate::disposition::{Disposition, Failure, disposition};
use crate::exchange::Exchange;
use crate::watch::GuardAction;

/// The most that a compressed body may decode to, in relation to its size.
const RATIO: usize = 64;

/// Returns the response for a body that was read to its end.
pub(super) fn respond(
    mut exchange: Box<Exchange>,
    status: StatusCode,
    mut headers: HeaderMap,
    bytes: Bytes,
    close: TransportEnd,
) -> Response<Answer> {
    let ending = judge(&exchange, &headers, &bytes, close);
    let terms = exchange.terms();
    let disposition = disposition(&ending, terms, Some(status.as_u16()));
    let action = match &disposition {
        Disposition::Pass => GuardAction::Passed,
        Disposition::Warn => GuardAction::Warned,
        Disposition::Status(_) | Disposition::Fail(_) => GuardAction::Failed,
    };
    headers::describe(&mut headers, &ending, action, exchange.decision(&ending));
    let answer = match disposition {
        Disposition::Pass | Disposition::Warn => {
            exchange.delivered(bytes.len());
            // Observe passes on a broken connection as one. A guard ends a complete response cleanly.
            let clean = close == TransportEnd::Eof || terms.mode == Mode::Guard;
            let body = if clean { Answer::whole(bytes) } else { Answer::broken(bytes) };
            response(status, headers, body)
        }
        Disposition::Status(status) => {
            exchange.delivered(bytes.len());
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            response(status, headers, Answer::whole(bytes))
        }
        Disposition::Fail(failure) => fail(&mut exchange, &failure, &ending, &headers),
    };
    exchange.end(ending, action);
    answer
}

fn judge(exchange: &Exchange, headers: &HeaderMap, bytes: &Bytes, close: TransportEnd) -> Ending {
    let content_type = text(headers, &header::CONTENT_TYPE);
    let limit = bytes.len().max(1 << 20).saturating_mul(RATIO);
    let mut watcher = exchange.watcher(content_type, limit);
    match Decoder::new(text(headers, &header::CONTENT_ENCODING), bytes) {
        None => watcher.finish_with(bytes, close),
        Some(mut decoder) => {
            decoder.push(bytes, |decoded| watcher.watch(decoded));
            watcher.finish(close)
        }
    }
}

fn fail(
    exchange: &mut Exchange,
    failure: &Failure,
    ending: &Ending,
    upstream: &HeaderMap,
) -> Response<Answer> {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut headers = headers::of_error(exchange.id());
    headers::describe(&mut headers, ending, GuardAction::Failed, exchange.decision(ending));
    if failure.repeats {
        headers.insert(own::SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(after) = upstream.get(header::RETRY_AFTER) {
        headers.insert(header::RETRY_AFTER, after.clone());
    }
    let body = exchange.wire().profile.error_body(&failure.gateway_error());
    exchange.delivered(body.len());
    response(status, headers, Answer::whole(body))
}
