//! A body that is not a stream, kept until its end.
//!
//! A body can hold images and sounds in base64. Their text does not matter for the ending, so only the
//! beginning of a long string is kept, and memory stays bounded. Strings that begin like an object are
//! kept whole: they can be the arguments of a tool call, which are read to their end.

use super::framer::Strings;
use crate::json::is_space;

/// Length from which a string is shortened, in bytes.
const MOST_STRING: usize = 64 << 10;

const AFTER_BACKSLASH: u8 = 5;

/// The bytes of a body so far.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    streamed: bool,
    strings: Strings,
    bytes: Vec<u8>,
    at: At,
    /// Whether only blanks came since the end of a line.
    begins_line: bool,
    /// Whether a line after the first may be one of a stream.
    has_lines: bool,
    /// Brackets that are open, as far as strings are told apart.
    depth: usize,
    /// Whether the last bracket was closed once: what follows is not read as JSON.
    is_closed: bool,
}

/// Place in the body.
#[derive(Clone, Copy, Debug)]
enum At {
    /// No string can be long so far: nothing was looked at.
    Unread,
    Outside,
    Inside(Place),
}

/// Place in a string.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Bytes of the string so far.
    length: usize,
    /// Hexadecimal digits that are left of an escape, or [`AFTER_BACKSLASH`].
    escape: u8,
    kind: Kind,
    /// Whether bytes were left out.
    is_shortened: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// Only white space so far.
    #[default]
    Blank,
    /// Begins like an object.
    Object,
    Text,
}

impl Body {
    /// `streamed` says that the client expects a stream, and may read line by line.
    pub(crate) fn new(strings: Strings, streamed: bool) -> Self {
        Self {
            streamed,
            strings,
            bytes: Vec::new(),
            at: At::Unread,
            begins_line: false,
            has_lines: false,
            depth: 0,
            is_closed: false,
        }
    }

    /// Returns the number of bytes that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Reports whether a line after the first may be one of a stream, for a client that reads line by line.
    pub(crate) fn has_lines(&self) -> bool {
        self.has_lines
    }

    /// Reports whether the last bracket is known to be missing, so that nobody can parse the body.
    pub(crate) fn is_open(&self) -> bool {
        self.depth > 0 && !self.is_closed
    }

    /// Takes the bytes that are kept.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds a chunk.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        if self.streamed {
            self.look_at_lines(chunk);
        }
        match (self.strings, self.at) {
            (Strings::Kept, _) => self.bytes.extend_from_slice(chunk),
            (Strings::Shortened, At::Unread) => {
                self.bytes.extend_from_slice(chunk);
                if self.bytes.len() > MOST_STRING {
                    let all = self.take();
                    self.at = At::Outside;
                    self.shorten(&all);
                }
            }
            (Strings::Shortened, At::Outside | At::Inside(_)) => self.shorten(chunk),
        }
    }

    /// Looks for lines that begin like data or JSON. Some clients trim them, or end them at other control
    /// characters, which JSON does not have.
    fn look_at_lines(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while !self.has_lines {
            if self.begins_line {
                let is_blank = |byte: &u8| *byte <= b' ' || *byte >= 0x7f;
                let Some(first) = rest.iter().position(|byte| !is_blank(byte)) else { break };
                self.has_lines = matches!(rest.get(first), Some(b'd' | b'{' | b'['));
                self.begins_line = false;
                rest = rest.get(first..).unwrap_or_default();
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else { break };
            self.begins_line = true;
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        self.has_lines |= memchr::memchr3(0x0b, 0x0c, 0x1c, chunk).is_some()
            || memchr::memchr2(0x1d, 0x1e, chunk).is_some();
    }

    /// Adds bytes without the rest of long strings.
    fn shorten(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = match self.at {
                At::Unread | At::Outside => self.read_outside(rest),
                At::Inside(place) => self.read_string(rest, place),
            };
            rest = rest.get(read..).unwrap_or_default();
        }
    }

    /// Keeps the bytes up to the next string. Returns their number.
    fn read_outside(&mut self, bytes: &[u8]) -> usize {
        let quote = memchr::memchr(b'"', bytes);
        let read = quote.map_or(bytes.len(), |quote| quote + 1);
        let outside = bytes.get(..read).unwrap_or(bytes);
        self.count_brackets(outside);
        self.bytes.extend_from_slice(outside);
        if quote.is_some() {
            self.at = At::Inside(Place::default());
        }
        read
    }

    fn count_brackets(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_closed |= self.depth == 0;
                }
                _ => {}
            }
        }
    }

    /// Reads a string up to its end, or up to the last byte. Returns the number of bytes read.
    fn read_string(&mut self, bytes: &[u8], mut place: Place) -> usize {
        let mut kept = if place.is_shortened { 0 } else { bytes.len() };
        for (index, &byte) in bytes.iter().enumerate() {
            if !place.is_shortened && place.may_stop_before(byte) {
                place.is_shortened = true;
                kept = index;
            }
            if place.ends_with(byte) {
                self.bytes.extend_from_slice(bytes.get(..kept.min(index)).unwrap_or_default());
                self.bytes.push(b'"');
                self.at = At::Outside;
                return index + 1;
            }
        }
        self.bytes.extend_from_slice(bytes.get(..kept).unwrap_or_default());
        self.at = At::Inside(place);
        bytes.len()
    }
}

