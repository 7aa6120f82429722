//! The fault matrix: a real gateway between a simulated provider and a client that sees every byte.
//!
//! Each test is a row. After each exchange three ledgers are joined, what the upstream sent, what
//! the client received and what was told of it, and the invariants are checked on them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod admission;
mod client;
mod exports;
mod faults;
mod hostile;
mod hostile_answers;
mod identity;
mod kept;
mod leaving;
mod ledger;
mod metrics;
mod record;
mod requests;
mod secrets;
mod secure;
mod security;
mod soak;
mod sockets;
#[path = "../../../endstop-export/tests/it/stand_in.rs"]
mod stand_in;
