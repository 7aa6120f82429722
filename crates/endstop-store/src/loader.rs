//! Carries the spool into a store, as often as it takes.
//!
//! ```text
//! open, migrate ──> batch ──> load ──> refused ones to quarantine/ ──> ack ──> batch …
//!      ^                       │
//!      └── wait: longer each time while it passes, long where the store refuses
//! ```
//!
//! An acknowledgement follows its commit, so that a crash between the two loads a batch twice, which
//! changes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::error::Error;
use crate::sink::{Pace, Sink};
use crate::spool::{Batch, Lag, Tap};

/// Rows that are deleted at once.
const FORGET: usize = 1000;
/// Time between two calls of [`Sink::tend`].
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Options of a loader.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most entries that are loaded at once.
    pub batch: usize,
    /// Longest time that a batch may gather.
    pub linger: Duration,
    /// The first wait after a failure that may pass; each next is twice as long,
    pub pause: Duration,
    /// up to this.
    pub longest_pause: Duration,
    /// The wait after a failure that will not pass by itself.
    pub refused_pause: Duration,
    /// Rows older than this are deleted.
    pub keep: Option<Duration>,
    /// Time between two searches for those.
    pub forget_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch: 1000,
            linger: Duration::from_millis(100),
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
            refused_pause: Duration::from_secs(30),
            keep: None,
            forget_every: Duration::from_secs(3600),
        }
    }
}

/// State of a loader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Entries that were taken, or known already, since the start of the process.
    pub loaded: u64,
    /// Entries that the store refused one by one; they are in `quarantine/refused.jsonl`.
    pub refused: u64,
    /// Message of the store about the first of them.
    pub first_refusal: Option<String>,
    /// Rows that were deleted for their age.
    pub forgotten: u64,
    /// Entries that the sink was too slow for.
    pub dropped: u64,
    /// Entries that wait.
    pub lag_entries: u64,
    /// Bytes that wait.
    pub lag_bytes: u64,
    /// The store took the last batch, or was opened since.
    pub connected: bool,
    /// Present error.
    pub last_error: Option<String>,
    /// Whether the file of the store is damaged, which does not pass by itself.
    pub damaged: bool,
    /// Number of times that something began to fail.
    pub episodes: u64,
}

