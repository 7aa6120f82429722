//! Typed answers: a value of a Rust type, or the reason why there is none.

use endstop::chat::{ChatMessage, JsonFormat};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Request;
use crate::error::Error;
use crate::response::{ChatResponse, Ended};

/// Reason why there is no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypedError {
    /// The request could not be made.
    #[error(transparent)]
    Request(#[from] Error),
    /// The answer is truncated. Nothing is known about the value.
    #[error("the answer is incomplete: {}", notice(.0))]
    Truncated(Box<ChatResponse>),
    /// The answer is complete and does not have the type.
    #[error("the answer does not match the type: {message}")]
    Invalid {
        /// First mistake.
        message: String,
        /// The answer.
        response: Box<ChatResponse>,
    },
    /// The model declined, the provider failed, or the model called a tool.
    #[error("no answer: {}", .0.ending.sentence)]
    NoAnswer(Box<ChatResponse>),
}

fn notice(response: &ChatResponse) -> String {
    let sentence = &response.ending.sentence;
    match response.text() {
        Some(_) => format!("its JSON is unfinished, although {sentence}"),
        None => response.outcome.notice.clone().unwrap_or_else(|| sentence.clone()),
    }
}

impl Request {
    /// Sends the request and returns the answer as a value.
    ///
    /// The type's schema is sent as the format of the answer. If a complete answer does not match the type,
    /// the model is asked once more, with the mistake. A truncated answer is continued, or reported as
    /// [`TypedError::Truncated`]; it is never called invalid.
    ///
    /// # Errors
    /// Returns the reason why there is no value.
    pub async fn typed<T: DeserializeOwned + JsonSchema>(mut self) -> Result<T, TypedError> {
        let name = T::schema_name().chars().filter(char::is_ascii_alphanumeric).collect();
        self.parts().1.format = Some(JsonFormat { name, schema: schema_of::<T>() });
        let first = value(self.clone().send().await?);
        let Err(TypedError::Invalid { message, response }) = first else { return first };
        let asked = format!(
            "That answer does not match the JSON schema: {message}. Answer again, with one JSON value only."
        );
        let answer = ChatMessage::assistant(response.text_so_far.clone());
        value(self.messages([answer]).user(asked).send().await?)
    }
}

/// Reads the value of a response.
fn value<T: DeserializeOwned>(response: ChatResponse) -> Result<T, TypedError> {
    let read = match response.ended() {
        Ended::Complete(answer) => serde_json::from_str(bare(answer.text())),
        Ended::Partial(_) => return Err(TypedError::Truncated(Box::new(response))),
        Ended::ToolCalls(_) | Ended::Refused(_) | Ended::Failed(_) => {
            return Err(TypedError::NoAnswer(Box::new(response)));
        }
    };
    read.map_err(|error| match response.text() {
        // The text stops inside a value: something was cut off, whatever the provider says.
        Some(text) if error.is_eof() && !text.trim().is_empty() => {
            TypedError::Truncated(Box::new(response))
        }
        _ => TypedError::Invalid { message: error.to_string(), response: Box::new(response) },
    })
}

/// Returns the JSON without a code fence around it. The fence may be cut off anywhere.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix(FENCE) else {
        // An opening fence that is cut off itself.
        return if FENCE.starts_with(text) { "" } else { text };
    };
    let closed = inner.strip_suffix(FENCE);
    // The first line names the language.
    let inner = match closed.unwrap_or(inner).split_once('\n') {
        Some((language, rest)) if is_language(language) => rest,
        None if closed.is_none() && is_language(inner) => "",
        Some(_) | None => {
            let inner = closed.unwrap_or(inner);
            inner.strip_prefix("json").unwrap_or(inner)
        }
    };
    // No JSON value ends with this character.
    inner.trim().trim_end_matches('`').trim_end()
}

const FENCE: &str = "```";

fn is_language(line: &str) -> bool {
    line.trim().chars().all(|char| char.is_ascii_alphanumeric() || "+-_.".contains(char))
}

/// Returns the schema of a type, without the fields that providers reject.
#[doc(hidden)]
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("title");
    }
    closed(&mut schema);
    schema
}

/// Forbids other fields in every object, as providers require for strict formats.
fn closed(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "object")
                && fields.contains_key("properties")
            {
                fields.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            fields.values_mut().for_each(closed);
        }
        Value::Array(items) => items.iter_mut().for_each(closed),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
