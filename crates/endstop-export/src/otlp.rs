//! OpenTelemetry by OTLP over HTTP, in protobuf: a span for each response, and metrics as sums since the start.
//!
//! The settings are the standard variables `OTEL_EXPORTER_OTLP_*`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_TRACES_EXPORTER` and `OTEL_METRICS_EXPORTER`.
//! `OTEL_SEMCONV_STABILITY_OPT_IN` chooses the names.

mod message;
pub mod names;
mod points;
mod span;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use crate::Metrics;
use crate::error::{Error, wrong};
use crate::exporter::{Exporter, Noted, Patience, newest};
use crate::http::{Http, Reply, endpoint, gzip, header, shown};
use message::{
    ExportResponse, KeyValue, MetricsRequest, Resource, ResourceMetrics, ResourceSpans, Scope,
    ScopeMetrics, ScopeSpans, Span, TracesRequest, attribute, text,
};
use names::Generation;

/// Spans of a request.
const MOST_SPANS: usize = 500;

/// Settings.
#[derive(Debug)]
pub struct Options {
    traces: Option<Signal>,
    metrics: Option<Signal>,
    timeout: Duration,
    certificates: Option<PathBuf>,
    interval: Duration,
    resource: Resource,
    generation: Generation,
}

/// Where and how one kind of data is sent.
#[derive(Debug)]
struct Signal {
    url: Url,
    headers: HeaderMap,
    gzip: bool,
}

/// A function that reads variables of the environment.
type Variable<'v> = &'v dyn Fn(&str) -> Option<String>;

impl Options {
    /// Reads the settings: an address or nothing, a token for the header `authorization`, and variables of the
    /// environment for what is missing.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn read(
        place: &str,
        token: Option<Zeroizing<String>>,
        variable: Variable<'_>,
    ) -> Result<Self, Error> {
        let of = |signal: &'static str| signal_of(signal, place, token.as_deref(), variable);
        for (name, why) in [
            ("CLIENT_KEY", "client certificates are not supported"),
            ("CLIENT_CERTIFICATE", "client certificates are not supported"),
        ] {
            if variable(&format!("OTEL_EXPORTER_OTLP_{name}")).is_some() {
                return Err(wrong(&format!("OTEL_EXPORTER_OTLP_{name}"), why));
            }
        }
        let milliseconds = |name: &str, default: u64| match variable(name) {
            None => Ok(Duration::from_millis(default)),
            Some(text) => match text.trim().parse() {
                Ok(ms @ 1..) => Ok(Duration::from_millis(ms)),
                Ok(_) | Err(_) => Err(wrong(
                    name,
                    format!("invalid time `{}`: expected milliseconds", clean(&text)),
                )),
            },
        };
        Ok(Self {
            traces: of("TRACES")?,
            metrics: of("METRICS")?,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)?,
            certificates: variable("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from),
            interval: milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
            resource: Resource { attributes: resource(variable)? },
            generation: Generation::from_opt_in(
                variable("OTEL_SEMCONV_STABILITY_OPT_IN").as_deref(),
            ),
        })
    }
}

/// Reads where one kind of data is sent; `None` if it is switched off.
fn signal_of(
    signal: &'static str,
    place: &str,
    token: Option<&String>,
    variable: Variable<'_>,
) -> Result<Option<Signal>, Error> {
    let own = |name: &str| {
        let special = format!("OTEL_EXPORTER_OTLP_{signal}_{name}");
        let general = format!("OTEL_EXPORTER_OTLP_{name}");
        variable(&special)
            .map(|text| (special, text))
            .or_else(|| variable(&general).map(|text| (general, text)))
    };
    match variable(&format!("OTEL_{signal}_EXPORTER")).as_deref() {
        Some("none") => return Ok(None),
        Some("otlp") | None => {}
        Some(other) => {
            let message = format!("unsupported exporter `{}`: expected otlp or none", clean(other));
            return Err(wrong(&format!("OTEL_{signal}_EXPORTER"), message));
        }
    }
    if let Some((name, text)) = own("PROTOCOL").filter(|(_, text)| text.trim() != "http/protobuf") {
        let message = format!("unsupported protocol `{}`: expected http/protobuf", clean(&text));
        return Err(wrong(&name, message));
    }
    let gzip = match own("COMPRESSION") {
        None => false,
        Some((_, text)) if text.trim() == "gzip" => true,
        Some((_, text)) if text.trim() == "none" => false,
        Some((name, text)) => {
            let message =
                format!("unsupported compression `{}`: expected gzip or none", clean(&text));
            return Err(wrong(&name, message));
        }
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/x-protobuf"));
    if gzip {
        headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    }
    if let Some((name, list)) = own("HEADERS") {
        for (key, value) in pairs(&name, &list)? {
            headers.extend([header(&name, &key, &value)?]);
        }
    }
    if let Some(token) = token {
        let bearer = Zeroizing::new(format!("Bearer {}", token.trim()));
        headers.extend([header("token", "authorization", &bearer)?]);
    }
    let secret = headers.len() > 1 + usize::from(gzip);
    let path = format!("v1/{}", signal.to_ascii_lowercase());
    let special = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
    let url = match (place, variable(&special)) {
        // The address of one kind of data is used as it is.
        ("", Some(whole)) => endpoint(&special, &whole, secret)?,
        ("", None) => {
            let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
            let base = variable(name).unwrap_or_else(|| "http://localhost:4318".to_owned());
            endpoint(name, &format!("{}/{path}", base.trim_end_matches('/')), secret)?
        }
        (base, _) => endpoint("url", &format!("{}/{path}", base.trim_end_matches('/')), secret)?,
    };
    Ok(Some(Signal { url, headers, gzip }))
}

/// Reads `key=value,…`. Values are percent-encoded.
fn pairs(name: &str, list: &str) -> Result<Vec<(String, String)>, Error> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        Some((key.trim().to_owned(), percent_decoded(value.trim())?))
    };
    // The value may be a secret, and is not shown.
    let invalid = || wrong(name, "invalid list: expected key=value, with commas between");
    parts.map(|part| pair(part).ok_or_else(invalid)).collect()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let number = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(number).ok()?);
    }
    String::from_utf8(bytes).ok()
}

