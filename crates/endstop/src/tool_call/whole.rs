//! Calls whose completeness is part of their type.

use std::fmt;
use std::marker::PhantomData;

use super::{Allow, Refusal, ToolCall, allow};
use crate::ending::Ending;

/// A tool call that is proven to be complete or is not, by its type.
///
/// Only [`whole`] makes a `Call<Whole>`, by the rule of [`allow`]. It cannot be deserialized: a stored
/// call has to pass the rule again.
///
/// ```
/// use endstop::tool_call::{Call, Whole};
/// use endstop::{Collector, Head, RequestInfo, TransportEnd, provider};
///
/// fn run(call: &Call<Whole>) -> String {
///     format!("{}({})", call.name(), call.arguments())
/// }
///
/// let body = br#"{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"name":"now",
///     "arguments":""}}]},"finish_reason":"tool_calls"}]}"#;
/// let mut collector = Collector::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// collector.push(body);
/// let calls = collector.finish(TransportEnd::Eof).whole_calls().unwrap();
/// assert_eq!(run(&calls[0]), "now({})");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Call<S> {
    call: ToolCall,
    state: PhantomData<S>,
}

/// Marks a call that may run: it is complete, and its response ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {}

/// Marks a call that may not run. It can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {}

/// Returns the calls of a response, if they may run.
///
/// # Errors
///
/// Returns the reason why none of them may run, as [`allow`] does.
pub fn whole(ending: &Ending, calls: &[ToolCall]) -> Result<Vec<Call<Whole>>, Refusal> {
    match allow(ending, calls) {
        Allow::Run => Ok(calls.iter().map(|call| Call::of(call.clone())).collect()),
        Allow::Refuse(refusal) => Err(refusal),
    }
}

impl<S> Call<S> {
    fn of(call: ToolCall) -> Self {
        Self { call, state: PhantomData }
    }

    /// Returns the provider's id; empty if the wire has none.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.call.id
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.call.name
    }

    /// Returns the call as it was assembled.
    #[must_use]
    pub fn assembled(&self) -> &ToolCall {
        &self.call
    }
}

impl Call<Whole> {
    /// Returns the arguments as a JSON object, or as free text if the tool takes that.
    #[must_use]
    pub fn arguments(&self) -> &str {
        self.call.object()
    }
}

impl Call<Unproven> {
    /// Returns the arguments as far as they arrived.
    #[must_use]
    pub fn arguments_so_far(&self) -> &str {
        &self.call.arguments
    }
}

impl From<ToolCall> for Call<Unproven> {
    fn from(call: ToolCall) -> Self {
        Self::of(call)
    }
}

impl<S> fmt::Debug for Call<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.call, out)
    }
}
