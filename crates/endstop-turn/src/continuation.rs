//! The state machine of one turn: applies decisions step by step, within limits that are never
//! reset.
//!
//! ```text
//! Request -> EvaluateStop -> Complete | ExecuteTools -> Request
//!                         -> ContinuePending -> RequestContinuation -> EvaluateStop
//!                                            -> AbortPartial -> Complete (partial, with notice)
//!                         -> ContinuePending -> RepairToolCall -> EvaluateStop | AbortPartial
//!                         -> ContinuePending -> ResumePaused -> EvaluateStop
//!                         -> ContinuePending -> Request (another model)
//!                         -> RetryPending (cut, failed, timed out; waits) -> same request | Abort
//!                                         -> ContinuePending (text that was delivered, polls)
//!                         -> AbortPartial -> Complete (partial, with notice)
//!                         -> Abort (blocked, context full, failed, cancelled; unknown with a call
//!                                   or without content)
//! ```
//!
//! A *turn* runs from one request of the user to the final answer and includes all tool iterations.
//! An *iteration* is one request to the provider. The machine waits in every state except
//! `EvaluateStop` and `AbortPartial`. It passes those within a step and lists them in
//! [`Step::passed`].
//!
//! The machine does no IO and has no clock. Each step returns a [`Todo`], and the caller reports
//! the result as a [`TurnInput`]. The machine can be stored after any step and restored in another
//! process. If a process died during a request, report an ending with
//! [`TransportEnd::Interrupted`](endstop::TransportEnd::Interrupted). Processes that share a turn
//! should use the same clock.
//!
//! The machine enforces the policy's limits on every decision. It never runs a tool call that may
//! be incomplete, and never continues without progress. Recovery counts against the `continuation_`
//! limits: the tokens and characters of responses that did not end normally, and of the responses
//! that recover them. Iterations, time, money and all tokens count against the `turn_` limits.
//!
//! ```
//! use endstop_turn::continuation::{TurnStart, EndedResponse, TurnInput, Machine, Todo};
//! use endstop_turn::policy::Piece;
//! use endstop::{RequestInfo, TransportEnd, Head, Watcher, provider};
//!
//! # fn answer(word: &str) -> endstop::Ending {
//! #     let body = format!(r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"{word}"}}]}}"#);
//! #     let mut reader = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
//! #     reader.watch(body.as_bytes());
//! #     reader.finish(TransportEnd::Eof)
//! # }
//! let (mut machine, mut step) = Machine::begin(TurnStart::new("turn-1"), 0);
//! let mut answers = [("length", "Once upon a time"), ("stop", " there was")].into_iter();
//! while !machine.is_over() {
//!     let input = match step.todo {
//!         Todo::Send(_) => {
//!             let (word, text) = answers.next().unwrap();
//!             // `answer` sends a request and reads the response.
//!             let ended = EndedResponse::new(answer(word), Piece::of(text));
//!             (machine, step) = machine.step(TurnInput::Ended(&ended), 0);
//!             continue;
//!         }
//!         Todo::Prepare(_) => TurnInput::Prepared,
//!         Todo::Wait { .. } => TurnInput::Tick,
//!         Todo::RunTools => TurnInput::ToolsDone,
//!         Todo::Finish(_) | Todo::Ignored => break,
//!     };
//!     (machine, step) = machine.step(input, 0);
//! }
//! assert_eq!(machine.outcome().map(|outcome| outcome.pieces), Some(2));
//! ```

mod account;
mod event;
mod outcome;

use serde::{Deserialize, Serialize};

use crate::policy::{
    self, Action, Budget, Cause, Counter, Decision, DecisionContext, Limit, Piece, Policy, Price,
    ResumeBy, Spent, Strategy,
};
use endstop::tool_call::Allow;
use endstop::{Ending, Reason};

pub use event::{Issue, TurnEvent};
pub use outcome::{Completeness, Outcome, TurnEnd};

use account::TurnData;
use event::issue;
use outcome::terminated;

/// The state machine of one turn.
///
/// ```
/// use endstop_turn::continuation::{Machine, StateName, Todo, TurnStart};
///
/// let (machine, step) = Machine::begin(TurnStart::new("turn-1"), 0);
/// assert!(matches!(step.todo, Todo::Send(_)));
/// assert_eq!(machine.state(), StateName::Request);
///
/// // Another process can go on with it.
/// let stored = serde_json::to_string(&machine).unwrap();
/// assert_eq!(serde_json::from_str::<Machine>(&stored).unwrap(), machine);
/// ```
///
/// The [module](self) has an example of a whole turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    state: State,
    turn: TurnData,
}

