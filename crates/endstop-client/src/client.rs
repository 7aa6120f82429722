//! The client: one for all providers.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use endstop::Ending;
use endstop::chat::{ChatMessage, ChatPart, ChatRequest, Image, Tool, ToolChoice};
use endstop::registry::Registry;
use endstop::signal::TerminationSignal;
use endstop_turn::observation::Subscriber;
use endstop_turn::policy::{Decision, DecisionContext, Policy, Strategy};
use tokio::time::Instant;

#[cfg(feature = "agent")]
use crate::agent::Agent;
use crate::error::Error;
use crate::event::RunEvent;
use crate::observe::Observer;
use crate::queue::{Queue, Running};
use crate::response::ChatResponse;
use crate::subscriber::Tracing;
use crate::target::{Secret, Settings, Target, Variables};
use crate::transport::{Timeouts, Transport};
use crate::turn::{Driver, TurnState};

/// A client for all providers. Cloning it is cheap.
///
/// A model is named `provider/model`, such as `openai/gpt-5`. If a provider speaks several wires,
/// `provider:wire/model` chooses one: `openai:responses/gpt-5`.
///
/// ```no_run
/// # async fn example() -> Result<(), endstop_client::Error> {
/// use endstop_client::Client;
///
/// let client = Client::from_env();
/// let reply = client.chat("anthropic/claude-sonnet-5", "Write a haiku.").await?;
/// println!("{}", reply.text().unwrap_or("(no complete answer)"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// The parts of a client that its turns share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    /// HTTP, or the reason why there is none. The first request reports it.
    transport: Result<Transport, Error>,
    pub(crate) policy: Policy,
    pub(crate) subscribers: Subscribers,
    pub(crate) observer: Observer,
    pub(crate) callback: Option<Callback>,
    pub(crate) clock: Clock,
}

/// Subscribers, without debug output.
pub(crate) struct Subscribers(pub(crate) Vec<Arc<dyn Subscriber>>);

impl std::ops::Deref for Subscribers {
    type Target = [Arc<dyn Subscriber>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl fmt::Debug for Subscribers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} subscribers", self.0.len())
    }
}

/// Function that sees the state of a turn and may change a decision.
pub(crate) struct Callback(pub(crate) Decide);

type Decide = Arc<dyn Fn(&LoopState<'_>) -> Option<Decision> + Send + Sync>;

impl fmt::Debug for Callback {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Callback")
    }
}

/// The state of a turn after a response, for a function that decides.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LoopState<'a> {
    /// Signals of all responses of the turn, the current one last.
    pub signals: &'a [TerminationSignal],
    /// Signal of the current response, with the provider's metadata.
    pub current: &'a TerminationSignal,
    /// Ending of the current response.
    pub ending: &'a Ending,
    /// Spending, limits and text measurements.
    pub context: &'a DecisionContext,
    /// The policy's decision.
    pub proposed: &'a Decision,
}

/// Milliseconds since 1970, which never go back. They follow tokio's clock, so that tests can use
/// virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_ms: u64,
    started: Instant,
}

impl Clock {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Self { start_ms, started: Instant::now() }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.start_ms.saturating_add(elapsed)
    }
}

impl Client {
    /// Creates a client with the keys and base URLs of the environment: `OPENAI_API_KEY`,
    /// `ANTHROPIC_API_KEY` and the other variables that SDKs read. `ENDSTOP_BASE_URL` names a gateway
    /// in front of all providers.
    ///
    /// It never fails: a missing key, an invalid base URL or a machine without TLS is reported by the request
    /// that needs it.
    #[must_use]
    pub fn from_env() -> Self {
        Self::builder().env().finish()
    }

    /// Returns a builder for a client without keys.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Sends a prompt and waits for the answer. A truncated answer is continued, as far as the policy
    /// allows.
    ///
    /// # Errors
    /// Fails if the request could not be made. What the provider answers is in the response.
    pub async fn chat(
        &self,
        model: &str,
        prompt: impl Into<String>,
    ) -> Result<ChatResponse, Error> {
        self.request(model).user(prompt).send().await
    }

