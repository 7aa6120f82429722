//! Parts that many wires share: the end marker, messages, roles and error shapes.

use serde_json::{Value, json};

use crate::frame::aws;
use crate::gateway_error::{ErrorEnd, ErrorShape, GatewayError, KeepAlive};
use crate::next_request::{MessageList, PauseProtocol, RequestShape, Scale, Speaker, Temperature};
use crate::provider::Role;

/// End marker of most server-sent event streams.
pub const END_MARKER: &str = "[DONE]";

/// Part of a path that asks for a stream, on hosts with AWS event stream framing.
pub(crate) const AWS_STREAM: &str = "stream";

/// Request shape with only the model, the stop sequences and the number of choices.
pub const REQUEST: RequestShape = RequestShape {
    model: "model",
    stop: &["stop", "stop_sequences", "generationConfig.stopSequences"],
    choices: &["n", "generationConfig.candidateCount"],
    conversation: &[],
    hint: Role::User,
    prefill_restrictions: &[],
    paused: PauseProtocol::Never,
    tools: &["tools", "functions", "input.tools", "parameters.tools"],
    forced_tools: &[],
    temperature: Temperature { field: "", refused_by: &[], only_if_sent: true },
    efforts: &[],
    either_case: false,
    usage: None,
    background: "",
    poll: "",
    rest: None,
    gather: None,
    writer: None,
};

/// Reasoning efforts on most wires, highest first. Below `low`, each model has its own value.
pub(crate) const EFFORT_WORDS: &[&str] = &["max", "xhigh", "high", "medium", "low"];

/// Reasoning effort that is lowered only if the request has one.
pub(crate) const WORDS_IF_SAID: Scale =
    Scale::Words { words: EFFORT_WORDS, unsaid: None, given: None };

/// Message list of most wires.
pub(crate) const MESSAGES: MessageList = MessageList {
    list: "messages",
    role: "role",
    assistant: "assistant",
    user: "user",
    content: "content",
    part: typed_text,
    plain: true,
    item_type: None,
};

/// Returns a text part with a type.
fn typed_text(_: Speaker, text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Returns a text part without a type.
pub(crate) fn bare_text(_: Speaker, text: &str) -> Value {
    json!({ "text": text })
}

/// Returns an object with the fields that have a value, or `None` if none has.
pub(crate) fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Option<Value> {
    let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let set: serde_json::Map<String, Value> = set.collect();
    (!set.is_empty()).then_some(Value::Object(set))
}

/// Adds a field to an object.
pub(crate) fn insert(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Returns the model in a path, as Google, Amazon and Azure put it there.
pub(crate) fn model_in_path(path: &str) -> Option<String> {
    let after = |part: &str| path.split_once(part).map(|(_, rest)| rest);
    let rest = after("/models/").or_else(|| after("/model/")).or_else(|| after("/deployments/"))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let name = rest.get(..end)?;
    // Google's method follows a colon. Amazon's model names have one before their version, escaped
    // or not.
    let (name, _) = name
        .rsplit_once(":generate")
        .or_else(|| name.rsplit_once(":stream"))
        .or_else(|| name.rsplit_once(":raw"))
        .unwrap_or((name, ""));
    Some(name.replace("%3A", ":").replace("%2F", "/"))
}

pub(crate) fn aws_exception(gateway_error: &GatewayError<'_>) -> Vec<u8> {
    let payload =
        json!({ "message": gateway_error.message, "originalStatusCode": gateway_error.status });
    aws::exception("modelStreamErrorException", payload.to_string().as_bytes())
}

pub(crate) fn aws_error(gateway_error: &GatewayError<'_>) -> Value {
    let kind = match gateway_error.status {
        400 => "ValidationException",
        401 | 403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        _ => "ModelErrorException",
    };
    json!({ "message": gateway_error.message, "__type": kind, "code": gateway_error.code })
}

/// OpenAI's error shape, which most hosts share.
pub const ERRORS: ErrorShape = ErrorShape {
    event: "",
    in_stream: openai,
    last: None,
    unfinished: "",
    body: openai,
    end: ErrorEnd::Abort,
    keep_alive: KeepAlive::Trickle,
};

/// Errors that are a string, as on Ollama.
pub(crate) const TEXT_ERRORS: ErrorShape = ErrorShape { in_stream: text, body: text, ..ERRORS };

pub(crate) fn openai(gateway_error: &GatewayError<'_>) -> Value {
    json!({ "error": {
        "message": gateway_error.message,
        "type": "endstop_error",
        "param": null,
        "code": gateway_error.code,
    } })
}

fn text(gateway_error: &GatewayError<'_>) -> Value {
    json!({ "error": gateway_error.message })
}

/// Key of a tool's name, at any depth of its declaration.
pub(crate) const TOOL_NAME: &str = "name";

impl Role {
    /// Returns the name of the role on most wires.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
        }
    }
}
