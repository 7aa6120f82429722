//! Wire-independent model of a request.

use serde_json::Value;

/// Parsed request.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimRequest {
    /// Number of the request; ids are made from it.
    pub(crate) number: u64,
    /// Model, as the request names it.
    pub(crate) model: String,
    /// Whether the request asks for a stream.
    pub(crate) streamed: bool,
    /// Whether the stream is one JSON array instead of events.
    pub(crate) array: bool,
    /// Whether the request asks for usage in the stream, on wires where this is an option.
    pub(crate) include_usage: bool,
    /// Limit on output tokens.
    pub(crate) cap: Option<u64>,
    /// Stop sequences.
    pub(crate) stop: Vec<String>,
    /// Tools that the model may call.
    pub(crate) tools: Vec<Tool>,
    /// Names of the tools to call, if the simulator was given any.
    pub(crate) wanted: Vec<String>,
    /// Value of parameters that take a shell command; a harmless one if `None`.
    pub(crate) command: Option<String>,
    /// Number of choices.
    pub(crate) choices: u64,
    /// Whether the last message is a tool result.
    pub(crate) after_tool: bool,
    /// Text of the assistant's last message in the history; empty if it has none.
    pub(crate) said: String,
    /// Whether the request has a bare prompt instead of messages.
    pub(crate) generates: bool,
    /// Number of words in the request.
    pub(crate) input: u64,
}

/// Tool that the model may call.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// Namespace that it is listed in, on the Responses wire.
    pub(crate) namespace: Option<String>,
    pub(crate) schema: Value,
}

impl SimRequest {
    /// Returns the tool to call: the first wanted one, else the first of the request, or a default
    /// one.
    pub(crate) fn tool(&self) -> Tool {
        let tool = self.wanted_tools().next().or(self.tools.first());
        tool.cloned().unwrap_or_else(|| Tool {
            name: "write_file".to_owned(),
            namespace: None,
            schema: serde_json::json!({
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                "required": ["path", "content"],
            }),
        })
    }

    /// Returns the tool to call without arguments: the first wanted one without parameters, or else
    /// the same as [`Self::tool`].
    pub(crate) fn bare_tool(&self) -> Tool {
        let bare = self.wanted_tools().find(|tool| tool.is_bare());
        bare.cloned().unwrap_or_else(|| self.tool())
    }

    /// Reports whether the request offers a wanted tool, or none is wanted.
    pub(crate) fn is_for_tools(&self) -> bool {
        self.wanted.is_empty() || self.wanted_tools().next().is_some()
    }

    fn wanted_tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(|tool| self.wanted.contains(&tool.name))
    }

    /// Returns an id made of the prefix and the number of the request.
    pub(crate) fn id(&self, prefix: &str) -> String {
        format!("{prefix}sim{:08}", self.number)
    }
}

impl Tool {
    /// Reports whether the tool has no parameters.
    fn is_bare(&self) -> bool {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        properties.is_none_or(serde_json::Map::is_empty)
    }
}

/// Returns the string at this pointer, or an empty one.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list at this pointer, or an empty one.
pub(crate) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the first whole number at one of these pointers.
pub(crate) fn number(value: &Value, pointers: &[&str]) -> Option<u64> {
    pointers.iter().find_map(|pointer| value.pointer(pointer)?.as_u64())
}

/// Returns the string, or the list of strings, at this pointer.
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

/// Returns a tool if the name is not empty.
pub(crate) fn tool(name: &str, schema: Option<&Value>) -> Option<Tool> {
    let schema = schema.cloned().unwrap_or(Value::Null);
    (!name.is_empty()).then(|| Tool { name: name.to_owned(), namespace: None, schema })
}

/// Returns the text of a message's content: a string, or the texts of its blocks.
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

/// Counts the words in the strings of this value.
pub(crate) fn words(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.split_whitespace().count() as u64,
        Value::Array(items) => items.iter().map(words).sum(),
        Value::Object(pairs) => pairs.values().map(words).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
