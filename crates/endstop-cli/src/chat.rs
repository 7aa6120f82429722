//! `endstop chat`: asks a model, and shows how its answers ended.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use endstop::Reason;
use endstop::chat::ChatMessage;
use endstop::tool_call::Call;
use endstop_client::{ChatResponse, ChatStream, Client, Ended, Error, RunEvent};
use endstop_turn::continuation::TurnEvent;
use endstop_turn::policy::Counter;
use tokio::sync::mpsc::Receiver;

use crate::style::Style;
use crate::{exit, number};

/// Exit code after Ctrl-C at the prompt: 128 + SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

/// Ask a model, and see how its answer ended
///
/// The answer is printed as it arrives. If it is truncated, it is continued as far as the policy allows.
/// Lines that begin with `|` say when an answer was continued or asked for again, and how it ended. They
/// go to standard error. An incomplete answer ends with a notice.
///
/// Without PROMPT, the prompt is read from standard input. On a terminal, every line is a prompt of one
/// conversation: Ctrl-C cancels an answer, Ctrl-D ends.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop chat -m openai/gpt-5 'Why is the sky blue?'
  endstop chat -m anthropic/claude-sonnet-5 < prompt.txt
  endstop chat -m ollama/llama3                               a conversation, on a terminal
  endstop chat --config agent.toml -m openai/gpt-5 'Tell a long story.'

Keys and base URLs come from the variables that SDKs read, such as OPENAI_API_KEY and OPENAI_BASE_URL.

Without a key: start `endstop sim`, or `endstop demo` for a gateway in front of it. The model name
chooses the ending.
  endstop chat --gateway http://127.0.0.1:4190 -m openai/complete Hi         with `endstop sim`
  endstop chat --gateway http://127.0.0.1:4100 -m openai/cut-before-word Hi  with `endstop demo`
  endstop chat --gateway http://127.0.0.1:4190 --max-tokens 100 \\
    -m anthropic/claude-haiku-4-5:story=200 'Tell a story.'                  continued twice

Exit codes: 0 if the answer is complete. Otherwise that of its ending: 11 output limit, 13 refused,
15 unknown, 18 failed, 19 cut (`endstop --help` lists all). 1 if the request could not be sent.")]
pub(crate) struct Args {
    /// Prompt; `-` reads standard input
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Provider and model, such as `openai/gpt-5`; `openai:responses/gpt-5` also chooses the API
    #[arg(long, short, value_name = "PROVIDER/MODEL", env = "ENDSTOP_MODEL")]
    model: Option<String>,
    /// Instructions for the model
    #[arg(long, short, value_name = "TEXT")]
    system: Option<String>,
    /// Maximum output tokens of each response
    #[arg(long, value_name = "N", value_parser = number::whole::<u64>, allow_negative_numbers = true)]
    max_tokens: Option<u64>,
    /// TOML file with the policy and custom providers, or the gateway's configuration
    #[arg(long, value_name = "FILE", env = "ENDSTOP_CONFIG")]
    config: Option<PathBuf>,
    /// URL of an Endstop gateway or of `endstop sim`, in front of all providers
    #[arg(long, value_name = "URL", env = "ENDSTOP_BASE_URL", hide_env_values = true)]
    gateway: Option<String>,
    /// Base URL of the model's provider, such as `http://127.0.0.1:8000/v1`
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let Some(model) = &args.model else {
        bail!("no model: pass one with `-m`, such as `-m openai/gpt-5`, or set `ENDSTOP_MODEL`");
    };
    let chat = Chat { client: client(args, model)?, model, args };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let prompt = match args.prompt.as_deref() {
        Some(prompt) if prompt != "-" => prompt.to_owned(),
        Some(_) | None if io::stdin().is_terminal() => return runtime.block_on(chat.converse()),
        Some(_) | None => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read the prompt")?;
            text
        }
    };
    if prompt.trim().is_empty() {
        bail!("no prompt: pass one as an argument or on standard input");
    }
    let stream = chat.ask(&[], &prompt)?;
    let response = runtime.block_on(follow(stream, &mut Margin::new()))?;
    Ok(ExitCode::from(code(&response)))
}

