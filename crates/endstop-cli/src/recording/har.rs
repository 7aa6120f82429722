//! HAR files, as browsers and proxies record them.

use anyhow::Result;
use endstop::registry::Registry;
use serde_json::Value;

use super::{
    ReadOne, Recording, Unread, asks_a_model, from_base64, read_status, set_url, version_headers,
};

/// Passes every entry to `on`, one by one, because a file may have millions.
pub(super) fn each(
    har: &Value,
    registry: &Registry,
    name: &str,
    mut on: impl FnMut(ReadOne) -> Result<()>,
) -> Result<()> {
    let Some(entries) = har.pointer("/log/entries").and_then(Value::as_array) else {
        return on(Err(Unread::file(name, "not a HAR file: `log.entries` is missing")));
    };
    let mut entries = entries.iter().enumerate();
    entries.try_for_each(|(index, entry)| on(recording(entry, registry, name, index)))
}

fn recording(entry: &Value, registry: &Registry, name: &str, index: usize) -> ReadOne {
    let id = format!("{name}#{index}");
    let unread = |why: &str| Unread::record(id.as_str(), why);
    let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (method, url) = (text("/request/method"), text("/request/url"));
    let sent = text("/request/postData/text");
    if !method.is_empty() && !asks_a_model(registry, method, url, sent) {
        return Err(Unread::request(id.as_str()));
    }
    if !entry.get("response").is_some_and(Value::is_object) {
        return Err(unread("no `response` was recorded"));
    }
    let content = entry.pointer("/response/content/text").and_then(Value::as_str);
    let content = content.ok_or_else(|| unread("no body was recorded in `content.text`"))?;
    let body = match text("/response/content/encoding") {
        "base64" => from_base64(content).map_err(|why| unread(&why))?,
        _ => content.as_bytes().to_vec(),
    };
    let status = entry.pointer("/response/status").filter(|status| !status.is_null());
    let read = status.and_then(read_status);
    let mut recording = Recording {
        status: read.unwrap_or(0),
        content_type: text("/response/content/mimeType").to_owned(),
        headers: entry.get("request").map(version_headers).unwrap_or_default(),
        request: text("/request/postData/text").as_bytes().to_vec(),
        body,
        odd: status.filter(|_| read.is_none()).map(|_| "status".to_owned()).into_iter().collect(),
        id,
        ..Recording::default()
    };
    set_url(&mut recording, url);
    Ok(recording)
}
