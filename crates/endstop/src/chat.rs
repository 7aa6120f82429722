//! Requests in no wire's own format, and the functions that write them.
//!
//! A [`ChatRequest`] holds a conversation, tools and settings. [`write()`] writes it as the body of a
//! request on a wire; the dialect of the wire has the function for it. The body ends with the
//! conversation: a request with more messages is the earlier one with a suffix, so that the
//! provider's cache of the prompt holds.
//!
//! ```
//! use endstop::chat::{ChatRequest, ChatMessage, write};
//! use endstop::provider;
//!
//! let request = ChatRequest::new("claude-sonnet-5").with(ChatMessage::user("Hi"));
//! let written = write(&provider::ANTHROPIC.main, &request).unwrap();
//! assert_eq!(written.path, "/messages");
//! assert_eq!(
//!     written.body,
//!     r#"{"model":"claude-sonnet-5","max_tokens":4096,"messages":[{"content":"Hi","role":"user"}]}"#
//! );
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::provider::Profile;

/// A request for an answer of a model.
///
/// ```
/// use endstop::chat::{ChatMessage, ChatRequest, write};
/// use endstop::provider;
///
/// let request = ChatRequest {
///     system: "Be brief.".to_owned(),
///     max_output_tokens: Some(500),
///     ..ChatRequest::new("gpt-5").with(ChatMessage::user("What time is it?"))
/// };
/// let written = write(&provider::OPENAI.main, &request).unwrap();
/// assert_eq!(written.path, "/chat/completions");
/// assert!(written.body.contains("\"max_completion_tokens\":500"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatRequest {
    /// Model, as the provider names it.
    pub model: String,
    /// Instructions for the whole conversation; empty if there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The conversation, which ends with a message that the model answers.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether the model may, must or must not call a tool.
    pub tool_choice: ToolChoice,
    /// Format of the answer; `None` for text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<JsonFormat>,
    /// Maximum number of output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Probability mass of the tokens to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Texts before which the answer stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Whether to stream the answer.
    pub stream: bool,
    /// Other fields of the wire's request. They take precedence; objects are merged.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl ChatRequest {
    /// Creates a request without messages.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), ..Self::default() }
    }

    /// Returns the request with another message at its end.
    #[must_use]
    pub fn with(mut self, message: ChatMessage) -> Self {
        self.messages.push(message);
        self
    }
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChatMessage {
    /// From the user.
    User {
        /// Its parts.
        parts: Vec<ChatPart>,
    },
    /// From the model.
    Assistant(AssistantMessage),
    /// Results of the tool calls in the message before it.
    Tool {
        /// One result per call.
        results: Vec<ToolResult>,
    },
}

impl ChatMessage {
    /// Creates a message of the user with this text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { parts: vec![ChatPart::Text { text: text.into() }] }
    }

    /// Creates a message of the model with this text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(AssistantMessage { text: text.into(), ..AssistantMessage::default() })
    }
}

/// A part of a user's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChatPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image(Image),
}

/// An image: its content, or where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Media type, such as `image/png`.
    pub media_type: String,
    /// Its content or its URL.
    pub source: ImageSource,
}

/// Content or URL of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImageSource {
    /// Content, in Base64.
    Base64(String),
    /// URL that the provider reads.
    Url(String),
}

impl Image {
    /// Returns the URL, or a `data:` URL with the content.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.source {
            ImageSource::Url(url) => url.clone(),
            ImageSource::Base64(data) => format!("data:{};base64,{data}", self.media_type),
        }
    }
}

/// A message of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantMessage {
    /// Text.
    pub text: String,
    /// Reasoning, as far as the provider shows it. It is sent back only as part of `native`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PastCall>,
    /// The message as the provider sent it, with signatures and ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

/// Content of a message in the format of its wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Native {
    /// Id of the provider that made it. It is not sent to any other.
    pub provider: String,
    /// Id of the dialect.
    pub dialect: String,
    /// The content, in JSON.
    pub content: String,
}

/// A tool call of an earlier answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastCall {
    /// The provider's id; empty if the wire has none.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments: a JSON object.
    pub arguments: String,
}

/// Result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Text for the model.
    pub content: String,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Name.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// Schema of its arguments.
    pub schema: Value,
}

/// Whether a model may, must or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// It may.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call one.
    Required,
    /// It must call this one.
    Named(String),
}

/// An answer in JSON that follows a JSON schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JsonFormat {
    /// Name, for wires that want one.
    pub name: String,
    /// The schema.
    pub schema: Value,
}

/// A written request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Path after the base URL, with a query if the wire needs one.
    pub path: String,
    /// Body, in JSON.
    pub body: String,
    /// Headers that the request needs besides its key and its content type.
    pub headers: &'static [(&'static str, &'static str)],
}

/// The functions of a wire that write requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestWriter {
    /// Path of plain requests after the base URL; `{model}` stands for the model.
    pub path: &'static str,
    /// Path of streamed requests.
    pub streamed_path: &'static str,
    /// Headers that every request needs besides its key and its content type.
    pub headers: &'static [(&'static str, &'static str)],
    /// Writes the body.
    pub body: fn(&ChatRequest, &Profile, &mut BodyWriter) -> Result<(), Unwritable>,
}

/// Reason why a request cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unwritable {
    /// Requests of this wire are not written by this crate.
    Wire {
        /// Id of the dialect.
        dialect: &'static str,
    },
    /// The wire has no field for a part of the request.
    Part {
        /// Id of the dialect.
        dialect: &'static str,
        /// The part.
        what: &'static str,
    },
    /// The arguments of an earlier call are not a JSON object.
    Arguments {
        /// Name of the tool.
        tool: String,
    },
    /// The conversation has no message.
    Empty,
}

