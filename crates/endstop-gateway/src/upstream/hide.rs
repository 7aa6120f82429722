//! The gateway's own key, hidden in what an upstream sends back: it is not the caller's.
//!
//! The key becomes asterisks, as many as it has bytes, so that lengths stay true. Of a body that
//! passes by, only the beginning of a key at the end of a piece waits for the next piece. Upstreams
//! are asked for bodies that are not compressed; where one compresses all the same, its body is
//! passed on decoded.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use endstop::TransportEnd;
use hyper::body::{Body as _, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};

use super::{Part, part_of};
use crate::client::headers::encodings;
use crate::config::Secret;
use crate::respond::decode::{Decoded, Decoder};

/// Length of the shortest key that is hidden. Shorter ones occur in ordinary words.
const SHORTEST: usize = 8;

/// Hides a key in bytes that come in pieces.
#[derive(Debug)]
pub(crate) struct Hider {
    key: Secret,
    /// The beginning of what may be a key, at the end of the pieces so far.
    held: Bytes,
}

impl Hider {
    /// Returns a hider of this key; `None` if the key is too short to be told from words.
    pub(crate) fn new(key: &Secret) -> Option<Self> {
        let is_long = key.expose().len() >= SHORTEST;
        is_long.then(|| Self { key: key.clone(), held: Bytes::new() })
    }

    /// Hides the key in the values of headers.
    pub(crate) fn hide_in_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if let Some(hidden) = hidden(self.key(), value.as_bytes())
                && let Ok(hidden) = HeaderValue::from_maybe_shared(hidden)
            {
                *value = hidden;
            }
        }
    }

    /// Hides the key in bytes that are all there.
    pub(crate) fn hide(&self, bytes: Bytes) -> Bytes {
        hidden(self.key(), &bytes).unwrap_or(bytes)
    }

    /// Takes the next piece, and returns what may leave.
    fn push(&mut self, piece: Bytes) -> Bytes {
        let held = std::mem::take(&mut self.held);
        let piece = if held.is_empty() { piece } else { [held, piece].concat().into() };
        let mut piece = self.hide(piece);
        let at = piece.len() - begun(self.key(), &piece);
        self.held = piece.split_off(at);
        piece
    }

    fn key(&self) -> &[u8] {
        self.key.expose().as_bytes()
    }
}

/// Returns the bytes with the key hidden; `None` if they do not hold it.
fn hidden(key: &[u8], bytes: &[u8]) -> Option<Bytes> {
    let mut found = memchr::memmem::find_iter(bytes, key).peekable();
    found.peek()?;
    let mut hidden = BytesMut::from(bytes);
    for at in found {
        hidden.iter_mut().skip(at).take(key.len()).for_each(|byte| *byte = b'*');
    }
    Some(hidden.freeze())
}

/// Returns the length of the longest beginning of the key that the bytes end with.
fn begun(key: &[u8], bytes: &[u8]) -> usize {
    let longest = bytes.len().min(key.len().saturating_sub(1));
    let begins = |length: &usize| key.get(..*length).is_some_and(|head| bytes.ends_with(head));
    (1..=longest).rev().find(begins).unwrap_or(0)
}

/// A body in which the key is hidden.
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
        Hider::new(&Secret::new(key.to_owned())).unwrap()
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
        assert!(Hider::new(&Secret::new("EMPTY".to_owned())).is_none());
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
