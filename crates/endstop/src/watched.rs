//! A watcher that reports its ending even if it is dropped.

use crate::ending::{Ending, TransportEnd};
use crate::reader::Watcher;

/// A [`Watcher`] that reports its ending exactly once: when it is finished or when it is dropped.
///
/// ```
/// use endstop::{Closed, Head, RequestInfo, Watched, Watcher, provider};
///
/// let mut told = None;
/// let watcher = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// drop(Watched::new(watcher, |ending| told = Some(ending.closed)));
/// assert_eq!(told, Some(Closed::Dropped));
/// ```
#[derive(Debug)]
pub struct Watched<F: FnOnce(Ending)> {
    /// `None` after the ending was reported.
    inner: Option<(Watcher, F)>,
}

impl<F: FnOnce(Ending)> Watched<F> {
    /// Wraps a watcher. The function receives its ending.
    pub fn new(watcher: Watcher, tell: F) -> Self {
        Self { inner: Some((watcher, tell)) }
    }

    /// Reads a chunk.
    pub fn watch(&mut self, chunk: &[u8]) {
        if let Some((watcher, _)) = &mut self.inner {
            watcher.watch(chunk);
        }
    }

    /// Ends the response and reports its ending.
    pub fn finish(mut self, close: TransportEnd) {
        self.tell(close);
    }

    fn tell(&mut self, close: TransportEnd) {
        if let Some((watcher, tell)) = self.inner.take() {
            tell(watcher.finish(close));
        }
    }
}

impl<F: FnOnce(Ending)> Drop for Watched<F> {
    fn drop(&mut self) {
        self.tell(TransportEnd::Dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, Reason, RequestInfo, provider};

    #[test]
    fn the_ending_is_told_once_finished_or_not() {
        let reader = || Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
        let mut endings = Vec::new();
        Watched::new(reader(), |ending| endings.push(ending.reason)).finish(TransportEnd::Reset);
        drop(Watched::new(reader(), |ending| endings.push(ending.reason)));
        assert_eq!(endings, [Reason::Cut, Reason::Cancelled]);
    }
}
