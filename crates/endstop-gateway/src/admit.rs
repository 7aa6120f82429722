//! Admission: from the head of a request to its upstream, its mode and its caller, or a refusal.

use std::sync::Arc;
use std::time::Instant;

use endstop::provider::Auth;
use endstop::registry::Clues;
use endstop::{Profile, Purpose, Wire, provider};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};

use crate::callers::{BadTeam, Caller, key_shown, shows_token};
use crate::client::connection::Peer;
use crate::client::headers::{OwnHeaders, own, upgrades};
use crate::client::origin::{self, Foreign};
use crate::config::{Mode, ToolCalls};
use crate::rates::{Limit, Rates, Slot, TooMany, Who};
use crate::route::{NoRoute, Routed, Why};
use crate::settings::Settings;

/// Methods that are passed on, as `is_passed_on` knows them.
const METHODS: &str = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";

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
    /// Counts the request among those of its key.
    pub(crate) slot: Option<Slot>,
}

/// Why a request is not passed on.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Seconds after which the same request may be admitted.
    pub(crate) retry_after: Option<u64>,
    /// Methods that would be admitted.
    pub(crate) allow: Option<&'static str>,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after: None, allow: None }
    }

    /// Returns the refusal of a request that may be sent again after so many seconds.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Returns the refusal of a method, where these would be admitted.
    fn method(allow: &'static str, message: impl Into<String>) -> Self {
        let refused = Self::new(StatusCode::METHOD_NOT_ALLOWED, "endstop_bad_method", message);
        Self { allow: Some(allow), ..refused }
    }

    fn header(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "endstop_bad_header", message)
    }
}

/// A refusal and the wire that it is told in.
pub(crate) type Denied = Box<(Profile, Refused)>;

/// Admits a request, or says why not.
pub(crate) fn admit<'r, B>(
    settings: &'r Settings,
    rates: &Arc<Rates>,
    peer: &Peer,
    request: &Request<B>,
) -> Result<Admitted<'r>, Denied> {
    check_request(settings, request)
        .map_err(|refused| Box::new((provider::GENERIC.main, refused)))?;
    let routed =
        settings.routes.find(request.uri()).map_err(|lost| no_route(settings, request, lost))?;
    let main = routed.upstream.provider.main;
    let wire = wire(settings, &routed, request);
    let told_in = wire.as_ref().ok().and_then(Option::as_ref).map_or(main, |wire| wire.profile);
    let denied = |refused| Box::new((told_in, refused));
    // The token comes first: whoever must show it learns nothing else.
    check_token(settings, &routed, request)
        .and_then(|()| check_head(request))
        .and_then(|()| check_origin(settings, &routed, request))
        .map_err(denied)?;
    let wire = wire.and_then(|wire| read(wire, &routed, request)).map_err(denied)?;
    let own = OwnHeaders::new(request.headers());
    let (mode, tool_calls) = modes(settings, &routed, own).map_err(denied)?;
    let caller = caller(settings, peer, &routed, request, own).map_err(denied)?;
    let tell = tells(own).map_err(denied)?;
    let slot = slot(settings, rates, peer, &routed, request).map_err(denied)?;
    Ok(Admitted { routed, wire, mode, tool_calls, tell, caller, slot })
}

fn no_route<B>(settings: &Settings, request: &Request<B>, lost: NoRoute) -> Denied {
    let NoRoute { provider, why, message } = lost;
    let known = provider.and_then(provider::by_id);
    let profile = known.map_or(provider::GENERIC.main, |known| known.main);
    // Whoever must show a token first is not told why nothing was found.
    let auth = known.map_or(Auth::Bearer, |known| known.auth);
    let token = settings.access_token.as_ref().filter(|_| settings.config.require_token);
    if token.is_some_and(|token| !shows_token(request, auth, token)) {
        return Box::new((profile, no_token(settings, request)));
    }
    let (status, code) = match why {
        Why::Unknown => (StatusCode::NOT_FOUND, "endstop_unknown_route"),
        Why::BadPath => (StatusCode::BAD_REQUEST, "endstop_bad_path"),
        Why::Customer => (StatusCode::FORBIDDEN, "endstop_unknown_customer"),
    };
    Box::new((profile, Refused::new(status, code, message)))
}

