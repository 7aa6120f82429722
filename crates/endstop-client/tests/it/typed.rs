//! Typed answers over random schemas, values and cuts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use endstop_client::{Client, ClientBuilder, TypedError};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::quick;

/// A generator of random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn text(&mut self) -> String {
        let alphabet: Vec<char> = "abcdefghij klmnop{}[]\",:\\\n0123é漢👍".chars().collect();
        (0..self.below(20)).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }
}

/// Returns a random schema, and a value that matches it.
fn random(dice: &mut Dice, depth: usize) -> (Value, Value) {
    match dice.below(if depth == 0 { 5 } else { 8 }) {
        0 => (json!({"type": "string"}), json!(dice.text())),
        1 => (json!({"type": "integer"}), json!(dice.below(1_000_000))),
        2 => (json!({"type": "number"}), json!(dice.below(1_000) as f64 / 8.0)),
        3 => (json!({"type": "boolean"}), json!(dice.below(2) == 0)),
        4 => {
            let all = ["red", "green", "blue"];
            (json!({"enum": all}), json!(all[dice.below(3)]))
        }
        5 => {
            let (schema, first) = random(dice, depth - 1);
            // Equal items, which a join could take for a repetition.
            let items = vec![first; dice.below(4)];
            (json!({"type": "array", "items": schema}), json!(items))
        }
        _ => {
            let (mut properties, mut value) = (Map::new(), Map::new());
            for number in 0..dice.below(5) {
                let (schema, inner) = random(dice, depth - 1);
                let name = format!("field_{number}");
                properties.insert(name.clone(), schema);
                value.insert(name, inner);
            }
            let names: Vec<&String> = properties.keys().collect();
            let schema = json!({"type": "object", "properties": properties, "required": names});
            (schema, Value::Object(value))
        }
    }
}

tokio::task_local! {
    static SCHEMA: Value;
}

/// A value of the schema of the case.
#[derive(Debug, PartialEq)]
struct Random(Value);

impl JsonSchema for Random {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Random".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        SCHEMA.with(|schema| Schema::try_from(schema.clone()).unwrap())
    }
}

impl<'de> Deserialize<'de> for Random {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        // The schema of every case is closed, so that a value of another one does not match.
        match SCHEMA.with(|schema| fits(schema, &value)) {
            true => Ok(Self(value)),
            false => Err(serde::de::Error::custom("the value does not match the schema")),
        }
    }
}

fn fits(schema: &Value, value: &Value) -> bool {
    if let Some(all) = schema["enum"].as_array() {
        return all.contains(value);
    }
    match (schema["type"].as_str(), value) {
        (Some("string"), Value::String(_)) | (Some("boolean"), Value::Bool(_)) => true,
        (Some("integer"), Value::Number(number)) => number.is_u64(),
        (Some("number"), Value::Number(_)) => true,
        (Some("array"), Value::Array(items)) => {
            items.iter().all(|item| fits(&schema["items"], item))
        }
        (Some("object"), Value::Object(fields)) => {
            let properties = schema["properties"].as_object().unwrap();
            properties.len() == fields.len()
                && properties
                    .iter()
                    .all(|(name, schema)| fields.get(name).is_some_and(|value| fits(schema, value)))
        }
        _ => false,
    }
}

/// How a response ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Complete,
    Limit,
    /// The bytes stop inside the body.
    Cut,
}

/// Models, by the way in which they continue: a hint, a prefill, a prefill that is repeated, a hint, a prefill.
const MODELS: &[&str] = &[
    "openai/gpt-5",
    "anthropic/claude-haiku-4-5",
    "mistral/mistral-large-latest",
    "openai:responses/gpt-5",
    "gemini/gemini-2.5-flash",
];

fn body(model: &str, text: &str, end: End) -> String {
    let limit = end == End::Limit;
    let body = match model.split('/').next().unwrap() {
        "anthropic" => json!({
            "type": "message", "role": "assistant", "content": [{"type": "text", "text": text}],
            "stop_reason": if limit { "max_tokens" } else { "end_turn" },
        }),
        "openai:responses" => json!({
            "object": "response", "id": "resp_1", "status": if limit { "incomplete" } else { "completed" },
            "incomplete_details": limit.then(|| json!({"reason": "max_output_tokens"})),
            "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
        }),
        "gemini" => json!({"candidates": [{
            "content": {"role": "model", "parts": [{"text": text}]},
            "finishReason": if limit { "MAX_TOKENS" } else { "STOP" },
        }]}),
        _ => json!({"choices": [{
            "index": 0, "message": {"role": "assistant", "content": text},
            "finish_reason": if limit { "length" } else { "stop" },
        }]}),
    };
    body.to_string()
}

