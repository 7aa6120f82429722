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
    /// Text of the last message, if it is not the assistant's.
    pub(crate) asked: String,
    /// Whether the last message is the assistant's.
    pub(crate) trailing: bool,
    /// Fields of the last message that are true, such as `prefix`.
    pub(crate) marks: Vec<String>,
    /// Whether the last message is one of the assistant that the provider paused.
    pub(crate) paused: bool,
    /// Way in which the request asks to continue an answer.
    pub(crate) way: Way,
    /// Number of tokens of the earlier parts of the answer, if the token limit covers them too.
    pub(crate) spent: u64,
    /// Whether the provider returns a token to continue an answer with.
    pub(crate) gives_tokens: bool,
    /// Id of the earlier response that the request refers to.
    pub(crate) previous: Option<String>,
    /// Whether the provider may store the response.
    pub(crate) stored: bool,
    /// URL of the stream, if the response names it instead of being the stream.
    pub(crate) stream_url: Option<String>,
    /// Whether the response is made in the background and polled.
    pub(crate) background: bool,
    /// Whether the request forbids tool calls.
    pub(crate) no_tools: bool,
    /// Name of the tool that the request forces.
    pub(crate) forced: Option<String>,
    /// Whether the request has a bare prompt instead of messages.
    pub(crate) generates: bool,
    /// Number of words in the request.
    pub(crate) input: u64,
}

/// Way in which a request asks to continue an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// Does not: it asks for a new answer.
    #[default]
    New,
    /// The model goes on exactly where the text stops: a prefill, or a paused turn.
    Exact,
    /// The same, and the reply begins with the text so far.
    Echoed,
    /// The model goes on exactly where an earlier response stopped.
    Remembered,
    /// A message asks for it. Models may repeat some of the text.
    Hinted,
    /// A token of the provider names the place in the text, in bytes.
    At(usize),
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
    /// Returns the tool to call: the forced one, else the first wanted one, else the first of the
    /// request, or a default one.
    pub(crate) fn tool(&self) -> Tool {
        let forced = self.tools.iter().find(|tool| self.forced.as_ref() == Some(&tool.name));
        let tool = forced.or_else(|| self.wanted_tools().next()).or(self.tools.first());
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

    /// Reads the messages of a conversation: the assistant's last one, and the message after it. Each
    /// has its text in this field.
    pub(crate) fn read_turns(&mut self, messages: &[Value], assistant: &str, field: &str) {
        let is_assistant = |message: &&Value| text(message, "/role") == assistant;
        let said = messages.iter().rev().find(is_assistant);
        self.said = said.map(|message| content(message.get(field))).unwrap_or_default();
        let Some(last) = messages.last() else { return };
        self.trailing = is_assistant(&last);
        if self.trailing {
            let pairs = last.as_object().into_iter().flatten();
            let marks = pairs.filter(|(_, value)| **value == Value::Bool(true));
            self.marks = marks.map(|(key, _)| key.clone()).collect();
        } else {
            self.asked = content(last.get(field));
        }
    }

    /// Reads a prompt that the model continues, and with it a beginning of its answer.
    pub(crate) fn read_prompt(&mut self, prompt: Option<&Value>) {
        self.input = prompt.map_or(0, words);
        self.asked = prompt.map(|prompt| strings(prompt, "").concat()).unwrap_or_default();
        self.way = Way::Exact;
    }

    /// Reads the setting that forbids tools or forces one.
    pub(crate) fn read_tool_choice(&mut self, choice: Option<&Value>) {
        let Some(choice) = choice else { return };
        let word = choice.as_str().unwrap_or_else(|| text(choice, "/type"));
        self.no_tools = word.eq_ignore_ascii_case("none");
        let names = ["/function/name", "/name", "/tool/name"].map(|at| text(choice, at));
        self.forced = names.into_iter().find(|name| !name.is_empty()).map(str::to_owned);
    }

    /// Forbids calls in a conversation that offers no tools any more, on wires that have no setting for it. A
    /// first request may get a call without asking for one.
    pub(crate) fn read_absent_tools(&mut self, messages: &[Value]) {
        let goes_on = messages.iter().any(|message| text(message, "/role") == "assistant");
        self.no_tools |= self.tools.is_empty() && goes_on;
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
