//! HTTP: the only file of this crate that knows the HTTP library. Calls block; exporters have threads of their own.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::error::{Error, wrong};

/// Largest part of a response that is read.
const REPLY: usize = 64 << 10;
/// Longest wait that an endpoint may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Sends requests to one endpoint.
#[derive(Debug)]
pub(crate) struct Http {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
}

/// The response of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Time that it asks to wait.
    pub(crate) wait: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

impl Http {
    /// Creates a client. It trusts the certificates of the system, and those of this file.
    pub(crate) fn new(timeout: Duration, certificates: Option<&Path>) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| wrong("exporter", error.to_string());
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(file) = certificates {
            let read = CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let cannot = |error: &dyn std::fmt::Display| {
                wrong(
                    "OTEL_EXPORTER_OTLP_CERTIFICATE",
                    format!("cannot read {}: {error}", file.display()),
                )
            };
            let read = read.map_err(|error| cannot(&error))?;
            roots.add_parsable_certificates(read);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(timeout.min(Duration::from_secs(10)))
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("endstop/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| failed(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { runtime: runtime.map_err(|error| failed(&error))?, client })
    }

    /// Posts a body and waits for the response.
    ///
    /// # Errors
    /// Says why no response came.
    pub(crate) fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<Reply, String> {
        let request = self.client.post(url.clone()).headers(headers.clone()).body(body);
        self.runtime.block_on(async {
            let mut response = request.send().await.map_err(|error| cause(&error))?;
            let (status, wait) = (response.status().as_u16(), wait(response.headers()));
            let mut body = Vec::new();
            // The status counts; a body that is cut off says less.
            while let Ok(Some(chunk)) = response.chunk().await {
                let room = REPLY.saturating_sub(body.len());
                body.extend(chunk.into_iter().take(room));
                if body.len() >= REPLY {
                    break;
                }
            }
            Ok(Reply { status, wait, body })
        })
    }
}

/// Compresses a body.
pub(crate) fn gzip(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    written.map_err(|error| format!("cannot compress the request: {error}"))
}

/// Reads the address of an endpoint. Plain HTTP would show secrets to others, so that it is for this machine only, unless
/// nothing secret is sent.
pub(crate) fn endpoint(name: &str, text: &str, secret: bool) -> Result<Url, Error> {
    let url = Url::parse(text)
        .map_err(|error| wrong(name, format!("invalid address `{}`: {error}", shown(text))))?;
    let is_local = matches!(url.host_str(), Some("localhost" | "[::1]"))
        || url.host_str().is_some_and(|host| host.starts_with("127."));
    match url.scheme() {
        _ if !url.username().is_empty() || url.password().is_some() => Err(wrong(
            name,
            "the address has a user or a password: set the token or the headers instead",
        )),
        "https" => Ok(url),
        "http" if is_local || !secret => Ok(url),
        "http" => {
            Err(wrong(name, format!("`{}` would show the token to others: use https", shown(text))))
        }
        scheme => {
            Err(wrong(name, format!("unsupported scheme `{scheme}`: expected https or http")))
        }
    }
}

/// Returns an address as it may be shown: without a user, a password and parameters.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    endstop::text::clean(&format!("{scheme}{place}"), 200)
}

/// Makes a header; its value may be secret.
pub(crate) fn header(
    setting: &str,
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), Error> {
    let invalid = |what: &str| {
        wrong(setting, format!("the {what} of a header has characters that are not allowed"))
    };
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("name"))?;
    let mut value = HeaderValue::from_str(value).map_err(|_| invalid("value"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Returns the innermost cause of an error, which says most.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no response came in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    endstop::text::clean(&cause.to_string(), 200)
}

/// Returns the time that an endpoint asks to wait: `Retry-After`, or until its limit is reset.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let now = SystemTime::now();
    let after = text("retry-after").and_then(|text| match text.trim().parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    });
    let reset = || {
        let names = ["x-ratelimit-reset", "x-ingestlimit-reset"];
        let at = names.into_iter().find_map(|name| text(name)?.trim().parse::<u64>().ok())?;
        (UNIX_EPOCH + Duration::from_secs(at)).duration_since(now).ok()
    };
    after.or_else(reset).map(|wait| wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        let wrong = |text: &str| endpoint("x", text, true).unwrap_err().to_string();
        endpoint("x", "https://api.example/v1", true).unwrap();
        endpoint("x", "http://127.0.0.1:4318", true).unwrap();
        endpoint("x", "http://collector:4318", false).unwrap();
        assert_eq!(
            wrong("http://a.example"),
            "x: `http://a.example` would show the token to others: use https"
        );
        assert!(wrong("ftp://a.example").contains("unsupported scheme `ftp`"));
        assert!(wrong("nonsense").contains("invalid address `nonsense`"));
        let secret = wrong("https://user:secret@a.example");
        assert!(secret.contains("password") && !secret.contains("secret@"), "{secret}");
    }

    #[test]
    fn waits_are_read_and_bounded() {
        let wait = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            wait(&headers)
        };
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after", "99999999"), Some(LONGEST_WAIT));
        assert_eq!(wait("retry-after", "soon"), None);
        assert_eq!(wait("x-ratelimit-reset", "1"), None);
        let later = SystemTime::now() + Duration::from_secs(60);
        let later = later.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(wait("x-ratelimit-reset", &later.to_string()).is_some());
    }
}