/// Returns the wire that serves the path, with the operator's own finish reasons; `None` if no wire
/// does.
///
/// # Errors
/// The path names another API to a lenient server than to a strict one.
fn wire<B>(
    settings: &Settings,
    routed: &Routed<'_>,
    request: &Request<B>,
) -> Result<Option<Arc<Wire>>, Refused> {
    let path = routed.path_and_query();
    let upstream = routed.upstream;
    let names = upstream.version_headers.iter();
    let versions: Vec<(&str, &str)> = names
        .filter_map(|name| Some((name.as_str(), request.headers().get(name)?.to_str().ok()?)))
        .collect();
    let find = |path: &str| {
        let clues =
            Clues { provider: &upstream.speaks, path, headers: &versions, ..Clues::default() };
        settings.config.registry.serving(&clues).map(Arc::new)
    };
    // A version or a query may make a difference, and a query may hold a key.
    let simple = versions.is_empty() && routed.uri.query().is_none();
    let wire = if simple { upstream.wires.get(&path, || find(&path)) } else { find(&path) };
    if let Some(lenient) = routed.lenient_path() {
        let dialect = |wire: &Option<Arc<Wire>>| wire.as_ref().map(|wire| wire.profile.dialect.id);
        if dialect(&wire) != dialect(&find(lenient)) {
            let message = "endstop: servers could read this path in different ways: send the slashes \
                           between its segments unencoded, no backslash, semicolon, question mark or \
                           hash in a segment, and no space or full stop at its end";
            return Err(Refused::new(StatusCode::BAD_REQUEST, "endstop_bad_path", message));
        }
    }
    Ok(wire)
}

/// Returns the wire if the response is read; `None` if the request does not ask a model.
///
/// # Errors
/// The method has no purpose on a path of the wire.
fn read<B>(
    wire: Option<Arc<Wire>>,
    routed: &Routed<'_>,
    request: &Request<B>,
) -> Result<Option<Arc<Wire>>, Refused> {
    let Some(wire) = wire else { return Ok(None) };
    match wire.profile.purpose(request.method().as_str(), routed.path()) {
        Some(Purpose::Ask | Purpose::Poll) => Ok(Some(wire)),
        Some(Purpose::Manage) if !overrides_method(request.headers()) => Ok(None),
        Some(Purpose::Manage) | None => {
            let message = "endstop: the method is not allowed on this path: send POST, in capital \
                           letters and without a header that overrides it";
            Err(Refused::method(Purpose::METHODS, message))
        }
    }
}

/// Reports whether a header asks some servers to take the request for one with another method.
fn overrides_method(headers: &HeaderMap) -> bool {
    let names = ["x-http-method-override", "x-http-method", "x-method-override"];
    names.iter().any(|name| headers.contains_key(*name))
}

/// Counts a request among those of its key.
fn slot<B>(
    settings: &Settings,
    rates: &Arc<Rates>,
    peer: &Peer,
    routed: &Routed<'_>,
    request: &Request<B>,
) -> Result<Option<Slot>, Refused> {
    let limits = &settings.config.limits;
    if limits.key_requests == 0 && limits.key_requests_per_minute == 0 {
        return Ok(None);
    }
    let upstream = routed.upstream;
    let who = match key_shown(request, upstream.provider.auth) {
        // The caller's key, which it may invent, is not sent.
        _ if upstream.has_own_key() => Who::OwnKey(&upstream.name),
        Some(key) => Who::Key(key),
        None => Who::Address(peer.address),
    };
    rates.admit(limits, who, peer.address, Instant::now()).map_err(|TooMany { limit, wait }| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let (most, when, name) = match limit {
            Limit::AtOnce => (limits.key_requests, "at once", "key_requests"),
            Limit::PerMinute => {
                (limits.key_requests_per_minute, "within a minute", "key_requests_per_minute")
            }
        };
        let plural = if most == 1 { "" } else { "s" };
        let limit = format!("{most} request{plural} {when}");
        let message = format!(
            "endstop: this gateway allows {limit} with one key ({name}): try again in {seconds} s"
        );
        Refused::new(StatusCode::TOO_MANY_REQUESTS, "endstop_key_limit", message)
            .retry_after(seconds.max(1))
    })
}

