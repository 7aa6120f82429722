//! One request: routed, asked of its upstream, passed back as its mode says.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use endstop::dialect::Framing;
use endstop::dialect::GatewayError;
use endstop::provider::Auth;
use endstop::registry::Clues;
use endstop::{Ending, FaultForm, Profile, RequestInfo, Timer, TransportEnd, Wire, provider};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::config::{Mode, ToolCalls};
use crate::connect::close_of;
use crate::decode::Decoder;
use crate::ending_log::GuardAction;
use crate::exchange::{Exchange, Opening};
use crate::failure::{Failure, Strictness, failure};
use crate::guard::Guard;
use crate::live::{Live, LiveRelay};
use crate::peer::{Busy, Peer, Phase};
use crate::recording::Recording;
use crate::relay::{Abort, LEAVE, Stream, Timers};
use crate::route::{NoRoute, Routed};
use crate::state::{Settings, Shared};

/// What callers say to the gateway, and it says to them.
mod own {
    use hyper::header::HeaderName;

    pub(super) const PREFIX: &str = "x-endstop-";
    pub(super) const ID: HeaderName = HeaderName::from_static("x-endstop-id");
    pub(super) const REASON: HeaderName = HeaderName::from_static("x-endstop-reason");
    pub(super) const FINISH_REASON: HeaderName = HeaderName::from_static("x-endstop-finish-reason");
    pub(super) const NATIVE: HeaderName = HeaderName::from_static("x-endstop-native");
    pub(super) const CONFIDENCE: HeaderName = HeaderName::from_static("x-endstop-confidence");
    pub(super) const ACTION: HeaderName = HeaderName::from_static("x-endstop-action");
    pub(super) const MODE: HeaderName = HeaderName::from_static("x-endstop-mode");
    pub(super) const TOOL_CALLS: HeaderName = HeaderName::from_static("x-endstop-tool-calls");
    pub(super) const TELL: HeaderName = HeaderName::from_static("x-endstop-tell");
    pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-endstop-token");
    pub(super) const TEAM: HeaderName = HeaderName::from_static("x-endstop-team");
    pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
}

/// The body of a request to an upstream.
#[derive(Debug)]
pub enum Sent {
    /// All of it.
    Whole(Option<Bytes>),
    /// As it comes.
    Passed(Incoming),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Passed(body) => body.size_hint(),
        }
    }
}

/// The body of a response to a client.
#[derive(Debug)]
pub(crate) struct Answer {
    kind: Kind,
    /// While the response is under way, its connection is busy.
    busy: Option<Busy>,
}

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    Passed(Incoming),
    /// So much, and then no clean end.
    Broken(Option<Bytes>, Pin<Box<tokio::time::Sleep>>),
    Relayed(LiveRelay),
}

impl Answer {
    fn new(kind: Kind) -> Self {
        Self { kind, busy: None }
    }

    fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(Kind::Whole(Some(bytes.into())))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Abort;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        match &mut self.get_mut().kind {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Passed(body) => Pin::new(body).poll_frame(cx).map_err(|_| Abort),
            Kind::Broken(bytes, leaving) => {
                if let Some(bytes) = bytes.take() {
                    // From now on: until then nothing has left, however long ago it was judged.
                    leaving.as_mut().reset(tokio::time::Instant::now() + LEAVE);
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                }
                leaving.as_mut().poll(cx).map(|()| Some(Err(Abort)))
            }
            Kind::Relayed(relay) => Pin::new(relay).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Passed(body) => body.is_end_stream(),
            Kind::Broken(..) | Kind::Relayed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Passed(body) => body.size_hint(),
            Kind::Broken(..) | Kind::Relayed(_) => SizeHint::default(),
        }
    }
}

/// Why a request is not passed on.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    code: &'static str,
    message: String,
}

