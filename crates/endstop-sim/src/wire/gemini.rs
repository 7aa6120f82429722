//! Gemini generateContent: the finish reason on the last chunk, then the end of the body. It has no
//! end marker.

use base64::Engine as _;
use serde_json::Value;

use super::{Fault, Framing, Part, PathInfo, SimWire, WireEvent, Words};
use crate::answer::{self, Answer, Choice, Usage};
use crate::json::{Json, list, obj};
use crate::sim_request::{self, SimRequest, Way};

pub(super) static WIRE: SimWire = SimWire {
    id: "gemini",
    route: "gemini",
    bare: true,
    path: "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    plain_path: "/v1beta/models/gemini-2.5-flash:generateContent",
    provider: &endstop::provider::GOOGLE,
    streams: true,
    tools: true,
    whole_calls: true,
    marker: false,
    reasons: true,
    rejects: &[("gemini", "Requests ending with a model turn are not supported.")],
    remembers: None,
    refers: None,
    framing: Framing::SseOrArray,
    words: Words {
        stop: "STOP",
        stop_sequence: "STOP",
        length: "MAX_TOKENS",
        tool_call: "STOP",
        filter: "PROHIBITED_CONTENT",
        refusal: "SAFETY",
        context: "MAX_TOKENS",
        failed: "OTHER",
    },
    takes,
    read,
    stream,
    body,
    error,
    error_event: |fault| WireEvent::new(Part::Error, error(fault)),
    headers,
    models,
};

pub(super) fn headers(_: &SimRequest) -> Vec<(&'static str, String)> {
    vec![
        ("vary", "Origin, X-Origin, Referer".to_owned()),
        ("server", "scaffolding on HTTPServer2".to_owned()),
        ("x-content-type-options", "nosniff".to_owned()),
        ("server-timing", "gfet4t7; dur=7".to_owned()),
    ]
}

/// Accepts `/{version}/…models/{model}:{method}`.
fn takes(path: &str) -> Option<PathInfo> {
    let (before, method) = path.rsplit_once(':')?;
    let (_, model) = before.split_once("/models/")?;
    let streamed = match method {
        "generateContent" => false,
        "streamGenerateContent" => true,
        _ => return None,
    };
    Some(PathInfo { model: Some(crate::request::decoded(model)), streamed: Some(streamed) })
}

fn read(body: &Value, ask: &mut SimRequest) {
    let config = body.get("generationConfig").or_else(|| body.get("generation_config"));
    let config = config.unwrap_or(&Value::Null);
    ask.cap = sim_request::number(config, &["/maxOutputTokens", "/max_output_tokens"]);
    ask.stop = sim_request::strings(config, "/stopSequences");
    ask.choices = sim_request::number(config, &["/candidateCount"]).unwrap_or(1);
    let declared = |tool: &Value| {
        let mut all = sim_request::items(tool, "/functionDeclarations").to_vec();
        all.extend_from_slice(sim_request::items(tool, "/function_declarations"));
        all
    };
    let tool = |tool: Value| {
        let keys = ["parameters", "parametersJsonSchema", "parameters_json_schema"];
        let schema = keys.iter().find_map(|key| tool.get(key));
        sim_request::tool(sim_request::text(&tool, "/name"), schema)
    };
    ask.tools =
        sim_request::items(body, "/tools").iter().flat_map(declared).filter_map(tool).collect();
    let contents = sim_request::items(body, "/contents");
    let is_result = |part: &Value| {
        part.get("functionResponse").or_else(|| part.get("function_response")).is_some()
    };
    ask.after_tool = contents
        .last()
        .is_some_and(|last| sim_request::items(last, "/parts").iter().any(is_result));
    ask.read_turns(contents, "model", "parts");
    read_mode(body, ask);
    if let Some((place, tokens)) = token_parts(sim_request::text(body, "/continuationToken")) {
        ask.way = Way::At(place);
        ask.spent = tokens;
        // The limit covers all parts of the answer.
        ask.cap = ask.cap.map(|cap| cap.saturating_sub(tokens));
    }
    ask.input = contents.iter().map(sim_request::words).sum();
}

