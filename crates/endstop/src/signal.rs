//! The termination signal: an ending as programs exchange it, and the detectors that users of such
//! signals know by name.
//!
//! `should_terminate` means that this response is over, also by an error, a cut or a tool call;
//! whether the conversation goes on is another question. Unfinished is not terminal: a partial delta
//! never is, a whole response always is, but for a polled one that is still queued or in progress.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::ending::{Close, Closed, Confidence, Ending, Reason, Shown};
use crate::event::Event;
use crate::provider::{self, Wire};
use crate::reader::{Asked, Head, Reader};
use crate::text::{WORD_CAP, clean};
use crate::verdict::{self, Evidence, Habits, Meaning};
use crate::vocabulary::{VOCABULARIES, Vocabulary};

/// The serialised form of an ending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TerminationSignal {
    /// This response is over.
    pub should_terminate: bool,
    /// The termination word, such as `natural_completion`.
    pub reason: String,
    /// Our own reason.
    pub ending: Reason,
    /// How sure that is.
    pub confidence: Confidence,
    /// What the provider itself said.
    pub provider_specific: ProviderSpecific,
    /// The same in a sentence.
    pub message: String,
    /// The reason in the other vocabularies.
    pub vocabularies: BTreeMap<&'static str, &'static str>,
}

/// What the provider itself said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProviderSpecific {
    /// The bare name of the field; empty where nothing was said.
    pub original_field: String,
    /// The word.
    pub original_value: String,
    /// What else is known: provider, model, wire, how it closed, what it shows, details of the wire.
    pub metadata: BTreeMap<String, String>,
}

/// Who is asked, for detectors that are not given bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The provider's id.
    pub provider: String,
    /// The model.
    pub model: Option<String>,
}

/// One piece of a stream, as frameworks hand it around.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Whether it is the last, if anyone said.
    pub finished: Option<bool>,
    /// The type of the event that it came in.
    pub event_type: Option<String>,
    /// The provider's word, if it carries one.
    pub finish_reason: Option<String>,
    /// Its text.
    pub text: String,
    /// Whatever else came with it; words are looked for in it.
    pub metadata: Option<Value>,
}

/// A whole response, as frameworks hand it around.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// The provider's word.
    pub finish_reason: Option<String>,
    /// The status of a polled response.
    pub status: Option<String>,
    /// Its text.
    pub text: String,
    /// Whatever else came with it; words are looked for in it.
    pub metadata: Option<Value>,
}

/// A delta or a response.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A piece of a stream.
    Delta(&'a Delta),
    /// A whole response.
    Response(&'a Response),
}

impl<'a> From<&'a Delta> for Input<'a> {
    fn from(delta: &'a Delta) -> Self {
        Self::Delta(delta)
    }
}

impl<'a> From<&'a Response> for Input<'a> {
    fn from(response: &'a Response) -> Self {
        Self::Response(response)
    }
}

/// Event types that end a response, and what they alone say about why.
static TERMINAL_EVENTS: &[(&str, Reason)] = &[
    ("response.completed", Reason::Complete),
    ("response.incomplete", Reason::Unknown),
    ("response.failed", Reason::Failed),
    ("response.cancelled", Reason::Cancelled),
    ("response.done", Reason::Unknown),
    ("error", Reason::Failed),
    ("message_stop", Reason::Unknown),
    ("messageStop", Reason::Unknown),
    ("message-end", Reason::Unknown),
    ("stream-end", Reason::Unknown),
    ("interaction.completed", Reason::Unknown),
    ("chat.end", Reason::Unknown),
];

/// Keys under which metadata carries a word.
static WORD_KEYS: &[&str] =
    &["finish_reason", "stop_reason", "finishReason", "stopReason", "done_reason", "status"];

/// States of a polled response that is not over.
static PENDING: &[&str] = &["queued", "in_progress"];

/// Whether this ends the response: the `should_terminate` of [`detect_termination`].
pub fn is_terminal<'a>(input: impl Into<Input<'a>>, context: &Context) -> bool {
    let input = input.into();
    detect_termination(input, matches!(input, Input::Delta(_)), context).should_terminate
}

