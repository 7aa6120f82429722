//! `endstop show`: prints everything recorded about one response.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use endstop_store::Stored;
use endstop_store::view::EndingView;
use serde_json::{Value, json};

use crate::store::StoreArgs;
use crate::style::Style;
use crate::when;

/// Show everything recorded about one response, and the other attempts of its turn
#[derive(clap::Args)]
#[command(after_help = "\
The id is in the response header x-endstop-id. A unique prefix of it is enough.")]
pub(crate) struct Args {
    /// Id of the response
    id: String,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut store = args.store.open()?;
    let Some(stored) = store.ending(&args.id)? else {
        bail!(
            "no ending with the id {} is recorded: it may be in progress, or its record expired",
            args.id
        );
    };
    let turn = store.turn(&stored.record.turn_id)?;
    let mut out = io::stdout().lock();
    let others: Vec<&Stored> =
        turn.iter().filter(|other| other.record.id != stored.record.id).collect();
    if args.json {
        let both = json!({ "ending": EndingView::from(&stored), "turn": views(&others) });
        writeln!(out, "{}", serde_json::to_string_pretty(&both)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&mut out, &stored)?;
    for other in others {
        let record = &other.record;
        writeln!(
            out,
            "  attempt {:<11} {} {} ({})",
            record.attempt, record.id, record.reason, record.action
        )?;
    }
    Ok(ExitCode::SUCCESS)
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
