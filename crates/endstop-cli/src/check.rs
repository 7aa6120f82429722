//! `endstop check`: how did this response end?

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use endstop::registry::Clues;
use endstop::{Asked, Close, Closed, Ending, FaultKind, Head, Reader, Reason, provider};

use crate::exit;
use crate::line::Line;
use crate::style::Style;

/// How much of the beginning is looked at to tell which wire it is.
const LOOK: usize = 256 * 1024;

/// Tell how one response ended: what was said, how it closed, what it shows, what that means
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop check response.sse
  curl -sN https://api.openai.com/v1/chat/completions … | endstop check --provider openai
  endstop check --provider anthropic --max-tokens 1024 --json body.json | jq .reason
  endstop check --fail-on cut,output_limit response.json && echo whole")]
pub(crate) struct Args {
    /// The response's body, streamed or not; `-` or nothing for standard input
    file: Option<PathBuf>,
    /// Who served it; else told by the body's shape, at most at medium confidence
    #[arg(long, value_name = "ID")]
    provider: Option<String>,
    /// The URL that was asked: its host and path tell the wire
    #[arg(long)]
    url: Option<String>,
    /// The response's HTTP status
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(100..600))]
    status: Option<u16>,
    /// The response's content type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// The model that was asked
    #[arg(long)]
    model: Option<String>,
    /// The cap on output tokens that was asked
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// How many choices were asked
    #[arg(long, value_name = "N")]
    choices: Option<u32>,
    /// A TOML file of your own providers and words
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What ended the bytes
    #[arg(long, value_enum, default_value_t = CloseArg::Eof)]
    close: CloseArg,
    /// Print the ending as JSON
    #[arg(long)]
    json: bool,
    /// Exit with an error only for these endings
    #[arg(long, value_name = "ENDING,…", value_delimiter = ',', value_parser = exit::parse_reason)]
    fail_on: Vec<Reason>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CloseArg {
    Eof,
    Reset,
    ClientGone,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let ending = read(args)?;
    if args.json {
        let name = args.file.as_ref().map_or_else(|| "-".into(), |file| file.to_string_lossy());
        writeln!(io::stdout(), "{}", serde_json::to_string(&Line::new(&name, &ending))?)?;
    } else {
        print(&ending, Style::of_stdout())?;
    }
    let code = exit::code(&ending);
    let counts = args.fail_on.is_empty() || args.fail_on.contains(&ending.reason);
    Ok(ExitCode::from(if counts { code } else { 0 }))
}

fn read(args: &Args) -> Result<Ending> {
    let name = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let shown_name =
        name.map_or_else(|| "standard input".into(), |name| name.display().to_string());
    let mut input = open(name)?;
    let mut head = vec![0; LOOK];
    let length =
        fill(&mut input, &mut head).with_context(|| format!("cannot read {shown_name}"))?;
    head.truncate(length);
    if head.is_empty() && args.status.is_none() {
        bail!("{shown_name} is empty: give it the body of a response, or say `--status`");
    }
    let mut reader = reader(args, &head)?;
    reader.watch(&head);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let length = input.read(&mut chunk).with_context(|| format!("cannot read {shown_name}"))?;
        if length == 0 {
            break;
        }
        reader.watch(chunk.get(..length).unwrap_or_default());
    }
    let close = match args.close {
        CloseArg::Eof => Close::Eof,
        CloseArg::Reset => Close::Reset,
        CloseArg::ClientGone => Close::ClientGone,
    };
    let ending = reader.finish(close);
    refuse_what_is_no_response(args, &ending, &head, &shown_name)?;
    Ok(ending)
}

fn reader(args: &Args, head: &[u8]) -> Result<Reader> {
    let known = args.provider.as_deref().unwrap_or_default();
    let registry = crate::config::registry(args.config.as_deref())?;
    let unknown = provider::by_id(known).is_none() && registry.get(known, "").is_none();
    if !known.is_empty() && unknown {
        let ids: Vec<&str> = provider::ALL.iter().map(|provider| provider.id).collect();
        bail!("no provider is called `{known}`; known are {}", ids.join(", "));
    }
    let url = args.url.as_deref().unwrap_or_default();
    let (host, path) = split_url(url);
    let clues = Clues { provider: known, host, path, body: head, ..Clues::default() };
    let wire = registry.choose(&clues);
    let content_type = args.content_type.as_deref().unwrap_or_default();
    let asked = Asked {
        model: args.model.clone(),
        cap: args.max_tokens,
        choices: args.choices,
        ..Asked::default()
    };
    Ok(Reader::new(wire, Head { status: args.status.unwrap_or(0), content_type }, asked))
}

/// The host and the path of a URL.
pub(crate) fn split_url(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    }
}

