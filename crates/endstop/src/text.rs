//! Sanitized text: limited in length, on one line, and without API keys.

use std::sync::LazyLock;

use crate::provider;

/// Maximum length of a finish reason, in bytes.
pub const WORD_CAP: usize = 256;
/// Maximum length of a detail or a message, in bytes.
pub const DETAIL_CAP: usize = 1024;

/// Minimum length of an API key, in bytes.
const SHORTEST_KEY: usize = 12;

/// Prefixes of keys and tokens that belong to no provider: of many services, JSON web tokens, Jina and
/// Vercel.
const SHARED_KEY_PREFIXES: &[&str] = &["sk_", "pk-", "rk-", "eyJ", "jina_", "vck_"];

/// Prefixes of API keys and tokens, by their first byte: most texts begin like none of them.
static KEY_PREFIXES: LazyLock<Vec<Vec<&str>>> = LazyLock::new(|| {
    let own = provider::of_all(|provider| provider.key_prefixes);
    let mut by_first = vec![Vec::new(); 256];
    for prefix in own.into_iter().chain(SHARED_KEY_PREFIXES.iter().copied()) {
        let first = usize::from(prefix.as_bytes().first().copied().unwrap_or_default());
        if let Some(these) = by_first.get_mut(first) {
            these.push(prefix);
        }
    }
    by_first
});

/// Prefixes of ids that providers make.
static ID_PREFIXES: LazyLock<Vec<&str>> =
    LazyLock::new(|| provider::of_all(|provider| provider.id_prefixes));

/// Replaces API keys, escapes control characters, and cuts the text to `cap` bytes.
#[must_use]
pub fn clean(raw: &str, cap: usize) -> String {
    // Fast path: most texts are printable ASCII without a key.
    if raw.len() <= cap && is_harmless(raw) {
        return raw.to_owned();
    }
    let mut kept = String::with_capacity(raw.len().min(cap));
    for token in tokens(raw) {
        if is_key(token.as_bytes()) {
            push_capped(&mut kept, "[key]", cap);
        } else {
            push_capped(&mut kept, token, cap);
        }
        if kept.len() >= cap {
            break;
        }
    }
    kept
}

/// Splits text into runs of characters that can occur in a key, and runs of other characters.
fn tokens(raw: &str) -> impl Iterator<Item = &str> {
    let mut rest = raw;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|c| is_key_char(c) != is_key_char(first)).unwrap_or(rest.len());
        let (token, after) = rest.split_at_checked(end)?;
        rest = after;
        Some(token)
    })
}

/// Reports whether a text is printable ASCII and has no key.
fn is_harmless(raw: &str) -> bool {
    // Not `all`, which the compiler does not vectorize.
    let is_plain = raw.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
    let mut runs = raw.as_bytes().split(|byte| !is_key_char(char::from(*byte)));
    is_plain && !runs.any(is_key)
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*')
}

/// Reports whether a token looks like a key: a known prefix and sufficient length, or a long run
/// that mixes cases and digits and is not an id.
fn is_key(token: &[u8]) -> bool {
    if token.len() < SHORTEST_KEY {
        return false;
    }
    let first = token.first().copied().map(usize::from);
    let prefixes = first.and_then(|first| KEY_PREFIXES.get(first)).into_iter().flatten();
    has_prefix(token, prefixes) || looks_random(token)
}

fn has_prefix<'p>(token: &[u8], mut prefixes: impl Iterator<Item = &'p &'p str>) -> bool {
    prefixes.any(|prefix| token.starts_with(prefix.as_bytes()))
}

fn looks_random(token: &[u8]) -> bool {
    token.len() >= 36
        && !token.contains(&b'.')
        && token.iter().any(u8::is_ascii_digit)
        && token.iter().any(u8::is_ascii_lowercase)
        && token.iter().any(u8::is_ascii_uppercase)
        && !has_prefix(token, ID_PREFIXES.iter())
}

fn push_capped(kept: &mut String, text: &str, cap: usize) {
    if kept.len() + text.len() <= cap && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        kept.push_str(text);
        return;
    }
    for c in text.chars() {
        let hidden = c.is_control() || is_invisible(c);
        let width = if hidden { c.escape_unicode().len() } else { c.len_utf8() };
        if kept.len() + width > cap {
            return;
        }
        if hidden {
            kept.extend(c.escape_unicode());
        } else {
            kept.push(c);
        }
    }
}

/// Reports whether a character is invisible but affects how text is displayed.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Rewrites the message of a file parser on one line: what was expected and what was found, without the
/// names of Rust types. `noun` is the kind of a name that is unknown, such as `reason`.
#[must_use]
pub fn plain_error(message: &str, noun: &str) -> String {
    // The TOML parser passes on a date as a table with one key.
    if message.contains("$__toml_private") {
        return "a date or time is not allowed here".to_owned();
    }
    let line = message.lines().collect::<Vec<_>>().join("; ");
    let line = PLAIN.iter().fold(line, |line, (odd, plain)| line.replace(odd, plain));
    let line = without_type_names(&line);
    let words = line.split(' ').map(|word| match word {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i64" | "i128" => "a whole number",
        "f64" => "a number",
        "bool" => "true or false",
        word => word,
    });
    let line = words.collect::<Vec<_>>().join(" ");
    let Some((problem, expected)) = line.split_once(", expected ") else { return line };
    let found =
        ["invalid type: ", "invalid value: "].iter().find_map(|it| problem.strip_prefix(it));
    if let Some(found) = found {
        return format!("expected {expected}, found {found}");
    }
    match problem.strip_prefix("unknown variant ") {
        Some(name) => format!("unknown {noun} {name}: expected {expected}"),
        None => format!("{problem}: expected {expected}"),
    }
}

