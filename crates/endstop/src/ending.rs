//! The ending of one response: said, closed, shown and the verdict.
//!
//! The four are separate fields. [`crate::verdict`] derives the verdict from the other three; this
//! module only holds data.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::fault::Fault;
use crate::provider;

/// Reason why a response ended.
///
/// [`crate::vocabulary`] translates it to other vocabularies. The variants are ordered from the
/// most to the least complete answer. For a response with several choices, the least complete
/// choice gives the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The model ended its turn.
    Complete,
    /// One of the caller's stop sequences matched.
    StopSequence,
    /// The response contains complete tool calls to run.
    ToolCall,
    /// The provider paused the turn and resumes it by its own protocol.
    Paused,
    /// The limit on output tokens was reached.
    OutputLimit,
    /// The context window is full.
    ContextLimit,
    /// The model or a classifier declined to answer.
    Refused,
    /// A content filter or guardrail withheld the answer.
    Filtered,
    /// A safety system blocked the answer.
    Safety,
    /// The answer was blocked as recitation.
    Recitation,
    /// The tool call is malformed, or the provider announced one and sent none.
    MalformedToolCall,
    /// The finish reason is unknown or missing.
    Unknown,
    /// The caller or an operator cancelled the request.
    Cancelled,
    /// A timeout expired, at the provider or at the client.
    TimedOut,
    /// The provider failed.
    Failed,
    /// The bytes ended before the response was complete.
    Cut,
}

impl Reason {
    /// All reasons, in order.
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

    /// Reports whether the provider delivered the complete answer.
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

/// Confidence in a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The finish reason is missing, or the evidence is only circumstantial.
    Low,
    /// A fact is missing or was overruled, or the finish reason is vague or unknown.
    Medium,
    /// Said, closed and shown agree.
    High,
}

impl Confidence {
    /// Returns the name in records and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Cause of the end of the bytes, as the transport reports it to [`crate::Reader::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportEnd {
    /// The body ended cleanly.
    Eof,
    /// The connection broke, such as by a reset.
    Reset,
    /// The body ended inside a chunk or before its declared length.
    Truncated,
    /// The connection could not be opened.
    Unreachable(Unreachable),
    /// A timeout on our side expired.
    TimedOut(Timer),
    /// The client disconnected.
    ClientGone,
    /// The reader was dropped before [`crate::Reader::finish`].
    Dropped,
    /// Our process ended during the response.
    Interrupted,
    /// Our process was asked to shut down.
    ShutDown,
}

/// Reason why no connection to the provider could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unreachable {
    /// The connection was refused.
    Refused,
    /// The host name does not resolve.
    Dns,
    /// The host name resolves to an address that is not allowed.
    Blocked,
    /// The TLS certificate or handshake is invalid.
    Tls,
    /// A proxy refused the connection.
    Proxy,
    /// Our process had no free file descriptor.
    Exhausted,
    /// Any other cause.
    Other,
}

/// Timeout that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Timer {
    /// Timeout for the connection.
    Connect,
    /// Timeout for the first byte.
    FirstByte,
    /// Timeout between two chunks.
    Idle,
    /// Timeout for the whole response.
    Total,
    /// Timeout for the client to read the response.
    ClientWrite,
}

/// Way in which the bytes of a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Closed {
    /// The bytes have not ended yet.
    Open,
    /// With the end marker that the provider's profile names, or with a complete body.
    Proven,
    /// With a clean end of the body, without an end marker.
    Eof,
    /// With a broken connection.
    Reset,
    /// Inside a chunk or before the declared length.
    Truncated,
    /// Before the first byte: the connection could not be opened.
    Unreachable(Unreachable),
    /// With a timeout on our side.
    TimedOut(Timer),
    /// With a disconnect of the client.
    ClientGone,
    /// With the drop of the reader.
    Dropped,
    /// With an error from the provider.
    Error,
    /// With an event over the size limit, or with more events than the limit.
    Oversize,
    /// With a corrupt frame, such as a wrong checksum or an impossible length.
    BrokenFrame,
    /// With the end of our process.
    Interrupted,
    /// With the shutdown of our process.
    ShutDown,
}

impl Closed {
    /// All values.
    pub const ALL: [Self; 24] = [
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
        Self::Unreachable(Unreachable::Exhausted),
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

    /// Returns the value with this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|closed| closed.word() == word)
    }

