//! Provider errors: the shapes that all wires share, and patterns in their messages.
//!
//! The shapes are shared because gateways pass on the errors of other providers unchanged. The kind
//! of an error is data: each profile lists its [`ErrorPattern`]s, then come the shared ones, then
//! the HTTP status.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::overflow;
use crate::event::Word;
use crate::fault::pattern::{message, name};
use crate::fault::{At, ErrorPattern, Fault, FaultForm, FaultKind};
use crate::text::{DETAIL_CAP, WORD_CAP, clean};
use crate::wire::{Count, Few, Loose, Scalar, Text, is_nothing};

/// Name of an error event. Gateways send it on any wire.
pub(crate) const EVENT: &str = "error";

/// Patterns for every host: gateways pass on each other's errors, so any host may send any of them.
/// Messages about the context window are read by [`overflow::kind_of`], after these.
static COMMON: &[ErrorPattern] = &[
    name("context_length_exceeded", FaultKind::ContextWindow),
    name("exceed_context_size_error", FaultKind::ContextWindow),
    name("context_exceeded", FaultKind::ContextWindow),
    name("model_max_prompt_tokens_exceeded", FaultKind::ContextWindow),
    name("too_many_prompt_tokens", FaultKind::ContextWindow),
    name("tokens_limit_reached", FaultKind::ContextWindow),
    message("rate limit", FaultKind::RateLimit),
    message("per minute", FaultKind::RateLimit),
    message("tokens per min", FaultKind::RateLimit),
    message("too many requests", FaultKind::RateLimit),
    message("tokens per day", FaultKind::RateLimit),
    message("credit balance is too low", FaultKind::Quota),
    message("audio input is too long", FaultKind::InvalidRequest),
];

/// A parsed error whose kind is not known yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawError {
    pub(crate) status: Option<u16>,
    /// Types, codes and status names, the most specific first.
    pub(crate) names: Vec<String>,
    pub(crate) type_: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) message: Option<String>,
    /// Upstream error that a router passes on. It is matched against patterns, but not kept.
    pub(crate) inner: String,
}

impl RawError {
    /// Returns the fault. Its kind follows from the names that the profile knows and the shared ones,
    /// then from the shared patterns of messages and the profile's own, then from the HTTP status.
    pub(crate) fn judge(self, error_patterns: &[&[ErrorPattern]]) -> Fault {
        let message = self.message.unwrap_or_default();
        let text = format!("{message} {}", self.inner).to_ascii_lowercase();
        let all = error_patterns.iter().copied();
        let own = |at| all.clone().flatten().filter(move |sign| sign.at == at);
        let common = |at| COMMON.iter().filter(move |sign| sign.at == at);
        let is_named = |sign: &&ErrorPattern| self.names.iter().any(|name| name == sign.is);
        let is_worded = |sign: &&ErrorPattern| text.contains(sign.is);
        let kind = if let Some(sign) = own(At::Name).chain(common(At::Name)).find(is_named) {
            sign.kind
        } else if let Some(sign) = common(At::Message).find(is_worded) {
            sign.kind
        } else if let Some(kind) = overflow::kind_of(&text)
            .or_else(|| own(At::Message).find(is_worded).map(|sign| sign.kind))
        {
            // With HTTP 429 the limit is tokens per minute, whatever the message says.
            let limited = kind == FaultKind::ContextWindow && self.status == Some(429);
            if limited { FaultKind::RateLimit } else { kind }
        } else if let Some(status) = self.status {
            let is_own = |sign: &&ErrorPattern| sign.is.parse() == Ok(status);
            own(At::Status).find(is_own).map_or_else(|| kind_of_status(status), |sign| sign.kind)
        } else {
            own(At::Class).find(is_named).map_or(FaultKind::Other, |sign| sign.kind)
        };
        Fault {
            kind,
            status: self.status,
            type_: self.type_.map(|name| clean(&name, WORD_CAP)),
            code: self.code.map(|code| clean(&code, WORD_CAP)),
            message: (!message.is_empty()).then(|| clean(&message, DETAIL_CAP)),
            form: FaultForm::Object,
            rejected: false,
        }
    }
}

