//! Simulated LLM providers: every wire, every ending, every fault, on demand.
//!
//! One server speaks the wires of OpenAI (chat, Responses, completions), Anthropic, Gemini, Bedrock
//! (Converse, `InvokeModel`), Mistral, Cohere and Ollama, streamed and not, and ends each response in
//! the way that was asked for: by the header `x-sim-scenario`, by the name of the model, by a script.
//!
//! ```
//! use endstop_sim::{Options, Sim};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let sim = Sim::start(Options::default()).await?;
//! println!("OPENAI_BASE_URL={}/openai/v1", sim.url());
//! // … ask it with `"model": "cut-in-tool-call"` …
//! for entry in sim.ledger() {
//!     println!("{} {}: {} bytes", entry.wire, entry.scenario, entry.written);
//! }
//! sim.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! A wire is one file in `wire/`; a scenario is one row in [`scenario::ALL`], which also says what
//! Endstop's reader makes of it. An answer becomes events, events become a script of steps, and a
//! transport plays the script: HTTP/1.1 by hand, so that it can be wrong, and HTTP/2 by hyper.

mod answer;
mod ask;
mod choose;
mod http1;
mod http2;
mod json;
mod ledger;
mod request;
pub mod scenario;
mod scene;
mod script;
mod server;
pub mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use ledger::{Ended, LedgerEntry};
pub use scenario::Scenario;
pub use script::Chunks;
pub use wire::SimWire;

/// What is called when a response is over.
pub type Log = Arc<dyn Fn(&LedgerEntry) + Send + Sync>;

/// How a simulator behaves where requests do not say otherwise.
#[derive(Clone)]
pub struct Options {
    /// Where it listens; port 0 takes any.
    pub listen: SocketAddr,
    /// The n-th request gets the n-th scenario; the last one stays. `complete` if there are none.
    pub scenarios: Vec<String>,
    /// The pause after each event.
    pub pace: Duration,
    /// How bodies are cut into chunks.
    pub chunks: Chunks,
    /// The pause after each byte of `drip`.
    pub drip: Duration,
    /// The most entries that the ledger keeps; the oldest go first.
    pub ledger_entries: usize,
    /// The most bytes of each body that the ledger keeps.
    pub kept_bytes: usize,
    /// What is called when a response is over.
    pub log: Option<Log>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            scenarios: Vec::new(),
            pace: Duration::ZERO,
            chunks: Chunks::Event,
            drip: Duration::from_secs(1),
            ledger_entries: 10_000,
            kept_bytes: 1 << 20,
            log: None,
        }
    }
}

/// A response that a test registers, to be replayed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, all but those of the framing.
    pub headers: Vec<(String, String)>,
    /// The body, in the pieces that it is written in.
    pub body: Vec<Vec<u8>>,
    /// With a Content-Length rather than chunked.
    pub sized: bool,
    /// How it ends.
    pub end: ReplyEnd,
}

/// How a replayed response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// As its framing wants it.
    Whole,
    /// By closing the connection.
    Fin,
    /// By resetting it.
    Reset,
    /// Not at all.
    Stall,
}

/// A running simulator. Dropping it stops it.
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
    /// If it cannot listen there, or if a scenario does not exist (`InvalidInput`).
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

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as `http://…` without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All requests so far, in the order that they came in.
    #[must_use]
    pub fn ledger(&self) -> Vec<LedgerEntry> {
        self.shared.ledger.all()
    }

    /// The request with this value of `x-sim-tag`, the last one if there are several.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Option<LedgerEntry> {
        self.shared.ledger.tagged(tag)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.ledger.open()
    }

    /// Answers requests with the header `x-sim-replay: KEY` by this.
    pub fn replay(&self, key: impl Into<String>, reply: Reply) {
        let mut replies = self.shared.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.insert(key.into(), reply);
    }

    /// Stops it, and closes every connection.
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

/// Reads a script: TOML with a list `scenarios`, or one name a line, `#` for comments.
///
/// # Errors
///
/// A sentence, if a name is no scenario's or the TOML is none.
pub fn read_script(text: &str) -> Result<Vec<String>, String> {
    choose::script(text)
}
