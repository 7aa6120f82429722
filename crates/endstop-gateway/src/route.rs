//! Routes: which upstream a path belongs to, and the address that it stands for there.
//!
//! The first part of a path names the upstream. Where a provider's host differs by customer, the
//! next part says whose it is, and is checked before it becomes part of a host name. Everything
//! after that is the provider's own path, passed on as it came.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use endstop::Wire;
use endstop::dialect::Proof;
use endstop::provider::{self, Auth, Provider};
use hyper::Uri;
use hyper::header::HeaderName;
use hyper::http::uri::{Authority, Parts, PathAndQuery, Scheme};

use crate::config::{Config, Mode, Secret, ToolCalls, UpstreamConfig, is_loopback, secret};
use crate::error::Error;
use crate::path::{BadPath, Matched};
use crate::upstream::connect::Reach;
use crate::upstream::hide::{OwnSecrets, SHORTEST, is_long};
use endstop_aws::Credentials;

/// An upstream: the destination of requests.
#[derive(Debug)]
pub struct Upstream {
    /// First part of its paths at the gateway.
    pub name: String,
    /// The id of the provider whose wires it speaks: a built-in one, or one of the operator's own.
    pub speaks: String,
    /// The built-in provider whose address and authorisation it has, where nothing else is said.
    pub provider: &'static Provider,
    /// Its mode.
    pub mode: Mode,
    /// Treatment of tool calls.
    pub tool_calls: ToolCalls,
    /// Whether it is known to send end markers.
    pub proves: bool,
    /// Whether it speaks HTTP/2 without TLS.
    pub h2c: bool,
    /// Whether the operator named its address, so that any address is allowed.
    pub own: bool,
    /// Team of its requests.
    pub team: Option<String>,
    /// Whether its streams are asked for token counts.
    pub ask_usage: bool,
    /// The gateway's own key for it.
    pub key: Option<Secret>,
    /// The gateway's own credentials for signing.
    pub credentials: Option<Credentials>,
    /// The secrets of both that are sent, to be hidden in responses.
    pub(crate) secrets: OwnSecrets,
    /// Customers that its paths may name; any if there are none.
    customers: Vec<String>,
    /// Headers that name a version of its API.
    pub(crate) version_headers: Vec<HeaderName>,
    /// Wires of the last paths.
    pub(crate) wires: Wires,
    base: Base,
}

/// The wires of the last paths, since finding one takes 5,000 instructions.
#[derive(Debug, Default)]
pub(crate) struct Wires(Mutex<VecDeque<(String, Option<Arc<Wire>>)>>);

/// Number of paths whose wires are remembered.
const PATHS: usize = 16;

impl Wires {
    /// Returns the wire of a path, found if it is not known.
    pub(crate) fn get(
        &self,
        path: &str,
        find: impl FnOnce() -> Option<Arc<Wire>>,
    ) -> Option<Arc<Wire>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, wire)) = known.iter().find(|(known, _)| known == path) {
            return wire.clone();
        }
        let wire = find();
        if known.len() >= PATHS {
            known.pop_front();
        }
        known.push_back((path.to_owned(), wire.clone()));
        wire
    }
}

/// An address, with a hole for what differs by customer.
#[derive(Debug)]
struct Base {
    scheme: Scheme,
    host: String,
    /// The host, if it has no hole.
    authority: Option<Authority>,
    path: String,
    /// Name of the hole; empty if there is none.
    hole: String,
    /// Paths of SDKs that do not continue `path` but stand in its place.
    others: Vec<String>,
}

/// Every upstream, by its name.
#[derive(Debug)]
pub struct Routes {
    by_name: BTreeMap<String, Upstream>,
}

/// A request's path, routed.
#[derive(Debug)]
pub struct Routed<'r> {
    /// The upstream.
    pub upstream: &'r Upstream,
    /// The address to ask.
    pub uri: Uri,
    /// The customer's part of the host, such as the region.
    pub customer: String,
    matched: Matched,
}

impl Routed<'_> {
    /// Returns the path of the address in the form in which it is matched: decoded, segment by
    /// segment.
    #[must_use]
    pub fn path(&self) -> &str {
        self.matched.strict.as_deref().unwrap_or_else(|| self.uri.path())
    }

    /// Returns the same with its query.
    #[must_use]
    pub fn path_and_query(&self) -> Cow<'_, str> {
        match (&self.matched.strict, self.uri.query()) {
            (None, _) => self.uri.path_and_query().map_or("", PathAndQuery::as_str).into(),
            (Some(path), None) => path.into(),
            (Some(path), Some(query)) => format!("{path}?{query}").into(),
        }
    }

    /// Returns the path as the most lenient server reads it, if that differs.
    #[must_use]
    pub fn lenient_path(&self) -> Option<&str> {
        self.matched.lenient.as_deref()
    }
}

/// A path without a route.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRoute {
    /// The upstream whose wire the error is told in, if it is known.
    pub provider: Option<&'static str>,
    /// Kind of mistake.
    pub why: Why,
    /// Message that says what is wrong and what to do.
    pub message: String,
}

/// Kind of mistake in a path without a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing is known by this path.
    Unknown,
    /// Servers could read the path in different ways, or it leaves its route.
    BadPath,
    /// The customer is not among those that the operator allows.
    Customer,
}

