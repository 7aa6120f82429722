//! Detects the wire from the shape of the bytes, if no other clue names it.
//!
//! A verdict that relies on a shape has at most medium confidence: the profile has
//! [`Profile::guessed`] set.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{self, Dialect};
use crate::frame::array::Array;
use crate::frame::aws::Aws;
use crate::frame::sse::Sse;
use crate::frame::{Frame, Framing};
use crate::mend::mend;
use crate::provider::{self, Profile};
use crate::wire::{Few, Loose, Text};

/// Number of bytes at the beginning that are examined.
const LOOK: usize = 256 * 1024;

/// A JSON object of which only the keys are read, to detect its dialect.
#[derive(Debug, Default)]
pub struct Probe<'a> {
    name: &'a str,
    fields: Fields<'a>,
}

type Fields<'a> = BTreeMap<Text<'a>, &'a RawValue>;

impl<'a> Probe<'a> {
    /// Reads the payload of a frame.
    fn new(name: &'a str, data: &'a [u8]) -> Option<Self> {
        let Loose(fields) = serde_json::from_slice::<Loose<Fields<'a>>>(data).ok()?;
        Some(Self { name, fields })
    }

    fn value(&self, key: &str) -> Option<&'a RawValue> {
        self.fields.get(key).copied().filter(|value| value.get() != "null")
    }

    /// Reports whether the object has this key, with a value other than null.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Reports whether the value of this key is an object.
    #[must_use]
    pub fn has_object(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.get().starts_with('{'))
    }

    /// Reports whether the value of this key is a string, possibly empty.
    #[must_use]
    pub fn has_text(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.get().starts_with('"'))
    }

    /// Returns the string at this key; empty if it is missing or not a string.
    #[must_use]
    pub fn text(&self, key: &str) -> Cow<'a, str> {
        let Text(text) = self.value(key).map(|value| read(value.get())).unwrap_or_default();
        text
    }

    /// Returns the event name in the payload at this key, else the name from the framing.
    #[must_use]
    pub fn event(&self, key: &str) -> Cow<'a, str> {
        let text = self.text(key);
        if text.is_empty() { Cow::Borrowed(self.name) } else { text }
    }

    /// Returns the event name from the framing; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Reports whether an object in the list at this key has one of these keys.
    #[must_use]
    pub fn lists(&self, key: &str, keys: &[&str]) -> bool {
        let list: Few<Loose<Fields<'a>>> =
            self.value(key).map(|value| read(value.get())).unwrap_or_default();
        list.iter().any(|Loose(fields)| {
            let item = Probe { name: "", fields: fields.clone() };
            keys.iter().any(|key| item.has(key))
        })
    }
}

fn read<'a, T: Deserialize<'a> + Default>(json: &'a str) -> T {
    serde_json::from_str(json).unwrap_or_default()
}

/// Returns the profile for bytes with this beginning, or `None` if no dialect claims them.
#[must_use]
pub(crate) fn guess(bytes: &[u8]) -> Option<Profile> {
    let look = bytes.get(..LOOK).unwrap_or(bytes);
    let (claim, framing) = first_claim(look)?;
    Some(Profile { guessed: true, ambiguous: claim.ambiguous, framing, ..claim.profile()? })
}

/// Returns the first frame that a dialect claims, and its framing.
fn first_claim(bytes: &[u8]) -> Option<(Claim, Framing)> {
    let start = crate::frame::trim(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let mut found = None;
    let mut look = |frame: Frame<'_>, framing| {
        if found.is_none() {
            found = claim(&frame).map(|claim| (claim, framing));
        }
    };
    match start.first()? {
        b'{' => {
            look(Frame::event(start), Framing::Sse);
            let line = start.split(|byte| *byte == b'\n').next().unwrap_or(start);
            look(Frame::event(line), Framing::Sse);
        }
        b'[' => {
            let _ = Array::new(LOOK).push(start, |frame| look(frame, Framing::Array));
        }
        0 => {
            let _ = Aws::new(LOOK).push(bytes, |frame| look(frame, Framing::Aws));
            let _ = Aws::wrapped(LOOK).push(bytes, |frame| look(frame, Framing::AwsChunks));
        }
        _ => {
            let _ = Sse::new(LOOK).push(bytes, |frame| look(frame, Framing::Sse));
        }
    }
    let (claim, framing) = found?;
    // A whole body is read in the same way for every framing; only streams depend on it.
    let framing = if start.starts_with(b"{") { claim.dialect.framing } else { framing };
    Some((claim, framing))
}

