//! The agent loop: runs the tools that a model calls, until it answers.

mod saved;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use endstop::chat::{ChatMessage, ChatRequest, ToolResult};
use endstop::hash::Fnv;
use endstop::signal::TerminationSignal;
use endstop::tool_call::{Call, ToolCall, Whole, whole};
use endstop_turn::continuation::Step;
use endstop_turn::policy::{AgentLimits, Millis, Money, Policy};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde::{Deserialize, Serialize};

use saved::RunFile;
pub use saved::SavedRun;

use crate::client::Client;
use crate::error::Error;
use crate::event::RunEvent;
use crate::queue::{Queue, Running};
use crate::response::ChatResponse;
use crate::target::Target;
use crate::tool::{SharedTool, ToolOutput, ToolSet};
use crate::transport::Transport;
use crate::turn::{Driver, ToolsEnd, TurnState, price_of};

/// Limits of an agent's run. They count over the whole run.
///
/// ```
/// use endstop_client::{Limits, usd};
///
/// let limits = Limits { turns: 25, cost: usd(0.50), ..Limits::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Maximum number of requests, the last answer included.
    pub turns: u32,
    /// Maximum number of input and output tokens; `None` leaves it to the policy.
    pub tokens: Option<u64>,
    /// Maximum cost; `None` leaves it to the policy. A model whose price is not known is not asked.
    pub cost: Option<Money>,
    /// Maximum duration; `None` leaves it to the policy.
    pub time: Option<Duration>,
    /// Maximum number of tools that run at the same time.
    pub parallel_tools: usize,
    /// Number of times that the same calls may follow each other.
    pub same_calls: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { turns: 50, tokens: None, cost: None, time: None, parallel_tools: 8, same_calls: 5 }
    }
}

impl Limits {
    /// Lowers the limits of a policy to these, also those that it has for single providers.
    fn bound(&self, policy: &mut Policy) {
        for own in policy.providers.values_mut() {
            let AgentLimits {
                turn_max_iterations,
                turn_max_total_tokens,
                turn_max_cost,
                turn_max_time,
                ..
            } = self.bounded(own.agent.apply(policy.agent));
            own.agent.turn_max_iterations = Some(turn_max_iterations);
            own.agent.turn_max_total_tokens = Some(turn_max_total_tokens);
            own.agent.turn_max_cost = Some(turn_max_cost);
            own.agent.turn_max_time = Some(turn_max_time);
        }
        policy.agent = self.bounded(policy.agent);
    }

    fn bounded(&self, agent: AgentLimits) -> AgentLimits {
        let time = self.time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let tokens = self.tokens.unwrap_or(u64::MAX);
        AgentLimits {
            turn_max_iterations: agent.turn_max_iterations.min(self.turns),
            turn_max_total_tokens: agent.turn_max_total_tokens.min(tokens),
            turn_max_cost: [agent.turn_max_cost, self.cost].into_iter().flatten().min(),
            turn_max_time: agent.turn_max_time.min(Millis(time.unwrap_or(u64::MAX))),
            ..agent
        }
    }
}

/// Returns an amount of US dollars, for [`Limits::cost`]. An amount below zero, or none at all (`NaN`), counts
/// as zero: nothing is asked.
///
/// ```
/// use endstop_client::usd;
///
/// assert_eq!(usd(0.50).map(|money| money.micros()), Some(500_000));
/// assert_eq!(usd(-1.0), usd(0.0));
/// ```
#[must_use]
pub fn usd(dollars: f64) -> Option<Money> {
    // `as` saturates, and makes zero of `NaN`.
    Some(Money::from_micros((dollars * 1e6).round() as u64))
}

/// An agent: a model, its tools and the limits of a run.
///
/// ```no_run
/// use endstop_client::{Client, Limits, RunEvent, tool, tools, usd};
///
/// /// Writes a file.
/// #[tool]
/// async fn write_file(path: String, content: String) -> std::io::Result<String> {
///     std::fs::write(&path, content)?;
///     Ok(format!("wrote {path}"))
/// }
///
/// # async fn example() -> Result<(), endstop_client::Error> {
/// let client = Client::from_env();
/// let agent = client.agent("openai/gpt-5").tools(tools![write_file]);
/// let mut run = agent.limits(Limits { turns: 25, cost: usd(0.50), ..Limits::default() }).run("Write a poem into a.txt.")?;
/// while let Some(event) = run.next().await {
///     match event {
///         RunEvent::Text(text) => print!("{text}"),
///         RunEvent::Report(report) => println!("{:?}", report.response.ended()),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `run`"]
pub struct Agent {
    client: Client,
    request: ChatRequest,
    model: String,
    tools: Vec<SharedToolDebug>,
    limits: Limits,
    policy: Option<Policy>,
    save_to: Option<PathBuf>,
    headers: Vec<(String, String)>,
}

