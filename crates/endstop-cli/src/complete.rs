//! `endstop completions` and `endstop man`, generated from the same definitions as `--help`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

/// Print shell completions
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop completions bash > ~/.local/share/bash-completion/completions/endstop
  endstop completions fish > ~/.config/fish/completions/endstop.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    shell: Shell,
}

/// Print the manual page, or write one page per subcommand
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop man | man -l -
  endstop man --out /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory to write the pages to
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "endstop", &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs, command: Command) -> Result<ExitCode> {
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
