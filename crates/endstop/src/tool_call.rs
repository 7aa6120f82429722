//! Tool calls: put together from events, each with its state; and the one rule that lets them run.
//!
//! Parsable JSON is not completeness. A call may run only if its block is closed, its JSON is whole,
//! and the response ended as [`Reason::ToolCall`] with at least medium confidence. The decision is
//! per response: the calls of one turn are one batch, and if one of them is unfinished, none runs.
//! Bad JSON is never replaced by an empty object.

use serde::{Deserialize, Serialize};

use crate::ending::{Confidence, Ending, Reason, Shown};
use crate::event::Event;
use crate::json::{JsonState, Scanner};
use crate::provider::Wire;
use crate::reader::{Head, Reader};
use crate::request::RequestInfo;

/// The most arguments that are kept of one call, in bytes; a larger call cannot run.
const MAX_ARGUMENTS: usize = 16 << 20;
/// The most calls that are put together.
const MAX_CALLS: usize = 1024;

/// One tool call, as far as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolCall {
    /// Which choice it belongs to.
    pub choice: u32,
    /// Its number, as the wire counts.
    pub number: u32,
    /// The provider's id; empty where the wire gives none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments exactly as they came: text of JSON, or the text that the tool takes.
    pub arguments: String,
    /// How far it came.
    pub state: CallState,
    /// It was written in the answer's text rather than sent as a call.
    pub in_text: bool,
}

impl ToolCall {
    /// The arguments as a JSON object: `{}` for a call without parameters, whose arguments came
    /// absent, blank or null. Text, if the tool takes that.
    #[must_use]
    pub fn object(&self) -> &str {
        if is_bare(&self.arguments) { "{}" } else { &self.arguments }
    }
}

/// Whether these are the arguments of a call without parameters.
fn is_bare(arguments: &str) -> bool {
    matches!(arguments.trim(), "" | "null")
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallState {
    /// Begun, and its arguments are unfinished.
    Open,
    /// Its arguments are whole JSON, but its block was never closed: they may be a prefix.
    Parsable,
    /// Its block is closed and its arguments are whole; whether the response ended well is not said.
    Closed,
    /// Closed and whole, in a response that ended well.
    Complete,
    /// Its arguments are not, and cannot become, a JSON object.
    Malformed,
    /// Pieces of arguments came for a call that was never begun, or that has no name.
    Orphaned,
}

/// Puts calls together from the events of one response.
///
/// ```
/// use endstop::tool_call::{Allow, Assembly, allow};
/// use endstop::{RequestInfo, TransportEnd, Head, Reader, provider};
///
/// let body = br#"{"model":"m","message":{"tool_calls":[{"function":{"name":"now","arguments":{}}}]},"done":true,"done_reason":"stop"}"#;
/// let mut reader = Reader::new(&provider::OLLAMA, Head::default(), RequestInfo::default());
/// let mut assembly = Assembly::default();
/// reader.read(body, |event| assembly.observe(&event));
/// let ending = reader.finish(TransportEnd::Eof, |event| assembly.observe(&event));
/// let calls = assembly.finish(&ending);
/// assert_eq!(allow(&ending, &calls), Allow::Run);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    calls: Vec<Piece>,
    excess: bool,
}

#[derive(Clone, Debug)]
struct Piece {
    call: ToolCall,
    json: Scanner,
    closed: bool,
    begun: bool,
    takes_text: bool,
    /// The provider runs it: none for the caller.
    by_provider: bool,
    /// Two names were said of it.
    conflict: bool,
}

