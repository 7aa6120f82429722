//! The secrets that a request showed, to be masked in whatever is told about its response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use endstop::provider::Auth;
use endstop::{ChoiceEnding, Ending, Record, Said, Wire};
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;

use crate::path::decode_once;
use crate::upstream::hide::{OwnSecrets, SHORTEST, find};

/// Length from which a text may have been cut: the lowest cap is 128 bytes.
const CUT: usize = 120;

/// Text in the place of a secret.
const MASK: &str = "[key]";

/// Text in the place of one that is not a name.
const WITHHELD: &str = "[withheld]";

/// Length of the longest finish reason, error type or error code that is told, in bytes.
const LONGEST_WORD: usize = 80;

/// Length of the longest name of a model, in bytes: records cut it there.
const LONGEST_MODEL: usize = 256;

/// The secrets that a request showed. They share the memory of the request's head.
#[derive(Clone, Default)]
pub(crate) struct SecretsShown {
    /// The first one. Most requests have one.
    header: Option<HeaderValue>,
    more_headers: Vec<HeaderValue>,
    target: Option<PathAndQuery>,
    /// The gateway's own secrets, if they were sent in place of the caller's.
    own: OwnSecrets,
}

impl std::fmt::Debug for SecretsShown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretsShown")
    }
}

impl SecretsShown {
    /// Returns the secrets of a request's head; `auth` is the way to show a key to its provider.
    pub(crate) fn new(headers: &HeaderMap, uri: &Uri, auth: Auth, own: &OwnSecrets) -> Self {
        let key_header = match auth {
            Auth::Header(name) | Auth::HeaderOrQuery(name, _) => Some(name),
            Auth::Bearer | Auth::SigV4 { .. } | Auth::Open => None,
        };
        let target = uri.path_and_query().filter(|target| target.query().is_some()).cloned();
        let is_secret = |name: &HeaderName| {
            holds_secret(name.as_str()) || key_header.is_some_and(|key| name == key)
        };
        let secret = headers.iter().filter(|(name, _)| is_secret(name));
        let mut secret = secret.map(|(_, value)| value.clone());
        Self { header: secret.next(), more_headers: secret.collect(), target, own: own.clone() }
    }

    /// Hides the gateway's own secrets in what is told about a response. In the response itself they are
    /// hidden as it arrives.
    pub(crate) fn hide_own(&self, headers: &mut HeaderMap, body: Bytes) -> Bytes {
        let Some(hider) = self.own.hider() else { return body };
        hider.hide_in_headers(headers);
        hider.hide(body)
    }

    /// Masks the secrets in a record before its response: in the texts that come from the client.
    pub(crate) fn mask_request(&self, record: &mut Record) {
        withhold_model(&mut record.model);
        // Most paths are shorter than a key with the segments around it.
        self.mask_all([record.model.as_mut(), Some(&mut record.path)]);
    }

    /// Masks the secrets in a record: in the texts that come from the provider.
    pub(crate) fn mask_record(&self, record: &mut Record, wire: &Wire) {
        let Record { model, native_finish_reason, upstream_request_id, .. } = record;
        withhold_model(model);
        withhold_word(native_finish_reason.as_mut(), wire);
        withhold(upstream_request_id, LONGEST_MODEL);
        self.mask_all([model, native_finish_reason, upstream_request_id].map(Option::as_mut));
    }

    /// Masks the secrets in what the provider sent. The message of its error is removed, unless the
    /// operator wants it.
    pub(crate) fn mask_ending(&self, ending: &mut Ending, wire: &Wire, messages: Messages) {
        withhold_model(&mut ending.model);
        // A known finish reason quotes nothing.
        if ending.reason.is_success() {
            return;
        }
        for choice in &mut ending.choices {
            self.mask_said(&mut choice.said, &mut choice.sentence, wire);
        }
        self.mask_said(&mut ending.said, &mut ending.sentence, wire);
        self.mask(&mut ending.model);
        let Some(fault) = &mut ending.fault else { return };
        // The sentence may quote the title of a page.
        if let (true, Some(title)) = (fault.form.is_foreign(), &fault.message) {
            let told = format!(", \"{title}\"");
            for sentence in sentences(&mut ending.choices, &mut ending.sentence) {
                *sentence = sentence.replace(&told, "");
            }
        }
        match messages {
            Messages::Removed => fault.message = None,
            Messages::Kept => self.mask(&mut fault.message),
        }
        for name in [&mut fault.type_, &mut fault.code] {
            let told = name.clone();
            withhold(name, LONGEST_WORD);
            if let Some(told) = told.filter(|told| Some(told) != name.as_ref()) {
                for sentence in sentences(&mut ending.choices, &mut ending.sentence) {
                    *sentence = sentence.replace(&told, WITHHELD);
                }
            }
            self.mask(name);
        }
    }