/// A shared tool that can be printed.
#[derive(Clone)]
struct SharedToolDebug(SharedTool);

impl std::fmt::Debug for SharedToolDebug {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0.definition().name)
    }
}

impl Agent {
    pub(crate) fn new(client: Client, model: &str) -> Self {
        Self {
            client,
            request: ChatRequest::default(),
            model: model.to_owned(),
            tools: Vec::new(),
            limits: Limits::default(),
            policy: None,
            save_to: None,
            headers: Vec::new(),
        }
    }

    /// Sets the instructions.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.request.system = text.into();
        self
    }

    /// Adds tools.
    pub fn tools(mut self, tools: Vec<SharedTool>) -> Self {
        self.tools.extend(tools.into_iter().map(SharedToolDebug));
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the policy, in place of the client's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Begins with this conversation, such as that of an earlier [`AgentReport`]. It may come from
    /// another provider.
    pub fn conversation(mut self, messages: Vec<ChatMessage>) -> Self {
        self.request.messages = messages;
        self
    }

    /// Changes the request: its token limit, temperature or other fields.
    pub fn configure(mut self, change: impl FnOnce(&mut ChatRequest)) -> Self {
        change(&mut self.request);
        self
    }

    /// Adds a header to every request.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Saves the run to this file after every step, so that [`Agent::resume`] can go on with it. If the file
    /// cannot be written, no tool is started: another process could run it a second time.
    ///
    /// A file beside it, with `.lock` at the end of its name, keeps other processes from the run while it goes
    /// on.
    pub fn save_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.save_to = Some(path.into());
        self
    }

    /// Starts a run.
    ///
    /// # Errors
    /// Fails if the request cannot be made (a missing key, an unknown provider, an invalid tool), or if another
    /// run that is under way is saved to the same file.
    pub fn run(mut self, prompt: impl Into<String>) -> Result<Run, Error> {
        self.request.messages.push(ChatMessage::user(prompt));
        let ready = self.prepared(&self.model)?;
        let mut request = self.request.clone();
        request.model.clone_from(&ready.target.model);
        request.tools = ready.tools.definitions();
        request.stream = true;
        let now_ms = self.client.inner().clock.now_ms();
        let (state, step) =
            TurnState::begin(&ready.target, &self.model, request, &ready.policy, true, now_ms)?;
        let file = self.save_to.clone().map(RunFile::begin).transpose()?;
        Ok(self.start(ready, state, Progress::default(), step, file))
    }

    /// Starts a run in this state.
    fn start(
        self,
        ready: Prepared,
        state: TurnState,
        progress: Progress,
        step: Step,
        file: Option<RunFile>,
    ) -> Run {
        let Prepared { target, transport, tools, policy } = ready;
        let queue = Queue::default();
        let steering = Steering::default();
        steering.put(progress.steering.iter().cloned());
        let agency = Agency {
            tools,
            parallel: self.limits.parallel_tools.max(1),
            same_calls: self.limits.same_calls.max(1),
            steering: steering.clone(),
            file,
            progress,
        };
        let driver = Driver {
            inner: self.client.inner(),
            policy: Arc::new(policy),
            target,
            transport,
            state,
            queue: Some(queue.clone()),
            headers: self.headers,
            agency: Some(agency),
        };
        Run::new(queue, steering, driver, step)
    }

    /// Checks the model, the tools and the limits.
    fn prepared(&self, model: &str) -> Result<Prepared, Error> {
        let target = self.client.target(model)?;
        let tools = ToolSet::new(self.tools.iter().map(|tool| tool.0.clone()).collect())?;
        let mut policy = self.policy.clone().unwrap_or_else(|| self.client.policy().clone());
        self.limits.bound(&mut policy);
        price_of(&target, &policy)?;
        self.client.check_fallbacks(&policy)?;
        let transport = self.client.transport()?;
        Ok(Prepared { target, transport, tools, policy })
    }
}

/// A model, tools and limits that were checked.
struct Prepared {
    target: Target,
    transport: Transport,
    tools: ToolSet,
    policy: Policy,
}

/// A run of an agent. Dropping it cancels the run: its connection is closed, and its tools are
/// dropped.
#[derive(Debug)]
pub struct Run {
    running: Running<RunEvent>,
    steering: Steering,
}

impl Run {
    fn new(queue: Queue<RunEvent>, steering: Steering, driver: Driver, first: Step) -> Self {
        let events = queue.clone();
        let turn = async move {
            let (response, driver) = driver.run(first).await;
            events.push(RunEvent::Report(Box::new(AgentReport::new(response, driver))));
        };
        Self { running: Running::new(queue, turn), steering }
    }

