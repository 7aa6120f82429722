//! Axiom: endings as events of a dataset.
//!
//! Events are lines of JSON with flat fields, compressed. A batch that Axiom refuses as a whole is divided, until the
//! event is found that it does not take. Events that became known better come again, with the same `id` and a
//! higher `sequence`.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::error::{Error, wrong};
use crate::exporter::{Exporter, Noted, Patience, TIMEOUT, newest};
use crate::http::{Http, Reply, endpoint, gzip, header, shown};

/// The dataset, unless another one is named.
pub const DATASET: &str = "gateway-requests";
/// Most events of a request.
pub const MOST_EVENTS: usize = 10_000;
/// Largest event, in bytes.
pub const MOST_EVENT_BYTES: usize = 1 << 20;
/// Bytes of a request before compression, after which another one begins.
const REQUEST_BYTES: usize = 4 << 20;
/// The address, unless another one is named.
const BASE: &str = "https://api.axiom.co";

/// Sends records to Axiom.
#[derive(Debug)]
pub struct Axiom {
    http: Http,
    url: Url,
    headers: HeaderMap,
    name: String,
    patience: Patience,
}

/// A line, and the place of its record.
struct Line {
    place: usize,
    time: String,
    text: Vec<u8>,
}

/// The answer of Axiom to events that it read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ingested {
    failed: u64,
    failures: Vec<Failure>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Failure {
    timestamp: String,
    error: String,
}

impl Axiom {
    /// Reads the settings: a dataset or the address of one, the token, and variables of the environment for what is
    /// missing.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn new(
        place: &str,
        token: Option<Zeroizing<String>>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let token = token.or_else(|| variable("AXIOM_TOKEN").map(Zeroizing::new));
        let token = token.ok_or_else(|| {
            wrong("token", "an Axiom token is missing: set token_env or token_file, or the variable AXIOM_TOKEN")
        })?;
        let (base, dataset) = match place.contains("://") {
            true => split(place),
            false => (variable("AXIOM_URL").unwrap_or_else(|| BASE.to_owned()), place.to_owned()),
        };
        let named = if dataset.is_empty() { variable("AXIOM_DATASET") } else { Some(dataset) };
        let dataset = named.unwrap_or_else(|| DATASET.to_owned());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !dataset.bytes().all(allowed) || dataset.len() > 128 || dataset.contains("..") {
            return Err(wrong(
                "url",
                "invalid dataset: only letters, digits, `-`, `_` and `.` are allowed",
            ));
        }
        let base = endpoint("url", base.trim_end_matches('/'), true)?;
        let is_edge = base.host_str().is_some_and(|host| host.contains(".edge."));
        let path = match is_edge {
            true => format!("/v1/ingest/{dataset}"),
            false => format!("/v1/datasets/{dataset}/ingest"),
        };
        let mut url = base;
        url.set_path(&path);
        let headers = headers(&token, is_edge, variable)?;
        let name = format!("axiom ({})", shown(url.as_str()));
        let http = Http::new(TIMEOUT, None)?;
        Ok(Self { http, url, headers, name, patience: Patience::default() })
    }

    /// Sends lines. Those that Axiom does not take are added to `refused`.
    fn send_lines(&self, lines: &[Line], refused: &mut Vec<(usize, String)>) -> Result<(), Error> {
        let Some(first) = lines.first() else { return Ok(()) };
        let body: Vec<u8> = lines.iter().flat_map(|line| line.text.iter().copied()).collect();
        let unavailable =
            |why: String| Error::Unavailable { exporter: self.name.clone(), why, wait: None };
        let body = gzip(&body).map_err(unavailable)?;
        let reply = self.http.post(&self.url, &self.headers, body).map_err(unavailable)?;
        match reply.status {
            200..300 => {
                refused.extend(failures(&reply, lines));
                Ok(())
            }
            // Nothing of the batch was taken.
            400 | 413 | 422 if lines.len() > 1 => {
                let (one, other) = lines.split_at(lines.len() / 2);
                self.send_lines(one, refused)?;
                self.send_lines(other, refused)
            }
            400 | 413 | 422 => {
                refused.push((first.place, said(&reply)));
                Ok(())
            }
            _ => Err(self.error(&reply)),
        }
    }

    fn error(&self, reply: &Reply) -> Error {
        let (exporter, why) = (self.name.clone(), said(reply));
        let advice = match reply.status {
            429 | 500.. | 408 => {
                return Error::Unavailable { exporter, why, wait: reply.wait };
            }
            401 | 403 => "check the token, and that it may ingest into this dataset",
            404 => "check the address and the name of the dataset",
            _ => "check the address",
        };
        Error::Refused { exporter, why: format!("{why}; {advice}") }
    }
}

