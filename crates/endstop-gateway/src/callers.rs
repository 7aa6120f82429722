//! Callers: whose request it is, by the key that it shows.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use endstop::provider::Auth;
use hyper::Request;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use ring::hmac;

use crate::client::headers::own;
use crate::config::{Config, Secret, secret};
use crate::error::Error;
use crate::path::decode_once;

/// File in the data directory with the secret of key ids, unless one is configured.
const SECRET_FILE: &str = "key.secret";

/// A caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) team_id: Option<String>,
    pub(crate) key_id: Option<Arc<str>>,
}

/// Key ids and the teams that they belong to.
#[derive(Debug)]
pub struct Callers {
    secret: hmac::Key,
    teams: HashMap<String, String>,
    /// Number of this set of callers: ids that were remembered for another one do not count.
    generation: u64,
}

/// The last key of a connection and its id, which takes 5,000 instructions to compute.
#[derive(Debug, Default)]
pub(crate) struct LastKey(Mutex<Option<(u64, Secret, Arc<str>)>>);

impl LastKey {
    fn id(&self, callers: &Callers, key: &str) -> Arc<str> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((generation, known, id)) if *generation == callers.generation && known.is(key) => {
                id.clone()
            }
            Some(_) | None => {
                let id: Arc<str> = callers.key_id(key).into();
                *last = Some((callers.generation, Secret::new(key.to_owned()), id.clone()));
                id
            }
        }
    }
}

impl Callers {
    /// The teams of a configuration; none where nothing is kept.
    ///
    /// # Errors
    /// A key or the secret cannot be read, or two teams have the same key.
    pub fn new(config: &Config) -> Result<Option<Self>, Error> {
        Self::with(config, own_secret)
    }

    /// The same, without creating the secret if it is missing.
    ///
    /// # Errors
    /// As for [`Callers::new`].
    pub fn check(config: &Config) -> Result<Option<Self>, Error> {
        Self::with(config, |data| match data.join(SECRET_FILE).exists() {
            true => own_secret(data),
            false => Ok(Secret::new("not made yet".to_owned())),
        })
    }

    fn with(
        config: &Config,
        own_secret: impl FnOnce(&Path) -> Result<Secret, Error>,
    ) -> Result<Option<Self>, Error> {
        if config.store()?.is_none() {
            return Ok(None);
        }
        let record = &config.record;
        let (env, file) = (record.key_secret_env.as_deref(), record.key_secret_file.as_deref());
        let secret = match secret("record.key_secret", env, file)? {
            Some(secret) => secret,
            None => own_secret(&config.data_dir()?)?,
        };
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
        static GENERATION: AtomicU64 = AtomicU64::new(0);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        let mut callers = Self { secret, teams: HashMap::new(), generation };
        for (team, own) in &config.teams {
            let what = format!("teams.{team}");
            for variable in &own.key_envs {
                callers.add(team, crate::config::secret(&what, Some(variable), None)?)?;
            }
            for file in &own.key_files {
                callers.add(team, crate::config::secret(&what, None, Some(file))?)?;
            }
            for id in &own.key_ids {
                callers.add_id(team, id.clone())?;
            }
        }
        Ok(Some(callers))
    }

    /// The teams, by the ids of their keys.
    pub(crate) fn teams(&self) -> &HashMap<String, String> {
        &self.teams
    }

    fn add(&mut self, team: &str, key: Option<Secret>) -> Result<(), Error> {
        key.map_or(Ok(()), |key| self.add_id(team, self.key_id(key.expose())))
    }

