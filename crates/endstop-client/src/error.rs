//! Errors: requests that could not be sent. What a provider answers is an ending, not an error.

use endstop::chat::Unwritable;

/// Reason why a request could not be made.
///
/// Whatever happens after a request was sent is part of a [`ChatResponse`](crate::ChatResponse).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model's name has no provider.
    #[error("invalid model `{model}`: expected `provider/model`, such as `openai/gpt-5`")]
    Model {
        /// Name as given.
        model: String,
    },
    /// The provider is not known.
    #[error("unknown provider `{name}`{}", meant(.nearest))]
    UnknownProvider {
        /// Name as given.
        name: String,
        /// Known name that is most similar, if one is.
        nearest: Option<String>,
    },
    /// The provider does not speak the wire that the model's name asks for.
    #[error("`{provider}` has no wire `{wire}`: expected one of {known}")]
    UnknownWire {
        /// Provider.
        provider: String,
        /// Wire as given.
        wire: String,
        /// Wires whose requests can be written.
        known: String,
    },
    /// No key is known for the provider.
    #[error("no key for `{provider}`: set {variables}, or pass one to `ClientBuilder::key`")]
    NoKey {
        /// Provider.
        provider: String,
        /// Environment variables that hold its key.
        variables: String,
    },
    /// No base URL is known for the provider.
    #[error("no base URL for `{provider}`: {}pass one to `ClientBuilder::base_url`", or(.variable))]
    NoBaseUrl {
        /// Provider.
        provider: String,
        /// Variable that holds the missing part, in words, such as ``` `AZURE_RESOURCE` to your resource ```.
        variable: Option<String>,
    },
    /// A base URL is not valid.
    #[error(
        "invalid base URL `{url}` for `{provider}`{}: expected `http://` or `https://` and a host",
        from(.origin)
    )]
    BaseUrl {
        /// Provider.
        provider: String,
        /// URL as given.
        url: String,
        /// Variable or setting that it comes from; empty if it is the provider's own.
        origin: String,
    },
    /// A key contains characters that no header can carry.
    #[error(
        "invalid key for `{provider}` (from {origin}): it contains a line break or another control character"
    )]
    Key {
        /// Provider.
        provider: String,
        /// Where the key comes from.
        origin: String,
    },
    /// The cost is limited, and the price of the model is not known.
    #[error(
        "no price for `{provider}/{model}`: the cost limit cannot be kept; add the price to `[prices]` or `Policy::prices`, or remove the limit"
    )]
    NoPrice {
        /// Provider.
        provider: String,
        /// Model.
        model: String,
    },
    /// The wire cannot express the request.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
    /// The schema of a tool is not a valid JSON Schema.
    #[error("invalid schema of the tool `{tool}`: {message}")]
    ToolSchema {
        /// Name of the tool.
        tool: String,
        /// Mistake.
        message: String,
    },
    /// Two tools have the same name.
    #[error("two tools are named `{tool}`: names must be unique")]
    ToolTwice {
        /// Name of both.
        tool: String,
    },
    /// A tool's name is not accepted by providers.
    #[error("invalid tool name `{tool}`: expected 1 to 64 letters, digits, `_` and `-`")]
    ToolName {
        /// Name as given.
        tool: String,
    },
    /// The TLS library or the root certificates cannot be used.
    #[error("TLS cannot be set up: {message}")]
    Tls {
        /// Cause.
        message: String,
    },
    /// Credentials for signed requests are missing.
    #[error("no AWS credentials for `{provider}`: {what}")]
    Credentials {
        /// Provider.
        provider: String,
        /// What to set.
        what: String,
    },
    /// A saved run cannot be used.
    #[error("the saved run cannot be resumed: {message}")]
    Saved {
        /// Cause.
        message: String,
    },
    /// The file of a run belongs to a run that is under way.
    #[error("{path}: another process or task goes on with this run")]
    RunBusy {
        /// File.
        path: String,
    },
    /// A configuration file has a mistake.
    #[error("{message}")]
    Config {
        /// File, line and mistake.
        message: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {message}")]
    File {
        /// Path.
        path: String,
        /// Cause.
        message: String,
    },
}

fn from(origin: &str) -> String {
    if origin.is_empty() { String::new() } else { format!(" (from {origin})") }
}

fn or(variable: &Option<String>) -> String {
    variable.as_ref().map_or_else(String::new, |variable| format!("set {variable}, or "))
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}
