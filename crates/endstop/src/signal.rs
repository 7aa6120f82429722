//! The termination signal: an ending as programs exchange it, and the detectors that users of such
//! signals know by name.
//!
//! Nothing here judges and nothing here knows a wire. A delta or a response that a framework hands
//! around is given to the dialect that it came in, as the dialect's own event or body, and the one
//! verdict speaks ([`crate::verdict`]).
//!
//! `should_terminate` means that this response is over, also by an error, a cut or a tool call;
//! whether the conversation goes on is another question. Unfinished is not terminal: a partial delta
//! never is, a whole response always is, but for a polled one that is still queued or in progress.
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
use crate::ending::{
    ChoiceEnding, Closed, Confidence, Ending, Reason, SafetyRating, Said, Shown, Usage,
};
use crate::fault::{Fault, FaultKind};
use crate::provider;
use crate::text::{WORD_CAP, clean};
use crate::verdict::{self, Evidence, Habits, Meaning};
use crate::vocabulary::{VOCABULARIES, Vocabulary};

/// The serialised form of an ending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TerminationSignal {
    /// This response is over.
    pub should_terminate: bool,
    /// The termination word, such as `natural_completion`.
    pub reason: String,
    /// Our own reason.
    pub ending: Reason,
    /// How sure that is.
    pub confidence: Confidence,
    /// The provider's own words, and facts about the response.
    pub provider_specific: ProviderSpecific,
    /// The same in a sentence.
    pub message: String,
    /// The reason in every vocabulary; null where a record holds null.
    pub vocabularies: BTreeMap<String, Option<String>>,
}

/// The provider's own words, and facts about the response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderSpecific {
    /// The bare name of the field; empty where nothing was said.
    pub original_field: String,
    /// The word.
    pub original_value: String,
    /// Facts about the response, allow-listed and capped.
    #[serde(default)]
    pub metadata: Metadata,
}

/// Facts about a response that a signal keeps. No text of the prompt or the answer is among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Metadata {
    /// Who was asked, and what for.
    #[serde(flatten)]
    pub context: SignalContext,
    /// Where the original field stands on this wire, such as `candidates[].finishReason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How the bytes ended, such as `proven`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Findings about the content, such as `tool_calls`: the words of [`Shown::words`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<String>,
    /// The provider's error, if it sent one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ProviderError>,
    /// Ratings of the provider's safety system, whether or not they blocked anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub safety_ratings: Vec<SafetyRating>,
    /// Each choice's own ending, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceSignal>,
    /// Other facts of the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<WireDetail>,
}

/// An error that the provider sent, as a signal keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProviderError {
    /// Kind of error, such as `rate_limit`.
    pub kind: FaultKind,
    /// HTTP status, the response's or one given in the error itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's type, such as `overloaded_error`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The provider's code, such as `context_length_exceeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The provider's message, capped, without keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The ending of one choice of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChoiceSignal {
    /// The choice's own number on the wire.
    pub choice: u32,
    /// Our own reason.
    pub ending: Reason,
    /// How sure that is.
    pub confidence: Confidence,
    /// The provider's word for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_value: Option<String>,
}

/// One allow-listed fact of the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WireDetail {
    /// The choice that it belongs to; none where it concerns the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// Name of the fact, such as `stop_details.category`.
    pub key: String,
    /// Its value, capped.
    pub value: String,
}

/// Who was asked, what for, and how far it has come: given to detectors, and read back from signals.
///
/// The provider is enough. The rest sharpens the verdict or is kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SignalContext {
    /// The provider's id.
    pub provider: String,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The wire, by its dialect's id, where the provider speaks several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// The version of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The choice that a delta is about; in a signal, the one that speaks for the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// Whether a stream was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streamed: Option<bool>,
    /// The tokens used so far.
    #[serde(skip_serializing_if = "is_nothing")]
    pub usage: Usage,
    /// The cap on output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// The conversation that the response belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
}

fn is_nothing(usage: &Usage) -> bool {
    *usage == Usage::default()
}

/// The size of a conversation and its limits. It says nothing about whether a response is over, and
/// is kept in the signal for whoever decides what to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conversation {
    /// Messages so far.
    pub messages: u32,
    /// Tokens so far, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The most messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u32>,
    /// The most tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

impl Conversation {
    /// Returns whether one of the limits is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let tokens = self.tokens.zip(self.max_tokens).is_some_and(|(tokens, most)| tokens >= most);
        tokens || self.max_messages.is_some_and(|most| self.messages >= most)
    }
}

impl TerminationSignal {
    /// Makes a signal from the least that one can know.
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

    /// Returns who was asked, what for, and how far it has come.
    #[must_use]
    pub fn context(&self) -> &SignalContext {
        &self.provider_specific.metadata.context
    }

    /// Adds what only the caller knows: what the response itself told stays.
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
            shown: ending.shown.words().into_iter().map(str::to_owned).collect(),
            error: ending.fault.as_ref().map(ProviderError::from),
            safety_ratings: ending.ratings.clone(),
            choices: ending.choices.iter().filter(|_| several).map(ChoiceSignal::from).collect(),
            details: ending
                .details
                .iter()
                .map(|detail| WireDetail {
                    choice: detail.choice,
                    key: detail.key.to_string(),
                    value: detail.value.clone(),
                })
                .collect(),
        }
    }
}

/// The choice that speaks for the response.
fn speaker(ending: &Ending) -> Option<&ChoiceEnding> {
    let speaks = |choice: &&ChoiceEnding| {
        choice.reason == ending.reason
            && choice.confidence == ending.confidence
            && choice.said == ending.said
    };
    ending.choices.iter().find(speaks)
}

/// Where the word stands on this wire.
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

/// Returns the confidence of a verdict on these facts, at a host that proves its ends.
#[must_use]
pub fn confidence(said: Meaning, closed: Closed, shown: &Shown) -> Confidence {
    let word = Said::new("", "");
    let evidence = Evidence {
        said: (said != Meaning::Nothing).then_some(&word),
        meaning: said,
        closed,
        shown,
        fault: None,
        choices: 1,
        habits: Habits { has_tool_word: true, ..Habits::default() },
        partial: false,
    };
    verdict::judge(&evidence).confidence
}