    /// Returns the name in records and reports.
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
            Self::Unreachable(Unreachable::Exhausted) => "unreachable_exhausted",
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

impl Closed {
    /// Reports whether the provider closed the response, so that nothing was cut off.
    pub(crate) fn is_clean(self) -> bool {
        match self {
            Self::Open | Self::Proven | Self::Eof => true,
            Self::Reset
            | Self::Truncated
            | Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::ClientGone
            | Self::Dropped
            | Self::Error
            | Self::Oversize
            | Self::BrokenFrame
            | Self::Interrupted
            | Self::ShutDown => false,
        }
    }

    /// Reports whether the finish reason of a response with tool calls makes up for its missing end
    /// marker: a broken connection may have cut off more calls or an error. A client that leaves after
    /// the finish reason cuts off nothing, but its calls may not run either.
    pub(crate) fn settles_calls(self) -> bool {
        self.is_clean() || matches!(self, Self::ClientGone | Self::Dropped)
    }

    /// Returns a description for people, in lower case.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Open => "still open",
            Self::Proven => "closed normally, with the provider's end marker or a complete body",
            Self::Eof => "closed without the provider's end marker",
            Self::Reset => "reset",
            Self::Truncated => "closed inside a chunk, or before the declared length",
            Self::Unreachable(_) => "never opened",
            Self::TimedOut(Timer::Connect) => "timed out while connecting",
            Self::TimedOut(Timer::FirstByte) => "timed out waiting for the first byte",
            Self::TimedOut(Timer::Idle) => "timed out waiting for the next chunk",
            Self::TimedOut(Timer::Total) => "timed out before the response was complete",
            Self::TimedOut(Timer::ClientWrite) => "timed out because the client stopped reading",
            Self::ClientGone | Self::Dropped => "closed by the client",
            Self::Error => "closed after an error from the provider",
            Self::Oversize => "no longer read, because an event was too large",
            Self::BrokenFrame => "no longer read, because a frame was corrupt",
            Self::Interrupted | Self::ShutDown => "closed because the Endstop process ended",
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
            .ok_or_else(|| D::Error::custom(format!("unknown `closed` value `{word}`")))
    }
}

/// The provider's finish reason and its field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Said {
    /// Bare name of the field, such as `finish_reason`.
    pub field: Cow<'static, str>,
    /// Finish reason as it was sent, cut to 256 bytes, with control characters escaped.
    pub word: String,
}

impl Said {
    /// Creates a finish reason in a field.
    pub fn new(field: impl Into<Cow<'static, str>>, word: impl Into<String>) -> Self {
        Self { field: field.into(), word: word.into() }
    }
}

/// Findings about the content, independent of the finish reason.
///
/// The JSON form contains only the fields that are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Shown {
    /// The answer has text.
    #[serde(skip_serializing_if = "is_default")]
    pub text: bool,
    /// The answer has reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub reasoning: bool,
    /// The wire's field for refusals has text.
    #[serde(skip_serializing_if = "is_default")]
    pub refusal: bool,
    /// The answer has other content: audio, an image, a server-side tool.
    #[serde(skip_serializing_if = "is_default")]
    pub other_content: bool,
    /// Number of tool calls, complete or not.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_calls: u32,
    /// Number of tool calls whose block never closed or whose arguments are unfinished JSON.
    #[serde(skip_serializing_if = "is_default")]
    pub unfinished_tool_calls: u32,
    /// Number of tool calls whose arguments can no longer become valid JSON.
    #[serde(skip_serializing_if = "is_default")]
    pub malformed_tool_calls: u32,
    /// Number of malformed tool calls of which the provider sent two versions, or of which a part is
    /// unreadable.
    #[serde(skip_serializing_if = "is_default")]
    pub conflicting_tool_calls: u32,
    /// Number of tool calls without a name.
    #[serde(skip_serializing_if = "is_default")]
    pub nameless_tool_calls: u32,
    /// Number of closed tool calls whose arguments are absent, blank or null. If the response ended
    /// well, these are calls without parameters.
    #[serde(skip_serializing_if = "is_default")]
    pub bare_tool_calls: u32,
    /// Number of tool calls of which nothing shows whether the caller or the provider runs them.
    #[serde(skip_serializing_if = "is_default")]
    pub unclear_tool_calls: u32,
    /// The provider waits for approval before it runs a server-side tool.
    #[serde(skip_serializing_if = "is_default")]
    pub approval: bool,
    /// The provider named the stop sequence that matched.
    #[serde(skip_serializing_if = "is_default")]
    pub stop_sequence: bool,
    /// Part of the answer is marked as incomplete.
    #[serde(skip_serializing_if = "is_default")]
    pub unfinished_content: bool,
    /// A guardrail or a content filter reported that it intervened.
    #[serde(skip_serializing_if = "is_default")]
    pub guardrail: bool,
    /// A safety rating reports that the answer was blocked.
    #[serde(skip_serializing_if = "is_default")]
    pub blocked: bool,
    /// The provider reported a failure of its engine.
    #[serde(skip_serializing_if = "is_default")]
    pub breakdown: bool,
    /// The provider reported two outcomes that contradict each other.
    #[serde(skip_serializing_if = "is_default")]
    pub contradiction: bool,
    /// The output token count equals the limit.
    #[serde(skip_serializing_if = "is_default")]
    pub at_cap: bool,
    /// The output token count exceeds the limit, as on providers that count reasoning separately.
    #[serde(skip_serializing_if = "is_default")]
    pub over_cap: bool,
    /// Input and output tokens together fill the context of the model, whose size is known.
    #[serde(skip_serializing_if = "is_default")]
    pub context_full: bool,
    /// The response has a finish reason but lacks the end marker of its provider.
    #[serde(skip_serializing_if = "is_default")]
    pub missing_marker: bool,
    /// The last event is truncated.
    #[serde(skip_serializing_if = "is_default")]
    pub cut_event: bool,
    /// An event could not be parsed.
    #[serde(skip_serializing_if = "is_default")]
    pub malformed_event: bool,
    /// No event belongs to a known wire.
    #[serde(skip_serializing_if = "is_default")]
    pub unrecognised: bool,
    /// The response contains bytes that are not UTF-8.
    #[serde(skip_serializing_if = "is_default")]
    pub invalid_utf8: bool,
    /// Content or an error came after the end marker.
    #[serde(skip_serializing_if = "is_default")]
    pub late_event: bool,
    /// The client disconnected after the end marker or finish reason, before the last byte.
    #[serde(skip_serializing_if = "is_default")]
    pub client_closed_early: bool,
    /// Number of choices and tool calls over the limit. They were counted and not read.
    #[serde(skip_serializing_if = "is_default")]
    pub excess: u32,
}

