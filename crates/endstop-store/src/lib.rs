//! The record: how every response ended, kept so that it can be asked about.
//!
//! ```text
//! gateway -> spool: start, end, amend -> loader -> store: rows, hourly sums, words -> report
//!            plain write, checksummed -> loader -> another sink, with a mark of its own
//! ```
//!
//! The [`spool`] is what makes an ending durable: a local file, written before the client sees the end,
//! that survives the death of its process. A loader carries it into each [`Sink`], as often as it takes: an
//! [`Entry`] is known by its id and its sequence, so that one that comes twice changes nothing. A [`Store`]
//! is a sink that can be asked.

#![forbid(unsafe_code)]

mod ask;
mod axis;
pub mod backfill;
mod changes;
mod clickhouse;
mod columns;
mod delta;
mod error;
mod jsonl;
mod load;
pub mod loader;
mod migrations;
mod open;
mod postgres;
mod query;
mod refused;
mod roots;
mod series;
mod sink;
pub mod spool;
mod sql;
mod sqlite;
mod sums;
pub mod view;
mod when;

pub use error::Error;
pub use migrations::export_migrations;
pub use open::{
    Found, Options, check, check_sink, open, open_sink, open_to_read, open_with, shown,
};
pub use query::{
    BOUNDS_US, Buckets, Dimension, Filter, Group, Period, Query, Report, Sums, Wanted, WordSeen,
};
pub use refused::{Reloaded, STORE, load_refused, refused};
pub use sink::{Entry, Loaded, Pace, Sink, Store, Stored};
pub use when::When;