impl Exporter for Axiom {
    fn send(&mut self, records: &[Noted<'_>]) -> Result<Vec<(usize, String)>, Error> {
        self.patience.check(&self.name)?;
        let mut refused = Vec::new();
        let mut lines: Vec<Line> = Vec::new();
        for (place, noted) in newest(records) {
            let line = line(place, noted);
            if line.text.len() > MOST_EVENT_BYTES {
                refused.push((place, "the event is larger than 1 MiB".to_owned()));
            } else {
                lines.push(line);
            }
        }
        for batch in batches(&lines) {
            let sent = self.send_lines(batch, &mut refused);
            sent.inspect_err(|error| self.patience.note(error))?;
        }
        Ok(refused)
    }
}

fn headers(
    token: &str,
    is_edge: bool,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let bearer = Zeroizing::new(format!("Bearer {}", token.trim()));
    headers.extend([header("token", "authorization", &bearer)?]);
    headers.insert("content-type", HeaderValue::from_static("application/x-ndjson"));
    headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    let is_personal = token.trim().starts_with("xapt-");
    match variable("AXIOM_ORG_ID") {
        _ if is_personal && is_edge => {
            return Err(wrong(
                "token",
                "edge addresses do not take personal tokens (xapt-): use an API token (xaat-)",
            ));
        }
        None if is_personal => {
            return Err(wrong(
                "token",
                "a personal token (xapt-) needs the variable AXIOM_ORG_ID; or use an API token (xaat-)",
            ));
        }
        Some(org) if is_personal => {
            headers.extend([header("AXIOM_ORG_ID", "x-axiom-org-id", org.trim())?]);
        }
        Some(_) | None => {}
    }
    Ok(headers)
}

/// Divides `https://HOST/DATASET`.
fn split(place: &str) -> (String, String) {
    let (scheme, rest) = place.split_once("://").unwrap_or(("https", place));
    let (host, dataset) = rest.split_once('/').unwrap_or((rest, ""));
    (format!("{scheme}://{host}"), dataset.trim_end_matches('/').to_owned())
}

fn batches(lines: &[Line]) -> Vec<&[Line]> {
    let mut all = Vec::new();
    let mut rest = lines;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(MOST_EVENTS).take_while(|line| {
            bytes += line.text.len();
            bytes <= REQUEST_BYTES
        });
        let (batch, after) = rest.split_at(fits.count().max(1));
        all.push(batch);
        rest = after;
    }
    all
}

/// Makes the event of a record: its fields, flat, with the time, the number of the note and a sentence.
fn line(place: usize, noted: &Noted<'_>) -> Line {
    let record = noted.record;
    let time = time(record.created_at);
    let mut fields = match serde_json::to_value(record) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    fields.insert("_time".to_owned(), json!(time));
    fields.insert("shown".to_owned(), json!(record.shown.join(",")));
    fields.insert("sentence".to_owned(), json!(record.sentence()));
    fields.insert("sequence".to_owned(), json!(noted.sequence));
    let mut text = Value::Object(fields).to_string().into_bytes();
    text.push(b'\n');
    Line { place, time, text }
}

