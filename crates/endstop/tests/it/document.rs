//! A response split into its JSON documents, so that it can be written in another way.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::frame::aws;
use serde_json::Value;

use crate::sample::Dice;

/// A response as its frames.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) framing: Framing,
    pub(crate) parts: Vec<Part>,
}

/// Framing of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One JSON body.
    Body,
    /// Server-sent events, one part per line.
    Sse,
    /// One JSON value per line.
    Lines,
    /// One array.
    Array,
    /// An AWS event stream.
    Aws,
}

/// A frame, or a line of one.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// JSON, with the text before it on its line.
    Json { before: String, value: Value },
    /// A line without JSON.
    Line(String),
    /// A message of an AWS event stream. Its event may be wrapped in base64.
    Message { headers: Vec<(String, String)>, value: Value, wrapped: bool },
    /// A message without JSON.
    Bytes(Vec<u8>),
}

impl Part {
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Self::Json { value, .. } | Self::Message { value, .. } => Some(value),
            Self::Line(_) | Self::Bytes(_) => None,
        }
    }

    pub(crate) fn value_mut(&mut self) -> Option<&mut Value> {
        match self {
            Self::Json { value, .. } | Self::Message { value, .. } => Some(value),
            Self::Line(_) | Self::Bytes(_) => None,
        }
    }
}

/// Formatting of the JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) shuffled: bool,
    pub(crate) spaced: bool,
    pub(crate) escaped: bool,
}

impl Document {
    /// Parses bytes. Returns `None` if they are incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.first() == Some(&0) {
            return messages(bytes).map(|parts| Self { framing: Framing::Aws, parts });
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let json = |value| Part::Json { before: String::new(), value };
        match text.trim_start().chars().next()? {
            '{' => match serde_json::from_str(text) {
                Ok(value) => Some(Self { framing: Framing::Body, parts: vec![json(value)] }),
                Err(_) => {
                    let lines = text.lines().filter(|line| !line.trim().is_empty());
                    let parts: Option<Vec<Part>> =
                        lines.map(|line| serde_json::from_str(line).ok().map(json)).collect();
                    Some(Self { framing: Framing::Lines, parts: parts? })
                }
            },
            '[' => {
                let values: Vec<Value> = serde_json::from_str(text).ok()?;
                let parts = values.into_iter().map(json).collect();
                Some(Self { framing: Framing::Array, parts })
            }
            'd' | 'e' | 'i' | 'r' | ':' => {
                lines(text).map(|parts| Self { framing: Framing::Sse, parts })
            }
            _ => None,
        }
    }

    /// Writes the document in this style, with `\n` as line end.
    pub(crate) fn write(&self, style: Style, dice: &mut Dice) -> Vec<u8> {
        self.write_lines(style, dice, "\n")
    }

    /// Writes the document with these line ends.
    pub(crate) fn write_lines(&self, style: Style, dice: &mut Dice, end: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let breaks = matches!(self.framing, Framing::Body | Framing::Array);
        for (at, part) in self.parts.iter().enumerate() {
            if self.framing == Framing::Array {
                out.extend_from_slice(if at == 0 { b"[" } else { b"," });
            }
            match part {
                Part::Json { before, value } => {
                    out.extend_from_slice(before.as_bytes());
                    out.extend_from_slice(write(value, style, breaks, dice).as_bytes());
                }
                Part::Line(line) => out.extend_from_slice(line.as_bytes()),
                Part::Message { headers, value, wrapped } => {
                    let text = write(value, style, breaks, dice);
                    let payload = match wrapped {
                        true => format!("{{\"bytes\":\"{}\"}}", STANDARD.encode(text)),
                        false => text,
                    };
                    let headers: Vec<(&str, &str)> =
                        headers.iter().map(|(name, value)| (&**name, &**value)).collect();
                    out.extend(aws::encode(&headers, payload.as_bytes()));
                }
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
            }
            if matches!(self.framing, Framing::Sse | Framing::Lines) {
                out.extend_from_slice(end.as_bytes());
            }
        }
        if self.framing == Framing::Array {
            out.extend_from_slice(if self.parts.is_empty() { b"[]" } else { b"]" });
        }
        out
    }

    /// Changes every JSON value.
    pub(crate) fn map(&self, mut change: impl FnMut(&mut Value)) -> Self {
        let mut changed = self.clone();
        changed.parts.iter_mut().filter_map(Part::value_mut).for_each(&mut change);
        changed
    }
}

/// Returns the lines of server-sent events, or `None` if one has JSON that this parser rejects.
fn lines(text: &str) -> Option<Vec<Part>> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.split('\n')
        .map(|line| {
            let data = line.strip_prefix("data:").map(str::trim_start);
            match data.and_then(|data| serde_json::from_str::<Value>(data).ok()) {
                Some(value) if value.is_object() => {
                    Some(Part::Json { before: "data: ".to_owned(), value })
                }
                None if data.is_some_and(|data| data.contains("\\u")) => None,
                _ => Some(Part::Line(line.to_owned())),
            }
        })
        .collect()
}

