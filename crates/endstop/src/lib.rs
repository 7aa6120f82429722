//! Endstop knows how every LLM response ended.
//!
//! (The tutorial stands here.)

#![forbid(unsafe_code)]

pub mod frame;
pub mod json;

pub mod event;

pub mod dialect;
pub mod provider;
pub mod registry;
pub mod shape;
mod wire;

mod facts;
mod reader;
mod repeat;
mod watched;

pub mod ending;
pub mod fault;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod text;
pub mod verdict;
pub mod vocabulary;

pub use ending::{
    ChoiceEnding, Close, Closed, Confidence, Detail, Ending, Reason, Said, Shown, Timer, Usage,
};
pub use event::Event;
pub use fault::{Fault, FaultForm, FaultKind};
pub use provider::{Profile, Provider, Wire};
pub use reader::{Asked, Head, Limits, Out, Reader};
pub use watched::Watched;
