//! Memory for requests under way: their bodies, plain responses, and frames that are held. One bound for
//! all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Largest size of a small body.
const SMALL: usize = 1 << 20;

/// Responses up to this size are not counted: their number is bounded by the connections.
pub(crate) const UNCOUNTED: usize = 64 << 10;

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

    /// Reports whether a response that holds so much now is counted otherwise than it should be.
    #[inline]
    pub(crate) fn is_behind(&self, bytes: usize) -> bool {
        bytes > UNCOUNTED || self.bytes > 0
    }

    /// Reserves exactly so much.
    pub(crate) fn set(&mut self, bytes: usize, limit: usize) -> Result<(), Full> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            return if more > 0 { self.grow(more, limit) } else { Ok(()) };
        }
        self.memory.0.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        self.bytes = bytes;
        Ok(())
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self) {
        if self.bytes > 0 {
            self.memory.0.fetch_sub(std::mem::take(&mut self.bytes), Ordering::AcqRel);
        }
    }

    /// Reserves as much as a response holds now.
    pub(crate) fn follow(&mut self, bytes: usize, limit: usize) -> Result<(), Full> {
        self.set(if bytes > UNCOUNTED { bytes } else { 0 }, limit)
    }

    /// Ties the reserved memory to these bytes: it is given back with the last copy of them.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 {
            return bytes;
        }
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

    #[test]
    fn the_memory_of_a_response_follows_its_size() {
        let memory = Arc::new(Memory::default());
        let mut held = memory.begin();
        for (bytes, counted) in [(100, 0), (1 << 20, 1 << 20), (200 << 10, 200 << 10), (100, 0)] {
            assert_eq!(held.follow(bytes, 8 << 20), Ok(()));
            assert_eq!(memory.0.load(Ordering::Acquire), counted);
        }
        assert_eq!(held.follow(9 << 20, 8 << 20), Err(Full));
        drop(held);
        assert_eq!(memory.0.load(Ordering::Acquire), 0);
    }
}
