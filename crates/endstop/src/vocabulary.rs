//! The one table that spells our reasons in the words of others.
//!
//! Records, signals and reports read from here; no other file holds a second table.

use crate::ending::{Ending, Reason};

/// One reason in every vocabulary that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// Ours, in snake case.
    pub name: &'static str,
    /// The stored `finish_reason`, for analytics.
    pub finish_reason: &'static str,
    /// The termination word of the signal.
    pub termination: &'static str,
    /// The stop-reason word; `Unknown` is followed by the raw word in brackets.
    pub stop_reason: &'static str,
}

impl Reason {
    /// This reason in every vocabulary.
    #[must_use]
    pub fn spelling(self) -> Spelling {
        let (name, finish_reason, termination, stop_reason) = match self {
            Self::Complete => ("complete", "stop", "natural_completion", "EndTurn"),
            Self::StopSequence => ("stop_sequence", "stop", "stop_sequence", "EndTurn"),
            Self::ToolCall => ("tool_call", "tool_calls", "natural_completion", "ToolCall"),
            Self::Paused => ("paused", "other", "unknown", "Unknown"),
            Self::OutputLimit => ("output_limit", "length", "token_limit_reached", "MaxTokens"),
            Self::ContextLimit => {
                ("context_limit", "length", "token_limit_reached", "ContextWindowExceeded")
            }
            Self::Refused => ("refused", "content_filter", "content_filtered", "SafetyBlocked"),
            Self::Filtered => ("filtered", "content_filter", "content_filtered", "SafetyBlocked"),
            Self::Safety => ("safety", "safety", "content_filtered", "SafetyBlocked"),
            Self::Recitation => ("recitation", "recitation", "content_filtered", "SafetyBlocked"),
            Self::MalformedToolCall => {
                ("malformed_tool_call", "error", "error_termination", "Unknown")
            }
            Self::Failed => ("failed", "error", "error_termination", "Unknown"),
            Self::TimedOut => ("timed_out", "timeout", "error_termination", "Unknown"),
            Self::Cancelled => ("cancelled", "cancel", "error_termination", "Cancelled"),
            Self::Cut => ("cut", "error", "error_termination", "Unknown"),
            Self::Unknown => ("unknown", "other", "unknown", "Unknown"),
        };
        Spelling { name, finish_reason, termination, stop_reason }
    }

    /// Our own name for it, in snake case.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spelling().name
    }

    /// The reason of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl Ending {
    /// The stored `finish_reason`: null where nothing was said and nothing went wrong.
    #[must_use]
    pub fn finish_reason(&self) -> Option<&'static str> {
        let unsaid = self.reason == Reason::Unknown && (self.said.is_none() || !self.over);
        (!unsaid).then(|| self.reason.spelling().finish_reason)
    }

    /// The stop-reason word, with the raw word where we have none of our own.
    #[must_use]
    pub fn stop_reason(&self) -> String {
        match self.reason.spelling().stop_reason {
            "Unknown" => {
                let raw = self.said.as_ref().map_or("", |said| said.word.as_str());
                format!("Unknown({raw})")
            }
            word => word.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }

    #[test]
    fn only_success_is_spelled_stop_or_tool_calls() {
        for reason in Reason::ALL {
            let good = matches!(reason.spelling().finish_reason, "stop" | "tool_calls");
            assert_eq!(good, reason.is_success(), "{reason:?}");
        }
    }
}
