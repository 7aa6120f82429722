//! Reads from a request what its response is judged by: the model, the output token limit, streaming,
//! the number of choices, stop sequences, tools, and whether it runs in the background.
//!
//! Prompts and answers are not read, and nothing is stored.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::dialect::Streams;
use crate::dialect::common::{AWS_STREAM, TOOL_NAME, model_in_path};
use crate::frame::Framing;
use crate::mend::mend;
use crate::next_request::ConversationShape;
use crate::provider::{Profile, after_part};
use crate::text::{WORD_CAP, clean};

/// Mark that some writers put before JSON in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Facts about the request. Each is optional, and each makes the verdict more certain.
///
/// ```
/// use endstop::RequestInfo;
///
/// let request = RequestInfo { cap: Some(1024), choices: Some(2), ..RequestInfo::default() };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Model.
    pub model: Option<String>,
    /// Whether the request asks for a stream; `None` if it cannot be told, as with two values that
    /// differ. The form of the response tells it then.
    pub streamed: Option<bool>,
    /// Output token limit.
    pub cap: Option<u64>,
    /// Number of choices.
    pub choices: Option<u32>,
    /// Stop sequences.
    pub stop: Vec<String>,
    /// Names of the tools that the caller runs; `None` if not known. They matter if the host runs
    /// tools of the same kind itself.
    pub tools: Option<Vec<String>>,
    /// Whether the response is generated in the background and polled.
    pub background: bool,
}

impl RequestInfo {
    /// Reads a request on this wire. The fields are `None` if the body cannot be parsed. If a name
    /// occurs twice in an object, the last value counts, as with most hosts.
    ///
    /// ```
    /// use endstop::{RequestInfo, provider};
    ///
    /// let body = br#"{"model":"gpt-5","stream":true,"max_completion_tokens":100,"messages":[]}"#;
    /// let request = RequestInfo::from_request(&provider::OPENAI.main, "/v1/chat/completions", body);
    /// assert_eq!((request.streamed, request.cap), (Some(true), Some(100)));
    /// ```
    #[must_use]
    pub fn from_request(profile: &Profile, path: &str, body: &[u8]) -> Self {
        let shape = &profile.request_shape;
        // Hosts skip a byte order mark, and differ in the invalid text that they accept.
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        let mended;
        let (fields, is_read) = match serde_json::from_slice::<Fields<'_>>(body) {
            Ok(fields) => (fields, true),
            Err(_) => {
                mended = mend(body).map(|mended| mended.last).unwrap_or_default();
                let fields = serde_json::from_slice(&mended).unwrap_or_default();
                (fields, body.trim_ascii().is_empty())
            }
        };
        let model = at(&fields, shape.model).and_then(text).or_else(|| model_in_path(path));
        Self {
            model: model.map(|model| clean(&model, WORD_CAP)),
            streamed: streamed(profile, path, &fields)
                .filter(|streams| *streams || is_read || in_path(profile)),
            cap: profile.caps.iter().find_map(|cap| at(&fields, cap).and_then(number)),
            choices: shape
                .choices
                .iter()
                .find_map(|name| at(&fields, name).and_then(number))
                .and_then(|choices| u32::try_from(choices).ok()),
            stop: shape
                .stop
                .iter()
                .find_map(|name| at(&fields, name))
                .map(texts)
                .unwrap_or_default(),
            background: at(&fields, shape.background).is_some_and(|flag| flag.get() == "true"),
            tools: profile.quirks.runs_custom_tools.then(|| tools(profile, &fields)),
        }
    }
}

impl RequestInfo {
    /// Reads a request that polls a response on this wire. Its query says whether it asks for a stream.
    ///
    /// ```
    /// use endstop::{RequestInfo, provider};
    ///
    /// let responses = provider::OPENAI.wire_of("openai-responses").unwrap();
    /// let poll = RequestInfo::from_poll(responses, "/v1/responses/resp_1?stream=true");
    /// assert_eq!((poll.streamed, poll.background), (Some(true), true));
    /// ```
    #[must_use]
    pub fn from_poll(profile: &Profile, path: &str) -> Self {
        let query = path.split_once('?').map(|(_, query)| query).unwrap_or_default();
        let streamed = match profile.dialect.streams {
            Streams::Flag(name) | Streams::UnlessFalse(name) => query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .any(|(key, value)| key == name && value.eq_ignore_ascii_case("true")),
            Streams::Path(part) => after_part(path, part).is_some(),
        };
        Self {
            streamed: Some(streamed),
            background: true,
            ..Self::from_request(profile, path, b"")
        }
    }
}

