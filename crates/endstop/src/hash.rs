//! A stable hash: the same across processes and versions, unlike the standard library's.

/// FNV-1a, 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds one unit: a byte, or a character.
    #[must_use]
    pub fn mix(self, unit: u64) -> Self {
        Self((self.0 ^ unit).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// Adds bytes.
    #[must_use]
    pub fn mix_bytes(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |hash, byte| hash.mix(u64::from(*byte)))
    }

    /// Returns the hash.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of the FNV specification.
    #[test]
    fn known_values() {
        assert_eq!(Fnv::default().mix_bytes(b"").value(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv::default().mix_bytes(b"a").value(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fnv::default().mix_bytes(b"foobar").value(), 0x8594_4171_f739_67e8);
    }
}
