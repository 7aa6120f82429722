//! Dialects: the wire languages, one file each.
//!
//! A dialect is a static struct: how its stream is framed, where the word stands, every documented
//! word, what proves the end, what its errors look like, and two functions that turn a frame into
//! events. There is no `match` on a dialect anywhere: what differs is a field.

pub(crate) mod aleph_alpha;
pub(crate) mod anthropic;
pub(crate) mod anthropic_complete;
pub(crate) mod bedrock_ai21;
pub(crate) mod bedrock_cohere;
pub(crate) mod bedrock_converse;
mod bedrock_invoke;
pub(crate) mod bedrock_llama;
pub(crate) mod bedrock_mistral;
pub(crate) mod bedrock_nova;
pub(crate) mod bedrock_titan;
pub(crate) mod cloudflare;
pub(crate) mod cohere;
pub(crate) mod cohere_v1;
pub(crate) mod common;
pub(crate) mod dashscope;
pub(crate) mod errors;
pub(crate) mod gemini;
pub(crate) mod gemini_interactions;
pub(crate) mod llamacpp;
pub(crate) mod ollama;
pub(crate) mod openai_assistants;
pub(crate) mod openai_chat;
pub(crate) mod openai_completions;
pub(crate) mod openai_responses;
pub(crate) mod partial_args;
pub(crate) mod replicate;
pub(crate) mod sap_orchestration;
pub(crate) mod tgi;
pub(crate) mod watsonx;

pub use anthropic::DIALECT as ANTHROPIC_MESSAGES;
pub use common::{END_MARKER, ERRORS, REQUEST};
pub use gemini::DIALECT as GEMINI;
pub use openai_chat::DIALECT as OPENAI_CHAT;
pub use openai_responses::DIALECT as OPENAI_RESPONSES;

pub use crate::event::Word;
pub use crate::fault::{At, ErrorPattern, class, message, name, status};
pub use crate::frame::{Frame, FrameKind, Framing};
pub use crate::gateway_error::{ErrorShape, GatewayError};
pub use crate::shape::Probe;
pub use crate::sink::EventSink;
pub use crate::verdict::Meaning;

use crate::ending::Reason;
use crate::next_request::RequestShape;
use crate::provider::{COMMON_CAPABILITIES, NO_QUIRKS, Profile};

/// Every dialect that is built in.
pub static ALL: &[&Dialect] = &[
    &openai_chat::DIALECT,
    &openai_completions::DIALECT,
    &openai_responses::DIALECT,
    &anthropic::DIALECT,
    &gemini::DIALECT,
    &bedrock_converse::DIALECT,
    &cohere::DIALECT,
    &ollama::DIALECT,
    &openai_assistants::DIALECT,
    &anthropic_complete::DIALECT,
    &gemini_interactions::DIALECT,
    &bedrock_nova::DIALECT,
    &bedrock_titan::DIALECT,
    &bedrock_llama::DIALECT,
    &bedrock_mistral::DIALECT,
    &bedrock_cohere::DIALECT,
    &bedrock_ai21::DIALECT,
    &cohere_v1::DIALECT,
    &watsonx::DIALECT,
    &dashscope::DIALECT,
    &replicate::DIALECT,
    &tgi::DIALECT,
    &llamacpp::DIALECT,
    &cloudflare::DIALECT,
    &aleph_alpha::DIALECT,
    &sap_orchestration::DIALECT,
];

/// One wire language.
#[derive(Debug)]
pub struct Dialect {
    /// The short name, such as `openai-chat`.
    pub id: &'static str,
    /// How its stream is framed, unless a profile says otherwise.
    pub framing: Framing,
    /// Turns one event of a stream into events of ours.
    pub read: ReadFrame,
    /// Turns a whole body into events of ours.
    pub read_body: ReadFrame,
    /// The documented words, by the field that they stand in.
    pub words: &'static [Words],
    /// Which word counts when a choice is given several.
    pub wins: Wins,
    /// What closes a tool call.
    pub calls_close: CallsClose,
    /// What proves the end of a stream, unless a profile says otherwise.
    pub proof: Proof,
    /// What its errors look like.
    pub error_patterns: &'static [ErrorPattern],
    /// The request fields that cap the output, the preferred one first.
    pub caps: &'static [&'static str],
    /// How a request asks for a stream.
    pub streams: Streams,
    /// How errors are told.
    pub error_shape: ErrorShape,
    /// What its requests can ask for, unless a profile says otherwise.
    pub request_shape: RequestShape,
    /// Where the tokens are counted.
    pub usage: &'static [&'static str],
    /// Keys whose numbers are token counts, on wires that send them with every event.
    pub counts: &'static [(&'static str, CountOf)],
    /// Keys of an event that are never read and change from event to event.
    pub padding: &'static [&'static str],
    /// Whether a value of this shape is of this dialect.
    pub claims: fn(&Probe<'_>) -> bool,
    /// Where the facts come from.
    pub source: &'static str,
}

