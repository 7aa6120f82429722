//! Reads a stream chunk by chunk: its text, its deltas, and its termination signal.
//!
//! The work for a chunk does not depend on earlier chunks. Only new text is copied, and the ending
//! is computed again only after an event that can change it.

use serde_json::{Value, json};

use super::{Delta, TerminationSignal};
use crate::dialect::Wins;
use crate::ending::TransportEnd;
use crate::event::Event;
use crate::frame::{Frame, FrameKind};
use crate::provider::Wire;
use crate::reader::{Head, Reader, Step};
use crate::request::RequestInfo;

/// Reads one stream after another and reports when each is over.
///
/// ```
/// use endstop::signal::StreamHandler;
/// use endstop::{RequestInfo, TransportEnd, Reason, provider};
///
/// let mut handler = StreamHandler::new(&provider::GOOGLE, RequestInfo::default());
/// let first = handler.process_chunk(
///     b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}]}\n\n",
/// );
/// assert_eq!((first.content.as_str(), first.should_continue), ("Hi", true));
/// let last = handler.process_chunk(
///     b"data: {\"candidates\":[{\"finishReason\":\"MAX_TOKENS\"}]}\n\n",
/// );
/// assert_eq!(last.termination.unwrap().ending, Reason::OutputLimit);
/// assert_eq!(handler.finalize(TransportEnd::Eof).ending, Reason::OutputLimit);
/// assert_eq!(handler.content(), "Hi");
/// ```
#[derive(Clone, Debug)]
pub struct StreamHandler {
    wire: Wire,
    request: RequestInfo,
    status: u16,
    content_type: String,
    reader: Reader,
    content: String,
    signal: Option<TerminationSignal>,
    finished: bool,
    #[cfg(test)]
    judged: u32,
}

/// Result of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processed {
    /// Termination signal, if this chunk gives or changes it. [`StreamHandler::termination`]
    /// returns it for later chunks.
    pub termination: Option<TerminationSignal>,
    /// Whether to read on. More chunks may follow the finish reason.
    pub should_continue: bool,
    /// Text that this chunk adds to the first choice.
    pub content: String,
}

impl StreamHandler {
    /// Creates a handler for streams of this wire.
    pub fn new(wire: impl Into<Wire>, request: RequestInfo) -> Self {
        let wire = wire.into();
        Self {
            reader: Reader::new(wire.clone(), Head::default(), request.clone()),
            wire,
            request,
            status: 0,
            content_type: String::new(),
            content: String::new(),
            signal: None,
            finished: false,
            #[cfg(test)]
            judged: 0,
        }
    }

    /// Sets the status and content type of the next streams, and discards the current stream.
    #[must_use]
    pub fn with_head(mut self, head: Head<'_>) -> Self {
        self.status = head.status;
        head.content_type.clone_into(&mut self.content_type);
        self.reset();
        self
    }

    /// Reads a chunk. The signal of the chunk with the finish reason assumes a normal end of the
    /// stream; [`StreamHandler::finalize`] may lower its confidence.
    pub fn process_chunk(&mut self, chunk: &[u8]) -> Processed {
        self.begin();
        let Self { reader, content, .. } = self;
        let before = content.len();
        let mut news = false;
        reader.read(chunk, |event| {
            news |= is_news(&event);
            take_text(&event, content);
        });
        self.processed(before, news)
    }

    /// Reads a chunk and returns its deltas, one for each event of the wire, in the form that
    /// [`is_terminal`](super::is_terminal) takes.
    pub fn deltas(&mut self, chunk: &[u8]) -> Vec<Delta> {
        self.begin();
        let Self { reader, content, wire, .. } = self;
        let before = content.len();
        let mut news = false;
        let mut deltas = Vec::new();
        let mut delta = Delta::default();
        let wins = wire.profile.dialect.wins;
        reader.read_frames(chunk, |step| match step {
            Step::Event(event) => {
                news |= is_news(&event);
                take_text(&event, content);
                note(&event, wins, &mut delta);
            }
            Step::Frame(frame) => {
                finish(&frame, &mut delta);
                deltas.push(std::mem::take(&mut delta));
            }
        });
        self.processed(before, news);
        deltas
    }

    /// Returns the text of the first choice so far; after the end, the whole text.
    #[must_use]
    pub fn content(&self) -> &str {
        &self.content
    }

    /// Returns the current termination signal.
    #[must_use]
    pub fn termination(&self) -> Option<&TerminationSignal> {
        self.signal.as_ref()
    }

