//! The log: a bounded queue, and one thread that formats its entries as `tracing` events and writes them.
//!
//! Nothing that answers a request writes to standard error itself: its reader may stop reading, and a
//! full pipe blocks the writer. When the queue is full, lines are dropped and counted, and the count
//! is written as soon as there is room again.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endstop::Record;
use endstop_store::view::EndingView;
use time::OffsetDateTime;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, Subscriber as Formatter};
use tracing_subscriber::registry::LookupSpan;

use super::{EndingReport, GuardAction, now};
use crate::config::Log;

/// Lines that may wait to be written.
const QUEUE: usize = 4096;

/// Writes lines in the background and never blocks its callers.
#[derive(Debug)]
pub(crate) struct LogWriter {
    queue: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
    format: Arc<Format>,
}

enum Entry {
    Notice {
        at: u64,
        level: Level,
        message: String,
    },
    Ending(Arc<EndingReport>),
    /// Asks for a message when everything before it is written.
    Flush(SyncSender<()>),
}

/// Current format, which a reload may change.
#[derive(Debug)]
struct Format(AtomicU8);

impl Format {
    const ALL: [Log; 3] = [Log::Human, Log::Json, Log::Off];

    fn new(format: Log) -> Self {
        let new = Self(AtomicU8::new(0));
        new.set(format);
        new
    }

    fn set(&self, format: Log) {
        let index = Self::ALL.iter().position(|known| *known == format).unwrap_or_default();
        self.0.store(u8::try_from(index).unwrap_or_default(), Ordering::Relaxed);
    }

    fn get(&self) -> Log {
        let index = usize::from(self.0.load(Ordering::Relaxed));
        Self::ALL.get(index).copied().unwrap_or_default()
    }
}

impl LogWriter {
    /// Creates a log on standard error.
    pub(crate) fn stderr(format: Log) -> Self {
        Self::new(std::io::stderr(), format)
    }

    fn new(out: impl Write + Send + 'static, format: Log) -> Self {
        let (queue, entries) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let format = Arc::new(Format::new(format));
        let (counted, current) = (dropped.clone(), format.clone());
        let writer = std::thread::Builder::new().name("endstop-log".to_owned());
        // Without its thread the queue is closed, and every line counts as dropped.
        let _ = writer.spawn(move || write_all(&entries, out, &counted, &current));
        Self { queue, dropped, format }
    }

    /// Changes the format of lines that are not written yet.
    pub(crate) fn set_format(&self, format: Log) {
        self.format.set(format);
    }

    /// Takes a line about the gateway itself; drops and counts it if the queue is full.
    pub(crate) fn notice(&self, level: Level, message: String) {
        self.send(Entry::Notice { at: now(), level, message });
    }

    /// Takes an ending, unless the log is off; drops and counts it if the queue is full.
    pub(crate) fn ending(&self, ended: &Arc<EndingReport>) {
        if !self.is_off() {
            self.send(Entry::Ending(ended.clone()));
        }
    }