/// The parameters that start a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnStart {
    /// The turn's name in events. It also varies the waits between turns.
    pub turn: String,
    /// The policy of the turn.
    pub policy: Policy,
    /// The id of the provider that the first request goes to. The policy's overrides for it apply to that request.
    /// They apply only from the first response on if this is empty.
    #[serde(default)]
    pub provider: String,
    /// The output limits, the context window and the price.
    pub budget: Budget,
    /// Whether text is delivered as it arrives and cannot be taken back.
    pub delivers: bool,
    /// Messages in the conversation, including the user's request, or `None` if unknown.
    pub conversation_messages: Option<u32>,
    /// Estimated input tokens of the first request, or `None` if unknown. Without it, the limits on all
    /// tokens and on the cost do not count the first request's input before its response.
    #[serde(default)]
    pub input_tokens: Option<u64>,
}

impl TurnStart {
    /// Creates the parameters of a turn with this name and the default policy.
    pub fn new(turn: impl Into<String>) -> Self {
        Self { turn: turn.into(), ..Self::default() }
    }
}

/// An input to the machine.
///
/// Closed list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TurnInput<'a> {
    /// The response to the last request is over.
    Ended(&'a EndedResponse),
    /// The continuation request is built and can be sent.
    Prepared,
    /// The request cannot be built, because this wire or model cannot continue here.
    Unavailable,
    /// Time passed.
    Tick,
    /// The tools ran and their results are in the conversation.
    ToolsDone,
    /// It is unknown how far the tools ran, so they cannot be run again.
    ToolsLost,
    /// The caller cancels the turn.
    Cancel,
}

/// A response that ended, with the known facts about it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedResponse {
    /// The ending.
    pub ending: Ending,
    /// The measurements of its text, or `None` if the text was not kept.
    pub piece: Option<Piece>,
    /// Whether its tool calls may run, or `None` if they were not assembled.
    pub tools: Option<Allow>,
    /// The wait that the provider asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The price of the model that answered. `None` leaves it to the budget and the policy.
    pub price: Option<Price>,
    /// The decision of a custom [`Strategy`]. `None` leaves the decision to the policy.
    pub decision: Option<Decision>,
}

impl EndedResponse {
    /// Creates a response whose text was measured.
    #[must_use]
    pub fn new(ending: Ending, piece: Piece) -> Self {
        Self {
            ending,
            piece: Some(piece),
            tools: None,
            retry_after_ms: None,
            price: None,
            decision: None,
        }
    }
}

/// The result of one step: the next thing to do, and the events to emit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// The next thing to do.
    pub todo: Todo,
    /// The events of the step, for the caller to emit.
    pub events: Vec<TurnEvent>,
    /// The states that the step went through. The machine waits in the last one.
    pub passed: Vec<StateName>,
}

impl Step {
    /// Returns the step of a machine that was restored, with what it told to do last.
    #[must_use]
    pub fn resumed(todo: Todo) -> Self {
        Self { todo, events: Vec::new(), passed: Vec::new() }
    }
}

/// The next thing to do.
///
/// Closed list: code that drives a machine must handle every variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Todo {
    /// Send a request, then report [`TurnInput::Ended`].
    Send(PlannedRequest),
    /// Build this request without sending it, then report [`TurnInput::Prepared`] or
    /// [`TurnInput::Unavailable`].
    Prepare(PlannedRequest),
    /// Wait, then report [`TurnInput::Tick`].
    Wait {
        /// The wait in milliseconds.
        ms: u64,
    },
    /// Run the tool calls, then report [`TurnInput::ToolsDone`].
    RunTools,
    /// Stop: the turn is over. Abandon any request in progress.
    Finish(Box<Outcome>),
    /// Do nothing. The input does not apply to this state, and nothing changed.
    Ignored,
}

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedRequest {
    /// The kind of request.
    pub how: RequestKind,
    /// Whether it repeats a request of the same kind, as a retry or with a higher output limit.
    pub again: bool,
    /// The output limit of the request. `None` keeps that of the user's request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// Whether to discard the text of the last response.
    pub discard: bool,
    /// Whether the request goes to the next of the policy's `fallback_models`.
    #[serde(default)]
    pub other_model: bool,
    /// The counter that the request increments, or `None` if it recovers nothing.
    pub counter: Option<Counter>,
    /// The end of the turn's time limit. The request must not run longer.
    pub deadline_ms: u64,
}

