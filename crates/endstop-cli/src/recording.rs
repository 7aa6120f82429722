//! Recorded traffic: JSON lines, VCR cassettes and HAR.
//!
//! An invalid field, record or file never stops a run. Input that cannot be read is passed on as
//! [`Unread`], with the reason.

mod har;
mod jsonl;
mod vcr;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::Purpose;
use endstop::registry::{Clues, Registry};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use serde_json::Value;

/// Maximum size of a recording file that is read whole.
const MAX_FILE: u64 = 256 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Recorded response, and the known parts of its request.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) id: String,
    pub(crate) provider: String,
    pub(crate) dialect: String,
    pub(crate) host: String,
    pub(crate) path: String,
    /// Request headers that name an API version.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) model: Option<String>,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) streamed: Option<bool>,
    pub(crate) cap: Option<u64>,
    /// Body of the request; empty if it was not recorded.
    pub(crate) request: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Fields that were ignored because their values are invalid.
    pub(crate) odd: Vec<String>,
}

/// Input that could not be read, and the reason.
#[derive(Debug)]
pub(crate) struct Unread {
    /// File, or record in the file.
    pub(crate) id: String,
    pub(crate) why: String,
    pub(crate) scope: Scope,
}

/// Extent of the input that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One record, or the rest of a file.
    Record,
    /// A whole file, which does not contain recordings.
    File,
    /// A request that does not ask a model.
    Request,
}

impl Unread {
    fn record(id: impl Into<String>, why: impl Into<String>) -> Self {
        Self { id: id.into(), why: why.into(), scope: Scope::Record }
    }

    fn request(id: impl Into<String>) -> Self {
        let why = "the request does not ask a model".to_owned();
        Self { id: id.into(), why, scope: Scope::Request }
    }

    fn file(id: impl Into<String>, why: impl Into<String>) -> Self {
        Self { id: id.into(), why: why.into(), scope: Scope::File }
    }
}

/// Recorded response, or the reason why it could not be read.
pub(crate) type ReadOne = Result<Recording, Unread>;

/// Reports whether a recorded request asks a model, or polls an answer. Recorders of browsers and
/// proxies keep everything else, too.
fn asks_a_model(registry: &Registry, method: &str, url: &str, body: &str) -> bool {
    let (host, path) = crate::response::split_url(url);
    let clues = Clues { host, path, ..Clues::default() };
    let host = registry.choose(&clues);
    let wire = registry.serving(&Clues { provider: host.provider(), ..clues });
    let profile = wire.map(|wire| wire.profile);
    let profile = profile.or_else(|| endstop::provider::by_path(path).copied());
    match profile.and_then(|profile| profile.purpose(method, path)) {
        Some(Purpose::Ask | Purpose::Poll) => true,
        Some(Purpose::Manage) => false,
        // A host that nobody knows.
        None => {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            method == "POST" && body.get("model").is_some()
        }
    }
}

/// Passes every recording in a file to `on`, and everything that could not be read. Advances
/// `progress` by the bytes read. Fails only if `on` fails.
pub(crate) fn each(
    file: &Path,
    registry: &Registry,
    progress: &indicatif::ProgressBar,
    mut on: impl FnMut(ReadOne) -> Result<()>,
) -> Result<()> {
    let name = file.to_string_lossy();
    let plain: &str = name.strip_suffix(".gz").unwrap_or(&name);
    let input = match File::open(file) {
        Ok(input) => progress.wrap_read(input),
        Err(error) => return on(Err(Unread::record(name, format!("cannot open it: {error}")))),
    };
    let input: Box<dyn Read> = if plain.len() < name.len() {
        Box::new(MultiGzDecoder::new(input))
    } else {
        Box::new(input)
    };
    let mut input = BufReader::new(input);
    if plain.ends_with(".jsonl") || plain.ends_with(".ndjson") {
        return jsonl::each(&mut input, &name, on);
    }
    match read_whole(&mut input, plain, &name) {
        Ok(Whole::Har(har)) => har::each(&har, registry, &name, on),
        Ok(Whole::Cassette(cassette)) => vcr::each(&cassette, &name, on),
        Err(unread) => on(Err(unread)),
    }
}

/// File that is read whole.
enum Whole {
    Har(Value),
    Cassette(Value),
}

