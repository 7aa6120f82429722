//! The user's own providers and words.

use std::path::Path;

use anyhow::Result;
use endstop::registry::Registry;
use endstop_gateway::Config;

/// The built-in providers, and those of this file: tables of providers alone, or the gateway's
/// configuration, which may hold or name them.
pub(crate) fn registry(file: Option<&Path>) -> Result<Registry> {
    match file {
        Some(file) => Ok(Config::from_file(file)?.registry),
        None => Ok(Registry::default()),
    }
}
