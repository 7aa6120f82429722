//! Dialects: the wire formats, one file each.
//!
//! A dialect is a static struct. It holds the framing of the stream, the field that carries the
//! finish reason, every documented finish reason, the end-of-stream signal, the shapes of errors,
//! and two functions that turn a frame into events. No code matches on a dialect: differences are
//! fields.

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
mod overflow;
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
pub use crate::fault::{At, ErrorPattern, pattern};
pub use crate::frame::{Frame, FrameKind, Framing};
pub use crate::gateway_error::{ErrorEnd, ErrorShape, GatewayError, KeepAlive, LastEvent};
pub use crate::shape::Probe;
pub use crate::sink::EventSink;
pub use crate::verdict::Meaning;

use crate::ending::Reason;
use crate::next_request::RequestShape;
use crate::provider::{COMMON_CAPABILITIES, NO_QUIRKS, Profile};

/// Every built-in dialect.
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

/// One wire format.
///
/// ```
/// use endstop::dialect;
///
/// let anthropic = dialect::by_id("anthropic-messages").unwrap();
/// assert_eq!(anthropic.proof, dialect::Proof::Event);
/// assert!(anthropic.words[0].rows.iter().any(|(word, _)| *word == "max_tokens"));
/// ```
///
/// The example `dialect` of this crate adds one from outside.
#[derive(Debug)]
pub struct Dialect {
    /// Short name, such as `openai-chat`.
    pub id: &'static str,
    /// Framing of the stream, unless a profile overrides it.
    pub framing: Framing,
    /// Turns one event of a stream into Endstop's events.
    pub read: ReadFrame,
    /// Turns a whole body into Endstop's events.
    pub read_body: ReadFrame,
    /// Documented finish reasons, one table per field.
    pub words: &'static [Words],
    /// Finish reason that counts if a choice has several.
    pub wins: Wins,
    /// Signal that closes a tool call.
    pub calls_close: CallsClose,
    /// Signal that proves the end of a stream, unless a profile overrides it.
    pub proof: Proof,
    /// Patterns of its errors.
    pub error_patterns: &'static [ErrorPattern],
    /// Request fields that limit the output tokens, the preferred one first.
    pub caps: &'static [&'static str],
    /// Way in which a request asks for a stream.
    pub streams: Streams,
    /// Shape of its errors.
    pub error_shape: ErrorShape,
    /// Settings of its requests, unless a profile overrides them.
    pub request_shape: RequestShape,
    /// Paths of the token counts.
    pub usage: &'static [&'static str],
    /// Keys whose numbers are token counts, on wires that send them with every event.
    pub counts: &'static [(&'static str, CountOf)],
    /// Keys that change from event to event and are never read.
    pub padding: &'static [&'static str],
    /// Reports whether a JSON object has the shape of this dialect.
    pub claims: fn(&Probe<'_>) -> bool,
    /// Sources of these facts.
    pub source: &'static str,
}

impl Dialect {
    /// Returns a profile of this wire without the settings of a host.
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

/// Function that turns a frame into events.
pub type ReadFrame = fn(&Frame<'_>, &mut EventSink<'_, '_>) -> Reading;

/// Result of reading a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// The frame was read.
    Read,
    /// The frame was read. It is part of a stream, although it came as a whole body.
    Unfinished,
    /// The frame is JSON, but not of a shape that this dialect knows.
    Strange,
    /// The frame holds an error, to be read as one.
    Error,
    /// The frame is not JSON.
    Malformed,
}

/// Signal that proves the end of a stream.
///
/// Closed list: code that judges an end must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A literal payload, such as `[DONE]`.
    Marker(&'static str),
    /// An event of the wire.
    Event,
    /// A finish reason for every choice, then the end of the bytes.
    Word,
    /// Nothing but the end of the bytes.
    Silent,
}

impl Proof {
    /// Returns the name, and the marker if it is one. They are part of the rules' version.
    pub(crate) fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Marker(marker) => ("marker", marker),
            Self::Event => ("event", ""),
            Self::Word => ("word", ""),
            Self::Silent => ("silent", ""),
        }
    }
}

/// Way in which a request asks for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Streams {
    /// A stream if this field is true.
    Flag(&'static str),
    /// A stream unless this field is false.
    UnlessFalse(&'static str),
    /// A stream if the path contains this text.
    Path(&'static str),
}

/// Finish reason that counts if a choice has several.
///
/// Closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wins {
    /// The first: later ones repeat or clear it.
    First,
    /// The last: earlier ones are provisional.
    Last,
}

/// Kind of a token count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountOf {
    /// Input tokens.
    Input,
    /// Output tokens.
    Output,
    /// Reasoning tokens.
    Reasoning,
    /// Input tokens read from a cache.
    CacheRead,
}

/// Signal that closes a tool call.
///
/// Closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsClose {
    /// A separate event.
    ByEvent,
    /// The finish reason or the next call: the wire has no event for it.
    ByWord,
}

/// Finish reasons of one field.
#[derive(Debug)]
pub struct Words {
    /// Name of the field, without its path.
    pub field: &'static str,
    /// Path of the field, in streams and in bodies.
    pub path: &'static str,
    /// Finish reasons and their meanings.
    pub rows: &'static [(&'static str, Reason)],
    /// Finish reasons in `rows` that are vague.
    pub vague: &'static [&'static str],
    /// Documented values that carry no meaning.
    pub empty: &'static [&'static str],
    /// Integers that stand for finish reasons.
    pub numbers: &'static [(i64, &'static str)],
    /// Values that mean that the response is not finished yet.
    pub pending: &'static [&'static str],
}

impl Words {
    /// Returns a table without vague, empty, numeric or pending values.
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

/// Returns the dialect with this id.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Dialect> {
    ALL.iter().copied().find(|dialect| dialect.id == id)
}
