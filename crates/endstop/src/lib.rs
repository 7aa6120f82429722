//! Endstop knows how every LLM response ended.
//!
//! Push the bytes of a response into a [`Collector`], in whatever chunks they come, and finish it
//! once. The [`Answer`] holds the text, the tool calls, the usage and the [`Ending`]. The crate does
//! no IO and has no clock and no runtime. No input makes it fail or panic.
//!
//! ```
//! use endstop::{Collector, Confidence, Head, Reason, RequestInfo, TransportEnd, provider};
//!
//! let body = [
//!     &b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"[..],
//!     b"\"delta\":{\"type\":\"text_delta\",\"text\":\"Once upon\"}}\n\nevent: message_delta\ndata: ",
//!     b"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n",
//!     b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
//! ];
//!
//! let head = Head { status: 200, content_type: "text/event-stream" };
//! let mut collector = Collector::new(&provider::ANTHROPIC, head, RequestInfo::default());
//! for chunk in body {
//!     collector.push(chunk);
//! }
//! let answer = collector.finish(TransportEnd::Eof);
//!
//! assert_eq!(answer.text, "Once upon");
//! assert_eq!(answer.ending.reason, Reason::OutputLimit);
//! assert_eq!(answer.ending.confidence, Confidence::High);
//! ```
//!
//! [`Reader`] hands events over as they come, and [`Watcher`] gives the ending alone, which is
//! cheaper.
//!
//! # Endings
//!
//! An [`Ending`] keeps four facts apart: the finish reason that the provider
//! [`said`](Ending::said), how the bytes [`closed`](Ending::closed), what was
//! [`shown`](Ending::shown) by the content, and the verdict: a [`Reason`], a [`Confidence`] and a
//! sentence.
//!
//! The stream above without its last event is [`Reason::Cut`], whatever its finish reason: this wire
//! ends with an event, and that event is missing.
//!
//! # Tool calls
//!
//! [`Answer::allow`] reports whether the tool calls of a response may run. [`tool_call`] has the rule.
//!
//! # Providers and wires
//!
//! A [`Provider`] is the wires that it speaks; a `&Provider` stands for its first wire. If only the
//! host, the path or the body is known, [`registry::choose`] finds the wire. A
//! [`Registry`](registry::Registry) also knows providers and finish reasons that are added at run time,
//! and [`dialect`] is for wires that this crate does not know.
//!
//! ```
//! use endstop::registry::{Clues, choose};
//!
//! let wire = choose(&Clues { host: "api.x.ai", path: "/v1/responses", ..Clues::default() });
//! assert_eq!(wire.profile.dialect.id, "openai-responses");
//! ```
//!
//! # Decisions
//!
//! The crate `endstop-turn` decides what to do about an ending, within limits. [`next_request`] builds
//! the requests for it.
//!
//! # Features
//!
//! - `toml`: reads providers and finish reasons from TOML files.
//! - `jsonschema`: checks the arguments of tool calls against a JSON Schema.

#![forbid(unsafe_code)]
#![warn(clippy::unreachable)]

pub mod chat;
pub mod dialect;
pub mod next_request;
pub mod provider;
pub mod record;
pub mod registry;
pub mod signal;
pub mod tool_call;
pub mod vocabulary;

// For the other crates of the workspace: these may change in any release.
#[doc(hidden)]
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod hash;
#[doc(hidden)]
pub mod text;

mod collect;
mod conclude;
mod ending;
mod event;
mod facts;
mod fault;
mod gateway_error;
mod json;
mod mark;
mod mend;
mod nearest;
mod reader;
mod repeat;
mod request;
mod shape;
mod sink;
mod verdict;
mod version;
mod watched;
mod wire;
mod work;

pub use collect::{Answer, Collector};
pub use ending::{
    ChoiceEnding, Closed, Confidence, Detail, Ending, Reason, SafetyRating, Said, Shown, Timer,
    TransportEnd, Unreachable, Usage,
};
pub use event::Event;
pub use fault::{Fault, FaultForm, FaultKind};
pub use frame::Broken;
pub use frame::framer::Form;
pub use mark::{ChoiceMark, Mark};
#[doc(hidden)]
pub use nearest::nearest;
pub use provider::{Profile, Provider, Wire};
pub use reader::{Head, Limits, Reader, Watcher};
pub use record::Record;
pub use request::{Purpose, RequestInfo};
pub use watched::Watched;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
