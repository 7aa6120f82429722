//! State that requests share: the settings, which a reload replaces, and the watch.

use std::sync::{Arc, PoisonError, RwLock};

use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::callers::Callers;
use crate::config::{Config, Secret, Tls, is_loopback};
use crate::error::Error;
use crate::memory::Memory;
use crate::rates::Rates;
use crate::respond::live::Live;
use crate::retries::Retries;
use crate::route::{Routes, Upstream};
use crate::upstream::Clients;
use crate::upstream::connect::{certificates, unreadable};
use crate::watch::Watch;
use crate::watch::recording::Recorder;

/// State that all requests share.
#[derive(Debug)]
pub struct Shared {
    settings: RwLock<Arc<Settings>>,
    /// Reports of endings.
    pub watch: Arc<Watch>,
    /// Streams under way.
    pub live: Arc<Live>,
    /// Failed requests that a client may send again.
    pub retries: Retries,
    /// Store of endings.
    pub recording: Option<Recorder>,
    /// Memory for the bodies of requests.
    pub(crate) memory: Arc<Memory>,
    /// Requests of each key.
    pub(crate) rates: Arc<Rates>,
}

impl Shared {
    /// Creates the state and opens the store.
    ///
    /// # Errors
    /// The store's address is wrong, or the data directory cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let watch = Watch::new(settings.config.keep, settings.config.log);
        // Operators read the metrics, or an exporter sends them.
        let is_otlp = |url: &String| url.starts_with("otlp:");
        let counts =
            settings.config.admin.is_some() || settings.config.sinks()?.values().any(is_otlp);
        let watch = Arc::new(if counts { watch.counting(Arc::default()) } else { watch });
        let recording = Recorder::open(&settings.config, watch.metrics().cloned())?;
        let settings = RwLock::new(Arc::new(settings));
        let (live, retries) = (Arc::new(Live::default()), Retries::default());
        let (memory, rates) = (Arc::default(), Arc::default());
        Ok(Self { settings, watch, live, retries, recording, memory, rates })
    }

    /// Returns the current settings. A request keeps those that it began with.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings for new requests and connections.
    pub fn replace(&self, settings: Settings) {
        self.watch.configure(settings.config.keep, settings.config.log);
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

/// A checked configuration and the parts that are made from it.
#[derive(Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Config,
    /// Routes to upstreams.
    pub routes: Routes,
    /// Token that callers of the gateway's own keys must show.
    pub access_token: Option<Secret>,
    /// Token that operators must show.
    pub admin_token: Option<Secret>,
    /// Certificate that clients see; `None` for plain HTTP.
    pub(crate) tls: Option<ServerTls>,
    /// HTTP clients for upstreams.
    pub clients: Clients,
    /// Content of the file of extra certificates.
    pub(crate) extra_ca: Option<Vec<u8>>,
    /// Callers, by their keys; `None` if nothing is recorded.
    pub callers: Option<Callers>,
}

impl Settings {
    /// Checks a configuration, and creates the secret of key ids if it is missing.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn new(config: Config) -> Result<Self, Error> {
        Self::with(config, Callers::new)
    }

    /// Checks a configuration in the same way, and creates nothing.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn check(config: Config) -> Result<Self, Error> {
        Self::with(config, Callers::check)
    }

    fn with(
        config: Config,
        callers: impl FnOnce(&Config) -> Result<Option<Callers>, Error>,
    ) -> Result<Self, Error> {
        let routes = Routes::new(&config)?;
        let access_token = config.access_token()?;
        // One that is named and cannot be read must not leave the listener open.
        let admin_token = config.admin_token()?;
        check_admin(&config, admin_token.as_ref())?;
        let tls = config.tls.as_ref().map(ServerTls::new).transpose()?;
        let clients = Clients::new(&config)?;
        let extra_ca = config.extra_ca.as_deref().and_then(|file| std::fs::read(file).ok());
        let callers = callers(&config)?;
        Ok(Self { config, routes, access_token, admin_token, tls, clients, extra_ca, callers })
    }

    /// Returns lines for the operator about what is allowed, and may not be meant.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let short_keys = self.routes.iter().filter_map(Upstream::short_key);
        self.exposure().into_iter().chain(short_keys).collect()
    }

    /// Returns a line for the operator if other machines can use the gateway without a token.
    fn exposure(&self) -> Option<String> {
        let listen = self.config.listen;
        let mut open = self.routes.iter().filter(|upstream| !upstream.has_own_key());
        if is_loopback(listen) || self.config.require_token || open.next().is_none() {
            return None;
        }
        let token = match self.access_token {
            Some(_) => "set require_token = true",
            None => "set access_token_env (or access_token_file) and require_token = true",
        };
        Some(format!(
            "every machine that can reach {listen} can send requests through this gateway \
             without a token: {token}, or listen on 127.0.0.1"
        ))
    }
}

