//! `endstop explain`: prints everything about the end of one response.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;

use crate::decide::{Considered, Given, print_next};
use crate::style::Style;

/// Explain one response: how it ended, the evidence, the decision and the remaining budgets
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop explain response.sse
  endstop explain --policy careful --request request.json response.json
  endstop explain --json response.json | jq .decision")]
pub(crate) struct Args {
    #[command(flatten)]
    given: Given,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let considered = args.given.consider()?;
    if args.given.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&considered)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Considered { report, next } = &considered;
    write!(io::stdout(), "{report}")?;
    print_next(next.as_ref(), Style::of_stdout(), 13)?;
    Ok(ExitCode::SUCCESS)
}
