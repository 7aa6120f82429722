//! `endstop report`: counts how responses ended.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use endstop::Reason;
use endstop_store::view::{self, SHARES, ratio};
use endstop_store::{Dimension, Group, Period, Query, Report, Sums, WordSeen};

use crate::exit;
use crate::number;
use crate::store::{FilterArgs, StoreArgs};
use crate::style::Style;
use crate::when::{self, When};

/// Maximum width of a bar.
const BAR: usize = 30;
/// Maximum number of finish reasons to search for new and unknown ones.
const WORDS: usize = 1000;

/// Show how responses ended: counts, shares, tokens and times
#[derive(clap::Args)]
#[command(after_help = "\
A --fail-if condition is a name, an operator and a number. The name is a reason or one of truncated,
cut, filtered, refused, paused, unknown, failed, timed_out, cancelled. The operator is >, >=, < or
<=. The number is a share with % or a count. Conditions apply to the total of all responses.

Examples:
  endstop report --by provider,reason --since 7d
  endstop report --by finish_reason --team payments
  endstop report --by day --compare
  endstop report --since 1h --fail-if 'output_limit>2%' --fail-if 'cut>0'")]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Group by: `finish_reason`, reason, provider, model, team, key, upstream, hour, day
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "reason",
          value_parser = dimension)]
    by: Vec<Dimension>,
    /// Start of the period, such as `7d`, `24h` or `2026-11-16`; widened to whole hours
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = when::parse)]
    since: When,
    /// End of the period; now by default
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    until: Option<When>,
    /// Compare with the preceding period of the same length
    #[arg(long)]
    compare: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of groups
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number::whole::<usize>,
          allow_negative_numbers = true)]
    limit: usize,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long)]
    csv: bool,
    /// Exit with an error if this condition is met; can be repeated
    #[arg(long, value_name = "CONDITION", value_parser = Condition::parse)]
    fail_if: Vec<Condition>,
}

