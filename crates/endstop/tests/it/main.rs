//! The core against its cases and against recorded traffic.
//!
//! The cases live in `corpus/` at the root: raw bytes with the expected ending beside them. The
//! recordings are read from the folder that `ENDSTOP_RECORDINGS` names, where it is set.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod agree;
mod allow;
mod case;
mod cases;
mod consistency;
mod cuts;
mod endings;
mod event_stream;
mod oracle;
mod policy;
mod prefixes;
mod recordings;
mod remedy;
mod snapshot;
mod splice;
mod tables;
mod tidy;
mod tokens;
mod turns;
mod words;
