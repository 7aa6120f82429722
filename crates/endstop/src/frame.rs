//! Frames: the pieces that a wire cuts its bytes into.
//!
//! A framer is pushed bytes in any cutting and hands over whole frames, borrowed from the chunk
//! where a frame lies whole in it. It knows nothing of what the frames mean. Reading is linear in
//! the bytes, and what grows is bounded.

pub mod array;
pub mod aws;
pub mod framer;
pub mod lines;
pub mod sse;

use crate::json::{JsonState, Scanner};

/// How a wire frames its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value a line.
    Lines,
    /// One JSON array, streamed element by element.
    Array,
    /// AWS event stream.
    Aws,
    /// AWS event stream whose payloads are `{"bytes": base64}` around another wire's events.
    AwsChunks,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// One event of a stream.
    Event,
    /// An event that the framing itself marks as an error.
    Exception,
    /// A whole body that is not a stream.
    Body,
    /// The beginning of what came in place of an answer: a page, a text, compressed bytes.
    Text,
}

/// One whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: FrameKind,
    /// The event's name, where the framing gives it one; else empty.
    pub name: &'a str,
    /// The payload.
    pub data: &'a [u8],
    /// How many bytes of the chunk at hand had been read when the frame was whole. Nothing of it is
    /// left in the chunk after that: something else could be said there.
    pub end: usize,
}

impl<'a> Frame<'a> {
    /// An unnamed event, wherever it ends.
    #[must_use]
    pub fn event(data: &'a [u8]) -> Self {
        Self { kind: FrameKind::Event, name: "", data, end: 0 }
    }
}

/// Why no further frame can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A frame is larger than the limit.
    Oversize,
    /// A checksum is wrong or a length impossible.
    Corrupt,
}

/// What was left when the bytes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing, or only what may be left out.
    Nothing,
    /// The beginning of a frame.
    CutFrame,
}

/// Whether these bytes are exactly one JSON value: then even a frame without its end is whole.
pub(crate) fn is_whole_json(data: &[u8]) -> bool {
    let mut scanner = Scanner::default();
    scanner.push(data);
    scanner.state() == JsonState::Whole
}

/// Reports whether data begins with one word in brackets, as end markers are: it is whole, and not JSON.
pub(crate) fn is_bracketed_word(data: &[u8]) -> bool {
    let Some(rest) = data.strip_prefix(b"[") else { return false };
    let word = rest.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    word > 0 && rest.get(word) == Some(&b']')
}

/// The bytes without white space at either end.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && crate::json::is_space(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && crate::json::is_space(*last)
    {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A frame that owns what it holds, for comparing.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Owned(pub(crate) FrameKind, pub(crate) String, pub(crate) Vec<u8>);

    impl From<Frame<'_>> for Owned {
        fn from(frame: Frame<'_>) -> Self {
            Self(frame.kind, frame.name.to_owned(), frame.data.to_vec())
        }
    }

    /// Every way to cut these bytes in two, and byte by byte.
    pub(crate) fn cuttings(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
        let mut all: Vec<Vec<&[u8]>> = (0..=bytes.len())
            .map(|cut| {
                let (head, tail) = bytes.split_at(cut);
                vec![head, tail]
            })
            .collect();
        all.push(bytes.chunks(1).collect());
        all
    }
}
