//! Progress of a response after each frame, for gateways that hold back frames.

use crate::ending::Reason;
use crate::facts::{Choice, Facts};

/// Progress of a response after a complete frame.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// Number of bytes of the current chunk up to the end of this frame.
    pub end: usize,
    /// Payload of this frame.
    pub data: &'a [u8],
    pub(crate) facts: &'a Facts,
}

impl Mark<'_> {
    /// Reports whether a tool call has begun.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.facts.has_calls()
    }

    /// Reports whether there were more choices or tool calls than are followed.
    #[must_use]
    pub fn has_excess(&self) -> bool {
        self.facts.excess > 0
    }

    /// Returns the progress of the tool calls of each choice.
    pub fn choices(&self) -> impl Iterator<Item = ChoiceMark> {
        self.facts.choices.iter().map(Choice::mark)
    }

    /// Returns a number that is the same as long as nothing changes in the calls, the finish reasons
    /// and the end marker. [`Mark::choices`] looks at every call; this does not.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.facts.changes
    }

    /// Returns a number that is the same as long as nothing is said about a tool call.
    #[must_use]
    pub fn call_changes(&self) -> u64 {
        self.facts.call_changes
    }

    /// Reports whether a tool call has begun of whose arguments nothing has come. Some clients run it
    /// without arguments if the response ends here.
    #[must_use]
    pub fn has_bare_call(&self) -> bool {
        self.facts.has_bare_call()
    }

    /// Reports whether a frame could not be read that another reader may read: it may hold a tool call.
    #[must_use]
    pub fn has_unreadable(&self) -> bool {
        self.facts.unreadable
    }

    /// Reports whether every finish reason so far says that the provider failed.
    #[must_use]
    pub fn says_failure(&self) -> bool {
        self.facts
            .choices
            .iter()
            .filter_map(|choice| choice.meaning)
            .all(|meaning| meaning.reason() == Reason::Failed)
    }

    /// Returns the number of choices with a finish reason.
    #[must_use]
    pub fn said(&self) -> usize {
        self.facts.choices.iter().filter(|choice| choice.said.is_some()).count()
    }

    /// Reports whether at least one choice has a finish reason.
    #[must_use]
    pub fn has_word(&self) -> bool {
        self.facts.any_said()
    }

    /// Reports whether the end marker has come.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.facts.proven
    }

    /// Reports whether the provider sent an error.
    #[must_use]
    pub fn has_fault(&self) -> bool {
        self.facts.fault.is_some()
    }
}

/// Progress of the tool calls of one choice, for gateways in front of clients that do not wait for
/// the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChoiceMark {
    /// Number of the choice on the wire.
    pub index: u32,
    /// Number of tool calls for the caller that have begun.
    pub begun: u32,
    /// Number of these calls with complete arguments.
    pub whole: u32,
    /// Number of these calls with a closed block, or whose arguments have ended.
    pub closed: u32,
    /// Number of calls that the provider runs itself.
    pub by_provider: u32,
    /// Whether this choice has a finish reason.
    pub said: bool,
}

impl ChoiceMark {
    /// Reports whether a client that does not wait for the end could run a call of this choice, or
    /// take its calls for settled: a call has complete arguments or a closed block, or another
    /// call, the finish reason or the end marker followed it.
    ///
    /// A gateway in front of such clients holds back the first frame after which this is true.
    #[must_use]
    pub fn could_run(&self, is_proven: bool) -> bool {
        let settled = self.whole > 0 || self.closed > 0 || self.begun > 1;
        self.begun > 0 && (settled || self.said || is_proven)
    }
}
