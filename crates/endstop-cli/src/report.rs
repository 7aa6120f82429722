//! `endstop report`: counts how responses ended.

mod examples;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use endstop::Reason;
use endstop_store::view::{self, CLASSES, ratio};
use endstop_store::{
    Buckets, Dimension, Filter, Group, Period, Query, Report, Store, Sums, WordSeen,
};
use examples::Example;
use serde_json::Value;

use crate::exit;
use crate::number;
use crate::store::{FilterArgs, StoreArgs};
use crate::style::{self, Style};
use crate::when::{self, When};

/// Maximum width of a bar.
const BAR: usize = 30;
/// Maximum number of finish reasons to search for new and unknown ones.
const WORDS: usize = 10_000;
/// Pause between two reports of `--watch`.
const WATCH_SECONDS: &str = "2";

/// Show how responses ended: counts, shares, tokens and times
#[derive(clap::Args)]
#[command(after_help = "\
Without --by, the report is a matrix of providers and reasons. `bad` is the share of endings that are
truncated, broken, blocked, errors or unclear:

  truncated   output_limit, context_limit
  broken      cut, timed_out
  blocked     filtered, safety, recitation, refused
  errors      failed, malformed_tool_call
  unclear     unknown
  abandoned   cancelled

A --fail-if condition is one of these classes or a reason, an operator (>, >=, < or <=) and a number:
a share with % or a count. Conditions apply to the total of all responses.

Examples:
  endstop report --since 24h
  endstop report --by model,reason --since 7d
  endstop report --by day --tz Europe/Berlin --compare
  endstop report --since 1h --fail-if 'output_limit>2%' --fail-if 'broken>0'
  endstop report --since 10m --watch")]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Group by: `finish_reason`, reason, provider, model, team, key, upstream, action, status,
    /// streamed, dialect, hour, day
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = dimension)]
    by: Vec<Dimension>,
    /// Start of the period, such as `7d`, `24h` or `2026-11-16`
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = when::parse)]
    since: When,
    /// End of the period; now by default
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    until: Option<When>,
    /// Time zone of dates, days and hours, such as `Europe/Berlin`
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Compare with the preceding period of the same length
    #[arg(long)]
    compare: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of groups, or of providers of the matrix
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number::whole::<usize>,
          allow_negative_numbers = true)]
    limit: usize,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long)]
    csv: bool,
    /// Repeat the report every so many seconds, until stopped
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = WATCH_SECONDS,
          value_parser = number::whole::<u64>, conflicts_with_all = ["json", "csv", "fail_if"])]
    watch: Option<u64>,
    /// Exit with an error if this condition is met; can be repeated
    #[arg(long, value_name = "CONDITION", value_parser = Condition::parse)]
    fail_if: Vec<Condition>,
}

