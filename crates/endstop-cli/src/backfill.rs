//! `endstop backfill`: normalises finish reasons in existing rows.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use endstop_store::backfill::{self, Backfill, Columns, Done};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::number;

/// Normalise the finish reasons of existing rows
#[derive(clap::Args)]
#[command(after_help = "\
The provider's finish reason is read and never changed. An interrupted run continues where it
stopped. Rows that Endstop wrote are judged again if its rules have changed, and keep their previous
reason. Rows of others in the table `gateway_requests` of a store are counted in its reports from
then on, if they have a finish reason. If the gateway has custom providers or finish reasons, pass its configuration here too.

Examples:
  endstop backfill --from postgres://user@host/database --table llm_calls \\
      --native-column stop_reason --dry-run
  endstop backfill --from calls.csv --provider openai --native-column finish_reason \\
      --finish-reason-column normalised")]
pub(crate) struct Args {
    /// Database or file: `postgres://…`, `sqlite:FILE`, .csv, .tsv, .jsonl, .ndjson or .parquet
    #[arg(long, value_name = "URL|FILE")]
    from: String,
    /// Table with the rows
    #[arg(long, value_name = "TABLE", default_value = "gateway_requests")]
    table: String,
    /// Column that identifies a row
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    id_column: String,
    /// Column with the provider
    #[arg(long, value_name = "COLUMN", default_value = "provider")]
    provider_column: String,
    /// Column with the provider's finish reason
    #[arg(long, value_name = "COLUMN", default_value = "native_finish_reason")]
    native_column: String,
    /// Column for the normalised finish reason
    #[arg(long, value_name = "COLUMN", default_value = "finish_reason")]
    finish_reason_column: String,
    /// Provider of rows that do not name one
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// TOML file with custom providers and finish reasons, or the gateway's configuration
    #[arg(long, value_name = "FILE", env = "ENDSTOP_CONFIG")]
    config: Option<PathBuf>,
    /// Output file, if `--from` is a file; beside the input by default
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Rows per batch
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number::whole::<usize>,
          allow_negative_numbers = true)]
    batch: usize,
    /// Print what would change, without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let work = Backfill {
        from: args.from.clone(),
        table: args.table.clone(),
        columns: Columns {
            id: args.id_column.clone(),
            provider: args.provider_column.clone(),
            native: args.native_column.clone(),
            finish_reason: args.finish_reason_column.clone(),
        },
        provider: args.provider.clone(),
        registry: crate::config::registry(args.config.as_deref())?,
        to: args.to.clone(),
        batch: args.batch,
        dry_run: args.dry_run,
    };
    let bar = bar();
    let done = work.run(|progress| {
        if let Some(of) = progress.of {
            bar.set_length(of);
        }
        bar.set_position(progress.done);
    })?;
    bar.finish_and_clear();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", as_json(&done, args.dry_run)?)?;
    } else {
        print(&mut out, &done, args.dry_run)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn bar() -> ProgressBar {
    let style = "{bar:30} {human_pos} of {human_len}  {per_sec}  {eta} left";
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn as_json(done: &Done, dry_run: bool) -> Result<String> {
    let changes: Vec<_> = done
        .changes
        .iter()
        .map(|(change, count)| json!({ "change": change, "count": count }))
        .collect();
    Ok(serde_json::to_string_pretty(&json!({
        "dry_run": dry_run,
        "rows": done.rows,
        "changed": done.changed,
        "unread": done.unread,
        "rejudged": done.rejudged,
        "adopted": done.adopted,
        "not_adopted": done.not_adopted,
        "unknown_providers": done.unknown_providers,
        "changes": changes,
        "file": done.file,
    }))?)
}

fn print(out: &mut impl Write, done: &Done, dry_run: bool) -> io::Result<()> {
    let would = if dry_run { "would change" } else { "changed" };
    writeln!(out, "rows: {} read, {} {would}", done.rows, done.changed)?;
    for (backfill::Change { provider, native, from, to }, count) in &done.changes {
        let from = from.as_deref().unwrap_or("null");
        writeln!(out, "  {count:>9}  {provider:<12} {native:<24} {from} -> {to}")?;
    }
    if done.rejudged > 0 {
        writeln!(out, "rows written by Endstop: {} {would} under newer rules", done.rejudged)?;
    }
    if done.adopted > 0 {
        writeln!(out, "rows that reports count from now on: {}", done.adopted)?;
    }
    if let Some(why) = &done.not_adopted {
        writeln!(out, "reports do not count these rows: {why}")?;
    }
    for (provider, count) in &done.unknown_providers {
        writeln!(
            out,
            "unknown provider: `{provider}` (rows: {count}), read as openai-compatible; define it \
             with `--config`"
        )?;
    }
    if done.unread > 0 {
        writeln!(out, "lines that could not be read, copied unchanged: {}", done.unread)?;
    }
    if let Some(file) = &done.file {
        writeln!(out, "written to {}", file.display())?;
    }
    Ok(())
}
