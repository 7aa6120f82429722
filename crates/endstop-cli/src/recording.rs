//! Recorded traffic, in the forms that people have it: JSON lines, VCR cassettes, HAR.

mod har;
mod jsonl;
mod vcr;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use serde_json::Value;

/// The largest recording file that is read whole.
const MAX_FILE: u64 = 256 << 20;
/// The longest line of JSON lines.
const MAX_LINE: u64 = 64 << 20;

/// One recorded response, and what is known of its request.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) id: String,
    pub(crate) provider: String,
    pub(crate) dialect: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) model: Option<String>,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) streamed: Option<bool>,
    pub(crate) cap: Option<u64>,
    pub(crate) choices: Option<u32>,
    pub(crate) body: Vec<u8>,
}

/// Hands over every recording in a file. `progress` is told the bytes of the file as they are read.
pub(crate) fn each(
    file: &Path,
    progress: &indicatif::ProgressBar,
    mut on: impl FnMut(Recording) -> Result<()>,
) -> Result<()> {
    let input = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let name = file.to_string_lossy();
    let plain: &str = name.strip_suffix(".gz").unwrap_or(&name);
    let input = progress.wrap_read(input);
    let input: Box<dyn Read> = if plain.len() < name.len() {
        Box::new(MultiGzDecoder::new(input))
    } else {
        Box::new(input)
    };
    let mut input = BufReader::new(input);
    if plain.ends_with(".jsonl") || plain.ends_with(".ndjson") {
        return jsonl::each(&mut input, &name, on);
    }
    let text = read_all(&mut input, &name)?;
    let recordings = if plain.ends_with(".yaml") || plain.ends_with(".yml") {
        vcr::from_yaml(&text, &name)?
    } else if plain.ends_with(".har") || plain.ends_with(".json") {
        let value: Value = serde_json::from_str(&text).with_context(|| {
            format!("{name} is no JSON; is it a single response? try `endstop check`")
        })?;
        if value.get("log").is_some() {
            har::from_value(&value, &name)?
        } else {
            vcr::from_value(&value, &name)?
        }
    } else {
        bail!(
            "{name}: recordings end in .jsonl, .yaml, .yml, .json or .har, with or without .gz; for a single response there is `endstop check`"
        );
    };
    recordings.into_iter().try_for_each(&mut on)
}

fn read_all(input: &mut impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    input
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_FILE {
        bail!("{name} is larger than 256 MiB: split it, or turn it into JSON lines");
    }
    String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8 text"))
}

/// Reads a line of bounded length. False at the end.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    input.take(MAX_LINE).read_until(b'\n', line)?;
    Ok(!line.is_empty())
}

/// The body as it was sent, if it was recorded as it came over the wire.
fn decompress(body: Vec<u8>, encoding: &str) -> Vec<u8> {
    let mut plain = Vec::new();
    let done = match encoding {
        "gzip" if body.starts_with(b"\x1f\x8b") => {
            MultiGzDecoder::new(body.as_slice()).read_to_end(&mut plain)
        }
        "deflate" => flate2::read::ZlibDecoder::new(body.as_slice()).read_to_end(&mut plain),
        _ => return body,
    };
    if done.is_ok() { plain } else { body }
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
