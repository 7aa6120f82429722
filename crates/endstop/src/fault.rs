//! Faults: the errors that providers send, in every shape they send them, and what kind they are.
//!
//! The shapes are shared by all wires, since gateways pass other providers' errors on as they came.
//! What an error means is data: each profile lists its [`ErrorPattern`]s, and the HTTP status speaks where
//! none of them does.

use serde::{Deserialize, Serialize};

use crate::ending::Reason;

/// An error that the provider sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
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
    #[serde(skip_serializing_if = "std::ops::Not::not")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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
