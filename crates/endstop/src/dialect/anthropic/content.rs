//! The content of an answer, put together as it came so that a paused turn can be sent back.
//!
//! Source: `anthropic` 2.8.0 `lib/streaming/_messages.py` and `types/beta/`.

use serde_json::Value;

use crate::frame::{Frame, FrameKind};
use crate::next_request::Blocks;

/// The block that replaces the messages that it sums up, where an answer holds nothing else.
pub(super) const COMPACTION: &str = "compaction";

pub(super) fn gather(frame: &Frame<'_>, blocks: &mut Blocks) {
    let Ok(value) = serde_json::from_slice::<Value>(frame.data) else { return };
    match frame.kind {
        FrameKind::Body => content(&value, blocks),
        FrameKind::Event => event(&value, blocks),
        FrameKind::Exception | FrameKind::Text => {}
    }
}

fn content(message: &Value, blocks: &mut Blocks) {
    if let Some(content) = message.get("content").and_then(Value::as_array) {
        blocks.set(content);
    }
}

fn event(event: &Value, blocks: &mut Blocks) {
    let at = |name: &str| event.get(name).unwrap_or(&Value::Null);
    let index = at("index").as_u64().and_then(|index| usize::try_from(index).ok());
    let index = index.unwrap_or(usize::MAX);
    match at("type").as_str().unwrap_or_default() {
        "message_start" => content(at("message"), blocks),
        "content_block_start" => blocks.start(index, at("content_block")),
        "content_block_delta" => delta(index, at("delta"), blocks),
        "content_block_stop" => blocks.stop(index),
        _ => {}
    }
}

fn delta(index: usize, delta: &Value, blocks: &mut Blocks) {
    let text = |name: &str| delta.get(name).and_then(Value::as_str);
    match text("type").unwrap_or_default() {
        "text_delta" => blocks.append(index, "text", text("text").unwrap_or_default()),
        "thinking_delta" => {
            blocks.append(index, "thinking", text("thinking").unwrap_or_default());
        }
        "signature_delta" => {
            blocks.put(index, "signature", text("signature").unwrap_or_default());
        }
        "input_json_delta" => {
            blocks.append_json(index, "input", text("partial_json").unwrap_or_default());
        }
        "citations_delta" => {
            blocks.push(index, "citations", delta.get("citation").unwrap_or(&Value::Null));
        }
        "compaction_delta" => {
            for field in ["content", "encrypted_content", "signature"] {
                if let Some(piece) = text(field) {
                    blocks.append(index, field, piece);
                }
            }
        }
        // A piece that is not understood cannot be sent back as it came.
        _ => blocks.lose(),
    }
}
