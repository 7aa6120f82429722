//! The ending of one response: what was said, how the bytes closed, what the content shows, and
//! the verdict.
//!
//! The four are kept apart on purpose. [`crate::verdict`] makes the last from the other three;
//! nothing here decides anything.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::fault::Fault;
use crate::provider;

/// Why a response ended: our one word for it.
///
/// [`crate::vocabulary`] spells it for others. The order is that of completeness: the further
/// down, the less of an answer there is, which is how the least complete choice speaks for a
/// response of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The model ended its turn.
    Complete,
    /// One of the caller's stop sequences matched.
    StopSequence,
    /// Complete tool calls wait to be run.
    ToolCall,
    /// The provider paused, and resumes by its own protocol.
    Paused,
    /// The cap on output tokens was reached.
    OutputLimit,
    /// The context window is full.
    ContextLimit,
    /// The model or a classifier declined.
    Refused,
    /// A content filter or guardrail withheld the answer.
    Filtered,
    /// A safety system blocked the answer.
    Safety,
    /// The answer was blocked as recitation.
    Recitation,
    /// The provider says that the tool call is malformed, or announced one and sent none.
    MalformedToolCall,
    /// A word that we do not know, or none at all.
    Unknown,
    /// The caller or an operator cancelled.
    Cancelled,
    /// A time limit passed, theirs or ours.
    TimedOut,
    /// The provider failed.
    Failed,
    /// The bytes ended before the response did.
    Cut,
}

impl Reason {
    /// Every reason, in order.
    pub const ALL: [Self; 16] = [
        Self::Complete,
        Self::StopSequence,
        Self::ToolCall,
        Self::Paused,
        Self::OutputLimit,
        Self::ContextLimit,
        Self::Refused,
        Self::Filtered,
        Self::Safety,
        Self::Recitation,
        Self::MalformedToolCall,
        Self::Unknown,
        Self::Cancelled,
        Self::TimedOut,
        Self::Failed,
        Self::Cut,
    ];

    /// Whether the provider delivered all that it meant to deliver.
    #[must_use]
    pub fn is_success(self) -> bool {
        match self {
            Self::Complete | Self::StopSequence | Self::ToolCall => true,
            Self::Paused
            | Self::OutputLimit
            | Self::ContextLimit
            | Self::Refused
            | Self::Filtered
            | Self::Safety
            | Self::Recitation
            | Self::MalformedToolCall
            | Self::Unknown
            | Self::Cancelled
            | Self::TimedOut
            | Self::Failed
            | Self::Cut => false,
        }
    }
}

/// How sure the verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Nothing was said, or only circumstantial evidence is left.
    Low,
    /// One of the facts is missing or was overruled, or the word is vague or unknown.
    Medium,
    /// Said, closed and shown agree.
    High,
}

impl Confidence {
    /// The word for it in records and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// What ended the bytes, as whoever moved them tells it to [`crate::Reader::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportEnd {
    /// The body ended cleanly.
    Eof,
    /// The connection broke: a reset.
    Reset,
    /// The body ended inside a chunk, or short of its promised length.
    Truncated,
    /// There never was a connection.
    Unreachable(Unreachable),
    /// One of our own time limits passed.
    TimedOut(Timer),
    /// The client went away and nobody reads any more.
    ClientGone,
    /// The reader was dropped before anyone finished it.
    Dropped,
    /// Our own process ended while the response was under way.
    Interrupted,
    /// We were told to shut down.
    ShutDown,
}

/// Why there was no connection to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unreachable {
    /// Nobody listens there.
    Refused,
    /// The name does not resolve.
    Dns,
    /// The name resolves to an address that is not allowed.
    Blocked,
    /// The certificate or the handshake is wrong.
    Tls,
    /// A proxy on the way refused.
    Proxy,
    /// Anything else.
    Other,
}

/// Which time limit passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Timer {
    /// No connection in time.
    Connect,
    /// No first byte in time.
    FirstByte,
    /// Too long a silence between bytes.
    Idle,
    /// The whole response took too long.
    Total,
    /// The client did not take in what was sent to it.
    ClientWrite,
}

