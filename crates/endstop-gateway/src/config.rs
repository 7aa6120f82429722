//! The configuration: one TOML file with optional keys. Without a file, every built-in provider is
//! served on loopback, in guard mode, with the callers' own keys.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use endstop::registry::Registry;
use endstop::text::{plain_error, toml_key_at};
use endstop_store::spool::{Start, WhenFull};
use endstop_turn::policy::Policy;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::watch::mask::Messages;

/// Shortest access token, in characters.
const TOKEN_LENGTH: usize = 16;

/// Mode of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The bytes pass unchanged, and the ending is recorded.
    Observe,
    /// Responses that end badly without saying so become errors.
    Guard,
}

impl Mode {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Guard => "guard",
        }
    }
}

/// Treatment of tool calls in guard mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolCalls {
    /// Tool calls pass like text.
    Pass,
    /// Frames after which a client could run a call wait until the call is proven. `fail` is an older
    /// name for it.
    #[serde(alias = "fail")]
    Gate,
    /// Everything from the first frame of a call on waits until the call is proven.
    Hold,
}

impl ToolCalls {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Gate => "gate",
            Self::Hold => "hold",
        }
    }
}

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Log {
    /// One line for people.
    #[default]
    Human,
    /// One line of JSON.
    Json,
    /// No line per ending. Lines about the gateway itself are written for people.
    Off,
}

