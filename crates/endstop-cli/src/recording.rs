//! Recorded traffic, in the forms that people have it: JSON lines, VCR cassettes, HAR.
//!
//! One odd field, one odd record or one odd file never stops a run: what cannot be read is handed
//! over as [`Unread`], with the reason.

mod har;
mod jsonl;
mod vcr;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use serde_json::Value;

/// The largest recording file that is read whole.
const MAX_FILE: u64 = 256 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One recorded response, and what is known of its request.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) id: String,
    pub(crate) provider: String,
    pub(crate) dialect: String,
    pub(crate) host: String,
    pub(crate) path: String,
    /// The request's headers that name an API version.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) model: Option<String>,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) streamed: Option<bool>,
    pub(crate) cap: Option<u64>,
    pub(crate) choices: Option<u32>,
    pub(crate) body: Vec<u8>,
    /// Fields that were passed over because their values make no sense.
    pub(crate) odd: Vec<String>,
}

/// What could not be read, and why.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The file, or the record within it.
    pub(crate) id: String,
    pub(crate) why: String,
    pub(crate) scope: Scope,
}

/// How much could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One record, or the rest of a file.
    Record,
    /// A whole file, which holds something else than recordings.
    File,
}

impl Unread {
    fn record(id: impl Into<String>, why: impl Into<String>) -> Self {
        Self { id: id.into(), why: why.into(), scope: Scope::Record }
    }

    fn file(id: impl Into<String>, why: impl Into<String>) -> Self {
        Self { id: id.into(), why: why.into(), scope: Scope::File }
    }
}

/// A recorded response, or why there is none.
pub(crate) type ReadOne = Result<Recording, Unread>;

/// Hands over every recording in a file, and everything that could not be read. `progress` is told
/// the bytes of the file as they are read. Fails only where `on` does.
pub(crate) fn each(
    file: &Path,
    progress: &indicatif::ProgressBar,
    mut on: impl FnMut(ReadOne) -> Result<()>,
) -> Result<()> {
    let name = file.to_string_lossy();
    let plain: &str = name.strip_suffix(".gz").unwrap_or(&name);
    let input = match File::open(file) {
        Ok(input) => progress.wrap_read(input),
        Err(error) => return on(Err(Unread::record(name, format!("cannot be opened: {error}")))),
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
        Ok(Whole::Har(har)) => har::each(&har, &name, on),
        Ok(Whole::Cassette(cassette)) => vcr::each(&cassette, &name, on),
        Err(unread) => on(Err(unread)),
    }
}

/// A file that is read as a whole.
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
                   .gz; for a single response there is `endstop check`";
        return Err(Unread::file(name, why));
    }
    let text = read_all(input, name)?;
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        let why = format!("not JSON ({error}); for a single response there is `endstop check`");
        Unread::record(name, why)
    })?;
    Ok(if value.get("log").is_some() { Whole::Har(value) } else { Whole::Cassette(value) })
}

fn read_all(input: &mut impl Read, name: &str) -> Result<String, Unread> {
    let mut bytes = Vec::new();
    let read = input.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| Unread::record(name, unreadable(&error)))?;
    if bytes.len() as u64 > MAX_FILE {
        let why = "larger than 256 MiB: split it, or turn it into JSON lines";
        return Err(Unread::record(name, why));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    // A byte that is no text costs a letter, not the file.
    let text = String::from_utf8(bytes);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Why a file cannot be read on.
fn unreadable(error: &std::io::Error) -> String {
    if is_bad_gzip(error) {
        return "cannot be read on: the gzip data is truncated or corrupt".to_owned();
    }
    format!("cannot be read on: {error}")
}

/// Whether this is what decompressing says of bytes that are no gzip, or not all of it.
pub(crate) fn is_bad_gzip(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | InvalidInput | InvalidData)
}

fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let packed: String = text.split_whitespace().collect();
    STANDARD.decode(packed).map_err(|error| format!("the body is not base64: {error}"))
}

/// The body as it was sent, if it was recorded as it came over the wire. Of compressed bytes that
/// are cut off it is what they hold.
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
    // Recorders decode bodies and keep the header that says otherwise.
    let decoded = || std::str::from_utf8(&body).is_ok();
    match done {
        Ok(_) => Ok(plain),
        Err(_) if !plain.is_empty() => Ok(plain),
        Err(_) if encoding.is_empty() || encoding == "identity" || decoded() => Ok(body),
        Err(_) => Err(format!("the body cannot be decompressed ({encoding})")),
    }
}

/// What the request's JSON tells: model, stream, cap, choices.
fn read_request(recording: &mut Recording, body: &Value) {
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    recording.model = recording.model.take().or_else(|| text("model"));
    recording.streamed = recording.streamed.or_else(|| body.get("stream").and_then(Value::as_bool));
    recording.choices = body.get("n").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let caps = endstop::dialect::ALL.iter().flat_map(|dialect| dialect.caps);
    let cap = caps.filter_map(|path| {
        path.split('.').try_fold(body, |value, key| value.get(key)).and_then(Value::as_u64)
    });
    recording.cap = recording.cap.or_else(|| { cap }.next());
}

fn set_url(recording: &mut Recording, url: &str) {
    let (host, path) = crate::response::split_url(url);
    recording.host = host.to_owned();
    recording.path = path.to_owned();
}

/// The headers of a request that name the version of some API.
fn version_headers(request: &Value) -> Vec<(String, String)> {
    let wires = endstop::provider::ALL.iter().flat_map(|provider| provider.wires());
    let mut found: Vec<(String, String)> = Vec::new();
    for version in wires.flat_map(|wire| wire.versions) {
        if let endstop::version::VersionAt::Header(name) = version.at
            && !found.iter().any(|(known, _)| known == name)
        {
            found.extend(find_header(request, name).map(|value| (name.to_owned(), value)));
        }
    }
    found
}

/// Headers are an object of texts or lists, or a list of pairs.
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

/// A status, as a number or at the beginning of a text; nothing if it is none.
fn read_status(value: &Value) -> Option<u16> {
    let status = match value {
        Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        Value::String(line) => line.split(' ').next().and_then(|code| code.parse().ok()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    status.filter(|status| (100..600).contains(status))
}