    /// Reports whether endings are not logged.
    pub(crate) fn is_off(&self) -> bool {
        self.format.get() == Log::Off
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

fn write_all(
    entries: &Receiver<Entry>,
    out: impl Write + Send + 'static,
    dropped: &AtomicU64,
    format: &Arc<Format>,
) {
    let lines = Formatter::builder()
        .with_max_level(Level::INFO)
        // A log that cannot be written must not stop the gateway, nor be written about.
        .log_internal_errors(false)
        .event_format(Lines(format.clone()))
        .with_writer(Mutex::new(out))
        .finish();
    tracing::dispatcher::with_default(&Dispatch::new(lines), || {
        while let Ok(entry) = entries.recv() {
            match entry {
                Entry::Notice { at, level, message } => emit(level, at, &message, ""),
                Entry::Ending(ended) => write_ending(format.get(), &ended),
                Entry::Flush(done) => {
                    let _ = done.send(());
                }
            }
            let lost = dropped.swap(0, Ordering::Relaxed);
            if lost > 0 {
                emit(Level::WARN, now(), &lost_lines(lost), "");
            }
        }
    });
}

/// Emits a line. `fields` is a JSON object whose fields a line of JSON has too, or empty.
fn emit(level: Level, at: u64, message: &str, fields: &str) {
    match level {
        Level::ERROR => tracing::error!(target: "endstop", at, fields, "{message}"),
        Level::WARN => tracing::warn!(target: "endstop", at, fields, "{message}"),
        Level::INFO | Level::DEBUG | Level::TRACE => {
            tracing::info!(target: "endstop", at, fields, "{message}");
        }
    }
}

fn lost_lines(lines: u64) -> String {
    let lines =
        if lines == 1 { "1 log line was".to_owned() } else { format!("{lines} log lines were") };
    format!("{lines} dropped: standard error is not read fast enough")
}

fn write_ending(format: Log, ended: &EndingReport) {
    let at = ended.kept.created_at.saturating_add(ended.kept.total_us / 1000);
    match format {
        Log::Off => {}
        Log::Human => emit(level(ended.action), at, &human(ended), ""),
        Log::Json => {
            let view = EndingView::from(&ended.kept);
            let fields = serde_json::to_string(&view).unwrap_or_default();
            emit(level(ended.action), at, &explained(ended), &fields);
        }
    }
}

fn level(action: GuardAction) -> Level {
    match action {
        GuardAction::Passed => Level::INFO,
        GuardAction::Warned | GuardAction::Failed | GuardAction::Refused => Level::WARN,
    }
}

/// Returns the line of an ending for people.
pub(crate) fn human(ended: &EndingReport) -> String {
    let kept = &ended.kept;
    let model = format!("{}/{}", kept.upstream, kept.model.as_deref().unwrap_or("-"));
    format!(
        "{:<19} {model:<30} {:<7} {:<7} {:>6} ms  {}  {}",
        kept.reason,
        kept.action,
        statuses(kept),
        kept.total_us / 1000,
        kept.id,
        explained(ended),
    )
}

/// Returns the upstream's status, and the client's if it is another one.
fn statuses(kept: &Record) -> String {
    let word = |status: Option<u16>| status.map_or("-".to_owned(), |status| status.to_string());
    if kept.status == kept.client_status {
        return word(kept.status);
    }
    format!("{}>{}", word(kept.status), word(kept.client_status))
}

/// Returns the explanation of an ending, with the message of the provider's error if it is kept.
fn explained(ended: &EndingReport) -> String {
    let fault = ended.ending.fault.as_ref();
    let message = fault.and_then(|fault| fault.message.as_deref());
    match message {
        Some(message) => format!("{}: {message}", ended.kept.sentence()),
        None => ended.kept.sentence(),
    }
}

/// Formats events: `DATE LEVEL message`, or a JSON object.
struct Lines(Arc<Format>);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        let (level, date) = (*event.metadata().level(), date(line.at));
        match self.0.get() {
            Log::Human | Log::Off => writeln!(out, "{date} {level:<5} {}", escaped(&line.message)),
            Log::Json => {
                let message = serde_json::Value::from(line.message);
                let own = format!(r#""timestamp":"{date}","level":"{level}","message":{message}"#);
                match line.fields.strip_prefix('{').filter(|fields| fields.len() > 1) {
                    Some(fields) => writeln!(out, "{{{own},{fields}"),
                    None => writeln!(out, "{{{own}}}"),
                }
            }
        }
    }
}

/// The fields of an event.
#[derive(Default)]
struct Line {
    at: u64,
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "at" {
            self.at = value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "fields" => self.fields = value.to_owned(),
            "message" => self.message = value.to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // The message is made of format arguments, whose debug form is the text.
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

/// Escapes control characters, which a terminal would obey.
fn escaped(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for char in message.chars() {
        if char.is_control() {
            text.extend(char.escape_default());
        } else {
            text.push(char);
        }
    }
    text
}

/// Returns a date in the form of RFC 3339, in UTC.
pub(crate) fn date(milliseconds: u64) -> String {
    let nanoseconds = i128::from(milliseconds) * 1_000_000;
    let date = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second, ms) = date.time().as_hms_milli();
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
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
            log.notice(Level::INFO, format!("line {number}"));
        }
        log.flush(Duration::ZERO);
        drop(go);
        while !written.lock().unwrap().contains("dropped") {
            log.flush(Duration::from_secs(30));
        }
        log.flush(Duration::from_secs(30));
        let written = written.lock().unwrap();
        let messages = || written.lines().map(|line| line.split_once("  ").unwrap().1);
        let dropped = written.lines().filter(|line| line.contains("dropped"));
        let lost: usize = dropped
            .map(|line| line.split("WARN  ").nth(1).unwrap().split(' ').next().unwrap())
            .map(|count| count.parse::<usize>().unwrap())
            .sum();
        let kept = messages().filter(|line| line.starts_with("line ")).count();
        assert!(lost > 0 && messages().next() == Some("line 0"), "{lost}");
        assert_eq!(kept + lost, lines);
    }

    fn written(format: Log, write: impl FnOnce(&LogWriter)) -> String {
        let (go, wait) = channel();
        drop(go);
        let written = Arc::new(Mutex::new(String::new()));
        let log = LogWriter::new(Pipe { go: wait, written: written.clone() }, format);
        write(&log);
        log.flush(Duration::from_secs(30));
        written.lock().unwrap().clone()
    }

    #[test]
    fn lines_have_a_date_and_no_control_characters() {
        assert_eq!(date(1_794_913_019_042), "2026-11-17T10:56:59.042Z");
        let message = "a\u{1b}[31mb\r\nc \"d\"";
        let text = written(Log::Human, |log| log.notice(Level::WARN, message.to_owned()));
        assert!(text.ends_with("Z WARN  a\\u{1b}[31mb\\r\\nc \"d\"\n"), "{text}");
        let text = written(Log::Json, |log| log.notice(Level::WARN, message.to_owned()));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &message.into()));
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1, "{text}");
    }

    #[test]
    fn a_changed_format_holds_for_the_next_line() {
        let text = written(Log::Human, |log| {
            log.notice(Level::INFO, "first".to_owned());
            log.flush(Duration::from_secs(30));
            log.set_format(Log::Json);
            log.notice(Level::INFO, "second".to_owned());
        });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("Z INFO  first"), "{text}");
        assert!(lines[1].starts_with('{') && lines[1].contains("\"second\""), "{text}");
    }
}
