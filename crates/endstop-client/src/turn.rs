//! One turn: carries out what the machine of `endstop-turn` decides.
//!
//! The machine decides and counts; this module builds requests, sends them, joins texts, runs tools
//! and reports. Everything that a turn needs to go on in another process is in [`TurnState`].

use std::sync::Arc;
use std::time::Duration;

use endstop::chat::{
    self, AssistantMessage, ChatMessage, ChatRequest, Native, PastCall, ToolChoice, ToolResult,
};
use endstop::next_request::{
    Content, Impossible, NextRequest, RequestChange, SoFar, StoredStream, continue_answer,
    repair_tool_call, resume_paused, set_cap,
};
use endstop::provider::{Resume, TokenInput};
use endstop::signal::TerminationSignal;
use endstop::tool_call::{Allow, Assembly, Refusal, ToolCall, allow, first_broken, whole};
use endstop::{Ending, Event, Head, Reader, Reason, RequestInfo, Timer, TransportEnd, Usage};
use endstop_turn::continuation::{
    EndedResponse, Machine, Outcome, PlannedRequest, RequestKind, Step, Todo, TurnEvent, TurnInput,
    TurnStart,
};
use endstop_turn::observation::Observation;
use endstop_turn::policy::{
    self, Action, AgentLimits, Budget, Cause, Counter, Decision, Limit, MIN_CAP, Piece, Policy,
    Price, Terms,
};
use endstop_turn::splice::{Join, Streaming};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::agent::Agency;
use crate::client::{Inner, LoopState};
use crate::error::Error;
use crate::event::RunEvent;
use crate::observe::Observed;
use crate::queue::Queue;
use crate::quota::QuotaMetadata;
use crate::response::{AnswerPiece, ChatResponse, add, unproven};
use crate::target::Target;
use crate::transport::{Chunk, Incoming, NoResponse, Outgoing, Transport};

/// Maximum number of signals that are kept of a turn.
const MAX_SIGNALS: usize = 256;

/// Maximum length of the name of a compression in messages.
const MAX_ENCODING: usize = 40;

/// The state of a turn between two steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TurnState {
    /// Model, as `provider/model`.
    pub(crate) model: String,
    /// The conversation so far, and the settings.
    pub(crate) request: ChatRequest,
    pub(crate) machine: Machine,
    pub(crate) todo: Todo,
    pub(crate) answer: AnswerSoFar,
    /// Token counts of all responses.
    pub(crate) usage: Usage,
    pub(crate) signals: Vec<TerminationSignal>,
    /// Number of the policy's fallback models that were asked.
    #[serde(default)]
    pub(crate) fallbacks: usize,
    /// Number of requests for the rest of a stored stream.
    #[serde(default)]
    pub(crate) rests: u32,
    /// Number of requests that were sent once more, because a kept connection was closed.
    #[serde(default)]
    pub(crate) resent: u32,
    pub(crate) tokens_of_last: u64,
    pub(crate) ms_of_last: u64,
}

/// The answer of one iteration, over all of its responses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AnswerSoFar {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// Length of the text before the last response.
    kept: usize,
    /// Body of the request that asked for it.
    body: String,
    path: String,
    /// Content in the format of the wire, if all of it is known.
    native: Option<String>,
    /// Whether the native content is that of the whole answer.
    is_native_whole: bool,
    id: Option<String>,
    token: Option<String>,
    pub(crate) calls: Vec<ToolCall>,
    /// Name of the tool whose call is to be repaired; empty if it is not known.
    #[serde(default)]
    broken: String,
    /// Whether reading stopped because the turn has all the characters that it may have.
    #[serde(default)]
    is_full: bool,
    pub(crate) ending: Option<Ending>,
    pub(crate) quota: QuotaMetadata,
    /// Compression of the last response; empty if there is none.
    #[serde(default)]
    encoding: String,
    pub(crate) pieces: Vec<AnswerPiece>,
    /// Token counts of its responses.
    pub(crate) usage: Usage,
}

/// A turn under way.
pub(crate) struct Driver {
    pub(crate) inner: Arc<Inner>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) target: Target,
    pub(crate) transport: Transport,
    pub(crate) state: TurnState,
    pub(crate) queue: Option<Queue<RunEvent>>,
    /// Headers of the caller. They may be secret, so that they are not saved.
    pub(crate) headers: Vec<(String, String)>,
    /// Tools and what the loop does with them, or `None` if calls are left to the caller.
    pub(crate) agency: Option<Agency>,
}

/// How the tool calls of a response went.
#[cfg_attr(not(feature = "agent"), expect(dead_code, reason = "nothing runs tools"))]
pub(crate) enum ToolsEnd {
    /// All have results.
    Done(Vec<ToolResult>),
    /// The turn's time was over first. Calls without a result have one that says so.
    OutOfTime(Vec<ToolResult>),
    /// They may not run.
    Refused,
}

