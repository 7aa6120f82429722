//! The ledger: what was asked and what really left, one entry a request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One request and its response.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// The number of the request, from 1.
    pub number: u64,
    /// The value of `x-sim-tag`.
    pub tag: Option<String>,
    /// The method.
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// The HTTP version: 1 or 2.
    pub http: u8,
    /// The wire; empty if the path is none's.
    pub wire: &'static str,
    /// The scenario as it was chosen, with its value.
    pub scenario: String,
    /// Whether a stream was asked for.
    pub streamed: bool,
    /// The request's headers. Keys of callers are among them: this is a test server.
    pub headers: Vec<(String, String)>,
    /// The request's body.
    pub request: Vec<u8>,
    /// The status that was answered; zero if none was.
    pub status: u16,
    /// The first bytes of the body as they left, without any framing of HTTP.
    pub body: Vec<u8>,
    /// How many bytes of the body left.
    pub written: u64,
    /// A hash of all of them (FNV-1a).
    pub hash: u64,
    /// How it ended.
    pub ended: Ended,
    /// When the request had come.
    pub started: Instant,
    /// When the response was over.
    pub finished: Option<Instant>,
    /// When the peer was seen to close first.
    pub peer_closed_at: Option<Instant>,
}

/// How a response ended, as the simulator saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has not yet.
    Open,
    /// As its scenario wanted it.
    Itself,
    /// The peer closed first.
    PeerClosed,
    /// The simulator was stopped.
    Stopped,
}

impl LedgerEntry {
    /// Notes bytes that left.
    pub(crate) fn wrote(&mut self, bytes: &[u8], keep: usize) {
        self.written += bytes.len() as u64;
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let room = keep.saturating_sub(self.body.len()).min(bytes.len());
        self.body.extend(bytes.iter().take(room));
    }

    /// The header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// How long it took.
    #[must_use]
    pub fn took(&self) -> std::time::Duration {
        self.finished.map_or(std::time::Duration::ZERO, |at| at.duration_since(self.started))
    }
}

/// The start of the hash.
pub(crate) const HASH: u64 = 0xcbf2_9ce4_8422_2325;

/// All entries, and the connections that are open.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: Mutex<VecDeque<LedgerEntry>>,
    /// The most entries, and the most bytes of each body, that are kept.
    pub(crate) most: usize,
    pub(crate) keep: usize,
    pub(crate) open: AtomicUsize,
}

impl Ledger {
    pub(crate) fn new(most: usize, keep: usize) -> Self {
        Self { entries: Mutex::default(), most, keep, open: AtomicUsize::new(0) }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<LedgerEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<LedgerEntry> {
        self.entries().iter().cloned().collect()
    }

    /// Changes the entry of this number.
    pub(crate) fn change(&self, number: u64, change: impl FnOnce(&mut LedgerEntry)) {
        let mut entries = self.entries();
        if let Some(entry) = entries.iter_mut().rev().find(|entry| entry.number == number) {
            change(entry);
        }
    }

    pub(crate) fn add(&self, entry: LedgerEntry) {
        let mut entries = self.entries();
        while entries.len() >= self.most.max(1) {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// Notes bytes that left.
    pub(crate) fn wrote(&self, number: u64, bytes: &[u8]) {
        self.change(number, |entry| entry.wrote(bytes, self.keep));
    }

    pub(crate) fn get(&self, number: u64) -> Option<LedgerEntry> {
        self.entries().iter().rev().find(|entry| entry.number == number).cloned()
    }

    pub(crate) fn clear(&self) {
        self.entries().clear();
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Counts a connection for as long as it lives.
pub(crate) struct Counted<'l>(&'l Ledger);

impl<'l> Counted<'l> {
    pub(crate) fn new(ledger: &'l Ledger) -> Self {
        ledger.open.fetch_add(1, Ordering::SeqCst);
        Self(ledger)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}
