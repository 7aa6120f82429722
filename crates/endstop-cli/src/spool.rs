//! `endstop spool`: looks at the gateway's spool, and loads what the store refused.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use endstop_gateway::Config;
use endstop_gateway::config::default_data_dir;
use endstop_store::spool::{Spool, State};

use crate::store::StoreArgs;

/// Show the state of the gateway's spool, or load endings that the store refused
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show how much waits in the spool, and what the store refused
    Status(Place),
    /// Load the endings that the store refused, once the cause is mended
    ///
    /// The gateway may run meanwhile. Endings that are refused again are kept.
    LoadRefused(LoadRefused),
}

/// Where the spool is.
#[derive(clap::Args)]
struct Place {
    /// Data directory of the gateway; by default the one of the configuration, or the gateway's default
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(clap::Args)]
struct LoadRefused {
    #[command(flatten)]
    place: Place,
    /// Load what this sink of the configuration refused, instead of the store
    #[arg(long, value_name = "NAME", requires = "config")]
    sink: Option<String>,
}

impl Place {
    fn dir(&self) -> Result<PathBuf> {
        let configured = match self.store.config() {
            Some(file) => Some(Config::from_file(file)?.data_dir()?),
            None => default_data_dir(),
        };
        let data = self.data.clone().or(configured);
        let data = data.context("no home directory found: pass --data or set ENDSTOP_DATA")?;
        Ok(data.join("spool"))
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Status(place) => status(place),
        Command::LoadRefused(args) => load_refused(args),
    }
}

fn status(place: &Place) -> Result<ExitCode> {
    let dir = place.dir()?;
    let mut out = io::stdout().lock();
    let state = match Spool::check(&dir)? {
        State::Missing => {
            writeln!(out, "{} does not exist: no gateway has recorded there", dir.display())?;
            return Ok(ExitCode::SUCCESS);
        }
        State::Free => "no gateway runs",
        State::InUse => "in use by a gateway",
    };
    let found = Spool::inspect(&dir)?;
    writeln!(out, "{}: {state}", dir.display())?;
    let files = if found.segments == 1 { "file" } else { "files" };
    writeln!(out, "  {:<12} {} in {} {files}", "size", bytes(found.bytes), found.segments)?;
    for (name, waiting) in &found.waiting {
        writeln!(out, "  {:<12} {} wait for {name}", "waiting", bytes(*waiting))?;
    }
    writeln!(out, "  {:<12} {}", "damaged", bytes(found.damaged))?;
    let refused = endstop_store::refused(&dir)?;
    let count: u64 = refused.values().sum();
    writeln!(out, "  {:<12} {}", "refused", endings(count))?;
    for ((sink, why), count) in &refused {
        let why = endstop::text::clean(why, 300);
        writeln!(out, "    {count} by {}: {why}", endstop::text::clean(sink, 64))?;
    }
    if count > 0 {
        writeln!(out, "mend the cause, then run `endstop spool load-refused`")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load_refused(LoadRefused { place, sink }: &LoadRefused) -> Result<ExitCode> {
    let dir = place.dir()?;
    let name = sink.as_deref().unwrap_or(endstop_store::STORE);
    let (mut opened, url) = match (sink, place.store.config()) {
        (Some(name), Some(file)) => {
            let store = Some(place.store.url()?);
            let config = Config { store, store_env: None, ..Config::from_file(file)? };
            let url = config.sinks()?.remove(name);
            let url = url.with_context(|| format!("{} has no sink `{name}`", file.display()))?;
            (endstop_gateway::open_sink(&config, name, &url)?, url)
        }
        (Some(_) | None, _) => {
            let url = place.store.url()?;
            (endstop_store::open_sink(&url)?, url)
        }
    };
    opened.migrate()?;
    let done = endstop_store::load_refused(&dir, name, &mut *opened)?;
    let mut out = io::stdout().lock();
    let loaded = endings(done.loaded);
    writeln!(out, "loaded {loaded} into {}", endstop_store::shown(&url))?;
    if done.refused > 0 {
        writeln!(out, "{} were refused again: `endstop spool status` says why", done.refused)?;
    }
    if done.unread > 0 {
        writeln!(out, "{} lines cannot be read; they are kept in {}", done.unread, dir.display())?;
    }
    let left = done.refused + done.unread;
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::exit::ERROR) })
}

fn endings(count: u64) -> String {
    if count == 1 { "1 ending".to_owned() } else { format!("{count} endings") }
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}
