//! Tools for scenarios: turn the answer to one request on one wire into a script.

use std::io::Write;
use std::time::Duration;

use endstop::dialect::GatewayError;

use crate::answer::{self, Answer, End};
use crate::json::{Json, obj};
use crate::script::{Script, ScriptEnd, Step};
use crate::sim_request::SimRequest;
use crate::wire::{Fault, Framing, Part, SimWire, WireEvent};

/// Request on a wire, and the value of its scenario.
#[derive(Clone, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) wire: &'static SimWire,
    pub(crate) ask: SimRequest,
    pub(crate) value: Option<&'a str>,
}

/// Number of tokens before the fault.
const SOME: usize = 12;

/// Message of a gateway that fails a response, if another request may end differently.
const CUT: &str = "endstop: the stream stopped before the provider's end marker (cut). Discard the \
response and retry your request; never run its tool calls.";
/// Message of a gateway that fails a response, if another request would end the same way.
const REFUSED: &str = "endstop: the response ended as output_limit, so none of its tool calls may run: the \
provider said `length`. Raise the output limit.";

impl Scene<'_> {
    /// Returns the value as a number, or this default.
    pub(crate) fn number(&self, or: u64) -> u64 {
        self.value.and_then(|value| value.parse().ok()).unwrap_or(or)
    }

    /// Returns the events of the answer.
    pub(crate) fn events(&self, answer: &Answer) -> Vec<WireEvent> {
        (self.wire.stream)(&self.ask, answer)
    }

    /// Returns the complete answer, streamed or not.
    pub(crate) fn whole(&self, answer: &Answer) -> Script {
        if self.ask.streamed { self.streamed(&self.events(answer)) } else { self.plain(answer) }
    }

    /// Returns a stream of these events.
    pub(crate) fn streamed(&self, events: &[WireEvent]) -> Script {
        let encoded = events.iter().enumerate();
        let bytes = encoded.map(|(at, event)| self.wire.encode(&self.ask, at, event));
        let script = Script {
            length: None,
            steps: bytes.map(Step::Bytes).collect(),
            ..Script::plain(200, self.wire.stream_type(&self.ask), Vec::new())
        };
        let script = self.with_headers(script);
        if self.wire.is_sse(&self.ask) {
            script.header("cache-control", "no-cache")
        } else {
            script
        }
    }

    /// Returns the answer as a plain body.
    pub(crate) fn plain(&self, answer: &Answer) -> Script {
        self.body((self.wire.body)(&self.ask, answer).to_string().into_bytes())
    }

    /// Returns a response with this plain body.
    pub(crate) fn body(&self, body: Vec<u8>) -> Script {
        self.with_headers(Script::plain(200, self.plain_type(), body))
    }

    fn plain_type(&self) -> &'static str {
        match self.wire.framing {
            Framing::SseOrArray => "application/json; charset=UTF-8",
            Framing::Lines => "application/json; charset=utf-8",
            Framing::Sse | Framing::NamedSse | Framing::Aws | Framing::AwsChunks => {
                "application/json"
            }
        }
    }

    fn with_headers(&self, mut script: Script) -> Script {
        let headers = (self.wire.headers)(&self.ask);
        script.headers.extend(headers.into_iter().map(|(name, value)| (name.to_owned(), value)));
        script
    }

    /// Returns an error with this status, in the wire's own shape.
    pub(crate) fn error(&self, status: u16, message: &str) -> Script {
        let body = (self.wire.error)(&Fault { status, message });
        // Google wraps the errors of array streams in an array.
        let array = self.ask.array && self.ask.streamed;
        let body = if array { format!("[{body}]") } else { body.to_string() };
        let script = Script::plain(status, self.plain_type(), body.into_bytes());
        let script = self.with_headers(script);
        match self.wire.framing {
            Framing::Aws | Framing::AwsChunks => {
                let type_ = crate::wire::aws_error_type(status);
                script.header("x-amzn-errortype", type_)
            }
            Framing::Sse | Framing::NamedSse | Framing::SseOrArray | Framing::Lines => script,
        }
    }

    /// Returns the event for an error inside a stream.
    pub(crate) fn error_event(&self, status: u16, message: &str) -> WireEvent {
        (self.wire.error_event)(&Fault { status, message })
    }

    /// Returns an error body with status 200.
    pub(crate) fn error_body(&self, status: u16, message: &str) -> Script {
        let script = self.error(status, message);
        Script { status: 200, ..script }
    }

    /// Returns the events up to some text.
    pub(crate) fn some_text(&self, answer: &Answer) -> Vec<WireEvent> {
        through(self.events(answer), Part::Text, SOME)
    }

    /// Returns the events up to some of the arguments of a call.
    pub(crate) fn some_arguments(&self, answer: &Answer) -> Vec<WireEvent> {
        through(self.events(answer), Part::Arguments, 2)
    }

    /// Returns a stream that ends cleanly after these events, or a plain body that ends before its
    /// length.
    pub(crate) fn cut(
        &self,
        answer: &Answer,
        cut: impl Fn(&Self, &Answer) -> Vec<WireEvent>,
    ) -> Script {
        if self.ask.streamed {
            self.streamed(&cut(self, answer))
        } else {
            self.half(answer).ending(ScriptEnd::Fin)
        }
    }

    /// Returns half of a plain body, with the `Content-Length` of all of it.
    pub(crate) fn half(&self, answer: &Answer) -> Script {
        let whole = self.plain(answer);
        let length = whole.length;
        let half = whole.bytes().len() / 2;
        let script = whole.map_bytes(|mut bytes| {
            bytes.truncate(half);
            bytes
        });
        Script { length, ..script }
    }

    /// Ends inside a tool call: between its pieces, or in the middle of the only one.
    pub(crate) fn in_call(&self, answer: &Answer) -> Script {
        if !self.ask.streamed {
            return self.half(answer);
        }
        let events = self.some_arguments(answer);
        if self.wire.whole_calls { self.torn(&events) } else { self.streamed(&events) }
    }

    /// Ends inside the second tool call, like [`Self::in_call`].
    pub(crate) fn in_second_call(&self, answer: &Answer) -> Script {
        if !self.ask.streamed {
            return self.half(answer);
        }
        let events = self.events(answer);
        if self.wire.whole_calls {
            return self.torn(&through(events, Part::Arguments, 2));
        }
        let first = answer.first_choice().calls.first().map_or(0, |call| call.pieces.len());
        self.streamed(&through(events, Part::Arguments, first + 2))
    }

    /// Returns the events before the finish reason.
    pub(crate) fn before_word(&self, answer: &Answer) -> Vec<WireEvent> {
        before(self.events(answer), Part::Word)
    }

    /// Ends these events like a gateway that has to fail a response. The value names the parts of
    /// the end: see the scenario `fails-early`.
    pub(crate) fn failing(&self, events: &[WireEvent]) -> Script {
        let parts = self.value.unwrap_or_default().split('-');
        if !self.ask.streamed {
            let refused = parts.clone().any(|part| part == "refused");
            return if refused { self.error(400, REFUSED) } else { self.error(502, CUT) };
        }
        let mut script = self.streamed(events);
        for part in parts {
            match part {
                "frame" => script.steps.push(self.gateway_frame(502, "endstop_cut", CUT, events)),
                "refused" => {
                    let code = "endstop_tool_call_refused";
                    script.steps.push(self.gateway_frame(400, code, REFUSED, events));
                }
                "failed" => {
                    script.steps.extend(self.last_event(End::Failed, Some(("server_error", CUT))));
                }
                "invalid" => {
                    let error = Some(("invalid_prompt", REFUSED));
                    script.steps.extend(self.last_event(End::Failed, error));
                }
                "incomplete" => script.steps.extend(self.last_event(End::Length, None)),
                "mark" => script.steps.extend(self.mark()),
                "abort" => script.finish = ScriptEnd::Fin,
                _ => {}
            }
        }
        script
    }

    /// Returns the error frame that a gateway sends on this wire.
    fn gateway_frame(&self, status: u16, code: &str, message: &str, before: &[WireEvent]) -> Step {
        let provider = self.wire.provider;
        let path = self.wire.path.split('?').next().unwrap_or_default();
        let profile = provider.wire_for_path(path).unwrap_or(&provider.main);
        let framing = match self.wire.framing {
            Framing::SseOrArray if self.ask.array => endstop::frame::Framing::Array,
            Framing::SseOrArray | Framing::Sse | Framing::NamedSse => endstop::frame::Framing::Sse,
            Framing::Lines => endstop::frame::Framing::Lines,
            Framing::Aws => endstop::frame::Framing::Aws,
            Framing::AwsChunks => endstop::frame::Framing::AwsChunks,
        };
        let error = GatewayError { status, code, message, ..GatewayError::default() };
        Step::Bytes(profile.error_frame(framing, before.is_empty(), &error))
    }

    /// Returns the event with the finish reason of a choice without content, and an error with this code
    /// and message.
    fn last_event(&self, end: End, error: Option<(&str, &str)>) -> Option<Step> {
        let mut answer = answer::natural(&self.ask);
        self.says(&mut answer, Vec::new(), end);
        let events = self.events(&answer);
        let mut event = events.into_iter().find(|event| event.part == Part::Word)?;
        if let Some((code, message)) = error {
            let error = obj! { "code": code, "message": message };
            let body = (self.wire.body)(&self.ask, &answer).with("error", error);
            event.data.set("response", body);
        }
        Some(Step::Bytes(self.wire.encode(&self.ask, 1, &event)))
    }

    /// Returns the wire's end marker.
    fn mark(&self) -> Option<Step> {
        let events = self.events(&answer::natural(&self.ask));
        let event = events.iter().find(|event| event.part == Part::Mark)?;
        Some(Step::Bytes(self.wire.encode(&self.ask, 1, event)))
    }

    /// Returns a stream whose last event is truncated in the middle.
    pub(crate) fn torn(&self, events: &[WireEvent]) -> Script {
        let mut script = self.streamed(events);
        if let Some(Step::Bytes(last)) = script.steps.last_mut() {
            last.truncate(last.len() / 2);
        }
        script
    }

    /// Returns a stream of these events, or half a plain body, followed by silence.
    pub(crate) fn stalled(&self, events: &[WireEvent], answer: &Answer) -> Script {
        let script = if self.ask.streamed { self.streamed(events) } else { self.half(answer) };
        script.then(Step::Stall)
    }

    /// Sets the text and the end of every choice.
    pub(crate) fn says(&self, answer: &mut Answer, text: Vec<String>, end: End) {
        answer.each(|choice| {
            choice.text.clone_from(&text);
            choice.end = end.clone();
        });
        answer.count(&self.ask);
    }

    /// Sets the content to `count` calls of the first tool. A low token limit truncates them.
    pub(crate) fn calls(&self, answer: &mut Answer, count: usize, end: End) {
        self.repeat(answer, &self.call(), count, end);
    }

    /// Returns a complete call of the tool to call.
    pub(crate) fn call(&self) -> answer::Call {
        answer::call(&self.ask.tool(), self.ask.command.as_deref())
    }

    /// Sets the content to `count` copies of this call. A low token limit truncates them.
    pub(crate) fn repeat(&self, answer: &mut Answer, call: &answer::Call, count: usize, end: End) {
        let room = self.ask.cap.and_then(|cap| usize::try_from(cap).ok()).unwrap_or(usize::MAX);
        let size = call.pieces.len();
        answer.each(|choice| {
            choice.text.clear();
            choice.calls = vec![call.clone(); count];
            choice.end = end.clone();
            if size.saturating_mul(count) > room && !self.wire.whole_calls {
                choice.calls.truncate(room / size + 1);
                if let Some(last) = choice.calls.last_mut() {
                    last.pieces.truncate(room % size);
                    last.whole = false;
                }
                choice.end = End::Length;
            }
        });
        answer.count(&self.ask);
    }

    /// Compresses the body; a stream is flushed after every event.
    pub(crate) fn compressed(&self, script: Script, with: Compression, label: &str) -> Script {
        let mut encoder = with.encoder();
        let last = script.steps.iter().filter(|step| matches!(step, Step::Bytes(_))).count();
        let mut at = 0;
        let script = script.map_bytes(|bytes| {
            at += 1;
            encoder.add(&bytes, at == last)
        });
        if label.is_empty() { script } else { script.header("content-encoding", label) }
    }
}

