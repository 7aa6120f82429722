//! The core against its cases and against recorded traffic.
//!
//! The cases live in `corpus/` at the root: raw bytes with the expected ending beside them. The
//! recordings are read from the folders that `ENDSTOP_RECORDINGS` names, where it is set. What is too
//! much for every run is tried as a seeded sample, and all of it with `ENDSTOP_ALL=1`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod agree;
mod allow;
mod answer;
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
mod sample;
mod signal;
mod tables;
mod tidy;
mod tokens;
mod words;
