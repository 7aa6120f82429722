//! Runs of Assistants threads: the status in the last event of the run, then the event `done`.
//!
//! A run that is not streamed has no text, which is in the messages of its thread. `OpenAI` answers
//! with a run that is queued and polled; here the response is the run when it is over.

use serde_json::Value;

use super::{BASE, Fault, Framing, Part, PathInfo, SimWire, WireEvent, Words, openai_chat};
use crate::answer::{Answer, Call, Choice, End};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "openai-assistants",
    route: "openai",
    bare: true,
    path: "/v1/threads/thread_sim/runs",
    plain_path: "/v1/threads/thread_sim/runs",
    tools: true,
    marker: true,
    framing: Framing::NamedSse,
    words: Words {
        stop: "completed",
        stop_sequence: "completed",
        length: "max_completion_tokens",
        tool_call: "requires_action",
        filter: "completed",
        refusal: "completed",
        context: "max_prompt_tokens",
        failed: "failed",
    },
    takes: |path| {
        let is_run = path.ends_with("/runs") || path.ends_with("/submit_tool_outputs");
        (is_run && path.contains("/threads/")).then(PathInfo::default)
    },
    read,
    stream,
    body,
    error_event,
    headers: openai_chat::headers,
    ..BASE
};

fn read(body: &Value, ask: &mut SimRequest) {
    if ask.model.is_empty() {
        ask.model = sim_request::text(body, "/assistant_id").to_owned();
    }
    ask.cap = sim_request::number(body, &["/max_completion_tokens"]);
    ask.tools = openai_chat::tools(body);
    ask.read_tool_choice(body.get("tool_choice"));
    let messages = match sim_request::items(body, "/additional_messages") {
        [] => sim_request::items(body, "/thread/messages"),
        messages => messages,
    };
    ask.read_turns(messages, "assistant", "content");
    ask.after_tool = !sim_request::items(body, "/tool_outputs").is_empty();
    ask.input = messages.iter().map(sim_request::words).sum();
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    let open = |status: &str| {
        let name = format!("thread.run.{}", if status == "queued" { "created" } else { status });
        WireEvent::named(Part::Start, &name, run(ask, Json::from(status)))
    };
    let mut events = vec![open("queued"), open("in_progress")];
    if !choice.text.is_empty() {
        message(&mut events, ask, &choice);
    }
    for (at, call) in choice.calls.iter().enumerate() {
        function_call(&mut events, ask, at, call);
    }
    let last = body(ask, answer);
    let (status, _) = status(&choice.end);
    let name = if let Json::Text(status) = &status { status } else { "completed" };
    events.push(WireEvent::named(Part::Word, &format!("thread.run.{name}"), last));
    events.push(WireEvent::named(Part::Mark, "done", Json::Raw("[DONE]".to_owned())));
    events
}

fn message(events: &mut Vec<WireEvent>, ask: &SimRequest, choice: &Choice) {
    let message = |status: &str| {
        obj! {
            "id": ask.id("msg_"), "object": "thread.message", "status": status,
            "role": "assistant", "content": list![],
        }
    };
    let opened = message("in_progress");
    events.push(WireEvent::named(Part::Start, "thread.message.created", opened));
    for token in &choice.text {
        let part = if choice.refuses {
            obj! { "index": 0_u64, "type": "refusal", "refusal": token }
        } else {
            obj! { "index": 0_u64, "type": "text", "text": obj! { "value": token } }
        };
        let data = delta(ask.id("msg_"), "thread.message.delta", obj! { "content": list![part] });
        events.push(WireEvent::named(Part::Text, "thread.message.delta", data));
    }
    let cut = matches!(choice.end, End::Length | End::Context);
    let status = if cut { "incomplete" } else { "completed" };
    let name = format!("thread.message.{status}");
    events.push(WireEvent::named(Part::BlockEnd, &name, message(status)));
}

fn function_call(events: &mut Vec<WireEvent>, ask: &SimRequest, at: usize, call: &Call) {
    let name = "thread.run.step.delta";
    let mut push = |part, call: Json| {
        let details = obj! { "type": "tool_calls", "tool_calls": list![call] };
        let data = delta(ask.id("step_"), name, obj! { "step_details": details });
        events.push(WireEvent::named(part, name, data));
    };
    push(Part::CallStart, openai_chat::call_start(ask, at, call));
    for piece in &call.pieces {
        let function = obj! { "arguments": piece };
        let piece = obj! { "index": at, "type": "function", "function": function };
        push(Part::Arguments, piece);
    }
}

fn delta(id: String, object: &str, delta: Json) -> Json {
    obj! { "id": id, "object": object, "delta": delta }
}

/// Returns the status, and the reason if the status is `incomplete`.
fn status(end: &End) -> (Json, Json) {
    let word = WIRE.words.of(end);
    if [End::Length, End::Context].map(|end| WIRE.words.of(&end)).contains(&word) {
        (Json::from("incomplete"), word)
    } else {
        (word, Json::Null)
    }
}

fn run(ask: &SimRequest, status: Json) -> Json {
    obj! {
        "id": ask.id("run_"), "object": "thread.run", "created_at": openai_chat::CREATED,
        "thread_id": "thread_sim", "assistant_id": "asst_sim", "status": status,
        "required_action": Json::Null, "last_error": Json::Null, "incomplete_details": Json::Null,
        "model": &ask.model, "max_completion_tokens": ask.cap, "usage": Json::Null,
    }
}

/// Returns the run when it is over. It lists the calls only if it waits for them.
fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let (status, reason) = status(&choice.end);
    let mut run = run(ask, status);
    if reason != Json::Null {
        run.set("incomplete_details", obj! { "reason": reason });
    } else if !choice.calls.is_empty() {
        let calls = obj! { "tool_calls": openai_chat::calls(ask, &choice) };
        let action = obj! { "type": "submit_tool_outputs", "submit_tool_outputs": calls };
        run.set("required_action", action);
    }
    if choice.end == End::Failed {
        let error = obj! { "code": "server_error", "message": "The simulated model failed." };
        run.set("last_error", error);
    }
    if let Some(usage) = answer.usage {
        run.set("usage", openai_chat::usage_of(usage));
    }
    run
}

fn error_event(fault: &Fault<'_>) -> WireEvent {
    // The event has the error itself, without the key `error`.
    let Json::Object(mut pairs) = openai_chat::error(fault) else {
        return WireEvent::named(Part::Error, "error", Json::Null);
    };
    let error = pairs.pop().map(|(_, error)| error);
    WireEvent::named(Part::Error, "error", Json::from(error))
}
