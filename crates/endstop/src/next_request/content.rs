//! Original content of an answer, to send it back unchanged, with its ids and signatures.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::document::{Document, quoted};
use crate::frame::framer::{Framer, Hints, Label, Strings};
use crate::frame::{Frame, Rest};
use crate::provider::Profile;

/// Maximum content that is kept, in bytes. A larger answer cannot be sent back.
const MAX_CONTENT: usize = 16 << 20;
/// Maximum number of blocks that are kept.
const MAX_BLOCKS: usize = 4096;

/// Collects the content of one answer from the bytes of its response, in the format of the wire.
///
/// It keeps content only on wires that take it back ([`gather`](super::RequestShape::gather)).
///
/// ```
/// use endstop::next_request::Content;
/// use endstop::provider;
///
/// let body = br#"{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"pause_turn"}"#;
/// let mut content = Content::new(&provider::ANTHROPIC.main, "application/json");
/// content.push(body);
/// assert_eq!(content.finish().unwrap().get(), r#"[{"type":"text","text":"Hi"}]"#);
/// ```
#[derive(Clone, Debug)]
pub struct Content {
    gather: Option<Gather>,
    framer: Framer,
    blocks: Blocks,
}

/// Function that adds the content of one frame.
pub type Gather = fn(&Frame<'_>, &mut Blocks);

impl Content {
    /// Starts a response on this wire. The content type may be empty.
    #[must_use]
    pub fn new(profile: &Profile, content_type: &str) -> Self {
        let hints = Hints {
            framing: profile.framing,
            label: Label::of(content_type),
            streamed: None,
            limit: MAX_CONTENT,
            strings: Strings::Kept,
        };
        let gather = profile.request_shape.gather;
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

    /// Returns the content for the assistant message, or `None` if it is missing or incomplete.
    #[must_use]
    pub fn finish(self) -> Option<Box<RawValue>> {
        let Self { gather, framer, mut blocks } = self;
        let gather = gather.filter(|_| !blocks.lost)?;
        if framer.finish(|frame| gather(&frame, &mut blocks)) == Rest::CutFrame {
            return None;
        }
        blocks.finish()
    }
}

/// Blocks of one answer, as far as received.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    list: Vec<Block>,
    bytes: usize,
    /// Whether something was unknown or too large, so that the content is incomplete.
    lost: bool,
}

#[derive(Clone, Debug)]
struct Block {
    /// Block as it started.
    object: Document,
    /// Texts to append to its fields when it ends.
    texts: BTreeMap<&'static str, String>,
    /// Texts that replace its fields.
    replaced: BTreeMap<&'static str, String>,
    /// Elements of lists, as JSON, separated by commas.
    elements: BTreeMap<&'static str, String>,
    /// Values that arrive in pieces of JSON.
    json: BTreeMap<&'static str, String>,
    open: bool,
}

impl Blocks {
    /// Sets the content of a whole answer, in place of blocks before it.
    pub fn set(&mut self, content: &[&RawValue]) {
        self.list.clear();
        content.iter().for_each(|block| self.add(block));
    }

    /// Adds a whole block after the others.
    pub fn add(&mut self, block: &RawValue) {
        let index = self.list.len();
        self.start(index, block);
        self.stop(index);
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of the last block, if it has not ended.
    #[must_use]
    pub fn last_open(&self) -> Option<usize> {
        let last = self.list.len().checked_sub(1)?;
        self.list.get(last).filter(|block| block.open).map(|_| last)
    }

    /// Starts a block.
    pub fn start(&mut self, index: usize, block: &RawValue) {
        let Some(object) = Document::new(block.get(), false) else { return self.lose() };
        if index != self.list.len() || index >= MAX_BLOCKS || !self.has_room(block.get().len()) {
            return self.lose();
        }
        let (texts, replaced) = (BTreeMap::new(), BTreeMap::new());
        let (elements, json) = (BTreeMap::new(), BTreeMap::new());
        self.list.push(Block { object, texts, replaced, elements, json, open: true });
    }

    /// Appends to a string field of a block.
    pub fn append(&mut self, index: usize, field: &'static str, text: &str) {
        if let Some(block) = self.open(index, text.len()) {
            block.texts.entry(field).or_default().push_str(text);
        }
    }

    /// Sets a string field of a block.
    pub fn put(&mut self, index: usize, field: &'static str, text: &str) {
        if let Some(block) = self.open(index, text.len()) {
            block.replaced.insert(field, text.to_owned());
        }
    }

    /// Appends to a list field of a block.
    pub fn push(&mut self, index: usize, field: &'static str, value: &RawValue) {
        if let Some(block) = self.open(index, value.get().len()) {
            let list = block.elements.entry(field).or_default();
            if !list.is_empty() {
                list.push(',');
            }
            list.push_str(value.get());
        }
    }

    /// Appends to a field whose value arrives in pieces of JSON.
    pub fn append_json(&mut self, index: usize, field: &'static str, piece: &str) {
        if let Some(block) = self.open(index, piece.len()) {
            block.json.entry(field).or_default().push_str(piece);
        }
    }

    /// Ends a block.
    pub fn stop(&mut self, index: usize) {
        if self.open(index, 0).and_then(Block::stop).is_none() {
            self.lose();
        }
    }

    /// Drops the content, since not all of it can be kept.
    pub fn lose(&mut self) {
        *self = Self { lost: true, ..Self::default() };
    }

    /// Returns a block that has not ended, if there is room for this many more bytes. Otherwise
    /// drops the content.
    fn open(&mut self, index: usize, bytes: usize) -> Option<&mut Block> {
        let is_open = self.list.get(index).is_some_and(|block| block.open);
        if !self.has_room(bytes) || !is_open {
            self.lose();
        }
        self.list.get_mut(index)
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes <= MAX_CONTENT
    }

    fn finish(self) -> Option<Box<RawValue>> {
        if self.lost || self.list.is_empty() || self.list.iter().any(|block| block.open) {
            return None;
        }
        let blocks: Option<Vec<Box<RawValue>>> =
            self.list.into_iter().map(|block| block.object.finish()).collect();
        serde_json::value::to_raw_value(&blocks?).ok()
    }
}

impl Block {
    /// Inserts the pieces into the block. Returns `None` if one does not fit.
    fn stop(&mut self) -> Option<()> {
        self.open = false;
        let object = &mut self.object;
        for (field, text) in std::mem::take(&mut self.texts) {
            match object.find(field).filter(|span| object.raw(span) != "null") {
                Some(span) => object.append(&span, &text)?,
                None => object.put(field, &quoted(&text))?,
            }
        }
        for (field, text) in std::mem::take(&mut self.replaced) {
            object.put(field, &quoted(&text))?;
        }
        for (field, elements) in std::mem::take(&mut self.elements) {
            match object.find(field).filter(|span| object.raw(span) != "null") {
                Some(span) => {
                    object.items(&span)?;
                    object.push(&span, &elements);
                }
                None => object.put(field, &format!("[{elements}]"))?,
            }
        }
        for (field, json) in std::mem::take(&mut self.json) {
            if !json.is_empty() {
                object.put(field, serde_json::from_str::<&RawValue>(&json).ok()?.get())?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::aws::encode;
    use crate::frame::testing::cuttings;
    use crate::provider::{ANTHROPIC, BEDROCK, GOOGLE, OPENAI};

    const STREAM: &[u8] = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n\
event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
event: ping\ndata: {\"type\":\"ping\"}\n\n\
event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\u00fcb\"}}\n\n\
event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"server_tool_use\",\"input\":{}}}\n\n\
event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"q\\\":1}\"}}\n\n\
event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n\
event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

    fn read(pieces: &[&[u8]]) -> Option<String> {
        let mut content = Content::new(&ANTHROPIC.main, "text/event-stream");
        pieces.iter().for_each(|piece| content.push(piece));
        content.finish().map(|content| content.get().to_owned())
    }

    fn text() -> String {
        String::from_utf8(STREAM.to_vec()).unwrap()
    }

    #[test]
    fn content_is_the_same_in_every_cutting() {
        let want = "[{\"type\":\"text\",\"text\":\"aüb\"},\
                    {\"type\":\"server_tool_use\",\"input\":{\"q\":1}}]";
        for pieces in cuttings(STREAM) {
            assert_eq!(read(&pieces).as_deref(), Some(want));
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
        // Truncated inside a block, and inside a frame.
        for cut in [400, 330] {
            let (half, _) = STREAM.split_at(cut);
            assert_eq!(read(&[half]), None, "{cut}");
        }
    }

    /// Reads a stream or a body of this wire, in every division into two chunks.
    #[track_caller]
    fn gathers(profile: &Profile, content_type: &str, bytes: &str, want: Option<&str>) {
        for pieces in cuttings(bytes.as_bytes()) {
            let mut content = Content::new(profile, content_type);
            pieces.iter().for_each(|piece| content.push(piece));
            assert_eq!(content.finish().as_deref().map(RawValue::get), want, "{bytes}");
        }
    }

    #[test]
    fn items_of_responses_are_kept_with_their_reasoning() {
        let wire = OPENAI.wire_for_path("/v1/responses").unwrap();
        let items = r#"[{"type":"reasoning","id":"rs_1","encrypted_content":"gAAA"},{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}"}]"#;
        let body = format!(r#"{{"object":"response","status":"completed","output":{items}}}"#);
        gathers(wire, "application/json", &body, Some(items));
        let reasoning = r#"{"type":"reasoning","id":"rs_1","encrypted_content":"gAAA"}"#;
        let call =
            r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}"}"#;
        let done = |item: &str| {
            format!("data: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n")
        };
        let stream = format!("{}{}", done(reasoning), done(call));
        gathers(wire, "text/event-stream", &stream, Some(items));
        // The last event repeats the items, and replaces them.
        let last = format!("data: {{\"type\":\"response.completed\",\"response\":{body}}}\n\n");
        gathers(wire, "text/event-stream", &format!("{stream}{last}"), Some(items));
        let unread = format!("{stream}data: {{\"type\":\n\n");
        gathers(wire, "text/event-stream", &unread, None);
    }

    #[test]
    fn parts_of_gemini_are_kept_with_their_signatures() {
        let part = |part: &str, more: &str| {
            format!("{{\"candidates\":[{{\"content\":{{\"parts\":[{part}]}}{more}}}]}}")
        };
        let call = r#"{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"c2ln"}"#;
        let want = format!("[{{\"text\":\"Hi there\"}},{call}]");
        let finish = ",\"finishReason\":\"STOP\"";
        let events =
            [part(r#"{"text":"Hi "}"#, ""), part(r#"{"text":"there"}"#, ""), part(call, finish)];
        let stream = events.map(|event| format!("data: {event}\n\n")).concat();
        gathers(&GOOGLE.main, "text/event-stream", &stream, Some(&want));
        let body = part(&format!("{{\"text\":\"Hi there\"}},{call}"), finish);
        gathers(&GOOGLE.main, "application/json", &body, Some(&want));
        // Text without a finish reason is not over, and a call in pieces cannot be sent back.
        let cut = format!("data: {}\n\n", part(r#"{"text":"Hi "}"#, ""));
        gathers(&GOOGLE.main, "text/event-stream", &cut, None);
        let pieces = part(r#"{"functionCall":{"name":"f","willContinue":true}}"#, finish);
        gathers(&GOOGLE.main, "application/json", &pieces, None);
    }

    #[test]
    fn blocks_of_converse_are_kept_with_their_signatures() {
        let want = r#"[{"reasoningContent":{"reasoningText":{"text":"Hm","signature":"c2ln"}}},{"text":"Hi"},{"toolUse":{"toolUseId":"t1","name":"f","input":{"a":1}}}]"#;
        let body =
            format!(r#"{{"output":{{"message":{{"content":{want}}}}},"stopReason":"tool_use"}}"#);
        gathers(&BEDROCK.main, "application/json", &body, Some(want));
        let event = |name: &str, payload: &str| {
            encode(&[(":message-type", "event"), (":event-type", name)], payload.as_bytes())
        };
        let delta = |index: u8, delta: &str| {
            let payload = format!(r#"{{"contentBlockIndex":{index},"delta":{delta}}}"#);
            event("contentBlockDelta", &payload)
        };
        let stop =
            |index: u8| event("contentBlockStop", &format!(r#"{{"contentBlockIndex":{index}}}"#));
        let stream = [
            delta(0, r#"{"reasoningContent":{"text":"Hm"}}"#),
            delta(0, r#"{"reasoningContent":{"signature":"c2ln"}}"#),
            stop(0),
            delta(1, r#"{"text":"H"}"#),
            delta(1, r#"{"text":"i"}"#),
            stop(1),
            event(
                "contentBlockStart",
                r#"{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"t1","name":"f"}}}"#,
            ),
            delta(2, r#"{"toolUse":{"input":"{\"a\""}}"#),
            delta(2, r#"{"toolUse":{"input":":1}"}}"#),
            stop(2),
        ]
        .concat();
        for pieces in cuttings(&stream) {
            let mut content = Content::new(&BEDROCK.main, "application/vnd.amazon.eventstream");
            pieces.iter().for_each(|piece| content.push(piece));
            // Keys that the gatherer writes are sorted.
            let want = want.replace(
                r#"{"toolUseId":"t1","name":"f","input":{"a":1}}"#,
                r#"{"input":{"a":1},"name":"f","toolUseId":"t1"}"#,
            );
            assert_eq!(content.finish().unwrap().get(), want);
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
        assert!(content.finish().is_none());
        let mut blocks = Blocks::default();
        let empty = RawValue::from_string("{}".to_owned()).unwrap();
        (0..MAX_BLOCKS).for_each(|index| blocks.start(index, &empty));
        assert!(!blocks.lost);
        blocks.start(MAX_BLOCKS, &empty);
        assert!(blocks.lost);
    }

    #[test]
    fn wires_that_take_nothing_back_keep_nothing() {
        let mut content = Content::new(&OPENAI.main, "");
        content.push(STREAM);
        assert!(content.finish().is_none());
    }
}
