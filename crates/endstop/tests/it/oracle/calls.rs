//! A second, simple implementation that reads tool calls. It shares no code with the product.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::frames;
use crate::call::{Call, is_plain};

/// Returns the calls of a response, or `None` if this wire has no second implementation.
pub(crate) fn read(dialect: &str, bytes: &[u8]) -> Option<Vec<Call>> {
    let read: fn(&mut Calls, &str, &Value, bool) = match dialect {
        "openai-chat" => chat,
        "openai-responses" => responses,
        "anthropic-messages" => messages,
        "gemini-generate" => gemini,
        "bedrock-converse" | "bedrock-nova" => converse,
        "cohere-v2" => cohere,
        "ollama-chat" => ollama,
        _ => return None,
    };
    let plain = is_plain(bytes);
    let mut calls = Calls::default();
    if plain {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        read(&mut calls, "", &serde_json::from_slice(bytes).ok()?, true);
    } else {
        for (name, value, ..) in frames(bytes) {
            read(&mut calls, &name, &value, false);
        }
    }
    let own = calls.list.into_iter().filter(|found| !found.served);
    Some(own.map(|found| found.call).collect())
}

#[derive(Default)]
struct Calls {
    list: Vec<Found>,
    /// Position in the list, by choice and number.
    at: BTreeMap<(u64, u64), usize>,
    /// Arguments so far of calls whose arguments come by paths.
    open: BTreeMap<u64, (u64, Option<Value>)>,
    /// The end of the response has come.
    ended: bool,
}

struct Found {
    id: String,
    call: Call,
    /// Id of the code that makes the call; empty if the model makes it.
    code: String,
    /// The provider ran the call, or the code that made it has its result.
    served: bool,
}

impl Calls {
    /// Starts or continues a call. Another id at the same position starts another call.
    fn start(&mut self, choice: u64, number: u64, id: &str, name: &str) {
        if let Some(at) = self.at.get(&(choice, number)) {
            let found = &mut self.list[*at];
            if id.is_empty() || found.id.is_empty() || found.id == id {
                if found.id.is_empty() {
                    id.clone_into(&mut found.id);
                }
                if found.call.name.is_empty() {
                    name.clone_into(&mut found.call.name);
                }
                return;
            }
        }
        self.at.insert((choice, number), self.list.len());
        let call = Call { name: name.to_owned(), arguments: String::new() };
        self.list.push(Found { id: id.to_owned(), call, code: String::new(), served: false });
    }

    fn found(&mut self, choice: u64, number: u64) -> Option<&mut Found> {
        let at = *self.at.get(&(choice, number))?;
        self.list.get_mut(at)
    }

    /// Marks the calls that are served.
    fn serve(&mut self, which: impl Fn(&Found) -> bool) {
        let served = self.list.iter_mut().filter(|found| !self.ended && which(found));
        served.for_each(|found| found.served = true);
    }

    fn get(&mut self, choice: u64, number: u64) -> Option<&mut Call> {
        self.found(choice, number).map(|found| &mut found.call)
    }

    fn push(&mut self, choice: u64, number: u64, piece: &str) {
        if piece.is_empty() {
            return;
        }
        if self.get(choice, number).is_none() {
            self.start(choice, number, "", "");
        }
        self.get(choice, number).unwrap().arguments.push_str(piece);
    }

    /// Sets the arguments that came whole, if the pieces are their beginning.
    fn complete(&mut self, choice: u64, number: u64, whole: &str) {
        let call = self.get(choice, number);
        if let Some(call) = call.filter(|call| whole.starts_with(&call.arguments)) {
            whole.clone_into(&mut call.arguments);
        }
    }

