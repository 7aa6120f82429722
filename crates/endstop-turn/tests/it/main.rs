//! Tests of policy, continuation and splice: snapshot matrices, limits, random turns and texts.
//!
//! `UPDATE_EXPECT=1` rewrites the snapshots.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod dice;
mod endings;
mod policy;
mod remedy;
mod splice;
mod turns;
