//! Scenarios: every way a response can end, on every wire where it can happen. One row each.

use endstop::{Closed, Reason, Timer};

use crate::answer::{self, Answer, End};
use crate::json::{Json, obj};
use crate::scene::{self, Compression, Scene};
use crate::script::{Script, ScriptEnd, Step};
use crate::story::{self, Habit};
use crate::wire::{Framing, Part, SimWire, WireEvent};

/// One way a response can end.
#[derive(Debug)]
pub struct Scenario {
    /// Name that requests use to choose it.
    pub name: &'static str,
    /// Value after `=`, if the name takes one.
    pub value: Option<Value>,
    /// Description in one or two sentences.
    pub about: &'static str,
    /// Public issue, or provider or tool that behaves like this. Empty if none is known.
    pub source: &'static str,
    /// Reports whether it exists on this wire.
    pub on: fn(&SimWire) -> bool,
    /// Returns the verdict expected from Endstop's reader, streamed or not, if there is one.
    pub want: fn(&SimWire, Delivery) -> Option<Want>,
    pub(crate) shape: fn(&Scene<'_>, &mut Answer),
    pub(crate) play: fn(&Scene<'_>, &Answer) -> Script,
}

/// Value that a scenario's name takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Placeholder for help, such as `WORD`.
    pub name: &'static str,
    /// Example, which is also the default.
    pub example: &'static str,
}

/// Whether a response is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The request asks for a stream.
    Streamed,
    /// The request asks for a plain body.
    Plain,
}

/// Verdict expected from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Reason for the end.
    pub reason: Reason,
    /// Way in which the bytes closed.
    pub closed: Closed,
}

const fn value(name: &'static str, example: &'static str) -> Option<Value> {
    Some(Value { name, example })
}

/// Number of words of a story.
const STORY: Option<Value> = value("WORDS", "300");

const fn want(reason: Reason, closed: Closed) -> Option<Want> {
    Some(Want { reason, closed })
}

/// Expects this reason and a proven end.
const fn ended(reason: Reason) -> Option<Want> {
    want(reason, Closed::Proven)
}

/// Expects a normal end. On a wire without finish reasons, nothing tells it from any other.
fn complete(wire: &SimWire) -> Option<Want> {
    ended(if wire.has_finish_reasons() { Reason::Complete } else { Reason::Unknown })
}

/// Expects the end at the token limit, which some wires do not tell from a normal end.
fn limited(wire: &SimWire) -> Option<Want> {
    let told = wire.words.length != wire.words.stop;
    if told { ended(Reason::OutputLimit) } else { complete(wire) }
}

/// Expects a complete tool call.
fn called(wire: &SimWire) -> Option<Want> {
    ended(if wire.has_finish_reasons() { Reason::ToolCall } else { Reason::Unknown })
}

/// Expects a cut: an early end of the stream, or a body shorter than its length.
const fn cut(mode: Delivery) -> Option<Want> {
    match mode {
        Delivery::Streamed => want(Reason::Cut, Closed::Eof),
        Delivery::Plain => want(Reason::Cut, Closed::Reset),
    }
}

const fn reset(_: Delivery) -> Option<Want> {
    want(Reason::Cut, Closed::Reset)
}

const fn failed() -> Option<Want> {
    want(Reason::Failed, Closed::Error)
}

/// Expects a failure for an error body with status 200. The error bodies of Bedrock, Cohere and
/// Replicate cannot be recognised without their status.
fn failed_body(wire: &SimWire) -> Option<Want> {
    if bedrock(wire) || is(wire, &["cohere", "cohere-v1", "replicate"]) {
        ended(Reason::Unknown)
    } else {
        failed()
    }
}

const fn idle() -> Option<Want> {
    want(Reason::TimedOut, Closed::TimedOut(Timer::Idle))
}

fn all(_: &SimWire) -> bool {
    true
}

fn worded(wire: &SimWire) -> bool {
    wire.has_finish_reasons()
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
    matches!(wire.framing, Framing::Aws | Framing::AwsChunks)
}

/// Reports whether streams consist of AWS event-stream messages.
fn messages(wire: &SimWire) -> bool {
    wire.streams && bedrock(wire)
}

fn sse(wire: &SimWire) -> bool {
    wire.streams && !bedrock(wire) && wire.framing != Framing::Lines
}

/// Reports whether nothing but the finish reason proves the end of a stream.
fn word_proves(wire: &SimWire) -> bool {
    is(wire, &["gemini", "dashscope", "watsonx"])
}

/// Reports whether a stream is cut if its end marker is missing, whatever the finish reason.
fn marker_proves(wire: &SimWire) -> bool {
    is(wire, &["anthropic", "bedrock-invoke", "aleph-alpha-complete", "cloudflare-run"])
}

/// Reports whether plain bodies hold the arguments of tool calls as JSON values, which always parse.
fn has_values(wire: &SimWire) -> bool {
    let ids = ["anthropic", "bedrock-converse", "bedrock-invoke", "bedrock-nova", "cohere-v1"];
    is(wire, &ids) || is(wire, &["gemini-interactions", "cloudflare-run"])
}

