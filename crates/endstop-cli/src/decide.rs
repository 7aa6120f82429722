//! `endstop decide`: decides what to do about a response, and builds the next request.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use endstop::RequestInfo;
use endstop::next_request::{
    NextRequest, RequestChange, SoFar, Wording, check_request, continue_answer, lower_effort,
    messages, repair_tool_call, resume_paused, set_cap,
};
use endstop::tool_call::first_broken;
use endstop_gateway::Config;
use endstop_turn::policy::{
    Action, Budget, Decision, DecisionContext, Money, Piece, Policy, Price, ResumeBy, Spent,
    TerminationReport,
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::number;
use crate::response::{Response, ResponseArgs};
use crate::style::Style;

/// Decide what to do about one response, and build the next request
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  endstop decide response.sse
  endstop decide --policy careful --max-tokens 1024 --attempts 2 response.json
  endstop decide --policy agent.toml --request request.json --json response.json | jq .next.request
  endstop decide --json response.json | jq '{should_continue, suggested_action, reason}'")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) given: Given,
}

// No doc comment here: clap would show it instead of the subcommand's.
#[derive(clap::Args)]
pub(crate) struct Given {
    #[command(flatten)]
    response: ResponseArgs,
    /// Preset (careful, default, persistent) or TOML file; by default the policy in `--config`
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// Request that was sent, in the provider's JSON; also prints the next request
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Continuations in this turn so far
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::whole::<u32>,
          allow_negative_numbers = true)]
    attempts: u32,
    /// Retries after failures in this turn so far
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::whole::<u32>,
          allow_negative_numbers = true)]
    retries: u32,
    /// Retries after cut streams in this turn so far
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::whole::<u32>,
          allow_negative_numbers = true)]
    cuts: u32,
    /// Tool call repairs in this turn so far
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::whole::<u32>,
          allow_negative_numbers = true)]
    repairs: u32,
    /// Output tokens in this turn before this response
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::whole::<u64>,
          allow_negative_numbers = true)]
    tokens: u64,
    /// Characters in this turn before this response
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::whole::<u64>,
          allow_negative_numbers = true)]
    chars: u64,
    /// Duration of the turn so far, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = number::whole::<u64>,
          allow_negative_numbers = true)]
    elapsed_ms: u64,
    /// Cost of this turn before this response
    #[arg(long, value_name = "USD", default_value = "0", value_parser = parse_money,
          allow_negative_numbers = true)]
    cost: Money,
    /// Messages in the conversation; counted from `--request` by default
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>,
          allow_negative_numbers = true)]
    messages: Option<u32>,
    /// Tokens in the conversation, including this response; from its usage by default
    #[arg(long, value_name = "N", value_parser = number::whole::<u64>,
          allow_negative_numbers = true)]
    conversation_tokens: Option<u64>,
    /// Never raise the output token limit, because the user set it
    #[arg(long)]
    cap_is_users: bool,
    /// Maximum output tokens of the model
    #[arg(long, value_name = "N", value_parser = number::positive::<u64>,
          allow_negative_numbers = true)]
    model_max: Option<u64>,
    /// Context window of the model, in tokens
    #[arg(long, value_name = "N", value_parser = number::positive::<u64>,
          allow_negative_numbers = true)]
    window: Option<u64>,
    /// The text was already delivered and cannot be withdrawn
    #[arg(long)]
    delivered: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Decision and the next request.
#[derive(Serialize)]
pub(crate) struct Considered {
    #[serde(flatten)]
    pub(crate) report: TerminationReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Next>,
}

