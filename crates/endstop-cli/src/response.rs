//! Reads one response from a file or a pipe, for `check`, `decide` and `explain`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use endstop::next_request::Content;
use endstop::registry::Clues;
use endstop::{
    Answer, Closed, Collector, Ending, FaultKind, Head, RequestInfo, TransportEnd, Watcher, Wire,
};
use flate2::read::MultiGzDecoder;
use serde_json::value::RawValue;

use crate::recording::is_bad_gzip;
use crate::{exit, number};

/// Number of bytes at the start that are used to detect the wire.
const LOOK: usize = 256 * 1024;
/// First bytes of gzip data.
const GZIP: &[u8] = b"\x1f\x8b";
/// First bytes of other compressed data, and the name of the format.
const COMPRESSED: &[(&[u8], &str)] = &[
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
];

// No doc comment here: clap would show it instead of the subcommand's.
#[derive(clap::Args)]
pub(crate) struct ResponseArgs {
    /// Body of the response, streamed or not, gzipped or not; standard input by default or with `-`
    pub(crate) file: Option<PathBuf>,
    /// Provider of the response; otherwise detected from the body, with medium confidence at most
    #[arg(long, value_name = "ID")]
    pub(crate) provider: Option<String>,
    /// URL of the request; its host and path identify the wire
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Request header that names the API version, such as `anthropic-version`; can be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// HTTP status of the response
    #[arg(long, value_name = "CODE", value_parser = number::status,
          allow_negative_numbers = true)]
    pub(crate) status: Option<u16>,
    /// Content type of the response
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Model of the request
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Output token limit of the request
    #[arg(long, value_name = "N", visible_alias = "cap", value_parser = number::whole::<u64>,
          allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<u64>,
    /// Number of choices in the request
    #[arg(long, value_name = "N", value_parser = number::positive::<u32>,
          allow_negative_numbers = true)]
    pub(crate) choices: Option<u32>,
    /// TOML file with custom providers and finish reasons, or the gateway's configuration
    #[arg(long, value_name = "FILE", env = "ENDSTOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// End of the connection
    #[arg(long, value_enum, default_value_t = CloseArg::Eof)]
    pub(crate) close: CloseArg,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum CloseArg {
    Eof,
    Reset,
    ClientGone,
}

/// Response, with the answer that it carries.
pub(crate) struct Response {
    pub(crate) answer: Answer,
    pub(crate) wire: Wire,
    /// Content as the provider sent it, if the wire accepts it back.
    pub(crate) content: Option<Box<RawValue>>,
}

/// Parts of a response that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Ending,
    Everything,
}

impl ResponseArgs {
    /// Judges the response, without keeping its text.
    pub(crate) fn judge(&self) -> Result<(Ending, Wire)> {
        let mut body = Body::open(self)?;
        let (wire, request) = wire(self, &body.first, b"")?;
        // A watcher keeps no text, so that a plain body can be of any size.
        let mut watcher = Watcher::new(wire.clone(), self.head(), request);
        body.each(|chunk| watcher.watch(chunk))?;
        let ending = watcher.finish(self.close.into());
        reject_non_response(self, Keep::Ending, &ending, &body)?;
        Ok((ending, wire))
    }

    /// Reads the response to this request.
    pub(crate) fn read(&self, request: &[u8]) -> Result<Response> {
        let mut body = Body::open(self)?;
        let (wire, request) = wire(self, &body.first, request)?;
        let head = self.head();
        let mut content = Content::new(&wire.profile, head.content_type);
        let mut collector = Collector::new(wire.clone(), head, request);
        body.each(|chunk| {
            content.push(chunk);
            collector.push(chunk);
        })?;
        let answer = collector.finish(self.close.into());
        reject_non_response(self, Keep::Everything, &answer.ending, &body)?;
        Ok(Response { answer, wire, content: content.finish() })
    }

    /// Path of the request; empty if it is not known.
    pub(crate) fn path(&self) -> &str {
        let (_, path) = split_url(self.url.as_deref().unwrap_or_default());
        path
    }

    fn head(&self) -> Head<'_> {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        Head { status: self.status.unwrap_or(0), content_type }
    }
}

impl From<CloseArg> for TransportEnd {
    fn from(close: CloseArg) -> Self {
        match close {
            CloseArg::Eof => Self::Eof,
            CloseArg::Reset => Self::Reset,
            CloseArg::ClientGone => Self::ClientGone,
        }
    }
}

/// Body of a response, of which the first bytes were read.
struct Body {
    /// Name of the file, for messages.
    name: String,
    first: Vec<u8>,
    rest: Box<dyn Read>,
}

impl Body {
    fn open(args: &ResponseArgs) -> Result<Self> {
        let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
        let name = file.map_or_else(|| "standard input".into(), |file| file.display().to_string());
        let mut rest = open(file)?;
        let mut first = vec![0; LOOK];
        let length = fill(&mut rest, &mut first).map_err(|error| unreadable(&name, error))?;
        first.truncate(length);
        if first.is_empty() && args.status.is_none() {
            bail!(
                "{name} is empty: expected a response body; if the response had none, pass its `--status`"
            );
        }
        Ok(Self { name, first, rest })
    }