fn dimension(name: &str) -> Result<Dimension, String> {
    name.parse().map_err(|error: endstop_store::Error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let now = when::now();
    let (since, until) = (args.since.at(now), args.until.map_or(now + 1, |until| until.at(now)));
    if since >= until {
        return Err(anyhow!("invalid period: --since must be before --until"));
    }
    let before = Period { since: since.saturating_sub(until - since), until: since };
    let query = Query {
        by: args.by.clone(),
        period: Period { since, until },
        before: args.compare.then_some(before),
        filter: args.filter.filter(),
        limit: args.limit,
    };
    let mut store = args.store.open()?;
    let report = store.report(&query)?;
    let words = store.words(query.period, WORDS)?;
    let text = match (args.json, args.csv) {
        (true, _) => {
            let mut json = view::json(&query, &report);
            if let Some(fields) = json.as_object_mut() {
                fields.insert("words".to_owned(), serde_json::to_value(odd(&words, since))?);
            }
            serde_json::to_string_pretty(&json)? + "\n"
        }
        (_, true) => csv(&query, &report)?,
        (false, false) => text(&query, &report, &odd(&words, since), Style::of_stdout()),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    let mut failed = false;
    for condition in &args.fail_if {
        if let Some(why) = condition.holds(&report.total.now) {
            say!("endstop: {why}");
            failed = true;
        }
    }
    Ok(if failed { ExitCode::from(exit::FAIL_IF) } else { ExitCode::SUCCESS })
}

/// Returns the finish reasons that are unknown, or first seen in this period.
fn odd(words: &[WordSeen], since: u64) -> Vec<&WordSeen> {
    let unknown = Reason::Unknown.name();
    words.iter().filter(|word| word.reason == unknown || word.first_seen >= since).collect()
}

fn text(query: &Query, report: &Report, words: &[&WordSeen], style: Style) -> String {
    let mut out = String::new();
    let total = &report.total.now;
    let Period { since, until } = query.period;
    let head = format!("responses: {}", grouped(total.count));
    let _ = writeln!(
        out,
        "{}  {}",
        style.bold(&head),
        style.dim(&format!("{} to {} UTC", when::shown(since), when::shown(until)))
    );
    if total.count == 0 {
        out.push_str("no matching responses\n");
        return out;
    }
    table(&mut out, query, report, style);
    shares(&mut out, &report.total, style);
    for word in words {
        let new = if word.reason == Reason::Unknown.name() { "unknown" } else { "new" };
        let _ = writeln!(
            out,
            "{new:<10} {} `{}` in `{}`: count {}, {} to {} UTC",
            word.provider,
            word.word,
            word.field,
            grouped(word.count),
            when::shown(word.first_seen),
            when::shown(word.last_seen),
        );
    }
    out
}

fn table(out: &mut String, query: &Query, report: &Report, style: Style) {
    let keys: Vec<Vec<String>> =
        report.groups.iter().map(|group| shown_key(&query.by, group)).collect();
    let widths: Vec<usize> = query
        .by
        .iter()
        .enumerate()
        .map(|(column, dimension)| {
            let cells = keys.iter().filter_map(|key| key.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(heading(*dimension).len())
        })
        .collect();
    let mut head = String::new();
    for (dimension, width) in query.by.iter().zip(&widths) {
        let _ = write!(head, "{:<width$}  ", heading(*dimension));
    }
    let compared = if query.before.is_some() { "    before   change" } else { "" };
    let _ = write!(head, "{:>10}   share{compared}", "count");
    let _ = writeln!(out, "{}", style.dim(&head));
    let most = report.groups.iter().map(|group| group.now.count).max().unwrap_or(0);
    for (group, key) in report.groups.iter().zip(&keys) {
        for (cell, width) in key.iter().zip(&widths) {
            let _ = write!(out, "{cell:<width$}  ");
        }
        let share = ratio(group.now.count, report.total.now.count);
        let _ = write!(out, "{:>10} {:>7}", grouped(group.now.count), percent(share));
        if let Some(before) = &group.before {
            let _ = write!(out, "{:>10} {:>8}", grouped(before.count), change(before, &group.now));
        }
        let _ = writeln!(out, "  {}", bar(group.now.count, most));
    }
    if report.left_out > 0 {
        let _ = writeln!(out, "… and {} more groups; raise --limit to see them", report.left_out);
    }
}

fn heading(dimension: Dimension) -> &'static str {
    if dimension == Dimension::Day { "day (UTC)" } else { dimension.name() }
}

/// Returns the cells that name a group.
fn shown_key(by: &[Dimension], group: &Group) -> Vec<String> {
    let shown = |(dimension, value): (&Dimension, &Option<String>)| {
        let Some(value) = value else { return "null".to_owned() };
        match (dimension, value.parse::<u64>()) {
            (Dimension::Day, Ok(ms)) => when::day(ms / (24 * 3_600_000)),
            (Dimension::Hour, Ok(ms)) => when::hour(ms),
            _ => endstop::text::clean(value, 80),
        }
    };
    by.iter().zip(&group.key).map(shown).collect()
}

fn shares(out: &mut String, total: &Group, style: Style) {
    let sums = &total.now;
    let told: Vec<String> = SHARES
        .iter()
        .filter(|(_, reasons)| sums.of(reasons) > 0)
        .map(|(name, reasons)| {
            format!("{} {}", name.replace('_', " "), percent(sums.share(reasons)))
        })
        .collect();
    let row = |out: &mut String, name: &str, text: &str| {
        let _ = writeln!(out, "{} {text}", style.dim(&format!("{name:<10}")));
    };
    let told = if told.is_empty() { "all ended normally".to_owned() } else { told.join(", ") };
    row(out, "problems", &told);
    if sums.repeated > 0 {
        let well = ratio(sums.repeated_well, sums.repeated);
        let text = format!(
            "{} user requests; {} repeated a failed one, {} of these ended normally",
            grouped(sums.turns()),
            grouped(sums.repeated),
            percent(well)
        );
        row(out, "requests", &text);
    }
    let tokens = format!(
        "{} in, {} out, {} reasoning, {} cached; {} on truncated or cut responses",
        grouped(sums.tokens_in),
        grouped(sums.tokens_out),
        grouped(sums.tokens_reasoning),
        grouped(sums.tokens_cached),
        grouped(sums.tokens_of_cut),
    );
    row(out, "tokens", &tokens);
    if sums.counted < sums.count {
        let text = format!(
            "known for {} of responses; some providers send usage in streams only on request \
             (record.ask_usage)",
            percent(ratio(sums.counted, sums.count))
        );
        row(out, "", &text);
    }
    for (name, buckets) in [("first byte", &sums.first_byte), ("total", &sums.total)] {
        let at = |share| buckets.quantile(share).map_or("-".to_owned(), when::long);
        row(out, name, &format!("p50 {}, p95 {}, p99 {}", at(0.50), at(0.95), at(0.99)));
    }
}

fn csv(query: &Query, report: &Report) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let mut line =
        |cells: Vec<String>| table.write_record(cells.iter().map(|cell| plain(cell).into_owned()));
    let named = query.by.iter().map(|dimension| dimension.name().to_owned());
    let measures = [
        "count",
        "share",
        "before",
        "tokens_in",
        "tokens_out",
        "tokens_reasoning",
        "tokens_cached",
        "tokens_of_cut",
        "repeated",
        "repeated_well",
        "first_byte_p50_us",
        "first_byte_p95_us",
        "first_byte_p99_us",
        "total_p50_us",
        "total_p95_us",
        "total_p99_us",
    ];
    let shares = SHARES.iter().map(|(name, _)| (*name).to_owned());
    line(named.chain(measures.map(str::to_owned)).chain(shares).collect())?;
    for group in &report.groups {
        let Group { now, before, .. } = group;
        let mut cells = shown_key(&query.by, group);
        cells.push(now.count.to_string());
        cells.push(format!("{:.6}", ratio(now.count, report.total.now.count)));
        cells.push(before.as_ref().map_or(String::new(), |before| before.count.to_string()));
        let sums = [
            now.tokens_in,
            now.tokens_out,
            now.tokens_reasoning,
            now.tokens_cached,
            now.tokens_of_cut,
            now.repeated,
            now.repeated_well,
        ];
        cells.extend(sums.map(|sum| sum.to_string()));
        for buckets in [&now.first_byte, &now.total] {
            let at = |share| buckets.quantile(share).map_or(String::new(), |us| us.to_string());
            cells.extend([0.50, 0.95, 0.99].map(at));
        }
        cells.extend(SHARES.iter().map(|(_, reasons)| format!("{:.6}", now.share(reasons))));
        line(cells)?;
    }
    let bytes = table.into_inner().map_err(|error| anyhow!("cannot write CSV: {error}"))?;
    Ok(String::from_utf8(bytes)?)
}

/// Marks as text a cell that a spreadsheet would take for a formula.
fn plain(cell: &str) -> Cow<'_, str> {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula { Cow::Owned(format!("'{cell}")) } else { Cow::Borrowed(cell) }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn change(before: &Sums, now: &Sums) -> String {
    if before.count == 0 {
        return "new".to_owned();
    }
    format!("{:+.1} %", (now.count as f64 / before.count as f64 - 1.0) * 100.0)
}

