//! Memory for the bodies of requests under way: one bound for all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes that are held by requests under way.
#[derive(Debug, Default)]
pub(crate) struct Memory(AtomicUsize);

/// No memory is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A part of the memory. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Memory {
    /// Begins to reserve memory.
    pub(crate) fn begin(self: &Arc<Self>) -> Reserved {
        Reserved { memory: self.clone(), bytes: 0 }
    }
}

impl Reserved {
    /// Reserves more, as bytes arrive: what a request announces may never come. The last eighth is
    /// for requests that have begun, so that they can go on when new ones are refused.
    pub(crate) fn grow(&mut self, bytes: usize, limit: usize) -> Result<(), Full> {
        let limit = if self.bytes == 0 { limit - limit / 8 } else { limit };
        let used = self.memory.0.fetch_add(bytes, Ordering::AcqRel);
        self.bytes += bytes;
        if used.saturating_add(bytes) > limit { Err(Full) } else { Ok(()) }
    }

    /// Ties the reserved memory to these bytes: it is given back with the last copy of them.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _reserved: self })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

struct Held {
    bytes: Bytes,
    _reserved: Reserved,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_given_back_with_the_last_copy() {
        let memory = Arc::new(Memory::default());
        let mut first = memory.begin();
        assert_eq!(first.grow(50, 100), Ok(()));
        assert_eq!(memory.begin().grow(39, 100), Err(Full), "no room to begin");
        assert_eq!(first.grow(45, 100), Ok(()), "room to go on");
        assert_eq!(first.grow(6, 100), Err(Full));
        drop(first);
        let mut second = memory.begin();
        assert_eq!(second.grow(60, 100), Ok(()));
        let bytes = second.hold(Bytes::from(vec![b'x'; 60]));
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!(memory.begin().grow(29, 100), Err(Full));
        assert_eq!(copy.slice(1..3), "xx");
        drop(copy);
        assert_eq!(memory.begin().grow(80, 100), Ok(()));
        assert_eq!(memory.0.load(Ordering::Acquire), 0);
    }
}