fn read_whole(input: &mut impl Read, plain: &str, name: &str) -> Result<Whole, Unread> {
    if plain.ends_with(".yaml") || plain.ends_with(".yml") {
        return vcr::from_yaml(&read_all(input, name)?, name).map(Whole::Cassette);
    }
    if !plain.ends_with(".har") && !plain.ends_with(".json") {
        let why = "not a recording: expected .jsonl, .yaml, .yml, .json or .har, with or without \
                   .gz; use `endstop check` for a single response";
        return Err(Unread::file(name, why));
    }
    let text = read_all(input, name)?;
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        let why = format!("not JSON ({error}); use `endstop check` for a single response");
        Unread::record(name, why)
    })?;
    Ok(if value.get("log").is_some() { Whole::Har(value) } else { Whole::Cassette(value) })
}

fn read_all(input: &mut impl Read, name: &str) -> Result<String, Unread> {
    let mut bytes = Vec::new();
    let read = input.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| Unread::record(name, unreadable(&error)))?;
    if bytes.len() as u64 > MAX_FILE {
        let why = "larger than 256 MiB: split it or convert it to JSON lines";
        return Err(Unread::record(name, why));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    // Invalid UTF-8 is replaced, so that one byte does not lose the whole file.
    let text = String::from_utf8(bytes);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Returns why reading a file stopped.
fn unreadable(error: &std::io::Error) -> String {
    if is_bad_gzip(error) {
        return "cannot read the rest: the gzip data is truncated or corrupt".to_owned();
    }
    format!("cannot read the rest: {error}")
}

/// Reports whether this error means that gzip data is truncated or corrupt.
pub(crate) fn is_bad_gzip(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | InvalidInput | InvalidData)
}

fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let packed: String = text.split_whitespace().collect();
    STANDARD.decode(packed).map_err(|error| format!("the body is not base64: {error}"))
}

/// Decompresses a body that was recorded in its content encoding. Of truncated data, returns the
/// part that can be decompressed.
fn decompress(body: Vec<u8>, encoding: &str) -> Result<Vec<u8>, String> {
    let encoding = encoding.trim().to_ascii_lowercase();
    let mut plain = Vec::new();
    let most = MAX_FILE;
    let done = match encoding.as_str() {
        "gzip" | "x-gzip" if body.starts_with(b"\x1f\x8b") => {
            MultiGzDecoder::new(body.as_slice()).take(most).read_to_end(&mut plain)
        }
        "deflate" => ZlibDecoder::new(body.as_slice()).take(most).read_to_end(&mut plain),
        _ => Err(std::io::ErrorKind::Unsupported.into()),
    };
    // Some recorders decode the body but keep its `content-encoding` header.
    let decoded = || std::str::from_utf8(&body).is_ok();
    match done {
        Ok(_) => Ok(plain),
        Err(_) if !plain.is_empty() => Ok(plain),
        Err(_) if encoding.is_empty() || encoding == "identity" || decoded() => Ok(body),
        Err(_) => Err(format!("the body cannot be decompressed ({encoding})")),
    }
}

fn set_url(recording: &mut Recording, url: &str) {
    let (host, path) = crate::response::split_url(url);
    recording.host = host.to_owned();
    recording.path = path.to_owned();
}

/// Returns the request headers that name an API version.
fn version_headers(request: &Value) -> Vec<(String, String)> {
    let wires = endstop::provider::ALL.iter().flat_map(|provider| provider.wires());
    let mut found: Vec<(String, String)> = Vec::new();
    for version in wires.flat_map(|wire| wire.versions) {
        if let endstop::provider::VersionAt::Header(name) = version.at
            && !found.iter().any(|(known, _)| known == name)
        {
            found.extend(find_header(request, name).map(|value| (name.to_owned(), value)));
        }
    }
    found
}

/// Finds a header in an object of strings or lists, or in a list of pairs.
fn find_header(message: &Value, name: &str) -> Option<String> {
    let headers = message.get("headers").or_else(|| message.get("header"))?;
    let text = |value: &Value| match value {
        Value::Array(list) => list.first().and_then(Value::as_str).map(str::to_owned),
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    match headers {
        Value::Object(object) => object
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .and_then(|(_, value)| text(value)),
        Value::Array(list) => list.iter().find_map(|pair| {
            let key = pair.get("name").and_then(Value::as_str)?;
            key.eq_ignore_ascii_case(name).then(|| pair.get("value").and_then(text))?
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Parses a status from a number or the start of a string. Returns `None` if it is invalid.
fn read_status(value: &Value) -> Option<u16> {
    let status = match value {
        Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        Value::String(line) => line.split(' ').next().and_then(|code| code.parse().ok()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    status.filter(|status| (100..600).contains(status))
}