/// Request that would be sent next, or the reason why it cannot be built.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Next {
    Changed(Box<NextRequest>),
    Same { request: Box<RawValue>, sentence: String },
    Impossible { impossible: String },
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    decision: &'a Decision,
    policy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a Next>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let considered = args.given.consider()?;
    let Considered { report, next } = &considered;
    let mut out = io::stdout().lock();
    if args.given.json {
        let line = Line { decision: &report.decision, policy: &report.policy, next: next.as_ref() };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = Style::of_stdout();
    let decision = &report.decision;
    let title = decision.action.name().replace('_', " ");
    writeln!(out, "{}: {}", style.bold(&title), decision.sentence)?;
    let mut row =
        |name: &str, value: &str| writeln!(out, "  {} {value}", style.dim(&format!("{name:<10}")));
    row("because", &format!("{}: {}", report.ending.reason.name(), report.ending.sentence))?;
    if let Some(suggested) = decision.suggested {
        let word = serde_json::to_value(suggested)?;
        row("suggested", word.as_str().unwrap_or_default())?;
    }
    if let Some(instead_of) = decision.metadata.instead_of {
        row("instead of", &instead_of.name().replace('_', " "))?;
    }
    if let Some(wait) = decision.metadata.wait_ms {
        row("wait", &format!("{wait} ms"))?;
    }
    if let Some(cap) = decision.metadata.next_cap {
        row("next limit", &format!("{cap} token{}", if cap == 1 { "" } else { "s" }))?;
    }
    row("policy", &report.policy)?;
    drop(out);
    print_next(next.as_ref(), style, 10)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the next request, if any, in a row whose names have this width.
pub(crate) fn print_next(next: Option<&Next>, style: Style, width: usize) -> Result<()> {
    let mut out = io::stdout();
    let name = style.dim(&format!("{:<width$}", "request"));
    match next {
        Some(Next::Changed(next)) => {
            writeln!(out, "  {name} {}", next.sentence)?;
            writeln!(out, "{}", next.request.get())?;
        }
        Some(Next::Same { request, sentence }) => {
            writeln!(out, "  {name} {sentence}")?;
            writeln!(out, "{}", request.get())?;
        }
        Some(Next::Impossible { impossible }) => writeln!(out, "  {name} none: {impossible}")?,
        None => {}
    }
    Ok(())
}

impl Given {
    /// Reads the policy, the request and the response, and decides.
    pub(crate) fn consider(&self) -> Result<Considered> {
        let policy = match &self.policy {
            Some(named) => policy(named)?,
            None => crate::config::policy(self.response.config.as_deref())?,
        };
        let request = self.request.as_deref().map(read_request).transpose()?;
        let body = match &request {
            Some(request) => serde_json::to_vec(request)?,
            None => Vec::new(),
        };
        let response = self.response.read(&body)?;
        if let (Some(file), Some(request)) = (&self.request, &request) {
            check_request(&response.wire.profile, request.get())
                .map_err(|why| anyhow!("invalid request {}: {why}", file.display()))?;
        }
        let asked = request.is_some().then(|| {
            RequestInfo::from_request(&response.wire.profile, self.response.path(), &body)
        });
        let cap = self.response.max_tokens.or_else(|| asked.as_ref().and_then(|asked| asked.cap));
        let model =
            response.answer.ending.model.clone().or_else(|| asked.and_then(|asked| asked.model));
        let model = model.unwrap_or_default();
        let counted =
            request.as_ref().and_then(|request| messages(&response.wire.profile, request.get()));
        let known = Known {
            cap,
            price: policy.price_of(&response.answer.ending.provider, &model),
            messages: self.messages.or(counted),
        };
        let ending = &response.answer.ending;
        let limits = policy.terms(&ending.provider, ending.reason).limits;
        if limits.turn_max_cost.is_some() && known.price.is_none() {
            let of = if model.is_empty() { "this model" } else { &model };
            let what = match self.cost == Money::default() {
                true => "turn_max_cost is ignored",
                false => "only `--cost` counts against turn_max_cost",
            };
            say!("endstop: no price for {of}: {what}");
        }
        let context = self.context(&response, &known);
        let next = |report: &TerminationReport, request: Box<RawValue>| {
            let sent = Sent { request, model: &model, wording: &policy.wording };
            next(&report.decision, &report.context, &response, sent)
        };
        let mut report = TerminationReport::new(response.answer.ending.clone(), context, &policy);
        let next = request.and_then(|request| next(&report, request));
        match &next {
            Some((Next::Impossible { impossible }, _)) => stop(&mut report.decision, impossible),
            Some((_, Some(cap))) => report.decision.metadata.next_cap = Some(*cap),
            Some((_, None)) | None => {}
        }
        Ok(Considered { report, next: next.map(|(next, _)| next) })
    }

    fn context(&self, response: &Response, known: &Known) -> DecisionContext {
        let piece = Piece::of(&response.answer.text);
        let usage = response.answer.ending.usage;
        let output = usage.output.unwrap_or_else(|| piece.tokens());
        let before = self.attempts + self.retries + self.cuts + self.repairs;
        let input = response.wire.profile.input_tokens(&usage);
        let counted = input.map(|input| input.saturating_add(output));
        let cost = known.price.unwrap_or_default().of(input.unwrap_or(0), output);
        DecisionContext {
            conversation_messages: known.messages,
            conversation_tokens: self.conversation_tokens.or(counted),
            budget: Budget {
                cap: known.cap,
                cap_is_users: self.cap_is_users,
                model_max: self.model_max,
                window: self.window,
                price: known.price,
            },
            spent: Spent {
                iterations: before.saturating_add(1),
                continuations: self.attempts,
                retries: self.retries,
                cuts: self.cuts,
                repairs: self.repairs,
                completion_tokens: self.tokens.saturating_add(output),
                output_chars: self.chars.saturating_add(piece.chars),
                input_tokens: input.unwrap_or(0),
                output_tokens: self.tokens.saturating_add(output),
                cost: self.cost.plus(cost),
                elapsed_ms: self.elapsed_ms,
                ..Spent::default()
            },
            tools: (!response.answer.tool_calls.is_empty()).then(|| response.answer.allow()),
            piece: Some(piece),
            delivered: self.delivered,
            ..DecisionContext::default()
        }
    }
}

/// Facts from the arguments, the request and the policy.
struct Known {
    cap: Option<u64>,
    price: Option<Price>,
    messages: Option<u32>,
}

fn parse_money(text: &str) -> Result<Money, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    // The cast saturates.
    let micros = amount.map(|amount| (amount * 1e6).round() as u64);
    micros.map(Money::from_micros).ok_or_else(|| "expected an amount of USD, 0 or more".to_owned())
}

