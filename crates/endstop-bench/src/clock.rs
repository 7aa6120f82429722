//! The clock that the mock and the client, two processes on one machine, both read.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
