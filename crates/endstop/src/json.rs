//! An incremental JSON scanner. It reports whether a value is empty, open, whole or broken so far.
//!
//! It reads each byte once, stores no text and does not recurse. The bytes may be split anywhere,
//! as for the arguments of a tool call. It does not build values and does not check UTF-8;
//! `serde_json` does both when a value is read.

/// Maximum nesting depth. A deeper value counts as broken.
const MAX_DEPTH: u32 = 512;

/// State of a JSON value after the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonState {
    /// Only white space.
    Empty,
    /// Valid beginning of a value.
    Open,
    /// Exactly one complete value.
    Whole,
    /// Invalid JSON, whatever follows.
    Broken,
}

/// Scans one JSON value in any number of parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scanner {
    /// One bit per level, the outermost first: set in an object, clear in an array.
    objects: [u64; MAX_DEPTH as usize / 64],
    depth: u32,
    at: At,
    /// Whether values count that many parsers accept, although they are not JSON.
    lenient: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    Value,
    FirstElement,
    FirstKey,
    Key,
    Colon,
    AfterValue,
    String(Role),
    Escape(Role),
    Hex(Role, u8),
    Word(&'static [u8]),
    Number(Digits),
    End,
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    Minus,
    Zero,
    Integer,
    Dot,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Scanner {
    /// Creates a scanner that also accepts `NaN`, `Infinity`, `-Infinity` and control characters in
    /// strings, as Python's parser and others do.
    pub(crate) fn lenient() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    /// Reads the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = self.push_until_end(rest);
            rest = rest.get(read..).unwrap_or_default();
            if self.at == At::End && !rest.is_empty() {
                // Only white space may follow a complete value.
                if rest.iter().any(|byte| !is_space(*byte)) {
                    self.at = At::Broken;
                }
                return;
            }
        }
    }

    /// Reads until the value is complete or broken, or until the last byte. Returns the number of
    /// bytes read.
    pub(crate) fn push_until_end(&mut self, bytes: &[u8]) -> usize {
        let read = self.read_until_end(bytes);
        crate::work::count(read);
        read
    }

    fn read_until_end(&mut self, bytes: &[u8]) -> usize {
        let mut read = 0;
        while let Some(&byte) = bytes.get(read) {
            if let At::String(role) = self.at {
                let rest = bytes.get(read..).unwrap_or_default();
                read += self.string(rest, role);
                continue;
            }
            if !self.step(byte) {
                // A number at the top ends before this byte, which is not part of it.
                return read;
            }
            read += 1;
            if matches!(self.at, At::End | At::Broken) {
                return read;
            }
        }
        read
    }

    /// Returns the state after the bytes so far.
    #[must_use]
    pub(crate) fn state(&self) -> JsonState {
        match self.at {
            At::Start => JsonState::Empty,
            At::End => JsonState::Whole,
            At::Broken => JsonState::Broken,
            At::Number(digits) if self.depth == 0 && digits.may_end() => JsonState::Whole,
            At::Value
            | At::FirstElement
            | At::FirstKey
            | At::Key
            | At::Colon
            | At::AfterValue
            | At::String(_)
            | At::Escape(_)
            | At::Hex(..)
            | At::Word(_)
            | At::Number(_) => JsonState::Open,
        }
    }

    /// Reports whether the value is complete and cannot grow, as a number could with more digits.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        self.at == At::End
    }

    /// Reads a string up to and including its quote or next escape, or up to the last byte.
    fn string(&mut self, bytes: &[u8], role: Role) -> usize {
        for (index, &byte) in bytes.iter().enumerate() {
            if byte == b'"' {
                self.at = match role {
                    Role::Key => At::Colon,
                    Role::Value => self.after_value(),
                };
                return index + 1;
            }
            if byte == b'\\' {
                self.at = At::Escape(role);
                return index + 1;
            }
            if byte < 0x20 && !self.lenient {
                self.at = At::Broken;
                return index + 1;
            }
        }
        bytes.len()
    }

    /// Reads one byte outside the plain part of a string. Returns false if the byte is not part of
    /// the value.
    fn step(&mut self, byte: u8) -> bool {
        self.at = match self.at {
            At::Start | At::Value | At::FirstElement if is_space(byte) => return true,
            At::FirstKey | At::Key | At::Colon | At::AfterValue if is_space(byte) => return true,
            At::FirstElement if byte == b']' => self.close(false),
            At::FirstKey if byte == b'}' => self.close(true),
            At::Start | At::Value | At::FirstElement => self.value(byte),
            At::FirstKey | At::Key if byte == b'"' => At::String(Role::Key),
            At::FirstKey | At::Key => At::Broken,
            At::Colon if byte == b':' => At::Value,
            At::Colon => At::Broken,
            At::AfterValue => self.next(byte),
            At::Escape(role) => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => At::String(role),
                b'u' => At::Hex(role, 4),
                _ => At::Broken,
            },
            At::Hex(role, left) if byte.is_ascii_hexdigit() => match left {
                1 => At::String(role),
                _ => At::Hex(role, left - 1),
            },
            At::Hex(..) => At::Broken,
            At::Word(rest) => match rest.split_first() {
                Some((&first, [])) if first == byte => self.after_value(),
                Some((&first, rest)) if first == byte => At::Word(rest),
                _ => At::Broken,
            },
            At::Number(Digits::Minus) if byte == b'I' && self.lenient => At::Word(b"nfinity"),
            At::Number(digits) => match digits.next(byte) {
                Some(digits) => At::Number(digits),
                None if !digits.may_end() => At::Broken,
                None => {
                    self.at = self.after_value();
                    return self.at != At::End && self.step(byte);
                }
            },
            At::String(role) => At::String(role),
            At::End => return false,
            At::Broken => At::Broken,
        };
        true
    }

    fn value(&mut self, byte: u8) -> At {
        match byte {
            b'{' => self.open(true),
            b'[' => self.open(false),
            b'"' => At::String(Role::Value),
            b't' => At::Word(b"rue"),
            b'f' => At::Word(b"alse"),
            b'n' => At::Word(b"ull"),
            b'-' => At::Number(Digits::Minus),
            b'0' => At::Number(Digits::Zero),
            b'1'..=b'9' => At::Number(Digits::Integer),
            b'N' if self.lenient => At::Word(b"aN"),
            b'I' if self.lenient => At::Word(b"nfinity"),
            _ => At::Broken,
        }
    }

    fn next(&mut self, byte: u8) -> At {
        let in_object = self.is_in_object();
        match byte {
            b',' if in_object => At::Key,
            b',' => At::Value,
            b'}' if in_object => self.close(true),
            b']' if !in_object => self.close(false),
            _ => At::Broken,
        }
    }

    fn open(&mut self, object: bool) -> At {
        if self.depth == MAX_DEPTH {
            return At::Broken;
        }
        let bit = 1 << (self.depth % 64);
        if let Some(word) = self.objects.get_mut(self.depth as usize / 64) {
            *word = if object { *word | bit } else { *word & !bit };
        }
        self.depth += 1;
        if object { At::FirstKey } else { At::FirstElement }
    }

    fn close(&mut self, object: bool) -> At {
        debug_assert_eq!(self.is_in_object(), object);
        self.depth -= 1;
        self.after_value()
    }

    /// Reports whether the innermost open value is an object.
    fn is_in_object(&self) -> bool {
        let level = self.depth.saturating_sub(1);
        self.objects.get(level as usize / 64).is_some_and(|word| word >> (level % 64) & 1 == 1)
    }

    fn after_value(&self) -> At {
        if self.depth == 0 { At::End } else { At::AfterValue }
    }
}