impl Profile {
    /// Returns the parts of a request that make it the same request: the model, the conversation and
    /// the tools, as they stand in the body. Options such as streaming are not among them.
    #[must_use]
    pub fn conversation<'a>(&self, body: &'a [u8]) -> Vec<&'a str> {
        let shape = &self.request_shape;
        let fields: Fields<'a> = serde_json::from_slice(body).unwrap_or_default();
        let names = shape.conversation.iter().flat_map(ConversationShape::fields);
        let names = names.chain([shape.model]).chain(shape.tools.iter().copied());
        let parts: Vec<&str> =
            names.filter_map(|name| at(&fields, name)).map(RawValue::get).collect();
        if shape.conversation.is_empty() || parts.is_empty() {
            return std::str::from_utf8(body).into_iter().collect();
        }
        parts
    }

    /// Reports whether a GET of this path polls a response.
    #[must_use]
    pub fn polls(&self, path: &str) -> bool {
        let part = self.request_shape.poll;
        let id = after_part(path, part).filter(|_| !part.is_empty());
        id.is_some_and(|id| !id.is_empty() && !id.contains('/'))
    }

    /// Returns the purpose of a request with this method to a path that this wire serves. Returns
    /// `None` for a method that no host serves there.
    ///
    /// ```
    /// use endstop::provider::OPENAI;
    /// use endstop::Purpose;
    ///
    /// let purpose = |method| OPENAI.main.purpose(method, "/v1/chat/completions");
    /// assert_eq!(purpose("POST"), Some(Purpose::Ask));
    /// assert_eq!(purpose("GET"), Some(Purpose::Manage));
    /// assert_eq!((purpose("PUT"), purpose("post")), (None, None));
    /// ```
    #[must_use]
    pub fn purpose(&self, method: &str, path: &str) -> Option<Purpose> {
        match method {
            "POST" => Some(Purpose::Ask),
            "GET" if self.polls(path) => Some(Purpose::Poll),
            "GET" | "HEAD" | "DELETE" | "OPTIONS" => Some(Purpose::Manage),
            _ => None,
        }
    }
}

/// Purpose of a request to a path that a wire serves.
///
/// Closed list: code that admits requests must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It asks a model.
    Ask,
    /// It polls a response that is generated in the background.
    Poll,
    /// It lists, reads or deletes stored responses. No model answers it.
    Manage,
}

impl Purpose {
    /// Methods that have a purpose, as the header `allow` lists them.
    pub const METHODS: &'static str = "POST, GET, HEAD, DELETE, OPTIONS";
}

/// Unparsed fields of one object. Of two with one name, the last counts.
#[derive(Default)]
struct Fields<'a>(Vec<(Name<'a>, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(known, _)| known.0 == name).map(|(_, value)| *value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Members<'a> {
            type Value = Fields<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Fields<'a>, M::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(member) = members.next_entry()? {
                    fields.push(member);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// Name of a field, borrowed unless it has escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Borrowed<'a> {
            type Value = Name<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'a>, E> {
                Ok(Name(name.into()))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'a>, E> {
                Ok(Name(name.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Borrowed(PhantomData))
    }
}

/// Returns the names of the tools that the request offers.
fn tools(profile: &Profile, fields: &Fields<'_>) -> Vec<String> {
    let lists =
        profile.request_shape.forced_tools.iter().filter_map(|force| at(fields, force.tools));
    let tools = lists
        .flat_map(|list| serde_json::from_str::<Vec<Fields<'_>>>(list.get()).unwrap_or_default());
    tools.filter_map(|tool| at(&tool, TOOL_NAME).and_then(text)).collect()
}

/// Reports whether the path alone says that the response is streamed.
fn in_path(profile: &Profile) -> bool {
    let by_framing = matches!(profile.framing, Framing::Aws | Framing::AwsChunks);
    by_framing || matches!(profile.dialect.streams, Streams::Path(_))
}

fn streamed(profile: &Profile, path: &str, fields: &Fields<'_>) -> Option<bool> {
    let by_path = matches!(profile.framing, Framing::Aws | Framing::AwsChunks);
    match profile.dialect.streams {
        _ if by_path => Some(after_part(path, AWS_STREAM).is_some()),
        Streams::Flag(name) => flag(fields, name, Some(false)),
        Streams::UnlessFalse(name) => flag(fields, name, Some(true)),
        Streams::Path(part) => Some(after_part(path, part).is_some()),
    }
}

/// Returns the value of a flag, or `None` if hosts could read it in different ways: two values that
/// differ, or a value such as `"true"`, which some of them accept.
fn flag(fields: &Fields<'_>, name: &str, absent: Option<bool>) -> Option<bool> {
    let mut found = None;
    each(fields, name, &mut |value| {
        let read = match value.get() {
            "true" => Some(true),
            "false" => Some(false),
            "null" => absent,
            _ => None,
        };
        found = Some(match found {
            None => read,
            Some(before) => read.filter(|_| before == read),
        });
    });
    found.unwrap_or(absent)
}

/// Visits every value at a path of names, also where a name occurs several times.
fn each<'a>(fields: &Fields<'a>, path: &str, visit: &mut dyn FnMut(&'a RawValue)) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    for (_, value) in fields.0.iter().filter(|(known, _)| known.0 == name) {
        match rest {
            None => visit(value),
            Some(rest) => {
                let inner: Fields<'a> = serde_json::from_str(value.get()).unwrap_or_default();
                each(&inner, rest, visit);
            }
        }
    }
}

