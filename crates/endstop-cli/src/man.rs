//! `endstop man`, generated from the same definitions as `--help`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;

/// Print the manual page, or write one page per subcommand
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop man | man -l -
  endstop man --out /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// Directory to write the pages to
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, command: Command) -> Result<ExitCode> {
    match &args.out {
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            clap_mangen::generate_to(command, folder)
                .with_context(|| format!("cannot write to {}", folder.display()))?;
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            io::stdout().write_all(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
