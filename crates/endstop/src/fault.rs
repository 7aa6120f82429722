//! Errors that providers send, and their kinds.
//!
//! All wires share the error shapes, because gateways pass the errors of other providers through
//! unchanged. Each profile lists the [`ErrorPattern`]s that give an error its kind. If no pattern
//! matches, the HTTP status decides.

use serde::{Deserialize, Serialize};

use crate::ending::Reason;

/// Error that the provider sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Fault {
    /// Kind of error.
    pub kind: FaultKind,
    /// HTTP status of the response, or a status in the error itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's error type, such as `overloaded_error`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The provider's error code, such as `context_length_exceeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The provider's error message, cut to a maximum length, with API keys removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Form of the error.
    pub form: FaultForm,
    /// Whether the HTTP status of the response reports the error, and not only the body.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rejected: bool,
}

impl Fault {
    /// Returns a cause for operators, such as `upstream_rejected`.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        // A page or binary data is not the provider's error, whatever its HTTP status.
        let is_page = match self.form {
            FaultForm::Page => true,
            FaultForm::Text => self.message.is_none(),
            FaultForm::Object | FaultForm::Status => false,
        };
        match (self.rejected, self.status) {
            _ if self.kind == FaultKind::BadPayload => "upstream_bad_payload",
            (true, Some(300..=399)) => "blocked_redirect",
            _ if is_page => "upstream_bad_payload",
            (true, _) => "upstream_rejected",
            (false, _) => "upstream_error",
        }
    }
}

impl FaultForm {
    /// Reports whether a page, a text or binary data came instead of an error of the provider.
    #[must_use]
    pub fn is_foreign(self) -> bool {
        match self {
            Self::Text | Self::Page => true,
            Self::Object | Self::Status => false,
        }
    }
}

/// Form in which an error was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultForm {
    /// Error in the format of the wire, sent by the provider itself.
    #[default]
    Object,
    /// Plain text or binary data, which any proxy on the way may have sent.
    Text,
    /// HTML page, which any proxy on the way may have sent. Its title is the message.
    Page,
    /// HTTP status alone.
    Status,
}

/// Kind of error. It determines how to handle the error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// Unknown kind.
    #[default]
    Other,
    /// The input does not fit the context window.
    ContextWindow,
    /// The output limit was reached, and the provider reports that as an error.
    OutputLimit,
    /// The provider is overloaded; retry.
    Overloaded,
    /// The caller exceeded a rate limit; wait and retry.
    RateLimit,
    /// The caller's quota or balance is used up.
    Quota,
    /// The API key is invalid or lacks the permission.
    Auth,
    /// A filter or policy blocked the request or the answer.
    Filter,
    /// The provider could not parse the model's tool call.
    ToolCall,
    /// A timeout of the provider expired.
    Timeout,
    /// The request was cancelled.
    Cancelled,
    /// The model or the route does not exist.
    NotFound,
    /// The request is invalid.
    InvalidRequest,
    /// The provider failed.
    Server,
    /// The body is not a response: an HTML page, plain text or compressed bytes.
    BadPayload,
}

impl FaultKind {
    /// Returns the reason for the end of a response with this error.
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

    /// Returns the HTTP status that providers send with errors of this kind.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::ContextWindow
            | Self::OutputLimit
            | Self::Filter
            | Self::ToolCall
            | Self::InvalidRequest => 400,
            Self::Auth => 401,
            Self::Quota => 402,
            Self::NotFound => 404,
            Self::RateLimit => 429,
            Self::Overloaded => 503,
            Self::Timeout => 504,
            Self::Other | Self::Cancelled | Self::Server | Self::BadPayload => 502,
        }
    }

    /// Returns a description for people.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Other => "an error of unknown kind",
            Self::ContextWindow => "the input exceeds the context window",
            Self::OutputLimit => "the output limit was reached",
            Self::Overloaded => "the provider is overloaded",
            Self::RateLimit => "the rate limit was reached",
            Self::Quota => "the quota or balance is used up",
            Self::Auth => "the API key was rejected",
            Self::Filter => "a content filter blocked the request or the answer",
            Self::ToolCall => "the provider could not parse the model's tool call",
            Self::Timeout => "the provider timed out",
            Self::Cancelled => "the request was cancelled",
            Self::NotFound => "the model or the route does not exist",
            Self::InvalidRequest => "the provider rejected the request as invalid",
            Self::Server => "the provider failed",
            Self::BadPayload => {
                "an HTML page, plain text or binary data came back instead of a response"
            }
        }
    }
}

/// Pattern that gives an error its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorPattern {
    /// Place to look at.
    pub at: At,
    /// Text to look for: a whole name, or part of a message in lower case.
    pub is: &'static str,
    /// Kind of an error that matches.
    pub kind: FaultKind,
}

/// Place in which a pattern looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum At {
    /// Type, code, or another field that names the error.
    Name,
    /// Message, at any position.
    Message,
    /// Name that is so general that the message and the HTTP status take precedence.
    Class,
    /// HTTP status to which this provider gives a special meaning.
    Status,
}

/// Constructors of [`ErrorPattern`], short because tables have many.
pub mod pattern {
    use super::{At, ErrorPattern, FaultKind};

    /// Returns a pattern for a name.
    #[must_use]
    pub const fn name(is: &'static str, kind: FaultKind) -> ErrorPattern {
        ErrorPattern { at: At::Name, is, kind }
    }

    /// Returns a pattern for a name that is too general to decide if another pattern matches.
    #[must_use]
    pub const fn class(is: &'static str, kind: FaultKind) -> ErrorPattern {
        ErrorPattern { at: At::Class, is, kind }
    }

    /// Returns a pattern for an HTTP status.
    #[must_use]
    pub const fn status(is: &'static str, kind: FaultKind) -> ErrorPattern {
        ErrorPattern { at: At::Status, is, kind }
    }

    /// Returns a pattern for a part of the message.
    #[must_use]
    pub const fn message(is: &'static str, kind: FaultKind) -> ErrorPattern {
        ErrorPattern { at: At::Message, is, kind }
    }
}