fn refused(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refused {
    Refused { status, code, message: message.into() }
}

/// Serves one request.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Response<Answer> {
    let version = request.version();
    let busy = (version <= Version::HTTP_11).then(|| {
        peer.set(Phase::Waiting);
        Busy(peer.clone())
    });
    if busy.is_some() && peer.was_last() {
        return after_the_last();
    }
    // What follows on such a connection could be read in two ways.
    if busy.is_some() && request.headers().contains_key(header::TRANSFER_ENCODING) {
        peer.close_after();
    }
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let mut response = Serving { shared: &shared, peer: &peer, version }.serve(request).await;
    let chunks = version == Version::HTTP_11 && response.body().size_hint().exact().is_none();
    if let Some(busy) = busy {
        peer.set(if chunks { Phase::Chunked } else { Phase::Other });
        response.body_mut().busy = Some(busy);
    }
    if upgrades && version <= Version::HTTP_11 {
        // Whatever follows may be meant for whoever upgraded.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn after_the_last() -> Response<Answer> {
    let message = "endstop: no request may follow a chunked one on its connection";
    let refused = refused(StatusCode::BAD_REQUEST, "endstop_bad_framing", message);
    let mut response = refuse(&provider::GENERIC.main, "", &refused);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

struct Serving<'s> {
    shared: &'s Arc<Shared>,
    peer: &'s Arc<Peer>,
    version: Version,
}

/// A request whose upstream is known.
struct Admitted<'r> {
    id: String,
    routed: Routed<'r>,
    wire: Option<Wire>,
    mode: Mode,
    tool_calls: ToolCalls,
    tell: bool,
    who: Who,
}

/// Who asks.
#[derive(Debug, Default)]
struct Who {
    team_id: Option<String>,
    key_id: Option<String>,
}