/// Returns the events up to the `count`-th of this part, or up to the last of it.
pub(crate) fn through(events: Vec<WireEvent>, part: Part, count: usize) -> Vec<WireEvent> {
    let places = events.iter().enumerate().filter(|(_, event)| event.part == part);
    let keep = places.map(|(at, _)| at + 1).take(count).last().unwrap_or(0);
    events.into_iter().take(keep).collect()
}

/// Returns the events before the first of this part.
pub(crate) fn before(events: Vec<WireEvent>, part: Part) -> Vec<WireEvent> {
    events.into_iter().take_while(|event| event.part != part).collect()
}

/// Returns the events without those of this part.
pub(crate) fn without(mut events: Vec<WireEvent>, part: Part) -> Vec<WireEvent> {
    events.retain(|event| event.part != part);
    events
}

/// Inserts an event in the middle of the text.
pub(crate) fn amid(mut events: Vec<WireEvent>, data: Json) -> Vec<WireEvent> {
    let texts = events.iter().enumerate().filter(|(_, event)| event.part == Part::Text);
    if let Some((at, event)) = texts.take(4).last() {
        let event = WireEvent { data, ..event.clone() };
        events.insert(at, event);
    }
    events
}

/// Inserts an event before the end marker, or at the end if there is no end marker.
pub(crate) fn before_mark(mut events: Vec<WireEvent>, event: WireEvent) -> Vec<WireEvent> {
    let at = events.iter().position(|event| event.part == Part::Mark).unwrap_or(events.len());
    events.insert(at, event);
    events
}