/// Returns the value at a path of names separated by dots.
fn at<'a>(fields: &Fields<'a>, path: &str) -> Option<&'a RawValue> {
    // Paths are short: looking at each byte is faster than `split_once`.
    let dot = path.bytes().position(|byte| byte == b'.');
    match dot.and_then(|dot| Some((path.get(..dot)?, path.get(dot + 1..)?))) {
        None => fields.get(path),
        Some((first, rest)) => {
            let inner: Fields<'a> = serde_json::from_str(fields.get(first)?.get()).ok()?;
            at(&inner, rest)
        }
    }
}

fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn texts(value: &RawValue) -> Vec<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stops {
        One(String),
        Some(Vec<String>),
        Other(serde::de::IgnoredAny),
    }
    match serde_json::from_str(value.get()) {
        Ok(Stops::One(stop)) => vec![stop],
        Ok(Stops::Some(stops)) => stops,
        Ok(Stops::Other(_)) | Err(_) => Vec::new(),
    }
}

fn number(value: &RawValue) -> Option<u64> {
    serde_json::from_str(value.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider;

    #[test]
    fn each_wire_says_it_its_own_way() {
        let read = |profile: &Profile, path: &str, body: &str| {
            let request = RequestInfo::from_request(profile, path, body.as_bytes());
            (request.model, request.streamed, request.cap, request.choices)
        };
        let google = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
        let bedrock = "/model/anthropic.claude-v2%3A1/converse-stream";
        let chat = "/v1/chat/completions";
        let (openai, ollama) = (&provider::OPENAI.main, &provider::OLLAMA.main);
        assert_eq!(
            read(openai, chat, r#"{"model":"m","max_tokens":5,"n":2}"#),
            (Some("m".into()), Some(false), Some(5), Some(2))
        );
        assert_eq!(read(ollama, "/api/chat", "{}"), (None, Some(true), None, None));
        assert_eq!(read(ollama, "/api/chat", r#"{"stream":false}"#).1, Some(false));
        assert_eq!(
            read(
                &provider::GOOGLE.main,
                google,
                r#"{"generationConfig":{"maxOutputTokens":9,"candidateCount":3}}"#
            ),
            (Some("gemini-3-pro".into()), Some(true), Some(9), Some(3))
        );
        assert_eq!(
            read(&provider::BEDROCK.main, bedrock, r#"{"inferenceConfig":{"maxTokens":7}}"#),
            (Some("anthropic.claude-v2:1".into()), Some(true), Some(7), None)
        );
    }

    #[test]
    fn polls_are_known_by_their_path() {
        let responses = provider::OPENAI.wire_of("openai-responses").unwrap();
        assert!(responses.polls("/v1/responses/resp_1"));
        for path in ["/v1/responses", "/v1/responses/", "/v1/responses/resp_1/input_items"] {
            assert!(!responses.polls(path), "{path}");
        }
        assert!(!provider::ANTHROPIC.main.polls("/v1/messages/msg_1"));
    }

    #[test]
    fn two_values_are_not_read_as_the_safe_one() {
        let read = |body: &[u8]| {
            let path = "/v1/chat/completions";
            RequestInfo::from_request(&provider::OPENAI.main, path, body)
        };
        for (body, streamed) in [
            (r#"{"stream":true}"#, Some(true)),
            (r#"{"stream":false}"#, Some(false)),
            (r#"{"stream":null}"#, Some(false)),
            (r#"{}"#, Some(false)),
            (r#""#, Some(false)),
            (r#"{"stream":false,"stream":true}"#, None),
            (r#"{"stream":true,"stream":false}"#, None),
            (r#"{"stream":true,"\u0073tream":false}"#, None),
            (r#"{"stream":true,"stream":true}"#, Some(true)),
            (r#"{"stream":false,"stream":true,"stream":true}"#, None),
            (r#"{"stream":"true"}"#, None),
            (r#"{"stream":1}"#, None),
            (r#"{"stream":true"#, None),
            (r#"{"stream":true} x"#, None),
        ] {
            assert_eq!(read(body.as_bytes()).streamed, streamed, "{body}");
        }
        let last = read(br#"{"model":"a","max_tokens":1,"n":1,"model":"b","max_tokens":2,"n":3}"#);
        assert_eq!((last.model.as_deref(), last.cap, last.choices), (Some("b"), Some(2), Some(3)));
        // Bodies that hosts accept although they are no valid JSON text.
        for body in [&b"\xef\xbb\xbf{\"stream\":true}"[..], b"{\"x\":\"\xff\",\"stream\":true}"] {
            assert_eq!(read(body).streamed, Some(true), "{body:?}");
        }
        let utf16: Vec<u8> =
            "{\"stream\":true}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(read(&utf16).streamed, None);
    }

    #[test]
    fn what_cannot_be_read_asks_for_nothing() {
        for body in ["", "[1,2]", "{\"model\":", "{\"stream\":\"yes\",\"max_tokens\":-4,\"n\":{}}"]
        {
            let path = "/v1/chat/completions";
            let request = RequestInfo::from_request(&provider::OPENAI.main, path, body.as_bytes());
            assert_eq!((request.model, request.cap, request.choices), (None, None, None), "{body}");
        }
    }
}