/// The whole configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address for clients: an IP address, or `localhost`, and a port.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Address for operators (health, endings, reports), or `off`. An address that other machines
    /// reach needs an admin token.
    #[serde(deserialize_with = "address_or_off")]
    pub admin: Option<SocketAddr>,
    /// Mode, unless an upstream or a request sets another.
    pub mode: Mode,
    /// Treatment of tool calls, unless an upstream or a request sets another.
    pub tool_calls: ToolCalls,
    /// Whether callers may ask for less protection than is configured, in `x-endstop-mode` and
    /// `x-endstop-tool-calls`.
    pub allow_looser: bool,
    /// Silence after which a guarded stream gets a comment, such as `15s`.
    #[serde(deserialize_with = "optional_duration")]
    pub heartbeat: Option<Duration>,
    /// Names of this machine, besides loopback ones, that the `Host` header of a request may have
    /// where the gateway's own key is used without a token, and on an admin listener on loopback,
    /// such as `gateway.example`.
    pub hosts: Vec<String>,
    /// Environment variable with the token that callers of the gateway's own keys show as their API
    /// key, at least 16 characters, such as `ENDSTOP_TOKEN`.
    pub access_token_env: Option<String>,
    /// File with that token, instead of `access_token_env`, such as `/etc/endstop/token`.
    pub access_token_file: Option<PathBuf>,
    /// Whether every caller must show that token, in `x-endstop-token` beside a key of their own.
    pub require_token: bool,
    /// Names of the upstreams that are served, such as `openai`, `azure`, `llm`. All are served
    /// without it.
    pub only: Option<Vec<String>>,
    /// Environment variable with the token that operators must show, at least 16 characters, such
    /// as `ENDSTOP_ADMIN_TOKEN`.
    pub admin_token_env: Option<String>,
    /// File with that token, instead of `admin_token_env`, such as `/etc/endstop/admin-token`.
    pub admin_token_file: Option<PathBuf>,
    /// File of certificates to trust besides the system's, in PEM, such as `/etc/endstop/ca.pem`.
    pub extra_ca: Option<PathBuf>,
    /// Format of the log.
    pub log: Log,
    /// Whether the log has the messages of providers' errors, which may quote prompts.
    pub log_error_messages: bool,
    /// Number of endings kept in memory, for the admin listener.
    #[serde(deserialize_with = "number_kept")]
    pub keep: usize,
    /// Store of endings, such as `sqlite:/var/lib/endstop/endstop.db`; also `postgres://…`, or
    /// `off`. By default a SQLite file in the data directory.
    pub store: Option<String>,
    /// Environment variable with that address, instead of `store`, such as `ENDSTOP_STORE_URL`: for an
    /// address with a password.
    pub store_env: Option<String>,
    /// Directory of the spool, and of what else is kept on this machine, such as
    /// `/var/lib/endstop`. By default `ENDSTOP_DATA`, or `endstop` in the user's data directory.
    pub data: Option<PathBuf>,
    /// The record of endings, see docs/record.md.
    pub record: RecordConfig,
    /// Sinks that take endings besides the store, by their names, such as `lines`.
    pub sinks: BTreeMap<String, SinkConfig>,
    /// Teams of reports, by the keys of their requests, such as `payments`.
    pub teams: BTreeMap<String, TeamConfig>,
    /// Certificate that clients see. Clients use plain HTTP without it.
    pub tls: Option<Tls>,
    /// Bounds on time and size, see docs/gateway.md.
    pub limits: NetworkLimits,
    /// Upstreams of your own and corrections to built-in ones, by their routes, such as `llm`. A
    /// built-in one needs neither `like` nor `base_url`.
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    /// File of `[provider.NAME]` tables, relative to this one, such as `words.toml`.
    pub providers_file: Option<PathBuf>,
    /// Providers of your own and finish reasons of known ones, such as `acme`, see docs/words.md.
    /// The tables of `providers_file` are read besides.
    #[serde(rename = "provider", deserialize_with = "read_later")]
    pub registry: Registry,
    /// Policy of the decisions in the record, from the key `based_on` and the tables `[agent]`,
    /// `[rules]`, `[providers]`, `[wording]` and `[prices]`.
    #[serde(skip)]
    pub policy: Policy,
    /// Preset of the policy, such as `careful`; also `default`, which is used without it, or
    /// `persistent`. The policy decides what the record says to do about each ending, see
    /// docs/continuing.md.
    pub based_on: PolicyTable,
    /// Models that the action `other_model` asks after the first, in this order, such as
    /// `openai/gpt-5`.
    pub fallback_models: PolicyTable,
    /// Limits of the policy, for one turn.
    pub agent: PolicyTable,
    /// Rules of the policy, by the reason of an ending, such as `output_limit`.
    pub rules: PolicyTable,
    /// Limits and rules of the policy for single providers, such as `acme`.
    pub providers: PolicyTable,
    /// Texts of the policy for the model.
    pub wording: PolicyTable,
    /// Prices in US dollars per million tokens, by model or provider/model, such as `gpt-4.1`. They
    /// replace those of the built-in table.
    pub prices: PolicyTable,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 4100)),
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 4101))),
            mode: Mode::Guard,
            tool_calls: ToolCalls::Gate,
            allow_looser: false,
            heartbeat: None,
            hosts: Vec::new(),
            access_token_env: None,
            access_token_file: None,
            require_token: false,
            only: None,
            admin_token_env: None,
            admin_token_file: None,
            extra_ca: None,
            log: Log::default(),
            log_error_messages: false,
            keep: 10_000,
            store: None,
            store_env: None,
            data: None,
            record: RecordConfig::default(),
            sinks: BTreeMap::new(),
            teams: BTreeMap::new(),
            tls: None,
            limits: NetworkLimits::default(),
            upstreams: BTreeMap::new(),
            providers_file: None,
            registry: Registry::default(),
            policy: Policy::default(),
            based_on: PolicyTable,
            fallback_models: PolicyTable,
            agent: PolicyTable,
            rules: PolicyTable,
            providers: PolicyTable,
            wording: PolicyTable,
            prices: PolicyTable,
        }
    }
}

/// A part of the policy, which is read apart, so that errors name the line and the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyTable;

impl<'de> Deserialize<'de> for PolicyTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// Settings of the record.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordConfig {
    /// Whether callers may name their team, in `x-endstop-team`.
    pub team_header: bool,
    /// Whether guarded streams that report tokens only if asked are asked. The event that this adds
    /// is taken out again.
    pub ask_usage: bool,
    /// Treatment of new requests while nothing can be recorded.
    pub when_full: WhenFull,
    /// Size of the spool, in bytes, from which `when_full` applies. It holds what waits for the
    /// store.
    pub spool_bytes: u64,
    /// Age from which rows of the store are deleted, such as `90d`. The gateway looks once an hour,
    /// and after its start. The hourly sums stay. Rows stay for ever without it.
    #[serde(deserialize_with = "optional_duration")]
    pub keep: Option<Duration>,
    /// Environment variable with the secret that key ids are made with, such as
    /// `ENDSTOP_KEY_SECRET`. Gateways that share a store share it. By default the gateway makes one
    /// in the data directory.
    pub key_secret_env: Option<String>,
    /// File with that secret, instead of `key_secret_env`, such as `/etc/endstop/key-secret`.
    pub key_secret_file: Option<PathBuf>,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self {
            team_header: false,
            ask_usage: false,
            when_full: WhenFull::Refuse,
            spool_bytes: 1 << 30,
            keep: None,
            key_secret_env: None,
            key_secret_file: None,
        }
    }
}

