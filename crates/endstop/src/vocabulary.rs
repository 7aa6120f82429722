//! The table that translates our reasons to other vocabularies.
//!
//! Records, signals and reports use this table. Each column is a [`Vocabulary`]. Every reason has a
//! name in every vocabulary. A name can be read back only if it stands for a single reason.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ending::{Ending, Reason};
use crate::registry::Registry;
use crate::text::{WORD_CAP, clean};
use crate::verdict::Meaning;

/// Set of names for reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vocabulary {
    /// Our names, in snake case.
    Endstop,
    /// Stored `finish_reason`, for analytics.
    FinishReason,
    /// `reason` of the termination signal.
    Termination,
    /// Stop reason; `Unknown` is followed by the provider's finish reason in parentheses.
    StopReason,
    /// `finish_reason` of OpenAI's Chat Completions.
    OpenAi,
    /// `stop_reason` of Anthropic's Messages.
    Anthropic,
    /// `finishReason` of Gemini's `generateContent`.
    Gemini,
    /// Finish reason in OpenTelemetry's message schema for generative AI.
    OpenTelemetry,
    /// Unified finish reason of the Vercel AI SDK, version 4 of its provider interface.
    AiSdk,
    /// `stopReason` of the Model Context Protocol's sampling.
    Mcp,
    /// `stopReason` of the Agent Client Protocol.
    Acp,
}

/// Columns of the table, in order.
pub const VOCABULARIES: [Vocabulary; 11] = [
    Vocabulary::Endstop,
    Vocabulary::FinishReason,
    Vocabulary::Termination,
    Vocabulary::StopReason,
    Vocabulary::OpenAi,
    Vocabulary::Anthropic,
    Vocabulary::Gemini,
    Vocabulary::OpenTelemetry,
    Vocabulary::AiSdk,
    Vocabulary::Mcp,
    Vocabulary::Acp,
];

/// One row per reason, one column per vocabulary. A vocabulary without a matching name gets its
/// nearest name that does not mean success, or our name if the vocabulary is open.
#[rustfmt::skip]
static TABLE: [(Reason, [&str; 11]); 16] = [
    (Reason::Complete,          ["complete",            "stop",           "natural_completion",  "EndTurn",               "stop",           "end_turn",                      "STOP",                    "stop",           "stop",           "endTurn",      "end_turn"]),
    (Reason::StopSequence,      ["stop_sequence",       "stop",           "stop_sequence",       "EndTurn",               "stop",           "stop_sequence",                 "STOP",                    "stop",           "stop",           "stopSequence", "end_turn"]),
    (Reason::ToolCall,          ["tool_call",           "tool_calls",     "natural_completion",  "ToolCall",              "tool_calls",     "tool_use",                      "STOP",                    "tool_call",      "tool-calls",     "toolUse",      "end_turn"]),
    (Reason::Paused,            ["paused",              "other",          "unknown",             "Unknown",               "length",         "pause_turn",                    "CONTINUATION",            "paused",         "other",          "paused",       "max_turn_requests"]),
    (Reason::OutputLimit,       ["output_limit",        "length",         "token_limit_reached", "MaxTokens",             "length",         "max_tokens",                    "MAX_TOKENS",              "length",         "length",         "maxTokens",    "max_tokens"]),
    (Reason::ContextLimit,      ["context_limit",       "length",         "token_limit_reached", "ContextWindowExceeded", "length",         "model_context_window_exceeded", "MAX_TOKENS",              "length",         "length",         "maxTokens",    "max_tokens"]),
    (Reason::Refused,           ["refused",             "content_filter", "content_filtered",    "SafetyBlocked",         "content_filter", "refusal",                       "SAFETY",                  "content_filter", "content-filter", "refused",      "refusal"]),
    (Reason::Filtered,          ["filtered",            "content_filter", "content_filtered",    "SafetyBlocked",         "content_filter", "refusal",                       "PROHIBITED_CONTENT",      "content_filter", "content-filter", "filtered",     "refusal"]),
    (Reason::Safety,            ["safety",              "safety",         "content_filtered",    "SafetyBlocked",         "content_filter", "refusal",                       "SAFETY",                  "content_filter", "content-filter", "safety",       "refusal"]),
    (Reason::Recitation,        ["recitation",          "recitation",     "content_filtered",    "SafetyBlocked",         "content_filter", "refusal",                       "RECITATION",              "content_filter", "content-filter", "recitation",   "refusal"]),
    (Reason::MalformedToolCall, ["malformed_tool_call", "error",          "error_termination",   "Unknown",               "error",          "error",                         "MALFORMED_FUNCTION_CALL", "error",          "error",          "error",        "error"]),
    (Reason::Failed,            ["failed",              "error",          "error_termination",   "Unknown",               "error",          "error",                         "OTHER",                   "error",          "error",          "error",        "error"]),
    (Reason::TimedOut,          ["timed_out",           "timeout",        "error_termination",   "Unknown",               "error",          "error",                         "OTHER",                   "error",          "error",          "timedOut",     "error"]),
    (Reason::Cancelled,         ["cancelled",           "cancel",         "error_termination",   "Cancelled",             "error",          "error",                         "OTHER",                   "error",          "error",          "cancelled",    "cancelled"]),
    (Reason::Cut,               ["cut",                 "error",          "error_termination",   "Unknown",               "error",          "error",                         "OTHER",                   "error",          "interrupted",    "cut",          "error"]),
    (Reason::Unknown,           ["unknown",             "other",          "unknown",             "Unknown",               "other",          "unknown",                       "OTHER",                   "unknown",        "other",          "unknown",      "error"]),
];

