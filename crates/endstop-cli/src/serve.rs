//! `endstop serve`: runs the gateway.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use endstop_gateway::config::{Log, Mode, ToolCalls, is_loopback};
use endstop_gateway::watch::Watch;
use endstop_gateway::{Config, Gateway, Handle, Settings};
use tokio::signal::unix::{SignalKind, signal};

use crate::env;

/// Run the gateway, which any SDK can use as its base URL
#[derive(Parser)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// TOML configuration, or a TOML file with only providers and finish reasons; without it, every
    /// built-in provider is served on loopback
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for clients
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address for operators
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
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
    /// Directory for local data
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Check the configuration and print what would be served
    #[arg(long)]
    check: bool,
}

const HELP: &str = "\
Signals: SIGTERM and Ctrl-C drain (open streams may finish); SIGHUP reloads the configuration.

Examples:
  endstop serve                              every provider, on http://127.0.0.1:4100
  endstop serve --mode observe               record endings, change nothing
  endstop serve --config endstop.toml --check
  endstop env                                settings for each SDK";

#[derive(Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    Observe,
    Guard,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ToolCallsArg {
    Pass,
    #[value(alias = "fail")]
    Gate,
    Hold,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogArg {
    Human,
    Json,
    Off,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.check {
        return check(args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(args))
}

fn read(args: &Args) -> Result<Config> {
    let mut config = match &args.config {
        Some(file) => Config::from_file(file)?,
        None => Config::default(),
    };
    config.listen = args.listen.unwrap_or(config.listen);
    config.admin = args.admin.or(config.admin);
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

/// Prints what would be served. Fails if the configuration is invalid.
fn check(args: &Args) -> Result<ExitCode> {
    let settings = Settings::new(read(args)?)?;
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
    for upstream in settings.routes.iter() {
        let key = if upstream.has_own_key() { "the gateway's key" } else { "the caller's key" };
        let differs = if upstream.own { ", from the configuration" } else { "" };
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
    writeln!(out, "the configuration is valid")?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: &Args) -> Result<ExitCode> {
    let gateway = Gateway::bind(read(args)?).await?;
    let watch = gateway.handle().watch();
    greet(&gateway, &watch);
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let handle = gateway.handle();
    let reloading = async {
        while hangup.recv().await.is_some() {
            reload(args, &handle);
        }
        std::future::pending::<()>().await;
    };
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        watch.write_line("endstop: draining: open streams may finish, new requests are refused");
    };
    tokio::select! {
        () = reloading => {}
        () = gateway.run(stop) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn reload(args: &Args, handle: &Handle) {
    let reloaded = read(args).and_then(|config| Ok(handle.reload(config)?));
    let file = args.config.as_deref().map_or_else(|| "no file".into(), Path::to_string_lossy);
    let watch = handle.watch();
    match reloaded {
        Ok(()) => watch.write_line(&format!("endstop: configuration reloaded ({file})")),
        Err(error) => watch.write_line(&format!(
            "endstop: configuration not reloaded: {}",
            crate::printable(&format!("{error:#}"))
        )),
    }
}

/// Prints the address and the base URLs for SDKs.
fn greet(gateway: &Gateway, watch: &Watch) {
    let settings = gateway.settings();
    let scheme = if settings.config.tls.is_some() { "https" } else { "http" };
    let base = format!("{scheme}://{}", gateway.address());
    watch.write_line(&format!(
        "endstop: serving {base} ({}, tool calls {})",
        settings.config.mode.word(),
        settings.config.tool_calls.word()
    ));
    if !is_loopback(gateway.address()) {
        watch.write_line("endstop: other machines can reach this address");
    }
    for line in env::first_lines(&base) {
        watch.write_line(&format!("  {line}"));
    }
    watch.write_line("  … more with `endstop env`");
    if let Some(recording) = gateway.handle().recording() {
        watch.write_line(&format!(
            "endstop: endings are stored in {}; see `endstop report`",
            recording.store()
        ));
    }
    if let Some(admin) = gateway.admin_address() {
        watch.write_line(&format!(
            "endstop: endings at http://{admin}/endstop/v1/endings, live at …/tail"
        ));
    }
}
