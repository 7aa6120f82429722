//! `endstop env`: what to set so that SDKs talk to the gateway.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use endstop::provider::{self, Provider};

/// Prints what to set for each SDK to talk to the gateway.
#[derive(Parser)]
#[command(
    after_help = "  eval \"$(endstop env)\"        sets the variables that SDKs read by themselves"
)]
pub(crate) struct Args {
    /// Where the gateway is.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4100")]
    url: String,
    /// The shell to write for.
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

/// Base URLs that are given in code, because SDKs differ in how much of the path they bring.
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

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let url = args.url.trim_end_matches('/');
    if !(url.starts_with("http://") || url.starts_with("https://")) || url.contains(['\'', ' ']) {
        bail!("`{url}` is no URL: it begins with http:// or https://");
    }
    let mut out = io::stdout().lock();
    writeln!(out, "# Variables that SDKs read by themselves:")?;
    for provider in provider::ALL {
        for name in provider.url_variables {
            if let Some(path) = path_of(provider, name) {
                writeln!(out, "{}", args.shell.set(name, &format!("{url}{path}")))?;
            }
        }
    }
    writeln!(out, "#\n# Base URLs to give in code:")?;
    for (sdk, path) in IN_CODE {
        writeln!(out, "#   {sdk:<46} {url}{path}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The path that the SDK which reads this variable wants; none where it differs by customer, or
/// where several providers read the same variable and the first has it.
fn path_of(provider: &Provider, variable: &str) -> Option<String> {
    let first = provider::ALL.iter().find(|other| other.url_variables.contains(&variable))?;
    if first.id != provider.id || provider.base_url.contains('{') || provider.base_url.is_empty() {
        return None;
    }
    let (_, rest) = provider.base_url.split_once("://")?;
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("");
    Some(format!("/{}{path}", provider.route))
}

/// The lines that the gateway shows when it starts.
pub(crate) fn first_lines(url: &str) -> Vec<String> {
    let shown =
        IN_CODE.iter().filter(|(sdk, _)| !sdk.contains("sdk/") || sdk.contains("@ai-sdk/a"));
    shown.take(6).map(|(sdk, path)| format!("{sdk:<38} {url}{path}")).collect()
}
