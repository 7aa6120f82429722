//! Random numbers with a fixed seed, so that a failure can be repeated.

/// A small random number generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a number below `sides`.
    pub(crate) fn roll<N: TryFrom<u64> + TryInto<u64>>(&mut self, sides: N) -> N {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        let below = sides.try_into().ok().map(|sides| number % sides);
        below.and_then(|below| N::try_from(below).ok()).unwrap()
    }

    /// Returns one of these values.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }

    /// Picks a word. Words at the front of the list are more frequent.
    pub(crate) fn word<'a>(&mut self, of: &[&'a str]) -> &'a str {
        let (one, other) = (self.roll(of.len()), self.roll(of.len()));
        of[one.min(other)]
    }
}
