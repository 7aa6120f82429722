//! `endstop show`: prints everything recorded about some responses.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use endstop_store::Stored;
use endstop_store::view::EndingView;
use serde_json::{Value, json};

use crate::store::StoreArgs;
use crate::style::Style;
use crate::when;

/// Show everything recorded about responses, and the other attempts of their turns
#[derive(clap::Args)]
#[command(after_help = "\
The id is in the response header x-endstop-id. A unique prefix of it is enough.")]
pub(crate) struct Args {
    /// Ids of the responses
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut store = args.store.open()?;
    let mut out = io::stdout().lock();
    for (index, id) in args.ids.iter().enumerate() {
        let Some(stored) = store.ending(id)? else {
            bail!(
                "no ending with the id {id} is recorded: it may be in progress, or its record expired"
            );
        };
        if index > 0 && !args.json {
            writeln!(out)?;
        }
        show(&mut out, args, &stored, &store.turn(&stored.record.turn_id)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes an ending, and the others of its turn; as JSON, one object each.
fn show(out: &mut impl Write, args: &Args, stored: &Stored, turn: &[Stored]) -> Result<()> {
    let others: Vec<&Stored> =
        turn.iter().filter(|other| other.record.id != stored.record.id).collect();
    if args.json {
        let both = json!({ "ending": EndingView::from(stored), "turn": views(&others) });
        writeln!(out, "{}", serde_json::to_string_pretty(&both)?)?;
        return Ok(());
    }
    print(out, stored)?;
    for other in others {
        let record = &other.record;
        writeln!(
            out,
            "  attempt {:<11} {} {} ({})",
            record.attempt, record.id, record.reason, record.action
        )?;
    }
    Ok(())
}

fn views<'a>(stored: &[&'a Stored]) -> Vec<EndingView<'a>> {
    stored.iter().map(|stored| EndingView::from(*stored)).collect()
}

fn print(out: &mut impl Write, stored: &Stored) -> Result<()> {
    let style = Style::of_stdout();
    let Value::Object(fields) = serde_json::to_value(EndingView::from(stored))? else {
        return Ok(());
    };
    for (name, value) in fields {
        let text = match (name.as_str(), &value) {
            (_, Value::Null) => continue,
            // Rows that others wrote have no time.
            ("total_us", Value::Number(us)) if us.as_u64() == Some(0) => continue,
            ("created_at", Value::Number(ms)) => when::zoned(ms.as_u64().unwrap_or(0)),
            ("first_byte_us" | "total_us", Value::Number(us)) => {
                when::long(us.as_u64().unwrap_or(0))
            }
            (_, Value::String(text)) => text.clone(),
            (_, Value::Array(list)) => {
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            (_, Value::Bool(_) | Value::Number(_) | Value::Object(_)) => value.to_string(),
        };
        if !text.is_empty() {
            // The value has its own unit.
            let name = name.trim_end_matches("_us").replace('_', " ");
            let name = style.dim(&format!("{name:<21}"));
            writeln!(out, "  {name} {text}")?;
        }
    }
    Ok(())
}
