//! `endstop serve`: runs the gateway.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use endstop::provider;
use endstop_gateway::config::{Log, Mode, ToolCalls, UpstreamConfig};
use endstop_gateway::watch::Watch;
use endstop_gateway::{Checked, Config, Gateway, Handle, Reloaded};
use endstop_sim::{Options, Sim};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::notify::Manager;
use crate::{env, number, store, when};

/// Run the gateway, which any SDK can use as its base URL
#[derive(Parser)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// TOML configuration, or a TOML file with only providers and finish reasons; without it, every
    /// built-in provider is served on loopback
    #[arg(long, value_name = "FILE", env = "ENDSTOP_CONFIG")]
    config: Option<PathBuf>,
    /// Address for clients
    #[arg(long, value_name = "ADDRESS", value_parser = number::address)]
    listen: Option<SocketAddr>,
    /// Address for operators, or `off`
    #[arg(long, value_name = "ADDRESS", value_parser = address_or_off)]
    admin: Option<AddressOrOff>,
    /// Only observe responses, or guard clients against bad endings
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// Handling of tool calls in guard mode
    #[arg(long, value_enum)]
    tool_calls: Option<ToolCallsArg>,
    /// Log format for endings
    #[arg(long, value_enum)]
    log: Option<LogArg>,
    /// Store for endings: `sqlite:FILE`, `postgres://…` or `off`; a SQLite file in the data
    /// directory by default
    #[arg(long, value_name = "URL", env = "ENDSTOP_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Directory for local data; also `ENDSTOP_DATA`
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Start simulated providers in the same process, and route requests to them instead of real
    /// providers
    #[arg(long, value_enum)]
    upstream: Option<UpstreamArg>,
    /// Check everything that serving needs, print what would be served, and exit; listens on nothing
    /// and leaves nothing behind
    #[arg(long)]
    check: bool,
}

const HELP: &str = "\
Signals: SIGTERM and Ctrl-C drain: open streams may finish, and a second signal ends them.
SIGHUP reloads the configuration.

Examples:
  endstop serve                              every provider, on http://127.0.0.1:4100
  endstop serve --mode observe               record endings, change nothing
  endstop serve --upstream sim               simulated providers instead of real ones
  endstop serve --config endstop.toml --check
  endstop env                                settings for each SDK";

#[derive(Clone, Copy)]
enum AddressOrOff {
    Address(SocketAddr),
    Off,
}

