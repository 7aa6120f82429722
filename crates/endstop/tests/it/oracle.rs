//! A second, slow and simple implementation that finds the end of a stream and its tool calls. It
//! shares no code with the product.

pub(crate) mod calls;

use endstop::provider::Profile;
use serde_json::Value;

/// Positions of the finish reason and the end marker of a stream, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    /// First byte after which a success may be reported: the end of the JSON in the frame.
    pub(crate) earliest: usize,
    /// First byte after which the ending must be reported: the end of the whole frame.
    pub(crate) settled: usize,
}

/// Returns the marks of a stream, or `None` if it has no such end.
pub(crate) fn marks(profile: &Profile, bytes: &[u8]) -> Option<Marks> {
    let frames = frames(bytes);
    // A list is complete when it is closed.
    if profile.dialect.id == "hf-tgi" && bytes.first() == Some(&b'[') {
        let end = bytes.trim_ascii_end().len();
        let whole = serde_json::from_slice::<Value>(bytes).is_ok();
        return whole.then_some(Marks { earliest: end, settled: end });
    }
    let mut first = None;
    let mut said = std::collections::BTreeSet::new();
    let mut open = std::collections::BTreeSet::new();
    for (name, value, earliest, settled) in &frames {
        let marks = Marks { earliest: *earliest, settled: *settled };
        let proves = match profile.dialect.id {
            "anthropic-messages" => value["type"] == "message_stop",
            "openai-responses" => value["type"].as_str().is_some_and(|name| {
                matches!(
                    name,
                    "response.completed"
                        | "response.incomplete"
                        | "response.failed"
                        | "response.done"
                )
            }),
            "bedrock-converse" => name == "messageStop",
            "cohere-v2" => value["type"] == "message-end",
            "ollama-chat" => value["done"] == true,
            "openai-assistants" => {
                let open = ["queued", "in_progress", "cancelling"];
                value["object"] == "thread.run" && open.iter().all(|word| value["status"] != *word)
            }
            "anthropic-complete" => says(&value["stop_reason"]) || value["type"] == "message_stop",
            "gemini-interactions" => {
                let last = ["interaction.completed", "interaction.complete"];
                last.iter().any(|name| value["event_type"] == *name)
            }
            "bedrock-nova" => value["messageStop"].is_object(),
            "bedrock-titan" => {
                says(&value["completionReason"]) || says(&value["totalOutputTextTokenCount"])
            }
            "bedrock-llama" => says(&value["stop_reason"]),
            "bedrock-mistral" => {
                let choice = &value["choices"][0];
                let word = [
                    &value["outputs"][0]["stop_reason"],
                    &choice["stop_reason"],
                    &choice["finish_reason"],
                ];
                word.into_iter().any(says)
            }
            "bedrock-cohere" => value["is_finished"] == true || value["generations"].is_array(),
            "cohere-v1" => {
                let is_line = value["event_type"].is_null();
                value["event_type"] == "stream-end" || is_line && value["is_finished"] == true
            }
            "watsonx" => value["results"].as_array().is_some_and(|results| {
                let is_over = |word: &Value| {
                    word.as_str().is_some_and(|word| !word.eq_ignore_ascii_case("not_finished"))
                };
                results.iter().all(|result| is_over(&result["stop_reason"]))
            }),
            "dashscope" => {
                let output = &value["output"];
                says(&output["finish_reason"]) || says(&output["choices"][0]["finish_reason"])
            }
            // Only its last event is JSON.
            "replicate" => true,
            "hf-tgi" => value["generated_text"].is_string(),
            "llamacpp-completion" => value["stop"] == true,
            "aleph-alpha-complete" => value["type"] == "completion_summary",
            _ => {
                // SAP wraps chat completions.
                let value =
                    if value["final_result"].is_object() { &value["final_result"] } else { value };
                let list = value["choices"].as_array().or(value["candidates"].as_array());
                for choice in list.into_iter().flatten() {
                    let index = choice["index"].as_u64().unwrap_or(0);
                    open.insert(index);
                    let word = [
                        &choice["finish_reason"],
                        &choice["finishReason"],
                        &choice["finish_details"]["type"],
                    ];
                    if word.into_iter().any(says) {
                        said.insert(index);
                    }
                }
                value["promptFeedback"]["blockReason"].is_string()
                    || !open.is_empty() && open == said
            }
        };
        if proves {
            return Some(first.unwrap_or(marks));
        }
        // With several choices: the position at which all choices so far have a finish reason.
        first = first.or_else(|| (!open.is_empty() && open == said).then_some(marks));
    }
    None
}

