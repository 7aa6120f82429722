//! Continuing: which text a request asks to continue, in which way, and whether its model accepts
//! that.

use endstop::provider::{self, Echo, Prefill, Profile, Resume, TokenOf};
use serde_json::Value;

use crate::sim_request::{self, SimRequest, Way};
use crate::wire::{self, SimWire};

/// Returns the profile of the host that a path names: `/vllm/v1/chat/completions` is vLLM's. A path
/// without the route of a provider belongs to the wire's own provider.
pub(crate) fn host(wire: &SimWire, path: &str) -> &'static Profile {
    let own = wire.provider.wire_for_path(plain(wire.path)).unwrap_or(&wire.provider.main);
    let (first, rest) = wire::split_first(path);
    let named = provider::ALL.iter().copied().find(|provider| provider.route == first);
    let named = named.and_then(|provider| provider.wire_for_path(rest));
    named.filter(|profile| profile.dialect.id == own.dialect.id).unwrap_or(own)
}

fn plain(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// Finds the way in which the request asks to continue.
///
/// # Errors
///
/// Returns the provider's message if the real model rejects the request.
pub(crate) fn read(
    wire: &SimWire,
    host: &Profile,
    body: &Value,
    ask: &mut SimRequest,
) -> Result<(), &'static str> {
    let rule = host.resume_for(&ask.model);
    ask.gives_tokens = matches!(rule, Resume::Token(token) if token.of == TokenOf::Answer);
    ask.way = match ask.way {
        Way::New if ask.paused => Way::Exact,
        Way::New if ask.trailing => prefilled(wire, rule, body, ask)?,
        Way::New if !ask.said.is_empty() || !ask.asked.is_empty() => Way::Hinted,
        way
        @ (Way::New | Way::Exact | Way::Echoed | Way::Remembered | Way::Hinted | Way::At(_)) => way,
    };
    if matches!(ask.way, Way::At(_)) && ask.cap == Some(0) {
        return Err("The output token budget is used up. Raise maxOutputTokens to continue.");
    }
    Ok(())
}

/// Returns the way of a request whose last message is the assistant's.
fn prefilled(
    wire: &SimWire,
    rule: Resume,
    body: &Value,
    ask: &SimRequest,
) -> Result<Way, &'static str> {
    if let Resume::Prefill(prefill) = rule {
        if clashes(prefill, body) {
            return Err(CLASH);
        }
        if is_marked(prefill, body, ask) {
            restricted(prefill, body, ask)?;
            let echoes = match prefill.echoes {
                Echo::Always => true,
                Echo::Plain => !ask.streamed,
                Echo::Never | _ => false,
            };
            return Ok(if echoes { Way::Echoed } else { Way::Exact });
        }
    }
    let rejected = wire.rejects.iter().find(|(part, _)| ask.model.contains(part));
    match rejected {
        Some((_, message)) => Err(message),
        // The name of a scenario says nothing about the model.
        None if !wire.rejects.is_empty() => Ok(Way::Exact),
        None => Ok(Way::New),
    }
}

const CLASH: &str = "Cannot set both `continue_final_message` and `add_generation_prompt` to True.";

/// Reports whether the request asks for a continuation, but with a flag that excludes it.
fn clashes(prefill: Prefill, body: &Value) -> bool {
    let is_set = |(field, value): &(&str, bool)| flag(body, field) == Some(*value);
    let first = prefill.request_flags.first();
    first.is_some_and(is_set) && !prefill.request_flags.iter().all(is_set)
}

/// Reports whether the message and the request have the flags of a prefill.
fn is_marked(prefill: Prefill, body: &Value, ask: &SimRequest) -> bool {
    let by_message = |mark: &str| ask.marks.iter().any(|known| known == mark);
    prefill.message_flag.is_none_or(by_message)
        && prefill.request_flags.iter().all(|(field, value)| flag(body, field) == Some(*value))
}

fn flag(body: &Value, field: &str) -> Option<bool> {
    body.get(field).and_then(Value::as_bool)
}

/// Checks the restrictions that Claude has on a prefill.
fn restricted(prefill: Prefill, body: &Value, ask: &SimRequest) -> Result<(), &'static str> {
    if !prefill.trims {
        return Ok(());
    }
    if sim_request::text(body, "/thinking/type") == "enabled" {
        return Err(
            "messages: Expected `thinking` or `redacted_thinking`, but found `text`. When \
                    `thinking` is enabled, a final `assistant` message must start with a thinking \
                    block.",
        );
    }
    if ask.said.ends_with(char::is_whitespace) {
        return Err("messages: final assistant content cannot end with trailing whitespace");
    }
    Ok(())
}
