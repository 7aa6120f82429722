//! The numbers that are kept per hour and series, and what one row adds to them.

use std::sync::LazyLock;

use endstop::Reason;

use crate::columns::Row;
use crate::query::{BOUNDS_US, Buckets, Sums};

/// One hour in milliseconds.
pub(crate) const HOUR: i64 = 3_600_000;
/// Number of buckets of a histogram of times.
const BUCKETS: usize = BOUNDS_US.len() + 1;
/// Number of sums per hour and series: the counters, then two histograms.
pub(crate) const MEASURES: usize = COUNTERS.len() + 2 * BUCKETS;

/// The sums of an hour and series, or what to add to them.
pub(crate) type Numbers = [i64; MEASURES];

/// A counter of [`Sums`]: its name in tables and reports, and its place.
pub(crate) struct Counter {
    pub(crate) name: &'static str,
    pub(crate) get: fn(&Sums) -> u64,
    get_mut: fn(&mut Sums) -> &mut u64,
}

macro_rules! counters {
    ($($field:ident)*) => {
        [$(Counter {
            name: stringify!($field),
            get: |sums| sums.$field,
            get_mut: |sums| &mut sums.$field,
        }),*]
    };
}

/// Every counter, in the order of the columns.
pub(crate) static COUNTERS: [Counter; 9] = counters! {
    count repeated repeated_well tokens_in tokens_out tokens_reasoning tokens_cached tokens_of_cut
    counted
};

/// The names of the columns of the sums, in their order.
pub(crate) static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let counters = COUNTERS.iter().map(|counter| counter.name.to_owned());
    let buckets = ["first_byte", "total"].into_iter().flat_map(|times| {
        let bounds = BOUNDS_US.iter().map(move |us| format!("{times}_under_{}ms", us / 1000));
        bounds.chain([format!("{times}_over")])
    });
    counters.chain(buckets).collect()
});

/// The reason of a row, as far as sums depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    is_success: bool,
    is_short: bool,
}

impl Class {
    /// Returns the class of a reason by its name.
    pub(crate) fn of(reason: &str) -> Self {
        let reason = Reason::from_name(reason);
        Self {
            is_success: reason.is_some_and(Reason::is_success),
            is_short: reason.is_some_and(is_short),
        }
    }
}

/// Adds a row to the sums of its hour and series, `sign` times.
pub(crate) fn count(to: &mut Numbers, row: &Row<'_>, class: Class, sign: i64) {
    let record = row.record;
    let repeated = record.attempt > 1;
    let out = tokens(record.tokens_out);
    let counters = [
        1,
        i64::from(repeated),
        i64::from(repeated && class.is_success),
        tokens(record.tokens_in),
        out,
        tokens(record.tokens_reasoning),
        tokens(record.tokens_cached),
        if class.is_short { out } else { 0 },
        i64::from(record.tokens_out.is_some()),
    ];
    let first = record.first_byte_us.map(|us| COUNTERS.len() + Buckets::of(us));
    // A response whose end nobody saw has no time.
    let total =
        (record.total_us > 0).then(|| COUNTERS.len() + BUCKETS + Buckets::of(record.total_us));
    let counters = counters.into_iter().enumerate();
    for (at, by) in counters.chain([first, total].into_iter().flatten().map(|bucket| (bucket, 1))) {
        if let Some(number) = to.get_mut(at) {
            *number = number.saturating_add(sign * by);
        }
    }
}

/// Adds numbers to others, `sign` times.
pub(crate) fn add(to: &mut Numbers, numbers: &Numbers, sign: i64) {
    to.iter_mut().zip(numbers).for_each(|(to, by)| *to = to.saturating_add(sign * by));
}

/// Returns sums of responses that all have this reason.
pub(crate) fn sums(reason: &str, numbers: &Numbers) -> Sums {
    let mut numbers = numbers.iter().map(|number| u64::try_from(*number).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let mut sums = Sums::default();
    COUNTERS.iter().for_each(|counter| *(counter.get_mut)(&mut sums) = next());
    sums.reasons = [(reason.to_owned(), sums.count)].into();
    sums.first_byte = Buckets(std::array::from_fn(|_| next()));
    sums.total = Buckets(std::array::from_fn(|_| next()));
    sums
}

/// Adds the counters and histograms of others.
pub(crate) fn merge(to: &mut Sums, other: &Sums) {
    for counter in &COUNTERS {
        *(counter.get_mut)(to) += (counter.get)(other);
    }
    to.first_byte.add(&other.first_byte);
    to.total.add(&other.total);
}

/// Returns whether the tokens of such an answer were spent on something that is not whole.
pub(crate) fn is_short(reason: Reason) -> bool {
    [Reason::OutputLimit, Reason::ContextLimit, Reason::Cut, Reason::TimedOut].contains(&reason)
}

/// Returns a number of tokens, bounded so that no sum can overflow.
fn tokens(count: Option<u64>) -> i64 {
    count.unwrap_or(0).min(1 << 40).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_of_its_own() {
        let mut names = NAMES.clone();
        assert_eq!(names.len(), MEASURES);
        assert_eq!(names[9..11], ["first_byte_under_1ms", "first_byte_under_2ms"]);
        assert_eq!(names[MEASURES - 1], "total_over");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MEASURES);
    }
}
