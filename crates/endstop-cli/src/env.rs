//! `endstop env`: prints the settings that point SDKs at the gateway.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use endstop::provider::{self, Provider};

/// Print the settings that point each SDK at the gateway
#[derive(Parser)]
#[command(after_help = "\
Examples:
  eval \"$(endstop env)\"    set the variables that SDKs read")]
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
    Bash,
    Fish,
    Powershell,
}

impl Shell {
    fn set(self, name: &str, value: &str) -> String {
        match self {
            Self::Bash => format!("export {name}='{value}'"),
            Self::Fish => format!("set -gx {name} '{value}'"),
            Self::Powershell => format!("$Env:{name} = '{value}'"),
        }
    }
}

/// Base URLs to set in code. SDKs differ in the part of the path that they add.
const IN_CODE: &[(&str, &str)] = &[
    ("openai (Python, npm)", "/openai/v1"),
    ("anthropic (Python, npm)", "/anthropic"),
    ("google-genai, @google/genai", "/gemini"),
    ("@ai-sdk/openai", "/openai/v1"),
    ("@ai-sdk/anthropic", "/anthropic/v1"),
    ("@ai-sdk/google", "/gemini/v1beta"),
    ("@ai-sdk/openai-compatible", "/<upstream>/v1"),
    ("boto3 bedrock-runtime (endpoint_url)", "/bedrock/<region>"),
    ("mistralai (server_url)", "/mistral"),
    ("cohere (base_url)", "/cohere"),
    ("ollama (host)", "/ollama"),
    ("AzureOpenAI (azure_endpoint)", "/azure/<resource>"),
    ("langchain-openai, pydantic-ai, openai-agents", "/openai/v1"),
    ("langchain-anthropic", "/anthropic"),
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let url = args.url.trim_end_matches('/');
    if !(url.starts_with("http://") || url.starts_with("https://")) || url.contains(['\'', ' ']) {
        bail!("invalid URL `{url}`: expected http:// or https://, without quotes or spaces");
    }
    let mut out = io::stdout().lock();
    writeln!(out, "# Variables that SDKs read:")?;
    for provider in provider::ALL {
        for name in provider.url_variables {
            if let Some(path) = path_of(provider, name) {
                writeln!(out, "{}", args.shell.set(name, &format!("{url}{path}")))?;
            }
        }
    }
    writeln!(out, "#\n# Base URLs to set in code:")?;
    for (sdk, path) in IN_CODE {
        writeln!(out, "#   {sdk:<46} {url}{path}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the path that the SDK behind this variable expects. Returns `None` if the path differs
/// by customer, or if an earlier provider has the same variable.
fn path_of(provider: &Provider, variable: &str) -> Option<String> {
    let first = provider::ALL.iter().find(|other| other.url_variables.contains(&variable))?;
    if first.id != provider.id || provider.base_url.contains('{') || provider.base_url.is_empty() {
        return None;
    }
    let (_, rest) = provider.base_url.split_once("://")?;
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("");
    Some(format!("/{}{path}", provider.route))
}

/// Returns the lines that the gateway prints when it starts.
pub(crate) fn first_lines(url: &str) -> Vec<String> {
    let shown =
        IN_CODE.iter().filter(|(sdk, _)| !sdk.contains("sdk/") || sdk.contains("@ai-sdk/a"));
    shown.take(6).map(|(sdk, path)| format!("{sdk:<38} {url}{path}")).collect()
}