/// A request that is ready to be sent.
struct Sent {
    body: Option<String>,
    url: String,
    path: String,
    headers: &'static [(&'static str, &'static str)],
    join: Join,
    /// Text that an echo repeats.
    echo: String,
    /// White space at the end of the answer that the request leaves out. The reply may repeat it.
    spaces: String,
}

/// Reason why a request cannot be built.
#[derive(Debug)]
enum NotBuilt {
    Impossible(#[expect(dead_code, reason = "shown in debug output")] Impossible),
    Unwritable(#[expect(dead_code, reason = "shown in debug output")] chat::Unwritable),
    NoId,
}

impl TurnState {
    /// Begins a turn.
    ///
    /// # Errors
    /// Fails if the wire cannot express the request, or if the cost is limited and the price is not known.
    pub(crate) fn begin(
        target: &Target,
        name: &str,
        request: ChatRequest,
        policy: &Policy,
        delivers: bool,
        now_ms: u64,
    ) -> Result<(Self, Step), Error> {
        let written = chat::write(target.profile(), &request)?;
        let price = price_of(target, policy)?;
        let turn = uuid::Uuid::now_v7().simple().to_string();
        let start = TurnStart {
            policy: policy.clone(),
            provider: target.wire.provider().to_owned(),
            budget: Budget {
                cap: request.max_output_tokens,
                cap_is_users: request.max_output_tokens.is_some(),
                price,
                ..Budget::default()
            },
            delivers,
            conversation_messages: u32::try_from(request.messages.len()).ok(),
            input_tokens: Some(Piece::of(&written.body).tokens()),
            ..TurnStart::new(turn)
        };
        let (machine, step) = Machine::begin(start, now_ms);
        let state = Self {
            model: name.to_owned(),
            request,
            machine,
            todo: step.todo.clone(),
            answer: AnswerSoFar::default(),
            usage: Usage::default(),
            signals: Vec::new(),
            fallbacks: 0,
            rests: 0,
            resent: 0,
            tokens_of_last: 0,
            ms_of_last: 0,
        };
        Ok((state, step))
    }
}

/// Returns the price of a model.
///
/// # Errors
/// Fails if the cost is limited and the price is not known: the limit could not be kept.
pub(crate) fn price_of(target: &Target, policy: &Policy) -> Result<Option<Price>, Error> {
    let provider = target.wire.provider();
    let price = policy.price_of(provider, &target.model);
    let Terms { limits, .. } = policy.terms(provider, Reason::Complete);
    if limits.turn_max_cost.is_some() && price.is_none() {
        let (provider, model) = (provider.to_owned(), target.model.clone());
        return Err(Error::NoPrice { provider, model });
    }
    Ok(price)
}

impl AnswerSoFar {
    /// Drops the text of the last response.
    fn discard(&mut self) {
        self.text.truncate(self.kept);
        self.calls.clear();
        self.native = None;
        if let Some(last) = self.pieces.last_mut() {
            last.chars = 0;
        }
    }

    fn so_far<'a>(&'a self, content: Option<&'a RawValue>, is_over: bool) -> SoFar<'a> {
        SoFar {
            text: &self.text,
            id: self.id.as_deref().filter(|_| is_over),
            token: self.token.as_deref(),
            content,
        }
    }

    /// Returns the message for the conversation.
    pub(crate) fn message(&self, target: &Target) -> AssistantMessage {
        let native = self.native.clone().filter(|_| self.is_native_whole);
        AssistantMessage {
            text: self.text.clone(),
            reasoning: self.reasoning.clone(),
            calls: self
                .calls
                .iter()
                .map(|call| PastCall {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: call.object().to_owned(),
                })
                .collect(),
            native: native.map(|content| Native {
                provider: target.profile().provider.to_owned(),
                dialect: target.profile().dialect.id.to_owned(),
                content,
            }),
        }
    }
}

impl Driver {
    /// Runs the turn to its end.
    pub(crate) async fn run(mut self, first: Step) -> (ChatResponse, Self) {
        self.report(&first);
        let outcome = loop {
            if let Some(agency) = &mut self.agency {
                agency.checkpoint(&self.state);
            }
            match self.state.todo.clone() {
                Todo::Send(plan) => self.send(&plan).await,
                Todo::Prepare(plan) => {
                    let has_model = !plan.other_model || self.change_model().is_some();
                    if has_model && self.build(&plan).is_ok() {
                        self.step(TurnInput::Prepared);
                    } else {
                        self.step(TurnInput::Unavailable);
                    }
                }
                Todo::Wait { ms } => {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    self.step(TurnInput::Tick);
                }
                Todo::RunTools => self.run_tools().await,
                Todo::Finish(outcome) => break outcome,
                // No input of ours is out of place. If one were, the turn would not go on for ever.
                Todo::Ignored => self.step(TurnInput::Cancel),
            }
            if let Some(queue) = &self.queue {
                queue.taken().await;
            }
        };
        (self.response(*outcome), self)
    }

    fn step(&mut self, input: TurnInput<'_>) {
        let now_ms = self.inner.clock.now_ms();
        let (machine, step) = self.state.machine.clone().step(input, now_ms);
        self.state.machine = machine;
        self.state.todo = step.todo.clone();
        self.report(&step);
    }

    /// Tells the events of a step to subscribers and to whoever follows the turn.
    fn report(&self, step: &Step) {
        step.events.iter().for_each(|event| self.tell(event));
    }

    fn tell(&self, event: &TurnEvent) {
        let told = Observation::of_turn(event, self.target.wire.provider(), &self.target.model);
        self.inner.subscribers.iter().for_each(|known| known.event(&told));
        self.put(|| RunEvent::Turn(Box::new(event.clone())));
    }

    pub(crate) fn put(&self, event: impl FnOnce() -> RunEvent) {
        if let Some(queue) = &self.queue {
            queue.push(event());
        }
    }

    /// Sends a request, reads its response and reports it to the machine.
    async fn send(&mut self, plan: &PlannedRequest) {
        let begins_anew = matches!(plan.how, RequestKind::First | RequestKind::AfterTools);
        if plan.discard {
            let answer = &self.state.answer;
            let kept = if begins_anew { 0 } else { answer.kept };
            if answer.text.len() > kept {
                self.put(|| RunEvent::TextDiscarded { kept });
            }
            self.state.answer.discard();
        }
        let Ok(sent) = self.build(plan) else { return self.step(TurnInput::Unavailable) };
        if begins_anew {
            let body = sent.body.clone().unwrap_or_default();
            let path = sent.path.clone();
            self.state.answer = AnswerSoFar { body, path, ..AnswerSoFar::default() };
        }
        let began = Instant::now();
        let mut ended = self.exchange(plan, &sent).await;
        self.state.ms_of_last = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        ended.decision = self.decide(&ended);
        self.step(TurnInput::Ended(&ended));
    }

    /// Changes to the next fallback model that can be asked. Returns `None` if there is none.
    fn change_model(&mut self) -> Option<()> {
        let (number, target) = self.fallback().ok()?;
        self.state.fallbacks = number + 1;
        let name = self.policy.fallback_models.get(number)?;
        self.state.model.clone_from(name);
        self.state.request.model.clone_from(&target.model);
        let price = price_of(&target, &self.policy).ok()?;
        self.state.machine.change_model(target.wire.provider(), price);
        self.target = target;
        Some(())
    }

    /// Returns the next fallback model that can be asked, with its number.
    ///
    /// # Errors
    /// Returns the reason why the last one cannot be asked, or `None` if none is left.
    fn fallback(&self) -> Result<(usize, Target), Option<Error>> {
        let mut why = None;
        let models = self.policy.fallback_models.iter().enumerate().skip(self.state.fallbacks);
        for (number, name) in models {
            let usable = self.inner.settings.target(name).and_then(|target| {
                price_of(&target, &self.policy)?;
                let request =
                    ChatRequest { model: target.model.clone(), ..self.state.request.clone() };
                chat::write(target.profile(), &request)?;
                Ok(target)
            });
            match usable {
                Ok(target) => return Ok((number, target)),
                Err(error) => why = Some(error),
            }
        }
        Err(why)
    }

    /// Sends a request and reads its response.
    async fn exchange(&mut self, plan: &PlannedRequest, sent: &Sent) -> EndedResponse {
        let body = sent.body.as_deref();
        let profile = self.target.wire.profile;
        let read_from = body.unwrap_or(&self.state.answer.body).as_bytes();
        let info = RequestInfo::from_request(&profile, &sent.path, read_from);
        let stored = body.and_then(|_| StoredStream::new(&profile, &info));
        let turn = (self.state.machine.turn(), self.state.machine.spent().iterations);
        let mut observed = self.inner.observer.begin(turn, (&self.target.wire, &sent.path), &info);
        let outgoing = Outgoing {
            target: &self.target,
            body,
            url: &sent.url,
            headers: sent.headers,
            own_headers: &self.headers,
            until: self.until(plan),
        };
        let mut sending = self.transport.send(&outgoing).await;
        if matches!(sending, Err(NoResponse { was_kept: true, .. })) {
            // Servers close connections that they promised to keep. Whether one is dead shows only when it
            // is used, so that the request is sent once more, as browsers and curl do.
            let index = self.state.resent.saturating_add(1);
            self.tell(&TurnEvent::RequestResent {
                turn: self.state.machine.turn().to_owned(),
                iteration: self.state.machine.spent().iterations,
                index,
            });
            sending = self.transport.send(&outgoing).await;
            self.state.resent = index;
        }
        let mut incoming = match sending {
            Ok(incoming) => incoming,
            Err(NoResponse { end, .. }) => {
                let reader = Reader::new(self.target.wire.clone(), Head::default(), info);
                let ending = reader.finish(end, |_| {});
                self.observe(observed, &ending);
                return self.ended(plan, ending, Reply::default());
            }
        };
        observed.head(incoming.status);
        self.state.answer.quota = std::mem::take(&mut incoming.quota);
        self.state.answer.encoding = endstop::text::clean(&incoming.encoding, MAX_ENCODING);
        let head = Head { status: incoming.status, content_type: &incoming.content_type };
        let mut stored = stored.filter(|_| head.names_stream());
        let mut reader = Reader::new(self.target.wire.clone(), head, info);
        let mut reply = Reply::new(sent, &profile, &incoming.content_type);
        reply.room = self.room();
        let mut is_told = false;
        let end = loop {
            let bytes = match (incoming.chunk().await, &mut stored) {
                (Chunk::Data(bytes), None) => bytes,
                (Chunk::Data(bytes), Some(stored)) => stored.push(&bytes).into(),
                (Chunk::End(end), None) => break end,
                (Chunk::End(end), Some(stored)) => {
                    let id = reply.id.as_deref().filter(|_| reader.so_far().is_none());
                    match self.rest(plan, stored, id, end).await {
                        Some(rest) => incoming = rest,
                        None => break end,
                    }
                    continue;
                }
            };
            reply.content.as_mut().into_iter().for_each(|content| content.push(&bytes));
            let mut heard = Vec::new();
            let queue = self.queue.as_ref();
            observed.read(|| {
                reader.read(&bytes, |event| reply.hear(&event, queue.map(|_| &mut heard)));
            });
            // What comes would not belong to the answer.
            let is_full = reply.is_full;
            if let Some(queue) = queue {
                heard.into_iter().for_each(|event| queue.push(event));
                if !is_told && let Some(ending) = reader.so_far() {
                    is_told = true;
                    queue.push(RunEvent::Signal(Box::new((&ending).into())));
                }
                queue.taken().await;
            }
            if is_full {
                break TransportEnd::Dropped;
            }
        };
        let mut heard = Vec::new();
        let queue = self.queue.as_ref();
        if let Some(mut stored) = stored {
            let tail = stored.take_tail();
            reply.content.as_mut().into_iter().for_each(|content| content.push(&tail));
            reader.read(&tail, |event| reply.hear(&event, queue.map(|_| &mut heard)));
        }
        let ending = reader.finish(end, |event| reply.hear(&event, queue.map(|_| &mut heard)));
        reply.finish(queue.map(|_| &mut heard));
        if let Some(queue) = queue {
            heard.into_iter().for_each(|event| queue.push(event));
        }
        self.observe(observed, &ending);
        self.ended(plan, ending, reply)
    }

    /// Tells subscribers that a response is over.
    fn observe(&self, observed: Observed, ending: &Ending) {
        let Inner { observer, subscribers, .. } = &*self.inner;
        observer.ended(subscribers, &self.target.wire, observed, ending);
    }

    /// Returns the end of a request's time.
    fn until(&self, plan: &PlannedRequest) -> Instant {
        let left = plan.deadline_ms.saturating_sub(self.inner.clock.now_ms());
        Instant::now() + Duration::from_millis(left)
    }

    /// Asks for the rest of a stream that was cut, if the provider stores it. The policy's limit on
    /// attempts after cut streams applies.
    async fn rest(
        &mut self,
        plan: &PlannedRequest,
        stored: &mut StoredStream,
        id: Option<&str>,
        end: TransportEnd,
    ) -> Option<Incoming> {
        let path = stored.rest_of(id?)?;
        let Terms { limits, rule, .. } =
            self.policy.terms(self.target.wire.provider(), Reason::Cut);
        let is_out_of_time = matches!(end, TransportEnd::TimedOut(Timer::Total));
        if rule.action == Some(Action::Stop) || is_out_of_time {
            return None;
        }
        stored.take_tail();
        let url = format!("{}{path}", self.target.base_url);
        let mut wait = limits.retry_backoff_ms;
        while self.state.rests < limits.cut_max_attempts {
            self.state.rests += 1;
            self.tell(&TurnEvent::ResumeAttempt {
                turn: self.state.machine.turn().to_owned(),
                iteration: self.state.machine.spent().iterations,
                index: self.state.rests,
                counter: Counter::Cuts,
            });
            tokio::time::sleep(Duration::from_millis(wait.min(limits.retry_backoff_max_ms))).await;
            wait = wait.saturating_mul(2);
            let outgoing = Outgoing {
                target: &self.target,
                body: None,
                url: &url,
                headers: self.headers(),
                own_headers: &self.headers,
                until: self.until(plan),
            };
            match self.transport.send(&outgoing).await {
                Ok(incoming) if incoming.status == 200 => return Some(incoming),
                // The provider has forgotten the response, or asks for a wait.
                Ok(_) => return None,
                Err(_) => {}
            }
        }
        None
    }

    /// Returns the number of characters that the turn may still have, or `None` if they are not limited.
    fn room(&self) -> Option<u64> {
        let most = self.limits().turn_max_output_chars?;
        Some(most.saturating_sub(self.state.machine.spent().all_chars))
    }

    /// Adds a response to the answer, and returns it for the machine.
    fn ended(&mut self, plan: &PlannedRequest, ending: Ending, reply: Reply) -> EndedResponse {
        let Reply {
            text, raw_chars, reasoning, calls, content, id, token, trimmed, is_full, ..
        } = reply;
        let calls = calls.finish(&ending);
        let mut allowed = (!calls.is_empty()).then(|| allow(&ending, &calls));
        if allowed == Some(Allow::Run)
            && self.agency.as_ref().is_some_and(|agency| agency.misfit(&calls).is_some())
        {
            allowed = Some(Allow::Refuse(Refusal::Schema));
        }
        let misfit = self.agency.as_ref().and_then(|agency| agency.misfit(&calls));
        let broken = first_broken(&calls).or(misfit).or(calls.first());
        let broken = broken.map(|call| call.name.clone());
        let piece = Piece::of(&raw_chars).trimmed(trimmed);
        let state = &mut self.state;
        let answer = &mut state.answer;
        answer.kept = answer.text.len();
        answer.text.push_str(&text);
        answer.reasoning.push_str(&reasoning);
        let native = content.and_then(Content::finish).map(|content| content.get().to_owned());
        let resumes = plan.how == RequestKind::Resume;
        answer.is_native_whole = native.is_some()
            && (answer.pieces.is_empty() || answer.is_native_whole && resumes || answer.kept == 0);
        answer.native = match (answer.native.take().filter(|_| resumes), native) {
            (Some(before), Some(more)) => joined_lists(&before, &more),
            (_, native) => native,
        };
        answer.calls = calls;
        answer.is_full = is_full;
        // A repair that brings no call asks for the same one again.
        if let Some(name) = broken {
            answer.broken = name;
        }
        answer.id = id.or_else(|| answer.id.take().filter(|_| plan.how == RequestKind::Poll));
        answer.token = token;
        add(&mut answer.usage, &ending.usage);
        add(&mut state.usage, &ending.usage);
        state.tokens_of_last = ending
            .input_tokens()
            .unwrap_or(0)
            .saturating_add(ending.output_tokens().unwrap_or_else(|| piece.tokens()));
        answer.pieces.push(AnswerPiece {
            reason: ending.reason,
            chars: text.chars().count() as u64,
            trimmed_chars: trimmed,
            asked_by: asked_by(plan.how).to_owned(),
            usage: ending.usage,
        });
        answer.ending = Some(ending.clone());
        if state.signals.len() >= MAX_SIGNALS {
            state.signals.remove(0);
        }
        state.signals.push((&ending).into());
        let model = ending.model.as_deref().unwrap_or_default();
        let priced = |model: &str| self.policy.price_of(self.target.wire.provider(), model);
        EndedResponse {
            piece: Some(piece),
            tools: allowed,
            price: priced(model).or_else(|| priced(&self.target.model)),
            retry_after_ms: state.answer.quota.retry_after_ms,
            ..EndedResponse::new(ending, piece)
        }
    }

    /// Returns the decision about a response, unless it is left to the policy.
    fn decide(&mut self, ended: &EndedResponse) -> Option<Decision> {
        if self.state.answer.is_full {
            let limit = Limit::TurnOutputChars;
            let mut stop = Decision::new(Action::Stop, limit.description());
            stop.cause = Cause::OutputLimit;
            stop.metadata.limit = Some(limit);
            return Some(stop);
        }
        let context = self.state.machine.context(ended, self.inner.clock.now_ms());
        let proposed = policy::decide(&ended.ending, &context, &self.policy);
        let mut told = None;
        if let Some(callback) = &self.inner.callback
            && let Some(current) = self.state.signals.last()
        {
            let state = LoopState {
                signals: &self.state.signals,
                current,
                ending: &ended.ending,
                context: &context,
                proposed: &proposed,
            };
            told = callback.0(&state);
        }
        let action = told.as_ref().unwrap_or(&proposed).action;
        if action == Action::OtherModel
            && let Err(why) = self.fallback()
        {
            if proposed.action != Action::OtherModel {
                // Only the callback asked for one.
                return None;
            }
            let sentence = match why {
                Some(why) => format!("no other model can be asked: {why}"),
                None => "no other model is left to ask".to_owned(),
            };
            let mut stop = Decision::new(Action::ChangePrompt, sentence);
            stop.cause = Cause::Blocked;
            return Some(stop);
        }
        if action != Action::RunTools {
            return told;
        }
        let calls = &self.state.answer.calls;
        let repeats = self.agency.as_mut().map(|agency| agency.repeats(calls));
        match repeats {
            None => {
                let mut left = Decision::new(Action::Stop, "the tool calls are left to the caller");
                left.cause = Cause::ToolCalls;
                Some(left)
            }
            Some(true) => {
                let sentence = "the model repeats the same tool calls";
                let mut stop = Decision::new(Action::Stop, sentence);
                stop.cause = Cause::ToolCalls;
                stop.metadata.limit = Some(Limit::Repetition);
                Some(stop)
            }
            Some(false) => told,
        }
    }

    /// Builds a request.
    fn build(&self, plan: &PlannedRequest) -> Result<Sent, NotBuilt> {
        let answer = &self.state.answer;
        let (profile, model) = (self.target.profile(), self.target.model.as_str());
        let wording = &self.policy.wording;
        let content = answer.native.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let over = |is_over: bool| answer.so_far(content, is_over);
        let next = match plan.how {
            RequestKind::First | RequestKind::AfterTools => return self.written(plan),
            RequestKind::Poll => return self.polled(),
            RequestKind::Continue => {
                continue_answer(profile, model, &answer.body, &over(true), wording)
            }
            RequestKind::ResumeText => {
                continue_answer(profile, model, &answer.body, &over(false), wording)
            }
            RequestKind::Repair => {
                let tool = answer.broken.as_str();
                repair_tool_call(profile, model, &answer.body, &over(true), tool, wording)
            }
            RequestKind::Resume => resume_paused(profile, &answer.body, &over(true)),
        };
        self.changed(plan, next.map_err(NotBuilt::Impossible)?)
    }

    /// Builds a request from the conversation.
    fn written(&self, plan: &PlannedRequest) -> Result<Sent, NotBuilt> {
        let mut request = self.state.request.clone();
        request.max_output_tokens = plan.cap.or(request.max_output_tokens);
        if plan.how == RequestKind::AfterTools && self.is_last_request() {
            request.tool_choice = ToolChoice::None;
        }
        let written = chat::write(self.target.profile(), &request).map_err(NotBuilt::Unwritable)?;
        Ok(Sent {
            url: format!("{}{}", self.target.base_url, written.path),
            body: Some(written.body),
            path: written.path,
            headers: written.headers,
            join: Join::Prefill,
            echo: String::new(),
            spaces: String::new(),
        })
    }

    /// Builds a request that polls a response.
    fn polled(&self) -> Result<Sent, NotBuilt> {
        let poll = self.target.profile().request_shape.poll;
        let id = self.state.answer.id.as_deref().filter(|_| !poll.is_empty());
        let path = format!("{poll}{}", id.ok_or(NotBuilt::NoId)?);
        Ok(Sent {
            url: format!("{}{path}", self.target.base_url),
            body: None,
            path,
            headers: self.headers(),
            join: Join::Prefill,
            echo: String::new(),
            spaces: String::new(),
        })
    }

    /// Builds a request that continues the answer.
    fn changed(&self, plan: &PlannedRequest, next: NextRequest) -> Result<Sent, NotBuilt> {
        let (profile, answer) = (self.target.profile(), &self.state.answer);
        let mut body = next.request.get().to_owned();
        if let Some(cap) = plan.cap {
            // Some providers also count earlier pieces against the limit.
            let before = answer.usage.output.unwrap_or(0);
            let cap = if next.cap_counts_all { cap.saturating_add(before) } else { cap };
            let capped = set_cap(profile, &body, cap).map_err(NotBuilt::Impossible)?;
            body = capped.request.get().to_owned();
        }
        let (sent, spaces) = answer.text.split_at(answer.text.len().saturating_sub(next.trimmed));
        let base_url = next.base_url.filter(|_| self.target.is_usual_url);
        let base_url = base_url.unwrap_or(&self.target.base_url);
        Ok(Sent {
            url: format!("{base_url}{}", answer.path),
            body: Some(body),
            path: answer.path.clone(),
            headers: self.headers(),
            join: self.join(&next),
            echo: sent.to_owned(),
            spaces: spaces.to_owned(),
        })
    }

    /// Returns the way in which a reply joins the text before it.
    fn join(&self, next: &NextRequest) -> Join {
        match &next.how {
            RequestChange::Prefill if next.echoes => Join::Echo,
            RequestChange::Prefill if next.echoes_if_empty => Join::EmptyEcho,
            RequestChange::Prefill | RequestChange::Resend => Join::Prefill,
            RequestChange::Token { .. } => {
                let hinted = match self.target.profile().resume_for(&self.target.model) {
                    Resume::Token(token) => {
                        matches!(token.input, TokenInput::Hint(..) | TokenInput::HintText(_))
                    }
                    Resume::Prefill(_) | Resume::Hint(_) | _ => false,
                };
                if hinted { Join::Hint } else { Join::Prefill }
            }
            RequestChange::Hint { .. } | RequestChange::Repair { .. } | _ => Join::Hint,
        }
    }

    /// Returns the limits of the turn, with those of the policy for this provider.
    fn limits(&self) -> AgentLimits {
        self.policy.terms(self.target.wire.provider(), Reason::Complete).limits
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        self.target.profile().request_shape.writer.map_or(&[], |writer| writer.headers)
    }

    /// Reports whether the limits leave room for this request and hardly for another one. Then it
    /// asks for an answer without tools, so that the work before it is not lost.
    fn is_last_request(&self) -> bool {
        let limits = self.limits();
        let spent = self.state.machine.spent();
        let scarce = |limit: u64, spent: u64, next: u64| {
            limit.saturating_sub(spent) < next.saturating_mul(2)
        };
        let tokens = spent.input_tokens.saturating_add(spent.output_tokens);
        // This request is counted already, but not answered.
        let answered = u64::from(spent.iterations.saturating_sub(1).max(1));
        // What a request needs at least: that many were spent on each before, and no smaller output limit is sent.
        let output = spent.output_tokens.div_ceil(answered).max(MIN_CAP);
        let price = self.policy.price_of(self.target.wire.provider(), &self.target.model);
        let cheapest = price.unwrap_or_default().of(self.state.tokens_of_last, MIN_CAP).micros();
        let cost = spent.cost.micros().div_ceil(answered).max(cheapest);
        let chars = spent.all_chars.div_ceil(answered);
        spent.iterations >= limits.turn_max_iterations
            || scarce(limits.turn_max_total_tokens, tokens, self.state.tokens_of_last)
            || scarce(limits.turn_max_time.0, spent.elapsed_ms, self.state.ms_of_last)
            || limits
                .turn_max_completion_tokens
                .is_some_and(|most| scarce(most, spent.output_tokens, output))
            || limits.turn_max_output_chars.is_some_and(|most| scarce(most, spent.all_chars, chars))
            || limits
                .turn_max_cost
                .is_some_and(|most| scarce(most.micros(), spent.cost.micros(), cost))
    }

    /// Returns the answer of the turn.
    fn response(&self, outcome: Outcome) -> ChatResponse {
        let answer = &self.state.answer;
        let ending = answer.ending.clone().unwrap_or_else(|| {
            let reader =
                Reader::new(self.target.wire.clone(), Head::default(), RequestInfo::default());
            reader.finish(TransportEnd::Dropped, |_| {})
        });
        let calls = whole(&ending, &answer.calls).unwrap_or_default();
        ChatResponse {
            unproven: if calls.is_empty() { unproven(&answer.calls) } else { Vec::new() },
            calls,
            origin: self.target.origin.clone(),
            encoding: answer.encoding.clone(),
            text_so_far: answer.text.clone(),
            reasoning_content: Some(answer.reasoning.clone()).filter(|text| !text.is_empty()),
            usage: self.state.usage,
            quota_metadata: answer.quota.clone(),
            stop_reason: ending.finish_reason().is_some().then(|| ending.stop_reason()),
            raw_stop_reason: ending.native().map(|(_, word)| word.to_owned()),
            signal: (&ending).into(),
            ending,
            decision: outcome.decision.clone(),
            pieces: answer.pieces.clone(),
            outcome,
        }
    }

    /// Runs the tool calls of the last response, and adds their results to the conversation.
    async fn run_tools(&mut self) {
        let Some(mut agency) = self.agency.take() else { return self.step(TurnInput::ToolsLost) };
        let message = self.state.answer.message(&self.target);
        let spent = self.state.machine.spent().elapsed_ms;
        let left = self.limits().turn_max_time.0.saturating_sub(spent);
        let left = Duration::from_millis(left);
        let end = agency.run(&self.state, self.queue.as_ref(), left).await;
        self.agency = Some(agency);
        match end {
            ToolsEnd::Done(results) => {
                let mut added: u64 = results.iter().map(|result| tokens_of(&result.content)).sum();
                self.state.request.messages.push(ChatMessage::Assistant(message));
                self.state.request.messages.push(ChatMessage::Tool { results });
                let steered = self.agency.as_ref().map(Agency::steered).unwrap_or_default();
                added += steered.iter().map(|text| tokens_of(text)).sum::<u64>();
                self.state.request.messages.extend(steered.into_iter().map(ChatMessage::user));
                self.state.machine.lengthen(added);
                self.step(TurnInput::ToolsDone);
            }
            ToolsEnd::OutOfTime(results) => {
                self.state.request.messages.push(ChatMessage::Assistant(message));
                self.state.request.messages.push(ChatMessage::Tool { results });
                self.step(TurnInput::Tick);
            }
            ToolsEnd::Refused => self.step(TurnInput::ToolsLost),
        }
    }
}

/// The content of one response.
#[derive(Default)]
struct Reply {
    /// Text that it adds to the answer.
    text: String,
    /// All of its text.
    raw_chars: String,
    reasoning: String,
    calls: Assembly,
    content: Option<Content>,
    id: Option<String>,
    token: Option<String>,
    /// Characters left out at the seam.
    trimmed: u64,
    join: Option<Streaming>,
    spaces: String,
    /// Characters that may still come, or `None` if they are not limited.
    room: Option<u64>,
    /// Whether more came.
    is_full: bool,
}

impl Reply {
    fn new(sent: &Sent, profile: &endstop::Profile, content_type: &str) -> Self {
        Self {
            content: Some(Content::new(profile, content_type)),
            join: Some(Streaming::new(&sent.echo, sent.join)),
            spaces: sent.spaces.clone(),
            ..Self::default()
        }
    }

    fn hear(&mut self, event: &Event<'_>, heard: Option<&mut Vec<RunEvent>>) {
        self.calls.observe(event);
        let told = if let Event::Text { choice: 0, text } = event {
            let text = self.within(text);
            self.raw_chars.push_str(text);
            let Some(join) = &mut self.join else { return };
            let shown = join.push(text);
            Self::show(&mut self.text, &mut self.spaces, &mut self.trimmed, shown, heard);
            return;
        } else if let Event::Reasoning { choice: 0, text } = event {
            self.reasoning.push_str(text);
            RunEvent::Reasoning((*text).to_owned())
        } else if let Event::ToolCallStart { call, name, .. } = event {
            RunEvent::CallStarted { call: *call, name: (*name).to_owned() }
        } else if let Event::ToolCallDelta { call, arguments, .. } = event {
            RunEvent::CallDelta { call: *call, arguments: (*arguments).to_owned() }
        } else {
            if let Event::Begin { id, .. } = event
                && !id.is_empty()
            {
                self.id = Some((*id).to_owned());
            }
            if let Event::ResumeToken { choice: 0, token } = event {
                self.token = Some((*token).to_owned());
            }
            return;
        };
        if let Some(heard) = heard {
            heard.push(told);
        }
    }

    /// Returns the part of a text for which there is room.
    fn within<'t>(&mut self, text: &'t str) -> &'t str {
        let Some(room) = &mut self.room else { return text };
        let chars = text.chars().count() as u64;
        if chars <= *room {
            *room -= chars;
            return text;
        }
        let end = usize::try_from(*room).ok().and_then(|room| text.char_indices().nth(room));
        *room = 0;
        self.is_full = true;
        end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
    }

