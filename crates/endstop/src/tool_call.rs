//! Tool calls: assembled from events, each with a state, and the rule that allows them to run.
//!
//! Valid JSON does not prove that a call is complete. A call may run only if its block is closed,
//! its JSON is complete, and the response ended as [`Reason::ToolCall`] with at least medium
//! confidence and a clean close. The rule applies to the whole response: if one call is unfinished, none may run.
//! Invalid JSON is never replaced by an empty object.

mod in_text;
mod whole;

use serde::{Deserialize, Serialize};

pub use in_text::in_text;
pub use whole::{Call, Unproven, Whole, whole};

use crate::ending::{Confidence, Ending, Reason, Shown};
use crate::event::Event;
use crate::json::{JsonState, Scanner};
use crate::provider::Wire;
use crate::reader::{Head, Reader};
use crate::request::RequestInfo;

/// Maximum length of the arguments of one call, in bytes. A call with longer arguments may not run.
const MAX_ARGUMENTS: usize = 16 << 20;
/// Maximum number of calls.
const MAX_CALLS: usize = 1024;

/// One tool call, complete or not. It proves nothing: [`Call<Whole>`](Call) does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// Number of its choice.
    pub choice: u32,
    /// Number of the call on the wire.
    pub number: u32,
    /// The provider's id; empty if the wire has none.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Unchanged arguments: JSON text, or free text if the tool takes that.
    pub arguments: String,
    /// State of the call.
    pub state: CallState,
    /// Whether the model wrote the call in its text.
    pub in_text: bool,
}

impl ToolCall {
    /// Returns the arguments as a JSON object, or as free text if the tool takes that. Absent,
    /// blank and null arguments become `{}`.
    #[must_use]
    pub fn object(&self) -> &str {
        if is_bare(&self.arguments) { "{}" } else { &self.arguments }
    }
}

/// Reports whether these are the arguments of a call without parameters.
fn is_bare(arguments: &str) -> bool {
    matches!(arguments.trim(), "" | "null")
}

/// State of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallState {
    /// The arguments are unfinished.
    Open,
    /// The arguments are complete JSON, but the block was never closed, so more could follow.
    Parsable,
    /// The block is closed and the arguments are complete. The end of the response did not confirm
    /// that.
    Closed,
    /// The block is closed, the arguments are complete, and the response ended well.
    Complete,
    /// The arguments are not a JSON object and cannot become one.
    Malformed,
    /// The call has arguments but no start or no name.
    Orphaned,
}

/// Assembles tool calls from the events of one response.
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
    /// The provider runs the call itself.
    by_provider: bool,
    /// The provider sent two names.
    conflict: bool,
}

impl Assembly {
    /// Records an event. Events that do not concern tool calls are ignored.
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
                // Some providers reuse a number. The event means the newest open call.
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

    /// Returns the calls so far. No call is complete before the end of the response.
    #[must_use]
    pub fn so_far(&self) -> Vec<ToolCall> {
        self.calls
            .iter()
            .filter(|piece| !piece.by_provider)
            .map(|piece| ToolCall { state: piece.state(false), ..piece.call.clone() })
            .collect()
    }

    /// Returns the calls of a response with this ending.
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
    /// Records a repeated start of this call. Some providers repeat the start, or send the name
    /// after the id. Returns false if the start belongs to another call, because some providers
    /// reuse a number.
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
            // The ending decides whether a call without arguments is complete.
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

/// Permission to run the tool calls of a response.
///
/// Closed list: calls run or they do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allow {
    /// All calls may run.
    Run,
    /// No call may run.
    Refuse(Refusal),
}

/// Reason why the tool calls of a response may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The response has no tool calls.
    NoCalls,
    /// The response ended for another reason.
    Ending(Reason),
    /// The confidence in the ending is too low.
    Unsure,
    /// A call is not complete.
    Call(CallState),
    /// The response has more calls than the limit.
    TooMany,
    /// The arguments of a call do not match the tool's schema. The caller checks this.
    Schema,
}

impl Refusal {
    /// Returns an explanation for people.
    #[must_use]
    pub fn sentence(self) -> String {
        match self {
            Self::NoCalls => "the response contains no tool calls".to_owned(),
            Self::Ending(reason) => {
                format!(
                    "the response ended as {}, so none of its tool calls may run",
                    reason.name()
                )
            }
            Self::Unsure => {
                "it is not certain that the response is complete, so its tool calls must not run"
                    .to_owned()
            }
            Self::Call(state) => {
                format!(
                    "a tool call of this response is {}, so no tool call may run",
                    state.description()
                )
            }
            Self::TooMany => {
                "the response contains more tool calls than the limit allows".to_owned()
            }
            Self::Schema => {
                "the arguments of a tool call do not match the tool's schema".to_owned()
            }
        }
    }
}

