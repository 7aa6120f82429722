//! The JSON of a record in the spool.
//!
//! The same as serde writes, without the fields that have their default, and at a third of the cost:
//! it is written twice in the way of every response.

use endstop::Record;
use endstop::record::Name;

/// A name with what stands around it, which is one copy.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

/// Appends a record.
pub(super) fn write(buffer: &mut Vec<u8>, record: &Record) {
    let Record {
        id,
        turn_id,
        attempt,
        created_at,
        team_id,
        key_id,
        upstream,
        path,
        provider,
        model,
        dialect,
        streamed,
        mode,
        status,
        client_status,
        native_finish_reason,
        native_field,
        finish_reason,
        reason,
        confidence,
        closed,
        cause,
        shown,
        decision,
        action,
        tokens_in,
        tokens_out,
        tokens_reasoning,
        tokens_cached,
        cap,
        first_byte_us,
        total_us,
        bytes,
        delivered_bytes,
        events,
        error_type,
        upstream_request_id,
        rules,
    } = record;
    let mut fields = Fields { start: buffer.len(), buffer };
    fields.text_if(key!("id"), id);
    fields.text_if(key!("turn_id"), turn_id);
    fields.number(key!("attempt"), (*attempt).into());
    fields.number(key!("created_at"), *created_at);
    if let Some(team_id) = team_id {
        fields.text(key!("team_id"), team_id);
    }
    if let Some(key_id) = key_id {
        fields.text(key!("key_id"), key_id);
    }
    fields.text_if(key!("upstream"), upstream);
    fields.text_if(key!("path"), path);
    fields.word(key!("provider"), provider);
    if let Some(model) = model {
        fields.text(key!("model"), model);
    }
    fields.word(key!("dialect"), dialect);
    fields.flag(key!("streamed"), *streamed);
    fields.word(key!("mode"), mode);
    if let Some(status) = status {
        fields.number(key!("status"), (*status).into());
    }
    if let Some(client_status) = client_status {
        fields.number(key!("client_status"), (*client_status).into());
    }
    if let Some(native_finish_reason) = native_finish_reason {
        fields.text(key!("native_finish_reason"), native_finish_reason);
    }
    if let Some(native_field) = native_field {
        fields.word(key!("native_field"), native_field);
    }
    if let Some(finish_reason) = finish_reason {
        fields.word(key!("finish_reason"), finish_reason);
    }
    fields.word(key!("reason"), reason);
    fields.word(key!("confidence"), confidence);
    fields.word(key!("closed"), closed);
    fields.word(key!("cause"), cause);
    fields.texts(key!("shown"), shown);
    if let Some(decision) = decision {
        fields.word(key!("decision"), decision);
    }
    fields.word(key!("action"), action);
    if let Some(tokens_in) = tokens_in {
        fields.number(key!("tokens_in"), *tokens_in);
    }
    if let Some(tokens_out) = tokens_out {
        fields.number(key!("tokens_out"), *tokens_out);
    }
    if let Some(tokens_reasoning) = tokens_reasoning {
        fields.number(key!("tokens_reasoning"), *tokens_reasoning);
    }
    if let Some(tokens_cached) = tokens_cached {
        fields.number(key!("tokens_cached"), *tokens_cached);
    }
    if let Some(cap) = cap {
        fields.number(key!("cap"), *cap);
    }
    if let Some(first_byte_us) = first_byte_us {
        fields.number(key!("first_byte_us"), *first_byte_us);
    }
    fields.number(key!("total_us"), *total_us);
    fields.number(key!("bytes"), *bytes);
    fields.number(key!("delivered_bytes"), *delivered_bytes);
    fields.number(key!("events"), *events);
    if let Some(error_type) = error_type {
        fields.text(key!("error_type"), error_type);
    }
    if let Some(upstream_request_id) = upstream_request_id {
        fields.text(key!("upstream_request_id"), upstream_request_id);
    }
    fields.number(key!("rules"), (*rules).into());
    fields.close();
}

/// The fields of an object.
struct Fields<'b> {
    buffer: &'b mut Vec<u8>,
    /// Place of the bracket that opens the object. A comma stands there until the end.
    start: usize,
}

impl Fields<'_> {
    fn name(&mut self, key: &'static str) {
        self.buffer.extend_from_slice(key.as_bytes());
    }

    fn text_if(&mut self, key: &'static str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    /// Adds a text, also an empty one: an optional text that is there is not the default.
    fn text(&mut self, key: &'static str, text: &str) {
        self.name(key);
        push_text(self.buffer, text);
    }

    /// Adds a name. Endstop's own names need no escapes; an empty one is the default.
    fn word(&mut self, key: &'static str, word: &Name) {
        match word {
            Name::Borrowed("") => {}
            Name::Borrowed(word) => {
                self.name(key);
                self.buffer.push(b'"');
                self.buffer.extend_from_slice(word.as_bytes());
                self.buffer.push(b'"');
            }
            Name::Owned(word) => self.text(key, word),
        }
    }

    fn texts(&mut self, key: &'static str, texts: &[Name]) {
        if texts.is_empty() {
            return;
        }
        self.name(key);
        for (at, text) in texts.iter().enumerate() {
            self.buffer.push(if at == 0 { b'[' } else { b',' });
            push_text(self.buffer, text);
        }
        self.buffer.push(b']');
    }

    fn number(&mut self, key: &'static str, number: u64) {
        self.name(key);
        let mut digits = [0; 20];
        let (mut at, mut rest) = (digits.len(), number);
        loop {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.buffer.extend_from_slice(digits.get(at..).unwrap_or_default());
    }

    fn flag(&mut self, key: &'static str, flag: bool) {
        if flag {
            self.name(key);
            self.buffer.extend_from_slice(b"true");
        }
    }

    fn close(self) {
        match self.buffer.get_mut(self.start) {
            Some(comma) => *comma = b'{',
            None => self.buffer.push(b'{'),
        }
        self.buffer.push(b'}');
    }
}

fn push_text(buffer: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    // Not `all`, which the compiler does not vectorize.
    if text.bytes().fold(true, |all, byte| all & plain(byte)) {
        buffer.push(b'"');
        buffer.extend_from_slice(text.as_bytes());
        buffer.push(b'"');
    } else {
        // Writing to a buffer cannot fail.
        let _ = serde_json::to_writer(buffer, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(record: &Record) {
        let mut buffer = Vec::new();
        write(&mut buffer, record);
        let read: Record = serde_json::from_slice(&buffer).unwrap();
        assert_eq!(&read, record);
    }

    #[test]
    fn a_record_reads_back() {
        check(&Record::default());
        let text = |text: &str| Some(text.to_owned());
        let full = Record {
            id: "0192".to_owned(),
            attempt: u32::MAX,
            created_at: u64::MAX,
            team_id: text(""),
            key_id: text("k_1"),
            path: "/v1/\"x\"\\ü\u{0}".to_owned(),
            streamed: true,
            status: Some(0),
            reason: "cut".into(),
            finish_reason: Some("a \"quoted\" word".to_owned().into()),
            native_finish_reason: text("日本\n"),
            shown: vec!["text".into(), "".into()],
            tokens_in: Some(0),
            total_us: 10,
            ..Record::default()
        };
        check(&full);
    }
}