/// What this says about the end of the response.
///
/// A delta is terminal by its flag or by the type of its event; where they disagree, the one that
/// says that it is over is right, since nothing sets either on partial content. A response that is
/// not streamed is over, unless its status says that it is still to come.
pub fn detect_termination<'a>(
    input: impl Into<Input<'a>>,
    is_streaming: bool,
    context: &Context,
) -> TerminationSignal {
    let (word, metadata, over, event) = match input.into() {
        Input::Delta(delta) => {
            let event = delta.event_type.as_deref();
            let known = TERMINAL_EVENTS.iter().find(|(name, _)| Some(*name) == event);
            let over = !is_streaming || delta.finished == Some(true) || known.is_some();
            (
                delta.finish_reason.as_deref(),
                &delta.metadata,
                over,
                known.map(|(_, reason)| *reason),
            )
        }
        Input::Response(response) => {
            let status = response.status.as_deref();
            let pending = status.is_some_and(|status| PENDING.contains(&status));
            (response.finish_reason.as_deref().or(status), &response.metadata, !pending, None)
        }
    };
    let told = word.filter(|word| !word.is_empty());
    let found = metadata.as_ref().and_then(find_word);
    let (field, word) = match (told, &found) {
        (Some(word), _) => ("finish_reason", word),
        (None, Some((field, word))) => (*field, word.as_str()),
        (None, None) => ("", ""),
    };
    let (reason, confidence) = judge(word, event, over, context);
    let mut signal = TerminationSignal::new(reason, confidence);
    signal.should_terminate = over;
    if !over {
        "nothing says that the response is over".clone_into(&mut signal.message);
    }
    field.clone_into(&mut signal.provider_specific.original_field);
    signal.provider_specific.original_value = clean(word, WORD_CAP);
    signal
        .provider_specific
        .metadata
        .insert("provider".to_owned(), clean(&context.provider, WORD_CAP));
    if let Some(model) = &context.model {
        signal.provider_specific.metadata.insert("model".to_owned(), clean(model, WORD_CAP));
    }
    signal
}

/// The word under one of the keys that carry one, at the top of the metadata.
fn find_word(metadata: &Value) -> Option<(&'static str, String)> {
    WORD_KEYS.iter().find_map(|key| {
        let word = metadata.get(key)?.as_str().filter(|word| !word.is_empty())?;
        Some((*key, word.to_owned()))
    })
}

fn judge(word: &str, event: Option<Reason>, over: bool, context: &Context) -> (Reason, Confidence) {
    if !over {
        return (Reason::Unknown, Confidence::Low);
    }
    let provider = provider::by_id(&context.provider).unwrap_or(provider::GENERIC);
    match provider.meaning(word) {
        Meaning::Known(reason) => (reason, Confidence::High),
        Meaning::Vague(reason) => (reason, Confidence::Medium),
        Meaning::Unknown => (Reason::Unknown, Confidence::Medium),
        Meaning::Nothing => match event {
            Some(Reason::Unknown) | None => (Reason::Unknown, Confidence::Low),
            Some(reason) => (reason, Confidence::Medium),
        },
    }
}

/// The confidence of a verdict on these facts, at a host that proves its ends.
#[must_use]
pub fn confidence(said: Meaning, closed: Closed, shown: &Shown) -> Confidence {
    let word = crate::ending::Said { field: "", word: String::new() };
    let evidence = Evidence {
        said: (said != Meaning::Nothing).then_some(&word),
        meaning: said,
        closed,
        shown,
        fault: None,
        choices: 1,
        habits: Habits { has_tool_word: true, ..Habits::default() },
    };
    verdict::judge(&evidence).confidence
}

impl TerminationSignal {
    /// A signal from the least that one can know.
    #[must_use]
    pub fn new(ending: Reason, confidence: Confidence) -> Self {
        Self {
            should_terminate: true,
            reason: Vocabulary::Termination.spell(ending).to_owned(),
            ending,
            confidence,
            provider_specific: ProviderSpecific::default(),
            message: format!("the response ended: {}", ending.name().replace('_', " ")),
            vocabularies: VOCABULARIES
                .iter()
                .map(|known| (known.name(), known.spell(ending)))
                .collect(),
        }
    }

    /// What is wrong with a signal that came from elsewhere; nothing if it agrees with itself.
    #[must_use]
    pub fn problems(&self) -> Vec<&'static str> {
        let checks = [
            (
                self.reason != Vocabulary::Termination.spell(self.ending),
                "the termination word is not that of the ending",
            ),
            (self.message.is_empty(), "there is no message"),
            (
                self.provider_specific.original_value.len() > WORD_CAP,
                "the original value is longer than 256 bytes",
            ),
            (
                self.provider_specific.original_field.is_empty()
                    && !self.provider_specific.original_value.is_empty(),
                "there is a value and no field that it stood in",
            ),
            (
                !self.should_terminate && self.ending.is_success(),
                "a response that is not over cannot have succeeded",
            ),
            (
                self.ending.is_success() && self.confidence == Confidence::Low,
                "a success is never of low confidence",
            ),
        ];
        checks.into_iter().filter_map(|(wrong, what)| wrong.then_some(what)).collect()
    }

    /// Whom the signal is about.
    #[must_use]
    pub fn context(&self) -> Context {
        let metadata = &self.provider_specific.metadata;
        Context {
            provider: metadata.get("provider").cloned().unwrap_or_default(),
            model: metadata.get("model").cloned(),
        }
    }
}

