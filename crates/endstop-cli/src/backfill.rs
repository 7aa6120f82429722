//! `endstop backfill`: finish reasons that were written before, or by older rules.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use endstop_store::backfill::{self, Backfill, Columns, Done};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// Normalise finish reasons that were written before
#[derive(clap::Args)]
#[command(after_help = "\
The provider's own word is read and never written. A run that was interrupted goes on where it stopped.
Rows of Endstop's own are judged again where its rules have changed, and keep what was said before. If
the gateway was taught words, give its configuration here too.

Examples:
  endstop backfill --from postgres://user@host/database --table llm_calls --native-column stop_reason --dry-run
  endstop backfill --from calls.csv --provider openai --native-column finish_reason --finish-reason-column normalised")]
pub(crate) struct Args {
    /// `postgres://…`, `sqlite:FILE`, or a file: .csv, .tsv, .jsonl, .ndjson
    #[arg(long, value_name = "URL|FILE")]
    from: String,
    /// The table
    #[arg(long, value_name = "TABLE", default_value = "gateway_requests")]
    table: String,
    /// The column that tells rows apart
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    id_column: String,
    /// The column with the provider
    #[arg(long, value_name = "COLUMN", default_value = "provider")]
    provider_column: String,
    /// The column with the provider's own word
    #[arg(long, value_name = "COLUMN", default_value = "native_finish_reason")]
    native_column: String,
    /// The column that our word goes into
    #[arg(long, value_name = "COLUMN", default_value = "finish_reason")]
    finish_reason_column: String,
    /// Who served what names no provider
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// A TOML file of your own providers and words, or the gateway's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the copy of a file goes; beside it by default
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Rows at a time
    #[arg(long, value_name = "N", default_value_t = 1000)]
    batch: usize,
    /// Say what would change, and change nothing
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
        "unknown_providers": done.strangers,
        "changes": changes,
        "file": done.file,
    }))?)
}

fn print(out: &mut impl Write, done: &Done, dry_run: bool) -> io::Result<()> {
    let would = if dry_run { "would change" } else { "changed" };
    writeln!(out, "{} rows read, {} {would}", done.rows, done.changed)?;
    for (backfill::Change { provider, native, from, to }, count) in &done.changes {
        let from = from.as_deref().unwrap_or("null");
        writeln!(out, "  {count:>9}  {provider:<12} {native:<24} {from} -> {to}")?;
    }
    if done.rejudged > 0 {
        writeln!(out, "{} rows of Endstop's own {would} by newer rules", done.rejudged)?;
    }
    for (provider, count) in &done.strangers {
        writeln!(
            out,
            "unknown provider: `{provider}` in {count} rows, read as openai-compatible; `--config` \
             teaches a provider"
        )?;
    }
    if done.unread > 0 {
        writeln!(out, "{} lines could not be read and stand as they were", done.unread)?;
    }
    if let Some(file) = &done.file {
        writeln!(out, "written to {}", file.display())?;
    }
    Ok(())
}