/// Returns a time in the form of RFC 3339.
fn time(milliseconds: u64) -> String {
    let time = i64::try_from(milliseconds).ok().map(jiff::Timestamp::from_millisecond);
    time.and_then(Result::ok).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// Returns the events that failed. Axiom names them by their times; if it does not name all of them, any may be one.
fn failures(reply: &Reply, lines: &[Line]) -> Vec<(usize, String)> {
    let Ok(ingested) = serde_json::from_slice::<Ingested>(&reply.body) else { return Vec::new() };
    if ingested.failed == 0 {
        return Vec::new();
    }
    let why = |failure: &Failure| {
        format!("the event failed: {}", endstop::text::clean(&failure.error, 200))
    };
    let same = |line: &Line, failure: &Failure| {
        let parse = |text: &str| text.parse::<jiff::Timestamp>().ok();
        parse(&line.time).is_some() && parse(&line.time) == parse(&failure.timestamp)
    };
    let named: Vec<(usize, String)> = lines
        .iter()
        .filter_map(|line| {
            let failure = ingested.failures.iter().find(|failure| same(line, failure))?;
            Some((line.place, why(failure)))
        })
        .collect();
    if named.len() as u64 >= ingested.failed {
        return named;
    }
    let all = format!("{} of {} events of its batch failed", ingested.failed, lines.len());
    lines.iter().map(|line| (line.place, all.clone())).collect()
}

/// Returns the message of an answer.
fn said(reply: &Reply) -> String {
    let json: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let message = json.get("message").or_else(|| json.get("error")).and_then(Value::as_str);
    let wait = |wait: Duration| format!(", asks to wait {} s", wait.as_secs());
    let wait = reply.wait.map(wait).unwrap_or_default();
    match message {
        Some(message) => {
            format!("HTTP {} ({}){wait}", reply.status, endstop::text::clean(message, 200))
        }
        None => format!("HTTP {}{wait}", reply.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Record;

    fn made(place: &str, token: &str, org: Option<&str>) -> Result<String, String> {
        let token = Some(Zeroizing::new(token.to_owned()));
        let org = org.map(str::to_owned);
        let variable = |name: &str| org.clone().filter(|_| name == "AXIOM_ORG_ID");
        let axiom = Axiom::new(place, token, &variable).map_err(|error| error.to_string())?;
        Ok(axiom.url.to_string())
    }

    #[test]
    fn addresses_name_a_dataset() {
        let token = "xaat-1";
        for (place, url) in [
            ("", "https://api.axiom.co/v1/datasets/gateway-requests/ingest"),
            ("llm", "https://api.axiom.co/v1/datasets/llm/ingest"),
            ("https://api.eu.axiom.co/llm", "https://api.eu.axiom.co/v1/datasets/llm/ingest"),
            (
                "https://eu-central-1.aws.edge.axiom.co",
                "https://eu-central-1.aws.edge.axiom.co/v1/ingest/gateway-requests",
            ),
        ] {
            assert_eq!(made(place, token, None).as_deref(), Ok(url));
        }
        for place in ["a b", "../x", "http://api.axiom.co", "https://u:p@api.axiom.co/x"] {
            made(place, token, None).unwrap_err();
        }
    }

    #[test]
    fn a_personal_token_needs_its_organisation() {
        assert!(made("", "xapt-1", None).unwrap_err().contains("AXIOM_ORG_ID"));
        made("", "xapt-1", Some("org")).unwrap();
        assert!(
            made("https://a.edge.axiom.co/x", "xapt-1", Some("org")).unwrap_err().contains("xaat-")
        );
        let error = made("", "xaat-\n1\u{7f}", None).unwrap_err();
        assert!(
            error.contains("characters that are not allowed") && !error.contains("xaat"),
            "{error}"
        );
        let missing = Axiom::new("", None, &|_| None).unwrap_err().to_string();
        assert!(missing.contains("AXIOM_TOKEN"), "{missing}");
    }

    #[test]
    fn events_are_flat_and_always_have_both_finish_reasons() {
        let record = Record { shown: vec!["empty".into(), "at_cap".into()], ..Record::default() };
        let line = line(0, &Noted { record: &record, sequence: 2 });
        let event: Map<String, Value> = serde_json::from_slice(&line.text).unwrap();
        assert!(event.values().all(|value| !value.is_object() && !value.is_array()), "{event:?}");
        assert_eq!(
            (event.get("finish_reason"), event.get("native_finish_reason")),
            (Some(&Value::Null), Some(&Value::Null))
        );
        assert_eq!(event["shown"], "empty,at_cap");
        assert_eq!(event["_time"], "1970-01-01T00:00:00Z");
        assert!(event.keys().all(|name| name.len() <= 200) && event.len() < 200);
    }

    #[test]
    fn batches_keep_the_limits() {
        let line = |bytes: usize| Line { place: 0, time: String::new(), text: vec![0; bytes] };
        let small: Vec<Line> = (0..25_000).map(|_| line(1)).collect();
        let sizes: Vec<usize> = batches(&small).iter().map(|batch| batch.len()).collect();
        assert_eq!(sizes, [10_000, 10_000, 5_000]);
        let large: Vec<Line> = (0..10).map(|_| line(MOST_EVENT_BYTES)).collect();
        let sizes: Vec<usize> = batches(&large).iter().map(|batch| batch.len()).collect();
        assert_eq!(sizes, [4, 4, 2]);
    }

    #[test]
    fn failures_are_found_by_their_times() {
        let line =
            |place: usize, time: &str| Line { place, time: time.to_owned(), text: Vec::new() };
        let lines = [line(0, "2026-01-01T00:00:00Z"), line(1, "2026-01-01T00:00:00.5Z")];
        let reply = |body: &str| Reply { status: 200, wait: None, body: body.as_bytes().to_vec() };
        assert!(failures(&reply(r#"{"ingested":2,"failed":0,"failures":[]}"#), &lines).is_empty());
        let one =
            r#"{"failed":1,"failures":[{"timestamp":"2026-01-01T00:00:00.500Z","error":"odd"}]}"#;
        let found = failures(&reply(one), &lines);
        assert!(found.len() == 1 && found[0].0 == 1 && found[0].1.contains("odd"), "{found:?}");
        // Without names, none is taken for sent.
        assert_eq!(failures(&reply(r#"{"failed":1}"#), &lines).len(), 2);
    }
}
