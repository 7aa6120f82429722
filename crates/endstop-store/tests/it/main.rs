//! One suite for every backend: SQLite, a real Postgres, the same through a pooler in transaction mode, and
//! ClickHouse. The servers are started by the tests and end with them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that panics has failed, which is what it is for"
)]

mod backfill;
mod clickhouse;
mod cluster;
mod counts;
mod foreign;
mod migration;
mod model;
mod outage;
mod places;
mod plans;
mod refusals;
mod suite;