    /// Sets the arguments that came whole, unless some came in pieces.
    fn fill(&mut self, choice: u64, number: u64, arguments: &str) {
        if let Some(call) = self.get(choice, number).filter(|call| call.arguments.is_empty()) {
            arguments.clone_into(&mut call.arguments);
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns arguments as text. A value is serialised.
fn arguments(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn chat(calls: &mut Calls, _: &str, value: &Value, plain: bool) {
    for choice in list(&value["choices"]) {
        let index = choice["index"].as_u64().unwrap_or(0);
        let (first, second) = if plain { ("message", "delta") } else { ("delta", "message") };
        let message = if choice[first].is_object() { &choice[first] } else { &choice[second] };
        for (position, call) in (0..).zip(list(&message["tool_calls"])) {
            let number = call["index"].as_u64().unwrap_or(position);
            let custom = &call["custom"];
            let (name, piece) = if text(&custom["name"]).is_empty() {
                (text(&call["function"]["name"]), arguments(&call["function"]["arguments"]))
            } else {
                (text(&custom["name"]), arguments(&custom["input"]))
            };
            if !name.is_empty() || !text(&call["id"]).is_empty() {
                calls.start(index, number, text(&call["id"]), name);
            }
            calls.push(index, number, &piece);
        }
        let old = &message["function_call"];
        if !text(&old["name"]).is_empty() {
            calls.start(index, 0, "", text(&old["name"]));
        }
        calls.push(index, 0, &arguments(&old["arguments"]));
    }
}

fn responses(calls: &mut Calls, _: &str, value: &Value, plain: bool) {
    let number = value["output_index"].as_u64().unwrap_or(0);
    let piece = ["response.function_call_arguments.delta", "response.custom_tool_call_input.delta"];
    match text(&value["type"]) {
        _ if plain => items(calls, &value["output"]),
        "response.output_item.added" => item(calls, number, &value["item"], false),
        "response.output_item.done" => item(calls, number, &value["item"], true),
        "response.function_call_arguments.done" => {
            calls.complete(0, number, text(&value["arguments"]));
        }
        "response.custom_tool_call_input.done" => {
            calls.complete(0, number, text(&value["input"]));
        }
        name if piece.contains(&name) => calls.push(0, number, text(&value["delta"])),
        _ => items(calls, &value["response"]["output"]),
    }
}

fn items(calls: &mut Calls, output: &Value) {
    for (number, one) in (0..).zip(list(output)) {
        item(calls, number, one, true);
    }
}

/// Items that the caller runs, and the keys of their arguments.
const ITEMS: &[(&str, &str)] = &[
    ("function_call", "arguments"),
    ("custom_tool_call", "input"),
    ("local_shell_call", "action"),
    ("shell_call", "action"),
    ("apply_patch_call", "operation"),
    ("computer_call", "action"),
    ("tool_search_call", "arguments"),
];

fn item(calls: &mut Calls, number: u64, item: &Value, whole: bool) {
    // An item with an output was run by the provider.
    let by_provider = item["execution"] == "server";
    if let Some(ran) = text(&item["type"]).strip_suffix("_call_output").filter(|_| whole) {
        calls.list.retain(|found| found.id != text(&item["call_id"]) || ran.is_empty());
        return;
    }
    let known = ITEMS.iter().find(|(kind, _)| *kind == text(&item["type"]));
    let Some((kind, key)) = known.filter(|_| !by_provider) else { return };
    let id = if item["call_id"].is_string() { &item["call_id"] } else { &item["id"] };
    let kind = kind.strip_suffix("_call").unwrap();
    let name = if text(&item["name"]).is_empty() { kind } else { text(&item["name"]) };
    // Some items have another id when they are done.
    if calls.get(0, number).is_none() {
        calls.start(0, number, text(id), name);
    }
    let several = if item["actions"].is_null() { &item[*key] } else { &item["actions"] };
    if whole {
        calls.fill(0, number, &arguments(several));
    }
}

fn messages(calls: &mut Calls, _: &str, value: &Value, plain: bool) {
    let number = value["index"].as_u64().unwrap_or(0);
    match text(&value["type"]) {
        _ if plain => blocks(calls, &value["content"]),
        "message_start" => blocks(calls, &value["message"]["content"]),
        "content_block_start" => block(calls, number, &value["content_block"]),
        "content_block_delta" if calls.get(0, number).is_some() => {
            calls.push(0, number, text(&value["delta"]["partial_json"]));
        }
        "content_block_stop" => calls.fill(0, number, "{}"),
        "message_stop" => calls.ended = true,
        _ => {}
    }
}

fn blocks(calls: &mut Calls, content: &Value) {
    for (number, one) in (0..).zip(list(content)) {
        block(calls, number, one);
        calls.fill(0, number, "{}");
    }
}

fn block(calls: &mut Calls, number: u64, block: &Value) {
    if text(&block["type"]) == "tool_use" {
        calls.start(0, number, text(&block["id"]), text(&block["name"]));
        if block["input"] != json!({}) {
            calls.push(0, number, &arguments(&block["input"]));
        }
        let code = text(&block["caller"]["tool_id"]);
        calls.found(0, number).unwrap().code = code.to_owned();
    }
    // The result of code that called tools.
    let ended = text(&block["tool_use_id"]);
    calls.serve(|found| !ended.is_empty() && found.code == ended);
}

fn converse(calls: &mut Calls, name: &str, value: &Value, plain: bool) {
    if plain {
        for (number, block) in (0..).zip(list(&value["output"]["message"]["content"])) {
            tool_use(calls, number, block);
            calls.fill(0, number, "{}");
        }
        return;
    }
    // Nova puts each event into an object with its name.
    let names = ["contentBlockStart", "contentBlockDelta", "contentBlockStop"];
    let wrapped = names.iter().find(|name| value[**name].is_object());
    let (name, value) = wrapped.map_or((name, value), |name| (name, &value[*name]));
    let number = value["contentBlockIndex"].as_u64().unwrap_or(0);
    match name {
        "contentBlockStart" => tool_use(calls, number, &value["start"]),
        "contentBlockDelta" => calls.push(0, number, text(&value["delta"]["toolUse"]["input"])),
        "contentBlockStop" => calls.fill(0, number, "{}"),
        _ => {}
    }
}

fn tool_use(calls: &mut Calls, number: u64, block: &Value) {
    let call = &block["toolUse"];
    if call.is_object() {
        calls.start(0, number, text(&call["toolUseId"]), text(&call["name"]));
        calls.push(0, number, &arguments(&call["input"]));
        calls.found(0, number).unwrap().served = call["type"] == "server_tool_use";
    }
    // The result of a call that the provider ran.
    let ran = text(&block["toolResult"]["toolUseId"]);
    calls.serve(|found| !ran.is_empty() && found.id == ran);
}

fn cohere(calls: &mut Calls, _: &str, value: &Value, plain: bool) {
    if plain {
        for (number, call) in (0..).zip(list(&value["message"]["tool_calls"])) {
            calls.start(0, number, text(&call["id"]), text(&call["function"]["name"]));
            calls.push(0, number, &arguments(&call["function"]["arguments"]));
        }
        return;
    }
    let number = value["index"].as_u64().unwrap_or(0);
    let call = &value["delta"]["message"]["tool_calls"];
    if value["type"] == "tool-call-start" {
        calls.start(0, number, text(&call["id"]), text(&call["function"]["name"]));
    }
    if value["type"] == "tool-call-start" || value["type"] == "tool-call-delta" {
        calls.push(0, number, &arguments(&call["function"]["arguments"]));
    }
}

fn ollama(calls: &mut Calls, _: &str, value: &Value, _: bool) {
    for call in list(&value["message"]["tool_calls"]) {
        let number = calls.list.len() as u64;
        calls.start(0, number, text(&call["id"]), text(&call["function"]["name"]));
        calls.push(0, number, &arguments(&call["function"]["arguments"]));
    }
}

fn gemini(calls: &mut Calls, _: &str, value: &Value, _: bool) {
    for candidate in list(&value["candidates"]) {
        let choice = candidate["index"].as_u64().unwrap_or(0);
        for part in list(&candidate["content"]["parts"]) {
            if part["functionCall"].is_object() {
                function_call(calls, choice, &part["functionCall"]);
            }
        }
    }
}

/// Adds a call, whole or a piece. A piece has the path of its value.
fn function_call(calls: &mut Calls, choice: u64, call: &Value) {
    let (number, mut tree) = calls.open.remove(&choice).unwrap_or_else(|| {
        let number = calls.list.len() as u64;
        calls.start(choice, number, text(&call["id"]), text(&call["name"]));
        (number, None)
    });
    for piece in list(&call["partialArgs"]) {
        let tree = tree.get_or_insert_with(|| json!({}));
        set(tree, &path(text(&piece["jsonPath"])), piece);
    }
    if call["willContinue"] == true {
        calls.open.insert(choice, (number, tree));
        return;
    }
    let whole = tree.as_ref().map_or_else(|| arguments(&call["args"]), Value::to_string);
    calls.fill(choice, number, &whole);
}

/// One step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Parses a path such as `$.a.b[0]['c d']`.
fn path(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['").or_else(|| rest.strip_prefix("[\"")) {
            let end = quoted.find("']").or_else(|| quoted.find("\"]")).unwrap_or(quoted.len());
            steps.push(Step::Key(quoted.split_at(end).0.to_owned()));
            rest = quoted.get(end + 2..).unwrap_or_default();
        } else if let Some(index) = rest.strip_prefix('[') {
            let end = index.find(']').unwrap_or(index.len());
            steps.push(Step::Index(index.split_at(end).0.parse().unwrap_or_default()));
            rest = index.get(end + 1..).unwrap_or_default();
        } else {
            rest = rest.trim_start_matches('.');
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            steps.push(Step::Key(key.to_owned()));
            rest = after;
        }
    }
    steps
}

/// Sets the value of a piece at its path. Text is appended to existing text.
fn set(mut at: &mut Value, path: &[Step], piece: &Value) {
    for step in path {
        at = match step {
            Step::Key(key) => {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut().unwrap().entry(key.clone()).or_insert(Value::Null)
            }
            Step::Index(index) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let list = at.as_array_mut().unwrap();
                while list.len() <= *index {
                    list.push(Value::Null);
                }
                &mut list[*index]
            }
        };
    }
    if let Some(more) = piece["stringValue"].as_str() {
        *at = Value::String(at.as_str().unwrap_or_default().to_owned() + more);
    } else if !piece["numberValue"].is_null() {
        *at = piece["numberValue"].clone();
    } else if !piece["boolValue"].is_null() {
        *at = piece["boolValue"].clone();
    } else {
        *at = Value::Null;
    }
}

#[test]
fn paths_are_read() {
    let key = |key: &str| Step::Key(key.to_owned());
    assert_eq!(path("$.a.b[0]"), [key("a"), key("b"), Step::Index(0)]);
    assert_eq!(path("$['a b'][12].c"), [key("a b"), Step::Index(12), key("c")]);
    assert_eq!(path("$"), []);
}
