//! The content of an answer as it came, for wires on which a paused answer goes back as it is.

use serde_json::{Map, Value};

use super::PauseProtocol;
use crate::frame::framer::{Framer, Hints};
use crate::frame::{Frame, Rest};
use crate::provider::Profile;

/// The most content that is kept, in bytes; a larger answer cannot be sent back.
const MAX_CONTENT: usize = 16 << 20;
/// The most blocks that are kept.
const MAX_BLOCKS: usize = 4096;

/// Puts the content of one answer together from the bytes of its response, as the wire has it.
///
/// It keeps something only on wires whose paused answers are sent back ([`PauseProtocol::Resend`]).
///
/// ```
/// use endstop::next_request::Content;
/// use endstop::provider;
/// use serde_json::json;
///
/// let body = br#"{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"pause_turn"}"#;
/// let mut content = Content::new(&provider::ANTHROPIC.main, "application/json");
/// content.push(body);
/// assert_eq!(content.finish(), Some(json!([{"type": "text", "text": "Hi"}])));
/// ```
#[derive(Clone, Debug)]
pub struct Content {
    gather: Option<Gather>,
    framer: Framer,
    blocks: Blocks,
}

/// Takes the content of one frame in.
pub type Gather = fn(&Frame<'_>, &mut Blocks);

impl Content {
    /// Begins a response of this wire; the content type may be empty.
    #[must_use]
    pub fn new(profile: &Profile, content_type: &str) -> Self {
        let gather = match profile.request_shape.paused {
            PauseProtocol::Resend { gather, .. } => Some(gather),
            PauseProtocol::Never | PauseProtocol::Token(_) => None,
        };
        let hints = Hints {
            framing: profile.framing,
            content_type: content_type.to_ascii_lowercase(),
            streamed: None,
            limit: MAX_CONTENT,
        };
        Self { gather, framer: Framer::new(hints), blocks: Blocks::default() }
    }

    /// Reads a chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        let Some(gather) = self.gather.filter(|_| !self.blocks.lost) else { return };
        let blocks = &mut self.blocks;
        if self.framer.push(chunk, |frame| gather(&frame, blocks)).is_err() {
            self.blocks.lose();
        }
    }

    /// Returns the content for the assistant's turn; none if there is none or not all of it is known.
    #[must_use]
    pub fn finish(self) -> Option<Value> {
        let Self { gather, framer, mut blocks } = self;
        let gather = gather.filter(|_| !blocks.lost)?;
        if framer.finish(|frame| gather(&frame, &mut blocks)) == Rest::CutFrame {
            return None;
        }
        blocks.finish()
    }
}

/// The blocks of one answer, as far as they came.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    list: Vec<Block>,
    bytes: usize,
    /// Something came that is not understood or too large: what is kept is not the whole content.
    lost: bool,
}

#[derive(Clone, Debug, Default)]
struct Block {
    fields: Map<String, Value>,
    /// A value that comes in pieces of JSON, and the field that it belongs to.
    json: Option<(&'static str, String)>,
    open: bool,
}

impl Blocks {
    /// Takes in the content of a whole answer.
    pub fn set(&mut self, content: &[Value]) {
        for (index, block) in content.iter().enumerate() {
            self.start(index, block);
            self.stop(index);
        }
    }

    /// Begins a block.
    pub fn start(&mut self, index: usize, block: &Value) {
        let Value::Object(fields) = block else { return self.lose() };
        if index != self.list.len() || index >= MAX_BLOCKS || !self.has_room(size(block)) {
            return self.lose();
        }
        self.list.push(Block { fields: fields.clone(), json: None, open: true });
    }

    /// Appends to a text of a block.
    pub fn append(&mut self, index: usize, field: &str, text: &str) {
        let room = self.has_room(text.len());
        match self.open(index).map(|block| block.fields.entry(field).or_insert(Value::Null)) {
            Some(Value::String(own)) if room => own.push_str(text),
            Some(own @ Value::Null) if room => *own = Value::String(text.to_owned()),
            _ => self.lose(),
        }
    }

    /// Sets a text of a block.
    pub fn put(&mut self, index: usize, field: &str, text: &str) {
        let room = self.has_room(text.len());
        match self.open(index) {
            Some(block) if room => {
                block.fields.insert(field.to_owned(), Value::String(text.to_owned()));
            }
            _ => self.lose(),
        }
    }

    /// Appends to a list of a block.
    pub fn push(&mut self, index: usize, field: &str, value: &Value) {
        let room = self.has_room(size(value));
        match self.open(index).map(|block| block.fields.entry(field).or_insert(Value::Null)) {
            Some(Value::Array(own)) if room => own.push(value.clone()),
            Some(own @ Value::Null) if room => *own = Value::Array(vec![value.clone()]),
            _ => self.lose(),
        }
    }

