//! A client for LLM providers in which an unfinished answer cannot be mistaken for a finished one.
//!
//! [`Client::chat`] sends a prompt and returns a [`ChatResponse`]. Its text is only there if the answer
//! is complete; tool calls are only there if all of them are. A truncated answer is continued, a paused
//! one resumed and a failed request repeated, within the limits of a
//! [`Policy`](endstop_turn::policy::Policy).
//!
//! ```no_run
//! use endstop_client::{Client, Ended};
//!
//! # async fn example() -> Result<(), endstop_client::Error> {
//! let client = Client::from_env();
//! let reply = client.chat("anthropic/claude-sonnet-5", "Write a haiku.").await?;
//! match reply.ended() {
//!     Ended::Complete(answer) => println!("{}", answer.text()),
//!     Ended::ToolCalls(calls) => println!("{} tool calls", calls.len()),
//!     Ended::Partial(part) => println!("{} … ({})", part.text_so_far(), part.notice()),
//!     Ended::Refused(why) | Ended::Failed(why) => println!("no answer: {why}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::stream`] returns the answer as it arrives. With the feature `agent`, which is on by default,
//! `Client::agent` runs tools, and `Request::typed` returns a value of a Rust type.

#![forbid(unsafe_code)]

// The code that `#[tool]` makes names this crate.
extern crate self as endstop_client;

#[cfg(feature = "agent")]
mod agent;
mod client;
mod conversation;
mod error;
mod event;
#[cfg(feature = "layer")]
pub mod layer;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(not(feature = "agent"))]
mod no_agent;
mod observe;
mod queue;
mod quota;
mod response;
mod subscriber;
mod target;
#[cfg(feature = "agent")]
mod tool;
mod transport;
mod turn;
#[cfg(feature = "agent")]
mod typed;

#[cfg(not(feature = "agent"))]
use no_agent as agent;

#[cfg(feature = "agent")]
pub use agent::{Agent, AgentReport, Limits, Run, SavedRun, ToolRun, ToolRunEnd, usd};
pub use client::{ChatStream, Client, ClientBuilder, LoopState, Request};
pub use conversation::{ConversationReport, Flaw, analyze_conversation};
#[cfg(feature = "agent")]
pub use endstop_macros::tool;
#[doc(no_inline)]
pub use endstop_turn::observation::{Observation, Subscriber};
pub use error::Error;
pub use event::RunEvent;
pub use quota::{Quota, QuotaMetadata};
pub use response::{AnswerPiece, ChatResponse, CompleteAnswer, Ended, PartialAnswer, Why};
pub use subscriber::Tracing;
#[cfg(feature = "agent")]
pub use tool::{SharedTool, Tool, ToolError, ToolFuture, ToolOutput};
pub use transport::Timeouts;
#[cfg(feature = "agent")]
pub use typed::TypedError;

/// Names for the code that `#[tool]` makes. They may change in any release.
#[cfg(feature = "agent")]
#[doc(hidden)]
pub mod __private {
    pub use endstop::chat::Tool as Definition;
    pub use endstop::tool_call::{Call, Whole};
    pub use {schemars, serde};

    pub use crate::tool::{tool_arguments, tool_output};
    pub use crate::typed::schema_of;
}
