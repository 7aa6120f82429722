//! Tests of the simulator with Endstop's reader and with a low-level client.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

mod client;
mod continuing;
mod http2;
mod server;
mod verdicts;
