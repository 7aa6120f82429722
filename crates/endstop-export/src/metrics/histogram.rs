//! Histograms that many threads add to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of buckets, and the number of their units in one unit that is shown.
#[derive(Debug, PartialEq)]
pub struct Scale {
    /// Upper bounds, in the units that are counted. At most [`MOST`].
    pub bounds: &'static [u64],
    /// Units in one that is shown, such as microseconds in a second.
    pub per_unit: f64,
}

/// Largest number of bounds.
pub const MOST: usize = 14;

/// Seconds, counted in microseconds: 10 ms to 82 s, as OpenTelemetry advises for operations of models.
pub static SECONDS: Scale = Scale {
    bounds: &[
        10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_280_000, 2_560_000, 5_120_000,
        10_240_000, 20_480_000, 40_960_000, 81_920_000,
    ],
    per_unit: 1e6,
};

/// Tokens: 1 to 67,108,864, as OpenTelemetry advises.
pub static TOKENS: Scale = Scale {
    bounds: &[
        1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216,
        67_108_864,
    ],
    per_unit: 1.0,
};

/// Seconds, counted in nanoseconds: 250 ns to 10 ms.
pub static NANOSECONDS: Scale = Scale {
    bounds: &[
        250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000,
        1_000_000, 10_000_000,
    ],
    per_unit: 1e9,
};

/// Requests of a turn.
pub static ATTEMPTS: Scale = Scale { bounds: &[1, 2, 3, 4, 5, 8, 16], per_unit: 1.0 };

/// A histogram.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static Scale,
    buckets: [AtomicU64; MOST + 1],
    sum: AtomicU64,
}

/// The numbers of a histogram at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Values in each bucket, and in the one above the last bound.
    pub buckets: Vec<u64>,
    /// Sum of the values, in the units that are counted.
    pub sum: u64,
}

impl Counts {
    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds the numbers of another histogram of the same scale.
    pub fn add(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += more;
        }
    }
}

impl Histogram {
    /// Creates an empty histogram.
    #[must_use]
    pub fn new(scale: &'static Scale) -> Self {
        Self { scale, buckets: Default::default(), sum: AtomicU64::new(0) }
    }

    /// Adds a value.
    pub fn add(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns its scale.
    #[must_use]
    pub fn scale(&self) -> &'static Scale {
        self.scale
    }

    /// Returns its numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let filled = self.buckets.iter().take(self.scale.bounds.len() + 1);
        Counts {
            buckets: filled.map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_to_the_bucket_whose_bound_holds_them() {
        let histogram = Histogram::new(&ATTEMPTS);
        for value in [0, 1, 2, 5, 6, 16, 17, 1000] {
            histogram.add(value);
        }
        let counts = histogram.counts();
        assert_eq!(counts.buckets, [2, 1, 0, 0, 1, 1, 1, 2]);
        assert_eq!((counts.sum, counts.count()), (1047, 8));
    }

    #[test]
    fn every_scale_fits() {
        for scale in [&SECONDS, &TOKENS, &NANOSECONDS, &ATTEMPTS] {
            assert!(scale.bounds.len() <= MOST && scale.bounds.is_sorted(), "{scale:?}");
        }
    }
}