impl Routes {
    /// The built-in upstreams and the configured ones.
    ///
    /// # Errors
    /// [`Error::Upstream`] for one that is wrong; [`Error::Exposed`] where the gateway's own keys
    /// would be anybody's.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let mut by_name = BTreeMap::new();
        let plain = UpstreamConfig::default();
        for provider in provider::ALL {
            if !config.upstreams.contains_key(provider.route) && !provider.base_url.is_empty() {
                let upstream = Upstream::new(provider.route, provider.id, &plain, config)?;
                by_name.insert(provider.route.to_owned(), upstream);
            }
        }
        for entry in config.registry.entries().filter(|entry| entry.base_url.is_some()) {
            let built_in = provider::by_id(&entry.id).map(|provider| provider.route);
            let name = built_in.unwrap_or(&entry.id);
            if !config.upstreams.contains_key(name) {
                check_name(name)?;
                let upstream = Upstream::new(name, &entry.id, &plain, config)?;
                by_name.insert(name.to_owned(), upstream);
            }
        }
        for (name, own) in &config.upstreams {
            check_name(name)?;
            let speaks = speaks(name, own, config)?;
            by_name.insert(name.clone(), Upstream::new(name, speaks, own, config)?);
        }
        let mut routes = Self { by_name };
        routes.keep_only(config)?;
        routes.check_exposure(config)?;
        Ok(routes)
    }

    /// Every upstream, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Upstream> {
        self.by_name.values()
    }

    /// Returns the upstream with this name.
    #[cfg(test)]
    pub(crate) fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.by_name.get(name)
    }

    /// Routes a path.
    ///
    /// # Errors
    /// [`NoRoute`] with what to do.
    pub fn find(&self, uri: &Uri) -> Result<Routed<'_>, NoRoute> {
        let path = uri.path();
        let found = split(path);
        let upstream = found.and_then(|(name, _)| self.by_name.get(name));
        let provider = upstream.map(|upstream| upstream.provider.id);
        let lost = |why, message: String| NoRoute { provider, why, message };
        let bad = |bad: BadPath| lost(Why::BadPath, bad.message().to_owned());
        let whole = Matched::of(path).map_err(bad)?;
        let (name, rest) = found.unwrap_or_default();
        let upstream = upstream.ok_or_else(|| self.unknown(name))?;
        let (customer, rest) =
            upstream.customer(rest).map_err(|(why, message)| lost(why, message))?;
        let uri = upstream.base.uri(customer, one_slash(rest), uri.query()).ok_or_else(|| {
            let message = format!("endstop: the path {path} cannot be passed on to `{name}`");
            lost(Why::Unknown, message)
        })?;
        if upstream.has_own_key() && !upstream.base.holds(customer, uri.path()) {
            return Err(lost(Why::Customer, upstream.leaves_customer()));
        }
        // A path that is matched as it is stays so behind the path of the base.
        let is_plain = whole.strict.is_none();
        let matched = if is_plain { whole } else { Matched::of(uri.path()).map_err(bad)? };
        Ok(Routed { upstream, uri, customer: customer.to_owned(), matched })
    }

    /// Drops the upstreams that the operator does not list.
    fn keep_only(&mut self, config: &Config) -> Result<(), Error> {
        let Some(only) = &config.only else { return Ok(()) };
        for name in only {
            if !self.by_name.contains_key(name) {
                let routes = || self.by_name.keys().map(String::as_str);
                let by_id = provider::by_id(name).map(|known| known.route);
                let by_id = by_id.filter(|route| self.by_name.contains_key(*route));
                let meant = by_id.or_else(|| endstop::nearest(name, routes()));
                let meant = meant.map(|name| format!("; did you mean `{name}`?"));
                let known: Vec<&str> = routes().collect();
                let message = format!(
                    "`only` lists it, but no upstream has this name: use names of {}{}",
                    known.join(", "),
                    meant.unwrap_or_default()
                );
                return Err(Error::Upstream { name: name.clone(), message });
            }
        }
        if only.is_empty() {
            let message = "the list is empty: name the upstreams to serve, or remove it".to_owned();
            return Err(Error::Setting { name: "only".to_owned(), message });
        }
        self.by_name.retain(|name, _| only.contains(name));
        Ok(())
    }

    fn unknown(&self, name: &str) -> NoRoute {
        let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        let name = endstop::text::clean(name, 64);
        let why = match provider::ALL.iter().find(|provider| provider.route == name) {
            None if name.is_empty() => "the path names no upstream".to_owned(),
            None => format!("no upstream is called `{name}`"),
            Some(provider) if provider.base_url.is_empty() => format!(
                "`{name}` has no address of its own: the operator of the gateway names one with \
                 `[upstreams.{name}]` and `base_url`"
            ),
            Some(_) => {
                format!("this gateway does not serve `{name}` (`only` in its configuration)")
            }
        };
        let message = format!(
            "endstop: {why}; a path begins with `/` and one of these names, such as \
             `/openai/v1/chat/completions`: {}",
            known.join(", ")
        );
        NoRoute { provider: None, why: Why::Unknown, message }
    }

    /// The gateway's own keys are for whoever can show the token, or for this machine alone.
    fn check_exposure(&self, config: &Config) -> Result<(), Error> {
        if is_loopback(config.listen) || config.access_token()?.is_some() {
            return Ok(());
        }
        let own = self.iter().find(|upstream| upstream.has_own_key());
        match own {
            None => Ok(()),
            Some(upstream) => Err(Error::Exposed(format!(
                "upstream `{}` uses the gateway's own key, and {} is open to other machines: set \
                 access_token_env or access_token_file, or listen on 127.0.0.1",
                upstream.name, config.listen
            ))),
        }
    }
}