/// Checks what must be so of every request, whatever its path.
fn check_request<B>(settings: &Settings, request: &Request<B>) -> Result<(), Refused> {
    if request.method() == Method::CONNECT {
        let message = "endstop: the method CONNECT is not supported: set this address as a base URL, not \
                       as a proxy";
        return Err(Refused::method(METHODS, message));
    }
    // TRACE would send back the key that the upstream is shown.
    if !is_passed_on(request.method()) {
        let message = format!("endstop: the method is not supported: expected one of {METHODS}");
        return Err(Refused::method(METHODS, message));
    }
    // Over HTTP/1.1, the parser has counted them.
    if request.headers().len() > settings.config.limits.head_fields {
        let message = "endstop: the request has too many header fields (head_fields)";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refused::new(status, "endstop_bad_header", message));
    }
    let (mut hosts, mut lengths) = (0, 0);
    for (name, _) in request.headers() {
        hosts += usize::from(*name == header::HOST);
        lengths += usize::from(*name == header::CONTENT_LENGTH);
    }
    if hosts > 1 {
        return Err(Refused::header("endstop: the request has several Host headers: send one"));
    }
    if lengths > 1 {
        return Err(Refused::header("endstop: the request has several content lengths: send one"));
    }
    Ok(())
}

fn is_passed_on(method: &Method) -> bool {
    matches!(
        *method,
        Method::DELETE
            | Method::GET
            | Method::HEAD
            | Method::OPTIONS
            | Method::PATCH
            | Method::POST
            | Method::PUT
    )
}

fn check_head<B>(request: &Request<B>) -> Result<(), Refused> {
    if upgrades(request.headers()) {
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

/// Checks the access token, which callers must show to use the gateway's own keys, or always.
fn check_token<B>(
    settings: &Settings,
    routed: &Routed<'_>,
    request: &Request<B>,
) -> Result<(), Refused> {
    let is_asked = settings.config.require_token || routed.upstream.has_own_key();
    let token = settings.access_token.as_ref().filter(|_| is_asked);
    let auth = routed.upstream.provider.auth;
    if token.is_none_or(|token| shows_token(request, auth, token)) {
        return Ok(());
    }
    Err(no_token(settings, request))
}

fn no_token<B>(settings: &Settings, request: &Request<B>) -> Refused {
    let message = if request.headers().contains_key(own::TOKEN) {
        "endstop: the access token in x-endstop-token is wrong: ask the operator of the gateway for the \
         current one"
    } else if settings.config.require_token {
        "endstop: this gateway asks every caller for its access token: show it in x-endstop-token, \
         beside your own API key"
    } else {
        "endstop: this upstream uses the gateway's own key: show the gateway's access token as the \
         API key, or in x-endstop-token"
    };
    Refused::new(StatusCode::UNAUTHORIZED, "endstop_unauthorized", message)
}

/// Checks that a request for the gateway's own key was not sent by a foreign web page, if no token
/// shows it.
fn check_origin<B>(
    settings: &Settings,
    routed: &Routed<'_>,
    request: &Request<B>,
) -> Result<(), Refused> {
    if !routed.upstream.has_own_key() || settings.access_token.is_some() {
        return Ok(());
    }
    let message = match origin::check(request, &settings.config.hosts) {
        Ok(()) => return Ok(()),
        Err(Foreign::Host) => {
            "endstop: this upstream uses the gateway's own key, and the Host header does not name \
             this machine: use 127.0.0.1 or localhost in the base URL, or ask the operator of the \
             gateway to add the name to `hosts` or to set an access token"
        }
        Err(Foreign::Page) => {
            "endstop: this upstream uses the gateway's own key, and a web page of another site sent \
             the request: ask the operator of the gateway to add the site to `hosts` or to set an \
             access token"
        }
    };
    Err(Refused::new(StatusCode::FORBIDDEN, "endstop_foreign_origin", message))
}

fn caller<B>(
    settings: &Settings,
    peer: &Peer,
    routed: &Routed<'_>,
    request: &Request<B>,
    own: OwnHeaders<'_>,
) -> Result<Caller, Refused> {
    let Some(callers) = &settings.callers else { return Ok(Caller::default()) };
    let upstream = routed.upstream;
    let caller = callers.caller(
        request,
        upstream.provider.auth,
        upstream.team.as_deref(),
        &peer.last_key,
        own.team,
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

fn tells(own: OwnHeaders<'_>) -> Result<bool, Refused> {
    match own.tell.map(HeaderValue::as_bytes) {
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
    own: OwnHeaders<'_>,
) -> Result<(Mode, ToolCalls), Refused> {
    let wrong = |name: &HeaderName, known: &str| {
        Refused::header(format!("endstop: invalid {name}: expected one of: {known}"))
    };
    let mode = match own.mode.map(HeaderValue::as_bytes) {
        None => routed.upstream.mode,
        Some(b"observe") => Mode::Observe,
        Some(b"guard") => Mode::Guard,
        Some(_) => return Err(wrong(&own::MODE, "observe, guard")),
    };
    let tool_calls = match own.tool_calls.map(HeaderValue::as_bytes) {
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