/// Reports whether a stream of text, cut here, ends inside the JSON of an event.
pub(crate) fn is_inside(bytes: &[u8], cut: usize) -> bool {
    let head = &bytes[..cut];
    let start = head.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    let line = String::from_utf8_lossy(&head[start..]).into_owned();
    let json = line.strip_prefix("data:").unwrap_or(&line).trim();
    let is_list = bytes.trim_ascii_start().starts_with(b"[");
    !is_list && json.starts_with('{') && parse(json).is_none()
}

/// Returns the JSON values of a response: of its frames, or of its body.
pub(crate) fn values(bytes: &[u8]) -> Vec<Value> {
    match serde_json::from_slice(bytes) {
        Ok(value) => vec![value],
        Err(_) => frames(bytes).into_iter().map(|(_, value, ..)| value).collect(),
    }
}

/// Reports whether a value is a finish reason.
fn says(word: &Value) -> bool {
    !word.is_null() && word != "" && word != "null"
}

/// Returns the name, the JSON, the end of the JSON and the end of each frame.
fn frames(bytes: &[u8]) -> Vec<(String, Value, usize, usize)> {
    match bytes.first() {
        Some(0) => aws_frames(bytes),
        Some(b'[') => array_frames(bytes),
        _ => text_frames(bytes),
    }
}

/// Reads server-sent events and JSON lines. Every line with JSON is a frame, and the line end
/// settles it.
fn text_frames(bytes: &[u8]) -> Vec<(String, Value, usize, usize)> {
    let mut frames = Vec::new();
    let mut at = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n' || *byte == b'\r') {
        let end = at + line.len();
        let text = String::from_utf8_lossy(line);
        let json = text.trim_start_matches('\u{feff}').trim_end();
        let json = json.strip_prefix("data:").unwrap_or(json).trim_start();
        if let Some(value) = parse(json)
            && value.is_object()
        {
            let earliest = at + text.trim_end().len();
            frames.push((String::new(), value, earliest, (end + 3).min(bytes.len())));
        }
        at = end;
    }
    frames
}

/// Parses JSON, even with half a surrogate pair, which `serde_json` rejects.
fn parse(json: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(json) {
        return Some(value);
    }
    let mut parts = json.split("\\ud");
    let first = parts.next()?.to_owned();
    let without = parts.fold(first, |text, part| text + "?" + part.get(3..).unwrap_or_default());
    serde_json::from_str(&without).ok()
}

fn array_frames(bytes: &[u8]) -> Vec<(String, Value, usize, usize)> {
    let mut frames = Vec::new();
    let mut at = 1;
    while at < bytes.len() {
        let mut stream = serde_json::Deserializer::from_slice(&bytes[at..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => {
                let end = at + stream.byte_offset();
                frames.push((String::new(), value, end, end));
                at = end;
            }
            _ => at += 1,
        }
    }
    frames
}

fn aws_frames(bytes: &[u8]) -> Vec<(String, Value, usize, usize)> {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(prelude) = bytes.get(at..at + 12) {
        let number =
            |from: usize| u32::from_be_bytes(prelude[from..from + 4].try_into().unwrap()) as usize;
        let (total, headers) = (number(0), number(4));
        let Some(message) = bytes.get(at..at + total) else { break };
        let text = String::from_utf8_lossy(&message[12..12 + headers]).into_owned();
        let names = ["messageStop", "contentBlockStart", "contentBlockDelta", "contentBlockStop"];
        let name = names.iter().find(|name| text.contains(**name));
        let payload: Value =
            serde_json::from_slice(&message[12 + headers..total - 4]).unwrap_or_default();
        let inner = payload["bytes"].as_str().and_then(|encoded| {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
            serde_json::from_slice(&bytes).ok()
        });
        at += total;
        frames.push((
            name.map_or(String::new(), ToString::to_string),
            inner.unwrap_or(payload),
            at,
            at,
        ));
    }
    frames
}
