//! The termination signal: an ending in a form for other programs, and functions that detect it.
//!
//! This module contains no rules and no wire formats. It passes a delta or a response from a
//! framework to its dialect as an event or a body, and one verdict judges it.
//!
//! `should_terminate` means that this response is over, also after an error, a cut or a tool call.
//! It does not say whether the conversation continues. A partial delta is never terminal. A whole
//! response always is, unless it is a polled response that is still queued or in progress.
//!
//! ```
//! use endstop::signal::{SignalContext, Delta, detect_termination};
//! use endstop::{Confidence, Reason};
//! use serde_json::json;
//!
//! let context = SignalContext { provider: "openai".to_owned(), ..SignalContext::default() };
//! let delta = Delta {
//!     event_type: Some("response.incomplete".to_owned()),
//!     metadata: Some(json!({ "incomplete_details": { "reason": "content_filter" } })),
//!     ..Delta::default()
//! };
//! let signal = detect_termination(&delta, true, &context);
//! assert!(signal.should_terminate);
//! assert_eq!((signal.ending, signal.confidence), (Reason::Filtered, Confidence::High));
//! assert_eq!(signal.provider_specific.original_field, "incomplete_details.reason");
//! ```

mod detect;
mod stream;
mod validate;

pub use detect::{Delta, Response, SignalInput, detect_termination, is_terminal};
pub use stream::{Processed, StreamHandler};
pub use validate::{Problem, validate, validate_text};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dialect;
use crate::ending::{ChoiceEnding, Confidence, Detail, Ending, Reason, SafetyRating, Usage};
use crate::fault::{Fault, FaultKind};
use crate::provider;
use crate::text::{WORD_CAP, clean};
use crate::vocabulary::{VOCABULARIES, Vocabulary};

/// Serialized form of an ending.
///
/// ```
/// use endstop::signal::TerminationSignal;
/// use endstop::{Head, RequestInfo, TransportEnd, Watcher, provider};
///
/// let mut watcher = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// watcher.watch(br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}"#);
/// let signal = TerminationSignal::from(&watcher.finish(TransportEnd::Eof));
///
/// let json = serde_json::to_value(&signal).unwrap();
/// assert_eq!(json["should_terminate"], true);
/// assert_eq!(json["reason"], "token_limit_reached");
/// assert_eq!(json["provider_specific"]["original_value"], "length");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TerminationSignal {
    /// Whether this response is over.
    pub should_terminate: bool,
    /// Reason in the termination vocabulary, such as `natural_completion`.
    pub reason: String,
    /// Our reason.
    pub ending: Reason,
    /// Confidence in the reason.
    pub confidence: Confidence,
    /// The provider's finish reason, and facts about the response.
    pub provider_specific: ProviderSpecific,
    /// Explanation for people, in one sentence.
    pub message: String,
    /// Reason in every vocabulary; null where a record holds null.
    pub vocabularies: BTreeMap<String, Option<String>>,
}

/// The provider's finish reason, and facts about the response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderSpecific {
    /// Bare name of the field; empty without a finish reason.
    pub original_field: String,
    /// The provider's finish reason.
    pub original_value: String,
    /// Facts about the response, allow-listed and limited in length.
    #[serde(default)]
    pub metadata: Metadata,
}

/// Facts about a response in a signal. They contain no text of the prompt or the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Metadata {
    /// Provider, request and progress.
    #[serde(flatten)]
    pub context: SignalContext,
    /// Path of the original field on this wire, such as `candidates[].finishReason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The way the bytes ended, such as `proven`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Findings about the content, such as `tool_calls`: the names of
    /// [`Shown::names`](crate::Shown::names).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<String>,
    /// The provider's error, if it sent one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ProviderError>,
    /// Ratings of the provider's safety system, whether or not they blocked anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub safety_ratings: Vec<SafetyRating>,
    /// Ending of each choice, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceSignal>,
    /// Other facts of the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// Error that the provider sent: a [`Fault`] without its form, which is not part of the exchanged
/// format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProviderError {
    /// Kind of error, such as `rate_limit`.
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
}

/// Ending of one choice of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChoiceSignal {
    /// Number of the choice on the wire.
    pub choice: u32,
    /// Our reason.
    pub ending: Reason,
    /// Confidence in the reason.
    pub confidence: Confidence,
    /// The provider's finish reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_value: Option<String>,
}

/// Provider, request and progress: the input of detectors, and part of their signals.
///
/// Only the provider is required. The other fields improve the verdict or are copied to the signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SignalContext {
    /// Id of the provider.
    pub provider: String,
    /// Model of the response or of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Id of the wire's dialect, if the provider has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// API version of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Choice of a delta; in a signal, the choice that gives the ending of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// Whether the request asked for a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streamed: Option<bool>,
    /// Token counts so far.
    #[serde(skip_serializing_if = "is_nothing")]
    pub usage: Usage,
    /// Limit on output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// Conversation that the response belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
}

fn is_nothing(usage: &Usage) -> bool {
    *usage == Usage::default()
}

/// Size of a conversation and its limits.
///
/// It does not affect whether a response is over. The signal carries it for code that decides what
/// to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conversation {
    /// Number of messages so far.
    pub messages: u32,
    /// Number of tokens so far, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum number of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u32>,
    /// Maximum number of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

