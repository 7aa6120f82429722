//! Replicate predictions: a status, but no usage, and the same status at the token limit.
//!
//! The output of a stream is plain text, and the event `done` ends it. A request for a stream gets a
//! prediction with the URL of the stream. If it accepts `text/event-stream`, which only the simulator
//! offers, the response is the stream. Other requests get the prediction when it is over, as with
//! `Prefer: wait`.

use serde_json::Value;

use super::{BASE, Fault, Framing, Part, PathInfo, SimWire, WireEvent, Words};
use crate::answer::{Answer, End};
use crate::json::{Json, obj};
use crate::request::decoded;
use crate::sim_request::{self, SimRequest};

pub(super) static WIRE: SimWire = SimWire {
    id: "replicate",
    route: "replicate",
    path: "/v1/predictions",
    plain_path: "/v1/predictions",
    provider: &endstop::provider::REPLICATE,
    remembers: Some(""),
    refers: Some(stream_path),
    framing: Framing::NamedSse,
    words: Words {
        stop: "succeeded",
        stop_sequence: "succeeded",
        length: "succeeded",
        tool_call: "succeeded",
        filter: "succeeded",
        refusal: "succeeded",
        context: "succeeded",
        failed: "failed",
    },
    takes: |path| {
        let before = path.strip_suffix("/predictions")?;
        let model = before.split_once("/models/").map(|(_, model)| decoded(model));
        Some(PathInfo { model, streamed: None })
    },
    read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::named(Part::Error, "error", obj! { "detail": fault.message }),
    ..BASE
};

fn stream_path(path: &str, ask: &SimRequest) -> String {
    let base = path.strip_suffix("/predictions").unwrap_or(path);
    let base = base.split_once("/models/").map_or(base, |(base, _)| base);
    format!("{base}/predictions/{}/stream", ask.id(""))
}

fn read(body: &Value, ask: &mut SimRequest) {
    if ask.model.is_empty() {
        ask.model = sim_request::text(body, "/version").to_owned();
    }
    ask.cap = sim_request::number(body, &["/input/max_tokens"]);
    ask.stop = sim_request::strings(body, "/input/stop_sequences");
    ask.asked = sim_request::text(body, "/input/prompt").to_owned();
    ask.input = body.get("input").map_or(0, sim_request::words);
}

fn stream(_: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choice = answer.first_choice();
    // The lines of a text are one `data` line each.
    let lines = |token: &String| Json::Raw(token.replace('\n', "\ndata: "));
    let output = |token| WireEvent::named(Part::Text, "output", lines(token));
    let mut events: Vec<WireEvent> = choice.text.iter().map(output).collect();
    let mut done = obj! {};
    done.set_some("reason", reason(&choice.end));
    events.push(WireEvent::named(Part::Word, "done", done));
    events
}

/// Returns the reason in the event `done`: none for success, `error` for `failed`.
fn reason(end: &End) -> Json {
    let status = WIRE.words.of(end);
    if status == Json::from("succeeded") {
        Json::Null
    } else if status == Json::from("failed") {
        Json::from("error")
    } else {
        status
    }
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let choice = answer.first_choice();
    let status = WIRE.words.of(&choice.end);
    // A stream says `error` where a prediction says `failed`.
    let status = if status == Json::from("error") { Json::from("failed") } else { status };
    let output: Vec<Json> = choice.text.iter().map(Json::from).collect();
    let id = ask.id("");
    let get = format!("https://api.replicate.com/v1/predictions/{id}");
    let mut prediction = obj! {
        "id": id, "model": &ask.model, "version": "sim", "input": obj! {}, "logs": "",
        "output": output, "error": Json::Null, "status": status, "urls": obj! { "get": get },
    };
    if let Some(url) = &ask.stream_url {
        let get = url.trim_end_matches("/stream");
        prediction.set("urls", obj! { "get": get, "stream": url });
        prediction.set("output", Json::Null);
        prediction.set("status", "starting");
    }
    prediction
}

fn error(fault: &Fault<'_>) -> Json {
    let title = match fault.status {
        401 => "Unauthenticated",
        402 => "Insufficient credit",
        404 => "Not found",
        429 => "Too many requests",
        400 | 422 => "Invalid request",
        _ => "Internal server error",
    };
    obj! { "title": title, "detail": fault.message, "status": fault.status }
}