impl Serving<'_> {
    async fn serve(&self, request: Request<Incoming>) -> Response<Answer> {
        let settings = self.shared.settings();
        let id = uuid::Uuid::now_v7().simple().to_string();
        let mut admitted = match admit(&settings, &request, id.clone()) {
            Ok(admitted) => admitted,
            Err(denied) => return refuse(&denied.0, &id, &denied.1),
        };
        match admitted.wire.take() {
            None => self.pass(&settings, admitted, request).await,
            Some(wire) => match self.is_recorded() {
                Ok(()) => self.ask(&settings, admitted, wire, request).await,
                Err(unrecorded) => refuse(&wire.profile, &id, &unrecorded),
            },
        }
    }

    /// What cannot be recorded is not begun, unless that is what the operator wants.
    fn is_recorded(&self) -> Result<(), Refused> {
        let Some(recording) = &self.shared.recording else { return Ok(()) };
        recording.admits().map_err(|why| {
            let message = format!(
                "endstop: no new request is taken: {why}; try again later, and see /readyz on the \
                 gateway's admin address"
            );
            refused(StatusCode::SERVICE_UNAVAILABLE, "endstop_cannot_record", message)
        })
    }

    /// What is no question to a model is passed on, and back, as it is.
    async fn pass(
        &self,
        settings: &Settings,
        admitted: Admitted<'_>,
        request: Request<Incoming>,
    ) -> Response<Answer> {
        let Admitted { id, routed, .. } = admitted;
        let profile = &routed.upstream.provider.main;
        let (parts, body) = request.into_parts();
        let body = if routed.upstream.credentials.is_some() {
            match read_body(body, settings).await {
                Ok(bytes) => Sent::Whole(Some(bytes)),
                Err(refused) => return refuse(profile, &id, &refused),
            }
        } else {
            Sent::Passed(body)
        };
        let upstream_request = match outgoing(&routed, parts.method, parts.headers, body) {
            Ok(request) => request,
            Err(refused) => return refuse(profile, &id, &refused),
        };
        match settings.clients.ask(routed.upstream, upstream_request).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let headers = returned_headers(parts.headers, &id);
                respond(parts.status, headers, Answer::new(Kind::Passed(body)))
            }
            Err(close) => {
                let reader =
                    endstop::Watcher::new(profile, endstop::Head::default(), Default::default());
                unreachable(profile, &id, &reader.finish(close))
            }
        }
    }

    /// A question to a model.
    async fn ask(
        &self,
        settings: &Settings,
        admitted: Admitted<'_>,
        wire: Wire,
        request: Request<Incoming>,
    ) -> Response<Answer> {
        let Admitted { id, routed, mode, tool_calls, tell, who, .. } = admitted;
        let profile = &wire.profile;
        let (mut parts, body) = request.into_parts();
        let body = match read_body(body, settings).await {
            Ok(body) => body,
            Err(refused) => return refuse(profile, &id, &refused),
        };
        let target = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let asked = RequestInfo::from_request(profile, target, &body);
        let strictness = Strictness { tool_calls, proves: routed.upstream.proves };
        let spool = self.shared.recording.as_ref().map(Recording::spool);
        let mut turn = Exchange::new(
            self.shared.told.clone(),
            spool,
            Opening {
                id: id.clone(),
                upstream: routed.upstream.name.clone(),
                path: routed.path.clone(),
                wire: wire.clone(),
                asked,
                mode,
                strictness,
                team_id: who.team_id,
                key_id: who.key_id,
            },
        );
        let streams = turn.asked().streamed == Some(true);
        let wants_usage = mode == Mode::Guard && streams && routed.upstream.ask_usage;
        let asking = profile.request_shape.usage.filter(|_| wants_usage).and_then(|usage| {
            let asking = usage.added_to(&body)?;
            Some((Bytes::from(asking), usage.is_extra))
        });
        let (body, is_extra) = asking.map_or((body, None), |(body, extra)| (body, Some(extra)));
        if mode == Mode::Guard && streams {
            // An error cannot be put into what is compressed.
            let identity = HeaderValue::from_static("identity");
            parts.headers.insert(header::ACCEPT_ENCODING, identity);
        }
        let sent = Sent::Whole(Some(body));
        let upstream_request = match outgoing(&routed, parts.method, parts.headers, sent) {
            Ok(request) => request,
            Err(refused) => {
                turn.unanswered(TransportEnd::Unreachable(endstop::Unreachable::Other));
                return refuse(profile, &id, &refused);
            }
        };
        match settings.clients.ask(routed.upstream, upstream_request).await {
            Ok(response) => {
                self.answer(
                    settings,
                    turn,
                    &id,
                    Flow { tell, is_extra, ..Flow::default() },
                    response,
                )
                .await
            }
            Err(close) => {
                let ending = turn.unanswered(close);
                unreachable(profile, &id, &ending)
            }
        }
    }

    async fn answer(
        &self,
        settings: &Settings,
        mut turn: Exchange,
        id: &str,
        flow: Flow,
        response: Response<Incoming>,
    ) -> Response<Answer> {
        let (parts, mut body) = response.into_parts();
        turn.head(parts.status.as_u16(), &parts.headers);
        let content_type = text(&parts.headers, &header::CONTENT_TYPE).to_ascii_lowercase();
        let framing = stream_framing(&content_type, turn.wire().profile.framing);
        let mut first = Bytes::new();
        let mut framing = framing.filter(|_| parts.status.is_success());
        if framing.is_none() && parts.status.is_success() && turn.asked().streamed == Some(true) {
            // Labelled as no stream, and yet it may be one.
            first = peek(&mut body, settings.config.limits.idle).await;
            framing = sniff(&first, turn.wire().profile.framing);
        }
        let headers = returned_headers(parts.headers, id);
        if let Some(framing) = framing {
            let flow = Flow { framing, first, ..flow };
            return self.stream(settings, turn, parts.status, headers, body, flow);
        }
        let collected = collect(&mut body, first, settings).await;
        match collected {
            Collected::Whole(bytes, close) => plain(turn, id, parts.status, headers, bytes, close),
            Collected::TooLarge(first) => {
                let framing = turn.wire().profile.framing;
                let flow = Flow { framing, first, ..Flow::default() };
                self.stream(settings, turn, parts.status, headers, body, flow)
            }
        }
    }

    fn stream(
        &self,
        settings: &Settings,
        turn: Exchange,
        status: StatusCode,
        mut headers: HeaderMap,
        body: Incoming,
        flow: Flow,
    ) -> Response<Answer> {
        let limits = &settings.config.limits;
        let content_type = text(&headers, &header::CONTENT_TYPE).to_owned();
        let encoding = text(&headers, &header::CONTENT_ENCODING).to_owned();
        let guard = Guard::new(
            turn.reader(&content_type, limits.event_bytes),
            turn.wire().profile,
            turn.mode(),
            turn.strictness(),
        )
        .capped(turn.asked().cap.is_some())
        .framed_as(flow.framing)
        .without(flow.is_extra);
        let guarded = turn.mode() == Mode::Guard;
        if guarded {
            // An error may be added, and heartbeats.
            headers.remove(header::CONTENT_LENGTH);
        }
        let timers = Timers {
            idle: limits.idle,
            total: limits.total,
            proof: limits.proof,
            heartbeat: settings.config.heartbeat.filter(|_| guarded),
        };
        let old = self.version < Version::HTTP_11;
        let stream = Stream::new(body, guard, turn, timers)
            .starting(flow.first, encoding)
            .telling(flow.tell)
            .resetting(old.then(|| self.peer.clone()));
        let relay = Live::add(&self.shared.live, stream);
        respond(status, headers, Answer::new(Kind::Relayed(relay)))
    }
}

/// How a stream begins.
struct Flow {
    framing: Framing,
    first: Bytes,
    tell: bool,
    /// Events that we asked for ourselves.
    is_extra: Option<fn(&[u8]) -> bool>,
}

impl Default for Flow {
    fn default() -> Self {
        Self { framing: Framing::Sse, first: Bytes::new(), tell: false, is_extra: None }
    }
}

