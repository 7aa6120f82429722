//! Writes the log of a SQLite file back into the file, on a thread and connection of its own, so that no
//! batch waits for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// Time between two looks at the size of the log.
const EVERY: Duration = Duration::from_millis(200);
/// The size over which it is written back.
const BYTES: u64 = 4 << 20;

/// A thread that writes the log back until this is dropped.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread; none where there can be none, and then writers write the log back.
    pub(crate) fn start(file: &Path) -> Option<Self> {
        let (stop, stopped) = mpsc::channel();
        let (file, mut log) = (file.to_owned(), file.as_os_str().to_owned());
        log.push("-wal");
        let log = PathBuf::from(log);
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(move || {
            let mut connection = None;
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if fs::metadata(&log).is_ok_and(|log| log.len() > BYTES) {
                    connection = connection.or_else(|| open(&file));
                    connection = connection.filter(|connection| write_back(connection).is_ok());
                }
            }
        });
        Some(Self { stop: Some(stop), thread: Some(thread.ok()?) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told there, and the log is whole without it.
            let _ = thread.join();
        }
    }
}

fn open(file: &Path) -> Option<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).ok()?;
    connection.pragma_update(None, "synchronous", "normal").ok()?;
    Some(connection)
}

fn write_back(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
