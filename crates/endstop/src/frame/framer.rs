//! Detects the framing of a response from its content type and its first bytes, and splits it.
//!
//! Providers answer a request for a stream with a JSON error, a page or plain text, and send
//! streams with the wrong content type. So neither the request nor the content type decides alone.

use super::array::Array;
use super::aws::Aws;
use super::body::Body;
use super::lines::Lines;
use super::sse::Sse;
use super::{Broken, Frame, FrameKind, Framing, Rest, trim};
use crate::json::{JsonState, Scanner, is_space};
use crate::mend;

/// Maximum number of bytes kept of a page or text that came instead of a response.
const TEXT_KEPT: usize = 4096;

/// Maximum length of a first JSON value that is held back to see whether more follow it.
const FIRST: usize = 64 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Splits the bytes of one response into frames, in any framing.
#[derive(Clone, Debug)]
pub struct Framer {
    hints: Hints,
    framing: Found,
    /// Number of bytes of the byte-order mark, and number of bytes from earlier chunks, among the
    /// bytes that decided the framing.
    skipped: usize,
    earlier: usize,
}

/// Facts that are known before the first byte.
#[derive(Clone, Debug)]
pub struct Hints {
    /// Framing of the wire's streams.
    pub framing: Framing,
    /// Framing that the content type names.
    pub label: Label,
    /// Whether the request asked for a stream.
    pub streamed: Option<bool>,
    /// Maximum size of an event or a body, in bytes.
    pub limit: usize,
    /// Treatment of long strings in a body.
    pub strings: Strings,
}

/// Treatment of long strings in a body that is not a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strings {
    /// They are kept, because someone wants their text.
    Kept,
    /// Only their beginnings are kept: the ending does not depend on the rest.
    Shortened,
}

/// Form of a response.
///
/// Closed list: code that passes a response on must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The bytes so far do not show it.
    Undecided,
    /// A stream of frames.
    Stream(Framing),
    /// One body, which is read when it ends.
    Body,
}

#[derive(Clone, Debug)]
enum Found {
    /// The bytes so far, without most leading white space, and the number of all bytes so far.
    Undecided(Vec<u8>, usize),
    Sse(Sse),
    Lines(Lines),
    Array(Array),
    Aws(Aws),
    Body(Body),
    Text(Vec<u8>),
}

