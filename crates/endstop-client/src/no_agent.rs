//! In place of the agent loop, in builds without it: nothing runs tools.

use std::time::Duration;

use endstop::tool_call::ToolCall;

use crate::event::RunEvent;
use crate::queue::Queue;
use crate::turn::{ToolsEnd, TurnState};

/// Runs tools. There is none.
pub(crate) enum Agency {}

impl Agency {
    pub(crate) fn checkpoint(&self, _: &TurnState) {
        match *self {}
    }

    pub(crate) fn misfit<'c>(&self, _: &'c [ToolCall]) -> Option<&'c ToolCall> {
        match *self {}
    }

    pub(crate) fn repeats(&mut self, _: &[ToolCall]) -> bool {
        match *self {}
    }

    pub(crate) fn steered(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) async fn run(
        &mut self,
        _: &TurnState,
        _: Option<&Queue<RunEvent>>,
        _: Duration,
    ) -> ToolsEnd {
        match *self {}
    }
}
