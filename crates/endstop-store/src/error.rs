//! What can go wrong with a store: what happened, what it means, what to do.

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not one of a store.
    #[error(
        "invalid store `{url}`: {why}; expected `sqlite:FILE` or `postgres://USER@HOST/DATABASE`"
    )]
    Url {
        /// The address, without its password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store cannot be reached, or is busy: the same may work later, and nothing is lost by then.
    #[error("{store} cannot be reached now: {why}")]
    Unavailable {
        /// Which store, without its password.
        store: String,
        /// What it says.
        why: String,
    },
    /// The store refuses, and would refuse again.
    #[error("{store} refuses: {why}")]
    Refused {
        /// Which store, without its password.
        store: String,
        /// What it says, and what to do.
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
        /// What was to be done, with which file.
        what: String,
        /// What the system says.
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