    fn mask_said(&self, said: &mut Option<Said>, sentence: &mut String, wire: &Wire) {
        if let Some(said) = said {
            let told = said.word.clone();
            withhold_word(Some(&mut said.word), wire);
            if told != said.word {
                *sentence = sentence.replace(&told, WITHHELD);
            }
            self.mask_text(&mut said.word);
        }
        self.mask_text(sentence);
    }

    fn mask(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.mask_text(text);
        }
    }

    fn mask_text(&self, text: &mut String) {
        self.mask_all([Some(text)]);
    }

    /// Masks the secrets in several texts, for which they are gathered once.
    fn mask_all<const N: usize>(&self, texts: [Option<&mut String>; N]) {
        let mut texts = texts.map(|text| text.filter(|text| text.len() >= SHORTEST));
        if texts.iter().any(Option::is_some) {
            self.for_each(&mut |secret| {
                texts.iter_mut().flatten().for_each(|text| mask_secret(secret, text));
            });
        }
    }

    fn for_each(&self, visit: &mut dyn FnMut(&str)) {
        let headers = self.header.iter().chain(&self.more_headers);
        for value in headers.filter_map(|value| value.to_str().ok()) {
            visit_parts(value, visit);
        }
        let query = self.target.iter().filter_map(|target| target.query());
        for value in query.flat_map(|query| query.split(['&', ';'])).filter_map(value_of) {
            visit(value);
            if let Some(decoded) = decode_once(value) {
                visit(&decoded);
            }
        }
        self.own.iter().for_each(|secret| visit(secret.expose()));
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

/// Withholds a text that is not a name. A provider may put anything in its place, even the prompt.
fn withhold(text: &mut Option<String>, most: usize) {
    if let Some(text) = text.as_mut().filter(|text| !is_name(text, most)) {
        WITHHELD.clone_into(text);
    }
}

/// Withholds the name of a model that is not a name, nor a list of names as the simulator takes.
fn withhold_model(model: &mut Option<String>) {
    if let Some(model) = model.as_mut().filter(|model| !is_model(model)) {
        WITHHELD.clone_into(model);
    }
}

/// Withholds a finish reason that is not a name, unless the operator has given it a meaning.
fn withhold_word(word: Option<&mut String>, wire: &Wire) {
    let Some(word) = word.filter(|word| !is_name(word, LONGEST_WORD)) else { return };
    let mut taught = wire.corrections.iter().flat_map(|corrections| &corrections.words);
    if !taught.any(|taught| taught.word == *word) {
        WITHHELD.clone_into(word);
    }
}

/// Reports whether a text looks like the name of a model, a type, a code or a finish reason.
fn is_name(text: &str, most: usize) -> bool {
    let is_part = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'_' | b'-'
                    | b'.'
                    | b':'
                    | b'/'
                    | b'@'
                    | b'#'
                    | b'+'
                    | b'='
                    | b'~'
                    | b'*'
                    | b'['
                    | b']'
            )
    };
    // Not `all`, which the compiler does not vectorize.
    text.len() <= most && text.bytes().fold(true, |is_name, byte| is_name & is_part(byte))
}

/// Reports whether a text looks like the name of a model, or like several with commas between them.
fn is_model(text: &str) -> bool {
    text.len() <= LONGEST_MODEL && text.split(',').all(|name| is_name(name, LONGEST_MODEL))
}

