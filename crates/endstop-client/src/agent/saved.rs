//! Saved runs: an agent's run can go on in another process.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// Number of times that the run was saved, so that an older copy of it cannot go on.
    #[serde(default)]
    generation: u64,
    /// File in which the run goes on, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved_to: Option<PathBuf>,
    state: TurnState,
    progress: Progress,
    /// File that it was read from.
    #[serde(skip)]
    path: Option<PathBuf>,
}

impl SavedRun {
    /// Reads a saved run.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not a saved run.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| file(path, &error))?;
        let mut saved: Self = serde_json::from_str(&text)
            .map_err(|error| Error::Saved { message: format!("{}: {error}", path.display()) })?;
        if saved.format == FORMAT {
            saved.path = Some(path.to_owned());
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

/// The file of a run that is under way. No other process can go on with the run while this exists; a process
/// that dies gives it up.
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    generation: u64,
    /// Locked until it is dropped. The file of the run itself is replaced at every step.
    _lock: File,
}

impl RunFile {
    /// Claims the file for a new run.
    pub(crate) fn begin(path: PathBuf) -> Result<Self, Error> {
        let _lock = locked(&path)?;
        // A copy of an earlier run in this file cannot go on.
        let generation = SavedRun::read(&path).map_or(0, |saved| saved.generation);
        Ok(Self { path, generation, _lock })
    }

    /// Claims the file of a saved run, and the file that the run is to be moved to, if one is given. Nothing is
    /// written yet.
    fn resume(saved: &SavedRun, to: Option<PathBuf>) -> Result<(Self, Option<OldFile>), Error> {
        let wrong = |message: String| Error::Saved { message };
        let Some(from) = &saved.path else {
            // A run that is not in a file cannot be claimed, so that it must be saved before a tool starts.
            let to = to.ok_or_else(|| {
                wrong(
                    "it is not from a file: set `Agent::save_to`, so that no call runs twice"
                        .to_owned(),
                )
            })?;
            return Ok((Self::begin(to)?, None));
        };
        let mut claimed = Self { path: from.clone(), generation: 0, _lock: locked(from)? };
        let now = SavedRun::read(from)?;
        if let Some(other) = &now.moved_to {
            return Err(wrong(format!("{}: it goes on in {}", from.display(), other.display())));
        }
        if now.generation != saved.generation {
            let message = "it has gone on since it was read: read it again";
            return Err(wrong(format!("{}: {message}", from.display())));
        }
        claimed.generation = now.generation;
        let Some(to) = to.filter(|to| to != from) else { return Ok((claimed, None)) };
        Ok((Self::begin(to)?, Some(OldFile { claimed, saved: now })))
    }
}

/// The file of a run that is to be moved to another one.
#[derive(Debug)]
struct OldFile {
    claimed: RunFile,
    saved: SavedRun,
}

impl OldFile {
    /// Moves the run. The old file is marked last: the run can go on from one of the files, whatever fails.
    fn move_to(self, file: &mut RunFile) -> Result<(), Error> {
        let Self { claimed, saved } = self;
        let generation = file.generation.saturating_add(1);
        write(&file.path, &SavedRun { generation, ..saved.clone() })?;
        file.generation = generation;
        let to = std::path::absolute(&file.path).unwrap_or_else(|_| file.path.clone());
        write(&claimed.path, &SavedRun { moved_to: Some(to), ..saved }).inspect_err(|_| {
            // The old file can go on, so that the new one must not.
            let _removed = std::fs::remove_file(&file.path);
        })
    }
}

/// Locks the run of this file.
fn locked(path: &Path) -> Result<File, Error> {
    let lock = beside(path, ".lock");
    let opened = File::options().create(true).truncate(false).write(true).open(&lock);
    let opened = opened.map_err(|error| file(&lock, &error))?;
    match try_lock(&opened) {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => Err(Error::RunBusy { path: path.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(file(&lock, &error)),
    }
}

/// Returns the path of a file that belongs to the one of a run: its whole name and this end.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Locks a file. A run that has just ended lets go a moment later, and so does a child process of this one, which
/// holds a copy of the file until its program starts.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..20 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(25)),
            locked => return locked,
        }
    }
    file.try_lock()
}

impl Agency {
    /// Saves the run, if it is to be saved. Returns false if it cannot be saved. The run goes on then, but
    /// it starts no tool.
    pub(crate) fn checkpoint(&mut self, state: &TurnState) -> bool {
        self.progress.steering = self.steering.waiting();
        let Some(file) = &mut self.file else { return true };
        let saved = SavedRun {
            format: FORMAT,
            generation: file.generation.saturating_add(1),
            moved_to: None,
            state: state.clone(),
            progress: self.progress.clone(),
            path: None,
        };
        let written = write(&file.path, &saved);
        match &written {
            Ok(()) => file.generation = saved.generation,
            Err(error) => tracing::error!(target: "endstop", "the run cannot be saved: {error}"),
        }
        written.is_ok()
    }
}

/// Replaces the file as a whole, so that a process that dies leaves the old or the new one.
fn write(path: &Path, saved: &SavedRun) -> Result<(), Error> {
    use std::io::Write as _;
    let text =
        serde_json::to_vec(saved).map_err(|error| Error::Saved { message: error.to_string() })?;
    let part = beside(path, ".part");
    let written = File::create(&part).and_then(|mut file| {
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
    /// The run is saved to the file that it was read from, or else to that of [`Agent::save_to`]. It can go on
    /// only once at a time, and not from an older copy.
    ///
    /// # Errors
    /// Fails if the request cannot be made, as in [`Agent::run`], if another process or task goes on with the
    /// run, or if it has gone on since it was read.
    pub fn resume(self, saved: SavedRun) -> Result<Run, Error> {
        let (mut file, old) = RunFile::resume(&saved, self.save_to.clone())?;
        let SavedRun { mut state, progress, .. } = saved;
        let ready = self.prepared(&state.model)?;
        if let Some(old) = old {
            old.move_to(&mut file)?;
        }
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
        Ok(self.start(ready, state, progress, step, Some(file)))
    }
}
