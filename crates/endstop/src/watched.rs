//! A watcher that cannot be lost: dropping it is an ending too.

use crate::ending::{Ending, TransportEnd};
use crate::reader::Watcher;

/// A [`Watcher`] that reports its ending exactly once: when it is finished, or else when it is dropped.
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
    /// Gone once the ending has been told.
    inner: Option<(Watcher, F)>,
}

impl<F: FnOnce(Ending)> Watched<F> {
    /// Reports the ending of this watcher to this function.
    pub fn new(watcher: Watcher, tell: F) -> Self {
        Self { inner: Some((watcher, tell)) }
    }

    /// Reads a chunk for the sake of the ending alone.
    pub fn watch(&mut self, chunk: &[u8]) {
        if let Some((watcher, _)) = &mut self.inner {
            watcher.watch(chunk);
        }
    }

    /// Ends the response and tells its ending.
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