    /// Waits for the next event. Returns `None` after the report.
    pub async fn next(&mut self) -> Option<RunEvent> {
        self.running.next().await
    }

    /// Runs to the end and returns the report.
    pub async fn report(mut self) -> Option<AgentReport> {
        while let Some(event) = self.next().await {
            if let RunEvent::Report(report) = event {
                return Some(*report);
            }
        }
        None
    }

    /// Adds a message of the user. The model sees it with the next results of tools.
    pub fn steer(&self, text: impl Into<String>) {
        self.steering.put([text.into()]);
    }
}

/// Messages that wait for the next request.
#[derive(Clone, Debug, Default)]
struct Steering(Arc<Mutex<VecDeque<String>>>);

impl Steering {
    fn take(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn put(&self, texts: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(texts);
    }

    fn waiting(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Report of an agent's run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentReport {
    /// The last answer, and how the run ended.
    pub response: ChatResponse,
    /// The conversation, the last answer included if it is complete. The next run can begin with it.
    pub conversation: Vec<ChatMessage>,
    /// How each response of the run ended, in order; the last 256.
    pub signals: Vec<TerminationSignal>,
    /// Tools that ran or were to run, in order.
    pub tool_runs: Vec<ToolRun>,
    /// Messages of [`Run::steer`] that the model did not see.
    pub unseen: Vec<String>,
}

/// One tool call of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolRun {
    /// Number of the request whose response had the call, starting at one.
    pub iteration: u32,
    /// Name of the tool.
    pub name: String,
    /// Arguments, in JSON.
    pub arguments: String,
    /// How it went.
    pub end: ToolRunEnd,
}

/// How a tool call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolRunEnd {
    /// The tool returned a result.
    Done,
    /// The tool failed, or there is no such tool.
    Failed,
    /// A process ended, or the time of the run was over, while the tool may have been running. It was not run
    /// again.
    Interrupted,
    /// The time of the run was over before the tool started.
    NotStarted,
}

impl AgentReport {
    fn new(response: ChatResponse, driver: Driver) -> Self {
        let Driver { state, agency, target, .. } = driver;
        let mut conversation = state.request.messages;
        if response.text().is_some() {
            conversation.push(ChatMessage::Assistant(state.answer.message(&target)));
        }
        let (tool_runs, unseen) =
            agency.map(|agency| (agency.progress.runs, agency.steering.take())).unwrap_or_default();
        Self { response, conversation, signals: state.signals, tool_runs, unseen }
    }
}

/// What the loop does with tool calls.
#[derive(Debug)]
pub(crate) struct Agency {
    tools: ToolSet,
    parallel: usize,
    same_calls: u32,
    steering: Steering,
    file: Option<RunFile>,
    progress: Progress,
}

/// Tool calls of a run: those that are over, and those of the last response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    runs: Vec<ToolRun>,
    calls: Vec<CallProgress>,
    /// Hash of the last calls, and how often they followed each other.
    #[serde(default)]
    last_calls: Option<(u64, u32)>,
    /// Messages of the user that wait for the next request.
    #[serde(default)]
    steering: Vec<String>,
}

/// Progress of one call of the last response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct CallProgress {
    /// Whether it may have started: the file says so before it does.
    started: bool,
    result: Option<ToolResult>,
    /// Whether it has started in this process.
    #[serde(skip)]
    is_begun: bool,
}

