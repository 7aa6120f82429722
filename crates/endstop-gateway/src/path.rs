//! Paths in the form in which they are matched: split into segments, and each segment decoded.
//!
//! Servers differ in how they read a path. Some decode it once, some twice; some collapse doubled
//! slashes, take a backslash for a slash or skip what follows a semicolon. So a path is matched in
//! two forms, a strict and a lenient one, and is refused where they name different APIs. The bytes
//! that are sent on stay as they came.

use std::borrow::Cow;

/// Number of times that a segment is decoded.
const ROUNDS: usize = 4;

/// The forms of a path that are matched, where they differ from its bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Matched {
    /// The segments decoded, without empty ones. An encoded slash stays `%2F`.
    pub(crate) strict: Option<String>,
    /// The path as the most lenient server reads it, if that differs.
    pub(crate) lenient: Option<String>,
}

/// Reason why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPath {
    /// A segment is `.` or `..`, which would leave the route.
    Dots,
    /// It holds an encoded control character.
    Control,
    /// It is encoded too many times.
    Nested,
}

impl BadPath {
    /// Returns the sentence for the caller.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Dots => {
                "endstop: the path holds the segment `.` or `..`: send the path without it"
            }
            Self::Control => {
                "endstop: the path holds an encoded control character: send the path without it"
            }
            Self::Nested => {
                "endstop: the path is percent-encoded several times: encode each segment once"
            }
        }
    }
}

impl Matched {
    /// Reads a path.
    ///
    /// # Errors
    /// The reason why no server should get it.
    pub(crate) fn of(path: &str) -> Result<Self, BadPath> {
        if is_plain(path) {
            return Ok(Self::default());
        }
        let (mut strict, mut lenient) = (String::new(), String::new());
        let mut ended = false;
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let decoded = decoded(segment)?;
            if decoded.chars().any(char::is_control) {
                return Err(BadPath::Control);
            }
            strict.push('/');
            for letter in decoded.chars() {
                match letter {
                    '/' => strict.push_str("%2F"),
                    '?' => strict.push_str("%3F"),
                    '#' => strict.push_str("%23"),
                    other => strict.push(other),
                }
            }
            if !ended {
                ended = add_lenient(&mut lenient, &decoded)?;
            }
        }
        if path.ends_with('/') {
            strict.push('/');
            lenient.push('/');
        }
        let lenient = (lenient != strict).then_some(lenient);
        Ok(Self { strict: Some(strict), lenient })
    }
}

/// Reports whether a path is its own form already.
fn is_plain(path: &str) -> bool {
    let plain = path
        .bytes()
        .fold(true, |plain, byte| plain & !matches!(byte, b'%' | b';' | b'\\' | 0..=0x20 | 0x7f));
    let pairs = path.bytes().zip(path.bytes().skip(1));
    plain
        && !path.ends_with('.')
        && !pairs.fold(false, |bad, (byte, next)| {
            bad | matches!((byte, next), (b'/', b'/' | b'.') | (b'.', b'/'))
        })
}

/// Adds a decoded segment as the most lenient server reads it: the path ends at a question mark or a
/// hash, and spaces and full stops at the end of a name do not count. Reports whether the path ended.
fn add_lenient(path: &mut String, segment: &str) -> Result<bool, BadPath> {
    let end = segment.find(['?', '#']);
    // Dots are refused behind the end, too: another server reads on.
    for part in segment.split(['/', '\\', '?', '#']) {
        if matches!(part.split(';').next().unwrap_or_default().trim(), "." | "..") {
            return Err(BadPath::Dots);
        }
    }
    let read = end.and_then(|end| segment.get(..end)).unwrap_or(segment);
    for part in read.split(['/', '\\']) {
        let name = part.split(';').next().unwrap_or_default().trim_end_matches([' ', '.']);
        if !name.is_empty() {
            path.push('/');
            path.push_str(name);
        }
    }
    Ok(end.is_some())
}

/// Decodes a segment until nothing is encoded.
fn decoded(segment: &str) -> Result<Cow<'_, str>, BadPath> {
    let mut segment = Cow::Borrowed(segment);
    for _ in 0..ROUNDS {
        match decode_once(&segment) {
            None => return Ok(segment),
            Some(once) => segment = Cow::Owned(once),
        }
    }
    decode_once(&segment).map_or(Ok(segment), |_| Err(BadPath::Nested))
}