/// A sink that takes endings besides the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SinkConfig {
    /// Address, such as `jsonl:/var/log/endstop/endings.jsonl`; also `sqlite:FILE`, `postgres://…`, `axiom:` or
    /// `otlp:`, see docs/observability.md.
    pub url: Option<String>,
    /// Environment variable with that address, instead of `url`, such as `ENDSTOP_SINK_URL`: for an
    /// address with a password.
    pub url_env: Option<String>,
    /// Environment variable with the token for `axiom:` or `otlp:`, such as `AXIOM_TOKEN`. Other sinks use none.
    pub token_env: Option<String>,
    /// File with that token, instead of `token_env`, such as `/etc/endstop/axiom-token`.
    pub token_file: Option<PathBuf>,
    /// Endings that it takes when it is new.
    pub from: Start,
    /// Age from which rows of a store are deleted, such as `7d`; looked for once an hour. Rows stay
    /// for ever without it.
    #[serde(deserialize_with = "optional_duration")]
    pub keep: Option<Duration>,
}

/// A team, by the keys of its requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TeamConfig {
    /// Environment variables with keys of the team, such as `PAYMENTS_KEY`.
    pub key_envs: Vec<String>,
    /// Files with keys of the team, such as `/etc/endstop/payments-key`.
    pub key_files: Vec<PathBuf>,
    /// Ids of keys of the team, as reports show them, such as `k_0123456789abcdef`.
    pub key_ids: Vec<String>,
}

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Chain of certificates in PEM, the server's own first, such as `/etc/endstop/cert.pem`.
    pub cert: PathBuf,
    /// Private key in PEM, such as `/etc/endstop/key.pem`.
    pub key: PathBuf,
}

/// One upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamConfig {
    /// Provider that it is like, a built-in one or one of your own, such as `vllm`. By default the
    /// one of its own name.
    pub like: Option<String>,
    /// URL where its API begins, such as `https://{region}.llm.example/v1`. A part in braces differs by
    /// customer, and paths name it after the route.
    pub base_url: Option<String>,
    /// Environment variable with the gateway's own key for it, such as `LLM_KEY`. Callers show
    /// their own keys without it.
    pub key_env: Option<String>,
    /// File with that key, instead of `key_env`, such as `/etc/endstop/llm-key`.
    pub key_file: Option<PathBuf>,
    /// Mode of this upstream, such as `observe`.
    pub mode: Option<Mode>,
    /// Treatment of tool calls of this upstream, such as `hold`.
    pub tool_calls: Option<ToolCalls>,
    /// Whether it speaks HTTP/2 without TLS.
    pub h2c: bool,
    /// Whether it is known to send the end marker of a stream. Built-in providers
    /// are.
    pub proves_end: Option<bool>,
    /// Team of its requests, such as `research`.
    pub team: Option<String>,
    /// Whether its streams are asked for their tokens.
    pub ask_usage: Option<bool>,
    /// Customers that its paths may name (resources, workspaces or regions), such as `eu-west`; any by
    /// default. They are required where the gateway's own key is used, except with AWS credentials.
    pub customers: Vec<String>,
}

