//! JSON lines: one recorded response per line.

use std::io::{self, BufRead, Read};

use anyhow::Result;
use serde_json::{Map, Value};

use super::{
    BYTE_ORDER_MARK, ReadOne, Recording, Unread, from_base64, read_status, unreadable,
    version_headers,
};

/// Maximum length of a line in bytes.
const MAX_LINE: usize = 64 << 20;

pub(super) fn each(
    input: &mut impl BufRead,
    name: &str,
    mut on: impl FnMut(ReadOne) -> Result<()>,
) -> Result<()> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        let id = format!("{name}:{number}");
        match read_line(input, &mut line) {
            Ok(Line::Whole) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Line::Whole) => on(recording(&line, &id))?,
            Ok(Line::TooLong) => on(Err(Unread::record(id, "the line is longer than 64 MiB")))?,
            Ok(Line::End) => return Ok(()),
            Err(error) => return on(Err(Unread::record(id, unreadable(&error)))),
        }
    }
    Ok(())
}

enum Line {
    Whole,
    /// Line over the maximum length, skipped to its end.
    TooLong,
    End,
}

/// Reads one line, up to the maximum length.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    input.take(MAX_LINE as u64).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(Line::End);
    }
    if line.len() < MAX_LINE || line.ends_with(b"\n") {
        return Ok(Line::Whole);
    }
    line.clear();
    loop {
        let buffer = input.fill_buf()?;
        let (length, over) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(length);
        if over {
            return Ok(Line::TooLong);
        }
    }
}

fn recording(line: &[u8], id: &str) -> ReadOne {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii_end();
    // Invalid UTF-8 is replaced, so that one byte does not lose the record.
    let value: Value = serde_json::from_slice(line)
        .or_else(|_| serde_json::from_str(&String::from_utf8_lossy(line)))
        .map_err(|error: serde_json::Error| {
            let why = match error.is_eof() {
                true => "it is truncated".to_owned(),
                false => format!("invalid at column {}", error.column()),
            };
            Unread::record(id, format!("not JSON: {why}"))
        })?;
    let headers = version_headers(&value);
    let Value::Object(record) = value else {
        return Err(Unread::record(id, "not a recorded response: expected an object with `body`"));
    };
    let mut fields = Fields { record, odd: Vec::new() };
    let named = fields.text("id").filter(|named| !named.is_empty());
    let id = named.unwrap_or_else(|| id.to_owned());
    let Some(body) = fields.text("body") else {
        return Err(Unread::record(id, "no recorded body: expected text in `body`"));
    };
    // A body in an unknown encoding would be judged as what it is not.
    let encoding = match fields.record.get("encoding") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(name)) => name.to_ascii_lowercase(),
        Some(_) => "?".to_owned(),
    };
    let body = match &*encoding {
        "base64" => from_base64(&body).map_err(|why| Unread::record(id.as_str(), why))?,
        "" | "text" | "utf-8" | "utf8" => body.into_bytes(),
        _ => {
            let why = "unknown `encoding`: expected text, utf-8 or base64";
            return Err(Unread::record(id, why));
        }
    };
    fields.read("headers", |value| (value.is_object() || value.is_array()).then_some(()));
    let wire = |value: &Value| {
        let api = value.as_str()?;
        let is_known = api.is_empty() || endstop::dialect::by_id(api).is_some();
        // Recorders name the chat of a provider after it, whichever wire it speaks.
        let of_provider = || endstop::provider::by_id(api.strip_suffix("-chat")?);
        let chat = || of_provider().map(|provider| provider.main.dialect.id);
        if is_known { Some(api) } else { chat() }.map(str::to_owned)
    };
    let dialect = fields.read("api", wire).unwrap_or_default();
    let url = fields.text("url").unwrap_or_default();
    let (host, path) = crate::response::split_url(&url);
    Ok(Recording {
        provider: fields.text("provider").unwrap_or_default(),
        dialect,
        host: fields.text("host").unwrap_or_else(|| host.to_owned()),
        path: fields.text("url_path").unwrap_or_else(|| path.to_owned()),
        headers,
        model: fields.text("model"),
        status: fields.read("status", read_status).unwrap_or(0),
        content_type: fields.text("content_type").unwrap_or_default(),
        streamed: fields
            .read("stream", Value::as_bool)
            .or_else(|| fields.read("request_stream", Value::as_bool)),
        cap: fields.read("request_max_tokens", Value::as_u64),
        request: Vec::new(),
        body,
        odd: fields.odd,
        id,
    })
}

/// Fields of a record. Invalid values are ignored and noted.
struct Fields {
    record: Map<String, Value>,
    odd: Vec<String>,
}

impl Fields {
    fn read<T>(&mut self, key: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.record.get(key).filter(|value| !value.is_null())?;
        let found = read(value);
        if found.is_none() {
            self.odd.push(key.to_owned());
        }
        found
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.read(key, |value| value.as_str().map(str::to_owned))
    }
}
