//! Ledger of requests and of the bytes that were really sent, one entry per request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use endstop::hash::Fnv;

/// Request and its response.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// Number of the request, from 1.
    pub number: u64,
    /// Value of `x-sim-tag`.
    pub tag: Option<String>,
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// HTTP version: 1 or 2.
    pub http: u8,
    /// Wire; empty if the path belongs to no wire.
    pub wire: &'static str,
    /// Model, as the request names it.
    pub model: String,
    /// Chosen scenario with its value.
    pub scenario: String,
    /// Whether the request asked for a stream.
    pub streamed: bool,
    /// Request headers, including API keys, because this is a test server.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub request: Vec<u8>,
    /// Response status; zero if none was sent.
    pub status: u16,
    /// First bytes of the response body as sent, without HTTP framing.
    pub body: Vec<u8>,
    /// Number of body bytes sent.
    pub written: u64,
    /// FNV-1a hash of all body bytes sent.
    pub hash: Fnv,
    /// Whether the rest of the response is silence.
    pub stalled: bool,
    /// End of the response.
    pub ended: ResponseEnd,
    /// Time at which the request was read.
    pub started: Instant,
    /// Time at which the response ended.
    pub finished: Option<Instant>,
    /// Time at which the peer was seen to close first.
    pub peer_closed_at: Option<Instant>,
}

/// End of a response, as the simulator saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseEnd {
    /// The response is still open.
    Open,
    /// The scenario played to its end.
    Itself,
    /// The peer closed first.
    PeerClosed,
    /// The simulator was stopped.
    Stopped,
}

impl LedgerEntry {
    /// Records sent bytes.
    pub(crate) fn wrote(&mut self, bytes: &[u8], keep: usize) {
        self.written += bytes.len() as u64;
        self.hash = self.hash.mix_bytes(bytes);
        let room = keep.saturating_sub(self.body.len()).min(bytes.len());
        self.body.extend(bytes.iter().take(room));
    }

    /// Returns the request header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the duration of the response; zero while it is open.
    #[must_use]
    pub fn took(&self) -> std::time::Duration {
        self.finished.map_or(std::time::Duration::ZERO, |at| at.duration_since(self.started))
    }
}

/// All entries, and the number of open connections.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: Mutex<VecDeque<LedgerEntry>>,
    /// Maximum number of entries.
    pub(crate) most: usize,
    /// Maximum number of bytes kept of each body.
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

    /// Changes the entry with this number.
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

    /// Records sent bytes.
    pub(crate) fn wrote(&self, number: u64, bytes: &[u8]) {
        self.change(number, |entry| entry.wrote(bytes, self.keep));
    }

    pub(crate) fn get(&self, number: u64) -> Option<LedgerEntry> {
        self.entries().iter().rev().find(|entry| entry.number == number).cloned()
    }

    pub(crate) fn tagged(&self, tag: &str) -> Option<LedgerEntry> {
        self.entries().iter().rev().find(|entry| entry.tag.as_deref() == Some(tag)).cloned()
    }

    pub(crate) fn clear(&self) {
        self.entries().clear();
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Guard that counts a connection as open until it is dropped.
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
