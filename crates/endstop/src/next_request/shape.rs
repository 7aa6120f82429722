//! What the requests of a wire can ask for, and where: data, filled in by dialects and profiles.

use serde_json::Value;

use super::Gather;
use crate::provider::{Role, Token};

/// The things that requests of a wire can ask for, and their fields.
#[derive(Clone, Copy, Debug)]
pub struct RequestShape {
    /// The field that names the model.
    pub model: &'static str,
    /// The fields that hold stop sequences: the first that the request has.
    pub stop: &'static [&'static str],
    /// The fields that ask for several choices: the first that the request has.
    pub choices: &'static [&'static str],
    /// The fields of the conversation: the first whose field the request has.
    pub conversation: &'static [ConversationShape],
    /// The role that gives a hint where no rule for the model says so.
    pub hint: Role,
    /// Fields of a request that forbid a prefill.
    pub prefill_restrictions: &'static [Restriction],
    /// The way that a paused answer is taken up.
    pub paused: PauseProtocol,
    /// The fields that declare tools.
    pub tools: &'static [&'static str],
    /// The ways to force one tool: the first whose tools the request has.
    pub forced_tools: &'static [ForcedTool],
    /// The field of the temperature.
    pub temperature: Temperature,
    /// The fields that tune reasoning: the first that the request has, else the first with a value of its
    /// own for requests that say nothing.
    pub efforts: &'static [Effort],
    /// The wire takes `snake_case` for its `camelCase` names.
    pub either_case: bool,
    /// Its streams tell their tokens only to requests that say so.
    pub usage: Option<UsageOption>,
}

/// The option that makes a stream tell its tokens.
#[derive(Clone, Copy, Debug)]
pub struct UsageOption {
    /// The field of the request.
    pub field: &'static str,
    /// Its value, in JSON.
    pub value: &'static str,
    /// Whether this event of the stream is there for the tokens alone.
    pub is_extra: fn(&[u8]) -> bool,
}

impl UsageOption {
    /// The request with the option, if it says nothing of it. Nothing else changes, to the byte.
    #[must_use]
    pub fn added_to(&self, request: &[u8]) -> Option<Vec<u8>> {
        let named = format!("\"{}\"", self.field);
        let open = request.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let (start, rest) = request.split_at_checked(open + 1)?;
        let first = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        let says = memchr::memmem::find(request, named.as_bytes()).is_some();
        if start.last() != Some(&b'{') || first != Some(&b'"') || says {
            return None;
        }
        let added = format!("{named}:{},", self.value);
        Some([start, added.as_bytes(), rest].concat())
    }
}

/// The place of the conversation in a request.
#[derive(Clone, Copy, Debug)]
pub enum ConversationShape {
    /// In a list of turns; one text there is the user's only turn.
    MessageList(MessageList),
    /// The last turn of the user apart, and the turns before it in a list.
    Apart(&'static str, MessageList),
    /// In one text that the model goes on writing. Where the second field is true, the reply repeats
    /// it.
    Prompt(&'static str, &'static str),
    /// In one text that becomes a user's turn, unless the second field is true.
    Templated(&'static str, &'static str),
}

/// A list of turns.
#[derive(Clone, Copy, Debug)]
pub struct MessageList {
    /// The field of the list.
    pub list: &'static str,
    /// The name of a turn's role.
    pub role: &'static str,
    /// The assistant's role.
    pub assistant: &'static str,
    /// The user's role.
    pub user: &'static str,
    /// The name of a turn's content.
    pub content: &'static str,
    /// A part of content that is a list: of the assistant's, or of others.
    pub part: fn(Speaker, &str) -> Value,
    /// A turn's content may be one text.
    pub plain: bool,
}

/// The speaker of some words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The model's.
    Assistant,
    /// Those of whoever asks.
    Asker(Role),
}

/// Something in a request that forbids something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// The field.
    pub field: &'static str,
    /// Values of it that do not forbid anything; nor do null and false.
    pub fine: &'static [&'static str],
    /// The field forbids it by being absent too.
    pub by_default: bool,
    /// The reason, to follow "because".
    pub because: &'static str,
}

/// The way that a paused answer is taken up.
#[derive(Clone, Copy, Debug)]
pub enum PauseProtocol {
    /// It never is.
    Never,
    /// It is sent back as it came.
    Resend {
        /// Puts its content together.
        gather: Gather,
        /// Reports whether a block replaces the messages before it, if it stands alone.
        is_summary: fn(&Value) -> bool,
    },
    /// A token of the provider's stands for it.
    Token(Token),
}

/// A way to force one tool.
#[derive(Clone, Copy, Debug)]
pub struct ForcedTool {
    /// The field that declares the tools.
    pub tools: &'static str,
    /// The field that forces one.
    pub field: &'static str,
    /// Its value for a tool of this name.
    pub value: fn(&str) -> Value,
    /// Parts of the names of the models that take it; the empty list fits every model.
    pub models: &'static [&'static str],
    /// Fields of a request that forbid it.
    pub restrictions: &'static [Restriction],
}

/// The field of the temperature.
#[derive(Clone, Copy, Debug)]
pub struct Temperature {
    /// The field; empty if there is none.
    pub field: &'static str,
    /// Parts of the names of the models that refuse any but their own.
    pub refused_by: &'static [&'static str],
    /// Some models or versions refuse it, and only a request that sent one shows that it may.
    pub only_if_sent: bool,
}

/// A field that tunes reasoning.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The field.
    pub field: &'static str,
    /// Parts of the names of the models that take it; the empty list fits every model.
    pub models: &'static [&'static str],
    /// Its values.
    pub scale: Scale,
}

/// The values that tune reasoning.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// Words from the most to the least.
    Words {
        /// The words.
        words: &'static [&'static str],
        /// The word for a request that says nothing; none if it must not be said unasked.
        unsaid: Option<&'static str>,
        /// The field and the value that a request must have for that.
        given: Option<(&'static str, &'static str)>,
    },
    /// A number of tokens.
    Tokens {
        /// The least that is taken.
        least: u64,
        /// The number for a request that says nothing or leaves it to the model.
        unsaid: Option<u64>,
    },
    /// A word for on and one for off.
    Switch(&'static str, &'static str),
    /// The same where the model reasons unless told not to.
    Default(&'static str, &'static str),
    /// True or false.
    Flag,
}

/// A field that tunes reasoning, on any model that takes it, if the request has it.
#[must_use]
pub const fn effort(field: &'static str, scale: Scale) -> Effort {
    Effort { field, models: &[], scale }
}

/// Tokens of reasoning that are halved where a request says how many.
#[must_use]
pub const fn tokens_if_said(least: u64) -> Scale {
    Scale::Tokens { least, unsaid: None }
}
