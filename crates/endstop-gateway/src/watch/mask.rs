//! The secrets that a request showed, to be masked in whatever is told about its response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::provider::Auth;
use endstop::{Ending, Record};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Uri, header};

use crate::client::headers::own;

/// Length of the shortest secret that is looked for. Shorter ones occur in ordinary words.
const SHORTEST: usize = 8;

/// Text in the place of a secret.
const MASK: &str = "[key]";

/// Headers that hold secrets, besides the one of the provider.
static NAMES: [HeaderName; 4] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE, own::TOKEN];

/// The secrets that a request showed. They share the memory of the request's head.
#[derive(Clone, Default)]
pub(crate) struct SecretsShown {
    headers: Vec<HeaderValue>,
    target: Option<PathAndQuery>,
}

impl std::fmt::Debug for SecretsShown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretsShown")
    }
}

impl SecretsShown {
    /// Returns the secrets of a request's head; `auth` is the way to show a key to its provider.
    pub(crate) fn new(headers: &HeaderMap, uri: &Uri, auth: Auth) -> Self {
        let own = match auth {
            Auth::Header(name) | Auth::HeaderOrQuery(name, _) => Some(name),
            Auth::Bearer | Auth::SigV4 | Auth::Open => None,
        };
        let target = uri.path_and_query().filter(|target| target.query().is_some()).cloned();
        let is_secret =
            |name: &HeaderName| NAMES.contains(name) || own.is_some_and(|own| name == own);
        let secret = headers.iter().filter(|(name, _)| is_secret(name));
        Self { headers: secret.map(|(_, value)| value.clone()).collect(), target }
    }

    /// Masks the secrets in a record: in the texts that come from the provider.
    pub(crate) fn mask_record(&self, record: &mut Record) {
        let Record { model, native_finish_reason, upstream_request_id, .. } = record;
        for text in [model, native_finish_reason, upstream_request_id] {
            self.mask(text);
        }
    }

    /// Masks the secrets in the provider's error. Its message is removed, unless the operator wants it.
    pub(crate) fn mask_error(&self, ending: &mut Ending, messages: Messages) {
        let Some(fault) = &mut ending.fault else { return };
        // The sentence may quote the title of a page.
        if let (true, Some(title)) = (fault.form.is_foreign(), &fault.message) {
            ending.sentence = ending.sentence.replace(&format!(", \"{title}\""), "");
        }
        match messages {
            Messages::Removed => fault.message = None,
            Messages::Kept => self.mask(&mut fault.message),
        }
        self.mask(&mut fault.type_);
        self.mask(&mut fault.code);
    }

    fn mask(&self, text: &mut Option<String>) {
        let Some(text) = text.as_mut().filter(|text| text.len() >= SHORTEST) else { return };
        self.for_each(&mut |secret| {
            // Most texts are shorter than a key.
            if (SHORTEST..=text.len()).contains(&secret.len()) && text.contains(secret) {
                *text = text.replace(secret, MASK);
            }
        });
    }

    fn for_each(&self, visit: &mut dyn FnMut(&str)) {
        for value in self.headers.iter().filter_map(|value| value.to_str().ok()) {
            visit_parts(value, visit);
        }
        let query = self.target.iter().filter_map(|target| target.query());
        query.flat_map(|query| query.split('&')).filter_map(value_of).for_each(visit);
    }
}

/// Treatment of the messages of providers' errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// They are removed.
    Removed,
    /// The operator wants them.
    Kept,
}

/// Visits the parts of a header that are secret by themselves: the value, a token without its scheme, the
/// values of cookies, the user and the password of basic credentials.
fn visit_parts(value: &str, visit: &mut dyn FnMut(&str)) {
    visit(value);
    if let Some((scheme, token)) = value.split_once(' ') {
        visit(token);
        if scheme.eq_ignore_ascii_case("basic") {
            let decoded = STANDARD.decode(token).ok().and_then(|text| String::from_utf8(text).ok());
            for text in decoded.iter() {
                visit(text);
                text.split(':').for_each(&mut *visit);
            }
        }
    }
    value.split("; ").filter_map(value_of).for_each(visit);
}

fn value_of(pair: &str) -> Option<&str> {
    pair.split_once('=').map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_secrets_are_masked_wherever_they_were_shown() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Basic dXNlci1uYW1lOm9wZW4tc2VzYW1l".parse().unwrap());
        headers.insert("cookie", "a=b; session=crumbly-cookie".parse().unwrap());
        headers.insert("x-api-key", "plain-secret".parse().unwrap());
        let uri = "/v1/x?alt=sse&key=query-secret".parse().unwrap();
        let shown = SecretsShown::new(&headers, &uri, Auth::Header("x-api-key"));
        for secret in [
            "dXNlci1uYW1lOm9wZW4tc2VzYW1l",
            "user-name:open-sesame",
            "open-sesame",
            "crumbly-cookie",
            "plain-secret",
            "query-secret",
        ] {
            let mut text = Some(format!("the key {secret} is wrong"));
            shown.mask(&mut text);
            assert!(!text.as_ref().unwrap().contains(secret), "{text:?}");
            assert!(text.unwrap().starts_with("the key [key]"));
        }
        let mut text = Some("sse was asked for".to_owned());
        shown.mask(&mut text);
        assert_eq!(text.unwrap(), "sse was asked for");
    }
}
