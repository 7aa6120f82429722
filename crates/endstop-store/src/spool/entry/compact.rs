//! The JSON of a record in the spool.
//!
//! The same as serde writes, without the fields that have their default, and at a third of the cost:
//! it is written twice in the way of every response.

use endstop::Record;
use endstop::record::Name;

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
    let mut fields = Fields { buffer, opened: false };
    fields.text_if("id", id);
    fields.text_if("turn_id", turn_id);
    fields.number("attempt", (*attempt).into());
    fields.number("created_at", *created_at);
    if let Some(team_id) = team_id {
        fields.text("team_id", team_id);
    }
    if let Some(key_id) = key_id {
        fields.text("key_id", key_id);
    }
    fields.text_if("upstream", upstream);
    fields.text_if("path", path);
    fields.word("provider", provider);
    if let Some(model) = model {
        fields.text("model", model);
    }
    fields.word("dialect", dialect);
    fields.flag("streamed", *streamed);
    fields.word("mode", mode);
    if let Some(status) = status {
        fields.number("status", (*status).into());
    }
    if let Some(client_status) = client_status {
        fields.number("client_status", (*client_status).into());
    }
    if let Some(native_finish_reason) = native_finish_reason {
        fields.text("native_finish_reason", native_finish_reason);
    }
    if let Some(native_field) = native_field {
        fields.word("native_field", native_field);
    }
    if let Some(finish_reason) = finish_reason {
        fields.word("finish_reason", finish_reason);
    }
    fields.word("reason", reason);
    fields.word("confidence", confidence);
    fields.word("closed", closed);
    fields.word("cause", cause);
    fields.texts("shown", shown);
    if let Some(decision) = decision {
        fields.word("decision", decision);
    }
    fields.word("action", action);
    if let Some(tokens_in) = tokens_in {
        fields.number("tokens_in", *tokens_in);
    }
    if let Some(tokens_out) = tokens_out {
        fields.number("tokens_out", *tokens_out);
    }
    if let Some(tokens_reasoning) = tokens_reasoning {
        fields.number("tokens_reasoning", *tokens_reasoning);
    }
    if let Some(tokens_cached) = tokens_cached {
        fields.number("tokens_cached", *tokens_cached);
    }
    if let Some(cap) = cap {
        fields.number("cap", *cap);
    }
    if let Some(first_byte_us) = first_byte_us {
        fields.number("first_byte_us", *first_byte_us);
    }
    fields.number("total_us", *total_us);
    fields.number("bytes", *bytes);
    fields.number("delivered_bytes", *delivered_bytes);
    fields.number("events", *events);
    if let Some(error_type) = error_type {
        fields.text("error_type", error_type);
    }
    if let Some(upstream_request_id) = upstream_request_id {
        fields.text("upstream_request_id", upstream_request_id);
    }
    fields.number("rules", (*rules).into());
    fields.close();
}

/// The fields of an object.
struct Fields<'b> {
    buffer: &'b mut Vec<u8>,
    opened: bool,
}

impl Fields<'_> {
    fn name(&mut self, name: &str) {
        self.buffer.push(if std::mem::replace(&mut self.opened, true) { b',' } else { b'{' });
        self.buffer.push(b'"');
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.extend_from_slice(b"\":");
    }

    fn text_if(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    /// Adds a text, also an empty one: an optional text that is there is not the default.
    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        push_text(self.buffer, text);
    }

    /// Adds a name. Endstop's own names need no escapes; an empty one is the default.
    fn word(&mut self, name: &str, word: &Name) {
        match word {
            Name::Borrowed("") => {}
            Name::Borrowed(word) => {
                self.name(name);
                self.buffer.push(b'"');
                self.buffer.extend_from_slice(word.as_bytes());
                self.buffer.push(b'"');
            }
            Name::Owned(word) => self.text(name, word),
        }
    }

    fn texts(&mut self, name: &str, texts: &[Name]) {
        if texts.is_empty() {
            return;
        }
        self.name(name);
        for (at, text) in texts.iter().enumerate() {
            self.buffer.push(if at == 0 { b'[' } else { b',' });
            push_text(self.buffer, text);
        }
        self.buffer.push(b']');
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
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

    fn flag(&mut self, name: &str, flag: bool) {
        if flag {
            self.name(name);
            self.buffer.extend_from_slice(b"true");
        }
    }

    fn close(self) {
        self.buffer.extend_from_slice(if self.opened { b"}" } else { b"{}" });
    }
}

fn push_text(buffer: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
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
