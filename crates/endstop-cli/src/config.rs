//! Custom providers and finish reasons.

use std::path::Path;

use anyhow::Result;
use endstop::registry::Registry;
use endstop_gateway::Config;
use endstop_turn::policy::Policy;

/// Returns the built-in providers and those of this file. The file has tables of providers alone,
/// or is the gateway's configuration, which may contain them or name their file, or is a policy.
pub(crate) fn registry(file: Option<&Path>) -> Result<Registry> {
    match file {
        Some(file) => Ok(read(file)?.registry),
        None => Ok(Registry::default()),
    }
}

/// Returns the policy of this file, or the default if the file has none.
pub(crate) fn policy(file: Option<&Path>) -> Result<Policy> {
    let Some(file) = file else { return Ok(Policy::default()) };
    let policy = read(file)?.policy;
    let usual = Policy { name: policy.name.clone(), ..Policy::default() };
    Ok(if policy == usual { Policy::default() } else { policy })
}

/// Reads the gateway's configuration, or a file with a policy alone, which has keys that the gateway refuses.
fn read(file: &Path) -> Result<Config> {
    let refused = match Config::from_file(file) {
        Ok(config) => return Ok(config),
        Err(refused) => refused,
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    match Policy::from_toml(&file.display().to_string(), &text) {
        Ok(policy) => Ok(Config { policy, ..Config::default() }),
        // Its mistakes are told as those of a configuration, which has all of its tables.
        Err(_) => Err(refused.into()),
    }
}
