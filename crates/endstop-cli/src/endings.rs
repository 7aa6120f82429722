//! `endstop endings`: lists the newest endings, one per line.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use endstop::{Reason, Record};
use endstop_store::view::EndingView;
use endstop_store::{Period, Stored, Wanted};

use crate::store::{FilterArgs, StoreArgs};
use crate::style::{self, Style};
use crate::when::{self, When};
use crate::{exit, number};

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
    let since = args.since.map(|since| since.at(now, None)).transpose().map_err(exit::invalid)?;
    let wanted = Wanted {
        filter: args.filter.filter(),
        native: args.native.clone(),
        action: args.action.clone(),
        period: since.map(|since| Period { since, until: now + 1 }),
        limit: args.limit,
    };
    // Before the store is opened: a mistake in the arguments is told first.
    wanted.check().map_err(exit::invalid)?;
    let found = args.store.open()?.endings(&wanted)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if found.is_empty() && !args.json {
        writeln!(out, "no matching endings")?;
    }
    let layout = Layout::new(style::terminal_width(), &found);
    if !found.is_empty() && !args.json {
        writeln!(out, "{}", Style::of_stdout().dim(&layout.head()))?;
    }
    for stored in &found {
        write(&mut out, stored, args.json, Style::of_stdout(), &layout)?;
    }
    out.flush().context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Columns of a list of endings, as many and as wide as fit.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The columns in their order, and the width of each.
    columns: Vec<(&'static Column, usize)>,
    cells: Cells,
}

/// Treatment of values that are longer than their column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cells {
    /// They are cut: a line must fit into a terminal.
    Cut,
    /// They are written whole, as in pipes.
    Whole,
}

/// A column of a list of endings.
#[derive(Debug)]
struct Column {
    name: &'static str,
    /// Narrowest width, and the width that holds any usual value.
    widths: (usize, usize),
    /// Columns with the lowest rank stay the longest where there is no room for all.
    rank: u8,
    /// Columns with the lowest turn are widened first.
    turn: u8,
    value: fn(&Record, usize) -> String,
}

const fn column(
    name: &'static str,
    widths: (usize, usize),
    rank: u8,
    turn: u8,
    value: fn(&Record, usize) -> String,
) -> Column {
    Column { name, widths, rank, turn, value }
}

/// Rank of a column without a value in any line.
const EMPTY: u8 = 10;

/// All columns, in their order. The narrowest of the first five ranks fit into 80 columns, if no ending has a
/// team.
static COLUMNS: [Column; 12] = [
    column("time", (14, 20), 0, 3, time),
    column("provider", (8, 12), 5, 6, |record, _| record.provider.to_string()),
    column("model", (11, 24), 3, 2, |record, _| or_dash(record.model.as_deref())),
    column("reason", (12, 19), 0, 0, |record, _| record.reason.to_string()),
    column("native", (14, 14), 8, 7, |record, _| or_dash(record.native_finish_reason.as_deref())),
    column("finish", (12, 12), 9, 8, |record, _| {
        record.finish_reason.as_deref().unwrap_or("null").to_owned()
    }),
    column("action", (7, 7), 1, 8, |record, _| record.action.to_string()),
    column("status", (6, 6), 6, 8, |record, _| or_dash(record.status)),
    column("took", (7, 8), 2, 5, |record, _| took(record)),
    column("tokens", (6, 7), 7, 5, |record, _| or_dash(record.tokens_out)),
    column("team", (6, 12), 4, 4, |record, _| or_dash(record.team_id.as_deref())),
    column("id", (15, 32), 0, 1, |record, width| record.id.chars().take(width).collect()),
];

impl Column {
    /// Returns the value of an ending, cut to this width.
    fn text(&self, record: &Record, width: usize) -> String {
        endstop::text::clean(&(self.value)(record, width), width)
    }
}

fn time(record: &Record, width: usize) -> String {
    let zoned = when::zoned(record.created_at);
    if width >= zoned.len() {
        return zoned;
    }
    // Without the year and the zone.
    zoned.chars().skip(5).take(14).collect()
}