impl Conversation {
    /// Reports whether one of the limits is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let tokens = self.tokens.zip(self.max_tokens).is_some_and(|(tokens, most)| tokens >= most);
        tokens || self.max_messages.is_some_and(|most| self.messages >= most)
    }
}

impl TerminationSignal {
    /// Creates a signal from a reason and a confidence alone.
    #[must_use]
    pub fn new(ending: Reason, confidence: Confidence) -> Self {
        let spelled = |known: Vocabulary| {
            let unsaid = known == Vocabulary::FinishReason && ending == Reason::Unknown;
            (known.name().to_owned(), (!unsaid).then(|| known.spell(ending).to_owned()))
        };
        Self {
            should_terminate: true,
            reason: Vocabulary::Termination.spell(ending).to_owned(),
            ending,
            confidence,
            provider_specific: ProviderSpecific::default(),
            message: format!("the response ended: {}", ending.name().replace('_', " ")),
            vocabularies: VOCABULARIES.into_iter().map(spelled).collect(),
        }
    }

    /// Returns the provider, the request and the progress.
    #[must_use]
    pub fn context(&self) -> &SignalContext {
        &self.provider_specific.metadata.context
    }

    /// Adds the caller's context. Values from the response itself take precedence.
    #[must_use]
    pub fn within(mut self, known: &SignalContext) -> Self {
        let short = |text: &Option<String>| text.as_deref().map(|text| clean(text, WORD_CAP));
        let own = &mut self.provider_specific.metadata.context;
        if own.provider.is_empty() {
            own.provider = clean(&known.provider, WORD_CAP);
        }
        own.model = own.model.take().or_else(|| short(&known.model));
        own.wire = own.wire.take().or_else(|| short(&known.wire));
        own.api_version = own.api_version.take().or_else(|| short(&known.api_version));
        own.choice = own.choice.or(known.choice);
        own.streamed = own.streamed.or(known.streamed);
        own.cap = own.cap.or(known.cap);
        own.conversation = own.conversation.or(known.conversation);
        let mut usage = known.usage;
        usage.update(&own.usage);
        own.usage = usage;
        self
    }
}

impl From<&Ending> for TerminationSignal {
    fn from(ending: &Ending) -> Self {
        let (field, word) = ending.native().unwrap_or_default();
        let spelled =
            VOCABULARIES.into_iter().map(|known| (known.name().to_owned(), ending.spell(known)));
        Self {
            should_terminate: ending.over,
            reason: Vocabulary::Termination.spell(ending.reason).to_owned(),
            ending: ending.reason,
            confidence: ending.confidence,
            provider_specific: ProviderSpecific {
                original_field: field.to_owned(),
                original_value: word.to_owned(),
                metadata: Metadata::from(ending),
            },
            message: ending.sentence.clone(),
            vocabularies: spelled.collect(),
        }
    }
}

impl From<&Ending> for Metadata {
    fn from(ending: &Ending) -> Self {
        let several = ending.choices.len() > 1;
        Self {
            context: SignalContext {
                provider: clean(&ending.provider, WORD_CAP),
                model: ending.model.as_deref().map(|model| clean(model, WORD_CAP)),
                wire: Some(ending.dialect.to_string()),
                api_version: ending.api_version.as_deref().map(|text| clean(text, WORD_CAP)),
                choice: speaker(ending).map(|choice| choice.index),
                streamed: ending.streamed,
                usage: ending.usage,
                cap: ending.cap,
                conversation: None,
            },
            path: path(ending).map(str::to_owned),
            closed: Some(ending.closed.word().to_owned()),
            shown: ending.shown.names().into_iter().map(str::to_owned).collect(),
            error: ending.fault.as_ref().map(ProviderError::from),
            safety_ratings: ending.ratings.clone(),
            choices: ending.choices.iter().filter(|_| several).map(ChoiceSignal::from).collect(),
            details: ending.details.clone(),
        }
    }
}

/// Returns the choice that gives the ending of the response.
fn speaker(ending: &Ending) -> Option<&ChoiceEnding> {
    let speaks = |choice: &&ChoiceEnding| {
        choice.reason == ending.reason
            && choice.confidence == ending.confidence
            && choice.said == ending.said
    };
    ending.choices.iter().find(speaks)
}

/// Returns the path of the finish reason on this wire.
fn path(ending: &Ending) -> Option<&'static str> {
    let said = ending.said.as_ref()?;
    let host = provider::by_id(&ending.provider).and_then(|known| known.wire_of(&ending.dialect));
    let own = host.into_iter().flat_map(|profile| profile.words);
    let shared = dialect::by_id(&ending.dialect).into_iter().flat_map(|dialect| dialect.words);
    own.chain(shared).find(|table| table.field == said.field).map(|table| table.path)
}

impl From<&ChoiceEnding> for ChoiceSignal {
    fn from(choice: &ChoiceEnding) -> Self {
        Self {
            choice: choice.index,
            ending: choice.reason,
            confidence: choice.confidence,
            original_value: choice.said.as_ref().map(|said| said.word.clone()),
        }
    }
}

impl From<&Fault> for ProviderError {
    fn from(fault: &Fault) -> Self {
        Self {
            kind: fault.kind,
            status: fault.status,
            type_: fault.type_.clone(),
            code: fault.code.clone(),
            message: fault.message.clone(),
        }
    }
}
