//! Gateways in processes of their own, so that they can be killed, and their disk, their file and their
//! database taken from them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

#[path = "../../src/respond/bomb.rs"]
mod bomb;
mod bombs;
mod child;
#[path = "../it/client.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod client;
mod faults;
mod hostile;
mod kill;
mod load;
mod migrate;
#[path = "../../../endstop-store/tests/it/places.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod places;