impl Vocabulary {
    /// Returns the name of the column in reports and signals.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Endstop => "endstop",
            Self::FinishReason => "finish_reason",
            Self::Termination => "termination",
            Self::StopReason => "stop_reason",
            Self::OpenAi => "openai_style",
            Self::Anthropic => "anthropic_style",
            Self::Gemini => "gemini_style",
            Self::OpenTelemetry => "opentelemetry",
            Self::AiSdk => "ai_sdk",
            Self::Mcp => "mcp",
            Self::Acp => "acp",
        }
    }

    /// Returns the name of a reason in this vocabulary.
    #[must_use]
    pub fn spell(self, reason: Reason) -> &'static str {
        let column = VOCABULARIES.iter().position(|known| *known == self);
        let row = TABLE.iter().find(|(known, _)| *known == reason);
        row.zip(column)
            .and_then(|((_, words), column)| words.get(column))
            .copied()
            .unwrap_or("unknown")
    }

    /// Returns the reason that a name stands for; `None` if it stands for several or none.
    #[must_use]
    pub fn read(self, word: &str) -> Option<Reason> {
        let mut fits = Reason::ALL.into_iter().filter(|reason| self.spell(*reason) == word);
        fits.next().filter(|_| fits.next().is_none())
    }
}

impl Reason {
    /// Returns our name, in snake case.
    #[must_use]
    pub fn name(self) -> &'static str {
        Vocabulary::Endstop.spell(self)
    }

    /// Returns the reason with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Vocabulary::Endstop.read(name)
    }
}

impl Ending {
    /// Returns the stored `finish_reason`; `None` if the provider sent no finish reason and nothing
    /// went wrong.
    #[must_use]
    pub fn finish_reason(&self) -> Option<&'static str> {
        let unsaid = self.reason == Reason::Unknown && (self.said.is_none() || !self.over);
        (!unsaid).then(|| Vocabulary::FinishReason.spell(self.reason))
    }

    /// Returns the stop reason, with the provider's finish reason if it is `Unknown`.
    #[must_use]
    pub fn stop_reason(&self) -> NormalizedStopReason {
        let raw = self.native().map_or("", |(_, word)| word);
        NormalizedStopReason::new(self.reason, raw)
    }

    /// Returns the name of the reason in this vocabulary; `None` where a record holds null.
    #[must_use]
    pub fn spell(&self, vocabulary: Vocabulary) -> Option<String> {
        match vocabulary {
            Vocabulary::FinishReason => self.finish_reason().map(str::to_owned),
            Vocabulary::StopReason => Some(self.stop_reason().to_string()),
            Vocabulary::Endstop
            | Vocabulary::Termination
            | Vocabulary::OpenAi
            | Vocabulary::Anthropic
            | Vocabulary::Gemini
            | Vocabulary::OpenTelemetry
            | Vocabulary::AiSdk
            | Vocabulary::Mcp
            | Vocabulary::Acp => Some(vocabulary.spell(self.reason).to_owned()),
        }
    }
}