fn mask_secret(secret: &str, text: &mut String) {
    // Most texts are shorter than a key.
    let is_cut = text.len() >= CUT;
    if secret.len() < SHORTEST || secret.len() > text.len() && !is_cut {
        return;
    }
    let (masked, begun) = masked(secret, text);
    let cut = text.len() - begun;
    if let Some(masked) = masked {
        *text = masked;
    }
    // Texts are cut to a length, and the cut may be inside of a secret.
    if is_cut && cut >= SHORTEST {
        text.truncate(text.len() - cut);
        text.push_str(MASK);
    }
}

/// Returns a text with a secret masked, unless it does not hold it; and where a secret begins that the text
/// does not end.
fn masked(secret: &str, text: &str) -> (Option<String>, usize) {
    let (mut masked, mut after) = (String::new(), 0);
    let begun = find(secret, text.as_bytes(), |range| {
        masked.push_str(text.get(after..range.start).unwrap_or_default());
        masked.push_str(MASK);
        after = range.end;
    });
    if after > 0 {
        masked.push_str(text.get(after..).unwrap_or_default());
    }
    ((after > 0).then_some(masked), begun)
}

/// Visits the parts of a header that are secret by themselves: the value, a token without its scheme, the
/// values of cookies, the user and the password of basic credentials.
fn visit_parts(value: &str, visit: &mut dyn FnMut(&str)) {
    visit(value);
    if let Some(at) = memchr::memchr2(b' ', b'\t', value.as_bytes())
        && let Some((scheme, token)) = value.split_at_checked(at)
    {
        let token = token.trim_ascii();
        visit(token);
        if scheme.eq_ignore_ascii_case("basic") {
            let decoded = STANDARD.decode(token).ok().and_then(|text| String::from_utf8(text).ok());
            for text in decoded.iter() {
                visit(text);
                text.split(':').for_each(&mut *visit);
            }
        }
    }
    // Most keys are not pairs of a name and a value.
    if memchr::memchr(b'=', value.as_bytes()).is_none() {
        return;
    }
    for value in value.split([';', ',']).filter_map(value_of) {
        visit(value);
        visit(value.trim_matches('"'));
        // The id of a key in a signature.
        visit(value.split('/').next().unwrap_or_default());
        if let Some(decoded) = decode_once(value) {
            visit(&decoded);
        }
    }
}

/// Reports whether a header holds a secret, by the end of its name.
fn holds_secret(name: &str) -> bool {
    // By the last letter first: every header of every request is looked at.
    match name.as_bytes().last() {
        Some(b'n') => name.ends_with("authorization") || name.ends_with("-token"),
        Some(b'y') => name.ends_with("-key"),
        Some(b'e') => name.ends_with("cookie"),
        Some(b'h') => name.ends_with("-auth"),
        Some(b't') => name.ends_with("-secret"),
        Some(_) | None => false,
    }
}

fn value_of(pair: &str) -> Option<&str> {
    pair.split_once('=').map(|(_, value)| value.trim_ascii())
}

