//! Judges a conversation that somebody else made.

use endstop::chat::ChatMessage;
use endstop::signal::{Response, SignalContext, TerminationSignal, detect_termination};
use serde::Serialize;
use serde_json::Value;

/// Findings about a conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConversationReport {
    /// Number of messages.
    pub messages: usize,
    /// Whether a model is to answer next.
    pub awaits_model: bool,
    /// Flaws, in the order of the messages.
    pub flaws: Vec<Flaw>,
    /// How the last answer ended, if the conversation says so.
    pub last: Option<TerminationSignal>,
}

/// A flaw of a conversation, with the number of its message, starting at 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "flaw", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Flaw {
    /// The arguments of a call are not a JSON object: they may be truncated.
    Arguments {
        /// Message.
        message: usize,
        /// Name of the tool.
        tool: String,
    },
    /// A call has no result, although the conversation goes on.
    NoResult {
        /// Message.
        message: usize,
        /// Id of the call.
        id: String,
    },
    /// A result belongs to no call of the message before it.
    NoCall {
        /// Message.
        message: usize,
        /// Id in the result.
        id: String,
    },
    /// An answer has neither text nor calls.
    Empty {
        /// Message.
        message: usize,
    },
}

/// Judges a conversation: calls without results, results without calls, truncated arguments, empty
/// answers, and how the last answer ended.
///
/// `last` is the last answer as the provider or a framework gave it, if it is known, and `provider` names
/// the provider that made it.
///
/// ```
/// use endstop::chat::{AssistantMessage, ChatMessage, PastCall};
/// use endstop_client::{Flaw, analyze_conversation};
///
/// let call = PastCall { id: "1".into(), name: "save".into(), arguments: "{\"a\":".into() };
/// let answer = AssistantMessage { calls: vec![call], ..AssistantMessage::default() };
/// let messages = [ChatMessage::user("Hi"), ChatMessage::Assistant(answer), ChatMessage::user("And?")];
/// let report = analyze_conversation(&messages, None, None);
/// assert_eq!(report.flaws[0], Flaw::Arguments { message: 1, tool: "save".to_owned() });
/// assert_eq!(report.flaws[1], Flaw::NoResult { message: 1, id: "1".to_owned() });
/// assert!(report.awaits_model);
/// ```
#[must_use]
pub fn analyze_conversation(
    messages: &[ChatMessage],
    last: Option<&Value>,
    provider: Option<&str>,
) -> ConversationReport {
    let mut flaws = Vec::new();
    let mut open: Vec<(usize, &str)> = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::Tool { results } => {
                for result in results {
                    match open.iter().position(|(_, id)| *id == result.id) {
                        Some(at) => drop(open.remove(at)),
                        None => flaws.push(Flaw::NoCall { message: number, id: result.id.clone() }),
                    }
                }
                continue;
            }
            ChatMessage::Assistant(_) | ChatMessage::User { .. } | _ => {
                let lost = open.drain(..);
                flaws.extend(
                    lost.map(|(message, id)| Flaw::NoResult { message, id: id.to_owned() }),
                );
            }
        }
        let ChatMessage::Assistant(answer) = message else { continue };
        if answer.text.is_empty() && answer.calls.is_empty() {
            flaws.push(Flaw::Empty { message: number });
        }
        for call in &answer.calls {
            if call.object().is_err() {
                flaws.push(Flaw::Arguments { message: number, tool: call.name.clone() });
            }
            open.push((number, &call.id));
        }
    }
    let context = SignalContext {
        provider: provider.unwrap_or_default().to_owned(),
        ..SignalContext::default()
    };
    let signal = last.map(|body| {
        let response = Response { metadata: Some(body.clone()), ..Response::default() };
        detect_termination(&response, false, &context)
    });
    let awaits_model =
        !matches!(messages.last(), None | Some(ChatMessage::Assistant(_))) && open.is_empty();
    ConversationReport { messages: messages.len(), awaits_model, flaws, last: signal }
}