/// Reason why a response stopped, in the names of [`Vocabulary::StopReason`].
///
/// The text form is the name of the variant. `Unknown` is followed by the provider's finish reason
/// in parentheses, if there is one.
///
/// ```
/// use endstop::vocabulary::NormalizedStopReason;
///
/// let paused = NormalizedStopReason::Unknown("pause_turn".to_owned());
/// assert_eq!(paused.to_string(), "Unknown(pause_turn)");
/// assert_eq!("Unknown(pause_turn)".parse(), Ok(paused));
/// assert_eq!("MaxTokens".parse(), Ok(NormalizedStopReason::MaxTokens));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NormalizedStopReason {
    /// The model ended its turn.
    EndTurn,
    /// The response contains tool calls to run.
    ToolCall,
    /// The limit on output tokens was reached.
    MaxTokens,
    /// The context window is full.
    ContextWindowExceeded,
    /// The answer was refused, filtered or blocked.
    SafetyBlocked,
    /// The caller or an operator cancelled the request.
    Cancelled,
    /// Any other reason, with the provider's finish reason; empty if there is none.
    Unknown(String),
}

impl NormalizedStopReason {
    /// Returns the stop reason for one of our reasons. `Unknown` keeps the provider's finish
    /// reason.
    #[must_use]
    pub fn new(reason: Reason, raw: &str) -> Self {
        let word = Vocabulary::StopReason.spell(reason);
        Self::named(word).unwrap_or_else(|| Self::Unknown(raw.to_owned()))
    }

    fn named(word: &str) -> Option<Self> {
        let named = [
            Self::EndTurn,
            Self::ToolCall,
            Self::MaxTokens,
            Self::ContextWindowExceeded,
            Self::SafetyBlocked,
            Self::Cancelled,
        ];
        named.into_iter().find(|reason| reason.name() == word)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::EndTurn => "EndTurn",
            Self::ToolCall => "ToolCall",
            Self::MaxTokens => "MaxTokens",
            Self::ContextWindowExceeded => "ContextWindowExceeded",
            Self::SafetyBlocked => "SafetyBlocked",
            Self::Cancelled => "Cancelled",
            Self::Unknown(_) => "Unknown",
        }
    }
}

impl fmt::Display for NormalizedStopReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())?;
        match self {
            Self::Unknown(raw) if !raw.is_empty() => write!(out, "({raw})"),
            Self::Unknown(_)
            | Self::EndTurn
            | Self::ToolCall
            | Self::MaxTokens
            | Self::ContextWindowExceeded
            | Self::SafetyBlocked
            | Self::Cancelled => Ok(()),
        }
    }
}

impl FromStr for NormalizedStopReason {
    type Err = UnknownStopReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || {
            let rest = text.strip_prefix("Unknown")?;
            let raw =
                if rest.is_empty() { "" } else { rest.strip_prefix('(')?.strip_suffix(')')? };
            Some(Self::Unknown(raw.to_owned()))
        };
        let found = Self::named(text).or_else(unknown);
        found.ok_or_else(|| UnknownStopReason(clean(text, WORD_CAP)))
    }
}

/// Error for text that is not a stop reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStopReason(String);

impl fmt::Display for UnknownStopReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "invalid stop reason `{}`: expected EndTurn, ToolCall, MaxTokens, \
             ContextWindowExceeded, SafetyBlocked, Cancelled, Unknown, or Unknown(<finish reason>)",
            self.0
        )
    }
}

impl std::error::Error for UnknownStopReason {}

impl Serialize for NormalizedStopReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NormalizedStopReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Returns the stored `finish_reason` for a provider's finish reason, from the same tables that
/// readers use. `None` stays `None`, and an unknown finish reason gives `other`.
///
/// ```
/// use endstop::vocabulary::normalize_finish_reason;
///
/// assert_eq!(normalize_finish_reason(Some("end_turn"), "anthropic"), Some("stop"));
/// assert_eq!(normalize_finish_reason(Some("MAX_TOKENS"), "google"), Some("length"));
/// assert_eq!(normalize_finish_reason(Some("frobnicated"), "openai"), Some("other"));
/// assert_eq!(normalize_finish_reason(None, "openai"), None);
/// ```
#[must_use]
pub fn normalize_finish_reason(word: Option<&str>, provider: &str) -> Option<&'static str> {
    Registry::default().normalize_finish_reason(word, provider)
}

