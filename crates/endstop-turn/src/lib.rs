//! Decides how to handle an LLM response that ended, over a whole turn.
//!
//! [`policy::decide`] returns the decision about one [`Ending`](endstop::Ending).
//! [`continuation::Machine`] applies decisions over a whole turn, within limits. [`splice`] joins a
//! continuation to the text before it. This crate has no IO, no clock and no runtime, and it knows
//! no provider's wire.
//!
//! ```
//! use endstop::{RequestInfo, TransportEnd, Head, Watcher, provider};
//! use endstop_turn::policy::{Action, DecisionContext, Policy, decide};
//!
//! let mut reader = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
//! reader.watch(br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"content_filter"}]}"#);
//! let ending = reader.finish(TransportEnd::Eof);
//!
//! let decision = decide(&ending, &DecisionContext::default(), &Policy::careful());
//! assert_eq!(decision.action, Action::ChangePrompt);
//! assert_eq!(
//!     decision.sentence,
//!     "the provider blocked the answer (filtered); change the prompt; \
//!      the same request will be blocked again"
//! );
//! ```

#![forbid(unsafe_code)]

pub mod continuation;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod observation;
pub mod policy;
pub mod splice;
