//! Which wire is this? Told by the shape of the bytes, where nobody said.
//!
//! A verdict that rests on a shape is at most of medium confidence: the profile that is found has
//! [`Profile::guessed`] set.

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

/// How many bytes at the beginning are looked at.
const LOOK: usize = 256 * 1024;

/// The keys of a value by which its dialect is known.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Probe<'a> {
    /// The name that the framing gives the event.
    #[serde(skip)]
    pub(crate) name: &'a str,
    #[serde(borrow, rename = "type")]
    pub(crate) type_: Text<'a>,
    #[serde(borrow)]
    pub(crate) object: Text<'a>,
    #[serde(borrow)]
    pub(crate) choices: Few<Loose<ProbeChoice<'a>>>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) candidates: Option<&'a RawValue>,
    #[serde(borrow, rename = "promptFeedback")]
    pub(crate) prompt_feedback: Option<&'a RawValue>,
    #[serde(borrow, rename = "usageMetadata")]
    pub(crate) usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, rename = "stopReason")]
    pub(crate) stop_reason_camel: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) done: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) event_type: Text<'a>,
    #[serde(borrow)]
    pub(crate) model_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) request_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) generation_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) status: Text<'a>,
    #[serde(borrow)]
    pub(crate) results: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) outputs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) generation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) generations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) is_finished: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) meta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) completion: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) completions: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) model_version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) final_result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) orchestration_result: Option<&'a RawValue>,
    #[serde(borrow, rename = "outputText")]
    pub(crate) output_text: Option<&'a RawValue>,
    #[serde(borrow, rename = "inputTextTokenCount")]
    pub(crate) input_text_token_count: Option<&'a RawValue>,
    #[serde(borrow, rename = "contentBlockDelta")]
    pub(crate) content_block_delta: Option<&'a RawValue>,
    #[serde(borrow, rename = "messageStart")]
    pub(crate) message_start: Option<&'a RawValue>,
    #[serde(borrow, rename = "messageStop")]
    pub(crate) message_stop: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) generated_text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) token: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) urls: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) stop: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) success: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProbeChoice<'a> {
    #[serde(borrow)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) text: Option<&'a RawValue>,
}

/// The profile that reads bytes which begin like this; none if no dialect claims them.
#[must_use]
pub fn guess(bytes: &[u8]) -> Option<Profile> {
    let look = bytes.get(..LOOK).unwrap_or(bytes);
    let (claim, framing) = first_claim(look)?;
    Some(Profile { guessed: true, ambiguous: claim.ambiguous, framing, ..claim.profile()? })
}

/// The first frame that a dialect claims as its own.
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
    // A body of its own is read as such whatever the framing; only streams depend on it.
    let framing = if start.starts_with(b"{") { claim.dialect.framing } else { framing };
    Some((claim, framing))
}

/// A dialect that claims a frame.
pub(crate) struct Claim {
    pub(crate) dialect: &'static Dialect,
    /// Others claim it too.
    pub(crate) ambiguous: bool,
}

impl Claim {
    /// Whoever speaks this dialect first.
    pub(crate) fn profile(&self) -> Option<Profile> {
        let id = self.dialect.id;
        let generic = provider::GENERIC.wire_of(id);
        generic.or_else(|| provider::ALL.iter().find_map(|known| known.wire_of(id))).copied()
    }
}

/// The dialect that a frame is of; none if no dialect claims it.
pub(crate) fn claim(frame: &Frame<'_>) -> Option<Claim> {
    match serde_json::from_slice::<Loose<Probe<'_>>>(frame.data) {
        Ok(Loose(probe)) => claim_of(Probe { name: frame.name, ..probe }),
        Err(_) => {
            let mended = mend(frame.data)?;
            let Loose(probe) = serde_json::from_slice::<Loose<Probe<'_>>>(&mended).ok()?;
            claim_of(Probe { name: frame.name, ..probe })
        }
    }
}

fn claim_of(probe: Probe<'_>) -> Option<Claim> {
    let mut claims = dialect::ALL.iter().copied().filter(|dialect| (dialect.claims)(&probe));
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