/// Bounds on time and size.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkLimits {
    /// Time for a connection to an upstream.
    #[serde(deserialize_with = "duration")]
    pub connect: Duration,
    /// Time for the TLS handshake with an upstream.
    #[serde(deserialize_with = "duration")]
    pub tls: Duration,
    /// Time for the head of an upstream's response, from the end of the upload.
    #[serde(deserialize_with = "duration")]
    pub first_byte: Duration,
    /// Time between two bytes of an upstream.
    #[serde(deserialize_with = "duration")]
    pub idle: Duration,
    /// Time for a whole response, and for the upload of a request.
    #[serde(deserialize_with = "duration")]
    pub total: Duration,
    /// Time for a client to take in what was sent to it.
    #[serde(deserialize_with = "duration")]
    pub client_write: Duration,
    /// Time for a client to send the head of a request, and for each part of its body by
    /// `body_rate`.
    #[serde(deserialize_with = "duration")]
    pub client_read: Duration,
    /// Lowest rate of the body of a request, in bytes a second, over `client_read`.
    pub body_rate: u64,
    /// Time for a connection without a request.
    #[serde(deserialize_with = "duration")]
    pub keep_alive: Duration,
    /// Time for an end marker, after the finish reason of a tool call.
    #[serde(deserialize_with = "duration")]
    pub proof: Duration,
    /// Time for held frames of a tool call, until something is sent to keep the client waiting.
    #[serde(deserialize_with = "duration")]
    pub keep_waiting: Duration,
    /// Time for streams to end after a signal to stop. A service manager must wait a few seconds
    /// longer.
    #[serde(deserialize_with = "duration")]
    pub drain: Duration,
    /// Largest head of a request.
    #[serde(deserialize_with = "size")]
    pub head_bytes: usize,
    /// Largest number of header fields of a request.
    pub head_fields: usize,
    /// Largest body of a request.
    #[serde(deserialize_with = "size")]
    pub body_bytes: usize,
    /// Largest event of a stream. A larger one ends as `cut`.
    #[serde(deserialize_with = "size")]
    pub event_bytes: usize,
    /// Largest plain response that is judged before it is passed on. Larger ones stream.
    #[serde(deserialize_with = "size")]
    pub plain_bytes: usize,
    /// Memory for the bodies of all requests under way. Further requests get status 503.
    #[serde(deserialize_with = "size")]
    pub request_memory: usize,
    /// Most connections of clients at once. Fewer if the process may not open two files for each.
    pub connections: usize,
    /// Most connections of operators at once.
    pub admin_connections: usize,
    /// Most requests at once with one key, or from one address without a key; 0 for any number. Callers
    /// of the gateway's own key count together.
    pub key_requests: u32,
    /// Requests a minute with one key, or from one address without a key; 0 for any number. A
    /// minute's requests may come at once.
    pub key_requests_per_minute: u32,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            tls: Duration::from_secs(5),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(30 * 60),
            client_write: Duration::from_secs(60),
            client_read: Duration::from_secs(10),
            body_rate: 1 << 10,
            keep_alive: Duration::from_secs(75),
            proof: Duration::from_secs(2),
            keep_waiting: Duration::from_secs(15),
            drain: Duration::from_secs(600),
            head_bytes: 64 << 10,
            head_fields: 100,
            body_bytes: 32 << 20,
            event_bytes: 16 << 20,
            plain_bytes: 8 << 20,
            request_memory: 1 << 30,
            connections: 20_000,
            key_requests: 0,
            key_requests_per_minute: 0,
            admin_connections: 100,
        }
    }
}