/// Phrases of the parsers, and what they are for people.
const PLAIN: &[(&str, &str)] = &[
    ("wanted string or table", "expected a string"),
    ("wanted exactly 1 element, found 0 elements", "expected a string, found an empty table"),
    ("a nonzero u64", "a whole number, 1 or more"),
    ("a nonzero u32", "a whole number, 1 or more"),
    ("a nonzero usize", "a whole number, 1 or more"),
    ("expected a map", "expected a table"),
    ("expected a sequence", "expected a list"),
    ("type: map,", "type: a table,"),
    ("type: sequence,", "type: a list,"),
    ("floating point", "number"),
];

/// Replaces the names of Rust types by "a table".
fn without_type_names(line: &str) -> String {
    let Some((before, rest)) = line.split_once("struct ") else { return line.to_owned() };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    format!("{before}a table{rest}")
}

/// Returns the number and the full key of each line of a TOML file that has a key.
pub fn toml_keys(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut table = String::new();
    text.lines().enumerate().filter_map(move |(number, line)| {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            table = header.split(']').next().unwrap_or_default().trim().to_owned();
            return Some((number + 1, table.clone()));
        }
        let (key, _) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        let dot = if table.is_empty() { "" } else { "." };
        Some((number + 1, format!("{table}{dot}{}", key.trim())))
    })
}

/// Returns the line at an offset in a TOML file, and the full key on that line; empty if it has none.
#[must_use]
pub fn toml_key_at(text: &str, offset: usize) -> (usize, String) {
    let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
    let key = toml_keys(text).find(|(number, _)| *number == line).map(|(_, key)| key);
    (line, key.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_never_stay() {
        let message = "Incorrect API key provided: sk-proj-abc123DEF456ghi789. See https://x/y?key=AIzaSyA1234567890abc now";
        let kept = clean(message, DETAIL_CAP);
        assert_eq!(kept, "Incorrect API key provided: [key] See https://x/y?key=[key] now");
        assert_eq!(clean("token Zx9aB8cD7eF6gH5iJ4kL3mN2oP1qR0sT9uV8", 99), "token [key]");
    }

    #[test]
    fn ordinary_words_stay() {
        let message = "model `claude-sonnet-4-5-20250929` on req 0b2f3c1e-1111-4222-8333-444455556666: too long";
        assert_eq!(clean(message, DETAIL_CAP), message);
    }

    #[test]
    fn ids_of_providers_stay() {
        for id in [
            "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
            "resp_67ccd2bed1ec8190b14f964abc0542670bb6A6b452d3795b",
        ] {
            assert_eq!(clean(id, DETAIL_CAP), id);
            let (_, random) = id.split_at(2);
            assert_eq!(clean(random, DETAIL_CAP), "[key]");
        }
    }

    #[test]
    fn control_characters_are_escaped_and_the_cap_holds() {
        assert_eq!(clean("a\u{1b}[31mb\r\n", 99), "a\\u{1b}[31mb\\u{d}\\u{a}");
        assert_eq!(clean("\u{202e}x", 99), "\\u{202e}x");
        assert_eq!(clean(&"é".repeat(500), WORD_CAP).len(), 256);
        assert_eq!(clean("ab\u{1b}", 5), "ab");
    }

    #[test]
    fn errors_of_parsers_are_rewritten() {
        let plain = |message: &str| plain_error(message, "reason");
        for (message, want) in [
            (
                "invalid type: string \"x\", expected u32",
                "expected a whole number, 0 or more, found string \"x\"",
            ),
            ("unknown variant `a`, expected `b` or `c`", "unknown reason `a`: expected `b` or `c`"),
            ("unknown field `a`, expected `b`", "unknown field `a`: expected `b`"),
            ("missing field `a`", "missing field `a`"),
            ("a\nb", "a; b"),
            (
                "invalid type: map, expected u32",
                "expected a whole number, 0 or more, found a table",
            ),
            (
                "invalid type: integer `3`, expected struct Price",
                "expected a table, found integer `3`",
            ),
            (
                "invalid value: integer `0`, expected a nonzero u64",
                "expected a whole number, 1 or more, found integer `0`",
            ),
            ("invalid type: sequence, expected a map", "expected a table, found a list"),
            (
                "invalid type: string \"$__toml_private_datetime\", expected a spanned value",
                "a date or time is not allowed here",
            ),
        ] {
            assert_eq!(plain(message), want);
        }
    }
}