fn read_mode(body: &Value, ask: &mut SimRequest) {
    let config = ["/toolConfig/functionCallingConfig", "/tool_config/function_calling_config"];
    let Some(config) = config.iter().find_map(|at| body.pointer(at)) else { return };
    ask.no_tools = sim_request::text(config, "/mode") == "NONE";
    let names = ["/allowedFunctionNames", "/allowed_function_names"];
    ask.forced = names.iter().find_map(|at| sim_request::strings(config, at).into_iter().next());
}

/// Returns a token for the answer up to this byte, of this many tokens.
pub(crate) fn continuation_token(bytes: usize, tokens: u64) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("sim {bytes} {tokens}"))
}

/// Returns the bytes and tokens that a token stands for.
pub(super) fn token_parts(token: &str) -> Option<(usize, u64)> {
    let text = base64::engine::general_purpose::STANDARD.decode(token).ok()?;
    let text = String::from_utf8(text).ok()?;
    let (bytes, tokens) = text.strip_prefix("sim ")?.split_once(' ')?;
    Some((bytes.parse().ok()?, tokens.parse().ok()?))
}

fn stream(ask: &SimRequest, answer: &Answer) -> Vec<WireEvent> {
    let choices = answer.choices.iter().enumerate();
    let all = choices.map(|(index, choice)| deltas(ask, answer, index, choice)).collect();
    let mut events = super::openai_chat::in_turn(all);
    if ask.array {
        events.push(WireEvent::new(Part::Mark, Json::Null));
    }
    events
}

fn deltas(ask: &SimRequest, answer: &Answer, index: usize, choice: &Choice) -> Vec<WireEvent> {
    let mut events = Vec::new();
    let early = answer.word_everywhere.then_some("STOP").map_or(Json::Null, Json::from);
    let mut so_far = 0_u64;
    let mut push = |part: Part, parts: Json, word: Json, last: bool| {
        so_far += 1;
        let usage = answer.usage.map(|usage| {
            let output = if last { usage.output } else { so_far.min(usage.output) };
            Usage { output, ..usage }
        });
        let candidate = candidate(index, Some(parts), word);
        events.push(WireEvent::new(part, response(ask, vec![candidate], usage)));
    };
    for token in &choice.reasoning {
        push(Part::Reasoning, list![obj! { "text": token, "thought": true }], Json::Null, false);
    }
    let mut texts = choice.text.iter();
    let merged = if answer.merged { texts.next_back() } else { None };
    for token in texts {
        push(Part::Text, list![obj! { "text": token }], early.clone(), false);
    }
    for call in &choice.calls {
        push(Part::Arguments, list![function_call(call)], Json::Null, false);
    }
    let word = WIRE.words.of(&choice.end);
    let text = merged.map_or("", String::as_str);
    push(Part::Word, list![obj! { "text": text }], word, true);
    if let (Some(token), Some(last)) = (&choice.token, events.last_mut()) {
        with_token(&mut last.data, token);
    }
    events
}

fn function_call(call: &answer::Call) -> Json {
    obj! { "functionCall": obj! { "name": &call.name, "args": answer::value(call) } }
}

fn candidate(index: usize, parts: Option<Json>, word: Json) -> Json {
    let mut candidate = obj! {};
    if let Some(parts) = parts {
        candidate.set("content", obj! { "parts": parts, "role": "model" });
    }
    if word != Json::Null {
        candidate.set("finishReason", word);
    }
    candidate.with("index", index)
}

pub(crate) fn response(ask: &SimRequest, candidates: Vec<Json>, usage: Option<Usage>) -> Json {
    let mut response = obj! {};
    if !candidates.is_empty() {
        response.set("candidates", candidates);
    }
    if let Some(usage) = usage {
        response.set("usageMetadata", usage_of(usage));
    }
    response.with("modelVersion", &ask.model).with("responseId", ask.id(""))
}

