//! Request, independent of the HTTP version.

use serde_json::Value;

/// Request with its whole body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path with query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// HTTP version: 1 or 2.
    pub(crate) http: u8,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// Returns the path without its query, also for an absolute target.
    pub(crate) fn path(&self) -> &str {
        let target = self.target.split(['?', '#']).next().unwrap_or_default();
        match target.split_once("://") {
            Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"),
            None => target,
        }
    }

    /// Reports whether the request accepts server-sent events.
    pub(crate) fn accepts_events(&self) -> bool {
        self.header("accept").is_some_and(|value| value.contains("text/event-stream"))
    }

    /// Reports whether the query contains this pair.
    pub(crate) fn asks(&self, pair: &str) -> bool {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|known| known == pair)
    }

    /// Returns the value of a parameter of the query.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// Decodes the percent-encoding of a path segment.
pub(crate) fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
