//! `endstop check`: reports how one response ended.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use endstop::{Ending, Reason, Wire};
use endstop_turn::policy::{finish_reason, remedy};

use crate::exit;
use crate::line::Line;
use crate::response::ResponseArgs;
use crate::style::Style;

/// Show how one response ended, with the evidence and what to do next
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop check response.sse
  curl -sN https://api.openai.com/v1/chat/completions … | endstop check --provider openai
  endstop check --provider anthropic --max-tokens 1024 --json body.json | jq .reason
  endstop check --fail-on cut,output_limit response.json && echo whole")]
pub(crate) struct Args {
    #[command(flatten)]
    response: ResponseArgs,
    /// Print the ending as JSON
    #[arg(long)]
    json: bool,
    /// Exit with an error only for these endings
    #[arg(long, value_name = "ENDING,…", value_delimiter = ',', value_parser = exit::parse_reason)]
    fail_on: Vec<Reason>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (ending, wire) = args.response.judge()?;
    if args.json {
        let name =
            args.response.file.as_ref().map_or_else(|| "-".into(), |file| file.to_string_lossy());
        writeln!(io::stdout(), "{}", serde_json::to_string(&Line::new(&name, &ending, &wire))?)?;
    } else {
        print(&ending, &wire, Style::of_stdout())?;
    }
    let code = exit::code(&ending);
    let counts = args.fail_on.is_empty() || args.fail_on.contains(&ending.reason);
    Ok(ExitCode::from(if counts { code } else { 0 }))
}

fn print(ending: &Ending, wire: &Wire, style: Style) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let title = if ending.over {
        ending.reason.name().replace('_', " ")
    } else {
        "not finished".to_owned()
    };
    writeln!(
        out,
        "{} ({} confidence): {}",
        style.reason(ending.reason, &title),
        ending.confidence.name(),
        ending.sentence
    )?;
    row(&mut out, style, "finish reason", &finish_reason(ending))?;
    row(&mut out, style, "connection", ending.closed.description())?;
    let shown = ending.shown.names();
    row(
        &mut out,
        style,
        "content",
        &if shown.is_empty() {
            "no problems found".to_owned()
        } else {
            shown.join(", ").replace('_', " ")
        },
    )?;
    if let Some(fault) = &ending.fault {
        let message = fault.message.as_deref().unwrap_or("no message");
        row(&mut out, style, "error", &format!("{} ({message})", fault.kind.description()))?;
    }
    if ending.choices.len() > 1 {
        let each: Vec<String> = ending
            .choices
            .iter()
            .map(|choice| format!("{} {}", choice.index, choice.reason.name()))
            .collect();
        row(&mut out, style, "choices", &each.join(", "))?;
    }
    row(&mut out, style, "format", &format_in_words(ending, wire))?;
    row(&mut out, style, "what to do", &remedy(ending).advice)
}

fn row(out: &mut impl Write, style: Style, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "  {} {value}", style.dim(&format!("{name:<13}")))
}

fn format_in_words(ending: &Ending, wire: &Wire) -> String {
    let mut words = format!("{}, {}", ending.provider, ending.dialect);
    if let Some(version) = wire.api_version() {
        words.push_str(&format!(", API version {version}"));
    }
    if wire.profile.ambiguous {
        words.push_str(" (a guess: the body fits several formats or none; use `--provider`)");
    } else if wire.profile.guessed {
        words.push_str(" (detected from the body)");
    }
    words
}
