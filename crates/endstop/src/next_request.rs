//! The next request: the provider's request JSON, changed so that a truncated answer continues.
//!
//! The functions are pure. Each takes the first request and returns a new one. Fields that need no
//! change stay as they are, known or not. Always start from the first request, with the whole
//! answer so far: then no hint of an earlier attempt stays in the conversation.
//!
//! Differences between wires, hosts and models are data. [`RequestShape`] has the fields of the
//! conversation, of forced tools and of reasoning. [`Profile::resume_for`] returns the way to
//! resume an answer of a model. This module does not decide whether to continue.
//!
//! # Joining the parts
//!
//! - **Prefill, resend, provider's token**: the reply contains only new text. Append it unchanged,
//!   without looking for an overlap.
//! - **Prefill that the reply repeats** ([`NextRequest::echoes`]): the reply begins with the text
//!   that was sent. That is the answer so far without its last [`NextRequest::trimmed`] bytes.
//! - **Prefill without its trailing white space**: the model may or may not write it again. Append
//!   the reply to the text as it was sent, without the last [`NextRequest::trimmed`] bytes. If they
//!   were already shown, remove the same white space from the beginning of the reply instead.
//! - **Hint**: the model may repeat the end of the answer. Remove an overlap at the join.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::provider::{Profile, Resume, Role};

mod content;
mod document;
mod edit;
mod shape;
mod stored;

pub use content::{Blocks, Content, Gather};
use edit::{Edit, is_of, lower, unsupported};
pub use shape::{
    ConversationShape, Effort, ForcedTool, MessageList, PauseProtocol, RequestShape, RestOfStream,
    Restriction, Scale, Speaker, Temperature, UsageOption,
};
pub use stored::StoredStream;

#[cfg(any(test, fuzzing))]
pub(crate) use document::fuzz as fuzz_documents;

/// Default hint that asks a model to continue.
pub const HINT: &str = "Previous response was truncated by token limit. Continue exactly from where \
you left off. If you intended a tool call, emit one complete tool call payload only. Do not repeat \
already-sent text.";

/// Default text that asks for a tool call again. `{tool}` stands for its name.
pub const REPAIR: &str = "The call of the tool `{tool}` in the previous response was incomplete and \
did not run. Emit one complete tool call payload only, with all of its arguments and no other text.";

/// Text in place of one with `{tool}`, if the name of the tool is not known.
const NAMELESS_REPAIR: &str = "The tool call in the previous response was incomplete and did not run. Emit \
one complete tool call payload only, with all of its arguments and no other text.";

/// Length of the end of the answer that a user message quotes, in characters.
pub const TAIL: usize = 1200;

/// A request that continues an answer.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct NextRequest {
    /// Request to send.
    pub request: Box<RawValue>,
    /// Change of the request.
    pub how: RequestChange,
    /// Sentence that describes the change and its reason.
    pub sentence: String,
    /// Whether the reply begins with the text of the prefill.
    pub echoes: bool,
    /// Whether a reply without new text is the text of the prefill.
    pub echoes_if_empty: bool,
    /// Number of bytes of white space at the end of the answer that the prefill leaves out.
    pub trimmed: usize,
    /// Whether the output token limit covers the earlier parts too, so that it must be raised.
    pub cap_counts_all: bool,
    /// Base URL to use instead of the provider's usual one.
    pub base_url: Option<&'static str>,
}

/// A change of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "way", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestChange {
    /// The output token limit was set.
    Cap {
        /// Field.
        field: String,
        /// Old value, if there was one.
        from: Option<u64>,
        /// New value.
        to: u64,
    },
    /// The conversation ends with the answer so far.
    Prefill,
    /// The request refers to the answer so far by an id or a token.
    Token {
        /// Field that holds it.
        field: String,
    },
    /// The content of the answer was appended unchanged.
    Resend,
    /// The model is asked to continue.
    Hint {
        /// Role of the message that asks.
        role: Role,
    },
    /// The model is asked for one complete tool call.
    Repair {
        /// Role of the message that asks.
        role: Role,
        /// Field that forces the tool; `None` if it is not forced.
        forced_by: Option<String>,
        /// Whether the temperature was set to 0.
        cold: bool,
    },
    /// The model is asked to reason less.
    Effort {
        /// Field.
        field: String,
        /// Old value; null if there was none.
        from: Value,
        /// New value.
        to: Value,
    },
}