fn resource(variable: Variable<'_>) -> Result<Vec<KeyValue>, Error> {
    let name = "OTEL_RESOURCE_ATTRIBUTES";
    let mut all = pairs(name, &variable(name).unwrap_or_default())?;
    let named = variable("OTEL_SERVICE_NAME");
    if let Some(service) =
        named.or_else(|| all.iter().all(|(key, _)| key != SERVICE).then(|| "endstop".to_owned()))
    {
        all.retain(|(key, _)| key != SERVICE);
        all.push((SERVICE.to_owned(), service));
    }
    all.push(("telemetry.sdk.name".to_owned(), "endstop".to_owned()));
    all.push(("telemetry.sdk.language".to_owned(), "rust".to_owned()));
    all.push(("telemetry.sdk.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    Ok(all.into_iter().map(|(key, value)| attribute(&clean(&key), text(&clean(&value)))).collect())
}

const SERVICE: &str = "service.name";

fn clean(text: &str) -> String {
    endstop::text::clean(text, endstop::text::WORD_CAP)
}

/// Sends records as spans, and counters as metrics.
#[derive(Debug)]
pub struct Otlp {
    options: Options,
    http: Http,
    counted: Option<Arc<Metrics>>,
    patience: Patience,
    next_metrics: Instant,
}

impl Otlp {
    /// Creates an exporter. `counted` is sent as metrics.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn new(options: Options, counted: Option<Arc<Metrics>>) -> Result<Self, Error> {
        let http = Http::new(options.timeout, options.certificates.as_deref())?;
        let patience = Patience::default();
        Ok(Self { options, http, counted, patience, next_metrics: Instant::now() })
    }

    fn post(&self, signal: &Signal, body: Vec<u8>) -> Result<Reply, Error> {
        let unavailable =
            |why: String| Error::Unavailable { exporter: name(signal), why, wait: None };
        let body = if signal.gzip { gzip(&body).map_err(unavailable)? } else { body };
        self.http.post(&signal.url, &signal.headers, body).map_err(unavailable)
    }

    fn send_spans(
        &self,
        signal: &Signal,
        spans: &[(usize, Span)],
        refused: &mut Vec<(usize, String)>,
    ) -> Result<(), Error> {
        let request = TracesRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.options.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope()),
                    spans: spans.iter().map(|(_, span)| span.clone()).collect(),
                }],
            }],
        };
        let reply = self.post(signal, request.encode_to_vec())?;
        match reply.status {
            200..300 => {
                if let Some(why) = rejected(&reply, "spans", spans.len()) {
                    refused.extend(spans.iter().map(|(place, _)| (*place, why.clone())));
                }
                Ok(())
            }
            // Nothing of the request was taken.
            400 | 413 | 422 if spans.len() > 1 => {
                let (one, other) = spans.split_at(spans.len() / 2);
                self.send_spans(signal, one, refused)?;
                self.send_spans(signal, other, refused)
            }
            400 | 413 | 422 => {
                refused.extend(
                    spans.iter().map(|(place, _)| (*place, format!("HTTP {}", reply.status))),
                );
                Ok(())
            }
            _ => Err(error(signal, &reply)),
        }
    }

    fn send_metrics(&self, signal: &Signal, counted: &Metrics) -> Result<(), Error> {
        let metrics = points::metrics(counted, self.options.generation);
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics }];
        let resource = Some(self.options.resource.clone());
        let request =
            MetricsRequest { resource_metrics: vec![ResourceMetrics { resource, scope_metrics }] };
        let reply = self.post(signal, request.encode_to_vec())?;
        let rejected =
            (200..300).contains(&reply.status).then(|| rejected(&reply, "data points", 0));
        match rejected {
            Some(None) => Ok(()),
            Some(Some(why)) => Err(Error::Refused { exporter: name(signal), why }),
            None => Err(error(signal, &reply)),
        }
    }
}