fn address_or_off(text: &str) -> Result<AddressOrOff, &'static str> {
    if text == "off" {
        Ok(AddressOrOff::Off)
    } else {
        number::address(text).map(AddressOrOff::Address)
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum UpstreamArg {
    /// Simulated providers: the model name chooses how a response ends
    Sim,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    Observe,
    Guard,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ToolCallsArg {
    /// Pass calls on as they arrive
    Pass,
    /// Hold frames with which a client could run a call, until the call is proven complete
    #[value(alias = "fail")]
    Gate,
    /// Hold everything from the first call on, until the call is proven complete
    Hold,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogArg {
    Human,
    Json,
    Off,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if !args.check {
        return_large_buffers();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    if args.check {
        return check(args);
    }
    runtime.block_on(serve(args))
}

/// Starts this program anew with a setting of glibc's allocator, which is read at the start alone.
///
/// Otherwise, once a buffer of some megabytes was freed, glibc takes the next ones from the heaps of its
/// threads, which keep them: large events would take several times the memory that is in use, for good.
/// A setting of the operator stands.
#[cfg(all(target_os = "linux", target_env = "gnu", not(feature = "jemalloc")))]
fn return_large_buffers() {
    use std::os::unix::process::CommandExt as _;
    const THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";
    if [THRESHOLD, "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut command = std::process::Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // It returns only if it fails. The gateway then works as well, and takes more memory.
    let _ = command.args(arguments).env(THRESHOLD, "262144").exec();
}

/// Other allocators return large buffers.
#[cfg(not(all(target_os = "linux", target_env = "gnu", not(feature = "jemalloc"))))]
fn return_large_buffers() {}

/// Reads the configuration: the file, then the arguments. `sim` is the URL of a simulator, to which
/// the routes of simulated providers lead.
fn read(args: &Args, sim: Option<&str>) -> Result<Config> {
    let mut config = match &args.config {
        Some(file) => Config::from_file(file)?,
        None => Config::default(),
    };
    if let Some(url) = sim {
        config.upstreams.extend(simulated(url));
    }
    config.listen = args.listen.unwrap_or(config.listen);
    config.admin = match args.admin {
        None => config.admin,
        Some(AddressOrOff::Address(address)) => Some(address),
        Some(AddressOrOff::Off) => None,
    };
    config.mode = match args.mode {
        None => config.mode,
        Some(ModeArg::Observe) => Mode::Observe,
        Some(ModeArg::Guard) => Mode::Guard,
    };
    config.tool_calls = match args.tool_calls {
        None => config.tool_calls,
        Some(ToolCallsArg::Pass) => ToolCalls::Pass,
        Some(ToolCallsArg::Gate) => ToolCalls::Gate,
        Some(ToolCallsArg::Hold) => ToolCalls::Hold,
    };
    config.log = match args.log {
        None => config.log,
        Some(LogArg::Human) => Log::Human,
        Some(LogArg::Json) => Log::Json,
        Some(LogArg::Off) => Log::Off,
    };
    config.data = args.data.clone().or(config.data);
    if let Some(store) = &args.store {
        config.store = Some(store.clone());
        config.store_env = None;
    }
    if config.store.is_none() && config.store_env.is_none() {
        let dir = config.data_dir()?;
        config.store = Some(format!("sqlite:{}", dir.join("endstop.db").display()));
    }
    Ok(config)
}

/// Returns the upstreams that lead to a simulator, by their routes: those of every built-in provider, so
/// that no request leaves this machine. The simulator refuses the wires that it does not speak.
pub(crate) fn simulated(url: &str) -> impl Iterator<Item = (String, UpstreamConfig)> {
    provider::ALL.iter().map(move |provider| {
        let base_url = Some(format!("{url}/{}", provider.route));
        (provider.route.to_owned(), UpstreamConfig { base_url, ..UpstreamConfig::default() })
    })
}

/// Reports whether this route leads to the simulator, if there is one.
fn is_simulated(route: &str) -> bool {
    provider::ALL.iter().any(|provider| provider.route == route)
}

/// Prints what would be served. Fails where `serve` would fail.
fn check(args: &Args) -> Result<ExitCode> {
    // Nothing is started here, so that the port of the simulator is not known.
    let sim = args.upstream.map(|UpstreamArg::Sim| "http://127.0.0.1:1");
    let Checked { settings, notes, .. } = Gateway::check(read(args, sim)?)?;
    let config = &settings.config;
    let mut out = io::stdout().lock();
    writeln!(out, "listen  {}", config.listen)?;
    match config.admin {
        Some(admin) => writeln!(out, "admin   {admin}")?,
        None => writeln!(out, "admin   off")?,
    }
    writeln!(out, "mode    {}, tool calls {}", config.mode.word(), config.tool_calls.word())?;
    match config.store()? {
        Some(store) => writeln!(out, "store   {}", endstop_store::shown(&store))?,
        None => writeln!(out, "store   off")?,
    }
    for (name, url) in config.sinks()? {
        writeln!(out, "sink    {name}: {}", endstop_store::shown(&url))?;
    }
    for upstream in settings.routes.iter() {
        let key = if upstream.has_own_key() { "the gateway's key" } else { "the caller's key" };
        let differs = if upstream.own { ", from the configuration" } else { "" };
        if sim.is_some() && is_simulated(&upstream.name) {
            let (path, mode) = (upstream.sdk_path(), upstream.mode.word());
            writeln!(out, "  {path:<28} simulated, on a free port of this machine ({mode})")?;
            continue;
        }
        writeln!(
            out,
            "  {:<28} {}{} ({}, {key}{differs})",
            upstream.sdk_path(),
            upstream.origin(),
            upstream.base_path(),
            upstream.mode.word(),
        )?;
    }
    let mut own: Vec<&str> = config.registry.entries().map(|entry| entry.id.as_str()).collect();
    own.dedup();
    if !own.is_empty() {
        writeln!(out, "custom providers and finish reasons: {}", own.join(", "))?;
    }
    for note in notes {
        writeln!(out, "note: {}", crate::printable(&note))?;
    }
    writeln!(out, "the configuration is valid")?;
    Ok(ExitCode::SUCCESS)
}

/// Time that the gateway takes at most to end after a drain, with some to spare: for the last streams, the
/// store and the log.
const AFTER_DRAIN: Duration = Duration::from_secs(10);

async fn serve(args: &Args) -> Result<ExitCode> {
    let sim = match args.upstream {
        None => None,
        Some(UpstreamArg::Sim) => Some(start_sim(LOOPBACK).await?),
    };
    let sim_url = sim.as_ref().map(Sim::url);
    let gateway = Gateway::bind(read(args, sim_url.as_deref())?).await?;
    let handle = gateway.handle();
    let watch = handle.watch();
    // Before the first line: whoever reads it may send signals.
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let (mut first, mut second) = (Stop::new()?, Stop::new()?);
    let manager = Manager::from_env()?;
    greet(args, &gateway, &watch, sim_url.as_deref());
    manager.ready(&format!("serving {}", gateway.address()));
    let reloading = async {
        while hangup.recv().await.is_some() {
            manager.reloading();
            // A new store may be asked, which can take a while.
            let reloaded = || reload(args, sim_url.as_deref(), &handle);
            manager.ready(&tokio::task::block_in_place(reloaded));
        }
        std::future::pending::<()>().await;
    };
    let stop = async {
        first.recv().await;
        let status = draining(open(&handle), handle.drain());
        manager.stopping(&status, handle.drain().saturating_add(AFTER_DRAIN));
        watch.info(status);
    };
    let now = async {
        second.recv().await;
        second.recv().await;
        let open = open(&handle).unwrap_or_else(|| "the drain".to_owned());
        watch.warn(format!("ending {open} now"));
    };
    tokio::select! {
        () = reloading => {}
        () = gateway.run_until(stop, now) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Any free port of this machine.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Starts simulated providers.
pub(crate) async fn start_sim(listen: SocketAddr) -> Result<Sim> {
    // Bodies are not needed here.
    let options = Options { listen, kept_bytes: 0, ..Options::default() };
    Sim::start(options).await.context("cannot start the simulated providers")
}

/// Signals to stop: Ctrl-C and SIGTERM.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Returns the number of open streams and waiting requests in words, or `None` if there are none.
fn open(handle: &Handle) -> Option<String> {
    counted(handle.streams(), handle.waiting())
}

fn counted(streams: usize, waiting: usize) -> Option<String> {
    let streams = match streams {
        0 => None,
        1 => Some("1 open stream".to_owned()),
        streams => Some(format!("{streams} open streams")),
    };
    let waiting = match waiting {
        0 => None,
        1 => Some("1 request".to_owned()),
        waiting => Some(format!("{waiting} requests")),
    };
    match (streams, waiting) {
        (Some(streams), Some(waiting)) => Some(format!("{streams} and {waiting}")),
        (streams, waiting) => streams.or(waiting),
    }
}

fn draining(open: Option<String>, drain: Duration) -> String {
    let Some(open) = open else {
        return "draining: new requests are refused; no stream is open".to_owned();
    };
    let until =
        when::rfc3339(when::now().saturating_add(drain.as_millis().try_into().unwrap_or(0)));
    format!(
        "draining: new requests are refused; {open} may finish until {until}; a second signal ends the \
         drain at once"
    )
}

/// Reloads the configuration, logs what came of it, and returns it in one line.
fn reload(args: &Args, sim: Option<&str>, handle: &Handle) -> String {
    let reloaded = read(args, sim).and_then(|config| Ok(handle.reload(config)?));
    let file = args.config.as_deref().map_or_else(|| "no file".into(), Path::to_string_lossy);
    let watch = handle.watch();
    match reloaded {
        Ok(Reloaded { changed, needs_restart }) => {
            let changed = match changed.as_slice() {
                [] => "nothing changed".to_owned(),
                names => format!("changed {}", names.join(", ")),
            };
            let told = format!("configuration reloaded from {file}: {changed}");
            watch.info(&told);
            if needs_restart.is_empty() {
                return told;
            }
            let names = needs_restart.join(", ");
            let more = format!("restart needed for {names}: the changes are not in force");
            watch.warn(&more);
            format!("{told}; {more}")
        }
        Err(error) => {
            let told = format!(
                "configuration not reloaded, the old one stays in force: {}",
                crate::printable(&crate::with_causes(&error))
            );
            watch.warn(&told);
            told
        }
    }
}

/// Logs the address and the base URLs for SDKs.
fn greet(args: &Args, gateway: &Gateway, watch: &Watch, sim: Option<&str>) {
    let settings = gateway.settings();
    let scheme = if settings.config.tls.is_some() { "https" } else { "http" };
    let base = format!("{scheme}://{}", gateway.address());
    watch.info(format!(
        "serving {base} ({}, tool calls {})",
        settings.config.mode.word(),
        settings.config.tool_calls.word()
    ));
    settings.warnings().into_iter().for_each(|line| watch.warn(line));
    let is_served = |route: &str| settings.routes.iter().any(|upstream| *upstream.name == *route);
    for line in env::first_lines(&base, is_served) {
        watch.info(line);
    }
    let is_own = |name: &str| sim.is_none() || !is_simulated(name);
    for upstream in settings.routes.iter().filter(|upstream| upstream.own && is_own(&upstream.name))
    {
        watch.info(format!("{:<24} {base}{}", upstream.name, upstream.sdk_path()));
    }
    watch.info(format!("more with `endstop env --url {base}`"));
    if let Some(sim) = sim {
        watch.info(format!(
            "simulated providers at {sim}; the model name chooses the ending, see `endstop sim --list`"
        ));
    }
    if let Some(recording) = gateway.handle().recording() {
        let store_name = recording.store();
        let url = settings.config.store().ok().flatten().unwrap_or_default();
        let report = store::report_command(&url, args.config.as_deref());
        watch.info(format!("endings are stored in {store_name}; see `{report}`"));
    }
    if let Some(admin) = gateway.admin_address() {
        watch.info(format!("endings at http://{admin}/endstop/v1/endings, live at …/tail"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_requests_are_told_apart() {
        let counted = |streams, waiting| counted(streams, waiting).unwrap_or_default();
        assert_eq!(counted(0, 0), "");
        assert_eq!(counted(1, 0), "1 open stream");
        assert_eq!(counted(0, 2), "2 requests");
        assert_eq!(counted(2, 1), "2 open streams and 1 request");
    }
}
