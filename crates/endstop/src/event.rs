//! Events: the content of frames in one format for all wires.

use std::borrow::Cow;

use crate::ending::{SafetyRating, Usage};
use crate::fault::Fault;

/// One item of a frame. Text is borrowed from the frame.
///
/// A choice is one of several answers to a request. On wires with a single answer, its number is 0.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Start of the response. It comes once.
    Begin {
        /// The provider's id of the response.
        id: &'a str,
        /// Model that answers.
        model: &'a str,
    },
    /// Part of the answer's text.
    Text {
        /// Number of the choice.
        choice: u32,
        /// New text.
        text: &'a str,
    },
    /// Part of the reasoning.
    Reasoning {
        /// Number of the choice.
        choice: u32,
        /// New text.
        text: &'a str,
    },
    /// Part of a refusal, on wires with a field for refusals.
    Refusal {
        /// Number of the choice.
        choice: u32,
        /// New text.
        text: &'a str,
    },
    /// Content other than text and calls of the caller's tools.
    OtherContent {
        /// Number of the choice.
        choice: u32,
        /// Kind of content, such as `audio`.
        kind: &'static str,
    },
    /// Start of a tool call.
    ToolCallStart {
        /// Number of the choice.
        choice: u32,
        /// Number of the call in the choice, as on the wire.
        call: u32,
        /// The provider's id of the call; empty if the wire has none.
        id: &'a str,
        /// Name of the tool; empty if it comes later.
        name: &'a str,
    },
    /// The call that just began takes free text rather than JSON.
    ToolCallTakesText {
        /// Number of the choice.
        choice: u32,
        /// Number of the call.
        call: u32,
    },
    /// Part of the arguments of a tool call.
    ToolCallDelta {
        /// Number of the choice.
        choice: u32,
        /// Number of the call.
        call: u32,
        /// New text: JSON, or free text if the tool takes that.
        arguments: &'a str,
    },
    /// The provider runs this call itself. The caller must not run it.
    ToolCallByProvider {
        /// Number of the choice.
        choice: u32,
        /// Number of the call.
        call: u32,
    },
    /// End of a tool call's block.
    ToolCallEnd {
        /// Number of the choice.
        choice: u32,
        /// Number of the call.
        call: u32,
    },
    /// Token counts so far.
    Usage(Usage),
    /// The provider's finish reason for a choice.
    Word {
        /// Number of the choice.
        choice: u32,
        /// Bare name of its field.
        field: &'static str,
        /// Finish reason.
        word: Word<'a>,
    },
    /// State of a polled body that is not finished, such as `queued` or `in_progress`.
    Pending {
        /// Bare name of its field.
        field: &'static str,
        /// State, as the provider names it.
        word: &'a str,
    },
    /// The provider's token to resume this answer. The last one counts. Endings, records and
    /// signals do not store it.
    ResumeToken {
        /// Number of the choice.
        choice: u32,
        /// Resume token.
        token: &'a str,
    },
    /// End marker: proof that the response is over.
    Proof,
    /// The provider's error.
    Fault(&'a Fault),
    /// New or changed rating of the provider's safety system.
    Safety(&'a SafetyRating),
    /// Other fact of the wire.
    Detail {
        /// Number of its choice; `None` if it concerns the whole response.
        choice: Option<u32>,
        /// Name of the fact.
        key: &'static str,
        /// Value of the fact.
        value: &'a str,
    },
}

/// The provider's finish reason: text, a number, or rarely another value.
///
/// Closed list: JSON has no other values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Number in an enumeration.
    Number(i64),
    /// Name of the type of any other value.
    Odd(&'static str),
}

impl Word<'_> {
    /// Returns the finish reason as text.
    #[must_use]
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Odd(kind) => Cow::Borrowed(kind),
        }
    }
}