impl From<&Ending> for TerminationSignal {
    fn from(ending: &Ending) -> Self {
        let mut signal = Self::new(ending.reason, ending.confidence);
        signal.should_terminate = ending.over;
        signal.message.clone_from(&ending.sentence);
        if let Some((field, word)) = ending.native() {
            field.clone_into(&mut signal.provider_specific.original_field);
            word.clone_into(&mut signal.provider_specific.original_value);
        }
        let metadata = &mut signal.provider_specific.metadata;
        for detail in &ending.details {
            metadata.insert(detail.key.to_owned(), detail.value.clone());
        }
        let facts = [
            ("provider", Some(ending.provider.clone())),
            ("dialect", Some(ending.dialect.to_owned())),
            ("model", ending.model.clone()),
            ("closed", Some(ending.closed.word().to_owned())),
            ("shown", Some(ending.shown.words().join(","))),
        ];
        metadata
            .extend(facts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        signal
    }
}

/// Follows one stream after another and tells when each is over.
#[derive(Clone, Debug)]
pub struct StreamHandler {
    wire: Wire,
    asked: Asked,
    reader: Reader,
    content: String,
}

/// What came of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processed {
    /// The end, once it has been said.
    pub termination: Option<TerminationSignal>,
    /// Whether more is to be read: there may be more even after the word.
    pub should_continue: bool,
    /// The text so far.
    pub content: String,
}

impl StreamHandler {
    /// A handler for streams of this wire.
    pub fn new(wire: impl Into<Wire>, asked: Asked) -> Self {
        let wire = wire.into();
        let reader = Self::reader(&wire, &asked);
        Self { wire, asked, reader, content: String::new() }
    }

    fn reader(wire: &Wire, asked: &Asked) -> Reader {
        Reader::new(wire.clone(), Head { status: 200, content_type: "" }, asked.clone())
    }

    /// Reads a chunk. The chunk that carries the word signals at full confidence; the end of the
    /// stream may lower it.
    pub fn process_chunk(&mut self, chunk: &[u8]) -> Processed {
        let Self { reader, content, .. } = self;
        reader.read(chunk, |event| {
            if let Event::Text { choice: 0, text } = event {
                content.push_str(text);
            }
        });
        let so_far = self.reader.so_far();
        let proven = so_far.as_ref().is_some_and(|ending| ending.closed != Closed::Open);
        Processed {
            termination: so_far.as_ref().map(TerminationSignal::from),
            should_continue: !proven,
            content: self.content.clone(),
        }
    }

    /// Ends the stream; the handler is ready for the next.
    pub fn finalize(&mut self, close: Close) -> TerminationSignal {
        let next = Self::reader(&self.wire, &self.asked);
        let reader = std::mem::replace(&mut self.reader, next);
        self.content.clear();
        TerminationSignal::from(&reader.finish(close))
    }