fn open(file: Option<&Path>) -> Result<Box<dyn Read>> {
    let Some(file) = file else { return Ok(Box::new(io::stdin().lock())) };
    if file.is_dir() {
        bail!(
            "{} is a directory: `check` reads one response; try `endstop replay`",
            file.display()
        );
    }
    let input = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Ok(Box::new(input))
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Bytes that nobody would call a response get an error rather than a verdict.
fn refuse_what_is_no_response(args: &Args, ending: &Ending, head: &[u8], name: &str) -> Result<()> {
    if ending.closed == Closed::Oversize {
        bail!(
            "{name} holds one event of more than 16 MiB, which no provider sends: \
             is it a recording? try `endstop replay`"
        );
    }
    let unread = ending.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::BadPayload);
    let vouched = args.provider.is_some() || args.url.is_some() || args.status.is_some();
    let is_page = head.trim_ascii_start().starts_with(b"<");
    if unread && !vouched && !is_page {
        bail!(
            "{name} is no response that Endstop knows: decompress it first, \
             or say `--provider` if it is what a provider sent"
        );
    }
    Ok(())
}

fn print(ending: &Ending, style: Style) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let title = if ending.over {
        ending.reason.name().replace('_', " ")
    } else {
        "not over yet".to_owned()
    };
    let confidence = format!("{:?}", ending.confidence).to_lowercase();
    writeln!(
        out,
        "{} ({confidence} confidence): {}",
        style.reason(ending.reason, &title),
        ending.sentence
    )?;
    let said = match &ending.said {
        Some(said) => format!("`{}` in `{}`", said.word, said.field),
        None => "nothing".to_owned(),
    };
    row(&mut out, style, "said", &said)?;
    row(&mut out, style, "closed", closed_in_words(ending.closed))?;
    let shown = ending.shown.words();
    row(
        &mut out,
        style,
        "shown",
        &if shown.is_empty() {
            "content, nothing odd".to_owned()
        } else {
            shown.join(", ").replace('_', " ")
        },
    )?;
    if let Some(fault) = &ending.fault {
        let message = fault.message.as_deref().unwrap_or("no message");
        row(&mut out, style, "error", &format!("{} ({message})", fault.kind.words()))?;
    }
    if ending.choices.len() > 1 {
        let each: Vec<String> = ending
            .choices
            .iter()
            .map(|choice| format!("{} {}", choice.index, choice.reason.name()))
            .collect();
        row(&mut out, style, "choices", &each.join(", "))?;
    }
    row(&mut out, style, "wire", &format!("{}, {}", ending.provider, ending.dialect))?;
    row(&mut out, style, "what to do", advice(ending))
}

fn row(out: &mut impl Write, style: Style, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "  {} {value}", style.dim(&format!("{name:<10}")))
}

fn closed_in_words(closed: Closed) -> &'static str {
    match closed {
        Closed::Open => "still open",
        Closed::Proven => "properly, by what this wire sends at the end",
        Closed::Eof => "the bytes ended, without what this wire sends at the end",
        Closed::Reset => "the connection broke",
        Closed::Truncated => "inside a chunk, or short of the promised length",
        Closed::Unreachable(_) => "there was no connection",
        Closed::TimedOut(_) => "a time limit passed",
        Closed::ClientGone | Closed::Dropped => "the client left",
        Closed::Error => "with an error from the provider",
        Closed::Oversize => "an event was too large to read on",
        Closed::BrokenFrame => "a frame was corrupt",
        Closed::Interrupted | Closed::ShutDown => "our own process ended",
        _ => "in another way",
    }
}

fn advice(ending: &Ending) -> &'static str {
    if !ending.over {
        return "poll again until it is over";
    }
    match ending.reason {
        Reason::Complete | Reason::StopSequence => "use the answer",
        Reason::ToolCall => "run the tool calls and send their results",
        Reason::Paused => "send the turn back as it is; the provider goes on from there",
        Reason::OutputLimit if ending.shown.is_reasoning_only() => {
            "reasoning used up the cap: lower the effort, or raise the cap a lot"
        }
        Reason::OutputLimit if ending.shown.tool_calls > 0 => {
            "do not run the tool call; ask again with a higher cap"
        }
        Reason::OutputLimit => "continue the answer, or ask again with a higher cap",
        Reason::ContextLimit => "shorten or compact the conversation; a higher cap cannot help",
        Reason::Refused => "change the request or the model; asking again the same will not help",
        Reason::Filtered | Reason::Safety | Reason::Recitation => {
            "change the prompt; asking again the same will not help"
        }
        Reason::MalformedToolCall => "do not run anything; ask for the tool call once more",
        Reason::Unknown => "do not take it for complete; look at the raw word",
        Reason::Cancelled => "nothing, if you cancelled it",
        Reason::TimedOut => "try again, or allow more time",
        Reason::Failed => match ending.fault.as_ref().map(|fault| fault.kind) {
            Some(FaultKind::Auth) => "check the key and what it may do",
            Some(FaultKind::Quota) => "top up the quota or balance",
            Some(FaultKind::RateLimit | FaultKind::Overloaded) => "wait, then try again",
            Some(FaultKind::InvalidRequest | FaultKind::NotFound) => {
                "correct the request; asking again the same will not help"
            }
            _ => "try again; if it stays, tell the provider",
        },
        Reason::Cut => "throw it away and try again, or resume; never run its tool calls",
    }
}