/// Returns the time that a response took; rows that others wrote have none.
fn took(record: &Record) -> String {
    or_dash((record.total_us > 0).then(|| when::long(record.total_us)))
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl Layout {
    /// Chooses columns for these endings on a terminal of this width; all of them where there is none, and as
    /// wide as the longest value.
    pub(crate) fn new(width: Option<usize>, endings: &[Stored]) -> Self {
        match width {
            Some(width) => Self::fitting(width, endings),
            None => Self::whole(endings),
        }
    }

    fn whole(endings: &[Stored]) -> Self {
        let width = |column: &Column| {
            let values = endings.iter().map(|stored| column.text(&stored.record, usize::MAX).len());
            values.max().unwrap_or(0).max(column.widths.1)
        };
        let columns = COLUMNS.iter().map(|column| (column, width(column))).collect();
        Self { columns, cells: Cells::Whole }
    }

    fn fitting(width: usize, endings: &[Stored]) -> Self {
        let has_teams = endings.iter().any(|stored| stored.record.team_id.is_some());
        let rank = |column: &Column| match column.name {
            "team" if !has_teams => EMPTY,
            _ => column.rank,
        };
        let mut by_rank: Vec<&Column> = COLUMNS.iter().collect();
        by_rank.sort_by_key(|column| rank(column));
        let (mut most, mut used) = (0, 0);
        for column in by_rank {
            used += column.widths.0 + 1;
            // The last one ends with the line.
            if rank(column) > 0 && used > width.saturating_add(1) {
                used -= column.widths.0 + 1;
                break;
            }
            most = rank(column);
        }
        let mut left = width.saturating_add(1).saturating_sub(used);
        let chosen = COLUMNS.iter().filter(|column| rank(column) <= most);
        let mut columns: Vec<_> = chosen.map(|column| (column, column.widths.0)).collect();
        let mut by_turn: Vec<_> = columns.iter_mut().collect();
        by_turn.sort_by_key(|(column, _)| column.turn);
        for (column, width) in by_turn {
            let wider = (column.widths.1 - *width).min(left);
            // A time is shown in one of two forms.
            if column.name != "time" || *width + wider == column.widths.1 {
                *width += wider;
                left -= wider;
            }
        }
        Self { columns, cells: Cells::Cut }
    }

    pub(crate) fn head(&self) -> String {
        let name = |(column, width): &(&Column, usize)| {
            // A short time has no zone of its own.
            let is_short = column.name == "time" && *width < column.widths.1;
            format!("{:<width$}", if is_short { "time UTC" } else { column.name })
        };
        let names: Vec<String> = self.columns.iter().map(name).collect();
        names.join(" ").trim_end().to_owned()
    }
}

/// Writes one ending as one line.
pub(crate) fn write(
    out: &mut impl Write,
    stored: &Stored,
    json: bool,
    style: Style,
    layout: &Layout,
) -> Result<()> {
    if json {
        serde_json::to_writer(&mut *out, &EndingView::from(stored)).map_err(io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let record = &stored.record;
    let mut line = String::new();
    for (index, (column, width)) in layout.columns.iter().enumerate() {
        let text = match layout.cells {
            Cells::Cut => column.text(record, *width),
            Cells::Whole => column.text(record, usize::MAX),
        };
        // The last one ends with the line.
        let is_last = index + 1 == layout.columns.len();
        let cell = if is_last { text } else { format!("{text:<width$} ") };
        line += &match (column.name, Reason::from_name(&record.reason)) {
            ("reason", Some(reason)) => style.reason(reason, &cell),
            ("time" | "id", _) => style.dim(&cell),
            _ => cell,
        };
    }
    writeln!(out, "{line}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(width: usize, team: Option<&str>) -> Vec<&'static str> {
        let layout = Layout::new(Some(width), &[stored(team)]);
        layout.columns.iter().map(|(column, _)| column.name).collect()
    }

    fn stored(team: Option<&str>) -> Stored {
        let record = Record {
            id: "01a1e264f65b73860000000000000001".to_owned(),
            created_at: 1_794_913_019_042,
            provider: "anthropic".into(),
            model: Some("claude-sonnet-4-5-20250929".to_owned()),
            reason: "output_limit".into(),
            action: "passed".into(),
            status: Some(200),
            tokens_out: Some(4096),
            total_us: 12_300_000,
            team_id: team.map(str::to_owned),
            ..Record::default()
        };
        Stored { record, ..Stored::default() }
    }

    fn line(width: Option<usize>, team: Option<&str>) -> String {
        let stored = stored(team);
        let layout = Layout::new(width, std::slice::from_ref(&stored));
        let mut out = Vec::new();
        write(&mut out, &stored, false, Style::of_stdout(), &layout).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_shortened_before_others_are_left_out() {
        let asked = ["time", "provider", "model", "reason", "action", "took", "id"];
        assert_eq!(names(80, None), asked);
        assert_eq!(
            line(Some(80), None),
            "11-17 10:56:59 anthropi claude-sonn output_limit passed  12.3 s  01a1e264f65b738\n"
        );
        let with_team = ["time", "model", "reason", "action", "took", "team", "id"];
        assert_eq!(names(80, Some("payments")), with_team);
        for width in [80, 100, 120, 160, 200] {
            assert!(asked.iter().all(|name| names(width, None).contains(name)), "{width}");
            for team in [None, Some("payments")] {
                assert!(line(Some(width), team).trim_end().len() <= width, "{width}");
                let layout = Layout::new(Some(width), &[stored(team)]);
                assert!(layout.head().len() <= width, "{width}");
            }
        }
        assert_eq!(names(160, None).len(), COLUMNS.len());
        assert_eq!(names(20, None), ["time", "reason", "id"]);
        let wide = line(Some(160), None);
        assert!(wide.ends_with(" 01a1e264f65b73860000000000000001\n"), "{wide}");
    }

    #[test]
    fn in_pipes_all_columns_are_whole() {
        let wide = line(None, Some("the team that answers for payments"));
        for part in [
            "2026-11-17 10:56:59Z ",
            " claude-sonnet-4-5-20250929 ",
            " the team that answers for payments ",
            " 01a1e264f65b73860000000000000001\n",
        ] {
            assert!(wide.contains(part), "{wide}");
        }
        // Also where the endings that follow were not known, as for `tail`.
        let mut out = Vec::new();
        let layout = Layout::new(None, &[]);
        write(&mut out, &stored(None), false, Style::of_stdout(), &layout).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(" claude-sonnet-4-5-20250929 "), "{text}");
    }

    #[test]
    fn a_time_that_nobody_measured_is_not_shown_as_zero() {
        assert_eq!(took(&Record::default()), "-");
    }
}