/// Returns the kind of an error of which only the HTTP status is known.
fn kind_of_status(status: u16) -> FaultKind {
    match status {
        401 | 403 => FaultKind::Auth,
        402 => FaultKind::Quota,
        404 => FaultKind::NotFound,
        408 | 504 => FaultKind::Timeout,
        429 => FaultKind::RateLimit,
        499 => FaultKind::Cancelled,
        503 | 529 => FaultKind::Overloaded,
        // The model failed, on Bedrock or TGI.
        424 => FaultKind::Server,
        400..=498 => FaultKind::InvalidRequest,
        500..=599 => FaultKind::Server,
        _ => FaultKind::Other,
    }
}

/// All known fields of provider errors, at the top level and inside `error`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Error of an Assistants run.
    #[serde(borrow)]
    last_error: Option<&'a RawValue>,
    /// List of errors on some hosts. The first one counts.
    #[serde(borrow)]
    errors: Few<&'a RawValue>,
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    #[serde(borrow, rename = "Message")]
    capital_message: Text<'a>,
    #[serde(borrow)]
    msg: Text<'a>,
    #[serde(borrow, rename = "errorMessage")]
    error_message: Text<'a>,
    #[serde(borrow)]
    err: Text<'a>,
    #[serde(borrow, rename = "type")]
    type_: Scalar<'a>,
    #[serde(borrow)]
    __type: Scalar<'a>,
    #[serde(borrow)]
    code: Scalar<'a>,
    #[serde(borrow)]
    status: Scalar<'a>,
    #[serde(borrow)]
    error_type: Scalar<'a>,
    #[serde(borrow)]
    error_code: Scalar<'a>,
    #[serde(borrow)]
    status_code: Scalar<'a>,
    #[serde(borrow)]
    http_status_code: Scalar<'a>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
    #[serde(borrow)]
    details: Loose<Details<'a>>,
    #[serde(borrow)]
    innererror: Loose<Details<'a>>,
    #[serde(borrow)]
    metadata: Loose<Details<'a>>,
    /// Error of some hosts, with HTTP 200.
    #[serde(borrow)]
    base_resp: Loose<BaseResp<'a>>,
    /// Objects in which wires nest an error.
    #[serde(borrow)]
    response: Loose<Nested<'a>>,
    #[serde(borrow)]
    delta: Loose<Nested<'a>>,
    #[serde(borrow)]
    interaction: Loose<Nested<'a>>,
    #[serde(borrow)]
    choices: Few<Loose<Nested<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BaseResp<'a> {
    status_code: Count,
    #[serde(borrow)]
    status_msg: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Nested<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    errors: Few<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    #[serde(borrow)]
    error_code: Scalar<'a>,
    #[serde(borrow)]
    error_type: Scalar<'a>,
    #[serde(borrow)]
    code: Scalar<'a>,
    #[serde(borrow)]
    raw: Text<'a>,
}

/// Condition for a value to count as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Any payload is possible: only a value that is marked as an error counts.
    Anything,
    /// The HTTP status or the framing reports an error: a message alone is enough.
    Error,
    /// A body that no wire recognises: a message is enough, and its kind decides.
    Message,
}

/// Fields that errors have beside their message.
static BESIDE_MESSAGE: &[&str] = &[
    "message",
    "Message",
    "msg",
    "code",
    "type",
    "__type",
    "status",
    "id",
    "request_id",
    "requestId",
    "param",
];

/// Maximum number of errors in messages of errors, as gateways nest them.
const MAX_WITHIN: u32 = 4;

/// Reads an error in any of the known shapes.
pub(crate) fn read(data: &[u8], expect: Expect) -> Option<RawError> {
    let data = crate::frame::trim(data);
    if data.starts_with(b"[") {
        // Only one list is opened: lists can be nested as deep as the data is long.
        let list: Few<&RawValue> = serde_json::from_slice(data).ok()?;
        return read_object(list.first()?.get().as_bytes(), expect, MAX_WITHIN);
    }
    read_object(data, expect, MAX_WITHIN)
}

