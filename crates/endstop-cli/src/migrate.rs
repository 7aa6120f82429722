//! `endstop migrate`: brings the tables of a store up to date.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::store::StoreArgs;
use crate::when;

/// Bring the tables of a store up to date; safe to repeat
#[derive(clap::Args)]
#[command(after_help = "\
The gateway does this when it starts. An existing table gateway_requests only gains columns.

Examples:
  endstop migrate --store postgres://user@host/database
  endstop migrate --export supabase/migrations    files for `supabase db push`")]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Write the Postgres migrations to this directory instead of applying them
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    if let Some(dir) = &args.export {
        for file in endstop_store::export_migrations(dir, &when::stamp(when::now()))? {
            writeln!(out, "{}", file.display())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let url = args.store.url()?;
    let applied = endstop_store::open(&url)?.migrate()?;
    for name in &applied {
        writeln!(out, "applied {name}")?;
    }
    if applied.is_empty() {
        writeln!(out, "{} is up to date", endstop_store::shown(&url))?;
    }
    Ok(ExitCode::SUCCESS)
}
