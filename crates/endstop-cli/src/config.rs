//! Custom providers and finish reasons.

use std::path::Path;

use anyhow::Result;
use endstop::registry::Registry;
use endstop_gateway::Config;
use endstop_turn::policy::Policy;

/// Returns the built-in providers and those of this file. The file has tables of providers alone,
/// or is the gateway's configuration, which may contain them or name their file.
pub(crate) fn registry(file: Option<&Path>) -> Result<Registry> {
    match file {
        Some(file) => Ok(Config::from_file(file)?.registry),
        None => Ok(Registry::default()),
    }
}

/// Returns the policy of this file, or the default if the file has none.
pub(crate) fn policy(file: Option<&Path>) -> Result<Policy> {
    let Some(file) = file else { return Ok(Policy::default()) };
    let policy = Config::from_file(file)?.policy;
    let usual = Policy { name: policy.name.clone(), ..Policy::default() };
    Ok(if policy == usual { Policy::default() } else { policy })
}
