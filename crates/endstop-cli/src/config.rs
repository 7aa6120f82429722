//! Custom providers and finish reasons.

use std::path::Path;

use anyhow::Result;
use endstop::registry::Registry;
use endstop_gateway::Config;

/// Returns the built-in providers and those of this file. The file has tables of providers alone,
/// or is the gateway's configuration, which may contain them or name their file.
pub(crate) fn registry(file: Option<&Path>) -> Result<Registry> {
    match file {
        Some(file) => Ok(Config::from_file(file)?.registry),
        None => Ok(Registry::default()),
    }
}