/// Returns a path with one slash at its start, where the route ends and the provider's own path
/// begins.
fn one_slash(path: &str) -> &str {
    let slashes = path.bytes().take_while(|byte| *byte == b'/').count();
    path.get(slashes.saturating_sub(1)..).unwrap_or(path)
}

/// The first part of a path, and the rest with its slash.
fn split(path: &str) -> Option<(&str, &str)> {
    let path = one_slash(path).strip_prefix('/')?;
    let end = path.find('/').unwrap_or(path.len());
    path.split_at_checked(end).filter(|(first, _)| !first.is_empty())
}

fn check_name(name: &str) -> Result<(), Error> {
    let wrong =
        |message: &str| Err(Error::Upstream { name: name.to_owned(), message: message.to_owned() });
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return wrong("its name may hold letters, digits, `-` and `_`");
    }
    if name == "endstop" {
        return wrong("this name is the gateway's own");
    }
    Ok(())
}

/// The id of the provider whose wires an upstream speaks.
fn speaks<'c>(name: &'c str, own: &'c UpstreamConfig, config: &Config) -> Result<&'c str, Error> {
    let by_route = |id: &str| provider::ALL.iter().find(|known| known.route == id);
    let id = own.like.as_deref().unwrap_or(name);
    if config.registry.get(id, "").is_some() {
        return Ok(id);
    }
    let built_in = by_route(id).copied().or_else(|| provider::by_id(id));
    built_in.map(|known| known.id).ok_or_else(|| {
        let known: Vec<&str> = config.registry.ids().collect();
        let meant = endstop::nearest(id, known.iter().copied());
        let meant = meant.map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
        let wanted = match own.like {
            Some(_) => "in `like`: expected",
            None => "as the name of an upstream: add `like = \"…\"` with",
        };
        let message =
            format!("unknown provider `{id}` {wanted} one of {}{meant}", known.join(", "));
        Error::Upstream { name: name.to_owned(), message }
    })
}

/// Checks the `like` of every upstream. Returns the name of one that is wrong, and the mistake.
pub(crate) fn check_likes(config: &Config) -> Result<(), (&str, String)> {
    let mut named = config.upstreams.iter().filter(|(_, own)| own.like.is_some());
    named.try_for_each(|(name, own)| match speaks(name, own, config) {
        Ok(_) => Ok(()),
        Err(Error::Upstream { message, .. }) => Err((name.as_str(), message)),
        Err(other) => Err((name.as_str(), other.to_string())),
    })
}

/// Returns the secrets that are sent to an upstream. The key that signs requests is not sent.
fn own_secrets(key: Option<&Secret>, credentials: Option<&Credentials>) -> OwnSecrets {
    let session = credentials.and_then(Credentials::session_token);
    let session = session.map(|token| Secret::new(token.to_owned()));
    OwnSecrets::new(key.cloned().into_iter().chain(session))
}

