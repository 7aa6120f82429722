//! VCR cassettes: vcrpy's, Ruby's, go-vcr's and httpmock's, in YAML and JSON.

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use saphyr::{Scalar, Yaml, YamlLoader};
use saphyr_parser::Parser;
use serde_json::{Map, Value, json};

use super::{Recording, decompress, read_request, set_url};

/// Marks bytes that JSON has no form for.
const BINARY: &str = "!!binary";

pub(super) fn from_yaml(text: &str, name: &str) -> Result<Vec<Recording>> {
    // Values are resolved here: the loader would drop the tag of binary blocks.
    let mut loader = YamlLoader::<Yaml<'_>>::default();
    loader.early_parse(false);
    Parser::new_from_str(text)
        .load(&mut loader, true)
        .with_context(|| format!("{name} is no YAML"))?;
    let mut values: Vec<Value> = loader.into_documents().iter().map(to_json).collect();
    match values.len() {
        1 => from_value(&values.remove(0), name),
        // httpmock writes a document for each interaction.
        _ => from_value(&json!({ "interactions": values }), name),
    }
}

pub(super) fn from_value(cassette: &Value, name: &str) -> Result<Vec<Recording>> {
    let list = ["interactions", "http_interactions", "recordings"]
        .iter()
        .find_map(|key| cassette.get(key).and_then(Value::as_array));
    if let Some(list) = list {
        return Ok(list
            .iter()
            .enumerate()
            .map(|(index, one)| recording(one, name, index))
            .collect());
    }
    if cassette.get("response").or_else(|| cassette.get("then")).is_some() {
        return Ok(vec![recording(cassette, name, 0)]);
    }
    bail!(
        "{name} is no cassette: it has no `interactions`; for a single response there is `endstop check`"
    )
}

fn recording(interaction: &Value, name: &str, index: usize) -> Recording {
    let part = |names: [&str; 2]| names.iter().find_map(|name| interaction.get(name));
    let (request, response) = (part(["request", "when"]), part(["response", "then"]));
    let response = response.unwrap_or(&Value::Null);
    let header = |name: &str| find_header(response, name).unwrap_or_default();
    let encoding = header("content-encoding");
    let mut recording = Recording {
        id: format!("{name}#{index}"),
        status: status(response),
        content_type: header("content-type"),
        body: decompress(body(response), &encoding),
        ..Recording::default()
    };
    let Some(request) = request else { return recording };
    let url =
        ["uri", "url", "path"].iter().find_map(|key| request.get(key).and_then(Value::as_str));
    let url = url.unwrap_or_default();
    if url.starts_with('/') {
        url.clone_into(&mut recording.path);
    } else {
        set_url(&mut recording, url);
    }
    if let Ok(json) = serde_json::from_slice(&body(request)) {
        read_request(&mut recording, &json);
    }
    recording
}

/// A number, or an object with one, or the text of a status line.
fn status(response: &Value) -> u16 {
    let code = response.get("code").or_else(|| response.get("status_code"));
    let status = response.get("status");
    let nested = status.and_then(|status| status.get("code"));
    let number = [code, nested, status].into_iter().flatten().find_map(|value| match value {
        Value::Number(number) => number.as_u64(),
        Value::String(line) => line.split(' ').next().and_then(|code| code.parse().ok()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    number.and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
}

/// Text, bytes, JSON that the recorder parsed, or an object around one of these.
fn body(message: &Value) -> Vec<u8> {
    let body = ["body", "parsed_body", "content", "body_base64"].iter().find_map(|key| {
        let value = message.get(key).filter(|value| !value.is_null())?;
        Some((*key, value))
    });
    match body {
        Some(("body_base64", Value::String(text))) => STANDARD.decode(text).unwrap_or_default(),
        Some((_, value)) => bytes(value),
        None => Vec::new(),
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Object(object) => {
            if let Some(Value::String(encoded)) =
                object.get(BINARY).or_else(|| object.get("base64_string"))
            {
                let encoded: String = encoded.split_whitespace().collect();
                return STANDARD.decode(encoded).unwrap_or_default();
            }
            match object.get("string").or_else(|| object.get("text")) {
                Some(inner) => bytes(inner),
                None if object.is_empty() => Vec::new(),
                None => value.to_string().into_bytes(),
            }
        }
        Value::Null => Vec::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string().into_bytes(),
    }
}

/// Headers are an object of texts or lists, or a list of pairs.
fn find_header(message: &Value, name: &str) -> Option<String> {
    let headers = message.get("headers").or_else(|| message.get("header"))?;
    let text = |value: &Value| match value {
        Value::Array(list) => list.first().and_then(Value::as_str).map(str::to_owned),
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    match headers {
        Value::Object(object) => object
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .and_then(|(_, value)| text(value)),
        Value::Array(list) => list.iter().find_map(|pair| {
            let key = pair.get("name").and_then(Value::as_str)?;
            key.eq_ignore_ascii_case(name).then(|| pair.get("value").and_then(text))?
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// YAML as JSON; what is tagged as binary becomes an object that says so.
fn to_json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(scalar) => match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(value) => json!(value),
            Scalar::Integer(value) => json!(value),
            Scalar::FloatingPoint(value) => json!(value.into_inner()),
            Scalar::String(text) => json!(text),
        },
        Yaml::Representation(text, _, Some(tag)) if tag.suffix == "binary" => {
            json!({ BINARY: text })
        }
        Yaml::Representation(text, style, tag) => {
            let scalar = Scalar::parse_from_cow_and_metadata(text.clone(), *style, tag.as_ref());
            scalar.map_or(Value::Null, |scalar| to_json(&Yaml::Value(scalar)))
        }
        Yaml::Sequence(list) => Value::Array(list.iter().map(to_json).collect()),
        Yaml::Mapping(map) => {
            let pairs = map.iter().map(|(key, value)| {
                let key = to_json(key);
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                (key, to_json(value))
            });
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        Yaml::Tagged(_, inner) => to_json(inner),
        Yaml::Alias(_) | Yaml::BadValue => Value::Null,
    }
}
