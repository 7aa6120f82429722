//! Endstop knows how every LLM response ended.
//!
//! Push the bytes of a response into a [`Reader`], in whatever pieces they come, and finish it once:
//! what comes out is an [`Ending`]. There is no IO here, no clock and no runtime, and nothing that a
//! provider sends can make it fail.
//!
//! # One response
//!
//! ```
//! use endstop::{RequestInfo, TransportEnd, Confidence, Event, Head, Reader, Reason, provider};
//!
//! let body = [
//!     &b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"[..],
//!     b"\"delta\":{\"type\":\"text_delta\",\"text\":\"Once upon\"}}\n\nevent: message_delta\ndata: ",
//!     b"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n",
//!     b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
//! ];
//!
//! let head = Head { status: 200, content_type: "text/event-stream" };
//! let mut reader = Reader::new(&provider::ANTHROPIC, head, RequestInfo::default());
//! let mut text = String::new();
//! for chunk in body {
//!     reader.read(chunk, |event| {
//!         if let Event::Text { text: piece, .. } = event {
//!             text.push_str(piece);
//!         }
//!     });
//! }
//! let ending = reader.finish(TransportEnd::Eof);
//!
//! assert_eq!(text, "Once upon");
//! assert_eq!(ending.reason, Reason::OutputLimit);
//! assert_eq!(ending.confidence, Confidence::High);
//! assert_eq!(ending.sentence, "the provider said `max_tokens`");
//! ```
//!
//! # Four facts
//!
//! An [`Ending`] keeps apart what was [`said`](Ending::said), how the bytes [`closed`](Ending::closed),
//! what the content [`shown`](Ending::shown), and the verdict on these: a [`Reason`], a
//! [`Confidence`] and a sentence. [`verdict`] is the one function that makes the last from the
//! others.
//!
//! The same stream without its last event is [`Reason::Cut`], whatever it said before: this wire
//! proves its end, and the proof is missing.
//!
//! # Which wire?
//!
//! A [`Provider`] is the wires that it speaks; a `&Provider` stands for its first. Where only some
//! clues are known, [`registry::choose`] finds the wire by provider, host, path or the body's own
//! shape.
//!
//! ```
//! use endstop::registry::{Clues, choose};
//!
//! let wire = choose(&Clues { host: "api.x.ai", path: "/v1/responses", ..Clues::default() });
//! assert_eq!(wire.profile.dialect.id, "openai-responses");
//! ```
//!
//! # What to do about it
//!
//! The crate `endstop-turn` says what to do about an ending, and does it over a whole turn within
//! limits; [`next_request`] makes the requests.

#![forbid(unsafe_code)]

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

pub use collect::{Answer, Collector};
pub use ending::{
    ChoiceEnding, Closed, Confidence, Detail, Ending, Reason, SafetyRating, Said, Shown, Timer,
    TransportEnd, Unreachable, Usage,
};
pub use event::Event;
pub use fault::{Fault, FaultForm, FaultKind};
pub use mark::{ChoiceMark, Mark};
#[doc(hidden)]
pub use nearest::nearest;
pub use provider::{Profile, Provider, Wire};
pub use reader::{Head, Limits, Reader, Watcher};
pub use record::Record;
pub use request::RequestInfo;
pub use watched::Watched;