impl Config {
    /// Reads a configuration from a file.
    ///
    /// # Errors
    /// [`Error::Config`] with the line and the key that are wrong.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        Self::from_toml(&path.display().to_string(), &read_text(path)?)
    }

    /// Reads a configuration from a text; `file` is what errors call it, and where the files that
    /// it names are looked for.
    ///
    /// # Errors
    /// [`Error::Config`] with the line and the key that are wrong.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, Error> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let (line, key) = toml_key_at(text, offset);
            let message = with_nearest(plain_error(error.message(), "value"));
            let message = if key.is_empty() { message } else { format!("`{key}`: {message}") };
            Error::Config { file: file.to_owned(), line: Some(line), message }
        })?;
        if let Some(named) = &config.providers_file {
            let folder = Path::new(file).parent().unwrap_or(Path::new(""));
            let named = folder.join(named);
            config.registry.add_toml(&named.display().to_string(), &read_text(&named)?)?;
        }
        config.registry.add_toml_within(file, text)?;
        config.policy = Policy::from_toml_within(file, text)?;
        if let Err((upstream, message)) = crate::route::check_likes(&config) {
            let message = format!("upstream `{upstream}`: {message}");
            let line = line_of_like(text, upstream);
            return Err(Error::Config { file: file.to_owned(), line, message });
        }
        Ok(config)
    }

    /// The address of the store; none where nothing is kept.
    ///
    /// # Errors
    /// [`Error::Secret`] if the variable that should hold it does not.
    pub fn store(&self) -> Result<Option<String>, Error> {
        let store = match &self.store_env {
            Some(variable) => {
                secret("store", Some(variable), None)?.map(|url| url.expose().to_owned())
            }
            None => self.store.clone(),
        };
        Ok(store.filter(|store| store != "off"))
    }

    /// The addresses of the sinks, by their names.
    ///
    /// # Errors
    /// [`Error::Setting`] if one has no address, or nothing is stored; [`Error::Store`] if its name is wrong; [`Error::Secret`] if the variable that
    /// should hold one does not.
    pub fn sinks(&self) -> Result<BTreeMap<String, String>, Error> {
        let store = self.store()?;
        let mut sinks = BTreeMap::new();
        for (name, sink) in &self.sinks {
            let setting = format!("sinks.{name}");
            let wrong = |message: &str| {
                Err(Error::Setting { name: setting.clone(), message: message.to_owned() })
            };
            let url = match (&sink.url, &sink.url_env) {
                (Some(url), None) => Some(url.clone()),
                (None, Some(variable)) => {
                    secret(&setting, Some(variable), None)?.map(|url| url.expose().to_owned())
                }
                (None, None) | (Some(_), Some(_)) => None,
            };
            let Some(url) = url else { return wrong("set either `url` or `url_env`") };
            endstop_store::spool::check_name(name)?;
            if store.is_none() {
                return wrong("sinks read what waits for the store: set `store`");
            }
            if store.as_ref() == Some(&url) {
                return wrong("it has the address of the store: remove it, or name another");
            }
            sinks.insert(name.clone(), url);
        }
        Ok(sinks)
    }

    /// The directory of the spool: as configured, else [`default_data_dir`].
    ///
    /// # Errors
    /// [`Error::Setting`] where there is none.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        self.data.clone().or_else(default_data_dir).ok_or_else(|| Error::Setting {
            name: "data".to_owned(),
            message: "no home directory found: pass --data DIR, or set ENDSTOP_DATA or `data`"
                .to_owned(),
        })
    }

    /// Treatment of the messages of providers' errors.
    pub(crate) fn error_messages(&self) -> Messages {
        if self.log_error_messages { Messages::Kept } else { Messages::Removed }
    }

    /// The token that callers of the gateway's own keys must show.
    ///
    /// # Errors
    /// [`Error::Secret`] if it is configured and empty or too short, or cannot be read;
    /// [`Error::Setting`] if it is required and not configured.
    pub fn access_token(&self) -> Result<Option<Secret>, Error> {
        let (env, file) = (self.access_token_env.as_deref(), self.access_token_file.as_deref());
        let token = secret("access_token", env, file)?;
        match &token {
            None if self.require_token => Err(Error::Setting {
                name: "require_token".to_owned(),
                message: "every caller must show the access token, and none is set: set \
                          access_token_env or access_token_file"
                    .to_owned(),
            }),
            None | Some(_) => check_length("access_token", token),
        }
    }

    /// The token that operators must show.
    ///
    /// # Errors
    /// [`Error::Secret`] if it is configured and empty or too short, or cannot be read.
    pub fn admin_token(&self) -> Result<Option<Secret>, Error> {
        let (env, file) = (self.admin_token_env.as_deref(), self.admin_token_file.as_deref());
        check_length("admin_token", secret("admin_token", env, file)?)
    }
}

/// Refuses a token that could be guessed.
fn check_length(what: &str, token: Option<Secret>) -> Result<Option<Secret>, Error> {
    if token.as_ref().is_some_and(|token| token.expose().len() < TOKEN_LENGTH) {
        let message = format!(
            "it has fewer than {TOKEN_LENGTH} characters and could be guessed: use a longer one, such \
             as the output of `openssl rand -hex 32`"
        );
        return Err(Error::Secret { what: what.to_owned(), message });
    }
    Ok(token)
}

