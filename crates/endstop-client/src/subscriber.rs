//! The subscriber that every client has: it writes events to the log.

use endstop_turn::observation::{Observation, Subscriber};

/// Writes events as `tracing` events at the level `DEBUG`, under the target `endstop`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

impl Subscriber for Tracing {
    fn event(&self, event: &Observation<'_>) {
        if !tracing::enabled!(target: "endstop", tracing::Level::DEBUG) {
            return;
        }
        let (name, provider, model) = (event.name(), event.provider(), event.model());
        let detail = serde_json::to_string(event).unwrap_or_default();
        tracing::debug!(target: "endstop", provider, model, detail, "{name}");
    }
}