/// How the bytes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Closed {
    /// Not yet: the response is still under way.
    Open,
    /// By what the provider's profile names as proof of the end.
    Proven,
    /// By a clean end without that proof.
    Eof,
    /// By a broken connection.
    Reset,
    /// Inside a chunk, or short of the promised length.
    Truncated,
    /// Before it began: there was no connection.
    Unreachable(Unreachable),
    /// By a time limit of ours.
    TimedOut(Timer),
    /// By the client's leaving.
    ClientGone,
    /// By the reader's being dropped.
    Dropped,
    /// By an error that the provider sent.
    Error,
    /// By an event larger than the limit, or more events than the limit.
    Oversize,
    /// By a frame that cannot be read: a wrong checksum, an impossible length.
    BrokenFrame,
    /// By the end of our own process.
    Interrupted,
    /// By our shutting down.
    ShutDown,
}

impl Closed {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Open,
        Self::Proven,
        Self::Eof,
        Self::Reset,
        Self::Truncated,
        Self::Unreachable(Unreachable::Refused),
        Self::Unreachable(Unreachable::Dns),
        Self::Unreachable(Unreachable::Blocked),
        Self::Unreachable(Unreachable::Tls),
        Self::Unreachable(Unreachable::Proxy),
        Self::Unreachable(Unreachable::Other),
        Self::TimedOut(Timer::Connect),
        Self::TimedOut(Timer::FirstByte),
        Self::TimedOut(Timer::Idle),
        Self::TimedOut(Timer::Total),
        Self::TimedOut(Timer::ClientWrite),
        Self::ClientGone,
        Self::Dropped,
        Self::Error,
        Self::Oversize,
        Self::BrokenFrame,
        Self::Interrupted,
        Self::ShutDown,
    ];

    /// Returns the one that has this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|closed| closed.word() == word)
    }

    /// The word for it in records and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Proven => "proven",
            Self::Eof => "eof",
            Self::Reset => "reset",
            Self::Truncated => "truncated",
            Self::Unreachable(Unreachable::Refused) => "unreachable_refused",
            Self::Unreachable(Unreachable::Dns) => "unreachable_dns",
            Self::Unreachable(Unreachable::Blocked) => "unreachable_blocked",
            Self::Unreachable(Unreachable::Tls) => "unreachable_tls",
            Self::Unreachable(Unreachable::Proxy) => "unreachable_proxy",
            Self::Unreachable(Unreachable::Other) => "unreachable",
            Self::TimedOut(Timer::Connect) => "timed_out_connect",
            Self::TimedOut(Timer::FirstByte) => "timed_out_first_byte",
            Self::TimedOut(Timer::Idle) => "timed_out_idle",
            Self::TimedOut(Timer::Total) => "timed_out_total",
            Self::TimedOut(Timer::ClientWrite) => "timed_out_client",
            Self::ClientGone => "client_gone",
            Self::Dropped => "dropped",
            Self::Error => "error",
            Self::Oversize => "oversize",
            Self::BrokenFrame => "broken_frame",
            Self::Interrupted => "interrupted",
            Self::ShutDown => "shut_down",
        }
    }
}

impl From<TransportEnd> for Closed {
    fn from(close: TransportEnd) -> Self {
        match close {
            TransportEnd::Eof => Self::Eof,
            TransportEnd::Reset => Self::Reset,
            TransportEnd::Truncated => Self::Truncated,
            TransportEnd::Unreachable(why) => Self::Unreachable(why),
            TransportEnd::TimedOut(timer) => Self::TimedOut(timer),
            TransportEnd::ClientGone => Self::ClientGone,
            TransportEnd::Dropped => Self::Dropped,
            TransportEnd::Interrupted => Self::Interrupted,
            TransportEnd::ShutDown => Self::ShutDown,
        }
    }
}

impl Serialize for Closed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Closed {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = Cow::<'de, str>::deserialize(deserializer)?;
        Self::from_word(&word)
            .ok_or_else(|| D::Error::custom(format!("unknown way to close `{word}`")))
    }
}

/// The provider's own word, and where it stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Said {
    /// The bare name of the field, such as `finish_reason`.
    pub field: Cow<'static, str>,
    /// The word as it was sent, capped at 256 bytes, control characters escaped.
    pub word: String,
}

impl Said {
    /// A word in a field.
    pub fn new(field: impl Into<Cow<'static, str>>, word: impl Into<String>) -> Self {
        Self { field: field.into(), word: word.into() }
    }
}