impl Upstream {
    fn new(name: &str, speaks: &str, own: &UpstreamConfig, config: &Config) -> Result<Self, Error> {
        let wrong = |message: String| Error::Upstream { name: name.to_owned(), message };
        let entry = config.registry.get(speaks, "");
        let built_in = provider::by_id(speaks);
        let like = || entry.map_or(provider::GENERIC, |entry| entry.like.provider());
        let provider = built_in.unwrap_or_else(like);
        let named = own.base_url.as_deref().or_else(|| entry?.base_url.as_deref());
        // A provider of one's own is elsewhere than the one that it is like.
        let base_url = named.or(built_in.map(|known| known.base_url)).unwrap_or_default();
        if base_url.is_empty() {
            return Err(wrong("it has no base_url; add one".to_owned()));
        }
        let key =
            secret(&format!("upstreams.{name}"), own.key_env.as_deref(), own.key_file.as_deref())?;
        let credentials = match provider.auth {
            Auth::SigV4 { .. } if key.is_none() => Credentials::from_env(),
            Auth::SigV4 { .. }
            | Auth::Bearer
            | Auth::Header(_)
            | Auth::HeaderOrQuery(..)
            | Auth::Open => None,
        };
        let said_to_prove = entry.is_some_and(|entry| match entry.proof {
            Some(Proof::Marker(_) | Proof::Event | Proof::Word) => true,
            Some(Proof::Silent) | None => false,
        });
        let base = Base::new(base_url, hole_of(provider)).map_err(wrong)?.with_others(provider);
        let customers = own.customers.clone();
        base.check_customers(&customers, provider).map_err(wrong)?;
        // Credentials of the environment only sign: a signature is of no use to another host.
        if key.is_some() && customers.is_empty() && base.differs_by_customer() {
            let (hole, example) = (&base.hole, base.example(provider));
            return Err(wrong(format!(
                "it uses the gateway's own key, and the path of a request names the {hole} that gets \
                 the key: list the allowed ones, as in `customers = [\"{example}\"]`"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            speaks: entry.map_or(speaks, |entry| &entry.id).to_owned(),
            provider,
            mode: own.mode.unwrap_or(config.mode),
            tool_calls: own.tool_calls.unwrap_or(config.tool_calls),
            proves: own.proves_end.unwrap_or(said_to_prove || provider.id != provider::GENERIC.id),
            h2c: own.h2c,
            own: named.is_some(),
            team: own.team.clone(),
            ask_usage: own.ask_usage.unwrap_or(config.record.ask_usage),
            secrets: own_secrets(key.as_ref(), credentials.as_ref()),
            key,
            credentials,
            customers,
            version_headers: provider
                .version_headers()
                .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
                .collect(),
            wires: Wires::default(),
            base,
        })
    }

    /// Returns a line for the operator if its key is too short to be hidden in responses.
    pub(crate) fn short_key(&self) -> Option<String> {
        self.key.as_ref().filter(|key| !is_long(key)).map(|_| {
            format!(
                "the key of upstream `{}` has fewer than {SHORTEST} characters: it is sent, but callers \
                 see it if the upstream repeats it in a response. A placeholder is fine; a real key must \
                 be longer",
                self.name
            )
        })
    }

    /// The gateway pays for what goes there.
    #[must_use]
    pub fn has_own_key(&self) -> bool {
        self.key.is_some() || self.credentials.is_some()
    }

    /// Returns the addresses that its host may have.
    pub(crate) fn reach(&self) -> Reach {
        let is_local = self.base.host.starts_with("127.0.0.1");
        if self.own || is_local || !self.customers.is_empty() {
            Reach::Operator
        } else if self.base.authority.is_none() {
            Reach::Caller
        } else {
            Reach::Provider
        }
    }

    /// The path that SDKs are given as their base URL.
    #[must_use]
    pub fn sdk_path(&self) -> String {
        let hole = if self.base.hole.is_empty() {
            String::new()
        } else {
            format!("/{{{}}}", self.base.hole)
        };
        format!("/{}{hole}", self.name)
    }

    /// The path of its base URL, such as `/v1`.
    #[must_use]
    pub fn base_path(&self) -> &str {
        &self.base.path
    }

    /// The scheme and host, with the hole where there is one.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", self.base.scheme, self.base.host)
    }

    /// The customer's part, where the host has one, and the rest of the path.
    fn customer<'p>(&self, rest: &'p str) -> Result<(&'p str, &'p str), (Why, String)> {
        if self.base.hole.is_empty() {
            return Ok(("", rest));
        }
        let hole = &self.base.hole;
        let (customer, rest) = split(rest).ok_or_else(|| {
            let path = self.sdk_path();
            (Why::Unknown, format!("endstop: say which {hole}: the path begins with {path}"))
        })?;
        self.base
            .check_customer(customer, self.provider)
            .map_err(|wrong| (Why::Unknown, format!("endstop: {wrong}")))?;
        let is_listed = self.customers.iter().any(|known| known.eq_ignore_ascii_case(customer));
        if self.customers.is_empty() || is_listed {
            return Ok((customer, rest));
        }
        let message = format!(
            "endstop: this gateway does not serve this {hole} of `{name}`: use another one, or ask \
             its operator to add it to `customers` of the upstream `{name}`",
            name = self.name
        );
        Err((Why::Customer, message))
    }

    /// Returns the message for a path that leads away from its customer.
    fn leaves_customer(&self) -> String {
        format!(
            "endstop: this path leads away from the {} that it names, and the gateway's own key is for \
             that one alone: send a path below {}",
            self.base.hole,
            self.base.up_to_customer()
        )
    }

    /// Reports whether a path at the upstream belongs to this customer. It always does where the base
    /// path does not name one.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn holds(&self, customer: &str, path: &str) -> bool {
        self.base.holds(customer, path)
    }
}