    fn add_id(&mut self, team: &str, id: String) -> Result<(), Error> {
        match self.teams.insert(id, team.to_owned()) {
            Some(other) if other != team => Err(Error::Setting {
                name: format!("teams.{team}"),
                message: format!(
                    "one of its keys is also one of `{other}`: give it to one of them"
                ),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The id of a key: from it the key cannot be found, and the same key has the same id wherever the
    /// secret is the same.
    #[must_use]
    pub fn key_id(&self, key: &str) -> String {
        let tag = hmac::sign(&self.secret, key.as_bytes());
        let mut id = String::from("k_");
        for byte in tag.as_ref().iter().take(8) {
            for digit in [byte >> 4, byte & 15] {
                id.extend(char::from_digit(digit.into(), 16));
            }
        }
        id
    }

    /// Returns the team of a key.
    #[must_use]
    pub fn team(&self, key_id: &str) -> Option<&str> {
        self.teams.get(key_id).map(String::as_str)
    }

    /// Returns the caller of a request: the team of the upstream, or that of the key, or the one
    /// that the caller names if callers may.
    ///
    /// # Errors
    /// The refusal, if the caller names a team and may not, or names it wrongly.
    pub(crate) fn caller<B>(
        &self,
        request: &Request<B>,
        auth: Auth,
        of_upstream: Option<&str>,
        last: &LastKey,
        named: Option<&HeaderValue>,
        may_name_team: bool,
    ) -> Result<Caller, BadTeam> {
        let key_id = key_shown(request, auth).map(|key| last.id(self, key));
        let of_key = key_id.as_deref().and_then(|id| self.team(id));
        let known = of_upstream.or(of_key).map(str::to_owned);
        let team_id = match (known, named) {
            (known, None) => known,
            (_, Some(_)) if !may_name_team => return Err(BadTeam::NotAllowed),
            (Some(known), Some(_)) => Some(known),
            (None, Some(named)) => Some(team_name(named).ok_or(BadTeam::Invalid)?),
        };
        Ok(Caller { team_id, key_id })
    }
}

/// Reason why a team header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadTeam {
    NotAllowed,
    Invalid,
}

fn team_name(named: &HeaderValue) -> Option<String> {
    let is_name = |name: &&str| {
        (1..=64).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(c))
    };
    named.to_str().ok().filter(is_name).map(str::to_owned)
}

/// Returns the key that a request shows.
pub(crate) fn key_shown<B>(request: &Request<B>, auth: Auth) -> Option<&str> {
    let header = |name: &str| request.headers().get(name)?.to_str().ok();
    let bearer = || {
        let value = request.headers().get(hyper::header::AUTHORIZATION)?.to_str().ok()?;
        signer(value).or_else(|| Some(without_scheme(value)))
    };
    let key = match auth {
        Auth::Header(name) => header(name).or_else(bearer),
        Auth::HeaderOrQuery(name, parameter) => header(name)
            .or_else(|| query_value(request.uri().query().unwrap_or(""), parameter))
            .or_else(bearer),
        Auth::Bearer | Auth::SigV4 { .. } | Auth::Open => bearer(),
    };
    key.map(str::trim_ascii).filter(|key| !key.is_empty())
}

/// Returns an authorization without its scheme. Schemes are spelled in any case, and any white space
/// may follow them.
fn without_scheme(value: &str) -> &str {
    // As nearly all are spelled.
    if let Some(token) = value.strip_prefix("Bearer ") {
        return token.trim_ascii();
    }
    let value = value.trim_ascii();
    match value.split_once([' ', '\t']) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim_ascii(),
        Some(_) | None => value,
    }
}

/// Reports whether a request shows this token: as its key, in the gateway's own header, or as the id
/// of the key that it is signed with.
pub(crate) fn shows_token<B>(request: &Request<B>, auth: Auth, token: &Secret) -> bool {
    let headers = request.headers();
    let key_header = match auth {
        Auth::Header(name) | Auth::HeaderOrQuery(name, _) => HeaderName::from_static(name),
        Auth::Bearer | Auth::SigV4 { .. } | Auth::Open => hyper::header::AUTHORIZATION,
    };
    let names = [own::TOKEN, hyper::header::AUTHORIZATION, key_header];
    let in_header = names.iter().filter_map(|name| shown(headers, name)).any(|key| token.is(key));
    let signed = shown(headers, &hyper::header::AUTHORIZATION).and_then(signer);
    let in_query = match auth {
        Auth::HeaderOrQuery(_, name) => query_value(request.uri().query().unwrap_or(""), name),
        Auth::Header(_) | Auth::Bearer | Auth::SigV4 { .. } | Auth::Open => None,
    };
    in_header || signed.into_iter().chain(in_query).any(|key| token.is(key))
}

/// Removes the access token from a request, wherever it is shown: it is for the gateway alone.
pub(crate) fn drop_token<B>(request: &mut Request<B>, token: &Secret) {
    let headers = request.headers_mut();
    let shows = |value: &HeaderValue| {
        token.is_within(value.as_bytes()) || basic(value).is_some_and(|it| token.is_within(&it))
    };
    let shown: Vec<HeaderName> =
        headers.iter().filter(|(_, value)| shows(value)).map(|(name, _)| name.clone()).collect();
    for name in shown {
        headers.remove(name);
    }
    drop_query(request, |pair| {
        token.is_within(pair.as_bytes())
            || decode_once(pair).is_some_and(|pair| token.is_within(pair.as_bytes()))
    });
}

/// Returns the user and the password of a basic authorization.
fn basic(value: &HeaderValue) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let (scheme, value) = value.to_str().ok()?.split_once(' ')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    is_basic.then(|| base64::engine::general_purpose::STANDARD.decode(value.trim()).ok())?
}