/// What the content shows, whatever was said.
///
/// Its JSON holds what is set, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shown {
    /// Text came.
    #[serde(skip_serializing_if = "is_default")]
    pub text: bool,
    /// Reasoning came.
    #[serde(skip_serializing_if = "is_default")]
    pub reasoning: bool,
    /// Text came in the field that the wire keeps for refusals.
    #[serde(skip_serializing_if = "is_default")]
    pub refusal: bool,
    /// Content of another kind came: audio, an image, a server-side tool.
    #[serde(skip_serializing_if = "is_default")]
    pub other_content: bool,
    /// Tool calls that were begun.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_calls: u32,
    /// Of those, calls whose block never closed or whose arguments are unfinished JSON.
    #[serde(skip_serializing_if = "is_default")]
    pub unfinished_tool_calls: u32,
    /// Of those, calls whose arguments can no longer become JSON.
    #[serde(skip_serializing_if = "is_default")]
    pub malformed_tool_calls: u32,
    /// Of those, calls that never got a name.
    #[serde(skip_serializing_if = "is_default")]
    pub nameless_tool_calls: u32,
    /// Of those, closed calls whose arguments are absent, blank or null: calls without parameters,
    /// if the response ended well.
    #[serde(skip_serializing_if = "is_default")]
    pub bare_tool_calls: u32,
    /// The provider waits for an approval before it runs a tool of its own.
    #[serde(skip_serializing_if = "is_default")]
    pub approval: bool,
    /// The provider named the stop sequence that matched.
    #[serde(skip_serializing_if = "is_default")]
    pub stop_sequence: bool,
    /// A part of the answer is marked as incomplete, whatever the word says.
    #[serde(skip_serializing_if = "is_default")]
    pub unfinished_content: bool,
    /// A guardrail says that it stepped in, whatever the word says.
    #[serde(skip_serializing_if = "is_default")]
    pub guardrail: bool,
    /// The host says that its engine broke down, whatever the word says.
    #[serde(skip_serializing_if = "is_default")]
    pub breakdown: bool,
    /// The provider said two things that exclude each other.
    #[serde(skip_serializing_if = "is_default")]
    pub contradiction: bool,
    /// Exactly as many output tokens were used as were allowed.
    #[serde(skip_serializing_if = "is_default")]
    pub at_cap: bool,
    /// More output tokens were counted than were allowed, as hosts do that count reasoning apart.
    #[serde(skip_serializing_if = "is_default")]
    pub over_cap: bool,
    /// The word came, and the proof of the end that this host otherwise sends did not.
    #[serde(skip_serializing_if = "is_default")]
    pub missing_marker: bool,
    /// The last event was cut off in the middle.
    #[serde(skip_serializing_if = "is_default")]
    pub cut_event: bool,
    /// An event could not be read.
    #[serde(skip_serializing_if = "is_default")]
    pub malformed_event: bool,
    /// No event was of a wire that is known.
    #[serde(skip_serializing_if = "is_default")]
    pub unrecognised: bool,
    /// Bytes that are not UTF-8 came.
    #[serde(skip_serializing_if = "is_default")]
    pub invalid_utf8: bool,
    /// Content or an error came after the proof of the end.
    #[serde(skip_serializing_if = "is_default")]
    pub late_event: bool,
    /// The client left after the end, before the last byte.
    #[serde(skip_serializing_if = "is_default")]
    pub client_closed_early: bool,
    /// Choices or tool calls over the limit, which were counted and not followed.
    #[serde(skip_serializing_if = "is_default")]
    pub excess: u32,
}

