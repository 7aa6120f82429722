//! Events of a turn that is followed as it happens.

use endstop::signal::TerminationSignal;
use endstop_turn::continuation::TurnEvent;

#[cfg(feature = "agent")]
use crate::agent::AgentReport;
use crate::response::ChatResponse;

/// An event of a turn that is followed as it happens.
///
/// The last one is [`RunEvent::Ended`], or `RunEvent::Report` for an agent, exactly once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunEvent {
    /// New text of the answer. Text that a continuation repeats is left out.
    Text(String),
    /// Text that came does not belong to the answer: another model is asked, or a request is repeated.
    TextDiscarded {
        /// Length of the text that still belongs to the answer, in bytes, as `String::truncate` takes it.
        kept: usize,
    },
    /// New text of the reasoning.
    Reasoning(String),
    /// A tool call begins. It may never be completed, and must not be run from here.
    CallStarted {
        /// Number of the call in the response.
        call: u32,
        /// Name of the tool; empty if it comes later.
        name: String,
    },
    /// A piece of the arguments of a tool call.
    CallDelta {
        /// Number of the call in the response.
        call: u32,
        /// New text.
        arguments: String,
    },
    /// The response has said how it ends. The ending may still turn out worse when it closes.
    Signal(Box<TerminationSignal>),
    /// A step of the turn: a continuation, a retry, a repair.
    Turn(Box<TurnEvent>),
    /// A tool begins to run.
    ToolStarted {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// Arguments, in JSON.
        arguments: String,
    },
    /// A tool has run, or could not.
    ToolFinished {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// Result for the model.
        content: String,
        /// Whether the tool failed.
        is_error: bool,
    },
    /// The end of a [`ChatStream`](crate::ChatStream).
    Ended(Box<ChatResponse>),
    /// The end of an agent's run.
    #[cfg(feature = "agent")]
    Report(Box<AgentReport>),
}

impl RunEvent {
    /// Returns how the response ends, if this event says so.
    #[must_use]
    pub fn signal(&self) -> Option<&TerminationSignal> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::Ended(response) => Some(&response.signal),
            #[cfg(feature = "agent")]
            Self::Report(report) => Some(&report.response.signal),
            Self::Text(_)
            | Self::TextDiscarded { .. }
            | Self::Reasoning(_)
            | Self::CallStarted { .. }
            | Self::CallDelta { .. }
            | Self::Turn(_)
            | Self::ToolStarted { .. }
            | Self::ToolFinished { .. } => None,
        }
    }

    /// Reports whether the response is over with this event.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.signal().is_some_and(|signal| signal.should_terminate)
    }
}
