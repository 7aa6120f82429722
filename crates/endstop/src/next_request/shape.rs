//! Request fields of a wire and the settings that it accepts: data, filled in by dialects and
//! profiles.

use serde_json::Value;

use super::Gather;
use super::document::Document;
use crate::chat::RequestWriter;
use crate::provider::{Role, Token};

/// Settings that requests of a wire accept, and their fields.
#[derive(Clone, Copy, Debug)]
pub struct RequestShape {
    /// Field with the model.
    pub model: &'static str,
    /// Fields with stop sequences. The first that the request has applies.
    pub stop: &'static [&'static str],
    /// Fields with the number of choices. The first that the request has applies.
    pub choices: &'static [&'static str],
    /// Shapes of the conversation. The first whose field the request has applies.
    pub conversation: &'static [ConversationShape],
    /// Role of a hint if no rule for the model has one.
    pub hint: Role,
    /// Restrictions on a prefill.
    pub prefill_restrictions: &'static [Restriction],
    /// Way to resume a paused answer.
    pub paused: PauseProtocol,
    /// Fields that declare tools.
    pub tools: &'static [&'static str],
    /// Ways to force a tool. The first whose `tools` field the request has applies.
    pub forced_tools: &'static [ForcedTool],
    /// Temperature.
    pub temperature: Temperature,
    /// Fields that control reasoning: the first that the request has, else the first with a value
    /// for requests without the field.
    pub efforts: &'static [Effort],
    /// Whether the wire accepts `snake_case` for its `camelCase` names.
    pub either_case: bool,
    /// Option that a request needs for token usage in its stream, if there is one.
    pub usage: Option<UsageOption>,
    /// Field that asks for a response in the background, which is polled; empty if there is none.
    pub background: &'static str,
    /// Path before the id of a response that is polled; empty if responses cannot be polled.
    pub poll: &'static str,
    /// Way to read the rest of a stream in the background after it was cut, if there is one.
    pub rest: Option<RestOfStream>,
    /// Function that collects the content of an answer in the format of the wire, with its ids and
    /// signatures, for wires that take it back.
    pub gather: Option<Gather>,
    /// Functions that write a request, if this crate writes requests of the wire.
    pub writer: Option<RequestWriter>,
}

/// Way to read the rest of a stream that the provider stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestOfStream {
    /// Text after the path of a poll and the id; the number of the last event follows.
    pub query: &'static str,
    /// Field with the number of an event.
    pub number: &'static str,
}

/// The option that makes a stream report token usage.
#[derive(Clone, Copy, Debug)]
pub struct UsageOption {
    /// Field of the request.
    pub field: &'static str,
    /// Value, in JSON.
    pub value: &'static str,
    /// Reports whether an event of the stream only carries token usage.
    pub is_extra: fn(&[u8]) -> bool,
}

impl UsageOption {
    /// Returns the request with the option added, if it does not have it. All other bytes stay.
    #[must_use]
    pub fn added_to(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut document = Document::new(std::str::from_utf8(request).ok()?, false)?;
        if document.find(self.field).is_some() {
            return None;
        }
        document.put(self.field, self.value)?;
        let text: Box<str> = document.finish()?.into();
        Some(text.into_string().into_bytes())
    }
}

/// Place of the conversation in a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ConversationShape {
    /// A list of messages. A string in its place is the user's only message.
    MessageList(MessageList),
    /// The user's last message in a field, and the earlier messages in a list.
    Apart(&'static str, MessageList),
    /// One text that the model continues. If the second field is true, the reply repeats it.
    Prompt(&'static str, &'static str),
    /// One text that becomes a user message, unless the second field is true.
    Templated(&'static str, &'static str),
}

impl ConversationShape {
    /// Returns the fields that hold the conversation.
    pub(crate) fn fields(&self) -> Vec<&'static str> {
        match self {
            Self::MessageList(messages) => vec![messages.list],
            Self::Apart(last, messages) => vec![*last, messages.list],
            Self::Prompt(prompt, _) | Self::Templated(prompt, _) => vec![*prompt],
        }
    }
}