/// A dialect that claims a frame.
pub(crate) struct Claim {
    pub(crate) dialect: &'static Dialect,
    /// Whether other dialects claim it too.
    pub(crate) ambiguous: bool,
}

impl Claim {
    /// Returns the profile of the first provider that speaks this dialect.
    pub(crate) fn profile(&self) -> Option<Profile> {
        profile_of(self.dialect)
    }
}

/// Returns the profile of the first provider that speaks this dialect.
pub(crate) fn profile_of(dialect: &Dialect) -> Option<Profile> {
    let generic = provider::GENERIC.wire_of(dialect.id);
    generic.or_else(|| provider::ALL.iter().find_map(|known| known.wire_of(dialect.id))).copied()
}

/// Reports whether a frame has the shape of this dialect.
pub(crate) fn is_of(frame: &Frame<'_>, dialect: &Dialect) -> bool {
    Probe::new(frame.name, frame.data).is_some_and(|probe| (dialect.claims)(&probe))
}

/// Returns the dialect of a frame, if a dialect claims it.
pub(crate) fn claim(frame: &Frame<'_>) -> Option<Claim> {
    if let Some(probe) = Probe::new(frame.name, frame.data) {
        return claim_of(&probe);
    }
    claim_of(&Probe::new(frame.name, &mend(frame.data)?.last)?)
}

fn claim_of(probe: &Probe<'_>) -> Option<Claim> {
    let mut claims = dialect::ALL.iter().copied().filter(|dialect| (dialect.claims)(probe));
    let dialect = claims.next()?;
    Some(Claim { dialect, ambiguous: claims.next().is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &str, want: Option<&str>) {
        assert_eq!(guess(bytes.as_bytes()).map(|profile| profile.dialect.id), want, "{bytes}");
    }

    #[test]
    fn each_wire_is_known_by_its_shape() {
        check("data: {\"choices\":[{\"delta\":{}}]}\n\n", Some("openai-chat"));
        check("{\"object\":\"chat.completion\",\n\"choices\":[]}", Some("openai-chat"));
        check("{\"choices\":[{\"text\":\"x\"}]}", Some("openai-completions"));
        check("event: x\ndata: {\"type\":\"response.created\"}\n\n", Some("openai-responses"));
        check("data: {\"type\":\"message_start\"}\n\n", Some("anthropic-messages"));
        check("[{\"candidates\":[]}", Some("gemini-generate"));
        check("{\"output\":{},\"stopReason\":\"x\"}", Some("bedrock-converse"));
        check("data: {\"type\":\"message-start\"}\n\n", Some("cohere-v2"));
        check(
            "{\"message\":{},\"done\":false}\n{\"message\":{},\"done\":true}\n",
            Some("ollama-chat"),
        );
        check("{\"object\":\"thread.run\",\"status\":\"queued\"}", Some("openai-assistants"));
        check(
            "data: {\"completion\":\" Hi\",\"stop_reason\":null}\n\n",
            Some("anthropic-complete"),
        );
        check("{\"object\":\"interaction\"}", Some("gemini-interactions"));
        check("data: {\"event_type\":\"step.start\"}\n\n", Some("gemini-interactions"));
        check("{\"messageStop\":{}}", Some("bedrock-nova"));
        check("{\"inputTextTokenCount\":1,\"results\":[]}", Some("bedrock-titan"));
        check("{\"generation\":\"x\"}", Some("bedrock-llama"));
        check("{\"outputs\":[]}", Some("bedrock-mistral"));
        check("{\"generations\":[]}", Some("bedrock-cohere"));
        check("{\"is_finished\":false,\"text\":\"x\"}", Some("bedrock-cohere"));
        check("{\"completions\":[]}", Some("bedrock-ai21"));
        check("{\"generations\":[],\"meta\":{}}", Some("cohere-v1"));
        check("{\"event_type\":\"stream-start\"}\n{\"is_finished\":false}\n", Some("cohere-v1"));
        check("{\"model_id\":\"m\",\"results\":[]}", Some("watsonx"));
        check("{\"status\":\"starting\",\"urls\":{}}", Some("replicate"));
        check("[{\"generated_text\":\"x\"}]", Some("hf-tgi"));
        check("{\"type\":\"error\",\"error\":{\"type\":\"x\"}}", Some("anthropic-messages"));
        check("{\"type\":\"error\",\"code\":\"x\"}", None);
        check("<html>", None);
        check("", None);
        check("{\"error\":\"x\"}", None);
    }
}
