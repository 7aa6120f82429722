//! `endstop replay`: judges recorded responses.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use endstop::registry::{Clues, Registry, UnknownWord};
use endstop::{Ending, Head, Reason, RequestInfo, TransportEnd, Watcher, Wire};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit;
use crate::line::Line;
use crate::recording::{self, Recording, Scope, Unread};
use crate::style::Style;

/// Maximum number of entries in each list of problems.
const MAX_NAMED: usize = 20;

/// Error for files that contain no recordings.
const NO_RECORDING: &str = "no recordings found: expected JSON lines, VCR cassettes or HAR; use \
                            `endstop check` for a single response";

/// Judge recorded responses in VCR cassettes, HAR files or JSON lines
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop replay tests/cassettes/
  endstop replay --json recordings/*.jsonl.gz | jq -r 'select(.reason == \"cut\").id'
  endstop replay --fail-on cut,unknown tests/cassettes/

A line of JSON is one response: an object with `body` (text, or base64 with `encoding`) and, if
known, `id`, `provider`, `api` (the wire), `url` (or `host` and `url_path`), `headers` (of the
request), `model`, `status`, `content_type`, `stream`, `request_max_tokens`.

Recordings that cannot be read are counted, listed and skipped. The exit code is then 22.")]
pub(crate) struct Args {
    /// Files (.jsonl, .yaml, .yml, .json, .har, each also with .gz) or directories
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// TOML file with custom providers and finish reasons, or the gateway's configuration
    #[arg(long, value_name = "FILE", env = "ENDSTOP_CONFIG")]
    config: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Exit with an error if one of these endings occurs
    #[arg(long, value_name = "ENDING,…", value_delimiter = ',', value_parser = exit::parse_reason)]
    fail_on: Vec<Reason>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut registry = crate::config::registry(args.config.as_deref())?;
    let mut tally = Tally::default();
    let files = find_files(&args.paths, &mut tally)?;
    let progress = progress(&files);
    let known = registry.clone();
    let mut out = BufWriter::new(io::stdout().lock());
    for file in &files {
        recording::each(&file.path, &known, &progress, |read| {
            let recording = match read {
                Ok(recording) => recording,
                Err(unread) => {
                    tally.miss(unread, file.named);
                    return Ok(());
                }
            };
            let (wire, ending) = judge(&registry, &recording);
            tally.note_provider(&registry, &recording.provider);
            tally.count(&ending);
            tally.note_odd(&recording);
            tally.unknown.extend(registry.report_unknown(&wire, &ending));
            if args.json {
                serde_json::to_writer(&mut out, &Line::new(&recording.id, &ending, &wire))
                    .map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
            Ok(())
        })?;
    }
    progress.finish_and_clear();
    out.flush()?;
    if let Some(error) = tally.read_nothing() {
        return Err(error);
    }
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
    let headers: Vec<(&str, &str)> =
        recording.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let wire = registry.choose(&Clues {
        provider: &recording.provider,
        dialect: &recording.dialect,
        host: &recording.host,
        path: &recording.path,
        headers: &headers,
        body: &recording.body,
        ..Clues::default()
    });
    let head = Head { status: recording.status, content_type: &recording.content_type };
    let request = request(&wire, recording);
    let mut reader = Watcher::new(wire.clone(), head, request);
    reader.watch(&recording.body);
    (wire, reader.finish(TransportEnd::Eof))
}

/// Returns the facts of the request. The fields of the recording take precedence over its body.
fn request(wire: &Wire, recording: &Recording) -> RequestInfo {
    let read = RequestInfo::from_request(&wire.profile, &recording.path, &recording.request);
    let read = match recording.request.as_slice() {
        // Only the path is known.
        [] => RequestInfo { model: read.model, ..RequestInfo::default() },
        _ => read,
    };
    RequestInfo {
        model: recording.model.clone().or(read.model),
        streamed: recording.streamed.or(read.streamed),
        cap: recording.cap.or(read.cap),
        ..read
    }
}

struct Found {
    path: PathBuf,
    size: u64,
    /// Whether the user named this file, rather than its directory.
    named: bool,
}

/// Returns the files to read. Paths that cannot be opened are counted.
fn find_files(paths: &[PathBuf], tally: &mut Tally) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for path in paths {
        let data = match std::fs::metadata(path) {
            Ok(data) => data,
            Err(error) => {
                let why = format!("cannot open it: {error}");
                let id = path.display().to_string();
                tally.miss(Unread { id, why, scope: Scope::Record }, true);
                continue;
            }
        };
        if data.is_dir() {
            walk(path, &mut found)?;
        } else {
            found.push(Found { path: path.clone(), size: data.len(), named: true });
        }
    }
    if found.is_empty() && tally.unread == 0 {
        bail!(
            "no recordings found: expected files that end in .jsonl, .yaml, .yml, .json or .har, \
             with or without .gz"
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

/// Counts of endings by provider, and the problems found.
#[derive(Default)]
struct Tally {
    rows: BTreeMap<String, BTreeMap<&'static str, u64>>,
    reasons: BTreeMap<Reason, u64>,
    pending: u64,
    total: u64,
    /// Files in directories that are not recordings.
    skipped: u64,
    /// Requests that do not ask a model.
    other_requests: u64,
    /// Number of recordings that could not be read, and the first of them.
    unread: u64,
    first_unread: Vec<Unread>,
    /// Number of fields that were ignored, and the first of them.
    odd: u64,
    first_odd: Vec<String>,
    /// Unknown provider names, and the number of responses with each.
    unknown_providers: BTreeMap<String, u64>,
    /// Unknown finish reasons, each once per provider and model.
    unknown: Vec<UnknownWord>,
}

impl Tally {
    fn count(&mut self, ending: &Ending) {
        self.total += 1;
        let name = if ending.over { ending.reason.name() } else { "not finished" };
        *self.rows.entry(shown(&ending.provider)).or_default().entry(name).or_default() += 1;
        if ending.over {
            *self.reasons.entry(ending.reason).or_default() += 1;
        } else {
            self.pending += 1;
        }
    }

    /// Counts input that could not be read. Directories may contain other files; only a file that
    /// the user named must be a recording.
    fn miss(&mut self, unread: Unread, named: bool) {
        match unread.scope {
            Scope::File if !named => {
                self.skipped += 1;
                return;
            }
            Scope::Request => {
                self.other_requests += 1;
                return;
            }
            Scope::File | Scope::Record => {}
        }
        self.unread += 1;
        if self.first_unread.len() < MAX_NAMED {
            self.first_unread.push(unread);
        }
    }

    fn note_odd(&mut self, recording: &Recording) {
        for field in &recording.odd {
            self.odd += 1;
            if self.first_odd.len() < MAX_NAMED {
                self.first_odd.push(format!("`{field}` of {}", shown(&recording.id)));
            }
        }
    }

    fn note_provider(&mut self, registry: &Registry, name: &str) {
        if !name.is_empty() && !registry.knows(name) && self.unknown_providers.len() < MAX_NAMED {
            *self.unknown_providers.entry(shown(name)).or_default() += 1;
        }
    }

    /// Returns the error for a run without any response to judge.
    fn read_nothing(&self) -> Option<anyhow::Error> {
        if self.total > 0 {
            return None;
        }
        if self.unread == 0 && self.other_requests > 0 {
            return Some(anyhow!(
                "no responses to judge: no recorded request asks a model (requests examined: {})",
                self.other_requests
            ));
        }
        let Some(Unread { id, why, .. }) = self.first_unread.first() else {
            let files = self.skipped;
            return (files > 0).then(|| anyhow!("{NO_RECORDING} (files examined: {files})"));
        };
        let more = match self.unread {
            1 => String::new(),
            several => format!(" (and {} more that could not be read)", several - 1),
        };
        Some(anyhow!("{}: {}{more}", shown(id), shown(why)))
    }

    fn print_unread(&self, out: &mut impl Write) -> io::Result<()> {
        if self.odd > 0 {
            writeln!(out, "{:<20} {:>6}", "fields ignored", self.odd)?;
            for field in &self.first_odd {
                writeln!(out, "  {field}: invalid value")?;
            }
            print_more(out, self.odd, self.first_odd.len())?;
        }
        if self.unread > 0 {
            writeln!(out, "{:<20} {:>6}", "could not be read", self.unread)?;
            for Unread { id, why, .. } in &self.first_unread {
                writeln!(out, "  {}: {}", shown(id), shown(why))?;
            }
            print_more(out, self.unread, self.first_unread.len())?;
        }
        Ok(())
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
            writeln!(out, "{:<20} {:>6}", "not finished", self.pending)?;
        }
        writeln!(out, "{:<20} {:>6}", "responses", self.total)?;
        for UnknownWord { provider, model, field, word, .. } in &self.unknown {
            let (word, model) = (shown(word), shown(model));
            writeln!(
                out,
                "unknown finish reason: `{word}` in `{field}`, {} {model}",
                shown(provider)
            )?;
        }
        for (provider, count) in &self.unknown_providers {
            writeln!(
                out,
                "unknown provider: `{provider}` (responses: {count}), wire detected from the \
                 recording; define it with `--config`"
            )?;
        }
        if self.other_requests > 0 {
            writeln!(out, "{:<20} {:>6}", "requests skipped", self.other_requests)?;
        }
        if self.skipped > 0 {
            writeln!(out, "{:<20} {:>6}", "files skipped", self.skipped)?;
        }
        self.print_unread(out)
    }

    /// Returns the exit code of the worst ending in `fail_on`, or else of unread recordings.
    fn exit_code(&self, fail_on: &[Reason]) -> u8 {
        let occurred = self.reasons.keys().rev().find(|reason| fail_on.contains(reason));
        let unread = if self.unread > 0 { exit::UNREAD } else { 0 };
        occurred.map_or(unread, |reason| exit::of_reason(*reason))
    }
}

/// Returns text from a recording as one line.
fn shown(text: &str) -> String {
    endstop::text::clean(text, endstop::text::DETAIL_CAP)
}

fn print_more(out: &mut impl Write, all: u64, named: usize) -> io::Result<()> {
    match all.saturating_sub(named as u64) {
        0 => Ok(()),
        more => writeln!(out, "  … and {more} more"),
    }
}
