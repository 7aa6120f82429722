//! The one table that spells our reasons in the words of others.
//!
//! Records, signals and reports read from here; no other file holds a second table. Each column is a
//! [`Vocabulary`]; spelling always works, reading back only where a word stands for one reason.

use crate::ending::{Ending, Reason};
use crate::provider;
use crate::verdict::Meaning;

/// Whose words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vocabulary {
    /// Ours, in snake case.
    Endstop,
    /// The stored `finish_reason`, for analytics.
    FinishReason,
    /// The termination word of the signal.
    Termination,
    /// The stop-reason word; `Unknown` is followed by the raw word in brackets.
    StopReason,
    /// Chat completions.
    OpenAi,
    /// Messages.
    Anthropic,
    /// `generateContent`.
    Gemini,
    /// OpenTelemetry's message schema for generative AI.
    OpenTelemetry,
    /// The unified reason of the Vercel AI SDK, version 4 of its provider interface.
    AiSdk,
    /// `stopReason` of the Model Context Protocol's sampling.
    Mcp,
    /// `stopReason` of the Agent Client Protocol.
    Acp,
}

/// The columns of the table, in their order.
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

/// One row a reason, one column a vocabulary. Where a vocabulary has no word of its own, the nearest
/// that is no success stands, and for open ones our own.
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
    /// The column's name in reports and signals.
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

    /// Our reason in these words.
    #[must_use]
    pub fn spell(self, reason: Reason) -> &'static str {
        let column = VOCABULARIES.iter().position(|known| *known == self);
        let row = TABLE.iter().find(|(known, _)| *known == reason);
        row.zip(column)
            .and_then(|((_, words), column)| words.get(column))
            .copied()
            .unwrap_or("unknown")
    }

    /// The reason that a word stands for, where it stands for one alone.
    #[must_use]
    pub fn read(self, word: &str) -> Option<Reason> {
        let mut fits = Reason::ALL.into_iter().filter(|reason| self.spell(*reason) == word);
        fits.next().filter(|_| fits.next().is_none())
    }
}

impl Reason {
    /// Our own name for it, in snake case.
    #[must_use]
    pub fn name(self) -> &'static str {
        Vocabulary::Endstop.spell(self)
    }

    /// The reason of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Vocabulary::Endstop.read(name)
    }
}

impl Ending {
    /// The stored `finish_reason`: null where nothing was said and nothing went wrong.
    #[must_use]
    pub fn finish_reason(&self) -> Option<&'static str> {
        let unsaid = self.reason == Reason::Unknown && (self.said.is_none() || !self.over);
        (!unsaid).then(|| Vocabulary::FinishReason.spell(self.reason))
    }

    /// The stop-reason word, with the raw word where we have none of our own.
    #[must_use]
    pub fn stop_reason(&self) -> String {
        match Vocabulary::StopReason.spell(self.reason) {
            "Unknown" => {
                let raw = self.native().map_or("", |(_, word)| word);
                format!("Unknown({raw})")
            }
            word => word.to_owned(),
        }
    }
}

/// The stored `finish_reason` for a provider's word, by the same tables that readers use. Null stays
/// null, and what is in no table is `other`.
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
    let word = word.filter(|word| !word.is_empty() && *word != "null")?;
    let provider = provider::by_id(provider).unwrap_or(provider::GENERIC);
    let reason = match provider.meaning(word) {
        Meaning::Known(reason) | Meaning::Vague(reason) => reason,
        Meaning::Nothing | Meaning::Unknown => Reason::Unknown,
    };
    Some(Vocabulary::FinishReason.spell(reason))
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

    /// In every vocabulary, a word for success is never spelled for anything else.
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
