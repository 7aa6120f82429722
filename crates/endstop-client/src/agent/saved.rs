//! Saved runs: an agent's run can go on in another process.

use std::path::Path;
use std::sync::Arc;

use endstop::{Head, Reader, RequestInfo, TransportEnd};
use endstop_turn::continuation::{EndedResponse, Todo, TurnInput};
use serde::{Deserialize, Serialize};

use super::{Agency, Agent, Progress, Run, Steering};
use crate::error::Error;
use crate::queue::Queue;
use crate::turn::{Driver, TurnState};

/// Format of saved runs.
const FORMAT: u32 = 1;

/// A run between two steps, as JSON.
///
/// It contains the conversation. Tool calls in it are not proven: the rule that lets them run is asked
/// again when the run goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedRun {
    format: u32,
    state: TurnState,
    progress: Progress,
}

impl SavedRun {
    /// Reads a saved run.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not a saved run.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| file(path, &error))?;
        let saved: Self = serde_json::from_str(&text)
            .map_err(|error| Error::Saved { message: format!("{}: {error}", path.display()) })?;
        if saved.format == FORMAT {
            return Ok(saved);
        }
        let message = format!("format {} is not known: expected {FORMAT}", saved.format);
        Err(Error::Saved { message })
    }

    /// Reports whether the run is over, so that nothing remains to be done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.machine.is_over()
    }
}

fn file(path: &Path, error: &std::io::Error) -> Error {
    Error::File { path: path.display().to_string(), message: error.to_string() }
}

impl Agency {
    /// Saves the run, if it is to be saved. Returns false if it cannot be saved. The run goes on then, but
    /// it starts no tool.
    pub(crate) fn checkpoint(&self, state: &TurnState) -> bool {
        let Some(path) = &self.save_to else { return true };
        let saved =
            SavedRun { format: FORMAT, state: state.clone(), progress: self.progress.clone() };
        let written = write(path, &saved);
        if let Err(error) = &written {
            tracing::error!(target: "endstop", "the run cannot be saved: {error}");
        }
        written.is_ok()
    }
}

/// Replaces the file as a whole, so that a process that dies leaves the old or the new one.
fn write(path: &Path, saved: &SavedRun) -> Result<(), Error> {
    use std::io::Write as _;
    let text =
        serde_json::to_vec(saved).map_err(|error| Error::Saved { message: error.to_string() })?;
    let part = path.with_extension("part");
    let written = std::fs::File::create(&part).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_data()?;
        std::fs::rename(&part, path)
    });
    written.map_err(|error| file(path, &error))
}

impl Agent {
    /// Goes on with a saved run. A request that was under way is asked again, if the policy allows it.
    /// A tool call whose result is not known is reported to the model as interrupted, unless its tool
    /// is idempotent.
    ///
    /// # Errors
    /// Fails if the request cannot be made, as in [`Agent::run`].
    pub fn resume(self, saved: SavedRun) -> Result<Run, Error> {
        let SavedRun { state, progress, .. } = saved;
        let target = self.client.target(&state.model)?;
        let (tools, policy) = self.prepared()?;
        let queue = Queue::default();
        let steering = Steering::default();
        let agency = self.agency(tools, steering.clone(), Some(progress));
        let inner = self.client.inner();
        let now_ms = inner.clock.now_ms();
        let mut state = state;
        let input = match &state.todo {
            Todo::Send(_) => {
                let reader =
                    Reader::new(target.wire.clone(), Head::default(), RequestInfo::default());
                let ending = reader.finish(TransportEnd::Interrupted, |_| {});
                Some(EndedResponse::new(ending, endstop_turn::policy::Piece::default()))
            }
            Todo::Prepare(_)
            | Todo::Wait { .. }
            | Todo::RunTools
            | Todo::Finish(_)
            | Todo::Ignored => None,
        };
        let step = match &input {
            Some(ended) => {
                let (machine, step) = state.machine.clone().step(TurnInput::Ended(ended), now_ms);
                state.machine = machine;
                state.todo = step.todo.clone();
                step
            }
            None => endstop_turn::continuation::Step::resumed(state.todo.clone()),
        };
        let driver = Driver {
            inner,
            policy: Arc::new(policy),
            target,
            state,
            queue: Some(queue.clone()),
            headers: self.headers,
            agency: Some(agency),
        };
        Ok(Run::new(queue, steering, driver, step))
    }
}