impl Place {
    /// Reports whether the rest of the string can be left out from this byte on: it is long, and the
    /// byte begins a character.
    fn may_stop_before(&self, byte: u8) -> bool {
        self.length >= MOST_STRING
            && self.kind != Kind::Object
            && self.escape == 0
            && !(0x80..0xc0).contains(&byte)
            && byte != b'"'
    }

    /// Reads a byte of the string. Reports whether it is the quote at its end.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.escape == 0 && byte == b'"' {
            return true;
        }
        if self.kind == Kind::Blank && !is_space(byte) && byte != b'\\' && self.escape == 0 {
            self.kind = if byte == b'{' { Kind::Object } else { Kind::Text };
        }
        self.escape = match (self.escape, byte) {
            (0, b'\\') => AFTER_BACKSLASH,
            (AFTER_BACKSLASH, b'u') => 4,
            (AFTER_BACKSLASH, _) => 0,
            (digits, _) => digits.saturating_sub(1),
        };
        self.length += 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(strings: Strings, text: &str, cut: usize) -> String {
        let mut body = Body::new(strings, true);
        text.as_bytes().chunks(cut).for_each(|chunk| body.push(chunk));
        String::from_utf8(body.take()).unwrap()
    }

    #[test]
    fn long_strings_are_shortened_alike_in_every_cutting() {
        let escapes = "\\u00e9\\\"é".repeat(MOST_STRING / 5);
        let (image, short) = ("A".repeat(3 * MOST_STRING), "B".repeat(MOST_STRING));
        let arguments = format!("{{\\\"a\\\":\\\"{}\\\"}}", "C".repeat(2 * MOST_STRING));
        let body = format!(
            r#"{{"{image}":"{image}","b":"{short}","c":"{arguments}","d":"{escapes}","e":1}}"#
        );
        let cut = "A".repeat(MOST_STRING);
        let want = kept(Strings::Shortened, &body, body.len());
        let start = format!(r#"{{"{cut}":"{cut}","b":"{short}","c":"{arguments}","d":""#);
        assert!(want.starts_with(&start) && want.ends_with(r#"","e":1}"#));
        assert!(want.len() < start.len() + MOST_STRING + 20);
        serde_json::from_str::<serde::de::IgnoredAny>(&want).unwrap();
        for size in [1, 2, 3, 7, 1000, MOST_STRING, MOST_STRING + 1] {
            assert_eq!(kept(Strings::Shortened, &body, size), want, "{size}");
        }
        assert_eq!(kept(Strings::Kept, &body, 1000), body);
    }

    #[test]
    fn a_body_is_open_until_its_last_bracket() {
        let long = "}]".repeat(MOST_STRING);
        let start = format!(r#"{{"a":[{{"b":"{long}"}}],"c":"{long}\""#);
        for size in [1, 7, 1000, start.len()] {
            let mut body = Body::new(Strings::Shortened, false);
            assert!(!body.is_open(), "nothing is known");
            start.as_bytes().chunks(size).for_each(|chunk| body.push(chunk));
            assert!(body.is_open());
            body.push(b"\",\"d\":[1]");
            assert!(body.is_open());
            body.push(b"}");
            assert!(!body.is_open());
            body.push(b" {");
            assert!(!body.is_open(), "it was whole");
        }
    }
}
