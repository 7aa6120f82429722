//! Saved runs: an agent's run can go on in another process.

use std::path::Path;

use endstop::{Head, Reader, RequestInfo, TransportEnd};
use endstop_turn::continuation::{EndedResponse, Step, Todo, TurnInput};
use endstop_turn::policy::Piece;
use serde::{Deserialize, Serialize};

use super::{Agency, Agent, Progress, Run};
use crate::error::Error;
use crate::turn::TurnState;

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
        let SavedRun { mut state, progress, .. } = saved;
        let ready = self.prepared(&state.model)?;
        let step = match &state.todo {
            Todo::Send(_) => {
                let wire = ready.target.wire.clone();
                let reader = Reader::new(wire, Head::default(), RequestInfo::default());
                let ending = reader.finish(TransportEnd::Interrupted, |_| {});
                let ended = EndedResponse::new(ending, Piece::default());
                let now_ms = self.client.inner().clock.now_ms();
                let (machine, step) = state.machine.step(TurnInput::Ended(&ended), now_ms);
                state.machine = machine;
                state.todo = step.todo.clone();
                step
            }
            Todo::Prepare(_)
            | Todo::Wait { .. }
            | Todo::RunTools
            | Todo::Finish(_)
            | Todo::Ignored => Step::resumed(state.todo.clone()),
        };
        Ok(self.start(ready, state, progress, step))
    }
}
