//! Collector for a whole answer: its text, tool calls, token counts and ending.

use crate::ending::{Ending, TransportEnd, Usage};
use crate::event::Event;
use crate::provider::Wire;
use crate::reader::{Head, Limits, Reader};
use crate::request::RequestInfo;
use crate::tool_call::{Allow, Assembly, Call, Refusal, ToolCall, Whole, allow, whole};

/// Reads one response and collects its answer.
///
/// It collects the text of the first choice. Use a [`Reader`] for other choices, or to pass text on
/// as it arrives.
///
/// ```
/// use endstop::{Collector, Head, Reason, RequestInfo, TransportEnd, provider};
///
/// let head = Head { status: 200, content_type: "application/json" };
/// let mut collector = Collector::new(&provider::OPENAI, head, RequestInfo::default());
/// collector.push(br#"{"choices":[{"message":{"content":"Once"},"#);
/// collector.push(br#""finish_reason":"length"}],"usage":{"completion_tokens":1}}"#);
/// let answer = collector.finish(TransportEnd::Eof);
/// assert_eq!(answer.text, "Once");
/// assert_eq!(answer.usage.output, Some(1));
/// assert_eq!(answer.ending.reason, Reason::OutputLimit);
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `finish` to get the ending"]
pub struct Collector {
    reader: Reader,
    content: Content,
}

/// Answer and ending of one response.
///
/// ```
/// use endstop::tool_call::Allow;
/// use endstop::{Collector, Head, RequestInfo, TransportEnd, provider};
///
/// let mut collector = Collector::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// collector.push(br#"{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"name":"f","#);
/// let answer = collector.finish(TransportEnd::Eof);
/// assert!(matches!(answer.allow(), Allow::Refuse(_)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The provider's id of the response; empty if it sent none.
    pub id: String,
    /// Text of the first choice.
    pub text: String,
    /// Reasoning of the first choice.
    pub reasoning: String,
    /// Tool calls of all choices. Call [`Answer::allow`] before you run one.
    pub tool_calls: Vec<ToolCall>,
    /// The provider's token for a request that continues the first choice.
    pub resume_token: Option<String>,
    /// Token counts.
    pub usage: Usage,
    /// Ending of the response.
    pub ending: Ending,
}

impl Answer {
    /// Reports whether the tool calls may run: all are complete and the response ended well.
    #[must_use]
    pub fn allow(&self) -> Allow {
        allow(&self.ending, &self.tool_calls)
    }

    /// Returns the tool calls, if they may run.
    ///
    /// # Errors
    ///
    /// Returns the reason why none of them may run.
    pub fn whole_calls(&self) -> Result<Vec<Call<Whole>>, Refusal> {
        whole(&self.ending, &self.tool_calls)
    }
}

#[derive(Clone, Debug, Default)]
struct Content {
    id: String,
    text: String,
    reasoning: String,
    resume_token: Option<String>,
    calls: Assembly,
}

impl Content {
    fn observe(&mut self, event: &Event<'_>) {
        if let Event::Text { choice: 0, text } = event {
            self.text.push_str(text);
        } else if let Event::Reasoning { choice: 0, text } = event {
            self.reasoning.push_str(text);
        } else if let Event::ResumeToken { choice: 0, token } = event {
            self.resume_token = Some((*token).to_owned());
        } else if let Event::Begin { id, .. } = event {
            if self.id.is_empty() {
                (*id).clone_into(&mut self.id);
            }
        } else {
            self.calls.observe(event);
        }
    }
}

impl Collector {
    /// Creates a collector for one response of this wire.
    pub fn new(wire: impl Into<Wire>, head: Head<'_>, request: RequestInfo) -> Self {
        Self::with_limits(wire, head, request, Limits::default())
    }

    /// Creates a collector with other limits.
    pub fn with_limits(
        wire: impl Into<Wire>,
        head: Head<'_>,
        request: RequestInfo,
        limits: Limits,
    ) -> Self {
        let reader = Reader::with_limits(wire, head, request, limits);
        Self { reader, content: Content::default() }
    }

    /// Reads a chunk. Chunks may be split anywhere.
    pub fn push(&mut self, chunk: &[u8]) {
        let Self { reader, content } = self;
        reader.read(chunk, |event| content.observe(&event));
    }

    /// Ends the response and returns the answer.
    #[must_use]
    pub fn finish(self, end: TransportEnd) -> Answer {
        let Self { reader, mut content } = self;
        let ending = reader.finish(end, |event| content.observe(&event));
        let Content { id, text, reasoning, resume_token, calls } = content;
        let tool_calls = calls.finish(&ending);
        Answer { id, text, reasoning, tool_calls, resume_token, usage: ending.usage, ending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, provider};

    fn collect(chunks: &[&[u8]], content_type: &str) -> Answer {
        let head = Head { status: 200, content_type };
        let mut collector = Collector::new(&provider::OPENAI, head, RequestInfo::default());
        chunks.iter().for_each(|chunk| collector.push(chunk));
        collector.finish(TransportEnd::Eof)
    }

    #[test]
    fn streamed_and_plain_answers_are_the_same() {
        let plain =
            br#"{"id":"c1","choices":[{"message":{"reasoning_content":"Hm","content":"Hi there",
            "tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}]},
            "finish_reason":"tool_calls"}],"usage":{"completion_tokens":9}}"#;
        let streamed: &[&[u8]] = &[
            b"data: {\"id\":\"c1\",\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"}}]}\n\n",
            b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi \"}}]}\n\n",
            b"data: {\"choices\":[{\"delta\":{\"content\":\"there\"}}]}\n\n",
            b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"1\",\"function\":{\
                \"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n",
            b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\
                \"arguments\":\":1}\"}}]}}]}\n\n",
            b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":{\
                \"completion_tokens\":9}}\n\n",
            b"data: [DONE]\n\n",
        ];
        for answer in
            [collect(&[plain], "application/json"), collect(streamed, "text/event-stream")]
        {
            assert_eq!((&*answer.text, &*answer.reasoning), ("Hi there", "Hm"));
            assert_eq!((&*answer.id, &answer.resume_token), ("c1", &None));
            assert_eq!((answer.ending.reason, answer.usage.output), (Reason::ToolCall, Some(9)));
            assert_eq!(answer.tool_calls[0].arguments, "{\"a\":1}");
            assert_eq!(answer.allow(), Allow::Run);
        }
        let cut = collect(&streamed[..5], "text/event-stream");
        assert_eq!(cut.ending.reason, Reason::Cut);
        assert!(matches!(cut.allow(), Allow::Refuse(_)));
    }

    #[test]
    fn limits_hold() {
        let limits = Limits { event_bytes: 64, ..Limits::default() };
        let head = Head { status: 200, content_type: "text/event-stream" };
        let request = RequestInfo::default();
        let mut collector = Collector::with_limits(&provider::OPENAI, head, request, limits);
        collector.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n");
        collector.push(format!("data: {}\n\n", "x".repeat(100)).as_bytes());
        let answer = collector.finish(TransportEnd::Eof);
        assert_eq!((&*answer.text, answer.ending.closed), ("Hi", crate::Closed::Oversize));
    }
}