/// Sets the continuation token of the candidates of a response.
fn with_token(response: &mut Json, token: &str) {
    let Json::Object(pairs) = response else { return };
    for (key, value) in pairs {
        if let ("candidates", Json::List(candidates)) = (key.as_str(), value) {
            candidates.iter_mut().for_each(|candidate| candidate.set("continuationToken", token));
        }
    }
}

fn usage_of(usage: Usage) -> Json {
    // `candidatesTokenCount` excludes reasoning.
    let visible = usage.output.saturating_sub(usage.reasoning);
    let mut data = obj! { "promptTokenCount": usage.input };
    if visible > 0 {
        data.set("candidatesTokenCount", visible);
    }
    data.set("totalTokenCount", usage.input + usage.output);
    if usage.reasoning > 0 {
        data.set("thoughtsTokenCount", usage.reasoning);
    }
    data
}

fn body(ask: &SimRequest, answer: &Answer) -> Json {
    let one = |(index, choice): (usize, &Choice)| {
        let mut parts = Vec::new();
        if !choice.reasoning.is_empty() {
            parts.push(obj! { "text": choice.reasoning.concat(), "thought": true });
        }
        if !choice.text.is_empty() {
            parts.push(obj! { "text": choice.text.concat() });
        }
        parts.extend(choice.calls.iter().map(function_call));
        let parts = (!parts.is_empty()).then_some(Json::List(parts));
        let candidate = candidate(index, parts, WIRE.words.of(&choice.end));
        match &choice.token {
            Some(token) => candidate.with("continuationToken", token),
            None => candidate,
        }
    };
    let candidates = answer.choices.iter().enumerate().map(one).collect();
    response(ask, candidates, answer.usage)
}

/// Returns the response to a blocked prompt, without candidates.
pub(crate) fn blocked(ask: &SimRequest) -> Json {
    let usage = Usage { input: ask.input.max(1), output: 0, reasoning: 0 };
    let mut response = obj! { "promptFeedback": obj! { "blockReason": "PROHIBITED_CONTENT" } };
    response.set("usageMetadata", usage_of(usage));
    response.with("modelVersion", &ask.model)
}

/// Returns a response whose candidate has a finish reason and no content, as for calls that could
/// not be parsed.
pub(crate) fn bare_word(ask: &SimRequest, word: &str, usage: Option<Usage>) -> Json {
    let candidate = candidate(0, None, Json::from(word))
        .with("finishMessage", "Malformed function call: call:write_file{");
    response(ask, vec![candidate], usage)
}

pub(super) fn error(fault: &Fault<'_>) -> Json {
    let (code, status) = match fault.status {
        400 | 422 => (400, "INVALID_ARGUMENT"),
        401 => (401, "UNAUTHENTICATED"),
        403 => (403, "PERMISSION_DENIED"),
        404 => (404, "NOT_FOUND"),
        429 => (429, "RESOURCE_EXHAUSTED"),
        503 | 529 => (503, "UNAVAILABLE"),
        504 => (504, "DEADLINE_EXCEEDED"),
        other => (other, "INTERNAL"),
    };
    obj! { "error": obj! { "code": code, "message": fault.message, "status": status } }
}

pub(super) fn models() -> Json {
    let model = |scenario: &crate::scenario::Scenario| {
        obj! {
            "name": format!("models/{}", scenario.name), "version": "sim",
            "displayName": scenario.name, "inputTokenLimit": 1_048_576_u64,
            "outputTokenLimit": 65_536_u64,
            "supportedGenerationMethods": list!["generateContent", "countTokens"],
        }
    };
    let data: Vec<Json> = crate::scenario::ALL.iter().map(model).collect();
    obj! { "models": data }
}