impl Registry {
    /// Returns the same as [`normalize_finish_reason`], with the registered providers and finish
    /// reasons.
    #[must_use]
    pub fn normalize_finish_reason(
        &self,
        word: Option<&str>,
        provider: &str,
    ) -> Option<&'static str> {
        let word = word.filter(|word| !word.is_empty() && *word != "null")?;
        let reason = match self.meaning(provider, word) {
            Meaning::Known(reason) | Meaning::Vague(reason) => reason,
            Meaning::Nothing | Meaning::Unknown => Reason::Unknown,
        };
        Some(Vocabulary::FinishReason.spell(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_row_and_names_lead_back() {
        for reason in Reason::ALL {
            assert!(TABLE.iter().any(|(known, _)| *known == reason));
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }

    /// In every vocabulary, a name of a success stands for no other reason.
    #[test]
    fn only_success_is_spelled_as_success() {
        for vocabulary in VOCABULARIES {
            for good in Reason::ALL.into_iter().filter(|reason| reason.is_success()) {
                for bad in Reason::ALL.into_iter().filter(|reason| !reason.is_success()) {
                    assert_ne!(
                        vocabulary.spell(good),
                        vocabulary.spell(bad),
                        "{vocabulary:?} {good:?} {bad:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_word_reads_back_where_it_stands_for_one_reason() {
        for vocabulary in VOCABULARIES {
            for reason in Reason::ALL {
                let word = vocabulary.spell(reason);
                let same = Reason::ALL
                    .into_iter()
                    .filter(|other| vocabulary.spell(*other) == word)
                    .count();
                assert_eq!(
                    vocabulary.read(word),
                    (same == 1).then_some(reason),
                    "{vocabulary:?} {word}"
                );
            }
        }
        assert_eq!(Vocabulary::Anthropic.read("pause_turn"), Some(Reason::Paused));
        assert_eq!(Vocabulary::FinishReason.read("length"), None);
        assert_eq!(Vocabulary::Mcp.read("frobnicated"), None);
    }

    #[test]
    fn stop_reasons_are_the_column_and_read_back() {
        for reason in Reason::ALL {
            let word = Vocabulary::StopReason.spell(reason);
            let stop = NormalizedStopReason::new(reason, "raw (1)");
            let text = stop.to_string();
            let want = if word == "Unknown" { "Unknown(raw (1))" } else { word };
            assert_eq!((text.as_str(), text.parse()), (want, Ok(stop.clone())));
            let json = serde_json::to_value(&stop).unwrap();
            assert_eq!(json, text.as_str());
            assert_eq!(serde_json::from_value::<NormalizedStopReason>(json).unwrap(), stop);
        }
        let nothing = NormalizedStopReason::new(Reason::Cut, "");
        assert_eq!((nothing.to_string(), "Unknown".parse()), ("Unknown".to_owned(), Ok(nothing)));
        for wrong in ["", "endturn", "Unknown(", "Unknown x", "Known(x)"] {
            let error = wrong.parse::<NormalizedStopReason>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid stop reason `{wrong}`: expected")));
            assert!(serde_json::from_value::<NormalizedStopReason>(wrong.into()).is_err());
        }
    }

    #[test]
    fn the_columns_of_the_design_are_kept() {
        let row = |reason| {
            let spell = |vocabulary: Vocabulary| vocabulary.spell(reason);
            (
                spell(Vocabulary::FinishReason),
                spell(Vocabulary::Termination),
                spell(Vocabulary::StopReason),
            )
        };
        assert_eq!(row(Reason::ToolCall), ("tool_calls", "natural_completion", "ToolCall"));
        assert_eq!(row(Reason::Paused), ("other", "unknown", "Unknown"));
        assert_eq!(
            row(Reason::ContextLimit),
            ("length", "token_limit_reached", "ContextWindowExceeded")
        );
        assert_eq!(row(Reason::Recitation), ("recitation", "content_filtered", "SafetyBlocked"));
        assert_eq!(row(Reason::TimedOut), ("timeout", "error_termination", "Unknown"));
        assert_eq!(row(Reason::Cancelled), ("cancel", "error_termination", "Cancelled"));
        assert_eq!(row(Reason::Cut), ("error", "error_termination", "Unknown"));
    }

    #[test]
    fn words_are_normalised_by_the_tables_of_their_provider() {
        let check = |word, provider, want| {
            assert_eq!(normalize_finish_reason(word, provider), want, "{word:?}");
        };
        check(Some("stop"), "openai", Some("stop"));
        check(Some("completed"), "openai", Some("stop"));
        check(Some("max_output_tokens"), "openai", Some("length"));
        check(Some("model_length"), "mistral", Some("length"));
        check(Some("10"), "google", Some("error"));
        check(Some("10"), "vertex", Some("content_filter"));
        check(Some("FINISH_REASON_UNSPECIFIED"), "google", Some("other"));
        check(Some("eos"), "acme", Some("stop"));
        check(Some(""), "openai", None);
        check(Some("null"), "openai", None);
    }
}
