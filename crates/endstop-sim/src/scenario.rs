//! The scenarios: every way to end, on every wire where it makes sense. One row each.

use endstop::{Closed, Reason, Timer};

use crate::answer::{self, Answer, End};
use crate::json::{Json, obj};
use crate::scene::{self, Compression, Scene};
use crate::script::{Script, ScriptEnd, Step};
use crate::wire::{Part, SimWire, WireEvent};

/// One way for a response to end.
#[derive(Debug)]
pub struct Scenario {
    /// The name, by which it is asked for.
    pub name: &'static str,
    /// What stands after `=`, if the name takes a value.
    pub value: Option<Value>,
    /// What happens, in a sentence.
    pub about: &'static str,
    /// The incident that it stands for: an issue, a row of a fault matrix.
    pub source: &'static str,
    /// Whether it exists on this wire.
    pub on: fn(&SimWire) -> bool,
    /// What Endstop's own reader says of it: streamed or not.
    pub want: fn(&SimWire, Mode) -> Option<Want>,
    pub(crate) shape: fn(&Scene<'_>, &mut Answer),
    pub(crate) play: fn(&Scene<'_>, &Answer) -> Script,
}

/// The value that a scenario's name takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// What it is, for help.
    pub name: &'static str,
    /// One to try it with, and the default.
    pub example: &'static str,
}

/// Streamed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A stream was asked for.
    Streamed,
    /// A plain body was asked for.
    Plain,
}

/// What the reader should say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The reason.
    pub reason: Reason,
    /// How the bytes closed.
    pub closed: Closed,
}

const fn value(name: &'static str, example: &'static str) -> Option<Value> {
    Some(Value { name, example })
}

const fn want(reason: Reason, closed: Closed) -> Option<Want> {
    Some(Want { reason, closed })
}

/// Ended for this reason, and proven.
const fn ended(reason: Reason) -> Option<Want> {
    want(reason, Closed::Proven)
}

/// Cut: by the end of a stream, or before the length of a body.
const fn cut(mode: Mode) -> Option<Want> {
    match mode {
        Mode::Streamed => want(Reason::Cut, Closed::Eof),
        Mode::Plain => want(Reason::Cut, Closed::Reset),
    }
}

const fn reset(_: Mode) -> Option<Want> {
    want(Reason::Cut, Closed::Reset)
}

const fn failed() -> Option<Want> {
    want(Reason::Failed, Closed::Error)
}

/// An error for a body, with status 200. Two wires' errors bear no sign that they are errors.
fn failed_body(wire: &SimWire) -> Option<Want> {
    if bedrock(wire) || wire.id == "cohere" { ended(Reason::Unknown) } else { failed() }
}

const fn idle() -> Option<Want> {
    want(Reason::TimedOut, Closed::TimedOut(Timer::Idle))
}

fn all(_: &SimWire) -> bool {
    true
}

fn tools(wire: &SimWire) -> bool {
    wire.tools
}

fn halves(wire: &SimWire) -> bool {
    wire.tools && !wire.whole_calls
}

fn is(wire: &SimWire, ids: &[&str]) -> bool {
    ids.contains(&wire.id)
}

fn bedrock(wire: &SimWire) -> bool {
    is(wire, &["bedrock-converse", "bedrock-invoke"])
}

fn sse(wire: &SimWire) -> bool {
    !bedrock(wire) && !is(wire, &["ollama", "ollama-generate"])
}

fn marked(wire: &SimWire) -> bool {
    wire.marker
}

fn choices(wire: &SimWire) -> bool {
    is(wire, &["openai-chat", "openai-completions", "mistral", "gemini"])
}

