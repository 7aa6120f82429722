//! Tools of MCP servers.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use endstop::chat;
use endstop::tool_call::{Call, Whole};
use rmcp::model::{CallToolRequestParams, Tool as McpTool};
use rmcp::service::{Peer, RoleClient};
use serde_json::Value;

use crate::tool::{SharedTool, Tool, ToolError, ToolFuture};

/// Returns the tools of an MCP server.
///
/// # Errors
/// Fails if the server does not list its tools.
pub async fn mcp_tools(
    server: &Peer<RoleClient>,
    timeout: Duration,
) -> Result<Vec<SharedTool>, ToolError> {
    let late = || ToolError(format!("the MCP server did not list its tools within {timeout:?}"));
    let listed =
        tokio::time::timeout(timeout, server.list_all_tools()).await.map_err(|_| late())?;
    let listed = listed.map_err(|error| ToolError(error.to_string()))?;
    let shared =
        |tool| Arc::new(RemoteTool { server: server.clone(), tool, timeout }) as SharedTool;
    Ok(listed.into_iter().map(shared).collect())
}

/// A tool of an MCP server.
struct RemoteTool {
    server: Peer<RoleClient>,
    tool: McpTool,
    timeout: Duration,
}

impl Tool for RemoteTool {
    fn definition(&self) -> chat::Tool {
        chat::Tool {
            name: self.tool.name.to_string(),
            description: self.tool.description.clone().unwrap_or(Cow::Borrowed("")).into_owned(),
            schema: Value::Object((*self.tool.input_schema).clone()),
        }
    }

    fn is_idempotent(&self) -> bool {
        let hints = self.tool.annotations.as_ref();
        hints.is_some_and(|hints| {
            hints.idempotent_hint == Some(true) || hints.read_only_hint == Some(true)
        })
    }

    fn run<'a>(&'a self, call: &'a Call<Whole>) -> ToolFuture<'a> {
        Box::pin(async move {
            let arguments: Value = serde_json::from_str(call.arguments())
                .map_err(|error| ToolError(error.to_string()))?;
            let mut request = CallToolRequestParams::new(self.tool.name.clone());
            request.arguments = arguments.as_object().cloned();
            let late =
                || ToolError(format!("the MCP tool did not answer within {:?}", self.timeout));
            let result = tokio::time::timeout(self.timeout, self.server.call_tool(request))
                .await
                .map_err(|_| late())?
                .map_err(|error| ToolError(error.to_string()))?;
            let texts = result.content.iter().filter_map(|part| part.as_text());
            let text = texts.map(|part| part.text.clone()).collect::<Vec<_>>().join("\n");
            if result.is_error == Some(true) { Err(ToolError(text)) } else { Ok(text) }
        })
    }
}
