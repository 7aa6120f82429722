//! Arguments that choose a store and filter its endings.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use endstop_gateway::Config;
use endstop_gateway::config::default_data_dir;
use endstop_store::{Filter, Store};

use crate::exit;

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

    /// Returns a command that uses the same store.
    pub(crate) fn command(&self, name: &str) -> Result<String> {
        Ok(command(name, &self.url()?, self.config()))
    }

    /// Returns the gateway's configuration.
    pub(crate) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Opens the store for reading.
    pub(crate) fn open(&self) -> Result<Box<dyn Store>> {
        let url = self.url()?;
        endstop_store::open_to_read(&url).map_err(|error| {
            // Nothing creates a store with such an address.
            if matches!(error, endstop_store::Error::Url { .. }) {
                return exit::invalid(error);
            }
            anyhow::Error::new(error).context(format!(
                "cannot read endings from {} (`endstop serve` creates it, `--store` names another)",
                endstop_store::shown(&url)
            ))
        })
    }
}

/// Returns the command that prints the reports of the store of a gateway with this configuration.
pub(crate) fn report_command(url: &str, config: Option<&Path>) -> String {
    command("report", url, config)
}

/// Returns a command on the store of a gateway with this configuration.
fn command(name: &str, url: &str, config: Option<&Path>) -> String {
    // Another shell may not have the variables of this one.
    let is_same = url.starts_with("postgres") || std::env::var_os("ENDSTOP_DATA").is_none();
    let is_found = |store: &StoreArgs| is_same && store.url().is_ok_and(|found| found == url);
    if is_found(&StoreArgs { store: None, config: None }) {
        return format!("endstop {name}");
    }
    if let Some(file) = config
        && is_found(&StoreArgs { store: None, config: Some(file.to_owned()) })
    {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        return format!("endstop {name} --config {}", quoted(&file.display().to_string()));
    }
    if let Some(file) = url.strip_prefix("sqlite:") {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.into());
        return format!("endstop {name} --store {}", quoted(&format!("sqlite:{}", file.display())));
    }
    if endstop_store::shown(url) == url {
        return format!("endstop {name} --store {}", quoted(url));
    }
    // A password is not shown.
    format!("ENDSTOP_STORE=… endstop {name}")
}

/// Returns a text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:@=,+%".contains(letter);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_for_reports_finds_the_store_and_shows_no_password() {
        let folder = std::env::temp_dir().join(format!("endstop store {}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("it's.toml");
        let configured = "postgres://u:secret@h/d";
        std::fs::write(&file, format!("store = \"{configured}\"")).unwrap();
        let of_config = report_command(configured, Some(&file));
        let other = report_command("postgres://u:secret@h/e", Some(&file));
        let plain = report_command("postgres://u@h/e", Some(&file));
        let local = report_command("sqlite:/a b.db", None);
        let usual = default_url().map(|url| report_command(&url, None));
        std::fs::remove_dir_all(&folder).unwrap();
        let path = file.display().to_string().replace('\'', "'\\''");
        assert_eq!(of_config, format!("endstop report --config '{path}'"));
        assert_eq!(other, "ENDSTOP_STORE=… endstop report");
        assert_eq!(plain, "endstop report --store postgres://u@h/e");
        assert_eq!(local, "endstop report --store 'sqlite:/a b.db'");
        if std::env::var_os("ENDSTOP_DATA").is_none() {
            assert!(usual.is_err() || usual.is_ok_and(|usual| usual == "endstop report"));
        }
    }
}
