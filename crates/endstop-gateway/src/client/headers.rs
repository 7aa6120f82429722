//! Headers: those of one connection, which are not passed on, and the gateway's own.

use endstop::Ending;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::connection::is_framing;
use crate::watch::GuardAction;

/// Headers between callers and the gateway.
pub(crate) mod own {
    use hyper::header::HeaderName;

    pub(crate) const PREFIX: &str = "x-endstop-";
    pub(crate) const ID: HeaderName = HeaderName::from_static("x-endstop-id");
    pub(crate) const REASON: HeaderName = HeaderName::from_static("x-endstop-reason");
    pub(crate) const FINISH_REASON: HeaderName = HeaderName::from_static("x-endstop-finish-reason");
    pub(crate) const NATIVE: HeaderName = HeaderName::from_static("x-endstop-native");
    pub(crate) const CONFIDENCE: HeaderName = HeaderName::from_static("x-endstop-confidence");
    pub(crate) const ACTION: HeaderName = HeaderName::from_static("x-endstop-action");
    pub(crate) const DECISION: HeaderName = HeaderName::from_static("x-endstop-decision");
    pub(crate) const MODE: HeaderName = HeaderName::from_static("x-endstop-mode");
    pub(crate) const TOOL_CALLS: HeaderName = HeaderName::from_static("x-endstop-tool-calls");
    pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-endstop-token");
    pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
}

/// What a request asks of the gateway, by the gateway's own headers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnHeaders<'h> {
    pub(crate) mode: Option<&'h HeaderValue>,
    pub(crate) tool_calls: Option<&'h HeaderValue>,
    pub(crate) tell: Option<&'h HeaderValue>,
    pub(crate) team: Option<&'h HeaderValue>,
}

impl<'h> OwnHeaders<'h> {
    /// Finds the headers in one pass: most requests have none of them.
    pub(crate) fn new(headers: &'h HeaderMap) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            let Some(name) = name.as_str().strip_prefix(own::PREFIX) else { continue };
            let place = match name {
                "mode" => &mut found.mode,
                "tool-calls" => &mut found.tool_calls,
                "tell" => &mut found.tell,
                "team" => &mut found.team,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        found
    }
}

/// Reports whether a request wants to leave HTTP/1.1. An offer of HTTP/2, which Java's client makes on
/// every new connection, may be ignored.
pub(crate) fn upgrades(headers: &HeaderMap) -> bool {
    headers.get_all(header::UPGRADE).iter().any(|value| value.as_bytes() != b"h2c")
}

/// Returns the value of a header; empty if it is missing or not text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Removes a length that is not that of the body.
pub(crate) fn fit_length(headers: &mut HeaderMap, length: usize) {
    let said = text(headers, &header::CONTENT_LENGTH);
    if !said.is_empty() && said.parse() != Ok(length) {
        headers.remove(header::CONTENT_LENGTH);
    }
}

/// Returns all content encodings of a body, in one list.
pub(crate) fn encodings(headers: &HeaderMap) -> String {
    let mut list = String::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        list.push_str(value.to_str().unwrap_or("unknown"));
        list.push(',');
    }
    list
}

/// Removes the headers of one connection, and the gateway's own.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let mut dropped: Vec<HeaderName> = Vec::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_dropped(name)) {
        dropped.push(name.clone());
        if name == header::CONNECTION {
            let listed = value.to_str().unwrap_or_default().split(',');
            dropped.extend(listed.filter_map(|name| name.trim().parse::<HeaderName>().ok()));
        }
    }
    for name in dropped {
        headers.remove(name);
    }
}

fn is_dropped(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "keep-alive"
            | "http2-settings"
            | "proxy-connection"
    ) || name.as_str().starts_with(own::PREFIX)
        // Some servers read them as if they had a hyphen.
        || name.as_str().contains('_') && is_framing(name.as_str().as_bytes())
}

/// Adds the headers that describe an ending.
pub(crate) fn describe(
    headers: &mut HeaderMap,
    ending: &Ending,
    action: GuardAction,
    decision: &'static str,
) {
    headers.insert(own::REASON, HeaderValue::from_static(ending.reason.name()));
    let finish_reason = ending.finish_reason().unwrap_or("null");
    headers.insert(own::FINISH_REASON, HeaderValue::from_static(finish_reason));
    // The provider's word may hold anything.
    if let Some((_, word)) = ending.native()
        && let Ok(word) = HeaderValue::from_bytes(word.as_bytes())
    {
        headers.insert(own::NATIVE, word);
    }
    headers.insert(own::CONFIDENCE, HeaderValue::from_static(ending.confidence.name()));
    headers.insert(own::ACTION, HeaderValue::from_static(action.word()));
    headers.insert(own::DECISION, HeaderValue::from_static(decision));
}

/// Returns the headers of an error of the gateway.
pub(crate) fn of_error(id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    put_id(&mut headers, id);
    headers
}

/// Returns the upstream's headers as the client gets them.
pub(crate) fn returned(mut headers: HeaderMap, id: &str) -> HeaderMap {
    // A body in chunks has no length: a client that heeds one would take the rest for the next response.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    one_length(&mut headers);
    strip(&mut headers);
    put_id(&mut headers, id);
    headers
}

/// Makes one length of several that are equal, as in `content-length: 5, 5`.
fn one_length(headers: &mut HeaderMap) {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return };
    if lengths.next().is_none() && !first.as_bytes().contains(&b',') {
        return;
    }
    let first = first.to_str().unwrap_or_default().split(',').next().unwrap_or_default().trim();
    match first.parse::<u64>() {
        Ok(length) => headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length)),
        Err(_) => headers.remove(header::CONTENT_LENGTH),
    };
}

fn put_id(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(own::ID, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_one_length() {
        for values in [&["221, 221"][..], &["221", "221"], &["221"]] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_LENGTH, HeaderValue::from_static(value));
            }
            let headers = returned(headers, "id");
            let lengths: Vec<_> = headers.get_all(header::CONTENT_LENGTH).iter().collect();
            assert_eq!(lengths, ["221"], "{values:?}");
        }
    }
}