impl Dialect {
    /// This wire without a host's own ways.
    pub const fn profile(&'static self) -> Profile {
        Profile {
            provider: "",
            dialect: self,
            paths: &[],
            framing: self.framing,
            words: &[],
            proof: self.proof,
            error_shape: self.error_shape,
            request_shape: self.request_shape,
            caps: self.caps,
            error_patterns: &[],
            quirks: NO_QUIRKS,
            resume: &[],
            capabilities: COMMON_CAPABILITIES,
            versions: &[],
            notes: &[],
            guessed: false,
            ambiguous: false,
        }
    }
}

/// Turns a frame into events.
pub type ReadFrame = fn(&Frame<'_>, &mut EventSink<'_, '_>) -> Reading;

/// What came of reading a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It was read.
    Read,
    /// It was read, and is a piece of a stream rather than the whole body that it came as.
    Unfinished,
    /// It is JSON, but nothing that this dialect knows.
    Strange,
    /// It holds an error, which is to be read as one.
    Error,
    /// It is no JSON.
    Malformed,
}

/// What proves that a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A literal payload, such as `[DONE]`.
    Marker(&'static str),
    /// An event of the wire.
    Event,
    /// A word for every choice, and the end of the bytes.
    Word,
    /// Nothing: the end of the bytes is all there is.
    Silent,
}

/// How a request asks for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// By a field that is true.
    Flag(&'static str),
    /// Unless a field is false.
    UnlessFalse(&'static str),
    /// By a path that holds this.
    Path(&'static str),
}

/// Which word counts when a choice is given several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wins {
    /// The first: later ones repeat it or clear it.
    First,
    /// The last: earlier ones are provisional.
    Last,
}

/// What a token count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountOf {
    /// Input.
    Input,
    /// Output.
    Output,
    /// Reasoning.
    Reasoning,
    /// Input read from a cache.
    CacheRead,
}

/// What closes a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsClose {
    /// An event of its own.
    ByEvent,
    /// The word, or the next call: the wire has no event for it.
    ByWord,
}

/// The words that may stand in one field.
#[derive(Debug)]
pub struct Words {
    /// The bare name of the field.
    pub field: &'static str,
    /// Where the field stands, streamed or not.
    pub path: &'static str,
    /// The words and their meanings.
    pub rows: &'static [(&'static str, Reason)],
    /// Words of `rows` that are themselves vague.
    pub vague: &'static [&'static str],
    /// Documented words that say nothing.
    pub empty: &'static [&'static str],
    /// The words that integers stand for.
    pub numbers: &'static [(i64, &'static str)],
    /// Words that say that the response is still to come.
    pub pending: &'static [&'static str],
}

impl Words {
    /// A table of words that are all plain.
    #[must_use]
    pub const fn plain(
        field: &'static str,
        path: &'static str,
        rows: &'static [(&'static str, Reason)],
    ) -> Self {
        Self { field, path, rows, vague: &[], empty: &[], numbers: &[], pending: &[] }
    }

    pub(crate) fn meaning(&self, word: &str) -> Option<Meaning> {
        if self.empty.contains(&word) {
            return Some(Meaning::Nothing);
        }
        let (_, reason) = self.rows.iter().find(|(known, _)| *known == word)?;
        Some(if self.vague.contains(&word) {
            Meaning::Vague(*reason)
        } else {
            Meaning::Known(*reason)
        })
    }

    pub(crate) fn number(&self, number: i64) -> Option<&'static str> {
        self.numbers.iter().find(|(known, _)| *known == number).map(|(_, word)| *word)
    }
}

/// The dialect of this id.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Dialect> {
    ALL.iter().copied().find(|dialect| dialect.id == id)
}
