//! Reads one response from a file or a pipe, for `check`, `decide` and `explain`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use endstop::next_request::Content;
use endstop::registry::{Clues, Registry};
use endstop::tool_call::{Assembly, ToolCall};
use endstop::{
    Closed, Ending, Event, FaultKind, Head, Reader, RequestInfo, TransportEnd, Watcher, Wire,
    provider,
};
use flate2::read::MultiGzDecoder;
use serde_json::value::RawValue;

use crate::recording::is_bad_gzip;

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
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(100..600))]
    pub(crate) status: Option<u16>,
    /// Content type of the response
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Model of the request
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Output token limit of the request
    #[arg(long, value_name = "N", visible_alias = "cap")]
    pub(crate) max_tokens: Option<u64>,
    /// Number of choices in the request
    #[arg(long, value_name = "N")]
    pub(crate) choices: Option<u32>,
    /// TOML file with custom providers and finish reasons, or the gateway's configuration
    #[arg(long, value_name = "FILE")]
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

/// Response and its ending.
pub(crate) struct Response {
    pub(crate) ending: Ending,
    pub(crate) wire: Wire,
    /// Text of the first choice.
    pub(crate) text: String,
    /// Id of the response, from the provider.
    pub(crate) id: String,
    /// Continuation token from the provider, or empty.
    pub(crate) token: String,
    /// Content as the provider sent it, if the wire accepts it back.
    pub(crate) content: Option<Box<RawValue>>,
    pub(crate) calls: Vec<ToolCall>,
}

#[derive(Default)]
struct Heard {
    text: String,
    id: String,
    token: String,
    calls: Assembly,
}

impl Heard {
    fn observe(&mut self, event: &Event<'_>) {
        self.calls.observe(event);
        if let Event::Text { choice: 0, text } = event {
            self.text.push_str(text);
        }
        if let Event::ResumeToken { choice: 0, token } = event {
            (*token).clone_into(&mut self.token);
        }
        if let Event::Begin { id, .. } = event
            && self.id.is_empty()
        {
            (*id).clone_into(&mut self.id);
        }
    }
}

impl ResponseArgs {
    /// Reads the response for its ending alone, so that a plain body can be of any size.
    pub(crate) fn judge(&self) -> Result<Response> {
        read(self, Keep::Ending, b"")
    }

    /// Reads the response to this request, and keeps its text and tool calls.
    pub(crate) fn read(&self, request: &[u8]) -> Result<Response> {
        read(self, Keep::Everything, request)
    }
}

/// Parts of a response that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Ending,
    Everything,
}

/// A response that is being read.
enum Reading {
    Ending(Box<Watcher>),
    Everything { reader: Box<Reader>, content: Box<Content>, heard: Box<Heard> },
}

impl Reading {
    fn push(&mut self, chunk: &[u8]) {
        match self {
            Self::Ending(watcher) => watcher.watch(chunk),
            Self::Everything { reader, content, heard } => {
                content.push(chunk);
                reader.read(chunk, |event| heard.observe(&event));
            }
        }
    }

    fn finish(self, close: TransportEnd, wire: Wire) -> Response {
        match self {
            Self::Ending(watcher) => {
                let (text, id, token) = (String::new(), String::new(), String::new());
                let ending = watcher.finish(close);
                Response { ending, wire, text, id, token, content: None, calls: Vec::new() }
            }
            Self::Everything { reader, content, mut heard } => {
                let ending = reader.finish(close, |event| heard.observe(&event));
                let Heard { text, id, token, calls } = *heard;
                let calls = calls.finish(&ending);
                Response { ending, wire, text, id, token, content: content.finish(), calls }
            }
        }
    }
}

