//! Events: what the frames of every wire have to say, in one language.

use std::borrow::Cow;

use crate::ending::{SafetyRating, Usage};
use crate::fault::Fault;

/// One thing that a frame says. Text is borrowed from the frame.
///
/// A choice is one of several answers to one request; wires with a single answer number it zero.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The response names itself and its model. Comes once.
    Begin {
        /// The provider's id of the response.
        id: &'a str,
        /// The model that answers.
        model: &'a str,
    },
    /// A piece of the answer.
    Text {
        /// Which choice.
        choice: u32,
        /// The piece.
        text: &'a str,
    },
    /// A piece of reasoning.
    Reasoning {
        /// Which choice.
        choice: u32,
        /// The piece.
        text: &'a str,
    },
    /// A piece of a refusal, where the wire keeps a field for it.
    Refusal {
        /// Which choice.
        choice: u32,
        /// The piece.
        text: &'a str,
    },
    /// Content that is neither text nor a call of the caller's tools.
    OtherContent {
        /// Which choice.
        choice: u32,
        /// What it is, such as `audio`.
        kind: &'static str,
    },
    /// A tool call begins.
    ToolCallStart {
        /// Which choice.
        choice: u32,
        /// The call's number within the choice, as the wire counts.
        call: u32,
        /// The provider's id of the call; empty where the wire gives none.
        id: &'a str,
        /// The tool's name; empty where it comes later.
        name: &'a str,
    },
    /// The call that just began takes free text rather than JSON.
    ToolCallTakesText {
        /// Which choice.
        choice: u32,
        /// Which call.
        call: u32,
    },
    /// A piece of a tool call's arguments.
    ToolCallDelta {
        /// Which choice.
        choice: u32,
        /// Which call.
        call: u32,
        /// The piece: text of JSON, or the text that the tool takes.
        arguments: &'a str,
    },
    /// The provider runs this call itself, so that it is none for the caller.
    ToolCallByProvider {
        /// Which choice.
        choice: u32,
        /// Which call.
        call: u32,
    },
    /// A tool call's block is closed.
    ToolCallEnd {
        /// Which choice.
        choice: u32,
        /// Which call.
        call: u32,
    },
    /// The tokens used so far.
    Usage(Usage),
    /// The provider's word for why a choice ended.
    Word {
        /// Which choice.
        choice: u32,
        /// The bare name of the field that it stood in.
        field: &'static str,
        /// The word.
        word: Word<'a>,
    },
    /// A polled body that is not over says so: `queued`, `in_progress`.
    Pending {
        /// The bare name of the field that it stood in.
        field: &'static str,
        /// The word.
        word: &'a str,
    },
    /// The provider's token for going on with this answer; the last one counts. It is passed on and
    /// kept nowhere: not in endings, records or signals.
    ResumeToken {
        /// Which choice.
        choice: u32,
        /// The token.
        token: &'a str,
    },
    /// What this wire sends to prove that the response is over.
    Proof,
    /// The provider's error.
    Fault(&'a Fault),
    /// A rating of the provider's safety system that is new or differs from the one before.
    Safety(&'a SafetyRating),
    /// A fact of the wire that is kept beside the verdict.
    Detail {
        /// The choice that it belongs to, if one.
        choice: Option<u32>,
        /// What it is.
        key: &'static str,
        /// Its value.
        value: &'a str,
    },
}

/// The provider's word: most send text, some a number, a few something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A word.
    Text(Cow<'a, str>),
    /// The number of an enumeration's member.
    Number(i64),
    /// A value that is no word at all, by the name of its kind.
    Odd(&'static str),
}

impl Word<'_> {
    /// As text, for lookups and for keeping.
    #[must_use]
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Odd(kind) => Cow::Borrowed(kind),
        }
    }
}