/// A kind of request.
///
/// Closed list: code that drives a machine must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// The user's request.
    First,
    /// A request with the results of tools.
    AfterTools,
    /// A request that continues the answer.
    Continue,
    /// A request that continues an answer whose stream was cut.
    ResumeText,
    /// A request for only a tool call.
    Repair,
    /// A request that resumes with the provider's protocol.
    Resume,
    /// A request that asks whether the answer is over.
    Poll,
}

/// The state of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Request(PlannedRequest),
    RequestContinuation(PlannedRequest),
    RepairToolCall(PlannedRequest),
    ResumePaused(PlannedRequest),
    ContinuePending(PlannedRequest),
    RetryPending { next: PlannedRequest, until_ms: u64 },
    ExecuteTools,
    Complete(Box<Outcome>),
    Abort(Box<Outcome>),
}

/// The names of the states.
///
/// Closed list: it is the diagram at the top of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// The user's request, or one with the results of tools, is in progress.
    Request,
    /// The machine decides about a response. It passes this state within a step.
    EvaluateStop,
    /// The turn is over with an answer.
    Complete,
    /// Tool calls are being run.
    ExecuteTools,
    /// A continuation was decided but is not sent yet.
    ContinuePending,
    /// A continuation is in progress.
    RequestContinuation,
    /// The turn ends with a partial answer. The machine passes this state within a step.
    AbortPartial,
    /// A request for only a tool call is in progress.
    RepairToolCall,
    /// A paused answer was sent back or is being polled.
    ResumePaused,
    /// A retry waits for its time to come.
    RetryPending,
    /// The turn is over without an answer.
    Abort,
}

/// The events and passed states of a step.
#[derive(Default)]
struct Trace {
    events: Vec<TurnEvent>,
    passed: Vec<StateName>,
}

impl Machine {
    /// Begins a turn. The first thing to do is to send the user's request.
    #[must_use]
    pub fn begin(begin: TurnStart, now_ms: u64) -> (Self, Step) {
        let mut turn = TurnData {
            price: begin.budget.price,
            conversation_tokens: begin.input_tokens,
            provider: begin.provider.clone(),
            begin,
            started_ms: now_ms,
            spent: Spent::default(),
            added_messages: 0,
            continued: false,
            issue: None,
            detail: String::new(),
            seen: Vec::new(),
            pieces: 0,
            kept_chars: 0,
            reason: None,
            confidence: None,
        };
        let mut trace = Trace::default();
        let next = turn.plain(RequestKind::First, None);
        let (state, todo) = dispatch(&mut turn, next, &mut trace);
        finish_step(state, turn, todo, trace)
    }

    /// Takes one step. An input that does not apply to the state changes nothing.
    ///
    /// Time never goes back: an earlier `now_ms` counts as the latest one that was passed.
    #[must_use]
    pub fn step(self, input: TurnInput<'_>, now_ms: u64) -> (Self, Step) {
        let Self { state, mut turn } = self;
        if !state.is_closed() {
            turn.clock(now_ms);
        }
        let mut trace = Trace::default();
        let (state, todo) = match (state, input) {
            (closed @ (State::Complete(_) | State::Abort(_)), _) => {
                ignore(closed, input, &turn, &mut trace)
            }
            (open, TurnInput::Cancel) => cancel(&open, &mut turn, &mut trace),
            (State::Request(next), _)
            | (State::RequestContinuation(next), _)
            | (State::RepairToolCall(next), _)
            | (State::ResumePaused(next), _) => under_way(next, input, &mut turn, &mut trace),
            (State::ContinuePending(next), _) => pending(next, input, &mut turn, &mut trace),
            (State::RetryPending { next, until_ms }, _) => {
                waiting(next, until_ms, input, &mut turn, &mut trace)
            }
            (State::ExecuteTools, _) => executing(input, &mut turn, &mut trace),
        };
        finish_step(state, turn, todo, trace)
    }

