//! The gateway between a simulated provider and a client that counts every byte.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod identity;
