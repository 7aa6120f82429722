//! Exporters as sinks of the spool: what an endpoint has not taken waits there.

use std::sync::{Arc, Mutex, PoisonError};

use endstop_export::{Exporter, Metrics, Noted};
use endstop_store::{Entry, Error as StoreError, Loaded, Sink};
use zeroize::Zeroizing;

use crate::config::{Config, secret};
use crate::error::Error;

/// A function that opens a sink, once and again.
pub(crate) type Open = Box<dyn FnMut() -> Result<Box<dyn Sink>, StoreError> + Send>;

/// Opens a sink of the configuration once, such as to load refused endings again.
///
/// # Errors
/// A setting is wrong, or the sink cannot be opened.
pub fn open_sink(config: &Config, name: &str, url: &str) -> Result<Box<dyn Sink>, Error> {
    Ok(opener(config, name, url, None)?()?)
}

/// Returns the function that opens a sink. The settings of an exporter are checked now.
///
/// # Errors
/// A setting of an exporter is wrong.
pub(crate) fn opener(
    config: &Config,
    name: &str,
    url: &str,
    metrics: Option<Arc<Metrics>>,
) -> Result<Open, Error> {
    let setting = format!("sinks.{name}");
    let wrong = |message: String| Error::Setting { name: setting.clone(), message };
    let sink = config.sinks.get(name);
    let (env, file) =
        sink.map(|sink| (sink.token_env.as_deref(), sink.token_file.as_deref())).unzip();
    let (env, file) = (env.flatten(), file.flatten());
    let url = url.to_owned();
    if !endstop_export::is_exporter(&url) {
        return Ok(Box::new(move || endstop_store::open_sink(&url)));
    }
    let token = secret(&setting, env, file)?.map(|token| Zeroizing::new(token.expose().to_owned()));
    let exporter = endstop_export::open(&url, token, metrics);
    let exporter = exporter.map_err(|error| match error {
        endstop_export::Error::Setting { name, message } => wrong(format!("{name}: {message}")),
        error @ (endstop_export::Error::Unavailable { .. }
        | endstop_export::Error::Refused { .. }
        | _) => wrong(error.to_string()),
    })?;
    // It remembers for how long its endpoint asked to wait.
    let exporter = Arc::new(Mutex::new(exporter));
    Ok(Box::new(move || Ok(Box::new(ExportSink(exporter.clone())))))
}

/// An exporter that takes the entries of the spool.
struct ExportSink(Arc<Mutex<Box<dyn Exporter>>>);

impl Sink for ExportSink {
    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, StoreError> {
        let noted: Vec<Noted<'_>> = entries
            .iter()
            .map(|entry| Noted { record: &entry.record, sequence: entry.sequence })
            .collect();
        let mut exporter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = exporter.send(&noted).map_err(of_store)?;
        let added = (entries.len() as u64).saturating_sub(refused.len() as u64);
        Ok(Loaded { added, refused, ..Loaded::default() })
    }

    fn tend(&mut self) -> Result<bool, StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tend().map_err(of_store)?;
        Ok(false)
    }
}

fn of_store(error: endstop_export::Error) -> StoreError {
    use endstop_export::Error as Export;
    match error {
        Export::Unavailable { exporter, why, .. } => {
            StoreError::Unavailable { store: exporter, why }
        }
        Export::Refused { exporter, why } => StoreError::Refused { store: exporter, why },
        error @ (Export::Setting { .. } | _) => {
            StoreError::Refused { store: "the exporter".to_owned(), why: error.to_string() }
        }
    }
}