    /// Forgets the stream under way.
    pub fn reset(&mut self) {
        self.reader = Self::reader(&self.wire, &self.asked);
        self.content.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn context() -> Context {
        Context { provider: "openai".to_owned(), model: Some("m".to_owned()) }
    }

    #[track_caller]
    fn delta(finished: Option<bool>, event: Option<&str>, metadata: Option<Value>, want: bool) {
        let delta =
            Delta { finished, event_type: event.map(str::to_owned), metadata, ..Delta::default() };
        assert_eq!(is_terminal(&delta, &context()), want, "{delta:?}");
        // The same input twice.
        assert_eq!(is_terminal(&delta, &context()), want, "{delta:?}");
        let signal = detect_termination(&delta, true, &context());
        assert_eq!(signal.should_terminate, want);
        assert_eq!(signal.problems(), Vec::<&str>::new(), "{signal:?}");
    }

    #[test]
    fn is_terminal_as_a_table() {
        delta(Some(true), None, None, true);
        delta(Some(false), None, None, false);
        delta(None, None, None, false);
        for event in ["response.completed", "response.incomplete", "response.failed", "error"] {
            delta(None, Some(event), None, true);
            // Both indicators, in conflict: the one that says it is over is right.
            delta(Some(false), Some(event), None, true);
            delta(Some(true), Some(event), None, true);
        }
        for event in ["response.created", "response.output_text.delta", "frobnicated", ""] {
            delta(None, Some(event), None, false);
            delta(Some(false), Some(event), None, false);
            delta(Some(true), Some(event), None, true);
        }
        for metadata in [
            json!(null),
            json!([1]),
            json!("x"),
            json!({"finish_reason": 7}),
            json!({"finish_reason": "stop"}),
        ] {
            delta(None, None, Some(metadata.clone()), false);
            delta(Some(true), None, Some(metadata), true);
        }
    }

    #[test]
    fn a_whole_response_is_terminal_unless_it_is_polled() {
        let response = |status: Option<&str>| Response {
            status: status.map(str::to_owned),
            ..Response::default()
        };
        assert!(is_terminal(&Response::default(), &context()));
        assert!(is_terminal(&response(Some("completed")), &context()));
        assert!(is_terminal(&response(Some("frobnicated")), &context()));
        assert!(!is_terminal(&response(Some("queued")), &context()));
        assert!(!is_terminal(&response(Some("in_progress")), &context()));
    }

    #[test]
    fn what_is_said_becomes_the_signal() {
        let signal = |word: Option<&str>, event: Option<&str>| {
            let delta = Delta {
                finished: Some(true),
                finish_reason: word.map(str::to_owned),
                event_type: event.map(str::to_owned),
                ..Delta::default()
            };
            let signal = detect_termination(&delta, true, &context());
            (signal.reason, signal.ending, signal.confidence)
        };
        let natural = "natural_completion".to_owned();
        assert_eq!(
            signal(Some("stop"), None),
            (natural.clone(), Reason::Complete, Confidence::High)
        );
        assert_eq!(
            signal(None, Some("response.completed")),
            (natural, Reason::Complete, Confidence::Medium)
        );
        assert_eq!(signal(Some("frobnicated"), None).1, Reason::Unknown);
        assert_eq!(signal(Some("frobnicated"), None).2, Confidence::Medium);
        assert_eq!(
            (signal(None, None).1, signal(None, None).2),
            (Reason::Unknown, Confidence::Low)
        );
        let found = Delta {
            finished: Some(true),
            metadata: Some(json!({"stop_reason": "x", "finish_reason": "length"})),
            ..Delta::default()
        };
        let found = detect_termination(&found, true, &context());
        assert_eq!(
            (found.ending, found.provider_specific.original_field.as_str()),
            (Reason::OutputLimit, "finish_reason")
        );
        assert_eq!(found.context(), context());
    }

    #[test]
    fn the_handler_signals_with_the_word_and_finalises_with_the_close() {
        let mut handler = StreamHandler::new(&provider::OPENAI, Asked::default());
        let first = handler.process_chunk(
            b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n",
        );
        assert_eq!(
            (first.termination, first.should_continue, first.content.as_str()),
            (None, true, "Hi")
        );
        let word = handler.process_chunk(
            b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        );
        let signal = word.termination.unwrap();
        assert_eq!(
            (signal.ending, signal.confidence, word.should_continue),
            (Reason::Complete, Confidence::High, true)
        );
        let mut cut = handler.clone();
        assert_eq!(cut.finalize(Close::Eof).confidence, Confidence::Medium);
        let done = handler.process_chunk(b"data: [DONE]\n\n");
        assert!(!done.should_continue);
        assert_eq!(handler.finalize(Close::Eof).confidence, Confidence::High);
        handler.process_chunk(
            b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
        );
        handler.reset();
        assert_eq!(handler.finalize(Close::Eof).ending, Reason::Cut);
    }

    #[test]
    fn a_signal_that_disagrees_with_itself_has_problems() {
        let mut signal = TerminationSignal::new(Reason::Complete, Confidence::High);
        assert_eq!(signal.problems(), Vec::<&str>::new());
        "error_termination".clone_into(&mut signal.reason);
        signal.message.clear();
        signal.should_terminate = false;
        assert_eq!(signal.problems().len(), 3);
        assert!(serde_json::to_value(&signal).unwrap()["vocabularies"]["ai_sdk"] == "stop");
    }

    #[test]
    fn confidence_follows_the_three_facts() {
        let text = Shown { text: true, ..Shown::default() };
        let known = Meaning::Known(Reason::Complete);
        assert_eq!(confidence(known, Closed::Proven, &text), Confidence::High);
        assert_eq!(confidence(known, Closed::Eof, &text), Confidence::Medium);
        assert_eq!(confidence(Meaning::Unknown, Closed::Proven, &text), Confidence::Medium);
        assert_eq!(confidence(Meaning::Nothing, Closed::Proven, &text), Confidence::Low);
    }
}