fn dimension(name: &str) -> Result<Dimension, String> {
    name.parse().map_err(|error: endstop_store::Error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before the store is opened: a mistake in the arguments is told first.
    query(args, &[])?.check().map_err(exit::invalid)?;
    let mut store = args.store.open()?;
    let Some(seconds) = args.watch else { return once(args, &mut *store) };
    loop {
        if style::has_control() {
            // Clears the screen, and begins at its top.
            io::stdout().lock().write_all(b"\x1b[2J\x1b[H")?;
        }
        match once(args, &mut *store) {
            Ok(_) => {}
            Err(error) => match error.downcast_ref::<endstop_store::Error>() {
                Some(passing) if passing.is_retryable() => {
                    say!("endstop: {passing}; retrying");
                    store = args.store.open()?;
                }
                Some(_) | None => return Err(error),
            },
        }
        std::thread::sleep(Duration::from_secs(seconds.max(1)));
    }
}

fn once(args: &Args, store: &mut dyn Store) -> Result<ExitCode> {
    let is_matrix = args.by.is_empty() && !args.compare && !args.json && !args.csv;
    // A matrix has the reasons of each provider beside each other: the limit leaves out providers, and no cell.
    let usual: &[Dimension] =
        if is_matrix { &[Dimension::Provider] } else { &[Dimension::Provider, Dimension::Reason] };
    let query = query(args, usual)?;
    let report = store.report(&query)?;
    let text = if args.csv {
        csv(&query, &report)?
    } else {
        let odd = Odd::find(store, &query.filter, report.period)?;
        let examples = examples::find(store, &query, &report)?;
        if args.json {
            serde_json::to_string_pretty(&json(&query, &report, &odd, &examples)?)? + "\n"
        } else {
            let show = args.store.command("show")?;
            let style = Style::of_stdout();
            text(&query, &report, &odd, &Shown { examples, show, is_matrix }, style)
        }
    };
    io::stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")?;
    let mut failed = false;
    for condition in &args.fail_if {
        if let Some(why) = condition.holds(&report.total.now) {
            say!("endstop: {why}");
            failed = true;
        }
    }
    Ok(if failed { ExitCode::from(exit::FAIL_IF) } else { ExitCode::SUCCESS })
}

/// Returns the question, by the usual dimensions where none are asked for.
fn query(args: &Args, usual: &[Dimension]) -> Result<Query> {
    let now = when::now();
    let at = |when: When| when.at(now, Some(&args.tz)).map_err(exit::invalid);
    let since = at(args.since)?;
    let until = args.until.map(at).transpose()?.unwrap_or(now + 1);
    if since >= until {
        return Err(exit::invalid("invalid period: --since must be before --until"));
    }
    let before = Period { since: since.saturating_sub(until - since), until: since };
    Ok(Query {
        by: if args.by.is_empty() { usual.to_vec() } else { args.by.clone() },
        period: Period { since, until },
        before: args.compare.then_some(before),
        zone: Some(args.tz.clone()),
        filter: args.filter.filter(),
        limit: args.limit,
    })
}

/// Finish reasons that people should look at.
struct Odd {
    unknown: Vec<WordSeen>,
    /// Known ones that were first seen in the period; none where all were, as on a new store.
    new: Vec<WordSeen>,
}

impl Odd {
    fn find(store: &mut dyn Store, filter: &Filter, period: Period) -> Result<Self> {
        let words = store.words(filter, period, WORDS)?;
        let (unknown, known): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| word.reason == Reason::Unknown.name());
        let new = known.into_iter().filter(|word| word.is_new);
        Ok(Self { unknown, new: new.collect() })
    }

    fn all(&self) -> Vec<&WordSeen> {
        self.unknown.iter().chain(&self.new).collect()
    }
}

/// Returns the report as JSON: with the words, and the examples of each group by their reasons.
fn json(query: &Query, report: &Report, odd: &Odd, examples: &[Example]) -> Result<Value> {
    let mut json = view::json(query, report);
    if let Some(groups) = json.get_mut("groups").and_then(Value::as_array_mut) {
        for Example { group, reason, id } in examples {
            let Some(fields) = groups.get_mut(*group).and_then(Value::as_object_mut) else {
                continue;
            };
            let examples = fields.entry("examples").or_insert_with(|| serde_json::json!({}));
            if let Some(examples) = examples.as_object_mut() {
                examples.insert(reason.name().to_owned(), Value::from(id.as_str()));
            }
        }
    }
    if let Some(fields) = json.as_object_mut() {
        fields.insert("words".to_owned(), serde_json::to_value(odd.all())?);
    }
    Ok(json)
}

/// Details of a report for people, besides its counts.
struct Shown {
    examples: Vec<Example>,
    /// The command that shows an ending.
    show: String,
    is_matrix: bool,
}

