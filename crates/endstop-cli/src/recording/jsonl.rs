//! JSON lines: one recorded response a line.

use std::io::BufRead;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{MAX_LINE, Recording, read_line};

#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    api: Option<String>,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    url_path: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    request_stream: Option<bool>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    content_type: Option<String>,
    #[serde(default)]
    request_max_tokens: Option<u64>,
    #[serde(default)]
    encoding: Option<String>,
    body: String,
}

pub(super) fn each(
    input: &mut impl BufRead,
    name: &str,
    mut on: impl FnMut(Recording) -> Result<()>,
) -> Result<()> {
    let mut line = Vec::new();
    let mut number = 0_u64;
    while read_line(input, &mut line).with_context(|| format!("cannot read {name}"))? {
        number += 1;
        if line.len() as u64 >= MAX_LINE {
            bail!("{name}, line {number}: longer than 64 MiB, which no recording is");
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let record: Record = serde_json::from_slice(&line).with_context(|| {
            format!("{name}, line {number}: no recorded response (a JSON object with `body`)")
        })?;
        let fallback = format!("{name}:{number}");
        on(recording(record, fallback).with_context(|| format!("{name}, line {number}"))?)?;
    }
    Ok(())
}

fn recording(record: Record, fallback: String) -> Result<Recording> {
    let body = match record.encoding.as_deref() {
        Some("base64") => STANDARD.decode(&record.body).context("the body is no base64")?,
        _ => record.body.into_bytes(),
    };
    let api = record.api.unwrap_or_default();
    Ok(Recording {
        id: record.id.unwrap_or(fallback),
        provider: record.provider.unwrap_or_default(),
        // Mistral's chat is OpenAI's wire; the others are named as we name them.
        dialect: if api == "mistral-chat" { "openai-chat".to_owned() } else { api },
        host: record.host.unwrap_or_default(),
        path: record.url_path.unwrap_or_default(),
        model: record.model,
        status: record.status.unwrap_or(0),
        content_type: record.content_type.unwrap_or_default(),
        streamed: record.stream.or(record.request_stream),
        cap: record.request_max_tokens,
        choices: None,
        body,
    })
}
