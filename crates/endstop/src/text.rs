//! Sanitized text: limited in length, on one line, and without API keys.

/// Maximum length of a finish reason, in bytes.
pub const WORD_CAP: usize = 256;
/// Maximum length of a detail or a message, in bytes.
pub const DETAIL_CAP: usize = 1024;

/// Minimum length of an API key, in bytes.
const SHORTEST_KEY: usize = 12;

/// Prefixes of provider API keys and tokens.
const KEY_PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "pk-",
    "rk-",
    "AIza",
    "ya29.",
    "gsk_",
    "xai-",
    "pplx-",
    "hf_",
    "r8_",
    "csk-",
    "nvapi-",
    "fw_",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "github_pat_",
    "eyJ",
    "tgp_",
    "co-",
    "dapi",
    "jina_",
    "vck_",
    "bedrock-api-key-",
    "ABSK",
];

/// Prefixes of ids that providers make. They can be as long and as random as a key.
const ID_PREFIXES: &[&str] = &[
    "chatcmpl-",
    "cmpl-",
    "resp_",
    "rs_",
    "msg_",
    "fc_",
    "call_",
    "toolu_",
    "req_",
    "gen-",
    "batch_",
];

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
    KEY_PREFIXES.iter().any(|prefix| token.starts_with(prefix.as_bytes())) || looks_random(token)
}

fn looks_random(token: &[u8]) -> bool {
    token.len() >= 36
        && !token.contains(&b'.')
        && token.iter().any(u8::is_ascii_digit)
        && token.iter().any(u8::is_ascii_lowercase)
        && token.iter().any(u8::is_ascii_uppercase)
        && !ID_PREFIXES.iter().any(|prefix| token.starts_with(prefix.as_bytes()))
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

/// Rewrites the message of a file parser on one line, without the names of Rust types.
#[must_use]
pub fn plain_error(message: &str) -> String {
    let line = message.lines().collect::<Vec<_>>().join("; ");
    let words = line.split(' ').map(|word| match word {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i64" | "i128" => "a whole number",
        "f64" => "a number",
        "bool" => "true or false",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
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
}