    /// Returns the context for a strategy to decide about this response.
    #[must_use]
    pub fn context(&self, ended: &EndedResponse, now_ms: u64) -> DecisionContext {
        let mut turn = self.turn.clone();
        turn.clock(now_ms);
        match self.state.next_under_way() {
            Some(next) => turn.account(next, ended),
            None => turn.context(ended, None),
        }
    }

    /// Returns the response with the decision of a strategy.
    #[must_use]
    pub fn decided(
        &self,
        strategy: &impl Strategy,
        ended: EndedResponse,
        now_ms: u64,
    ) -> EndedResponse {
        let context = self.context(&ended, now_ms);
        let decision = Some(strategy.decide(&ended.ending, &context));
        EndedResponse { decision, ..ended }
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> StateName {
        self.state.name()
    }

    /// Reports whether the turn is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_closed()
    }

    /// Returns the outcome of the turn, once it is over.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Complete(outcome) | State::Abort(outcome) => Some(outcome),
            State::Request(_)
            | State::RequestContinuation(_)
            | State::RepairToolCall(_)
            | State::ResumePaused(_)
            | State::ContinuePending(_)
            | State::RetryPending { .. }
            | State::ExecuteTools => None,
        }
    }

    /// Adds tokens to the conversation that no response has counted, such as the results of tools. The next
    /// request leaves room for them within the limits.
    pub fn lengthen(&mut self, tokens: u64) {
        let before = self.turn.conversation_tokens.unwrap_or(0);
        self.turn.conversation_tokens = Some(before.saturating_add(tokens));
    }

    /// Sets the model that a request with [`PlannedRequest::other_model`] goes to: the id of its provider, and its
    /// price if it is known. Call it before [`TurnInput::Prepared`], so that the limits of that provider apply,
    /// and the cost limit is kept at that price.
    pub fn change_model(&mut self, provider: impl Into<String>, price: Option<Price>) {
        self.turn.provider = provider.into();
        self.turn.price = price;
        self.turn.begin.budget.price = price;
    }

    /// Returns the name of the turn.
    #[must_use]
    pub fn turn(&self) -> &str {
        &self.turn.begin.turn
    }

    /// Returns the spending of the turn.
    #[must_use]
    pub fn spent(&self) -> &Spent {
        &self.turn.spent
    }
}

impl State {
    fn name(&self) -> StateName {
        match self {
            Self::Request(_) => StateName::Request,
            Self::RequestContinuation(_) => StateName::RequestContinuation,
            Self::RepairToolCall(_) => StateName::RepairToolCall,
            Self::ResumePaused(_) => StateName::ResumePaused,
            Self::ContinuePending(_) => StateName::ContinuePending,
            Self::RetryPending { .. } => StateName::RetryPending,
            Self::ExecuteTools => StateName::ExecuteTools,
            Self::Complete(_) => StateName::Complete,
            Self::Abort(_) => StateName::Abort,
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self, Self::Complete(_) | Self::Abort(_))
    }

    fn next_under_way(&self) -> Option<&PlannedRequest> {
        match self {
            Self::Request(next)
            | Self::RequestContinuation(next)
            | Self::RepairToolCall(next)
            | Self::ResumePaused(next) => Some(next),
            Self::ContinuePending(_)
            | Self::RetryPending { .. }
            | Self::ExecuteTools
            | Self::Complete(_)
            | Self::Abort(_) => None,
        }
    }

    /// Returns the state while this request is in progress.
    fn of(next: PlannedRequest) -> Self {
        match next.how {
            RequestKind::First | RequestKind::AfterTools => Self::Request(next),
            RequestKind::Continue | RequestKind::ResumeText => Self::RequestContinuation(next),
            RequestKind::Repair => Self::RepairToolCall(next),
            RequestKind::Resume | RequestKind::Poll => Self::ResumePaused(next),
        }
    }
}

fn finish_step(state: State, turn: TurnData, todo: Todo, mut trace: Trace) -> (Machine, Step) {
    if trace.passed.last() != Some(&state.name()) {
        trace.passed.push(state.name());
    }
    let action = Step { todo, events: trace.events, passed: trace.passed };
    (Machine { state, turn }, action)
}