impl Shown {
    /// Reports whether the answer has no content of any kind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !(self.text || self.reasoning || self.refusal || self.other_content) && self.tool_calls == 0
    }

    /// Reports whether reasoning is the only content.
    #[must_use]
    pub fn is_reasoning_only(&self) -> bool {
        self.reasoning && !(self.text || self.refusal || self.other_content) && self.tool_calls == 0
    }

    /// Returns the names of the findings for records and reports.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let flags = [
            (self.is_empty(), "empty"),
            (self.is_reasoning_only(), "reasoning_only"),
            (self.refusal, "refusal"),
            (self.tool_calls > 0, "tool_calls"),
            (self.unfinished_tool_calls > 0, "unfinished_tool_call"),
            (self.malformed_tool_calls > 0, "malformed_tool_call"),
            (self.conflicting_tool_calls > 0, "conflicting_tool_call"),
            (self.nameless_tool_calls > 0, "nameless_tool_call"),
            (self.bare_tool_calls > 0, "bare_tool_call"),
            (self.unclear_tool_calls > 0, "unclear_tool_call"),
            (self.approval, "approval"),
            (self.stop_sequence, "stop_sequence"),
            (self.unfinished_content, "unfinished_content"),
            (self.guardrail, "guardrail"),
            (self.blocked, "blocked"),
            (self.breakdown, "breakdown"),
            (self.contradiction, "contradiction"),
            (self.at_cap, "at_cap"),
            (self.over_cap, "over_cap"),
            (self.context_full, "context_full"),
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

/// Token counts that the provider reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens, as the provider counts them.
    pub input: Option<u64>,
    /// Output tokens, as the provider counts them.
    pub output: Option<u64>,
    /// Tokens spent on reasoning; included in `output` on some wires, separate on others.
    pub reasoning: Option<u64>,
    /// Input tokens read from a cache.
    pub cache_read: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
}

impl Usage {
    /// Replaces the counts that the newer report has. Every wire sends running totals.
    pub(crate) fn update(&mut self, newer: &Self) {
        self.input = newer.input.or(self.input);
        self.output = newer.output.or(self.output);
        self.reasoning = newer.reasoning.or(self.reasoning);
        self.cache_read = newer.cache_read.or(self.cache_read);
        self.cache_write = newer.cache_write.or(self.cache_write);
    }
}

/// One allow-listed fact of the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detail {
    /// Choice that the fact belongs to; `None` if it concerns the whole response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// Name of the fact, such as `stop_details.category`.
    pub key: Cow<'static, str>,
    /// Value, cut to a maximum length, with control characters escaped.
    pub value: String,
}