fn text(
    query: &Query,
    report: &Report,
    odd: &Odd,
    Shown { examples, show, is_matrix }: &Shown,
    style: Style,
) -> String {
    let mut out = String::new();
    let total = &report.total.now;
    let zone = query.zone.as_deref().unwrap_or("UTC");
    let shown = |period: Period| {
        let [since, until] =
            [period.since, period.until].map(|ms| when::in_zone(ms, zone, "%Y-%m-%d %H:%M:%S"));
        format!("{since} to {until} {zone}")
    };
    let head = format!("responses: {}", grouped(total.count));
    let _ = writeln!(out, "{}  {}", style.bold(&head), style.dim(&shown(report.period)));
    if report.period != query.period {
        let _ = writeln!(
            out,
            "the rows of an hour that the period cuts have been deleted: counted from its beginning"
        );
    }
    if let Some(before) = report.before {
        let _ = writeln!(out, "{}", style.dim(&format!("compared with {}", shown(before))));
    }
    if total.count == 0 && report.total.before.as_ref().is_none_or(|sums| sums.count == 0) {
        out.push_str("no matching responses\n");
        return out;
    }
    words(&mut out, "unknown", &odd.unknown);
    if *is_matrix {
        matrix(&mut out, report, style);
    } else {
        table(&mut out, query, report, style);
    }
    if report.left_out > 0 {
        let what = if *is_matrix { "provider" } else { "group" };
        let (left_out, s) = (report.left_out, if report.left_out == 1 { "" } else { "s" });
        let _ = writeln!(out, "… and {left_out} more {what}{s}; raise --limit to see more");
    }
    shares(&mut out, &report.total, style);
    for Example { group, reason, id } in examples {
        let Some(group) = report.groups.get(*group) else { continue };
        let mut key = shown_key(query, group);
        if !query.by.contains(&Dimension::Reason) {
            key.push(reason.name().to_owned());
        }
        let name = style.dim(&format!("{:<10}", "example"));
        let _ = writeln!(out, "{name} {}: {show} {id}", key.join(" "));
    }
    words(&mut out, "new", &odd.new);
    out
}

fn words(out: &mut String, what: &str, words: &[WordSeen]) {
    for word in words {
        let model = if word.model.is_empty() { "-" } else { &word.model };
        let _ = writeln!(
            out,
            "{what:<10} {} {} `{}` in `{}`: count {}, first seen {}, last {} UTC",
            word.provider,
            endstop::text::clean(model, 60),
            endstop::text::clean(&word.word, 60),
            word.field,
            grouped(word.count),
            when::shown(word.first_seen),
            when::shown(word.last_seen),
        );
    }
}

/// Writes providers as rows and reasons as columns, as many as fit.
fn matrix(out: &mut String, report: &Report, style: Style) {
    let name = |group: &Group| group.key.first().cloned().flatten();
    let mut providers: Vec<(String, Sums)> = report
        .groups
        .iter()
        .map(|group| (name(group).unwrap_or_else(|| "null".to_owned()), group.now.clone()))
        .collect();
    if providers.len() > 1 || report.left_out > 0 {
        providers.push(("all".to_owned(), report.total.now.clone()));
    }
    let widest = providers.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(8);
    let mut reasons: Vec<(&String, &u64)> = report.total.now.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    // The names of the columns, but those for which there is no room.
    let room = style::width().saturating_sub(widest + 2 + 10 + 9 + 9 + 8);
    let mut used = 0;
    let mut columns: Vec<&str> = Vec::new();
    for (reason, _) in &reasons {
        used += reason.len().max(8) + 2;
        if used <= room {
            columns.push(reason);
        }
    }
    let has_others = columns.len() < reasons.len();
    let mut head = format!("{:<widest$}  {:>8} {:>8} {:>8}", "provider", "count", "bad", "p95");
    for column in &columns {
        let _ = write!(head, "  {column:>8}");
    }
    if has_others {
        let _ = write!(head, "  {:>6}", "others");
    }
    let _ = writeln!(out, "{}", style.dim(&head));
    for (name, sums) in &providers {
        let count = grouped(sums.count);
        let bad = percent(view::bad(sums));
        let _ = write!(out, "{name:<widest$}  {count:>8} {bad:>8} {:>8}", p95(&sums.total));
        let mut told = 0;
        for column in &columns {
            let count = sums.reasons.get(*column).copied().unwrap_or(0);
            told += count;
            let _ = write!(out, "  {:>1$}", blank_zero(count), column.len().max(8));
        }
        if has_others {
            let _ = write!(out, "  {:>6}", blank_zero(sums.count - told));
        }
        out.push('\n');
    }
}

