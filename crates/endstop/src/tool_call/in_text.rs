//! Tool calls that local models write in their text instead of in the fields of the wire.

use super::{CallState, Piece, ToolCall, ended_well};
use crate::ending::{Ending, Reason};
use crate::json::{JsonState, Scanner};

/// Returns the calls that local models write in their text: `<tool_call>…</tool_call>`,
/// `<function=name>…</function>`, and fenced JSON with a name and arguments.
///
/// This makes it possible to refuse them. An unfinished call is never complete.
#[must_use]
pub fn in_text(text: &str, ending: &Ending) -> Vec<ToolCall> {
    let well = ended_well(ending, Reason::Complete);
    let mut calls = Vec::new();
    for (open, close) in
        [("<tool_call>", "</tool_call>"), ("```json", "```"), ("```tool_call", "```")]
    {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once(open) {
            let (body, closed, next) = match after.split_once(close) {
                Some((body, next)) => (body, true, next),
                None => (after, false, ""),
            };
            rest = next;
            calls.extend(text_call(body, closed, well, open == "<tool_call>"));
        }
    }
    let mut rest = text;
    while let Some((name, after)) =
        rest.split_once("<function=").and_then(|(_, after)| after.split_once('>'))
    {
        let (arguments, closed, next) = match after.split_once("</function>") {
            Some((arguments, next)) => (arguments, true, next),
            None => (after, false, ""),
        };
        rest = next;
        calls.push(written(name, arguments.trim(), closed, well));
    }
    for (number, call) in (0..).zip(&mut calls) {
        call.number = number;
    }
    calls
}

/// Returns a call that is written as an object with a name and arguments; `None` for other JSON.
fn text_call(body: &str, closed: bool, well: bool, tagged: bool) -> Option<ToolCall> {
    #[derive(serde::Deserialize)]
    struct Written<'a> {
        #[serde(borrow)]
        name: std::borrow::Cow<'a, str>,
        #[serde(borrow, alias = "parameters")]
        arguments: &'a serde_json::value::RawValue,
    }
    match serde_json::from_str::<Written<'_>>(body.trim()) {
        Ok(call) => Some(written(&call.name, call.arguments.get(), closed, well)),
        // A truncated call cannot be parsed. Its tag or its beginning identifies it.
        Err(_) if tagged => {
            Some(ToolCall { state: unread(body, closed), ..written("", body.trim(), false, false) })
        }
        Err(_) if !closed && body.trim_start().starts_with("{\"name\"") => {
            Some(ToolCall { state: CallState::Open, ..written("", body.trim(), false, false) })
        }
        Err(_) => None,
    }
}

fn unread(body: &str, closed: bool) -> CallState {
    let mut json = Scanner::default();
    json.push(body.trim().as_bytes());
    match json.state() {
        JsonState::Open | JsonState::Empty if !closed => CallState::Open,
        JsonState::Open | JsonState::Empty | JsonState::Whole | JsonState::Broken => {
            CallState::Malformed
        }
    }
}

pub(super) fn written(name: &str, arguments: &str, closed: bool, well: bool) -> ToolCall {
    let mut json = Scanner::default();
    json.push(arguments.as_bytes());
    let call = ToolCall {
        choice: 0,
        number: 0,
        id: String::new(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        state: CallState::Open,
        in_text: true,
    };
    let piece = Piece {
        call,
        json,
        closed,
        begun: true,
        takes_text: false,
        by_provider: false,
        conflict: false,
    };
    ToolCall { state: piece.state(well), ..piece.call }
}