impl Agency {
    /// Returns the first call whose arguments do not match the schema of its tool.
    pub(crate) fn misfit<'c>(&self, calls: &'c [ToolCall]) -> Option<&'c ToolCall> {
        calls.iter().find(|call| !self.tools.fits(call))
    }

    pub(crate) fn steered(&self) -> Vec<String> {
        self.steering.take()
    }

    /// Counts calls that follow each other unchanged. Reports whether there were too many.
    pub(crate) fn repeats(&mut self, calls: &[ToolCall]) -> bool {
        let mut hash = Fnv::default();
        for call in calls {
            hash = hash.mix_bytes(call.name.as_bytes()).mix_bytes(call.object().as_bytes());
        }
        let same = self.progress.last_calls.filter(|(known, _)| *known == hash.value());
        let times = same.map_or(1, |(_, times)| times + 1);
        self.progress.last_calls = Some((hash.value(), times));
        times > self.same_calls
    }

    /// Runs the calls of the last response. Each runs at most once, over all processes.
    pub(crate) async fn run(
        &mut self,
        state: &TurnState,
        queue: Option<&Queue<RunEvent>>,
        left: Duration,
    ) -> ToolsEnd {
        // A run that was loaded from a file asks the rule again.
        let ending = state.answer.ending.as_ref();
        let calls = ending.and_then(|ending| whole(ending, &state.answer.calls).ok());
        let Some(calls) = calls.filter(|_| self.misfit(&state.answer.calls).is_none()) else {
            return ToolsEnd::Refused;
        };
        let mut progress = std::mem::take(&mut self.progress.calls);
        progress.resize_with(calls.len(), CallProgress::default);
        for (call, of) in calls.iter().zip(&mut progress) {
            let again = self.tools.get(call.name()).is_some_and(|tool| tool.is_idempotent());
            if of.started && of.result.is_none() && !again {
                of.result = Some(interrupted(call));
            }
            of.started = true;
        }
        self.progress.calls = progress;
        if !self.checkpoint(state) {
            // The saved run does not know that these calls start, and would run them again.
            return ToolsEnd::Refused;
        }
        let until = tokio::time::Instant::now() + left;
        let ran = tokio::time::timeout_at(until, self.run_all(&calls, state, queue)).await;
        let is_late = ran.is_err();
        let iteration = state.machine.spent().iterations;
        let mut results = Vec::new();
        for (call, of) in calls.iter().zip(std::mem::take(&mut self.progress.calls)) {
            let (end, result) = match of.result {
                Some(result) if result.content == INTERRUPTED => (ToolRunEnd::Interrupted, result),
                Some(result) if result.is_error => (ToolRunEnd::Failed, result),
                Some(result) => (ToolRunEnd::Done, result),
                None if of.is_begun => (ToolRunEnd::Interrupted, late(call, LATE)),
                None => (ToolRunEnd::NotStarted, late(call, NOT_STARTED)),
            };
            let (name, arguments) = (call.name().to_owned(), call.arguments().to_owned());
            self.progress.runs.push(ToolRun { iteration, name, arguments, end });
            results.push(result);
        }
        if is_late { ToolsEnd::OutOfTime(results) } else { ToolsEnd::Done(results) }
    }

    async fn run_all(
        &mut self,
        calls: &[Call<Whole>],
        state: &TurnState,
        queue: Option<&Queue<RunEvent>>,
    ) {
        let tools = self.tools.clone();
        let mut waiting = calls
            .iter()
            .enumerate()
            .filter(|(number, _)| {
                self.progress.calls.get(*number).is_some_and(|of| of.result.is_none())
            })
            .collect::<VecDeque<_>>();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < self.parallel
                && let Some((number, call)) = waiting.pop_front()
            {
                if let Some(queue) = queue {
                    queue.push(RunEvent::ToolStarted {
                        id: call.id().to_owned(),
                        name: call.name().to_owned(),
                        arguments: call.arguments().to_owned(),
                    });
                }
                if let Some(of) = self.progress.calls.get_mut(number) {
                    of.is_begun = true;
                }
                let tools = &tools;
                running.push(async move { (number, call, run_one(tools, call).await) });
            }
            let Some((number, call, output)) = running.next().await else { break };
            let result = result(call, output);
            if let Some(queue) = queue {
                queue.push(RunEvent::ToolFinished {
                    id: result.id.clone(),
                    name: result.name.clone(),
                    content: result.content.clone(),
                    is_error: result.is_error,
                });
            }
            if let Some(of) = self.progress.calls.get_mut(number) {
                of.result = Some(result);
            }
            self.checkpoint(state);
        }
    }
}

/// Result of a call that may or may not have run.
const INTERRUPTED: &str =
    "The call was interrupted: it may or may not have run. It was not run again.";

/// Results of calls that had no time.
const LATE: &str = "The time of the run was over: the call may or may not have run.";
const NOT_STARTED: &str = "The time of the run was over: the call was not run.";

fn interrupted(call: &Call<Whole>) -> ToolResult {
    late(call, INTERRUPTED)
}

fn late(call: &Call<Whole>, why: &str) -> ToolResult {
    result(call, Err(crate::tool::ToolError(why.to_owned())))
}

fn result(call: &Call<Whole>, output: ToolOutput) -> ToolResult {
    let (content, is_error) = match output {
        Ok(content) => (content, false),
        Err(error) => (error.0, true),
    };
    ToolResult { id: call.id().to_owned(), name: call.name().to_owned(), content, is_error }
}

/// Runs one call. A tool that panics has failed.
async fn run_one(tools: &ToolSet, call: &Call<Whole>) -> ToolOutput {
    let Some(tool) = tools.get(call.name()) else {
        let known = tools.names();
        let message = format!("unknown tool `{}`: expected one of {known}", call.name());
        return Err(crate::tool::ToolError(message));
    };
    match AssertUnwindSafe(tool.run(call)).catch_unwind().await {
        Ok(output) => output,
        Err(_) => Err(crate::tool::ToolError("the tool failed unexpectedly".to_owned())),
    }
}
