//! `endstop env`: prints the settings that point SDKs and agents at the gateway.

mod agents;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use endstop::provider::{self, Provider, SdkUrl, Setting};

/// Print the settings that point SDKs and agents at the gateway
#[derive(Parser)]
#[command(after_help = "\
Examples:
  eval \"$(endstop env)\"                                               bash
  eval \"$(endstop env --shell zsh)\"                                   zsh
  endstop env --shell fish | source                                  fish
  endstop env --shell powershell | Out-String | Invoke-Expression    PowerShell")]
pub(crate) struct Args {
    /// URL of the gateway
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4100")]
    url: String,
    /// Shell to print for
    #[arg(long, value_enum, default_value = "bash")]
    shell: Shell,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    #[value(alias = "sh")]
    Bash,
    Zsh,
    Fish,
    Powershell,
}

impl Shell {
    fn set(self, name: &str, value: &str) -> String {
        match self {
            Self::Bash | Self::Zsh => format!("export {name}='{value}'"),
            Self::Fish => format!("set -gx {name} '{value}'"),
            Self::Powershell => format!("$Env:{name} = '{value}'"),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let text = page(checked(&args.url)?, args.shell);
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the URL without slashes at its end.
///
/// The output is run by a shell, so that only characters without a meaning in shells are allowed.
fn checked(url: &str) -> Result<&str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~%:/[]".contains(c);
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if !url.chars().all(allowed) || !is_host(host) {
        bail!(
            "invalid URL `{}`: expected http:// or https://, a host, and optionally a port and a path, \
             without user, query or fragment",
            endstop::text::clean(url, 200)
        );
    }
    Ok(url.trim_end_matches('/'))
}

/// Reports whether this is a host, with or without a port.
fn is_host(text: &str) -> bool {
    let after_address = text.rfind(']').and_then(|end| text.get(end..)).unwrap_or(text);
    let (_, port) = after_address.split_once(':').unwrap_or(("", "0"));
    !text.is_empty() && !text.starts_with(':') && port.parse::<u16>().is_ok()
}

/// Returns the settings. Lines that a shell does not run are comments.
fn page(url: &str, shell: Shell) -> String {
    let (mut ready, mut open, mut code) = (String::new(), String::new(), String::new());
    for (provider, sdk_url) in settings() {
        let value = format!("{url}{}", path(provider, sdk_url));
        let sdks = sdk_url.sdks.join(", ");
        let _ = match sdk_url.setting {
            Setting::Variable(name) if value.contains('{') => {
                writeln!(open, "# {}  # {sdks}", shell.set(name, &value))
            }
            Setting::Variable(name) => writeln!(ready, "{}  # {sdks}", shell.set(name, &value)),
            Setting::Argument(name) => writeln!(code, "#   {:<52} {value}", in_code(&sdks, name)),
        };
    }
    format!(
        "# Variables that SDKs read:\n{ready}\
         #\n# Variables with a part to fill in:\n{open}\
         #\n# Base URLs to set in code:\n{code}\
         #\n# Agents:\n{}",
        agents::lines(url)
    )
}

fn settings() -> impl Iterator<Item = (&'static Provider, &'static SdkUrl)> {
    provider::ALL
        .iter()
        .flat_map(|provider| provider.sdk_urls.iter().map(move |sdk_url| (*provider, sdk_url)))
}

/// Returns the path of an SDK's base URL at the gateway.
pub(crate) fn path(provider: &Provider, sdk_url: &SdkUrl) -> String {
    // A provider without a base URL is an upstream that the user names.
    let route = if provider.base_url.is_empty() { "{upstream}" } else { provider.route };
    format!("/{route}{}", sdk_url.path)
}

fn in_code(sdks: &str, argument: &str) -> String {
    format!("{sdks}: {argument}")
}

/// Returns a base URL for each provider that is served: the first of its settings without a part to
/// fill in.
pub(crate) fn base_urls(url: &str, is_served: impl Fn(&str) -> bool) -> Vec<String> {
    let served = provider::ALL.iter().filter(|provider| is_served(provider.route));
    let line = |provider: &Provider| {
        let paths = provider.sdk_urls.iter().map(|sdk_url| (sdk_url, path(provider, sdk_url)));
        let (sdk_url, path) = { paths }.find(|(_, path)| !path.contains('{'))?;
        Some(match sdk_url.setting {
            Setting::Variable(name) => format!("{name}={url}{path}"),
            Setting::Argument(name) => format!("{}: {name}={url}{path}", provider.title),
        })
    };
    served.filter_map(|provider| line(provider)).collect()
}

/// Returns the lines that the gateway prints when it starts: the most common variables.
pub(crate) fn first_lines(url: &str, is_served: impl Fn(&str) -> bool) -> Vec<String> {
    let served = settings().filter(|(provider, _)| is_served(provider.route));
    let variables = served.filter_map(|(provider, sdk_url)| match sdk_url.setting {
        Setting::Variable(name) => Some((name, path(provider, sdk_url))),
        Setting::Argument(_) => None,
    });
    let ready = variables.filter(|(_, path)| !path.contains('{'));
    ready.take(4).map(|(name, path)| format!("{name:<24} {url}{path}")).collect()
}