impl Assembly {
    /// Takes an event in; all but those of tool calls are passed over.
    pub fn observe(&mut self, event: &Event<'_>) {
        match *event {
            Event::ToolCallStart { choice, call, id, name } => self.start(choice, call, id, name),
            Event::ToolCallDelta { choice, call, arguments } => self.push(choice, call, arguments),
            Event::ToolCallTakesText { choice, call } => {
                if let Some(piece) = self.find(choice, call) {
                    piece.takes_text = true;
                }
            }
            Event::ToolCallByProvider { choice, call } => {
                if let Some(piece) = self.find(choice, call) {
                    piece.by_provider = true;
                }
            }
            Event::ToolCallEnd { choice, call } => {
                let of =
                    |piece: &&mut Piece| piece.call.choice == choice && piece.call.number == call;
                // Several calls may have one number: the newest that is open is meant.
                let mut calls = self.calls.iter_mut().rev().filter(of);
                calls.find(|piece| !piece.closed).into_iter().for_each(|piece| piece.closed = true);
            }
            Event::Begin { .. }
            | Event::Text { .. }
            | Event::Reasoning { .. }
            | Event::Refusal { .. }
            | Event::OtherContent { .. }
            | Event::Usage(_)
            | Event::Word { .. }
            | Event::Pending { .. }
            | Event::ResumeToken { .. }
            | Event::Proof
            | Event::Fault(_)
            | Event::Safety(_)
            | Event::Detail { .. } => {}
        }
    }

    /// The calls so far, before the response has ended: none of them is complete.
    #[must_use]
    pub fn so_far(&self) -> Vec<ToolCall> {
        self.calls
            .iter()
            .filter(|piece| !piece.by_provider)
            .map(|piece| ToolCall { state: piece.state(false), ..piece.call.clone() })
            .collect()
    }

    /// The calls of a response that ended like this.
    #[must_use]
    pub fn finish(self, ending: &Ending) -> Vec<ToolCall> {
        let well = ended_well(ending, Reason::ToolCall) && !self.excess;
        self.calls
            .into_iter()
            .filter(|piece| !piece.by_provider)
            .map(|piece| ToolCall { state: piece.state(well), ..piece.call })
            .collect()
    }

    fn find(&mut self, choice: u32, number: u32) -> Option<&mut Piece> {
        let is = |piece: &&mut Piece| piece.call.choice == choice && piece.call.number == number;
        self.calls.iter_mut().rev().find(is)
    }

    fn start(&mut self, choice: u32, number: u32, id: &str, name: &str) {
        let known = self.find(choice, number);
        if known.is_some_and(|piece| piece.takes_head(id, name)) {
            return;
        }
        self.add(choice, number, id, name, true);
    }

    fn push(&mut self, choice: u32, number: u32, arguments: &str) {
        if self.find(choice, number).is_none() {
            self.add(choice, number, "", "", false);
        }
        let Some(piece) = self.find(choice, number) else { return };
        if piece.call.arguments.len() + arguments.len() > MAX_ARGUMENTS {
            self.excess = true;
            return;
        }
        piece.json.push(arguments.as_bytes());
        piece.call.arguments.push_str(arguments);
    }

    fn add(&mut self, choice: u32, number: u32, id: &str, name: &str, begun: bool) {
        if self.calls.len() >= MAX_CALLS {
            self.excess = true;
            return;
        }
        let call = ToolCall {
            choice,
            number,
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: String::new(),
            state: CallState::Open,
            in_text: false,
        };
        self.calls.push(Piece {
            call,
            json: Scanner::default(),
            closed: false,
            begun,
            takes_text: false,
            by_provider: false,
            conflict: false,
        });
    }
}

impl Piece {
    /// Takes in the head of a call of the same number: hosts repeat it, or send the name after the id.
    /// False if it is that of another call, as hosts number several alike.
    fn takes_head(&mut self, id: &str, name: &str) -> bool {
        let ToolCall { id: own, name: called, .. } = &mut self.call;
        if !id.is_empty() && !own.is_empty() && own != id {
            return false;
        }
        let renamed = !name.is_empty() && !called.is_empty() && called != name;
        let same = !id.is_empty() && own == id;
        if renamed && !same && self.json.state() == JsonState::Whole {
            return false;
        }
        self.conflict |= renamed;
        self.begun = true;
        if own.is_empty() {
            id.clone_into(own);
        }
        if called.is_empty() {
            name.clone_into(called);
        }
        true
    }