    /// Passes every chunk to `read`.
    fn each(&mut self, mut read: impl FnMut(&[u8])) -> Result<()> {
        read(&self.first);
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let length =
                self.rest.read(&mut chunk).map_err(|error| unreadable(&self.name, error))?;
            if length == 0 {
                return Ok(());
            }
            read(chunk.get(..length).unwrap_or_default());
        }
    }
}

/// Returns the wire of the response, and the facts of its request.
fn wire(args: &ResponseArgs, first: &[u8], request: &[u8]) -> Result<(Wire, RequestInfo)> {
    let registry = crate::config::registry(args.config.as_deref())?;
    let known = args.provider.as_deref().unwrap_or_default();
    if !known.is_empty() && !registry.knows(known) {
        let ids: Vec<&str> = registry.ids().collect();
        let meant = endstop::nearest(known, ids.iter().copied());
        let meant = meant.map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
        return Err(exit::invalid(format!(
            "unknown provider `{known}`: expected one of {}{meant}",
            ids.join(", ")
        )));
    }
    let (host, path) = args.url.as_deref().map(parse_url).transpose()?.unwrap_or_default();
    let headers: Vec<(&str, &str)> =
        args.headers.iter().map(|header| parse_header(header)).collect::<Result<_>>()?;
    let clues =
        Clues { provider: known, host, path, headers: &headers, body: first, ..Clues::default() };
    let wire = registry.choose(&clues);
    // The request fills in what the options leave out.
    let read = match request {
        [] => RequestInfo::default(),
        request => RequestInfo::from_request(&wire.profile, path, request),
    };
    let request = RequestInfo {
        model: args.model.clone().or(read.model),
        cap: args.max_tokens.or(read.cap),
        choices: args.choices.or(read.choices),
        // Detected from the bytes.
        streamed: None,
        ..read
    };
    Ok((wire, request))
}

/// Splits the URL of `--url` into host and path.
fn parse_url(url: &str) -> Result<(&str, &str)> {
    let (host, path) = split_url(url);
    let known = ["http://", "https://"];
    let is_http = known.iter().any(|scheme| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    let is_bare = !url.contains("://") && (host.contains('.') || host.starts_with("localhost"));
    let is_odd = |char: char| char.is_whitespace() || char.is_control();
    if host.is_empty() || url.contains(is_odd) || !(is_http || is_bare) {
        return Err(exit::invalid(format!(
            "invalid --url `{url}`: expected an HTTP or HTTPS URL, such as \
             `https://api.openai.com/v1/chat/completions`"
        )));
    }
    Ok((host, path))
}

/// Splits a URL into host and path.
pub(crate) fn split_url(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    }
}

/// Parses one `NAME: VALUE` of `--header`. Errors do not quote the input, which may be a key.
fn parse_header(header: &str) -> Result<(&str, &str)> {
    match header.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim(), value.trim())),
        _ => Err(exit::invalid(
            "invalid --header: expected a name, a colon and a value, such as `anthropic-version: \
             2023-06-01`",
        )),
    }
}

/// Opens the response, and decompresses it if it is gzipped.
fn open(file: Option<&Path>) -> Result<Box<dyn Read>> {
    let input: Box<dyn Read> = match file {
        None => {
            if io::stdin().is_terminal() {
                say!("endstop: reading the response from standard input; end it with Ctrl-D");
            }
            Box::new(io::stdin().lock())
        }
        Some(file) if file.is_dir() => {
            bail!(
                "{} is a directory: expected one response; use `endstop replay` for recordings",
                file.display()
            );
        }
        Some(file) => {
            Box::new(File::open(file).with_context(|| format!("cannot open {}", file.display()))?)
        }
    };
    let mut input = BufReader::new(input);
    let mut start = vec![0; GZIP.len()];
    let length = fill(&mut input, &mut start).context("cannot read the response")?;
    start.truncate(length);
    let gzipped = start == GZIP;
    let whole = io::Cursor::new(start).chain(input);
    Ok(if gzipped { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

fn unreadable(name: &str, error: io::Error) -> anyhow::Error {
    if is_bad_gzip(&error) {
        return anyhow!("cannot decompress {name}: the gzip data is truncated or corrupt");
    }
    anyhow::Error::new(error).context(format!("cannot read {name}"))
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Returns an error for input that does not look like a response.
fn reject_non_response(
    args: &ResponseArgs,
    keep: Keep,
    ending: &Ending,
    body: &Body,
) -> Result<()> {
    let Body { name, first, .. } = body;
    match (ending.closed, keep) {
        (Closed::Oversize, Keep::Ending) => bail!(
            "{name} contains an event of more than 16 MiB, or too many events; use `endstop replay` \
             for recordings"
        ),
        (Closed::Oversize, Keep::Everything) => bail!(
            "{name} contains a body or an event of more than 16 MiB, of which no text is kept; use \
             `endstop check`"
        ),
        (_, _) => {}
    }
    let unread = ending.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::BadPayload);
    let vouched = args.provider.is_some() || args.url.is_some() || args.status.is_some();
    let is_page = first.trim_ascii_start().starts_with(b"<");
    if !unread || vouched || is_page {
        return Ok(());
    }
    if let Some((_, format)) = COMPRESSED.iter().find(|(start, _)| first.starts_with(start)) {
        bail!("{name} is compressed with {format}: decompress it first");
    }
    bail!(
        "{name} does not look like a response: expected a JSON object, server-sent events, JSON lines or \
         an AWS event stream; if a provider sent this, pass `--provider`"
    );
}