fn blank_zero(count: u64) -> String {
    if count == 0 { "-".to_owned() } else { grouped(count) }
}

/// Returns the time that 95 of 100 responses took at most; nothing is said of a single one.
fn p95(times: &Buckets) -> String {
    times.quantile(0.95).map_or("-".to_owned(), when::long)
}

fn table(out: &mut String, query: &Query, report: &Report, style: Style) {
    let keys: Vec<Vec<String>> =
        report.groups.iter().map(|group| shown_key(query, group)).collect();
    let widths: Vec<usize> = query
        .by
        .iter()
        .enumerate()
        .map(|(column, dimension)| {
            let cells = keys.iter().filter_map(|key| key.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(dimension.name().len())
        })
        .collect();
    let mut head = String::new();
    for (dimension, width) in query.by.iter().zip(&widths) {
        let _ = write!(head, "{:<width$}  ", dimension.name());
    }
    let compared = if query.before.is_some() { "    before   change" } else { "" };
    let _ = write!(head, "{:>10} {:>7}{compared} {:>8} {:>8}", "count", "share", "bad", "p95");
    let room = style::width().saturating_sub(head.chars().count() + 2).min(BAR);
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
        let bad = percent(view::bad(&group.now));
        let _ = write!(out, " {bad:>8} {:>8}", p95(&group.now.total));
        let bar = bar(group.now.count, most, room);
        let _ = writeln!(out, "{}{bar}", if bar.is_empty() { "" } else { "  " });
    }
}

/// Returns the cells that name a group.
fn shown_key(query: &Query, group: &Group) -> Vec<String> {
    let zone = query.zone.as_deref().unwrap_or("UTC");
    let shown = |(dimension, value): (&Dimension, &Option<String>)| {
        let Some(value) = value else { return "null".to_owned() };
        match (dimension, value.parse::<u64>()) {
            (Dimension::Day, Ok(ms)) => when::in_zone(ms, zone, "%Y-%m-%d"),
            (Dimension::Hour, Ok(ms)) => when::in_zone(ms, zone, "%Y-%m-%d %H:%M%:z"),
            _ => endstop::text::clean(value, 80),
        }
    };
    query.by.iter().zip(&group.key).map(shown).collect()
}

fn shares(out: &mut String, total: &Group, style: Style) {
    let sums = &total.now;
    let told: Vec<String> = CLASSES
        .iter()
        .filter(|(_, reasons)| sums.of(reasons) > 0)
        .map(|(name, reasons)| format!("{name} {}", percent(sums.share(reasons))))
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
    let shares = CLASSES.iter().map(|(name, _)| (*name).to_owned());
    line(named.chain(measures.map(str::to_owned)).chain(shares).collect())?;
    for group in &report.groups {
        let Group { now, before, .. } = group;
        let mut cells = shown_key(query, group);
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
        cells.extend(CLASSES.iter().map(|(_, reasons)| format!("{:.6}", now.share(reasons))));
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

fn bar(count: u64, most: u64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (ratio(count, most) * (width * 8) as f64).round() as usize;
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
        let reasons = CLASSES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, reasons)| reasons.to_vec())
            .or_else(|| Reason::from_name(name).map(|reason| vec![reason]));
        let reasons = reasons.ok_or_else(|| {
            let shares = CLASSES.iter().map(|(name, _)| *name);
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
        assert!(holds("truncated>2%") && holds("cut>0") && !holds("cut>1") && holds("errors<1"));
        assert!(holds("broken>0") && holds("failed<1"));
        // No class has the name of a reason.
        assert!(CLASSES.iter().all(|(name, _)| Reason::from_name(name).is_none()));
        for wrong in ["", "cut", "cut=1", "nothing>1%", "cut>x", "cut>", "cut>inf%"] {
            assert!(Condition::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cells_are_never_formulas() {
        assert_eq!(plain("=1+1"), "'=1+1");
        assert_eq!(plain("a=1"), "a=1");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!((bar(1, 1, BAR).chars().count(), bar(0, 1, BAR).as_str()), (BAR, ""));
    }
}