/// A way to continue an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Way {
    /// A conversation that ends with the answer so far.
    Prefill,
    /// An id or a token from the provider.
    Token,
    /// A hint to the model.
    Hint,
}

/// The answer so far, over all parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoFar<'a> {
    /// Text.
    pub text: &'a str,
    /// Provider's id of the last response, if it ended and the provider stores it.
    pub id: Option<&'a str>,
    /// Provider's continuation token.
    pub token: Option<&'a str>,
    /// Original content of the assistant message on this wire, to resend it unchanged.
    pub content: Option<&'a RawValue>,
}

/// Texts for the model, in the `wording` table of a policy file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wording {
    /// Text that asks the model to continue.
    pub hint: Cow<'static, str>,
    /// Text that asks for a tool call again. `{tool}` stands for its name.
    pub repair: Cow<'static, str>,
    /// Length of the end of the answer that a user message quotes, in characters.
    pub tail: usize,
}

impl Default for Wording {
    fn default() -> Self {
        Self { hint: HINT.into(), repair: REPAIR.into(), tail: TAIL }
    }
}

/// Reason why a request cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Impossible {
    /// The wire does not support it here.
    Unsupported {
        /// Id of the dialect.
        wire: &'static str,
        /// Unsupported feature.
        what: &'static str,
    },
    /// The request does not have the format of this wire.
    Strange {
        /// Field that is missing or has another type; empty if the request is not an object.
        field: &'static str,
    },
    /// There is no text to continue.
    NothingSoFar,
    /// The answer cannot be prefilled.
    NoPrefill {
        /// Reason.
        because: String,
    },
    /// The provider's id or token is not known, or the provider returns none.
    NoToken {
        /// Reason.
        because: String,
    },
    /// The original content is not known.
    NoContent,
    /// The provider summarised the conversation, and the caller has to build a new one.
    SummedUp,
    /// The request declares no tools.
    NoTools,
    /// The field already has its lowest value.
    LowestEffort {
        /// Field.
        field: &'static str,
    },
}

impl fmt::Display for Impossible {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { wire, what } => {
                write!(out, "`{wire}` requests do not support {what}")
            }
            Self::Strange { field: "" } => write!(out, "the request is not a JSON object"),
            Self::Strange { field } => {
                write!(out, "the request's `{field}` is missing or not of the expected type")
            }
            Self::NothingSoFar => write!(out, "the response has no text to continue"),
            Self::NoPrefill { because } | Self::NoToken { because } => out.write_str(because),
            Self::NoContent => {
                write!(
                    out,
                    "the original content of the response is missing, so it cannot be sent back"
                )
            }
            Self::SummedUp => write!(
                out,
                "the provider summarised the conversation: replace the messages that the summary \
                 covers by the block that holds it"
            ),
            Self::NoTools => write!(out, "the request declares no tools"),
            Self::LowestEffort { field } => {
                write!(out, "`{field}` already has its lowest value")
            }
        }
    }
}

impl std::error::Error for Impossible {}

/// Sets the output token limit, in the field that the request has, else in the field that the host
/// prefers.
///
/// ```
/// use endstop::{next_request, provider};
///
/// let request = r#"{"contents": [], "generationConfig": {"topK": 4}}"#;
/// let next = next_request::set_cap(&provider::GOOGLE.main, request, 9000).unwrap();
/// assert_eq!(
///     next.request.get(),
///     r#"{"contents": [], "generationConfig": {"topK": 4,"maxOutputTokens":9000}}"#
/// );
/// ```
///
/// # Errors
///
/// Fails if the request does not have the format of this wire.
pub fn set_cap(profile: &Profile, request: &str, cap: u64) -> Result<NextRequest, Impossible> {
    let mut edit = Edit::new(profile, request)?;
    let used: Vec<&'static str> =
        profile.caps.iter().copied().filter(|field| edit.has(field)).collect();
    let fields = if used.is_empty() { profile.caps.get(..1).unwrap_or_default() } else { &used };
    let field = *fields.first().ok_or_else(|| unsupported(profile, "an output token limit"))?;
    let from = edit.at(field).as_ref().and_then(Value::as_u64);
    // A host that accepts both fields must not see two limits.
    for field in fields {
        edit.put(field, json!(cap))?;
    }
    let sentence = match from {
        Some(from) if from == cap => format!("`{field}` is already {cap}"),
        Some(from) => format!("`{field}` is changed from {from} to {cap}"),
        None => format!("`{field}` is set to {cap}"),
    };
    edit.done(RequestChange::Cap { field: field.to_owned(), from, to: cap }, sentence)
}

