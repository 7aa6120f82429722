//! Fields that Bedrock's `InvokeModel` adds to the wire of every model family.
//!
//! The last chunk of a stream may have the service's metrics, and any chunk may have a guardrail
//! action. This module is not a dialect.

use serde::Deserialize;

use super::anthropic::read_guardrail;
use crate::ending::Usage;
use crate::event::{Event, Word};
use crate::mend::mend;
use crate::sink::EventSink;
use crate::wire::{Count, Loose, Scalar};

/// Fields that the service adds to a model's JSON.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Added<'a> {
    #[serde(borrow, rename = "amazon-bedrock-guardrailAction")]
    guardrail_action: Scalar<'a>,
    #[serde(rename = "amazon-bedrock-invocationMetrics")]
    metrics: Option<Loose<Metrics>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metrics {
    input_token_count: Count,
    output_token_count: Count,
}

/// Reads the fields that the service added to a model's JSON.
pub(super) fn added_to(data: &[u8]) -> Added<'static> {
    // If one of these keys comes twice, the model's own part can still be read.
    read_added(data).or_else(|| read_added(&mend(data)?.last)).unwrap_or_default()
}

fn read_added(data: &[u8]) -> Option<Added<'static>> {
    let Loose(added) = serde_json::from_slice::<Loose<Added<'_>>>(data).ok()?;
    let action =
        added.guardrail_action.to_text().map(|action| Word::Text(action.into_owned().into()));
    Some(Added { guardrail_action: Scalar(action), metrics: added.metrics })
}

impl Added<'_> {
    /// Reports whether the chunk has metrics, which only the last one does.
    pub(super) fn is_last(&self) -> bool {
        self.metrics.is_some()
    }

    /// Reports whether a guardrail intervened.
    pub(super) fn intervened(&self) -> bool {
        self.guardrail_action.to_text().is_some_and(|action| action == "INTERVENED")
    }

    /// Emits the usage and the guardrail action.
    pub(super) fn read(&self, out: &mut EventSink<'_, '_>) {
        read_guardrail(&self.guardrail_action, out);
        if let Some(metrics) = &self.metrics {
            out.emit(Event::Usage(Usage {
                input: metrics.input_token_count.0,
                output: metrics.output_token_count.0,
                ..Usage::default()
            }));
        }
    }
}
