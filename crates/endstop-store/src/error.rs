//! Errors of stores: each says what happened, what it means and what to do.

/// Error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not one of a store.
    #[error(
        "invalid store `{url}`: {why}; expected `sqlite:FILE`, `postgres://USER@HOST/DATABASE` or \
         `clickhouse://USER@HOST/DATABASE`"
    )]
    Url {
        /// The address, without its password.
        url: String,
        /// Mistake in it.
        why: String,
    },
    /// The store cannot be reached, or is busy: the same may work later, and nothing is lost by then.
    #[error("{store} cannot be reached now: {why}")]
    Unavailable {
        /// The store, without its password.
        store: String,
        /// Its message.
        why: String,
    },
    /// The store refuses, and would refuse again.
    #[error("{store} refuses: {why}")]
    Refused {
        /// The store, without its password.
        store: String,
        /// Its message, and advice.
        why: String,
    },
    /// The file of the store is damaged: nothing can be stored until it is repaired or replaced.
    #[error("{store} is damaged: {why}")]
    Damaged {
        /// The store.
        store: String,
        /// The cause, and what to do.
        why: String,
    },
    /// The file is of another kind: it was never a store, or its beginning is damaged.
    #[error("{store} cannot be used: {why}")]
    Foreign {
        /// The store.
        store: String,
        /// The cause, and what to do.
        why: String,
    },
    /// This cannot be asked.
    #[error("{0}")]
    Query(String),
    /// A file or a directory.
    #[error("{what}: {source}")]
    Io {
        /// Failed operation, with the file.
        what: String,
        /// Error of the system.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether the same may work later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
