//! The `endstop` command: one file per subcommand.

/// Writes a line to stderr. Ignores errors, because a closed stderr must not stop the command.
macro_rules! say {
    ($($line:tt)*) => {
        drop(std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("{}\n", format_args!($($line)*)).as_bytes(),
        ))
    };
}

mod backfill;
mod chat;
mod check;
mod completions;
mod config;
mod decide;
mod demo;
mod dialects;
mod endings;
mod env;
mod exit;
mod explain;
mod line;
mod man;
mod migrate;
mod notify;
mod number;
mod recording;
mod replay;
mod report;
mod response;
mod serve;
mod show;
mod sim;
mod spool;
mod store;
mod style;
mod tail;
mod when;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Shows how LLM responses ended and what to do about them.
#[derive(Parser)]
#[command(name = "endstop", version, about, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Chat(chat::Args),
    Check(check::Args),
    Decide(decide::Args),
    Explain(explain::Args),
    Replay(replay::Args),
    Serve(serve::Args),
    Report(report::Args),
    Endings(endings::Args),
    Tail(tail::Args),
    Show(show::Args),
    Migrate(migrate::Args),
    Backfill(backfill::Args),
    Spool(spool::Args),
    Env(env::Args),
    Dialects(dialects::Args),
    Sim(sim::Args),
    Completions(completions::Args),
    Man(man::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Decide(args) => decide::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Endings(args) => endings::run(&args),
        Command::Tail(args) => tail::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Backfill(args) => backfill::run(&args),
        Command::Spool(args) => spool::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Dialects(args) => dialects::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::from(exit::CLOSED_PIPE),
        Err(error) => {
            say!("endstop: {}", printable(&with_causes(&error)));
            ExitCode::from(exit::of_error(&error))
        }
    }
}

/// Returns an error with its causes, each once: many errors quote their cause.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| {
        match told.is_empty() || told.contains(&cause) {
            true if told.is_empty() => cause,
            true => told,
            false => format!("{told}: {cause}"),
        }
    })
}

/// Replaces control characters, which a terminal would obey. Errors may quote files.
pub(crate) fn printable(text: &str) -> String {
    let harmless = |char: char| char == '\n' || !char.is_control();
    text.chars().map(|char| if harmless(char) { char } else { '\u{fffd}' }).collect()
}

/// Reports whether the reader of the output closed the pipe, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