impl Shown {
    /// No content of any kind came.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !(self.text || self.reasoning || self.refusal || self.other_content) && self.tool_calls == 0
    }

    /// Reasoning came, and nothing that a caller could use.
    #[must_use]
    pub fn is_reasoning_only(&self) -> bool {
        self.reasoning && !(self.text || self.refusal || self.other_content) && self.tool_calls == 0
    }

    /// The words for what stands out, as records and reports show them.
    #[must_use]
    pub fn words(&self) -> Vec<&'static str> {
        let flags = [
            (self.is_empty(), "empty"),
            (self.is_reasoning_only(), "reasoning_only"),
            (self.refusal, "refusal"),
            (self.tool_calls > 0, "tool_calls"),
            (self.unfinished_tool_calls > 0, "unfinished_tool_call"),
            (self.malformed_tool_calls > 0, "malformed_tool_call"),
            (self.nameless_tool_calls > 0, "nameless_tool_call"),
            (self.bare_tool_calls > 0, "bare_tool_call"),
            (self.approval, "approval"),
            (self.stop_sequence, "stop_sequence"),
            (self.unfinished_content, "unfinished_content"),
            (self.guardrail, "guardrail"),
            (self.breakdown, "breakdown"),
            (self.contradiction, "contradiction"),
            (self.at_cap, "at_cap"),
            (self.over_cap, "over_cap"),
            (self.missing_marker, "missing_marker"),
            (self.cut_event, "cut_event"),
            (self.malformed_event, "malformed_event"),
            (self.unrecognised, "unrecognised"),
            (self.invalid_utf8, "invalid_utf8"),
            (self.late_event, "late_event"),
            (self.client_closed_early, "client_closed_early"),
            (self.excess > 0, "excess"),
        ];
        flags.into_iter().filter_map(|(set, word)| set.then_some(word)).collect()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Tokens, as far as the provider told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens, as the provider counts them.
    pub input: Option<u64>,
    /// Output tokens, as the provider counts them.
    pub output: Option<u64>,
    /// Tokens spent on reasoning; part of `output` on some wires, beside it on others.
    pub reasoning: Option<u64>,
    /// Input tokens read from a cache.
    pub cache_read: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
}

impl Usage {
    /// Takes over what the newer report tells and keeps the rest: every wire sends running totals.
    pub(crate) fn update(&mut self, newer: &Self) {
        self.input = newer.input.or(self.input);
        self.output = newer.output.or(self.output);
        self.reasoning = newer.reasoning.or(self.reasoning);
        self.cache_read = newer.cache_read.or(self.cache_read);
        self.cache_write = newer.cache_write.or(self.cache_write);
    }
}

/// One allow-listed fact of the wire that is kept beside the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detail {
    /// The choice that it belongs to; none where it concerns the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// What it is, such as `stop_details.category`.
    pub key: Cow<'static, str>,
    /// Its value, capped, control characters escaped.
    pub value: String,
}

/// One category of a provider's safety system, as it rated a choice or the prompt.
///
/// Words and scores are the provider's own: no two providers rate on the same scale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SafetyRating {
    /// The choice that was rated; none for the prompt or the response as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// The category, such as `HARM_CATEGORY_HATE_SPEECH` or `violence`.
    pub category: String,
    /// The provider's word for how likely harm is, such as `NEGLIGIBLE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<String>,
    /// The same as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<Number>,
    /// The provider's word for how severe the harm is, such as `medium`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// The same as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity_score: Option<Number>,
    /// This category withheld the content.
    pub blocked: bool,
}

impl SafetyRating {
    /// Whether both rate the same thing.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.choice == other.choice && self.category == other.category
    }
}

/// How one choice ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChoiceEnding {
    /// The choice's own number on the wire.
    pub index: u32,
    /// What the provider said of it.
    pub said: Option<Said>,
    /// What its content shows.
    pub shown: Shown,
    /// Why it ended.
    pub reason: Reason,
    /// How sure that is.
    pub confidence: Confidence,
    /// The same in a sentence.
    pub sentence: String,
}

/// How one response ended.
///
/// A response of several choices has one ending for each; the least complete of them is the
/// response's own.
///
/// It reads back from its JSON as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// Who served it.
    pub provider: String,
    /// The wire language it came in.
    pub dialect: Cow<'static, str>,
    /// The model that the response names, else the one that was asked.
    pub model: Option<String>,
    /// The provider's word for the least complete choice.
    pub said: Option<Said>,
    /// How the bytes ended.
    pub closed: Closed,
    /// What the content of the least complete choice shows.
    pub shown: Shown,
    /// Why it ended.
    pub reason: Reason,
    /// How sure that is.
    pub confidence: Confidence,
    /// The same in a sentence.
    pub sentence: String,
    /// Whether the response is over; false for a polled body that says `queued` or `in_progress`.
    pub over: bool,
    /// The provider's error, if it sent one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The tokens that the provider told.
    pub usage: Usage,
    /// One ending for each choice.
    pub choices: Vec<ChoiceEnding>,
    /// Facts of the wire kept beside the verdict.
    pub details: Vec<Detail>,
    /// The ratings of the provider's safety system, whether or not they blocked anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratings: Vec<SafetyRating>,
    /// Whether a stream was asked for, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streamed: Option<bool>,
    /// The cap on output tokens that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// The version of the API that was asked, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Bytes read.
    pub bytes: u64,
    /// Events read.
    pub events: u64,
}

