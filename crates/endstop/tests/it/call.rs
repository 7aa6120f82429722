//! Tool calls as the tests compare them.

use endstop::tool_call::ToolCall;
use serde::Deserialize;
use serde_json::Value;

/// Name and arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl From<&ToolCall> for Call {
    fn from(call: &ToolCall) -> Self {
        Self { name: call.name.clone(), arguments: call.arguments.clone() }
    }
}

/// Way to compare arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// As text: the wire sends text, which is kept unchanged.
    Text,
    /// As JSON: the wire sends a value, whose white space and key order do not matter.
    Values,
}

/// Wires that send arguments as JSON values, streamed and plain.
const VALUES: &[&str] = &["gemini-generate", "ollama-chat", "cohere-v1", "cloudflare-run"];

/// Wires that stream arguments as text and send them as JSON values in a plain body.
const VALUES_IF_PLAIN: &[&str] =
    &["anthropic-messages", "bedrock-converse", "bedrock-nova", "gemini-interactions"];

const ITEMS_WITH_OBJECTS: &[&str] =
    &["shell_call", "apply_patch_call", "computer_call", "tool_search_call"];

impl Compare {
    /// Returns the way to compare the arguments in these bytes of a wire.
    pub(crate) fn of(dialect: &str, bytes: &[u8]) -> Self {
        let plain = VALUES_IF_PLAIN.contains(&dialect) && is_plain(bytes);
        // Responses items other than functions have an object instead of arguments.
        let has = |kind: &&str| memchr::memmem::find(bytes, kind.as_bytes()).is_some();
        let objects = dialect == "openai-responses" && ITEMS_WITH_OBJECTS.iter().any(has);
        if plain || objects || VALUES.contains(&dialect) { Self::Values } else { Self::Text }
    }

    pub(crate) fn same(self, got: &str, want: &str) -> bool {
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        got == want || self == Self::Values && value(got).is_some() && value(got) == value(want)
    }
}

/// Reports whether the bytes are one JSON body.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
        && bytes.trim_ascii_start().starts_with(b"{")
}

/// Returns the difference between calls, if any.
pub(crate) fn differ(got: &[Call], want: &[Call], compare: Compare) -> Option<String> {
    let same = |(got, want): (&Call, &Call)| {
        got.name == want.name && compare.same(&got.arguments, &want.arguments)
    };
    let all = got.len() == want.len() && got.iter().zip(want).all(same);
    (!all).then(|| format!("calls are {got:?}, not {want:?}"))
}
