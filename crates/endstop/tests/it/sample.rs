//! Seeded samples of all inputs, or all of them with `ENDSTOP_ALL=1`.

/// Reports whether `ENDSTOP_ALL=1` asks for everything instead of a sample.
pub(crate) fn everything() -> bool {
    std::env::var_os("ENDSTOP_ALL").is_some_and(|value| value == "1")
}

/// Returns this many of the items, always the same ones; all of them with `ENDSTOP_ALL=1`.
pub(crate) fn some<T>(items: &[T], count: usize, seed: u64) -> Vec<&T> {
    if everything() || items.len() <= count {
        return items.iter().collect();
    }
    let mut dice = Dice(seed);
    let mut taken = std::collections::BTreeSet::new();
    while taken.len() < count {
        taken.insert(dice.roll(items.len()));
    }
    taken.into_iter().map(|at| &items[at]).collect()
}

/// A small random generator, so that a failure can be repeated from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Creates a generator for one of many trials.
    pub(crate) fn of(seed: u64, trial: usize) -> Self {
        let mut dice = Self((seed ^ (trial as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1));
        dice.roll(2);
        dice.roll(2);
        dice
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 8) % (sides as u64).max(1)).unwrap()
    }

    /// Returns one of these values.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }

    /// Puts a list into random order.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.roll(at + 1));
        }
    }

    /// Splits the bytes into chunks of random size.
    pub(crate) fn cut<'a>(&mut self, mut bytes: &'a [u8], largest: usize) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at((1 + self.roll(largest)).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// Runs the work on two threads. Returns the result of each item, in order.
pub(crate) fn on_two_threads<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let half = |from: usize| {
        let own = items.iter().enumerate().skip(from).step_by(2);
        own.map(|(at, item)| (at, work(at, item))).collect::<Vec<_>>()
    };
    let mut done = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut own = half(0);
        own.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        own
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