    fn state(&self, ended_well: bool) -> CallState {
        let is_object = self.call.arguments.trim_start().starts_with('{');
        match self.json.state() {
            _ if !self.begun || self.call.name.is_empty() => CallState::Orphaned,
            _ if self.conflict => CallState::Malformed,
            _ if self.takes_text && !self.closed => CallState::Open,
            _ if self.takes_text && ended_well => CallState::Complete,
            _ if self.takes_text => CallState::Closed,
            // Whether such a call is whole, the ending says.
            _ if is_bare(&self.call.arguments) && !self.closed => CallState::Open,
            _ if is_bare(&self.call.arguments) && ended_well => CallState::Complete,
            _ if is_bare(&self.call.arguments) => CallState::Closed,
            JsonState::Open if is_object => CallState::Open,
            JsonState::Whole if !is_object => CallState::Malformed,
            JsonState::Broken | JsonState::Empty | JsonState::Open => CallState::Malformed,
            JsonState::Whole if !self.closed => CallState::Parsable,
            JsonState::Whole if ended_well => CallState::Complete,
            JsonState::Whole => CallState::Closed,
        }
    }
}

/// Whether the calls of a response may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allow {
    /// All of them.
    Run,
    /// None of them, for this reason.
    Refuse(Refusal),
}

/// Why the calls of a response may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// There are none.
    NoCalls,
    /// The response did not end as one whose calls wait to be run.
    Ending(Reason),
    /// It did, but that is not sure enough.
    Unsure,
    /// One of the calls is not complete.
    Call(CallState),
    /// There were more calls than are followed.
    TooMany,
    /// The arguments of a call do not fit the tool's schema; whoever knows the schema says so.
    Schema,
}

impl Refusal {
    /// The refusal in words for people.
    #[must_use]
    pub fn sentence(self) -> String {
        match self {
            Self::NoCalls => "the response holds no tool call".to_owned(),
            Self::Ending(reason) => {
                format!(
                    "the response ended as {}, so that none of its tool calls may run",
                    reason.name()
                )
            }
            Self::Unsure => {
                "how the response ended is too uncertain to run its tool calls".to_owned()
            }
            Self::Call(state) => {
                format!("a tool call of this turn is {state:?}, so that none may run")
                    .to_lowercase()
            }
            Self::TooMany => "the response holds more tool calls than are followed".to_owned(),
            Self::Schema => "the arguments of a tool call do not fit the tool's schema".to_owned(),
        }
    }
}

/// The one rule: whether the calls of a response that ended like this may run.
#[must_use]
pub fn allow(ending: &Ending, calls: &[ToolCall]) -> Allow {
    let Some(first) = calls.first() else { return Allow::Refuse(Refusal::NoCalls) };
    // Calls that a model wrote as text end as any text does.
    let wanted = if first.in_text { Reason::Complete } else { Reason::ToolCall };
    if ending.reason != wanted || !ending.over {
        return Allow::Refuse(Refusal::Ending(ending.reason));
    }
    if !ended_well(ending, wanted) {
        return Allow::Refuse(Refusal::Unsure);
    }
    if ending.shown.excess > 0 {
        return Allow::Refuse(Refusal::TooMany);
    }
    match calls.iter().find(|call| call.state != CallState::Complete) {
        Some(call) => Allow::Refuse(Refusal::Call(call.state)),
        None => Allow::Run,
    }
}

/// The calls that a client which does not wait for the end could run after these bytes: those whose
/// arguments are whole or whose block is closed.
///
/// This is what a gate in front of such clients is held to: of what it lets pass before the proof of
/// the end, nothing may be in this list.
#[must_use]
pub fn exposed(wire: impl Into<Wire>, head: Head<'_>, bytes: &[u8]) -> Vec<ToolCall> {
    let mut reader = Reader::new(wire, head, RequestInfo::default());
    let mut assembly = Assembly::default();
    reader.read(bytes, |event| assembly.observe(&event));
    // Cut off here, on purpose.
    drop(reader);
    assembly.so_far().into_iter().filter(|call| call.state.could_run()).collect()
}

