//! Subscribers: whoever wants to know the steps of a turn.

use endstop_turn::continuation::TurnEvent;

/// Receives the events of turns, as they happen.
///
/// It is called inside the turn: an implementation that waits delays the answer.
///
/// ```
/// use std::sync::Mutex;
/// use endstop_client::{EventContext, Subscriber};
/// use endstop_turn::continuation::TurnEvent;
///
/// #[derive(Default)]
/// struct Names(Mutex<Vec<&'static str>>);
///
/// impl Subscriber for Names {
///     fn event(&self, event: &TurnEvent, _: &EventContext<'_>) {
///         self.0.lock().unwrap().push(event.name());
///     }
/// }
/// ```
pub trait Subscriber: Send + Sync {
    /// Receives an event.
    fn event(&self, event: &TurnEvent, context: &EventContext<'_>);
}

/// Facts about the turn of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventContext<'a> {
    /// Provider.
    pub provider: &'a str,
    /// Model, as it was asked for.
    pub model: &'a str,
    /// Name of the turn.
    pub turn: &'a str,
    /// Number of the request, starting at one.
    pub iteration: u32,
}

/// Writes events as `tracing` events at the level `DEBUG`, under the target `endstop`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

impl Subscriber for Tracing {
    fn event(&self, event: &TurnEvent, context: &EventContext<'_>) {
        let EventContext { provider, model, turn, iteration } = *context;
        let name = event.name();
        let detail = serde_json::to_string(event).unwrap_or_default();
        tracing::debug!(target: "endstop", provider, model, turn, iteration, detail, "{name}");
    }
}