    /// Sends a prompt and returns the answer as it arrives.
    ///
    /// # Errors
    /// Fails if the request could not be made.
    pub fn stream(&self, model: &str, prompt: impl Into<String>) -> Result<ChatStream, Error> {
        self.request(model).user(prompt).stream()
    }

    /// Returns a request to fill in.
    pub fn request(&self, model: &str) -> Request {
        Request {
            client: self.clone(),
            model: model.to_owned(),
            request: ChatRequest::default(),
            policy: None,
            headers: Vec::new(),
        }
    }

    /// Returns an agent with this model.
    #[cfg(feature = "agent")]
    pub fn agent(&self, model: &str) -> Agent {
        Agent::new(self.clone(), model)
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    pub(crate) fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.0)
    }

    pub(crate) fn target(&self, model: &str) -> Result<Target, Error> {
        self.0.settings.target(model)
    }

    pub(crate) fn transport(&self) -> Result<Transport, Error> {
        self.0.transport.clone()
    }

    /// Checks the names of a policy's fallback models, so that a mistake shows before they are needed.
    pub(crate) fn check_fallbacks(&self, policy: &Policy) -> Result<(), Error> {
        policy.fallback_models.iter().try_for_each(|name| self.0.settings.check(name))
    }
}

/// Settings of a client.
///
/// ```
/// use endstop_client::{Client, Timeouts};
/// use endstop_turn::policy::Policy;
///
/// let client = Client::builder()
///     .key("openai", "sk-…")
///     .base_url("openai", "http://127.0.0.1:4100/openai/v1")
///     .policy(Policy::careful())
///     .timeouts(Timeouts::default())
///     .build();
/// assert!(client.is_ok());
/// ```
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct ClientBuilder {
    settings: Settings,
    timeouts: Timeouts,
    policy: Policy,
    subscribers: Subscribers,
    callback: Option<Callback>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        let settings = Settings {
            registry: Registry::default(),
            keys: Default::default(),
            base_urls: Default::default(),
            gateway: None,
            variables: Variables::NONE,
        };
        Self {
            settings,
            timeouts: Timeouts::default(),
            policy: Policy::default(),
            subscribers: Subscribers(vec![Arc::new(Tracing)]),
            callback: None,
        }
    }
}

/// Variable with the URL of a gateway.
const GATEWAY_VARIABLE: &str = "ENDSTOP_BASE_URL";

impl ClientBuilder {
    /// Reads keys and base URLs from the environment, unless they are set here.
    pub fn env(mut self) -> Self {
        self.settings.variables = Variables::PROCESS;
        if self.settings.gateway.is_none() {
            let url = Variables::PROCESS.get(GATEWAY_VARIABLE);
            self.settings.gateway = url.map(|url| (url, format!("`{GATEWAY_VARIABLE}`")));
        }
        self
    }

    /// Sets the key of a provider.
    pub fn key(mut self, provider: impl Into<String>, key: impl Into<String>) -> Self {
        self.settings.keys.insert(provider.into(), Secret::new(key));
        self
    }

    /// Sets the base URL of a provider. It takes the place of the one in the provider's documentation,
    /// with its path.
    pub fn base_url(mut self, provider: impl Into<String>, url: impl Into<String>) -> Self {
        self.settings.base_urls.insert(provider.into(), url.into());
        self
    }

    /// Sets the URL of a gateway in front of all providers, such as `http://127.0.0.1:4100`.
    pub fn gateway(mut self, url: impl Into<String>) -> Self {
        self.settings.gateway = Some((url.into(), "the setting `gateway`".to_owned()));
        self
    }

