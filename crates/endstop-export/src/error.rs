//! Errors of exporters: each says what happened, what it means and what to do.

use std::time::Duration;

/// Error of an exporter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong.
    #[error("{name}: {message}")]
    Setting {
        /// Name of the setting.
        name: String,
        /// Mistake in it.
        message: String,
    },
    /// The endpoint cannot be reached, or asks to wait: the same may work later, and nothing is lost by then.
    #[error("{exporter} cannot be reached now: {why}")]
    Unavailable {
        /// The exporter and its address.
        exporter: String,
        /// Its message.
        why: String,
        /// Time that it asks to wait.
        wait: Option<Duration>,
    },
    /// The endpoint refuses, and would refuse again.
    #[error("{exporter} refuses: {why}")]
    Refused {
        /// The exporter and its address.
        exporter: String,
        /// Its message, and advice.
        why: String,
    },
}

impl Error {
    /// Returns whether the same may work later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// Says that a setting is wrong.
pub(crate) fn wrong(name: &str, message: impl Into<String>) -> Error {
    Error::Setting { name: name.to_owned(), message: message.into() }
}