type Denied = Box<(Profile, Refused)>;

fn admit<'r>(
    settings: &'r Settings,
    request: &Request<Incoming>,
    id: String,
) -> Result<Admitted<'r>, Denied> {
    let generic = || provider::GENERIC.main;
    let routed = settings.routes.find(request.uri()).map_err(|lost| {
        let NoRoute { provider, message } = lost;
        let profile = provider.and_then(provider::by_id).map_or_else(generic, |known| known.main);
        Box::new((profile, refused(StatusCode::NOT_FOUND, "endstop_unknown_route", message)))
    })?;
    let upstream = routed.upstream;
    let posted = request.method() == Method::POST;
    let wire = wire(settings, &routed, request).filter(|_| posted);
    let told_in = wire.as_ref().map_or(upstream.provider.main, |wire| wire.profile);
    let headers = request.headers();
    let checked = check_method(request)
        .and_then(|()| check_token(settings, &routed, request))
        .and_then(|()| modes(settings, &routed, headers));
    let (mode, tool_calls) = checked.map_err(|refused| Box::new((told_in, refused)))?;
    let who = who(settings, &routed, request).map_err(|refused| Box::new((told_in, refused)))?;
    let tell = match headers.get(own::TELL).map(HeaderValue::as_bytes) {
        None => false,
        Some(b"comment") => true,
        Some(_) => {
            let message = "endstop: x-endstop-tell can only be `comment`";
            let refused = refused(StatusCode::BAD_REQUEST, "endstop_bad_header", message);
            return Err(Box::new((told_in, refused)));
        }
    };
    Ok(Admitted { id, routed, wire, mode, tool_calls, tell, who })
}

/// The wire that serves the path, with the operator's own words; none if no wire does.
fn wire(settings: &Settings, routed: &Routed<'_>, request: &Request<Incoming>) -> Option<Wire> {
    let pairs = request.headers().iter();
    let headers: Vec<(&str, &str)> =
        pairs.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
    let path = routed.uri.path_and_query().map_or("", PathAndQuery::as_str);
    settings.config.registry.serving(&Clues {
        provider: &routed.upstream.speaks,
        path,
        headers: &headers,
        ..Clues::default()
    })
}

fn check_method(request: &Request<Incoming>) -> Result<(), Refused> {
    if request.method() == Method::CONNECT {
        let message = "endstop: this is no proxy for CONNECT; use it as a base URL";
        return Err(refused(StatusCode::METHOD_NOT_ALLOWED, "endstop_bad_method", message));
    }
    if request.headers().contains_key(header::UPGRADE) {
        let message = "endstop: WebSockets and other upgrades are not passed on; use the HTTP API, \
                       or connect to the provider directly";
        // Clients that try WebSockets first go on to HTTP at once after this status: Codex makes one
        // attempt in place of seven after 501.
        return Err(refused(StatusCode::UPGRADE_REQUIRED, "endstop_no_upgrade", message));
    }
    let both = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    if both.iter().all(|name| request.headers().contains_key(name)) {
        let message = "endstop: the request has a length and a transfer coding";
        return Err(refused(StatusCode::BAD_REQUEST, "endstop_bad_framing", message));
    }
    Ok(())
}

/// Whoever spends the gateway's own keys shows its token, if there is one.
fn check_token(
    settings: &Settings,
    routed: &Routed<'_>,
    request: &Request<Incoming>,
) -> Result<(), Refused> {
    let Some(token) = settings.access_token.as_ref().filter(|_| routed.upstream.has_own_key())
    else {
        return Ok(());
    };
    let headers = request.headers();
    let shown = |name: &HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(value.strip_prefix("Bearer ").unwrap_or(value))
    };
    let key_header = match routed.upstream.provider.auth {
        Auth::Header(name) | Auth::HeaderOrQuery(name, _) => HeaderName::from_static(name),
        Auth::Bearer | Auth::SigV4 | Auth::Open => header::AUTHORIZATION,
    };
    let names = [own::TOKEN, header::AUTHORIZATION, key_header];
    let in_header = names.iter().filter_map(shown).any(|value| token.is(value));
    // A caller that signs shows it as the id of its access key.
    let signed = shown(&header::AUTHORIZATION)
        .and_then(|value| value.split_once("Credential="))
        .and_then(|(_, rest)| rest.split_once('/'))
        .is_some_and(|(id, _)| token.is(id));
    let in_query = match routed.upstream.provider.auth {
        Auth::HeaderOrQuery(_, name) => query_value(request.uri().query().unwrap_or(""), name)
            .is_some_and(|value| token.is(value)),
        Auth::Header(_) | Auth::Bearer | Auth::SigV4 | Auth::Open => false,
    };
    if in_header || signed || in_query {
        return Ok(());
    }
    let message = "endstop: this upstream uses the gateway's own key: show the gateway's access \
                   token as the API key, or in x-endstop-token";
    Err(refused(StatusCode::UNAUTHORIZED, "endstop_unauthorized", message))
}