    /// Ends the stream. The handler is then ready for the next one.
    pub fn finalize(&mut self, close: TransportEnd) -> TerminationSignal {
        self.begin();
        let next = self.fresh();
        let reader = std::mem::replace(&mut self.reader, next);
        let content = &mut self.content;
        let ending = reader.finish(close, |event| take_text(&event, content));
        let signal = TerminationSignal::from(&ending);
        self.signal = Some(signal.clone());
        self.finished = true;
        signal
    }

    /// Discards the current stream.
    pub fn reset(&mut self) {
        self.reader = self.fresh();
        self.content.clear();
        self.signal = None;
        self.finished = false;
    }

    fn fresh(&self) -> Reader {
        let head = Head { status: self.status, content_type: &self.content_type };
        Reader::new(self.wire.clone(), head, self.request.clone())
    }

    /// Discards the state of the previous stream when the next one begins.
    fn begin(&mut self) {
        if self.finished {
            self.reset();
        }
    }

    fn processed(&mut self, before: usize, news: bool) -> Processed {
        let content = self.content.get(before..).unwrap_or_default().to_owned();
        // The first text changes the verdict on an empty answer.
        let news = news || before == 0 && !content.is_empty();
        let facts = self.reader.facts();
        let should_continue = !(facts.proven || facts.fault.is_some());
        let termination = if news { self.judge() } else { None };
        Processed { termination, should_continue, content }
    }

    /// Returns the termination signal if it changed.
    fn judge(&mut self) -> Option<TerminationSignal> {
        #[cfg(test)]
        {
            self.judged += 1;
        }
        let ending = self.reader.so_far()?;
        let signal = TerminationSignal::from(&ending);
        if self.signal.as_ref() == Some(&signal) {
            return None;
        }
        self.signal = Some(signal.clone());
        Some(signal)
    }
}

/// Reports whether an event can change the ending. Parts of content cannot.
fn is_news(event: &Event<'_>) -> bool {
    !matches!(event, Event::Text { .. } | Event::Reasoning { .. } | Event::ToolCallDelta { .. })
}

fn take_text(event: &Event<'_>, content: &mut String) {
    if let Event::Text { choice: 0, text } = event {
        content.push_str(text);
    }
}

/// Adds an event of the frame to a delta.
fn note(event: &Event<'_>, wins: Wins, delta: &mut Delta) {
    match event {
        Event::Text { choice: 0, text } => delta.text.push_str(text),
        Event::Word { choice: 0, word, .. }
            if wins == Wins::Last || delta.finish_reason.is_none() =>
        {
            delta.finish_reason = Some(word.to_text().into_owned());
        }
        Event::Proof => delta.finished = Some(true),
        Event::Fault(fault) => {
            delta.event_type = Some("error".to_owned());
            delta.metadata = Some(json!({ "error": {
                "type": fault.type_,
                "code": fault.code,
                "message": fault.message,
            } }));
        }
        Event::Begin { .. }
        | Event::Text { .. }
        | Event::Reasoning { .. }
        | Event::Refusal { .. }
        | Event::OtherContent { .. }
        | Event::ToolCallStart { .. }
        | Event::ToolCallTakesText { .. }
        | Event::ToolCallDelta { .. }
        | Event::ToolCallByProvider { .. }
        | Event::ToolCallEnd { .. }
        | Event::Usage(_)
        | Event::Word { .. }
        | Event::Pending { .. }
        | Event::Safety(_)
        | Event::ResumeToken { .. }
        | Event::Detail { .. } => {}
    }
}