fn as_is(_: &Scene<'_>, _: &mut Answer) {}

fn whole(scene: &Scene<'_>, answer: &Answer) -> Script {
    scene.whole(answer)
}

fn one_call(scene: &Scene<'_>, answer: &mut Answer) {
    scene.calls(answer, 1, End::ToolCall);
    answer.split = true;
}

fn half_call(scene: &Scene<'_>, answer: &mut Answer) {
    scene.calls(answer, 1, End::Length);
    answer.each(|turn| turn.calls.iter_mut().for_each(answer::halved));
    answer.count(&scene.ask);
    at_cap(scene, answer);
}

/// The usage is the cap, if there is one.
fn at_cap(scene: &Scene<'_>, answer: &mut Answer) {
    if let (Some(usage), Some(cap)) = (answer.usage.as_mut(), scene.ask.cap) {
        usage.output = cap;
    }
}

fn truncated(scene: &Scene<'_>, answer: &mut Answer) {
    let cap = scene.ask.cap.and_then(|cap| usize::try_from(cap).ok());
    let keep = cap.filter(|cap| *cap < 200).unwrap_or(48);
    answer.each(|turn| {
        turn.text.truncate(keep);
        turn.end = End::Length;
    });
    answer.count(&scene.ask);
    at_cap(scene, answer);
}

fn word(scene: &Scene<'_>) -> End {
    End::Said(Json::from(scene.value.unwrap_or("frobnicated")))
}

/// A row that other rows differ from.
const PLAIN: Scenario = Scenario {
    name: "complete",
    value: None,
    about: "A whole answer of some two hundred tokens, or up to the cap or a stop sequence.",
    source: "",
    on: all,
    want: |_, _| ended(Reason::Complete),
    shape: as_is,
    play: whole,
};

/// Every scenario.
pub static ALL: &[Scenario] = &[
    PLAIN,
    Scenario {
        name: "length",
        about: "Cut by the cap, with the wire's word for it, whatever the cap is.",
        source: "field T-58, T-75",
        want: |_, _| ended(Reason::OutputLimit),
        shape: truncated,
        ..PLAIN
    },
    Scenario {
        name: "stop-sequence",
        about: "Ends at the first stop sequence of the request, or at one of its own.",
        source: "field T-77",
        want: |wire, _| {
            let told = is(wire, &["anthropic", "bedrock-converse", "bedrock-invoke", "cohere"]);
            ended(if told { Reason::StopSequence } else { Reason::Complete })
        },
        shape: |scene, answer| {
            let stop = scene.ask.stop.first().cloned().unwrap_or_else(|| "END".to_owned());
            scene.says(answer, answer::some(20), End::StopSequence(stop));
        },
        ..PLAIN
    },
    Scenario {
        name: "empty",
        about: "Nothing but the word.",
        source: "field T-72, T-74",
        shape: |scene, answer| scene.says(answer, Vec::new(), End::Stop),
        ..PLAIN
    },
    Scenario {
        name: "reasoning-only",
        about: "Reasoning takes the whole budget: the length word, and no text.",
        source: "field T-59, T-72",
        want: |_, _| ended(Reason::OutputLimit),
        shape: |scene, answer| {
            answer.each(|turn| turn.reasoning = answer::thoughts());
            scene.says(answer, Vec::new(), End::Length);
            at_cap(scene, answer);
            if !scene.wire.reasons {
                answer.each(|turn| turn.reasoning.clear());
            }
        },
        ..PLAIN
    },
    Scenario {
        name: "refusal",
        about: "The model declines, in the way of the wire: a word, or a field of its own.",
        source: "field T-64",
        want: |wire, _| {
            ended(match wire.id {
                "gemini" => Reason::Safety,
                "bedrock-converse" => Reason::Filtered,
                "openai-chat" | "openai-responses" | "anthropic" | "bedrock-invoke" => {
                    Reason::Refused
                }
                _ => Reason::Complete,
            })
        },
        shape: |scene, answer| {
            let text = answer::tokens("I am sorry, but I cannot help with that.");
            scene.says(answer, text, End::Refusal);
            answer.each(|turn| turn.refuses = true);
        },
        ..PLAIN
    },
    Scenario {
        name: "content-filter",
        about: "A filter cuts the answer.",
        source: "field T-61",
        on: |wire| !is(wire, &["ollama", "ollama-generate", "cohere"]),
        want: |wire, _| {
            let refused = is(wire, &["anthropic", "bedrock-invoke"]);
            ended(if refused { Reason::Refused } else { Reason::Filtered })
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Filter),
        ..PLAIN
    },
    Scenario {
        name: "context-limit",
        about: "The window is full, with the wire's word for it where it has one.",
        source: "field T-71",
        want: |wire, _| {
            let told = is(wire, &["anthropic", "bedrock-converse", "bedrock-invoke", "mistral"]);
            ended(if told { Reason::ContextLimit } else { Reason::OutputLimit })
        },
        shape: |scene, answer| scene.says(answer, answer::some(30), End::Context),
        ..PLAIN
    },
    // Tool calls.
    Scenario {
        name: "tool-call",
        about: "Calls the first tool on offer, with arguments that fit its schema.",
        on: tools,
        want: |_, _| ended(Reason::ToolCall),
        shape: |scene, answer| scene.calls(answer, 1, End::ToolCall),
        ..PLAIN
    },
    Scenario {
        name: "tool-call-parallel",
        about: "Calls the first tool twice in one turn.",
        source: "field T-38",
        on: tools,
        want: |_, _| ended(Reason::ToolCall),
        shape: |scene, answer| scene.calls(answer, 2, End::ToolCall),
        ..PLAIN
    },
    Scenario {
        name: "tool-call-stop",
        about: "A whole tool call, but the word of a natural stop.",
        source: "field T-56",
        on: tools,
        want: |_, _| ended(Reason::ToolCall),
        shape: |scene, answer| scene.calls(answer, 1, End::Stop),
        ..PLAIN
    },
    Scenario {
        name: "tool-word-without-call",
        about: "The word for tool calls, and no tool call.",
        source: "field T-55",
        on: |wire| tools(wire) && !is(wire, &["gemini", "ollama", "openai-responses"]),
        want: |_, _| ended(Reason::MalformedToolCall),
        shape: |scene, answer| scene.says(answer, answer::some(9), End::ToolCall),
        ..PLAIN
    },
    Scenario {
        name: "tool-call-at-cap",
        about: "The word for tool calls, with arguments that the cap has cut.",
        source: "field T-50: vllm#53269",
        on: halves,
        want: |wire, mode| match (wire.id, mode) {
            // Arguments that are a value rather than text look whole, and the cap alone is no evidence.
            ("anthropic" | "bedrock-converse" | "bedrock-invoke", Mode::Plain) => {
                ended(Reason::ToolCall)
            }
            _ => ended(Reason::OutputLimit),
        },
        shape: |scene, answer| {
            half_call(scene, answer);
            answer.each(|turn| turn.end = End::ToolCall);
        },
        ..PLAIN
    },
    Scenario {
        name: "invalid-args",
        about: "The word for tool calls, a closed call, and arguments that are no JSON.",
        source: "field T-44; anthropic-sdk fixture tool_use_invalid_json_response",
        on: halves,
        want: |wire, mode| match (wire.id, mode) {
            // Plain bodies of these hold the arguments as a value, which is always JSON.
            ("anthropic" | "bedrock-converse" | "bedrock-invoke", Mode::Plain) => {
                ended(Reason::ToolCall)
            }
            _ => ended(Reason::MalformedToolCall),
        },
        shape: |scene, answer| {
            one_call(scene, answer);
            let plain = !scene.ask.streamed;
            answer.each(|turn| {
                for call in &mut turn.calls {
                    call.pieces = vec!["{\"path\": no".to_owned(), "te.txt}".to_owned()];
                    call.whole = !plain
                        || !is(scene.wire, &["anthropic", "bedrock-converse", "bedrock-invoke"]);
                }
            });
        },
        ..PLAIN
    },
    Scenario {
        name: "length-half-args",
        about: "The length word, inside the arguments of a tool call.",
        source: "field T-30, T-39",
        on: halves,
        want: |_, _| ended(Reason::OutputLimit),
        shape: half_call,
        ..PLAIN
    },
    Scenario {
        name: "length-whole-args",
        about: "The length word, after arguments that parse.",
        source: "field T-30, T-53",
        on: tools,
        want: |_, _| ended(Reason::OutputLimit),
        shape: |scene, answer| {
            scene.calls(answer, 1, End::Length);
            answer.each(|turn| turn.end = End::Length);
            at_cap(scene, answer);
        },
        ..PLAIN
    },
    // Ends without a word, and words without an end.
    Scenario {
        name: "cut-before-word",
        about: "A clean end of the body after some text: no word, no marker. A plain body ends before its length.",
        source: "faults 10; field T-01",
        want: |_, mode| cut(mode),
        play: |scene, answer| scene.cut(answer, Scene::some_text),
        ..PLAIN
    },
    Scenario {
        name: "cut-in-tool-call",
        about: "A clean end of the body inside the arguments of a tool call.",
        source: "faults 10; field T-03, T-33",
        on: tools,
        want: |_, mode| cut(mode),
        shape: one_call,
        play: |scene, answer| {
            let script = scene.in_call(answer);
            if scene.ask.streamed { script } else { script.ending(ScriptEnd::Fin) }
        },
        ..PLAIN
    },
    Scenario {
        name: "cut-after-args",
        about: "A clean end of the body after arguments that parse, before the word.",
        source: "faults 10; field T-08, T-30",
        on: tools,
        want: |_, mode| cut(mode),
        shape: one_call,
        play: |scene, answer| {
            scene.cut(answer, |scene, answer| {
                scene::through(scene.events(answer), Part::Arguments, usize::MAX)
            })
        },
        ..PLAIN
    },
    Scenario {
        name: "done-without-word",
        about: "What proves the end, but no word for why.",
        source: "faults 12; field T-07, T-24",
        want: |wire, mode| match (wire.id, mode) {
            ("gemini", Mode::Streamed) => cut(mode),
            // The last event calls itself completed or done.
            ("openai-responses", Mode::Streamed) | ("ollama" | "ollama-generate", _) => {
                ended(Reason::Complete)
            }
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Nothing),
        ..PLAIN
    },
    Scenario {
        name: "done-without-word-tool-call",
        about: "A tool call and what proves the end, but no word.",
        source: "faults 12; field T-54",
        on: tools,
        want: |wire, mode| match (wire.id, mode) {
            ("gemini", Mode::Streamed) => cut(mode),
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.each(|turn| turn.end = End::Nothing);
        },
        ..PLAIN
    },
    Scenario {
        name: "no-marker",
        about: "The word, but not what comes after it: no [DONE], no message_stop.",
        source: "faults 11; field T-26",
        on: marked,
        want: |wire, mode| match (wire.id, mode) {
            ("anthropic" | "bedrock-invoke", Mode::Streamed) => cut(mode),
            (_, Mode::Streamed) => want(Reason::Complete, Closed::Eof),
            (_, Mode::Plain) => ended(Reason::Complete),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.plain(answer);
            }
            scene.streamed(&scene::without(scene.events(answer), Part::Mark))
        },
        ..PLAIN
    },
    Scenario {
        name: "word",
        value: value("WORD", "frobnicated"),
        about: "Text, and this in the place of the word.",
        source: "field E",
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| scene.says(answer, answer::some(9), word(scene)),
        ..PLAIN
    },
    Scenario {
        name: "word-tool-call",
        value: value("WORD", "frobnicated"),
        about: "A whole tool call, and this in the place of the word.",
        source: "field E",
        on: tools,
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.each(|turn| turn.end = word(scene));
        },
        ..PLAIN
    },
    Scenario {
        name: "unknown-word",
        about: "A word that no documentation has.",
        source: "faults 25; field T-60, T-65",
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Said("frobnicated".into())),
        ..PLAIN
    },
    Scenario {
        name: "unknown-word-tool-call",
        about: "A tool call, and a word that no documentation has.",
        source: "faults 25; field T-68",
        on: tools,
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.each(|turn| turn.end = End::Said("frobnicated".into()));
        },
        ..PLAIN
    },
    Scenario {
        name: "empty-word",
        about: "An empty string in the place of the word.",
        source: "faults 25; field T-67",
        want: |wire, mode| match (wire.id, mode) {
            // An empty word is none, and the word is all that proves the end here.
            ("gemini", Mode::Streamed) => cut(mode),
            ("ollama" | "ollama-generate", _) => ended(Reason::Complete),
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Said("".into())),
        ..PLAIN
    },
    Scenario {
        name: "long-word",
        about: "A word of ten thousand characters.",
        source: "faults 25",
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            scene.says(answer, answer::some(9), End::Said("long".repeat(2560).into()));
        },
        ..PLAIN
    },
    Scenario {
        name: "array-word",
        about: "A list in the place of the word.",
        source: "faults 25",
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            let word = Json::Raw("[\"stop\"]".to_owned());
            scene.says(answer, answer::some(9), End::Said(word));
        },
        ..PLAIN
    },
    Scenario {
        name: "finish-error",
        about: "The word says that it failed: the wire's own, or `error`, which some hosts of it say.",
        source: "field T-60, T-61",
        want: |wire, _| match wire.id {
            "openai-responses" => failed(),
            "openai-chat" | "openai-completions" | "mistral" | "cohere" | "bedrock-converse" => {
                ended(Reason::Failed)
            }
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Failed),
        ..PLAIN
    },
    Scenario {
        name: "merged-word",
        about: "The last text and the word in one event.",
        source: "field T-21",
        on: |wire| is(wire, &["openai-chat", "gemini"]),
        shape: |_, answer| answer.merged = true,
        ..PLAIN
    },
    Scenario {
        name: "repeated-word",
        about: "The natural word on every event, from the first.",
        source: "field T-29",
        on: |wire| is(wire, &["openai-chat", "gemini"]),
        shape: |_, answer| answer.word_everywhere = true,
        ..PLAIN
    },
    Scenario {
        name: "text-after-word",
        about: "More text after the word.",
        source: "faults 13",
        on: |wire| is(wire, &["openai-chat", "openai-completions", "gemini"]),
        want: |wire, mode| match (wire.id, mode) {
            // The word is the proof, and this text has none.
            ("gemini", Mode::Streamed) => want(Reason::Complete, Closed::Eof),
            _ => ended(Reason::Complete),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.plain(answer);
            }
            let events = scene.events(answer);
            let late = events.iter().rev().find(|event| event.part == Part::Text).cloned();
            match late {
                Some(late) => scene.streamed(&scene::before_mark(events, late)),
                None => scene.streamed(&events),
            }
        },
        ..PLAIN
    },
    Scenario {
        name: "word-twice",
        about: "The event with the word comes twice.",
        source: "wire: OpenRouter",
        on: |wire| is(wire, &["openai-chat", "openai-completions"]),
        play: |scene, answer| after_word(scene, answer, Clone::clone),
        ..PLAIN
    },
    Scenario {
        name: "null-after-word",
        about: "After the word, an event for the same choice without one.",
        source: "wire: Azure's annotations",
        on: |wire| is(wire, &["openai-chat"]),
        play: |scene, answer| {
            after_word(scene, answer, |event| {
                let choice = obj! { "index": 0_u64, "finish_reason": Json::Null, "content_filter_offsets": obj! {} };
                let data = event.data.clone().with("choices", vec![choice]);
                WireEvent { data, ..event.clone() }
            })
        },
        ..PLAIN
    },
    // Errors.
    Scenario {
        name: "error-early",
        about: "200, and an error as the first event. Not streamed: 200 and an error for a body.",
        source: "faults 15",
        want: |wire, mode| match mode {
            Mode::Streamed => failed(),
            Mode::Plain => failed_body(wire),
        },
        play: |scene, _| {
            if !scene.ask.streamed {
                return scene.error_body(529, OVERLOADED);
            }
            scene.streamed(&[scene.error_event(529, OVERLOADED)])
        },
        ..PLAIN
    },
    Scenario {
        name: "error-late",
        about: "An error after some text. Not streamed: 200 and an error for a body.",
        source: "faults 15; field T-11",
        want: |wire, mode| match mode {
            Mode::Streamed => failed(),
            Mode::Plain => failed_body(wire),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.error_body(500, BROKE);
            }
            let mut events = scene.some_text(answer);
            events.push(scene.error_event(500, BROKE));
            scene.streamed(&events)
        },
        ..PLAIN
    },
    Scenario {
        name: "error-after-end",
        about: "A whole answer, and an error after it. Not streamed: a whole answer.",
        source: "faults 13",
        want: |wire, mode| match (wire.id, mode) {
            // Only the end of the bytes proves the end here, and it has not come yet.
            ("gemini", Mode::Streamed) => failed(),
            _ => ended(Reason::Complete),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.plain(answer);
            }
            let mut events = scene.events(answer);
            let error = scene.error_event(500, BROKE);
            if scene.ask.array {
                events = scene::before_mark(events, error);
            } else {
                events.push(error);
            }
            scene.streamed(&events)
        },
        ..PLAIN
    },
    Scenario {
        name: "json-error-200",
        about: "200, with the body of an error in place of a stream.",
        source: "faults 14",
        want: |wire, _| failed_body(wire),
        play: |scene, _| scene.error_body(500, BROKE),
        ..PLAIN
    },
    Scenario {
        name: "status",
        value: value("CODE", "429"),
        about: "This HTTP status, with Retry-After and the wire's error.",
        source: "faults 16",
        want: |_, _| failed(),
        play: |scene, _| {
            let status = scene.value.and_then(|value| value.parse().ok()).unwrap_or(429);
            let message = match status {
                429 => "Rate limit reached. Please try again later.",
                503 | 529 => OVERLOADED,
                _ => BROKE,
            };
            scene.error(status, message).header("retry-after", "1")
        },
        ..PLAIN
    },
    Scenario {
        name: "error-then-done",
        about: "An error after some text, and the marker after the error.",
        source: "wire: vLLM, SGLang, TGI",
        on: |wire| is(wire, &["openai-chat", "openai-completions", "mistral"]),
        want: |_, _| failed(),
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.error_body(500, BROKE);
            }
            let mark = scene.events(answer).pop();
            let mut events = scene.some_text(answer);
            events.push(scene.error_event(500, BROKE));
            events.extend(mark);
            scene.streamed(&events)
        },
        ..PLAIN
    },
    Scenario {
        name: "error-bare",
        about: "An error in the middle of a stream of events, as JSON that is no event.",
        source: "wire: Gemini; google-genai _api_client.py",
        on: |wire| is(wire, &["gemini"]),
        want: |_, _| failed(),
        play: |scene, answer| {
            if !scene.ask.streamed || scene.ask.array {
                return scene.error_body(503, OVERLOADED);
            }
            let mut script = scene.streamed(&scene.some_text(answer));
            let error = scene.error_event(503, OVERLOADED).data;
            script.steps.push(Step::Bytes(format!("{error}\n").into_bytes()));
            script
        },
        ..PLAIN
    },
    Scenario {
        name: "context-error",
        about: "The prompt is too long: 400, in the wire's own words.",
        source: "field T-71, T-94",
        want: |_, _| want(Reason::ContextLimit, Closed::Error),
        play: |scene, _| {
            let message = match scene.wire.id {
                "anthropic" => "prompt is too long: 250000 tokens > 200000 maximum",
                "bedrock-converse" | "bedrock-invoke" => {
                    "The model returned the following errors: Input is too long for requested model."
                }
                "gemini" => {
                    "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
                }
                "mistral" => {
                    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"
                }
                "cohere" => {
                    "too many tokens: the total number of tokens in the prompt exceeds the limit"
                }
                "ollama" | "ollama-generate" => {
                    "prompt too long; exceeded max context length by 100 tokens"
                }
                _ => {
                    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
                }
            };
            scene.error(400, message)
        },
        ..PLAIN
    },
    Scenario {
        name: "empty-body",
        about: "200, and a body of no bytes.",
        source: "wire: LM Studio; field T-04",
        want: |_, _| want(Reason::Cut, Closed::Eof),
        play: |scene, _| {
            if scene.ask.streamed { scene.streamed(&[]) } else { scene.body(Vec::new()) }
        },
        ..PLAIN
    },
    Scenario {
        name: "html-200",
        about: "200, and the page of a CDN.",
        source: "faults 17",
        want: |_, _| failed(),
        play: |_, _| scene::page(200),
        ..PLAIN
    },
    Scenario {
        name: "html-503",
        about: "503, and the page of a CDN.",
        source: "faults 17",
        want: |_, _| failed(),
        play: |_, _| scene::page(503),
        ..PLAIN
    },
    Scenario {
        name: "redirect",
        about: "302 to another host.",
        source: "faults 19",
        want: |_, _| failed(),
        play: |_, _| {
            Script::plain(302, "text/html", Vec::new())
                .header("location", "https://elsewhere.example/v1/chat/completions")
        },
        ..PLAIN
    },
    // Transport.
    Scenario {
        name: "reset",
        about: "The connection is reset in the middle of an event, or of the body.",
        source: "faults 8",
        want: |_, mode| reset(mode),
        play: |scene, answer| {
            let script = if scene.ask.streamed {
                scene.torn(&scene.some_text(answer))
            } else {
                scene.half(answer)
            };
            script.ending(ScriptEnd::Reset)
        },
        ..PLAIN
    },
    Scenario {
        name: "reset-before-word",
        about: "The connection is reset between two events. Not streamed: in the middle of the body.",
        source: "faults 8",
        want: |_, mode| reset(mode),
        play: |scene, answer| scene.cut(answer, Scene::some_text).ending(ScriptEnd::Reset),
        ..PLAIN
    },
    Scenario {
        name: "reset-in-tool-call",
        about: "The connection is reset inside the arguments of a tool call.",
        source: "faults 8; field T-33",
        on: tools,
        want: |_, mode| reset(mode),
        shape: one_call,
        play: |scene, answer| scene.in_call(answer).ending(ScriptEnd::Reset),
        ..PLAIN
    },
    Scenario {
        name: "fin-in-chunk",
        about: "The connection is closed inside of an HTTP chunk.",
        source: "faults 9",
        want: |_, mode| reset(mode),
        play: |scene, answer| {
            let script = if scene.ask.streamed {
                scene.torn(&scene.some_text(answer))
            } else {
                Script { length: None, ..scene.half(answer) }
            };
            script.ending(ScriptEnd::FinInChunk)
        },
        ..PLAIN
    },
    Scenario {
        name: "short-length",
        about: "A Content-Length that is larger than what comes.",
        source: "faults 9",
        want: |_, mode| reset(mode),
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.half(answer).ending(ScriptEnd::Fin);
            }
            let script = scene.streamed(&scene.some_text(answer));
            let length = scene.streamed(&scene.events(answer)).bytes().len() as u64;
            Script { length: Some(length), ..script }.ending(ScriptEnd::Fin)
        },
        ..PLAIN
    },
    Scenario {
        name: "no-headers",
        about: "The request is taken and never answered.",
        source: "faults 5",
        want: |_, _| None,
        play: |scene, answer| {
            let script = scene.whole(answer);
            Script { silent: true, steps: vec![Step::Stall], ..script }
        },
        ..PLAIN
    },
    Scenario {
        name: "stall",
        about: "A head and some text, then silence.",
        source: "faults 6",
        want: |_, _| idle(),
        play: |scene, answer| scene.stalled(&scene.some_text(answer), answer),
        ..PLAIN
    },
    Scenario {
        name: "stall-in-tool-call",
        about: "Silence inside the arguments of a tool call.",
        source: "faults 6",
        on: tools,
        want: |_, _| idle(),
        shape: one_call,
        play: |scene, answer| scene.in_call(answer).then(Step::Stall),
        ..PLAIN
    },
    Scenario {
        name: "stall-after-word",
        about: "The word, then silence: no marker, no end of the body. Not streamed: the body, and a chunk that never comes.",
        source: "field T-26",
        want: |wire, mode| match (wire.id, mode) {
            ("anthropic" | "bedrock-invoke", Mode::Streamed) => idle(),
            ("openai-chat" | "openai-completions" | "mistral" | "gemini", Mode::Streamed) => {
                want(Reason::Complete, Closed::TimedOut(Timer::Idle))
            }
            _ => ended(Reason::Complete),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                return Script { length: None, ..scene.plain(answer) }.then(Step::Stall);
            }
            let events = scene::through(scene.events(answer), Part::Word, usize::MAX);
            scene.streamed(&events).then(Step::Stall)
        },
        ..PLAIN
    },
    Scenario {
        name: "drip",
        about: "One byte a second, for ever.",
        source: "faults 7",
        want: |_, _| None,
        play: |scene, answer| {
            if !scene.ask.streamed {
                let body = scene.plain(answer).bytes();
                let length = body.len() as u64;
                let script = scene.body(Vec::new());
                return Script { length: Some(length), steps: vec![Step::Drip(body)], ..script };
            }
            let events = scene::before(scene.events(answer), Part::Word);
            let script = scene.streamed(&events);
            let bytes = script.bytes();
            Script { steps: vec![Step::Drip(bytes)], ..script }
        },
        ..PLAIN
    },
    Scenario {
        name: "slow",
        value: value("MS", "20"),
        about: "A whole answer, with so many milliseconds between events.",
        shape: |scene, answer| scene.says(answer, answer::some(20), End::Stop),
        play: |scene, answer| {
            let mut script = scene.whole(answer);
            script.paced(scene::milliseconds(scene.number(20)));
            script
        },
        ..PLAIN
    },
    Scenario {
        name: "gzip",
        about: "Compressed with gzip, and labelled so.",
        source: "faults 18",
        play: |scene, answer| scene.compressed(scene.whole(answer), Compression::Gzip, "gzip"),
        ..PLAIN
    },
    Scenario {
        name: "deflate",
        about: "Compressed with deflate, and labelled so.",
        source: "faults 18",
        play: |scene, answer| {
            scene.compressed(scene.whole(answer), Compression::Deflate, "deflate")
        },
        ..PLAIN
    },
    Scenario {
        name: "gzip-unlabelled",
        about: "Compressed with gzip, and not labelled.",
        source: "faults 18: claude-relay-service#1039",
        play: |scene, answer| scene.compressed(scene.whole(answer), Compression::Gzip, ""),
        ..PLAIN
    },
    Scenario {
        name: "early-hints",
        about: "A 103 comes before the response.",
        source: "faults 19",
        play: |scene, answer| Script { early_hints: true, ..scene.whole(answer) },
        ..PLAIN
    },
    // Framing and bytes.
    Scenario {
        name: "utf8-cut",
        about: "Characters of several bytes, each cut between two chunks.",
        source: "faults 21: aisix#111",
        shape: |scene, answer| scene.says(answer, answer::far(), End::Stop),
        play: |scene, answer| {
            let script = scene.whole(answer);
            scene::split_characters(Script { length: None, ..script })
        },
        ..PLAIN
    },
    Scenario {
        name: "invalid-utf8",
        about: "Bytes in the text that are no UTF-8.",
        source: "faults 21",
        on: |wire| !bedrock(wire),
        shape: |scene, answer| scene.says(answer, answer::far(), End::Stop),
        play: |scene, answer| {
            scene.whole(answer).map_bytes(|bytes| {
                let broken = |byte: u8| if byte == 0xc3 { 0xff } else { byte };
                bytes.into_iter().map(broken).collect()
            })
        },
        ..PLAIN
    },
    Scenario {
        name: "crlf",
        about: "Lines that end in CR LF.",
        source: "faults 22",
        on: sse,
        play: |scene, answer| with_line_ends(scene, answer, "\r\n"),
        ..PLAIN
    },
    Scenario {
        name: "cr",
        about: "Lines that end in CR alone.",
        source: "faults 22",
        on: sse,
        play: |scene, answer| with_line_ends(scene, answer, "\r"),
        ..PLAIN
    },
    Scenario {
        name: "bom",
        about: "A byte order mark before the first event.",
        source: "faults 22",
        on: sse,
        play: |scene, answer| {
            let mut script = scene.whole(answer);
            if scene.ask.streamed {
                script.steps.insert(0, Step::Bytes(b"\xef\xbb\xbf".to_vec()));
            }
            script
        },
        ..PLAIN
    },
    Scenario {
        name: "comments",
        about: "Comments, ids, retry times and empty data between the events.",
        source: "faults 22",
        on: sse,
        play: |scene, answer| between(scene, answer, b": comment\nid: 7\nretry: 3000\n\ndata:\n\n"),
        ..PLAIN
    },
    Scenario {
        name: "pings",
        about: "Pings between the events: the wire's own, or comments.",
        source: "faults 22",
        on: |wire| sse(wire) && !is(wire, &["gemini"]),
        play: |scene, answer| {
            let ping: &[u8] = if scene.wire.id == "anthropic" {
                b"event: ping\ndata: {\"type\": \"ping\"}\n\n"
            } else {
                b": keep-alive\n\n"
            };
            between(scene, answer, ping)
        },
        ..PLAIN
    },
    Scenario {
        name: "keepalive",
        about: "Comments and a pause before the first event, as hosts under load send them.",
        source: "wire: DeepSeek, OpenRouter",
        on: sse,
        play: |scene, answer| {
            let mut script = scene.whole(answer);
            if scene.ask.streamed && !scene.ask.array {
                for _ in 0..3 {
                    script.steps.insert(0, Step::Wait(scene::milliseconds(10)));
                    script.steps.insert(0, Step::Bytes(b": keep-alive\n\n".to_vec()));
                }
            }
            script
        },
        ..PLAIN
    },
    Scenario {
        name: "huge-event",
        value: value("BYTES", "1000000"),
        about: "One event that is this large, in the middle of the text.",
        source: "faults 23: openai-go#368",
        shape: |scene, answer| {
            let size = usize::try_from(scene.number(1_000_000)).unwrap_or(usize::MAX);
            let mut text = answer::some(9);
            text.insert(3, format!(" {}", "x".repeat(size.min(256 << 20))));
            scene.says(answer, text, End::Stop);
        },
        ..PLAIN
    },
    Scenario {
        name: "no-newline",
        value: value("BYTES", "1000000"),
        about: "A line that goes on for this many bytes, and then the end of the body.",
        source: "faults 23",
        on: |wire| !bedrock(wire),
        want: |_, mode| match mode {
            Mode::Streamed => want(Reason::Cut, Closed::Eof),
            Mode::Plain => want(Reason::Cut, Closed::Eof),
        },
        play: |scene, answer| {
            let count = scene.number(1_000_000);
            if !scene.ask.streamed {
                let script = scene.body(b"{\"id\":\"".to_vec());
                return Script { length: None, ..script }.then(Step::Flood(b'x', count));
            }
            let mut script = scene.streamed(&scene.some_text(answer));
            let start: &[u8] = if sse(scene.wire) && !scene.ask.array {
                b"data: {\"x\":\""
            } else if scene.ask.array {
                b",{\"x\":\""
            } else {
                b"{\"x\":\""
            };
            script.steps.push(Step::Bytes(start.to_vec()));
            script.then(Step::Flood(b'x', count))
        },
        ..PLAIN
    },
    Scenario {
        name: "malformed-json",
        about: "One event in the middle that is no JSON. Not streamed: a body that is none.",
        source: "faults 24",
        want: |_, mode| match mode {
            Mode::Streamed => ended(Reason::Complete),
            Mode::Plain => want(Reason::Cut, Closed::Eof),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                let body = scene.plain(answer).bytes();
                let mut broken = b"{\"broken\": tru,".to_vec();
                broken.extend(body.into_iter().skip(1));
                return scene.body(broken);
            }
            let bad = Json::Raw("{\"broken\": tru}".to_owned());
            scene.streamed(&scene::amid(scene.events(answer), bad))
        },
        ..PLAIN
    },
    Scenario {
        name: "deep-json",
        about: "One event that is nested a hundred thousand deep.",
        source: "faults 24",
        want: |_, mode| match mode {
            Mode::Streamed => ended(Reason::Complete),
            Mode::Plain => ended(Reason::Complete),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                let mut body = (scene.wire.body)(&scene.ask, answer);
                body.set("deep", scene::deep(100_000));
                return scene.body(body.to_string().into_bytes());
            }
            scene.streamed(&scene::amid(scene.events(answer), scene::deep(100_000)))
        },
        ..PLAIN
    },
    // Choices and counts.
    Scenario {
        name: "choices",
        about: "Two choices that end differently, the second one first.",
        source: "faults 26",
        on: choices,
        want: |_, _| ended(Reason::OutputLimit),
        shape: |scene, answer| {
            let first = answer.turn();
            let long =
                answer::Exchange { text: answer::some(30), end: End::Length, ..first.clone() };
            let short = answer::Exchange { text: answer::some(9), end: End::Stop, ..first };
            answer.turns = vec![long, short];
            answer.count(&scene.ask);
        },
        ..PLAIN
    },
    Scenario {
        name: "stop-at-cap",
        about: "The natural word, though the tokens used are exactly the cap.",
        source: "faults 29; field T-50, T-58",
        shape: |scene, answer| {
            truncated(scene, answer);
            answer.each(|turn| turn.end = End::Stop);
        },
        ..PLAIN
    },
    Scenario {
        name: "usage-after",
        about: "Usage in an event of its own after the word, asked for or not.",
        source: "faults 30; field T-20, T-28",
        play: |scene, answer| {
            let mut scene = scene.clone();
            scene.ask.include_usage = true;
            scene.whole(answer)
        },
        ..PLAIN
    },
    Scenario {
        name: "usage-missing",
        about: "No usage anywhere.",
        source: "faults 30",
        shape: |_, answer| answer.usage = None,
        ..PLAIN
    },
    Scenario {
        name: "usage-decreasing",
        about: "Usage twice, the second time lower. Not streamed: once.",
        source: "faults 30",
        on: |wire| {
            choices(wire) && !is(wire, &["mistral"]) || bedrock(wire) || wire.id == "anthropic"
        },
        play: |scene, answer| {
            let mut scene = scene.clone();
            scene.ask.include_usage = true;
            if !scene.ask.streamed {
                return scene.plain(answer);
            }
            let events = scene.events(answer);
            let mut lower = answer.clone();
            if let Some(usage) = lower.usage.as_mut() {
                usage.output /= 2;
            }
            let lower = scene.events(&lower);
            let at = |part| lower.iter().rev().find(|event| event.part == part).cloned();
            match at(Part::Usage).or_else(|| at(Part::Word)) {
                Some(event) => scene.streamed(&scene::before_mark(events, event)),
                None => scene.streamed(&events),
            }
        },
        ..PLAIN
    },
    // One wire's own.
    Scenario {
        name: "pause",
        about: "`pause_turn`, after a tool of the provider's own.",
        source: "field T-70",
        on: |wire| is(wire, &["anthropic", "bedrock-invoke"]),
        want: |_, _| ended(Reason::Paused),
        shape: |scene, answer| {
            scene.says(answer, answer::some(9), End::Said("pause_turn".into()));
            answer.each(|turn| turn.server_tool = true);
        },
        ..PLAIN
    },
    Scenario {
        name: "prompt-block",
        about: "The prompt is blocked: `promptFeedback`, and no candidates.",
        source: "field section 0",
        on: |wire| is(wire, &["gemini"]),
        want: |_, _| ended(Reason::Filtered),
        play: |scene, _| {
            let data = crate::wire::gemini_blocked(&scene.ask);
            if scene.ask.streamed {
                let mut events = vec![WireEvent::new(Part::Word, data)];
                if scene.ask.array {
                    events.push(WireEvent::new(Part::Mark, Json::Null));
                }
                scene.streamed(&events)
            } else {
                scene.body(data.to_string().into_bytes())
            }
        },
        ..PLAIN
    },
    Scenario {
        name: "malformed-call",
        about: "The provider says that the model's call could not be parsed.",
        source: "field T-73",
        on: |wire| is(wire, &["gemini", "bedrock-converse"]),
        want: |_, _| ended(Reason::MalformedToolCall),
        shape: |scene, answer| {
            scene.says(answer, Vec::new(), End::Said("malformed_tool_use".into()));
        },
        play: |scene, answer| {
            if scene.wire.id != "gemini" {
                return scene.whole(answer);
            }
            let word = "MALFORMED_FUNCTION_CALL";
            let data = crate::wire::gemini_bare_word(&scene.ask, word, answer.usage);
            if scene.ask.streamed {
                let mut events = vec![WireEvent::new(Part::Word, data)];
                if scene.ask.array {
                    events.push(WireEvent::new(Part::Mark, Json::Null));
                }
                scene.streamed(&events)
            } else {
                scene.body(data.to_string().into_bytes())
            }
        },
        ..PLAIN
    },
    Scenario {
        name: "completed-incomplete",
        about: "`completed`, with details of why it is not.",
        source: "field T-57",
        on: |wire| is(wire, &["openai-responses"]),
        want: |_, _| ended(Reason::OutputLimit),
        play: |scene, answer| {
            let mut body = (scene.wire.body)(&scene.ask, answer);
            body.set("incomplete_details", obj! { "reason": "max_output_tokens" });
            if !scene.ask.streamed {
                return scene.body(body.to_string().into_bytes());
            }
            let mut events = scene.events(answer);
            for event in events.iter_mut().filter(|event| event.part == Part::Word) {
                event.data.set("response", body.clone());
            }
            scene.streamed(&events)
        },
        ..PLAIN
    },
    Scenario {
        name: "array-cut",
        about: "The JSON array of a stream ends inside.",
        source: "faults 28",
        on: |wire| is(wire, &["gemini"]),
        want: |_, mode| cut(mode),
        play: |scene, answer| scene.cut(answer, Scene::some_text),
        ..PLAIN
    },
    Scenario {
        name: "no-done",
        about: "All text, and no line that says `done`.",
        source: "faults 28",
        on: |wire| is(wire, &["ollama", "ollama-generate"]),
        want: |_, mode| cut(mode),
        play: |scene, answer| {
            scene.cut(answer, |scene, answer| scene::before(scene.events(answer), Part::Word))
        },
        ..PLAIN
    },
    Scenario {
        name: "bad-crc",
        about: "A message whose checksum is wrong, in the middle of the text.",
        source: "faults 27: vercel/ai#18994",
        on: bedrock,
        want: |_, mode| match mode {
            Mode::Streamed => want(Reason::Cut, Closed::BrokenFrame),
            Mode::Plain => ended(Reason::Complete),
        },
        play: |scene, answer| {
            let mut script = scene.whole(answer);
            if scene.ask.streamed
                && let Some(Step::Bytes(bytes)) = script.steps.get_mut(5)
                && let Some(last) = bytes.last_mut()
            {
                *last ^= 0x55;
            }
            script
        },
        ..PLAIN
    },
    Scenario {
        name: "truncated-frame",
        about: "The last message ends inside, cleanly.",
        source: "faults 27: vercel/ai#19035",
        on: bedrock,
        want: |_, mode| cut(mode),
        play: |scene, answer| {
            if scene.ask.streamed {
                let events = scene::through(scene.events(answer), Part::Word, 1);
                scene.torn(&events)
            } else {
                scene.half(answer).ending(ScriptEnd::Fin)
            }
        },
        ..PLAIN
    },
    Scenario {
        name: "exception",
        about: "An exception in the middle of the text. Not streamed: 424.",
        source: "faults 27; field T-11, T-12",
        on: bedrock,
        want: |_, _| failed(),
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.error(424, BROKE);
            }
            let mut events = scene.some_text(answer);
            events.push(scene.error_event(424, BROKE));
            scene.streamed(&events)
        },
        ..PLAIN
    },
    Scenario {
        name: "huge-prefix",
        about: "A message that says it is four gigabytes long.",
        source: "faults 27",
        on: bedrock,
        want: |_, mode| match mode {
            Mode::Streamed => want(Reason::Cut, Closed::Oversize),
            Mode::Plain => ended(Reason::Complete),
        },
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.plain(answer);
            }
            let mut script = scene.streamed(&scene.some_text(answer));
            script.steps.push(Step::Bytes(HUGE_PREFIX.to_vec()));
            script
        },
        ..PLAIN
    },
];