fn read(args: &ResponseArgs, keep: Keep, request: &[u8]) -> Result<Response> {
    let name = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let shown_name =
        name.map_or_else(|| "standard input".into(), |name| name.display().to_string());
    let registry = crate::config::registry(args.config.as_deref())?;
    let mut input = open(name)?;
    let mut head = vec![0; LOOK];
    let length = fill(&mut input, &mut head).map_err(|error| unreadable(&shown_name, error))?;
    head.truncate(length);
    if head.is_empty() && args.status.is_none() {
        bail!(
            "{shown_name} is empty: expected a response body; if the response had none, pass its `--status`"
        );
    }
    let (reader, wire) = reader(args, &registry, &head, request)?;
    let mut reading = match keep {
        Keep::Ending => Reading::Ending(Box::new(reader.into())),
        Keep::Everything => {
            let content_type = args.content_type.as_deref().unwrap_or_default();
            let content = Box::new(Content::new(&wire.profile, content_type));
            Reading::Everything { reader: Box::new(reader), content, heard: Box::default() }
        }
    };
    reading.push(&head);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let length = input.read(&mut chunk).map_err(|error| unreadable(&shown_name, error))?;
        if length == 0 {
            break;
        }
        reading.push(chunk.get(..length).unwrap_or_default());
    }
    let close = match args.close {
        CloseArg::Eof => TransportEnd::Eof,
        CloseArg::Reset => TransportEnd::Reset,
        CloseArg::ClientGone => TransportEnd::ClientGone,
    };
    let response = reading.finish(close, wire);
    refuse_what_is_no_response(args, keep, &response.ending, &head, &shown_name)?;
    Ok(response)
}

fn reader(
    args: &ResponseArgs,
    registry: &Registry,
    head: &[u8],
    request: &[u8],
) -> Result<(Reader, Wire)> {
    let known = args.provider.as_deref().unwrap_or_default();
    let unknown = provider::by_id(known).is_none() && registry.get(known, "").is_none();
    if !known.is_empty() && unknown {
        let ids: Vec<&str> = registry.ids().collect();
        let meant = endstop::nearest(known, ids.iter().copied());
        let meant = meant.map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
        bail!("unknown provider `{known}`: expected one of {}{meant}", ids.join(", "));
    }
    let (host, path) = args.url.as_deref().map(parse_url).transpose()?.unwrap_or_default();
    let headers: Vec<(&str, &str)> =
        args.headers.iter().map(|header| parse_header(header)).collect::<Result<_>>()?;
    let clues =
        Clues { provider: known, host, path, headers: &headers, body: head, ..Clues::default() };
    let wire = registry.choose(&clues);
    let content_type = args.content_type.as_deref().unwrap_or_default();
    // The request fills in what the flags leave out.
    let told = match request {
        [] => RequestInfo::default(),
        request => RequestInfo::from_request(&wire.profile, path, request),
    };
    let asked = RequestInfo {
        model: args.model.clone().or(told.model),
        cap: args.max_tokens.or(told.cap),
        choices: args.choices.or(told.choices),
        // Detected from the bytes.
        streamed: None,
        ..told
    };
    let head = Head { status: args.status.unwrap_or(0), content_type };
    Ok((Reader::new(wire.clone(), head, asked), wire))
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
        bail!(
            "invalid --url `{url}`: expected an HTTP or HTTPS URL, such as \
             `https://api.openai.com/v1/chat/completions`"
        );
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
        _ => bail!(
            "invalid --header: expected a name, a colon and a value, such as `anthropic-version: \
             2023-06-01`"
        ),
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
fn refuse_what_is_no_response(
    args: &ResponseArgs,
    keep: Keep,
    ending: &Ending,
    head: &[u8],
    name: &str,
) -> Result<()> {
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
    let is_page = head.trim_ascii_start().starts_with(b"<");
    if !unread || vouched || is_page {
        return Ok(());
    }
    if let Some((_, format)) = COMPRESSED.iter().find(|(start, _)| head.starts_with(start)) {
        bail!("{name} is compressed with {format}: decompress it first");
    }
    bail!(
        "{name} does not look like a response: expected JSON, server-sent events, JSON lines or an \
         AWS event stream; if a provider sent this, pass `--provider`"
    );
}