    /// Adds text to the answer, without white space that the answer already has.
    fn show(
        text: &mut String,
        spaces: &mut String,
        trimmed: &mut u64,
        shown: &str,
        heard: Option<&mut Vec<RunEvent>>,
    ) {
        let mut shown = shown;
        while let (Some(space), Some(first)) = (spaces.chars().next(), shown.chars().next()) {
            if space != first {
                spaces.clear();
                break;
            }
            spaces.remove(0);
            *trimmed += 1;
            shown = shown.get(first.len_utf8()..).unwrap_or_default();
        }
        if shown.is_empty() {
            return;
        }
        text.push_str(shown);
        if let Some(heard) = heard {
            heard.push(RunEvent::Text(shown.to_owned()));
        }
    }

    /// Releases the text that was held back at the seam.
    fn finish(&mut self, heard: Option<&mut Vec<RunEvent>>) {
        let Some(join) = self.join.take() else { return };
        let (rest, splice) = join.finish();
        self.trimmed += splice.trimmed_characters as u64;
        Self::show(&mut self.text, &mut self.spaces, &mut self.trimmed, &rest, heard);
    }
}

/// Estimates the number of tokens of a text.
fn tokens_of(text: &str) -> u64 {
    Piece::of(text).tokens()
}

/// Joins two JSON lists.
fn joined_lists(one: &str, other: &str) -> Option<String> {
    let inner =
        |list: &str| Some(list.trim().strip_prefix('[')?.strip_suffix(']')?.trim().to_owned());
    let parts = [inner(one)?, inner(other)?];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(format!("[{}]", parts.join(",")))
}

fn asked_by(how: RequestKind) -> &'static str {
    match how {
        RequestKind::First => "first",
        RequestKind::AfterTools => "after_tools",
        RequestKind::Continue => "continue",
        RequestKind::ResumeText => "resume_text",
        RequestKind::Repair => "repair",
        RequestKind::Resume => "resume",
        RequestKind::Poll => "poll",
    }
}