/// Expects the end that a gateway gives a response that it fails.
fn failed_by_gateway(wire: &SimWire, mode: Delivery) -> Option<Want> {
    let told = wire.id == "cohere-v1" && mode == Delivery::Streamed;
    if told { ended(Reason::Failed) } else { failed() }
}

fn marked(wire: &SimWire) -> bool {
    wire.marker
}

fn choices(wire: &SimWire) -> bool {
    let ids = ["openai-chat", "openai-completions", "mistral", "gemini"];
    is(wire, &ids) || is(wire, &["bedrock-ai21", "ai21-complete"])
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
    answer.each(|choice| choice.calls.iter_mut().for_each(answer::halved));
    answer.count(&scene.ask);
    at_cap(scene, answer);
}

/// Sends the finish reason later than all before it, by the scenario's milliseconds.
fn late_word(scene: &Scene<'_>, answer: &Answer) -> Script {
    let mut script = scene.whole(answer);
    if scene.ask.streamed {
        let pause = Step::Wait(scene::milliseconds(scene.number(100)));
        script.steps.insert(scene.before_word(answer).len(), pause);
    }
    script
}

/// Sets the output usage to the token limit, if the request has one.
fn at_cap(scene: &Scene<'_>, answer: &mut Answer) {
    if let (Some(usage), Some(cap)) = (answer.usage.as_mut(), scene.ask.cap) {
        usage.output = cap;
    }
}

fn truncated(scene: &Scene<'_>, answer: &mut Answer) {
    let cap = scene.ask.cap.and_then(|cap| usize::try_from(cap).ok());
    let keep = cap.filter(|cap| *cap < 200).unwrap_or(48);
    answer.each(|choice| {
        choice.text.truncate(keep);
        choice.end = End::Length;
    });
    answer.count(&scene.ask);
    at_cap(scene, answer);
}

fn word(scene: &Scene<'_>) -> End {
    End::Said(Json::from(scene.value.unwrap_or("frobnicated")))
}

/// Base row: other rows list only their differences from it.
const PLAIN: Scenario = Scenario {
    name: "complete",
    value: None,
    about: "A complete response of about 200 tokens, or up to the token limit or a stop sequence.",
    source: "",
    on: all,
    want: |wire, _| complete(wire),
    shape: as_is,
    play: whole,
};

