//! Faults: the errors that providers send, in every shape they send them, and what kind they are.
//!
//! The shapes are shared by all wires, since gateways pass other providers' errors on as they came.
//! What an error means is data: each profile lists its [`ErrorPattern`]s, and the HTTP status speaks where
//! none of them does.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ending::Reason;
use crate::text::{DETAIL_CAP, WORD_CAP, clean};
use crate::wire::{Count, Few, Loose, Scalar, Text, is_nothing};

/// An error that the provider sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What kind of error it is.
    pub kind: FaultKind,
    /// The HTTP status, the response's or one given in the error itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's type, such as `overloaded_error`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The provider's code, such as `context_length_exceeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The provider's message, capped, without keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it was sent as.
    pub form: FaultForm,
    /// The response's own HTTP status says that it is an error, rather than its body alone.
    #[serde(skip)]
    pub rejected: bool,
}

impl Fault {
    /// What it is to be told apart by, for operators.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        // A page says nothing, whatever its status makes of it.
        let is_page = self.form == FaultForm::Text && self.message.is_none();
        match (self.rejected, self.status) {
            _ if self.kind == FaultKind::BadPayload => "upstream_bad_payload",
            (true, Some(300..=399)) => "blocked_redirect",
            _ if is_page => "upstream_bad_payload",
            (true, _) => "upstream_rejected",
            (false, _) => "upstream_error",
        }
    }
}

/// What an error was sent as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultForm {
    /// As an error of the wire, which is the provider's word on it.
    #[default]
    Object,
    /// As a page or plain text, which anyone on the way may have sent.
    Text,
    /// As an HTTP status and nothing else.
    Status,
}

/// What kind of error it is, and so what can be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// None of the others.
    #[default]
    Other,
    /// The input does not fit the context window.
    ContextWindow,
    /// The output cap was reached, and the provider tells it as an error.
    OutputLimit,
    /// The provider has more work than it can do; try again.
    Overloaded,
    /// The caller asks too often; wait and try again.
    RateLimit,
    /// The caller's quota or balance is used up.
    Quota,
    /// The key is wrong or may not do this.
    Auth,
    /// A filter or policy blocked the request or the answer.
    Filter,
    /// The model's tool call could not be read.
    ToolCall,
    /// The provider's own time limit passed.
    Timeout,
    /// The request was cancelled.
    Cancelled,
    /// There is no such model or route.
    NotFound,
    /// The request is wrong.
    InvalidRequest,
    /// The provider failed.
    Server,
    /// What came is no answer at all: an HTML page, plain text, compressed bytes.
    BadPayload,
}

impl FaultKind {
    /// The reason that a response with this error ended for.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::ContextWindow => Reason::ContextLimit,
            Self::OutputLimit => Reason::OutputLimit,
            Self::Filter => Reason::Filtered,
            Self::ToolCall => Reason::MalformedToolCall,
            Self::Timeout => Reason::TimedOut,
            Self::Cancelled => Reason::Cancelled,
            Self::Other
            | Self::Overloaded
            | Self::RateLimit
            | Self::Quota
            | Self::Auth
            | Self::NotFound
            | Self::InvalidRequest
            | Self::Server
            | Self::BadPayload => Reason::Failed,
        }
    }

    /// The kind in words for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Other => "an error of unknown kind",
            Self::ContextWindow => "the input exceeds the context window",
            Self::OutputLimit => "the output limit was reached",
            Self::Overloaded => "the provider is overloaded",
            Self::RateLimit => "the rate limit was reached",
            Self::Quota => "the quota or balance is used up",
            Self::Auth => "the key was refused",
            Self::Filter => "a content filter blocked it",
            Self::ToolCall => "the model's tool call could not be read",
            Self::Timeout => "the provider's time limit passed",
            Self::Cancelled => "the request was cancelled",
            Self::NotFound => "no such model or route",
            Self::InvalidRequest => "the request was refused as invalid",
            Self::Server => "the provider failed",
            Self::BadPayload => "what came is no answer",
        }
    }
}

/// One way to tell what kind an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorPattern {
    /// Where to look.
    pub at: At,
    /// What stands there: the whole of a name, a part of a message in lower case.
    pub is: &'static str,
    /// What that means.
    pub kind: FaultKind,
}

/// Where a sign stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In the type, the code, or another field that names the error.
    Name,
    /// Somewhere in the message.
    Message,
    /// In a name so general that the message and the HTTP status say more.
    Class,
    /// In the HTTP status, where this host means something of its own by it.
    Status,
}

/// A sign in a name.
#[must_use]
pub const fn name(is: &'static str, kind: FaultKind) -> ErrorPattern {
    ErrorPattern { at: At::Name, is, kind }
}