fn client(args: &Args, model: &str) -> Result<Client> {
    let file = args.config.as_deref();
    let mut builder = Client::builder()
        .env()
        .registry(crate::config::registry(file)?)
        .policy(crate::config::policy(file)?);
    // The client reads the variable itself, and names it in its errors.
    let is_variable = |url: &&String| std::env::var("ENDSTOP_BASE_URL").is_ok_and(|of| of == **url);
    if let Some(url) = args.gateway.as_ref().filter(|url| !is_variable(url)) {
        builder = builder.gateway(url);
    }
    if let Some(url) = &args.base_url {
        let provider = model.split(['/', ':']).next().unwrap_or_default();
        builder = builder.base_url(provider, url);
    }
    builder.build().map_err(told)
}

/// Returns the error, with the options of this command in place of functions of the library.
fn told(error: Error) -> anyhow::Error {
    if let Error::NoKey { provider, variables } = &error {
        let other = "or name a gateway with `--gateway`";
        return anyhow!("no key for `{provider}`: set {variables}, {other}");
    }
    if let Error::NoBaseUrl { provider, variable } = &error {
        let set = variable.as_ref().map(|variable| format!("set {variable}, or "));
        return anyhow!(
            "no base URL for `{provider}`: {}pass `--base-url`",
            set.unwrap_or_default()
        );
    }
    error.into()
}

/// The model to ask, and its settings.
struct Chat<'a> {
    client: Client,
    model: &'a str,
    args: &'a Args,
}

impl Chat<'_> {
    fn ask(&self, before: &[ChatMessage], prompt: &str) -> Result<ChatStream> {
        let mut request = self.client.request(self.model).messages(before.iter().cloned());
        if let Some(system) = &self.args.system {
            request = request.system(system);
        }
        if let Some(most) = self.args.max_tokens {
            request = request.max_tokens(most);
        }
        request.user(prompt).stream().map_err(told)
    }

    /// Holds a conversation on a terminal.
    async fn converse(&self) -> Result<ExitCode> {
        let mut lines = lines();
        let mut conversation = Vec::new();
        let mut margin = Margin::new();
        loop {
            margin.prompt();
            let line = tokio::select! {
                line = lines.recv() => line,
                _ = tokio::signal::ctrl_c() => {
                    margin.end_line();
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            };
            let Some(line) = line else {
                margin.end_line();
                return Ok(ExitCode::SUCCESS);
            };
            let prompt = line?;
            if prompt.trim().is_empty() {
                continue;
            }
            let stream = self.ask(&conversation, &prompt)?;
            let response = tokio::select! {
                response = follow(stream, &mut margin) => response?,
                _ = tokio::signal::ctrl_c() => {
                    margin.note("cancelled");
                    continue;
                }
            };
            let answer = match response.ended() {
                Ended::Complete(answer) => answer.text(),
                Ended::Partial(part) => part.text_so_far(),
                Ended::ToolCalls(_) | Ended::Refused(_) | Ended::Failed(_) => "",
            };
            if !answer.is_empty() {
                conversation.push(ChatMessage::user(prompt));
                conversation.push(ChatMessage::assistant(answer));
            }
        }
    }
}

/// Reads lines from standard input, in a thread of its own: reading cannot be cancelled.
fn lines() -> Receiver<io::Result<String>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Prints an answer as it arrives, and how it ended.
async fn follow(mut stream: ChatStream, margin: &mut Margin) -> Result<ChatResponse> {
    let mut last = Reason::Unknown;
    while let Some(event) = stream.next().await {
        if let RunEvent::Text(text) = &event {
            margin.text(text)?;
        } else if let RunEvent::TextDiscarded { kept } = &event {
            let what = if *kept == 0 { "the text above" } else { "the end of the text above" };
            margin.note(&format!("{what} does not belong to the answer"));
        } else if let RunEvent::Turn(event) = &event {
            if let TurnEvent::StopReasonObserved { reason, .. } = &**event {
                last = *reason;
            }
            if let Some(note) = step(event, last) {
                margin.note(&note);
            }
        } else if let RunEvent::Ended(response) = event {
            margin.ended(&response)?;
            return Ok(*response);
        }
    }
    bail!("the answer has no end")
}

