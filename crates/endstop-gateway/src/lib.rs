//! The gateway: a streaming reverse proxy that knows how every response ended.
//!
//! Each client uses its provider's own format. Nothing is translated, and complete responses pass byte
//! for byte. In **observe** mode nothing is changed. In **guard** mode, the default, a response that
//! ended badly without saying so becomes an error in the provider's own format; if clients overlook that
//! error, the connection is aborted too. A tool call reaches the client only once its end is proven.
//!
//! ```text
//! listener -> serve -> admit -> exchange: ask the upstream -> respond: plain or streamed -> watch
//!  client               route     upstream                     guard, disposition          log, record, admin
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
pub use reload::{Reloaded, restart_keys};
pub use respond::guard;
pub use settings::Settings;
pub use watch::exporting::open_sink;