/// Whether a part of a path can become a label of a host's name.
fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns the hole that every path of a provider fills, wherever it is: a signature needs the region.
fn hole_of(provider: &'static Provider) -> &'static str {
    match provider.auth {
        Auth::SigV4 { .. } => provider
            .base_url
            .split_once('{')
            .and_then(|(_, after)| after.split_once('}'))
            .map_or("", |(hole, _)| hole),
        Auth::Bearer | Auth::Header(_) | Auth::HeaderOrQuery(..) | Auth::Open => "",
    }
}

impl Base {
    fn new(base_url: &str, hole: &str) -> Result<Self, String> {
        let (scheme, rest) = base_url.split_once("://").ok_or_else(|| {
            format!("invalid base_url `{base_url}`: expected https:// or http://")
        })?;
        let scheme = match scheme {
            "https" => Scheme::HTTPS,
            "http" => Scheme::HTTP,
            other => {
                return Err(format!(
                    "invalid scheme `{other}` in base_url: expected http or https"
                ));
            }
        };
        let end = rest.find('/').unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if host.contains('@') || path.contains(['?', '#']) {
            return Err("a base_url must not have a user, a query or a fragment".to_owned());
        }
        let hole = host
            .split_once('{')
            .or_else(|| path.split_once('{'))
            .and_then(|(_, after)| after.split_once('}'))
            .map_or(hole, |(hole, _)| hole);
        let base = Self {
            scheme,
            host: host.to_owned(),
            authority: if host.contains('{') { None } else { host.parse().ok() },
            path: path.trim_end_matches('/').to_owned(),
            hole: hole.to_owned(),
            others: Vec::new(),
        };
        match base.uri("example", "/", None) {
            Some(_) => Ok(base),
            None => Err(format!("invalid base_url `{base_url}`")),
        }
    }

    /// Reports whether the customer is part of the address, and not only of the signature.
    fn differs_by_customer(&self) -> bool {
        self.host.contains('{') || self.path.contains('{')
    }

    /// Returns the path as far as the segment that names the customer; empty if none does.
    fn up_to_customer(&self) -> &str {
        let Some(hole) = self.path.find('}') else { return "" };
        let end = self.path.get(hole..).and_then(|rest| rest.find('/'));
        end.and_then(|end| self.path.get(..hole + end)).unwrap_or(&self.path)
    }

    /// Reports whether a path belongs to this customer.
    fn holds(&self, customer: &str, path: &str) -> bool {
        begins(path, &self.filled(self.up_to_customer(), customer))
    }

    /// Checks that a part of a path can become part of the address, and of no other provider's.
    fn check_customer(&self, customer: &str, provider: &Provider) -> Result<(), String> {
        let hole = &self.hole;
        let is_whole_host = self.host == format!("{{{hole}}}");
        if is_whole_host && !provider.serves_from(customer) {
            let hosts = provider.hosts.join(", ");
            return Err(format!("invalid {hole}: expected a host such as {hosts}"));
        }
        if is_whole_host && customer.split('.').all(is_label) || is_label(customer) {
            Ok(())
        } else {
            Err(format!("invalid {hole}: only letters, digits and hyphens are allowed"))
        }
    }

    /// Returns a customer as the operator may list it.
    fn example(&self, provider: &Provider) -> String {
        let hole = &self.hole;
        let ends = provider.hosts.iter().find_map(|host| host.strip_prefix('*'));
        let end = ends.filter(|_| self.host == format!("{{{hole}}}")).unwrap_or_default();
        // Underscores are not allowed in hosts.
        format!("my-{}{end}", hole.replace('_', "-"))
    }

    /// Checks the customers that the operator lists.
    fn check_customers(&self, customers: &[String], provider: &Provider) -> Result<(), String> {
        if self.hole.is_empty() && !customers.is_empty() {
            return Err("its base_url has no part that differs by customer, so that `customers` \
                        has no meaning: remove it"
                .to_owned());
        }
        let check = |customer: &String| {
            self.check_customer(customer, provider)
                .map_err(|wrong| format!("`{customer}` in `customers`: {wrong}"))
        };
        customers.iter().try_for_each(check)
    }

    /// Adds the paths of a provider's SDKs that its base path is no part of, such as `/api/v1`
    /// beside `/compatible-mode/v1`.
    fn with_others(mut self, provider: &Provider) -> Self {
        let own = provider.base_url.split_once("://").map_or("", |(_, rest)| rest);
        let own = own.find('/').and_then(|at| own.get(at..)).unwrap_or("");
        let paths = provider.sdk_urls.iter().map(|sdk_url| sdk_url.path);
        let others = paths.filter(|path| !path.contains('{') && !begins(own, path));
        if self.path == own {
            self.others = others.map(str::to_owned).collect();
        }
        self
    }

    fn uri(&self, customer: &str, rest: &str, query: Option<&str>) -> Option<Uri> {
        let mut path = if self.others.iter().any(|other| begins(rest, other)) {
            rest.to_owned()
        } else {
            join(&self.filled(&self.path, customer), rest)
        };
        if let Some(query) = query {
            path.push('?');
            path.push_str(query);
        }
        let authority = match &self.authority {
            Some(authority) => authority.clone(),
            None => self.filled(&self.host, customer).parse().ok()?,
        };
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(authority);
        parts.path_and_query = Some(PathAndQuery::from_maybe_shared(Bytes::from(path)).ok()?);
        Uri::from_parts(parts).ok()
    }

    /// Returns the text with the customer in its hole.
    fn filled<'t>(&self, text: &'t str, customer: &str) -> Cow<'t, str> {
        if self.hole.is_empty() || !text.contains('{') {
            return text.into();
        }
        text.replace(&format!("{{{}}}", self.hole), customer).into()
    }
}

/// A provider's base path and the caller's path. SDKs differ in how much of the base they bring: all
/// of it, its end, its beginning with another end, or none.
fn join(base: &str, rest: &str) -> String {
    if base.is_empty() || begins(rest, base) {
        return rest.to_owned();
    }
    // The caller brings the end of it: `/openai/v1` and `/v1/chat`.
    let ends = base.match_indices('/').map(|(at, _)| at);
    for at in ends {
        if let Some((head, tail)) = base.split_at_checked(at)
            && begins(rest, tail)
        {
            return format!("{head}{rest}");
        }
    }
    // Or its beginning and then something else, or another version: it knows what it wants.
    let first = |path: &str| split(path).map(|(first, _)| first.to_owned()).unwrap_or_default();
    if first(base) == first(rest) {
        return rest.to_owned();
    }
    match base.rsplit_once('/') {
        Some((head, version)) if is_version(version) && is_version(&first(rest)) => {
            format!("{head}{rest}")
        }
        _ => format!("{base}{rest}"),
    }
}