impl Framer {
    /// Creates a framer.
    #[must_use]
    pub fn new(hints: Hints) -> Self {
        Self { hints, framing: Found::Undecided(Vec::new(), 0), skipped: 0, earlier: 0 }
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// Returns [`Broken`] if nothing more can be read.
    pub fn push(&mut self, chunk: &[u8], on_frame: impl FnMut(Frame<'_>)) -> Result<(), Broken> {
        (self.skipped, self.earlier) = (0, 0);
        self.push_found(chunk, on_frame)
    }

    /// Keeps only the beginnings of long strings in a body.
    pub(crate) fn shorten_strings(&mut self) {
        self.hints.strings = Strings::Shortened;
    }

    /// Returns the number of bytes of the last chunk that precede any unfinished frame. Another
    /// frame can be inserted there.
    #[must_use]
    pub fn whole(&self) -> usize {
        let whole = match &self.framing {
            Found::Sse(sse) => sse.whole(),
            Found::Lines(lines) => lines.whole(),
            Found::Array(array) => array.whole(),
            Found::Aws(aws) => aws.whole(),
            Found::Body(_) | Found::Text(_) | Found::Undecided(..) => 0,
        };
        if whole == 0 { 0 } else { (whole + self.skipped).saturating_sub(self.earlier) }
    }

    /// Returns how much of an unfinished frame no client can act on, in bytes. Its bytes, as far as
    /// they are not passed on yet, are `held` and then `chunk`; `is_start` says that none is.
    pub(crate) fn inert(&self, is_start: bool, held: &[u8], chunk: &[u8]) -> usize {
        match &self.framing {
            Found::Sse(_) => super::sse::inert(is_start, held, chunk),
            // Nobody can parse a body without its last bracket, but some clients read line by line.
            Found::Body(body) if body.has_lines() => 0,
            Found::Body(body) if body.is_open() => held.len() + chunk.len(),
            Found::Body(_) => {
                let bracket = |bytes| memchr::memrchr(b'}', bytes);
                let in_chunk = bracket(chunk).map(|at| held.len() + at);
                in_chunk.or_else(|| bracket(held)).unwrap_or(held.len() + chunk.len())
            }
            // An element is read as soon as it is complete, and a message has a checksum at its end.
            Found::Array(_) | Found::Aws(_) => held.len() + chunk.len(),
            // A line may hold a whole value before its end has come, and a text holds anything.
            Found::Lines(_) | Found::Text(_) | Found::Undecided(..) => 0,
        }
    }

    /// Reports whether the response is a body of which no line is one of a stream.
    pub(crate) fn is_mere_body(&self) -> bool {
        matches!(&self.framing, Found::Body(body) if !body.has_lines())
    }

    /// Returns the form of the response, as far as the bytes show it.
    pub(crate) fn form(&self) -> Form {
        match &self.framing {
            Found::Undecided(..) => Form::Undecided,
            Found::Sse(_) => Form::Stream(Framing::Sse),
            Found::Lines(_) => Form::Stream(Framing::Lines),
            Found::Array(_) => Form::Stream(Framing::Array),
            Found::Aws(_) => Form::Stream(match self.hints.framing {
                Framing::AwsChunks => Framing::AwsChunks,
                Framing::Sse | Framing::Lines | Framing::Array | Framing::Aws => Framing::Aws,
            }),
            Found::Body(_) | Found::Text(_) => Form::Body,
        }
    }

    /// Returns the form of a response that begins with these bytes. Nothing is read.
    pub(crate) fn form_of(&self, first: &[u8]) -> Form {
        self.hints.decide(first, false).map_or(Form::Undecided, |found| {
            Self { framing: found, ..Self::new(self.hints.clone()) }.form()
        })
    }

    /// Reports whether these bytes are all of a body.
    pub(crate) fn is_body(&self, all: &[u8]) -> bool {
        let unread = matches!(&self.framing, Found::Undecided(_, 0));
        unread && matches!(self.hints.decide(all, true), Some(Found::Body(_)))
    }

    /// Takes the bytes of a body. Returns `None` if the response is a stream or a text.
    pub(crate) fn take_body(&mut self) -> Option<Vec<u8>> {
        match &mut self.framing {
            Found::Body(body) => Some(body.take()),
            Found::Undecided(..)
            | Found::Sse(_)
            | Found::Lines(_)
            | Found::Array(_)
            | Found::Aws(_)
            | Found::Text(_) => None,
        }
    }

    /// Reports whether the response is a streamed array.
    pub(crate) fn is_array(&self) -> bool {
        matches!(self.framing, Found::Array(_))
    }

    fn push_found(
        &mut self,
        chunk: &[u8],
        mut on_frame: impl FnMut(Frame<'_>),
    ) -> Result<(), Broken> {
        match &mut self.framing {
            Found::Sse(sse) => sse.push(chunk, on_frame),
            Found::Lines(lines) => lines.push(chunk, on_frame),
            Found::Array(array) => array.push(chunk, on_frame),
            Found::Aws(aws) => aws.push(chunk, on_frame),
            Found::Body(body) => {
                body.push(chunk);
                if body.kept() <= self.hints.limit {
                    return Ok(());
                }
                let held = body.take();
                if !is_several(&held) {
                    return Err(Broken::Oversize);
                }
                // JSON lines without a label.
                let mut lines = Lines::new(self.hints.limit);
                let read = lines.push(&held, |frame| on_frame(Frame { end: 0, ..frame }));
                self.framing = Found::Lines(lines);
                read
            }
            Found::Text(text) => {
                let room = TEXT_KEPT.saturating_sub(text.len());
                text.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
                Ok(())
            }
            Found::Undecided(held, all) => {
                let earlier = held.len();
                held.extend_from_slice(chunk);
                let (held, all) = (std::mem::take(held), *all + chunk.len());
                match self.hints.decide(&held, false) {
                    Some(found) => {
                        let first = found.first(&held);
                        self.framing = found;
                        // Frames in the held bytes end in the chunk that decided the framing.
                        self.skipped = held.len() - first.len();
                        self.earlier = earlier;
                        let (skipped, earlier) = (self.skipped, self.earlier);
                        let end = |end: usize| (end + skipped).saturating_sub(earlier);
                        let mut moved = |frame: Frame<'_>| {
                            on_frame(Frame { end: end(frame.end), ..frame });
                        };
                        let moved: &mut dyn FnMut(Frame<'_>) = &mut moved;
                        self.push_found(first, moved)
                    }
                    None if all > self.hints.limit => Err(Broken::Oversize),
                    None => {
                        self.framing = Found::Undecided(without_space(held), all);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Ends the response and passes on the frames that only the end completes.
    pub fn finish(mut self, mut on_frame: impl FnMut(Frame<'_>)) -> Rest {
        if let Found::Undecided(held, _) = &mut self.framing {
            let held = std::mem::take(held);
            let Some(found) = self.hints.decide(&held, true) else { return Rest::Nothing };
            let first = found.first(&held);
            self.framing = found;
            if self.push(first, &mut on_frame).is_err() {
                return Rest::CutFrame;
            }
        }
        match self.framing {
            Found::Sse(sse) => sse.finish(on_frame),
            Found::Lines(lines) => lines.finish(on_frame),
            Found::Array(array) => array.finish(),
            Found::Aws(aws) => aws.finish(),
            Found::Body(mut body) => finish_body(&body.take(), on_frame),
            Found::Text(text) => {
                on_frame(Frame { kind: FrameKind::Text, name: "", data: &text, end: 0 });
                Rest::Nothing
            }
            Found::Undecided(..) => Rest::Nothing,
        }
    }
}

impl Found {
    /// Returns the first bytes without their byte-order mark. Binary frames have none.
    fn first<'a>(&self, held: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Aws(_) => held,
            Self::Text(_) => {
                let text = without_mark(held);
                let start = text.iter().position(|byte| !is_space(*byte));
                text.get(start.unwrap_or(text.len())..).unwrap_or_default()
            }
            Self::Sse(_)
            | Self::Lines(_)
            | Self::Array(_)
            | Self::Body(_)
            | Self::Undecided(..) => without_mark(held),
        }
    }
}

impl Hints {
    /// Detects the framing. Returns `None` if more bytes are needed.
    fn decide(&self, held: &[u8], ended: bool) -> Option<Found> {
        crate::work::count(held.len());
        let label = self.label;
        if !ended && BYTE_ORDER_MARK.starts_with(held) {
            return None;
        }
        let start = trim(without_mark(held));
        let is_lines = label == Label::Lines;
        // White space precedes no message of an AWS event stream.
        let is_first = !without_mark(held).first().copied().is_some_and(is_space);
        match start.first()? {
            // One body with the label of lines is a body.
            b'{' if is_lines
                && self.framing != Framing::Lines
                && start.len() <= FIRST
                && !is_several(start) =>
            {
                ended.then(|| Found::Body(self.body()))
            }
            b'{' if is_lines || self.framing == Framing::Lines && self.streamed == Some(true) => {
                Some(Found::Lines(Lines::new(self.limit)))
            }
            b'{' => Some(Found::Body(self.body())),
            b'[' => Some(Found::Array(Array::new(self.limit))),
            b'<' | 0x1f => Some(Found::Text(Vec::new())),
            0 if is_first
                && (label == Label::Aws
                    || matches!(self.framing, Framing::Aws | Framing::AwsChunks)) =>
            {
                Some(self.aws())
            }
            // Events or text with the wrong label. A damaged message is neither.
            _ if label == Label::Aws => match self.sse_or_text(start, ended) {
                Some(Found::Text(_)) if is_first => Some(self.aws()),
                found => found,
            },
            _ if label == Label::Sse => Some(Found::Sse(Sse::new(self.limit))),
            _ => self.sse_or_text(start, ended),
        }
    }

    fn body(&self) -> Body {
        Body::new(self.strings, self.streamed == Some(true) || self.label != Label::Other)
    }

    fn aws(&self) -> Found {
        Found::Aws(match self.framing {
            Framing::AwsChunks => Aws::wrapped(self.limit),
            Framing::Sse | Framing::Lines | Framing::Array | Framing::Aws => Aws::new(self.limit),
        })
    }

    /// Detects server-sent events by their first field.
    fn sse_or_text(&self, start: &[u8], ended: bool) -> Option<Found> {
        let fields: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
        if fields.iter().any(|field| start.starts_with(field)) {
            return Some(Found::Sse(Sse::new(self.limit)));
        }
        if !ended && fields.iter().any(|field| field.starts_with(start)) {
            return None;
        }
        Some(Found::Text(Vec::new()))
    }
}

/// Reports whether bytes begin as server-sent events or JSON do, so that they are not compressed,
/// whatever their head says.
#[must_use]
pub fn begins_readable(first: &[u8]) -> bool {
    let starts: [&[u8]; 6] = [b"data:", b"event:", b"retry:", b": ", b"{\"", b"[{"];
    let first = trim(without_mark(first));
    starts.iter().any(|start| first.starts_with(start))
}

/// Framing that a content type names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Server-sent events.
    Sse,
    /// JSON lines.
    Lines,
    /// AWS event stream.
    Aws,
    /// No stream.
    Other,
}

impl Label {
    /// Reads a content type, in any case.
    pub(crate) fn of(content_type: &str) -> Self {
        let begins = |kind: &str| {
            content_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
        };
        // Most responses.
        if begins("application/json") {
            return Self::Other;
        }
        if begins("text/event-stream") {
            return Self::Sse;
        }
        let content_type = content_type.to_ascii_lowercase();
        let says = |kind: &str| content_type.contains(kind);
        if says("event-stream") {
            Self::Sse
        } else if says("vnd.amazon.eventstream") {
            Self::Aws
        } else if says("ndjson") || says("jsonl") || says("stream+json") {
            Self::Lines
        } else {
            Self::Other
        }
    }

    /// Reports whether it is the label of a stream.
    pub(crate) fn is_stream(self) -> bool {
        self != Self::Other
    }
}

/// Returns the bytes without white space at the start but for its last byte. Some providers send it
/// while they work, and it must not be read again with every chunk. The last byte shows whether a
/// line begins after it.
fn without_space(mut bytes: Vec<u8>) -> Vec<u8> {
    let mark = bytes.len() - without_mark(&bytes).len();
    let spaces = bytes.iter().skip(mark).take_while(|byte| is_space(**byte)).count();
    bytes.drain(mark..mark + spaces.saturating_sub(1));
    bytes
}

pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// Reports whether more JSON follows the first value.
fn is_several(body: &[u8]) -> bool {
    let mut scanner = Scanner::lenient();
    let read = scanner.push_until_end(body);
    scanner.state() == JsonState::Whole && read < trim(body).len()
}

/// Reads a complete body, or several values that came without the label of a stream.
pub(crate) fn finish_body(body: &[u8], mut on_frame: impl FnMut(Frame<'_>)) -> Rest {
    let mut scanner = Scanner::lenient();
    let read = scanner.push_until_end(body);
    let (first, after) = body.split_at_checked(read).unwrap_or((body, &[]));
    match scanner.state() {
        JsonState::Whole if trim(after).is_empty() => {
            on_frame(Frame { kind: FrameKind::Body, name: "", data: trim(first), end: 0 });
            Rest::Nothing
        }
        // Anything else after the value makes the body unreadable for a client, too.
        JsonState::Whole if !begins_a_line(trim(after)) => {
            on_frame(Frame { kind: FrameKind::Body, name: "", data: body, end: 0 });
            Rest::Nothing
        }
        JsonState::Whole => {
            let mut lines = Lines::new(body.len());
            match lines.push(body, &mut on_frame) {
                Ok(()) => lines.finish(on_frame),
                Err(_) => Rest::CutFrame,
            }
        }
        JsonState::Open | JsonState::Empty => Rest::CutFrame,
        JsonState::Broken => {
            on_frame(Frame { kind: FrameKind::Body, name: "", data: body, end: 0 });
            if mend::is_closed(body) { Rest::Nothing } else { Rest::CutFrame }
        }
    }
}

/// Reports whether more values follow, or events of a stream.
fn begins_a_line(after: &[u8]) -> bool {
    [&b"{"[..], b"[", b"data:", b"event:"].iter().any(|start| after.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::testing::{Owned, cuttings};

    fn read(chunks: &[&[u8]], label: Label) -> (Vec<Owned>, Result<Rest, Broken>) {
        let mut framer = Framer::new(Hints {
            framing: Framing::Sse,
            label,
            streamed: None,
            limit: 1 << 16,
            strings: Strings::Kept,
        });
        let mut frames = Vec::new();
        for chunk in chunks {
            if let Err(broken) = framer.push(chunk, |frame| frames.push(Owned::from(frame))) {
                return (frames, Err(broken));
            }
        }
        let rest = framer.finish(|frame| frames.push(frame.into()));
        (frames, Ok(rest))
    }

    #[test]
    fn white_space_at_the_start_reads_alike_in_every_chunking() {
        let starts: [&[u8]; 12] = [
            b"",
            b"\xef\xbb\xbf",
            b"             \n",
            b" ",
            b"\n",
            b"\r\n",
            b" \n",
            b"\n ",
            b"\t\r",
            b"\xef\xbb\xbf ",
            b" \xef\xbb\xbf",
            b"\r\n\r\n ",
        ];
        let rests: [&[u8]; 8] = [
            b"id:\x1e",
            b"data: {}\n\n",
            b"event: a\ndata: {}\n\n",
            b"{}",
            b"<html>",
            b"  text",
            b"d\x0b",
            b"\0\0\0\x10abcdefghijklmnop",
        ];
        for (start, rest) in starts.iter().flat_map(|start| rests.map(|rest| (start, rest))) {
            let bytes = [start, rest].concat();
            for label in [Label::Sse, Label::Lines, Label::Aws, Label::Other] {
                let whole = read(&[&bytes], label);
                for chunks in cuttings(&bytes) {
                    assert_eq!(
                        read(&chunks, label),
                        whole,
                        "{label:?}, {:?}",
                        bytes.escape_ascii().to_string()
                    );
                }
            }
        }
    }
}