/// Reads an object. Its message may be an error, too, down to this many levels.
fn read_object(data: &[u8], expect: Expect, levels: u32) -> Option<RawError> {
    // A list would be taken for the fields in their order.
    if data.starts_with(b"[") {
        return None;
    }
    let wire: Payload<'_> = serde_json::from_slice(data).ok()?;
    let mut told = RawError::default();
    let nested = [wire.last_error, wire.response.error, wire.delta.error, wire.interaction.error];
    let lists = [wire.errors.first(), wire.interaction.errors.first()];
    let nested = nested.into_iter().flatten().chain(lists.into_iter().flatten().copied());
    let nested = nested.chain(wire.choices.iter().filter_map(|choice| choice.error));
    match wire.error.into_iter().chain(nested).find(|raw| is_set(Some(raw))).map(RawValue::get) {
        Some(error) if error.starts_with('{') => {
            wire.names(Place::Around, &mut told);
            let inner: Payload<'_> = serde_json::from_str(error).ok()?;
            inner.names(Place::Error, &mut told);
            inner.text(&mut told);
        }
        Some(error) if error.starts_with('"') => {
            wire.names(Place::Around, &mut told);
            told.message =
                serde_json::from_str::<String>(error).ok().filter(|text| !text.is_empty());
            told.message.as_ref()?;
        }
        _ if wire.is_flat_error() || expect == Expect::Error => {
            wire.names(Place::Error, &mut told);
            wire.text(&mut told);
        }
        _ if expect == Expect::Message => {
            wire.names(Place::Error, &mut told);
            wire.text(&mut told);
            told.message.as_ref()?;
        }
        _ => return None,
    }
    told.read_message_within(levels);
    Some(told)
}

/// Place of an object in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The error itself.
    Error,
    /// The object around it, whose `status` is the state of the response.
    Around,
}

/// Reports whether an object has only fields of errors, apart from nulls.
pub(crate) fn is_message(data: &[u8]) -> bool {
    let fields = serde_json::from_slice::<BTreeMap<Cow<'_, str>, &RawValue>>(data);
    let fits = |(key, value): (&Cow<'_, str>, &&RawValue)| {
        BESIDE_MESSAGE.contains(&&**key) || value.get() == "null"
    };
    fields.is_ok_and(|fields| fields.iter().all(fits))
}

/// Reports whether an error field holds an error. Null, false and empty values do not count, nor
/// does an object of them.
pub(crate) fn is_set(error: Option<&RawValue>) -> bool {
    error.is_some_and(|raw| !is_nothing(raw) && !is_hollow(raw))
}

/// Reports whether a value is an object whose fields are all null, false or empty.
fn is_hollow(raw: &RawValue) -> bool {
    let fields = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(raw.get());
    fields.is_ok_and(|fields| fields.values().all(|value| is_nothing(value)))
}

impl Payload<'_> {
    /// Reports whether this is an error without an `error` field: it is marked as one, or has a
    /// `detail` and no type.
    fn is_flat_error(&self) -> bool {
        let base = &self.base_resp.status_code;
        self.object.0 == "error"
            || self.detail.is_some() && self.type_.0.is_none() && self.__type.0.is_none()
            || base.0.is_some_and(|code| code != 0)
    }

    fn names(&self, place: Place, told: &mut RawError) {
        let nested = [&self.details, &self.innererror, &self.metadata];
        let nested = nested.iter().flat_map(|d| [&d.error_code, &d.error_type, &d.code]);
        let own = [
            &self.error_type,
            &self.error_code,
            &self.code,
            &self.type_,
            &self.__type,
            &self.status,
        ];
        let numbers = [&self.http_status_code, &self.status_code];
        for scalar in own.into_iter().chain(nested).chain(numbers) {
            let Some(name) = scalar.to_text() else { continue };
            match name.parse::<u16>() {
                Ok(status) if (400..=599).contains(&status) => told.status = Some(status),
                // AWS puts a namespace before some names.
                _ => told.names.push(name.rsplit('#').next().unwrap_or(&name).to_owned()),
            }
        }
        if let Some(code) = self.base_resp.status_code.0.filter(|code| *code != 0) {
            told.names.push(code.to_string());
            told.code = Some(code.to_string());
        }
        told.inner.push_str(&self.metadata.raw);
        // A number is the HTTP status.
        let state = Scalar::default();
        let is_name = place == Place::Error && matches!(self.status.0, Some(Word::Text(_)));
        let status = if is_name { &self.status } else { &state };
        let types = [&self.type_, &self.__type, &self.error_type, status];
        told.type_ = own_text(&types).or(told.type_.take());
        told.code = own_text(&[&self.code, &self.details.error_code]).or(told.code.take());
    }

    fn text(&self, told: &mut RawError) {
        let texts =
            [&self.message, &self.capital_message, &self.msg, &self.error_message, &self.err];
        let text = match self.detail.map(RawValue::get) {
            _ if texts.iter().any(|text| !text.is_empty()) => {
                let text = texts.iter().find(|text| !text.is_empty());
                text.map(|text| text.0.clone().into_owned()).unwrap_or_default()
            }
            _ if !self.base_resp.status_msg.is_empty() => {
                self.base_resp.status_msg.0.clone().into_owned()
            }
            Some(detail) => detail_text(detail),
            None => return,
        };
        told.message = Some(text);
    }
}