/// Who asks: the upstream's team, else that of the key, else what the caller says where that is allowed.
fn who(
    settings: &Settings,
    routed: &Routed<'_>,
    request: &Request<Incoming>,
) -> Result<Who, Refused> {
    let Some(callers) = &settings.callers else { return Ok(Who::default()) };
    let auth = routed.upstream.provider.auth;
    let key_id = key_shown(request, auth).map(|key| callers.key_id(key));
    let of_key = key_id.as_deref().and_then(|id| callers.team(id));
    let known = routed.upstream.team.as_deref().or(of_key).map(str::to_owned);
    let said = request.headers().get(own::TEAM);
    let team_id = match (known, said) {
        (known, None) => known,
        (_, Some(_)) if !settings.config.record.team_header => {
            let message = "endstop: callers may not say which team they are: leave x-endstop-team \
                           out, or let the gateway's operator set record.team_header";
            return Err(refused(StatusCode::FORBIDDEN, "endstop_team_header", message));
        }
        (Some(known), Some(_)) => Some(known),
        (None, Some(said)) => Some(team_name(said)?),
    };
    Ok(Who { team_id, key_id })
}

fn team_name(said: &HeaderValue) -> Result<String, Refused> {
    let is_name = |name: &&str| {
        (1..=64).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(c))
    };
    said.to_str().ok().filter(is_name).map(str::to_owned).ok_or_else(|| {
        let message = "endstop: x-endstop-team is 1 to 64 letters, digits, `-`, `_`, `.`, `:`, `@`";
        refused(StatusCode::BAD_REQUEST, "endstop_bad_header", message)
    })
}

/// The key that a request shows.
fn key_shown(request: &Request<Incoming>, auth: Auth) -> Option<&str> {
    let header = |name: &str| request.headers().get(name)?.to_str().ok();
    let bearer = || {
        let value = header("authorization")?;
        if let Some((_, signed)) = value.split_once("Credential=") {
            return signed.split('/').next();
        }
        Some(value.strip_prefix("Bearer ").unwrap_or(value))
    };
    let key = match auth {
        Auth::Header(name) => header(name).or_else(bearer),
        Auth::HeaderOrQuery(name, parameter) => header(name)
            .or_else(|| query_value(request.uri().query().unwrap_or(""), parameter))
            .or_else(bearer),
        Auth::Bearer | Auth::SigV4 | Auth::Open => bearer(),
    };
    key.filter(|key| !key.is_empty())
}

fn query_value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// The mode and what is done about tool calls: callers may ask for more, and for less if they may.
fn modes(
    settings: &Settings,
    routed: &Routed<'_>,
    headers: &HeaderMap,
) -> Result<(Mode, ToolCalls), Refused> {
    let wrong = |name: &HeaderName, known: &str| {
        let message = format!("endstop: {name} is one of: {known}");
        refused(StatusCode::BAD_REQUEST, "endstop_bad_header", message)
    };
    let mode = match headers.get(own::MODE).map(HeaderValue::as_bytes) {
        None => routed.upstream.mode,
        Some(b"observe") => Mode::Observe,
        Some(b"guard") => Mode::Guard,
        Some(_) => return Err(wrong(&own::MODE, "observe, guard")),
    };
    let tool_calls = match headers.get(own::TOOL_CALLS).map(HeaderValue::as_bytes) {
        None => routed.upstream.tool_calls,
        Some(b"pass") => ToolCalls::Pass,
        Some(b"fail") => ToolCalls::Fail,
        Some(b"hold") => ToolCalls::Hold,
        Some(_) => return Err(wrong(&own::TOOL_CALLS, "pass, fail, hold")),
    };
    let looser = mode < routed.upstream.mode || tool_calls < routed.upstream.tool_calls;
    if looser && !settings.config.allow_looser {
        let message = "endstop: the request request_shape for less than this gateway is set to do; ask for \
                       no less, or let its operator set allow_looser";
        return Err(refused(StatusCode::FORBIDDEN, "endstop_looser", message));
    }
    Ok((mode, tool_calls))
}

