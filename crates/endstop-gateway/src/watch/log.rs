//! The log: a bounded queue and one thread that formats and writes it.
//!
//! Nothing that answers a request writes to standard error itself: its reader may stop reading, and a
//! full pipe blocks the writer. When the queue is full, lines are dropped and counted, and the count
//! is written as soon as there is room again.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::{Ended, now};
use crate::config::Log;

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
    Ending(Arc<Ended>),
    /// Asks for a message when everything before it is written.
    Flush(SyncSender<()>),
}

impl LogWriter {
    /// Creates a log on standard error.
    pub(crate) fn stderr(format: Log) -> Self {
        Self::new(std::io::stderr(), format)
    }

    fn new(out: impl Write + Send + 'static, format: Log) -> Self {
        let (queue, entries) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = dropped.clone();
        let writer = std::thread::Builder::new().name("endstop-log".to_owned());
        // Without its thread the queue is closed, and every line counts as dropped.
        let _ = writer.spawn(move || write_all(&entries, out, &counted, format));
        Self { queue, dropped }
    }

    /// Takes a line, with its line end; drops and counts it if the queue is full.
    pub(crate) fn line(&self, line: String) {
        self.send(Entry::Line(line));
    }

    /// Takes an ending; drops and counts it if the queue is full.
    pub(crate) fn ending(&self, ended: Arc<Ended>) {
        self.send(Entry::Ending(ended));
    }

    fn send(&self, entry: Entry) {
        match self.queue.try_send(entry) {
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

fn write_all(entries: &Receiver<Entry>, mut out: impl Write, dropped: &AtomicU64, format: Log) {
    while let Ok(entry) = entries.recv() {
        // A log that cannot be written must not stop the gateway.
        match entry {
            Entry::Line(line) => {
                let _ = out.write_all(line.as_bytes());
            }
            Entry::Ending(ended) => {
                let _ = out.write_all(ending(format, &ended).as_bytes());
            }
            Entry::Flush(done) => {
                let _ = done.send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = out.write_all(notice(format, &lost_lines(lost)).as_bytes());
        }
    }
}

/// Returns the line of a notice about the gateway itself.
pub(crate) fn notice(format: Log, what: &str) -> String {
    match format {
        Log::Human | Log::Off => format!("{} {what}\n", clock(now())),
        Log::Json => format!("{}\n", serde_json::json!({ "at": now(), "notice": what })),
    }
}

fn lost_lines(lines: u64) -> String {
    let lines =
        if lines == 1 { "1 log line was".to_owned() } else { format!("{lines} log lines were") };
    format!("endstop: {lines} dropped: standard error is not read fast enough")
}

fn ending(format: Log, ended: &Ended) -> String {
    match format {
        Log::Off => String::new(),
        Log::Human => human(ended),
        Log::Json => serde_json::to_string(ended).map(|json| json + "\n").unwrap_or_default(),
    }
}

fn human(ended: &Ended) -> String {
    let Ended { kept, ending, action } = ended;
    let native = kept.native_finish_reason.as_deref().unwrap_or("-");
    let model = ending.model.as_deref().unwrap_or("-");
    format!(
        "{} {} {}/{} {} {} said={} closed={} {} {}ms {}B {}: {}\n",
        clock(kept.created_at),
        kept.id,
        kept.upstream,
        model,
        kept.status.unwrap_or(0),
        ending.reason.name(),
        native,
        ending.closed.word(),
        action.word(),
        kept.total_us / 1000,
        kept.delivered_bytes,
        ending.confidence.name(),
        ending.sentence,
    )
}

/// Returns the time of day, in UTC.
fn clock(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}Z", seconds % 60, milliseconds % 1000)
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
        let log = LogWriter::new(pipe, Log::Human);
        let lines = QUEUE + 1000;
        for number in 0..lines {
            log.line(format!("line {number}\n"));
        }
        log.flush(Duration::ZERO);
        drop(go);
        while !written.lock().unwrap().contains("dropped") {
            log.flush(Duration::from_secs(30));
        }
        log.flush(Duration::from_secs(30));
        let written = written.lock().unwrap();
        let lost: usize = written
            .lines()
            .filter(|line| line.contains("dropped"))
            .map(|line| line.split(' ').nth(2).unwrap().parse::<usize>().unwrap())
            .sum();
        let kept = written.lines().filter(|line| line.starts_with("line ")).count();
        assert!(lost > 0 && written.starts_with("line 0\n"), "{lost}");
        assert_eq!(kept + lost, lines);
    }
}
