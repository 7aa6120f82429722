//! Tools: functions that a model may call.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use endstop::chat;
use endstop::tool_call::{Call, ToolCall, Whole, check_schema};
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// Future of a tool that runs.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// Result of a tool: text for the model.
pub type ToolOutput = Result<String, ToolError>;

/// Failure of a tool. The model gets its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);

/// A function that a model may call.
///
/// The attribute [`tool`](crate::tool) makes one from an async function. Implement the trait for tools
/// that are known only at run time. Only a [`Call<Whole>`](Call) reaches a tool.
///
/// ```
/// use endstop::chat;
/// use endstop::tool_call::{Call, Whole};
/// use endstop_client::{Tool, ToolFuture};
/// use serde_json::json;
///
/// struct Echo;
///
/// impl Tool for Echo {
///     fn definition(&self) -> chat::Tool {
///         chat::Tool {
///             name: "echo".to_owned(),
///             description: "Returns its arguments.".to_owned(),
///             schema: json!({ "type": "object" }),
///         }
///     }
///
///     fn run<'a>(&'a self, call: &'a Call<Whole>) -> ToolFuture<'a> {
///         Box::pin(async move { Ok(call.arguments().to_owned()) })
///     }
/// }
/// ```
pub trait Tool: Send + Sync {
    /// Returns its name, its description and the schema of its arguments.
    fn definition(&self) -> chat::Tool;

    /// Reports whether it may run again if it is not known whether it has run.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// Runs a call. The arguments match the schema.
    fn run<'a>(&'a self, call: &'a Call<Whole>) -> ToolFuture<'a>;
}

/// A tool that can be shared.
pub type SharedTool = Arc<dyn Tool>;

/// Makes a list of tools.
///
/// ```
/// use endstop_client::{tool, tools};
///
/// /// Adds two numbers.
/// #[tool]
/// async fn add(a: i64, b: i64) -> Result<i64, std::convert::Infallible> {
///     Ok(a + b)
/// }
///
/// assert_eq!(tools![add].len(), 1);
/// ```
#[macro_export]
macro_rules! tools {
    ($($tool:expr),* $(,)?) => {
        ::std::vec![$(::std::sync::Arc::new($tool) as $crate::SharedTool),*]
    };
}

/// Returns the text for the model: a string as it is, anything else in JSON.
#[doc(hidden)]
pub fn tool_output<T: Serialize, E: Display>(result: Result<T, E>) -> ToolOutput {
    match result {
        Err(error) => Err(ToolError(error.to_string())),
        Ok(value) => match serde_json::to_value(value) {
            Ok(Value::String(text)) => Ok(text),
            Ok(value) => Ok(value.to_string()),
            Err(error) => Err(ToolError(format!("the result cannot be written as JSON: {error}"))),
        },
    }
}

/// Reads the arguments of a call.
#[doc(hidden)]
pub fn tool_arguments<T: serde::de::DeserializeOwned>(call: &Call<Whole>) -> Result<T, ToolError> {
    serde_json::from_str(call.arguments())
        .map_err(|error| ToolError(format!("invalid arguments of `{}`: {error}", call.name())))
}

/// The tools of an agent, by name.
#[derive(Clone, Default)]
pub(crate) struct ToolSet(BTreeMap<String, (SharedTool, chat::Tool)>);

impl ToolSet {
    /// Checks the names and the schemas of the tools.
    pub(crate) fn new(tools: Vec<SharedTool>) -> Result<Self, Error> {
        let mut set = BTreeMap::new();
        for tool in tools {
            let definition = tool.definition();
            let name = definition.name.clone();
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) {
                return Err(Error::ToolName { tool: name });
            }
            endstop::tool_call::check_tool_schema(&definition.schema)
                .map_err(|message| Error::ToolSchema { tool: name.clone(), message })?;
            if set.insert(name.clone(), (tool, definition)).is_some() {
                return Err(Error::ToolTwice { tool: name });
            }
        }
        Ok(Self(set))
    }

    pub(crate) fn definitions(&self) -> Vec<chat::Tool> {
        self.0.values().map(|(_, definition)| definition.clone()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&SharedTool> {
        self.0.get(name).map(|(tool, _)| tool)
    }

    pub(crate) fn names(&self) -> String {
        self.0.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }

    /// Reports whether the arguments of a call match the schema of its tool. Unknown tools are
    /// reported to the model when they would run.
    pub(crate) fn fits(&self, call: &ToolCall) -> bool {
        self.0.get(&call.name).is_none_or(|(_, tool)| check_schema(call, &tool.schema).is_ok())
    }
}

impl std::fmt::Debug for ToolSet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}