    /// Appends to a value of a block that comes in pieces of JSON.
    pub fn append_json(&mut self, index: usize, field: &'static str, piece: &str) {
        let room = self.has_room(piece.len());
        match self.open(index) {
            Some(block) if room => {
                let (_, json) = block.json.get_or_insert_with(|| (field, String::new()));
                json.push_str(piece);
            }
            _ => self.lose(),
        }
    }

    /// Ends a block.
    pub fn stop(&mut self, index: usize) {
        let Some(block) = self.open(index) else { return self.lose() };
        block.open = false;
        let Some((field, json)) = block.json.take().filter(|(_, json)| !json.is_empty()) else {
            return;
        };
        match serde_json::from_str(&json) {
            Ok(value) => drop(block.fields.insert(field.to_owned(), value)),
            Err(_) => self.lose(),
        }
    }

    /// Gives up: not all of the content can be kept.
    pub fn lose(&mut self) {
        *self = Self { lost: true, ..Self::default() };
    }

    fn open(&mut self, index: usize) -> Option<&mut Block> {
        self.list.get_mut(index).filter(|block| block.open)
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes <= MAX_CONTENT
    }

    fn finish(self) -> Option<Value> {
        if self.lost || self.list.is_empty() || self.list.iter().any(|block| block.open) {
            return None;
        }
        let blocks = self.list.into_iter().map(|block| Value::Object(block.fields));
        Some(Value::Array(blocks.collect()))
    }
}

/// About how many bytes a value holds.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + size(value)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::frame::testing::cuttings;
    use crate::provider::{ANTHROPIC, GOOGLE, OPENAI};

    const STREAM: &[u8] = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n\
event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
event: ping\ndata: {\"type\":\"ping\"}\n\n\
event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\u00fcb\"}}\n\n\
event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"server_tool_use\",\"input\":{}}}\n\n\
event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"q\\\":1}\"}}\n\n\
event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n\
event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

    fn read(pieces: &[&[u8]]) -> Option<Value> {
        let mut content = Content::new(&ANTHROPIC.main, "text/event-stream");
        pieces.iter().for_each(|piece| content.push(piece));
        content.finish()
    }

    fn text() -> String {
        String::from_utf8(STREAM.to_vec()).unwrap()
    }

    #[test]
    fn content_is_the_same_in_every_cutting() {
        let want = json!([
            {"type": "text", "text": "a\u{fc}b"},
            {"type": "server_tool_use", "input": {"q": 1}},
        ]);
        for pieces in cuttings(STREAM) {
            assert_eq!(read(&pieces), Some(want.clone()));
        }
    }

    #[test]
    fn what_is_not_whole_is_not_sent_back() {
        let without = |event: &str| text().replace(event, "\"type\":\"other\"");
        for lacks in [
            "\"type\":\"content_block_stop\",\"index\":1",
            "\"type\":\"content_block_start\",\"index\":0",
            "\"type\":\"content_block_start\",\"index\":1",
        ] {
            assert!(text().contains(lacks));
            assert_eq!(read(&[without(lacks).as_bytes()]), None, "{lacks}");
        }
        assert_eq!(read(&[text().replace(":1}\"", ":\"").as_bytes()]), None, "half of an input");
        assert_eq!(read(&[text().replace("text_delta", "smell_delta").as_bytes()]), None);
        let twice =
            text().replace("\"index\":1,\"content_block\"", "\"index\":0,\"content_block\"");
        assert_eq!(read(&[twice.as_bytes()]), None);
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[b"data: {\"type\":\"message_stop\"}\n\n"]), None);
        // Inside a block, and inside a frame.
        for cut in [400, 330] {
            let (half, _) = STREAM.split_at(cut);
            assert_eq!(read(&[half]), None, "{cut}");
        }
    }

    #[test]
    fn content_is_bounded() {
        let mut content = Content::new(&ANTHROPIC.main, "text/event-stream");
        let (start, _) = STREAM.split_at(text().find("event: ping").unwrap());
        content.push(start);
        let piece = format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{}\"}}}}\n\n",
            "x".repeat(1 << 20)
        );
        for _ in 0..15 {
            content.push(piece.as_bytes());
        }
        assert!(!content.blocks.lost);
        content.push(piece.as_bytes());
        content.push(piece.as_bytes());
        assert!(content.blocks.lost && content.blocks.list.is_empty());
        assert_eq!(content.finish(), None);
        let mut blocks = Blocks::default();
        (0..MAX_BLOCKS).for_each(|index| blocks.start(index, &json!({})));
        assert!(!blocks.lost);
        blocks.start(MAX_BLOCKS, &json!({}));
        assert!(blocks.lost);
    }

    #[test]
    fn wires_that_take_nothing_back_keep_nothing() {
        for profile in [&OPENAI.main, &GOOGLE.main] {
            let mut content = Content::new(profile, "");
            content.push(STREAM);
            assert_eq!(content.finish(), None);
        }
    }
}
