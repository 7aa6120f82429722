//! `endstop sim`: serves simulated providers, to test agents against.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use endstop_sim::{Chunks, LedgerEntry, Options, ResponseEnd, Scenario, Sim, scenario, wire};

use crate::number;
use crate::style::Style;
use crate::{env, exit, when};

/// Serve simulated providers, to test an agent against every kind of ending
///
/// Point an SDK at one of the printed base URLs and choose a scenario: with the model name
/// (`cut-in-tool-call`, or after a real name and a colon: `claude-haiku-4-5:cut-in-tool-call`), with
/// the header `x-sim-scenario`, or for all requests with `--scenario`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop sim                                  each request chooses by its model or header
  endstop sim --scenario cut-in-tool-call      all requests get this scenario
  endstop sim --scenario length,complete       the first gets `length`, all others `complete`
  endstop sim --tool Bash --command 'echo ran >> ran.txt'
                                               calls the tool of an agent
  endstop sim --list                           every scenario and its source
  curl localhost:4190/v1/chat/completions -d '{\"model\":\"length\",\"messages\":[]}'

Request headers: x-sim-scenario, x-sim-pace (ms), x-sim-chunks, x-sim-seed, x-sim-tag.
If the last message is a tool result, the answer is a short complete text, so that agents finish.
A scenario name that ends with `!` is used even then. The model name or the header may hold a list,
such as `gpt-5:cut-after-args,complete`: the first request gets the first scenario, all others the last.

Truncated answers can be continued: `claude-haiku-4-5:story=500` writes 500 words, and a request with a
prefill, a provider's token or a hint gets the rest from exactly where it stopped. Real model names keep
the rules of the model: one that rejects a prefill does so here. The first part of the path names the
host: /vllm/v1, /deepseek/beta, /mistral/v1.")]
pub(crate) struct Args {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4190",
          value_parser = number::address)]
    listen: SocketAddr,
    /// Scenario for all requests, or one per request; the last one repeats
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    scenario: Vec<String>,
    /// File with one scenario per request: one name per line, or TOML with `scenarios = [...]`
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    script: Option<PathBuf>,
    /// Names of tools to call: the first one that the request declares. If it declares none of them,
    /// the response is short and complete. Without this option the first tool is called
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    tool: Vec<String>,
    /// Shell command for tools that take one
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// Pause after each event, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = number::whole::<u64>,
          allow_negative_numbers = true)]
    pace: u64,
    /// Split of bodies into HTTP chunks: event, random, byte or joined
    #[arg(long, value_name = "HOW", default_value = "event", value_parser = parse_chunks)]
    chunks: Chunks,
    /// List every scenario and exit
    #[arg(long)]
    list: bool,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
    /// Do not print a line per request
    #[arg(long, short)]
    quiet: bool,
}

fn parse_chunks(name: &str) -> Result<Chunks, String> {
    Chunks::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Chunks::ALL.into_iter().map(Chunks::name).collect();
        format!("expected one of {}", known.join(", "))
    })
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        let text = if args.json { json() } else { listing(Style::of_stdout()) };
        io::stdout().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let scenarios = scenarios(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args, scenarios))
}

fn scenarios(args: &Args) -> Result<Vec<String>> {
    let Some(file) = &args.script else { return Ok(args.scenario.clone()) };
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    endstop_sim::read_script(&text).map_err(|error| anyhow!("{}: {error}", file.display()))
}

async fn serve(args: &Args, scenarios: Vec<String>) -> Result<ExitCode> {
    let style = Style::of_stdout();
    let options = Options {
        listen: args.listen,
        scenarios,
        tools: args.tool.clone(),
        command: args.command.clone(),
        pace: Duration::from_millis(args.pace),
        chunks: args.chunks,
        log: (!args.quiet).then(|| -> endstop_sim::Log {
            Arc::new(move |entry| {
                // A closed stdout must not stop the simulator.
                let _written = writeln!(io::stdout(), "{}", line(entry, style));
            })
        }),
        // Request bodies are not needed here.
        kept_bytes: 0,
        ..Options::default()
    };
    let sim = Sim::start(options).await.map_err(|error| explained(error, args.listen))?;
    io::stdout().write_all(welcome(&sim.url(), style).as_bytes())?;
    io::stdout().flush()?;
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")?;
    sim.stop().await;
    Ok(ExitCode::SUCCESS)
}

