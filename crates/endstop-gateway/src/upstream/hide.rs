//! The gateway's own secrets, hidden in what an upstream sends back: they are not the caller's.
//!
//! A secret becomes asterisks, as many as it has bytes, so that lengths stay true. Of a body that
//! passes by, only the beginning of a secret at the end of a piece waits for the next piece. Upstreams
//! are asked for bodies that are not compressed; where one compresses all the same, its body is
//! passed on decoded.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use endstop::TransportEnd;
use hyper::body::{Body as _, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};

use super::{Part, part_of};
use crate::client::headers::encodings;
use crate::config::Secret;
use crate::respond::decode::{Decoded, Decoder};

/// Length of the shortest secret that is hidden. Shorter ones occur in ordinary words.
pub(crate) const SHORTEST: usize = 8;

/// The most backslashes before a character of a secret: JSON in a string of JSON in a string of JSON.
const MOST_BACKSLASHES: usize = 8;

/// The secrets that the gateway sends to an upstream.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnSecrets(Option<Arc<[Secret]>>);

impl OwnSecrets {
    /// Returns those of these secrets that are long enough to be told from words.
    pub(crate) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let long: Arc<[Secret]> = secrets.into_iter().filter(is_long).collect();
        Self((!long.is_empty()).then_some(long))
    }

    /// Reports whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns a hider of them, if there are any.
    pub(crate) fn hider(&self) -> Option<Hider> {
        let secrets = self.0.clone()?;
        Some(Hider { secrets, held: Bytes::new() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter().flat_map(|secrets| secrets.iter())
    }
}

/// Reports whether a secret is long enough to be hidden.
pub(crate) fn is_long(secret: &Secret) -> bool {
    secret.expose().bytes().filter(|byte| *byte != b'\\').count() >= SHORTEST
}

/// Hides secrets in bytes that come in pieces.
#[derive(Debug)]
pub(crate) struct Hider {
    secrets: Arc<[Secret]>,
    /// The beginning of what may be a secret, at the end of the pieces so far.
    held: Bytes,
}

impl Hider {
    /// Hides the secrets in the values of headers.
    pub(crate) fn hide_in_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if let (Some(hidden), _) = self.hidden(value.as_bytes())
                && let Ok(hidden) = HeaderValue::from_maybe_shared(hidden)
            {
                *value = hidden;
            }
        }
    }

    /// Hides the secrets in bytes that are all there.
    pub(crate) fn hide(&self, bytes: Bytes) -> Bytes {
        self.hidden(&bytes).0.unwrap_or(bytes)
    }

    /// Takes the next piece, and returns what may leave.
    fn push(&mut self, piece: Bytes) -> Bytes {
        let held = std::mem::take(&mut self.held);
        let piece = if held.is_empty() { piece } else { [held, piece].concat().into() };
        let (hidden, begun) = self.hidden(&piece);
        let mut piece = hidden.unwrap_or(piece);
        self.held = piece.split_off(begun);
        piece
    }

    /// Returns the bytes with the secrets hidden, unless they hold none; and where a secret begins that
    /// the bytes do not end.
    fn hidden(&self, bytes: &[u8]) -> (Option<Bytes>, usize) {
        let mut hidden: Option<BytesMut> = None;
        let mut begun = bytes.len();
        for secret in &*self.secrets {
            let of_this = find(secret.expose(), bytes, |range| {
                let hidden = hidden.get_or_insert_with(|| BytesMut::from(bytes));
                hidden.get_mut(range).into_iter().flatten().for_each(|byte| *byte = b'*');
            });
            begun = begun.min(of_this);
        }
        (hidden.map(BytesMut::freeze), begun)
    }
}

/// Finds a secret, also where its characters are escaped as JSON escapes them, and returns where one
/// begins that the bytes do not end: their length if none does.
///
/// Backslashes do not count, neither in the secret nor in the bytes. So a secret is found in JSON, and in
/// a string of JSON that holds JSON.
pub(crate) fn find(secret: &str, bytes: &[u8], mut found: impl FnMut(Range<usize>)) -> usize {
    let secret = secret.as_bytes();
    let Some(first) = secret.iter().copied().find(|byte| *byte != b'\\') else {
        return bytes.len();
    };
    let mut at = 0;
    while let Some(rest) = bytes.get(at..)
        && let Some(next) = memchr::memchr2(first, b'\\', rest)
    {
        at += next;
        match Spelled::at(secret, rest.get(next..).unwrap_or_default()) {
            Spelled::No => at += 1,
            Spelled::Begun => return at,
            Spelled::Whole(length) => {
                found(at..at + length);
                at += length;
            }
        }
    }
    bytes.len()
}

/// Whether bytes begin with a secret.
enum Spelled {
    No,
    /// They end within it.
    Begun,
    /// They do, with this many bytes.
    Whole(usize),
}