/// Returns the sentences of an ending and of its choices.
fn sentences<'a>(
    choices: &'a mut [ChoiceEnding],
    sentence: &'a mut String,
) -> impl Iterator<Item = &'a mut String> {
    choices.iter_mut().map(|choice| &mut choice.sentence).chain([sentence])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn own(key: &str) -> OwnSecrets {
        OwnSecrets::new([Secret::new(key.to_owned())])
    }

    #[test]
    fn the_own_key_is_hidden_from_callers() {
        let own = own("key-of-the-gateway");
        let uri = "/v1/x".parse().unwrap();
        let shown = SecretsShown::new(&HeaderMap::new(), &uri, Auth::Bearer, &own);
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", "of key-of-the-gateway".parse().unwrap());
        headers.insert("x-other", "kept".parse().unwrap());
        let body = Bytes::from_static(b"wrong: key-of-the-gateway, key-of-the-gateway");
        let hidden = shown.hide_own(&mut headers, body);
        assert_eq!(hidden, "wrong: ******************, ******************");
        assert_eq!(headers["x-request-id"], "of ******************");
        assert_eq!(headers["x-other"], "kept");
    }

    #[test]
    fn secrets_are_masked_however_they_are_spelled() {
        let target = "/v1/x?a=b;key=semicolon-secret";
        for (name, value, secret) in [
            ("authorization", "Bearer  two-spaces-secret", "two-spaces-secret"),
            ("authorization", "Bearer\ttab-secret-key", "tab-secret-key"),
            ("cookie", "a=b;c=cookie-without-space", "cookie-without-space"),
            ("cookie", "a=\"quoted-cookie\"; c=d", "quoted-cookie"),
            ("cookie", "a=enc%2Doded%2Dcookie", "enc-oded-cookie"),
            ("x-api-key", "secret-of-anthropic", "secret-of-anthropic"),
            ("x-goog-api-key", "secret-of-google", "secret-of-google"),
            ("api-key", "secret-of-azure", "secret-of-azure"),
            ("x-amz-security-token", "secret-of-amazon", "secret-of-amazon"),
            ("helicone-auth", "Bearer secret-of-proxy", "secret-of-proxy"),
            ("x-endstop-token", "secret-of-gateway", "secret-of-gateway"),
            ("x-none", "", "semicolon-secret"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let (uri, none) = (target.parse().unwrap(), OwnSecrets::default());
            let shown = SecretsShown::new(&headers, &uri, Auth::Bearer, &none);
            let mut text = Some(format!("the key {secret} is wrong"));
            shown.mask(&mut text);
            assert_eq!(text.unwrap(), "the key [key] is wrong", "{name}: {value}");
        }
    }

    #[test]
    fn only_names_are_told() {
        for name in [
            "stop",
            "MAX_TOKENS",
            "frobnicated",
            "invalid_request_error",
            "com.amazon.coral.service#UnrecognizedClientException",
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-v1:0",
            "meta-llama/llama-3.3-70b-instruct:free",
            "publishers/google/models/gemini-2.5-pro@001",
            "claude-sonnet-4-5[1m]",
            "ft:gpt-4o-mini:acme::A1b2",
            "429",
            "",
        ] {
            assert!(is_name(name, LONGEST_MODEL), "{name}");
        }
        for text in
            ["my secret prompt", "a\tb", "geheim\u{fc}", "\u{79d8}\u{5bc6}", "{\"a\":1}", "why?"]
        {
            assert!(!is_name(text, LONGEST_MODEL), "{text}");
        }
        assert!(!is_name(&"x".repeat(LONGEST_WORD + 1), LONGEST_WORD));
        assert!(is_model("gpt-5:cut-after-args,complete") && is_model("gpt-5:story=500,length"));
        for text in ["first, second", "a,b?", &"x,".repeat(LONGEST_MODEL)] {
            assert!(!is_model(text), "{text}");
        }
        assert!(!is_name("a,b", LONGEST_WORD));
    }

    #[test]
    fn exact_secrets_are_masked_wherever_they_were_shown() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Basic dXNlci1uYW1lOm9wZW4tc2VzYW1l".parse().unwrap());
        headers.insert("cookie", "a=b; session=crumbly-cookie".parse().unwrap());
        headers.insert("x-api-key", "plain-secret".parse().unwrap());
        let uri = "/v1/x?alt=sse&key=query-secret&token=a%2Bsecret%2Fvalue".parse().unwrap();
        let own = own("key-of-the-gateway");
        let shown = SecretsShown::new(&headers, &uri, Auth::Header("x-api-key"), &own);
        for secret in [
            "dXNlci1uYW1lOm9wZW4tc2VzYW1l",
            "user-name:open-sesame",
            "open-sesame",
            "crumbly-cookie",
            "plain-secret",
            "query-secret",
            "a+secret/value",
            "key-of-the-gateway",
            r"a+secret\/value",
            r"a\u002Bsecret\/value",
        ] {
            let mut text = Some(format!("the key {secret} is wrong"));
            shown.mask(&mut text);
            assert!(!text.as_ref().unwrap().contains(secret), "{text:?}");
            assert!(text.unwrap().starts_with("the key [key]"));
        }
        let long = "x".repeat(120);
        let mut text = Some(format!("{long} key-of-the-g"));
        shown.mask(&mut text);
        assert_eq!(text.unwrap(), format!("{long} [key]"));
        let mut text = Some("query-se".to_owned());
        shown.mask(&mut text);
        assert_eq!(text.unwrap(), "query-se", "a short text is whole");
        let mut text = Some("sse was asked for".to_owned());
        shown.mask(&mut text);
        assert_eq!(text.unwrap(), "sse was asked for");
    }
}