    /// Adds providers and finish reasons.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.settings.registry = registry;
        self
    }

    /// Sets the policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Reads the policy, providers and finish reasons from a TOML file: the tables `agent`, `rules`,
    /// `wording`, `prices` and `provider`, as `endstop decide` and the gateway read them.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has a mistake.
    #[cfg(feature = "toml")]
    pub fn config(mut self, path: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let wrong = |message: String| Error::File { path: name.clone(), message };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        self.policy = Policy::from_toml_within(&name, &text)
            .map_err(|error| Error::Config { message: error.to_string() })?;
        self.settings
            .registry
            .add_toml_within(&name, &text)
            .map_err(|error| Error::Config { message: error.to_string() })?;
        Ok(self)
    }

    /// Sets the time limits.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Adds a subscriber to the events of turns.
    pub fn subscriber(mut self, subscriber: impl Subscriber + 'static) -> Self {
        self.subscribers.0.push(Arc::new(subscriber));
        self
    }

    /// Sets a function that sees every response and may change the decision about it. It can stop a
    /// turn early, and cannot exceed a limit.
    ///
    /// ```
    /// use endstop_client::{Client, LoopState};
    /// use endstop_turn::policy::{Action, Decision};
    ///
    /// let builder = Client::builder().on_response(|state: &LoopState<'_>| {
    ///     (state.signals.len() > 3).then(|| Decision::new(Action::Stop, "three are enough"))
    /// });
    /// ```
    pub fn on_response(
        mut self,
        callback: impl Fn(&LoopState<'_>) -> Option<Decision> + Send + Sync + 'static,
    ) -> Self {
        self.callback = Some(Callback(Arc::new(callback)));
        self
    }

    /// Sets a strategy that decides about every response in place of the policy. It sees the signals of the
    /// turn ([`Strategy::decide_with`]), and cannot exceed a limit of the policy.
    pub fn strategy(self, strategy: impl Strategy + Send + Sync + 'static) -> Self {
        self.on_response(move |state| {
            Some(strategy.decide_with(state.ending, state.context, state.signals))
        })
    }

    /// Creates the client.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up, or if the provider of a fallback model is not known.
    pub fn build(self) -> Result<Client, Error> {
        let client = self.finish();
        client.transport()?;
        client.check_fallbacks(client.policy())?;
        Ok(client)
    }

    fn finish(self) -> Client {
        let Self { settings, timeouts, policy, subscribers, callback } = self;
        let transport = Transport::new(timeouts);
        let clock = Clock::new();
        let observer = Observer::default();
        let inner = Inner { settings, transport, policy, subscribers, observer, callback, clock };
        Client(Arc::new(inner))
    }
}