/// A list of messages.
#[derive(Clone, Copy, Debug)]
pub struct MessageList {
    /// Field of the list.
    pub list: &'static str,
    /// Key of a message's role.
    pub role: &'static str,
    /// Role of the assistant.
    pub assistant: &'static str,
    /// Role of the user.
    pub user: &'static str,
    /// Key of a message's content.
    pub content: &'static str,
    /// Returns a part of a content list, for the assistant or for others.
    pub part: fn(Speaker, &str) -> Value,
    /// Whether the content of a message may be a string.
    pub plain: bool,
    /// Type of a message, if the list has items of several types.
    pub item_type: Option<&'static str>,
}

/// Author of a text.
///
/// Closed list: code that writes messages must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The model.
    Assistant,
    /// The sender of the request, in this role.
    Asker(Role),
}

/// A request field that forbids something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// Field.
    pub field: &'static str,
    /// Values that do not forbid it. Null does not forbid it either, nor does false, unless `true` is
    /// listed here: then false forbids it.
    pub fine: &'static [&'static str],
    /// Whether it is forbidden too if the field is missing.
    pub by_default: bool,
    /// Reason, phrased to follow "because".
    pub because: &'static str,
}

/// Way to resume a paused answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PauseProtocol {
    /// Not supported.
    Never,
    /// The answer is sent back unchanged.
    Resend {
        /// Reports whether a block that stands alone replaces the messages before it.
        is_summary: fn(&Value) -> bool,
    },
    /// The provider's token refers to the answer.
    Token(Token),
}

/// A way to force a tool.
#[derive(Clone, Copy, Debug)]
pub struct ForcedTool {
    /// Field that declares the tools.
    pub tools: &'static str,
    /// Field that forces a tool.
    pub field: &'static str,
    /// Returns the value for a tool of this name.
    pub value: fn(&str) -> Value,
    /// Parts of the names of models that accept it. An empty list means every model.
    pub models: &'static [&'static str],
    /// Restrictions on its use.
    pub restrictions: &'static [Restriction],
}

/// Temperature setting of a wire.
#[derive(Clone, Copy, Debug)]
pub struct Temperature {
    /// Field; empty if there is none.
    pub field: &'static str,
    /// Parts of the names of models that reject any value but their default.
    pub refused_by: &'static [&'static str],
    /// Whether to set it only if the request already has it, since some models or versions reject
    /// it.
    pub only_if_sent: bool,
}

/// A field that controls reasoning.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Field.
    pub field: &'static str,
    /// Parts of the names of models that accept it. An empty list means every model.
    pub models: &'static [&'static str],
    /// Values.
    pub scale: Scale,
}

/// Values of a field that controls reasoning.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Scale {
    /// Levels, from the highest to the lowest.
    Words {
        /// Levels.
        words: &'static [&'static str],
        /// Level for a request without the field; `None` if the field must not be added.
        unsaid: Option<&'static str>,
        /// Field and value that the request must have for `unsaid` to apply.
        given: Option<(&'static str, &'static str)>,
    },
    /// A number of tokens.
    Tokens {
        /// Minimum.
        least: u64,
        /// Number for a request without the field, or with one that leaves it to the model.
        unsaid: Option<u64>,
    },
    /// A value for on and a value for off.
    Switch(&'static str, &'static str),
    /// The same, for models that reason by default.
    Default(&'static str, &'static str),
    /// True or false.
    Flag,
}

impl Effort {
    /// Returns a field that controls reasoning, for any model that accepts it, if the request has it.
    #[must_use]
    pub const fn new(field: &'static str, scale: Scale) -> Self {
        Self { field, models: &[], scale }
    }
}

impl Scale {
    /// Returns a number of reasoning tokens that is halved if the request has one.
    #[must_use]
    pub const fn tokens_if_said(least: u64) -> Self {
        Self::Tokens { least, unsaid: None }
    }
}
