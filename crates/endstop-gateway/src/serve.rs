//! One request: admitted, asked of its upstream, answered.
//!
//! ```text
//! admit -> read the body -> exchange: ask the upstream -> respond: plain or streamed
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use endstop::dialect::GatewayError;
use endstop::next_request::UsageOption;
use endstop::{
    Closed, Ending, Profile, Reason, RequestInfo, TransportEnd, Unreachable, Wire, provider,
};
use futures_util::FutureExt as _;
use futures_util::future::Either;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::time::Instant;

use crate::admit::{Admitted, Refused, admit};
use crate::client::body::{ClientBody, Pieces, response};
use crate::client::connection::{Busy, Peer, Phase};
use crate::client::headers::{self, own};
use crate::client::upload::{Upload, UploadError};
use crate::config::Mode;
use crate::disposition::ResponseRules;
use crate::exchange::{Exchange, NoAnswer, Opening};
use crate::memory::Full;
use crate::respond::{IsExtra, Rendering, respond};
use crate::settings::{Settings, Shared};
use crate::upstream::{Outgoing, Over, RequestBody};
use crate::watch::GuardAction;
use crate::watch::mask::SecretsShown;

/// Bytes of a refused request's body that are read, at most, and the time for them.
const TAKEN_IN: usize = 256 << 10;
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// Serves one request.
pub(crate) fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    mut busy: Busy,
    request: Request<Incoming>,
) -> impl Future<Output = Response<ClientBody>> + Send {
    let version = request.version();
    let http1 = version <= Version::HTTP_11;
    let after_last = http1 && peer.was_last();
    // What follows a chunked request on its connection could be read in two ways.
    if http1 && request.headers().contains_key(header::TRANSFER_ENCODING) {
        peer.close_after();
    }
    let leaves_http = headers::upgrades(request.headers()) || request.method() == Method::CONNECT;
    let serving = Serving { shared, peer, version };
    let finish = move |mut response: Response<ClientBody>| {
        let chunks = version == Version::HTTP_11 && response.body().size_hint().exact().is_none();
        busy.responds(if chunks { Phase::Chunked } else { Phase::Other });
        response.body_mut().busy = Some(busy);
        if leaves_http && http1 {
            // What follows may be meant for another protocol.
            let upgrades = response.headers().contains_key(header::UPGRADE);
            let value = if upgrades { "close, upgrade" } else { "close" };
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static(value));
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

fn after_the_last() -> Response<ClientBody> {
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
    async fn serve(self, request: Request<Incoming>) -> Response<ClientBody> {
        let settings = self.shared.settings();
        let id = uuid::Uuid::now_v7().simple().to_string();
        let mut admitted = match admit(&settings, &self.shared.rates, &self.peer, &request) {
            Ok(admitted) => admitted,
            Err(denied) => {
                self.take_in(request.into_body()).await;
                return refuse(&denied.0, &id, &denied.1);
            }
        };
        let slot = admitted.slot.take();
        let mut response = match admitted.wire.take() {
            None => self.pass(&settings, admitted, &id, request).await,
            Some(wire) => match self.check_recording() {
                Ok(()) => self.ask(&settings, admitted, wire, id, request).await,
                Err(refused) => {
                    self.take_in(request.into_body()).await;
                    refuse(&wire.profile, &id, &refused)
                }
            },
        };
        response.body_mut().slot = slot;
        response
    }

    /// Reads the body of a refused HTTP/2 request, as far as it is small and comes soon.
    ///
    /// Without this, the stream would be reset after the response, and a client that is still sending
    /// may lose the response (curl 7.88 does). Over HTTP/1.1, a client that expects `100 Continue` would
    /// be asked for its body by this.
    async fn take_in(&self, mut body: impl Body<Data = Bytes> + Unpin) {
        if self.version != Version::HTTP_2 {
            return;
        }
        let reading = async {
            let mut taken = 0;
            while let Some(Ok(frame)) = body.frame().await {
                taken += frame.data_ref().map_or(0, Bytes::len);
                if taken > TAKEN_IN {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(TAKEN_WITHIN, reading).await;
    }

    /// Refuses requests that could not be recorded, unless the operator wants them served anyway.
    fn check_recording(&self) -> Result<(), Refused> {
        let Some(recording) = &self.shared.recording else { return Ok(()) };
        recording.admits().map_err(|why| {
            let message = format!(
                "endstop: new requests are refused, because their endings cannot be recorded: \
                 {why}. Try again later; /readyz on the gateway's admin address has details"
            );
            let refused =
                Refused::new(StatusCode::SERVICE_UNAVAILABLE, "endstop_cannot_record", message);
            refused.retry_after(5)
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
    ) -> Response<ClientBody> {
        let profile = &wire.profile;
        let (mut parts, body) = request.into_parts();
        let body = match self.read_body(body, settings).await {
            Ok(body) => body,
            Err(refused) => return refuse(profile, &id, &refused),
        };
        let target = admitted.routed.path_and_query();
        let info = if parts.method == Method::GET {
            RequestInfo::from_poll(profile, &target)
        } else {
            RequestInfo::from_request(profile, &target, &body)
        };
        drop(target);
        // Where it cannot be told, it may be a stream.
        let streams = info.streamed != Some(false);
        let Admitted { routed, mode, tool_calls, tell, caller, .. } = admitted;
        let guards_stream = mode == Mode::Guard && streams;
        let usage = profile.request_shape.usage.filter(|_| guards_stream);
        let usage = usage.filter(|_| routed.upstream.ask_usage);
        let (mut sent, is_extra) = with_usage(body.clone(), usage);
        if is_extra.is_some() {
            // It is a second copy.
            let mut memory = self.shared.memory.begin();
            match memory.grow(sent.len(), settings.config.limits.request_memory) {
                Ok(()) => sent = memory.hold(sent),
                Err(full) => return refuse(profile, &id, &no_memory(full)),
            }
        }
        if guards_stream {
            // No error can be put into a compressed stream.
            let identity = HeaderValue::from_static("identity");
            parts.headers.insert(header::ACCEPT_ENCODING, identity);
        }
        let upstream = routed.upstream;
        let auth = upstream.provider.auth;
        let secrets = SecretsShown::new(&parts.headers, &parts.uri, auth, &upstream.secrets);
        let background = info.background;
        let terms = ResponseRules { mode, tool_calls, proves: upstream.proves, background };
        let token = settings.access_token.as_ref();
        let mut exchange = Exchange::new(
            &self.shared,
            settings,
            Opening {
                id,
                upstream: &upstream.name,
                // An upstream may close a kept connection at any time: then it is sent once more.
                outgoing: Outgoing::new(routed, token, parts.method, parts.headers).kept(true),
                wire: wire.clone(),
                info,
                body,
                sent,
                terms,
                caller,
                secrets,
            },
        );
        let live = &self.shared.live;
        let waiting = live.wait();
        let asked = tokio::select! {
            biased;
            asked = exchange.ask(upstream) => asked,
            () = live.closing() => Err(NoAnswer::Closed(TransportEnd::ShutDown)),
        };
        drop(waiting);
        match asked {
            Ok(response) => {
                let reset = (self.version < Version::HTTP_11).then(|| self.peer.clone());
                respond(exchange, response, Rendering { tell, is_extra, reset }).await
            }
            Err(NoAnswer::Refused(refused)) => {
                let answer = refuse(profile, exchange.id(), &refused);
                let ending = exchange.unanswered(TransportEnd::Unreachable(Unreachable::Other));
                exchange.answer(ending, GuardAction::Refused, answer)
            }
            Err(NoAnswer::Closed(close)) => unreachable(exchange, close),
        }
    }

    /// Passes on a request that does not ask a model, and its response, unread.
    async fn pass(
        &self,
        settings: &Settings,
        admitted: Admitted<'_>,
        id: &str,
        request: Request<Incoming>,
    ) -> Response<ClientBody> {
        let routed = admitted.routed;
        let upstream = routed.upstream;
        let profile = &upstream.provider.main;
        let (parts, body) = request.into_parts();
        // The body of such a request is only sent if its length is known.
        let is_bodiless = matches!(parts.method, Method::GET | Method::HEAD);
        let is_unsized = is_bodiless && !body.is_end_stream();
        // With a length of 0, the head is passed on as it came.
        let is_empty = body.is_end_stream() && !parts.headers.contains_key(header::CONTENT_LENGTH);
        let body = if is_empty {
            RequestBody::Whole(None)
        } else if upstream.credentials.is_some() || is_unsized {
            match self.read_body(body, settings).await {
                Ok(bytes) => RequestBody::whole(bytes),
                Err(refused) => return refuse(profile, id, &refused),
            }
        } else {
            RequestBody::passed(Upload::new(body, &settings.config.limits))
        };
        let token = settings.access_token.as_ref();
        let mut outgoing = Outgoing::new(routed, token, parts.method, parts.headers).kept(is_empty);
        let request = match outgoing.request(upstream, body) {
            Ok(request) => request,
            Err(refused) => return refuse(profile, id, &refused),
        };
        let mut asked = settings.clients.ask(upstream, request, Over::Kept).await;
        // A body that was passed on as it came is gone.
        if matches!(&asked, Err(unanswered) if unanswered.closed_when_kept && is_empty)
            && let Ok(request) = outgoing.request(upstream, RequestBody::Whole(None))
        {
            asked = Box::pin(settings.clients.ask(upstream, request, Over::New)).await;
        }
        match asked.map_err(|unanswered| unanswered.close) {
            Ok(answer) => {
                let (parts, body) = answer.into_parts();
                let idle = settings.config.limits.idle;
                let body = ClientBody::passed(body, idle);
                response(parts.status, headers::returned(parts.headers, id), body)
            }
            Err(TransportEnd::ClientGone) => refuse(profile, id, &broken_upload()),
            Err(close) => {
                let watcher = endstop::Watcher::new(
                    profile,
                    endstop::Head::default(),
                    RequestInfo::default(),
                );
                let ending = watcher.finish(close);
                no_answer(profile, headers::of_error(id), &ending)
            }
        }
    }

    /// Reads the body of a request. Its memory counts as it arrives, until the last copy of it is gone.
    async fn read_body(&self, body: Incoming, settings: &Settings) -> Result<Bytes, Refused> {
        let mut body = Upload::new(body, &settings.config.limits);
        let read = self.read(&mut body, settings).await;
        if read.is_err() {
            self.take_in(body).await;
        }
        read
    }

    async fn read(&self, body: &mut Upload, settings: &Settings) -> Result<Bytes, Refused> {
        let limits = &settings.config.limits;
        let too_large = || {
            let message = format!(
                "endstop: the request is larger than {} bytes (body_bytes)",
                limits.body_bytes
            );
            Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "endstop_too_large", message)
        };
        if body.size_hint().lower() > limits.body_bytes as u64 {
            return Err(too_large());
        }
        let last = Instant::now() + limits.total;
        let mut reserved = self.shared.memory.begin();
        let mut gathered = Pieces::default();
        while !body.is_end_stream() {
            let frame = tokio::time::timeout_at(last, body.frame());
            let frame = frame.await.map_err(|_| slow_request())?;
            match frame {
                None => break,
                Some(Err(UploadError::TooSlow)) => return Err(slow_request()),
                Some(Err(UploadError::Broken(_))) => {
                    let message = "endstop: the body of the request could not be read";
                    return Err(Refused::new(
                        StatusCode::BAD_REQUEST,
                        "endstop_bad_request",
                        message,
                    ));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        reserved.grow(data.len(), limits.request_memory).map_err(no_memory)?;
                        gathered.push(data);
                    }
                }
            }
            if gathered.len() > limits.body_bytes {
                return Err(too_large());
            }
        }
        Ok(reserved.hold(gathered.bytes()))
    }
}

/// Adds the option that makes a stream report its tokens. The event that it adds is not the
/// client's.
fn with_usage(body: Bytes, usage: Option<UsageOption>) -> (Bytes, Option<IsExtra>) {
    let added = usage.and_then(|usage| Some((usage.added_to(&body)?, usage.is_extra)));
    added.map_or((body, None), |(body, is_extra)| (Bytes::from(body), Some(is_extra)))
}

fn no_memory(_: Full) -> Refused {
    let message = "endstop: the gateway has no memory left for more requests (request_memory): try \
                   again in a few seconds";
    let refused = Refused::new(StatusCode::SERVICE_UNAVAILABLE, "endstop_no_memory", message);
    refused.retry_after(5)
}

/// Returns the refusal of a request whose body comes too slowly.
fn slow_request() -> Refused {
    let message =
        "endstop: the body of the request did not arrive in time (client_read, body_rate, total)";
    Refused::new(StatusCode::REQUEST_TIMEOUT, "endstop_slow_request", message)
}

/// Returns the refusal of a request whose body broke off while it was passed on.
fn broken_upload() -> Refused {
    let message = "endstop: the body of the request broke off, or came too slowly (client_read, \
                   body_rate)";
    Refused::new(StatusCode::REQUEST_TIMEOUT, "endstop_slow_request", message)
}

/// Returns the error for an upstream that did not answer, and ends the exchange.
fn unreachable(mut exchange: Box<Exchange>, close: TransportEnd) -> Response<ClientBody> {
    let mut headers = headers::of_error(exchange.id());
    let ending = exchange.unanswered(close);
    let decision = exchange.decision(&ending);
    headers::describe(&mut headers, &ending, GuardAction::Refused, decision);
    let answer = no_answer(&exchange.wire().profile, headers, &ending);
    exchange.answer(ending, GuardAction::Refused, answer)
}

fn no_answer(
    profile: &Profile,
    mut headers: hyper::HeaderMap,
    ending: &Ending,
) -> Response<ClientBody> {
    let exhausted = Closed::Unreachable(Unreachable::Exhausted);
    let shut_down = ending.closed == Closed::ShutDown;
    let status = match (ending.closed == exhausted || shut_down, ending.reason) {
        (true, _) => StatusCode::SERVICE_UNAVAILABLE,
        (false, Reason::TimedOut) => StatusCode::GATEWAY_TIMEOUT,
        (false, _) => StatusCode::BAD_GATEWAY,
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    let message = if shut_down {
        "endstop: the gateway shut down before the response began: retry your request".to_owned()
    } else {
        format!("endstop: no answer from the upstream ({}): {}.", ending.cause(), ending.sentence)
    };
    let error = GatewayError {
        status: status.as_u16(),
        code: if shut_down { "endstop_shutting_down" } else { "endstop_no_answer" },
        message: &message,
        reason: Some(ending.reason),
        repeats: false,
    };
    response(status, headers, ClientBody::whole(profile.error_body(&error)))
}

fn refuse(profile: &Profile, id: &str, refused: &Refused) -> Response<ClientBody> {
    let Refused { status, code, message, retry_after, allow } = refused;
    let error = GatewayError {
        status: status.as_u16(),
        code,
        message,
        repeats: status.is_client_error() && retry_after.is_none(),
        ..GatewayError::default()
    };
    let mut headers = headers::of_error(id);
    match retry_after {
        Some(seconds) => headers.insert(header::RETRY_AFTER, HeaderValue::from(*seconds)),
        None => headers.insert(own::SHOULD_RETRY, HeaderValue::from_static("false")),
    };
    if let Some(allow) = allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    if *status == StatusCode::UPGRADE_REQUIRED {
        // RFC 9110, section 15.5.22: the response names the protocols that would be served.
        headers.insert(header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    }
    response(*status, headers, ClientBody::whole(profile.error_body(&error)))
}

/// Returns the response to a request at which the gateway itself failed.
#[must_use]
pub(crate) fn broke() -> Response<ClientBody> {
    let error = GatewayError {
        status: 500,
        code: "endstop_internal",
        message: "endstop: the gateway failed at this request; other requests are not affected",
        ..GatewayError::default()
    };
    let body = provider::GENERIC.main.error_body(&error);
    response(StatusCode::INTERNAL_SERVER_ERROR, headers::of_error(""), ClientBody::whole(body))
}
