//! `endstop replay`: how did all these recorded responses end?

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use endstop::registry::{Clues, Registry, UnknownWord};
use endstop::{Asked, Close, Ending, Head, Reader, Reason, Wire};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit;
use crate::line::Line;
use crate::recording::{self, Recording};
use crate::style::Style;

/// Judge recorded traffic: VCR cassettes, HAR, JSON lines
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop replay tests/cassettes/
  endstop replay --json recordings/*.jsonl.gz | jq -r 'select(.reason == \"cut\").id'
  endstop replay --fail-on cut,unknown tests/cassettes/")]
pub(crate) struct Args {
    /// Files (.jsonl, .yaml, .yml, .json, .har, each also .gz) or folders of them
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// A TOML file of your own providers and words
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON line per response
    #[arg(long)]
    json: bool,
    /// Exit with an error if one of these endings occurs
    #[arg(long, value_name = "ENDING,…", value_delimiter = ',', value_parser = exit::parse_reason)]
    fail_on: Vec<Reason>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut registry = crate::config::registry(args.config.as_deref())?;
    let files = find_files(&args.paths)?;
    let progress = progress(&files);
    let mut tally = Tally::default();
    let mut out = BufWriter::new(io::stdout().lock());
    for file in &files {
        recording::each(&file.path, &progress, |recording| {
            let (wire, ending) = judge(&registry, &recording);
            tally.count(&ending);
            tally.unknown.extend(registry.report_unknown(&wire, &ending));
            if args.json {
                serde_json::to_writer(&mut out, &Line::new(&recording.id, &ending))
                    .map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
            Ok(())
        })
        .or_else(|error| file.forgive(error, &mut tally))?;
    }
    progress.finish_and_clear();
    out.flush()?;
    if args.json {
        tally.print(&mut io::stderr().lock(), Style::of_stdout())?;
    } else {
        tally.print(&mut out, Style::of_stdout())?;
        out.flush()?;
    }
    Ok(ExitCode::from(tally.exit_code(&args.fail_on)))
}

/// Judges one recording.
fn judge(registry: &Registry, recording: &Recording) -> (Wire, Ending) {
    let wire = registry.choose(&Clues {
        provider: &recording.provider,
        dialect: &recording.dialect,
        host: &recording.host,
        path: &recording.path,
        body: &recording.body,
        ..Clues::default()
    });
    let head = Head { status: recording.status, content_type: &recording.content_type };
    let asked = Asked {
        model: recording.model.clone(),
        streamed: recording.streamed,
        cap: recording.cap,
        choices: recording.choices,
        stop: Vec::new(),
        tools: None,
    };
    let mut reader = Reader::new(wire.clone(), head, asked);
    reader.watch(&recording.body);
    (wire, reader.finish(Close::Eof))
}

struct Found {
    path: PathBuf,
    size: u64,
    /// It was named by the user rather than found in a folder.
    named: bool,
}

impl Found {
    /// Folders hold other files too; only what was named must be a recording.
    fn forgive(&self, error: anyhow::Error, tally: &mut Tally) -> Result<()> {
        let is_io = error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some());
        if self.named || is_io {
            return Err(error);
        }
        tally.skipped += 1;
        Ok(())
    }
}

fn find_files(paths: &[PathBuf]) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for path in paths {
        let data =
            std::fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
        if data.is_dir() {
            walk(path, &mut found)?;
        } else {
            found.push(Found { path: path.clone(), size: data.len(), named: true });
        }
    }
    if found.is_empty() {
        bail!(
            "no recordings there: they end in .jsonl, .yaml, .yml, .json or .har, with or without .gz"
        );
    }
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<Found>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut entries: Vec<_> = entries.collect::<io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, data) = (entry.path(), entry.metadata()?);
        if data.is_dir() {
            walk(&path, found)?;
        } else if is_recording(&path) {
            found.push(Found { path, size: data.len(), named: false });
        }
    }
    Ok(())
}

fn is_recording(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    [".jsonl", ".ndjson", ".yaml", ".yml", ".json", ".har"].iter().any(|end| plain.ends_with(end))
}

fn progress(files: &[Found]) -> ProgressBar {
    let bar = ProgressBar::new(files.iter().map(|file| file.size).sum());
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {elapsed}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// How many ended how, by provider.
#[derive(Default)]
struct Tally {
    rows: BTreeMap<String, BTreeMap<&'static str, u64>>,
    reasons: BTreeMap<Reason, u64>,
    pending: u64,
    total: u64,
    skipped: u64,
    /// Words that are in no table, each once for a provider and model.
    unknown: Vec<UnknownWord>,
}

impl Tally {
    fn count(&mut self, ending: &Ending) {
        self.total += 1;
        let name = if ending.over { ending.reason.name() } else { "not_over" };
        *self.rows.entry(ending.provider.clone()).or_default().entry(name).or_default() += 1;
        if ending.over {
            *self.reasons.entry(ending.reason).or_default() += 1;
        } else {
            self.pending += 1;
        }
    }

    fn print(&self, out: &mut impl Write, style: Style) -> io::Result<()> {
        let width = self.rows.keys().map(String::len).max().unwrap_or(0).max(8);
        for (provider, counts) in &self.rows {
            let total: u64 = counts.values().sum();
            write!(out, "{:<width$} {total:>6} ", style.bold(&format!("{provider:<width$}")))?;
            let mut counts: Vec<_> = counts.iter().collect();
            counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (name, count) in counts {
                write!(out, "  {name} {count}")?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
        for (reason, count) in &self.reasons {
            let share = 100.0 * (*count as f64) / (self.total as f64);
            writeln!(
                out,
                "{} {count:>6}  {share:>5.1} %",
                style.reason(*reason, &format!("{:<20}", reason.name()))
            )?;
        }
        if self.pending > 0 {
            writeln!(out, "{:<20} {:>6}", "not over yet", self.pending)?;
        }
        writeln!(out, "{:<20} {:>6}", "responses", self.total)?;
        for UnknownWord { provider, model, field, word } in &self.unknown {
            writeln!(out, "unknown word: `{word}` in `{field}` of {provider} {model}")?;
        }
        if self.skipped > 0 {
            writeln!(out, "{:<20} {:>6}", "files passed over", self.skipped)?;
        }
        Ok(())
    }

    /// The code of the worst ending that was asked about.
    fn exit_code(&self, fail_on: &[Reason]) -> u8 {
        let occurred = self.reasons.keys().rev().find(|reason| fail_on.contains(reason));
        occurred.map_or(0, |reason| exit::of_reason(*reason))
    }
}
