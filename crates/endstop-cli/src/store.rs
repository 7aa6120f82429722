//! Which store is asked.

use anyhow::{Context as _, Result};
use endstop_gateway::config::default_data_dir;
use endstop_store::{Backend, Filter};

/// Which store, and how it is named.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// Where endings are kept: `sqlite:FILE` or `postgres://…`; the gateway's own by default
    #[arg(long, value_name = "URL", env = "ENDSTOP_STORE", hide_env_values = true)]
    store: Option<String>,
}

impl StoreArgs {
    /// The store's address.
    pub(crate) fn url(&self) -> Result<String> {
        match &self.store {
            Some(url) => Ok(url.clone()),
            None => default_url(),
        }
    }

    /// Opens it to ask it.
    pub(crate) fn open(&self) -> Result<Box<dyn Backend>> {
        let url = self.url()?;
        endstop_store::open_to_read(&url).with_context(|| {
            format!(
                "the endings in {} cannot be read; `endstop serve` keeps them, `--store` names others",
                endstop_store::shown(&url)
            )
        })
    }
}

/// Where `endstop serve` keeps endings unless it is told otherwise.
pub(crate) fn default_url() -> Result<String> {
    let dir = default_data_dir()
        .context("there is no home directory; name a store with --store or ENDSTOP_STORE")?;
    Ok(format!("sqlite:{}", dir.join("endstop.db").display()))
}

/// Which responses; `*` stands for anything, `null` for none.
#[derive(clap::Args)]
pub(crate) struct FilterArgs {
    /// Of this team
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// Of this key, by its id
    #[arg(long, value_name = "KEY_ID")]
    key: Option<String>,
    /// Of this provider
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Of this model; `*` stands for anything
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Through this upstream
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// With this reason of ours, such as `output_limit`
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// With this finish reason, such as length; `null` where nothing was said
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
