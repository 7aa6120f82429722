//! The gateway: a streaming reverse proxy that knows how every response ended.
//!
//! Each client speaks its provider's own wire; nothing is translated, and what is well passes
//! byte for byte. In **observe** nothing is changed at all. In **guard**, the default, a response
//! that ended badly without saying so is made to say so: the wire's own error, then an aborted
//! transport, so that no client takes it for a finished one.
//!
//! ```text
//! listener -> serve: route, admit, ask -> relay: read, guard, pass on -> told
//!    peer                connect, sign             decode                 admin
//! ```
//!
//! ```no_run
//! # async fn run() -> Result<(), endstop_gateway::Error> {
//! use endstop_gateway::{Config, Gateway};
//!
//! let gateway = Gateway::bind(Config::default()).await?;
//! println!("point an SDK at http://{}/openai/v1", gateway.address());
//! gateway.run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod admin;
mod admit;
mod callers;
mod client;
pub mod config;
pub mod disposition;
mod error;
mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gateway;
mod listener;
mod memory;
mod path;
mod rates;
mod reload;
mod respond;
mod retries;
pub mod route;
mod serve;
mod settings;
mod upstream;
pub mod watch;

pub use config::Config;
pub use error::Error;
pub use gateway::{Checked, Gateway, Handle};
pub use reload::Reloaded;
pub use respond::guard;
pub use settings::Settings;
