//! `endstop tail`: prints endings as they are recorded.

use std::collections::HashSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use endstop_store::{Period, Wanted};

use crate::endings::{self, Layout};
use crate::store::{FilterArgs, StoreArgs};
use crate::style::{self, Style};
use crate::when;
use crate::{exit, number};

/// Maximum age of a response that is shown when it ends.
const LONGEST_MS: u64 = 35 * 60_000;
/// Pause between two queries.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of endings per query.
const MOST: usize = 1000;

/// Show endings as they are recorded, until stopped
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop tail
  endstop tail --reason cut --json")]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Number of existing endings to show first
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::whole::<usize>,
          allow_negative_numbers = true)]
    last: usize,
    /// Exit after this many new endings
    #[arg(long, value_name = "N", value_parser = number::whole::<usize>,
          allow_negative_numbers = true)]
    count: Option<usize>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let filter = args.filter.filter();
    Wanted { filter, ..Wanted::default() }.check().map_err(exit::invalid)?;
    let mut store = args.store.open()?;
    let mut seen: HashSet<String> = HashSet::new();
    let mut shown = 0;
    let mut first = true;
    // Made when the store has answered: a question that it refuses gets no table.
    let mut made: Option<Layout> = None;
    loop {
        let now = when::now();
        let period = Some(Period { since: now.saturating_sub(LONGEST_MS), until: now + 60_000 });
        let wanted =
            Wanted { filter: args.filter.filter(), period, limit: MOST, ..Wanted::default() };
        let found = match store.endings(&wanted) {
            Ok(found) => found,
            Err(error) if error.is_retryable() => {
                say!("endstop: {error}; retrying");
                std::thread::sleep(PAUSE * 4);
                store = args.store.open()?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut out = io::stdout().lock();
        let layout = match &made {
            Some(layout) => layout,
            None => {
                let layout = Layout::new(style::terminal_width(), &found);
                if !args.json {
                    writeln!(out, "{}", Style::of_stdout().dim(&layout.head()))?;
                }
                &*made.insert(layout)
            }
        };
        let skipped = if first { found.len().saturating_sub(args.last) } else { 0 };
        let newest: HashSet<String> = found.iter().map(|one| one.record.id.clone()).collect();
        for (index, stored) in found.iter().rev().enumerate() {
            if seen.contains(&stored.record.id) || index < skipped {
                continue;
            }
            endings::write(&mut out, stored, args.json, Style::of_stdout(), layout)?;
            // The existing ones were not waited for.
            shown += usize::from(!first);
            if !first && args.count.is_some_and(|count| shown >= count) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        out.flush()?;
        drop(out);
        if args.count == Some(0) {
            return Ok(ExitCode::SUCCESS);
        }
        seen = newest;
        first = false;
        std::thread::sleep(PAUSE);
    }
}
