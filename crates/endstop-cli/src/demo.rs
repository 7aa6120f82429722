//! `endstop demo`: simulated providers, the gateway and a store in one process, to try at once.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use endstop_gateway::config::Log;
use endstop_gateway::watch::EndingReport;
use endstop_gateway::{Config, Error, Gateway};
use endstop_sim::Sim;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::serve::{LOOPBACK, Stop, simulated, start_sim};
use crate::style::Style;
use crate::when;

/// Port of `endstop sim`. The other default ports are those of `endstop serve`.
const SIM_PORT: u16 = 4190;

/// Time for open streams after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(1);

/// Try Endstop: simulated providers, the gateway and a store, without keys or configuration
///
/// Everything runs in one process and on this machine. The store is in a temporary directory, which is
/// removed at the end.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// A request to try.
struct Trial {
    about: &'static str,
    options: &'static str,
    path: &'static str,
    body: &'static str,
    expect: &'static str,
}

/// The requests that are printed. A test runs them and checks what is expected of them.
const TRIALS: [Trial; 3] = [
    Trial {
        about: "The provider stops in the middle of a stream.",
        options: "-sN",
        path: "/openai/v1/chat/completions",
        body: r#"{"model":"cut-before-word","stream":true,"messages":[]}"#,
        expect: "Expect the answer, then an error instead of a silent end: `endstop_cut`.",
    },
    Trial {
        about: "The provider stops after a tool call, before its finish reason.",
        options: "-sN",
        path: "/anthropic/v1/messages",
        body: r#"{"model":"cut-after-call","stream":true,"max_tokens":99,"messages":[]}"#,
        expect: "Expect `endstop_cut` and curl's exit code 18. The gateway withholds the event that closes \
                 the call, so the call cannot run.",
    },
    Trial {
        about: "The answer reaches its output limit.",
        options: "-si",
        path: "/openai/v1/chat/completions",
        body: r#"{"model":"length","messages":[]}"#,
        expect: "Expect `200 OK`, the answer unchanged, and `x-endstop-reason: output_limit`.",
    },
];

pub(crate) fn run(_: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(demo())
}

async fn demo() -> Result<ExitCode> {
    let (mut first, mut second) = (Stop::new()?, Stop::new()?);
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let folder = tempfile::Builder::new().prefix("endstop-demo-").tempdir();
    let folder = folder.map_err(|error| {
        let dir = std::env::temp_dir();
        let why = if dir.is_dir() { error.to_string() } else { "it does not exist".to_owned() };
        anyhow!(
            "cannot create a temporary directory in {}: {why}; set TMPDIR to another",
            dir.display()
        )
    })?;
    let sim = match start_sim(free(SocketAddr::new(LOOPBACK.ip(), SIM_PORT))).await {
        Ok(sim) => sim,
        // Taken meanwhile.
        Err(_) => start_sim(LOOPBACK).await?,
    };
    let usual = Config::default();
    let first_choice = (free(usual.listen), usual.admin.map(free));
    let second_choice = (LOOPBACK, Some(LOOPBACK));
    let gateway = match gateway(&sim, folder.path(), first_choice).await {
        Err(Error::Listen { .. }) => {
            gateway(&sim, &folder.path().join("again"), second_choice).await
        }
        bound => bound,
    }?;
    let endings = gateway.handle().watch().listen();
    let style = Style::of_stdout();
    print(&page(&gateway, &sim, style));
    // A thread of its own: standard output may block.
    let printing = std::thread::spawn(move || print_endings(endings, style));
    let now = async {
        second.recv().await;
        second.recv().await;
    };
    let stop = async {
        tokio::select! {
            () = first.recv() => {}
            // The terminal was closed.
            _ = hangup.recv() => {}
        }
    };
    gateway.run_until(stop, now).await;
    sim.stop().await;
    // Its channel is closed with the gateway, unless standard output blocks.
    drop(printing);
    folder.close().context("cannot remove the temporary directory")?;
    print("\nStopped. The temporary store is removed.\n");
    Ok(ExitCode::SUCCESS)
}

/// Starts the gateway in front of the simulated providers, on these addresses for clients and operators.
async fn gateway(
    sim: &Sim,
    data: &Path,
    (listen, admin): (SocketAddr, Option<SocketAddr>),
) -> Result<Gateway, Error> {
    let mut config = Config {
        listen,
        admin,
        log: Log::Off,
        data: Some(data.to_owned()),
        store: Some(format!("sqlite:{}", data.join("endstop.db").display())),
        upstreams: simulated(&sim.url()).collect(),
        ..Config::default()
    };
    config.limits.drain = DRAIN;
    Gateway::bind(config).await
}

/// Returns the address, or another port if it is taken.
fn free(address: SocketAddr) -> SocketAddr {
    let is_free = TcpListener::bind(address).is_ok();
    if is_free { address } else { SocketAddr::new(address.ip(), 0) }
}

/// Prints text. A closed standard output must not stop the demo.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn page(gateway: &Gateway, sim: &Sim, style: Style) -> String {
    let url = format!("http://{}", gateway.address());
    let mut text = format!(
        "{}\nSimulated providers, the gateway and a store, on this machine. No key is needed.\n\n",
        style.bold("Endstop demo")
    );
    let mut row = |name: &str, value: &str, usual: Option<u16>, port: u16| {
        let taken = usual.filter(|usual| *usual != port);
        let taken = taken.map(|usual| format!("  (port {usual} is taken)")).unwrap_or_default();
        let _ = writeln!(text, "  {name:<10} {value}{}", style.dim(&taken));
    };
    let defaults = Config::default();
    row("gateway", &url, Some(defaults.listen.port()), gateway.address().port());
    row("providers", &sim.url(), Some(SIM_PORT), sim.addr().port());
    if let Some(admin) = gateway.admin_address() {
        let value = format!("http://{admin}/endstop/v1/endings");
        row("endings", &value, defaults.admin.map(|admin| admin.port()), admin.port());
    }
    if let Some(recording) = gateway.handle().recording() {
        row("report", &format!("endstop report --store {}", recording.store()), None, 0);
    }
    text.push_str("\nTry these in another terminal:\n");
    for (number, trial) in TRIALS.iter().enumerate() {
        let Trial { about, options, path, body, expect } = trial;
        let _ = write!(
            text,
            "\n{}\n   curl {options} {url}{path} \\\n     -d '{body}'\n   {}\n",
            style.bold(&format!("{}. {about}", number + 1)),
            style.dim(expect),
        );
    }
    let more = "The model name chooses the ending: `endstop sim --list` lists all. Ctrl-C stops.";
    let _ = write!(text, "\n{}\n\n{}\n", style.dim(more), style.bold("Endings"));
    text
}

fn print_endings(mut endings: Receiver<Arc<EndingReport>>, style: Style) {
    loop {
        match endings.blocking_recv() {
            Ok(ended) => print(&line(&ended, style)),
            Err(RecvError::Lagged(missed)) => print(&format!("  … {missed} more\n")),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Returns the line of an ending.
fn line(ended: &EndingReport, style: Style) -> String {
    let kept = &ended.kept;
    let time = when::rfc3339(kept.created_at.saturating_add(kept.total_us / 1000));
    let model = format!("{}/{}", kept.upstream, kept.model.as_deref().unwrap_or("-"));
    let reason = style.reason(ended.ending.reason, &format!("{:<19}", kept.reason));
    let text = format!("{reason} {model:<28} {:<7} {:>5} ms", kept.action, kept.total_us / 1000);
    let sentence = style.dim(&crate::printable(&kept.sentence()));
    format!("{}  {text}  {sentence}\n", style.dim(&time))
}
