//! Repairs complete JSON that `serde_json` rejects: bytes that are not UTF-8, unpaired surrogates,
//! duplicate keys and numbers out of range.
//!
//! Providers send such JSON, and other parsers accept it: an unpaired surrogate becomes U+FFFD, and
//! the last of two equal keys counts.

use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::{JsonState, Scanner};

/// Maximum depth for the removal of duplicate keys. No wire reads values that deep.
const MAX_DEPTH: u32 = 24;

/// Returns the value as JSON that `serde_json` accepts; `None` if the bytes are not complete JSON.
pub(crate) fn mend(data: &[u8]) -> Option<Vec<u8>> {
    let mut scanner = Scanner::default();
    scanner.push(data);
    if scanner.state() != JsonState::Whole {
        return None;
    }
    let text = pair_surrogates(&String::from_utf8_lossy(data));
    let mut out = Vec::with_capacity(text.len());
    write_last_keys(&text, &mut out, 0)?;
    Some(out)
}

/// Returns the text of a JSON string, even with unpaired surrogates; `None` if it is not a string.
pub(crate) fn string(raw: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    match serde_json::from_str::<Borrowed<'_>>(raw) {
        Ok(Borrowed(text)) => Some(text),
        Err(_) => serde_json::from_str(&pair_surrogates(raw)).ok().map(Cow::Owned),
    }
}

/// Replaces each escape of an unpaired surrogate.
fn pair_surrogates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (escape, after) = match (unit(after), after.get(5..)) {
            (Some(first), Some(after)) => match (first, low_half(after)) {
                (0xd800..=0xdbff, Some((second, after))) => {
                    (Cow::Owned(format!("\\u{first:04x}\\u{second:04x}")), after)
                }
                (0xd800..=0xdfff, _) => (Cow::Borrowed("\\ufffd"), after),
                _ => (Cow::Owned(format!("\\u{first:04x}")), after),
            },
            // The character after a backslash may be a backslash, which does not start an escape.
            _ => {
                let end = after.chars().next().map_or(0, char::len_utf8);
                let (escaped, after) = after.split_at_checked(end).unwrap_or((after, ""));
                (Cow::Owned(format!("\\{escaped}")), after)
            }
        };
        out.push_str(&escape);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the code unit of an escape, given without its backslash.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix('u')?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

/// Returns the low surrogate at the beginning of the text, and the text after it.
fn low_half(text: &str) -> Option<(u16, &str)> {
    let escape = text.strip_prefix('\\')?;
    let second = unit(escape).filter(|unit| (0xdc00..=0xdfff).contains(unit))?;
    Some((second, escape.get(5..)?))
}

/// Object or list with unparsed values.
enum Level<'a> {
    Object(Vec<(String, &'a RawValue)>),
    List(Vec<&'a RawValue>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Level<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Level<'de>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object or a list")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Level<'de>, A::Error> {
                let mut entries: Vec<(String, &RawValue)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Level::Object(entries))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Level<'de>, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Level::List(values))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// Writes a value without duplicate keys. The last of equal keys stays.
fn write_last_keys(text: &str, out: &mut Vec<u8>, depth: u32) -> Option<()> {
    if depth == MAX_DEPTH || !text.trim_start().starts_with(['{', '[']) {
        // A number that large carries no information.
        let endless = text.trim().parse::<f64>().is_ok_and(f64::is_infinite);
        out.extend_from_slice(if endless { b"null" } else { text.as_bytes() });
        return Some(());
    }
    match serde_json::from_str::<Level<'_>>(text).ok()? {
        Level::Object(entries) => {
            let entries = last_of_each(entries);
            write_between(b"{", b"}", &entries, out, |(key, value), out| {
                serde_json::to_writer(&mut *out, key).ok()?;
                out.push(b':');
                write_last_keys(value.get(), out, depth + 1)
            })
        }
        Level::List(values) => write_between(b"[", b"]", &values, out, |value, out| {
            write_last_keys(value.get(), out, depth + 1)
        }),
    }
}

fn last_of_each(entries: Vec<(String, &RawValue)>) -> Vec<(String, &RawValue)> {
    let mut seen = std::collections::HashSet::new();
    let mut last: Vec<_> =
        entries.into_iter().rev().filter(|(key, _)| seen.insert(key.clone())).collect();
    last.reverse();
    last
}

fn write_between<T>(
    open: &[u8],
    close: &[u8],
    items: &[T],
    out: &mut Vec<u8>,
    mut write: impl FnMut(&T, &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    out.extend_from_slice(open);
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write(item, out)?;
    }
    out.extend_from_slice(close);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &[u8], to: Option<&str>) {
        let mended = mend(from).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(mended.as_deref(), to, "{}", String::from_utf8_lossy(from));
    }

    #[test]
    fn the_last_of_two_keys_counts_at_every_level() {
        check(br#"{"a":1,"b":2,"a":3}"#, Some(r#"{"b":2,"a":3}"#));
        check(br#"{"x":[{"a":1,"\u0061":2.50}]}"#, Some(r#"{"x":[{"a":2.50}]}"#));
        check(br#" [1, {"k":"v"}] "#, Some(r#"[1,{"k":"v"}]"#));
        check(b"7", Some("7"));
    }

    #[test]
    fn half_a_surrogate_pair_is_a_replacement() {
        check(br#"{"a":"hi \ud83d"}"#, Some(r#"{"a":"hi \ufffd"}"#));
        check(
            br#"{"a":"\ude00\ud83d\ude00\ud83d\ud83d"}"#,
            Some(r#"{"a":"\ufffd\ud83d\ude00\ufffd\ufffd"}"#),
        );
        check(br#"{"a":"\\ud83d\u00e9\n"}"#, Some(r#"{"a":"\\ud83d\u00e9\n"}"#));
        assert_eq!(string(r#""hi \ud83d""#).as_deref(), Some("hi \u{fffd}"));
        assert_eq!(string(r#""\ud83d\ude00""#).as_deref(), Some("\u{1f600}"));
        assert_eq!(string("{}"), None);
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced_and_half_a_value_is_not_mended() {
        check(b"{\"a\":\"\xff\"}", Some("{\"a\":\"\u{fffd}\"}"));
        check(br#"{"a":"hi \ud83d"#, None);
        check(br#"{"a":1,"a":"#, None);
        check(b"nonsense", None);
        check(b"", None);
    }

    #[test]
    fn deep_values_are_kept_as_they_are() {
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        check(deep.as_bytes(), Some(&deep));
    }
}
