//! Quotas: what the headers of a response say about rate limits.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Maximum number of headers that are kept.
const MAX_HEADERS: usize = 64;

/// Rate limits of a provider, from the headers of its response.
///
/// Providers name their headers differently: `x-ratelimit-remaining-requests`,
/// `provider-ratelimit-input-tokens-limit`, `ratelimit-reset`. The parts of a name tell what it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QuotaMetadata {
    /// Requests.
    pub requests: Quota,
    /// Tokens of both kinds.
    pub tokens: Quota,
    /// Input tokens.
    pub input_tokens: Quota,
    /// Output tokens.
    pub output_tokens: Quota,
    /// The wait that the provider asks for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Every header about rate limits, as it came.
    pub headers: BTreeMap<String, String>,
}

/// One rate limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Quota {
    /// Limit.
    pub limit: Option<u64>,
    /// Rest.
    pub remaining: Option<u64>,
    /// Time at which the rest is full again, as the provider writes it.
    pub reset: Option<String>,
}

impl QuotaMetadata {
    pub(crate) fn from_headers(headers: impl Iterator<Item = (String, String)>) -> Self {
        let mut quota = Self::default();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "retry-after-ms" => quota.retry_after_ms = value.trim().parse().ok(),
                "retry-after" => {
                    quota.retry_after_ms = quota.retry_after_ms.or_else(|| wait_ms(&value));
                }
                _ if name.contains("ratelimit") => quota.note(&name, &value),
                _ => continue,
            }
            if quota.headers.len() < MAX_HEADERS {
                quota.headers.insert(name, value);
            }
        }
        quota
    }

    fn note(&mut self, name: &str, value: &str) {
        let has = |part: &str| name.split(['-', '_']).any(|known| known == part);
        let of = if has("input") {
            &mut self.input_tokens
        } else if has("output") {
            &mut self.output_tokens
        } else if has("tokens") {
            &mut self.tokens
        } else {
            &mut self.requests
        };
        if has("remaining") {
            of.remaining = value.trim().parse().ok();
        } else if has("reset") {
            of.reset = Some(value.to_owned());
        } else if has("limit") {
            of.limit = value.trim().parse().ok();
        }
    }
}

/// Returns the wait of a `Retry-After`: seconds, or a date.
fn wait_ms(value: &str) -> Option<u64> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        // `as` saturates, and negative waits are none.
        return seconds.is_finite().then_some((seconds.max(0.0) * 1e3).ceil() as u64);
    }
    let at = httpdate::parse_http_date(value).ok()?;
    let wait = at.duration_since(SystemTime::now()).unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&str, &str)]) -> QuotaMetadata {
        let owned = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        QuotaMetadata::from_headers(owned)
    }

    #[test]
    fn headers_of_several_providers_are_read() {
        let quota = read(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-requests", "1s"),
            ("Acme-RateLimit-Input-Tokens-Limit", "8000"),
            ("acme-ratelimit-output-tokens-remaining", "7"),
            ("content-type", "text/plain"),
        ]);
        assert_eq!((quota.requests.limit, quota.tokens.remaining), (Some(60), Some(149_984)));
        assert_eq!(quota.requests.reset.as_deref(), Some("1s"));
        assert_eq!(quota.input_tokens.limit, Some(8000));
        assert_eq!(quota.output_tokens.remaining, Some(7));
        assert_eq!(quota.headers.len(), 5);
        assert_eq!(read(&[]), QuotaMetadata::default());
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        let wait = |value: &str| read(&[("retry-after", value)]).retry_after_ms;
        assert_eq!(wait("2"), Some(2000));
        assert_eq!(wait("0.5"), Some(500));
        assert_eq!(wait("-1"), Some(0));
        assert_eq!(wait("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert!(wait("Fri, 31 Dec 9999 23:59:59 GMT").is_some_and(|ms| ms > 1_000_000));
        assert_eq!(wait("soon"), None);
        let both = read(&[("retry-after", "9"), ("retry-after-ms", "1500")]);
        assert_eq!(both.retry_after_ms, Some(1500));
    }
}