/// Compression of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compression {
    Gzip,
    Deflate,
}

enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Deflate(flate2::write::ZlibEncoder<Vec<u8>>),
}

impl Compression {
    fn encoder(self) -> Encoder {
        let level = flate2::Compression::default();
        match self {
            Self::Gzip => Encoder::Gzip(flate2::write::GzEncoder::new(Vec::new(), level)),
            Self::Deflate => Encoder::Deflate(flate2::write::ZlibEncoder::new(Vec::new(), level)),
        }
    }
}

impl Encoder {
    /// Compresses bytes and returns the output so far. Writing to memory cannot fail.
    fn add(&mut self, bytes: &[u8], last: bool) -> Vec<u8> {
        match self {
            Self::Gzip(encoder) => {
                let _written = encoder.write_all(bytes).and_then(|()| encoder.flush());
                if last {
                    let _finished = encoder.try_finish();
                }
                std::mem::take(encoder.get_mut())
            }
            Self::Deflate(encoder) => {
                let _written = encoder.write_all(bytes).and_then(|()| encoder.flush());
                if last {
                    let _finished = encoder.try_finish();
                }
                std::mem::take(encoder.get_mut())
            }
        }
    }
}

/// Splits each piece of bytes inside every multi-byte character.
pub(crate) fn split_characters(script: Script) -> Script {
    let mut steps = Vec::new();
    for step in script.steps {
        let Step::Bytes(bytes) = step else {
            steps.push(step);
            continue;
        };
        let mut piece = Vec::new();
        for byte in bytes {
            // A UTF-8 continuation byte starts a new piece.
            if byte & 0xc0 == 0x80 && !piece.is_empty() {
                steps.push(Step::Bytes(std::mem::take(&mut piece)));
            }
            piece.push(byte);
        }
        steps.push(Step::Bytes(piece));
    }
    Script { steps, ..script }
}

/// Returns an HTML error page of a CDN.
pub(crate) fn page(status: u16) -> Script {
    let body = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><title>{status} | upstream error</title></head>\n\
         <body><h1>Error {status}</h1><p>The web server reported a bad gateway error. Please try \
         again in a few minutes.</p><p>Ray ID: simulated</p></body></html>\n"
    );
    Script::plain(status, "text/html; charset=UTF-8", body.into_bytes())
        .header("server", "cloudflare")
        .header("cf-ray", "simulated-ZRH")
}

/// Returns a value nested to this depth.
pub(crate) fn deep(depth: usize) -> Json {
    obj! { "deep": Json::Raw(format!("{}{}", "[".repeat(depth), "]".repeat(depth))) }
}

/// Returns this many milliseconds.
pub(crate) fn milliseconds(value: u64) -> Duration {
    Duration::from_millis(value)
}
