//! `endstop completions`, generated from the same definitions as `--help`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

/// Print shell completions
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop completions bash > ~/.local/share/bash-completion/completions/endstop
  endstop completions fish > ~/.config/fish/completions/endstop.fish")]
pub(crate) struct Args {
    /// Shell to print completions for
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "endstop", &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}