#[derive(Debug, Default)]
struct State {
    status: Status,
    /// Set when it is to end, and until when it may go on.
    stop: Option<Instant>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        changed
    }

    /// Waits until it is so, at most this long; says whether it is.
    fn wait(&self, most: Duration, mut is_so: impl FnMut(&State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), most, |state| !is_so(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// A thread that loads a spool.
#[derive(Debug)]
pub struct Loader {
    tap: Arc<Tap>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Loader {
    /// Begins to load. A store that cannot be opened is tried again, so that this never waits for it.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn spawn(
        tap: Tap,
        open: impl FnMut() -> Result<Box<dyn Sink>, Error> + Send + 'static,
        options: Options,
    ) -> Result<Self, Error> {
        let tap = Arc::new(tap);
        let shared = Arc::new(Shared::default());
        let forget_at = Instant::now();
        let pause = options.pause;
        let mut work = Work {
            tap: Arc::clone(&tap),
            shared: Arc::clone(&shared),
            open: Box::new(open),
            backend: None,
            options,
            pause,
            forget_at,
            tend_at: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("loader".into())
            .spawn(move || work.run())
            .map_err(|source| Error::Io { what: "cannot start the loader".into(), source })?;
        Ok(Self { tap, shared, thread })
    }

    /// Returns its state.
    #[must_use]
    pub fn status(&self) -> Status {
        let Lag { entries, bytes, dropped } = self.tap.lag();
        let status = self.shared.state().status.clone();
        Status { lag_entries: entries, lag_bytes: bytes, dropped, ..status }
    }

    /// Waits until all that was written by now is in the store, at most this long; says whether it is.
    #[must_use]
    pub fn wait_until_loaded(&self, timeout: Duration) -> bool {
        self.shared.wait(timeout, |_| is_empty(&self.tap))
    }

    /// Loads what it can in this time, then ends. Says whether all is loaded; what is not stays in the
    /// spool.
    #[must_use]
    pub fn stop(self, wait: Duration) -> bool {
        let until = Instant::now().checked_add(wait);
        self.shared.change(|state| state.stop = until.or(Some(Instant::now())));
        // A store that does not answer is not waited for longer than was said.
        if self.shared.wait(wait.saturating_add(Duration::from_millis(50)), |state| state.ended) {
            let _ = self.thread.join();
        }
        is_empty(&self.tap)
    }
}

fn is_empty(tap: &Tap) -> bool {
    tap.lag().entries == 0
}

struct Work {
    tap: Arc<Tap>,
    shared: Arc<Shared>,
    open: Box<dyn FnMut() -> Result<Box<dyn Sink>, Error> + Send>,
    backend: Option<Box<dyn Sink>>,
    options: Options,
    pause: Duration,
    /// Time of the next search for old rows.
    forget_at: Instant,
    /// Time of the next call of [`Sink::tend`].
    tend_at: Instant,
}

impl Work {
    fn run(&mut self) {
        while !self.is_over() {
            let linger = match self.attempt() {
                Ok(full) => {
                    self.pause = self.options.pause;
                    if full { Duration::ZERO } else { self.options.linger.max(self.pace().linger) }
                }
                Err(error) => self.fail(&error),
            };
            let stopping = self.shared.state().stop.is_some();
            if !linger.is_zero() {
                // Who wants it to end does not wait for a batch to gather.
                let linger = if stopping { linger.min(self.options.pause) } else { linger };
                self.shared.wait(linger, |state| !stopping && state.stop.is_some());
            }
        }
        self.backend = None;
        self.shared.change(|state| state.ended = true);
    }

    fn is_over(&self) -> bool {
        let until = self.shared.state().stop;
        until.is_some_and(|until| Instant::now() >= until || is_empty(&self.tap))
    }

    /// One batch. Says whether more waits.
    fn attempt(&mut self) -> Result<bool, Error> {
        let attempt = catch_unwind(AssertUnwindSafe(|| self.step()));
        attempt.unwrap_or_else(|_| {
            Err(Error::Unavailable { store: "the store".into(), why: "its driver panicked".into() })
        })
    }

    fn step(&mut self) -> Result<bool, Error> {
        if self.backend.is_none() {
            let mut backend = (self.open)()?;
            backend.migrate()?;
            self.backend = Some(backend);
        }
        let most = self.options.batch.max(self.pace().batch);
        let batch = self.tap.next(most);
        let full = batch.as_ref().is_some_and(|batch| batch.entries.len() >= most);
        if let Some(batch) = batch {
            self.load(&batch)?;
        }
        let tending = self.tend()?;
        let forgetting = self.forget()?;
        self.well();
        Ok(full || tending || forgetting)
    }

    fn pace(&self) -> Pace {
        self.backend.as_ref().map(|backend| backend.pace()).unwrap_or_default()
    }

    fn load(&mut self, batch: &Batch) -> Result<(), Error> {
        let Some(backend) = &mut self.backend else { return Ok(()) };
        let loaded = backend.load(&batch.entries)?;
        let mut refused = 0;
        for (index, why) in &loaded.refused {
            if let Some(entry) = batch.entries.get(*index) {
                self.tap.refuse(entry, why)?;
                refused += 1;
            }
        }
        self.shared.change(|state| {
            state.status.loaded += (batch.entries.len() as u64).saturating_sub(refused);
            state.status.refused += refused;
            if let (None, Some((_, why))) = (&state.status.first_refusal, loaded.refused.first()) {
                state.status.first_refusal = Some(why.clone());
            }
        });
        self.tap.ack(batch.upto);
        Ok(())
    }

    /// Gives the sink time now and then. Says whether it wants more.
    fn tend(&mut self) -> Result<bool, Error> {
        let Some(backend) = self.backend.as_mut().filter(|_| Instant::now() >= self.tend_at) else {
            return Ok(false);
        };
        let more = backend.tend()?;
        if !more {
            self.tend_at = Instant::now() + TEND_EVERY;
        }
        Ok(more)
    }

    /// Deletes some old rows. Says whether there are more.
    fn forget(&mut self) -> Result<bool, Error> {
        let Some(keep) = self.options.keep.filter(|_| Instant::now() >= self.forget_at) else {
            return Ok(false);
        };
        let Some(backend) = &mut self.backend else { return Ok(false) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let before = u64::try_from(now.saturating_sub(keep).as_millis()).unwrap_or(0);
        let most = FORGET.max(backend.pace().forget);
        let forgotten = backend.forget(before, most)?;
        self.shared.change(|state| state.status.forgotten += forgotten);
        let more = forgotten >= most as u64;
        if !more {
            self.forget_at = Instant::now() + self.options.forget_every;
        }
        Ok(more)
    }

    fn well(&self) {
        self.shared.change(|state| {
            state.status.connected = true;
            state.status.last_error = None;
            state.status.damaged = false;
        });
    }

    /// Notes a failure, closes the store, and says how long to wait.
    fn fail(&mut self, error: &Error) -> Duration {
        self.backend = None;
        let said = error.to_string();
        self.shared.change(|state| {
            let status = &mut state.status;
            status.connected = false;
            status.episodes += u64::from(status.last_error.is_none());
            status.last_error = Some(said);
            status.damaged = matches!(error, Error::Damaged { .. } | Error::Foreign { .. });
        });
        if !error.is_retryable() {
            return self.options.refused_pause;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(self.options.longest_pause);
        pause
    }
}