async fn read_body(mut body: Incoming, settings: &Settings) -> Result<Bytes, Refused> {
    let limits = &settings.config.limits;
    let too_large = || {
        let message = format!("endstop: the request is larger than {} bytes", limits.body_bytes);
        refused(StatusCode::PAYLOAD_TOO_LARGE, "endstop_too_large", message)
    };
    if body.size_hint().lower() > limits.body_bytes as u64 {
        return Err(too_large());
    }
    let mut gathered = Pieces::default();
    loop {
        let frame = tokio::time::timeout(limits.client_read, body.frame()).await.map_err(|_| {
            let message = "endstop: the body of the request did not come in time";
            refused(StatusCode::REQUEST_TIMEOUT, "endstop_slow_request", message)
        })?;
        match frame {
            None => return Ok(gathered.bytes()),
            Some(Err(_)) => {
                let message = "endstop: the body of the request could not be read";
                return Err(refused(StatusCode::BAD_REQUEST, "endstop_bad_request", message));
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    gathered.push(data);
                }
            }
        }
        if gathered.length > limits.body_bytes {
            return Err(too_large());
        }
    }
}

/// Pieces of a body, joined only if there are several.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    all: BytesMut,
    length: usize,
}

impl Pieces {
    fn push(&mut self, data: Bytes) {
        self.length += data.len();
        if self.length == data.len() {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&data);
    }

    fn bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

/// Headers that concern one connection, not the message.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in listed {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    let ours = |name: &&HeaderName| name.as_str().starts_with(own::PREFIX);
    let ours: Vec<HeaderName> = headers.keys().filter(ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

fn outgoing(
    routed: &Routed<'_>,
    method: Method,
    mut headers: HeaderMap,
    body: Sent,
) -> Result<Request<Sent>, Refused> {
    strip(&mut headers);
    headers.remove(header::HOST);
    headers.remove(header::EXPECT);
    if matches!(body, Sent::Whole(_)) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let upstream = routed.upstream;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = routed.uri.clone();
    *request.headers_mut() = headers;
    if let Some(key) = &upstream.key {
        show_key(&mut request, upstream.provider.auth, key.expose())?;
    }
    let is_signed = |headers: &HeaderMap| {
        headers
            .get(header::AUTHORIZATION)
            .is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"))
    };
    let by_key = request.headers().contains_key(header::AUTHORIZATION);
    let unsigned = !by_key && upstream.credentials.is_some();
    if upstream.provider.auth == Auth::SigV4 && (is_signed(request.headers()) || unsigned) {
        return sign(routed, request);
    }
    Ok(request)
}

/// A caller's signature is for this host; it is replaced by one for the upstream's.
fn sign(routed: &Routed<'_>, mut request: Request<Sent>) -> Result<Request<Sent>, Refused> {
    let Some(credentials) = &routed.upstream.credentials else {
        let message = "endstop: a signed request cannot be passed on: give the gateway AWS \
                       credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or use a bearer key \
                       (AWS_BEARER_TOKEN_BEDROCK)";
        return Err(refused(StatusCode::UNAUTHORIZED, "endstop_cannot_sign", message));
    };
    for name in ["authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"] {
        request.headers_mut().remove(name);
    }
    let body = match request.body() {
        Sent::Whole(Some(bytes)) => bytes.clone(),
        Sent::Whole(None) | Sent::Passed(_) => Bytes::new(),
    };
    let region = if routed.customer.is_empty() { "us-east-1" } else { &routed.customer };
    credentials.sign(&mut request, &body, region).map_err(|error| {
        let message = format!("endstop: the request cannot be signed: {error}");
        refused(StatusCode::BAD_REQUEST, "endstop_cannot_sign", message)
    })?;
    Ok(request)
}

/// The gateway's own key, in place of whatever the caller showed.
fn show_key(request: &mut Request<Sent>, auth: Auth, key: &str) -> Result<(), Refused> {
    let wrong = || {
        let message = "endstop: the gateway's key for this upstream cannot be sent as a header";
        refused(StatusCode::INTERNAL_SERVER_ERROR, "endstop_bad_key", message)
    };
    let value = |text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok(value)
    };
    let headers = request.headers_mut();
    headers.remove(header::AUTHORIZATION);
    match auth {
        Auth::Bearer | Auth::SigV4 => {
            headers.insert(header::AUTHORIZATION, value(&format!("Bearer {key}"))?);
        }
        Auth::Header(name) => {
            headers.insert(HeaderName::from_static(name), value(key)?);
        }
        Auth::HeaderOrQuery(name, parameter) => {
            headers.insert(HeaderName::from_static(name), value(key)?);
            drop_query(request, parameter);
        }
        Auth::Open => {}
    }
    Ok(())
}

fn drop_query(request: &mut Request<Sent>, parameter: &str) {
    let uri = request.uri();
    let Some(query) = uri.query() else { return };
    let kept: Vec<&str> =
        query.split('&').filter(|pair| pair.split('=').next() != Some(parameter)).collect();
    let path = if kept.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{}", uri.path(), kept.join("&"))
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = path.parse().ok();
    if let Ok(uri) = hyper::Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// How a response with this label is framed, if it is a stream.
fn stream_framing(content_type: &str, wire: Framing) -> Option<Framing> {
    let says = |kind: &str| content_type.contains(kind);
    if says("event-stream") {
        return Some(Framing::Sse);
    }
    if says("vnd.amazon.eventstream") {
        return Some(if wire == Framing::AwsChunks { wire } else { Framing::Aws });
    }
    (says("ndjson") || says("jsonl") || says("stream+json")).then_some(Framing::Lines)
}

/// How a stream that begins like this is framed; none if it is none.
fn sniff(first: &[u8], wire: Framing) -> Option<Framing> {
    match first.iter().find(|byte| !byte.is_ascii_whitespace())? {
        b'[' => Some(Framing::Array),
        b'{' if wire == Framing::Lines => Some(Framing::Lines),
        b'{' | b'<' | 0x1f => None,
        b'd' | b'e' | b'i' | b'r' | b':' => Some(Framing::Sse),
        0 if matches!(wire, Framing::Aws | Framing::AwsChunks) => Some(wire),
        _ => None,
    }
}

async fn peek(body: &mut Incoming, limit: Duration) -> Bytes {
    loop {
        match tokio::time::timeout(limit, body.frame()).await {
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if !data.is_empty() => return data,
                Ok(_) | Err(_) => {}
            },
            // Whoever reads on is told the same again.
            Ok(Some(Err(_)) | None) | Err(_) => return Bytes::new(),
        }
    }
}

enum Collected {
    Whole(Bytes, TransportEnd),
    TooLarge(Bytes),
}

/// Reads a plain body whole, unless it is too large for that.
async fn collect(body: &mut Incoming, first: Bytes, settings: &Settings) -> Collected {
    let limits = &settings.config.limits;
    let mut gathered = Pieces::default();
    if !first.is_empty() {
        gathered.push(first);
    }
    let deadline = tokio::time::Instant::now() + limits.total;
    loop {
        if gathered.length > limits.plain_bytes {
            return Collected::TooLarge(gathered.bytes());
        }
        let next = tokio::time::timeout(limits.idle, body.frame());
        let Ok(frame) = tokio::time::timeout_at(deadline, next).await else {
            return Collected::Whole(gathered.bytes(), TransportEnd::TimedOut(Timer::Total));
        };
        match frame {
            Err(_) => {
                return Collected::Whole(gathered.bytes(), TransportEnd::TimedOut(Timer::Idle));
            }
            Ok(None) => return Collected::Whole(gathered.bytes(), TransportEnd::Eof),
            Ok(Some(Err(error))) => {
                let close = close_of(&error).unwrap_or(TransportEnd::Reset);
                return Collected::Whole(gathered.bytes(), close);
            }
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    gathered.push(data);
                }
            }
        }
    }
}