/// The start of a message of 4 GiB, with the right checksum.
const HUGE_PREFIX: &[u8] =
    &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x10, 0xe2, 0x48, 0xef, 0x9b, 0x0b, b':', b'e', b'v'];

const OVERLOADED: &str = "Overloaded";
const BROKE: &str = "The server had an error while processing your request.";

/// The same events, and after the one with the word another one made from it.
fn after_word(scene: &Scene<'_>, answer: &Answer, more: fn(&WireEvent) -> WireEvent) -> Script {
    if !scene.ask.streamed {
        return scene.plain(answer);
    }
    let mut events = scene.events(answer);
    let word = events.iter().rposition(|event| event.part == Part::Word);
    if let Some((at, event)) = word.and_then(|at| Some((at, events.get(at)?))) {
        let event = more(event);
        events.insert(at + 1, event);
    }
    scene.streamed(&events)
}

/// The same events with other line ends.
fn with_line_ends(scene: &Scene<'_>, answer: &Answer, end: &str) -> Script {
    let script = scene.whole(answer);
    if !scene.ask.streamed || scene.ask.array {
        return script;
    }
    script.map_bytes(|bytes| {
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        text.replace('\n', end).into_bytes()
    })
}

/// The same events with these bytes before each.
fn between(scene: &Scene<'_>, answer: &Answer, bytes: &[u8]) -> Script {
    let mut script = scene.whole(answer);
    if !scene.ask.streamed || scene.ask.array {
        return script;
    }
    let steps = script.steps.into_iter();
    script.steps = steps.flat_map(|step| [Step::Bytes(bytes.to_vec()), step]).collect();
    script
}

