//! What a request asks, in words that no wire owns.

use serde_json::Value;

/// What a request asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// The number of the request; ids are made from it.
    pub(crate) number: u64,
    /// The model, as the request names it.
    pub(crate) model: String,
    /// Whether a stream is asked for.
    pub(crate) streamed: bool,
    /// Whether the stream is one JSON array rather than events.
    pub(crate) array: bool,
    /// Whether usage in the stream is asked for, where that is a question.
    pub(crate) include_usage: bool,
    /// The cap on output tokens.
    pub(crate) cap: Option<u64>,
    /// The stop sequences.
    pub(crate) stop: Vec<String>,
    /// The tools on offer.
    pub(crate) tools: Vec<Tool>,
    /// How many choices.
    pub(crate) choices: u64,
    /// The last message is the result of a tool.
    pub(crate) after_tool: bool,
    /// What the assistant has said so far in its last turn, if a turn of it is in the history.
    pub(crate) said: String,
    /// The request is for a bare prompt, where one path serves prompts and chats.
    pub(crate) generates: bool,
    /// How many words the request holds.
    pub(crate) input: u64,
}

/// A tool on offer.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) schema: Value,
}

impl Ask {
    /// The tool that is called: the first one on offer.
    pub(crate) fn tool(&self) -> Tool {
        self.tools.first().cloned().unwrap_or_else(|| Tool {
            name: "write_file".to_owned(),
            schema: serde_json::json!({
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                "required": ["path", "content"],
            }),
        })
    }

    /// An id of this wire's kind: the prefix and the number of the request.
    pub(crate) fn id(&self, prefix: &str) -> String {
        format!("{prefix}sim{:08}", self.number)
    }
}

/// The string at this pointer, or nothing.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at this pointer, or an empty one.
pub(crate) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The first whole number at one of these pointers.
pub(crate) fn number(value: &Value, pointers: &[&str]) -> Option<u64> {
    pointers.iter().find_map(|pointer| value.pointer(pointer)?.as_u64())
}

/// A string, or a list of strings, at this pointer.
pub(crate) fn strings(value: &Value, pointer: &str) -> Vec<String> {
    match value.pointer(pointer) {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Vec::new()
        }
    }
}

/// A tool, if it has a name.
pub(crate) fn tool(name: &str, schema: Option<&Value>) -> Option<Tool> {
    let schema = schema.cloned().unwrap_or(Value::Null);
    (!name.is_empty()).then(|| Tool { name: name.to_owned(), schema })
}

/// The text of a message's content: a string, or the texts of its blocks.
pub(crate) fn content(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            blocks.iter().map(|block| text(block, "/text")).collect::<Vec<_>>().concat()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            String::new()
        }
    }
}

/// How many words the strings of this value hold.
pub(crate) fn words(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.split_whitespace().count() as u64,
        Value::Array(items) => items.iter().map(words).sum(),
        Value::Object(pairs) => pairs.values().map(words).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
