//! The AWS event stream: length-prefixed messages with headers and two checksums.
//!
//! A message has a 12-byte prelude (total length, length of the headers, CRC-32 of these eight
//! bytes), headers, a payload, and the CRC-32 of all preceding bytes (botocore `eventstream.py`).
//! The format has no end marker.

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine as _, alphabet};
use serde::Deserialize;
use serde_json::Value;

use super::{Broken, Frame, FrameKind, Rest};
use crate::mend::mend;

const PRELUDE: usize = 12;
const CHECKSUM: usize = 4;
const MAX_HEADERS: usize = 128 * 1024;

/// Splits an AWS event stream into messages.
#[derive(Clone, Debug)]
pub struct Aws {
    limit: usize,
    /// Whether payloads are `{"bytes": base64}` and are decoded.
    wrapped: bool,
    /// Beginning of an incomplete message.
    carry: Vec<u8>,
    /// Length of the part of the last chunk that ends with a complete message.
    whole: usize,
    decoded: Vec<u8>,
    /// Headers of the last event and its name, since most events repeat them.
    last: (Vec<u8>, String),
    /// Hasher that is cloned, since creating one queries the features of the processor.
    hasher: crc32fast::Hasher,
}

/// Relevant headers, borrowed from the message.
#[derive(Default)]
struct Headers<'a> {
    message_type: &'a str,
    event_type: &'a str,
    exception_type: &'a str,
    error_code: &'a str,
    error_message: &'a str,
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    bytes: &'a str,
}