/// Where a user's own data goes: `ENDSTOP_DATA`, else where the system keeps such.
#[must_use]
pub fn default_data_dir() -> Option<PathBuf> {
    let named =
        |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    named("ENDSTOP_DATA")
        .or_else(|| named("XDG_DATA_HOME").map(|dir| dir.join("endstop")))
        .or_else(|| named("HOME").map(|home| home.join(".local/share/endstop")))
}

/// Whether only this machine can reach this address.
#[must_use]
pub fn is_loopback(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

/// A key or a token: never shown, wiped when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A secret with this text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Reports whether these bytes contain it. Each comparison takes as long wherever a difference is.
    #[must_use]
    pub fn is_within(&self, bytes: &[u8]) -> bool {
        use subtle::ConstantTimeEq as _;
        let secret = self.0.as_bytes();
        // Only runs of its own letters can contain it, which few other values have.
        let mut letters = [false; 256];
        for byte in secret {
            letters.get_mut(usize::from(*byte)).into_iter().for_each(|known| *known = true);
        }
        let is_other = |byte: &u8| letters.get(usize::from(*byte)) != Some(&true);
        let runs = bytes.split(is_other).filter(|run| run.len() >= secret.len());
        let mut pieces = runs.flat_map(|run| run.windows(secret.len().max(1)));
        pieces.any(|piece| piece.ct_eq(secret).into())
    }

    /// Whether it is this text; takes as long whatever differs.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        use subtle::ConstantTimeEq as _;
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}

/// A secret from an environment variable or a file, whichever is named.
pub(crate) fn secret(
    what: &str,
    variable: Option<&str>,
    file: Option<&Path>,
) -> Result<Option<Secret>, Error> {
    let wrong = |message: String| Error::Secret { what: what.to_owned(), message };
    let text = match (variable, file) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(wrong("both a variable and a file are named; name one".to_owned()));
        }
        (Some(variable), None) => Zeroizing::new(std::env::var(variable).map_err(|_| {
            wrong(format!("the environment variable {variable} is not set; set it, and start the gateway again"))
        })?),
        (None, Some(file)) => Zeroizing::new(
            std::fs::read_to_string(file)
                .map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?,
        ),
    };
    let text = text.trim();
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(wrong("it is empty or holds control characters".to_owned()));
    }
    Ok(Some(Secret::new(text.to_owned())))
}

/// The text of a file of TOML.
fn read_text(path: &Path) -> Result<String, Error> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|error| Error::Unreadable { file: file.clone(), message: error.to_string() })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let readable = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = readable.filter(|byte| **byte == b'\n').count() + 1;
        let message = "invalid UTF-8: the file must be text".to_owned();
        Error::Config { file, line: Some(line), message }
    })?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

/// Tables of providers are read apart, so that their errors name the line.
fn read_later<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Registry, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| Registry::default())
}

/// Adds the name that was perhaps meant to an error that quotes a wrong name, and then all allowed ones.
fn with_nearest(message: String) -> String {
    let is_about_names =
        ["unknown value ", "unknown field "].iter().any(|start| message.starts_with(start));
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next().filter(|_| is_about_names);
    match wrong.and_then(|wrong| endstop::nearest(wrong, quoted)) {
        Some(meant) => format!("{message}; did you mean `{meant}`?"),
        None => message,
    }
}

/// Returns the line of the key `like` of an upstream.
fn line_of_like(text: &str, upstream: &str) -> Option<usize> {
    let table = toml::de::DeTable::parse(text).ok()?;
    let own = table.get_ref().get("upstreams")?.get_ref().get(upstream)?.get_ref();
    Some(toml_key_at(text, own.get("like")?.span().start).0)
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let found = parse_duration(&text).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "invalid duration `{text}`: expected a number and ms, s, m, h or d"
        ))
    })?;
    if found.is_zero() {
        let why = format!("invalid duration `{text}`: it must be greater than 0");
        return Err(serde::de::Error::custom(why));
    }
    Ok(found)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    struct Size;
    impl serde::de::Visitor<'_> for Size {
        type Value = usize;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a number of bytes, or a text such as \"128 MiB\"")
        }

        fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<usize, E> {
            usize::try_from(bytes).map_err(|_| E::custom(format!("invalid size {bytes}")))
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<usize, E> {
            parse_size(text).ok_or_else(|| {
                E::custom(format!(
                    "invalid size `{text}`: expected a number and B, KiB, MiB or GiB (or kB, MB, GB)"
                ))
            })
        }
    }
    deserializer.deserialize_any(Size)
}

