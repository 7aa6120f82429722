//! Repairs complete JSON that `serde_json` rejects: bytes that are not UTF-8, unpaired surrogates,
//! duplicate keys, numbers out of range, `NaN`, `Infinity` and control characters in strings.
//!
//! Providers send such JSON, and other parsers accept it: an unpaired surrogate becomes U+FFFD, and
//! the last of two equal keys counts. A few parsers take the first one, so that reading is given as
//! well if it differs. `NaN` becomes null in one reading and zero in the other, so that arguments
//! of a tool call that contain it differ, too.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::{JsonState, Scanner};

/// Maximum depth for the removal of duplicate keys. No wire reads values that deep.
const MAX_DEPTH: u32 = 24;

/// Maximum number of values that are looked at. A value with more is not mended: equal keys among a
/// million others would take seconds to find.
const MAX_VALUES: usize = 250_000;

/// Of two equal keys, the one that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    First,
    Last,
}

/// Repaired JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mended {
    /// The value with the last of equal keys.
    pub(crate) last: Vec<u8>,
    /// Another reading: the value with the first of equal keys, and with zero for `NaN`.
    pub(crate) first: Option<Vec<u8>>,
}

/// Returns the value as JSON that `serde_json` accepts; `None` if the bytes are not complete JSON, or
/// hold too many values.
pub(crate) fn mend(data: &[u8]) -> Option<Mended> {
    let mut scanner = Scanner::lenient();
    scanner.push(data);
    if scanner.state() != JsonState::Whole {
        return None;
    }
    let text = pair_surrogates(&String::from_utf8_lossy(data));
    let write = |counts, number| {
        let text = plain_json(&text, number);
        let out = Vec::with_capacity(text.len());
        let mut writer = Writer { counts, out, differ: false, left: MAX_VALUES };
        writer.write(&text, 0)?;
        Some((writer, matches!(text, Cow::Owned(_))))
    };
    let (Writer { out: last, differ, .. }, changed) = write(Counts::Last, "null")?;
    let first = if differ || changed { write(Counts::First, "0") } else { None };
    let first = first.map(|(writer, _)| writer.out).filter(|first| *first != last);
    Some(Mended { last, first })
}

/// Reports whether every bracket is closed and no string is open, even if the bytes are not JSON.
pub(crate) fn is_closed(data: &[u8]) -> bool {
    let (mut depth, mut is_open, mut seen) = (0_i64, false, false);
    let mut bytes = data.iter();
    while let Some(byte) = bytes.next() {
        match (is_open, byte) {
            (_, b'"') => is_open = !is_open,
            (true, b'\\') => {
                bytes.next();
            }
            (false, b'{' | b'[') => (depth, seen) = (depth + 1, true),
            (false, b'}' | b']') => depth -= 1,
            (_, _) => {}
        }
    }
    seen && !is_open && depth <= 0
}

/// Escapes control characters in strings, and replaces numbers that are not JSON. The text is what a
/// lenient scanner accepts.
fn plain_json<'t>(text: &'t str, number: &str) -> Cow<'t, str> {
    let mut out = String::new();
    let (mut kept, mut at, mut is_open) = (0, 0, false);
    while let Some(byte) = text.as_bytes().get(at) {
        let (length, by) = match (is_open, byte) {
            (true, b'\\') => {
                at += 2;
                continue;
            }
            (true, 0..0x20) => (1, format!("\\u{byte:04x}")),
            (false, b'N') => ("NaN".len(), number.to_owned()),
            (false, b'I') => ("Infinity".len(), number.to_owned()),
            (false, b'-') if text.as_bytes().get(at + 1) == Some(&b'I') => {
                ("-Infinity".len(), number.to_owned())
            }
            (_, _) => {
                is_open ^= *byte == b'"';
                at += 1;
                continue;
            }
        };
        out.push_str(text.get(kept..at).unwrap_or_default());
        out.push_str(&by);
        at += length;
        kept = at;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(kept..).unwrap_or_default());
    Cow::Owned(out)
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
                    check_count(entries.len())?;
                    entries.push(entry);
                }
                Ok(Level::Object(entries))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Level<'de>, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    check_count(values.len())?;
                    values.push(value);
                }
                Ok(Level::List(values))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

fn check_count<E: serde::de::Error>(count: usize) -> Result<(), E> {
    if count < MAX_VALUES { Ok(()) } else { Err(E::custom("too many values")) }
}

/// Writes values without duplicate keys.
struct Writer {
    counts: Counts,
    out: Vec<u8>,
    /// Whether equal keys had different values.
    differ: bool,
    /// Number of values that may still be looked at.
    left: usize,
}