impl Aws {
    /// Creates a framer for payloads of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            wrapped: false,
            carry: Vec::new(),
            whole: 0,
            decoded: Vec::new(),
            last: (Vec::new(), String::new()),
            hasher: crc32fast::Hasher::new(),
        }
    }

    /// Creates a framer for payloads that wrap another wire's events in base64.
    #[must_use]
    pub fn wrapped(limit: usize) -> Self {
        Self { wrapped: true, ..Self::new(limit) }
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// Returns [`Broken::Corrupt`] if a checksum or a length is wrong, and [`Broken::Oversize`] if
    /// a message is larger than the limit.
    pub fn push(&mut self, chunk: &[u8], mut sink: impl FnMut(Frame<'_>)) -> Result<(), Broken> {
        let mut rest = chunk;
        self.whole = 0;
        if !self.carry.is_empty() {
            rest = self.finish_carried(rest, &mut sink)?;
        }
        while let Some(length) = self.length(rest)? {
            let Some((message, after)) = rest.split_at_checked(length) else { break };
            self.whole = chunk.len() - after.len();
            self.read(message, &mut sink)?;
            rest = after;
        }
        self.carry.extend_from_slice(rest);
        Ok(())
    }

    /// Returns the length of the part of the last chunk that ends with a complete message.
    pub(crate) fn whole(&self) -> usize {
        self.whole
    }

    /// Ends the stream.
    #[must_use]
    pub fn finish(self) -> Rest {
        if self.carry.is_empty() { Rest::Nothing } else { Rest::CutFrame }
    }

    /// Completes a message from an earlier chunk. Returns the bytes after it.
    fn finish_carried<'a>(
        &mut self,
        mut chunk: &'a [u8],
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<&'a [u8], Broken> {
        let length = chunk.len();
        loop {
            let wanted = self.length(&self.carry)?.unwrap_or(PRELUDE);
            if self.carry.len() == wanted && wanted > PRELUDE {
                break;
            }
            let missing = wanted.saturating_sub(self.carry.len());
            if chunk.is_empty() {
                return Ok(chunk);
            }
            let (piece, after) = chunk.split_at_checked(missing).unwrap_or((chunk, &[]));
            self.carry.extend_from_slice(piece);
            chunk = after;
        }
        self.whole = length - chunk.len();
        let mut message = std::mem::take(&mut self.carry);
        self.read(&message, sink)?;
        message.clear();
        self.carry = message;
        Ok(chunk)
    }

    /// Returns the length of the message at this position, if its prelude is complete.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        let Some((prelude, _)) = bytes.split_first_chunk::<PRELUDE>() else { return Ok(None) };
        let [t0, t1, t2, t3, h0, h1, h2, h3, c0, c1, c2, c3] = *prelude;
        let lengths = [t0, t1, t2, t3, h0, h1, h2, h3];
        if self.checksum(&lengths) != u32::from_be_bytes([c0, c1, c2, c3]) {
            return Err(Broken::Corrupt);
        }
        let total = u32::from_be_bytes([t0, t1, t2, t3]) as usize;
        let headers = u32::from_be_bytes([h0, h1, h2, h3]) as usize;
        if headers > MAX_HEADERS || total < PRELUDE + headers + CHECKSUM {
            return Err(Broken::Corrupt);
        }
        if total - PRELUDE - headers - CHECKSUM > self.limit {
            return Err(Broken::Oversize);
        }
        Ok(Some(total))
    }

    fn read(&mut self, message: &[u8], sink: &mut impl FnMut(Frame<'_>)) -> Result<(), Broken> {
        let end = self.whole;
        let (content, checksum) = message.split_last_chunk::<CHECKSUM>().ok_or(Broken::Corrupt)?;
        if self.checksum(content) != u32::from_be_bytes(*checksum) {
            return Err(Broken::Corrupt);
        }
        let headers_length = content
            .get(4..8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_be_bytes)
            .ok_or(Broken::Corrupt)? as usize;
        let (headers, payload) = content
            .get(PRELUDE..)
            .and_then(|rest| rest.split_at_checked(headers_length))
            .ok_or(Broken::Corrupt)?;
        if !headers.is_empty() && headers == self.last.0 {
            let Self { wrapped, decoded, last: (_, name), .. } = self;
            let data = unwrap(*wrapped, decoded, payload);
            sink(Frame { kind: FrameKind::Event, name, data, end });
            return Ok(());
        }
        let bytes = headers;
        let headers = read_headers(headers).ok_or(Broken::Corrupt)?;
        match headers.message_type {
            "exception" => sink(Frame {
                kind: FrameKind::Exception,
                name: headers.exception_type,
                data: payload,
                end,
            }),
            "error" => sink(Frame {
                kind: FrameKind::Exception,
                name: headers.error_code,
                data: headers.error_message.as_bytes(),
                end,
            }),
            _ => {
                self.last.0.clear();
                self.last.0.extend_from_slice(bytes);
                headers.event_type.clone_into(&mut self.last.1);
                let data = unwrap(self.wrapped, &mut self.decoded, payload);
                sink(Frame { kind: FrameKind::Event, name: headers.event_type, data, end });
            }
        }
        Ok(())
    }

    fn checksum(&self, bytes: &[u8]) -> u32 {
        let mut hasher = self.hasher.clone();
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// Returns the event inside a wrapped payload, or the payload itself if it has another form.
fn unwrap<'a>(wrapped: bool, decoded: &'a mut Vec<u8>, payload: &'a [u8]) -> &'a [u8] {
    if !wrapped {
        return payload;
    }
    decoded.clear();
    if let Ok(Wrapped { bytes }) = serde_json::from_slice(payload)
        && STANDARD.decode_vec(bytes, decoded).is_ok()
    {
        return decoded;
    }
    unwrap_odd(decoded, payload)
}

/// Stands for a payload that cannot be decoded, or that clients decode differently. It is not JSON, so
/// that the event counts as unreadable.
const UNREADABLE: &[u8] = b"{";

/// Base64 with or without padding, as lenient clients decode it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Returns the event inside a wrapped payload that is written in an unusual way: with escapes, or with
/// characters that are not base64, which boto3 skips. Returns the payload itself if it wraps nothing.
fn unwrap_odd<'a>(decoded: &'a mut Vec<u8>, payload: &'a [u8]) -> &'a [u8] {
    if !payload.contains(&b'{') {
        return payload;
    }
    let Some(mended) = mend(payload) else { return UNREADABLE };
    let Ok(Value::Object(fields)) = serde_json::from_slice(&mended.last) else { return payload };
    let text = match fields.get("bytes") {
        None | Some(Value::Null) if mended.first.is_none() => return payload,
        Some(Value::String(text)) if mended.first.is_none() => text,
        // Equal keys, of which clients read the first or the last, or another type.
        _ => return UNREADABLE,
    };
    // Some clients accept the other alphabet of base64, and others skip its characters.
    let text = text.trim_end_matches(|letter: char| letter == '=' || letter.is_whitespace());
    if text.contains(['=', '-', '_']) {
        return UNREADABLE;
    }
    let is_base64 = |letter: &u8| letter.is_ascii_alphanumeric() || matches!(letter, b'+' | b'/');
    let text: Vec<u8> = text.bytes().filter(is_base64).collect();
    decoded.clear();
    match LENIENT.decode_vec(text, decoded) {
        Ok(()) => decoded,
        Err(_) => UNREADABLE,
    }
}

fn read_headers(mut bytes: &[u8]) -> Option<Headers<'_>> {
    let mut headers = Headers::default();
    while let Some((&name_length, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(name_length))?;
        let (&kind, rest) = rest.split_first()?;
        let (value, rest) = match kind {
            0 | 1 => rest.split_at_checked(0)?,
            2 => rest.split_at_checked(1)?,
            3 => rest.split_at_checked(2)?,
            4 => rest.split_at_checked(4)?,
            5 | 8 => rest.split_at_checked(8)?,
            9 => rest.split_at_checked(16)?,
            6 | 7 => {
                let (length, rest) = rest.split_first_chunk::<2>()?;
                rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?
            }
            _ => return None,
        };
        bytes = rest;
        if kind != 7 {
            continue;
        }
        let value = std::str::from_utf8(value).ok()?;
        match name {
            b":message-type" => headers.message_type = value,
            b":event-type" => headers.event_type = value,
            b":exception-type" => headers.exception_type = value,
            b":error-code" => headers.error_code = value,
            b":error-message" => headers.error_message = value,
            _ => {}
        }
    }
    Some(headers)
}

/// Encodes an exception as one message.
#[must_use]
pub fn exception(kind: &str, payload: &[u8]) -> Vec<u8> {
    let headers = [
        (":message-type", "exception"),
        (":exception-type", kind),
        (":content-type", "application/json"),
    ];
    encode(&headers, payload)
}

/// Encodes one message, for tests, simulators and gateways.
#[must_use]
pub fn encode(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        head.extend_from_slice(name.as_bytes());
        head.push(7);
        head.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        head.extend_from_slice(value.as_bytes());
    }
    let total = PRELUDE + head.len() + payload.len() + CHECKSUM;
    let mut message = Vec::with_capacity(total);
    message.extend_from_slice(&u32::try_from(total).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::testing::{Owned, cuttings};

    const EVENT: &[(&str, &str)] = &[(":message-type", "event"), (":event-type", "chunk")];

    fn read(chunks: &[&[u8]], mut aws: Aws) -> (Vec<Owned>, Result<Rest, Broken>) {
        let mut frames = Vec::new();
        for chunk in chunks {
            if let Err(broken) = aws.push(chunk, |frame| frames.push(frame.into())) {
                return (frames, Err(broken));
            }
        }
        (frames, Ok(aws.finish()))
    }

    #[test]
    fn messages_survive_any_cutting() {
        let mut bytes = encode(EVENT, b"{\"a\":1}");
        bytes.extend(encode(
            &[(":message-type", "exception"), (":exception-type", "throttlingException")],
            b"{\"message\":\"slow\"}",
        ));
        bytes.extend(encode(
            &[(":message-type", "error"), (":error-code", "500"), (":error-message", "oops")],
            b"",
        ));
        let want = vec![
            Owned(FrameKind::Event, "chunk".into(), b"{\"a\":1}".into()),
            Owned(
                FrameKind::Exception,
                "throttlingException".into(),
                b"{\"message\":\"slow\"}".into(),
            ),
            Owned(FrameKind::Exception, "500".into(), b"oops".into()),
        ];
        for cutting in cuttings(&bytes) {
            assert_eq!(read(&cutting, Aws::new(1 << 20)), (want.clone(), Ok(Rest::Nothing)));
        }
    }

    #[test]
    fn every_prefix_is_cut_and_every_flipped_bit_is_corrupt() {
        let bytes = encode(EVENT, b"{\"a\":1}");
        for end in 1..bytes.len() {
            assert_eq!(read(&[&bytes[..end]], Aws::new(1 << 20)), (vec![], Ok(Rest::CutFrame)));
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                read(&[&flipped], Aws::new(1 << 20)),
                (vec![], Err(Broken::Corrupt)),
                "{bit}"
            );
        }
    }

    #[test]
    fn wrapped_payloads_are_decoded() {
        let payload =
            format!("{{\"bytes\":\"{}\",\"p\":\"abc\"}}", STANDARD.encode(b"{\"type\":\"ping\"}"));
        let bytes = encode(EVENT, payload.as_bytes());
        let want = vec![Owned(FrameKind::Event, "chunk".into(), b"{\"type\":\"ping\"}".into())];
        assert_eq!(read(&[&bytes], Aws::wrapped(1 << 20)).0, want);
    }

    #[test]
    fn payloads_are_decoded_as_leniently_as_clients_do() {
        let event = b"{\"type\":\"ping\",\"x\":\"??>>\"}";
        let base64 = STANDARD.encode(event);
        let data = |payload: &str| {
            let bytes = encode(EVENT, payload.as_bytes());
            read(&[&bytes], Aws::wrapped(1 << 20)).0.remove(0).2
        };
        let (start, rest) = base64.split_at(4);
        for written in [
            base64.replace('/', "\\/"),
            format!("\\u0065{}", base64.get(1..).unwrap()),
            format!("{start} {rest}"),
            format!("{start}!{rest}"),
            base64.trim_end_matches('=').to_owned(),
        ] {
            assert_eq!(data(&format!("{{\"bytes\":\"{written}\"}}")), event, "{written}");
        }
        for payload in [
            format!("{{\"bytes\":\"AAAA\",\"bytes\":\"{base64}\"}}"),
            format!("{{\"bytes\":\"{start}-{rest}\"}}"),
            format!("{{\"bytes\":\"{start}={rest}\"}}"),
            format!("{{\"bytes\":[\"{base64}\"]}}"),
            "{\"bytes\":\"A\"}".to_owned(),
        ] {
            assert_eq!(data(&payload), UNREADABLE, "{payload}");
        }
        for payload in ["{\"message\":\"x\"}", "{\"bytes\":null}", ""] {
            assert_eq!(data(payload), payload.as_bytes());
        }
    }

    #[test]
    fn a_four_gigabyte_promise_is_refused_at_once() {
        let mut bytes = vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        assert_eq!(read(&[&bytes], Aws::new(1 << 20)).1, Err(Broken::Oversize));
    }
}