/// Adds the frame's name to a delta, and its JSON if the frame is an event.
fn finish(frame: &Frame<'_>, delta: &mut Delta) {
    if delta.event_type.is_none() && !frame.name.is_empty() {
        delta.event_type = Some(frame.name.to_owned());
    }
    if delta.metadata.is_none() && frame.kind == FrameKind::Event {
        let native = serde_json::from_slice::<Value>(frame.data).ok();
        delta.metadata = native.filter(Value::is_object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Confidence, Reason, provider};

    fn text(piece: &str) -> Vec<u8> {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n")
            .into_bytes()
    }

    const WORD: &[u8] =
        b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

    fn handler() -> StreamHandler {
        StreamHandler::new(&provider::OPENAI, RequestInfo::default())
    }

    #[test]
    fn it_signals_with_the_word_and_finalises_with_the_close() {
        let mut handler = handler();
        let first = handler.process_chunk(&text("Hi"));
        assert_eq!(
            (first.termination, first.should_continue, first.content.as_str()),
            (None, true, "Hi")
        );
        let word = handler.process_chunk(WORD);
        let signal = word.termination.unwrap();
        assert_eq!(
            (signal.ending, signal.confidence, word.should_continue),
            (Reason::Complete, Confidence::High, true)
        );
        assert_eq!(handler.termination(), Some(&signal));
        let mut cut = handler.clone();
        assert_eq!(cut.finalize(TransportEnd::Eof).confidence, Confidence::Medium);
        let done = handler.process_chunk(b"data: [DONE]\n\n");
        assert!(!done.should_continue);
        assert_eq!(handler.finalize(TransportEnd::Eof).confidence, Confidence::High);
        handler.process_chunk(&text("x"));
        handler.reset();
        assert_eq!(handler.finalize(TransportEnd::Eof).ending, Reason::Cut);
    }

    /// The work for a chunk does not grow with the text before it.
    #[test]
    fn the_work_for_a_chunk_does_not_grow() {
        let mut handler = handler();
        handler.process_chunk(&text("ab"));
        let judged = handler.judged;
        for _ in 0..5000 {
            let piece = handler.process_chunk(&text("ab"));
            assert_eq!((piece.content.as_str(), piece.content.capacity()), ("ab", 2));
        }
        assert_eq!((handler.content().len(), handler.judged), (10_002, judged));
        let word = handler.process_chunk(WORD);
        assert_eq!((word.content.as_str(), word.termination.is_some()), ("", true));
        assert_eq!(handler.judged, judged + 1);
        let judged = handler.judged;
        // Text after the finish reason does not change the signal.
        for _ in 0..5000 {
            assert_eq!(handler.process_chunk(&text("ab")).termination, None);
        }
        assert_eq!(handler.judged, judged);
        assert_eq!(handler.termination().map(|signal| signal.ending), Some(Reason::Complete));
    }

    #[test]
    fn the_text_of_a_plain_body_is_kept() {
        let mut handler = handler();
        let body = br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
        handler.process_chunk(body);
        assert_eq!(handler.finalize(TransportEnd::Eof).ending, Reason::Complete);
        assert_eq!(handler.content(), "Hi");
        // The next stream starts empty.
        handler.process_chunk(&text("x"));
        assert_eq!((handler.content(), handler.termination()), ("x", None));
    }

    #[test]
    fn the_first_text_after_an_early_word_changes_the_signal() {
        let mut handler = handler();
        let empty = handler.process_chunk(WORD).termination.unwrap();
        assert_eq!(empty.confidence, Confidence::Medium);
        let full = handler.process_chunk(&text("x")).termination.unwrap();
        assert_eq!(full.confidence, Confidence::High);
    }

    #[test]
    fn deltas_carry_what_their_event_says() {
        let mut handler = handler();
        let mut chunk = text("Hi");
        chunk.extend_from_slice(WORD);
        chunk.extend_from_slice(b"data: [DONE]\n\ndata: {\"choi");
        let deltas = handler.deltas(&chunk);
        let seen: Vec<_> = deltas
            .iter()
            .map(|delta| (delta.text.as_str(), delta.finish_reason.as_deref(), delta.finished))
            .collect();
        assert_eq!(seen, [("Hi", None, None), ("", Some("stop"), None), ("", None, Some(true))]);
        assert!(handler.termination().is_some());
        assert!(deltas.iter().all(|delta| delta.event_type.is_none()));
    }

    /// Of two finish reasons in one event, the delta has the one that counts on this wire. An error
    /// keeps its type, whatever the name of its event.
    #[test]
    fn deltas_carry_the_word_that_counts_and_errors() {
        let word = b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\",\
            \"finish_details\":{\"type\":\"stop\"}}]}\n\n";
        let deltas = handler().deltas(word);
        assert_eq!(deltas[0].finish_reason.as_deref(), Some("length"));
        let error = b"event: x\ndata: {\"error\":{\"type\":\"server_error\",\"message\":\"m\",\
            \"param\":\"p\"}}\n\n";
        let deltas = handler().deltas(error);
        assert_eq!(deltas[0].event_type.as_deref(), Some("error"));
        let metadata = json!({ "error": { "type": "server_error", "code": null, "message": "m" } });
        assert_eq!(deltas[0].metadata, Some(metadata));
    }
}
