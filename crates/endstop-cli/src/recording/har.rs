//! HAR: what browsers and proxies record.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Recording, read_request, set_url};

pub(super) fn from_value(har: &Value, name: &str) -> Result<Vec<Recording>> {
    let entries = har
        .pointer("/log/entries")
        .and_then(Value::as_array)
        .with_context(|| format!("{name} has no `log.entries`, so it is no HAR"))?;
    Ok(entries.iter().enumerate().map(|(index, entry)| recording(entry, name, index)).collect())
}

fn recording(entry: &Value, name: &str, index: usize) -> Recording {
    let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let status = entry.pointer("/response/status").and_then(Value::as_u64).unwrap_or(0);
    let content = text("/response/content/text");
    let body = match text("/response/content/encoding") {
        "base64" => STANDARD.decode(content).unwrap_or_else(|_| content.as_bytes().to_vec()),
        _ => content.as_bytes().to_vec(),
    };
    let mut recording = Recording {
        id: format!("{name}#{index}"),
        status: u16::try_from(status).unwrap_or(0),
        content_type: text("/response/content/mimeType").to_owned(),
        body,
        ..Recording::default()
    };
    set_url(&mut recording, text("/request/url"));
    if let Ok(request) = serde_json::from_str(text("/request/postData/text")) {
        read_request(&mut recording, &request);
    }
    recording
}
