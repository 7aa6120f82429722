//! A reader that cannot be lost: dropping it is an ending too.

use crate::ending::{Ending, TransportEnd};
use crate::event::Event;
use crate::reader::Reader;

/// A reader that tells its ending exactly once: when it is finished, or else when it is dropped.
///
/// ```
/// use endstop::{RequestInfo, Closed, Head, Reader, Watched, provider};
///
/// let mut told = None;
/// let reader = Reader::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// drop(Watched::new(reader, |ending| told = Some(ending.closed)));
/// assert_eq!(told, Some(Closed::Dropped));
/// ```
#[derive(Debug)]
pub struct Watched<F: FnOnce(Ending)> {
    /// Gone once the ending has been told.
    inner: Option<(Reader, F)>,
}

impl<F: FnOnce(Ending)> Watched<F> {
    /// Reads with this reader and tells its ending to this function.
    pub fn new(reader: Reader, tell: F) -> Self {
        Self { inner: Some((reader, tell)) }
    }

    /// Reads a chunk and hands its events over.
    pub fn read(&mut self, chunk: &[u8], on_event: impl FnMut(Event<'_>)) {
        if let Some((reader, _)) = &mut self.inner {
            reader.read(chunk, on_event);
        }
    }

    /// Reads a chunk for the sake of the ending alone.
    pub fn watch(&mut self, chunk: &[u8]) {
        if let Some((reader, _)) = &mut self.inner {
            reader.watch(chunk);
        }
    }

    /// Ends the response and tells its ending.
    pub fn finish(mut self, close: TransportEnd) {
        self.tell(close);
    }

    fn tell(&mut self, close: TransportEnd) {
        if let Some((reader, tell)) = self.inner.take() {
            tell(reader.finish(close));
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
        let reader = || Reader::new(&provider::OPENAI, Head::default(), RequestInfo::default());
        let mut endings = Vec::new();
        Watched::new(reader(), |ending| endings.push(ending.reason)).finish(TransportEnd::Reset);
        drop(Watched::new(reader(), |ending| endings.push(ending.reason)));
        assert_eq!(endings, [Reason::Cut, Reason::Cancelled]);
    }
}
