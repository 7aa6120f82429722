//! Admission: from the head of a request to its upstream, its mode and its caller, or a refusal.

use std::sync::Arc;

use endstop::Profile;
use endstop::registry::Clues;
use endstop::{Wire, provider};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, StatusCode};

use crate::callers::{BadTeam, Caller, shows_token};
use crate::client::connection::Peer;
use crate::client::headers::own;
use crate::config::{Mode, ToolCalls};
use crate::route::{NoRoute, Routed};
use crate::settings::Settings;

/// An admitted request.
pub(crate) struct Admitted<'r> {
    pub(crate) routed: Routed<'r>,
    /// Wire of the response; `None` if the path does not belong to a model.
    pub(crate) wire: Option<Arc<Wire>>,
    pub(crate) mode: Mode,
    pub(crate) tool_calls: ToolCalls,
    /// Whether the ending is told in the stream, as a comment.
    pub(crate) tell: bool,
    pub(crate) caller: Caller,
}

/// Why a request is not passed on.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    fn header(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "endstop_bad_header", message)
    }
}

/// A refusal and the wire that it is told in.
pub(crate) type Denied = Box<(Profile, Refused)>;

/// Admits a request, or says why not.
pub(crate) fn admit<'r>(
    settings: &'r Settings,
    peer: &Peer,
    request: &Request<Incoming>,
) -> Result<Admitted<'r>, Denied> {
    let routed = settings.routes.find(request.uri()).map_err(no_route)?;
    let wire = wire(settings, &routed, request);
    let told_in = wire.as_ref().map_or(routed.upstream.provider.main, |wire| wire.profile);
    let denied = |refused| Box::new((told_in, refused));
    check_method(request).and_then(|()| check_token(settings, &routed, request)).map_err(denied)?;
    let (mode, tool_calls) = modes(settings, &routed, request.headers()).map_err(denied)?;
    let caller = caller(settings, peer, &routed, request).map_err(denied)?;
    let tell = tells(request.headers()).map_err(denied)?;
    Ok(Admitted { routed, wire, mode, tool_calls, tell, caller })
}

fn no_route(lost: NoRoute) -> Denied {
    let NoRoute { provider, message } = lost;
    let known = provider.and_then(provider::by_id);
    let profile = known.map_or(provider::GENERIC.main, |known| known.main);
    let refused = Refused::new(StatusCode::NOT_FOUND, "endstop_unknown_route", message);
    Box::new((profile, refused))
}

/// Returns the wire that serves the path, with the operator's own finish reasons; `None` if no wire
/// does.
fn wire(
    settings: &Settings,
    routed: &Routed<'_>,
    request: &Request<Incoming>,
) -> Option<Arc<Wire>> {
    let path = routed.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let versions: Vec<(&str, &str)> = request
        .headers()
        .iter()
        .filter(|(name, _)| name.as_str().ends_with("version"))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let upstream = routed.upstream;
    let find = || {
        let clues =
            Clues { provider: &upstream.speaks, path, headers: &versions, ..Clues::default() };
        settings.config.registry.serving(&clues).map(Arc::new)
    };
    // A version or a query may make a difference, and a query may hold a key.
    let simple = versions.is_empty() && routed.uri.query().is_none();
    let wire = if simple { upstream.wires.get(path, find) } else { find() }?;
    let polls = request.method() == Method::GET && wire.profile.polls(routed.uri.path());
    (request.method() == Method::POST || polls).then_some(wire)
}

fn check_method(request: &Request<Incoming>) -> Result<(), Refused> {
    if request.method() == Method::CONNECT {
        let message = "endstop: the method CONNECT is not supported: set this address as a base \
                       URL, not as a proxy";
        return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "endstop_bad_method", message));
    }
    if request.headers().contains_key(header::UPGRADE) {
        let message = "endstop: WebSockets and other upgrades are not passed on; use the HTTP API, \
                       or connect to the provider directly";
        // Clients that try WebSockets first go on to HTTP at once after this status: Codex makes one
        // attempt instead of seven after 501.
        return Err(Refused::new(StatusCode::UPGRADE_REQUIRED, "endstop_no_upgrade", message));
    }
    let both = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    if both.iter().all(|name| request.headers().contains_key(name)) {
        let message = "endstop: the request has a content length and a transfer encoding: send one";
        return Err(Refused::new(StatusCode::BAD_REQUEST, "endstop_bad_framing", message));
    }
    Ok(())
}

/// Checks the access token, which callers must show to use the gateway's own keys.
fn check_token(
    settings: &Settings,
    routed: &Routed<'_>,
    request: &Request<Incoming>,
) -> Result<(), Refused> {
    let token = settings.access_token.as_ref().filter(|_| routed.upstream.has_own_key());
    let auth = routed.upstream.provider.auth;
    if token.is_none_or(|token| shows_token(request, auth, token)) {
        return Ok(());
    }
    let message = "endstop: this upstream uses the gateway's own key: show the gateway's access \
                   token as the API key, or in x-endstop-token";
    Err(Refused::new(StatusCode::UNAUTHORIZED, "endstop_unauthorized", message))
}

fn caller(
    settings: &Settings,
    peer: &Peer,
    routed: &Routed<'_>,
    request: &Request<Incoming>,
) -> Result<Caller, Refused> {
    let Some(callers) = &settings.callers else { return Ok(Caller::default()) };
    let upstream = routed.upstream;
    let caller = callers.caller(
        request,
        upstream.provider.auth,
        upstream.team.as_deref(),
        &peer.last_key,
        settings.config.record.team_header,
    );
    caller.map_err(|bad| match bad {
        BadTeam::NotAllowed => Refused::new(
            StatusCode::FORBIDDEN,
            "endstop_team_header",
            "endstop: callers may not name their team: leave out x-endstop-team, or ask the \
             operator of the gateway to set record.team_header",
        ),
        BadTeam::Invalid => Refused::header(
            "endstop: invalid x-endstop-team: expected 1 to 64 letters, digits, `-`, `_`, `.`, `:` \
             or `@`",
        ),
    })
}

fn tells(headers: &HeaderMap) -> Result<bool, Refused> {
    match headers.get(own::TELL).map(HeaderValue::as_bytes) {
        None => Ok(false),
        Some(b"comment") => Ok(true),
        Some(_) => Err(Refused::header("endstop: invalid x-endstop-tell: expected `comment`")),
    }
}

/// Returns the mode and the treatment of tool calls. Callers may ask for stricter ones, and for
/// looser ones if the operator allows it.
fn modes(
    settings: &Settings,
    routed: &Routed<'_>,
    headers: &HeaderMap,
) -> Result<(Mode, ToolCalls), Refused> {
    let wrong = |name: &HeaderName, known: &str| {
        Refused::header(format!("endstop: invalid {name}: expected one of: {known}"))
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
        Some(b"gate" | b"fail") => ToolCalls::Gate,
        Some(b"hold") => ToolCalls::Hold,
        Some(_) => return Err(wrong(&own::TOOL_CALLS, "pass, gate, hold")),
    };
    let looser = mode < routed.upstream.mode || tool_calls < routed.upstream.tool_calls;
    if looser && !settings.config.allow_looser {
        let message = "endstop: the request asks for less protection than this gateway is set to \
                       give: leave out the header, or ask its operator to set allow_looser";
        return Err(Refused::new(StatusCode::FORBIDDEN, "endstop_looser", message));
    }
    Ok((mode, tool_calls))
}
