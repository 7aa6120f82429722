//! Tests of the core against its cases and recorded traffic.
//!
//! The cases are in `corpus/` at the root: raw bytes with the expected ending. Recordings are read
//! from the folders in `ENDSTOP_RECORDINGS`, if it is set. Long tests use a seeded sample, and
//! everything with `ENDSTOP_ALL=1`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod agree;
mod allow;
mod answer;
mod call;
mod calls;
mod case;
mod cases;
mod consistency;
mod cuts;
mod document;
mod event_stream;
mod metamorphic;
mod oracle;
mod overflow;
mod prefixes;
mod recorded;
mod recordings;
mod requests;
mod sample;
mod signal;
mod tables;
mod tidy;
mod tokens;
mod words;