fn ignore(state: State, input: TurnInput<'_>, turn: &TurnData, trace: &mut Trace) -> (State, Todo) {
    let input = match input {
        TurnInput::Ended(_) => "ended",
        TurnInput::Prepared => "prepared",
        TurnInput::Unavailable => "unavailable",
        TurnInput::Tick => "tick",
        TurnInput::ToolsDone => "tools_done",
        TurnInput::ToolsLost => "tools_lost",
        TurnInput::Cancel => "cancel",
    };
    trace.events.push(TurnEvent::InputIgnored {
        turn: turn.begin.turn.clone(),
        state: state.name(),
        input: input.to_owned(),
    });
    (state, Todo::Ignored)
}

/// Handles an input while a request is in progress.
fn under_way(
    next: PlannedRequest,
    input: TurnInput<'_>,
    turn: &mut TurnData,
    trace: &mut Trace,
) -> (State, Todo) {
    match input {
        TurnInput::Ended(ended) => evaluate(&next, ended, turn, trace),
        TurnInput::Tick if turn.is_out_of_time() => turn.out_of(Limit::WallTime, trace),
        TurnInput::Unavailable => unavailable(&next, turn, trace),
        TurnInput::Tick
        | TurnInput::Prepared
        | TurnInput::ToolsDone
        | TurnInput::ToolsLost
        | TurnInput::Cancel => ignore(State::of(next), input, turn, trace),
    }
}

/// Handles an input before a request is sent that continues the answer, repairs a call or asks another model.
fn pending(
    next: PlannedRequest,
    input: TurnInput<'_>,
    turn: &mut TurnData,
    trace: &mut Trace,
) -> (State, Todo) {
    match input {
        TurnInput::Prepared => {
            if next.how == RequestKind::Repair {
                trace.events.push(turn.known_repair_event(true, None));
            }
            dispatch(turn, next, trace)
        }
        TurnInput::Tick if turn.is_out_of_time() => turn.out_of(Limit::WallTime, trace),
        TurnInput::Unavailable => unavailable(&next, turn, trace),
        TurnInput::Ended(_)
        | TurnInput::Tick
        | TurnInput::ToolsDone
        | TurnInput::ToolsLost
        | TurnInput::Cancel => ignore(State::ContinuePending(next), input, turn, trace),
    }
}

/// Ends the turn because the next request cannot be built.
fn unavailable(next: &PlannedRequest, turn: &mut TurnData, trace: &mut Trace) -> (State, Todo) {
    if next.other_model {
        let sentence = "no other model can be asked";
        let (end, finish) = match turn.reason {
            Some(Reason::Refused | Reason::Filtered | Reason::Safety | Reason::Recitation) => {
                (TurnEnd::SafetyBlocked, Completeness::Aborted)
            }
            _ => (TurnEnd::Unavailable, turn.partial_if_kept()),
        };
        return turn.close(end, finish, sentence, None, trace);
    }
    if next.how == RequestKind::Repair {
        trace.events.push(turn.known_repair_event(false, Some(false)));
        // The notice alone is worth returning.
        let sentence = "a tool call is incomplete, and this request cannot ask for it again";
        return turn.close(TurnEnd::Unavailable, Completeness::Partial, sentence, None, trace);
    }
    let sentence = "this provider or model cannot continue the answer";
    turn.close(TurnEnd::Unavailable, turn.partial_if_kept(), sentence, None, trace)
}

/// Handles an input while a retry waits.
fn waiting(
    next: PlannedRequest,
    until_ms: u64,
    input: TurnInput<'_>,
    turn: &mut TurnData,
    trace: &mut Trace,
) -> (State, Todo) {
    let state = |next| State::RetryPending { next, until_ms };
    match input {
        TurnInput::Tick if turn.is_out_of_time() => turn.out_of(Limit::WallTime, trace),
        TurnInput::Tick => match until_ms.saturating_sub(turn.now_ms()) {
            0 => match (next.how, next.again) {
                // It is built from the answer so far, which may not be possible.
                (RequestKind::ResumeText | RequestKind::Poll, false) => prepare(next),
                _ => dispatch(turn, next, trace),
            },
            ms => (state(next), Todo::Wait { ms }),
        },
        TurnInput::Ended(_)
        | TurnInput::Prepared
        | TurnInput::Unavailable
        | TurnInput::ToolsDone
        | TurnInput::ToolsLost
        | TurnInput::Cancel => ignore(state(next), input, turn, trace),
    }
}