/// A plain response, judged before its head leaves.
fn plain(
    mut turn: Exchange,
    id: &str,
    status: StatusCode,
    mut headers: HeaderMap,
    bytes: Bytes,
    close: TransportEnd,
) -> Response<Answer> {
    let mut reader =
        turn.reader(text(&headers, &header::CONTENT_TYPE), bytes.len().max(1 << 20) * 64);
    match Decoder::new(text(&headers, &header::CONTENT_ENCODING), &bytes) {
        None => reader.watch(&bytes),
        Some(mut decoder) => decoder.push(&bytes, |decoded| reader.watch(decoded)),
    }
    let ending = reader.finish(close);
    let guarded = turn.mode() == Mode::Guard;
    let verdict = loud(&ending, status, close, turn.strictness()).filter(|_| guarded);
    let action = if verdict.is_some() { GuardAction::Failed } else { GuardAction::Passed };
    tell_in_headers(&mut headers, &ending, action);
    turn.delivered(bytes.len());
    let profile = turn.wire().profile;
    let response = match verdict {
        // In observe, a broken connection is passed on as one; a guard ends well what is well.
        None if close == TransportEnd::Eof || guarded => {
            respond(status, headers, Answer::whole(bytes))
        }
        None => {
            let leaving = Box::pin(tokio::time::sleep(LEAVE));
            respond(status, headers, Answer::new(Kind::Broken(Some(bytes), leaving)))
        }
        Some(Loud::Status(status)) => respond(status, headers, Answer::whole(bytes)),
        Some(Loud::Error(failure)) => fail(&profile, id, &failure, &ending, &headers),
    };
    turn.end(ending, action);
    response
}

