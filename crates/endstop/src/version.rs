//! API versions and their place in a request.
//!
//! A provider's profile lists its versions. [`asked_for`] returns the version of a request. An
//! ending includes it, and users can define finish reasons for a single version.

use crate::text;

/// Maximum length of a version, in bytes.
const MOST: usize = 64;

/// Place that names the version of an API. The built-in finish reasons are those of all versions;
/// users can define others for a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Place that names the version.
    pub at: VersionAt,
    /// Differences between versions, for the documentation.
    pub note: &'static str,
}

/// Place that names the version of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionAt {
    /// Request header.
    Header(&'static str),
    /// Query parameter.
    Query(&'static str),
    /// Segment of the path, such as `v1beta`.
    Path,
}

/// Returns the version that a request names in one of the places of its API, or else in its path.
/// The path may include a query. Header names are case-insensitive.
#[must_use]
pub(crate) fn asked_for(
    versions: &[Version],
    path: &str,
    headers: &[(&str, &str)],
) -> Option<String> {
    let places = Places { path, headers };
    let named = versions.iter().find_map(|version| places.value(version.at));
    let value = named.or_else(|| places.value(VersionAt::Path))?;
    Some(text::clean(value, MOST))
}

/// Reports whether a request can name this version: in a header or a parameter of the API, or in
/// its path.
#[must_use]
#[cfg(feature = "toml")]
pub(crate) fn can_be_named(versions: &[Version], value: &str) -> bool {
    let is_named = |version: &Version| match version.at {
        VersionAt::Header(_) | VersionAt::Query(_) => true,
        VersionAt::Path => false,
    };
    is_version(value) || versions.iter().any(is_named)
}

/// Parts of a request that can name a version.
struct Places<'a> {
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
}

impl<'a> Places<'a> {
    fn value(&self, at: VersionAt) -> Option<&'a str> {
        let found = match at {
            VersionAt::Header(name) => self.header(name),
            VersionAt::Query(name) => self.parameter(name),
            VersionAt::Path => self.parts().find(|part| is_version(part)),
        };
        found.map(str::trim).filter(|value| !value.is_empty())
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value)
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        let (_, query) = self.path.split_once('?')?;
        let query = query.split('#').next().unwrap_or_default();
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn parts(&self) -> impl Iterator<Item = &'a str> {
        self.path.split(['?', '#']).next().unwrap_or_default().split('/')
    }
}

/// Reports whether a path segment is a version: `v1`, `v1beta`, `v1beta1`, `v2.1`.
fn is_version(part: &str) -> bool {
    let Some(rest) = part.strip_prefix('v') else { return false };
    let stage = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let known = ["", "alpha", "beta"];
    rest.starts_with(|c: char| c.is_ascii_digit())
        && known.contains(&stage.trim_end_matches(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider;

    #[track_caller]
    fn check(provider: &provider::Provider, path: &str, headers: &[(&str, &str)], want: &str) {
        let version = asked_for(provider.main.versions, path, headers);
        assert_eq!(version.as_deref().unwrap_or(""), want, "{path}");
    }

    #[test]
    fn a_version_is_found_where_the_profile_says() {
        let anthropic = &provider::ANTHROPIC;
        let header = [("Anthropic-Version", "2026-10-21")];
        check(anthropic, "/v1/messages", &header, "2026-10-21");
        check(anthropic, "/v1/messages", &[], "v1");
        check(anthropic, "/v1/messages", &[("anthropic-version", " ")], "v1");
        let azure = &provider::AZURE;
        let path = "/openai/deployments/d/chat/completions?x=1&api-version=2024-10-21#f";
        check(azure, path, &[], "2024-10-21");
        check(azure, "/openai/v1/chat/completions", &[], "v1");
        check(azure, "/openai/deployments/d/chat/completions?api-version=", &[], "");
        let google = &provider::GOOGLE;
        check(google, "/v1beta/models/gemini-3:generateContent", &[], "v1beta");
        check(google, "/models/v:generateContent", &[], "");
        check(&provider::VERTEX, "/v1beta1/projects/p/models/m:generateContent", &[], "v1beta1");
        check(&provider::OPENAI, "", &[], "");
    }

    #[test]
    fn a_version_from_outside_is_kept_short_and_clean() {
        let long = "x\u{1b}".repeat(200);
        let headers = [("anthropic-version", long.as_str())];
        let found = asked_for(provider::ANTHROPIC.main.versions, "", &headers).unwrap_or_default();
        assert!(found.len() <= MOST && !found.contains('\u{1b}'), "{found}");
    }

    #[cfg(feature = "toml")]
    #[test]
    fn a_version_that_no_request_names_is_known() {
        let named =
            |provider: &provider::Provider, value| can_be_named(provider.main.versions, value);
        assert!(named(&provider::ANTHROPIC, "2099-01-01") && named(&provider::AZURE, "2099"));
        assert!(named(&provider::COHERE, "v2") && named(&provider::GOOGLE, "v1beta"));
        assert!(!named(&provider::COHERE, "2099") && !named(&provider::GOOGLE, "2"));
    }
}
