//! The rest of a stream that the provider stores, to go on with it after a cut.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::shape::RestOfStream;
use crate::provider::Profile;
use crate::request::RequestInfo;

/// Maximum length of an incomplete event, in bytes. A longer one cannot be asked for again.
const MAX_EVENT: usize = 16 << 20;

/// A stream of server-sent events that the provider stores. If it is cut, its rest can be read.
///
/// It passes whole events on, so that the events of the rest can follow them.
///
/// ```
/// use endstop::RequestInfo;
/// use endstop::next_request::StoredStream;
/// use endstop::provider;
///
/// let profile = provider::OPENAI.wire_of("openai-responses").unwrap();
/// let body = br#"{"model":"gpt-5","background":true,"stream":true,"input":"Hi"}"#;
/// let request = RequestInfo::from_request(profile, "/v1/responses", body);
/// let mut stream = StoredStream::new(profile, &request).unwrap();
/// let chunk = b"data: {\"sequence_number\":4}\n\ndata: {\"sequ";
/// assert_eq!(stream.push(chunk), b"data: {\"sequence_number\":4}\n\n");
/// assert_eq!(stream.rest_of("r1").unwrap(), "/responses/r1?stream=true&starting_after=4");
/// ```
#[derive(Clone, Debug)]
pub struct StoredStream {
    poll: &'static str,
    rest: RestOfStream,
    /// Bytes of an event that is not complete.
    tail: Vec<u8>,
    /// Number of the last complete event.
    last: Option<u64>,
    is_lost: bool,
}

impl StoredStream {
    /// Starts a stream. Returns `None` if the provider does not store it.
    #[must_use]
    pub fn new(profile: &Profile, request: &RequestInfo) -> Option<Self> {
        let rest = profile.request_shape.rest?;
        let is_stored = request.background && request.streamed == Some(true);
        let poll = profile.request_shape.poll;
        is_stored.then(|| Self { poll, rest, tail: Vec::new(), last: None, is_lost: false })
    }

    /// Reads a chunk. Returns the bytes of the events that are complete with it.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        // A line break may be divided.
        let from = self.tail.len().saturating_sub(3);
        self.tail.extend_from_slice(chunk);
        let fresh = self.tail.get(from..).unwrap_or_default();
        let Some(end) = last_blank_line(fresh).map(|end| from + end) else {
            if self.tail.len() <= MAX_EVENT {
                return Vec::new();
            }
            self.is_lost = true;
            return std::mem::take(&mut self.tail);
        };
        let rest = self.tail.split_off(end);
        let whole = std::mem::replace(&mut self.tail, rest);
        let mut numbers = whole.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(|line| {
            let data = line.strip_prefix(b"data:")?;
            let Fields(fields) = serde_json::from_slice(data).ok()?;
            fields.get(self.rest.number)?.get().parse().ok()
        });
        self.last = numbers.next_back().or(self.last);
        whole
    }

    /// Returns and forgets the bytes of an event that is not complete.
    pub fn take_tail(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.tail)
    }

    /// Returns the path, after the base URL, of a request for the events that have not come. `id` is
    /// that of the response.
    #[must_use]
    pub fn rest_of(&self, id: &str) -> Option<String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let last =
            self.last.filter(|_| !self.is_lost && !id.is_empty() && id.bytes().all(is_plain))?;
        Some(format!("{}{id}{}{last}", self.poll, self.rest.query))
    }
}

#[derive(serde::Deserialize)]
struct Fields<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);

/// Returns the end of the last blank line.
fn last_blank_line(bytes: &[u8]) -> Option<usize> {
    let ends = |mark: &[u8]| bytes.windows(mark.len()).rposition(|part| part == mark);
    [&b"\n\n"[..], b"\r\r", b"\n\r\n"]
        .into_iter()
        .filter_map(|mark| Some(ends(mark)? + mark.len()))
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider;

    fn stream(body: &str) -> Option<StoredStream> {
        let profile = provider::OPENAI.wire_of("openai-responses").unwrap();
        let request = RequestInfo::from_request(profile, "/v1/responses", body.as_bytes());
        StoredStream::new(profile, &request)
    }

    #[test]
    fn whole_events_pass_however_they_are_divided() {
        for end in ["\n", "\r\n", "\r"] {
            let event = |number: u32| {
                format!("event: x{end}data: {{\"a\":1,\"sequence_number\":{number}}}{end}{end}")
            };
            let text = format!("{}: ping{end}{end}{}", event(7), event(8));
            for size in 1..text.len() {
                let mut stream = stream(r#"{"background":true,"stream":true}"#).unwrap();
                let mut out = Vec::new();
                for chunk in text.as_bytes().chunks(size) {
                    out.extend(stream.push(chunk));
                }
                assert_eq!(out, text.as_bytes(), "{end:?}, {size} bytes");
                assert_eq!(stream.last, Some(8), "{end:?}, {size} bytes");
                assert!(stream.take_tail().is_empty());
            }
            let mut stream = stream(r#"{"background":true,"stream":true}"#).unwrap();
            let (half, _) = text.split_at(text.len() - 2 * end.len() - 1);
            stream.push(half.as_bytes());
            assert_eq!(stream.last, Some(7), "{end:?}: the last event is not complete");
            assert!(!stream.take_tail().is_empty() && stream.take_tail().is_empty());
        }
    }

    #[test]
    fn only_streams_in_the_background_are_stored() {
        assert!(stream(r#"{"stream":true}"#).is_none());
        assert!(stream(r#"{"background":true}"#).is_none());
        assert!(stream(r#"{"background":false,"stream":true}"#).is_none());
        let request = RequestInfo { background: true, streamed: Some(true), ..Default::default() };
        assert!(StoredStream::new(&provider::OPENAI.main, &request).is_none());
        let mut stream = stream(r#"{"background":true,"stream":true}"#).unwrap();
        assert_eq!(stream.rest_of("r1"), None, "no event has come");
        stream.push(b"data: {\"sequence_number\":0}\n\n");
        assert!(stream.rest_of("r1").is_some());
        assert_eq!(stream.rest_of("../r1"), None);
        assert_eq!(stream.rest_of(""), None);
    }
}
