//! `endstop endings`: lists the newest endings, one per line.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use endstop::Reason;
use endstop_store::view::EndingView;
use endstop_store::{Period, Stored, Wanted};

use crate::number;
use crate::store::{FilterArgs, StoreArgs};
use crate::style::Style;
use crate::when::{self, When};

/// List recorded endings, newest first
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop endings --finish-reason other
  endstop endings --provider anthropic --reason output_limit --since 24h
  endstop endings --model 'gpt-5*' --limit 1000 --json | jq -r .native_finish_reason")]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only this finish reason, as the provider wrote it
    #[arg(long, value_name = "WORD")]
    native: Option<String>,
    /// Only this action: passed, warned, failed or refused
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only since this time, such as `7d`, `24h` or `2026-11-16`
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    since: Option<When>,
    /// Maximum number of endings
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number::whole::<usize>,
          allow_negative_numbers = true)]
    limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let now = when::now();
    let wanted = Wanted {
        filter: args.filter.filter(),
        native: args.native.clone(),
        action: args.action.clone(),
        period: args.since.map(|since| Period { since: since.at(now), until: now + 1 }),
        limit: args.limit,
    };
    let found = args.store.open()?.endings(&wanted)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if found.is_empty() && !args.json {
        writeln!(out, "no matching endings")?;
    }
    for stored in &found {
        write(&mut out, stored, args.json, Style::of_stdout())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one ending as one line.
pub(crate) fn write(out: &mut impl Write, stored: &Stored, json: bool, style: Style) -> Result<()> {
    if json {
        serde_json::to_writer(&mut *out, &EndingView::from(stored)).map_err(io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let record = &stored.record;
    let native = record.native_finish_reason.as_deref().unwrap_or("-");
    let finish_reason = record.finish_reason.as_deref().unwrap_or("null");
    let reason = format!("{:<17}", record.reason);
    let reason = match Reason::from_name(&record.reason) {
        Some(known) => style.reason(known, &reason),
        None => reason,
    };
    writeln!(
        out,
        "{}  {:<12} {:<28} {native:<16} {finish_reason:<14} {reason} {}",
        style.dim(&when::zoned(record.created_at)),
        record.provider,
        record.model.as_deref().unwrap_or("-"),
        style.dim(&record.id),
    )?;
    Ok(())
}