fn messages(bytes: &[u8]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let number = |from: usize| {
            let four = rest.get(from..from + 4)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(four)).ok()
        };
        let (total, head) = (number(0)?, number(4)?);
        let message = rest.get(..total)?;
        rest = &rest[total..];
        let headers = headers(message.get(12..12 + head)?)?;
        let payload: Option<Value> =
            serde_json::from_slice(message.get(12 + head..total.checked_sub(4)?)?).ok();
        // Damaged messages are skipped.
        if aws::encode(&borrowed(&headers), &message[12 + head..total - 4]) != message {
            return None;
        }
        let inner = payload.as_ref().and_then(|payload| {
            let inner = STANDARD.decode(payload["bytes"].as_str()?).ok()?;
            serde_json::from_slice(&inner).ok()
        });
        parts.push(match (inner, payload) {
            (Some(value), _) => Part::Message { headers, value, wrapped: true },
            (None, Some(value)) => Part::Message { headers, value, wrapped: false },
            (None, None) => Part::Bytes(message.to_vec()),
        });
    }
    Some(parts)
}

fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// Returns the headers, which are strings at all of these services.
fn headers(mut bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let mut headers = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(bytes[0]);
        let name = String::from_utf8(bytes.get(1..=length)?.to_vec()).ok()?;
        let rest = bytes.get(1 + length..)?;
        if rest.first() != Some(&7) {
            return None;
        }
        let size = usize::from(u16::from_be_bytes(rest.get(1..3)?.try_into().ok()?));
        let value = String::from_utf8(rest.get(3..3 + size)?.to_vec()).ok()?;
        headers.push((name, value));
        bytes = &rest[3 + size..];
    }
    Some(headers)
}

fn write(value: &Value, style: Style, breaks: bool, dice: &mut Dice) -> String {
    let mut out = String::new();
    write_value(value, style, breaks, dice, &mut out);
    out
}

fn write_value(value: &Value, style: Style, breaks: bool, dice: &mut Dice, out: &mut String) {
    space(style, breaks, dice, out);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
        Value::String(text) => write_text(text, style, dice, out),
        Value::Array(list) => {
            out.push('[');
            for (at, one) in list.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_value(one, style, breaks, dice, out);
            }
            space(style, breaks, dice, out);
            out.push(']');
        }
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            if style.shuffled {
                dice.shuffle(&mut fields);
            }
            out.push('{');
            for (at, (key, one)) in fields.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                space(style, breaks, dice, out);
                write_text(key, style, dice, out);
                space(style, breaks, dice, out);
                out.push(':');
                write_value(one, style, breaks, dice, out);
            }
            space(style, breaks, dice, out);
            out.push('}');
        }
    }
    space(style, breaks, dice, out);
}

fn space(style: Style, breaks: bool, dice: &mut Dice, out: &mut String) {
    if style.spaced {
        let kinds =
            if breaks { &["", " ", "\t", "\n", "\r\n "][..] } else { &["", " ", "\t", "  "] };
        out.push_str(dice.pick::<&str>(kinds));
    }
}

fn write_text(text: &str, style: Style, dice: &mut Dice, out: &mut String) {
    if !style.escaped {
        out.push_str(&Value::from(text).to_string());
        return;
    }
    out.push('"');
    for letter in text.chars() {
        let plain = !matches!(letter, '"' | '\\') && letter >= ' ';
        if plain && dice.roll(3) > 0 {
            out.push(letter);
        } else if letter == '/' {
            out.push_str("\\/");
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out.push('"');
}

#[test]
fn what_is_written_is_what_was_read() {
    let styles = [Style::default(), Style { shuffled: true, spaced: true, escaped: true }];
    let body = r#"{"a":[1,{"b":"x\n\"\u00e9😀"}],"c":null}"#;
    let sse = "event: x\ndata: {\"a\":1}\n\ndata: [DONE]\n\n";
    for bytes in
        [body.as_bytes(), sse.as_bytes(), b"{\"a\":1}\n{\"b\":2}\n", b"[{\"a\":1},{\"b\":2}]"]
    {
        let first = Document::parse(bytes).unwrap();
        for style in styles {
            let again = Document::parse(&first.write(style, &mut Dice(7))).unwrap();
            let values = |document: &Document| -> Vec<Value> {
                document.parts.iter().filter_map(|part| part.value().cloned()).collect()
            };
            assert_eq!(values(&first), values(&again));
            assert_eq!(first.framing, again.framing);
        }
    }
}
