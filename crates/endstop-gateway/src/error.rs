//! Errors of the gateway as a whole.

/// An error that keeps the gateway from starting or from reloading its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong.
    #[error("{file}{}: {message}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
    Config {
        /// The file.
        file: String,
        /// The line, where it is known.
        line: Option<usize>,
        /// Description of the mistake.
        message: String,
    },
    /// A setting is wrong or missing.
    #[error("{name}: {message}")]
    Setting {
        /// Name of the setting.
        name: String,
        /// Description of the mistake.
        message: String,
    },
    /// A key or token is wrong or missing.
    #[error("{what}: {message}")]
    Secret {
        /// Name of the setting.
        what: String,
        /// Description of the mistake.
        message: String,
    },
    /// An upstream is wrong.
    #[error("upstream `{name}`: {message}")]
    Upstream {
        /// Name of the upstream.
        name: String,
        /// Description of the mistake.
        message: String,
    },
    /// The listener and the keys do not go together.
    #[error("{0}")]
    Exposed(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {}", said(.setting, .source))]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Setting that names it: `listen` or `admin`.
        setting: &'static str,
        /// Cause.
        source: std::io::Error,
    },
    /// The store of endings is wrong, or its spool cannot be used.
    #[error("the record of endings: {0}")]
    Store(#[from] endstop_store::Error),
    /// The data directory cannot be used.
    #[error("the data directory {dir} cannot be used: {source}; name another with `data`")]
    Data {
        /// The directory.
        dir: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {file}: {message}")]
    Unreadable {
        /// The file.
        file: String,
        /// Cause.
        message: String,
    },
    /// Certificates are wrong.
    #[error("{file}: {message}")]
    Certificate {
        /// The file.
        file: String,
        /// Description of the mistake.
        message: String,
    },
}

impl From<endstop::registry::ProviderFileError> for Error {
    fn from(error: endstop::registry::ProviderFileError) -> Self {
        let endstop::registry::ProviderFileError { file, line, message, .. } = error;
        Self::Config { file, line: Some(line), message }
    }
}

impl From<endstop_turn::policy::PolicyFileError> for Error {
    fn from(error: endstop_turn::policy::PolicyFileError) -> Self {
        let endstop_turn::policy::PolicyFileError { file, line, key, message, .. } = error;
        Self::Config { file, line: Some(line), message: format!("`{key}`: {message}") }
    }
}

fn said(setting: &str, error: &std::io::Error) -> String {
    let known = [
        (
            std::io::ErrorKind::AddrInUse,
            "the port is taken; stop the other program, or choose another port",
        ),
        (std::io::ErrorKind::PermissionDenied, "not permitted; choose a port above 1023"),
    ];
    match known.iter().find(|(kind, _)| *kind == error.kind()) {
        Some((_, words)) => format!("{words} with `{setting}` (`--{setting}`)"),
        None => error.to_string(),
    }
}
