//! Progress of a response, frame by frame: what a gate in front of clients goes by.

use crate::facts::{Choice, Facts};

/// How far a response has come when one of its frames is whole.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// How many bytes of the chunk at hand belong to this frame and to those before it.
    pub end: usize,
    pub(crate) facts: &'a Facts,
}

impl Mark<'_> {
    /// A tool call has begun.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.facts.has_calls()
    }

    /// How far the calls of each choice have come.
    pub fn choices(&self) -> impl Iterator<Item = ChoiceMark> {
        self.facts.choices.iter().map(Choice::mark)
    }

    /// A word has come, for one choice at least.
    #[must_use]
    pub fn has_word(&self) -> bool {
        self.facts.any_said()
    }

    /// The proof of the end has come.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.facts.proven
    }

    /// The provider sent an error.
    #[must_use]
    pub fn has_fault(&self) -> bool {
        self.facts.fault.is_some()
    }
}

/// How far the calls of one choice have come: what a gate in front of clients that do not wait for the
/// end goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChoiceMark {
    /// The choice's own number on the wire.
    pub index: u32,
    /// Calls that were begun and that the caller is to run.
    pub begun: u32,
    /// Of those, calls whose arguments are whole.
    pub whole: u32,
    /// Of those, calls whose block is closed.
    pub closed: u32,
    /// Calls that the provider runs itself.
    pub by_provider: u32,
    /// The word for the end of this choice has come.
    pub said: bool,
}