/// Returns the preset of this name, or reads the policy from this file.
fn policy(name: &str) -> Result<Policy> {
    if let Some(preset) = Policy::preset(name) {
        return Ok(preset);
    }
    let known = Policy::PRESETS.join(", ");
    let text = std::fs::read_to_string(name).map_err(|error| {
        anyhow!("unknown policy `{name}`: expected {known} or a TOML file ({error})")
    })?;
    // The gateway's configuration has the same tables among others.
    Policy::from_toml(name, &text).or_else(|error| match Config::from_toml(name, &text) {
        Ok(config) => Ok(config.policy),
        Err(_) => Err(error.into()),
    })
}

fn read_request(file: &Path) -> Result<Box<RawValue>> {
    let name = file.display();
    let text = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
    let request: Box<RawValue> =
        serde_json::from_slice(&text).with_context(|| format!("invalid JSON in request {name}"))?;
    if !request.get().starts_with('{') {
        bail!("invalid request {name}: expected a JSON object");
    }
    Ok(request)
}

/// Request that was sent, and the wording of the next one.
struct Sent<'a> {
    request: Box<RawValue>,
    model: &'a str,
    wording: &'a Wording,
}

/// Turns a decision into a stop, because its request cannot be made.
fn stop(decision: &mut Decision, why: &str) {
    let instead_of = decision.metadata.instead_of.or(Some(decision.action));
    let stopped = Decision::new(Action::Stop, format!("no further request can be made: {why}"));
    decision.should_continue = stopped.should_continue;
    decision.sentence = stopped.sentence;
    decision.suggested = stopped.suggested;
    decision.action = stopped.action;
    let metadata = &mut decision.metadata;
    metadata.instead_of = instead_of;
    (metadata.next_cap, metadata.wait_ms, metadata.resume_by) = (None, None, None);
    (metadata.discard, metadata.lower_effort) = (false, false);
}

/// Builds the request for the decision, with the output limit that it sets. Returns `None` if there
/// is nothing to send yet.
fn next(
    decision: &Decision,
    context: &DecisionContext,
    response: &Response,
    sent: Sent<'_>,
) -> Option<(Next, Option<u64>)> {
    let profile = &response.wire.profile;
    let Sent { request, model, wording } = sent;
    let so_far = SoFar {
        text: &response.answer.text,
        id: Some(response.answer.id.as_str()).filter(|id| !id.is_empty()),
        token: response.answer.resume_token.as_deref(),
        content: response.content.as_deref(),
    };
    let continued = || continue_answer(profile, model, request.get(), &so_far, wording);
    let made = match decision.action {
        Action::Continue => continued(),
        Action::Resume => match decision.metadata.resume_by {
            Some(ResumeBy::Text) => continued(),
            // The provider resumes its own request, with the same token limit.
            Some(ResumeBy::Protocol) => {
                return Some((shown(resume_paused(profile, request.get(), &so_far)), None));
            }
            Some(ResumeBy::Poll | _) | None => return None,
        },
        Action::RepairToolCall => {
            let calls = &response.answer.tool_calls;
            let broken = first_broken(calls).or(calls.first());
            let tool = broken.map_or("", |call| call.name.as_str());
            repair_tool_call(profile, model, request.get(), &so_far, tool, wording)
        }
        Action::Retry | Action::RaiseBudget => {
            let sentence = "the same request again".to_owned();
            let made = decision.metadata.next_cap.map(|cap| set_cap(profile, request.get(), cap));
            let same = match &made {
                Some(Ok(made)) => {
                    matches!(made.how, RequestChange::Cap { from, to, .. } if from == Some(to))
                }
                Some(Err(_)) => false,
                None => true,
            };
            return match made {
                Some(made) if !same => Some((shown(made), None)),
                Some(_) | None => Some((Next::Same { request, sentence }, None)),
            };
        }
        Action::ChangePrompt if decision.metadata.lower_effort => {
            lower_effort(profile, model, request.get())
        }
        Action::Stop | Action::RunTools | Action::Compact | Action::ChangePrompt | _ => {
            return None;
        }
    };
    let (made, cap) = match (made, decision.metadata.next_cap) {
        (Ok(mut made), Some(cap)) => {
            // Some providers also count earlier pieces against the token limit.
            let before = if made.cap_counts_all { context.spent.completion_tokens } else { 0 };
            let cap = cap.saturating_add(before);
            let capped = set_cap(profile, made.request.get(), cap);
            let capped = capped.map(|capped| {
                made.request = capped.request;
                made
            });
            (capped, Some(cap))
        }
        (made, _) => (made, None),
    };
    Some((shown(made), cap))
}

fn shown(made: Result<NextRequest, endstop::next_request::Impossible>) -> Next {
    match made {
        Ok(next) => Next::Changed(Box::new(next)),
        Err(why) => Next::Impossible { impossible: why.to_string() },
    }
}