fn parse_size(text: &str) -> Option<usize> {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit)?;
    let bytes: usize = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(bytes)
}

fn optional_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

fn address_or_off<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "off" {
        return Ok(None);
    }
    parse_address(&text).map(Some).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "invalid address `{text}`: expected an address such as 127.0.0.1:4101, or off"
        ))
    })
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_address(&text).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "invalid address `{text}`: expected an IP address and a port, such as 127.0.0.1:4100"
        ))
    })
}

/// Returns an address to listen on: an IP address, or `localhost`, and a port.
#[must_use]
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port))),
        None => text.parse().ok(),
    }
}

fn number_kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    struct Number;
    impl serde::de::Visitor<'_> for Number {
        type Value = usize;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str(
                "a number of endings to keep in memory (the time that rows are stored is `keep` of the \
                 table [record])",
            )
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<usize, E> {
            usize::try_from(number).map_err(|_| E::custom(format!("invalid number {number}")))
        }
    }
    deserializer.deserialize_any(Number)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(unit)?;
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => number,
        "s" => number.checked_mul(1000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        "d" => number.checked_mul(24 * 3_600_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_or_texts() {
        let read = |value: &str| {
            let text = format!("[limits]\nrequest_memory = {value}");
            Config::from_toml("t", &text).map(|config| config.limits.request_memory)
        };
        for (value, bytes) in [
            ("1000", 1000),
            ("'1000'", 1000),
            ("'128 MiB'", 128 << 20),
            ("'128MiB'", 128 << 20),
            ("'1 GiB'", 1 << 30),
            ("'2 MB'", 2_000_000),
            ("'64 KiB'", 64 << 10),
        ] {
            assert_eq!(read(value).unwrap(), bytes, "{value}");
        }
        for value in ["-1", "'x'", "'1 TiBs'", "''", "'99999999999999999999'", "true", "1.5"] {
            let error = read(value).unwrap_err().to_string();
            assert!(error.contains("t:2: `limits.request_memory`: "), "{value}: {error}");
        }
    }

    #[test]
    fn mistakes_are_told_with_what_is_expected() {
        let read = |text: &str| Config::from_toml("t", text);
        let wrong = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(
            wrong("listen = 'gateway.example:80'"),
            "t:1: `listen`: invalid address `gateway.example:80`: expected an IP address and a port, \
             such as 127.0.0.1:4100"
        );
        let config = read("listen = 'localhost:4100'\nadmin = 'localhost:4101'").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:4100");
        assert_eq!(config.admin.map(|admin| admin.to_string()).as_deref(), Some("127.0.0.1:4101"));
        let keep = wrong("keep = '90d'");
        assert!(keep.contains("`keep`") && keep.contains("[record]"), "{keep}");
        assert_eq!(read("keep = 9").unwrap().keep, 9);
        assert!(wrong("keep = -9").contains("invalid number -9"));
    }

    #[test]
    fn parts_of_the_policy_are_taken() {
        let text = "based_on = 'careful'\nfallback_models = ['openai/m']\n\
                    [providers.openai.rules.cut]\naction = 'stop'\n";
        let policy = Config::from_toml("t", text).unwrap().policy;
        let alone = Policy::from_toml("t", text).unwrap();
        assert_eq!((&policy.rules, &policy.agent), (&alone.rules, &alone.agent));
        assert_eq!(policy.providers, alone.providers);
        assert!(!policy.providers.is_empty());
    }

    #[test]
    fn a_secret_is_found_within_other_text() {
        let secret = Secret::new("tok/en+01234567==".to_owned());
        for text in ["tok/en+01234567==", "Bearer tok/en+01234567==", "a=tok/en+01234567==;b"] {
            assert!(secret.is_within(text.as_bytes()), "{text}");
        }
        for text in ["", "tok/en+01234567=", "Tok/en+01234567==", "tok/en +01234567=="] {
            assert!(!secret.is_within(text.as_bytes()), "{text}");
        }
    }
}