fn own_text(scalars: &[&Scalar<'_>]) -> Option<String> {
    let text =
        scalars.iter().filter_map(|scalar| scalar.to_text()).find(|text| !text.is_empty())?;
    // The name of the error's event is not the type of the error.
    (!matches!(&*text, "error" | "failed" | "response.failed" | "message-end"))
        .then(|| text.into_owned())
}

/// Returns `detail` as text. It is a string on some wires and a list of validation errors on
/// others.
fn detail_text(detail: &str) -> String {
    serde_json::from_str::<Cow<'_, str>>(detail).map_or_else(|_| detail.to_owned(), Cow::into_owned)
}

impl RawError {
    /// Reads an error inside the message. Vertex sends Claude's error as text in its own message.
    fn read_message_within(&mut self, levels: u32) {
        let Some(levels) = levels.checked_sub(1) else { return };
        let Some(message) = self.message.as_deref().filter(|text| text.starts_with('{')) else {
            return;
        };
        let inner = read_object(message.as_bytes(), Expect::Anything, levels);
        let Some(inner) = inner else { return };
        self.names.splice(0..0, inner.names);
        self.type_ = inner.type_.or(self.type_.take());
        self.code = inner.code.or(self.code.take());
        self.message = inner.message.or(self.message.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::pattern::name;

    /// Neither lists nor errors within messages overflow the stack or take long.
    #[test]
    fn nesting_is_bounded() {
        assert!(read("[".repeat(1 << 20).as_bytes(), Expect::Error).is_none());
        let lists = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(lists.as_bytes(), Expect::Error).is_none());
        let mut error = r#"{"error":{"message":"x"}}"#.to_owned();
        for _ in 0..8 {
            let message = serde_json::to_string(&error).unwrap();
            error = format!(r#"{{"error":{{"message":{message}}}}}"#);
        }
        let told = read(error.as_bytes(), Expect::Anything).unwrap();
        assert!(told.message.unwrap().starts_with("{\"error\""));
    }

    #[track_caller]
    fn check(json: &str, expect: Expect, want: Option<(&str, &str, &str)>) {
        let told = read(json.as_bytes(), expect);
        let got = told.as_ref().map(|told| {
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            (text(&told.type_), text(&told.code), text(&told.message))
        });
        let want = want.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(got, want, "{json}");
    }

    #[test]
    fn every_known_shape_is_read() {
        use Expect::{Anything, Error, Message};
        check(
            r#"{"error":{"message":"m","type":"t","param":null,"code":"c"}}"#,
            Anything,
            Some(("t", "c", "m")),
        );
        check(
            r#"{"error":{"code":502,"message":"m","metadata":{"error_type":"e"}}}"#,
            Anything,
            Some(("", "502", "m")),
        );
        check(
            r#"{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}"#,
            Anything,
            Some(("INVALID_ARGUMENT", "400", "m")),
        );
        check(
            r#"[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}]"#,
            Anything,
            Some(("UNAVAILABLE", "503", "m")),
        );
        check(
            r#"{"object":"error","message":"m","type":"t","code":"3051"}"#,
            Anything,
            Some(("t", "3051", "m")),
        );
        check(r#"{"code":"c","error":"m"}"#, Anything, Some(("", "c", "m")));
        check(
            r#"{"error":"m","error_type":"validation"}"#,
            Anything,
            Some(("validation", "", "m")),
        );
        check(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"m","details":null}}"#,
            Anything,
            Some(("overloaded_error", "", "m")),
        );
        check(
            r#"{"type":"response.failed","response":{"error":{"code":"c","message":"m"}}}"#,
            Anything,
            Some(("", "c", "m")),
        );
        check(
            r#"{"type":"message-end","delta":{"finish_reason":"ERROR","error":"m"}}"#,
            Anything,
            Some(("", "", "m")),
        );
        check(
            r#"{"choices":[{},{"error":{"code":502,"message":"m"}}]}"#,
            Anything,
            Some(("", "502", "m")),
        );
        check(
            r#"{"object":"thread.run","status":"failed","last_error":{"code":"c","message":"m"}}"#,
            Anything,
            Some(("", "c", "m")),
        );
        check(
            r#"{"success":false,"errors":[{"code":7009,"message":"m"}]}"#,
            Anything,
            Some(("", "7009", "m")),
        );
        check(
            r#"{"interaction":{"status":"failed","errors":[{"code":"c","message":"m"}]}}"#,
            Anything,
            Some(("", "c", "m")),
        );
        check(r#"{"finish_reason":"ERROR","err":"m"}"#, Error, Some(("", "", "m")));
        check(r#"{"detail":"m"}"#, Anything, Some(("", "", "m")));
        check(r#"{"detail":[{"msg":"x"}]}"#, Anything, Some(("", "", r#"[{"msg":"x"}]"#)));
        check(r#"{"message":"m"}"#, Error, Some(("", "", "m")));
        check(r#"{"Message":"m","__type":"t"}"#, Error, Some(("t", "", "m")));
        check(
            r#"{"error":{"message":"m","type":null,"code":"content_filter","status":400}}"#,
            Anything,
            Some(("", "content_filter", "m")),
        );
        check(
            r#"{"status":"completed","error":{"code":"server_error","message":"m"}}"#,
            Anything,
            Some(("", "server_error", "m")),
        );
        check(r#"{"id":"x","message":"m"}"#, Message, Some(("", "", "m")));
        check(r#"{"code":"c","message":"m","request_id":"r"}"#, Message, Some(("", "c", "m")));
        check(r#"{"message":{"content":"a"},"id":"x"}"#, Message, None);
        check(r#"{"id":"x"}"#, Message, None);
        assert!(is_message(br#"{"message":"m","id":"x","answer":null}"#));
        assert!(!is_message(br#"{"message":"m","answer":"a"}"#));
        check(
            r#"{"error":{"code":400,"message":"{\"type\":\"error\",\"error\":{\"type\":\"t\",\"message\":\"m\"}}","status":"S"}}"#,
            Anything,
            Some(("t", "400", "m")),
        );
    }

    #[test]
    fn what_is_no_error_is_none() {
        for json in [
            r#"{"message":"m"}"#,
            r#"{"error":{}}"#,
            r#"{"type":"x","detail":"m"}"#,
            r#"{"base_resp":{"status_code":0,"status_msg":"success"}}"#,
            r#"{"error":null}"#,
            r#"{"error":""}"#,
            r#"{"error":false}"#,
            r#"{"success":true,"errors":[],"last_error":null}"#,
            "{}",
            "[]",
            "nonsense",
            "7",
        ] {
            check(json, Expect::Anything, None);
        }
    }

    #[test]
    fn signs_come_before_the_status_and_rate_limits_before_signs() {
        let error_patterns: &[ErrorPattern] = &[
            message("too large", FaultKind::ContextWindow),
            name("slow_down", FaultKind::Overloaded),
        ];
        let kind = |message: &str, name: &str, status| {
            let told = RawError {
                status,
                names: vec![name.to_owned()],
                message: Some(message.to_owned()),
                ..RawError::default()
            };
            told.judge(&[error_patterns]).kind
        };
        assert_eq!(kind("Request Too Large", "", Some(400)), FaultKind::ContextWindow);
        assert_eq!(kind("Request too large: tokens per min", "", Some(429)), FaultKind::RateLimit);
        assert_eq!(kind("x", "slow_down", Some(500)), FaultKind::Overloaded);
        assert_eq!(kind("x", "", Some(401)), FaultKind::Auth);
        assert_eq!(kind("x", "", None), FaultKind::Other);
    }
}