fn check_admin(config: &Config, token: Option<&Secret>) -> Result<(), Error> {
    match config.admin {
        Some(address) if !is_loopback(address) && token.is_none() => Err(Error::Exposed(format!(
            "the admin listener {address} is open to other machines: set admin_token_env or \
                 admin_token_file, or listen on 127.0.0.1"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// The certificate that clients see, ready for handshakes.
#[derive(Clone)]
pub(crate) struct ServerTls {
    pub(crate) acceptor: TlsAcceptor,
    chain: Vec<CertificateDer<'static>>,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ServerTls")
    }
}

/// Two are equal if clients see the same certificates.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain
    }
}

impl ServerTls {
    fn new(tls: &Tls) -> Result<Self, Error> {
        use rustls_pki_types::pem::PemObject as _;
        let wrong = |file: &std::path::Path, message: String| Error::Certificate {
            file: file.display().to_string(),
            message,
        };
        let chain = certificates(&tls.cert)?;
        if chain.is_empty() {
            return Err(wrong(&tls.cert, "it has no certificate in PEM format".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&tls.key);
        let key = key.map_err(|error| unreadable(&tls.key, &error))?;
        let mismatch =
            || format!("the key in {} is not that of the certificate", tls.key.display());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain.clone(), key))
            .map_err(|error| {
                let differs = matches!(error, rustls::Error::InconsistentKeys(_));
                wrong(&tls.cert, if differs { mismatch() } else { error.to_string() })
            })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), chain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, Error> {
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "token-0123456789").unwrap();
        let text = text.replace("TOKEN", &format!("'{}'", token.path().display()));
        Settings::new(Config::from_toml("t", &format!("store = 'off'\n{text}")).unwrap())
    }

    #[test]
    fn a_gateway_that_others_can_use_without_a_token_says_so() {
        let open = "listen = '0.0.0.0:4100'\n";
        let line = settings(open).unwrap().exposure().unwrap();
        assert!(line.contains("0.0.0.0:4100") && line.contains("access_token_env"), "{line}");
        let line = settings(&format!("{open}access_token_file = TOKEN")).unwrap().exposure();
        assert!(line.unwrap().contains(": set require_token = true"));
        let closed = format!("{open}access_token_file = TOKEN\nrequire_token = true");
        let own = format!(
            "{open}access_token_file = TOKEN\nonly = ['openai']\n[upstreams.openai]\nkey_file = TOKEN"
        );
        for text in ["", "listen = '127.0.0.1:0'", "listen = '[::1]:0'", &closed, &own] {
            assert_eq!(settings(text).unwrap().exposure(), None, "{text}");
        }
    }

    #[test]
    fn a_key_that_is_too_short_to_be_hidden_is_told() {
        for (key, is_told) in [("x", true), ("EMPTY", true), ("1234567", true), ("12345678", false)]
        {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), key).unwrap();
            let path = file.path().display();
            let text = format!("[upstreams.ollama]\nkey_file = '{path}'");
            let lines = settings(&text).unwrap().warnings();
            assert_eq!(lines.len(), usize::from(is_told), "{lines:?}");
            for line in lines {
                assert!(
                    line.starts_with("the key of upstream `ollama` has fewer than 8"),
                    "{line}"
                );
                assert!(!line.contains('\n') && !line.contains(&format!("`{key}`")), "{line}");
            }
        }
    }

    #[test]
    fn mistakes_in_certificates_are_told_in_plain_words() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let make = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (one, other) = (make(), make());
        let cert = write("cert.pem", &one.cert.pem());
        let key = write("key.pem", &one.signing_key.serialize_pem());
        let foreign = write("other.pem", &other.signing_key.serialize_pem());
        let empty = write("empty.pem", "");
        let torn = write("torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA");
        let missing = dir.path().join("missing.pem").display().to_string();
        let check = |cert: &str, key: &str| {
            let made = settings(&format!("tls = {{ cert = '{cert}', key = '{key}' }}"));
            made.map_or_else(|error| error.to_string(), |_| String::new())
        };
        assert_eq!(check(&cert, &key), "");
        for (cert, key, want) in [
            (
                &cert,
                &foreign,
                format!("{cert}: the key in {foreign} is not that of the certificate"),
            ),
            (&missing, &key, format!("cannot read {missing}: the file does not exist")),
            (&cert, &missing, format!("cannot read {missing}: the file does not exist")),
            (&cert, &empty, format!("cannot read {empty}: it has no private key in PEM format")),
            (&empty, &key, format!("{empty}: it has no certificate in PEM format")),
            (&torn, &key, format!("cannot read {torn}: it is not a valid PEM file")),
        ] {
            assert_eq!(check(cert, key), want);
        }
    }

    #[test]
    fn a_token_that_is_required_must_be_set_and_long() {
        let error = settings("require_token = true").unwrap_err().to_string();
        assert!(error.contains("set access_token_env or access_token_file"), "{error}");
        let short = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(short.path(), "canary-15-chars").unwrap();
        let text = format!("access_token_file = '{}'", short.path().display());
        let error = settings(&text).unwrap_err().to_string();
        assert!(error.contains("fewer than 16 characters") && !error.contains("canary"), "{error}");
    }
}