/// A sign in a name that is too general to decide where anything else speaks.
#[must_use]
pub const fn class(is: &'static str, kind: FaultKind) -> ErrorPattern {
    ErrorPattern { at: At::Class, is, kind }
}

/// A sign in the HTTP status.
#[must_use]
pub const fn status(is: &'static str, kind: FaultKind) -> ErrorPattern {
    ErrorPattern { at: At::Status, is, kind }
}

/// A sign in the message.
#[must_use]
pub const fn message(is: &'static str, kind: FaultKind) -> ErrorPattern {
    ErrorPattern { at: At::Message, is, kind }
}

/// Signs in the messages of everybody: gateways pass each other's errors on, so that any host may send
/// any of them. Rate limits come first: their messages speak of tokens too.
pub static COMMON: &[ErrorPattern] = &[
    message("rate limit", FaultKind::RateLimit),
    message("per minute", FaultKind::RateLimit),
    message("tokens per min", FaultKind::RateLimit),
    message("too many requests", FaultKind::RateLimit),
    message("tokens per day", FaultKind::RateLimit),
    message("credit balance is too low", FaultKind::Quota),
    message("maximum context length is", FaultKind::ContextWindow),
    message("maximum prompt length is", FaultKind::ContextWindow),
    message("exceeds the context window", FaultKind::ContextWindow),
    message("context window exceeds limit", FaultKind::ContextWindow),
    message("exceed context limit", FaultKind::ContextWindow),
    message("exceeded max context length", FaultKind::ContextWindow),
    message("exceeds the available context size", FaultKind::ContextWindow),
    message("context size has been exceeded", FaultKind::ContextWindow),
    message("exceeds the model's maximum context length", FaultKind::ContextWindow),
    message("longer than the model's context length", FaultKind::ContextWindow),
    message("longer than the maximum model length of", FaultKind::ContextWindow),
    message("too large for model with", FaultKind::ContextWindow),
    message("exceeded model token limit", FaultKind::ContextWindow),
    message("token count exceeds the maximum number of tokens", FaultKind::ContextWindow),
    message(") exceeds the maximum number of tokens", FaultKind::ContextWindow),
    message("input tokens exceeds maximum length", FaultKind::ContextWindow),
    message("prompt is too long", FaultKind::ContextWindow),
    message("prompt too long", FaultKind::ContextWindow),
    message("input is too long for", FaultKind::ContextWindow),
    message("input is too long.", FaultKind::ContextWindow),
    message("input token length too long", FaultKind::ContextWindow),
    message("input tokens exceed", FaultKind::ContextWindow),
    message("too many input tokens", FaultKind::ContextWindow),
    message("too many tokens: size limit exceeded", FaultKind::ContextWindow),
    message("`inputs` tokens + `max_new_tokens` must be <=", FaultKind::ContextWindow),
    message("`inputs` must have less than", FaultKind::ContextWindow),
    message("total length of all messages is too long", FaultKind::ContextWindow),
    message("reduce the length of the messages or completion", FaultKind::ContextWindow),
    message("range of input length should be", FaultKind::ContextWindow),
    message("while limit is", FaultKind::ContextWindow),
    message("trying to keep the first", FaultKind::ContextWindow),
    message("n_keep:", FaultKind::ContextWindow),
];

/// An error as it was read, before its kind is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawError {
    pub(crate) status: Option<u16>,
    /// Types, codes and status names, the most specific first.
    pub(crate) names: Vec<String>,
    pub(crate) type_: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) message: Option<String>,
    /// What a router passes on of its own upstream's error; read for signs, not kept.
    pub(crate) inner: String,
}