/// Returns the note about a step of the turn, if it is worth one.
fn step(event: &TurnEvent, reason: Reason) -> Option<String> {
    let reason = reason.name().replace('_', " ");
    Some(match event {
        TurnEvent::ContinuationAttempt { counter: Counter::Raises, .. } => {
            format!("{reason}: asked again with a higher limit")
        }
        TurnEvent::ContinuationAttempt { index, .. } => format!("{reason}: continued ({index})"),
        TurnEvent::RetryAttempt { index, .. } => format!("{reason}: asked again ({index})"),
        TurnEvent::ResumeAttempt { counter: Counter::Polls, index: 2.., .. } => return None,
        TurnEvent::ResumeAttempt { counter: Counter::Polls, .. } => "not over: waiting".to_owned(),
        TurnEvent::ResumeAttempt { counter: Counter::Cuts, index, .. } => {
            format!("stream cut: reading the rest ({index})")
        }
        TurnEvent::ResumeAttempt { index, .. } => format!("{reason}: resumed ({index})"),
        TurnEvent::RequestResent { index, .. } => {
            format!("the provider closed the connection: sent again ({index})")
        }
        TurnEvent::StopReasonObserved { .. }
        | TurnEvent::ToolPayloadRepair { .. }
        | TurnEvent::ContinuationTerminated { .. }
        | TurnEvent::TurnEnded { .. }
        | TurnEvent::InputIgnored { .. }
        | _ => return None,
    })
}

/// Returns the exit code of an answer. Only that of a complete one is 0.
fn code(response: &ChatResponse) -> u8 {
    let code = exit::code(&response.ending);
    match response.ended() {
        Ended::Complete(_) | Ended::ToolCalls(_) => 0,
        Ended::Refused(_) if code == 0 => exit::of_reason(Reason::Refused),
        // Nothing was asked: the limits forbid it.
        Ended::Failed(_) if code == 0 || response.outcome.reason.is_none() => {
            exit::of_reason(Reason::Failed)
        }
        Ended::Partial(_) if code == 0 => exit::of_reason(Reason::Unknown),
        Ended::Refused(_) | Ended::Failed(_) | Ended::Partial(_) => code,
    }
}

/// The answer on standard output, and notes about it on standard error.
struct Margin {
    style: Style,
    /// Whether people see both on one screen.
    is_screen: bool,
    /// Whether standard output is at the start of a line.
    at_start: bool,
}

impl Margin {
    fn new() -> Self {
        let is_screen = io::stdout().is_terminal() && io::stderr().is_terminal();
        Self { style: Style::of_stderr(), is_screen, at_start: true }
    }

    fn prompt(&mut self) {
        let _ = write!(io::stderr(), "{}", self.style.bold("> "));
    }

    fn end_line(&self) {
        let _ = writeln!(io::stderr());
    }

    fn text(&mut self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        let shown = if self.is_screen { harmless(text) } else { text.to_owned() };
        out.write_all(shown.as_bytes()).and_then(|()| out.flush())?;
        self.at_start = text.ends_with('\n') || self.at_start && text.is_empty();
        Ok(())
    }

    /// Ends the line of the answer, if it has begun.
    fn finish_line(&mut self) -> Result<()> {
        if self.at_start { Ok(()) } else { self.text("\n") }
    }

    fn note(&mut self, note: &str) {
        if self.is_screen {
            let _ = self.finish_line();
        }
        say!("{}", self.style.dim(&format!("| {}", crate::printable(note))));
    }

    /// Prints the notice of an incomplete answer, and how the answer ended.
    fn ended(&mut self, response: &ChatResponse) -> Result<()> {
        self.finish_line()?;
        let reason = response.ending.reason;
        let mut note = match response.ended() {
            Ended::Complete(answer) => match answer.notice() {
                Some(notice) => format!("complete: {notice}"),
                None => "complete".to_owned(),
            },
            Ended::ToolCalls(calls) => {
                let names: Vec<&str> = calls.iter().map(Call::name).collect();
                format!("tool calls that were not run: {}", names.join(", "))
            }
            Ended::Partial(part) => {
                self.text(&format!("[{}]\n", part.notice()))?;
                format!("incomplete ({})", reason.name().replace('_', " "))
            }
            Ended::Refused(why) => format!("refused: {why}"),
            Ended::Failed(why) => format!("failed: {why}"),
        };
        if response.pieces.len() > 1 {
            let _ = write!(note, ", {} responses", response.outcome.spent.iterations);
        }
        if let Some(tokens) = response.usage.output {
            let _ = write!(note, ", {tokens} output token{}", if tokens == 1 { "" } else { "s" });
        }
        self.note(&note);
        Ok(())
    }
}

/// Replaces the control characters that a terminal would obey.
fn harmless(text: &str) -> String {
    let fine = |char: char| matches!(char, '\n' | '\t') || !char.is_control();
    text.chars().map(|char| if fine(char) { char } else { '\u{fffd}' }).collect()
}