impl Digits {
    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::Power)
    }

    fn next(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Minus, b'0') => Some(Self::Zero),
            (Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => Some(Self::Integer),
            (Self::Zero | Self::Integer, b'.') => Some(Self::Dot),
            (Self::Dot | Self::Fraction, b'0'..=b'9') => Some(Self::Fraction),
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Some(Self::Exponent),
            (Self::Exponent, b'+' | b'-') => Some(Self::Sign),
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Some(Self::Power),
            _ => None,
        }
    }
}

/// Returns the length of the inside of a string, up to its quote; `None` if the scanner would not
/// take it, or the quote is missing.
pub(crate) fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => match *bytes.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}

/// Returns the length of an integer without a sign; `None` if there is none.
pub(crate) fn integer_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let leading_zero = length > 1 && bytes.first() == Some(&b'0');
    (length > 0 && !leading_zero).then_some(length)
}

/// Reports whether a byte is JSON white space.
#[must_use]
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of(text: &str) -> JsonState {
        let mut scanner = Scanner::default();
        scanner.push(text.as_bytes());
        scanner.state()
    }

    /// Returns the state of the same bytes according to `serde_json`.
    fn oracle(text: &str) -> JsonState {
        if text.bytes().all(is_space) {
            return JsonState::Empty;
        }
        match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => JsonState::Whole,
            Err(error) if error.is_eof() => JsonState::Open,
            // `serde_json` reports a number that lacks its next digit as invalid, not as
            // unfinished.
            Err(_) if text.ends_with(['-', '+', '.', 'e', 'E']) => {
                match oracle(&format!("{text}0")) {
                    JsonState::Broken => JsonState::Broken,
                    JsonState::Empty | JsonState::Open | JsonState::Whole => JsonState::Open,
                }
            }
            Err(_) => JsonState::Broken,
        }
    }

    const SAMPLES: &[&str] = &[
        r#"{"a":1,"b":[true,false,null,-0.5e+10,"x\"\\\u00e9"],"c":{}}"#,
        r#"[]"#,
        r#" [1 , 2 ,[ ]] "#,
        r#""text""#,
        "true",
        "-12.25",
        "0",
        "1e5",
    ];

    #[test]
    fn agrees_with_serde_on_every_prefix() {
        for sample in SAMPLES {
            for end in 0..=sample.len() {
                let (prefix, _) = sample.split_at(end);
                assert_eq!(state_of(prefix), oracle(prefix), "{prefix:?}");
            }
        }
    }

    #[test]
    fn agrees_with_serde_on_every_single_byte_change() {
        for sample in SAMPLES {
            for at in 0..sample.len() {
                for replacement in b"{}[]\",:\\/tfnu0159.-+eE \n\x01x" {
                    let mut bytes = sample.as_bytes().to_vec();
                    bytes[at] = *replacement;
                    let text = String::from_utf8(bytes).unwrap();
                    assert_eq!(state_of(&text), oracle(&text), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_lenient_scanner_accepts_what_other_parsers_do() {
        let lenient = |text: &str| {
            let mut scanner = Scanner::lenient();
            text.bytes().for_each(|byte| scanner.push(&[byte]));
            scanner.state()
        };
        for text in ["NaN", "[Infinity]", r#"{"a":-Infinity}"#, "\"a\nb\"", "[NaN,1,-2]"] {
            assert_eq!((lenient(text), state_of(text)), (JsonState::Whole, JsonState::Broken));
        }
        for text in ["[Nan]", "[-NaN]", "[+Infinity]", "{a:1}", "[1,]", "['a']", "[nul]"] {
            assert_eq!(lenient(text), JsonState::Broken, "{text}");
        }
        for sample in SAMPLES {
            assert_eq!(lenient(sample), JsonState::Whole, "{sample}");
        }
        assert_eq!(lenient("[Na"), JsonState::Open);
    }

    #[test]
    fn any_cutting_gives_the_same_state() {
        for sample in SAMPLES {
            for cut in 0..=sample.len() {
                let (head, tail) = sample.split_at(cut);
                let mut scanner = Scanner::default();
                scanner.push(head.as_bytes());
                scanner.push(tail.as_bytes());
                assert_eq!(scanner.state(), state_of(sample), "{head:?} + {tail:?}");
            }
        }
    }

    #[test]
    fn stops_right_after_the_value() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.push_until_end(br#"  {"a":[1]},{"b":2}"#), 11);
        assert_eq!(scanner.state(), JsonState::Whole);
    }

    #[test]
    fn depth_is_bounded() {
        for (depth, want) in [
            (127, JsonState::Whole),
            (129, JsonState::Whole),
            (512, JsonState::Whole),
            (513, JsonState::Broken),
            (100_000, JsonState::Broken),
        ] {
            let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(state_of(&text), want, "{depth}");
        }
    }

    #[test]
    fn brackets_match_at_every_depth() {
        for depth in [1_usize, 63, 64, 65, 128, 500] {
            let (open, close) = ("{\"a\":[".repeat(depth / 2 + 1), "]}".repeat(depth / 2 + 1));
            assert_eq!(state_of(&format!("{open}{close}")), JsonState::Whole, "{depth}");
            let wrong = format!("{open}{}", close.replacen(']', "}", 1));
            assert_eq!(state_of(&wrong), JsonState::Broken, "{depth}");
        }
    }
}