impl RawError {
    /// The fault, its kind told by the profile's signs, then by those that all share, then by
    /// the HTTP status.
    pub(crate) fn judge(self, error_patterns: &[&[ErrorPattern]]) -> Fault {
        let message = self.message.unwrap_or_default();
        let text = format!("{message} {}", self.inner).to_ascii_lowercase();
        let own = |at| error_patterns.iter().copied().flatten().filter(move |sign| sign.at == at);
        let is_named = |sign: &&ErrorPattern| self.names.iter().any(|name| name == sign.is);
        let is_worded = |sign: &&ErrorPattern| text.contains(sign.is);
        let kind = if let Some(sign) = own(At::Name).find(is_named) {
            sign.kind
        } else if let Some(sign) = COMMON.iter().chain(own(At::Message)).find(is_worded) {
            // What says 429 speaks of tokens per minute, whatever its words are.
            let limited = sign.kind == FaultKind::ContextWindow && self.status == Some(429);
            if limited { FaultKind::RateLimit } else { sign.kind }
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

/// What an HTTP status means where nothing more is known.
fn kind_of_status(status: u16) -> FaultKind {
    match status {
        401 | 403 => FaultKind::Auth,
        402 => FaultKind::Quota,
        404 => FaultKind::NotFound,
        408 | 504 => FaultKind::Timeout,
        429 => FaultKind::RateLimit,
        499 => FaultKind::Cancelled,
        503 | 529 => FaultKind::Overloaded,
        // Bedrock's model failed; so did TGI's.
        424 => FaultKind::Server,
        400..=498 => FaultKind::InvalidRequest,
        500..=599 => FaultKind::Server,
        _ => FaultKind::Other,
    }
}

/// Every field that any provider's error is known to have, at the top and inside `error`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Runs of assistants keep theirs here.
    #[serde(borrow)]
    last_error: Option<&'a RawValue>,
    /// Some hosts give a list, of which the first says it.
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
    /// Some hosts put their errors here, with HTTP 200.
    #[serde(borrow)]
    base_resp: Loose<BaseResp<'a>>,
    /// Where wires put an error that is not at the top.
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

/// How much must be there for a value to count as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Anything may be there: only a value that names itself an error is one.
    Anything,
    /// An error is there, by the HTTP status or the framing: a lone message will do.
    Error,
}

/// Reads an error in any of the known shapes.
pub(crate) fn read(data: &[u8], expect: Expect) -> Option<RawError> {
    let data = crate::frame::trim(data);
    if data.starts_with(b"[") {
        let list: Few<&RawValue> = serde_json::from_slice(data).ok()?;
        return read(list.first()?.get().as_bytes(), expect);
    }
    let wire: Payload<'_> = serde_json::from_slice(data).ok()?;
    let mut told = RawError::default();
    let nested = [wire.last_error, wire.response.error, wire.delta.error, wire.interaction.error];
    let lists = [wire.errors.first(), wire.interaction.errors.first()];
    let nested = nested.into_iter().flatten().chain(lists.into_iter().flatten().copied());
    let nested = nested.chain(wire.choices.iter().filter_map(|choice| choice.error));
    match wire.error.into_iter().chain(nested).find(|raw| is_set(Some(raw))).map(RawValue::get) {
        Some(error) if error.starts_with('{') => {
            wire.names(&mut told);
            let inner: Payload<'_> = serde_json::from_str(error).ok()?;
            inner.names(&mut told);
            inner.text(&mut told);
        }
        Some(error) if error.starts_with('"') => {
            wire.names(&mut told);
            told.message =
                serde_json::from_str::<String>(error).ok().filter(|text| !text.is_empty());
            told.message.as_ref()?;
        }
        _ if wire.is_flat_error() || expect == Expect::Error => {
            wire.names(&mut told);
            wire.text(&mut told);
        }
        _ => return None,
    }
    told.read_message_within();
    Some(told)
}

/// Whether a field for errors holds one: null, false and empty values do not.
pub(crate) fn is_set(error: Option<&RawValue>) -> bool {
    error.is_some_and(|raw| !is_nothing(raw))
}

impl Payload<'_> {
    /// Errors without an `error`: they call themselves one, or have a `detail` and no type.
    fn is_flat_error(&self) -> bool {
        let base = &self.base_resp.status_code;
        self.object.0 == "error"
            || self.detail.is_some() && self.type_.0.is_none() && self.__type.0.is_none()
            || base.0.is_some_and(|code| code != 0)
    }

    fn names(&self, told: &mut RawError) {
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
        let types = [&self.type_, &self.__type, &self.error_type, &self.status];
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
    // The name of the event that carries the error is not the error's own.
    (!matches!(&*text, "error" | "failed" | "response.failed" | "message-end"))
        .then(|| text.into_owned())
}

/// `detail` is text on some wires and a list of validation errors on others.
fn detail_text(detail: &str) -> String {
    serde_json::from_str::<Cow<'_, str>>(detail).map_or_else(|_| detail.to_owned(), Cow::into_owned)
}

impl RawError {
    /// Vertex wraps Claude's error as text in its own message.
    fn read_message_within(&mut self) {
        let Some(message) = self.message.as_deref().filter(|text| text.starts_with('{')) else {
            return;
        };
        let Some(inner) = read(message.as_bytes(), Expect::Anything) else { return };
        self.names.splice(0..0, inner.names);
        self.type_ = inner.type_.or(self.type_.take());
        self.code = inner.code.or(self.code.take());
        self.message = inner.message.or(self.message.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        use Expect::{Anything, Error};
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
