//! Memory for the bodies of requests under way: one bound for all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Largest size of a small body.
const SMALL: usize = 1 << 20;

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
    /// Reserves more, as bytes arrive: what a request announces may never come. The last eighth of
    /// the memory is for small bodies, so that large ones that never end do not shut out the others.
    pub(crate) fn grow(&mut self, bytes: usize, limit: usize) -> Result<(), Full> {
        let is_small = self.bytes + bytes <= SMALL;
        let limit = if is_small { limit } else { limit - limit / 8 };
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
        const MIB: usize = 1 << 20;
        let limit = 8 * MIB;
        let mut large = memory.begin();
        assert_eq!(large.grow(6 * MIB, limit), Ok(()));
        assert_eq!(large.grow(MIB, limit), Ok(()));
        assert_eq!(memory.begin().grow(2 * MIB, limit), Err(Full), "no room for large ones");
        assert_eq!(memory.begin().grow(MIB, limit), Ok(()), "room for small ones");
        let mut small = memory.begin();
        assert_eq!(small.grow(MIB, limit), Ok(()));
        assert_eq!(memory.begin().grow(1, limit), Err(Full), "no room at all");
        assert_eq!(large.grow(1, limit), Err(Full));
        drop(large);
        let bytes = small.hold(Bytes::from(vec![b'x'; MIB]));
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!(copy.slice(1..3), "xx");
        assert_eq!(memory.0.load(Ordering::Acquire), MIB);
        drop(copy);
        assert_eq!(memory.0.load(Ordering::Acquire), 0);
    }
}