/// Whether a path begins with these parts.
fn begins(path: &str, parts: &str) -> bool {
    path.strip_prefix(parts).is_some_and(|after| after.is_empty() || after.starts_with('/'))
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(path: &str) -> Result<String, String> {
        let routes = Routes::new(&Config::default()).unwrap();
        let uri: Uri = path.parse().unwrap();
        routes.find(&uri).map(|routed| routed.uri.to_string()).map_err(|lost| lost.message)
    }

    #[track_caller]
    fn goes(path: &str, want: &str) {
        assert_eq!(to(path).as_deref(), Ok(want));
    }

    #[test]
    fn paths_become_the_providers_own() {
        goes("/openai/v1/chat/completions", "https://api.openai.com/v1/chat/completions");
        goes("/openai/chat/completions", "https://api.openai.com/v1/chat/completions");
        goes("/anthropic/messages", "https://api.anthropic.com/v1/messages");
        goes("/anthropic/v1/messages?beta=true", "https://api.anthropic.com/v1/messages?beta=true");
        goes("/groq/openai/v1/chat/completions", "https://api.groq.com/openai/v1/chat/completions");
        goes("/groq/v1/chat/completions", "https://api.groq.com/openai/v1/chat/completions");
        goes(
            "/openrouter/api/v1/chat/completions",
            "https://openrouter.ai/api/v1/chat/completions",
        );
        goes(
            "/gemini/v1beta/models/gemini-3:generateContent",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-3:generateContent",
        );
        goes(
            "/bedrock/eu-west-1/model/a%3Ab/converse",
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/a%3Ab/converse",
        );
        goes(
            "/azure/mine/openai/deployments/d/chat/completions?api-version=1",
            "https://mine.openai.azure.com/openai/deployments/d/chat/completions?api-version=1",
        );
        goes(
            "/azure/mine/chat/completions",
            "https://mine.openai.azure.com/openai/v1/chat/completions",
        );
        goes("/mistral/v1/fim/completions", "https://api.mistral.ai/v1/fim/completions");
        goes("/deepseek/beta/completions", "https://api.deepseek.com/beta/completions");
        goes(
            "/cloudflare/acc-1/chat/completions",
            "https://api.cloudflare.com/client/v4/accounts/acc-1/ai/v1/chat/completions",
        );
    }

    /// `scripts/e2e --paths` checks that each SDK arrives at the path of its row.
    #[test]
    fn paths_of_real_sdks_lead_to_their_providers() {
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/e2e/paths/table.json");
        let table = std::fs::read_to_string(table).unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_str(&table).unwrap();
        let text = |row: &serde_json::Value, name: &str| {
            row.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
        };
        assert!(rows.len() > 20);
        for row in rows.iter().filter(|row| row.get("upstream").is_some()) {
            goes(&text(row, "arrives"), &text(row, "upstream"));
        }
    }

    #[test]
    fn a_customer_cannot_become_another_host() {
        for path in [
            "/bedrock/evil.example%2F/model/m/converse",
            "/bedrock/evil.example/model/m/converse",
            "/azure/a@b/openai/v1/chat/completions",
            "/azure/-x/openai/v1/chat/completions",
            "/azure/a:1/openai/v1/chat/completions",
            "/databricks/169.254.169.254/x",
            "/databricks/localhost/x",
            "/databricks/evil.example.com/x",
            "/databricks/bedrock-runtime.x.amazonaws.com.evil.example/x",
            "/databricks/bedrock-runtime.us-east-1.amazonaws.com/x",
            "/databricks/api.openai.com/x",
            "/databricks/adb-1.azuredatabricks.net.evil.example/x",
            "/databricks/adb-1.azuredatabricks.net:8080/x",
            "/databricks/evil_.azuredatabricks.net/x",
        ] {
            assert!(to(path).is_err(), "{path}: {:?}", to(path));
        }
        assert!(to("/databricks/adb-1.azuredatabricks.net/x").is_ok());
        assert!(to("/databricks/adb-1.19.azuredatabricks.net/x").is_ok());
        assert!(to("/bedrock").unwrap_err().contains("/bedrock/{region}"));
        assert!(to("/nobody/v1").unwrap_err().contains("`nobody`"));
        let empty = to("/").unwrap_err();
        assert!(
            empty.contains("the path names no upstream; a path begins with `/` and one of"),
            "{empty}"
        );
    }

    #[test]
    fn slashes_are_collapsed_where_the_route_ends() {
        goes("//openai//v1/chat/completions", "https://api.openai.com/v1/chat/completions");
        goes(
            "/azure//mine//openai/v1//chat/completions",
            "https://mine.openai.azure.com/openai/v1//chat/completions",
        );
        // The bytes go on as they came.
        goes("/openai/v1/chat/%63ompletions", "https://api.openai.com/v1/chat/%63ompletions");
        let arn = "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.anthropic.claude-x";
        goes(
            &format!("/bedrock/us-east-1/model/{arn}/converse"),
            &format!("https://bedrock-runtime.us-east-1.amazonaws.com/model/{arn}/converse"),
        );
    }

    #[test]
    fn paths_that_leave_their_route_have_none() {
        let routes = Routes::new(&Config::default()).unwrap();
        for (path, provider) in [
            ("/openai/../anthropic/v1/messages", Some("openai")),
            ("/openai/v1/%2e%2e/%2E%2e/x", Some("openai")),
            ("/openai/v1/%252e%252e/x", Some("openai")),
            ("/bedrock/us-east-1/model/a%2f..%2f..%2fx/converse", Some("bedrock")),
            ("/bedrock/../x", Some("bedrock")),
            ("/nobody/../openai/v1/models", None),
            ("/openai/v1/a%00b", Some("openai")),
        ] {
            let lost = routes.find(&path.parse().unwrap()).unwrap_err();
            assert_eq!((lost.why, lost.provider), (Why::BadPath, provider), "{path}");
        }
    }

    fn key_file() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sk-canary").unwrap();
        file
    }

    /// Amazon's errors about a wrong signature quote the canonical request, with the session token.
    #[test]
    fn the_secrets_that_are_sent_are_hidden() {
        let key = Secret::new("own-bearer-key".to_owned());
        let session = Some("session/token+of==".to_owned());
        let credentials = Credentials::new("AKIDEXAMPLE", "key-that-signs", session);
        let secrets = own_secrets(Some(&key), Some(&credentials));
        let quoted = "own-bearer-key x-amz-security-token:session\\/token+of== AKIDEXAMPLE";
        let hidden = secrets.hider().unwrap().hide(Bytes::from_static(quoted.as_bytes()));
        assert_eq!(hidden, "************** x-amz-security-token:******************* AKIDEXAMPLE");
        let lasting = Credentials::new("AKIDEXAMPLE", "key-that-signs", None);
        assert!(own_secrets(None, Some(&lasting)).is_empty());
    }

    #[test]
    fn own_keys_go_to_the_customers_that_the_operator_lists() {
        let key = key_file();
        let key = format!("key_file='{}'\n", key.path().display());
        let routes = |text: &str| Routes::new(&Config::from_toml("t", text).unwrap());
        for name in ["azure", "databricks", "snowflake", "watsonx", "cloudflare", "vertex"] {
            let refused = routes(&format!("[upstreams.{name}]\n{key}")).unwrap_err().to_string();
            let (_, example) = refused.split_once("as in `").unwrap();
            let example = example.strip_suffix('`').unwrap();
            assert!(example.starts_with("customers = ["), "{refused}");
            assert!(routes(&format!("[upstreams.{name}]\n{key}{example}")).is_ok(), "{refused}");
            assert!(routes(&format!("[upstreams.{name}]")).is_ok(), "{name}");
        }
        let text = format!("[upstreams.azure]\n{key}customers=['mine', 'Ours']");
        let own = routes(&text).unwrap();
        for (path, why) in [
            ("/azure/mine/openai/v1/chat/completions", None),
            ("/azure/OURS/openai/v1/chat/completions", None),
            ("/azure/theirs/openai/v1/chat/completions", Some(Why::Customer)),
            ("/azure/mine.evil/openai/v1/chat/completions", Some(Why::Unknown)),
            ("/azure/m%69ne/openai/v1/chat/completions", Some(Why::Unknown)),
            ("/azure", Some(Why::Unknown)),
        ] {
            let found = own.find(&path.parse().unwrap());
            assert_eq!(found.as_ref().err().map(|lost| lost.why), why, "{path}");
            assert!(!found.is_err_and(|lost| lost.message.contains("mine`")), "{path}");
        }
        for (text, says) in [
            ("[upstreams.azure]\ncustomers=['a.b']", "`a.b` in `customers`"),
            ("[upstreams.databricks]\ncustomers=['evil.example']", "expected a host such as"),
            ("[upstreams.openai]\ncustomers=['a']", "has no part that differs by customer"),
        ] {
            let error = routes(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn an_own_key_stays_with_its_customer() {
        let key = key_file();
        let key = format!("key_file='{}'\n", key.path().display());
        let text = format!("[upstreams.cloudflare]\n{key}customers=['mine']");
        let routes = Routes::new(&Config::from_toml("t", &text).unwrap()).unwrap();
        for (path, why) in [
            ("/cloudflare/mine/chat/completions", None),
            ("/cloudflare/mine/ai/run/@cf/x", None),
            ("/cloudflare/mine/client/v4/accounts/mine/ai/run/@cf/x", None),
            (
                "/cloudflare/mine/client/v4/accounts/OTHER/ai/v1/chat/completions",
                Some(Why::Customer),
            ),
            ("/cloudflare/mine/client/v4/accounts//OTHER/x", Some(Why::Customer)),
            ("/cloudflare/mine/client/v4/accounts/mine2/x", Some(Why::Customer)),
            ("/cloudflare/mine/client/v4/user/tokens", Some(Why::Customer)),
            ("/cloudflare/mine/client", Some(Why::Customer)),
        ] {
            let found = routes.find(&path.parse().unwrap());
            assert_eq!(found.as_ref().err().map(|lost| lost.why), why, "{path}");
        }
        // A caller's own key is the caller's to use.
        goes(
            "/cloudflare/mine/client/v4/user/tokens",
            "https://api.cloudflare.com/client/v4/user/tokens",
        );
    }

    #[test]
    fn hosts_that_a_path_names_are_public() {
        let text = "[upstreams.local]\nlike='vllm'\nbase_url='http://10.0.0.1/v1'\n\
                    [upstreams.snowflake]\ncustomers=['mine']";
        let routes = Routes::new(&Config::from_toml("t", text).unwrap()).unwrap();
        for (name, reach) in [
            ("azure", Reach::Caller),
            ("databricks", Reach::Caller),
            ("bedrock", Reach::Caller),
            ("vertex", Reach::Caller),
            ("snowflake", Reach::Operator),
            ("cloudflare", Reach::Provider),
            ("openai", Reach::Provider),
            ("ollama", Reach::Operator),
            ("vllm", Reach::Operator),
            ("local", Reach::Operator),
        ] {
            assert_eq!(routes.by_name[name].reach(), reach, "{name}");
        }
    }

    #[test]
    fn only_the_listed_upstreams_are_served() {
        let routes = |text: &str| Routes::new(&Config::from_toml("t", text).unwrap());
        let text = "only=['openai','mine']\n[upstreams.mine]\nlike='vllm'\nbase_url='http://x/v1'";
        let some = routes(text).unwrap();
        let names: Vec<&str> = some.iter().map(|upstream| upstream.name.as_str()).collect();
        assert_eq!(names, ["mine", "openai"]);
        let lost = some.find(&"/anthropic/v1/messages".parse().unwrap()).unwrap_err();
        assert!(lost.message.ends_with("one of: mine, openai"), "{}", lost.message);
        assert!(lost.message.contains("does not serve `anthropic`"), "{}", lost.message);
        // Two providers have no address of their own.
        for name in ["sap", "openai-compatible"] {
            let lost = some.find(&format!("/{name}/v1").parse().unwrap()).unwrap_err();
            assert!(lost.message.contains(&format!("`[upstreams.{name}]`")), "{}", lost.message);
        }
        for (text, says) in [
            ("only=['opnai']", "did you mean `openai`?"),
            ("only=['google']", "did you mean `gemini`?"),
            ("only=[]", "only: the list is empty"),
        ] {
            let error = routes(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn own_upstreams_are_like_others() {
        let config = |text: &str| Routes::new(&Config::from_toml("t", text).unwrap());
        let routes =
            config("[upstreams.mine]\nlike='vllm'\nbase_url='http://10.0.0.1:8000/v1/'").unwrap();
        let routed = routes.find(&"/mine/v1/chat/completions".parse().unwrap()).unwrap();
        assert_eq!(routed.uri.to_string(), "http://10.0.0.1:8000/v1/chat/completions");
        assert!(routed.upstream.own);
        for (text, says) in [
            ("[upstreams.mine]\nlike='nope'\nbase_url='http://x'", "unknown provider `nope`"),
            ("[upstreams.mine]\nlike='opnai'\nbase_url='http://x'", "did you mean `openai`?"),
            ("[upstreams.mine]\nbase_url='http://x'", "unknown provider `mine`"),
            ("[provider.mine]\nlike='openai'\n[upstreams.mine]", "it has no base_url"),
            ("[upstreams.mine]\nlike='openai'\nbase_url='ftp://x'", "invalid scheme `ftp`"),
            ("[upstreams.mine]\nlike='openai'\nbase_url='x'", "invalid base_url `x`"),
            ("[upstreams.mine]\nlike='openai'\nbase_url='http://u@x'", "not have a user"),
            ("[upstreams.openai-compatible]", "it has no base_url"),
            ("[upstreams.openai]\nkey_env='ENDSTOP_TEST_UNSET'", "ENDSTOP_TEST_UNSET is not set"),
            ("[upstreams.endstop]\nlike='openai'", "the gateway's own"),
        ] {
            let error = config(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn providers_of_ones_own_are_upstreams() {
        let text = "[provider.acme]\nlike='openai-chat'\nbase_url='http://10.0.0.1/v1'\nproof='word'\n\
                    [provider.claude]\nbase_url='http://10.0.0.2'\n\
                    [provider.bare]\nlike='openai'\n\
                    [upstreams.mine]\nlike='bare'\nbase_url='http://10.0.0.3/v1'\n";
        let config = Config::from_toml("t", text).unwrap();
        let routes = Routes::new(&config).unwrap();
        for (path, speaks, uri, proves) in [
            ("/acme/v1/chat/completions", "acme", "http://10.0.0.1/v1/chat/completions", true),
            ("/anthropic/v1/messages", "anthropic", "http://10.0.0.2/v1/messages", true),
            ("/mine/v1/responses", "bare", "http://10.0.0.3/v1/responses", true),
        ] {
            let routed = routes.find(&path.parse().unwrap()).unwrap();
            let upstream = routed.upstream;
            assert_eq!((upstream.speaks.as_str(), upstream.own), (speaks, true), "{path}");
            assert_eq!((routed.uri.to_string(), upstream.proves), (uri.to_owned(), proves));
        }
        assert!(routes.find(&"/bare/v1/responses".parse().unwrap()).is_err(), "it has no address");
    }
}
