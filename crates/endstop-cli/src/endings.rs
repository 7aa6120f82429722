//! `endstop endings`: lists the newest endings, one per line.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use endstop::{Reason, Record};
use endstop_store::view::EndingView;
use endstop_store::{Period, Stored, Wanted};

use crate::number;
use crate::store::{FilterArgs, StoreArgs};
use crate::style::{self, Style};
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
    let since = args.since.map(|since| since.at(now, None)).transpose()?;
    let wanted = Wanted {
        filter: args.filter.filter(),
        native: args.native.clone(),
        action: args.action.clone(),
        period: since.map(|since| Period { since, until: now + 1 }),
        limit: args.limit,
    };
    let found = args.store.open()?.endings(&wanted)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if found.is_empty() && !args.json {
        writeln!(out, "no matching endings")?;
    }
    let layout = Layout::new(style::width());
    if !found.is_empty() && !args.json {
        writeln!(out, "{}", Style::of_stdout().dim(&layout.head()))?;
    }
    for stored in &found {
        write(&mut out, stored, args.json, Style::of_stdout(), layout)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Columns of a list of endings, as many as fit.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    width: usize,
}

/// A column: its name, its width, and its value.
type Column = (&'static str, usize, fn(&Record) -> String);

/// The columns, the most important first, in the order in which they are shown.
const COLUMNS: [(Column, usize); 12] = [
    (("time", 20, |record| when::zoned(record.created_at)), 0),
    (("provider", 12, |record| record.provider.to_string()), 2),
    (("model", 24, |record| or_dash(record.model.as_deref())), 3),
    (("reason", 19, |record| record.reason.to_string()), 0),
    (("native", 14, |record| or_dash(record.native_finish_reason.as_deref())), 7),
    (("finish", 12, |record| record.finish_reason.as_deref().unwrap_or("null").to_owned()), 8),
    (("action", 7, |record| record.action.to_string()), 4),
    (("status", 6, |record| record.status.map_or("-".to_owned(), |status| status.to_string())), 5),
    (("took", 8, |record| when::long(record.total_us)), 6),
    (("tokens", 7, |record| record.tokens_out.map_or("-".to_owned(), |it| it.to_string())), 9),
    (("team", 12, |record| or_dash(record.team_id.as_deref())), 10),
    (("id", 32, |record| record.id.clone()), 1),
];

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

impl Layout {
    pub(crate) fn new(width: usize) -> Self {
        Self { width }
    }

    /// Returns the columns for which there is room.
    fn columns(self) -> impl Iterator<Item = Column> {
        let mut room = self.width;
        let mut most = 0;
        for rank in 0..COLUMNS.len() {
            let widths =
                COLUMNS.iter().filter(|(_, its)| *its == rank).map(|((_, width, _), _)| width + 1);
            let width: usize = widths.sum();
            if rank > 0 && width > room {
                break;
            }
            room = room.saturating_sub(width);
            most = rank;
        }
        COLUMNS.into_iter().filter(move |(_, rank)| *rank <= most).map(|(column, _)| column)
    }

    pub(crate) fn head(self) -> String {
        let names: Vec<String> =
            self.columns().map(|(name, width, _)| format!("{name:<width$}")).collect();
        names.join(" ").trim_end().to_owned()
    }
}

/// Writes one ending as one line.
pub(crate) fn write(
    out: &mut impl Write,
    stored: &Stored,
    json: bool,
    style: Style,
    layout: Layout,
) -> Result<()> {
    if json {
        serde_json::to_writer(&mut *out, &EndingView::from(stored)).map_err(io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let record = &stored.record;
    let cells: Vec<String> = layout
        .columns()
        .map(|(name, width, value)| {
            let text = endstop::text::clean(&value(record), width);
            let cell = format!("{text:<width$}");
            match (name, Reason::from_name(&record.reason)) {
                ("reason", Some(reason)) => style.reason(reason, &cell),
                ("time" | "id", _) => style.dim(&cell),
                _ => cell,
            }
        })
        .collect();
    writeln!(out, "{}", cells.join(" ").trim_end())?;
    Ok(())
}