/// Removes these parameters from the query of a request.
pub(crate) fn drop_query<B>(request: &mut Request<B>, is_dropped: impl Fn(&str) -> bool) {
    let uri = request.uri();
    let Some(query) = uri.query().filter(|query| query.split('&').any(&is_dropped)) else { return };
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_dropped(pair)).collect();
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

fn shown<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(without_scheme(value))
}

/// Returns the id of the access key in an AWS signature.
fn signer(value: &str) -> Option<&str> {
    let signed = value.strip_prefix("AWS4-")?;
    signed.split_once("Credential=")?.1.split('/').next()
}

fn query_value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// The secret that is made once for a data directory.
fn own_secret(data: &Path) -> Result<Secret, Error> {
    let file = data.join(SECRET_FILE);
    if !file.exists() {
        make_secret(data, &file)?;
    }
    let found = secret("record.key_secret", None, Some(&file))?;
    found.ok_or_else(|| Error::Secret {
        what: "record.key_secret".to_owned(),
        message: format!("{} is empty: delete it and start again", file.display()),
    })
}

/// Makes it whole or not at all: a process that ends halfway must not leave an empty one.
fn make_secret(data: &Path, file: &Path) -> Result<(), Error> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |source: std::io::Error| Error::Data { dir: data.display().to_string(), source };
    let text: String = (0..2).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
    std::fs::create_dir_all(data).map_err(failed)?;
    let half = data.join(format!("{SECRET_FILE}.{}", uuid::Uuid::new_v4().simple()));
    let mut options = std::fs::OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(&half);
    let written = made.and_then(|mut made| {
        made.write_all(text.as_bytes())?;
        made.sync_all()?;
        std::fs::hard_link(&half, file)
    });
    // It may not be there.
    let _ = std::fs::remove_file(&half);
    match written {
        // Another process was first.
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_however_its_scheme_is_spelled() {
        for value in
            ["Bearer sk-1", "bearer sk-1", "BEARER sk-1", "Bearer  sk-1", "Bearer\tsk-1", " sk-1 "]
        {
            let request = Request::builder().header("authorization", value).body(()).unwrap();
            assert_eq!(key_shown(&request, Auth::Bearer), Some("sk-1"), "{value:?}");
            assert!(shows_token(&request, Auth::Bearer, &Secret::new("sk-1".to_owned())));
        }
        let request = Request::builder().header("x-api-key", " sk-1 ").body(()).unwrap();
        assert_eq!(key_shown(&request, Auth::Header("x-api-key")), Some("sk-1"));
        let request = Request::builder().header("authorization", "Basic abc").body(()).unwrap();
        assert_eq!(key_shown(&request, Auth::Bearer), Some("Basic abc"));
    }

    #[test]
    fn a_missing_key_names_its_team() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "store = 'sqlite:x.db'\ndata = '{}'\n[teams.payments]\nkey_envs = ['NO_SUCH_KEY']",
            dir.path().display()
        );
        let error = Callers::check(&Config::from_toml("t", &text).unwrap()).unwrap_err();
        let told = "teams.payments: the environment variable NO_SUCH_KEY is not set";
        assert!(error.to_string().starts_with(told), "{error}");
    }
}