impl fmt::Display for Unwritable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire { dialect } => write!(out, "requests of `{dialect}` cannot be written"),
            Self::Part { dialect, what } => {
                write!(out, "requests of `{dialect}` have no field for {what}")
            }
            Self::Arguments { tool } => {
                write!(out, "the arguments of an earlier call of `{tool}` are not a JSON object")
            }
            Self::Empty => write!(out, "the conversation has no message"),
        }
    }
}

impl std::error::Error for Unwritable {}

/// Writes a request for this wire.
///
/// Messages of other providers are written without their ids and signatures.
///
/// # Errors
///
/// Fails if the wire cannot express the request.
pub fn write(profile: &Profile, request: &ChatRequest) -> Result<Written, Unwritable> {
    let dialect = profile.dialect.id;
    let writer = profile.request_shape.writer.ok_or(Unwritable::Wire { dialect })?;
    if request.messages.is_empty() {
        return Err(Unwritable::Empty);
    }
    let own = localised(request, profile);
    let mut body = BodyWriter { text: String::new(), extra: request.extra.clone() };
    (writer.body)(&own, profile, &mut body)?;
    let path = if request.stream { writer.streamed_path } else { writer.path };
    let path = path.replace("{model}", &escaped(&request.model));
    Ok(Written { path, body: format!("{{{}}}", body.text), headers: writer.headers })
}

/// Returns the request with the messages as this provider may see them: those of other providers lose
/// their native content, and their calls get other ids.
fn localised(request: &ChatRequest, profile: &Profile) -> ChatRequest {
    let mut own = request.clone();
    let mut calls = 0;
    let mut renamed: Vec<(String, String)> = Vec::new();
    for message in &mut own.messages {
        match message {
            ChatMessage::Assistant(assistant) => {
                let is_own = |native: &Native| {
                    native.provider == profile.provider && native.dialect == profile.dialect.id
                };
                renamed.clear();
                let foreign = !assistant.native.as_ref().is_some_and(is_own);
                if foreign {
                    assistant.native = None;
                }
                for call in &mut assistant.calls {
                    calls += 1;
                    if foreign || call.id.is_empty() {
                        // Nine letters and digits: the form that every wire accepts.
                        let id = format!("call{calls:05}");
                        renamed.push((std::mem::replace(&mut call.id, id.clone()), id));
                    }
                }
            }
            ChatMessage::Tool { results } => {
                for result in results {
                    let at = renamed.iter().position(|(old, _)| *old == result.id);
                    if let Some(at) = at {
                        result.id = renamed.remove(at).1;
                    }
                }
            }
            ChatMessage::User { .. } => {}
        }
    }
    own
}

/// Returns a model name as a segment of a path.
fn escaped(model: &str) -> String {
    let mut out = String::with_capacity(model.len());
    for byte in model.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Writes the body of a request, field by field.
#[derive(Debug)]
pub struct BodyWriter {
    text: String,
    extra: Map<String, Value>,
}

impl BodyWriter {
    /// Adds a field. The caller's own value of it takes precedence, and objects are merged.
    pub fn put(&mut self, name: &str, value: impl Into<Value>) {
        let mut value = value.into();
        if let Some(own) = self.extra.remove(name) {
            merge(&mut value, own);
        }
        self.push(name, &value);
    }

    /// Adds a field if there is a value for it.
    pub fn put_some(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// Adds the caller's other fields and then the conversation, which stands last.
    pub fn end(&mut self, name: &str, messages: Vec<Value>) {
        for (name, value) in std::mem::take(&mut self.extra) {
            self.push(&name, &value);
        }
        self.push(name, &Value::Array(messages));
    }

    fn push(&mut self, name: &str, value: &Value) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(&format!("{}:{value}", Value::from(name)));
    }
}

fn merge(value: &mut Value, own: Value) {
    match (value, own) {
        (Value::Object(value), Value::Object(own)) => {
            for (name, own) in own {
                merge(value.entry(name).or_insert(Value::Null), own);
            }
        }
        (value, own) => *value = own,
    }
}

impl AssistantMessage {
    /// Returns the content as the provider sent it, else the text and the calls as blocks of the wire.
    ///
    /// # Errors
    ///
    /// Fails if the arguments of a call are not an object.
    pub(crate) fn blocks(
        &self,
        text: impl Fn(&str) -> Value,
        call: impl Fn(&PastCall, Value) -> Value,
    ) -> Result<Vec<Value>, Unwritable> {
        if let Some(items) = self.native.as_ref().and_then(Native::items) {
            return Ok(items);
        }
        let text = (!self.text.is_empty()).then(|| Ok(text(&self.text)));
        let calls = self.calls.iter().map(|past| Ok(call(past, past.object()?)));
        text.into_iter().chain(calls).collect()
    }
}

impl PastCall {
    /// Returns the arguments as an object.
    ///
    /// # Errors
    ///
    /// Fails if they are not one.
    pub fn object(&self) -> Result<Value, Unwritable> {
        let blank = self.arguments.trim().is_empty();
        let text = if blank { "{}" } else { self.arguments.as_str() };
        serde_json::from_str(text)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| Unwritable::Arguments { tool: self.name.clone() })
    }
}

impl Native {
    /// Returns the items of the content, if it is a list.
    #[must_use]
    pub fn items(&self) -> Option<Vec<Value>> {
        serde_json::from_str(&self.content).ok()
    }
}
