//! Clock shared by the mock and the client, which are two processes on one machine.

use rustix::time::{ClockId, clock_gettime};

/// Returns the monotonic time in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