/// A server that gives these answers in turn, the last one again and again, and keeps the requests.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(String, End)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = self.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let script = script.clone();
                tokio::spawn(async move { script.serve(socket).await });
            }
        });
        format!("http://{address}")
    }

    async fn serve(&self, mut socket: tokio::net::TcpStream) {
        let mut request = Vec::new();
        let length = |request: &[u8]| {
            let text = String::from_utf8_lossy(request).to_lowercase();
            let head = text.find("\r\n\r\n")?;
            let length =
                text.split("content-length: ").nth(1)?.split('\r').next()?.parse::<usize>();
            Some(head + 4 + length.ok()?)
        };
        while length(&request).is_none_or(|length| request.len() < length) {
            if socket.read_buf(&mut request).await.unwrap_or(0) == 0 {
                return;
            }
        }
        self.requests.lock().unwrap().push(String::from_utf8(request).unwrap());
        let (body, end) = {
            let mut answers = self.answers.lock().unwrap();
            let next = answers.pop_front().unwrap();
            if answers.is_empty() {
                answers.push_back(next.clone());
            }
            next
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let sent =
            if end == End::Cut { &body.as_bytes()[..body.len() / 2] } else { body.as_bytes() };
        let _ = socket.write_all(&[head.as_bytes(), sent].concat()).await;
    }
}

fn builder(url: &str) -> ClientBuilder {
    let providers = ["openai", "anthropic", "mistral", "gemini"];
    let builder = providers.iter().fold(Client::builder(), |builder, name| builder.key(*name, "k"));
    builder.gateway(url).policy(quick())
}

#[tokio::test]
async fn a_truncated_object_is_continued_or_told_and_never_fixed() {
    let script = Script::default();
    let url = script.start().await;
    let client = builder(&url).build().unwrap();
    let mut policy = quick();
    policy.agent.continuation_max_attempts = 0;
    let once = builder(&url).policy(policy).build().unwrap();
    let (mut continued, mut told) = (0, 0);
    for seed in 0..400 {
        let mut dice = Dice(seed * 7919 + 1);
        for _ in 0..4 {
            dice.below(2);
        }
        let model = MODELS[dice.below(MODELS.len())];
        let (schema, value) = random(&mut dice, 3);
        let text = if dice.below(2) == 0 {
            value.to_string()
        } else {
            serde_json::to_string_pretty(&value).unwrap()
        };
        let cuts: Vec<usize> = (1..text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        let Some(cut) = cuts.get(dice.below(cuts.len())) else { continue };
        let (first, rest) = text.split_at(*cut);
        // Mistral repeats the prefill.
        let rest = if model.starts_with("mistral") { &text } else { rest };
        let what = format!("{seed}: {model}, {first:?} + {rest:?}");
        let ask = async |client: &Client, answers: Vec<(String, End)>| {
            *script.answers.lock().unwrap() = answers.into();
            script.requests.lock().unwrap().clear();
            let got = client.request(model).user("Give.").typed::<Random>();
            let got = SCHEMA.scope(schema.clone(), got).await;
            let requests = script.requests.lock().unwrap().clone();
            let fixes = requests
                .iter()
                .filter(|request| request.contains("does not match the JSON schema"));
            assert_eq!(fixes.count(), 0, "a truncated object is sent back to be fixed: {what}");
            (got, requests.len())
        };
        let answer = |text: &str, end: End| (body(model, text, end), end);

        // Continued to its end.
        let answers = vec![answer(first, End::Limit), answer(rest, End::Complete)];
        match ask(&client, answers).await {
            (Ok(Random(got)), 2) => {
                assert_eq!(got, value, "{what}");
                continued += 1;
            }
            other => panic!("{what}: {other:?}"),
        }
        // Told, if it cannot be continued: also a number that is cut into another number.
        let told_as = async |client: &Client, end: End| {
            let (got, _) = ask(client, vec![answer(first, end)]).await;
            match got {
                Err(TypedError::Truncated(reply)) => assert!(reply.text().is_none(), "{what}"),
                // Nothing of a body that is cut can be used.
                Err(TypedError::NoAnswer(_)) if end == End::Cut => {}
                other => panic!("{what}, {end:?}: {other:?}"),
            }
        };
        told_as(&once, End::Limit).await;
        told_as(&client, End::Cut).await;
        told += 2;
        // The provider says that the answer is complete, and the text stops inside a value.
        if serde_json::from_str::<Value>(first).is_err_and(|error| error.is_eof())
            && !first.trim().is_empty()
        {
            let (got, requests) = ask(&client, vec![answer(first, End::Complete)]).await;
            let Err(TypedError::Truncated(reply)) = got else { panic!("{what}: {got:?}") };
            assert!(reply.text().is_some() && requests == 1, "{what}");
            told += 1;
        }
        // The same in a code fence, which may be cut off itself.
        let fenced = format!("```json\n{text}\n```");
        let cuts: Vec<usize> =
            (1..fenced.len()).filter(|at| fenced.is_char_boundary(*at)).collect();
        let first = &fenced[..cuts[dice.below(cuts.len())]];
        let (got, requests) = ask(&client, vec![answer(first, End::Complete)]).await;
        match got {
            Err(TypedError::Truncated(_)) => told += 1,
            // Only the fence is cut off, or a number into another number.
            Ok(Random(got)) => assert!(got == value || value.is_number(), "{what}, {first:?}"),
            other => panic!("{what}, {first:?}: {other:?}"),
        }
        assert_eq!(requests, 1, "{what}, {first:?}");
    }
    println!("{continued} continued to their value, {told} told as truncated");
    assert!(continued > 300 && told > 800, "{continued}, {told}");
}