impl CallState {
    /// Whether a client that does not wait for the end could run a call in this state.
    #[must_use]
    pub fn could_run(self) -> bool {
        match self {
            Self::Parsable | Self::Closed | Self::Complete => true,
            Self::Open | Self::Malformed | Self::Orphaned => false,
        }
    }
}

/// The same rule by the ending alone, for whoever passes calls on without putting them together.
///
/// It refuses whatever [`allow`] refuses.
#[must_use]
pub fn allow_by_ending(ending: &Ending) -> Allow {
    let calls = |of: fn(&Shown) -> u32| ending.choices.iter().any(|choice| of(&choice.shown) > 0);
    if !calls(|shown| shown.tool_calls) {
        return Allow::Refuse(Refusal::NoCalls);
    }
    if ending.reason != Reason::ToolCall || !ending.over {
        return Allow::Refuse(Refusal::Ending(ending.reason));
    }
    if !ended_well(ending, Reason::ToolCall) {
        return Allow::Refuse(Refusal::Unsure);
    }
    if ending.shown.excess > 0 {
        return Allow::Refuse(Refusal::TooMany);
    }
    let states = [
        (calls(|shown| shown.unfinished_tool_calls), CallState::Open),
        (calls(|shown| shown.malformed_tool_calls), CallState::Malformed),
        (calls(|shown| shown.nameless_tool_calls), CallState::Orphaned),
    ];
    match states.into_iter().find(|(any, _)| *any) {
        Some((_, state)) => Allow::Refuse(Refusal::Call(state)),
        None => Allow::Run,
    }
}

fn ended_well(ending: &Ending, wanted: Reason) -> bool {
    ending.over && ending.reason == wanted && ending.confidence >= Confidence::Medium
}

/// Calls that local models write into their text: `<tool_call>…</tool_call>`,
/// `<function=name>…</function>`, and fenced JSON with a name and arguments.
///
/// They are recognised so that they can be refused: one that is unfinished is never complete.
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

/// One call written as an object with a name and arguments; none if it is other JSON.
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
        // What is cut cannot be read; that it calls itself one, or begins like one, is enough.
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

fn written(name: &str, arguments: &str, closed: bool, well: bool) -> ToolCall {
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

/// Whether the arguments fit the tool's JSON Schema.
///
/// # Errors
/// What does not fit, in a sentence; or that the schema itself is none.
#[cfg(feature = "jsonschema")]
pub fn check_schema(call: &ToolCall, schema: &serde_json::Value) -> Result<(), String> {
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments)
        .map_err(|_| format!("the arguments of `{}` are no JSON", call.name))?;
    let schema = jsonschema::validator_for(schema)
        .map_err(|error| format!("the schema of `{}` is none: {error}", call.name))?;
    let at = |error: jsonschema::ValidationError<'_>| {
        format!(
            "the arguments of `{}` do not fit: {} at {}",
            call.name,
            error.kind().keyword(),
            error.instance_path()
        )
    };
    schema.validate(&arguments).map_err(at)
}

#[cfg(all(test, feature = "jsonschema"))]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_held_against_their_schema() {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        let check = |arguments: &str, schema: &serde_json::Value| {
            check_schema(&written("f", arguments, true, true), schema)
        };
        assert_eq!(check("{\"path\":\"/x\"}", &schema), Ok(()));
        assert!(check("{}", &schema).is_err_and(|error| error.contains("required")));
        assert!(check("{\"path\":1}", &schema).is_err_and(|error| error.contains("/path")));
        assert!(check("{", &schema).is_err_and(|error| error.contains("no JSON")));
        assert!(check("{}", &json!({"type": "frob"})).is_err_and(|error| error.contains("schema")));
    }
}
