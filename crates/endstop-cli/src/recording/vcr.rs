//! VCR cassettes of vcrpy, Ruby's VCR, go-vcr and httpmock, in YAML and JSON.

use std::collections::BTreeMap;

use saphyr::{Scalar, Yaml, YamlLoader};
use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value, json};

use super::{
    ReadOne, Recording, Unread, decompress, find_header, from_base64, read_status, set_url,
    version_headers,
};

/// Key that marks binary data, which JSON cannot represent.
const BINARY: &str = "!!binary";
/// Maximum nesting depth of a cassette.
const MAX_DEPTH: usize = 128;
/// Maximum number of values in a cassette, including those that aliases repeat.
const MAX_VALUES: u64 = 10_000_000;

pub(super) fn from_yaml(text: &str, name: &str) -> Result<Value, Unread> {
    check_size(text).map_err(|why| Unread::record(name, why))?;
    // Values are resolved later, because the loader would drop the tag of binary blocks.
    let mut loader = YamlLoader::<Yaml<'_>>::default();
    loader.early_parse(false);
    Parser::new_from_str(text)
        .load(&mut loader, true)
        .map_err(|error| Unread::record(name, format!("not YAML: {error}")))?;
    let mut values: Vec<Value> = loader.into_documents().iter().map(to_json).collect();
    Ok(match values.len() {
        1 => values.remove(0),
        // httpmock writes one document per interaction.
        _ => json!({ "interactions": values }),
    })
}

/// Rejects nesting and aliases that would exhaust stack or memory: the loader has no limits.
fn check_size(text: &str) -> Result<(), String> {
    let mut open: Vec<(usize, u64)> = vec![(0, 0)];
    let mut sizes: BTreeMap<usize, u64> = BTreeMap::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| format!("not YAML: {error}"))?;
        let values = match event {
            Event::Scalar(_, _, anchor, _) => {
                sizes.insert(anchor, 1);
                1
            }
            Event::Alias(anchor) => sizes.get(&anchor).copied().unwrap_or(1),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, 1));
                0
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (anchor, values) = open.pop().unwrap_or_default();
                sizes.insert(anchor, values);
                values
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => 0,
        };
        if let Some((_, total)) = open.last_mut() {
            *total = total.saturating_add(values);
        }
        if open.len() > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        if open.iter().any(|(_, total)| *total > MAX_VALUES) {
            return Err("more than 10 million values, including repeats by aliases".to_owned());
        }
    }
    Ok(())
}

/// Passes every interaction to `on`, one by one.
pub(super) fn each(
    cassette: &Value,
    name: &str,
    mut on: impl FnMut(ReadOne) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let list = ["interactions", "http_interactions", "recordings"]
        .iter()
        .find_map(|key| cassette.get(key).and_then(Value::as_array));
    if let Some(list) = list {
        let mut list = list.iter().enumerate();
        return list.try_for_each(|(index, one)| on(recording(one, name, index)));
    }
    if cassette.get("response").or_else(|| cassette.get("then")).is_some() {
        return on(recording(cassette, name, 0));
    }
    let why =
        "not a cassette: `interactions` is missing; use `endstop check` for a single response";
    on(Err(Unread::file(name, why)))
}

fn recording(interaction: &Value, name: &str, index: usize) -> ReadOne {
    let id = format!("{name}#{index}");
    let unread = |why: String| Unread::record(id.as_str(), why);
    let part = |names: [&str; 2]| names.iter().find_map(|name| interaction.get(name));
    let (request, response) = (part(["request", "when"]), part(["response", "then"]));
    let response = response.filter(|response| response.is_object());
    let response = response.ok_or_else(|| unread("no response was recorded".to_owned()))?;
    let header = |name: &str| find_header(response, name).unwrap_or_default();
    let encoding = header("content-encoding");
    let (status, odd) = status(response);
    let body = match body_of(response).map_err(unread)? {
        Some(body) => decompress(body, &encoding).map_err(unread)?,
        // A status above 200 may have no body. A 200 must have one.
        None if status > 200 => Vec::new(),
        None => return Err(unread("no body was recorded".to_owned())),
    };
    let mut recording = Recording {
        status,
        content_type: header("content-type"),
        body,
        odd,
        id,
        ..Recording::default()
    };
    let Some(request) = request else { return Ok(recording) };
    recording.headers = version_headers(request);
    let url =
        ["uri", "url", "path"].iter().find_map(|key| request.get(key).and_then(Value::as_str));
    let url = url.unwrap_or_default();
    if url.starts_with('/') {
        url.clone_into(&mut recording.path);
    } else {
        set_url(&mut recording, url);
    }
    recording.request = body_of(request).ok().flatten().unwrap_or_default();
    Ok(recording)
}

/// Reads the status from a number, an object with a number, or a status line. Returns 0 and the
/// field's name if the value is invalid.
fn status(response: &Value) -> (u16, Vec<String>) {
    let code = response.get("code").or_else(|| response.get("status_code"));
    let status = response.get("status");
    let nested = status.and_then(|status| status.get("code"));
    let said: Vec<&Value> = [code, nested, status].into_iter().flatten().collect();
    let read = said.iter().find_map(|value| read_status(value));
    let odd = read.is_none() && said.iter().any(|value| !value.is_null());
    (read.unwrap_or(0), if odd { vec!["status".to_owned()] } else { Vec::new() })
}

/// Returns the body: text, bytes, JSON that the recorder parsed, or an object around one of these.
fn body_of(message: &Value) -> Result<Option<Vec<u8>>, String> {
    let body = ["body", "parsed_body", "content", "body_base64"].iter().find_map(|key| {
        let value = message.get(key).filter(|value| !value.is_null())?;
        Some((*key, value))
    });
    match body {
        Some(("body_base64", Value::String(text))) => from_base64(text).map(Some),
        Some((_, value)) => bytes(value),
        None => Ok(None),
    }
}

fn bytes(value: &Value) -> Result<Option<Vec<u8>>, String> {
    let object = match value {
        Value::String(text) => return Ok(Some(text.as_bytes().to_vec())),
        Value::Null => return Ok(None),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Ok(Some(value.to_string().into_bytes()));
        }
        Value::Object(object) => object,
    };
    if let Some(Value::String(encoded)) = object.get(BINARY).or_else(|| object.get("base64_string"))
    {
        return from_base64(encoded).map(Some);
    }
    match object.get("string").or_else(|| object.get("text")) {
        Some(inner) => bytes(inner),
        None if object.is_empty() => Ok(Some(Vec::new())),
        None => Ok(Some(value.to_string().into_bytes())),
    }
}

/// Converts YAML to JSON. Binary values become objects with the key `BINARY`.
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
