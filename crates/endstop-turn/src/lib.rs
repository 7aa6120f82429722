//! Endstop's decisions: what to do about a response that ended, over a whole turn.
//!
//! [`policy::decide`] says what to do about one [`Ending`](endstop::Ending).
//! [`continuation::Machine`] does it over a whole turn, within limits. [`splice`] joins a continuation
//! to the text before it. There is no IO here, no clock and no runtime, and no knowledge of any
//! provider's wire.
//!
//! ```
//! use endstop::{RequestInfo, TransportEnd, Head, Reader, provider};
//! use endstop_turn::policy::{Action, DecisionContext, Policy, decide};
//!
//! let mut reader = Reader::new(&provider::OPENAI, Head::default(), RequestInfo::default());
//! reader.watch(br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"content_filter"}]}"#);
//! let ending = reader.finish(TransportEnd::Eof);
//!
//! let decision = decide(&ending, &DecisionContext::default(), &Policy::careful());
//! assert_eq!(decision.action, Action::ChangePrompt);
//! assert_eq!(
//!     decision.sentence,
//!     "the answer was withheld (filtered); change the prompt; the same request is withheld again"
//! );
//! ```

#![forbid(unsafe_code)]

pub mod continuation;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod policy;
pub mod splice;