/// Decides whether the tool calls of a response with this ending may run.
#[must_use]
pub fn allow(ending: &Ending, calls: &[ToolCall]) -> Allow {
    let Some(first) = calls.first() else { return Allow::Refuse(Refusal::NoCalls) };
    // A response with calls in its text ends like any text.
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

/// Returns the call that is to be repaired: the first one that is incomplete or malformed, or else the first
/// one that the end of the response did not confirm.
#[must_use]
pub fn first_broken(calls: &[ToolCall]) -> Option<&ToolCall> {
    let is_closed = |call: &&ToolCall| match call.state {
        CallState::Closed | CallState::Complete => true,
        CallState::Open | CallState::Parsable | CallState::Malformed | CallState::Orphaned => false,
    };
    let unconfirmed = |call: &&ToolCall| call.state != CallState::Complete;
    calls.iter().find(|call| !is_closed(call)).or_else(|| calls.iter().find(unconfirmed))
}

/// Returns the calls that a client could run after these bytes if it does not wait for the end:
/// calls with complete arguments, a closed block, or arguments that only a lenient parser reads.
///
/// Before the end marker, a gateway in front of such clients must not pass on bytes for which this
/// list is non-empty.
#[must_use]
pub fn exposed(wire: impl Into<Wire>, head: Head<'_>, bytes: &[u8]) -> Vec<ToolCall> {
    let mut reader = Reader::new(wire, head, RequestInfo::default());
    let mut assembly = Assembly::default();
    reader.read(bytes, |event| assembly.observe(&event));
    // The response stops here on purpose.
    drop(reader);
    assembly.so_far().into_iter().filter(|call| call.state.could_run()).collect()
}

impl CallState {
    /// Reports whether a client that does not wait for the end could run a call in this state.
    #[must_use]
    pub fn could_run(self) -> bool {
        match self {
            // A lenient parser may read what this one does not.
            Self::Parsable | Self::Closed | Self::Complete | Self::Malformed => true,
            Self::Open | Self::Orphaned => false,
        }
    }

    /// Returns a description for people, to follow "a tool call is".
    fn description(self) -> &'static str {
        match self {
            Self::Open => "unfinished",
            Self::Parsable => "not closed",
            Self::Closed => "not confirmed by the end of the response",
            Self::Complete => "complete",
            Self::Malformed => "malformed",
            Self::Orphaned => "missing its start or its name",
        }
    }
}

/// Applies the rule of [`allow`] to the ending alone, without assembled calls.
///
/// It refuses every response that [`allow`] refuses.
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
    ending.over
        && ending.reason == wanted
        && ending.confidence >= Confidence::Medium
        && ending.closed.is_clean()
}

/// Checks that a tool's schema is a valid JSON Schema of an object.
///
/// # Errors
/// Returns an explanation if it is not.
#[cfg(feature = "jsonschema")]
pub fn check_tool_schema(schema: &serde_json::Value) -> Result<(), String> {
    if !schema.is_object() {
        return Err("expected a JSON object".to_owned());
    }
    jsonschema::validator_for(schema).map(|_| ()).map_err(|error| error.to_string())
}

/// Checks the arguments against the tool's JSON Schema.
///
/// # Errors
/// Returns an explanation if the arguments do not match, or if the schema is invalid.
#[cfg(feature = "jsonschema")]
pub fn check_schema(call: &ToolCall, schema: &serde_json::Value) -> Result<(), String> {
    let arguments: serde_json::Value = serde_json::from_str(call.object())
        .map_err(|_| format!("the arguments of `{}` are not valid JSON", call.name))?;
    let schema = jsonschema::validator_for(schema)
        .map_err(|error| format!("invalid schema for `{}`: {error}", call.name))?;
    let at = |error: jsonschema::ValidationError<'_>| {
        format!(
            "the arguments of `{}` do not match the schema: {} at {}",
            call.name,
            error.kind().keyword(),
            error.instance_path()
        )
    };
    schema.validate(&arguments).map_err(at)
}

#[cfg(all(test, feature = "jsonschema"))]
mod tests {
    use super::in_text::written;
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
        assert!(check("{", &schema).is_err_and(|error| error.contains("not valid JSON")));
        // A call without parameters.
        let none = json!({"type": "object", "properties": {}});
        assert_eq!((check("", &none), check("null", &none)), (Ok(()), Ok(())));
        assert!(check("", &schema).is_err_and(|error| error.contains("required")));
        assert!(check("{}", &json!({"type": "frob"})).is_err_and(|error| error.contains("schema")));
    }
}
