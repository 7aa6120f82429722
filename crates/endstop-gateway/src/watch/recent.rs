//! The newest endings, in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use endstop::Reason;

use super::EndingReport;

/// The newest endings.
#[derive(Debug)]
pub(crate) struct Recent {
    newest: Mutex<VecDeque<Arc<EndingReport>>>,
    keep: AtomicUsize,
}

/// Conditions on endings.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Provider.
    pub provider: Option<String>,
    /// Upstream.
    pub upstream: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Reason.
    pub reason: Option<Reason>,
    /// Finish reason; `null` for none.
    pub finish_reason: Option<String>,
    /// Action of the gateway.
    pub action: Option<String>,
    /// Earliest time, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Maximum number of endings.
    pub limit: usize,
}

impl Wanted {
    /// Reports whether this ending matches.
    #[must_use]
    pub fn fits(&self, ended: &EndingReport) -> bool {
        let is = |want: &Option<String>, have: Option<&str>| {
            want.as_deref().is_none_or(|want| have == Some(want))
        };
        let kept = &ended.kept;
        is(&self.provider, Some(&kept.provider))
            && is(&self.upstream, Some(&kept.upstream))
            && is(&self.model, kept.model.as_deref())
            && is(&self.finish_reason, Some(kept.finish_reason.as_deref().unwrap_or("null")))
            && is(&self.action, Some(ended.action.word()))
            && self.reason.is_none_or(|want| want == ended.ending.reason)
            && self.since.is_none_or(|since| kept.created_at >= since)
    }
}

impl Recent {
    pub(crate) fn new(keep: usize) -> Self {
        Self { newest: Mutex::default(), keep: AtomicUsize::new(keep) }
    }

    /// Changes how many are kept.
    pub(crate) fn set_keep(&self, keep: usize) {
        self.keep.store(keep, Ordering::Relaxed);
        let mut newest = self.lock();
        let excess = newest.len().saturating_sub(keep);
        let oldest: Vec<_> = newest.drain(..excess).collect();
        drop(newest);
        drop(oldest);
    }

    pub(crate) fn push(&self, ended: Arc<EndingReport>) {
        let keep = self.keep.load(Ordering::Relaxed);
        let mut newest = self.lock();
        let oldest = if newest.len() >= keep { newest.pop_front() } else { None };
        if keep > 0 {
            newest.push_back(ended);
        }
        drop(newest);
        // Dropped outside the lock.
        drop(oldest);
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<EndingReport>> {
        self.lock().iter().rev().find(|ended| ended.kept.id == id).cloned()
    }

    pub(crate) fn find(&self, wanted: &Wanted) -> Vec<Arc<EndingReport>> {
        let newest = self.lock();
        newest.iter().rev().filter(|ended| wanted.fits(ended)).take(wanted.limit).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<EndingReport>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
