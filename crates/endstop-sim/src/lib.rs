//! Simulated LLM providers with every wire, every ending and every fault on demand.
//!
//! One server speaks the wires of OpenAI (chat, Responses, completions), Anthropic, Gemini, Bedrock
//! (Converse, `InvokeModel`), Mistral, Cohere and Ollama, and older and less common ones
//! ([`wire::MORE`]), streamed and not. The header `x-sim-scenario`, the model name or a script chooses how each response ends.
//!
//! ```
//! use endstop_sim::{Options, Sim};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let sim = Sim::start(Options::default()).await?;
//! println!("OPENAI_BASE_URL={}/openai/v1", sim.url());
//! // … send requests with `"model": "cut-in-tool-call"` …
//! for entry in sim.ledger() {
//!     println!("{} {}: {} bytes", entry.wire, entry.scenario, entry.written);
//! }
//! sim.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Models
//!
//! A model name is a scenario (`length`), a list of them (`length,complete`: one per request of a
//! tag, and the last one repeats), or a real name, a colon and either
//! (`claude-haiku-4-5:story=500`). An unknown scenario is refused with 404, unless it is a tag of real models
//! (`llama3:latest`). The first part of the path names the host: `/vllm/v1/…` is vLLM,
//! `/deepseek/beta/…` is `DeepSeek`. Host and real name decide whether a request may end with a turn
//! of the assistant, as the rules of [`endstop::provider`] say.
//!
//! # Continuing
//!
//! The scenarios `story…` write a [`Story`], which a token limit cuts. A request that continues it
//! gets the text from exactly where it stopped: after a prefill, a provider's token, a paused turn
//! that is sent back, or a hint. Only after a hint do `story-repeat` and `story-drop-space` show
//! their habits.
//!
//! The Responses wire stores its responses, up to 1,000. They can be referred to
//! (`previous_response_id`), made in the `background` and polled, cancelled, deleted, and streamed
//! again from an event on (`starting_after`).
//!
//! # Limits of a wire
//!
//! Not every wire can report every ending, and a scenario's row says what is left of it. AI21's
//! Jurassic-2 never streams ([`SimWire::streams`]). Cloudflare's own form has no finish reasons
//! ([`SimWire::has_finish_reasons`]), so that a complete response is not told from a truncated one.
//! Replicate says `succeeded` at the token limit too, and has no usage. A request for a Replicate
//! stream gets a prediction with the URL of the stream, or the stream itself if it has
//! `Accept: text/event-stream`.
//!
//! Each wire is one file in `wire/`. Each scenario is one row in [`scenario::ALL`], with the
//! verdict expected from Endstop's reader. A response becomes events, events become a script of
//! steps, and a transport plays the script: hand-written HTTP/1.1, which can break the protocol, or
//! HTTP/2 by hyper.

mod answer;
mod choose;
mod http1;
mod http2;
mod json;
mod ledger;
mod memory;
mod request;
mod resume;
pub mod scenario;
mod scene;
mod script;
mod server;
mod sim_request;
mod story;
pub mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use ledger::{LedgerEntry, ResponseEnd};
pub use scenario::Scenario;
pub use script::Chunks;
pub use story::Story;
pub use wire::SimWire;

/// Callback for each finished response.
pub type Log = Arc<dyn Fn(&LedgerEntry) + Send + Sync>;

/// Settings of a simulator. Headers of a request override some of them.
#[derive(Clone)]
pub struct Options {
    /// Address to listen on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Scenarios in request order: the n-th request gets the n-th scenario, and the last one
    /// repeats. Empty means `complete`.
    pub scenarios: Vec<String>,
    /// Names of the tools to call, as agents call them: of the tools that a request offers, the
    /// first with one of these names is called. A request that offers none of them, such as one for
    /// the title of a session, gets a short complete response. Empty means the first tool.
    pub tools: Vec<String>,
    /// Value of parameters that take a shell command; a harmless one if `None`.
    pub command: Option<String>,
    /// Pause after each event.
    pub pace: Duration,
    /// Way in which bodies are split into HTTP chunks.
    pub chunks: Chunks,
    /// Pause after each byte of the scenario `drip`.
    pub drip: Duration,
    /// Maximum number of entries in the ledger; the oldest are dropped first.
    pub ledger_entries: usize,
    /// Maximum number of bytes that the ledger keeps of each body.
    pub kept_bytes: usize,
    /// Callback for each finished response.
    pub log: Option<Log>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            scenarios: Vec::new(),
            tools: Vec::new(),
            command: None,
            pace: Duration::ZERO,
            chunks: Chunks::Event,
            drip: Duration::from_secs(1),
            ledger_entries: 10_000,
            kept_bytes: 1 << 20,
            log: None,
        }
    }
}

/// Response that a test registers, replayed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, without `Content-Length` and `Transfer-Encoding`.
    pub headers: Vec<(String, String)>,
    /// Body, in the pieces in which it is written.
    pub body: Vec<Vec<u8>>,
    /// Whether the body has a `Content-Length` instead of being chunked.
    pub sized: bool,
    /// End of the response.
    pub end: ReplyEnd,
}

/// End of a replayed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// Complete, as the framing requires.
    Whole,
    /// Early close of the connection.
    Fin,
    /// Reset of the connection.
    Reset,
    /// Silence with an open connection.
    Stall,
}

/// Running simulator. Dropping it stops it.
pub struct Sim {
    addr: SocketAddr,
    shared: Arc<server::Shared>,
    task: JoinHandle<()>,
}

impl Sim {
    /// Starts a simulator.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot listen on the address, or if a scenario does not exist
    /// (`InvalidInput`).
    pub async fn start(options: Options) -> io::Result<Self> {
        for name in &options.scenarios {
            choose::named(name)
                .map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))?;
        }
        let listener = TcpListener::bind(options.listen).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(server::Shared::new(options));
        let task = tokio::spawn(server::serve(listener, Arc::clone(&shared)));
        Ok(Self { addr, shared, task })
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns its base URL, `http://…` without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns all requests that the ledger holds, in order of arrival.
    #[must_use]
    pub fn ledger(&self) -> Vec<LedgerEntry> {
        self.shared.ledger.all()
    }

    /// Returns the last request with this value of `x-sim-tag`.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Option<LedgerEntry> {
        self.shared.ledger.tagged(tag)
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.ledger.open()
    }

    /// Registers the response to requests with the header `x-sim-replay: KEY`.
    pub fn replay(&self, key: impl Into<String>, reply: Reply) {
        let mut replies = self.shared.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.insert(key.into(), reply);
    }

    /// Stops the simulator and closes all connections.
    pub async fn stop(mut self) {
        self.task.abort();
        let _stopped = (&mut self.task).await;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads a script: TOML with a list `scenarios`, or one name per line with `#` for comments.
///
/// # Errors
///
/// Returns a message if a scenario is unknown or the TOML is invalid.
pub fn read_script(text: &str) -> Result<Vec<String>, String> {
    choose::script(text)
}
