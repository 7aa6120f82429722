//! Exporters: how LLM responses ended, in the words of the tools that operators look at.
//!
//! [`Metrics`] counts the observations of a client or a gateway, and writes them as Prometheus reads them.
//!
//! ```
//! use endstop::{Reason, Record};
//! use endstop_export::Metrics;
//! use endstop_turn::observation::{Observation, Subscriber as _, TerminationDetected};
//!
//! let metrics = Metrics::default();
//! let record = Record { provider: "openai".into(), reason: "complete".into(), ..Record::default() };
//! let ended = TerminationDetected::new(&record, Reason::Complete, None);
//! metrics.event(&Observation::TerminationDetected(ended));
//! assert!(metrics.text().contains("endstop_responses_total{provider=\"openai\""));
//! ```
//!
//! [`open`] makes an [`Exporter`] of records: to Axiom, or to OpenTelemetry by OTLP.
//!
//! [`Background`] is a subscriber that sends records by such an exporter, for programs with the client alone.
//!
//! This crate knows no store and no gateway, so that programs with the client alone can use it.

#![forbid(unsafe_code)]

pub mod axiom;
mod background;
mod error;
mod exporter;
mod http;
pub mod metrics;
pub mod otlp;

pub use background::Background;
pub use error::Error;
pub use exporter::{Exporter, Noted, is_exporter, open, secret_from_file};
pub use metrics::Metrics;