/// Rating of a choice or the prompt in one category of a provider's safety system.
///
/// Labels and scores are the provider's own. No two providers use the same scale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SafetyRating {
    /// Choice that was rated; `None` for the prompt or the whole response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// Category, such as `HARM_CATEGORY_HATE_SPEECH` or `violence`.
    pub category: String,
    /// The provider's label for the probability of harm, such as `NEGLIGIBLE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<String>,
    /// Probability of harm as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<Number>,
    /// The provider's label for the severity of harm, such as `medium`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Severity of harm as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity_score: Option<Number>,
    /// Whether this category blocked the content.
    pub blocked: bool,
}

impl SafetyRating {
    /// Reports whether both ratings have the same choice and category.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.choice == other.choice && self.category == other.category
    }
}

/// Ending of one choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChoiceEnding {
    /// Number of the choice on the wire.
    pub index: u32,
    /// The provider's finish reason for the choice.
    pub said: Option<Said>,
    /// Findings about the content of the choice.
    pub shown: Shown,
    /// Reason for the end.
    pub reason: Reason,
    /// Confidence in the reason.
    pub confidence: Confidence,
    /// Explanation for people, in one sentence.
    pub sentence: String,
}

/// Ending of one response.
///
/// A response with several choices has one ending for each. The least complete one is the ending of
/// the response.
///
/// The JSON form deserializes to the same value.
///
/// ```
/// use endstop::{Closed, Ending, Head, Reason, RequestInfo, TransportEnd, Watcher, provider};
///
/// let mut watcher = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// watcher.watch(b"data: {\"choices\":[{\"delta\":{\"content\":\"Once\"}}]}\n\n");
/// let ending = watcher.finish(TransportEnd::Eof);
///
/// assert_eq!((ending.reason, ending.closed), (Reason::Cut, Closed::Eof));
/// assert!(ending.said.is_none() && ending.shown.text);
/// assert_eq!(ending.sentence, "the stream stopped before the provider's end marker");
///
/// let json = serde_json::to_string(&ending).unwrap();
/// assert_eq!(serde_json::from_str::<Ending>(&json).unwrap(), ending);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// Id of the provider.
    pub provider: String,
    /// Id of the dialect.
    pub dialect: Cow<'static, str>,
    /// Model that the response names, or else the model of the request.
    pub model: Option<String>,
    /// The provider's finish reason for the least complete choice.
    pub said: Option<Said>,
    /// The way the bytes ended.
    pub closed: Closed,
    /// Findings about the content of the least complete choice.
    pub shown: Shown,
    /// Reason for the end.
    pub reason: Reason,
    /// Confidence in the reason.
    pub confidence: Confidence,
    /// Explanation for people, in one sentence.
    pub sentence: String,
    /// Whether the response is finished; false for a polled body that is `queued` or `in_progress`.
    pub over: bool,
    /// The provider's error, if it sent one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Token counts that the provider reported.
    pub usage: Usage,
    /// One ending for each choice.
    pub choices: Vec<ChoiceEnding>,
    /// Other facts of the wire.
    pub details: Vec<Detail>,
    /// Ratings of the provider's safety system, whether or not they blocked anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratings: Vec<SafetyRating>,
    /// Whether the request asked for a stream, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streamed: Option<bool>,
    /// Limit on output tokens in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// API version of the request, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of events read.
    pub events: u64,
}

impl Ending {
    /// Creates an ending from the least information, for tests.
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

    /// Returns all input tokens that the provider counted, including cache reads and writes.
    #[must_use]
    pub fn input_tokens(&self) -> Option<u64> {
        let wire = provider::by_id(&self.provider).and_then(|known| known.wire_of(&self.dialect));
        wire.map_or(self.usage.input, |wire| wire.input_tokens(&self.usage))
    }

    /// Returns all output tokens that the provider counted, including reasoning.
    #[must_use]
    pub fn output_tokens(&self) -> Option<u64> {
        let wire = provider::by_id(&self.provider).and_then(|known| known.wire_of(&self.dialect));
        wire.map_or(self.usage.output, |wire| wire.output_tokens(&self.usage))
    }

    /// Returns the provider's finish reason and its field, or else the type or code of its error.
    #[must_use]
    pub fn native(&self) -> Option<(&str, &str)> {
        if let Some(said) = &self.said {
            return Some((&said.field, &said.word));
        }
        let fault = self.fault.as_ref()?;
        let type_ = fault.type_.as_deref().map(|name| ("error.type", name));
        type_.or_else(|| fault.code.as_deref().map(|code| ("error.code", code)))
    }

    /// Returns a cause for operators: the reason if the finish reason decided, or else the failure,
    /// such as `dns_error`. It is a function of the reason, `closed` and the error.
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
            (Closed::Unreachable(Unreachable::Exhausted), _) => "out_of_descriptors",
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
