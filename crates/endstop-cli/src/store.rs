//! Arguments that choose a store and filter its endings.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use endstop_gateway::Config;
use endstop_gateway::config::default_data_dir;
use endstop_store::{Filter, Store};

/// Store to use.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// Store of the endings: `sqlite:FILE` or `postgres://…`; by default the one of --config, or the
    /// gateway's default
    #[arg(long, value_name = "URL", env = "ENDSTOP_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Configuration of the gateway, which names the store
    #[arg(long, value_name = "FILE", env = "ENDSTOP_CONFIG")]
    config: Option<PathBuf>,
}

impl StoreArgs {
    /// Returns the URL of the store.
    pub(crate) fn url(&self) -> Result<String> {
        match (&self.store, &self.config) {
            (Some(url), _) => Ok(url.clone()),
            (None, Some(file)) => {
                let config = Config::from_file(file)?;
                if config.store.is_none() && config.store_env.is_none() {
                    return Ok(format!(
                        "sqlite:{}",
                        config.data_dir()?.join("endstop.db").display()
                    ));
                }
                config.store()?.with_context(|| {
                    format!("{} records nothing: it has `store = \"off\"`", file.display())
                })
            }
            (None, None) => default_url(),
        }
    }

    /// Returns the gateway's configuration.
    pub(crate) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Opens the store for reading.
    pub(crate) fn open(&self) -> Result<Box<dyn Store>> {
        let url = self.url()?;
        endstop_store::open_to_read(&url).with_context(|| {
            format!(
                "cannot read endings from {} (`endstop serve` creates it, `--store` names another)",
                endstop_store::shown(&url)
            )
        })
    }
}

/// Returns the URL of the default store of `endstop serve`.
pub(crate) fn default_url() -> Result<String> {
    let dir =
        default_data_dir().context("no home directory found: set --store or ENDSTOP_STORE")?;
    Ok(format!("sqlite:{}", dir.join("endstop.db").display()))
}

/// Filter for endings.
#[derive(clap::Args)]
pub(crate) struct FilterArgs {
    /// Only this team
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// Only this key id
    #[arg(long, value_name = "KEY_ID")]
    key: Option<String>,
    /// Only this provider
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Only this model; `*` matches anything
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Only this upstream
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// Only this Endstop reason, such as `output_limit`
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Only this normalised finish reason, such as `length`; `null` for a missing one
    #[arg(long, value_name = "WORD")]
    finish_reason: Option<String>,
}

impl FilterArgs {
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            team: self.team.clone(),
            key: self.key.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            upstream: self.upstream.clone(),
            reason: self.reason.clone(),
            finish_reason: self.finish_reason.clone(),
        }
    }
}
