//! One request: admitted, asked of its upstream, answered.
//!
//! ```text
//! admit -> read the body -> exchange: ask the upstream -> respond: plain or streamed
//! ```

use std::sync::Arc;

use bytes::Bytes;
use endstop::dialect::GatewayError;
use endstop::next_request::UsageOption;
use endstop::{Profile, Reason, RequestInfo, TransportEnd, Unreachable, Wire, provider};
use futures_util::FutureExt as _;
use futures_util::future::Either;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::admit::{Admitted, Refused, admit};
use crate::client::body::{Answer, Pieces, response};
use crate::client::connection::{Busy, Peer, Phase};
use crate::client::headers::{self, own};
use crate::config::Mode;
use crate::disposition::Terms;
use crate::exchange::{Exchange, Opening};
use crate::respond::{IsExtra, Rendering, respond};
use crate::settings::{Settings, Shared};
use crate::upstream::{RequestBody, outgoing};
use crate::watch::GuardAction;

/// Serves one request.
pub(crate) fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> impl Future<Output = Response<Answer>> + Send {
    let version = request.version();
    let busy = (version <= Version::HTTP_11).then(|| {
        peer.set(Phase::Waiting);
        Busy(peer.clone())
    });
    let after_last = busy.is_some() && peer.was_last();
    // What follows a chunked request on its connection could be read in two ways.
    if busy.is_some() && request.headers().contains_key(header::TRANSFER_ENCODING) {
        peer.close_after();
    }
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let serving = Serving { shared, peer: peer.clone(), version };
    let finish = move |mut response: Response<Answer>| {
        let chunks = version == Version::HTTP_11 && response.body().size_hint().exact().is_none();
        if let Some(busy) = busy {
            peer.set(if chunks { Phase::Chunked } else { Phase::Other });
            response.body_mut().busy = Some(busy);
        }
        if upgrades && version <= Version::HTTP_11 {
            // What follows may be meant for the upgraded protocol.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    };
    // In a box, which is gone once the head is: a stream may last long, and there may be many.
    let serving = match after_last {
        true => Either::Left(std::future::ready(after_the_last())),
        false => Either::Right(Box::pin(serving.serve(request))),
    };
    serving.map(finish)
}

fn after_the_last() -> Response<Answer> {
    let message = "endstop: no request may follow a chunked one on its connection";
    let refused = Refused::new(StatusCode::BAD_REQUEST, "endstop_bad_framing", message);
    let mut response = refuse(&provider::GENERIC.main, "", &refused);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

struct Serving {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    version: Version,
}

impl Serving {
    async fn serve(self, request: Request<Incoming>) -> Response<Answer> {
        let settings = self.shared.settings();
        let id = uuid::Uuid::now_v7().simple().to_string();
        let mut admitted = match admit(&settings, &self.peer, &request) {
            Ok(admitted) => admitted,
            Err(denied) => return refuse(&denied.0, &id, &denied.1),
        };
        match admitted.wire.take() {
            None => pass(&settings, admitted, &id, request).await,
            Some(wire) => match self.check_recording() {
                Ok(()) => self.ask(&settings, admitted, wire, id, request).await,
                Err(refused) => refuse(&wire.profile, &id, &refused),
            },
        }
    }

    /// Refuses requests that could not be recorded, unless the operator wants them served anyway.
    fn check_recording(&self) -> Result<(), Refused> {
        let Some(recording) = &self.shared.recording else { return Ok(()) };
        recording.admits().map_err(|why| {
            let message = format!(
                "endstop: new requests are refused, because their endings cannot be recorded: \
                 {why}. Try again later; /readyz on the gateway's admin address has details"
            );
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, "endstop_cannot_record", message)
        })
    }

    /// Sends a request to a model, and returns the response.
    async fn ask(
        &self,
        settings: &Arc<Settings>,
        admitted: Admitted<'_>,
        wire: Arc<Wire>,
        id: String,
        request: Request<Incoming>,
    ) -> Response<Answer> {
        let profile = &wire.profile;
        let (mut parts, body) = request.into_parts();
        let body = match read_body(body, settings).await {
            Ok(body) => body,
            Err(refused) => return refuse(profile, &id, &refused),
        };
        let target = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let mut info = RequestInfo::from_request(profile, target, &body);
        if parts.method == Method::GET {
            info.background = true;
            info.streamed = Some(target.contains("stream=true"));
        }
        let streams = info.streamed == Some(true);
        let Admitted { routed, mode, tool_calls, tell, caller, .. } = admitted;
        let guards_stream = mode == Mode::Guard && streams;
        let usage = profile.request_shape.usage.filter(|_| guards_stream);
        let usage = usage.filter(|_| routed.upstream.ask_usage);
        let (sent, is_extra) = with_usage(body.clone(), usage);
        if guards_stream {
            // No error can be put into a compressed stream.
            let identity = HeaderValue::from_static("identity");
            parts.headers.insert(header::ACCEPT_ENCODING, identity);
        }
        let terms =
            Terms { mode, tool_calls, proves: routed.upstream.proves, background: info.background };
        let mut exchange = Exchange::new(
            &self.shared,
            settings,
            Opening {
                id,
                upstream: &routed.upstream.name,
                path: routed.uri.path(),
                wire: wire.clone(),
                info,
                body,
                terms,
                caller,
            },
        );
        let sent = RequestBody::Whole(Some(sent));
        let request = match outgoing(&routed, parts.method, parts.headers, sent) {
            Ok(request) => request,
            Err(refused) => {
                let answer = refuse(profile, exchange.id(), &refused);
                exchange.unanswered(TransportEnd::Unreachable(Unreachable::Other));
                return answer;
            }
        };
        match exchange.ask(routed.upstream, request).await {
            Ok(response) => {
                let reset = (self.version < Version::HTTP_11).then(|| self.peer.clone());
                respond(exchange, response, Rendering { tell, is_extra, reset }).await
            }
            Err(close) => unreachable(&mut exchange, close),
        }
    }
}

/// Passes on a request that does not ask a model, and its response, unread.
async fn pass(
    settings: &Settings,
    admitted: Admitted<'_>,
    id: &str,
    request: Request<Incoming>,
) -> Response<Answer> {
    let routed = admitted.routed;
    let profile = &routed.upstream.provider.main;
    let (parts, body) = request.into_parts();
    let body = if routed.upstream.credentials.is_some() {
        match read_body(body, settings).await {
            Ok(bytes) => RequestBody::Whole(Some(bytes)),
            Err(refused) => return refuse(profile, id, &refused),
        }
    } else {
        RequestBody::Passed(body)
    };
    let request = match outgoing(&routed, parts.method, parts.headers, body) {
        Ok(request) => request,
        Err(refused) => return refuse(profile, id, &refused),
    };
    match settings.clients.ask(routed.upstream, request).await {
        Ok(answer) => {
            let (parts, body) = answer.into_parts();
            let body = body.into_http().map_or_else(|| Answer::whole(""), Answer::passed);
            response(parts.status, headers::returned(parts.headers, id), body)
        }
        Err(close) => {
            let watcher =
                endstop::Watcher::new(profile, endstop::Head::default(), RequestInfo::default());
            let ending = watcher.finish(close);
            no_answer(profile, headers::of_error(id), &ending)
        }
    }
}

/// Adds the option that makes a stream report its tokens. The event that it adds is not the
/// client's.
fn with_usage(body: Bytes, usage: Option<UsageOption>) -> (Bytes, Option<IsExtra>) {
    let added = usage.and_then(|usage| Some((usage.added_to(&body)?, usage.is_extra)));
    added.map_or((body, None), |(body, is_extra)| (Bytes::from(body), Some(is_extra)))
}

async fn read_body(mut body: Incoming, settings: &Settings) -> Result<Bytes, Refused> {
    let limits = &settings.config.limits;
    let too_large = || {
        let message =
            format!("endstop: the request is larger than {} bytes (body_bytes)", limits.body_bytes);
        Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "endstop_too_large", message)
    };
    if body.size_hint().lower() > limits.body_bytes as u64 {
        return Err(too_large());
    }
    let mut gathered = Pieces::default();
    loop {
        let frame = tokio::time::timeout(limits.client_read, body.frame()).await.map_err(|_| {
            let message = "endstop: the body of the request did not arrive in time (client_read)";
            Refused::new(StatusCode::REQUEST_TIMEOUT, "endstop_slow_request", message)
        })?;
        match frame {
            None => return Ok(gathered.bytes()),
            Some(Err(_)) => {
                let message = "endstop: the body of the request could not be read";
                return Err(Refused::new(StatusCode::BAD_REQUEST, "endstop_bad_request", message));
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    gathered.push(data);
                }
            }
        }
        if gathered.len() > limits.body_bytes {
            return Err(too_large());
        }
    }
}

