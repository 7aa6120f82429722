//! The configuration: one TOML file, every key optional. Without a file, every built-in provider is
//! served on loopback, guarded, with the caller's own keys.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use crate::error::Error;

/// What is done with a response as it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing: the bytes pass untouched, and the ending is told.
    Observe,
    /// A quiet failure is made loud.
    Guard,
}

/// What a guard does about tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolCalls {
    /// They are the client's to judge.
    Pass,
    /// A turn with a call that may not run fails: for clients that wait for the end.
    Fail,
    /// Calls are held back until they are proven: for any client.
    Hold,
}

/// How endings are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Log {
    /// One line for people.
    #[default]
    Human,
    /// One line of JSON.
    Json,
    /// Not at all.
    Off,
}

/// The whole configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators connect; `off` for nowhere.
    #[serde(deserialize_with = "address_or_off")]
    pub admin: Option<SocketAddr>,
    /// The mode where nothing else is said.
    pub mode: Mode,
    /// What a guard does about tool calls where nothing else is said.
    pub tool_calls: ToolCalls,
    /// Callers may ask for less than is configured.
    pub allow_looser: bool,
    /// In a guarded stream, a comment after so much silence; never by default.
    #[serde(deserialize_with = "optional_duration")]
    pub heartbeat: Option<Duration>,
    /// The environment variable with the token that callers of the gateway's own keys must show.
    pub access_token_env: Option<String>,
    /// The file with it.
    pub access_token_file: Option<PathBuf>,
    /// The environment variable with the token that operators must show.
    pub admin_token_env: Option<String>,
    /// The file with it.
    pub admin_token_file: Option<PathBuf>,
    /// Certificates to trust besides the system's.
    pub extra_ca: Option<PathBuf>,
    /// How endings are logged.
    pub log: Log,
    /// How many endings are kept in memory.
    pub keep: usize,
    /// The certificate that clients see; plain HTTP without.
    pub tls: Option<Tls>,
    /// Bounds.
    pub limits: Limits,
    /// Own upstreams, and corrections to built-in ones, by their route.
    pub upstreams: BTreeMap<String, UpstreamConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 4100)),
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 4101))),
            mode: Mode::Guard,
            tool_calls: ToolCalls::Fail,
            allow_looser: false,
            heartbeat: None,
            access_token_env: None,
            access_token_file: None,
            admin_token_env: None,
            admin_token_file: None,
            extra_ca: None,
            log: Log::default(),
            keep: 10_000,
            tls: None,
            limits: Limits::default(),
            upstreams: BTreeMap::new(),
        }
    }
}

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// One upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamConfig {
    /// The built-in provider that it is like; its own name where it has one of theirs.
    pub like: Option<String>,
    /// Where its API begins.
    pub base_url: Option<String>,
    /// The environment variable with the gateway's own key for it.
    pub key_env: Option<String>,
    /// The file with that key.
    pub key_file: Option<PathBuf>,
    /// Its mode.
    pub mode: Option<Mode>,
    /// What a guard does about its tool calls.
    pub tool_calls: Option<ToolCalls>,
    /// It speaks HTTP/2 without TLS.
    pub h2c: bool,
    /// It is known to send what proves the end of a stream. Built-in providers are.
    pub proves_end: Option<bool>,
}

/// Bounds on time and size.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// For a connection to an upstream.
    #[serde(deserialize_with = "duration")]
    pub connect: Duration,
    /// For the handshake with it.
    #[serde(deserialize_with = "duration")]
    pub tls: Duration,
    /// For the head of its response.
    #[serde(deserialize_with = "duration")]
    pub first_byte: Duration,
    /// Between two of its bytes.
    #[serde(deserialize_with = "duration")]
    pub idle: Duration,
    /// For a whole response.
    #[serde(deserialize_with = "duration")]
    pub total: Duration,
    /// For a client to take in what was sent to it.
    #[serde(deserialize_with = "duration")]
    pub client_write: Duration,
    /// For a client to send a request's head, and between two pieces of its body.
    #[serde(deserialize_with = "duration")]
    pub client_read: Duration,
    /// For a connection without a request.
    #[serde(deserialize_with = "duration")]
    pub keep_alive: Duration,
    /// What waits for the proof of its end waits so long.
    #[serde(deserialize_with = "duration")]
    pub proof: Duration,
    /// For streams to end after a signal to stop.
    #[serde(deserialize_with = "duration")]
    pub drain: Duration,
    /// The largest head of a request, in bytes.
    pub head_bytes: usize,
    /// The most header fields.
    pub head_fields: usize,
    /// The largest body of a request, in bytes.
    pub body_bytes: usize,
    /// The largest event, in bytes.
    pub event_bytes: usize,
    /// The largest plain response that is judged before it is passed on, in bytes.
    pub plain_bytes: usize,
    /// The most connections at once.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            tls: Duration::from_secs(5),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(30 * 60),
            client_write: Duration::from_secs(60),
            client_read: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            proof: Duration::from_secs(2),
            drain: Duration::from_secs(600),
            head_bytes: 64 << 10,
            head_fields: 100,
            body_bytes: 32 << 20,
            event_bytes: 16 << 20,
            plain_bytes: 8 << 20,
            connections: 20_000,
        }
    }
}

impl Config {
    /// Reads a configuration from a file.
    ///
    /// # Errors
    /// [`Error::Config`] with the line and the key that are wrong.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::Config {
            file: path.display().to_string(),
            line: None,
            message: format!("cannot be read: {error}"),
        })?;
        Self::from_toml(&path.display().to_string(), &text)
    }

    /// Reads a configuration from a text; `file` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Config`] with the line and the key that are wrong.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .and_then(|span| text.get(..span.start))
                .map(|before| before.bytes().filter(|byte| *byte == b'\n').count() + 1);
            Error::Config { file: file.to_owned(), line, message: error.message().to_owned() }
        })
    }

    /// The token that callers of the gateway's own keys must show.
    ///
    /// # Errors
    /// [`Error::Config`] if it is configured and empty, or cannot be read.
    pub fn access_token(&self) -> Result<Option<Secret>, Error> {
        secret("access_token", self.access_token_env.as_deref(), self.access_token_file.as_deref())
    }

    /// The token that operators must show.
    ///
    /// # Errors
    /// [`Error::Config`] if it is configured and empty, or cannot be read.
    pub fn admin_token(&self) -> Result<Option<Secret>, Error> {
        secret("admin_token", self.admin_token_env.as_deref(), self.admin_token_file.as_deref())
    }
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
            wrong(format!("the environment variable {variable} is not set; set it and start again"))
        })?),
        (None, Some(file)) => Zeroizing::new(
            std::fs::read_to_string(file)
                .map_err(|error| wrong(format!("{} cannot be read: {error}", file.display())))?,
        ),
    };
    let text = text.trim();
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(wrong("it is empty or holds control characters".to_owned()));
    }
    Ok(Some(Secret::new(text.to_owned())))
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "`{text}` is no time: write `500ms`, `30s`, `10m` or `2h`"
        ))
    })
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
    text.parse().map(Some).map_err(|_| {
        serde::de::Error::custom(format!(
            "`{text}` is no address: write `127.0.0.1:4101`, or `off`"
        ))
    })
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
        _ => return None,
    };
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}