impl Writer {
    fn write(&mut self, text: &str, depth: u32) -> Option<()> {
        crate::work::count(text.len());
        self.left = self.left.checked_sub(1)?;
        if depth == MAX_DEPTH || !text.trim_start().starts_with(['{', '[']) {
            // A number that large carries no information.
            let endless = text.trim().parse::<f64>().is_ok_and(f64::is_infinite);
            self.out.extend_from_slice(if endless { b"null" } else { text.as_bytes() });
            return Some(());
        }
        match serde_json::from_str::<Level<'_>>(text).ok()? {
            Level::Object(entries) => {
                let entries = self.one_of_each(entries);
                self.write_between(b"{", b"}", &entries, |writer, (key, value)| {
                    serde_json::to_writer(&mut writer.out, key).ok()?;
                    writer.out.push(b':');
                    writer.write(value.get(), depth + 1)
                })
            }
            Level::List(values) => self.write_between(b"[", b"]", &values, |writer, value| {
                writer.write(value.get(), depth + 1)
            }),
        }
    }

    /// Returns the entries without those whose key counts elsewhere.
    fn one_of_each<'a>(
        &mut self,
        mut entries: Vec<(String, &'a RawValue)>,
    ) -> Vec<(String, &'a RawValue)> {
        if self.counts == Counts::Last {
            entries.reverse();
        }
        let mut seen: HashMap<String, &'a RawValue> = HashMap::with_capacity(entries.len());
        entries.retain(|(key, value)| match seen.get(key) {
            None => {
                seen.insert(key.clone(), value);
                true
            }
            Some(known) => {
                self.differ |= known.get() != value.get();
                false
            }
        });
        if self.counts == Counts::Last {
            entries.reverse();
        }
        entries
    }

    fn write_between<T>(
        &mut self,
        open: &[u8],
        close: &[u8],
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Option<()>,
    ) -> Option<()> {
        self.out.extend_from_slice(open);
        for (position, item) in items.iter().enumerate() {
            if position > 0 {
                self.out.push(b',');
            }
            write(self, item)?;
        }
        self.out.extend_from_slice(close);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &[u8], to: Option<&str>) {
        let mended = mend(from).map(|mended| String::from_utf8(mended.last).unwrap());
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
    fn the_first_of_two_keys_is_told_where_it_differs() {
        let first = |from: &str| {
            let first = mend(from.as_bytes()).unwrap().first;
            first.map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(first(r#"{"a":1,"b":2,"a":3}"#).as_deref(), Some(r#"{"a":1,"b":2}"#));
        assert_eq!(first(r#"[{"a":{"b":1,"b":1}, "a":2}]"#).as_deref(), Some(r#"[{"a":{"b":1}}]"#));
        assert_eq!(first(r#"{"a":1,"b":2,"a":1}"#), None);
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
    fn what_lenient_parsers_accept_is_mended() {
        check(br#"{"a":NaN,"b":[-Infinity,Infinity]}"#, Some(r#"{"a":null,"b":[null,null]}"#));
        check(b"{\"a\":\"x\ny\\\"\tNaN\"}", Some("{\"a\":\"x\\u000ay\\\"\\u0009NaN\"}"));
        check(br#"{"a":1,}"#, None);
        check(br#"{"a":NaN"#, None);
        let first = |from: &str| mend(from.as_bytes()).unwrap().first;
        assert_eq!(first(r#"{"a":NaN}"#).as_deref(), Some(&br#"{"a":0}"#[..]));
        assert_eq!(first("{\"a\":\"x\ny\"}"), None);
    }

    #[test]
    fn brackets_show_whether_a_value_is_closed() {
        for (text, want) in [
            (r#"{"a":1,}"#, true),
            (r#"{"a":"}"#, false),
            (r#"{"a":"\"}"}"#, true),
            (r#"{"a":[1,}"#, false),
            ("{}garbage", true),
            ("garbage", false),
            ("", false),
        ] {
            assert_eq!(is_closed(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn a_value_with_too_many_values_is_not_mended() {
        let keys = |count: usize| {
            let keys: Vec<String> = (0..count).map(|key| format!("\"{key}\":1")).collect();
            format!("{{\"a\":1,\"a\":2,{}}}", keys.join(","))
        };
        assert!(mend(keys(100_000).as_bytes()).is_some());
        assert_eq!(mend(keys(MAX_VALUES).as_bytes()), None);
        let many = format!("[{0},{0},{0}]", keys(100_000));
        assert_eq!(mend(many.as_bytes()), None, "they count together");
    }

    #[test]
    fn deep_values_are_kept_as_they_are() {
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        check(deep.as_bytes(), Some(&deep));
    }
}