/// Every scenario.
pub static ALL: &[Scenario] = &[
    PLAIN,
    Scenario {
        name: "length",
        about: "Truncated, with the finish reason for the token limit, whatever the limit is. Some \
                wires have none for it.",
        want: |wire, _| limited(wire),
        shape: truncated,
        ..PLAIN
    },
    Scenario {
        name: "stop-sequence",
        about: "Ends at the first stop sequence of the request, or at `END` if it has none.",
        want: |wire, _| {
            let told = wire.words.stop_sequence != wire.words.stop;
            if told { ended(Reason::StopSequence) } else { complete(wire) }
        },
        shape: |scene, answer| {
            let stop = scene.ask.stop.first().cloned().unwrap_or_else(|| "END".to_owned());
            scene.says(answer, answer::some(20), End::StopSequence(stop));
        },
        ..PLAIN
    },
    Scenario {
        name: "empty",
        about: "A normal end without any content.",
        shape: |scene, answer| scene.says(answer, Vec::new(), End::Stop),
        ..PLAIN
    },
    Scenario {
        name: "reasoning-only",
        about: "The finish reason for the token limit, after reasoning alone: no text.",
        want: |wire, _| limited(wire),
        shape: |scene, answer| {
            answer.each(|choice| choice.reasoning = answer::thoughts());
            scene.says(answer, Vec::new(), End::Length);
            at_cap(scene, answer);
            if !scene.wire.reasons {
                answer.each(|choice| choice.reasoning.clear());
            }
        },
        ..PLAIN
    },
    Scenario {
        name: "refusal",
        about: "The model refuses, in the finish reason or in the wire's field for refusals.",
        want: |wire, mode| match (wire.id, mode) {
            ("gemini", _) => ended(Reason::Safety),
            ("bedrock-converse" | "bedrock-nova", _) => ended(Reason::Filtered),
            ("openai-chat" | "sap-orchestration" | "cloudflare-run-chat", _)
            | ("openai-responses" | "anthropic" | "bedrock-invoke", _)
            // A run that is not streamed has no text.
            | ("openai-assistants", Delivery::Streamed) => ended(Reason::Refused),
            _ => complete(wire),
        },
        shape: |scene, answer| {
            let text = answer::tokens("I am sorry, but I cannot help with that.");
            scene.says(answer, text, End::Refusal);
            answer.each(|choice| choice.refuses = true);
        },
        ..PLAIN
    },
    Scenario {
        name: "content-filter",
        about: "A content filter truncates the response.",
        on: |wire| ![wire.words.stop, wire.words.failed].contains(&wire.words.filter),
        want: |wire, _| {
            let refused = is(wire, &["anthropic", "bedrock-invoke"]);
            ended(if refused { Reason::Refused } else { Reason::Filtered })
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Filter),
        ..PLAIN
    },
    Scenario {
        name: "context-limit",
        about: "The context window is full, with the wire's finish reason for it if it has one.",
        want: |wire, _| {
            let told = wire.words.context != wire.words.length;
            if told { ended(Reason::ContextLimit) } else { limited(wire) }
        },
        shape: |scene, answer| scene.says(answer, answer::some(30), End::Context),
        ..PLAIN
    },
    // Long texts that can be continued.
    Scenario {
        name: "story",
        value: STORY,
        about: "A text of this many words, made from a seed (`500-7`: seed 7). A request that \
                continues it gets the rest, to the character.",
        shape: |scene, answer| story::tell(scene, answer, Habit::Exact),
        ..PLAIN
    },
    Scenario {
        name: "story-repeat",
        value: STORY,
        about: "Like `story`, but a model that is asked to continue first repeats 1 to 40 characters.",
        shape: |scene, answer| story::tell(scene, answer, Habit::Repeats),
        ..PLAIN
    },
    Scenario {
        name: "story-drop-space",
        value: STORY,
        about: "Like `story`, but a model that is asked to continue leaves out a space at the start.",
        shape: |scene, answer| story::tell(scene, answer, Habit::DropsSpace),
        ..PLAIN
    },
    Scenario {
        name: "story-loop",
        value: STORY,
        about: "Like `story`, but after 40 words the same passage comes for ever. Each response ends \
                at the token limit, or after 600 tokens with the same finish reason.",
        want: |wire, _| limited(wire),
        shape: |scene, answer| story::tell(scene, answer, Habit::Loops),
        ..PLAIN
    },
    Scenario {
        name: "story-cut",
        value: STORY,
        about: "Like `story`, but the body ends cleanly in the middle, without a finish reason. Not \
                streamed: the body ends before its Content-Length.",
        want: |_, mode| cut(mode),
        shape: |scene, answer| story::tell(scene, answer, Habit::Exact),
        play: |scene, answer| {
            scene.cut(answer, |scene, answer| {
                let half = answer.first_choice().text.len() / 2;
                scene::through(scene.events(answer), Part::Text, half.max(1))
            })
        },
        ..PLAIN
    },
    Scenario {
        name: "story-pause",
        value: STORY,
        about: "Like `story`, but the provider pauses after each third: `pause_turn`, which is sent \
                back, or `CONTINUATION` with a token.",
        on: |wire| is(wire, &["anthropic", "bedrock-invoke", "gemini", "gemini-interactions"]),
        want: |_, _| ended(Reason::Paused),
        shape: |scene, answer| story::tell(scene, answer, Habit::Pauses),
        ..PLAIN
    },
    // Tool calls.
    Scenario {
        name: "tool-call",
        about: "Calls the first tool of the request, with arguments that match its schema.",
        on: tools,
        want: |wire, _| called(wire),
        shape: |scene, answer| scene.calls(answer, 1, End::ToolCall),
        ..PLAIN
    },
    Scenario {
        name: "tool-call-late",
        value: value("MS", "100"),
        about: "A complete tool call, and this many milliseconds later its finish reason.",
        on: tools,
        want: |wire, _| called(wire),
        shape: |scene, answer| scene.calls(answer, 1, End::ToolCall),
        play: late_word,
        ..PLAIN
    },
    Scenario {
        name: "tool-call-parallel",
        about: "Calls the first tool twice in one response.",
        on: tools,
        want: |wire, _| called(wire),
        shape: |scene, answer| scene.calls(answer, 2, End::ToolCall),
        ..PLAIN
    },
    Scenario {
        name: "tool-call-stop",
        about: "A complete tool call, but with the finish reason of a normal stop.",
        on: tools,
        want: |wire, _| called(wire),
        shape: |scene, answer| scene.calls(answer, 1, End::Stop),
        ..PLAIN
    },
    Scenario {
        name: "tool-call-no-args",
        value: value("TEXT", "empty"),
        about: "Calls a tool without parameters, with this text as arguments, or with none at all.",
        source: "Groq, Databricks, OpenRouter, Cohere",
        on: tools,
        want: |wire, _| called(wire),
        shape: |scene, answer| {
            let text = scene.value.filter(|text| *text != "empty").unwrap_or_default();
            let call = answer::call_with(&scene.ask.bare_tool(), text);
            scene.repeat(answer, &call, 1, End::ToolCall);
        },
        ..PLAIN
    },
    Scenario {
        name: "tool-word-without-call",
        about: "The finish reason for tool calls, but no tool call.",
        on: |wire| tools(wire) && wire.words.tool_call != wire.words.stop,
        want: |_, _| ended(Reason::MalformedToolCall),
        shape: |scene, answer| scene.says(answer, answer::some(9), End::ToolCall),
        ..PLAIN
    },
    Scenario {
        name: "tool-call-at-cap",
        about: "The finish reason for tool calls, with arguments truncated at the token limit.",
        source: "vllm#53269",
        on: halves,
        want: |wire, mode| match mode {
            _ if !worded(wire) => called(wire),
            // Arguments given as a JSON value look whole, and reaching the token limit alone does
            // not prove a truncation.
            Delivery::Plain if has_values(wire) => called(wire),
            Delivery::Plain | Delivery::Streamed => ended(Reason::OutputLimit),
        },
        shape: |scene, answer| {
            half_call(scene, answer);
            answer.each(|choice| choice.end = End::ToolCall);
        },
        ..PLAIN
    },
    Scenario {
        name: "invalid-args",
        about: "A closed tool call with the right finish reason, but its arguments are not JSON.",
        source: "anthropic-sdk fixture tool_use_invalid_json_response",
        on: halves,
        want: |wire, mode| match mode {
            _ if !worded(wire) => called(wire),
            Delivery::Plain if has_values(wire) => called(wire),
            Delivery::Plain | Delivery::Streamed => ended(Reason::MalformedToolCall),
        },
        shape: |scene, answer| {
            one_call(scene, answer);
            let plain = !scene.ask.streamed;
            answer.each(|choice| {
                for call in &mut choice.calls {
                    call.pieces = vec!["{\"path\": no".to_owned(), "te.txt}".to_owned()];
                    call.whole = !plain || !has_values(scene.wire);
                }
            });
        },
        ..PLAIN
    },
    Scenario {
        name: "length-half-args",
        about: "The finish reason for the token limit, inside the arguments of a tool call.",
        on: halves,
        want: |wire, _| limited(wire),
        shape: half_call,
        ..PLAIN
    },
    Scenario {
        name: "length-whole-args",
        about: "The finish reason for the token limit, after arguments that parse.",
        on: tools,
        want: |wire, _| limited(wire),
        shape: |scene, answer| {
            scene.calls(answer, 1, End::Length);
            answer.each(|choice| choice.end = End::Length);
            at_cap(scene, answer);
        },
        ..PLAIN
    },
    Scenario {
        name: "length-late",
        value: value("MS", "100"),
        about: "A complete tool call, and this many milliseconds later the finish reason for the \
                token limit.",
        on: tools,
        want: |wire, _| limited(wire),
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.each(|choice| choice.end = End::Length);
            at_cap(scene, answer);
        },
        play: late_word,
        ..PLAIN
    },
    // Ends without a finish reason, and finish reasons without an end.
    Scenario {
        name: "cut-before-word",
        about: "The body ends cleanly after some text, without a finish reason or an end marker. \
                Not streamed: the body ends before its Content-Length.",
        want: |_, mode| cut(mode),
        play: |scene, answer| scene.cut(answer, Scene::some_text),
        ..PLAIN
    },
    Scenario {
        name: "cut-in-tool-call",
        about: "The body ends cleanly inside the arguments of a tool call.",
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
        about: "The body ends cleanly after arguments that parse, before the finish reason.",
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
        name: "cut-after-call",
        about: "The body ends cleanly after a complete and closed tool call, before the finish reason.",
        on: tools,
        want: |_, mode| cut(mode),
        shape: one_call,
        play: |scene, answer| scene.cut(answer, Scene::before_word),
        ..PLAIN
    },
    Scenario {
        name: "cut-in-second-call",
        about: "The body ends cleanly inside the second of two tool calls.",
        on: tools,
        want: |_, mode| cut(mode),
        shape: |scene, answer| {
            scene.calls(answer, 2, End::ToolCall);
            answer.split = true;
        },
        play: |scene, answer| {
            let script = scene.in_second_call(answer);
            if scene.ask.streamed { script } else { script.ending(ScriptEnd::Fin) }
        },
        ..PLAIN
    },
    Scenario {
        name: "done-without-word",
        about: "Text and the end marker, but no finish reason.",
        want: |wire, mode| match (wire.id, mode) {
            (_, Delivery::Streamed) if word_proves(wire) => cut(mode),
            // The last event says `completed` or `done`.
            ("openai-responses" | "replicate", Delivery::Streamed)
            | ("ollama" | "ollama-generate", _) => ended(Reason::Complete),
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Nothing),
        ..PLAIN
    },
    Scenario {
        name: "done-without-word-tool-call",
        about: "A tool call and the end marker, but no finish reason.",
        // The last event of Responses is itself a finish reason: it calls the response completed.
        on: |wire| tools(wire) && !is(wire, &["openai-responses"]),
        want: |wire, mode| match (wire.id, mode) {
            (_, Delivery::Streamed) if word_proves(wire) => cut(mode),
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.each(|choice| choice.end = End::Nothing);
        },
        ..PLAIN
    },
    Scenario {
        name: "no-marker",
        about: "A finish reason, but no end marker after it: no `[DONE]`, no `message_stop`.",
        on: marked,
        want: |wire, mode| match (wire.id, mode) {
            (_, Delivery::Streamed) if marker_proves(wire) => cut(mode),
            (_, Delivery::Streamed) => want(Reason::Complete, Closed::Eof),
            (_, Delivery::Plain) => complete(wire),
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
        name: "no-marker-tool-call",
        about: "A tool call and its finish reason, but no end marker after it. Not streamed: the body \
                ends before its Content-Length.",
        on: |wire| marked(wire) && tools(wire),
        want: |wire, mode| match (wire.id, mode) {
            (_, Delivery::Streamed) if marker_proves(wire) => cut(mode),
            (_, Delivery::Streamed) => want(Reason::ToolCall, Closed::Eof),
            (_, Delivery::Plain) => cut(mode),
        },
        shape: one_call,
        play: |scene, answer| {
            scene.cut(answer, |scene, answer| scene::without(scene.events(answer), Part::Mark))
        },
        ..PLAIN
    },
    Scenario {
        name: "word",
        value: value("WORD", "frobnicated"),
        about: "Text with this finish reason.",
        on: worded,
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| scene.says(answer, answer::some(9), word(scene)),
        ..PLAIN
    },
    Scenario {
        name: "word-tool-call",
        value: value("WORD", "frobnicated"),
        about: "A complete tool call with this finish reason.",
        on: |wire| worded(wire) && tools(wire),
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.each(|choice| choice.end = word(scene));
        },
        ..PLAIN
    },
    Scenario {
        name: "unknown-word",
        about: "Text with an undocumented finish reason.",
        on: worded,
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Said("frobnicated".into())),
        ..PLAIN
    },
    Scenario {
        name: "unknown-word-tool-call",
        about: "A tool call with an undocumented finish reason.",
        on: |wire| worded(wire) && tools(wire),
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.each(|choice| choice.end = End::Said("frobnicated".into()));
        },
        ..PLAIN
    },
    Scenario {
        name: "empty-word",
        about: "An empty string as the finish reason.",
        on: worded,
        want: |wire, mode| match (wire.id, mode) {
            // An empty finish reason counts as missing, and only the finish reason proves the end.
            (_, Delivery::Streamed) if word_proves(wire) => cut(mode),
            // The last event says `done`.
            ("ollama" | "ollama-generate", _) | ("replicate", Delivery::Streamed) => {
                ended(Reason::Complete)
            }
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Said("".into())),
        ..PLAIN
    },
    Scenario {
        name: "long-word",
        about: "A finish reason of about ten thousand characters.",
        on: worded,
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            scene.says(answer, answer::some(9), End::Said("long".repeat(2560).into()));
        },
        ..PLAIN
    },
    Scenario {
        name: "array-word",
        about: "A list as the finish reason.",
        on: worded,
        want: |_, _| ended(Reason::Unknown),
        shape: |scene, answer| {
            let word = Json::Raw("[\"stop\"]".to_owned());
            scene.says(answer, answer::some(9), End::Said(word));
        },
        ..PLAIN
    },
    Scenario {
        name: "finish-error",
        about: "A finish reason for a failure: the wire's own, or `error`, which some hosts send.",
        on: worded,
        want: |wire, _| match wire.id {
            "openai-responses" | "openai-assistants" => failed(),
            "openai-chat"
            | "openai-completions"
            | "mistral"
            | "cohere"
            | "cohere-v1"
            | "bedrock-converse"
            | "bedrock-nova"
            | "watsonx"
            | "gemini-interactions"
            | "sap-orchestration"
            | "replicate"
            | "bedrock-cohere" => ended(Reason::Failed),
            _ => ended(Reason::Unknown),
        },
        shape: |scene, answer| scene.says(answer, answer::some(9), End::Failed),
        ..PLAIN
    },
    Scenario {
        name: "merged-word",
        about: "The last text and the finish reason in one event.",
        on: |wire| is(wire, &["openai-chat", "gemini"]),
        shape: |_, answer| answer.merged = true,
        ..PLAIN
    },
    Scenario {
        name: "repeated-word",
        about: "The finish reason of a normal stop on every event, from the first.",
        on: |wire| is(wire, &["openai-chat", "gemini"]),
        shape: |_, answer| answer.word_everywhere = true,
        ..PLAIN
    },
    Scenario {
        name: "text-after-word",
        about: "More text after the finish reason.",
        on: |wire| is(wire, &["openai-chat", "openai-completions", "gemini"]),
        want: |wire, mode| match (wire.id, mode) {
            // The finish reason proves the end here, but the last text comes after it.
            ("gemini", Delivery::Streamed) => want(Reason::Complete, Closed::Eof),
            _ => complete(wire),
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
        about: "The event with the finish reason is sent twice.",
        source: "OpenRouter",
        on: |wire| is(wire, &["openai-chat", "openai-completions"]),
        play: |scene, answer| after_word(scene, answer, Clone::clone),
        ..PLAIN
    },
    Scenario {
        name: "null-after-word",
        about: "After the finish reason, an event for the same choice whose finish reason is null.",
        source: "Azure's annotations",
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
        about: "Status 200, with an error as the first event. Not streamed: an error body.",
        want: |wire, mode| match mode {
            Delivery::Streamed => failed(),
            Delivery::Plain => failed_body(wire),
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
        about: "An error after some text. Not streamed: status 200, with an error body.",
        want: |wire, mode| match mode {
            Delivery::Streamed => failed(),
            Delivery::Plain => failed_body(wire),
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
        name: "error-after-call",
        about: "An error after a complete tool call. Not streamed: status 200, with an error body.",
        on: tools,
        want: |wire, mode| match mode {
            Delivery::Streamed => failed(),
            Delivery::Plain => failed_body(wire),
        },
        shape: one_call,
        play: |scene, answer| {
            if !scene.ask.streamed {
                return scene.error_body(500, BROKE);
            }
            let mut events = scene.before_word(answer);
            events.push(scene.error_event(500, BROKE));
            scene.streamed(&events)
        },
        ..PLAIN
    },
    Scenario {
        name: "error-after-end",
        about: "A complete response, then an error. Not streamed: only the complete response.",
        want: |wire, mode| match (wire.id, mode) {
            // Only the end of the body proves the end here, and the error comes before it.
            (_, Delivery::Streamed) if word_proves(wire) => failed(),
            _ => complete(wire),
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
        about: "Status 200, with an error body instead of a stream.",
        want: |wire, mode| match (wire.id, mode) {
            // A line without a type says nothing, and the last event is missing.
            ("cohere-v1", Delivery::Streamed) => want(Reason::Unknown, Closed::Eof),
            _ => failed_body(wire),
        },
        play: |scene, _| scene.error_body(500, BROKE),
        ..PLAIN
    },
    Scenario {
        name: "status",
        value: value("CODE", "429"),
        about: "This HTTP status, with Retry-After and the wire's error body.",
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
        about: "An error after some text, then the end marker.",
        source: "vLLM, SGLang, TGI",
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
        about: "An error in the middle of an event stream, as JSON outside an event.",
        source: "Gemini; google-genai _api_client.py",
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
        about: "The prompt is too long: status 400, with the provider's message.",
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
        about: "Status 200, with an empty body.",
        source: "LM Studio",
        want: |_, _| want(Reason::Cut, Closed::Eof),
        play: |scene, _| {
            if scene.ask.streamed { scene.streamed(&[]) } else { scene.body(Vec::new()) }
        },
        ..PLAIN
    },
    Scenario {
        name: "html-200",
        about: "Status 200, with an HTML error page of a CDN.",
        want: |_, _| failed(),
        play: |_, _| scene::page(200),
        ..PLAIN
    },
    Scenario {
        name: "html-503",
        about: "Status 503, with an HTML error page of a CDN.",
        want: |_, _| failed(),
        play: |_, _| scene::page(503),
        ..PLAIN
    },
    Scenario {
        name: "redirect",
        about: "A redirect (302) to another host.",
        want: |_, _| failed(),
        play: |_, _| {
            Script::plain(302, "text/html", Vec::new())
                .header("location", "https://elsewhere.example/v1/chat/completions")
        },
        ..PLAIN
    },
    // Failures as a gateway reports them.
    Scenario {
        name: "fails-early",
        value: value("PARTS", "frame"),
        about: FAILS_EARLY,
        want: failed_by_gateway,
        play: |scene, _| scene.failing(&[]),
        ..PLAIN
    },
    Scenario {
        name: "fails-late",
        value: value("PARTS", "frame"),
        about: "Like `fails-early`, after some text.",
        want: failed_by_gateway,
        play: |scene, answer| scene.failing(&scene.some_text(answer)),
        ..PLAIN
    },
    Scenario {
        name: "fails-in-call",
        value: value("PARTS", "frame"),
        about: "Like `fails-early`, inside the arguments of a tool call.",
        on: halves,
        want: failed_by_gateway,
        shape: one_call,
        play: |scene, answer| scene.failing(&scene.some_arguments(answer)),
        ..PLAIN
    },
    // Transport.
    Scenario {
        name: "reset",
        about: "The connection is reset inside an event. Not streamed: inside the body.",
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
        about: "The connection is reset between two events. Not streamed: inside the body.",
        want: |_, mode| reset(mode),
        play: |scene, answer| scene.cut(answer, Scene::some_text).ending(ScriptEnd::Reset),
        ..PLAIN
    },
    Scenario {
        name: "reset-in-tool-call",
        about: "The connection is reset inside the arguments of a tool call.",
        on: tools,
        want: |_, mode| reset(mode),
        shape: one_call,
        play: |scene, answer| scene.in_call(answer).ending(ScriptEnd::Reset),
        ..PLAIN
    },
    Scenario {
        name: "fin-in-chunk",
        about: "The connection is closed inside an HTTP chunk.",
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
        about: "The body is shorter than its Content-Length.",
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
        about: "The request is accepted and never answered.",
        want: |_, _| None,
        play: |scene, answer| {
            let script = scene.whole(answer);
            Script { silent: true, steps: vec![Step::Stall], ..script }
        },
        ..PLAIN
    },
    Scenario {
        name: "stall",
        about: "Headers and some text, then silence.",
        want: |_, _| idle(),
        play: |scene, answer| scene.stalled(&scene.some_text(answer), answer),
        ..PLAIN
    },
    Scenario {
        name: "stall-in-tool-call",
        about: "Silence inside the arguments of a tool call.",
        on: tools,
        want: |_, _| idle(),
        shape: one_call,
        play: |scene, answer| scene.in_call(answer).then(Step::Stall),
        ..PLAIN
    },
    Scenario {
        name: "stall-after-word",
        about: "The finish reason, then silence: no end marker, no end of the body. Not streamed: \
                the whole body, then a last chunk that never comes.",
        want: |wire, mode| match (wire.id, mode) {
            (_, Delivery::Streamed) if marker_proves(wire) => idle(),
            (_, Delivery::Streamed) if word_proves(wire) || wire.marker => {
                want(Reason::Complete, Closed::TimedOut(Timer::Idle))
            }
            _ => complete(wire),
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
        about: "One byte per second, forever.",
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
        about: "A complete response, with this many milliseconds between events.",
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
        about: "Compressed with gzip, with a Content-Encoding header.",
        play: |scene, answer| scene.compressed(scene.whole(answer), Compression::Gzip, "gzip"),
        ..PLAIN
    },
    Scenario {
        name: "deflate",
        about: "Compressed with deflate, with a Content-Encoding header.",
        play: |scene, answer| {
            scene.compressed(scene.whole(answer), Compression::Deflate, "deflate")
        },
        ..PLAIN
    },
    Scenario {
        name: "gzip-unlabelled",
        about: "Compressed with gzip, without a Content-Encoding header.",
        source: "claude-relay-service#1039",
        play: |scene, answer| scene.compressed(scene.whole(answer), Compression::Gzip, ""),
        ..PLAIN
    },
    Scenario {
        name: "early-hints",
        about: "An interim 103 response comes before the response.",
        play: |scene, answer| Script { early_hints: true, ..scene.whole(answer) },
        ..PLAIN
    },
    // Framing and bytes.
    Scenario {
        name: "utf8-cut",
        about: "Characters of several bytes, each split between two chunks.",
        source: "aisix#111",
        shape: |scene, answer| scene.says(answer, answer::far(), End::Stop),
        play: |scene, answer| {
            let script = scene.whole(answer);
            scene::split_characters(Script { length: None, ..script })
        },
        ..PLAIN
    },
    Scenario {
        name: "invalid-utf8",
        about: "Text with bytes that are not valid UTF-8.",
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
        on: sse,
        play: |scene, answer| with_line_ends(scene, answer, "\r\n"),
        ..PLAIN
    },
    Scenario {
        name: "cr",
        about: "Lines that end in CR alone.",
        on: sse,
        play: |scene, answer| with_line_ends(scene, answer, "\r"),
        ..PLAIN
    },
    Scenario {
        name: "bom",
        about: "A byte order mark before the first event.",
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
        on: sse,
        play: |scene, answer| between(scene, answer, b": comment\nid: 7\nretry: 3000\n\ndata:\n\n"),
        ..PLAIN
    },
    Scenario {
        name: "pings",
        about: "Pings between the events: the wire's own, or comments.",
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
        about: "Comments and pauses before the first event, as hosts under load send them.",
        source: "DeepSeek, OpenRouter",
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
        about: "One event of this size in the middle of the text.",
        source: "openai-go#368",
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
        about: "A line of this many bytes without a line end, then the end of the body.",
        on: |wire| !bedrock(wire),
        want: |_, mode| match mode {
            Delivery::Streamed => want(Reason::Cut, Closed::Eof),
            Delivery::Plain => want(Reason::Cut, Closed::Eof),
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
        about: "One event in the middle is invalid JSON. Not streamed: the body is invalid JSON.",
        want: |wire, mode| match mode {
            Delivery::Streamed => complete(wire),
            // The body is closed, so that nothing is missing.
            Delivery::Plain => ended(Reason::Unknown),
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
        about: "One event that is nested 100,000 levels deep.",
        want: |wire, mode| match mode {
            Delivery::Streamed => complete(wire),
            Delivery::Plain => complete(wire),
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
        about: "Two choices that end differently; the second ends first.",
        on: choices,
        want: |wire, _| limited(wire),
        shape: |scene, answer| {
            let first = answer.first_choice();
            let long = answer::Choice { text: answer::some(30), end: End::Length, ..first.clone() };
            let short = answer::Choice { text: answer::some(9), end: End::Stop, ..first };
            answer.choices = vec![long, short];
            answer.count(&scene.ask);
        },
        ..PLAIN
    },
    Scenario {
        name: "choices-tool-call",
        about: "Two choices, each with a complete tool call.",
        on: |wire| choices(wire) && tools(wire),
        want: |wire, _| called(wire),
        shape: |scene, answer| {
            one_call(scene, answer);
            answer.choices = vec![answer.first_choice(); 2];
            answer.count(&scene.ask);
        },
        ..PLAIN
    },
    Scenario {
        name: "choices-cut-call",
        about: "Two choices with a tool call each. The first is complete, the body ends cleanly \
                inside the second.",
        on: |wire| choices(wire) && halves(wire),
        want: |_, mode| cut(mode),
        shape: |scene, answer| {
            one_call(scene, answer);
            let whole = answer.first_choice();
            let mut half = answer::Choice { end: End::Nothing, ..whole.clone() };
            half.calls.iter_mut().for_each(answer::halved);
            answer.choices = vec![whole, half];
            answer.count(&scene.ask);
        },
        play: |scene, answer| {
            scene.cut(answer, |scene, answer| scene::before(scene.events(answer), Part::Mark))
        },
        ..PLAIN
    },
    Scenario {
        name: "stop-at-cap",
        about: "The finish reason of a normal stop, although the token limit is exactly used up.",
        shape: |scene, answer| {
            truncated(scene, answer);
            answer.each(|choice| choice.end = End::Stop);
        },
        ..PLAIN
    },
    Scenario {
        name: "usage-after",
        about: "Usage in a separate event after the finish reason, requested or not.",
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
        shape: |_, answer| answer.usage = None,
        ..PLAIN
    },
    Scenario {
        name: "usage-decreasing",
        about: "Usage twice, lower the second time. Not streamed: once.",
        on: |wire| {
            let counted = choices(wire) && !is(wire, &["mistral"]) || bedrock(wire);
            wire.streams && (counted || wire.id == "anthropic")
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
    // Specific to some wires.
    Scenario {
        name: "pause",
        about: "The finish reason `pause_turn`, after a tool that the provider runs.",
        on: |wire| is(wire, &["anthropic", "bedrock-invoke"]),
        want: |_, _| ended(Reason::Paused),
        shape: |scene, answer| {
            scene.says(answer, answer::some(9), End::Said("pause_turn".into()));
            answer.each(|choice| choice.server_tool = true);
        },
        ..PLAIN
    },
    Scenario {
        name: "prompt-block",
        about: "The prompt is blocked: `promptFeedback`, and no candidates.",
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
        about: "The provider reports that it could not parse the model's tool call.",
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
        about: "The status `completed`, but with details of why the response is incomplete.",
        on: |wire| is(wire, &["openai-responses"]),
        want: |wire, _| limited(wire),
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
        about: "The body ends inside the JSON array of a stream.",
        on: |wire| is(wire, &["gemini"]),
        want: |_, mode| cut(mode),
        play: |scene, answer| scene.cut(answer, Scene::some_text),
        ..PLAIN
    },
    Scenario {
        name: "no-done",
        about: "All text, but no last line with `done` set.",
        on: |wire| is(wire, &["ollama", "ollama-generate"]),
        want: |_, mode| cut(mode),
        play: |scene, answer| {
            scene.cut(answer, |scene, answer| scene::before(scene.events(answer), Part::Word))
        },
        ..PLAIN
    },
    Scenario {
        name: "bad-crc",
        about: "An event-stream message with a wrong checksum, in the middle of the text.",
        source: "vercel/ai#18994",
        on: messages,
        want: |_, mode| match mode {
            Delivery::Streamed => want(Reason::Cut, Closed::BrokenFrame),
            Delivery::Plain => ended(Reason::Complete),
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
        about: "The body ends cleanly inside the last event-stream message.",
        source: "vercel/ai#19035",
        on: messages,
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
        about: "An exception message in the middle of the text. Not streamed: status 424.",
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
        about: "An event-stream message that claims to be 4 GiB long.",
        on: messages,
        want: |_, mode| match mode {
            Delivery::Streamed => want(Reason::Cut, Closed::Oversize),
            Delivery::Plain => ended(Reason::Complete),
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

/// Start of a message of 4 GiB, with the right prelude checksum.
const HUGE_PREFIX: &[u8] =
    &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x10, 0xe2, 0x48, 0xef, 0x9b, 0x0b, b':', b'e', b'v'];

const FAILS_EARLY: &str = "Fails like a gateway does, before any content. The parts of the end, \
joined by `-`: `frame` (the wire's error, worth asking again), `refused` (the wire's error, which \
would end the same again), `failed`, `invalid` and `incomplete` (the last event of the Responses wire, without \
output), `mark` (the end marker), `abort` (the connection closes early).";
const OVERLOADED: &str = "Overloaded";
const BROKE: &str = "The server had an error while processing your request.";

/// Streams the events, and after the one with the finish reason another one made from it.
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

/// Streams the events with other line ends.
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

/// Streams the events with these bytes before each.
fn between(scene: &Scene<'_>, answer: &Answer, bytes: &[u8]) -> Script {
    let mut script = scene.whole(answer);
    if !scene.ask.streamed || scene.ask.array {
        return script;
    }
    let steps = script.steps.into_iter();
    script.steps = steps.flat_map(|step| [Step::Bytes(bytes.to_vec()), step]).collect();
    script
}

/// Returns the scenario with this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// Returns the scenario that a text such as `status=503` names, and the value after `=`.
#[must_use]
pub fn parse(text: &str) -> Option<(&'static Scenario, Option<&str>)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let scenario = by_name(name)?;
    (value.is_none() || scenario.value.is_some()).then_some((scenario, value))
}
