//! The simulator against Endstop's own reader, and against a client that sees everything.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod client;
mod http2;
mod server;
mod verdicts;