/// How a plain response that failed quietly is made loud.
enum Loud {
    /// The body says it; the status did not.
    Status(StatusCode),
    /// By an error of ours.
    Error(Failure),
}

fn loud(
    ending: &Ending,
    status: StatusCode,
    close: TransportEnd,
    strictness: Strictness,
) -> Option<Loud> {
    let page = ending.fault.as_ref().is_some_and(|fault| fault.form == FaultForm::Text);
    if page || status.is_redirection() {
        let kept = if status.is_client_error() { status } else { StatusCode::BAD_GATEWAY };
        let what = if page { "a page or text in place of an answer" } else { "a redirect" };
        return Some(Loud::Error(Failure {
            status: kept.as_u16(),
            code: "endstop_bad_payload",
            message: format!("endstop: the upstream sent {what} (HTTP {}).", status.as_u16()),
            repeats: false,
        }));
    }
    // An error that says so is loud enough, if it is whole.
    if status.as_u16() >= 400 && close == TransportEnd::Eof {
        return None;
    }
    let failure = failure(ending, strictness)?;
    if ending.fault.is_some() && close == TransportEnd::Eof && ending.shown.is_empty() {
        return Some(Loud::Status(StatusCode::BAD_GATEWAY));
    }
    Some(Loud::Error(failure))
}

fn tell_in_headers(headers: &mut HeaderMap, ending: &Ending, action: GuardAction) {
    let mut put = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            headers.insert(name, value);
        }
    };
    put(own::REASON, ending.reason.name());
    put(own::FINISH_REASON, ending.finish_reason().unwrap_or("null"));
    if let Some((_, word)) = ending.native() {
        put(own::NATIVE, word);
    }
    put(own::CONFIDENCE, ending.confidence.name());
    put(own::ACTION, action.word());
}

fn fail(
    profile: &Profile,
    id: &str,
    failure: &Failure,
    ending: &Ending,
    upstream: &HeaderMap,
) -> Response<Answer> {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut headers = error_headers(id);
    tell_in_headers(&mut headers, ending, GuardAction::Failed);
    if failure.repeats {
        headers.insert(own::SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(after) = upstream.get(header::RETRY_AFTER) {
        headers.insert(header::RETRY_AFTER, after.clone());
    }
    respond(status, headers, Answer::whole(profile.error_body(&failure.gateway_error())))
}

/// The upstream never answered.
fn unreachable(profile: &Profile, id: &str, ending: &Ending) -> Response<Answer> {
    let timed_out = ending.reason == endstop::Reason::TimedOut;
    let status = if timed_out { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
    let message =
        format!("endstop: no answer from the upstream ({}): {}.", ending.cause(), ending.sentence);
    let mut headers = error_headers(id);
    tell_in_headers(&mut headers, ending, GuardAction::Refused);
    let gateway_error =
        GatewayError { status: status.as_u16(), code: "endstop_no_answer", message: &message };
    respond(status, headers, Answer::whole(profile.error_body(&gateway_error)))
}

fn refuse(profile: &Profile, id: &str, refused: &Refused) -> Response<Answer> {
    let Refused { status, code, message } = refused;
    let gateway_error = GatewayError { status: status.as_u16(), code, message };
    let mut headers = error_headers(id);
    headers.insert(own::SHOULD_RETRY, HeaderValue::from_static("false"));
    respond(*status, headers, Answer::whole(profile.error_body(&gateway_error)))
}

/// A request broke something of ours.
#[must_use]
pub(crate) fn broke() -> Response<Answer> {
    let gateway_error = GatewayError {
        status: 500,
        code: "endstop_internal",
        message: "endstop: the gateway failed at this request; others are not affected",
    };
    let body = provider::GENERIC.main.error_body(&gateway_error);
    respond(StatusCode::INTERNAL_SERVER_ERROR, error_headers(""), Answer::whole(body))
}

fn error_headers(id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    put_id(&mut headers, id);
    headers
}

fn returned_headers(mut headers: HeaderMap, id: &str) -> HeaderMap {
    strip(&mut headers);
    put_id(&mut headers, id);
    headers
}

fn put_id(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(own::ID, id);
    }
}

fn respond(status: StatusCode, headers: HeaderMap, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