impl Exporter for Otlp {
    fn send(&mut self, records: &[Noted<'_>]) -> Result<Vec<(usize, String)>, Error> {
        let Some(signal) = &self.options.traces else { return Ok(Vec::new()) };
        self.patience.check(&name(signal))?;
        let generation = self.options.generation;
        let spans: Vec<(usize, Span)> = newest(records)
            .into_iter()
            .map(|(place, noted)| (place, span::span(noted, generation)))
            .collect();
        let mut refused = Vec::new();
        for batch in spans.chunks(MOST_SPANS) {
            let sent = self.send_spans(signal, batch, &mut refused);
            sent.inspect_err(|error| self.patience.note(error))?;
        }
        Ok(refused)
    }

    fn tend(&mut self) -> Result<(), Error> {
        let (Some(signal), Some(counted)) = (&self.options.metrics, &self.counted) else {
            return Ok(());
        };
        if Instant::now() < self.next_metrics {
            return Ok(());
        }
        // A failed attempt is not repeated at once: the next one says the same and more.
        self.next_metrics = Instant::now() + self.options.interval;
        self.send_metrics(signal, counted)
    }
}

fn scope() -> Scope {
    Scope { name: "endstop".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

fn name(signal: &Signal) -> String {
    format!("otlp ({})", shown(signal.url.as_str()))
}

fn error(signal: &Signal, reply: &Reply) -> Error {
    let (exporter, why) = (name(signal), format!("HTTP {}", reply.status));
    let advice = match reply.status {
        408 | 429 | 500.. => return Error::Unavailable { exporter, why, wait: reply.wait },
        401 | 403 => "check the token, or OTEL_EXPORTER_OTLP_HEADERS",
        404 => {
            "check the address; OTEL_TRACES_EXPORTER=none or OTEL_METRICS_EXPORTER=none switches off what the \
             endpoint does not take"
        }
        _ => "check the address",
    };
    Error::Refused { exporter, why: format!("{why}; {advice}") }
}

/// Returns what an endpoint says about the part that it rejected, if there is one.
fn rejected(reply: &Reply, what: &str, sent: usize) -> Option<String> {
    let partial = ExportResponse::decode(&*reply.body).ok()?.partial_success?;
    let of = if sent > 0 { format!(" of {sent}") } else { String::new() };
    (partial.rejected > 0).then(|| {
        format!("{}{of} {what} were rejected: {}", partial.rejected, clean(&partial.error_message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(place: &str, variables: &[(&str, &str)]) -> Result<Options, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Options::read(place, None, &variable).map_err(|error| error.to_string())
    }

    fn urls(options: &Options) -> [Option<&str>; 2] {
        [&options.traces, &options.metrics]
            .map(|signal| signal.as_ref().map(|signal| signal.url.as_str()))
    }

    #[test]
    fn addresses_come_from_the_standard_variables() {
        let options = read("", &[]).unwrap();
        assert_eq!(
            urls(&options),
            [Some("http://localhost:4318/v1/traces"), Some("http://localhost:4318/v1/metrics")]
        );
        let options = read(
            "",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://otel.example/base/"),
                ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://other.example/exactly"),
            ],
        );
        let options = options.unwrap();
        assert_eq!(
            urls(&options),
            [Some("https://otel.example/base/v1/traces"), Some("https://other.example/exactly")]
        );
        let options = read("https://mine.example", &[("OTEL_METRICS_EXPORTER", "none")]).unwrap();
        assert_eq!(urls(&options), [Some("https://mine.example/v1/traces"), None]);
    }

    #[test]
    fn headers_and_attributes_are_decoded() {
        let options = read(
            "",
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, x-other=c"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,deployment.environment.name=prod"),
            ],
        );
        let options = options.unwrap();
        let traces = options.traces.as_ref().unwrap();
        assert_eq!((traces.headers["x-key"].to_str().unwrap(), traces.gzip), ("a b", true));
        let keys: Vec<&str> = options.resource.attributes.iter().map(|pair| &*pair.key).collect();
        assert_eq!(keys[..2], ["service.name", "deployment.environment.name"]);
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not_shown() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secretkey"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secretkey%0a"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key.pem"),
        ] {
            let error = read("", &[(name, value)]).unwrap_err();
            assert!(error.starts_with(name), "{error}");
            assert!(!error.contains("secretkey"), "{error}");
        }
        let shown = read(
            "",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel.example"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secretkey"),
            ],
        );
        let error = shown.unwrap_err();
        assert!(error.contains("use https") && !error.contains("secretkey"), "{error}");
    }
}