/// A request to fill in and send.
///
/// ```no_run
/// # async fn example(client: endstop_client::Client) -> Result<(), endstop_client::Error> {
/// let request = client.request("openai/gpt-5").system("Be brief.").user("What is an endstop?");
/// let reply = request.max_tokens(500).send().await?;
/// println!("{}", reply.text().unwrap_or("(no complete answer)"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `send` or `stream`"]
pub struct Request {
    client: Client,
    model: String,
    request: ChatRequest,
    policy: Option<Policy>,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Sets the instructions.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.request.system = text.into();
        self
    }

    /// Adds a message of the user.
    pub fn user(mut self, text: impl Into<String>) -> Self {
        self.request.messages.push(ChatMessage::user(text));
        self
    }

    /// Adds an image to the last message of the user, or a message with it.
    pub fn image(mut self, image: Image) -> Self {
        match self.request.messages.last_mut() {
            Some(ChatMessage::User { parts }) => parts.push(ChatPart::Image(image)),
            Some(_) | None => {
                let parts = vec![ChatPart::Image(image)];
                self.request.messages.push(ChatMessage::User { parts });
            }
        }
        self
    }

    /// Adds messages.
    pub fn messages(mut self, messages: impl IntoIterator<Item = ChatMessage>) -> Self {
        self.request.messages.extend(messages);
        self
    }

    /// Sets the maximum number of output tokens.
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.request.max_output_tokens = Some(tokens);
        self
    }

    /// Sets the temperature.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.request.temperature = Some(temperature);
        self
    }

    /// Adds a text before which the answer stops.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.request.stop.push(text.into());
        self
    }

    /// Declares tools. Their calls are left to the caller; an agent runs them.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.request.tools.extend(tools);
        self
    }

    /// Sets whether the model may, must or must not call a tool.
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.request.tool_choice = choice;
        self
    }

    /// Sets the policy, in place of the client's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Adds a header, such as one that switches on a beta feature.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Changes other fields of the request.
    pub fn configure(mut self, change: impl FnOnce(&mut ChatRequest)) -> Self {
        change(&mut self.request);
        self
    }

    /// Sends the request and waits for the answer.
    ///
    /// # Errors
    /// Fails if the request could not be made. What the provider answers is in the response.
    pub async fn send(self) -> Result<ChatResponse, Error> {
        let (driver, step) = self.driver(None)?;
        Ok(driver.run(step).await.0)
    }

    /// Sends the request and returns the answer as it arrives.
    ///
    /// # Errors
    /// Fails if the request could not be made.
    pub fn stream(mut self) -> Result<ChatStream, Error> {
        self.request.stream = true;
        let queue = Queue::default();
        let (driver, step) = self.driver(Some(queue.clone()))?;
        let events = queue.clone();
        let turn = async move {
            let (response, _) = driver.run(step).await;
            events.push(RunEvent::Ended(Box::new(response)));
        };
        Ok(ChatStream { running: Running::new(queue, turn) })
    }

    #[cfg(feature = "agent")]
    pub(crate) fn parts(&mut self) -> (&Client, &mut ChatRequest) {
        (&self.client, &mut self.request)
    }

    fn driver(
        self,
        queue: Option<Queue<RunEvent>>,
    ) -> Result<(Driver, endstop_turn::continuation::Step), Error> {
        let Self { client, model, mut request, policy, headers } = self;
        let target = client.target(&model)?;
        let transport = client.transport()?;
        if let Some(policy) = &policy {
            client.check_fallbacks(policy)?;
        }
        request.model.clone_from(&target.model);
        let inner = client.inner();
        let policy = policy.unwrap_or_else(|| inner.policy.clone());
        let now_ms = inner.clock.now_ms();
        let delivers = queue.is_some();
        let (state, step) = TurnState::begin(&target, &model, request, &policy, delivers, now_ms)?;
        let policy = Arc::new(policy);
        let driver =
            Driver { inner, policy, target, transport, state, queue, headers, agency: None };
        Ok((driver, step))
    }
}

/// An answer that arrives. Dropping it cancels the request, and its connection is closed.
///
/// ```no_run
/// # async fn example() -> Result<(), endstop_client::Error> {
/// use endstop_client::{Client, Ended, RunEvent};
///
/// let client = Client::from_env();
/// let mut stream = client.stream("openai/gpt-5", "Write a story.")?;
/// while let Some(event) = stream.next().await {
///     match event {
///         RunEvent::Text(text) => print!("{text}"),
///         RunEvent::Ended(reply) => {
///             if let Ended::Partial(part) = reply.ended() {
///                 println!("\n{}", part.notice());
///             }
///         }
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ChatStream {
    running: Running<RunEvent>,
}

impl ChatStream {
    /// Waits for the next event. Returns `None` after [`RunEvent::Ended`].
    pub async fn next(&mut self) -> Option<RunEvent> {
        self.running.next().await
    }

    /// Reads to the end and returns the answer.
    pub async fn response(mut self) -> Option<ChatResponse> {
        while let Some(event) = self.next().await {
            if let RunEvent::Ended(response) = event {
                return Some(*response);
            }
        }
        None
    }
}
