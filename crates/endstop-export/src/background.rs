//! An exporter for programs without a gateway: a subscriber with a bounded queue and a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use endstop::Record;
use endstop_turn::observation::{Observation, RecordDropped, Subscriber, TerminationDetected};

use crate::Metrics;
use crate::error::Error;
use crate::exporter::{Exporter, Noted};

/// Records that may wait.
const QUEUE: usize = 4096;
/// Records that are sent at once.
const BATCH: usize = 500;
/// Longest time that a batch may gather.
const LINGER: Duration = Duration::from_secs(1);
/// Attempts to send a batch, and the wait after the first; each next is twice as long.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(200);

/// Sends the records of responses in the background, and counts observations.
///
/// Nothing waits for it: a record for which there is no room, or that cannot be sent in a few attempts, is dropped and
/// counted.
///
/// ```no_run
/// use endstop_export::Background;
///
/// # fn main() -> Result<(), endstop_export::Error> {
/// // The token and the dataset come from AXIOM_TOKEN and AXIOM_DATASET.
/// let axiom = Background::open("axiom:")?;
/// // let client = Client::builder().env().subscriber(axiom.clone()).build()?;
/// axiom.flush(std::time::Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Background {
    queue: SyncSender<Work>,
    dropped: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

enum Work {
    Record(Box<Record>),
    /// Asks for a message when everything before it is sent or dropped.
    Flush(SyncSender<()>),
}

impl Background {
    /// Opens an exporter, as [`open`](crate::open) does, and starts its thread.
    ///
    /// # Errors
    /// The address or a setting is wrong, or no thread can be started.
    pub fn open(address: &str) -> Result<Self, Error> {
        let metrics = Arc::<Metrics>::default();
        let exporter = crate::open(address, None, Some(metrics.clone()))?;
        Self::start(exporter, metrics)
    }

    /// Starts the thread of an exporter. The metrics count what it is told.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(exporter: Box<dyn Exporter>, metrics: Arc<Metrics>) -> Result<Self, Error> {
        let (queue, work) = sync_channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let mut sender = Sender { exporter, dropped: dropped.clone(), metrics: metrics.clone() };
        let thread = std::thread::Builder::new().name("endstop-export".to_owned());
        let started = thread.spawn(move || sender.run(&work));
        started.map_err(|error| {
            crate::error::wrong("exporter", format!("no thread can be started: {error}"))
        })?;
        Ok(Self { queue, dropped, metrics })
    }

    /// Returns the number of records that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Waits until all records so far are sent or dropped, but no longer than `most`. Returns whether they are.
    pub fn flush(&self, most: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        let until = Instant::now() + most;
        let mut work = Work::Flush(done);
        // A full queue has room again when a batch is sent.
        while let Err(error) = self.queue.try_send(work) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
            work = match error {
                std::sync::mpsc::TrySendError::Full(work) => work,
                std::sync::mpsc::TrySendError::Disconnected(_) => return false,
            };
        }
        is_done.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok()
    }
}

impl Subscriber for Background {
    fn event(&self, event: &Observation<'_>) {
        self.metrics.event(event);
        let Observation::TerminationDetected(TerminationDetected { record, .. }) = event else {
            return;
        };
        if self.queue.try_send(Work::Record(Box::new((*record).clone()))).is_err() {
            drop_record(&self.dropped, &self.metrics, record, "queue_full");
        }
    }
}

fn drop_record(dropped: &AtomicU64, metrics: &Metrics, record: &Record, cause: &'static str) {
    dropped.fetch_add(1, Ordering::Relaxed);
    metrics.event(&Observation::RecordDropped(RecordDropped::new(record, cause)));
}

struct Sender {
    exporter: Box<dyn Exporter>,
    dropped: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

impl Sender {
    fn run(&mut self, work: &Receiver<Work>) {
        loop {
            let (records, flushes, is_over) = gather(work);
            self.send(&records);
            // What cannot be sent now is said again by the next metrics.
            let _ = self.exporter.tend();
            flushes.into_iter().for_each(|done| {
                let _ = done.send(());
            });
            if is_over {
                return;
            }
        }
    }

    fn send(&mut self, records: &[Record]) {
        if records.is_empty() {
            return;
        }
        let noted: Vec<Noted<'_>> =
            records.iter().map(|record| Noted { record, sequence: 1 }).collect();
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            match self.exporter.send(&noted) {
                Ok(refused) => {
                    for (place, _) in refused {
                        records
                            .get(place)
                            .into_iter()
                            .for_each(|record| self.drop(record, "refused"));
                    }
                    return;
                }
                Err(Error::Unavailable { wait, .. }) if attempt < ATTEMPTS => {
                    std::thread::sleep(wait.unwrap_or(pause));
                    pause *= 2;
                }
                Err(_) => break,
            }
        }
        records.iter().for_each(|record| self.drop(record, "unsent"));
    }

    fn drop(&self, record: &Record, cause: &'static str) {
        drop_record(&self.dropped, &self.metrics, record, cause);
    }
}

/// Waits for a batch. Returns it, who waits for it, and whether there will be no more.
fn gather(work: &Receiver<Work>) -> (Vec<Record>, Vec<SyncSender<()>>, bool) {
    let (mut records, mut flushes) = (Vec::new(), Vec::new());
    let until = Instant::now() + LINGER;
    while records.len() < BATCH && flushes.is_empty() {
        match work.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Work::Record(record)) => records.push(*record),
            Ok(Work::Flush(done)) => flushes.push(done),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return (records, flushes, true),
        }
    }
    (records, flushes, false)
}