/// Continues a truncated answer in the best way that the provider and the model accept.
///
/// ```
/// use endstop::next_request::{RequestChange, SoFar, Wording, continue_answer};
/// use endstop::provider;
///
/// let request = r#"{"max_tokens": 9, "messages": [{"role": "user", "content": "Tell me."}]}"#;
/// let so_far = SoFar { text: "Once upon ", ..SoFar::default() };
/// let claude = &provider::ANTHROPIC.main;
/// let next =
///     continue_answer(claude, "claude-haiku-4-5", request, &so_far, &Wording::default()).unwrap();
/// assert_eq!(next.how, RequestChange::Prefill);
/// assert!(next.request.get().ends_with(r#",{"role":"assistant","content":"Once upon"}]}"#));
/// ```
///
/// # Errors
///
/// Fails if the wire has no way to continue, the request does not have the format of this wire, or
/// there is no text to continue.
pub fn continue_answer(
    profile: &Profile,
    model: &str,
    request: &str,
    so_far: &SoFar<'_>,
    wording: &Wording,
) -> Result<NextRequest, Impossible> {
    let by = |way| continue_by(way, profile, model, request, so_far, wording);
    let best = match Edit::new(profile, request)?.rule(model)? {
        Resume::Prefill(_) => by(Way::Prefill),
        Resume::Token(_) => by(Way::Token),
        Resume::Hint(_) => return by(Way::Hint),
    };
    match best {
        Err(why @ (Impossible::NoPrefill { .. } | Impossible::NoToken { .. })) => {
            let mut next = by(Way::Hint)?;
            next.sentence = format!("{}; {why}", next.sentence);
            Ok(next)
        }
        other => other,
    }
}

/// Continues a truncated answer in this way only.
///
/// # Errors
///
/// Fails like [`continue_answer`], and if the provider, model or request does not accept this way.
pub fn continue_by(
    way: Way,
    profile: &Profile,
    model: &str,
    request: &str,
    so_far: &SoFar<'_>,
    wording: &Wording,
) -> Result<NextRequest, Impossible> {
    let edit = Edit::new(profile, request)?;
    match (way, edit.rule(model)?) {
        (Way::Prefill, Resume::Prefill(prefill)) => edit.by_prefill(prefill, model, so_far),
        (Way::Prefill, Resume::Token(_) | Resume::Hint(_)) => Err(Impossible::NoPrefill {
            because: format!("`{model}` is not known to continue a prefilled answer"),
        }),
        (Way::Token, Resume::Token(token)) => edit.by_token(token, so_far, &wording.hint),
        (Way::Token, Resume::Prefill(_) | Resume::Hint(_)) => Err(Impossible::NoToken {
            because: format!("{} returns no id or token to continue from", profile.provider),
        }),
        (Way::Hint, Resume::Hint(role)) => {
            let mut next = edit.by_hint(role, so_far, wording)?;
            next.sentence = format!(
                "{}, because {} is not known to accept a prefill or a token{}",
                next.sentence,
                profile.provider,
                if model.is_empty() { String::new() } else { format!(" for `{model}`") },
            );
            Ok(next)
        }
        (Way::Hint, Resume::Prefill(_) | Resume::Token(_)) => {
            edit.by_hint(profile.request_shape.hint, so_far, wording)
        }
    }
}

/// Counts the messages of a request. Returns `None` if the wire has no known conversation field.
///
/// ```
/// use endstop::{next_request, provider};
///
/// let request = r#"{"contents": [{"role": "user"}, {"role": "model"}, {"role": "user"}]}"#;
/// assert_eq!(next_request::messages(&provider::GOOGLE.main, request), Some(3));
/// ```
#[must_use]
pub fn messages(profile: &Profile, request: &str) -> Option<u32> {
    Edit::new(profile, request).ok()?.messages()
}