fn bar(count: u64, most: u64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (ratio(count, most) * (BAR * 8) as f64).round() as usize;
    let part = PARTS.get(eighths % 8).copied().unwrap_or_default();
    "█".repeat(eighths / 8) + part
}

/// Formats a number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

type Compare = fn(f64, f64) -> bool;

/// Condition of `--fail-if`, such as `output_limit>2%`.
#[derive(Clone, Debug)]
struct Condition {
    text: String,
    reasons: Vec<Reason>,
    compare: Compare,
    value: f64,
    is_share: bool,
}

impl Condition {
    fn parse(text: &str) -> Result<Self, String> {
        let known: [(&str, Compare); 4] = [
            (">=", |one, other| one >= other),
            ("<=", |one, other| one <= other),
            (">", |one, other| one > other),
            ("<", |one, other| one < other),
        ];
        let wrong = || {
            format!("invalid condition `{text}`: expected one such as `output_limit>2%` or `cut>0`")
        };
        let parts =
            known.iter().find_map(|(sign, compare)| Some((text.split_once(sign)?, *compare)));
        let ((name, value), compare) = parts.ok_or_else(wrong)?;
        let name = name.trim();
        let reasons = SHARES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, reasons)| reasons.to_vec())
            .or_else(|| Reason::from_name(name).map(|reason| vec![reason]));
        let reasons = reasons.ok_or_else(|| {
            let shares = SHARES.iter().map(|(name, _)| *name);
            let mut known: Vec<&str> = Reason::ALL.into_iter().map(Reason::name).collect();
            known.extend(shares.filter(|name| Reason::from_name(name).is_none()));
            format!("unknown name `{name}`: expected one of {}", known.join(", "))
        })?;
        let value = value.trim();
        let share = value.strip_suffix('%');
        let number: f64 = share.unwrap_or(value).trim().parse().map_err(|_| wrong())?;
        if !number.is_finite() {
            return Err(wrong());
        }
        Ok(Self {
            text: text.to_owned(),
            reasons,
            compare,
            value: number,
            is_share: share.is_some(),
        })
    }

    /// Returns a message if the condition is met.
    fn holds(&self, sums: &Sums) -> Option<String> {
        let count = sums.of(&self.reasons);
        let share = ratio(count, sums.count) * 100.0;
        let is = if self.is_share { share } else { count as f64 };
        (self.compare)(is, self.value).then(|| {
            format!(
                "condition met: {} ({} of {} responses, {share:.2} %)",
                self.text,
                grouped(count),
                grouped(sums.count)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(count: u64, reasons: &[(&str, u64)]) -> Sums {
        let reasons = reasons.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Sums { count, reasons, ..Sums::default() }
    }

    #[test]
    fn conditions_are_asked_of_shares_and_counts() {
        let sums = sums(100, &[("output_limit", 2), ("context_limit", 1), ("cut", 1)]);
        let holds = |text: &str| Condition::parse(text).unwrap().holds(&sums).is_some();
        assert!(
            !holds("output_limit>2%") && holds("output_limit>=2%") && holds("output_limit > 1.9 %")
        );
        assert!(holds("truncated>2%") && holds("cut>0") && !holds("cut>1") && holds("failed<1"));
        for wrong in ["", "cut", "cut=1", "nothing>1%", "cut>x", "cut>", "cut>inf%"] {
            assert!(Condition::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cells_are_never_formulas() {
        assert_eq!(plain("=1+1"), "'=1+1");
        assert_eq!(plain("a=1"), "a=1");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!((bar(1, 1).chars().count(), bar(0, 1).as_str()), (BAR, ""));
    }
}