/// Handles an input while tools run.
fn executing(input: TurnInput<'_>, turn: &mut TurnData, trace: &mut Trace) -> (State, Todo) {
    match input {
        TurnInput::ToolsDone => {
            // The call and its results are at least two messages on every wire.
            turn.added_messages = turn.added_messages.saturating_add(2);
            let next = turn.plain(RequestKind::AfterTools, None);
            dispatch(turn, next, trace)
        }
        TurnInput::ToolsLost => {
            let sentence = "some tools may have run already, so they are not run again";
            turn.close(TurnEnd::ToolsLost, Completeness::Partial, sentence, None, trace)
        }
        TurnInput::Tick if turn.is_out_of_time() => turn.out_of(Limit::WallTime, trace),
        TurnInput::Tick
        | TurnInput::Ended(_)
        | TurnInput::Prepared
        | TurnInput::Unavailable
        | TurnInput::Cancel => ignore(State::ExecuteTools, input, turn, trace),
    }
}

fn cancel(state: &State, turn: &mut TurnData, trace: &mut Trace) -> (State, Todo) {
    trace.passed.push(state.name());
    turn.close(TurnEnd::Cancelled, Completeness::Aborted, "the caller cancelled it", None, trace)
}

/// Counts a request and returns it for sending, if the limits still allow it.
fn dispatch(turn: &mut TurnData, mut next: PlannedRequest, trace: &mut Trace) -> (State, Todo) {
    let limits = turn.limits();
    let context = turn.bare_context();
    if let Some(limit) = limits.reached(next.counter, &context, 0) {
        return turn.out_of(limit, trace);
    }
    turn.spent.iterations = turn.spent.iterations.saturating_add(1);
    if next.other_model {
        // The decision was made with the price and the limits of the model before.
        next.cap = limits.next_cap(next.cap, next.counter, &context);
        next.deadline_ms = turn.deadline_ms();
        turn.forget_answer();
    }
    if let Some(counter) = next.counter {
        turn.spent.add(counter);
        let left = limits.left(&turn.begin.budget, &turn.spent);
        let event = turn.attempt(&next, counter, left);
        turn.continued |= matches!(event, TurnEvent::ContinuationAttempt { .. });
        trace.events.push(event);
    }
    (State::of(next.clone()), Todo::Send(next))
}

/// Decides about a response and applies the decision.
fn evaluate(
    next: &PlannedRequest,
    ended: &EndedResponse,
    turn: &mut TurnData,
    trace: &mut Trace,
) -> (State, Todo) {
    let EndedResponse { ending, .. } = ended;
    let context = turn.account(next, ended);
    turn.provider.clone_from(&ending.provider);
    turn.reason = Some(ending.reason);
    turn.confidence = Some(ending.confidence);
    trace.passed.push(StateName::EvaluateStop);
    trace.events.push(turn.observed(ending));
    let decision = match &ended.decision {
        Some(told) => policy::hold(told.clone(), ending, &context, &turn.begin.policy),
        None => policy::decide(ending, &context, &turn.begin.policy),
    };
    if next.how == RequestKind::Repair {
        let succeeded = Some(decision.action == Action::RunTools);
        let event = turn.repair_event(ended, true, succeeded);
        trace.events.push(event);
    }
    let kept_before = turn.kept_chars;
    turn.keep(ended, &decision);
    follow(next, ended, decision, kept_before, turn, trace)
}

