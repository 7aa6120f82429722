//! Frames: the units of a stream.
//!
//! A framer takes chunks of any size and returns whole frames, borrowed from the chunk if possible.
//! It does not interpret frames. Its time is linear in the bytes, and its memory is bounded.

pub mod array;
pub mod aws;
mod body;
pub mod framer;
pub mod lines;
pub mod sse;

use crate::json::{JsonState, Scanner};

/// Framing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value per line.
    Lines,
    /// One JSON array, streamed element by element.
    Array,
    /// AWS event stream.
    Aws,
    /// AWS event stream whose payloads are `{"bytes": base64}` around another wire's events.
    AwsChunks,
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameKind {
    /// One event of a stream.
    Event,
    /// An event that the framing marks as an error.
    Exception,
    /// A whole body that is not a stream.
    Body,
    /// The beginning of something other than a response: a page, plain text, compressed bytes.
    Text,
}

/// One whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind.
    pub kind: FrameKind,
    /// Event name from the framing; empty if it has none.
    pub name: &'a str,
    /// Payload.
    pub data: &'a [u8],
    /// Number of bytes of the current chunk that were read when the frame was complete. No byte of
    /// the frame follows: another frame can be inserted there.
    pub end: usize,
}

impl<'a> Frame<'a> {
    /// Creates an unnamed event without a known end.
    #[must_use]
    pub fn event(data: &'a [u8]) -> Self {
        Self { kind: FrameKind::Event, name: "", data, end: 0 }
    }
}

/// Reason why no further frame can be read.
///
/// Closed list: a frame is too large or invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A frame is larger than the limit.
    Oversize,
    /// A checksum is wrong or a length is impossible.
    Corrupt,
}

/// Remainder at the end of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing that matters.
    Nothing,
    /// The beginning of a frame.
    CutFrame,
}

/// Reports whether these bytes are exactly one JSON value: then the frame is complete even without
/// its terminator.
pub(crate) fn is_whole_json(data: &[u8]) -> bool {
    let mut scanner = Scanner::lenient();
    scanner.push(data);
    scanner.state() == JsonState::Whole
}

/// Reports whether the data begins with one word in brackets, as end markers do.
pub(crate) fn is_bracketed_word(data: &[u8]) -> bool {
    let Some(rest) = data.strip_prefix(b"[") else { return false };
    let word = rest.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    word > 0 && rest.get(word) == Some(&b']')
}

/// Returns the bytes without white space at either end.
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

    /// A frame that owns its data, for comparisons.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Owned(pub(crate) FrameKind, pub(crate) String, pub(crate) Vec<u8>);

    impl From<Frame<'_>> for Owned {
        fn from(frame: Frame<'_>) -> Self {
            Self(frame.kind, frame.name.to_owned(), frame.data.to_vec())
        }
    }

    /// Returns every division into two chunks, and the division into single bytes.
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