impl Spelled {
    fn at(secret: &[u8], bytes: &[u8]) -> Self {
        let mut rest = bytes;
        for wanted in secret.iter().filter(|byte| **byte != b'\\') {
            let backslashes = rest.iter().take_while(|byte| **byte == b'\\').count();
            if backslashes > MOST_BACKSLASHES {
                return Self::No;
            }
            rest = rest.get(backslashes..).unwrap_or_default();
            rest = match rest {
                [] => return Self::Begun,
                [b'u', digits @ ..] if backslashes > 0 => match (digits.get(..4), wanted) {
                    (Some(four), _) if code(four) == Some(u32::from(*wanted)) => {
                        digits.get(4..).unwrap_or_default()
                    }
                    (None, _) if digits.iter().all(u8::is_ascii_hexdigit) => return Self::Begun,
                    (Some(_) | None, b'u') => digits,
                    (Some(_) | None, _) => return Self::No,
                },
                [byte, after @ ..] if byte == wanted => after,
                [_, ..] => return Self::No,
            };
        }
        Self::Whole(bytes.len() - rest.len())
    }
}

/// Returns the number that hexadecimal digits stand for.
fn code(digits: &[u8]) -> Option<u32> {
    // A sign would be taken for a digit.
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A body in which the secrets are hidden.
#[derive(Debug)]
pub(crate) struct Hiding {
    body: Incoming,
    hider: Hider,
    decoding: Decoding,
    /// The part that follows what was held.
    next: Option<Part>,
}

/// Whether the body must be decoded.
#[derive(Debug)]
enum Decoding {
    No,
    /// The head lists these encodings, and nothing has come.
    Listed(String),
    /// With what is left of the last piece.
    Yes(Box<Decoder>, Bytes),
}

impl Hiding {
    /// Returns the body of a response with these headers, which become those of a body that is not
    /// compressed.
    pub(super) fn new(body: Incoming, hider: Hider, headers: &mut HeaderMap) -> Self {
        hider.hide_in_headers(headers);
        let listed = encodings(headers);
        let decoding = if listed.is_empty() {
            Decoding::No
        } else {
            headers.remove(header::CONTENT_ENCODING);
            headers.remove(header::CONTENT_LENGTH);
            Decoding::Listed(listed)
        };
        Self { body, hider, decoding, next: None }
    }

    pub(super) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Part> {
        if let Some(next) = self.next.take() {
            return Poll::Ready(next);
        }
        loop {
            let part = match &self.decoding {
                Decoding::Yes(_, rest) if !rest.is_empty() => self.decode(),
                Decoding::No | Decoding::Listed(_) | Decoding::Yes(..) => {
                    let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
                    match part_of(frame) {
                        Part::Data(bytes) => self.take(bytes),
                        other @ (Part::Trailers(_) | Part::End(_)) => other,
                    }
                }
            };
            let part = match part {
                Part::Data(bytes) => match self.hider.push(bytes) {
                    ready if ready.is_empty() => continue,
                    ready => return Poll::Ready(Part::Data(ready)),
                },
                Part::Trailers(mut trailers) => {
                    self.hider.hide_in_headers(&mut trailers);
                    Part::Trailers(trailers)
                }
                end @ Part::End(_) => end,
            };
            let held = std::mem::take(&mut self.hider.held);
            if held.is_empty() {
                return Poll::Ready(part);
            }
            self.next = Some(part);
            return Poll::Ready(Part::Data(held));
        }
    }

    /// Takes a piece of the body.
    fn take(&mut self, bytes: Bytes) -> Part {
        if bytes.is_empty() {
            return Part::Data(bytes);
        }
        if let Decoding::Listed(listed) = &self.decoding {
            self.decoding = match Decoder::new(listed, &bytes) {
                None => Decoding::No,
                Some(decoder) => Decoding::Yes(Box::new(decoder), Bytes::new()),
            };
        }
        match &mut self.decoding {
            Decoding::No | Decoding::Listed(_) => Part::Data(bytes),
            Decoding::Yes(_, rest) => {
                *rest = bytes;
                self.decode()
            }
        }
    }

    /// Decodes a slice of the piece at hand.
    fn decode(&mut self) -> Part {
        let Decoding::Yes(decoder, rest) = &mut self.decoding else {
            return Part::Data(Bytes::new());
        };
        let mut slice = Vec::new();
        match decoder.decode(rest, |bytes| slice.extend_from_slice(bytes)) {
            Decoded::All | Decoded::Part => Part::Data(slice.into()),
            Decoded::Corrupt | Decoded::TooMuch => Part::End(TransportEnd::Reset),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let is_decoded = match &self.decoding {
            Decoding::No | Decoding::Listed(_) => true,
            Decoding::Yes(_, rest) => rest.is_empty(),
        };
        let nothing_held = self.hider.held.is_empty() && self.next.is_none();
        is_decoded && nothing_held && self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        if !matches!(self.decoding, Decoding::No) {
            return SizeHint::default();
        }
        let held = self.hider.held.len() as u64;
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + held);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hider(key: &str) -> Hider {
        OwnSecrets::new([Secret::new(key.to_owned())]).hider().unwrap()
    }

    /// Returns what leaves if the bytes come in these two pieces.
    fn hidden_in_pieces(mut hider: Hider, text: &str, cut: usize) -> String {
        let (first, second) = text.as_bytes().split_at(cut);
        let mut out = Vec::new();
        for piece in [first, second] {
            out.extend_from_slice(&hider.push(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&hider.held);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_key_is_hidden_however_json_spells_it() {
        let key = r#"k/e"y\of+the&gateway"#;
        let json = serde_json::to_string(key).unwrap();
        let in_json = serde_json::to_string(&json).unwrap();
        for spelled in [
            key,
            json.trim_matches('"'),
            in_json.trim_matches('"'),
            serde_json::to_string(&in_json).unwrap().trim_matches('"'),
            &json.trim_matches('"').replace('/', r"\/"),
            &json.trim_matches('"').replace('+', r"\u002B").replace('&', r"\u0026"),
            &key.chars().map(|c| format!(r"\u{:04x}", u32::from(c))).collect::<String>(),
        ] {
            let text = format!(r#"{{"message":"wrong: {spelled}, k/e\"y"}}"#);
            for cut in 0..=text.len() {
                let hidden = hidden_in_pieces(hider(key), &text, cut);
                assert_eq!(hidden.len(), text.len(), "lengths stay true: {hidden}");
                let (before, after) = (r#"{"message":"wrong: "#, r#", k/e\"y"}"#);
                assert!(hidden.starts_with(before) && hidden.ends_with(after), "{hidden}");
                assert!(!hidden.contains("gateway") && !hidden.contains("of+"), "{hidden}");
            }
        }
    }

    #[test]
    fn what_only_resembles_a_key_stays() {
        for text in [
            r"key\u006fther",
            r"key-of-the-gatewa\u0078",
            r"\\\\\\\\\\",
            r"key-of-the-gatewa\u00",
            r"k\u+065y-of-the-gateway",
            "key-of-the-gatewa",
        ] {
            for cut in 0..=text.len() {
                assert_eq!(hidden_in_pieces(hider("key-of-the-gateway"), text, cut), text);
            }
        }
    }

    #[test]
    fn all_secrets_are_hidden() {
        let secrets = ["key-of-the-gateway", "session/token+of=="];
        let secrets = OwnSecrets::new(secrets.map(|text| Secret::new(text.to_owned())));
        let text = r"session\/token+of== key-of-the-gateway, session/tok";
        for cut in 0..=text.len() {
            let hidden = hidden_in_pieces(secrets.hider().unwrap(), text, cut);
            assert_eq!(hidden, "******************* ******************, session/tok");
        }
    }

    #[test]
    fn a_key_is_hidden_wherever_it_is_cut() {
        let text = "wrong: key-of-the-gateway, key-key-of-the-gateway key-of";
        let want = "wrong: ******************, key-****************** key-of";
        for cut in 0..=text.len() {
            for second in cut..=text.len() {
                let mut hider = hider("key-of-the-gateway");
                let mut out = Vec::new();
                let bytes = text.as_bytes();
                for piece in [&bytes[..cut], &bytes[cut..second], &bytes[second..]] {
                    out.extend_from_slice(&hider.push(Bytes::copy_from_slice(piece)));
                    assert!(hider.held.len() < 18);
                }
                out.extend_from_slice(&hider.held);
                assert_eq!(String::from_utf8(out).unwrap(), want, "{cut} {second}");
            }
        }
    }

    #[test]
    fn bytes_without_a_key_do_not_wait() {
        let mut hider = hider("key-of-the-gateway");
        for piece in ["data: {\"a\":1}\n\n", "data: keys\n\n", ""] {
            assert_eq!(hider.push(Bytes::from_static(piece.as_bytes())), piece);
        }
        let short = ["EMPTY", r"a\b\c\d\e"].map(|text| Secret::new(text.to_owned()));
        assert!(OwnSecrets::new(short).is_empty());
    }

    #[test]
    fn headers_keep_the_rest_of_their_value() {
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", "of key-of-the-gateway".parse().unwrap());
        headers.insert("x-other", "kept".parse().unwrap());
        hider("key-of-the-gateway").hide_in_headers(&mut headers);
        assert_eq!(headers["x-request-id"], "of ******************");
        assert_eq!(headers["x-other"], "kept");
    }
}