/// Returns the error for an upstream that did not answer, and ends the exchange.
fn unreachable(exchange: &mut Exchange, close: TransportEnd) -> Response<Answer> {
    let mut headers = headers::of_error(exchange.id());
    let ending = exchange.unanswered(close);
    let decision = exchange.decision(&ending);
    headers::describe(&mut headers, &ending, GuardAction::Refused, decision);
    no_answer(&exchange.wire().profile, headers, &ending)
}

fn no_answer(
    profile: &Profile,
    headers: hyper::HeaderMap,
    ending: &endstop::Ending,
) -> Response<Answer> {
    let timed_out = ending.reason == Reason::TimedOut;
    let status = if timed_out { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
    let message =
        format!("endstop: no answer from the upstream ({}): {}.", ending.cause(), ending.sentence);
    let error = GatewayError {
        status: status.as_u16(),
        code: "endstop_no_answer",
        message: &message,
        reason: Some(ending.reason),
        repeats: false,
    };
    response(status, headers, Answer::whole(profile.error_body(&error)))
}

fn refuse(profile: &Profile, id: &str, refused: &Refused) -> Response<Answer> {
    let Refused { status, code, message } = refused;
    let error = GatewayError {
        status: status.as_u16(),
        code,
        message,
        repeats: status.is_client_error(),
        ..GatewayError::default()
    };
    let mut headers = headers::of_error(id);
    headers.insert(own::SHOULD_RETRY, HeaderValue::from_static("false"));
    response(*status, headers, Answer::whole(profile.error_body(&error)))
}

/// Returns the response to a request at which the gateway itself failed.
#[must_use]
pub(crate) fn broke() -> Response<Answer> {
    let error = GatewayError {
        status: 500,
        code: "endstop_internal",
        message: "endstop: the gateway failed at this request; other requests are not affected",
        ..GatewayError::default()
    };
    let body = provider::GENERIC.main.error_body(&error);
    response(StatusCode::INTERNAL_SERVER_ERROR, headers::of_error(""), Answer::whole(body))
}