/// Checks the parts of a request that the functions of this module read: its messages and its output
/// limit.
///
/// # Errors
///
/// Returns the field, what is wrong with it and what is allowed.
pub fn check_request(profile: &Profile, request: &str) -> Result<(), String> {
    let edit = Edit::new(profile, request).map_err(|why| why.to_string())?;
    edit.check()
}

/// Resumes an answer that the provider paused, without adding a message.
///
/// A compaction pauses an answer too. Its block replaces the messages that it summarises, which
/// makes a new conversation: the caller has to build it.
///
/// # Errors
///
/// Fails if the wire has no pauses, or if the content or token to resume with is missing.
pub fn resume_paused(
    profile: &Profile,
    request: &str,
    so_far: &SoFar<'_>,
) -> Result<NextRequest, Impossible> {
    let edit = Edit::new(profile, request)?;
    match profile.request_shape.paused {
        PauseProtocol::Never => Err(unsupported(profile, "resuming a paused answer")),
        PauseProtocol::Resend { is_summary, .. } => edit.by_resend(so_far, is_summary),
        PauseProtocol::Token(token) => {
            let mut next = edit.by_token(token, so_far, "")?;
            // Only an answer that reached its limit needs a higher one.
            next.cap_counts_all = false;
            Ok(next)
        }
    }
}

/// Asks again for an incomplete tool call, and for nothing else. The tool is forced and the
/// temperature set to 0 if wire, host and model accept that.
///
/// The incomplete call is not sent back: no wire can represent it.
///
/// # Errors
///
/// Fails if the wire has no tool calls, or if the request declares no tools.
pub fn repair_tool_call(
    profile: &Profile,
    model: &str,
    request: &str,
    so_far: &SoFar<'_>,
    tool: &str,
    wording: &Wording,
) -> Result<NextRequest, Impossible> {
    let mut edit = Edit::new(profile, request)?;
    if !profile.capabilities.tools || profile.request_shape.conversation.is_empty() {
        return Err(unsupported(profile, "repairing a tool call"));
    }
    let forced = edit.force(model, tool)?;
    let cold = edit.cool(model)?;
    let role = match profile.resume_for(model) {
        Resume::Hint(role) => role,
        Resume::Prefill(_) | Resume::Token(_) => profile.request_shape.hint,
    };
    let ask = match tool {
        "" if wording.repair.contains("{tool}") => NAMELESS_REPAIR.to_owned(),
        tool => wording.repair.replace("{tool}", tool),
    };
    let of = if tool.is_empty() { "tool call".to_owned() } else { format!("call of `{tool}`") };
    edit.say(so_far.text, role, &ask)?;
    let heat = if cold { ", at temperature 0" } else { "" };
    let sentence = match &forced {
        Ok(field) => {
            format!("one complete {of} is requested, forced by `{field}`{heat}")
        }
        Err(why) => format!("one complete {of} is requested, not forced ({why}){heat}"),
    };
    let forced_by = forced.ok().map(str::to_owned);
    edit.done(RequestChange::Repair { role, forced_by, cold }, sentence)
}

/// Lowers the reasoning effort, for an answer whose reasoning used up the output token limit.
///
/// # Errors
///
/// Fails if the wire has no field for it, if the request has no such field and the model is not
/// known to accept one, or if the value is already the lowest.
pub fn lower_effort(
    profile: &Profile,
    model: &str,
    request: &str,
) -> Result<NextRequest, Impossible> {
    let edit = Edit::new(profile, request)?;
    let fits = |effort: &&Effort| is_of(model, effort.models);
    let efforts: Vec<&Effort> = profile.request_shape.efforts.iter().filter(fits).collect();
    let mut lowest = None;
    for effort in efforts.iter().filter(|effort| edit.has(effort.field)) {
        let from = edit.at(effort.field).unwrap_or_default();
        match lower(effort.scale, &from) {
            Some(to) => return edit.tune(effort.field, from, to),
            None => lowest = lowest.or(Some(effort.field)),
        }
    }
    if let Some(field) = lowest {
        return Err(Impossible::LowestEffort { field });
    }
    let unsaid = efforts.iter().find_map(|effort| Some((effort.field, edit.unsaid(effort.scale)?)));
    match unsaid {
        Some((field, to)) => edit.tune(field, Value::Null, to),
        None => Err(unsupported(profile, "a lower reasoning effort here")),
    }
}

#[cfg(test)]
mod tests;
