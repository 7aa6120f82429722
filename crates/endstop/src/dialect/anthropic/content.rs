//! Response content, reassembled unchanged so that a paused turn can be sent back.
//!
//! Source: `anthropic` 2.8.0 `lib/streaming/_messages.py` and `types/beta/`.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::frame::{Frame, FrameKind};
use crate::next_request::Blocks;
use crate::wire::Text;

/// Reports whether a block replaces the messages that it sums up, if it is the only block.
pub(super) fn is_compaction(block: &Value) -> bool {
    block.get("type").is_some_and(|kind| kind == "compaction")
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    index: Option<usize>,
    #[serde(borrow)]
    message: Message<'a>,
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    type_: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    signature: Text<'a>,
    #[serde(borrow)]
    partial_json: Text<'a>,
    #[serde(borrow)]
    citation: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(borrow)]
    encrypted_content: Text<'a>,
}

pub(super) fn gather(frame: &Frame<'_>, blocks: &mut Blocks) {
    let is_body = match frame.kind {
        FrameKind::Body => true,
        FrameKind::Event => false,
        FrameKind::Exception | FrameKind::Text => return,
    };
    match serde_json::from_slice::<Payload<'_>>(frame.data) {
        Ok(body) if is_body => set(body.content.as_deref(), blocks),
        Ok(payload) => event(&payload, blocks),
        // An unreadable event may hold a part of the content.
        Err(_) => blocks.lose(),
    }
}

fn set(content: Option<&[&RawValue]>, blocks: &mut Blocks) {
    if let Some(content) = content {
        blocks.set(content);
    }
}

fn event(event: &Payload<'_>, blocks: &mut Blocks) {
    let index = event.index.unwrap_or(usize::MAX);
    match &*event.type_ {
        "message_start" => set(event.message.content.as_deref(), blocks),
        "content_block_start" => match event.content_block {
            Some(block) => blocks.start(index, block),
            None => blocks.lose(),
        },
        "content_block_delta" => delta(index, &event.delta, blocks),
        "content_block_stop" => blocks.stop(index),
        _ => {}
    }
}

fn delta(index: usize, delta: &Delta<'_>, blocks: &mut Blocks) {
    match (&*delta.type_, delta.citation) {
        ("text_delta", _) => blocks.append(index, "text", &delta.text),
        ("thinking_delta", _) => blocks.append(index, "thinking", &delta.thinking),
        ("signature_delta", _) => blocks.put(index, "signature", &delta.signature),
        ("input_json_delta", _) => blocks.append_json(index, "input", &delta.partial_json),
        ("citations_delta", Some(citation)) => blocks.push(index, "citations", citation),
        ("compaction_delta", _) => {
            let pieces = [
                ("content", &delta.content),
                ("encrypted_content", &delta.encrypted_content),
                ("signature", &delta.signature),
            ];
            for (field, piece) in pieces.into_iter().filter(|(_, piece)| !piece.is_empty()) {
                blocks.append(index, field, piece);
            }
        }
        // An unknown delta cannot be sent back unchanged.
        _ => blocks.lose(),
    }
}