/// Decodes once; `None` if nothing is encoded.
pub(crate) fn decode_once(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut changed = false;
    while let [first, after @ ..] = rest {
        let byte = match after {
            [high, low, after @ ..] if *first == b'%' => {
                hex(*high).zip(hex(*low)).map(|(high, low)| (high << 4 | low, after))
            }
            _ => None,
        };
        changed |= byte.is_some();
        let (byte, after) = byte.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    changed.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(path: &str) -> (String, String) {
        let Matched { strict, lenient } = Matched::of(path).unwrap();
        let strict = strict.unwrap_or_else(|| path.to_owned());
        let lenient = lenient.unwrap_or_else(|| strict.clone());
        (strict, lenient)
    }

    #[test]
    fn segments_are_decoded_and_slashes_collapsed() {
        for (path, strict, lenient) in [
            ("/v1/chat/completions", "/v1/chat/completions", "/v1/chat/completions"),
            ("/v1/chat/%63ompletions", "/v1/chat/completions", "/v1/chat/completions"),
            ("/v1/chat/%2563ompletions", "/v1/chat/completions", "/v1/chat/completions"),
            ("//v1///chat//completions/", "/v1/chat/completions/", "/v1/chat/completions/"),
            ("/v1/chat%2fcompletions", "/v1/chat%2Fcompletions", "/v1/chat/completions"),
            ("/v1/chat%252Fcompletions", "/v1/chat%2Fcompletions", "/v1/chat/completions"),
            ("/v1/chat%5ccompletions", "/v1/chat\\completions", "/v1/chat/completions"),
            ("/v1/chat;a=b/completions", "/v1/chat;a=b/completions", "/v1/chat/completions"),
            (
                "/models/x%3AgenerateContent",
                "/models/x:generateContent",
                "/models/x:generateContent",
            ),
            ("/a%3Fb%23c", "/a%3Fb%23c", "/a"),
            ("/v1/chat/completions%3Fx/y", "/v1/chat/completions%3Fx/y", "/v1/chat/completions"),
            ("/v1/chat/completions%23x", "/v1/chat/completions%23x", "/v1/chat/completions"),
            ("/v1/chat/completions%2e", "/v1/chat/completions.", "/v1/chat/completions"),
            ("/v1/chat/completions.", "/v1/chat/completions.", "/v1/chat/completions"),
            ("/v1/chat/completions%20", "/v1/chat/completions ", "/v1/chat/completions"),
            ("/v1/chat./completions", "/v1/chat./completions", "/v1/chat/completions"),
            ("/100%/%zz/%e9", "/100%/%zz/\u{fffd}", "/100%/%zz/\u{fffd}"),
            ("/v1/a..b/.hidden/...", "/v1/a..b/.hidden/...", "/v1/a..b/.hidden"),
        ] {
            assert_eq!(forms(path), (strict.to_owned(), lenient.to_owned()), "{path}");
        }
        assert_eq!(Matched::of("/v1/chat/completions"), Ok(Matched::default()));
    }

    #[test]
    fn paths_that_leave_their_route_are_refused() {
        for path in [
            "/v1/../x",
            "/v1/..",
            "/./x",
            "/v1/%2e%2e/x",
            "/v1/.%2E/x",
            "/v1/%252e%252e/x",
            "/v1/a%2f..%2fx",
            "/v1/a%5c..%5cx",
            "/v1/..\\x",
            "/v1/..;/x",
            "/v1/..%3bx/x",
            "/v1/..%20/x",
        ] {
            assert_eq!(Matched::of(path), Err(BadPath::Dots), "{path}");
        }
        for path in ["/v1/a%00b", "/v1/a%0d%0ab", "/v1/%7f", "/v1/%c2%85"] {
            assert_eq!(Matched::of(path), Err(BadPath::Control), "{path}");
        }
        assert_eq!(Matched::of("/v1/%252525252563ompletions"), Err(BadPath::Nested));
    }
}
