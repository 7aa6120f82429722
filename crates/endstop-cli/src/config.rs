//! The user's own providers and words.

use std::path::Path;

use anyhow::{Context, Result};
use endstop::registry::Registry;

/// The built-in providers, and those of this file.
pub(crate) fn registry(file: Option<&Path>) -> Result<Registry> {
    let mut registry = Registry::default();
    if let Some(file) = file {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        registry.add_toml(&file.to_string_lossy(), &text)?;
    }
    Ok(registry)
}