impl Ending {
    /// Makes an ending by hand, as the tests of policies and strategies need it.
    #[must_use]
    pub fn new(reason: Reason, confidence: Confidence, closed: Closed) -> Self {
        let choice = ChoiceEnding {
            index: 0,
            said: None,
            shown: Shown::default(),
            reason,
            confidence,
            sentence: String::new(),
        };
        Self {
            provider: String::new(),
            dialect: Cow::Borrowed(""),
            model: None,
            said: None,
            closed,
            shown: Shown::default(),
            reason,
            confidence,
            sentence: String::new(),
            over: true,
            fault: None,
            usage: Usage::default(),
            choices: vec![choice],
            details: Vec::new(),
            ratings: Vec::new(),
            streamed: None,
            cap: None,
            api_version: None,
            bytes: 0,
            events: 0,
        }
    }

    /// Returns all input tokens that the provider counted, those read from or written to a cache
    /// included.
    #[must_use]
    pub fn input_tokens(&self) -> Option<u64> {
        let wire = provider::by_id(&self.provider).and_then(|known| known.wire_of(&self.dialect));
        wire.map_or(self.usage.input, |wire| wire.input_tokens(&self.usage))
    }

    /// Returns all output tokens that the provider counted, those of reasoning included.
    #[must_use]
    pub fn output_tokens(&self) -> Option<u64> {
        let wire = provider::by_id(&self.provider).and_then(|known| known.wire_of(&self.dialect));
        wire.map_or(self.usage.output, |wire| wire.output_tokens(&self.usage))
    }

    /// The provider's own word and its field: the word for the end, else the name of its error.
    #[must_use]
    pub fn native(&self) -> Option<(&str, &str)> {
        if let Some(said) = &self.said {
            return Some((&said.field, &said.word));
        }
        let fault = self.fault.as_ref()?;
        let type_ = fault.type_.as_deref().map(|name| ("error.type", name));
        type_.or_else(|| fault.code.as_deref().map(|code| ("error.code", code)))
    }

    /// What this ending is to be told apart by: the reason where the provider's word decided, else
    /// what broke. This is the table of pairs, reason and close, in words for operators.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        let by_close = match self.reason {
            Reason::Cut | Reason::TimedOut | Reason::Cancelled | Reason::Failed => true,
            Reason::Complete
            | Reason::StopSequence
            | Reason::ToolCall
            | Reason::Paused
            | Reason::OutputLimit
            | Reason::ContextLimit
            | Reason::Refused
            | Reason::Filtered
            | Reason::Safety
            | Reason::Recitation
            | Reason::MalformedToolCall
            | Reason::Unknown => false,
        };
        match (self.closed, &self.fault) {
            (Closed::Error, Some(fault)) => fault.cause(),
            _ if !by_close => self.reason.name(),
            (Closed::Unreachable(Unreachable::Dns), _) => "dns_error",
            (Closed::Unreachable(Unreachable::Blocked), _) => "blocked_target",
            (Closed::Unreachable(Unreachable::Tls), _) => "tls_error",
            (Closed::Unreachable(Unreachable::Proxy), _) => "proxy_error",
            (Closed::Unreachable(Unreachable::Refused | Unreachable::Other), _) => {
                "upstream_unreachable"
            }
            (Closed::TimedOut(Timer::Connect), _) => "connect_timeout",
            (Closed::TimedOut(Timer::FirstByte), _) => "first_byte_timeout",
            (Closed::TimedOut(Timer::Idle), _) => "stalled",
            (Closed::TimedOut(Timer::Total), _) => "total_timeout",
            (Closed::TimedOut(Timer::ClientWrite), _) => "client_stalled",
            (Closed::Reset, _) => "upstream_reset",
            (Closed::Truncated, _) => "upstream_truncated_transport",
            (Closed::Eof, _) => "ended_without_terminal",
            (Closed::Oversize, _) => "oversize_event",
            (Closed::BrokenFrame, _) => "frame_error",
            (Closed::ClientGone | Closed::Dropped, _) => "client_cancelled",
            (Closed::Interrupted, _) => "interrupted",
            (Closed::ShutDown, _) => "gateway_shutdown",
            (Closed::Open | Closed::Proven | Closed::Error, _) => self.reason.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_close_is_read_back() {
        for closed in Closed::ALL {
            assert_eq!(Closed::from_word(closed.word()), Some(closed));
        }
        assert_eq!(Closed::from_word("odd"), None);
    }
}