/// Applies the decision.
fn follow(
    next: &PlannedRequest,
    ended: &EndedResponse,
    decision: Decision,
    kept_before: u64,
    turn: &mut TurnData,
    trace: &mut Trace,
) -> (State, Todo) {
    let counter = Counter::of(decision.action, &ended.ending);
    let metadata = &decision.metadata;
    let make = |how: RequestKind, again: bool| PlannedRequest {
        how,
        again,
        cap: metadata.next_cap,
        discard: metadata.discard,
        other_model: false,
        counter,
        deadline_ms: turn.deadline_ms(),
    };
    match decision.action {
        Action::RunTools => (State::ExecuteTools, Todo::RunTools),
        Action::Continue => prepare(make(RequestKind::Continue, false)),
        Action::RaiseBudget => prepare(make(next.how, true)),
        Action::RepairToolCall => {
            let repair = make(RequestKind::Repair, next.how == RequestKind::Repair);
            let (issue, detail) = issue(ended, None);
            turn.issue = Some(issue);
            turn.detail = detail;
            prepare(repair)
        }
        Action::Resume => match metadata.resume_by {
            Some(ResumeBy::Protocol) => prepare(make(RequestKind::Resume, false)),
            Some(ResumeBy::Poll) => wait(make(RequestKind::Poll, false), metadata.wait_ms, turn),
            Some(ResumeBy::Text) | None => {
                wait(make(RequestKind::ResumeText, false), metadata.wait_ms, turn)
            }
        },
        Action::Retry => wait(make(next.how, true), metadata.wait_ms, turn),
        Action::OtherModel => {
            // The other model gets the conversation, not a continuation of this answer.
            let how = match next.how {
                RequestKind::AfterTools => RequestKind::AfterTools,
                RequestKind::First
                | RequestKind::Continue
                | RequestKind::ResumeText
                | RequestKind::Repair
                | RequestKind::Resume
                | RequestKind::Poll => RequestKind::First,
            };
            prepare(PlannedRequest { other_model: true, ..make(how, true) })
        }
        Action::Stop | Action::Compact | Action::ChangePrompt => {
            stop(ended, decision, kept_before, turn, trace)
        }
    }
}

fn prepare(next: PlannedRequest) -> (State, Todo) {
    (State::ContinuePending(next.clone()), Todo::Prepare(next))
}

fn wait(next: PlannedRequest, wait_ms: Option<u64>, turn: &TurnData) -> (State, Todo) {
    let ms = wait_ms.unwrap_or(0);
    let until_ms = turn.now_ms().saturating_add(ms);
    (State::RetryPending { next, until_ms }, Todo::Wait { ms })
}

/// Ends the turn by the decision.
fn stop(
    ended: &EndedResponse,
    decision: Decision,
    kept_before: u64,
    turn: &mut TurnData,
    trace: &mut Trace,
) -> (State, Todo) {
    let terminated = terminated(&decision);
    let shown = &ended.ending.shown;
    if terminated == TurnEnd::ToolCallUnfinished {
        let event = turn.repair_event(ended, false, Some(false));
        trace.events.push(event);
    }
    let holds_something = !shown.is_empty() && !shown.is_reasoning_only();
    let partial_if =
        |stands: bool| if stands { Completeness::Partial } else { Completeness::Aborted };
    let finish = match decision.cause {
        Cause::Completed | Cause::ToolCalls if decision.metadata.limit.is_none() => {
            Completeness::Complete
        }
        Cause::Unknown if shown.tool_calls == 0 && holds_something => Completeness::Complete,
        Cause::Blocked | Cause::Cancelled => Completeness::Aborted,
        // The failed response is dropped, but earlier text is kept.
        Cause::Unknown
        | Cause::ContextFull
        | Cause::ReasoningExhausted
        | Cause::ProviderFailed
        | Cause::RequestRefused
        | Cause::TimedOut
        | Cause::CutStream => partial_if(kept_before > 0),
        // The notice alone is worth returning.
        Cause::BrokenToolCall => Completeness::Partial,
        Cause::Completed
        | Cause::ToolCalls
        | Cause::NothingCame
        | Cause::UncertainToolCalls
        | Cause::Paused
        | Cause::Pending
        | Cause::OutputLimit => partial_if(turn.kept_chars > 0),
    };
    // A sentence that says "complete" does not explain the doubt.
    let sentence = match decision.cause {
        Cause::Completed if finish == Completeness::Complete => {
            format!("its ending is uncertain ({})", ended.ending.sentence)
        }
        Cause::Completed
        | Cause::NothingCame
        | Cause::ToolCalls
        | Cause::UncertainToolCalls
        | Cause::BrokenToolCall
        | Cause::Paused
        | Cause::Pending
        | Cause::OutputLimit
        | Cause::ContextFull
        | Cause::ReasoningExhausted
        | Cause::Blocked
        | Cause::ProviderFailed
        | Cause::RequestRefused
        | Cause::TimedOut
        | Cause::CutStream
        | Cause::Cancelled
        | Cause::Unknown => decision.sentence.clone(),
    };
    turn.close(terminated, finish, &sentence, Some(decision), trace)
}
