//! The log: a bounded queue and one thread that writes it out.
//!
//! Nothing that answers a request writes to standard error itself: whoever reads it may stop reading,
//! and a full pipe blocks its writer. When the queue is full, lines are dropped and counted, and the
//! count is written as soon as there is room again.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Lines that may wait to be written.
const QUEUE: usize = 4096;

/// Writes lines in the background and never blocks its callers.
#[derive(Debug)]
pub(crate) struct LogWriter {
    queue: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
}

enum Entry {
    Line(String),
    /// Everything before it is written: tell so.
    Flush(SyncSender<()>),
}

impl LogWriter {
    /// Writes to standard error.
    pub(crate) fn stderr(dropped_line: fn(u64) -> String) -> Self {
        Self::new(std::io::stderr(), dropped_line)
    }

    /// Writes to `out`; `dropped_line` makes the line that tells how many were dropped.
    fn new(out: impl Write + Send + 'static, dropped_line: fn(u64) -> String) -> Self {
        let (queue, entries) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = dropped.clone();
        let writer = std::thread::Builder::new().name("endstop-log".to_owned());
        // Without its thread the queue is closed, and every line counts as dropped.
        let _ = writer.spawn(move || write_all(&entries, out, &counted, dropped_line));
        Self { queue, dropped }
    }

    /// Takes a line, with its line end; drops and counts it if the queue is full.
    pub(crate) fn write(&self, line: String) {
        match self.queue.try_send(Entry::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until all lines so far are written, but no longer than `most`.
    pub(crate) fn flush(&self, most: Duration) {
        let (done, written) = sync_channel(1);
        // A full queue has a reader that does not read: waiting for it would not help.
        if self.queue.try_send(Entry::Flush(done)).is_ok() {
            let _ = written.recv_timeout(most);
        }
    }
}

fn write_all(
    entries: &Receiver<Entry>,
    mut out: impl Write,
    dropped: &AtomicU64,
    dropped_line: fn(u64) -> String,
) {
    while let Ok(entry) = entries.recv() {
        // A log that cannot be written must not stop what it logs.
        match entry {
            Entry::Line(line) => {
                let _ = out.write_all(line.as_bytes());
            }
            Entry::Flush(done) => {
                let _ = done.send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = out.write_all(dropped_line(lost).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    /// Blocks in its first write until it is let go, as a full pipe does.
    struct Pipe {
        go: Receiver<()>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // It goes on for good once the sender is gone.
            let _ = self.go.recv();
            self.written.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_blocks_nobody() {
        let (go, wait) = channel();
        let written = Arc::new(Mutex::new(String::new()));
        let pipe = Pipe { go: wait, written: written.clone() };
        let log = LogWriter::new(pipe, |lost| format!("{lost} lost\n"));
        let lines = QUEUE + 1000;
        for number in 0..lines {
            log.write(format!("line {number}\n"));
        }
        log.flush(Duration::ZERO);
        drop(go);
        while !written.lock().unwrap().contains("lost") {
            log.flush(Duration::from_secs(30));
        }
        log.flush(Duration::from_secs(30));
        let written = written.lock().unwrap();
        let lost: usize = written
            .lines()
            .filter_map(|line| line.strip_suffix(" lost"))
            .map(|count| count.parse::<usize>().unwrap())
            .sum();
        let kept = written.lines().filter(|line| line.starts_with("line ")).count();
        assert!(lost > 0 && written.starts_with("line 0\n"), "{lost}");
        assert_eq!(kept + lost, lines);
    }
}