/// The scenario of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// The scenario that a text asks for, and the value after its `=`.
#[must_use]
pub fn parse(text: &str) -> Option<(&'static Scenario, Option<&str>)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let scenario = by_name(name)?;
    (value.is_none() || scenario.value.is_some()).then_some((scenario, value))
}

/// Names that are near to this one, the nearest first.
#[must_use]
pub fn near(name: &str) -> Vec<&'static str> {
    let name = name.split('=').next().unwrap_or_default();
    let mut all: Vec<(usize, &'static str)> =
        ALL.iter().map(|scenario| (distance(name, scenario.name), scenario.name)).collect();
    all.sort_unstable();
    all.into_iter().take(5).map(|(_, name)| name).collect()
}

/// How many characters have to change; less for names that begin alike or hold each other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (at, character) in one.chars().enumerate() {
        let mut corner = at;
        let mut left = at + 1;
        let mut next = vec![left];
        for (other, above) in other.chars().zip(row.iter().skip(1)) {
            let cost = usize::from(character != other);
            left = (corner + cost).min(above + 1).min(left + 1);
            corner = *above;
            next.push(left);
        }
        row = next;
    }
    let edits = row.last().copied().unwrap_or(usize::MAX);
    if other.contains(one) || one.contains(other) { edits.min(2) } else { edits }
}