fn explained(error: io::Error, listen: SocketAddr) -> anyhow::Error {
    if error.kind() == io::ErrorKind::InvalidInput {
        return exit::invalid(error);
    }
    if error.kind() == io::ErrorKind::AddrInUse {
        let port = listen.port();
        return anyhow!(
            "port {port} is in use, perhaps by another `endstop sim`; choose another with --listen \
             {}:0",
            listen.ip()
        );
    }
    anyhow::Error::new(error).context(format!("cannot listen on {listen}"))
}

/// Returns the base URLs to set in the environment or in code.
fn welcome(url: &str, style: Style) -> String {
    let is_served = |route: &str| wire::ALL.iter().any(|wire| wire.route == route);
    let lines: String =
        env::base_urls(url, is_served).iter().map(|line| format!("  {line}\n")).collect();
    format!(
        "{}\n{lines}{}\n",
        style.bold(&format!("Simulated providers at {url}")),
        style.dim(
            "The model name chooses the scenario; `endstop sim --list` lists all. Ctrl-C stops."
        ),
    )
}

/// Formats one line of the log, without headers, query or text.
fn line(entry: &LedgerEntry, style: Style) -> String {
    let wire = if entry.wire.is_empty() { "-" } else { entry.wire };
    let what = if entry.scenario.is_empty() {
        let path = entry.path.split('?').next().unwrap_or_default();
        printable(&format!("{} {path}", entry.method))
    } else {
        printable(&entry.scenario)
    };
    let mode = if entry.streamed { "streamed" } else { "plain" };
    let ended = match entry.ended {
        ResponseEnd::Open => "still open",
        ResponseEnd::Itself => "played to the end",
        ResponseEnd::PeerClosed => "the client closed first",
        ResponseEnd::Stopped => "stopped",
    };
    let tail = format!("{} bytes in {} ms, {ended}", entry.written, entry.took().as_millis());
    format!("{} {wire:<18} {what:<28} {mode:<8} {:>3} {}", clock(), entry.status, style.dim(&tail))
}

/// Removes control characters, which a terminal would obey, and limits the length.
fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(80).collect()
}

/// Returns the time of day in UTC.
fn clock() -> String {
    let now = when::shown(when::now());
    format!("{}Z", now.split_once(' ').map_or("", |(_, time)| time))
}

fn title(scenario: &Scenario) -> String {
    match scenario.value {
        Some(value) => format!("{}={}", scenario.name, value.name),
        None => scenario.name.to_owned(),
    }
}

fn wires(scenario: &Scenario) -> Vec<&'static str> {
    wire::every().filter(|wire| (scenario.on)(wire)).map(|wire| wire.id).collect()
}

/// Returns the wires of a scenario, or the others if they are fewer. Empty if it is on all.
fn shown_wires(wires: &[&str]) -> String {
    let others: Vec<&str> =
        wire::every().map(|wire| wire.id).filter(|id| !wires.contains(id)).collect();
    if others.is_empty() {
        String::new()
    } else if others.len() < wires.len() {
        format!("not on {}", others.join(", "))
    } else {
        format!("on {}", wires.join(", "))
    }
}

fn listing(style: Style) -> String {
    let mut text = String::new();
    for scenario in scenario::ALL {
        let on = shown_wires(&wires(scenario));
        let _ = writeln!(text, "{}\n    {}", style.bold(&title(scenario)), scenario.about);
        if !on.is_empty() {
            let _ = writeln!(text, "    {}", style.dim(&on));
        }
        if !scenario.source.is_empty() {
            let _ = writeln!(text, "    {}", style.dim(&format!("based on {}", scenario.source)));
        }
    }
    text
}

fn json() -> String {
    let one = |scenario: &Scenario| {
        serde_json::json!({
            "name": scenario.name,
            "value": scenario.value.map(|value| value.name),
            "about": scenario.about,
            "source": scenario.source,
            "wires": wires(scenario),
        })
    };
    let all: Vec<serde_json::Value> = scenario::ALL.iter().map(one).collect();
    format!("{}\n", serde_json::Value::from(all))
}
